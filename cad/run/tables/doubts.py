"""Find columns that are taken for features and seem to be something else.

They may be labels, readers' scores, names or codes. A column that reveals the label makes every
measure of a validation worthless, and no number of the validation shows this. Therefore an error is
raised for a feature in these cases:

- Its name suggests another role, or its values are those of a reader's scale.
- It is nearly equal to the labels.
- It counts the rows or the patients, or holds dates.
- It contains a code for missing values.

The message names the option that accepts the column and the option that leaves it out.
"""

import math
from collections.abc import Sequence
from shlex import quote

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.reading import bare_name
from cad.run.tables.dialects import Cells
from cad.run.tables.names import LISTS, as_typed, role_of_name
from cad.run.tables.roles import Roles

CODES = (-9.0, -99.0, -999.0, -9999.0, -99999.0, 99.0, 999.0, 9999.0, 99999.0)
"""Numbers that programs write where a value is missing."""
_FAR = 3.0
"""A value such as -999 counts as a code for missing values if it is far from all others: its
distance to the nearest of them is at least this number of times their range.
"""
_EQUAL = 0.98
_EQUAL_CLASSES = 0.9
_MANY = 20
"""A column counts as the label if its correlation with the labels is ``_EQUAL`` or more. For a
column of two values and at least ``_MANY`` rows, ``_EQUAL_CLASSES`` is enough.
"""
_CHANCE = 1e-3
"""A column that separates the classes without an error counts as the label if the probability that
any of the columns does so by chance is less than this.
"""
_LONGEST = 40
"""Largest number of characters of a cell that a message shows."""
_LEAST = 8
"""Least number of rows for checks of values. With fewer rows, chance can produce any pattern."""


def doubt_names(names: Sequence[str], cells: Cells, roles: Roles) -> None:
    """Raise an error for a feature whose name suggests that it is something else.

    Parameters
    ----------
    names : sequence of str
        Columns that are taken for features and that the user did not declare as features.
    cells : Cells
        The table, with cells as texts.
    roles : Roles
        What every column is; used for the options that the message offers.

    Raises
    ------
    CadError
        For such a feature. The message has the name, the role that the name suggests, and the
        options.
    """
    for name in names:
        kind = role_of_name(name)
        if kind is None:
            continue
        word = as_typed(name) if kind.option in LISTS else quote(name)
        option_with_column = f"{kind.option} {word}"
        if kind.option == "--scores" and roles.reader is None:
            option_with_column = f"--reader {quote(name)} (a row a reading)"
            first_cell = str(cells.table[name].iloc[0])
            # If the first cell is a word, the column holds readers' names and not scores.
            if first_cell.startswith(tuple("0123456789")):
                as_scores = f"--scores {_with(roles, name)} (a column a reader)"
                option_with_column = f"{as_scores}, {option_with_column}"
        raise CadError(
            f"column {name!r}, row {cells.rows[0]}: {_first_cell(cells, name)}: the column is "
            f"named like {kind.title}, and would be learned from as a feature",
            hint=f"say what it is: {option_with_column}, --ignore {as_typed(name)} to leave it "
            f"out, or --features {as_typed(name)} to take it as a feature after all",
        )


def _with(roles: Roles, name: str) -> str:
    """Return the value of the option ``--scores`` with one more column."""
    return ",".join(as_typed(column) for column in (*roles.scores, name))


def _first_cell(cells: Cells, name: str) -> str:
    """Return the first cell of a column, cut short."""
    return _quoted_cell(str(cells.table[name].iloc[0]))


def _quoted_cell(cell: str) -> str:
    """Return a cell for a message: in quotes, and shortened if it is long."""
    return repr(cell if len(cell) <= _LONGEST else f"{cell[:_LONGEST]}…")


def doubt_values(
    X: pd.DataFrame,
    names: Sequence[str],
    cells: Cells,
    roles: Roles,
    belief: np.ndarray,
    truth: np.ndarray,
) -> None:
    """Raise an error for a feature whose values suggest that it is something else.

    Parameters
    ----------
    X : DataFrame, shape (n, d)
        Features as numbers.
    names : sequence of str
        Columns of ``X`` that the user did not declare as features.
    cells : Cells
        The table, for the numbers of its rows.
    roles : Roles
        What every column is; used for the options that the message offers.
    belief, truth : ndarray, shape (n,)
        The readers' mean probability, and histology as 1 or 0; NaN where unknown.

    Raises
    ------
    CadError
        For such a feature. The message has the column, its values, what they seem to be, and the
        options.

    Examples
    --------
    The column ``x`` has in every row the same value as histology:

    >>> import numpy as np
    >>> import pandas as pd
    >>> from pathlib import Path
    >>> truth = np.array([0.0, 1.0] * 10)
    >>> X = pd.DataFrame({"x": truth})
    >>> table = X.astype(str).assign(patient=[f"man {number}" for number in range(20)])
    >>> cells = Cells(Path("table.csv"), table, np.arange(2, 22))
    >>> roles = Roles("patient", ("x",), ())
    >>> try:
    ...     doubt_values(X, ["x"], cells, roles, np.full(20, np.nan), truth)
    ... except CadError as error:
    ...     print("almost equal histology" in error.problem)
    True
    """
    if len(X) < _LEAST:
        return
    for name in names:
        values = X[name].to_numpy(float)
        _doubt_code(name, values, cells)
        _doubt_date(name, values, cells)
        _doubt_row_number(name, values, cells)
        _doubt_patient_number(name, values, cells, roles)
        for labels, source in ((truth, "histology"), (belief, "the readers' mean")):
            _doubt_labels(name, values, labels, source, len(names), cells)
        _doubt_scale(name, values, cells, roles)


def _way_out(name: str, first_option: str) -> str:
    """Return the options for a doubted column: ``first_option``, to leave it out, to take it."""
    return (
        f"{first_option}--ignore {as_typed(name)} leaves it out; --features {as_typed(name)} "
        "takes it as a feature after all"
    )


def _doubt_code(name: str, values: np.ndarray, cells: Cells) -> None:
    """Raise an error for a value such as -999 that is far from all others.

    Such a value probably stands for missing values.
    """
    for code in CODES:
        is_code = values == code
        others = values[np.isfinite(values) & ~is_code]
        # The range of very few values tells nothing.
        if not is_code.any() or len(others) < _LEAST // 2:
            continue
        span = float(others.max() - others.min())
        # A negative code lies below all other values, and a positive one above them.
        gap = float(others.min() - code) if code < 0 else float(code - others.max())
        if gap <= 0 or gap < _FAR * span:
            continue
        first = int(is_code.argmax())
        row = cells.rows[first]
        text = str(cells.table[name].iloc[first])
        raise CadError(
            f"column {name!r}, row {row}: {text!r} (in {int(is_code.sum())} rows) lies far from "
            f"all other values, {others.min():g} to {others.max():g}, as a code for a missing "
            "value does",
            hint=f"--missing={quote(text)} where it is one; --features {as_typed(name)} to take "
            "the column as it is, with this value",
        )


def _doubt_row_number(name: str, values: np.ndarray, cells: Cells) -> None:
    """Raise an error for whole numbers that rise, or fall, from row to row.

    Such a column probably numbers the rows and measures nothing.
    """
    if not _are_whole(values):
        return
    steps = np.diff(values)
    if (steps == 1).all():
        rule = "and so on only number the rows, and a feature measures something"
    elif (steps > 0).all() or (steps < 0).all():
        direction = "rises" if steps[0] > 0 else "falls"
        rule = f"and so on: the column {direction} with every row, as the number of a row does"
    else:
        return
    raise CadError(
        f"{_rows(name, cells)}: {values[0]:.15g}, {values[1]:.15g}, {values[2]:.15g} {rule}",
        hint=_way_out(name, f"--id {quote(name)} where it names the regions; "),
    )


def _doubt_patient_number(name: str, values: np.ndarray, cells: Cells, roles: Roles) -> None:
    """Raise an error for a column of whole numbers that count the patients in the table's order.

    Such a column probably numbers the patients and measures nothing.
    """
    if not _are_whole(values):
        return
    patients = cells.table[roles.patient].to_numpy(dtype=object)
    pairs = list(dict.fromkeys(zip(patients.tolist(), values.tolist(), strict=True)))
    numbers = np.array([number for _, number in pairs])
    # ``pairs`` has one pair of patient and number for each patient if no patient has two numbers.
    # Otherwise the column does not count patients.
    if len(pairs) != len(set(patients.tolist())) or len(pairs) < _LEAST:
        return
    if (np.diff(numbers) == 1).all():
        raise CadError(
            f"{_rows(name, cells)}: {numbers[0]:.15g}, {numbers[1]:.15g}, {numbers[2]:.15g} and "
            f"so on only number the patients of column {roles.patient!r}, and a feature measures "
            "something",
            hint=_way_out(name, f"--patient {quote(name)} where it names the patients; "),
        )


def _doubt_date(name: str, values: np.ndarray, cells: Cells) -> None:
    """Raise an error for a column whose numbers are all dates, such as 20240131."""
    # Numbers can be dates only between the years 1900 and 2100.
    dates = values[np.isfinite(values)]
    if (
        len(dates) < _LEAST
        or not _are_whole(dates)
        or dates.min() < 19000101
        or dates.max() > 21001231
    ):
        return
    # A number that is no day of the calendar, such as 20240199, becomes NaT.
    days = pd.to_datetime(
        pd.Series(dates).astype(int).astype(str), format="%Y%m%d", errors="coerce"
    )
    if days.notna().all():
        raise CadError(
            f"{_rows(name, cells)}: {dates[0]:.0f}, {dates[1]:.0f} and so on are all days of the "
            "calendar, which say when, and a feature is measured in an image",
            hint=_way_out(name, ""),
        )


def _are_whole(values: np.ndarray) -> bool:
    """Tell whether all values are whole numbers."""
    return bool(np.isfinite(values).all() and (values == np.rint(values)).all())


def doubt_alike(names: Sequence[str], column: str, cells: Cells) -> None:
    """Raise an error for two names that differ only by capitals, blanks, dashes or ``.0``.

    Parameters
    ----------
    names : sequence of str
        The patient, the site or the reader of every row.
    column : str
        The column that holds the names.
    cells : Cells
        The table, for the numbers of its rows.

    Raises
    ------
    CadError
        For two such names. The message has both names and their rows.
    """
    first_row_of: dict[str, int] = {}  # index of the first row by the name without such differences
    for row, name in enumerate(names):
        first = first_row_of.setdefault(bare_name(name), row)
        if names[first] != name:
            raise CadError(
                f"column {column!r}, row {cells.rows[first]}: {names[first]!r}, and row "
                f"{cells.rows[row]}: {name!r} differ by capitals, blanks, dashes or .0 alone: "
                "one name in two ways would count as two",
                hint="write both alike, or, where they are two, make them differ by a letter or a "
                "digit",
            )


def _rows(name: str, cells: Cells) -> str:
    """Return a text for a message: the column and the numbers of its rows."""
    return f"column {name!r}, rows {cells.rows[0]} to {cells.rows[-1]}"


def _column_and_cells(name: str, cells: Cells) -> str:
    """Return a text for a message: the column, the numbers of its rows and its first cells."""
    shown = ", ".join(_quoted_cell(str(cell)) for cell in cells.table[name].head(3))
    return f"{_rows(name, cells)}: {shown} and so on"


def _doubt_scale(name: str, values: np.ndarray, cells: Cells, roles: Roles) -> None:
    """Raise an error for a column whose values all are steps of a readers' scale."""
    levels = np.unique(values[np.isfinite(values)])
    if len(levels) < 3:  # two values, such as 0 and 1, may well be a feature
        return
    for scale, steps in (("likert5", (1, 2, 3, 4, 5)), ("likert01", (0, 0.25, 0.5, 0.75, 1))):
        if np.isin(levels, steps).all():
            shown = ", ".join(f"{level:g}" for level in levels)
            raise CadError(
                f"{_rows(name, cells)}: nothing but {shown}, the scores of the scale {scale}: the "
                "column looks like a reader's scores, which are no feature",
                hint=_way_out(
                    name, f"--scores {_with(roles, name)} --scale {scale} where it is one; "
                ),
            )


def _doubt_labels(
    name: str,
    values: np.ndarray,
    labels: np.ndarray,
    source: str,
    n_columns: int,
    cells: Cells,
) -> None:
    """Raise an error for a feature that is nearly equal to the label, or to its opposite.

    ``source`` names the label in the message. ``n_columns`` is the number of columns that are
    tried: with more columns, one of them is more often equal to the label by chance.
    """
    has_both = np.isfinite(values) & np.isfinite(labels)
    x = values[has_both]
    y = labels[has_both]
    if len(x) < _LEAST or np.ptp(x) == 0 or np.ptp(y) == 0:
        return
    centred_x = x - x.mean()
    centred_y = y - y.mean()
    size = float(np.sqrt((centred_x @ centred_x) * (centred_y @ centred_y)))
    # The squares of tiny differences may round to zero.
    correlation = float(centred_x @ centred_y) / size if size > 0 else 0.0
    way_out = _way_out(
        name, f"--histology {quote(name)} or --scores {as_typed(name)} where it is the label; "
    )
    # Noise hardly reaches the limits of the correlation. If column and label are unrelated, a
    # correlation of .98 over eight rows has a probability of 1e-5. A correlation of .9 over twenty
    # rows has a smaller one.
    has_two_values = len(np.unique(x)) == 2 and len(x) >= _MANY
    limit = _EQUAL_CLASSES if has_two_values else _EQUAL
    if abs(correlation) >= limit:
        kind = "a column of two values" if has_two_values else "a column"
        raise CadError(
            f"{_column_and_cells(name, cells)} almost equal {source}: the correlation is "
            f"{correlation:.3f} in {len(x)} rows, and from {limit:g} on {kind} says the answer, "
            "which would be learned instead of anything measured",
            hint=way_out,
        )

    # A column may also separate the two classes of a label without an error.
    if not np.isin(y, (0.0, 1.0)).all():
        return
    positive = x[y == 1]
    negative = x[y == 0]
    separated = positive.min() > negative.max() or positive.max() < negative.min()
    # Of all equally probable orders of the rows, two separate the classes: one by a rising and one
    # by a falling column. Any of the columns may do so.
    chance = 2 * n_columns / math.comb(len(x), len(positive))
    if separated and chance < _CHANCE:
        raise CadError(
            f"{_column_and_cells(name, cells)} tell {source} without a mistake in all {len(x)} "
            f"rows ({len(positive)} malignant): measured features do not, columns made from the "
            "label do",
            hint=way_out,
        )
