"""Turn readers' scores and histology into a label for every region: the stage ``aggregate``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.settings import LabelSettings, PipelineSettings
from cad.folders.cohort.men import STATED, men_stated
from cad.folders.run_folder.tables import KEYS, write_labels
from cad.learning.labels.agreement import FEWEST_READERS
from cad.learning.labels.consensus import (
    chosen_readers,
    grade_matrix,
    malignant,
    notes,
    reader_labels,
    reader_probabilities,
    readers_mean,
)
from cad.learning.labels.rules import fold_labels
from cad.learning.learners.soft_labels import KIND_NAMES, Rule, half_widths, soft_labels
from cad.run.model.bundle import Bundle, using
from cad.run.model.fold_features import FoldFeatures
from cad.run.stages.extract import Extracted
from cad.run.stages.load import Loaded


@dataclass(frozen=True)
class Table:
    """Hold the features and labels that learners see, one row per region (ROI), n rows in all.

    Parameters
    ----------
    keys : DataFrame
        Columns ``participant_id, study_id, roi_id``, with one row per ROI.
    X : DataFrame, shape (n, n_features)
        Features, each in a column; NaN where a modality is missing.
    y : ndarray, shape (n,)
        Label: the readers' consensus as a probability, 0 or 1 where the label is certain, NaN where
        nothing is known.
    spread : ndarray, shape (n,)
        Standard deviation of the readers, the column ``eta`` of ``labels.parquet``.
    labels : DataFrame
        The keys and all columns of ``labels.parquet``, for the same rows.
    """

    keys: pd.DataFrame
    X: pd.DataFrame
    y: np.ndarray
    spread: np.ndarray
    labels: pd.DataFrame

    def with_rows(self, rows: pd.DataFrame, features: list[str]) -> Table:
        """Return a new table: the rows of this table, followed by other rows.

        Parameters
        ----------
        rows : DataFrame
            Rows to add: keys, labels and features side by side.
        features : list of str
            Names of the columns of ``rows`` that are features. A feature that only this table or
            only the added rows have is NaN in the other rows.
        """
        # The cohort's columns come first and keep their order, so that added rows do not reorder
        # the features.
        names = list(self.X.columns)
        names += [name for name in features if name not in self.X.columns]
        X = pd.concat([self.X, rows[features]], ignore_index=True).reindex(columns=names)
        labels = pd.concat([self.labels, rows.drop(columns=features)], ignore_index=True)
        return replace(
            self,
            keys=labels[KEYS],
            X=X,
            y=labels["y"].to_numpy(float),
            spread=labels["eta"].fillna(0.0).to_numpy(float),
            labels=labels,
        )

    @property
    def groups(self) -> np.ndarray:
        """Return the patient id of every row, shape (n,)."""
        return np.asarray(self.keys["participant_id"], dtype=str)

    @property
    def sites(self) -> np.ndarray:
        """Return the site of every row's patient, shape (n,); empty text where unknown."""
        if "site" not in self.labels:
            return np.full(len(self.labels), "")
        return np.asarray(self.labels["site"].fillna(""), dtype=str)

    @property
    def labelled(self) -> np.ndarray:
        """Return a mask, shape (n,), of the rows that have a label and can train a learner."""
        return np.asarray(np.isfinite(self.y))


@dataclass(frozen=True)
class FoldLabels:
    """Compute the labels of all n rows by a consensus rule that is fitted to training rows only.

    A consensus rule makes one label from the scores of several readers.

    Parameters
    ----------
    rule : str
        Name of the consensus rule, as in the setting ``labels.consensus``.
    grades : ndarray, shape (n, n_readers)
        Each reader's score of each row, as a probability; NaN where a score is missing, and in rows
        that come from the training of an earlier model.
    truth : ndarray, shape (n,)
        Histology: 1, 0 or NaN.
    certain : ndarray, shape (n,)
        1 or 0 where histology overrides the readers, else NaN.
    y, spread : ndarray, shape (n,)
        Label, and standard deviation of the readers, of the rows for which the rule gives no label,
        such as rows of an earlier model.
    eta : float or None
        Constant that replaces every standard deviation; None if the standard deviations of the rule
        are used.
    """

    rule: str
    grades: np.ndarray
    truth: np.ndarray
    certain: np.ndarray
    y: np.ndarray
    spread: np.ndarray
    eta: float | None = None

    def __call__(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels of all rows and the spreads of their readers, two arrays of shape (n,).

        Parameters
        ----------
        rows : ndarray of int
            Numbers of the training rows; the consensus rule is fitted to these rows alone.
        """
        # The rule is fitted to the training rows alone. It then gives labels to all rows, also to
        # those that this fold leaves out.
        y, spread, _ = fold_labels(self.rule, self.grades, self.truth, self.certain, rows)
        if self.eta is not None:
            spread = np.where(np.isfinite(spread), self.eta, spread)
        # Rows of an earlier model have no readers' scores here, so their stored label is kept.
        labels = np.where(np.isfinite(y), y, self.y)
        spreads = np.where(np.isfinite(spread), spread, self.spread)
        return labels, spreads

    def note(self) -> str:
        """Fit the consensus rule to all rows, and return a note if it could not be used.

        The note says why the plain mean took the place of the rule; else it is empty.
        """
        all_rows = np.arange(len(self.y))
        _, _, note = fold_labels(self.rule, self.grades, self.truth, self.certain, all_rows)
        return note


@dataclass(frozen=True)
class Aggregated:
    """Hold features and labels of every measured region: the result of the stage ``aggregate``.

    Parameters
    ----------
    rois, scores : DataFrame
        Rows of ``rois.tsv`` and ``scores.tsv`` of the patients with a measured region.
    grades : DataFrame
        Every score as a probability (:func:`cad.learning.labels.consensus.reader_probabilities`).
    provenance : DataFrame
        How the regions of the cohort were measured, with one row per region.
    labels : DataFrame
        Content of ``labels.parquet``: consensus, histology and kind of label of each region.
    table : Table
        Features and labels of the cohort's regions, followed by the training rows of an earlier
        model where the run extends one.
    source : FoldFeatures
        Computes the features of ``table`` for each fold. They differ between folds where a step,
        such as an intensity scale, is fitted to the fold's training rows.
    own_rows : int
        Number of rows of ``table`` that belong to the cohort; these rows come first.
    simulated : bool
        Whether any row is of a simulated patient.
    parents : tuple of str
        Names of the earlier models whose training rows follow those of the cohort.
    relabel : FoldLabels or None
        Computes the labels again in each fold, for a consensus rule that learns from other regions;
        None where no label depends on another region.
    notes : tuple of str
        Remarks on the labels, which the run shows.
    """

    rois: pd.DataFrame
    scores: pd.DataFrame
    grades: pd.DataFrame
    provenance: pd.DataFrame
    labels: pd.DataFrame
    table: Table
    source: FoldFeatures
    own_rows: int
    simulated: bool
    parents: tuple[str, ...] = ()
    relabel: FoldLabels | None = None
    notes: tuple[str, ...] = ()


def aggregate(loaded: Loaded, extracted: Extracted) -> Aggregated:
    """Make labels from readers' scores and histology, and join them to the measured regions.

    The function writes ``labels.parquet``.

    Parameters
    ----------
    loaded, extracted : Loaded, Extracted
        Results of the stages ``load`` and ``extract``.

    Returns
    -------
    Aggregated
        One row per measured region. The label of a region is NaN if it has neither a score nor
        histology that counts as its label.
    """
    cohort = loaded.cohort
    settings = loaded.settings.labels
    # Patients without a measured region are left out of the tables. Otherwise their scores would
    # change what a consensus rule (which makes one label from several readers' scores) learns about
    # readers.
    measured_patients = set(extracted.features["participant_id"])
    roi_is_kept = cohort.rois["participant_id"].isin(measured_patients)
    score_is_kept = cohort.scores["participant_id"].isin(measured_patients)
    rois = cohort.rois[roi_is_kept].reset_index(drop=True)
    scores = cohort.scores[score_is_kept].reset_index(drop=True)
    labels = reader_labels(scores, rois, cohort.readers, settings)
    labels["label_kind"] = label_kinds(labels, loaded.settings)
    # The column ``truth`` holds histology, with which predictions are compared. The column
    # ``certain`` says whether histology is also the label (setting ``labels.histology``).
    labels["truth"] = malignant(rois, settings.isup_min)
    labels["site"] = loaded.sites(labels["participant_id"])
    grades = reader_probabilities(scores, rois, settings)
    labels["readers_mean"] = readers_mean(grades, labels)
    stated = men_stated(cohort.participants, settings.isup_min)
    for name in STATED:
        labels[name] = labels["participant_id"].map(stated[name]).astype(float)
    write_labels(loaded.folder, labels)
    table = join(extracted.features, labels)
    relabel = _labels_of_folds(loaded, grades, table)
    remarks = notes(scores, settings)
    note_on_rule = relabel.note() if relabel else ""
    if note_on_rule:
        remarks.append(note_on_rule)
    return Aggregated(
        rois=rois,
        scores=scores,
        grades=grades,
        provenance=extracted.provenance,
        labels=labels,
        table=table,
        source=extracted.source,
        own_rows=len(table.keys),
        simulated=cohort.simulated,
        relabel=relabel,
        notes=tuple(remarks),
    )


def aggregate_nothing(loaded: Loaded) -> None:
    """Write a ``labels.parquet`` without rows, for a run in which no study could be measured."""
    write_labels(loaded.folder, pd.DataFrame(columns=KEYS))


def _labels_of_folds(loaded: Loaded, grades: pd.DataFrame, table: Table) -> FoldLabels | None:
    """Return the object that computes labels in each fold.

    The result is None if no label depends on other regions.
    """
    settings = loaded.settings.labels
    is_of_chosen_reader = grades["reader_id"].isin(
        chosen_readers(loaded.cohort.readers, settings.readers)
    )
    grades_by_reader, _ = grade_matrix(grades[is_of_chosen_reader], table.keys)
    return fold_labels_of(settings, grades_by_reader, table.labels, table.y, table.spread)


def fold_labels_of(
    settings: LabelSettings,
    grades: np.ndarray,
    labels: pd.DataFrame,
    y: np.ndarray,
    spread: np.ndarray,
) -> FoldLabels | None:
    """Return the object that computes labels in each fold.

    The result is None if no label depends on other regions.

    Parameters
    ----------
    settings : LabelSettings
        The consensus rule, and whether the spread is a constant.
    grades : ndarray, shape (n, n_readers)
        The score of each reader whose scores count, as a probability; NaN where missing.
    labels : DataFrame, shape (n, ...)
        ``truth`` and ``certain`` of every row, as in ``labels.parquet``.
    y, spread : ndarray, shape (n,)
        Label and standard deviation of rows for which the rule gives none.

    Examples
    --------
    Two readers have the same scores, and a third reader has others. For the mean of a region's
    readers no other region is needed, so the result is None. The rule ``agreement`` learns from the
    training rows to give the two readers more weight:

    >>> import numpy as np
    >>> first = np.array([0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.9])
    >>> third = np.array([0.1, 0.1, 0.9, 0.9, 0.1, 0.1, 0.9, 0.9])
    >>> grades = np.column_stack([first, first, third])
    >>> labels = pd.DataFrame({"truth": [np.nan] * 8, "certain": [np.nan] * 8})
    >>> mean = grades.mean(axis=1)
    >>> rule = LabelSettings(consensus="mean")
    >>> fold_labels_of(rule, grades, labels, mean, np.zeros(8)) is None
    True
    >>> rule = LabelSettings(consensus="agreement")
    >>> make = fold_labels_of(rule, grades, labels, mean, np.zeros(8))
    >>> y, spread = make(np.arange(8))
    >>> mean[:4].round(2).tolist(), y[:4].round(2).tolist()
    ([0.1, 0.63, 0.37, 0.9], [0.1, 0.89, 0.11, 0.9])
    """
    n_readers = grades.shape[1]
    # The mean of a region's readers depends on no other region.
    if settings.consensus == "mean" or n_readers == 0:
        return None
    # With so few readers nobody's agreement with the others can be weighed, and the mean is taken.
    if settings.consensus == "agreement" and n_readers < FEWEST_READERS:
        return None
    return FoldLabels(
        rule=settings.consensus,
        grades=grades,
        truth=labels["truth"].to_numpy(float),
        certain=labels["certain"].to_numpy(float),
        y=y,
        spread=spread,
        eta=None if settings.eta == "adaptive" else float(settings.eta),
    )


def extend(loaded: Loaded, aggregated: Aggregated, bundle: Bundle) -> Aggregated:
    """Add the training regions of an earlier model to those of a cohort.

    Parameters
    ----------
    loaded : Loaded
        The run. Patients who withdrew are left out of the added rows, too.
    aggregated : Aggregated
        The cohort's regions; not changed.
    bundle : Bundle
        The earlier model; :func:`check_extension` must have accepted it.

    Returns
    -------
    Aggregated
        The cohort's regions, followed by the model's training regions.
    """
    with using(bundle):
        table = aggregated.table.with_rows(_kept_rows(loaded, bundle), bundle.features)
        # The object that computes labels must know the added rows, too.
        relabel = aggregated.relabel
        if relabel is not None:
            relabel = _labels_of_folds(loaded, aggregated.grades, table)
        return replace(
            aggregated,
            relabel=relabel,
            table=table,
            source=aggregated.source.with_rows(table.keys, table.X, table.sites),
            simulated=aggregated.simulated or bool(bundle.metadata["training"]["simulated"]),
            parents=(bundle.name,),
        )


def check_extension(loaded: Loaded, bundle: Bundle, regions: pd.DataFrame) -> None:
    """Check that a model's training regions can be added to a cohort (:func:`extend`).

    Parameters
    ----------
    loaded, bundle : Loaded, Bundle
        The run, and the earlier model.
    regions : DataFrame
        ``participant_id, roi_id`` of the cohort: all of ``rois.tsv``.

    Raises
    ------
    CadError
        When the model was stored without its training rows, when it has other settings of
        ``images`` or ``features``, or when it was trained on a region of the cohort.
    """
    with using(bundle):
        _refuse_other_measurements(loaded, bundle)
        region_keys = ["participant_id", "roi_id"]
        # A region in both tables would count twice. In a validation, a model that was trained on
        # one of its rows would predict the other row.
        regions_in_both = _kept_rows(loaded, bundle)[region_keys].merge(regions[region_keys])
    if len(regions_in_both):
        raise CadError(
            f"the region is in the training table of {bundle.name} already, "
            f"as are {len(regions_in_both) - 1} others",
            patient=regions_in_both["participant_id"].iloc[0],
            roi=regions_in_both["roi_id"].iloc[0],
            hint="patients of different cohorts need different ids",
        )


def _kept_rows(loaded: Loaded, bundle: Bundle) -> pd.DataFrame:
    """Return a model's training rows without the patients who withdrew."""
    # The rows of an earlier model may hold patients who have withdrawn since. They are removed
    # here.
    withdrew = bundle.training["participant_id"].isin(loaded.withdrawn)
    return bundle.training[~withdrew].reset_index(drop=True)


def _refuse_other_measurements(loaded: Loaded, bundle: Bundle) -> None:
    """Raise an error for a model without training rows, or with features measured otherwise."""
    if not bundle.metadata["carries_training_rows"]:
        raise CadError(
            f"{bundle.name} was written without its training rows and cannot be extended",
            hint="train it again with learner.training_rows: carry",
        )
    settings_of_model = bundle.pipeline
    settings_of_cohort = loaded.settings.model_dump(mode="json", by_alias=True)
    for section in ("images", "features"):
        if settings_of_model[section] != settings_of_cohort[section]:
            changed = []
            for key, value in settings_of_cohort[section].items():
                if value != settings_of_model[section].get(key):
                    changed.append(key)
            raise CadError(
                f"{section} settings differ from those of {bundle.name}: {', '.join(changed)}",
                hint="measure the new cohort as the old one was measured",
            )


def join(features: pd.DataFrame, labels: pd.DataFrame) -> Table:
    """Join labels to the rows of features by patient and region.

    Parameters
    ----------
    features : DataFrame
        ``participant_id, study_id, roi_id`` and one column per feature.
    labels : DataFrame
        ``participant_id, roi_id``, the label ``y``, the spread ``eta`` and any other columns.

    Returns
    -------
    Table
        One row for each row of ``features``, in the same order; ``y`` is NaN for a region of which
        ``labels`` has no row.
    """
    # A left join keeps the regions for which the table ``labels`` has no row.
    merged = features[KEYS].merge(labels, on=["participant_id", "roi_id"], how="left")
    return Table(
        keys=features[KEYS].reset_index(drop=True),
        X=features.drop(columns=KEYS),
        y=merged["y"].to_numpy(float),
        spread=merged["eta"].fillna(0.0).to_numpy(float),
        labels=merged,
    )


def label_kinds(labels: pd.DataFrame, settings: PipelineSettings) -> pd.Series:
    """Name the kind of label that every region gives the learner (docs/methods.md 1).

    The kind depends on the reading precision (η₀), the least half-width of a label. A learner that
    tries several precisions weighs them in every fold; here the largest one counts.

    Parameters
    ----------
    labels : DataFrame
        ``p``, the readers' consensus as a probability; ``eta``, their standard deviation;
        ``certain``, 1 or 0 where histology overrides the readers.
    settings : PipelineSettings
        Settings. ``labels`` and ``learner`` say how large the precision is, and what becomes of a
        label whose interval leaves (0, 1).

    Returns
    -------
    Series of str
        ``certain_positive`` or ``certain_negative``: a hard label, 1 or 0. ``two_sided``,
        ``one_sided`` or ``none``: a soft label whose interval p ± η has two bounds, one bound, or
        none. ``unlabelled``: no reader's score, and no histology that overrides the readers.
    """
    eta0, kappa = settings.labels.precision
    learner_keywords: dict[str, Any] = {
        "eta0": eta0,
        "kappa": kappa,
        "boundary": settings.labels.boundary,
    }
    # Parameters of the learner replace the settings of labels here, as they do when the learner is
    # fitted.
    for name, value in settings.learner.params.items():
        if name in learner_keywords:
            learner_keywords[name] = value
    # Several values may be tried for each parameter. The largest value gives the widest interval
    # around a label, and so the weakest label.
    precision = float(np.max(learner_keywords["eta0"]))
    share_of_spread = float(np.max(learner_keywords["kappa"]))
    boundary: Rule = "paper" if learner_keywords["boundary"] == "paper" else "drop"

    kinds = np.full(len(labels), "unlabelled", dtype=object)
    p = labels["p"].to_numpy(float)
    spread = labels["eta"].to_numpy(float)
    labelled = np.isfinite(p)
    half_width = half_widths(spread[labelled], precision, share_of_spread)
    codes = soft_labels(p[labelled], half_width, boundary, precision).kinds
    kinds[labelled] = [KIND_NAMES[code] for code in codes]
    # The two kinds of certain labels are set last. Histology that overrides the readers makes a
    # label certain, whatever the readers' scores are.
    certain = labels["certain"].to_numpy(float)
    kinds[certain == 1] = "certain_positive"
    kinds[certain == 0] = "certain_negative"
    return pd.Series(kinds, index=labels.index)
