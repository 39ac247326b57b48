"""Damage with a meaning at every boundary, and bytes, taken to where a command would meet it.

Cells, entries, header elements and arrays are swapped, doubled, emptied, nested and made huge
(:mod:`fuzzing`). Each case is accepted or refused with the project's own error, within 10 s of
processor time and 2 GB (the kernel refuses more). Nothing is stored: a seed makes every case.
The unmarked test draws a few of each kind; ``-m fuzz`` draws more than five thousand.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import itertools
import json
import os
import random
import resource
import shutil
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from dicom_files import write_seg, write_structures
from fuzzing import (
    fault,
    nested,
    odd_bytes,
    odd_dicom,
    odd_json,
    odd_nifti,
    odd_npz,
    odd_table,
    odd_tree,
)
from import_cases import RULES, regions, write_patient

from cad.cli import main
from cad.clinic.explain import explain_source
from cad.clinic.import_rules import ImportRules
from cad.clinic.importer import import_source
from cad.clinic.sr_reader import read_report
from cad.cohort import read_cohort, with_readings
from cad.errors import CadError
from cad.execution.options import ExecutionOptions
from cad.execution.resume import measure_studies
from cad.execution.task import StudyOutcome, StudyTask
from cad.features.provenance import CohortFacts, resolve_auto
from cad.files import JsonObject
from cad.imaging.nifti import write_volume
from cad.labels.consensus import reader_labels
from cad.model.bundle import FILES, HASHES, load_bundle, verify_bundle
from cad.model.fold_features import FoldFeatures
from cad.reading import reading
from cad.reports import pages, write_report
from cad.run_folder import RunFolder
from cad.run_folder.records import read_metrics, read_record
from cad.run_folder.study_file import page_measurements, read_provenance, read_rows
from cad.run_folder.tables import (
    KEYS,
    Failure,
    read_failures,
    read_features,
    read_probabilities,
)
from cad.settings import DecisionSettings, PipelineSettings, read_settings
from cad.share import shared
from cad.stages.check import check
from cad.stages.extract import Extracted
from cad.stages.predict import operating_point, score_rows, shared_settings
from cad.stages.printed import printed_table

MEMORY = 2 * 10**9
FEW = 5
Damage = Callable[[Path, random.Random], None]


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


def _by(mutate: Callable[..., bytes], *more: object) -> Damage:
    def damage(path: Path, rng: random.Random) -> None:
        path.write_bytes(mutate(path.read_bytes(), rng, *more))

    return damage


BYTES, JSON, NPZ, NIFTI = _by(odd_bytes), _by(odd_json), _by(odd_npz), _by(odd_nifti)
CSV, TSV = _by(odd_table, ","), _by(odd_table, "\t")


def YAML(path: Path, rng: random.Random) -> None:
    """Other values under other keys, as YAML or, at times, as bytes."""
    if rng.random() < 0.2:
        BYTES(path, rng)
        return
    tree = odd_tree(yaml.safe_load(path.read_text()), rng)
    text = nested(json.dumps(tree)) if rng.random() < 0.5 else yaml.safe_dump(tree)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))


def ZIP(path: Path, rng: random.Random) -> None:
    """Bytes of the directory at the end more often than others; other names and flags."""
    content = bytearray(path.read_bytes())
    for _ in range(rng.randrange(1, 5)):
        start = len(content) * 3 // 4 if rng.random() < 0.7 else 0
        content[rng.randrange(start, len(content))] = rng.choice((0, 1, 255, rng.randrange(256)))
    path.write_bytes(odd_bytes(bytes(content), rng) if rng.random() < 0.2 else content)


def LINES(path: Path, rng: random.Random) -> None:
    """One line of a file of JSON lines."""
    lines = path.read_bytes().splitlines()
    at = rng.randrange(len(lines))
    lines[at] = odd_json(lines[at], rng)
    path.write_bytes(b"\n".join(lines))


def PARQUET(path: Path, rng: random.Random) -> None:
    """Other columns, types and values of a table, or bytes."""
    if rng.random() < 0.3:
        BYTES(path, rng)
        return
    table = pd.read_parquet(path)
    name = rng.choice(list(table.columns))
    kind = rng.randrange(6)
    if kind == 0:
        table = table.drop(columns=name)
    elif kind == 1:
        table[name] = rng.choice(("text", "", None))
    elif kind == 2:
        table[name] = rng.choice((np.nan, np.inf, 1e308, -1, 7, True))
    elif kind == 3:
        table = table.iloc[: rng.choice((0, 1, 2))]
    elif kind == 4:
        table = table.rename(columns={name: rng.choice(list(table.columns)[:9])})
        table = table.loc[:, ~table.columns.duplicated(keep=False)]
    else:
        table[name] = [[1, 2]] * len(table)
    table.to_parquet(path, index=False)


@dataclass
class Boundary:
    """Files, how each is damaged, and what reads them."""

    files: list[tuple[Path, Damage]]
    read: Callable[[], object]
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None
    settle: Callable[[], None] = lambda: None

    def case(self, rng: random.Random) -> str:
        """One file damaged, read, and put back."""
        path, damage = rng.choice(self.files)
        content = path.read_bytes()
        try:
            damage(path, rng)
            self.before()
            return fault(self.read)
        finally:
            self.after()
            path.write_bytes(content)
            self.settle()


# --- sources ------------------------------------------------------------------------------------


def thin(folder: Path) -> None:
    """Keep four slices of each series, and neither localiser nor flip angles."""
    for path in sorted(folder.rglob("*.dcm")):
        if path.stem[-3:] in ("005", "006") or path.parent.name in ("loc", "v3", "v4", "d2"):
            path.unlink()


def dicom_source(root: Path, *, dce: bool = True) -> tuple[Path, Path]:
    """Two studies with regions drawn in a SEG and an RTSTRUCT, and a rules file."""
    source, rules = root / "source", root / "rules.yaml"
    rules.write_text(RULES)
    thin(write_patient(source / "a", dce=dce))
    images = sorted((source / "a" / "t2").glob("*.dcm"))
    mask = np.zeros((4, 20, 20), bool)
    mask[1:3, 4:9, 4:9] = True
    write_seg(source / "a" / "seg.dcm", images, {"ROI 1": mask})
    thin(write_patient(source / "b", "P-002", "study2", dce=False))
    square = np.array([[4, 4, 6], [9, 4, 6], [9, 9, 6], [4, 9, 6.0]])
    t2 = sorted((source / "b" / "t2").glob("*.dcm"))
    write_structures(source / "b" / "rt.dcm", t2[0], {"ROI 1": [square]})
    scores = "patient_id,roi_id,reader_id,scale,score\nP-001,1,r1,likert5,4\nP-001,1,r2,likert5,2\n"
    (source / "a" / "scores.csv").write_text(scores)
    return source, rules


def tiny_cohort(root: Path) -> Path:
    """A cohort of two patients that was imported, with every kind of image."""
    source, rules = root / "source", root / "rules.yaml"
    rules.write_text(RULES + "ranges: {adc_median: [1, 5000]}\n")
    for name, patient in (("a", "P-001"), ("b", "P-002")):
        write_patient(source / name, patient, name, dce=name == "a")
        write_volume(source / name / "rois.nii.gz", regions(1, 2))
    rows = [
        f"{p},{roi},{reader},likert5,{score}"
        for p in ("P-001", "P-002")
        for roi, reader, score in ((1, "r1", 4), (1, "r2", 2), (2, "r1", 1))
    ]
    for name in ("a", "b"):
        text = "\n".join(["patient_id,roi_id,reader_id,scale,score", *rows])
        (source / name / "scores.csv").write_text(text)
    summary = import_source(source, root / "cohort", rules)
    assert len(summary.added) == 2, summary.failures
    return root / "cohort"


def _load(cohort: Path, settings: PipelineSettings) -> None:
    """What ``run`` and ``predict`` do with a cohort's tables before they measure."""
    found = read_cohort(cohort)
    refs = found.studies()
    settings = resolve_auto(CohortFacts.of((r.folder, r.study_id) for r in refs), settings)
    with_readings(found, ["sub-P001/1/r9=4"])
    good = {ref.participant_id for ref in refs}
    scores, rois = (t[t["participant_id"].isin(good)] for t in (found.scores, found.rois))
    reader_labels(scores, rois, found.readers, settings.labels)


def tables(root: Path) -> Boundary:
    cohort = tiny_cohort(root)
    settings = PipelineSettings(name="fuzz")
    names = ("participants.tsv", "readers.tsv", "rois.tsv", "scores.tsv")
    source, rules, again = root / "source", root / "rules.yaml", root / "again"
    for path in sorted(source.rglob("*.dcm")):  # one study of one image
        if path.parent.name != "t2" or path.parent.parent.name != "a":
            path.unlink()

    def read() -> None:
        for step in (lambda: _load(cohort, settings), lambda: check_tables(cohort)):
            try:
                step()
            except CadError:
                continue
        for name in (*names, "dataset_description.json"):
            again.mkdir(exist_ok=True)
            shutil.copy(cohort / name, again / name)
        import_source(source, again, rules)

    def check_tables(cohort: Path) -> None:
        for ref in read_cohort(cohort).studies():
            ref.rois.to_dict()

    return Boundary(
        [(cohort / name, TSV) for name in names] + [(cohort / "dataset_description.json", JSON)],
        read,
        after=lambda: shutil.rmtree(again, ignore_errors=True),
    )


def sidecars(root: Path) -> Boundary:
    cohort = tiny_cohort(root)
    files = [(path, JSON) for path in sorted(cohort.rglob("*.json"))]
    source, rules = root / "source", root / "rules.yaml"
    for path in sorted(source.rglob("*.dcm")):  # one study of one image
        if path.parent.name != "t2" or path.parent.parent.name != "a":
            path.unlink()
    keep = root / "kept"
    shutil.copytree(cohort, keep)

    def read() -> None:
        check(cohort)
        import_source(source, cohort, rules).as_text()

    def back() -> None:
        shutil.rmtree(cohort)
        shutil.copytree(keep, cohort)

    return Boundary(files, read, after=back)


def images(root: Path) -> Boundary:
    cohort = tiny_cohort(root)
    return Boundary([(p, NIFTI) for p in sorted(cohort.rglob("*.nii.gz"))], lambda: check(cohort))


def _imported(root: Path, files: list[tuple[Path, Damage]], source: Path, rules: Path) -> Boundary:
    out = root / "out"

    turn = itertools.count()

    def read() -> None:
        if next(turn) % 3 == 0:
            explain_source(source, rules).as_text()
        else:
            import_source(source, out, rules).as_text()
            check(out)

    return Boundary(files, read, after=lambda: shutil.rmtree(out, ignore_errors=True))


def dicom(root: Path) -> Boundary:
    source, rules = dicom_source(root)
    shutil.rmtree(source / "b")
    paths = sorted(p for p in (source / "a").rglob("*.dcm") if p.name != "seg.dcm")
    return _imported(root, [(p, odd_dicom) for p in paths], source, rules)


def drawn(root: Path) -> Boundary:
    source, rules = dicom_source(root, dce=False)
    files: list[tuple[Path, Damage]] = [
        (source / "a" / "seg.dcm", odd_dicom),
        (source / "b" / "rt.dcm", odd_dicom),
        (source / "a" / "scores.csv", CSV),
    ]
    return _imported(root, files, source, rules)


def rules_file(root: Path) -> Boundary:
    source, rules = dicom_source(root, dce=False)
    shutil.rmtree(source / "b")
    files: list[tuple[Path, Damage]] = [(rules, YAML)]
    boundary = _imported(root, files, source, rules)

    def read() -> None:
        read_settings(ImportRules, rules)
        import_source(source, root / "out", rules).as_text()

    boundary.read = read
    return boundary


def settings_files(root: Path) -> Boundary:
    files: list[tuple[Path, Damage]] = []
    for path in sorted(shared("pipelines").glob("*.yaml")):
        files.append((Path(shutil.copy(path, root / path.name)), YAML))
    costs = root / "costs.yml"
    costs.write_text("false_positive: 1\nfalse_negative: 4\nrefer_negative: 0.4\n")

    def read() -> None:
        from cad.model.estimator import make_estimator

        for path in sorted(root.glob("*.yaml")):
            if hashes[path] != hashlib.sha256(path.read_bytes()).hexdigest():
                settings = read_settings(PipelineSettings, path)
                _ = settings.decision.thresholds
                make_estimator(settings)
        _ = read_settings(DecisionSettings, costs).thresholds

    hashes = {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in root.glob("*.yaml")}
    return Boundary([*files, (costs, YAML)], read)


def bundles(root: Path) -> Boundary:
    folder = Path(shutil.copytree(shared("models", "phantom-psvm-biparametric"), root / "model"))
    training = pd.read_parquet(folder / "training.parquet").iloc[:40].reset_index(drop=True)
    training.to_parquet(folder / "training.parquet", index=False)
    settings = PipelineSettings(name="fuzz")
    keys = training[KEYS].iloc[:3] if set(KEYS) <= set(training) else None
    if keys is None:
        keys = (
            training[["participant_id", "roi_id"]]
            .iloc[:3]
            .assign(study_id=training["participant_id"])[KEYS]
        )

    def sign() -> None:
        hashes = {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in FILES}
        (folder / HASHES).write_text(json.dumps(hashes))

    sign()
    X = training[load_bundle(folder).features].iloc[:3]

    def read() -> None:
        bundle = load_bundle(folder)
        chosen = shared_settings([bundle])
        source = FoldFeatures(keys, X, settings, [], np.array([""] * 3), RunFolder(root / "run"))
        provenance = pd.DataFrame(index=range(3))
        extracted = Extracted(pd.concat([keys, X], axis=1), provenance, source)
        operating_point(bundle, chosen.decision)
        aim = chosen.decision.model_copy(update={"aim_npv": 0.9})
        operating_point(bundle, aim)
        score_rows([bundle], extracted)
        verify_bundle(folder)

    damages = (NPZ, JSON, NPZ, PARQUET, BYTES)
    files = [(folder / name, how) for name, how in zip(FILES, damages, strict=True)]
    return Boundary([*files, (folder / "metadata.json", JSON)], read, before=sign, settle=sign)


def _made_run(root: Path) -> Path:
    """The run folder of the reports' tests, smaller."""
    path = Path(__file__).resolve().parents[1] / "reports" / "conftest.py"
    spec = importlib.util.spec_from_file_location("reports_conftest", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    made.SHAPE = (3, 40, 44)
    others = [made.Patient(f"sub-P{k:03d}", 5, images=False) for k in range(6, 12)]
    return made.make_run(root / "run", (made.Patient("sub-P001", 2), *others))


def run_folder(root: Path) -> Boundary:
    run = _made_run(root)
    folder = RunFolder(run)
    read_probabilities(folder).iloc[:, :4].to_parquet(folder.features)
    damages: dict[str, Damage] = {".csv": CSV, ".json": JSON, ".npz": NPZ, ".parquet": PARQUET}
    paths = sorted(p for p in run.rglob("*") if p.is_file() and p.suffix in damages)

    drawn: dict[bytes, object] = {}
    draw: Any = getattr(pages.draw_figures, "real", pages.draw_figures)

    def draw_once(metrics: JsonObject, thresholds: object) -> object:
        """Figures of measures that are as before need not be drawn again."""
        key = folder.metrics.read_bytes() + folder.record.read_bytes()
        drawn[key] = drawn.get(key) or draw(metrics, thresholds)
        return drawn[key]

    draw_once.real = draw  # type: ignore[attr-defined]
    pages.draw_figures = draw_once  # type: ignore[assignment]

    def said() -> None:
        """What a finished run prints again, as a command reads it."""
        with reading(run, "not a finished run"):
            printed_table(read_metrics(folder))

    def read() -> None:
        study = next((run / "studies").glob("*.npz"))
        for step in (
            lambda: write_report(run),
            lambda: read_failures(folder),
            lambda: read_probabilities(folder),
            lambda: read_features(folder),
            lambda: page_measurements(folder, study.stem),
            said,
            lambda: read_record(folder),
            lambda: read_rows([study]),
            lambda: read_provenance([study]),
            lambda: folder.check_kind("run"),
        ):
            try:
                step()
            except CadError:
                continue

    return Boundary([(p, damages[p.suffix]) for p in paths], read)


def memory(root: Path) -> Boundary:
    """What a run remembers of the last one."""
    cohort = tiny_cohort(root)
    out = root / "run"
    settings = PipelineSettings(name="fuzz")
    tasks = [StudyTask(ref, settings, out) for ref in read_cohort(cohort).studies()]
    path = RunFolder(out).memory

    def run() -> None:
        measure_studies(_failing, tasks, ExecutionOptions(jobs=0))

    run()
    return Boundary([(path, LINES)], run)


def _failing(task: StudyTask) -> StudyOutcome:
    failure = Failure(task.ref.participant_id, task.ref.study_id, "", "read", "because")
    return StudyOutcome(task.ref.study_id, "failed", "because", [failure], 0.1, "key")


def archives(root: Path) -> Boundary:
    source, rules = dicom_source(root, dce=False)
    shutil.rmtree(source / "b")
    path = root / "zipped" / "study.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for part in sorted((source / "a").rglob("*.*")):
            if part.parent.name in ("t2", "a"):
                out.write(part, part.relative_to(source))
    return _imported(root, [(path, ZIP)], path.parent, rules)


def reports_back(root: Path) -> Boundary:
    """A structured report that is read back."""
    from pydicom.data import get_testdata_file

    path = Path(shutil.copy(str(get_testdata_file("reportsi.dcm")), root / "sr.dcm"))
    return Boundary([(path, odd_dicom)], lambda: read_report(path))


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


def cad(*arguments: str) -> None:
    """Run one command in this process, as the program does."""
    before = sys.argv
    sys.argv = ["cad", *arguments]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main()
    except SystemExit as end:
        if end.code not in (0, 1, 2, None):
            raise
    finally:
        sys.argv = before


def commands(root: Path) -> Boundary:
    """Whole commands with workers: check, import, report, predict, model, settings, readings."""
    cohort, run = tiny_cohort(root), _made_run(root)
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
