"""Python's search for unused cycles, made rare: loaded modules are a million objects that stay."""

import gc

# Python's own 700 make it look through all modules again and again while they are loaded, a fifth
# of that time. What cycles hold until then is some megabytes.
_THRESHOLDS = (50_000, 20, 100)


def collect_rarely() -> None:
    """Let Python's garbage collector run less often: call it when a process starts.

    Loading the libraries makes so many objects that its default would look through all of them many
    times.
    """
    gc.set_threshold(*_THRESHOLDS)


def leave_at_once() -> None:
    """Let Python end without freeing every loaded object: call it when a process ends."""
    gc.freeze()
