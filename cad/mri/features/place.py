"""Describe a region as a radiologist's report does: side, level, sector, diameter, curve type.

Nothing here is a feature: no learner gets it. Side, level and sector are estimated from the box
around the gland mask on the region's slice, and the patient's page calls them estimates. If
``rois.tsv`` states a ``sector``, it takes precedence over the estimate.
"""

from typing import NamedTuple

import numpy as np
from scipy.ndimage import binary_dilation
from skimage.measure import find_contours

from cad.base.errors import CadError
from cad.base.terms.sectors import SIDES, sector_at
from cad.mri.features.perfusion.semiquantitative import find_bolus
from cad.mri.features.size import largest_distance
from cad.mri.imaging.volume import Volume

# A region is called left or right if at least this share of its voxels is on this side.
ONE_SIDE = 0.75

EARLY_S = 120.0
LEVEL_CHANGE = 0.10
"""A curve is a plateau (type 2) if it changes by less than this share from early peak to end."""


class Place(NamedTuple):
    """Hold an estimate of where a region lies in the gland.

    Parameters
    ----------
    side : str
        ``left``, ``right`` or ``midline``.
    level : str
        ``base``, ``mid`` or ``apex``.
    sector : str
        PI-RADS sector with half and level, such as ``left mid PZpl``.
    u, v : float
        The region's centre in the box around the gland: u goes from -1 (the patient's right) to 1
        (his left), v from 0 (front) to 1 (back).
    """

    side: str
    level: str
    sector: str
    u: float
    v: float


def place_of(gland: Volume, inside: np.ndarray, zone: str = "") -> Place | None:
    """Estimate where a region lies; None where the slices are not axial.

    Parameters
    ----------
    gland : Volume of bool
        Mask of the gland, on the grid of the region.
    inside : ndarray of bool, shape (n_slices, H, W)
        Mask of the region.
    zone : str
        ``PZ``, ``TZ``, ``CZ`` or ``AFS`` as ``rois.tsv`` states it; empty where no zone is stated.

    Returns
    -------
    Place or None
        Side, level and PI-RADS sector of the region, and its centre in the box around the gland,
        from -1 to 1 across and from 0 to 1 from front to back. None where the slices are not axial.

    Examples
    --------
    A gland of nine slices, and a region behind and to the left on the middle slice:

    >>> import numpy as np
    >>> gland = Volume(np.ones((9, 8, 8), bool), (5.0, 5.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> inside = np.zeros((9, 8, 8), bool)
    >>> inside[4, 7, 6] = True
    >>> place = place_of(gland, inside, "PZ")
    >>> place.side, place.level, place.sector
    ('left', 'mid', 'left mid PZpl')
    """
    direction = np.asarray(gland.direction, float)
    if list(np.abs(direction).argmax(axis=0)) != [0, 1, 2]:
        return None
    turn = _upright_slices(direction)
    whole = gland.array[turn]
    region = inside[turn]
    z, y, x = np.argwhere(region).mean(axis=0)
    slices = np.flatnonzero(whole.any(axis=(1, 2)))
    height = (z - slices[0] + 0.5) / (slices[-1] - slices[0] + 1)
    level = _third(height, ("apex", "mid", "base"))
    voxels = np.argwhere(whole[slices[np.abs(slices - z).argmin()]])
    low = voxels.min(axis=0) - 0.5
    high = voxels.max(axis=0) + 0.5
    v, across = (np.array([y, x]) - low) / (high - low)
    u = 2 * across - 1
    share_left = float((np.argwhere(region)[:, 2] > (low[1] + high[1]) / 2).mean())
    side = "midline"
    if share_left >= ONE_SIDE:
        side = "left"
    elif share_left <= 1 - ONE_SIDE:
        side = "right"
    half = SIDES[int(u > 0)]
    sector = f"{half} {level} {sector_at(u, v, level, zone)}"
    return Place(side, level, sector, float(u), float(v))


def _upright_slices(direction: np.ndarray) -> tuple[slice, ...]:
    """Return the slices by which an array's z axis is turned to the head, its y axis to the back
    and its x axis to the patient's left.
    """
    turn = []
    for axis in (2, 1, 0):
        step = -1 if direction[axis, axis] < 0 else 1
        turn.append(slice(None, None, step))
    return tuple(turn)


def _third(height: float, names: tuple[str, str, str]) -> str:
    """Return the first name for a height in the lowest third, the second in the middle third, else
    the last; the height runs from 0 (feet) to 1.
    """
    if height < 1 / 3:
        return names[0]
    if height < 2 / 3:
        return names[1]
    return names[2]


NEAR_MIDLINE_MM = 5.0
"""A region whose centre lies nearer to the image's midline than this has no side."""
SAME_DEPTH_MM = 8.0
"""If the centres of a study's regions differ by less than this from front to back, no region is
called anterior or posterior.
"""


class ImagePlace(NamedTuple):
    """Hold where a region lies in its image, for a study without a gland mask.

    Parameters
    ----------
    side : str
        ``left``, ``right`` or ``midline`` of the image.
    left_mm : float
        Distance of the region's centre from the image's midline, mm; negative on the patient's
        right.
    third : str
        ``lower``, ``middle`` or ``upper`` third of the stack of slices.
    depth : str
        ``anterior`` or ``posterior`` half of the box around all regions; empty where the box is too
        shallow to tell.
    """

    side: str
    left_mm: float
    third: str
    depth: str


def place_in_image(labels: Volume, label: int) -> ImagePlace | None:
    """Say where a region lies in its image; None where the slices are not axial.

    The place in the image is not a place in the gland. The operator of the scanner chose where the
    image's midline lies, and the thirds of the stack of slices are not the thirds of the gland.

    Parameters
    ----------
    labels : Volume of int
        Label map of all regions, on the grid of the image.
    label : int
        The region's value; it has at least one voxel.

    Returns
    -------
    ImagePlace or None
        Side, distance from the image's midline (mm), third of the stack of slices, and half from
        front to back of the box around all regions. None where the slices are not axial.
    """
    direction = np.asarray(labels.direction, float)
    if list(np.abs(direction).argmax(axis=0)) != [0, 1, 2]:
        return None
    turned = labels.array[_upright_slices(direction)]
    n_slices, _, width = turned.shape
    # The label map is large and the regions are small. The map is therefore searched once, for the
    # voxels of all regions.
    places = np.argwhere(turned)
    labels_of_places = turned[tuple(places.T)]
    z, y, x = places[labels_of_places == label].mean(axis=0)
    height = (z + 0.5) / n_slices
    third = _third(height, ("lower", "middle", "upper"))
    left_mm = float((x - (width - 1) / 2) * labels.spacing[0])
    rows = places[:, 1]
    middle = (rows.min() + rows.max()) / 2
    centres = []
    for each in np.unique(labels_of_places):
        centres.append(rows[labels_of_places == each].mean())
    depth = ""
    if (max(centres) - min(centres)) * labels.spacing[1] >= SAME_DEPTH_MM:
        depth = "anterior" if y < middle else "posterior"
    side = "midline"
    if abs(left_mm) >= NEAR_MIDLINE_MM:
        side = "left" if left_mm > 0 else "right"
    return ImagePlace(side, left_mm, third, depth)


def axial_diameter(inside: np.ndarray, spacing: tuple[float, float]) -> float:
    """Return the largest distance (mm) of two points of a region's outline within one slice.

    Parameters
    ----------
    inside : ndarray of bool, shape (n_slices, H, W)
        The region; the outline runs half a voxel beyond the centres.
    spacing : (float, float)
        Voxel size along x and y, mm.

    Examples
    --------
    >>> import numpy as np
    >>> inside = np.zeros((1, 5, 9), bool)
    >>> inside[0, 2, 1:8] = True
    >>> axial_diameter(inside, (0.5, 0.5))
    3.5
    """
    largest = 0.0
    for layer in inside[inside.any(axis=(1, 2))]:
        outlines = find_contours(np.pad(layer, 1).astype(float), 0.5)
        points = np.concatenate(outlines) * (spacing[1], spacing[0])
        largest = max(largest, largest_distance(points))
    return largest


MARK_VOXELS = 100
MARK_SLICES = 3
"""Fewest voxels, and fewest slices, of a region that is tested: a smaller one may be a ball by
chance.
"""


def drawn_as(inside: np.ndarray, spacing: tuple[float, float, float]) -> str:
    """Tell whether a region is a mark of fixed shape, and not an outline that a person drew.

    A mark is made by a rule: it holds every voxel of a box, or exactly the voxels whose centres lie
    within a ball. An outline that a person draws is neither.

    Parameters
    ----------
    inside : ndarray of bool, shape (n_slices, H, W)
        Mask of the region.
    spacing : (float, float, float)
        Voxel size along x, y and z, mm.

    Returns
    -------
    str
        ``ball`` or ``box``; an empty text for a drawn outline and for a region too small to tell.

    Examples
    --------
    >>> import numpy as np
    >>> z, y, x = np.indices((5, 21, 21)) - np.array([2, 10, 10]).reshape(3, 1, 1, 1)
    >>> spacing = (0.5, 0.5, 3.0)
    >>> drawn_as((3.0 * z) ** 2 + (0.5 * y) ** 2 + (0.5 * x) ** 2 <= 4.0**2, spacing)
    'ball'
    >>> drawn_as((3.0 * z) ** 2 + (0.6 * y) ** 2 + (0.5 * x) ** 2 <= 4.0**2, spacing)
    ''
    """
    index = np.argwhere(inside)
    if len(index) < MARK_VOXELS:
        return ""
    low = index.min(axis=0)
    high = index.max(axis=0) + 1
    if len(index) == np.prod(high - low):
        return "box"
    if high[0] - low[0] < MARK_SLICES:
        return ""
    box = np.pad(inside[low[0] : high[0], low[1] : high[1], low[2] : high[2]], 1)
    cells = np.ones((3, 3, 3), bool)
    rim = binary_dilation(box, cells) & ~box
    edge = box & binary_dilation(rim, cells)
    steps = np.array(spacing[::-1])
    return "ball" if _ball_parts(np.argwhere(edge) * steps, np.argwhere(rim) * steps) else ""


def _ball_parts(within: np.ndarray, beyond: np.ndarray) -> bool:
    """Tell whether a ball holds all points of one set and none of another.

    For a ball with centre c, let k be its squared radius less |c|^2. A point p lies in the ball if
    |p|^2 - 2 c p - k is at most 0, and outside if it is above 0. This expression is linear in c and
    k, so that a linear program finds the ball that separates the two sets best.
    """
    # This import is slow, and few regions need it. It stands here, so that a worker process starts
    # faster.
    from scipy.optimize import linprog

    middle = within.mean(axis=0)
    rows = []
    limits = []
    for points, sign in ((within - middle, 1.0), (beyond - middle, -1.0)):
        rows.append(sign * np.column_stack([-2 * points, -np.ones(len(points))]))
        limits.append(-sign * (points**2).sum(axis=1))
    left = np.vstack(rows)
    gap = np.ones((len(left), 1))
    free = [(None, None)] * left.shape[1]
    widest = linprog(
        np.append(np.zeros(left.shape[1]), -1.0),
        np.hstack([left, gap]),
        np.concatenate(limits),
        bounds=[*free, (None, 1.0)],
    )
    return bool(widest.status == 0 and widest.x[-1] > 0)


def curve_type(times: np.ndarray, signal: np.ndarray) -> int | None:
    """Return the type of an enhancement curve: 1 (still rising), 2 (plateau) or 3 (wash-out).

    The end of the curve is compared with its peak in the first two minutes after the bolus arrived.
    If the end is 10 % higher than this peak, the type is 1. If it is 10 % lower, the type is 3
    (Kuhl et al., Radiology 211 (1999) 101).

    Parameters
    ----------
    times : ndarray, shape (n_times,)
        Times of the frames, seconds.
    signal : ndarray, shape (n_times,)
        Mean signal of the region, any unit.

    Returns
    -------
    int or None
        None where no bolus is found, or where the curve rises by less than 10 % in the two minutes
        after the bolus arrived. Also None where the curve ends less than one minute after these two
        minutes, or has no frame in them.

    Examples
    --------
    >>> import numpy as np
    >>> times = np.arange(0.0, 300.0, 10.0)
    >>> rising = 100.0 + np.clip(times - 30.0, 0.0, None)
    >>> curve_type(times, rising)
    1
    """
    times = np.asarray(times, float)
    signal = np.asarray(signal, float)
    try:
        bolus = find_bolus(times, signal)
    except CadError:  # without a bolus, a curve has no type
        return None
    early = (times > bolus.arrival) & (times <= bolus.arrival + EARLY_S)
    if not early.any() or times[-1] < bolus.arrival + EARLY_S + 60:
        return None
    smooth = np.array([np.median(signal[max(i - 1, 0) : i + 2]) for i in range(len(signal))])
    peak = float(smooth[early].max())
    end = float(np.median(signal[-3:]))
    if peak < signal[: bolus.n_baseline].mean() * (1 + LEVEL_CHANGE):
        return None
    change = end / peak - 1
    return 1 if change > LEVEL_CHANGE else 3 if change < -LEVEL_CHANGE else 2
