"""Text of a file never acts on a terminal or a log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ESCAPES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
HOSTILE = "\x1b]0;owned\x07\x1b[2J"


def test_errors_that_quote_a_file_are_plain(tmp_path: Path, main_here: Callable[..., Any]):
    """A settings file, a folder's name, a cohort's name: quoted, spelt out, and nothing else."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        f"name: {json.dumps(HOSTILE)}\nlabels: {json.dumps(HOSTILE)}\n", encoding="utf-8"
    )
    folder = tmp_path / f"in{HOSTILE}"
    folder.mkdir()
    for done in (
        main_here("import", folder, tmp_path / "out", "--rules", rules),
        main_here("check", folder),
        main_here("report", folder),
        main_here("import", folder, "--explain"),
    ):
        said = done.stdout + done.stderr
        assert done.returncode in (1, 2)
        assert "owned" in said
        assert not ESCAPES.search(said), repr(said)


def test_only_one_function_prints(repository: Path):
    """Every command prints through ``say``, the workers' progress through ``plain``."""
    users = [
        path.relative_to(repository).as_posix()
        for path in (repository / "cad/cli").glob("*.py")
        if "typer.echo(" in path.read_text() or re.search(r"\bprint\(", path.read_text())
    ]
    assert users == ["cad/cli/shared.py"]
    assert (repository / "cad/cli/shared.py").read_text().count("typer.echo(") == 1
