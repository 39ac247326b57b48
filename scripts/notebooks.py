"""Make the notebooks of docs/notebooks from the tutorials: `python scripts/notebooks.py`.

A tutorial is one text, docs/tutorials/NAME.md, which the site runs. The notebook has the same cells
without output, for readers who open it in Jupyter.
"""

import json
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
_HEAD = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_CODE = re.compile(r"```\{code-cell\}[^\n]*\n(.*?)```\n?", re.DOTALL)
_OPTIONS = re.compile(r"\A(?:---\n.*?\n---\n|(?::[a-z-]+:[^\n]*\n)+)", re.DOTALL)


def notebook(text: str) -> str:
    """Return the notebook of a tutorial as JSON, without output.

    Parameters
    ----------
    text : str
        The tutorial: MyST Markdown with code cells.
    """
    cells = []
    pieces = _CODE.split(_HEAD.sub("", text))
    # Pieces alternate between text and code, and begin with text.
    for place, piece in enumerate(pieces):
        source = piece.strip("\n")
        if not source:
            continue
        cell = {"id": f"cell-{place}", "metadata": {}, "source": source.splitlines(keepends=True)}
        if place % 2:
            code = _OPTIONS.sub("", source).strip("\n")
            cell |= {"cell_type": "code", "execution_count": None, "outputs": []}
            cell["source"] = code.splitlines(keepends=True)
        else:
            cell["cell_type"] = "markdown"
        cells.append(cell)
    content = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def made() -> dict[Path, str]:
    """Return the content of every notebook by the notebook's path."""
    tutorials = sorted((DOCS / "tutorials").glob("*.md"))
    return {
        DOCS / "notebooks" / f"{path.stem}.ipynb": notebook(path.read_text(encoding="utf-8"))
        for path in tutorials
    }


def main() -> int:
    """Write every notebook, or with ``--check`` say whether each is up to date."""
    stale = 0
    for path, content in made().items():
        if "--check" in sys.argv:
            current = path.read_text(encoding="utf-8") if path.is_file() else ""
            stale += current != content
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf-8")
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main())
