"""Suggest which regions readers should score next, by what one more reading would teach a model.

The paper [N14] (docs/methods.md) proposes in section VI to choose the regions that are annotated
instead of annotating at random. It does not help to choose the regions of which the model is most
uncertain. Such a choice fills the training set with borderline regions, and makes probabilities
worse than a random choice does.

Here it is computed how much a reading of a region would teach about all regions. What a model can
learn is taken for a Gaussian process: regions are related by a Gaussian kernel on their features. A
reading of a region removes variance at this region and at those like it. It removes less where
readers and model disagree, because such a label is uncertain. Variance counts most at regions on
which the model is undecided. The region whose reading removes most of the remaining variance is
suggested first (Cohn et al., J Artif Intell Res 4 (1996) 129). For each further suggestion, the
regions suggested before count as read.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.folders.run_folder.tables import write_suggestions
from cad.learning.labels.scales import score_probability
from cad.run.stages.aggregate import Aggregated
from cad.run.stages.extract import Extracted
from cad.run.stages.judge import Judged
from cad.run.stages.load import Loaded

_KEY = ["participant_id", "roi_id"]
ENOUGH = 2
"""Number of readings after which a region is not suggested any more."""
NOISE = 0.3
"""Variance of one reading, relative to the variance of the quantity that the model can learn."""
DISPUTE = 32.0
"""The variance of a reading is multiplied by 1 + DISPUTE (p - q)^2. Here p is the mean probability
of the readers of the region and q that of the model.
"""
MOST_REGIONS = 6000
"""Largest number of regions that are ranked together. Their kernel matrix takes 290 MB."""


def suggest_readings(
    loaded: Loaded, extracted: Extracted, aggregated: Aggregated, judged: Judged, count: int
) -> pd.DataFrame:
    """Rank the regions of a prediction by :func:`suggest`, and write ``suggestions.csv``.

    Regions without a probability are left out.

    Parameters
    ----------
    loaded, extracted, aggregated, judged : Loaded, Extracted, Aggregated, Judged
        Results of the stages of the prediction. The file is written to its run folder.
    count : int
        How many regions to name.

    Returns
    -------
    DataFrame
        The table that was written: one row per region, the most valuable region first, with the
        columns of :func:`suggest`.
    """
    has_belief = judged.results["belief"].notna().to_numpy()
    # From readings a model learns the belief (what readers would say of a region), not the
    # probability of cancer. Therefore regions are ranked by the belief.
    table = suggest(
        judged.results.loc[has_belief].assign(probability=judged.results["belief"]),
        extracted.features.loc[has_belief],
        aggregated.scores,
        count=count,
        pirads_probability=loaded.settings.labels.pirads_probability,
    )
    write_suggestions(loaded.folder, table)
    return table


def nothing_to_read(loaded: Loaded) -> bool:
    """Tell whether every region of the cohort has :data:`ENOUGH` (2) readings or more already.

    Parameters
    ----------
    loaded : Loaded
        The run; its cohort holds regions and scores.

    Returns
    -------
    bool
        True if no region has fewer than 2 scores; also True for a cohort without regions.
    """
    scores = loaded.cohort.scores
    n_readings = scores[scores["score"].notna()].groupby(_KEY)["score"].size()
    rois = pd.MultiIndex.from_frame(loaded.cohort.rois[_KEY])
    n_readings_of_rois = n_readings.reindex(rois, fill_value=0)  # 0 where nobody scored
    return bool((n_readings_of_rois >= ENOUGH).all())


def suggest(
    predictions: pd.DataFrame,
    features: pd.DataFrame,
    scores: pd.DataFrame,
    *,
    count: int = 20,
    pirads_probability: str | Mapping[int, float] = "pi-cai",
) -> pd.DataFrame:
    """Rank regions by how much variance one more reading of the region would remove.

    The description of this module says how the variance is computed.

    Parameters
    ----------
    predictions : DataFrame
        Columns ``participant_id, roi_id, probability``: the model's probability, one row for each
        region.
    features : DataFrame
        The model's features of the same rows in the same order, in any units. A missing value
        counts as the median of its column. Columns that are not numbers are left out.
    scores : DataFrame
        Columns ``participant_id, roi_id, reader_id, scale, score`` as in ``scores.tsv``; a missing
        score is NaN, or has no row. Scores of other regions are ignored.
    count : int
        How many regions to name. A region is named at most once, and not at all if it has
        :data:`ENOUGH` (2) readings.
    pirads_probability : str or mapping
        Probability by PI-RADS category, or the name of a published table
        (:func:`cad.learning.labels.scales.score_probability`).

    Returns
    -------
    DataFrame
        Regions, the most valuable first, with the columns ``rank`` (from 1), ``participant_id,
        roi_id, n_readers, probability`` and ``reader_mean`` (mean probability by the readers'
        scores, NaN if unscored). ``value`` is the share of the remaining weighted variance that a
        reading of the region removes, if the regions ranked before it are read first. ``reason``
        gives the number of readers so far, their mean and the model's probability in words.

    Raises
    ------
    CadError
        For unequal numbers of predictions and rows of features; for a region that occurs twice; for
        a probability outside [0, 1]; for features of which none is numeric; for too many regions;
        for a count below 1; for a score that its scale does not have.
    """
    _check_predictions(predictions, features, count)
    table = predictions[[*_KEY, "probability"]].reset_index(drop=True)
    readings = _readings_of_rows(table, scores, pirads_probability)
    table["n_readers"] = readings["size"].to_numpy()
    table["reader_mean"] = readings["mean"].to_numpy()
    chosen = _choose_most_valuable(
        x=_standardised(features),
        q=table["probability"].to_numpy(float),
        n_readers=table["n_readers"].to_numpy(int),
        mean=table["reader_mean"].to_numpy(float),
        count=count,
    )
    suggestions = table.iloc[[row for row, _ in chosen]].reset_index(drop=True)
    suggestions["value"] = [value for _, value in chosen]
    reasons = []
    for row in suggestions.itertuples():
        reasons.append(_why_suggested(row.n_readers, row.reader_mean, row.probability))
    suggestions["reason"] = reasons
    suggestions.insert(0, "rank", np.arange(1, len(suggestions) + 1))
    return suggestions


def _choose_most_valuable(
    x: np.ndarray, q: np.ndarray, n_readers: np.ndarray, mean: np.ndarray, count: int
) -> list[tuple[int, float]]:
    """Choose regions (rows) one by one, each time the one whose reading removes most variance.

    The variance is that of what a model could learn of all regions; the module's description
    defines it. Return the numbers of the chosen rows, each with the share of the remaining weighted
    variance that its reading removes.

    Parameters
    ----------
    x : ndarray, shape (n, d)
        Standardised features.
    q, mean : ndarray, shape (n,)
        Probabilities of the model and of the readers (NaN where no reader scored).
    n_readers : ndarray of int, shape (n,)
        Number of readings of every row so far.
    count : int
        Number of wanted rows.
    """
    # The covariance of regions: a Gaussian kernel of their features.
    square = (x**2).sum(axis=1)
    # Squared distances of all pairs of rows. Without rounding, the distance of a row to itself is
    # 0. With rounding it may come out below 0.
    squared_distance = np.maximum(square[:, None] + square - 2 * x @ x.T, 0.0)
    # The squared distance of two rows of standardised columns grows with the number of columns. It
    # is divided by this number, so that the kernel is as wide for ten features as for a thousand.
    covariance = np.exp(-squared_distance / x.shape[1])

    # The readings so far remove variance. The mean of n readings has the n-th part of the noise.
    scored = np.flatnonzero(n_readers)
    noise = np.full(len(x), NOISE)
    noise[scored] *= 1.0 + DISPUTE * (mean[scored] - q[scored]) ** 2
    if len(scored):
        noise_of_means = np.diag(noise[scored] / n_readers[scored])
        covariance_of_means = covariance[np.ix_(scored, scored)] + noise_of_means
        with_all = covariance[scored]
        covariance = covariance - with_all.T @ np.linalg.solve(covariance_of_means, with_all)

    # A region at 0.5 has the weight 1. At 0 and 1 a little weight is left, so that the total of the
    # weighted variances is never 0.
    weight = np.sqrt(4.0 * np.clip(q * (1.0 - q), 1e-4, 0.25))
    may_be_chosen = n_readers < ENOUGH
    chosen: list[tuple[int, float]] = []
    for _ in range(min(count, int(may_be_chosen.sum()))):
        variance = np.diag(covariance)
        total = float(weight @ variance)
        # The weighted variance that one reading of each row would remove from all rows.
        gain = (weight @ covariance**2) / (variance + noise)
        best = int(np.argmax(np.where(may_be_chosen, gain, -np.inf)))
        chosen.append((best, float(gain[best]) / total))
        # From now on the chosen row counts as read.
        column = covariance[:, best].copy()
        covariance -= np.outer(column, column) / (column[best] + noise[best])
        may_be_chosen[best] = False
    return chosen


def _readings_of_rows(
    table: pd.DataFrame, scores: pd.DataFrame, pirads: str | Mapping[int, float]
) -> pd.DataFrame:
    """Return the number of readings and their mean probability for every row of ``table``."""
    readings = scores[scores["score"].notna()].merge(table[_KEY], on=_KEY)
    probabilities = []
    for scale, score in zip(readings["scale"], readings["score"], strict=True):
        probabilities.append(score_probability(str(scale), float(score), pirads))
    readings = readings.assign(probability=np.array(probabilities, float))
    size_and_mean = readings.groupby(_KEY)["probability"].agg(["size", "mean"]).reset_index()
    of_rows = table[_KEY].merge(size_and_mean, on=_KEY, how="left")
    return of_rows.assign(size=of_rows["size"].fillna(0).astype(int))


def _standardised(features: pd.DataFrame) -> np.ndarray:
    """Return z-scores, shape (n, d).

    A missing value gets the median of its column, and a constant column becomes 0.
    """
    numbers = features.select_dtypes("number").to_numpy(float)
    numbers = np.where(np.isfinite(numbers), numbers, np.nan)
    is_empty = np.isnan(numbers).all(axis=0)  # such a column has no median
    numbers = numbers[:, ~is_empty]
    if not numbers.shape[1]:
        raise CadError("no numeric feature to tell regions apart by")
    filled = np.where(np.isnan(numbers), np.nanmedian(numbers, axis=0), numbers)
    spread = filled.std(axis=0)
    return np.asarray((filled - filled.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def _why_suggested(n_readers: int, mean: float, probability: float) -> str:
    # A region with more than one reading is not suggested, so "reader" has no plural.
    if not n_readers:
        return f"no reader yet, model {probability:.2f}"
    return f"{n_readers} reader ({mean:.2f}), model {probability:.2f}"


def _check_predictions(predictions: pd.DataFrame, features: pd.DataFrame, count: int) -> None:
    """Raise an error for predictions that cannot be ranked, or a wrong number of suggestions."""
    if len(predictions) != len(features):
        message = f"{len(predictions)} predictions but {len(features)} rows of features"
        raise CadError(message, hint="pass the rows that the model predicted, in the same order")
    if len(predictions) > MOST_REGIONS:
        message = (
            f"{len(predictions)} regions at once, at most {MOST_REGIONS} can be ranked together"
        )
        raise CadError(
            message, hint="rank by site, or those with a probability between .05 and .95"
        )
    if count < 1:
        raise CadError(f"at least one region must be asked for, found {count}")
    repeated = predictions[predictions.duplicated(_KEY)]
    if len(repeated):
        row = repeated.iloc[0]
        raise CadError("predicted twice", patient=row["participant_id"], roi=row["roi_id"])
    outside = predictions[~predictions["probability"].between(0, 1)]
    if len(outside):
        row = outside.iloc[0]
        message = f"probability {row['probability']} is not in [0, 1]"
        raise CadError(message, patient=row["participant_id"], roi=row["roi_id"])
