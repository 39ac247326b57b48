"""Let one process at a time write into a folder: a cohort, a model, a run."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.files import make_folder

try:
    import fcntl
except ImportError:  # on Windows, where models can be trained on tables but no cohort is measured
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes until the ``with`` block or this process ends.

    The call does not wait for a lock that another process holds.

    Parameters
    ----------
    folder : Path
        The folder; made when absent.

    Raises
    ------
    CadError
        When another process writes into the folder.
    """
    make_folder(folder)
    if fcntl is None:  # a system without such locks
        yield
        return
    path = folder / LOCK
    with _taken(path) as stream:
        stream.truncate(0)  # the text of an earlier holder
        stream.write(f"process {os.getpid()} on {socket.gethostname()}")
        stream.flush()
        try:
            yield
        finally:
            # The file is removed while it is still locked. Later it could be the lock file of
            # another process.
            path.unlink(missing_ok=True)


@door("own", "lock")
def _taken(path: Path) -> TextIO:
    """Return the lock file, open and locked."""
    while True:
        # This mode makes the file where it is absent, and keeps its text.
        stream = path.open("a+", encoding="utf-8")
        try:
            stream.seek(0)
            holder = stream.read().strip()
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                # Some network file systems have no locks. There the folder is free unless the
                # process that the file names may still run.
                if error.errno not in _NO_LOCKS or _alive(holder):
                    raise _refusal(path, holder) from error
            if path.exists() and os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                return stream
            # The process that held the lock has just removed this file, which is no longer the lock
            # file of the folder.
            stream.close()
        except BaseException:
            stream.close()
            raise


def _refusal(path: Path, holder: str) -> CadError:
    """Return the error that another process, which the lock file names, holds the lock."""
    return CadError(
        f"another run writes into this folder ({holder or 'it is starting'})",
        file=path.parent,
        hint="wait for it, or name another folder; if no such process exists on that machine, "
        f"delete {path.name} in the folder",
    )


def _alive(holder: str) -> bool:
    """Tell whether the process that a lock file names may still run.

    A process on another machine is taken to run, because it cannot be asked.
    """
    words = holder.split()  # "process NUMBER on MACHINE"
    if len(words) != 4:
        # An unreadable text may be that of a running process; an empty file names none.
        return bool(holder)
    if words[3] != socket.gethostname():
        return True
    try:
        os.kill(int(words[1]), 0)  # the signal 0 does nothing but ask whether the process exists
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        # The process belongs to another user, or the number is unreadable.
        return True
    return True
