"""Give new regions probabilities by the first model that can score them: the stage ``predict``."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.files import JsonObject, json_safe, typed
from cad.base.settings import DecisionSettings, PipelineSettings, parse_settings
from cad.base.terms.modality import MODALITIES
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.study_file import study_gaps
from cad.folders.run_folder.tables import KEYS, LIKE, ExplanationRow, Failure
from cad.learning.evaluation.decisions.conformal import conformal_p_values
from cad.learning.evaluation.decisions.operating import (
    COSTS_INSTEAD,
    OperatingChoice,
    choose_operating_point,
)
from cad.learning.evaluation.decisions.patient_level import PatientLevel, measure_men
from cad.learning.evaluation.folds.ask import decision_value, positive_probability
from cad.learning.evaluation.readers.results import score_table
from cad.mri.features.provenance import differences
from cad.mri.features.typicality import Typicality
from cad.mri.imaging.standardise import NyulScale
from cad.run.model.bundle import Bundle, using
from cad.run.model.described import describe
from cad.run.model.explanation import explanation_rows
from cad.run.model.fold_features import Preparation
from cad.run.model.gaps import failures_of, lacking, reasons
from cad.run.model.outcome import of_bundles
from cad.run.model.transductive import check_transductive, fit_with
from cad.run.stages.aggregate import Aggregated
from cad.run.stages.earlier import of_latest_study
from cad.run.stages.extract import Extracted
from cad.run.stages.judge import Judged, judge
from cad.run.stages.load import Loaded
from cad.run.stages.risk import Risk, decides_on_real_men, joint_of, predicted_risk

_TRANSDUCTIVE = (
    "transductive: each patient's regions joined the model's fit without labels; a probability "
    "rests on the patient's other regions, too, and on no other new patient"
)
# An error names no more than this number of causes why regions could not be scored.
_MOST_CAUSES = 3
_OTHER_MODEL = (
    "add the images, draw the region where all of them show it, or name a second --model that was "
    "trained without them (without --model the released ones are taken in order)"
)


def shared_settings(
    bundles: Sequence[Bundle], decision: DecisionSettings | None = None
) -> PipelineSettings:
    """Return the settings of a prediction with several models.

    These are the settings of the first model, with the modalities (kinds of image) of all models.

    Parameters
    ----------
    bundles : sequence of Bundle
        Models in order of preference. Every modality that one of them needs is measured.
    decision : DecisionSettings, optional
        Costs of errors and aims for predictive values, in place of those of the first model.

    Raises
    ------
    CadError
        When the models measure an image in different ways, or when a model was trained on a table.
    """
    for bundle in bundles:
        if bundle.of_table:
            raise bundle.refused_for_images()
    settings_of_all = [settings_of(bundle) for bundle in bundles]
    first = settings_of_all[0]
    for bundle, settings_of_bundle in zip(bundles[1:], settings_of_all[1:], strict=True):
        # Models may need different images. But all models must measure an image in the same way,
        # because each study is measured only once for all of them.
        with_same_modalities = settings_of_bundle.features.model_copy(
            update={"modalities": first.features.modalities}
        )
        if settings_of_bundle.images != first.images or with_same_modalities != first.features:
            raise CadError(
                f"models {bundles[0].name} and {bundle.name} measure images differently",
                hint="models that stand in for each other share images and features settings",
            )
    needed_modalities: set[str] = set()
    for settings in settings_of_all:
        needed_modalities |= set(settings.features.modalities)
    # The modalities are in one fixed order, in whatever order the models are named.
    modalities = tuple(image.name for image in MODALITIES if image.name in needed_modalities)
    features = first.features.model_copy(update={"modalities": modalities})
    return first.model_copy(update={"features": features, "decision": decision or first.decision})


def settings_of(bundle: Bundle) -> PipelineSettings:
    """Return the settings that a model was trained with.

    Raises
    ------
    CadError
        For settings that this version of the program does not know.
    """
    with using(bundle):
        return parse_settings(PipelineSettings, bundle.pipeline, bundle.name)


def basis(bundles: Sequence[Bundle]) -> dict[str, str]:
    """Return the hash of each model by its name, in the given order, to identify the models.

    Parameters
    ----------
    bundles : sequence of Bundle
        Models in order of preference.
    """
    return {bundle.name: bundle.hash for bundle in bundles}


def first_scale(bundles: Sequence[Bundle]) -> NyulScale | None:
    """Return the intensity scale of T2 that the first model was trained with.

    The features that a prediction stores are measured on this scale.

    Parameters
    ----------
    bundles : sequence of Bundle
        Models in order of preference.

    Returns
    -------
    NyulScale or None
        None where the model standardises T2 by another method than Nyul's.
    """
    with using(bundles[0]):
        return Preparation.of(bundles[0].metadata).scale


def predict(
    loaded: Loaded,
    extracted: Extracted,
    aggregated: Aggregated,
    bundles: Sequence[Bundle],
    failures: Sequence[Failure] = (),
    transductive: bool = False,
) -> Judged:
    """Give every region the probability of a trained model, with the thresholds of this model.

    A region that no model can score is listed among the failures, with the reason. Decisions are
    made later (:mod:`cad.run.stages.decide`).

    Parameters
    ----------
    loaded, extracted, aggregated : Loaded, Extracted, Aggregated
        Results of the stages ``load``, ``extract`` and ``aggregate``.
    bundles : sequence of Bundle
        Models in order of preference.
    failures : sequence of Failure
        Failures of the measurement, which explain why a study lacks features of an image.
    transductive : bool
        Whether a semi-supervised model is fitted again for each patient, with the patient's regions
        as further rows without a label.

    Returns
    -------
    Judged
        Probabilities, thresholds, explanations, failures and measures.

    Raises
    ------
    NoRegionScored
        When no model can score any region.
    """
    start = time.perf_counter()
    decision = loaded.settings.decision
    # Explanations (the features with the largest effects) are not computed for a user's own table,
    # because the table with its predictions has no columns for them.
    scores = score_rows(
        bundles,
        extracted,
        loaded.folder,
        failures,
        transductive,
        explained=not loaded.table_columns,
    )
    labels = aggregated.table.labels
    # A user's own table has all its studies in the keys.
    cohort_studies = [] if loaded.table_columns else loaded.cohort.studies()
    latest = of_latest_study(loaded.folder, aggregated.table.keys, cohort_studies)
    risk = predicted_risk(
        labels.assign(belief=scores.table["belief"].to_numpy(), model=scores.table["model"]),
        bundles,
        decision.prevalence,
        latest,
    )
    scored = scores.table.copy()
    for name in risk.regions:
        scored[name] = risk.regions[name].to_numpy()

    # The thresholds of each model, and of each row those of the model that scored it.
    operating_points = {}
    chosen_at_training = {}
    thresholds = {}
    for bundle in bundles:
        point = operating_point(bundle, decision)
        operating_points[bundle.name] = point
        # If the model has no operating point for a stated aim, the thresholds follow from the costs
        # of errors.
        thresholds[bundle.name] = decision.thresholds
        if point is not None:
            chosen_at_training[bundle.name] = point
            thresholds[bundle.name] = point.thresholds
    first = bundles[0].name
    # A row that no model could score has the thresholds of the first model.
    thresholds_of_rows = np.array(
        [thresholds.get(model, thresholds[first]) for model in scored["model"]]
    )

    keys = aggregated.table.keys
    men, measures_of_men = _predicted_men(loaded, risk, bundles)
    # The measures that the thresholds reached at the training are not results of this run. So they
    # are passed on under ``at_training``, and the run has no operating point.
    results, summary = judge(
        loaded,
        aggregated,
        scored,
        patient_level=measures_of_men,
        at_training=chosen_at_training,
        thresholds=thresholds[first],
        given=of_bundles(keys.join(scored), score_table(keys, aggregated.grades), bundles),
    )
    models = _records_of_models(
        bundles, thresholds, set(keys["participant_id"]), decision.prevalence
    )
    # The run counts as simulated if its own patients are, or those of the training of any model.
    simulated = aggregated.simulated
    undecided_models = []
    for name, model in models.items():
        simulated = simulated or model["training"]["simulated"]
        if not model["decides"]:
            undecided_models.append(name)
    return Judged(
        results=results,
        summary=summary,
        explanations=scores.explanations,
        failures=failures_of(extracted.features, scores.refused, "score", _OTHER_MODEL),
        notes=[*_costs_instead(operating_points, decision), *scores.notes, *risk.notes],
        timings={"score": time.perf_counter() - start},
        thresholds=thresholds[first],
        lower=thresholds_of_rows[:, 0],
        upper=thresholds_of_rows[:, 1],
        model={**models[first], "name": ", ".join(models), "models": models},
        estimator=models[first]["estimator"],
        simulated=simulated,
        undecided_models=tuple(undecided_models),
        men=men,
        latest=latest,
    )


def _predicted_men(
    loaded: Loaded, risk: Risk, bundles: Sequence[Bundle]
) -> tuple[pd.DataFrame, PatientLevel]:
    """Return a table of the men, and measures of the men's probabilities.

    The table has the added column ``lower``: the threshold below which a man may be called benign.
    """
    settings = loaded.settings.validate_
    decision = loaded.settings.decision
    men = risk.men.assign(lower=decision.thresholds[0])
    promised_share = None
    for bundle in bundles:
        is_scored_by_bundle = (men["model"] == bundle.name).to_numpy()
        with using(bundle):
            # A model without histology or without an aim for men has no such entry.
            stored = (bundle.metadata.get("man") or {}).get("operating_point")
            if stored is None or decision.of_men is None or not is_scored_by_bundle.any():
                continue
            point = typed(OperatingChoice, stored)
            men.loc[is_scored_by_bundle, "lower"] = point.thresholds[0]
            # One share is stated for the whole run: that of the first model that scored a man.
            if promised_share is None:
                promised_share = 1 - point.refer
    measures = measure_men(
        men["truth"].to_numpy(float),
        men["probability"].to_numpy(float),
        bootstraps=settings.bootstraps,
        seed=settings.seed,
    )
    return men, replace(measures, promised_share=promised_share)


def operating_point(bundle: Bundle, decision: DecisionSettings) -> OperatingChoice | None:
    """Return the two thresholds with which a model reaches the predictive values that are aimed at.

    Parameters
    ----------
    bundle : Bundle
        The model. If aims and costs are those of its training, its stored thresholds are returned.
        For others, thresholds are chosen on the out-of-fold probabilities of its training regions.
    decision : DecisionSettings
        Aims for predictive values, and costs of errors.

    Returns
    -------
    OperatingChoice or None
        None where no aim is set, so that the thresholds follow from costs, and where the training
        lacks histology or a validation.
    """
    if decision.aim_npv is None and decision.aim_ppv is None:
        return None
    # The setting ``blinded`` changes no threshold, so the comparison of settings below must not
    # depend on it.
    decision_at_training = settings_of(bundle).decision.model_copy(
        update={"blinded": decision.blinded}
    )
    with using(bundle):
        stored = bundle.metadata.get("operating_point")
        # The stored thresholds belong to the aims and costs of the training. For other aims or
        # costs, thresholds are chosen again on the out-of-fold probabilities that the model stores.
        if decision_at_training == decision and stored is not None:
            return typed(OperatingChoice, stored)
        # In a model without a joint model of regions and men, the out-of-fold belief takes the
        # place of the probability.
        training = bundle.training
        column = "out_of_fold"
        if "out_of_fold_probability" in training:
            column = "out_of_fold_probability"
        truth = training["truth"].to_numpy(float)
        probability = training[column].to_numpy(float)
        patients = training["participant_id"].to_numpy()
        try:
            return choose_operating_point(truth, probability, patients, decision)
        # the training had no histology or no validation, so thresholds cannot be chosen
        except CadError:
            return None


def _costs_instead(
    points: Mapping[str, OperatingChoice | None], decision: DecisionSettings
) -> list[str]:
    """Return a note on each model whose thresholds come from the costs although an aim is set."""
    if decision.aim_npv is None and decision.aim_ppv is None:
        return []
    notes = []
    for name, point in points.items():
        if point is None:
            notes.append(
                f"{COSTS_INSTEAD}: model {name} has no validated histology to choose them on"
            )
    return notes


def _records_of_models(
    bundles: Sequence[Bundle],
    limits: dict[str, tuple[float, float]],
    patients: set[str],
    prevalence: float | None,
) -> dict[str, JsonObject]:
    """Return the entry of each model in the record of the run, ``run.json``.

    ``patients_of_training`` counts the run's patients whose id also occurs among the model's
    training patients. ``decides`` tells whether the model may decide on a real man.
    """
    models = {}
    for bundle in bundles:
        with using(bundle):
            training = dict(bundle.metadata["training"])
            joint = joint_of(bundle, None)
            shares: dict[str, float | None] = {"stated": None, "men": None, "regions": None}
            if joint is not None:
                # A model without a joint model gives only beliefs, and these do not depend on the
                # prevalence.
                shares["stated"] = prevalence
                shares["men"] = joint.taught.prevalence_of_men
                shares["regions"] = joint.taught.prevalence_of_regions
            models[bundle.name] = {
                "name": bundle.name,
                "sha256": bundle.hash,
                "training": {**training, "simulated": bool(training["simulated"])},
                "cad_version": str(bundle.metadata.get("cad_version", "")),
                "thresholds": limits[bundle.name],
                "estimator": describe([bundle.estimator]),
                "prevalence": json_safe(shares),
                "joint": None if joint is None else {"leak": joint.has_leak},
                "decides": decides_on_real_men(bundle),
                "patients_of_training": len(patients & set(bundle.training["participant_id"])),
            }
    return models


class NoRegionScored(CadError):
    """Report that no model can score any region of a cohort.

    Attributes
    ----------
    regions : list of Failure
        Rows of ``failures.csv``: every region that was measured, with the reason.
    """

    regions: Sequence[Failure] = ()


@dataclass
class Scores:
    """Hold the probabilities and explanations that models give for the rows of a feature table.

    Parameters
    ----------
    table : DataFrame
        One row per region: ``belief``, ``decision_value``, the conformal p-values ``p_benign`` and
        ``p_malignant``, ``model``, ``warnings``, and ``unlike``, which says how the region differs
        from the training regions. Cells are NaN or empty where no model could score the region.
    explanations : list of dict
        Rows of ``explanations.csv``.
    refused : dict of int to str
        For each row that no model could score, the reason, by the number of the row.
    notes : list of str
        Remarks that the run shows.
    """

    table: pd.DataFrame
    explanations: list[ExplanationRow] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def score_rows(
    bundles: Sequence[Bundle],
    extracted: Extracted,
    folder: RunFolder,
    failures: Sequence[Failure] = (),
    transductive: bool = False,
    explained: bool = True,
) -> Scores:
    """Score every region with the first model all of whose images were measured in the region.

    Parameters
    ----------
    bundles : sequence of Bundle
        Models in order of preference.
    extracted : Extracted
        The regions' features. T2 features are measured on each model's own intensity scale.
    folder : RunFolder
        The run, whose study files explain why an image is missing.
    failures : sequence of Failure
        Failures of the measurement, which also explain why an image is missing.
    transductive : bool
        Whether a semi-supervised model is fitted again for each patient, with the patient's regions
        as further rows without a label. The belief then depends on the patient's other regions,
        too.
    explained : bool
        Whether to also return the features with the largest effects on each region's belief.

    Returns
    -------
    Scores
        Belief, decision value, conformal p-values, name of the model and warnings of every region,
        in the order of the rows of ``extracted``. Where no model could score a region, they are NaN
        or empty and ``refused`` has the reason.

    Raises
    ------
    NoRegionScored
        When no model can score any region.
    CadError
        When ``transductive`` is set for a model that cannot learn from new regions without labels.
    """
    features = extracted.features
    n_rows = len(features)
    table = pd.DataFrame(
        np.nan, range(n_rows), ["belief", "decision_value", "p_benign", "p_malignant"]
    ).assign(model="", warnings="", unlike="")
    scores = Scores(table)
    lacking_images: dict[int, dict[str, list[str]]] = {}
    for bundle in bundles:
        with using(bundle):
            if transductive:
                check_transductive(bundle)
            _score_unscored_rows(bundle, extracted, scores, lacking_images, transductive, explained)
    if transductive:
        scores.notes.append(_TRANSDUCTIVE)
    unscored_rows = np.flatnonzero((table["model"] == "").to_numpy()).tolist()
    # A missing image is blamed on the study if all its regions lack the image, and else on the
    # region. So regions that a model has scored are included here, too.
    all_lacking_images = {}
    for row, images_by_model in lacking_images.items():
        all_lacking_images[row] = sorted(set(chain(*images_by_model.values())))
    gaps_of = partial(study_gaps, folder)
    for row, reason in reasons(gaps_of, features[KEYS], all_lacking_images, failures).items():
        if row not in unscored_rows:
            continue
        needs = []
        for name, images in lacking_images[row].items():
            needs.append(f"model {name} needs {' and '.join(images)} features")
        scores.refused[row] = f"{'; '.join(needs)} and {reason}"
    # If no model could score any region, an error is better than a table of empty rows.
    if len(unscored_rows) == n_rows:
        causes = []
        for row, needs_and_reason in scores.refused.items():
            causes.append(f"{features['study_id'].iloc[row]}: {needs_and_reason}")
        if not scores.refused:  # there is no row at all, because every study failed
            causes = [f"{failure.study_id}: {failure.reason}" for failure in failures]
        different_causes = list(dict.fromkeys(causes))
        error = NoRegionScored(
            "no region has the modalities that the model needs",
            hint="; ".join(different_causes[:_MOST_CAUSES]),
        )
        error.regions = failures_of(features, scores.refused, "score", _OTHER_MODEL)
        raise error
    return scores


def _score_unscored_rows(
    bundle: Bundle,
    extracted: Extracted,
    scores: Scores,
    lacking_images: dict[int, dict[str, list[str]]],
    transductive: bool,
    explained: bool,
) -> None:
    """Score with one model the rows that no model before it could score.

    The scores are written into ``scores``. ``lacking_images`` collects, by row, the images that
    each model needs and that the row does not have.
    """
    source = extracted.source
    table = scores.table
    preparation = Preparation.of(bundle.metadata)
    X = source.measured(preparation.scale).reindex(columns=bundle.features)
    missing_images = lacking(X, bundle.metadata["modalities"], bundle.columns)
    for row, images in enumerate(missing_images):
        if images:
            lacking_images.setdefault(row, {})[bundle.name] = images
    has_all_images = np.array([not images for images in missing_images], dtype=bool)
    # A row that was scored by a model earlier in the order of preference keeps this score.
    is_unscored = (table["model"] == "").to_numpy()
    rows_to_score = np.flatnonzero(has_all_images & is_unscored)
    if len(rows_to_score):
        adjusted = preparation.adjust(X, source.sites)
        for rows, estimator in _rows_by_estimator(
            bundle, adjusted, rows_to_score, extracted, transductive
        ):
            _write_scores(bundle, estimator, X, adjusted, rows, extracted, scores)
            if explained:
                scores.explanations += explanation_rows(
                    estimator,
                    training_rows(bundle),
                    adjusted[rows],
                    bundle.features,
                    extracted.features[KEYS].iloc[rows],
                    bundle.columns,
                )
        scores.notes += _notes_on_new_sites(bundle, preparation, source.sites[rows_to_score])


def _rows_by_estimator(
    bundle: Bundle, adjusted: np.ndarray, rows: np.ndarray, extracted: Extracted, transductive: bool
) -> Iterator[tuple[np.ndarray, Any]]:
    """Yield groups of rows, each with the estimator that scores it.

    It is the bundle's estimator for all rows, or, if ``transductive`` is set, one that is fitted
    again for each patient.
    """
    if not transductive:
        yield rows, bundle.estimator
        return
    patients = extracted.features["participant_id"].to_numpy(str)[rows]
    # The model is fitted again for each man separately. So no result of a man depends on the other
    # men of the cohort.
    for patient in np.unique(patients):
        rows_of_patient = rows[patients == patient]
        yield rows_of_patient, fit_with(bundle, training_rows(bundle), adjusted[rows_of_patient])


def _write_scores(
    bundle: Bundle,
    estimator: Any,
    X: pd.DataFrame,
    adjusted: np.ndarray,
    rows: np.ndarray,
    extracted: Extracted,
    scores: Scores,
) -> None:
    """Write the scores of one model for the given rows into the table of scores.

    ``X`` has the measured features, and ``adjusted`` the features after the steps that were fitted
    at training, such as harmonisation, for the learner.
    """
    table = scores.table
    training = bundle.training
    adjusted_rows = adjusted[rows]
    deviations_of_rows = _unlike(bundle, X.iloc[rows], extracted.features["study_id"].iloc[rows])
    other_measuring = _notes_on_other_measuring(bundle, extracted.provenance.iloc[rows])
    warnings = []
    for deviations, note_on_measuring in zip(deviations_of_rows, other_measuring, strict=True):
        notes = []
        if deviations not in ("", LIKE):
            notes.append(
                f"unlike the training cohort ({deviations}), so that no decision is stated"
            )
        if note_on_measuring:
            notes.append(note_on_measuring)
        warnings.append("; ".join(notes))
    belief = positive_probability(estimator, adjusted_rows)
    truth = training["truth"].to_numpy()
    out_of_fold_belief = training["out_of_fold"].to_numpy()
    patients = training["participant_id"].to_numpy()
    columns = {
        "belief": belief,
        "decision_value": decision_value(estimator, adjusted_rows),
        "p_benign": conformal_p_values(truth, out_of_fold_belief, patients, belief, label=0),
        "p_malignant": conformal_p_values(truth, out_of_fold_belief, patients, belief, label=1),
        "model": bundle.name,
        "unlike": deviations_of_rows,
        "warnings": warnings,
    }
    for name, values in columns.items():
        table.loc[rows, name] = values


def training_rows(bundle: Bundle) -> np.ndarray:
    """Return the features of a model's training regions, prepared for its learner.

    Parameters
    ----------
    bundle : Bundle
        A model that was stored with its training rows.

    Returns
    -------
    ndarray, shape (n, n_features)
        Features after the steps that were fitted at training, such as the harmonisation of sites.
    """
    training = bundle.training
    sites = training["site"].fillna("") if "site" in training else pd.Series("", training.index)
    return Preparation.of(bundle.metadata).adjust(training[bundle.features], sites.to_numpy(str))


def _notes_on_new_sites(bundle: Bundle, preparation: Preparation, sites: np.ndarray) -> list[str]:
    """Return a note on each site that the harmonisation of a model does not know."""
    notes = []
    for site in preparation.unseen(sites):
        patients = "patients without a site"
        if site:
            patients = f"site {site}"
        notes.append(
            f"model {bundle.name} was not trained on {patients}: features there are not harmonised"
        )
    return notes


def _unlike(bundle: Bundle, measured: pd.DataFrame, studies: pd.Series) -> list[str]:
    """Return how each region differs from the model's training regions.

    The text is ``LIKE`` where the region does not differ, and empty where the model has no limits
    for this comparison.
    """
    limits = bundle.metadata.get("typicality")
    if limits is None:
        return [""] * len(measured)
    typical = Typicality.from_dict(limits, bundle.columns)
    texts = []
    for judgement in typical.judge(measured, studies.to_numpy(str)):
        if judgement.flagged:
            texts.append(", ".join(map(str, judgement.deviations)))
        else:
            texts.append(LIKE)
    return texts


def _notes_on_other_measuring(bundle: Bundle, provenance: pd.DataFrame) -> list[str]:
    """Return for each region a note on how it was measured otherwise than the training regions.

    The note is empty for a region that was measured in the same way.
    """
    provenance_of_training = bundle.metadata.get("provenance") or {}
    notes = []
    for row in provenance.to_dict("records"):
        note = ""
        differences_of_region = differences(provenance_of_training, row)
        if differences_of_region:
            note = f"measured otherwise: {', '.join(differences_of_region)}"
        notes.append(note)
    return notes
