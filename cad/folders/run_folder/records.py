"""Write and read the JSON files of a run folder."""

from pathlib import Path

from cad.base.errors import CadError
from cad.base.files import JsonObject, plain, write_atomic, write_json
from cad.base.reading import read_json
from cad.folders.run_folder.folder import RunFolder

# Sections of run.json, and sections of its settings, that are JSON objects where they exist.
_SECTIONS = ("counts", "estimator", "inputs", "model", "settings", "timings", "versions")
_SETTINGS = ("decision", "features", "images", "labels", "learner", "validate")


def write_metrics(folder: RunFolder, metrics: JsonObject) -> None:
    """Write ``metrics.json``, the measures of the whole run."""
    write_json(folder.metrics, metrics)


def read_metrics(folder: RunFolder) -> JsonObject:
    """Read ``metrics.json``; return an empty dict if the file is missing."""
    return read_json(folder.metrics) if folder.metrics.is_file() else {}


def write_record(folder: RunFolder, record: JsonObject) -> None:
    """Write ``run.json``: the run's settings, versions, inputs and timings."""
    write_json(folder.record, record)


def read_record(folder: RunFolder) -> JsonObject:
    """Read ``run.json``.

    Raises
    ------
    CadError
        When there is no such file, because the folder is then no finished run; when a section of
        the file or of its settings is no JSON object.
    """
    if not folder.record.is_file():
        raise CadError(
            f"no {folder.record.name}: this is not a finished run",
            file=folder.record,
            hint="give the folder that `cad run`, `cad predict` or `cad demo` wrote",
        )
    record = read_json(folder.record)
    _require_objects(record, _SECTIONS, folder.record)
    _require_objects(record.get("settings") or {}, _SETTINGS, folder.record)
    return record


def _require_objects(content: JsonObject, names: tuple[str, ...], path: Path) -> None:
    """Raise an error if one of the named sections of a file is neither a JSON object nor absent.

    The value null counts as absent.
    """
    for name in names:
        section = content.get(name)
        if section is not None and not isinstance(section, dict):
            raise CadError(
                f"{name!r} is {type(section).__name__}, must be an object",
                file=path,
                hint="make the run again: the file was changed since it was written",
            )


def write_validation(folder: RunFolder, text: str) -> None:
    """Write ``validation.md``, the validation as text for a reviewer."""
    write_atomic(folder.validation, plain(text).encode())


def write_comparison(folder: RunFolder, comparison: JsonObject) -> None:
    """Write ``comparison.json``, the comparison of models or pipelines."""
    write_json(folder.comparison, comparison)


def write_complete(folder: RunFolder, identity: str) -> None:
    """Write the file ``.complete``, which says that all files of the run are whole.

    ``identity`` is a hash of all inputs of the run. It becomes the content of the file.
    """
    write_atomic(folder.complete, identity.encode())
