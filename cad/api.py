"""The public names of ``cad``: each a door to what the commands run; see docs/reference/api.md.

What is not named here, in :mod:`cad.plot`, :mod:`cad.learners` or :mod:`cad.evaluation` is private
and may change without notice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cad import cohort as cohorts
from cad.cohort import Cohort
from cad.errors import CadError
from cad.evaluation.crossval import OutOfFold, out_of_fold
from cad.evaluation.rivals import Rivals, compare_with_rivals
from cad.evaluation.summary import evaluate
from cad.execution.options import ExecutionOptions
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


def consensus(scores: ArrayLike, scale: str = "likert5") -> Belief:
    """Return what several readers' scores make probable, and how much the readers disagree.

    Parameters
    ----------
    scores : array, shape (n, readers)
        NaN where a reader did not score.
    scale : {"likert5", "likert01", "percent", "pirads"}
        What the numbers mean (docs/methods.md 1).

    Returns
    -------
    Belief
        ``p``, the mean probability, and ``eta``, the readers' standard deviation (ddof 1; .125 for
        one reader alone); NaN where nobody scored.

    Raises
    ------
    CadError
        For a score off its scale.

    Examples
    --------
    >>> import cad
    >>> belief = cad.consensus([[1, 1], [2, 4], [5, float("nan")]])
    >>> belief.p.tolist(), belief.eta.round(3).tolist()
    ([0.0, 0.5, 1.0], [0.0, 0.354, 0.125])
    """
    given = np.atleast_2d(np.asarray(scores, dtype=float))
    grades = np.full(given.shape, np.nan)
    for score in np.unique(given[np.isfinite(given)]):
        grades[given == score] = score_probability(scale, float(score))
    return MeanReaders().predict(grades)


@dataclass(frozen=True)
class Validation:
    """Hold what leaving patients out says of a learner.

    Parameters
    ----------
    probability : ndarray, shape (n,)
        Out of fold; NaN where the fold failed.
    comparison : DataFrame
        The learner beside its rivals, against readers and histology: see
        :class:`cad.evaluation.rivals.Rivals`.
    sentence : str
        Who is best, and whether by more than chance.
    metrics : dict
        The content of a run's ``metrics.json``, which :mod:`cad.plot` draws.
    folds : OutOfFold
        Every fold's warnings, failures and fitted parameters.
    """

    probability: np.ndarray
    comparison: pd.DataFrame
    sentence: str
    metrics: JsonObject
    folds: OutOfFold


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
        Every reader's probability; they are measured too.
    rivals : mapping of str to estimator, optional
        Other unfitted learners for the same folds.
    jobs : int
        Folds at a time.

    Raises
    ------
    CadError
        For one patient only, shapes that disagree, or when every fold failed.

    Examples
    --------
    >>> import cad, numpy as np
    >>> X = np.linspace(-2, 2, 24)[:, None]
    >>> p = np.round(4 / (1 + np.exp(-3 * X[:, 0]))) / 4
    >>> found = cad.validate(cad.learners.ProbabilisticSVC(C=10), X, p, np.arange(24) % 8)
    >>> sorted(set(found.comparison["learner"]))
    ['constant', 'learner']
    """
    p = np.asarray(y, dtype=float)
    owner = np.asarray(patients).astype(str)
    known = np.full(len(p), np.nan) if truth is None else np.asarray(truth, dtype=float)
    folds = out_of_fold(learner, X, p, groups=owner, eta=eta, n_jobs=jobs)
    beside: Rivals = compare_with_rivals(
        "learner", folds.probability, rivals or {}, X, p, owner,
        eta=eta, truth=None if truth is None else known, n_jobs=jobs,
    )  # fmt: skip
    keys = pd.DataFrame({"participant_id": owner, "roi_id": np.arange(len(p)).astype(str)})
    frame = keys.assign(probability=folds.probability, truth=known, p=p)
    metrics = evaluate(frame, reader_scores=_long(keys, readers), folds=folds)
    return Validation(folds.probability, beside.table, beside.sentence, metrics, folds)


def _long(keys: pd.DataFrame, readers: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return one row per score of a table with one column per reader."""
    if readers is None:
        return None
    if len(readers) != len(keys):
        raise CadError(f"readers has {len(readers)} rows, X and y have {len(keys)}")
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
        Also map the first model's probability over the gland.
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
