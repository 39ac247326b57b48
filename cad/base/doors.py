"""Register every function that reads bytes from outside, or writes to a path that a user names.

Such a function is called a door. A function that calls a parser, opens a file or moves a file into
place declares itself by the decorator :func:`door`, which adds it to the table :data:`DOORS`. The
test ``tests/layers/test_doors.py`` fails if such a function is not declared. The fuzz tests feed
damaged bytes to the doors of this table that read bytes from outside. A test also fails if one of
these doors has no fuzz case.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from cad.base.errors import CadError
from cad.base.regular import check_file, size_text

Function = TypeVar("Function", bound=Callable[..., object])

Way = Literal["in", "out", "own", "port"]
FORMS = (
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
    "any",
)
"""Kinds of content from outside. Each kind can be damaged in its own ways."""


@dataclass(frozen=True)
class Door:
    """Describe a function that reads bytes from outside, or writes a path.

    Parameters
    ----------
    name : str
        Full name of the function.
    way : "in", "out", "own" or "port"
        A door "in" reads bytes from outside, and a door "out" writes. A door "own" reads or writes
        only what this program and the system make: its state, its process, the package's tables. So
        are declared, too, the readers of published data sets, which only ``cad experiment`` reads.
        A door "port" listens for connections of other programs.
    form : str
        Kind of content: one of :data:`FORMS` for a door "in", any word for "own" and "out".
    bound : str
        Words for the limits that the function checks itself, or for the child process whose limits
        hold.
    owner : str
        For a door "out": words that say which file or folder may be replaced.
    limit : int
        Largest number of bytes that the function accepts; 0 where only ``bound`` holds.
    """

    name: str
    way: Way
    form: str
    bound: str = ""
    owner: str = ""
    limit: int = 0


DOORS: dict[str, Door] = {}
"""All doors of the loaded modules, by the full name of the function."""


def door(
    way: Way, form: str, *, bound: str = "", owner: str = "", limit: int = 0
) -> Callable[[Function], Function]:
    """Return a decorator that declares a function as a door and checks the size of its input.

    For a door "in", every text and all bytes among the arguments, and the first path, are checked
    before the function is called. A path that is not a regular file is refused, and content above
    the limit is refused. The decorator :func:`cad.base.processes.limited.door_in_child` declares a
    function that runs in a child process.

    Parameters
    ----------
    way : "in", "out", "own" or "port"
        Whether the function reads bytes from outside, writes, handles only what this program and
        the system make, or listens for connections.
    form : str
        Kind of content: one of :data:`FORMS` for a door "in", any word for "own" and "out".
    bound : str
        Words for the limits that the function checks itself, or for the child process whose limits
        hold.
    owner : str
        For a door "out": words that say which file or folder may be replaced.
    limit : int
        Largest number of bytes that the function accepts; 0 where only ``bound`` holds.

    Raises
    ------
    ValueError
        For a door "in" of an unknown form, for a door "in" that has neither ``limit`` nor
        ``bound``, for a door "port" without ``bound``, and for a door "out" without ``owner``.

    Examples
    --------
    >>> @door("in", "JSON", limit=4)
    ... def parse_settings_of(content):
    ...     return content
    >>> DOORS.pop(f"{__name__}.parse_settings_of").form
    'JSON'
    >>> parse_settings_of(b"[1]")
    b'[1]'
    >>> parse_settings_of(b"[1,2]")
    Traceback (most recent call last):
    ...
    cad.base.errors.CadError: 5 bytes, at most 4 bytes are read
    """
    if way == "in" and (form not in FORMS or not (bound or limit)):
        raise ValueError(f"a door of strangers' bytes names one of {FORMS} and what bounds it")
    if way == "port" and not bound:
        raise ValueError("a door that listens on a port says what bounds its callers")
    if way == "out" and not owner:
        raise ValueError("a door that writes names whose file it may replace")

    def declare(function: Function) -> Function:
        """Enter the function in the table; return it, for a door "in" with a check before it."""
        name = f"{function.__module__}.{function.__qualname__}"
        DOORS[name] = Door(name=name, way=way, form=form, bound=bound, owner=owner, limit=limit)
        # Only a door "in" has bytes from outside among its arguments.
        if way != "in":
            return function

        @wraps(function)
        def checked(*arguments: Any, **options: Any) -> object:
            _check_size((*arguments, *options.values()), limit)
            return function(*arguments, **options)

        return cast(Function, checked)

    return declare


def _check_size(arguments: tuple[Any, ...], limit: int) -> None:
    """Check every text and all bytes among the arguments, and the first path.

    A path that is no regular file raises an error, and so does content above the limit. A missing
    path passes, because the function itself reports a missing file. A second path is a place to
    write to, or a name for messages.
    """
    most = limit or sys.maxsize  # 0 means that the function checks its limits itself
    paths = [argument for argument in arguments if isinstance(argument, Path)]
    for argument in arguments:
        if isinstance(argument, bytes | str) and len(argument) > most:
            raise CadError(f"{size_text(len(argument))}, at most {size_text(most)} are read")
    if paths and paths[0].exists():
        check_file(paths[0], most)
