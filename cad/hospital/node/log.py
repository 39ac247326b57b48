"""Log the events of a node: one JSON line each on standard output, without identities."""

import json
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime

_lock = threading.Lock()


def tell(event: str, **facts: object) -> None:
    """Write one line of the node's log, a JSON object, on standard output.

    Parameters
    ----------
    event : str
        Name of the event.
    **facts : object
        Further values of the line; none may name a patient.
    """
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = json.dumps({"time": now, "event": event, **facts})
    with _lock, suppress(OSError):  # the node works on even if its log cannot be written
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
