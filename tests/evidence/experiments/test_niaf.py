"""[N14]: structure of the results, and claims that can fail."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.evidence.experiments import EXPERIMENTS, Options, run_experiment
from cad.evidence.experiments.gaussians import Gaussians, five_levels, noisy
from cad.evidence.experiments.niaf2014 import (
    BASELINES,
    SCALES,
    TABLE1_ETA,
    TABLE2_MEANS,
    TABLE2_NOISE,
    _orders_of_methods,
    compare_methods,
    fit,
    medians,
    outlier,
    paired_p,
    table2,
    toy,
)
from cad.evidence.experiments.niaf2014_clinical import (
    METHODS,
    ON_TRUTH,
    PAPER,
    SHIPPED,
    TUNED,
    _groups_left_out,
    clinical,
)
from cad.evidence.phantom import simulate


@pytest.mark.parametrize("sigma", [0.3, np.sqrt(0.3)], ids=["deviation", "variance"])
def test_noiseless_probabilities_bring_ten_times_less_error(sigma: float) -> None:
    rows = compare_methods(Gaussians((-0.5,), (0.5,), sigma), 0.0, TABLE1_ETA, range(1)).set_index(
        "method"
    )
    for scale in SCALES:
        measured = rows.loc[scale]
        assert measured["AUC"] >= 0.999
        assert measured["Acc"] >= 0.99
        assert measured["Err"] <= 2e-4
        for other in ("SVM", "F-SVM"):
            assert rows.loc[other, "Err"] >= 10 * measured["Err"]


def test_the_fixed_scale_gives_the_published_kl_of_table_2() -> None:
    """[N14] Table II prints 23 / 255 / 166 at η = .01; the learned scale comes to hundreds."""
    data = Gaussians(*TABLE2_MEANS["diagonal"], float(np.sqrt(0.7)))
    rows = (
        compare_methods(data, TABLE2_NOISE, 0.01, range(12))
        .groupby("method")["KL one-sided"]
        .median()
    )
    assert 15 < rows["P-SVM, fixed scale"] < 32
    assert rows["P-SVM, learned scale"] > 100
    assert rows[["SVM", "F-SVM"]].min() > 100


def test_noisy_probabilities_still_help(tmp_path) -> None:
    result = toy(Options(tmp_path, repeats=1))
    rows = result.tables["Measures"].set_index("method")
    assert rows.loc[list(SCALES), "KL"].max() < rows.loc[["SVM", "F-SVM"], "KL"].min() / 3
    assert rows.loc["P-SVM published", "KL one-sided"] == 3.6


def test_table2_reports_both_readings_and_published(tmp_path) -> None:
    result = table2(Options(tmp_path, repeats=1))
    measures, tests, resampled = result.tables.values()
    assert set(measures["means"]) == {"diagonal", "as printed", "published"}
    assert measures.groupby("means")["method"].count().to_dict() == {
        "as printed": 18,
        "diagonal": 18,
        "published": 3,
    }
    assert tests.filter(like="p (").to_numpy().max() <= 1.0
    assert resampled.filter(like="p (").to_numpy().max() <= 1.0
    assert len(resampled) == 3 * 2 * 4


def test_refused_is_a_share_and_measures_are_medians() -> None:
    rows = pd.DataFrame(
        {"method": "P-SVM", "seed": range(4), "refused": [0.0, 0, 0, 1], "KL": [1.0, 2, 9, np.nan]}
    )
    found = medians(rows, ["method"]).iloc[0]
    assert found["refused"] == 0.25
    assert found["KL"] == 2


def test_baselines_learn_the_probabilities() -> None:
    data = Gaussians((-0.5,), (0.5,), 0.55)
    X = data.draw(100, np.random.default_rng(0))
    p = data.posterior(X)
    for name in BASELINES:
        model = fit(name, X, p, 0.1)
        assert np.abs(model.predict_proba(X)[:, 1] - p).max() < 0.05
        assert ((model.decision_function(X) > 0) == (p > 0.5)).mean() > 0.97


def test_outlier_labelled_uncertain_stays_at_the_frontier(tmp_path) -> None:
    page = run_experiment("niaf2014-outlier", Options(tmp_path))
    rows = outlier(Options(tmp_path)).tables["The added point and the frontier"]
    hard, soft = rows["P of the outlier"]
    assert abs(soft - 0.51) <= 0.1 + 1e-6  # inside its tube
    assert hard > soft
    assert "![" in page.read_text()
    assert (tmp_path / "niaf2014-outlier-1.png").read_bytes().startswith(b"\x89PNG")


def test_the_posterior_is_bayes() -> None:
    data = Gaussians((-1.0, 0.0), (1.0, 0.0), 0.7)
    X = data.draw(40, np.random.default_rng(0))
    low = np.exp(-((X - [-1, 0]) ** 2).sum(1) / (2 * 0.49))
    high = np.exp(-((X - [1, 0]) ** 2).sum(1) / (2 * 0.49))
    np.testing.assert_allclose(data.posterior(X), high / (low + high), rtol=1e-10)


def test_noise_and_levels_stay_in_range() -> None:
    p = np.linspace(0, 1, 101)
    moved = noisy(p, 0.15, np.random.default_rng(0))
    assert moved.min() >= 0
    assert moved.max() <= 1
    assert np.abs(moved - p).max() <= 0.15
    assert np.unique(five_levels(p)).tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_paired_tests_by_hand() -> None:
    seeds = np.arange(10)
    rows = pd.concat(
        [
            pd.DataFrame({"seed": seeds, "method": "P-SVM", "Acc": 0.9}),
            pd.DataFrame({"seed": seeds, "method": "SVM", "Acc": np.where(seeds == 0, 0.95, 0.8)}),
        ]
    )
    # The one lost seed has the smallest gap: 2 of 1024 sign patterns have as large a rank sum.
    assert paired_p(rows, "Acc", "P-SVM", "SVM", "higher") == pytest.approx((2 / 1024, 11 / 1024))
    # Nine or ten of ten.
    assert paired_p(rows, "Acc", "P-SVM", "SVM", "lower")[1] == pytest.approx(1023 / 1024)


def test_a_refusal_counts_against_the_p_svm() -> None:
    rows = pd.DataFrame(
        {
            "seed": [0, 1, 2, 0, 1, 2],
            "method": ["P-SVM"] * 3 + ["SVM"] * 3,
            "KL": [1.0, np.nan, 2.0, 1.5, 9.0, 3.0],
        }
    )
    # Gaps .5, 1 and the refusal, last in rank: 5 of 8 sign patterns have a rank sum of 3 or more.
    assert paired_p(rows, "KL", "P-SVM", "SVM", "lower") == pytest.approx((5 / 8, 4 / 8))


def test_orders_put_the_best_first() -> None:
    learned, fixed = SCALES
    table = pd.DataFrame(
        {
            "level": 0.0,
            "method": [learned, fixed, "SVM", "F-SVM"],
            "AUC": [np.nan, 0.9, 0.8, 0.7],
            "Acc": [0.6, 0.7, 0.8, 0.75],
            "KL": [3.0, 1.0, 2.0, 4.0],
            "Err": [2.0, 1.0, 1.5, 3.0],
        }
    )
    rows = _orders_of_methods(table, "level").set_index("scale")[["AUC", "Acc", "KL", "Err"]]
    best_fixed = "P-SVM > SVM > F-SVM"
    assert rows.loc["fixed"].tolist() == [best_fixed, "SVM > F-SVM > P-SVM", best_fixed, best_fixed]
    assert rows.loc["learned"].tolist() == [
        "SVM > F-SVM",
        "SVM > F-SVM > P-SVM",
        "SVM > P-SVM > F-SVM",
        "SVM > P-SVM > F-SVM",
    ]


def test_patients_stay_together_when_groups_are_left_out() -> None:
    patients = np.array(["b", "a", "b", "c", "a", "d"])
    assert _groups_left_out(patients, None) is patients
    groups = _groups_left_out(patients, 2)
    assert len(set(groups)) == 2
    assert all(len(set(groups[patients == p])) == 1 for p in "abcd")


@pytest.mark.slow
def test_the_clinical_tables_on_a_small_cohort(tmp_path) -> None:
    simulate(tmp_path / "cohort", patients=8, seed=3, light=True)
    result = clinical(Options(tmp_path, data=tmp_path / "cohort", repeats=2))
    measured, learned, widths, published = result.tables.values()
    truth = measured[measured["table"] == ON_TRUTH]
    measured = measured[measured["table"] != ON_TRUTH]
    blocks = measured.groupby("settings")
    assert {(b, t) for b, part in blocks for t in part["table"]} == {
        (b, t) for b in (TUNED, PAPER) for t in ("III", "IV", "V", "VI")
    }
    assert set(METHODS) | {SHIPPED} == set(blocks.get_group(TUNED)["method"])
    assert {"P-SVM", "SVM", "F-SVM", "logistic on soft labels"} < set(
        blocks.get_group(PAPER)["method"]
    )
    assert set(published["table"]) - set(measured["table"]) == {
        "N13, expert",
        "N13, histology",
        ON_TRUTH,
    }
    beside_itself = measured[measured["method"] == "P-SVM"]
    assert (beside_itself.filter(regex=r"^(paper's )?p \(") == 1).all().all()
    swapped = measured.filter(regex=r"^p \(")
    assert ((swapped > 0) & (swapped <= 1)).all().all()
    assert truth["method"].tolist() == ["P-SVM"]
    assert truth["MCE"].str.contains(r"\[").all()
    assert learned["learned from"].tolist()[-1] == "histology"
    assert widths["η"].tolist() == ["adaptive", "0.125", "0.05", "0.02"]
    # The first row is Table V's P-SVM again; a narrow tube draws probabilities less towards 1/2.
    again = blocks.get_group(TUNED).set_index(["table", "method"]).loc[("V", "P-SVM")]
    assert widths.loc[0, ["AUC", "KL"]].tolist() == again[["AUC", "KL"]].tolist()
    distance = widths["mean distance of the probability from ½"]
    assert distance.iloc[-1] > distance.iloc[0]


def test_unknown_names_get_the_nearest(tmp_path) -> None:
    with pytest.raises(CadError, match="did you mean 'wang2014-uci'"):
        run_experiment("wang2014-ucl", Options(tmp_path))
    assert len(EXPERIMENTS) == 17
