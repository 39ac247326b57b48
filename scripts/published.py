"""Write the files that indexes and archives read, from one source: ``python scripts/published.py``.

The source is ``pyproject.toml`` (name, version, licence, keywords, address) and ``CITATION.cff``
(authors, date, papers). The script makes ``codemeta.json``, ``.zenodo.json`` and MHub's card
``contracts/mhub/meta.json`` from them. With ``--address URL`` the address is changed in both
sources first.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

from cad.base.files import write_atomic
from cad.hospital.contracts.mhub import model_card

ROOT = Path(__file__).resolve().parents[1]
MODEL = "phantom-psvm"


def files() -> dict[str, dict[str, Any]]:
    """Return the content of every file that is made, by the file's path in the project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    address = project["urls"]["Repository"]
    date = str(citation["date-released"])
    codemeta = {
        "@context": "https://doi.org/10.5063/schema/codemeta-2.0",
        "@type": "SoftwareSourceCode",
        "name": project["name"],
        "description": project["description"],
        "version": project["version"],
        "license": f"https://spdx.org/licenses/{project['license']}",
        "codeRepository": address,
        "dateModified": date,
        "programmingLanguage": "Python",
        "runtimePlatform": f"Python {project['requires-python']}",
        "keywords": project["keywords"],
        "author": [{"@type": "Organization", "name": a["name"]} for a in citation["authors"]],
        "referencePublication": [
            {"@type": "ScholarlyArticle", "name": paper["title"], **_doi(paper)}
            for paper in citation["references"]
        ],
    }
    zenodo = {
        "title": citation["title"],
        "description": project["description"],
        "version": project["version"],
        "upload_type": "software",
        "license": project["license"],
        "creators": [{"name": author["name"]} for author in citation["authors"]],
        "keywords": project["keywords"],
        "related_identifiers": [
            {"identifier": paper["doi"], "relation": "cites", "scheme": "doi"}
            for paper in citation["references"]
            if "doi" in paper
        ],
    }
    return {
        "codemeta.json": codemeta,
        ".zenodo.json": zenodo,
        "contracts/mhub/meta.json": model_card(MODEL, address, date),
    }


def _doi(paper: dict[str, Any]) -> dict[str, str]:
    if "doi" not in paper:
        return {}
    return {"@id": f"https://doi.org/{paper['doi']}"}


def set_address(address: str) -> None:
    """Replace the address of the source code by another one."""
    if not re.fullmatch(r"https://[^\s/]+(/[^\s/]+)+", address):
        sys.exit(f"{address}: an address is https://HOST/PATH, without a slash at its end")
    old = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    for name in ("pyproject.toml", "CITATION.cff"):
        path = ROOT / name
        write_atomic(path, path.read_text().replace(old, address).encode())


def main() -> None:
    """Write every file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", help="where the source code lies, https://…")
    words = parser.parse_args()
    if words.address:
        set_address(words.address)
    for name, content in files().items():
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        write_atomic(ROOT / name, text.encode())
        print(name)


if __name__ == "__main__":
    main()
