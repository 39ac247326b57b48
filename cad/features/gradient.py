"""Gradient magnitude: Sobel in 3-D with the voxels' spacing, Kirsch in the slices.

Both are computed only at the voxels that are asked for; beyond the image's border the nearest voxel
is repeated. In a constant neighbourhood both are 0.
"""

import math

import numpy as np
from numba import njit

GRADIENTS = ("sobel", "kirsch")


def sobel_map(
    image: np.ndarray, spacing: tuple[float, float, float], mask: np.ndarray
) -> np.ndarray:
    """Return the magnitude of the 3-D Sobel gradient.

    Central difference along one axis, weights 1 2 1 across the two others, so that a ramp of one
    unit per mm gives 1 whatever the voxel size. An image of one slice has no gradient along z.

    Parameters
    ----------
    image : ndarray, shape (z, y, x)
        Any unit.
    spacing : tuple of 3 floats
        mm along x, y, z.
    mask : ndarray of bool, shape (z, y, x)
        Where to compute.

    Returns
    -------
    ndarray of float, shape (z, y, x)
        Image unit per mm; NaN outside the mask.
    """
    out = np.full(image.shape, np.nan)
    _sobel(
        np.ascontiguousarray(image, np.float32), np.array(spacing, float), np.flatnonzero(mask), out
    )
    return out


def kirsch_map(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the largest response of Kirsch's eight compass kernels in a slice.

    The kernels are (5 5 5 / -3 0 -3 / -3 -3 -3) and its seven turns by 45 degrees.

    Parameters
    ----------
    image : ndarray, shape (z, y, x)
        Any unit.
    mask : ndarray of bool, shape (z, y, x)
        Where to compute.

    Returns
    -------
    ndarray of float, shape (z, y, x)
        Image unit, not divided by the voxel size; NaN outside the mask.

    References
    ----------
    Kirsch, Comput Biomed Res 4 (1971) 315.
    """
    out = np.full(image.shape, np.nan)
    _kirsch(np.ascontiguousarray(image, np.float32), np.flatnonzero(mask), out)
    return out


@njit(cache=True)
def _sobel(image: np.ndarray, spacing: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    nz, ny, nx = image.shape
    # The 27 neighbours are gathered once for the three axes; the border voxel is repeated.
    cube = np.empty((3, 3, 3))
    weight = np.array([1.0, 2.0, 1.0])
    for i in index:
        z, rest = i // (ny * nx), i % (ny * nx)
        y, x = rest // nx, rest % nx
        for a in range(3):
            for b in range(3):
                for c in range(3):
                    cube[a, b, c] = image[
                        min(max(z + a - 1, 0), nz - 1),
                        min(max(y + b - 1, 0), ny - 1),
                        min(max(x + c - 1, 0), nx - 1),
                    ]
        gx = gy = gz = 0.0
        for a in range(3):
            for b in range(3):
                # 1/16 for the weights 1 2 1 squared, 1/2 for the central difference.
                w = weight[a] * weight[b] / 32.0
                gz += w * (cube[2, a, b] - cube[0, a, b])
                gy += w * (cube[a, 2, b] - cube[a, 0, b])
                gx += w * (cube[a, b, 2] - cube[a, b, 0])
        gx, gy, gz = gx / spacing[0], gy / spacing[1], gz / spacing[2]
        out[z, y, x] = math.sqrt(gx * gx + gy * gy + gz * gz)


@njit(cache=True)
def _kirsch(image: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    _, ny, nx = image.shape
    ring_y = np.array([-1, -1, -1, 0, 1, 1, 1, 0])
    ring_x = np.array([-1, 0, 1, 1, 1, 0, -1, -1])
    ring = np.empty(8)
    for i in index:
        z, rest = i // (ny * nx), i % (ny * nx)
        y, x = rest // nx, rest % nx
        total = 0.0
        for k in range(8):
            yy = min(max(y + ring_y[k], 0), ny - 1)
            xx = min(max(x + ring_x[k], 0), nx - 1)
            ring[k] = image[z, yy, xx]
            total += ring[k]
        best = -np.inf
        for k in range(8):
            # 5 on three neighbours in a row, -3 on the other five: 8 (the three) - 3 (all eight).
            three = ring[k] + ring[(k + 1) % 8] + ring[(k + 2) % 8]
            best = max(best, 8.0 * three - 3.0 * total)
        out[z, y, x] = best
