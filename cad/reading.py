"""Read what others wrote: sizes are checked first, and whatever a parser raises is a CadError.

Every boundary goes through :func:`reading`; the limits below are the only ones. A real file comes
nowhere near them: they keep a file of a few megabytes from filling the memory.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import stat
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cad.errors import CadError
from cad.files import as_given, each_cell

if TYPE_CHECKING:
    import pandas as pd

MIB = 2**20
MAX_JSON = 32 * MIB
MAX_YAML = MIB // 4
MAX_DEPTH = 100
"""Brackets within brackets in JSON and YAML."""
MAX_TABLE = 64 * MIB
MAX_ROWS, MAX_COLUMNS, MAX_CELLS = 1_000_000, 2_000, 20_000_000
MAX_IMAGE = 2048 * MIB
"""Bytes of one image or DICOM file in memory."""
MAX_ARRAYS = 512 * MIB
"""Bytes of all arrays of one npz file, or of a parquet table, in memory."""
MAX_RATIO, SMALL = 100, 256 * MIB
"""What is larger than SMALL may be at most MAX_RATIO times as large as it is on the disk."""

# The machine's troubles, which say nothing about the file; all others a damaged file can cause.
_MACHINE = {
    errno.EACCES, errno.EPERM, errno.ENOENT, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS,
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.EINTR, errno.ETIMEDOUT,
}  # fmt: skip
# What such an exception says is no sentence without its name.
_CURT = (LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, RecursionError)
_MESSAGE = 300
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


@contextmanager
def reading(source: object, problem: str, hint: str = "", roi: str = "") -> Iterator[None]:
    """Turn whatever reading can raise into the project's error.

    Parameters
    ----------
    source : object
        The file, or the address of what answers.
    problem : str
        What is said before the parser's own words, e.g. ``"not valid JSON"``.
    hint, roi : str
        The way out; the region that is read.

    Raises
    ------
    CadError
        For everything but the machine's own troubles (a full disk, a refused permission, a file
        that is not there), which stay what they are.
    """
    try:
        yield
    except CadError as error:
        raise error.at(file=source, roi=roi) from error.__cause__
    except MemoryError as error:
        raise CadError(
            f"{problem}: it asks for more memory than there is",
            file=source,
            roi=roi,
            hint="look at its size, or raise --memory-limit and use --retry-failed",
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _MACHINE:
            raise
        said = f"{problem}: {_words(error)}"
        raise CadError(said, file=source, roi=roi, hint=hint) from error


def _words(error: Exception) -> str:
    """Return what an exception says: one line without control characters, its name if need be."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # some cannot even say what they are
        text = ""
    text = "".join(c if c.isprintable() else "?" for c in text)[:_MESSAGE]
    name = type(error).__name__
    return f"{name} {text}".strip() if not text or isinstance(error, _CURT) else text


def kind_of(path: Path) -> str:
    """Return what a path is where it is no file that can be read; empty for a file.

    A named pipe would be waited on for ever, and a device may have no end. Nothing is opened.

    Parameters
    ----------
    path : Path
        May be missing.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return "a link that leads nowhere" if path.is_symlink() else str(error.strerror)
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no file")


def check_file(path: Path, limit: int) -> None:
    """Refuse what is no plain file, or is larger than a file of its kind can be.

    Parameters
    ----------
    path : Path
        The file.
    limit : int
        Bytes at most.

    Raises
    ------
    CadError
        Naming the size and the limit.
    FileNotFoundError
        When there is nothing of this name.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise CadError(f"{kind_of(path)}, where a file was expected", file=path)
    if status.st_size > limit:
        raise CadError(f"{_size(status.st_size)}, at most {_size(limit)} are read", file=path)


def check_inflation(packed: int, unpacked: int, limit: int, what: str = "content") -> None:
    """Refuse what would become larger in memory than is allowed, or than real data could.

    Parameters
    ----------
    packed, unpacked : int
        Bytes on the disk, and in memory as the file says.
    limit : int
        Bytes allowed in memory.
    what : str
        What is unpacked.

    Raises
    ------
    CadError
        Saying both sizes.
    """
    if unpacked > limit or (unpacked > SMALL and unpacked > MAX_RATIO * packed):
        raise CadError(
            f"{_size(packed)} would become {_size(unpacked)} of {what} in memory; allowed are "
            f"{_size(limit)}, and beyond {_size(SMALL)} at most {MAX_RATIO} times as many",
            hint="the file is damaged, or made to fill the memory",
        )


def _size(count: int) -> str:
    return f"{count / MIB:,.0f} MiB" if count >= 10 * MIB else f"{count:,} bytes"


def read_bytes(path: Path, limit: int) -> bytes:
    """Return a plain file's bytes.

    Parameters
    ----------
    path : Path
        The file.
    limit : int
        Bytes at most.

    Raises
    ------
    CadError, FileNotFoundError
        As :func:`check_file`.
    """
    check_file(path, limit)
    with path.open("rb") as stream:
        content = stream.read(limit + 1)  # it may grow meanwhile
    if len(content) > limit:
        raise CadError(f"more than {_size(limit)}", file=path)
    return content


def read_text(path: Path, limit: int = MAX_JSON) -> str:
    """Return a plain file's text.

    Raises
    ------
    CadError
        For what is no text in UTF-8, or larger than ``limit`` bytes.
    """
    with reading(path, "not a readable text"):
        return read_bytes(path, limit).decode("utf-8-sig")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    CadError
        For what is no JSON, no object, nested too deep or too large.
    FileNotFoundError
        When there is no such file.
    """
    with reading(path, "not valid JSON"):
        content = parse_json(read_bytes(path, MAX_JSON))
        if not isinstance(content, dict):
            raise CadError(f"expected a JSON object, found {type(content).__name__}")
        return content


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; call it within :func:`reading`.

    Raises
    ------
    CadError
        When it is nested deeper than :data:`MAX_DEPTH`.
    ValueError
        For what is no JSON, and for half a character (a lone surrogate), which none can write.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    content = json.loads(text)
    check_depth(content)
    if "\\u" in text:
        json.dumps(content, ensure_ascii=False).encode()
    return content


def check_depth(content: Any) -> None:
    """Refuse lists and mappings that are nested deeper than what walks them could follow.

    Raises
    ------
    CadError
        Naming the limit.
    """
    layer, depth = [content], 0
    while layer := [
        inner
        for item in layer
        if isinstance(item, list | dict)
        for inner in (item.values() if isinstance(item, dict) else item)
        if isinstance(inner, list | dict)
    ]:
        depth += 1
        if depth >= MAX_DEPTH:
            raise CadError(f"nested more than {MAX_DEPTH} deep")


def table_text(path: Path, separator: str) -> str:
    """Return a table's text once its size is known to be sane; call it within :func:`reading`.

    Raises
    ------
    CadError
        For too many bytes, rows, columns or cells, and for two columns of one name.
    """
    text = read_bytes(path, MAX_TABLE).decode("utf-8-sig")
    rows, cells = text.count("\n"), text.count(separator)
    names = next(csv.reader([text[: text.find("\n") + 1 or None]], delimiter=separator), [])
    if rows > MAX_ROWS or len(names) > MAX_COLUMNS or cells + rows > MAX_CELLS:
        raise CadError(
            f"{rows} lines of {len(names)} columns, at most {MAX_ROWS} of {MAX_COLUMNS} are read, "
            f"and {MAX_CELLS} cells"
        )
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise CadError(f"two columns are called {twice[:80]!r}", hint="rename or remove one")
    return text


def read_rows(path: Path, columns: Sequence[str] = ()) -> list[dict[str, str]]:
    """Read a CSV table as one dictionary for each row; missing cells are empty.

    Parameters
    ----------
    path : Path
        Comma-separated, cells may be quoted.
    columns : sequence of str
        Columns that it must have.

    Raises
    ------
    CadError
        For what is no such table, or too large, and for one without these columns.
    """
    with reading(path, "not a readable table"):
        stream = io.StringIO(table_text(path, ","), newline="")
        reader = csv.DictReader(stream, restval="", restkey="")
        absent = [name for name in columns if name not in (reader.fieldnames or [])]
        if absent:
            raise CadError(f"missing column(s) {', '.join(absent)}; expected {','.join(columns)}")
        # Cells beyond the last column have no name.
        return [{k: as_given(v) for k, v in row.items() if k} for row in reader]


def read_frame(path: Path, separator: str = ",", **options: Any) -> pd.DataFrame:
    """Read a table with pandas, whose ``read_csv`` takes the options.

    Raises
    ------
    CadError
        For what is no such table, or too large, and for rows with more cells than columns: pandas
        would take the first cells for names of rows, and shift the others.
    """
    import pandas as pd

    names = {",": "comma", "\t": "tab"}
    with reading(path, f"not a {names[separator]}-separated table"), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        text = table_text(path, separator)
        table = pd.read_csv(io.StringIO(text), sep=separator, index_col=False, **options)
        return each_cell(table, as_given)


@contextmanager
def open_arrays(source: Path | bytes) -> Iterator[Mapping[str, Any]]:
    """Open an npz file, or its bytes, to read arrays by name; call it within :func:`reading`.

    Raises
    ------
    CadError
        When its arrays would fill the memory.
    """
    import numpy as np

    if isinstance(source, Path):
        check_file(source, MAX_ARRAYS)
    # numpy alone would leave a damaged file open.
    with source.open("rb") if isinstance(source, Path) else io.BytesIO(source) as stream:
        with zipfile.ZipFile(stream) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        check_inflation(stream.seek(0, os.SEEK_END), unpacked, MAX_ARRAYS, "arrays")
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as arrays:
            yield arrays


def read_array(source: Path | bytes) -> Any:
    """Return the array of an npy file, or of its bytes; call it within :func:`reading`.

    Raises
    ------
    CadError
        When it would fill the memory.
    """
    import numpy as np

    content = source if isinstance(source, bytes) else read_bytes(source, MAX_ARRAYS)
    return np.load(io.BytesIO(content), allow_pickle=False)


def read_parquet(source: Path | bytes) -> pd.DataFrame:
    """Read a parquet table; call it within :func:`reading`.

    Raises
    ------
    CadError
        When the table would fill the memory.
    """
    import pyarrow.parquet as pq

    content = source if isinstance(source, bytes) else read_bytes(source, MAX_ARRAYS)
    schema = pq.read_schema(io.BytesIO(content))
    texts = [field.name for field in schema if _is_text(field.type)]
    # Words are kept once each until their number is known: a million rows may share a long one.
    file = pq.ParquetFile(io.BytesIO(content), read_dictionary=texts)
    facts = file.metadata
    widths = [_width(field) for field in schema]
    stated = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
    check_inflation(len(content), max(stated, facts.num_rows * sum(widths)), MAX_ARRAYS, "table")
    table = file.read()
    for name in texts:
        words = sum(_text_bytes(chunk) for chunk in table.column(name).chunks)
        check_inflation(len(content), words, MAX_ARRAYS, f"text in column {name[:80]}")
    return table.cast(schema).to_pandas()


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _width(field: Any) -> int:
    """Return the bytes of a cell; texts are counted later, by what they say."""
    from pyarrow import types

    if _is_text(field.type) or types.is_null(field.type):
        return 8
    if not types.is_primitive(field.type):
        raise CadError(f"column {field.name[:80]!r} holds {str(field.type)[:80]}, no plain values")
    return max(int(field.type.bit_width) // 8, 8)


def _text_bytes(chunk: Any) -> int:
    """Return the bytes of all cells of a column that keeps its words once each."""
    import numpy as np
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.binary_length(chunk.dictionary), 0).to_numpy(zero_copy_only=False)
    used = np.bincount(chunk.indices.drop_null().to_numpy(zero_copy_only=False),
                       minlength=len(lengths))  # fmt: skip
    return int(used.astype(np.int64) @ lengths.astype(np.int64))


def parquet_columns(path: Path) -> list[str]:
    """Return the names of a parquet table's columns.

    Raises
    ------
    CadError
        For what is no such table.
    """
    import pyarrow.parquet as pq

    with reading(path, "not a readable table"):
        return [
            str(name) for name in pq.read_schema(io.BytesIO(read_bytes(path, MAX_ARRAYS))).names
        ]
