"""What was put into the sample cohort is found again by measurements that share no code with it."""

from __future__ import annotations

import pandas as pd
import pytest

from cad.cohort import read_cohort
from cad.features.table import extract
from cad.imaging.study import Roi
from cad.imaging.study_files import read_study
from cad.phantom.simulator import LATENT_FILE
from cad.settings import FeatureSettings, PipelineSettings

PATIENTS = 6


@pytest.fixture(scope="module")
def measured(repository) -> pd.DataFrame:
    root = repository / "sample_data"
    settings = PipelineSettings(
        name="recovery", features=FeatureSettings(families=("intensity", "kinetic"))
    )
    rows = []
    for ref in read_cohort(root).studies()[:PATIENTS]:
        rois = [Roi(r.roi_id, int(r.label), r.zone) for r in ref.rois.itertuples()]
        study = read_study(ref.folder, ref.study_id, ref.participant_id, rois)
        result = extract(study, settings)
        assert result.failures == []
        rows.append(result.rows)
    truth = pd.read_csv(root / LATENT_FILE, sep="\t", dtype={"roi_id": str})
    return pd.concat(rows).merge(truth, on=["participant_id", "roi_id"], validate="one_to_one")


@pytest.mark.parametrize(
    ("feature", "truth", "correlation", "ratio"),
    [
        ("adc_intensity_median", "adc", 0.85, (0.92, 1.08)),
        ("dce_tofts_ktrans_median", "ktrans", 0.90, (0.85, 1.35)),
        ("dce_extended_tofts_ktrans_median", "ktrans", 0.90, (0.70, 1.20)),
        ("dce_tofts_ve_median", "ve", 0.40, (0.65, 1.15)),
    ],
)
def test_measurement_finds_the_tissue(measured, feature, truth, correlation, ratio):
    """Frames 8.5 and 10 s apart and 2.5 mm voxels: close, not exact."""
    assert len(measured) > 30
    assert measured[feature].corr(measured[truth], method="spearman") > correlation
    low, high = ratio
    assert low < (measured[feature] / measured[truth]).median() < high
