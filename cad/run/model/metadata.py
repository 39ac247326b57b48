"""Declare what ``metadata.json`` of a model may hold, and check it when a model is loaded.

The hashes of a bundle prove that its files did not change, not that a training wrote them. So every
entry that the program reads has its kind here. An entry that is not declared is kept and not used.
"""

from typing import Any, TypedDict

import numpy as np

from cad.base.errors import CadError
from cad.base.files import JsonObject, typed
from cad.learning.evaluation.decisions.operating import OperatingChoice
from cad.learning.evaluation.readers.assisted import Combinations
from cad.learning.joint_model import from_dict
from cad.mri.features.typicality import Typicality
from cad.run.model.fold_features import Preparation

# Largest weight that a stored model may give a reader's score or its own log-odds. No training
# gives a larger one. The sum of larger weights can be infinite, and infinity minus infinity is no
# probability.
_LARGEST_WEIGHT = 1e6
# Numbers of limits that each group of features has: for a single region, and for the mean of 2, 3
# and 4 regions of a study.
_LIMITS_OF_GROUP = 4
# Number of percentiles by which Nyul's scale describes the intensities of T2.
_NYUL_LANDMARKS = 11


class TrainingCohort(TypedDict, total=False):
    """Hold the numbers of patients and regions of a training cohort."""

    patients: int
    regions: int
    malignant: int
    benign: int
    without_histology: int
    prevalence: float | None
    sites: dict[str, int]
    cohort_hash: str
    label_kinds: dict[str, int] | None
    simulated: bool
    extends: list[str]


class TableRoles(TypedDict, total=False):
    """Say what the columns of a model's training table are, such as scores of readers."""

    file: str
    patient: str | None
    id: str | None
    scores: list[str]
    scale: str | None
    missing: list[str]


class MenMetadata(TypedDict, total=False):
    """Hold the thresholds for decisions on men."""

    operating_point: OperatingChoice | None


class RecalibratedOn(TypedDict, total=False):
    """Hold whether the men on whom a model was recalibrated were simulated.

    A model that was trained on simulated men may decide only after recalibration on real men.
    """

    simulated: bool


class FittedTypicality(TypedDict, total=False):
    """Hold the limits beyond which a region is unlike the training regions."""

    features: list[str]
    middle: list[float]
    low: list[float]
    high: list[float]
    limits: dict[str, Any]


class FittedSites(TypedDict, total=False):
    """Hold the site effects that harmonisation removes."""

    sites: list[str]
    mean: list[float]
    spread: list[float]
    shift: list[list[float]]
    scale: list[list[float]]
    medians: list[float]


class FittedPreparation(TypedDict, total=False):
    """Hold the steps on features, such as harmonisation, that were fitted before the learner."""

    nyul_landmarks: list[float] | None
    unstable: list[str]
    combat: FittedSites | None
    text: list[str]


class Metadata(TypedDict, total=False):
    """Hold the entries of ``metadata.json`` that the program reads."""

    name: str
    description: str
    intended_use: str
    limits: str
    cad_version: str
    features: list[str]
    units: dict[str, str]
    modalities: list[str]
    pipeline: dict[str, Any]
    training: TrainingCohort
    carries_training_rows: bool
    table: TableRoles | None
    preparation: FittedPreparation | None
    typicality: FittedTypicality | None
    provenance: dict[str, list[Any]] | None
    joint: dict[str, Any] | None
    operating_point: OperatingChoice | None
    man: MenMetadata | None
    combinations: Combinations | None
    recalibration: RecalibratedOn | None
    recalibrated_on: list[str]


# Entries of ``metadata.json`` that every model trained by a pipeline has. Code reads them without
# asking whether they exist.
_OF_A_PIPELINE = ("training", "carries_training_rows", "modalities")


def check_metadata(content: JsonObject) -> None:
    """Raise an error for metadata that no training writes.

    Parameters
    ----------
    content : dict
        Content of ``metadata.json``.

    Raises
    ------
    CadError
        For an entry that is missing or of another kind than declared, and for numbers that no
        training gives. These are thresholds outside 0 to 1 or in the wrong order, too large weights
        of readers, limits and site effects that do not fit the features, and an impossible joint
        model.
    TypeError
        For an entry of another kind; the message names the entry.
    """
    metadata = typed(Metadata, content)
    if "pipeline" in metadata:
        absent = [name for name in _OF_A_PIPELINE if name not in metadata]
        if absent:
            raise CadError(f"metadata.json has no {absent[0]!r}")
        if "simulated" not in metadata["training"]:
            raise CadError("metadata.json does not say whether the training was simulated")
    if metadata.get("joint") is not None:
        from_dict(content["joint"])
    _check_thresholds(metadata.get("operating_point"))
    men = metadata.get("man")
    if men is not None:
        _check_thresholds(men.get("operating_point"))
    _check_weights(metadata.get("combinations"))
    _check_table(metadata.get("table"))
    _check_typicality(content.get("typicality"))
    _check_preparation(Preparation.of(content), len(content["features"]))
    _check_provenance(metadata.get("provenance"))


def _check_thresholds(choice: OperatingChoice | None) -> None:
    """Raise an error unless the two thresholds are probabilities in ascending order."""
    if choice is None:
        return
    benign, malignant = choice.thresholds
    if not 0 <= benign <= malignant <= 1:
        raise CadError(
            f"thresholds of {benign:.3g} and {malignant:.3g}: expected two numbers from 0 to 1, "
            "the larger one last"
        )


def _check_weights(combinations: Combinations | None) -> None:
    """Raise an error for a weight of a reader or of the tool that is too large, or NaN."""
    if combinations is None:
        return
    for weights in (combinations.anyone, *combinations.readers.values()):
        for name in ("intercept", "score", "tool"):
            weight = getattr(weights, name)
            if not abs(weight) <= _LARGEST_WEIGHT:  # true of NaN, too
                raise CadError(f"the weights of a reader have {name} = {weight:.3g}")


def _check_table(roles: TableRoles | None) -> None:
    """Raise an error for a table whose scores cannot be read, because their scale is not stated."""
    if roles is None:
        return
    if roles.get("scores") and not roles.get("scale"):
        raise CadError("the table's roles name scores and not their scale")


def _check_typicality(content: JsonObject | None) -> None:
    """Raise an error for limits of typicality that no training gives."""
    if content is None:
        return
    limits = content["limits"]
    of_earlier_version = any(isinstance(limit, float) for limit in limits.values())
    if of_earlier_version:
        # The limits are those of an earlier version of the program. They are not checked here: the
        # code that uses them raises an error, whose hint is to train the model again.
        return
    typical = Typicality.from_dict(content, {})
    n_features = len(typical.features)
    for name in ("middle", "low", "high"):
        values = getattr(typical, name)
        if values.shape != (n_features,) or not np.isfinite(values).all():
            raise CadError(
                f"typicality: {name!r} must have a number for each of {n_features} features"
            )
    if (typical.low < 0).any() or (typical.high < 0).any():
        raise CadError("typicality: a deviation below or above the median is negative")
    for group, limits_of_group in typical.limits.items():
        numbers = np.array(limits_of_group, dtype=float)
        has_all_limits = numbers.shape == (_LIMITS_OF_GROUP,)
        if not has_all_limits or not (numbers > 0).all() or np.isinf(numbers).any():
            raise CadError(f"typicality: the limits of {group!r} are not four positive numbers")


def _check_preparation(preparation: Preparation, features: int) -> None:
    """Raise an error for steps before the learner that no training fits.

    ``features`` is the number of features of the model.
    """
    if preparation.scale is not None:
        landmarks = preparation.scale.landmarks
        if landmarks.shape != (_NYUL_LANDMARKS,) or not (np.diff(landmarks) > 0).all():
            raise CadError("preparation: Nyul landmarks are not eleven numbers that increase")
    harmoniser = preparation.harmoniser
    if harmoniser is None:
        return
    sites = len(harmoniser.sites_)
    arrays = {
        "mean": (harmoniser.mean_, (features,)),
        "spread": (harmoniser.spread_, (features,)),
        "medians": (preparation.medians, (features,)),
        "shift": (harmoniser.shift_, (sites, features)),
        "scale": (harmoniser.scale_, (sites, features)),
    }
    for name, (values, shape) in arrays.items():
        if values is None or values.shape != shape or not np.isfinite(values).all():
            raise CadError(f"preparation: {name!r} of the site effects must have shape {shape}")
    # A row is divided by both, so none of their numbers may be 0.
    for name in ("spread", "scale"):
        if not (arrays[name][0] > 0).all():
            raise CadError(
                f"preparation: {name!r} of the site effects has a number that is not > 0"
            )


def _check_provenance(provenance: dict[str, list[Any]] | None) -> None:
    """Raise an error for an entry that does not say how regions of the training were measured.

    An entry lists the words that occurred, or the lowest and the highest number.
    """
    for name, usual in (provenance or {}).items():
        are_words = all(isinstance(value, str) for value in usual)
        # In Python a truth value is an int, too.
        are_numbers = all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in usual
        )
        are_lowest_and_highest = are_numbers and len(usual) == 2
        if not usual or not (are_words or are_lowest_and_highest):
            raise CadError(f"provenance: {name!r} is neither a list of words nor two numbers")
