"""Odd values for every parameter of every command: an answer or a refusal, never a traceback.

The parameters are read from the commands themselves, so that a new one is tried without being
named here. The unmarked test draws a few; ``-m fuzz`` draws hundreds.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from boundaries_in import tiny_cohort
from boundaries_made import made_run
from fuzzing import ODD_TEXTS, SECONDS, cad, fault

from cad.base.share import shared
from cad.cli import app

MODEL = "phantom-psvm-biparametric"
LEARNER = "logistic on soft labels"
ROWS = [f"p{k // 2},{1 + k % 5},{1 + k % 4},{k}" for k in range(12)]
TABLE = "\n".join(["participant_id,r1,r2,adc", *ROWS, ""])
# Words that make a command work. Commands that would compute for long or never end get an
# output or a configuration that is refused, unless the odd value takes its place.
STARTS = {
    "reading": ["cohort", "-o", "out", "--readers", "a,b"],
    "serve": ["--config", "missing.yaml"],
    "demo": ["-o", "pipeline.yaml"],
    "simulate": ["out", "--patients", "1"],
    "check": ["cohort"],
    "run": ["pipeline.yaml", "--cohort", "cohort", "-o", "out"],
    "train": ["pipeline.yaml", "--cohort", "cohort", "-o", "out"],
    "predict": ["--model", "model", "--cohort", "cohort", "-o", "out"],
    "report": ["run"],
    "acknowledge": ["run", "nobody", "--reason", "no T2"],
    "compare": ["pipeline.yaml", "pipeline.yaml", "--cohort", "cohort", "-o", "out"],
    "suggest": ["--model", "model", "--cohort", "cohort", "-o", "out"],
    "recalibrate": ["--model", "model", "--cohort", "cohort", "-o", "out"],
    "import": ["source", "out", "--rules", "rules.yaml"],
    "experiment": ["niaf2013-toy", "-o", "pipeline.yaml"],
    "model verify": ["model"],
    "model show": ["model"],
    "model compare": ["model", "model", "--cohort", "cohort", "-o", "out"],
    "cohort remove": ["nobody", "--cohort", "cohort", "--runs", "run"],
    "audit verify": ["audit.jsonl"],
    "contract grand-challenge": ["--input", "source", "--output", "out"],
    "contract mhub": ["--input", "source", "--output", "out"],
    "watch night": ["run", "--model", "model", "--cohort", "cohort", "-o", "out"],
    "watch show": ["run"],
    "watch promote": ["run"],
    "table validate": ["table.csv", "--scores", "r1,r2", "--learner", LEARNER, "--folds", "2"],
    "table train": ["table.csv", "--scores", "r1,r2", "--learner", LEARNER, "-o", "out"],
    "table predict": ["table.csv", "--model", "model", "-o", "out.csv"],
}
# Lines that are accepted compute here; the others end at once.
COMPUTING = (
    "demo",
    "run",
    "train",
    "predict",
    "suggest",
    "recalibrate",
    "model compare",
    "table validate",
    "table train",
)
MANY, FEWER = 60, 8
NOTHING_TO_SET = {"warm"}
# 1_000 is a thousand to Python: so many patients would be made. Nor is "/" drawn: `cad import /`
# reads the whole disk, as asked.
NAMES = {*ODD_TEXTS, ".", "cohort", "run", "model", "pipeline.yaml", "/dev/null", "-1.5", "--"}
NAMES -= {"1_000"}


def leaves(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command by its words."""
    if not hasattr(command, "commands"):
        yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from leaves(below, f"{path} {name}".strip())


COMMANDS = dict(leaves(typer.main.get_command(app)))


def odd_line(name: str, draw: random.Random) -> list[str]:
    """Return a command line with one or two values that nobody meant."""
    start = list(STARTS[name])
    options = [o.opts for o in COMMANDS[name].params if o.param_type_name == "option"]
    for _ in range(draw.choice((1, 1, 2))):
        odd = draw.choice(sorted(NAMES))
        if draw.random() < 0.3:
            start[draw.randrange(len(start))] = odd
        elif spelled := draw.choice(options):
            start.append(draw.choice((f"{spelled[0]}={odd}", spelled[0])))
    return [*name.split(), *start]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the start of the command lines, deep enough for a path that goes upwards."""
    root = tmp_path_factory.mktemp("arguments") / "so" / "deep" / "that"
    root.mkdir(parents=True)
    tiny_cohort(root)
    made_run(root)
    shutil.copytree(shared("models", MODEL), root / "model")
    shutil.copy(shared("pipelines", "psvm.yaml"), root / "pipeline.yaml")
    (root / "audit.jsonl").write_text("")
    (root / "table.csv").write_text(TABLE)
    return root


def try_lines(
    folder: Path, names: list[str], each: int, seed: int, here: pytest.MonkeyPatch
) -> None:
    """Draw lines for every command; all faults are named at once, each place once."""
    found: dict[str, str] = {}
    for name in names:
        for number in range(each):
            line = odd_line(name, random.Random(f"{name} {seed} {number}"))
            work = folder.parent / "work"
            shutil.copytree(folder, work, symlinks=True)
            here.chdir(work)
            seconds = 60 if name == "demo" else SECONDS  # a line may be sound: a whole demo runs
            text = fault(lambda: cad(*line), seconds)  # noqa: B023 (called at once)
            here.chdir(folder)
            shutil.rmtree(work)
            if text:
                found.setdefault(text.splitlines()[0], f"cad {line}: {text}")
    assert not found, "\n\n".join(found.values())


def test_every_command_has_a_line_to_start_from():
    assert set(COMMANDS) == {*STARTS, *NOTHING_TO_SET}


def test_a_few_odd_arguments(folder: Path, monkeypatch: pytest.MonkeyPatch):
    try_lines(folder, ["model verify", "report", "audit verify", "check"], 2, 1, monkeypatch)


@pytest.mark.fuzz
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", STARTS)
def test_many_odd_arguments(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    try_lines(folder, [name], FEWER if name in COMPUTING else MANY, 3, monkeypatch)
