"""T2 standardisation, bias correction and ADC: invariants, hand-counted values, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from hypothesis import given, settings
from hypothesis import strategies as st

from cad.base.errors import CadError
from cad.base.settings import ImageSettings
from cad.mri.imaging.diffusion import fit_adc
from cad.mri.imaging.standardise import (
    NyulScale,
    correct_bias,
    foreground,
    landmarks,
    muscle_level,
    prepared_t2,
    reference_tissue,
    standardise_t2,
    zscore,
)
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Volume

SHAPE = (8, 40, 40)


def body(seed: int = 0, scale: float = 1.0, offset: float = 0.0) -> Volume:
    """Air, muscle (100, the largest tissue), gland (300) and fat (600), with noise."""
    rng = np.random.default_rng(seed)
    array = np.full(SHAPE, 100.0)
    array[:, :4] = array[:, -4:] = 3.0
    array[:, 12:26, 12:26] = 300.0
    array[:, 28:34, 6:34] = 600.0
    array = (array + rng.normal(scale=8, size=SHAPE)) * scale + offset
    return Volume(np.abs(array).astype(np.float32), (1.0, 1.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))


def gland() -> np.ndarray:
    mask = np.zeros(SHAPE, bool)
    mask[:, 12:26, 12:26] = True
    return mask


def study(image: Volume) -> Study:
    return Study("sub-01", "sub-01", t2w=image, gland=image.with_array(gland()))


def choose(kind: str, bias: bool = False) -> ImageSettings:
    return ImageSettings(t2_standardisation=kind, bias_correction=bias)


def test_zscore_over_the_gland() -> None:
    out = standardise_t2(study(body()), choose("zscore"))[0].array[gland()]
    assert out.mean() == pytest.approx(0, abs=1e-4)
    assert out.std() == pytest.approx(1, rel=1e-4)


@given(scale=st.floats(0.2, 20))
@settings(max_examples=5, deadline=None)
@pytest.mark.parametrize("kind", ["zscore", "reference", "nyul"])
def test_every_scale_ignores_the_gain_of_the_receiver(kind: str, scale: float) -> None:
    fitted = NyulScale.fit(np.stack([landmarks(body(s)) for s in range(3)]))
    one = standardise_t2(study(body()), choose(kind), fitted)[0]
    other = standardise_t2(study(body(scale=scale)), choose(kind), fitted)[0]
    np.testing.assert_allclose(one.array, other.array, atol=2e-3, rtol=1e-3)


def test_none_changes_nothing() -> None:
    image = body()
    kept = standardise_t2(study(image), choose("none"))[0]
    np.testing.assert_array_equal(kept.array, image.array)


def test_reference_tissue_is_muscle() -> None:
    assert muscle_level(body()) == pytest.approx(100, rel=0.05)
    out = reference_tissue(body()).array[gland()]
    assert np.median(out) == pytest.approx(3.0, rel=0.05)


@pytest.mark.reference
def test_muscle_of_the_real_studies(shared_data: Path) -> None:
    """By eye the obturator muscle lies near 80 in ProstateX-0218 and near 50 in ProstateX-0000."""
    for pattern, low, high in (
        ("ProstateX-0218/5.*", 60, 100),
        ("ProstateX-0000/4.*", 35, 70),
    ):
        folder = next(iter((shared_data / "prostatex").glob(pattern)))
        names = sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(folder))
        assert low < muscle_level(Volume.from_sitk(sitk.ReadImage(names))) < high


def test_nyul_counted_by_hand() -> None:
    """Landmarks 0..10 of one patient and 0, 10..90, 100 of another give the same standard scale."""
    rows = np.stack([np.arange(11.0), 10 * np.arange(11.0) + 5])
    np.testing.assert_allclose(NyulScale.fit(rows).landmarks, np.arange(11) / 10)


def test_nyul_maps_a_patients_landmarks_onto_the_scale() -> None:
    fitted = NyulScale.fit(np.stack([landmarks(body(s, scale=1 + s)) for s in range(3)]))
    image = body(7, scale=3.3)
    moved = landmarks(fitted.transform(image), foreground(image))
    np.testing.assert_allclose(moved, fitted.landmarks, atol=5e-3)


def test_nyul_is_monotone_and_goes_on_beyond_its_ends() -> None:
    fitted = NyulScale.fit(landmarks(body())[None])
    image = body(3)
    image.array[0, 0, :2] = (0.0, 5000.0)
    out = fitted.transform(image).array.ravel()
    order = np.argsort(image.array.ravel(), kind="stable")
    assert (np.diff(out[order]) >= -1e-6).all()
    assert out.min() < 0
    assert out.max() > 1


def test_nyul_key_names_the_fold() -> None:
    rows = np.stack([landmarks(body(s)) for s in range(3)])
    assert NyulScale.fit(rows).key == NyulScale.fit(rows).key
    assert NyulScale.fit(rows).key != NyulScale.fit(rows[:2]).key


def test_nyul_refusals() -> None:
    with pytest.raises(CadError, match="percentiles do not increase"):
        landmarks(body().with_array(np.full(SHAPE, 5.0)))
    with pytest.raises(CadError, match="shape"):
        NyulScale.fit(np.ones((2, 3)))
    with pytest.raises(CadError, match=r"sub-01.*needs a scale fitted"):
        standardise_t2(study(body()), choose("nyul"))


def test_constant_and_missing_images_are_refused() -> None:
    with pytest.raises(CadError, match="constant"):
        zscore(body().with_array(np.full(SHAPE, 5.0)))
    with pytest.raises(CadError, match=r"sub-01.*constant"):
        standardise_t2(study(body().with_array(np.full(SHAPE, 5.0))), choose("zscore"))
    with pytest.raises(CadError, match="no number"):
        zscore(body().with_array(np.full(SHAPE, np.nan)))
    with pytest.raises(CadError, match="no T2 image"):
        standardise_t2(Study("sub-01", "sub-01"), choose("none"))
    with pytest.raises(CadError, match="no foreground"):
        zscore(body().with_array(np.zeros(SHAPE)))


def test_bias_field_is_removed() -> None:
    clean = body()
    x = np.linspace(-1, 1, 40)
    field = np.exp(0.4 * x[None, None, :] + 0.2 * x[None, :, None] ** 2) * np.ones(SHAPE)
    biased = clean.with_array((clean.array * field).astype(np.float32))
    corrected = correct_bias(biased)
    inside = foreground(biased)
    found = biased.array[inside] / corrected.array[inside]
    assert np.log(found).mean() == pytest.approx(0.0, abs=1e-5)

    def spread(image: Volume) -> float:
        values = image.array[gland()]
        return float(values.std() / values.mean())

    assert spread(corrected) < 0.5 * spread(biased)
    out = prepared_t2(study(biased), choose("none", bias=True))
    np.testing.assert_allclose(out.array, corrected.array)


def diffusion(
    adc: float, b: float, shape: tuple[int, int, int] = (2, 3, 4)
) -> tuple[float, Volume]:
    array = np.full(shape, 1000.0 * np.exp(-b * adc * 1e-6), np.float32)
    return b, Volume(array, (2.0, 2.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))


@given(adc=st.floats(300, 3000))
@settings(max_examples=20, deadline=None)
def test_adc_of_a_pure_exponential(adc: float) -> None:
    found, notes = fit_adc([diffusion(adc, b) for b in (50.0, 400.0, 800.0)])
    np.testing.assert_allclose(found.array, adc, rtol=1e-4)
    assert notes == ["ADC fitted from b = 50, 400, 800 s/mm2"]


def test_adc_counted_by_hand_from_two_images() -> None:
    """ln 2 over 1000 s/mm2 is 693.1e-6 mm2/s."""
    low, high = diffusion(0, 0.0), diffusion(0, 1000.0)
    high[1].array[:] = 500.0
    found, _ = fit_adc([low, high])
    np.testing.assert_allclose(found.array, 693.147, rtol=1e-5)


def test_adc_leaves_out_perfusion_and_kurtosis() -> None:
    images = [diffusion(1500, b) for b in (0.0, 50.0, 800.0, 1400.0)]
    images[0][1].array[:] *= 1.3
    images[3][1].array[:] *= 1.5
    np.testing.assert_allclose(fit_adc(images)[0].array, 1500, rtol=1e-4)


def test_adc_weights_undo_the_logarithm() -> None:
    """Noise on the weakest image moves the weighted fit less than it moves the plain one."""
    images = [diffusion(2500, b) for b in (50.0, 500.0, 1000.0)]
    images[2][1].array[:] += 30.0
    weighted = float(fit_adc(images)[0].array[0, 0, 0])
    b = np.array([50.0, 500.0, 1000.0])
    plain = -np.polyfit(b, np.log([v.array[0, 0, 0] for _, v in images]), 1)[0] * 1e6
    assert abs(weighted - 2500) < 0.6 * abs(plain - 2500)


def test_adc_refusals() -> None:
    with pytest.raises(CadError, match="two different b-values"):
        fit_adc([diffusion(1000, 800.0), diffusion(1000, 800.0)])
    with pytest.raises(CadError, match="negative"):
        fit_adc([diffusion(1000, -1.0), diffusion(1000, 800.0)])
    empty = diffusion(1000, 0.0)
    empty[1].array[:] = 0
    with pytest.raises(CadError, match="no voxel"):
        fit_adc([empty, diffusion(1000, 800.0)])
    part = diffusion(1000, 0.0)
    part[1].array[0, 0, 0] = 0
    found, _ = fit_adc([part, diffusion(1000, 800.0)])
    assert np.isnan(found.array[0, 0, 0])
    assert np.isfinite(found.array[1]).all()
