"""A Ktrans map made elsewhere is an image of the study: read, in its unit, and measured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from dicom_files import write_series
from import_cases import RULES, SHAPE, only_failure, regions, write_mha, write_patient, write_rois
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.base.settings import ImageSettings, PipelineSettings, parse_settings
from cad.base.share import find
from cad.base.terms.modality import KTRANS
from cad.cli import app
from cad.dicom.into.importer import import_source
from cad.dicom.into.sources import by_series, find_studies
from cad.folders.cohort import read_cohort
from cad.mri.features.table import extract
from cad.mri.imaging.displacement import Unmeasured
from cad.mri.imaging.displacement_search import displacements, map_on_series, with_displacements
from cad.mri.imaging.nifti import read_sidecar, read_volume, sidecar_path
from cad.mri.imaging.pixels import read_stack
from cad.mri.imaging.plausibility import RANGES, implausible, study_statistics
from cad.mri.imaging.prepare import prepare_study
from cad.mri.imaging.registration import moved_together
from cad.mri.imaging.stacks import stacks_of
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import image_path, read_study, write_study
from cad.mri.imaging.units import in_unit
from cad.mri.imaging.volume import Dynamic, Volume, triple
from cad.run.stages.study import read_study_of

SETTINGS = {
    "name": "ktrans",
    "images": {"t2_reference": "regions"},
    "features": {
        "modalities": ["t2w", "adc", "ktrans"],
        "families": ["intensity", "gradient", "haralick"],
    },
}
SERIES_RULE = "ktrans: [{description: ^ktrans, scale: 0.001}]\n"
FILE_RULE = "ktrans_file: ['maps/{patient}-Ktrans.mha']\n"


def ktrans_values() -> np.ndarray:
    return np.random.default_rng(7).integers(20, 400, SHAPE).astype(np.uint16)


@pytest.mark.parametrize(
    ("unit", "factor"),
    [("1/min", 1.0), ("min-1", 1.0), ("10^-3/min", 1e-3), ("1/s", 60.0), ("", 1.0)],
)
def test_units_become_per_minute(unit: str, factor: float) -> None:
    image = replace(regions(1), unit=unit)
    made, source = in_unit(image, KTRANS)
    np.testing.assert_allclose(made.array, image.array * factor)
    assert made.unit == "1/min"
    assert source.startswith("stated: ") == bool(unit)


def test_another_quantity_is_refused() -> None:
    with pytest.raises(CadError, match="no unit of this quantity; expected 1/min"):
        in_unit(replace(regions(1), unit="mm2/s"), KTRANS)


def test_a_series_and_a_file_give_the_same_map(tmp_path: Path) -> None:
    values = ktrans_values()
    for name, rule in (("series", SERIES_RULE), ("file", FILE_RULE + "ktrans_scale: 0.001\n")):
        source = tmp_path / name
        study = write_patient(source / "P-001", dce=False)
        write_rois(study, 1)
        if name == "series":
            write_series(study / "kt", values, number=30, description="ktrans")
        else:
            write_mha(source / "maps/P-001-Ktrans.mha", regions().with_array(values))
        rules = tmp_path / f"{name}.yaml"
        rules.write_text(RULES + rule)
        done = import_source(source, tmp_path / f"{name}-out", rules)
        assert not done.failures, done.failures
        path = image_path(tmp_path / f"{name}-out/sub-P001", "sub-P001", "ktrans")
        np.testing.assert_allclose(read_volume(path).array, values * 1e-3, rtol=1e-6)
        assert read_sidecar(path)["Units"] == "1/min"
    # A second import finds it there and writes nothing anew.
    again = import_source(tmp_path / "file", tmp_path / "file-out", tmp_path / "file.yaml")
    assert again.unchanged == ["sub-P001"]


def test_a_map_in_another_unit_is_refused_at_the_door(tmp_path: Path) -> None:
    source = tmp_path / "in"
    write_rois(write_patient(source / "P-001", dce=False), 1)
    write_mha(source / "maps/P-001-Ktrans.mha", regions().with_array(ktrans_values()))
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES + FILE_RULE)
    error = only_failure(import_source(source, tmp_path / "out", rules))
    assert "median of the Ktrans map in the regions" in error.problem
    assert "ktrans_map_median" in error.hint


def test_it_moves_with_the_series_that_it_was_made_of() -> None:
    grid = regions(1)
    frames = np.zeros((3, *SHAPE), np.float32)
    study = Study("sub-1", "sub-1", dce=Dynamic(frames, grid, np.arange(3.0)), ktrans=grid)
    moved_together(study, "dce", lambda image: replace(image, origin=(1.0, 2.0, 3.0)))
    assert study.ktrans is not None
    assert study.ktrans.origin == (1.0, 2.0, 3.0)
    # One on a grid of its own was made of something else: it stays.
    other = replace(grid, spacing=(2.0, 2.0, 3.0))
    study = Study("sub-1", "sub-1", dce=Dynamic(frames, grid, np.arange(3.0)), ktrans=other)
    moved_together(study, "dce", lambda image: replace(image, origin=(1.0, 2.0, 3.0)))
    assert study.ktrans is other


def test_it_is_written_and_read_back(tmp_path: Path) -> None:
    image = regions(1)
    values = (ktrans_values() * 1e-3).astype(np.float32)
    study = Study(
        "sub-1",
        "sub-1",
        t2w=image.with_array(ktrans_values()),
        ktrans=image.with_array(values),
        roi_map=image,
        rois=[Roi("1", 1)],
    )
    write_study(tmp_path, study)
    back = read_study(tmp_path, "sub-1", "sub-1", study.rois)
    assert back.ktrans is not None
    np.testing.assert_array_equal(back.ktrans.array, values)
    assert "ktrans" in back.present
    assert "ktrans" not in back.missing
    assert not [e for e in implausible(back) if "Ktrans" in e.problem]
    assert sidecar_path(image_path(tmp_path, "sub-1", "ktrans")).is_file()


def test_radbouds_own_maps_of_two_men(
    tmp_path: Path, shared_data: Path, counted: Callable[[int, str], None]
) -> None:
    """From zip archives and maps beside them; each region's median is SimpleITK's of its voxels."""
    men = shared_data / "prostatex-men"
    source = tmp_path / "in"
    (source / "ktrans").mkdir(parents=True)
    names = ("ProstateX-0006", "ProstateX-0008")
    shutil.copy(men / "ProstateX-Findings-Train.csv", source)
    for name in names:
        shutil.copy(men / f"{name}.zip", source)
        for suffix in ("mhd", "zraw"):
            shutil.copy(men / f"ktrans/{name}-Ktrans.{suffix}", source / "ktrans")
    out = tmp_path / "out"
    command = ["import", str(source), str(out), "--rules", "prostatex", "--json"]
    made = CliRunner().invoke(app, command)
    assert made.exit_code == 0, made.output
    assert len(json.loads(made.stdout)["added"]) == len(names)
    settings = parse_settings(PipelineSettings, SETTINGS)
    regions_seen = 0
    for name, study in zip(names, map(read_study_of, read_cohort(out).studies()), strict=True):
        rows = extract(study, settings).rows
        theirs = sitk.ReadImage(str(men / f"ktrans/{name}-Ktrans.mhd"))
        assert study.roi_map is not None
        labels = study.roi_map.to_sitk()
        values = sitk.GetArrayFromImage(theirs)
        on_map = sitk.GetArrayFromImage(
            sitk.Resample(labels, theirs, sitk.Transform(), sitk.sitkNearestNeighbor)
        )
        for roi in study.rois:
            inside = values[on_map == roi.label]
            row = rows[rows["roi_id"] == roi.roi_id].iloc[0]
            assert inside.min() <= row["ktrans_intensity_median"] <= inside.max()
            # Theirs takes or leaves a voxel by its centre, ours by its share.
            assert row["ktrans_intensity_median"] == pytest.approx(np.median(inside), rel=0.25)
            assert row[["ktrans_sobel_mean", "ktrans_haralick_contrast"]].notna().all()
            regions_seen += 1
    assert regions_seen >= len(names)
    counted(regions_seen, "medians of Radboud's Ktrans maps beside SimpleITK's")


@pytest.fixture(scope="module")
def real_men(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Study]:
    """Five men of PROSTATEx with their ADC and Radboud's Ktrans maps, as read."""
    out = tmp_path_factory.mktemp("men") / "cohort"
    rules = find("configs/import", "prostatex", ".yaml")
    assert import_source(shared_data / "prostatex-men", out, rules).failures == []
    return [read_study_of(ref) for ref in read_cohort(out).studies()]


def refused_for(study: Study, ktrans: Volume) -> set[str]:
    """The statistics of a Ktrans map that lie outside their ranges, without its median."""
    statistics = set()
    for name, value, _ in study_statistics(replace(study, ktrans=ktrans)):
        low, high = RANGES[name]
        if name.startswith("ktrans_") and name != "ktrans_map_median" and not low <= value <= high:
            statistics.add(name)
    return statistics


def centre(image: Volume) -> np.ndarray:
    return image.index_to_patient((np.array(image.shape[::-1]) - 1.0) / 2.0)


@pytest.mark.reference
def test_a_map_that_is_not_the_mans_is_refused_where_the_images_show_it(
    real_men: list[Study],
) -> None:
    """Radboud's maps of five men against T2: the counts that docs/import.md states."""
    kinds = ("own", "shuffled", "upside down", "head for feet", "mirrored", "another man's")
    counts = dict.fromkeys(kinds, 0)
    random = np.random.default_rng(0)
    for number, man in enumerate(real_men):
        own = man.ktrans
        assert own is not None
        shuffled = random.permutation(own.array.ravel()).reshape(own.shape)
        counts["own"] += bool(refused_for(man, own))
        counts["shuffled"] += bool(refused_for(man, own.with_array(shuffled)))
        counts["upside down"] += bool(refused_for(man, own.with_array(own.array[:, ::-1])))
        counts["head for feet"] += bool(refused_for(man, own.with_array(own.array[::-1])))
        counts["mirrored"] += bool(refused_for(man, own.with_array(own.array[:, :, ::-1])))
        for other_number, other in enumerate(real_men):
            if other_number != number and other.ktrans is not None:
                offset = centre(own) - centre(other.ktrans)
                placed = replace(other.ktrans, origin=triple(other.ktrans.origin + offset))
                counts["another man's"] += bool(refused_for(man, placed))
    assert counts == {
        "own": 0,
        "shuffled": 5,
        "upside down": 4,
        "head for feet": 4,
        "mirrored": 5,
        "another man's": 17,
    }


@pytest.mark.reference
def test_the_right_map_of_a_man_with_a_small_gland_is_not_refused(real_men: list[Study]) -> None:
    """ProstateX-0002 with an ellipsoid of 8 mL in place of his gland: 8,500 voxels are compared."""
    (man,) = [man for man in real_men if man.participant_id == "sub-ProstateX0002"]
    assert man.t2w is not None
    assert man.ktrans is not None
    z, y, x = np.indices(man.t2w.shape, dtype=float)
    across = (x - man.t2w.shape[2] / 2) * man.t2w.spacing[0] / 18.2
    back = (y - man.t2w.shape[1] / 2) * man.t2w.spacing[1] / 12.6
    up = (z - 8.5) / 2.8
    gland = man.t2w.with_array(across**2 + back**2 + up**2 <= 1)
    assert 7.0 < gland.millilitres < 9.0
    small = replace(man, gland=gland)
    assert refused_for(small, man.ktrans) == set()
    upside_down = man.ktrans.with_array(man.ktrans.array[:, ::-1])
    assert refused_for(small, upside_down) != set()


@pytest.fixture(scope="module")
def men_with_series(
    real_men: list[Study], shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[Study]:
    """The five men with a series of constant frames: the scan before the contrast agent.

    The phases are not published. This scan has their grid, and Radboud's maps have it, too, but
    for half a voxel: their origin is the corner of the first voxel and not its middle.
    """
    scratch = tmp_path_factory.mktemp("unpacked")
    men = {man.participant_id: man for man in real_men}
    made = []
    problems: list[CadError] = []
    for study in find_studies(shared_data / "prostatex-men", scratch, problems, []):
        man = men[f"sub-{study.patient_id.replace('-', '')}"]
        (frames,) = [f for f in by_series(study.slices) if "PD ref" in f[0].description]
        image = read_stack(stacks_of(frames)[0])
        assert man.ktrans is not None
        assert image.shape == man.ktrans.shape
        np.testing.assert_allclose(image.spacing, man.ktrans.spacing, rtol=1e-4)
        np.testing.assert_allclose(image.direction, man.ktrans.direction, atol=1e-4)
        corner = image.patient_to_index(np.array([man.ktrans.origin]))[0]
        np.testing.assert_allclose(corner, [-0.5, -0.5, -0.5], atol=0.01)  # docs/maps.md
        series = Dynamic(np.repeat(image.array[None], 6, axis=0), image, np.arange(6) * 4.0)
        made.append(replace(man, dce=series, ktrans=image.with_array(man.ktrans.array)))
    assert problems == []
    assert len(made) == 5
    return made


@pytest.mark.reference
def test_a_map_on_the_grid_of_the_series_is_refused_where_the_images_show_it(
    men_with_series: list[Study],
) -> None:
    """The counts that docs/import.md states."""
    kinds = ("own", "shuffled", "upside down", "head for feet", "mirrored", "another man's")
    counts = dict.fromkeys(kinds, 0)
    random = np.random.default_rng(0)
    for man in men_with_series:
        own = man.ktrans
        assert own is not None
        shuffled = random.permutation(own.array.ravel()).reshape(own.shape)
        counts["own"] += bool(refused_for(man, own))
        counts["shuffled"] += bool(refused_for(man, own.with_array(shuffled)))
        counts["upside down"] += bool(refused_for(man, own.with_array(own.array[:, ::-1])))
        counts["head for feet"] += bool(refused_for(man, own.with_array(own.array[::-1])))
        counts["mirrored"] += bool(refused_for(man, own.with_array(own.array[:, :, ::-1])))
        for other in men_with_series:
            if other is not man and other.ktrans is not None:
                theirs = own.with_array(other.ktrans.array)
                counts["another man's"] += bool(refused_for(man, theirs))
    assert counts == {
        "own": 0,
        "shuffled": 5,
        "upside down": 4,
        "head for feet": 3,
        "mirrored": 5,
        "another man's": 17,
    }


@pytest.mark.reference
def test_a_map_on_the_grid_of_the_series_moves_with_the_series_and_is_not_moved_twice(
    men_with_series: list[Study],
) -> None:
    man = with_displacements(men_with_series[0])
    assert man.ktrans is not None
    assert man.dce is not None
    assert map_on_series(man) is man.map_on_series
    assert [shift.name for shift in displacements(man)] == ["adc", "dce"]
    prepared, _ = prepare_study(man, ImageSettings())
    assert prepared.ktrans is not None
    assert prepared.dce is not None
    assert prepared.ktrans.same_grid(prepared.dce.grid)
    assert "ktrans" not in prepared.mended_mm


@pytest.mark.reference
def test_a_map_beside_t2_is_measured_and_moved_back(real_men: list[Study]) -> None:
    for man in real_men:
        assert man.ktrans is not None
        before = {shift.name: shift for shift in displacements(man)}["ktrans"]
        along = np.array(man.ktrans.direction) @ np.array([3.0, -4.0, 0.0])
        moved = replace(man.ktrans, origin=triple(np.array(man.ktrans.origin) + along))
        displaced = replace(man, ktrans=moved)
        after = {shift.name: shift for shift in displacements(displaced)}["ktrans"]
        np.testing.assert_allclose(
            np.array(after.shift_mm) - before.shift_mm, [3.0, -4.0], atol=0.5
        )
        mended, _ = prepare_study(displaced, ImageSettings())
        assert mended.ktrans is not None
        apart = np.linalg.norm(centre(mended.ktrans) - centre(man.ktrans))
        assert apart <= before.size_mm + 0.5
        assert mended.mended_mm["ktrans"] == pytest.approx(after.size_mm)


def test_a_map_on_the_grid_of_the_dynamic_series_is_not_measured_by_itself() -> None:
    grid = regions(1).with_array(np.zeros(SHAPE, np.float32))
    frames = np.zeros((4, *SHAPE), np.float32)
    man = Study("sub-1", "sub-1", t2w=grid, ktrans=grid, dce=Dynamic(frames, grid, np.arange(4.0)))
    assert [shift.name for shift in displacements(man)] == []
    # Whether it is of this series is looked at all the same, and said where that is not possible.
    unmeasured = map_on_series(man)
    assert isinstance(unmeasured, Unmeasured)
    assert unmeasured.sentence in prepare_study(man, ImageSettings())[0].notes
    assert map_on_series(replace(man, dce=None)) is None
    assert map_on_series(replace(man, ktrans=None)) is None
