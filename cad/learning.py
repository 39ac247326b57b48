"""From feature rows and labels to a fitted model, and from a model to decisions and reasons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.errors import CadError
from cad.evaluation.nested import PatientGridSearch
from cad.evaluation.selection import SELECTORS
from cad.learners import LEARNERS
from cad.learners.soft_labels import KIND_NAMES, constraint_kinds
from cad.settings import DecisionSettings, LabelSettings, LearnerSettings, PipelineSettings

KEYS = ["participant_id", "study_id", "roi_id"]
ETA_0 = 0.125


@dataclass(frozen=True)
class Table:
    """Rows that learners see.

    Parameters
    ----------
    keys : DataFrame
        ``participant_id, study_id, roi_id``, one row per ROI.
    X : DataFrame, shape (n, n_features)
        Features in a stable order; NaN where a modality is missing.
    y : ndarray, shape (n,)
        Probability stated by the readers, 0 or 1 where certain, NaN where nothing is known.
    eta : ndarray, shape (n,)
        Half-width of the readers' interval.
    labels : DataFrame
        Keys and everything known of the labels, row by row.
    """

    keys: pd.DataFrame
    X: pd.DataFrame
    y: np.ndarray
    eta: np.ndarray
    labels: pd.DataFrame

    def with_rows(self, rows: pd.DataFrame, features: list[str]) -> Table:
        """This table followed by other training rows; a feature one of them lacks is NaN there."""
        names = [*self.X.columns, *(f for f in features if f not in self.X.columns)]
        X = pd.concat([self.X, rows[features]], ignore_index=True).reindex(columns=names)
        labels = pd.concat([self.labels, rows.drop(columns=features)], ignore_index=True)
        return replace(
            self,
            keys=labels[KEYS],
            X=X,
            y=labels["y"].to_numpy(float),
            eta=labels["eta"].fillna(0.0).to_numpy(float),
            labels=labels,
        )

    @property
    def groups(self) -> np.ndarray:
        """Patient of every row."""
        return self.keys["participant_id"].to_numpy(dtype=str)

    @property
    def labelled(self) -> np.ndarray:
        """Which rows a learner can be trained on."""
        return np.isfinite(self.y)


def join(features: pd.DataFrame, labels: pd.DataFrame) -> Table:
    """Feature rows with their labels; rows stay in the order of the features."""
    merged = features[KEYS].merge(labels, on=["participant_id", "roi_id"], how="left")
    names = [c for c in features.columns if c not in KEYS]
    return Table(
        features[KEYS].reset_index(drop=True),
        features[names],
        merged["y"].to_numpy(float),
        merged["eta"].fillna(0.0).to_numpy(float),
        merged,
    )


def label_kinds(labels: pd.DataFrame, settings: LabelSettings) -> pd.Series:
    """What every ROI tells the learner: certain, two-sided, one-sided or nothing (METHODS 1)."""
    kinds = np.full(len(labels), "unlabelled", dtype=object)
    p = labels["p"].to_numpy(float)
    known = np.isfinite(p)
    codes = constraint_kinds(
        p[known], labels["eta"].to_numpy(float)[known], settings.boundary, ETA_0
    )
    kinds[known] = [KIND_NAMES[code] for code in codes]
    certain = labels["certain"].to_numpy(float)
    kinds[certain == 1] = "certain_positive"
    kinds[certain == 0] = "certain_negative"
    return pd.Series(kinds, index=labels.index)


def make_estimator(settings: PipelineSettings) -> Any:
    """Unfitted estimator: imputation, scaling, selection and the learner, in one pipeline.

    With a grid in the settings the pipeline stands inside a search over inner folds of patients.

    Raises
    ------
    CadError
        For an unknown learner or one of its parameters that does not exist.
    """
    learner = _learner(settings.learner, settings.labels)
    steps: list[tuple[str, Any]] = [
        ("impute", SimpleImputer(strategy="median", keep_empty_features=True)),
        ("constant", VarianceThreshold()),
        ("scale", StandardScaler()),
    ]
    if settings.learner.selection != "none":
        selector = SELECTORS[settings.learner.selection]
        steps.append(("select", selector(n_features=settings.learner.n_features)))
    pipeline = Pipeline([*steps, ("learner", learner)])
    part = settings.learner
    if not part.grid:
        return pipeline
    return PatientGridSearch(pipeline, part.grid, part.criterion, part.inner_folds)


def _learner(settings: LearnerSettings, labels: LabelSettings) -> Any:
    if settings.name not in LEARNERS:
        raise CadError(
            f"unknown learner {settings.name!r}", hint=f"known: {', '.join(sorted(LEARNERS))}"
        )
    learner = LEARNERS[settings.name]()
    known = learner.get_params()
    for name in (*settings.params, *settings.grid):
        if name not in known:
            raise CadError(
                f"{settings.name} has no parameter {name!r}", hint=f"it has {', '.join(known)}"
            )
    params = dict(settings.params)
    if "boundary" in known:
        params.setdefault("boundary", labels.boundary)
    return learner.set_params(**params)


def decide(probability: np.ndarray, costs: DecisionSettings) -> np.ndarray:
    """Decision per region: benign, refer or malignant (METHODS 3)."""
    lower, upper = costs.thresholds
    return np.where(
        probability > upper, "malignant", np.where(probability < lower, "benign", "refer")
    )


def explain(
    estimator: Any, training: np.ndarray, rows: np.ndarray, names: list[str], top: int = 5
) -> list[list[dict[str, Any]]]:
    """The features that moved each region's decision value most.

    A feature's part is the change of the decision value when it goes from the training median to
    the region's value, all others kept.

    Parameters
    ----------
    estimator : object
        Fitted estimator with ``decision_function``.
    training : ndarray, shape (n_training, n_features)
        Rows it was fitted on.
    rows : ndarray, shape (n, n_features)
        Regions to explain.
    names : list of str
        Feature names.
    top : int
        Features kept per region.

    Returns
    -------
    list of list of dict
        Per region: ``rank, feature, value, delta, percentile`` (0 to 100 among training rows).
    """
    with np.errstate(all="ignore"):
        median = np.nan_to_num(np.array([_nanmedian(column) for column in training.T]))
    explained = []
    for row in rows:
        changed = np.tile(row, (len(row) + 1, 1))
        changed[np.arange(len(row)), np.arange(len(row))] = median
        values = np.asarray(estimator.decision_function(changed), float)
        delta = values[-1] - values[:-1]
        order = np.argsort(-np.abs(delta), kind="stable")[:top]
        explained.append(
            [
                {
                    "rank": rank,
                    "feature": names[j],
                    "value": float(row[j]),
                    "delta": float(delta[j]),
                    "percentile": _percentile(training[:, j], row[j]),
                }
                for rank, j in enumerate(order, start=1)
            ]
        )
    return explained


def _nanmedian(column: np.ndarray) -> float:
    finite = column[np.isfinite(column)]
    return float(np.median(finite)) if finite.size else float("nan")


def _percentile(column: np.ndarray, value: float) -> float:
    finite = column[np.isfinite(column)]
    if not finite.size or not np.isfinite(value):
        return float("nan")
    return float(100 * ((finite < value).mean() + 0.5 * (finite == value).mean()))


def feature_distance(estimator: Any, rows: np.ndarray) -> np.ndarray:
    """How unlike the training cohort each region is, in standard deviations.

    Root mean square over the features that the learner sees, each standardised with the training
    cohort's mean and standard deviation; shape (n,). About 1 for a typical region.
    """
    seen = estimator[:-1].transform(rows)
    return np.sqrt(np.mean(np.square(seen), axis=1))


def outlier_limit(estimator: Any, training: np.ndarray) -> dict[str, Any]:
    """The distance that 99 % of the training regions do not exceed, and how it is made."""
    return {
        "method": "root mean square of standardised features, 99th percentile of training regions",
        "limit": float(np.quantile(feature_distance(estimator, training), 0.99)),
    }


def carried_rows(estimator: Any, settings: LearnerSettings) -> bool:
    """Whether the bundle carries training regions' feature rows; what a setting forbids is refused.

    Raises
    ------
    CadError
        When the settings say ``drop`` and the learner itself keeps training rows: a kernel machine
        its support vectors, a transductive learner its training points.
    """
    if settings.training_rows == "carry":
        return True
    if hasattr(estimator[-1], "support_vectors_"):
        raise CadError(
            f"{settings.name} keeps training regions' feature rows as support vectors, and "
            "learner.training_rows is 'drop'",
            hint="carry them, or choose a learner without: RankBoost, OPAUC, SVMLin",
        )
    return False


def unlinked(rows: pd.DataFrame) -> pd.DataFrame:
    """Every column sorted by itself: the cohort's distributions without any region's row."""
    return pd.DataFrame({name: np.sort(rows[name].to_numpy(float)) for name in rows.columns})
