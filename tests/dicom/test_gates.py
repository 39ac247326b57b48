"""Which gate catches which mix-up: at the import, and in a cohort that is there already.

The table in docs/import.md is this module's table; a test holds one against the other.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from dicom_files import edit
from import_cases import only_failure, write_patient, write_rois

from cad.base.errors import CadError
from cad.dicom.into.importer import import_source
from cad.folders.cohort import read_cohort
from cad.mri.imaging.nifti import (
    read_dynamic,
    read_volume,
    sidecar_path,
    write_dynamic,
    write_volume,
)
from cad.mri.imaging.plausibility import implausible
from cad.mri.imaging.study import Roi
from cad.mri.imaging.study_files import check_study, read_study


def scaled(factor: float) -> tuple[Callable[[Path], None], Callable[[Path], None]]:
    """ADC in other units: by the header's slope, and in the NIfTI file."""

    def source(folder: Path) -> None:
        for path in (folder / "adc").iterdir():
            edit(path, RescaleSlope=f"{factor:g}", RescaleIntercept="0")

    def cohort(home: Path) -> None:
        path = next(home.rglob("*_ADC.nii.gz"))
        volume = read_volume(path)
        write_volume(path, volume.with_array((volume.array * factor).astype(np.float32)))

    return source, cohort


def seconds_in_the_header(folder: Path) -> None:
    for path in (p for name in ("v3", "v4", "d0", "d1", "d2") for p in (folder / name).iterdir()):
        edit(path, RepetitionTime="0.00385")


def milliseconds_in_the_sidecar(home: Path) -> None:
    path = sidecar_path(next(home.rglob("*_dce.nii.gz")))
    path.write_text(json.dumps({**json.loads(path.read_text()), "RepetitionTime": 3.85}))


def swapped_angles(folder: Path) -> None:
    for name, angle in (("v3", "2"), ("v4", "15")):
        for path in (folder / name).iterdir():
            edit(path, FlipAngle=angle)


def swapped_sidecars(home: Path) -> None:
    one, two = (sidecar_path(p) for p in sorted(home.rglob("*_VFA.nii.gz")))
    first, second = one.read_text(), two.read_text()
    one.write_text(second)
    two.write_text(first)


def reversed_times(folder: Path) -> None:
    for name, time in (("d0", 16.4), ("d2", 8.0)):
        for path in (folder / name).iterdir():
            edit(path, SeriesDescription=f"dyn TT={time}s", SeriesNumber=str(100 - int(time)))


def reversed_frames(home: Path) -> None:
    path = next(home.rglob("*_dce.nii.gz"))
    side = json.loads(sidecar_path(path).read_text())
    dynamic = read_dynamic(path)
    write_dynamic(path, replace(dynamic, frames=dynamic.frames[::-1].copy()), side)


def others_t2(folder: Path) -> None:
    for path in (folder / "t2").iterdir():
        edit(path, PatientID="P-002")


def others_t2_file(home: Path) -> None:
    other = home.parent / "sub-P002"
    for suffix in ("nii.gz", "json"):
        target = home / f"anat/{home.name}_T2w.{suffix}"
        shutil.copy(other / f"anat/sub-P002_T2w.{suffix}", target)


def others_rois(folder: Path) -> None:
    path = folder / "rois.nii.gz"
    write_volume(path, replace(read_volume(path), origin=(4.0, -3.0, 2.0)))


def others_roi_file(home: Path) -> None:
    others_rois_at(next(home.rglob("*_rois.nii.gz")))


def others_rois_at(path: Path) -> None:
    write_volume(path, replace(read_volume(path), origin=(4.0, -3.0, 2.0)))


@dataclass(frozen=True)
class Case:
    """A mix-up, how to make it in a source and in a cohort, and what names it there."""

    name: str
    source: Callable[[Path], None]
    cohort: Callable[[Path], None]
    at_import: str
    in_cohort: str
    gate: str


_LOOKS = "values look like "
CASES = [
    Case("ADC × 10⁻³", *scaled(1e-3), _LOOKS + "1e-3 mm2/s", _LOOKS + "1e-3 mm2/s", "adc_median"),
    Case("ADC × 10⁻⁶", *scaled(1e-6), _LOOKS + "mm2/s", _LOOKS + "mm2/s", "adc_median"),
    Case("ADC × 10³", *scaled(1e3), _LOOKS + "1e-9 mm2/s", _LOOKS + "1e-9 mm2/s", "adc_median"),
    Case(
        "repetition time in s for ms",
        seconds_in_the_header,
        milliseconds_in_the_sidecar,
        "repetition time of DCE is 3.85e-06 s.*divided once too often",
        "repetition time of DCE is 3.85 s.*milliseconds, not seconds",
        "dce_repetition_time",
    ),
    Case(
        "flip angles swapped",
        swapped_angles,
        swapped_sidecars,
        "T1 by the flip-angle images.*flip angles swapped",
        "T1 by the flip-angle images.*flip angles swapped",
        "vfa_t1, vfa_misfit",
    ),
    Case(
        "DCE reversed",
        reversed_times,
        reversed_frames,
        "first DCE frame already shows.*reversed order|not monotonic",
        "first DCE frame already shows.*reversed order",
        "dce_first_frame, numbering",
    ),
    Case(
        "T2 of another patient",
        others_t2,
        others_t2_file,
        "images or objects of 2 patients in one study",
        "images of different examinations in one study",
        "PatientID, StudyInstanceUID",
    ),
    Case(
        "ROI of another study",
        others_rois,
        others_roi_file,
        "corners of the label map.*another study",
        "corners of the label map.*another study",
        "mask_offset, FrameOfReferenceUID",
    ),
]
IDS = [case.name for case in CASES]


def patient(folder: Path, name: str = "P-001") -> Path:
    source = write_patient(folder, name)
    write_rois(source, 1, 2)
    return source


def found_in(root: Path) -> list[CadError]:
    """Return the messages of reading, checking and the physical gate on a cohort's first study."""
    study = read_cohort(root).studies()[0]
    rows = study.rois
    rois = [Roi(str(r), int(n)) for r, n in zip(rows["roi_id"], rows["label"], strict=True)]
    try:
        read = read_study(study.folder, study.study_id, study.participant_id, rois)
    except CadError as error:
        return [error]
    return [*implausible(read), *check_study(read)]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from import_cases import RULES

    root = tmp_path_factory.mktemp("gates")
    (root / "rules.yaml").write_text(RULES)
    for name in ("P-001", "P-002"):
        patient(root / "in" / name, name)
    assert import_source(root / "in", root / "out", root / "rules.yaml").failures == []
    return root / "out"


def test_a_sound_study_passes(cohort: Path):
    assert found_in(cohort) == []


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_at_the_import(case: Case, tmp_path: Path, rules: Path):
    source = patient(tmp_path / "in")
    case.source(source)
    error = only_failure(import_source(source, tmp_path / "out", rules))
    with pytest.raises(CadError, match=case.at_import):
        raise error
    assert error.hint
    assert not list((tmp_path / "out").glob("sub-*"))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_in_a_cohort(case: Case, cohort: Path, tmp_path: Path):
    copy = tmp_path / "cohort"
    shutil.copytree(cohort, copy)
    case.cohort(copy / "sub-P001")
    problems = found_in(copy)
    assert problems
    with pytest.raises(CadError, match=case.in_cohort):
        raise problems[0]
    assert problems[0].hint


def test_a_site_may_widen_a_range(tmp_path: Path, rules: Path):
    source = patient(tmp_path / "in")
    scaled(1e3)[0](source)
    text = rules.read_text()
    rules.write_text(text + "ranges: {adc_median: [400, 1.0e+7]}\n")
    assert import_source(source, tmp_path / "out", rules).failures == []
    rules.write_text(text + "ranges: {adc_mediann: [1, 2]}\n")
    with pytest.raises(CadError, match="known are adc_median"):
        import_source(source, tmp_path / "out", rules)


def test_a_rule_may_state_the_scale(tmp_path: Path, rules: Path):
    source = patient(tmp_path / "in")
    scaled(1e-3)[0](source)
    text = rules.read_text()
    rules.write_text(text.replace("{image_type: [ADC]}", "{image_type: [ADC], scale: 1000}"))
    assert import_source(source, tmp_path / "out", rules).failures == []
    side = json.loads(next((tmp_path / "out").rglob("*_ADC.json")).read_text())
    assert (side["Units"], side["UnitsSource"]) == ("1e-6 mm2/s", "import rule: values x 1000")


def test_the_table_of_the_page(repository: Path):
    page = (repository / "docs/import.md").read_text(encoding="utf-8")
    for case in CASES:
        assert f"| {case.name} | refused | named | {case.gate} |" in page
