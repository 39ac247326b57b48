"""Provide the public functions of ``cad``, which do in Python what the commands do in a terminal.

The names listed here, in :mod:`cad.plot`, :mod:`cad.learning.learners` and
:mod:`cad.learning.evaluation` are public. All other names are private and may change without
notice. The page docs/reference/api.md is made from these docstrings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cad.base.errors import CadError
from cad.base.files import JsonObject
from cad.base.settings import PipelineSettings, read_settings
from cad.base.share import find
from cad.base.terms.measures import MEASURES
from cad.folders import cohort as cohorts
from cad.folders.cohort import Cohort
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import read_probabilities
from cad.learning.evaluation.folds.crossval import OutOfFold, deal_patients, out_of_fold
from cad.learning.evaluation.folds.disagreement import measure_disagreement
from cad.learning.evaluation.folds.paired import Rivals, RivalTable, compare_with_rivals
from cad.learning.evaluation.statements.promise import broken_promises
from cad.learning.evaluation.summary import (
    MeasuredDecisions,
    MeasuredValidation,
    Summary,
    metrics_content,
    summarise,
)
from cad.learning.labels.agreement import AgreementReaders, agreement_notes, reader_agreement
from cad.learning.labels.pooled import Belief
from cad.learning.labels.rules import consensus_rule
from cad.learning.labels.scales import score_probability
from cad.learning.learners.averaged import drawn_notes
from cad.learning.learners.ensemble import ProbabilisticEnsemble
from cad.mri.features.provenance import check_columns
from cad.run.execution.options import ExecutionOptions
from cad.run.model.bundle import Bundle, load_bundle
from cad.run.model.table_model import save_table_model
from cad.run.pipeline import aggregate_cohort, predict_cohort
from cad.run.stages.aggregate import Table
from cad.run.tables.saving import Validated, save_validation

__all__ = [
    "Belief",
    "Bundle",
    "CadError",
    "Cohort",
    "Table",
    "Validation",
    "consensus",
    "default_learner",
    "load_model",
    "measure",
    "predict",
    "read_cohort",
    "save_model",
    "validate",
]


def read_cohort(folder: str | Path) -> Cohort:
    """Read and check the tables of a cohort folder (docs/cohort.md).

    Parameters
    ----------
    folder : str or Path
        Cohort folder.

    Returns
    -------
    Cohort
        Participants, readers, regions and scores as DataFrames. ``problems`` lists the rules that
        rows of single patients break. These patients are left out of ``studies()``.

    Raises
    ------
    CadError
        For a table that is missing or cannot be read, or when a broken rule concerns the whole
        cohort.

    Examples
    --------
    A clone of the project has a cohort of 12 simulated men in the folder ``sample_data``:

    >>> import cad
    >>> cohort = cad.read_cohort("sample_data")
    >>> len(cohort.studies()), len(cohort.rois), cohort.problems
    (12, 81, [])
    >>> cohort.studies()[0].study_id
    'sub-0001'
    """
    return cohorts.read_cohort(Path(folder))


def measure(folder: str | Path, out: str | Path, *, pipeline: str = "psvm", jobs: int = 1) -> Table:
    """Measure every region of a cohort and join the readers' labels to the measurements.

    Parameters
    ----------
    folder : str or Path
        Cohort folder.
    out : str or Path
        Run folder. Measurements are kept there and reused by the next call.
    pipeline : str
        Name or file of a pipeline; it says which features are measured and how scores become
        labels.
    jobs : int
        Number of processes.

    Returns
    -------
    Table
        ``X`` is a DataFrame of features with one row per region. For each row ``y`` is the label,
        ``spread`` the standard deviation of the readers and ``groups`` the patient. ``labels`` has
        all columns of the labels, and ``keys`` the ids of patient, study and region.

    Raises
    ------
    CadError
        For settings that cannot be used or a cohort that cannot be read. A study that cannot be
        measured raises no error: it is left out and named in ``out/resume.jsonl``.

    Examples
    --------
    A clone of the project has a cohort of 12 simulated men in the folder ``sample_data``:

    >>> import cad, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = cad.measure("sample_data", f"{folder}/run", pipeline="psvm-biparametric")
    >>> table.X.shape[0], len(table.y), len(set(table.groups))
    (81, 81, 12)
    """
    settings = read_settings(PipelineSettings, find("pipelines", pipeline, ".yaml"))
    return aggregate_cohort(settings, Path(folder), Path(out), ExecutionOptions(jobs=jobs)).table


def consensus(
    scores: ArrayLike,
    scale: str = "likert5",
    histology: ArrayLike | None = None,
    isup_min: int | None = None,
    rule: str = "agreement",
    patients: ArrayLike | None = None,
) -> Belief:
    """Turn several readers' scores into probabilities, their spread, and labels to learn from.

    Parameters
    ----------
    scores : array, shape (n, readers)
        One row per region, one column per reader; NaN where a reader did not score.
    scale : {"likert5", "likert01", "percent", "pirads"}
        The scale of all scores (docs/methods.md 1).
    histology : array, shape (n,), optional
        1 for malignant and 0 for benign. If ``isup_min`` is given: the ISUP grade, with 0 for
        benign. NaN where histology is unknown.
    isup_min : int, optional
        Lowest ISUP grade that counts as malignant.
    rule : {"agreement", "mean", "pooled"}
        How the readers' probabilities are averaged. "agreement": each reader is weighed by his
        agreement with the other readers, for which three readers or more are needed. "mean": all
        readers weigh the same. "pooled": weights are learned from ``histology``.
    patients : array, shape (n,), optional
        Patient of every region. The tests behind ``notes`` keep a patient's regions together. When
        not given, every region counts as a patient of its own.

    Returns
    -------
    Belief
        Three arrays of shape (n,). ``p`` is the (weighted) mean of the readers' probabilities.
        ``eta`` is their standard deviation (with n - 1 in the denominator; .125 for one reader
        alone). ``y`` holds the labels: 0 or 1 where histology is known, else ``p``. ``p`` and
        ``eta`` are NaN where nobody scored. ``notes`` names readers who add nothing to the others,
        and readers whose scores are copies of another reader's.

    Raises
    ------
    CadError
        For a score that is no number or not on the scale, and for histology with a wrong length or
        with values that are not allowed.

    Examples
    --------
    >>> import cad
    >>> belief = cad.consensus([[1, 1], [2, 4], [5, float("nan")]])
    >>> belief.p.tolist(), belief.eta.round(3).tolist()
    ([0.0, 0.5, 1.0], [0.0, 0.354, 0.125])
    >>> rng = np.random.default_rng(0)
    >>> first = rng.integers(1, 6, 90)
    >>> second = np.minimum(5, first + rng.integers(0, 2, 90))
    >>> third = rng.permutation(first)
    >>> scores = np.column_stack([first, second, third])
    >>> cad.consensus(scores).notes[0].split(" that")[0]
    'reader 3 adds nothing to the other readers'
    """
    score_table = np.atleast_2d(_as_floats("scores", scores))
    grades = np.full(score_table.shape, np.nan)
    # Only NaN means that a reader did not score. Infinity is no score of any scale and raises an
    # error.
    for score in np.unique(score_table[~np.isnan(score_table)]):
        grades[score_table == score] = score_probability(scale, float(score))
    truth = np.full(len(grades), np.nan)
    if histology is not None:
        truth = _truth("histology", histology, len(grades), isup_min)
    if patients is None:
        patient_of_region = np.arange(len(grades))
    else:
        patient_of_region = _patients(patients, len(grades))
    readers = [str(name) for name in getattr(scores, "columns", ())]
    if not readers:  # ``scores`` is an array, whose columns have no names
        readers = [f"reader {number}" for number in range(1, score_table.shape[1] + 1)]
    fitted_rule = consensus_rule(rule).fit(grades, truth)
    belief = fitted_rule.predict(grades)
    notes = agreement_notes(reader_agreement(grades, readers, patient_of_region))
    # The note says that the rule could not be used, and what took its place.
    if fitted_rule.note:
        notes.insert(0, fitted_rule.note)
    return replace(belief, y=np.where(np.isnan(truth), belief.p, truth), notes=tuple(notes))


def default_learner() -> ProbabilisticEnsemble:
    """Return an unfitted learner to begin with. It needs no scaled features and no chosen settings.

    Returns
    -------
    ProbabilisticEnsemble
        An average of a linear model, probabilistic support vector machines, trees and boosting,
        each weighted by how well it predicts left-out training patients. After
        ``fit(X, y, eta=..., groups=patients)`` it has three methods: ``predict_proba``;
        ``predict_quantiles``, which describes where the readers' mean for a region may lie; and
        ``predict_range``, which returns the range in which this mean lies. The pipeline
        ``ensemble`` fits this learner to a cohort.

    Examples
    --------
    >>> import cad, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2)) * [1, 1000]
    >>> p = np.round(4 / (1 + np.exp(-2 * X[:, 0]))) / 4
    >>> learner = cad.default_learner().fit(X, p, groups=np.arange(60) // 3)
    >>> learner.predict_range(X[:1], level=0.9).shape
    (1, 2)
    """
    return ProbabilisticEnsemble()


def _as_floats(name: str, values: ArrayLike) -> np.ndarray:
    """Return values as floats; texts, dates and, among scores, True and False raise an error."""
    raw = np.asarray(values)
    types_of_items: set[type] = set()
    if raw.dtype.kind in "Ob":  # objects of any type, or truth values
        types_of_items = {type(item) for item in raw.ravel()}
    if name in ("scores", "readers") and types_of_items & {bool, np.bool_}:
        raise CadError(f"{name} holds True or False, not numbers")
    # U, S and M are texts, bytes and dates. NumPy would turn a text such as "3" into a number.
    if raw.dtype.kind in "USM" or any(issubclass(kind, str) for kind in types_of_items):
        raise CadError(f"{name} holds texts, not numbers", hint="read the column as numbers")
    try:
        return raw.astype(float)
    except (TypeError, ValueError) as error:
        raise CadError(f"{name} holds a value that is no number: {error}") from error


def _truth(name: str, values: ArrayLike, n: int, isup_min: int | None = None) -> np.ndarray:
    """Return histology as 1, 0 or NaN, shape (n,).

    ``values`` are ISUP grades from 0 to 5 if ``isup_min`` is given, and else 1, 0 or NaN already.
    """
    truth_or_grade = _as_floats(name, values)
    if truth_or_grade.shape != (n,):
        raise CadError(
            f"{name} has shape {truth_or_grade.shape}, must be ({n},): one value a region"
        )
    highest = 1 if isup_min is None else 5
    is_allowed = np.isnan(truth_or_grade) | np.isin(truth_or_grade, np.arange(highest + 1))
    if not is_allowed.all():
        wrong = truth_or_grade[~is_allowed][0]
        raise CadError(
            f"{name} holds {wrong:g}, must be 0 to {highest}, or NaN where it is not known",
            hint="grades need isup_min, the lowest that counts as malignant (in cad.consensus)",
        )
    if isup_min is None:
        return truth_or_grade
    return np.where(np.isnan(truth_or_grade), np.nan, truth_or_grade >= isup_min)


@dataclass(frozen=True, repr=False)
class Validation:
    """Hold the result of a cross-validation that leaves whole patients out.

    ``print`` shows the result as a short text. A notebook shows it as a table with a reliability
    diagram and an ROC curve.

    Parameters
    ----------
    probability : ndarray, shape (n,)
        Probability of every region by a model that did not learn from its patient; NaN where this
        model could not be fitted.
    comparison : DataFrame
        One row for each ``learner``, ``measure`` and truth. ``learner`` is a name; the validated
        learner is called ``learner``. ``measure`` is ``kl``, ``brier``, ``auc`` or
        ``calibration_slope``. ``against`` says which truth the predictions are compared with:
        ``readers`` or ``histology``. ``value`` is the measure. The other columns are the same as in
        ``table`` of :class:`cad.learning.evaluation.folds.paired.Rivals`.
    sentence : str
        A sentence that says which learner is best, and whether it is better by more than chance.
    folds : OutOfFold
        Warnings, failures and fitted parameters of every fold.
    notes : list of str
        Sentences on the effective number of patients, and warnings where the data do not meet the
        assumptions of the intervals and tests. With several readers also whether their disagreement
        helps, and which readers add nothing to the others.
    summarised : callable
        Function without arguments that computes the measures that ``metrics`` returns.
    validated : Validated
        The validated rows and settings, which :meth:`save` writes.
    """

    probability: np.ndarray
    comparison: pd.DataFrame
    sentence: str
    folds: OutOfFold
    notes: list[str]
    summarised: Callable[[], Summary]
    validated: Validated

    @cached_property
    def metrics(self) -> JsonObject:
        """Return the content of a run's ``metrics.json``, computed on first use."""
        return metrics_content(self._summary, MeasuredDecisions())

    @cached_property
    def _summary(self) -> Summary:
        return self.summarised()

    def save(self, out: str | Path) -> Path:
        """Write the same run folder as ``cad table validate``; nothing is fitted again.

        Parameters
        ----------
        out : str or Path
            Folder to write. It gets the probabilities, the decisions that follow from the default
            costs of errors, the measures, ``validation.md`` with checklists, figures and an index
            page.

        Returns
        -------
        Path
            Path of the index page.

        Raises
        ------
        CadError
            When the folder holds anything but an earlier result of this kind.
        """
        rivals: RivalTable = {
            "reference": "learner",
            "sentence": self.sentence,
            "table": self.comparison.to_dict("records"),
        }
        return save_validation(self.validated, self.folds, rivals, Path(out))

    def __repr__(self) -> str:
        predicted = int(np.isfinite(self.probability).sum())
        lines = [
            f"Validation: {predicted} of {len(self.probability)} regions predicted in "
            f"{len(self.folds.folds)} folds"
        ]
        rows_of_learner = self.comparison[self.comparison["learner"] == "learner"]
        for against, rows in rows_of_learner.groupby("against", sort=False):
            values = []
            for row in rows.itertuples():
                measure = MEASURES[row.measure]
                values.append(f"{measure.title} {row.value:.{measure.digits}f}")
            lines.append(f"against {against} ({rows['n'].max()} regions): {', '.join(values)}")
        return "\n".join([*lines, self.sentence])

    def _repr_html_(self) -> str:
        from cad.run.reports.notebook import validation_html

        return validation_html(self.sentence, self.notes, self.comparison, self._summary)


def validate(
    learner: Any,
    X: Any,
    y: ArrayLike,
    patients: ArrayLike | str,
    *,
    eta: ArrayLike | None = None,
    truth: ArrayLike | None = None,
    readers: pd.DataFrame | None = None,
    rivals: Mapping[str, Any] | None = None,
    histology_rivals: Mapping[str, Any] | None = None,
    folds: int | None = None,
    seed: int = 0,
    jobs: int = 1,
    relabel: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray | None]] | None = None,
) -> Validation:
    """Cross-validate a learner, leaving whole patients out, and compare it with other learners.

    Parameters
    ----------
    learner : estimator or pipeline
        Unfitted. In each fold a copy is fitted, with all its steps, without the left-out patients.
    X : array or DataFrame, shape (n, d)
        Features, one row per region; a DataFrame may be one of pandas or polars.
    y : array, shape (n,)
        Labels: any value from 0 to 1. Rows whose label is NaN get a probability, but no model
        learns from them.
    patients : array, shape (n,), or str
        Patient of every region, or the name of the column of ``X`` that holds the patients. This
        column is then no feature.
    eta : array, shape (n,), optional
        Standard deviation of each region's readers, for learners that use it.
    truth : array, shape (n,), optional
        Histology: 1, 0 or NaN. Without it everything is measured against ``y``.
    readers : DataFrame, shape (n, readers), optional
        Every reader's probability, NaN where a reader did not read. The readers are measured, too,
        and the predictions of all learners are compared with the readers' mean. Without this table
        the predictions are compared with ``y``. If ``y`` equals ``truth`` wherever ``truth`` is
        known, those labels are taken to come from histology, and their rows are left out of the
        comparison with ``y``.
    rivals : mapping of str to estimator, optional
        Other unfitted learners, by name, with which the learner is compared on the same folds.
    histology_rivals : mapping of str to estimator, optional
        Such learners that learn from ``truth`` instead of ``y``, by name.
    folds : int, optional
        Number of folds into which patients are divided at random. By default every patient is a
        fold.
    seed : int
        Random seed of the division of patients into folds.
    jobs : int
        Number of folds that are fitted at the same time.
    relabel : callable, optional
        A function that is needed where the label of a region depends on other regions. It takes the
        indices of a fold's training rows. It returns ``y`` and ``eta`` of all rows, computed from
        the training rows alone.

    Returns
    -------
    Validation
        Out-of-fold probabilities, and measures of the learner and its rivals.

    Raises
    ------
    CadError
        For fewer than two patients; for a region without a patient; for ``truth`` or ``readers``
        with values out of range; for shapes that disagree; for a column of ``X`` that is no feature
        but tells how a region was measured; when every fold failed.

    Examples
    --------
    >>> import cad, numpy as np
    >>> X = np.linspace(-2, 2, 24)[:, None]
    >>> p = np.round(4 / (1 + np.exp(-3 * X[:, 0]))) / 4
    >>> validation = cad.validate(cad.learners.ProbabilisticSVC(C=10), X, p, np.arange(24) % 8)
    >>> sorted(set(validation.comparison["learner"]))
    ['constant', 'learner']
    """
    X = _pandas(X)
    readers = _pandas(readers)
    if isinstance(patients, str):
        X, patients = _split_off(X, patients)
    check_columns(getattr(X, "columns", ()))
    p = _as_floats("y", y)
    patient_of_region = _patients(patients, len(p))
    truth_values = np.full(len(p), np.nan) if truth is None else _truth("truth", truth, len(p))
    belief_of_readers = _belief_of_readers(readers, p, truth_values)
    left_out_together = patient_of_region
    if folds is not None:
        left_out_together = deal_patients(patient_of_region, folds, seed)
    predicted = out_of_fold(
        learner,
        X,
        p,
        groups=left_out_together,
        patients=patient_of_region,
        eta=eta,
        relabel=relabel,
        n_jobs=jobs,
    )
    compared: Rivals = compare_with_rivals(
        "learner",
        predicted.probability,
        rivals or {},
        X,
        p,
        left_out_together,
        eta=eta,
        patients=patient_of_region,
        target=belief_of_readers,
        truth=None if truth is None else truth_values,
        relabel=relabel,
        centred=predicted.centred,
        of_histology=histology_rivals,
        n_jobs=jobs,
    )

    notes = broken_promises(
        patient_of_region, belief_of_readers, truth_values, readers, compared.table
    )
    disagreement = None
    if eta is not None and readers is not None and readers.shape[1] > 1:
        disagreement = measure_disagreement(
            learner, X, p, eta, patients=patient_of_region, seed=seed
        )
    if disagreement is not None:
        notes.append(disagreement.sentence())
    notes += drawn_notes(learner, int(np.isfinite(p).sum()))
    if readers is not None:
        names = [str(name) for name in readers.columns]
        grades = readers.to_numpy(float)
        notes += agreement_notes(reader_agreement(grades, names, patient_of_region))

    keys = pd.DataFrame(
        {"participant_id": patient_of_region, "roi_id": np.arange(len(p)).astype(str)}
    )
    regions = keys.assign(
        probability=predicted.probability,
        decision_value=predicted.decision,
        centred=predicted.centred,
        truth=truth_values,
        p=belief_of_readers,
    )
    # The measures take time, and are computed only when somebody asks for them.
    summarised = partial(
        summarise,
        regions,
        reader_scores=_one_row_per_score(keys, readers),
        folds=predicted,
        validation=MeasuredValidation(disagreement=disagreement),
    )
    features = X
    if not isinstance(X, pd.DataFrame):  # the columns of an array get names
        features = pd.DataFrame(np.asarray(X)).add_prefix("column_")
    spread = np.full(len(p), np.nan)
    if eta is not None:
        spread = np.broadcast_to(eta, len(p)).astype(float)
    validated = Validated(
        X=features,
        y=p,
        eta=spread,
        believed=belief_of_readers,
        truth=truth_values,
        patients=patient_of_region.tolist(),
        readers=readers,
        learner=_class_of(learner),
        n_folds=folds,
        seed=seed,
        notes=notes,
    )
    return Validation(
        probability=predicted.probability,
        comparison=compared.table,
        sentence=compared.sentence,
        folds=predicted,
        notes=notes,
        summarised=summarised,
        validated=validated,
    )


def _class_of(learner: Any) -> str:
    """Return the name of a learner's class; for a pipeline, the name of its last step's class."""
    last_step = learner[-1] if hasattr(learner, "steps") else learner
    return type(last_step).__name__


def _pandas(table: Any) -> Any:
    """Return a DataFrame of another library as a DataFrame of pandas.

    Anything else is returned unchanged.
    """
    if isinstance(table, pd.DataFrame) or not hasattr(table, "to_pandas"):
        return table
    return table.to_pandas()


def _split_off(X: Any, name: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return a table without its column of patients, and that column."""
    if not isinstance(X, pd.DataFrame) or name not in X:
        raise CadError(
            f"patients is {name!r}, and X has no column of that name",
            hint="give the patient of every region, or the name of a column of X",
        )
    return X.drop(columns=name), X[name]


def _patients(patients: ArrayLike, n: int) -> np.ndarray:
    """Return the patients' names, shape (n,); a region without a patient raises an error."""
    # A list is used, because numpy would turn NaN among names into the text 'nan'.
    names = pd.Series(list(patients), dtype=object)  # type: ignore[arg-type]
    has_no_name = names.isna() | (names.astype(str).str.strip() == "")
    if has_no_name.any():
        row = int(has_no_name.to_numpy().argmax())  # the first one that is True
        raise CadError(
            f"patients[{row}] is {names[has_no_name].iloc[0]!r}: regions without a patient cannot "
            "be kept together",
            hint="name the patient, or leave the region out",
        )
    if len(names) != n:
        raise CadError(f"patients has {len(names)} rows, y has {n}")
    return np.asarray(names.astype(str).to_numpy())


def _belief_of_readers(
    readers: pd.DataFrame | None, p: np.ndarray, truth: np.ndarray
) -> np.ndarray:
    """Return the belief of readers with which predictions are compared, shape (n,).

    With readers it is their mean, weighted by their agreement. Without readers it is the label
    ``p`` of each region, and NaN where the label comes from histology.
    """
    if readers is None:
        has_truth = ~np.isnan(truth)
        # If the labels equal histology wherever histology is known, they come from histology and
        # not from readers.
        from_histology = has_truth.any() and bool((p[has_truth] == truth[has_truth]).all())
        return np.where(has_truth & from_histology, np.nan, p)
    if len(readers) != len(p):
        raise CadError(f"readers has {len(readers)} rows, X and y have {len(p)}")
    grades = _as_floats("readers", readers.to_numpy())
    outside = grades[(grades < 0) | (grades > 1)]
    if outside.size:
        message = f"readers holds {outside[0]:g}, must be probabilities in [0, 1]"
        raise CadError(message, hint="a 5-point score s is (s - 1) / 4; cad.consensus reads scores")
    # Every consensus rule takes histology; this one ignores it. The weights come from the readers'
    # agreement alone.
    return AgreementReaders().fit(grades, truth).predict(grades).p


def _one_row_per_score(keys: pd.DataFrame, readers: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return a table with one row per score, from a table with one column per reader."""
    if readers is None:
        return None
    one_row_per_region = pd.concat([keys, readers.set_axis(keys.index)], axis=1)
    scores = one_row_per_region.melt(
        id_vars=list(keys), var_name="reader_id", value_name="probability"
    )
    return scores.dropna(subset="probability").reset_index(drop=True)


def save_model(
    folder: str | Path,
    learner: Any,
    X: pd.DataFrame,
    y: ArrayLike,
    patients: ArrayLike,
    *,
    eta: ArrayLike | None = None,
    description: str = "",
) -> Bundle:
    """Write a fitted learner as a bundle: a folder of plain arrays and JSON with hashes, no pickle.

    Parameters
    ----------
    folder : str or Path
        Folder to write; its name is the name of the model.
    learner : estimator or pipeline
        Fitted. Learners and selectors of ``cad``, and steps of scikit-learn for imputation and
        scaling, can be stored.
    X : DataFrame, shape (n, d)
        Features that the learner was fitted to. They are stored in the bundle, so that the model
        can be trained again with more rows.
    y : array, shape (n,)
        Labels from 0 to 1.
    patients : array, shape (n,)
        Patient of every row; only the number of patients is stored.
    eta : array, shape (n,), optional
        Standard deviation of each region's readers.
    description : str
        A sentence for the model's card.

    Returns
    -------
    Bundle
        The model, read back from disk after a check that it predicts the same as the learner.

    Raises
    ------
    CadError
        For a learner that cannot be stored as plain arrays, or that is not fitted to these columns.

    Examples
    --------
    The model that is read back predicts the same as the learner:

    >>> import tempfile
    >>> import cad
    >>> X = pd.DataFrame({"adc": [700.0, 800.0, 1500.0, 1600.0], "ktrans": [0.4, 0.3, 0.1, 0.2]})
    >>> learner = cad.default_learner().fit(X, [0.9, 0.8, 0.1, 0.2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = save_model(f"{folder}/mine", learner, X, [0.9, 0.8, 0.1, 0.2], list("abcd"))
    >>> model.name, model.features, model.gap < 1e-9
    ('mine', ['adc', 'ktrans'], True)
    """
    return save_table_model(Path(folder), learner, X, y, patients, eta=eta, description=description)


def load_model(model: str | Path) -> Bundle:
    """Read a trained model from its bundle, and check the hash of every file.

    Parameters
    ----------
    model : str or Path
        Bundle folder (a stored model), or the name of a released model.

    Returns
    -------
    Bundle
        The model. ``features`` lists the names of the columns that the model needs, and
        ``probability(X)`` gives probabilities for rows with these columns. ``estimator`` is the
        fitted estimator. ``training`` has the training rows, and ``metadata`` describes the model.

    Raises
    ------
    CadError
        When a file of the bundle is missing or changed, or the bundle's folder holds another file.

    Examples
    --------
    >>> import cad
    >>> model = cad.load_model("phantom-psvm")
    >>> model.name, model.metadata["training"]["simulated"]
    ('phantom-psvm', True)
    """
    return load_bundle(find("models", str(model)))


def predict(
    models: str | Path | Sequence[str | Path],
    folder: str | Path,
    out: str | Path,
    *,
    jobs: int = 1,
    probability_map: bool = False,
    outlines: int = 0,
) -> pd.DataFrame:
    """Score the regions of a cohort with trained models and write the patients' pages.

    Parameters
    ----------
    models : str, Path or sequence of them
        Bundle folders (stored models) or names of released models, in order of preference. Each
        study is scored by the first model whose modalities (kinds of image) the study has.
    folder : str or Path
        Cohort folder.
    out : str or Path
        Run folder; pages are in ``out/report``.
    jobs : int
        Number of processes.
    probability_map : bool
        Whether to also write an image of each prostate with the model's probability at every voxel.
    outlines : int
        If not 0, also report how far each region's belief changes with its outline. The outlines
        are those of several readers where these exist, else this number of redrawn copies.

    Returns
    -------
    DataFrame
        Content of ``out/probabilities.csv``, one row per region. Among the columns are
        ``participant_id``, ``study_id``, ``roi_id``, ``probability``, the ends of its 95 % range,
        ``probability_low`` and ``probability_high``, and ``decision``.

    Raises
    ------
    CadError
        When a bundle is damaged, or when no study has the modalities of a model. A single study
        that fails raises no error: it is listed in ``out/failures.csv``.

    Examples
    --------
    A clone of the project has a cohort of 12 simulated men in the folder ``sample_data``:

    >>> import cad, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = cad.predict("phantom-psvm-biparametric", "sample_data", f"{folder}/run")
    >>> len(results), bool(results["probability"].between(0, 1).all())
    (81, True)
    """
    model_names = [models] if isinstance(models, str | Path) else list(models)
    predict_cohort(
        [str(name) for name in model_names],
        Path(folder),
        Path(out),
        ExecutionOptions(jobs=jobs),
        probability_map=probability_map,
        outlines=outlines,
    )
    return read_probabilities(RunFolder(Path(out)))
