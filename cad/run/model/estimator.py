"""Make the unfitted estimator of a pipeline, and decide which training rows a bundle may keep."""

import reprlib
import warnings
from contextlib import suppress
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.errors import CadError
from cad.base.settings import LabelSettings, LearnerSettings, PipelineSettings
from cad.learning.evaluation.folds.nested import PatientGridSearch
from cad.learning.evaluation.folds.selection import SELECTORS
from cad.learning.evaluation.folds.unlabelled import SemiSupervisedPipeline
from cad.learning.learners import LEARNERS
from cad.learning.learners.rivals import rival_learners
from cad.learning.learners.scaling import SCALERS
from cad.run.model.state import check_stored, dump_state, load_state


def make_estimator(settings: PipelineSettings) -> Any:
    """Return an unfitted scikit-learn pipeline: imputation, scaling, selection and the learner.

    Where the settings have a grid of parameters, the result is a search that chooses among them on
    inner folds of patients and holds the pipeline.

    Raises
    ------
    CadError
        For an unknown learner, a learner that gives no probability, a parameter that does not
        exist, or a value of the wrong type.
    """
    learner = _unfitted_learner(settings.learner, settings.labels)
    # A semi-supervised learner also takes rows without a label. The steps before the learner are
    # fitted to labelled rows only. Otherwise one more row without a label would change the features
    # of all rows.
    is_semi_supervised = getattr(learner, "semi_supervised", False)
    pipeline_class = SemiSupervisedPipeline if is_semi_supervised else Pipeline
    pipeline = pipeline_class([*front_steps(settings).steps, ("learner", learner)])
    search = settings.learner
    if not search.grid:
        return pipeline
    return PatientGridSearch(pipeline, search.grid, search.criterion, search.inner_folds)


def front_steps(settings: PipelineSettings) -> Pipeline:
    """Return the unfitted steps before a learner: imputation, scaling, selection.

    Parameters
    ----------
    settings : PipelineSettings
        ``learner.scaling``, ``selection`` and ``n_features``.
    """
    steps: list[tuple[str, Any]] = [
        # The order matters for a column that has no value in a fold. Imputation makes this column
        # constant, and the next step drops it. Scaling would divide a constant column by zero.
        ("impute", SimpleImputer(strategy="median", keep_empty_features=True)),
        ("constant", VarianceThreshold()),
    ]
    steps.append(("scale", SCALERS.get(settings.learner.scaling, StandardScaler)()))
    if settings.learner.selection != "none":
        selector = SELECTORS[settings.learner.selection]
        steps.append(("select", selector(n_features=settings.learner.n_features)))
    return Pipeline(steps)


def _unfitted_learner(settings: LearnerSettings, labels: LabelSettings) -> Any:
    """Return the learner that the settings name, with its parameters, and check these.

    ``labels`` has settings of labels that are parameters of a learner with soft labels.
    """
    rivals = rival_learners()
    if settings.name in rivals:
        learner: Any = rivals[settings.name]
    elif settings.name in LEARNERS:
        learner = LEARNERS[settings.name]()
    else:
        raise CadError(
            f"unknown learner {settings.name!r}",
            hint=f"known: {', '.join((*sorted(LEARNERS), *rivals))}",
        )
    if not hasattr(learner, "predict_proba"):
        raise CadError(f"{settings.name} gives no probability (it has no predict_proba)")
    defaults = learner.get_params()
    values_to_check = [(f"params.{name}", name, value) for name, value in settings.params.items()]
    for name, values in settings.grid.items():
        for value in values:
            values_to_check.append((f"grid.{name}", name, value))
    for where, name, value in values_to_check:
        if name not in defaults:
            raise CadError(
                f"{settings.name} has no parameter {name!r}", hint=f"it has {', '.join(defaults)}"
            )
        require_value_kind(f"learner.{where}", defaults[name], value)
    # A learner with the parameter ``eta0`` gets the readers' disagreement as ``eta`` in its fit.
    if "eta" in settings.params and "eta0" in defaults:
        raise CadError(
            "learner.params.eta would be overridden by the readers' disagreement",
            hint="set labels.eta for one constant, labels.eta0 for the reading precision",
        )
    # A parameter of the learner that the settings name in ``learner.params`` has priority over the
    # same parameter in the section ``labels``.
    params = dict(settings.params)
    if "boundary" in defaults:
        params.setdefault("boundary", labels.boundary)
    if "kappa" in defaults:
        eta0, kappa = labels.precision
        require_value_kind("labels.eta0", defaults["eta0"], eta0)
        require_value_kind("labels.kappa", defaults["kappa"], kappa)
        params = {"eta0": eta0, "kappa": kappa, **params}
    return learner.set_params(**params)


def require_value_kind(where: str, default: Any, value: Any) -> None:
    """Raise an error for a value of a parameter that is of another kind than the default.

    A number may always be given. A word may be given if the default is or holds a word, a list if
    the default is a list, and None or a truth value if the default is None.

    Parameters
    ----------
    where : str
        Name of the setting, for the message.
    default, value : object
        The learner's default for the parameter, and the user's value.

    Raises
    ------
    CadError
        For a word or a list where a number is needed.
    """
    default_is_list = isinstance(default, list | tuple)
    value_is_list = isinstance(value, list | tuple)
    if value_is_list and not default_is_list:
        raise CadError(
            f"{where}: one value is needed, found {reprlib.repr(value)}",
            hint=f"values to choose from belong under learner.grid.{where.rpartition('.')[2]}",
        )
    default_items = default if default_is_list else [default]
    items = value if value_is_list else [value]
    expected = "a number"
    kinds: tuple[type, ...] = (Real,)
    if any(isinstance(item, str) for item in default_items):
        expected = "a number or a word"
        kinds = (Real, str)
    for item in items:
        if default is None and item is None:
            continue
        # In Python True is the number 1. So "C: yes" in a YAML file would set the cost C to 1.
        is_unwanted_truth = isinstance(item, bool) and default is not None
        if isinstance(item, kinds) and not is_unwanted_truth:
            continue
        hint = f"by itself it is {default!r}"
        if isinstance(item, str):
            hint = "YAML reads 1e-3 as a word and 1.0e-3 as a number"
        raise CadError(f"{where}: expected {expected}, found {reprlib.repr(item)}", hint=hint)


def require_storable(estimator: Any, settings: LearnerSettings) -> None:
    """Raise an error for an unfitted estimator that no bundle could hold once it is fitted.

    A copy of the learner is fitted to a small generated table, and the attributes that the fit has
    set are checked.

    Raises
    ------
    CadError
        When the learner stores an attribute that a bundle cannot hold or that its class does not
        declare, or stores training rows although ``settings.training_rows`` is "drop".
    """
    pipeline = getattr(estimator, "estimator", estimator)  # the pipeline inside a search
    dump_state(pipeline)  # raises an error for a parameter that cannot be stored
    learner = clone(pipeline[-1])
    n_rows = 24
    rows = np.random.default_rng(0).normal(size=(n_rows, 3))
    p = np.arange(n_rows) % 2
    fitted = False
    with suppress(CadError, ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # A learner that cannot be fitted to this small generated table passes here. It is checked
        # again after its training.
        learner.fit(rows, p)
        fitted = True
    structure, arrays = dump_state(learner)
    if fitted:
        check_stored(load_state(structure, arrays), rows.shape[1])
    if "gamma" in pipeline[-1].get_params():  # a learner with a kernel keeps training rows
        _refuse_to_drop(settings)


def carried_rows(estimator: Any, settings: LearnerSettings) -> bool:
    """Return whether the bundle is to keep training rows: True where the settings say "carry".

    Parameters
    ----------
    estimator : pipeline
        Fitted pipeline.
    settings : LearnerSettings
        ``training_rows`` is "carry" or "drop".

    Raises
    ------
    CadError
        When the settings say ``drop`` and the learner itself keeps training rows. A kernel machine
        keeps its support vectors. A transductive learner, whose predictions are made from the
        training points, keeps these.
    """
    if settings.training_rows == "carry":
        return True
    if hasattr(estimator[-1], "support_vectors_"):  # which are feature rows of training regions
        _refuse_to_drop(settings)
    return False


def _refuse_to_drop(settings: LearnerSettings) -> None:
    """Raise an error if the settings keep training rows out of a bundle that must hold some."""
    if settings.training_rows == "drop":
        raise CadError(
            f"{settings.name} keeps training regions' feature rows as support vectors, and "
            "learner.training_rows is 'drop'",
            hint="carry them, or choose a learner without: RankBoost, OPAUC, SVMLin",
        )


def unlinked(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a copy of a table in which every column is sorted independently of the others.

    The distribution of each column stays the same, but a row no longer belongs to one region.

    Parameters
    ----------
    rows : DataFrame, shape (n, d)
        Table that holds only numbers.
    """
    return pd.DataFrame({name: np.sort(rows[name].to_numpy(float)) for name in rows.columns})
