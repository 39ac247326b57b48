"""Filters of IBSI 2: beside MIRP's stored numbers, invariants, hand-counted values, bad input.

``tests/support/mirp_filters.py`` made ``mirp_filters.csv``. With MIRP itself, maps and all:
``uv run --all-extras --group ibsi pytest -m slow tests/mri/features/test_filters.py``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mirp_filters
import numpy as np
import pytest

from cad.base.errors import CadError
from cad.base.settings import FeatureSettings, FilterSettings, PipelineSettings, parse_settings
from cad.mri.columns import columns_of, filter_name, units_of
from cad.mri.features.filters import check_filters, filter_reach, response_map
from cad.mri.features.intensity import statistics
from cad.mri.features.provenance import PREFIX
from cad.mri.features.table import extract
from cad.mri.imaging.standardise import NyulScale
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.volume import Volume

ONE = (1.0, 1.0, 1.0)
MEAN = {"kind": "mean", "support_mm": 3}
LOG = {"kind": "log", "sigma_mm": 2}
DB2 = {"kind": "wavelet", "wavelet": "db2", "bands": "LH"}
EVERY = (
    MEAN,
    LOG,
    DB2,
    {**MEAN, "dimension": "3D"},
    {**LOG, "dimension": "3D"},
    {**DB2, "bands": "LHL", "dimension": "3D", "level": 2, "rotations": True},
)


def made(image: np.ndarray, spacing: tuple[float, float, float] = ONE, **keys: Any) -> np.ndarray:
    """The response to a filter of these keys, checked as a pipeline's are."""
    chosen = FilterSettings(**keys)
    check_filters(FeatureSettings(filters={"t2w": (chosen,)}))
    return response_map(image, spacing, chosen)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape)


def stored() -> dict[str, dict[str, float]]:
    """MIRP's numbers by case and statistic."""
    found: dict[str, dict[str, float]] = {}
    with (Path(__file__).parent / "mirp_filters.csv").open() as stream:
        for row in csv.DictReader(stream):
            found.setdefault(row["case"], {})[row["statistic"]] = float(row["value"])
    return found


def our_phantom(case: str) -> np.ndarray:
    """Our response per voxel, as MIRP gives it."""
    name, keys = mirp_filters.PHANTOM_CASES[case]
    side = mirp_filters.SIDE
    found = made(mirp_filters.phantom(name), (side, side, side), **keys)
    return found * side**2 if keys["kind"] == "log" else found


def our_ct(case: str) -> dict[str, float]:
    """Our 18 statistics of a case of phase 2, through settings; the CT stands as an ADC map."""
    array, spacing, mask = mirp_filters.tumour_in_lung()
    keys = mirp_filters.CT_CASES[case]
    image = Volume(array, spacing, (0.0, 0.0, 0.0), np.eye(3))
    flat = keys["dimension"] == "slice"
    content = {
        "name": "ibsi2",
        "images": {
            "whole_numbers": True,
            "spacing_adc": (1, 1, 0 if flat else 1),
            "interpolation": "cubic",
        },
        "features": {
            "modalities": ["adc"],
            "families": [],
            "counting": True,
            "partial_voxels": "half",
            "texture_adc": {"bins": 32, "range": (-1000, 400)},
            "filters": {"adc": [keys]},
        },
    }
    roi_map = image.with_array(mask.astype(np.uint8))
    study = Study("sub-1", "sub-1", adc=image, roi_map=roi_map, rois=[Roi("1", 1)])
    row = extract(study, PipelineSettings.model_validate(content)).rows.iloc[0]
    stem = f"adc_{filter_name(FilterSettings(**keys))}"
    return {name: float(row[f"{stem}_{name}"]) for name in mirp_filters.STATISTICS.values()}


def differing(found: dict[str, float], theirs: dict[str, float], rtol: float) -> dict[str, Any]:
    """Return what differs by more than the tolerance; a ratio to nearly 0 is left out."""
    size = theirs["rms"]
    vague = {"cov"} if abs(theirs["mean"]) < 1e-6 * size else set()
    return {
        key: (found[key], value)
        for key, value in theirs.items()
        if key not in vague and not np.isclose(found[key], value, rtol=rtol, atol=1e-7 * size)
    }


@pytest.mark.reference
@pytest.mark.parametrize("case", mirp_filters.PHANTOM_CASES)
def test_phantoms_of_phase_1(case: str, counted: Callable[[int, str], None]) -> None:
    response = our_phantom(case).reshape(-1)
    found = statistics(response, np.array([0, response.size]))[0]
    theirs = stored()[case]
    assert len(theirs) == 18
    if case != "noise":
        # Most voxels of a phantom share few values. Rounding (MIRP has single precision) decides
        # which of them lie beyond a percentile, and quartiles of 0 are divided by each other.
        theirs = {key: value for key, value in theirs.items() if key not in ("rmad", "qcod")}
    counted(len(theirs), "filters beside MIRP's stored numbers")
    assert differing(found, theirs, 1e-4) == {}


@pytest.mark.reference
@pytest.mark.parametrize("case", mirp_filters.CT_CASES)
def test_made_ct_of_phase_2_by_settings(case: str, counted: Callable[[int, str], None]) -> None:
    theirs = stored()[case]
    counted(len(theirs), "filters beside MIRP's stored numbers")
    assert len(theirs) == 18
    assert differing(our_ct(case), theirs, 5e-3) == {}


@pytest.mark.reference
@pytest.mark.slow
@pytest.mark.parametrize("case", mirp_filters.PHANTOM_CASES)
def test_response_maps_beside_mirp(case: str, counted: Callable[[int, str], None]) -> None:
    pytest.importorskip("mirp", reason="MIRP ABSENT: uv sync --all-extras --group ibsi")
    _, theirs = mirp_filters.phantom_of_mirp(case)
    counted(theirs.size, "voxels of MIRP's response maps")
    np.testing.assert_allclose(our_phantom(case), theirs, rtol=1e-5, atol=1e-4)


def test_a_line_by_hand() -> None:
    line = np.array([0.0, 0, 6, 0, 3]).reshape(1, 5, 1)
    row = np.broadcast_to(line, (1, 5, 7))  # along x nothing changes, so x only averages
    thirds = made(row, kind="mean", support_mm=3)[0, :, 3]
    np.testing.assert_allclose(thirds, [0, 2, 2, 3, 2])  # beyond the end 3 again: (0 + 3 + 3) / 3
    zero = made(row, kind="mean", support_mm=3, boundary="zero")[0, :, 3]
    np.testing.assert_allclose(zero, [0, 2, 2, 3, 1])
    wrapped = made(row, kind="mean", support_mm=3, boundary="periodic")[0, :, 3]
    np.testing.assert_allclose(wrapped, [1, 2, 2, 3, 1])
    haar = made(row, kind="wavelet", wavelet="haar", bands="LH")[0, :, 3]
    # Low pass along x doubles a constant's 1/sqrt 2; along y halves of differences of neighbours.
    np.testing.assert_allclose(np.abs(haar), np.abs([0, 6, -6, 3, 0]))


def test_laplacian_of_an_impulse_is_the_sampled_kernel() -> None:
    impulse = np.zeros((25, 25, 25))
    impulse[12, 12, 12] = 1.0
    found = made(impulse, **LOG, dimension="3D")
    at = np.indices(impulse.shape) - 12
    square = (at**2).sum(axis=0)
    kernel = -(3 - square / 4) / 4 * np.exp(-square / 8) / (2 * np.pi * 4) ** 1.5
    kernel[(np.abs(at) > 8).any(axis=0)] = 0  # 4 standard deviations
    np.testing.assert_allclose(found, kernel, atol=1e-15)


@pytest.mark.parametrize("keys", EVERY)
def test_a_constant_and_scale(keys: dict[str, Any]) -> None:
    image = noise(14, 16, 18)
    constant = made(np.full((14, 16, 18), 7.0), **keys)
    # Cut at 4 standard deviations, the sampled kernel of the Laplacian sums to nearly 0, not to 0.
    wanted = 7.0 if keys["kind"] == "mean" else 0.0
    np.testing.assert_allclose(constant, wanted, atol=7 * 5e-4 if keys["kind"] == "log" else 1e-9)
    first = made(image, **keys)
    np.testing.assert_allclose(made(-3 * image, **keys), -3 * first, atol=1e-12)
    summed = made(image + 2 * image[::-1], **keys) - 2 * made(image[::-1], **keys)
    np.testing.assert_allclose(summed, first, atol=1e-12)


def test_laplacian_of_a_ramp_is_zero_inside() -> None:
    z, y, x = np.indices((40, 40, 40)) - 19.5
    found = made(0.3 * z - y + 2 * x, kind="log", sigma_mm=2, dimension="3D", truncate=6)
    np.testing.assert_allclose(found[13:27, 13:27, 13:27], 0, atol=1e-6)


def test_energy_of_low_and_high_pass() -> None:
    image = noise(8, 16, 32)
    keys = {"kind": "wavelet", "wavelet": "db3", "boundary": "periodic"}
    for bands, dimension, wanted in ((2, "slice", 4), (3, "3D", 8)):
        letters = [
            format(n, f"0{bands}b").replace("0", "L").replace("1", "H") for n in range(2**bands)
        ]
        total = sum((made(image, **keys, bands=b, dimension=dimension) ** 2).sum() for b in letters)
        assert total == pytest.approx(wanted * (image**2).sum())


@pytest.mark.parametrize(
    "keys", [*EVERY[:2], *EVERY[3:], {**DB2, "rotations": True, "level": 2}], ids=str
)
def test_a_quarter_turn_turns_the_response(keys: dict[str, Any]) -> None:
    image = noise(12, 13, 14)
    planes = ((1, 2), (0, 2), (0, 1)) if keys.get("dimension") == "3D" else ((1, 2),)
    for axes in planes:
        turned = made(np.rot90(image, axes=axes), **keys)
        np.testing.assert_allclose(turned, np.rot90(made(image, **keys), axes=axes), atol=1e-10)


def test_without_rotations_a_turn_changes_the_response() -> None:
    image = noise(1, 13, 13)
    turned = made(np.rot90(image, axes=(1, 2)), **DB2)
    assert np.abs(turned - np.rot90(made(image, **DB2), axes=(1, 2))).max() > 0.1


def test_voxel_size_does_not_change_what_is_seen() -> None:
    def blob(side: float) -> np.ndarray:
        at = (np.arange(round(48 / side)) - (round(48 / side) - 1) / 2) * side
        z, y, x = np.meshgrid(at, at, at, indexing="ij", sparse=True)
        return 100 * np.exp(-(x**2 + y**2 + z**2) / (2 * 6.0**2))

    coarse = made(blob(1.5), (1.5, 1.5, 1.5), kind="log", sigma_mm=4.5, dimension="3D")
    fine = made(blob(0.75), (0.75, 0.75, 0.75), kind="log", sigma_mm=4.5, dimension="3D")
    below = fine.reshape(32, 2, 32, 2, 32, 2).mean(axis=(1, 3, 5))
    assert np.abs(coarse - below)[8:24, 8:24, 8:24].max() < 0.02 * np.abs(coarse).max()
    # The Laplacian of a Gaussian blob is known: at its middle -3 A s^3 / (s^2 + sigma^2)^(5/2).
    known = -3 * 100 * 6**3 / (6**2 + 4.5**2) ** 2.5
    assert fine.min() == pytest.approx(known, rel=0.01)


def with_filters(settings: PipelineSettings, *filters: dict[str, Any], **more: Any) -> Any:
    content = settings.model_dump(by_alias=True, mode="json")
    content["features"] |= {"modalities": ["t2w", "adc"], "families": [], **more}
    content["features"]["filters"] = {"t2w": list(filters), "adc": list(filters)}
    return parse_settings(PipelineSettings, content)


@pytest.mark.parametrize("boundary", ["mirror", "nearest", "zero", "periodic"])
def test_the_part_around_a_region_is_enough(
    study: Study, settings: PipelineSettings, boundary: str
) -> None:
    filters = [
        {"kind": "log", "sigma_mm": 1.8, "boundary": boundary},
        {**DB2, "level": 3, "boundary": boundary},
    ]
    images = {"t2_standardisation": "none"}
    plain = settings.model_copy(update={"images": settings.images.model_copy(update=images)})
    rows = extract(study, with_filters(plain, *filters)).rows
    for keys in filters:
        whole = made(study.t2w.array, study.t2w.spacing, **keys)
        name = f"t2w_{filter_name(FilterSettings(**keys))}_mean"
        for row, label in enumerate((1, 2)):
            wanted = whole[study.roi_map.array == label].mean()
            assert rows[name][row] == pytest.approx(wanted, abs=1e-9)


def test_columns_units_and_provenance(study: Study, settings: PipelineSettings) -> None:
    chosen = with_filters(settings, {**LOG, "sigma_mm": 3}, {**MEAN, "support_mm": 5.4})
    result = extract(study, chosen)
    names = [c for c in result.rows if c not in ("participant_id", "roi_id")]
    assert len(names) == 2 * 2 * 18  # energy and range only with features.counting
    assert result.rows[names].notna().all(axis=None)
    columns = columns_of(chosen.features)
    units = units_of(names, columns)
    assert units["t2w_log3mm_mean"] == "standardised/mm2"
    assert units["adc_mean5.4mm_variance"] == "(1e-6 mm2/s)^2"
    assert units["adc_log3mm_skewness"] == "1"
    assert columns["adc_log3mm_p10"].definition.endswith("Laplacian of Gaussian: 10th percentile")
    said = "log3mm (slice, mirror cut at 4 SD), mean5.4mm (slice, mirror)"
    assert set(result.provenance[f"{PREFIX}t2w_filters"]) == {said}
    assert f"{PREFIX}t2w_filters" not in extract(study, settings).provenance


def test_nyul_measures_the_response_of_the_scaled_image(
    study: Study, settings: PipelineSettings
) -> None:
    images = settings.images.model_copy(update={"t2_standardisation": "nyul"})
    chosen = with_filters(settings.model_copy(update={"images": images}), {**LOG, "sigma_mm": 1.8})
    waiting = extract(study, chosen)
    assert waiting.unscaled is not None
    scale = NyulScale.fit(waiting.unscaled.landmarks)
    late = waiting.unscaled.columns(scale, chosen.features)
    now = extract(study, chosen, scale).rows
    for name, values in late.items():
        np.testing.assert_allclose(values, now[name], rtol=1e-6, atol=1e-9)


def test_no_value_in_the_support_no_response() -> None:
    image = noise(1, 21, 21)
    image[0, 10, 10] = np.nan
    lost = np.isnan(made(image, **LOG)[0])  # 8 voxels to each side
    assert lost[2:19, 2:19].all()
    assert lost.sum() == 17**2


def test_a_region_smaller_than_the_support_is_measured(settings: PipelineSettings) -> None:
    adc = Volume(noise(1, 30, 30) + 1200, ONE, (0.0, 0.0, 0.0), np.eye(3))
    mask = np.zeros((1, 30, 30), np.uint8)
    mask[0, 12:15, 12:15] = 1
    study = Study("sub-1", "sub-1", adc=adc, roi_map=adc.with_array(mask), rois=[Roi("1", 1)])
    row = extract(study, with_filters(settings, {"kind": "mean", "support_mm": 15})).rows.iloc[0]
    wanted = made(adc.array, kind="mean", support_mm=15)[mask > 0].mean()
    assert row["adc_mean15mm_mean"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("keys", "spacing", "slices", "message"),
    [
        ({**LOG, "dimension": "3D"}, (0.5, 0.5, 3.0), 9, r"equal sides, found 0\.5 x 0\.5 x 3 mm"),
        ({**MEAN, "dimension": "3D"}, ONE, 1, "the image has one slice"),
        ({"kind": "log", "sigma_mm": 0.4}, (0.5, 0.5, 3.0), 9, r"too small for voxels of 0\.5 mm"),
        (MEAN, (2.0, 2.0, 2.0), 9, "too small for voxels of 2 mm"),
    ],
)
def test_images_that_a_filter_refuses(
    keys: dict[str, Any], spacing: tuple[float, float, float], slices: int, message: str
) -> None:
    with pytest.raises(CadError, match=message):
        made(noise(slices, 9, 9), spacing, **keys)


def test_a_refused_image_is_a_failure_of_the_study(
    study: Study, settings: PipelineSettings
) -> None:
    chosen = with_filters(settings, {**LOG, "dimension": "3D"})
    found = extract(study, chosen)
    assert [error.patient for error in found.failures] == ["sub-A", "sub-A"]
    assert "equal sides" in found.failures[0].problem
    flat = replace(study, adc=None)
    assert "t2w_log2mm_3d_mean" not in extract(flat, chosen).rows


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([{**DB2, "wavelet": "db99"}], r"unknown wavelet 'db99'; known: bior1\.1"),
        ([{**DB2, "bands": "LHX"}], "slice takes 2 letters, each L or H"),
        ([{**DB2, "dimension": "3D"}], "3D takes 3 letters"),
        ([{"kind": "mean"}], "the filter mean needs support_mm"),
        ([{**MEAN, "sigma_mm": 2}], "the filter mean has no sigma_mm"),
        ([LOG, {**LOG, "boundary": "zero"}], "two filters would be called log2mm"),
    ],
)
def test_settings_that_are_refused(filters: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(CadError, match=message):
        check_filters(FeatureSettings(filters={"t2w": tuple(filters)}))


def test_reach_is_that_of_the_widest_filter() -> None:
    flat, deep = FilterSettings(**LOG), FilterSettings(**EVERY[5])
    assert filter_reach((), ONE) == (0, 0, 0)
    assert filter_reach((flat,), ONE) == (0, 8, 8)
    assert filter_reach((flat, deep), ONE) == (6, 8, 8)
