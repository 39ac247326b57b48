"""Read the tables that lie as data beside the module that explains them."""

from pathlib import Path
from typing import Any

import yaml


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
