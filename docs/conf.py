"""The site: `uv run --extra docs sphinx-build -W -b html docs build/site`, warnings as errors."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

from typer.cli import get_docs_for_click
from typer.main import get_command

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))

import licences  # noqa: E402

from cad import __version__  # noqa: E402
from cad.cli import app  # noqa: E402

project = "prostate-cad"
author = "The prostate-cad developers"
project_copyright = f"2026, {author}"
version = release = __version__

extensions = ["myst_nb", "numpydoc", "sphinx.ext.autodoc"]
exclude_patterns = ["reproduction/**", "notebooks/**"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]  # a page may start below a heading of its own level

html_theme = "furo"
html_title = f"prostate-cad {__version__}"
html_static_path: list[str] = []
html_copy_source = False
html_show_sphinx = False

add_module_names = False  # the names as users write them: cad.read_cohort
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc's parameter lists have the types
numpydoc_show_class_members = False

# Tutorials call `cad` as a user does: that of this environment.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
# Tutorials are run; a page may take as long as the first compilation of the kernels does.
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True


def _write(name: str, text: str) -> None:
    """Write a generated page, unless it is there as it is."""
    path = HERE / "reference" / "generated" / name
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _licences() -> str:
    """Return the licences of what an installation brings."""
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        licences.main([])
    head = "# Third-party licences\n\nWhat a plain installation brings, by `scripts/licences.py`.\n"
    return f"{head}\n{stream.getvalue()}"


def _commands() -> str:
    """Return the help of every command."""
    command = get_command(app)
    context = command.make_context("cad", [], resilient_parsing=True)
    return get_docs_for_click(obj=command, ctx=context, name="cad")


def _escape_bars(
    _app: Any, _what: str, _name: str, _of: Any, _options: Any, lines: list[str]
) -> None:
    """Keep |w| in a docstring from being read as a substitution."""
    lines[:] = [line if "`" in line else line.replace("|", r"\|") for line in lines]


# What theme and notebooks write, and what a keyboard and a screen reader need.
ACCESSIBLE = {
    'role="heading">': 'role="heading" aria-level="2">',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    "<th></th>": "<td></td>",
    '<th class="head"><p></p></th>': '<td class="head"></td>',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Site">',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
}


def _accessible(app: Any, _error: Exception | None) -> None:
    """Mend the pages as they were written."""
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for old, new in ACCESSIBLE.items():
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    """Write the generated pages before sources are looked for."""
    _write("commands.md", _commands())
    _write("licences.md", _licences())
    app.connect("autodoc-process-docstring", _escape_bars, priority=100)
    app.connect("build-finished", _accessible)
