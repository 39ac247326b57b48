"""Print the licence of every package that an installation brings, as its own metadata state it.

    python scripts/licences.py                     # what `pip install prostate-cad` brings
    python scripts/licences.py cluster radiomics   # with extras

Run the script in an environment that has the packages. The script ends with 1 where a licence is
strong copyleft (GPL, AGPL) or is stated nowhere.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

PROJECT = "prostate-cad"


def needed(project: str, extras: list[str]) -> list[Distribution]:
    """Return the distributions that a project needs here, by name, without the project itself."""
    found: dict[str, Distribution] = {}
    open_ends = [(project, frozenset(extras))]
    seen = set(open_ends)
    while open_ends:
        name, wanted = open_ends.pop()
        try:
            package = distribution(name)
        except PackageNotFoundError:
            sys.exit(f"{name} is not installed here: uv sync, with --extra for each extra you name")
        found[package.name.lower()] = package
        for text in package.requires or []:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in ("", *wanted)):
                end = (requirement.name, frozenset(requirement.extras))
                if end not in seen:
                    seen.add(end)
                    open_ends.append(end)
    found.pop(project)
    return [found[name] for name in sorted(found)]


def licence(package: Distribution) -> str:
    """Return the licence of a package: its expression, its classifiers, or its own short words."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    prefix = "License :: OSI Approved :: "
    classifiers = [
        c.removeprefix(prefix) for c in metadata.get_all("Classifier") or [] if c.startswith(prefix)
    ]
    words = str(metadata.get("License") or "").strip()
    # Some packages state the whole text of a licence. Then the GNU licence that the text names is
    # shown, or the first line of the text.
    gnu = re.search(r"GNU (Affero |Lesser )?General Public License", words)
    return "; ".join(classifiers) or (gnu[0] if gnu else "".join(words.splitlines()[:1]))


def is_strong_copyleft(text: str) -> bool:
    """Return whether a licence is GPL or AGPL, without a choice of another or a lesser licence.

    With GCC's runtime exception anybody may distribute the library that it covers.
    """
    return all(
        re.search(r"\bA?GPL|GNU (Affero )?General Public", choice) and "exception" not in choice
        for choice in re.split(r"\bOR\b|; ", text)
    )


def main(extras: list[str]) -> int:
    """Print the table and return the exit code."""
    bad = []
    print("| package | version | licence |\n|---|---|---|")
    for package in needed(PROJECT, extras):
        text = licence(package)
        print(f"| {package.name} | {package.version} | {text or 'NOT STATED'} |")
        if not text or is_strong_copyleft(text):
            bad.append(package.name)
    if bad:
        print(f"\nstrong copyleft or not stated: {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
