"""Write and read the JSON files of a run folder."""

from __future__ import annotations

import json
from pathlib import Path

from cad.errors import CadError
from cad.files import JsonObject, write_atomic, write_json
from cad.run_folder.folder import RunFolder


def write_metrics(folder: RunFolder, metrics: JsonObject) -> None:
    """Write ``metrics.json``."""
    write_json(folder.metrics, metrics)


def read_metrics(folder: RunFolder) -> JsonObject:
    """Read ``metrics.json``; empty where there is none."""
    return _read(folder.metrics) if folder.metrics.is_file() else {}


def write_record(folder: RunFolder, record: JsonObject) -> None:
    """Write ``run.json``."""
    write_json(folder.record, record)


def read_record(folder: RunFolder) -> JsonObject:
    """Read ``run.json``.

    Raises
    ------
    CadError
        Where there is none: the folder is no finished run.
    """
    if not folder.record.is_file():
        raise CadError(
            f"no {folder.record.name}: this is not a finished run",
            file=folder.record,
            hint="give the folder that `cad run`, `cad predict` or `cad demo` wrote",
        )
    return _read(folder.record)


def write_validation(folder: RunFolder, text: str) -> None:
    """Write ``validation.md``."""
    write_atomic(folder.validation, text.encode())


def write_comparison(folder: RunFolder, comparison: JsonObject) -> None:
    """Write ``comparison.json``."""
    write_json(folder.comparison, comparison)


def write_complete(folder: RunFolder, identity: str) -> None:
    """Mark the folder as whole, and made from what ``identity`` hashes."""
    write_atomic(folder.complete, identity.encode())


def _read(path: Path) -> JsonObject:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CadError(f"not valid JSON: {error}", file=path) from error
    if not isinstance(content, dict):
        raise CadError("expected a JSON object", file=path)
    return content
