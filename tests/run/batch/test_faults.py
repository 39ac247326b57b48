"""Kills, full disks, refused permissions, a lost cluster worker: what is whole stays, all recovers.

``pytest -m faults``; every run that is disturbed must end with the bytes of one that was not.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from batch_tasks import act, measure_or_hang, run_and_leave

from cad.base.errors import CadError
from cad.base.files import write_atomic
from cad.base.settings import PipelineSettings, read_settings
from cad.folders.cohort import read_cohort
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import each
from cad.run.execution.resume import measure_studies
from cad.run.execution.task import StudyOutcome, StudyTask
from cad.run.pipeline import run_pipeline
from cad.run.stages.study import process_study

pytestmark = pytest.mark.faults
KILLS = 10
FEW = ("sub-0001", "sub-0002", "sub-0003", "sub-0004")


def outputs(out: Path) -> dict[str, bytes]:
    """Return the files that must not depend on what happened on the way."""
    files = [out / "features.parquet", out / "probabilities.csv", *sorted(out.glob("studies/*"))]
    return {path.name: path.read_bytes() for path in files}


@contextlib.contextmanager
def hanging(study: str) -> Iterator[None]:
    """Let :func:`batch_tasks.measure_or_hang` wait for ever at one study."""
    os.environ["HANGING_STUDY"] = study
    try:
        yield
    finally:
        del os.environ["HANGING_STUDY"]


def measure(root: Path, quick: str, out: Path, by=process_study, **how):
    settings = read_settings(PipelineSettings, Path(quick))
    refs = [ref for ref in read_cohort(root).studies() if ref.study_id in FEW]
    return measure_studies(
        by, [StudyTask(ref, settings, out) for ref in refs], ExecutionOptions(**how)
    )


@pytest.fixture(scope="module")
def undisturbed(simulated: Path, quick: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    run_pipeline(quick, simulated, out, ExecutionOptions())
    return out


@pytest.mark.timeout(1800)
def test_kill_9_of_the_driver_at_random_moments(
    undisturbed: Path, simulated: Path, quick: str, tmp_path: Path
):
    """10 runs killed at random moments each end, resumed, with the undisturbed bytes."""
    expected = outputs(undisturbed)
    rng = random.Random(8)
    # Imports are done, so that the kill falls into the work, in a process without threads.
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(
        ["cad.run.pipeline", "cad.mri.features.table", "cad.run.reports", "sklearn.svm"]
    )

    def start(out: Path, jobs: int = 2) -> multiprocessing.process.BaseProcess:
        process = server.Process(target=run_and_leave, args=(quick, simulated, out, jobs))
        process.start()
        return process

    begin = time.monotonic()
    first = start(tmp_path / "timing")
    first.join()
    whole = time.monotonic() - begin
    assert outputs(tmp_path / "timing") == expected  # two jobs, same bytes
    moments: dict[str, int] = {}
    kills = 0
    while kills < KILLS:
        out = tmp_path / f"killed{kills}"
        process = start(out)
        process.join(rng.uniform(0.02, 0.98) * whole)
        if not process.is_alive():  # the machine got faster: that was no kill
            whole *= 0.8
            shutil.rmtree(out)
            continue
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += 1
        done = len(list(out.glob("studies/*.npz")))
        stage = "report" if (out / "run.json").exists() else f"{done} studies"
        moments[stage] = moments.get(stage, 0) + 1
        for path in out.glob("studies/*.npz"):
            with np.load(path) as archive:
                assert archive["key"]
        if (out / "features.parquet").exists():
            pd.read_parquet(out / "features.parquet")
        second = start(out, jobs=2 * (kills == 1))  # workers load for longer than they work
        second.join()
        assert second.exitcode == 0
        assert outputs(out) == expected
        assert not list(out.glob("**/.*.part"))
        shutil.rmtree(out)
    time.sleep(3.0)
    assert not _children("popen_loky", parent=1), "a killed driver left workers behind"
    print(f"{kills} of {KILLS} kills recovered; a run takes {whole:.1f} s; killed at {moments}")
    assert len(moments) >= 2, "the kills were meant to fall into different stages"


def test_a_study_that_kills_its_worker_is_a_row(simulated: Path, quick: str, tmp_path: Path):
    """Kill -9 of a worker in the middle of a study: that study fails, the others are measured."""
    out = tmp_path / "out"

    def kill_worker() -> None:
        while not (out / "studies" / f"{FEW[0]}.npz").exists():
            time.sleep(0.1)
        time.sleep(1.0)  # by now it waits for the second study
        (server,) = _children("import serve")
        (worker,) = _children("import serve", parent=server)
        os.kill(worker, signal.SIGKILL)

    watcher = threading.Thread(target=kill_worker)
    watcher.start()
    with hanging(FEW[1]):
        results = measure(simulated, quick, out, by=measure_or_hang)
    watcher.join()
    assert [o.status for o in results] == ["computed", "failed", "computed", "computed"]
    (failure,) = results[1].failures
    assert failure.stage == "worker"
    assert "SIGKILL" in failure.reason
    assert "--retry-failed" in failure.hint
    results = measure(simulated, quick, out, retry_failed=True)
    assert [o.status for o in results] == ["kept", "computed", "kept", "kept"]


def test_a_study_that_hangs_is_a_row(simulated: Path, quick: str, tmp_path: Path):
    with hanging(FEW[0]):
        results = measure(simulated, quick, tmp_path / "out", by=measure_or_hang, time_limit=20)
    assert [o.status for o in results] == ["failed", "computed", "computed", "computed"]
    assert "time limit of 20 s" in results[0].failures[0].reason


def _children(word: str, parent: int | None = None) -> list[int]:
    """Processes started by this one (or ``parent``) whose command line holds the word."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            starter = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if starter == (parent or os.getpid()) and word in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of one megabyte, where this machine lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no permission to mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_leaves_what_was_whole(
    undisturbed: Path, simulated: Path, quick: str, small_disk: Path
):
    """Results that fit are whole, others are rows that name the disk; space freed, it goes on."""
    out = small_disk / "out"
    filler = small_disk / "filler"
    size = max(path.stat().st_size for path in (undisturbed / "studies").iterdir())
    filler.write_bytes(bytes(2**20 - int(2.5 * size)))
    results = measure(simulated, quick, out)
    statuses = [o.status for o in results]
    assert {"failed", "computed"} == set(statuses)
    for outcome in results:
        path = out / "studies" / f"{outcome.study_id}.npz"
        assert path.exists() == (outcome.status == "computed")
        if outcome.status == "failed":
            assert outcome.failures[0].stage == "write"
            assert "No space left" in outcome.failures[0].reason
            assert "free space" in outcome.failures[0].hint
    assert not list(out.glob("**/.*.part"))
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    again = measure(simulated, quick, out)
    expected = ["kept" if status == "computed" else "computed" for status in statuses]
    assert [o.status for o in again] == expected


def test_no_space_for_the_tables_leaves_the_earlier_ones(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """ENOSPC at every system call of a write: the file before it is there, byte for byte."""
    path = tmp_path / "features.parquet"
    before = (undisturbed / "features.parquet").read_bytes()
    write_atomic(path, before)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for call in ("fsync", "replace", "fdopen"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(OSError, match="No space left"):
                write_atomic(path, b"new")
        assert path.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_read_permission_removed(simulated: Path, quick: str, tmp_path: Path):
    """A study that may not be read is a row; with permission back it is measured, unasked."""
    root = tmp_path / "cohort"
    shutil.copytree(simulated, root)
    secret = root / FEW[2] / "anat" / f"{FEW[2]}_T2w.nii.gz"
    secret.chmod(0)
    out = tmp_path / "out"
    settings = read_settings(PipelineSettings, Path(quick))
    task = next(
        StudyTask(ref, settings, out)
        for ref in read_cohort(root).studies()
        if ref.study_id == FEW[2]
    )
    (failure,) = _without_rights(task).failures
    assert failure.study_id == FEW[2]
    assert failure.stage == "read"
    assert "Permission denied" in failure.reason
    assert "permission" in failure.hint
    if os.geteuid() != 0:  # root may read everything
        results = measure(root, quick, out)
        assert [o.status for o in results] == ["computed", "computed", "failed", "computed"]
        assert results[2].failures == [failure]
    secret.chmod(0o644)
    assert [o.status for o in measure(root, quick, out)][2] == "computed"


def _without_rights(task: StudyTask) -> StudyOutcome:
    """Process a study in a child that is not root."""
    ours, theirs = multiprocessing.Pipe()

    def child() -> None:
        if os.geteuid() == 0:
            for path in (task.ref.folder, *task.ref.folder.parents[:5]):
                path.chmod(path.stat().st_mode | 0o055)
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        theirs.send(process_study(task))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    theirs.close()
    answer = ours.recv()
    process.join()
    return answer


def test_two_runs_on_one_folder(undisturbed: Path, simulated: Path, quick: str, tmp_path: Path):
    """The second refuses and disturbs nothing; the first ends as if alone."""
    out = tmp_path / "out"
    fork = multiprocessing.get_context("fork")
    first = fork.Process(target=run_pipeline, args=(quick, simulated, out, ExecutionOptions()))
    first.start()
    while not (out / "studies").exists():
        time.sleep(0.02)
    with pytest.raises(CadError, match=f"process {first.pid} on"):
        run_pipeline(quick, simulated, out, ExecutionOptions())
    command = [sys.executable, "-m", "cad.cli", "run", quick]
    second = subprocess.run(
        [*command, "--cohort", str(simulated), "-o", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    if first.is_alive():  # on a slow machine the program may take longer to start than the run
        assert second.returncode == 2
        assert "another run writes into this folder" in second.stderr
    first.join()
    assert outputs(out) == outputs(undisturbed)


@pytest.mark.filterwarnings("ignore")  # Dask complains about the worker that we kill
def test_a_killed_dask_worker_loses_nothing(tmp_path: Path):
    """A cluster worker dies by kill -9 in the middle: every task comes back, none twice."""
    from distributed import LocalCluster

    tasks = [("sleep", 0.05 + 0.0001 * i) for i in range(60)]
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
        local_directory=str(tmp_path),
    ) as cluster:
        seen = []
        for done in each(act, tasks, ExecutionOptions(scheduler=cluster.scheduler_address)):
            assert done.fault is None
            seen.append(done.task)
            if len(seen) == 10:
                os.kill(cluster.workers[0].pid, signal.SIGKILL)
    assert sorted(seen) == sorted(tasks)
