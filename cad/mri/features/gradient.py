"""Compute the strength of edges: Sobel's in three dimensions in mm, Kirsch's in each slice.

Both strengths are computed only at the voxels of a mask. Beyond the image's border the nearest
voxel is repeated. Where all voxels around a voxel have the same value, both strengths are 0.
"""

from itertools import product

import numpy as np

# Places y, x of the eight neighbours in the 3 x 3 voxels around a voxel, in a circle.
_RING = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))


def sobel_map(
    image: np.ndarray, spacing: tuple[float, float, float], mask: np.ndarray
) -> np.ndarray:
    """Return the magnitude of the 3-D Sobel gradient.

    The gradient is the central difference along one axis, with weights 1 2 1 across the two other
    axes. A ramp of one unit per mm therefore gives 1 for any voxel size. An image of one slice has
    no gradient along z.

    Parameters
    ----------
    image : ndarray, shape (z, y, x)
        The image, in any unit.
    spacing : tuple of 3 floats
        Voxel size in mm along x, y, z.
    mask : ndarray of bool, shape (z, y, x)
        Voxels at which the result is computed.

    Returns
    -------
    ndarray of float, shape (z, y, x)
        The gradient, in the unit of the image per mm; NaN outside the mask.

    Examples
    --------
    >>> import numpy as np
    >>> ramp = np.broadcast_to(2.0 * np.arange(5.0), (5, 5, 5)).copy()
    >>> edges = sobel_map(ramp, (1.0, 1.0, 1.0), np.ones(ramp.shape, bool))
    >>> float(edges[2, 2, 2].round(3))
    2.0
    """
    cube = _neighbour_values(image, mask)  # its first three axes are z, y, x
    weight = (1.0, 2.0, 1.0)
    slopes = np.zeros((3, cube.shape[-1]))
    for a, b in product(range(3), repeat=2):
        # The products of the weights 1 2 1 along two axes have the sum 16. The central difference
        # spans two voxels, so that the divisor is 2 * 16 = 32.
        share = weight[a] * weight[b] / 32.0
        # Rows of ``slopes`` are the gradients along x, y and z.
        slopes[0] += share * (cube[a, b, 2] - cube[a, b, 0])
        slopes[1] += share * (cube[a, 2, b] - cube[a, 0, b])
        slopes[2] += share * (cube[2, a, b] - cube[0, a, b])
    gx, gy, gz = slopes / np.array(spacing)[:, None]
    out = np.full(image.shape, np.nan)
    out[mask] = np.sqrt(gx * gx + gy * gy + gz * gz)
    return out


def kirsch_map(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the largest response of Kirsch's eight compass kernels in a slice.

    The kernels are (5 5 5 / -3 0 -3 / -3 -3 -3) and its seven turns by 45 degrees.

    Parameters
    ----------
    image : ndarray, shape (z, y, x)
        The image, in any unit.
    mask : ndarray of bool, shape (z, y, x)
        Voxels at which the result is computed.

    Returns
    -------
    ndarray of float, shape (z, y, x)
        The response, in the unit of the image (not divided by a voxel size); NaN outside the mask.

    References
    ----------
    Kirsch, Comput Biomed Res 4 (1971) 315.

    Examples
    --------
    >>> import numpy as np
    >>> flat = np.ones((3, 4, 4))
    >>> float(np.nanmax(kirsch_map(flat, np.ones(flat.shape, bool))))
    0.0
    """
    plane = _neighbour_values(image, mask)[1]  # the voxel's own slice
    ring = [plane[y, x] for y, x in _RING]
    total = sum(ring)
    # The ring is the eight neighbours of a voxel in its slice. Each kernel of Kirsch weighs three
    # consecutive ``neighbours`` with 5 and the other five with -3. Its response is therefore 8
    # times the sum of the three, less 3 times the sum of all eight.
    responses = []
    for turn in range(8):
        neighbours = ring[turn] + ring[(turn + 1) % 8] + ring[(turn + 2) % 8]
        responses.append(8.0 * neighbours - 3.0 * total)
    out = np.full(image.shape, np.nan)
    out[mask] = np.max(responses, axis=0)
    return out


def _neighbour_values(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the 3 x 3 x 3 values around each of the n voxels of a mask, shape (3, 3, 3, n); beyond
    the image the value at the border is repeated.
    """
    # Along each axis, the indices of a voxel and its two neighbours, shape (3, n).
    steps = np.array([-1, 0, 1])[:, None]
    neighbours = []
    for position, size in zip(np.nonzero(mask), image.shape, strict=True):
        neighbours.append(np.clip(position + steps, 0, size - 1))
    z, y, x = neighbours
    # With an axis of their own for z, y and x, the indices give all 27 combinations.
    cube = image.astype(np.float32)[z[:, None, None], y[None, :, None], x[None, None, :]]
    return np.asarray(cube, float)
