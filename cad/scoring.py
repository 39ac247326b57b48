"""Probabilities of new regions from trained models, the first model that can take each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from cad.bundle import Bundle
from cad.errors import CadError
from cad.evaluation.conformal import conformal_p_values
from cad.evaluation.crossval import decision_value, positive_probability
from cad.features.registry import feature_units
from cad.foldwise import FoldFeatures, Preparation
from cad.learning import KEYS, explain, feature_distance


@dataclass
class Scores:
    """What models say about every row of a feature table.

    Parameters
    ----------
    table : DataFrame
        ``probability, decision_value, p_benign, p_malignant, model, warnings``, a row per region;
        NaN where no model could take the region.
    explanations : list of dict
        Rows of ``explanations.csv``.
    refused : dict of str to str
        Studies that no model could take, with the reason.
    notes : list of str
        What the run has to say of its models.
    """

    table: pd.DataFrame
    explanations: list[dict[str, Any]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def score_rows(bundles: list[Bundle], features: pd.DataFrame, source: FoldFeatures) -> Scores:
    """Score every region with the first model whose modalities its study has.

    Parameters
    ----------
    bundles : list of Bundle
        In order of preference.
    features : DataFrame
        Keys and features of the regions.
    source : FoldFeatures
        The same rows, to be measured on each model's own scale.

    Raises
    ------
    CadError
        When no model can take any region.
    """
    n = len(features)
    table = pd.DataFrame(
        {name: np.full(n, np.nan) for name in ("probability", "decision_value")}
        | {name: np.full(n, np.nan) for name in ("p_benign", "p_malignant")}
    ).assign(model="", warnings="")
    scores = Scores(table)
    reasons: dict[str, list[str]] = {}
    for bundle in bundles:
        preparation = Preparation.of(bundle.metadata)
        X = source.measured(preparation.scale).reindex(columns=bundle.features)
        missing = _missing_modalities(X, bundle)
        for study in features.loc[(missing != "").to_numpy(), "study_id"].unique():
            lacks = missing[(features["study_id"] == study).to_numpy()].iloc[0]
            reasons.setdefault(study, []).append(f"model {bundle.name} needs {lacks} features")
        open_rows = np.flatnonzero((missing == "").to_numpy() & (table["model"] == "").to_numpy())
        if len(open_rows):
            adjusted = preparation.adjust(X, source.sites)
            _score(bundle, adjusted, open_rows, features, scores)
            scores.notes += _unseen_notes(bundle, preparation, source.sites[open_rows])
    unscored = set(features.loc[(table["model"] == "").to_numpy(), "study_id"])
    scores.refused = {
        study: "; ".join(why) + " and this study has none"
        for study, why in reasons.items()
        if study in unscored
    }
    if len(unscored) == features["study_id"].nunique():
        raise CadError(
            "no study has the modalities that the model needs",
            hint="; ".join(f"{study}: {why}" for study, why in list(scores.refused.items())[:3]),
        )
    return scores


def _missing_modalities(X: pd.DataFrame, bundle: Bundle) -> pd.Series:
    """Modalities of which a row has no feature at all, joined; empty where all are there."""
    missing = pd.Series("", index=X.index)
    for modality in bundle.metadata["modalities"]:
        columns = [c for c in bundle.features if c.startswith(f"{modality}_")]
        empty = X[columns].isna().all(axis=1)
        missing = missing.where(~empty, missing + (" and " + modality)).str.removeprefix(" and ")
    return missing


def _score(
    bundle: Bundle, X: np.ndarray, rows: np.ndarray, features: pd.DataFrame, scores: Scores
) -> None:
    table, training = scores.table, bundle.training
    probability = positive_probability(bundle.estimator, X[rows])
    known = (training[c].to_numpy() for c in ("truth", "out_of_fold", "participant_id"))
    truth, score, patients = known
    columns = {
        "probability": probability,
        "decision_value": decision_value(bundle.estimator, X[rows]),
        "p_benign": conformal_p_values(truth, score, patients, probability, 0),
        "p_malignant": conformal_p_values(truth, score, patients, probability, 1),
        "model": bundle.name,
        "warnings": _outlier_warnings(bundle, X[rows]),
    }
    for name, values in columns.items():
        table.loc[rows, name] = values
    units = feature_units(bundle.features)
    seen = training_rows(bundle)
    found = explain(bundle.estimator, seen, X[rows], bundle.features)
    keys = features[KEYS].iloc[rows].to_dict("records")
    scores.explanations += [
        {**key, **entry, "unit": units[entry["feature"]]}
        for key, entries in zip(keys, found, strict=True)
        for entry in entries
    ]


def training_rows(bundle: Bundle) -> np.ndarray:
    """The training regions as the model's learner saw them, shape (n, n_features)."""
    training = bundle.training
    sites = training["site"].fillna("") if "site" in training else pd.Series("", training.index)
    preparation = Preparation.of(bundle.metadata)
    return preparation.adjust(training[bundle.features], sites.to_numpy(str))


def _unseen_notes(bundle: Bundle, preparation: Preparation, sites: np.ndarray) -> list[str]:
    return [
        f"model {bundle.name} was not trained on "
        + (f"site {site}" if site else "patients without a site")
        + ": features there are not harmonised"
        for site in preparation.unseen(sites)
    ]


def _outlier_warnings(bundle: Bundle, X: np.ndarray) -> list[str]:
    limit = bundle.metadata["outlier"]["limit"]
    return [
        f"outside the training distribution: {value:.3g} standard deviations, limit {limit:.3g}, "
        "so that benign is not stated"
        if value > limit
        else ""
        for value in feature_distance(bundle.estimator, X)
    ]
