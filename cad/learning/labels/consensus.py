"""Make one label per region from several readers' scores and histology (docs/methods.md 1)."""

import difflib

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.settings import LabelSettings
from cad.base.terms.grades import grade_range, grade_text
from cad.learning.labels.agreement import FEWEST_READERS, AgreementReaders
from cad.learning.labels.scales import pirads_note, score_probability

ETA0 = 0.125  # half a step of the five-point scale: the uncertainty of a single score

_KEY = ["participant_id", "roi_id"]


def reader_labels(
    scores: pd.DataFrame, rois: pd.DataFrame, readers: pd.DataFrame, settings: LabelSettings
) -> pd.DataFrame:
    """Return one label per region: the readers' mean probability, its spread, and certain labels.

    Parameters
    ----------
    scores : DataFrame
        Columns ``participant_id, roi_id, reader_id, scale, score``; a missing score is NaN, or its
        row is absent.
    rois : DataFrame
        Columns ``participant_id, roi_id, histology, isup``.
    readers : DataFrame
        Columns ``reader_id, expert`` (bool).
    settings : LabelSettings
        Settings of labels. They state whose scores count, how eta is computed, and whether
        histology overrides the readers.

    Returns
    -------
    DataFrame
        One row per row of ``rois``, in the same order. ``participant_id, roi_id`` name the region,
        and ``n_readers`` counts its readers. ``p`` is the probability that the readers state
        together (their consensus), and ``eta`` says how much they disagree (both NaN without a
        reader). ``certain`` is 1 or 0 where histology overrides the readers, else NaN. ``y`` is the
        label for a learner: ``certain`` where that is not NaN, else ``p``.

    Raises
    ------
    CadError
        For a score that its scale does not have; for an unknown reader, or one who scored a ROI
        twice; for a score of a ROI that does not exist. Also if the settings want the expert's
        scores, and ``readers`` declares no expert.

    Notes
    -----
    ``eta`` is the standard deviation of the readers' probabilities (ddof 1), or the constant
    ``settings.eta``. A single reader has no standard deviation, so ``eta`` is then
    :data:`ETA0`, half a step of the five-point scale. A learner computes the half-width of the
    label's interval from ``eta`` (docs/methods.md 8; [N14] V-B). With ``labels.consensus:
    agreement`` mean and deviation are weighted. The weights are learned here from all regions, and
    once more inside each fold of a validation, from the training regions of the fold. With
    ``labels.consensus: pooled`` the mean is replaced later, inside each fold
    (:mod:`cad.learning.labels.rules`).
    """
    probabilities = reader_probabilities(scores, rois, settings)
    counting_readers = chosen_readers(readers, settings.readers)
    probabilities = probabilities[probabilities["reader_id"].isin(counting_readers)]
    of_regions = probabilities.groupby(_KEY, sort=False)["probability"]
    summary = of_regions.agg(n_readers="size", p="mean", spread="std").reset_index()
    labels = rois[_KEY].merge(summary, on=_KEY, how="left", validate="one_to_one")
    # A region that nobody scored is not in the summary.
    labels["n_readers"] = labels["n_readers"].fillna(0).astype(int)
    # With fewer readers all have equal weights, and mean and deviation stay as they are.
    if settings.consensus == "agreement" and probabilities["reader_id"].nunique() >= FEWEST_READERS:
        grades, _ = grade_matrix(probabilities, rois)
        # This rule uses no histology.
        no_truth = np.full(len(rois), np.nan)
        belief = AgreementReaders(single=ETA0).fit(grades, no_truth).predict(grades)
        labels["p"] = belief.p
        labels["spread"] = belief.eta
    labels["eta"] = _uncertainty(labels, settings)
    labels["certain"] = np.nan
    if settings.histology == "override":
        labels["certain"] = malignant(rois, settings.isup_min)
    labels["y"] = labels["certain"].where(labels["certain"].notna(), labels["p"])
    return labels.drop(columns="spread")


def reader_probabilities(
    scores: pd.DataFrame, rois: pd.DataFrame, settings: LabelSettings
) -> pd.DataFrame:
    """Return every reader's score as a probability of malignancy.

    Parameters
    ----------
    scores : DataFrame
        Columns ``participant_id, roi_id, reader_id, scale, score`` of all readers; a missing score
        is NaN.
    rois : DataFrame
        Columns ``participant_id, roi_id`` of the regions that exist.
    settings : LabelSettings
        ``pirads_probability`` states the probability of each PI-RADS category.

    Returns
    -------
    DataFrame
        Columns ``participant_id, roi_id, reader_id, probability``, with one row per score that is
        not NaN.

    Raises
    ------
    CadError
        For a score that its scale does not have, a reader who scored a ROI twice, or a score of a
        ROI that does not exist. The message names patient, ROI and reader.
    """
    given_scores = scores[scores["score"].notna()].reset_index(drop=True)
    _refuse_inconsistent(given_scores, rois)
    pirads_probability = settings.pirads_probability
    # Each score of a scale is converted once, however often it was given.
    distinct = given_scores[["scale", "score"]].drop_duplicates()
    probability_of_score: dict[tuple[str, float], float] = {}
    for scale, score in distinct.itertuples(index=False):
        try:
            probability_of_score[scale, score] = score_probability(scale, score, pirads_probability)
        except CadError as error:
            # The message names the first reading with this score.
            has_score = (given_scores["scale"] == scale) & (given_scores["score"] == score)
            first_reading = given_scores[has_score].iloc[0]
            raise CadError(
                f"reader {first_reading['reader_id']}: {error.problem}",
                hint=error.hint,
                patient=first_reading["participant_id"],
                roi=first_reading["roi_id"],
            ) from error
    scales_and_scores = zip(given_scores["scale"], given_scores["score"], strict=True)
    probability = np.array([probability_of_score[pair] for pair in scales_and_scores], dtype=float)
    return given_scores[[*_KEY, "reader_id"]].assign(probability=probability)


def grade_matrix(probabilities: pd.DataFrame, rois: pd.DataFrame) -> tuple[np.ndarray, list[str]]:
    """Return the readers' probabilities as a matrix, with a row per region and a column per reader.

    Parameters
    ----------
    probabilities : DataFrame
        ``participant_id, roi_id, reader_id, probability``, from :func:`reader_probabilities`.
    rois : DataFrame
        ``participant_id, roi_id``; the rows of the result.

    Returns
    -------
    grades : ndarray, shape (n_rois, n_readers)
        Probabilities; NaN where a reader did not score.
    readers : list of str
        Readers' ids, one for each column, sorted.
    """
    wide = probabilities.pivot(index=_KEY, columns="reader_id", values="probability")
    wide = wide.reindex(pd.MultiIndex.from_frame(rois[_KEY]))
    return wide.to_numpy(dtype=float), [str(reader) for reader in wide.columns]


def readers_mean(probabilities: pd.DataFrame, rois: pd.DataFrame) -> np.ndarray:
    """Return the mean of all readers' probabilities of every region, shape (n_rois,).

    Parameters
    ----------
    probabilities : DataFrame
        ``participant_id, roi_id, reader_id, probability``, from :func:`reader_probabilities`.
    rois : DataFrame
        ``participant_id, roi_id``; the rows of the result.

    Returns
    -------
    ndarray
        Means; NaN for a region that nobody scored.
    """
    means = probabilities.groupby(_KEY)["probability"].mean()
    return np.asarray(means.reindex(pd.MultiIndex.from_frame(rois[_KEY])), dtype=float)


def notes(scores: pd.DataFrame, settings: LabelSettings) -> list[str]:
    """Return sentences on the assumptions about labels that a run must show.

    Parameters
    ----------
    scores : DataFrame
        Columns ``scale, score`` of ``scores.tsv``.
    settings : LabelSettings
        How scores become probabilities.

    Returns
    -------
    list of str
        Up to two sentences. The first names the table that gives each PI-RADS category a
        probability, if there are PI-RADS scores and the settings name such a table. The second says
        that the scores are on several scales, if they are.
    """
    sentences = []
    scales_used = scores.loc[scores["score"].notna(), "scale"]
    if (scales_used == "pirads").any() and isinstance(settings.pirads_probability, str):
        sentences.append(pirads_note(settings.pirads_probability))
    scales = sorted(scales_used.unique())
    if len(scales) > 1:
        sentences.append(
            f"scores on different scales ({', '.join(scales)}) were turned into probabilities "
            "before they were put together"
        )
    return sentences


def chosen_readers(readers: pd.DataFrame, choice: str | tuple[str, ...]) -> list[str]:
    """Return the ids of the readers whose scores count.

    Parameters
    ----------
    readers : DataFrame
        Columns ``reader_id, expert``.
    choice : "all", "expert" or tuple of str
        All readers, the readers with ``expert`` set in ``readers.tsv``, or the readers of these
        ids.

    Raises
    ------
    CadError
        If ``choice`` is "expert" and no reader is declared an expert, and if a named reader does
        not exist.
    """
    ids = [str(reader) for reader in readers["reader_id"]]
    if choice == "all":
        return ids
    if choice == "expert":
        is_expert = readers["expert"].astype(bool)
        experts = [str(reader) for reader in readers.loc[is_expert, "reader_id"]]
        if not experts:
            raise CadError(
                "labels.readers is 'expert' but readers.tsv declares none",
                hint="set expert to 1 for one reader",
            )
        return experts
    for name in choice:
        if name not in ids:
            closest = difflib.get_close_matches(name, ids, n=1)
            raise CadError(
                f"labels.readers names {name!r}, the readers are {', '.join(ids)}",
                hint=f"did you mean {closest[0]!r}?" if closest else "",
            )
    return list(choice)


def malignant(rois: pd.DataFrame, isup_min: int = 2) -> np.ndarray:
    """Return the truth of every region by histology: 1 malignant, 0 benign, NaN unknown.

    An ISUP grade may be known only as a range, such as ``>=2``; an exact grade is a range of one
    grade (:func:`cad.base.terms.grades.grade_range`). A region is malignant where the lowest grade
    of its range counts as malignant. It is benign where the highest grade does not.

    Parameters
    ----------
    rois : DataFrame
        ``histology`` (malignant, benign or missing) and ``isup`` (a grade, ``>=2``, ``<=1`` or
        missing).
    isup_min : int
        Lowest ISUP grade that counts as malignant: 2 for clinically significant cancer, the field's
        definition, and 1 for any cancer.

    Returns
    -------
    ndarray, shape (n_rois,)
        1, 0, or NaN where histology does not decide. Examples are a region without histology, and a
        malignant region without a grade if ``isup_min`` is above 1.

    Raises
    ------
    CadError
        When histology and grade contradict each other, and for a text that is no grade.

    Examples
    --------
    >>> import pandas as pd
    >>> rois = pd.DataFrame({"histology": ["malignant", None], "isup": [">=2", "<=1"]})
    >>> malignant(rois).tolist(), malignant(rois, isup_min=1).tolist()
    ([1.0, 0.0], [1.0, nan])
    """
    truth = np.full(len(rois), np.nan)
    for row, (histology, isup) in enumerate(zip(rois["histology"], rois["isup"], strict=True)):
        try:
            low, high = _known_range(histology, grade_text(isup))
        except CadError as error:
            place = rois.iloc[row]
            raise error.naming(patient=place["participant_id"], roi=place["roi_id"]) from None
        if low >= isup_min:
            truth[row] = 1.0
        elif high < isup_min:
            truth[row] = 0.0
    return truth


def _known_range(histology: object, isup: str) -> tuple[int, int]:
    """Return the lowest and highest grade that agree with both ``histology`` and ``isup``."""
    low, high = grade_range(isup)
    if histology == "malignant":
        # Malignant histology means a grade of 1 or more.
        low = max(low, 1)
    elif histology == "benign":
        high = min(high, 0)
    if low > high:
        raise CadError(
            f"histology {histology} contradicts isup {isup}",
            hint="one of the two is wrong; write n/a for it",
        )
    return low, high


def _uncertainty(labels: pd.DataFrame, settings: LabelSettings) -> np.ndarray:
    """Return the uncertainty of each region's label; NaN for a region that nobody scored.

    It is the number in the settings, or, if they say "adaptive", the readers' standard deviation.
    """
    n_readers = labels["n_readers"].to_numpy()
    if settings.eta != "adaptive":
        return np.where(n_readers > 0, float(settings.eta), np.nan)
    spread = labels["spread"].to_numpy(dtype=float)
    # One reader has no standard deviation.
    return np.where(n_readers == 1, ETA0, np.where(n_readers > 0, spread, np.nan))


def _refuse_inconsistent(scores: pd.DataFrame, rois: pd.DataFrame) -> None:
    """Raise an error for a ROI or a reading listed twice, and for a score of an unknown ROI."""
    for table, key, problem in (
        (rois, _KEY, "the ROI is listed twice"),
        (scores, [*_KEY, "reader_id"], "the same reader scored this ROI twice"),
    ):
        repeated = table.duplicated(key).to_numpy()
        # The message names the first repeated row.
        if repeated.any():
            row = table.iloc[int(np.argmax(repeated))]
            reader = f" (reader {row['reader_id']})" if "reader_id" in key else ""
            raise CadError(problem + reader, patient=row["participant_id"], roi=row["roi_id"])
    existing_rois = pd.MultiIndex.from_frame(rois[_KEY])
    of_unknown_roi = ~pd.MultiIndex.from_frame(scores[_KEY]).isin(existing_rois)
    if of_unknown_roi.any():
        row = scores.iloc[int(np.argmax(of_unknown_roi))]
        raise CadError(
            f"reader {row['reader_id']} scored a ROI that does not exist",
            patient=row["participant_id"],
            roi=row["roi_id"],
        )
