"""The public names of ``cad``: each a door to what the commands run; see docs/reference/api.md.

What is not named here, in :mod:`cad.plot`, :mod:`cad.learners` or :mod:`cad.evaluation` is private
and may change without notice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cad import cohort as cohorts
from cad.cohort import Cohort
from cad.errors import CadError
from cad.evaluation.folds.crossval import OutOfFold, deal_patients, out_of_fold
from cad.evaluation.folds.paired import Rivals, compare_with_rivals
from cad.evaluation.statements.promise import broken_promises
from cad.evaluation.summary import summarise
from cad.execution.options import ExecutionOptions
from cad.features.provenance import check_columns
from cad.files import JsonObject
from cad.labels.pooled import Belief, MeanReaders
from cad.labels.scales import score_probability
from cad.model.bundle import Bundle, load_bundle
from cad.model.table_model import save_table_model
from cad.pipeline import aggregate_cohort, predict_cohort
from cad.run_folder import RunFolder
from cad.run_folder.tables import read_probabilities
from cad.settings import PipelineSettings, read_settings
from cad.share import find
from cad.stages.aggregate import Table

__all__ = [
    "Belief",
    "Bundle",
    "CadError",
    "Cohort",
    "Table",
    "Validation",
    "consensus",
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

    Returns
    -------
    Cohort
        Participants, readers, regions and scores as DataFrames; ``problems`` of single patients.

    Raises
    ------
    CadError
        For a table that is missing or unreadable, or a rule that no single patient broke.
    """
    return cohorts.read_cohort(Path(folder))


def measure(folder: str | Path, out: str | Path, *, pipeline: str = "psvm", jobs: int = 1) -> Table:
    """Measure every region of a cohort and join the readers' labels to it.

    Parameters
    ----------
    folder : str or Path
        Cohort folder.
    out : str or Path
        Run folder, where measurements are kept and taken from the next time.
    pipeline : str
        A pipeline's name or file: what is measured, and how scores become labels.
    jobs : int
        Processes.

    Returns
    -------
    Table
        ``X`` (DataFrame of features, a row per region), ``y`` and ``eta`` (labels and their
        uncertainty), ``groups`` (patients), ``labels`` (all that is known), ``keys``.

    Raises
    ------
    CadError
        For unusable settings or a cohort that cannot be read. Studies that cannot be measured are
        left out and named in ``out/resume.jsonl``.
    """
    settings = read_settings(PipelineSettings, find("pipelines", pipeline, ".yaml"))
    options = ExecutionOptions(jobs=jobs)
    return aggregate_cohort(settings, Path(folder), Path(out), options).table


def consensus(
    scores: ArrayLike,
    scale: str = "likert5",
    histology: ArrayLike | None = None,
    isup_min: int | None = None,
) -> Belief:
    """Return what several readers' scores make probable, how much they disagree, and labels.

    Parameters
    ----------
    scores : array, shape (n, readers)
        NaN where a reader did not score.
    scale : {"likert5", "likert01", "percent", "pirads"}
        What the numbers mean (docs/methods.md 1).
    histology : array, shape (n,), optional
        1 malignant, 0 benign, or with ``isup_min`` the ISUP grade (0 benign); NaN where unknown.
    isup_min : int, optional
        Lowest grade that counts as malignant.

    Returns
    -------
    Belief
        ``p``, the mean probability, and ``eta``, the readers' standard deviation (ddof 1; .125 for
        one reader alone), NaN where nobody scored; ``y``, the labels to learn from: certain where
        histology is known, else ``p``.

    Raises
    ------
    CadError
        For a score off its scale or that is no number, and for histology of another length or
        values.

    Examples
    --------
    >>> import cad
    >>> belief = cad.consensus([[1, 1], [2, 4], [5, float("nan")]])
    >>> belief.p.tolist(), belief.eta.round(3).tolist()
    ([0.0, 0.5, 1.0], [0.0, 0.354, 0.125])
    """
    given = np.atleast_2d(_numbers("scores", scores))
    grades = np.full(given.shape, np.nan)
    for score in np.unique(given[np.isfinite(given)]):
        grades[given == score] = score_probability(scale, float(score))
    belief = MeanReaders().predict(grades)
    truth = np.full(len(belief.p), np.nan)
    if histology is not None:
        truth = _truth("histology", histology, len(belief.p), isup_min)
    return replace(belief, y=np.where(np.isnan(truth), belief.p, truth))


def _numbers(name: str, values: ArrayLike) -> np.ndarray:
    """Return values as floats; refuse what only looks like numbers, or does not."""
    raw = np.asarray(values)
    kinds = {type(v) for v in raw.ravel()} if raw.dtype == object else set()
    if raw.dtype.kind in "USM" or any(issubclass(kind, str) for kind in kinds):
        raise CadError(f"{name} holds texts, not numbers", hint="read the column as numbers")
    try:
        return raw.astype(float)
    except (TypeError, ValueError) as error:
        raise CadError(f"{name} holds what is no number: {error}") from error


def _truth(name: str, values: ArrayLike, n: int, isup_min: int | None = None) -> np.ndarray:
    """Return histology as 1, 0 or NaN, shape (n,)."""
    truth = _numbers(name, values)
    if truth.shape != (n,):
        raise CadError(f"{name} has shape {truth.shape}, must be ({n},): one value a region")
    highest = 1 if isup_min is None else 5
    off = truth[~np.isnan(truth) & ~np.isin(truth, np.arange(highest + 1))]
    if len(off):
        raise CadError(
            f"{name} holds {off[0]:g}, must be 0 to {highest}, or NaN where it is not known",
            hint="grades need isup_min, the lowest that counts as malignant (in cad.consensus)",
        )
    if isup_min is None:
        return truth
    return np.where(np.isnan(truth), np.nan, truth >= isup_min)


@dataclass(frozen=True)
class Validation:
    """Hold what leaving patients out says of a learner.

    Parameters
    ----------
    probability : ndarray, shape (n,)
        Out of fold; NaN where the fold failed.
    comparison : DataFrame
        The learner beside its rivals, against readers and histology: see
        :class:`cad.evaluation.folds.paired.Rivals`.
    sentence : str
        Who is best, and whether by more than chance.
    metrics : dict
        The content of a run's ``metrics.json``, which :mod:`cad.plot` draws.
    folds : OutOfFold
        Every fold's warnings, failures and fitted parameters.
    notes : list of str
        The effective number of patients, and where the data break what intervals promise.
    """

    probability: np.ndarray
    comparison: pd.DataFrame
    sentence: str
    metrics: JsonObject
    folds: OutOfFold
    notes: list[str]


def validate(
    learner: Any,
    X: Any,
    y: ArrayLike,
    patients: ArrayLike,
    *,
    eta: ArrayLike | None = None,
    truth: ArrayLike | None = None,
    readers: pd.DataFrame | None = None,
    rivals: Mapping[str, Any] | None = None,
    folds: int | None = None,
    seed: int = 0,
    jobs: int = 1,
) -> Validation:
    """Leave whole patients out, and measure the learner beside rivals on the same folds.

    Parameters
    ----------
    learner : estimator or pipeline
        Unfitted; whatever it fits is fitted anew without the left-out patient.
    X : array or DataFrame, shape (n, d)
        Features.
    y, eta : array, shape (n,)
        Labels, soft or hard, and their uncertainty; rows of NaN are predicted, not learned from.
    patients : array, shape (n,)
        Patient of every region.
    truth : array, shape (n,), optional
        Histology: 1, 0 or NaN. Without it everything is measured against ``y``.
    readers : DataFrame, shape (n, readers), optional
        Every reader's probability, NaN where one did not read; they are measured too, and "against
        readers" means their mean. Without them it means ``y``, certain labels left out where
        ``truth`` is what made them certain.
    rivals : mapping of str to estimator, optional
        Other unfitted learners for the same folds.
    folds : int, optional
        Number of folds that whole patients are dealt to; one patient at a time when not given.
    seed : int
        Of that deal.
    jobs : int
        Folds at a time.

    Raises
    ------
    CadError
        For one patient only, a region without a patient, truth or readers off their range, shapes
        that disagree, a column that says how a region was measured, or when every fold failed.

    Examples
    --------
    >>> import cad, numpy as np
    >>> X = np.linspace(-2, 2, 24)[:, None]
    >>> p = np.round(4 / (1 + np.exp(-3 * X[:, 0]))) / 4
    >>> found = cad.validate(cad.learners.ProbabilisticSVC(C=10), X, p, np.arange(24) % 8)
    >>> sorted(set(found.comparison["learner"]))
    ['constant', 'learner']
    """
    check_columns(getattr(X, "columns", ()))
    p = _numbers("y", y)
    owner = _patients(patients, len(p))
    known = np.full(len(p), np.nan) if truth is None else _truth("truth", truth, len(p))
    believed = _believed(readers, p, known)
    left_out = owner if folds is None else deal_patients(owner, folds, seed)
    made = out_of_fold(learner, X, p, groups=left_out, patients=owner, eta=eta, n_jobs=jobs)
    beside: Rivals = compare_with_rivals(
        "learner", made.probability, rivals or {}, X, p, left_out, eta=eta, patients=owner,
        target=believed, truth=None if truth is None else known, n_jobs=jobs,
    )  # fmt: skip
    keys = pd.DataFrame({"participant_id": owner, "roi_id": np.arange(len(p)).astype(str)})
    frame = keys.assign(probability=made.probability, truth=known, p=believed)
    metrics = summarise(frame, reader_scores=_long(keys, readers), folds=made).as_dict()
    notes = broken_promises(owner, believed, known, readers, beside.table)
    return Validation(made.probability, beside.table, beside.sentence, metrics, made, notes)


def _patients(patients: ArrayLike, n: int) -> np.ndarray:
    """Return the patients' names, shape (n,); refuse a region without one."""
    # Not by way of an array, which makes NaN among names the text 'nan'.
    owner = pd.Series(list(patients), dtype=object)  # type: ignore[arg-type]
    nobody = owner.isna() | (owner.astype(str).str.strip() == "")
    if nobody.any():
        raise CadError(
            f"patients[{int(nobody.to_numpy().argmax())}] is {owner[nobody].iloc[0]!r}: regions "
            "without a patient cannot be kept together",
            hint="name the patient, or leave the region out",
        )
    if len(owner) != n:
        raise CadError(f"patients has {len(owner)} rows, y has {n}")
    names: np.ndarray = owner.astype(str).to_numpy()
    return names


def _believed(readers: pd.DataFrame | None, p: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the readers' mean, shape (n,); NaN where nobody is known to have read."""
    if readers is None:
        seen = ~np.isnan(truth)
        # Labels that histology made certain are no reader's.
        made = seen.any() and bool((p[seen] == truth[seen]).all())
        return np.where(seen & made, np.nan, p)
    if len(readers) != len(p):
        raise CadError(f"readers has {len(readers)} rows, X and y have {len(p)}")
    grades = _numbers("readers", readers.to_numpy())
    off = grades[(grades < 0) | (grades > 1)]
    if off.size:
        raise CadError(
            f"readers holds {off[0]:g}, must be probabilities in [0, 1]",
            hint="a 5-point score s is (s - 1) / 4; cad.consensus reads scores",
        )
    believed: np.ndarray = MeanReaders().predict(grades).p
    return believed


def _long(keys: pd.DataFrame, readers: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return one row per score of a table with one column per reader."""
    if readers is None:
        return None
    wide = pd.concat([keys, readers.set_axis(keys.index)], axis=1)
    long = wide.melt(id_vars=list(keys), var_name="reader_id", value_name="probability")
    return long.dropna(subset="probability").reset_index(drop=True)


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
    """Write a fitted learner as a bundle: plain arrays and JSON, hashed, without pickle.

    Parameters
    ----------
    folder : str or Path
        The bundle; its name is the model's.
    learner : estimator or pipeline
        Fitted; learners and selectors of ``cad``, imputation and scaling of scikit-learn.
    X : DataFrame, shape (n, d)
        What it was fitted on. The rows travel with the bundle, for retraining.
    y, eta : array, shape (n,)
        Labels and their uncertainty.
    patients : array, shape (n,)
        Patient of every row; they are counted, not stored.
    description : str
        A sentence for the card.

    Returns
    -------
    Bundle
        Read back from disk, its reference predictions reproduced.

    Raises
    ------
    CadError
        For a learner that plain arrays cannot hold, or that is not fitted on these columns.
    """
    return save_table_model(Path(folder), learner, X, y, patients, eta=eta, description=description)


def load_model(model: str | Path) -> Bundle:
    """Read a trained model after checking every hash.

    Parameters
    ----------
    model : str or Path
        Bundle folder, or the name of a released model.

    Returns
    -------
    Bundle
        ``probability(X)`` of rows with its columns, ``features`` (those columns), ``estimator``
        (fitted), ``metadata``, ``training``.

    Raises
    ------
    CadError
        For a missing, additional or changed file.

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
        Bundle folders or names; each study is scored by the first whose modalities it has.
    folder : str or Path
        Cohort folder.
    out : str or Path
        Run folder; pages are in ``out/report``.
    jobs : int
        Processes.
    probability_map : bool
        Also map, over the gland, the probability of the model that scored the study.
    outlines : int
        Also say how far each probability moves with the outline, redrawn this often.

    Returns
    -------
    DataFrame
        ``probabilities.csv``: one row per region.

    Raises
    ------
    CadError
        When a bundle is damaged or no study has the modalities of a model. Single studies that
        failed are in ``out/failures.csv``.
    """
    several = [models] if isinstance(models, str | Path) else list(models)
    predict_cohort(
        [str(model) for model in several],
        Path(folder),
        Path(out),
        ExecutionOptions(jobs=jobs),
        probability_map=probability_map,
        outlines=outlines,
    )
    return read_probabilities(RunFolder(Path(out)))
