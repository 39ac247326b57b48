"""Make the page on models in use: charts of drift, and contests between two models.

The champion is the model whose results people see. A challenger scores the same men, and its
results are only compared with those of the champion.
"""

from collections.abc import Sequence

from cad.base.files import JsonObject
from cad.run.reports.pages import template

_WIDTH = 620.0
_HEIGHT = 110.0
_MARGIN = 6.0


def watch_page(summary: JsonObject, sentences: Sequence[str]) -> str:
    """Return the page on models in use as HTML: one file that loads no other file.

    Parameters
    ----------
    summary : dict
        Charts and contests (:func:`cad.run.workflows.watch.watch_summary`).
    sentences : sequence of str
        For each contest between a challenger and the champion, its result so far.
    """
    charts = []
    for chart in summary["charts"]:
        # The limit lies a little below the upper edge of the chart, unless a curve exceeds it.
        highest = max([chart["limit"] * 1.2, *chart["upper"], *chart["lower"]])
        charts.append(
            {
                **chart,
                "rise": _points_of_polyline(chart["upper"], 0.0, highest),
                "fall": _points_of_polyline(chart["lower"], 0.0, highest),
                "at_limit": _height(chart["limit"], 0.0, highest),
            }
        )
    contests = []
    for contest, sentence in zip(summary["contests"], sentences, strict=True):
        # Zero is in the middle of the chart. The least size keeps a chart from having no height.
        size = max(0.01, *(abs(value) for value in (*contest["low"], *contest["high"])))
        # The band is one polygon: from left to right along its upper edge, and back along its
        # lower edge.
        upper = _points_of_polyline(contest["high"], -size, size)
        lower = _points_of_polyline(contest["low"], -size, size).split()
        contests.append(
            {
                **contest,
                "sentence": sentence,
                "band": " ".join([upper, *reversed(lower)]),
                "line": _points_of_polyline(contest["mean"], -size, size),
                "at_zero": _height(0.0, -size, size),
                "size": size,
            }
        )
    page = template("watch.html.j2").render(
        summary=summary, charts=charts, contests=contests, width=_WIDTH, height=_HEIGHT
    )
    return str(page)


def _height(value: float, lowest: float, highest: float) -> float:
    """Return the y coordinate of a value in drawing units; the value ``highest`` is at the top."""
    share = (value - lowest) / (highest - lowest)
    return round(_HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN), 1)


def _points_of_polyline(values: Sequence[float], lowest: float, highest: float) -> str:
    """Return values as the ``points`` of an SVG polyline, at equal steps from left to right."""
    n_steps = max(len(values) - 1, 1)  # at least 1, so that nothing is divided by zero
    step = (_WIDTH - 2 * _MARGIN) / n_steps
    points = []
    for number, value in enumerate(values):
        points.append(f"{_MARGIN + number * step:.1f},{_height(value, lowest, highest)}")
    return " ".join(points)
