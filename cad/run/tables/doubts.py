"""Doubt what a column is taken for: features that are labels, readers, names or codes in disguise.

A column that says the answer makes every measure of a validation worthless, and nothing in the
numbers shows it. So a feature that is named like a role, looks like a reader's scale, almost equals
the labels, numbers the rows or holds a code for missing values stops the command, with the option
that would take it in and the one that would leave it out.
"""

import math
from collections.abc import Sequence
from shlex import quote

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.run.tables.dialects import Cells
from cad.run.tables.names import kind_of

_CODES = (-9.0, -99.0, -999.0, -9999.0, -99999.0, 99.0, 999.0, 9999.0, 99999.0)
_FAR = 3.0
"""How often the range of its other values lies between a code and the nearest of them."""
_EQUAL = 0.98
_EQUAL_CLASSES = 0.9
_MANY = 20
"""Correlation with the labels from which a column says them; of a column of two values from the
second on, where at least so many rows show it."""
_CHANCE = 1e-3
"""Chance, over all columns, that noise separates the classes, below which it is no chance."""
_LEAST = 8
"""Rows from which content is doubted; of fewer, chance can make anything."""


def doubt_names(names: Sequence[str], long_possible: bool) -> None:
    """Refuse a feature that is called like a role of a column.

    Parameters
    ----------
    names : sequence of str
        Columns taken for features that the user did not declare as such.
    long_possible : bool
        Whether the table may have a row a reading, so that ``--reader`` is offered.

    Raises
    ------
    CadError
        With the name, the role it speaks of and the options.
    """
    for name in names:
        kind = kind_of(name)
        if kind is None:
            continue
        typed = quote(name)
        taken = f"{kind.option} {typed}"
        if kind.option == "--scores" and long_possible:
            taken = f"--scores {typed} (a column a reader), --reader {typed} (a row a reading)"
        raise CadError(
            f"column {name!r} is named like {kind.title}, and would be learned from as a feature",
            hint=f"say what it is: {taken}, --ignore {typed}, or --features {typed} where it is a "
            "feature after all",
        )


def doubt_values(
    X: pd.DataFrame,
    names: Sequence[str],
    cells: Cells,
    belief: np.ndarray,
    truth: np.ndarray,
) -> None:
    """Refuse a feature whose values are those of something else.

    Parameters
    ----------
    X : DataFrame, shape (n, d)
        Features as numbers.
    names : sequence of str
        Columns of ``X`` that the user did not declare as features.
    cells : Cells
        The table, for the numbers of its rows.
    belief, truth : ndarray, shape (n,)
        The readers' mean probability, and histology as 1 or 0; NaN where unknown.

    Raises
    ------
    CadError
        With the column, the values, what they look like and the options.
    """
    if len(X) < _LEAST:
        return
    for name in names:
        values = X[name].to_numpy(float)
        _doubt_code(name, values, cells)
        _doubt_row_number(name, values)
        for labels, of in ((truth, "histology"), (belief, "the readers' mean")):
            _doubt_labels(name, values, labels, of, len(names))
        _doubt_scale(name, values)


def _way_out(name: str, taken: str) -> str:
    return (
        f"{taken}--ignore {quote(name)} leaves it out; --features {quote(name)} where it is a "
        "feature after all"
    )


def _doubt_code(name: str, values: np.ndarray, cells: Cells) -> None:
    """Doubt a value that is written for a missing one and lies far from all others."""
    for code in _CODES:
        coded = values == code
        others = values[np.isfinite(values) & ~coded]
        if not coded.any() or len(others) < _LEAST // 2:
            continue
        span = float(others.max() - others.min())
        gap = float(others.min() - code) if code < 0 else float(code - others.max())
        if gap <= 0 or gap < _FAR * span:
            continue
        row = cells.rows[int(coded.argmax())]
        text = str(cells.table[name].iloc[int(coded.argmax())])
        raise CadError(
            f"column {name!r}, row {row}: {text!r} (in {int(coded.sum())} rows) lies far from all "
            f"other values, {others.min():g} to {others.max():g}, as a code for a missing value "
            "does",
            hint=f"--missing={quote(text)} where it is one; --features {quote(name)} where it is a "
            "value",
        )


def _doubt_row_number(name: str, values: np.ndarray) -> None:
    if np.isfinite(values).all() and (np.diff(values) == 1).all():
        raise CadError(
            f"column {name!r} only numbers the rows: {values[0]:g}, {values[1]:g}, {values[2]:g} "
            "and so on",
            hint=_way_out(name, f"--id {quote(name)} where it names the regions; "),
        )


def _doubt_scale(name: str, values: np.ndarray) -> None:
    levels = np.unique(values[np.isfinite(values)])
    if len(levels) < 3:
        return
    for scale, steps in (("likert5", (1, 2, 3, 4, 5)), ("likert01", (0, 0.25, 0.5, 0.75, 1))):
        if np.isin(levels, steps).all():
            shown = ", ".join(f"{level:g}" for level in levels)
            raise CadError(
                f"column {name!r} holds nothing but {shown}, the scores of the scale {scale}: it "
                "looks like a reader's",
                hint=_way_out(name, f"--scores …,{quote(name)} --scale {scale} where it is one; "),
            )


def _doubt_labels(name: str, values: np.ndarray, labels: np.ndarray, of: str, columns: int) -> None:
    """Doubt a column that almost says the label of every row."""
    both = np.isfinite(values) & np.isfinite(labels)
    x = values[both]
    y = labels[both]
    if len(x) < _LEAST or np.ptp(x) == 0 or np.ptp(y) == 0:
        return
    centred_x = x - x.mean()
    centred_y = y - y.mean()
    size = float(np.sqrt((centred_x @ centred_x) * (centred_y @ centred_y)))
    r = float(centred_x @ centred_y) / size if size > 0 else 0.0
    way = _way_out(
        name, f"--histology {quote(name)} or --scores {quote(name)} where it is the label; "
    )
    # A correlation of .98 in eight rows has a chance of 1e-5 among noise, one of .9 in twenty less.
    classes = len(np.unique(x)) == 2 and len(x) >= _MANY
    if abs(r) >= (_EQUAL_CLASSES if classes else _EQUAL):
        raise CadError(
            f"column {name!r} almost equals {of} (correlation {r:.3f} in {len(x)} rows): learning "
            "from it would be learning the answer",
            hint=way,
        )
    if not np.isin(y, (0.0, 1.0)).all():
        return
    positive = x[y == 1]
    negative = x[y == 0]
    separated = positive.min() > negative.max() or positive.max() < negative.min()
    chance = 2 * columns / math.comb(len(x), len(positive))
    if separated and chance < _CHANCE:
        raise CadError(
            f"column {name!r} tells {of} without a mistake in all {len(x)} rows ({len(positive)} "
            "malignant): measured features do not, columns made from the label do",
            hint=way,
        )
