"""Log what a node does: one JSON line an event on standard output, without identities."""

import json
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime

_lock = threading.Lock()


def tell(event: str, **facts: object) -> None:
    """Write one line of the node's log on standard output.

    Parameters
    ----------
    event : str
        What happened.
    **facts : object
        Keys, numbers and messages that name nobody.
    """
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = json.dumps({"time": now, "event": event, **facts})
    with _lock, suppress(OSError):  # a log that cannot be written stops no study
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
