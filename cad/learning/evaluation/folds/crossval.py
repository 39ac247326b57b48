"""Compute out-of-fold probabilities, by models that did not learn from the patient.

A fold is a patient (or site) who is left out, and the model that is fitted to the others. A learner
is an unfitted scikit-learn estimator or pipeline, which is cloned for every fold. ``eta`` and
``groups`` are passed to every ``fit`` that has a parameter of that name. Learners from soft labels
use ``eta``; estimators that divide patients inside the fold use ``groups``.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed
from joblib.externals.loky.backend.context import get_start_method
from joblib.parallel import get_active_backend
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn import get_config
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import ThreadpoolController

from cad.base.errors import CadError
from cad.learning.evaluation.folds.ask import decision_value, positive_probability
from cad.learning.evaluation.folds.unlabelled import labels_told
from cad.learning.evaluation.measures.centring import (
    base_log_odds,
    centred_log_odds,
    spread_of_log_odds,
    stretches,
)

Result = TypeVar("Result")
_UNVALIDATED = (
    "give more patients; what trains without validation is `validate.scheme: none` in a pipeline, "
    "and `cad table train` for a table"
)

# Seconds that a new process needs before its first piece of work, to load scikit-learn and the
# compiled functions.
START_SECONDS = 2.5
# Seconds by which the first piece of work in this process may take longer than the next ones,
# because it loads scikit-learn and the compiled functions.
FIRST_USE_SECONDS = 1.5


def each_piece(
    function: Callable[..., Result], pieces: Iterable[tuple[Any, ...]], n_jobs: int
) -> Iterator[Result]:
    """Call a function once for each piece of work; yield the results in the order of the pieces.

    Pieces are done one after the other in this process. If a piece takes so long that parallel
    processes would save more time than their start takes, the remaining pieces are given to
    parallel processes. If a run forks its processes, their start takes little time, and all pieces
    are given to parallel processes from the beginning. The results are the same.

    Parameters
    ----------
    function : callable
        Function that another process can import by its name.
    pieces : iterable of tuple
        The arguments of each call.
    n_jobs : int
        Number of processes, with joblib's meaning: -1 is one for each core.

    Yields
    ------
    object
        Result of ``function`` for the next piece.
    """
    pieces_left = list(pieces)
    # If joblib's loops run on a cluster, ``workers`` is the number of the cluster's cores, whatever
    # ``n_jobs`` is.
    workers = get_active_backend()[0].effective_n_jobs(n_jobs)
    loading_seconds = FIRST_USE_SECONDS
    # joblib has a start method only if a run forks its processes. No piece is then too short.
    seconds_per_piece = math.inf if get_start_method() else 0.0
    while pieces_left:
        processes = min(workers, len(pieces_left))
        seconds_saved = seconds_per_piece * len(pieces_left) * (1 - 1 / processes)
        if processes > 1 and seconds_saved > START_SECONDS:
            calls = (delayed(function)(*piece) for piece in pieces_left)
            yield from Parallel(n_jobs=n_jobs, return_as="generator")(calls)
            return
        start = time.perf_counter()
        result = function(*pieces_left.pop(0))
        seconds_per_piece = time.perf_counter() - start - loading_seconds
        yield result
        # Only the first piece has to load anything.
        loading_seconds = 0.0


@dataclass(frozen=True)
class Fold:
    """Hold one fold: its left-out rows, and the predictions for them by a model of the other rows.

    Parameters
    ----------
    name : str
        The left-out patient or site.
    rows : ndarray of int
        Left-out rows.
    n_train : int
        Number of labelled rows that the fold was fitted on.
    n_unlabelled : int
        Number of rows without a label that a semi-supervised learner used.
    probability, decision : ndarray, shape (len(rows),)
        Probability of malignancy and decision value of the left-out rows; NaN if the fold failed or
        if the estimator has no such output.
    selected : dict
        Hyper-parameters that nested validation chose; empty without nested validation.
    features : list of int or None
        Numbers of the columns that feature selection kept; None if no column was dropped.
    warnings : list of str
        Messages of the warnings of the fit, each message once.
    error : str
        Reason why the fold failed; empty if it did not fail.
    estimator : object or None
        The fitted estimator; None unless :func:`out_of_fold` was called with ``keep_estimators``.
    base : float
        Base of the fold: the log-odds of the mean label of the training rows. A region whose
        features tell nothing would get these log-odds from the fold's model. For a learner without
        probabilities the base is the mean decision value of the training rows.
    spread : float
        Standard deviation of the model's log-odds over the training rows. For a learner without
        probabilities it is that of the decision values.
    """

    name: str
    rows: np.ndarray
    n_train: int
    probability: np.ndarray
    decision: np.ndarray
    selected: dict[str, Any] = field(default_factory=dict)
    features: list[int] | None = None
    warnings: list[str] = field(default_factory=list)
    error: str = ""
    estimator: Any = None
    n_unlabelled: int = 0
    base: float = 0.0
    spread: float = 1.0


@dataclass(frozen=True)
class OutOfFold:
    """Hold out-of-fold predictions: each row is predicted by a model that did not see its patient.

    Parameters
    ----------
    probability, decision : ndarray, shape (n,)
        Probability of malignancy and decision value; NaN where the row's fold failed.
    folds : list of Fold
        One for each left-out patient (or site), sorted by name.
    centred : ndarray, shape (n,)
        Log-odds of ``probability`` minus the base of the row's fold, multiplied by a factor, plus
        the mean of all folds' bases. A base is the log-odds of the mean label of the fold's
        training rows. The factor gives the log-odds of all folds' models the same standard
        deviation over their training rows. For a learner without probabilities the decision value
        takes the place of the log-odds. Measures that rank rows of different folds, or fit a slope
        to them, are computed from these values
        (:mod:`cad.learning.evaluation.measures.centring`).
    shifted : ndarray, shape (n,)
        The same without the factor: the scale of the fold's own model, on the base that the model
        of all patients has.
    """

    probability: np.ndarray
    decision: np.ndarray
    folds: list[Fold]
    centred: np.ndarray
    shifted: np.ndarray

    @property
    def on_common_base(self) -> np.ndarray:
        """Return the probabilities as if all folds had the same base, shape (n,).

        The base of a fold is the log-odds of the mean label of its training rows. The model of all
        patients has one base for everybody. So thresholds and calibrations for *new* patients are
        chosen from these probabilities. They are NaN where there is no probability.
        """
        return np.where(np.isfinite(self.probability), expit(self.shifted), np.nan)


# If a fit raises one of these errors, only the fold of this fit fails.
FIT_ERRORS = (ValueError, ArithmeticError, np.linalg.LinAlgError, CadError)

Relabel = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray | None]]


class _FoldData(NamedTuple):
    """Hold the data of all folds, as :func:`out_of_fold` gets them.

    All arrays but ``X`` have the shape (n,).
    """

    X: Any
    y: np.ndarray
    spread: np.ndarray | None
    relabel: Relabel | None
    group: np.ndarray
    patient: np.ndarray


def _table_and_groups(
    X: Any,
    y: ArrayLike,
    eta: ArrayLike | None,
    relabel: Relabel | None,
    groups: ArrayLike,
    patients: ArrayLike | None,
) -> tuple[_FoldData, np.ndarray]:
    """Return the data of all folds, and the sorted names of the groups that are left out in
    turn.
    """
    labels = np.asarray(y, dtype=float)
    spread = None if eta is None else np.broadcast_to(np.asarray(eta, dtype=float), labels.shape)
    group_of_row = np.asarray(groups).astype(str)
    # The names are sorted, so results do not depend on the order of rows in the cohort.
    group_names = np.unique(group_of_row)
    if len(group_of_row) != len(labels):
        raise CadError(f"{len(labels)} labels but {len(group_of_row)} groups")
    if len(group_names) < 2:
        raise CadError(
            f"only one group to leave out ({', '.join(group_names)}): validation needs two or more",
            hint=_UNVALIDATED,
        )
    patient_of_row = group_of_row if patients is None else np.asarray(patients).astype(str)
    table = _FoldData(
        X=X, y=labels, spread=spread, relabel=relabel, group=group_of_row, patient=patient_of_row
    )
    return table, group_names


def out_of_fold(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    groups: ArrayLike,
    eta: ArrayLike | None = None,
    patients: ArrayLike | None = None,
    relabel: Relabel | None = None,
    n_jobs: int = 1,
    keep_estimators: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> OutOfFold:
    """Predict each group by a model that is fitted to the other groups.

    Parameters
    ----------
    estimator : scikit-learn estimator or pipeline
        Unfitted; it is cloned for each fold. Selection, scaling, imputation and nested validation
        must be steps inside it.
    X : array or DataFrame, shape (n, d), or callable
        Features. A callable gets the indices of the training rows and returns the features of all
        rows. It is for a standardisation that is fitted on the training patients of each fold
        (docs/methods.md 7).
    y : array, shape (n,)
        Labels in [0, 1]; NaN for no label. Rows without a label are predicted, too, but only
        semi-supervised learners are trained on them.
    groups : array, shape (n,)
        Group of every row, which is its patient or its site. Rows of one group are left out
        together.
    eta : array, shape (n,), or float, optional
        Uncertainty of y, passed to every ``fit`` that takes it.
    patients : array, shape (n,), optional
        Patient of every row, for estimators that divide patients inside the fold; ``groups`` when
        not given.
    relabel : callable, optional
        Function of the indices of the training rows that returns y and eta of all rows. It is for
        labels that are learned from the training patients of each fold (docs/methods.md 8).
    n_jobs : int
        Number of parallel processes; it changes no result.
    keep_estimators : bool
        Whether each :class:`Fold` keeps its fitted estimator.
    progress : callable, optional
        Function that is called after each fold with two numbers: the folds done and all folds.

    Returns
    -------
    OutOfFold
        For every row, in the order of ``X``, a probability, a decision value, and log-odds that can
        be compared between folds; each has shape (n,). Probability and decision value are NaN where
        the row's fold failed. ``folds`` has one :class:`Fold` for each group.

    Raises
    ------
    CadError
        If there is only one group, if the lengths of arrays differ, or if every fold failed.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import ProbabilisticSVC
    >>> X = np.linspace(-2, 2, 24)[:, None]
    >>> p = np.round(4 / (1 + np.exp(-3 * X[:, 0]))) / 4
    >>> folds = out_of_fold(ProbabilisticSVC(C=10.0), X, p, groups=np.arange(24) // 3)
    >>> folds.probability.shape, len(folds.folds)
    ((24,), 8)
    """
    table, group_names = _table_and_groups(X, y, eta, relabel, groups, patients)
    # The arguments of :func:`fit_fold`, once for each group.
    calls = ((estimator, group_name, keep_estimators, *table) for group_name in group_names)
    folds: list[Fold] = []
    for fold in each_piece(fit_fold, calls, n_jobs):
        folds.append(fold)
        if progress is not None:
            progress(len(folds), len(group_names))
    return put_together(folds, len(table.y))


def deal_patients(patients: ArrayLike, folds: int, seed: int = 0) -> np.ndarray:
    """Assign patients to folds at random; return the fold of every row, shape (n,).

    Parameters
    ----------
    patients : array, shape (n,)
        Patient of every row.
    folds : int
        Number of folds, at least 2 and at most the number of patients.
    seed : int
        Seed of the assignment.

    Returns
    -------
    ndarray of str, shape (n,)
        Name of each row's fold: ``fold 1``, ``fold 2`` and so on, with leading zeros where there
        are ten folds or more. All rows of a patient have the same fold. The numbers of patients of
        two folds differ by one at most.

    Raises
    ------
    CadError
        For a number of folds outside that range.

    Examples
    --------
    >>> import numpy as np
    >>> fold = deal_patients(["a", "a", "b", "c", "d"], folds=2)
    >>> bool(fold[0] == fold[1]), np.unique(fold).tolist()
    (True, ['fold 1', 'fold 2'])
    """
    patient_names, patient_of_row = np.unique(np.asarray(patients).astype(str), return_inverse=True)
    if not 2 <= folds <= len(patient_names):
        raise CadError(
            f"{folds} folds of {len(patient_names)} patients: "
            f"there must be 2 to {len(patient_names)}",
            hint="leave folds out to leave out one patient at a time",
        )
    # The numbers of patients of two folds differ by one at most; the numbers of regions may differ
    # more.
    fold_of_patient = np.random.default_rng(seed).permutation(len(patient_names)) % folds
    # Leading zeros let the names sort in the order of their numbers.
    digits = len(str(folds))
    names = np.array([f"fold {fold + 1:0{digits}d}" for fold in fold_of_patient])
    return names[patient_of_row]


def put_together(folds: list[Fold], n: int) -> OutOfFold:
    """Collect the predictions of all folds into one prediction per row.

    Parameters
    ----------
    folds : list of Fold
        Folds; each has the predictions for the rows that it left out.
    n : int
        Number of rows in all.

    Returns
    -------
    OutOfFold
        Arrays of shape (n,): probability, decision value, and log-odds that can be compared between
        folds. Probability and decision value are NaN in rows that no fold predicted or whose fold
        failed.

    Raises
    ------
    CadError
        When every fold failed.
    """
    if all(fold.error for fold in folds):
        raise CadError(
            f"every fold failed, {len(folds)} in all; without {folds[0].name}: {folds[0].error}",
            hint=_UNVALIDATED,
        )
    probability = np.full(n, np.nan)
    decision = np.full(n, np.nan)
    base = np.zeros(n)
    stretch = np.ones(n)
    fitted = [fold for fold in folds if not fold.error]
    factors = stretches([fold.spread for fold in fitted])
    for fold in folds:
        probability[fold.rows] = fold.probability
        decision[fold.rows] = fold.decision
        base[fold.rows] = fold.base
    # Rows of a failed fold have no prediction, so they need no factor.
    for fold, factor in zip(fitted, factors, strict=True):
        stretch[fold.rows] = factor
    mean_base = float(np.mean([fold.base for fold in fitted]))
    centred = centred_scores(probability, decision, base, mean_base, stretch)
    shifted = centred_scores(probability, decision, base, mean_base)
    return OutOfFold(
        probability=probability, decision=decision, folds=folds, centred=centred, shifted=shifted
    )


def centred_scores(
    probability: np.ndarray,
    decision: np.ndarray,
    base: ArrayLike,
    common: float = 0.0,
    stretch: ArrayLike = 1.0,
) -> np.ndarray:
    """Return scores of left-out rows that can be compared between folds, of the same shape.

    Parameters
    ----------
    probability, decision : ndarray
        Probabilities and decision values. Decision values are used if no row has a probability.
    base : array, or float
        For each row the base of the model that predicted it: the log-odds of the mean label of the
        model's training rows, or for decision values their mean on the training rows.
    common : float
        A number that is added to all scores.
    stretch : array, or float
        Factor of each row's difference from the base
        (:func:`cad.learning.evaluation.measures.centring.stretches`).

    Examples
    --------
    The scores are the log-odds of the rows minus the base:

    >>> import numpy as np
    >>> scores = centred_scores(np.array([0.5, 0.8]), np.zeros(2), base=np.array([0.0, 1.0]))
    >>> scores.round(3).tolist()
    [0.0, 0.386]
    """
    # Decision values are compared as they are, without a logit.
    if np.isnan(probability).all():
        difference = decision - np.asarray(base, dtype=float)
        return np.asarray(difference * np.asarray(stretch, dtype=float) + common)
    return centred_log_odds(probability, base, common, stretch)


def base_of(fitted: Any, X: Any, labels: np.ndarray) -> float:
    """Return the log-odds that a fitted estimator would give to a region whose features tell
    nothing.

    Parameters
    ----------
    fitted : estimator or pipeline
        Estimator that was fitted to the rows ``X``.
    X : array or DataFrame, shape (n, d)
        Labelled training rows.
    labels : ndarray, shape (n,)
        Labels of the training rows, in [0, 1].

    Returns
    -------
    float
        Log-odds of the mean label; for an estimator without probabilities, the mean decision value.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> labels = np.array([0.0, 0.0, 0.0, 1.0])
    >>> fitted = LogisticRegression().fit(X, labels)
    >>> round(base_of(fitted, X, labels), 3), round(float(np.log(0.25 / 0.75)), 3)
    (-1.099, -1.099)
    """
    if hasattr(fitted, "predict_proba"):
        return base_log_odds(labels)
    return float(np.mean(decision_value(fitted, X)))


def spread_in_training(fitted: Any, X: Any) -> float:
    """Return the standard deviation of a fitted estimator's log-odds over its training rows.

    For an estimator without probabilities it is the standard deviation of the decision values. Some
    learners choose on inner folds how far their predictions lie from the mean label. They choose
    the farther, the less the left-out patient agrees with the others. So log-odds of different
    folds are compared in units of this standard deviation (docs/methods.md 6).

    Parameters
    ----------
    fitted : estimator or pipeline
    X : array or DataFrame, shape (n, d)
        Labelled training rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> fitted = LogisticRegression().fit(X, np.array([0, 0, 1, 1]))
    >>> bool(np.isclose(spread_in_training(fitted, X), np.std(X) * fitted.coef_[0, 0]))
    True
    """
    probability = positive_probability(fitted, X)
    if np.isnan(probability).all():
        return float(np.std(decision_value(fitted, X)))
    return spread_of_log_odds(probability)


def fit_keywords(
    estimator: Any, eta: np.ndarray | None, groups: np.ndarray | None
) -> dict[str, Any]:
    """Return ``eta`` and ``groups`` as keywords for ``estimator.fit``, if it has these parameters.

    For a pipeline the keywords are ``step__eta`` and ``step__groups``, for every step whose ``fit``
    has the parameter. If scikit-learn's metadata routing is enabled, the keywords are those that
    the estimator requests.

    Parameters
    ----------
    estimator : estimator or pipeline
        Unfitted or fitted; only the parameters of its ``fit`` are looked at.
    eta, groups : ndarray, shape (n,), or None
        Uncertainty of the labels, and the patient of every row; None is never passed on.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from cad.learners import ProbabilisticSVC
    >>> list(fit_keywords(ProbabilisticSVC(), np.zeros(3), np.arange(3)))
    ['eta']
    >>> fit_keywords(LogisticRegression(), np.zeros(3), np.arange(3))
    {}
    """
    keywords = {"eta": eta, "groups": groups}
    keywords = {name: value for name, value in keywords.items() if value is not None}
    is_routed = get_config()["enable_metadata_routing"]
    requested: set[str] = set()
    if is_routed:
        requested = get_routing_for_object(estimator).consumes("fit", list(keywords))
    accepted = {}
    # With routing, a pipeline passes the keywords on to its steps by itself.
    if is_routed or not isinstance(estimator, Pipeline):
        for name, value in keywords.items():
            if name in requested or has_fit_parameter(estimator, name):
                accepted[name] = value
        return accepted
    for step_name, step in estimator.steps:
        # Such a step does nothing, and has no ``fit``.
        if step is None or step == "passthrough":
            continue
        for name, value in keywords.items():
            if has_fit_parameter(step, name):
                accepted[f"{step_name}__{name}"] = value
    return accepted


def fit_fold(estimator: Any, name: str, keep: bool, *table: Any) -> Fold:
    """Fit a clone of an estimator without one group, and predict that group.

    ``name`` is the group, and ``keep`` says whether the fold keeps the fitted estimator. If the fit
    fails, the fold has the error instead of predictions. ``table`` are the fields of
    :class:`_FoldData`. They are separate arguments, because Dask then sends each large array to a
    worker only once for all folds.
    """
    X, y, spread, relabel, group, patient = table
    rows = np.flatnonzero(group == name)
    is_training = group != name
    has_label = ~np.isnan(y)
    labelled_rows = np.flatnonzero(is_training & has_label)
    no_prediction = np.full(len(rows), np.nan)
    # The estimator is cloned, so that no fold starts from the fit of an earlier fold.
    fitted = clone(estimator)
    if relabel is not None:
        y, spread = relabel(labelled_rows)
    # Rows without a label are training rows of semi-supervised learners only.
    labels = labels_told(estimator, np.where(has_label, y, np.nan))
    train_rows = np.flatnonzero(is_training & ~np.isnan(labels))
    keywords = fit_keywords(
        fitted, None if spread is None else spread[train_rows], patient[train_rows]
    )
    # Only one thread of BLAS is used. The matrices are small, and results must be the same to the
    # last bit whatever number of cores the machine has.
    with blas_threads().limit(limits=1), warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        try:
            # If X is a function that makes the features, it gets the labelled rows only. Rows that
            # nobody read must not change how features are scaled.
            features = X(labelled_rows) if callable(X) else X
            fitted.fit(_safe_indexing(features, train_rows), labels[train_rows], **keywords)
            test_features = _safe_indexing(features, rows)
            # Rows are transformed once, for probabilities and for decision values.
            last_step, test_features = _before_last(fitted, test_features)
            probability = positive_probability(last_step, test_features)
            decision = decision_value(last_step, test_features)
            labelled_features = _safe_indexing(features, labelled_rows)
            base = base_of(fitted, labelled_features, y[labelled_rows])
            spread_of_model = spread_in_training(fitted, labelled_features)
            # Chosen parameters are those of a search around the pipeline, or of a learner that
            # chooses them itself.
            chosen = getattr(fitted, "best_params_", getattr(last_step, "best_params_", {}))
        except FIT_ERRORS as error:
            return Fold(
                name=name,
                rows=rows,
                n_train=len(labelled_rows),
                probability=no_prediction,
                decision=no_prediction,
                error=str(error),
            )
    # numpy's numbers become Python's, which JSON can hold.
    selected = {}
    for parameter, value in chosen.items():
        selected[parameter] = value.item() if isinstance(value, np.generic) else value
    return Fold(
        name=name,
        rows=rows,
        n_train=len(labelled_rows),
        probability=probability,
        decision=decision,
        selected=selected,
        features=_kept_features(fitted),
        warnings=sorted({str(warning.message) for warning in caught_warnings}),
        estimator=fitted if keep else None,
        n_unlabelled=len(train_rows) - len(labelled_rows),
        base=base,
        spread=spread_of_model,
    )


def _before_last(fitted: Any, X: Any) -> tuple[Any, Any]:
    """Return the last step of a fitted pipeline, and the rows after its earlier steps."""
    if not isinstance(fitted, Pipeline):
        return fitted, X
    for _, step in fitted.steps[:-1]:
        # Such a step does nothing, and cannot transform.
        if step is None or step == "passthrough":
            continue
        X = step.transform(X)
    _, last_step = fitted.steps[-1]
    return last_step, X


@cache
def blas_threads() -> ThreadpoolController:
    """Return threadpoolctl's controller, by which callers limit the threads of linear algebra."""
    return ThreadpoolController()


def _kept_features(fitted: Any) -> list[int] | None:
    """Return the columns of X that all selecting steps kept; None if no column was dropped."""
    # A search holds the pipeline that it chose.
    pipeline = getattr(fitted, "best_estimator_", fitted)
    if not isinstance(pipeline, Pipeline):
        return None
    columns = np.arange(pipeline.n_features_in_)
    for _, step in pipeline.steps:
        if not hasattr(step, "get_support"):
            continue
        # Only steps with ``get_support`` select columns, and there may be several such steps.
        # Imputers and scalers keep all columns.
        is_kept = np.asarray(step.get_support())
        if len(is_kept) != len(columns):
            # An earlier step changed the number of columns, so the columns are no longer those of
            # X.
            return None
        columns = columns[is_kept]
    return [int(i) for i in columns] if len(columns) < pipeline.n_features_in_ else None


def folds_side_by_side(
    estimators: Mapping[str, Any],
    X: Any,
    y: ArrayLike,
    *,
    groups: ArrayLike,
    front: Pipeline | None = None,
    eta: ArrayLike | None = None,
    patients: ArrayLike | None = None,
    relabel: Relabel | None = None,
    fronts: Mapping[str, Any] | None = None,
    n_jobs: int = 1,
) -> dict[str, list[Fold]]:
    """Predict each group by several estimators that are fitted to the other groups; return the
    folds.

    Up to rounding, the results are those of
    :func:`cad.learning.evaluation.folds.crossval.out_of_fold` for each pipeline
    ``Pipeline([*front.steps, ("learner", estimator)])``. To save time, everything before the
    estimator (a callable ``X``, ``relabel`` and ``front``) is computed once per fold for all
    estimators.

    Parameters
    ----------
    estimators : mapping of str to estimator
        Unfitted.
    front : Pipeline, optional
        Unfitted steps that come before each estimator. Their warnings are not kept.
    fronts : mapping of str to Pipeline, optional
        For each left-out group, by its name, the steps ``front`` after they were fitted on the same
        training rows and labels. For a group that is not named here, ``front`` is fitted in this
        function.
    X, y, groups, eta, patients, relabel, n_jobs
        Features, labels, left-out group of every row, uncertainty of labels, patient of every row,
        function that learns labels from training rows, and number of processes. The arguments of
        :func:`out_of_fold` have the same names and meanings.

    Returns
    -------
    dict of str to list of Fold
        For each estimator, by its name, its folds. An estimator is there even if all of its folds
        failed.

    Raises
    ------
    CadError
        If there is only one group, or if the lengths of arrays differ.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 2))
    >>> y = (X[:, 0] + rng.normal(size=40) > 0).astype(float)
    >>> patients = np.arange(40) // 2
    >>> folds = folds_side_by_side(
    ...     {"logistic": LogisticRegression()}, X, y, groups=patients // 5
    ... )
    >>> len(folds["logistic"])
    4
    """
    table, group_names = _table_and_groups(X, y, eta, relabel, groups, patients)
    learners = list(estimators.values())
    fitted_fronts = fronts or {}
    # The arguments of :func:`_fold_of_each`, once for each group.
    calls = (
        (learners, front, fitted_fronts.get(str(group_name)), group_name, *table)
        for group_name in group_names
    )
    folds_of: dict[str, list[Fold]] = {name: [] for name in estimators}
    for folds_of_group in each_piece(_fold_of_each, calls, n_jobs):
        for name, fold in zip(estimators, folds_of_group, strict=True):
            folds_of[name].append(fold)
    return folds_of


def _fold_of_each(
    estimators: Sequence[Any],
    front: Pipeline | None,
    fitted_front: Pipeline | None,
    name: str,
    *fold_data: Any,
) -> list[Fold]:
    """Fit each estimator without one group, and predict that group; return a fold for each.

    ``name`` is the group, and ``fold_data`` are the fields of :class:`_FoldData`. ``fitted_front``
    are the steps ``front`` after their fit on these training rows. If it is None, they are fitted
    here.
    """
    table = _FoldData(*fold_data)
    is_training = table.group != name
    rows = np.flatnonzero(~is_training)
    train_rows = np.flatnonzero(is_training & ~np.isnan(table.y))
    y, spread = table.y, table.spread
    if table.relabel is not None:
        y, spread = table.relabel(train_rows)
    try:
        X = table.X(train_rows) if callable(table.X) else table.X
        with blas_threads().limit(limits=1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if fitted_front is None and front is not None:
                train_spread = None if spread is None else spread[train_rows]
                keywords = fit_keywords(front, train_spread, table.patient[train_rows])
                fitted_front = clone(front).fit(
                    _safe_indexing(X, train_rows), y[train_rows], **keywords
                )
            X = X if fitted_front is None else fitted_front.transform(X)
    except FIT_ERRORS as error:
        # If the steps before the estimators fail, the fold of every estimator has failed.
        no_prediction = np.full(len(rows), np.nan)
        failed = Fold(
            name=name,
            rows=rows,
            n_train=len(train_rows),
            probability=no_prediction,
            decision=no_prediction,
            error=str(error),
        )
        return [failed] * len(estimators)
    # Labels and features are those of this fold already, so nothing remains to be done for them.
    transformed = table._replace(X=X, relabel=lambda _: (y, spread))
    keep = False
    return [fit_fold(estimator, name, keep, *transformed) for estimator in estimators]
