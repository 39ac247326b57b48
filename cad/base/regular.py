"""Tell regular files from pipes, devices and folders, and check that a file is not too large."""

from __future__ import annotations

import stat
from pathlib import Path

from cad.base.errors import CadError

MIB = 2**20
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def file_kind(path: Path) -> str:
    """Return in words why a path is not a regular file, such as ``a named pipe``.

    Nothing is opened: reading a named pipe could wait for ever, and a device may have no end.

    Parameters
    ----------
    path : Path
        Path of a file that may be missing.

    Returns
    -------
    str
        Kind of the entry or the system's error message; empty for a regular file.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return "a link that leads nowhere" if path.is_symlink() else str(error.strerror)
    if stat.S_ISREG(mode):
        return ""
    # Some systems have further kinds, which have no name in the table.
    return _KINDS.get(stat.S_IFMT(mode), "no file")


def check_file(path: Path, limit: int) -> None:
    """Raise an error for a path that is not a regular file, and for a file that is too large.

    Parameters
    ----------
    path : Path
        The file.
    limit : int
        Largest allowed size in bytes.

    Raises
    ------
    CadError
        For such a path. The message names the kind of entry, or the size and the limit.
    FileNotFoundError
        When the path does not exist.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise CadError(f"{file_kind(path)}, where a file was expected", file=path)
    if status.st_size > limit:
        raise CadError(
            f"{size_text(status.st_size)}, at most {size_text(limit)} are read", file=path
        )


def size_text(count: int) -> str:
    """Return a number of bytes in words, in MiB where it is large."""
    return f"{count / MIB:,.0f} MiB" if count >= 10 * MIB else f"{count:,} bytes"
