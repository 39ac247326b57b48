"""Pool readers of different skill, learning from the regions with histology (docs/methods.md 8).

The model is P(t = 1 | scores) = expit(a + b z + sum_r w_r (s_r - m)). Here t is the histology, s_r
the probability that reader r states, and m the mean of s_r over the R readers. z is the log-odds of
(R m + 1/2) / (R + 1). This fraction is the mean after one more reading, of 1/2, was added, so that
z is finite. A missing s_r is replaced by m.

The priors are a ~ N(0, 1), b ~ N(1, 1/4) and w_r ~ N(0, 1), where the second number is the
variance. At the priors' means the log-odds are z, those of the readers' mean. A little histology
moves the result a little away from this mean (partial pooling). The fit is the mode of the
posterior; the uncertainty comes from the posterior's Laplace approximation.
"""

from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cad.base.errors import CadError
from cad.learning.logistic import fit_logistic

Array = NDArray[np.float64]

# 1 / variance of the prior of a, of b, and of each w_r (see the module's docstring).
_PRIOR_PRECISION = {"offset": 1.0, "mean": 4.0, "reader": 1.0}


@dataclass(frozen=True)
class Belief:
    """Hold the consensus of the readers of every region: a probability and its uncertainty.

    Parameters
    ----------
    p : ndarray, shape (n,)
        Probability of malignancy; NaN where nobody read.
    eta : ndarray, shape (n,)
        Uncertainty of p (a standard deviation); NaN where nobody read.
    y : ndarray, shape (n,)
        Label for a learner: 1 or 0 where histology is certain, else p. A consensus rule returns an
        empty ``y``, which is filled in later.
    notes : tuple of str
        Sentences on how the readers agree. They name readers who add nothing to the other readers,
        and readers whose scores are copies of another reader's scores.
    """

    p: Array
    eta: Array
    y: Array = field(default_factory=lambda: np.empty(0))
    notes: tuple[str, ...] = ()


class Consensus(Protocol):
    """Describe a consensus rule: ``fit`` to training regions, then ``predict`` for any regions.

    ``note`` is a sentence that a run must show; empty when there is nothing to show.
    """

    note: str

    def fit(self, grades: Array, truth: Array) -> Self:
        """Learn from training regions and return this object.

        Parameters
        ----------
        grades : ndarray, shape (n, n_readers)
            Readers' probabilities; NaN where missing.
        truth : ndarray, shape (n,)
            Histology: 1 malignant, 0 benign, NaN unknown.
        """

    def predict(self, grades: Array) -> Belief:
        """Return the consensus for any regions: those of the training, or new ones.

        Parameters
        ----------
        grades : ndarray, shape (n, n_readers)
            Readers' probabilities, with the readers in the order of training; NaN where missing.
        """


class MeanReaders:
    """Take the readers' mean probability, and their standard deviation (ddof 1) as its uncertainty.

    A region with one reader has no standard deviation and gets ``single``, by default half a step
    of the five-point scale.
    """

    note = ""

    def __init__(self, single: float = 0.125) -> None:
        self.single = single

    def fit(self, grades: Array, truth: Array) -> Self:
        """Return this object; a mean has nothing to learn."""
        return self

    def predict(self, grades: Array) -> Belief:
        """Return the readers' mean (``p``) and standard deviation (``eta``) of every region.

        ``grades`` has shape (n, n_readers); a region without a grade gets NaN.
        """
        has_score = np.isfinite(grades)
        readers_of_region = has_score.sum(axis=1)
        mean = mean_of_known(grades)
        squares = np.where(has_score, (grades - mean[:, None]) ** 2, 0.0).sum(axis=1)
        # One reader has no variance; his 0 here is replaced below.
        variance = np.divide(
            squares,
            readers_of_region - 1,
            out=np.zeros(len(readers_of_region)),
            where=readers_of_region > 1,
        )
        eta = np.where(readers_of_region == 1, self.single, np.sqrt(variance))
        return Belief(p=mean, eta=np.where(readers_of_region == 0, np.nan, eta))


class PooledReaders:
    """Pool readers by a logistic model with partial pooling, fitted on histology.

    Log-odds of malignancy are a + b z + sum_r w_r (s_r - m). Here s_r is the probability that
    reader r states, m the readers' mean, and z the log-odds of the mean after one more reading, of
    1/2, was added.

    Attributes
    ----------
    coefficients_ : ndarray, shape (2 + n_readers,)
        a, b, and w_r of every reader.
    covariance_ : ndarray, shape (2 + n_readers, 2 + n_readers)
        Covariance of the coefficients, by Laplace's approximation.
    identified_ : bool
        False where histology does not have both classes; the readers' mean is then used.
    note : str
        Sentence that a run must show; empty when there is nothing to show. :meth:`fit` writes it.
    """

    note = ""

    def fit(self, grades: Array, truth: Array) -> Self:
        """Fit to the training regions that have a score and histology; return this object.

        Parameters
        ----------
        grades : ndarray, shape (n, n_readers)
            Probabilities that the readers' scores state; NaN where missing.
        truth : ndarray, shape (n,)
            Histology: 1 malignant, 0 benign, NaN unknown.

        Raises
        ------
        CadError
            For grades outside [0, 1].
        """
        refuse_outside(grades)
        is_used = np.isfinite(truth) & np.isfinite(grades).any(axis=1)
        y = truth[is_used]
        self.identified_ = bool((y == 1).any() and (y == 0).any())
        # Without both classes the weights would be those of the priors, and mean nothing.
        if not self.identified_:
            subject = "no region has" if not len(y) else "only one class has"
            self.note = (
                f"labels.consensus pooled: {subject} histology among the training regions, so the "
                "readers' weights cannot be identified; the mean is taken"
            )
            return self
        self.note = ""
        self.coefficients_, self.covariance_ = _posterior(_design(grades[is_used]), y)
        return self

    def predict(self, grades: Array) -> Belief:
        """Return the pooled probability of every region (``p``) and its standard deviation
        (``eta``).

        ``grades`` has shape (n, n_readers); a region without a grade gets NaN. If ``identified_``
        is False, the result is the same as the result of :class:`MeanReaders`.

        The probability is averaged over the posterior (MacKay's approximation of the logistic
        normal integral); ``eta`` is its standard deviation.
        """
        refuse_outside(grades)
        if not self.identified_:
            return MeanReaders().predict(grades)
        is_read = np.asarray(np.isfinite(grades).any(axis=1))
        # A region that nobody read gets 1/2 for now; its result becomes NaN below.
        design = _design(np.where(is_read[:, None], grades, 0.5))
        log_odds = design @ self.coefficients_
        variance = np.einsum("ij,jk,ik->i", design, self.covariance_, design)
        # With little histology the weights of the readers are uncertain, which draws the
        # probability p towards 1/2.
        p = expit(log_odds / np.sqrt(1 + np.pi * variance / 8))
        # A small change of the log-odds changes p by p (1 - p) times as much.
        deviation = p * (1 - p) * np.sqrt(variance)
        return Belief(p=np.where(is_read, p, np.nan), eta=np.where(is_read, deviation, np.nan))

    def weights(self, grades: Array) -> tuple[Array, Array]:
        """Return each reader's weight, a difference of log-odds, and the weight's standard
        deviation.

        A reader's weight is the change of the pooled log-odds when the score of this reader alone
        goes from 0 to 1, averaged over the given regions.

        Parameters
        ----------
        grades : ndarray, shape (n, n_readers)
            Readers' probabilities; NaN where missing.

        Returns
        -------
        weight, deviation : ndarray, shape (n_readers,)
        """
        n_readers = grades.shape[1]
        # A missing score is replaced by the mean of the region's other scores, as the fitted model
        # does, too.
        complete_grades = np.where(np.isfinite(grades), grades, mean_of_known(grades)[:, None])
        # A region without any score stays NaN, and is left out.
        complete_grades = complete_grades[np.isfinite(complete_grades).all(axis=1)]
        # The log-odds are linear in the columns of the design. So the mean change of the columns,
        # times the coefficients, is the mean change of the log-odds.
        mean_changes = []
        for reader in range(n_readers):
            low = complete_grades.copy()
            high = complete_grades.copy()
            low[:, reader] = 0.0
            high[:, reader] = 1.0
            mean_changes.append((_design(high) - _design(low)).mean(axis=0))
        changes = np.array(mean_changes)
        deviation = np.sqrt(np.einsum("ij,jk,ik->i", changes, self.covariance_, changes))
        return changes @ self.coefficients_, deviation


def _design(grades: Array) -> Array:
    """Return the design matrix of the logistic model, shape (n, 2 + R) for R readers.

    The columns are 1, z, s_1 - m, .., s_R - m. s_r is the score of reader r as a probability and m
    the mean of a region's scores. z is the log-odds of this mean after one more reading, of 1/2,
    was added.
    """
    has_score = np.isfinite(grades)
    readers_of_region = has_score.sum(axis=1)
    sum_of_scores = np.where(has_score, grades, 0.0).sum(axis=1)
    mean = sum_of_scores / readers_of_region
    # One more reading, of 1/2, is added, so that log-odds stay finite where all readers state 0 or
    # all state 1.
    mean_with_half = (sum_of_scores + 0.5) / (readers_of_region + 1)
    # A missing score counts as the mean, so its deviation is 0.
    deviation = np.where(has_score, grades - mean[:, None], 0.0)
    log_odds = np.log(mean_with_half) - np.log1p(-mean_with_half)
    return np.column_stack([np.ones(len(readers_of_region)), log_odds, deviation])


def _posterior(design: Array, y: Array) -> tuple[Array, Array]:
    """Return the posterior mode and covariance of the model's coefficients a, b, w_1, .., w_R."""
    n_coefficients = design.shape[1]
    prior_mean = np.zeros(n_coefficients)
    # With the prior mean of the coefficients, the model's log-odds are those of the readers' mean.
    # The weight b of these log-odds is 1, and all other coefficients are 0.
    prior_mean[1] = 1.0
    prior_precision = np.full(n_coefficients, _PRIOR_PRECISION["reader"])
    prior_precision[:2] = _PRIOR_PRECISION["offset"], _PRIOR_PRECISION["mean"]
    mode: Array = fit_logistic(design, y, mean=prior_mean, precision=prior_precision)
    # By Laplace's approximation the covariance is the inverse of the Hessian of minus the
    # log-posterior at its mode.
    q = expit(design @ mode)
    hessian = (design * (q * (1 - q))[:, None]).T @ design + np.diag(prior_precision)
    return mode, np.linalg.inv(hessian)


def mean_of_known(table: Array) -> Array:
    """Return the mean of each row over the values that are not NaN.

    Parameters
    ----------
    table : ndarray, shape (n, readers)
        Values of every reader; NaN where a reader did not read.

    Returns
    -------
    ndarray, shape (n,)
        Means; NaN for a row in which all values are NaN.

    Examples
    --------
    >>> import numpy as np
    >>> mean_of_known(np.array([[0.2, 0.4], [np.nan, 0.8]])).round(2).tolist()
    [0.3, 0.8]
    """
    counted = np.isfinite(table).sum(axis=1)
    total = np.nansum(table, axis=1)
    return np.asarray(np.divide(total, counted, out=np.full(len(total), np.nan), where=counted > 0))


def refuse_outside(grades: Array) -> None:
    """Raise an error unless all readers' grades lie in [0, 1].

    Parameters
    ----------
    grades : ndarray
        Readers' probabilities; NaN where missing.

    Raises
    ------
    CadError
        For the first grade outside [0, 1]; the message has its value.

    Examples
    --------
    >>> import numpy as np
    >>> refuse_outside(np.array([[0.25, 1.0], [np.nan, 0.0]]))
    >>> refuse_outside(np.array([[0.25, 4.0]]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    cad.base.errors.CadError: a reader's grade is 4, must lie in [0, 1] ...
    """
    values = grades[np.isfinite(grades)]
    outside = values[(values < 0) | (values > 1)]
    if len(outside):
        raise CadError(
            f"a reader's grade is {outside[0]:g}, must lie in [0, 1]",
            hint="turn scores into probabilities first (labels.scales)",
        )
