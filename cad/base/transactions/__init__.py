"""Change a folder in one step, so that a process that is killed leaves the old or the new state.

The new files of a cohort, a model or a run are built in a hidden folder inside it (``.stage-…``),
where the change does not count yet. A folder with the new files and ``journal.json``, the list of
their paths, is then renamed to ``.commit``. From this moment the change counts: it is committed.
The new files and folders are then moved into place one by one, as the journal lists them. A process
may be killed at any time. The next process that opens the folder completes a committed change and
removes one that was not committed.

A command writes only into a folder that is absent, empty or of the command's own kind, such as a
run.
"""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.files import PART_SUFFIX, flush, flush_names, make_folder, write_atomic, write_json
from cad.base.reading import read_bytes, read_json, reading
from cad.base.transactions.lock import LOCK, locked

COMMIT = ".commit"
_JOURNAL = "journal.json"
_NEW = "new"
_STAGE = ".stage-"
# tempfile adds eight characters to a name. Earlier versions built new files in folders whose names
# begin with .import- and .fetch-.
_STAGES = re.compile(r"\.(stage|import|fetch)-[a-z0-9_]{8}")
_PART = re.compile(r"\.[a-z0-9_]{8}" + re.escape(PART_SUFFIX))
_PATIENCE = 10.0  # seconds to wait for another process to complete its change


def is_ours(name: str) -> bool:
    """Tell whether a name in a folder is a lock, journal or temporary file of this program.

    Parameters
    ----------
    name : str
        Name of a file or folder, without its path.

    Returns
    -------
    bool
        True for the name of a lock, of a journal, or of a temporary file or folder of this program.
    """
    return name in (LOCK, COMMIT) or bool(_STAGES.fullmatch(name) or _PART.fullmatch(name))


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes until the ``with`` block ends.

    A killed process may have committed a change (:func:`commit`) and not moved all files into
    place. The moves are completed first, and the temporary files of killed processes are removed.

    Parameters
    ----------
    folder : Path
        The folder; made when absent.

    Raises
    ------
    CadError
        When another process writes into the folder.
    """
    with locked(folder):
        _carry_out(folder)
        _sweep(folder)
        yield


@contextmanager
def stage(folder: Path) -> Iterator[Path]:
    """Make a hidden folder inside a folder, in which new files are built until :func:`commit`.

    The hidden folder is removed at the end of the ``with`` block.

    Parameters
    ----------
    folder : Path
        The folder; it must be locked by this process (:func:`owned`).

    Yields
    ------
    Path
        The hidden folder, empty.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=_STAGE) as name:
        yield Path(name)


@door("out", "folder", owner="a folder that is locked")
def commit(folder: Path, new: Mapping[str, Path], removed: Collection[str] = ()) -> None:
    """Replace, add and remove files of a folder in one step: all of them, or none.

    Parameters
    ----------
    folder : Path
        The folder to change; it must be locked by this process (:func:`owned`).
    new : mapping of str to Path
        Keys are paths relative to the folder. Values are the new files or folders, which were built
        in a :func:`stage` of the folder. The new files are moved to the keys' paths and replace the
        files there. No key may lie inside another.
    removed : collection of str
        Relative paths of files and folders to remove.
    """
    with stage(folder) as staging:
        change = staging / "change"
        (change / _NEW).mkdir(parents=True)
        for place, built in new.items():
            target = change / _NEW / place
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(built, target)
        write_json(change / _JOURNAL, {"new": list(new), "gone": sorted(removed)})
        for inner_folder, _, names in os.walk(change):
            for name in names:  # a library may have written a file without flushing it to the disk
                flush(Path(inner_folder, name))
            flush_names(Path(inner_folder))
        os.rename(change, folder / COMMIT)  # from now on the change counts
        flush_names(folder)
    _carry_out(folder)


def settle(folder: Path) -> None:
    """Finish a change that another process committed and left unfinished; call this before reading.

    Parameters
    ----------
    folder : Path
        Folder to be read. Nothing happens where no change is pending.

    Raises
    ------
    CadError
        When the change cannot be finished, because another process holds the lock for more than ten
        seconds, or because this process may not write there.
    """
    begin = time.monotonic()
    while pending(folder):
        try:
            with locked(folder):
                _carry_out(folder)
        except OSError as error:
            raise CadError(
                f"a change of this folder was decided and cut short, and not ended: {error}",
                file=folder,
                hint="run the same command as a user who may write there",
            ) from error
        except CadError:
            # Another process holds the lock, and probably finishes the change itself.
            if time.monotonic() - begin > _PATIENCE:
                raise
            time.sleep(0.02)


def pending(folder: Path) -> bool:
    """Tell whether a change of the folder was committed (:func:`commit`) and is not finished."""
    return (folder / COMMIT / _JOURNAL).is_file()


@door("out", "whole file", owner="a new path")
def keep(source: str | Path, target: str | Path) -> None:
    """Make a hard link to a file, or a copy where the file system has no links.

    Parameters
    ----------
    source, target : str or Path
        The existing file, and the path of the link or copy.
    """
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@door("out", "folder", owner="a folder that is claimed")
def _carry_out(folder: Path) -> None:
    """Move the files of a committed change into place, and remove those that it removes.

    A step that a process did before it was killed is skipped.
    """
    change = folder / COMMIT
    if pending(folder):
        new_places, removed_places = _journal_paths(folder, change / _JOURNAL)
        for number, place in enumerate([*new_places, *removed_places]):
            built = change / _NEW / place
            target = folder / place
            # A new file that is no longer in the change has been moved into place before.
            is_in_place = place in new_places and not os.path.lexists(built)
            # A file to remove, and a folder (which os.replace below cannot replace), are first
            # moved out of the way.
            must_go = (target.is_dir() or place in removed_places) and os.path.lexists(target)
            if not is_in_place and must_go:
                os.rename(target, change / f"old-{number}")
                flush_names(target.parent)
            if place in new_places and not is_in_place:
                make_folder(target.parent)
                os.replace(built, target)
                flush_names(target.parent)
        (change / _JOURNAL).unlink()  # without a journal, the change counts as complete
    if change.exists():
        shutil.rmtree(change)
        flush_names(folder)


def _journal_paths(folder: Path, journal: Path) -> tuple[list[str], list[str]]:
    """Return the paths of new files, and of removed files, that a journal lists.

    A journal is the file that lists what a committed change of a folder consists of. A path outside
    the folder raises an error.
    """
    with reading(journal, "no journal of a change"):
        content = read_json(journal)
        new_places = [str(place) for place in content["new"]]
        removed_places = [str(place) for place in content["gone"]]
    top = folder.resolve()
    for place in [*new_places, *removed_places]:
        segments = PurePosixPath(place).parts
        is_relative = segments and not PurePosixPath(place).is_absolute()
        is_inside = is_relative and ".." not in segments
        # A link among the folders of the path could lead outside, too.
        if not is_inside or not (folder / place).parent.resolve().is_relative_to(top):
            raise CadError(f"{place[:80]!r} would lie outside the folder", file=journal)
    return new_places, removed_places


def _sweep(folder: Path) -> None:
    """Remove the unfinished files of processes that were killed.

    Unfinished files are also removed in folders directly inside the folder, except in those that
    another process has locked.
    """
    unfinished = list(folder.iterdir())
    for path in folder.glob(f"*/.*{PART_SUFFIX}"):
        if not (path.parent / LOCK).exists():
            unfinished.append(path)
    for path in unfinished:
        if _PART.fullmatch(path.name):
            path.unlink(missing_ok=True)
        elif _STAGES.fullmatch(path.name) and path.is_dir():
            shutil.rmtree(path)


MARK = ".cad-kind"
_LONGEST = 100  # largest size of a mark in bytes


@dataclass(frozen=True)
class FolderKind:
    """Describe a kind of folder, such as a run or a model, and how it is recognised.

    A folder may hold a mark: the file :data:`MARK`, which contains the name of the kind.

    Parameters
    ----------
    name : str
        Name of the kind, for messages and for the mark.
    holds : callable
        Takes a folder without a mark and tells from its content whether it is of this kind.
    marked : bool
        Whether a new folder gets a mark. A kind that is recognised by the first files that are
        committed to it needs none.
    """

    name: str
    holds: Callable[[Path], bool]
    marked: bool = True


def require_kind(folder: Path, *kinds: FolderKind) -> None:
    """Check that a folder is absent, empty or of one of the kinds, so that it may be written.

    Parameters
    ----------
    folder : Path
        Folder that the command is to write.
    *kinds : FolderKind
        Kinds that the folder may be of.

    Raises
    ------
    CadError
        When the folder is of another kind, or holds files of other programs.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise CadError("a folder is needed, this is a file", file=folder, hint="name another")
    names = []
    for path in sorted(folder.iterdir()):
        if not is_ours(path.name) and path.name != MARK:
            names.append(path.name)
    # A folder with a pending change (one that a killed process of this program did not complete)
    # belongs to this program.
    if not names or pending(folder):
        return
    mark = _marked_name(folder)
    for kind in kinds:
        if mark == kind.name:
            return
        if not mark and kind.holds(folder):
            return
    # The error names the folder's kind or, where it has no mark, some of its files.
    content = ", ".join(names[:3])
    if len(names) > 3:
        content += ", …"
    if mark:
        content = f"a {mark}"
    kind_names = " or ".join(kind.name for kind in kinds)
    raise CadError(
        f"the folder holds {content} and is not a {kind_names}; nothing in it was changed",
        file=folder,
        hint=f"name a new or an empty folder, or an earlier {kind_names}",
    )


def _marked_name(folder: Path) -> str:
    """Return the name in a folder's mark; empty where there is no mark."""
    mark = folder / MARK
    if not mark.is_file():
        return ""
    return read_bytes(mark, _LONGEST).decode(errors="replace").strip()


@contextmanager
def claimed(folder: Path, kind: FolderKind) -> Iterator[None]:
    """Check that a folder is of a kind, and lock it for other processes during a ``with`` block.

    A change that a killed process committed is completed first.

    Parameters
    ----------
    folder : Path
        The folder; made when absent, with the file that marks its kind where the kind has a mark.
    kind : Kind
        Kind that the folder must be of; an empty folder passes.

    Raises
    ------
    CadError
        When the folder holds anything of another kind, or another process writes into it.
    """
    require_kind(folder, kind)
    with owned(folder):
        # The kind is checked again, because `owned` may have completed a change of a killed
        # process.
        require_kind(folder, kind)
        if kind.marked and _marked_name(folder) != kind.name:
            write_atomic(folder / MARK, f"{kind.name}\n".encode())
        yield
