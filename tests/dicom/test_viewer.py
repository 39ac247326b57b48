"""OHIF, a viewer of radiologists, shows our SEG and SR over Orthanc, in a real browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import ohif
import pytest
from dicom_cases import write_run
from orthanc import require_orthanc
from PIL import Image

from cad.dicom.into.importer import import_source
from cad.dicom.out.results import write_sr_and_seg
from cad.folders.cohort import read_cohort

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(3600)]


def colour(picture: np.ndarray, places: list[list[float]]) -> np.ndarray:
    """Return the distance of each place from grey, 0 to 255."""
    column, row = np.rint(np.array(places)).astype(int).T
    pixels = picture[row, column].astype(int)
    return pixels.max(axis=1) - pixels.min(axis=1)


def test_the_viewer_overlays_segments_and_lists_measurements(repository: Path, tmp_path: Path):
    require_orthanc()
    absent = [tool for tool in ("npm", "chromium") if not shutil.which(tool)]
    if absent:
        pytest.skip(f"{', '.join(absent).upper()} ABSENT: OHIF was not opened")
    built = ohif.built_files(Path(os.environ.get("CAD_OHIF", repository / "build" / "ohif")))
    source, cohort = repository / "sample_data" / "dicom", tmp_path / "cohort"
    rules = repository / "configs" / "import" / "sample.yaml"
    assert import_source(source, cohort, rules).failures == []
    (study,) = read_cohort(cohort).studies()
    regions = read_cohort(cohort).rois["roi_id"].astype(str)
    chances = {roi: (k + 1) / 16 for k, roi in enumerate(regions)}
    run = write_run(tmp_path / "run", study.participant_id, chances)
    _, failures = write_sr_and_seg(run, cohort, run / "dicom")
    assert failures == []
    out = tmp_path / "out"
    support = repository / "tests" / "support"
    subprocess.run(
        [
            support / "with_orthanc.sh",
            sys.executable,
            support / "show_in_ohif.py",
            built,
            cohort,
            run,
            out,
        ],
        cwd=repository,
        check=True,
    )
    shown = json.loads((out / "shown.json").read_text())
    picture = np.asarray(Image.open(out / "seg.png").convert("RGB"))
    assert len(shown["inside"]) >= 4
    # Images are grey: colour is the overlay's, under the outline and nowhere beside it.
    assert np.mean(colour(picture, shown["inside"]) > 25) > 0.95
    assert np.mean(colour(picture, shown["outside"]) < 10) > 0.95
    lines = [f"Probability of cancer: {100 * p:.2f} %" for p in chances.values()]
    assert any(line in shown["text"] for line in lines), shown["text"]
