"""Every rule of the cohort tables, each broken once in an otherwise good cohort."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.folders.cohort import read_cohort, write_tables


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    root = tmp_path / "cohort"
    write_tables(
        root,
        participants=pd.DataFrame({"participant_id": ["sub-A1", "sub-B2"], "site": ["x", "y"]}),
        readers=pd.DataFrame({"reader_id": ["r1", "r2"], "expert": [1, 0]}),
        rois=pd.DataFrame(
            {
                "participant_id": ["sub-A1", "sub-A1", "sub-B2"],
                "roi_id": ["1", "2", "1"],
                "label": [1, 2, 1],
                "zone": ["PZ", None, "TZ"],
                "histology": ["malignant", "benign", None],
                "isup": [2, 0, None],
            }
        ),
        scores=pd.DataFrame(
            [
                ("sub-A1", "1", "r1", "likert5", 5),
                ("sub-A1", "1", "r2", "likert5", 4),
                ("sub-A1", "2", "r1", "likert5", None),
                ("sub-B2", "1", "r1", "likert5", 2),
            ],
            columns=["participant_id", "roi_id", "reader_id", "scale", "score"],
        ),
    )
    for patient in ("sub-A1", "sub-B2"):
        (root / patient).mkdir()
    return root


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1))


def test_a_good_cohort_has_no_problem_and_round_trips(cohort: Path) -> None:
    assert read_cohort(cohort).problems == []
    read = read_cohort(cohort)
    assert [ref.study_id for ref in read.studies()] == ["sub-A1", "sub-B2"]
    assert read.readers["expert"].tolist() == [True, False]
    assert len(read.scores) == 3  # the missing score is dropped
    before = {p.name: p.read_bytes() for p in cohort.glob("*.tsv")}
    write_tables(
        cohort,
        participants=read.participants,
        readers=read.readers.assign(expert=read.readers["expert"].astype(int)),
        rois=read.rois.assign(label=read.rois["label"].astype(int)),
        scores=pd.read_csv(cohort / "scores.tsv", sep="\t"),
    )
    assert set(before) == {p.name for p in cohort.glob("*.tsv")}
    assert (cohort / "participants.tsv").read_bytes() == before["participants.tsv"]


@pytest.mark.parametrize(
    ("file", "old", "new", "patient", "roi", "words"),
    [
        ("scores.tsv", "r2\tlikert5\t4", "r2\tlikert9\t4", "sub-A1", "1", "likert9"),
        ("scores.tsv", "r2\tlikert5\t4", "r2\tlikert5\t7", "sub-A1", "1", "7"),
        ("scores.tsv", "r2\tlikert5\t4", "r2\tlikert5\thigh", "sub-A1", "1", "high"),
        ("scores.tsv", "r2\tlikert5\t4", "r1\tlikert5\t4", "sub-A1", "1", "twice"),
        ("scores.tsv", "r2\tlikert5\t4", "r7\tlikert5\t4", "sub-A1", "1", "readers.tsv"),
        ("scores.tsv", "sub-B2\t1", "sub-B2\t8", "sub-B2", "8", "not in rois.tsv"),
        ("rois.tsv", "sub-A1\t2\t2", "sub-A1\t1\t2", "sub-A1", "1", "twice"),
        ("rois.tsv", "sub-A1\t2\t2", "sub-A1\t2\t1", "sub-A1", "2", "label 1"),
        ("rois.tsv", "sub-A1\t2\t2", "sub-A1\t2\t0", "sub-A1", "2", "positive integer"),
        ("rois.tsv", "sub-A1\t2\t2", "sub-A1\t2\t1.5", "sub-A1", "2", "positive integer"),
        ("rois.tsv", "sub-A1\t2\t2", "sub-A1\t2\tone", "sub-A1", "2", "positive integer"),
        ("rois.tsv", "PZ", "XZ", "sub-A1", "1", "XZ"),
        ("rois.tsv", "malignant", "cancer", "sub-A1", "1", "cancer"),
        ("rois.tsv", "malignant", "benign", "sub-A1", "1", "contradicts isup 2"),
        ("rois.tsv", "malignant\t2", "malignant\t9", "sub-A1", "1", "0 to 5"),
        ("rois.tsv", "malignant\t2", "malignant\t>2", "sub-A1", "1", "0 to 5"),
        ("rois.tsv", "malignant\t2", "malignant\t<=0", "sub-A1", "1", "contradicts isup <=0"),
        ("rois.tsv", "malignant\t2", "benign\t>=2", "sub-A1", "1", "contradicts isup >=2"),
        ("participants.tsv", "sub-B2\ty", "sub-B2\ty\nsub-B2\ty", "sub-B2", "", "twice"),
        ("participants.tsv", "sub-B2\ty", "sub-B2\ty\nsub-C3\ty", "sub-C3", "", "no image folder"),
    ],
)
def test_a_broken_rule_names_the_place_and_spares_the_others(
    cohort: Path, file: str, old: str, new: str, patient: str, roi: str, words: str
) -> None:
    _replace(cohort / file, old, new)
    read = read_cohort(cohort)
    found = [p for p in read.problems if p.patient == patient and p.roi == roi]
    assert found, [str(p) for p in read.problems]
    assert any(words in str(p) for p in found)
    left = {ref.participant_id for ref in read.studies()}
    assert patient not in left
    assert left & {"sub-A1", "sub-B2"}


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("participants.tsv", "participant_id", "patient", "participant_id"),
        ("participants.tsv", "sub-B2", "sub-B_2", "sub-B_2"),
        ("participants.tsv", "sub-B2", "../B2", "../B2"),
        ("readers.tsv", "r2", "r1", "listed twice"),
        ("readers.tsv", "r1\t1", "r1\tmaybe", "maybe"),
        ("dataset_description.json", "{", "", "JSON"),
    ],
)
def test_a_problem_of_the_whole_is_raised(
    cohort: Path, file: str, old: str, new: str, words: str
) -> None:
    _replace(cohort / file, old, new)
    with pytest.raises(CadError, match=words) as caught:
        read_cohort(cohort)
    assert file in str(caught.value)


def test_a_missing_table_is_named(cohort: Path) -> None:
    (cohort / "scores.tsv").unlink()
    with pytest.raises(CadError, match=r"scores\.tsv"):
        read_cohort(cohort)
    with pytest.raises(CadError, match="no such cohort folder"):
        read_cohort(cohort / "absent")


def test_sessions_of_one_patient_are_studies_of_one_patient(cohort: Path) -> None:
    for session in ("ses-1", "ses-2"):
        (cohort / "sub-A1" / session).mkdir()
    rois = pd.read_csv(cohort / "rois.tsv", sep="\t")
    rois["session_id"] = ["ses-1", "ses-2", None]
    rois.to_csv(cohort / "rois.tsv", sep="\t", index=False, na_rep="n/a")
    refs = read_cohort(cohort).studies()
    assert [(r.study_id, r.participant_id, list(r.rois["roi_id"])) for r in refs] == [
        ("sub-A1_ses-1", "sub-A1", ["1"]),
        ("sub-A1_ses-2", "sub-A1", ["2"]),
        ("sub-B2", "sub-B2", ["1"]),
    ]


@pytest.mark.parametrize(
    ("table", "old", "new", "said"),
    [
        ("rois", "A1\t1\t1\t", "A1\t1\t1e400\t", "label must be a positive integer, found inf"),
        ("participants", "sub-A1\tx", "sub-A1\tx\t203", "age 203 is no man's"),
        ("participants", "sub-A1\tx", "sub-A1\tx\t60\t-4", "psa -4 is no man's"),
        ("participants", "sub-A1\tx", "sub-A1\tx\t60\t4\tF", "a prostate is a man's"),
    ],
)
def test_what_no_man_has(cohort: Path, table: str, old: str, new: str, said: str) -> None:
    path = cohort / f"{table}.tsv"
    if table == "participants":
        rows = [line.split("\t") for line in path.read_text().splitlines()]
        rows = [["participant_id", "site", "age", "psa", "sex"], new.split("\t"), ["sub-B2", "y"]]
        text = "\n".join("\t".join([*row, *["n/a"] * (5 - len(row))]) for row in rows)
        path.write_text(text + "\n")
    else:
        _replace(path, old, new)
    (problem,) = read_cohort(cohort).problems
    assert said in problem.problem
    assert problem.patient == "sub-A1"


def test_a_sector_of_another_zone(cohort: Path) -> None:
    path = cohort / "rois.tsv"
    table = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    table["sector"] = ["left mid PZpl", "left mid AFS", "left mid PZa"]
    table.to_csv(path, sep="\t", index=False)
    (problem,) = read_cohort(cohort).problems
    assert problem.problem == "zone TZ contradicts sector 'left mid PZa'"
