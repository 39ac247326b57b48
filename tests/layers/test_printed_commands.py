"""Every command that a page prints exists and takes its arguments; Python on pages runs."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import itertools
import re
import runpy
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import typer
from printed import COMMANDS, PAGES, ROOT, printed

import cad.cli
from benchmarks import evidence

STAND_INS = {"evidence": "leak", "joint": "cohorts"}
"""The word in place of NAME, which the page leaves to its reader, by benchmark."""

BENCHMARKS = sorted({(page, *words) for page, words in printed("python -m benchmarks.")})
SCRIPTS = sorted(
    {
        (page, *words)
        for start in ("python ", "bash ")
        for page, words in printed(start)
        if words[0].endswith((".py", ".sh"))
    }
)
TESTS = sorted(
    {
        (page, *words)
        for start in ("pytest", "python -m pytest")
        for page, words in printed(start)
        if words
    }
)


def broken_code(text: str) -> list[str]:
    """Return the inline code of a page that a line break divides, so that nobody can copy it."""
    prose = re.sub(r"^```.*?^```", "\n", text, flags=re.MULTILINE | re.DOTALL)
    broken = []
    for paragraph in re.split(r"\n\s*\n", prose):
        for _, code in re.findall(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", paragraph, re.DOTALL):
            if "\n" in code:
                broken.append(code)
    return broken


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_no_command_is_broken_over_two_lines(page: Path) -> None:
    assert broken_code(page.read_text(encoding="utf-8")) == []


def test_a_broken_command_is_seen() -> None:
    assert broken_code("Run `cad` or `cad\n  check`.\n\n```\na `b\nc`\n```\n") == ["cad\n  check"]


class ParsedError(Exception):
    """Say that a command's arguments were understood; nothing is run."""


def test_there_are_commands_to_try() -> None:
    assert len(BENCHMARKS) > 25
    assert len(COMMANDS) > 60
    assert len(SCRIPTS) > 35
    assert len(TESTS) > 12


@pytest.mark.parametrize("printed_command", BENCHMARKS, ids=" ".join)
def test_a_printed_benchmark_takes_its_arguments(
    printed_command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, name, *words = printed_command
    module = importlib.import_module(f"benchmarks.{name}")
    if "argparse" not in vars(module):
        assert callable(module.main)
        return
    understand = argparse.ArgumentParser.parse_args

    def parse_only(parser: argparse.ArgumentParser, *given: Any) -> None:
        understand(parser, *given)
        raise ParsedError

    given = [STAND_INS[name] if word == "NAME" else word for word in words]
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    monkeypatch.setattr(sys, "argv", [name, *given])
    with pytest.raises(ParsedError):
        module.main()


@pytest.mark.parametrize("printed_command", COMMANDS, ids=" ".join)
def test_a_printed_command_and_its_options_exist(printed_command: tuple[str, ...]) -> None:
    page, *words = printed_command
    command: Any = typer.main.get_command(cad.cli.app)
    at = 0
    while hasattr(command, "commands") and at < len(words):
        names = words[at].split("/")
        if any(name not in command.commands for name in names):
            # A group's own option, or a word that stands for one of several commands.
            assert words[at].startswith("-") or words[at].isupper(), f"{page}: cad {words[at]}"
            return
        command = command.commands[names[0]]
        at += 1
    options = {
        name
        for parameter in command.params
        if isinstance(parameter, click.Option) or hasattr(parameter, "secondary_opts")
        for name in (*parameter.opts, *parameter.secondary_opts)
    } | {"-h", "--help"}
    for word in words[at:]:
        if re.match(r"--?[a-z]", word):
            name = word.partition("=")[0]
            assert name in options, f"{page}: cad {' '.join(words)}: no option {name}"


def positional(source: str) -> int:
    """Return how many arguments a script takes that parses none: the highest that it names."""
    exact = re.search(r"len\(sys\.argv\) != (\d+)", source)
    if exact is not None:
        return int(exact[1]) - 1
    without_functions = re.sub(r"^\w+\(\) \{.*?\}$", "", source, flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"sys\.argv\[(\d+)\]|\$\{?([1-9])", without_functions)
    return max((int(python or shell) for python, shell in named), default=0)


def wrong_script(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what is wrong with a script's printed arguments, or an empty text."""
    name, *given = words
    path = ROOT / name
    if not path.is_file():
        return "no such file"
    source = path.read_text(encoding="utf-8")
    if "ArgumentParser" in source:
        understand = argparse.ArgumentParser.parse_args

        def parse_only(
            parser: argparse.ArgumentParser, arguments: Any = None, space: Any = None
        ) -> None:
            understand(parser, arguments, space)
            raise ParsedError

        numbers = ["1" if word == "N" else word for word in given]
        with monkeypatch.context() as patched:
            patched.setattr(argparse.ArgumentParser, "parse_args", parse_only)
            patched.setattr(sys, "argv", [name, *numbers])
            try:
                runpy.run_path(str(path), run_name="__main__")
            except ParsedError:
                return ""
            except SystemExit as ended:
                return f"ended with {ended.code}"
        return "parsed nothing"
    unknown = [word for word in given if word.startswith("-") and f'"{word}"' not in source]
    if unknown:
        return f"no option {unknown[0]}"
    values = [word for word in given if not word.startswith("-")]
    if "sys.argv[1:]" not in source and len(values) != positional(source):
        return f"takes {positional(source)} arguments"
    return ""


@pytest.mark.parametrize("printed_script", SCRIPTS, ids=" ".join)
def test_a_printed_script_exists_and_takes_its_arguments(
    printed_script: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong_script(list(printed_script[1:]), monkeypatch) == ""


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("scripts/gone.py", "no such file"),
        ("scripts/dossier.py --tried", "ended with 2"),
        ("scripts/tag_text.py", "takes 1 arguments"),
        ("scripts/settings_page.py docs", "takes 0 arguments"),
        ("scripts/notebooks.py --chek", "no option --chek"),
        ("scripts/sbom.sh", "takes 1 arguments"),
    ],
)
def test_a_wrong_script_is_seen(
    command: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong_script(command.split(), monkeypatch) == problem


def wrong_tests(words: list[str]) -> str:
    """Return what is wrong with the printed arguments of pytest, or an empty text."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    markers = project["tool"]["pytest"]["ini_options"]["markers"]
    declared = {marker.partition(":")[0] for marker in markers}
    paths = [word for word in words if word.startswith("tests/")]
    missing = [path for path in paths if not (ROOT / path.partition("::")[0]).exists()]
    if missing:
        return f"no such file {missing[0]}"
    sources = [(ROOT / path.partition("::")[0]).read_text(encoding="utf-8") for path in paths]
    for option, value in itertools.pairwise(words):
        if option == "-m":
            marked = set(re.findall(r"\w+", value)) - {"or", "and", "not"}
            if marked - declared:
                return f"no marker {value}"
            if sources and not any(f"mark.{name}" in text for name in marked for text in sources):
                return f"no test is marked {value}"
        if option == "-k" and not any(re.search(rf"def test_\w*{value}", text) for text in sources):
            return f"no test is called {value}"
    return ""


@pytest.mark.parametrize("printed_tests", TESTS, ids=" ".join)
def test_printed_tests_exist(printed_tests: tuple[str, ...]) -> None:
    assert wrong_tests(list(printed_tests[1:])) == ""


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("tests/gone.py", "no such file tests/gone.py"),
        ("-m slower", "no marker slower"),
        ("-m slow tests/layers/test_printed_commands.py", "no test is marked slow"),
        ("tests/layers/test_printed_commands.py -k gone", "no test is called gone"),
    ],
)
def test_wrong_tests_are_seen(command: str, problem: str) -> None:
    assert wrong_tests(command.split()) == problem


def snippets(page: str) -> list[str]:
    """Return the Python code of a page, block by block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_code_of_the_readme_runs_on_what_the_readme_says_it_gets() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    latent = 1 / (1 + np.exp(-2 * X[:, :1]))
    scores = 1 + np.round(4 * np.clip(latent + rng.normal(0, 0.1, (20, 3)), 0, 1))
    names: dict[str, Any] = {
        "X": X,
        "scores": pd.DataFrame(scores, columns=["r1", "r2", "r3"]),
        "patients": np.arange(20) // 4,
        "histology": (latent[:, 0] > 0.6).astype(int),
    }
    (code,) = snippets("README.md")
    exec(code, names)  # noqa: S102
    plt.close("all")  # the block leaves its picture open, and a later one would be drawn into it
    assert len(names["result"].probability) == 20


def test_the_code_of_the_page_on_federated_fits_runs() -> None:
    names: dict[str, Any] = {}
    (code,) = snippets("docs/federated.md")
    exec(code, names)  # noqa: S102
    assert names["fit"].converged
    assert names["probability"].shape == (3,)


def test_the_code_for_clusters_calls_cad_as_it_is() -> None:
    """SLURM and Kubernetes are not installed, so only the calls of cad are looked at."""
    checked = []
    for code in snippets("docs/cluster.md"):
        tree = ast.parse(code)
        of_cad = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("cad."):
                module = importlib.import_module(str(node.module))
                for name in node.names:
                    of_cad[name.name] = getattr(module, name.name)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id not in of_cad:
                continue
            options = {keyword.arg: None for keyword in node.keywords if keyword.arg}
            inspect.signature(of_cad[node.func.id]).bind(*node.args, **options)
            checked.append(node.func.id)
    assert sorted(checked) == ["ExecutionOptions", "run_pipeline"]


def test_every_page_with_python_code_is_run() -> None:
    with_code = {
        page.relative_to(ROOT).as_posix() for page in PAGES if "\n```python\n" in page.read_text()
    }
    here = {"README.md", "docs/federated.md", "docs/cluster.md"}
    elsewhere = {
        "docs/learners.md",  # tests/learning/learners/test_pointwise_docs.py
        "docs/scikit-learn.md",  # tests/learning/learners/test_scikit_learn.py
        "docs/architecture.md",  # copied from the code by scripts/architecture.py
    }
    assert with_code == here | elsewhere


@pytest.mark.reference
def test_the_readers_benchmark_runs_as_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not evidence.READERS.is_dir():
        pytest.skip("REFERENCE DATA ABSENT")
    monkeypatch.setattr(sys, "argv", ["evidence", "readers"])
    evidence.main()
    assert "0.8970" in capsys.readouterr().out[:400]


def test_absent_tables_are_named_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["evidence", "readers", "--data", str(tmp_path)])
    with pytest.raises(SystemExit):
        evidence.main()
    assert "say where it is with --data" in capsys.readouterr().err
