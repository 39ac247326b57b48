"""Judging: what is known of a region stands beside its numbers, and these are measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cad.base.settings import PipelineSettings
from cad.folders.run_folder.tables import KEYS
from cad.learning.evaluation.summary import Given, summarise
from cad.mri.features.provenance import PREFIX
from cad.run.stages.judge import Judged, judge, unseen

REGIONS = 40


def parts(sector: bool = True) -> tuple[Any, Any, pd.DataFrame]:
    """Settings, tables and scores of forty regions of a cohort, and two of an earlier model."""
    rng = np.random.default_rng(0)
    n = REGIONS + 2
    keys = pd.DataFrame(
        {
            "participant_id": [f"sub-{i // 4:02d}" for i in range(n)],
            "study_id": [f"study-{i // 4:02d}" for i in range(n)],
            "roi_id": [str(i) for i in range(n)],
        }
    )
    truth = rng.integers(0, 2, n).astype(float)
    p = np.clip(0.5 * truth + rng.uniform(0, 0.5, n), 0, 1)
    labels = keys.assign(truth=truth, p=p, label_kind="one_sided")
    rois = keys.drop(columns="study_id").assign(
        label=np.arange(n), zone="PZ", histology="", isup="", confidence=np.nan
    )
    if sector:
        rois["sector"] = "PZ-L"
    readers = ["r1", "r2"]
    scores = pd.concat(
        [
            rois[["participant_id", "roi_id"]].assign(reader_id=r, score=3, scale="x")
            for r in readers
        ]
    )
    grades = scores.assign(probability=0.25).drop(columns=["score", "scale"])
    provenance = pd.DataFrame({f"{PREFIX}adc_displaced_most": rng.uniform(0, 1, REGIONS)})
    provenance.iloc[3] = 99.0
    table = SimpleNamespace(
        keys=keys, labels=labels, X=pd.DataFrame(np.zeros((n, 1)), columns=["x"])
    )
    aggregated = SimpleNamespace(
        table=table,
        rois=rois,
        scores=scores,
        grades=grades,
        labels=labels.drop(columns="study_id").iloc[:REGIONS],
        provenance=provenance,
        own_rows=REGIONS,
    )
    settings = PipelineSettings.model_validate({"name": "x", "validate": {"bootstraps": 20}})
    scored = pd.DataFrame(
        {
            "belief": p,
            "probability": np.clip(p + rng.normal(0, 0.2, n), 0.01, 0.99),
            "model": "m",
        }
    )
    return SimpleNamespace(settings=settings), aggregated, scored


def test_numbers_stand_beside_what_is_known_of_the_cohorts_regions() -> None:
    loaded, aggregated, scored = parts()
    results, summary = judge(loaded, aggregated, scored)
    assert list(results.columns[:3]) == KEYS
    assert results.columns.is_unique
    assert len(results) == REGIONS
    keys = aggregated.table.keys.iloc[:REGIONS]
    pd.testing.assert_frame_equal(results[KEYS], keys)
    np.testing.assert_array_equal(results["label"], np.arange(REGIONS))
    np.testing.assert_array_equal(results["probability"], scored["probability"][:REGIONS])
    assert (results["model"] == "m").all()
    assert (results["sector"] == "PZ-L").all()
    assert results["confidence"].isna().all()
    assert (results["scores"] == "r1=3; r2=3").all()
    assert (results["reader_values"] == "r1=0.25; r2=0.25").all()
    assert (results["warnings"] == "").all()
    far = results["displaced"] != ""
    assert np.flatnonzero(far).tolist() == [3]
    # The rows of an earlier model are measured with them, and stand in no table of the cohort.
    frame = aggregated.table.labels.assign(
        belief=scored["belief"], probability=scored["probability"]
    )
    expected = summarise(
        frame, reader_scores=aggregated.grades, feature_names=["x"], bootstraps=20, seed=0
    )
    assert summary.as_dict() == expected.as_dict()
    assert "p_benign" in results  # calibrated on the other patients


def test_what_trained_models_say_beside_is_put_into_the_table() -> None:
    loaded, aggregated, scored = parts(sector=False)
    n = len(scored)
    with_tool = pd.DataFrame({"r1": np.full(n, 0.4), "r2": np.full(n, 0.6)})
    given = Given(np.linspace(0, 1, n), np.linspace(1, 0, n), with_tool)
    results, _ = judge(loaded, aggregated, scored, given=given)
    np.testing.assert_array_equal(results["p_benign"], given.p_benign[:REGIONS])
    np.testing.assert_array_equal(results["p_malignant"], given.p_malignant[:REGIONS])
    assert "sector" not in results


@pytest.mark.parametrize(
    ("confidence", "detected"), [(None, False), (np.nan, False), (0.0, True), (0.9, True)]
)
def test_a_region_with_a_confidence_was_perhaps_looked_at_by_nobody(
    confidence: float | None, detected: bool
) -> None:
    assert unseen(confidence) is detected


def test_numbers_are_of_real_patients_unless_stated() -> None:
    loaded, aggregated, scored = parts()
    results, summary = judge(loaded, aggregated, scored)
    limits = np.full(REGIONS, 0.1), np.full(REGIONS, 0.6)
    judged = Judged(results, summary, [], [], [], {}, (0.1, 0.6), *limits)
    assert not judged.simulated
