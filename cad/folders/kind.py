"""Keep a command out of a folder that is not of its own kind: nothing there is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cad.errors import CadError
from cad.files import write_atomic
from cad.folders.change import is_ours, owned, pending
from cad.reading import read_bytes

MARK = ".cad-kind"
_LONGEST = 100  # bytes of a mark


@dataclass(frozen=True)
class Kind:
    """Say what a folder is for, and how it is recognised.

    Parameters
    ----------
    name : str
        What is written there, in the words of the command.
    holds : callable
        Tells whether a folder without a mark is of this kind: one that holds nothing but whole
        results, or one that an earlier version wrote.
    marked : bool
        Whether a new folder gets the file :data:`MARK` with the name. A kind whose first commit
        makes it recognisable needs none.
    """

    name: str
    holds: Callable[[Path], bool]
    marked: bool = True


def require_kind(folder: Path, *kinds: Kind) -> None:
    """Refuse a folder that holds something else than these kinds; absent or empty is fine.

    Parameters
    ----------
    folder : Path
        Where a command is to write.
    *kinds : Kind
        What may be there.

    Raises
    ------
    CadError
        Naming the folder and its content.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise CadError("a folder is needed, this is a file", file=folder, hint="name another")
    names = sorted(p.name for p in folder.iterdir() if not is_ours(p.name) and p.name != MARK)
    if not names or pending(folder):  # a change of ours was decided there
        return
    mark = _mark(folder)
    if any(mark == kind.name or (not mark and kind.holds(folder)) for kind in kinds):
        return
    content = f"a {mark}" if mark else f"{', '.join(names[:3])}{', …' if names[3:] else ''}"
    wanted = " or ".join(kind.name for kind in kinds)
    raise CadError(
        f"the folder holds {content} and is not a {wanted}; nothing in it was changed",
        file=folder,
        hint=f"name a new or an empty folder, or an earlier {wanted}",
    )


def _mark(folder: Path) -> str:
    """Return the name that a folder's mark says; empty without one."""
    mark = folder / MARK
    return read_bytes(mark, _LONGEST).decode(errors="replace").strip() if mark.is_file() else ""


@contextmanager
def claimed(folder: Path, kind: Kind) -> Iterator[None]:
    """Lock a folder as :func:`cad.folders.owned` does, and make sure that it is of this kind.

    Parameters
    ----------
    folder : Path
        Made and marked when absent.
    kind : Kind
        What it is to hold.

    Raises
    ------
    CadError
        As :func:`require_kind`, and when another process writes into the folder.
    """
    require_kind(folder, kind)
    with owned(folder):
        require_kind(folder, kind)  # what a killed process had decided there is in place now
        if kind.marked and _mark(folder) != kind.name:
            write_atomic(folder / MARK, f"{kind.name}\n".encode())
        yield
