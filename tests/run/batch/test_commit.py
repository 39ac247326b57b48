"""One commit: what was decided is carried out by the next start, what was not is swept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cad.base.transactions
import cad.run.pipeline
from cad.base.errors import CadError
from cad.base.transactions import COMMIT, commit, owned, pending, settle, stage
from cad.base.transactions.lock import LOCK
from cad.folders.cohort import read_cohort
from cad.run.execution.options import HERE
from cad.run.pipeline import run_pipeline


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody carries out the others' commits here: waiting for it is time lost."""
    monkeypatch.setattr("cad.base.transactions._PATIENCE", 0.2)


def decided(folder: Path, new: dict[str, str], gone: tuple[str, ...] = ()) -> None:
    """Make the files of a process that was killed right after its commit."""
    for place, content in new.items():
        path = folder / COMMIT / "new" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    journal = {"new": list(new), "gone": list(gone)}
    (folder / COMMIT).mkdir(exist_ok=True)
    (folder / COMMIT / "journal.json").write_text(json.dumps(journal))


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_files_and_folders_arrive_together(tmp_path: Path) -> None:
    for name in ("table.tsv", "old/a", "kept/b", "away"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("before")
    with owned(tmp_path), stage(tmp_path) as scratch:
        (scratch / "t").write_text("after")
        (scratch / "study").mkdir()
        (scratch / "study" / "c").write_text("after")
        new = {"table.tsv": scratch / "t", "old": scratch / "study"}
        commit(tmp_path, new, removed=["away", "never there"])
    assert names(tmp_path) == ["kept/b", "old/c", "table.tsv"]
    assert (tmp_path / "table.tsv").read_text() == "after"


def test_a_reader_carries_out_what_was_decided(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("before")
    (tmp_path / "b").write_text("before")
    decided(tmp_path, {"a": "after", "new/c": "after"}, gone=("b",))
    settle(tmp_path)
    assert names(tmp_path) == ["a", "new/c"]
    assert (tmp_path / "a").read_text() == "after"


def test_a_cohort_is_never_read_half(cohort_copy: Path) -> None:
    table = (cohort_copy / "participants.tsv").read_text()
    decided(cohort_copy, {"participants.tsv": table.replace("sub-0001", "sub-9001")})
    assert "sub-9001" in set(read_cohort(cohort_copy).participants["participant_id"])
    assert not pending(cohort_copy)


@pytest.fixture
def cohort_copy(simulated: Path, tmp_path: Path) -> Path:
    """The tables of a cohort."""
    for path in simulated.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_a_change_that_its_owner_does_not_end_is_refused(
    cohort_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cad.base.transactions, "_PATIENCE", 0.1)
    decided(cohort_copy, {"participants.tsv": "participant_id\n"})
    program = (
        "import sys, time; from pathlib import Path\n"
        "from cad.base.transactions.lock import locked\n"
        "with locked(Path(sys.argv[1])):\n print(flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", program, str(cohort_copy)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(CadError, match=f"process {holder.pid} on"):
            read_cohort(cohort_copy)
        holder.kill()
    assert list(read_cohort(cohort_copy).participants["participant_id"]) == []


def test_tables_that_change_under_a_run_are_not_taken_for_its_own(
    simulated: Path,
    quick: str,
    part_of: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change after the tables were read is in the next run, as if it came later."""
    root, out = tmp_path / "cohort", tmp_path / "out"
    part_of(simulated, root, ["sub-0001", "sub-0002", "sub-0003"])
    scores = root / "scores.tsv"
    real = cad.run.pipeline.measure

    def measure(loaded: object) -> object:
        scores.write_text("".join(scores.read_text().splitlines(keepends=True)[:-12]))
        return real(loaded)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(cad.run.pipeline, "measure", measure)
        run_pipeline(quick, root, out, HERE)
    before = (out / "probabilities.csv").read_bytes()
    run_pipeline(quick, root, out, HERE)
    assert (out / "probabilities.csv").read_bytes() != before


@pytest.mark.parametrize("place", ["../x", "/tmp/x", "link/x", ""])  # noqa: S108
def test_a_journal_may_not_lead_out_of_the_folder(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "cohort"
    (folder / COMMIT / "new").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path)
    journal = {"new": [place], "gone": []}
    (folder / COMMIT / "journal.json").write_text(json.dumps(journal))
    with pytest.raises(CadError, match="outside the folder"):
        settle(folder)


def test_a_damaged_journal_is_told(tmp_path: Path) -> None:
    (tmp_path / COMMIT).mkdir()
    for text, said in (("[]", "JSON object"), ('{"new": 1}', "no journal")):
        (tmp_path / COMMIT / "journal.json").write_text(text)
        with pytest.raises(CadError, match=said), owned(tmp_path):
            pass


def test_what_killed_processes_left_goes_and_nothing_else(tmp_path: Path) -> None:
    ours = [
        ".abcd_123.part",
        "report/.abcd1234.part",
        ".stage-abcd1234/x",
        ".import-abcd1234/x",
        ".fetch-a_cd1234/study/0001/x.dcm",
        f"{COMMIT}/new/x",
    ]
    theirs = [".a-file.part", "x.part", ".import-rules", "report/x", "deep/er/.abcd1234.part"]
    used = ["run/.lock", "run/.abcd1234.part"]  # another process writes there
    for name in (*ours, *theirs, *used):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    with owned(tmp_path):
        assert names(tmp_path) == sorted([LOCK, *theirs, *used])
    assert names(tmp_path) == sorted([*theirs, *used])


def test_a_lock_that_was_taken_away_is_no_lock(tmp_path: Path) -> None:
    """Between opening the file and locking it, its holder may end: the name is another file's."""
    real, calls = cad.base.transactions.lock.fcntl.flock, []

    def flock(stream: object, how: int) -> None:
        if not calls:
            os.unlink(tmp_path / LOCK)
        calls.append(how)
        real(stream, how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cad.base.transactions.lock.fcntl, "flock", flock)
        with owned(tmp_path):
            assert str(os.getpid()) in (tmp_path / LOCK).read_text()
    assert len(calls) == 2
