"""The table of measures: values belong to names, and every row does what it says."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from cad.evaluation.compare import compare_learners
from cad.evaluation.measures import MEASURES, Cases, Measure, measure_values
from cad.evaluation.summary import evaluate


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
    added.insert(5, ("answer", Measure("answer", "Answer", lambda _: 42.0, "score", "higher")))
    MEASURES.clear()
    MEASURES.update(added)
    yield
    MEASURES.clear()
    MEASURES.update(rows)


BEFORE = evaluate(regions(), bootstraps=20)["histology"]


@pytest.mark.usefixtures("answer")
def test_a_measure_in_the_middle_relabels_no_other() -> None:
    after = evaluate(regions(), bootstraps=20)["histology"]
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
        assert np.isfinite(values[name]) == (measure.needs == "score"), name


def test_a_patient_who_is_drawn_twice_counts_twice() -> None:
    y = np.array([0.0, 1, 1])
    cases = Cases(y, y, y, np.array([0, 0, 1]), True)
    drawn = cases.take(np.array([0, 1, 2, 0, 1]))
    assert drawn.truth.tolist() == [0, 1, 1, 0, 1]
    assert len(np.unique(drawn.patients)) == 3
    assert drawn.patients[0] == drawn.patients[1] != drawn.patients[3] == drawn.patients[4]


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
