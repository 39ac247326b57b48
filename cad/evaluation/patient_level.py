"""The patient, not only the region: the probability of any clinically significant cancer.

Regions of one patient depend on each other, so that 1 - prod(1 - q) is too high. Instead

    logit P(any) = a + b logit(largest q of the patient's regions),

a and b fitted on patients with histology, b with a prior around 1 (docs/methods.md 8). The order of
patients is that of their largest probability and needs no fit; AUROC and average precision are made
on it, calibration on probabilities whose a and b come from the other patients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from cad.errors import CadError
from cad.evaluation import weighted
from cad.evaluation.intervals import Interval, bootstrap, clustered_auc
from cad.evaluation.logistic import fit_logistic
from cad.evaluation.metrics import CLIP

FEW = 5  # patients of each class, below which nothing is fitted
SLOPE_SD = 0.35  # of the prior of b around 1


@dataclass(frozen=True)
class PatientModel:
    """Turn the largest region probability into the patient's.

    Parameters
    ----------
    intercept, slope : float
        a and b.
    patients, positive : int
        Fitted on, and those with a malignant region.
    """

    intercept: float
    slope: float
    patients: int
    positive: int

    def probability(self, largest: np.ndarray) -> np.ndarray:
        """Return P(any malignant region), shape (n,), from largest probabilities; NaN stays NaN."""
        q = np.clip(np.asarray(largest, dtype=float), CLIP, 1 - CLIP)
        mapped: np.ndarray = expit(self.intercept + self.slope * logit(q))
        return mapped


@dataclass(frozen=True)
class PatientTable:
    """Hold one value per patient.

    Parameters
    ----------
    patients : ndarray of str, shape (n,)
        In sorted order.
    largest : ndarray, shape (n,)
        Largest probability of the patient's regions; NaN without any.
    truth : ndarray, shape (n,)
        1 with a malignant region; 0 where all regions are benign by histology; NaN otherwise.
    """

    patients: np.ndarray
    largest: np.ndarray
    truth: np.ndarray


@dataclass(frozen=True)
class PatientLevel:
    """Hold what predictions are worth per patient.

    Parameters
    ----------
    n, positive, unknown : int
        Patients with truth and probability; the malignant; those without the one or the other.
    auc, average_precision : Interval
        On the largest region probability: the challenge measures of the field.
    calibration_intercept, calibration_slope, brier : Interval
        Of ``probability``.
    patients, probability : ndarray, shape (all patients,)
        By a and b of the other patients; where the truth is unknown, of all patients; NaN without
        a model.
    model : PatientModel or None
        Of all patients, for new ones.
    note : str
        Why there is no model.
    """

    n: int
    positive: int
    unknown: int
    auc: Interval
    average_precision: Interval
    calibration_intercept: Interval
    calibration_slope: Interval
    brier: Interval
    patients: np.ndarray
    probability: np.ndarray
    model: PatientModel | None
    note: str


def patient_table(truth: np.ndarray, q: np.ndarray, patients: np.ndarray) -> PatientTable:
    """Return every patient's truth and largest probability.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1, 0 or NaN per region.
    q : ndarray, shape (n,)
        Probability per region; NaN where there is none.
    patients : ndarray, shape (n,)
        The patient of every region.
    """
    names, code = np.unique(np.asarray(patients).astype(str), return_inverse=True)
    largest, any_malignant = np.full(len(names), -np.inf), np.zeros(len(names))
    np.maximum.at(largest, code, np.where(np.isfinite(q), q, -np.inf))
    np.maximum.at(any_malignant, code, (truth == 1).astype(float))
    open_regions = np.bincount(code, weights=np.isnan(truth), minlength=len(names)) > 0
    known = (any_malignant == 1) | ~open_regions
    return PatientTable(
        names,
        np.where(np.isfinite(largest), largest, np.nan),
        np.where(known, any_malignant, np.nan),
    )


def fit_patients(table: PatientTable) -> PatientModel:
    """Fit a and b on the patients whose truth and probability are known.

    Raises
    ------
    CadError
        For fewer than 5 patients of a class.
    """
    use = np.isfinite(table.truth) & np.isfinite(table.largest)
    y, z = table.truth[use], logit(np.clip(table.largest[use], CLIP, 1 - CLIP))
    positive = int(y.sum())
    if min(positive, len(y) - positive) < FEW:
        raise CadError(
            f"{positive} patients with a malignant region and {len(y) - positive} with benign ones "
            f"only: a probability per patient needs {FEW} of each"
        )
    design = np.column_stack([np.ones(len(y)), z - z.mean()])
    a, b = fit_logistic(design, y, mean=np.r_[0.0, 1.0], precision=np.r_[1e-4, SLOPE_SD**-2])
    return PatientModel(float(a - b * z.mean()), float(b), len(y), positive)


def patient_level(
    truth: np.ndarray,
    q: np.ndarray,
    patients: np.ndarray,
    *,
    bootstraps: int = 1000,
    seed: int = 0,
) -> PatientLevel | None:
    """Give every patient a probability and measure it; None where no patient's truth is known.

    Parameters
    ----------
    truth, q, patients : ndarray, shape (n,)
        As in :func:`patient_table`.
    bootstraps, seed : int
        Patient resamples for the intervals of everything but the AUC, and their seed.
    """
    table = patient_table(truth, q, patients)
    known = np.isfinite(table.truth) & np.isfinite(table.largest)
    if not known.any():
        return None
    model, note = None, ""
    probability = np.full(len(known), np.nan)
    try:
        model = fit_patients(table)
        probability = _out_of_fold(table, model, known)
    except CadError as error:
        note = str(error)
    y, largest, p = table.truth[known], table.largest[known], probability[known]
    found = _intervals(y, largest, p, bootstraps, seed)
    return PatientLevel(
        n=len(y),
        positive=int(y.sum()),
        unknown=int((~known).sum()),
        auc=clustered_auc(y, largest, np.arange(len(y))),
        **found,
        patients=table.patients,
        probability=probability,
        model=model,
        note=note,
    )


def _out_of_fold(table: PatientTable, model: PatientModel, known: np.ndarray) -> np.ndarray:
    probability = model.probability(table.largest)
    for i in np.flatnonzero(known):
        rest = np.where(np.arange(len(known)) == i, np.nan, table.truth)
        other = fit_patients(PatientTable(table.patients, table.largest, rest))
        probability[i] = other.probability(table.largest[i : i + 1])[0]
    return probability


def _intervals(
    y: np.ndarray, largest: np.ndarray, p: np.ndarray, bootstraps: int, seed: int
) -> dict[str, Interval]:
    of_probability = {
        "calibration_intercept": weighted.calibration_intercept,
        "calibration_slope": weighted.calibration_slope,
        "brier": weighted.brier,
    }

    def values(weight: np.ndarray) -> np.ndarray:
        found = [weighted.average_precision(y == 1, largest, weight)]
        for measure in of_probability.values():
            known = np.isfinite(p).all()
            found.append(measure(y, p, weight) if known else np.full(len(weight), np.nan))
        return np.stack(found, axis=1)

    ends = bootstrap(values, np.arange(len(y)), bootstraps, seed)
    method = f"{bootstraps} patient resamples"
    point = values(np.ones((1, len(y))))[0]
    return {
        name: Interval(float(value), float(low), float(high), method)
        for name, value, (low, high) in zip(
            ("average_precision", *of_probability), point, ends, strict=True
        )
    }
