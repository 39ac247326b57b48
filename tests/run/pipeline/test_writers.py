"""One writer per file: the table says which, and no second module writes one."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

from cad.folders.run_folder import RunFolder, records, results, study_file, tables
from cad.folders.run_folder.folder import WRITERS
from cad.folders.run_folder.tables import (
    EXPLANATION_COLUMNS,
    OUTLINE_COLUMNS,
    PATIENT_COLUMNS,
    PROBABILITY_COLUMNS,
)

PACKAGE = Path(__file__).resolve().parents[3] / "cad"
TOOLS = (
    "cad.base.files",
    "cad.folders.run_folder",
    "cad.mri.imaging",
    "cad.base.transactions",
)  # they write where they are told
# The typed functions that write an artefact, by their names.
FUNCTIONS = {"study": "write_measured"}
for artefact in WRITERS:
    if any(hasattr(module, f"write_{artefact}") for module in (records, study_file, tables)):
        FUNCTIONS[artefact] = f"write_{artefact}"

# Folders of what `cad report` makes of a finished run.
DELIVERED = ("objects", "bundles")

# A table brings its features, and a joined run its labels: no stage has made them before.
OF_A_TABLE = {"features": ["cad.run.tables.stages"], "labels": ["cad.run.tables.stages"]}


@cache
def modules() -> list[tuple[str, list[ast.AST]]]:
    """Return every module's name and the nodes of its syntax tree, parsed once for all tests."""
    return [
        (
            ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts),
            list(ast.walk(ast.parse(path.read_text(encoding="utf-8")))),
        )
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def users(function: str) -> set[str]:
    """Modules outside the run folder's door that name a function."""
    return {
        name
        for name, nodes in modules()
        if not name.startswith("cad.folders.run_folder")
        for node in nodes
        if function in (getattr(node, "id", ""), getattr(node, "attr", ""))
    }


@pytest.mark.parametrize("artefact", sorted(FUNCTIONS))
def test_an_artefact_has_one_writer(artefact: str) -> None:
    assert users(FUNCTIONS[artefact]) == {WRITERS[artefact], *OF_A_TABLE.get(artefact, ())}


def test_most_artefacts_have_a_typed_function() -> None:
    assert len(FUNCTIONS) >= 14


def test_the_table_names_every_path() -> None:
    paths = {n for n in vars(RunFolder) if not n.startswith("_")} - {"report", *DELIVERED}
    assert paths == set(WRITERS)


def test_no_other_module_spells_a_file_of_a_run() -> None:
    folder = RunFolder(Path("run"))
    names = {
        getattr(folder, artefact).name: writer
        for artefact, writer in WRITERS.items()
        if isinstance(getattr(folder, artefact), Path)
    }
    assert WRITERS["lock"] == "cad.base.transactions.lock"  # cohorts and models have it too
    found = [
        (name, node.value)
        for name, nodes in modules()
        if not name.startswith("cad.folders.run_folder")
        for node in nodes
        if isinstance(node, ast.Constant) and names.get(node.value, name) != name
    ]
    assert found == []


def test_a_run_writes_nothing_beyond_the_table(
    cohort: Path, first_patient: Path, quick_pipeline: Path, model: Path, tmp_path: Path
) -> None:
    """Every file of real runs, and the module that put it there, seen by the interpreter."""
    from cad.base.settings import PipelineSettings, read_settings
    from cad.folders.cohort import read_cohort
    from cad.run.execution.options import HERE
    from cad.run.execution.task import StudyTask
    from cad.run.pipeline import predict_cohort, run_pipeline, suggest_next
    from cad.run.stages.study import process_study

    runs, options = tmp_path / "runs", HERE
    seen: dict[str, set[str]] = {}
    watching = True

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if not watching or event != "os.rename" or not str(arguments[1]).startswith(str(runs)):
            return
        frame = sys._getframe()
        while frame is not None:
            name = str(frame.f_globals.get("__name__", ""))
            if name.startswith("cad.") and not name.startswith(TOOLS):
                where = Path(*Path(str(arguments[1])).relative_to(runs).parts[1:])
                if not where.parts[0].startswith("."):  # what is staged is named when it arrives
                    seen.setdefault(str(where), set()).add(name)
                return
            frame = frame.f_back

    sys.addaudithook(watch)
    try:
        run_pipeline(str(quick_pipeline), cohort, runs / "run", options)
        predict_cohort([str(model)], first_patient, runs / "new", options, probability_map=True)
        suggest_next(str(model), first_patient, runs / "next", options, 3)
        settings = read_settings(PipelineSettings, quick_pipeline)
        # Workers are other processes; one study is measured here.
        process_study(StudyTask(read_cohort(cohort).studies()[0], settings, runs / "one"))
    finally:
        watching = False
    folder = RunFolder(Path())
    fixed = {str(getattr(folder, n)): n for n in WRITERS if isinstance(getattr(folder, n), Path)}
    kinds = {"studies": "study", "figures": "figure", "report": "page", "folds": "fold_features"}
    for file, writers in seen.items():
        artefact = fixed.get(file) or kinds.get(Path(file).parts[0])
        if artefact is None:
            artefact = "map_display" if file.endswith("_display.npz") else "map_image"
        assert writers == {WRITERS[artefact]}, file
    assert len(seen) > 12


class Row(dict[str, str]):
    """A row that remembers which columns it was asked for."""

    def __init__(self, **cells: str) -> None:
        super().__init__(cells)
        self.asked: set[str] = set()

    def get(self, column: str, default: object = None) -> object:
        self.asked.add(column)
        return super().get(column, default)

    def __getitem__(self, column: str) -> str:
        self.asked.add(column)
        return super().__getitem__(column)


def test_pages_read_only_columns_that_are_written() -> None:
    """A column that nothing writes is a promise that nobody keeps."""
    region = Row(participant_id="sub-1", study_id="sub-1", roi_id="1", probability_of="readers")
    results._region_of_row(region, Path("probabilities.csv"))
    assert region.asked <= {*PROBABILITY_COLUMNS, *OUTLINE_COLUMNS}
    assert len(region.asked) > 30
    man = Row(participant_id="sub-1")
    results._man_of_row(man)
    assert man.asked <= set(PATIENT_COLUMNS)
    assert len(man.asked) > 8
    reason = Row()
    results._made(results.Reason, reason, delta=0.0)
    assert reason.asked <= set(EXPLANATION_COLUMNS)
    assert len(reason.asked) > 5
