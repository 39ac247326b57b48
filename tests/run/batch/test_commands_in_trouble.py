"""Commands that are killed at random moments, or whose disk or memory fails under them.

``pytest -m faults tests/run/batch/test_commands_in_trouble.py``. The commands run as they are, in
processes of their own; ``tests/support/crash_points.py`` has every point of their writing instead.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from folder_trees import differences, tree
from import_cases import RULES, write_patient, write_rois

from cad.evidence.phantom import simulate
from cad.run.model.bundle import verify_bundle

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
KILLS = 2
PIPELINE = """
name: quick
images: {displacement: said, t2_reference: regions}
features:
  modalities: [t2w, adc]
  families: [intensity]
learner: {name: ProbabilisticSVC}
validate: {bootstraps: 0}
"""
MEN = 34  # recalibration asks for 30 with histology
PATIENTS = ("P-001", "P-002", "P-003")


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "cad", "-q", *map(str, words)]


def started(*words: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


def ended(*words: object, before: tuple[str, ...] = ()) -> tuple[int, str]:
    """Exit code and messages of a command, which shows no traceback."""
    done = subprocess.run(
        [*before, *command(*words)], capture_output=True, text=True, check=False, timeout=900
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def killed(moment: float, *words: object) -> bool:
    """Start a command and kill it after so many seconds; tell whether it was at work still.

    What it started ends with it.
    """
    process = started(*words)
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        process.kill()
    _, said = process.communicate()
    assert b"Traceback" not in said, said
    end = time.monotonic() + 60
    while left := living(process.pid):
        assert time.monotonic() < end, f"a killed command left processes behind: {left}"
        time.sleep(0.1)
    return process.returncode == -signal.SIGKILL


def living(group: int) -> list[str]:
    """The processes of a group that have not ended, whoever has yet to be told of their end."""
    lines = subprocess.run(
        ["ps", "-o", "stat=,args=", "-g", str(group)], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    return [line for line in lines if line and not line.startswith("Z")]


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cohort of small images with histology, a pipeline, and a model."""
    root = tmp_path_factory.mktemp("ready")
    simulate(root / "cohort", 6, 4, light=True)
    (root / "quick.yaml").write_text(PIPELINE)
    code, said = ended(*words_of("train", root), "-o", root / "model")
    assert code == 0, said
    return root


def words_of(name: str, root: Path) -> list[object]:
    """A command, without where it writes."""
    if name == "recalibrate":
        if not (root / "site").exists():
            simulate(root / "site", MEN, 6, light=True)
        return [name, "--model", root / "model", "--cohort", root / "site"]
    return [name, root / "quick.yaml", "--cohort", root / "cohort"]


@pytest.mark.parametrize("name", ["train", "recalibrate"])
def test_a_command_that_is_killed_ends_when_it_is_asked_again(
    ready: Path, tmp_path: Path, name: str
):
    words, rng = words_of(name, ready), random.Random(name)
    (tmp_path / "timing").mkdir()
    begin = time.monotonic()
    code, said = ended(*words, "-o", tmp_path / "timing" / "out")
    whole = time.monotonic() - begin
    assert code == 0, said
    expected = tree(tmp_path / "timing")
    kills = 0
    while kills < KILLS:
        folder = tmp_path / f"killed{kills}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if not killed(rng.uniform(0.2, 1.0) * whole, *words, "-o", folder / "out"):
            whole *= 0.9
            continue
        kills += 1
        if (folder / "out").exists():  # whole, or absent
            verify_bundle(folder / "out")
        code, said = ended(*words, "-o", folder / "out")
        assert code == 0, said
        assert differences(expected, tree(folder)) == []


def source_of(folder: Path) -> Path:
    for seed, patient in enumerate(PATIENTS):
        write_patient(folder / patient, patient, f"study{seed}", dce=False, seed=seed)
        write_rois(folder / patient, 1, 2)
    return folder


@pytest.fixture(scope="module")
def imported(ready: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source, its rules, a cohort of it, and what the model says of the cohort."""
    root = tmp_path_factory.mktemp("imported")
    source_of(root / "source")
    (root / "rules.yaml").write_text(RULES)
    code, said = ended("import", root / "source", root / "cohort", "--rules", root / "rules.yaml")
    assert code == 0, said
    code, said = ended(
        "predict", "--model", ready / "model", "--cohort", root / "cohort", "-o", root / "out"
    )
    assert code == 0, said
    return root


def probabilities(out: Path) -> dict[tuple[str, str], float]:
    path = out / "probabilities.csv"
    if not path.exists():
        return {}
    table = pd.read_csv(path, dtype={"roi_id": str})
    return {
        (row.participant_id, row.roi_id): row.probability
        for row in table.itertuples()
        if pd.notna(row.probability)
    }


def test_a_prediction_beside_an_import_that_is_killed_has_no_other_number(
    ready: Path, imported: Path, tmp_path: Path
):
    """Patients come one by one; whoever is there has the probabilities of the whole cohort."""
    expected = probabilities(imported / "out")
    assert len(expected) == 2 * len(PATIENTS)
    cohort, out, rng = tmp_path / "cohort", tmp_path / "out", random.Random(9)
    words = ("import", imported / "source", cohort, "--rules", imported / "rules.yaml")
    predict = ("predict", "--model", ready / "model", "--cohort", cohort, "-o", out)
    begin = time.monotonic()
    code, _ = ended(*words[:2], tmp_path / "timing", *words[3:])
    whole = time.monotonic() - begin
    assert code == 0
    kills = 0
    for _ in range(6):
        importing = started(*words)
        time.sleep(rng.uniform(0.3, 1.0) * whole)
        beside = started(*predict)
        time.sleep(rng.uniform(0.0, 0.5) * whole)
        importing.kill()
        for process in (importing, beside):
            _, said = process.communicate(timeout=600)
            assert b"Traceback" not in said, said
        kills += importing.returncode == -signal.SIGKILL
        assert beside.returncode in (0, 1, 2), said  # 2: there is no cohort yet
        found = probabilities(out)
        assert found == pytest.approx({key: expected[key] for key in found}, rel=1e-12)
    assert kills
    assert ended(*words)[0] == 0
    assert ended(*predict)[0] == 0
    assert probabilities(out) == expected
    assert differences(tree(imported / "cohort"), tree(cohort)) == []


needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="STRACE ABSENT: no disk was made to fail"
)


def failing(calls: str, error: str, path: Path | None = None) -> tuple[str, ...]:
    """Return the words before a command that let system calls fail: of one file, or all."""
    of = () if path is None else ("-P", str(path))
    return ("strace", "-f", "-qq", "-o", "/dev/null", *of, "-e", f"inject={calls}:error={error}")


@needs_strace
def test_a_source_that_cannot_be_read_costs_its_study_alone(imported: Path, tmp_path: Path):
    bad = sorted((imported / "source" / "P-002" / "t2").iterdir())[2]
    code, said = ended(
        "import",
        imported / "source",
        tmp_path / "cohort",
        "--rules",
        imported / "rules.yaml",
        before=failing("read,pread64,mmap", "EIO", bad),
    )
    assert code == 1, said
    assert bad.name in said
    assert "nput/output error" in said
    assert (tmp_path / "cohort" / "sub-P001").is_dir()
    assert not (tmp_path / "cohort" / "sub-P002").exists()
    code, said = ended(
        "import", imported / "source", tmp_path / "cohort", "--rules", imported / "rules.yaml"
    )
    assert code == 0, said
    assert (tmp_path / "cohort" / "sub-P002").is_dir()


@needs_strace
def test_an_image_that_cannot_be_read_costs_its_study_alone(
    ready: Path, imported: Path, tmp_path: Path
):
    bad = imported / "cohort" / "sub-P002" / "anat" / "sub-P002_T2w.nii.gz"
    words = ("predict", "--model", ready / "model", "--cohort", imported / "cohort", "-o")
    code, said = ended(*words, tmp_path / "out", before=failing("read,pread64,mmap", "EIO", bad))
    assert code == 1, said
    expected = probabilities(imported / "out")
    found = probabilities(tmp_path / "out")
    others = {key: q for key, q in expected.items() if key[0] != "sub-P002"}
    assert found == pytest.approx(others, rel=1e-12)  # a product of fewer rows sums otherwise
    failures = (tmp_path / "out" / "failures.csv").read_text()
    assert "sub-P002" in failures
    assert "nput/output error" in failures
    code, said = ended(*words, tmp_path / "out", "--retry-failed")
    assert code == 0, said
    assert probabilities(tmp_path / "out") == expected


@needs_strace
@pytest.mark.parametrize(
    ("calls", "error"),
    [("fsync,fdatasync", "EIO"), ("rename", "EIO"), ("write,pwrite64", "ENOSPC")],
)
def test_results_that_cannot_be_written_leave_the_earlier_ones(
    ready: Path, imported: Path, tmp_path: Path, calls: str, error: str
):
    """If a command cannot write a file, the file that was there stays readable and the same."""
    out = tmp_path / "out"
    shutil.copytree(imported / "out", out)
    target = out / "probabilities.csv"
    before = target.read_bytes()
    words = ("predict", "--model", ready / "model", "--cohort", imported / "cohort", "-o", out)
    # Writing fails from some call on, in every process of the command.
    when = failing(f"{calls}", error)
    spoiled = (*when[:-1], f"{when[-1]}:when=20+" if calls.startswith("write") else when[-1])
    done = subprocess.run(
        [*spoiled, *command(*words, "--no-resume")], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr, done.stderr
    assert target.read_bytes() == before
    assert ended(*words)[0] == 0
    assert probabilities(out) == probabilities(imported / "out")


@pytest.mark.parametrize("gigabytes", [0.05, 0.4, 0.6])
def test_children_without_memory_are_reasons_and_no_traceback(
    ready: Path, imported: Path, tmp_path: Path, gigabytes: float
):
    limit = ("--memory-limit", gigabytes)
    rules = ("--rules", imported / "rules.yaml")
    code, said = ended("import", imported / "source", tmp_path / "cohort", *rules, *limit)
    assert code in (0, 1, 2), said
    assert said.strip()
    cohort = tree(tmp_path / "cohort") if (tmp_path / "cohort").exists() else {}
    whole = tree(imported / "cohort")
    studies = {name for name in cohort if name.startswith("sub-")}
    assert all(cohort[name] == whole[name] for name in studies)
    words = ("predict", "--model", ready / "model", "--cohort", imported / "cohort", "-o")
    code, said = ended(*words, tmp_path / "out", *limit)
    assert code in (0, 1, 2), said
    expected = probabilities(imported / "out")
    found = probabilities(tmp_path / "out")
    assert found == pytest.approx({key: expected[key] for key in found}, rel=1e-12)
