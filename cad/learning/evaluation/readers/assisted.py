"""Combine a reader's score with the classifier's probability into a probability of malignancy.

This is a model of how a reader reads with the classifier, which is here called the tool.

For reader r with score s and the classifier's probability q (docs/methods.md 8),

    logit P(malignant | s, q) = a_r + b_r s + c logit q.

a_r and b_r are values common to all readers plus deviations of reader r. A normal prior draws the
deviations to 0 (partial pooling), so a reader with few regions is treated almost like an average
reader. The prior of c has mean 1, because with c = 1 the classifier's log-odds are simply added.
The weights a_r, b_r and c are fitted to regions with histology. The probability of a region is
computed with weights that were fitted without its patient. With more than 100 patients, a hundredth
of all patients is left out together.

Two rules prevent that a useless tool seems to harm readers. First, c is at least a small positive
number. Otherwise, near 0, the sign of c would depend on which patient is left out, and would be the
wrong one for this patient. Second, for AUCs each region is ranked among the regions of other
patients with the same weights, because probabilities of different folds are on different scales: if
a malignant patient is left out, the intercept is lower. A reader gives many equal scores, and the
intercept would then decide their order (docs/evidence.md has the effect of both rules).
"""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from scipy.special import expit, logit

from cad.base.errors import CadError
from cad.learning.evaluation.measures.centring import ranked
from cad.learning.evaluation.measures.intervals import Interval, clustered_auc
from cad.learning.evaluation.measures.metrics import CLIP
from cad.learning.evaluation.readers.mrmc import MRMC, obuchowski_rockette
from cad.learning.logistic import fit_logistic

# Weights are fitted only if histology found at least this number of malignant and of benign
# regions.
FEW = 5
# Smallest weight c of the classifier's log-odds. With it the classifier still orders regions to
# which a reader gave the same score.
LEAST_TOOL = 0.02
# With more patients than this, several are left out together. So the time grows with the number n
# of patients and not with n^2.
MOST_FITS = 100
# Standard deviations of the normal priors (see the module's docstring): of the weight b common to
# all readers, of a reader's deviations, and of c. They hold for scores and log-odds that were
# divided by their standard deviation.
COMMON_SD = 3.0
OWN_SD = 0.5
TOOL_SD = 1.0


@dataclass(frozen=True)
class Combination:
    """Hold one reader's weights of the score and of the classifier's log-odds.

    Parameters
    ----------
    intercept, score, tool : float
        log-odds = intercept + score * s + tool * logit q, with s the reader's score as a
        probability in [0, 1] and q the classifier's probability.
    n, positive : int
        Number of regions with histology and a score of this reader from which the weights were
        fitted, and number of malignant regions among them.
    """

    intercept: float
    score: float
    tool: float
    n: int
    positive: int

    def probability(self, score: np.ndarray, classifier: np.ndarray) -> np.ndarray:
        """Return the probability of malignancy given score and classifier, shape (n,).

        Parameters
        ----------
        score : ndarray, shape (n,)
            The reader's scores as probabilities.
        classifier : ndarray, shape (n,)
            The classifier's probabilities. The result is NaN where the score or this probability is
            NaN.
        """
        q = np.clip(np.asarray(classifier, dtype=float), CLIP, 1 - CLIP)
        s = np.asarray(score, dtype=float)
        posterior: np.ndarray = expit(self.intercept + self.score * s + self.tool * logit(q))
        return posterior


@dataclass(frozen=True)
class Combinations:
    """Hold the weights of every reader, and common weights for any other reader.

    Parameters
    ----------
    readers : dict of str to Combination
        Weights by reader id.
    anyone : Combination
        Weights of an average reader, for a reader who is not in ``readers``.
    """

    readers: dict[str, Combination]
    anyone: Combination

    def probability(
        self, reader: str, score: np.ndarray, classifier: np.ndarray
    ) -> tuple[np.ndarray, str]:
        """Return the probability of malignancy given a reader's scores and the classifier.

        Parameters
        ----------
        reader : str
            Reader id. For a reader who is not in ``readers`` the weights of an average reader are
            used.
        score, classifier : ndarray, shape (n,)
            The reader's scores as probabilities in [0, 1], and the classifier's probabilities. The
            result is NaN where either of the two is NaN.

        Returns
        -------
        probability : ndarray, shape (n,)
        note : str
            Sentence that the weights of an average reader were used; empty if the reader's were.
        """
        combination = self.readers.get(reader)
        if combination is not None:
            return combination.probability(score, classifier), ""
        note = f"reader {reader} is not among those the model knows: an average reader's weights"
        return self.anyone.probability(score, classifier), note


class WithTool(TypedDict):
    """Hold a reader's AUC against histology: that of the scores ``alone``, and that ``with_tool``.

    With the tool, score and classifier are combined. Both AUCs have a confidence interval and are
    measured on the same ``n`` regions.
    """

    n: int
    alone: Interval
    with_tool: Interval


@dataclass(frozen=True)
class Assisted:
    """Hold how readers' AUC changes when the classifier (the tool) is added to their scores.

    Parameters
    ----------
    readers : dict of str to WithTool
        AUCs by reader id.
    combinations : Combinations or None
        Weights that were fitted to all patients, for new cases; None if the weights of an earlier
        training were used.
    test : MRMC or None
        Test of the readers with the tool against the same readers alone
        (:func:`cad.learning.evaluation.readers.mrmc.obuchowski_rockette`).
    note : str
        Reason why there is no test; empty if there is one.
    """

    readers: dict[str, WithTool]
    combinations: Combinations | None
    test: MRMC | None
    note: str

    def sentence(self) -> str:
        """Return whether the tool helps these readers, in one sentence."""
        if self.test is None:
            return f"Whether the tool helps readers was not tested: {self.note}."
        test = self.test
        change = f"{test.difference:+.3f} [{test.lower:+.3f}, {test.upper:+.3f}]"
        # A p of NaN, where nothing varies, shows nothing either.
        if test.p < 0.05:
            effect = "helps" if test.difference > 0 else "harms"
        else:
            effect = "is not shown to help or harm"
        return (
            f"The tool {effect} these readers: mean AUC {test.treatment_aucs[0]:.3f} alone, "
            f"{test.treatment_aucs[1]:.3f} with it, difference {change}, p = {test.p:.2g}."
        )


def assist(
    truth: np.ndarray,
    scores: np.ndarray,
    classifier: np.ndarray,
    patients: np.ndarray,
    names: list[str],
    *,
    given: np.ndarray | None = None,
) -> tuple[Assisted, dict[str, np.ndarray]]:
    """Combine every reader's scores with the classifier (the tool); test whether the tool helps.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1, 0, or NaN without histology.
    scores : ndarray, shape (readers, n)
        Readers' scores as probabilities in [0, 1]; NaN where a reader gave none.
    classifier : ndarray, shape (n,)
        Out-of-fold probability; NaN where there is none.
    patients : ndarray, shape (n,)
        The patient of every region.
    names : list of str
        Reader ids.
    given : ndarray, shape (readers, n), optional
        Readers' probabilities with the tool, by the weights of an earlier training. If given,
        nothing is fitted.

    Returns
    -------
    assisted : Assisted
        The readers' AUC alone and with the tool, and the test.
    probability : dict of str to ndarray, shape (n,)
        For each reader id, every region's probability with the tool. Its weights were fitted
        without the region's patient.

    Raises
    ------
    CadError
        If too few regions of a class have histology, a reader's score and a probability.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.tile([0.0, 1.0], 30)
    >>> scores = np.clip(0.3 + 0.4 * truth + rng.normal(0, 0.3, (2, 60)), 0, 1)
    >>> classifier = np.clip(0.3 + 0.4 * truth + rng.normal(0, 0.2, 60), 0.01, 0.99)
    >>> assisted, with_tool = assist(
    ...     truth, scores, classifier, np.arange(60) // 2, ["r1", "r2"]
    ... )
    >>> sorted(with_tool), with_tool["r1"].shape
    (['r1', 'r2'], (60,))
    """
    readers_scores = np.asarray(scores, dtype=float)
    # Weights of an earlier training are the same for all regions, so their probabilities are on one
    # scale, and rank the regions themselves.
    if given is not None:
        return _assisted(
            truth=truth,
            table=readers_scores,
            probability=given,
            rank=given,
            patients=patients,
            names=names,
            combinations=None,
        )
    combinations = fit_combinations(truth, readers_scores, classifier, names)
    probability = np.full(readers_scores.shape, np.nan)
    rank_among_others = np.full(readers_scores.shape, np.nan)
    # Patients are left out one by one, or, if there are many, in at most MOST_FITS groups.
    patient_numbers = np.unique(patients, return_inverse=True)[1]
    group_of_region = patient_numbers % MOST_FITS
    for left_out in np.unique(group_of_region):
        is_out = group_of_region == left_out
        combinations_of_others = fit_combinations(
            truth[~is_out], readers_scores[:, ~is_out], classifier[~is_out], names
        )
        for reader, name in enumerate(names):
            # Probabilities of all rows are computed, because a left-out row is ranked among the
            # other rows, with the same weights for all.
            with_tool = combinations_of_others.readers[name].probability(
                readers_scores[reader], classifier
            )
            probability[reader, is_out] = with_tool[is_out]
            # Rows without a truth are ranked as well. The tests of readers select the rows that
            # they use.
            rank_among_others[reader, is_out] = ranked(with_tool[is_out], with_tool[~is_out])
    return _assisted(
        truth=truth,
        table=readers_scores,
        probability=probability,
        rank=rank_among_others,
        patients=patients,
        names=names,
        combinations=combinations,
    )


def _assisted(
    truth: np.ndarray,
    table: np.ndarray,
    probability: np.ndarray,
    rank: np.ndarray,
    patients: np.ndarray,
    names: list[str],
    combinations: Combinations | None,
) -> tuple[Assisted, dict[str, np.ndarray]]:
    """Measure each reader without and with the tool; return the measures, and by reader id the
    probability of each region.

    A reader is measured without the tool by the scores in ``table``, and with the tool by the
    values in ``rank``; both have shape (readers, n). ``probability``, of the same shape, has the
    probabilities by reader and tool that are returned.
    """
    if not (np.isfinite(rank) & np.isfinite(truth)).any():
        raise CadError("no region has histology, a reader's score and a probability with the tool")
    readers: dict[str, WithTool] = {}
    for reader, name in enumerate(names):
        has_truth_and_rank = np.isfinite(truth) & np.isfinite(rank[reader])
        y = truth[has_truth_and_rank]
        patients_of_rows = patients[has_truth_and_rank]
        readers[name] = {
            "n": int(has_truth_and_rank.sum()),
            "alone": clustered_auc(y, table[reader, has_truth_and_rank], patients_of_rows),
            "with_tool": clustered_auc(y, rank[reader, has_truth_and_rank], patients_of_rows),
        }
    # Without two readers, for example, there is no test, and its reason is told.
    test = None
    reason = ""
    try:
        # The readers alone and the readers with the tool must be compared on the same cases.
        # Otherwise different cases could be the reason for a difference.
        alone = np.where(np.isfinite(rank), table, np.nan)
        test = obuchowski_rockette(truth, np.stack([alone, rank]), patients)
    except CadError as error:
        reason = str(error)
    assisted = Assisted(readers=readers, combinations=combinations, test=test, note=reason)
    return assisted, dict(zip(names, probability, strict=True))


def fit_combinations(
    truth: np.ndarray, scores: np.ndarray, classifier: np.ndarray, names: list[str]
) -> Combinations:
    """Fit the weights of the score and of the classifier's log-odds, for every reader.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1, 0, or NaN without histology.
    scores : ndarray, shape (readers, n)
        Readers' scores as probabilities in [0, 1]; NaN where a reader gave none.
    classifier : ndarray, shape (n,)
        Out-of-fold probability; NaN where there is none.
    names : list of str
        Reader ids.

    Returns
    -------
    Combinations
        For each reader in ``names`` and for an average reader: an intercept, the weight of the
        score (a probability) and the weight of the classifier's log-odds. The weighted sum with the
        intercept is the log-odds of cancer. The weight of the classifier's log-odds is common to
        all readers.

    Raises
    ------
    CadError
        If too few regions of a class have histology, a reader's score and a probability.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.repeat([0.0, 1.0], 30)
    >>> scores = np.clip(0.3 + 0.4 * truth + rng.normal(0, 0.2, (2, 60)), 0, 1)
    >>> classifier = np.clip(0.3 + 0.4 * truth + rng.normal(0, 0.2, 60), 0.01, 0.99)
    >>> weights = fit_combinations(truth, scores, classifier, ["r1", "r2"])
    >>> sorted(weights.readers)
    ['r1', 'r2']
    """
    # A reading is one reader's score of one region: its reader and the row of its region.
    reader, row = np.nonzero(np.isfinite(scores) & np.isfinite(truth) & np.isfinite(classifier))
    y = truth[row]
    # Regions are counted and not readings, because four scores of one region have one truth.
    regions_by_class = [len(np.unique(row[y == label])) for label in (0, 1)]
    if min(regions_by_class) < FEW:
        raise CadError(
            f"{regions_by_class[1]} malignant and {regions_by_class[0]} benign regions "
            "have histology, a reader's score and a probability; "
            f"weights of readers need {FEW} of each"
        )
    reading_scores = scores[reader, row]
    tool_log_odds = logit(np.clip(classifier[row], CLIP, 1 - CLIP))
    # The priors hold for values of mean 0 and standard deviation 1.
    score_mean, score_sd = _scale(reading_scores)
    tool_mean, tool_sd = _scale(tool_log_odds)
    common = np.column_stack([np.ones(len(y)), (reading_scores - score_mean) / score_sd])
    # A reader's intercept and weight are the common ones plus his own deviations. For his
    # deviations each reader has two columns, which are 0 in the rows of other readers.
    deviation_columns = np.zeros((len(y), len(names), 2))
    deviation_columns[np.arange(len(y)), reader] = common
    design = np.hstack([common, deviation_columns.reshape(len(y), -1)])
    # The common intercept has hardly any prior.
    prior_precision = np.r_[1e-4, COMMON_SD**-2, np.full(2 * len(names), OWN_SD**-2)]
    centred_log_odds = tool_log_odds - tool_mean
    # The weight c of the classifier's log-odds is fitted on log-odds divided by their standard
    # deviation. But its prior mean of 1 is for the log-odds themselves, so it is multiplied by this
    # standard deviation.
    coefficients = fit_logistic(
        np.column_stack([design, centred_log_odds / tool_sd]),
        y,
        mean=np.r_[np.zeros(design.shape[1]), tool_sd],
        precision=np.r_[prior_precision, TOOL_SD**-2],
    )
    tool_weight = coefficients[-1] / tool_sd
    # If c is below its lower bound, it is set to the bound, and the readers' weights are fitted
    # again with this c.
    if tool_weight < LEAST_TOOL:
        tool_weight = LEAST_TOOL
        coefficients = fit_logistic(
            design, y, offset=tool_weight * centred_log_odds, precision=prior_precision
        )
    # The first two coefficients are common; two deviations of each reader follow.
    common_weights = coefficients[:2]
    deviations = coefficients[2 : 2 + 2 * len(names)].reshape(-1, 2)

    def combination(weights: np.ndarray, truths: np.ndarray) -> Combination:
        """Convert weights of standardised values to weights of the values themselves.

        ``weights`` are an intercept and the weight of the score. ``truths`` are those of the
        readings from which they were fitted.
        """
        score_weight = weights[1] / score_sd
        intercept = weights[0] - score_weight * score_mean - tool_weight * tool_mean
        return Combination(
            intercept=float(intercept),
            score=float(score_weight),
            tool=float(tool_weight),
            n=len(truths),
            positive=int(truths.sum()),
        )

    combinations = {}
    for j, name in enumerate(names):
        combinations[name] = combination(common_weights + deviations[j], y[reader == j])
    return Combinations(readers=combinations, anyone=combination(common_weights, y))


def _scale(values: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation.

    The standard deviation is 1 if all values are equal, because they are divided by it.
    """
    return float(values.mean()), float(values.std()) or 1.0
