"""Start, limit and end child processes; a child never outlives the process that started it.

Two functions also change how this process collects garbage, because loaded modules are a million
objects that stay.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

# Python's own 700 make it look through all modules again and again while they are loaded, a fifth
# of that time. What cycles hold until then is some megabytes.
_THRESHOLDS = (50_000, 20, 100)
_silent = threading.Event()


def start_child(
    module: str, environment: Mapping[str, str] | None = None, errors: int | None = None
) -> tuple[subprocess.Popen[bytes], Connection[Any, Any]]:
    """Start a child process that runs ``serve()`` of a module.

    Parameters
    ----------
    module : str
        Full name of a module of this project.
    environment : mapping of str, optional
        Environment variables for the child, added to those of this process.
    errors : int, optional
        Standard error of the child, as for `subprocess.Popen`; by default that of this process,
        or nothing after :func:`silence_children`.

    Returns
    -------
    Popen, Connection
        The child, and this process's end of a pipe to it. End both with :func:`end_child`.
    """
    ours, theirs = Pipe()
    path = os.pathsep.join(entry for entry in sys.path if entry)
    # Fixed arguments, and no user's string among them.
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", "-c", f"from {module} import serve; serve()", str(theirs.fileno())],
        stdin=subprocess.PIPE,  # never written: the process ends itself when it closes
        stdout=subprocess.DEVNULL,  # what libraries print must not mix with our results
        stderr=subprocess.DEVNULL if _silent.is_set() else errors,
        pass_fds=(theirs.fileno(),),
        env={**os.environ, **(environment or {}), "PYTHONPATH": path},
    )
    theirs.close()
    return process, ours


def silence_children() -> None:
    """Let nothing come out that children print, started by whom they may be, from now on.

    Libraries in any language quote what they read: a header, a name.
    """
    _silent.set()


def end_child(process: subprocess.Popen[bytes], connection: Connection[Any, Any]) -> None:
    """Kill a child process and close the pipes that lead to it.

    Parameters
    ----------
    process, connection : Popen, Connection
        As :func:`start_child` returned them.
    """
    process.kill()
    process.wait()
    connection.close()
    if process.stdin is not None:
        process.stdin.close()


def as_child() -> Connection[Any, Any]:
    """Set up a child process, and return its end of the pipe to its parent: call it in the child.

    From then on the child ends when its parent does, and ignores Ctrl-C.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    return connection


def limit_memory(gigabytes: float) -> None:
    """Limit the memory that this process may ask for.

    Parameters
    ----------
    gigabytes : float
        Limit of data memory (RLIMIT_DATA) in units of 1e9 bytes; a lower limit of the system
        stays in force.
    """
    import resource  # absent on Windows, where no study is measured

    ceiling, hard = int(gigabytes * 1e9), resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard != resource.RLIM_INFINITY:
        ceiling = min(ceiling, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling, hard))


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the pipe closes; nobody writes
    os._exit(1)  # the parent is gone, even by kill -9: write nothing more


def collect_rarely() -> None:
    """Let Python's garbage collector run less often: call it when a process starts.

    With Python's default thresholds the collector would search all objects many times while the
    libraries are loaded.
    """
    gc.set_threshold(*_THRESHOLDS)


def leave_at_once() -> None:
    """Let Python exit faster, without freeing every loaded object; do not exit here."""
    gc.freeze()
