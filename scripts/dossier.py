"""Make the generated pages of the dossier: ``python scripts/dossier.py``.

``docs/dossier/hazards.md`` comes from ``hazards.yaml`` beside it. ``docs/dossier/software.md``
comes from the requirements of ``pyproject.toml``, the packages' own metadata and ``software.yaml``.

``python scripts/dossier.py --try [ID …]`` removes controls from a copy of the project, one after
another. It runs the test of the removed control there, which must fail. The script ends with 1
where such a test passes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import yaml
from licences import licence
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "dossier"
COPIED = ("cad", "tests", "scripts", "pipelines", "configs", "models", "sample_data", "contracts")
FILES = ("pyproject.toml", "Containerfile", "CITATION.cff", "README.md", "CHANGELOG.md", "LICENSE")

_ABOUT_HAZARDS = (
    "*For a hospital's committee: what can go wrong, and what stands against it?*",
    "",
    "A control is code that prevents the hazard or makes it visible. Every control has a test",
    "that shows that the control works. The test must also notice if the control is missing. So",
    "`python scripts/dossier.py --try` removes each control from a copy of the program and runs",
    "its test there: the test must fail.",
    "",
    "Severity is high where a man could be harmed, medium where a wrong number would be noticed",
    "late, and low for a nuisance. Each hospital judges the likelihoods for itself, because",
    "they depend on who uses the program. `python scripts/dossier.py` makes this page from",
    "`hazards.yaml`.",
)
_ABOUT_SOFTWARE = (
    "*For a hospital's committee: which foreign software comes along, and what is known of it?*",
    "",
    "This page lists the packages of other projects that `cad` uses. The packages under",
    '"Needed" are always installed with `cad`. An extra is a group of packages that the user may',
    "choose; its packages are installed only then. Versions are those that the tests ran with.",
    "After a known fault stands a colon, and then what `cad` does about the fault.",
    "`bash scripts/sbom.sh FILE` writes a bill of materials, which also lists the packages that",
    "these packages need. `bash scripts/advisories.sh` lists known weaknesses of all packages.",
    "`python scripts/dossier.py` makes this page from `pyproject.toml`, the packages' metadata and",
    "`software.yaml`.",
)
_HEAD = "| software | version | licence | what it does here | known faults that matter here |"


def hazards() -> list[dict[str, Any]]:
    """Return the hazards in the order of their file."""
    content: list[dict[str, Any]] = yaml.safe_load((FOLDER / "hazards.yaml").read_text())
    return content


def hazards_page() -> str:
    """Return the page of hazards."""
    lines = ["# Hazards", "", *_ABOUT_HAZARDS, ""]
    for hazard in hazards():
        lines += [
            f"## {hazard['id']}: {hazard['hazard']}",
            "",
            f"- severity: {hazard['severity']}",
            f"- cause: {hazard['cause']}",
            f"- control: {hazard['control']}",
            f"- shown by: `{hazard['test']}`",
        ]
        if "remove" in hazard:
            lines.append(f"- the control stands in: `cad/{hazard['remove']['file']}`")
        else:
            lines.append("- the control is no single place: it is not taken out by the script")
        lines.append("")
    return "\n".join(lines)


def software_page() -> str:
    """Return the page of foreign software that an installation brings directly."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = yaml.safe_load((FOLDER / "software.yaml").read_text())
    parts = [("Needed", project["dependencies"])]
    for extra, requirements in project["optional-dependencies"].items():
        if extra not in ("dev", "docs"):
            parts.append((f"Extra `{extra}`", requirements))
    lines = ["# Foreign software", "", *_ABOUT_SOFTWARE, ""]
    for title, requirements in parts:
        lines += [f"## {title}", "", _HEAD, "|---|---|---|---|---|"]
        for text in requirements:
            name = Requirement(text).name
            package = distribution(name)
            said = known[name]
            cells = (name, package.version, licence(package), said["purpose"], said["faults"])
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Return the generated pages by file name."""
    return {"hazards.md": hazards_page(), "software.md": software_page()}


def is_noticed(hazard: dict[str, Any]) -> bool:
    """Return whether the test of a control fails in a copy without this control."""
    with tempfile.TemporaryDirectory(prefix="cad-dossier-") as folder:
        copy = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in FILES:
            shutil.copy(ROOT / name, copy / name)
        shutil.copytree(FOLDER, copy / "docs" / "dossier")
        place = copy / "cad" / hazard["remove"]["file"]
        text = place.read_text()
        place.write_text(text.replace(hazard["remove"]["text"], hazard["remove"]["put"]))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", hazard["test"]],
            cwd=copy,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        # Exit code 1 means that a test ran and failed; any other code shows nothing.
        return done.returncode == 1 and " failed" in done.stdout


def main() -> None:
    """Write the pages, or try the controls."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--try", dest="tried", nargs="*", metavar="ID")
    words = parser.parse_args()
    if words.tried is None:
        for name, text in pages().items():
            (FOLDER / name).write_text(text)
            print(FOLDER / name)
        return
    missed = []
    for hazard in hazards():
        if words.tried and hazard["id"] not in words.tried:
            continue
        if "remove" not in hazard:
            print(f"{hazard['id']}: no single place, not tried")
            continue
        verdict = "noticed"
        if not is_noticed(hazard):
            verdict = "NOT NOTICED"
            missed.append(hazard["id"])
        print(f"{hazard['id']}: {verdict} ({hazard['test']})", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
