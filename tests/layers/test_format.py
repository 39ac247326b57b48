"""Code is laid out by the formatter alone: nothing turns it off for a line or a block."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNFORMATTED = re.compile(r"#\s*(?:fmt|yapf)\s*:\s*(?:skip|off|on|disable)\b")


def test_no_line_turns_the_formatter_off() -> None:
    sources: list[Path] = []
    for folder in ("cad", "tests", "scripts", "benchmarks", "docs"):
        sources += sorted((ROOT / folder).rglob("*.py"))
    assert len(sources) > 700
    unformatted = []
    for path in sources:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if UNFORMATTED.search(line):
                unformatted.append(f"{path.relative_to(ROOT)}:{number}")
    assert unformatted == []


@pytest.mark.parametrize("words", ["fmt: skip", "fmt:off", "fmt: on", "yapf: disable"])
def test_a_line_that_does_is_seen(words: str) -> None:
    assert UNFORMATTED.search(f"numbers = [1,2]  # {words}")
