"""Simulate the way from tissue to stored image: k-space sampling, noise, motion, distortion."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.fft import fft2, ifft2

from cad.evidence.phantom.params import DRIFT_MM_MIN, JUMP_MM, JUMP_SHARE

# Shares of k-space that are sampled along phase (y) and readout (x). Scanners commonly use a phase
# resolution of 75 to 80 %.
_PHASE = 0.80
_READOUT = 1.0
# Where the filter against ringing begins, as a share of the sampled part of k-space. The filter has
# an elliptical window, as is common in scanners.
_FLAT = 0.5
# Full width at half maximum of a Gaussian, in standard deviations.
_FWHM = 2.0 * np.sqrt(2.0 * np.log(2.0))


class Worsening(NamedTuple):
    """Hold by how much one kind of image is worse than the site's protocol makes it.

    Parameters
    ----------
    blur_mm : float
        Full width at half maximum (FWHM) of a Gaussian in the slice, mm. The signal is blurred with
        it before noise comes in. 0 blurs nothing.
    noise : float
        Standard deviation of noise that is added to the protocol's noise, in the real and in the
        imaginary part of the image. It is a share of the signal of the normal peripheral zone (PZ):
        in T2, in the diffusion image of the low b-value and in the dynamic series before the
        contrast agent. The diffusion image of the high b-value and the flip-angle images get half
        of it, as they have half of the protocol's noise. 0 adds nothing.
    interpolation : float
        How many times as many voxels the maker's reconstruction stores as were sampled, along x and
        along y. The added noise has no detail finer than the sampled voxels, and is therefore
        correlated between stored voxels. With 1 it has all the detail of an elliptically sampled
        image.
    """

    blur_mm: float = 0.0
    noise: float = 0.0
    interpolation: float = 1.0


UNCHANGED = Worsening()


def acquire(
    clean: np.ndarray,
    sd: float,
    rng: np.random.Generator,
    moved: tuple[float, float] = (0.0, 0.0),
    blur: np.ndarray | None = None,
    added: np.ndarray | None = None,
) -> np.ndarray:
    """Return the magnitude image of a noise-free signal, blurred, with correlated Rician noise.

    Parameters
    ----------
    clean : ndarray, shape (z, y, x)
        Signal without noise.
    sd : float
        Standard deviation of the noise in the real and in the imaginary part of the image.
    rng : Generator
        Source of the random noise.
    moved : (float, float)
        Voxels along y and x by which the patient has moved.
    blur : ndarray, shape (y, x), optional
        Factor on the signal's k-space before noise is added, such as :func:`blur_filter` returns.
    added : ndarray of complex, shape (z, y, x), optional
        Noise that is added to the image before its magnitude is taken, such as
        :func:`interpolated_noise` returns.

    Returns
    -------
    ndarray of float32, shape (z, y, x)

    Examples
    --------
    Where there is no signal, only the magnitude of noise is left; its mean is 1.25 standard
    deviations:

    >>> import numpy as np
    >>> clean = np.zeros((4, 64, 64))
    >>> image = acquire(clean, 2.0, np.random.default_rng(0))
    >>> round(float(image.mean()), 1), image.shape
    (2.5, (4, 64, 64))
    """
    n_y, n_x = clean.shape[-2:]
    window = _k_space_filter((n_y, n_x))
    noise = rng.standard_normal((2, *clean.shape), dtype=np.float32)
    # White noise (independent from voxel to voxel) is white in k-space, too. It is added in k-space
    # before the filter, so that the filter correlates the noise of neighbouring voxels. The filter
    # removes a part of the noise, so it is made stronger by that part.
    left_by_filter = float(np.sqrt(np.mean(window**2)))
    scale = np.float32(sd / left_by_filter * np.sqrt(n_y * n_x))
    k_space = fft2(clean.astype(np.complex64))
    if any(moved):
        # To shift the image along y and x, k-space is multiplied by phase factors.
        moved_y, moved_x = moved
        phase_y = np.fft.fftfreq(n_y)[:, None] * moved_y
        phase_x = np.fft.fftfreq(n_x) * moved_x
        k_space *= np.exp(-2j * np.pi * (phase_y + phase_x)).astype(np.complex64)
    if blur is not None:
        k_space *= blur
    k_space.real += scale * noise[0]
    k_space.imag += scale * noise[1]
    image = ifft2(k_space * window, overwrite_x=True)
    if added is not None:
        image += added
    return np.asarray(np.abs(image))


def blur_filter(shape: tuple[int, int], spacing: tuple[float, float], fwhm_mm: float) -> np.ndarray:
    """Return the factor by which k-space is multiplied to blur a slice with a Gaussian.

    Parameters
    ----------
    shape : (n_y, n_x)
        Number of voxels of the slice.
    spacing : (y, x)
        Voxel size, mm.
    fwhm_mm : float
        Full width at half maximum of the Gaussian, mm.

    Returns
    -------
    ndarray of float32, shape (n_y, n_x)

    Examples
    --------
    The mean of the slice is kept, and the finest detail along y is lost:

    >>> factor = blur_filter((8, 8), (1.0, 1.0), 3.0)
    >>> float(factor[0, 0]), bool(factor[4, 0] < 0.001)
    (1.0, True)
    """
    # Frequencies in 1/mm. The transform of a Gaussian is a Gaussian.
    y = np.fft.fftfreq(shape[0], spacing[0])[:, None]
    x = np.fft.fftfreq(shape[1], spacing[1])
    sd_mm = fwhm_mm / _FWHM
    exponent = -2.0 * (np.pi * sd_mm) ** 2 * (y**2 + x**2)
    return np.asarray(np.exp(exponent).astype(np.float32))


def interpolated_noise(
    shape: tuple[int, int, int], sd: float, interpolation: float, rng: np.random.Generator
) -> np.ndarray:
    """Return complex noise as it lies in an image that a maker's reconstruction has enlarged.

    A scanner samples an ellipse of k-space. To enlarge the image, the reconstruction fills the rest
    of a larger k-space with zeros. So the noise is white within the ellipse, and absent outside.

    Parameters
    ----------
    shape : (n_z, n_y, n_x)
        Number of voxels of the stored image.
    sd : float
        Standard deviation of the noise in the real and in the imaginary part.
    interpolation : float
        Stored voxels for each sampled voxel, along x and along y, at least 1.
    rng : Generator
        Source of the random noise.

    Returns
    -------
    ndarray of complex64, shape (n_z, n_y, n_x)

    Notes
    -----
    The correlation of two voxels at a distance of d voxels along an axis is 2 J1(u) / u with u = pi
    d / interpolation and the Bessel function J1: about .18 for neighbours without interpolation,
    and .72 where the image was enlarged twofold.

    Examples
    --------
    >>> import numpy as np
    >>> noise = interpolated_noise((4, 64, 64), 3.0, 2.0, np.random.default_rng(0))
    >>> near = np.corrcoef(noise.real[:, :, :-1].ravel(), noise.real[:, :, 1:].ravel())[0, 1]
    >>> round(float(noise.real.std())), round(float(near), 1)
    (3, 0.7)
    """
    n_y, n_x = shape[1:]
    real, imaginary = rng.standard_normal((2, *shape), dtype=np.float32)
    # White noise in k-space, without the frequencies that are not sampled. The highest frequency of
    # the stored image is one half.
    y = np.fft.fftfreq(n_y)[:, None]
    x = np.fft.fftfreq(n_x)
    sampled = np.sqrt(y**2 + x**2) <= 0.5 / interpolation
    k_space = (real + 1j * imaginary) * sampled
    # Only the sampled share of k-space has noise. The noise there is stronger, so that the image
    # has the standard deviation that is asked for.
    scale = np.float32(sd * np.sqrt(n_y * n_x / sampled.mean()))
    return np.asarray(ifft2(scale * k_space, overwrite_x=True))


def distort(image: np.ndarray, shift_mm: np.ndarray | None, spacing_y: float) -> np.ndarray:
    """Return an echo-planar image with each voxel's signal displaced along y.

    Signal piles up where several voxels are displaced to one place.

    Parameters
    ----------
    image : ndarray, shape (z, y, x)
        The image: signal of every voxel.
    shift_mm : ndarray, shape (z, y, x), or None
        Displacement of each voxel towards higher y, mm; None leaves the image as it is.
    spacing_y : float
        Voxel size along y, mm.

    Returns
    -------
    ndarray, shape (z, y, x)
        The displaced signal; ``image`` itself where ``shift_mm`` is None.

    Examples
    --------
    Everything moves by one voxel of 2 mm to higher y, and the edge is repeated:

    >>> import numpy as np
    >>> image = np.array([[[1.0], [2.0], [3.0], [4.0]]])
    >>> distort(image, np.full(image.shape, 2.0), 2.0).ravel().tolist()
    [1.0, 1.0, 2.0, 3.0]
    """
    if shift_mm is None:
        return image
    shift = shift_mm / spacing_y  # voxels
    # The signal that is seen at a voxel comes from a place at lower y. The displacement is read at
    # the voxel and not at that place. The two displacements are nearly equal, because the field of
    # displacements is smooth.
    n_y = image.shape[1]
    source = np.clip(np.arange(n_y)[None, :, None] - shift, 0, n_y - 1)
    # Linear interpolation between the voxel below the source and the next one.
    below = np.minimum(source.astype(int), n_y - 2)
    fraction = source - below
    moved = np.take_along_axis(image, below, 1) * (1 - fraction)
    moved += np.take_along_axis(image, below + 1, 1) * fraction
    # Where the displacement becomes smaller with y, the signals of several voxels come to one place
    # and add up. The last factor stands for this.
    return np.asarray(moved * (1 - np.gradient(shift, axis=1)))


def draw_motion(rng: np.random.Generator, times: np.ndarray) -> np.ndarray:
    """Draw how far the patient has moved at each frame: a slow drift, and sometimes a jump.

    Parameters
    ----------
    rng : Generator
        Source of the random draws.
    times : ndarray, shape (n_frames,)
        Times of the frames, seconds.

    Returns
    -------
    ndarray, shape (n_frames, 2)
        Displacement along x and y, mm.

    Examples
    --------
    This patient does not jump. At 0 s he has not moved, and his drift is even:

    >>> import numpy as np
    >>> path = draw_motion(np.random.default_rng(1), np.array([0.0, 60.0, 120.0]))
    >>> path[0].tolist(), np.allclose(path[2], 2 * path[1])
    ([0.0, 0.0], True)
    """
    path: np.ndarray = rng.normal(0, DRIFT_MM_MIN) * times[:, None] / 60.0
    # The jump is drawn for every man, so that all take the same number of draws.
    jump = rng.normal(0, JUMP_MM, 2)
    time_of_jump = rng.uniform(times[0], times[-1])
    if rng.random() < JUMP_SHARE:
        path = path + jump * (times[:, None] >= time_of_jump)
    return path


@lru_cache(maxsize=8)
def _k_space_filter(shape: tuple[int, int]) -> np.ndarray:
    """Return the filter by which k-space (y, x) is multiplied: an ellipse with a cosine edge."""
    # Frequencies as shares of the sampled part: 1 is its border.
    y = np.fft.fftfreq(shape[0])[:, None] / (0.5 * _PHASE)
    x = np.fft.fftfreq(shape[1]) / (0.5 * _READOUT)
    # 0 where the filter is flat, 1 at the border of the sampled part and beyond.
    edge = np.clip((np.sqrt(y**2 + x**2) - _FLAT) / (1 - _FLAT), 0, 1)
    return (0.5 * (1 + np.cos(np.pi * edge))).astype(np.float32)
