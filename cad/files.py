"""Write files that are whole or absent, as text, JSON or tables with the same bytes every time.

Text that came from elsewhere is made harmless here for what opens it next: :func:`plain` for a
terminal, :func:`harmless` for a spreadsheet, with :func:`as_given` to read it back unchanged.
"""

from __future__ import annotations

import errno
import json
import os
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas as pd

PART_SUFFIX = ".part"
JsonObject = dict[str, Any]
"""Content of a JSON file, or what becomes one: where types end."""
Made = TypeVar("Made")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters, line separators, and what turns the direction of writing around."""
# A cell that a spreadsheet takes as a formula, also behind blanks; numbers are none.
_FORMULA = re.compile(r"'*(?:[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")


def write_atomic(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    The content goes to a temporary file in the same folder, is flushed to the disk and renamed, and
    the names are flushed too: on return the file outlasts a power cut. A failure (full disk,
    refused permission) leaves the previous file as it was.

    Parameters
    ----------
    path : Path
        The file; its folder is made when absent.
    content : bytes
        Everything that the file shall hold.
    mode : int
        Who may do what with it, before the user's mask.
    """
    make_folder(path.parent)
    name = path.with_name(f".{os.urandom(4).hex()}{PART_SUFFIX}")
    # The system applies the user's mask; setting the mask to read it would be every thread's.
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise
    flush_names(path.parent)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and those above it; their names outlast a power cut.

    Parameters
    ----------
    folder : Path
        May exist.
    mode : int
        Permissions, before the user's mask.
    """
    new = []
    while not folder.is_dir():
        new.append(folder)
        folder = folder.parent
    for one in reversed(new):
        one.mkdir(mode, exist_ok=True)
        flush_names(one.parent)


_LOST = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
"""Of a flush: what was written is not on the disk; other errors say that nothing can be flushed."""


def flush(path: Path) -> None:
    """Bring what a file or folder holds to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_names(folder: Path) -> None:
    """Bring the names of a folder's entries to the disk, where the file system can.

    Parameters
    ----------
    folder : Path
        Its new or renamed files would else be lost in a power cut.

    Raises
    ------
    OSError
        Where the disk did not take them.
    """
    try:
        flush(folder)
    except OSError as error:
        if error.errno in _LOST:
            raise


def json_safe(value: Any) -> Any:
    """Return the value as JSON can hold it: arrays as lists, what is not finite as None."""
    import numpy as np

    if is_dataclass(value) and not isinstance(value, type):
        return json_safe(asdict(value))
    if isinstance(value, dict):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [json_safe(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def typed(kind: type[Made], content: JsonObject) -> Made:
    """Return the dataclass that :func:`json_safe` wrote: None is NaN where a number is due.

    Raises
    ------
    TypeError
        When the content lacks a field that has no default.
    """
    made: Made = _typed(kind, content)
    return made


def _typed(kind: Any, content: Any) -> Any:
    import numpy as np

    parts = typing.get_args(kind)
    if kind is float:
        return np.nan if content is None else content
    if kind is np.ndarray:
        return np.array(content, dtype=float)
    if typing.get_origin(kind) in (typing.Union, UnionType):
        return None if content is None else _typed(parts[0], content)
    if typing.get_origin(kind) is list:
        return [_typed(parts[0], item) for item in content]
    if typing.get_origin(kind) is tuple:
        return tuple(_typed(parts[0], item) for item in content)
    if typing.get_origin(kind) is dict:
        return {key: _typed(parts[1], item) for key, item in content.items()}
    fields = _types(kind)
    if fields:
        # A TypedDict is called as a dataclass is.
        return kind(**{k: _typed(fields[k], v) for k, v in content.items() if k in fields})
    return content


@cache
def _types(kind: Any) -> dict[str, Any]:
    """Return the type of every field of a dataclass or TypedDict; of anything else nothing."""
    return typing.get_type_hints(kind) if is_dataclass(kind) or typing.is_typeddict(kind) else {}


def write_json(path: Path, content: Any) -> None:
    """Write a value as JSON, whole or not at all; NaN and infinity become null.

    Parameters
    ----------
    path : Path
        The file.
    content : object
        As :func:`json_safe` takes it.
    """
    text = json.dumps(json_safe(content), indent=1, sort_keys=True, allow_nan=False)
    write_atomic(path, text.encode() + b"\n")


def parquet_bytes(table: pd.DataFrame) -> bytes:
    """Return a table as parquet; byte-identical for the same content."""
    stream = BytesIO()
    table.to_parquet(stream, index=False)
    return stream.getvalue()


def harmless(cell: Any) -> Any:
    """Return a table's cell as no spreadsheet carries it out: with an apostrophe before a formula.

    ``=``, ``+``, ``-`` and ``@`` begin one, also behind blanks or a tab; a number is left as it is.

    Parameters
    ----------
    cell : object
        Only text is changed; :func:`as_given` undoes it.
    """
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def as_given(cell: Any) -> Any:
    """Return a cell as it was before :func:`harmless` put an apostrophe before it."""
    return cell[1:] if isinstance(cell, str) and cell[:1] == "'" and _FORMULA.match(cell) else cell


def each_cell(table: pd.DataFrame, change: Callable[[Any], Any]) -> pd.DataFrame:
    """Return a table with a function applied to every cell that is no number.

    Parameters
    ----------
    table : DataFrame
        Stays as it is.
    change : callable
        Takes a cell; columns in which it changes nothing stay the same objects.
    """
    import pandas as pd

    changed = {}
    for name in table.columns:
        column = table[name]
        if column.dtype.kind not in "biufc":  # numbers are no text
            cells = [change(cell) for cell in column]
            if any(new is not old for new, old in zip(cells, column, strict=True)):
                changed[name] = pd.Series(cells, column.index, column.dtype)
    return table.assign(**changed)


def plain(text: str) -> str:
    """Return text that is safe on a terminal: control characters but tab and line are spelt out.

    Parameters
    ----------
    text : str
        Of a user, a file or an archive.
    """
    return CONTROL.sub(
        lambda found: found[0] if found[0] in "\n\t" else ascii(found[0])[1:-1], text
    )


def _plain_cell(cell: Any) -> Any:
    return plain(cell) if isinstance(cell, str) and CONTROL.search(cell) else cell


def write_csv(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> None:
    """Write a table as CSV, whole or not at all, with exactly these columns.

    Floats read back to the same bits. Cells of text are made :func:`plain` and :func:`harmless`;
    the readers of :mod:`cad.reading` undo the latter.

    Parameters
    ----------
    path : Path
        The file.
    table : DataFrame
        A column that it lacks is written empty.
    columns : sequence of str
        In the order to write.
    """
    own = each_cell(each_cell(table.reindex(columns=list(columns)), _plain_cell), harmless)
    write_atomic(path, own.to_csv(index=False, lineterminator="\n").encode())
