"""Bundles: nothing but data, refused when a byte changed, reproducing their predictions."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.errors import CadError
from cad.base.reading import read_bytes
from cad.learners import LEARNERS, ProbabilisticSVC
from cad.run.model import bundle
from cad.run.model.bundle import FILES, HASHES, load_bundle, save_bundle, verify_bundle
from cad.run.model.state import dump_state, load_state


def _data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 4))
    return X, (X[:, 0] + 0.3 * rng.standard_normal(60) > 0).astype(float)


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_every_learner_survives_the_disk(name: str) -> None:
    X, y = _data()
    estimator = Pipeline([("scale", StandardScaler()), ("learner", LEARNERS[name]())]).fit(X, y)
    structure, arrays = dump_state(estimator)
    again = load_state(json.loads(json.dumps(structure)), arrays)
    new = _data(1)[0]
    np.testing.assert_array_equal(again.predict_proba(new), estimator.predict_proba(new))
    np.testing.assert_array_equal(again.predict(new), estimator.predict(new))


def test_a_callable_kernel_cannot_be_stored() -> None:
    X, y = _data()
    model = ProbabilisticSVC(kernel=lambda a, b: a @ b.T).fit(X, y)
    with pytest.raises(CadError, match="cannot store"):
        dump_state(model)


def test_only_listed_classes_are_constructed() -> None:
    with pytest.raises(CadError, match="not allowed"):
        load_state({"class": "Popen", "state": {}}, {})


def _tampered(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "model"))


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_is_refused(model: Path, tmp_path: Path, name: str) -> None:
    folder = _tampered(model, tmp_path)
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(CadError, match="SHA-256 differs") as caught:
        load_bundle(folder)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", [*FILES, HASHES])
def test_a_missing_truncated_or_additional_member_is_refused(
    model: Path, tmp_path: Path, name: str
) -> None:
    folder = _tampered(model, tmp_path)
    (folder / name).write_bytes((folder / name).read_bytes()[:-20])
    with pytest.raises(CadError):
        load_bundle(folder)
    (folder / name).unlink()
    with pytest.raises(CadError, match="missing or additional"):
        load_bundle(folder)
    shutil.copy(model / name, folder / name)
    (folder / "extra.pkl").write_bytes(b"")
    with pytest.raises(CadError, match=r"extra\.pkl"):
        load_bundle(folder)


def test_what_a_killed_process_left_is_no_member(model: Path, tmp_path: Path) -> None:
    folder = _tampered(model, tmp_path)
    for name in (".abcd1234.part", ".stage-abcd1234/weights.npz", ".lock"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"half")
    assert verify_bundle(folder) < 1e-8
    bundle = load_bundle(folder)
    metadata = {k: v for k, v in bundle.metadata.items() if k != "structure"}
    card = (folder / "README.md").read_text()
    save_bundle(folder, bundle.estimator, metadata, card, bundle.reference_X, bundle.training)
    assert {path.name for path in folder.iterdir()} == {*FILES, HASHES}


def test_a_model_that_was_decided_is_the_model(model: Path, tmp_path: Path) -> None:
    """Killed between the rename that decides and the moves that follow: the new one, whole."""
    folder = _tampered(model, tmp_path)
    for name in (*FILES, HASHES):
        (folder / name).write_bytes(b"of an earlier model")
    shutil.copytree(model, folder / ".commit" / "new")
    journal = {"new": [*FILES, HASHES], "gone": []}
    (folder / ".commit" / "journal.json").write_text(json.dumps(journal))
    (folder / ".commit" / "new" / FILES[0]).replace(folder / FILES[0])  # as far as it came
    assert verify_bundle(folder) < 1e-8
    assert load_bundle(folder).hash == load_bundle(model).hash


def _rewrite(folder: Path, **changes: object) -> None:
    path = folder / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    hashes = json.loads((folder / HASHES).read_text())
    hashes["metadata.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / HASHES).write_text(json.dumps(hashes))


def test_a_later_schema_is_refused_with_the_reason(model: Path, tmp_path: Path) -> None:
    folder = _tampered(model, tmp_path)
    _rewrite(folder, schema_version=99)
    with pytest.raises(CadError, match="schema version 99"):
        load_bundle(folder)


def test_verify_sees_a_model_that_no_longer_predicts_the_same(tmp_path: Path) -> None:
    import pandas as pd

    X, y = _data()
    estimator = Pipeline([("learner", ProbabilisticSVC())]).fit(X, y)
    training = pd.DataFrame(X, columns=list("abcd"))
    save_bundle(tmp_path / "m", estimator, {"features": list("abcd")}, "card", X[:5], training)
    assert verify_bundle(tmp_path / "m") == 0.0
    structure = json.loads((tmp_path / "m" / "metadata.json").read_text())["structure"]
    learner = structure["state"]["steps"]["list"][0]["tuple"][1]["state"]
    learner["scale_"] = {"float": (2.0).hex()}
    _rewrite(tmp_path / "m", structure=structure)
    with pytest.raises(CadError, match="reference predictions differ"):
        verify_bundle(tmp_path / "m")


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    import pandas as pd

    X, y = _data()
    table = pd.DataFrame({"x": y})
    for name in ("a", "b"):
        estimator = Pipeline([("learner", ProbabilisticSVC())]).fit(X, y)
        save_bundle(tmp_path / name, estimator, {"features": list("abcd")}, "card", X, table)
    for file in (*FILES, HASHES):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_every_released_model_verifies(repository: Path) -> None:
    models = sorted((repository / "models").iterdir())
    assert [m.name for m in models] == ["phantom-psvm", "phantom-psvm-biparametric"]
    for model in models:
        assert verify_bundle(model) <= 1e-8
        card = (model / "README.md").read_text()
        assert "Trained on simulated patients" in card
        assert "Research use only" in card


def test_training_rows_are_dropped_or_the_learner_refused(
    cohort: Path, quick_pipeline: Path, tmp_path: Path
) -> None:
    import pandas as pd

    from cad.run.execution.options import HERE
    from cad.run.pipeline import train_model

    text = quick_pipeline.read_text().replace("validate: {", "validate: {scheme: none, ")
    kernel = tmp_path / "kernel.yaml"
    kernel.write_text(text.replace("learner: {", "learner: {training_rows: drop, "))
    with pytest.raises(CadError, match="support vectors"):
        train_model(str(kernel), cohort, tmp_path / "kernel", HERE)
    assert not (tmp_path / "kernel").exists()

    stumps = tmp_path / "stumps.yaml"
    learner = "learner: {training_rows: drop, name: RankBoost}"
    stumps.write_text("\n".join([*text.splitlines()[:3], learner, "validate: {scheme: none}"]))
    train_model(str(stumps), cohort, tmp_path / "stumps", HERE)
    bundle = load_bundle(tmp_path / "stumps")
    assert bundle.metadata["carries_training_rows"] is False
    assert verify_bundle(tmp_path / "stumps") <= 1e-12
    for name in bundle.features:  # sorted columns: distributions stay, rows are gone
        column = bundle.training[name].dropna()
        assert column.is_monotonic_increasing
    measured = pd.read_parquet(tmp_path / "stumps.validation" / "features.parquet")
    known = measured[bundle.features].dropna().round(9)
    held = bundle.training[bundle.features].round(9)
    assert known.merge(held, how="inner", on=bundle.features).empty


def test_what_was_hashed_is_what_is_used(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is exchanged after it was read changes nothing: none is read again."""
    out = tmp_path / "model"
    shutil.copytree(model, out)
    expected = load_bundle(model)

    def exchanged(path: Path, limit: int) -> bytes:
        content = read_bytes(path, limit)
        path.write_bytes(b"exchanged")
        return content

    monkeypatch.setattr(bundle, "read_bytes", exchanged)
    found = load_bundle(out)
    assert {path.read_bytes() for path in out.iterdir()} == {b"exchanged"}
    assert found.metadata == expected.metadata
    pd.testing.assert_frame_equal(found.training, expected.training)
