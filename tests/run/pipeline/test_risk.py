"""One number, one meaning: belief, probability and range of every region and man of a run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from cad.base.errors import CadError
from cad.dicom.out.objects import algorithm
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.results import read_results
from cad.folders.run_folder.schema import HISTOLOGY, READERS
from cad.folders.run_folder.tables import Failure, read_probabilities
from cad.learning.evaluation.measures.centring import base_log_odds
from cad.learning.joint_model import fit_joint, from_dict
from cad.run.execution.options import HERE
from cad.run.model.bundle import load_bundle, save_bundle
from cad.run.pipeline import predict_cohort, train_model
from cad.run.stages.decide import SIMULATED_TRAINING, decide_run
from cad.run.stages.risk import (
    _require_probabilities,
    decides_on_real_men,
    evidence,
    joint_of,
    on_common_base,
    predicted_risk,
    risk_of_places,
    validated_risk,
)

TIGHT = 1e-12


def regions(seed: int, men: int = 40, readers: bool = True) -> pd.DataFrame:
    """Men of two to five regions whose truth the belief tells in part."""
    rng = np.random.default_rng(seed)
    count = rng.integers(2, 6, men)
    patient = np.repeat([f"sub-{k:03d}" for k in range(men)], count)
    risk = np.repeat(rng.normal(0, 0.8, men), count) - 1.5 + rng.normal(0, 1.2, len(patient))
    truth = (rng.random(len(patient)) < expit(risk)).astype(float)
    mean = np.clip(expit(0.8 * risk + rng.normal(0, 1, len(patient))), 0, 1)
    frame = pd.DataFrame(
        {
            "participant_id": patient,
            "belief": expit(0.7 * risk + 0.4 + rng.normal(0, 0.5, len(patient))),
            "readers_mean": mean if readers else np.nan,
            "truth": truth,
            "age": np.repeat(rng.normal(66, 6, men), count),
            "psa_density": np.repeat(np.exp(rng.normal(-2, 0.5, men)), count),
            "man_truth": np.nan,
        }
    )
    return frame


def check_coherent(table: pd.DataFrame, men: pd.DataFrame) -> None:
    """Hold every number of a table against its range and its man."""
    judged = table[table["probability_of"] == HISTOLOGY]
    assert (judged["probability_low"] <= judged["probability"] + TIGHT).all()
    assert (judged["probability"] <= judged["probability_high"] + TIGHT).all()
    man = judged["participant_id"].map(men["probability"])
    assert (man >= judged["probability"] - TIGHT).all()
    total = judged.groupby("participant_id")["probability"].sum()
    of_man = men["probability"].reindex(total.index)
    assert (of_man <= total + TIGHT).all()
    assert (men["probability_low"] <= men["probability"] + TIGHT).all()
    assert (men["probability"] <= men["probability_high"] + TIGHT).all()


def test_a_run_is_coherent(run_folder: Path) -> None:
    table = pd.read_csv(run_folder / "probabilities.csv")
    men = pd.read_csv(run_folder / "patients.csv").set_index("participant_id")
    assert (table["probability_of"] == HISTOLOGY).all()
    check_coherent(table, men)
    malignant = men.index[men["decision"] == "malignant"]
    targets = table[table["decision"] == "malignant"]["participant_id"].unique()
    assert set(malignant) <= set(targets)


def test_left_out_men_teach_nothing_of_themselves() -> None:
    rows = regions(1)
    belief = rows["belief"].to_numpy()
    risk = validated_risk(rows, belief, seed=0)
    assert risk.joint is not None
    own = rows["participant_id"] == "sub-007"
    turned = rows.assign(truth=np.where(own, 1 - rows["truth"], rows["truth"]))
    other = validated_risk(turned, belief, seed=0)
    first, second = (r.regions.loc[own, "probability"].to_numpy() for r in (risk, other))
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-7)
    elsewhere = (risk.regions["probability"] - other.regions["probability"])[~own].abs()
    assert elsewhere.max() > 1e-4


def test_on_noise_the_probabilities_rank_nobody() -> None:
    """Shuffled truths: ranks of left-out men are those of coin flips, centred or not at all."""
    from sklearn.metrics import roc_auc_score

    centred, shifted, raw, men = [], [], [], []
    for seed in range(30):
        rows = regions(seed, men=24, readers=False)
        rng = np.random.default_rng(seed)
        rows["truth"] = rng.permutation(rows["truth"].to_numpy())
        rows[["age", "psa_density"]] = np.nan
        risk = validated_risk(rows, rows["belief"].to_numpy(), seed=0)
        centred.append(roc_auc_score(rows["truth"], risk.regions["centred"]))
        shifted.append(roc_auc_score(rows["truth"], risk.regions["shifted"]))
        raw.append(roc_auc_score(rows["truth"], risk.regions["probability"]))
        # Each man has as many regions: their number must not tell who has cancer.
        rows["participant_id"] = [f"sub-{row // 3:03d}" for row in range(len(rows))]
        risk = validated_risk(rows, rows["belief"].to_numpy(), seed=0)
        men.append(
            [roc_auc_score(risk.men["truth"], risk.men[kind]) for kind in ("rank", "centred")]
        )
    error = np.std(centred) / np.sqrt(30)
    assert abs(np.mean(centred) - 0.5) < 3 * error
    assert np.mean(raw) < np.mean(shifted) < np.mean(centred)
    of_rank, less_base = np.mean(men, axis=0)
    assert abs(of_rank - 0.5) < 3 * np.std(men, axis=0)[0] / np.sqrt(30)
    assert of_rank < less_base


@pytest.mark.parametrize("known", ["nothing", "one man"])
def test_without_histology_the_probability_is_the_belief_and_says_so(known: str) -> None:
    rows = regions(2)
    keep = (rows["participant_id"] == "sub-001") & (known == "one man")
    rows["truth"] = np.where(keep, rows["truth"], np.nan)
    risk = validated_risk(rows, rows["belief"].to_numpy(), seed=0)
    assert risk.joint is None
    np.testing.assert_array_equal(risk.regions["probability"], rows["belief"])
    assert (risk.regions["probability_of"] == READERS).all()
    assert risk.regions["probability_low"].isna().all()
    assert risk.men["probability"].isna().all()
    # No bundle scored the men of a validation.
    assert (risk.men["model"] == "").all()
    assert "readers would say" in risk.notes[0]


@pytest.mark.parametrize("case", ["three men", "one class", "men without regions"])
def test_little_histology_is_carried_by_the_priors(case: str) -> None:
    rows = regions(3)
    if case == "three men":
        few = rows["participant_id"].isin(["sub-001", "sub-002", "sub-003"])
        rows["truth"] = np.where(few, rows["truth"], np.nan)
    if case == "one class":
        rows["truth"] = 0.0
    if case == "men without regions":
        rows.loc[rows["participant_id"] == "sub-004", "belief"] = np.nan
    risk = validated_risk(rows, rows["belief"].to_numpy(), seed=0)
    assert risk.joint is not None
    assert risk.notes
    judged = rows["belief"].notna()
    assert np.isfinite(risk.regions.loc[judged, "probability"]).all()
    assert risk.regions.loc[~judged, "probability"].isna().all()


def bundle_of(rows: pd.DataFrame, name: str = "m", **more: Any) -> Any:
    """A bundle as far as its joint model goes."""
    risk = validated_risk(rows, rows["belief"].to_numpy(), seed=0)
    assert risk.joint is not None
    training = rows.rename(columns={"belief": "out_of_fold"})
    metadata = {"joint": risk.joint.as_dict(), "training": {"simulated": False}, **more}
    return SimpleNamespace(name=name, metadata=metadata, training=training)


def test_a_region_with_a_belief_and_no_probability_is_an_error() -> None:
    """No model that passes the check on load does this; nothing is written if one does."""
    rows = regions(3)
    bundle = bundle_of(rows)
    joint = joint_of(bundle, None)
    assert joint is not None
    data, _ = evidence(rows, rows["belief"].to_numpy())
    predicted = joint.predict(data)
    _require_probabilities(data, predicted, bundle)
    probability = predicted.probability.copy()
    probability[2] = np.nan
    with pytest.raises(CadError, match=f"gives 1 of {len(rows)} regions no probability"):
        _require_probabilities(data, replace(predicted, probability=probability), bundle)


@pytest.mark.parametrize("prevalence", [0.1, 0.28, 0.6])
def test_a_stated_prevalence_moves_everybody_alike(prevalence: float) -> None:
    rows = regions(4, men=80)
    bundle = bundle_of(rows)
    joint, moved = joint_of(bundle, None), joint_of(bundle, prevalence)
    assert joint is not None
    assert moved is not None
    data, _ = evidence(rows, rows["belief"].to_numpy())
    truth = data.histology_of_men()
    share = np.where(truth == 1, prevalence / truth.sum(), (1 - prevalence) / (1 - truth).sum())
    man = moved.predict(data).man
    # Men look as those of the training, in other shares: their mean is what is stated.
    assert np.average(man, weights=share) == pytest.approx(prevalence, abs=1e-9)
    # And one man's number does not hang on who else is there tonight.
    new = regions(5, men=12).assign(model="m")
    together = predicted_risk(new, [bundle], prevalence)
    alone = new[new["participant_id"] == "sub-003"]
    single = predicted_risk(alone, [bundle], prevalence)
    np.testing.assert_allclose(
        single.regions["probability"],
        together.regions.loc[alone.index, "probability"],
        rtol=0,
        atol=TIGHT,
    )
    check_coherent(new.assign(**together.regions), together.men)


def test_a_cohort_that_contradicts_the_stated_prevalence_is_flagged() -> None:
    bundle = bundle_of(regions(6, men=80))
    new = regions(7, men=60).assign(model="m")
    stated = predicted_risk(new, [bundle], 0.05)
    assert any("either is wrong" in note for note in stated.notes)
    joint = joint_of(bundle, None)
    assert joint is not None
    mean = float(joint.predict(evidence(new, new["belief"].to_numpy())[0]).man.mean())
    agreed = predicted_risk(new, [bundle], mean)
    assert not any("either is wrong" in note for note in agreed.notes)


@pytest.mark.parametrize("prevalence", [0.0, 1.0])
def test_no_prevalence_of_nobody_or_everybody(prevalence: float) -> None:
    with pytest.raises(CadError, match="not between 0 and 1"):
        joint_of(bundle_of(regions(8)), prevalence)


def test_a_model_of_an_earlier_version_says_what_it_lacks() -> None:
    bundle = SimpleNamespace(name="old", metadata={"training": {}}, training=pd.DataFrame())
    rows = regions(9).assign(model="old")
    risk = predicted_risk(rows, [bundle], None)
    np.testing.assert_array_equal(risk.regions["probability"], rows["belief"])
    assert (risk.regions["probability_of"] == READERS).all()
    assert risk.notes[0] == (
        "model old: written by an earlier version, without the model of regions and men: its "
        "numbers are what readers would say, not cancer; train it again"
    )


def test_every_man_is_made_again_from_what_the_bundle_stores(
    cohort: Path, model: Path, tmp_path: Path
) -> None:
    """Region by region at the nodes of the man's effect, with no code of the program's between."""
    predict_cohort([str(model)], cohort, tmp_path / "out", HERE)
    table = pd.read_csv(tmp_path / "out" / "probabilities.csv")
    men = pd.read_csv(tmp_path / "out" / "patients.csv").set_index("participant_id")
    assert men["probability"].notna().all()
    assert (men["model"] == model.name).all()
    joint = from_dict(load_bundle(model).metadata["joint"])
    points, mass = np.polynomial.hermite_e.hermegauss(15)
    weight = mass / mass.sum()
    for name, rows in table.groupby("participant_id"):
        free = np.ones(15)
        for row in rows.itertuples():
            scored = np.isfinite(row.readers_mean) and joint.has_readers
            theta = joint.estimate[int(scored)]
            odds = theta[0] + theta[1] * logit(np.clip(row.belief, 1e-6, 1 - 1e-6))
            if scored:
                odds += theta[2] * logit(np.clip(row.readers_mean, 0.05, 0.95))
            odds += theta[5] + theta[6]  # neither density nor age is known of simulated men
            risk = expit(odds + np.exp(theta[9]) * points)
            assert row.probability == pytest.approx(float(risk @ weight), abs=1e-10)
            free *= 1 - risk
        assert men.at[name, "probability"] == pytest.approx(1 - float(free @ weight), abs=1e-10)


def judged_men(rows: pd.DataFrame, simulated_cohort: bool) -> Any:
    """Decide on regions of a model of simulated patients."""
    bundle = bundle_of(regions(10), training={"simulated": True})
    assert not decides_on_real_men(bundle)
    risk = predicted_risk(rows.assign(model="m"), [bundle], None)
    results = rows.assign(**risk.regions, model="m", reader_values="", warnings="")
    results["roi_id"] = np.arange(len(results)).astype(str)
    waiting = Failure("sub-9", "sub-9", "", "load", "no region", status="awaiting ROI")
    loaded = SimpleNamespace(
        failures=[waiting],
        cohort=SimpleNamespace(simulated=simulated_cohort),
        settings=SimpleNamespace(decision=settings()),
    )
    from cad.learning.evaluation.summary import Summary
    from cad.run.stages.judge import Judged

    limits = np.full(len(rows), 0.1), np.full(len(rows), 0.6)
    judged = Judged(
        results,
        Summary(),
        [],
        [],
        [],
        {},
        (0.1, 0.6),
        *limits,
        undecided_models=("m",),
        men=risk.men.assign(lower=0.1),
    )
    decided = decide_run(loaded, [], judged)  # type: ignore[arg-type]
    assert decided.summary is judged.summary  # the measures are not made a second time
    assert decided.decisions.waiting == 1
    return decided


def settings() -> Any:
    from cad.base.settings import DecisionSettings

    return DecisionSettings()


def test_a_model_of_simulated_patients_decides_on_no_real_man() -> None:
    rows = regions(11)
    real = judged_men(rows, simulated_cohort=False)
    assert (real.results["decision"] == "").all()
    assert (real.results["decision_model"] == "").all()
    assert (real.men["decision"] == "").all()
    assert (real.men["decision_reason"] == SIMULATED_TRAINING).all()
    assert real.results["probability"].notna().all()  # it ranks
    assert SIMULATED_TRAINING in real.notes
    simulated = judged_men(rows, simulated_cohort=True)
    assert (simulated.results["decision"] != "").all()


def test_a_run_of_before_is_read_as_belief(run_folder: Path, tmp_path: Path) -> None:
    """The probability of an earlier version was what readers would say."""
    shutil.copy(run_folder / "run.json", tmp_path / "run.json")
    table = pd.read_csv(run_folder / "probabilities.csv")
    old = table.drop(columns=["belief", "probability_of", "probability_images"])
    old["probability"] = table["belief"]
    old.to_csv(tmp_path / "probabilities.csv", index=False)
    men = pd.read_csv(run_folder / "patients.csv").drop(columns="probability_of")
    men.assign(upper=0.6).to_csv(tmp_path / "patients.csv", index=False)
    read = read_probabilities(RunFolder(tmp_path))
    np.testing.assert_array_equal(read["belief"], table["belief"])
    assert (read["probability_of"] == READERS).all()
    results = read_results(tmp_path)
    for region in results.regions:
        assert region.belief == region.probability
        assert not region.of_cancer
        assert region.probability_range is None
        assert region.patient_probability is None
    assert all(man.probability is None for man in results.men.values())


@pytest.fixture
def stated(tmp_path: Path) -> str:
    """Settings of a place where 28 % of the men have cancer."""
    path = tmp_path / "place.yaml"
    path.write_text("prevalence: 0.28\n")
    return str(path)


def test_a_model_of_ill_men_only_is_not_moved(
    cohort: Path, model: Path, stated: str, tmp_path: Path
) -> None:
    with pytest.raises(CadError, match=r"quick-model.*decision.prevalence"):
        predict_cohort([str(model)], cohort, tmp_path / "out", HERE, decision=stated)


def test_the_record_says_which_prevalence(
    cohort: Path, quick_pipeline: Path, stated: str, tmp_path: Path
) -> None:
    root = tmp_path / "cohort"
    shutil.copytree(cohort, root)
    rois = pd.read_csv(root / "rois.tsv", sep="\t", dtype=str, keep_default_na=False)
    healthy = rois["participant_id"].isin(["sub-0001", "sub-0002"])
    rois.loc[healthy & rois["isup"].ne(""), "isup"] = "0"
    rois.loc[healthy & rois["histology"].ne(""), "histology"] = "benign"
    rois.to_csv(root / "rois.tsv", sep="\t", index=False)
    train_model(str(quick_pipeline), root, tmp_path / "model", HERE)
    for name, decision in (("a", None), ("b", stated)):
        predict_cohort([str(tmp_path / "model")], cohort, tmp_path / name, HERE, decision=decision)
    tables = [pd.read_csv(tmp_path / name / "probabilities.csv") for name in ("a", "b")]
    described = json.loads((tmp_path / "b" / "run.json").read_text())["model"]["models"]
    shares = described["model"]["prevalence"]
    assert shares["stated"] == 0.28
    assert shares["men"] == pytest.approx(4 / 6)
    np.testing.assert_array_equal(tables[0]["belief"], tables[1]["belief"])
    assert (tables[1]["probability"] < tables[0]["probability"]).all()
    notes = json.loads((tmp_path / "b" / "run.json").read_text())["warnings"]
    assert any("moved to the stated prevalence of 0.28 of men" in note for note in notes)
    page = (tmp_path / "b" / "report" / "sub-0003.html").read_text(encoding="utf-8")
    assert "moved to a place where 0.28 of men have cancer" in page
    page = (tmp_path / "a" / "report" / "sub-0003.html").read_text(encoding="utf-8")
    assert "moved to a place" not in page


def test_a_stated_prevalence_makes_no_cancer_of_an_old_models_beliefs(
    cohort: Path, model: Path, stated: str, tmp_path: Path
) -> None:
    """A bundle without a joint model: nothing is moved, and no output says that it was."""
    bundle = load_bundle(model)
    metadata = {k: v for k, v in bundle.metadata.items() if k not in ("structure", "joint", "man")}
    old = tmp_path / "old"
    save_bundle(old, bundle.estimator, metadata, "card", bundle.reference_X, bundle.training)
    predict_cohort([str(old)], cohort, tmp_path / "out", HERE, decision=stated)
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["model"]["prevalence"]["stated"] is None
    assert any("0.28 moves nothing" in note for note in record["warnings"])
    for page in sorted((tmp_path / "out" / "report").glob("sub-*.html")):
        assert "moved to a place" not in page.read_text(encoding="utf-8")
    _, _, statements = algorithm(record)  # of the report in the archive
    assert not any("prevalence stated" in statement for statement in statements)


def test_a_new_prediction_leaves_no_report_of_the_old_one(
    cohort: Path, model: Path, tmp_path: Path
) -> None:
    run = tmp_path / "out"
    folder = RunFolder(run)
    predict_cohort([str(model)], cohort, run, HERE)
    for delivered in (folder.objects, folder.bundles):
        delivered.mkdir()
        (delivered / "sub-0001_ses-01_SR.dcm").write_bytes(b"of the old numbers")
        (delivered / "notes.txt").write_text("the user's own")
    predict_cohort([str(model)], cohort, run, HERE)  # nothing has changed: nothing is written
    assert (folder.objects / "sub-0001_ses-01_SR.dcm").is_file()
    costs = tmp_path / "costs.yaml"
    costs.write_text("false_negative: 6.0\n")
    predict_cohort([str(model)], cohort, run, HERE, decision=str(costs))
    for delivered in (folder.objects, folder.bundles):
        assert [path.name for path in delivered.iterdir()] == ["notes.txt"]


def test_age_counts_in_decades_and_density_by_its_logarithm() -> None:
    rows = regions(12, men=6)
    data, names = evidence(rows, rows["belief"].to_numpy())
    of_men = rows.groupby("participant_id").first()
    assert names.tolist() == of_men.index.tolist()
    np.testing.assert_allclose(data.age, of_men["age"] / 10)
    np.testing.assert_allclose(data.density, np.log(of_men["psa_density"]))


def test_risk_of_places_is_that_of_regions_without_readers() -> None:
    rows = regions(13, men=60)
    joint = joint_of(bundle_of(rows), None)
    assert joint is not None
    man = pd.Series({"age": 71.0, "psa_density": 0.31})
    belief = np.array([0.1, 0.4, 0.8])
    new = pd.DataFrame(
        {
            "participant_id": "sub-1",
            "readers_mean": np.nan,
            "truth": np.nan,
            "age": 71.0,
            "psa_density": 0.31,
            "man_truth": np.nan,
        },
        index=range(3),
    )
    data, _ = evidence(new, belief)
    expected = joint.predict(data).probability_images
    np.testing.assert_array_equal(risk_of_places(joint, belief, man), expected)
    assert (np.diff(expected) > 0).all()


@pytest.mark.parametrize(
    ("simulated", "recalibration", "decides"),
    [
        (False, None, True),
        (True, None, False),
        (True, {}, False),
        (True, {"patients": 40}, False),
        (True, {"simulated": True}, False),
        (True, {"simulated": False}, True),
        (False, {"simulated": True}, True),
    ],
)
def test_who_may_decide_on_a_real_man(
    simulated: bool, recalibration: dict[str, Any] | None, decides: bool
) -> None:
    metadata = {"training": {"simulated": simulated}, "recalibration": recalibration}
    bundle: Any = SimpleNamespace(name="m", metadata=metadata)
    assert decides_on_real_men(bundle) is decides


def test_each_region_and_man_has_the_number_of_the_model_that_scored_him() -> None:
    """Models that scored nobody, or have no joint model, stop none that follows them."""
    taught = bundle_of(regions(14, men=60), name="taught")
    unused = bundle_of(regions(15, men=60), name="unused")
    of_readers: Any = SimpleNamespace(
        name="readers", metadata={"training": {}, "joint": None}, training=pd.DataFrame()
    )
    rows = regions(16, men=9).assign(psa=7.0)
    men = rows["participant_id"].unique()
    rows["model"] = "taught"
    rows.loc[rows["participant_id"].isin(men[:3]), "model"] = "readers"
    # The last man has no belief, so no model scored him.
    rows.loc[rows["participant_id"] == men[8], ["belief", "model"]] = [np.nan, ""]
    bundles = [unused, of_readers, taught]
    risk = predicted_risk(rows, bundles, None)
    assert risk.notes[0] == (
        "model readers: the training has no histology: the numbers are what readers would say, "
        "not cancer"
    )
    assert not any("unused" in note for note in risk.notes)
    alone = rows[rows["model"] == "taught"]
    joint = joint_of(taught, None)
    assert joint is not None
    expected = joint.predict(evidence(alone, alone["belief"].to_numpy())[0])
    np.testing.assert_array_equal(
        risk.regions.loc[alone.index, "probability"], expected.probability
    )
    np.testing.assert_array_equal(risk.men.loc[men[3:8], "probability"], expected.man)
    by_readers = rows[rows["model"] == "readers"]
    of_region = risk.regions.loc[by_readers.index]
    np.testing.assert_array_equal(of_region["probability"], by_readers["belief"])
    assert (of_region["probability_of"] == READERS).all()
    assert risk.men.loc[men[:3], "probability"].isna().all()
    assert risk.men["model"].tolist() == ["readers"] * 3 + ["taught"] * 5 + [""]
    assert (risk.men.loc[men[:3], "unknown"] == "").all()
    assert (risk.men["psa"] == 7.0).all()
    assert (risk.regions.loc[rows["model"] == "", "probability_of"] == "").all()
    # A stated prevalence is told of each model apart.
    stated = predicted_risk(rows, bundles, 0.4)
    assert "the stated prevalence of 0.4 moves nothing" in stated.notes[1]
    assert any(
        note.startswith("model taught: probabilities moved to the stated prevalence of 0.4 of men")
        for note in stated.notes
    )
    assert not any("moves nothing" in note or "moved to" in note for note in risk.notes)
    assert len(risk.notes) == 1 + len(joint.notes)
    # Regions of a table without PSA have men whose PSA is unknown.
    assert predicted_risk(rows.drop(columns="psa"), bundles, None).men["psa"].isna().all()


def test_each_study_is_judged_by_itself_and_the_man_by_his_latest() -> None:
    taught = bundle_of(regions(14, men=60), name="taught")
    rows = regions(16, men=6).assign(model="taught")
    latest = (rows.groupby("participant_id").cumcount() % 2 == 0).to_numpy()
    rows["study_id"] = rows["participant_id"] + np.where(latest, "_ses-2", "_ses-1")
    risk = predicted_risk(rows, [taught], None, latest)
    now = predicted_risk(rows[latest], [taught], None)
    pd.testing.assert_frame_equal(risk.regions[latest], now.regions)
    # The truth of a man counts all his studies (the test below).
    pd.testing.assert_frame_equal(risk.men.drop(columns="truth"), now.men.drop(columns="truth"))
    then = predicted_risk(rows[~latest], [taught], None)
    of_regions = [name for name in then.regions if name != "patient_probability"]
    pd.testing.assert_frame_equal(risk.regions.loc[~latest, of_regions], then.regions[of_regions])
    assert risk.regions.loc[~latest, "patient_probability"].isna().all()
    assert (then.men["probability"] != now.men["probability"]).all()


def test_a_man_whose_latest_study_has_no_number_has_none() -> None:
    """The numbers of his earlier study are of then, and the others' men keep theirs."""
    taught = bundle_of(regions(14, men=60), name="taught")
    rows = regions(16, men=2).assign(model="taught")
    first = (rows["participant_id"] == "sub-000").to_numpy()
    latest = (rows.groupby("participant_id").cumcount() % 2 == 0).to_numpy()
    rows["study_id"] = rows["participant_id"] + np.where(latest, "_ses-2", "_ses-1")
    rows.loc[latest & first, ["belief", "model"]] = [np.nan, ""]
    risk = predicted_risk(rows, [taught], None, latest)
    assert risk.regions.loc[~latest & first, "probability"].notna().all()
    assert np.isnan(risk.men.loc["sub-000", "probability"])
    assert np.isfinite(risk.men.loc["sub-001", "probability"])
    alone = predicted_risk(rows[first], [taught], None, latest[first])
    assert np.isnan(alone.men.loc["sub-000", "probability"])
    assert alone.notes == ()


def test_cancer_that_an_earlier_study_proved_is_the_mans() -> None:
    taught = bundle_of(regions(14, men=60), name="taught")
    rows = regions(16, men=2).assign(model="taught", truth=0.0)
    latest = (rows.groupby("participant_id").cumcount() > 0).to_numpy()
    rows["study_id"] = rows["participant_id"] + np.where(latest, "_ses-2", "_ses-1")
    rows.loc[rows["participant_id"].eq("sub-000") & ~latest, "truth"] = 1.0
    men = predicted_risk(rows, [taught], None, latest).men
    assert men["truth"].tolist() == [1.0, 0.0]


def test_a_model_of_ill_men_only_cannot_be_moved() -> None:
    rows = regions(17, men=30)
    bundle = bundle_of(rows)
    bundle.training = bundle.training.assign(truth=1.0)
    with pytest.raises(CadError) as refused:
        joint_of(bundle, 0.3)
    assert "leave decision.prevalence out" in str(refused.value.hint)


def test_what_is_chosen_for_new_men_is_chosen_on_one_scale() -> None:
    rows = regions(18)
    rows.loc[0, "belief"] = np.nan
    folds: Any = SimpleNamespace(on_common_base=np.full(len(rows), 0.123))
    risk = validated_risk(rows, rows["belief"].to_numpy(), seed=0)
    common = on_common_base(risk, folds)
    assert np.isnan(common[0])
    np.testing.assert_allclose(common[1:], expit(risk.regions["shifted"].to_numpy()[1:]))
    unknown = rows.assign(truth=np.nan)
    without = validated_risk(unknown, unknown["belief"].to_numpy(), seed=0)
    np.testing.assert_array_equal(on_common_base(without, folds), folds.on_common_base)


def test_left_out_men_are_centred_by_the_men_who_taught_their_model() -> None:
    rows = regions(19, men=12)
    belief = rows["belief"].to_numpy()
    risk = validated_risk(rows, belief, seed=0)
    data, names = evidence(rows, belief)
    man = "sub-004"
    taught = (rows["participant_id"] != man).to_numpy()
    truth = rows["truth"].to_numpy()

    def shift(known: np.ndarray, everybody: np.ndarray) -> float:
        return float(base_log_odds(everybody) - base_log_odds(known))

    own = risk.regions[~taught]
    expected = logit(own["probability"]) + shift(truth[taught], truth)
    np.testing.assert_allclose(own["shifted"], expected, atol=1e-9)
    of_men = data.histology_of_men()
    place = names.get_loc(man)
    others = np.delete(of_men, place)
    expected_man = logit(risk.men.loc[man, "probability"]) + shift(others, of_men)
    assert risk.men.loc[man, "centred"] == pytest.approx(expected_man, abs=1e-9)
    assert set(risk.men["unknown"]) == {""}


def test_left_out_men_are_ranked_in_units_of_their_models_spread() -> None:
    rows = regions(19, men=12)
    belief = rows["belief"].to_numpy()
    risk = validated_risk(rows, belief, seed=0)
    data, names = evidence(rows, belief)
    spreads = []
    for name in names:
        others = data.of_men(np.asarray(names != name))
        predicted = fit_joint(others).predict(others)
        spreads.append(float(np.std(logit(predicted.probability))))
    common = base_log_odds(rows["truth"])
    factor = np.median(spreads) / np.array(spreads)
    expected = common + (risk.regions["shifted"] - common) * factor[data.man]
    np.testing.assert_allclose(risk.regions["centred"], expected, atol=2e-3)
    assert np.ptp(factor) > 0.05


def test_left_out_men_are_ranked_among_the_men_who_taught_their_model() -> None:
    rows = regions(19, men=12)
    belief = rows["belief"].to_numpy()
    risk = validated_risk(rows, belief, seed=0)
    data, names = evidence(rows, belief)
    for name in names:
        others = data.of_men(np.asarray(names != name))
        below = fit_joint(others).predict(others).man < risk.men.loc[name, "probability"]
        assert risk.men.loc[name, "rank"] == pytest.approx(below.mean(), abs=1e-9)
