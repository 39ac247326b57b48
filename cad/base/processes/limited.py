"""Call a function on data from outside in a child process with limits of time and memory.

A crash in a library then ends the child and not the program. A small file that unpacks to a huge
one fills only the child's memory. The child can also be restricted to some folders
(:mod:`cad.base.processes.landlock`).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from functools import wraps
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, cast

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.processes import Child, limit_memory
from cad.base.processes.landlock import confine

Returned = TypeVar("Returned")

# Seconds in which a child must have started and loaded its libraries.
_START_SECONDS = 300.0
# Largest number of characters of an error's text.
_MESSAGE = 300
# "limited" is True in a child with limits. Its own calls of call_limited start no further child.
_state = {"limited": False}


def is_limited() -> bool:
    """Tell whether this process is a child with limits already."""
    return _state["limited"]


def call_limited(
    function: Callable[..., Returned],
    *arguments: Any,
    seconds: float,
    gigabytes: float,
    needs: str = "",
    folders: Sequence[Path] | None = None,
) -> Returned:
    """Call a function in a child process with limits, and return its result.

    In a child with limits, the function is called at once and no further child is started.

    Parameters
    ----------
    function : callable
        Importable by its name.
    *arguments : object
        Arguments of the function, which are sent to the child.
    seconds : float
        Limit of the processor time in seconds. The limit by the clock is ten times as long.
    gigabytes : float
        Memory that the child may use beyond its memory at the start, in units of 1e9 bytes.
    needs : str
        Names of further modules that the function uses, separated by spaces. They are loaded once
        for all children.
    folders : sequence of Path, optional
        Paths that the child may read in addition to the files of the program. By default the child
        may read all paths that this process may read.

    Returns
    -------
    object
        The value that ``function`` returned. It comes from another process, so that it is a copy
        unless the function was called at once.

    Raises
    ------
    CadError
        When the function raised any error but an OSError, and when a limit or a signal ended its
        process.
    OSError
        When the function raised it, for example because the disk is full.
    """
    if is_limited():
        return function(*arguments)
    process = Child(__name__, f"{function.__module__} {needs}".strip(), quiet=True)
    try:
        process.connection.send((function, arguments, seconds, gigabytes, folders))
        # The limit by the clock, with time for the libraries to be loaded.
        if not process.connection.poll(_START_SECONDS + 10 * seconds):
            raise CadError(f"not done after {10 * seconds:g} s, and ended")
        answer = process.connection.recv()
    except (EOFError, ConnectionError) as error:
        raise CadError(_ended(process.wait(), seconds, gigabytes)) from error
    finally:
        process.end()
    if isinstance(answer, CadError | OSError):
        raise answer
    # The value comes in a tuple, because a function may also return an error as its value.
    return cast(Returned, answer[0])


def door_in_child(
    form: str, *, seconds: float, gigabytes: float, needs: str = ""
) -> Callable[[Callable[..., Returned]], Callable[..., Returned]]:
    """Return a decorator for a function that reads bytes from outside.

    The function is declared as a door "in" (:mod:`cad.base.doors`) and runs in a child process with
    limits.

    Parameters
    ----------
    form : str
        Kind of content that the function reads: one of :data:`cad.base.doors.FORMS`.
    seconds, gigabytes, needs
        Limits of processor time and memory, and names of modules to load, as in
        :func:`call_limited`.
    """

    def declare(function: Callable[..., Returned]) -> Callable[..., Returned]:
        """Return a function that calls ``function`` in a child process with limits."""
        # This only enters the function in the registry of doors.
        door("in", form, bound=f"child: {gigabytes:g} GB, {seconds:g} s")(function)

        @wraps(function)
        def limited(*arguments: Any) -> Returned:
            if is_limited():
                return function(*arguments)
            # The child finds a function by its name in its module. By this name it gets
            # ``limited``, which calls ``function`` there, because the child is limited.
            return call_limited(
                limited, *arguments, seconds=seconds, gigabytes=gigabytes, needs=needs
            )

        return limited

    return declare


def _ended(code: int, seconds: float, gigabytes: float) -> str:
    """Return which limit or signal ended a child, in words."""
    if code == -signal.SIGPROF:
        return f"its process took more than {seconds:g} s of processor time, and was ended"
    if code == -signal.SIGKILL:
        return "its process was ended by SIGKILL: most often the machine had no memory left"
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"its process ended by {name}, within {gigabytes:g} GB"


def serve(connection: Connection[Any, Any]) -> None:
    """Call one function and send its result: main function of the child of :func:`call_limited`.

    Parameters
    ----------
    connection : Connection
        Pipe to its parent process.
    """
    # The signal of the timer below ends the process.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    function, arguments, seconds, gigabytes, folders = connection.recv()
    _state["limited"] = True
    limit_memory(gigabytes + _used_gigabytes())
    signal.setitimer(signal.ITIMER_PROF, seconds)
    connection.send(_answer(function, arguments, gigabytes, folders))


def _answer(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    gigabytes: float,
    folders: Sequence[Path] | None,
) -> Any:
    """Call the function; return a tuple with its value, or the error that it raised.

    Only errors that the parent can read are returned: a CadError or an OSError. Any other error
    becomes a CadError.
    """
    try:
        if folders is not None:
            confine(folders, [])
        return (function(*arguments),)
    except (CadError, OSError) as error:
        return error
    except MemoryError:
        return CadError(f"it asks for more than {gigabytes:g} GB of memory")
    except Exception as error:
        message = " ".join(str(error).split())[:_MESSAGE]
        return CadError(f"{type(error).__name__}: {message}")


@door("own", "process")
def _used_gigabytes() -> float:
    """Return the data memory that this process has now, in units of 1e9 bytes (Linux)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0  # another system than Linux
    for line in lines:
        if line.startswith("VmData:"):
            kibibytes = int(line.split()[1])
            return kibibytes * 1024 / 1e9
    return 0.0
