"""Import: tables of findings and scores that are doubtful, misspelt or of somebody else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dicom_files import write_series
from import_cases import only_failure, table, voxels

from cad.base.errors import CadError
from cad.dicom.into.importer import ImportSummary, import_source
from cad.dicom.into.regions import _uncovered
from cad.mri.imaging.listing import list_files
from cad.mri.imaging.nifti import read_volume, write_volume
from cad.mri.imaging.stacks import stacks_of
from cad.mri.imaging.study import Roi
from cad.mri.imaging.volume import Volume

RULES = """
name: test
labels: id
t2w: [{description: ^t2}]
findings: {file: findings.csv, radius: 5}
readers: [r1]
"""
SHAPE = (6, 30, 30)
HEAD = "ProxID,fid,pos,zone,ClinSig\n"
SCORES = "patient_id,roi_id,reader_id,scale,score\n"
ONE = "P1,1,12 12 9,PZ,TRUE\n"


class Source:
    """A source of patients with T2 alone, its rules, and the cohort that an import makes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = root / "in"
        self.out = root / "out"
        self.rules = root / "rules.yaml"
        self.rules.write_text(RULES)
        self.men = 0

    def patient(self, name: str, study: str = "study1") -> Path:
        self.men += 1
        folder = self.top / f"{name}-{study}"
        write_series(folder / "t2", voxels(self.men, SHAPE), number=1, patient=name, study=study)
        return folder

    def findings(self, rows: str, folder: Path | None = None) -> Path:
        path = (folder or self.top) / "findings.csv"
        path.write_text(HEAD + rows, encoding="utf-8")
        return path

    def scores(self, rows: str, folder: Path | None = None) -> Path:
        path = (folder or self.top) / "scores.csv"
        path.write_text(SCORES + rows, encoding="utf-8")
        return path

    def imported(self) -> ImportSummary:
        return import_source(self.top, self.out, self.rules)

    def rois(self) -> list[list[str]]:
        return (
            table(self.out, "rois")[["participant_id", "roi_id", "zone", "isup"]]
            .to_numpy()
            .tolist()
        )

    def scored(self) -> list[list[str]]:
        return (
            table(self.out, "scores")[["roi_id", "reader_id", "scale", "score"]].to_numpy().tolist()
        )


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def noted(summary: ImportSummary, words: str) -> list[str]:
    return [note for note in summary.notes if words in note]


@pytest.mark.parametrize("second", ["12 12 9", "12.001 12 9", "13 12 9", "15 12 9"])
def test_a_finding_that_another_covers_to_half_is_refused(source: Source, second: str):
    source.patient("P1")
    source.findings(ONE + f"P1,7,{second},PZ,FALSE\n")
    error = only_failure(source.imported())
    assert "another lesion covers half of it or more" in error.problem
    assert "belong to ROI 1" in error.problem
    assert (error.patient, error.roi, Path(error.file).name) == ("sub-P1", "7", "findings.csv")


def test_findings_that_overlap_a_little_share_no_voxel(source: Source):
    source.patient("P1")
    source.findings(ONE + "P1,2,18 12 9,PZ,FALSE\n")
    assert source.imported().failures == []
    labels = read_volume(source.out / "sub-P1/masks/sub-P1_rois.nii.gz").array
    z, y, x = np.indices(SHAPE)
    balls = []
    for column in (12, 18):
        balls.append((x - column) ** 2 + (y - 12) ** 2 + (3 * z - 9.0) ** 2 <= 25)
    assert ((labels == 1) == balls[0]).all()
    assert ((labels == 2) == (balls[1] & ~balls[0])).all()
    assert (labels == 2).sum() > balls[1].sum() / 2


@pytest.mark.parametrize(("covered", "refused"), [(1, False), (2, True), (3, True), (4, True)])
def test_half_of_a_region_is_too_much(covered: int, refused: bool):
    inside = np.ones(4, bool)
    labels = np.zeros(4, np.uint16)
    labels[:covered] = 1
    if refused:
        with pytest.raises(CadError, match=r"half of it or more: . of its 4 voxels are free"):
            _uncovered(inside, labels, [Roi("1", 1)])
    else:
        assert _uncovered(inside, labels, [Roi("1", 1)]).tolist() == [False, True, True, True]


@pytest.mark.parametrize("again", ["12.0 12 9", "12 12 9.000", " 1.2e1 12  9"])
def test_one_point_in_two_spellings_is_one_finding(source: Source, again: str):
    source.patient("P1")
    source.findings(ONE + f"P1,1,{again},PZ,FALSE\n")
    error = only_failure(source.imported())
    assert "is listed twice, with different zone or ClinSig" in error.problem
    source.findings(ONE + f"P1,1,{again},PZ,true\n")
    summary = source.imported()
    assert summary.failures == []
    assert source.rois() == [["sub-P1", "1", "PZ", ">=2"]]
    assert noted(summary, "listed twice in findings.csv: taken once")


@pytest.mark.parametrize("cell", ["P1 ", " P1", "P1\u00a0", "\u2009P1"])
def test_blanks_around_an_id_do_not_lose_a_lesion(source: Source, cell: str):
    source.patient("P1")
    source.findings(ONE + f"{cell},2,12 12 0,TZ,FALSE\n")
    assert source.imported().failures == []
    assert [row[1] for row in source.rois()] == ["1", "2"]


@pytest.mark.parametrize(
    ("patient", "cell"),
    [("B2", "b2"), ("007", "7"), ("P-0012", "P-12"), ("B2", "'B2"), ("B2", "B\u200b2")],
)
def test_a_row_of_nearly_a_patient_is_named(source: Source, patient: str, cell: str):
    source.patient(patient)
    source.findings(f"{cell},1,12 12 9,PZ,TRUE\n")
    summary = source.imported()
    (note,) = noted(summary, "findings.csv: ")
    assert "1 rows are not used, because the patient's id is not exactly that of the images" in note
    assert "line 2: " in note
    assert f"is no patient of the source, {patient!r} is" in note
    source.rules.write_text(RULES.replace("labels: id", "labels: pseudonym"))
    hidden = import_source(source.top, source.root / "hidden", source.rules)
    (note,) = noted(hidden, "findings.csv: ")
    (label,) = table(source.root / "hidden", "participants")["participant_id"]
    assert f"line 2 names no patient of the source, but nearly {label}" in note
    assert repr(patient) not in note


def test_rows_of_strangers_are_counted(source: Source):
    source.patient("P1")
    source.findings(ONE + "".join(f"Q{n % 7},{n},1 1 1,PZ,TRUE\n" for n in range(9)) + ",,,,\n")
    source.scores("P1,1,r1,likert5,4\nP9,1,r1,likert5,4\n")
    summary = source.imported()
    assert summary.failures == []
    (note,) = noted(summary, "findings.csv: ")
    assert "9 rows are not used, because they are of no patient of the source" in note
    assert note.endswith("'Q0', 'Q1', 'Q2', 'Q3', 'Q4' and 2 more")
    (note,) = noted(summary, "scores.csv: ")
    assert note.endswith("1 rows are not used, because they are of no patient of the source: 'P9'")
    source.rules.write_text(RULES.replace("labels: id", "labels: pseudonym"))
    hidden = import_source(source.top, source.root / "hidden", source.rules)
    (note,) = noted(hidden, "findings.csv: ")
    assert note.endswith("lines 3, 4, 5, 6, 7 and 4 more")
    assert not any("Q0" in text or "'P9'" in text for text in hidden.notes)


def test_two_tables_with_other_points_are_refused(source: Source):
    folder = source.patient("P1")
    first = source.findings(ONE)
    second = source.findings("P1,1,20 20 9,PZ,TRUE\n", folder)
    error = only_failure(source.imported())
    assert "states other findings of this patient" in error.problem
    assert {error.file, error.problem.split(" states")[0]} == {str(first), str(second)}
    source.findings("P1,1,12.0 12 9,PZ,TRUE\nP2,1,1 1 1,PZ,TRUE\n", folder)
    assert source.imported().failures == []
    assert source.rois() == [["sub-P1", "1", "PZ", ">=2"]]


def test_a_table_without_the_patient_does_not_hide_the_next_table(source: Source):
    source.patient("P1")
    other = source.top / "a"
    other.mkdir()
    source.findings("P2,1,1 1 1,PZ,TRUE\n", other)
    source.findings(ONE)
    assert source.imported().failures == []
    assert source.rois() == [["sub-P1", "1", "PZ", ">=2"]]


@pytest.mark.parametrize(
    "pos", ["12 12", "12 12 9 4", "", "1_2 1_2 9", "nan 12 9", "12;12;9", "١٢ 12 9", "\u221212 1 1"]
)
def test_a_position_that_is_no_three_numbers_is_named_with_its_line(source: Source, pos: str):
    source.patient("P1")
    source.findings(f"P2,1,1 1 1,PZ,TRUE\n\nP1,3,{pos},PZ,TRUE\n")
    error = only_failure(source.imported())
    assert error.problem == (
        f"line 4, finding 3: pos {pos!r} is no three numbers with blanks between them"
    )
    assert "x, y and z of the lesion in mm" in error.hint
    assert Path(error.file).name == "findings.csv"


def test_misspelt_columns_zones_and_ids_are_not_silently_unknown(source: Source):
    source.patient("P1")
    path = source.findings("")
    path.write_text("ProxID,fid,pos,zone,Clinsig\n" + ONE)
    error = only_failure(source.imported())
    assert error.problem == "column 'Clinsig' is not read; the column is called 'ClinSig'"
    source.findings("P1,,12 12 9,PZ,TRUE\n")
    assert only_failure(source.imported()).problem == "line 2 has no fid"
    source.findings("P1,1,12 12 9,pz,TRUE\nP1,2,12 12 0,SV,TRUE\nP1,3,25 25 9,,TRUE\n")
    summary = source.imported()
    assert [row[2] for row in source.rois()] == ["PZ", "n/a", "n/a"]
    assert len(noted(summary, "finding 2: zone 'SV' is none of PZ TZ CZ AFS")) == 1
    assert len(noted(summary, "the zone is unknown")) == 1


@pytest.mark.parametrize("name", ["findings.csv", "scores.csv"])
@pytest.mark.parametrize(
    ("change", "problem", "hint"),
    [
        (
            lambda text: text.encode("utf-16"),
            "the text is in UTF-16",
            "save the table as CSV (UTF-8)",
        ),
        (lambda text: text.encode() + b"\xc4", "is no text in UTF-8", "save the table as CSV"),
        (
            lambda text: b"PK\3\4\x14" + text.encode() + b"\xff",
            "an Excel workbook",
            "as CSV (UTF-8)",
        ),
        (lambda text: text.replace(",", ";").encode(), "missing column(s)", "by semicolons"),
        (lambda text: text.replace(",", "\t").encode(), "separated by tabs", "with commas"),
    ],
)
def test_a_table_that_is_no_csv_names_the_way_out(source: Source, name, change, problem, hint):
    source.patient("P1")
    source.findings(ONE)
    source.scores("P1,1,r1,likert5,4\n")
    path = source.top / name
    path.write_bytes(change(path.read_text()))
    error = only_failure(source.imported())
    assert problem in error.problem
    assert hint in error.hint
    assert error.file == str(path)


def test_tables_with_another_name_are_named(source: Source):
    folder = source.patient("P1")
    below = source.top / "tables"
    below.mkdir()
    for path in (
        folder / "scores.tsv",
        folder / "Scores.csv",
        source.top / "scores.xlsx",
        below / "Findings.csv",
        below / "findings.xlsx",
        below / "scores.tsv",  # no score file is looked for in a folder that is no study's
    ):
        path.write_text("x\n")
    notes = noted(source.imported(), "is not read: the table of the rules is")
    assert sorted(notes) == [
        "Scores.csv is not read: the table of the rules is scores.csv; rename it to scores.csv",
        "scores.tsv is not read: the table of the rules is scores.csv; save it with commas under "
        "the name scores.csv",
        "scores.xlsx is not read: the table of the rules is scores.csv; save its sheet as CSV "
        "(UTF-8) under the name scores.csv",
        "tables/Findings.csv is not read: the table of the rules is findings.csv; rename it to "
        "findings.csv",
        "tables/findings.xlsx is not read: the table of the rules is findings.csv; save its sheet "
        "as CSV (UTF-8) under the name findings.csv",
    ]


def test_shares_are_no_percent(source: Source):
    folders = [source.patient("P1"), source.patient("P2")]
    source.findings(ONE + ONE.replace("P1", "P2"))
    source.scores("P1,1,r1,percent,.9\n", folders[0])
    source.scores("P2,1,r1,percent,.1\n", folders[1])
    failures = source.imported().failures
    assert [Path(error.file).parent for error in failures] == folders
    for error in failures:
        assert error.problem == (
            "all 2 scores are at most 1, as a share is, and scale percent takes 0 to 100"
        )
    # The other study has a score that only a percentage can be.
    source.scores("P2,1,r1,percent,85\n", folders[1])
    assert source.imported().failures == []
    assert [row[3] for row in source.scored()] == ["0.9", "85"]
    # The cohort has such a score, too.
    source.top = source.root / "later"
    folder = source.patient("P3")
    source.findings(ONE.replace("P1", "P3"))
    source.scores("P3,1,r1,percent,.5\n", folder)
    assert source.imported().failures == []


@pytest.mark.parametrize(
    ("score", "stored"), [("1e0", "1"), ("+4", "4"), ("4.0", "4.0"), ("4.", "4"), ("", "n/a")]
)
def test_a_score_is_stored_in_plain_digits(source: Source, score: str, stored: str):
    source.patient("P1")
    source.findings(ONE)
    source.scores(f"P1,1,r1,likert5,{score}\n")
    assert source.imported().failures == []
    assert source.scored() == [["1", "r1", "likert5", stored]]


@pytest.mark.parametrize("score", ["٤", "４", "1_0", "nan", "1e999"])
def test_a_score_in_other_digits_is_refused(source: Source, score: str):
    source.patient("P1")
    source.findings(ONE)
    source.scores(f"P1,1,r1,percent,{score}\n")
    error = only_failure(source.imported())
    assert error.problem == f"score {score!r} is no number"
    assert (error.patient, error.roi) == ("sub-P1", "1")


@pytest.mark.parametrize("reader", ["", " ", "\u00a0"])
def test_a_score_without_reader_is_refused(source: Source, reader: str):
    source.patient("P1")
    source.patient("P2")
    source.findings(ONE + ONE.replace("P1", "P2"))
    source.scores(f"P2,1,r1,likert5,4\nP1,1,{reader},likert5,4\n")
    summary = source.imported()
    error = only_failure(summary)
    assert error.problem == "line 3 has no reader_id"
    assert (error.patient, error.roi, Path(error.file).name) == ("sub-P1", "1", "scores.csv")
    assert summary.added == ["sub-P2"]


@pytest.mark.parametrize("other", ["R1", "r\u200b1", "r-1", "r1.0"])
def test_one_reader_in_two_ways_is_refused(source: Source, other: str):
    source.rules.write_text(RULES.replace("readers: [r1]\n", ""))
    folders = [source.patient("P1"), source.patient("P2")]
    source.findings(ONE + ONE.replace("P1", "P2"))
    source.scores("P1,1,r1,likert5,4\n", folders[0])
    source.scores(f"P2,1,{other},likert5,4\n", folders[1])
    failures = source.imported().failures
    assert [error.patient for error in failures] == ["sub-P1", "sub-P2"]
    assert all("one reader in two ways would count as two" in e.problem for e in failures)
    source.rules.write_text(RULES.replace("readers: [r1]", f'readers: [r1, "{other}"]'))
    assert source.imported().failures == []
    assert [row[1] for row in source.scored()] == ["r1", other]


def test_a_reader_on_two_scales_is_named(source: Source):
    source.patient("P1")
    source.findings(ONE + "P1,2,12 12 0,PZ,TRUE\n")
    source.scores("P1,1,r1,likert5,4\nP1,2,r1,percent,70\nP1,1,r2,likert5,4\n")
    notes = noted(source.imported(), " scales: ")
    assert notes == ["reader r1 has scores on 2 scales: likert5, percent"]


def test_scores_at_the_top_that_fit_two_studies_are_named(source: Source):
    source.patient("P1", "early")
    source.patient("P1", "late")
    source.findings(ONE)
    source.scores("P1,1,r1,likert5,4\n")
    summary = source.imported()
    assert len(noted(summary, "scores.csv at the top of the source is not used")) == 2
    assert {row[3] for row in source.scored()} == {"n/a"}


def test_a_long_fid_stays_hidden_under_pseudonyms(source: Source):
    source.rules.write_text(RULES.replace("labels: id", "labels: pseudonym"))
    source.patient("P1")
    source.findings("P1,Mustermann,12 12,PZ,TRUE\n")
    error = only_failure(source.imported())
    assert "Mustermann" not in str(error)
    source.findings("P1,Mustermann,12 12 9,PZ,TRUE\nP1,Mustermann,12 12 9,PZ,TRUE\n")
    summary = source.imported()
    assert summary.failures == []
    assert not any("Mustermann" in note for note in summary.notes)


@pytest.mark.parametrize(
    ("first", "second", "cell"), [("7", "7.0", "7.0"), ("A1", "sub-A1", "sub-A1")]
)
def test_a_row_that_names_two_patients_is_refused(
    source: Source, first: str, second: str, cell: str
):
    """The score of one would be given to the other, too."""
    source.rules.write_text(RULES.replace("labels: id", "labels: pseudonym"))
    if cell == "sub-A1":
        source.rules.write_text(RULES)
    source.patient(first)
    source.patient(second)
    source.findings(f"{first},1,12 12 9,PZ,TRUE\n")
    source.scores(f"{cell},1,r1,likert5,4\n")
    summary = source.imported()
    problems = [error.problem for error in summary.failures]
    assert [problem for problem in problems if "a row of this patient is also of" in problem]
    assert not (source.out / "sub-A1").exists()
    if (source.out / "scores.tsv").exists():
        assert source.scored() == [["1", "r1", "likert5", "n/a"]]


def test_a_finding_that_may_be_of_two_patients_is_refused(source: Source):
    source.rules.write_text(RULES.replace("labels: id", "labels: pseudonym"))
    source.patient("7")
    source.patient("7.0")
    source.findings("7.0,1,12 12 9,PZ,TRUE\n")
    summary = source.imported()
    assert len(summary.failures) == 2
    for error in summary.failures:
        assert "also of another patient of the source" in error.problem
        assert error.hint


def test_blanks_around_a_patient_id_make_no_second_patient(source: Source):
    """Blanks at both ends of the element have no meaning (PS3.5 6.2)."""
    source.patient("P1")
    folder = source.patient(" P1", study="study2")
    source.findings(ONE)
    summary = source.imported()
    assert summary.failures == []
    assert summary.added == ["sub-P1_ses-01", "sub-P1_ses-02"]
    assert folder.is_dir()


@pytest.mark.parametrize("place", ["-3.5 12 9", "12 32.5 9", "12 12 -4", "12 12 19.5"])
def test_a_point_beside_the_image_is_refused(source: Source, place: str):
    """Its ball reaches into the image with a few voxels."""
    source.patient("P1")
    source.findings(f"P1,1,{place},PZ,TRUE\n")
    error = only_failure(source.imported())
    assert f"finding 1 at {place} mm lies outside the T2 image" in error.problem
    assert error.hint


@pytest.mark.parametrize(
    ("place", "cut"), [("1 12 9", True), ("12 28 9", True), ("12 12 1", True), ("12 12 9", False)]
)
def test_a_ball_that_the_image_cuts_is_said(source: Source, place: str, cut: bool):
    source.patient("P1")
    source.findings(f"P1,1,{place},PZ,TRUE\n")
    summary = source.imported()
    assert summary.failures == []
    assert len(noted(summary, "the image cuts off a part of its ball of 5 mm")) == cut


def test_a_table_that_is_missing_or_lacks_the_patient_is_said(source: Source):
    source.patient("P1")
    (source.top / "findings (1).csv").write_text(HEAD + ONE)
    summary = source.imported()
    assert noted(summary, "the source has no findings.csv, which the rules name")
    assert summary.awaiting == ["sub-P1"]
    source.findings(ONE.replace("P1", "P2"))
    summary = source.imported()
    assert noted(summary, "sub-P1: findings.csv has no row for this patient")
    assert not noted(summary, "the source has no findings.csv")


@pytest.mark.parametrize("other", ["Rene\u0301", "REN\u00c9", "Ren\u00e9 "])
def test_one_reader_in_two_spellings_of_unicode_is_refused(source: Source, other: str):
    source.patient("P1")
    source.findings(ONE)
    source.scores(f"P1,1,Ren\u00e9,likert5,4\nP1,1,{other},likert5,2\n")
    error = only_failure(source.imported())
    assert "one reader in two ways" in error.problem or "scored this ROI twice" in error.problem


def test_digits_of_full_width_are_the_same_reader(source: Source):
    source.rules.write_text(RULES.replace("readers: [r1]\n", ""))
    source.patient("P1")
    source.findings(ONE)
    source.scores("P1,1,r2,likert5,4\nP1,1,r\uff12,likert5,2\n")
    assert "one reader in two ways" in only_failure(source.imported()).problem


OUTLINES = """
name: test
labels: id
scale: percent
t2w: [{description: ^t2}]
outlines:
  file: ["masks/{patient}_{roi}.nii.gz"]
  table: lesions.csv
  key: {man: "{patient}", lesion: "{roi}"}
  score_column: score
  reader_column: reader
"""


def outlined_men(source: Source, scores: list[str], readers: list[str]) -> None:
    """Men with one mask each, and a table with the score of each lesion."""
    source.rules.write_text(OUTLINES)
    rows = ["man,lesion,score,reader"]
    for number, (score, reader) in enumerate(zip(scores, readers, strict=True), start=1):
        name = f"P{number}"
        path = source.patient(name) / "t2"
        mask = np.zeros(SHAPE, np.uint8)
        mask[2, 5:9, 5:9] = 1
        stack = read_series(path)
        (source.top / "masks").mkdir(exist_ok=True)
        write_volume(source.top / "masks" / f"{name}_1.nii.gz", stack.with_array(mask))
        rows.append(f"{name},1,{score},{reader}")
    (source.top / "lesions.csv").write_text("\n".join(rows) + "\n")


def read_series(folder: Path) -> Volume:
    (slices,) = list_files(sorted(folder.iterdir())).studies.values()
    (stack,) = stacks_of(slices)
    return stack.grid


def test_shares_beside_masks_are_no_percent(source: Source):
    outlined_men(source, ["0.9", "0.25"], ["r1", "r1"])
    summary = source.imported()
    assert len(summary.failures) == 2
    for error in summary.failures:
        assert "all 2 scores are at most 1, as a share is" in error.problem


def test_percents_beside_masks_are_read(source: Source):
    outlined_men(source, ["0.9", "85"], ["r1", "r1"])
    assert source.imported().failures == []
    assert [row[3] for row in source.scored()] == ["0.9", "85"]


def test_one_reader_in_two_ways_beside_masks_is_refused(source: Source):
    outlined_men(source, ["10", "85"], ["Smith", "SMITH"])
    source.rules.write_text(OUTLINES.replace("labels: id", "labels: pseudonym"))
    summary = source.imported()
    assert len(summary.failures) == 2
    assert "one reader in two ways would count as two" in summary.failures[0].problem
