"""Look at a source's tables as a whole: files with a wrong name, and rows of unknown patients."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from cad.base.errors import printable
from cad.base.reading import bare_name
from cad.dicom.into.findings import names_patient

_WORKBOOKS = (".xls", ".xlsx", ".ods")
_TEXTS = (".csv", ".tsv", ".txt")
_NAMED = 5  # most rows or patients that a note names
_LONGEST = 40  # characters of an id that a note shows
_LONGEST_PATH = 200  # the same of a path


def misnamed_tables(folders: Iterable[Path], wanted: str, *, below: bool) -> list[str]:
    """Return a note for each file that is probably a table, but has another name than the rules
    say.

    Parameters
    ----------
    folders : iterable of Path
        Folders in which the table may lie.
    wanted : str
        Name of the table in the rules. A file counts as misnamed if its name differs only by
        capitals, or by the ending of another kind of table.
    below : bool
        Whether the table may also lie in folders below.
    """
    notes: dict[str, None] = {}  # its keys, in order: folders inside each other give a note once
    wanted_stem = Path(wanted).stem.casefold()
    for folder in folders:
        candidates = folder.rglob("*") if below else folder.iterdir()
        for path in sorted(candidates):
            suffix = path.suffix.lower()
            has_stem = path.stem.casefold() == wanted_stem
            if path.name == wanted or not has_stem or not path.is_file():
                continue
            if suffix in _WORKBOOKS:
                way_out = f"save its sheet as CSV (UTF-8) under the name {wanted}"
            elif suffix == Path(wanted).suffix.lower():
                way_out = f"rename it to {wanted}"
            elif suffix in _TEXTS:
                way_out = f"save it with commas under the name {wanted}"
            else:  # the file is no table
                continue
            place = printable(str(path.relative_to(folder)), _LONGEST_PATH)
            notes[f"{place} is not read: the table of the rules is {wanted}; {way_out}"] = None
    return list(notes)


def rows_of_nobody(
    rows: list[tuple[int, dict[str, str]]], column: str, names: set[str]
) -> list[tuple[int, str]]:
    """Return line and patient of each row whose patient has none of the names.

    Parameters
    ----------
    rows : list of (int, dict)
        Number of the line and cells of each row.
    column : str
        Column of the patient.
    names : set of str
        All names of the source's patients.
    """
    strange = []
    for line, row in rows:
        # An empty row at the end of a sheet is of nobody, and no mistake.
        if not names_patient(row[column], names) and any(cell.strip() for cell in row.values()):
            strange.append((line, row[column].strip()))
    return strange


def notes_on_strangers(
    path: Path, strange: list[tuple[int, str]], patients: Mapping[str, str], *, show_ids: bool
) -> list[str]:
    """Return notes on rows of a table that belong to no patient of the source.

    Parameters
    ----------
    path : Path
        The table.
    strange : list of (int, str)
        Line and patient of each such row.
    patients : mapping of str to str
        For each PatientID of the source, the label ``sub-XXX``. A row is probably of the patient
        whose id differs only by capitals, blanks, dashes, quotation marks or leading zeros.
    show_ids : bool
        Whether notes may show ids. Otherwise they name lines and labels alone.
    """
    # Ids are compared without what people and spreadsheets change in them.
    by_bare_id: dict[str, str] = {}
    for patient_id in patients:
        by_bare_id.setdefault(_bare_id(patient_id), patient_id)
    near = []  # a text for each row of a probable patient
    others = []  # line and cell of every other row
    for line, cell in strange:
        # An empty cell resembles no id.
        likely = by_bare_id.get(_bare_id(cell)) if cell else None
        if likely is None:
            others.append((line, cell))
        elif show_ids:
            shown = printable(cell, _LONGEST)
            near.append(f"line {line}: {shown!r} is no patient of the source, {likely!r} is")
        else:
            near.append(
                f"line {line} names no patient of the source, but nearly {patients[likely]}"
            )
    notes = []
    if near:
        listed = "; ".join(near[:_NAMED])
        if len(near) > _NAMED:
            listed += f"; and {len(near) - _NAMED} more rows"
        notes.append(
            f"{path.name}: {len(near)} rows are not used, because the patient's id is not exactly "
            f"that of the images: {listed}"
        )
    if others:
        # Ids are listed once each; where ids may not be shown, every line is listed.
        patients_named = {cell for _, cell in others}
        if show_ids:
            names = []
            for cell in sorted(patients_named)[:_NAMED]:
                names.append(repr(printable(cell, _LONGEST)))
            listed = ", ".join(names)
        else:
            listed = "lines " + ", ".join(str(line) for line, _ in others[:_NAMED])
        n_named = len(patients_named) if show_ids else len(others)
        if n_named > _NAMED:
            listed += f" and {n_named - _NAMED} more"
        notes.append(
            f"{path.name}: {len(others)} rows are not used, because they are of no patient of the "
            f"source: {listed}"
        )
    return notes


def _bare_id(patient_id: str) -> str:
    """Return an id without what people and spreadsheets change in it, such as leading zeros."""
    plain = bare_name(patient_id).strip("'\"=")
    return re.sub(r"(?<![0-9])0+(?=[0-9])", "", plain)
