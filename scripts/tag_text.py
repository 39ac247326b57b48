"""Print the text of a release's tag from CHANGELOG.md: ``python scripts/tag_text.py 1.0.0``.

The first line names the program and the release. The lines of the changelog follow, as plain text
that ``git tag -F`` takes.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"
WIDTH = 76


def tag_text(changelog: str, release: str) -> str:
    """Return the text of a release's tag.

    Parameters
    ----------
    changelog : str
        Content of the changelog, with a heading ``## X.Y.Z`` for each release.
    release : str
        The release, such as ``1.0.0``.

    Raises
    ------
    ValueError
        When the changelog has no such release.
    """
    heading = re.compile(rf"^## {re.escape(release)}(?: \((?P<date>[\d-]+)\))?\n", re.MULTILINE)
    start = heading.search(changelog)
    if start is None:
        raise ValueError(f"the changelog has no heading '## {release}'")
    body = changelog[start.end() :]
    following = re.search(r"^## ", body, re.MULTILINE)
    if following is not None:
        body = body[: following.start()]
    lines = [f"prostate-cad {release}"]
    if start["date"]:
        lines[0] += f", {start['date']}"
    for item in re.split(r"^- ", body.strip(), flags=re.MULTILINE):
        words = " ".join(item.split())
        if not words:
            continue
        for mark in ("**", "`"):
            words = words.replace(mark, "")
        words = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", words)
        lines.append("")
        lines.append(textwrap.fill(words, WIDTH, initial_indent="- ", subsequent_indent="  "))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/tag_text.py X.Y.Z")
    try:
        print(tag_text(CHANGELOG.read_text(encoding="utf-8"), sys.argv[1]), end="")
    except ValueError as error:
        sys.exit(f"tag_text: {error}")
