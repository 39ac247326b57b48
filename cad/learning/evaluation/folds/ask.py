"""Let fitted estimators predict, for validation, prediction, explanations and maps.

A learner warns of rows that are unlike its training rows. These warnings are switched off here. For
regions of patients the caller gives other warnings, with the names of the features. Rows of
explanations and maps need no warning, because they may belong to no patient.
"""

import warnings
from typing import Any

import numpy as np

from cad.base.errors import CadError
from cad.learning.learners.base import RangeWarning


def positive_probability(estimator: Any, X: Any) -> np.ndarray:
    """Return a fitted estimator's probability of malignancy of every row, checked to be in [0, 1].

    Parameters
    ----------
    estimator : estimator or pipeline
        Fitted.
    X : array or DataFrame, shape (n, d)
        Rows.

    Returns
    -------
    ndarray, shape (n,)
        NaN where the estimator has no ``predict_proba``.

    Raises
    ------
    CadError
        If the estimator gives NaN, infinity, or a number outside 0 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = LogisticRegression().fit(X, [0, 0, 1, 1])
    >>> positive_probability(model, X).round(2).tolist()
    [0.19, 0.38, 0.62, 0.81]
    """
    if not hasattr(estimator, "predict_proba"):
        return np.full(np.shape(X)[0], np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RangeWarning)
        probability = np.asarray(estimator.predict_proba(X), dtype=float)
    # Column -1 is the last class. scikit-learn sorts the classes, so the last class is malignant,
    # or the larger label.
    malignant = probability[:, -1]
    # NaN fails both comparisons, and is found as well.
    invalid_rows = np.flatnonzero(~((malignant >= 0) & (malignant <= 1)))
    if len(invalid_rows):
        raise CadError(
            f"{len(invalid_rows)} of {len(malignant)} rows get no probability: "
            f"row {invalid_rows[0] + 1} gets {malignant[invalid_rows[0]]:g}, "
            "which is not within 0 to 1",
            hint="look at the row's values and at the model (cad model verify)",
        )
    return malignant


def decision_value(estimator: Any, X: Any) -> np.ndarray:
    """Return a fitted estimator's decision value of every row.

    Parameters
    ----------
    estimator : estimator or pipeline
        Fitted.
    X : array or DataFrame, shape (n, d)
        Rows.

    Returns
    -------
    ndarray, shape (n,)
        NaN where the estimator has no ``decision_function``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = LogisticRegression().fit(X, [0, 0, 1, 1])
    >>> decision_value(model, X).round(2).tolist()
    [-1.44, -0.48, 0.48, 1.44]
    """
    if not hasattr(estimator, "decision_function"):
        return np.full(np.shape(X)[0], np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RangeWarning)
        return np.asarray(estimator.decision_function(X), dtype=float).ravel()


def decision_value_of_mixed(
    learner: Any, rows: np.ndarray, other: np.ndarray, mixed: np.ndarray
) -> np.ndarray:
    """Return decision values of rows in which some columns have the values of another row.

    The learner must have a method ``decide_mixed``, which computes the parts that all mixtures have
    in common only once.

    Parameters
    ----------
    learner : estimator
        Fitted, with ``decide_mixed``.
    rows : ndarray, shape (n, d)
        Rows to change.
    other : ndarray, shape (d,)
        The other row, whose values replace those of the rows.
    mixed : ndarray of bool, shape (m, d)
        For each mixture, which columns are replaced.

    Returns
    -------
    ndarray, shape (n, m)
        Log-odds of every mixture of every row.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import AveragedProbabilisticSVC
    >>> X = np.arange(20.0)[:, None]
    >>> learner = AveragedProbabilisticSVC(C=1.0, gamma=0.1, folds=2).fit(X, X[:, 0] / 19)
    >>> mixed = np.array([[True], [False]])
    >>> decision_value_of_mixed(learner, X[:3], X[10], mixed).shape
    (3, 2)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RangeWarning)
        return np.asarray(learner.decide_mixed(rows, other, mixed))
