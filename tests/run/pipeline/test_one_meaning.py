"""A run shows what it was made from: one model's map, one learner's labels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.base.settings import PipelineSettings, parse_settings
from cad.learning.evaluation.decisions.operating import COSTS_INSTEAD
from cad.run.execution.options import HERE
from cad.run.model.bundle import load_bundle
from cad.run.model.estimator import make_estimator
from cad.run.pipeline import predict_cohort, train_model


def test_a_page_shows_no_map_of_another_model(
    first_patient: Path, model: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(model, tmp_path / "other-model"))
    out, options = tmp_path / "out", HERE
    predict_cohort([str(model)], first_patient, out, options, probability_map=True)
    first = next((out / "report").glob("sub-*.html"))
    assert list((out / "maps").glob("*_probability.nii.gz"))
    assert "Probability map" in first.read_text()
    predict_cohort([str(other)], first_patient, out, options)
    assert not list((out / "maps").glob("*"))
    assert "Model other-model" in first.read_text()
    assert "Probability map" not in first.read_text()


def _trained(cohort: Path, tmp_path: Path, learner: str) -> Path:
    pipeline = tmp_path / "told.yaml"
    pipeline.write_text(
        "name: told\n"
        "features: {families: [intensity], modalities: [t2w, adc]}\n"
        f"learner: {learner}\n"
        "validate: {scheme: none, bootstraps: 0}\n"
    )
    train_model(str(pipeline), cohort, tmp_path / "model", HERE)
    return tmp_path / "model"


@pytest.mark.parametrize(
    "params", ["{C: 1.0, boundary: paper}", "{C: 1.0, eta0: 0.05}", "{C: 1.0, kappa: 0.5}"]
)
def test_a_card_counts_what_its_learner_was_told(cohort: Path, tmp_path: Path, params: str) -> None:
    learner = f"{{name: ProbabilisticSVC, params: {params}}}"
    bundle = load_bundle(_trained(cohort, tmp_path, learner))
    told = bundle.estimator[-1].label_counts_
    assert bundle.metadata["training"]["label_kinds"] == told
    card = (tmp_path / "model" / "README.md").read_text()
    (line,) = [text for text in card.splitlines() if "what the learner was told" in text]
    assert sorted(line.split(": ")[1].split(", ")) == sorted(f"{k} {n}" for k, n in told.items())
    run = json.loads((tmp_path / "model.validation" / "metrics.json").read_text())
    assert run["label_kinds"] == {name: n for name, n in told.items() if n}


def test_a_learner_without_tubes_says_nothing_of_them(cohort: Path, tmp_path: Path) -> None:
    model = _trained(cohort, tmp_path, "{name: RankBoost, params: {}}")
    assert load_bundle(model).metadata["training"]["label_kinds"] is None
    assert "what the learner was told" not in (model / "README.md").read_text()


def test_a_constant_precision_reaches_the_boundary_rule() -> None:
    settings = parse_settings(PipelineSettings, {"name": "x", "labels": {"eta": 0.03}})
    learner = make_estimator(settings)[-1]
    assert (learner.eta0, learner.kappa) == (0.03, 1.0)
    wrong = parse_settings(PipelineSettings, {"name": "x", "learner": {"params": {"eta": 0.05}}})
    with pytest.raises(CadError, match=r"set labels\.eta"):
        make_estimator(wrong)


def test_an_aim_without_histology_falls_back_on_the_costs_and_says_so(
    cohort: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(cohort, tmp_path / "unknown"))
    rois = pd.read_csv(root / "rois.tsv", sep="\t", dtype=str, keep_default_na=False)
    rois.assign(histology="n/a", isup="n/a").to_csv(root / "rois.tsv", sep="\t", index=False)
    pipeline = tmp_path / "aim.yaml"
    pipeline.write_text(
        "name: aim\n"
        "features: {families: [intensity], modalities: [t2w, adc]}\n"
        "learner: {name: ProbabilisticSVC}\n"
        "validate: {bootstraps: 0}\n"
        "decision: {aim_npv: 0.95}\n"
    )
    options, out = HERE, tmp_path / "out"
    train_model(str(pipeline), root, tmp_path / "model", options)
    predict_cohort([str(tmp_path / "model")], root, out, options)
    for run in (tmp_path / "model.validation", out):
        record = json.loads((run / "run.json").read_text())
        assert any(COSTS_INSTEAD in text for text in record["warnings"])
        assert record["decision_thresholds"] == pytest.approx([0.1, 0.6])
