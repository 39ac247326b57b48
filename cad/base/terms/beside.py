"""Read the YAML table or page template that lies beside a module of the same name."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cad.base.doors import door
from cad.base.terms.markdown import in_markdown

if TYPE_CHECKING:
    import jinja2


@door("own", "the package's tables")
def table_beside(module: str) -> Any:
    """Return the content of the YAML file beside a module: ``sectors.yaml`` of ``sectors.py``.

    Parameters
    ----------
    module : str
        The module's ``__file__``.
    """
    # The C library libyaml reads YAML ten times as fast as PyYAML. Every worker process reads
    # tables by this function at its start.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = Path(module).with_suffix(".yaml").read_text(encoding="utf-8")
    return yaml.load(text, loader)  # noqa: S506 - both loaders are safe


@cache
def page_beside(module: str) -> jinja2.Template:
    """Return the Markdown template beside a module: ``card.md.j2`` of ``card.py``.

    Parameters
    ----------
    module : str
        The module's ``__file__``.
    """
    import jinja2

    path = Path(module)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(path.parent),
        autoescape=jinja2.select_autoescape(("html.j2",)),  # Markdown
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["in_markdown"] = in_markdown
    return environment.get_template(f"{path.stem}.md.j2")
