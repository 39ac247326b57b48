"""Find a consensus rule by its name, and compute the labels of a validation fold with it."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cad.base.errors import CadError
from cad.learning.labels.agreement import AgreementReaders
from cad.learning.labels.pooled import Consensus, MeanReaders, PooledReaders

Array = NDArray[np.float64]

RULES: dict[str, Callable[[], Consensus]] = {
    "agreement": AgreementReaders,
    "mean": MeanReaders,
    "pooled": PooledReaders,
}


def fold_labels(
    name: str, grades: Array, truth: Array, certain: Array, train: NDArray[np.intp]
) -> tuple[Array, Array, str]:
    """Return labels of all rows by a consensus rule that is fitted on the training rows only.

    Parameters
    ----------
    name : str
        Name of the rule, as in the setting ``labels.consensus``: "agreement", "mean" or "pooled".
    grades : ndarray, shape (n, n_readers)
        Probabilities that the readers' scores state, NaN where missing
        (:func:`cad.learning.labels.consensus.grade_matrix`).
    truth : ndarray, shape (n,)
        Histology: 1 malignant, 0 benign, NaN unknown. Only the rows of ``train`` are used.
    certain : ndarray, shape (n,)
        1 or 0 where histology overrides the readers, else NaN.
    train : ndarray of int
        Training rows.

    Returns
    -------
    y, eta : ndarray, shape (n,)
        Label and uncertainty of every row. Where nobody scored, eta is NaN, and y is NaN unless
        ``certain`` gives a label.
    note : str
        Sentence that the run must show; empty when there is nothing to show.

    Examples
    --------
    There are two readers, and the last region has histology:

    >>> import numpy as np
    >>> grades = np.array([[0.25, 0.75], [1.0, 1.0], [0.0, np.nan]])
    >>> unknown = np.full(3, np.nan)
    >>> certain = np.array([np.nan, np.nan, 1.0])
    >>> y, eta, note = fold_labels("mean", grades, unknown, certain, np.arange(3))
    >>> y.tolist()
    [0.5, 1.0, 1.0]
    """
    rule = consensus_rule(name).fit(grades[train], truth[train])
    belief = rule.predict(grades)
    # Where histology is certain, it is the label.
    y = np.where(np.isfinite(certain), certain, belief.p)
    return y, belief.eta, rule.note


def consensus_rule(name: str) -> Consensus:
    """Return a new, unfitted consensus rule by its name: "agreement", "mean" or
    "pooled".

    Raises
    ------
    CadError
        For an unknown name.
    """
    if name not in RULES:
        raise CadError(f"labels.consensus is {name!r}, must be one of {', '.join(RULES)}")
    return RULES[name]()
