"""Write and read the JSON files of a run folder."""

from cad.base.errors import CadError
from cad.base.files import JsonObject, plain, write_atomic, write_json
from cad.base.reading import read_json
from cad.folders.run_folder.folder import RunFolder


def write_metrics(folder: RunFolder, metrics: JsonObject) -> None:
    """Write ``metrics.json``, the measures of the whole run."""
    write_json(folder.metrics, metrics)


def read_metrics(folder: RunFolder) -> JsonObject:
    """Read ``metrics.json``; empty where there is none."""
    return read_json(folder.metrics) if folder.metrics.is_file() else {}


def write_record(folder: RunFolder, record: JsonObject) -> None:
    """Write ``run.json``: the run's settings, versions, inputs and timings."""
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
    return read_json(folder.record)


def write_validation(folder: RunFolder, text: str) -> None:
    """Write ``validation.md``, the validation as text for a reviewer."""
    write_atomic(folder.validation, plain(text).encode())


def write_comparison(folder: RunFolder, comparison: JsonObject) -> None:
    """Write ``comparison.json``, the comparison of models or pipelines."""
    write_json(folder.comparison, comparison)


def write_complete(folder: RunFolder, identity: str) -> None:
    """Write the file ``.complete``, which says that all files of the run are whole.

    ``identity`` is the hash of everything the run was made from; it becomes the file's content.
    """
    write_atomic(folder.complete, identity.encode())
