"""The table of measures: values belong to names, and every row does what it says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import cad
from cad.learning.evaluation.folds.compare import compare_learners
from cad.learning.evaluation.measures.intervals import clustered_auc, delong_auc
from cad.learning.evaluation.measures.table import MEASURES, Cases, Measure, measure_values
from cad.learning.evaluation.summary import summarise


def regions(seed: int = 0, n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    truth = (rng.random(n) < 0.4).astype(float)
    q = 1 / (1 + np.exp(-(1.5 * truth - 0.7 + rng.normal(size=n))))
    names = np.repeat([f"sub-{i:02d}" for i in range(n // 5)], 5)
    return pd.DataFrame(
        {
            "participant_id": names,
            "roi_id": np.tile(np.arange(5).astype(str), n // 5),
            "truth": truth,
            "p": truth,
            "probability": q,
        }
    )


@pytest.fixture
def answer() -> Iterator[None]:
    """Put a measure in the middle of the table for the time of a test."""
    rows = dict(MEASURES)
    added = list(rows.items())
    added.insert(
        5,
        (
            "answer",
            Measure("answer", "Answer", "higher", function=lambda _, w: np.full(len(w), 42.0)),
        ),
    )
    MEASURES.clear()
    MEASURES.update(added)
    yield
    MEASURES.clear()
    MEASURES.update(rows)


BEFORE = summarise(regions(), bootstraps=20).as_dict()["histology"]


@pytest.mark.usefixtures("answer")
def test_a_measure_in_the_middle_relabels_no_other() -> None:
    after = summarise(regions(), bootstraps=20).as_dict()["histology"]
    added = after["measures"].pop("answer")
    assert added["value"] == 42
    assert added["lower"] is None  # every resample agrees: no interval of width 0
    assert after == BEFORE


def test_the_names_are_the_keys() -> None:
    for name, measure in MEASURES.items():
        assert measure.name == name
        assert measure.title[0].isupper()


def test_better_means_better() -> None:
    """Let the exact posterior win every measure against one with noise and offset."""
    frame, rng = regions(n=400), np.random.default_rng(1)
    y, group = frame["truth"].to_numpy(), np.arange(400) // 5
    signal = 2 * y - 1
    posterior = 2 * (signal + rng.normal(size=400)) + np.log(0.4 / 0.6)  # by Bayes' rule
    q = {"exact": expit(posterior), "noisy": expit(posterior + 4 * rng.normal(size=400) - 1)}
    good, bad = (measure_values(Cases(y, y, q[name], group, True)) for name in q)
    aims = {"near 0": 0.0, "near 1": 1.0}
    for name, measure in MEASURES.items():
        if name == "kl_one_sided":  # a wrong measure, kept for the paper's tables
            continue
        if measure.better in aims:
            aim = aims[measure.better]
            assert abs(good[name] - aim) < abs(bad[name] - aim), name
        else:
            assert (good[name] > bad[name]) == (measure.better == "higher"), name


def test_a_ranking_has_no_probability_measures() -> None:
    y = np.array([0.0, 0, 1, 1])
    values = measure_values(Cases(y, y, np.array([-2.0, 0, 1, 3]), np.arange(4), False))
    for name, measure in MEASURES.items():
        assert np.isfinite(values[name]).all() == (measure.needs == "score"), name


def test_a_patient_who_is_drawn_twice_counts_twice() -> None:
    # By hand: patients a (.9, benign) and b (.8, malignant). Once each, precision is 1/2; with b
    # drawn twice two of three are malignant, with a drawn twice one of three.
    y, q = np.array([0.0, 0, 1]), np.array([0.9, 0.1, 0.8])
    cases = Cases(y, y, q, np.array([0, 0, 1]), True)
    weight = np.array([[1.0, 1, 1], [1, 1, 2], [2, 2, 1], [2, 2, 0]])
    found = MEASURES["patient_average_precision"].draws(cases, weight)
    assert found[:3].tolist() == [1 / 2, 2 / 3, 1 / 3]
    assert np.isnan(found[3])


def repeated(cases: Cases, times: np.ndarray) -> Cases:
    """Return the rows as often as they count; a patient who is drawn twice becomes two."""
    rows = np.concatenate([np.flatnonzero(times > k) for k in range(int(times.max()))])
    again = np.concatenate([np.full(int((times > k).sum()), k) for k in range(int(times.max()))])
    columns = (cases.truth[rows], cases.target[rows], cases.score[rows])
    return Cases(*columns, cases.patients[rows] + 1000 * again, cases.is_probability)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_weights_are_repeated_rows(seed: int, soft: bool) -> None:
    """Few rows and rounded scores: ties, absent classes and separated ones are among the draws."""
    rng = np.random.default_rng(seed)
    n = (5, 8, 12, 40)[seed]
    patients, q = np.sort(rng.integers(0, 4, n)), np.round(rng.random(n), 1)
    y = (rng.random(n) < q).astype(float)
    cases = Cases(y, np.round(rng.random(n), 1) if soft else y, q, patients, True)
    weight = rng.integers(0, 3, (60, patients.max() + 1))[:, patients].astype(float)
    weight[:, 0] = np.maximum(weight[:, 0], 1)
    weight = np.array([w[np.searchsorted(patients, patients)] for w in weight])
    undefined = 0
    for name, found in measure_values(cases, weight).items():
        alone = [MEASURES[name](repeated(cases, w)) for w in weight]
        np.testing.assert_allclose(found, alone, rtol=1e-9, atol=1e-9, err_msg=name)
        undefined += int(np.isnan(found).sum())
    assert undefined > 0 or n == 40


PACKAGE = Path(cad.__file__).parent


def test_each_measure_and_the_logistic_regression_are_written_once() -> None:
    """Plain and resampled forms call the weighted one; what else has a measure's name is a copy."""
    inside, outside, losses = set[str](), set[str](), set[str]()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        tree = ast.parse(path.read_text())
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        (inside if name.startswith("learning/evaluation/measures/") else outside).update(defined)
        called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        if "logaddexp" in called and not name.startswith("evidence/experiments/"):
            losses.add(name)
    assert inside >= set(MEASURES)
    assert not outside & set(MEASURES)
    # The loss log(1 + exp(z)) of logistic regression is written once. In rivals.py the kernel
    # logistic regression has it in its dual problem. cad/learning/logistic.py computes it without
    # logaddexp, which is slow.
    assert losses == {"learning/learners/rivals.py"}


def test_the_area_with_an_interval_is_the_measure() -> None:
    rng = np.random.default_rng(3)
    y = (rng.random(80) < 0.3).astype(float)
    s = np.round(rng.normal(size=80) + y, 1)  # ties
    groups = np.arange(80) // 4
    wanted = MEASURES["auc"](Cases(y, y, s, groups, False))
    assert clustered_auc(y, s, groups).value == pytest.approx(wanted, abs=1e-14)
    assert delong_auc(y, s).value == pytest.approx(wanted, abs=1e-14)


def test_every_measure_can_be_compared() -> None:
    frame = regions()
    q = frame["probability"].to_numpy()
    table = compare_learners(
        {"a": q, "b": 1 - q},
        frame["truth"],
        frame["participant_id"],
        measures=tuple(MEASURES),
        resamples=20,
    )
    assert table["measure"].tolist() == list(MEASURES)
    assert np.isfinite(table["value_a"]).all()
