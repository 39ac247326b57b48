"""Tables of results as Markdown, CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from cad.evaluation.intervals import Interval

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)


def to_markdown(table: pd.DataFrame, digits: int = 3) -> str:
    """A pipe table; numbers right-aligned, NaN as a dash."""
    texts = _texts(table, digits, lambda text: text.replace("|", r"\|"))
    rule = ["---:" if pd.api.types.is_numeric_dtype(table[c]) else "---" for c in table.columns]
    lines = [list(map(str, table.columns)), rule, *texts]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_csv(table: pd.DataFrame) -> str:
    """Full precision, missing values empty."""
    return table.to_csv(index=False, lineterminator="\n")


def to_latex(table: pd.DataFrame, digits: int = 3) -> str:
    """A ``tabular`` with booktabs rules."""
    texts = _texts(table, digits, lambda text: text.translate(_LATEX))
    align = "".join("r" if pd.api.types.is_numeric_dtype(table[c]) else "l" for c in table.columns)
    head = " & ".join(str(c).translate(_LATEX) for c in table.columns)
    body = "".join(" & ".join(line) + " \\\\\n" for line in texts)
    return (
        f"\\begin{{tabular}}{{{align}}}\n\\toprule\n{head} \\\\\n\\midrule\n"
        f"{body}\\bottomrule\n\\end{{tabular}}\n"
    )


FORMATS: dict[str, Callable[[pd.DataFrame], str]] = {
    "md": to_markdown,
    "csv": to_csv,
    "tex": to_latex,
}


def interval_text(interval: Interval | Mapping[str, object], digits: int = 3) -> str:
    """``.843 (.791 to .885)``-like text of an interval, or of its JSON form."""
    found = interval if isinstance(interval, Mapping) else vars(interval)
    value, lower, upper = (_number(found[k], digits) for k in ("value", "lower", "upper"))
    return value if lower == "–" else f"{value} ({lower} to {upper})"


def _texts(table: pd.DataFrame, digits: int, escape: Callable[[str], str]) -> list[list[str]]:
    return [
        [escape(_cell(value, digits)) for value in row]
        for row in table.itertuples(index=False, name=None)
    ]


def _cell(value: object, digits: int) -> str:
    if isinstance(value, float | np.floating):
        return _number(value, digits)
    return "–" if value is None else str(value)


def _number(value: object, digits: int) -> str:
    if value is None:
        return "–"
    number = float(str(value))
    if not np.isfinite(number):
        return "–"
    if 0 < abs(number) < 10**-digits:
        return f"{number:.1g}"
    return f"{number:.{digits}f}" if abs(number) < 1000 else f"{number:.4g}"
