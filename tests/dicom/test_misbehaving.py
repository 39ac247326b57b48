"""Archives that misbehave: no foreign error, no false "stored", no wrong patient, no hanging."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bad_dimse
import bad_dimse_get  # noqa: F401  (each enters its ways in the table)
import bad_dimse_store  # noqa: F401
import bad_web
import bad_web_give  # noqa: F401
import bad_web_store  # noqa: F401
import pytest
from dicom_cases import write_run
from import_cases import RULES, write_patient, write_rois
from misbehaving import PATIENT, attempt, write_truth

from cad.base.errors import CadError
from cad.base.settings import read_settings
from cad.dicom.archive.client import check_address, connect, fetch_patient
from cad.dicom.archive.conversation import protocol
from cad.dicom.archive.interface import Step, not_all_stored
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.into.importer import import_source
from cad.run.workflows.delivery import deliver

SERVERS = {"dimse": bad_dimse, "web": bad_web}
LIMITS = ArchiveLimits(
    answer_seconds=1.0,
    study_seconds=3.0,
    study_gigabytes=0.01,
    answers=50,
    memory_gigabytes=1.0,
    proof_seconds=0.0,
)
# Starting the process that speaks, and a busy machine.
SLACK = 20.0
ALL = [(kind, name) for kind, module in SERVERS.items() for name in module.BEHAVIOURS]
SLOW = [(kind, name) for kind, name in ALL if SERVERS[kind].BEHAVIOURS[name].slow]
BRISK = [one for one in ALL if one not in SLOW]
# Two of those that only the end of a process ends belong to every test run.
WATCHED = [("dimse", "store_trickles_its_answer"), ("web", "studies_slow_headers")]
EVERY_RUN = BRISK[::12]

pytestmark = [
    # A connection that is cut in the middle leaves sockets to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True, scope="module")
def little_garbage() -> Iterator[None]:
    """Each collection would look through all that the tests before have loaded: half a second."""
    gc.freeze()
    yield
    gc.unfreeze()


class Direct:
    """Speak without a process in between: what hangs is not asked here."""

    def __init__(self, address: str) -> None:
        check_address(address, "ANY")
        self.archive = protocol(address, "ANY", LIMITS)
        self.find, self.fetch = self.archive.find, self.archive.fetch

    def store(self, paths: list[Path]) -> None:
        steps: list[Step] = []
        try:
            for step in self.archive.store(paths):
                steps.append(step)
        except CadError as error:
            raise not_all_stored(error, paths, steps) from error


def play(kind: str, name: str, folder: Path, make: Any) -> None:
    """Start the archive, ask, and hold the outcome against the truth."""
    behaviour = SERVERS[kind].BEHAVIOURS[name]
    truth = write_truth(folder / "truth")
    address, end = SERVERS[kind].serve(name, truth)
    try:
        seen = attempt(behaviour.job, make(address), truth, folder, fetch_patient)
    finally:
        end()
        gc.collect()  # while the warnings about what was cut off are still ours
    assert seen.outcome == behaviour.expect, seen.error
    # A patient has one query and one study here, a store two objects: each has the whole time.
    assert seen.seconds < 2 * LIMITS.study_seconds + SLACK


def test_there_are_enough_of_them():
    assert len(bad_dimse.BEHAVIOURS) >= 60
    assert len(bad_web.BEHAVIOURS) >= 60


def test_the_file_has_the_default_limits(repository: Path):
    assert read_settings(ArchiveLimits, repository / "configs/archive/default.yaml") == (
        ArchiveLimits()
    )


@pytest.mark.parametrize(("kind", "name"), EVERY_RUN)
def test_brisk_ones(kind: str, name: str, tmp_path: Path):
    play(kind, name, tmp_path, Direct)


@pytest.mark.faults
@pytest.mark.parametrize(("kind", "name"), [one for one in BRISK if one not in EVERY_RUN])
def test_the_other_brisk_ones(kind: str, name: str, tmp_path: Path):
    play(kind, name, tmp_path, Direct)


@pytest.mark.parametrize(("kind", "name"), WATCHED)
def test_what_only_the_end_of_a_process_ends(kind: str, name: str, tmp_path: Path):
    play(kind, name, tmp_path, lambda address: connect(address, "ANY", LIMITS))


@pytest.mark.faults
def test_slow_ones_and_a_sample_through_a_process(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """As a user meets them; prints the slowest call beside its limit."""
    times = {}
    for kind, name in [*SLOW, *BRISK[::12]]:
        start = time.monotonic()
        play(kind, name, tmp_path / kind / name, lambda a: connect(a, "ANY", LIMITS))
        times[kind, name] = time.monotonic() - start
    slowest = max(times, key=lambda key: times[key])
    said = capfd.readouterr()
    assert "Traceback" not in said.out + said.err
    with capfd.disabled():
        print(f"\n{len(times)} of {len(ALL)} behaviours; slowest {slowest}: {times[slowest]:.1f} s")


@pytest.fixture(scope="module")
def pseudonymous(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A cohort under pseudonyms, of the study that the archives hold, and a run on it."""
    root = tmp_path_factory.mktemp("pseudonymous")
    source = write_patient(root / "in", patient=PATIENT, dce=False)
    write_rois(source, 1)
    (root / "rules.yaml").write_text(RULES.replace("labels: id", "labels: pseudonym"))
    (name,) = import_source(source, root / "out", root / "rules.yaml").added
    return root / "out", write_run(root / "run", name, {"1": 0.4})


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("dimse", "store_honestly", "stored them in"),
        ("dimse", "store_warns_b006", "stored with warning 0xb006"),
        ("dimse", "store_for_another_patient", "a patient who is not"),
        ("web", "store_for_a_stranger", "a patient who is not"),
        ("web", "store_says_yes_and_keeps_nothing", "does not list it"),
    ],
)
def test_results_of_a_pseudonymous_cohort(
    pseudonymous: tuple[Path, Path], tmp_path: Path, kind: str, name: str, words: str
):
    """The cohort's key proves whose they are: never sent to another patient's study."""
    cohort, run = pseudonymous
    truth = write_truth(tmp_path / "truth")
    address, end = SERVERS[kind].serve(name, truth)
    try:
        if SERVERS[kind].BEHAVIOURS[name].expect == "done":
            assert words in "\n".join(deliver(run, cohort, address, "ANY", LIMITS)[0])
            assert len(truth.kept) == 2
        else:
            with pytest.raises(CadError, match=words) as caught:
                deliver(run, cohort, address, "ANY", LIMITS)
            assert "; stored: none; " in caught.value.problem
            assert truth.kept == {}
    finally:
        end()
        gc.collect()


def test_the_command_says_it_in_one_line(tmp_path: Path, rules: Path):
    """As an operator sees it: exit code 2, no traceback, nothing of the study in the cohort."""
    limits = tmp_path / "limits.yaml"
    limits.write_text("answer_seconds: 1\nstudy_seconds: 3\n")
    address, end = bad_web.serve("give_slow_body", write_truth(tmp_path / "truth"))
    command = [
        sys.executable,
        "-m",
        "cad.cli",
        "import",
        address,
        tmp_path / "out",
        "--rules",
        rules,
        "--patient",
        PATIENT,
        "--limits",
        limits,
    ]
    try:
        done = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        end()
        gc.collect()
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "fetch took longer than 3 s and was ended" in done.stdout
    assert not list((tmp_path / "out").glob("sub-*"))
    assert not list((tmp_path / "out").glob(".fetch-*"))
