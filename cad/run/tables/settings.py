"""Make the settings for a table of features: those of a pipeline, changed by the user's options."""

import difflib
import warnings
from ast import literal_eval
from typing import Any

import numpy as np
from sklearn.base import clone

from cad.base.errors import CadError
from cad.base.settings import LabelSettings, LearnerSettings, PipelineSettings, read_settings
from cad.base.share import find
from cad.learning.learners import LEARNERS
from cad.learning.learners.rivals import rival_learners
from cad.run.model.estimator import make_estimator, require_value_kind

DEFAULT_PIPELINE = "ensemble"


def table_settings(
    pipeline: str = DEFAULT_PIPELINE,
    learner: str = "",
    folds: int | None = None,
    seed: int | None = None,
) -> PipelineSettings:
    """Return the settings by which a learner is fitted to a table and validated.

    The sections ``images`` and ``features`` of a pipeline do not concern a table. The sections
    ``labels``, ``learner``, ``validate`` and ``decision`` are used as for a cohort. Therefore the
    same rows get the same probabilities, whether they come from a table or from a cohort.

    Parameters
    ----------
    pipeline : str
        Name or file of a pipeline.
    learner : str
        Name of a learner that replaces that of the pipeline: a class in
        :data:`cad.learning.learners.LEARNERS`, or one of the learners with which every validation
        compares (:func:`cad.learning.learners.rivals.rival_learners`). Parameters may follow a
        colon: ``ProbabilisticSVC:kernel=linear,C=10``. Empty for the pipeline's own learner.
    folds : int, optional
        Number of folds into which whole patients are divided; by default the pipeline's scheme is
        used.
    seed : int, optional
        Seed of this division.

    Returns
    -------
    PipelineSettings
        The settings.

    Raises
    ------
    CadError
        For an unknown pipeline, learner or parameter. The hint lists the known ones.

    Examples
    --------
    >>> settings = table_settings("psvm", "ProbabilisticSVC:C=10", folds=5)
    >>> settings.learner.params, settings.validate_.scheme
    ({'C': 10}, 'patient-folds')
    """
    try:
        path = find("pipelines", pipeline, ".yaml")
    except CadError as error:
        raise CadError(
            f"--pipeline {pipeline!r} is not known: neither a file nor a name",
            hint=f"{error.hint}; or give the path of a .yaml file",
        ) from None
    settings = read_settings(PipelineSettings, path)
    changed: dict[str, object] = {}
    if learner:
        changed["learner"] = _replaced_learner(learner, settings.learner)
        changed["labels"] = _one_precision(settings.labels)
        changed["description"] = f"{learner} in the place of the learner of {settings.name}."
    validation: dict[str, object] = {}
    if folds is not None:
        validation = {"scheme": "patient-folds", "folds": folds}
    if seed is not None:
        validation["seed"] = seed
    if validation:
        changed["validate_"] = settings.validate_.model_copy(update=validation)
    settings = settings.model_copy(update=changed)
    # A wrong learner or parameter is an error before the table is read, because reading a large
    # table takes long.
    if learner:
        _check_learner(learner, settings)
    where = f"--learner {learner!r}" if learner else f"--pipeline {pipeline!r}"
    last_step = make_estimator(settings)[-1]  # the learner; the steps before prepare the features
    _check_parameters(last_step, settings.learner.params, where)
    return settings


def _check_learner(text: str, settings: PipelineSettings) -> None:
    """Raise an error for a parameter in ``--learner`` that does not exist or has a wrong value."""
    # The learner with its default parameters tells which parameters there are.
    name = settings.learner.name
    without_params = settings.learner.model_copy(update={"params": {}})
    estimator = make_estimator(settings.model_copy(update={"learner": without_params}))
    defaults = estimator[-1].get_params()  # the last step is the learner
    for key, value in settings.learner.params.items():
        if key not in defaults:
            closest = difflib.get_close_matches(key, defaults, n=1)
            meant = f"did you mean {closest[0]}? " if closest else ""
            raise CadError(
                f"--learner {text!r}: {name} has no parameter {key!r}",
                hint=f"{meant}it has {', '.join(defaults)}",
            )
        try:
            require_value_kind(key, defaults[key], value)
        except CadError as error:
            # A default such as None is no example of a value.
            example = defaults[key] if isinstance(defaults[key], int | float | str) else 1.0
            raise CadError(
                f"--learner {text!r}: {error.problem}", hint=f"for example {key}={example}"
            ) from None


def _check_parameters(learner: Any, params: dict[str, Any], where: str) -> None:
    """Raise an error for a parameter that the learner accepts for no table, such as a negative
    cost.
    """
    rows = np.random.default_rng(0).normal(size=(24, 3))
    labels = np.arange(24) % 2
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clone(learner).fit(rows, labels)
    except (CadError, ValueError) as error:
        # A fit to this small generated table may fail where a fit to the user's table would not. So
        # an error is raised only if its message begins with the name of a parameter.
        named = [name for name in params if str(error).startswith(f"{name} ")]
        if named:
            problem = error.problem if isinstance(error, CadError) else str(error)
            hint = error.hint if isinstance(error, CadError) else ""
            way_out = hint or f"give {named[0]} another value"
            raise CadError(f"{where}: {problem}", hint=way_out) from None


def _replaced_learner(text: str, before: LearnerSettings) -> LearnerSettings:
    """Return a pipeline's section ``learner`` with the learner and parameters that a user names."""
    name, _, stated_parameters = text.partition(":")
    if name not in LEARNERS and name not in rival_learners():
        learner_names = (*sorted(LEARNERS), *rival_learners())
        closest = difflib.get_close_matches(name, learner_names, n=1)
        meant = f"did you mean {closest[0]}? " if closest else ""
        raise CadError(
            f"--learner {name!r} is not known", hint=f"{meant}known: {', '.join(learner_names)}"
        )
    params: dict[str, Any] = {}
    for word in stated_parameters.split(","):
        if not word.strip():  # no parameter is stated, or a comma too many
            continue
        key, equals, value = word.strip().partition("=")
        if not equals:
            raise CadError(
                f"--learner {text!r}: the parameter {word.strip()!r} has no value",
                hint=f"write {word.strip()}=VALUE, as in kernel=linear,C=10",
            )
        params[key.strip()] = _value_of_text(value.strip())
    # The pipeline's grid of parameters to search belongs to its own learner.
    return before.model_copy(update={"name": name, "params": params, "grid": {}})


def _one_precision(labels: LabelSettings) -> LabelSettings:
    """Return settings of labels with one value of ``eta0`` and one of ``kappa``.

    A pipeline may have several values of each, if its own learner finds weights for them. The user
    may name another learner that cannot do so. That learner gets the default value in place of
    several values.
    """
    defaults = LabelSettings()
    changed: dict[str, object] = {}
    if isinstance(labels.eta0, tuple):
        changed["eta0"] = defaults.eta0
    if isinstance(labels.kappa, tuple):
        changed["kappa"] = defaults.kappa
    return labels.model_copy(update=changed)


def _value_of_text(text: str) -> Any:
    """Return the number, or other Python value, that a text writes; else the text itself."""
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # a text, such as linear
