"""What a clinic asks beside a region's probability: a reader with the tool, the whole patient."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cad.evaluation.assisted import Combinations
from cad.evaluation.patient_level import PatientModel, patient_table
from cad.files import JsonObject
from cad.model.bundle import Bundle


def take_out_of_fold(
    results: pd.DataFrame, metrics: JsonObject, rows: int
) -> tuple[pd.DataFrame, JsonObject]:
    """Move the columns that validation made from the measures to the result table.

    Parameters
    ----------
    results : DataFrame
        One row a region of the cohort.
    metrics : dict
        From :func:`cad.evaluation.summary.evaluate`.
    rows : int
        Rows of the cohort; those of a model that was extended follow them.

    Returns
    -------
    results : DataFrame
        With ``p_benign, p_malignant`` (conformal), ``with_tool`` (``r1=0.53; r2=0.61``, each
        reader's probability of malignancy with the tool) and ``patient_probability``.
    metrics : dict
        Without those columns.
    """
    results, metrics = results.copy(), dict(metrics)
    if metrics.get("conformal"):
        part = dict(metrics["conformal"])
        for name in ("p_benign", "p_malignant"):
            results[name] = np.array(part.pop(name), float)[:rows]
        metrics["conformal"] = part
    if metrics.get("assisted"):
        part = dict(metrics["assisted"])
        columns = {k: np.array(v, float)[:rows] for k, v in part.pop("probability").items()}
        results["with_tool"] = _text(pd.DataFrame(columns, index=results.index))
        metrics["assisted"] = part
    if metrics.get("patient_level"):
        part = dict(metrics["patient_level"])
        by_patient = dict(zip(part.pop("patients"), part.pop("probability"), strict=True))
        found = results["participant_id"].map(by_patient)
        results["patient_probability"] = found.astype(float)
        metrics["patient_level"] = part
    return results, metrics


def add_from_bundle(
    results: pd.DataFrame, reader_scores: pd.DataFrame, bundle: Bundle
) -> pd.DataFrame:
    """Add what a trained model knows of readers and patients to the regions that it scored.

    Parameters
    ----------
    results : DataFrame
        One row a region, with ``probability`` and ``model``.
    reader_scores : DataFrame
        ``participant_id, roi_id, reader_id, probability``: scores as probabilities.
    bundle : Bundle
        The model.

    Returns
    -------
    DataFrame
        With ``with_tool`` and ``patient_probability`` filled on the rows of this model.
    """
    results = results.copy()
    own = (results["model"] == bundle.name).to_numpy()
    combinations = bundle.metadata.get("combinations")
    if combinations is not None and len(reader_scores):
        known = Combinations.from_dict(combinations)
        wide = reader_scores.pivot_table(
            index=["participant_id", "roi_id"], columns="reader_id", values="probability"
        )
        keys = pd.MultiIndex.from_frame(results[["participant_id", "roi_id"]])
        wide = wide.reindex(keys).set_axis(results.index)
        q = results["probability"].to_numpy(float)
        made = {
            str(reader): known.probability(str(reader), wide[reader].to_numpy(float), q)[0]
            for reader in wide.columns
        }
        results.loc[own, "with_tool"] = _text(pd.DataFrame(made, index=results.index))[own]
    patient_model = bundle.metadata.get("patient_model")
    if patient_model is not None:
        table = patient_table(
            np.full(len(results), np.nan),
            results["probability"].where(own).to_numpy(float),
            results["participant_id"].to_numpy(str),
        )
        probability = PatientModel(**patient_model).probability(table.largest)
        by_patient = dict(zip(table.patients, probability, strict=True))
        results.loc[own, "patient_probability"] = results["participant_id"].map(by_patient)[own]
    return results


def _text(columns: pd.DataFrame) -> pd.Series:
    """Return every row's known values as ``r1=0.53; r2=0.61``."""
    texts = [
        "; ".join(f"{name}={value:.4g}" for name, value in row.items() if np.isfinite(value))
        for row in columns.to_dict("records")
    ]
    return pd.Series(texts, index=columns.index)
