"""Compare the cost of a real study with the least cost: ``python -m benchmarks.speed NAME DATA``.

``import`` compares ``cad import`` with ``dcm2niix -z y`` on the same files. ``predict`` compares a
warm prediction with the reading of its study's NIfTI files by nibabel. DATA is the folder
``prostatex`` of the reference data. Times are processor seconds of one thread, measured in turns;
medians are printed.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np

from cad.base.processes import use_one_thread
from cad.run.execution.options import HERE
from cad.run.pipeline import predict_cohort

STUDY = "ProstateX-0218"


def main() -> None:
    """Run the named comparison and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=("import", "predict"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--model", default="phantom-psvm")
    given = parser.parse_args()
    use_one_thread()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        if given.name == "import":
            ours, theirs = _import(given.data, work / "ours"), _convert(given.data, work / "theirs")
        else:
            _import(given.data / STUDY, work / "cohort")()
            ours, theirs = _predict(work, given.model), _read(work / "cohort")
        ours(), theirs()  # caches full
        pairs = [(ours(), theirs()) for _ in range(given.times)]
    own, other = (statistics.median(values) for values in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"{given.name}: {own:.2f} s against {other:.2f} s, ratio {ratio:.2f}")


def _import(data: Path, out: Path) -> Callable[[], float]:
    command = [sys.executable, "-m", "cad", "-q", "import", str(data), str(out)]
    return lambda: _spent([*command, "--rules", "prostatex"], out)


def _convert(data: Path, out: Path) -> Callable[[], float]:
    return lambda: _spent(["dcm2niix", "-z", "y", "-o", str(out), str(data)], out)


def _spent(command: list[str], out: Path) -> float:
    """Return the processor seconds of a command that fills an empty folder."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Exit code 1 means that one study lacks its regions. A command that wrote nothing must not
    # count as fast.
    if done.returncode > 1 or not any(out.rglob("*.nii.gz")):
        raise SystemExit(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _predict(work: Path, model: str) -> Callable[[], float]:
    def once() -> float:
        shutil.rmtree(work / "run", ignore_errors=True)
        start = time.process_time()
        predict_cohort([model], work / "cohort", work / "run", HERE)
        return time.process_time() - start

    return once


def _read(cohort: Path) -> Callable[[], float]:
    def once() -> float:
        start = time.process_time()
        for path in cohort.rglob("*.nii.gz"):
            np.asanyarray(nib.load(path).dataobj)  # type: ignore[attr-defined]
        return time.process_time() - start

    return once


if __name__ == "__main__":
    main()
