"""Old names are accepted with a warning that has the new name, and not longer than promised."""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import cad
from cad.base.errors import CadError
from cad.base.renamed import RENAMED, Renamed, RenamedWarning
from cad.base.settings import PipelineSettings, parse_settings
from cad.base.version import __version__


@pytest.fixture(autouse=True)
def no_module_under_its_old_name() -> Iterator[None]:
    """A module that is imported stays imported, and an import of it would then not warn."""
    yield
    for name in list(sys.modules):
        for entry in RENAMED:
            if entry.kind == "module" and f"{name}.".startswith(f"{entry.old}."):
                del sys.modules[name]
                parent, _, child = name.rpartition(".")
                vars(sys.modules.get(parent, cad)).pop(child, None)
                break


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def test_each_name_is_once_in_the_table() -> None:
    names = [(entry.kind, entry.old) for entry in RENAMED]
    assert len(set(names)) == len(names)
    assert {kind for kind, _ in names} == {"module", "setting"}


@pytest.mark.parametrize("entry", RENAMED, ids=lambda entry: entry.old)
def test_an_old_name_is_accepted_with_a_warning(entry: Renamed) -> None:
    with pytest.warns(RenamedWarning, match=re.escape(f"{entry.old} is {entry.new} since")):
        use(entry)


def use(entry: Renamed) -> None:
    """Use the old name, and compare the result with that of the new name."""
    if entry.kind == "module":
        present = importlib.import_module(entry.new)
        assert importlib.import_module(entry.old) is present
    else:
        section, new = entry.new.split(".")
        value = getattr(getattr(PipelineSettings(name="x"), section), new)
        old = entry.old.removeprefix(f"{section}.")
        settings = parse_settings(PipelineSettings, {"name": "x", section: {old: value}})
        assert settings.model_dump() == PipelineSettings(name="x").model_dump()
        assert settings.notes_on_old_keys == (str(entry),)


@pytest.mark.parametrize("entry", RENAMED, ids=lambda entry: entry.old)
def test_an_old_name_goes_when_its_time_is_over(entry: Renamed) -> None:
    assert version(entry.since) < version(entry.until)
    assert version(__version__) < version(entry.until), (
        f"version {entry.until} no longer accepts {entry.old}: take the name out of "
        "cad/base/renamed.py and docs/migration.md"
    )


def test_the_page_for_users_has_the_same_table(repository: Path) -> None:
    page = (repository / "docs" / "migration.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\S+)` \| `(\S+)` \| (\S+) \| (\S+) \|$", page, re.MULTILINE)
    assert rows == [(entry.old, entry.new, entry.since, entry.until) for entry in RENAMED]


@pytest.mark.parametrize(
    "lines",
    [
        "from cad.errors import CadError",
        "from cad import errors",
        "import cad; cad.errors.CadError",
        "from cad.pipeline import run_pipeline; from cad.execution.options import ExecutionOptions",
        "from cad.learners.ranking.opauc import opauc_path",
        "from cad.learners.rivals import SoftLogistic",
        "from cad.learners.base import BinaryLearner, read_targets",
        "from cad.evaluation.folds.nested import PatientGridSearch",
        "from cad.experiments import EXPERIMENTS, Options, run_experiment",
        "from cad.share import shared",
    ],
)
def test_the_imports_of_the_pages_of_version_0_1_run(lines: str) -> None:
    with pytest.warns(RenamedWarning, match="since version 1.0"):
        exec(lines, {})  # noqa: S102


def test_a_module_in_a_renamed_package_is_not_loaded_twice() -> None:
    with pytest.warns(RenamedWarning):
        pooled = importlib.import_module("cad.labels.pooled")
    assert pooled.__name__ == "cad.learning.labels.pooled"
    assert pooled.__spec__ is not None
    assert pooled.__spec__.name == pooled.__name__
    assert pooled.Belief is cad.Belief


def test_the_warning_shows_the_line_of_the_user() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile("\n\nimport cad.errors", "script.py", "exec"), {})  # noqa: S102
    assert [(each.filename, each.lineno) for each in caught] == [("script.py", 3)]


def test_what_never_was_is_refused_as_before() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'cad\.never'"):
        importlib.import_module("cad.never")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'cad\.learners\.never'"):
        importlib.import_module("cad.learners.never")
    with (
        pytest.warns(RenamedWarning),
        pytest.raises(ModuleNotFoundError, match=r"No module named 'cad\.labels\.never'"),
    ):
        importlib.import_module("cad.labels.never")
    with pytest.raises(AttributeError, match="no attribute 'never'"):
        _ = cad.never  # type: ignore[attr-defined]


def test_a_key_under_both_names_is_refused() -> None:
    both = {"name": "x", "labels": {"eta_min": 0.1, "eta0": 0.1}}
    with pytest.raises(CadError, match=r"both are given: take eta_min out"):
        parse_settings(PipelineSettings, both, "p.yaml")


def test_a_section_that_is_no_mapping_is_refused_as_before() -> None:
    with pytest.raises(CadError, match=r"labels"):
        parse_settings(PipelineSettings, {"name": "x", "labels": ["eta_min"]}, "p.yaml")
