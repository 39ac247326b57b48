"""Match the regions of a man's earlier study with the regions of his later study.

The T2 images of both studies are aligned rigidly (:mod:`cad.mri.imaging.registration`). The
coordinates of two examinations have no common origin. The search therefore starts twice: once with
the coordinates as they are, and once with the centres of both glands in one place (or the centres
of the images, if a gland mask is missing). The better result is used. Without a trustworthy
alignment there are no matches.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from cad.mri.imaging.registration import (
    RigidSearch,
    covered_share,
    moved,
    neighbourhood,
    search_rigid,
    shared_information,
)
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Volume

# Least share of the prostate and its surroundings that both T2 images must show. With a smaller
# share, the images show different parts of the body.
LEAST_COVERED = 0.5
# If a search for the alignment ends no farther from its start than this, the start itself was the
# best place.
STAYED_MM = 0.5
STAYED_DEG = 0.5
# Two aligned images of one man fit better than when one of them is moved. If one image is moved by
# OFF_MM along an axis, at most the share MOST_LEFT of the shared information may remain. In
# simulation this share is .95 or more for two different men, and .54 or less for two images of one
# man that differ in their noise.
OFF_MM = 5.0
MOST_LEFT = 0.9
# Largest distance (mm) of the centres of both gland masks after the alignment. With a larger
# distance, the images and the gland masks contradict each other.
GLANDS_MM = 10.0

State = Literal[
    "aligned",
    "no T2",
    "no overlap",
    "too far",
    "not improved",
    "no clear place",
    "glands apart",
    "failed",
]
"""Result of an alignment; only ``aligned`` gives matches."""


@dataclass(frozen=True, eq=False)
class EarlierAlignment:
    """Hold the alignment of an earlier study's T2 image to a later study's T2 image.

    Parameters
    ----------
    state : str
        ``aligned``, or why the alignment is not trusted (:data:`State`).
    matrix : ndarray, shape (4, 4)
        Rigid transform from coordinates of the earlier study to coordinates of the later study
        (LPS: left, back, head; mm). The identity matrix where no alignment was found.
    moved_mm, turned_deg : float or None
        Displacement of the middle of the compared region, and angle of the rotation; None where no
        search was made.
    """

    state: State
    matrix: np.ndarray
    moved_mm: float | None = None
    turned_deg: float | None = None


class NearestRegion(NamedTuple):
    """Hold the region of an earlier study that is nearest to a region of the later study.

    Parameters
    ----------
    roi_id : str
        The region of the earlier study.
    distance_mm : float
        Distance between the centres of the two regions, after the two studies were aligned.
    """

    roi_id: str
    distance_mm: float


def align_earlier(earlier: Study, later: Study) -> EarlierAlignment:
    """Align the T2 image of an earlier study to the T2 image of a later study.

    Parameters
    ----------
    earlier, later : Study
        T2 images, and gland masks or label maps where there are any.

    Returns
    -------
    EarlierAlignment
        The alignment is trusted only if four conditions hold. The images overlap. The search moved
        the image no farther than a man moves, and either improved the fit or found that the start
        was the best place. If the aligned image is moved by another 5 mm, it fits clearly worse.
        The glands' centres lie at most 10 mm apart.

    Raises
    ------
    CadError
        When an image is constant or the search fails.
    """
    not_aligned = np.eye(4)
    if earlier.t2w is None or later.t2w is None:
        return EarlierAlignment("no T2", not_aligned)
    region = neighbourhood(later, later.t2w)

    # The searches, each with the translation from which it starts
    searches: list[tuple[np.ndarray, RigidSearch]] = []
    for start in _first_translations(earlier, later):
        image = moved(earlier.t2w, start)
        if covered_share(image, later.t2w, region) >= LEAST_COVERED:
            searches.append((start, search_rigid(image, later.t2w, region, "earlier T2")))
    if not searches:
        return EarlierAlignment("no overlap", not_aligned)
    plausible = [(start, search) for start, search in searches if search.plausible]
    if not plausible:
        _, first_search = searches[0]
        return EarlierAlignment(
            "too far", not_aligned, first_search.shift_mm, first_search.angle_deg
        )

    # Of the plausible searches the one after which the images fit best
    start, search = max(plausible, key=lambda start_and_search: start_and_search[1].after)
    stayed = search.shift_mm <= STAYED_MM and search.angle_deg <= STAYED_DEG
    improved = search.after > search.before
    matrix = search.matrix @ start if improved else start
    moved_mm = _displacement(matrix, later.t2w, region)
    turned_deg = search.angle_deg if improved else 0.0  # the start is no rotation

    state: State = "aligned"
    if not (improved or stayed):
        state = "not improved"
    elif _left_beside(moved(earlier.t2w, matrix), later.t2w, region) > MOST_LEFT:
        state = "no clear place"
    elif _glands_apart(earlier, later, matrix) > GLANDS_MM:
        state = "glands apart"
    return EarlierAlignment(state, matrix, moved_mm, turned_deg)


def region_centres(study: Study) -> dict[str, np.ndarray]:
    """Return the centre of every region that has voxels, by ROI id.

    A centre has shape (3,), in mm to the patient's left, back and head (LPS).

    Parameters
    ----------
    study : Study
        Its label map holds the regions as drawn; without one the result is empty.
    """
    centres: dict[str, np.ndarray] = {}
    if study.roi_map is None:
        return centres
    for roi in study.rois:
        inside = study.roi_map.array == roi.label
        if inside.any():
            centres[roi.roi_id] = _centre(study.roi_map.with_array(inside))
    return centres


def nearest_regions(
    centres: Mapping[str, np.ndarray],
    earlier_centres: Mapping[str, np.ndarray],
    matrix: np.ndarray,
    limit_mm: float,
) -> dict[str, NearestRegion | None]:
    """Return the nearest region of an earlier study for every region of the later one.

    Parameters
    ----------
    centres, earlier_centres : mapping of str to ndarray, shape (3,)
        Centres of the regions (LPS mm) by ROI id, each in the coordinates of its study.
    matrix : ndarray, shape (4, 4)
        Transform from the earlier study's coordinates to the later study's.
    limit_mm : float
        Largest distance at which two centres match.

    Returns
    -------
    dict of str to NearestRegion or None
        By ROI id of the later study; None where no region lies within the limit. Of two regions at
        the same distance the first by ROI id is taken. Two regions of the later study may have the
        same nearest region.

    Examples
    --------
    >>> import numpy as np
    >>> now = {"1": np.zeros(3), "2": np.array([0.0, 40.0, 0.0])}
    >>> then = {"a": np.array([3.0, 4.0, 0.0])}
    >>> nearest_regions(now, then, np.eye(4), 10.0)
    {'1': NearestRegion(roi_id='a', distance_mm=5.0), '2': None}
    """
    matches: dict[str, NearestRegion | None] = {}
    for roi_id, centre in centres.items():
        nearest: NearestRegion | None = None
        for earlier_id in sorted(earlier_centres):
            place_in_later = (matrix @ np.append(earlier_centres[earlier_id], 1.0))[:3]
            distance_mm = float(np.linalg.norm(place_in_later - centre))
            if distance_mm <= limit_mm and (nearest is None or distance_mm < nearest.distance_mm):
                nearest = NearestRegion(earlier_id, distance_mm)
        matches[roi_id] = nearest
    return matches


def _first_translations(earlier: Study, later: Study) -> list[np.ndarray]:
    """Return the translations (4 x 4 matrices) from which the search for the alignment starts."""
    as_it_lies = np.eye(4)
    centres_together = np.eye(4)
    if earlier.gland is not None and later.gland is not None:
        centres_together[:3, 3] = _centre(later.gland) - _centre(earlier.gland)
    elif earlier.t2w is not None and later.t2w is not None:
        centres_together[:3, 3] = later.t2w.centre - earlier.t2w.centre
    # From nearly the same start, a second search would find the same place.
    if np.linalg.norm(centres_together[:3, 3]) < STAYED_MM:
        return [as_it_lies]
    return [as_it_lies, centres_together]


def _centre(mask: Volume) -> np.ndarray:
    """Return the mean position (LPS mm) of the voxels that are not zero."""
    mean_index = np.argwhere(mask.array != 0).mean(axis=0)  # along z, y, x
    return mask.index_to_patient(mean_index[::-1])


def _displacement(matrix: np.ndarray, fixed: Volume, region: np.ndarray) -> float:
    """Return how far (mm) a transform moves the point that it brings to the region's middle."""
    middle = np.append(_centre(fixed.with_array(region)), 1.0)
    before = np.linalg.inv(matrix) @ middle
    return float(np.linalg.norm((middle - before)[:3]))


def _left_beside(image: Volume, fixed: Volume, region: np.ndarray) -> float:
    """Return the largest share of two images' mutual information that is left after a move by 5 mm.

    ``image`` is moved to either side along each of the three axes. The result is infinite if the
    images share no information.
    """
    as_it_lies = shared_information(image, fixed, region)
    if as_it_lies <= 0:
        return np.inf
    largest_beside = 0.0
    for axis in range(3):
        for step_mm in (OFF_MM, -OFF_MM):
            off = np.eye(4)
            off[axis, 3] = step_mm
            beside = shared_information(moved(image, off), fixed, region)
            largest_beside = max(largest_beside, beside)
    return largest_beside / as_it_lies


def _glands_apart(earlier: Study, later: Study, matrix: np.ndarray) -> float:
    """Return the distance (mm) of the glands' centres after alignment; 0 if a mask is missing."""
    if earlier.gland is None or later.gland is None:
        return 0.0
    place_in_later = (matrix @ np.append(_centre(earlier.gland), 1.0))[:3]
    return float(np.linalg.norm(place_in_later - _centre(later.gland)))
