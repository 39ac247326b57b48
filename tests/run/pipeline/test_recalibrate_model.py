"""``cad recalibrate``: a model fitted to a site, or nothing written."""

from __future__ import annotations

import hashlib
import json
import shutil
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
from cad.folders.run_folder.tables import VENN_ABERS
from cad.learning.evaluation.readers.assisted import Combinations
from cad.run.audit.withdrawal import withdraw
from cad.run.execution.options import HERE
from cad.run.model.bundle import load_bundle, verify_bundle
from cad.run.pipeline import predict_cohort, recalibrate_model
from cad.run.stages.load import load
from cad.run.stages.predict import shared_settings
from cad.run.workflows.recalibrate import recalibrate


@pytest.fixture(scope="module")
def site(cohort: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path, Any]:
    """Recalibrate the released model on 60 men whose cancers are likelier than it says."""
    out = tmp_path_factory.mktemp("site") / "moved"
    bundle = load_bundle(find("models", "phantom-psvm"))
    loaded = load(shared_settings([bundle]), cohort, out.parent / "run", HERE, "predict")
    rng = np.random.default_rng(3)
    z = rng.normal(-1, 1.5, 120)
    truth = (rng.random(120) < expit(1 + 0.7 * z)) * 1.0
    results = pd.DataFrame(
        {"participant_id": np.repeat([f"sub-{i}" for i in range(60)], 2), "probability": expit(z),
         "truth": truth, "isup": np.where(truth == 1, 3.0, 0.0),
         "histology": np.where(truth == 1, "malignant", "benign"),
         "readers_mean": np.clip(truth * 0.4 + 0.3, 0, 1), "zone": "PZ"}
    )  # fmt: skip
    model = {"models": {bundle.name: {"patients_of_training": 2}}}
    judged: Any = SimpleNamespace(results=results, model=model)
    return bundle, recalibrate(bundle, loaded, judged, out), out, read_cohort(cohort)


def test_the_new_bundle_moves_every_probability(site: Any) -> None:
    bundle, said, out, _ = site
    moved = load_bundle(out)
    assert verify_bundle(out) < 1e-12
    part = said["regions"]
    want = expit(part["intercept"] + part["slope"] * logit(bundle.reference_probability))
    assert moved.reference_probability == pytest.approx(want, abs=1e-6)
    X = bundle.reference_X
    assert (moved.estimator.decision_function(X) == bundle.estimator.decision_function(X)).all()
    old = bundle.training["out_of_fold"].to_numpy(float)
    new = moved.training["out_of_fold"].to_numpy(float)
    known = np.isfinite(old)
    assert (np.argsort(old[known]) == np.argsort(new[known])).all()


def test_readers_with_the_tool_say_the_same(site: Any) -> None:
    bundle, _, out, _ = site
    moved = load_bundle(out)
    first, second = (typed(Combinations, b.metadata["combinations"]) for b in (bundle, moved))
    old, new = bundle.reference_probability, moved.reference_probability
    score = np.linspace(0, 1, len(old))
    a, _ = first.probability("nobody", score, old)
    b, _ = second.probability("nobody", score, new)
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
    assert "does not say" in done.holders[str(old)][0]
    assert done.clean == ["phantom-psvm"]
    assert withdraw(tmp_path, "sub-60", models=models[:1]).holders == {}
    assert "sub-7" not in json.dumps(said)


def test_the_card_says_with_what_and_what_it_changed(site: Any) -> None:
    bundle, said, out, _ = site
    card = (out / "README.md").read_text()
    assert "## Recalibration" in card
    assert "SIMULATED men" in card
    assert "2 carry an id of the training" in card
    for line in said["text"]:
        assert line in card
    assert said["men"]["men"] == 60
    old, new = (b.metadata["man"]["model"] for b in (bundle, load_bundle(out)))
    assert new["weight"] == pytest.approx([said["men"]["slope"] * w for w in old["weight"]])


def test_what_is_recalibrated_is_not_recalibrated_again(site: Any, tmp_path: Path) -> None:
    from cad.learning.evaluation.decisions.recalibrate import Recalibration
    from cad.run.model.recalibrated import save_recalibrated

    with pytest.raises(CadError, match="recalibrated already"):
        save_recalibrated(tmp_path / "m", load_bundle(site[2]), Recalibration(0, 1), {}, {})
    assert not (tmp_path / "m").exists()


def test_few_men_leave_nothing(model: Path, cohort: Path, tmp_path: Path) -> None:
    with pytest.raises(CadError, match=r"6 men with histology .* 30 are needed"):
        recalibrate_model(str(model), cohort, tmp_path / "m", HERE)
    assert not (tmp_path / "m").exists()


def test_no_interval_of_the_first_training_stands_beside_a_moved_probability(
    site: Any, first_patient: Path, tmp_path: Path
) -> None:
    """Moving every probability by one map leaves ranks, and with them Venn-Abers' ends."""
    predict_cohort([str(site[2])], first_patient, tmp_path / "run", HERE)
    table = pd.read_csv(tmp_path / "run" / "probabilities.csv")
    assert table["probability"].notna().all()
    assert table[list(VENN_ABERS)].isna().all(axis=None)
