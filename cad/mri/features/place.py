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

# Time after the arrival of the bolus in which the early peak of a curve is searched, seconds.
EARLY_S = 120.0
# Least time from the end of this early time to the last frame, seconds.
_LATE_S = 60
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
    # In axial slices the array's x, y and z axes run nearest to those of the patient, in this
    # order.
    if list(np.abs(direction).argmax(axis=0)) != [0, 1, 2]:
        return None
    upright_slices = _upright_slices(direction)
    whole = gland.array[upright_slices]
    region = inside[upright_slices]
    region_voxels = np.argwhere(region)
    z, y, x = region_voxels.mean(axis=0)
    gland_slices = np.flatnonzero(whole.any(axis=(1, 2)))
    # A slice goes from half a slice below its centre to half a slice above it.
    height = (z - gland_slices[0] + 0.5) / (gland_slices[-1] - gland_slices[0] + 1)
    level = _third(height, ("apex", "mid", "base"))

    # The place across the gland and from front to back is told on one slice: the slice of the gland
    # that is nearest to the region's centre. Voxels reach half a voxel beyond their centres.
    nearest_slice = gland_slices[np.abs(gland_slices - z).argmin()]
    gland_voxels = np.argwhere(whole[nearest_slice])
    low_y, low_x = gland_voxels.min(axis=0) - 0.5
    high_y, high_x = gland_voxels.max(axis=0) + 0.5
    v = (y - low_y) / (high_y - low_y)
    u = 2 * ((x - low_x) / (high_x - low_x)) - 1

    # The x axis points to the patient's left.
    share_left = float((region_voxels[:, 2] > (low_x + high_x) / 2).mean())
    side = "midline"
    if share_left >= ONE_SIDE:
        side = "left"
    elif share_left <= 1 - ONE_SIDE:
        side = "right"
    # A sector belongs to one half of the gland, also if the region lies across the midline.
    half = SIDES[int(u > 0)]
    sector = f"{half} {level} {sector_at(u, v, level, zone)}"
    return Place(side, level, sector, float(u), float(v))


def _upright_slices(direction: np.ndarray) -> tuple[slice, ...]:
    """Return the slices by which an array's z axis is turned to the head, its y axis to the back
    and its x axis to the patient's left.
    """
    turn = []
    for axis in (2, 1, 0):  # the axes of an array are z, y, x
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
    # In axial slices the array's x, y and z axes run nearest to those of the patient, in this
    # order.
    if list(np.abs(direction).argmax(axis=0)) != [0, 1, 2]:
        return None
    turned = labels.array[_upright_slices(direction)]
    n_slices, _, width = turned.shape
    # The label map is large and the regions are small. The map is therefore searched once, for the
    # voxels of all regions.
    places = np.argwhere(turned)
    labels_of_places = turned[tuple(places.T)]
    z, y, x = places[labels_of_places == label].mean(axis=0)
    # The stack begins half a slice below the centre of its first slice.
    height = (z + 0.5) / n_slices
    third = _third(height, ("lower", "middle", "upper"))
    left_mm = float((x - (width - 1) / 2) * labels.spacing[0])

    # The region is anterior or posterior of the middle between the foremost and the hindmost voxel
    # of all regions.
    y_of_places = places[:, 1]
    middle_y = (y_of_places.min() + y_of_places.max()) / 2
    centres = []
    for other_label in np.unique(labels_of_places):
        centres.append(y_of_places[labels_of_places == other_label].mean())
    depth = ""  # regions that lie at about the same depth cannot be told apart by it
    if (max(centres) - min(centres)) * labels.spacing[1] >= SAME_DEPTH_MM:
        depth = "anterior" if y < middle_y else "posterior"

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
    for slice_mask in inside[inside.any(axis=(1, 2))]:
        # The padding closes outlines at the edge of the image. In the mask, 1 is inside and 0 is
        # outside, so that the level 0.5 is the outline.
        outlines = find_contours(np.pad(slice_mask, 1).astype(float), 0.5)
        points = np.concatenate(outlines) * (spacing[1], spacing[0])  # y, x in mm
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
    voxels = np.argwhere(inside)
    if len(voxels) < MARK_VOXELS:
        return ""
    first = voxels.min(axis=0)
    end = voxels.max(axis=0) + 1
    if len(voxels) == np.prod(end - first):  # every voxel of the box around the region
        return "box"
    if end[0] - first[0] < MARK_SLICES:
        return ""
    box = np.pad(inside[first[0] : end[0], first[1] : end[1], first[2] : end[2]], 1)
    # Only voxels at the region's border, on either side of it, can contradict a ball.
    neighbourhood = np.ones((3, 3, 3), bool)
    just_outside = binary_dilation(box, neighbourhood) & ~box
    border_voxels = box & binary_dilation(just_outside, neighbourhood)
    steps = np.array(spacing[::-1])
    within = np.argwhere(border_voxels) * steps
    beyond = np.argwhere(just_outside) * steps
    return "ball" if _one_ball_separates(within, beyond) else ""


def _one_ball_separates(within: np.ndarray, beyond: np.ndarray) -> bool:
    """Tell whether a ball holds all points ``within`` and none of the points ``beyond``.

    Points are in mm, shape (n, 3). For a ball with centre c, let k be its squared radius less
    |c|^2. A point p lies in the ball if |p|^2 - 2 c p - k is at most 0, and outside if it is above
    0. This expression is linear in c and k, so that a linear program finds the ball that separates
    the two sets best.
    """
    # This import is slow, and few regions need it. It stands here, so that a worker process starts
    # faster.
    from scipy.optimize import linprog

    # Coordinates are taken from the middle of the points, because large squares would lose digits.
    middle = within.mean(axis=0)
    rows = []
    limits = []
    # The inequality of a point beyond the ball has the other direction, hence the sign.
    for points, sign in ((within - middle, 1.0), (beyond - middle, -1.0)):
        rows.append(sign * np.column_stack([-2 * points, -np.ones(len(points))]))
        limits.append(-sign * (points**2).sum(axis=1))
    coefficients = np.vstack(rows)
    # The last unknown is the gap by which all inequalities hold. It is made as wide as possible, up
    # to 1: without a limit, the gap of two sets that lie far apart would be unbounded.
    gap = np.ones((len(coefficients), 1))
    any_value = [(None, None)] * coefficients.shape[1]
    # The program minimises the negative gap, for which centre and radius may take any value.
    widest = linprog(
        c=np.append(np.zeros(coefficients.shape[1]), -1.0),
        A_ub=np.hstack([coefficients, gap]),
        b_ub=np.concatenate(limits),
        bounds=[*any_value, (None, 1.0)],
    )
    return bool(widest.status == 0 and widest.x[-1] > 0)  # status 0: the program was solved


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
    early_end = bolus.arrival + EARLY_S
    early = (times > bolus.arrival) & (times <= early_end)
    # The type compares an early frame with a late one. Without either there is no type.
    if not early.any() or times[-1] < early_end + _LATE_S:
        return None
    # Medians of three frames are taken, so that a single noisy frame decides neither the peak nor
    # the end.
    smooth = np.array([np.median(signal[max(i - 1, 0) : i + 2]) for i in range(len(signal))])
    peak = float(smooth[early].max())
    end = float(np.median(signal[-3:]))
    baseline = signal[: bolus.n_baseline].mean()
    if peak < baseline * (1 + LEVEL_CHANGE):  # tissue that hardly enhances has no type
        return None
    change = end / peak - 1
    if change > LEVEL_CHANGE:
        return 1
    if change < -LEVEL_CHANGE:
        return 3
    return 2
