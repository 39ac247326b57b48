"""One job, two jobs, a cluster: the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cad.run.execution.options import ExecutionOptions
from cad.run.pipeline import run_pipeline

FULL = """
name: full
learner: {name: ProbabilisticSVC}
validate: {bootstraps: 50, seed: 4}
"""


@pytest.mark.faults
@pytest.mark.filterwarnings("ignore")  # Dask's own, at its end
def test_same_bytes_with_one_job_two_jobs_and_dask(simulated: Path, tmp_path: Path):
    """Every feature family; features.parquet, probabilities.csv and every study's file."""
    from distributed import LocalCluster

    pipeline = tmp_path / "full.yaml"
    pipeline.write_text(FULL)
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
        local_directory=str(tmp_path / "scratch"),
    ) as cluster:
        hows = {
            "one": ExecutionOptions(),
            "two": ExecutionOptions(jobs=2),
            "dask": ExecutionOptions(scheduler=cluster.scheduler_address),
        }
        found = {}
        for name, how in hows.items():
            out = tmp_path / name
            run_pipeline(str(pipeline), simulated, out, how)
            files = [out / "features.parquet", out / "probabilities.csv", *out.glob("studies/*")]
            found[name] = {path.name: path.read_bytes() for path in files}
    assert len(found["one"]) == 8
    for name in ("two", "dask"):
        differing = [f for f, content in found["one"].items() if found[name][f] != content]
        assert not differing, f"{name}: {differing}"
