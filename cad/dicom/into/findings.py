"""Read tables of findings: lesions that are given as points, as PROSTATEx has them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cad.base.errors import CadError
from cad.base.files import CONTROL
from cad.base.reading import bare_name, plain_number, read_numbered_rows, whole_cell
from cad.dicom.into.rules import ImportRules
from cad.dicom.into.sources import SourceStudy, leads_out
from cad.folders.cohort.rules import ZONES

PATIENT_COLUMN = "ProxID"
_COLUMNS = (PATIENT_COLUMN, "fid", "pos")
_OPTIONAL_COLUMNS = ("zone", "ClinSig")
_NO_ZONE = ("", "N/A", "NA", "NAN")
_LONGEST_SHOWN = 60  # characters of a cell that a message shows


@dataclass(frozen=True)
class FindingRow:
    """Hold one lesion of a table of findings.

    Parameters
    ----------
    file : Path
        The table.
    fid : str
        Id of the finding within the patient, as the table has it.
    name : str
        What messages call the finding: the number of its line where its id may name the patient.
    point : tuple of float
        Place in mm in the patient's coordinates (x, y, z).
    zone : str
        ``PZ``, ``TZ``, ``CZ``, ``AFS`` or ``n/a``.
    significance : str
        The cell ``ClinSig``; empty where the table has none.
    """

    file: Path
    fid: str
    name: str
    point: tuple[float, float, float]
    zone: str
    significance: str

    @property
    def content(self) -> tuple[object, ...]:
        """Return what two tables must state alike of one finding."""
        return self.fid, self.point, self.zone, self.significance.lower()


def findings_of(study: SourceStudy, rules: ImportRules, notes: list[str]) -> list[FindingRow]:
    """Return the findings of a study's patient.

    Parameters
    ----------
    study : SourceStudy
        The study in the source.
    rules : ImportRules
        Its ``findings`` names the table.
    notes : list of str
        Messages for the user are appended to it.

    Returns
    -------
    list of Finding
        In the order of the table, each finding once; empty where no table has a row of the patient.

    Raises
    ------
    CadError
        For a row without id, or whose position is no three numbers. When a finding is listed twice
        with different zone or ``ClinSig``. When two tables state different findings of the patient.
    """
    if rules.findings is None:
        return []
    taken: list[FindingRow] = []
    # Several tables may hold the patient. They must state the same findings, in any order.
    tables = findings_tables(study.tables, rules.findings.file)
    for path in tables:
        findings = _findings_in(path, study.patient_id, rules, notes)
        if not taken:
            taken = findings
            continue
        contents = {finding.content for finding in findings}
        if findings and contents != {finding.content for finding in taken}:
            raise CadError(
                f"{path} states other findings of this patient: one of the two tables is wrong",
                file=taken[0].file,
                hint="keep the table that is right",
            )
    if tables and not taken:
        notes.append(f"{rules.findings.file} has no row for this patient")
    return taken


def findings_tables(folders: Iterable[Path], name: str) -> list[Path]:
    """Return every table of findings below some folders.

    Parameters
    ----------
    folders : iterable of Path
        Folders that are searched, in this order.
    name : str
        File name of a table.
    """
    tables: dict[Path, Path] = {}  # by resolved path: a table that two links name counts once
    for folder in folders:
        for path in sorted(folder.rglob(name)):
            if path.is_file() and not leads_out(path, folder):
                tables.setdefault(path.resolve(), path)
    return list(tables.values())


def _findings_in(
    path: Path, patient_id: str, rules: ImportRules, notes: list[str]
) -> list[FindingRow]:
    """Return a patient's findings in one table, without repeated ones."""
    rows = []
    for line, row in read_numbered_rows(path, _COLUMNS):
        if names_patient(row[PATIENT_COLUMN], {patient_id.strip()}):
            rows.append((line, row))
    if not rows:
        return []
    _, first_row = rows[0]
    _check_optional_columns(path, columns=list(first_row))
    distinct: dict[tuple[object, ...], FindingRow] = {}
    for line, row in rows:
        finding = _finding_of_row(path, line, row, rules, notes)
        # Rows of one id at different places are different findings.
        first = distinct.setdefault((finding.fid, finding.point), finding)
        if first is finding:  # no earlier row has this id and place
            continue
        if first.content != finding.content:
            raise CadError(
                f"finding {finding.name} at {row['pos']} mm is listed twice, with different zone "
                "or ClinSig",
                file=path,
                hint="keep the row that is right",
            )
        notes.append(f"finding {finding.name} is listed twice in {path.name}: taken once")
    return list(distinct.values())


def _check_optional_columns(path: Path, columns: list[str]) -> None:
    """Refuse a misspelt column: its values would be lost, and nobody would notice it."""
    for wanted in _OPTIONAL_COLUMNS:
        if wanted in columns:
            continue
        for name in columns:
            if bare_name(name) == bare_name(wanted):
                raise CadError(
                    f"column {name!r} is not read; the column is called {wanted!r}",
                    file=path,
                    hint=f"rename the column to {wanted}",
                )


def _finding_of_row(
    path: Path, line: int, row: dict[str, str], rules: ImportRules, notes: list[str]
) -> FindingRow:
    """Return the finding in a row of a table; ``line`` is the row's line, for messages."""
    fid = whole_cell(row["fid"])
    if not fid:
        raise CadError(f"line {line} has no fid", file=path, hint="number the patient's findings")
    if CONTROL.search(fid):
        raise CadError(f"line {line} has a control character in fid", file=path)
    # Text that may name the patient is not shown in messages.
    name = fid if rules.keeps(fid) else f"of line {line}"
    numbers = [plain_number(text) for text in row["pos"].split()]
    # A text that is no number became None.
    x, y, z = numbers if len(numbers) == 3 else (None, None, None)
    if x is None or y is None or z is None:
        raise CadError(
            f"line {line}, finding {name}: pos {row['pos'][:_LONGEST_SHOWN]!r} is no three numbers "
            "with blanks between them",
            file=path,
            hint="write x, y and z of the lesion in mm, such as 25.7 31.9 -38.5",
        )
    zone = row.get("zone", "").strip().upper()  # the column is optional
    if zone == "AS":  # PROSTATEx's name of the anterior stroma, which is AFS in PI-RADS v2.1
        zone = "AFS"
    elif zone not in ZONES:
        if zone not in _NO_ZONE:
            notes.append(
                f"finding {name}: zone {row['zone'][:_LONGEST_SHOWN]!r} is none of "
                f"{' '.join(ZONES)} (or AS): the zone is unknown"
            )
        zone = "n/a"
    return FindingRow(
        file=path,
        fid=fid,
        name=name,
        point=(x, y, z),
        zone=zone,
        significance=whole_cell(row.get("ClinSig", "")),  # the column is optional
    )


def names_patient(cell: str, names: set[str]) -> bool:
    """Tell whether a cell of a table is one of some names of patients.

    Blanks around the cell do not count, and neither does ``.0`` after a number.

    Parameters
    ----------
    cell : str
        The cell.
    names : set of str
        Ids of patients without blanks around them.

    Returns
    -------
    bool
        True if the cell is one of the names.
    """
    return cell.strip() in names or whole_cell(cell) in names
