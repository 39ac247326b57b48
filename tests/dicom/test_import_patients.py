"""Import: ids, sessions and scores."""

from __future__ import annotations

import json

import pytest
from dicom_files import edit, uid
from import_cases import everything, only_failure, table, write_patient, write_rois

from cad.dicom.into.importer import import_source
from cad.folders.cohort import read_cohort


def test_ids_become_safe_labels_and_collisions_are_refused(tmp_path, rules):
    source = tmp_path / "in"
    write_patient(source / "a", "../../etc/x", dce=False)
    write_patient(source / "b", "ProstateX-0218", dce=False)
    write_patient(source / "c", "Prostate_X0218", dce=False)
    write_patient(source / "d", "  ", dce=False)
    write_patient(source / "e", "../", dce=False)
    out = tmp_path / "out"
    summary = import_source(source, out, rules)
    assert sorted(summary.added) == ["sub-ProstateX0218", "sub-etcx"]
    problems = " | ".join(f.problem for f in summary.failures)
    assert "two source patients would both be sub-ProstateX0218" in problems
    assert "the source has no PatientID" in problems
    assert "has no letter or digit" in problems
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out", "rules.yaml"]


def test_two_studies_at_once_are_sessions_of_one_patient(tmp_path, rules):
    source = tmp_path / "in"
    for study, date in (("later", "20240808"), ("early", "20230101")):
        folder = write_patient(source / study, study=study, dce=False)
        for path in folder.rglob("*.dcm"):
            edit(path, StudyDate=date)
        write_rois(folder, 1, scores=f"P-001,1,r1,likert5,{len(study) - 3}\n")
    out = tmp_path / "out"
    assert import_source(source, out, rules).added == ["sub-P001_ses-01", "sub-P001_ses-02"]
    sidecar = out / "sub-P001/ses-01/anat/sub-P001_ses-01_T2w.json"
    assert json.loads(sidecar.read_text())["StudyInstanceUID"] == uid("P-001", "early")
    cohort = read_cohort(out)
    assert cohort.problems == []
    assert [s.rois["roi_id"].tolist() for s in cohort.studies()] == [["1"], ["ses-02.1"]]
    assert cohort.scores[["roi_id", "score"]].to_numpy().tolist() == [["1", 2.0], ["ses-02.1", 2.0]]
    assert len(cohort.participants) == 1
    before = everything(out)
    assert import_source(source, out, rules).unchanged == ["sub-P001_ses-01", "sub-P001_ses-02"]
    assert everything(out) == before


def test_a_second_study_later_gives_the_first_a_session(tmp_path, rules):
    first = write_patient(tmp_path / "first", dce=False)
    write_rois(first, 1, scores="P-001,1,r1,likert5,4\n")
    second = write_patient(tmp_path / "second", study="study2", dce=False)
    write_rois(second, 1, 2)
    out = tmp_path / "out"
    assert import_source(first, out, rules).added == ["sub-P001"]
    assert import_source(second, out, rules).added == ["sub-P001_ses-02"]
    cohort = read_cohort(out)
    assert cohort.problems == []
    assert [s.study_id for s in cohort.studies()] == ["sub-P001_ses-01", "sub-P001_ses-02"]
    assert [s.rois["roi_id"].tolist() for s in cohort.studies()] == [["1"], ["ses-02.1", "2"]]
    assert (out / "sub-P001/ses-01/anat/sub-P001_ses-01_T2w.nii.gz").is_file()
    assert import_source(first, out, rules).unchanged == ["sub-P001_ses-01"]
    assert sorted(p.name for p in (out / "sub-P001").iterdir()) == ["ses-01", "ses-02"]


def test_a_patient_waits_while_any_study_does(tmp_path, rules):
    first = write_patient(tmp_path / "first", dce=False)
    second = write_patient(tmp_path / "second", study="study2", dce=False)
    write_rois(second, 1)
    out = tmp_path / "out"
    import_source(first, out, rules)
    import_source(second, out, rules)
    assert table(out, "participants")["status"].tolist() == ["awaiting ROI"]
    import_source(second, out, rules)
    assert table(out, "participants")["status"].tolist() == ["awaiting ROI"]
    write_rois(first, 1)
    assert import_source(first, out, rules).updated == ["sub-P001_ses-01"]
    assert table(out, "participants")["status"].tolist() == ["complete"]
    rois = table(out, "rois").to_dict("split")["data"]
    assert [(r[1], r[-1]) for r in rois] == [("1", "ses-02"), ("ses-01.1", "ses-01")]


def test_a_folder_that_no_table_knows_is_left_alone(tmp_path, rules):
    import_source(write_patient(tmp_path / "first", "P-002", dce=False), tmp_path / "out", rules)
    source = write_patient(tmp_path / "in", dce=False)
    theirs = tmp_path / "out" / "sub-P001" / "anat" / "notes.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("not ours")
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert "no study that the tables know" in error.problem
    assert theirs.read_text() == "not ours"
    theirs.parent.parent.rename(tmp_path / "elsewhere")
    assert import_source(source, tmp_path / "out", rules).added == ["sub-P001"]


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ("P-001,9,r1,likert5,3\n", "scores for a ROI that does not exist"),
        ("P-001,1,r1,likert5,3\nP-001,1,r1,likert5,4\n", "reader r1 scored this ROI twice"),
        ("P-001,1,r1,likert7,3\n", "unknown scale 'likert7'"),
        ("P-001,1,r1,likert5,high\n", "'high' is no number"),
        ("P-001,1,r1,likert5,inf\n", "inf"),
        ("P-001,1,r1,likert5,-inf\n", "inf"),
    ],
)
def test_bad_scores_name_patient_and_roi(tmp_path, rules, scores, words):
    source = write_patient(tmp_path / "in", dce=False)
    write_rois(source, 1, scores=scores)
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert words in error.problem
    assert error.patient == "sub-P001"
    assert error.roi in ("1", "9")


@pytest.mark.parametrize(("scored", "unscored"), [("P1", "P2"), ("P2", "P1")])
def test_the_template_asks_every_reader_in_whatever_order(tmp_path, rules, scored, unscored):
    source, out = tmp_path / "in", tmp_path / "out"
    rows = [f"{scored},1,{reader},likert5,4\n" for reader in ("r1", "r2", "r3")]
    write_rois(write_patient(source / scored, scored, dce=False), 1, scores="".join(rows))
    write_rois(write_patient(source / unscored, unscored, dce=False), 1)
    import_source(source, out, rules)
    scores = table(out, "scores")
    template = scores[scores["participant_id"] == f"sub-{unscored}"]
    assert template[["roi_id", "reader_id", "scale", "score"]].to_numpy().tolist() == [
        ["1", reader, "likert5", "n/a"] for reader in ("r1", "r2", "r3")
    ]
    # A row that a person took out of the template is not asked for again.
    scores.drop(template.index[0]).to_csv(out / "scores.tsv", sep="\t", index=False)
    before = everything(out)
    import_source(source, out, rules)
    assert everything(out) == before


def test_one_score_file_for_all_patients(tmp_path, rules):
    source = tmp_path / "in"
    for patient in ("P1", "P2"):
        write_rois(write_patient(source / patient, patient, dce=False), 1)
    (source / "scores.csv").write_text(
        "patient_id,roi_id,reader_id,scale,score\nP2,1,r1,likert5,5\nP1,1,r1,likert5,2\n"
    )
    out = tmp_path / "out"
    assert import_source(source, out, rules).failures == []
    assert read_cohort(out).scores[["participant_id", "score"]].to_numpy().tolist() == [
        ["sub-P1", 2.0],
        ["sub-P2", 5.0],
    ]
    (source / "scores.csv").write_text("patient,roi\n")
    error = import_source(source, tmp_path / "out2", rules).failures[0]
    assert "missing column(s) patient_id" in error.problem
