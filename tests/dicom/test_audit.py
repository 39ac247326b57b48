"""An audit trail: every change of it is found, a kill costs no line that was acknowledged."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from dicom_cases import write_run
from secret_scan import hits
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.cli import app
from cad.run.audit.entries import audit_prediction
from cad.run.audit.trail import append, pseudonym, verify

LINES = 20


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A trail of twenty lines."""
    path = tmp_path_factory.mktemp("audit") / "trail.jsonl"
    for number in range(LINES):
        append(path, {"study": number})
    return path.read_bytes()


@pytest.fixture
def trail(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "trail.jsonl"
    path.write_bytes(content)
    return path


def last_hash(content: bytes, line: int = -1) -> str:
    return content.splitlines()[line].decode()[-66:-2]


def test_a_whole_trail_verifies(trail: Path, content: bytes):
    found = verify(trail, last_hash(content))
    assert (found.lines, found.last, found.torn, found.problems) == (
        LINES,
        last_hash(content),
        0,
        [],
    )
    assert verify(trail, last_hash(content, 6)).problems == []  # known since then, and grown
    assert trail.stat().st_mode & 0o777 == 0o644  # ours here; append() makes it private


def test_every_change_of_a_byte_is_found(trail: Path, content: bytes):
    """Another bit of every byte; the case of a letter and a line break at every tenth."""
    tried = 0
    for at, byte in enumerate(content):
        line = content[:at].count(b"\n") + 1
        others = {byte ^ 1 << at % 8} | ({byte ^ 0x20, 0x0A} - {byte} if at % 10 == 0 else set())
        for other in others:
            trail.write_bytes(content[:at] + bytes([other]) + content[at + 1 :])
            problems = verify(trail).problems
            assert problems, (at, other)
            assert problems[0].startswith(f"line {line} "), (at, other, problems)
            tried += 1
    assert tried > 1.1 * len(content)


def test_every_byte_taken_out_or_put_in_is_found(trail: Path, content: bytes):
    for at in range(0, len(content) - 1, 13):
        trail.write_bytes(content[:at] + content[at + 1 :])
        assert verify(trail).problems, at
        trail.write_bytes(content[:at] + b"7" + content[at:])
        assert verify(trail).problems, at


def test_lines_removed_inserted_moved_or_repeated_are_named(trail: Path, content: bytes):
    lines = content.splitlines(keepends=True)
    for k in range(LINES - 1):
        trail.write_bytes(b"".join(lines[:k] + lines[k + 1 :]))
        assert verify(trail).problems == [
            f"line {k + 1} is number {k + 2}: line {k + 1} is missing before it"
        ]
    for k in range(LINES):
        trail.write_bytes(b"".join([*lines[: k + 1], lines[k], *lines[k + 1 :]]))
        assert verify(trail).problems[0] == (
            f"line {k + 2} is number {k + 1}, after number {k + 1}: it was inserted or moved"
        )
    draw = random.Random(3)
    for _ in range(50):
        other = draw.sample(lines, LINES)
        trail.write_bytes(b"".join(other))
        assert bool(verify(trail).problems) == (other != lines)


def test_a_line_from_elsewhere_does_not_fit(trail: Path, content: bytes, tmp_path: Path):
    """It is sound in itself; its neighbours' hashes give it away."""
    other = tmp_path / "other.jsonl"
    for _ in range(LINES):
        append(other, {"event": "forged"})
    lines, forged = content.splitlines(keepends=True), other.read_bytes().splitlines(keepends=True)
    for k in range(1, LINES - 1):
        trail.write_bytes(b"".join([*lines[:k], forged[k], *lines[k + 1 :]]))
        first = verify(trail).problems[0]
        assert first == f"line {k + 1} follows another line, not the one before it: " + (
            "one of the two was exchanged"
        )
    trail.write_bytes(b"".join([*forged[:9], *lines[9:]]))
    assert len(verify(trail).problems) == 1


def test_the_end_cut_off_needs_a_known_hash(trail: Path, content: bytes):
    lines = content.splitlines(keepends=True)
    for k in range(LINES):
        trail.write_bytes(b"".join(lines[:k]))
        assert verify(trail).problems == []
        (problem,) = verify(trail, last_hash(content)).problems
        assert "cut off at the end" in problem


def test_what_a_kill_leaves_of_a_line_is_no_change(trail: Path, content: bytes):
    """Killed within an append at every byte: the rest verifies, and the next line says so."""
    start = len(b"".join(content.splitlines(keepends=True)[:-1]))
    for end in range(start + 1, len(content), 3):
        trail.write_bytes(content[:end])
        found = verify(trail, last_hash(content, -2))
        assert (found.problems, found.torn, found.lines) == ([], end - start, LINES - 1)
    append(trail, {"event": "next"})
    found = verify(trail)
    assert (found.problems, found.torn, found.lines) == ([], 0, LINES)
    assert f'"torn":{end - start}' in trail.read_text().splitlines()[-1]


@pytest.mark.parametrize("end", [b"x", b'{"entry":1}', b"}"])
def test_nothing_is_added_to_an_end_that_was_changed(trail: Path, content: bytes, end: bytes):
    for wrong in (content[:-1] + end, content[:-4] + b'x"}\n'):
        trail.write_bytes(wrong)
        with pytest.raises(CadError, match="nothing is added"):
            append(trail, {"event": "next"})
        assert trail.read_bytes() == wrong


def test_a_full_disk_leaves_the_trail_as_it_was(trail: Path, content: bytes):
    """By a limit on the size of files, in a process of its own."""
    code = (
        "import resource, signal, sys; from pathlib import Path; from cad.run.audit.trail import *;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); n = int(sys.argv[2]);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)); append(Path(sys.argv[1]), {'a': 1})"
    )
    command = [sys.executable, "-c", code, str(trail), str(len(content) + 40)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "OSError" in done.stderr
    assert trail.read_bytes() == content


def test_many_processes_write_one_trail(tmp_path: Path):
    path = tmp_path / "trail.jsonl"
    code = (
        "import sys; from pathlib import Path; from cad.run.audit.trail import append;"
        "[append(Path(sys.argv[1]), {'n': i}) for i in range(10)]"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, path]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    found = verify(path)
    assert (found.lines, found.problems) == (30, [])
    assert path.stat().st_mode & 0o077 == 0


def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path):
    path = tmp_path / "trail.jsonl"
    code = (
        "import sys; from pathlib import Path; from cad.run.audit.trail import append\n"
        "while True: print(append(Path(sys.argv[1]), {'event': 'x' * 999}), flush=True)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = [process.stdout.readline().strip() for _ in range(30)]
    process.kill()
    said += process.stdout.read().split()
    process.wait()
    process.stdout.close()
    assert verify(path, said[-1]).problems == []
    assert verify(path).lines >= len(said)


def test_a_prediction_is_written_without_identity(tmp_path: Path):
    run = write_run(tmp_path / "run", "sub-MRN7", {"1": 0.4, "2": 0.9})
    path = tmp_path / "trail.jsonl"
    last = audit_prediction(path, run, "user 7")
    assert hits([tmp_path], ["sub-MRN7"]) == [
        f"sub-MRN7 in run/{name}" for name in ("probabilities.csv", "studies/sub-MRN7.npz")
    ]
    assert pseudonym(path, "sub-MRN7") in path.read_text()
    assert (tmp_path / "trail.jsonl.key").stat().st_mode & 0o077 == 0
    said = CliRunner().invoke(app, ["audit", "verify", str(path), "--last", last])
    assert (said.exit_code, said.output) == (0, f"1 lines, last hash {last}\n")
    os.truncate(path, 40)
    said = CliRunner().invoke(app, ["audit", "verify", str(path), "--last", last])
    assert said.exit_code == 1
    assert "cut off at the end" in said.output


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"\x89PNG\r\n\x1a\n", b"{}\n", b"\n"])
def test_a_file_that_is_no_trail_is_not_called_a_changed_one(tmp_path, content):
    path = tmp_path / "probabilities.csv"
    path.write_bytes(content)
    with pytest.raises(CadError, match=r"no line here is one of an audit trail.*--audit"):
        verify(path)
