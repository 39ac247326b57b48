"""The estimator of a pipeline, unfitted, and what a bundle may keep of its training rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from cad.errors import CadError
from cad.evaluation.nested import PatientGridSearch
from cad.evaluation.selection import SELECTORS
from cad.learners import LEARNERS
from cad.settings import LabelSettings, LearnerSettings, PipelineSettings

# A rank is read off so many quantiles: every 5 %, fewer numbers than any cohort has regions.
RANK_QUANTILES = 21


def make_estimator(settings: PipelineSettings) -> Any:
    """Return the unfitted estimator: imputation, scaling, selection and the learner in one.

    With a grid in the settings the pipeline stands inside a search over inner folds of patients.

    Raises
    ------
    CadError
        For an unknown learner or one of its parameters that does not exist.
    """
    learner = _learner(settings.learner, settings.labels)
    pipeline = Pipeline([*front_steps(settings).steps, ("learner", learner)])
    part = settings.learner
    if not part.grid:
        return pipeline
    return PatientGridSearch(pipeline, part.grid, part.criterion, part.inner_folds)


def front_steps(settings: PipelineSettings) -> Pipeline:
    """Return the unfitted steps before a learner: imputation, scaling, selection."""
    steps: list[tuple[str, Any]] = [
        ("impute", SimpleImputer(strategy="median", keep_empty_features=True)),
        ("constant", VarianceThreshold()),
    ]
    if settings.learner.scaling == "rank":
        steps.append(("rank", QuantileTransformer(n_quantiles=RANK_QUANTILES, subsample=None)))
    steps.append(("scale", StandardScaler()))
    if settings.learner.selection != "none":
        selector = SELECTORS[settings.learner.selection]
        steps.append(("select", selector(n_features=settings.learner.n_features)))
    return Pipeline(steps)


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
    if "eta" in settings.params:
        raise CadError(
            "learner.params.eta would be overridden by the readers' disagreement",
            hint="set labels.eta for one constant, labels.eta0 for the reading precision",
        )
    params = dict(settings.params)
    if "boundary" in known:
        params.setdefault("boundary", labels.boundary)
    if "kappa" in known:
        eta0, kappa = labels.precision
        params = {"eta0": eta0, "kappa": kappa, **params}
    return learner.set_params(**params)


def carried_rows(estimator: Any, settings: LearnerSettings) -> bool:
    """Tell whether the bundle carries training rows; refuse what a setting forbids.

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
    """Sort every column by itself: the cohort's distributions without any region's row."""
    return pd.DataFrame({name: np.sort(rows[name].to_numpy(float)) for name in rows.columns})
