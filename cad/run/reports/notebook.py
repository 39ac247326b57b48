"""Show a validation in a notebook: its sentence, figures and table as one piece of HTML."""

import base64
from collections.abc import Sequence

import pandas as pd

from cad.base.terms.measures import MEASURES
from cad.base.terms.text import interval_text
from cad.learning.evaluation.summary import Summary
from cad.run.reports.figures import draw_figures
from cad.run.reports.pages import template

SHOWN = ("reliability", "roc")
"""Figures that a notebook shows; a run folder has all figures."""


def validation_html(
    sentence: str, notes: Sequence[str], comparison: pd.DataFrame, metrics: Summary
) -> str:
    """Return a validation as HTML that a notebook can show.

    Text from the user (names of learners, readers, columns) is escaped. Each figure is embedded as
    an image, so that the styles of the notebook do not change it.

    Parameters
    ----------
    sentence : str
        Sentence that names the best learner.
    notes : sequence of str
        Remarks on the numbers (:class:`cad.run.api.Validation`).
    comparison : DataFrame
        One row for each learner, measure and truth (:class:`cad.run.api.Validation`).
    metrics : Summary
        Measures of the validation.
    """
    drawn = draw_figures(metrics, None)
    figures = []
    for name in SHOWN:
        if name in drawn:  # a figure without data is not drawn
            title, caption, svg = drawn[name]
            figures.append((title, caption, base64.b64encode(svg.encode()).decode()))
    # The table has a row for each learner, and a column for each measure against one truth.
    heads = comparison[["against", "measure"]].drop_duplicates().itertuples(index=False)
    columns = [(against, measure) for against, measure in heads]
    rows = []
    for learner, rows_of_learner in comparison.groupby("learner", sort=False):
        cells = {(row.against, row.measure): _cell(row) for row in rows_of_learner.itertuples()}
        rows.append((str(learner), [cells.get(column, "–") for column in columns]))
    titles = [f"{MEASURES[measure].title} to {against}" for against, measure in columns]
    return template("validation.html.j2").render(
        sentence=sentence, notes=list(notes), figures=figures, titles=titles, rows=rows
    )


def _cell(row: object) -> str:
    """Return the measure in a row of the comparison as text.

    A star marks a measure that differs from the same measure of the validated learner by more than
    chance.
    """
    text = interval_text(row.value, MEASURES[row.measure].digits)  # type: ignore[attr-defined]
    return f"{text} *" if row.beyond_chance else text  # type: ignore[attr-defined]
