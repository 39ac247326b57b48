"""Tasks that misbehave in every way a study can; importable by worker processes."""

from __future__ import annotations

import ctypes
import os
import signal
import time
import traceback
from pathlib import Path
from typing import Any


def act(task: tuple[str, float]) -> object:
    """Do what the word says."""
    word, value = task
    if word == "square":
        return value * value
    if word == "sleep":
        time.sleep(value)
    if word == "burn":
        start = time.process_time()
        while time.process_time() - start < value:
            pass
        return time.process_time() - start
    if word == "crowded":  # on the processor that others keep busy
        os.sched_setaffinity(0, {int(value)})
        return act(("burn", 0.7))
    if word == "raise":
        raise RuntimeError("no such thing")
    if word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "segfault":
        ctypes.string_at(0)
    if word == "exit":
        os._exit(3)
    if word == "memory":
        return len(bytearray(int(value)))
    if word == "threads":
        import numpy  # noqa: F401
        import scipy.linalg  # noqa: F401
        from threadpoolctl import threadpool_info

        return [pool["num_threads"] for pool in threadpool_info()]
    return word


def run_and_leave(quick: str, cohort: Path, out: Path, jobs: int = 2) -> None:
    """A driver with workers; it leaves at once, without waiting for idle workers."""
    from cad.run.execution.options import ExecutionOptions
    from cad.run.pipeline import run_pipeline

    try:
        run_pipeline(quick, cohort, out, ExecutionOptions(jobs=jobs))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def measure_or_hang(task: Any) -> Any:
    """Measure a study, but wait for ever at the one that the environment names."""
    from cad.run.stages.study import process_study

    if task.ref.study_id == os.environ.get("HANGING_STUDY"):
        time.sleep(1000.0)
    return process_study(task)
