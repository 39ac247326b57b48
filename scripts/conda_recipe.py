"""Print a conda recipe (rattler-build, schema v1) made from pyproject.toml.

    python scripts/conda_recipe.py > recipe.yaml
    python scripts/conda_recipe.py --url URL --archive dist/prostate_cad-X.Y.Z.tar.gz > recipe.yaml
    uv run --with py-rattler-build python scripts/conda_recipe.py --check

The first command builds from this checkout. The second builds from the released source at URL, with
the archive's hash. The third renders the recipe as the builder does. The recipe was rendered and
not built: only a build shows whether the channel has every package at these versions.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
# Packages that have another name in conda.
NAMES = {"PyYAML": "pyyaml", "matplotlib": "matplotlib-base", "SimpleITK": "simpleitk"}


def dependency(text: str) -> str:
    """Return one of pyproject's dependencies in conda's notation."""
    found = Requirement(text)
    name = NAMES.get(found.name, found.name.lower())
    return f"{name} {found.specifier}".strip()


def source(url: str, archive: Path | None) -> dict[str, str]:
    """Return the place of the recipe's source: a released archive, or this checkout."""
    if archive is None:
        return {"path": str(ROOT)}
    return {"url": url, "sha256": hashlib.sha256(archive.read_bytes()).hexdigest()}


def recipe(project: dict[str, Any], backend: list[str], place: dict[str, str]) -> dict[str, Any]:
    """Return the recipe of a project table, its build requirements and the place of its source."""
    python = re.sub(r"\s", "", project["requires-python"])
    return {
        "schema_version": 1,
        "context": {"version": project["version"]},
        "package": {"name": project["name"], "version": "${{ version }}"},
        "source": place,
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
    """Print the recipe, or render it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="", help="address of the released source")
    parser.add_argument("--archive", type=Path, help="the same file here, for its hash")
    parser.add_argument("--check", action="store_true", help="render it as the builder does")
    words = parser.parse_args()
    if bool(words.url) != (words.archive is not None):
        parser.error("--url and --archive go together")
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    place = source(words.url, words.archive)
    whole = recipe(content["project"], content["build-system"]["requires"], place)
    text = yaml.safe_dump(whole, sort_keys=False, width=100)
    if not words.check:
        print(text, end="")
        return
    from rattler_build import Stage0Recipe

    rendered = Stage0Recipe.from_yaml(text).render()
    print(f"rendered: {len(rendered)} variant of {whole['package']['name']}")


if __name__ == "__main__":
    main()
