"""Share between both misbehaving archives: a study, what they truly hold, and the judgement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
from dicom_files import write_series
from pydicom.dataset import Dataset

from cad.base.errors import CadError

PATIENT = "P-001"


@dataclass(frozen=True)
class Behaviour:
    """One way to be wrong: what is asked of it, how that must end, and whether it takes long."""

    job: str
    expect: str
    slow: bool
    script: Callable[[Any], None]


@dataclass
class Truth:
    """Content of an archive: the study that can be fetched, and the patient of each kept object."""

    study: list[Dataset]
    kept: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """The end of one call."""

    outcome: str
    seconds: float
    error: CadError | None


def write_truth(folder: Path) -> Truth:
    """Write a study of three small images."""
    array = np.random.default_rng(0).integers(1, 900, (3, 8, 8)).astype(np.uint16)
    return Truth([pydicom.dcmread(p) for p in write_series(folder, array, patient=PATIENT)])


def write_results(folder: Path) -> list[Path]:
    """Write two objects of the same study that are to be stored."""
    array = np.random.default_rng(1).integers(1, 900, (2, 8, 8)).astype(np.uint16)
    return write_series(folder, array, patient=PATIENT, number=9, description="results")


def attempt(
    job: str,
    archive: Any,
    truth: Truth,
    folder: Path,
    fetch_patient: Callable[..., tuple[list[Path], list[CadError]]],
) -> Seen:
    """Do what the behaviour is about, and hold what is claimed against what is true."""
    start = time.monotonic()
    error: CadError | None = None
    try:
        if job == "store":
            _store(archive, truth, write_results(folder / "results"))
        else:
            _fetch(archive, truth, folder / "fetched", fetch_patient)
    except CadError as refused:
        error = refused
    return Seen("refused" if error else "done", time.monotonic() - start, error)


def _fetch(archive: Any, truth: Truth, into: Path, fetch_patient: Any) -> None:
    into.mkdir()
    complete, failures = fetch_patient(archive, PATIENT, into)
    if failures:
        raise failures[0]
    arrived = [pydicom.dcmread(p) for folder in complete for p in folder.rglob("*.dcm")]
    assert {str(d.PatientID) for d in arrived} == {PATIENT}, "WRONG PATIENT"
    names = sorted(str(d.SOPInstanceUID) for d in arrived)
    assert names == sorted(str(d.SOPInstanceUID) for d in truth.study), "FALSE COMPLETE"
    assert {d.InstanceNumber for d in arrived} == {d.InstanceNumber for d in truth.study}


def _store(archive: Any, truth: Truth, paths: list[Path]) -> None:
    uids = {path: str(pydicom.dcmread(path).SOPInstanceUID) for path in paths}
    try:
        archive.store(paths)
    except CadError as error:
        check_named(error, paths, [p for p in paths if uids[p] in truth.kept])
        raise
    assert all(uids[path] in truth.kept for path in paths), "FALSE STORED"
    assert {truth.kept[uids[path]] for path in paths} == {PATIENT}, "WRONG PATIENT"


def check_named(error: CadError, paths: Iterable[Path], kept: list[Path]) -> None:
    """Every object is named once, and what is called stored is what the archive keeps."""
    parts = error.problem.split("; ")
    groups = [part.partition(": ") for part in parts[-3:]]
    assert [g[0] for g in groups] == ["stored", "sent, but not proved to be stored", "not sent"]
    named = [name for g in groups for name in g[2].split(", ") if name != "none"]
    assert sorted(named) == sorted(path.name for path in paths), error.problem
    stored = {name for name in groups[0][2].split(", ") if name != "none"}
    assert stored <= {path.name for path in kept}, f"FALSE STORED: {error.problem}"
