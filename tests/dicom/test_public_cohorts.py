"""Public cohorts from their own download layouts, one command each."""

from __future__ import annotations

import json
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
)  # fmt: skip
from typer.testing import CliRunner

from cad.cli import app
from cad.cohort import read_cohort
from cad.dicom.into.file_cohort import gleason_grade
from cad.dicom.into.importer import import_source
from cad.imaging.nifti import read_volume
from cad.imaging.volume import Volume


def write_picai(root: Path, lesion: Volume, t2w: Volume, adc: Volume, hbv: Volume) -> Path:
    """Three studies: an expert's outline, an algorithm's, and none."""
    labels = root / "picai_labels"
    for patient, study in (("10001", "1000001"), ("10002", "1000002"), ("10003", "1000003")):
        folder = root / "images" / "fold0" / patient
        for name, image in (("t2w", t2w), ("adc", adc), ("hbv", hbv), ("sag", t2w)):
            write_mha(folder / f"{patient}_{study}_{name}.mha", image)
        stem = f"{patient}_{study}.nii.gz"
        write_nifti(labels / f"anatomical_delineations/whole_gland/AI/Bosma22b/{stem}",
                    t2w.with_array(np.ones(t2w.shape, np.uint8)))  # fmt: skip
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
    [("3+4", 2), ("4+3", 3), ("3+3", 1), ("3+2", 1), ("0+0", 0), ("4+4", 4), ("5+3", 4),
     ("4+5", 5), ("5+5", 5), ("N/A", None), ("3", 3), ("2+4", 1)],
)  # fmt: skip
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
        ["sub-P001", "Finding2", "2", "n/a", "benign", "n/a"],
    ]
    labels = read_volume(out / "sub-P001/masks/sub-P001_rois.nii.gz").array
    assert np.array_equal(labels, regions(1, 2).array)
    assert (out / "sub-P001/masks/sub-P001_gland.nii.gz").is_file()
    table_of_classes.write_text(table_of_classes.read_text().replace("Finding2", "Finding3"))
    error = only_failure(import_source(tmp_path / "in", tmp_path / "other", rules))
    assert "no row ID = 'P-001_Finding2'" in error.problem
    assert error.roi == "Finding2"


def test_ai4ar(tmp_path: Path):
    """Three readers drew lesion 1, which is where two of them agree; folders as the helper has."""
    _, t2w, adc, hbv = small()
    top, drawn = tmp_path / "in/AI4AR_cont", regions(1, 2)
    for name, image in (("t2w", t2w), ("adc", adc), ("hbv", hbv), ("dce1", t2w)):
        write_mha(top / f"Data/001/1_{name}.mha", image)
    gland = drawn.with_array(np.ones(drawn.shape, np.uint8))
    write_nifti(top / "Anatomical_Labels/001/1_pg_t2w.nii.gz", gland)
    one, both = drawn.array == 1, drawn.array > 0
    for reader, inside in (("8ZmM76", one), ("OjmNZ8", both), ("OrjnrO", one)):
        folder = top / "Lesion_labels/001/lesion1/t2w"
        mask = drawn.with_array(inside.astype(np.uint8))
        write_nifti(folder / f"1_lesion1_t2w_{reader}.nii.gz", mask)
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["import", str(tmp_path / "in"), str(out), "--rules", "ai4ar"])
    assert done.exit_code == 0, done.output
    assert table(out, "rois").to_dict("split")["data"] == [
        ["sub-001", "1", "1", "n/a", "n/a", "n/a"]
    ]
    labels = read_volume(out / "sub-001/masks/sub-001_rois.nii.gz").array
    assert np.array_equal(labels == 1, one)


def test_promis(tmp_path: Path):
    _, t2w, adc, _ = small()
    folder = tmp_path / "in/MRI/P-14794814"
    gland = t2w.with_array(np.ones(t2w.shape, np.uint8))
    for name, image in (("t2", t2w), ("adc", adc), ("gland", gland), ("l_a1", regions(1, 2))):
        write_nifti(folder / f"{name}.nii.gz", image)
    (tmp_path / "in/scores.csv").write_text(
        "patient_id,roi_id,reader_id,scale,score\nP-14794814,1,r1,likert5,4\n"
    )
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["import", str(tmp_path / "in"), str(out), "--rules", "promis"])
    assert done.exit_code == 0, done.output
    assert table(out, "rois")["roi_id"].tolist() == ["1", "2"]
    assert table(out, "scores")["score"].tolist() == ["4", "n/a"]
    assert read_cohort(out).problems == []


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
        ["sub-P001", "1", "1", "PZ", "malignant", "n/a"],
        ["sub-P001", "2", "2", "AFS", "benign", "n/a"],
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
