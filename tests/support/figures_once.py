"""Let a function that computes and writes nothing be called once for the same arguments.

For where a command is run again and again, each time in a fork of one process: what the first run
has computed is there in every fork.
"""

from __future__ import annotations

import pickle
from typing import Any

from cad.run.reports import pages

_made: dict[bytes, bytes] = {}


def once(function: Any) -> Any:
    """Stand for a function; the same arguments give a copy of what they gave before."""

    def stand_in(*given: Any, **named: Any) -> Any:
        key = pickle.dumps((function.__module__, function.__qualname__, given, named))
        if key not in _made:
            _made[key] = pickle.dumps(function(*given, **named))
        return pickle.loads(_made[key])  # noqa: S301 - our own

    return stand_in


draw_once = once(pages.draw_figures)
