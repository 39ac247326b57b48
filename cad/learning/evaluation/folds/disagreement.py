"""Test whether the readers' disagreement helps a learner.

The disagreement of a region's readers is their spread, a standard deviation. A learner that weighs
its use of the spread by inner folds gives it a weight whether it helps or not: if all spreads are
replaced by 0, two thirds of this weight remain (docs/methods.md 8). So the weight does not show
that the spread helps. A permutation can show it: the spreads are given to other regions at random.
If the loss does not rise, the learner makes no use of the disagreement.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from cad.learning.evaluation.folds.crossval import (
    FIT_ERRORS,
    blas_threads,
    deal_patients,
    fit_keywords,
)
from cad.learning.learners.base import cross_entropies

Array = NDArray[np.float64]

DRAWS = 20
"""Number of permutations of the spread."""
MOST_ROWS = 5000
"""With more labelled regions than this the test is not made, because its fits need matrices of all
pairs.
"""
# Number of folds of whole patients.
_FOLDS = 5


@dataclass(frozen=True)
class Disagreement:
    """Hold by how much the readers' spread helps a learner.

    All losses are two-sided Kullback-Leibler divergences from the readers' mean, summed over
    regions. The patients of the regions are left out in five folds.

    Parameters
    ----------
    n, patients : int
        Numbers of regions and patients.
    kl : float
        Loss if every region has the spread of its own readers.
    kl_permuted : float
        Loss if the spreads are permuted among the regions, averaged over the permutations.
    kl_without : float
        Loss if the learner gets no spread.
    gain, lower, upper : float
        Gain 1 - ``kl`` / ``kl_permuted`` in %, and its 95 % interval over patients.
    p : float
        Share of the permutations whose loss is at most ``kl``. The true order counts as one of the
        permutations.
    draws : int
        Number of permutations.
    """

    n: int
    patients: int
    kl: float
    kl_permuted: float
    kl_without: float
    gain: float
    lower: float
    upper: float
    p: float
    draws: int

    def sentence(self) -> str:
        """Return a sentence that says whether the readers' disagreement helps or harms the learner.

        The sentence may also say that this is not known.
        """
        verdict = "It is not known whether disagreement helps"
        if self.lower > 0:
            verdict = "Disagreement helps"
        if self.upper < 0:
            verdict = "Disagreement harms"
        # A positive gain means that the divergence falls. The sentence states the change of the
        # divergence, so the sign is reversed.
        change = f"{-self.gain:+.1f} % [{-self.upper:+.1f}, {-self.lower:+.1f}]"
        without = 100 * (self.kl / self.kl_without - 1)
        return (
            f"{verdict}: the divergence from the readers' mean changes by {change} against the "
            f"same disagreement dealt to other regions ({self.draws} draws), by {without:+.1f} % "
            "against none."
        )


def measure_disagreement(
    estimator: Any,
    X: Any,
    p: ArrayLike,
    spread: ArrayLike,
    *,
    patients: ArrayLike,
    draws: int = DRAWS,
    seed: int = 0,
) -> Disagreement | None:
    """Permute the readers' spread among regions and measure how much the learner's loss rises.

    In each of five folds of patients, scaling, kernels and the weights of the settings do not
    depend on the spread. They are computed only once for all permutations.

    Parameters
    ----------
    estimator : estimator or pipeline
        Unfitted learner with a method ``predict_spreads``, or pipeline that ends in one.
    X : array or DataFrame, shape (n, d), or callable
        Features. A callable gets the indices of the training rows and returns the features of all
        rows.
    p : array, shape (n,)
        Readers' mean in [0, 1]; NaN where nobody read.
    spread : array, shape (n,)
        Readers' standard deviation; 0 or NaN where there is none.
    patients : array, shape (n,)
        Patient of every row.
    draws : int
        Number of permutations.
    seed : int
        Seed of the folds and the permutations.

    Returns
    -------
    Disagreement or None
        None for a learner without ``predict_spreads``, and if a fold cannot be fitted. Also for
        fewer than ten labelled regions or five patients, for more than :data:`MOST_ROWS` regions,
        and for a spread that is the same everywhere.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import ProbabilisticSVC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> scores = np.round(4 / (1 + np.exp(-2 * X[:, :1] + rng.normal(size=(60, 3))))) / 4
    >>> learner = ProbabilisticSVC(eta0=0.05, scale="fixed")
    >>> told = measure_disagreement(learner, X, scores.mean(axis=1), scores.std(axis=1, ddof=1),
    ...     patients=np.arange(60) // 3)
    >>> told.draws, told.lower < told.gain < told.upper
    (20, True)
    """
    target = np.asarray(p, dtype=float)
    eta = np.nan_to_num(np.asarray(spread, dtype=float))
    labelled = np.flatnonzero(np.isfinite(target))
    patient_of_row = np.asarray(patients).astype(str)
    n_patients = len(np.unique(patient_of_row[labelled]))
    learner = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    if not hasattr(learner, "predict_spreads"):
        return None
    # Ten regions at least, and a patient for each fold.
    if not 10 <= len(labelled) <= MOST_ROWS or n_patients < _FOLDS:
        return None
    # If all spreads are equal, a permutation changes nothing.
    if np.ptp(eta[labelled]) == 0:
        return None
    rng = np.random.default_rng(seed)
    # First the true spreads, then the permuted ones, last no spread.
    spreads = np.zeros((draws + 2, len(target)))
    spreads[0] = eta
    for draw in range(1, draws + 1):
        spreads[draw, labelled] = eta[rng.permutation(labelled)]
    probability = np.full(spreads.shape, np.nan)
    fold_of_row = np.full(len(target), "", dtype=object)
    fold_of_row[labelled] = deal_patients(patient_of_row[labelled], _FOLDS, seed)
    for fold in np.unique(fold_of_row[labelled].astype(str)):
        test = labelled[fold_of_row[labelled] == fold]
        train = labelled[fold_of_row[labelled] != fold]
        try:
            probability[:, test] = _predicted_by_spread(
                estimator,
                X,
                p=target,
                spreads=spreads,
                owner=patient_of_row,
                train=train,
                test=test,
            )
        except FIT_ERRORS:
            return None
    return _weighed(target[labelled], probability[:, labelled], patient_of_row[labelled])


def _predicted_by_spread(
    estimator: Any,
    X: Any,
    p: Array,
    spreads: Array,
    owner: NDArray[Any],
    train: NDArray[np.intp],
    test: NDArray[np.intp],
) -> Array:
    """Return the probabilities of a fold's left-out rows, one row for each version of the spreads.

    The versions are the true spreads, permuted spreads, and no spread. ``spreads`` has a row for
    each version and a column for each region. ``train`` and ``test`` are the numbers of the
    training rows and of the left-out rows.
    """
    features = X(train) if callable(X) else X
    train_features = _safe_indexing(features, train)
    test_features = _safe_indexing(features, test)
    learner = estimator
    with blas_threads().limit(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(estimator, Pipeline):
            learner = estimator.steps[-1][1]
            front = clone(Pipeline(estimator.steps[:-1]))
            # Steps before the learner get no eta (None), because eta is the spread, which differs
            # between permutations, and these steps are fitted only once.
            keywords = fit_keywords(front, eta=None, groups=owner[train])
            train_features = front.fit_transform(train_features, p[train], **keywords)
            test_features = front.transform(test_features)
        predict: Callable[..., Array] = clone(learner).predict_spreads
        return predict(
            train_features, p[train], spreads[:, train], test_features, groups=owner[train]
        )


def _weighed(p: Array, probability: Array, owner: NDArray[Any]) -> Disagreement | None:
    """Return by how much the readers' spreads help, given the predictions with each version of
    them.

    ``probability`` has a line for each version: first the true spreads, then permutations of the
    spreads, last no spread. ``owner`` names the patient of each region. The result is None if a
    prediction is missing.
    """
    # Losses can be compared only if every version predicts all regions.
    if not np.isfinite(probability).all():
        return None
    # Cross-entropy minus the entropy of the readers' mean is the divergence.
    entropy = -(xlogy(p, p) + xlogy(1 - p, 1 - p))
    losses = np.array([cross_entropies(p, q) - entropy for q in probability])
    loss_of_version = losses.sum(axis=1)
    permuted_losses = losses[1:-1].mean(axis=0)
    patient_code = np.unique(owner, return_inverse=True)[1]
    patients = int(patient_code.max()) + 1
    # For each patient, ``saved`` is the loss with permuted spreads minus the loss with the true
    # spreads, and ``permuted`` is the loss with permuted spreads.
    saved = np.bincount(patient_code, permuted_losses - losses[0], patients)
    permuted = np.bincount(patient_code, permuted_losses, patients)
    ratio = float(saved.sum() / permuted.sum())
    # Linearised variance of a ratio of two sums over patients.
    residual = saved - ratio * permuted
    deviation_of_sum = float(np.sqrt(patients / (patients - 1) * (residual @ residual)))
    deviation = deviation_of_sum / float(permuted.sum())
    half_interval = float(student.ppf(0.975, patients - 1)) * deviation
    draws = len(losses) - 2
    as_low = loss_of_version[1:-1] <= loss_of_version[0]
    return Disagreement(
        n=len(p),
        patients=patients,
        kl=float(loss_of_version[0]),
        kl_permuted=float(permuted_losses.sum()),
        kl_without=float(loss_of_version[-1]),
        gain=100 * ratio,
        lower=100 * (ratio - half_interval),
        upper=100 * (ratio + half_interval),
        # The true order counts as one of the permutations.
        p=float((1 + as_low.sum()) / (draws + 1)),
        draws=draws,
    )
