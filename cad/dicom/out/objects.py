"""Make the parts that all DICOM objects of this program share: UIDs, texts, maker and source."""

import hashlib
import unicodedata
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
from pydicom.dataset import Dataset
from pydicom.uid import generate_uid

from cad.base.doors import door
from cad.base.files import JsonObject, plain
from cad.dicom.out.source_images import SourceImages
from cad.dicom.own import MANUFACTURER, SERIES
from cad.folders.cohort import StudyRef

# The character set of all objects is UTF-8. The patient's id, and the name that an object gets from
# the archive when it is sent, may be in any script.
CHARACTER_SET = "ISO_IR 192"
# Most bytes of a text in an element of the value representation LO (long string).
_LONG = 64
SIGNIFICANT_GRADE = 2
"""Lowest ISUP grade of clinically significant cancer, as the field of prostate MRI defines it."""


@dataclass(frozen=True)
class StudyResults:
    """Hold the inputs of the segmentation (SEG) and the structured report (SR) of one study.

    Parameters
    ----------
    study : StudyRef
        The study in its cohort.
    source : SourceImages
        Its T2 images, which the objects refer to.
    scored : DataFrame
        The study's rows of ``probabilities.csv`` that have a probability, one for each region.
    masks : list of ndarray of bool, shape (n_z, n_y, n_x)
        The masks of these regions on the T2 grid, in the order of the rows.
    medians : dict
        By ROI id: ``adc_median`` (um2/s), ``ktrans_median`` (1/min), ``volume_mm3``.
    run : dict
        Content of ``run.json``, with the model that scored this study.
    identity : str
        Hash of the objects' content; their UIDs follow from the hash.
    """

    study: StudyRef
    source: SourceImages
    scored: pd.DataFrame
    masks: list[np.ndarray]
    medians: dict[str, JsonObject]
    run: JsonObject
    identity: str


def uid(identity: str, *pieces: object) -> str:
    """Return a UID for an object or a part of it: equal arguments give equal UIDs, in every run.

    Parameters
    ----------
    identity : str
        Text from which the UID is derived, such as a hash of the content or a study's id.
    *pieces : object
        Values that distinguish this part from other parts of the same identity.
    """
    return generate_uid(entropy_srcs=[identity, *(str(piece) for piece in pieces)])


def heading(kind: str, identity: str, number: int = 1) -> dict[str, Any]:
    """Return the keyword arguments that highdicom's classes take for every kind of object.

    Parameters
    ----------
    kind : str
        Key of :data:`cad.dicom.own.SERIES`: decides series number and description.
    identity : str
        Hash of the object's content: the same content gets the same UIDs.
    number : int
        Place of the object in its series, from 1.

    Returns
    -------
    dict of str to object
        UIDs and numbers of series and instance, description, manufacturer, character set.
    """
    series = SERIES[kind]
    # The UID of the first object of a series is made without its number. It is thus the same UID as
    # in earlier versions of the program, in which a series held only one object.
    distinguishing = [kind] if number == 1 else [kind, number]
    return {
        "series_instance_uid": uid(identity, f"{kind} series"),
        "series_number": series.number,
        "series_description": series.description,
        "sop_instance_uid": uid(identity, *distinguishing),
        "instance_number": number,
        "manufacturer": MANUFACTURER,
        "specific_character_set": CHARACTER_SET,
    }


def with_own_model(run: JsonObject, scored: pd.DataFrame) -> JsonObject:
    """Return the content of ``run.json`` with only the model that scored one study.

    The content of a run with a single model is returned as it is.

    Parameters
    ----------
    run : dict
        Content of ``run.json``.
    scored : DataFrame
        The study's rows of ``probabilities.csv``.
    """
    models = (run.get("model") or {}).get("models") or {}
    own_model = models.get(scored["model"].iloc[0]) if "model" in scored else None
    return {**run, "model": own_model} if own_model else run


def algorithm(run: JsonObject) -> tuple[str, str, list[str]]:
    """Return the name and version of the algorithm, and statements that qualify its numbers.

    Parameters
    ----------
    run : dict
        Content of ``run.json``.

    Returns
    -------
    name, version : str
        Name of the model, and version of the program ``cad``.
    statements : list of str
        That the results are for research only, the training population, what the numbers are the
        probability of, and the thresholds of the decision.
    """
    model = run.get("model") or {}
    training = model.get("training") or {}
    prevalence = model.get("prevalence") or {}
    simulated = bool(training.get("simulated", run.get("simulated")))
    people = "SIMULATED patients" if simulated else "patients"
    # A validation has no stored model: each fold's model learned from the other patients.
    if training:
        population = (
            f"training population: {training.get('patients')} {people}, "
            f"{training.get('regions')} regions, {training.get('malignant')} malignant"
        )
    else:
        population = (
            f"training population: the other {people} of this cohort, one left out at a time"
        )
    statements = ["research use only", population]
    statements.append(_meaning_of_probability(prevalence, isup_min_of(run)))
    thresholds = model.get("thresholds") or run.get("decision_thresholds")
    if thresholds:
        low, high = (100 * float(threshold) for threshold in thresholds)
        statements.append(f"decision: benign below {low:.3g} %, malignant above {high:.3g} %")
    return str(model.get("name") or run.get("name")), str(run.get("cad_version")), statements


def _meaning_of_probability(prevalence: JsonObject, isup_min: int) -> str:
    """Return a statement on what the numbers are the probability of, and at which prevalence."""
    stated_prevalence = prevalence.get("stated")
    training_prevalence = prevalence.get("men")
    grade = "cancer" if isup_min <= 1 else f"cancer of ISUP {isup_min} or more"
    if stated_prevalence is not None:
        return (
            f"probability of {grade}; prevalence stated by the site: {stated_prevalence:.3g} of men"
        )
    if training_prevalence is not None:
        return (
            f"probability of {grade}; prevalence of the training: {training_prevalence:.3g} of men"
        )
    return f"probability of {grade} where one is given; belief: what readers would say"


def isup_min_of(run: JsonObject) -> int:
    """Return the lowest ISUP grade that a run counts as malignant.

    Parameters
    ----------
    run : dict
        Content of ``run.json``.
    """
    labels = (run.get("settings") or {}).get("labels") or {}
    return int(labels.get("isup_min", SIGNIFICANT_GRADE))


def long_string(text: str) -> str:
    """Return text as the DICOM value representation LO holds it: at most 64 bytes, in one line.

    The standard allows 64 characters, but some programs that read DICOM count bytes. A backslash,
    which separates values, becomes a slash. Text that is too long is cut between two characters.
    Six digits of its hash are then added, so that two texts with the same beginning stay different.

    Parameters
    ----------
    text : str
        Any text.
    """
    clean = plain(text).replace("\\", "/").replace("\n", " ").replace("\t", " ")
    if len(clean.encode()) <= _LONG:
        return clean
    end = len(clean)
    while len(clean[:end].encode()) > _LONG - 7:  # 7 bytes for a tilde and six digits
        end -= 1
    while end and unicodedata.combining(clean[end]):  # no cut between a letter and its accent
        end -= 1
    return f"{clean[:end]}~{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def say_who(dataset: Dataset, source: SourceImages, participant_id: str) -> None:
    """Mark a DICOM object as de-identified if its PatientID is the cohort's own label.

    Parameters
    ----------
    dataset : Dataset
        The object; changed in place.
    source : SourceImages
        The source images that the object was made from; their ``patient_id`` is compared.
    participant_id : str
        ``sub-XXX``.
    """
    if source.patient_id == participant_id:
        dataset.PatientIdentityRemoved = "YES"
        dataset.DeidentificationMethod = "pseudonym by cad import; UIDs kept"


@door("own", "our own DICOM objects")
def content(dataset: Dataset) -> bytes:
    """Return the bytes of the DICOM file that holds an object."""
    stream = BytesIO()
    dataset.save_as(stream, enforce_file_format=True)
    return stream.getvalue()
