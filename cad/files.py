"""Write files that are whole or absent, as text, JSON or tables with the same bytes every time."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

PART_SUFFIX = ".part"
JsonObject = dict[str, Any]
"""Content of a JSON file, or what becomes one: where types end."""


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    The content goes to a temporary file in the same folder, is flushed to the disk and renamed;
    a failure (full disk, refused permission) leaves the previous file as it was.

    Parameters
    ----------
    path : Path
        The file; its folder is made when absent.
    content : bytes
        Everything that the file shall hold.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=PART_SUFFIX)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp files are private; results are as readable as any file of this user.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def json_safe(value: Any) -> Any:
    """Return the value as JSON can hold it: arrays as lists, what is not finite as None."""
    import numpy as np

    if is_dataclass(value) and not isinstance(value, type):
        return json_safe(asdict(value))
    if isinstance(value, dict):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [json_safe(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def write_json(path: Path, content: Any) -> None:
    """Write JSON without NaN: what is not a number is null."""
    text = json.dumps(json_safe(content), indent=1, sort_keys=True, allow_nan=False)
    write_atomic(path, text.encode() + b"\n")


def parquet_bytes(table: pd.DataFrame) -> bytes:
    """Return a table as parquet; byte-identical for the same content."""
    stream = BytesIO()
    table.to_parquet(stream, index=False)
    return stream.getvalue()


def write_csv(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> None:
    """Write a table as CSV with exactly these columns; floats read back to the same bits."""
    text = table.reindex(columns=list(columns)).to_csv(index=False, lineterminator="\n")
    write_atomic(path, text.encode())
