"""Compare the header of an image with its pixel data, and refuse an image if they disagree.

Decoders believe either the header or the compressed image, and do not compare the two. With a wrong
number of rows in the header, for example, they would return wrong voxels without an error.
"""

import struct
from io import BytesIO
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from pydicom.dataset import Dataset
from pydicom.encaps import generate_fragments, parse_basic_offsets
from pydicom.uid import (
    HTJ2KLossless,
    HTJ2KLosslessRPCL,
    JPEG2000Lossless,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from cad.base.errors import CadError
from cad.base.reading import MAX_IMAGE, check_inflation

_AGAIN = "export the series again, without compression if the archive offers it"
_PIXELS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
_FLOAT_BITS = {"FloatPixelData": 32, "DoubleFloatPixelData": 64}
_JPEG = b"\xff\xd8\xff"
_JPEG_2000 = b"\xff\x4f\xff\x51"
_JPEG_2000_FILE = b"\0\0\0\x0cjP  "
_LONGEST_HEAD = 4096  # bytes of a JPEG 2000 file before its image
_FRAME_START = 10  # bytes of a JPEG marker with the size of its image
_SIGN_BIT = 0x80  # in JPEG 2000's byte on a value: set where values have a sign
# Start-of-frame markers of all JPEG processes (T.81) and JPEG-LS; C4, C8 and CC have other
# meanings.
_FRAME_MARKERS = {*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC}
# Compressions that keep every value. Only their values are checked, because the values of a lossy
# image may lie a little outside of the range of the original values.
_LOSSLESS = {
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    JPEG2000Lossless,
    HTJ2KLossless,
    HTJ2KLosslessRPCL,
}
_RLE_HEADER = struct.Struct("<16L")
# Rows and columns are exchanged if the lines of an image are this many times rougher than lines of
# the other length. In 76 rectangular images of the test data, and in 500 square ones cut to
# rectangles, the factor is 1.03 at most with their true rows and columns.
_ROUGHER = 1.5
_LEAST_PIXELS = 1000  # in smaller images of noise the factor may be as large by chance


class CompressedSize(NamedTuple):
    """Hold what a JPEG or JPEG 2000 image states of itself.

    Parameters
    ----------
    rows, columns : int
        Size of the image in pixels; 0 where the image states it elsewhere.
    bits : int
        Bits of a value.
    samples : int
        Values of a pixel: 1 for grey levels, 3 for colours.
    signed : bool
        Whether values may be negative; JPEG 2000 alone states this.
    """

    rows: int
    columns: int
    bits: int
    samples: int
    signed: bool = False


def check_pixels(dataset: Dataset) -> None:
    """Refuse pixel data that contradict their header, or that would fill the memory.

    Parameters
    ----------
    dataset : Dataset
        Image with pixel data.

    Raises
    ------
    CadError
        The message names the elements and their values. An image that becomes too large is refused
        before it is decompressed.
    """
    absent = [name for name in ("Rows", "Columns", "BitsAllocated") if name not in dataset]
    if absent:
        raise CadError(
            f"the header lacks {' and '.join(absent)}, without which pixels have no size",
            hint="export the series again",
        )
    name = next((keyword for keyword in _PIXELS if keyword in dataset), "")
    if not name:
        return  # the decoder refuses a file without pixels
    content = dataset[name].value

    # The numbers of the header
    rows = int(dataset.Rows)
    columns = int(dataset.Columns)
    frames = max(int(dataset.get("NumberOfFrames") or 1), 1)
    allocated = int(dataset.BitsAllocated)
    samples = int(dataset.get("SamplesPerPixel", 1))

    # The sizes that compressed images state; uncompressed pixel data have none
    fragments: list[bytes] = []
    n_listed = 0  # number of images that the offset tables list; the tables may be empty
    is_encapsulated = dataset.file_meta.TransferSyntaxUID.is_encapsulated
    if is_encapsulated:
        stream = BytesIO(content)
        n_offsets = len(dataset.get("ExtendedOffsetTable") or b"") // 8  # each has eight bytes
        n_listed = max(len(parse_basic_offsets(stream)), n_offsets)
        fragments = list(generate_fragments(stream))
    sizes = []
    for fragment in fragments:
        size = compressed_size(fragment)
        if size is not None:  # None: it continues an image, or is of another compression
            sizes.append(size)

    # The memory for all frames, each as large as the largest that any of them is said to be
    largest = max([rows * columns, *(size.rows * size.columns for size in sizes)])
    bytes_of_value = -(-allocated // 8)  # rounded up
    unpacked = frames * largest * bytes_of_value * samples
    check_inflation(len(content), unpacked, MAX_IMAGE, "pixels")

    _check_bits(dataset, name)
    if not is_encapsulated:
        _check_length(content, dataset, frames, samples)
        return
    is_rle = dataset.file_meta.TransferSyntaxUID == RLELossless
    n_images = len(sizes)
    if is_rle:
        n_images = 0
        for fragment in fragments:
            if fragment:  # each is a frame (PS3.5 A.4.2)
                n_images += 1
    if n_images > frames or n_listed not in (0, frames):
        raise CadError(
            f"{max(n_images, n_listed)} compressed images, but NumberOfFrames (0028,0008) is "
            f"{frames}; each frame is one image (PS3.5 A.4)",
            hint=_AGAIN,
        )
    for size in sizes:
        _check_compressed(size, rows, columns, allocated, samples)
    if is_rle:
        for fragment in fragments:
            _check_run_lengths(fragment, rows, columns)


def check_values(array: np.ndarray, dataset: Dataset) -> None:
    """Refuse values of a losslessly compressed image that need more bits than the header says.

    A program that goes by the header would cut the highest bits off; the decoder of the image keeps
    them. In uncompressed data, bits above BitsStored are no part of a value (PS3.5 8.1.1).

    Parameters
    ----------
    array : ndarray
        Decompressed values.
    dataset : Dataset
        Their image.

    Raises
    ------
    CadError
        The message names the value that is farthest outside.

    Examples
    --------
    >>> import numpy as np
    >>> from pydicom.dataset import Dataset, FileMetaDataset
    >>> image = Dataset()
    >>> image.file_meta = FileMetaDataset()
    >>> image.file_meta.TransferSyntaxUID = JPEG2000Lossless
    >>> image.BitsStored = 12
    >>> check_values(np.array([0, 4095]), image)
    """
    syntax = dataset.file_meta.TransferSyntaxUID
    if array.size == 0:
        return
    is_signed = int(dataset.get("PixelRepresentation", 0)) == 1
    if syntax.is_encapsulated and not is_signed:
        _check_sign(array, dataset)
    if syntax not in _LOSSLESS:
        return
    bits_stored = int(dataset.BitsStored)
    lowest_allowed = -(1 << bits_stored - 1) if is_signed else 0
    highest_allowed = lowest_allowed + (1 << bits_stored) - 1
    smallest = int(array.min())
    largest = int(array.max())
    if smallest < lowest_allowed or largest > highest_allowed:
        raise CadError(
            f"a value of {largest if largest > highest_allowed else smallest}, but BitsStored "
            f"(0028,0101) is {bits_stored}, which allows {lowest_allowed} to {highest_allowed}",
            hint=_AGAIN,
        )


def _check_sign(array: np.ndarray, dataset: Dataset) -> None:
    """Refuse negative values of a JPEG 2000 image whose header says that values have no sign.

    By the header, negative values become large positive values. An image without a sign, whose
    header says that values have one, is not refused. Some archives pack signed values as values
    without a sign, and only the header tells what they are.
    """
    # In values of this size or more the highest bit is set. If the compressed image has signed
    # values, this bit is their sign.
    least_with_highest_bit = 1 << int(dataset.BitsStored) - 1
    if int(array.max()) < least_with_highest_bit:
        return
    for fragment in generate_fragments(dataset.get("PixelData") or b""):
        size = compressed_size(fragment)
        if size is not None and size.signed:
            raise CadError(
                "PixelRepresentation (0028,0103) is 0, but the JPEG 2000 image has negative values",
                hint=_AGAIN,
            )


def check_lines(array: np.ndarray) -> None:
    """Refuse an image whose numbers of rows and columns are exchanged.

    The number of pixels is then the same, and only the pixels can show it: with the wrong length of
    a line, pixels that lie above each other have nothing to do with each other.

    Parameters
    ----------
    array : ndarray, shape (rows, columns) or (frames, rows, columns)
        Pixels of a file.

    Raises
    ------
    CadError
        When pixels above each other are more alike with rows and columns exchanged.

    Examples
    --------
    >>> import numpy as np
    >>> wave = np.sin(np.arange(40) / 6)
    >>> image = np.outer(wave, wave[:30])
    >>> check_lines(image)
    >>> check_lines(image.reshape(30, 40))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    cad.base.errors.CadError: Rows (0028,0010) 30 and Columns (0028,0011) 40 are exchanged: ...
    """
    planes = array.reshape(-1, *array.shape[-2:])
    rows, columns = planes.shape[1:]
    # A square image is the same either way. A second difference needs three lines.
    if rows == columns or min(rows, columns) < 3 or planes.size < _LEAST_PIXELS:
        return
    roughness_as_stated = 0.0
    roughness_exchanged = 0.0
    for plane in planes:
        values = plane.ravel().astype(np.float64)
        roughness_as_stated += _roughness(values, columns)
        roughness_exchanged += _roughness(values, rows)
    if roughness_as_stated > _ROUGHER * roughness_exchanged:
        raise CadError(
            f"Rows (0028,0010) {rows} and Columns (0028,0011) {columns} are exchanged: with "
            f"{rows} pixels in a line, pixels above each other are more alike by far",
            hint="export the series again",
        )


def check_order(array: np.ndarray, order: np.ndarray) -> None:
    """Refuse an image whose slices follow each other better by their numbers than by their places.

    Parameters
    ----------
    array : ndarray, shape (slices, rows, columns)
        The image, its slices in the order of their positions.
    order : ndarray of int, shape (slices,)
        The slices in the order of their numbers (InStackPositionNumber).

    Raises
    ------
    CadError
        When neighbours by number are more alike than neighbours by position.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.arange(6.0).reshape(3, 1, 2)
    >>> check_order(image, np.array([1, 0, 2]))
    >>> check_order(image[[1, 0, 2]], np.array([1, 0, 2]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    cad.base.errors.CadError: ImagePositionPatient (0020,0032) and InStackPositionNumber ...
    """
    by_position = 0.0
    by_number = 0.0
    for index in range(len(array) - 1):
        by_position += _mean_square_difference(array[index], array[index + 1])
        by_number += _mean_square_difference(array[order[index]], array[order[index + 1]])
    if by_number < by_position:
        raise CadError(
            "ImagePositionPatient (0020,0032) and InStackPositionNumber (0020,9057) give the "
            "slices two orders, and the pixels follow each other better by the numbers: the "
            "positions of slices are exchanged",
            hint="export the series again, or as single images",
        )


def _mean_square_difference(plane: np.ndarray, neighbour: np.ndarray) -> float:
    return float(np.mean((plane.astype(np.float64) - neighbour) ** 2))


def _roughness(values: np.ndarray, columns: int) -> float:
    """Return the mean square of the second differences between the lines of an image.

    Differences of the first order would also see light that falls off evenly across the image.
    ``values`` has the lines one after another, and ``columns`` is the length of a line.
    """
    line_before = values[: -2 * columns]
    line = values[columns:-columns]
    line_behind = values[2 * columns :]
    bend = line_before - 2 * line + line_behind
    return float(np.mean(bend**2))


def compressed_size(image: bytes) -> CompressedSize | None:
    """Return what a JPEG or JPEG 2000 image states of itself; None if it is no start of an image.

    The decoder of such an image uses these numbers, and not the DICOM header.

    Parameters
    ----------
    image : bytes
        A fragment of encapsulated pixel data.
    """
    if image[:8] == _JPEG_2000_FILE:
        # The image lies inside a file of its own, behind some boxes. Without an image in it, the
        # bytes stay as they are, and are no JPEG 2000 image.
        begin = max(image.find(_JPEG_2000, 0, _LONGEST_HEAD), 0)
        image = image[begin:]
    if image[:4] == _JPEG_2000:
        right, bottom, left, top = struct.unpack_from(">4I", image, 8)
        samples, sign_and_depth = struct.unpack_from(">HB", image, 40)
        return CompressedSize(
            rows=max(bottom - top, 0),
            columns=max(right - left, 0),
            bits=(sign_and_depth & ~_SIGN_BIT) + 1,  # stored as one less
            samples=samples,
            signed=bool(sign_and_depth & _SIGN_BIT),
        )
    if image[:3] != _JPEG:
        return None
    place = 2
    # Segments follow one another, each with a marker (FF and another byte) and its length.
    while place + _FRAME_START <= len(image) and image[place] == 0xFF:
        marker = image[place + 1]
        length = int.from_bytes(image[place + 2 : place + 4], "big")
        if marker in _FRAME_MARKERS:
            bits, rows, columns, samples = struct.unpack_from(">B2HB", image, place + 4)
            return CompressedSize(rows=rows, columns=columns, bits=bits, samples=samples)
        place += 2 + length  # the length counts itself, and not the marker
    return None


def _check_bits(dataset: Dataset, name: str) -> None:
    """Refuse a header by which a pixel's value has more bits than its place in the file.

    A header is also refused if it contradicts itself on where the bits of a value lie in this
    place.
    """
    allocated = int(dataset.BitsAllocated)
    needed = _FLOAT_BITS.get(name, allocated)  # integers may have any number of bits
    if allocated != needed:
        raise CadError(
            f"BitsAllocated (0028,0100) is {allocated}, but {name} has {needed} bits a value",
            hint=_AGAIN,
        )
    if name != "PixelData" or dataset.get("BitsStored") is None:
        return
    stored = int(dataset.BitsStored)
    if not 1 <= stored <= allocated:
        raise CadError(
            f"BitsStored (0028,0101) is {stored}, but BitsAllocated (0028,0100) is {allocated}; a "
            "value has at least 1 bit, and no more bits than its place",
            hint=_AGAIN,
        )
    highest = dataset.get("HighBit")
    if highest is not None and int(highest) != stored - 1:
        raise CadError(
            f"HighBit (0028,0102) is {highest}, but BitsStored (0028,0101) is {stored}; HighBit "
            f"must be {stored - 1} (PS3.5 8.1.1), so it is not known which bits are the value",
            hint=_AGAIN,
        )


def _check_length(content: bytes, dataset: Dataset, frames: int, samples: int) -> None:
    """Refuse uncompressed pixel data that are longer than the header says by a line or more.

    A writer may pad the data by a few bytes, or by zeros as long as one line. Too short data are
    refused by the decoder.
    """
    if samples != 1:  # some colours share values between pixels
        return
    rows = int(dataset.Rows)
    columns = int(dataset.Columns)
    allocated = int(dataset.BitsAllocated)
    # Bits are counted, because a pixel may have one bit alone.
    expected = -(-rows * columns * frames * allocated // 8)  # bytes, rounded up
    surplus = len(content) - expected
    line_bits = min(rows, columns) * allocated
    is_padding = surplus * 8 <= line_bits and not any(content[expected:])
    # One byte is allowed in any case, because the length of an element is even.
    if surplus > 1 and surplus * 8 >= line_bits and not is_padding:
        raise CadError(
            f"{len(content)} bytes of pixel data, but {expected} by the header: Rows (0028,0010) "
            f"{rows} x Columns (0028,0011) {columns} x {frames} frames of BitsAllocated "
            f"(0028,0100) {allocated}",
            hint="a wrong header would cut the image; export the series again",
        )


def _check_compressed(
    size: CompressedSize, rows: int, columns: int, allocated: int, samples: int
) -> None:
    """Refuse a compressed image that states another size, or other values, than the header."""
    # A size of 0 is stated elsewhere in the image, and is not compared.
    if (size.rows or rows, size.columns or columns) != (rows, columns):
        raise CadError(
            f"a compressed image of {size.rows} x {size.columns} pixels, but Rows (0028,0010) x "
            f"Columns (0028,0011) is {rows} x {columns}",
            hint=_AGAIN,
        )
    if size.bits > allocated:
        raise CadError(
            f"a compressed image of {size.bits} bits a value, but BitsAllocated (0028,0100) is "
            f"{allocated}",
            hint=_AGAIN,
        )
    if size.samples != samples:
        raise CadError(
            f"a compressed image of {size.samples} values a pixel, but SamplesPerPixel (0028,0002) "
            f"is {samples}",
            hint=_AGAIN,
        )


def _check_run_lengths(fragment: bytes, rows: int, columns: int) -> None:
    """Refuse an RLE image that unpacks to more pixels than its header states.

    The decoder would leave out the surplus pixels without an error. Too few pixels, and a wrong
    number of segments, are refused by the decoder itself.
    """
    if len(fragment) < _RLE_HEADER.size:
        return
    # Each segment has one byte of every pixel. The header has the number of segments, and where
    # each of at most 15 begins.
    n_segments, *starts = _RLE_HEADER.unpack_from(fragment)
    bounds = [*starts[: min(n_segments, len(starts))], len(fragment)]
    for start, end in pairwise(bounds):
        n_pixels = _unpacked_bytes(fragment[start:end])
        surplus = n_pixels - rows * columns
        # Less than a line may be padding.
        if surplus > 1 and surplus >= min(rows, columns):
            raise CadError(
                f"an RLE image of {n_pixels} pixels, but Rows (0028,0010) {rows} x Columns "
                f"(0028,0011) {columns} is {rows * columns}",
                hint=_AGAIN,
            )


def _unpacked_bytes(segment: bytes) -> int:
    """Return the number of bytes that an RLE segment becomes (PS3.5 G.3)."""
    place = 0
    unpacked = 0
    while place + 1 < len(segment):
        control = segment[place]
        if control < 128:  # so many bytes and one follow as they are, unless the segment ends
            unpacked += min(control + 1, len(segment) - place - 1)
            place += control + 2
        elif control > 128:  # the byte that follows is repeated
            unpacked += 257 - control
            place += 2
        else:  # 128 has no meaning
            place += 1
    return unpacked
