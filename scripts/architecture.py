"""Print the arrows of the import contract as docs/architecture.md shows them."""

from __future__ import annotations

import tomllib
from pathlib import Path


def arrows(contracts: dict) -> str:
    """Return the layers, each on a line, with an arrow to the next.

    Parameters
    ----------
    contracts : dict
        ``tool.importlinter`` of ``pyproject.toml``.
    """
    layers = next(c for c in contracts["contracts"] if c["type"] == "layers")["layers"]
    lines = [layer.replace(" | ", ", ") for layer in layers]
    return "\n".join(f"{'   ' if i == 0 else '-> '}{line}" for i, line in enumerate(lines))


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    print(arrows(tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]))
