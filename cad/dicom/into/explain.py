"""Explain what an import would do with a source: which rules take a series, or nearly take it.

A rule nearly takes a series if the series meets all but one of its conditions. Nothing is written
except, if it is wanted, a first rules file, which is guessed from the descriptions of the series.
"""

import hashlib
import math
import os
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import yaml

from cad.base.errors import CadError, printable
from cad.base.files import write_atomic
from cad.base.reading import read_bytes, reading
from cad.base.settings import parse_settings, read_settings
from cad.base.terms.beside import page_beside
from cad.base.terms.modality import MODALITIES
from cad.dicom.into.conversion import rival_images
from cad.dicom.into.findings import findings_tables
from cad.dicom.into.regions import files_of
from cad.dicom.into.rules import ImportRules
from cad.dicom.into.sources import (
    Call,
    SourceStudy,
    by_series,
    find_studies,
    in_this_process,
    leads_out,
)
from cad.mri.imaging.diffusion import HIGH_B
from cad.mri.imaging.frames import Frame, read_dataset
from cad.mri.imaging.listing import as_problem
from cad.mri.imaging.phases import CLOCKS, order_phases
from cad.mri.imaging.pixels import read_stack
from cad.mri.imaging.stacks import Stack, stacks_of

_T2 = re.compile(r"t2", re.IGNORECASE)
_AXIAL = re.compile(r"tra|ax", re.IGNORECASE)
_OTHER_PLANE = re.compile(r"sag|cor|loc", re.IGNORECASE)
_ADC = re.compile(r"adc|apparent", re.IGNORECASE)
_KTRANS = re.compile(r"k[-_ ]?trans", re.IGNORECASE)
_DYNAMIC = re.compile(r"dyn|dce|twist|perf|lava|thrive|disco", re.IGNORECASE)
# Descriptions that differ only in numbers belong to one kind of series, such as the phases of a
# dynamic series.
NUMBER = re.compile(r"\d+(?:\.\d+)?")
# Words by which makers mark an image that was computed for a b-value from images of other b-values.
_CALCULATED = re.compile(
    r"calc|synth|comput|extrapol|(?<![a-z])syn(?![a-z])|(?<![a-z])c_?dwi|(?<![a-z])[ce]-?b\d",
    re.IGNORECASE,
)
_MANY = 5  # so many images in a series, or series of one kind, are phases of a dynamic series
_TOO_MANY_ANGLES = 3 * _MANY  # so many series of a study are no flip angles
_SHORT_REPETITION_S = 0.1
_SHOWN_KINDS_OF_IMAGE = 3  # most kinds of image of a series that a candidate's line lists
_REASONS_IN_HINT = 3
_LISTED_NUMBERS = 20  # most series numbers that a message lists
# Roles of a series (such as T2) that are filled by one image or one dynamic series. If two kinds of
# series fit such a role, or a study has two series that fit it, a person has to decide.
_ONE_IMAGE = ("t2w", "adc", "ktrans", "dce", "hbv")
# Roles that are filled by several images, one for each flip angle or b-value. Each role has the
# name of this value in a frame.
_BY_VALUE = {"vfa": "flip_angle", "diffusion": "b_value"}
_LEAST_WATER_ML = 2.0
# Percentile of the brightest values of an ADC map, which a bladder has; and the least brightness of
# a voxel of water, as a share of them.
_BRIGHTEST_PERCENT = 99.5
_SHARE_OF_BRIGHTEST = 0.8
# For the picture of a candidate: percentiles of the values that become black and white, and largest
# number of pixels per side.
_SHOWN = (1.0, 99.5)
_PICTURE = 200
# Endings of image files and tables that may lie beside the series.
_FILES_BESIDE = (".mhd", ".mha", ".nrrd", ".nii", ".nii.gz", ".csv", ".tsv", ".xlsx")
_RULES_OF_FILES = "ktrans_file, rois, gland_file, lesion, detector, outlines, findings or scores"
_MOST_FILES = 20
_SECONDS = re.compile(r"TT=([0-9.]+)s")
# Text of the last line of a file that --new-rules wrote. The hash of all other lines follows it and
# shows whether the file is unchanged.
_MARK = "cad import --new-rules wrote the lines above, sha256"
_MARKED = re.compile(
    rb"(.*\n)(?:#|<!--) " + _MARK.encode() + rb" ([0-9a-f]{64})(?: -->)?\n", re.DOTALL
)
_MOST_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Candidate:
    """Hold one of several series that could be the same image of a study, such as its T2 image.

    Parameters
    ----------
    line : str
        Description of the series that helps to tell it from the others.
    slices : list of ndarray of uint8, shape (rows, columns)
        Grey levels of three of its slices; empty where they were not wanted or cannot be read.
    """

    line: str
    slices: list[np.ndarray] = field(default_factory=list)


@dataclass(frozen=True)
class Proposal:
    """Hold a proposal for a rules file, and the choices that a person has to make in it.

    Parameters
    ----------
    text : str
        YAML of :class:`cad.dicom.into.rules.ImportRules`.
    undecided : dict of str to list of Candidate
        By role (such as ``adc``), the series among which a person has to choose: the descriptions
        in the source do not decide. Under ``vfa`` and ``diffusion``, series that have one flip
        angle or b-value of a study twice. Under ``diffusion``, too, the series of one description
        of which some are acquired and some are calculated.
    """

    text: str
    undecided: dict[str, list[Candidate]]


def proposed_rules(
    studies: Iterable[SourceStudy],
    take: Mapping[str, int] | None = None,
    call: Call = in_this_process,
    pictures: bool = False,
) -> Proposal:
    """Return a proposal for an import rules file, guessed from the series of a source.

    A person has to check every guess. Series whose descriptions differ only in numbers share one
    rule. Where two kinds of series of one study could be the same image, the file says so under
    ``undecided``, and an import refuses it until a person has decided.

    Parameters
    ----------
    studies : iterable of SourceStudy
        The studies of the source (:func:`cad.dicom.into.sources.find_studies`).
    take : mapping of str to int, optional
        A person's decisions: by role, the number of a series to take. For ``vfa`` and
        ``diffusion`` this decides for all series of its description.
    call : callable
        Calls the function that reads the candidates' pixels: ``call(function, *arguments)`` returns
        the result of ``function(*arguments)``. By default it runs in this process.
    pictures : bool
        Whether slices of the candidates are read, too.

    Raises
    ------
    CadError
        For a decision that names no candidate.
    """
    studies = list(studies)
    # A kind of series is a description with # for each number.
    series_by_kind: dict[str, list[list[Frame]]] = defaultdict(list)
    for study in studies:
        for frames in by_series(study.slices):
            series_by_kind[NUMBER.sub("#", frames[0].description)].append(frames)
    undecided: dict[str, list[Candidate]] = {}
    rules: dict[str, object] = {"name": "my cohort", "site": "my hospital", "labels": "pseudonym"}
    taken_kinds: set[str] = set()
    for role, fits in _TESTS.items():
        fitting_kinds = []
        for kind, series in series_by_kind.items():
            first_frame = series[0][0]
            if kind not in taken_kinds and fits(first_frame.description, series):
                fitting_kinds.append(kind)
        # The number of the series that a person has chosen for this role.
        chosen_number = take.get(role) if take else None
        values_of_chosen: dict[str, set[float]] = {}
        if chosen_number is not None and role in _BY_VALUE:
            values_of_chosen = _values_of_chosen(role, chosen_number, fitting_kinds, series_by_kind)
        elif chosen_number is not None:
            fitting_kinds = _decided_kind(role, chosen_number, fitting_kinds, series_by_kind)
        elif role in _ONE_IMAGE:
            rivals = _rival_series(role, fitting_kinds, series_by_kind)
            if rivals:
                if role == "dce":  # a person chooses a dynamic series, and not each of its phases
                    rivals = _first_phases(rivals)
                undecided[role] = [_candidate(frames, call, pictures) for frames in rivals]
        if not fitting_kinds:
            continue
        # A kind that one role takes is not offered to later roles.
        if role in ("vfa", "dce"):
            taken_kinds.update(fitting_kinds)
        elif role not in ("hbv", "diffusion"):  # one series may contain all b-values
            taken_kinds.add(fitting_kinds[0])
        matches = []
        for kind in fitting_kinds:
            left_out = values_of_chosen.get(kind, set())
            matches += _matches_of_kind(role, kind, series_by_kind[kind], left_out)
        if role == "diffusion":
            candidates = _candidates_by_calculation(fitting_kinds, series_by_kind, call, pictures)
            if candidates:
                undecided[role] = candidates
        first_kind = series_by_kind[fitting_kinds[0]]
        is_chosen_image = role in _ONE_IMAGE and chosen_number is not None
        # If one study has two series of this description, the number of the series decides, too.
        if is_chosen_image and _repeated_series(role, first_kind):
            numbered = {**matches[0], "series_number": chosen_number}
            # The series of all matches are joined into one dynamic series. So no match may remain
            # that fits both series.
            if role == "dce":
                matches[0] = numbered
            else:
                matches.insert(0, numbered)
        rules[role] = matches
        if role == "dce":
            rules[role] = _dynamic_rule(matches, first_kind)
    # The import itself may still find two images for one role.
    settings = parse_settings(ImportRules, rules)
    for role, series in _rivals_by_rules(studies, settings).items():
        if role not in undecided:
            undecided[role] = [_candidate(frames, call, pictures) for frames in series]
    if undecided:  # this stands first in the file, so that nobody overlooks it
        lines_by_role = {}
        for role, candidates in undecided.items():
            lines_by_role[role] = [candidate.line for candidate in candidates]
        rules = {"undecided": lines_by_role, **rules}
    yaml_text = yaml.safe_dump(rules, sort_keys=False, allow_unicode=True, width=200)
    return Proposal(_comment_on_files(studies) + yaml_text, undecided)


def _rivals_by_rules(
    studies: Iterable[SourceStudy], rules: ImportRules
) -> dict[str, list[list[Frame]]]:
    """Return, by role, the series among which an import with these rules could not choose."""
    rivals: dict[str, list[list[Frame]]] = defaultdict(list)
    for study in studies:
        for role, stacks in rival_images(study, rules).items():
            rival_uids = {stack.first.series_uid for stack in stacks}
            for frames in by_series(study.slices):
                if frames[0].series_uid in rival_uids:
                    rivals[role].append(frames)
    for series in rivals.values():
        series.sort(key=lambda frames: frames[0].series_number)
    return rivals


def _comment_on_files(studies: Iterable[SourceStudy]) -> str:
    """Return comments that name the image files and tables of a source, or nothing without any.

    No rule is proposed for them, because neither their names nor their values say what they are.
    """
    folders = set[Path]()
    patient_ids = set[str]()
    for study in studies:
        folders.update(study.tables)
        patient_ids.add(study.patient_id)
    # Long ids are replaced first: a short id may be a part of a long one.
    sorted_ids = sorted(patient_ids - {""}, key=len, reverse=True)
    files_by_pattern: Counter[str] = Counter()
    counted_paths = set()
    for folder in sorted(folders):
        for path in sorted(folder.rglob("*")):
            is_beside = path.name.lower().endswith(_FILES_BESIDE)
            # A folder of tables may lie inside another: each file counts once.
            if not is_beside or path in counted_paths:
                continue
            if not path.is_file() or leads_out(path, folder):
                continue
            counted_paths.add(path)
            pattern = path.relative_to(folder).as_posix()
            for patient_id in sorted_ids:
                pattern = pattern.replace(patient_id, "{patient}")
            files_by_pattern[printable(pattern)] += 1
    if not files_by_pattern:
        return ""
    lines = [
        "# No rule below takes these files beside the series. A rule may take them by",
        f"# {_RULES_OF_FILES}:",
    ]
    for pattern, count in list(files_by_pattern.items())[:_MOST_FILES]:
        files_text = f" ({count} files)" if count > 1 else ""
        lines.append(f"#   {pattern}{files_text}")
    if len(files_by_pattern) > _MOST_FILES:
        lines.append(f"#   and {len(files_by_pattern) - _MOST_FILES} more")
    return "".join(f"{line}\n" for line in lines)


def _rival_kinds(
    fitting_kinds: list[str], series_by_kind: dict[str, list[list[Frame]]]
) -> list[str]:
    """Return those kinds of series that occur in one study together with another kind of the list.

    A kind is named by the description of its series, with ``#`` for each number.
    """
    studies_by_kind = {}
    for kind in fitting_kinds:
        studies_by_kind[kind] = {frames[0].study_uid for frames in series_by_kind[kind]}
    rivals = []
    for kind in fitting_kinds:
        studies_of_others = set()
        for other in fitting_kinds:
            if other != kind:
                studies_of_others |= studies_by_kind[other]
        if studies_by_kind[kind] & studies_of_others:
            rivals.append(kind)
    return rivals


def _repeated_series(role: str, series: list[list[Frame]]) -> list[list[Frame]]:
    """Return the series of one kind of image of which a study has more than one.

    ``role`` is what the image is, such as ``dce``. Of high-b images only series with the highest
    b-value count. Of dynamic series only a series that holds many phases counts, because the phases
    may also come as one series each.
    """
    if role == "dce":
        series = [frames for frames in series if _n_images(frames) >= _MANY]
    if role == "hbv":  # series that have other b-values as well count by their highest
        highest = _highest_b(series)
        series = [frames for frames in series if max(_b_values([frames]), default=0.0) == highest]
    n_of_study = Counter(frames[0].study_uid for frames in series)
    return [frames for frames in series if n_of_study[frames[0].study_uid] > 1]


def _rival_series(
    role: str, fitting_kinds: list[str], series_by_kind: dict[str, list[list[Frame]]]
) -> list[list[Frame]]:
    """Return the undecided series: those of two kinds of one study, or of one kind that a study has
    twice.
    """
    rival_kinds = _rival_kinds(fitting_kinds, series_by_kind)
    rivals = []
    for kind in fitting_kinds:
        if kind in rival_kinds:
            rivals += series_by_kind[kind]
        else:
            rivals += _repeated_series(role, series_by_kind[kind])
    return sorted(rivals, key=lambda frames: frames[0].series_number)


def _first_phases(series: list[list[Frame]]) -> list[list[Frame]]:
    """Return the series without the later phases of a dynamic series that comes phase by phase.

    In such a case each phase is a series of its own. Their descriptions differ only in numbers, and
    the first series of each study is kept.
    """
    first_series: dict[tuple[str, str], list[Frame]] = {}
    first_phases = []
    for frames in series:
        if _n_images(frames) >= _MANY:  # a dynamic series with all its phases
            first_phases.append(frames)
            continue
        study_and_kind = (frames[0].study_uid, NUMBER.sub("#", frames[0].description))
        if study_and_kind not in first_series:
            first_series[study_and_kind] = frames
            first_phases.append(frames)
    return first_phases


def _decided_kind(
    role: str, number: int, fitting_kinds: list[str], series_by_kind: dict[str, list[list[Frame]]]
) -> list[str]:
    """Return the kinds of series that are left after a person has chosen one by a series number.

    These are the chosen kind, and those of ``fitting_kinds`` that never occur in one study with it.
    """
    candidates = _rival_series(role, fitting_kinds, series_by_kind)
    # Without rivals a person may still choose, among all series that fit.
    if not candidates:
        candidates = _series_of_kinds(fitting_kinds, series_by_kind)
    chosen = _kind_of_number(role, number, candidates)
    remaining_kinds = [chosen]
    for kind in fitting_kinds:
        if kind != chosen and kind not in _rival_kinds([kind, chosen], series_by_kind):
            remaining_kinds.append(kind)
    return remaining_kinds


def _series_of_kinds(
    fitting_kinds: list[str], series_by_kind: dict[str, list[list[Frame]]]
) -> list[list[Frame]]:
    """Return the series of several kinds, kind after kind."""
    series = []
    for kind in fitting_kinds:
        series += series_by_kind[kind]
    return series


def _kind_of_number(role: str, number: int, candidates: list[list[Frame]]) -> str:
    """Return the kind of the candidate series that has a number.

    A kind is the description of a series, with ``#`` for each number in it.
    """
    kind_of_number = {}
    descriptions_of_number = defaultdict(set)
    for frames in candidates:
        kind_of_number[frames[0].series_number] = NUMBER.sub("#", frames[0].description)
        descriptions_of_number[frames[0].series_number].add(printable(frames[0].description))
    if len(descriptions_of_number[number]) > 1:
        listed = " and ".join(repr(text) for text in sorted(descriptions_of_number[number]))
        raise CadError(
            f"series {number} is {listed}, in different studies: the number does not decide",
            hint=f"write the description that is {role} into the rules file",
        )
    if number not in kind_of_number:
        listed = ", ".join(str(candidate) for candidate in sorted(kind_of_number)[:_LISTED_NUMBERS])
        raise CadError(f"series {number} could not be {role}", hint=f"candidates: {listed or '-'}")
    return kind_of_number[number]


def _values_of_chosen(
    role: str, number: int, fitting_kinds: list[str], series_by_kind: dict[str, list[list[Frame]]]
) -> dict[str, set[float]]:
    """Return, by kind, the b-values or flip angles that a study also has in the chosen kind.

    The chosen kind is that of the series with this number. Of another kind, images of these values
    are not taken; images of other values are.
    """
    chosen = _kind_of_number(role, number, _series_of_kinds(fitting_kinds, series_by_kind))
    # The numbers of the chosen kind's series, by study and value.
    numbers_by_value: dict[tuple[str, float], set[int]] = defaultdict(set)
    for frames in series_by_kind[chosen]:
        for frame in frames:
            value = getattr(frame, _BY_VALUE[role])
            if value is not None:
                numbers_by_value[frame.study_uid, value].add(frames[0].series_number)
    # Two series of the chosen kind with one value are still rivals: the choice must not be one.
    for (_, value), numbers in numbers_by_value.items():
        if number in numbers and len(numbers) > 1:
            listed = ", ".join(str(series_number) for series_number in sorted(numbers))
            raise CadError(
                f"series {listed} have one description and {_BY_VALUE[role]} {value:g}: the number "
                f"{number} does not decide for {role}",
                hint="write the rules without this --take; then set prefer: last or first in them, "
                f"or give each match under {role} a series_number",
            )
    values_by_kind: dict[str, set[float]] = defaultdict(set)
    for kind in fitting_kinds:
        if kind == chosen:
            continue
        for frames in series_by_kind[kind]:
            for frame in frames:
                value = getattr(frame, _BY_VALUE[role])
                if value is not None and (frame.study_uid, value) in numbers_by_value:
                    values_by_kind[kind].add(value)
    return values_by_kind


def _candidate(frames: list[Frame], call: Call, pictures: bool) -> Candidate:
    """Return a line that describes a series, and pictures of it if wanted.

    The series could be an image that the rules look for, such as the ADC map.
    """
    head = frames[0]
    title = f"series {head.series_number} {printable(head.description)!r}"
    try:
        stacks = stacks_of(frames)
    except CadError as error:
        return Candidate(f"{title}: {error.problem}")  # its slices form no image
    n_of_image = Counter(_image_words(stack) for stack in stacks)
    image_texts = []
    for image, count in list(n_of_image.items())[:_SHOWN_KINDS_OF_IMAGE]:
        image_texts.append(f"{count} of {image}" if count > 1 else image)
    line = f"{title}: {'; '.join(image_texts)}"
    if head.sequence_name:
        line += f", {printable(head.sequence_name)}"
    if head.acquisition_time is not None:
        line += f", taken at {_clock_words(head)}"
    # Water shows whether the values of an ADC map have the usual scale.
    if _ADC.search(head.description):
        water = _water_of(stacks[0], call)
        if water is not None:
            line += f", brightest water {water:.0f} (free water at 37 C: 3000)"
    if not pictures:
        return Candidate(line)
    return Candidate(line, _slices_of(stacks[-1], call))


def _slices_of(stack: Stack, call: Call) -> list[np.ndarray]:
    """Return three slices of an image as grey levels (:func:`_preview_slices`).

    The list is empty if reading the image fails. ``call`` calls the function that reads it.
    """
    try:
        slices: list[np.ndarray] = call(_preview_slices, stack)
    except (CadError, OSError):
        return []
    return slices


def _preview_slices(stack: Stack) -> list[np.ndarray]:
    """Return three slices of an image as grey levels, small enough for a page."""
    values = read_stack(stack).array.astype(float)
    finite_values = values[np.isfinite(values)]
    black, white = np.percentile(finite_values, _SHOWN) if finite_values.size else (0.0, 0.0)
    count, rows, columns = values.shape
    # Only every step-th pixel is shown, so that no side is longer than the picture.
    step = max(1, math.ceil(max(rows, columns) / _PICTURE))
    slices = []
    quarters = {count // 4, count // 2, 3 * count // 4}  # fewer than three in a thin image
    for slice_index in sorted(quarters):
        small = np.nan_to_num(values[slice_index, ::step, ::step], nan=black)
        value_range = max(white - black, 1e-12)  # an image of one value must not divide by 0
        brightness = np.clip((small - black) / value_range, 0.0, 1.0)
        slices.append(np.round(255.0 * brightness).astype(np.uint8))
    return slices


def _clock_words(head: Frame) -> str:
    """Return the time at which a frame was acquired, as HH:MM:SS."""
    minutes, seconds = divmod(int(head.acquisition_time or 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}"


def _water_of(stack: Stack, call: Call) -> float | None:
    """Return the diffusion of free water in an ADC map (:func:`_free_water`); None if unknown.

    It is also None if the image cannot be read.
    """
    try:
        water: float | None = call(_free_water, stack)
    except (CadError, OSError):
        return None
    return water


def _free_water(stack: Stack) -> float | None:
    """Return the median of the largest bright region of an ADC map; None if there is none.

    A bladder contains free water, whose diffusion at body temperature is known. Another value shows
    that the map has another scale, or that its high b-values contain only noise.
    """
    from scipy import ndimage  # slow to load

    try:
        values = read_stack(stack).array.astype(float)
    except CadError:
        return None
    positive = values[values > 0]
    if not positive.size:
        return None
    smoothed = ndimage.median_filter(values, (1, 3, 3))  # single noisy voxels are not bright
    brightest = np.percentile(smoothed[values > 0], _BRIGHTEST_PERCENT)
    is_bright = smoothed >= _SHARE_OF_BRIGHTEST * brightest
    region_of_voxel, n_regions = ndimage.label(is_bright)
    if not n_regions:
        return None
    voxels_of_region = np.bincount(region_of_voxel.ravel())
    voxels_of_region[0] = 0  # number 0 stands for all voxels outside of regions
    voxel_ml = float(np.prod(stack.spacing)) / 1000.0  # from mm3
    largest = int(voxels_of_region.argmax())
    # A small bright region may be a cyst or noise, and no bladder.
    if voxels_of_region[largest] * voxel_ml < _LEAST_WATER_ML:
        return None
    return float(np.median(values[region_of_voxel == largest]))


def _dynamic_rule(matches: list[dict[str, object]], series: list[list[Frame]]) -> dict[str, object]:
    """Return the rule for a dynamic series from its matches.

    The times come from the descriptions if all series state seconds there.
    """
    all_state_seconds = all(_SECONDS.search(frames[0].description) for frames in series)
    return {"match": matches, "clock": "description" if all_state_seconds else "auto"}


def _kind_pattern(kind: str) -> str:
    """Return a regular expression of all descriptions of a kind, in which # stands for a number."""
    escaped = re.sub(r"([^\w\s#-])", r"\\\1", kind)
    return "^" + escaped.replace("#", r"[\d.]+") + "$"


def _n_images(frames: list[Frame]) -> int:
    """Return the number of 3-D images in a series; 0 if its slices form no image."""
    try:
        return len(stacks_of(frames))
    except CadError:
        return 0


def _is_t2(description: str, series: list[list[Frame]]) -> bool:
    """Tell whether series of one kind are axial T2 images, one image each."""
    return (
        bool(_T2.search(description) and _AXIAL.search(description))
        and not _OTHER_PLANE.search(description)
        and _n_images(series[0]) == 1
    )


def _is_adc(description: str, series: list[list[Frame]]) -> bool:
    """Tell whether series of one kind are ADC maps."""
    return "ADC" in series[0][0].image_type or bool(_ADC.search(description))


def _b_values(series: list[list[Frame]]) -> set[float]:
    """Return all b-values of some series."""
    values = set()
    for frames in series:
        values |= {frame.b_value for frame in frames if frame.b_value is not None}
    return values


def _highest_b(series: list[list[Frame]]) -> float:
    """Return the highest b-value of some series that have any."""
    return max(_b_values(series))


def _is_weighted(description: str, series: list[list[Frame]]) -> bool:
    """Tell whether series of one kind are diffusion-weighted images, and no ADC map of them."""
    return bool(_b_values(series) - {0.0}) and not _is_adc(description, series)


def _is_calculated(frame: Frame) -> bool:
    """Tell whether an image names itself as computed for a b-value that nobody acquired."""
    return any(_CALCULATED.search(text) for text in (frame.description, *frame.image_type))


def _has_calculated(frames: list[Frame]) -> bool:
    """Tell whether any image of a series is calculated."""
    return any(_is_calculated(frame) for frame in frames)


def _partly_calculated(series: list[list[Frame]]) -> list[list[Frame]]:
    """Return the series of a kind in the first study in which some of its images are calculated.

    The result is empty if all images of the kind are acquired, or all calculated.
    """
    calculated = []
    acquired = []
    for frames in series:
        for frame in frames:
            if _is_calculated(frame):
                calculated.append(frame)
            else:
                acquired.append(frame)
    if not calculated or not acquired:
        return []
    study_uid = calculated[0].study_uid
    series_of_study = [frames for frames in series if frames[0].study_uid == study_uid]
    return sorted(series_of_study, key=lambda frames: frames[0].series_number)


def _candidates_by_calculation(
    fitting_kinds: list[str],
    series_by_kind: dict[str, list[list[Frame]]],
    call: Call,
    pictures: bool,
) -> list[Candidate]:
    """Return the series of kinds in which only some images are calculated, as candidates.

    The line of each candidate says whether its images are calculated or acquired.
    """
    candidates = []
    for kind in fitting_kinds:
        for frames in _partly_calculated(series_by_kind[kind]):
            candidate = _candidate(frames, call, pictures)
            word = "calculated" if _has_calculated(frames) else "acquired"
            candidates.append(replace(candidate, line=f"{candidate.line}, {word}"))
    return candidates


def _matches_of_kind(
    role: str, kind: str, series: list[list[Frame]], left_out: set[float]
) -> list[dict[str, object]]:
    """Return the matches by which the rule for an image takes a kind of series.

    Images of the b-values or flip angles in ``left_out`` are not taken.
    """
    if role == "diffusion":
        return _diffusion_matches(kind, series, left_out)
    if role == "vfa":
        return _flip_angle_matches(kind, series, left_out)
    match: dict[str, object] = {"description": _kind_pattern(kind)}
    if role == "hbv":
        match["b_value"] = _highest_b(series)
    return [match]


def _diffusion_matches(
    kind: str, series: list[list[Frame]], left_out: set[float]
) -> list[dict[str, object]]:
    """Return the matches by which a rule takes the acquired images of a kind of series.

    Where calculated images have the same description, or some b-values are left out, each b-value
    gets a match of its own. A b-value of calculated images, and one that is left out, gets none.
    """
    match: dict[str, object] = {"description": _kind_pattern(kind), "exclude": "adc"}
    if not _partly_calculated(series) and not left_out:
        return [match]
    b_values = {"acquired": set[float](), "calculated": set[float]()}
    for frames in series:
        for frame in frames:
            if frame.b_value is not None:
                word = "calculated" if _is_calculated(frame) else "acquired"
                b_values[word].add(frame.b_value)
    wanted = sorted(b_values["acquired"] - b_values["calculated"] - left_out)
    matches = [{**match, "b_value": value} for value in wanted]
    # If every acquired b-value is also calculated, no b-value tells them apart: a person decides.
    if not matches and not left_out:
        return [match]
    return matches


def _flip_angle_matches(
    kind: str, series: list[list[Frame]], left_out: set[float]
) -> list[dict[str, object]]:
    """Return the matches by which a rule takes a kind of series, without some flip angles."""
    match: dict[str, object] = {"description": _kind_pattern(kind)}
    if not left_out:
        return [match]
    angles = set()
    for frames in series:
        for frame in frames:
            if frame.flip_angle is not None:
                angles.add(frame.flip_angle)
    return [{**match, "flip_angle": angle} for angle in sorted(angles - left_out)]


def _is_high_b(description: str, series: list[list[Frame]]) -> bool:
    """Tell whether series of one kind contain an image of high b-value."""
    return _is_weighted(description, series) and _highest_b(series) >= HIGH_B


def _is_diffusion(description: str, series: list[list[Frame]]) -> bool:
    """Tell whether series of one kind contain an acquired diffusion-weighted image."""
    if not _is_weighted(description, series):
        return False
    # A calculated image follows from the ADC map, so that it says nothing new about the ADC map.
    acquired = []
    for frames in series:
        acquired += [frame for frame in frames if not _is_calculated(frame)]
    return len(acquired) > 0


def _is_flip_angle(description: str, series: list[list[Frame]]) -> bool:
    """Tell whether series of one kind differ in their flip angles, as for a map of T1."""
    # T1 is measured by spoiled gradient echoes with repetition times far below 0.1 s. T2 and
    # diffusion images have repetition times of seconds.
    # A header without this time is no sign of a short one.
    times = [frames[0].repetition_time or math.inf for frames in series]
    has_short_repetition = all(time < _SHORT_REPETITION_S for time in times)
    angles_of_study: dict[str, list[float | None]] = defaultdict(list)
    for frames in series:
        angles_of_study[frames[0].study_uid].append(frames[0].flip_angle)
    # The phases of a dynamic series share one flip angle. Two acquisitions with the same flip
    # angles are no dynamic series: then no angle occurs more often than there are angles.
    for angles in angles_of_study.values():
        largest_count = max(Counter(angles).values())
        is_repeated = largest_count > len(set(angles))
        if largest_count > 1 and (is_repeated or _DYNAMIC.search(description)):
            return False
    return has_short_repetition and 1 < _most_of_a_study(series) < _TOO_MANY_ANGLES


def _most_of_a_study(series: list[list[Frame]]) -> int:
    """Return how many series of one kind a study has at most."""
    return max(Counter(frames[0].study_uid for frames in series).values())


def _is_ktrans(description: str, series: list[list[Frame]]) -> bool:
    """Tell whether series of one kind are Ktrans maps, one image each."""
    return bool(_KTRANS.search(description)) and _n_images(series[0]) == 1


def _is_dynamic(description: str, series: list[list[Frame]]) -> bool:
    """Tell whether series of one kind are a dynamic series, or its phases."""
    if _is_weighted(description, series) or _is_adc(description, series):
        return False
    count = _most_of_a_study(series)
    # Many series of a study whose descriptions count them are phases.
    if count >= _MANY and NUMBER.search(series[0][0].description):
        return True
    if _n_images(series[0]) >= _MANY:
        return True
    return count > 1 and _DYNAMIC.search(description) is not None


# The order matters: the first test that a series passes decides. Five flip angles would also pass
# as phases of a dynamic series.
_TESTS: dict[str, Callable[[str, list[list[Frame]]], bool]] = {
    "t2w": _is_t2,
    "adc": _is_adc,
    "ktrans": _is_ktrans,
    "vfa": _is_flip_angle,
    "dce": _is_dynamic,
    "hbv": _is_high_b,
    "diffusion": _is_diffusion,
}


_RULES = (*(modality.name for modality in MODALITIES), "vfa", "diffusion")
_BESIDE = ("rois", "lesion", "gland", "vessel", "scores")


@dataclass
class SeriesSeen:
    """Describe one series: its content, the rules that take it, and the rules that nearly do.

    Parameters
    ----------
    number, description, image_type : int, str, str
        SeriesNumber, SeriesDescription and ImageType.
    images : list of str
        The 3-D images in the series: size, spacing, b-value and flip angle.
    clocks : list of str
        Header times that could order the images in time.
    units : list of str
        Units of the voxels' values.
    taken_by : list of str
        Names of the rules whose conditions the series meets, such as ``t2w``.
    near_misses : list of str
        Rules of which the series meets all conditions but one, and this condition.
    problem : str
        Reason why the images cannot be read; empty when they can.
    """

    number: int
    description: str
    image_type: str
    images: list[str] = field(default_factory=list)
    clocks: list[str] = field(default_factory=list)
    units: list[str] = field(default_factory=list)
    taken_by: list[str] = field(default_factory=list)
    near_misses: list[str] = field(default_factory=list)
    problem: str = ""


@dataclass
class StudySeen:
    """Describe one study of a source.

    Parameters
    ----------
    number : int
        Number of the study in the source, from 1.
    archive : str
        Name of the zip archive that holds the study; empty for a study in a folder.
    series : list of SeriesSeen
        The series of the study.
    objects, files : list of str
        Annotation objects (SEG, RTSTRUCT) of the study, and the files beside its series that the
        rules take.
    problems : list of str
        Reasons why an import would refuse the study or parts of it.
    """

    number: int
    archive: str = ""
    series: list[SeriesSeen] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def alike(self) -> list[list[SeriesSeen]]:
        """Return the series in groups: the phases of a dynamic series are one group.

        Any other series is a group of its own.
        """
        return [list(phases) for _, phases in groupby(self.series, key=_phase_key)]


@dataclass
class SourceExplanation:
    """Hold the findings of :func:`explain_source`.

    Parameters
    ----------
    studies : list of StudySeen
        The studies of the source.
    problems : list of str
        Files that could not be read or were left out.
    starter : str
        Proposal for a rules file that fits the source, as YAML.
    """

    studies: list[StudySeen]
    problems: list[str]
    starter: str

    def as_dict(self) -> dict[str, object]:
        """Return ``studies``, ``problems`` and ``starter`` as plain values, for ``--json``."""
        return asdict(self)

    def as_text(self) -> str:
        """Return the explanation as text, for a terminal."""
        return page_beside(__file__).render(vars(self)).removesuffix("\n")


def explain_source(
    source: Path,
    rules: Path | None = None,
    call: Call = in_this_process,
    unpacked: Path | None = None,
) -> SourceExplanation:
    """Return which series an import would take, and why not the others; nothing is imported.

    Parameters
    ----------
    source : Path
        Folder or zip archive.
    rules : Path, optional
        Rules file. Without one the result lists the series and proposes a rules file, but names no
        series as taken.
    call : callable
        Calls the functions that open files: ``call(function, *arguments)`` returns the result of
        ``function(*arguments)``. By default they run in this process.
    unpacked : Path, optional
        Folder for the content of archives; by default one of the system's folders for temporary
        files.

    Raises
    ------
    CadError
        When the source does not exist, or the rules are not valid.
    """
    settings = read_settings(ImportRules, rules) if rules else None
    if not source.exists():
        raise CadError("no such folder or archive", file=source)
    failures: list[CadError] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="cad-explain-", dir=unpacked) as scratch:
        studies = find_studies(source, Path(scratch), failures, notes, call)
        if not studies and not failures:
            left_out = "; ".join(notes[:_REASONS_IN_HINT])
            raise CadError("no DICOM image found", file=source, hint=left_out)
        explained = []
        for number, study in enumerate(studies, start=1):
            explained.append(_study_seen(number, study, settings, call))
        starter = proposed_rules(studies, call=call).text
    return SourceExplanation(explained, [*map(str, failures), *notes], starter)


def _study_seen(
    number: int, study: SourceStudy, rules: ImportRules | None, call: Call
) -> StudySeen:
    """Return what an import would do with a study; without rules, only what the study holds."""
    archive_name = "" if study.archive is None else printable(study.archive.name)
    entry = StudySeen(number, archive_name)
    for frames in sorted(by_series(study.slices), key=lambda series: series[0].series_number):
        entry.series.append(_series_seen(frames, rules))
    for path in study.objects:
        try:
            entry.objects.append(call(_drawn_object, path, rules))
        except (CadError, OSError) as error:
            entry.problems.append(str(study.naming_source(as_problem(error))))
    if rules is not None:
        for name in _BESIDE:
            path_beside = study.beside(getattr(rules, name))
            if path_beside:
                entry.files.append(f"{path_beside.name} as {name}")
        entry.files += _files_by_rules(study, rules)
    entry.problems += [study.naming_source(error).problem for error in study.unusable]
    try:
        study.check_patient()
    except CadError as error:
        entry.problems.append(str(study.naming_source(error)))
    if rules is not None and not any("t2w" in series.taken_by for series in entry.series):
        entry.problems.append("no series is the T2 image by the rules")
    return entry


def _files_by_rules(study: SourceStudy, rules: ImportRules) -> list[str]:
    """Return the Ktrans map and the table of findings that the rules take for a study."""
    texts = []
    maps = []
    for folder in study.tables:
        for place in rules.ktrans_file:
            maps += [path for _, path in files_of(folder, place, study.patient_id)]
    if maps:  # an import takes the first one
        texts.append(f"{printable(maps[0].name)} as ktrans")
    if rules.findings is not None:
        tables = findings_tables(study.tables, rules.findings.file)
        if tables:
            texts.append(f"{printable(tables[0].name)} as findings")
    return texts


def _series_seen(frames: list[Frame], rules: ImportRules | None) -> SeriesSeen:
    """Return what a series holds, and which rules take it or nearly take it."""
    head = frames[0]
    entry = SeriesSeen(
        number=head.series_number,
        description=printable(head.description),
        image_type=printable("\\".join(head.image_type)),
    )
    try:
        stacks = stacks_of(frames)
        n_of_image = Counter(_image_words(stack) for stack in stacks)
        for image, count in n_of_image.items():
            entry.images.append(f"{count} of {image}" if count > 1 else image)
        if len(stacks) > 1:
            tags = {stack.told_apart_by for stack in stacks}
            entry.clocks = [f"told apart by {tag}" for tag in tags if tag]
            entry.clocks.append(_clock_of(stacks))
    except CadError as error:
        entry.problem = error.problem
    # A clock can order the images only if every one of them states its time.
    for clock in CLOCKS:
        if all(getattr(frame, f"{clock}_time") is not None for frame in frames):
            entry.clocks.append(clock)
    entry.units = sorted({frame.real.unit or "not stated" for frame in frames})
    if rules is not None:
        for name in _RULES:
            _judge_rule(entry, frames, name, rules)
    return entry


def _image_words(stack: Stack) -> str:
    """Return size, spacing, b-value and flip angle of an image, in words."""
    shape_xyz = stack.shape[::-1]
    size = " x ".join(str(count) for count in shape_xyz)
    spacing = " x ".join(f"{millimetres:.3g}" for millimetres in stack.spacing)
    text = f"{size} voxels of {spacing} mm"
    if stack.first.b_value is not None:
        text += f", b {stack.first.b_value:g}"
    if stack.first.flip_angle is not None:
        text += f", flip {stack.first.flip_angle:g}"
    return text


def _clock_of(stacks: list[Stack]) -> str:
    """Return, in words, the clock by which images would be ordered as a dynamic series."""
    try:
        phases = order_phases(stacks)
    except CadError as error:
        return f"no clock: {error.problem}"
    notes_text = "".join(f"; {note}" for note in phases.notes)
    return f"as a dynamic series: {len(phases.timed)} phases by {phases.clock}{notes_text}"


def _judge_rule(entry: SeriesSeen, frames: list[Frame], name: str, rules: ImportRules) -> None:
    """Note in ``entry`` whether a series meets all conditions of rule ``name``, or all but one."""
    near_misses = []
    for index, match in enumerate(rules.matches(name), start=1):
        # A rule takes single images of a series. The image that misses least therefore decides.
        misses_of_frames = [list(match.misses(frame)) for frame in frames]
        misses = min(misses_of_frames, key=len)
        if not misses:
            entry.taken_by.append(name)
            return
        # A match with a single condition is no near miss if this condition fails. The factor
        # ``scale`` is no condition.
        conditions = match.model_fields_set - {"scale"}
        if len(misses) == 1 and len(conditions) > 1:
            near_misses.append(f"{name}, entry {index}: {misses[0]}")
    entry.near_misses += near_misses


def _drawn_object(path: Path, rules: ImportRules | None) -> str:
    """Return kind, file and drawn names of a SEG or RTSTRUCT object, in words."""
    dataset = read_dataset(path, force=True)  # force: some files lack the preamble
    with reading(path, "not a sound SEG or RTSTRUCT object"):
        kind = str(dataset.get("Modality", ""))
        sequence = "StructureSetROISequence"
        element = "ROIName"
        if kind == "SEG":
            sequence = "SegmentSequence"
            element = "SegmentLabel"
        names = [str(item.get(element, "")) for item in dataset.get(sequence, [])]
    if not names:
        return f"{kind} {path.name}: nothing drawn"
    texts = []
    for name in names:
        text = f"{printable(name)!r}"
        if rules and not re.fullmatch(rules.roi_name, name.strip()):
            text += " (not asked for)"
        texts.append(text)
    return f"{kind} {path.name}: {', '.join(texts)}"


def _phase_key(entry: SeriesSeen) -> tuple[object, ...]:
    """Return a key of a series that is equal for all phases of one dynamic series.

    The key leaves out the number and the times of the series. It contains the description, and the
    rules of which the series meets all conditions but one (``near_misses``). In both, ``#`` stands
    for each number.
    """
    description = NUMBER.sub("#", entry.description)
    near_misses = [NUMBER.sub("#", text) for text in entry.near_misses]
    return (
        description,
        near_misses,
        entry.image_type,
        entry.images,
        entry.taken_by,
        entry.problem,
        entry.units,
    )


def write_rules(
    source: Path,
    rules: Path,
    take: Mapping[str, int] | None = None,
    call: Call = in_this_process,
    unpacked: Path | None = None,
) -> dict[str, list[Candidate]]:
    """Write a rules file for the import of a source.

    If several series could be the same image, the file lists this image as undecided. An import
    then refuses the file until a person has decided.

    Parameters
    ----------
    source : Path
        Folder or zip archive.
    rules : Path
        File to write. A file that is there is replaced if this function wrote it and nobody has
        changed it since.
    take : mapping of str to int, optional
        Decisions: by role, the number of a series (:func:`proposed_rules`).
    call : callable
        Calls the functions that open files: ``call(function, *arguments)`` returns the result of
        ``function(*arguments)``. By default they run in this process.
    unpacked : Path, optional
        Folder for the content of archives; by default one of the system's folders for temporary
        files.

    Returns
    -------
    dict of str to list of Candidate
        By role, the series among which an import with this file could not choose; empty where the
        file can be used as it is.

    Raises
    ------
    CadError
        When another file is there, the source holds no DICOM image, or a decision names no
        candidate.
    """
    check_replaceable(rules, "the rules file")
    if not source.exists():
        raise CadError("no such folder or archive", file=source)
    failures: list[CadError] = []
    with tempfile.TemporaryDirectory(prefix="cad-rules-", dir=unpacked) as scratch:
        notes: list[str] = []
        studies = find_studies(source, Path(scratch), failures, notes, call)
        if not studies:
            reasons = [*map(str, failures), *notes]
            raise CadError(
                "no DICOM image found", file=source, hint="; ".join(reasons[:_REASONS_IN_HINT])
            )
        proposal = proposed_rules(studies, take, call, pictures=True)
    write_atomic(rules, marked(proposal.text, "#"))
    read_settings(ImportRules, rules)  # checks that the written file can be read
    return proposal.undecided


def marked(text: str, begin: str, end: str = "") -> bytes:
    """Return a text as UTF-8, with a last line by which :func:`check_replaceable` recognises it.

    Parameters
    ----------
    text : str
        Content of a file.
    begin, end : str
        Signs that begin and end a comment in the file's language.
    """
    lines = text.rstrip("\n").encode() + b"\n"
    mark = f"{begin} {_MARK} {hashlib.sha256(lines).hexdigest()} {end}".rstrip()
    return lines + f"{mark}\n".encode()


def check_replaceable(path: Path, what: str) -> None:
    """Refuse a path at which something lies that ``--new-rules`` did not write as it is now.

    Parameters
    ----------
    path : Path
        File that is to be written.
    what : str
        Name of the file in the message.

    Raises
    ------
    CadError
        When the file is a link or a folder, was written by another program, or was changed.
    """
    if not os.path.lexists(path):  # a link that leads nowhere is there, too
        return
    if path.is_file() and not path.is_symlink():
        marked_file = _MARKED.fullmatch(read_bytes(path, _MOST_BYTES))
        if marked_file:
            lines_before_mark, stated_hash = marked_file[1], marked_file[2].decode()
            if hashlib.sha256(lines_before_mark).hexdigest() == stated_hash:
                return
    raise CadError(
        f"{what} is there already, and is not as --new-rules wrote it",
        file=path,
        hint="give --new-rules another name, or delete this file",
    )


def decisions(words: Iterable[str]) -> dict[str, int]:
    """Read a person's choices of series, such as ``adc=12``; return the series number by role.

    Parameters
    ----------
    words : iterable of str
        ROLE=SERIES, of the roles ``t2w``, ``adc``, ``ktrans``, ``dce``, ``hbv``, ``vfa`` and
        ``diffusion``.

    Returns
    -------
    dict of str to int
        The number of the chosen series, by role.

    Raises
    ------
    CadError
        When a word is not of the form ROLE=SERIES.
    """
    roles = (*_ONE_IMAGE, *_BY_VALUE)
    number_by_role: dict[str, int] = {}
    for word in words:
        role, _, number = word.partition("=")
        if role not in roles or not number.isdecimal():
            raise CadError(
                f"--take {word!r} is no ROLE=SERIES",
                hint=f"a role of {', '.join(roles)} and a series number, such as adc=12",
            )
        if role in number_by_role:
            raise CadError(f"--take names {role} twice", hint="name one series for each role")
        number_by_role[role] = int(number)
    return number_by_role
