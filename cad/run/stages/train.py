"""Fit the model to all patients, and write it as a bundle: the stage ``train``."""

from pathlib import Path

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.files import JsonObject, json_safe
from cad.learning.evaluation.folds.crossval import fit_keywords
from cad.learning.evaluation.folds.unlabelled import labels_told
from cad.learning.evaluation.summary import Summary, metrics_content
from cad.learning.joint_model import JointModel
from cad.mri.columns import Column
from cad.mri.features.provenance import summary
from cad.mri.features.typicality import Typicality
from cad.run.model.bundle import save_bundle
from cad.run.model.card import card, metadata
from cad.run.model.estimator import carried_rows, make_estimator, unlinked
from cad.run.stages.aggregate import Aggregated
from cad.run.stages.judge import Judged
from cad.run.stages.load import Loaded

REFERENCE_ROWS = 16
"""Number of rows whose predictions a bundle stores, for a check whenever it is loaded."""


def train(loaded: Loaded, aggregated: Aggregated, judged: Judged, out: Path) -> None:
    """Fit the learner to all labelled regions, and write the model with its validation as a bundle.

    Parameters
    ----------
    loaded, aggregated : Loaded, Aggregated
        Results of the stages ``load`` and ``aggregate``.
    judged : Judged
        Result of the validation; its measures and thresholds go into the bundle.
    out : Path
        Folder of the bundle.

    Raises
    ------
    CadError
        When the settings forbid training rows in the bundle, and the fitted learner contains some.
    """
    table = aggregated.table
    source = aggregated.source
    labelled = table.labelled
    labelled_rows = np.flatnonzero(labelled)
    preparation = source.fit(labelled_rows)
    X = source.measured(preparation.scale)
    prepared = source.apply(preparation)

    # The fit, to labelled rows and, by a semi-supervised learner, to the others as well.
    learner_or_search = make_estimator(loaded.settings)
    y = table.y
    spread = table.spread
    if aggregated.relabel is not None:
        y, spread = aggregated.relabel(labelled_rows)
    target = labels_told(learner_or_search, np.where(labelled, y, np.nan))
    is_taught = ~np.isnan(target)
    keywords = fit_keywords(learner_or_search, spread[is_taught], table.groups[is_taught])
    learner_or_search.fit(prepared[is_taught], target[is_taught], **keywords)
    # A search over hyper-parameters holds the best learner. The bundle gets this learner alone.
    estimator = getattr(learner_or_search, "best_estimator_", learner_or_search)
    carried = carried_rows(estimator, loaded.settings.learner)

    # The training table of the bundle. Thresholds and conformal sets for new patients are computed
    # from out-of-fold probabilities: each region's probability comes from a model that did not
    # learn from its patient. The model that is fitted here would be too certain of its own training
    # regions.
    labels = table.labels.assign(out_of_fold=np.nan, out_of_fold_probability=np.nan)
    if len(judged.out_of_fold):  # it has no row without a validation
        labels["out_of_fold"] = judged.out_of_fold["belief"].to_numpy()
        labels["out_of_fold_probability"] = judged.out_of_fold["probability"].to_numpy()
    labels = labels.loc[labelled].reset_index(drop=True)
    if not carried:
        # In a bundle that may carry no training rows, no row holds the features of a region. No row
        # may hold the age and PSA of a man either.
        labels[["age", "psa", "psa_density"]] = np.nan
    features = X[labelled].reset_index(drop=True)
    training = pd.concat([labels, features if carried else unlinked(features)], axis=1)
    # When a bundle is loaded, its predictions for reference rows are computed again. In a bundle
    # that may carry no training rows, no reference row may be a row of a region.
    reference = prepared[labelled]
    if not carried:
        reference = unlinked(pd.DataFrame(reference)).to_numpy()

    columns = loaded.columns
    meta = metadata(
        settings=loaded.settings,
        features=X[labelled],
        columns=columns,
        labels=labels,
        label_counts=getattr(estimator[-1], "label_counts_", None),
        estimator=learner_or_search,
        simulated=aggregated.simulated,
        metrics=metrics_content(judged.summary, judged.decisions),
        typicality=_typicality(X[labelled], table.groups[labelled], columns),
        # Rows of an earlier model, which end the table, have no provenance.
        provenance=summary(aggregated.provenance[labelled[: aggregated.own_rows]]),
        parents=list(aggregated.parents),
    )
    meta["training"]["unlabelled_rows"] = int(is_taught.sum() - labelled.sum())
    if "confidence" in judged.results:  # the column of rois.tsv on regions that software detected
        meta["training"]["detected"] = int(judged.results["confidence"].notna().sum())
    meta |= _facts_of_validation(judged.summary, judged.joint)
    if loaded.withdrawn:
        # The number of patients who withdrew is stored in the bundle. Their ids are not.
        meta["training"]["withdrawn"] = len(loaded.withdrawn)
    meta["carries_training_rows"] = carried
    if loaded.table_roles:
        meta["table"] = loaded.table_roles
    meta["preparation"] = {**preparation.as_dict(), "text": preparation.as_text()}
    save_bundle(out, estimator, json_safe(meta), card(meta), reference[:REFERENCE_ROWS], training)


def _typicality(
    X: pd.DataFrame, patients: np.ndarray, columns: dict[str, Column]
) -> JsonObject | None:
    """Return limits beyond which a region counts as unlike the training regions.

    The result is None where there are too few patients.
    """
    try:
        return Typicality.fit(X, patients, columns).as_dict()
    except CadError:  # too few patients
        return None


def _facts_of_validation(summary: Summary, joint: JointModel | None) -> JsonObject:
    """Return the results of the validation that predictions for new patients need.

    These are the thresholds for regions and men, the weights by which a reader's score and the
    model are combined, and the joint model. A value is None where nothing was fitted.
    """
    outcome: JsonObject = dict.fromkeys(("operating_point", "combinations", "joint", "man"))
    if summary.operating_point is not None:
        outcome["operating_point"] = summary.operating_point.as_dict()
    if summary.assisted is not None:
        outcome["combinations"] = json_safe(summary.assisted.combinations)
    if joint is not None:
        outcome["joint"] = joint.as_dict()
    of_men = summary.patient_level
    if of_men is not None and of_men.operating_point is not None:
        outcome["man"] = {"operating_point": of_men.operating_point.as_dict()}
    return outcome
