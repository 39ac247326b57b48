"""Print ``docs/results.md``: every column of a run's tables, from their schema."""

from __future__ import annotations

from cad.folders.run_folder.schema import (
    DETECTOR_COLUMNS,
    EARLIER_COLUMNS,
    EXPLANATION_RESULT_COLUMNS,
    FAILURE_RESULT_COLUMNS,
    MAN_COLUMNS,
    OUTLINE_RESULT_COLUMNS,
    REGION_COLUMNS,
    ResultColumn,
)

TABLES = (
    ("`probabilities.csv`: one row a region", REGION_COLUMNS),
    ("More of `probabilities.csv` where software outlined regions", DETECTOR_COLUMNS),
    ("More of `probabilities.csv` with `--outlines`", OUTLINE_RESULT_COLUMNS),
    ("`patients.csv`: one row a man", MAN_COLUMNS),
    ("`explanations.csv`: one row a feature of a region", EXPLANATION_RESULT_COLUMNS),
    (
        "`earlier.csv`: one row a region of a man with several studies (if there is such a man)",
        EARLIER_COLUMNS,
    ),
    ("`failures.csv`: one row a study or region without a result", FAILURE_RESULT_COLUMNS),
)
KINDS = {
    "text": "text",
    "whole": "whole number",
    "number": "number",
    "share": "0 to 1",
    "truth": "1, 0 or empty",
    "list": "texts, `;` between",
    "pairs": "reader and value, `r1=3; r2=4`",
}


def table(columns: tuple[ResultColumn, ...]) -> list[str]:
    """Return the lines of a table of columns, in their order.

    Parameters
    ----------
    columns : tuple of ResultColumn
        Columns of one file.
    """
    lines = ["| column | values | meaning | since |", "|---|---|---|---|"]
    for column in columns:
        values = KINDS[column.kind]
        if column.unit:
            values += f", {column.unit}"
        lines.append(f"| `{column.name}` | {values} | {column.meaning} | {column.since} |")
    return lines


def results_page() -> str:
    """Return the page."""
    lines = [
        "# Columns of the results",
        "",
        "*For whoever reads a run folder by program: what does each column hold?*",
        "",
        "This page is generated from `cad/folders/run_folder/schema.py` by",
        "`python scripts/results_page.py`. An empty cell says that something is unknown or was not",
        "computed. `since` is the version in which a column got its present meaning.",
    ]
    for title, columns in TABLES:
        lines += ["", f"## {title}", "", *table(columns)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(results_page(), end="")
