"""Check that a study is physically plausible: its units, orientation and kind of images.

Some statistics of each image are compared with ranges in which the value of every patient lies. The
statistics are measured in the prostate if it is drawn, otherwise in the regions. If nothing is
drawn, they are measured in the middle of the image, where a prostate examination has the prostate.
The middle is half of the image's width and height, and the middle half of its slices. ADC and
Ktrans maps are measured in the regions rather than in the prostate, if both are drawn. Zeros of ADC
do not count, because a scanner writes a zero where it measured nothing.

T1 depends on the tissue more than other values do. In the middle of an image, much of which may be
fat, the range of T1 is therefore that of any tissue. Nothing is corrected. An error states the
value, its range, the likely cause, and what the user can do.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cad.base.errors import CadError
from cad.base.reading import read_json, reading
from cad.base.terms.beside import table_beside
from cad.base.terms.modality import MODALITIES
from cad.mri.imaging import belonging
from cad.mri.imaging.displacement import Displacement
from cad.mri.imaging.displacement_search import displacements, map_on_series
from cad.mri.imaging.geometry import resample_mask
from cad.mri.imaging.study import Protocol, Study
from cad.mri.imaging.volume import Dynamic, Volume


class Check(NamedTuple):
    """Hold the plausible range of one statistic, and the message for a value outside.

    Parameters
    ----------
    low, high : float
        Range in which the statistic lies in every patient.
    title, unit : str
        Name and unit of the statistic in messages.
    cause, way_out : str
        Likely cause of a value outside of the range, and what the user can do.
    """

    low: float
    high: float
    title: str
    unit: str = ""
    cause: str = ""
    way_out: str = "check the series and its header"


CHECKS = {name: Check(**words) for name, words in table_beside(__file__).items()}
RANGES: dict[str, tuple[float, float]] = {
    name: (check.low, check.high) for name, check in CHECKS.items()
}
"""Lowest and highest plausible value by statistic, from ``plausibility.yaml``."""

# Factors from a wrong unit to the right unit, each with the words for a message: the unit that the
# values seem to have.
_ADC_LOOKS = {1e6: "mm2/s", 1e3: "1e-3 mm2/s", 1e-3: "1e-9 mm2/s", 10.0: "1e-5 mm2/s"}
_ADC_LOOKS |= {1e12: "m2/s", 1e-6: "1e-12 mm2/s", 0.1: "1e-7 mm2/s"}
_TIME_LOOKS = {1e3: "milliseconds were divided once too often", 1e-3: "milliseconds, not seconds"}
_MIDDLE = (0.25, 0.75)  # where the middle of an axis begins and ends, as shares of its length
# With fewer voxels around a small gland, the right Ktrans map may fit better when it is turned.
_VOXELS_OF_TURNED_MAP = 9000
_SAME_PLACE_MM = 1.0  # an image displaced by less than this is checked in its present place
_PROSTATE = " in the prostate"
_REGIONS = " in the regions"
RANGES_FILE = "plausible.json"
# T1 (s) of tissue and of blood at 3 T, the fields (T) for which T1 is known, and by how much a
# stated field may differ from one of them.
_T1_TISSUE_3T = 1.6
_T1_BLOOD_3T = 1.664
_KNOWN_FIELDS = (1.5, 3.0)
_FIELD_TOLERANCE = 0.5
# Turns a median absolute deviation of normal noise into its standard deviation.
_SD_OF_MAD = 1.4826


# A statistic: its key in CHECKS, its value, and words on where it was measured.
Statistic = tuple[str, float, str]


def implausible(
    study: Study, ranges: Mapping[str, tuple[float, float]] | None = None
) -> list[CadError]:
    """Return an error for every statistic of a study that no patient could have.

    Parameters
    ----------
    study : Study
        Study with its images as they were read, before any fit or alignment.
    ranges : mapping of str to (float, float), optional
        A site's own ranges by the names of :data:`RANGES`; other statistics keep the default
        ranges.

    Returns
    -------
    list of CadError
        Each states the value, the range, the likely cause and what the user can do. The list is
        empty for a sound study.
    """
    allowed = {**RANGES, **(ranges or {})}
    problems = []
    for name, value, where in study_statistics(study):
        low, high = allowed[name]
        if low <= value <= high:
            continue
        unit = f" {CHECKS[name].unit}".rstrip()
        cause, way_out = _cause(name, value, (low, high))
        text = (
            f"{CHECKS[name].title}{where} is {value:.3g}{unit}; plausible is "
            f"{low:g} to {high:g}{unit}"
        )
        if cause:
            text += f": {cause}"
        problem = CadError(
            text,
            hint=f"{way_out}; a site may widen the range {name}",
            patient=study.participant_id,
        )
        problems.append(problem)
    return problems


def require_plausible(
    study: Study, ranges: Mapping[str, tuple[float, float]] | None = None
) -> None:
    """Refuse a study with a statistic that no patient could have.

    Parameters
    ----------
    study : Study
        Study with its images as they were read.
    ranges : mapping of str to (float, float), optional
        A site's own ranges by name of the statistic; other statistics keep the ranges of
        :data:`RANGES`.

    Raises
    ------
    CadError
        Naming every statistic outside of its range, as :func:`implausible` finds them.
    """
    problems = implausible(study, ranges)
    if problems:
        reasons = "; ".join(problem.problem for problem in problems)
        raise CadError(reasons, hint=problems[0].hint, patient=study.participant_id)


def site_ranges(folder: Path, registered: bool = False) -> dict[str, tuple[float, float]]:
    """Return a site's own plausible ranges of statistics, from the cohort's ``plausible.json``.

    Parameters
    ----------
    folder : Path
        Folder of one study of the cohort; the file is looked for in the two folders above it.
    registered : bool
        Whether images are registered to T2 later. Their place beside T2 and the gland is then not
        checked: the statistics of the place get an infinite range.

    Returns
    -------
    dict of str to (float, float)
        Least and largest plausible value by name of the statistic; empty without a file, unless
        ``registered``.

    Raises
    ------
    CadError
        When the file is not a JSON object that gives two numbers to each of some known statistics.
    """
    ranges_of_places = {}
    if registered:
        for name in ("adc", "dce", "gland"):
            ranges_of_places[f"{name}_placed"] = (-math.inf, math.inf)
        for name in ("adc", "hbv", "dce", "ktrans"):
            ranges_of_places[f"{name}_displaced"] = (0.0, math.inf)
            ranges_of_places[f"{name}_unsure"] = (0.0, math.inf)
        ranges_of_places["ktrans_on_dce_unsure"] = (0.0, math.inf)
    # A study's folder lies in the cohort, or in the folder of its patient in the cohort.
    paths = [parent / RANGES_FILE for parent in folder.parents[:2]]
    files = [path for path in paths if path.is_file()]
    if not files:
        return ranges_of_places
    path = files[0]
    content = read_json(path)
    ranges = {}
    with reading(path, "expected {name: [low, high]}"):
        for name, (low, high) in content.items():
            ranges[str(name)] = (float(low), float(high))
    unknown = sorted(set(ranges) - set(RANGES))
    if unknown:
        raise CadError(
            f"no statistic {unknown[0]!r}", file=path, hint=f"known are {', '.join(RANGES)}"
        )
    return {**ranges, **ranges_of_places}


def study_statistics(study: Study) -> Iterator[Statistic]:
    """Measure the statistics of a study that have a plausible range.

    Yields
    ------
    (str, float, str)
        Name of the statistic, a key of :data:`RANGES`; its value; and words on where it was
        measured, for messages. Statistics of absent images are left out.
    """
    if study.adc is not None:
        inside, where = _measured_mask(study, study.adc, _REGIONS, _PROSTATE)
        measured = study.adc.array[inside & (study.adc.array != 0)]
        # Without a measured voxel the median is 0, which is no plausible ADC.
        yield "adc_median", float(np.median(measured)) if measured.size else 0.0, where
    if study.ktrans is not None:
        inside, where = _measured_mask(study, study.ktrans, _REGIONS, _PROSTATE)
        measured = study.ktrans.array[inside]
        yield "ktrans_map_median", float(np.median(measured)) if measured.size else 0.0, where
    t2w = study.protocols.get("t2w", Protocol())
    yield from _placeless_statistics(
        t2w_repetition_time=t2w.repetition_time, t2w_echo_time=t2w.echo_time
    )
    if study.dce is not None:
        yield from _dynamic_statistics(study, study.dce)
    if study.vfa:
        yield from _flip_angles(study)
    fields = {protocol.field_strength for protocol in study.protocols.values()}
    for field in sorted(field for field in fields if field):  # not stated by some images
        yield "field_strength", field, ""
    if study.roi_map is not None:
        yield from _mask_statistics(study, study.roi_map)
    yield from _belonging(study)


def _placeless_statistics(**values: float | None) -> Iterator[Statistic]:
    """Yield the given statistics that have a value, as tuples of name, value and place.

    The place is an empty text, because these statistics are not measured in one place of the image.
    """
    for name, value in values.items():
        if value is not None:
            yield name, float(value), ""


def _belonging(study: Study) -> Iterator[Statistic]:
    """Yield statistics on whether images, regions and gland belong together, the right way up."""
    if study.gland is not None:
        yield "gland_volume", study.gland.millilitres, ""
    for modality in MODALITIES:
        grid = study.grid(modality.name)
        if grid is not None:
            yield "field_of_view", belonging.width(grid), f" of {modality.short}"
    # If one of the two zones has only two regions, a wider limit is used. In a man without any
    # error, the two regions of a small transition zone may lie behind regions of the peripheral
    # zone.
    has_zone_of_two = belonging.fewest_of_zone(study) == 2
    zone_statistic = "zone_order_of_two" if has_zone_of_two else "zone_order"
    yield from _placeless_statistics(**{zone_statistic: belonging.zone_order(study)})

    images = {} if study.adc is None else {"adc": study.adc}
    if study.dce is not None:
        images["dce"] = study.dce.grid.with_array(study.dce.frames.mean(axis=0, dtype=np.float32))
    # A displaced image is not an error: a full bladder or bowel may move the gland but not the
    # bones around it. Images are therefore checked in their present place, and also when they are
    # moved to where T2 shows the same tissue.
    mended = dict(images)
    measured_displacements = {}
    for displacement in displacements(study):
        measured_displacements[displacement.name] = displacement
    for name, displacement in measured_displacements.items():
        statistics = {
            f"{name}_displaced": displacement.size_mm,
            f"{name}_unsure": displacement.uncertainty_mm,
            f"{name}_shared": displacement.after,
        }
        if displacement.is_evidence:
            yield from _placeless_statistics(**statistics)
        elif not _all_plausible(statistics):
            # This displacement was measured in the middle of T2, which may not be the prostate, or
            # on few voxels, which share information by chance. It is therefore no reason to refuse
            # the image, and the image is not moved back by it.
            continue
        if name in images and displacement.size_mm >= _SAME_PLACE_MM:
            mended[name] = displacement.mend(images[name])
    yield from _map_and_series(study, measured_displacements.get("dce"))

    # The place of the gland mask is checked only if there is a dynamic series. In images without
    # contrast agent the gland hardly differs from the tissue behind it.
    if study.gland is not None and study.dce is not None:
        gains = belonging.gland_placed(study.gland, images.values())
        if mended != images and _doubtful("gland", gains):
            gains_of_mended = belonging.gland_placed(study.gland, mended.values())
            gains = _larger_gains(gains, gains_of_mended)
        for kind, gain in gains.items():
            yield f"gland_{kind}", gain, ""
    if study.t2w is not None:
        yield from _places_beside_t2(study.t2w, images, mended, measured_displacements)
        yield from _placeless_statistics(
            adc_like_t2w=belonging.like_t2(replace(study, adc=mended.get("adc")))
        )


def _places_beside_t2(
    t2w: Volume,
    images: Mapping[str, Volume],
    mended: Mapping[str, Volume],
    measured_displacements: Mapping[str, Displacement],
) -> Iterator[Statistic]:
    """Yield statistics on how much better images fit T2 as they lie than moved, turned or mirrored.

    ``mended`` has the images once more, moved back by their displacements. ADC map and dynamic
    series are among the images; of a Ktrans map only the displacement is used.
    """
    ktrans = measured_displacements.get("ktrans")
    if ktrans is not None and ktrans.is_evidence:
        yield "ktrans_mirrored", ktrans.mirrored, ""
        if ktrans.voxels >= _VOXELS_OF_TURNED_MAP:
            yield "ktrans_turned_near", ktrans.turned, ""
    gains_over_mirrored = []
    for name, image in images.items():
        displacement = measured_displacements.get(name)
        axes = _displaced_along(name, displacement)
        gains = belonging.better_placed(t2w, image, axes)
        if mended[name] is not image and _doubtful(name, gains):
            gains_of_mended = belonging.better_placed(t2w, mended[name], axes)
            gains = _larger_gains(gains, gains_of_mended)
        gain_of_whole = gains.pop("mirrored")
        if displacement is not None and displacement.is_evidence:
            # The comparison was made around the gland or the regions. There the image, its mirror
            # image and its turned versions are each shifted to the place where they fit T2 best.
            gains["mirrored"] = displacement.mirrored
            gains["turned_near"] = displacement.turned
            gains_over_mirrored.append(displacement.mirrored)
        else:
            # The whole image is compared where it lies. If it is displaced, it may fit T2 better
            # when it is mirrored. For ADC the limit of ``mirrored_whole`` is therefore lower than
            # that of ``mirrored``.
            gains["mirrored_whole"] = gain_of_whole
            gains_over_mirrored.append(gain_of_whole)
        for kind, gain in gains.items():
            yield f"{name}_{kind}", gain, ""
    # If two images both fit T2 better when they are mirrored, T2 itself is probably stored
    # mirrored. Because they agree, a smaller difference than that of one image alone is enough.
    if len(gains_over_mirrored) > 1:
        yield "t2w_mirrored", max(gains_over_mirrored), ""


def _larger_gains(gains: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Return the larger of two gains of each kind: an image may fit in either of two places."""
    return {kind: max(gain, other[kind]) for kind, gain in gains.items()}


def _displaced_along(name: str, displacement: Displacement | None) -> tuple[int, ...]:
    """Return the axes along which a better place of an image is no reason to refuse it.

    Echo-planar images are displaced along their phase-encoding axis, which is the columns in most
    examinations. The dynamic series may be displaced along both axes, because the man moves. Where
    this is measured, an error of the place in the slice shows as a displacement.
    """
    if name == "adc":
        if displacement is not None and displacement.phase_known:
            return (displacement.axis,)
        return (1,)  # along the columns
    if displacement is not None and displacement.is_evidence:
        return (0, 1)
    return ()


def _map_and_series(study: Study, series: Displacement | None) -> Iterator[Statistic]:
    """Yield statistics on how a Ktrans map fits T2, and how far it lies beside the dynamic series.

    The map must be on the grid of the dynamic series. ``series`` is the displacement of the series
    beside T2, None where it is not known.
    """
    on_series = map_on_series(study)
    if not isinstance(on_series, Displacement) or not on_series.is_evidence:
        return
    yield "ktrans_on_dce_unsure", on_series.uncertainty_mm, ""
    yield "ktrans_on_dce_shared", on_series.after, ""
    yield "ktrans_on_dce_mirrored", on_series.mirrored, ""
    yield "ktrans_on_dce_turned", on_series.turned, ""
    if series is not None and series.is_evidence:
        apart = np.subtract(on_series.shift_mm, series.shift_mm)
        yield "ktrans_on_dce_apart", float(np.linalg.norm(apart)), ""


def _all_plausible(statistics: Mapping[str, float]) -> bool:
    """Tell whether every statistic lies in the range of its name, from :data:`RANGES`."""
    for name, value in statistics.items():
        low, high = RANGES[name]
        if not low <= value <= high:
            return False
    return True


def _doubtful(name: str, gains: Mapping[str, float]) -> bool:
    """Tell whether an image may lie in a wrong place.

    ``gains`` says how much better the image ``name`` fits as it lies than after a change, by kind
    of change. The place is doubtful if a gain lies below its range in :data:`RANGES`.
    """
    return any(gain < RANGES[f"{name}_{kind}"][0] for kind, gain in gains.items())


def t1_default_problem(
    study: Study, t1_tissue: float | None, t1_blood: float | None
) -> CadError | None:
    """Return why the assumed T1 does not fit the scanner's field; None where it does.

    There are two cases in which the assumed T1 does not fit; in both the stated field is not 3 T.
    In the first, the settings assume the T1 of 3 T (1.6 s for tissue, 1.664 s for blood). In the
    second, the settings leave T1 to the field, and the field is not 1.5 T either: T1 is known at
    1.5 T and 3 T only. Fields count as equal if they differ by less than 0.5 T. The T1 of tissue is
    not checked where flip-angle images measure it. Without a dynamic series or a stated field the
    result is None.

    Parameters
    ----------
    study : Study
        Study with or without a dynamic series, whose protocol may state the field strength.
    t1_tissue, t1_blood : float or None
        T1 (s) that the settings assume; None where the T1 known for the field is taken.
    """
    field = study.protocols.get("dce", Protocol()).field_strength
    lower_field, higher_field = _KNOWN_FIELDS
    if study.dce is None or field is None or abs(field - higher_field) < _FIELD_TOLERANCE:
        return None
    # If the settings leave T1 to the field, the T1 of the nearer known field is taken.
    is_lower = abs(field - lower_field) < abs(field - higher_field)
    nearest = lower_field if is_lower else higher_field
    has_known_t1 = abs(field - nearest) < _FIELD_TOLERANCE
    # For each assumed T1 that does not fit, the field of which it is the T1
    field_of_setting: dict[str, float] = {}
    if not study.vfa:  # flip-angle images measure the T1 of tissue
        if t1_tissue == _T1_TISSUE_3T:
            field_of_setting["t1_tissue"] = higher_field
        elif t1_tissue is None and not has_known_t1:
            field_of_setting["t1_tissue"] = nearest
    if t1_blood == _T1_BLOOD_3T:
        field_of_setting["t1_blood"] = higher_field
    elif t1_blood is None and not has_known_t1:
        field_of_setting["t1_blood"] = nearest
    if not field_of_setting:
        return None
    values = [f"{name} is {strength:g} T's" for name, strength in field_of_setting.items()]
    return CadError(
        f"the field strength is {field:g} T, but {' and '.join(values)}",
        hint=f"set features.perfusion.{' and '.join(field_of_setting)} for this field",
        patient=study.participant_id,
    )


def _dynamic_statistics(study: Study, dce: Dynamic) -> Iterator[Statistic]:
    """Yield statistics of a dynamic series: how it was acquired, and how its median signal runs."""
    yield from _placeless_statistics(
        dce_repetition_time=dce.repetition_time, dce_flip_angle=dce.flip_angle
    )
    if len(dce.times) < 2:
        return
    yield "dce_interval", float(np.median(np.diff(dce.times))), ""
    inside, where = _measured_mask(study, dce.grid)
    signal = dce.frames[:, inside]
    curve = np.median(signal, axis=1).astype(float)
    # The noise is measured from the pair of successive frames with the least change. In other pairs
    # the contrast agent changes the signal as well.
    deviations = []
    for before, after in pairwise(signal):
        step = after.astype(float) - before
        deviations.append(float(np.median(np.abs(step - np.median(step)))))
    # The difference of two frames has the noise of one frame times the square root of two.
    noise = _SD_OF_MAD * min(deviations) / math.sqrt(2)
    yield "dce_snr", curve[0] / noise if noise > 0 else math.inf, where
    low = float(curve.min())
    high = float(curve.max())
    yield "dce_enhancement", high / low - 1 if low > 0 else math.inf, where
    if high > low:
        yield "dce_first_frame", (float(curve[0]) - low) / (high - low), where
        # A curve that only rises to its peak and then only falls takes the shortest way. With its
        # frames in disorder, it goes up and down often.
        shortest_way = 2 * high - float(curve[0]) - float(curve[-1])
        if shortest_way > 0:
            way = float(np.abs(np.diff(curve)).sum())
            yield "dce_detour", way / shortest_way, where


def _flip_angles(study: Study) -> Iterator[Statistic]:
    """Yield statistics of the flip-angle images: repetition time, T1, and how well T1 fits them."""
    repetition_time = study.vfa_repetition_time
    if repetition_time is None:
        return
    yield "vfa_repetition_time", repetition_time, ""
    if len({angle for angle, _ in study.vfa}) < 2:  # T1 cannot be fitted to one angle
        return
    _, first_image = study.vfa[0]
    inside, where = _measured_mask(study, first_image)
    # Much of the middle of an image may be fat, so that the range of T1 is a wider one there.
    name = "vfa_t1" if where in (_PROSTATE, _REGIONS) else "vfa_t1_any_tissue"
    signal = np.array([np.median(image.array[inside]) for _, image in study.vfa], float)
    angle = np.radians([degrees for degrees, _ in study.vfa])
    # In the spoiled steady state the signal S at the flip angle a is on a line:
    # S / sin(a) = E1 S / tan(a) + constant. Its slope is E1 = exp(-TR / T1).
    slope, offset = np.polyfit(signal / np.tan(angle), signal / np.sin(angle), deg=1)
    # With any other slope, no T1 explains the signals.
    t1 = -repetition_time / math.log(slope) if 0 < slope < 1 else math.inf
    yield name, t1, where
    fitted = offset * np.sin(angle) / (1 - slope * np.cos(angle))
    misfit = np.sqrt(np.mean((signal - fitted) ** 2)) / signal.mean()
    yield "vfa_misfit", float(misfit), where


def _mask_statistics(study: Study, mask: Volume) -> Iterator[Statistic]:
    """Yield how far the label map lies from the nearest image: it should have an image's grid.

    Two grids are as far apart as the farthest corner of one from the nearest corner of the other.
    """
    corners = mask.outer_corners()
    gaps_mm = []
    for name in study.present:
        image = study.grid(name)
        if image is not None:
            image_corners = image.outer_corners()
            distances = np.linalg.norm(corners[:, None] - image_corners[None], axis=2)
            gaps_mm.append(float(distances.min(axis=1).max()))
    if gaps_mm:
        yield "mask_offset", min(gaps_mm), ""


def _measured_mask(study: Study, grid: Volume, *order: str) -> tuple[np.ndarray, str]:
    """Return where to measure, and words for it: the first drawn mask in the given order.

    The masks are those of the prostate and of the regions, by default in this order. If neither is
    drawn, it is the middle of the image.
    """
    masks = {_PROSTATE: study.gland, _REGIONS: study.roi_map}
    for where in order or masks:
        mask = masks[where]
        if mask is not None:
            inside = resample_mask(mask, grid).array
            if inside.any():  # else the mask lies outside of this image
                return inside, where
    inside = np.zeros(grid.shape, bool)
    middle = []
    for count in grid.shape:
        begin = int(_MIDDLE[0] * count)
        end = max(math.ceil(_MIDDLE[1] * count), 1)
        middle.append(slice(begin, end))
    inside[tuple(middle)] = True
    return inside, " in the middle of the image"


def _cause(name: str, value: float, allowed: tuple[float, float]) -> tuple[str, str]:
    """Return the likely cause of a value outside of the allowed range, and what the user can do.

    A wrong unit is the cause if the value, in another unit, lies in the range.
    """
    low, high = allowed
    if name == "adc_median":
        for factor, unit in _ADC_LOOKS.items():
            if low <= value * factor <= high:
                return f"values look like {unit}", f"set scale: {factor:g} in the adc rule"
        return "not an ADC map?", "check the adc rule"
    if name.endswith(("repetition_time", "echo_time")):
        for factor, looks in _TIME_LOOKS.items():
            if low <= value * factor <= high:
                return looks, "correct the header or the sidecar (seconds)"
    return CHECKS[name].cause, CHECKS[name].way_out
