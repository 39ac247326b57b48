"""Write the parts of docs/architecture.md that are taken from the code, and draw the floors.

``python scripts/architecture.py`` replaces every block between ``<!-- from the code: NAME -->`` and
``<!-- end -->``, and the picture ``docs/images/floors.svg``.
"""

from __future__ import annotations

import ast
import re
import tomllib
from html import escape
from pathlib import Path

from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.folder import WRITERS
from cad.folders.run_folder.schema import (
    EARLIER_COLUMNS,
    EXPLANATION_RESULT_COLUMNS,
    MAN_COLUMNS,
    OUTLINE_RESULT_COLUMNS,
    REGION_COLUMNS,
    ResultColumn,
)
from cad.learning.evaluation.measures.table import MEASURES

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "images" / "floors.svg"
_BLOCK = re.compile(r"(<!-- from the code: (\w+) -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)
_WIDTH, _HEIGHT, _MARGIN = 860, 54, 10

COLUMNS: tuple[tuple[str, tuple[ResultColumn, ...]], ...] = (
    ("probabilities.csv", REGION_COLUMNS),
    ("probabilities.csv", OUTLINE_RESULT_COLUMNS),
    ("patients.csv", MAN_COLUMNS),
    ("explanations.csv", EXPLANATION_RESULT_COLUMNS),
    ("earlier.csv", EARLIER_COLUMNS),
)


def layers() -> list[list[str]]:
    """Return the floors of the import contract from the top, each with its packages."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    floors = next(contract for contract in contracts if contract["type"] == "layers")
    return [layer.split(" | ") for layer in floors["layers"]]


def arrows() -> str:
    """Return the floors as text, each on a line, with an arrow to the next floor."""
    lines = []
    for place, names in enumerate(layers()):
        arrow = "   " if place == 0 else "-> "
        lines.append(arrow + ", ".join(names))
    return "\n".join(["```", *lines, "```"])


def first_sentence(name: str) -> str:
    """Return the first line of the docstring of a package or module of ``cad``."""
    package = ROOT / "cad" / name / "__init__.py"
    path = package if package.is_file() else ROOT / "cad" / f"{name}.py"
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.splitlines()[0]


def drawn_floors() -> str:
    """Return the picture of the floors as SVG: one box per package, the top floor first."""
    floors = layers()
    height = len(floors) * _HEIGHT + _MARGIN
    shapes = []
    for place, names in enumerate(floors):
        top = _MARGIN + place * _HEIGHT
        box = (_WIDTH - _MARGIN) / len(names)
        for column, name in enumerate(names):
            left = _MARGIN + column * box
            shapes.append(
                f'<rect x="{left:g}" y="{top}" width="{box - _MARGIN:g}" height="{_HEIGHT - 8}" '
                'rx="4" fill="#eef3f8" stroke="#4a6785"/>'
            )
            shapes.append(
                f'<text x="{left + 8:g}" y="{top + 18}" font-weight="bold">{escape(name)}</text>'
            )
            # A description is written only if it fits; a floor with several packages shows only
            # their names.
            if len(names) == 1:
                text = escape(first_sentence(name).replace("``", ""))
                shapes.append(f'<text x="{left + 8:g}" y="{top + 36}">{text}</text>')
    title = "The floors of the package cad: each imports only from floors below its own"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            'font-family="sans-serif" font-size="13" role="img">',
            f"<title>{title}</title>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
            *shapes,
            "</svg>\n",
        ]
    )


def body(module: str, function: str) -> str:
    """Return the statements of a function from the code, without the docstring.

    Parameters
    ----------
    module : str
        Path below ``cad/``.
    function : str
        Name of the function.
    """
    text = (ROOT / "cad" / module).read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            statements = node.body[1:] if ast.get_docstring(node) else node.body
            lines = text.splitlines()[statements[0].lineno - 1 : node.end_lineno]
            return "\n".join(["```python", *(line[4:] for line in lines), "```"])
    raise LookupError(f"{module} has no function {function}")


def columns_table() -> str:
    """Return a row for each column of a run's tables that a function computes."""
    lines = ["| column | file | computed by |", "|---|---|---|"]
    for file, columns in COLUMNS:
        for column in columns:
            if column.maker:
                lines.append(f"| `{column.name}` | `{file}` | `{column.maker}` |")
    return "\n".join(lines)


def measures_table() -> str:
    """Return a row for each measure of ``metrics.json``, with its function."""
    lines = ["| measure | its words | computed by |", "|---|---|---|"]
    for name, measure in MEASURES.items():
        maker = f"learning/evaluation/measures/metrics.py::{name}"
        lines.append(f"| `{name}` | {measure.title} | `{maker}` |")
    return "\n".join(lines)


def files_table() -> str:
    """Return a row for each file of a run, with the one module that writes it."""
    folder = RunFolder(Path("RUN"))
    names = {"study": "sub-XXX", "page": "sub-XXX.html"}
    files_of: dict[str, list[str]] = {}
    for name, module in WRITERS.items():
        path = getattr(folder, name)
        if callable(path):
            path = path(names.get(name, "NAME"))
        files_of.setdefault(module, []).append(f"`{path.relative_to('RUN').as_posix()}`")
    lines = ["| file | written by |", "|---|---|"]
    for module, files in files_of.items():
        lines.append(f"| {', '.join(files)} | `{module}` |")
    return "\n".join(lines)


def blocks() -> dict[str, str]:
    """Return the text of every block by its name."""
    return {
        "floors": arrows(),
        "run": body("run/pipeline.py", "run_pipeline"),
        "columns": columns_table(),
        "measures": measures_table(),
        "files": files_table(),
    }


def page(text: str) -> str:
    """Return the page with every block as in the present code.

    Parameters
    ----------
    text : str
        The page.
    """
    made = blocks()
    return _BLOCK.sub(lambda block: block[1] + made[block[2]] + block[3], text)


def main() -> None:
    """Write the page and the picture."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(drawn_floors(), encoding="utf-8")


if __name__ == "__main__":
    main()
