"""Read the voxels of stacks (3-D images).

Each file is decoded once and cut into planes. The stored numbers are scaled to values with a unit.
"""

import dataclasses
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
from pydicom.encaps import generate_frames
from pydicom.pixels import get_decoder  # type: ignore[attr-defined]  # public, says its manual
from pydicom.uid import UID, ExplicitVRBigEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian

from cad.base.doors import door
from cad.base.errors import CadError, install, located, printable
from cad.base.reading import reading
from cad.mri.imaging.elements import PIXELS
from cad.mri.imaging.frame_headers import LAYOUT
from cad.mri.imaging.frames import STATE, Frame, read_dataset
from cad.mri.imaging.pixel_checks import check_lines, check_order, check_pixels, check_values
from cad.mri.imaging.stacks import Stack
from cad.mri.imaging.volume import Volume

# How a user can decompress a file that no installed package can decode. The key is a part of the
# name of the file's transfer syntax (its compression).
_TOOLS = {
    "High-Throughput": "have the archive export the series without compression",
    "JPEG 2000": "decompress it with `gdcmconv --raw`",
    "JPEG-LS": "decompress it with `dcmdjpls`",
    "RLE": "decompress it with `dcmdrle`",
}
_JPEG_TOOL = "decompress it with `dcmdjpeg`"
_GREY = ("MONOCHROME1", "MONOCHROME2")
_BITS_STORED = b"\x28\0\1\1"  # the bytes of the tag BitsStored in a file
# Transfer syntaxes of lossy JPEG with up to 12 bits. DICOM has retired the last two.
_LOSSY_JPEG = {
    "1.2.840.10008.1.2.4.51",  # JPEG Extended, processes 2 and 4
    "1.2.840.10008.1.2.4.53",  # JPEG Spectral Selection, processes 6 and 8
    "1.2.840.10008.1.2.4.55",  # JPEG Full Progression, processes 10 and 12
}


class PixelReader:
    """Read the pixels of planes, one plane at a time.

    The pixels of the last file are kept in memory, because the next plane often lies in the same
    file.
    """

    def __init__(self) -> None:
        self._path = Path()
        self._array: np.ndarray = np.empty(0)
        # How to read the pixels of a file without pydicom, if this worked for an earlier file. The
        # key is all that a file states about its pixels. The value is their type, their shape, and
        # the number of unused bits in a pixel.
        self._form_of_layout: dict[
            tuple[object, ...], tuple[np.dtype[Any], tuple[int, ...], int]
        ] = {}

    def plane(self, frame: Frame) -> np.ndarray:
        """Return the stored numbers of a plane, without rescaling, shape (rows, columns).

        Raises
        ------
        CadError
            When the file is damaged or contradicts its header, or its codec is not installed.
        """
        if frame.path != self._path:
            self._array = self._stored(frame)
            with located(file=frame.path):
                check_lines(self._array)
            self._path = frame.path
        array = self._array
        if frame.tiles:  # a mosaic has its slices side by side, row after row
            row, column = divmod(frame.index, frame.tiles)
            array = array[
                row * frame.rows : (row + 1) * frame.rows,
                column * frame.columns : (column + 1) * frame.columns,
            ]
        elif array.ndim == 3:
            array = array[frame.index]
        if array.shape != (frame.rows, frame.columns):
            raise CadError(
                f"the pixels are {array.shape}, the header says {frame.rows} x {frame.columns}",
                file=frame.path,
            )
        return array

    @door("in", "DICOM", bound="the header's own size; import's child")
    def _stored(self, frame: Frame) -> np.ndarray:
        """Return the pixels of a file.

        The pixels are read without pydicom if this worked for an earlier file that states the same
        about its pixels.
        """
        lying = frame.lying
        # The file may have been removed or cut off since its header was read.
        with reading(frame.path, "damaged DICOM file"):
            if lying is None or STATE(frame.path.stat()) != lying.state:
                return _grey_pixels(frame.path)
            with frame.path.open("rb") as file:
                file.seek(lying.begin)
                pixels = file.read(lying.end - lying.begin)
            if lying.layout in self._form_of_layout:
                return _as_they_lie(pixels, *self._form_of_layout[lying.layout])

        # No file like this one was read before: pydicom reads it.
        array = _grey_pixels(frame.path)
        # After the pixels DICOM allows one byte of padding. If more bytes follow, pydicom checks
        # them. So a file like this is always read by pydicom.
        if len(pixels) > array.nbytes + 1:
            return array
        unused_bits = 0
        for element in lying.layout:
            if element[:4] == _BITS_STORED:
                bits_stored = int.from_bytes(element[-2:], "little")
                unused_bits += 8 * array.itemsize - bits_stored
        form = array.dtype, array.shape, unused_bits
        # The pixels are read again without pydicom. If this raises an error or gives other pixels,
        # as for one bit per pixel, the form is not kept for files like this one.
        with suppress(ValueError, TypeError):
            if np.array_equal(_as_they_lie(pixels, *form), array):
                self._form_of_layout[lying.layout] = form
        return array


def _as_they_lie(
    pixels: bytes, pixel_type: np.dtype[Any], shape: tuple[int, ...], unused_bits: int
) -> np.ndarray:
    """Return uncompressed pixels from the bytes of a file.

    Unused bits at the top of a number may have any value. They are replaced by copies of the sign
    bit, or by 0 in numbers without a sign.
    """
    array = np.frombuffer(pixels, pixel_type, math.prod(shape)).reshape(shape)
    if not unused_bits:
        return array
    # A shift to the right fills the top with the sign bit, which is then the topmost.
    replaced: np.ndarray = np.right_shift(np.left_shift(array, unused_bits), unused_bits)
    return replaced


def read_stack(stack: Stack, *, precise: bool = False, reader: PixelReader | None = None) -> Volume:
    """Read the voxels of a stack.

    Parameters
    ----------
    stack : Stack
        Headers of the slices to read.
    precise : bool
        True for the scanner's signal, to which models are fitted, in place of the values that a
        viewer shows. Only Philips headers distinguish the two.
    reader : PixelReader, optional
        Reader that several stacks of one file share, so that the file is decoded once.

    Returns
    -------
    Volume
        The image. Values have the stored type where the headers state no rescaling, else float32.
        The unit is that of the header.

    Raises
    ------
    CadError
        For a damaged file, a size that contradicts the header, colour images, slices in different
        units, slices whose pixels contradict their positions, and a compressed transfer syntax
        whose codec is not installed (naming the package).
    """
    reader = reader or PixelReader()
    scales = [frame.precise if precise else frame.real for frame in stack.slices]
    units = {scale.unit for scale in scales}
    if len(units) > 1:
        raise CadError(
            f"slices of one image in different units: {sorted(units)}", file=stack.first.path
        )
    planes = []
    for frame, scale in zip(stack.slices, scales, strict=True):
        plane = reader.plane(frame)
        if (scale.slope, scale.intercept) != (1.0, 0.0):
            plane = plane * np.float32(scale.slope) + np.float32(scale.intercept)
            plane = plane.astype(np.float32)
        planes.append(plane)
    # Slices of several types, such as some scaled and some not, get one type.
    if len({plane.dtype for plane in planes}) > 1:
        planes = [plane.astype(np.float32) for plane in planes]
    array = np.stack(planes)
    order = stack.order_of_numbers
    if order is not None:
        with located(file=stack.first.path):
            check_order(array, order)
    return dataclasses.replace(stack.grid, array=array, unit=units.pop())


def _grey_pixels(path: Path) -> np.ndarray:
    """Return the pixels of a file by pydicom; refuse a colour image."""
    with reading(path, "damaged DICOM file"):
        dataset = read_dataset(path, {*LAYOUT, *PIXELS}, force=True)
        samples = int(dataset.get("SamplesPerPixel", 1))
        colours = str(dataset.get("PhotometricInterpretation", "") or "").strip()
    if samples != 1:
        raise CadError("a colour image where grey levels were expected", file=path)
    if colours and colours not in _GREY:
        raise CadError(
            f"PhotometricInterpretation (0028,0004) is {printable(colours)!r}: its numbers stand "
            f"for colours; expected {' or '.join(_GREY)}",
            file=path,
            hint="export the images themselves, and no picture of them",
        )
    return decoded(dataset, path)


def decoded(dataset: pydicom.Dataset, path: Path) -> np.ndarray:
    """Return the pixel data of a dataset, decompressed.

    Parameters
    ----------
    dataset : Dataset
        Dataset with pixel data. If it states no transfer syntax, it gets one.
    path : Path
        Its file, for messages.

    Returns
    -------
    ndarray, shape (rows, columns) or (frames, rows, columns)
        Numbers as they are stored, without rescaling; an axis of frames only where the dataset has
        several frames. A colour image has a further last axis.

    Raises
    ------
    CadError
        When the data are damaged, would be larger than any image once decompressed, or need a codec
        that is not installed (the error names the package).
    """
    with reading(path, "damaged pixel data"):
        # A file without a preamble does not state its transfer syntax. It is then uncompressed, and
        # pydicom has found out the byte order.
        if not dataset.file_meta.get("TransferSyntaxUID"):
            is_implicit, is_little_endian = dataset.original_encoding
            if is_implicit:
                dataset.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
            elif is_little_endian:
                dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
            else:
                dataset.file_meta.TransferSyntaxUID = ExplicitVRBigEndian
        check_pixels(dataset)
        syntax = dataset.file_meta.get("TransferSyntaxUID")
        if syntax in _LOSSY_JPEG and int(dataset.BitsStored) > 8:
            return _deep_jpeg(dataset, path)
        try:
            array = np.asarray(dataset.pixel_array)
        except Exception as error:
            # pydicom's errors do not say which package to install.
            if syntax is not None and _needs_codec(syntax):
                raise _no_codec(syntax, path, error) from error
            raise
        check_values(array, dataset)
        return array


def _deep_jpeg(dataset: pydicom.Dataset, path: Path) -> np.ndarray:
    """Return the frames of a lossy JPEG image with 9 to 12 bits, decoded by GDCM; pydicom has no
    decoder for it.
    """
    syntax = dataset.file_meta.TransferSyntaxUID
    if dataset.PixelRepresentation != 0 or int(dataset.BitsAllocated) != 16:
        raise CadError(
            f"{syntax.name} of {dataset.BitsStored} bits with a sign: decoders do not agree on it",
            file=path,
            hint="export the series without compression, or by a lossless syntax",
        )
    try:
        import gdcm
    except ImportError as error:
        raise _no_codec(syntax, path, error) from error
    n_frames = int(dataset.get("NumberOfFrames") or 1)
    n_rows = int(dataset.Rows)
    n_columns = int(dataset.Columns)
    bits_stored = int(dataset.BitsStored)
    # GDCM is told the same of every frame. Its format of a pixel has the samples per pixel, the
    # bits allocated and stored, the highest bit, and 0 for numbers without a sign.
    grey = gdcm.PhotometricInterpretation.GetPIType("MONOCHROME2")
    interpretation = gdcm.PhotometricInterpretation(grey)
    transfer_syntax = gdcm.TransferSyntax(gdcm.TransferSyntax.GetTSType(str(syntax)))
    pixel_format = gdcm.PixelFormat(1, 16, bits_stored, bits_stored - 1, 0)
    planes = []
    for compressed in generate_frames(dataset.PixelData, number_of_frames=n_frames):
        fragment = gdcm.Fragment()
        fragment.SetByteStringValue(compressed)
        fragments = gdcm.SequenceOfFragments.New()
        fragments.AddFragment(fragment)
        pixel_data = gdcm.DataElement(gdcm.Tag(0x7FE0, 0x0010))
        pixel_data.SetValue(fragments.__ref__())
        image = gdcm.Image()
        image.SetNumberOfDimensions(2)
        image.SetDimensions((n_columns, n_rows, 1))
        image.SetDataElement(pixel_data)
        image.SetPhotometricInterpretation(interpretation)
        image.SetTransferSyntax(transfer_syntax)
        image.SetPixelFormat(pixel_format)
        # GDCM returns the bytes as a text, from which they are restored.
        content = image.GetBuffer().encode("utf-8", "surrogateescape")
        planes.append(np.frombuffer(content, np.uint16).reshape(n_rows, n_columns))
    return planes[0] if len(planes) == 1 else np.stack(planes)


def _needs_codec(syntax: UID) -> bool:
    """Tell whether the pixel data are compressed in a way that no installed package can decode."""
    if not syntax.is_transfer_syntax or not syntax.is_compressed:
        return False
    try:
        return not get_decoder(syntax).is_available
    except NotImplementedError:
        return True


def _no_codec(syntax: UID, path: Path, error: Exception) -> CadError:
    """Return the error for pixels that no installed package decodes, with what a user can do."""
    advice = _JPEG_TOOL
    for name, advice_for_name in _TOOLS.items():
        if name in syntax.name:
            advice = advice_for_name
            break
    reason = " ".join(str(error).split()).removesuffix(":")  # on one line
    return CadError(
        f"compressed pixel data that cannot be decoded: {syntax.name} ({syntax}): {reason[:200]}",
        file=path,
        hint=f"{install('codecs')}; or {advice}",
    )
