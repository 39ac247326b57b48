"""Patients: truth from regions, calibration, what is not known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.metrics import average_precision_score, roc_auc_score

from cad.errors import CadError
from cad.evaluation.metrics import calibration
from cad.evaluation.patient_level import fit_patients, patient_level, patient_table


def regions(seed: int, patients: int = 60, rois: int = 5) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(patients), rois)
    z = -1.8 + rng.normal(size=len(group)) + 1.2 * rng.normal(size=patients)[group]
    truth = (rng.random(len(group)) < expit(z)).astype(float)
    return truth, expit(z), group


def test_table_by_hand() -> None:
    truth = np.array([0, 1, 0, 0, np.nan, np.nan, 0, 1])
    q = np.array([0.2, 0.4, 0.3, np.nan, 0.9, 0.1, 0.2, np.nan])
    patients = ["b", "b", "a", "a", "c", "d", "d", "e"]
    found = patient_table(truth, q, np.array(patients))
    assert found.patients.tolist() == list("abcde")
    np.testing.assert_array_equal(found.largest, [0.3, 0.4, 0.9, 0.2, np.nan])
    # d has an open region: a benign one beside it does not make the patient benign.
    np.testing.assert_array_equal(found.truth, [0, 1, np.nan, np.nan, 1])


def test_measures_are_those_of_scikit_learn_and_probabilities_out_of_fold() -> None:
    truth, q, group = regions(0)
    found = patient_level(truth, q, group, bootstraps=30)
    assert found is not None
    table = patient_table(truth, q, group)
    assert found.auc.value == pytest.approx(roc_auc_score(table.truth, table.largest))
    precision = average_precision_score(table.truth, table.largest)
    assert found.average_precision.value == pytest.approx(precision)
    assert found.auc.lower < found.auc.value < found.auc.upper
    other = regions(0)[0]
    other[group == int(found.patients[7])] = 1 - table.truth[7]
    moved = patient_level(other, q, group, bootstraps=0)
    assert moved is not None
    assert moved.probability[7] == found.probability[7]


def test_calibrated_where_independence_is_not() -> None:
    """Pooled over cohorts: the slope is near 1; 1 - prod(1 - q) is too sure of itself."""
    y, own, product = [], [], []
    for seed in range(8):
        truth, q, group = regions(seed)
        found = patient_level(truth, q, group, bootstraps=0)
        assert found is not None
        y.append(patient_table(truth, q, group).truth)
        own.append(found.probability)
        product.append([1 - np.prod(1 - q[group == k]) for k in range(60)])
    slopes = [calibration(np.concatenate(y), np.concatenate(p)).slope for p in (own, product)]
    assert 0.8 < slopes[0] < 1.25
    assert slopes[1] < slopes[0]


def test_model_turns_the_largest_probability() -> None:
    truth, q, group = regions(3)
    model = fit_patients(patient_table(truth, q, group))
    found = model.probability(np.array([0.3, np.nan]))
    assert found[0] == pytest.approx(expit(model.intercept + model.slope * logit(0.3)))
    assert np.isnan(found[1])
    assert model.patients == 60


def test_few_patients_have_measures_and_no_probability() -> None:
    truth, q, group = regions(4, patients=8)
    truth[:] = 0
    truth[[0, 12, 20]] = 1
    with pytest.raises(CadError, match="3 patients with a malignant region and 5"):
        fit_patients(patient_table(truth, q, group))
    found = patient_level(truth, q, group, bootstraps=20)
    assert found is not None
    assert found.model is None
    assert np.isnan(found.probability).all()
    assert np.isfinite(found.auc.value)
    assert "needs 5 of each" in found.note
    assert patient_level(np.full(40, np.nan), q, group) is None
