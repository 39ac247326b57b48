"""Read and write NIfTI files: LPS volumes in memory, RAS on disk, equal bytes for equal voxels.

LPS and RAS say which way coordinates in the patient grow: to the left, back and head (LPS), or to
the right, front and head (RAS). NIfTI-1 files state their place in ``sform`` or ``qform`` (RAS,
mm). The times of a dynamic series, its repetition time (seconds) and flip angle (degrees) are in
the BIDS sidecar, which is a JSON file beside the image.
"""

import json
import math
import reprlib
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import SimpleITK as sitk
from isal import igzip

from cad.base.doors import door
from cad.base.errors import CadError, located
from cad.base.files import JsonObject, write_atomic
from cad.base.reading import MAX_IMAGE, check_inflation, read_json, reading
from cad.base.regular import MIB
from cad.mri.imaging.headers import check_header, read_own_voxels
from cad.mri.imaging.volume import CORNERS, GEOMETRY_TOLERANCE_MM, Dynamic, Volume, triple

RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
# Level of gzip compression: the best level of the library ISA-L. Compared with level 4 of zlib, it
# takes a sixth of the time, and files of MR images are .4 % larger.
COMPRESSION = 3
_SCANNER = 1  # code of sform and qform: the coordinates are those of the scanner
# By length of the NIfTI header (bytes): the name of nibabel's class, and the place and type of the
# number that says where the voxels begin. The class is named and not imported: nibabel imports
# pydicom with all decoders, and is therefore loaded with the first image only.
_NIFTI = {348: ("Nifti1Header", 108, "f"), 540: ("Nifti2Header", 168, "q")}
# By length of the header: position of the magic number, and its value for a file that contains its
# own voxels. A file with the value `ni1` has its voxels in another file.
_MAGIC = {348: (344, b"n+1\0"), 540: (4, b"n+2\0\r\n\x1a\n")}
_LONGEST_HEADER = 540
_LAST_START = MIB
# A header may state the place of an image twice, by sform and by qform. For each corner of the
# image, the two places may differ by at most this distance (mm). A qform stores a rotation by three
# numbers of 32 bits. Read back, a slightly tilted axial image of 400 mm lies up to .45 mm beside
# its sform.
_FORM_TOLERANCE_MM = 1.0
_LARGEST = 1e30
# A label may differ from a whole number by this much.
_LABEL_ROUNDING = 1e-3
# Decimals (mm) to which the middle of an image is rounded. Files store positions with errors of
# some 1e-5 mm, which differ with the order in which axes are stored. The middle of an image does
# not depend on this order.
_PLACES = 3
_NUMPY_TYPES = {
    sitk.sitkInt8: "i1",
    sitk.sitkUInt8: "u1",
    sitk.sitkInt16: "i2",
    sitk.sitkUInt16: "u2",
    sitk.sitkInt32: "i4",
    sitk.sitkUInt32: "u4",
    sitk.sitkInt64: "i8",
    sitk.sitkUInt64: "u8",
    sitk.sitkFloat32: "f4",
    sitk.sitkFloat64: "f8",
}
_LENGTH_UNITS = (0, 1, 2, 3)  # codes in NIfTI: unknown, metre, millimetre, micrometre
_MM_PER_UNIT = {"unknown": 1.0, "mm": 1.0, "meter": 1000.0, "micron": 0.001}


def read_volume(path: Path) -> Volume:
    """Read a 3-D NIfTI file and put its axes in the order that this program uses.

    Values keep their stored type. The array's first axis crosses the slices; :meth:`Volume.upright`
    says how the axes are chosen.

    Parameters
    ----------
    path : Path
        ``.nii`` or ``.nii.gz``.

    Returns
    -------
    Volume
        The image, with array axes z, y, x, spacing in mm, and origin and directions in LPS. Values
        keep their stored type.

    Raises
    ------
    CadError
        For a missing, damaged or non-NIfTI file, or a file that does not state its place in the
        patient (see :func:`read_stored`).
    """
    return _settled(read_stored(path))


def read_stored(path: Path) -> Volume:
    """Read a 3-D NIfTI file with its axes and values in the order and type of the file.

    Parameters
    ----------
    path : Path
        ``.nii`` or ``.nii.gz``.

    Returns
    -------
    Volume
        Array (z, y, x), LPS geometry in mm.

    Raises
    ------
    CadError
        For a missing, damaged or non-NIfTI file, a file without 3 axes, a file that does not state
        its place in the patient, or a direction that is not orthonormal.
    """
    array, affine = _load_voxels(path)
    if array.ndim == 4 and array.shape[3] == 1:  # some programs write one image as a series of one
        array = array[..., 0]
    if array.ndim != 3:
        raise CadError(f"expected 3 axes, found shape {array.shape}", file=path)
    return _checked_volume(array.T, affine, path)


def read_label_map(path: Path) -> Volume:
    """Read a label map, which is an image of whole numbers from 0.

    Its axes are reordered as by :func:`read_volume`: the array's first axis crosses the slices.

    Parameters
    ----------
    path : Path
        A file that :func:`read_image` reads.

    Returns
    -------
    Volume of int
        The label map, with array axes z, y, x. Labels that were stored as floats become 32-bit
        whole numbers.

    Raises
    ------
    CadError
        Naming the file, when it is missing or damaged, or has fractions or negative numbers.
    """
    volume = read_image(path)
    array = volume.array
    if array.dtype.kind == "f":
        whole = np.round(array)
        # Some programs store a label map with a scale factor. Its labels then differ slightly from
        # whole numbers when they are read.
        if not np.isfinite(array).all() or np.abs(array - whole).max() > _LABEL_ROUNDING:
            raise CadError("a label map holds whole numbers; found fractions or NaN", file=path)
        array = whole.astype(np.int32)
    if array.min() < 0:
        raise CadError(f"a label map has no negative labels, found {array.min()}", file=path)
    return volume.with_array(array)


@door("in", "NIfTI", limit=MAX_IMAGE)
def stored_axes(path: Path) -> np.ndarray:
    """Return the directions of a NIfTI file's three axes, in the order in which it stores them.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    ndarray, shape (3, 3)
        Columns are unit vectors, LPS; slices are stored along the third.
    """
    with reading(path, "not a readable NIfTI file", "copy or export it again"):
        axes = _stated_affine(_nifti_header(path))[:3, :3]
    return np.asarray(axes / np.linalg.norm(axes, axis=0))


def read_image(path: Path) -> Volume:
    """Read a 3-D NIfTI, NRRD or MetaImage file, with axes in the order of :func:`read_volume`.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    Volume
        The image, with array axes z, y, x, spacing in mm, and origin and directions in LPS. Values
        keep their stored type.

    Raises
    ------
    CadError
        For a missing or damaged file, a file that does not state its place in the patient, and for
        other formats (GIPL, VTK, Analyze), which never state it.
    """
    if path.name.endswith((".nii", ".nii.gz")):
        return read_volume(path)
    with reading(path, "not a readable image file", "copy or export it again"):
        return Volume.from_sitk(_stored_image(path)).upright()


def read_grid(path: Path) -> sitk.Image:
    """Return an image with its axes in the order of its file, as the grid for another image.

    Parameters
    ----------
    path : Path
        A file that :func:`read_image` reads.

    Raises
    ------
    CadError
        As :func:`read_image`.
    """
    if path.name.endswith((".nii", ".nii.gz")):  # SimpleITK would not check both of its places
        return read_stored(path).to_sitk()
    with reading(path, "not a readable image file", "copy or export it again"):
        return _stored_image(path)


@door("in", "MetaImage", limit=MAX_IMAGE)
def _stored_image(path: Path) -> sitk.Image:
    """Return the image of a MetaImage or NRRD file; refuse a header that states no certain place.

    :func:`check_header` reads from the header where the image lies in the patient. SimpleITK reads
    the header, too, and an error is raised if it finds another place. The voxels are read by this
    program, from the position in the file that the checked header states.
    """
    if not path.is_file():
        raise CadError("no such image file", file=path)
    voxels = check_header(path)
    reader = sitk.ImageFileReader()
    reader.SetImageIO("NrrdImageIO" if voxels.nrrd else "MetaImageIO")
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    size_by_header = voxels.grid.shape[::-1]
    size = reader.GetSize()
    if size != size_by_header or reader.GetNumberOfComponents() != 1:  # one number for each voxel
        raise CadError(f"expected {size_by_header} numbers, found size {size}")
    library_grid = replace(
        voxels.grid,
        spacing=reader.GetSpacing(),
        origin=reader.GetOrigin(),
        direction=np.array(reader.GetDirection()).reshape(3, 3),
    )
    if not library_grid.same_grid(voxels.grid):
        raise CadError(
            f"two readers put the image in two places: {_place_text(voxels.grid)} by the text of "
            f"the header, {_place_text(library_grid)} by SimpleITK",
            file=path,
            hint="convert it to NIfTI with a tool that keeps the geometry",
        )
    voxel_type = _NUMPY_TYPES.get(reader.GetPixelID())
    if voxel_type is None:
        raise CadError(f"voxels of type {reader.GetPixelIDValue()}, which are not read")
    image = sitk.GetImageFromArray(read_own_voxels(path, np.dtype(voxel_type)))
    image.SetOrigin(reader.GetOrigin())
    image.SetSpacing(reader.GetSpacing())
    image.SetDirection(reader.GetDirection())
    return image


def _place_text(grid: Volume) -> str:
    """Return where a grid lies, for a message: the middle of the image in LPS mm, and its steps."""
    x, y, z = grid.centre
    steps = " x ".join(f"{step:.4g}" for step in grid.spacing)
    return f"middle at ({x:.2f}, {y:.2f}, {z:.2f}) mm with steps of {steps} mm"


def write_volume(path: Path, volume: Volume) -> None:
    """Write a volume as compressed NIfTI-1; equal volumes give files of equal bytes.

    Parameters
    ----------
    path : Path
        ``.nii.gz``.
    volume : Volume
        Image or mask; a boolean mask is stored as uint8.
    """
    _save(path, volume.array.T, volume)


def read_dynamic(path: Path) -> Dynamic:
    """Read a 4-D NIfTI file and the times, TR (seconds) and flip angle (degrees) of its sidecar.

    Parameters
    ----------
    path : Path
        The image; its sidecar is the JSON file of the same name.

    Returns
    -------
    Dynamic
        Frames (t, z, y, x) in their stored type, with axes in the order of :func:`read_volume`;
        times in seconds from the first frame.

    Raises
    ------
    CadError
        For a file that cannot be read, or that has no sidecar or no times. For times that do not
        increase, or whose number is not the number of frames.
    """
    array, affine = _load_voxels(path)
    if array.ndim != 4:
        raise CadError(f"expected 4 axes (x, y, z, time), found shape {array.shape}", file=path)
    sidecar = read_sidecar(path)
    if "VolumeTiming" not in sidecar:
        raise CadError(
            "a dynamic series without times: the sidecar has no VolumeTiming",
            file=sidecar_path(path),
            hint='add "VolumeTiming": [seconds of every frame]',
        )
    with reading(sidecar_path(path), "VolumeTiming must be a list of seconds"):
        times = np.asarray(sidecar["VolumeTiming"], float)
        times = times - times[0]
    if not np.isfinite(times).all():
        raise CadError("VolumeTiming must be finite seconds", file=sidecar_path(path))
    repetition_time = positive(sidecar, "RepetitionTime", path)
    flip_angle = positive(sidecar, "FlipAngle", path)
    with reading(path, "not a dynamic series"):
        frames = array.T
        stored = _checked_volume(frames[0], affine, path)
        # upright() returns the volume itself if its axes need no change. Only otherwise are the
        # frames copied, which may take much memory.
        if stored.upright() is not stored:
            frames = np.stack([stored.with_array(frame).upright().array for frame in frames])
        return Dynamic(frames, _settled(stored), times, repetition_time, flip_angle)


def write_dynamic(path: Path, dynamic: Dynamic, sidecar: JsonObject | None = None) -> None:
    """Write a dynamic series as 4-D NIfTI with its times in the sidecar.

    Parameters
    ----------
    path : Path
        ``.nii.gz``.
    dynamic : Dynamic
        Series to write; its times, repetition time and flip angle go into the sidecar.
    sidecar : dict, optional
        Further entries of the sidecar; the series' own values replace entries of the same name.
    """
    entries: JsonObject = {"VolumeTiming": [round(float(time), 6) for time in dynamic.times]}
    if dynamic.repetition_time is not None:
        entries["RepetitionTime"] = float(dynamic.repetition_time)
    if dynamic.flip_angle is not None:
        entries["FlipAngle"] = float(dynamic.flip_angle)
    _save(path, dynamic.frames.T, dynamic.grid)
    write_sidecar(path, {**(sidecar or {}), **entries})


def sidecar_path(path: Path) -> Path:
    """Return the path of an image's BIDS sidecar: ``X.json`` for ``X.nii.gz`` or ``X.nii``."""
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".nii") + ".json")


def read_sidecar(path: Path) -> JsonObject:
    """Return the content of the BIDS sidecar (JSON) of the image at ``path``; empty without one."""
    try:
        return read_json(sidecar_path(path))
    except FileNotFoundError:
        return {}


def write_sidecar(path: Path, entries: JsonObject) -> None:
    """Write ``entries`` as the BIDS sidecar (JSON) of the image at ``path``; replace an old one."""
    text = json.dumps(entries, indent=2, sort_keys=True) + "\n"
    write_atomic(sidecar_path(path), text.encode())


def positive(sidecar: JsonObject, key: str, path: Path) -> float | None:
    """Return a positive number of an image's sidecar; None where the sidecar has no entry ``key``.

    Parameters
    ----------
    sidecar : dict
        Content of the sidecar.
    key : str
        Name of the entry.
    path : Path
        The image, for the error message.

    Raises
    ------
    CadError
        When the entry is not a positive number.
    """
    value = stated_number(sidecar, key, path)
    if value is not None and not value > 0:
        raise CadError(f"{key} must be a positive number, found {value}", file=sidecar_path(path))
    return value


def stated_number(sidecar: JsonObject, key: str, path: Path) -> float | None:
    """Return a finite number of an image's sidecar; None where the sidecar has no entry ``key``.

    Parameters
    ----------
    sidecar : dict
        Content of the sidecar.
    key : str
        Name of the entry.
    path : Path
        The image, for the error message.

    Raises
    ------
    CadError
        When the entry is not a finite number.
    """
    value = sidecar.get(key)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number:
        shown = reprlib.repr(value)  # shortened, because a damaged file may hold anything
        raise CadError(f"{key} must be a number, found {shown}", file=sidecar_path(path))
    # The condition is written with "not", so that NaN is refused as well.
    if not abs(value) <= _LARGEST:
        raise CadError(
            f"{key} must be a number, found one beyond {_LARGEST:g}", file=sidecar_path(path)
        )
    return float(value)


@door("in", "NIfTI", limit=MAX_IMAGE)
def _load_voxels(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return voxels, shape (x, y, z[, t]), and the 4 x 4 matrix from voxel indices to LPS mm."""
    if not path.is_file():
        raise CadError("no such image file", file=path)
    with reading(path, "not a readable NIfTI file", "copy or export it again"):
        header = _nifti_header(path)
        stored_type = header.get_data_dtype()
        if stored_type.kind not in "iuf":  # integers with and without sign, and floats
            raise CadError(f"expected voxels that are numbers, found {stored_type}")
        shape = header.get_data_shape()
        slope, intercept = header.get_slope_inter()
        is_scaled = slope is not None and (slope, intercept) != (1.0, 0.0)
        n_voxels = math.prod(shape)
        # Scaled values become float64. The size is checked before memory is taken for it.
        bytes_of_value = np.dtype(np.float64).itemsize if is_scaled else stored_type.itemsize
        check_inflation(path.stat().st_size, n_voxels * bytes_of_value, MAX_IMAGE, "voxels")
        begin = header.get_data_offset()
        end = begin + n_voxels * stored_type.itemsize
        # More bytes are read than the voxels have, so that the library reaches the checksum of the
        # file and compares it.
        with _open_unpacked(path) as stream:
            content = stream.read(end + MIB)
        _check_behind(content, end)
        array = np.ndarray(shape, stored_type, content, begin, order="F")
        if is_scaled:
            array = array * np.float64(slope) + np.float64(intercept)
        return array, _stated_affine(header)


def _stated_affine(header: Any) -> np.ndarray:
    """Return the 4 x 4 matrix from voxel indices to LPS mm of nibabel's header.

    Call the function inside :func:`reading`, which names the file in an error.

    If a file states its place twice, by sform and by qform, some programs take one and some the
    other. Both must therefore state the same place.
    """
    sform_code = int(header["sform_code"])
    qform_code = int(header["qform_code"])
    if not (sform_code or qform_code):
        raise CadError(
            "the file does not say where it lies in the patient (sform_code = qform_code = 0)",
            hint="convert it again with a tool that keeps the geometry",
        )
    unit = int(header["xyzt_units"]) & 7  # the lowest three bits; the others are the unit of time
    if unit not in _LENGTH_UNITS:
        raise CadError(
            f"xyzt_units has the unit of length {unit}, which the format does not define (1 metre, "
            "2 millimetre, 3 micrometre)",
            hint="convert it again with a tool that keeps the geometry",
        )
    length_unit, _ = header.get_xyzt_units()
    mm = _MM_PER_UNIT[length_unit]
    to_lps_mm = np.diag([mm, mm, mm, 1.0]) @ RAS_TO_LPS
    affine = np.asarray(to_lps_mm @ header.get_best_affine())  # the sform, if the file has one
    if sform_code and qform_code:
        with reading("", "the qform is no place", "if the sform is right, set qform_code to 0"):
            affine_of_qform = to_lps_mm @ header.get_qform()
        # The places are compared at the eight corners. A file of fewer than three axes has one
        # voxel along the others.
        lengths = (*header.get_data_shape(), 1, 1)[:3]
        last_voxel = np.array(lengths) - 1.0
        corners = np.ones((8, 4))
        corners[:, :3] = CORNERS * last_voxel
        gap_mm = float(np.abs((affine - affine_of_qform) @ corners.T).max())
        # The condition is written with "not", so that a distance of NaN is refused as well.
        if not gap_mm <= _FORM_TOLERANCE_MM:
            raise CadError(
                f"the file lies in two places, up to {gap_mm:.4g} mm apart: the middle of the "
                f"image is at {_middle_text(affine, last_voxel)} by sform (code {sform_code}) and "
                f"at {_middle_text(affine_of_qform, last_voxel)} by qform (code {qform_code}); up "
                f"to {_FORM_TOLERANCE_MM:g} mm may be rounding",
                hint="set the code of the wrong one to 0, or convert the image again",
            )
    return affine


def _middle_text(affine: np.ndarray, last_voxel: np.ndarray) -> str:
    """Return the middle of an image for a message, LPS mm."""
    x, y, z = affine[:3, :3] @ (last_voxel / 2) + affine[:3, 3]
    return f"({x:.4g}, {y:.4g}, {z:.4g}) mm"


def _check_behind(content: bytes, end: int) -> None:
    """Raise an error if anything but zeros follows the voxels that the header states.

    ``end`` is where the voxels end. At most a mebibyte behind them was read: if all of it is there,
    more bytes may follow.
    """
    behind = content[end:]
    if len(behind) >= MIB or behind.count(0) != len(behind):
        raise CadError(f"the header states voxels up to byte {end:,}, and others follow them")


@door("in", "NIfTI", limit=MAX_IMAGE)
def _open_unpacked(path: Path) -> Any:
    # Files packed by gzip are unpacked by ISA-L, which takes half the time of Arrow.
    unpacked: Callable[[Path], Any] = igzip.open if path.suffix == ".gz" else pa.input_stream
    return unpacked(path)


def _nifti_header(path: Path) -> Any:
    """Return nibabel's header of a NIfTI file whose voxels begin near its start.

    nibabel gets only the bytes of the header. Extensions after the header are not read, because
    each states its own size, which may be wrong.
    """
    import nibabel

    with _open_unpacked(path) as stream:
        start = stream.read(_LONGEST_HEADER)
    # A header begins with its own length. It is read with the least significant byte first and
    # last; only one of the two gives a length of NIfTI.
    for byte_order in "<>":
        (stated_length,) = struct.unpack_from(f"{byte_order}i", start)
        for length, (class_name, offset_place, offset_type) in _NIFTI.items():
            if stated_length == length:
                (voxels_begin,) = struct.unpack_from(byte_order + offset_type, start, offset_place)
                # Four bytes on extensions follow the header, so that the voxels cannot begin
                # earlier.
                if not length + 4 <= voxels_begin <= _LAST_START:
                    raise CadError(
                        f"the voxels begin at byte {voxels_begin:g}, where the header has "
                        f"{length + 4}"
                    )
                magic_place, magic = _MAGIC[length]
                if start[magic_place : magic_place + len(magic)] != magic:
                    raise CadError("not a NIfTI file that holds its own voxels")
                return getattr(nibabel, class_name)(start[:length], byte_order)
    raise CadError("expected NIfTI")


def _settled(stored: Volume) -> Volume:
    """Return a volume with its axes in the order of :meth:`Volume.upright`, and a rounded place.

    Two files of one image that store its axes in different orders state its place with slightly
    different numbers. The middle of the image is rounded, so that both files give the same place.
    """
    volume = stored.upright()
    middle = volume.centre
    rounded_middle = np.round(middle, _PLACES)
    new_origin = np.array(volume.origin) + rounded_middle - middle
    return replace(volume, origin=triple(new_origin))


def _checked_volume(array: np.ndarray, affine: np.ndarray, path: Path) -> Volume:
    """Return an array (z, y, x) as a volume; ``affine`` maps voxel indices (x, y, z) to LPS mm."""
    if 0 in array.shape:
        raise CadError(f"the image has no voxels: shape {array.shape}", file=path)
    spacing = np.linalg.norm(affine[:3, :3], axis=0)
    if not (np.isfinite(affine).all() and (spacing > 0).all()):
        raise CadError(f"impossible geometry: voxel size {spacing} mm", file=path)
    with located(file=path):
        return Volume(
            array=array,
            spacing=triple(spacing),
            origin=triple(affine[:3, 3]),
            direction=affine[:3, :3] / spacing,
        )


def _save(path: Path, array_xyz: np.ndarray, grid: Volume) -> None:
    """Write an array (x, y, z[, t]) as NIfTI-1 in the place of ``grid``; replace an old file."""
    import nibabel

    image = nibabel.Nifti1Image(_storable(array_xyz), RAS_TO_LPS @ grid.affine)
    image.set_sform(image.affine, code=_SCANNER)
    image.set_qform(image.affine, code=_SCANNER)
    image.header.set_xyzt_units("mm", "sec")
    # A qform can store only a pure rotation, so that axes that are not quite at right angles
    # change. It is left out if it would move a corner of the image by more than the tolerance.
    far_corner = np.array([*image.shape[:3], 1.0])
    gap_mm = np.abs((image.get_qform() - image.affine) @ far_corner).max()
    if gap_mm > GEOMETRY_TOLERANCE_MM:
        image.set_qform(None, code=0)
    content = image.to_bytes()
    if path.name.endswith(".gz"):
        # Without the time of writing, equal images give equal bytes.
        content = igzip.compress(content, COMPRESSION, mtime=0)
    write_atomic(path, content)


def _storable(array: np.ndarray) -> np.ndarray:
    """Return an array in a type that NIfTI has and other programs read, without loss."""
    if array.dtype == bool:
        return array.astype(np.uint8)
    if array.dtype == np.float16:
        return array.astype(np.float32)
    if array.dtype in (np.int64, np.uint64):
        low = int(array.min()) if array.size else 0
        high = int(array.max()) if array.size else 0
        if low < -(2**31) or high >= 2**31:
            raise CadError(f"integer values {low} to {high} do not fit a 32-bit image")
        return array.astype(np.int32)
    return array


def write_gradients(path: Path, b_value: float) -> None:
    """Write ``.bval`` and ``.bvec``, which BIDS asks for beside a diffusion image of one b-value.

    The image is taken as a trace image, which has no gradient direction: ``.bvec`` gets 0 0 0, as
    converters write it.

    Parameters
    ----------
    path : Path
        The image, ``.nii.gz``.
    b_value : float
        s/mm2.
    """
    stem = path.name.removesuffix(".nii.gz")
    write_atomic(path.with_name(f"{stem}.bval"), f"{b_value:g}\n".encode())
    write_atomic(path.with_name(f"{stem}.bvec"), b"0\n0\n0\n")
