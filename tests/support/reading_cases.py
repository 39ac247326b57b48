"""A cohort of small T2 images that readers score, and what their pages export."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cad.folders.cohort import read_cohort, write_tables
from cad.hospital.reader_study.study import drawn_on
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import write_study
from cad.mri.imaging.volume import Volume
from cad.run.stages.study import read_study_of

READERS = ("r1", "r2", "r3")
COLUMNS = ["participant_id", "roi_id", "reader_id", "scale", "score"]


def make_cohort(root: Path, patients: int) -> Path:
    """A cohort of T2 images of two regions each; the last region lies on the last slice."""
    rng = np.random.default_rng(3)
    ids = [f"sub-{k:04d}" for k in range(1, patients + 1)]
    for name in ids:
        array = rng.integers(50, 400, (6, 40, 40)).astype(np.float32)
        labels = np.zeros(array.shape, np.uint8)
        labels[2, 8:14, 8:14], labels[5, 20:26, 22:28] = 1, 2
        image = Volume(array, (0.5, 0.5, 3.0), (0.0, 0.0, 0.0), np.eye(3))
        study = Study(
            name, name, t2w=image, roi_map=image.with_array(labels), rois=[Roi("a", 1), Roi("b", 2)]
        )
        write_study(root / name, study)
    found = (("malignant", "3"), ("benign", "n/a"))
    rois = [
        (name, roi, k, "n/a", *found[(i + k) % 2])
        for i, name in enumerate(ids)
        for k, roi in enumerate("ab", start=1)
    ]
    columns = ["participant_id", "roi_id", "label", "zone", "histology", "isup"]
    write_tables(
        root,
        participants=pd.DataFrame({"participant_id": ids}),
        readers=pd.DataFrame({"reader_id": READERS, "expert": 0}),
        rois=pd.DataFrame(rois, columns=columns),
        scores=pd.DataFrame(columns=COLUMNS),
    )
    return root


def export(folder: Path, reader: str, session: int = 1, **changed: Any) -> Path:
    """Write what the page writes, every score by a rule that the tests know."""
    key = json.loads((folder / "reading.json").read_text())
    plan = next(s for s in key["sessions"] if (s["reader"], s["session"]) == (reader, session))
    readings = [
        {
            "case": code,
            "roi": roi,
            "score": 1 + zlib.crc32(f"{code}{roi}{reader}".encode()) % 5,
            "condition": condition,
            "milliseconds": 900,
            "note": 'é \u2028 "q"\ttab',
        }
        for code, condition in plan["cases"]
        for roi in key["cases"][code]["rois"]
    ]
    content = {
        "format": key["format"],
        "study": key["study"],
        "reader": reader,
        "session": session,
        "scale": key["scale"],
        "finished": None,
        "readings": readings,
    } | changed
    line = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    path = folder / f"{reader}-session-{session}.jsonl"
    path.write_bytes(line + b'\n{"crc32":"%08x"}\n' % zlib.crc32(line))
    return path


def code_of(study: Path, patient: str) -> str:
    cases = json.loads((study / "reading.json").read_text())["cases"]
    return next(code for code, case in cases.items() if case["participant_id"] == patient)


def outline(cohort: Path, study: Path, inside: np.ndarray, roi: str = "a") -> dict[str, Any]:
    """Return the page's words on voxels (z, y, x of the image) of the first patient."""
    ref = next(r for r in read_cohort(cohort).studies() if r.study_id == "sub-0001")
    place = drawn_on(read_study_of(ref))
    part = tuple(slice(a, a + n) for a, n in zip(place["first"], place["shape"], strict=True))
    flat = np.flatnonzero(inside[part])  # the made images are not turned
    assert len(flat) == inside.sum(), "the page does not show this"
    runs: list[int] = []
    for k in flat.tolist():
        if runs and runs[-2] + runs[-1] == k:
            runs[-1] += 1
        else:
            runs += [k, 1]
    return {"case": code_of(study, "sub-0001"), "roi": roi, **place, "runs": runs}


def square(low: int = 9, high: int = 16, z: int = 2) -> np.ndarray:
    """The image's voxels of a square; region ``a`` is 8 to 14 on slice 2."""
    inside = np.zeros((6, 40, 40), bool)
    inside[z, low:high, low:high] = True
    return inside
