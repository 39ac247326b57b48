"""Convert a fitted estimator into plain arrays and a JSON structure, and back.

No code in a stored model is executed. Only objects of classes on a fixed list are created, and the
stored data are set as their attributes.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from cad.base.errors import CadError
from cad.learning.stored import (
    SMALLEST,
    Declared,
    Inside,
    Plain,
    check_declared,
    declared_by,
    floats,
    whole,
)

# Classes that a stored model may contain, with their modules. The function _classes adds the
# learners of cad.learning.learners and the selectors of features.
_KNOWN = {
    "ClippedScaler": "cad.learning.learners.scaling",
    "Pipeline": "sklearn.pipeline",
    "QuantileTransformer": "sklearn.preprocessing",
    "RankScaler": "cad.learning.learners.scaling",
    "SemiSupervisedPipeline": "cad.learning.evaluation.folds.unlabelled",
    "Recalibrated": "cad.run.model.recalibrated",
    "RidgeProbability": "cad.learning.learners.rivals",
    "SimpleImputer": "sklearn.impute",
    "SoftBoosting": "cad.learning.learners.rivals",
    "SoftLogistic": "cad.learning.learners.rivals",
    "SoftSVM": "cad.learning.learners.rivals",
    "StandardScaler": "sklearn.preprocessing",
    "VarianceThreshold": "sklearn.feature_selection",
}
# Attributes that a fitted object of a scikit-learn class must have, with their types and shapes.
# Classes of this project declare their attributes themselves.
_LIBRARY: dict[str, Declared] = {
    "QuantileTransformer": {
        "n_quantiles_": whole(),
        "quantiles_": floats("q", "d"),
        "references_": floats("q", low=0.0, high=1.0),
    },
    "SimpleImputer": {
        # The imputers of this project keep a column that is empty in training, and fill it with 0.
        "statistics_": floats("d"),
        "indicator_": Plain(),
        "_fit_dtype": Plain(needed=False),
        "_fill_dtype": Plain(needed=False),
    },
    "StandardScaler": {
        "mean_": floats("d"),
        "scale_": floats("d", low=SMALLEST),
        "var_": floats("d", low=0.0),
        "n_samples_seen_": floats(low=0.0),
    },
    "VarianceThreshold": {"variances_": floats("d")},
}
# Attributes that are not stored, because they only serve inspection or can be computed from others.
_LEFT_OUT = ("solution_", "_supports")
_OF_A_PIPELINE = {"steps", "memory", "verbose", "transform_input"}


def dump_state(estimator: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Take a fitted estimator apart into plain data.

    Parameters
    ----------
    estimator : estimator
        Fitted estimator of a class that bundles may hold.

    Returns
    -------
    structure : object
        Nested values that JSON can hold.
    arrays : dict of str to ndarray
        Arrays by the names that the structure refers to, each in the shape that it has in the
        estimator.

    Raises
    ------
    CadError
        When an attribute is of a kind that cannot be stored, for example a kernel that is a
        function.
    """
    arrays: dict[str, np.ndarray] = {}
    return _dump(estimator, "", arrays), arrays


def _classes() -> dict[str, str]:
    """Return the classes that a stored model may contain, with their modules."""
    from cad.learning.evaluation.folds.selection import SELECTORS
    from cad.learning.learners import LEARNERS

    modules = {cls.__name__: cls.__module__ for cls in (*LEARNERS.values(), *SELECTORS.values())}
    return {**_KNOWN, **modules}


def _dump(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value as nested values that JSON can hold, and put its arrays into ``arrays``.

    ``path`` says where in the model the value is. An array gets it as its name.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    # NumPy's own float is a Python float as well. It is stored as an array, which keeps its type.
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, float):
        # The hexadecimal form is exact, and also works for NaN and infinity, which JSON does not
        # have.
        return {"float": value.hex()}
    if isinstance(value, np.ndarray):
        # An object array would need pickle, which can execute code when it is read.
        if value.dtype == object:
            return {"strings": [str(item) for item in value]}
        arrays[path] = value
        return {"array": path}
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if isinstance(value, (list, tuple)):
        items = [_dump(item, f"{path}.{number}", arrays) for number, item in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    # JSON would turn a key that is no text into text.
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _dump(item, f"{path}.{key}", arrays) for key, item in value.items()}}
    name = type(value).__name__
    module = type(value).__module__
    # scikit-learn defines its classes in private modules. _KNOWN names their public modules.
    public_module = _KNOWN.get(name, module) if module.startswith("sklearn.") else module
    if _classes().get(name) != public_module:
        raise CadError(
            f"{path or 'the model'} is a {module}.{name}, which a bundle cannot "
            "store as plain arrays",
            hint="use a named kernel and the project's own pipeline steps",
        )
    state = {}
    for attribute, item in sorted(vars(value).items()):
        if attribute in _LEFT_OUT or attribute.startswith("__"):
            continue
        # A note of scikit-learn on the routing of arguments is no result of the fit.
        if attribute == "_metadata_request":
            continue
        state[attribute] = _dump(item, f"{path}.{attribute}" if path else attribute, arrays)
    return {"class": name, "state": state}


def load_state(structure: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return the estimator that :func:`dump_state` took apart. No constructor is called.

    Parameters
    ----------
    structure : object
        The structure that :func:`dump_state` returned, as read from JSON.
    arrays : dict of str to ndarray
        Arrays by the names that the structure refers to.

    Raises
    ------
    CadError
        For a class that is not on the list of allowed classes.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> scaler = StandardScaler().fit(np.array([[1.0], [3.0]]))
    >>> structure, arrays = dump_state(scaler)
    >>> load_state(structure, arrays).transform(np.array([[2.0], [4.0]])).tolist()
    [[0.0], [2.0]]
    """
    if not isinstance(structure, dict):
        return structure
    if "class" in structure:
        module = _classes().get(structure["class"])
        if module is None:
            raise CadError(f"the bundle names a class that is not allowed: {structure['class']!r}")
        cls = getattr(import_module(module), structure["class"])
        # The constructor is not called, because a changed bundle could make it execute something.
        instance = cls.__new__(cls)
        for attribute, item in structure["state"].items():
            instance.__dict__[attribute] = load_state(item, arrays)
        return instance
    ((kind, content),) = structure.items()  # any other value has one entry, named by its kind
    if kind == "float":
        return float.fromhex(content)
    if kind == "array":
        array = arrays[content]
        return array[()] if array.ndim == 0 else array  # a number again, and no array of one
    if kind == "strings":
        return np.array(content, dtype=object)
    if kind == "dtype":
        return np.dtype(content)
    if kind == "dict":
        return {key: load_state(value, arrays) for key, value in content.items()}
    if kind in ("list", "tuple"):
        items = [load_state(value, arrays) for value in content]
        return tuple(items) if kind == "tuple" else items
    raise CadError(f"the bundle's structure has an unknown part {kind!r}")


def check_stored(estimator: Any, width: int | None = None) -> int:
    """Check a restored estimator against the declarations of its classes, before it is used.

    Parameters
    ----------
    estimator : object
        Result of :func:`load_state`, or a fitted estimator that is to be stored.
    width : int, optional
        Number of columns of the rows that the estimator will be given; by default its own
        ``n_features_in_``.

    Returns
    -------
    int
        Number of columns that the estimator returns. An estimator that selects columns returns
        those that it keeps.

    Raises
    ------
    CadError
        For an attribute that is missing or not of the declared type or shape, and for a class that
        declares no attributes.
    """
    if isinstance(estimator, Pipeline):
        return _check_pipeline(estimator, width)
    name = type(estimator).__name__
    declared = declared_by(type(estimator)) or _LIBRARY.get(name)
    if declared is None:
        raise CadError(
            f"a bundle cannot hold {name[:80]}, whose class does not declare what it stores",
            hint="give the class a `stored` (docs/extending.md)",
        )
    parameters = set(type(estimator)._get_param_names())
    columns = check_declared(estimator, declared, parameters, width)
    for attribute, rule in declared.items():
        if isinstance(rule, Inside):
            where = f"{name}.{attribute}"
            for inner in _estimators_inside(where, vars(estimator)[attribute], rule):
                check_stored(inner, columns)
    # A class may check more than declarations can say, such as that its trees have no loop.
    if hasattr(estimator, "check_stored"):
        estimator.check_stored()
    if hasattr(estimator, "get_support"):
        return int(np.sum(estimator.get_support()))
    return columns


def _check_pipeline(pipeline: Pipeline, width: int | None) -> int:
    """Check the steps of a restored pipeline, and return how many columns the last one returns.

    ``width`` is the number of columns of the rows that the pipeline will be given.
    """
    steps = vars(pipeline).get("steps")
    other_attributes = set(vars(pipeline)) - _OF_A_PIPELINE
    if not isinstance(steps, list) or not steps or other_attributes:
        raise CadError("a pipeline of a bundle holds a list of steps and nothing else")
    for step in steps:
        is_named = isinstance(step, tuple) and len(step) == 2 and isinstance(step[0], str)
        # No training makes a pipeline inside a pipeline.
        if not is_named or isinstance(step[1], Pipeline):
            raise CadError("a step of a pipeline is a name and an estimator")
        width = check_stored(step[1], width)  # each step takes the columns of the step before it
        if width < 1:
            raise CadError(f"step {step[0][:80]!r} leaves no column")
    return int(width or 0)


def _estimators_inside(where: str, value: Any, rule: Inside) -> Iterator[Any]:
    """Yield the estimators in an attribute that is declared to hold estimators.

    ``where`` names the class and the attribute, for the message of an error.
    """
    if value is None and rule.optional:
        return
    classes = rule.classes or tuple(_classes())
    for estimator in value.values() if isinstance(value, dict) else [value]:
        name = type(estimator).__name__
        if name not in classes:
            raise CadError(f"{where} holds a {name[:80]}, declared are {', '.join(classes)}")
        yield estimator
