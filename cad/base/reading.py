"""Read files from outside: sizes are checked first, and a parser's error becomes a CadError.

All code that reads such files does so inside the ``with`` block :func:`reading`. The limits below
are the only limits. They keep a small crafted file from filling the memory. Real files stay far
below them.
"""

from __future__ import annotations

import codecs
import csv
import errno
import io
import json
import math
import os
import re
import struct
import unicodedata
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cad.base.doors import door
from cad.base.errors import CadError, printable
from cad.base.files import CONTROL, as_given, each_cell
from cad.base.processes.limited import door_in_child
from cad.base.regular import MIB, check_file, size_text

if TYPE_CHECKING:
    import pandas as pd

MAX_JSON = 32 * MIB
MAX_YAML = MIB // 4
MAX_DEPTH = 100
MAX_BRACKETS = 2_000_000
"""MAX_DEPTH is the largest depth of nested brackets in JSON and YAML. MAX_BRACKETS is the largest
number of lists and objects in JSON.
"""
MAX_TABLE = 64 * MIB
MAX_ROWS = 1_000_000
MAX_COLUMNS = 2_000
MAX_CELLS = 20_000_000
MAX_NAME = 500
"""Largest number of characters of a column's name."""
# Largest number of separators in a line. A line has at most one cell more than separators. It has
# fewer cells where quoted text contains separators.
_LONGEST_LINE = 100_000
MAX_IMAGE = 2048 * MIB
"""Largest number of bytes that one image or DICOM file may take in memory."""
MAX_ARRAYS = 512 * MIB
"""Largest number of bytes that a parquet table, or all arrays of an npz file, take in memory."""
_PARQUET_SECONDS = 60.0
_PARQUET_GIGABYTES = 2.0
_PARQUET = "pandas pyarrow.parquet"
"""Limits of the process that reads a parquet table, and the libraries that it loads.

The memory is four times the largest size of a table.
"""
MAX_RATIO = 100
SMALL = 256 * MIB
"""Compressed content that takes more than SMALL bytes in memory may be at most MAX_RATIO times as
large in memory as on the disk.
"""

# Numbers of errors that come from the machine and tell nothing about the content of the file. Every
# other OSError can come from a damaged file.
_MACHINE = {
    errno.EACCES,
    errno.EPERM,
    errno.ENOENT,
    errno.EIO,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ESTALE,
    errno.EINTR,
    errno.ETIMEDOUT,
}
# The text of an exception of these types is understandable only with the name of the type.
_CURT = (LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, RecursionError)
_MESSAGE = 300
PLAIN_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""Matches a number in the digits 0 to 9 with a decimal point. ``float`` also reads ``1_0`` as 10,
``nan``, and digits of other scripts, all of which are slips in a table.
"""
# Matches blanks, dashes and invisible characters, which do not count when two names are compared.
_OVERLOOKED = re.compile(r"[\s_\-\u00ad\u200b-\u200f\u2060\ufeff]+")
# Bytes of a zip member's header before its name.
_ZIP_HEADER = 30


@contextmanager
def reading(source: object, problem: str, hint: str = "", roi: str = "") -> Iterator[None]:
    """Turn exceptions of the code inside this context manager into :class:`CadError`.

    Parameters
    ----------
    source : object
        The file that is read, or the address of the server that answers; named in the error.
    problem : str
        Start of the message, before the parser's own text, e.g. ``"not valid JSON"``.
    hint, roi : str
        Advice on how to solve the problem, and the region that is read.

    Raises
    ------
    CadError
        For any exception that the content of a file can cause. An ``OSError`` that comes from the
        machine (full disk, refused permission, missing file) passes unchanged.
    """
    try:
        yield
    except CadError as error:
        raise error.naming(file=source, roi=roi) from error.__cause__
    except MemoryError as error:
        message = f"{problem}: it asks for more memory than there is"
        hint = "look at its size, or raise --memory-limit and use --retry-failed"
        raise CadError(message, file=source, roi=roi, hint=hint) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _MACHINE:
            raise
        message = f"{problem}: {_text_of_error(error)}"
        raise CadError(message, file=source, roi=roi, hint=hint) from error


def _text_of_error(error: Exception) -> str:
    """Return the text of an exception in one line, without control characters.

    The name of the exception precedes its text where the text alone cannot be understood.
    """
    try:
        text = " ".join(str(error).split())
    except Exception:  # the exception's own __str__ may raise an error
        text = ""
    text = printable(text, _MESSAGE)
    if text and not isinstance(error, _CURT):
        return text
    name = type(error).__name__
    return f"{name} {text}".strip()


def check_inflation(packed: int, unpacked: int, limit: int, what: str = "content") -> None:
    """Raise an error for compressed content that would be too large in memory.

    Content is too large if it has more than ``limit`` bytes. It is also too large if it has more
    than :data:`SMALL` bytes (256 MiB) and more than :data:`MAX_RATIO` (100) times its compressed
    size, which real data never has.

    Parameters
    ----------
    packed, unpacked : int
        Compressed size in bytes, and the size in memory that the file states.
    limit : int
        Bytes allowed in memory.
    what : str
        Word for the content in the error message.

    Raises
    ------
    CadError
        The message states both sizes.
    """
    is_bomb = unpacked > SMALL and unpacked > MAX_RATIO * packed
    if unpacked > limit or is_bomb:
        raise CadError(
            f"{size_text(packed)} would become {size_text(unpacked)} of {what} in memory; allowed "
            f"are {size_text(limit)}, and beyond {size_text(SMALL)} at most {MAX_RATIO} times as "
            "many",
            hint="the file is damaged, or made to fill the memory",
        )


def check_members(archive: zipfile.ZipFile) -> None:
    """Refuse a zip archive whose members share bytes or a name; call it inside :func:`reading`.

    If several members share packed bytes, the archive has these bytes once, but they are unpacked
    for each member: a small archive could fill the disk. No program that packs files writes such
    members. Of two files with one name, the last one would replace the first without a word.

    Parameters
    ----------
    archive : ZipFile
        The archive, open for reading.

    Raises
    ------
    CadError
        Naming two members that overlap, a member that reaches into the archive's directory, one
        that does not begin with its header, or the name of two files.
    """
    stream: Any = archive.fp
    # A zip archive ends with a directory of its members, so the last member must end before the
    # directory begins.
    end = archive.start_dir
    following = "the archive's directory"
    members = sorted(archive.infolist(), key=lambda member: member.header_offset)
    # The members are looked at from the last to the first. Each must end before the next begins.
    for member in reversed(members):
        stream.seek(member.header_offset)
        header = stream.read(_ZIP_HEADER)
        name = repr(member.filename[:80])
        if len(header) < _ZIP_HEADER or not header.startswith(b"PK\3\4"):
            raise CadError(
                f"member {name} does not begin at byte {member.header_offset:,}, where the "
                "archive's directory puts it",
                hint="pack the files again; the archive is damaged, or not to be trusted",
            )
        # The header's last four bytes are the lengths of the name and of the extra field after it.
        name_and_extra = sum(struct.unpack("<2H", header[26:]))
        member_end = member.header_offset + _ZIP_HEADER + name_and_extra + member.compress_size
        if member_end > end:
            raise CadError(
                f"member {name} has bytes {member.header_offset:,} to {member_end:,} of the "
                f"archive, and {following} begins at byte {end:,}: members may not overlap",
                hint="pack the files again; the archive is damaged, or made to fill the memory",
            )
        end = member.header_offset
        following = f"member {name}"
    names: set[str] = set()
    for member in archive.infolist():
        if member.filename in names and not member.is_dir():
            raise CadError(
                f"two members are named {member.filename[:80]!r}: one would replace the other",
                hint="pack the files again, each under a name of its own",
            )
        names.add(member.filename)


@door("in", "any", bound="the caller's limit", limit=MAX_IMAGE)
def read_bytes(path: Path, limit: int) -> bytes:
    """Return the bytes of a regular file, which is no folder, pipe or device.

    Parameters
    ----------
    path : Path
        The file.
    limit : int
        Largest allowed size in bytes.

    Raises
    ------
    CadError
        When the path is no regular file, or the file is larger than the limit.
    FileNotFoundError
        When there is no such file.
    """
    check_file(path, limit)
    with path.open("rb") as stream:
        content = stream.read(limit + 1)  # the file may grow while it is read
    if len(content) > limit:
        raise CadError(f"more than {size_text(limit)}", file=path)
    return content


def read_text(path: Path, limit: int = MAX_JSON) -> str:
    """Return the text of a UTF-8 file, without a byte order mark.

    Raises
    ------
    CadError
        When the file is not UTF-8, or larger than ``limit`` bytes.
    """
    with reading(path, "not a readable text"):
        return read_bytes(path, limit).decode("utf-8-sig")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file whose content is an object.

    Raises
    ------
    CadError
        When the content is not JSON, not an object, nested too deep or too large.
    FileNotFoundError
        When there is no such file.
    """
    with reading(path, "not valid JSON"):
        content = parse_json(read_bytes(path, MAX_JSON))
        if not isinstance(content, dict):
            raise CadError(f"expected a JSON object, found {type(content).__name__}")
        return content


@door("in", "JSON", limit=MAX_JSON)
def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; call it inside :func:`reading`.

    Raises
    ------
    CadError
        When lists and objects are nested more than :data:`MAX_DEPTH` (100) deep, or are more than
        :data:`MAX_BRACKETS` (2,000,000).
    ValueError
        When the text is not JSON, or holds a lone surrogate, which UTF-8 cannot encode.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    # Brackets are counted in the text, because the lists and objects could fill the memory.
    if text.count("{") + text.count("[") > MAX_BRACKETS:
        raise CadError(f"more than {MAX_BRACKETS} lists and objects")
    content = json.loads(text)
    check_depth(content)
    # Only an escape can give a lone surrogate. To encode the content raises the error.
    if "\\u" in text:
        json.dumps(content, ensure_ascii=False).encode()
    return content


def check_depth(content: Any) -> None:
    """Raise an error for lists and dictionaries nested more than :data:`MAX_DEPTH` (100) deep.

    Recursive code could not process such content.

    Raises
    ------
    CadError
        For content that is nested deeper; the message names the limit.
    """
    # One layer of nesting after another is looked at, because recursive code would fail itself.
    items_of_layer = [content]
    depth = 0
    while items_of_layer:
        nested_items = []
        for item in items_of_layer:
            inner_items: Iterable[Any] = ()
            if isinstance(item, dict):
                inner_items = item.values()
            elif isinstance(item, list):
                inner_items = item
            for inner in inner_items:
                if isinstance(inner, list | dict):
                    nested_items.append(inner)
        if nested_items:
            depth += 1
        if depth >= MAX_DEPTH:
            raise CadError(f"nested more than {MAX_DEPTH} deep")
        items_of_layer = nested_items


def table_text(path: Path, separator: str) -> str:
    """Return the text of a table after checking its size; call it inside :func:`reading`.

    Parameters
    ----------
    path : Path
        The file, in UTF-8.
    separator : str
        Character between two cells.

    Raises
    ------
    CadError
        For too many bytes, rows, columns or cells, for two columns of the same name, and for a file
        that is no text in UTF-8.
    """
    text = _utf8_text(read_bytes(path, MAX_TABLE))
    n_lines = text.count("\n")
    n_separators = text.count(separator)
    # Separators are counted, because to split a huge text into cells would fill the memory.
    first_line = text.lstrip("\r\n").partition("\n")[0]
    n_columns = first_line.count(separator) + 1
    if n_lines > MAX_ROWS or n_columns > MAX_COLUMNS or n_separators + n_lines > MAX_CELLS:
        raise CadError(
            f"{n_lines} lines of {n_columns} columns, at most {MAX_ROWS} of {MAX_COLUMNS} are "
            f"read, and {MAX_CELLS} cells"
        )
    separators_of_lines = (line.count(separator) for line in io.StringIO(text))
    if max(separators_of_lines, default=0) > _LONGEST_LINE:
        raise CadError(f"a line of more than {_LONGEST_LINE} cells")
    if separator == "," and "\t" in first_line:
        raise CadError(
            "the cells of the first line are separated by tabs, not by commas",
            hint="save the table with commas between the cells",
        )
    names = next(csv.reader([first_line], delimiter=separator), [])  # an empty file has none
    check_names(names)
    return text


def _utf8_text(content: bytes) -> str:
    """Return the text of a table's bytes, which must be UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"byte {error.start + 1:,} is no text in UTF-8"
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            problem = "the text is in UTF-16; a table is read in UTF-8"
        elif content.startswith(b"PK\3\4"):
            problem = "the file is an Excel workbook or a zip archive, no text"
        raise CadError(problem, hint="save the table as CSV (UTF-8)") from error


def check_names(names: Sequence[str]) -> None:
    """Raise an error for column names with a control character, very long names, and equal names.

    Names are shown on terminals, pages and cards, where a control character could do harm. Cells
    are found by the name of their column, so a name may occur only once.

    Parameters
    ----------
    names : sequence of str
        Names of a table's columns; an empty name is that of a column without a name.

    Raises
    ------
    CadError
        For such a column; the message names the first one.
    """
    for place, name in enumerate(names, start=1):
        control = CONTROL.search(name)
        if control:
            raise CadError(
                f"column {place}: the column name {name[:80]!r} holds the control character "
                f"{control[0]!r}, which a name has not",
                hint="rename the column",
            )
        if len(name) > MAX_NAME:
            raise CadError(
                f"column {place}: a column name of {len(name)} characters, '{name[:40]}…'; at most "
                f"{MAX_NAME} are read",
                hint="rename the column",
            )
    # Several columns may have no name; they are left out.
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise CadError(f"two columns are called {twice[0][:80]!r}", hint="rename or remove one")


def _rows_of_table(
    text: str, separator: str, quoting: Any = csv.QUOTE_MINIMAL
) -> Iterator[tuple[int, list[str]]]:
    """Yield the first row and all further rows of a table, without blank lines.

    Each row comes with the number of its line in the text. If quoted text has line breaks, this is
    the last line of the row.

    A row with more or fewer cells than the first row raises an error. Such a row was cut off, or
    one of its cells contains a separator (such as a decimal comma). In the second case the cells
    after it would come under the wrong columns.
    """
    if "\0" in text:
        raise CadError("a cell holds a NUL character")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quoting=quoting)
    width = 0
    for row in rows:
        # A line of blanks is left out. A quoted empty cell alone ([""]) is a row.
        is_blank = len(row) < 2 and not "".join(row).strip()
        if is_blank and row != [""]:
            continue
        width = width or len(row)  # the first row sets the width
        if len(row) != width:
            raise CadError(
                f"line {rows.line_num} has {len(row)} cell(s) where the first line has {width}",
                hint="a cell with a comma, as in 0,75, is quoted or written 0.75; a row is whole",
            )
        yield rows.line_num, row


def read_rows(path: Path, columns: Sequence[str] = ()) -> list[dict[str, str]]:
    """Read a CSV table as one dictionary for each row: column name to cell.

    All cells are text. This program writes an apostrophe before text that a spreadsheet would take
    for a formula (:func:`cad.base.files.harmless`). The apostrophe is taken off here, also in names
    of columns. Blank lines and columns without a name are left out.

    Parameters
    ----------
    path : Path
        Comma-separated file; cells may be quoted.
    columns : sequence of str
        Names of columns that the table must have.

    Returns
    -------
    list of dict of str to str
        One dictionary for each row, in the order of the file: the text of each cell by the name of
        its column. An empty cell is an empty text.

    Raises
    ------
    CadError
        When the file is not such a table, is too large, or lacks one of ``columns``, or when a row
        has more or fewer cells than the first line.
    """
    return [row for _, row in read_numbered_rows(path, columns)]


def read_numbered_rows(path: Path, columns: Sequence[str] = ()) -> list[tuple[int, dict[str, str]]]:
    """Read a CSV table, with the number of each row's line in the file.

    Parameters
    ----------
    path : Path
        Comma-separated file; cells may be quoted.
    columns : sequence of str
        Names of columns that the table must have.

    Returns
    -------
    list of (int, dict of str to str)
        For each row the number of its line in the file, counted from 1, and its cells by column.

    Raises
    ------
    CadError
        For a file that is too large, that is no table in UTF-8, or that lacks one of the columns.
    """
    with reading(path, "not a readable table"):
        rows = _rows_of_table(table_text(path, ","), ",")
        _, first_row = next(rows, (0, []))  # an empty file has no row
        names = [as_given(name) for name in first_row]
        absent = [name for name in columns if name not in names]
        if absent:
            hint = ""
            if len(names) == 1 and ";" in names[0]:
                hint = "the cells are separated by semicolons: save the table with commas"
            raise CadError(
                f"missing column(s) {', '.join(absent)}; expected {','.join(columns)}", hint=hint
            )
        records = []
        for line, row in rows:
            # Cells of columns without a name are left out.
            cells = zip(names, row, strict=True)
            records.append((line, {name: as_given(cell) for name, cell in cells if name}))
        return records


def whole_cell(cell: str) -> str:
    """Return a cell without blanks around it, and a whole number without ``.0``.

    Programs such as pandas write a column of whole numbers with decimals if a cell is empty.

    Parameters
    ----------
    cell : str
        Any text; ``3.0`` becomes ``3``, and ``3.5`` and ``v1.0`` stay.
    """
    return re.sub(r"^(\d+)\.0*$", r"\1", cell.strip())


def bare_name(name: str) -> str:
    """Return a name without what people overlook, to find one name that is written in two ways.

    Parameters
    ----------
    name : str
        A patient, a reader or a column; capitals, blanks, dashes, invisible characters, two ways of
        storing one letter and a final ``.0`` of a number do not count.
    """
    # Letters with an accent, and letters of full width, have two spellings in Unicode (NFKC).
    plain = _OVERLOOKED.sub("", unicodedata.normalize("NFKC", name.casefold()))
    # A spreadsheet adds ".0" to the whole numbers of a column in which a cell is empty.
    return re.sub(r"(?<=[0-9])\.0+$", "", plain)


def plain_number(cell: str) -> float | None:
    """Return the number in a cell; None where the cell is no finite :data:`PLAIN_NUMBER`.

    Parameters
    ----------
    cell : str
        Any text without blanks around it.
    """
    if not PLAIN_NUMBER.fullmatch(cell):
        return None
    number = float(cell)
    return number if math.isfinite(number) else None  # 1e999 is read as infinity


@door("in", "table", limit=MAX_TABLE)
def read_frame(path: Path, separator: str = ",", **options: Any) -> pd.DataFrame:
    """Read a table with ``pandas.read_csv``.

    This program writes an apostrophe before text that a spreadsheet would take for a formula
    (:func:`cad.base.files.harmless`). The apostrophe is taken off here.

    Parameters
    ----------
    path : Path
        The file.
    separator : str
        A comma or a tab.
    **options
        Passed to ``pandas.read_csv``.

    Returns
    -------
    DataFrame
        The table, with columns named as in its first line. The types of the columns are those that
        ``pandas.read_csv`` chooses with the given options.

    Raises
    ------
    CadError
        When the file is not such a table or is too large, or when a row has more or fewer cells
        than the first line. pandas alone would shift the cells of such a row or fill in empty ones.
    """
    import pandas as pd

    names = {",": "comma", "\t": "tab"}
    with reading(path, f"not a {names[separator]}-separated table"), warnings.catch_warnings():
        # pandas only warns where it drops cells; here this is an error.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        text = table_text(path, separator)
        for _ in _rows_of_table(text, separator, options.get("quoting", csv.QUOTE_MINIMAL)):
            pass  # the generator raises an error for a row of another length
        table = pd.read_csv(io.StringIO(text), sep=separator, index_col=False, **options)
        return each_cell(table.rename(columns=as_given), as_given)


@door("in", "npz", limit=MAX_ARRAYS)
@contextmanager
def open_arrays(source: Path | bytes) -> Iterator[Mapping[str, Any]]:
    """Open an npz file, or the bytes of one, in a ``with`` block; call it inside :func:`reading`.

    Yields
    ------
    mapping of str to ndarray
        An array is read when its name is looked up, while the block is open.

    Raises
    ------
    CadError
        When the arrays together would be too large in memory.
    """
    import numpy as np

    # The file is opened here, because numpy would not close a damaged file that it opened itself.
    with source.open("rb") if isinstance(source, Path) else io.BytesIO(source) as stream:
        with zipfile.ZipFile(stream) as archive:
            check_members(archive)
            unpacked = sum(member.file_size for member in archive.infolist())
        packed = stream.seek(0, os.SEEK_END)  # the size of the whole file
        check_inflation(packed, unpacked, MAX_ARRAYS, "arrays")
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as arrays:
            yield arrays


@door("in", "npy", limit=MAX_ARRAYS)
def read_array(source: Path | bytes) -> Any:
    """Return the array of an npy file, or of the bytes of one; call it inside :func:`reading`.

    Raises
    ------
    CadError
        When the file is too large.
    """
    import numpy as np

    content = source if isinstance(source, bytes) else read_bytes(source, MAX_ARRAYS)
    return np.load(io.BytesIO(content), allow_pickle=False)


def read_parquet(source: Path | bytes, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a parquet file, or the bytes of one; call it inside :func:`reading`.

    The library runs in a child process with limits of memory and time, because a parquet file does
    not state how large its pages are when unpacked.

    Parameters
    ----------
    source : Path or bytes
        The file.
    columns : sequence of str, optional
        Names of the columns to read; all of them when not given.

    Returns
    -------
    DataFrame
        The table with the wanted columns and all rows of the file.

    Raises
    ------
    CadError
        When the table would be too large in memory, or contains anything but numbers, booleans,
        times and texts.
    """
    content = source if isinstance(source, bytes) else read_bytes(source, MAX_ARRAYS)
    return parse_parquet(content, columns)


@door_in_child("parquet", seconds=_PARQUET_SECONDS, gigabytes=_PARQUET_GIGABYTES, needs=_PARQUET)
def parse_parquet(content: bytes, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the table of a parquet file's bytes; runs in a child process with limits.

    Parameters
    ----------
    content : bytes
        The file.
    columns : sequence of str, optional
        Names of the columns to read; all of them when not given.

    Raises
    ------
    CadError
        For bytes that are no parquet file, for a file that lacks one of the columns, and for a
        table that needs too much memory. Only check_inflation() raises a CadError here: the child
        process turns the errors of pyarrow into one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)  # each thread would need memory of its own
    schema = pq.read_schema(io.BytesIO(content))
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    texts = []
    for field in schema:
        if _is_text(field.type):
            texts.append(field.name)
    # Each distinct text is kept once until the total length of the texts is known and allowed. In a
    # small file a million rows may share one long text. A copy of the text for each row would fill
    # the memory.
    file = pq.ParquetFile(io.BytesIO(content), read_dictionary=texts)
    row_bytes = sum(_bytes_of_cell(field) for field in schema)
    check_inflation(len(content), file.metadata.num_rows * row_bytes, MAX_ARRAYS, "table")
    table = file.read(columns=schema.names, use_threads=False)
    check_inflation(len(content), table.nbytes, MAX_ARRAYS, "table")
    text_bytes = 0
    for name in texts:
        for chunk in table.column(name).chunks:
            text_bytes += _text_bytes(chunk)
    check_inflation(len(content), text_bytes, MAX_ARRAYS, "text")
    # Only now does each cell get its text.
    return table.cast(schema).to_pandas()


def _is_text(kind: Any) -> bool:
    """Return whether a column of this pyarrow type holds texts."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _bytes_of_cell(field: Any) -> int:
    """Return the number of bytes of a cell of a column in memory.

    A text counts as 8 bytes here; its letters are counted later.
    """
    from pyarrow import types

    if _is_text(field.type) or types.is_null(field.type):
        return 8
    if not types.is_primitive(field.type):
        raise CadError(
            f"column {field.name[:80]!r} holds {str(field.type)[:80]}, no plain values",
            hint="give every value a column of its own, or leave the column out of the file",
        )
    # pandas may store small numbers and booleans in 8 bytes, too.
    return max(int(field.type.bit_width) // 8, 8)


def _text_bytes(chunk: Any) -> int:
    """Return how many bytes the texts of all cells of a column have together.

    The column stores each different text once, and a text counts as often as it occurs.
    """
    import numpy as np
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.binary_length(chunk.dictionary), 0).to_numpy(zero_copy_only=False)
    # ``indices`` has, for each cell, the number of its text; a missing cell has none.
    text_numbers = chunk.indices.drop_null().to_numpy(zero_copy_only=False)
    occurrences = np.bincount(text_numbers, minlength=len(lengths))
    return int(occurrences.astype(np.int64) @ lengths.astype(np.int64))


def parquet_columns(path: Path) -> list[str]:
    """Return the names of a parquet file's columns.

    Raises
    ------
    CadError
        When the file is not a parquet table.
    """
    with reading(path, "not a readable table"):
        return parquet_names(read_bytes(path, MAX_ARRAYS))


@door_in_child("parquet", seconds=_PARQUET_SECONDS, gigabytes=_PARQUET_GIGABYTES, needs=_PARQUET)
def parquet_names(content: bytes) -> list[str]:
    """Return the names of the columns of a parquet file's bytes."""
    import pyarrow.parquet as pq

    return [str(name) for name in pq.read_schema(io.BytesIO(content)).names]


@door_in_child("parquet", seconds=_PARQUET_SECONDS, gigabytes=_PARQUET_GIGABYTES, needs=_PARQUET)
def parquet_notes(content: bytes) -> bytes:
    """Return a parquet file's schema as bytes: the columns, with the notes stored with the file.

    Parameters
    ----------
    content : bytes
        The file.

    Raises
    ------
    CadError
        When the file is not a parquet table.
    """
    import pyarrow.parquet as pq

    return bytes(pq.read_schema(io.BytesIO(content)).serialize())
