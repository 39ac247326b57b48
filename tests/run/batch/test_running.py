"""Workers: every task comes back once, whatever it does to its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from batch_tasks import act

from cad.base.errors import CadError
from cad.base.reading import read_json
from cad.run.execution.options import HERE, ExecutionOptions
from cad.run.execution.pool import Caller, each
from cad.run.execution.worker import Worker


def test_misbehaving_tasks_cost_no_other_task():
    """Hang, SIGKILL, segmentation fault, exit, exception and memory: one fault each, by name."""
    bad = [
        ("sleep", 100.0),
        ("burn", 100.0),
        ("kill", 0.0),
        ("segfault", 0.0),
        ("exit", 0.0),
        ("raise", 0.0),
        ("memory", 3e9),
    ]
    good = [("square", float(i)) for i in range(20)]
    tasks = [
        task for pair in zip(good, [*bad, *[None] * 20], strict=False) for task in pair if task
    ]
    done = {
        d.task: d
        for d in each(act, tasks, ExecutionOptions(jobs=2, time_limit=3.0, memory_limit=1.0))
    }
    assert sorted(done) == sorted(tasks)
    for task in good:
        assert done[task].fault is None
        assert done[task].result == task[1] ** 2
    reasons = {word: done[(word, value)].fault.reason for word, value in bad}
    assert reasons["sleep"] == "waited longer than the time limit of 3 s"
    assert reasons["burn"] == "took longer than the time limit of 3 s of processor time"
    assert "SIGKILL" in reasons["kill"]
    assert "SIGSEGV" in reasons["segfault"]
    assert "exit code 3" in reasons["exit"]
    assert "RuntimeError: no such thing" in reasons["raise"]
    assert "limit of 1 GB" in reasons["memory"]
    assert all(done[task].fault.hint for task in bad)


def test_peak_memory_is_each_tasks_own():
    """100 MB are seen in the task that asks for them and not in the next."""
    tasks = [("square", 1.0), ("memory", 1e8), ("square", 2.0)]
    peaks = [d.peak_mb for d in each(act, tasks, ExecutionOptions())]
    assert peaks[1] - peaks[0] == pytest.approx(1e8 / 2**20, abs=10)
    if sys.platform == "linux":
        assert abs(peaks[2] - peaks[0]) < 10


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's scheduler statistics")
def test_a_busy_machine_makes_slow_no_failure():
    """A task that others keep from the processor beyond the limit, but that needs little of it."""
    (core, *_) = os.sched_getaffinity(0)
    hog = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    hogs = [subprocess.Popen([sys.executable, "-c", hog]) for _ in range(3)]
    try:
        (done,) = each(act, [("crowded", float(core))], ExecutionOptions(time_limit=1.2))
    finally:
        for process in hogs:
            process.kill()
            process.wait()
    assert done.fault is None
    assert done.seconds > 1.2, "the others were meant to be in the way"
    assert done.result == pytest.approx(0.7, abs=0.2)


def test_calls_one_after_the_other_survive_each_other():
    """Results, refusals and the system's own errors come through; a death costs one call."""
    with Caller(ExecutionOptions(time_limit=2.0, memory_limit=1.0)) as call:
        assert call(act, ("square", 3.0)) == 9.0
        first = call(os.getpid)
        for word, says in (("kill", "SIGKILL"), ("sleep", "waited"), ("memory", "limit of 1 GB")):
            with pytest.raises(CadError, match=says):
                call(act, (word, 3e9))
            assert call(act, ("square", 2.0)) == 4.0
        assert call(os.getpid) != first
        with pytest.raises(CadError, match="not valid JSON"):
            call(read_json, Path(__file__))
        with pytest.raises(FileNotFoundError):
            call(read_json, Path("/no/such/file"))
    assert Caller(HERE)(os.getpid) == os.getpid()


def test_threads_are_capped():
    """N jobs use N cores: every numerical library in a worker has one thread."""
    (done,) = each(act, [("threads", 0.0)], ExecutionOptions())
    assert done.result
    assert set(done.result) == {1}


def test_tasks_are_taken_as_workers_become_free():
    """An endless stream of tasks costs no memory: at most one is taken ahead."""
    taken = 0

    def stream():
        nonlocal taken
        for i in range(50):
            taken += 1
            yield ("square", float(i))

    for count, _ in enumerate(each(act, stream(), ExecutionOptions(jobs=2)), start=1):
        assert taken <= count + 4


def test_no_tasks_start_no_worker():
    assert list(each(act, [], ExecutionOptions(jobs=2))) == []


def test_workers_end_with_their_driver(tmp_path: Path):
    """After kill -9 of the driver its worker is gone at once, in the middle of its task."""
    support = str(Path(__file__).resolve().parents[2] / "support")
    program = (
        "from batch_tasks import act\n"
        "from cad.run.execution.options import ExecutionOptions\n"
        "from cad.run.execution.worker import Worker\n"
        "w = Worker(act, ExecutionOptions())\n"
        "while not w.ready: w.take()\n"
        "w.give(('sleep', 100.0)); print(w.process.pid, flush=True); w.take()\n"
    )
    environment = {**os.environ, "PYTHONPATH": support}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, text=True
    ) as driver:
        worker = int(driver.stdout.readline())
        driver.kill()
    for _ in range(100):
        state = Path(f"/proc/{worker}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the worker outlived its driver")


def test_a_missing_scheduler_is_named():
    with pytest.raises(CadError, match="no Dask scheduler answers"):
        list(each(act, [("square", 1.0)], ExecutionOptions(scheduler="tcp://127.0.0.1:9")))


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(CadError, match="extra 'cluster'"):
        list(each(act, [("square", 1.0)], ExecutionOptions(scheduler="tcp://127.0.0.1:9")))


def test_a_worker_that_is_killed_while_it_starts_is_started_again():
    worker = Worker(act, ExecutionOptions())
    try:
        for _ in range(2):
            os.kill(worker.process.pid, signal.SIGKILL)
            assert worker.take() is None
        assert worker.do(("square", 3.0)).result == 9.0
    finally:
        worker.close()
