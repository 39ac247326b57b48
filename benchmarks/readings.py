"""Draw cohorts without images: simulated measurements of tissue, and scores of readers.

Drawing is thousands of times faster than making images, for studies of readers and of learning. The
phantom's tissue parameters with a little measurement noise take the place of features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from cad.evidence.phantom.anatomy import build_anatomy
from cad.evidence.phantom.findings import case_mix, draw_cloud, draw_regions
from cad.evidence.phantom.readers import draw_scores
from cad.learning.labels.pooled import MeanReaders

# Logarithmic spread of a region's measured value about the truth, from noise and partial volume.
MEASUREMENT_SD = {"t2": 0.10, "adc": 0.06, "ktrans": 0.20, "ve": 0.15, "t1": 0.08}


def draw_readings(seed: int, patients: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draw regions and scores of a simulated cohort.

    Parameters
    ----------
    seed : int
        Random seed. Patient ``i`` depends only on the seed and ``i``.
    patients : int
        Number of patients.

    Returns
    -------
    regions : DataFrame
        participant_id, roi_id, isup, latent; the logarithms of measured t2, adc, ktrans, ve, t1;
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
        tables.append(draw_scores(rng, regions).assign(participant_id=name))
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


FEATURES = (*MEASUREMENT_SD, "pz", "afs")
SIGNIFICANT_ISUP = 2


@dataclass(frozen=True)
class Reading:
    """Hold a drawn cohort as arrays.

    Parameters
    ----------
    features : ndarray, shape (n, k)
        Measured tissue, and 1 or 0 for each zone.
    grades : ndarray, shape (n, readers)
        Scores as probabilities; NaN where missing.
    readers : list of str
        Names of the readers.
    p, eta : ndarray, shape (n,)
        Mean and disagreement of the readers; NaN where nobody scored.
    truth : ndarray, shape (n,)
        1 for ISUP 2 and above.
    patients : ndarray of str, shape (n,)
        The patient of every region.
    """

    features: np.ndarray
    grades: np.ndarray
    readers: list[str]
    p: np.ndarray
    eta: np.ndarray
    truth: np.ndarray
    patients: np.ndarray


def draw_arrays(seed: int, patients: int) -> Reading:
    """Draw a simulated cohort as :func:`draw_readings` does, and return it as arrays."""
    regions, scores = draw_readings(seed, patients)
    key = ["participant_id", "roi_id"]
    wide = scores.pivot(index=key, columns="reader_id", values="score")
    wide = wide.reindex(pd.MultiIndex.from_frame(regions[key]))
    grades = (wide.to_numpy(float) - 1) / 4
    belief = MeanReaders().predict(grades)
    return Reading(
        features=regions[list(FEATURES)].to_numpy(float),
        grades=grades,
        readers=[str(reader) for reader in wide.columns],
        p=belief.p,
        eta=belief.eta,
        truth=(regions["isup"].to_numpy(float) >= SIGNIFICANT_ISUP).astype(float),
        patients=regions["participant_id"].to_numpy(str),
    )
