"""Register every function that reads foreign bytes, or writes where a user says.

Such a function is a door. A function that calls a parser, opens a file or moves one into place
declares itself by :func:`door`. A test (``tests/layers/test_doors.py``) fails if one does not. The
fuzz tests are made from this table; a test also fails if a door for foreign bytes has no fuzz case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

Function = TypeVar("Function", bound=Callable[..., object])

Way = Literal["in", "out", "own"]
FORMS = (
    "text",
    "JSON",
    "YAML",
    "table",
    "npy",
    "npz",
    "parquet",
    "workbook",
    "NIfTI",
    "MetaImage",
    "DICOM",
    "zip",
    "tar",
    "SQLite",
    "lines",
    "any",
)
"""Kinds of foreign bytes; each can be damaged in its own ways."""


@dataclass(frozen=True)
class Door:
    """Describe a function that reads bytes of others, or writes a path.

    Parameters
    ----------
    name : str
        Full name of the function.
    way : "in", "out" or "own"
        "in" reads bytes of others; "out" writes; "own" reads or writes what only this program and
        the system make: its state, its process, the package's own tables.
    form : str
        One of :data:`FORMS`; of "own" and "out" any word.
    bound : str
        Its bound: the limit that is checked before anything is read, or the child process
        whose limits hold.
    owner : str
        Of "out": whose file may be replaced.
    """

    name: str
    way: Way
    form: str
    bound: str = ""
    owner: str = ""


DOORS: dict[str, Door] = {}
"""All doors of the loaded modules, by the full name of the function."""


def door(
    way: Way, form: str, *, bound: str = "", owner: str = ""
) -> Callable[[Function], Function]:
    """Declare the function that follows as a door; the function itself stays as it is.

    Parameters
    ----------
    way, form, bound, owner : str
        As in :class:`Door`.

    Raises
    ------
    ValueError
        For a door "in" of no known form or without a bound, and one "out" without an owner's rule.

    Examples
    --------
    >>> @door("in", "JSON", bound="MAX_JSON")
    ... def read_settings_of(path): ...
    >>> DOORS.pop(f"{__name__}.read_settings_of").form
    'JSON'
    """
    if way == "in" and (form not in FORMS or not bound):
        raise ValueError(f"a door of strangers' bytes names one of {FORMS} and what bounds it")
    if way == "out" and not owner:
        raise ValueError("a door that writes names whose file it may replace")

    def declare(function: Function) -> Function:
        name = f"{function.__module__}.{function.__qualname__}"
        DOORS[name] = Door(name, way, form, bound, owner)
        return function

    return declare
