"""Repeat the whole validation under labels that have no relation to the images (docs/methods.md 6).

A permutation changes the labels but not the features. So everything that a fold computes from
features alone is computed once per fold, and not once per permutation: imputation, ranks, scaling,
and the kernel if the learner can fit many labellings with one kernel. Steps that use labels are
fitted for each permutation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn import preprocessing
from sklearn.base import clone
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from cad.base.errors import CadError
from cad.base.files import JsonObject
from cad.learning.evaluation.folds import ask, crossval
from cad.learning.evaluation.measures.centring import base_log_odds, spread_of_log_odds, stretches
from cad.learning.evaluation.measures.metrics import auc, consensus_truth
from cad.learning.learners.scaling import ClippedScaler, RankScaler

# Steps that never use labels. They are listed here because scikit-learn's tags say only whether a
# step requires labels, and not whether it uses labels.
LABEL_FREE = (
    SimpleImputer,
    VarianceThreshold,
    ClippedScaler,
    RankScaler,
    preprocessing.QuantileTransformer,
    preprocessing.PowerTransformer,
    preprocessing.StandardScaler,
    preprocessing.RobustScaler,
    preprocessing.MinMaxScaler,
    preprocessing.MaxAbsScaler,
)
# Number of labellings that are fitted together. A labelling gives every row a permuted label, and
# needs memory for one value per row.
_TOGETHER = 500


@dataclass(frozen=True)
class SharedFolds:
    """Predict left-out groups under many labellings of the same rows.

    A labelling is one set of labels for the rows. The steps of a fold that do not use labels are
    fitted once for all labellings.

    Parameters
    ----------
    front : Pipeline or None
        Unfitted steps that never use labels.
    learner : estimator
        Unfitted.
    X : array or DataFrame, shape (n, d), or callable
        Features. A callable gets the indices of the training rows and returns the features of all
        rows.
    groups, patients : ndarray, shape (n,)
        Group of every row, and patient of every row. Rows of one group are left out together.
    """

    front: Pipeline | None
    learner: Any
    X: Any
    groups: np.ndarray
    patients: np.ndarray

    @classmethod
    def of(
        cls, estimator: Any, X: Any, y: np.ndarray, groups: np.ndarray, patients: np.ndarray
    ) -> SharedFolds | None:
        """Return the shared folds of an estimator, or None if labellings cannot share work.

        A labelling is one set of labels for the rows. Labellings share the fits of all steps before
        the learner. They can share these fits only in a pipeline whose steps before the last do not
        use labels. They cannot share them if a label is missing, because the training rows then
        differ between labellings.

        Parameters
        ----------
        estimator : estimator or pipeline
            Unfitted.
        X : array or DataFrame, shape (n, d), or callable
            Features, as for the class.
        y : ndarray, shape (n,)
            Labels; NaN where missing.
        groups, patients : ndarray, shape (n,)
            Left-out group and patient of every row.
        """
        # A pipeline with a cache (``memory``) stores the fits of its steps by itself.
        if np.isnan(y).any() or not isinstance(estimator, Pipeline) or estimator.memory is not None:
            return None
        front_steps = estimator.steps[:-1]
        _, learner = estimator.steps[-1]
        active_steps = []
        for _, step in front_steps:
            if step is not None and step != "passthrough":
                active_steps.append(step)
        # The class of a step must be one of LABEL_FREE itself, because a subclass may use labels.
        uses_no_labels = all(type(step) in LABEL_FREE for step in active_steps)
        if not uses_no_labels or not hasattr(learner, "fit"):
            return None
        return cls(
            front=Pipeline(front_steps) if active_steps else None,
            learner=learner,
            X=X,
            groups=groups.astype(str),
            patients=patients,
        )

    def scores(
        self, labels: np.ndarray, etas: np.ndarray | None, n_jobs: int
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Fit and predict all folds under several labellings; yield the progress and the scores.

        The labellings are done in parts. After each fold the progress is yielded. The scores of a
        part are yielded with the last fold of the part.

        Parameters
        ----------
        labels, etas : ndarray, shape (k, n)
            k labellings of the n rows in [0, 1], and the uncertainties of these labels.
        n_jobs : int
            Parallel folds, which change no result.

        Yields
        ------
        done : int
            Progress: the folds done, converted to a number of labellings.
        scores : ndarray, shape (k_part, n)
            Scores of one part of the labellings that can be compared between folds
            (:func:`~cad.learning.evaluation.folds.crossval.centred_scores`), NaN where a fold
            failed. Before the last fold of the part, ``k_part`` is 0.
        """
        group_names = np.unique(self.groups)
        for begin in range(0, len(labels), _TOGETHER):
            of_part = slice(begin, begin + _TOGETHER)
            y = labels[of_part]
            eta = None if etas is None else etas[of_part]
            # For each labelling, the fit to all rows is a good start for the fits that leave one
            # patient out.
            starts = self._starts(y, eta)
            calls = (delayed(self._fold)(group_name, y, eta, starts) for group_name in group_names)
            folds: list[_LabelledFold] = []
            for fold in Parallel(n_jobs=n_jobs, return_as="generator")(calls):
                folds.append(fold)
                # A fold of all labellings of this part counts as a share of these labellings.
                n_done = begin + len(y) * len(folds) // len(group_names)
                # An AUC needs the rows of all folds, so scores are yielded with the last fold only.
                scores_of_part = np.empty((0, y.shape[1]))
                if len(folds) == len(group_names):
                    scores_of_part = _comparable_scores(folds, y.shape)
                yield n_done, scores_of_part

    def _starts(self, labels: np.ndarray, etas: np.ndarray | None) -> np.ndarray | None:
        """Return coefficients of fits to all rows, from which the fits of the folds start.

        The result is None if the learner cannot use them.
        """
        if not hasattr(self.learner, "predict_labellings"):
            return None
        with crossval.blas_threads().limit(limits=1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                all_rows = np.arange(len(self.groups))
                X, new_row = self._features(all_rows, all_rows[:1])
                # Only the coefficients are used, and not the prediction for the single new row.
                predict = clone(self.learner).predict_labellings
                coefficients: np.ndarray
                _, _, coefficients = predict(X, labels, new_row, etas)
            except crossval.FIT_ERRORS:
                # The folds then fit every labelling by itself.
                return None
        return coefficients

    def _features(self, train: np.ndarray, test: np.ndarray) -> tuple[Any, Any]:
        """Return training rows and left-out rows, transformed by the steps before the learner."""
        table = self.X(train) if callable(self.X) else self.X
        X = _safe_indexing(table, train)
        new = _safe_indexing(table, test)
        if self.front is None:
            return X, new
        front = clone(self.front)
        return front.fit_transform(X), front.transform(new)

    def _fold(
        self, name: str, labels: np.ndarray, etas: np.ndarray | None, starts: np.ndarray | None
    ) -> _LabelledFold:
        """Return the predictions of one fold under each of k labellings (rows of ``labels``).

        ``name`` is the group, such as a patient, that the fold leaves out. A model is fitted to the
        rows of all other groups once for each labelling.
        """
        test = np.flatnonzero(self.groups == name)
        train = np.flatnonzero(self.groups != name)
        y = labels[:, train]
        eta = None if etas is None else etas[:, train]
        # Its arrays are filled in below; they stay NaN where a fit fails.
        fold = _LabelledFold.empty(test, len(y))
        fold.base[:] = [base_log_odds(labelling) for labelling in y]
        with crossval.blas_threads().limit(limits=1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                train_features, test_features = self._features(train, test)
                if starts is not None:
                    predict_labellings = clone(self.learner).predict_labellings
                    # The training rows are predicted, too, because their spread is needed.
                    test_and_training = np.vstack(
                        [np.asarray(test_features), np.asarray(train_features)]
                    )
                    probability, decision, _ = predict_labellings(
                        train_features, y, test_and_training, eta, starts[:, train]
                    )
                    fold.probability[:] = probability[:, : len(test)]
                    fold.decision[:] = decision[:, : len(test)]
                    # The columns after those of the left-out rows are the training rows.
                    in_training = probability[:, len(test) :]
                    fold.spread[:] = [spread_of_log_odds(q) for q in in_training]
                    return fold
            except crossval.FIT_ERRORS:
                return fold
            # A learner that cannot fit many labellings at once is fitted to one after the other.
            for number, labelling in enumerate(y):
                learner = clone(self.learner)
                spread = None if eta is None else eta[number]
                keywords = crossval.fit_keywords(learner, spread, self.patients[train])
                with suppress(*crossval.FIT_ERRORS):
                    learner.fit(train_features, labelling, **keywords)
                    fold.probability[number] = ask.positive_probability(learner, test_features)
                    fold.decision[number] = ask.decision_value(learner, test_features)
                    fold.base[number] = crossval.base_of(learner, train_features, labelling)
                    fold.spread[number] = crossval.spread_in_training(learner, train_features)
        return fold


@dataclass(frozen=True)
class _LabelledFold:
    """Hold one fold's predictions under k labellings; NaN where a fit failed.

    Parameters
    ----------
    rows : ndarray of int
        Left-out rows.
    probability, decision : ndarray, shape (k, len(rows))
        Probability of malignancy and decision value of the left-out rows.
    base, spread : ndarray, shape (k,)
        Base and spread of each labelling's model, as in
        :class:`cad.learning.evaluation.folds.crossval.Fold`.
    """

    rows: np.ndarray
    probability: np.ndarray
    decision: np.ndarray
    base: np.ndarray
    spread: np.ndarray

    @classmethod
    def empty(cls, rows: np.ndarray, labellings: int) -> _LabelledFold:
        """Return a fold without predictions."""
        shape = (labellings, len(rows))
        return cls(
            rows=rows,
            probability=np.full(shape, np.nan),
            decision=np.full(shape, np.nan),
            base=np.full(labellings, np.nan),
            spread=np.full(labellings, np.nan),
        )


def _comparable_scores(folds: list[_LabelledFold], shape: tuple[int, ...]) -> np.ndarray:
    """Return scores that can be compared between folds, a row for each labelling.

    They are those of :func:`cad.learning.evaluation.folds.crossval.put_together`, but for a number
    that is added to all scores.
    """
    spreads = np.array([fold.spread for fold in folds])
    scores = np.full(shape, np.nan)
    for labelling in range(shape[0]):
        factors = stretches(spreads[:, labelling])
        for fold, factor in zip(folds, factors, strict=True):
            scores[labelling, fold.rows] = crossval.centred_scores(
                fold.probability[labelling],
                fold.decision[labelling],
                fold.base[labelling],
                stretch=factor,
            )
    return scores


SCHEMES = ("between", "within")
# A smaller p-value counts as evidence.
SIGNIFICANT = 0.05


def permute_between(groups: ArrayLike, rng: np.random.Generator) -> np.ndarray:
    """Return a permutation that exchanges labels between patients.

    The rows are put in one sequence, patient after patient in random order. The sequence is rotated
    by a random number of rows, and cut again into parts of the patients' original numbers of rows.
    So the labels of one patient mostly stay together in one patient.

    Parameters
    ----------
    groups : array, shape (n,)
        The patient of every row.
    rng : Generator
        Source of the random draws.

    Returns
    -------
    ndarray of int, shape (n,)
        For every row the row whose label it receives.

    Examples
    --------
    >>> import numpy as np
    >>> order = permute_between(["a", "a", "b", "b"], np.random.default_rng(0))
    >>> sorted(order.tolist())
    [0, 1, 2, 3]
    """
    patient_of_row = np.unique(np.asarray(groups), return_inverse=True)[1]
    rows_by_patient = np.argsort(patient_of_row, kind="stable")
    ends_of_patients = np.cumsum(np.bincount(patient_of_row))[:-1]
    rows_of_patients = np.split(rows_by_patient, ends_of_patients)
    # Patients are put in random order, each with all his rows. A random order of single rows would
    # separate the labels of one patient, which are alike, and the null distribution would be too
    # narrow.
    order_of_patients = rng.permutation(len(rows_of_patients))
    shuffled_rows = np.concatenate([rows_of_patients[patient] for patient in order_of_patients])
    source = np.empty(len(patient_of_row), dtype=int)
    # Without the rotation, the first patient would always get the first rows of another patient.
    source[rows_by_patient] = np.roll(shuffled_rows, int(rng.integers(len(shuffled_rows))))
    return source


def permute_within(groups: ArrayLike, rng: np.random.Generator) -> np.ndarray:
    """Return a permutation that shuffles labels among the regions of each patient.

    Parameters
    ----------
    groups : array, shape (n,)
        The patient of every row.
    rng : Generator
        Source of the random draws.

    Returns
    -------
    ndarray of int, shape (n,)
        For every row the row whose label it receives.

    Examples
    --------
    >>> import numpy as np
    >>> order = permute_within(["a", "a", "b", "b"], np.random.default_rng(0))
    >>> set(order[:2].tolist()), set(order[2:].tolist())
    ({0, 1}, {2, 3})
    """
    patient_of_row = np.unique(np.asarray(groups), return_inverse=True)[1]
    source = np.arange(len(patient_of_row))
    for patient in range(int(patient_of_row.max()) + 1):
        rows = np.flatnonzero(patient_of_row == patient)
        source[rows] = rng.permutation(rows)
    return source


_PERMUTE: dict[str, Callable[[ArrayLike, np.random.Generator], np.ndarray]] = {
    "between": permute_between,
    "within": permute_within,
}


@dataclass(frozen=True)
class NullScheme:
    """Hold the AUCs of a validation whose labels are permuted, by one scheme of permutation.

    Parameters
    ----------
    aucs : ndarray, shape (n,)
        AUC with each permutation; NaN if the validation failed.
    failed : int
        Number of permutations whose validation failed.
    p : float
        p-value (1 + b) / (1 + n) of n permutations, b of which have an AUC at or above the observed
        AUC or failed.
    lower, upper : float
        Ends of the interval that has the central 95 % of ``aucs``.
    mean : float
        Mean of ``aucs``.
    evidence : str
        The outcome of the test, in one sentence.
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
    """Hold the AUC of the whole validation, with the true labels and with permuted labels.

    Parameters
    ----------
    observed : float
        AUC with the true labels.
    n : int
        Number of permutations of each scheme.
    against : str
        Truth that the AUC is measured against: ``histology``, or ``labels`` if there is no
        histology.
    schemes : dict of str to NullScheme
        Results by the name of the scheme: labels are permuted ``between`` patients, or ``within``
        each patient.
    """

    observed: float
    n: int
    against: str
    schemes: dict[str, NullScheme]

    def as_dict(self) -> JsonObject:
        """Return the outcome of the test for ``metrics.json``.

        The result has the fields of this object, and in place of ``schemes`` a key for each scheme
        of permutation.
        """
        common = {"observed": self.observed, "n": self.n, "against": self.against}
        return {**common, **{name: asdict(scheme) for name, scheme in self.schemes.items()}}


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
    """Repeat the whole validation with permuted labels; return the AUC of each repetition.

    Everything that uses labels is fitted again in each repetition.

    A permutation gives a region the label, the uncertainty and the truth of another region.
    Features and patients stay as they are.

    Parameters
    ----------
    estimator, X, y, groups, eta, patients
        Learner, features, labels, left-out group of every row, uncertainty of labels and patient of
        every row, as in :func:`~cad.learning.evaluation.folds.crossval.out_of_fold`.
    truth : array, shape (n_rois,)
        Truth that the AUC is measured against: 1, 0 or NaN. If all are NaN, the regions with labels
        above .5 are the positives.
    n : int
        Number of permutations of each scheme.
    observed : float, optional
        AUC with the true labels; it is computed if not given.
    schemes : tuple of str
        Names of the schemes: ``between`` moves labels between patients, ``within`` shuffles them
        among the regions of each patient.
    seed, n_jobs : int
        Seed of the permutations, and number of parallel processes. Permutation k does not depend on
        ``n`` or ``n_jobs``.
    progress : callable, optional
        Function that is called with two numbers: the permutations done and all permutations.

    Returns
    -------
    PermutationNull
        The AUC with the true labels, and for each scheme the results of its ``n`` permutations.
        ``against`` says whether the AUC is measured against histology or against labels.

    Raises
    ------
    CadError
        For an unknown scheme, for n < 1, for a truth of one class, and if there is no AUC with the
        true labels.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 2))
    >>> y = (X[:, 0] + rng.normal(size=40) > 0).astype(float)
    >>> patients = np.arange(40) // 2
    >>> null = permutation_null(LogisticRegression(), X, y, y, groups=patients // 5, n=3)
    >>> null.n, sorted(null.schemes)
    (3, ['between', 'within'])
    """
    if n < 1 or any(scheme not in _PERMUTE for scheme in schemes):
        raise CadError(f"permutation schemes are {', '.join(SCHEMES)} and n >= 1: {schemes}, {n}")
    labels = np.asarray(y, dtype=float)
    true_classes = np.asarray(truth, dtype=float)
    against = "histology" if np.isfinite(true_classes).any() else "labels"
    if against == "labels":
        # Without histology the AUC can only be measured against the labels.
        true_classes, _ = consensus_truth(labels)
    if not ((true_classes == 1).any() and (true_classes == 0).any()):
        raise CadError("the truth has one class only: there is no AUC to permute")
    uncertainty = None if eta is None else np.broadcast_to(np.asarray(eta, float), labels.shape)
    group = np.asarray(groups)
    patient_of_row = group if patients is None else np.asarray(patients)
    validate_labelling = partial(
        _loop,
        estimator=estimator,
        X=X,
        y=labels,
        groups=group,
        eta=uncertainty,
        patients=patient_of_row,
    )
    # The labelling in which each row has its own label gives the AUC with the true labels.
    if observed is None:
        (observed,) = _aucs_of_labellings(
            validate_labelling(np.arange(len(labels))), true_classes[None]
        )
    if not np.isfinite(observed):
        raise CadError("the validation gives no AUC with the true labels: nothing to compare")
    # Each permutation has a random generator of its own. So permutation k does not depend on n, or
    # on the order or number of processes.
    permutations = []
    for number, scheme in enumerate(schemes):
        for permutation in range(n):
            rng = np.random.default_rng([seed, number, permutation])
            permutations.append(_PERMUTE[scheme](patient_of_row, rng))
    sources = np.array(permutations)
    # ``shared`` is None if a step of the pipeline before the learner uses labels, or if fits under
    # different labels cannot share work for another reason.
    shared = SharedFolds.of(estimator, X, labels, group, patient_of_row.astype(str))
    batches: Iterable[tuple[int, np.ndarray]]
    if shared is None:
        scores_in_turn = Parallel(n_jobs=n_jobs, return_as="generator")(
            map(delayed(validate_labelling), sources)
        )
        batches = enumerate(scores_in_turn, start=1)
    else:
        batches = shared.scores(
            labels[sources], None if uncertainty is None else uncertainty[sources], n_jobs
        )
    # The scores come in the order of ``sources``, some permutations at a time.
    aucs: list[float] = []
    for n_done, scores in batches:
        sources_of_batch = sources[len(aucs) : len(aucs) + len(scores)]
        aucs += _aucs_of_labellings(scores, true_classes[sources_of_batch])
        if progress is not None:
            progress(n_done, len(sources))
    aucs_of_schemes = np.reshape(aucs, (len(schemes), n))
    results_by_scheme = {}
    for scheme, scheme_aucs in zip(schemes, aucs_of_schemes, strict=True):
        results_by_scheme[scheme] = _scheme(observed, scheme_aucs)
    return PermutationNull(observed=observed, n=n, against=against, schemes=results_by_scheme)


def _loop(
    source: np.ndarray,
    estimator: Any,
    X: Any,
    y: np.ndarray,
    groups: np.ndarray,
    eta: np.ndarray | None,
    patients: np.ndarray,
) -> np.ndarray:
    """Validate the estimator with row i having the label of row ``source[i]``; return the scores.

    They are the out-of-fold scores of the rows, shape (1, n), and NaN if the validation fails.
    """
    spread = None if eta is None else eta[source]
    try:
        predictions = crossval.out_of_fold(
            estimator, X, y[source], groups=groups, eta=spread, patients=patients
        )
    except CadError:
        # The permutation counts as failed; others may still succeed.
        return np.full((1, len(y)), np.nan)
    return predictions.centred[None]


def _aucs_of_labellings(scores: np.ndarray, truth: np.ndarray) -> list[float]:
    """Return the AUC of every labelling, which is one set of labels for the same rows.

    ``scores`` and ``truth`` have a line for each labelling. The AUC is NaN if the validation with
    this labelling failed.
    """
    areas = []
    for score, classes in zip(scores, truth, strict=True):
        usable = np.isfinite(score) & np.isfinite(classes)
        areas.append(auc(classes[usable], score[usable]))
    return areas


def _scheme(observed: float, aucs: np.ndarray) -> NullScheme:
    """Compare the AUC with the true labels with the AUCs of one scheme's permutations."""
    known_aucs = aucs[np.isfinite(aucs)]
    failed = len(aucs) - len(known_aucs)
    # The true labels count as one of the permutations. A failed permutation counts as if its AUC
    # were at or above the observed AUC. So failures can only make the p-value larger.
    p = (1 + int(np.sum(known_aucs >= observed)) + failed) / (1 + len(aucs))
    lower, upper = np.quantile(known_aucs, [0.025, 0.975]) if len(known_aucs) else (np.nan, np.nan)
    evidence = "evidence" if p < SIGNIFICANT else "no evidence"
    return NullScheme(
        aucs=aucs,
        failed=failed,
        p=p,
        lower=float(lower),
        upper=float(upper),
        mean=float(known_aucs.mean()) if len(known_aucs) else float("nan"),
        evidence=f"{evidence} that images tell malignant from benign (p = {p:.3g})",
    )
