"""Every command that a page prints exists and takes the arguments that the page gives it."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer

import cad.cli
from benchmarks import evidence

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_CODE = re.compile(r"^```[^\n]*\n(.*?)^```|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
STAND_INS = {"evidence": "leak", "joint": "cohorts"}
"""What stands for NAME, which the page leaves to its reader, by benchmark."""


def printed(start: str) -> Iterator[tuple[str, list[str]]]:
    """Yield page and arguments of every printed command that begins so."""
    for page in PAGES:
        for block, inline in _CODE.findall(page.read_text(encoding="utf-8")):
            for line in (block or inline).replace("\\\n", " ").splitlines():
                command = re.sub(r"^\s*(\$ )?(uv run )?(--all-extras )?", "", line)
                command = re.sub(r"^(\w+=\S+ )+", "", command)
                if not command.startswith(start):
                    continue
                command = re.split(r"\s#|[|>;]|&&|…|\.\.\.", command)[0]
                command = re.sub(r"[\[\](){}]", " ", command.removeprefix(start))
                try:
                    words = shlex.split(command)
                except ValueError:
                    continue
                yield page.relative_to(ROOT).as_posix(), words


BENCHMARKS = sorted({(page, *words) for page, words in printed("python -m benchmarks.")})
COMMANDS = sorted({(page, *words) for page, words in printed("cad ") if words})


class ParsedError(Exception):
    """Say that a command's arguments were understood; nothing is run."""


def test_there_are_commands_to_try() -> None:
    assert len(BENCHMARKS) > 25
    assert len(COMMANDS) > 60


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
