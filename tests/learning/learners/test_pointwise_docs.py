"""The examples of docs/learners.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "learners.md"
# The rankers' examples share their set-up and have a test of their own.
_TEXT = _PAGE.read_text("utf-8").split("## Rankers")[0]
_SHARED = re.findall(r"```python\n(.*?)```", _TEXT, re.S)[0]
_EXAMPLES = re.findall(r"^## ([^\n]*)$(?:(?!^## ).)*?```python\n(.*?)```", _TEXT, re.M | re.S)


@pytest.mark.parametrize("title", [title for title, _ in _EXAMPLES])
def test_example(title: str) -> None:
    exec(_SHARED + dict(_EXAMPLES)[title], {})  # noqa: S102  (our own page)
