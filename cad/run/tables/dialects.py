"""Read a table as texts: CSV with various separators and encodings, Excel workbooks, parquet.

The form of a file is derived from its bytes and never from its name alone. If the bytes can be read
in two ways, an error is raised whose message names the option that decides. Cells remain texts
here. :mod:`cad.run.tables.values` turns them into values, column by column, so that messages can
name the row and the column of a cell.
"""

import codecs
import csv
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import IO, Any

import numpy as np
import pandas as pd

from cad.base.errors import CadError, install
from cad.base.files import as_given
from cad.base.processes.limited import door_in_child
from cad.base.reading import (
    MAX_ARRAYS,
    MAX_CELLS,
    MAX_COLUMNS,
    MAX_ROWS,
    MAX_TABLE,
    check_inflation,
    check_members,
    check_names,
    read_bytes,
    read_parquet,
    reading,
)

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
"""Characters between two cells, by the name that the option ``--separator`` takes."""
_NAME_OF = {character: name for name, character in SEPARATORS.items()}
DECIMALS = ("point", "comma")
_POINTS = re.compile(r"[+-]?[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?")
_COMMAS = re.compile(r"[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
_HEAD_NUMBER = re.compile(r"[+-]?[0-9]*(?:[.,][0-9]+)?(?:[eE][+-]?[0-9]+)?(?<=[0-9])")
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_PARQUET = b"PAR1"
_OLD_EXCEL = b"\xd0\xcf\x11\xe0"
# Limits of time (seconds) and memory (gigabytes) for the child process that reads a workbook.
_SHEET_SECONDS = 120.0
_SHEET_GIGABYTES = 2.0
_LONGEST_CELL = 32_767
"""Largest number of characters of a cell, as in Excel."""
_SHOWN = 40
"""Largest number of characters of a row that a message shows."""
_OTHER_FILES = (
    (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture"),
    (b"SQLite format", "an SQLite database"),
    (b"$FL2", "an SPSS file"),
    (b"$FL3", "an SPSS file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"<html", "an HTML page"),
    (b"<table", "an HTML page"),
    (b"<!doctype", "an HTML page"),
    (b"<?xml", "an XML file"),
    (b"{", "a JSON file"),
    (b"[{", "a JSON file"),
    (b"[[", "a JSON file"),
)
"""First bytes of files that are no tables, and the kind of file. Letters are compared in lower
case.
"""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # The byte order mark (first bytes) of UTF-32 begins with that of UTF-16, so UTF-32 is tested
    # first.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class Dialect:
    """Say how to read a file, where its bytes leave a choice.

    Parameters
    ----------
    separator : str
        ``comma``, ``semicolon``, ``tab`` or ``bar``; empty to derive it from the file.
    decimal : str
        ``point`` or ``comma``; empty to derive it from the file.
    encoding : str
        Name of a text encoding, such as ``latin-1``; empty for UTF-8 and UTF-16, which are
        recognised.
    sheet : str
        Name of a sheet of an Excel workbook; empty where only one sheet has cells.
    """

    separator: str = ""
    decimal: str = ""
    encoding: str = ""
    sheet: str = ""


UNSTATED = Dialect()
"""Dialect of a user who states nothing: the form of the file is derived from its bytes."""


@dataclass(frozen=True)
class Cells:
    """Hold a table as it was read, with cells as texts.

    Parameters
    ----------
    file : Path
        The file.
    table : DataFrame
        Cells as texts, without blanks around them; a missing cell is empty.
    rows : ndarray of int, shape (n,)
        Number of every row as a spreadsheet program shows it: the row with the names of the columns
        is row 1.
    decimal_comma : bool
        Whether numbers are written with a decimal comma, as in 0,75.
    notes : list of str
        Sentences on how the file was read, where it is anything but a CSV with commas in UTF-8.
    """

    file: Path
    table: pd.DataFrame
    rows: np.ndarray
    decimal_comma: bool = False
    notes: list[str] = field(default_factory=list)


def read_cells(path: Path, dialect: Dialect = UNSTATED) -> Cells:
    """Read a file as a table of texts.

    Parameters
    ----------
    path : Path
        CSV with commas, semicolons, tabs or bars, in UTF-8 or UTF-16; an Excel workbook
        (``.xlsx``); or parquet.
    dialect : Dialect
        What the user states on the form of the file; everything else is derived from the file.

    Returns
    -------
    Cells
        The table.

    Raises
    ------
    CadError
        For a file that is missing, empty, too large, no table or without rows; for rows with
        different numbers of cells; for two columns of one name; where the bytes can be read in two
        ways.
    """
    _check_words(dialect)
    try:
        content = read_bytes(path, MAX_ARRAYS)
    except OSError as error:
        raise CadError(
            f"cannot be read as a table: {error.strerror}",
            file=path,
            hint="correct the path: it is that of a file, or of a folder of runs",
        ) from error
    with reading(path, "not a readable table", "export the table again, as CSV"):
        notes: list[str] = []
        if content.startswith(_PARQUET):
            records = _parquet_records(content)
            notes.append("read as parquet")
        elif content.startswith(_ZIP):
            records, note = sheet_records(content, dialect.sheet)
            notes.append(note)
        elif content.startswith(_GZIP):
            raise CadError("a file packed by gzip", hint="unpack it (gunzip), and give the table")
        elif content.startswith(_OLD_EXCEL):
            raise CadError(
                "a workbook of the old Excel format (.xls), which is not read",
                hint="save it as .xlsx or as CSV",
            )
        else:
            if len(content) > MAX_TABLE:
                raise CadError(f"{len(content):,} bytes of text, at most {MAX_TABLE:,} are read")
            text = _decoded_text(content, dialect.encoding, notes)
            records = _text_records(text, dialect.separator, notes)
        return _cells(path, records, dialect.decimal, notes)


def _check_words(dialect: Dialect) -> None:
    """Raise an error for a separator, decimal sign or encoding that is not known."""
    if dialect.separator and dialect.separator not in SEPARATORS:
        # Somebody may have typed the character itself in place of its name.
        word = _NAME_OF.get(dialect.separator)
        meant = f"did you mean --separator {word}? " if word else ""
        raise CadError(
            f"--separator {dialect.separator!r} is not known",
            hint=f"{meant}known, in words: {', '.join(SEPARATORS)}",
        )
    if dialect.decimal and dialect.decimal not in DECIMALS:
        word = {",": "comma", ".": "point"}.get(dialect.decimal, "")
        meant = f"did you mean --decimal {word}? " if word else ""
        raise CadError(
            f"--decimal {dialect.decimal!r} is not known",
            hint=f"{meant}known, in words: {', '.join(DECIMALS)}",
        )
    if dialect.encoding:
        try:
            codecs.lookup(dialect.encoding)
        except LookupError:
            raise CadError(
                f"--encoding {dialect.encoding!r} is not known",
                hint="known are for example utf-8, utf-16, cp1252 (Windows) and latin-1",
            ) from None


def _decoded_text(content: bytes, encoding: str, notes: list[str]) -> str:
    """Return the text of a file, decoded by the stated encoding or by the one recognised."""
    if not content.strip():
        raise CadError(
            "the file is empty: a table has a first row with the names of its columns",
            hint="export the table again",
        )
    stripped = content.lstrip()
    for first_bytes, kind in _OTHER_FILES:
        if content.startswith(first_bytes) or stripped[: len(first_bytes)].lower() == first_bytes:
            raise CadError(
                f"the file begins with {_printed(stripped[:20])!r}: it is {kind}, and a "
                "table is CSV, .xlsx or parquet",
                hint="export the table as CSV",
            )
    if not encoding:
        encoding = _encoding_of(content)
    try:
        text = content.decode(encoding)
    except UnicodeError as error:
        start = getattr(error, "start", 0)  # not every error of decoding states a position
        line = content[:start].count(b"\n") + 1
        raise CadError(
            f"row {line} holds bytes that are no {encoding.upper()} text "
            f"({content[start : start + 4]!r})",
            hint="say how it is encoded: --encoding cp1252 (Windows) or --encoding latin-1",
        ) from None
    first_row = text.partition("\n")[0]
    if "\0" in first_row:
        position = first_row.index("\0")
        shown = first_row[max(0, position - 8) : position + 1]
        raise CadError(
            f"row 1, character {position + 1}: {shown!r} holds a "
            "NUL character, which no text has: the file is of another program, or damaged",
            hint="export the table as CSV in UTF-8",
        )
    if encoding not in ("utf-8", "utf-8-sig"):
        notes.append(f"read as {encoding.upper()}")
    return text.removeprefix("\ufeff")


def _printed(content: bytes) -> str:
    """Return the printable characters of the first line of a file, for a message."""
    text = content.decode("ascii", "replace").partition("\n")[0].partition("\0")[0]
    return "".join(sign for sign in text if sign.isprintable() and sign != "\ufffd")


def _encoding_of(content: bytes) -> str:
    """Return the encoding of a text, recognised by its first bytes; UTF-8 if nothing else fits."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            return name
    # In UTF-16 each Latin letter has two bytes. One of them is zero: always the first, or always
    # the second.
    head = content[:4096]
    n_pairs = len(head) // 2
    if n_pairs and head[1::2].count(0) > 0.9 * n_pairs:
        return "utf-16-le"
    if n_pairs and head[0::2].count(0) > 0.9 * n_pairs:
        return "utf-16-be"
    return "utf-8"


def _text_records(text: str, separator: str, notes: list[str]) -> list[tuple[int, list[str]]]:
    """Return the number and the cells of each row of a CSV text; blank rows are left out."""
    if text.count("\n") > MAX_ROWS:
        raise CadError(f"{text.count(chr(10)):,} rows, at most {MAX_ROWS:,} are read")
    first_line = text.partition("\n")[0].strip().strip('"').lower()
    if first_line == "sep=":
        first_line = "sep=\t"  # the tab was stripped with the blanks
    declared = ""
    if re.fullmatch(r"sep=.", first_line):
        # Excel writes a first line such as "sep=;", which states the separator of the columns. An
        # empty line takes its place, so that the numbers of the rows stay.
        declared = text.partition("=")[2][0]
        text = "\n" + text.partition("\n")[2]
    if separator:
        chosen = SEPARATORS[separator]
    elif declared:
        chosen = declared
    else:
        chosen = _separator_of(text)
    if chosen != ",":
        notes.append(f"cells are separated by a {_NAME_OF.get(chosen, repr(chosen))}")
    return list(_records(text, chosen))


def _records(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of each row that is not blank; an error names the row of its cause."""
    number = 0
    n_cells = 0
    # Number of lines up to the last row that could be read. A quoted cell may have several lines.
    n_lines = 0
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for number, row in enumerate(rows, start=1):
            n_lines = rows.line_num
            if not "".join(row).strip():
                continue
            n_cells += len(row)
            if len(row) > MAX_COLUMNS or n_cells > MAX_CELLS:
                raise CadError(
                    f"row {number} has {len(row):,} cells; at most {MAX_COLUMNS:,} columns and "
                    f"{MAX_CELLS:,} cells are read",
                    hint="take columns that are no features out of the table, or cut it",
                )
            yield number, row
    except csv.Error:
        raise CadError(
            f"row {number + 1}: a quoted cell has no end, or text follows its closing quote, in "
            f"{_quoted(text, n_lines)!r}",
            hint='close the quote, or write a quote within a quoted cell twice: "5"" long"',
        ) from None


def _quoted(text: str, lines: int) -> str:
    """Return, for a message, the row after the first ``lines`` lines, cut short.

    The text begins at the first quotation mark of the row.
    """
    row = list(io.StringIO(text, newline=""))[lines].rstrip("\r\n")
    start = row.index('"') if '"' in row else 0
    shown = row[start : start + _SHOWN]
    return f"{shown}…" if len(row) > start + _SHOWN else shown


def _separator_of(text: str) -> str:
    """Return the separator with which all rows have equally many cells, two or more.

    If several separators do so, an error is raised.
    """
    # Number of cells of the first row by separator: those with which all rows have equally many
    # cells, and those with which they do not.
    even: dict[str, int] = {}
    uneven: dict[str, int] = {}
    for character in SEPARATORS.values():
        widths = _widths(text, character)
        if not widths or widths[0] < 2:
            continue
        if min(widths) == max(widths):
            even[character] = widths[0]
        else:
            uneven[character] = widths[0]
    if len(even) == 1:
        (only_separator,) = even
        return only_separator
    if even:
        first_row = text.lstrip().partition("\n")[0].strip()
        cuts = []
        for character, width in even.items():
            names = [name.strip() for name in first_row.split(character)]
            cuts.append(
                f"--separator {_NAME_OF[character]} gives {width} columns: {', '.join(names[:3])} …"
            )
        raise CadError(
            f"row 1, {first_row[:_SHOWN]!r}, can be cut into cells in {len(even)} ways, and so can "
            "every row, which has to mean one thing",
            hint="; ".join(cuts),
        )
    if uneven:
        # The rows have different numbers of cells with every separator. The caller raises an error
        # that names the row.
        return max(uneven, key=lambda character: uneven[character])
    return ","  # a table of one column has no separator, and any does


def _widths(text: str, separator: str) -> list[int]:
    """Return the number of cells of each row; an empty list if the text cannot be read so."""
    try:
        return [len(row) for _, row in _records(text, separator)]
    except CadError:
        return []


def _parquet_records(content: bytes) -> list[tuple[int, list[str]]]:
    """Return the number and the cells of each row; row 1 has the names of the columns."""
    table = read_parquet(content)
    if not isinstance(table.index, pd.RangeIndex):
        # pandas may have stored a column of the table as the index (the names of the rows). This
        # column is read like any other.
        table = table.reset_index()
    columns = []
    for name in table.columns:
        columns.append([_text_of_cell(value) for value in table[name].tolist()])
    rows = [list(row) for row in zip(*columns, strict=True)]
    return list(enumerate([[str(name) for name in table.columns], *rows], start=1))


def _text_of_cell(value: Any) -> str:
    """Return a cell as text: a float with all digits, a missing value as an empty text."""
    if value is None or value is pd.NaT or value is pd.NA:
        return ""
    if isinstance(value, float):
        if np.isnan(value):
            return ""
        # Up to this size a float holds every whole number exactly. It is written without ".0",
        # as a number such as a patient's would be written in a CSV.
        is_exact_integer = value.is_integer() and abs(value) < 2**53
        return str(int(value)) if is_exact_integer else repr(value)
    return str(value)


@door_in_child("workbook", seconds=_SHEET_SECONDS, gigabytes=_SHEET_GIGABYTES, needs="openpyxl")
def sheet_records(content: bytes, wanted: str) -> tuple[list[tuple[int, list[str]]], str]:
    """Return the rows of one sheet of an Excel workbook, and a note that names the sheet.

    Each row is a pair of its number and its cells. The function runs in a child process with
    limits, because a workbook is compressed XML, which may unpack to any size.

    Parameters
    ----------
    content : bytes
        The file.
    wanted : str
        Title of the sheet; if empty, only one sheet may have cells.

    Raises
    ------
    CadError
        For a file that is no workbook, for a sheet that does not exist, and where no title is given
        and several sheets have cells. For a formula without a stored value, and for merged cells.
    """
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise CadError(
            "an Excel workbook, which needs openpyxl to be read",
            hint=f"{install('excel')}; or save it as CSV",
        ) from None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_members(archive)
            names = set(archive.namelist())
            unpacked = sum(member.file_size for member in archive.infolist())
            check_inflation(len(content), unpacked, MAX_ARRAYS, "workbook")
    except zipfile.BadZipFile:
        raise CadError(
            "the file begins as an Excel workbook or a zip archive and is neither: it is damaged",
            hint="save the workbook again, or export the table as CSV",
        ) from None
    if "xl/workbook.xml" not in names:
        raise CadError(
            "a zip archive that is no Excel workbook", hint="unpack it and give the table inside"
        )

    workbook = load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    sheets = {sheet.title: _sheet_rows(sheet) for sheet in workbook.worksheets}
    filled = [title for title, rows in sheets.items() if rows]
    if wanted and wanted not in sheets:
        raise CadError(
            f"--sheet {wanted!r} is not known: the workbook has no sheet of that name",
            hint=f"known: {', '.join(sheets)}",
        )
    if not wanted and len(filled) > 1:
        raise CadError(
            f"{len(filled)} sheets hold cells: {', '.join(filled)}; a table is one of them",
            hint=f"choose one, for example --sheet {quote(filled[0])}",
        )
    title = wanted
    if not title:
        # Without any cell, the first sheet is taken, and the caller says that the file is empty.
        title = filled[0] if filled else next(iter(sheets), "")

    _check_formulas(content, title)
    if title in sheets:
        member = workbook[title]._worksheet_path.lstrip("/")  # the sheet's file in the archive
        with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open(member) as stream:
            areas = _merged_areas(stream)
        _check_merged(areas, title, dict(sheets[title]))
    records = []
    for number, row in sheets.get(title, []):
        records.append((number, [_text_of_cell(cell) for cell in row]))
    return records, f"read from the sheet {title!r} of a workbook"


def _merged_areas(stream: IO[bytes]) -> list[str]:
    """Return the areas of merged cells of a sheet, such as A2:A3.

    A sheet that is read row by row does not list them: they stand behind its rows.
    """
    from openpyxl.xml.functions import iterparse

    areas = []
    for _, element in iterparse(stream):
        tag = element.tag.rpartition("}")[2]  # without the name space, as in "{...}mergeCell"
        if tag == "mergeCell":
            areas.append(str(element.get("ref")))
        element.clear()  # the memory of what has been read is freed
    return areas


def _check_merged(areas: list[str], title: str, rows: dict[int, list[Any]]) -> None:
    """Raise an error for merged cells: all but the first one would be read as empty cells."""
    from openpyxl.utils.cell import range_boundaries

    for area in areas:
        column, number, *_ = range_boundaries(area)  # the first cell of the area, from 1
        cells = rows.get(number, [])
        value = cells[column - 1] if column <= len(cells) else None
        if value not in (None, ""):  # merged cells without a value lose nothing
            raise CadError(
                f"cells {area} of sheet {title!r} are merged: only the first of them holds "
                f"{str(value)[:60]!r}, and the others would be read as empty",
                hint="unmerge the cells, and write the value into each of them",
            )


def _sheet_rows(sheet: Any) -> list[tuple[int, list[Any]]]:
    """Return the rows of a sheet that are not empty, without the empty columns at their right."""
    rows: list[tuple[int, list[Any]]] = []
    width = 0  # number of the last column with a cell
    for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        filled = [column for column, cell in enumerate(row, start=1) if cell not in (None, "")]
        if not filled:
            continue
        width = max(width, filled[-1])
        rows.append((number, list(row)))
        if width > MAX_COLUMNS or len(rows) > MAX_ROWS or width * len(rows) > MAX_CELLS:
            raise CadError(
                f"sheet {sheet.title!r} has more than {MAX_ROWS:,} rows, {MAX_COLUMNS:,} columns "
                f"or {MAX_CELLS:,} cells"
            )
    even_rows = []
    for number, row in rows:
        padded = row + [None] * (width - len(row))
        even_rows.append((number, padded[:width]))
    return even_rows


@door_in_child("workbook", seconds=_SHEET_SECONDS, gigabytes=_SHEET_GIGABYTES, needs="openpyxl")
def _check_formulas(content: bytes, title: str) -> None:
    """Raise an error if a sheet of a workbook has a formula without a stored value.

    Such a formula would be read as an empty cell.
    """
    from openpyxl import load_workbook

    formulas = load_workbook(io.BytesIO(content), read_only=True, data_only=False)[title]
    values = load_workbook(io.BytesIO(content), read_only=True, data_only=True)[title]
    for written, computed in zip(formulas.iter_rows(), values.iter_rows(), strict=True):
        for formula, value in zip(written, computed, strict=True):
            if formula.data_type == "f" and value.value is None:
                raise CadError(
                    f"cell {formula.coordinate} of sheet {title!r} holds the formula "
                    f"{str(formula.value)[:60]!r} and no value",
                    hint="open and save the workbook in a spreadsheet program, which computes it",
                )


def _cells(
    path: Path, records: list[tuple[int, list[str]]], decimal: str, notes: list[str]
) -> Cells:
    """Return a table from its rows, after checks of its head and of every row.

    ``records`` has the number and the cells of each row, and ``decimal`` is the decimal sign that
    the user states, or empty. Remarks are added to ``notes``.
    """
    if not records:
        raise CadError(
            "the file is empty: a table has a first row with the names of its columns",
            hint="export the table again",
        )
    head_number, head = records[0]
    body = records[1:]
    names = [as_given(name.strip()) for name in head]
    _check_head(head_number, names, body)
    nameless = [column for column, name in enumerate(names) if not name]
    names = _completed_names(names)
    if not body:
        raise CadError(
            f"the table has a head of {len(names)} columns and no row under it",
            hint="export the table again, with a row for every region",
        )
    for number, row in body:
        if len(row) != len(names):
            last_number, _ = body[-1]
            raise _uneven(number, row, names, last=number == last_number)
        if [cell.strip() for cell in row] == names:
            raise CadError(
                f"row {number} repeats row {head_number}, the head: {row[0]!r} is the name of "
                "column 1, and no cell of it",
                hint="take the row out; two tables below each other are made one",
            )
        longest = max(len(cell) for cell in row)
        if longest > _LONGEST_CELL:
            raise CadError(
                f"row {number} has a cell of {longest:,} characters, at most {_LONGEST_CELL:,} "
                "are read"
            )

    columns = {}
    for column, name in enumerate(names):
        cells = [as_given(row[column]).strip() for _, row in body]
        columns[name] = pd.Series(cells, dtype=object)
    table = pd.DataFrame(columns)
    rows = np.array([number for number, _ in body])

    # If every row ends with a separator, the table has a last column without a name and without
    # content. Such a column is left out.
    blank = []
    for column in nameless:
        name = names[column]
        if not table[name].any():
            blank.append(name)
    if blank:
        table = table.drop(columns=blank)
        notes.append(f"{len(blank)} column(s) without a name and a cell are left out")
    _check_nul(table, rows)
    return Cells(path, table, rows, _decimal_comma(table, rows, decimal, notes), notes)


def _check_head(number: int, names: list[str], body: list[tuple[int, list[str]]]) -> None:
    """Raise an error for a title above the row with the names of the columns.

    A title is a single cell in the first row, where the next row has several cells.
    """
    if not body:
        return
    filled = [name for name in names if name]
    next_number, next_row = body[0]
    width = sum(1 for cell in next_row if cell.strip())
    if len(filled) == 1 and width > 2:
        raise CadError(
            f"row {number} holds {filled[0][:_SHOWN]!r} alone, and row {next_number} has {width} "
            "cells: the first row is a title or a remark, where the names of the columns are "
            "expected",
            hint=f"take out what is above row {next_number}, if that has the names of the columns",
        )


def _check_nul(table: pd.DataFrame, rows: np.ndarray) -> None:
    """Raise an error for a cell with a NUL character, at which C libraries end a text."""
    for name in table.columns:
        for row, cell in zip(rows, table[name], strict=True):
            if "\0" in cell:
                raise CadError(
                    f"column {name!r}, row {row}: {cell[:_SHOWN]!r} holds a NUL character, which "
                    "no text has",
                    hint="correct the cell, or export the table again as CSV in UTF-8",
                )


def _uneven(number: int, row: list[str], names: list[str], *, last: bool) -> CadError:
    """Return the error for a row with fewer or more cells than the row of column names."""
    problem = f"row {number} has {len(row)} cell(s) where row 1, the head, has {len(names)}"
    if len(row) < len(names):
        absent = names[len(row) :]
        named = ", ".join(map(repr, absent[:3]))
        n_further = len(absent) - 3
        further = f" and {n_further} more" if n_further > 0 else ""
        problem += f": it ends with {row[-1]!r} in column {names[len(row) - 1]!r}"
        problem += f", and nothing is in column {named}{further}"
        hint = "fill in the cells, or leave them empty between separators"
        if last:
            hint = "the last row: where the file was cut off, export it again; else fill in the row"
        return CadError(problem, hint=hint)

    # A decimal comma cuts a number into two cells of digits. The second counts only from two digits
    # on: a single digit is more often a number of its own.
    cut_numbers = []  # indices of their first cells
    for index, (before, after) in enumerate(pairwise(row)):
        if re.fullmatch(r"[+-]?[0-9]+", before) and re.fullmatch(r"[0-9]{2,}", after):
            cut_numbers.append(index)
    if len(cut_numbers) == 1 and len(row) == len(names) + 1:
        index = cut_numbers[0]
        before = row[index]
        after = row[index + 1]
        problem += (
            f"; cells {index + 1} and {index + 2}, {before!r} and {after!r} from column "
            f"{names[index]!r} on, look like one number with a decimal comma"
        )
        return CadError(problem, hint=f"write {before}.{after}, or put quotes about the cell")
    return CadError(
        f"{problem}: {row[len(names)]!r} is beyond the last column, {names[-1]!r}",
        hint="a cell that holds the separator is put in quotes; a cell too many is taken out",
    )


def _completed_names(names: list[str]) -> list[str]:
    """Return the names of a table's columns, with a name for each column that has none.

    An error is raised if the first row holds numbers, if a name is unusable, or if two columns have
    the same name.
    """
    numbers = [name for name in names if _HEAD_NUMBER.fullmatch(name)]
    if len(numbers) > len(names) / 2:
        raise CadError(
            f"row 1 holds numbers ({', '.join(numbers[:3])}), where the names of the columns are "
            "expected",
            hint="put a row of names above the first region",
        )
    # Two equal names are refused below, with the numbers of both columns.
    different_names = list(dict.fromkeys(names))
    check_names(different_names)

    completed = []
    for index, name in enumerate(names):
        # pandas gives a column without a name a name such as ``Unnamed: 3``. The same is done here.
        completed.append(name or f"Unnamed: {index}")

    first_column: dict[str, int] = {}  # number of the first column of each name, from 1
    for column, name in enumerate(completed, start=1):
        if name in first_column:
            raise CadError(
                f"columns {first_column[name]} and {column} are both called {name[:80]!r}",
                hint="rename or remove one of them; a table on its side is turned, so that a row "
                "is a region",
            )
        first_column[name] = column
    return completed


def _decimal_comma(table: pd.DataFrame, rows: np.ndarray, decimal: str, notes: list[str]) -> bool:
    """Tell whether numbers have a decimal comma.

    If some have a comma and others a point, or if it cannot be told, an error is raised.
    """
    if decimal:
        return decimal == "comma"
    # The first number with a comma and the first with a point: cell, column and row.
    comma = ("", "", 0)
    point = ("", "", 0)
    comma_is_decimal = False
    for name in table.columns:
        for row, cell in zip(rows, table[name], strict=True):
            if _COMMAS.fullmatch(cell):
                comma = comma if comma[0] else (cell, str(name), int(row))
                # A comma as in 1,234 may separate thousands. A comma as in 0,75 or 12,5 must be a
                # decimal comma.
                comma_is_decimal = comma_is_decimal or not _THOUSANDS.fullmatch(cell)
            elif not point[0] and _POINTS.fullmatch(cell):
                point = (cell, str(name), int(row))
        if comma[0] and point[0] and comma_is_decimal:  # no further column can change the answer
            break
    comma_cell, comma_column, comma_row = comma
    point_cell, point_column, point_row = point
    if not comma_cell:
        return False
    if point_cell:
        raise CadError(
            f"column {comma_column!r}, row {comma_row}: {comma_cell!r} {_with_comma(comma_cell)}, "
            f"and column {point_column!r}, row {point_row}: {point_cell!r} has a decimal point, "
            "where a table writes all numbers alike",
            hint=f"write {comma_cell.replace(',', '.')}{_or_whole(comma_cell)} in row {comma_row}"
            f"{_one_of_two(comma, point)}",
        )
    if not comma_is_decimal:
        raise CadError(
            f"column {comma_column!r}, row {comma_row}: {comma_cell!r} {_with_comma(comma_cell)}, "
            "and no other cell tells which",
            hint="--decimal comma where it is a decimal number; else write thousands without comma",
        )
    notes.append("numbers are written with a decimal comma")
    return True


def _with_comma(cell: str) -> str:
    """Return the possible meanings of a number with a comma, in words."""
    if _THOUSANDS.fullmatch(cell):
        decimal = cell.replace(",", ".")
        return f"is a thousand ({cell.replace(',', '')}) or a decimal number ({decimal})"
    return "has a decimal comma"


def _or_whole(cell: str) -> str:
    """Return, for advice, the whole number that a number such as 1,234 may be; else empty."""
    return f" or {cell.replace(',', '')}" if _THOUSANDS.fullmatch(cell) else ""


def _one_of_two(comma: tuple[str, str, int], point: tuple[str, str, int]) -> str:
    """Return advice for a table with a decimal comma in one column and a decimal point in another.

    The table can be read if one of the two columns is no feature. The advice is therefore which
    decimal sign to state in each of these two cases. ``comma`` and ``point`` hold a cell, its
    column and its row. The text is empty if both cells are in one column.
    """
    _, comma_column, _ = comma
    _, point_column, _ = point
    if comma_column == point_column:
        return ""
    return (
        f"; --decimal point where {comma_column!r} is no feature, --decimal comma where "
        f"{point_column!r} is none"
    )
