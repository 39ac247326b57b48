"""Check that a study's images, regions and gland belong to one man and are the right way up.

Often no header states this, and only the images can show it. The checks rest on three facts. Two
images of one man share more information in their true places than when one of them is turned or
moved. A region lies in the gland in which it was drawn. A gland and a field of view have plausible
sizes. The page docs/import.md has the limits, and says how often a sound study fails a check.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from cad.base.errors import CadError
from cad.mri.imaging.drawn import Drawn, fill, gland_on, require_measurable
from cad.mri.imaging.geometry import resample_image, resample_mask
from cad.mri.imaging.standardise import foreground
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Volume

# Least share of a lesion's volume that lies in the gland; if there is no gland mask, the least
# share that lies in the body.
IN_GLAND = 0.7
IN_BODY = 0.5
# A region that covers more than this share of the gland is taken for an outline of the gland
# itself. A lesion can fill 77 % of a small gland.
OF_GLAND = 0.85
_BINS = 24  # of the values of an image, for its mutual information with another image
# Least number of voxels for a comparison of two images. By chance alone, two independent images of
# n voxels, with 24 bins each, share (24 - 1)^2 / 2n nats of information. With this number of voxels
# that is .05 nats, as much as images of some tissues share.
_LEAST_VOXELS = 5000
_LEAST_GLAND = 100  # least number of voxels for a correlation of two images in the gland
# Least number of voxels for a comparison of an image with the gland mask. The mask has two classes,
# inside and beside the gland, which need fewer voxels than 24 bins.
_LEAST_BESIDE = 2000
_BESIDE_MM = 8.0  # width of the rim around the gland with which the gland is compared
_COARSE_MM = 1.5  # size of the voxels of this comparison, which finer ones would only slow down
# Distance by which an image is moved, to compare how it fits in another place. An image that lies
# this far from its place changes probabilities. Most distortions of diffusion images are smaller.
_MOVE_MM = 5.0


def strays(study: Study) -> dict[str, CadError]:
    """Return the regions that cannot be lesions of the study's gland, with the reason, by ROI id.

    Less than 70 % of such a region lie in the gland (without a gland mask, less than 50 % in the
    body), or it covers more than 85 % of the gland.

    Parameters
    ----------
    study : Study
        Study with a label map. Its regions are compared with the gland mask; without one, with
        the body in the T2 image; without both, the result is empty.
    """
    labels = study.roi_map
    # ``inside`` has the share of each voxel of the label map that the gland or the body fills.
    if labels is None:
        return {}
    if study.gland is not None:
        inside = fill(study.gland, labels).share
        least_share = IN_GLAND
        where = "the gland"
        gland_ml = study.gland.millilitres
    elif study.t2w is not None:
        body = study.t2w.with_array(foreground(study.t2w))
        inside = fill(body, labels).share
        least_share = IN_BODY
        where = "tissue (T2)"
        gland_ml = math.inf  # of a gland that is not known, a region is no share
    else:
        return {}
    problems = {}
    for roi in study.rois:
        region = labels.array == roi.label
        if not region.any():  # an empty region is reported elsewhere
            continue
        share_inside = float(inside[region].mean())
        share_of_gland = labels.with_array(region).millilitres / gland_ml
        if share_inside < least_share:
            problem = (
                f"{share_inside:.0%} of the ROI lie in {where}, at least {least_share:.0%} are "
                "needed"
            )
            hint = "mask and image are of another man, moved or turned; draw the ROI again"
        elif share_of_gland > OF_GLAND:
            problem = (
                f"the ROI is {share_of_gland:.0%} of the gland, at most {OF_GLAND:.0%} is a lesion"
            )
            hint = "it is the gland's own outline; draw the lesion"
        else:
            continue
        problems[roi.roi_id] = CadError(
            problem, hint=hint, patient=study.participant_id, roi=roi.roi_id
        )
    return problems


def measurable(
    study: Study, grids: Mapping[str, Volume], half: bool = False
) -> tuple[dict[str, dict[str, Drawn]], list[CadError]]:
    """Return the voxels of regions that can be measured, and an error for each other region.

    A region gets an error when no grid can measure it, or when it cannot be a lesion: too much of
    it lies outside the gland or the body, or it is as large as the gland (:func:`strays`).

    Parameters
    ----------
    study : Study
        Study with a label map.
    grids : mapping of str to Volume
        Images to measure, by name; a voxel of NaN has no value.
    half : bool
        By default a voxel counts by the share of it that the region fills. With True a voxel counts
        whole or not at all: whole where the region's mask, interpolated at the voxel's centre, is
        at least one half.

    Returns
    -------
    regions : dict of str to dict of str to Drawn
        By ROI id, then by the name of the grid.
    problems : list of CadError
        One per region that is left out.
    """
    stray = strays(study)
    regions = {}
    problems = []
    for roi in study.rois:
        try:
            if roi.roi_id in stray:
                raise stray[roi.roi_id]
            regions[roi.roi_id] = require_measurable(study, roi, grids, half)
        except CadError as error:
            problems.append(error)
    return regions, problems


def better_placed(
    t2w: Volume, image: Volume, displaced_along: tuple[int, ...] = ()
) -> dict[str, float]:
    """Return how much better an image fits T2 in its place than moved, turned or mirrored.

    Parameters
    ----------
    t2w, image : Volume
        T2 image and another image, in one frame of reference. Voxels whose value is 0 in one of the
        images are left out, and so are voxels outside of T2.
    displaced_along : tuple of int
        Axes in the slice along which the image may be displaced: 0 along its rows, 1 along its
        columns. Shifts along them are not compared.

    Returns
    -------
    dict of str to float
        Three values, for three kinds of change of the image: ``mirrored`` (left and right
        exchanged), ``turned`` (upside down, or head and feet exchanged), and ``placed`` elsewhere
        (moved by 5 mm in the slice, or by a slice). Each value is ln(a / b). Here a is the mutual
        information of the two images as they lie, and b the largest after a change of that kind. A
        value below 0 means that the image fits better after the change. The value is infinite with
        fewer than 5,000 voxels.
    """
    t2w_values = resample_image(t2w, image).array
    shared_by_kind = _shared_by_way(t2w_values, image, displaced_along, least=_LEAST_VOXELS)
    return {kind: _log_ratio_of_places(shared) for kind, shared in shared_by_kind.items()}


def gland_placed(gland: Volume, images: Iterable[Volume]) -> dict[str, float]:
    """Return how much better the gland mask explains images in its place than when it is moved.

    The measure is the mutual information of a voxel's value and its place, summed over the images.
    A voxel has one of two places: in the gland, or within 8 mm around it.

    Parameters
    ----------
    gland : Volume
        Mask of the gland.
    images : iterable of Volume
        Images of the study.

    Returns
    -------
    dict of str to float
        Three values, for images that are ``mirrored``, ``turned`` and ``placed`` elsewhere, as in
        :func:`better_placed`. A value below 0 means that the mask fits the changed images better.
    """
    from scipy.ndimage import distance_transform_edt  # loaded here, because loading is slow

    # Every so many voxels in the slice are enough.
    x, y, z = gland.spacing
    every = max(round(_COARSE_MM / x), 1)
    inside = gland.array[:, ::every, ::every] != 0
    grid = replace(gland, array=inside, spacing=(every * x, every * y, z))
    # 0 far away, where nothing is compared; 1 beside the gland; 2 in the gland
    near = distance_transform_edt(~inside, sampling=grid.spacing[::-1]) <= _BESIDE_MM
    place = near + 1.0 * inside

    # The information of all images is added, for each place of an image.
    shared_by_kind: dict[str, list[np.ndarray]] = defaultdict(list)
    for image in images:
        values = resample_image(image, grid)
        # Along the columns images are often displaced, so that they are not moved there.
        shared_of_image = _shared_by_way(place, values, displaced_along=(1,), least=_LEAST_BESIDE)
        for kind, shared in shared_of_image.items():
            shared_by_kind[kind].append(shared)
    ratios = {}
    for kind, shared_of_images in shared_by_kind.items():
        ratios[kind] = _log_ratio_of_places(np.sum(shared_of_images, axis=0))
    return ratios


def _shared_by_way(
    reference: np.ndarray, image: Volume, displaced_along: tuple[int, ...], least: int
) -> dict[str, np.ndarray]:
    """Return the mutual information (nats) of image and reference, by kind of change of the image.

    The kinds are ``mirrored``, ``turned``, and ``placed`` (moved). Each array has first the
    information of the image as it lies, and then that of each changed image.

    Parameters
    ----------
    reference : ndarray, shape of the image
        Values of another image on the same grid.
    image : Volume
        The image that is changed.
    displaced_along : tuple of int
        Axes in the slice along which the image is not moved: 0 along its rows, 1 along its columns.
    least : int
        Information from fewer voxels than this counts as 0.
    """
    # The image's values are put into bins once, in its present place. New bins for each changed
    # image would take five times as long, and would find the same faults.
    both = np.isfinite(reference) & np.isfinite(image.array) & (reference != 0) & (image.array != 0)
    reference_bins = _bins_of_values(reference, both)
    bins = _bins_of_values(image.array, both)

    # The image is moved by a slice, and by 5 mm along axes of the slice, to either side. The axes
    # of the array are z, y, x.
    x_voxels, y_voxels, _ = (max(round(_MOVE_MM / step), 1) for step in image.spacing)
    moves = [(1, 0)]
    if 0 not in displaced_along:
        moves.append((x_voxels, 2))
    if 1 not in displaced_along:
        moves.append((y_voxels, 1))
    placed = []
    for n_voxels, array_axis in moves:
        placed.append(np.roll(bins, n_voxels, array_axis))
        placed.append(np.roll(bins, -n_voxels, array_axis))
    changed_images = {
        "mirrored": [np.flip(bins, 2)],
        "turned": [np.flip(bins, 1), np.flip(bins, 0)],
        "placed": placed,
    }
    as_it_lies = _information_of_bins(reference_bins, bins, least)
    shared_by_kind = {}
    for kind, changed_bins_of_kind in changed_images.items():
        shared = [as_it_lies]
        for changed_bins in changed_bins_of_kind:
            shared.append(_information_of_bins(reference_bins, changed_bins, least))
        shared_by_kind[kind] = np.array(shared)
    return shared_by_kind


def _log_ratio_of_places(shared: np.ndarray) -> float:
    """Return ln(a / b), which is below 0 if an image fits another image better in another place.

    a is the mutual information of the two images as they lie, and b the largest one with the image
    in another place. ``shared`` has a first and then the values of the other places. The result is
    infinite if a or b is not above 0.
    """
    as_it_lies = float(shared[0])
    best = float(shared[1:].max())
    if as_it_lies > 0 and best > 0:
        return math.log(as_it_lies / best)
    return math.inf


def zone_order(study: Study) -> float | None:
    """Return how much farther back or to the side regions of the peripheral zone lie than regions
    of the transition zone.

    The peripheral zone (PZ) wraps the transition zone (TZ) from behind and from both sides. At the
    sides it reaches as far to the front as the transition zone. A region's place is therefore the
    larger of two numbers. The first is its depth in the gland (0 in front, 1 at the back). The
    second is the square of its distance from the gland's middle plane (1 at the outermost left and
    right).

    Parameters
    ----------
    study : Study
        Study with a gland mask and regions whose zones are known.

    Returns
    -------
    float or None
        Difference of the zones' mean places, PZ minus TZ. None without a gland mask, or with fewer
        than two regions in one of the zones.
    """
    gland = gland_on(study)
    if study.roi_map is None or gland is None:
        return None
    _, gland_rows, gland_columns = np.argwhere(gland.array).T
    places = defaultdict(list)
    for roi in study.rois:
        _, region_rows, region_columns = np.nonzero(study.roi_map.array == roi.label)
        if len(region_rows):  # an empty region has no place
            depth = _part_of_extent(float(region_rows.mean()), gland_rows)
            # -1 and 1 at the outermost left and right, 0 in the middle plane
            aside = 2.0 * _part_of_extent(float(region_columns.mean()), gland_columns) - 1.0
            places[roi.zone].append(max(depth, aside**2))
    if min(len(places["PZ"]), len(places["TZ"])) < 2:
        return None
    return float(np.mean(places["PZ"]) - np.mean(places["TZ"]))


def fewest_of_zone(study: Study) -> int:
    """Return the number of regions in the peripheral or in the transition zone, whichever has
    fewer.

    Parameters
    ----------
    study : Study
        Study with a label map; a region without voxels is not counted.
    """
    counts = {"PZ": 0, "TZ": 0}
    if study.roi_map is None:
        return 0
    for roi in study.rois:
        if roi.zone in counts and (study.roi_map.array == roi.label).any():
            counts[roi.zone] += 1
    return min(counts.values())


def _part_of_extent(place: float, indices: np.ndarray) -> float:
    """Return where an index lies between the first (0) and last (1) outer edge of some voxels."""
    # The outer edges lie half a voxel beyond the first and last index.
    from_first_edge = place - indices.min() + 0.5
    extent = indices.max() - indices.min() + 1
    return float(from_first_edge / extent)


def like_t2(study: Study) -> float | None:
    """Return the rank correlation of ADC and T2 values in the gland.

    The correlation is positive in a sound study, because water is bright in both images.

    Parameters
    ----------
    study : Study
        Study, before its images are standardised.

    Returns
    -------
    float or None
        The correlation, -1 to 1. None without a gland mask, ADC map or T2 image, or with fewer than
        100 voxels.
    """
    if study.gland is None or study.t2w is None or study.adc is None:
        return None
    t2w = resample_image(study.t2w, study.adc).array
    adc = study.adc.array
    has_values = np.isfinite(t2w * adc) & (adc != 0)  # an ADC of 0 was not measured
    inside = resample_mask(study.gland, study.adc).array & has_values
    if inside.sum() < _LEAST_GLAND:
        return None
    return float(np.corrcoef(_ranks(t2w[inside]), _ranks(adc[inside]))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value; equal values share the middle of their ranks."""
    # The function rankdata of scipy.stats does the same, but scipy.stats takes .4 s to load.
    _, which_value, count = np.unique(values, return_inverse=True, return_counts=True)
    # Up to and with each different value, less half of those that are equal to it
    rank_of_value = count.cumsum() - count / 2
    return np.asarray(rank_of_value[which_value])


def _information_of_bins(bins: np.ndarray, other_bins: np.ndarray, least: int) -> float:
    """Return the mutual information (nats) of two images from their bins.

    The result is 0 with fewer than ``least`` voxels that have a bin in both images.
    """
    # A pair of bins becomes one number, by which pairs are counted. Bin 0 is left out, because its
    # voxels have no value.
    side = _BINS + 1
    pairs = (side * bins + other_bins).ravel()
    counts = np.bincount(pairs, minlength=side**2).reshape(side, side)[1:, 1:]
    return information(counts) if counts.sum() >= least else 0.0


def _bins_of_values(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Return the bin (1 to 24) of every value.

    The bins are chosen so that each holds equally many of the values in the mask ``among``. The bin
    is 0 where a value is 0 or not finite.
    """
    # If no voxel is in the mask, the edges of the bins do not matter, because nothing is left to
    # compare.
    ordered = np.sort(values[among]) if among.any() else np.zeros(1)
    places_of_edges = np.arange(1, _BINS) * (len(ordered) - 1) // _BINS
    # This loop takes a fifth of the time of numpy's quantile and searchsorted.
    bins = np.ones(values.shape, np.uint16)
    for edge in ordered[places_of_edges]:
        bins += values > edge
    return np.asarray(bins * (np.isfinite(values) & (values != 0)))


def information(counts: np.ndarray) -> float:
    """Return the mutual information (nats) of two variables from their table of joint counts.

    A cell of the table counts how often one value of the first variable occurs together with one
    value of the second.

    Examples
    --------
    The information is ln 2 where one variable tells the other, and 0 where it tells nothing:

    >>> import numpy as np
    >>> same = np.array([[5, 0], [0, 5]])
    >>> round(information(same), 3), round(information(np.ones((2, 2))), 3)
    (0.693, 0.0)
    """
    joint = counts / counts.sum()
    if_independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    # A cell with the share p = 0 adds nothing, because p log p is 0.
    filled = joint > 0
    return float((joint[filled] * np.log(joint[filled] / if_independent[filled])).sum())


def width(image: Volume) -> float:
    """Return the longest edge of an image's field of view in mm."""
    counts_xyz = image.shape[::-1]
    return max(count * step for count, step in zip(counts_xyz, image.spacing, strict=True))


def voxel_hash(image: Volume) -> str:
    """Return the SHA-256 (hexadecimal) of an image's shape and voxels, as float32."""
    values = np.ascontiguousarray(image.array, np.float32)
    return hashlib.sha256(str(values.shape).encode() + values.tobytes()).hexdigest()
