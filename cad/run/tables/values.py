"""Turn the texts of a column into numbers, scores or histology. Errors name column and row."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.reading import PLAIN_NUMBER
from cad.learning.labels.scales import check_score
from cad.run.tables.dialects import Cells
from cad.run.tables.names import as_typed

MISSING = ("", "NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "None", "<NA>", ".", "-")
"""Texts that stand for a missing value in every table."""
LARGEST = 1e100
"""Largest allowed absolute value of a number. Features are scaled by their variance, in which the
square of a larger number could overflow.
"""
_COMMA = re.compile(r"[+-]?(?:[0-9]+,?[0-9]*|,[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORDED = re.compile(
    r"(?:(?:PI-?RADS|Likert|score)\s*)?([0-9]+(?:[.,][0-9]+)?)\s*(?:%|[(\[:=–-]?\s*[A-Za-z][^0-9]*)?",
    re.IGNORECASE,
)
"""Matches a score with words around it, such as ``5 (sure)``, ``PI-RADS 4`` or ``3 - equivocal``.
"""
TRUE_WORDS = (
    "malignant",
    "true",
    "1",
    "yes",
    "positive",
    "cancer",
    "y",
    "t",
    "pos",
    "case",
)
FALSE_WORDS = (
    "benign",
    "false",
    "0",
    "no",
    "negative",
    "no cancer",
    "n",
    "f",
    "neg",
    "control",
)
"""Words for a malignant or positive result (TRUE_WORDS) and for a benign or negative one
(FALSE_WORDS), in lower case.
"""
_GRADE = re.compile(
    r"(?:(?:ISUP|GGG|GG|grade group)\s*)?(>=|<=|≥|≤|)\s*([0-5])(?:[.,]0+)?", re.IGNORECASE
)
_GLEASON = re.compile(r"gleason|^[2-5]\s*\+\s*[2-5]", re.IGNORECASE)
_GRADES = (
    "write the grade of the score: 3+3 is 1, 3+4 is 2, 4+3 is 3, 4+4, 3+5 and 5+3 are 4, 9 and 10 "
    "are 5; 0 is no cancer"
)
"""Advice on how a Gleason score becomes a grade group (Epstein et al., Am J Surg Pathol 40 (2016)
244).
"""
_DATE = re.compile(
    r"[0-9]{1,4}([-./])[0-9]{1,2}\1[0-9]{1,4}(?:[ T].*)?"
    r"|[0-9]{1,2}[-./ ]*(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*.*",
    re.IGNORECASE,
)
_SHOWN = 40
_CATEGORIES = 6


@dataclass(frozen=True)
class Meaning:
    """Say how the texts of a table become values.

    Parameters
    ----------
    decimal_comma : bool
        Whether numbers are written with a decimal comma, as in 0,75.
    missing : tuple of str
        Texts that stand for a missing value, in addition to :data:`MISSING`.
    of_model : bool
        Whether the columns are those that a model needs. No column can be left out then.
    """

    decimal_comma: bool = False
    missing: tuple[str, ...] = ()
    of_model: bool = False

    def without(self, name: str) -> str:
        """Return, for a message, the advice to leave a column out, with a comma before it.

        The text is empty where the column cannot be left out.
        """
        return "" if self.of_model else f", or leave the column out with --ignore {as_typed(name)}"

    def absent(self, cell: str) -> bool:
        """Tell whether a cell stands for a missing value."""
        return cell in MISSING or cell in self.missing

    def number(self, cell: str) -> float | None:
        """Return the number in a cell; None where the cell holds no finite number."""
        pattern = _COMMA if self.decimal_comma else PLAIN_NUMBER
        if not pattern.fullmatch(cell):
            return None
        return float(cell.replace(",", "."))


def numbers(cells: Cells, name: str, meaning: Meaning) -> np.ndarray:
    """Return a feature column as numbers, shape (n,), NaN where missing.

    Parameters
    ----------
    cells : Cells
        The table, with cells as texts.
    name : str
        Name of the column.
    meaning : Meaning
        Decimal sign and codes of missing values.

    Raises
    ------
    CadError
        For the first cell that is no number, or one beyond :data:`LARGEST`. The message has column,
        row and value.
    """
    column = cells.table[name]
    # Most columns hold plain numbers only. All cells of such a column are converted together,
    # because this is faster.
    quick = _quick_numbers(column, meaning)
    if quick is not None:
        return quick
    values = np.full(len(column), np.nan)
    unusable: list[int] = []  # indices of rows
    for index, cell in enumerate(column):
        if meaning.absent(cell):
            continue
        value = meaning.number(cell)
        if value is None or abs(value) > LARGEST:
            unusable.append(index)
        else:
            values[index] = value
    if unusable:
        n_numbers = int(np.isfinite(values).sum())
        raise _no_number(cells, name, meaning, unusable, n_numbers)
    return values


def _quick_numbers(column: pd.Series, meaning: Meaning) -> np.ndarray | None:
    """Return a column of plain numbers as an array, with NaN for missing values.

    The result is None if any cell is neither a plain number nor a missing value, or if a number is
    beyond :data:`LARGEST`.
    """
    if meaning.decimal_comma:  # numpy reads a decimal point only
        return None
    absent = column.map(meaning.absent).to_numpy(bool)
    texts = column.to_numpy(dtype=object)[~absent]
    if not all(map(PLAIN_NUMBER.fullmatch, texts)):
        return None
    values = np.full(len(column), np.nan)
    values[~absent] = texts.astype(float)
    return None if (np.abs(values) > LARGEST).any() else values


def _no_number(
    cells: Cells, name: str, meaning: Meaning, unusable: list[int], n_numbers: int
) -> CadError:
    """Return the error for cells of a feature that are not usable numbers, with advice.

    ``unusable`` has the indices of the rows with such cells, and ``n_numbers`` is the number of
    cells that are numbers.
    """
    # The message shows the first such cell. One text in all of them may be a code for missing
    # values; a text that is too long to be shown is none.
    texts = [str(cells.table[name].iloc[index]) for index in unusable]
    distinct_texts = sorted(set(texts))
    cell = texts[0]
    where = f"column {name!r}, row {cells.rows[unusable[0]]}: {_short(cell)}"
    may_be_code = len(distinct_texts) == 1 and len(cell) <= _SHOWN

    # The cell holds a number, but one that is too large.
    value = meaning.number(cell)
    if value is not None:
        hint = f"correct the cell{meaning.without(name)}"
        if len(cell) <= _SHOWN:
            hint = f"--missing={quote(cell)} where it stands for a missing value; else {hint}"
        return CadError(
            f"{where} is larger than {LARGEST:g} in size, which no feature is", hint=hint
        )

    # A column that a model needs is a feature for certain, and cannot be left out.
    if meaning.of_model:
        hint = "correct the cells"
        if may_be_code:
            hint = f"--missing={quote(cell)} where it stands for a missing value; else {hint}"
        return CadError(
            f"{where} {_broken_rule(cell)}; the model learned from numbers in this column, and "
            f"{n_numbers} other cells are numbers",
            hint=hint,
        )

    # A column without any number is probably no feature.
    if n_numbers == 0 and len(distinct_texts) <= _CATEGORIES:
        return CadError(
            f"{where} is a category ({', '.join(map(_short, distinct_texts))} in {len(unusable)} "
            "rows), and a feature is a number",
            hint=f"leave it out with --ignore {as_typed(name)}, or give every category a column of "
            "0 and 1 in the table",
        )
    quoted_number = _quoted_number(cell)
    if n_numbers == 0 and quoted_number:
        return CadError(
            f"{where} is the number {quoted_number} among signs that make it a text, as are all "
            f"{len(unusable)} cells of the column",
            hint=f"write {quoted_number}: export the column as numbers{meaning.without(name)}",
        )
    if n_numbers == 0:
        return CadError(
            f"{where} {_broken_rule(cell)}; no cell of the column is a number",
            hint=f"leave it out with --ignore {as_typed(name)}, or name its role with --id, "
            "--patient, --site, --reader or --histology",
        )

    # Other cells are numbers, so the column is a feature with a wrong cell.
    further = f" and {len(unusable) - 1} other cell(s) of the column" if len(unusable) > 1 else ""
    hint = f"correct the cell{meaning.without(name)}"
    plain_number = _digits(cell) or quoted_number
    if plain_number:
        hint = f"write {plain_number}{meaning.without(name)}"
    elif may_be_code:
        hint = f"--missing={quote(cell)} where it stands for a missing value; else {hint}"
    if not meaning.decimal_comma and _COMMA.fullmatch(cell):
        hint = f"--decimal comma where numbers are written so; else {hint}"
    return CadError(
        f"{where}{further} {_broken_rule(cell)}; {n_numbers} other cells are numbers", hint=hint
    )


def _broken_rule(cell: str) -> str:
    """Return, for a message, why a cell is no number that a feature may have."""
    lower = cell.lower().lstrip("+-")
    if lower in ("inf", "infinity"):
        return "is infinite, and a feature is a finite number"
    if lower in ("true", "false"):
        return "is a word of logic, and a feature is a number: write 1 and 0"
    if lower.startswith("0x"):
        return "is a number to the base 16, and a feature is written to the base 10"
    if cell.startswith("#"):
        return "is an error of a spreadsheet, and a feature is a number"
    if _digits(cell):
        return "is written with other signs than 0 to 9, + and -, which alone are read as a number"
    quoted_number = _quoted_number(cell)
    if quoted_number:
        return f"is the number {quoted_number} among signs that make it a text"
    if _DATE.fullmatch(cell):
        return "is a date, which a spreadsheet also makes of a number such as 1.2"
    if cell.startswith(("<", ">", "≤", "≥")):
        return "is a limit, and a feature is a number"
    return "is no number"


def _quoted_number(cell: str) -> str:
    """Return the number in a cell with signs that make it a text, such as ``'1.5`` or ``="1.5"``.

    The text is empty if the cell has no such signs.
    """
    inner = cell.removeprefix("=").strip("'\"`")
    return inner if inner != cell and PLAIN_NUMBER.fullmatch(inner) else ""


def _digits(cell: str) -> str:
    """Return a number in plain digits, with a plain minus, from a cell that writes it otherwise.

    Such a cell has the digits of another script or a typographic minus. The text is empty for any
    other cell.
    """
    plain = ""
    for sign in cell.replace("\u2212", "-").replace("\u2013", "-"):  # the minus, and the en dash
        digit = unicodedata.decimal(sign, None)  # None if the sign is no digit of any script
        plain += sign if digit is None else str(digit)
    return plain if plain != cell and PLAIN_NUMBER.fullmatch(plain) else ""


def _short(cell: str) -> str:
    """Return a cell for a message: in quotes, and shortened if it is long."""
    if len(cell) > _SHOWN:
        return f"'{cell[:_SHOWN]}…' ({len(cell)} characters)"
    return f"'{cell}'"


def scores(cells: Cells, name: str, scale: str, meaning: Meaning) -> np.ndarray:
    """Return a column of readers' scores as numbers on their scale, shape (n,), NaN where missing.

    Parameters
    ----------
    cells : Cells
        The table, with cells as texts.
    name : str
        The column. It has one reader's scores, or those of all readers where a row is one reading.
    scale : str
        Scale of the scores.
    meaning : Meaning
        Decimal sign and codes of missing values.

    Raises
    ------
    CadError
        For the first cell that is no score of the scale; the message has column, row and value.
    """
    values = np.full(len(cells.table), np.nan)
    # A column has few different scores, so each text is read once.
    score_of: dict[str, float] = {}
    for index, cell in enumerate(cells.table[name]):
        if meaning.absent(cell):
            continue
        if cell not in score_of:
            score_of[cell] = _score_of_cell(cells, name, index, cell, scale, meaning)
        values[index] = score_of[cell]
    return values


def _score_of_cell(
    cells: Cells, name: str, index: int, cell: str, scale: str, meaning: Meaning
) -> float:
    """Return the score in a cell of a column, alone or with words; raise an error if there is none.

    ``index`` is that of the row, and ``scale`` the scale on which the score must be.
    """
    where = f"column {name!r}, row {cells.rows[index]}"
    value = meaning.number(cell)
    if value is None:
        worded = _WORDED.fullmatch(cell)
        if worded is None:
            raise CadError(
                f"{where}: {_short(cell)} is no score: a score is a number, alone or with words "
                "after it, such as '5 (sure)'",
                hint=f"write the number, or --missing={quote(cell)} where nobody scored"
                f"{_out_of_scores(meaning)}",
            )
        value = float(worded[1].replace(",", "."))
    try:
        check_score(scale, value)
    except CadError as error:
        # The scale has advice on some scores only; for others it is given here.
        way_out = error.hint
        if not way_out:
            way_out = f"correct the cell, or --missing={quote(cell)} where nobody scored"
            if not meaning.of_model:
                way_out += f"; --scale for another scale than {scale} (likert5: 1 to 5; likert01: "
                way_out += "0 to 1; percent: 0 to 100; pirads: 1 to 5)"
        raise CadError(f"{where}: {error.problem}", hint=way_out) from None
    return value


def _out_of_scores(meaning: Meaning) -> str:
    if meaning.of_model:
        return ""
    return "; a column that holds no scores is taken out of --scores"


def worded(cells: Cells, name: str, meaning: Meaning) -> bool:
    """Tell whether a score of a column has words beside its number, such as ``5 (sure)``."""
    for cell in cells.table[name]:
        if not meaning.absent(cell) and meaning.number(cell) is None:
            return True
    return False


def histology(cells: Cells, name: str, isup_min: int | None, meaning: Meaning) -> list[str]:
    """Return the truth of every row from a column of histology.

    Parameters
    ----------
    cells : Cells
        The table, with cells as texts.
    name : str
        Name of the column.
    isup_min : int or None
        Lowest grade that counts as malignant, where the column holds grades; None where it holds
        two classes.
    meaning : Meaning
        Decimal sign and codes of missing values.

    Returns
    -------
    list of str, length n
        A grade such as ``3``, ``>=2`` or ``<=1`` where ``isup_min`` is given; else ``malignant`` or
        ``benign``. Empty where nothing is known.

    Raises
    ------
    CadError
        For the first cell that states no such result; the message has column, row and value.
    """
    stated: list[str] = []
    for index, cell in enumerate(cells.table[name]):
        if meaning.absent(cell):
            stated.append("")
        elif isup_min is None:
            stated.append(_class(cells, name, index, cell, meaning))
        else:
            stated.append(_grade(cells, name, index, cell, isup_min, meaning))
    return stated


def _class(cells: Cells, name: str, index: int, cell: str, meaning: Meaning) -> str:
    """Return ``malignant`` or ``benign`` for a cell of histology, or raise an error with advice."""
    word = " ".join(cell.lower().split())  # without capitals and doubled blanks
    number = meaning.number(cell)
    if number in (0.0, 1.0):
        word = str(int(number))  # such as "1" for "1.0"
    if word in TRUE_WORDS:
        return "malignant"
    if word in FALSE_WORDS:
        return "benign"
    where = f"column {name!r}, row {cells.rows[index]}: {_short(cell)}"
    if _GRADE.fullmatch(cell):
        raise CadError(
            f"{where} looks like an ISUP grade, and without --isup-min histology is 1 or 0, "
            "malignant or benign",
            hint="say from which grade on it counts as malignant: --isup-min 2 (clinically "
            "significant) or --isup-min 1 (any cancer); where it is one of two classes, write 1 or "
            "0",
        )
    if _GLEASON.search(cell):
        raise CadError(
            f"{where} is a Gleason score, and histology is stated in two classes, or with "
            "--isup-min as a grade",
            hint=_GRADES,
        )
    raise CadError(
        f"{where} is no histology: malignant or benign, 1 or 0, true or false, yes or no, positive "
        "or negative",
        hint=f"write one of these words, or --missing={quote(cell)} where it is not known",
    )


def _grade(cells: Cells, name: str, index: int, cell: str, isup_min: int, meaning: Meaning) -> str:
    """Return the grade in a cell, such as ``3`` or ``>=2``, or raise an error with advice."""
    number = meaning.number(cell)
    if number is not None and number in range(6):
        return str(int(number))
    match = _GRADE.fullmatch(cell)
    if match is not None:
        limit, grade = match.groups()
        return limit.replace("≥", ">=").replace("≤", "<=") + grade
    word = " ".join(cell.lower().split())  # without capitals and doubled blanks
    if word in FALSE_WORDS:
        return "0"
    # "Malignant" states no grade. It tells enough only if every grade counts.
    if word in TRUE_WORDS and isup_min == 1:
        return ">=1"
    where = f"column {name!r}, row {cells.rows[index]}: {_short(cell)}"
    if _GLEASON.search(cell):
        raise CadError(
            f"{where} is a Gleason score, and --isup-min {isup_min} needs an ISUP grade, 0 to 5",
            hint=_GRADES,
        )
    raise CadError(
        f"{where} is no ISUP grade: 0 (no cancer) to 5, or what is known of it, >=2 or <=1",
        hint="take --isup-min out where the column holds two classes; write the grade, or "
        f"--missing={quote(cell)} where it is not known",
    )


def ids(cells: Cells, name: str, option: str, meaning: Meaning) -> list[str]:
    """Return a column of names (patients, regions, readers) as texts.

    Parameters
    ----------
    cells : Cells
        The table, with cells as texts.
    name : str
        Name of the column.
    option : str
        Option that names the column, for the message.
    meaning : Meaning
        Texts that the user declared to stand for a missing value. ``NA`` and the like are names
        here, unless they are declared.

    Raises
    ------
    CadError
        For the first row without a name.
    """
    # NA and None may be the names of people, so they do not count as missing here. Only an empty
    # cell, or a code that the user declared, counts as missing.
    for index, cell in enumerate(cells.table[name]):
        if cell == "" or cell in meaning.missing:
            raise CadError(
                f"column {name!r}, row {cells.rows[index]}: {_short(cell)} names nobody, and "
                f"{option} is needed in every row",
                hint="fill in the cell, or take the row out of the table",
            )
    return [str(cell) for cell in cells.table[name]]


def described(cells: Cells, names: Sequence[str], meaning: Meaning) -> str:
    """Return a sentence on the missing values of feature columns; empty where none is missing."""
    counts: dict[str, int] = {}  # number of cells by the text that stands for a missing value
    for name in names:
        for cell in cells.table[name]:
            if meaning.absent(cell):
                counts[cell] = counts.get(cell, 0) + 1
    if not counts:
        return ""
    total = sum(counts.values())
    share = total / (len(names) * len(cells.table))
    clauses = []
    for cell, count in sorted(counts.items()):
        content = repr(cell) if cell else "empty"
        clauses.append(f"{content} {count}")
    return f"{total} cells of features are missing ({share:.1%}: {', '.join(clauses)})"
