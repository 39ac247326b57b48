"""Commands in-process and as processes: exit codes, JSON, start-up, every pipeline."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cad import __version__
from cad.base.settings import DecisionSettings
from cad.base.share import FOLDERS, find, shared
from cad.cli import app, main
from cad.cli.shared import execution, global_options
from cad.folders.cohort import read_cohort
from cad.folders.run_folder.known_failures import SortedFailures
from cad.folders.run_folder.results import read_results
from cad.folders.run_folder.tables import Failure
from cad.learning.evaluation.decisions.costs import measure_decisions
from cad.learning.evaluation.decisions.patient_level import PatientLevel
from cad.learning.evaluation.measures.comparison import Comparison
from cad.learning.evaluation.measures.intervals import Interval
from cad.learning.evaluation.summary import MeasuredDecisions, Summary
from cad.run.reports.printed import closing_lines, printed_table
from cad.run.stages.emit import Emitted


def _cad(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cad.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_help_is_quick_and_imports_nothing_heavy(tmp_path: Path) -> None:
    # Bytecode goes to a folder of its own, as the environment may forbid writing beside sources.
    cache = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    _cad("--help", **cache)
    best = 9.0
    for _ in range(5):
        # Processor time: a busy machine makes no command slower to load.
        start = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert _cad("--help", **cache).returncode == 0
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime)
    assert best <= 0.5
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, cad.cli; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"numpy", "pandas", "sklearn", "SimpleITK", "matplotlib", "numba"} & set(loaded)


def test_every_command_of_the_contract_exists() -> None:
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    wanted = {"demo", "simulate", "import", "check", "run", "train", "predict", "report"}
    assert wanted | {"experiment"} <= names
    assert CliRunner().invoke(app, ["model", "--help"]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "psvmm", "--cohort", ".", "-o", "y"], "known: .*psvm"),
        (["run", "psvm", "--cohort", "absent", "-o", "y"], "no such cohort folder"),
        (["check", "absent"], "file absent: no such cohort folder"),
        (["run", "psvm"], "--cohort"),
        (["experiment", "niaf2014-tabel1", "-o", "x"], "did you mean 'niaf2014-table1'"),
    ],
)
def test_unusable_arguments_end_with_2_and_say_why(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "cad.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert result.returncode == 2
    assert re.search(words, result.stderr)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "--model", "nope", "--cohort", ".", "-o", "y"], "known: .*phantom-psvm"),
        (["report", "absent"], "run"),
    ],
)
def test_what_only_the_libraries_can_refuse_ends_with_2_and_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    main_here: Callable[..., Any],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = main_here(*arguments)
    assert result.returncode == 2
    assert re.search(words, result.stderr)
    assert "Traceback" not in result.stderr


def test_check_names_problems_and_ends_with_1(tmp_path: Path) -> None:
    good = CliRunner().invoke(app, ["check", str(shared("sample_data")), "--json"])
    assert (good.exit_code, json.loads(good.stdout)) == (0, [])
    bad = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert bad.exit_code == 1
    assert "dataset_description.json" in bad.output


def test_the_sample_cohort_is_the_published_size() -> None:
    size = sum(p.stat().st_size for p in shared("sample_data").rglob("*") if p.is_file())
    assert size <= 15e6
    assert len(pd.read_csv(shared("sample_data", "participants.tsv"), sep="\t")) == 12
    for folder in FOLDERS:
        assert shared(folder).is_dir()
        assert not list(shared(folder).rglob("*.py"))  # data folders hold no code


NAMES = sorted(p.stem for p in shared("pipelines").glob("*.yaml"))


def runs_whole(name: str, cohort: Path, out: Path) -> None:
    arguments = ["run", name, "--cohort", str(cohort), "-o", str(out), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    table = pd.read_csv(out / "probabilities.csv")
    assert table["probability"].notna().all()
    assert find("pipelines", name, ".yaml").is_file()


@pytest.fixture(scope="module")
def third_of_a_sample(
    part_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The sample cohort with every third patient."""
    kept = [f"sub-{k:04d}" for k in range(2, 13, 3)]
    return part_of(shared("sample_data"), tmp_path_factory.mktemp("third") / "cohort", kept)


@pytest.mark.parametrize("name", ["niaf2014", "psvm"])  # the others by ``-m slow``
def test_a_pipeline_runs(name: str, third_of_a_sample: Path, tmp_path: Path) -> None:
    runs_whole(name, third_of_a_sample, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_pipeline_runs_on_the_sample_cohort(name: str, tmp_path: Path) -> None:
    runs_whole(name, shared("sample_data"), tmp_path)


def test_the_sample_dicom_goes_through_the_commands(tmp_path: Path) -> None:
    cohort, out = tmp_path / "cohort", tmp_path / "run"
    source = str(shared("sample_data", "dicom"))
    made = CliRunner().invoke(app, ["import", source, str(cohort), "--rules", "sample"])
    assert made.exit_code == 0, made.output
    assert read_cohort(cohort).simulated
    assert CliRunner().invoke(app, ["check", str(cohort)]).exit_code == 0
    arguments = ["predict", "--model", "phantom-psvm", "--cohort", str(cohort), "-o", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "trained on simulated patients" in (out / "report" / "index.html").read_text().lower()


@pytest.mark.reference
def test_the_real_studies_go_through_the_commands(
    tmp_path: Path, real_import: tuple[Path, dict[str, list[str]]]
) -> None:
    cohort, out = real_import[0], tmp_path / "run"
    assert CliRunner().invoke(app, ["check", str(cohort)]).exit_code == 0
    models = ["--model", "phantom-psvm", "--model", "phantom-psvm-biparametric"]
    result = CliRunner().invoke(app, ["predict", *models, "--cohort", str(cohort), "-o", str(out)])
    assert result.exit_code == 0, result.output
    table = pd.read_csv(out / "probabilities.csv").set_index(["participant_id", "roi_id"])
    four = table.loc["sub-ProstateX0218"]
    assert len(four) == 4
    assert four["probability"].between(0, 1).all()
    assert (four["model"] == "phantom-psvm").all()
    one = table.loc["sub-ProstateX0000"].iloc[0]
    assert (one["model"], one["histology"], one["isup"]) == (
        "phantom-psvm-biparametric",
        "malignant",
        3,
    )
    features = pd.read_parquet(out / "features.parquet").set_index("participant_id")
    assert features["adc_intensity_median"].between(600, 1800).all()
    assert features.loc["sub-ProstateX0218", "dce_semi_relative_enhancement_median"].gt(0.5).all()

    # In the same folder: what was measured is kept.
    alone = CliRunner().invoke(
        app, ["predict", *models[:2], "--cohort", str(cohort), "-o", str(out)]
    )
    assert alone.exit_code == 1
    assert "sub-ProstateX0000" in alone.output
    assert "dce" in alone.output


@pytest.mark.parametrize("module", ["cad", "cad.cli"])
def test_the_package_is_the_command_and_says_its_version(module: str) -> None:
    said = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True
    )
    assert said.stdout == f"cad {__version__}\n"


@pytest.mark.parametrize("closed", [(0,), (2,), (0, 1, 2)])
def test_a_closed_stream_has_a_number_of_its_own(closed: tuple[int, ...], tmp_path: Path) -> None:
    """Some schedulers close them: then libraries wrote into a file, or their processes ended."""
    told = tmp_path / "told"
    code = (
        "import atexit, os, sys\n"
        "from pathlib import Path\n"
        "from cad.cli import main\n"
        "sys.argv[1:] = ['--version']\n"
        "names = lambda: ' '.join(os.readlink(f'/proc/self/fd/{n}') for n in range(3))\n"
        f"atexit.register(lambda: Path({str(told)!r}).write_text(names()))\n"
        "main()\n"
    )
    shut = " ".join(f"{number}>&-" for number in closed)
    command = ["sh", "-c", f'exec "$0" -c "$1" {shut}', sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ("" if 1 in closed else f"cad {__version__}\n")
    kept = told.read_text().split()
    assert {kept[number] for number in closed} == {"/dev/null"}


def test_experiments_are_listed_and_a_pipe_gets_no_colour() -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["experiment", "--list"])
    assert listed.exit_code == 0
    assert "niaf2014-table1" in listed.stdout.splitlines()
    helped = subprocess.run(
        [sys.executable, "-m", "cad", "--help"], capture_output=True, text=True, check=True
    )
    assert "\x1b" not in helped.stdout
    assert "--install-completion" in helped.stdout


def test_verbose_shows_where_an_error_arose_and_quiet_no_progress(
    tmp_path: Path, main_here: Callable[..., Any]
) -> None:
    wrong = ["report", tmp_path / "absent"]
    loud, plain = (main_here(*more, *wrong) for more in (["-v"], []))
    assert "Traceback" not in plain.stderr
    assert "Traceback" in loud.stderr
    assert loud.stderr.endswith(plain.stderr)
    assert global_options == type(global_options)()
    try:
        global_options.quiet = True
        assert not execution(1).progress
    finally:
        global_options.quiet = False
    assert execution(1).progress


def test_a_command_ends_with_few_lines(tmp_path: Path) -> None:
    rows = [
        ("sub-1", "a", 0.03, "refer", "benign"),
        ("sub-2", "a", 0.91, "malignant", "malignant"),
        ("sub-3", "a", 0.04, "benign", "benign"),
        ("sub-4", "a", None, "", ""),
        ("sub-5", "a", 0.2, "refer", "refer"),
    ]
    columns = ["participant_id", "roi_id", "probability", "decision", "decision_model"]
    table = pd.DataFrame(rows, columns=columns)
    table["study_id"], table["patient_decision"] = table["participant_id"], table["decision"]
    table["belief"] = table["probability"]
    table["probability_of"] = "histology"
    table.to_csv(tmp_path / "probabilities.csv", index=False)
    (tmp_path / "run.json").write_text("{}")
    words, nothing = table["decision"].fillna("").to_numpy(str), np.full(5, np.nan)
    stated = measure_decisions(words, nothing, words, DecisionSettings(), after_histology=False)
    assert (stated.scored, stated.decided) == (4, 0.5)
    decisions = MeasuredDecisions(regions={"stated": stated})
    lines = closing_lines(read_results(tmp_path), Summary(), decisions)
    few = Summary(warnings=["few"])
    assert lines == [
        "5 men, 5 regions: 1 malignant, 2 refer, 1 benign, 1 without a probability; "
        "50% of 4 decided",
        "first: sub-5 refer, region a 20%; sub-1 refer, region a 3%; sub-2 malignant, region a 91%",
    ]
    failures = [Failure(f"sub-{k}", f"sub-{k}", "a", "measure", "too small") for k in range(4)]
    text = Emitted(
        tmp_path, 4, 4, failures, SortedFailures(failures, [], []), few, decisions, patients=lines
    ).as_text()
    assert len(text.splitlines()) == 6
    assert text.startswith("failures: 4 new\n")
    assert "failed: sub-0 ROI a (measure): too small; " in text
    assert "and more, see " in text
    assert text.splitlines()[-1] == f"open {tmp_path / 'report' / 'index.html'}"
    none_failed = SortedFailures([], [], [])
    without = MeasuredDecisions()
    emitted = Emitted(tmp_path, 4, 4, [], none_failed, few, without, patients=lines)
    verbose = emitted.as_text(verbose=True)
    assert verbose.splitlines()[0].split() == ["warning", "few"]
    assert "nothing failed" in verbose
    # Of a belief the line says so.
    table.assign(probability_of="readers").to_csv(tmp_path / "probabilities.csv", index=False)
    beliefs = closing_lines(read_results(tmp_path), Summary(), decisions)
    estimate = "the tool's estimate of what readers would say: 20% malignant"
    assert f"sub-5 refer, region a, {estimate}" in beliefs[1]


def test_one_patient_has_no_auc() -> None:
    nothing = Interval(np.nan, np.nan, np.nan, "")
    part = Comparison(4, 1, 1, 3, 0, 0, 0, [], nothing, nothing, nothing, {})
    measured = Summary(consensus=part, patient_level=PatientLevel(n=1, positive=1))
    lines = printed_table(measured, MeasuredDecisions())
    assert [name for name, _ in lines] == ["against readers"]


def test_a_stopped_command_says_that_it_goes_on(monkeypatch, capsys):
    """Ctrl-C is a keyboard interrupt anywhere; the exit code is the shell's own for it."""

    def stopped(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("cad.cli.warm.warm_up", stopped)
    monkeypatch.setattr("sys.argv", ["cad", "warm"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert "What was finished is kept" in capsys.readouterr().err
