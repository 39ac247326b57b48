"""Damage with a meaning at every boundary, and bytes, taken to where a command would meet it.

Cells, entries, header elements and arrays are swapped, doubled, emptied, nested and made huge
(:mod:`fuzzing`). Each case is accepted or refused with the project's own error, within 10 s of
processor time and 2 GB (the kernel refuses more). Nothing is stored: a seed makes every case.
The unmarked test draws a few of each kind; ``-m fuzz`` draws more than five thousand.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from boundaries_in import (
    archives,
    dicom,
    drawn,
    images,
    reports_back,
    rules_file,
    settings_files,
    sidecars,
    tables,
    tiny_cohort,
)
from boundaries_made import bundles, made_run, memory, run_folder
from damage import CSV, JSON, NIFTI, TSV, YAML, Boundary, Damage
from fuzzing import cad
from fuzzing_images import odd_dicom

from cad.base.share import shared
from cad.run.model.bundle import HASHES

MEMORY = 2 * 10**9
FEW = 5


@pytest.fixture(autouse=True)
def unflushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave to the system when it writes: no power cut is tried here."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="module", autouse=True)
def bounded_memory() -> Iterator[None]:
    """Two gigabytes more than now, or MemoryError."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        now = next(int(x.split()[1]) * 1024 for x in status.splitlines() if x.startswith("VmData"))
        resource.setrlimit(resource.RLIMIT_DATA, (now + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


KINDS: dict[str, tuple[Callable[[Path], Boundary], int]] = {
    "tables": (tables, 800),
    "sidecars": (sidecars, 500),
    "images": (images, 700),
    "DICOM": (dicom, 700),
    "regions and scores": (drawn, 350),
    "import rules": (rules_file, 350),
    "settings": (settings_files, 500),
    "bundles": (bundles, 500),
    "run folder": (run_folder, 700),
    "memory of a run": (memory, 250),
    "archives": (archives, 250),
    "reports back": (reports_back, 150),
}


def commands(root: Path) -> Boundary:
    """Whole commands with workers: check, import, report, predict, model, settings, readings."""
    cohort, run = tiny_cohort(root), made_run(root)
    source, rules, out = root / "source", root / "rules.yaml", root / "out"
    shutil.rmtree(source / "b")
    model = Path(shutil.copytree(shared("models", "phantom-psvm-biparametric"), root / "model"))
    pipeline = Path(shutil.copy(shared("pipelines", "psvm.yaml"), root / "pipeline.yaml"))
    costs = Path(shutil.copy(shared("configs", "decision", "default.yaml"), root / "costs.yaml"))
    where = ["--cohort", str(cohort), "-o", str(out)]
    turn = itertools.count()
    lines = (
        ["check", str(cohort), "--memory-limit", "2"],
        ["import", str(source), str(out), "--rules", str(rules), "--memory-limit", "2"],
        ["import", str(source), "--explain", "--rules", str(rules)],
        ["report", str(run)],
        ["model", "verify", str(model)],
        ["model", "show", str(model), "--json"],
        ["predict", "--model", str(model), *where, "--decision", str(costs)],
        ["run", str(pipeline), *where],
    )
    files: list[tuple[Path, Damage]] = [(p, NIFTI) for p in sorted(cohort.rglob("*T2w.nii.gz"))]
    files += [(p, TSV) for p in sorted(cohort.glob("*.tsv"))]
    files += [(p, JSON) for p in sorted(cohort.rglob("*T2w.json"))]
    files += [(p, odd_dicom) for p in sorted(source.rglob("t2/*.dcm"))]
    files += [(run / "run.json", JSON), (run / "metrics.json", JSON)]
    files += [(run / "probabilities.csv", CSV), (rules, YAML), (pipeline, YAML), (costs, YAML)]
    files += [(model / "metadata.json", JSON), (model / HASHES, JSON)]
    # Every damage meets the command that reads it.
    readers = {cohort: (0, 6, 7), source: (1, 2), run: (3,), model: (4, 5, 6)}

    def read() -> None:
        changed = next(p for p, _ in files if p.read_bytes() != kept[p])
        own = next((n for top, n in readers.items() if changed.is_relative_to(top)), None)
        own = own or {rules: (1, 2), pipeline: (7,), costs: (6,)}[changed]
        cad(*lines[own[next(turn) % len(own)]])

    kept = {path: path.read_bytes() for path, _ in files}
    return Boundary(files, read, after=lambda: shutil.rmtree(out, ignore_errors=True))


KINDS["commands"] = (commands, 60)


def try_many(kind: str, root: Path, cases: int, seed: int) -> None:
    """Draw the cases; all faults are named at once, each place once."""
    boundary = KINDS[kind][0](root)
    found: dict[str, str] = {}
    count: Counter[str] = Counter()
    for number in range(cases):
        text = boundary.case(random.Random(f"{kind} {seed} {number}"))
        if text:
            place = text.splitlines()[0]
            found.setdefault(place, f"case {number}: {text}")
            count[place] += 1
    assert not found, f"{dict(count)}\n\n" + "\n\n".join(found.values())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "commands"])
def test_a_few_damaged_inputs(kind: str, tmp_path: Path):
    try_many(kind, tmp_path, FEW, seed=1)


@pytest.mark.fuzz
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_inputs(kind: str, tmp_path: Path):
    try_many(kind, tmp_path, KINDS[kind][1], seed=2)
