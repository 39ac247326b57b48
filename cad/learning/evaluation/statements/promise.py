"""Warn if the data violate the assumptions of intervals, tests and calibration slopes."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cad.learning.joint_model import effective_number

# One warning is given if a single patient has more than the share _LARGEST_SHARE of all regions.
# Another warning is given if the rarer class (malignant or benign) has less than the share _RAREST
# of all regions. docs/probability.md has the measurements from which these limits follow.
_LARGEST_SHARE = 0.3
_RAREST = 0.05


def effective_patients(patients: ArrayLike) -> float:
    """Return the effective number of patients, (sum n_i)^2 / sum n_i^2.

    Patient i has n_i regions. The effective number is the number of patients if all have equally
    many regions, and less if a few patients have most of the regions.

    Parameters
    ----------
    patients : array, shape (n,)
        Patient of every region.

    Examples
    --------
    >>> effective_patients(["a", "b", "c"]), round(effective_patients(["a"] * 8 + ["b", "c"]), 2)
    (3.0, 1.52)
    """
    _, regions_of_patients = np.unique(np.asarray(patients).astype(str), return_counts=True)
    return effective_number(regions_of_patients)


def broken_promises(
    patients: ArrayLike,
    p: ArrayLike,
    truth: ArrayLike,
    grades: ArrayLike | None = None,
    comparison: pd.DataFrame | None = None,
) -> list[str]:
    """Return sentences on assumptions of a validation's intervals or tests that the data violate.

    The first sentence always states the number of patients. Each further sentence is a warning.

    Parameters
    ----------
    patients : array, shape (n,)
        Patient of every region.
    p, truth : array, shape (n,)
        Readers' mean in [0, 1] and histology (1, 0), NaN where not known. ``p`` is used only if no
        region has histology.
    grades : array, shape (n, readers), optional
        Every reader's probability, NaN where a reader did not read.
    comparison : DataFrame, optional
        Table that compares the learner with its rivals, the other learners on the same folds; one
        of them predicts a constant. There is a row for each learner (``learner``) and measure
        (``measure``); the learner itself comes first. ``lower`` is the lower end of the 95 %
        interval of the rival's measure minus the learner's measure.

    Examples
    --------
    >>> broken_promises(["a", "a", "b", "b"], [0.2, 0.8, 0.1, 0.9], [0, 1, 0, 1])[0]
    '2 patients, effectively 2.0 of equal size'
    """
    names, region_counts = np.unique(np.asarray(patients).astype(str), return_counts=True)
    sentences = [
        f"{len(names)} patients, effectively {effective_patients(patients):.1f} of equal size"
    ]
    largest_share = region_counts.max() / region_counts.sum()
    if largest_share > _LARGEST_SHARE:
        sentences.append(
            f"patient {names[region_counts.argmax()]} holds {largest_share:.0%} of the regions: "
            "95 % intervals cover .87 to .94"
        )
    is_malignant = np.asarray(truth, dtype=float)
    if not np.isfinite(is_malignant).any():
        # Without histology, the share of malignant regions is estimated from the readers' means.
        is_malignant = np.where(np.isnan(p), np.nan, np.asarray(p, dtype=float) >= 0.5)
    # Without histology and without readers' means nothing is known, and NaN gives no warning.
    prevalence = float(np.nanmean(is_malignant)) if np.isfinite(is_malignant).any() else np.nan
    if min(prevalence, 1 - prevalence) < _RAREST:
        sentences.append(
            f"{prevalence:.1%} of the regions are malignant: a test at 5 % errs in up to 12 %"
        )
    if region_counts.max() == 1:
        sentences.append("one region a patient: a patient's probability is that of one region")
    if grades is not None:
        grade_values = np.asarray(grades, dtype=float)
        two_answers = bool(np.isin(grade_values[np.isfinite(grade_values)], (0.0, 1.0)).all())
        # Labels of one reader, or of two answers, have no spread that could show another opinion.
        if grade_values.shape[1] == 1 or two_answers:
            scorer = "a scale of two answers" if two_answers else "one reader"
            sentences.append(
                f"labels of {scorer}: {_slopes(comparison)}what other readers would say of these "
                "regions is not measured"
            )
    if comparison is not None:
        is_constant = comparison["learner"] == "constant"
        constant_rows = comparison[is_constant & (comparison["measure"] == "kl")]
        # A constant has a larger divergence (kl) than a good learner, so the interval of their
        # difference lies above 0. An unknown interval (NaN) shows no difference.
        if len(constant_rows) and not constant_rows["lower"].iloc[0] > 0:
            sentences.append("the learner is no better than a constant beyond chance")
    return sentences


def _slopes(comparison: pd.DataFrame | None) -> str:
    """Return the learner's calibration slopes in words; empty if none is known."""
    if comparison is None or "value" not in comparison:
        return ""
    slope_rows = comparison[comparison["measure"] == "calibration_slope"]
    # The learner that was validated comes first in the table.
    validated_learner = comparison["learner"].iloc[0]
    slope_rows = slope_rows[slope_rows["learner"] == validated_learner].dropna(subset="value")
    if slope_rows.empty:
        return ""
    slope_texts = [f"{row.value:.2f} to {row.against}" for row in slope_rows.itertuples()]
    return f"the calibration slope here is {' and '.join(slope_texts)}; "
