"""Figures and rivals of the same measures, made once: where runs are made again and again."""

from __future__ import annotations

import pickle
from typing import Any

from cad.reports import pages
from cad.stages import validate

_made: dict[Any, Any] = {}
_draw: Any = pages.draw_figures
_compare: Any = validate._rivals


def draw_once(metrics: object, thresholds: object) -> Any:
    """Stand for ``pages.draw_figures``; the same arguments give what they gave before."""
    key = repr((metrics, thresholds))
    if key not in _made:
        _made[key] = _draw(metrics, thresholds)
    return _made[key]


def compare_once(loaded: Any, aggregated: Any, folds: Any, groups: Any) -> Any:
    """Stand for the comparison with rivals, which writes no file."""
    table = aggregated.table
    arrays = (table.X, table.y, table.spread, folds.probability, groups)
    key = pickle.dumps((repr(loaded.settings), arrays))
    if key not in _made:
        _made[key] = _compare(loaded, aggregated, folds, groups)
    return _made[key]
