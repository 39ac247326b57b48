"""A small run folder over an imported cohort, as the pipeline writes it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

RULES = """
name: clinic
site: A
labels: id
t2w: [{description: ^t2}]
adc: [{image_type: [ADC]}]
roi_name: "ROI (?P<id>.+)"
"""
MODEL = {
    "name": "phantom-psvm",
    "training": {"patients": 49, "regions": 350, "malignant": 66, "simulated": True},
}


def write_run(run: Path, participant: str, probabilities: dict[str, float], **meta: object) -> Path:
    """A run of one study; ``meta`` adds medians by ROI id."""
    (run / "studies").mkdir(parents=True)
    content = {
        "name": "psvm",
        "kind": "predict",
        "cad_version": "0.1.0",
        "decision_thresholds": [0.1, 0.6],
        "model": MODEL,
        "simulated": True,
    }
    (run / "run.json").write_text(json.dumps(content))
    words = [
        "malignant" if p > 0.6 else "benign" if p < 0.1 else "refer" for p in probabilities.values()
    ]
    pd.DataFrame(
        {
            "participant_id": participant,
            "study_id": participant,
            "roi_id": list(probabilities),
            "label": range(1, len(probabilities) + 1),
            "zone": "PZ",
            "probability": list(probabilities.values()),
            "probability_of": "histology",
            "probability_low": [p / 2 for p in probabilities.values()],
            "probability_high": [(1 + p) / 2 for p in probabilities.values()],
            "probability_images": list(probabilities.values()),
            "belief": [p**0.5 for p in probabilities.values()],
            "decision": words,
            "decision_model": words,
            "patient_probability": 0.375,
            "patient_decision": "benign",
        }
    ).to_csv(run / "probabilities.csv", index=False)
    rois = [{"roi_id": roi, **dict(meta.get(roi) or {})} for roi in probabilities]  # type: ignore[call-overload]
    np.savez(run / "studies" / f"{participant}.npz", meta=np.array(json.dumps({"rois": rois})))
    return run
