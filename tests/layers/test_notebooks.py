"""The notebooks are the tutorials, which the site runs; they are kept without output."""

from __future__ import annotations

import json
import re

import notebooks


def test_every_tutorial_has_its_notebook_and_it_is_up_to_date() -> None:
    contents = notebooks.made()
    assert len(contents) == len(list((notebooks.DOCS / "tutorials").glob("*.md"))) >= 5
    for path, content in contents.items():
        assert path.read_text(encoding="utf-8") == content, "run scripts/notebooks.py"


def test_a_notebook_has_the_code_that_the_site_runs_and_no_output() -> None:
    for path, content in notebooks.made().items():
        text = (notebooks.DOCS / "tutorials" / f"{path.stem}.md").read_text(encoding="utf-8")
        cells = [cell for cell in json.loads(content)["cells"] if cell["cell_type"] == "code"]
        assert len(cells) == len(re.findall(r"^```\{code-cell\}", text, re.MULTILINE)) > 0
        for cell in cells:
            assert cell["outputs"] == []
            assert "".join(cell["source"]) in text
