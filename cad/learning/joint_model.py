"""Model regions and their man together: the probability of cancer, given beliefs and readers.

Region i belongs to a man. The region has a belief b_i: the probability that readers would call it
malignant, computed from the images. It may also have s_i, the logit of the mean of its readers'
scores. The model is::

    logit r_i(t) = a + b logit b_i + c s_i + d density + e age + t,    t ~ N(0, tau^2) of the man,
    r_i = integral of r_i(t),
    P(man) = 1 - integral of (1 - u(t)) prod_i (1 - r_i(t)),
    logit u(t) = f + g density + t,

r_i is the probability of cancer in region i, and t an effect that all regions of a man share.
``density`` is the logarithm of PSA density and ``age`` is in decades, both minus their training
mean. u, the leak, is the probability of cancer outside the outlined regions. The leak is in the
model only if the training has men whose truth is known beyond their regions (systematic biopsy,
prostatectomy). The parameters a to g and tau are learned from histology.

The integrals are over the distribution of t. They are computed as sums over 15 Gauss-Hermite nodes,
both in the fit and in predictions. At every node max r_i <= P(man) <= u + sum r_i, so this also
holds for the sums. The parameters maximise the marginal likelihood times normal priors
(docs/methods.md 9).

There are two sets of parameters: one for images alone, in which c is 0, and one with readers'
scores. The set with readers' scores is used for a region with a readers' mean, the set for images
alone for any other region. If a man has regions of both kinds, they share one t.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import expit, log_expit, logit, logsumexp
from scipy.stats import t as t_distribution

from cad.base.errors import CadError

# Largest absolute value of a stored parameter. Parameters are added to log-odds or are logarithms.
# With a larger parameter, probabilities would be rounded to 0 or 1, or numbers would overflow.
_LARGEST_PARAMETER = 50.0
TERMS = (
    "intercept",
    "belief",
    "readers",
    "density",
    "age",
    "density unknown",
    "age unknown",
    "leak",
    "leak density",
    "log effect",
)
"""Names of the parameters of a set, in order. In the formulas of this module ``leak`` is f, ``leak
density`` is g, and ``log effect`` is log tau.
"""
INTERCEPT, BELIEF, READERS, DENSITY, AGE, NO_DENSITY, NO_AGE, LEAK, LEAK_DENSITY, EFFECT = range(10)
PRIOR_MEAN = np.array([0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, -3.0, 0.0, -0.5])
PRIOR_SD = np.array([1.5, 0.35, 0.5, 1.0, 0.5, 0.5, 0.5, 1.5, 0.5, 1.0])
"""Standard deviations of the priors of the set for images alone. The set with readers' scores has
the same priors, except for :data:`WITH_READERS_MEAN` and :data:`WITH_READERS_SD`.
"""
WITH_READERS_MEAN = (0.6, 0.3)
WITH_READERS_SD = (0.5, 0.5)
"""Standard deviations of the priors of two weights in the set with readers' scores: the weight of
the belief and the weight of the readers' mean.
"""
SITE_MEAN = np.array([0.0, 1.0, 0.0, 0.0])
SITE_SD = np.array([1.0, 0.35, 0.5, 0.5])
"""Standard deviations of the priors of the four changes by which a model is moved to a site: of the
intercept, the slope, the leak and the log effect (:meth:`JointModel.recalibrated`).
"""
LEVEL = 0.95
"""Confidence level of the ranges, the intervals that are given with the probabilities."""
LEAST_DEGREES = 2.0
"""Least degrees of freedom of Student's quantile in a range, also for very few men."""
CLIP = 1e-6
"""Beliefs are clipped to this distance from 0 and 1 before logarithms."""
READERS_CLIP = 0.05
"""A readers' mean that is nearer than this to 0 or 1 is moved to this distance before its logit is
taken.
"""
LEAST_SITE_MEN = 30
"""Least number of men with known truth for a recalibration to a site."""
WHOLE = 100
"""With up to this number of men of known truth, each man is left out alone (:func:`left_out`)."""
BLOCKS = 20
"""Number of groups of men that are left out in turn, if there are more than ``WHOLE`` men."""

_POINTS, _MASS = hermegauss(15)
_WEIGHT = _MASS / _MASS.sum()
_STEP = 1e-5
"""Step of the central differences that show how a site's optimum changes with the model."""


@dataclass(frozen=True)
class MenAndRegions:
    """Hold regions and their men, with the facts that are known of both.

    :func:`of_arrays` makes an object of this class.

    Parameters
    ----------
    belief : ndarray, shape (n,)
        Belief of each region, in [0, 1]; NaN where a region has no belief. Such a region gets no
        probability, and the P(man) of its man is computed from his other regions.
    man : ndarray of int, shape (n,)
        Index of each region's man, 0 to m - 1. A man may have no region.
    readers : ndarray, shape (n,)
        Logit of each region's mean score (:func:`readers_logit`); NaN where nobody scored.
    truth : ndarray, shape (n,)
        Histology of each region: 1 malignant, 0 benign, NaN unknown.
    density, age : ndarray, shape (m,)
        Natural logarithm of PSA density (ng/mL2), and age in decades; NaN where unknown.
    truth_of_man : ndarray, shape (m,)
        Whether the man has cancer (1 or 0), where a systematic biopsy or a prostatectomy says so
        for more than his regions; NaN otherwise.
    """

    belief: np.ndarray
    man: np.ndarray
    readers: np.ndarray
    truth: np.ndarray
    density: np.ndarray
    age: np.ndarray
    truth_of_man: np.ndarray

    @property
    def men(self) -> int:
        """Return the number of men."""
        return len(self.density)

    def of_men(self, chosen: np.ndarray) -> MenAndRegions:
        """Return some of the men with their regions; both keep their order.

        Parameters
        ----------
        chosen : ndarray of bool, shape (m,)
            Whether each man is returned.
        """
        is_chosen = chosen[self.man]
        # A chosen man's new number is the number of chosen men before him.
        number_among_chosen = np.cumsum(chosen) - 1
        return MenAndRegions(
            belief=self.belief[is_chosen],
            man=number_among_chosen[self.man[is_chosen]],
            readers=self.readers[is_chosen],
            truth=self.truth[is_chosen],
            density=self.density[chosen],
            age=self.age[chosen],
            truth_of_man=self.truth_of_man[chosen],
        )

    def histology_of_men(self) -> np.ndarray:
        """Return every man's truth: 1, 0, or NaN where it is not known, shape (m,).

        Where ``truth_of_man`` is known, it is the man's truth. Elsewhere the value is 1 for a man
        with a malignant region and 0 for a man whose regions are all benign.
        """
        of_regions = truth_of_regions(self.truth, self.man, self.men)
        return np.where(np.isfinite(self.truth_of_man), self.truth_of_man, of_regions)


def truth_of_regions(truth: np.ndarray, man: np.ndarray, men: int) -> np.ndarray:
    """Return each man's truth from that of his regions.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1 or 0 by histology of a region, NaN where unknown.
    man : ndarray of int, shape (n,)
        Index of each region's man, 0 to ``men`` - 1.
    men : int
        Number of men.

    Returns
    -------
    ndarray, shape (men,)
        1 for a man with a malignant region, 0 for a man who has regions, all of them benign. NaN
        for any other man.

    Examples
    --------
    >>> truth_of_regions(np.array([0.0, 1.0, 0.0, np.nan]), np.array([0, 0, 1, 2]), 4)
    array([ 1.,  0., nan, nan])
    """
    has_malignant = np.bincount(man[truth == 1], minlength=men) > 0
    benign_regions = np.bincount(man[truth == 0], minlength=men)
    regions = np.bincount(man, minlength=men)
    of_men = np.where((regions > 0) & (benign_regions == regions), 0.0, np.nan)
    of_men[has_malignant] = 1.0
    return of_men


def of_arrays(
    belief: ArrayLike,
    man: ArrayLike,
    men: int,
    *,
    readers: ArrayLike | None = None,
    truth: ArrayLike | None = None,
    density: ArrayLike | None = None,
    age: ArrayLike | None = None,
    truth_of_man: ArrayLike | None = None,
) -> MenAndRegions:
    """Check arrays and return them as men and regions.

    The values of an array that is not given are unknown.

    Parameters
    ----------
    belief, man, readers, truth : array, shape (n,)
        See :class:`MenAndRegions`.
    men : int
        Number of men.
    density, age, truth_of_man : array, shape (men,)
        See :class:`MenAndRegions`.

    Returns
    -------
    MenAndRegions
        The arrays as floats of shape (n,) for regions and (men,) for men; an array that is not
        given is NaN throughout. ``man`` has whole numbers.

    Raises
    ------
    CadError
        For an array of the wrong length, infinite values, beliefs outside [0, 1], truths other than
        0 and 1, and an index that belongs to no man. Also for a man whose ``truth_of_man`` is 0
        although he has a malignant region.

    Examples
    --------
    >>> data = of_arrays([0.1, 0.7, 0.3], [0, 0, 1], 2, truth=[0, 1, 0])
    >>> data.histology_of_men().tolist()
    [1.0, 0.0]
    """
    man_index = np.asarray(man)
    # numpy turns an empty list into an array of floats, so only an array with values is checked.
    if man_index.ndim != 1 or (
        len(man_index) > 0 and not np.issubdtype(man_index.dtype, np.integer)
    ):
        raise CadError(
            f"man is one whole number a region, not {man_index.dtype} of {man_index.ndim} axes"
        )
    if len(man_index) > 0 and (man_index.min() < 0 or man_index.max() >= men):
        raise CadError(
            f"man runs from {man_index.min()} to {man_index.max()}, there are {men} men from 0"
        )
    regions = len(man_index)
    data = MenAndRegions(
        belief=_checked_column("belief", belief, regions, limits=(0.0, 1.0)),
        man=man_index.astype(int),
        readers=_checked_column("readers", readers, regions),
        truth=_checked_column("truth", truth, regions, limits=(0.0, 1.0)),
        density=_checked_column("density", density, men),
        age=_checked_column("age", age, men),
        truth_of_man=_checked_column("truth_of_man", truth_of_man, men, limits=(0.0, 1.0)),
    )
    for name in ("truth", "truth_of_man"):
        values = getattr(data, name)
        if not np.isin(values[np.isfinite(values)], (0.0, 1.0)).all():
            raise CadError(f"{name} is 0, 1 or unknown (NaN), and nothing between")
    has_malignant = np.bincount(data.man[data.truth == 1], minlength=men) > 0
    contradicted = np.flatnonzero((data.truth_of_man == 0) & has_malignant)
    if len(contradicted) > 0:
        raise CadError(
            f"man {contradicted[0]} is said to be free of cancer and has a malignant region",
            hint="correct the truth of the man, or that of the region",
        )
    return data


def readers_logit(mean: ArrayLike) -> np.ndarray:
    """Return the logits of readers' means.

    A mean below .05 is first replaced by .05, and a mean above .95 by .95. NaN stays NaN.

    Parameters
    ----------
    mean : array, shape (n,)
        Mean of a region's scores as probabilities, in [0, 1].

    Returns
    -------
    ndarray, shape (n,)
        Logit of each mean, from -2.94 to 2.94; NaN stays NaN.

    Examples
    --------
    >>> readers_logit([0.0, 0.5, 1.0]).round(2).tolist()
    [-2.94, 0.0, 2.94]
    """
    # The logit of 0 or 1 is infinite.
    clipped = np.clip(np.asarray(mean, dtype=float), READERS_CLIP, 1 - READERS_CLIP)
    return np.asarray(logit(clipped))


def effective_number(sizes: ArrayLike) -> float:
    """Return the effective number of men, (sum n_i)^2 / sum n_i^2, where man i has n_i regions.

    It is the number of men with regions if all of them have equally many. It is less if a few men
    have most of the regions.

    Parameters
    ----------
    sizes : array, shape (m,)
        Number of regions of each man.

    Examples
    --------
    >>> effective_number([3, 3, 3, 0]), effective_number([8, 1, 1])
    (3.0, 1.5151515151515151)
    """
    counts = np.asarray(sizes, dtype=float)
    # Without any region the quotient would be 0 / 0; with 1 below, the result is 0.
    return float(counts.sum() ** 2 / max(counts @ counts, 1.0))


@dataclass(frozen=True)
class JointPrediction:
    """Hold a joint model's probabilities of regions and men.

    Parameters
    ----------
    probability : ndarray, shape (n,)
        Probability of cancer in each region, from images and, where there are any, readers' scores;
        NaN without a belief.
    low, high : ndarray, shape (n,)
        Ends of the range of ``probability``; the range contains the probability.
    probability_images : ndarray, shape (n,)
        Probability of cancer in each region, computed without readers' scores. It equals
        ``probability`` for a region without scores.
    man : ndarray, shape (m,)
        Probability that each man has cancer: in his regions, and outside them where the model has a
        leak. NaN for a man without a region where the model has no leak.
    man_low, man_high : ndarray, shape (m,)
        Ends of the range of ``man``.
    man_images : ndarray, shape (m,)
        Probability that each man has cancer, without readers' scores.
    leak : ndarray, shape (m,)
        Probability of cancer outside the regions (u); 0 where the model has no leak.
    notes : tuple of str, length m
        For each man, the facts that the model would use but that are unknown, in words; empty where
        all are known.
    """

    probability: np.ndarray
    low: np.ndarray
    high: np.ndarray
    probability_images: np.ndarray
    man: np.ndarray
    man_low: np.ndarray
    man_high: np.ndarray
    man_images: np.ndarray
    leak: np.ndarray
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Taught:
    """Hold the numbers of men and regions with known truth to which a joint model was fitted.

    Parameters
    ----------
    men, regions, regions_with_readers : int
        Numbers of men and of regions with known truth, and of those regions that also have a
        readers' mean.
    effective_men : float
        (sum n_i)^2 / sum n_i^2, where man i has n_i regions. It is the number of men if all have
        equally many regions, and less if a few men have most of the regions.
    prevalence_of_regions, prevalence_of_men : float
        Share of malignant regions and share of men with cancer, among regions and men whose truth
        is known; NaN where no truth is known.
    """

    men: int
    regions: int
    regions_with_readers: int
    effective_men: float
    prevalence_of_regions: float
    prevalence_of_men: float


@dataclass(frozen=True)
class JointModel:
    """Compute the probability of cancer of regions and men from beliefs.

    :func:`fit_joint` fits a model.

    Parameters
    ----------
    estimate : ndarray, shape (2, 10)
        The parameters in the order of ``TERMS``. The first row is the set for images alone, the
        second row the set with readers' scores.
    covariance : ndarray, shape (20, 20)
        Covariance of the parameters, in this order: those of the first row of ``estimate``, then
        those of the second row.
    centre : ndarray, shape (2,)
        Training means of the logarithm of PSA density and of age (decades); 0 if the value was
        unknown for all men.
    free : ndarray of bool, shape (2, 10)
        Whether each parameter was fitted, because the training data could tell something about it.
        All other parameters are 0 and without effect.
    taught : Taught
        Numbers of men and regions in the training, and their prevalence of cancer.
    notes : tuple of str
        The facts that the training lacked, in words.
    prevalence : float or None
        Share of men with cancer that was stated for the place of use; None where none was stated.
    shift : float
        Number that was added to the model's log-odds so that it has the stated ``prevalence``; 0 if
        none was stated.
    """

    estimate: np.ndarray
    covariance: np.ndarray
    centre: np.ndarray
    free: np.ndarray
    taught: Taught
    notes: tuple[str, ...] = ()
    prevalence: float | None = None
    shift: float = 0.0

    @property
    def effect(self) -> np.ndarray:
        """Return tau, the standard deviation of a man's effect, shape (2,).

        The first number is for the set of parameters for images alone, the second for the set with
        readers' scores.
        """
        return np.asarray(np.exp(self.estimate[:, EFFECT]))

    @property
    def has_leak(self) -> bool:
        """Return whether the model contains u, the probability of cancer outside the regions."""
        return bool(self.free[0, LEAK])

    @property
    def has_readers(self) -> bool:
        """Return whether the model uses readers' scores."""
        return bool(self.free[1, READERS])

    def predict(self, data: MenAndRegions) -> JointPrediction:
        """Return the probabilities of regions and men.

        Truths in ``data`` are not used, because a prediction uses only facts that are known before
        a biopsy.

        Parameters
        ----------
        data : MenAndRegions
            The men and their regions.
        """
        has_belief = np.isfinite(data.belief)
        with_readers = has_belief & np.isfinite(data.readers) & self.has_readers
        probability, gradient, man_probability, man_gradient, leak = self._integrals(
            data, with_readers
        )
        without_readers = np.zeros(len(data.belief), dtype=bool)
        probability_images, _, man_images, _, _ = self._integrals(data, without_readers)
        # The gradients by the model's parameters tell how uncertain the probabilities are.
        low, high = self._range(probability, gradient)
        man_low, man_high = self._range(man_probability, man_gradient)
        return JointPrediction(
            probability=probability,
            low=low,
            high=high,
            probability_images=probability_images,
            man=man_probability,
            man_low=man_low,
            man_high=man_high,
            man_images=man_images,
            leak=leak,
            notes=self._lacking(data, has_belief),
        )

    def shifted(
        self, prevalence: float, data: MenAndRegions, weight: np.ndarray | None = None
    ) -> JointModel:
        """Return the model moved to a place where another share of the men has cancer.

        The same number is added to the log-odds of all regions and to the log-odds of the leak
        (cancer outside the regions). The number is such that the mean P(man) of the given men is
        the stated share. P(man), the probability that a man has cancer, is never below the
        probability of one of his regions.

        Parameters
        ----------
        prevalence : float
            Share of men with cancer, in (0, 1).
        data : MenAndRegions
            An unselected sample of the men at the place; a handful is too few. Where men come one
            by one, give the men of the training here, with the ``weight`` of :func:`weight_of_men`.
            Then a man's probability does not depend on the other men who are examined.
        weight : ndarray, shape (m,), optional
            How often each man counts; if not given, once.

        Raises
        ------
        CadError
            For a share that is not between 0 and 1, and if there is no man of positive weight with
            a P(man).

        Examples
        --------
        >>> data = of_arrays([0.1, 0.2, 0.7, 0.3], [0, 0, 1, 2], 3, truth=[0, 0, 1, 0])
        >>> model = fit_joint(data).shifted(0.1, data)
        >>> round(float(model.predict(data).man.mean()), 6)
        0.1
        """
        if not 0 < prevalence < 1:
            raise CadError(
                f"a prevalence of {prevalence:g} is not between 0 and 1: nothing would be asked",
                hint="state the share of men with significant cancer where the model is used",
            )
        with_readers = np.isfinite(data.belief) & np.isfinite(data.readers) & self.has_readers
        man_weight = np.ones(data.men)
        if weight is not None:
            man_weight = np.asarray(weight, dtype=float)
        _, _, probability_of_man, _, _ = self._integrals(data, with_readers)
        is_counted = np.isfinite(probability_of_man) & (man_weight > 0)
        if not is_counted.any():
            raise CadError("no man has a region with a belief: there is nothing to shift")

        def excess(shift: float) -> float:
            """Return by how much the mean P(man) exceeds the prevalence, after a shift."""
            _, _, moved, _, _ = self._moved(shift)._integrals(data, with_readers)
            mean = float(np.average(moved[is_counted], weights=man_weight[is_counted]))
            return mean - prevalence

        # The mean P(man) rises with the shift. The search for the shift needs two bounds, one at
        # which the mean is below the prevalence, and one at which it is above.
        bound = 10.0
        while excess(-bound) > 0 or excess(bound) < 0:
            bound *= 2
        shift = float(brentq(excess, -bound, bound, xtol=1e-12))
        # This model may itself have been shifted, and the stored shift is the sum.
        return replace(self._moved(shift), prevalence=prevalence, shift=self.shift + shift)

    def recalibrated(self, data: MenAndRegions, least: int = LEAST_SITE_MEN) -> JointModel:
        """Return the model moved to a site, where it is corrected by men of known truth.

        Four numbers a, c, l and d are fitted. The log-odds of a region at the site are a + c z,
        where z are the model's log-odds. The log-odds of the leak at the site are the model's
        log-odds plus a + l. A man's effect is exp(d) times as large as in the model. The priors are
        a ~ N(0, 1), c ~ N(1, .35), l ~ N(0, .5) and d ~ N(0, .5); the second number is the standard
        deviation.

        The model has two sets of parameters. The set for regions with readers' scores is moved by
        the site's regions that have scores. If no region has scores, this set is moved like the set
        for images alone.

        Parameters
        ----------
        data : MenAndRegions
            The site's men and regions, with the truth of some of them.
        least : int
            Least number of men with known truth.

        Raises
        ------
        CadError
            For fewer men than ``least``; if all truths are malignant or all are benign; and for c
            <= 0, that is, if regions of higher probability are less often malignant.
        """
        informative = _informative_men(data)
        if informative.sum() < least:
            raise CadError(
                f"{informative.sum()} men with histology and a belief, {least} are needed to "
                "recalibrate",
                hint="wait for more histology; the model stays as it is",
            )
        truths = np.concatenate([data.truth, data.truth_of_man])
        if len(np.unique(truths[np.isfinite(truths)])) < 2:
            raise CadError(
                "all histology of the site is of one kind: nothing to recalibrate with",
                hint="wait for histology of the other kind; the model stays as it is",
            )
        # One move for each set of parameters: 0 is the set for images alone, 1 that with readers.
        moves = [self._site_move(data, row=0)]
        notes = list(self.notes)
        if self.has_readers and np.isfinite(data.readers[np.isfinite(data.truth)]).any():
            moves.append(self._site_move(data, row=1))
        else:
            moves.append(moves[0])
            if self.has_readers:
                notes.append("no readers' scores at the site: both sets are moved as by images")
        # The second of the four changes is c, by which log-odds are multiplied.
        slope = min(float(move.value[1]) for move in moves)
        if slope <= 0:
            raise CadError(
                f"the model ranks these {informative.sum()} men the wrong way (slope {slope:.2f}): "
                "it is no model here",
                hint="check histology and outlines, or train on the site's men",
            )
        # Twice ten parameters and twice four changes make the shapes below. The arrays hold the
        # derivatives of the site's parameters by the changes and by the model's parameters, and
        # those of the changes by the model's parameters.
        estimate = np.empty_like(self.estimate)
        by_move = np.zeros((20, 8))
        by_model = np.zeros((20, 20))
        move_by_model = np.zeros((8, 20))
        for row, move in enumerate(moves):
            of_set = slice(10 * row, 10 * row + 10)
            of_changes = slice(4 * row, 4 * row + 4)
            # If no region of the site has scores, both moves were fitted to the set for images.
            of_fitted_set = slice(10 * move.row, 10 * move.row + 10)
            estimate[row] = _moved_by_site(self.estimate[row], move.value)
            by_move[of_set, of_changes] = _by_site_move(self.estimate[row])
            by_model[of_set, of_set] = _by_model(move.value)
            move_by_model[of_changes, of_fitted_set] = move.by_model
        # Two uncertainties add up. One is the uncertainty of the site's changes. The other is the
        # uncertainty of the model that remains after the site's men have corrected it. For example,
        # these men correct an intercept that was wrong, so its old uncertainty does not remain.
        remaining = by_model + by_move @ move_by_model
        covariance = by_move @ _covariance([move.solution for move in moves]) @ by_move.T
        covariance += remaining @ self.covariance @ remaining.T
        # A parameter that was not fitted has no uncertainty.
        covariance *= np.outer(self.free.ravel(), self.free.ravel())
        return replace(
            self,
            estimate=np.where(self.free, estimate, 0.0),
            covariance=covariance,
            taught=_taught(data),
            notes=tuple(notes),
            # The site's men now set the level, so a prevalence that was stated before is void.
            prevalence=None,
            shift=0.0,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the model as a dict that JSON can hold, for a model bundle."""
        return {
            "terms": list(TERMS),
            "estimate": self.estimate.tolist(),
            "covariance": self.covariance.tolist(),
            "centre": self.centre.tolist(),
            "free": self.free.tolist(),
            "taught": {
                "men": self.taught.men,
                "regions": self.taught.regions,
                "regions_with_readers": self.taught.regions_with_readers,
                "effective_men": self.taught.effective_men,
                "prevalence_of_regions": _or_none(self.taught.prevalence_of_regions),
                "prevalence_of_men": _or_none(self.taught.prevalence_of_men),
            },
            "notes": list(self.notes),
            "prevalence": self.prevalence,
            "shift": self.shift,
        }

    def _moved(self, shift: float) -> JointModel:
        """Return the model after ``shift`` was added to the log-odds of the regions and of the
        leak.
        """
        # A parameter that was not fitted must stay 0, which the factor ``free`` ensures.
        estimate = self.estimate.copy()
        estimate[:, INTERCEPT] += shift * self.free[:, INTERCEPT]
        estimate[:, LEAK] += shift * self.free[:, LEAK]
        return replace(self, estimate=estimate)

    def _integrals(
        self, data: MenAndRegions, with_readers: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return probabilities of regions and men, with gradients, as averages over men's effects.

        There are five results:

        - the probability r_i of cancer in each region, shape (n,)
        - the gradient of the logit of r_i, shape (n, 20)
        - the probability P(man) that each man has cancer, shape (m,)
        - the gradient of the logit of P(man), shape (m, 20)
        - the leak u, the probability of cancer outside each man's regions, shape (m,)

        Gradients are with respect to all 20 numbers of ``estimate``.
        """
        # The integral over a man's effect is a sum over nodes. ``_POINTS`` and ``_WEIGHT`` are the
        # nodes of a standard normal effect and their weights, which sum to 1.
        has_belief = np.isfinite(data.belief)
        # 0 is the set of parameters for images alone, 1 the set with readers' scores.
        set_of_region = with_readers.astype(int)
        # For a region without readers' scores the model uses the set of parameters for images
        # alone. This set needs no special case, because in it the weight of readers' scores is 0.
        design = _by_row(_design_of_regions(data, self.centre), set_of_region)
        effect = self.effect[set_of_region][:, None] * _POINTS
        odds = (design @ self.estimate.ravel())[:, None] + effect
        risk = expit(odds)
        probability = np.where(has_belief, risk @ _WEIGHT, np.nan)
        # The risk at each value of the man's effect is expit(odds), so its derivative by the odds
        # is risk (1 - risk). The odds depend on the coefficients through the design, and on log tau
        # through the effect. The derivative of a logit is that of the probability, divided by
        # p (1 - p).
        by_odds = risk * (1 - risk) * _WEIGHT
        gradient = by_odds.sum(axis=1)[:, None] * design
        gradient += _by_row(_effect_column((by_odds * effect).sum(axis=1)), set_of_region)
        gradient /= (probability * (1 - probability))[:, None]

        # The probability that all regions of a man are free of cancer is a product over his
        # regions, and also over the leak. If no region has a belief, the product over regions is 1.
        belongs = _belongs(data.man, has_belief, data.men)
        log_free = belongs @ log_expit(-odds)
        # The leak of a man with a region that has readers' scores is that of the set with scores.
        set_of_man = np.zeros(data.men, dtype=int)
        set_of_man[data.man[with_readers]] = 1
        leak_design = _by_row(_leak_columns(data, self.centre), set_of_man)
        leak_effect = self.effect[set_of_man][:, None] * _POINTS
        leak_risk = np.zeros_like(log_free)
        if self.has_leak:
            leak_odds = (leak_design @ self.estimate.ravel())[:, None] + leak_effect
            leak_risk = expit(leak_odds)
            log_free += log_expit(-leak_odds)
        weighted_free = np.exp(log_free) * _WEIGHT
        leak = leak_risk @ _WEIGHT
        man_probability = 1 - weighted_free.sum(axis=1)
        # In exact arithmetic P(man), the probability that a man has cancer, is at least the largest
        # probability r_i of cancer in one of his regions. It is at most the sum of the r_i and of
        # the leak. Clipping ensures this in spite of rounding errors.
        at_least = np.zeros(data.men)
        np.maximum.at(at_least, data.man[has_belief], probability[has_belief])
        at_most = leak + belongs @ np.where(has_belief, probability, 0.0)
        man_probability = np.clip(
            man_probability, np.maximum(at_least, leak), np.minimum(at_most, 1.0)
        )
        # Of a man without a belief only the leak is known, if the model has one.
        has_region = np.bincount(data.man[has_belief], minlength=data.men) > 0
        man_probability = np.where(has_region | self.has_leak, man_probability, np.nan)

        # At a node, P(man) is 1 minus a product of factors 1 - expit(odds), one for each region and
        # for the leak. So its derivative by the odds of one factor is this product (in
        # ``weighted_free``) times the risk of the factor.
        man_by_odds = weighted_free[data.man] * risk
        by_region = man_by_odds.sum(axis=1)[:, None] * design
        by_region += _by_row(_effect_column((man_by_odds * effect).sum(axis=1)), set_of_region)
        man_by_leak = weighted_free * leak_risk
        man_gradient = belongs @ by_region + man_by_leak.sum(axis=1)[:, None] * leak_design
        man_gradient += _by_row(_effect_column((man_by_leak * leak_effect).sum(axis=1)), set_of_man)
        # A P(man) of 0, 1 or NaN has no gradient of its logit.
        with np.errstate(divide="ignore", invalid="ignore"):
            man_gradient /= (man_probability * (1 - man_probability))[:, None]
        return probability, gradient, man_probability, man_gradient, leak

    def _range(self, value: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the range of each value, by Wald's method on the logit scale.

        The range contains the value. The quantile is Student's, with the effective number of men
        minus 1 as degrees of freedom, but at least :data:`LEAST_DEGREES`. A normal quantile would
        be too small, because with few men a sandwich covariance is too small, even more so if one
        man has many of the regions.
        """
        # The variance of a logit is g' C g, with g its gradient and C the covariance. Rounding
        # could make it negative, so it is cut off at 0 before the root is taken.
        variance = np.einsum("ij,jk,ik->i", gradient, self.covariance, gradient)
        degrees = max(self.taught.effective_men - 1, LEAST_DEGREES)
        half_in_log_odds = t_distribution.ppf((1 + LEVEL) / 2, degrees) * np.sqrt(
            np.maximum(variance, 0.0)
        )
        log_odds = logit(value)
        # Rounding in logit and expit could put an end of the range on the wrong side of ``value``.
        low = np.minimum(expit(log_odds - half_in_log_odds), value)
        high = np.maximum(expit(log_odds + half_in_log_odds), value)
        return low, high

    def _lacking(self, data: MenAndRegions, has_belief: np.ndarray) -> tuple[str, ...]:
        """Return for each man a text on the facts that the model would use, but that he lacks."""
        regions = np.bincount(data.man, minlength=data.men)
        without_belief = np.bincount(data.man[~has_belief], minlength=data.men)
        lacking = []
        for man in range(data.men):
            words = []
            if regions[man] == 0:
                words.append("no region")
            if without_belief[man] > 0:
                words.append(f"{without_belief[man]} of {regions[man]} regions without a belief")
            if self.free[0, DENSITY] and np.isnan(data.density[man]):
                words.append("PSA density unknown")
            if self.free[0, AGE] and np.isnan(data.age[man]):
                words.append("age unknown")
            lacking.append(", ".join(words))
        return tuple(lacking)

    def _site_move(self, data: MenAndRegions, row: int) -> _SiteMove:
        """Fit the changes by which one set of parameters is moved to a site (:class:`_SiteMove`).

        The derivatives of the changes with respect to the parameters of the set are computed, too.
        ``row`` is the set's row of ``estimate``.
        """
        parameters = self.estimate[row]
        # Of the changes a, c, l and d, the third is of the leak.
        is_fitted = np.array([True, True, self.has_leak, True])
        problem = self._site_problem(data, row, parameters, is_fitted)
        prior_mean = SITE_MEAN[is_fitted]
        prior_precision = SITE_SD[is_fitted] ** -2
        solution = _maximised(problem, prior_mean, prior_precision, start=prior_mean)
        # A change that is not fitted leaves the model as it is.
        changes = np.array([0.0, 1.0, 0.0, 0.0])
        changes[is_fitted] = solution.value
        # The fitted changes depend on the parameters of the model: d(changes) = H^-1 d(gradient). H
        # is the Hessian of minus the log-posterior of the changes. The gradient is that of their
        # log-likelihood; its derivative by a parameter is computed by central differences.
        by_model = np.zeros((4, 10))
        for term in np.flatnonzero(self.free[row]):
            gradients = []
            for step in (_STEP, -_STEP):
                moved_parameters = parameters.copy()
                moved_parameters[term] += step
                moved_problem = self._site_problem(data, row, moved_parameters, is_fitted)
                _, gradients_of_men = moved_problem.scores(solution.value)
                gradients.append(gradients_of_men.sum(axis=0))
            gradient_by_term = (gradients[0] - gradients[1]) / (2 * _STEP)
            by_model[is_fitted, term] = solution.inverse_hessian @ gradient_by_term
        return _SiteMove(
            row=row,
            value=changes,
            solution=_with_unfitted(solution, is_fitted),
            by_model=by_model,
        )

    def _site_problem(
        self, data: MenAndRegions, row: int, parameters: np.ndarray, is_fitted: np.ndarray
    ) -> _Likelihood:
        """Return the likelihood of a site's men as a function of four changes a, c, l and d.

        The ``parameters`` of the set are held fixed. The log-odds of a region are multiplied by c,
        and then a is added. a + l is added to the log-odds of the leak, and d to log tau
        (:meth:`recalibrated`). ``is_fitted`` says which of the four changes are fitted.
        """
        # The set with readers' scores (1) is moved only by regions that have scores. The set for
        # images alone (0) uses no scores.
        is_used = np.isfinite(data.belief)
        if row == 1:
            is_used &= np.isfinite(data.readers)
        columns = _design_of_regions(data, self.centre)
        if row == 0:
            columns[:, READERS] = 0.0
        # The columns are what a, c, l and d multiply. The column of d is 0, because d adds to the
        # logarithm of the standard deviation of the men's effects.
        design = np.zeros((len(columns), 4))
        design[:, 0] = 1.0
        design[:, 1] = columns @ parameters
        leak_design = np.zeros((data.men, 4))
        leak_design[:, [0, 2]] = 1.0
        leak_offset = _leak_columns(data, self.centre) @ parameters
        return _Likelihood.of(
            data,
            use=is_used,
            design=design[:, is_fitted],
            leak_design=leak_design[:, is_fitted] if self.has_leak else None,
            leak_offset=leak_offset,
            log_effect=float(parameters[EFFECT]),
        )


def fit_joint(data: MenAndRegions) -> JointModel:
    """Fit the joint model to regions and men whose truth is known.

    A region of unknown truth has an effect on the fit only if the truth of its man is known beyond
    his regions. The region is then benign, or may hold the man's cancer. The parameters are the
    mode of the posterior, which is found by Newton steps. Their covariance is a sandwich covariance
    in which each man is one cluster and the priors count as further independent observations. Where
    the model is right, the expectation of this covariance is near the inverse Hessian. Where the
    model is wrong, the sandwich covariance stays valid, and the inverse Hessian does not.

    Parameters
    ----------
    data : MenAndRegions
        Men and regions. Beliefs are out of fold, on a common base
        (:attr:`cad.learning.evaluation.folds.crossval.OutOfFold.on_common_base`).

    Returns
    -------
    JointModel
        The fitted model. Its ``notes`` name the facts that the training lacked. A fit needs neither
        many men, nor truths of both kinds, nor known PSA densities and ages: where the data do not
        determine a parameter, its prior does.

    Raises
    ------
    CadError
        Where no region with a belief has a known truth.

    Examples
    --------
    >>> data = of_arrays([0.1, 0.2, 0.7, 0.3], [0, 0, 1, 2], 3, truth=[0, 0, 1, 0])
    >>> model = fit_joint(data)
    >>> new = model.predict(of_arrays([0.2, 0.6], [0, 0], 1))
    >>> bool(new.low[1] <= new.probability[1] <= new.man[0])
    True
    """
    return _fit_both_sets(data, near=None)


def weight_of_men(data: MenAndRegions, prevalence: float) -> np.ndarray:
    """Return weights of the training men with which the stated share of them has cancer.

    So weighted, the men of the training represent a place where this share of men has cancer.

    All men with cancer have the same weight, and their weights sum to the stated share. All men
    without cancer have the same weight, and their weights sum to the rest. Men of unknown truth
    have weight 0.

    Parameters
    ----------
    data : MenAndRegions
        Men of the training, with truths.
    prevalence : float
        Share of men with cancer at the place, in (0, 1).

    Returns
    -------
    ndarray, shape (m,)
        Weight of each of the m men; all weights sum to 1.

    Raises
    ------
    CadError
        If the training has no man with cancer, or no man without cancer.

    Examples
    --------
    >>> data = of_arrays([0.1, 0.2, 0.7], [0, 1, 2], 3, truth=[0, 0, 1])
    >>> weight_of_men(data, 0.1).round(3).tolist()
    [0.45, 0.45, 0.1]
    """
    truth = data.histology_of_men()
    weight = np.zeros(data.men)
    for histology, share in ((1.0, prevalence), (0.0, 1 - prevalence)):
        of_this_kind = truth == histology
        if not of_this_kind.any():
            kind = "with" if histology == 1 else "without"
            raise CadError(
                f"no man of the training is known to be {kind} cancer: he cannot stand for others",
                hint="shift by men of the place",
            )
        weight[of_this_kind] = share / of_this_kind.sum()
    return weight


def contradiction(man: ArrayLike, prevalence: float) -> str:
    """Return a sentence if the men of a cohort contradict a stated prevalence, else an empty text.

    If the prevalence is right, the mean probability of the men lies within 3 standard errors of the
    prevalence in nearly all cohorts.

    Parameters
    ----------
    man : array, shape (m,)
        Each man's probability of cancer, by a model that was shifted to the prevalence
        (:meth:`JointModel.shifted`). NaN is left out.
    prevalence : float
        Share of men with cancer that was stated.

    Examples
    --------
    >>> contradiction([0.2, 0.3, 0.4, 0.3], 0.3)
    ''
    >>> contradiction([0.7, 0.8, 0.7, 0.8], 0.3)
    'mean probability of 4 men .75, of whom .3 were stated to have cancer'
    """
    probabilities = np.asarray(man, dtype=float)
    probabilities = probabilities[np.isfinite(probabilities)]
    # The standard error needs two men.
    if len(probabilities) < 2:
        return ""
    standard_error = probabilities.std(ddof=1) / np.sqrt(len(probabilities))
    mean_probability = float(probabilities.mean())
    if abs(mean_probability - prevalence) <= 3 * standard_error:
        return ""
    # Shares are written like ".3", without the 0 before the point.
    shares = [f"{share:.2g}".lstrip("0") for share in (mean_probability, prevalence)]
    return (
        f"mean probability of {len(probabilities)} men {shares[0]}, "
        f"of whom {shares[1]} were stated to have cancer"
    )


def left_out(data: MenAndRegions, seed: int = 0) -> Iterator[tuple[np.ndarray, JointModel]]:
    """Leave men out in turn, and yield each time a model of the other men.

    If at most 100 men have a known truth, each of them is left out alone. If there are more, they
    are divided at random into 20 parts, and each part is left out in turn. The last step is for the
    men of unknown truth. They teach the model nothing, so the model of this step is the one that is
    fitted to all men.

    Parameters
    ----------
    data : MenAndRegions
        Men and regions, with truths.
    seed : int
        Seed for the random division into parts.

    Yields
    ------
    men : ndarray of bool, shape (m,)
        The men for whom the model is to be used.
    model : JointModel
        The model, fitted without the truth of these men.
    """
    model_of_all = fit_joint(data)
    informative = _informative_men(data)
    informative_indices = np.flatnonzero(informative)
    block_count = len(informative_indices)
    # If there are many men, several are left out together, so that fewer models must be fitted.
    if len(informative_indices) > WHOLE:
        informative_indices = np.random.default_rng(seed).permutation(informative_indices)
        block_count = BLOCKS
    for block in np.array_split(informative_indices, block_count):
        is_out = np.zeros(data.men, dtype=bool)
        is_out[block] = True
        training = data.of_men(~is_out)
        # A model is fitted only if a man who is left in has a region with a belief and a truth. The
        # fit starts from the model of all men, to which its result is near.
        if np.isfinite(training.truth[np.isfinite(training.belief)]).any():
            yield is_out, _fit_both_sets(training, near=model_of_all)
        else:
            raise CadError("one man alone has histology: nobody else's can teach what he gets")
    if not informative.all():
        yield ~informative, model_of_all


def predict_left_out(data: MenAndRegions, seed: int = 0) -> JointPrediction:
    """Predict each man and his regions by a model that did not see his truth (:func:`left_out`).

    Parameters
    ----------
    data : MenAndRegions
        Men and regions, with truths.
    seed : int
        Seed of the division into parts, which is random only if more than 100 men have a known
        truth.

    Returns
    -------
    JointPrediction
        Probabilities and their ranges of each region, shape (n,), and of each man, shape (m,), in
        the order of ``data``. The probability of a region without a belief is NaN.
    """
    of_regions = {
        name: np.full(len(data.belief), np.nan)
        for name in ("probability", "low", "high", "probability_images")
    }
    of_men = {
        name: np.full(data.men, np.nan)
        for name in ("man", "man_low", "man_high", "man_images", "leak")
    }
    notes = [""] * data.men
    for is_out, model in left_out(data, seed):
        predicted = model.predict(data.of_men(is_out))
        for name, values in of_regions.items():
            values[is_out[data.man]] = getattr(predicted, name)
        for name, values in of_men.items():
            values[is_out] = getattr(predicted, name)
        for man, note in zip(np.flatnonzero(is_out), predicted.notes, strict=True):
            notes[man] = note
    return JointPrediction(
        probability=of_regions["probability"],
        low=of_regions["low"],
        high=of_regions["high"],
        probability_images=of_regions["probability_images"],
        man=of_men["man"],
        man_low=of_men["man_low"],
        man_high=of_men["man_high"],
        man_images=of_men["man_images"],
        leak=of_men["leak"],
        notes=tuple(notes),
    )


def from_dict(content: dict[str, Any]) -> JointModel:
    """Return the model that :meth:`JointModel.as_dict` wrote.

    Parameters
    ----------
    content : dict
        The model's content, as read from JSON.

    Raises
    ------
    CadError
        For names of parameters, shapes or values that no fitted model has.
    """
    try:
        if tuple(content["terms"]) != TERMS:
            raise CadError(f"a joint model has the terms {', '.join(TERMS)}")
        estimate = np.asarray(content["estimate"], dtype=float)
        covariance = np.asarray(content["covariance"], dtype=float)
        centre = np.asarray(content["centre"], dtype=float)
        free = np.asarray(content["free"], dtype=bool)
        taught = Taught(
            men=int(content["taught"]["men"]),
            regions=int(content["taught"]["regions"]),
            regions_with_readers=int(content["taught"]["regions_with_readers"]),
            effective_men=float(content["taught"]["effective_men"]),
            prevalence_of_regions=_or_nan(content["taught"]["prevalence_of_regions"]),
            prevalence_of_men=_or_nan(content["taught"]["prevalence_of_men"]),
        )
        notes = tuple(str(note) for note in content["notes"])
        prevalence = content["prevalence"]
        shift = float(content["shift"])
        if prevalence is not None:
            prevalence = float(prevalence)
    except (KeyError, TypeError, ValueError) as error:
        raise CadError(f"no joint model: {type(error).__name__} {error}") from None

    terms = len(TERMS)
    shapes = {
        "estimate": (estimate, (2, terms)),
        "covariance": (covariance, (2 * terms, 2 * terms)),
        "centre": (centre, (2,)),
        "free": (free, (2, terms)),
    }
    for name, (values, shape) in shapes.items():
        if values.shape != shape:
            raise CadError(f"{name} of a joint model has shape {values.shape}, not {shape}")
        if not np.isfinite(values).all():
            raise CadError(f"{name} of a joint model holds values that are no numbers")

    largest_parameter = max(float(np.abs(values).max()) for values in (estimate, centre))
    if largest_parameter > _LARGEST_PARAMETER:
        raise CadError(
            f"a joint model holds a parameter of {largest_parameter:.3g}, which no fit gives"
        )
    # A covariance that a fit computed may miss symmetry, or have negative eigenvalues, by rounding
    # errors. They grow with the values, so the tolerance does, too.
    largest_covariance = max(1.0, float(np.abs(covariance).max()))
    if largest_covariance > _LARGEST_PARAMETER**2:
        raise CadError(
            f"a joint model holds a variance of {largest_covariance:.3g}, which no fit gives"
        )
    if not np.allclose(covariance, covariance.T, atol=1e-9 * largest_covariance):
        raise CadError("the covariance of a joint model is not symmetric")
    if np.linalg.eigvalsh(covariance).min() < -1e-9 * largest_covariance:
        raise CadError("the covariance of a joint model has negative variances")

    if (estimate[~free] != 0).any():
        raise CadError("a joint model holds parameters that training told nothing of")
    if not free[0, [INTERCEPT, BELIEF, EFFECT]].all():
        raise CadError("a joint model has an intercept, a belief and a man's effect")
    for share in (taught.prevalence_of_regions, taught.prevalence_of_men, prevalence):
        if share is not None and not np.isnan(share) and not 0 <= share <= 1:
            raise CadError(f"a prevalence of {share:g} of a joint model is outside 0 to 1")
    # The conditions below begin with "not", so that NaN is refused as well.
    if not taught.effective_men > 0 or not np.isfinite(taught.effective_men):
        raise CadError(f"{taught.effective_men:g} effective men have taught no joint model")
    if not abs(shift) <= _LARGEST_PARAMETER:
        raise CadError(f"a joint model has a shift of {shift:.3g}, which no prevalence gives")
    return JointModel(
        estimate=estimate,
        covariance=covariance,
        centre=centre,
        free=free,
        taught=taught,
        notes=notes,
        prevalence=prevalence,
        shift=shift,
    )


@dataclass(frozen=True)
class _Mode:
    """Hold the mode of a posterior, and the values from which the covariance of its parameters is
    computed.
    """

    value: np.ndarray
    inverse_hessian: np.ndarray
    scores: np.ndarray  # (m, p), gradient of the log-likelihood of each man
    precision: np.ndarray  # (p,), 1 / variance of the prior


@dataclass(frozen=True)
class _SiteMove:
    """Hold the changes a, c, l, d that move one set of a model's parameters to a site.

    ``row`` is the number of the set. If z are the log-odds of a region by the model, a + c z are
    the log-odds at the site. a + l is added to the log-odds of the leak. d is added to log tau, the
    logarithm of the standard deviation of a man's effect. ``value`` has the four changes, and
    ``by_model`` their derivatives with respect to the parameters of the set, shape (4, 10).
    """

    row: int
    value: np.ndarray
    solution: _Mode
    by_model: np.ndarray


@dataclass(frozen=True)
class _Likelihood:
    """Hold the data of the likelihood, which is integrated over a man's shared effect.

    There are n regions, m men and p parameters. The effect of a man is a random number that all his
    regions share. The last parameter, plus ``log_effect``, is the logarithm of its standard
    deviation.
    """

    design: np.ndarray  # (n, p)
    truth: np.ndarray  # (n,)
    man: np.ndarray  # (n,)
    belongs: sparse.csr_array  # (m, n)
    leak_design: np.ndarray  # (m, p)
    leak_offset: np.ndarray  # (m,)
    # A constant that is added to the last parameter. Their sum is the logarithm of the standard
    # deviation of the men's effects; a man's effect is a random number that all his regions share.
    log_effect: float
    # (m,) whether a man is known to be free of cancer, also outside his regions
    free_men: np.ndarray
    # (m,) whether a man has cancer, and none of his regions is known to be malignant
    leaking_men: np.ndarray

    @staticmethod
    def of(
        data: MenAndRegions,
        use: np.ndarray,
        design: np.ndarray,
        leak_design: np.ndarray | None,
        leak_offset: np.ndarray,
        log_effect: float = 0.0,
    ) -> _Likelihood:
        """Return the likelihood of the regions that the fit uses.

        ``use`` says for each region whether it is used. ``design`` has, for each region, the terms
        of its log-odds. ``leak_design`` and ``leak_offset`` have, for each man, the terms of his
        leak's log-odds and a number that is added to these. If ``leak_design`` is None, the model
        has no leak, and ``truth_of_man`` is not used. ``log_effect`` is added to the last
        parameter, which gives the logarithm of the standard deviation of the men's effects.
        """
        free_men = np.zeros(data.men, dtype=bool)
        leaking_men = np.zeros(data.men, dtype=bool)
        if leak_design is None:
            leak_design = np.zeros((data.men, design.shape[1]))
        else:
            has_malignant = np.bincount(data.man[data.truth == 1], minlength=data.men) > 0
            # If a region has no known truth and is not used in the fit, the man's cancer may be in
            # this region. His cancer then tells nothing about the leak.
            unknown_and_unused = np.bincount(
                data.man[~use & np.isnan(data.truth)], minlength=data.men
            )
            all_places_counted = unknown_and_unused == 0
            free_men = all_places_counted & (data.truth_of_man == 0)
            leaking_men = all_places_counted & (data.truth_of_man == 1) & ~has_malignant
        man_of_region = data.man[use]
        return _Likelihood(
            design=design[use],
            truth=data.truth[use],
            man=man_of_region,
            belongs=_belongs(man_of_region, np.ones(len(man_of_region), dtype=bool), data.men),
            leak_design=leak_design,
            leak_offset=leak_offset,
            log_effect=log_effect,
            free_men=free_men,
            leaking_men=leaking_men,
        )

    def scores(self, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each man's log-likelihood, shape (m,), and its gradient, shape (m, p).

        ``value`` has the p parameters at which both are computed.
        """
        nodes = self._at_nodes(value)
        # The gradient of the logarithm of an integral is the mean of the gradients at the nodes,
        # weighted by the posterior of the man's effect. The last parameter also scales the effect,
        # which adds to its derivative.
        mean_slope = (nodes.posterior[self.man] * nodes.slope).sum(axis=1)
        gradient = self.belongs @ (mean_slope[:, None] * self.design)
        gradient += (nodes.posterior * nodes.leak_slope).sum(axis=1)[:, None] * self.leak_design
        by_effect = self.belongs @ nodes.slope + nodes.leak_slope
        gradient[:, -1] += (nodes.posterior * nodes.effect * by_effect).sum(axis=1)
        return nodes.likelihood, gradient

    def hessian(self, value: np.ndarray) -> np.ndarray:
        """Return the Hessian of minus the log-likelihood, shape (p, p) (Louis 1982).

        If the men's effects were known, the Hessian would be simple. The result is the expectation
        of this simple Hessian, minus the covariance of the gradient. Both are taken under the
        posterior distribution of the effects.
        """
        nodes = self._at_nodes(value)
        parameters = self.design.shape[1]
        # Gradient g of each man's log-likelihood at each node (a value of his effect), shape (m, k,
        # p).
        gradient = self._summed(nodes.slope, nodes.leak_slope, nodes.effect)
        mean_gradient = np.einsum("mk,mkp->mp", nodes.posterior, gradient)
        weighted_gradient = nodes.posterior[:, :, None] * gradient
        # The sum over men of the mean of g g', minus the sum of the products of the means.
        mean_square = weighted_gradient.reshape(-1, parameters).T @ gradient.reshape(-1, parameters)
        covariance_of_gradient = mean_square - mean_gradient.T @ mean_gradient
        # Terms with the second derivatives by the log-odds of each region and of each man's leak.
        hessian = _outer_sum(self.design, nodes.posterior[self.man] * nodes.curvature, nodes.effect)
        hessian += _outer_sum(
            self.leak_design, nodes.posterior * nodes.leak_curvature, nodes.effect
        )
        # A man's effect t is a standard normal value times a standard deviation, which is the
        # exponential of the last parameter plus ``log_effect``. The exponential adds a second
        # derivative by the last parameter.
        by_effect = self.belongs @ nodes.slope + nodes.leak_slope
        hessian[-1, -1] -= float((nodes.posterior * nodes.effect * by_effect).sum())
        if self.leaking_men.any():
            # A man who has cancer, but no region known to be malignant, has it in any of several
            # places: his regions of unknown truth, or outside his regions. One of these places must
            # have cancer, so they depend on each other, which adds this term.
            risk_of_unknown = np.isnan(self.truth)[:, None] * nodes.risk
            summed_risk = self._summed(risk_of_unknown, nodes.leak_risk, nodes.effect)
            odds_of_no_cancer = nodes.slope_per_risk
            curvature_of_tie = np.where(
                self.leaking_men[:, None], odds_of_no_cancer * (1 + odds_of_no_cancer), 0.0
            )
            weighted_risk = (nodes.posterior * curvature_of_tie)[:, :, None] * summed_risk
            hessian += weighted_risk.reshape(-1, parameters).T @ summed_risk.reshape(-1, parameters)
        return np.asarray(hessian - covariance_of_gradient)

    def _summed(self, slope: np.ndarray, leak_slope: np.ndarray, effect: np.ndarray) -> np.ndarray:
        """Return derivatives by the p parameters for each man at each node, shape (m, nodes, p).

        Every region and the leak (cancer outside the regions) of a man add one term. The term is
        the derivative by their log-odds (``slope``, ``leak_slope``) times the derivative of these
        log-odds by the parameters.
        """
        parameters = self.design.shape[1]
        of_regions = slope[:, :, None] * self.design[:, None, :]
        # The sparse matrix ``belongs`` multiplies arrays of two axes only, so the axes of nodes and
        # parameters are made one for the sum over each man's regions, and then two again.
        total = self.belongs @ of_regions.reshape(len(slope), -1)
        total = total.reshape(len(leak_slope), -1, parameters)
        total += leak_slope[:, :, None] * self.leak_design[:, None, :]
        # The derivative of log-odds by the logarithm of the effect's standard deviation is the
        # effect itself.
        total[:, :, -1] += effect * (self.belongs @ slope + leak_slope)
        return np.asarray(total)

    def _at_nodes(self, value: np.ndarray) -> _AtNodes:
        """Return the likelihood of every man, and its derivatives, at every node of his effect.

        A node is one value of the effect t that all regions of a man share. At a node the places
        of a man are independent, and his likelihood is the product of

        - r_i for each malignant and 1 - r_i for each benign region;
        - if he is known to be free of cancer: F, the product of 1 - u and of 1 - r_j over the
          regions of unknown truth;
        - if he has cancer in a place of unknown truth: 1 - F.

        r_i is the probability of cancer in region i, and u the probability of cancer outside the
        regions (docs/methods.md 9).

        Parameters
        ----------
        value : ndarray, shape (p,)
            Parameters of a set. The last one, plus ``log_effect``, is the logarithm of the standard
            deviation of the men's effects.
        """
        # ``_POINTS`` are the nodes of a standard normal variable, and ``_WEIGHT`` their weights.
        effect = np.exp(self.log_effect + value[-1]) * _POINTS
        log_odds = (self.design @ value)[:, None] + effect
        risk = expit(log_odds)
        log_malignant = log_expit(log_odds)
        log_benign = log_expit(-log_odds)
        is_malignant = (self.truth == 1)[:, None]
        is_unknown = np.isnan(self.truth)[:, None]

        # A region of known truth adds the logarithm of the likelihood of its truth. ``slope`` is
        # the derivative of this term by the region's log-odds, and ``curvature`` is minus the
        # second derivative.
        log_histology = np.where(is_malignant, log_malignant, log_benign)
        log_likelihood = self.belongs @ np.where(is_unknown, 0.0, log_histology)
        slope = np.where(is_unknown, 0.0, is_malignant - risk)
        curvature = np.where(is_unknown, 0.0, risk * (1 - risk))

        # Men whose truth is known beyond their regions add log F or log(1 - F). F is the
        # probability that no place of unknown truth has cancer. The derivative by the log-odds of
        # such a place is the place's risk times a factor: -1 for log F, and F / (1 - F) for log(1 -
        # F).
        leak_risk = np.zeros_like(log_likelihood)
        slope_per_risk = np.zeros_like(log_likelihood)
        log_weighted = np.log(_WEIGHT) + log_likelihood
        if (self.free_men | self.leaking_men).any():
            leak_log_odds = (self.leak_offset + self.leak_design @ value)[:, None] + effect
            leak_risk = expit(leak_log_odds)
            log_free = log_expit(-leak_log_odds)
            log_free += self.belongs @ np.where(is_unknown, log_benign, 0.0)
            # F, the probability that no place of unknown truth has cancer, stays below 1, so that 1
            # - F has a logarithm.
            log_free = np.minimum(log_free, -1e-300)
            log_cancer = np.log(-np.expm1(log_free))
            log_weighted[self.free_men] += log_free[self.free_men]
            log_weighted[self.leaking_men] += log_cancer[self.leaking_men]
            slope_per_risk[self.free_men] = -1.0
            slope_per_risk[self.leaking_men] = np.exp(log_free - log_cancer)[self.leaking_men]
            slope_of_region = slope_per_risk[self.man]
            slope = np.where(is_unknown, slope_of_region * risk, slope)
            curvature = np.where(is_unknown, -slope_of_region * risk * (1 - risk), curvature)

        # The likelihood of a man is an integral over his unknown effect. It is computed as a
        # weighted sum over some values of the effect, the nodes.
        log_sum = logsumexp(log_weighted, axis=1)
        return _AtNodes(
            likelihood=log_sum,
            posterior=np.exp(log_weighted - log_sum[:, None]),
            effect=effect,
            risk=risk,
            slope=slope,
            curvature=curvature,
            leak_risk=leak_risk,
            leak_slope=slope_per_risk * leak_risk,
            leak_curvature=-slope_per_risk * leak_risk * (1 - leak_risk),
            slope_per_risk=slope_per_risk,
        )


@dataclass(frozen=True)
class _AtNodes:
    """Hold the likelihood of every man, and its derivatives at every node of the man's effect.

    The man's effect is a random number that all his regions share. The likelihood is an integral
    over this number; it is computed as a sum over k values, the nodes. There are m men and n
    regions. "Slope" is the first derivative of the logarithm of the likelihood by the log-odds of a
    region or of a man's leak. "Curvature" is minus the second derivative, without the terms of
    pairs of places of unknown truth (:meth:`_Likelihood.hessian`).
    """

    likelihood: np.ndarray  # (m,), logarithm of each man's likelihood, a sum over k effects
    posterior: np.ndarray  # (m, k), share of each effect in the likelihood of the man
    effect: np.ndarray  # (k,), values of a man's effect t, at which the sum is taken
    risk: np.ndarray  # (n, k), probability r of cancer in the region
    slope: np.ndarray  # (n, k)
    curvature: np.ndarray  # (n, k)
    leak_risk: np.ndarray  # (m, k), probability u of cancer outside the regions
    leak_slope: np.ndarray  # (m, k)
    leak_curvature: np.ndarray  # (m, k)
    # (m, k), a factor for each man and effect. A place is a region or the man's leak. The slope by
    # the log-odds of a place of unknown truth is this factor times the risk of the place. The
    # factor is -1 if the man's histology found no cancer. If it found cancer, but in no region, the
    # factor is the odds that no place of unknown truth has cancer. Otherwise it is 0.
    slope_per_risk: np.ndarray


def _outer_sum(design: np.ndarray, weight: np.ndarray, effect: np.ndarray) -> np.ndarray:
    """Return the sum, over rows and nodes, of weight times z z'.

    z is the row of ``design`` with the node's ``effect`` added to its last column. Nodes are the
    points of the sum that replaces the integral over the men's effect.
    """
    # With d the row of ``design`` and e the unit vector of the last column, z is d + effect e. So
    # z z' is d d' + effect (d e' + e d') + effect^2 e e'.
    total = design.T @ (design * weight.sum(axis=1)[:, None])
    crossed = design.T @ (weight @ effect)
    total[:, -1] += crossed
    total[-1, :] += crossed
    total[-1, -1] += float((weight @ effect**2).sum())
    return np.asarray(total)


def _maximised(
    problem: _Likelihood, mean: np.ndarray, precision: np.ndarray, start: np.ndarray
) -> _Mode:
    """Return the mode of the posterior.

    The mode is found by at most 100 Newton steps, which begin at ``start``. A step after which the
    posterior would be lower is halved. ``mean`` and ``precision`` (1 / variance) are those of the
    priors.
    """

    def loss(value: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus the log-posterior of parameters, up to a constant, and its gradient."""
        log_likelihoods, gradients = problem.scores(value)
        distance_from_prior = value - mean
        minus_log_posterior = float(
            -log_likelihoods.sum() + (precision * distance_from_prior**2).sum() / 2
        )
        return minus_log_posterior, -gradients.sum(axis=0) + precision * distance_from_prior

    value = start.copy()
    current_loss, gradient = loss(value)
    for _ in range(100):
        hessian = _convex(problem.hessian(value) + np.diag(precision))
        step = np.linalg.solve(hessian, gradient)
        # Newton's first step may be so long that the quadratic approximation no longer holds, so no
        # parameter changes by more than 2 in a step. 1e-300 is there for a step of 0.
        step *= min(1.0, 2.0 / float(np.abs(step).max(initial=1e-300)))
        share_of_step = 1.0
        next_loss, next_gradient = loss(value - step)
        # Of a step that still fails at a hundred-millionth of its length, nothing can be gained.
        while next_loss > current_loss and share_of_step > 1e-8:
            share_of_step /= 2
            next_loss, next_gradient = loss(value - share_of_step * step)
        # At the mode itself, rounding errors let no step lower the loss, however short it is.
        if next_loss > current_loss:
            break
        value = value - share_of_step * step
        decrease = current_loss - next_loss
        current_loss = next_loss
        gradient = next_gradient
        # A decrease this small, relative to the loss, is a rounding error.
        if decrease <= 1e-13 * max(1.0, abs(current_loss)):
            break
    inverse = np.linalg.inv(_convex(problem.hessian(value) + np.diag(precision)))
    _, gradients_of_men = problem.scores(value)
    return _Mode(value=value, inverse_hessian=inverse, scores=gradients_of_men, precision=precision)


def _convex(hessian: np.ndarray) -> np.ndarray:
    """Return the Hessian with its eigenvalues replaced by their absolute values, at least .001.

    So the result is positive definite, as Newton steps need it. Far from a mode the Hessian itself
    may have negative eigenvalues.
    """
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    values = np.maximum(np.abs(values), 1e-3)
    return np.asarray((vectors * values) @ vectors.T)


def _fit_both_sets(data: MenAndRegions, near: JointModel | None) -> JointModel:
    """Fit the two sets of parameters of a joint model: without and with readers' scores.

    The fit starts at the parameters of the model ``near``, or at the priors' means if ``near`` is
    None.
    """
    has_belief = np.isfinite(data.belief)
    taught = _taught(data)
    if taught.regions == 0:
        raise CadError(
            "no region with a belief has a known truth: there is no histology to learn from",
            hint="without histology the probability is the belief, of what readers would say",
        )
    centre = np.array([_mean(data.density), _mean(data.age)])
    has_belief_and_readers = has_belief & np.isfinite(data.readers)

    # Only parameters that the data can tell something about are fitted, in either set. For example,
    # the weight of an unknown density needs men of known and men of unknown density.
    free = np.zeros((2, len(TERMS)), dtype=bool)
    free[:, [INTERCEPT, BELIEF, EFFECT]] = True
    free[:, READERS] = [False, True]
    for is_known, term, unknown_term in (
        (np.isfinite(data.density), DENSITY, NO_DENSITY),
        (np.isfinite(data.age), AGE, NO_AGE),
    ):
        free[:, term] = is_known.any()
        free[:, unknown_term] = is_known.any() and not is_known.all()
    free[:, LEAK] = np.isfinite(data.truth_of_man).any()
    free[:, LEAK_DENSITY] = free[:, LEAK] & free[:, DENSITY]

    # Set 0 is for images alone, set 1 is with readers' scores.
    solutions = []
    estimate = np.zeros((2, len(TERMS)))
    for row, usable in enumerate((has_belief, has_belief_and_readers)):
        # Without a region that has scores and a truth, there is no set with readers' scores.
        if row == 1 and not np.isfinite(data.truth[has_belief_and_readers]).any():
            free[1] = False
            continue
        prior_mean = PRIOR_MEAN.copy()
        prior_sd = PRIOR_SD.copy()
        if row == 1:
            prior_mean[[BELIEF, READERS]] = WITH_READERS_MEAN
            prior_sd[[BELIEF, READERS]] = WITH_READERS_SD
        is_fitted = free[row]
        columns = _design_of_regions(data, centre)
        columns[~usable, READERS] = 0.0
        # Without a man whose truth is known beyond his regions, the model has no leak.
        leak_design = None
        if free[row, LEAK]:
            leak_design = _leak_columns(data, centre)[:, is_fitted]
        problem = _Likelihood.of(
            data,
            use=usable,
            design=columns[:, is_fitted],
            leak_design=leak_design,
            leak_offset=np.zeros(data.men),
        )
        # A parameter that ``near`` did not fit is 0 there, which is no start.
        start = prior_mean[is_fitted]
        if near is not None and near.free[row].any():
            start = np.where(near.free[row], near.estimate[row], prior_mean)[is_fitted]
        prior_precision = prior_sd[is_fitted] ** -2
        solution = _maximised(problem, prior_mean[is_fitted], prior_precision, start)
        estimate[row, is_fitted] = solution.value
        solutions.append(_with_unfitted(solution, is_fitted))

    # If only the set for images was fitted, the other set's covariance stays 0.
    covariance = np.zeros((2 * len(TERMS), 2 * len(TERMS)))
    computed = len(TERMS) * len(solutions)
    covariance[:computed, :computed] = _covariance(solutions)
    return JointModel(
        estimate=estimate,
        covariance=covariance,
        centre=centre,
        free=free,
        taught=taught,
        notes=_notes_on_training(data, taught),
    )


def _covariance(solutions: list[_Mode]) -> np.ndarray:
    """Return the joint covariance of several modes, clustered by man.

    The covariance is a sandwich: the inverse Hessian on both sides of a middle term. The middle
    term is the sum of g g' over the men, with g the gradient of a man's log-likelihood. The
    precision of the priors is added to it, because priors count as observations. If the model is
    right, the expectation of the middle term is near the Hessian.
    """
    # A man's influence is the change of the parameters that his data make: his gradient times the
    # inverse Hessian. The sum of products of influences is the sandwich without the priors.
    influences = []
    for solution in solutions:
        influences.append(solution.scores @ solution.inverse_hessian)
    influence = np.hstack(influences)
    men = int(np.count_nonzero(influence.any(axis=1)))
    # The factor m / (m - 1) for m men corrects a bias that matters for few men, as in a sample
    # variance.
    covariance = influence.T @ influence * (men / max(men - 1, 1))
    # Each solution has a prior of its own, which adds to the block of the solution's parameters.
    begin = 0
    for solution in solutions:
        end = begin + len(solution.value)
        inverse = solution.inverse_hessian
        covariance[begin:end, begin:end] += inverse @ np.diag(solution.precision) @ inverse
        begin = end
    # Rounding errors are taken off, so that the covariance is symmetric.
    return np.asarray((covariance + covariance.T) / 2)


def _with_unfitted(solution: _Mode, free: np.ndarray) -> _Mode:
    """Return a solution with zeros put in for the parameters that were not fitted."""
    value = np.zeros(len(free))
    value[free] = solution.value
    inverse = np.zeros((len(free), len(free)))
    inverse[np.ix_(free, free)] = solution.inverse_hessian
    scores = np.zeros((len(solution.scores), len(free)))
    scores[:, free] = solution.scores
    precision = np.zeros(len(free))
    precision[free] = solution.precision
    return _Mode(value=value, inverse_hessian=inverse, scores=scores, precision=precision)


def _moved_by_site(theta: np.ndarray, move: np.ndarray) -> np.ndarray:
    """Return one set of the joint model's parameters, moved to a site, shape (10,).

    ``theta`` has the ten parameters of the set before. ``move`` has the changes a, c, l and d of
    the site, which :class:`_SiteMove` explains.
    """
    intercept, slope, leak, effect = move
    # The slope multiplies the log-odds of regions, and so all parameters that are terms of these.
    # The leak and the effect are not among them.
    moved = theta * slope
    moved[INTERCEPT] += intercept
    moved[LEAK] = theta[LEAK] + intercept + leak
    moved[LEAK_DENSITY] = theta[LEAK_DENSITY]
    moved[EFFECT] = theta[EFFECT] + effect
    return np.asarray(moved)


def _by_site_move(theta: np.ndarray) -> np.ndarray:
    """Return the derivatives of ten moved parameters by the changes that move them, shape (10, 4).

    The changes a, c, l and d move a set of parameters to a site (:class:`_SiteMove`). ``theta`` has
    the parameters before they are moved.
    """
    # The columns 0 to 3 are the derivatives by a, c, l and d.
    jacobian = np.zeros((len(theta), 4))
    # c multiplies the parameters of regions, but not those of the leak and of the effect.
    jacobian[:, 1] = theta
    jacobian[[LEAK, LEAK_DENSITY, EFFECT], 1] = 0.0
    # a is added to the intercept and to the leak, l only to the leak, and d to the log effect.
    jacobian[[INTERCEPT, LEAK], 0] = 1.0
    jacobian[LEAK, 2] = 1.0
    jacobian[EFFECT, 3] = 1.0
    return jacobian


def _by_model(move: np.ndarray) -> np.ndarray:
    """Return the derivatives of a site's ten parameters by the model's ten parameters, shape (10,
    10).

    :func:`_moved_by_site` turns the parameters of the model into those of the site. Row i has the
    derivatives of the site's parameter i. ``move`` has the changes a, c, l and d of the site
    (:class:`_SiteMove`).
    """
    # The change c multiplies every parameter, except those of the leak and of the effect.
    _, slope, _, _ = move
    diagonal = np.full(len(TERMS), slope)
    diagonal[[LEAK, LEAK_DENSITY, EFFECT]] = 1.0
    return np.diag(diagonal)


def _design_of_regions(data: MenAndRegions, centre: np.ndarray) -> np.ndarray:
    """Return the columns that the parameters multiply in a region's log-odds, shape (n, 10).

    No value is NaN.
    """
    columns = np.zeros((len(data.belief), len(TERMS)))
    columns[:, INTERCEPT] = 1.0
    # A missing belief or readers' mean becomes 0. Whoever needs the value leaves out such regions.
    columns[:, BELIEF] = np.nan_to_num(logit(np.clip(data.belief, CLIP, 1 - CLIP)))
    columns[:, READERS] = np.nan_to_num(data.readers)
    # An unknown density or age is replaced by the training's mean. A column that is 1 for such men
    # has a parameter of its own.
    columns[:, DENSITY] = np.nan_to_num(data.density - centre[0])[data.man]
    columns[:, AGE] = np.nan_to_num(data.age - centre[1])[data.man]
    columns[:, NO_DENSITY] = np.isnan(data.density)[data.man]
    columns[:, NO_AGE] = np.isnan(data.age)[data.man]
    return columns


def _leak_columns(data: MenAndRegions, centre: np.ndarray) -> np.ndarray:
    """Return for each of m men what the ten parameters multiply in the log-odds of his leak.

    The result has shape (m, 10); no value is NaN.
    """
    columns = np.zeros((data.men, len(TERMS)))
    columns[:, LEAK] = 1.0
    columns[:, LEAK_DENSITY] = np.nan_to_num(data.density - centre[0])
    return columns


def _by_row(columns: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Return the columns that both sets of ten parameters multiply, shape (n, 20).

    ``columns``, shape (n, 10), has the columns for the set that a line uses. ``row`` says which set
    this is: 0 for images alone, 1 for the set with readers' scores. In the ten columns of the set
    that a line does not use, the line is 0.
    """
    of_images = columns * (row == 0)[:, None]
    with_readers = columns * (row == 1)[:, None]
    return np.hstack([of_images, with_readers])


def _effect_column(values: np.ndarray) -> np.ndarray:
    """Return derivatives with respect to one set of parameters, of which only one is not 0.

    The result has the shape (n, 10), with a column for each parameter of the set. The column of log
    tau gets ``values``, shape (n,); all other columns are 0.
    """
    columns = np.zeros((len(values), len(TERMS)))
    columns[:, EFFECT] = values
    return columns


def _belongs(man: np.ndarray, use: np.ndarray, men: int) -> sparse.csr_array:
    """Return the matrix, shape (men, n), that sums values of the regions in ``use`` by man."""
    regions = np.flatnonzero(use)
    ones = np.ones(len(regions))
    return sparse.csr_array((ones, (man[regions], regions)), shape=(men, len(man)))


def _informative_men(data: MenAndRegions) -> np.ndarray:
    """Return which men the model can learn from.

    They are the men whose truth is known beyond their regions, and the men with a region that has
    both a belief and a known truth.
    """
    teaches = np.isfinite(data.truth) & np.isfinite(data.belief)
    by_region = np.bincount(data.man[teaches], minlength=data.men) > 0
    return np.asarray(by_region | np.isfinite(data.truth_of_man))


def _taught(data: MenAndRegions) -> Taught:
    """Count the men and regions that the model learns from."""
    has_both = np.isfinite(data.truth) & np.isfinite(data.belief)
    regions_of_men = np.bincount(data.man[has_both], minlength=data.men).astype(float)
    # If a man has no region with both belief and truth, but his own truth is known, he counts as a
    # man with one region.
    regions_of_men[(regions_of_men == 0) & np.isfinite(data.truth_of_man)] = 1.0
    return Taught(
        men=int(_informative_men(data).sum()),
        regions=int(has_both.sum()),
        regions_with_readers=int((has_both & np.isfinite(data.readers)).sum()),
        effective_men=effective_number(regions_of_men),
        prevalence_of_regions=_mean(data.truth[has_both], nothing=np.nan),
        prevalence_of_men=_mean(data.histology_of_men(), nothing=np.nan),
    )


def _notes_on_training(data: MenAndRegions, taught: Taught) -> tuple[str, ...]:
    """Return sentences on the facts that the training lacked.

    They are shown to those who use the probabilities.
    """
    notes = []
    if taught.men < LEAST_SITE_MEN:
        notes.append(f"histology of {taught.men} men: the priors carry much of the model")
    if taught.prevalence_of_regions in (0.0, 1.0):
        kind = "malignant" if taught.prevalence_of_regions == 1 else "benign"
        notes.append(f"all {taught.regions} regions with histology are {kind}")
    if taught.regions_with_readers == 0:
        notes.append("no readers' scores: they are no evidence to this model")
    if not np.isfinite(data.density).any():
        notes.append("no man's PSA density is known: it is not used")
    if not np.isfinite(data.age).any():
        notes.append("no man's age is known: it is not used")
    if not np.isfinite(data.truth_of_man).any():
        notes.append("no man's truth is known beyond his regions: of the outlined regions only")
    return tuple(notes)


def _checked_column(
    name: str, values: ArrayLike | None, size: int, limits: tuple[float, float] | None = None
) -> np.ndarray:
    """Return a column as floats, or NaN everywhere if it is not given; raise an error for invalid
    values.
    """
    if values is None:
        return np.full(size, np.nan)
    column = np.asarray(values, dtype=float)
    if column.shape != (size,):
        raise CadError(f"{name} has shape {column.shape}, {size} values are wanted")
    if np.isinf(column).any():
        raise CadError(f"{name} holds infinite values")
    finite = column[np.isfinite(column)]
    if limits is not None and ((finite < limits[0]) | (finite > limits[1])).any():
        raise CadError(
            f"{name} runs from {finite.min():g} to {finite.max():g}, outside "
            f"{limits[0]:g} to {limits[1]:g}"
        )
    return column


def _mean(values: np.ndarray, nothing: float = 0.0) -> float:
    """Return the mean of the values that are not NaN; ``nothing`` where all are NaN."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) > 0 else nothing


def _or_none(value: float) -> float | None:
    """Return None for NaN, which JSON does not have."""
    return None if np.isnan(value) else value


def _or_nan(value: float | None) -> float:
    """Return NaN for None."""
    return float("nan") if value is None else float(value)
