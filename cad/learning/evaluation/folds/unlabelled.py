"""Handle rows without a label, from which semi-supervised learners can learn.

Steps before the learner are fitted to labelled rows, and the learner to all rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

UNLABELLED = -1.0
"""Label of a row without a label, as in scikit-learn's semi-supervised learners."""


class SemiSupervisedPipeline(Pipeline):  # type: ignore[misc]
    """Fit imputation, scaling and selection to labelled rows, and the last step to all rows.

    In ``fit``, y is in [0, 1], or -1 for rows without a label. Unlabelled rows do not change how
    the steps before the learner transform rows.
    """

    def fit(self, X: Any, y: ArrayLike, **params: Any) -> SemiSupervisedPipeline:
        """Fit the steps before the last to labelled rows, and the last step to all rows.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
            Features.
        y : array, shape (n,)
            Labels in [0, 1]; -1 for unlabelled.
        **params
            Arrays of shape (n,) for the steps' ``fit``, with names such as ``learner__groups``:
            step, two underscores, argument.
        """
        values = np.asarray(y, dtype=float)
        labelled = np.flatnonzero(values != UNLABELLED)
        learner_name, learner = self.steps[-1]
        learner_keywords = {}
        front_keywords = {}
        for parameter, array in params.items():
            if parameter.startswith(f"{learner_name}__"):
                learner_keywords[parameter.removeprefix(f"{learner_name}__")] = array
            else:
                # The steps before the learner see labelled rows only.
                front_keywords[parameter] = np.asarray(array)[labelled]
        earlier_steps = Pipeline(self.steps[:-1])
        earlier_steps.fit(_safe_indexing(X, labelled), values[labelled], **front_keywords)
        learner.fit(earlier_steps.transform(X), values, **learner_keywords)
        return self


def labels_told(estimator: Any, y: np.ndarray) -> np.ndarray:
    """Return labels in the form that an estimator's ``fit`` expects, shape (n,).

    For a semi-supervised estimator NaN becomes -1, which stands for an unlabelled row. For any
    other estimator NaN stays, and callers must leave these rows out of training.

    Parameters
    ----------
    estimator : estimator, pipeline or search
    y : ndarray, shape (n,)
        Labels in [0, 1], NaN where nobody read.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import SVMLin
    >>> pipeline = SemiSupervisedPipeline([("learner", SVMLin())])
    >>> labels_told(pipeline, np.array([0.0, 1.0, np.nan])).tolist()
    [0.0, 1.0, -1.0]
    """
    # A search holds the pipeline in its attribute ``estimator``.
    pipeline = getattr(estimator, "estimator", estimator)
    labels = y
    if isinstance(pipeline, SemiSupervisedPipeline):
        labels = np.nan_to_num(y, nan=UNLABELLED)
    return labels
