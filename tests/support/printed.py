"""Read the commands that the pages print, for the tests that parse or run them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md"))]
_CODE = re.compile(r"^```[^\n]*\n(.*?)^```|`([^`\n]+)`", re.MULTILINE | re.DOTALL)


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


COMMANDS = sorted({(page, *words) for page, words in printed("cad ") if words})
"""Every printed command of ``cad``: the page, then the words after ``cad``."""
