"""SECURITY.md is true sentence by sentence: every promise names a test, and the test is there."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
PROMISING = ("What is protected", "Threats and what stands against them", "How it is checked")


def sections(page: str) -> dict[str, list[str]]:
    """The table rows under every heading, without the head."""
    found = {}
    for part in page.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        found[title] = [line for line in body.splitlines() if line.startswith("| ")][1:]
    return found


def names_of(path: Path) -> set[str]:
    """The names of a file's test functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_a_test_that_exists(repository: Path):
    found = sections((repository / "SECURITY.md").read_text(encoding="utf-8"))
    for title in PROMISING:
        assert found[title], f"{title} promises nothing"
        for row in found[title]:
            named = NAMED.findall(row.rpartition(" | ")[2])
            assert named, f"no test proves: {row}"
            for file, name in named:
                assert (repository / file).is_file(), file
                assert name.startswith("test_"), name
                assert name in names_of(repository / file), f"{file} has no {name}"


def test_the_gate_looks_for_insecure_calls(repository: Path):
    """ruff's S are bandit's rules; one is left out a line at a time, never all of them."""
    assert "run ruff check ." in (repository / ".ci/run").read_text(encoding="utf-8")
    lint = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    assert not any("cad" in files for files in lint["per-file-ignores"])
    for path in (repository / "cad").rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not re.search(r"#\s*noqa(?!: [A-Z]+\d{3})", line), f"{path}: {line}"


def uv(repository: Path) -> str:
    """Where uv is: the scripts need it, and the lock file that it made."""
    found = shutil.which("uv")
    if found is None or not (repository / "uv.lock").is_file():
        pytest.skip("UV ABSENT: the bill of materials was not written")
    return found


def test_the_bill_of_materials_lists_what_is_pinned(repository: Path, tmp_path: Path):
    uv(repository)
    out = tmp_path / "sbom.json"
    done = subprocess.run(
        ["bash", repository / "scripts/sbom.sh", out],
        env={**os.environ, "UV_OFFLINE": "1", "UV_FROZEN": "1"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    content = json.loads(out.read_text(encoding="utf-8"))
    assert (content["bomFormat"], content["specVersion"]) == ("CycloneDX", "1.5")
    listed = {part["name"]: part["version"] for part in content["components"]}
    settings = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    pins = dict(pin.split("==") for pin in settings["tool"]["uv"]["constraint-dependencies"])
    direct = {
        re.match(r"[\w-]+", text)[0].lower().replace("_", "-")
        for text in settings["project"]["dependencies"]
    }
    assert direct <= set(listed)
    assert {name: listed[name] for name in direct} == {name: pins[name] for name in direct}


@pytest.mark.parametrize(
    ("said", "code", "expected"),
    [
        ("No known vulnerabilities found", 0, 0),
        ("Found 1 known vulnerability in 1 package\nName Version ID\nx 1 CVE-1", 1, 1),
        ("Name Skip Reason\nx Dependency not found on PyPI and could not be audited", 0, 2),
        ("requests.exceptions.ConnectionError: no network", 1, 2),
    ],
)
def test_the_advisory_check_tells_clean_from_unchecked(
    repository: Path, tmp_path: Path, said: str, code: int, expected: int
):
    """The tool's own exit code is 0 where it could check nothing: never taken for all clear."""
    uv(repository)
    tool = tmp_path / "uvx"
    tool.write_text(f"#!/bin/sh\ncase \"$*\" in *--version*) exit 0;; esac\n"
                    f"printf '%s\\n' '{said}'\nexit {code}\n")  # fmt: skip
    tool.chmod(0o755)
    done = subprocess.run(
        ["bash", repository / "scripts/advisories.sh"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "UV_OFFLINE": "1",
             "UV_FROZEN": "1"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == expected, done.stdout + done.stderr
