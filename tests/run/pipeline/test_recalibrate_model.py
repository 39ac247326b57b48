"""``cad recalibrate``: a model fitted to a site, or nothing written."""

from __future__ import annotations

import hashlib
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
from cad.base.files import typed
from cad.base.share import find
from cad.folders.cohort import read_cohort
from cad.learning.evaluation.readers.assisted import Combinations
from cad.run.audit.withdrawal import withdraw
from cad.run.execution.options import HERE
from cad.run.model.bundle import load_bundle, verify_bundle
from cad.run.pipeline import recalibrate_model
from cad.run.stages.load import load
from cad.run.stages.predict import shared_settings
from cad.run.stages.risk import decides_on_real_men, evidence, joint_of
from cad.run.workflows.recalibrate import recalibrate


@pytest.fixture(scope="module")
def site(
    model: Path, cohort: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any, Path, Any]:
    """Recalibrate a model on 60 men whose cancers are likelier than it says."""
    out = tmp_path_factory.mktemp("site") / "moved"
    bundle = load_bundle(model)
    loaded = load(shared_settings([bundle]), cohort, out.parent / "run", HERE, "predict")
    rng = np.random.default_rng(3)
    z = rng.normal(-1, 1.5, 120)
    truth = (rng.random(120) < expit(1 + 0.7 * z)) * 1.0
    results = pd.DataFrame(
        {
            "participant_id": np.repeat([f"sub-{i}" for i in range(60)], 2),
            "belief": expit(z),
            "truth": truth,
            "readers_mean": np.clip(truth * 0.4 + 0.3, 0, 1),
            "age": np.nan,
            "psa_density": np.nan,
            "man_truth": np.nan,
        }
    )
    described = {"models": {bundle.name: {"patients_of_training": 2}}}
    judged: Any = SimpleNamespace(results=results, model=described)
    return bundle, recalibrate(bundle, loaded, judged, out), out, read_cohort(cohort)


def test_the_new_bundle_moves_probabilities_and_no_belief(site: Any) -> None:
    bundle, report, out, _ = site
    moved = load_bundle(out)
    assert verify_bundle(out) < 1e-12
    np.testing.assert_array_equal(moved.reference_probability, bundle.reference_probability)
    np.testing.assert_array_equal(
        moved.training["out_of_fold"].to_numpy(float),
        bundle.training["out_of_fold"].to_numpy(float),
    )
    old, new = (joint_of(b, None) for b in (bundle, moved))
    assert old is not None
    assert new is not None
    # Cancers are likelier there than the model says: every probability rises.
    before, after = (report["regions"][moment] for moment in ("before", "after"))
    assert before["intercept"] > 0.5
    assert abs(after["intercept"]) < 0.25
    assert after["brier"] < before["brier"]
    assert new.taught.men == 60
    data, _ = evidence(bundle.training, bundle.training["out_of_fold"].to_numpy(float))
    first, second = (joint.predict(data) for joint in (old, new))
    assert (second.probability_images > first.probability_images).mean() > 0.9


def test_readers_with_the_tool_move_as_its_probabilities_do(site: Any) -> None:
    bundle, _, out, _ = site
    moved = load_bundle(out)
    first, second = (typed(Combinations, b.metadata["combinations"]) for b in (bundle, moved))
    old, new = (joint_of(b, None) for b in (bundle, moved))
    slope = new.estimate[0, 1] / old.estimate[0, 1]
    intercept = new.estimate[0, 0] - slope * old.estimate[0, 0]
    q = np.linspace(0.05, 0.9, 16)
    score = np.linspace(0, 1, 16)
    a, _ = first.probability("nobody", score, q)
    b, _ = second.probability("nobody", score, expit(intercept + slope * logit(q)))
    assert b == pytest.approx(a, abs=1e-6)


def test_a_removal_names_the_model_that_was_fitted_to_the_patient(
    site: Any, tmp_path: Path
) -> None:
    _, said, out, _ = site
    (tmp_path / "participants.tsv").write_text("participant_id\nsub-7\n")
    (tmp_path / "sub-7").mkdir()
    old = tmp_path / "old"
    shutil.copytree(find("models", "phantom-psvm"), old)
    metadata = json.loads((old / "metadata.json").read_text()) | {"recalibration": said}
    (old / "metadata.json").write_text(json.dumps(metadata))
    hashes = json.loads((old / "hashes.json").read_text())
    hashes["metadata.json"] = hashlib.sha256((old / "metadata.json").read_bytes()).hexdigest()
    (old / "hashes.json").write_text(json.dumps(hashes))
    models = [str(out), str(old), "phantom-psvm"]
    done = withdraw(tmp_path, "sub-7", models=models)
    assert done.holders[str(out)] == ["recalibrated with the patient"]
    assert "did not note with whom" in done.holders[str(old)][0]
    assert done.clean == ["phantom-psvm"]
    assert withdraw(tmp_path, "sub-60", models=models[:1]).holders == {}
    assert "sub-7" not in json.dumps(said)


def test_the_card_says_with_what_and_what_it_changed(site: Any) -> None:
    _, report, out, _ = site
    card = (out / "README.md").read_text()
    assert "## Recalibration" in card
    assert "SIMULATED men" in card
    assert "2 carry an id of the training" in card
    for line in report["text"]:
        assert line in card
    assert report["men"]["men"] == 60


def test_what_is_recalibrated_is_not_recalibrated_again(
    site: Any, cohort: Path, tmp_path: Path
) -> None:
    bundle = load_bundle(site[2])
    loaded = load(shared_settings([bundle]), cohort, tmp_path / "run", HERE, "predict")
    judged: Any = SimpleNamespace(results=pd.DataFrame(), model={})
    with pytest.raises(CadError, match="recalibrated already"):
        recalibrate(bundle, loaded, judged, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_few_men_leave_nothing(model: Path, cohort: Path, tmp_path: Path) -> None:
    with pytest.raises(CadError, match=r"6 men with histology .* 30 are needed"):
        recalibrate_model(str(model), cohort, tmp_path / "m", HERE)
    assert not (tmp_path / "m").exists()


def test_simulated_men_do_not_lift_what_a_simulated_training_forbids(site: Any) -> None:
    bundle, _, out, _ = site
    assert not decides_on_real_men(bundle)
    moved = load_bundle(out)
    assert not decides_on_real_men(moved)
    site_of_real_men = {**moved.metadata["recalibration"], "simulated": False}
    real = replace(moved, metadata={**moved.metadata, "recalibration": site_of_real_men})
    assert decides_on_real_men(real)
