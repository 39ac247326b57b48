"""Put the files of every package, with their hashes, into a bill of materials: BOM LOCK.

uv's export names packages and versions; the lock file names the files that are downloaded for each
package. A package without such a file (this project itself) is counted and reported.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any


def files_of(lock: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the downloaded files of every package, by name and version."""
    files: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for package in lock["package"]:
        built = package.get("wheels", [])
        source = [package["sdist"]] if "sdist" in package else []
        entries = [file for file in (*source, *built) if "hash" in file]
        files[package["name"], package.get("version", "")] = entries
    return files


def with_hashes(bom: dict[str, Any], lock: dict[str, Any]) -> int:
    """Add the files to the components; return the number of components without a file."""
    files, without = files_of(lock), 0
    for component in bom["components"]:
        entries = files.get((component["name"], component["version"]), [])
        without += not entries
        component["externalReferences"] = [
            {
                "type": "distribution",
                "url": file.get("url", file.get("filename", component["name"])),
                "hashes": [{"alg": "SHA-256", "content": file["hash"].removeprefix("sha256:")}],
            }
            for file in entries
        ]
    return without


def main(bom_file: Path, lock_file: Path) -> None:
    """Rewrite the bill of materials, and report which of its packages have no hash."""
    bom = json.loads(bom_file.read_text(encoding="utf-8"))
    without = with_hashes(bom, tomllib.loads(lock_file.read_text(encoding="utf-8")))
    bom_file.write_text(json.dumps(bom, indent=1) + "\n", encoding="utf-8")
    count = len(bom["components"])
    print(f"{count - without} of {count} packages with the hashes of their files")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
