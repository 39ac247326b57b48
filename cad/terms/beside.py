"""Read the tables and pages that lie as data beside the module that explains them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    import jinja2


def table_beside(module: str) -> Any:
    """Read the YAML file of a module's own name.

    Parameters
    ----------
    module : str
        Its ``__file__``.
    """
    # libyaml reads ten times as fast; every worker that starts reads these tables.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = Path(module).with_suffix(".yaml").read_text(encoding="utf-8")
    return yaml.load(text, loader)  # nosec B506  # noqa: S506 - both loaders are safe


def page_beside(module: str) -> jinja2.Template:
    """Read the Markdown template (``.md.j2``) of a module's own name.

    Parameters
    ----------
    module : str
        Its ``__file__``.
    """
    import jinja2

    path = Path(module)
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(path.parent),
        autoescape=jinja2.select_autoescape(("html.j2",)),  # Markdown
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    ).get_template(f"{path.stem}.md.j2")
