"""Describe a model: by metadata for programs, and by a card (a page of text) for people."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from cad.base.files import JsonObject
from cad.base.settings import PipelineSettings
from cad.base.terms.beside import page_beside, table_beside
from cad.base.terms.markdown import in_markdown
from cad.base.terms.measures import MEASURES
from cad.base.terms.text import interval_text
from cad.base.version import __version__
from cad.mri.columns import Column, units_of
from cad.run.model.described import describe
from cad.run.model.versions import library_versions

_STATED = table_beside(__file__)
# Measures of the validation that a bundle stores.
_STORED_MEASURES = (
    "n",
    "histology",
    "images",
    "consensus",
    "unverified",
    "venn_abers",
    "null",
    "rivals",
    "patient_level",
    "operating_point",
    "assisted",
    "ceiling",
    "disagreement",
)
# Those of them whose sentences the card shows, in this order.
_WITH_SENTENCE = (
    "operating_point",
    "rivals",
    "disagreement",
    "assisted",
    "ceiling",
    "unverified",
    "venn_abers",
)


# Measures of the table of rivals.
_MEASURES_OF_RIVALS = ("kl", "brier")


def metadata(
    *,
    settings: PipelineSettings,
    features: pd.DataFrame,
    columns: Mapping[str, Column],
    labels: pd.DataFrame,
    label_counts: dict[str, int] | None,
    estimator: Any,
    simulated: bool,
    metrics: JsonObject,
    typicality: JsonObject | None,
    provenance: JsonObject,
    parents: list[str],
) -> JsonObject:
    """Return the metadata of a bundle (``metadata.json``).

    Parameters
    ----------
    settings : PipelineSettings
        Settings that the model was trained with.
    features : DataFrame
        Feature columns of the training rows.
    columns : mapping of str to Column
        Meaning of the columns that the pipeline measures, by name.
    labels : DataFrame
        The training table's ``participant_id``, ``truth`` and, where known, ``site``. For a model
        that extends another, the rows of the earlier model are included.
    label_counts : dict or None
        Number of training labels of each kind, such as certain and soft ones; None for a learner
        without soft labels.
    estimator : estimator
        The fitted estimator.
    simulated : bool
        Whether any training patient is simulated.
    metrics : dict
        The validation's measures.
    typicality : dict or None
        Limits beyond which a region counts as unlike the training regions; None where the training
        had too few patients for limits.
    provenance : dict
        How the training rows were measured (:func:`cad.mri.features.provenance.summary`).
    parents : list of str
        Names of the models whose training tables are part of this model's table.
    """
    return {
        "name": settings.name,
        "description": settings.description,
        "cad_version": __version__,
        "versions": library_versions(),
        "pipeline": settings.model_dump(mode="json", by_alias=True),
        **_words_on_features(list(features.columns), columns),
        "training": {
            **_counts_of_cohort(features, labels),
            "label_kinds": label_counts,
            "simulated": simulated,
            "extends": parents,
        },
        "estimator": describe([estimator]),
        "validation": {name: metrics.get(name) for name in _STORED_MEASURES},
        "typicality": typicality,
        "provenance": provenance,
        **_STATED,
    }


def _words_on_features(names: list[str], columns: Mapping[str, Column]) -> JsonObject:
    """Return the names, units and images of a model's features, as entries of its metadata."""
    images = {columns[name].image for name in names if name in columns}
    return {
        "features": names,
        "units": units_of(names, columns),
        # A feature that is measured on no image, such as a region's size, names its image by an
        # empty text. This text is left out of the list of images.
        "modalities": sorted(images - {""}),
    }


def _counts_of_cohort(features: pd.DataFrame, labels: pd.DataFrame) -> JsonObject:
    """Return the numbers of patients and regions of a training cohort, and a hash of its rows."""
    truth = labels["truth"].to_numpy(float)
    people = labels.drop_duplicates("participant_id")
    patients_of_sites: dict[str, int] = {}
    if "site" in people:
        site_of_people = people["site"].fillna("")
        for site, n_patients in site_of_people[site_of_people != ""].value_counts().items():
            patients_of_sites[str(site)] = int(n_patients)
    return {
        "patients": len(people),
        "regions": len(labels),
        "malignant": int((truth == 1).sum()),
        "benign": int((truth == 0).sum()),
        "without_histology": int(np.isnan(truth).sum()),
        # NumPy would warn of the mean of no value.
        "prevalence": float(np.nanmean(truth)) if np.isfinite(truth).any() else None,
        "sites": patients_of_sites,
        "cohort_hash": _training_hash(features, labels),
    }


def card(meta: JsonObject) -> str:
    """Return the model's card as Markdown, from the metadata of its bundle."""
    validation = meta["validation"]
    return page_beside(__file__).render(
        name=in_markdown(meta["name"]),
        description=in_markdown(meta["description"]),
        warnings=_warnings_on_use(meta),
        intended_use=meta["intended_use"],
        limits=meta["limits"],
        training=_training_lines(meta),
        carried=_carried_text(meta),
        scheme=meta["pipeline"]["validate"]["scheme"],
        measures=_measures_rows(validation),
        rivals=_rivals_rows(validation),
        sentences=_sentences_of_validation(validation),
        typicality=_typicality_text(meta),
        recalibrations=_texts_on_recalibration(meta),
        versions=_list_of_counts(meta["versions"]),
        cad_version=meta["cad_version"],
    )


def _list_of_counts(counts: Mapping[str, Any]) -> str:
    """Return names with their counts or versions in one line: ``A 3, B 2``."""
    return ", ".join(f"{in_markdown(name)} {value}" for name, value in counts.items())


def _warnings_on_use(meta: JsonObject) -> str:
    """Return what stands in bold at the top of the card."""
    warnings = "**Research use only.**"
    if meta["training"]["simulated"]:
        warnings += " **Trained on simulated patients.**"
    return warnings


def _training_lines(meta: JsonObject) -> list[str]:
    """Return the lines on the patients and regions of the training, on learner and features."""
    training = meta["training"]
    learner = meta["pipeline"]["learner"]
    kind = "SIMULATED" if training["simulated"] else "real"
    lines = [
        f"{training['patients']} {kind} patients, {training['regions']} regions: "
        f"{training['malignant']} malignant, {training['benign']} benign, "
        f"{training['without_histology']} without histology"
    ]
    if training["label_kinds"] is not None:
        lines.append(f"what the learner was told: {_list_of_counts(training['label_kinds'])}")
    if training.get("unlabelled_rows"):
        lines.append(f"{training['unlabelled_rows']} regions without a label joined the fit")
    if training.get("detected"):
        lines.append(f"{training['detected']} regions were outlined by a detector, not by a reader")
    if training.get("withdrawn"):
        withdrawn = training["withdrawn"]
        patients = "1 patient has" if withdrawn == 1 else f"{withdrawn} patients have"
        lines.append(f"{patients} withdrawn: nothing here was learned from them")
    lines.append(f"sites: {_list_of_counts(training['sites']) or 'not stated'}")
    lines.append(f"learner: {learner['name']} {json.dumps(learner['params'])}")
    # A model of an earlier version may have no description of its estimator.
    sentence_on_weights = (meta.get("estimator") or {}).get("sentence")
    if sentence_on_weights:
        lines.append(sentence_on_weights)
    lines.append(_features_text(meta))
    lines += meta.get("preparation", {}).get("text", [])
    lines += _histology_lines(meta.get("joint"))
    lines.append(f"cohort hash: `{training['cohort_hash'][:16]}`")
    return lines


def _features_text(meta: JsonObject) -> str:
    """Return how many features the model has, and where they come from."""
    features = meta["features"]
    if "table" in meta:
        names = ", ".join(in_markdown(name) for name in features)
        return (
            f"{len(features)} columns of a table, whose owner knows how they were measured: {names}"
        )
    return f"{len(features)} features from {', '.join(meta['modalities'])}"


def _histology_lines(joint: JsonObject | None) -> list[str]:
    """Return the lines on the histology that taught the probability; ``joint`` is the model."""
    if not joint:
        return ["no histology: the numbers are what readers would say, not a probability of cancer"]
    taught = joint["taught"]
    share_of_men = taught["prevalence_of_men"]
    share_of_men_text = "unknown" if share_of_men is None else f"{share_of_men:.2f}"
    prevalence_line = (
        f"prevalence: {share_of_men_text} of men, {taught['prevalence_of_regions']:.2f} of "
        f"{taught['regions']} regions with histology"
    )
    return [prevalence_line, *joint["notes"]]


def _carried_text(meta: JsonObject) -> str:
    """Return a sentence on what the bundle holds of the training regions."""
    if meta["carries_training_rows"]:
        return (
            "The bundle carries the training regions' feature rows (a kernel or transductive "
            "learner does so by its nature), no image and no identity. "
            "`learner.training_rows: drop` refuses that."
        )
    return "The bundle carries the distribution of every feature, no training region's row."


def _measures_rows(validation: JsonObject) -> list[list[str]]:
    """Return the table of measures as rows of cells, the title's first; empty without measures."""
    main_measures = {name: measure for name, measure in MEASURES.items() if measure.headline}
    title = ["against", "AUC"]
    for measure in main_measures.values():
        title.append(measure.title)
    rows = []
    for truth in ("histology", "consensus"):
        comparison = validation.get(truth)
        if not comparison:  # no region of the validation has such a truth
            continue
        row = [truth, interval_text(comparison["auc"])]
        for name, measure in main_measures.items():
            row.append(interval_text(comparison["measures"][name], measure.digits))
        rows.append(row)
    return _with_title(title, rows)


def _rivals_rows(validation: JsonObject) -> list[list[str]]:
    """Return the table of rivals as rows of cells, the title's first; empty without rivals."""
    rows = []
    for rival in (validation.get("rivals") or {}).get("table", []):
        if rival["measure"] not in _MEASURES_OF_RIVALS:
            continue
        measure = MEASURES[rival["measure"]]
        rows.append(
            [
                rival["learner"].replace("|", "\\|"),  # a bare | would end the cell
                rival["against"],
                measure.title,
                interval_text(rival["value"], measure.digits),
                interval_text({**rival, "value": rival["difference"]}),
            ]
        )
    return _with_title(["learner", "against", "measure", "value", "difference"], rows)


def _with_title(title: list[str], rows: list[list[str]]) -> list[list[str]]:
    """Return the rows of a table in Markdown, below its title and a rule; no row without rows."""
    if not rows:
        return []
    return [title, ["---"] * len(title), *rows]


def _sentences_of_validation(validation: JsonObject) -> list[str]:
    """Return the sentences of the validation, such as on its rivals and its thresholds."""
    sentences = []
    for name in _WITH_SENTENCE:
        sentence = (validation.get(name) or {}).get("sentence")
        if sentence:
            sentences.append(sentence)
    return sentences


def _typicality_text(meta: JsonObject) -> str:
    """Return a sentence on whether regions unlike the training regions are marked."""
    if meta["typicality"] is None:
        return "Too few patients to say which new regions are unlike the training cohort."
    return (
        "Regions unlike the training cohort are marked, with the image and family that is: limits "
        "that flag 2 % of regions, and 2 % of studies by their regions' mean, of held-out training "
        "patients."
    )


def _texts_on_recalibration(meta: JsonObject) -> list[JsonObject]:
    """Return the site's recalibration, as a first sentence and its lines; empty without one."""
    recalibration = meta.get("recalibration")
    if not recalibration:
        return []
    kind = "SIMULATED " if recalibration["simulated"] else ""
    first_sentences = f"Fitted to {kind}men of: {in_markdown(recalibration['sites'])}."
    if recalibration["of_training"]:
        first_sentences += (
            f" {recalibration['of_training']} carry an id of the training: were they in it, all of "
            "this is too good."
        )
    if meta.get("recalibrated_on"):
        first_sentences += (
            " The bundle lists their labels in the cohort, as it does those of the training, for "
            "removals."
        )
    return [{"fitted": first_sentences, "lines": recalibration["text"]}]


def _training_hash(features: pd.DataFrame, labels: pd.DataFrame) -> str:
    """Return the SHA-256 of the training rows."""
    digest = hashlib.sha256(features.to_csv(index=False).encode())
    digest.update(labels.to_csv(index=False).encode())
    return digest.hexdigest()
