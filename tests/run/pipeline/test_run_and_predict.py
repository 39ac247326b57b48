"""Whole runs on simulated patients: what is written, what a broken study costs, what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit

from cad.base.errors import CadError
from cad.folders.run_folder.tables import PROBABILITY_COLUMNS
from cad.learning.evaluation.measures.metrics import auc
from cad.mri.imaging.nifti import read_volume, write_volume
from cad.mri.imaging.study_files import image_path
from cad.run.execution.options import HERE, ExecutionOptions
from cad.run.pipeline import (
    check,
    compare_models,
    predict_cohort,
    run_pipeline,
    suggest_next,
    train_model,
)
from cad.run.stages.decide import DECISION_COLUMNS


def _copy(cohort: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(cohort, tmp_path / "cohort"))


def test_a_run_writes_what_the_contract_names(run_folder: Path, cohort: Path) -> None:
    for name in (
        "run.json",
        "features.parquet",
        "labels.parquet",
        "probabilities.csv",
        "explanations.csv",
        "metrics.json",
        "failures.csv",
        "validation.md",
        "report/index.html",
    ):
        assert (run_folder / name).is_file(), name
    table = pd.read_csv(run_folder / "probabilities.csv")
    assert tuple(table.columns) == PROBABILITY_COLUMNS
    assert len(table) == len(pd.read_csv(cohort / "rois.tsv", sep="\t"))
    assert table["probability"].between(0, 1).all()
    for patient in table["participant_id"].unique():
        assert (run_folder / "report" / f"{patient}.html").is_file()
    record = json.loads((run_folder / "run.json").read_text())
    assert record["simulated"] is True
    assert record["decision_thresholds"] == pytest.approx([0.1, 0.6])


def test_measures_are_those_of_the_written_probabilities(run_folder: Path) -> None:
    table = pd.read_csv(run_folder / "probabilities.csv")
    metrics = json.loads((run_folder / "metrics.json").read_text())
    truth = (table["isup"] >= 2).astype(float)  # clinically significant
    assert metrics["histology"]["auc"]["value"] == pytest.approx(auc(truth, table["centred"]))
    for patient, rows in table.groupby("participant_id"):
        # Within a man the order is that of the probabilities, around the base of his model.
        others = table["participant_id"] != patient
        less_base = logit(rows["probability"]) - logit(truth[others].mean())
        less_common = rows["centred"] - logit(truth.mean())
        factor = less_common / less_base
        assert factor.to_numpy() == pytest.approx(factor.iloc[0], rel=1e-4)
        assert 0.5 < factor.iloc[0] < 2
    assert metrics["histology"]["measures"]["brier"]["value"] == pytest.approx(
        np.mean((truth - table["probability"]) ** 2)
    )
    decided = np.select(
        [table["probability"] > 0.6, table["probability"] < 0.1], ["malignant", "benign"], "refer"
    )
    assert (decided == table["decision_model"]).all()
    withdrawn = table["decision"] != table["decision_model"]
    assert (withdrawn == table["decision_reason"].notna()).all()
    assert (table.loc[withdrawn, "decision"] == "refer").all()
    kinds = table["label_kind"].value_counts().to_dict()
    assert metrics["label_kinds"] == kinds


def test_families_add_up_to_the_log_odds_of_the_belief(run_folder: Path) -> None:
    table = pd.read_csv(run_folder / "explanations.csv")
    per_region = table.groupby(["study_id", "roi_id"])
    assert (per_region.size() >= 10).all()
    families = table.dropna(subset="contribution")
    assert not families.duplicated(["study_id", "roi_id", "group"]).any()
    assert set(families["group"]) == set(table["group"])
    said = pd.read_csv(run_folder / "probabilities.csv").set_index(["study_id", "roi_id"])
    total = per_region["average"].first() + per_region["contribution"].sum()
    belief = said["belief"].reindex(total.index)
    assert np.allclose(1 / (1 + np.exp(-total)), belief, atol=1e-9)
    sizes = table.assign(size=table["delta"].abs())
    ranked = sizes.sort_values(["study_id", "roi_id", "rank"]).groupby(["study_id", "roi_id"])
    assert ranked["size"].apply(lambda s: s.is_monotonic_decreasing).all()
    assert table["unit"].notna().any()


def test_a_broken_study_and_a_bad_score_cost_no_other_patient(
    cohort: Path, quick_pipeline: Path, tmp_path: Path
) -> None:
    root = _copy(cohort, tmp_path)
    patients = sorted(p.name for p in root.glob("sub-*"))
    broken = next((root / patients[0]).rglob("*_T2w.nii.gz"))
    broken.write_bytes(broken.read_bytes()[:100])
    scores = pd.read_csv(root / "scores.tsv", sep="\t", dtype=str, keep_default_na=False)
    scores.loc[scores["participant_id"].eq(patients[1]).idxmax(), "score"] = "9"
    scores.to_csv(root / "scores.tsv", sep="\t", index=False)
    out = tmp_path / "out"
    summary = run_pipeline(str(quick_pipeline), root, out, ExecutionOptions(jobs=2))
    reasons = {f.participant_id: f.reason for f in summary.failures}
    assert len(summary.failures) == len(reasons) == 2
    assert "T2w" in reasons[patients[0]]
    assert "9" in reasons[patients[1]]
    table = pd.read_csv(out / "probabilities.csv")
    assert set(table["participant_id"]) == set(patients[2:])
    assert not (out / "studies" / f"{patients[0]}.npz").exists()
    failed = pd.read_csv(out / "failures.csv")["participant_id"]
    assert sorted(failed) == patients[:2]
    assert any(patients[0] in str(problem) for problem in check(root)[0])


def test_one_patient_or_one_class_cannot_be_validated(
    cohort: Path,
    first_patient: Path,
    quick_pipeline: Path,
    part_of: Callable[..., Path],
    tmp_path: Path,
) -> None:
    with pytest.raises(CadError, match="one group"):
        run_pipeline(str(quick_pipeline), first_patient, tmp_path / "one", HERE)

    root = part_of(cohort, tmp_path / "benign", ["sub-0001", "sub-0002"])
    scores = pd.read_csv(root / "scores.tsv", sep="\t", dtype=str, keep_default_na=False)
    scores.assign(score="1").to_csv(root / "scores.tsv", sep="\t", index=False)
    with pytest.raises(CadError, match="class"):
        run_pipeline(str(quick_pipeline), root, tmp_path / "two", HERE)


def test_predicting_the_training_cohort_uses_the_bundle_only(
    cohort: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    summary = predict_cohort([str(model)], cohort, out, HERE)
    assert summary.failures == []
    table = pd.read_csv(out / "probabilities.csv")
    training = pd.read_parquet(model / "training.parquet")
    from cad.run.model.bundle import load_bundle

    bundle = load_bundle(model)
    own = bundle.estimator.predict_proba(training[bundle.features].to_numpy(float))[:, 1]
    assert table["belief"].to_numpy() == pytest.approx(own, abs=1e-12)
    assert set(table["model"]) == {"quick-model"}
    assert json.loads((out / "metrics.json").read_text())["histology"]["n"] == len(table)


def test_a_study_without_dce_is_refused_or_taken_by_a_second_model(
    cohort: Path, quick_pipeline: Path, model: Path, part_of: Callable[..., Path], tmp_path: Path
) -> None:
    patient = "sub-0002"
    root = part_of(cohort, tmp_path / "cohort", ["sub-0001", patient])
    shutil.rmtree(root / patient / "perf")
    alone = predict_cohort([str(model)], root, tmp_path / "alone", HERE)
    assert {(f.participant_id, f.stage) for f in alone.failures} == {(patient, "score")}
    assert "needs dce features and this study has none" in alone.failures[0].reason
    table = pd.read_csv(tmp_path / "alone" / "probabilities.csv").set_index("participant_id")
    assert table.loc[patient, "probability"].isna().all()
    assert table.drop(patient)["probability"].notna().all()
    named = [f.roi_id for f in alone.failures]  # a line for each region
    assert named == table.loc[patient, "roi_id"].astype(str).tolist()

    other = tmp_path / "two.yaml"
    text = quick_pipeline.read_text().replace("validate: {", "validate: {scheme: none, ")
    other.write_text(text.replace("features: {", "features: {modalities: [t2w, adc], "))
    second = tmp_path / "without-dce"
    train_model(str(other), cohort, second, HERE)
    both = predict_cohort([str(model), str(second)], root, tmp_path / "both", HERE)
    assert both.failures == []
    table = pd.read_csv(tmp_path / "both" / "probabilities.csv").set_index("participant_id")
    assert set(table.loc[patient, "model"]) == {"without-dce"}
    assert set(table.drop(patient)["model"]) == {"quick-model"}
    said = json.loads((tmp_path / "both" / "run.json").read_text())["model"]
    assert said["name"] == "quick-model, without-dce"
    assert {name: said["models"][name]["name"] for name in said["models"]} == {
        name: name for name in ("quick-model", "without-dce")
    }
    page = (tmp_path / "both" / "report" / f"{patient}.html").read_text()
    assert "Model without-dce" in page
    assert "Model quick-model" not in page


def test_a_probability_map_covers_the_gland(
    first_patient: Path, model: Path, tmp_path: Path
) -> None:
    import nibabel as nib

    root, first = first_patient, "sub-0001"
    out = tmp_path / "out"
    predict_cohort([str(model)], root, out, HERE, probability_map=True)
    # Through nibabel: ITK's reader turns the NaN outside the gland into 0.
    values = np.asarray(nib.load(out / "maps" / f"{first}_probability.nii.gz").dataobj)
    gland = np.asarray(nib.load(next((root / first).rglob("*_gland.nii.gz"))).dataobj)
    assert values.shape == gland.shape
    finite = np.isfinite(values)
    assert finite[gland > 0].mean() > 0.95
    assert not finite[gland == 0].any()
    assert ((values[finite] >= 0) & (values[finite] <= 1)).all()
    with np.load(out / "maps" / f"{first}_display.npz") as archive:
        assert np.isfinite(archive["probability"]).any()


def test_an_ensemble_maps_the_gland_too(
    cohort: Path, quick_pipeline: Path, first_patient: Path, tmp_path: Path
) -> None:
    """Its trees see the features of a sphere, as those of a region."""
    import nibabel as nib

    from cad.run.model.bundle import load_bundle

    text = quick_pipeline.read_text().replace("validate: {", "validate: {scheme: none, ")
    learner = "learner: {name: ProbabilisticEnsemble, params: {trees: 5, C: 1.0, gamma: 0.3}}"
    pipeline = tmp_path / "ensemble.yaml"
    pipeline.write_text(re.sub(r"learner: .*", learner, text))
    train_model(str(pipeline), cohort, tmp_path / "model", HERE)
    assert (
        load_bundle(tmp_path / "model").metadata["pipeline"]["learner"]["name"]
        == "ProbabilisticEnsemble"
    )
    out = tmp_path / "out"
    done = predict_cohort([str(tmp_path / "model")], first_patient, out, HERE, probability_map=True)
    assert done.failures == []
    values = np.asarray(nib.load(out / "maps" / "sub-0001_probability.nii.gz").dataobj)
    inside = values[np.isfinite(values)]
    assert ((inside > 0) & (inside < 1)).all()
    assert np.ptp(inside) > 0.05


def test_extending_a_model_adds_its_training_table(
    cohort: Path, quick_pipeline: Path, model: Path, tmp_path: Path
) -> None:
    from cad.evidence.phantom import simulate
    from cad.run.model.bundle import load_bundle

    with pytest.raises(CadError, match="already"):
        train_model(
            str(quick_pipeline),
            cohort,
            tmp_path / "same",
            HERE,
            extends=str(model),
        )
    new = tmp_path / "new"
    simulate(new, patients=2, seed=12, light=True)
    for path in sorted(new.rglob("*sub-*"), key=lambda p: -len(p.parts)):
        path.rename(path.with_name(path.name.replace("sub-", "sub-N")))
    for name in ("participants.tsv", "rois.tsv", "scores.tsv"):
        text = (new / name).read_text().replace("sub-", "sub-N")
        (new / name).write_text(text)
    train_model(str(quick_pipeline), new, tmp_path / "bigger", HERE, extends=str(model))
    old, bigger = load_bundle(model), load_bundle(tmp_path / "bigger")
    assert bigger.metadata["training"]["extends"] == ["quick-model"]
    fresh = len(pd.read_csv(new / "rois.tsv", sep="\t"))
    assert len(bigger.training) == len(old.training) + fresh
    other = tmp_path / "other.yaml"
    other.write_text(quick_pipeline.read_text().replace("bins: 16", "bins: 8"))
    with pytest.raises(CadError, match=r"features settings differ.*texture"):
        train_model(str(other), new, tmp_path / "no", HERE, extends=str(model))


def test_a_model_compared_with_itself_differs_nowhere(
    cohort: Path, model: Path, part_of: Callable[..., Path], tmp_path: Path
) -> None:
    root = part_of(cohort, tmp_path / "cohort", ["sub-0001", "sub-0002"])
    result = compare_models(str(model), str(model), root, tmp_path / "out", HERE)
    assert result["changed"] == []
    assert all(row["difference"] == 0 for row in result["differences"])


def test_suggest_names_regions_with_few_readings_only(
    cohort: Path, model: Path, part_of: Callable[..., Path], tmp_path: Path
) -> None:
    root = part_of(cohort, tmp_path / "cohort", ["sub-0001", "sub-0002", "sub-0003"])
    scores = pd.read_csv(root / "scores.tsv", sep="\t", dtype=str, keep_default_na=False)
    keep = scores["reader_id"].eq("r1") | scores["participant_id"].eq(scores["participant_id"][0])
    scores[keep].to_csv(root / "scores.tsv", sep="\t", index=False)
    table, failures = suggest_next(str(model), root, tmp_path / "out", HERE, 5)
    assert failures == []
    assert (tmp_path / "out" / "suggestions.csv").is_file()
    assert table["rank"].tolist() == [1, 2, 3, 4, 5]
    assert (table["n_readers"] <= 1).all()


def test_scheme_none_trains_without_a_validation(
    cohort: Path, first_patient: Path, quick_pipeline: Path, tmp_path: Path
) -> None:
    text = quick_pipeline.read_text()
    path = tmp_path / "none.yaml"
    path.write_text(text.replace("validate: {", "validate: {scheme: none, "))
    train_model(str(path), cohort, tmp_path / "model", HERE)
    table = pd.read_csv(tmp_path / "model.validation" / "probabilities.csv")
    assert table["probability"].isna().all()
    assert "not validated" in (tmp_path / "model.validation" / "run.json").read_text()
    summary = predict_cohort([str(tmp_path / "model")], first_patient, tmp_path / "out", HERE)
    assert summary.regions == table["participant_id"].eq("sub-0001").sum() > 0


def test_an_output_folder_is_never_taken_from_something_else(
    cohort: Path, run_folder: Path, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(CadError, match="is not a result of `cad predict`"):
        predict_cohort([str(model)], cohort, _copy(cohort, tmp_path), HERE)
    with pytest.raises(CadError, match="result of `cad run`"):
        predict_cohort([str(model)], cohort, run_folder, HERE)


def test_a_study_that_no_model_takes_is_told_what_measuring_met(
    cohort: Path, first_patient: Path, quick_pipeline: Path, tmp_path: Path
) -> None:
    """Not only that the features are absent, but why, and the way out."""
    text = quick_pipeline.read_text().replace("validate: {", "validate: {scheme: none, ")
    scaled = tmp_path / "scaled.yaml"
    scaled.write_text(f"{text}images: {{t2_reference: gland}}\n")
    train_model(str(scaled), cohort, tmp_path / "model", HERE)
    root = _copy(first_patient, tmp_path)
    (mask,) = root.rglob("*_gland.nii.gz")
    mask.unlink()
    with pytest.raises(CadError, match="modalities that the model needs") as caught:
        predict_cohort([str(tmp_path / "model")], root, tmp_path / "run", HERE)
    assert "and this study has none; T2 is to be scaled over the gland" in caught.value.hint
    assert "(add masks/*_gland.nii.gz" in caught.value.hint


def test_a_misspelt_learner_is_refused_before_any_image_is_read(
    cohort: Path, quick_pipeline: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(quick_pipeline.read_text().replace("ProbabilisticSVC", "ProbablisticSVC"))
    with pytest.raises(CadError, match="ProbablisticSVC"):
        run_pipeline(str(path), cohort, tmp_path / "out", HERE)
    assert not list((tmp_path / "out").glob("studies/*"))


def test_benign_is_not_stated_outside_the_training_distribution(
    cohort: Path, model: Path, tmp_path: Path
) -> None:
    root = _copy(cohort, tmp_path)
    for patient in sorted(p.name for p in root.glob("sub-*"))[:2]:
        path = image_path(root / patient, patient, "adc")
        adc = read_volume(path)
        write_volume(path, adc.with_array(adc.array * np.float32(1.6)))
    costs = tmp_path / "costs.yaml"  # benign below .45: far from all training regions P is .4
    costs.write_text(
        "{false_positive: 1, false_negative: 1, refer_negative: 0.45, refer_positive: 0.45}"
    )
    summary = predict_cohort([str(model)], root, tmp_path / "out", HERE, decision=str(costs))
    table = pd.read_csv(tmp_path / "out" / "probabilities.csv")
    outside = table["warnings"].astype(str).str.contains("unlike the training cohort")
    assert (outside & (table["probability"] < 0.45)).any()
    assert not table["warnings"].astype(str).str.contains(";").any()  # which parts warnings
    assert not (outside & (table["decision"] != "refer")).any()
    # The counted decisions are those of the table.
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    for name, column in DECISION_COLUMNS.items():
        found, said = metrics["decisions"][name], table[column].value_counts()
        assert {k: v["n"] for k, v in found["decisions"].items() if v["n"]} == said.to_dict()
        share = said.get("benign", 0) / len(table)
        assert found["decisions"]["benign"]["share"] == pytest.approx(share)
    before = table[table["decision_before_histology"] == "benign"]
    value = metrics["decisions"]["before_histology"]["npv"]["value"] if len(before) else None
    assert value == (pytest.approx(1 - before["truth"].mean()) if len(before) else None)
    numbers = summary.as_dict()["metrics"]
    assert numbers["histology"]["auc"]["value"] != numbers["consensus"]["auc"]["value"]
    json.dumps(numbers, allow_nan=False)


def test_a_reading_of_a_new_case_is_joined_to_the_tool(
    cohort: Path, model: Path, part_of: Callable[..., Path], tmp_path: Path
) -> None:
    cohort = part_of(cohort, tmp_path / "cohort", ["sub-0001", "sub-0002"])
    scores = pd.read_csv(cohort / "scores.tsv", sep="\t", dtype=str, keep_default_na=False)
    first = scores.iloc[0]
    reading = f"{first['participant_id']}/{first['roi_id']}/newcomer=5"
    options = HERE
    out = tmp_path / "out"
    predict_cohort([str(model)], cohort, out, options, readings=[reading])
    table = pd.read_csv(out / "probabilities.csv", dtype={"roi_id": str})
    keys = (table["participant_id"] == first["participant_id"]) & (
        table["roi_id"] == first["roi_id"]
    )
    assert "newcomer=" in table.loc[keys, "with_tool"].item()
    assert not table.loc[~keys, "with_tool"].str.contains("newcomer").any()
    for wrong, words in (
        ("sub-0001/1", "sub-XXX/ROI/READER=SCORE"),
        (reading.replace("=5", "=9"), "9"),
        (f"{first['participant_id']}/nope/r1=3", "not in the cohort"),
        (f"{first['participant_id']}/{first['roi_id']}/{first['reader_id']}=3", "already"),
    ):
        with pytest.raises(CadError, match=words):
            predict_cohort([str(model)], cohort, tmp_path / "x", options, readings=[wrong])


def test_a_prediction_is_measured_by_the_numbers_that_its_pages_state(
    cohort: Path, model: Path, tmp_path: Path
) -> None:
    """Patients, readers with the tool and conformal sets: the model's, none fitted on the run."""
    predict_cohort([str(model)], cohort, tmp_path / "out", HERE)
    table = pd.read_csv(tmp_path / "out" / "probabilities.csv")
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    men = pd.read_csv(tmp_path / "out" / "patients.csv")
    brier = np.mean((men["truth"] - men["probability"]) ** 2)
    level = metrics["patient_level"]
    assert level.get("model") is None
    assert level["n"] == 0 if np.isnan(brier) else level["brier"]["value"] == pytest.approx(brier)
    stored = json.loads((model / "metadata.json").read_text())["combinations"]["readers"]
    assert set(metrics["assisted"]["readers"]) == set(stored)
    for reader, part in metrics["assisted"]["readers"].items():
        score = table["reader_values"].str.extract(rf"{reader}=([\d.]+)")[0].astype(float)
        q, weights = table["probability_images"].clip(1e-15, 1 - 1e-15), stored[reader]
        logit = weights["intercept"] + weights["score"] * score
        order = logit + weights["tool"] * np.log(q / (1 - q))
        known = score.notna()
        assert part["n"] == known.sum()
        expected = auc(table.loc[known, "truth"], order[known])
        assert part["with_tool"]["value"] == pytest.approx(expected)
    level = next(part for part in metrics["conformal"]["levels"] if part["error"] == 0.1)
    assert level["both"] == pytest.approx(table["plausible"].eq("benign or malignant").mean())
    assert level["empty"] == pytest.approx(table["plausible"].eq("neither").mean())
    # Readers are compared with what the images say, not with what counts them already.
    assert metrics["images"]["auc"]["value"] == pytest.approx(
        auc(table["truth"], table["probability_images"])
    )
    # A promise of the training is no result of this run.
    assert metrics["operating_point"] is None
