"""A resumed run keeps results, or repeats them and says why; one run at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cad.base.errors import CadError
from cad.base.settings import PipelineSettings, read_settings
from cad.base.transactions import owned
from cad.folders.cohort import read_cohort
from cad.folders.run_folder import RunFolder
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.resume import measure_studies
from cad.run.execution.task import StudyOutcome, StudyTask
from cad.run.stages.study import process_study


@pytest.fixture
def cohort(simulated: Path, part_of: Callable[..., Path], tmp_path: Path) -> Path:
    """Three of the patients, to be damaged."""
    return part_of(simulated, tmp_path / "cohort", ["sub-0001", "sub-0002", "sub-0003"])


def measure(root: Path, quick: str, out: Path, **how) -> dict[str, StudyOutcome]:
    """Measure in this process: what is kept does not depend on who does the rest."""
    how.setdefault("jobs", 0)
    settings = read_settings(PipelineSettings, Path(quick))
    tasks = [StudyTask(ref, settings, out) for ref in read_cohort(root).studies()]
    return {
        outcome.study_id: outcome
        for outcome in measure_studies(process_study, tasks, ExecutionOptions(**how))
    }


def whys(outcomes: dict[str, StudyOutcome]) -> list[tuple[str, str]]:
    return [(outcome.status, outcome.why) for outcome in outcomes.values()]


def test_what_is_current_is_kept_and_what_changed_is_done(cohort: Path, quick: str, tmp_path: Path):
    out = tmp_path / "out"
    first = measure(cohort, quick, out)
    assert whys(first) == [("computed", "new")] * 3
    written = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in out.glob("studies/*")}

    again = measure(cohort, quick, out)
    assert whys(again) == [("kept", "unchanged")] * 3
    assert [o.key for o in again.values()] == [o.key for o in first.values()]
    unchanged = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in out.glob("studies/*")}
    assert unchanged == written

    adc = cohort / "sub-0002" / "dwi" / "sub-0002_ADC.json"
    os.utime(adc)  # touched, its bytes are the same
    assert whys(measure(cohort, quick, out)) == [("kept", "unchanged")] * 3

    adc.write_text(adc.read_text() + " ")
    outcomes = measure(cohort, quick, out)
    changed = ("computed", "input, settings or version changed")
    assert whys(outcomes) == [("kept", "unchanged"), changed, ("kept", "unchanged")]

    assert whys(measure(cohort, quick, out, resume=False)) == [("computed", "asked for")] * 3
    Path(quick).with_name("other.yaml").write_text(
        Path(quick).read_text().replace(", histogram", "")
    )
    other = str(Path(quick).with_name("other.yaml"))
    assert whys(measure(cohort, other, out)) == [changed] * 3


def test_a_change_that_keeps_size_and_time_is_seen_without_resume_alone(
    cohort: Path, quick: str, tmp_path: Path
):
    out = tmp_path / "out"
    first = measure(cohort, quick, out)
    path = cohort / "sub-0002" / "dwi" / "sub-0002_ADC.json"
    state = path.stat()
    content = path.read_bytes()
    changed = content.replace(b"{\n  ", b"{\n\t ")
    assert changed != content
    path.write_bytes(changed)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert whys(measure(cohort, quick, out)) == [("kept", "unchanged")] * 3
    again = measure(cohort, quick, out, resume=False)
    assert [outcome.status for outcome in again.values()] == ["computed"] * 3
    assert again["sub-0002"].key != first["sub-0002"].key


def test_a_damaged_result_or_memory_is_done_again(cohort: Path, quick: str, tmp_path: Path):
    out = tmp_path / "out"
    measure(cohort, quick, out)
    result = out / "studies" / "sub-0001.npz"
    whole = result.read_bytes()
    result.write_bytes(whole[:1000])
    with RunFolder(out).memory.open("ab") as stream:
        stream.write(b'{"study": "sub-0002", "stat')  # torn by a power cut
    statuses = [o.status for o in measure(cohort, quick, out).values()]
    assert statuses == ["computed", "kept", "kept"]
    assert result.read_bytes() == whole
    assert all(json.loads(line) for line in RunFolder(out).memory.read_text().splitlines())
    RunFolder(out).memory.unlink()
    assert [o.status for o in measure(cohort, quick, out).values()] == ["kept"] * 3
    assert all(json.loads(line) for line in RunFolder(out).memory.read_text().splitlines())


def test_failures_are_remembered_until_the_input_changes(cohort: Path, quick: str, tmp_path: Path):
    out = tmp_path / "out"
    image = cohort / "sub-0002" / "anat" / "sub-0002_T2w.nii.gz"
    good = image.read_bytes()
    image.write_bytes(good[: len(good) // 2])
    first = measure(cohort, quick, out)
    assert [o.status for o in first.values()] == ["computed", "failed", "computed"]
    (failure,) = first["sub-0002"].failures
    assert failure.study_id == "sub-0002"
    assert failure.stage == "read"
    assert "sub-0002_T2w.nii.gz" in failure.reason
    again = measure(cohort, quick, out)["sub-0002"]
    assert again.status == "failed"
    assert "--retry-failed" in again.why
    assert again.failures == [failure]
    os.utime(image)  # touched: the worker finds the same bytes
    assert "--retry-failed" in measure(cohort, quick, out)["sub-0002"].why
    assert "--retry-failed" not in measure(cohort, quick, out, retry_failed=True)["sub-0002"].why
    image.write_bytes(good)
    assert measure(cohort, quick, out)["sub-0002"].status == "computed"


def test_the_log_says_what_was_done(cohort: Path, quick: str, tmp_path: Path, capsys):
    out = tmp_path / "out"
    measure(cohort, quick, out, progress=True, jobs=1)
    lines = [json.loads(line) for line in RunFolder(out).log.read_text().splitlines()]
    assert {line["study"] for line in lines[:3]} == {"sub-0001", "sub-0002", "sub-0003"}
    for line in lines[:3]:
        assert line["stage"] == "measure"
        assert line["seconds"] > 0
        assert line["peak_mb"] > 50
    assert lines[3]["computed"] == 3
    assert lines[3]["studies_per_second"] > 0
    assert "3 of 3 studies, 0 failed" in capsys.readouterr().err


def test_a_second_run_on_the_folder_is_refused(tmp_path: Path):
    out = tmp_path / "out"
    with owned(out), pytest.raises(CadError, match=f"process {os.getpid()} on"), owned(out):
        pass
    with owned(out):
        pass
    assert list(out.iterdir()) == []


def test_the_lock_of_a_dead_process_is_no_lock(tmp_path: Path):
    program = (
        "import sys, os; from pathlib import Path; from cad.base.transactions.lock import locked\n"
    )
    program += "with locked(Path(sys.argv[1])):\n os.kill(os.getpid(), 9)\n"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert "process" in RunFolder(tmp_path).lock.read_text()
    (tmp_path / ".left0ver.part").write_bytes(b"x")
    with owned(tmp_path):
        assert not (tmp_path / ".left0ver.part").exists()
