"""Write the entries of a prediction and of a delivery into an audit trail.

An entry does not identify a patient. It holds hashes of the results. A hash proves later which
numbers were returned.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from cad.base.files import JsonObject
from cad.base.reading import MAX_IMAGE, read_bytes
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.records import read_record
from cad.folders.run_folder.tables import read_probabilities
from cad.mri.imaging.frames import read_dataset
from cad.run.audit.trail import append, pseudonym


def caller() -> str:
    """Return the number of the user who runs this process, as text.

    The user's name is left out, because it would identify the person.
    """
    return f"user {os.getuid()}"


def audit_prediction(trail: Path, run: Path, who: str, more: JsonObject | None = None) -> str:
    """Append a line to a trail for every study of a run: models, thresholds, hash of the results.

    Parameters
    ----------
    trail : Path
        The audit trail.
    run : Path
        A finished run folder.
    who : str
        Who asked for the prediction: :func:`caller`, or the AE titles (names of DICOM programs)
        that sent the study.
    more : dict, optional
        Further content of each line, without identities of patients.

    Returns
    -------
    str
        The trail's last hash.
    """
    last_hash = ""
    for _, rows, entry in _studies_of_run(trail, run, who, more):
        # The hash of the rows proves later which numbers were returned. The numbers themselves are
        # not in the trail.
        returned = {"rows_sha256": _sha256(rows.to_csv(index=False).encode())}
        event = {"event": "predict", "regions": len(rows), "returned": returned}
        last_hash = append(trail, {**entry, **event})
    return last_hash


def audit_delivery(
    trail: Path,
    run: Path,
    files: Sequence[Path],
    who: str,
    to: str,
    outcome: str = "stored",
    more: JsonObject | None = None,
) -> str:
    """Append a line to a trail for every study whose DICOM objects were sent to an archive.

    Parameters
    ----------
    trail : Path
        The audit trail.
    run : Path
        A finished run folder.
    files : sequence of Path
        The DICOM objects in the run folder.
    who : str
        Who asked for the delivery: :func:`caller`, or the AE titles (names of DICOM programs) that
        sent the study.
    to : str
        The archive's address. A user name and password in the address are not written.
    outcome : str
        ``stored`` if the archive took all objects; ``not all stored`` if it may have taken only
        some; ``committed`` if it has promised to keep them.
    more : dict, optional
        Further content of each line, without identities of patients.

    Returns
    -------
    str
        The trail's last hash.
    """
    last_hash = ""
    for study, _, entry in _studies_of_run(trail, run, who, more):
        # The names of a study's objects begin with its id and an underscore. Without the
        # underscore, sub-1 would also get the objects of sub-10.
        objects = [path for path in files if path.name.startswith(f"{study}_")]
        if objects:
            # Other people read the trail. Therefore only the host of an address such as
            # https://user:password@host is written.
            _, _, host = to.rpartition("@")
            event = {"event": "send", "to": host, "outcome": outcome}
            returned = [_object_entry(path) for path in objects]
            last_hash = append(trail, {**entry, **event, "returned": returned})
    return last_hash


def _studies_of_run(
    trail: Path, run: Path, who: str, more: JsonObject | None
) -> Iterator[tuple[str, pd.DataFrame, JsonObject]]:
    """Yield every study of a run: its id, its rows, and the content that each line about it has."""
    folder = RunFolder(run)
    record = read_record(folder)
    for study, rows in read_probabilities(folder).groupby("study_id", sort=True):
        entry = {
            "who": who,
            "study": pseudonym(trail, str(study)),
            "models": _models_of_rows(record, rows),
            "cad_version": record.get("cad_version"),
        }
        yield str(study), rows, {**entry, **(more or {})}


def _models_of_rows(record: JsonObject, rows: pd.DataFrame) -> list[JsonObject]:
    """Return name, hash and thresholds of each model that scored the given rows."""
    # The record of a validation names no model.
    models = (record.get("model") or {}).get("models") or {}
    names = []
    if "model" in rows:
        names = sorted(set(rows["model"].dropna()) & set(models))
    if not names:
        return [{"name": record.get("name"), "thresholds": record.get("decision_thresholds")}]
    entries = []
    for name in names:
        model = models[name]
        entries.append(
            {"name": name, "sha256": model.get("sha256"), "thresholds": model.get("thresholds")}
        )
    return entries


def _object_entry(path: Path) -> JsonObject:
    """Return the class, UID and hash of a DICOM object, by which a line names it."""
    dataset = read_dataset(path)
    return {
        "sop_class": str(dataset.SOPClassUID),
        "sop_instance": str(dataset.SOPInstanceUID),
        "sha256": _sha256(read_bytes(path, MAX_IMAGE)),
    }


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
