"""Recalibrate a model's probabilities to a site by an intercept and a slope (docs/methods.md 8)."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from cad.base.errors import CadError
from cad.base.files import JsonObject
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.metrics import CLIP
from cad.learning.logistic import fit_logistic

LEAST = 30
"""Least number of men with histology: nothing is fitted to fewer men."""
INTERCEPT_SD = 1.0
"""Standard deviation of the normal prior of the intercept, whose mean is 0."""
SLOPE_SD = 0.35
"""Standard deviation of the normal prior of the slope, whose mean is 1."""


@dataclass(frozen=True)
class Recalibration:
    """Hold a recalibration of log-odds: the new log-odds are ``intercept + slope * old``."""

    intercept: float
    slope: float

    def probability(self, q: np.ndarray) -> np.ndarray:
        """Return the recalibrated probabilities for the probabilities ``q``, in the same shape.

        NaN stays NaN.
        """
        log_odds = logit(np.clip(np.asarray(q, float), CLIP, 1 - CLIP))
        recalibrated: np.ndarray = expit(self.intercept + self.slope * log_odds)
        return recalibrated


def recalibration(
    truth: np.ndarray, q: np.ndarray, men: np.ndarray, least: int = LEAST
) -> Recalibration:
    """Fit the recalibration of a model's log-odds to a site's regions, or to its men.

    A row is a region or a man. The priors are normal: intercept ~ N(0, 1) and slope ~ N(1, .35),
    where the second number is the standard deviation.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1 malignant, 0 benign; NaN where unknown.
    q : ndarray, shape (n,)
        The model's probability; NaN where the model gives none.
    men : ndarray, shape (n,)
        The man of every row.
    least : int
        Least number of men who have truth and probability.

    Returns
    -------
    Recalibration
        Intercept and slope of the new log-odds, ``intercept + slope * old``. The slope is above 0.

    Raises
    ------
    CadError
        For fewer men than ``least``, and for rows of one class only. Also if the fitted slope is
        not above 0, that is, if rows of higher probability are less often malignant.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> q = rng.uniform(0.05, 0.95, 200)
    >>> truth = (rng.random(200) < q).astype(float)
    >>> fitted = recalibration(truth, q, np.arange(200).astype(str))
    >>> bool(abs(fitted.intercept) < 0.5), bool(0.6 < fitted.slope < 1.4)
    (True, True)
    """
    y, p, men_of_rows = _rows_with_both(truth, q, men)
    men_count = len(np.unique(men_of_rows))
    if men_count < least:
        raise CadError(
            f"{men_count} men with histology and a probability, {least} are needed to recalibrate",
            hint="wait for more histology; the model stays as it is",
        )
    if y.min() == y.max():
        raise CadError(
            f"all {len(y)} are {'malignant' if y[0] else 'benign'} by histology: nothing to "
            "recalibrate with",
            hint="wait for histology of the other kind; the model stays as it is",
        )
    log_odds = logit(np.clip(p, CLIP, 1 - CLIP))
    intercept, slope = fit_logistic(
        np.column_stack([np.ones(len(p)), log_odds]),
        y,
        mean=np.array([0.0, 1.0]),
        precision=np.array([INTERCEPT_SD, SLOPE_SD]) ** -2.0,
    )
    if slope <= 0:
        raise CadError(
            f"the model ranks these {men_count} men the wrong way (slope {slope:.2f}): "
            "it is no model here",
            hint="check histology and outlines, or train on the site's own men",
        )
    return Recalibration(intercept=float(intercept), slope=float(slope))


def before_and_after(truth: np.ndarray, q: np.ndarray, men: np.ndarray) -> JsonObject:
    """Return the calibration of probabilities before and after a recalibration.

    The recalibrated probability of a row comes from a fit without the row's man.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1 or 0 by histology, NaN where unknown.
    q : ndarray, shape (n,)
        The model's probabilities; NaN where the model gives none.
    men : ndarray, shape (n,)
        The man of every row.

    Returns
    -------
    dict
        ``men``, ``n`` and ``positive`` are the numbers of men, rows and malignant rows. ``before``
        and ``after`` each hold a calibration intercept, a slope and a Brier score.

    Examples
    --------
    The probabilities are too high everywhere:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> q = rng.uniform(0.05, 0.95, 300)
    >>> truth = (rng.random(300) < q**2).astype(float)
    >>> measured = before_and_after(truth, q, np.arange(300))
    >>> measured["after"]["brier"] < measured["before"]["brier"]
    True
    """
    y, p, men_of_rows = _rows_with_both(truth, q, men)
    recalibrated = np.empty(len(p))
    for man in np.unique(men_of_rows):
        of_others = men_of_rows != man
        # A site with just LEAST men has one man fewer in each of these fits.
        fit = recalibration(y[of_others], p[of_others], men_of_rows[of_others], least=LEAST - 1)
        recalibrated[~of_others] = fit.probability(p[~of_others])
    calibration: JsonObject = {
        "men": len(np.unique(men_of_rows)),
        "n": len(y),
        "positive": int(y.sum()),
    }
    for name, values in (("before", p), ("after", recalibrated)):
        calibration[name] = {
            "intercept": metrics.calibration_intercept(y, values),
            "slope": metrics.calibration_slope(y, values),
            "brier": metrics.brier(y, values),
        }
    return calibration


def _rows_with_both(
    truth: np.ndarray, q: np.ndarray, men: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return truth, probability and man of the rows that have both truth and probability."""
    has_both = np.isfinite(truth) & np.isfinite(q)
    return truth[has_both], q[has_both], np.asarray(men)[has_both]
