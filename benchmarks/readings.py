"""Cohorts without images: tissue as it might be measured, and what readers said.

Thousands of times faster than making images, for studies of readers and of learning. The phantom's
tissue parameters with a little measurement noise stand where features would.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from cad.evidence.phantom.anatomy import build_anatomy
from cad.evidence.phantom.findings import case_mix, draw_cloud, draw_regions
from cad.evidence.phantom.readers import score

# Spread of a region's measured value about the truth, logarithm: noise and partial volume.
MEASUREMENT_SD = {"t2": 0.10, "adc": 0.06, "ktrans": 0.20, "ve": 0.15, "t1": 0.08}


def draw_readings(seed: int, patients: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draw regions and scores of a simulated cohort.

    Parameters
    ----------
    seed : int
        Patient ``i`` depends on it and ``i`` only.
    patients : int
        How many.

    Returns
    -------
    regions : DataFrame
        participant_id, roi_id, isup, latent, the logarithms of measured t2, adc, ktrans, ve, t1,
        and 1 or 0 for PZ and AFS.
    scores : DataFrame
        participant_id, roi_id, reader_id, scale, score.
    """
    rows, tables = [], []
    for index in range(patients):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index, 1)))
        anatomy = build_anatomy(rng)
        count, cancers = case_mix(seed, index)
        regions = draw_regions(rng, anatomy, draw_cloud(rng, anatomy), count, cancers)
        name = f"sub-{index + 1:04d}"
        tables.append(score(rng, regions).assign(participant_id=name))
        for number, region in enumerate(regions, start=1):
            measured = {
                key: float(np.log(getattr(region.tissue, key)) + rng.normal(0, sd))
                for key, sd in MEASUREMENT_SD.items()
            }
            rows.append(
                {
                    "participant_id": name,
                    "roi_id": str(number),
                    "isup": region.isup,
                    "latent": region.latent,
                    **measured,
                    "pz": float(region.zone == "PZ"),
                    "afs": float(region.zone == "AFS"),
                }
            )
    scores = pd.concat(tables, ignore_index=True)
    return pd.DataFrame(rows), scores[["participant_id", "roi_id", "reader_id", "scale", "score"]]
