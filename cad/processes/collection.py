"""Python's search for unused cycles, made rare: loaded modules are a million objects that stay."""

from __future__ import annotations

import gc

# Python's own 700 make it look through all modules again and again while they are loaded, a fifth
# of that time. What cycles hold until then is some megabytes.
_THRESHOLDS = (50_000, 20, 100)


def collect_rarely() -> None:
    """Look for unused cycles after fifty thousand new objects; for a process's start."""
    gc.set_threshold(*_THRESHOLDS)


def leave_at_once() -> None:
    """Leave what is loaded to the system; for a process's end, which else frees every object."""
    gc.freeze()
