"""A confined process compiles what no cache has, reads the cache, and changes nothing in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cad.base.processes import landlock

MEASURED = """
import numpy as np
from cad.mri.features import intensity
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import Caller
from cad.run.execution.worker import Confined

def measured():
    values = np.array([1.0, 3.0, 10.0, 20.0])
    means = intensity.statistics(values, np.array([0, 2, 4]))["mean"].tolist()
    kernels = [k for k in vars(intensity).values() if hasattr(k, "stats") and k.signatures]
    return means, any(sum(k.stats.cache_hits.values()) for k in kernels)
"""
CONFINED = """
from measured import *

if __name__ == "__main__":
    confined = Confined((), (), ("measured",))
    with Caller(ExecutionOptions(1, time_limit=120.0, memory_limit=4.0), confined=confined) as call:
        print(call(measured))
"""
FREE = "from measured import *\nprint(measured())\n"


@pytest.mark.skipif(
    not landlock.version(), reason="LANDLOCK ABSENT: this kernel confines no process"
)
def test_a_confined_process_needs_no_compiled_kernels_and_changes_none(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (tmp_path / "measured.py").write_text(MEASURED)
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(kernels),
        "PYTHONPATH": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def run(code: str) -> str:
        script = tmp_path / "script.py"
        script.write_text(code)
        done = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def cached() -> set[str]:
        return {path.name for path in kernels.rglob("*.nb?")}

    assert run(CONFINED) == "([2.0, 15.0], False)"
    assert cached() == set()
    assert run(FREE) == "([2.0, 15.0], False)"
    compiled = cached()
    assert compiled
    assert run(CONFINED) == "([2.0, 15.0], True)"
    assert cached() == compiled
