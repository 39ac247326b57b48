"""Fit a semi-supervised model again, with the new regions of one man as rows without a label.

A semi-supervised learner learns from rows with and without labels.
"""

from typing import Any

import numpy as np
from sklearn.base import clone

from cad.base.errors import CadError
from cad.learning.evaluation.folds.crossval import fit_keywords
from cad.learning.evaluation.folds.unlabelled import UNLABELLED, SemiSupervisedPipeline
from cad.run.model.bundle import Bundle


def check_transductive(bundle: Bundle) -> None:
    """Raise an error for a model that cannot learn from new regions without labels.

    Raises
    ------
    CadError
        For a learner that is not semi-supervised, or a bundle without its training rows.
    """
    if not isinstance(bundle.estimator, SemiSupervisedPipeline):
        raise CadError(
            f"model {bundle.name} learns of labelled regions only",
            hint="leave --transductive out, or train SSLROC, SVMLin or SSRankBoost",
        )
    if not bundle.metadata["carries_training_rows"]:
        raise CadError(
            f"model {bundle.name} was written without its training rows",
            hint="leave --transductive out, or train it with learner.training_rows: carry",
        )


def fit_with(bundle: Bundle, training: np.ndarray, new: np.ndarray) -> Any:
    """Return an estimator like the bundle's, fitted to its training regions and to new regions.

    The new regions have no labels.

    Parameters
    ----------
    bundle : Bundle
        A model that :func:`check_transductive` accepts.
    training : ndarray, shape (n, d)
        Features of the model's labelled training regions, in the order of ``bundle.training``.
        Training regions without labels are missing, because a bundle does not keep them.
    new : ndarray, shape (m, d)
        Features of the new regions, all of one patient.

    Returns
    -------
    estimator
        A new estimator; the bundle's estimator stays as it is.

    Examples
    --------
    The new man's two regions have no label, but still take part in the fit:

    >>> import pandas as pd
    >>> from sklearn.preprocessing import StandardScaler
    >>> from cad.learners import SVMLin
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> y = np.array([0.0, 0.0, 1.0, 1.0])
    >>> training = pd.DataFrame({"y": y, "eta": 0.0, "participant_id": list("abcd")})
    >>> estimator = SemiSupervisedPipeline(
    ...     [("scale", StandardScaler()), ("learner", SVMLin(platt_folds=0))]
    ... )
    >>> bundle = Bundle("mine", estimator, {}, X, y, training, "")
    >>> fitted = fit_with(bundle, X, np.array([[-1.5], [1.5]]))
    >>> (fitted.decision_function(np.array([[-1.5], [1.5]])) > 0).tolist()
    [False, True]
    """
    table = bundle.training
    y = np.concatenate([table["y"].to_numpy(float), np.full(len(new), UNLABELLED)])
    # Without a label there is no disagreement of readers.
    eta = np.concatenate([table["eta"].to_numpy(float), np.zeros(len(new))])
    # All new regions get the same patient's name, because they belong to one man. Inner folds keep
    # the regions of a man together.
    patients = np.concatenate([table["participant_id"].to_numpy(str), np.full(len(new), "new")])
    estimator = clone(bundle.estimator)
    keywords = fit_keywords(estimator, eta, patients)
    return estimator.fit(np.vstack([training, new]), y, **keywords)
