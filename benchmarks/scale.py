"""Measure throughput, overhead, memory and resume of large cohorts: ``python -m benchmarks.scale``.

Two workers are compared with one on 64 simulated studies with every image and feature family. For
cohorts of thousands, 64 light simulated studies are made once, and hard-linked under as many names
as a cohort needs. Reading and measuring are then real, while ten thousand studies fit on a small
disk. The light studies have T2 and ADC only (no dynamic series); ``docs/scale.md`` says so, too.

``--partitions N`` instead measures the needs of ``cad table`` for N such studies, in run folders of
10,000 each. The rows of a run of 64 are repeated under new names. Each is moved by a tenth of each
feature's standard deviation, so that no two are equal: equal rows would be too easy for a kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import psutil
from distributed import LocalCluster
from scipy.special import expit

from cad.base.files import parquet_bytes, write_atomic
from cad.base.settings import PipelineSettings, parse_settings
from cad.base.transactions import owned
from cad.evidence.phantom import simulate
from cad.folders.cohort import read_cohort, write_tables
from cad.folders.run_folder.study_file import region_rows
from cad.learning.evaluation.summary import summarise
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import each
from cad.run.execution.resume import measure_studies
from cad.run.execution.task import StudyTask
from cad.run.execution.worker import peak_mb
from cad.run.stages.study import process_study

DISTINCT = 64
PARTITION = 10_000  # number of studies in a run folder
# Timings with one worker, then with two, are repeated so often, so that a slow minute of the
# machine affects both.
ROUNDS = 3
EVERYTHING = "intensity,histogram,gradient,haralick,semiquantitative,kinetic"
FULL = {"name": "scale", "validate": {"scheme": "none", "bootstraps": 0}}
IMAGES = {"t2w": "anat", "adc": "dwi"}


def linked_cohort(source: Path, root: Path, patients: int, parts: tuple[str, ...]) -> None:
    """Make a cohort of any size from a few patients; files are hard links under new names."""
    tables = {
        name: pd.read_csv(source / f"{name}.tsv", sep="\t", dtype=str, keep_default_na=False)
        for name in ("participants", "readers", "rois", "scores")
    }
    known = tables["participants"]["participant_id"].tolist()
    rows: dict[str, list[pd.DataFrame]] = {"participants": [], "rois": [], "scores": []}
    groups = {name: dict(list(tables[name].groupby("participant_id"))) for name in rows}
    for i in range(patients):
        old, new = known[i % len(known)], f"sub-{i + 1:06d}"
        for name, kept in rows.items():
            kept.append(groups[name][old].assign(participant_id=new))
        for part in parts:
            folder = root / new / part
            folder.mkdir(parents=True)
            for path in (source / old / part).iterdir():
                os.link(path, folder / path.name.replace(old, new))
    combined = {name: pd.concat(kept, ignore_index=True) for name, kept in rows.items()}
    write_tables(root, readers=tables["readers"], simulated=True, name="scale", **combined)


def trivial(task: int) -> int:
    """Do nothing, so that all time of the task is overhead."""
    return task


def measured(cohort: Path, out: Path, settings: PipelineSettings, jobs: int) -> dict[str, float]:
    """Measure a cohort, write its feature table, and return time and memory."""
    start = time.perf_counter()
    refs = read_cohort(cohort).studies()
    tables = time.perf_counter() - start
    with owned(out):
        outcomes = measure_studies(
            process_study, [StudyTask(ref, settings, out) for ref in refs], ExecutionOptions(jobs)
        )
        done = time.perf_counter() - start
        rows = region_rows(out / "studies" / f"{o.study_id}.npz" for o in outcomes)
        write_atomic(out / "features.parquet", parquet_bytes(rows))
    return {
        "studies": len(outcomes),
        "jobs": jobs,
        "computed": sum(o.status == "computed" for o in outcomes),
        "failed": sum(o.status == "failed" for o in outcomes),
        "regions": len(rows),
        "tables_s": tables,
        "studies_s": done - tables,
        "collect_s": time.perf_counter() - start - done,
        "total_s": time.perf_counter() - start,
        "worker_s": sum(o.seconds for o in outcomes),
        "driver_mb": peak_mb(),
        "parquet_mb": (out / "features.parquet").stat().st_size / 1e6,
        "results_mb": sum(p.stat().st_size for p in (out / "studies").iterdir()) / 1e6,
    }


def alone(function: str, *arguments: object) -> dict[str, float]:
    """Call a function of this module in a separate interpreter, whose memory is then its own."""
    program = (
        "import json, sys; from pathlib import Path; from benchmarks import scale\n"
        "print(json.dumps(getattr(scale, sys.argv[1])(*sys.argv[2:])))"
    )
    command = [sys.executable, "-c", program, function, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def child_measured(cohort: str, out: str, modalities: str, families: str, jobs: str) -> dict:
    """Call :func:`measured` with arguments from a command line."""
    features = {"modalities": modalities.split(","), "families": families.split(",")}
    settings = parse_settings(PipelineSettings, {**FULL, "features": features})
    return measured(Path(cohort), Path(out), settings, int(jobs))


def child_overhead(count: str, jobs: str, cluster: str = "") -> dict[str, float]:
    """Return the seconds for tasks that do nothing, once the workers are warm."""
    with ExitStack() as stack:
        scheduler = None
        if cluster:
            local = LocalCluster(
                n_workers=int(jobs), threads_per_worker=1, host="127.0.0.1", dashboard_address=None
            )
            scheduler = stack.enter_context(local).scheduler_address
        stream = each(
            trivial, iter(range(int(count))), ExecutionOptions(int(jobs), scheduler=scheduler)
        )
        next(stream)
        start = time.perf_counter()
        finished = sum(1 for _ in stream)
        seconds = time.perf_counter() - start
    return {"tasks": finished, "ms_each": 1e3 * seconds / finished, "driver_mb": peak_mb()}


def two_workers(cohort: Path, work: Path) -> dict[str, float]:
    """Return the throughput of two workers against one: whole runs with the workers' start."""
    runs: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for _ in range(ROUNDS):
        for jobs, found in runs.items():
            out = work / f"{cohort.name}-{jobs}"
            shutil.rmtree(out, ignore_errors=True)
            found.append(alone("child_measured", cohort, out, "t2w,adc,dce", EVERYTHING, jobs))
    one, two = (median(r["studies_s"] for r in runs[jobs]) for jobs in (1, 2))
    busy = [median(r["worker_s"] for r in runs[jobs]) for jobs in (1, 2)]
    return {"seconds_1": one, "seconds_2": two, "ratio": one / two, "busy": busy[1] / busy[0]}


def child_measures(patients: str) -> dict[str, float]:
    """Return the measures' processor seconds: two regions per patient, four readers, tool."""
    rng, n = np.random.default_rng(0), 2 * int(patients)
    rows = pd.DataFrame({"participant_id": np.arange(n) // 2, "roi_id": np.arange(n) % 2})
    rows, truth = rows.astype(str), rng.random(n) < 0.35
    latent = 1.2 * truth + rng.normal(size=n)
    grades = np.round(4 * expit(latent + rng.normal(0, 0.7, (4, n)))) / 4
    scores = [rows.assign(reader_id=str(r), probability=grade) for r, grade in enumerate(grades)]
    probability = expit(latent + rng.normal(0, 0.5, n))
    frame = rows.assign(probability=probability, truth=truth.astype(float), p=grades.mean(axis=0))
    start = time.process_time()
    summarise(frame, reader_scores=pd.concat(scores)).as_dict()
    return {"patients": n / 2, "seconds": time.process_time() - start}


def partitions(work: Path, studies: int) -> Path:
    """Make run folders of 10,000 studies each, with the tables and the record of a run of 64."""
    root, source = work / f"partitions-{studies}", work / "partition"
    if root.exists():
        return root
    pipeline = work / "light.yaml"
    settings = {**FULL, "features": {"modalities": list(IMAGES), "families": ["intensity"]}}
    pipeline.write_text(json.dumps(settings))
    command = ["run", pipeline, "--cohort", work / "light", "--out", source, "--jobs", "2"]
    # Exit code 1 means that a study was refused.
    subprocess.run([sys.executable, "-m", "cad", *map(str, command)], check=False)
    features, labels = (pd.read_parquet(source / f"{n}.parquet") for n in ("features", "labels"))
    numbers = features.select_dtypes(float).columns
    spread = features[numbers].std().fillna(0).to_numpy() / 10
    rng = np.random.default_rng(0)
    for part in range(studies // PARTITION):
        folder = root / f"run-{part + 1:02d}"
        folder.mkdir(parents=True)
        for name in ("run.json", ".complete"):
            shutil.copy(source / name, folder / name)
        for name, table in (("features", features), ("labels", labels)):
            copies = [
                table.assign(participant_id=f"{part:02d}-{copy:04d}-" + table["participant_id"])
                for copy in range(-(-PARTITION // DISTINCT))
            ]
            joined = pd.concat(copies, ignore_index=True)
            if name == "features":
                joined["study_id"] = joined["participant_id"]
                joined[numbers] += spread * rng.normal(size=(len(joined), len(numbers)))
            write_atomic(folder / f"{name}.parquet", parquet_bytes(joined))
    return root


def watched(command: list[object]) -> dict[str, float]:
    """Return a command's seconds, and the peak memory of this process's children together."""
    start, most = time.perf_counter(), 0
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    while process.poll() is None:
        held = 0
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                held += child.memory_full_info().pss
        most = max(most, held)
        time.sleep(0.5)
    return {"code": process.returncode, "seconds": time.perf_counter() - start, "mb": most / 1e6}


def tables(work: Path, studies: int, learner: str, tell: Callable[..., None]) -> None:
    """Measure the needs of ``cad table`` for many studies: alone, two processes, through Dask."""
    root = partitions(work, studies)
    table = [sys.executable, "-m", "cad", "table"]
    named = ["--learner", learner]
    model = work / "table-model"
    # Training begins with a validation. The validation uses five folds, because leaving out each
    # patient would take days.
    named += ["--folds", "5"]
    tell(f"{learner}: train", watched([*table, "train", root, *named, "-o", model]))
    validate = [*table, "validate", root, *named, "-o", work / "table-run"]
    for jobs in (1, 2):
        tell(f"{learner}: validate, jobs {jobs}", watched([*validate, "--jobs", jobs]))
    with LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        through = watched([*validate, "--scheduler", cluster.scheduler_address])
        tell(f"{learner}: validate, Dask", through)


def main() -> None:
    """Print one line per measurement, and write all as JSON where the options say so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=1000)
    parser.add_argument("--large", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", type=Path, help="folder for cohorts and results")
    parser.add_argument("--partitions", type=int, help="studies in run folders of 10,000")
    parser.add_argument(
        "--learner", default="ProbabilisticSVC:kernel=linear", help="of --partitions"
    )
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="scale-"))
    work.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, float]] = {}

    def tell(name: str, result: dict[str, float]) -> None:
        found[name] = result
        numbers = ", ".join(f"{k} {v:.5g}" for k, v in result.items())
        print(f"{name}: {numbers}; load {os.getloadavg()[0]:.1f}", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=1) + "\n")

    for name, light in (("whole", False), ("light", True)):
        if not (work / name).exists() and (light or not arguments.partitions):
            simulate(work / name, DISTINCT, 8, light=light, jobs=2)
    if arguments.partitions:
        tables(work, arguments.partitions, arguments.learner, tell)
        return
    alone("child_measured", work / "light", work / "warm", "t2w,adc,dce", EVERYTHING, 1)  # compiles
    for count in (arguments.small, arguments.large):
        tell(f"measures {count}", alone("child_measures", count))
        for jobs in (1, 2):
            tell(f"overhead {count}, jobs {jobs}", alone("child_overhead", count, jobs))
        tell(f"overhead {count}, Dask", alone("child_overhead", count, 2, "cluster"))
    for name in ("whole", "light"):
        tell(f"{DISTINCT} {name} studies", two_workers(work / name, work))
    for count in (arguments.small, arguments.large):
        cohort = work / f"cohort-{count}"
        if not cohort.exists():
            linked_cohort(work / "light", cohort, count, (*IMAGES.values(), "masks"))
        images_and_family = (",".join(IMAGES), "intensity")
        for jobs in (1, 2):
            out = work / f"out-{count}-{jobs}"
            shutil.rmtree(out, ignore_errors=True)
            result = alone("child_measured", cohort, out, *images_and_family, jobs)
            tell(f"{count} light, jobs {jobs}", result)
        tell(f"{count} light, resumed", alone("child_measured", cohort, out, *images_and_family, 1))


if __name__ == "__main__":
    main()
