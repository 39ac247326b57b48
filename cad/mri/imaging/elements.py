"""Find elements of a DICOM data set without building the items of its sequences.

pydicom builds each item of a sequence of undefined length, even if nobody needs the item. To build
the items takes most of the time of reading a header, and needs a kilobyte of memory for eight bytes
of a file.
"""

from collections.abc import Callable, Collection, Iterator
from struct import Struct, error
from typing import NamedTuple

from pydicom.config import IGNORE
from pydicom.datadict import keyword_for_tag, tag_for_keyword
from pydicom.uid import UID, ExplicitVRLittleEndian
from pydicom.valuerep import EXPLICIT_VR_LENGTH_32

from cad.base.errors import CadError

PREAMBLE = 132
"""Bytes before a file's meta information (PS3.10 7.1)."""
PIXELS = (0x7FE00008, 0x7FE00009, 0x7FE00010)
"""Tags of the pixel data; elements after the pixel data are not used."""
_MOST_ELEMENTS = 100_000
# The first eight bytes of the meta information. Its length follows in four bytes, and counts the
# bytes behind these twelve.
_META = b"\2\0\0\0UL\4\0"
_META_START = 12
_LAST_OF_META = 0x0002FFFF
_SYNTAX = 0x00020010
# Bytes of the start of an element: at least tag and length, at most tag, VR and a long length.
_SHORT_START = 8
_LONG_START = 12
_ITEMS = 0xFFFE  # the group of the tags that begin and end items and sequences
_ITEM = 0xFFFEE000
_FIRST_ITEM = b"\xfe\xff\0\xe0"  # how an item begins, with the least significant byte first
_UNDEFINED = 2**32 - 1
_ITEM_END = 0xFFFEE00D
_SEQUENCE_END = 0xFFFEE0DD
# The VRs whose length has four bytes, behind two empty bytes (PS3.5 7.1.2).
_LONG_LENGTH_VRS = {str(vr).encode() for vr in EXPLICIT_VR_LENGTH_32}
Read = Callable[[int, int], bytes]
"""Function that gets a position in a file and a number of bytes, and returns the bytes there.

At the end of the file it returns fewer bytes.
"""


class Excerpt(NamedTuple):
    """Hold some elements of a DICOM file, and say where its pixels lie.

    Parameters
    ----------
    syntax : UID
        Transfer syntax: how the elements are written.
    start : bytes
        The bytes of the file before the first element of the data set. Followed by the elements,
        they are a smaller DICOM file.
    elements : dict of int to bytes
        The elements by tag.
    pixels : tuple of bytes, int and int, or None
        The bytes before the pixels (tag, VR, length), and the positions at which the pixels begin
        and end. None where the file has no element of pixel data, or several.
    state : tuple of int
        State of the file before it was read: size, times of change, inode. Empty where the bytes
        come from no file.
    """

    syntax: UID
    start: bytes
    elements: dict[int, bytes]
    pixels: tuple[bytes, int, int] | None
    state: tuple[int, ...] = ()


class _Level(NamedTuple):
    """Hold a data set, or a sequence of them, that is being read.

    Parameters
    ----------
    end : int
        Where it ends in the file at the latest, in bytes: where its stated length ends, or the
        level around it.
    implicit : bool
        Whether its elements are written without their types (implicit VR).
    checked : bool
        Whether each of its elements may stand only once.
    packed : bool
        Whether its items are bytes of compressed pixels, and no data sets.
    tags : set of int
        Tags of the elements that were read.
    """

    end: int
    implicit: bool
    checked: bool
    packed: bool
    tags: set[int]


class MisplacedElement(CadError):
    """Report a data set in which an element stands twice, or behind the pixels."""


class TooManyElements(CadError):
    """Report a data set with more elements and items than the reader accepts."""


class _Start(NamedTuple):
    """Hold the start of an element, of an item, or of the end of either.

    Parameters
    ----------
    tag : int
        Group and element.
    vr : bytes
        VR; empty where it is implicit. Items and ends have none.
    value : int
        Where the value begins in the file.
    length : int
        Number of bytes of the value; :data:`_UNDEFINED` where an end stands behind the value.
    """

    tag: int
    vr: bytes
    value: int
    length: int


def _starts(read: Read, order: str) -> Callable[[int, bool], _Start | None]:
    """Return a function that reads the start of an element at a position.

    The function gets the position, and whether VRs are implicit there. Its result is None if the
    file ends before the position, or within the tag and length.

    Parameters
    ----------
    read : callable
        Reads the file; takes a position and a number of bytes.
    order : str
        ``<`` where the least significant byte is first, else ``>``.
    """
    group_element_vr_length = Struct(f"{order}HH2sH").unpack_from
    four_byte_length = Struct(f"{order}L").unpack_from

    def start_at(place: int, implicit: bool) -> _Start | None:
        content = read(place, _LONG_START)
        if len(content) < _SHORT_START:
            return None
        group, element, vr, length = group_element_vr_length(content)
        value = place + _SHORT_START
        # Items have no VR, even among elements that have one. Bytes that are no two capitals are
        # no VR either, so the four bytes behind the tag are the length.
        if implicit or group == _ITEMS or not b"AA" <= vr <= b"ZZ":
            vr = b""
            (length,) = four_byte_length(content, 4)
        elif vr in _LONG_LENGTH_VRS:
            (length,) = four_byte_length(content, 8)
            value = place + _LONG_START
        return _Start(tag=group << 16 | element, vr=vr, value=value, length=length)

    return start_at


def _has_implicit_vrs(read: Read, offset: int) -> bool:
    """Tell whether the VRs of a data set are implicit, as pydicom does: by its first element."""
    return not b"AA" <= read(offset + 4, 2) <= b"ZZ"


def elements(
    read: Read, size: int, offset: int, syntax: UID, last: int = PIXELS[-1]
) -> Iterator[tuple[int, int, int]]:
    """Yield tag, begin and end of each element outside of sequences (PS3.5 7.1).

    A sequence itself is such an element; the elements of its items are not. Unlike
    :func:`check_places`, this function passes over a sequence of stated length, and refuses a
    damaged file, because it says where each element ends.

    Parameters
    ----------
    read : callable
        Reads the file; takes a position and a number of bytes.
    size : int
        Number of bytes of the file.
    offset : int
        Where the data set begins.
    syntax : UID
        Transfer syntax of the data set. If the data set should have VRs (types of values) by this
        syntax and has none, it is read without VRs, as pydicom does.
    last : int
        Tag after which no element is read.

    Yields
    ------
    tag : int
        Tag of the element: group in the upper 16 bits, element in the lower 16.
    begin : int
        Position in the file of the element's first byte.
    end : int
        Position of the first byte after the element.

    Raises
    ------
    CadError
        When the file ends within an element.
    TooManyElements
        For more than 100,000 elements and items.
    struct.error
        When the file ends within the length of an element.
    """
    start_at = _starts(read, "<" if syntax.is_little_endian else ">")
    implicit = _has_implicit_vrs(read, offset)
    # For each open sequence and item: the tag that ends it, and whether VRs are implicit around it.
    around = list[tuple[int, bool]]()
    outermost_tag = 0
    begin = offset
    end = offset
    for _ in range(_MOST_ELEMENTS):
        start = start_at(end, implicit)
        if start is None:
            # A sound file ends between two elements of the data set, without a byte left over.
            if not around and not read(end, 1):
                return
            raise CadError("the file ends within an element or sequence", hint="send it again")
        if not around:
            if start.tag > last:
                return
            outermost_tag = start.tag
            begin = end
        end = start.value
        if start.tag in (_ITEM_END, _SEQUENCE_END):
            expected_end = 0  # a tag that ends nothing, for an end where nothing is open
            if around:
                expected_end, implicit = around.pop()
            if start.tag != expected_end:
                raise CadError("an end of a sequence that is not open", hint="send it again")
        elif start.length == _UNDEFINED:
            # The value is entered, and ends at the tag that is noted for it.
            around.append((_ITEM_END if start.tag == _ITEM else _SEQUENCE_END, implicit))
            # A sequence whose VR is stated as UN (unknown) has implicit VRs inside (PS3.5 6.2.2).
            implicit = implicit or start.vr == b"UN"
        else:
            end += start.length
        if end > size:
            raise CadError("the file ends within an element", hint="send it again")
        # Within an open sequence the outermost element goes on, and is not yielded yet.
        if not around:
            yield outermost_tag, begin, end
    raise TooManyElements(f"more than {_MOST_ELEMENTS} elements and items")


def _reader_of_bytes(content: bytes) -> Read:
    """Return a function that reads bytes in memory like those of a file."""

    def read(place: int, count: int) -> bytes:
        return content[place : place + count]

    return read


def data_set(read: Read, size: int) -> tuple[int, UID]:
    """Return where a file's data set begins, and its transfer syntax.

    Parameters
    ----------
    read : callable
        Reads the file; takes a position and a number of bytes.
    size : int
        Number of bytes of the file.

    Raises
    ------
    CadError
        When the file has no preamble.
    """
    if read(PREAMBLE - 4, 4) != b"DICM":
        raise CadError("not a DICOM file: it has no preamble")
    data_set_begins = PREAMBLE
    syntax = UID("")
    # The meta information has explicit VRs in every file, whatever the syntax of the data set.
    for tag, begin, end in elements(
        read, size, PREAMBLE, ExplicitVRLittleEndian, last=_LAST_OF_META
    ):
        data_set_begins = end
        if tag == _SYNTAX:
            value = begin + _SHORT_START
            text = read(value, end - value).decode("ascii").rstrip("\0 ")
            syntax = UID(text, IGNORE)  # without IGNORE pydicom would warn, and quote the file
    return data_set_begins, syntax


def check_places(
    read: Read, size: int, offset: int, order: str, tags: Collection[int] = ()
) -> None:
    """Refuse a data set in which an element stands twice, or behind the pixels.

    Elements stand in ascending order of their tags (PS3.5 7.1), so each stands once. Programs
    differ in which of two elements they read. Headers are read up to the pixels: an element behind
    them would count as absent. A merely descending order is not refused. Unlike :func:`elements`,
    this function enters each sequence that it checks, also one of stated length, and goes on where
    a file is damaged, as pydicom does: the reader of the file reports the damage.

    Parameters
    ----------
    read : callable
        Reads the file; takes a position and a number of bytes.
    size : int
        Number of bytes of the file.
    offset : int
        Where the data set begins.
    order : str
        ``<`` where the least significant byte is first, else ``>``.
    tags : collection of int, optional
        The elements that are read. The items of a sequence among them are checked with all of their
        elements. By default all elements are read.

    Raises
    ------
    MisplacedElement
        When an element stands twice, or behind the pixels.
    """
    start_at = _starts(read, order)
    first_item = Struct(f"{order}HH").pack(_ITEMS, _ITEM & 0xFFFF)
    data_set_level = _Level(
        end=size,
        implicit=_has_implicit_vrs(read, offset),
        checked=True,
        packed=False,
        tags=set(),
    )
    levels = [data_set_level]  # what is open at the place, from the outside to the inside
    pixel_tag = 0  # 0 while no element of pixel data was met
    place = offset
    while levels:
        level = levels[-1]
        start = start_at(place, level.implicit) if place < level.end else None
        if start is None:
            # A value of a stated length ends where it says, even if its bytes only look like items.
            place = level.end
            levels.pop()
            continue
        tag = start.tag
        place = start.value
        if tag in (_ITEM_END, _SEQUENCE_END):
            # An end without an open sequence or item is skipped, as pydicom skips it.
            if len(levels) > 1:
                levels.pop()
            continue
        undefined = start.length == _UNDEFINED
        end = level.end if undefined else min(place + start.length, level.end)
        if level.packed:
            # The item is a fragment of compressed pixels. Its bytes may look like elements.
            place += start.length
            continue
        if tag == _ITEM:
            # The item is entered. It may have the same tags as the item before it.
            item = _Level(
                end, implicit=level.implicit, checked=level.checked, packed=False, tags=set()
            )
            levels.append(item)
            continue
        # In the outermost data set only the elements named in ``tags`` are checked (all elements,
        # if ``tags`` is empty). In an item of a sequence all elements are checked.
        outermost = len(levels) == 1
        checked = level.checked and (not outermost or not tags or tag in tags)
        # Some programs fill the end of a file with zeros, which look like elements (0000,0000).
        checked = checked and tag != 0
        if checked and tag in level.tags:
            raise MisplacedElement(
                f"{tag_name(tag)} stands twice in one data set; elements stand in ascending order, "
                "each once (PS3.5 7.1)",
                hint="programs differ in which of the two they read; export the file again",
            )
        if checked and outermost and pixel_tag and tag < PIXELS[0]:
            raise MisplacedElement(
                f"{tag_name(tag)} stands behind {tag_name(pixel_tag)}; elements stand in ascending "
                "order (PS3.5 7.1), and a header is read up to the pixels",
                hint="export the file again",
            )
        if checked:
            level.tags.add(tag)
        if outermost and tag in PIXELS:
            pixel_tag = tag
        # Where no VR is stated, the value is a sequence if it begins like an item.
        unknown_vr = start.vr in (b"", b"UN")
        is_sequence = read(place, 4) == first_item if unknown_vr else start.vr == b"SQ"
        if undefined or (is_sequence and checked):
            # A value of undefined length that is no sequence holds compressed pixels.
            packed = not unknown_vr and start.vr != b"SQ"
            sequence = _Level(end, implicit=unknown_vr, checked=checked, packed=packed, tags=set())
            levels.append(sequence)
        else:
            place += start.length


def tag_name(tag: int) -> str:
    """Return the keyword of an element, if it has one, and its tag, for a message.

    Parameters
    ----------
    tag : int
        Group and element.
    """
    return f"{keyword_for_tag(tag)} ({tag >> 16:04X},{tag & 0xFFFF:04X})".strip()


def tagged(keyword: str) -> str:
    """Return the keyword of an element with its tag, for a message."""
    return tag_name(tag_for_keyword(keyword) or 0)


def excerpt(content: bytes, tags: Collection[int]) -> Excerpt | None:
    """Return some elements of a DICOM file.

    Parameters
    ----------
    content : bytes
        The whole file.
    tags : collection of int
        The elements.

    Returns
    -------
    Excerpt or None
        None where pydicom has to read the file. This holds for files that are deflated, big-endian,
        damaged or without preamble. It also holds for files that have very many elements, an
        element that stands twice, or no element of ``tags``.
    """

    read = _reader_of_bytes(content)
    try:
        start, syntax = data_set(read, len(content))
        # The meta information must state its length first, and this length must be right.
        meta_length = int.from_bytes(read(PREAMBLE + len(_META), 4), "little")
        stated_start = PREAMBLE + _META_START + meta_length
        plain = syntax.is_little_endian and not syntax.is_deflated
        if not plain or start != stated_start or read(PREAMBLE, len(_META)) != _META:
            return None
        check_places(read, start, PREAMBLE, "<")
        # No element is the last one: those behind the pixels are listed, too.
        places = list(elements(read, len(content), start, syntax, last=_UNDEFINED))
        chosen = {tag: content[begin:end] for tag, begin, end in places if tag in tags}
        for element in chosen.values():
            if _FIRST_ITEM in element:  # most elements have no items, and need no check
                check_places(_reader_of_bytes(element), len(element), 0, "<")
    except (CadError, ValueError, error):
        return None
    tags_in_order = [tag for tag, _, _ in places]
    is_ascending = tags_in_order == sorted(set(tags_in_order))
    if not chosen or not is_ascending:
        return None
    _, _, last_end = places[-1]
    if last_end != len(content):
        return None
    pixels = None
    pixel_places = [(begin, end) for tag, begin, end in places if tag in PIXELS]
    if len(pixel_places) == 1:
        begin, end = pixel_places[0]
        vr = content[begin + 4 : begin + 6]
        value = begin + (_LONG_START if vr in (b"OB", b"OW") else _SHORT_START)
        pixels = content[begin:value], value, end
    return Excerpt(syntax, content[:start], chosen, pixels)
