"""Measure many studies while their workers are killed at random: ``python -m benchmarks.soak``.

Two workers measure a cohort of a thousand light studies (hard links to a few, as in
``benchmarks.scale``). A thread kills one worker (SIGKILL) every few studies. Studies that die with
their worker become rows of failures, and are tried again until none is left. Then every study must
have exactly the rows that its original has when measured undisturbed, and the driver must not have
grown.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd

from benchmarks.scale import IMAGES, linked_cohort
from cad.base.settings import PipelineSettings, parse_settings
from cad.base.transactions import owned
from cad.evidence.phantom import simulate
from cad.folders.cohort import read_cohort
from cad.folders.run_folder.study_file import region_rows
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.resume import measure_studies
from cad.run.execution.task import StudyOutcome, StudyTask
from cad.run.execution.worker import peak_mb
from cad.run.stages.study import process_study

DISTINCT = 16
MOST_MB = 600
EVERY = 30  # most studies between two kills
SETTINGS = {"name": "soak", "features": {"modalities": [*IMAGES], "families": ["intensity"]}}


class Killer(threading.Thread):
    """Kill a worker of this process whenever some more studies are done."""

    def __init__(self, results: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.results, self.random = results, random.Random(seed)  # noqa: S311 - no secret
        self.kills, self.ended = 0, threading.Event()

    def run(self) -> None:
        """Kill workers until the thread is ended."""
        following = 0
        while not self.ended.wait(0.2):
            workers = _children()
            done = len(list(self.results.glob("*.npz")))
            if workers and done >= following:
                with suppress(ProcessLookupError):
                    os.kill(self.random.choice(workers), signal.SIGKILL)
                    self.kills += 1
                following = done + self.random.randint(1, EVERY)


def _children() -> list[int]:
    """Return the workers that this process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == os.getpid() and "worker import serve" in (folder / "cmdline").read_text():
                found.append(int(folder.name))
    return found


def measured(root: Path, out: Path, **how: object) -> list[StudyOutcome]:
    """Measure a cohort and return the outcomes of its studies."""
    settings = parse_settings(PipelineSettings, SETTINGS)
    tasks = [StudyTask(ref, settings, out) for ref in read_cohort(root).studies()]
    with owned(out):
        return measure_studies(process_study, tasks, ExecutionOptions(**how))  # type: ignore[arg-type]  # options by name


def rows(out: Path, outcomes: list[StudyOutcome]) -> dict[str, pd.DataFrame]:
    """Return each study's rows without its name."""
    table = region_rows(out / "studies" / f"{outcome.study_id}.npz" for outcome in outcomes)
    named = ["participant_id", "study_id"]
    return {
        str(study): part.drop(columns=named).reset_index(drop=True)
        for study, part in table.groupby("study_id")
    }


def soak(work: Path, studies: int, jobs: int, seed: int) -> dict[str, object]:
    """Measure a cohort under kills, and return the counts."""
    simulate(work / "few", DISTINCT, 8, light=True, jobs=jobs)
    linked_cohort(work / "few", work / "many", studies, (*IMAGES.values(), "masks"))
    expected = rows(work / "calm", measured(work / "few", work / "calm", jobs=jobs))
    known = sorted(expected)
    killer, rounds, rowed = Killer(work / "out" / "studies", seed), 0, 0
    start, busy = time.monotonic(), sum(os.times()[:4])
    killer.start()
    failed = [""]
    while failed and rounds < 50:
        outcomes = measured(work / "many", work / "out", jobs=jobs, retry_failed=rounds > 0)
        failed = [f.reason for o in outcomes if o.status == "failed" for f in o.failures]
        rounds, rowed = rounds + 1, rowed + len(failed)
        other = [reason for reason in failed if "SIGKILL" not in reason]
        if other:
            raise SystemExit(f"a study failed otherwise than by the kill: {other[0]}")
    killer.ended.set()
    found = rows(work / "out", outcomes)
    wrong = [
        s for i, s in enumerate(sorted(found)) if not found[s].equals(expected[known[i % DISTINCT]])
    ]
    return {
        "studies": len(found),
        "lost": studies - len(found),
        "changed": len(wrong),
        "files": len(list((work / "out" / "studies").iterdir())),
        "kills": killer.kills,
        "studies_that_died": rowed,
        "rounds": rounds,
        "seconds": round(time.monotonic() - start, 1),
        "processor_seconds": round(sum(os.times()[:4]) - busy, 1),
        "driver_mb": round(peak_mb()),
    }


def main() -> None:
    """Print the counts; end with 1 when a study was lost or changed, or the driver grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        found = soak(Path(folder), arguments.studies, arguments.jobs, arguments.seed)
    print(json.dumps(found))
    whole = found["files"] == found["studies"] == arguments.studies and not found["changed"]
    raise SystemExit(0 if whole and int(str(found["driver_mb"])) <= MOST_MB else 1)


if __name__ == "__main__":
    main()
