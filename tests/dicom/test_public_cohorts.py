"""Public cohorts from their own download layouts, one command each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from import_cases import (
    adc_values,
    only_failure,
    regions,
    table,
    voxels,
    write_mha,
    write_nifti,
    write_patient,
)
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.cli import app
from cad.dicom.into.importer import import_source
from cad.dicom.into.regions import gleason_grade
from cad.folders.cohort import read_cohort
from cad.mri.imaging.nifti import read_volume
from cad.mri.imaging.volume import Volume


def write_picai(root: Path, lesion: Volume, t2w: Volume, adc: Volume, hbv: Volume) -> Path:
    """Three studies: an expert's outline, an algorithm's, and none."""
    labels = root / "picai_labels"
    for patient, study in (("10001", "1000001"), ("10002", "1000002"), ("10003", "1000003")):
        folder = root / "images" / "fold0" / patient
        for name, image in (("t2w", t2w), ("adc", adc), ("hbv", hbv), ("sag", t2w)):
            write_mha(folder / f"{patient}_{study}_{name}.mha", image)
        stem = f"{patient}_{study}.nii.gz"
        write_nifti(
            labels / f"anatomical_delineations/whole_gland/AI/Bosma22b/{stem}",
            t2w.with_array(np.ones(t2w.shape, np.uint8)),
        )
        lesions = labels / "csPCa_lesion_delineations"
        one = lesion.with_array((lesion.array != 0).astype(np.uint8))
        write_nifti(
            lesions / "AI/Bosma22a" / stem,
            one if patient != "10003" else one.with_array(one.array * 0),
        )
        if patient == "10001":
            write_nifti(lesions / "human_expert/resampled" / stem, lesion)
    (labels / "clinical_information").mkdir()
    (labels / "clinical_information/marksheet.csv").write_text(
        "patient_id,study_id,lesion_PIRADS,lesion_GS,lesion_ISUP,case_ISUP\n"
        '10001,1000001,"2,5","N/A,4+3",3,3\n10002,1000002,"4,3","3+4,0+0","2,0",2\n'
        "10003,1000003,3,0+0,0,0\n"
    )
    return root


def small() -> tuple[Volume, Volume, Volume, Volume]:
    grid = regions()
    return (
        regions(3),
        grid.with_array(adc_values() + voxels(1)),  # T2 is bright where water moves freely
        grid.with_array(adc_values()),
        grid.with_array(voxels(3)),
    )


def test_picai(tmp_path: Path):
    source = write_picai(tmp_path / "in", *small())
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["import", str(source), str(out), "--rules", "picai", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["added"] == ["sub-10001", "sub-10002", "sub-10003"]
    assert told["awaiting"] == ["sub-10003"]
    assert table(out, "rois").to_dict("split")["data"] == [
        ["sub-10001", "1", "1", "n/a", "malignant", "3"],
        # An algorithm's outline: its grade is the one grade of 2 or more in the table.
        ["sub-10002", "1", "1", "n/a", "malignant", "2"],
    ]
    scores = table(out, "scores")[["participant_id", "scale", "score"]].to_numpy().tolist()
    assert scores == [["sub-10001", "pirads", "5"], ["sub-10002", "pirads", "4"]]
    assert any("1 lesions from resampled" in note for note in told["notes"])
    assert (read_volume(out / "sub-10001/dwi/sub-10001_ADC.nii.gz").array == adc_values()).all()
    assert (out / "sub-10001/dwi/sub-10001_acq-highb_dwi.nii.gz").is_file()
    assert read_cohort(out).problems == []
    again = CliRunner().invoke(app, ["import", str(source), str(out), "--rules", "picai", "--json"])
    assert json.loads(again.stdout)["unchanged"] == told["added"], again.stdout


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("3+4", 2),
        ("4+3", 3),
        ("3+3", 1),
        ("3+2", 1),
        ("0+0", 0),
        ("4+4", 4),
        ("5+3", 4),
        ("4+5", 5),
        ("5+5", 5),
        ("N/A", None),
        ("3", 3),
        ("2+4", 1),
    ],
)
def test_gleason_sums_are_grades(text: str, grade: int | None):
    assert gleason_grade(text) == grade


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("10001,1000001,6,4+3,3,3", "PI-RADS '6' is none of 1 to 5"),
        ('10001,1000001,"0,3","4+3,0+0",3,3', "PI-RADS '0' is none of 1 to 5"),
        ('10001,1000001,"4,3",4+3,3,3', "2 categories '4,3' and 1 grades '4+3'"),
    ],
)
def test_a_study_whose_lesions_are_listed_wrongly_is_refused(tmp_path: Path, row: str, said: str):
    source = write_picai(tmp_path / "in", *small())
    sheet = source / "picai_labels/clinical_information/marksheet.csv"
    lines = sheet.read_text().splitlines()
    sheet.write_text("\n".join([lines[0], row, *lines[2:]]) + "\n")
    rules = Path(__file__).parents[2] / "configs/import/picai.yaml"
    summary = import_source(source, tmp_path / "out", rules)
    assert said in only_failure(summary).problem
    assert summary.added == ["sub-10002", "sub-10003"]


def test_prostate158(tmp_path: Path):
    lesion, t2w, adc, hbv = small()
    for patient in ("020", "021"):
        folder = tmp_path / "in/train" / patient
        for name, image in (("t2", t2w), ("adc", adc), ("dwi", hbv)):
            write_nifti(folder / f"{name}.nii.gz", image)
        zones = np.full(t2w.shape, 2, np.uint8)
        write_nifti(folder / "t2_anatomy_reader1.nii.gz", t2w.with_array(zones))
    write_nifti(tmp_path / "in/train/020/adc_tumor_reader1.nii.gz", lesion)
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app, ["import", str(tmp_path / "in"), str(out), "--rules", "prostate158"]
    )
    assert done.exit_code == 0, done.output
    assert table(out, "rois").to_dict("split")["data"] == [
        ["sub-020", "1", "1", "PZ", "malignant", "n/a"]
    ]
    assert "awaiting ROI: sub-021" in done.stdout


MASKS = "PROSTATEx_masks/Files/lesions/Masks"


def write_masks(source: Path) -> Path:
    """Lesions by their true names: one on T2 and ADC, one on ADC only, one of another man."""
    write_patient(source / "PROSTATEx/P-001", "P-001")
    drawn = regions(1, 2)
    for place, number in (
        ("T2/P-001-Finding1-t2_tse_tra_ROI.nii.gz", 1),
        ("ADC/P-001-Finding1-ep2d_diff_tra_DYNDIST_MIX_ADC0_ROI.nii.gz", 2),
        ("ADC/P-001-Finding2-ep2d_diff_tra_DYNDIST_ADC_ROI.nii.gz", 2),
        ("T2/P-0010-Finding1-t2_tse_tra0_ROI.nii_ROI.nii.gz", 1),
    ):
        one = drawn.with_array((drawn.array == number).astype(np.uint8))
        write_nifti(source / MASKS / place, one)
    gland = drawn.with_array(np.ones(drawn.shape, np.uint8))
    write_nifti(source / "PROSTATEx_masks/Files/prostate/mask_prostate/P-001.nii.gz", gland)
    table = source / "PROSTATEx_masks/Files/lesions/PROSTATEx_Classes.csv"
    table.write_text(
        '"ID","Clinically Significant","Gleason Grade Group"\n"P-001_Finding1","True",3\n'
        '"P-001_Finding2","False","No biopsy information"\n'
    )
    return table


def masked(rules: Path) -> Path:
    """The part of the PROSTATEx rules that names the masks, beside the rules of made series."""
    given = (Path(__file__).parents[2] / "configs/import/prostatex.yaml").read_text()
    part = given[given.index("outlines:") : given.index("# Without these")]
    made = "ranges: {adc_like_t2w: [-1, 1]}\n"  # T2 and ADC of made series are noise
    rules.write_text(rules.read_text() + part + made)
    return rules


def test_prostatex_masks(tmp_path: Path, rules: Path):
    table_of_classes, out = write_masks(tmp_path / "in"), tmp_path / "out"
    assert import_source(tmp_path / "in", out, masked(rules)).failures == []
    assert table(out, "rois").to_dict("split")["data"] == [
        ["sub-P001", "Finding1", "1", "n/a", "malignant", "3"],
        ["sub-P001", "Finding2", "2", "n/a", "n/a", "<=1"],
    ]
    labels = read_volume(out / "sub-P001/masks/sub-P001_rois.nii.gz").array
    assert np.array_equal(labels, regions(1, 2).array)
    assert (out / "sub-P001/masks/sub-P001_gland.nii.gz").is_file()
    table_of_classes.write_text(table_of_classes.read_text().replace("Finding2", "Finding3"))
    error = only_failure(import_source(tmp_path / "in", tmp_path / "other", rules))
    assert "no row ID = 'P-001_Finding2'" in error.problem
    assert error.roi == "Finding2"


@pytest.mark.parametrize(
    ("first", "second", "found", "note"),
    [
        ("TRUE,3.0", "No ,", [("malignant", "3"), ("n/a", "<=1")], ""),
        (",3.0", "no,1", [("malignant", "3"), ("malignant", "1")], ""),
        ("1.0,", "0.0,3+4", [("malignant", ">=2"), ("n/a", "<=1")], ""),
        ("maybe,", ",3+4", [("n/a", "n/a")] * 2, "'maybe' is neither true nor false"),
        ("TRUE,3+4", "n/a,", [("malignant", ">=2"), ("n/a", "n/a")], "'3+4' is no grade 1 to 5"),
        ("FALSE,1", "FALSE,3", [], "its row says FALSE and grade 3"),
        ("FALSE,1", "TRUE,1", [], "its row says TRUE and grade 1"),
    ],
)
def test_truth_and_grades_are_read_or_told(
    tmp_path: Path, rules: Path, first: str, second: str, found: list[tuple[str, str]], note: str
):
    path, out = write_masks(tmp_path / "in"), tmp_path / "out"
    rows = (
        "ID,Clinically Significant,Gleason Grade Group",
        f"P-001_Finding1,{first}",
        f"P-001_Finding2,{second}",
    )
    path.write_text("\n".join(rows) + "\n")
    done = import_source(tmp_path / "in", out, masked(rules))
    if not found:
        assert only_failure(done).problem == note
        return
    rois = table(out, "rois")
    assert list(zip(rois["histology"], rois["isup"], strict=True)) == found
    told = [text for text in done.notes if "is no grade" in text or "neither" in text]
    assert any(note in text for text in told) if note else not told


def test_a_marksheet_of_floats_is_read_and_one_against_itself_is_refused(tmp_path: Path):
    source = write_picai(tmp_path / "in", *small())
    sheet = source / "picai_labels/clinical_information/marksheet.csv"
    sheet.write_text(
        "patient_id,study_id,lesion_PIRADS,lesion_GS\n10001.0,1000001.0,4.0,3.0\n"
        "10002,1000002,4,3+4\n10002,1000002.0,5,5+5\n10003,1000003,3,0+0\n"
    )
    rules = Path(__file__).parents[2] / "configs/import/picai.yaml"
    done = import_source(source, tmp_path / "out", rules)
    assert "marksheet.csv has different rows of this study" in only_failure(done).problem
    assert table(tmp_path / "out", "scores")["score"].tolist() == ["4"]
    sheet.write_text("patient_id,study_id,lesion_PIRADS,lesion_GS\n1,1000001,4,3+4\n")
    done = import_source(source, tmp_path / "other", rules)
    assert "sub-10001: marksheet.csv has no row of this study" in done.notes


AI4AR_HEAD = "patient_id,radiologist_id,lesion_id,TBx,lesion_pirads"
AI4AR_ROWS = ("1,U_8ZmM76,1,1,5.0", "1,U_OjmNZ8,1,1,4.0", "1,U_OrjnrO,1,1,", "2,U_OjmNZ8,1,0,3.0")


def write_ai4ar(source: Path, *rows: str) -> None:
    """Three readers drew lesion 1, which is where two of them agree; folders as the helper has."""
    _, t2w, adc, hbv = small()
    top, drawn = source / "AI4AR_cont", regions(1, 2)
    for name, image in (("t2w", t2w), ("adc", adc), ("hbv", hbv), ("dce1", t2w)):
        write_mha(top / f"Data/001/1_{name}.mha", image)
    gland = drawn.with_array(np.ones(drawn.shape, np.uint8))
    write_nifti(top / "Anatomical_Labels/001/1_pg_t2w.nii.gz", gland)
    one, both = drawn.array == 1, drawn.array > 0
    for reader, inside in (("8ZmM76", one), ("OjmNZ8", both), ("OrjnrO", one)):
        folder = top / "Lesion_labels/001/lesion1/t2w"
        mask = drawn.with_array(inside.astype(np.uint8))
        write_nifti(folder / f"1_lesion1_t2w_{reader}.nii.gz", mask)
    (source / "AI4AR_PCa_radiological.csv").write_text("\n".join([AI4AR_HEAD, *rows]) + "\n")


def test_ai4ar(tmp_path: Path):
    write_ai4ar(tmp_path / "in", *AI4AR_ROWS)
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["import", str(tmp_path / "in"), str(out), "--rules", "ai4ar"])
    assert done.exit_code == 0, done.output
    assert table(out, "rois").to_dict("split")["data"] == [
        ["sub-001", "1", "1", "n/a", "malignant", ">=2"]
    ]
    assert table(out, "scores").to_dict("split")["data"] == [
        ["sub-001", "1", "U_8ZmM76", "pirads", "5.0"],
        ["sub-001", "1", "U_OjmNZ8", "pirads", "4.0"],
    ]
    labels = read_volume(out / "sub-001/masks/sub-001_rois.nii.gz").array
    assert np.array_equal(labels == 1, regions(1, 2).array == 1)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            "1,U_OjmNZ8,1,0,4.0",
            "its rows say different tissue: ISUP 2 or more, ISUP 1 or no cancer",
        ),
        ("1,U_OjmNZ8,1,1,6.0", "score 6 is not on its scale pirads"),
        ("1,U_OjmNZ8,1,1,0", "score 0 is not on its scale pirads"),
        ('1,U_OjmNZ8,1,1,"4,5"', "score '4,5' is no number"),
    ],
)
def test_a_lesion_that_its_table_has_wrongly_is_refused(tmp_path: Path, row: str, said: str):
    write_ai4ar(tmp_path / "in", AI4AR_ROWS[0], row)
    rules = Path(__file__).parents[2] / "configs/import/ai4ar.yaml"
    error = only_failure(import_source(tmp_path / "in", tmp_path / "out", rules))
    assert said in error.problem
    assert error.roi == "1"


PROMIS_ROWS = ("P-00000001,4", "P-00000001,", "P-00000001,2", "P-00000002,5")
BIOPSIES = ("1,1,1,3,4", "1,1,1,3,3", "2,1,1,3.0,3.0", "3,1,0,,", "4,1.0,0,,", "5,0,,,", ",,,,")


def write_promis(source: Path, zones: np.ndarray, rows: tuple[str, ...] = PROMIS_ROWS) -> Path:
    """One man, two lesions of 32 voxels; the zones are the test's."""
    _, t2w, adc, _ = small()
    folder = source / "MRI/P-00000001"
    gland = t2w.with_array(np.ones(t2w.shape, np.uint8))
    for name, image in (
        ("t2", t2w),
        ("adc", adc),
        ("gland", gland),
        ("l_a1", regions(1, 2)),
        ("gland_zone_set1", gland.with_array(zones.astype(np.uint8))),
    ):
        write_nifti(folder / f"{name}.nii.gz", image)
    (source / "Template_biopsy").mkdir()
    head = "zone_id,samtaken,zprescancer,zprimgleason,zsecondgleason"
    report = source / "Template_biopsy/P-00000001.csv"
    report.write_text("\n".join([head, *BIOPSIES]) + "\n")
    path = source / "PROMIS_OA_MRI_cleaned.csv"
    path.write_text("\n".join(["patientID,les_all", *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (1, 3, [("malignant", "2"), ("benign", "n/a")]),
        (2, 5, [("malignant", "1"), ("n/a", "n/a")]),  # zone 5 was not sampled
        (6, 0, [("n/a", "n/a")] * 2),  # zone 6 has no row; no zone
    ],
)
def test_promis(tmp_path: Path, first: int, second: int, found: list[tuple[str, str]]):
    drawn = regions(1, 2).array
    write_promis(tmp_path / "in", np.where(drawn == 1, first, np.where(drawn == 2, second, 0)))
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["import", str(tmp_path / "in"), str(out), "--rules", "promis"])
    assert done.exit_code == 0, done.output
    rois, scores = table(out, "rois"), table(out, "scores")
    assert rois["roi_id"].tolist() == ["1", "2"]
    assert list(zip(rois["histology"], rois["isup"], strict=True)) == found
    assert scores[["scale", "score"]].to_numpy().tolist() == [["likert5", "4"], ["likert5", "2"]]
    assert read_cohort(out).problems == []


@pytest.mark.parametrize(("voxels_of_it", "found"), [(4, "malignant"), (3, "benign")])
def test_a_zone_counts_from_a_tenth_of_the_lesion(tmp_path: Path, voxels_of_it: int, found: str):
    """32 voxels: 3.2 of them in the zone with cancer are needed, all others lie in a clean one."""
    zones = np.where(regions(1, 2).array > 0, 4, 0)
    zones.ravel()[np.flatnonzero(regions(1, 2).array == 1)[:voxels_of_it]] = 1
    write_promis(tmp_path / "in", zones)
    rules = Path(__file__).parents[2] / "configs/import/promis.yaml"
    import_source(tmp_path / "in", tmp_path / "out", rules)
    assert table(tmp_path / "out", "rois")["histology"].tolist() == [found, "benign"]


@pytest.mark.parametrize(
    ("less", "said"),
    [("score_column: les_all", "give score_column"), ('template: "', "belong together")],
)
def test_rules_that_say_half_are_refused(tmp_path: Path, less: str, said: str):
    given = (Path(__file__).parents[2] / "configs/import/promis.yaml").read_text().splitlines()
    rules = tmp_path / "rules.yaml"
    rules.write_text("\n".join(line for line in given if less not in line) + "\n")
    write_promis(tmp_path / "in", np.zeros(regions(1).shape))
    with pytest.raises(CadError, match=said):
        import_source(tmp_path / "in", tmp_path / "out", rules)


def test_a_workbook_is_to_be_saved_as_csv_and_odd_counts_are_told(tmp_path: Path):
    path = write_promis(tmp_path / "in", np.zeros(regions(1).shape), PROMIS_ROWS[:1])
    rules = Path(__file__).parents[2] / "configs/import/promis.yaml"
    summary = import_source(tmp_path / "in", tmp_path / "out", rules)
    assert any("has 1 scores, the map lesions 1, 2" in note for note in summary.notes)
    assert table(tmp_path / "out", "scores")["score"].tolist() == ["4", "n/a"]
    path.rename(path.with_suffix(".xlsx"))
    error = only_failure(import_source(tmp_path / "in", tmp_path / "other", rules))
    assert error.problem == "an Excel workbook is not read"
    assert "save its sheet as CSV (UTF-8) beside it: PROMIS_OA_MRI_cleaned.csv" in error.hint


def test_prostatex_findings(tmp_path: Path, rules: Path):
    """Points of the challenge's table become balls; the note says that they are a substitute."""
    source = tmp_path / "in"
    write_patient(source / "P-001", "P-001")
    (source / "ProstateX-Findings-Train.csv").write_text(
        "ProxID,fid,pos,zone,ClinSig\nP-001,1,5 5 6,PZ,TRUE\nP-001,2,13 13 9,AS,FALSE\n"
        "P-999,1,0 0 0,PZ,FALSE\n"
    )
    rules.write_text(rules.read_text() + "findings: {radius: 3}\n")
    out = tmp_path / "out"
    summary = import_source(source, out, rules)
    assert summary.failures == []
    assert table(out, "rois").to_dict("split")["data"] == [
        ["sub-P001", "1", "1", "PZ", "malignant", ">=2"],
        ["sub-P001", "2", "2", "AFS", "n/a", "<=1"],
    ]
    labels = read_volume(out / "sub-P001/masks/sub-P001_rois.nii.gz").array
    # A ball of 3 mm on a grid of 1 x 1 x 3 mm: 29 voxels in its slice, 1 above and 1 below.
    assert [(labels == n).sum() for n in (1, 2)] == [31, 31]
    assert any("not drawn lesions" in note for note in summary.notes)
    (source / "ProstateX-Findings-Train.csv").write_text(
        "ProxID,fid,pos,zone,ClinSig\nP-001,1,500 5 6,PZ,TRUE\n"
    )
    error = only_failure(import_source(source, tmp_path / "other", rules))
    assert "finding 1 at 500 5 6 mm lies outside the T2 image" in error.problem


FINDINGS = "ProstateX-Findings-Train.csv"


def test_two_findings_of_one_id_are_two_regions(tmp_path: Path, rules: Path):
    source = tmp_path / "in"
    write_patient(source / "P-001", "P-001")
    lines = [
        "ProxID,fid,pos,zone,ClinSig",
        "P-001,1,5 5 6,PZ,TRUE",
        "P-001,1,13 13 9,PZ,FALSE",
        "P-001,2,13 5 6,TZ,FALSE",
        "P-001,2,13 5 6,TZ,FALSE",  # the same finding again
    ]
    (source / FINDINGS).write_text("\n".join(lines) + "\n")
    rules.write_text(rules.read_text() + "findings: {radius: 2}\n")
    out = tmp_path / "out"
    summary = import_source(source, out, rules)
    assert summary.failures == []
    rows = table(out, "rois")[["roi_id", "label", "zone", "isup"]]
    assert rows.to_dict("split")["data"] == [
        ["1", "1", "PZ", ">=2"],
        ["1_2", "2", "PZ", "<=1"],
        ["2", "3", "TZ", "<=1"],
    ]
    assert any("two findings are called 1" in note for note in summary.notes)
    assert any("finding 2 is listed twice" in note for note in summary.notes)
    assert read_cohort(out).problems == []
    lines[4] = "P-001,2,13 5 6,TZ,TRUE"
    (source / FINDINGS).write_text("\n".join(lines) + "\n")
    error = only_failure(import_source(source, tmp_path / "other", rules))
    assert "finding 2 at 13 5 6 mm is listed twice, with different zone or ClinSig" in error.problem


@pytest.mark.parametrize("whole", [False, True])
def test_a_findings_table_beside_an_archive_is_read(tmp_path: Path, rules: Path, whole: bool):
    folder = tmp_path / "in"
    write_patient(tmp_path / "unpacked" / "P-001", "P-001")
    folder.mkdir()
    shutil.make_archive(str(folder / "P-001"), "zip", tmp_path / "unpacked")
    (folder / FINDINGS).write_text("ProxID,fid,pos,zone,ClinSig\nP-001,1,5 5 6,PZ,TRUE\n")
    (folder / "scores.csv").write_text(
        "patient_id,roi_id,reader_id,scale,score\nP-001,1,r1,likert5,4\n"
    )
    rules.write_text(rules.read_text() + "findings: {radius: 3}\n")
    out = tmp_path / "out"
    summary = import_source(folder / "P-001.zip" if whole else folder, out, rules)
    assert summary.failures == []
    assert list(table(out, "rois")["roi_id"]) == ["1"]
    assert list(table(out, "scores")["score"]) == ["4"]


def test_a_text_that_is_named_dcm_is_named(tmp_path: Path, rules: Path):
    source = tmp_path / "in"
    write_patient(source / "P-001", "P-001")
    (source / "P-001" / "notes.dcm").write_text("see the report\n" * 40)
    (source / "P-001" / "notes").write_text("see the report\n" * 40)
    summary = import_source(source, tmp_path / "out", rules)
    (error,) = summary.failures
    assert "its name says DICOM, its content is none" in error.problem
    assert Path(error.file).name == "notes.dcm"


def test_a_persons_points_go_before_a_detectors_regions(tmp_path: Path, rules: Path):
    source = tmp_path / "in"
    write_patient(source / "P-001", "P-001")
    write_nifti(source / "P-001" / "candidates.nii.gz", regions(3))
    points = source / "ProstateX-Findings-Train.csv"
    points.write_text("ProxID,fid,pos,zone,ClinSig\nP-001,1,5 5 6,PZ,TRUE\n")
    more = "findings: {radius: 3}\ndetector: {file: candidates.nii.gz, least: 0}\n"
    rules.write_text(rules.read_text() + more)
    marked = import_source(source, tmp_path / "marked", rules)
    assert table(tmp_path / "marked", "rois")["histology"].tolist() == ["malignant"]
    points.write_text("ProxID,fid,pos,zone,ClinSig\nP-999,1,5 5 6,PZ,TRUE\n")
    other = import_source(source, tmp_path / "other", rules)
    assert table(tmp_path / "other", "rois")["histology"].tolist() == ["n/a"]
    by = [any("outlined by a detector" in note for note in run.notes) for run in (marked, other)]
    assert by == [False, True]


@pytest.mark.reference
def test_picai_from_the_sample_at_hand(shared_data: Path, tmp_path: Path, repository: Path):
    """ProstateX-0000 is PI-CAI's 11373_1001396: its layout, built from the DICOM import."""
    given = shared_data / "prostatex" / "ProstateX-0000"
    first = tmp_path / "dicom"
    rules = repository / "configs/import"
    assert import_source(given, first, rules / "prostatex.yaml").failures == []
    home = first / "sub-ProstateX0000"
    folder, labels = tmp_path / "in/images/11373", tmp_path / "in/picai_labels"
    for name, path in (("t2w", "anat/sub-ProstateX0000_T2w"), ("adc", "dwi/sub-ProstateX0000_ADC")):
        write_mha(folder / f"11373_1001396_{name}.mha", read_volume(home / f"{path}.nii.gz"))
    stem = "11373_1001396.nii.gz"
    for name, place in (
        ("lesion", "csPCa_lesion_delineations/human_expert/resampled"),
        ("gland", "anatomical_delineations/whole_gland/AI/Guerbet23"),
        ("zones", "anatomical_delineations/zonal_pz_tz/AI/Yuan23"),
    ):
        write_nifti(labels / place / stem, read_volume(given / f"{name}.nii.gz"))
    out = tmp_path / "out"
    assert import_source(tmp_path / "in", out, rules / "picai.yaml").failures == []
    assert table(out, "rois").to_dict("split")["data"] == [
        ["sub-11373", "1", "1", "PZ", "malignant", "3"]
    ]
    for path in ("anat/{}_T2w", "dwi/{}_ADC", "masks/{}_rois", "masks/{}_gland"):
        ours = read_volume(out / "sub-11373" / f"{path.format('sub-11373')}.nii.gz")
        theirs = read_volume(home / f"{path.format('sub-ProstateX0000')}.nii.gz")
        assert (ours.array == theirs.array).all()
        assert ours.same_grid(theirs)
