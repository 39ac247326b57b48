"""What was put into simulated patients is found again by measurements that share no code with it.

Tissue is made even and regions are measured as they are, not as a reader drew them: an uneven
tissue's own mean differs from region to region, whoever measures it.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from cad.features.table import extract
from cad.phantom.protocols import SAMPLE
from cad.phantom.sample import SEED
from cad.phantom.simulator import make_patient
from cad.settings import FeatureSettings, PerfusionSettings, PipelineSettings

PATIENTS = 6
# Frames 8.5 and 10 s apart, 2.5 mm voxels, motion between the frames; docs/phantom.md says so.
NOT_REACHED = pytest.mark.xfail(reason="ranks of kinetic parameters, docs/phantom.md", strict=True)


@pytest.fixture(scope="module")
def measured() -> pd.DataFrame:
    # The input of the population: the point spread washes a vessel of this size out.
    perfusion = PerfusionSettings(arterial_input="parker")
    features = FeatureSettings(families=("intensity", "kinetic"), perfusion=perfusion)
    settings = PipelineSettings(name="recovery", features=features)
    tables = []
    for index in range(PATIENTS):
        patient = make_patient(SEED, index, SAMPLE, even=True)
        result = extract(replace(patient.study, roi_map=patient.truth), settings)
        assert result.failures == []
        tissues = [(str(i), r.tissue) for i, r in enumerate(patient.regions, start=1)]
        truth = pd.DataFrame(
            [{"roi_id": i, "adc": t.adc, "ktrans": t.ktrans, "ve": t.ve} for i, t in tissues]
        )
        tables.append(result.rows.merge(truth, on="roi_id", validate="one_to_one"))
    table = pd.concat(tables)
    assert len(table) > 30
    return table


@pytest.mark.parametrize(
    ("feature", "truth", "ratio"),
    [
        ("adc_intensity_median", "adc", (0.92, 1.08)),
        ("dce_tofts_ktrans_median", "ktrans", (0.85, 1.35)),
        ("dce_extended_tofts_ktrans_median", "ktrans", (0.70, 1.20)),
        ("dce_tofts_ve_median", "ve", (0.65, 1.15)),
    ],
)
def test_measurement_finds_the_size(measured, feature, truth, ratio):
    low, high = ratio
    assert low < (measured[feature] / measured[truth]).median() < high


@pytest.mark.parametrize(
    ("feature", "truth", "correlation"),
    [
        ("adc_intensity_median", "adc", 0.85),
        pytest.param("dce_tofts_ktrans_median", "ktrans", 0.90, marks=NOT_REACHED),
        pytest.param("dce_extended_tofts_ktrans_median", "ktrans", 0.90, marks=NOT_REACHED),
        pytest.param("dce_tofts_ve_median", "ve", 0.40, marks=NOT_REACHED),
    ],
)
def test_measurement_finds_the_order(measured, feature, truth, correlation):
    assert measured[feature].corr(measured[truth], method="spearman") > correlation


def test_kinetics_still_order_the_tissue(measured):
    assert measured["dce_tofts_ktrans_median"].corr(measured["ktrans"], method="spearman") > 0.6
