"""No command writes into a folder that is not of its own kind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cad.base.errors import CadError
from cad.base.files import write_atomic, write_json
from cad.base.share import shared
from cad.base.transactions import MARK, claimed, require_kind
from cad.cli import app
from cad.evidence.experiments import EXPERIMENT
from cad.folders.cohort import COHORT
from cad.folders.run_folder import COMPARISON, RUNS, RunFolder
from cad.hospital.reader_study.study import READING
from cad.run.model.bundle import MODEL

KINDS = [COHORT, MODEL, *RUNS.values(), COMPARISON, READING, EXPERIMENT]
PREDICT = ("--model", "phantom-psvm", "--cohort", "COHORT", "-o", "OUT")
ARGUMENTS = {
    "demo": ("-o", "OUT"),
    "simulate": ("OUT", "--patients", "1"),
    "run": ("psvm", "--cohort", "COHORT", "-o", "OUT"),
    "train": ("psvm", "--cohort", "COHORT", "-o", "OUT"),
    "predict": PREDICT,
    "suggest": PREDICT,
    "recalibrate": PREDICT,
    "report": ("OUT",),
    "compare": ("psvm", "psvm-biparametric", "--cohort", "COHORT", "-o", "OUT"),
    "model compare": ("phantom-psvm", "phantom-psvm-biparametric", *PREDICT[2:]),
    "import": ("COHORT", "OUT", "--rules", "sample"),
    "experiment": ("niaf2014-outlier", "-o", "OUT"),
    "reading": ("COHORT", "-o", "OUT"),
    "contract grand-challenge": ("--input", "COHORT", "--output", "OUT"),
    "watch night": ("RUN", "--model", "phantom-psvm", "--cohort", "COHORT", "-o", "OUT"),
    "contract mhub": ("--input", "COHORT", "--output", "OUT"),
    "table validate": ("TABLE", "--patient", "man", "--scores", "r1", "-o", "OUT"),
    "table train": ("TABLE", "--patient", "man", "--scores", "r1", "-o", "OUT"),
}


def _writing(group: Any, before: str = "") -> Iterator[str]:
    """Name every command that is given a folder to write."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _writing(command, f"{before}{name} ")
        elif any(parameter.name == "out" for parameter in command.params):
            yield before + name


def _home(folder: Path) -> Path:
    """Make a folder of somebody's own; some of its names are names of results."""
    results = ("probabilities.csv", "run.json", "metadata.json", "dataset_description.json")
    for name in (*results, "participants.tsv", "report/index.html", ".profile", ".abcd1234.part"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


def _state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_command_that_writes_is_tried() -> None:
    assert set(_writing(typer.main.get_command(app))) == set(ARGUMENTS)


@pytest.mark.parametrize("command", ARGUMENTS)
def test_a_command_leaves_a_folder_of_somebody_elses_alone(
    command: str,
    light_cohort: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    main_here: Callable[..., Any],
) -> None:
    home = _home(tmp_path / "home")
    before, when = _state(home), os.stat(home).st_mtime_ns
    table = tmp_path_factory.mktemp("table") / "regions.csv"
    rows = [f"{i // 2},{1 + i % 5},{i * 7 % 11}" for i in range(40)]
    table.write_text("\n".join(["man,r1,adc", *rows]))
    given = {"COHORT": light_cohort, "OUT": home, "TABLE": table}
    ended = main_here(*command.split(), *(given.get(word, word) for word in ARGUMENTS[command]))
    assert ended.returncode == 2, ended
    assert "nothing in it was changed" in ended.stderr
    assert str(home) in ended.stderr
    assert _state(home) == before
    assert os.stat(home).st_mtime_ns == when  # no lock came and went
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_the_validation_beside_a_model_takes_nobodys_folder(
    light_cohort: Path, tmp_path: Path, main_here: Callable[..., Any]
) -> None:
    home = _home(tmp_path / "model.validation")
    before = _state(home)
    ended = main_here("train", "psvm", "--cohort", light_cohort, "-o", tmp_path / "model")
    assert ended.returncode == 2
    assert _state(home) == before


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("text")
    with pytest.raises(CadError, match="a folder is needed, this is a file"):
        require_kind(tmp_path / "out", MODEL)


def test_every_kind_takes_its_own_and_no_other(light_cohort: Path, tmp_path: Path) -> None:
    made = {COHORT: light_cohort, MODEL: shared("models") / "phantom-psvm"}
    for kind in KINDS:
        folder = tmp_path / str(len(made))
        if kind in made:
            continue
        with claimed(folder, kind):
            pass
        require_kind(folder, MODEL)  # claimed and nothing written: as good as empty
        (folder / "content").write_text("x")
        made[kind] = folder
    assert len(made) == len(KINDS) == 8
    for kind, folder in made.items():
        for other in KINDS:
            if other == kind:
                require_kind(folder, other)
                continue
            with pytest.raises(CadError, match=f"is not a {other.name}"):
                require_kind(folder, other)


def test_results_of_versions_that_left_no_mark_are_known(
    light_cohort: Path, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    write_json(run.record, {"cad_version": "0.1.0", "kind": "predict"})
    require_kind(run.root, RUNS["predict"])
    with pytest.raises(CadError, match="is not a result of `cad run`"):
        require_kind(run.root, RUNS["run"])
    cut_short = RunFolder(tmp_path / "cut")
    write_atomic(cut_short.memory, b"")
    require_kind(cut_short.root, RUNS["run"])
    bids = shutil.copytree(light_cohort, tmp_path / "bids")
    (bids / "rois.tsv").unlink()  # of another tool's dataset
    with pytest.raises(CadError, match="is not a cohort"):
        require_kind(bids, COHORT)
    write_atomic(bids / MARK, b"\xff" * 99)
    with pytest.raises(CadError, match="is not a result of `cad run`"):
        require_kind(bids, RUNS["run"])
