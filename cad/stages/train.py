"""Train: the model that all patients make, written as a bundle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from cad.errors import CadError
from cad.evaluation.crossval import fit_keywords
from cad.features.provenance import summary
from cad.features.registry import feature_units
from cad.features.typicality import Typicality
from cad.files import JsonObject, json_safe
from cad.model.bundle import save_bundle
from cad.model.card import card, metadata
from cad.model.estimator import carried_rows, make_estimator, unlinked
from cad.stages.aggregate import Aggregated
from cad.stages.judge import Judged
from cad.stages.load import Loaded

REFERENCE_ROWS = 16


def train(loaded: Loaded, aggregated: Aggregated, judged: Judged, out: Path) -> None:
    """Fit on all labelled regions and write the bundle with its validation.

    Raises
    ------
    CadError
        When the settings forbid to carry training rows and the learner keeps them.
    """
    table, source = aggregated.table, aggregated.source
    use = table.labelled
    preparation = source.fit(np.flatnonzero(use))
    X, rows = source.measured(preparation.scale), source.apply(preparation)
    estimator = make_estimator(loaded.settings)
    y, eta = table.y, table.eta
    if aggregated.relabel is not None:
        y, eta = aggregated.relabel(np.flatnonzero(use))
    estimator.fit(rows[use], y[use], **fit_keywords(estimator, eta[use], table.groups[use]))
    estimator = getattr(estimator, "best_estimator_", estimator)
    carried = carried_rows(estimator, loaded.settings.learner)
    out_of_fold = judged.folds.probability if judged.folds else np.nan
    labels = table.labels.assign(out_of_fold=out_of_fold).loc[use].reset_index(drop=True)
    kept = X[use].reset_index(drop=True)
    training = pd.concat([labels, kept if carried else unlinked(kept)], axis=1)
    reference = rows[use] if carried else unlinked(pd.DataFrame(rows[use])).to_numpy()
    people = loaded.cohort.participants
    meta = metadata(
        settings=loaded.settings,
        features=X[use],
        units=feature_units(list(X.columns)),
        labels=labels,
        label_counts=getattr(estimator[-1], "label_counts_", None),
        participants=people[people["participant_id"].isin(set(table.groups[use]))],
        simulated=aggregated.simulated,
        metrics=judged.metrics,
        typicality=_typicality(X[use], table.groups[use]),
        provenance=summary(aggregated.provenance[use[: aggregated.own_rows]]),
        parents=list(aggregated.parents),
    )
    meta |= _outcome(judged.metrics)
    if loaded.withdrawn:
        meta["training"]["withdrawn"] = len(loaded.withdrawn)  # how many, never who
    meta["carries_training_rows"] = carried
    meta["preparation"] = {**preparation.as_dict(), "text": preparation.as_text()}
    save_bundle(out, estimator, json_safe(meta), card(meta), reference[:REFERENCE_ROWS], training)


def _typicality(X: pd.DataFrame, patients: np.ndarray) -> JsonObject | None:
    """Return the limits beyond which a region is unlike these; None for too few patients."""
    try:
        return Typicality.fit(X, patients).as_dict()
    except CadError:
        return None


def _outcome(metrics: JsonObject) -> JsonObject:
    """Return what new cases need of the validation: thresholds, readers' weights, the patient's."""
    return {
        "operating_point": metrics.get("operating_point"),
        "combinations": (metrics.get("assisted") or {}).get("combinations"),
        "patient_model": (metrics.get("patient_level") or {}).get("model"),
    }
