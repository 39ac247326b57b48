"""The whole validation loop when labels say nothing about images (docs/methods.md 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike

from cad.errors import CadError
from cad.evaluation.folds.crossval import out_of_fold
from cad.evaluation.folds.labellings import SharedFolds
from cad.evaluation.measures.metrics import auc, consensus_truth
from cad.files import JsonObject

SCHEMES = ("between", "within")
SIGNIFICANT = 0.05


def permute_between(groups: ArrayLike, rng: np.random.Generator) -> np.ndarray:
    """Exchange labels between patients, and return whose labels each row receives.

    The patients' blocks are laid end to end in random patient order, rotated by a random number of
    ROIs and cut at the original ROI counts, so neighbours stay neighbours.

    Parameters
    ----------
    groups : array, shape (n,)
        The patient of every row.
    rng : Generator

    Returns
    -------
    ndarray of int, shape (n,)
        A permutation of the rows.
    """
    code = np.unique(np.asarray(groups), return_inverse=True)[1]
    order = np.argsort(code, kind="stable")
    blocks = np.split(order, np.cumsum(np.bincount(code))[:-1])
    # Shuffling rows would break up labels that come together in a patient, and narrow the null.
    line = np.concatenate([blocks[i] for i in rng.permutation(len(blocks))])
    source = np.empty(len(code), dtype=int)
    # Without the rotation a patient at the start could only receive whole first blocks.
    source[order] = np.roll(line, int(rng.integers(len(line))))
    return source


def permute_within(groups: ArrayLike, rng: np.random.Generator) -> np.ndarray:
    """Shuffle labels among the ROIs of each patient, and return whose labels each row receives.

    Parameters
    ----------
    groups : array, shape (n,)
        The patient of every row.
    rng : Generator

    Returns
    -------
    ndarray of int, shape (n,)
        A permutation of the rows.
    """
    code = np.unique(np.asarray(groups), return_inverse=True)[1]
    source = np.arange(len(code))
    for patient in range(int(code.max()) + 1):
        rows = np.flatnonzero(code == patient)
        source[rows] = rng.permutation(rows)
    return source


_PERMUTE: dict[str, Callable[[ArrayLike, np.random.Generator], np.ndarray]] = {
    "between": permute_between,
    "within": permute_within,
}


@dataclass(frozen=True)
class NullScheme:
    """Hold what permuted labels gave under one scheme.

    Parameters
    ----------
    aucs : ndarray, shape (n,)
        NaN where the loop failed.
    failed : int
        How many did.
    p : float
        (1 + b) / (1 + n) with b permutations at or above the observed AUC; a permutation whose
        loop failed counts as one.
    lower, upper : float
        The central 95 % of the null.
    mean : float
        Of the null.
    evidence : str
        A sentence.
    """

    aucs: np.ndarray
    failed: int
    p: float
    lower: float
    upper: float
    mean: float
    evidence: str


@dataclass(frozen=True)
class PermutationNull:
    """Hold the AUC of the whole validation loop, observed and under permuted labels.

    Parameters
    ----------
    observed : float
        AUC with the true labels.
    n : int
        Permutations of each scheme.
    against : str
        ``histology`` or ``labels``.
    schemes : dict of str to NullScheme
        ``between`` and ``within``.
    """

    observed: float
    n: int
    against: str
    schemes: dict[str, NullScheme]

    def as_dict(self) -> JsonObject:
        """Return the form of ``metrics.json``, the schemes beside the other keys."""
        common = {"observed": self.observed, "n": self.n, "against": self.against}
        return {**common, **{name: asdict(part) for name, part in self.schemes.items()}}


def permutation_null(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    truth: ArrayLike,
    *,
    groups: ArrayLike,
    n: int,
    eta: ArrayLike | None = None,
    patients: ArrayLike | None = None,
    observed: float | None = None,
    schemes: tuple[str, ...] = SCHEMES,
    seed: int = 0,
    n_jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> PermutationNull:
    """Run the whole loop under permuted labels, everything in it fitted anew each time.

    Each ROI's label, uncertainty and truth travel as one tuple; features and patients stay.

    Parameters
    ----------
    estimator, X, y, groups, eta, patients
        As in :func:`~cad.evaluation.folds.crossval.out_of_fold`; labels move between ``patients``.
    truth : array, shape (n_rois,)
        What the AUC is measured against: 1, 0 or NaN; the labels above .5 where all are NaN.
    n : int
        Permutations of each scheme.
    observed : float, optional
        AUC with the true labels, where it is known already.
    schemes : tuple of str
        ``between`` and ``within``.
    seed, n_jobs : int
        Permutation k is the same whatever ``n`` and ``n_jobs``.
    progress : callable, optional
        Called with (permutations as good as done, permutations in all).

    Raises
    ------
    CadError
        For an unknown scheme, n < 1, truth of one class only, or no AUC with the true labels.
    """
    unknown = [scheme for scheme in schemes if scheme not in _PERMUTE]
    if unknown or n < 1:
        raise CadError(f"permutation schemes are {', '.join(SCHEMES)} and n >= 1: {schemes}, {n}")
    labels, classes = np.asarray(y, dtype=float), np.asarray(truth, dtype=float)
    against = "histology" if np.isfinite(classes).any() else "labels"
    if against == "labels":
        # No histology: what the learner is told is then all that an AUC can be measured against.
        classes = consensus_truth(labels)[0]
    if not ((classes == 1).any() and (classes == 0).any()):
        raise CadError("the truth has one class only: there is no AUC to permute")
    spread = None if eta is None else np.broadcast_to(np.asarray(eta, float), labels.shape)
    group = np.asarray(groups)
    owner = group if patients is None else np.asarray(patients)
    loop = _Loop(estimator, X, labels, classes, group, spread, owner)
    observed = loop.auc(np.arange(len(labels))) if observed is None else observed
    if not np.isfinite(observed):
        raise CadError("the validation gives no AUC with the true labels: nothing to compare")
    sources = [
        # A stream of its own for each permutation: k is the same whatever n, order and processes.
        _PERMUTE[scheme](owner, np.random.default_rng([seed, number, k]))
        for number, scheme in enumerate(schemes)
        for k in range(n)
    ]
    aucs: list[float] = []
    for done, values in loop.aucs(np.array(sources), n_jobs):
        aucs += values
        if progress is not None:
            progress(done, len(sources))
    rows = np.reshape(aucs, (len(schemes), n))
    results = {scheme: _scheme(observed, row) for scheme, row in zip(schemes, rows, strict=True)}
    return PermutationNull(observed, n, against, results)


@dataclass(frozen=True)
class _Loop:
    """Run the leave-one-out loop with everything fixed but the order of the labels."""

    estimator: Any
    X: Any
    y: np.ndarray
    truth: np.ndarray
    groups: np.ndarray
    eta: np.ndarray | None
    patients: np.ndarray

    def auc(self, source: np.ndarray) -> float:
        """Return the loop's AUC when row i has the labels of row ``source[i]``; NaN on failure."""
        try:
            result = out_of_fold(
                self.estimator,
                self.X,
                self.y[source],
                groups=self.groups,
                eta=None if self.eta is None else self.eta[source],
                patients=self.patients,
            )
        except CadError:
            return float("nan")
        return self._auc(result.probability, result.decision, source)

    def aucs(self, sources: np.ndarray, n_jobs: int) -> Iterator[tuple[int, list[float]]]:
        """Yield how many permutations are as good as done, and the AUCs that are new."""
        patients = np.asarray(self.patients).astype(str)
        # None where a step looks at labels, or fits otherwise share nothing.
        shared = SharedFolds.of(self.estimator, self.X, self.y, np.asarray(self.groups), patients)
        if shared is None:
            work = [delayed(self.auc)(source) for source in sources]
            values = Parallel(n_jobs=n_jobs, return_as="generator")(work)
            yield from ((done, [value]) for done, value in enumerate(values, start=1))
            return
        etas, begin = None if self.eta is None else self.eta[sources], 0
        for done, (probability, decision) in shared.scores(self.y[sources], etas, n_jobs):
            part = sources[begin : begin + len(probability)]
            begin += len(part)
            yield done, [self._auc(*row) for row in zip(probability, decision, part, strict=True)]

    def _auc(self, probability: np.ndarray, decision: np.ndarray, source: np.ndarray) -> float:
        truth = self.truth[source]
        # An AUC needs an order only, which a learner without probabilities has as well.
        score = decision if np.isnan(probability).all() else probability
        usable = np.isfinite(score) & np.isfinite(truth)
        return auc(truth[usable], score[usable])


def _scheme(observed: float, aucs: np.ndarray) -> NullScheme:
    usable = aucs[np.isfinite(aucs)]
    failed = len(aucs) - len(usable)
    # A loop that failed counts against: the true labels might have failed there, too.
    p = (1 + int(np.sum(usable >= observed)) + failed) / (1 + len(aucs))
    lower, upper = np.quantile(usable, [0.025, 0.975]) if len(usable) else (np.nan, np.nan)
    evidence = "evidence" if p < SIGNIFICANT else "no evidence"
    return NullScheme(
        aucs=aucs,
        failed=failed,
        p=p,
        lower=float(lower),
        upper=float(upper),
        mean=float(usable.mean()) if len(usable) else float("nan"),
        evidence=f"{evidence} that images tell malignant from benign (p = {p:.3g})",
    )
