"""What a model says about itself: metadata for programs, a card for people."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pandas as pd

from cad import __version__
from cad.model.versions import library_versions
from cad.settings import PipelineSettings

INTENDED_USE = (
    "Research. Scores regions that a radiologist has drawn on prostate mpMRI; not a medical "
    "device, not for diagnosis or for finding lesions."
)
LIMITS = (
    "Valid for regions drawn and scored as in the training cohort, for scanners and protocols like "
    "those of its sites, and for the regions that readers chose to draw."
)


def metadata(
    *,
    settings: PipelineSettings,
    features: pd.DataFrame,
    units: dict[str, str],
    labels: pd.DataFrame,
    participants: pd.DataFrame,
    simulated: bool,
    metrics: dict[str, Any],
    outlier: dict[str, Any],
    parents: list[str],
) -> dict[str, Any]:
    """Return the metadata of a bundle (``metadata.json``).

    Parameters
    ----------
    settings : PipelineSettings
        What the model was trained with.
    features : DataFrame
        Training rows, feature columns only.
    units : dict of str to str
        Unit of every feature.
    labels : DataFrame
        Labels of the training regions with ``label_kind`` and ``truth``.
    participants : DataFrame
        Training patients.
    simulated : bool
        Whether any of them is simulated.
    metrics : dict
        The validation's measures.
    outlier : dict
        Method and limit of the check for regions unlike the training cohort.
    parents : list of str
        Models whose training tables are part of this one's.
    """
    truth = labels["truth"].to_numpy(float)
    sites = participants["site"].astype(str).value_counts() if "site" in participants else {}
    return {
        "name": settings.name,
        "description": settings.description,
        "cad_version": __version__,
        "versions": library_versions(),
        "pipeline": settings.model_dump(mode="json", by_alias=True),
        "features": list(features.columns),
        "units": {name: units.get(name, "") for name in features.columns},
        "modalities": sorted({name.split("_", 1)[0] for name in features.columns}),
        "training": {
            "patients": len(participants),
            "regions": len(labels),
            "malignant": int((truth == 1).sum()),
            "benign": int((truth == 0).sum()),
            "without_histology": int(np.isnan(truth).sum()),
            "prevalence": float(np.nanmean(truth)) if np.isfinite(truth).any() else None,
            "label_kinds": {k: int(n) for k, n in labels["label_kind"].value_counts().items()},
            "sites": {str(k): int(n) for k, n in dict(sites).items()},
            "simulated": simulated,
            "cohort_hash": _hash(features, labels),
            "extends": parents,
        },
        "validation": {key: metrics.get(key) for key in ("n", "histology", "consensus", "null")},
        "outlier": outlier,
        "intended_use": INTENDED_USE,
        "limits": LIMITS,
    }


def card(meta: dict[str, Any]) -> str:
    """Return the model's card, Markdown."""
    training = meta["training"]
    learner = meta["pipeline"]["learner"]
    population = "SIMULATED patients" if training["simulated"] else "patients"
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
        f"- what the learner was told: {_counts(training['label_kinds'])}",
        f"- sites: {_counts(training['sites']) or 'not stated'}",
        f"- learner: {learner['name']} {json.dumps(learner['params'])}",
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
        f"Regions unlike the training cohort are marked: {meta['outlier']['method']}, "
        f"limit {meta['outlier']['limit']:.3g}.",
        "",
        "## Versions",
        "",
        f"cad {meta['cad_version']}, {_counts(meta['versions'])}",
        "",
    ]
    return "\n".join(lines)


def _carries(rows: bool) -> str:
    if rows:
        return (
            "The bundle carries the training regions' feature rows (a kernel or transductive "
            "learner does so by its nature), no image and no identity. `learner.training_rows: "
            "drop` refuses that."
        )
    return "The bundle carries the distribution of every feature, no training region's row."


def _measures(validation: dict[str, Any], scheme: str) -> list[str]:
    lines = [f"Scheme: {scheme}. Brackets: 95 % intervals, patients as clusters.", ""]
    rows = ["| against | AUC | accuracy | two-sided KL (sum) | Brier |", "|---|---|---|---|---|"]
    for name in ("histology", "consensus"):
        part = validation.get(name)
        if part is not None:
            cells = [
                part["auc"],
                *(part["measures"][m] for m in ("accuracy", "kl", "brier")),
            ]
            rows.append(f"| {name} | " + " | ".join(_cell(c) for c in cells) + " |")
    return lines + rows


def _cell(part: dict[str, Any] | None) -> str:
    if not part or part["value"] is None:
        return "not defined"
    if part["lower"] is None or part["upper"] is None:
        return f"{part['value']:.3f}"  # no resamples were asked for, or none could be used
    return f"{part['value']:.3f} [{part['lower']:.3f}, {part['upper']:.3f}]"


def _counts(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in counts.items())


def _hash(features: pd.DataFrame, labels: pd.DataFrame) -> str:
    digest = hashlib.sha256(features.to_csv(index=False).encode())
    digest.update(labels.to_csv(index=False).encode())
    return digest.hexdigest()
