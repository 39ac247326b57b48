"""Import: a cohort out of DICOM, added to and never rewritten, safe against hostile input."""

from __future__ import annotations

import gzip
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from dicom_files import IDENTIFYING, edit, uid, write_seg, write_series, write_structures

from cad.clinic.import_rules import ImportRules
from cad.clinic.importer import ImportSummary, import_source
from cad.cohort import read_cohort
from cad.errors import CadError
from cad.imaging.nifti import read_dynamic, read_volume, write_volume
from cad.imaging.volume import Volume
from cad.settings import read_settings

RULES = """
name: test
site: A
labels: id
t2w: [{description: ^t2}]
adc: [{image_type: [ADC]}]
dce: {match: [{description: ^dyn}], clock: description}
vfa: [{description: ^vibe}]
roi_name: "ROI[ _](?P<id>.+)"
lesion: lesion.nii.gz
zones: {file: zones.nii.gz, values: {1: PZ, 2: TZ}}
experts: [r2]
"""
SHAPE = (6, 20, 20)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


def voxels(seed=0, shape=SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 900, shape).astype(np.uint16)


def write_patient(folder: Path, patient="P-001", study="study1", *, dce=True) -> Path:
    """T2, ADC, two flip angles, three phases, and a localiser that no rule names."""
    ids = {"patient": patient, "study": study}
    write_series(folder / "t2", voxels(1), number=1, **ids)
    write_series(
        folder / "adc", voxels(2), number=2, description="adc",
        ImageType=["DERIVED", "PRIMARY", "ADC"], **ids,
    )  # fmt: skip
    write_series(folder / "loc", voxels(9, (1, 9, 9)), number=9, description="localizer", **ids)
    for number, flip in ((3, "15"), (4, "2")):
        write_series(
            folder / f"v{number}", voxels(number), number=number, description="vibe",
            FlipAngle=flip, RepetitionTime="3.85", **ids,
        )  # fmt: skip
    for index, time in enumerate((8.0, 12.2, 16.4) if dce else ()):
        write_series(
            folder / f"d{index}", voxels(20 + index), number=20 + index,
            description=f"dyn TT={time}s", FlipAngle="12", RepetitionTime="3.85", **ids,
        )  # fmt: skip
    return folder


def regions(*labels: int) -> Volume:
    array = np.zeros(SHAPE, np.uint8)
    for index, label in enumerate(labels):
        array[2:4, 2:6, 2 + 5 * index : 6 + 5 * index] = label
    return Volume(array, (1.0, 1.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))


def write_rois(folder: Path, *labels: int, scores: str = "") -> None:
    write_volume(folder / "rois.nii.gz", regions(*labels))
    if scores:
        (folder / "scores.csv").write_text("patient_id,roi_id,reader_id,scale,score\n" + scores)


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(p.relative_to(root)): (p.stat().st_mtime_ns, p.read_bytes())
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


def table(root: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(root / f"{name}.tsv", sep="\t", dtype=str, keep_default_na=False)


def only_failure(summary: ImportSummary) -> CadError:
    assert len(summary.failures) == 1, [str(f) for f in summary.failures]
    return summary.failures[0]


def test_a_whole_study(tmp_path, rules):
    source = write_patient(tmp_path / "in")
    write_rois(source, 1, 2, scores="P-001,1,r1,likert5,4\nP-001,1,r2,likert5,n/a\n")
    out = tmp_path / "out"
    summary = import_source(source, out, rules)
    assert summary.failures == []
    assert summary.added == ["sub-P001"]
    assert summary.awaiting == []
    home = out / "sub-P001"
    assert (read_volume(home / "anat/sub-P001_T2w.nii.gz").array == voxels(1)).all()
    assert (read_volume(home / "dwi/sub-P001_ADC.nii.gz").array == voxels(2)).all()
    dynamic = read_dynamic(home / "perf/sub-P001_dce.nii.gz")
    assert (dynamic.frames == np.stack([voxels(20 + i) for i in range(3)])).all()
    assert dynamic.times.tolist() == pytest.approx([0, 4.2, 8.4])
    assert (dynamic.repetition_time, dynamic.flip_angle) == (0.00385, 12.0)
    flips = [json.loads((home / f"perf/sub-P001_flip-{i}_VFA.json").read_text()) for i in (1, 2)]
    assert [(f["FlipAngle"], f["RepetitionTime"]) for f in flips] == [
        (2.0, 0.00385),
        (15.0, 0.00385),
    ]
    sidecar = json.loads((home / "anat/sub-P001_T2w.json").read_text())
    assert sidecar["EchoTime"] == pytest.approx(0.101)
    assert sidecar["StudyInstanceUID"] == uid("P-001", "study1")
    assert len(sidecar["SOPInstanceUIDs"]) == SHAPE[0]
    cohort = read_cohort(out)
    assert cohort.problems == []
    (study,) = cohort.studies()
    assert study.rois["roi_id"].tolist() == ["1", "2"]
    assert table(out, "participants").to_dict("records") == [
        {"participant_id": "sub-P001", "site": "A", "status": "complete"}
    ]
    assert table(out, "readers").to_dict("records") == [
        {"reader_id": "r1", "expert": "0"},
        {"reader_id": "r2", "expert": "1"},
    ]
    # ROI 2 has no score: the template asks both readers for it.
    scores = table(out, "scores").to_dict("split")["data"]
    assert scores == [
        ["sub-P001", "1", "r1", "likert5", "4"],
        ["sub-P001", "1", "r2", "likert5", "n/a"],
        ["sub-P001", "2", "r1", "likert5", "n/a"],
        ["sub-P001", "2", "r2", "likert5", "n/a"],
    ]
    assert not [p for p in out.iterdir() if p.name.startswith(".import")]


def test_nothing_happens_the_second_time(tmp_path, rules):
    source = write_patient(tmp_path / "in")
    write_rois(source, 1, scores="P-001,1,r1,likert5,4\n")
    out = tmp_path / "out"
    import_source(source, out, rules)
    before = everything(out)
    summary = import_source(source, out, rules)
    assert (summary.unchanged, summary.added, summary.updated) == (["sub-P001"], [], [])
    assert everything(out) == before


def test_regions_scores_and_images_that_come_later(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    out = tmp_path / "out"
    summary = import_source(source, out, rules)
    assert summary.awaiting == ["sub-P001"]
    assert "sub-P001: missing modality: DCE" in summary.notes
    assert table(out, "participants")["status"].tolist() == ["awaiting ROI"]
    (study,) = read_cohort(out).studies()
    assert study.rois.empty
    t2w = out / "sub-P001/anat/sub-P001_T2w.nii.gz"
    stamp = t2w.stat().st_mtime_ns

    write_rois(source, 1, 2)
    summary = import_source(source, out, rules)
    assert (summary.updated, summary.awaiting) == (["sub-P001"], [])
    assert table(out, "participants")["status"].tolist() == ["complete"]
    assert table(out, "scores")["score"].tolist() == ["n/a", "n/a"]

    write_rois(source, 1, 2, scores="P-001,2,r1,likert5,5\nP-001,2,r7,likert5,3\n")
    assert import_source(source, out, rules).updated == ["sub-P001"]
    scores = table(out, "scores").to_dict("split")["data"]
    assert [row[1:] for row in scores] == [
        ["1", "r1", "likert5", "n/a"],
        ["2", "r1", "likert5", "5"],
        ["2", "r7", "likert5", "3"],
    ]
    write_patient(source)
    assert import_source(source, out, rules).updated == ["sub-P001"]
    assert read_dynamic(out / "sub-P001/perf/sub-P001_dce.nii.gz").times.size == 3
    assert t2w.stat().st_mtime_ns == stamp
    assert read_cohort(out).problems == []


def test_lesion_grades_zones_and_gland(tmp_path, rules):
    source = write_patient(tmp_path / "in")
    write_volume(source / "lesion.nii.gz", regions(3, 5))
    zones = np.ones(SHAPE, np.uint8)
    zones[:, :, 4:] = 2  # half of the first lesion and one column more than that of the second
    zones[:, :5, 4] = 1
    write_volume(source / "zones.nii.gz", regions().with_array(zones))
    write_volume(source / "gland.nii.gz", regions(7))
    out = tmp_path / "out"
    assert import_source(source, out, rules).failures == []
    assert table(out, "rois").to_dict("split")["data"] == [
        ["sub-P001", "1", "1", "PZ", "malignant", "3"],
        ["sub-P001", "2", "2", "TZ", "malignant", "5"],
    ]
    masks = out / "sub-P001/masks"
    assert sorted(np.unique(read_volume(masks / "sub-P001_rois.nii.gz").array)) == [0, 1, 2]
    assert sorted(np.unique(read_volume(masks / "sub-P001_gland.nii.gz").array)) == [0, 1]


def test_segments_and_contours_carry_roi_ids(tmp_path, rules):
    for kind in ("seg", "rtstruct"):
        source = write_patient(tmp_path / kind)
        images = sorted((source / "t2").iterdir())
        if kind == "seg":
            masks = {f"ROI {n}": regions(*([0] * n), 1).array > 0 for n in (0, 1)}
            write_seg(source / "seg.dcm", images, {**masks, "gland": regions(1, 1, 1).array > 0})
        else:
            contours = {
                f"ROI_{n}": [
                    np.array([[1.5 + 5 * n, 1.5, z], [5.5 + 5 * n, 1.5, z], [5.5 + 5 * n, 5.5, z],
                              [1.5 + 5 * n, 5.5, z]])
                    for z in (6.0, 9.0)
                ]
                for n in (0, 1)
            }  # fmt: skip
            write_structures(source / "rs.dcm", images[0], contours)
        out = tmp_path / f"out-{kind}"
        assert import_source(source, out, rules).failures == []
        found = read_volume(out / "sub-P001/masks/sub-P001_rois.nii.gz")
        assert (found.array == regions(1, 2).array).all()
        assert table(out, "rois")["roi_id"].tolist() == ["0", "1"]
        frame = json.loads((out / "sub-P001/masks/sub-P001_rois.json").read_text())
        assert frame == {"FrameOfReferenceUID": uid("P-001", "study1", "frame")}


def test_empty_label_and_lesion_maps(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    write_volume(source / "lesion.nii.gz", regions())
    out = tmp_path / "out"
    summary = import_source(source, out, rules)
    assert summary.awaiting == ["sub-P001"]
    assert "sub-P001: lesion.nii.gz holds no lesion" in summary.notes
    assert import_source(source, out, rules).unchanged == ["sub-P001"]
    write_rois(source)
    (source / "lesion.nii.gz").unlink()
    error = only_failure(import_source(source, tmp_path / "other", rules))
    assert "the label map is empty" in error.problem


def test_annotations_that_cannot_be_a_label_map(tmp_path, rules):
    source = write_patient(tmp_path / "in")
    images = sorted((source / "t2").iterdir())
    first = regions(1).array > 0
    write_seg(source / "seg.dcm", images, {"ROI a": first, "ROI b": np.roll(first, 2, axis=2)})
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert (error.roi, error.patient) == ("b", "sub-P001")
    assert "overlaps ROI a in 16 voxels" in error.problem
    write_seg(source / "seg2.dcm", images, {"ROI a": np.roll(first, 8, axis=2)})
    (source / "seg.dcm").unlink()
    write_structures(
        source / "rs.dcm", images[0], {"ROI a": [np.array([[2, 2, 6], [9, 2, 6], [9, 9, 6.0]])]}
    )
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert "two segments or contours carry this ROI's name" in error.problem
    write_rois(source, 1)
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert "2 sources of ROIs: rois.nii.gz, DICOM SEG or RTSTRUCT" in error.problem
    assert not (tmp_path / "out" / "sub-P001").exists()


def test_one_bad_study_never_costs_another(tmp_path, rules):
    source = tmp_path / "in"
    for patient in ("P1", "P2", "P3", "P4"):
        write_rois(write_patient(source / patient, patient), 1)
    next((source / "P2/t2").glob("*3.dcm")).unlink()  # a missing slice
    flat = voxels(1)
    flat[:] = 5
    write_series(source / "P3/adc", flat, patient="P3", number=2, description="adc",
                 ImageType=["DERIVED", "PRIMARY", "ADC"])  # fmt: skip
    (source / "P4/scores.csv").write_text(
        "patient_id,roi_id,reader_id,scale,score\nP4,1,r1,likert5,6\n"
    )
    out = tmp_path / "out"
    summary = import_source(source, out, rules)
    assert summary.added == ["sub-P1"]
    assert {f.patient: f.problem.split(":")[0] for f in summary.failures} == {
        "sub-P2": "missing slice",
        "sub-P3": "sub-P3_ADC.nii.gz",
        "sub-P4": "score 6 is not on its scale likert5",
    }
    assert [p.name for p in out.iterdir() if p.name.startswith("sub-")] == ["sub-P1"]
    assert read_cohort(out).problems == []
    text = summary.as_text()
    assert "failed: patient sub-P3" in text
    assert summary.as_dict()["added"] == ["sub-P1"]


def test_ambiguity_lists_the_candidates(tmp_path, rules):
    source = write_patient(tmp_path / "in")
    write_series(source / "t2b", voxels(5), number=7, description="t2_cor")
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert "2 images match the rule for t2w: series 1 't2_tse_tra'" in error.problem
    assert "series 7 't2_cor'" in error.problem
    rules.write_text(RULES.replace("{description: ^t2}", "{series_number: 7}, {description: ^t2}"))
    assert import_source(source, tmp_path / "out", rules).added == ["sub-P001"]
    rules.write_text(RULES.replace("^t2", "^nothing").replace("[ADC]", "[NONE]").replace(
        "^dyn", "^none").replace("^vibe", "^none"))  # fmt: skip
    error = only_failure(import_source(source, tmp_path / "other", rules))
    assert "no series matches the import rules" in error.problem
    assert "9 'localizer'" in error.problem


def test_flip_angles_that_repeat_and_single_phases(tmp_path, rules):
    source = write_patient(tmp_path / "in")
    for path in (source / "v4").iterdir():
        edit(path, FlipAngle="15")
    assert "two images have flip angle 15" in only_failure(
        import_source(source, tmp_path / "out", rules)
    ).problem  # fmt: skip
    write_patient(source)
    shutil.rmtree(source / "d1")
    shutil.rmtree(source / "d2")
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert "one phase only" in error.problem


# --- patients and sessions -----------------------------------------------------------------------


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


def test_leftovers_of_a_killed_import_give_way(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    write_rois(source, 1)
    out = tmp_path / "out"
    import_source(source, out, rules)
    for name in ("participants", "rois", "scores"):
        lines = (out / f"{name}.tsv").read_text().splitlines()
        (out / f"{name}.tsv").write_text(lines[0] + "\n")
    assert import_source(source, out, rules).added == ["sub-P001"]
    assert read_cohort(out).problems == []


# --- scores --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ("P-001,9,r1,likert5,3\n", "scores for a ROI that does not exist"),
        ("P-001,1,r1,likert5,3\nP-001,1,r1,likert5,4\n", "reader r1 scored this ROI twice"),
        ("P-001,1,r1,likert7,3\n", "unknown scale 'likert7'"),
        ("P-001,1,r1,likert5,high\n", "'high' is no number"),
    ],
)
def test_bad_scores_name_patient_and_roi(tmp_path, rules, scores, words):
    source = write_patient(tmp_path / "in", dce=False)
    write_rois(source, 1, scores=scores)
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert words in error.problem
    assert error.patient == "sub-P001"
    assert error.roi in ("1", "9")


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


# --- archives and rules --------------------------------------------------------------------------


def pack(folder: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            bundle.write(path, path.relative_to(folder))


def test_zip_archives(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    write_rois(source, 1)
    pack(source, tmp_path / "study.zip")
    out = tmp_path / "out"
    assert import_source(tmp_path / "study.zip", out, rules).added == ["sub-P001"]
    assert read_cohort(out).problems == []
    folder = tmp_path / "many"
    folder.mkdir()
    pack(write_patient(tmp_path / "p2", "P2", dce=False), folder / "b.zip")
    (folder / "broken.zip").write_bytes(b"PK no zip")
    summary = import_source(folder, out, rules)
    assert summary.added == ["sub-P2"]
    assert "not a readable zip archive" in only_failure(summary).problem


@pytest.mark.parametrize(
    "name", ["../evil.dcm", "a/../../evil.dcm", "/evil.dcm", "C:\\evil.dcm", "..\\evil"]
)
def test_archives_that_climb_out(tmp_path, rules, name):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as bundle:
        bundle.writestr("ok.dcm", "x")
        bundle.writestr(name, "evil")
    error = only_failure(import_source(tmp_path / "x.zip", tmp_path / "out", rules))
    assert "outside its folder" in error.problem
    assert not list(tmp_path.rglob("*evil*"))
    assert not list((tmp_path / "out").iterdir())


def test_zip_bombs_links_and_secrets(tmp_path, rules):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("zeros.dcm", bytes(50_000_000))
    error = only_failure(import_source(tmp_path / "bomb.zip", tmp_path / "out", rules))
    assert "zip bomb" in error.problem
    link = zipfile.ZipInfo("link.dcm")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as bundle:
        bundle.writestr(link, "/etc/passwd")
    error = only_failure(import_source(tmp_path / "link.zip", tmp_path / "out", rules))
    assert "is a link" in error.problem


def test_sources_and_rules_that_are_wrong(tmp_path, rules):
    with pytest.raises(CadError, match="no such folder or archive"):
        import_source(tmp_path / "nothing", tmp_path / "out", rules)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CadError, match="no DICOM image found"):
        import_source(tmp_path / "empty", tmp_path / "out", rules)
    for text, words in (
        ("name: x\nt2: []\n", "unknown key t2; did you mean 't2w'"),
        ("name: x\nt2w: [{descripton: a}]\n", "unknown key t2w.0.descripton"),
        ("name: x\nt2w: [{description: '['}]\n", "not a regular expression"),
        ("name: x\nt2w: [{}]\n", "would accept every series"),
        ("name: x\nrois: ../x\n", "a file name without folders"),
        ("name: x\ndce: {match: [{description: a}], clock: sun}\n", "dce.clock"),
    ):
        rules.write_text(text)
        with pytest.raises(CadError, match="(?i)" + words.replace("[", r"\[")):
            read_settings(ImportRules, rules)


# --- who is it -----------------------------------------------------------------------------------


def test_no_identifying_value_is_written_or_said(tmp_path, rules):
    """Names, birth dates, ids and free text of the source are in no file, no name, no message."""
    source = write_patient(tmp_path / "in", "MRN-99381", dce=True)
    write_rois(source, 1, scores="MRN-99381,1,r1,likert5,4\n")
    for path in source.rglob("*.dcm"):
        edit(path, PatientComments="<script>alert('Gravenstein')</script>")
    rules.write_text(RULES.replace("labels: id", "labels: pseudonym"))
    out = tmp_path / "out"
    summary = import_source(source, out, rules)
    assert summary.failures == []
    (study,) = read_cohort(out).studies()
    assert study.study_id.startswith("sub-P")
    secrets = ["MRN-99381", "MRN99381", "alert(", "20240307", "101112"]
    secrets += [part for value in IDENTIFYING.values() for part in value.split("^")]
    seen = [summary.as_text(), json.dumps(summary.as_dict())]
    for path in (p for p in out.rglob("*")):
        seen.append(str(path.relative_to(out)))
        if path.is_file():
            content = path.read_bytes()
            seen.append(content.decode("latin-1"))
            if path.suffix == ".gz":
                seen.append(gzip.decompress(content).decode("latin-1"))
    for text in seen:
        for secret in secrets:
            assert secret.lower() not in text.lower(), secret
    key = out / "sourcedata/pseudonym.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert import_source(source, out, rules).unchanged == [study.study_id]
    other = tmp_path / "other"
    assert import_source(source, other, rules).added != [study.study_id]


def test_a_cut_off_file_fails_its_own_study(tmp_path, rules):
    source = tmp_path / "in"
    write_patient(source / "P1", "P1", dce=False)
    path = next((source / "P1/t2").iterdir())
    path.write_bytes(path.read_bytes()[:300])
    write_patient(source / "P2", "P2", dce=False)
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == ["sub-P2"]
    assert [f.problem.split(":")[0] for f in summary.failures] == [
        "damaged DICOM header",
        "series 1 't2_tse_tra', flip 150 may be incomplete",
    ]


@pytest.mark.reference
def test_the_real_studies(shared_data, repository, tmp_path, counted):
    """PROSTATEx by its own rules: what its README says is what the cohort holds."""
    out = tmp_path / "out"
    rules = repository / "configs/import/prostatex.yaml"
    summary = import_source(shared_data / "prostatex", out, rules)
    assert summary.failures == []
    assert summary.added == ["sub-ProstateX0000", "sub-ProstateX0218"]
    cohort = read_cohort(out)
    assert cohort.problems == []
    rois = table(out, "rois").to_dict("split")["data"]
    assert rois[0] == ["sub-ProstateX0000", "1", "1", "PZ", "malignant", "3"]
    assert [row[1:3] for row in rois[1:]] == [[str(n), str(n)] for n in (1, 2, 3, 4)]
    labels = read_volume(out / "sub-ProstateX0218/masks/sub-ProstateX0218_rois.nii.gz").array
    assert [int((labels == n).sum()) for n in (1, 2, 3, 4)] == [227] * 4
    lesion = read_volume(out / "sub-ProstateX0000/masks/sub-ProstateX0000_rois.nii.gz").array
    assert (int((lesion == 1).sum()), int(lesion.max())) == (427, 1)
    assert len(cohort.scores) == 16
    # The b = 0/800 map, in which the bladder has the diffusion coefficient of free water.
    adc = read_volume(out / "sub-ProstateX0218/dwi/sub-ProstateX0218_ADC.nii.gz")
    assert adc.shape == (20, 104, 128)
    dynamic = read_dynamic(out / "sub-ProstateX0218/perf/sub-ProstateX0218_dce.nii.gz")
    assert dynamic.frames.shape == (70, 20, 160, 160)
    assert dynamic.times[-1] == pytest.approx(290.9)
    assert not (out / "sub-ProstateX0000/perf").exists()
    counted(14, "PROSTATEx README, imported cohort")
