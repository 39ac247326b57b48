"""Read private elements, which are header elements that the maker of a scanner has defined.

An element is read only under its private creator, a text in the header that says whose element it
is. The only exception is the number of slices in a grid of United Imaging. These elements are read:

- Siemens: b-value, gradient direction, number of slices in a mosaic (an image that holds many
  slices side by side), and the CSA image header. From this header come the slice normal of a mosaic
  and the sense of the phase encoding.
- GE: b-value, pause after a volume, and whether both phase-encoding directions were used.
- United Imaging: b-value, and the slices of a grid (many slices in one image) with their places.
- Philips: b-value and the scale slope (2005,100E).

Philips scales the numbers in a file for display. The scale slope undoes this: signal = (slope *
stored number + intercept) / (slope * scale slope), with the slope and intercept of the rescale
(Chenevert et al., Transl Oncol 7 (2014) 65, PMC3998685).
"""

import math
import re
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from pydicom.dataset import Dataset
from pydicom.multival import MultiValue
from pydicom.sequence import Sequence

from cad.base.errors import CadError, printable
from cad.base.reading import reading
from cad.mri.imaging.frames import ROUNDED
from cad.mri.imaging.makers import maker


class PrivateElement(NamedTuple):
    """Describe a private element of a maker.

    Parameters
    ----------
    maker : str
        Manufacturer of the scanner.
    creator : str
        The private creator, which reserves the element's block.
    group, element : int
        Group, and the last two hexadecimal digits of the element's number.
    meaning : str
        What the element's value is. The functions of this module look elements up by this text.
    """

    maker: str
    creator: str
    group: int
    element: int
    meaning: str


_CSA = "SIEMENS CSA HEADER"
_OF_MOSAIC = "image header of a mosaic"
_SCALE_SLOPE = "scale slope"
_COPY = "copy of the classic header"
ELEMENTS = (
    PrivateElement("Siemens", "SIEMENS MR HEADER", 0x0019, 0x0A, "slices in a mosaic"),
    PrivateElement("Siemens", "SIEMENS MR HEADER", 0x0019, 0x0C, "b-value"),
    PrivateElement("Siemens", "SIEMENS MR HEADER", 0x0019, 0x0E, "gradient direction"),
    PrivateElement("Siemens", _CSA, 0x0029, 0x10, _OF_MOSAIC),
    PrivateElement("GE", "GEMS_PARM_01", 0x0043, 0x39, "b-value"),
    PrivateElement("GE", "GEMS_PARM_01", 0x0043, 0x7C, "pause after a volume"),
    PrivateElement("GE", "GEMS_ACQU_01", 0x0019, 0x9C, "pulse sequence"),
    PrivateElement("GE", "GEMS_ACQU_01", 0x0019, 0xB3, "phase encoding of both polarities"),
    PrivateElement("Philips", "Philips Imaging DD 001", 0x2001, 0x03, "b-value"),
    PrivateElement("Philips", "Philips MR Imaging DD 001", 0x2005, 0x0E, _SCALE_SLOPE),
    PrivateElement("Philips", "Philips MR Imaging DD 005", 0x2005, 0x0F, _COPY),
    PrivateElement("United Imaging", "Image Private Header", 0x0065, 0x09, "b-value"),
    PrivateElement("United Imaging", "Image Private Header", 0x0065, 0x50, "slices in a grid"),
    PrivateElement("United Imaging", "Image Private Header", 0x0065, 0x51, "headers of a grid"),
)
"""Every private element that is read. To have a further element read, add a row for it."""
_BLOCKS = range(0x10, 0x18)  # blocks of tags in which private elements are looked for


def _tags_of_creators(elements: Iterable[PrivateElement]) -> list[int]:
    """Return the tags of private elements and of their creators.

    A file may put a private element into any of several blocks of tags. The tags for the blocks
    0x10 to 0x17 are returned.
    """
    tags = []
    for private_element in elements:
        group = private_element.group << 16
        for block in _BLOCKS:
            tags.append(group | block)
            tags.append(group | block << 8 | private_element.element)
    return sorted(set(tags))


TAGS = _tags_of_creators(row for row in ELEMENTS if row.meaning not in (_OF_MOSAIC, _COPY))
"""Tags of private elements to read from every header.

Neither Siemens' CSA image header nor Philips' copy of the classic header is among them. The first
is long and seldom needed, and the second lies inside another element.
"""
CSA_TAGS = _tags_of_creators(row for row in ELEMENTS if row.meaning == _OF_MOSAIC)
"""Tags of Siemens' CSA image header, a long private element that is read only where it is needed,
such as for a mosaic.
"""
# Makers whose headers state the b-value only if it is not 0.
NO_ZERO_B = ("Toshiba", "Canon")
_UNIT = 0.1  # largest difference of the length of a gradient direction from 1
_NORMAL_UNIT = 1e-3  # largest difference of the length of a mosaic's normal from 1
_GE_B_OFFSET = 1_000_000_000  # GE may add a multiple of this to a b-value
_MOST_CSA_ELEMENTS = 1000
_MOST_CSA_ITEMS = 10_000
_B_IN_COMMENT = re.compile(r"b=(\d+(?:\.\d+)?)\(")
_B_IN_SEQUENCE = re.compile(r"ep_b(\d+)(?:t|#\d+)?$")
_CSA_ELEMENT = struct.Struct("<64si4s3i")
_CSA_ITEM = struct.Struct("<4i")


def b_value(dataset: Dataset) -> float | None:
    """Return the b-value from a maker's private element or text, not from DiffusionBValue.

    Parameters
    ----------
    dataset : Dataset
        Header of Siemens, GE, Philips, United Imaging or Canon.

    Returns
    -------
    float or None
        s/mm2; None where no private element or text states it.
    """
    for row in ELEMENTS:
        if row.meaning != "b-value":
            continue
        value = _private_number(private(dataset, row.group, row.creator, row.element))
        if value is not None:
            return value % _GE_B_OFFSET if row.maker == "GE" else value
    # Old Siemens scanners write the b-value in the name of the sequence, Toshiba and Canon in a
    # comment.
    match = _B_IN_SEQUENCE.search(str(dataset.get("SequenceName", "") or ""))
    if maker(dataset.get("Manufacturer")) in NO_ZERO_B:
        match = _B_IN_COMMENT.search(str(dataset.get("ImageComments", "") or ""))
    return float(match.group(1)) if match else None


def direction(dataset: Dataset) -> tuple[float, ...] | None:
    """Return the diffusion gradient's direction from Siemens' private element (0019,100E).

    Parameters
    ----------
    dataset : Dataset
        Header of an image.

    Returns
    -------
    tuple of 3 floats or None
        Unit vector, LPS; None where it is not stated.
    """
    value = _stated_element(dataset, "gradient direction")
    if isinstance(value, bytes):  # a file without VRs: three numbers of eight bytes
        value = np.frombuffer(value, "<f8") if len(value) == 24 else None
    if value is None or len(value) != 3:
        return None
    vector = tuple(float(component) for component in value)
    return vector if abs(np.linalg.norm(vector) - 1) < _UNIT else None


def philips_scale_slope(dataset: Dataset) -> float | None:
    """Return Philips' scale slope (2005,100E), which turns displayed values back into the signal.

    The signal is the displayed value (the stored number after rescaling), divided by the rescale
    slope and by the scale slope.

    Parameters
    ----------
    dataset : Dataset
        Header of an image.

    Returns
    -------
    float or None
        None where the scale slope is absent or 0.

    Raises
    ------
    CadError
        For several numbers that differ, and for NaN or infinity.
    """
    value = _stated_element(dataset, _SCALE_SLOPE)
    values = list(value) if isinstance(value, list | MultiValue) else [value]
    slopes = {_private_number(number) for number in values}  # None where the element is absent
    is_finite = all(slope is None or math.isfinite(slope) for slope in slopes)
    if len(slopes) > 1 or not is_finite:
        raise CadError(
            f"Philips' scale slope (2005,100E) is {printable(str(value))}; it must be one number",
            hint="export the series again",
        )
    slope = next(iter(slopes), None)
    # The signal is divided by the scale slope, so that a scale slope of 0 counts as none.
    return None if slope == 0 else slope


def lay_scale_slope(group: Dataset, flat: Dataset) -> None:
    """Copy Philips' scale slope of one frame to the place where a classic (single-frame) header has
    it.

    The header of an enhanced (multi-frame) image has the scale slope inside a copy of a classic
    header. Nothing else of this copy is used, because its positions are not the frame's positions.

    Parameters
    ----------
    group : Dataset
        Functional groups of a frame, or those that all frames share.
    flat : Dataset
        Header of the frame, which gets the element.

    Raises
    ------
    CadError
        When the frame and the shared groups state two scale slopes.
    """
    copies = _stated_element(group, _COPY)
    if not isinstance(copies, Sequence) or len(copies) == 0:
        return
    # The flat header has a scale slope if the groups that all frames share state one.
    stated = [philips_scale_slope(header) for header in (*copies, flat)]
    slopes = [slope for slope in stated if slope is not None]
    if not slopes:
        return
    first_slope = slopes[0]
    for slope in slopes[1:]:
        if not math.isclose(first_slope, slope, rel_tol=ROUNDED):
            raise CadError(
                f"Philips' scale slope (2005,100E) stands twice in the header of one frame, as "
                f"{slope:g} and as {first_slope:g}",
                hint="export the series again",
            )
    for row in ELEMENTS:
        if row.meaning == _SCALE_SLOPE:
            block = flat.private_block(row.group, row.creator, create=True)
            block.add_new(row.element, "FL", first_slope)


def grid_slices(dataset: Dataset) -> list[Dataset]:
    """Return the private header of each slice of a United Imaging image that holds a grid of
    slices.

    Parameters
    ----------
    dataset : Dataset
        Header of the image.

    Returns
    -------
    list of Dataset
        One per slice; empty for an image of one slice.

    Raises
    ------
    CadError
        For a grid that does not say where its slices lie.
    """
    # The element with the number of slices in a grid is read whatever its private creator is. If it
    # were overlooked, a grid of slices would be taken for a single slice.
    n_slices: float = 0
    for block in _BLOCKS:
        tag = (0x0065, block << 8 | 0x50)
        if tag in dataset:
            n_slices = max(n_slices, _private_number(dataset[tag].value) or 0)
    # VFRAME in ImageType says that the image is a grid, even if the number of slices is not stated.
    # Without the number the grid must have the header of one slice.
    if n_slices <= 1 and "VFRAME" not in (dataset.get("ImageType") or ()):
        return []
    slice_headers = _stated_element(dataset, "headers of a grid")
    if not isinstance(slice_headers, Sequence) or len(slice_headers) != max(n_slices, 1):
        raise CadError(
            "a grid of slices in one image, as United Imaging stores it, that does not say where "
            "each lies: (0065,1051) is missing",
            hint="export it with its private elements, or as single or enhanced images",
        )
    return list(slice_headers)


def group_delay(dataset: Dataset) -> float:
    """Return the pause that a GE scanner makes after every volume, in addition to RepetitionTime.

    Parameters
    ----------
    dataset : Dataset
        Header of an image.

    Returns
    -------
    float
        Seconds; 0 where none is stated.
    """
    return _private_number(_stated_element(dataset, "pause after a volume")) or 0.0


def mixed_polarity(dataset: Dataset) -> bool:
    """Tell whether GE acquired a series in both phase-encoding directions, one after the other.

    The result is False where the private elements that say so are absent.
    """
    sequence_name = str(_stated_element(dataset, "pulse sequence") or "")
    mode = _private_number(_stated_element(dataset, "phase encoding of both polarities")) or 0.0
    # In the modes 2 and 3 this sequence takes images in both directions.
    return "pepolar" in sequence_name.lower() and round(mode) in (2, 3)


def is_mosaic(dataset: Dataset) -> bool:
    """Tell whether a Siemens image holds many slices side by side (a mosaic).

    Parameters
    ----------
    dataset : Dataset
        Header of the image.

    Returns
    -------
    bool
        True if the header states more than one slice in the mosaic, or has ``MOSAIC`` in its
        ImageType.
    """
    count = _private_number(_stated_element(dataset, "slices in a mosaic")) or 0
    return count > 1 or "MOSAIC" in (dataset.get("ImageType") or ())


def mosaic_tiles(dataset: Dataset) -> int:
    """Return the number of slices that a Siemens mosaic holds.

    Parameters
    ----------
    dataset : Dataset
        Header of the mosaic, read with :data:`TAGS` and :data:`CSA_TAGS`.

    Raises
    ------
    CadError
        For a mosaic that does not say how many slices it holds.
    """
    count = _private_number(_stated_element(dataset, "slices in a mosaic"))
    if not count or count < 1:  # some scanners state the number in the CSA header alone
        stated = _csa(dataset).get("NumberOfImagesInMosaic", [])
        count = float(stated[0]) if stated and stated[0].isdigit() else None
    if not count or count < 1:
        raise CadError(
            "a mosaic that does not say how many slices it holds: (0019,100A) is missing",
            hint="export it with its private elements, or as single or enhanced images",
        )
    return int(count)


def _csa(dataset: Dataset) -> dict[str, list[str]]:
    """Return the texts of Siemens' CSA image header by element; empty where there is no header."""
    content = _stated_element(dataset, _OF_MOSAIC)
    with reading("", "a mosaic with a damaged CSA header"):
        return csa_header(content) if isinstance(content, bytes) else {}


def phase_encoding_positive(dataset: Dataset) -> bool | None:
    """Tell whether a Siemens scanner encoded phase in the direction of growing rows or columns.

    Parameters
    ----------
    dataset : Dataset
        Header read with :data:`CSA_TAGS`.

    Returns
    -------
    bool or None
        True for the direction of growing rows or columns, False for the opposite direction; None
        where the CSA image header (Siemens' private header) states neither.
    """
    content = _stated_element(dataset, _OF_MOSAIC)
    if not isinstance(content, bytes):
        return None
    try:
        stated = csa_header(content).get("PhaseEncodingDirectionPositive", [])
    except (ValueError, struct.error):  # the image can be used without knowing the sense
        return None
    return {"0": False, "1": True}.get(stated[0]) if stated else None


def mosaic_normal(dataset: Dataset) -> np.ndarray:
    """Return the direction in which the slices of a mosaic follow each other (LPS unit vector).

    Parameters
    ----------
    dataset : Dataset
        Header of a Siemens mosaic, read with :data:`TAGS` and :data:`CSA_TAGS`.

    Returns
    -------
    ndarray, shape (3,)
        Unit vector to the patient's left, back and head.

    Raises
    ------
    CadError
        When the CSA image header is absent or damaged, or has no SliceNormalVector.
    """
    header = _csa(dataset)
    with reading("", "a mosaic with a damaged CSA header"):
        components = header.get("SliceNormalVector", [])[:3]
        normal = np.array([float(component) for component in components])
    if normal.shape != (3,) or abs(np.linalg.norm(normal) - 1) > _NORMAL_UNIT:
        raise CadError(
            "a mosaic without the CSA header's SliceNormalVector: the order of its slices is "
            "not known",
            hint="export it with its private elements, or as single or enhanced images",
        )
    return normal


def csa_header(content: bytes) -> dict[str, list[str]]:
    """Parse a Siemens CSA header, in either version (with or without ``SV10`` at its start).

    The result has the texts of each element, by the element's name; empty texts are left out.

    The layout is as documented by nibabel (https://nipy.org/nibabel/dicom/siemens_csa.html). After
    ``SV10`` come four bytes, the number of elements, and the number 77. Each element has a name of
    64 bytes, its multiplicity, its VR, and a number of items with their lengths, padded to four
    bytes.

    Raises
    ------
    ValueError, struct.error
        When the content is damaged.
    """
    has_sv10 = content[:4] == b"SV10"
    start = 8 if has_sv10 else 0
    (n_elements, _) = struct.unpack_from("<2i", content, start)
    # A damaged header may state any number. Without a limit the loops could take very long.
    if not 0 < n_elements <= _MOST_CSA_ELEMENTS:
        raise ValueError(f"{n_elements} elements")
    place = start + 8  # behind the number of elements and the number 77
    elements = {}
    for _ in range(n_elements):
        name, _, _, _, n_items, _ = _CSA_ELEMENT.unpack_from(content, place)
        place += _CSA_ELEMENT.size
        if not 0 <= n_items <= _MOST_CSA_ITEMS:
            raise ValueError(f"{n_items} items in one element")
        texts = []
        for _ in range(n_items):
            # Four numbers come before each item. The second is the length of the item (bytes); in a
            # header that does not begin with SV10, the first is.
            four_numbers = _CSA_ITEM.unpack_from(content, place)
            length = four_numbers[1] if has_sv10 else four_numbers[0]
            place += _CSA_ITEM.size
            if not 0 <= length <= len(content) - place:
                raise ValueError(f"an item of {length} bytes")
            text = content[place : place + length].split(b"\0")[0].decode("latin-1").strip()
            if text:
                texts.append(text)
            place += (length + 3) // 4 * 4  # items are padded to four bytes
        elements[name.split(b"\0")[0].decode("latin-1")] = texts
    return elements


def private(dataset: Dataset, group: int, creator: str, element: int) -> Any:
    """Return the value of a DICOM private element, looked up by its private creator (PS3.5 7.8.1).

    Parameters
    ----------
    dataset : Dataset
        Header of an image.
    group : int
        Group number, such as 0x0019.
    creator : str
        Private creator; upper and lower case count as the same.
    element : int
        Last two hexadecimal digits of the element number, which do not depend on the block.

    Returns
    -------
    object
        The value as pydicom gives it; None where the element is absent.
    """
    for block in _BLOCKS:
        # For block 10 of group 0019: the element (0019,0010) names the creator of the elements
        # (0019,1000) to (0019,10FF).
        creator_tag = group << 16 | block
        if creator_tag not in dataset:
            continue
        if str(dataset[creator_tag].value).strip().lower() == creator.lower():
            private_element = dataset.get((group, block << 8 | element))
            if private_element is not None:
                return private_element.value
    return None


def _stated_element(dataset: Dataset, meaning: str) -> Any:
    """Return the value of the private element with a given meaning; None where a header has none.

    ``meaning`` is that of a row of :data:`ELEMENTS`; the first such row with a value counts.
    """
    for row in ELEMENTS:
        if row.meaning == meaning:
            value = private(dataset, row.group, row.creator, row.element)
            if value is not None:
                return value
    return None


def _private_number(value: Any) -> float | None:
    """Return the number, or the first of several, that a private element holds; None without one.

    A file without VRs does not say how the element's bytes are written. They are read as a text if
    they look like one, else as a binary number of their length.
    """
    if isinstance(value, bytes):
        text = value.decode("ascii", "ignore").strip("\0 ").split("\\")[0]
        if re.fullmatch(r"[-+\d.eE]+", text):
            return float(text)
        type_by_length = {2: "<u2", 4: "<f4", 8: "<f8"}
        if len(value) not in type_by_length:
            return None
        return float(np.frombuffer(value, type_by_length[len(value)])[0])
    if isinstance(value, MultiValue):
        value = value[0] if len(value) else None
    try:
        return None if value in (None, "") else float(value)
    except (TypeError, ValueError):
        return None
