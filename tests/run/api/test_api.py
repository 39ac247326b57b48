"""The public Python API: what it promises, on real data, and nothing heavier than asked for."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cad
import cad.run.api
from cad.base.errors import CadError
from cad.base.settings import LabelSettings
from cad.base.share import shared
from cad.evidence.phantom import simulate
from cad.folders.cohort import read_cohort as read_tables
from cad.learning.labels.consensus import reader_labels
from cad.run.model.bundle import verify_bundle

matplotlib.use("agg")


def table(n: int = 60, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray, np.ndarray]:
    """Somebody's own table: features, three readers' scores, histology, patients."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=n)
    X = pd.DataFrame(latent[:, None] + rng.normal(0, 0.7, (n, 2)), columns=["adc", "t2"])
    scores = np.clip(np.round(3 + 1.3 * latent[:, None] + rng.normal(0, 0.6, (n, 3))), 1, 5)
    scores[0, 2] = np.nan
    truth = (latent + rng.normal(0, 0.5, n) > 0).astype(float)
    return X, pd.DataFrame(scores, columns=["r1", "r2", "r3"]), truth, np.arange(n) // 3


def test_every_public_name_is_there_documented_and_typed() -> None:
    assert set(cad.run.api.__all__) == set(cad._NAMES)
    for name in cad.__all__:
        assert getattr(cad, name) is not None
    stub = Path(cad.__file__).with_suffix(".pyi").read_text()
    assert all(f"{name} as {name}" in stub for name in (*cad._NAMES, *cad._MODULES))
    assert Path(cad.__file__).with_name("py.typed").exists()
    assert set(cad.__all__) == set(dir(cad))
    with pytest.raises(AttributeError, match="no attribute 'measures'"):
        _ = cad.measures  # type: ignore[attr-defined]


def test_the_reference_covers_every_public_name(repository: Path) -> None:
    page = (repository / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    from cad import evaluation, learners, plot

    names = {*cad._NAMES, *plot.__all__, *evaluation.__all__, *learners.__all__} - {"LEARNERS"}
    shown = set(re.findall(r"[A-Za-z_]+", page))
    assert len(names) > 30
    assert names - shown == set()


def test_importing_it_loads_nothing_heavy() -> None:
    code = (
        "import sys, cad; cad.__version__; dir(cad);"
        "print([m for m in ('numpy', 'pandas', 'sklearn', 'matplotlib') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_consensus_is_that_of_the_pipelines() -> None:
    cohort = cad.read_cohort(shared("sample_data"))
    assert cohort.rois.equals(read_tables(shared("sample_data")).rois)
    key = ["participant_id", "roi_id"]
    wide = cohort.scores.pivot(index=key, columns="reader_id", values="score")
    wide = wide.reindex(pd.MultiIndex.from_frame(cohort.rois[key]))
    found = cad.consensus(wide, cohort.scores["scale"].iloc[0])
    labels = reader_labels(cohort.scores, cohort.rois, cohort.readers, LabelSettings())
    np.testing.assert_allclose(found.p, labels["p"])
    np.testing.assert_allclose(found.eta, labels["eta"])
    with pytest.raises(cad.CadError, match="not on its scale"):
        cad.consensus([[6.0]])


def test_measure_gives_the_rows_that_a_run_stores(tmp_path: Path) -> None:
    simulate(tmp_path / "cohort", patients=1, seed=3, light=True)
    table = cad.measure(tmp_path / "cohort", tmp_path / "run", pipeline="psvm-biparametric")
    stored = pd.read_parquet(tmp_path / "run" / "features.parquet")
    assert len(table.X) == len(stored) == len(table.y) == len(table.groups) > 0
    np.testing.assert_array_equal(table.X, stored[list(table.X)])
    labels = pd.read_parquet(tmp_path / "run" / "labels.parquet")
    np.testing.assert_array_equal(table.y, labels["y"])
    assert set(table.groups) == {"sub-0001"}


def test_validate_leaves_whole_patients_out_and_compares() -> None:
    X, scores, truth, patients = table()
    belief = cad.consensus(scores)
    learner = make_pipeline(StandardScaler(), cad.learners.ProbabilisticSVC(C=1.0))
    readers = (scores - 1) / 4
    found = cad.validate(
        learner,
        X,
        belief.p,
        patients,
        eta=belief.eta,
        truth=truth,
        readers=readers,
        rivals={"forgetful": cad.learners.RankBoost(n_rounds=2)},
    )
    out = patients == 4
    by_hand = learner.fit(
        X[~out], belief.p[~out], probabilisticsvc__eta=belief.eta[~out]
    ).predict_proba(X[out])
    np.testing.assert_allclose(found.probability[out], by_hand[:, 1], rtol=1e-10)
    assert {"learner", "forgetful", "constant"} <= set(found.comparison["learner"])
    assert set(found.metrics["readers"]) == {"r1", "r2", "r3"}
    assert found.metrics["histology"]["auc"]["value"] > 0.7
    with pytest.raises(cad.CadError, match="readers has 59 rows"):
        cad.validate(learner, X, belief.p, patients, readers=readers.iloc[1:])

    axes = [
        plot(found, Figure().add_subplot())
        for plot in (cad.plot.roc, cad.plot.reliability, cad.plot.readers)
    ]
    assert len(axes[0].lines) > 4  # chance, three readers, the classifier
    assert [t.get_text() for t in axes[2].get_yticklabels()] == ["r1", "r2", "r3"]
    drawn = cad.plot.tube(belief.p, belief.eta, found.probability, Figure().add_subplot())
    inside = np.abs(found.probability - belief.p) <= belief.eta + 1e-12
    assert drawn.get_legend().get_texts()[1].get_text().startswith(f"{inside.sum()} inside")


def test_a_plot_without_its_arrays_says_so(tmp_path: Path) -> None:
    X, scores, _, patients = table(30)
    found = cad.validate(cad.learners.RankBoost(n_rounds=2), X, cad.consensus(scores).p, patients)
    with pytest.raises(cad.CadError, match="no readers or no histology"):
        cad.plot.readers(found, Figure().add_subplot())
    with pytest.raises(cad.CadError, match="no run folder"):
        cad.plot.roc(tmp_path)
    with pytest.raises(cad.CadError, match="no region"):
        cad.plot.tube([np.nan], [0.1], [0.2])


@pytest.mark.parametrize("eta", [[0.1, 0.2], [0.1]])
def test_a_tube_of_other_lengths_is_refused(eta: list[float]) -> None:
    message = rf"one length; their shapes are \(3,\), \({len(eta)},\), \(3,\)"
    with pytest.raises(cad.CadError, match=message):
        cad.plot.tube([0.25, 1.0, 0.5], eta, [0.3, 0.9, 0.9])


def test_a_table_becomes_a_bundle_that_verifies(tmp_path: Path) -> None:
    X, scores, _, patients = table()
    belief = cad.consensus(scores)
    learner = make_pipeline(StandardScaler(), cad.learners.ProbabilisticSVC(C=1.0)).fit(X, belief.p)
    model = cad.save_model(tmp_path / "mine", learner, X, belief.p, patients, eta=belief.eta)
    assert verify_bundle(tmp_path / "mine") < 1e-8
    again = cad.load_model(tmp_path / "mine")
    assert again.hash == model.hash
    assert again.features == ["adc", "t2"]
    shuffled = X[["t2", "adc"]]  # columns are taken by name
    np.testing.assert_array_equal(again.probability(shuffled), learner.predict_proba(X)[:, 1])
    with pytest.raises(cad.CadError, match="lacks columns of model mine: adc"):
        again.probability(X[["t2"]])
    assert again.metadata["training"] == {"regions": 60, "patients": 20}
    with pytest.raises(cad.CadError, match="trained on a table"):
        cad.predict(tmp_path / "mine", shared("sample_data"), tmp_path / "run")
    with pytest.raises(cad.CadError, match="cannot store"):
        cad.save_model(tmp_path / "x", LogisticRegression().fit(X, belief.p > 0.5), X, belief.p, X)
    with pytest.raises(cad.CadError, match="X has 1 columns"):
        cad.save_model(tmp_path / "x", learner, X[["t2"]], belief.p, patients)


def test_labels_that_histology_made_certain_are_no_reader() -> None:
    """A readers' mean that is y itself would be best, 0.000, with an AUC of 1.000."""
    X, scores, truth, patients = table()
    known = np.where(np.arange(len(truth)) % 3 == 0, truth, np.nan)
    belief = cad.consensus(scores, histology=known)
    seen = ~np.isnan(known)
    np.testing.assert_array_equal(belief.y, np.where(seen, known, belief.p))
    grades = (scores - 1) / 4
    learner = make_pipeline(StandardScaler(), cad.learners.ProbabilisticSVC(scale="fixed"))
    given = {"eta": belief.eta, "truth": known, "folds": 4}
    found = cad.validate(learner, X, belief.y, patients, readers=grades, **given).comparison
    row = found[(found["learner"] == "readers' mean") & (found["measure"] == "brier")].iloc[0]
    assert row["value"] == pytest.approx(np.mean((belief.p[seen] - known[seen]) ** 2))
    without = cad.validate(learner, X, belief.y, patients, **given)
    values = without.comparison[without.comparison["learner"] == "readers' mean"]["value"]
    assert values.isna().all()
    against = without.comparison[without.comparison["against"] == "readers"]
    assert set(against["n"]) == {int((~seen).sum())}


def test_grades_become_labels_by_the_lowest_that_counts() -> None:
    scores, grades = [[1.0], [3.0], [5.0], [2.0]], [0, 1, 3, np.nan]
    assert cad.consensus(scores, histology=grades, isup_min=2).y.tolist() == [0, 0, 1, 0.25]
    assert cad.consensus(scores, histology=grades, isup_min=1).y.tolist() == [0, 1, 1, 0.25]
    with pytest.raises(cad.CadError, match=r"holds 3, must be 0 to 1.*isup_min"):
        cad.consensus(scores, histology=grades)


def test_folds_keep_patients_whole_and_are_dealt_by_the_seed() -> None:
    X, scores, _, patients = table()
    learner = make_pipeline(StandardScaler(), cad.learners.ProbabilisticSVC(scale="fixed"))
    p = cad.consensus(scores).p
    five = cad.validate(learner, X, p, patients, folds=5)
    assert len(five.folds.folds) == 5
    for fold in five.folds.folds:
        inside = np.isin(np.arange(len(p)), fold.rows)
        assert not set(patients[inside]) & set(patients[~inside])
    again, other = (cad.validate(learner, X, p, patients, folds=5, seed=s) for s in (0, 1))
    np.testing.assert_array_equal(again.probability, five.probability)
    assert np.abs(other.probability - five.probability).max() > 1e-3
    each = cad.validate(learner, X, p, patients, folds=20)
    alone = cad.validate(learner, X, p, patients)
    np.testing.assert_allclose(each.probability, alone.probability, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"patients": [None, *"abc"]}, r"patients\[0\] is None"),
        ({"patients": ["a", "b", np.nan, "c"]}, r"patients\[2\] is nan"),
        ({"patients": ["a", " ", "b", "c"]}, r"patients\[1\] is ' '"),
        ({"patients": list("abc")}, "patients has 3 rows, y has 4"),
        ({"readers": pd.DataFrame({"r": [1, 2, 3, 4]})}, "readers holds 2"),
        ({"truth": [0, 1]}, r"truth has shape \(2,\)"),
        ({"truth": [0, 1, 2, np.nan]}, "truth holds 2"),
        ({"truth": ["0", "1", "1", "0"]}, "truth holds texts"),
        ({"folds": 9}, "9 folds of 4 patients"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict[str, object], message: str) -> None:
    given = {"patients": list("abcd"), **change}
    with pytest.raises(cad.CadError, match=message):
        cad.validate(cad.learners.ProbabilisticSVC(), np.eye(4), [0, 0.5, 0.5, 1], **given)


def test_texts_are_no_scores() -> None:
    with pytest.raises(cad.CadError, match="scores holds texts"):
        cad.consensus([["1", "2"]])


def test_a_model_warns_where_columns_leave_its_training_range(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(1000, 200, (150, 3)), columns=["adc", "t2", "ktrans"])
    p = 1 / (1 + np.exp((X["adc"] - 1000) / 100))
    learner = cad.learners.ProbabilisticSVC(scale="fixed").fit(X / 1000, p)
    model = cad.save_model(tmp_path / "model", learner, X / 1000, p, np.arange(150) // 3)
    new = pd.DataFrame(rng.normal(1000, 200, (100, 3)), columns=X.columns) / 1000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.probability(new)
        model.probability(new.iloc[:1])
    with pytest.warns(UserWarning, match=r"^adc: the mean of 100 rows is 1\.3"):
        model.probability(new.assign(adc=1.3 * new["adc"]))
    with pytest.warns(UserWarning, match="^t2: 1 of 1 rows"):
        model.probability(new.iloc[:1].assign(t2=30.0))


@pytest.mark.parametrize("score", [np.inf, -np.inf, 1e300, 6.0, 0.0])
def test_a_score_that_no_scale_has_is_no_missing_one(score: float):
    """Infinity had counted as "nobody scored", without a word."""
    with pytest.raises(CadError, match="likert5"):
        cad.consensus([[1.0, 2.0], [score, 3.0]])


def test_odd_panels_are_validated_or_refused_with_the_reason() -> None:
    rng = np.random.default_rng(0)
    X, patients = rng.normal(size=(60, 3)), np.arange(60) // 3
    scores = np.clip(np.round(3 + X[:, :1] + rng.normal(0, 0.7, (60, 4))), 1, 5)
    learner = cad.learners.AveragedProbabilisticSVC(C=1.0, gamma=0.3, eta0=0.1, kappa=1.0)

    def notes(given: np.ndarray) -> list[str]:
        belief = cad.consensus(given)
        readers = pd.DataFrame((given - 1) / 4, columns=list("abcde")[: given.shape[1]])
        made = cad.validate(
            learner, X, belief.p, patients, eta=belief.eta, readers=readers, folds=4
        )
        return made.notes[1:]

    with pytest.raises(
        cad.CadError, match=r"every label is 0.5, one class: there is nothing to tell apart"
    ):
        notes(np.full((60, 4), 3.0))
    (unanimous,) = notes(np.repeat(scores[:, :1], 4, axis=1))
    assert unanimous.startswith("the readers agree nearly everywhere")
    (alone,) = notes(scores[:, :1])
    assert alone.startswith("labels of one reader: the calibration slope here is ")
    few = scores.copy()
    few[3:, 3] = np.nan
    assert ["disagreement dealt to other regions" in note for note in notes(few)] == [True]
    twice = notes(np.column_stack([scores, scores[:, 0]]))
    assert twice[1].startswith("a, e gave the same scores, by more than chance")
    spoilt = scores.copy()
    spoilt[:, 1] = rng.permutation(spoilt[:, 1])
    assert notes(spoilt)[1].startswith("b adds nothing to the other readers")
    with pytest.raises(cad.CadError, match="score 80 is not on its scale likert5"):
        cad.consensus(np.column_stack([scores[:, :3], 20 * np.full(60, 4.0)]))
