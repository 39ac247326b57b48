"""Read from the entries of a MetaImage or NRRD header where an image lies in the patient.

SimpleITK replaces entries that it does not understand by steps of 1 mm, its own axes and an origin
of 0, and ignores the unit of length. Here an entry is read as it is meant, or the header is
refused.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from cad.base.errors import CadError, located
from cad.mri.imaging.volume import LARGEST_MM, Volume, triple

_HINT = "convert it to NIfTI, NRRD or MetaImage with a tool that keeps the geometry"
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_VECTOR = rf"\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)"
# Signs that turn x, y and z of an NRRD space to left, back and head of the patient (LPS). Spaces
# with other names have no relation to the patient.
_SPACES = {
    "left-posterior-superior": (1.0, 1.0, 1.0),
    "right-anterior-superior": (-1.0, -1.0, 1.0),
    "left-anterior-superior": (1.0, -1.0, 1.0),
}
# The keys under which a MetaImage header may state each entry. The library that reads the image
# takes any of them.
_META_ENTRIES = {
    "ElementSpacing": ("ElementSpacing",),
    "Offset": ("Offset", "Position", "Origin", "ImagePosition"),
    "TransformMatrix": ("TransformMatrix", "Orientation", "Rotation"),
}
# For each letter of the entry AnatomicalOrientation: the number of the patient's axis, and the
# sense along it, 1 to the left, back or head.
_LETTERS = {"L": (0, 1), "R": (0, -1), "P": (1, 1), "A": (1, -1), "S": (2, 1), "I": (2, -1)}


def nrrd_grid(path: Path, entries: dict[str, str], lengths: tuple[int, int, int]) -> Volume:
    """Return the grid that an NRRD header states, in LPS mm; its values are zeros.

    Parameters
    ----------
    path : Path
        The file, for error messages.
    entries : dict of str to str
        Values by field, names without spaces.
    lengths : tuple of int
        Voxels along x, y and z.

    Raises
    ------
    CadError
        Naming the field, its value and what is read: where the space is not the patient's, the unit
        is not mm, or the origin or a step is missing or no finite number.
    """
    needed = ("space", "space directions", "space origin")
    lacking = [name for name in needed if name.replace(" ", "") not in entries]
    if lacking:
        raise _unplaced(path, f"no {', '.join(lacking)}")
    signs = _space_signs(entries["space"])
    if signs is None:
        raise _unplaced(
            path, f"space = {entries['space'][:40]!r}, read is {', '.join(_SPACES)}, LPS, RAS, LAS"
        )
    units = entries.get("spaceunits", "")
    if units and not re.fullmatch(r'("(mm)?"\s*){3}', units):
        raise _unplaced(path, f'space units = {units[:40]!r}, read is "mm" for each axis')
    kinds = entries.get("kinds", "domain").lower().split()
    if not {*kinds} <= {"domain", "space", "none", "???"}:
        raise _unplaced(path, f"kinds = {entries['kinds'][:40]!r}, read are three axes of space")
    # The place could be stated a second time in these fields. They may only be without a value.
    no_values = r'((nan|"")\s*)*'
    for name in ("spacings", "axis mins", "axis maxs", "units", "space dimension"):
        value = entries.get(name.replace(" ", ""), "")
        if not re.fullmatch(no_values, value.lower()):
            raise _unplaced(
                path,
                f"{name} = {value[:40]!r} beside space directions, which alone state the steps",
            )
    steps = _entry_numbers(path, entries, "space directions", rf"(?:{_VECTOR}\s*){{3}}")
    origin = _entry_numbers(path, entries, "space origin", _VECTOR)
    # The header has the step along each axis of the image as a vector; here it becomes a column.
    matrix = steps.reshape(3, 3).T * np.array(signs)[:, None]
    return _grid_of_axes(path, lengths, matrix, origin * signs)


def meta_grid(path: Path, entries: dict[str, str], lengths: tuple[int, int, int]) -> Volume:
    """Return the grid that a MetaImage header states, in LPS mm; its values are zeros.

    Parameters
    ----------
    path : Path
        The file, for error messages.
    entries : dict of str to str
        Values by key.
    lengths : tuple of int
        Voxels along x, y and z.

    Raises
    ------
    CadError
        Naming the key, its value and what is read: where steps, origin or axes are missing or no
        finite numbers, stand under two names with two values, or contradict another entry, and
        where the unit is not mm.
    """
    lacking = []
    for name, keys in _META_ENTRIES.items():
        if not any(key in entries for key in keys):
            lacking.append(name)
    if lacking:
        raise _unplaced(path, f"no {', '.join(lacking)}")
    unit = entries.get("DistanceUnits", "mm")
    if unit != "mm":
        raise _unplaced(path, f"DistanceUnits = {unit[:40]!r}, read is mm")
    spacing = _meta_numbers(path, entries, "ElementSpacing", 3)
    origin = _meta_numbers(path, entries, "Offset", 3)
    # The header has the axes of the image one after another; here each becomes a column.
    axes = _meta_numbers(path, entries, "TransformMatrix", 9).reshape(3, 3).T
    # A negative step between voxels would turn its axis round, and a step of 0 has no direction.
    if not (spacing > 0).all():
        raise _unplaced(
            path, f"ElementSpacing = {entries['ElementSpacing'][:40]!r}, read are steps above 0"
        )
    # Only some programs rotate the image about this point, so that it may only be 0.
    centre = entries.get("CenterOfRotation", "0 0 0")
    centre_numbers = _entry_numbers(
        path, {"CenterOfRotation": centre}, "CenterOfRotation", _pattern_of_numbers(3)
    )
    if np.any(centre_numbers != 0):
        raise _unplaced(path, f"CenterOfRotation = {centre[:40]!r}, read is 0 0 0")
    _check_letters(path, entries.get("AnatomicalOrientation", "???"), axes)
    return _grid_of_axes(path, lengths, axes * spacing, origin)


def unplaced_kind(path: Path) -> CadError:
    """Return the error for an image file of a kind that never states its place.

    Parameters
    ----------
    path : Path
        The file.
    """
    return _unplaced(path, f"its kind is {path.suffix or 'not named'}")


def _unplaced(path: Path, reason: str) -> CadError:
    return CadError(
        f"the file does not say in mm where it lies in the patient: {reason}",
        file=path,
        hint=_HINT,
    )


def _space_signs(space: str) -> tuple[float, float, float] | None:
    """Return the signs that turn a space of NRRD to LPS; None for a space that is not known.

    A space may be written in several spellings, such as ``right-anterior-superior`` or ``RAS``.
    """
    spelling = space.lower()
    for name, signs in _SPACES.items():
        letters = "".join(word[0] for word in name.split("-"))
        if spelling in (name, name.replace("-", " "), name.replace("-", ""), letters):
            return signs
    return None


def _pattern_of_numbers(count: int) -> str:
    """Return the regular expression for ``count`` numbers with spaces between them."""
    return rf"{_NUMBER}(?:\s+{_NUMBER}){{{count - 1}}}"


def _meta_numbers(path: Path, entries: dict[str, str], name: str, count: int) -> np.ndarray:
    """Return the numbers of the MetaImage entry ``name``, which may stand under several keys.

    An error is raised if the header has two of these keys with different numbers.
    """
    keys = [key for key in _META_ENTRIES[name] if key in entries]
    values = [_entry_numbers(path, entries, key, _pattern_of_numbers(count)) for key in keys]
    for key, numbers in zip(keys, values, strict=True):
        # Programs differ in the key that they read. With two values, the image would lie in two
        # places.
        if not np.array_equal(numbers, values[0]):
            raise CadError(
                f"the header states {keys[0]} = {entries[keys[0]]} and {key} = {entries[key]}: "
                "two names of one entry, with two values",
                file=path,
                hint="keep the entry that is right, or convert the image from its source again",
            )
    return values[0]


def _entry_numbers(path: Path, entries: dict[str, str], name: str, pattern: str) -> np.ndarray:
    """Return the numbers of an entry whose text must have a given pattern."""
    text = entries[name.replace(" ", "")]
    if not re.fullmatch(pattern, text, re.ASCII):
        raise _unplaced(
            path, f"{name} = {text[:60]!r}, read are decimal numbers, one for each axis"
        )
    numbers = np.array([float(number) for number in re.findall(_NUMBER, text, re.ASCII)])
    if np.abs(numbers).max() > LARGEST_MM:
        raise _unplaced(path, f"{name} = {text[:60]!r}, read are numbers up to {LARGEST_MM:g}")
    return numbers


def _check_letters(path: Path, letters: str, axes: np.ndarray) -> None:
    """Refuse letters for the directions of a MetaImage's axes that contradict the matrix of its
    axes.

    Each axis has a letter. ITK writes the letter of the side from which the axis comes. By the
    reference of MetaImage it is the letter of the side to which the axis goes. RAI and LPS may
    therefore both stand for axes that go to the left, back and head.
    """
    if letters == "???":  # MetaImage's text for directions that are not stated
        return
    agrees = False
    if re.fullmatch("[LRPASI]{3}", letters):
        # How far each axis goes to the side of its letter; below 0, it comes from there.
        cosines = np.empty(3)
        for column, letter in enumerate(letters):
            patient_axis, sense = _LETTERS[letter]
            cosines[column] = axes[patient_axis, column] * sense
        # All letters must follow one of the two customs.
        agrees = bool((cosines > 0).all() or (cosines < 0).all())
    if not agrees:
        raise _unplaced(
            path,
            f"AnatomicalOrientation = {letters[:40]!r} contradicts TransformMatrix, or is no three "
            "of the letters R, L, A, P, I, S",
        )


def _grid_of_axes(
    path: Path, lengths: tuple[int, int, int], matrix: np.ndarray, origin: np.ndarray
) -> Volume:
    """Return a grid from the steps of its axes (columns of ``matrix``) and its first voxel (mm)."""
    with located(file=path):
        spacing = np.linalg.norm(matrix, axis=0)
        # Volume refuses a step of 0, which must not be divided by before.
        direction = matrix / np.where(spacing > 0, spacing, 1.0)
        return Volume(
            array=np.broadcast_to(np.uint8(0), lengths[::-1]),  # needs no memory
            spacing=triple(spacing),
            origin=triple(origin),
            direction=direction,
        )
