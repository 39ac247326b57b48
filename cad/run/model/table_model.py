"""Store as a bundle a learner that was fitted to a user's own table, and not to measured images."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cad.base.errors import CadError
from cad.base.files import JsonObject, json_safe
from cad.base.terms.beside import page_beside
from cad.base.version import __version__
from cad.mri.features.provenance import check_columns
from cad.run.model.bundle import Bundle, check_training, load_bundle, save_bundle
from cad.run.model.versions import library_versions

# Number of rows whose predictions a bundle stores, for a check whenever it is loaded.
_REFERENCE_ROWS = 16


def save_table_model(
    folder: Path,
    learner: Any,
    X: pd.DataFrame,
    y: ArrayLike,
    patients: ArrayLike,
    *,
    eta: ArrayLike | None = None,
    description: str = "",
) -> Bundle:
    """Write a model that was fitted to a table as a bundle, and return it as read back from disk.

    Reading checks that the stored model predicts the same as the learner.

    Parameters
    ----------
    folder : Path
        Folder to write; its name is the name of the model.
    learner : estimator or pipeline
        Fitted learner.
    X : DataFrame, shape (n, d)
        Features that the learner was fitted to.
    y : array, shape (n,)
        Labels from 0 to 1.
    patients : array, shape (n,)
        Patient of every row; only the number of patients is stored.
    eta : array, shape (n,), optional
        Standard deviation of each region's readers.
    description : str
        A sentence for the model card.

    Returns
    -------
    Bundle
        The bundle as read back from ``folder``.

    Raises
    ------
    CadError
        For a learner that cannot be stored as plain arrays, or that is not fitted to these columns.
        For a label outside 0 to 1, and for training rows with infinity, or with a missing value
        that the learner does not fill.

    Examples
    --------
    The bundle has the number of patients, but not their names:

    >>> import tempfile
    >>> from cad.learners import ProbabilisticSVC
    >>> X = pd.DataFrame({"adc": [700.0, 800.0, 1500.0, 1600.0]})
    >>> y = [0.9, 0.8, 0.1, 0.2]
    >>> learner = ProbabilisticSVC().fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bundle = save_table_model(Path(folder) / "mine", learner, X, y, ["a", "a", "b", "c"])
    >>> bundle.metadata["training"]["regions"], bundle.metadata["training"]["patients"]
    (4, 3)
    """
    # A learner that is not fitted has no ``n_features_in_``, and is refused here as well.
    if getattr(learner, "n_features_in_", None) != X.shape[1]:
        raise CadError(
            f"the learner was fitted on {getattr(learner, 'n_features_in_', 'no')} features, "
            f"X has {X.shape[1]} columns",
            hint="fit it on the X that is given",
        )
    columns = [str(name) for name in X.columns]
    check_columns(columns)
    values = X.set_axis(columns, axis=1).reset_index(drop=True).astype(float)
    labels = pd.DataFrame({"y": np.asarray(y, dtype=float)})
    labels["eta"] = np.nan if eta is None else np.asarray(eta, dtype=float)
    meta: JsonObject = {
        "name": folder.name,
        "description": description,
        "cad_version": __version__,
        "versions": library_versions(),
        "features": columns,
        "carries_training_rows": True,
        "training": {
            "regions": len(values),
            "patients": len(np.unique(np.asarray(patients).astype(str))),
        },
        "learner": _description_of_learner(learner),
    }
    training = pd.concat([labels, values], axis=1)
    estimator = _copy_without_column_names(learner)
    check_training(training, meta, estimator)
    reference = values.to_numpy()[:_REFERENCE_ROWS]
    save_bundle(folder, estimator, json_safe(meta), _table_card(meta), reference, training)
    return load_bundle(folder)


def _copy_without_column_names(learner: Any) -> Any:
    """Return a copy of the learner that accepts rows without column names.

    A bundle gives its estimator such rows.
    """
    copy = deepcopy(learner)
    estimators = list(copy) if hasattr(copy, "steps") else [copy]
    for estimator in estimators:
        # scikit-learn would warn of rows without names where it knows the names of the fit.
        vars(estimator).pop("feature_names_in_", None)
    return copy


def _description_of_learner(learner: Any) -> JsonObject:
    """Return the class name of a learner, or of the last step of a pipeline, and its parameters.

    Parameters that JSON cannot hold, such as an estimator or a function, are left out.
    """
    last_step = learner[-1] if hasattr(learner, "steps") else learner
    plain_parameters = {}
    for name, value in last_step.get_params().items():
        if isinstance(value, str | int | float | None):
            plain_parameters[name] = value
    return {"name": type(last_step).__name__, "params": plain_parameters}


def _table_card(meta: JsonObject) -> str:
    learner = meta["learner"]
    text = f"{learner['name']} {json.dumps(learner['params'])}"
    return page_beside(__file__).render(meta=meta, learner=text)
