"""What a model says about itself: metadata for programs, a card for people."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from cad._version import __version__
from cad.columns import Column, units_of
from cad.files import JsonObject
from cad.model.described import describe
from cad.model.versions import library_versions
from cad.settings import PipelineSettings
from cad.terms.measures import MEASURES
from cad.terms.text import interval_text, to_markdown

INTENDED_USE = (
    "Research. Scores regions that a radiologist has drawn on prostate mpMRI; not a medical "
    "device, not for diagnosis or for finding lesions."
)
_KEPT = (
    "n",
    "histology",
    "consensus",
    "null",
    "rivals",
    "patient_level",
    "operating_point",
    "assisted",
    "ceiling",
)
_SENTENCES = ("operating_point", "rivals", "assisted", "ceiling")
LIMITS = (
    "Valid for regions drawn and scored as in the training cohort, for scanners and protocols like "
    "those of its sites, and for the regions that readers chose to draw."
)


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
        What the model was trained with.
    features : DataFrame
        Training rows, feature columns only.
    columns : mapping of str to Column
        What the pipeline measures.
    labels : DataFrame
        The training table's ``participant_id``, ``truth`` and, where known, ``site``; of an
        extended model with the rows of the model before.
    label_counts : dict or None
        What the fitted learner was told, by kind; None for a learner without soft labels.
    estimator : estimator
        The fitted one.
    simulated : bool
        Whether any of them is simulated.
    metrics : dict
        The validation's measures.
    typicality : dict or None
        Limits beyond which a region is unlike the training cohort; None for too few patients.
    provenance : dict
        How the training rows were measured (:func:`cad.features.provenance.summary`).
    parents : list of str
        Models whose training tables are part of this one's.
    """
    return {
        "name": settings.name,
        "description": settings.description,
        "cad_version": __version__,
        "versions": library_versions(),
        "pipeline": settings.model_dump(mode="json", by_alias=True),
        **_columns(list(features.columns), columns),
        "training": {
            **_cohort(features, labels),
            "label_kinds": label_counts,
            "simulated": simulated,
            "extends": parents,
        },
        "estimator": describe([estimator]),
        "validation": {key: metrics.get(key) for key in _KEPT},
        "typicality": typicality,
        "provenance": provenance,
        "intended_use": INTENDED_USE,
        "limits": LIMITS,
    }


def _columns(names: list[str], columns: Mapping[str, Column]) -> JsonObject:
    images = {columns[name].image for name in names if name in columns}
    return {
        "features": names,
        "units": units_of(names, columns),
        "modalities": sorted(images - {""}),
    }


def _cohort(features: pd.DataFrame, labels: pd.DataFrame) -> JsonObject:
    truth, people = labels["truth"].to_numpy(float), labels.drop_duplicates("participant_id")
    named = people["site"].fillna("") if "site" in people else pd.Series(dtype=str)
    sites = named[named != ""].value_counts()
    return {
        "patients": len(people),
        "regions": len(labels),
        "malignant": int((truth == 1).sum()),
        "benign": int((truth == 0).sum()),
        "without_histology": int(np.isnan(truth).sum()),
        "prevalence": float(np.nanmean(truth)) if np.isfinite(truth).any() else None,
        "sites": {str(k): int(n) for k, n in dict(sites).items()},
        "cohort_hash": _hash(features, labels),
    }


def card(meta: JsonObject) -> str:
    """Return the model's card, Markdown."""
    training = meta["training"]
    learner = meta["pipeline"]["learner"]
    weighed = (meta.get("estimator") or {}).get("sentence")
    population = f"{'SIMULATED' if training['simulated'] else 'real'} patients"
    lines = [
        f"# {meta['name']}",
        "",
        meta["description"],
        "",
        "**Research use only.**"
        + (" **Trained on simulated patients.**" if training["simulated"] else ""),
        "",
        "## Use",
        "",
        meta["intended_use"],
        "",
        meta["limits"],
        "",
        "## Training",
        "",
        f"- {training['patients']} {population}, {training['regions']} regions: "
        f"{training['malignant']} malignant, {training['benign']} benign, "
        f"{training['without_histology']} without histology",
        *_told(training["label_kinds"]),
        *_unlabelled(training.get("unlabelled_rows", 0)),
        *_detected(training.get("detected", 0)),
        *_withdrawn(training.get("withdrawn", 0)),
        f"- sites: {_counts(training['sites']) or 'not stated'}",
        f"- learner: {learner['name']} {json.dumps(learner['params'])}",
        *([f"- {weighed}"] if weighed else []),
        f"- {len(meta['features'])} features from {', '.join(meta['modalities'])}",
        *(f"- {text}" for text in meta.get("preparation", {}).get("text", [])),
        f"- cohort hash: `{training['cohort_hash'][:16]}`",
        "",
        _carries(meta["carries_training_rows"]),
        "",
        "## Validation",
        "",
        *_measures(meta["validation"], meta["pipeline"]["validate"]["scheme"]),
        "",
        _marked(meta["typicality"]),
        "",
        *_recalibrated(meta.get("recalibration")),
        "## Versions",
        "",
        f"cad {meta['cad_version']}, {_counts(meta['versions'])}",
        "",
    ]
    return "\n".join(lines)


def _rivals(found: JsonObject) -> list[str]:
    """Return what else learned from the same labels on the same folds."""
    rows = [
        {
            "learner": row["learner"],
            "against": row["against"],
            "measure": MEASURES[row["measure"]].title,
            "value": interval_text(row["value"], MEASURES[row["measure"]].digits),
            "difference": interval_text({**row, "value": row["difference"]}),
        }
        for row in found.get("table") or []
        if row["measure"] in ("kl", "brier")
    ]
    return to_markdown(pd.DataFrame(rows)).splitlines() if rows else []


def _told(counts: dict[str, int] | None) -> list[str]:
    """Return the line on certain and soft labels, of a learner that tells them apart."""
    return [] if counts is None else [f"- what the learner was told: {_counts(counts)}"]


def _unlabelled(count: int) -> list[str]:
    """Return the line on regions of which a semi-supervised learner knew the features alone."""
    return [f"- {count} regions without a label joined the fit"] if count else []


def _detected(count: int) -> list[str]:
    """Return the line on regions that no person outlined."""
    return [f"- {count} regions were outlined by a detector, not by a reader"] if count else []


def _withdrawn(count: int) -> list[str]:
    """Return the line on patients who withdrew."""
    who = "1 patient has" if count == 1 else f"{count} patients have"
    return [f"- {who} withdrawn: nothing here was learned from them"] if count else []


def _marked(typicality: JsonObject | None) -> str:
    if typicality is None:
        return "Too few patients to say which new regions are unlike the training cohort."
    return (
        "Regions unlike the training cohort are marked, with the image and family that is: limits "
        "that flag 2 % of regions, and 2 % of studies by their regions' mean, of held-out training "
        "patients."
    )


def _recalibrated(site: JsonObject | None) -> list[str]:
    """Return the section on a site's own men, of a model that was fitted to them."""
    if site is None:
        return []
    said = f"Fitted to {'SIMULATED ' if site['simulated'] else ''}men of: {site['sites']}."
    if site["of_training"]:
        said += f" {site['of_training']} carry an id of the training: were they in it, all of this"
        said += " is too good."
    return ["## Recalibration", "", said, "", *site["text"], ""]


def _carries(rows: bool) -> str:
    if rows:
        return (
            "The bundle carries the training regions' feature rows (a kernel or transductive "
            "learner does so by its nature), no image and no identity. `learner.training_rows: "
            "drop` refuses that."
        )
    return "The bundle carries the distribution of every feature, no training region's row."


def _measures(validation: JsonObject, scheme: str) -> list[str]:
    lines = [f"Scheme: {scheme}. Brackets: 95 % intervals, patients as clusters.", ""]
    shown = {name: measure for name, measure in MEASURES.items() if measure.headline}
    rows = [
        {
            "against": name,
            "AUC": interval_text(part["auc"]),
            **{m.title: interval_text(part["measures"][k], m.digits) for k, m in shown.items()},
        }
        for name in ("histology", "consensus")
        if (part := validation.get(name)) is not None
    ]
    if rows:
        lines += to_markdown(pd.DataFrame(rows)).splitlines()
    lines += ["", *_rivals(validation.get("rivals") or {})]
    for name in _SENTENCES:
        sentence = (validation.get(name) or {}).get("sentence")
        lines += ["", sentence] if sentence else []
    return lines


def _counts(counts: JsonObject) -> str:
    return ", ".join(f"{name} {value}" for name, value in counts.items())


def _hash(features: pd.DataFrame, labels: pd.DataFrame) -> str:
    digest = hashlib.sha256(features.to_csv(index=False).encode())
    digest.update(labels.to_csv(index=False).encode())
    return digest.hexdigest()
