"""The man, not only the region: the probability of any clinically significant cancer.

Regions of one man depend on each other, so that 1 - prod(1 - q) is too high. Instead

    logit P(any) = a + b z(q) + c category + d age + e log PSA + f log PSA density,

z(q) the highest region's log-odds and the log of the mean odds of the rest, category the log-odds
of the readers' highest value (docs/methods.md 8). Priors keep the weight of the highest region near
1 and the others small, so that twenty men can be fitted. What is not known of a man stands at the
training's mean, and an indicator says so where training men lacked it too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from cad.errors import CadError
from cad.evaluation.decisions.operating import OperatingChoice
from cad.evaluation.measures import metrics
from cad.evaluation.measures.intervals import Interval, bootstrap_intervals, clustered_auc
from cad.files import JsonObject
from cad.logistic import fit_logistic

FEW = 5  # men of each class, below which nothing is fitted
PRIORS = {
    "highest": (1.0, 0.35),
    "rest": (0.0, 0.35),
    "category": (0.0, 1.0),
    "age": (0.0, 0.5),
    "psa": (0.0, 1.0),
    "density": (0.0, 1.0),
}
"""Normal prior of each weight, mean and standard deviation: per unit of log-odds, per decade of
age, per unit of the logarithm of PSA (ng/mL) and of PSA density (ng/mL2)."""
WORDS = {
    "highest": "regions",
    "rest": "other regions",
    "category": "readers' scores",
    "age": "age",
    "psa": "PSA",
    "density": "PSA density",
}
UNMEASURED = Interval(np.nan, np.nan, np.nan, "no man has truth and probability")
ABSENT_SD = 0.5  # of an indicator's weight around 0
WHOLE, BLOCKS = 200, 20  # men up to whom each is left out alone, and the parts of more


@dataclass(frozen=True)
class ManModel:
    """Compute a man's probability of clinically significant cancer from what is known of him.

    Parameters
    ----------
    names : tuple of str
        Columns of :data:`PRIORS` that are used.
    centre, weight, absent : tuple of float
        Of each column: its mean in training, its weight, and the weight that stands in where the
        value is not known.
    intercept : float
        Log-odds of a man at the means.
    men, positive : int
        Number of men in training, and of those with significant cancer.
    """

    names: tuple[str, ...]
    centre: tuple[float, ...]
    weight: tuple[float, ...]
    absent: tuple[float, ...]
    intercept: float
    men: int
    positive: int

    def log_odds(self, table: pd.DataFrame) -> np.ndarray:
        """Return the log-odds of clinically significant cancer of every man, shape (n,).

        NaN for a man without a scored region, where the model uses regions.

        Parameters
        ----------
        table : DataFrame, shape (n, ...)
            A row per man, with columns of :data:`PRIORS`; absent columns and NaN are not known.
        """
        total = np.full(len(table), self.intercept)
        for name, centre, weight, absent in zip(
            self.names, self.centre, self.weight, self.absent, strict=True
        ):
            x = column(table, name)
            # Unknown is the mean man, moved by what not knowing meant among the training men.
            total += np.where(np.isfinite(x), weight * (x - centre), absent)
        if "highest" in self.names:
            # A man without a scored region is not a mean man: nobody has looked at his images.
            total[np.isnan(column(table, "highest"))] = np.nan
        return total

    def probability(self, table: pd.DataFrame) -> np.ndarray:
        """Return every man's probability of any cancer of ISUP grade 2 or more, shape (n,).

        Parameters
        ----------
        table : DataFrame, shape (n, ...)
            As for :meth:`log_odds`.
        """
        p: np.ndarray = expit(self.log_odds(table))
        return p

    def unknown(self, table: pd.DataFrame) -> list[str]:
        """Name, for each man, the values that the model uses and that are missing.

        Parameters
        ----------
        table : DataFrame, shape (n, ...)
            As for :meth:`log_odds`.

        Returns
        -------
        list of str
            One text per man, such as ``age, PSA``; empty where nothing is missing.
        """
        used = [name for name in self.names if name != "rest"]
        lacking = np.column_stack([np.isnan(column(table, name)) for name in used])
        return [", ".join(WORDS[used[i]] for i in np.flatnonzero(row)) for row in lacking]

    def recalibrated(self, intercept: float, slope: float) -> ManModel:
        """Return a new model whose log-odds are ``intercept + slope`` times those of this one."""
        return replace(
            self,
            weight=tuple(slope * value for value in self.weight),
            absent=tuple(slope * value for value in self.absent),
            intercept=intercept + slope * self.intercept,
        )


@dataclass(frozen=True)
class PatientLevel:
    """Hold how good the probabilities of men are.

    Parameters
    ----------
    n, positive, unknown : int
        Men with truth and probability; those of them with significant cancer; men who lack one of
        the two.
    auc, average_precision : Interval
        The measures of the field's challenges. Out of fold, each man is ranked among the others by
        a model that did not see him.
    calibration_intercept, calibration_slope, brier : Interval
        Of the probabilities.
    note : str
        Why there is no model, or why no threshold reaches the aim.
    model : ManModel or None
        In a validation: the model fitted to all men.
    operating_point : OperatingChoice or None
        Thresholds, where the settings have an aim for men.
    promised_share : float or None
        In a prediction: the share of men that the thresholds decided in training.
    decisions : dict
        How many men are decided, and how often rightly.
    """

    n: int = 0
    positive: int = 0
    unknown: int = 0
    auc: Interval = UNMEASURED
    average_precision: Interval = UNMEASURED
    calibration_intercept: Interval = UNMEASURED
    calibration_slope: Interval = UNMEASURED
    brier: Interval = UNMEASURED
    note: str = ""
    model: ManModel | None = None
    operating_point: OperatingChoice | None = None
    promised_share: float | None = None
    decisions: JsonObject = field(default_factory=dict)


def column(table: pd.DataFrame, name: str) -> np.ndarray:
    """Return a column of a table as floats, shape (n,); all NaN where the table has none.

    Parameters
    ----------
    table : DataFrame
        A row per man.
    name : str
        Name of the column.
    """
    if name not in table:
        return np.full(len(table), np.nan)
    values: np.ndarray = table[name].to_numpy(float)
    return values


def region_columns(q: np.ndarray, patients: np.ndarray) -> pd.DataFrame:
    """Return the columns of :data:`PRIORS` that come from regions, ``highest`` and ``rest``.

    Parameters
    ----------
    q : ndarray, shape (n,)
        Probability of each region; NaN where there is none.
    patients : ndarray of str, shape (n,)
        The man of each region.

    Returns
    -------
    DataFrame, shape (n_men, 2)
        Men in sorted order. ``highest``: log-odds of the man's highest region; ``rest``: log of the
        mean odds of his other regions. NaN without a scored region, and without another one.
    """
    names, code = np.unique(np.asarray(patients).astype(str), return_inverse=True)
    p = np.clip(np.asarray(q, float), metrics.CLIP, 1 - metrics.CLIP)
    known = np.isfinite(p)
    highest = np.full(len(names), -np.inf)
    np.maximum.at(highest, code[known], p[known])
    count = np.bincount(code[known], minlength=len(names))
    odds = np.bincount(code[known], weights=(p / (1 - p))[known], minlength=len(names))
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.log(np.maximum(odds - highest / (1 - highest), metrics.CLIP) / (count - 1))
        table = {
            "highest": np.where(count > 0, logit(np.maximum(highest, metrics.CLIP)), np.nan),
            "rest": np.where(count > 1, rest, np.nan),
        }
    return pd.DataFrame(table, index=pd.Index(names, name="participant_id"))


def truth_of_men(truth: np.ndarray, patients: np.ndarray) -> np.ndarray:
    """Return each man's truth from that of his regions.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1 or 0 by histology of a region, NaN where unknown.
    patients : ndarray, shape (n,)
        The man of every region.

    Returns
    -------
    ndarray, shape (n_men,)
        1 where a region is malignant, 0 where all are known to be benign, else NaN; men in the
        order of ``numpy.unique(patients)``.
    """
    names, code = np.unique(np.asarray(patients).astype(str), return_inverse=True)
    positive = np.bincount(code, weights=truth == 1, minlength=len(names)) > 0
    unknown = np.bincount(code, weights=np.isnan(truth), minlength=len(names)) > 0
    return np.where(positive, 1.0, np.where(unknown, np.nan, 0.0))


def fit_men(table: pd.DataFrame, truth: np.ndarray, few: int = FEW) -> ManModel:
    """Fit the model of men to those whose truth is known.

    Parameters
    ----------
    table : DataFrame, shape (n, ...)
        A row per man with columns of :data:`PRIORS`, all optional, NaN where unknown.
    truth : ndarray, shape (n,)
        1 with clinically significant cancer, 0 without, NaN where unknown.

    Raises
    ------
    CadError
        For fewer than ``few`` men of a class, and for a table without information.
    """
    use = np.isfinite(truth)
    if "highest" in table:
        use &= table["highest"].notna().to_numpy()
    y, positive = truth[use], int(truth[use].sum())
    if min(positive, len(y) - positive) < few:
        raise CadError(
            f"a probability by man takes {few} men with and {few} without significant cancer, "
            f"there are {positive} and {len(y) - positive}"
        )
    rows = table.loc[use]
    # What is known of a handful only would be a weight of the prior with the look of a fit.
    names = tuple(name for name in PRIORS if np.isfinite(column(rows, name)).sum() >= 2 * FEW)
    if not names:
        raise CadError("nothing is known of these men", hint=f"columns are {', '.join(PRIORS)}")
    X = np.column_stack([column(rows, name) for name in names])
    centre, missing = np.nanmean(X, axis=0), np.isnan(X)
    # Where nobody lacked it, an indicator is a column of zeros.
    partly = missing.any(axis=0)
    design = np.column_stack(
        [np.ones(len(y)), np.where(missing, 0.0, X - centre), missing[:, partly]]
    )
    mean = [0.0, *(PRIORS[name][0] for name in names), *np.zeros(partly.sum())]
    # The intercept is the prevalence, of which nothing is known beforehand.
    spread = [100.0, *(PRIORS[name][1] for name in names), *np.full(partly.sum(), ABSENT_SD)]
    beta = fit_logistic(design, y, mean=np.array(mean), precision=np.array(spread) ** -2)
    absent = np.zeros(len(names))
    absent[partly] = beta[1 + len(names) :]
    weight = beta[1 : 1 + len(names)]
    return ManModel(
        names, tuple(centre.tolist()), tuple(weight.tolist()), tuple(absent.tolist()),
        float(beta[0]), len(y), positive,
    )  # fmt: skip


def out_of_fold_men(
    table: pd.DataFrame, truth: np.ndarray, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return every man's probability and rank by models that did not see him.

    Parameters
    ----------
    table, truth
        As for :func:`fit_men`.
    seed : int
        Each man is left out alone, up to 200 men; more men are dealt into 20 parts by this seed.

    Returns
    -------
    probability : ndarray, shape (n,)
        Men without truth have the probability by the model of all men with truth.
    rank : ndarray, shape (n,)
        Share of the other men with truth to whom the same model gives less; NaN without truth.

    Raises
    ------
    CadError
        As :func:`fit_men`.
    """
    known = np.flatnonzero(np.isfinite(truth))
    probability, rank = fit_men(table, truth).probability(table), np.full(len(truth), np.nan)
    order = np.random.default_rng(seed).permutation(known) if len(known) > WHOLE else known
    for left in np.array_split(order, min(len(known), BLOCKS if len(known) > WHOLE else WHOLE)):
        rest = truth.copy()
        rest[left] = np.nan
        # One less of each class: the man who is left out may be one of the least number.
        odds = fit_men(table, rest, FEW - 1).log_odds(table)
        probability[left] = expit(odds[left])
        rank[left] = metrics.ranked(odds[left], odds[np.isfinite(rest)])
    return probability, rank


def measure_men(
    truth: np.ndarray,
    probability: np.ndarray,
    rank: np.ndarray | None = None,
    *,
    bootstraps: int = 1000,
    seed: int = 0,
) -> PatientLevel:
    """Measure how good men's probabilities are; a result with n = 0 where no man has truth and one.

    Parameters
    ----------
    truth, probability : ndarray, shape (n,)
        Each man's truth (1 or 0) and probability; NaN where unknown.
    rank : ndarray, shape (n,), optional
        Orders men for AUC and average precision; when not given, the probability does.
    bootstraps, seed : int
        Resamples of men for the intervals of everything but the AUC, and their seed.
    """
    known = np.isfinite(truth) & np.isfinite(probability)
    if not known.any():
        return PatientLevel()
    y, p = truth[known], probability[known]
    order = p if rank is None else rank[known]

    def values(weight: np.ndarray) -> np.ndarray:
        return np.stack(
            [
                metrics.average_precision(y == 1, order, weight=weight),
                metrics.calibration_intercept(y, p, weight=weight),
                metrics.calibration_slope(y, p, weight=weight),
                metrics.brier(y, p, weight=weight),
            ],
            axis=1,
        )

    average, intercept, slope, brier = bootstrap_intervals(
        values, np.arange(len(y)), bootstraps, seed
    )
    auc = clustered_auc(y, order, np.arange(len(y)))
    return PatientLevel(
        len(y), int(y.sum()), int((~known).sum()), auc, average, intercept, slope, brier
    )
