"""Text in DICOM results: any script, the declared character set, the length of its VR."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pydicom
import pytest
from dicom_cases import RULES, write_run
from import_cases import write_patient, write_rois
from pydicom.dataset import Dataset

from cad.dicom.archive.interface import file_under
from cad.dicom.into.importer import import_source
from cad.dicom.out.objects import long_string
from cad.dicom.out.results import write_sr_and_seg
from cad.dicom.out.sr_reader import read_report

NAMES = ("Läsion_Ü", "病変_1", "Опухоль", "x" * 63 + "é", "y" * 90, "e\u0301" * 50, "a\\b")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("text")
    source = write_patient(root / "in", dce=False)
    write_rois(source, 1)
    (root / "rules.yaml").write_text(RULES)
    assert import_source(source, root / "out", root / "rules.yaml").failures == []
    return root / "out"


def with_region(cohort: Path, name: str) -> None:
    """Rename the cohort's only region."""
    head, row = (cohort / "rois.tsv").read_text().splitlines()
    cells = row.split("\t")
    cells[head.split("\t").index("roi_id")] = name
    (cohort / "rois.tsv").write_text(f"{head}\n" + "\t".join(cells) + "\n")
    (cohort / "scores.tsv").write_text("participant_id\troi_id\treader_id\tscale\tscore\n")


@pytest.mark.parametrize("name", NAMES)
def test_region_names_of_any_script(imported: Path, tmp_path: Path, name: str):
    with_region(imported, name)
    made = write_sr_and_seg(
        write_run(tmp_path / "run", "sub-P001", {name: 0.4}), imported, tmp_path / "dicom"
    )
    assert made[1] == []
    seg, report = (pydicom.dcmread(path) for path in made[0])
    for path, dataset in zip(made[0], (seg, report), strict=True):
        assert dataset.SpecificCharacterSet == "ISO_IR 192"
        assert name.encode("utf-8") in path.read_bytes()
    label = seg.SegmentSequence[0].SegmentLabel
    assert isinstance(label, str)  # a backslash would make it two values
    assert len(label.encode()) <= 64
    assert unicodedata.normalize("NFC", label.partition("~")[0]) in unicodedata.normalize(
        "NFC", name.replace("\\", "/")
    )
    assert read_report(made[0][1]).rois[0].roi_id == name


def test_long_names_stay_apart_and_whole():
    assert long_string("short") == "short"
    one, two = long_string("z" * 70 + "1"), long_string("z" * 70 + "2")
    assert one != two
    assert len(one) == len(two) == 64
    assert long_string("病" * 30).startswith("病" * 19 + "~")  # three bytes each
    accented = "b" * 56 + "e\u0301" + "c" * 20  # the cut would fall between letter and accent
    kept = long_string(accented).partition("~")[0]
    assert kept == "b" * 56
    assert long_string("a\\b\n") == "a/b "
    assert "\\" not in long_string("\x1b")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Größe^Jürgen", "ISO_IR 100"),
        ("Люкceмбypг^Иван", "ISO_IR 144"),
        ("Yamada^Tarou=山田^太郎", "ISO_IR 192"),
    ],
)
def test_the_archives_own_names_survive_the_way_back(
    imported: Path, tmp_path: Path, text: str, code: str
):
    """The archive's answer comes in its character set; the sent copy is read as the same name."""
    with_region(imported, "Läsion")
    run = write_run(tmp_path / "run", "sub-P001", {"Läsion": 0.4})
    path = write_sr_and_seg(run, imported, tmp_path / "dicom")[0][0]
    dataset = pydicom.dcmread(path)
    answer = Dataset()
    answer.SpecificCharacterSet = code
    answer.StudyInstanceUID, answer.PatientID = dataset.StudyInstanceUID, dataset.PatientID
    answer.PatientName = text
    answer.save_as(tmp_path / "answer", implicit_vr=True, little_endian=True)
    answer = pydicom.dcmread(tmp_path / "answer", force=True)
    file_under(dataset, [answer])
    dataset.save_as(tmp_path / "sent.dcm")
    sent = pydicom.dcmread(tmp_path / "sent.dcm")
    assert str(sent.PatientName) == text
    assert sent.SegmentSequence[0].SegmentLabel == "Läsion"
