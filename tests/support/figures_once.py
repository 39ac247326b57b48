"""Figures of the same measures, drawn once: where pages are written again and again."""

from __future__ import annotations

from typing import Any

from cad.reports import pages

_drawn: dict[str, Any] = {}
_draw: Any = pages.draw_figures


def draw_once(metrics: object, thresholds: object) -> Any:
    """Stand for ``pages.draw_figures``; the same arguments give what they gave before."""
    key = repr((metrics, thresholds))
    if key not in _drawn:
        _drawn[key] = _draw(metrics, thresholds)
    return _drawn[key]
