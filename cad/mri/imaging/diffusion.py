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
_REWEIGHTINGS = 2


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
    grid, usable, slope, _ = _decay(_choose(images))
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
    highest = max(images, key=lambda pair: pair[0], default=(0.0, None))
    if highest[0] >= HIGH_B and highest[1] is not None:
        return highest[1], [f"high-b image acquired at b = {highest[0]:g} s/mm2"]
    grid, usable, slope, log_s0 = _decay(_choose(images))
    signal = np.where(usable, np.exp(np.where(usable, log_s0 + slope * HIGH_B, 0.0)), 0.0)
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
    positive = (stack > 0).all(axis=0)
    logs = np.log(np.where(positive, stack, 1.0)).mean(axis=0)
    return images[0].with_array(np.where(positive, np.exp(logs), 0.0).astype(np.float32))


def _b_values_text(images: list[tuple[float, Volume]]) -> str:
    b_values = sorted({float(b) for b, _ in _choose(images)})
    return f"b = {', '.join(f'{b:g}' for b in b_values)} s/mm2"


def _decay(used: list[tuple[float, Volume]]) -> tuple[Volume, np.ndarray, np.ndarray, np.ndarray]:
    """Fit ln S (S is the signal) against b in every voxel.

    Return the grid, a mask of the voxels that have a fit, the slope of ln S (mm2/s, negative for a
    decay), and ln S at b = 0.
    """
    grid = used[0][1]
    b = np.array([value for value, _ in used]).reshape(-1, 1, 1, 1)
    signals = np.stack([on_grid(v, grid).array.astype(float) for _, v in used])
    usable = np.isfinite(signals).all(axis=0) & (signals > 0).all(axis=0)
    if not usable.any():
        raise CadError("no voxel has a positive signal in every diffusion image")
    log_s = np.log(np.where(usable, signals, 1.0))
    fitted = log_s
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


def _choose(images: list[tuple[float, Volume]]) -> list[tuple[float, Volume]]:
    values = [float(b) for b, _ in images]
    if any(not b >= 0 for b in values):
        raise CadError(f"b-values must not be negative, found {values}")
    if len(set(values)) < 2:
        raise CadError(
            f"an ADC needs at least two different b-values, found {sorted(set(values))} s/mm2",
            hint="import the other diffusion images, or the scanner's ADC map",
        )
    best = []
    b_values = set()
    for b_value, image in images:
        if LOWEST_B <= b_value <= HIGHEST_B:
            best.append((b_value, image))
            b_values.add(b_value)
    return best if len(b_values) >= 2 else images
