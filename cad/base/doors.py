"""The doors in the wall: every function that reads bytes of others, or writes where a user says.

A function that calls a parser, opens a file or puts one into place declares itself here, once; the
build fails where one does so and is not declared (``tests/layers/test_doors.py``), and where a door
through which strangers' bytes come has no case in the fuzz matrix, which is made of this table.
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
"""Kinds of strangers' bytes; each can be damaged in ways of its own."""


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
"""Every door of the modules that are loaded, by the function's full name."""


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
