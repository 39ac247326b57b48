"""Turn the header of one file into frames: classic, enhanced multi-frame, parametric map, mosaic.

In an enhanced object, the values that a classic header has at its top are in functional groups. A
group belongs to one frame, or is shared by all frames. The values are copied to the keywords of a
classic header, so that one function can read any plane. A value of a frame is used rather than a
shared value, and a shared value rather than a value at the top.
"""

import datetime
import hashlib
import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
from pydicom.dataset import Dataset
from pydicom.filereader import read_dataset
from pydicom.multival import MultiValue

from cad.base.doors import door
from cad.base.errors import CadError, printable
from cad.base.reading import reading
from cad.base.terms.beside import table_beside
from cad.mri.imaging import vendor
from cad.mri.imaging.elements import Excerpt, tagged
from cad.mri.imaging.frames import ROUNDED, UID, Frame, Lying, Scale, read_header
from cad.mri.imaging.units import factor_between, plain_unit

_TABLES = table_beside(__file__)
# Each of these tables maps a field of a frame (such as ``flip_angle``) to the DICOM keyword of the
# header element that the field is read from (``FlipAngle``). The table ``lists`` maps a field to
# the keyword and the number of values.
_KINDS = ("singles", "texts", "uids", "numbers", "milliseconds", "orders", "counts", "clocks")
_LISTS: dict[str, tuple[str, int]] = _TABLES["lists"]
_KEYWORDS: list[str] = []
for _kind in _KINDS:
    _KEYWORDS += _TABLES[_kind].values()
_KEYWORDS += [word for word, _ in _LISTS.values()]
_KEYWORDS += _TABLES["others"]
_ENHANCED: dict[str, str] = _TABLES["enhanced"]
_MACROS: list[str] = _TABLES["macros"]
_SHARED_GROUPS = "SharedFunctionalGroupsSequence"
_FRAME_GROUPS = "PerFrameFunctionalGroupsSequence"
_TIME_OFFSET = "TemporalPositionTimeOffset"
_MAPPING = "RealWorldValueMappingSequence"
_INTEGER_LIMIT = 2**31  # integers of a header have 32 bits with their sign (PS3.5 6.2)
_ONE_SCALE = "export the series again, with one rescale slope and intercept for each image"
_ROUNDED_MM = 1e-3  # largest difference (mm) of two roundings of one coordinate
_UNIT_TOLERANCE = 1e-3  # by how much the length of a rounded unit vector may differ from 1
_ELEMENT_START = 8  # bytes before the value of an element with a short length
_DATE = re.compile(r"\d{8}", re.ASCII)
_TIME = re.compile(r"([01]\d|2[0-3])([0-5]\d)?((?:[0-5]\d|60)(?:\.\d*)?)?", re.ASCII)
# Size in bytes of the longest element from which a twin is made or whose value is cached. A file
# with a longer one is read as a whole header.
_LONGEST = 256
Twins = dict[tuple[object, ...], Frame]


def _tags(keywords: Iterable[str]) -> list[int]:
    return [pydicom.datadict.tag_for_keyword(word) or 0 for word in keywords]


LAYOUT = _tags(_TABLES["layout"])
"""Tags of the elements that state how pixels are stored."""
PERSONS = dict(zip(_TABLES["persons"], _tags(_TABLES["persons"]), strict=True))
"""Tags of the elements beside the PatientID that say who a patient is, by keyword."""
TAGS = {
    *_tags((*_KEYWORDS, _SHARED_GROUPS, _FRAME_GROUPS, "SpecificCharacterSet")),
    *vendor.TAGS,
    *LAYOUT,
    *PERSONS.values(),
}
_PLACES = {keyword: count for keyword, count in _LISTS.values() if keyword in _TABLES["places"]}
# Elements that an enhanced header (one header for all frames of a file) may state in two places
# only if both places agree.
_ONE_MEANING = {
    *_tags(("RescaleSlope", "RescaleIntercept", "RescaleType", _MAPPING)),
    *_tags((*_PLACES, *_TABLES["acquisition"])),
}
# Elements that say whose image it is, and of which object; an enhanced header states them at its
# top. A converter may keep old values of the renewed elements in a sequence.
_TOP = {*_tags(_TABLES["top"])}
_RENEWED = {*_tags(_TABLES["renewed"])}
# The highest plausible number of a field, and its unit.
_HIGHEST: dict[str, tuple[float, str]] = _TABLES["highest"]
# The tag of the classic element under which each element of an enhanced header is kept.
_FLAT = {tag: tag for tag in _tags((*_KEYWORDS, _TIME_OFFSET))} | dict(
    zip(_tags(_ENHANCED), _tags(_ENHANCED.values()), strict=True)
)


def frames_of(
    dataset: Dataset, path: Path, extract: Excerpt | None = None, twins: Twins | None = None
) -> list[Frame]:
    """Return the planes of one DICOM file, headers only.

    Parameters
    ----------
    dataset : Dataset
        Header of the file, read with at least :data:`TAGS`. For a mosaic the elements of
        :data:`cad.mri.imaging.vendor.CSA_TAGS` are read from the file and added in place.
    path : Path
        The file.
    extract : Excerpt, optional
        Excerpt of the file with the elements of :data:`TAGS`; with it, the frame says where and how
        its pixels are stored.
    twins : dict, optional
        The frame of a classic image is added to this dictionary, so that :func:`twin` finds it.

    Returns
    -------
    list of Frame
        One plane for a classic image. For a multi-frame object, one plane per frame; for a mosaic,
        one per tile; for a grid, one per slice.

    Raises
    ------
    CadError
        For a multi-frame object, mosaic or grid that does not say where each slice lies, and for a
        series with both phase-encoding directions.
    """
    if _FRAME_GROUPS in dataset:
        return _enhanced_frames(dataset, path)
    count = _int(dataset.get("NumberOfFrames")) or 1
    if count > 1:
        raise CadError(
            f"a multi-frame image with {count} frames that does not say where each lies",
            hint="export the series as enhanced MR or as single images",
        )
    if vendor.mixed_polarity(dataset):
        raise CadError(
            "images of both phase-encoding directions in one series (GE): they differ in place",
            hint="export the images of one direction",
        )
    frame = _frame(dataset, path, index=0)
    slices = vendor.grid_slices(dataset)
    if slices:
        return _united_imaging_slices(frame, slices)
    if vendor.is_mosaic(dataset):
        dataset.update(read_header(path, vendor.CSA_TAGS))
        return _mosaic_slices(dataset, frame, vendor.mosaic_tiles(dataset))
    if extract is not None and twins is not None:
        frame = replace(frame, lying=_lying(extract))
        twins[_constant_statements(extract)] = frame
    return [frame]


def twin(extract: Excerpt, path: Path, twins: Twins) -> Frame | None:
    """Return the frame of a classic image whose header is like that of an earlier image.

    Most of a header is the same in all slices of a series. Only the values that differ are
    therefore read. The result is None if no earlier header is like this one.

    Parameters
    ----------
    extract : Excerpt
        Excerpt of the file, with the elements of :data:`TAGS`.
    path : Path
        The file.
    twins : dict
        The frames of earlier images, from :func:`frames_of`.
    """
    earlier = twins.get(_constant_statements(extract))
    elements = {field: extract.elements.get(tag, b"") for field, tag in _DIFFERING.items()}
    # These elements are read one by one, without the header's character set. So a text must be
    # ASCII, which is the same in every character set.
    plain = all(
        len(element) <= _LONGEST and element[_ELEMENT_START:].isascii()
        for element in elements.values()
    )
    if earlier is None or not plain:
        return None
    lying = _lying(extract)
    if lying and earlier.lying:  # all frames share one layout object, which saves memory
        lying = lying._replace(layout=earlier.lying.layout)
    implicit = extract.syntax.is_implicit_VR
    with suppress(CadError):  # frames_of reports an error when it reads the whole header
        values = {field: _value(field, element, implicit) for field, element in elements.items()}
        return replace(earlier, path=path, lying=lying, **values)
    return None


# Values are cached, because in a dynamic series the same positions, numbers and times occur again
# and again.
@lru_cache(maxsize=20_000)
@door("in", "DICOM", limit=_LONGEST)
def _value(field: str, element: bytes, implicit: bool) -> Any:
    """Return the value of a frame's field, read from the bytes of its element.

    ``implicit`` tells whether the element is written without its VR.
    """
    with reading("", field):
        header = read_dataset(BytesIO(element), implicit, is_little_endian=True)
        return _field(header, field)


def _lying(extract: Excerpt) -> Lying | None:
    """Return how the pixels are stored in a file.

    The result is None if the pixels are compressed or not in one place.
    """
    layout = [extract.elements[tag] for tag in LAYOUT if tag in extract.elements]
    # An offset table may be very long, and the layout is kept for every file.
    is_long = any(len(element) > _LONGEST for element in layout)
    if extract.pixels is None or extract.syntax.is_encapsulated or is_long:
        return None
    pixel_start, begin, end = extract.pixels  # tag, VR and length of the pixel data; two positions
    return Lying(
        layout=(extract.syntax.encode(), pixel_start, *layout),
        begin=begin,
        end=end,
        state=extract.state,
    )


def _constant_statements(extract: Excerpt) -> tuple[object, ...]:
    """Return all that a file states about an image, except values that differ between slices.

    Two images are twins if these statements are equal.
    """
    # The meta information repeats the SOPInstanceUID, which is different in every file, and is
    # compared without it. Where the element is missing, zeros are taken out: they tell nothing.
    sop_uid = extract.elements.get(_DIFFERING["sop_uid"], b"")[_ELEMENT_START:]
    meta = extract.start.replace(sop_uid or b"\0", b"")
    constant = []
    for tag, element in extract.elements.items():
        # Of an element that differs, tag and VR alone count: the first six bytes.
        constant.append(element[:6] if tag in _DIFFERING_TAGS else element)
    pixel_start = None if extract.pixels is None else extract.pixels[0]
    return (meta, pixel_start, *constant)


def _enhanced_frames(dataset: Dataset, path: Path) -> list[Frame]:
    """Return the planes of an enhanced multi-frame object, one for each item of its groups."""
    groups = dataset.PerFrameFunctionalGroupsSequence
    count = _int(dataset.get("NumberOfFrames")) or 1
    if len(groups) != count:
        raise CadError(
            f"{count} frames, but functional groups for {len(groups)}",
            hint="export the series again, or as single images",
        )
    # A later copy replaces an earlier one: first the top of the header is copied, then what all
    # frames share, then what is of one frame.
    common = Dataset()
    _copy_elements(dataset, common)
    for shared in dataset.get(_SHARED_GROUPS) or []:
        _copy_macros(shared, common, _SHARED_GROUPS)
    frames = []
    for index, group in enumerate(groups):
        frames.append(_frame(_header_of_frame(common, group), path, index))
    return frames


def _header_of_frame(common: Dataset, group: Dataset) -> Dataset:
    """Return the flat header of one frame: what all frames have in common, and its own group."""
    flat = Dataset()
    flat.update(common)
    _copy_macros(group, flat, _FRAME_GROUPS)
    if _TIME_OFFSET in flat and "TriggerTime" not in flat:
        # A classic header states this time in ms, an enhanced one in s.
        flat.TriggerTime = 1000 * float(flat[_TIME_OFFSET].value)
    return flat


def _copy_macros(group: Dataset, flat: Dataset, groups_keyword: str) -> None:
    """Copy the elements of a functional group, and of the macros in it, to a flat header.

    ``groups_keyword`` names the sequence in which the group stands.
    """
    _copy_elements(group, flat, groups_keyword)  # the real-world value mapping is beside the macros
    for macro in _MACROS:
        for item in group.get(macro) or []:
            _copy_elements(item, flat, macro)
            for direction in item.get("DiffusionGradientDirectionSequence") or []:
                _copy_elements(direction, flat, macro)
    vendor.lay_scale_slope(group, flat)


def _copy_elements(source: Dataset, flat: Dataset, place: str = "") -> None:
    """Copy elements of a header to a flat header, in which no element is inside a sequence.

    ``place`` is the sequence that the elements come from, empty for the top of the header.
    """
    for tag in source.keys() & _FLAT.keys():
        element = source[tag]
        target = _FLAT[tag]
        # In a sequence, a converter may have kept the value of the series that it converted.
        if place and target in _RENEWED:
            continue
        # An empty element must not replace a value from another place.
        if element.value in (None, ""):
            continue
        if place and target in _TOP:
            _check_top(element, flat, place)
            continue
        value = element.value
        if target in flat and target in _ONE_MEANING:
            value = _restated(element, flat[target])
        elif element.tag != target and element.VR == "DT":
            # A date and time becomes a clock time: without the date's eight digits, and without
            # the offset of the time zone behind a sign.
            value = str(value)[8:].split("+")[0].split("-")[0]
        flat[target] = pydicom.DataElement(
            target, pydicom.datadict.dictionary_VR(target), value, already_converted=True
        )


def check_identity(item: Dataset, top: Dataset, place: str) -> None:
    """Refuse an item of a sequence that is of another patient, study or object than the header.

    Parameters
    ----------
    item : Dataset
        The item; sequences inside it are not looked at.
    top : Dataset
        The header.
    place : str
        The sequence, for the message.

    Raises
    ------
    CadError
        Naming the element; its values are not shown.
    """
    for tag in item.keys() & _TOP:
        if item[tag].value not in (None, ""):  # an empty element contradicts nothing
            _check_top(item[tag], top, place)


def _check_top(element: pydicom.DataElement, top: Dataset, place: str) -> None:
    """Refuse an element that has one value at the top of the header and another in a sequence.

    The element tells of which patient, study or object the frame is. The message does not show the
    two values, because they may name a person.
    """
    stated = str(top[element.tag].value).strip() if element.tag in top else ""
    if stated and str(element.value).strip() != stated:
        raise CadError(
            f"{tagged(element.keyword)} has one value at the top of the header, and another in "
            f"{tagged(place)}",
            hint="the frames may be of two objects; export the series again, or as single images",
        )


def _restated(element: pydicom.DataElement, earlier: pydicom.DataElement) -> Any:
    """Return the value of an element that stands in two places of a header with one meaning.

    Real-world value mappings of both places are kept; they are compared when the scale is read.

    Raises
    ------
    CadError
        When the two places state different numbers or units.
    """
    keyword = earlier.keyword
    if keyword == _MAPPING:
        return [*element.value, *earlier.value]
    places = (earlier, element)
    if keyword == "RescaleType":
        shown = [printable(str(place.value)) for place in places]
        units = {plain_unit(str(place.value)) for place in places}
        agree = len(units - {""}) <= 1  # no unit contradicts no unit
    elif keyword in _PLACES:
        shown = [printable(str(place.value), limit=128) for place in places]
        # A list that is none, or has NaN, counts as zeros: it agrees only with another such list.
        count = _PLACES[keyword]
        numbers = [_finite_numbers(place.value, count) or (0.0,) * count for place in places]
        # Coordinates near 0 have no relative accuracy. A pixel is never that small.
        slack = 0.0 if keyword == "PixelSpacing" else _ROUNDED_MM
        agree = bool(np.allclose(numbers[0], numbers[1], rtol=ROUNDED, atol=slack))
    else:
        # An element without a number counts as 0.
        first, second = [_one_number(place.value, keyword) or 0.0 for place in places]
        shown = [f"{first:g}", f"{second:g}"]
        agree = math.isclose(first, second, rel_tol=ROUNDED)
    if not agree:
        raise CadError(
            f"{tagged(keyword)} stands twice in the header of one frame, as {shown[0]} and as "
            f"{shown[1]}; one header states it once, or alike",
            hint="export the series again, or as single images",
        )
    return element.value


def _mosaic_slices(dataset: Dataset, whole: Frame, count: int) -> list[Frame]:
    """Cut a Siemens mosaic, one frame that shows ``count`` slices side by side, into its slices.

    The position in the header is the corner of a plane as large as the whole mosaic, with the first
    slice in its middle. From slice to slice the position moves along the normal that Siemens'
    private CSA header states (https://nipy.org/nibabel/dicom/dicom_mosaic.html).
    """
    step = _float(dataset.get("SpacingBetweenSlices"))
    normal = vendor.mosaic_normal(dataset)
    # A mosaic has as many tiles across as down; the last ones may be empty.
    side = math.ceil(math.sqrt(count))
    if whole.rows % side or whole.columns % side:
        raise CadError(
            f"a mosaic of {count} slices in {side} x {side} tiles, but {whole.rows} x "
            f"{whole.columns} pixels do not divide by {side}"
        )
    if whole.position is None or whole.orientation is None or whole.pixel_spacing is None:
        raise CadError("a mosaic without ImagePositionPatient, orientation or PixelSpacing")
    rows = whole.rows // side
    columns = whole.columns // side
    along_row, along_column = np.array(whole.orientation).reshape(2, 3)
    # Two unit vectors along one line have the product 1 or -1: the normal may point either way.
    product = float(np.cross(along_row, along_column) @ normal)
    if abs(abs(product) - 1) > _UNIT_TOLERANCE:
        raise CadError("a mosaic whose CSA slice normal is not normal to its image plane")
    if not step or step <= 0:
        raise CadError("a mosaic without SpacingBetweenSlices")
    row_mm, column_mm = whole.pixel_spacing
    # From the corner of the large plane to the corner of the first slice in its middle.
    first = np.array(whole.position)
    first = first + along_row * (whole.columns - columns) / 2 * column_mm
    first = first + along_column * (whole.rows - rows) / 2 * row_mm
    frames = []
    for index in range(count):
        x, y, z = (first + index * step * normal).tolist()
        frame = replace(
            whole, index=index, tiles=side, rows=rows, columns=columns, position=(x, y, z)
        )
        frames.append(frame)
    return frames


def _united_imaging_slices(whole: Frame, slices: list[Dataset]) -> list[Frame]:
    """Return the slices of a grid of slices, as scanners of United Imaging store it in one frame.

    Each slice states its own place and time.
    """
    # The grid is as square as the number of slices allows, and has no empty row.
    across = math.ceil(math.sqrt(len(slices)))
    down = math.ceil(len(slices) / across)
    if whole.rows % down or whole.columns % across:
        raise CadError(
            f"a grid of {len(slices)} slices in {down} x {across} tiles, but {whole.rows} x "
            f"{whole.columns} pixels do not divide by them"
        )
    times = []
    for item in slices:
        time = _seconds_of_day(item.get("AcquisitionTime"))
        if time is not None:
            times.append(time)
    # One file is one time point. All its slices therefore get the earliest time.
    earliest = min(times, default=None)
    frames = []
    for index, item in enumerate(slices):
        frame = replace(
            whole,
            index=index,
            tiles=across,
            rows=whole.rows // down,
            columns=whole.columns // across,
            position=_finite_numbers(item.get("ImagePositionPatient"), 3),
            acquisition_time=earliest,
        )
        frames.append(frame)
    return frames


def _frame(header: Dataset, path: Path, index: int) -> Frame:
    """Return the plane that a flat header describes, with ``index`` as its number in the file."""
    fields = {field: _field(header, field) for field in _READERS}
    # Scanners without the standard elements of diffusion state it in private elements.
    if fields["b_value"] is None:
        fields["b_value"] = vendor.b_value(header)
    for field, (highest, unit) in _HIGHEST.items():
        _check_plausible(header, field, fields[field], highest, unit)
    gradient = fields["direction"] or vendor.direction(header)
    # A gradient of three zeros, as for b = 0, has no direction.
    has_direction = gradient is not None and any(gradient)
    fields["direction"] = gradient if has_direction else None
    real, precise = _scales(header)
    return Frame(
        path=path,
        index=index,
        tiles=0,
        study_uid=_checked_uid(required(header, "StudyInstanceUID"), "StudyInstanceUID"),
        study_date=_date_and_time(header.get("StudyDate"), header.get("StudyTime")),
        image_type=_texts_of_value(header.get("ImageType")),
        group_delay=vendor.group_delay(header),
        rows=int(required(header, "Rows")),
        columns=int(required(header, "Columns")),
        real=real,
        precise=precise,
        **fields,
    )


def persons(dataset: Dataset) -> set[tuple[str, bytes]]:
    """Return what a header states of its patient beside the PatientID.

    Parameters
    ----------
    dataset : Dataset
        Header of a file, read with at least :data:`TAGS`.

    Returns
    -------
    set of tuple of str and bytes
        The keyword of each element of :data:`PERSONS` that has a value, and a digest of the value.
        Letters in upper and lower case, and empty components of a name, make no difference.
    """
    stated = set()
    for keyword, tag in PERSONS.items():
        if tag not in dataset:
            continue
        value = dataset.get_item(tag).value  # bytes as in the file; they need no character set
        written = value if isinstance(value, bytes) else str(value or "").encode()
        # Behind "=" a name is repeated in other letters, which not every program writes.
        text = written.split(b"=")[0].strip(b" ^\0").lower()
        if text:
            stated.add((keyword, hashlib.sha256(text).digest()))
    return stated


def required(header: Dataset, keyword: str) -> Any:
    """Return the value of an element without which an image cannot be read.

    Parameters
    ----------
    header : Dataset
        Header of an image.
    keyword : str
        The element.

    Raises
    ------
    CadError
        When the element is missing or empty.
    """
    value = header.get(keyword)
    if value is None or value == "":
        raise CadError(
            f"damaged DICOM header: an image without {tagged(keyword)}",
            hint="the file may be cut off; export it again",
        )
    return value


def _check_plausible(
    header: Dataset, field: str, value: float | None, highest: float, unit: str
) -> None:
    """Refuse a number of a physical quantity that no scanner states; it may be a date of birth.

    The number itself is not shown.
    """
    keyword, _ = _READERS[field]
    if value is not None and not 0 <= value <= highest:
        name = tagged(keyword) if keyword in header else f"{keyword} of a private element"
        raise CadError(
            f"{name} is no number from 0 to {highest:g} {unit}",
            hint="the number may be that of a person; export the series again",
        )


def _field(header: Dataset, field: str) -> Any:
    """Return the value of a field, None or empty if it is absent.

    An error names an invalid field.
    """
    keyword, read = _READERS[field]
    with reading("", f"{keyword} is no number"):
        value = read(header.get(keyword))
    if isinstance(value, int) and not -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
        raise CadError(
            f"{tagged(keyword)} has {len(str(abs(value)))} digits; an integer of DICOM has at "
            "most 32 bits (PS3.5 6.2)",
            hint="the number may be that of a person; export the series again",
        )
    return value


def _scales(header: Dataset) -> tuple[Scale, Scale]:
    """Return two scales of stored numbers: to real values, and to the scanner's signal.

    The scale to real values is the real-world value mapping if the header has one, else the
    rescale. The scale to the signal is that of Philips' private scale slope if the header has it,
    else the same as the first scale. If the mapping has a unit, Philips' scale slope is not used. A
    mapping without a unit ("no units") is only Philips' display scaling under another name.
    """
    if header.get("ModalityLUTSequence"):
        raise CadError(
            f"{tagged('ModalityLUTSequence')} gives the values by a table; only RescaleSlope and "
            "RescaleIntercept are read",
            hint=_ONE_SCALE,
        )
    slope = _one_number(header.get("RescaleSlope"), "RescaleSlope")
    _check_not_zero(slope, "RescaleSlope")
    rescale = Scale(
        slope=1.0 if slope is None else slope,
        intercept=_one_number(header.get("RescaleIntercept"), "RescaleIntercept") or 0.0,
        unit=str(header.get("RescaleType", "") or ""),
    )
    mapped = _real_world(header)
    if mapped is not None and slope is not None:
        _check_agreement(mapped, rescale)
    real = mapped or rescale
    precise = real
    scale_slope = vendor.philips_scale_slope(header)
    if scale_slope is not None and (mapped is None or mapped.unit in ("", "1")):
        # Philips: signal = (stored * slope + intercept) / (slope * scale slope).
        precise = Scale(
            slope=1 / scale_slope, intercept=rescale.intercept / (rescale.slope * scale_slope)
        )
    return real, precise


def _real_world(header: Dataset) -> Scale | None:
    """Return the scale of the real-world value mapping; None where the header has no mapping.

    Several mappings must give the same values, in whatever unit.
    """
    scales = []
    for item in header.get(_MAPPING) or []:
        slope = _one_number(item.get("RealWorldValueSlope"), "RealWorldValueSlope")
        if slope is None or "RealWorldValueLUTData" in item:
            raise CadError(
                "a real-world value mapping by a table instead of a slope is not read",
                hint="export the series with a slope",
            )
        _check_not_zero(slope, "RealWorldValueSlope")
        units = item.get("MeasurementUnitsCodeSequence") or []
        unit = str(units[0].get("CodeValue", "")) if units else ""
        intercept = _one_number(item.get("RealWorldValueIntercept"), "RealWorldValueIntercept")
        scales.append(Scale(slope, intercept or 0.0, unit))
    for scale in scales[1:]:
        if not _alike(scale, scales[0], factor_between(scale.unit, scales[0].unit)):
            raise CadError(
                f"two mappings of {tagged(_MAPPING)} for one frame: "
                f"{_scale_text(scales[0])}, and {_scale_text(scale)}",
                hint=_ONE_SCALE,
            )
    return scales[0] if scales else None


def _check_not_zero(slope: float | None, keyword: str) -> None:
    if slope == 0:
        raise CadError(
            f"{tagged(keyword)} is 0, which would make every voxel the same; it must be another "
            "number",
            hint=_ONE_SCALE,
        )


def _check_agreement(mapped: Scale, rescale: Scale) -> None:
    """Refuse a real-world value mapping and a rescale that give one quantity two values.

    In other units, or without a unit, the two are independent (PS3.3 C.7.6.16.2.11).
    """
    factor = factor_between(mapped.unit, rescale.unit)
    if factor is not None and not _alike(mapped, rescale, factor):
        raise CadError(
            f"two scales of one quantity: {_scale_text(mapped)} by {tagged(_MAPPING)}, and "
            f"{_scale_text(rescale)} by {tagged('RescaleSlope')}",
            hint=_ONE_SCALE,
        )


def _alike(scale: Scale, other: Scale, factor: float | None) -> bool:
    """Tell whether two scales give the same values, but for the digits that a header rounds off.

    Without a factor between their units, the units must have the same text.
    """
    if factor is None:
        if scale.unit != other.unit:
            return False
        factor = 1.0
    slope = scale.slope * factor
    intercept = scale.intercept * factor
    same_slope = math.isclose(slope, other.slope, rel_tol=ROUNDED)
    # An intercept may be 0. It may therefore also differ by a small part of one stored step.
    same_intercept = math.isclose(
        intercept, other.intercept, rel_tol=ROUNDED, abs_tol=ROUNDED * abs(slope)
    )
    return same_slope and same_intercept


def _scale_text(scale: Scale) -> str:
    unit = printable(scale.unit) or "no unit"
    return f"slope {scale.slope:g}, intercept {scale.intercept:g} in {unit}"


def _one_number(value: Any, keyword: str) -> float | None:
    """Return the slope or intercept by which stored values are scaled; None where it is absent.

    ``keyword`` names the element for the message. Several equal numbers count as one. Several
    different numbers, NaN and infinity are refused.
    """
    if value is None or value == "":
        return None
    values = value if isinstance(value, MultiValue | list) else [value]
    numbers = {float(number) for number in values}
    if len(numbers) != 1 or not all(math.isfinite(number) for number in numbers):
        texts = ", ".join(f"{number:g}" for number in sorted(numbers))
        raise CadError(f"{tagged(keyword)} is {texts}; it must be one number", hint=_ONE_SCALE)
    return numbers.pop()


def _float(value: Any) -> float | None:
    """Return a number; None where there is none, or where it is NaN, infinite or one of several."""
    if value is None or value == "" or isinstance(value, MultiValue):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _int(value: Any) -> int | None:
    number = _float(value)
    return None if number is None else int(number)


def _finite_numbers(value: Any, count: int) -> tuple[float, ...] | None:
    """Return the numbers of a list; None where they are not ``count``, or one is not finite."""
    # A text has a length, but is no list. A single number has no length.
    if value is None or isinstance(value, str) or not hasattr(value, "__len__"):
        return None
    if len(value) != count:
        return None
    numbers = tuple(float(number) for number in value)
    return numbers if np.isfinite(numbers).all() else None


def _texts_of_value(value: Any) -> tuple[str, ...]:
    """Return each value of an element as text; nothing where the element is absent or empty."""
    if value is None or value == "":
        return ()
    values = value if isinstance(value, MultiValue | list) else [value]
    return tuple(str(word) for word in values)


def _seconds_of_day(value: Any) -> float | None:
    """Return the seconds of the day of a DICOM time ``hhmmss.ffffff``; None for any other text.

    A date, such as one of birth, has mostly no such hour, minute or second.
    """
    text = str(value or "").replace(":", "").strip()  # old headers have hh:mm:ss
    match = _TIME.fullmatch(text)
    if not match:
        return None
    hours, minutes, seconds = match.groups()
    return int(hours) * 3600 + int(minutes or 0) * 60 + float(seconds or 0)


def _date_and_time(date: Any, time: Any) -> str:
    """Return a DICOM date ``yyyymmdd`` and the time behind it; empty if the date is none.

    A text that is no time is left out.
    """
    day = str(date or "").strip()
    if not _DATE.fullmatch(day):
        return ""
    try:
        datetime.date.fromisoformat(day)
    except ValueError:  # eight digits that are no day of the calendar
        return ""
    clock = str(time or "").strip()
    return day + clock if _TIME.fullmatch(clock) else day


def _seconds(value: Any) -> float | None:
    number = _float(value)  # headers state milliseconds
    return None if number is None else number / 1000


def _joined_texts(value: Any) -> str:
    """Return a text, several values as in the file: with backslashes between them."""
    return "\\".join(_texts_of_value(value))


def single_text(value: Any, keyword: str) -> str:
    """Return the text of an element that has one value, without blanks around it.

    It is empty where the element is absent.

    Parameters
    ----------
    value : object
        The element's value.
    keyword : str
        The element.

    Raises
    ------
    CadError
        For several values.
    """
    words = _texts_of_value(value)
    if len(words) > 1:
        raise CadError(
            f"{tagged(keyword)} has {len(words)} values, {printable(_joined_texts(value))}; it has "
            "one, and a backslash parts values (PS3.5 6.4)",
            hint="correct the element, and export again",
        )
    return _joined_texts(value).strip()  # blanks at both ends have no meaning (PS3.5 6.2)


def _checked_uid(value: Any, keyword: str) -> str:
    """Return a UID, empty where it is absent; refuse a text that may be a name.

    The text itself is not shown, because messages on a study may be kept.
    """
    text = _joined_texts(value).strip()
    if not text or UID.fullmatch(text):
        return text
    # The message names one strange character, or the length if digits and dots are too many.
    strange_characters = re.sub(r"[0-9.]", "", text)
    problem = f"{len(text)} characters"
    if strange_characters:
        problem = f"the character {printable(strange_characters[0])!r}"
    raise CadError(
        f"{tagged(keyword)} has {problem}; a UID has digits and dots only, at most 64 (PS3.5 9.1)",
        hint="the text may name a person; export the series again with proper UIDs",
    )


def _order(value: Any) -> int:
    return _int(value) or 0  # what has no number comes first


_READER_OF: dict[str, Callable[[Any], Any]] = {
    "texts": _joined_texts,
    "numbers": _float,
    "milliseconds": _seconds,
    "orders": _order,
    "counts": _int,
    "clocks": _seconds_of_day,
}
# The keyword of each field, and the function that reads its value.
_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {}
for _kind, _read in _READER_OF.items():
    for _name, _word in _TABLES[_kind].items():
        _READERS[_name] = (_word, _read)
for _name, _word in _TABLES["singles"].items():
    _READERS[_name] = (_word, partial(single_text, keyword=_word))
for _name, _word in _TABLES["uids"].items():
    _READERS[_name] = (_word, partial(_checked_uid, keyword=_word))
for _name, (_word, _count) in _LISTS.items():
    _READERS[_name] = (_word, partial(_finite_numbers, count=_count))
_DIFFERING = {field: _tags([_READERS[field][0]])[0] for field in _TABLES["differing"]}
_DIFFERING_TAGS = {*_DIFFERING.values()}
