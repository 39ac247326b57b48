"""Keep an audit trail: a file of JSON lines, each with the hash of the line before it.

A line is one JSON object with sorted keys and no blanks. It holds the event (``entry``), the line's
number (``n``), the hash of the line before (``previous``) and the time (``time``, UTC). The last
key, ``sha256``, is the hash of everything before it in the line. Whoever changes, removes, inserts
or moves a line breaks a hash. Whoever cuts lines off at the end breaks no hash. So keep the last
hash elsewhere and give it to :func:`verify`.

A line counts once :func:`append` has returned, because the line is on the disk then. A process that
is killed earlier may leave the beginning of a line, without a line break: a torn line.
:func:`verify` reports a torn line. The next append removes it and notes in its own line, under
``torn``, how many bytes were removed.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.files import JsonObject, flush_names, json_safe, make_folder, write_atomic
from cad.base.reading import parse_json, read_bytes, reading
from cad.base.regular import check_file

START = "0" * 64
"""Hash that the first line, which has no line before it, states under ``previous``."""
# Limits in bytes: of a line, and (below) of a whole trail.
_LONGEST = 2**20
_LINE = re.compile(rb'(\{"entry":.*),"sha256":"([0-9a-f]{64})"\}')
_OPENING = b'{"entry":'
_MAX_FILE = 2**31


@dataclass(frozen=True)
class Verified:
    """Hold the result of checking an audit trail.

    Parameters
    ----------
    lines : int
        Number of complete lines.
    last : str
        Hash of the last line. A copy of this hash that is kept elsewhere shows later whether lines
        were cut off.
    torn : int
        Number of bytes of an unfinished line at the end, which a killed process left. Such a line
        does not count.
    problems : list of str
        A message for every line that was changed or moved, or before which lines are missing.
    """

    lines: int
    last: str
    torn: int = 0
    problems: list[str] = field(default_factory=list)


class DamagedTrail(CadError):
    """Report that the end of an audit trail was changed. Nothing is appended to such a trail."""


@door("own", "audit trail")
def append(path: Path, entry: JsonObject) -> str:
    """Append one line to an audit trail; when the call returns, the line is on the disk.

    Parameters
    ----------
    path : Path
        The trail. It is made where there is none, readable by its owner alone.
    entry : dict
        The event as JSON content; a patient or study is named by its :func:`pseudonym`.

    Returns
    -------
    str
        The hash of the new line, which is the trail's last.

    Raises
    ------
    DamagedTrail
        When the trail's last line was changed after it was written; nothing is added then.
    OSError
        When the line cannot be written; the trail is then as before.
    """
    with _held(path) as handle:
        last_number, last_hash, end_of_last_line, torn_bytes = _end_of_trail(handle, path)
        body = {
            "entry": json_safe(entry),
            "n": last_number + 1,
            "previous": last_hash,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        if torn_bytes:
            body["torn"] = torn_bytes
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        digest = hashlib.sha256(text).hexdigest()
        # The line's hash is added to the JSON text of the other keys. If all keys were dumped
        # together, sorted, the hash would not stand last, behind everything that it covers.
        line = text[:-1] + f',"sha256":"{digest}"}}\n'.encode()
        # A line longer than ``_LONGEST`` is refused, because ``_end_of_trail`` reads only twice
        # this length from the end of a trail.
        if len(line) > _LONGEST:
            raise CadError(f"an entry of {len(line)} bytes, at most {_LONGEST}", file=path)
        os.ftruncate(handle, end_of_last_line)  # removes a torn line
        try:
            # If the disk becomes full, a part of the line may be written without an error.
            if os.write(handle, line) != len(line):
                raise OSError("No space left on device")
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, end_of_last_line)
            raise
        return digest


def verify(path: Path, last: str = "") -> Verified:
    """Check that no line of an audit trail was changed, removed, inserted or moved.

    Parameters
    ----------
    path : Path
        The trail.
    last : str
        Hash of an earlier last line, which was kept elsewhere. A line with this hash must be in the
        trail. Without this hash, lines that were cut off at the end are not noticed.

    Returns
    -------
    Verified
        Number of complete lines, hash of the last line, and number of bytes of an unfinished line
        at the end. ``problems`` is empty if no line was changed, removed, inserted or moved.

    Raises
    ------
    CadError
        When ``path`` is no file, or the file is too large or no audit trail.
    """
    with reading(path, "not a readable trail"):
        content = read_bytes(path, _MAX_FILE)
    *lines, tail = content.split(b"\n")
    # A file that is not empty and has no line of a trail is another file, given by mistake.
    if content and b'"sha256":"' not in content and not _is_torn(content):
        raise CadError(
            "no line here is one of an audit trail",
            file=path,
            hint="name the file that --audit wrote, or the node's audit.jsonl",
        )
    problems: list[str] = []
    line_of_hash: dict[str, int] = {}
    number_before = 0
    hash_before = START
    for line_number, line in enumerate(lines, start=1):
        parsed = _parsed(line)
        if parsed is None:
            problems.append(f"line {line_number} was changed: it is not what its hash says")
            # Its hash is not known, so the next line is not compared with it.
            number_before += 1
            hash_before = ""
            continue
        digest, stated_number, stated_previous = parsed
        # A line may match its own hash and still stand in the wrong place in the file.
        problem = _out_of_place(
            stated_number, stated_previous, number_before, hash_before, line_of_hash
        )
        if problem:
            problems.append(f"line {line_number} {problem}")
        line_of_hash.setdefault(digest, line_number)
        number_before = stated_number
        hash_before = digest
    if tail and not _is_torn(tail):
        problems.append(f"line {len(lines) + 1} was changed: its end is not what was written")
    if last and last.lower() not in line_of_hash:
        problems.append(
            f"no line has the hash {last}: lines were cut off at the end, or it is another trail's"
        )
    return Verified(lines=len(lines), last=hash_before, torn=len(tail), problems=problems)


def pseudonym(path: Path, identity: str) -> str:
    """Return the pseudonym of a patient or a study in a trail: a hash with the trail's own key.

    The key is in a file beside the trail (``FILE.key``), which only its owner can read. It is made
    where there is none. Whoever has the key can find the lines of a patient. Nobody else can tell
    which patient a line is about.

    Parameters
    ----------
    path : Path
        The trail.
    identity : str
        Id of a patient or study.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    key_file = path.with_name(path.name + ".key")
    # While the trail is locked, no other process makes a key, too.
    with _held(path):
        if not key_file.is_file():
            write_atomic(key_file, secrets.token_hex(32).encode(), mode=0o600)
    key = read_bytes(key_file, _LONGEST)
    return hmac.new(key, identity.encode(), hashlib.sha256).hexdigest()[:32]


def _out_of_place(
    stated_number: int,
    stated_previous: str,
    number_before: int,
    hash_before: str,
    line_of_hash: dict[str, int],
) -> str | None:
    """Return in words why a line does not belong where it is; None if it does.

    ``stated_number`` is the number that the line states for itself, and ``stated_previous`` the
    hash that it states for the line before. ``number_before`` and ``hash_before`` are the number
    and hash of the line that is before it in the file; the hash is empty where that line was
    changed. ``line_of_hash`` gives for each hash read so far the number of its line in the file.
    """
    if stated_number > number_before + 1:
        missing = f"line {stated_number - 1} is"
        if stated_number > number_before + 2:
            missing = f"lines {number_before + 1} to {stated_number - 1} are"
        return f"is number {stated_number}: {missing} missing before it"
    if stated_number <= number_before:
        return f"is number {stated_number}, after number {number_before}: it was inserted or moved"
    if hash_before and stated_previous != hash_before:
        followed = "another line"
        if stated_previous in line_of_hash:
            followed = f"line {line_of_hash[stated_previous]}"
        return f"follows {followed}, not the one before it: one of the two was exchanged"
    return None


def _parsed(line: bytes) -> tuple[str, int, str] | None:
    """Return a line's hash, its number and the hash that it states for the line before.

    The result is None if the line was changed.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    content_without_hash = match[1] + b"}"
    stated_hash = match[2].decode()
    if hashlib.sha256(content_without_hash).hexdigest() != stated_hash:
        return None
    try:
        with reading("", "no line of a trail"):
            body = parse_json(line)
            return stated_hash, int(body["n"]), str(body["previous"])
    except CadError:  # the line fits its hash, but is not the JSON of a trail
        return None


def _is_torn(tail: bytes) -> bool:
    """Tell whether bytes after the last line break may come from a killed :func:`append`."""
    written = tail.rstrip(b"\0")  # some file systems lengthen a file by zeros before they fill it
    whole_line = _LINE.match(written)
    if whole_line is not None:
        # Only the line break is missing. Nothing may follow the line then, not even zeros.
        nothing_follows = whole_line.end() == len(written) == len(tail)
        return nothing_follows and _parsed(written) is not None
    # The bytes begin as a line does. They may be fewer than the opening of a line.
    return written[: len(_OPENING)] == _OPENING[: len(written)]


def _end_of_trail(handle: int, path: Path) -> tuple[int, str, int, int]:
    """Return number and hash of the last line, the byte at which it ends, and the torn bytes after.

    Torn bytes are the beginning of a line that a killed process left. Their number is returned.
    """
    size = os.fstat(handle).st_size
    # Only the end of the trail is read, because a trail of years is long. Twice the greatest length
    # of a line is enough for the last whole line and a torn line after it.
    start = max(0, size - 2 * _LONGEST)
    content = os.pread(handle, size - start, start)
    body, _, tail = content.rpartition(b"\n")
    if tail and not _is_torn(tail):
        raise _damaged(path)
    if start == 0 and b"\n" not in content:  # the trail has no line yet
        return 0, START, 0, len(tail)
    _, _, last_line = body.rpartition(b"\n")
    parsed = _parsed(last_line)
    if parsed is None:
        raise _damaged(path)
    last_hash, last_number, _ = parsed
    return last_number, last_hash, size - len(tail), len(tail)


def _damaged(path: Path) -> DamagedTrail:
    return DamagedTrail(
        "the trail's last line is not what was written: nothing is added to it",
        file=path,
        hint="`cad audit verify` names what was changed; keep the file, and begin another",
    )


@door("own", "audit trail")
@contextmanager
def _held(path: Path) -> Iterator[int]:
    """Open and lock a trail during a ``with`` block, and yield its file descriptor.

    The lock lets only one process at a time append.
    """
    make_folder(path.parent)
    is_new = not path.exists()
    if not is_new:
        check_file(path, _MAX_FILE)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        import fcntl  # not part of Python on Windows, where nothing is audited

        fcntl.flock(handle, fcntl.LOCK_EX)
        if is_new:  # without this, a power cut could remove the new file's name from the folder
            flush_names(path.parent)
        yield handle
    finally:
        os.close(handle)
