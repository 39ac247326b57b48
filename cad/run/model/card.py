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
from cad.base.terms.measures import MEASURES
from cad.base.terms.text import interval_text
from cad.base.version import __version__
from cad.mri.columns import Column, units_of
from cad.run.model.described import describe
from cad.run.model.versions import library_versions

_STATED = table_beside(__file__)
_KEPT = (
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
_SENTENCES = (
    "operating_point",
    "rivals",
    "disagreement",
    "assisted",
    "ceiling",
    "unverified",
    "venn_abers",
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
            **_cohort(features, labels),
            "label_kinds": label_counts,
            "simulated": simulated,
            "extends": parents,
        },
        "estimator": describe([estimator]),
        "validation": {key: metrics.get(key) for key in _KEPT},
        "typicality": typicality,
        "provenance": provenance,
        **_STATED,
    }


def _words_on_features(names: list[str], columns: Mapping[str, Column]) -> JsonObject:
    images = {columns[name].image for name in names if name in columns}
    return {
        "features": names,
        "units": units_of(names, columns),
        # A feature that is measured on no image, such as a region's size, names its image by an
        # empty text. This text is left out of the list of images.
        "modalities": sorted(images - {""}),
    }


def _cohort(features: pd.DataFrame, labels: pd.DataFrame) -> JsonObject:
    truth = labels["truth"].to_numpy(float)
    people = labels.drop_duplicates("participant_id")
    sites: dict[str, int] = {}
    if "site" in people:
        named = people["site"].fillna("")
        for site, n in named[named != ""].value_counts().items():
            sites[str(site)] = int(n)
    return {
        "patients": len(people),
        "regions": len(labels),
        "malignant": int((truth == 1).sum()),
        "benign": int((truth == 0).sum()),
        "without_histology": int(np.isnan(truth).sum()),
        "prevalence": float(np.nanmean(truth)) if np.isfinite(truth).any() else None,
        "sites": sites,
        "cohort_hash": _training_hash(features, labels),
    }


def card(meta: JsonObject) -> str:
    """Return the model's card as Markdown, from the metadata of its bundle."""
    learner = meta["pipeline"]["learner"]
    validation = meta["validation"]
    sentences = []
    for name in _SENTENCES:
        sentence = (validation.get(name) or {}).get("sentence")
        if sentence:
            sentences.append(sentence)
    return page_beside(__file__).render(
        meta=meta,
        training=meta["training"],
        learner=f"{learner['name']} {json.dumps(learner['params'])}",
        weighed=(meta.get("estimator") or {}).get("sentence"),
        validation=validation,
        measures=MEASURES,
        interval_text=interval_text,
        sentences=sentences,
        site=meta.get("recalibration"),
        joint=meta.get("joint"),
    )


def _training_hash(features: pd.DataFrame, labels: pd.DataFrame) -> str:
    digest = hashlib.sha256(features.to_csv(index=False).encode())
    digest.update(labels.to_csv(index=False).encode())
    return digest.hexdigest()
