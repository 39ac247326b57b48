"""Write results as text: a table as Markdown, an interval in a line."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd


def to_markdown(table: pd.DataFrame) -> str:
    """Return a table as a Markdown pipe table in which columns of numbers are aligned right.

    Parameters
    ----------
    table : DataFrame
        The rows; the index is left out. NaN, infinity and None become a dash.
    """
    titles = []
    rules = []
    for column in table.columns:
        titles.append(str(column))
        rules.append("---:" if pd.api.types.is_numeric_dtype(table[column]) else "---")
    lines = [titles, rules]
    for row in table.itertuples(index=False, name=None):
        lines.append([_rounded_cell(value).replace("|", r"\|") for value in row])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def interval_text(interval: object, digits: int = 3) -> str:
    """Return a value with its confidence interval as text, such as ``0.843 [0.791, 0.885]``.

    Where an end of the interval is missing, only the value is shown. A dash stands for a missing
    value.

    Parameters
    ----------
    interval : object
        A number, or ``value``, ``lower`` and ``upper`` as attributes or in a mapping; or None.
    digits : int
        Decimals.
    """
    numbers: Mapping[str, Any] = {}
    if isinstance(interval, float | int):
        numbers = {"value": interval}
    elif isinstance(interval, Mapping):
        numbers = interval
    elif interval:  # an object with these attributes
        numbers = vars(interval)
    value = _fixed(numbers.get("value"), digits)
    lower = _fixed(numbers.get("lower"), digits)
    upper = _fixed(numbers.get("upper"), digits)
    return value if "–" in (value, lower, upper) else f"{value} [{lower}, {upper}]"


def side_of_half(mean: float) -> str:
    """Return whether the mean of the readers' probabilities is above, below or at one half.

    Parameters
    ----------
    mean : float
        Mean of the readers' probabilities of malignancy of one region.

    Returns
    -------
    {"suspicious", "not suspicious", "equivocal"}
        Above, below and at one half.
    """
    if mean > 0.5:
        return "suspicious"
    if mean < 0.5:
        return "not suspicious"
    return "equivocal"


def _rounded_cell(value: object) -> str:
    """Return a number with three significant digits, a whole number in full, and NaN as a dash."""
    # A float64 of numpy is a float, too.
    if not isinstance(value, float):
        return "–" if value is None else str(value)
    if not np.isfinite(value):
        return "–"
    # From 1000 on, three significant digits would be written with an exponent.
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _fixed(value: float | None, digits: int) -> str:
    """Return a number with this many decimals; a dash for a missing number."""
    is_missing = value is None or not np.isfinite(value)
    return "–" if is_missing else f"{value:.{digits}f}"
