"""Let one run at a time write into a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cad.errors import CadError
from cad.run_folder import RunFolder

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep other runs out of a folder; the system frees it when this process ends in any way.

    Raises
    ------
    CadError
        When another run writes into the folder.
    """
    out.mkdir(parents=True, exist_ok=True)
    with RunFolder(out).lock.open("a+", encoding="utf-8") as stream:
        stream.seek(0)
        holder = stream.read().strip()
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # A network file system without locks: believe what the file says.
            if error.errno not in _NO_LOCKS or _alive(holder):
                raise CadError(
                    f"another run writes into this folder ({holder or 'it is starting'})",
                    file=out,
                    hint="wait for it, or name another folder; if no such process exists on that "
                    f"machine, delete {RunFolder(out).lock.name} in the folder",
                ) from error
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {socket.gethostname()}")
        stream.flush()
        for part in [*out.glob(".*.part"), *out.glob("studies/.*.part")]:
            part.unlink(missing_ok=True)  # left by a run that was killed while it wrote
        try:
            yield
        finally:
            stream.truncate(0)


def _alive(holder: str) -> bool:
    """Tell whether the process that a lock names may still be there; another machine's may be."""
    words = holder.split()
    if len(words) != 4:
        return bool(holder)
    if words[3] != socket.gethostname():
        return True
    try:
        os.kill(int(words[1]), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        return True
    return True
