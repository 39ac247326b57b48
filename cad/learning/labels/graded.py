"""Readers who differ in thresholds and in noise, without any histology (docs/methods.md 8).

Every region has a severity x ~ N(0, 1), and reader r gives grade k or less with probability
Phi(t_rk - a_r x): thresholds and a precision of their own. The answer is the grade that the panel
is expected to give at the region's severity, which is the mean with the readers' noise and
inclinations taken out as far as the others' scores tell.
"""

from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr, ndtri

from cad.learning.labels.pooled import Belief, MeanReaders, refuse_outside

Array = NDArray[np.float64]

_NODES = np.linspace(-4.0, 4.0, 61)
_PRIOR = np.exp(-(_NODES**2) / 2) / np.exp(-(_NODES**2) / 2).sum()
_ROUNDS, _TOLERANCE = 200, 1e-4  # of EM; nats of the whole likelihood
_LEAST = 1e-12  # a probability below is taken for it
_FEWEST = 3  # with two readers one correlation cannot tell two precisions


class GradedReaders:
    """Estimate the mean grade that all readers together are expected to give, by a latent model.

    A grade is the probability of malignancy that a reader's score states. The model has one
    severity for each region, and thresholds and a precision for each reader; it is fitted by
    expectation maximisation (EM).

    Attributes
    ----------
    levels_ : ndarray, shape (n_levels,)
        Different grades in the training regions.
    precision_ : ndarray, shape (n_readers,)
        Precision of each reader; the prior of its logarithm is N(0, 1).
    identified_ : bool
        False with fewer than three readers or two grades; the readers' mean is then used.
    note : str
        Sentence that a run must show; empty when there is none.
    """

    note = ""

    def fit(self, grades: Array, truth: Array) -> Self:
        """Fit to the training regions and return this object.

        Parameters
        ----------
        grades : ndarray, shape (n, n_readers)
            Readers' probabilities of malignancy; NaN where missing.
        truth : ignored
            Accepted so that consensus rules can be exchanged.

        Raises
        ------
        CadError
            For grades outside [0, 1].
        """
        refuse_outside(grades)
        known = np.isfinite(grades)
        self.levels_ = np.unique(grades[known])
        used = int(known.any(axis=0).sum())
        self.identified_ = used >= _FEWEST and len(self.levels_) >= 2
        if not self.identified_:
            self.note = (
                f"labels.consensus graded: {used} readers and {len(self.levels_)} different grades "
                f"among the training regions cannot identify the readers' noise ({_FEWEST} readers "
                "and 2 grades could); the mean is taken"
            )
            return self
        self.note = ""
        seen = self._seen(grades)
        readers = [_start(seen[:, :, r]) for r in range(grades.shape[1])]
        before = -np.inf
        for _ in range(_ROUNDS):
            self._tables = np.stack([_log_table(theta) for theta in readers])
            posterior, total = _posterior(seen, self._tables)
            # EM never lowers the likelihood: it ends where a round no longer raises it.
            if total - before < _TOLERANCE:
                break
            before = total
            # The M-step falls apart into readers: each needs its own expected counts only.
            counts = np.einsum("lnr,nq->rlq", seen, posterior)
            readers = [_improve(theta, part) for theta, part in zip(readers, counts, strict=True)]
        self.precision_ = np.exp([theta[0] for theta in readers])
        return self

    def predict(self, grades: Array) -> Belief:
        """Return the expected mean grade of each region (``p``) and its deviation (``eta``).

        ``eta`` is a standard deviation. ``grades`` has shape (n, n_readers), NaN where missing. A
        grade that no training region had counts as the nearest of ``levels_``. A region without a
        grade gets NaN. Where the model is not identified, the result is that of
        :class:`MeanReaders`.
        """
        refuse_outside(grades)
        if not self.identified_:
            return MeanReaders().predict(grades)
        # g(x): the mean over readers of the grade that each is expected to give at x.
        panel = np.einsum("l,rlq->q", self.levels_, np.exp(self._tables)) / len(self._tables)
        posterior = _posterior(self._seen(grades), self._tables)[0]
        p = posterior @ panel
        spread = np.sqrt(np.maximum(posterior @ panel**2 - p**2, 0.0))
        nobody = ~np.isfinite(grades).any(axis=1)
        return Belief(np.where(nobody, np.nan, p), np.where(nobody, np.nan, spread))

    def _seen(self, grades: Array) -> Array:
        """Return 1 where a reader gave a level, shape (levels, n, readers)."""
        gap = np.abs(np.where(np.isfinite(grades), grades, 0.0) - self.levels_[:, None, None])
        # A grade of another scale, or of a reader's own making, still says where he stands.
        nearest = np.argmin(gap, axis=0)
        found: Array = (nearest == np.arange(len(self.levels_))[:, None, None]).astype(float)
        return found * np.isfinite(grades)


def _posterior(seen: Array, tables: Array) -> tuple[Array, float]:
    """Return P(x | grades) on the nodes, shape (n, nodes), and the log-likelihood."""
    log = np.einsum("lnr,rlq->nq", seen, tables) + np.log(_PRIOR)
    # log-sum-exp: the product of many readers' probabilities underflows.
    top = log.max(axis=1, keepdims=True)
    weight = np.exp(log - top)
    total = weight.sum(axis=1, keepdims=True)
    return weight / total, float(np.sum(top + np.log(total)))


def _start(seen: Array) -> Array:
    """Return log precision, first threshold and log steps that give the reader's shares."""
    # One more of each level: a level that a reader never gave needs a finite threshold.
    share = (seen.sum(axis=1) + 1) / (seen.sum() + len(seen))
    # At a = 1 the latent score has variance 2, of severity and of the reader.
    cuts = np.sqrt(2.0) * ndtri(np.cumsum(share)[:-1])
    return np.concatenate([[0.0, cuts[0]], np.log(np.diff(cuts))])


def _cuts(theta: Array) -> Array:
    """Return t_rk - a_r x, shape (levels - 1, nodes)."""
    # Steps as logarithms: thresholds increase whatever the descent tries.
    cuts = theta[1] + np.concatenate([[0.0], np.cumsum(np.exp(theta[2:]))])
    return np.asarray(cuts[:, None] - np.exp(theta[0]) * _NODES)


def _log_table(theta: Array) -> Array:
    """Return log P(level | x) on the nodes, shape (levels, nodes)."""
    z = _cuts(theta)
    inner = np.log(np.maximum(ndtr(z[1:]) - ndtr(z[:-1]), _LEAST))
    # log_ndtr in the tails, where a difference of two numbers near 1 has no digits.
    return np.vstack([log_ndtr(z[:1]), inner, log_ndtr(-z[-1:])])


def _improve(theta: Array, counts: Array) -> Array:
    """Fit one reader to the expected counts, with the prior of the log precision."""

    def loss(value: Array) -> tuple[float, Array]:
        log = _log_table(value)
        ratio = counts / np.maximum(np.exp(log), _LEAST)
        by_cut = np.exp(-(_cuts(value) ** 2) / 2) / np.sqrt(2 * np.pi) * (ratio[:-1] - ratio[1:])
        total = by_cut.sum(axis=1)
        slope = np.empty(len(value))
        slope[0] = value[0] + np.exp(value[0]) * float(np.sum(by_cut @ _NODES))
        # A threshold moves with the first and with every step up to it.
        slope[1] = -total.sum()
        slope[2:] = -np.exp(value[2:]) * (total.sum() - np.cumsum(total)[:-1])
        return float(value[0] ** 2 / 2 - np.sum(counts * log)), slope

    # A few steps: the next round has other counts.
    return np.asarray(minimize(loss, theta, method="L-BFGS-B", jac=True, options={"maxiter": 10}).x)
