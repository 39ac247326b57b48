"""Print a conda recipe (rattler-build, schema v1) made of pyproject.toml.

    python scripts/conda_recipe.py > build/recipe.yaml
    uv run --with py-rattler-build python scripts/conda_recipe.py --check

The second renders it as the builder does. Give the recipe the address and the hash of the released
source, in place of example.org and zeros.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
# Where conda's name of a package is another one.
NAMES = {"PyYAML": "pyyaml", "matplotlib": "matplotlib-base", "SimpleITK": "simpleitk"}


def dependency(text: str) -> str:
    """Return one of pyproject's dependencies as conda writes it."""
    found = Requirement(text)
    name = NAMES.get(found.name, found.name.lower())
    return f"{name} {found.specifier}".strip()


def recipe(project: dict[str, Any], backend: list[str]) -> dict[str, Any]:
    """Return the recipe of a project table and its build requirements."""
    python = re.sub(r"\s", "", project["requires-python"])
    return {
        "schema_version": 1,
        "context": {"version": project["version"]},
        "package": {"name": project["name"], "version": "${{ version }}"},
        "source": {
            "url": "https://example.org/prostate_cad-${{ version }}.tar.gz",
            "sha256": "0" * 64,
        },
        "build": {
            "noarch": "python",
            "script": "${{ PYTHON }} -m pip install . --no-deps --no-build-isolation -vv",
            "python": {
                "entry_points": [f"{k} = {v}" for k, v in project["scripts"].items()],
            },
        },
        "requirements": {
            "host": [f"python {python}", "pip", *map(dependency, backend)],
            "run": [f"python {python}", *map(dependency, project["dependencies"])],
        },
        "tests": [
            {"python": {"imports": ["cad", "cad.run.api", "cad.learners"]}},
            {"script": ["cad --help", "cad model verify phantom-psvm"]},
        ],
        "about": {
            "summary": project["description"],
            "license": project["license"],
            "license_file": "LICENSE",
        },
    }


def main() -> None:
    """Print the recipe."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = recipe(content["project"], content["build-system"]["requires"])
    text = yaml.safe_dump(found, sort_keys=False, width=100)
    if "--check" not in sys.argv:
        print(text, end="")
        return
    from rattler_build import Stage0Recipe

    rendered = Stage0Recipe.from_yaml(text).render()
    print(f"rendered: {len(rendered)} variant of {found['package']['name']}")


if __name__ == "__main__":
    main()
