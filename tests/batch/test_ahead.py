"""Workers that are started before there is work: taken by that work only, and never left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from batch_tasks import act
from loop_pieces import where

from cad.errors import CadError
from cad.evaluation.folds import crossval
from cad.execution import ahead
from cad.execution.ahead import take_waiting, workers_ahead
from cad.execution.options import HERE, ExecutionOptions
from cad.execution.pool import each, workplace
from cad.execution.worker import Worker

OPTIONS = ExecutionOptions(jobs=2, time_limit=30.0)
ACT = "batch_tasks:act"


def alive(workers: list[Worker]) -> list[bool]:
    return [Path(f"/proc/{worker.process.pid}").exists() for worker in workers]


def test_the_work_takes_them_and_they_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    start = Worker._start
    monkeypatch.setattr(Worker, "_start", lambda self: (started.append(self), start(self))[-1])
    with workers_ahead(ACT, OPTIONS):
        assert len(started) == 2
        done = list(each(act, [("square", float(i)) for i in range(6)], OPTIONS))
        assert sorted(d.result for d in done) == [float(i * i) for i in range(6)]
    assert len(started) == 2  # no other was needed
    assert alive(started) == [False, False]


def test_other_work_leaves_them_and_the_block_ends_them() -> None:
    with workers_ahead(ACT, OPTIONS):
        assert take_waiting(print, OPTIONS) == []
        assert take_waiting(act, ExecutionOptions(jobs=2, time_limit=31.0)) == []
        workers = take_waiting(act, OPTIONS)
        assert alive(workers) == [True, True]
        assert take_waiting(act, OPTIONS) == []  # they are somebody's now
        for worker in workers:
            worker.close()
    kept: list[Worker] = []

    def refused() -> None:
        with workers_ahead(ACT, OPTIONS):
            kept.extend(ahead._waiting.get())
            raise CadError("refused")

    with pytest.raises(CadError, match="refused"):
        refused()
    assert alive(kept) == [False, False]


def test_none_is_started_where_none_would_work() -> None:
    for options in (HERE, ExecutionOptions(jobs=4, scheduler="tcp://127.0.0.1:1")):
        with workers_ahead(ACT, options):
            assert take_waiting(act, options) == []


def test_a_worker_that_is_lost_before_its_work_is_replaced() -> None:
    with workers_ahead(ACT, OPTIONS):
        lost = ahead._waiting.get()[0]
        os.kill(lost.process.pid, 9)
        lost.process.wait()
        done = list(each(act, [("square", float(i)) for i in range(4)], OPTIONS))
    assert sorted(d.result for d in done) == [0.0, 1.0, 4.0, 9.0]


@pytest.mark.filterwarnings("ignore")  # Dask's own, at its end
def test_a_long_loop_uses_the_cluster_whatever_jobs_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import LocalCluster

    monkeypatch.setattr(crossval, "START_SECONDS", 0.0)
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
            local_directory=str(tmp_path),
        ) as cluster,
        workplace(ExecutionOptions(scheduler=cluster.scheduler_address)),
    ):
        found = list(crossval.each_piece(where, [(k, 0.01) for k in range(6)], n_jobs=1))
    assert [k for k, _ in found] == list(range(6))
    assert [pid == os.getpid() for _, pid in found] == [True] * 2 + [False] * 4


def test_a_worker_imports_no_learner() -> None:
    """What it needs takes a third of the time that scikit-learn's import alone takes."""
    code = (
        "import sys, cad.stages.study, cad.features.table, cad.features.snapshot, "
        "cad.imaging.prepare, cad.imaging.plausibility\n"
        "print(*(n for n in ('sklearn', 'scipy.stats', 'scipy.spatial', 'matplotlib', 'pydicom') "
        "if n in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
