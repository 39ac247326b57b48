"""Write files that are whole or absent; the same content always gives the same bytes.

Text from users or files can contain control characters or formulas. :func:`plain` makes such text
safe for a terminal, and :func:`harmless` for a spreadsheet. :func:`as_given` undoes
:func:`harmless`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import typing
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar

from cad.base.doors import door
from cad.base.errors import CadError

if TYPE_CHECKING:
    import pandas as pd

PART_SUFFIX = ".part"
_WRITTEN = "user.prostate-cad.sha256"
JsonObject = dict[str, Any]
"""Content of a JSON file; its values have no declared types."""
Made = TypeVar("Made")
# Kinds of single values, and the words for them in an error.
_WORDS_OF_KINDS: dict[type, str] = {int: "a whole number", bool: "true or false", str: "a text"}
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
"""Control characters, line separators, and characters that reverse the direction of writing."""
# Matches a cell that a spreadsheet takes as a formula, even after blanks and invisible characters;
# numbers are excluded.
_FORMULA = re.compile(
    r"'*(?:[\t\r\n]|[\s\u00ad\u061c\u200b-\u200f\u2060\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20])"
)
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")


@door("out", "whole file", owner="the caller's folder, owned or new")
def write_atomic(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file so that other processes see its old or its new content, never a part.

    The content goes to a temporary file in the same folder, which is flushed to the disk and
    renamed. Then the folder is flushed, too. When the function returns, a power cut no longer loses
    the file. A failure (full disk, refused permission) leaves the previous file as it was.

    Parameters
    ----------
    path : Path
        The file; its folder is made when absent.
    content : bytes
        The whole new content.
    mode : int
        Permission bits of the file, before the user's umask.
    """
    make_folder(path.parent)
    temporary = path.with_name(f".{os.urandom(4).hex()}{PART_SUFFIX}")
    # The system itself applies the user's mask of permissions (umask) to ``mode``. This process
    # could read the mask only by setting it for all threads.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:  # also at an interrupt, such as Ctrl-C
        temporary.unlink(missing_ok=True)
        raise
    flush_names(path.parent)


def write_own(path: Path, content: bytes, inputs: Sequence[Path], *, force: bool = False) -> None:
    """Write a single file where a user wants it, and replace no file of somebody else.

    A file that this program wrote here, and that nobody has changed since, has its hash in an
    extended attribute and is replaced. With ``force`` any other regular file is replaced, too.

    Parameters
    ----------
    path : Path
        The file to write.
    content : bytes
        The whole new content.
    inputs : sequence of Path
        Files and folders from which the content was made; none of them is ever replaced.
    force : bool
        Whether to replace a file of somebody else.

    Raises
    ------
    CadError
        For an input or a file in an input's folder, a link, a device, a pipe or a folder. Without
        ``force``, also for a file that this program did not write, or that was changed since.
    """
    exists = os.path.lexists(path)  # also for a link that leads nowhere
    if exists:
        _check_regular(path)
    check_apart(path, inputs)
    if exists and not force:
        _check_unchanged(path)
    write_atomic(path, content)
    # A file system without extended attributes cannot keep the hash. Then `force` is needed
    # whenever a file is to be replaced; no file is lost there.
    with suppress(OSError, AttributeError):
        os.setxattr(path, _WRITTEN, hashlib.sha256(content).hexdigest().encode())


def check_apart(path: Path, inputs: Sequence[Path]) -> None:
    """Refuse to write a file that is an input or would lie in one, such as in a model's folder.

    Parameters
    ----------
    path : Path
        The file to write.
    inputs : sequence of Path
        Files and folders that are read; a path that does not exist is ignored.

    Raises
    ------
    CadError
        Naming the file to write.
    """
    # The file itself, and every folder that it would lie in.
    places = [place for place in (path, *path.absolute().parents) if place.exists()]
    for source in inputs:
        if not source.exists():
            continue
        if any(source.samefile(place) for place in places):
            raise CadError(
                "the output is the input itself, or lies in it, which is never changed",
                file=path,
                hint="name a file elsewhere",
            )


def _check_regular(path: Path) -> None:
    """Raise an error for a link, a device, a pipe or a folder."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise CadError(
            "the output is a link: what it leads to is not replaced",
            file=path,
            hint="name the file itself, or another one",
        )
    if not stat.S_ISREG(status.st_mode):
        raise CadError(
            "the output is no regular file: it is not replaced", file=path, hint="name a new file"
        )


@door("own", "hash of our own output")
def _check_unchanged(path: Path) -> None:
    """Raise an error for a file that this program did not write, or that was changed since."""
    # Without the attribute, or where the system has no attributes, the file counts as changed.
    noted_hash = b""
    with suppress(OSError, AttributeError):
        noted_hash = os.getxattr(path, _WRITTEN)
    with path.open("rb") as stream:
        present_hash = hashlib.file_digest(stream, "sha256").hexdigest().encode()
    if noted_hash != present_hash:
        raise CadError(
            "the file is there, and this program did not write it or it was changed",
            file=path,
            hint="name another file, or give --force",
        )


def state_of(path: Path) -> tuple[int, int]:
    """Return a file's size in bytes and the time of its last change in ns.

    Only the lowest 63 bits of the time are returned, because a database stores no more.

    Parameters
    ----------
    path : Path
        The file.
    """
    status = path.stat()
    return status.st_size, status.st_mtime_ns % 2**63  # a database stores no more than 63 bits


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and its missing parents, and flush all of them, so that a power cut loses none.

    Parameters
    ----------
    folder : Path
        An existing folder is left as it is.
    mode : int
        Permission bits of each new folder, before the user's umask.
    """
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    # The outermost folder is made first. Another process may make the same folder meanwhile.
    for new_folder in reversed(missing):
        new_folder.mkdir(mode, exist_ok=True)
        flush_names(new_folder.parent)


_LOST = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
"""Errors of a flush which mean that data are not on the disk; other errors mean that the file
system cannot flush.
"""


@door("own", "entries of a folder")
def flush(path: Path) -> None:
    """Wait until the system has written a file, or the entries of a folder, to the disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_names(folder: Path) -> None:
    """Write a folder's entries to the disk, so that a power cut loses no new or renamed file.

    Nothing happens on a file system that cannot flush a folder.

    Parameters
    ----------
    folder : Path
        The folder; files inside it are not flushed.

    Raises
    ------
    OSError
        When the entries could not be written: input/output error, full disk or quota.
    """
    try:
        flush(folder)
    except OSError as error:
        if error.errno in _LOST:
            raise


def json_safe(value: Any) -> Any:
    """Return a copy of a value that JSON can hold.

    Dataclasses become dictionaries, tuples and arrays become lists, keys become text, and NaN and
    infinity become None.
    """
    import numpy as np

    # is_dataclass is also true for a class, which is no value.
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
    """Make a dataclass again from the dictionary that :func:`json_safe` made of it.

    Parameters
    ----------
    kind : type
        The dataclass.
    content : dict
        Its fields by name. None becomes NaN where the field is a number.

    Returns
    -------
    object
        An object of the class ``kind`` with the values of ``content``. Fields that are dataclasses
        themselves are objects again, and lists and dictionaries are filled in the same way.

    Raises
    ------
    TypeError
        When the content lacks a field that has no default, and for a value of another kind than its
        field; the message begins with the names of the fields that lead to it.
    """
    made: Made = _typed(kind, content)
    return made


def _typed(kind: Any, content: Any) -> Any:
    """Return a value from a JSON file as a value of the type ``kind`` (:func:`typed`)."""
    import numpy as np

    element_types = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if kind is float:
        if content is None:
            return np.nan
        return _of_kind(content, (int, float), "a number")
    if kind is np.ndarray:
        return np.array(content, dtype=float)
    # A union stands for "a type or None", in this order.
    if origin in (typing.Union, UnionType):
        return None if content is None else _typed(element_types[0], content)
    if origin is list:
        items = _of_kind(content, (list, tuple), "a list")
        return [_typed(element_types[0], item) for item in items]
    if origin is tuple:
        items = _of_kind(content, (list, tuple), "a list")
        return tuple(_typed(element_types[0], item) for item in items)
    if origin is dict:
        entries = _of_kind(content, (dict,), "an object")
        return {key: _typed(element_types[1], item) for key, item in entries.items()}
    if kind in _WORDS_OF_KINDS:
        return _of_kind(content, (kind,), _WORDS_OF_KINDS[kind])
    fields = _types(kind)
    if fields:
        entries = _of_kind(content, (dict,), f"an object with the fields of {kind.__name__}")
        values = {}
        for name, item in entries.items():
            if name not in fields:
                continue  # unknown fields, such as those of a later version, are left out
            try:
                values[name] = _typed(fields[name], item)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from error
        # A TypedDict is created in the same way as a dataclass.
        return kind(**values)
    return content


def _of_kind(content: Any, kinds: tuple[type, ...], expected: str) -> Any:
    """Return ``content`` if its type is one of ``kinds``, else raise a TypeError.

    True and False do not count as numbers. ``expected`` names the expected types in words.
    """
    # In Python True and False are whole numbers, too.
    unwanted_bool = isinstance(content, bool) and bool not in kinds
    if not isinstance(content, kinds) or unwanted_bool:
        raise TypeError(f"expected {expected}, found {content!r:.40}")
    return content


@cache
def _types(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a dataclass or TypedDict; empty for any other type."""
    has_fields = is_dataclass(kind) or typing.is_typeddict(kind)
    return typing.get_type_hints(kind) if has_fields else {}


def write_json(path: Path, content: Any) -> None:
    """Write a value as JSON, whole or not at all; NaN and infinity become null.

    Parameters
    ----------
    path : Path
        The file.
    content : object
        The value; :func:`json_safe` converts it first.
    """
    text = json.dumps(json_safe(content), indent=1, sort_keys=True, allow_nan=False)
    write_atomic(path, text.encode() + b"\n")


def parquet_bytes(table: pd.DataFrame) -> bytes:
    """Return the bytes of a table's parquet file; equal tables give equal bytes.

    The index is left out, and so is pandas' own description of each column. The description takes
    longer to make for hundreds of columns than all else, and says no more than the column's type.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [pa.array(table[name], from_pandas=True) for name in table.columns]
    stream = BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, names=list(table.columns)), stream)
    return stream.getvalue()


def harmless(cell: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would run as a formula.

    Such text begins with ``=``, ``+``, ``-`` or ``@``, also after blanks, or with a tab or a line
    break. Text that is a number, such as ``-3.5``, stays as it is. :func:`as_given` undoes this
    function.

    Parameters
    ----------
    cell : object
        A table's cell; anything but text is returned unchanged.

    Returns
    -------
    object
        The text with an apostrophe before it, or the cell as it was given.
    """
    if not isinstance(cell, str):
        return cell
    if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def as_given(cell: Any) -> Any:
    """Undo :func:`harmless`: return the cell without the apostrophe that was put before it."""
    # An apostrophe before other text was in the cell from the beginning.
    if isinstance(cell, str) and cell[:1] == "'" and _FORMULA.match(cell):
        return cell[1:]
    return cell


def each_cell(table: pd.DataFrame, change: Callable[[Any], Any]) -> pd.DataFrame:
    """Return a table with a function applied to every cell of its columns that hold no numbers.

    Parameters
    ----------
    table : DataFrame
        The table; not changed.
    change : callable
        Takes a cell and returns the new cell. A column in which no cell changes is not copied.
    """
    import pandas as pd

    changed = {}
    for name in table.columns:
        column = table[name]
        if column.dtype.kind in "biufc":
            continue  # columns of numbers or of true and false contain no text
        cells = [change(cell) for cell in column]
        if any(new_cell is not old_cell for new_cell, old_cell in zip(cells, column, strict=True)):
            changed[name] = pd.Series(cells, column.index, column.dtype)
    return table.assign(**changed)


def plain(text: str) -> str:
    """Return text that is safe on a terminal: control characters are written as escapes.

    Tabs and line breaks stay.

    Parameters
    ----------
    text : str
        Text from a user, a file or an archive.
    """

    def escape(match: re.Match[str]) -> str:
        if match[0] in "\n\t":
            return match[0]
        # ``ascii`` writes the escape between quotes, which are cut off.
        return ascii(match[0])[1:-1]

    return CONTROL.sub(escape, text)


def _plain_cell(cell: Any) -> Any:
    """Return a cell whose text is safe on a terminal; a cell that is safe is returned itself."""
    return plain(cell) if isinstance(cell, str) and CONTROL.search(cell) else cell


def write_csv(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> None:
    """Write a table as CSV, whole or not at all, with exactly these columns.

    Parameters
    ----------
    path : Path
        The file.
    table : DataFrame
        The rows, as :func:`csv_bytes` takes them.
    columns : sequence of str
        Names of the columns to write.
    """
    write_atomic(path, csv_bytes(table, columns))


def csv_bytes(table: pd.DataFrame, columns: Sequence[str]) -> bytes:
    """Return a table as CSV with exactly these columns.

    Floats are written with all digits, so that reading gives the same value. Texts, and the names
    of columns as well, pass through :func:`plain` and :func:`harmless`; the functions of
    :mod:`cad.base.reading` undo :func:`harmless`.

    Parameters
    ----------
    table : DataFrame
        The rows. A column of ``columns`` that is missing there is written empty.
    columns : sequence of str
        Names of the columns to write, in order; other columns of ``table`` are left out.

    Examples
    --------
    >>> import pandas as pd
    >>> csv_bytes(pd.DataFrame({"=1+1": ["@x"]}), ["=1+1"])
    b"'=1+1\\n'@x\\n"
    """
    chosen = table.reindex(columns=list(columns))
    cells = each_cell(each_cell(chosen, _plain_cell), harmless)
    names = [harmless(_plain_cell(name)) for name in columns]
    text: str = cells.to_csv(index=False, lineterminator="\n", header=names)
    return text.encode()
