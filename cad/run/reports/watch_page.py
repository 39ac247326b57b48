"""The page of models at work: charts of drift, and challengers beside the champion."""

from collections.abc import Sequence

from cad.base.files import JsonObject
from cad.run.reports.pages import template

_WIDTH = 620.0
_HEIGHT = 110.0
_MARGIN = 6.0


def watch_page(summary: JsonObject, sentences: Sequence[str]) -> str:
    """Return the page as HTML: one file that loads nothing.

    Parameters
    ----------
    summary : dict
        What :func:`cad.run.workflows.watch.watch_summary` returns.
    sentences : sequence of str
        One for each contest: what it says so far.
    """
    charts = []
    for each in summary["charts"]:
        most = max([each["limit"] * 1.2, *each["upper"], *each["lower"]])
        charts.append(
            {
                **each,
                "rise": _points(each["upper"], 0.0, most),
                "fall": _points(each["lower"], 0.0, most),
                "at_limit": _height(each["limit"], 0.0, most),
            }
        )
    contests = []
    for each, sentence in zip(summary["contests"], sentences, strict=True):
        size = max(0.01, *(abs(value) for value in (*each["low"], *each["high"])))
        upper = _points(each["high"], -size, size)
        lower = _points(each["low"], -size, size).split()
        contests.append(
            {
                **each,
                "sentence": sentence,
                "band": " ".join([upper, *reversed(lower)]),
                "line": _points(each["mean"], -size, size),
                "at_zero": _height(0.0, -size, size),
                "size": size,
            }
        )
    page = template("watch.html.j2").render(
        summary=summary, charts=charts, contests=contests, width=_WIDTH, height=_HEIGHT
    )
    return str(page)


def _height(value: float, least: float, most: float) -> float:
    share = (value - least) / (most - least)
    return round(_HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN), 1)


def _points(values: Sequence[float], least: float, most: float) -> str:
    """Return the points of a line through values, from left to right, as SVG wants them."""
    step = (_WIDTH - 2 * _MARGIN) / max(len(values) - 1, 1)
    points = []
    for number, value in enumerate(values):
        points.append(f"{_MARGIN + number * step:.1f},{_height(value, least, most)}")
    return " ".join(points)
