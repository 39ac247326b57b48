"""Find how far an image is displaced in the slice against T2.

The image is shifted step by step. Its displacement is the shift after which it shares most
information with T2 (mutual information). Images are compared in a box around the gland, or around
the regions if there is no gland mask. If nothing is drawn, they are compared in the middle of T2,
where an examination of the prostate has the prostate. Slices count as independent measurements: the
uncertainty follows from how much the result changes if each slice in turn is left out. A best
displacement for each slice shows how much the displacement varies between slices.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.ndimage import gaussian_filter

from cad.base.errors import CadError
from cad.mri.imaging import geometry
from cad.mri.imaging.displacement import ENOUGH_VOXELS, NOTED_FROM_MM, Displacement, Unmeasured
from cad.mri.imaging.registration import dce_reference, moved_together
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Volume

# Largest shift of the search along each axis, and its two steps: first the coarse step, for which
# only every third voxel is compared, then the fine step.
REACH_MM = 15.0
_FINE_MM = 1.0
_COARSE_MM = 3.0
# Largest number of fine steps by which a turned image is shifted in the search for its best place.
# A turned image may be displaced, too.
_TURNED_REACH = 9
# An image may have been mirrored in a plane that lies at most this far beside the middle of its
# field. A plane that lies 1 mm beside the middle moves the mirrored image by 2 mm.
_MIRROR_PLANE_MM = 15.0
_NEAR = 4  # steps from the peak; a maximum farther away is another peak
_AROUND = 2  # steps to either side of a shift, among which its peak is looked for
# Steps to either side of the common shift, among which the shift of a single slice is looked for.
_SLICE_REACH = 6
# Margins of the box of comparison around the gland mask, and around regions. Around regions the
# margin is larger, because the box should contain the gland.
_GLAND_MARGIN_MM = 8.0
_REGIONS_MARGIN_MM = 35.0
_GLAND_SLICES = 1
_REGIONS_SLICES = 3
# The middle of T2 has about the size of a gland: this width and height, and half of the slices.
_MIDDLE_MM = 50.0
_MIDDLE_SLICES = 0.5
# T2 is smoothed by this standard deviation, because it is finer than the images compared with it.
_SMOOTHING_MM = 0.5
_BINS = 16
# Least standard error that is stated. It is the error of the search in simulated men, whose
# displacement is known (docs/displacement.md).
_FLOOR_MM = 0.3
# Least number of voxels with which the displacement of an ADC map is measured. With still fewer
# voxels, chance decides which shift shares most information with T2. Other images need
# ``ENOUGH_VOXELS`` (5,000). An ADC map needs fewer, because it shows the gland as T2 does
# (docs/displacement.md).
_LEAST_OF_ADC = 2000
# Largest standard error of a displacement that is measured with fewer than ``ENOUGH_VOXELS``.
_MOST_UNSURE_MM = 1.5


def displacements(study: Study) -> list[Displacement]:
    """Return how far ADC, high b, dynamic series and Ktrans map of a study lie beside its T2 image.

    Parameters
    ----------
    study : Study
        Study with its images as they were read. An earlier result for the same images is
        returned again.

    Returns
    -------
    list of Displacement
        One for each image that can be compared, in the order ``adc``, ``hbv``, ``dce``, ``ktrans``.
        Empty without a T2 image. A high-b image on the grid of the ADC map belongs to the same
        acquisition and is not measured separately. A Ktrans map on the grid of the dynamic series
        is moved with that series (:func:`map_on_series`).
    """
    return compare_images(study)[0]


def compare_images(study: Study) -> tuple[list[Displacement], list[Unmeasured]]:
    """Return the displacements of a study's images, and why others could not be measured.

    Parameters
    ----------
    study : Study
        Study with its images as they were read. An earlier result for the same images is
        returned again.

    Returns
    -------
    displacements : list of Displacement
        As :func:`displacements` returns them.
    unmeasured : list of Unmeasured
        The other images that were to be compared.
    """
    if study.t2w is None:
        return [], []
    images: dict[str, Volume] = {}
    if study.adc is not None:
        images["adc"] = study.adc
    if study.hbv is not None and (study.adc is None or not study.hbv.same_grid(study.adc)):
        images["hbv"] = study.hbv
    if study.dce is not None:
        images["dce"] = study.dce.grid
    if study.ktrans is not None and not _is_on_series(study.ktrans, study):
        images["ktrans"] = study.ktrans
    measured: list[Displacement] = []
    unmeasured: list[Unmeasured] = []
    for name, image in images.items():
        result = _remembered(study, name, image)
        if result is None:
            try:
                result = _measure_image(study, name, image)
            except CadError as error:
                result = Unmeasured(name, error.problem, fixed=study.t2w, moving=image)
        if isinstance(result, Displacement):
            measured.append(result)
        else:
            unmeasured.append(result)
    return measured, unmeasured


def map_on_series(study: Study) -> Displacement | Unmeasured | None:
    """Return how far a Ktrans map on the grid of the dynamic series lies beside T2.

    Such a map is moved together with the series. If the map and the series have different
    displacements, the map was not made from this series.

    Parameters
    ----------
    study : Study
        Study with its images as they were read. An earlier result for the same images is
        returned again.

    Returns
    -------
    Displacement or Unmeasured or None
        None without T2 or such a map.
    """
    image = study.ktrans
    if study.t2w is None or image is None or not _is_on_series(image, study):
        return None
    # An earlier result holds only for the very images that it was measured on.
    earlier = study.map_on_series
    if earlier is not None and earlier.moving is image and earlier.fixed is study.t2w:
        return earlier
    try:
        return _measure_image(study, "ktrans", image)
    except CadError as error:
        return Unmeasured("ktrans", error.problem, fixed=study.t2w, moving=image)


def _is_on_series(image: Volume, study: Study) -> bool:
    return study.dce is not None and image.same_grid(study.dce.grid)


def with_displacements(study: Study) -> Study:
    """Return the study with its displacements stored, so that they are measured only once."""
    measured, unmeasured = compare_images(study)
    return replace(
        study,
        displacements=tuple(measured),
        unmeasured=tuple(unmeasured),
        map_on_series=map_on_series(study),
    )


def mend(study: Study, which: list[Displacement]) -> Study:
    """Return a study whose images are moved to where T2 shows their content.

    Parameters
    ----------
    study : Study
        Not changed.
    which : list of Displacement
        Displacements of the images that are to be moved.
    """
    mended = replace(study, notes=list(study.notes))
    for displacement in which:
        # This changes ``mended`` in place.
        moved_together(mended, displacement.name, displacement.mend)
        if displacement.name == "dce" and _flips_lie_apart(study, displacement):
            # The flip-angle images fit T2 as they lie: the man may have moved after they were
            # taken. They get their old place again, and so does the map of the transmit field
            # (``b1``), by which their angles are corrected when T1 is computed from them.
            mended.vfa = study.vfa
            mended.b1 = study.b1
            mended.notes.append(
                "flip-angle images were not moved with the dynamic series: they lie as T2 does"
            )
    return mended


def _flips_lie_apart(study: Study, displacement: Displacement) -> bool:
    """Tell whether flip-angle images fit the dynamic series better once the series alone is moved.

    Two images are compared around the prostate by their correlation: the image of the largest angle
    and the first frame. Both are without contrast agent and have the contrast of T1.
    """
    mask = study.gland if study.gland is not None else study.roi_map
    # A small displacement makes no clear difference.
    if study.dce is None or mask is None or not study.vfa or displacement.size_mm < NOTED_FROM_MM:
        return False
    _, flip_image = max(study.vfa, key=lambda angle_and_image: angle_and_image[0])
    first_frame = study.dce.grid.with_array(study.dce.frames[0])
    try:
        box = _search_grid(flip_image, mask, gland=study.gland is not None)
    # The flip-angle image and the mask share no slice. Other checks report this.
    except CadError:
        return False
    reference = geometry.resample_image(flip_image, box).array
    as_read = geometry.resample_image(first_frame, box).array
    moved = geometry.resample_image(displacement.mend(first_frame), box).array
    covered = np.isfinite(reference) & np.isfinite(as_read) & np.isfinite(moved)
    if covered.sum() < ENOUGH_VOXELS:
        return False
    values = reference[covered]
    correlation_as_read = np.corrcoef(values, as_read[covered])[0, 1]
    correlation_moved = np.corrcoef(values, moved[covered])[0, 1]
    return bool(correlation_moved > correlation_as_read)


def measure_displacement(
    fixed: Volume,
    moving: Volume,
    around: Volume,
    *,
    gland: bool,
    axis: int | None = None,
    least: int = ENOUGH_VOXELS,
) -> Displacement:
    """Measure the displacement of ``moving`` against ``fixed``, in the slices of ``moving``.

    Parameters
    ----------
    fixed, moving : Volume
        The T2 image and another image, in one frame of reference.
    around : Volume
        Mask; images are compared in a box around its voxels that are not zero.
    gland : bool
        True where the mask is the whole gland, False where it is a mask of regions in the gland.
    axis : int, optional
        Phase-encoding axis of ``moving``: 0 for x, 1 for y.
    least : int
        Number of voxels that both images must cover in the box. If they cover fewer than 5,000
        voxels, the standard error of the displacement must be small, too.

    Returns
    -------
    Displacement
        Displacement along x and y with its standard errors (mm), and the information (nats) that
        the two images share as they lie and in the best place. The name of the image is left empty.

    Raises
    ------
    CadError
        Where the images share too few voxels in the box, or the displacement is too uncertain for
        the number of voxels.
    """
    # Both images on the grid of the box, as grey levels; the image that is shifted on a wider box
    box = _search_grid(moving, around, gland)
    reach = round(REACH_MM / _FINE_MM)
    # T2 is smoothed on the grid of the box (1 mm), because smoothing the whole image would take
    # longer than the search.
    fixed_values = geometry.resample_image(fixed, box).array
    smoothing = _SMOOTHING_MM / _FINE_MM
    smoothed = gaussian_filter(fixed_values, [0.0, smoothing, smoothing])
    fixed_levels = _levels_of_values(smoothed, slice(None))
    in_box = (slice(None), slice(reach, -reach), slice(reach, -reach))
    moving_values = geometry.resample_image(moving, _widened(box, reach)).array
    levels = _levels_of_values(moving_values, in_box)
    is_counted = (fixed_levels < _BINS) & (levels[in_box] < _BINS)
    # The compared points lie 1 mm apart and are interpolated. Their number is turned into the
    # number of the image's own voxels.
    voxels = is_counted.sum() * _FINE_MM**2 / (moving.spacing[0] * moving.spacing[1])
    if voxels < least:
        raise CadError(
            f"only {voxels:,.0f} voxels around the prostate are covered by both images, {least:,} "
            "are needed",
            hint="check the field of view of the series",
        )

    # The shift after which the images share most information: in coarse steps, then in fine steps
    row_starts = _row_starts(fixed_levels)
    counts_at = _counts_by_shift(row_starts, levels, reach)
    every = round(_COARSE_MM / _FINE_MM)
    steps = np.arange(-reach, reach + 1, every)
    coarse_counts = _coarse_counts(counts_at, steps)
    _, coarse_x, coarse_y = _best_shift(coarse_counts.sum(axis=2), steps)
    x, y, fine_counts = _climb(counts_at, reach, coarse_x, coarse_y)
    shared = _mutual_information(fine_counts.sum(axis=2))
    shift = _peak(shared, x, y)
    error = _jackknife(fine_counts, coarse_counts, steps, x, y, shift)
    if voxels < ENOUGH_VOXELS and error.max() > _MOST_UNSURE_MM:
        raise CadError(
            f"its standard error is {error.max():.1f} mm on {voxels:,.0f} voxels; with fewer than "
            f"{ENOUGH_VOXELS:,} voxels it may be {_MOST_UNSURE_MM} mm",
        )

    # How well the image fits when it is mirrored or turned. Two images share more information by
    # chance if fewer voxels are counted. Turned images are compared on coarse voxels. The
    # information in the best place of the image itself is therefore computed on the same voxels.
    after = float(shared.max())
    mirrored = _information_of_mirrored(moving, box, row_starts)
    counts_on_coarse_voxels = []
    for j in range(-_AROUND, _AROUND + 1):
        for i in range(-_AROUND, _AROUND + 1):
            counts_on_coarse_voxels.append(counts_at(x + i, y + j, every).sum(axis=0))
    after_on_coarse_voxels = float(_mutual_information(np.array(counts_on_coarse_voxels)).max())

    # Where phase encoding is not known, the axis along which the image lies farther away is taken.
    shift_axis = axis if axis is not None else int(abs(shift[1]) > abs(shift[0]))
    return Displacement(
        name="",
        shift_mm=(float(shift[0]), float(shift[1])),
        error_mm=(float(error[0]), float(error[1])),
        slices_mm=_shift_by_slice(counts_at, reach, x, y, shift_axis),
        axis=shift_axis,
        phase_known=axis is not None,
        before=float(_mutual_information(counts_at(0, 0).sum(axis=0))),
        after=after,
        mirrored=float(np.log(after / mirrored)) if after > 0 and mirrored > 0 else np.inf,
        turned=_log_ratio_of_levels(after_on_coarse_voxels, row_starts, _turned(levels), reach),
        fixed=fixed,
        moving=moving,
        voxels=float(voxels),
    )


def phase_axis(direction: tuple[float, float, float] | None, image: Volume) -> int | None:
    """Return the axis of an image along which phase was encoded: 0 for x, 1 for y; None if unknown.

    Parameters
    ----------
    direction : tuple of 3 floats or None
        Unit vector of the phase-encoding axis, LPS.
    image : Volume
        The image.
    """
    if direction is None:
        return None
    cosines = np.abs(np.asarray(direction) @ np.asarray(image.direction))
    nearest_axis = int(np.argmax(cosines))
    return nearest_axis if nearest_axis < 2 else None  # 2 lies across the slices


def _measure_image(study: Study, name: str, image: Volume) -> Displacement:
    """Return how far the image ``name`` of a study lies beside T2, measured around what is drawn.

    ``image`` is the image itself, and of the dynamic series its first frame.
    """
    if study.t2w is None:
        raise CadError("displacement needs a T2 image", patient=study.participant_id)
    drawn_mask = study.gland if study.gland is not None else study.roi_map
    is_drawn = drawn_mask is not None
    if drawn_mask is not None:
        around = drawn_mask
        is_gland = study.gland is not None
    else:
        around = _middle_of(study.t2w)
        is_gland = True  # the middle has the size of a gland
    moving = image
    if study.dce is not None and name == "dce":
        moving = dce_reference(study.dce)
    protocol = study.protocols.get(name)
    axis = None if protocol is None else phase_axis(protocol.phase_encoding, image)
    least = _LEAST_OF_ADC if name == "adc" and is_drawn else ENOUGH_VOXELS
    result = measure_displacement(study.t2w, moving, around, gland=is_gland, axis=axis, least=least)
    return replace(result, name=name, moving=image, drawn=is_drawn)


def _middle_of(image: Volume) -> Volume:
    """Return a mask of the middle of an image: 50 mm wide and high, in half of the slices."""
    # The share of each axis (z, y, x) that belongs to the middle; a small image belongs wholly
    shares = [_MIDDLE_SLICES]
    for count, step in zip(image.shape[1:], image.spacing[1::-1], strict=True):
        shares.append(min(_MIDDLE_MM / (count * step), 1.0))
    ranges = []
    for count, share in zip(image.shape, shares, strict=True):
        begin = int(0.5 * count * (1.0 - share))
        end = max(count - begin, begin + 1)  # at least one voxel
        ranges.append(slice(begin, end))
    inside = np.zeros(image.shape, bool)
    inside[tuple(ranges)] = True
    return image.with_array(inside)


def _remembered(study: Study, name: str, image: Volume) -> Displacement | Unmeasured | None:
    """Return the stored result for the image ``name``, if it was measured on these very images."""
    results: list[Displacement | Unmeasured] = [*study.displacements, *study.unmeasured]
    for result in results:
        if result.name == name and result.moving is image and result.fixed is study.t2w:
            return result
    return None


def _search_grid(image: Volume, around: Volume, gland: bool) -> Volume:
    """Return the grid on which images are compared, a box around the mask ``around``.

    It has the slices and axes of the image, and steps of 1 mm in the slice.
    """
    margin_mm = _GLAND_MARGIN_MM if gland else _REGIONS_MARGIN_MM
    margin_slices = _GLAND_SLICES if gland else _REGIONS_SLICES
    mask_voxels = np.argwhere(around.array != 0)[:, ::-1]
    if not len(mask_voxels):
        raise CadError("the mask that says where to compare is empty")
    # The mask's box as indices (x, y, z) in the image, with the margins. Whole slices are taken,
    # and only slices of the image.
    places = image.patient_to_index(around.index_to_patient(mask_voxels.astype(float)))
    spacing = np.array(image.spacing)
    margin = np.array([margin_mm, margin_mm, 0.0]) / spacing
    low = places.min(axis=0) - margin
    high = places.max(axis=0) + margin
    low[2] = max(np.floor(low[2]) - margin_slices, 0.0)
    high[2] = min(np.ceil(high[2]) + margin_slices, image.shape[0] - 1.0)
    # The number of steps of the new grid
    box_spacing = np.array([_FINE_MM, _FINE_MM, spacing[2]])
    count = np.floor((high - low) * spacing / box_spacing + 0.5) + 1
    if not (count > 0).all():
        raise CadError("image and mask share no slice")
    empty = np.zeros(count.astype(int)[::-1], np.float32)
    grid = image.beginning_at(empty, low)
    return replace(grid, spacing=(_FINE_MM, _FINE_MM, image.spacing[2]))


def _widened(box: Volume, reach: int) -> Volume:
    """Return a box that is wider by ``reach`` voxels on each side in the slice, without values."""
    n_z, n_y, n_x = box.shape
    empty = np.zeros((n_z, n_y + 2 * reach, n_x + 2 * reach), np.float32)
    return box.beginning_at(empty, np.array([-reach, -reach, 0.0]))


def _levels_of_values(values: np.ndarray, among: slice | tuple[slice, ...]) -> np.ndarray:
    """Return the level (0 to 15) of each value; 16 where nothing was measured.

    The levels are chosen so that each holds equally many of the values that ``among`` selects.
    """
    chosen = values[among]
    ordered = np.sort(chosen[np.isfinite(chosen)])
    if not len(ordered):
        return np.full(values.shape, _BINS)
    places_of_edges = np.arange(1, _BINS) * (len(ordered) - 1) // _BINS
    levels = np.searchsorted(ordered[places_of_edges], values)
    levels[~np.isfinite(values)] = _BINS
    return levels


def _row_starts(reference: np.ndarray) -> np.ndarray:
    """Return for each voxel the place at which its row begins in the flat table of joint counts.

    The table has a row of counts for each slice and each level of T2. ``reference`` has the levels
    of T2; 16 stands for a voxel without a value.
    """
    n_levels = _BINS + 1
    slices = np.arange(len(reference))[:, None, None]
    return np.asarray(slices * n_levels**2 + reference * n_levels, np.intp)


def _counts_by_shift(
    row_starts: np.ndarray, levels: np.ndarray, reach: int
) -> Callable[..., np.ndarray]:
    """Return the function that counts the levels of T2 and of a displaced image.

    ``row_starts`` are those of T2 on the box (:func:`_row_starts`), and ``levels`` the levels of
    the image on a box that is wider by ``reach`` steps on each side.
    """

    def counts_at(x: int, y: int, every: int = 1) -> np.ndarray:
        """Return, by slice, how often each pair of a grey level of T2 and one of the image occurs.

        The image is displaced by x and y steps. Only every ``every``-th voxel is counted.
        """
        rows = slice(reach + y, reach + y + row_starts.shape[1], every)
        columns = slice(reach + x, reach + x + row_starts.shape[2], every)
        return _joint_counts(row_starts[:, ::every, ::every], levels[:, rows, columns])

    return counts_at


def _joint_counts(row_starts: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return how often a grey level of T2 and one of the other image occur in the same voxel.

    ``row_starts`` are those of T2 (:func:`_row_starts`), ``levels`` the levels of the other image.
    The result has shape (n_z, 16, 16): slices, levels of T2, levels of the other image.
    """
    n_levels = _BINS + 1
    n_slices = len(row_starts)
    # The sum has the integer type that numpy's bincount uses; another type would be copied.
    counts = np.bincount((row_starts + levels).ravel(), minlength=n_slices * n_levels**2)
    return counts.reshape(n_slices, n_levels, n_levels)[:, :_BINS, :_BINS]


def _mutual_information(counts: np.ndarray) -> np.ndarray:
    """Return the mutual information (nats) of tables of joint counts, over their last two axes."""
    total = np.maximum(counts.sum(axis=(-2, -1), keepdims=True), 1)
    joint = counts / total
    if_independent = joint.sum(axis=-1, keepdims=True) * joint.sum(axis=-2, keepdims=True)
    # An empty cell adds nothing, because the logarithm of 1 is 0.
    ratio = np.divide(joint, if_independent, out=np.ones_like(joint), where=joint > 0)
    return np.asarray((joint * np.log(ratio)).sum(axis=(-2, -1)))


def _coarse_counts(counts_at: Callable[..., np.ndarray], steps: np.ndarray) -> np.ndarray:
    """Return, for all shifts of the coarse search, how often levels of T2 and of an image coincide.

    ``counts_at`` counts the levels for one shift (:func:`_counts_by_shift`). ``steps`` are the
    shifts along one axis, in fine steps. The result has shape (n_y, n_x, n_z, 16, 16): shifts along
    y and x, slices, levels of T2, and levels of the image.
    """
    every = round(_COARSE_MM / _FINE_MM)
    rows = []
    for y in steps:
        rows.append([counts_at(int(x), int(y), every) for x in steps])
    return np.array(rows, np.int32)  # half the memory of the counts as they come


def _best_shift(tables: np.ndarray, steps: np.ndarray) -> tuple[float, int, int]:
    """Return the largest mutual information (nats) of an image and T2, and the shift that has it.

    The shift is returned along x and then along y. ``tables`` holds, for each shift along y and x,
    how often the levels of T2 and of the shifted image coincide. ``steps`` are the shifts along one
    axis.
    """
    shared = _mutual_information(tables)
    row, column = divmod(int(shared.argmax()), shared.shape[1])
    return float(shared.max()), int(steps[column]), int(steps[row])


def _information_of_mirrored(moving: Volume, box: Volume, row_starts: np.ndarray) -> float:
    """Return the information that an image shares with T2 once left and right are exchanged.

    The image is mirrored in the middle plane of its field, and shifted to its best place. The box
    may lie beside the man's middle, as it does around a lateral region. Mirrored in the middle of
    the box, the image would show other organs there, whether or not it is stored mirrored.

    Parameters
    ----------
    moving : Volume
        The image.
    box : Volume
        Grid on which images are compared.
    row_starts : ndarray
        Those of T2 on that grid (:func:`_row_starts`).
    """
    mirrored = moving.with_array(moving.array[:, :, ::-1])
    reach_y = round(REACH_MM / _FINE_MM)
    reach_x = round(2 * _MIRROR_PLANE_MM / _FINE_MM)
    reach = max(reach_x, reach_y)
    in_box = (slice(None), slice(reach, -reach), slice(reach, -reach))
    values = geometry.resample_image(mirrored, _widened(box, reach)).array
    counts_at = _counts_by_shift(row_starts, _levels_of_values(values, in_box), reach)
    # The best shift, first in coarse steps
    every = round(_COARSE_MM / _FINE_MM)
    highest = -np.inf
    best_x = 0
    best_y = 0
    for y in range(-reach_y, reach_y + 1, every):
        for x in range(-reach_x, reach_x + 1, every):
            shared = float(_mutual_information(counts_at(x, y, every).sum(axis=0)))
            if shared > highest:
                highest = shared
                best_x = x
                best_y = y
    _, _, near = _climb(counts_at, reach, best_x, best_y)
    return float(_mutual_information(near.sum(axis=2)).max())


def _turned(levels: np.ndarray) -> list[np.ndarray]:
    """Return five turned versions of an image, given by its grey ``levels``, shape (z, y, x).

    One is turned upside down, one has head and feet exchanged, one has both changes, and two are
    turned by a quarter, one to either side.
    """
    upside_down = levels[:, ::-1]
    quarters = [np.rot90(levels, n_quarters, axes=(1, 2)) for n_quarters in (1, 3)]
    return [upside_down, levels[::-1], upside_down[::-1], *quarters]


def _log_ratio_of_levels(
    best: float, row_starts: np.ndarray, others: list[np.ndarray], reach: int
) -> float:
    """Return ln(a / b), which is below 0 if a mirrored or turned image fits T2 better.

    Here a is ``best``, the information (nats) that the image shares with T2 in its best place.
    ``others`` are the grey levels of mirrored or turned images. b is the largest information that
    any of them shares with T2 in its own best place.
    """
    every = round(_COARSE_MM / _FINE_MM)
    steps = range(-_TURNED_REACH, _TURNED_REACH + 1, every)
    highest = 0.0
    for levels in others:
        # A quarter turn exchanges height and width. Both images are therefore cut to a common size
        # around their middle; the image that is shifted keeps the reach of the shifts beside it.
        size_y = min(row_starts.shape[1], levels.shape[1] - 2 * reach)
        size_x = min(row_starts.shape[2], levels.shape[2] - 2 * reach)
        cut_starts = _middle_of_slices(row_starts, size_y, size_x)[:, ::every, ::every]
        cut_levels = _middle_of_slices(levels, size_y + 2 * reach, size_x + 2 * reach)

        def shared(
            x: int, y: int, starts: np.ndarray = cut_starts, levels: np.ndarray = cut_levels
        ) -> float:
            _, n_rows, n_columns = starts.shape
            rows = slice(reach + y, reach + y + every * n_rows, every)
            columns = slice(reach + x, reach + x + every * n_columns, every)
            shifted = levels[:, rows, columns][:, :n_rows, :n_columns]
            return float(_mutual_information(_joint_counts(starts, shifted).sum(axis=0)))

        highest = max(highest, _highest_information(shared, steps))
    return float(np.log(best / highest)) if best > 0 and highest > 0 else np.inf


def _highest_information(shared: Callable[[int, int], float], steps: range) -> float:
    """Return the largest information that the function ``shared`` of a shift (x, y) has.

    First all shifts of ``steps`` along both axes are tried, then every shift around the best.
    """
    highest = -np.inf
    best_x = 0
    best_y = 0
    for y in steps:
        for x in steps:
            value = shared(x, y)
            if value > highest:
                highest = value
                best_x = x
                best_y = y
    # Up to the next shifts that were tried, on either side
    around = range(1 - steps.step, steps.step)
    values = []
    for j in around:
        for i in around:
            values.append(shared(best_x + i, best_y + j))
    return max(values)


def _middle_of_slices(array: np.ndarray, size_y: int, size_x: int) -> np.ndarray:
    """Return the middle of each slice of an array (z, y, x), of the given size."""
    y = (array.shape[1] - size_y) // 2
    x = (array.shape[2] - size_x) // 2
    return array[:, y : y + size_y, x : x + size_x]


def _climb(
    counts_at: Callable[..., np.ndarray], reach: int, x: int, y: int
) -> tuple[int, int, np.ndarray]:
    """Climb from shift (x, y) in fine steps to a shift with the most mutual information nearby.

    ``counts_at`` takes a shift and returns the joint counts of levels of T2 and of the other image,
    one table for each slice. ``reach`` is the largest shift along an axis. The result has x and y
    of the best shift, and the counts for the 5 x 5 shifts around it.
    """
    counts_by_shift: dict[tuple[int, int], np.ndarray] = {}

    def remembered_counts(column: int, row: int) -> np.ndarray:
        if (column, row) not in counts_by_shift:
            counts_by_shift[column, row] = counts_at(column, row)
        return counts_by_shift[column, row]

    def within_search(step: int) -> int:
        # The shifts around it are not to lie beyond the reach.
        return min(max(step, _AROUND - reach), reach - _AROUND)

    around = range(-_AROUND, _AROUND + 1)
    while True:
        x = within_search(x)
        y = within_search(y)
        rows = []
        for j in around:
            rows.append(np.stack([remembered_counts(x + i, y + j) for i in around]))
        counts_around = np.stack(rows)
        shared = _mutual_information(counts_around.sum(axis=2))
        row, column = divmod(int(shared.argmax()), shared.shape[1])
        next_x = within_search(x + column - _AROUND)
        next_y = within_search(y + row - _AROUND)
        if next_x == x and next_y == y:  # this is the peak, or the border of the search
            return x, y, counts_around
        x = next_x
        y = next_y


def _peak(shared: np.ndarray, x: int, y: int) -> np.ndarray:
    """Return the place (mm along x, y) of the peak of 5 x 5 values around the shift (x, y).

    Along each axis, a parabola through three values gives the place between two steps.
    """
    row, column = divmod(int(shared.argmax()), shared.shape[1])
    # Places among the 5 values along an axis, of which the middle one is that of the shift
    along_x = _parabola_maximum(shared[row], column)
    along_y = _parabola_maximum(shared[:, column], row)
    return np.array([x + along_x - _AROUND, y + along_y - _AROUND]) * _FINE_MM


def _parabola_maximum(values: np.ndarray, peak: int) -> float:
    """Return where a parabola through the value ``peak`` and its two neighbours has its maximum."""
    if not 0 < peak < len(values) - 1:  # at an end it lacks a neighbour
        return float(peak)
    before = float(values[peak - 1])
    after = float(values[peak + 1])
    bend = before - 2 * float(values[peak]) + after
    if bend >= 0:  # three equal values: a line, which has no maximum
        return peak
    return peak + 0.5 * (before - after) / bend


def _jackknife(
    near: np.ndarray, far: np.ndarray, steps: np.ndarray, x: int, y: int, shift: np.ndarray
) -> np.ndarray:
    """Return the standard errors (mm along x, y) of a shift, by leaving out each slice in turn.

    The shift is the peak of the mutual information. If without one slice another peak of the coarse
    search is higher, the place of that peak in the coarse search is used, without refinement.

    Parameters
    ----------
    near, far : ndarray, shape (n_y, n_x, n_z, 16, 16)
        For each shift and slice, how often two levels of the two images occur together: ``near``
        for the 5 x 5 fine shifts around the peak, ``far`` for all shifts of the coarse search.
    steps : ndarray
        Shifts of the coarse search along an axis, in fine steps.
    x, y : int
        The best shift in fine steps.
    shift : ndarray
        The peak (mm along x, y).
    """
    n_slices = near.shape[2]
    near_of_all = near.sum(axis=2)
    far_of_all = far.sum(axis=2)
    squares = np.zeros(2)
    for slice_left_out in range(n_slices):
        far_of_others = far_of_all - far[:, :, slice_left_out]
        near_of_others = near_of_all - near[:, :, slice_left_out]
        _, other_x, other_y = _best_shift(far_of_others, steps)
        if max(abs(other_x - x), abs(other_y - y)) <= _NEAR:
            shift_of_others = _peak(_mutual_information(near_of_others), x, y)
        else:
            shift_of_others = np.array([other_x, other_y]) * _FINE_MM
        squares += (shift_of_others - shift) ** 2
    # The variance of the jackknife, and that of the search itself
    variance = squares * (n_slices - 1) / n_slices
    return np.asarray(np.sqrt(variance + _FLOOR_MM**2))


def _shift_by_slice(
    counts_at: Callable[..., np.ndarray], reach: int, x: int, y: int, axis: int
) -> tuple[float, ...]:
    """Return for each slice the best shift (mm) along one axis, smoothed over three slices.

    A voxel has two grey levels: one in T2, one in the shifted image. A slice has too few voxels to
    count its own pairs of levels. So pairs are counted in all slices together at their common best
    shift (x, y). The rating of a pair says how much more often it occurs there than by chance. The
    best shift of a slice has the largest mean rating of its voxels.
    """
    # The rating of each pair of levels. Half a count is added, so that no logarithm is infinite.
    counts_of_all = counts_at(x, y).sum(axis=0) + 0.5
    joint = counts_of_all / counts_of_all.sum()
    by_chance = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    rating = np.log(joint / by_chance)

    # The mean rating of each slice (columns) after each shift (rows)
    common_step = (x, y)[axis]
    first_step = max(common_step - _SLICE_REACH, -reach)
    last_step = min(common_step + _SLICE_REACH, reach)
    mean_ratings = []
    for step in range(first_step, last_step + 1):
        counts = counts_at(step, y) if axis == 0 else counts_at(x, step)
        n_voxels = np.maximum(counts.sum(axis=(1, 2)), 1)  # at least 1, to divide by
        mean_ratings.append((counts * rating).sum(axis=(1, 2)) / n_voxels)

    # Smoothed with both neighbours; the outer slices have themselves as a neighbour
    padded = np.pad(np.array(mean_ratings), ((0, 0), (1, 1)), mode="edge")
    smoothed = (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / 3
    shifts = []
    for ratings_of_slice in smoothed.T:
        peak = int(ratings_of_slice.argmax())
        best_step = first_step + _parabola_maximum(ratings_of_slice, peak)
        shifts.append(float(best_step) * _FINE_MM)
    return tuple(shifts)
