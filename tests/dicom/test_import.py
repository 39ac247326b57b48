"""Import: a cohort out of DICOM, added to and never rewritten."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_files import edit, uid, write_seg, write_series, write_structures
from import_cases import (
    RULES,
    SHAPE,
    adc_values,
    everything,
    only_failure,
    phase_values,
    regions,
    table,
    voxels,
    write_patient,
    write_rois,
)

from cad.base.errors import CadError
from cad.dicom.into.importer import import_source
from cad.dicom.into.regions import Labelled, with_zones
from cad.dicom.into.rules import ZonesRule
from cad.dicom.into.unchanged import require_equal
from cad.folders.cohort import read_cohort
from cad.mri.imaging.nifti import read_dynamic, read_volume, write_volume
from cad.mri.imaging.study import Roi
from cad.mri.imaging.study_files import lost_sidecars


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
    assert (read_volume(home / "dwi/sub-P001_ADC.nii.gz").array == adc_values()).all()
    dynamic = read_dynamic(home / "perf/sub-P001_dce.nii.gz")
    assert (dynamic.frames == np.stack([phase_values(i) for i in range(3)])).all()
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


def directions(source, *letters):
    for d in letters:
        gradient = [float(d == axis) for axis in "xyz"]
        write_series(
            source / "dwi",
            voxels(ord(d)),
            number=7,
            prefix=d,
            description="dwi",
            DiffusionBValue=800.0,
            DiffusionGradientOrientation=gradient,
        )


@pytest.mark.parametrize(
    ("late", "gone", "image", "said"),
    [
        ("adc/*-00[56]*", "", "ADC", "2 of the 6"),
        ("adc/*-00[56]*", "adc/*-001*", "ADC", "2 of the 5"),
        ("d2/*", "", "dce", "6 of the 18"),
        ("d2/*", "d0/*", "dce", "6 of the 12"),
        ("d?/*-006*", "", "dce", "3 of the 18"),
        ("v?/*-006*", "", "flip-1_VFA", "1 of the 6"),
        ("dwi/y*", "", "acq-b800_dwi", "6 of the 12"),
        ("dwi/y*", "dwi/x*", "acq-b800_dwi", "6 of the 6"),
    ],
)
def test_an_image_of_which_more_has_come_is_not_called_whole(
    tmp_path, rules, late, gone, image, said
):
    source, out = write_patient(tmp_path / "in"), tmp_path / "out"
    directions(source, "x", "y")
    rules.write_text(RULES + "diffusion: [{series_number: 7}]\n")
    later = [(path, path.read_bytes()) for path in source.glob(late)]
    for path, _ in later:
        path.unlink()
    assert import_source(source, out, rules).failures == []
    before = everything(out)
    for path, content in later:
        path.write_bytes(content)
    for path in source.glob(gone) if gone else ():
        path.unlink()
    failure = only_failure(import_source(source, out, rules))
    assert f"{said} instances that the source has now" in failure.problem
    assert failure.file.endswith(f"sub-P001_{image}.nii.gz")
    assert everything(out) == before


def test_a_flip_angle_that_comes_or_goes_takes_no_others_name(tmp_path, rules):
    source, out = write_patient(tmp_path / "in"), tmp_path / "out"
    (source / "v4").rename(tmp_path / "two")
    assert import_source(source, out, rules).failures == []
    (source / "v3").rename(tmp_path / "fifteen")
    (tmp_path / "two").rename(source / "v4")
    assert import_source(source, out, rules).updated == ["sub-P001"]
    angles = {p.name: json.loads(p.read_text())["FlipAngle"] for p in out.rglob("*VFA.json")}
    assert angles == {"sub-P001_flip-1_VFA.json": 15.0, "sub-P001_flip-2_VFA.json": 2.0}


def test_what_stays_although_the_source_has_another_is_said(tmp_path, rules):
    source, out = write_patient(tmp_path / "in"), tmp_path / "out"
    write_rois(source, 1, scores="P-001,1,r1,likert5,2\n")
    rules.write_text(RULES + "prefer: last\n")
    import_source(source, out, rules)
    before = everything(out)
    write_series(source / "again", voxels(71), number=11, AcquisitionTime="102500.25")
    write_rois(source, 1, 2, scores="P-001,1,r1,likert5,5\n")
    summary = import_source(source, out, rules)
    assert summary.unchanged == ["sub-P001"]
    said = "\n".join(summary.notes)
    assert "sub-P001_T2w.nii.gz stays series 1; the rules take series 11 now" in said
    assert "the source's regions are other than the cohort's, which stay" in said
    assert "reader r1's score of ROI 1 stays 2; the source says 5" in said
    assert everything(out) == before


def test_a_sidecar_that_somebody_changed_is_named(tmp_path, rules):
    source, out = write_patient(tmp_path / "in"), tmp_path / "out"
    import_source(source, out, rules)
    sidecar = out / "sub-P001/perf/sub-P001_dce.json"
    sidecar.write_text(json.dumps({**json.loads(sidecar.read_text()), "SOPInstanceUIDs": 5}))
    failure = only_failure(import_source(source, out, rules))
    assert "its sidecar lists no SOPInstanceUIDs" in failure.problem
    assert failure.file.endswith("sub-P001_dce.nii.gz")


def repainted(path):
    """The same instance with one pixel changed, as a corrected export has it."""
    pixels = np.frombuffer(pydicom.dcmread(path).PixelData, np.uint16).copy()
    pixels[7] += 1
    edit(path, PixelData=pixels.tobytes())


@pytest.mark.parametrize(
    ("series", "image"),
    [("t2", "T2w"), ("adc", "ADC"), ("d1", "dce"), ("v3", "flip-2_VFA"), ("dwi", "acq-b800_dwi")],
)
def test_corrected_pixels_under_the_same_uids_are_said(tmp_path, rules, series, image):
    source, out = write_patient(tmp_path / "in"), tmp_path / "out"
    directions(source, "x", "y")
    rules.write_text(RULES + "diffusion: [{series_number: 7}]\n")
    assert import_source(source, out, rules).failures == []
    assert import_source(source, out, rules).unchanged == ["sub-P001"]
    before = everything(out)
    repainted(sorted((source / series).glob("*"))[2])
    failure = only_failure(import_source(source, out, rules))
    assert "voxels are other in the source now" in failure.problem
    assert failure.file.endswith(f"sub-P001_{image}.nii.gz")
    assert everything(out) == before


def test_a_voxel_that_stays_nan_is_not_counted_as_changed():
    had = np.array([[[np.nan, np.nan, 1.0, 2.0]]])
    now = np.array([[[np.nan, 0.0, 1.0, 3.0]]])
    with pytest.raises(CadError, match="2 of its 4 voxels are other in the source now"):
        require_equal(Path("ADC.nii.gz"), had, now)


def test_a_corrected_place_under_the_same_uids_is_said(tmp_path, rules):
    source, out = write_patient(tmp_path / "in"), tmp_path / "out"
    import_source(source, out, rules)
    for path in (source / "t2").glob("*"):
        x, y, z = map(float, pydicom.dcmread(path).ImagePositionPatient)
        edit(path, ImagePositionPatient=[x + 3, y, z])
    failure = only_failure(import_source(source, out, rules))
    assert "lies elsewhere in space" in failure.problem


def test_a_source_that_nobody_touched_is_not_read_again(tmp_path, rules, monkeypatch):
    source, out = write_patient(tmp_path / "in"), tmp_path / "out"
    import_source(source, out, rules)
    later = time.time() + 2 * 3600
    for image in out.rglob("*.nii.gz"):
        os.utime(image, (later, later))

    def unread(*_, **__):
        raise AssertionError("read again")

    monkeypatch.setattr("cad.dicom.into.conversion.read_stack", unread)
    assert import_source(source, out, rules).unchanged == ["sub-P001"]


def test_a_second_export_under_new_uids_is_said(tmp_path, rules):
    """The voxels tell it where the first export is gone from the source, the times where not."""
    out = tmp_path / "out"
    import_source(write_patient(tmp_path / "a", dce=False), out, rules)
    again = write_patient(tmp_path / "b", study="study2", dce=False)
    summary = import_source(again, out, rules)
    assert summary.failures == []
    (note,) = [note for note in summary.notes if "exported twice" in note]
    assert note.startswith("sub-P001_ses-02: ")
    assert "sub-P001 in the cohort has the same voxels, under other UIDs" in note


@pytest.mark.parametrize("hour", ["101112", "151617"])
def test_two_studies_at_the_same_times_are_said(tmp_path, rules, hour):
    """Lossy packing changes voxels and keeps times; another examination has others."""
    source, out = tmp_path / "in", tmp_path / "out"
    for seed, (study, time_of_day) in enumerate((("study1", "101112"), ("study2", hour))):
        write_patient(source / study, study=study, dce=False, seed=seed)
        for path in (source / study).rglob("*.dcm"):
            edit(path, StudyDate="20240102", AcquisitionTime=time_of_day)
    notes = "\n".join(import_source(source, out, rules).notes)
    assert ("has the same acquisition times" in notes) == (hour == "101112")


def test_a_sidecar_that_is_gone_is_named(tmp_path, rules):
    source, out = write_patient(tmp_path / "in"), tmp_path / "out"
    import_source(source, out, rules)
    assert not lost_sidecars(out / "sub-P001")
    (out / "sub-P001/anat/sub-P001_T2w.json").unlink()
    failure = only_failure(import_source(source, out, rules))
    assert "its sidecar, which says what it was made of, is gone" in failure.problem
    (lost,) = lost_sidecars(out / "sub-P001")
    assert lost.file.endswith("sub-P001_T2w.nii.gz")
    for sidecar in out.rglob("*.json"):  # as in a cohort that somebody made by hand
        sidecar.write_text("{}")
    assert not lost_sidecars(out / "sub-P001")


def test_a_structure_set_that_was_cut_off_before_its_contours_is_refused(tmp_path, rules):
    source, out = write_patient(tmp_path / "in"), tmp_path / "out"
    square = np.array([[2.0, 2, 0], [8, 2, 0], [8, 8, 0], [2, 8, 0]])
    path = source / "structures.dcm"
    write_structures(path, sorted((source / "t2").glob("*"))[0], {"ROI 1": [square]})
    edit(path, ROIContourSequence=None)
    failure = only_failure(import_source(source, out, rules))
    assert "structures without any contours: the file was cut off" in failure.problem


def test_a_study_stays_its_patients(tmp_path, rules):
    """A corrected PatientID must not join two men's images in one folder."""
    source, out = write_patient(tmp_path / "in", dce=False), tmp_path / "out"
    import_source(source, out, rules)
    before = everything(out)
    write_patient(source)
    for path in source.rglob("*.dcm"):
        edit(path, PatientID="Q-777")
    failure = only_failure(import_source(source, out, rules))
    assert "the cohort has this study as sub-P001's" in failure.problem
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
    gland = np.full(SHAPE, 7, np.uint8)  # 6.5 mL: less than 5 is no prostate
    gland[:, :2] = 0
    write_volume(source / "gland.nii.gz", regions().with_array(gland))
    out = tmp_path / "out"
    assert import_source(source, out, rules).failures == []
    assert table(out, "rois").to_dict("split")["data"] == [
        ["sub-P001", "1", "1", "PZ", "malignant", "3"],
        ["sub-P001", "2", "2", "TZ", "malignant", "5"],
    ]
    masks = out / "sub-P001/masks"
    assert sorted(np.unique(read_volume(masks / "sub-P001_rois.nii.gz").array)) == [0, 1, 2]
    assert sorted(np.unique(read_volume(masks / "sub-P001_gland.nii.gz").array)) == [0, 1]


def test_a_zone_of_two_numbers_counts_both(tmp_path):
    """The last number alone counted: three voxels in the PZ and two in the TZ were called TZ."""
    zones = regions().with_array(np.zeros(SHAPE, np.uint8))
    zones.array[0, 0, :6] = [1, 1, 2, 3, 3, 0]
    path = tmp_path / "zones.nii.gz"
    write_volume(path, zones)
    labels = zones.with_array((zones.array > 0).astype(np.uint16))
    rule = ZonesRule(file=path.name, values={1: "PZ", 2: "PZ", 3: "TZ"})
    (roi,) = with_zones(Labelled(labels, [Roi("1", 1)]), path, rule).rois
    assert roi.zone == "PZ"


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
                    np.array(
                        [
                            [1.5 + 5 * n, 1.5, z],
                            [5.5 + 5 * n, 1.5, z],
                            [5.5 + 5 * n, 5.5, z],
                            [1.5 + 5 * n, 5.5, z],
                        ]
                    )
                    for z in (6.0, 9.0)
                ]
                for n in (0, 1)
            }
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
    write_series(
        source / "P3/adc",
        flat,
        patient="P3",
        number=2,
        description="adc",
        ImageType=["DERIVED", "PRIMARY", "ADC"],
    )
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
    rules.write_text(
        RULES.replace("^t2", "^nothing")
        .replace("[ADC]", "[NONE]")
        .replace("^dyn", "^none")
        .replace("^vibe", "^none")
    )
    error = only_failure(import_source(source, tmp_path / "other", rules))
    assert "no series is the T2 image by the rules" in error.problem
    assert "9 'localizer'" in error.problem


def test_flip_angles_that_repeat_and_single_phases(tmp_path, rules):
    source = write_patient(tmp_path / "in")
    for path in (source / "v4").iterdir():
        edit(path, FlipAngle="15")
    assert (
        "2 images match flip angle 15"
        in only_failure(import_source(source, tmp_path / "out", rules)).problem
    )
    write_patient(source)
    shutil.rmtree(source / "d1")
    shutil.rmtree(source / "d2")
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert "one phase only" in error.problem
