"""Model a man's probability by one logistic regression, for comparison with the joint model.

Let q be the probability of a region. If a man's regions were independent, his probability of any
cancer would be 1 - prod(1 - q). But regions of one man depend on each other, so that this number is
too high. The model is instead

    logit P(any) = a + b z(q) + c category + d age + e log PSA + f log PSA density,

where a to f are the fitted weights. z(q) stands for two numbers: the log-odds of the region with
the highest probability, and the log of the mean odds of the man's other regions. ``category`` is
the log-odds of the readers' mean for the region that they find most suspicious (docs/methods.md 8).
Priors keep the weight of the highest region near 1 and the other weights small, so that the model
can be fitted to twenty men. An unknown value of a man is replaced by the mean of the training men.
If some training men lacked the value, too, its being unknown gets a weight of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from cad.base.errors import CadError
from cad.base.terms.beside import table_beside
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.centring import ranked
from cad.learning.logistic import fit_logistic

FEW = 5  # least number of men with cancer, and of men without; with fewer no model is fitted
_TABLES = table_beside(__file__)
PRIORS: dict[str, tuple[float, float]] = _TABLES["priors"]
"""Mean and standard deviation of the normal prior of each weight. Weights are per unit of log-odds,
decade of age, and unit of the logarithm of PSA (ng/mL) and PSA density (ng/mL2).
"""
WORDS: dict[str, str] = _TABLES["words"]
# The weight of a value's being unknown has a normal prior with mean 0 and this standard deviation.
ABSENT_SD = 0.5
# A cohort of up to WHOLE men is validated by leaving out one man at a time. The men of a larger
# cohort are divided into BLOCKS groups, and one group at a time is left out.
WHOLE = 200
BLOCKS = 20


@dataclass(frozen=True)
class ManModel:
    """Compute a man's probability of clinically significant cancer from the known facts about him.

    The model is a logistic regression on the log-odds of his regions, the readers' scores, age and
    PSA.

    Parameters
    ----------
    names : tuple of str
        Columns that are used, out of ``highest`` (log-odds of the man's region of highest
        probability), ``rest`` (log-odds of his other regions), ``category`` (readers' scores),
        ``age``, ``psa`` and ``density`` (PSA density).
    centre, weight, absent : tuple of float
        For each column: its mean in training, its weight, and the number that is added to the
        log-odds where the value is not known.
    intercept : float
        Log-odds of a man whose values are all at their means.
    men, positive : int
        Number of men in training, and number of men with significant cancer among them.
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

        The result is NaN for a man without a scored region, where the model uses regions.

        Parameters
        ----------
        table : DataFrame, shape (n, ...)
            A row per man. Columns, all optional, NaN where unknown: ``highest`` and ``rest``
            (:func:`region_columns`), ``category`` (log-odds of the readers' mean for the most
            suspicious region), ``age`` in decades, ``psa`` and ``density`` as natural logarithms.
        """
        log_odds = np.full(len(table), self.intercept)
        for name, centre, weight, absent in zip(
            self.names, self.centre, self.weight, self.absent, strict=True
        ):
            values = column(table, name)
            # An unknown value counts as the mean of training. The weight of its being unknown is
            # added.
            log_odds += np.where(np.isfinite(values), weight * (values - centre), absent)
        if "highest" in self.names:
            # A man without a scored region gets no probability, because his images have not been
            # judged. To take him for a man with average regions would be wrong.
            log_odds[np.isnan(column(table, "highest"))] = np.nan
        return log_odds

    def probability(self, table: pd.DataFrame) -> np.ndarray:
        """Return every man's probability of any cancer of ISUP grade 2 or more, shape (n,).

        Parameters
        ----------
        table : DataFrame, shape (n, ...)
            A row per man, with the columns that :meth:`log_odds` lists.
        """
        return np.asarray(expit(self.log_odds(table)))

    def unknown(self, table: pd.DataFrame) -> list[str]:
        """Return for each man the values that the model uses and that are missing for him.

        Parameters
        ----------
        table : DataFrame, shape (n, ...)
            A row per man, with the columns that :meth:`log_odds` lists.

        Returns
        -------
        list of str
            One text per man, such as ``age, PSA``; empty where nothing is missing.
        """
        # A man with one region has no ``rest``, and nothing is missing for him.
        names = [name for name in self.names if name != "rest"]
        is_missing = np.column_stack([np.isnan(column(table, name)) for name in names])
        texts = []
        for of_man in is_missing:
            missing = [WORDS[names[number]] for number in np.flatnonzero(of_man)]
            texts.append(", ".join(missing))
        return texts

    def recalibrated(self, intercept: float, slope: float) -> ManModel:
        """Return a new model whose log-odds are a linear function of this model's log-odds.

        Parameters
        ----------
        intercept, slope : float
            The new log-odds are intercept + slope * z, with z this model's log-odds.
        """
        return replace(
            self,
            weight=tuple(slope * value for value in self.weight),
            absent=tuple(slope * value for value in self.absent),
            intercept=intercept + slope * self.intercept,
        )


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
    return np.asarray(table[name], dtype=float)


def region_columns(q: np.ndarray, patients: np.ndarray) -> pd.DataFrame:
    """Summarise the probabilities of each man's regions in two columns, ``highest`` and ``rest``.

    Parameters
    ----------
    q : ndarray, shape (n,)
        Probability of each region; NaN where a region has none.
    patients : ndarray of str, shape (n,)
        The man of each region.

    Returns
    -------
    DataFrame, shape (n_men, 2)
        Men in sorted order. ``highest``: log-odds of the man's region of highest probability;
        ``rest``: log of the mean odds of his other regions. ``highest`` is NaN for a man without a
        scored region, and ``rest`` is NaN for a man with fewer than two scored regions.

    Examples
    --------
    The highest region has odds of 4, and the other two regions have mean odds of 1:

    >>> import numpy as np
    >>> q = np.array([0.8, 0.5, 0.5, 0.2])
    >>> region_columns(q, np.array(["a", "a", "a", "b"])).round(3).to_dict("list")
    {'highest': [1.386, -1.386], 'rest': [0.0, nan]}
    """
    names, man_of_region = np.unique(np.asarray(patients).astype(str), return_inverse=True)
    n_men = len(names)
    # Clipped, so that odds and log-odds are finite.
    p = np.clip(np.asarray(q, float), metrics.CLIP, 1 - metrics.CLIP)
    scored = np.isfinite(p)
    man = man_of_region[scored]

    # For each man: his highest probability, his number of scored regions, the sum of their odds.
    highest = np.full(n_men, -np.inf)
    np.maximum.at(highest, man, p[scored])
    n_scored = np.bincount(man, minlength=n_men)
    sum_of_odds = np.bincount(man, weights=(p / (1 - p))[scored], minlength=n_men)

    # Men without a scored region, or with one, give NaN or infinite numbers, which are not used.
    with np.errstate(divide="ignore", invalid="ignore"):
        odds_of_highest = highest / (1 - highest)
        # Rounding may make the difference 0 or negative, which has no logarithm.
        odds_of_others = np.maximum(sum_of_odds - odds_of_highest, metrics.CLIP)
        log_odds_of_others = np.log(odds_of_others / (n_scored - 1))
        table = {
            "highest": np.where(n_scored > 0, logit(np.maximum(highest, metrics.CLIP)), np.nan),
            "rest": np.where(n_scored > 1, log_odds_of_others, np.nan),
        }
    return pd.DataFrame(table, index=pd.Index(names, name="participant_id"))


def fit_men(table: pd.DataFrame, truth: np.ndarray, least: int = FEW) -> ManModel:
    """Fit the model of a man's probability of significant cancer to the men with known truth.

    Parameters
    ----------
    table : DataFrame, shape (n, ...)
        A row per man, with the columns that :meth:`ManModel.log_odds` lists.
    truth : ndarray, shape (n,)
        1 with clinically significant cancer, 0 without, NaN where unknown.
    least : int
        Least number of men with cancer, and of men without.

    Returns
    -------
    ManModel
        The fitted model. It uses those columns that are known for at least ten of the men with a
        known truth.

    Raises
    ------
    CadError
        For fewer than ``least`` men of a class, and for a table in which no column is known for
        enough men.

    Examples
    --------
    Six men have cancer, and their highest region is suspicious; six men have none:

    >>> import numpy as np
    >>> table = pd.DataFrame({"highest": [2.0, 1.0, 1.5] * 2 + [-2.0, -1.0, -1.5] * 2})
    >>> truth = np.array([1.0] * 6 + [0.0] * 6)
    >>> p = fit_men(table, truth).probability(table)
    >>> bool(p[:6].min() > 0.5 > p[6:].max())
    True
    """
    usable = np.isfinite(truth)
    if "highest" in table:
        usable &= table["highest"].notna().to_numpy()
    y = truth[usable]
    positive = int(y.sum())
    if min(positive, len(y) - positive) < least:
        raise CadError(
            f"a probability by man takes {least} men with and {least} without significant cancer, "
            f"there are {positive} and {len(y) - positive}"
        )
    rows = table.loc[usable]
    # A column that is known for few men is left out. Its weight would come almost only from the
    # prior, but would look as if it had been learned from the men.
    often_known = []
    for name in PRIORS:
        if np.isfinite(column(rows, name)).sum() >= 2 * FEW:
            often_known.append(name)
    names = tuple(often_known)
    if not names:
        raise CadError("nothing is known of these men", hint=f"columns are {', '.join(PRIORS)}")

    # The columns of the regression: ones for the intercept, the values less their means, and who
    # lacks a value.
    X = np.column_stack([column(rows, name) for name in names])
    centre = np.nanmean(X, axis=0)
    missing = np.isnan(X)
    # For a column that some man lacks, a further column says who lacks it (1) and who does not (0).
    # For other columns that further column would be all zeros.
    with_gaps = missing.any(axis=0)
    design = np.column_stack(
        [np.ones(len(y)), np.where(missing, 0.0, X - centre), missing[:, with_gaps]]
    )

    # The prior of each weight. The intercept stands for the prevalence of cancer. Its prior is
    # wide, because nothing is assumed about the prevalence.
    prior_means = [0.0]
    prior_sds = [100.0]
    for name in names:
        prior_mean, prior_sd = PRIORS[name]
        prior_means.append(prior_mean)
        prior_sds.append(prior_sd)
    for _ in range(with_gaps.sum()):
        prior_means.append(0.0)
        prior_sds.append(ABSENT_SD)

    beta = fit_logistic(design, y, mean=np.array(prior_means), precision=np.array(prior_sds) ** -2)
    end_of_weights = 1 + len(names)
    absent = np.zeros(len(names))
    absent[with_gaps] = beta[end_of_weights:]
    weight = beta[1:end_of_weights]
    return ManModel(
        names=names,
        centre=tuple(centre.tolist()),
        weight=tuple(weight.tolist()),
        absent=tuple(absent.tolist()),
        intercept=float(beta[0]),
        men=len(y),
        positive=positive,
    )


def out_of_fold_men(
    table: pd.DataFrame, truth: np.ndarray, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return every man's probability and rank by models that were fitted without him.

    Parameters
    ----------
    table : DataFrame, shape (n, ...)
        A row per man, with the columns that :meth:`ManModel.log_odds` lists.
    truth : ndarray, shape (n,)
        1 with clinically significant cancer, 0 without, NaN where unknown.
    seed : int
        Seed of the random division. In a cohort of up to 200 men, each man is left out alone. More
        men are divided at random into 20 groups, and one group at a time is left out.

    Returns
    -------
    probability : ndarray, shape (n,)
        Probability of each man. A man without truth gets it from the model of all men with truth.
    rank : ndarray, shape (n,)
        The rank by the model that did not see the man: the share of the other men with truth who
        have a lower probability. NaN without truth.

    Raises
    ------
    CadError
        For too few men of a class, and for a table in which no column is known for enough men.

    Examples
    --------
    >>> import numpy as np
    >>> table = pd.DataFrame({"highest": [2.0, 1.0, 1.5] * 2 + [-2.0, -1.0, -1.5] * 2})
    >>> truth = np.array([1.0] * 6 + [0.0] * 6)
    >>> probability, rank = out_of_fold_men(table, truth)
    >>> bool(probability[:6].min() > 0.5 > probability[6:].max())
    True
    >>> bool(rank[:6].min() > rank[6:].max())
    True
    """
    with_truth = np.flatnonzero(np.isfinite(truth))
    probability = fit_men(table, truth).probability(table)
    rank = np.full(len(truth), np.nan)
    order = with_truth
    n_blocks = len(with_truth)
    if len(with_truth) > WHOLE:
        order = np.random.default_rng(seed).permutation(with_truth)
        n_blocks = BLOCKS
    for block in np.array_split(order, n_blocks):
        training_truth = truth.copy()
        training_truth[block] = np.nan
        # The whole table must have at least FEW men with cancer and FEW without. The training men
        # lack the man who is left out, so that one man fewer is allowed.
        log_odds = fit_men(table, training_truth, FEW - 1).log_odds(table)
        probability[block] = expit(log_odds[block])
        rank[block] = ranked(log_odds[block], log_odds[np.isfinite(training_truth)])
    return probability, rank
