"""Displacement: a known shift is measured to fractions of a voxel, with an honest error; mended."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.ndimage import gaussian_filter
from scipy.spatial.transform import Rotation
from typer.testing import CliRunner

from benchmarks import displacement as experiment
from benchmarks import faults
from cad.base.errors import CadError
from cad.base.settings import ImageSettings, PipelineSettings, parse_settings
from cad.base.share import find
from cad.cli import app
from cad.dicom.into.importer import import_source
from cad.folders.cohort import read_cohort, write_tables
from cad.mri.features.provenance import displaced_from
from cad.mri.features.table import extract
from cad.mri.imaging.displacement import Displacement
from cad.mri.imaging.displacement_search import (
    _jackknife,
    _joint_counts,
    _middle_of,
    _parabola_maximum,
    _peak,
    _row_starts,
    displacements,
    measure_displacement,
    phase_axis,
    with_displacements,
)
from cad.mri.imaging.drawn import fill, require_measurable, why_unmeasured
from cad.mri.imaging.frame_headers import TAGS, frames_of
from cad.mri.imaging.frames import read_header
from cad.mri.imaging.geometry import resample_image
from cad.mri.imaging.nifti import sidecar_path, write_sidecar, write_volume
from cad.mri.imaging.plausibility import implausible, study_statistics
from cad.mri.imaging.prepare import prepare_study
from cad.mri.imaging.study import Protocol, Roi, Study
from cad.mri.imaging.study_files import image_path, read_study, write_study
from cad.mri.imaging.vendor import CSA_TAGS, csa_header, phase_encoding_positive
from cad.mri.imaging.volume import Dynamic, Volume, triple

TILT = Rotation.from_euler("x", -14, degrees=True).as_matrix()


def scene() -> Volume:
    """Smooth structures of some mm on a tilted grid, finer than the image that is compared."""
    rng = np.random.default_rng(3)
    array = gaussian_filter(rng.normal(size=(12, 160, 160)), (0.8, 5, 5))
    array = 100 + 300 * (array - array.min()) / np.ptp(array)
    return Volume(array.astype(np.float32), (0.7, 0.7, 3.6), (-56.0, -50.0, -20.0), TILT)


def other_contrast(fixed: Volume, shift: tuple[float, float], step: float = 2.0) -> Volume:
    """The same object on coarser voxels, its content moved by a shift (mm along x and y)."""
    place = fixed.index_to_patient(np.array([4.0, 3.0, 0.0]))
    shape = (12, int(104 / step), int(100 / step))
    grid = Volume(np.zeros(shape, np.float32), (step, step, 3.6), triple(place), TILT)
    back = TILT @ np.array([shift[0], shift[1], 0.0])
    source = replace(grid, origin=triple(np.array(grid.origin) - back))
    seen = np.nan_to_num(resample_image(fixed, source).array, nan=200.0)
    noise = np.random.default_rng(5).normal(scale=15, size=seen.shape)
    return grid.with_array((np.sin(seen / 60) * 200 + 400 + noise).astype(np.float32))


def mirrored_left_to_right(image: Volume) -> Volume:
    return image.with_array(image.array[:, :, ::-1])


def gland_of(fixed: Volume) -> Volume:
    inside = np.zeros(fixed.shape, bool)
    inside[3:9, 50:110, 48:112] = True
    return fixed.with_array(inside)


@pytest.mark.parametrize("shift", [(0.0, 0.0), (3.3, -4.6), (-5.0, 0.7), (0.4, 7.0)])
def test_a_known_shift_is_measured(shift: tuple[float, float]) -> None:
    fixed = scene()
    result = measure_displacement(fixed, other_contrast(fixed, shift), gland_of(fixed), gland=True)
    np.testing.assert_allclose(result.shift_mm, shift, atol=0.3)
    assert np.abs(np.array(result.shift_mm) - shift).max() <= 3 * result.uncertainty_mm
    assert result.after >= result.before
    np.testing.assert_allclose(result.slices_mm, shift[result.axis], atol=1.0)


def test_the_shift_that_the_benchmark_adds_is_measured() -> None:
    """The table of docs/displacement.md: content moves along the image's axes, the grid stays."""
    fixed = scene()
    moving = other_contrast(fixed, (0.0, 0.0))
    start = measure_displacement(fixed, moving, gland_of(fixed), gland=True)
    moved = experiment.content_moved(moving, 3.0, -4.0)
    assert moved.same_grid(moving)
    result = measure_displacement(fixed, moved, gland_of(fixed), gland=True)
    np.testing.assert_allclose(
        np.array(result.shift_mm) - start.shift_mm, (3.0, -4.0), atol=experiment.ERROR_MM / 3
    )


def test_the_benchmark_counts_only_what_was_measured() -> None:
    values = [0.2, -1.5, 1.0, float("nan")]
    assert experiment.met(values, 1.0) == "2 of 3"
    assert experiment.largest(values) == "1.50"
    assert experiment.largest([float("nan")]) == "–"
    before = {"1": (0.5, False)}
    assert experiment.change(before, {"1": (0.7, False)}, "1") == pytest.approx(0.2)
    assert np.isnan(experiment.change(before, {"2": (0.7, False)}, "1"))


def test_where_images_share_nothing_the_error_says_so() -> None:
    fixed = scene()
    moving = other_contrast(fixed, (0.0, 0.0))
    noise = moving.with_array(
        np.random.default_rng(1).permuted(moving.array.ravel()).reshape(moving.shape)
    )
    sure = measure_displacement(fixed, moving, gland_of(fixed), gland=True)
    unsure = measure_displacement(fixed, noise, gland_of(fixed), gland=True)
    assert sure.uncertainty_mm < 0.5
    assert unsure.uncertainty_mm > 1.0
    assert unsure.after < 0.1 * sure.after


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_order_of_storage_changes_nothing(axis: int) -> None:
    fixed, shift = scene(), (2.6, -3.1)
    moving = other_contrast(fixed, shift)
    mask = gland_of(fixed)
    straight = measure_displacement(fixed, moving, mask, gland=True)
    turned = np.array(TILT)
    turned[:, axis] *= -1
    other = measure_displacement(fixed.turned(turned), moving.turned(turned), mask, gland=True)
    places = []
    for result in (straight, other):
        x, y = result.shift_mm
        places.append(np.asarray(result.moving.direction) @ [x, y, 0.0])
    # The box begins at a voxel's edge of its own: steps of 1 mm fall elsewhere.
    np.testing.assert_allclose(places[0], places[1], atol=0.15)


def test_mending_brings_every_voxel_back_and_changes_none() -> None:
    fixed, shift = scene(), (3.0, -4.0)
    moving = other_contrast(fixed, shift)
    exact = replace(
        measure_displacement(fixed, moving, gland_of(fixed), gland=True), shift_mm=shift
    )
    mended = exact.mend(moving)
    assert mended.array is moving.array
    still = other_contrast(fixed, (0.0, 0.0))
    # A voxel shows in its new place what T2 has there: the shift was along the grid's own axes.
    moved = np.array(moving.origin) - np.array(mended.origin)
    np.testing.assert_allclose(TILT.T @ moved, [3.0, -4.0, 0.0], atol=1e-9)
    again = measure_displacement(fixed, mended, gland_of(fixed), gland=True)
    assert again.size_mm < 0.4
    assert exact.size_mm == 5.0
    assert still.same_grid(moving)


def test_a_mirrored_and_a_turned_image_are_told_whatever_their_displacement() -> None:
    fixed = scene()
    moving = other_contrast(fixed, (4.0, 2.0))
    mask = gland_of(fixed)
    straight = measure_displacement(fixed, moving, mask, gland=True)
    assert straight.mirrored > 0.3
    assert straight.turned > 0.3
    middle = fixed.patient_to_index(mask.index_to_patient(np.array([79.5, 79.5, 5.5])))
    np.testing.assert_allclose(middle, [79.5, 79.5, 5.5])
    for array_axis, name in ((2, "mirrored"), (1, "turned"), (0, "turned")):
        # Stored mirrored about the middle of what is compared.
        centre = moving.patient_to_index(fixed.index_to_patient(np.array([79.5, 79.5, 5.5])))
        flipped = moving.with_array(np.flip(moving.array, array_axis))
        offset = np.zeros(3)
        axis = 2 - array_axis
        offset[axis] = 2 * centre[axis] - (moving.shape[array_axis] - 1)
        flipped = replace(flipped, origin=triple(moving.index_to_patient(offset)))
        result = measure_displacement(fixed, flipped, mask, gland=True)
        assert getattr(result, name) < -0.2, name


def test_a_mirrored_image_is_told_around_a_lateral_region() -> None:
    """A nearly symmetric man: the box around his lateral region lies beside his middle plane."""
    tissue = scene().array
    symmetric = 0.5 * (tissue + tissue[:, :, ::-1])
    man = scene().with_array((0.7 * symmetric + 0.3 * tissue).astype(np.float32))
    moving = other_contrast(man, (3.0, -2.0))
    inside = np.zeros(man.shape, bool)
    inside[4:8, 70:90, 100:112] = True
    region = man.with_array(inside)
    straight = measure_displacement(man, moving, region, gland=False)
    np.testing.assert_allclose(straight.shift_mm, (3.0, -2.0), atol=0.3)
    assert straight.mirrored > 0.1
    mirrored = mirrored_left_to_right(moving)
    assert measure_displacement(man, mirrored, region, gland=False).mirrored < -0.1


def test_the_peak_is_that_of_a_parabola() -> None:
    x = np.arange(5.0)
    assert _parabola_maximum(10 - (x - 1.7) ** 2, 2) == pytest.approx(1.7)
    assert _parabola_maximum(np.array([3.0, 2.0, 1.0]), 0) == 0.0  # at the border there is none
    assert _parabola_maximum(np.array([1.0, 1.0, 1.0]), 1) == 1.0
    surface = -((x[None, :] - 2.25) ** 2) - 2 * (x[:, None] - 1.8) ** 2
    np.testing.assert_allclose(_peak(surface, 10, -4), [10.25, -4.2])


def test_joint_counts_by_hand() -> None:
    reference = np.array([[[0, 1], [1, 16]]], np.int32)
    levels = np.array([[[2, 3], [3, 5]]], np.int32)
    counts = _joint_counts(_row_starts(reference), levels)
    assert counts.sum() == 3  # where T2 was not measured nothing is counted
    assert counts[0, 0, 2] == 1
    assert counts[0, 1, 3] == 2


def test_slices_that_agree_leave_the_floor_of_the_error_only() -> None:
    fixed = scene()
    moving = other_contrast(fixed, (1.0, 1.0))
    result = measure_displacement(fixed, moving, gland_of(fixed), gland=True)
    one = np.zeros((5, 5, 1, 16, 16))
    for j in range(5):
        for i in range(5):
            far = abs(i - 2) + abs(j - 2)
            one[j, i, 0] = np.eye(16) * (10 - far) + far
    alike = np.repeat(one, 4, axis=2)
    steps = np.arange(-4, 6, 2)
    error = _jackknife(alike, alike, steps, 0, 0, np.zeros(2))
    np.testing.assert_allclose(error, 0.3)
    # One slice alone holds the peak: without it the first place of the lattice is as good, -8 mm
    # where that is another peak, -2 mm where it is the near one's border.
    alone = np.ones_like(alike)
    alone[2, 2, 0] = np.eye(16) * 16
    for lattice, gone in ((np.arange(-8, 9, 4), 8.0), (steps, 2.0)):
        jumped = _jackknife(alone, alone, lattice, 0, 0, np.zeros(2))
        np.testing.assert_allclose(jumped, np.sqrt(0.75 * gone**2 + 0.09))
    assert min(result.error_mm) >= 0.3


def study(shift: tuple[float, float], **others: object) -> Study:
    fixed = scene()
    adc = other_contrast(fixed, shift)
    label = np.zeros(fixed.shape, np.uint8)
    label[5:7, 70:85, 70:85] = 1
    made = Study(
        "sub-1",
        "sub-1",
        t2w=fixed,
        adc=adc,
        roi_map=fixed.with_array(label),
        rois=[Roi("1", 1)],
        gland=gland_of(fixed),
        diffusion=[(50.0, adc), (800.0, adc)],
    )
    return replace(made, **others)


def test_a_study_is_mended_from_the_stated_size_on() -> None:
    near, far = study((1.0, 0.5)), study((4.0, -3.0))
    left, _ = prepare_study(near, ImageSettings(mend_from_mm=2.0))
    assert left.adc is near.adc
    assert left.mended_mm == {}
    small, _ = prepare_study(near, ImageSettings())
    assert 0.7 < small.mended_mm["adc"] < 1.6
    # Less than a voxel, but beyond its uncertainty, and other tissue is measured: it is said.
    assert small.notes[-1].endswith("moved back")
    still, _ = prepare_study(study((0.0, 0.0)), ImageSettings())
    assert still.mended_mm["adc"] < 0.5
    assert still.notes == []  # a shift within its uncertainty is none
    mended, _ = prepare_study(far, ImageSettings())
    assert mended.adc is not None
    assert far.adc is not None
    gap = TILT.T @ (np.array(mended.adc.origin) - np.array(far.adc.origin))
    np.testing.assert_allclose(gap, [-4.0, 3.0, 0.0], atol=0.4)
    # The images that the map was fitted from move with it.
    assert all(image.same_grid(mended.adc) for _, image in mended.diffusion)
    assert mended.mended_mm["adc"] == pytest.approx(5.0, abs=0.4)
    assert mended.notes[-1].endswith("moved back")
    withdrawn, _ = prepare_study(far, ImageSettings(withdraw_from_mm=5.0))
    assert "no decision is stated" in withdrawn.notes[-1]
    without_adc, _ = prepare_study(far, ImageSettings(withdraw_from_mm=5.0), ["t2w"])
    assert without_adc.notes[-1].endswith("moved back")  # it takes no decision away
    said, _ = prepare_study(far, ImageSettings(displacement="said"))
    assert said.adc is far.adc
    assert "mm (±" in said.notes[-1]
    assert "moved back" not in said.notes[-1]
    silent, _ = prepare_study(far, ImageSettings(displacement="none"))
    assert silent.notes == []
    assert silent.displacements == ()


@pytest.mark.parametrize("shift", [(0.0, 0.0), (4.0, -3.0)])
def test_what_is_only_said_changes_no_feature(shift: tuple[float, float]) -> None:
    """Said: the numbers of images as they lie, and the millimetres; mended: other numbers."""
    tables = {}
    for how in ("none", "said", "mended"):
        content = {
            "name": how,
            "images": {"displacement": how},
            "features": {"modalities": ["t2w", "adc"], "families": ["intensity"]},
            "learner": {"name": "ProbabilisticSVC"},
        }
        settings = parse_settings(PipelineSettings, content, "the test's pipeline")
        prepared, _ = prepare_study(study(shift), settings.images)
        tables[how] = extract(prepared, settings)
    features = [name for name in tables["none"].rows if name.startswith(("t2w_", "adc_"))]
    assert len(features) > 20
    as_they_lie = tables["none"].rows[features]
    pd.testing.assert_frame_equal(tables["said"].rows[features], as_they_lie, check_exact=True)
    (stated,) = tables["said"].provenance["provenance_adc_displaced"]
    assert stated == pytest.approx(np.hypot(*shift), abs=0.4)
    assert tables["mended"].provenance["provenance_adc_displaced"].tolist() == [stated]
    assert "provenance_adc_displaced" not in tables["none"].provenance
    # Also a tenth of a millimetre is mended: no result hangs on a limit.
    assert not tables["mended"].rows[features].equals(as_they_lie)


@pytest.mark.parametrize("with_series", [True, False])
def test_flip_angle_images_move_with_the_series_only_where_they_lie_with_it(
    with_series: bool,
) -> None:
    """Both lie 5 mm beside T2, or the series alone, as of a man who moved in between."""
    series = other_contrast(scene(), (4.0, -3.0))
    flips = other_contrast(scene(), (4.0, -3.0) if with_series else (0.0, 0.0))
    frames = np.repeat(series.array[None], 6, axis=0)
    man = study(
        (0.0, 0.0),
        dce=Dynamic(frames, series, np.arange(6) * 4.0),
        vfa=[(2.0, flips), (15.0, flips)],
    )
    prepared, _ = prepare_study(man, ImageSettings())
    assert prepared.dce is not None
    moved = TILT.T @ (np.array(prepared.dce.grid.origin) - np.array(series.origin))
    np.testing.assert_allclose(moved, [-4.0, 3.0, 0.0], atol=0.4)
    notes = [note for note in prepared.notes if "flip-angle images were not moved" in note]
    for angle, image in prepared.vfa:
        assert angle in (2.0, 15.0)
        if with_series:
            assert image.same_grid(prepared.dce.grid)
        else:
            assert image is flips
    assert len(notes) == (0 if with_series else 1)


def test_a_displacement_is_measured_once() -> None:
    measured = with_displacements(study((4.0, 0.0)))
    assert displacements(measured)[0] is measured.displacements[0]
    other = replace(measured, adc=other_contrast(scene(), (0.0, 0.0)))
    assert displacements(other)[0].size_mm < 0.5  # of another image it is measured anew


def test_a_coarse_adc_map_is_measured_and_never_refused_for_its_displacement() -> None:
    """Voxels of 3.2 mm: some 3,000 in the box around the gland, as a small gland has them."""
    coarse = study((0.0, 0.0), adc=other_contrast(scene(), (4.0, -3.0), 3.2))
    (result,) = displacements(coarse)
    assert 2000 < result.voxels < 5000
    np.testing.assert_allclose(result.shift_mm, (4.0, -3.0), atol=0.6)
    number = re.search(r"measured on (\d+) voxels, with which no turned", result.sentence)
    assert number is not None
    assert int(number[1]) == round(result.voxels)
    assert result.sentence.endswith("(5,000 are needed)")
    mended, _ = prepare_study(coarse, ImageSettings())
    assert mended.mended_mm["adc"] == pytest.approx(5.0, abs=0.6)
    # Enough voxels recognise an upside-down map; few do not, and then it is not refused.
    refused = {}
    for step in (2.0, 3.2):
        adc = other_contrast(scene(), (0.0, 0.0), step)
        turned = study((0.0, 0.0), adc=adc.with_array(adc.array[:, ::-1]))
        problems = [error.problem for error in implausible(turned)]
        refused[step] = [text for text in problems if "around the gland" in text]
    assert refused[2.0]
    assert refused[3.2] == []


@pytest.mark.parametrize("noise", [False, True])
def test_a_displacement_that_cannot_be_measured_is_said_with_the_number_of_voxels(
    noise: bool,
) -> None:
    """Voxels of 4.2 mm are too few, and with 3.2 mm noise has no sharp peak."""
    adc = other_contrast(scene(), (4.0, -3.0), 3.2 if noise else 4.2)
    words = (
        r"how far ADC lies beside T2 was not measured: only 1,\d{3} voxels around the prostate are "
        r"covered by both images, 2,000 are needed"
    )
    if noise:
        adc = adc.with_array(np.random.default_rng(1).normal(1000, 200, adc.shape))
        words = (
            r"how far ADC lies beside T2 was not measured: its standard error is \d+\.\d mm on "
            r"3,\d{3} voxels; with fewer than 5,000 voxels it may be 1\.5 mm"
        )
    man = with_displacements(study((0.0, 0.0), adc=adc))
    assert man.displacements == ()
    prepared, _ = prepare_study(man, ImageSettings())
    (note,) = prepared.notes
    assert re.fullmatch(words, note)
    assert prepared.adc is man.adc
    content = {
        "name": "coarse",
        "features": {"modalities": ["t2w", "adc"], "families": ["intensity"]},
        "learner": {"name": "ProbabilisticSVC"},
    }
    settings = parse_settings(PipelineSettings, content, "the test's pipeline")
    provenance = extract(prepared, settings).provenance
    assert provenance["provenance_adc_unmeasured"].tolist() == [note]
    assert "provenance_adc_displaced" not in provenance
    fine, _ = prepare_study(study((4.0, -3.0)), ImageSettings())
    assert "provenance_adc_unmeasured" not in extract(fine, settings).provenance


def test_check_says_that_a_displacement_was_not_measured(tmp_path: Path) -> None:
    man = study((0.0, 0.0), adc=other_contrast(scene(), (4.0, -3.0), 4.2), diffusion=[])
    root = tmp_path / "cohort"
    write_study(root / "sub-1", man)
    participants = pd.DataFrame({"participant_id": ["sub-1"]})
    readers = pd.DataFrame({"reader_id": ["r1"], "expert": ["1"]})
    region = {"participant_id": "sub-1", "roi_id": "1", "label": 1, "zone": "PZ"}
    rois = pd.DataFrame([{**region, "histology": "n/a", "isup": "n/a"}])
    columns = ["participant_id", "roi_id", "reader_id", "scale", "score"]
    scores = pd.DataFrame([["sub-1", "1", "r1", "likert5", 3]], columns=columns)
    write_tables(root, participants=participants, readers=readers, rois=rois, scores=scores)
    done = CliRunner().invoke(app, ["check", str(root)])
    assert "note: how far ADC lies beside T2 was not measured: only 1," in done.output
    assert "2,000 are needed: sub-1" in done.output


def test_a_region_that_is_lost_by_mending_says_so() -> None:
    """A hole of the ADC map lies beside the region, and on it once the map is moved back."""
    man = study((4.0, -3.0))
    assert man.adc is not None
    prepared, _ = prepare_study(man, ImageSettings())
    moved = prepared.mended_mm["adc"]
    none = man.adc.with_array(np.zeros_like(man.adc.array))
    mask = man.gland
    assert mask is not None
    drawn = fill(mask, none.with_array(np.full(none.shape, np.nan)))
    reason = why_unmeasured(prepared, "adc", drawn)
    assert reason == f"{drawn.too_little}, after the image was moved back by {moved:.1f} mm"
    assert f"{moved:.1f}" == "5.0"
    assert why_unmeasured(man, "adc", drawn) == drawn.too_little
    still, _ = prepare_study(study((0.0, 0.0)), ImageSettings())
    assert 0.0 < still.mended_mm["adc"] < 0.5
    assert why_unmeasured(still, "adc", drawn) == drawn.too_little
    lone = replace(prepared, roi_map=mask, rois=[Roi("1", 1, "PZ")])
    with pytest.raises(CadError, match=r"in any image: adc: .*moved back by 5\.0 mm"):
        require_measurable(lone, lone.rois[0], {"adc": none.with_array(none.array + np.nan)})


def test_without_t2_or_with_an_empty_mask_nothing_is_measured() -> None:
    assert displacements(study((4.0, 0.0), t2w=None)) == []
    bare = study((0.0, 0.0))
    assert bare.roi_map is not None
    empty = replace(bare, gland=bare.roi_map.with_array(np.zeros(bare.roi_map.shape, bool)))
    assert displacements(empty) == []


def test_while_nothing_is_drawn_the_middle_of_t2_is_compared() -> None:
    undrawn = study((4.0, -3.0), gland=None, roi_map=None)
    (result,) = displacements(undrawn)
    assert not result.drawn
    np.testing.assert_allclose(result.shift_mm, (4.0, -3.0), atol=0.4)
    assert result.sentence.endswith("middle of T2, as no gland or region is drawn yet")
    (with_gland,) = displacements(study((4.0, -3.0)))
    assert with_gland.drawn
    assert "drawn" not in with_gland.sentence
    # Half of the slices, and 50 mm of 112 mm in both directions.
    middle = _middle_of(scene()).array
    assert middle.any(axis=(1, 2)).sum() == 6
    assert abs(middle.any(axis=(0, 1)).sum() * 0.7 - 50.0) < 1.5
    assert abs(np.argwhere(middle).mean(axis=0) - np.array([5.5, 79.5, 79.5])).max() <= 0.5


def test_a_man_whose_displacement_explains_his_place_is_not_refused_before_he_is_drawn(
    shared_data: Path, tmp_path: Path
) -> None:
    """ProstateX-0006, whose ADC lies 5 mm beside T2, as an archive sends him: without regions."""
    source = tmp_path / "in"
    source.mkdir()
    shutil.copy(shared_data / "prostatex-men" / "ProstateX-0006.zip", source)
    summary = import_source(source, tmp_path / "out", find("configs/import", "prostatex", ".yaml"))
    assert summary.failures == []
    assert summary.awaiting == ["sub-ProstateX0006"]
    (note,) = [note for note in summary.notes if "beside T2" in note]
    assert re.search(r"ADC lies [56]\.\d mm .* towards right, along its phase-enc", note)
    assert note.endswith("as no gland or region is drawn yet")


def test_the_sentence_says_how_far_and_which_way() -> None:
    result = replace(made(shift=(-4.0, 0.2), direction=np.eye(3)), phase_known=True)
    assert "ADC lies 4.0 mm (± 1.0) beside T2, towards right" in result.sentence
    assert "along its phase-encoding direction" in result.sentence
    assert "-5.0 to -3.0 mm along x" in result.sentence
    across = replace(result, shift_mm=(0.1, 4.0))
    assert "towards back" in across.sentence
    assert "across its phase-encoding direction" in across.sentence


def made(shift: tuple[float, float], direction: np.ndarray) -> Displacement:
    image = Volume(np.zeros((2, 3, 4), np.float32), (2.0, 2.0, 3.0), (0.0, 0.0, 0.0), direction)
    return Displacement(
        name="adc",
        shift_mm=shift,
        error_mm=(0.5, 0.3),
        slices_mm=(-5.0, -3.0),
        axis=0,
        phase_known=False,
        before=0.1,
        after=0.2,
        mirrored=1.0,
        turned=1.0,
        fixed=image,
        moving=image,
    )


def test_a_decision_is_withdrawn_where_the_range_reaches_the_limit() -> None:
    row = {"provenance_adc_displaced": 9.0, "provenance_adc_displaced_most": 10.1}
    assert displaced_from(row, 10.0) == "ADC may lie 10.1 mm beside T2"
    assert displaced_from(row, 10.2) == ""
    assert displaced_from({"provenance_adc_displaced_most": np.nan}, 10.0) == ""
    assert displaced_from({"provenance_adc_displaced_most": 10.0}, 10.0) != ""


def test_phase_encoding_is_read_from_a_sidecar(tmp_path: Path) -> None:
    man = study((0.0, 0.0))
    assert man.adc is not None
    path = image_path(tmp_path, "sub-1", "adc")
    write_volume(path, man.adc)
    for stated, axis, sign in (("i", 0, 1), ("j-", 1, -1)):
        write_sidecar(path, {"PhaseEncodingDirection": stated, "Units": "um2/s"})
        protocol = read_study(tmp_path, "sub-1", "sub-1", []).protocols["adc"]
        np.testing.assert_allclose(protocol.phase_encoding, sign * TILT[:, axis], atol=1e-6)
        assert phase_axis(protocol.phase_encoding, man.adc) == axis
    write_sidecar(path, {"PhaseEncodingDirection": "up"})
    with pytest.raises(CadError, match="PhaseEncodingDirection 'up'"):
        read_study(tmp_path, "sub-1", "sub-1", [])
    assert sidecar_path(path).is_file()
    assert phase_axis(None, man.adc) is None
    assert phase_axis(triple(TILT[:, 2]), man.adc) is None


def test_the_phase_axis_is_the_one_of_the_displacement() -> None:
    fixed = scene()
    known = study((4.0, 0.0), protocols={"adc": Protocol(phase_encoding=triple(TILT[:, 1]))})
    assert displacements(known)[0].axis == 1
    assert displacements(known)[0].phase_known
    assert displacements(study((4.0, 0.0)))[0].axis == 0
    assert fixed.shape == (12, 160, 160)


def test_siemens_says_the_sense_in_its_private_header(shared_data: Path) -> None:
    """dcm2niix states j- for these files, whose rows it turns round: here that is j."""
    path = shared_data / "zoo/siemens-mosaic/ep2d_Asc_2" / "IM-0001-0001.dcm"
    assert frames_of(read_header(path, TAGS), path)[0].phase_encoding == "COL"
    header = read_header(path, CSA_TAGS)
    assert phase_encoding_positive(header) is True
    name = b"PhaseEncodingDirectionPositive"
    content = next(e.value for e in header if isinstance(e.value, bytes) and name in e.value)
    assert csa_header(content)["PhaseEncodingDirectionPositive"] == ["1"]


def test_real_men_are_displaced_as_their_scanner_does(real_import: tuple[Path, object]) -> None:
    """ProstateX-0218: phase encoded along columns, ADC some mm behind T2; none is refused."""
    by_name = {}
    for ref in read_cohort(real_import[0]).studies():
        rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]
        man = read_study(ref.folder, ref.study_id, ref.participant_id, rois)
        by_name[ref.participant_id] = man
        assert implausible(man) == []
    adc, dce = displacements(by_name["sub-ProstateX0218"])
    assert (adc.axis, adc.phase_known) == (1, True)
    assert 3.0 < adc.shift_mm[1] < 6.0
    assert abs(adc.shift_mm[0]) < 1.5
    assert 5.0 < dce.size_mm < 12.0
    (other,) = displacements(by_name["sub-ProstateX0000"])
    assert (other.axis, other.phase_known) == (0, True)
    assert other.size_mm < 2.5


@pytest.mark.parametrize(("image", "degrees"), [("adc", 225), ("adc", 0), ("dce", 135)])
def test_a_real_man_with_a_displaced_image_is_not_refused(
    real_import: tuple[Path, object], image: str, degrees: float
) -> None:
    """ProstateX-0218, whose ADC map and dynamic series lie beside T2, and 5 mm further on."""
    for ref in read_cohort(real_import[0]).studies():
        if ref.participant_id == "sub-ProstateX0218":
            rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]
            man = read_study(ref.folder, ref.study_id, ref.participant_id, rois)
            angle = np.deg2rad(degrees)
            mm = (5 * np.cos(angle), 5 * np.sin(angle), 0.0)
            displaced = faults.of(image, partial(faults.shifted, mm))(man, man)
            assert implausible(displaced) == []


def require_mirrored_adc_refused(man: Study) -> None:
    """Refuse the man with his ADC map left for right, and let him pass as he is."""
    assert man.adc is not None
    as_he_is = replace(man, diffusion=[])
    assert implausible(as_he_is) == []
    (straight, *_) = displacements(as_he_is)
    mirrored = replace(as_he_is, adc=mirrored_left_to_right(man.adc))
    problems = [error.problem for error in implausible(mirrored)]
    reason = "log of the information that ADC and T2 share, over that with ADC mirrored, is -"
    assert any(text.startswith(reason) for text in problems), man.participant_id
    (result, *_) = displacements(mirrored)
    # The mirrored map, mirrored again, is the man's own, and fits at least as well.
    assert result.mirrored < np.log(result.after / straight.after) + 0.03


def test_while_nothing_is_drawn_the_whole_image_is_compared_with_the_mirrored_one() -> None:
    names = {}
    for drawn in (True, False):
        man = study((0.0, 0.0))
        if not drawn:
            man = replace(man, gland=None, roi_map=None)
        names[drawn] = {name for name, _, _ in study_statistics(man) if "mirrored" in name}
    assert names[True] == {"adc_mirrored"}
    assert names[False] == {"adc_mirrored_whole"}


def test_a_real_man_with_a_mirrored_adc_map_is_refused(real_import: tuple[Path, object]) -> None:
    """ProstateX-0000, whose probability fell from .36 to .02, and ProstateX-0218."""
    for ref in read_cohort(real_import[0]).studies():
        rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]
        require_mirrored_adc_refused(read_study(ref.folder, ref.study_id, ref.participant_id, rois))


@pytest.mark.reference
def test_five_real_men_with_a_mirrored_adc_map_are_refused(
    shared_data: Path, tmp_path: Path
) -> None:
    rules = find("configs/import", "prostatex", ".yaml")
    assert import_source(shared_data / "prostatex-men", tmp_path, rules).failures == []
    refs = read_cohort(tmp_path).studies()
    assert len(refs) == 5
    for ref in refs:
        rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]
        require_mirrored_adc_refused(read_study(ref.folder, ref.study_id, ref.participant_id, rois))
