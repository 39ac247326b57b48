"""Compute from diffusion-weighted images the ADC map, and the image at a high b-value."""

import numpy as np

from cad.base.errors import CadError
from cad.mri.imaging.geometry import on_grid
from cad.mri.imaging.volume import Volume

# Range of b-values (s/mm2) in which the logarithm of the signal falls linearly with b. Below
# LOWEST_B perfusion adds to the decay of the signal. Above HIGHEST_B the decay is slower than
# exponential (kurtosis).
LOWEST_B = 50.0
HIGHEST_B = 1000.0
# Lowest b-value (s/mm2) of a high-b image, which may be acquired or computed (PI-RADS v2.1).
HIGH_B = 1400.0
_UNIT = 1e6  # factor from mm2/s to 1e-6 mm2/s
_REWEIGHTINGS = 2  # how often the fit is repeated with the weights of the fit before


def fit_adc(images: list[tuple[float, Volume]]) -> tuple[Volume, list[str]]:
    """Fit an ADC map to images at several b-values.

    A line is fitted to ln S (S is the signal) against b by least squares. Each weight is the square
    of the fitted signal; the weights undo the logarithm's distortion of the noise. If the images
    with b between 50 and 1000 s/mm2 have at least two different b-values, only these images are
    used; otherwise all images.

    Parameters
    ----------
    images : list of (float, Volume)
        b-value (s/mm2) and image; several images of one b-value are all used.

    Returns
    -------
    adc : Volume
        1e-6 mm2/s, float32, on the first image's grid; NaN where a signal is not positive. Noise
        may make a value negative, and nothing is clipped.
    notes : list of str
        A sentence on the b-values that were used.

    Raises
    ------
    CadError
        For fewer than two different b-values, a negative b-value or images that do not overlap.
    """
    grid, usable, slope, _ = _decay(_images_of_fit(images))
    adc = np.where(usable, -slope * _UNIT, np.nan)
    return grid.with_array(adc.astype(np.float32)), [f"ADC fitted from {_b_values_text(images)}"]


def high_b(images: list[tuple[float, Volume]]) -> tuple[Volume, list[str]]:
    """Return the image at a high b-value: the acquired one, or one computed from the decay.

    An image with b >= 1400 s/mm2 is taken as it is; of several such images the one with the highest
    b is taken. If there is none, the mono-exponential decay that :func:`fit_adc` fits is
    extrapolated to b = 1400 s/mm2.

    Parameters
    ----------
    images : list of (float, Volume)
        b-value (s/mm2) and image.

    Returns
    -------
    image : Volume
        Arbitrary units. A computed image is float32, and 0 where a signal is not positive.
    notes : list of str
        A sentence on whether the image was acquired or computed, and from which images.

    Raises
    ------
    CadError
        When the image must be computed, and there are fewer than two different b-values, a negative
        b-value or images that do not overlap.
    """
    highest_b, image = max(images, key=lambda b_and_image: b_and_image[0], default=(0.0, None))
    if highest_b >= HIGH_B and image is not None:
        return image, [f"high-b image acquired at b = {highest_b:g} s/mm2"]
    grid, usable, slope, log_s0 = _decay(_images_of_fit(images))
    # An exponential of a voxel without a fit could overflow.
    log_signal = np.where(usable, log_s0 + slope * HIGH_B, 0.0)
    signal = np.where(usable, np.exp(log_signal), 0.0)
    note = f"high-b image computed at b = {HIGH_B:g} s/mm2 from {_b_values_text(images)}"
    return grid.with_array(signal.astype(np.float32)), [note]


def trace(images: list[Volume]) -> Volume:
    """Return the trace image of several directions: the geometric mean, voxel by voxel.

    S is the signal and b the b-value. The mean of ln S over orthogonal directions falls linearly
    with b. The rate at which it falls is the mean diffusivity, which is what an ADC map shows.

    Parameters
    ----------
    images : list of Volume
        One b-value, any number of directions, one grid.

    Raises
    ------
    CadError
        For images on different grids.
    """
    if not all(image.same_grid(images[0]) for image in images):
        raise CadError("the directions of one b-value lie on different grids")
    stack = np.stack([image.array.astype(np.float64) for image in images])
    # A voxel without a positive signal in every direction has no logarithm, and becomes 0.
    positive = (stack > 0).all(axis=0)
    mean_log = np.log(np.where(positive, stack, 1.0)).mean(axis=0)
    return images[0].with_array(np.where(positive, np.exp(mean_log), 0.0).astype(np.float32))


def _b_values_text(images: list[tuple[float, Volume]]) -> str:
    b_values = sorted({float(b) for b, _ in _images_of_fit(images)})
    return f"b = {', '.join(f'{b:g}' for b in b_values)} s/mm2"


def _decay(images: list[tuple[float, Volume]]) -> tuple[Volume, np.ndarray, np.ndarray, np.ndarray]:
    """Fit ln S (S is the signal) against b in every voxel.

    Return the grid, a mask of the voxels that have a fit, the slope of ln S (mm2/s, negative for a
    decay), and ln S at b = 0.
    """
    _, grid = images[0]
    b = np.array([b_value for b_value, _ in images]).reshape(-1, 1, 1, 1)
    signals = np.stack([on_grid(image, grid).array.astype(float) for _, image in images])
    usable = np.isfinite(signals).all(axis=0) & (signals > 0).all(axis=0)
    if not usable.any():
        raise CadError("no voxel has a positive signal in every diffusion image")
    log_s = np.log(np.where(usable, signals, 1.0))  # 0 in voxels that are not usable
    fitted = log_s  # the weights of the first fit come from the signals themselves
    slope = mean_b = mean_s = np.zeros(grid.shape)
    for _ in range(_REWEIGHTINGS + 1):
        # The weight of each image is the square of its fitted signal. It is divided by the largest
        # weight of the voxel, so that no exponential overflows.
        weight = np.exp(2 * (fitted - fitted.max(axis=0)))
        total = weight.sum(axis=0)
        mean_b = (weight * b).sum(axis=0) / total
        mean_s = (weight * log_s).sum(axis=0) / total
        slope = (weight * (b - mean_b) * (log_s - mean_s)).sum(axis=0)
        slope /= (weight * (b - mean_b) ** 2).sum(axis=0)
        fitted = mean_s + slope * (b - mean_b)
    return grid, usable, slope, mean_s - slope * mean_b


def _images_of_fit(images: list[tuple[float, Volume]]) -> list[tuple[float, Volume]]:
    """Return the images to which the decay is fitted: those between 50 and 1000 s/mm2, or all.

    Too few or negative b-values are refused.
    """
    b_values = [float(b) for b, _ in images]
    # The condition is written with "not", so that NaN is refused as well.
    if any(not b >= 0 for b in b_values):
        raise CadError(f"b-values must not be negative, found {b_values}")
    if len(set(b_values)) < 2:
        raise CadError(
            f"an ADC needs at least two different b-values, found {sorted(set(b_values))} s/mm2",
            hint="import the other diffusion images, or the scanner's ADC map",
        )
    in_range = [(b, image) for b, image in images if LOWEST_B <= b <= HIGHEST_B]
    return in_range if len({b for b, _ in in_range}) >= 2 else images
