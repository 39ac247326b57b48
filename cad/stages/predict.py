"""Predict: probabilities of new regions, each from the first model that can take its study."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from cad.errors import CadError
from cad.evaluation.conformal import conformal_p_values
from cad.evaluation.crossval import decision_value, positive_probability
from cad.evaluation.operating import COSTS_INSTEAD, OperatingChoice, choose_operating_point
from cad.features.provenance import differences
from cad.features.typicality import Typicality
from cad.files import JsonObject
from cad.imaging.modality import MODALITIES
from cad.imaging.standardise import NyulScale
from cad.labels.consensus import reader_probabilities
from cad.model.bundle import Bundle, using
from cad.model.explanation import explanation_rows
from cad.model.fold_features import Preparation
from cad.run_folder.tables import KEYS, LIKE, ExplanationRow, Failure
from cad.settings import DecisionSettings, PipelineSettings, parse_settings
from cad.stages.aggregate import Aggregated
from cad.stages.extract import Extracted
from cad.stages.judge import Judged, judge
from cad.stages.load import Loaded
from cad.stages.outcome import add_from_bundle

_OTHER_MODEL = "add the images, or name a second --model that was trained without them"


def shared_settings(
    bundles: Sequence[Bundle], decision: DecisionSettings | None = None
) -> PipelineSettings:
    """Return the first model's settings, measuring every modality that one of them needs.

    Parameters
    ----------
    bundles : sequence of Bundle
        In order of preference.
    decision : DecisionSettings, optional
        Costs other than those the first model was trained with.

    Raises
    ------
    CadError
        When the models measure images differently.
    """
    parsed = [_settings_of(bundle) for bundle in bundles]
    first = parsed[0]
    for bundle, other in zip(bundles[1:], parsed[1:], strict=True):
        same = other.features.model_copy(update={"modalities": first.features.modalities})
        if other.images != first.images or same != first.features:
            raise CadError(
                f"models {bundles[0].name} and {bundle.name} measure images differently",
                hint="models that stand in for each other share images and features settings",
            )
    wanted = {modality for settings in parsed for modality in settings.features.modalities}
    modalities = tuple(m.name for m in MODALITIES if m.name in wanted)
    features = first.features.model_copy(update={"modalities": modalities})
    return first.model_copy(update={"features": features, "decision": decision or first.decision})


def _settings_of(bundle: Bundle) -> PipelineSettings:
    with using(bundle):
        return parse_settings(PipelineSettings, bundle.pipeline, bundle.name)


def basis(bundles: Sequence[Bundle]) -> str:
    """Return what tells these models from others of the same names."""
    return str([f"{bundle.name} {bundle.hash}" for bundle in bundles])


def first_scale(bundles: Sequence[Bundle]) -> NyulScale | None:
    """Return the T2 scale of the first model, on which the stored features stand."""
    with using(bundles[0]):
        return Preparation.of(bundles[0].metadata).scale


def predict(
    loaded: Loaded,
    extracted: Extracted,
    aggregated: Aggregated,
    bundles: Sequence[Bundle],
    failures: Sequence[Failure] = (),
) -> Judged:
    """Score every region; a study that no model can take is refused by name.

    Parameters
    ----------
    failures : sequence of Failure
        Of measuring: why a study has no features of a modality.

    Raises
    ------
    CadError
        When no model can take any study.
    """
    start = time.perf_counter()
    scores = score_rows(bundles, extracted, failures)
    table = scores.table
    points = {b.name: operating_point(b, loaded.settings.decision) for b in bundles}
    limits = {
        name: (point or loaded.settings.decision).thresholds for name, point in points.items()
    }
    first = bundles[0].name
    every = np.array([limits.get(model, limits[first]) for model in table["model"]])
    results, metrics = judge(
        loaded,
        aggregated,
        table["probability"].to_numpy(),
        table["decision_value"].to_numpy(),
        thresholds=(every[:, 0], every[:, 1]),
        operating_point=points[first],
        outside=table["outside"].to_numpy(),
    )
    for name in ("p_benign", "p_malignant", "model", "warnings", "unlike"):
        results[name] = table[name]
    results = results.drop(columns=["with_tool", "patient_probability"], errors="ignore")
    given = reader_probabilities(aggregated.scores, aggregated.rois, loaded.settings.labels)
    for bundle in bundles:
        with using(bundle):
            results = add_from_bundle(results, given, bundle)
    trainings = [_training(bundle) for bundle in bundles]
    return Judged(
        results,
        metrics,
        scores.explanations,
        [
            Failure(study.split("_", 1)[0], study, "", "score", reason, _OTHER_MODEL)
            for study, reason in scores.refused.items()
        ],
        [*_costs_instead(points, loaded.settings.decision), *scores.notes],
        {"score": time.perf_counter() - start},
        limits[first],
        model=_models(bundles, limits),
        simulated=aggregated.simulated or any(bool(said["simulated"]) for said in trainings),
    )


def _training(bundle: Bundle) -> JsonObject:
    """Return what a model says of its training."""
    with using(bundle):
        said = dict(bundle.metadata["training"])
        return {**said, "simulated": bool(said["simulated"])}


def operating_point(bundle: Bundle, decision: DecisionSettings) -> OperatingChoice | None:
    """Return a model's thresholds for an aim: as stored, or for another aim from its training.

    None where the costs decide.
    """
    if decision.aim_npv is None and decision.aim_ppv is None:
        return None
    own = _settings_of(bundle).decision
    with using(bundle):
        stored = bundle.metadata.get("operating_point")
        if own == decision and stored is not None:
            return OperatingChoice.from_dict(stored)
        names = ("truth", "out_of_fold", "participant_id")
        truth, q, patients = (bundle.training[name].to_numpy() for name in names)
        try:
            return choose_operating_point(truth.astype(float), q.astype(float), patients, decision)
        except CadError:  # trained without histology, or not validated: nothing to choose on
            return None


def _costs_instead(
    points: Mapping[str, OperatingChoice | None], decision: DecisionSettings
) -> list[str]:
    """Name the models whose thresholds come from the costs although an aim is set."""
    if decision.aim_npv is None and decision.aim_ppv is None:
        return []
    return [
        f"{COSTS_INSTEAD}: model {name} has no validated histology to choose them on"
        for name, point in points.items()
        if point is None
    ]


def _models(bundles: Sequence[Bundle], limits: dict[str, tuple[float, float]]) -> JsonObject:
    """Return what the run's record says of its models, the first one's facts on top."""
    models = {
        b.name: {
            "name": b.name,
            "sha256": b.hash,
            "training": _training(b),
            "cad_version": str(b.metadata.get("cad_version", "")),
            "thresholds": limits[b.name],
        }
        for b in bundles
    }
    return {**models[bundles[0].name], "name": ", ".join(models), "models": models}


@dataclass
class Scores:
    """Hold what models say about every row of a feature table.

    Parameters
    ----------
    table : DataFrame
        ``probability, decision_value, p_benign, p_malignant, model, outside, warnings``, a row
        per region; NaN where no model could take the region.
    explanations : list of dict
        Rows of ``explanations.csv``.
    refused : dict of str to str
        Studies that no model could take, with the reason.
    notes : list of str
        What the run has to say of its models.
    """

    table: pd.DataFrame
    explanations: list[ExplanationRow] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def score_rows(
    bundles: Sequence[Bundle], extracted: Extracted, failures: Sequence[Failure] = ()
) -> Scores:
    """Score every region with the first model whose modalities its study has.

    Parameters
    ----------
    bundles : sequence of Bundle
        In order of preference.
    extracted : Extracted
        The regions' features, to be measured on each model's own scale.
    failures : sequence of Failure
        Of measuring: why a study has no features of a modality.

    Raises
    ------
    CadError
        When no model can take any region.
    """
    features = extracted.features
    n = len(features)
    table = pd.DataFrame(
        {name: np.full(n, np.nan) for name in ("probability", "decision_value")}
        | {name: np.full(n, np.nan) for name in ("p_benign", "p_malignant")}
    ).assign(model="", outside=False, warnings="", unlike="")
    scores = Scores(table)
    reasons: dict[str, list[str]] = {}
    for bundle in bundles:
        with using(bundle):
            _score_open(bundle, extracted, scores, reasons)
    unscored = set(features.loc[(table["model"] == "").to_numpy(), "study_id"])
    scores.refused = {
        study: f"{'; '.join(why)} and this study has none{_cause(study, failures)}"
        for study, why in reasons.items()
        if study in unscored
    }
    if len(unscored) == features["study_id"].nunique():
        raise CadError(
            "no study has the modalities that the model needs",
            hint="; ".join(f"{study}: {why}" for study, why in list(scores.refused.items())[:3]),
        )
    return scores


def _cause(study: str, failures: Sequence[Failure]) -> str:
    """Return what measuring said of a study, as the end of a sentence."""
    own = [f for f in failures if f.study_id == study and not f.roi_id]
    said = [f"{f.reason} ({f.hint})" if f.hint else f.reason for f in own]
    return "".join(f"; {one}" for one in said)


def _score_open(
    bundle: Bundle, extracted: Extracted, scores: Scores, reasons: dict[str, list[str]]
) -> None:
    """Score what no model before could take; ``reasons`` says what this one cannot."""
    features, source, table = extracted.features, extracted.source, scores.table
    preparation = Preparation.of(bundle.metadata)
    X = source.measured(preparation.scale).reindex(columns=bundle.features)
    missing = missing_modalities(X, bundle)
    for study in features.loc[(missing != "").to_numpy(), "study_id"].unique():
        lacks = missing[(features["study_id"] == study).to_numpy()].iloc[0]
        reasons.setdefault(study, []).append(f"model {bundle.name} needs {lacks} features")
    open_rows = np.flatnonzero((missing == "").to_numpy() & (table["model"] == "").to_numpy())
    if len(open_rows):
        adjusted = preparation.adjust(X, source.sites)
        _score(bundle, X, adjusted, open_rows, extracted, scores)
        scores.notes += _unseen_notes(bundle, preparation, source.sites[open_rows])


def missing_modalities(X: pd.DataFrame, bundle: Bundle) -> pd.Series:
    """Return the modalities of which a row has no feature, joined; empty where all are there."""
    missing = pd.Series("", index=X.index)
    for modality in bundle.metadata["modalities"]:
        columns = [c for c in bundle.features if c.startswith(f"{modality}_")]
        empty = X[columns].isna().all(axis=1)
        missing = missing.where(~empty, missing + (" and " + modality)).str.removeprefix(" and ")
    return missing


def _score(
    bundle: Bundle,
    X: pd.DataFrame,
    adjusted: np.ndarray,
    rows: np.ndarray,
    extracted: Extracted,
    scores: Scores,
) -> None:
    """Fill the rows of one model, from features as measured (X) and as its learner sees them."""
    table, training, seen = scores.table, bundle.training, adjusted[rows]
    unlike = _unlike(bundle, X.iloc[rows], extracted.features["study_id"].iloc[rows])
    said = map(_warned, unlike)
    otherwise = _otherwise(bundle, extracted.provenance.iloc[rows])
    probability = positive_probability(bundle.estimator, seen)
    known = (training[c].to_numpy() for c in ("truth", "out_of_fold", "participant_id"))
    truth, score, patients = known
    columns = {
        "probability": probability,
        "decision_value": decision_value(bundle.estimator, seen),
        "p_benign": conformal_p_values(truth, score, patients, probability, 0),
        "p_malignant": conformal_p_values(truth, score, patients, probability, 1),
        "model": bundle.name,
        "outside": [text not in ("", LIKE) for text in unlike],
        "unlike": unlike,
        "warnings": ["; ".join(filter(None, pair)) for pair in zip(said, otherwise, strict=True)],
    }
    for name, values in columns.items():
        table.loc[rows, name] = values
    scores.explanations += explanation_rows(
        bundle.estimator,
        training_rows(bundle),
        seen,
        bundle.features,
        extracted.features[KEYS].iloc[rows],
    )


def training_rows(bundle: Bundle) -> np.ndarray:
    """Return the training regions as the model's learner saw them, shape (n, n_features)."""
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


def _unlike(bundle: Bundle, measured: pd.DataFrame, studies: pd.Series) -> list[str]:
    """Return how each region is unlike the model's training regions, ``LIKE`` where it is not.

    Empty where the model keeps no limits.
    """
    limits = bundle.metadata.get("typicality")
    if limits is None:
        return [""] * len(measured)
    return [
        ", ".join(map(str, judged.deviations)) if judged.flagged else LIKE
        for judged in Typicality.from_dict(limits).judge(measured, studies.to_numpy(str))
    ]


def _warned(unlike: str) -> str:
    if unlike in ("", LIKE):
        return ""
    return f"unlike the training cohort ({unlike}), so that benign is not stated"


def _otherwise(bundle: Bundle, provenance: pd.DataFrame) -> list[str]:
    """Return how each region was measured otherwise than the training regions."""
    trained = bundle.metadata.get("provenance") or {}
    found = [differences(trained, row) for row in provenance.to_dict("records")]
    return [f"measured otherwise: {', '.join(said)}" if said else "" for said in found]
