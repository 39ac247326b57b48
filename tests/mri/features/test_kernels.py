"""Statistics, gradients and co-occurrence against independent code, invariants and hand counts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage, stats
from skimage.feature import graycomatrix, graycoprops

from cad.base.errors import CadError
from cad.base.terms.features import HARALICK
from cad.mri.features.gradient import kirsch_map, sobel_map
from cad.mri.features.haralick import AGGREGATIONS, directions, haralick_features
from cad.mri.features.histogram import discretise, histogram_features
from cad.mri.features.intensity import statistics
from cad.mri.features.regions import RegionVoxels

RNG = np.random.default_rng(3)
IMAGE = RNG.normal(100, 20, (7, 12, 11))
MASK = ndimage.gaussian_filter(RNG.normal(size=IMAGE.shape), 1.2) > 0


def numbers(records: np.ndarray) -> np.ndarray:
    """Return the fields of a record, or of several, as plain numbers."""
    return np.array(records.tolist())


def texture(image: np.ndarray, mask: np.ndarray, aggregation: str = "3D_comb") -> np.ndarray:
    region = RegionVoxels.from_masks([mask])
    levels, n_levels = discretise(region.values(image), region.start, 8, None)
    return numbers(haralick_features(levels, n_levels, region, 1, aggregation)[0])


def test_statistics_agree_with_scipy() -> None:
    values = IMAGE[MASK]
    found = statistics(values, np.array([0, len(values)]))[0]
    p10, p90 = np.percentile(values, (10, 90))
    robust = values[(values >= p10) & (values <= p90)]
    expected = {
        "mean": values.mean(),
        "variance": values.var(),
        "skewness": stats.skew(values),
        "kurtosis": stats.kurtosis(values),
        "median": np.median(values),
        "p25": np.percentile(values, 25),
        "p75": np.percentile(values, 75),
        "iqr": stats.iqr(values),
        "rmad": np.abs(robust - robust.mean()).mean(),
        "medad": np.abs(values - np.median(values)).mean(),
        "cov": stats.variation(values),
        "energy": (values**2).sum(),
        "rms": np.sqrt((values**2).mean()),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-12), name


def test_values_that_are_no_numbers_are_left_out() -> None:
    values = np.array([1.0, np.nan, 3.0, np.inf, 5.0, np.nan])
    found = statistics(values, np.array([0, 5, 6]))
    assert found["mean"][0] == 3.0
    assert np.isnan(numbers(found[1])).all()


@pytest.mark.parametrize("value", [0.0, 7.3, -2.1e6, 0.1])
def test_a_constant_region_has_a_defined_value_everywhere(value: float) -> None:
    image = np.full(IMAGE.shape, value)
    region = RegionVoxels.from_masks([MASK])
    found = statistics(region.values(image), region.start)[0]
    assert np.isfinite(numbers(found)).all()
    for name in ("variance", "skewness", "kurtosis", "iqr", "range", "mad", "rmad", "medad"):
        assert found[name] == 0, name
    assert found["mean"] == found["median"] == found["p10"] == value
    levels, n_levels = discretise(region.values(image), region.start, 32, None)
    histogram = histogram_features(levels, region.start, n_levels)[0]
    assert np.isfinite(numbers(histogram)).all()
    assert (histogram["entropy"], histogram["uniformity"], histogram["mode"]) == (0, 1, 1)
    for aggregation in AGGREGATIONS:
        values = dict(zip(HARALICK, texture(image, MASK, aggregation), strict=True))
        assert all(np.isfinite(v) for v in values.values())
        assert values["joint_maximum"] == values["energy"] == values["correlation"] == 1
        assert values["contrast"] == values["joint_entropy"] == values["inverse_variance"] == 0
    assert np.all(sobel_map(image, (1, 1, 1), MASK)[MASK] == 0)
    assert np.abs(kirsch_map(image, MASK)[MASK]).max() <= 1e-9 * abs(value)


def test_bins_by_number_and_by_width() -> None:
    values = np.array([0.0, 0.9, 1.0, 2.5, 4.0, 10.0, 12.5])
    start = np.array([0, 5, 7])
    levels, n = discretise(values, start, 4, None)
    assert levels.tolist() == [1, 1, 2, 3, 4, 1, 4]
    assert n.tolist() == [4, 4]
    levels, n = discretise(values - 0.5, start, None, 1.0)
    # Cuts lie at multiples of the width: -.5 is alone in [-1, 0).
    assert levels.tolist() == [1, 2, 2, 4, 5, 1, 4]
    assert n.tolist() == [5, 4]
    with pytest.raises(CadError, match="neither"):
        discretise(values, start, None, None)
    with pytest.raises(CadError, match="at most 1024"):
        discretise(values, start, None, 1e-3)


def test_sobel_agrees_with_scipy_and_gives_a_ramps_slope() -> None:
    spacing = (0.5, 0.7, 3.0)
    parts = [ndimage.sobel(IMAGE, axis=a, mode="nearest") / 32 / spacing[2 - a] for a in range(3)]
    found = sobel_map(IMAGE, spacing, MASK)
    np.testing.assert_allclose(found[MASK], np.sqrt(sum(p**2 for p in parts))[MASK], rtol=1e-5)
    assert np.isnan(found[~MASK]).all()
    z, y, x = np.meshgrid(*(np.arange(n, dtype=float) for n in IMAGE.shape), indexing="ij")
    ramp = 3 * x * spacing[0] + 4 * y * spacing[1] + 12 * z * spacing[2]
    inner = np.zeros_like(MASK)
    inner[2:5, 3:9, 3:8] = True
    np.testing.assert_allclose(sobel_map(ramp, spacing, inner)[inner], 13, rtol=1e-6)


def test_kirsch_agrees_with_eight_correlations() -> None:
    ring = [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0)]
    responses = []
    for first in range(8):
        kernel = np.full((3, 3), -3.0)
        kernel[1, 1] = 0
        for k in range(3):
            kernel[ring[(first + k) % 8]] = 5.0
        responses.append(ndimage.correlate(IMAGE, kernel[None], mode="nearest"))
    expected = np.max(responses, axis=0)
    np.testing.assert_allclose(kirsch_map(IMAGE, MASK)[MASK], expected[MASK], rtol=1e-5, atol=1e-3)


def test_one_slice_agrees_with_scikit_image() -> None:
    image = IMAGE[:1]
    region = RegionVoxels.from_masks([np.ones(image.shape, bool)])
    levels, n_levels = discretise(region.values(image), region.start, 8, None)
    found = haralick_features(levels, n_levels, region, 1, "2_5D_avg")[0]
    matrix = graycomatrix(
        (levels - 1).reshape(image.shape[1:]).astype(np.uint8),
        [1],
        [0, np.pi / 4, np.pi / 2, 3 * np.pi / 4],
        levels=8,
        symmetric=True,
        normed=True,
    )
    for ours, theirs in (
        ("contrast", "contrast"),
        ("dissimilarity", "dissimilarity"),
        ("inverse_difference_moment", "homogeneity"),
        ("energy", "ASM"),
        ("correlation", "correlation"),
    ):
        expected = graycoprops(matrix, theirs).mean()
        assert found[ours] == pytest.approx(expected, rel=1e-12), ours


def test_identities_between_features() -> None:
    f = dict(zip(HARALICK, texture(IMAGE, MASK), strict=True))
    assert f["dissimilarity"] == f["difference_average"]
    assert f["cluster_tendency"] == f["sum_variance"]
    assert f["sum_average"] == pytest.approx(2 * f["joint_average"])
    assert f["difference_variance"] == pytest.approx(f["contrast"] - f["dissimilarity"] ** 2)
    assert f["contrast"] == pytest.approx(2 * f["joint_variance"] * (1 - f["correlation"]))


@pytest.mark.parametrize("aggregation", ["3D_comb", "3D_avg"])
def test_turning_and_mirroring_change_nothing(aggregation: str) -> None:
    expected = texture(IMAGE, MASK, aggregation)
    for axes in ((0, 1), (1, 2), (0, 2)):
        turned = texture(np.rot90(IMAGE, 1, axes), np.rot90(MASK, 1, axes), aggregation)
        np.testing.assert_allclose(turned, expected, rtol=1e-10)
    np.testing.assert_allclose(
        texture(IMAGE[:, :, ::-1], MASK[:, :, ::-1], aggregation), expected, rtol=1e-10
    )


def test_scale_and_shift_change_nothing_with_a_bin_number() -> None:
    np.testing.assert_array_equal(texture(4 * IMAGE + 64, MASK), texture(IMAGE, MASK))


def test_distances_multiply_the_directions() -> None:
    assert len(directions(True)) == 13
    assert len(directions(False)) == 4
    image = np.zeros((13, 23, 21))
    mask = np.zeros(image.shape, bool)
    image[::2, ::2, ::2], mask[::2, ::2, ::2] = IMAGE, MASK[:, :12, :11]
    region = RegionVoxels.from_masks([mask])
    levels, n_levels = discretise(region.values(image), region.start, 8, None)
    found = haralick_features(levels, n_levels, region, 2)[0]
    np.testing.assert_allclose(numbers(found), texture(IMAGE, MASK), rtol=1e-12)


def test_bad_co_occurrence_settings_are_refused() -> None:
    region = RegionVoxels.from_masks([MASK])
    levels, n_levels = discretise(region.values(IMAGE), region.start, 8, None)
    with pytest.raises(CadError, match="unknown aggregation"):
        haralick_features(levels, n_levels, region, 1, "4D")
    with pytest.raises(CadError, match="at least 1 voxel"):
        haralick_features(levels, n_levels, region, 0)


def test_no_neighbours_is_missing_not_zero() -> None:
    mask = np.zeros(IMAGE.shape, bool)
    mask[::3, ::3, ::3] = True
    assert np.isnan(texture(IMAGE, mask)).all()


def test_regions_do_not_disturb_each_other() -> None:
    other = np.roll(MASK, 3, axis=2)
    regions = RegionVoxels.from_masks([MASK, other, MASK])
    levels, n_levels = discretise(regions.values(IMAGE), regions.start, None, 11.0)
    found = haralick_features(levels, n_levels, regions)
    np.testing.assert_array_equal(numbers(found[0]), numbers(found[2]))
    single = RegionVoxels.from_masks([other])
    one, n_one = discretise(single.values(IMAGE), single.start, None, 11.0)
    alone = haralick_features(one, n_one, single)[0]
    np.testing.assert_array_equal(numbers(found[1]), numbers(alone))


def test_spheres_are_the_voxels_within_reach() -> None:
    centres = np.array([[5.0, 6.0, 3.0], [0.2, 11.4, 6.6]])
    spacing = (1.1, 0.9, 2.5)
    found = RegionVoxels.spheres(centres, IMAGE.shape, spacing, 3.0)  # type: ignore[arg-type]
    grid = np.stack(np.meshgrid(*(np.arange(n) for n in IMAGE.shape), indexing="ij"), axis=-1)
    for number, centre in enumerate(centres):
        gap = (grid - centre[::-1]) * np.array(spacing[::-1])
        expected = np.flatnonzero((gap**2).sum(axis=-1) <= 9.0)
        own = found.index[found.start[number] : found.start[number + 1]]
        np.testing.assert_array_equal(own, expected)


def test_equal_weights_are_whole_voxels() -> None:
    rng = np.random.default_rng(3)
    values, start = rng.gamma(3.0, 100.0, 400), np.array([0, 7, 150, 400])
    whole = statistics(values, start)
    weight = np.repeat([0.3, 1.0, 0.7], np.diff(start))
    same = statistics(values, start, weight, np.ones(400, bool))
    same["energy"] /= [0.3, 1.0, 0.7]
    np.testing.assert_allclose(numbers(same), numbers(whole), rtol=1e-9)


def test_whole_number_weights_are_repeated_voxels() -> None:
    """Means, moments and mean deviations are exactly those of every voxel written n times."""
    rng = np.random.default_rng(4)
    values, count = rng.normal(500, 90, 60), rng.integers(1, 5, 60)
    start = np.array([0, 60])
    weighted = statistics(values, start, count.astype(float), np.ones(60, bool))[0]
    many = np.repeat(values, count)
    written = statistics(many, np.array([0, len(many)]))[0]
    for name in (
        "mean",
        "variance",
        "skewness",
        "kurtosis",
        "mad",
        "cov",
        "energy",
        "rms",
        "minimum",
        "maximum",
        "range",
    ):
        assert weighted[name] == pytest.approx(written[name], rel=1e-10), name
    for name in ("median", "p10", "p25", "p75", "p90"):  # interpolated between other neighbours
        assert abs(weighted[name] - written[name]) < 15, name


def test_extremes_are_the_cores() -> None:
    share = np.zeros((1, 4, 5))
    share[0, 1:3, 1:4] = 1.0
    share[0, 1:3, 0] = 0.2
    regions = RegionVoxels.from_shares([share])
    assert regions.core().index.tolist() == [6, 7, 8, 11, 12, 13]
    image = np.full((1, 4, 5), 10.0)
    image[0, 1, 0] = 500.0
    image[0, 1, 1] = 11.0
    found = statistics(regions.values(image), regions.start, regions.weight, regions.is_core)[0]
    assert found["maximum"] == 11.0
    assert found["mean"] == pytest.approx((11 + 5 * 10 + 0.2 * 510) / 6.4)
