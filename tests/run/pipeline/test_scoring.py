"""Scoring: which model scores a region, on which features, and with which thresholds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.errors import CadError
from cad.base.settings import DecisionSettings, PipelineSettings, parse_settings
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import KEYS, LIKE, Failure
from cad.learning.evaluation.decisions.conformal import conformal_p_values
from cad.learning.evaluation.decisions.operating import choose_operating_point
from cad.learning.evaluation.decisions.patient_level import measure_men
from cad.mri.features.provenance import PREFIX
from cad.mri.features.typicality import Typicality
from cad.run.model.bundle import Bundle
from cad.run.model.fold_features import FoldFeatures
from cad.run.stages import predict
from cad.run.stages.extract import Extracted
from cad.run.stages.predict import (
    basis,
    first_scale,
    operating_point,
    score_rows,
    settings_of,
    shared_settings,
    training_rows,
)

T2W = ["t2w_intensity_mean", "t2w_intensity_median"]
ADC = ["adc_intensity_mean", "adc_intensity_median"]
AIM = DecisionSettings(aim_npv=0.8)
EASY = DecisionSettings(aim_npv=0.6)


def model(name: str, features: list[str], seed: int = 0, **more: Any) -> Bundle:
    """A small model in memory, taught by 120 regions of 60 men."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, len(features)))
    truth = (X[:, 0] + rng.normal(size=120) > 0).astype(float)
    steps = [
        ("fill", SimpleImputer()),
        ("scale", StandardScaler()),
        ("learner", LogisticRegression()),
    ]
    estimator = Pipeline(steps).fit(X, truth)
    training = pd.DataFrame(X, columns=features)
    training["participant_id"] = [f"old-{i:03d}" for i in range(60) for _ in range(2)]
    training["truth"] = truth
    training["y"] = truth
    training["eta"] = 0.0
    training["out_of_fold"] = estimator.predict_proba(X)[:, 1]
    modalities = sorted({name.split("_")[0] for name in features})
    settings = PipelineSettings.model_validate(
        {"name": name, "features": {"modalities": modalities}}
    )
    metadata: dict[str, Any] = {
        "features": features,
        "modalities": modalities,
        "pipeline": settings.model_dump(mode="json"),
        "training": {"simulated": False, "patients": 60},
        "cad_version": "1.0",
    }
    return Bundle(
        name, estimator, {**metadata, **more}, X[:3], np.zeros(3), training, f"hash-{name}"
    )


def with_decision(bundle: Bundle, decision: DecisionSettings, **metadata: Any) -> Bundle:
    """The model as trained with other costs and aims."""
    settings = settings_of(bundle).model_copy(update={"decision": decision})
    pipeline = settings.model_dump(mode="json")
    return replace(bundle, metadata={**bundle.metadata, "pipeline": pipeline, **metadata})


def cohort(tmp_path: Path, X: pd.DataFrame, sites: list[str] | None = None) -> Extracted:
    """Regions of new men, two a man, each man with one study."""
    n = len(X)
    keys = pd.DataFrame(
        {
            "participant_id": [f"sub-{i // 2}" for i in range(n)],
            "study_id": [f"study-{i // 2}" for i in range(n)],
            "roi_id": [str(i) for i in range(n)],
        }
    )[KEYS]
    settings = PipelineSettings.model_validate({"name": "new"})
    given = np.array(sites or [""] * n)
    source = FoldFeatures(keys, X, settings, [], given, RunFolder(tmp_path / "run"))
    return Extracted(pd.concat([keys, X], axis=1), pd.DataFrame(index=range(n)), source)


def regions(n: int = 6, seed: int = 9) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.normal(size=(n, 4)), columns=[*T2W, *ADC])


def test_a_region_is_scored_by_the_first_model_that_has_its_images(tmp_path: Path) -> None:
    both = model("both", [*T2W, *ADC])
    alone = model("alone", T2W, seed=1)
    X = regions()
    X.loc[[1, 4], ADC] = np.nan  # two regions without ADC
    X.loc[5] = np.nan  # one without anything
    new = cohort(tmp_path, X)
    scores = score_rows([both, alone], new, RunFolder(tmp_path / "run"))
    table = scores.table
    assert table["model"].tolist() == ["both", "alone", "both", "both", "alone", ""]
    first = both.estimator.predict_proba(X.loc[[0, 2, 3], both.features].to_numpy())[:, 1]
    second = alone.estimator.predict_proba(X.loc[[1, 4], T2W].to_numpy())[:, 1]
    np.testing.assert_allclose(table.loc[[0, 2, 3], "belief"], first, rtol=0, atol=1e-12)
    np.testing.assert_allclose(table.loc[[1, 4], "belief"], second, rtol=0, atol=1e-12)
    odds = np.log(first / (1 - first))
    np.testing.assert_allclose(table.loc[[0, 2, 3], "decision_value"], odds, atol=1e-9)
    training = both.training
    for label, column in ((0, "p_benign"), (1, "p_malignant")):
        expected = conformal_p_values(
            training["truth"], training["out_of_fold"], training["participant_id"], first, label
        )
        np.testing.assert_array_equal(table.loc[[0, 2, 3], column], expected)
    # The last region says, model by model, what it lacks; the others lack nothing.
    assert set(scores.refused) == {5}
    assert "model both needs adc and t2w features" in scores.refused[5]
    assert "model alone needs t2w features" in scores.refused[5]
    assert table.loc[5, ["belief", "decision_value", "p_benign", "p_malignant"]].isna().all()
    assert (table["warnings"] == "").all()
    explained = {(row["participant_id"], row["roi_id"]) for row in scores.explanations}
    assert explained == {(f"sub-{i // 2}", str(i)) for i in range(5)}
    quiet = score_rows([both, alone], new, RunFolder(tmp_path / "run"), explained=False)
    assert quiet.explanations == []
    pd.testing.assert_frame_equal(quiet.table, table)
    assert quiet.notes == []


def test_where_no_region_can_be_scored_it_is_an_error_with_the_reasons(tmp_path: Path) -> None:
    X = regions(2)
    X[ADC] = np.nan
    with pytest.raises(CadError, match="no region has the modalities") as refused:
        score_rows([model("m", ADC)], cohort(tmp_path, X), RunFolder(tmp_path / "run"))
    assert "study-0: model m needs adc features" in str(refused.value.hint)
    nothing = cohort(tmp_path, X.iloc[:0])
    failure = Failure("sub-1", "study-1", "", "measure", "no T2 series", "")
    with pytest.raises(CadError, match="no region has the modalities") as refused:
        score_rows([model("m", ADC)], nothing, RunFolder(tmp_path / "run"), [failure])
    assert refused.value.hint == "study-1: no T2 series"


def test_what_is_unlike_the_training_or_measured_otherwise_is_said(tmp_path: Path) -> None:
    plain = model("m", ADC)
    limits = Typicality.fit(
        plain.training[ADC], plain.training["participant_id"].to_numpy(), plain.columns
    ).as_dict()
    bundle = replace(
        plain,
        metadata={
            **plain.metadata,
            "typicality": limits,
            "provenance": {"adc_b_max": [600.0, 900.0]},
        },
    )
    X = regions(4)[ADC]
    X.iloc[:2] = plain.training[ADC].median().to_numpy()
    X.iloc[2:] = 60.0
    new = cohort(tmp_path, X)
    provenance = pd.DataFrame({f"{PREFIX}adc_b_max": [800.0, 100.0, 800.0, np.nan]})
    table = score_rows([bundle], replace(new, provenance=provenance), RunFolder(tmp_path)).table
    assert table["unlike"].tolist()[:2] == [LIKE, LIKE]
    assert LIKE not in table["unlike"].tolist()[2:]
    assert table["warnings"][0] == ""
    assert table["warnings"][1].startswith("measured otherwise: ")
    assert "trained on 600 to 900" in table["warnings"][1]
    for row in (2, 3):
        assert table["warnings"][row] == (
            f"unlike the training cohort ({table['unlike'][row]}), so that no decision is stated"
        )
    # A model without limits says nothing of it.
    assert (score_rows([plain], new, RunFolder(tmp_path)).table["unlike"] == "").all()


def test_a_site_that_the_training_lacks_is_named(tmp_path: Path) -> None:
    plain = model("m", ADC)
    training = plain.training.assign(site=["a", "b"] * 60)
    combat = {
        "mean": [0.0, 0.0],
        "spread": [1.0, 1.0],
        "shift": [[1.0, 1.0], [-1.0, -1.0]],
        "scale": [[1.0, 1.0], [1.0, 1.0]],
        "sites": ["a", "b"],
        "medians": [0.0, 0.0],
    }
    preparation = {"nyul_landmarks": None, "unstable": [], "combat": combat}
    bundle = replace(
        plain, training=training, metadata={**plain.metadata, "preparation": preparation}
    )
    X = regions(4)[ADC]
    new = cohort(tmp_path, X, ["a", "c", "", "b"])
    scores = score_rows([bundle], new, RunFolder(tmp_path))
    assert scores.notes == [
        "model m was not trained on patients without a site: features there are not harmonised",
        "model m was not trained on site c: features there are not harmonised",
    ]
    moved = X.to_numpy() - np.array([[1.0], [0.0], [0.0], [-1.0]])
    expected = plain.estimator.predict_proba(moved)[:, 1]
    np.testing.assert_allclose(scores.table["belief"], expected, rtol=0, atol=1e-12)
    # The rows that taught the learner are moved by their own sites.
    own = training[ADC].to_numpy() - np.array([[1.0], [-1.0]] * 60)
    np.testing.assert_allclose(training_rows(bundle), own)
    without = replace(bundle, training=plain.training)
    np.testing.assert_array_equal(training_rows(without), plain.training[ADC])


def test_a_learner_of_labelled_regions_is_never_fitted_anew(tmp_path: Path) -> None:
    new = cohort(tmp_path, regions())
    with pytest.raises(CadError, match="learns of labelled regions only"):
        score_rows([model("m", ADC)], new, RunFolder(tmp_path), transductive=True)


def test_each_man_has_a_fit_of_his_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refit alone is stood in for: what it gets is what this stage decides."""
    fits = []

    def refit(bundle: Bundle, training: np.ndarray, rows: np.ndarray) -> Any:
        fits.append((training.shape, rows.copy()))
        return bundle.estimator

    monkeypatch.setattr(predict, "fit_with", refit)
    monkeypatch.setattr(predict, "check_transductive", lambda bundle: None)
    bundle = model("m", ADC)
    X = regions(5)[ADC]
    scores = score_rows([bundle], cohort(tmp_path, X), RunFolder(tmp_path), transductive=True)
    assert [shape for shape, _ in fits] == [(120, 2)] * 3
    for (_, rows), start in zip(fits, (0, 2, 4), strict=True):
        np.testing.assert_array_equal(rows, X.to_numpy()[start : start + 2])
    assert (scores.table["model"] == "m").all()
    assert len(scores.notes) == 1
    assert scores.notes[0] == (
        "transductive: each patient's regions joined the model's fit without labels; a probability "
        "rests on the patient's other regions, too, and on no other new patient"
    )


def test_the_settings_of_several_models_are_the_firsts_with_all_images() -> None:
    t2w, both = model("t2w", T2W), model("both", [*T2W, *ADC])
    settings = shared_settings([t2w, both])
    assert settings.features.modalities == ("t2w", "adc")
    assert settings.name == "t2w"
    assert settings.decision == settings_of(t2w).decision
    assert shared_settings([t2w], AIM).decision == AIM
    assert basis([both, t2w]) == {"both": "hash-both", "t2w": "hash-t2w"}
    other_images = {**both.pipeline["images"], "t2_standardisation": "nyul"}
    pipeline = {**both.pipeline, "images": other_images}
    assert pipeline != both.pipeline
    images = replace(both, metadata={**both.metadata, "pipeline": pipeline})
    texture = {**both.pipeline["features"]["texture"], "bins": 7}
    features = {**both.pipeline["features"], "texture": texture}
    measures = replace(
        both, metadata={**both.metadata, "pipeline": {**both.pipeline, "features": features}}
    )
    for other in (images, measures):
        with pytest.raises(CadError, match="models t2w and both measure images differently"):
            shared_settings([t2w, other])
    table = replace(both, metadata={**both.metadata, "table": True})
    with pytest.raises(CadError, match="was trained on a table"):
        shared_settings([t2w, table])


def test_new_men_are_measured_on_the_first_models_scale() -> None:
    landmarks = np.linspace(0.0, 100.0, 11)
    preparation = {"nyul_landmarks": landmarks.tolist(), "unstable": [], "combat": None}
    scaled = model("scaled", T2W, preparation=preparation)
    scale = first_scale([scaled, model("plain", T2W)])
    assert scale is not None
    np.testing.assert_array_equal(scale.landmarks, landmarks)
    assert first_scale([model("plain", T2W), scaled]) is None
    damaged = model("damaged", T2W, preparation={"nyul_landmarks": "none"})
    with pytest.raises(CadError, match="content is not a model") as refused:
        first_scale([damaged, scaled])
    assert refused.value.file == "damaged"


@pytest.mark.parametrize("aims", [{"aim_npv": 0.8}, {"aim_ppv": 0.6}])
def test_thresholds_are_the_stored_ones_for_the_aims_of_the_training(
    aims: dict[str, float],
) -> None:
    decision = DecisionSettings(**aims)
    plain = model("m", ADC)
    truth, q = plain.training["truth"].to_numpy(), plain.training["out_of_fold"].to_numpy()
    men = plain.training["participant_id"].to_numpy()
    chosen = choose_operating_point(truth, q, men, decision)
    # The stored point is moved, so that it is seen which of the two is returned.
    content = chosen.as_dict()
    content["benign"] = {**content["benign"], "threshold": 0.0123}
    trained = with_decision(plain, decision, operating_point=content)
    stored = operating_point(trained, decision)
    assert stored is not None
    assert stored.thresholds[0] == 0.0123
    blinded = operating_point(trained, decision.model_copy(update={"blinded": True}))
    assert blinded == stored
    dearer = decision.model_copy(update={"false_negative": 9.0})
    anew = operating_point(trained, dearer)
    assert anew == choose_operating_point(truth, q, men, dearer)
    without = with_decision(plain, decision)
    assert operating_point(without, decision) == chosen
    assert operating_point(trained, DecisionSettings()) is None
    # Where a joint model taught probabilities, thresholds are theirs.
    probability = np.clip(q + 0.1 * (truth - 0.5), 0.01, 0.99)
    risk = replace(without, training=plain.training.assign(out_of_fold_probability=probability))
    assert operating_point(risk, decision) == choose_operating_point(
        truth, probability, men, decision
    )
    unknown = replace(without, training=plain.training.assign(truth=np.nan))
    assert operating_point(unknown, decision) is None


def test_a_model_whose_thresholds_are_the_costs_is_named_where_an_aim_is_set() -> None:
    points = {"a": None, "b": choose_operating_point(*_choice(), AIM)}
    note = "thresholds are those of the costs, not of the aim: model a has no validated histology"
    for decision in (AIM, DecisionSettings(aim_ppv=0.6)):
        (told,) = predict._costs_instead(points, decision)
        assert told.startswith(note)
    assert predict._costs_instead(points, DecisionSettings()) == []


def _choice() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    training = model("m", ADC).training
    return (
        training["truth"].to_numpy(),
        training["out_of_fold"].to_numpy(),
        training["participant_id"].to_numpy(),
    )


def test_a_man_has_the_limit_of_the_model_that_scored_him() -> None:
    decision = DecisionSettings(man_npv=0.8)
    point = choose_operating_point(*_choice(), AIM)
    names = {"none": None, "a": 0.11, "b": 0.22, "unused": 0.33}
    bundles = []
    for name, threshold in names.items():
        bundle = model(name, ADC)
        if threshold is not None:
            content = point.as_dict()
            content["benign"] = {**content["benign"], "threshold": threshold}
            content["refer"] = threshold
            bundle = replace(
                bundle, metadata={**bundle.metadata, "man": {"operating_point": content}}
            )
        bundles.append(bundle)
    bundles = [bundles[3], *bundles[:3]]
    men = pd.DataFrame(
        {
            "model": ["a", "b", "none", "", "a"],
            "truth": [1.0, 0.0, 1.0, np.nan, 0.0],
            "probability": [0.7, 0.2, 0.6, np.nan, 0.3],
        }
    )
    risk: Any = SimpleNamespace(men=men)

    def loaded(decision: DecisionSettings) -> Any:
        settings = parse_settings(
            PipelineSettings, {"name": "x", "validate": {"bootstraps": 20}}, "x"
        )
        return SimpleNamespace(settings=settings.model_copy(update={"decision": decision}))

    limited, measured = predict._predicted_men(loaded(decision), risk, bundles)
    costs = decision.thresholds[0]
    assert limited["lower"].tolist() == [0.11, 0.22, costs, costs, 0.11]
    # The first model that scored somebody says how many men it was to decide.
    assert measured.promised_share == pytest.approx(1 - 0.11)
    expected = measure_men(men["truth"].to_numpy(), men["probability"].to_numpy(), bootstraps=20)
    assert measured.n == expected.n == 4
    assert measured.auc.value == expected.auc.value
    assert measured.brier == expected.brier
    # Without an aim for men their limit is that of the costs, and nothing was promised.
    limited, measured = predict._predicted_men(loaded(DecisionSettings()), risk, bundles)
    assert (limited["lower"] == costs).all()
    assert measured.promised_share is None


def test_the_record_of_each_model() -> None:
    plain = model("m", ADC)
    made_up = replace(plain, name="s", metadata={**plain.metadata, "training": {"simulated": True}})
    limits = {"m": (0.1, 0.6), "s": (0.2, 0.7)}
    records = predict._records_of_models(
        [plain, made_up], limits, {"old-001", "old-007", "sub-1"}, 0.3
    )
    assert records["m"]["decides"]
    assert not records["s"]["decides"]
    assert records["m"]["patients_of_training"] == 2
    assert records["m"]["thresholds"] == (0.1, 0.6)
    assert records["m"]["sha256"] == "hash-m"
    # Neither has a joint model: a stated prevalence moves nothing.
    assert records["m"]["joint"] is None
    assert records["m"]["prevalence"] == {"stated": None, "men": None, "regions": None}


def new_men(tmp_path: Path, table_columns: dict[str, str]) -> tuple[Any, Extracted, Any]:
    """Eight regions of four men: the second man without ADC, the last region without any image."""
    X = regions(8)
    X.loc[[2, 3], ADC] = np.nan
    X.loc[7] = np.nan
    extracted = cohort(tmp_path, X)
    keys = extracted.features[KEYS]
    truth = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, np.nan])
    labels = keys.assign(
        truth=truth,
        p=np.where(np.isnan(truth), 0.5, truth),
        label_kind="one_sided",
        readers_mean=0.4,
        age=np.nan,
        psa_density=np.nan,
        man_truth=np.nan,
    )
    rois = keys.drop(columns="study_id").assign(label=1, zone="PZ", histology="", isup="")
    scores = keys[["participant_id", "roi_id"]].assign(reader_id="r1", score=3, scale="x")
    aggregated = SimpleNamespace(
        table=SimpleNamespace(keys=keys, labels=labels, X=X),
        rois=rois,
        scores=scores,
        grades=scores.assign(probability=0.25).drop(columns=["score", "scale"]),
        labels=labels.drop(columns="study_id"),
        provenance=extracted.provenance,
        own_rows=len(X),
        simulated=False,
    )
    settings = PipelineSettings.model_validate({"name": "x", "validate": {"bootstraps": 20}})
    studies = keys[["participant_id", "study_id"]].drop_duplicates().itertuples()
    loaded = SimpleNamespace(
        settings=settings.model_copy(update={"decision": EASY}),
        cohort=SimpleNamespace(studies=lambda: studies),
        folder=RunFolder(tmp_path / "run"),
        table_columns=table_columns,
    )
    return loaded, extracted, aggregated


def test_each_region_has_the_thresholds_of_its_model(tmp_path: Path) -> None:
    both = model("both", [*T2W, *ADC])
    untaught = model("alone", T2W, seed=1, training={"simulated": True, "patients": 60})
    alone = replace(untaught, training=untaught.training.assign(truth=np.nan))
    loaded, extracted, aggregated = new_men(tmp_path, {})
    judged = predict.predict(loaded, extracted, aggregated, [both, alone])
    point = operating_point(both, EASY)
    assert point is not None
    # A model without histology has no point: its thresholds are those of the costs.
    assert operating_point(alone, EASY) is None
    assert 0 < point.thresholds[0] != EASY.thresholds[0]
    assert judged.thresholds == point.thresholds
    assert judged.results["model"].tolist() == ["both"] * 2 + ["alone"] * 2 + ["both"] * 3 + [""]
    # Nothing scored the last region: it stands under the limits of the first model.
    of_row = [point.thresholds] * 2 + [EASY.thresholds] * 2 + [point.thresholds] * 4
    np.testing.assert_array_equal(judged.lower, [lower for lower, _ in of_row])
    np.testing.assert_array_equal(judged.upper, [upper for _, upper in of_row])
    scored = score_rows([both, alone], extracted, loaded.folder)
    np.testing.assert_array_equal(judged.results["belief"], scored.table["belief"])
    np.testing.assert_array_equal(judged.results["probability"], scored.table["belief"])
    assert list(judged.summary.at_training) == ["both"]
    assert judged.summary.at_training["both"].as_dict() == point.as_dict()
    assert judged.summary.operating_point is None
    assert judged.summary.patient_level is not None
    assert judged.model is not None
    assert judged.model["name"] == "both, alone"
    assert judged.model["sha256"] == "hash-both"
    assert judged.model["models"]["both"]["thresholds"] == point.thresholds
    assert judged.model["models"]["alone"]["thresholds"] == EASY.thresholds
    # One of the two was taught by simulated men: it decides on no real man, and a page says so.
    assert judged.undecided_models == ("alone",)
    assert judged.simulated
    assert 0 <= judged.timings["score"] < 60
    (failure,) = judged.failures
    assert (failure.participant_id, failure.roi_id, failure.stage) == ("sub-3", "7", "score")
    assert failure.hint == (
        "add the images, draw the region where all of them show it, or name a second --model that "
        "was trained without them (without --model the released ones are taken in order)"
    )
    assert len(judged.explanations) > 0
    assert judged.men.index.tolist() == ["sub-0", "sub-1", "sub-2", "sub-3"]
    assert any("model alone has no validated histology" in note for note in judged.notes)


def test_a_prediction_of_real_men_by_real_men_is_not_simulated(tmp_path: Path) -> None:
    both = model("both", [*T2W, *ADC])
    # A written table has no place for explanations.
    loaded, extracted, aggregated = new_men(tmp_path, {"patient": "participant_id"})
    judged = predict.predict(loaded, extracted, aggregated, [both])
    assert not judged.simulated
    assert judged.undecided_models == ()
    assert judged.explanations == []
    made_up = SimpleNamespace(**{**vars(aggregated), "simulated": True})
    assert predict.predict(loaded, extracted, made_up, [both]).simulated


def test_a_later_study_that_failed_leaves_no_region_of_the_latest_study(tmp_path: Path) -> None:
    both = model("both", [*T2W, *ADC])
    loaded, extracted, aggregated = new_men(tmp_path, {})
    pairs = [("sub-0", "study-0"), ("sub-0", "study-0b"), ("sub-2", "study-2")]
    of_cohort = [
        SimpleNamespace(participant_id=patient, study_id=study) for patient, study in pairs
    ]
    loaded.cohort = SimpleNamespace(studies=lambda: of_cohort)
    judged = predict.predict(loaded, extracted, aggregated, [both])
    assert judged.latest.tolist() == [False] * 2 + [True] * 6
    # A table names all its studies in its rows, and has no folder of studies.
    loaded, extracted, aggregated = new_men(tmp_path, {"patient": "participant_id"})
    loaded.cohort = SimpleNamespace(studies=lambda: of_cohort)
    judged = predict.predict(loaded, extracted, aggregated, [both])
    assert judged.latest.all()
