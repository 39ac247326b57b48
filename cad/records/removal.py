"""Remove one patient from a cohort, by one commit: rows, images, masks, and the key at the end.

Rows go from every table of the cohort that has a column ``participant_id``; the other rows keep
their bytes. Files and folders go that bear the patient's name, wherever they lie in the cohort. The
key of the pseudonyms, which can still prove whose a pseudonym was, goes with the last patient.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from pathlib import Path

from cad.cohort.patients import KEY_FILE, Patients
from cad.cohort.traces import Names, named_places, traces
from cad.errors import CadError
from cad.files import write_atomic
from cad.folders import commit, owned, stage
from cad.reading import reading, table_text

_PATIENTS = "participants.tsv"


@dataclass(frozen=True)
class Removed:
    """Hold what was removed from a cohort.

    Parameters
    ----------
    names : Names
        What names the patient: to look for elsewhere.
    rows : dict of str to int
        Rows that went, by table.
    places : list of str
        Files and folders that went, relative to the cohort.
    left : list of str
        Files of the cohort, not the program's, that still name the patient.
    """

    names: Names
    rows: dict[str, int] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def remove_patient(root: Path, patient: str) -> Removed:
    """Remove a patient from a cohort folder; a kill leaves the patient in it whole, or not at all.

    Parameters
    ----------
    root : Path
        Cohort folder.
    patient : str
        ``sub-XXX``, ``XXX``, or the PatientID that the cohort's key makes a pseudonym of.

    Returns
    -------
    Removed
        Without rows and places where the cohort does not hold the patient.

    Raises
    ------
    CadError
        For a folder that is no cohort, a table that cannot be read, or a cohort that another
        process changes.
    """
    check_cohort(root)
    with owned(root):
        names = names_of(root, patient)
        places = named_places(root, names)
        kept = {place: rows_without(root / place, names.participant) for place in _tables(root)}
        rows = {name: count for name, (_, count) in kept.items() if count}
        # Only the head is left: the key could prove nothing any more but who once was here.
        if _PATIENTS in rows and not kept[_PATIENTS][0].splitlines()[1:]:
            places += [KEY_FILE] if (root / KEY_FILE).is_file() else []
        if rows or places:
            with stage(root) as scratch:
                for number, name in enumerate(rows):
                    write_atomic(scratch / str(number), kept[name][0].encode())
                commit(root, {name: scratch / str(n) for n, name in enumerate(rows)}, places)
        return Removed(names, rows, places, traces(root, names, below=False))


def check_cohort(root: Path) -> None:
    """Refuse a folder that is no cohort.

    Raises
    ------
    CadError
        Naming the folder.
    """
    if not (root / _PATIENTS).is_file():
        raise CadError(f"no such cohort: it has no {_PATIENTS}", file=root)


def names_of(root: Path, patient: str) -> Names:
    """Return everything that names a patient in a cohort: label, PatientID and UIDs.

    Parameters
    ----------
    root : Path
        The cohort folder.
    patient : str
        ``sub-XXX``, ``XXX``, or the source's PatientID.

    Raises
    ------
    CadError
        For an empty name.
    """
    return Names.of(root, _participant(root, patient))


def _participant(root: Path, patient: str) -> str:
    """Return the BIDS label of a patient who is named by it, or by the source's PatientID."""
    label = "sub-" + re.sub("[^A-Za-z0-9]", "", patient.removeprefix("sub-"))
    if label == "sub-":
        raise CadError(f"{patient!r} names no patient", hint="give sub-XXX, or the source's id")
    if not (root / label).is_dir() and (root / KEY_FILE).is_file():
        pseudonym = Patients(root, "pseudonym", set()).participant(patient)
        return pseudonym if (root / pseudonym).is_dir() else label
    return label


def _tables(root: Path) -> list[str]:
    """Return the tables of the whole cohort, derivatives' too; one patient's own go with them."""
    places = [path.relative_to(root) for path in sorted(root.rglob("*.tsv"))]
    return [place.as_posix() for place in places if not place.parts[0].startswith("sub-")]


def rows_without(path: Path, participant: str) -> tuple[str, int]:
    """Return a table's text without the rows of a patient.

    Parameters
    ----------
    path : Path
        CSV or TSV; without a column ``participant_id`` nothing is removed.
    participant : str
        ``sub-XXX``.

    Returns
    -------
    text : str
        The other rows to the byte.
    count : int
        Rows that are gone.
    """
    comma = path.suffix == ".csv"
    separator = "," if comma else "\t"
    with reading(path, f"not a {'comma' if comma else 'tab'}-separated table"):
        # Kept by line of the file, not written anew from cells: the other rows stay to the byte,
        # also where a quoted cell holds a line break.
        lines = list(io.StringIO(table_text(path, separator), newline="\n"))
        if comma:
            rows = csv.reader(lines)
        else:
            rows = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE)
        if "participant_id" not in (columns := next(rows, [])):
            return "".join(lines), 0
        at, end = columns.index("participant_id"), rows.line_num
        kept, gone = lines[:end], 0
        for row in rows:
            begin, end = end, rows.line_num
            if row[at : at + 1] == [participant]:
                gone += 1
            else:
                kept += lines[begin:end]
    return "".join(kept), gone
