"""Forged models with right hashes: each is refused in words, in whatever command meets it.

What a stored class declares (``stored``) is attacked attribute by attribute: other kinds, shapes,
lengths, NaN, infinity, places outside, loops. A model that is not refused would have to be a sound
one: then it must reproduce its references and give probabilities.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.errors import CadError
from cad.base.processes import limited
from cad.base.share import shared
from cad.learning.evaluation.folds.ask import positive_probability
from cad.learning.learners import LEARNERS
from cad.learning.learners.rivals import rival_learners
from cad.learning.stored import check_trees, declared_by
from cad.mri.features.harmonise import CombatHarmoniser
from cad.run.api import save_model
from cad.run.model.bundle import FILES, HASHES, load_bundle, save_bundle
from cad.run.model.fold_features import Preparation
from cad.run.model.state import _LIBRARY, _classes
from cad.run.tables import predict_table

COLUMNS = ["a", "b", "c"]
LEARNED = (
    "SoftExtraTrees",
    "ProbabilisticEnsemble",
    "boosting on soft labels",
    "ProbabilisticSVC",
    "RankBoost",
    "logistic on soft labels",
    "kernel ridge on p",
    "OPAUC",
    "SVM, Platt on soft targets",
)
Arrays = dict[str, np.ndarray]


def made(folder: Path, learner: str) -> Path:
    """Write a small model of a table."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(30, 3)), columns=COLUMNS)
    p = np.clip(1 / (1 + np.exp(-2 * X["a"])), 0, 1).round(2).to_numpy()
    y = (p > 0.5).astype(float) if learner in ("RankBoost", "OPAUC") else p
    chosen = LEARNERS[learner]() if learner in LEARNERS else rival_learners()[learner]
    front = [("impute", SimpleImputer(keep_empty_features=True)), ("scale", StandardScaler())]
    pipeline = Pipeline([*front, ("learner", chosen)])
    pipeline.fit(X, y)
    save_model(folder, pipeline, X, y, np.arange(30))
    return folder


def forged(model: Path, into: Path, change: Callable[[Arrays, Any], None]) -> Path:
    """Copy a model with changed arrays or structure, and with hashes that say it is whole."""
    shutil.copytree(model, into)
    with np.load(into / "weights.npz") as archive:
        arrays = dict(archive)
    metadata = json.loads((into / "metadata.json").read_text())
    change(arrays, metadata["structure"])
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    (into / "weights.npz").write_bytes(stream.getvalue())
    (into / "metadata.json").write_text(json.dumps(metadata))
    return sealed(into)


def sealed(folder: Path) -> Path:
    """Write the hashes that the files have now."""
    hashes = {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in FILES}
    (folder / HASHES).write_text(json.dumps(hashes))
    return folder


VALUES = (("NaN", np.nan), ("infinite", np.inf), ("huge", 1e308), ("far below zero", -1e300))


def forgeries(arrays: Arrays) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield every forgery of every array: how, the array's name, and what takes its place."""
    for name, array in arrays.items():
        if array.dtype.kind not in "fiu":
            continue
        first, last = array.copy(), array.copy()
        for kind, value in VALUES:
            if array.dtype.kind == "f" and array.size:
                changed = array.copy()
                changed.flat[-1] = value
                yield kind, name, changed
        yield "empty", name, array[:0] if array.ndim else np.zeros(0)
        yield "one more axis", name, array[None]
        yield "texts", name, array.astype(str)
        yield "complex", name, array.astype(complex)
        yield "the other order of bytes", name, array.astype(array.dtype.newbyteorder())
        if array.ndim:
            yield "one more", name, np.concatenate([array, array[-1:]])
            yield "one less", name, array[:-1]
        if array.dtype.kind in "iu" and array.ndim:
            for place in (-1, -(2**31), len(array), 2**31 - 1):
                first, last = array.copy(), array.copy()
                first.flat[0], last.flat[-1] = place, place
                yield f"place {place} first", name, first
                yield f"place {place} last", name, last
            yield "wide", name, array.astype(np.int64 if array.itemsize < 8 else np.int32)
            yield "all the first", name, np.zeros_like(array)
            yield "turned round", name, array[::-1].copy()


# Of these nothing is computed: classes may have any names.
LOOKED_AT = ("classes_", "losses_", "n_samples_seen_")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of every kind that stores arrays of its own; read only."""
    root = tmp_path_factory.mktemp("models")
    return {name: made(root / str(k), name) for k, name in enumerate(LEARNED)}


def test_four_hundred_forgeries_are_refused_or_sound(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In this process, so that a fault in compiled code would end it: none may get so far."""
    monkeypatch.setitem(limited._state, "limited", True)
    count, sound, refused = 0, [], []
    for learner, model in models.items():
        with np.load(model / "weights.npz") as archive:
            arrays = dict(archive)
        for number, (kind, name, array) in enumerate(forgeries(arrays)):

            def change(all_arrays: Arrays, _: Any, name: str = name, new: Any = array) -> None:
                all_arrays[name] = new

            folder = forged(model, tmp_path / f"{learner}-{number}", change)
            count += 1
            try:
                bundle = load_bundle(folder)
            except CadError as error:
                refused.append(str(folder) in str(error))
            else:
                if not name.endswith(LOOKED_AT):
                    sound.append(f"{learner} {name}: {kind}")
                q = positive_probability(bundle.estimator, np.eye(3) * 1e3)
                assert ((q >= 0) & (q <= 1)).all(), f"{learner} {name} {kind}"
            shutil.rmtree(folder)
    assert count >= 400, count
    assert all(refused)  # each names its folder
    # A forged value is accepted only in a part of a model that no reference row uses. A forged
    # place in a tree, shape or type of an array is never accepted.
    kinds = ("place -", "empty", "NaN", "infinite", "texts", "axis", "complex", "order of bytes")
    assert [text for text in sound if any(kind in text for kind in kinds)] == []


def loop(arrays: Arrays, learner: Any) -> None:
    name = next(key for key in arrays if key.endswith("left_"))
    root = 0
    arrays[name][root], arrays[name.replace("left_", "right_")][root] = 1, 2
    arrays[name][1] = arrays[name.replace("left_", "right_")][1] = root


def beyond(arrays: Arrays, learner: Any) -> None:
    name = next(key for key in arrays if key.endswith("features_"))
    arrays[name][:] = 3  # one column more than a row has: the next man's first


def not_a_number(arrays: Arrays, learner: Any) -> None:
    name = next(key for key in arrays if key.endswith("values_"))
    arrays[name][:] = np.nan


@pytest.mark.parametrize("change", [loop, beyond, not_a_number])
@pytest.mark.parametrize("command", ["verify", "predict", "show", "predict images", "recalibrate"])
def test_commands_refuse_forged_trees(
    models: dict[str, Path],
    tmp_path: Path,
    command: str,
    change: Callable[..., None],
    main_here: Callable[..., Any],
):
    """Neither a signal, a loop without end nor another man's value: a refusal, and no file."""
    folder = forged(models["SoftExtraTrees"], tmp_path / "model", change)
    table = tmp_path / "rows.csv"
    table.write_text("participant_id,a,b,c\n1,.5,.5,.5\n2,.1,.1,.1\n")
    out = tmp_path / "out.csv"
    words = ["model", command, folder]
    if command == "predict":
        words = ["table", "predict", table, "--model", folder, "-o", out]
    if command == "predict images":
        words = ["predict", "--cohort", shared("sample_data"), "--model", folder, "-o", out]
    if command == "recalibrate":
        words = ["recalibrate", "--cohort", shared("sample_data"), "--model", folder, "-o", out]
    ended = main_here(*words)
    assert ended.returncode == 2, ended.stdout
    assert "not a model" in ended.stderr.replace("\n", " ")
    assert not out.exists()


def test_a_fault_in_the_child_is_told_by_its_name(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
):
    """A fault that no check has foreseen ends the child and not the program."""
    from cad.run.model import bundle

    monkeypatch.setattr(bundle, "prove", _ends_by_a_fault)
    with pytest.raises(CadError, match="SIGSEGV"):
        load_bundle(models["OPAUC"])


def _ends_by_a_fault(contents: dict[str, bytes]) -> None:
    import ctypes

    ctypes.string_at(0)


def structure_of(model: Path) -> Any:
    return json.loads((model / "metadata.json").read_text())["structure"]


def learner_state(structure: Any) -> dict[str, Any]:
    return structure["state"]["steps"]["list"][-1]["tuple"][1]["state"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("predict_proba", "text"),
        ("_probability", None),
        ("n_features_in_", 4),
        ("n_features_in_", 0),
        ("n_features_in_", 2**70),
        ("n_features_in_", "3"),
        ("classes_", None),
        ("roots_", {"float": (0.0).hex()}),
        ("trees", {"class": "Pipeline", "state": {}}),
        ("min_leaf", {"dict": {"a": {"class": "OPAUC", "state": {}}}}),
        ("values_", {"float": float("nan").hex()}),
        ("__class__", "OPAUC"),
    ],
)
def test_another_attribute_is_refused(models: dict[str, Path], tmp_path: Path, key, value):
    def change(_: Arrays, structure: Any) -> None:
        learner_state(structure)[key] = value

    with pytest.raises(CadError, match="not a model"):
        load_bundle(forged(models["SoftExtraTrees"], tmp_path / "model", change))


@pytest.mark.parametrize("kind", ["NaN", "outside", "none", "columns", "shape", "words"])
def test_references_that_are_none_are_refused(models: dict[str, Path], tmp_path: Path, kind: str):
    folder = Path(shutil.copytree(models["OPAUC"], tmp_path / "model"))
    with np.load(folder / "reference.npz") as archive:
        X, probability = archive["X"], archive["probability"]
    if kind == "NaN":
        probability[:] = np.nan
    if kind == "outside":
        probability[0] = 1.5
    if kind == "none":
        X, probability = X[:0], probability[:0]
    if kind == "columns":
        X = X[:, :2]
    if kind == "shape":
        probability = probability[:, None]
    if kind == "words":
        X = X.astype(str)
    stream = io.BytesIO()
    np.savez(stream, X=X, probability=probability)
    (folder / "reference.npz").write_bytes(stream.getvalue())
    with pytest.raises(CadError, match="not a model"):
        load_bundle(sealed(folder))


def test_every_class_of_a_bundle_declares_what_it_stores():
    from importlib import import_module

    for name, module in _classes().items():
        cls = getattr(import_module(module), name)
        if name in ("Pipeline", "SemiSupervisedPipeline"):
            continue
        declared = declared_by(cls) or _LIBRARY.get(name)
        assert declared, f"{name} stores arrays and declares nothing"


def test_every_learner_is_proved_when_it_is_loaded():
    assert set(LEARNERS) <= set(_classes())


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([0, 1, 2], [2, 1, 2]),
        ([1, 0, 2], [2, 1, 2]),
        ([1, 1, 2], [3, 1, 2]),
        ([-1, 1, 2], [2, 1, 2]),
    ],
)
def test_a_tree_that_does_not_end_is_seen(left: list[int], right: list[int]):
    with pytest.raises(CadError):
        check_trees(np.array([0]), np.array(left), np.array(right))


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e200])
def test_no_row_gets_a_number_that_is_no_probability(models: dict[str, Path], value: float):
    rows = pd.DataFrame([[0.5, 0.5, 0.5], [value, 0.1, 0.1], [np.nan, 0.1, 0.1]], columns=COLUMNS)
    for model in models.values():
        bundle = load_bundle(model)
        assert np.isfinite(bundle.probability(rows.drop(1))).all()
        with pytest.raises(CadError, match=r"row 2 cannot be scored: a = .*(inf|1e\+200)"):
            bundle.probability(rows)


@pytest.mark.parametrize("value", ["inf", "-inf", "1e200", "1e999"])
def test_a_table_with_a_value_nobody_can_compute_with_is_refused(
    models: dict[str, Path], tmp_path: Path, value: str
):
    table, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    table.write_text(f"participant_id,a,b,c\n1,.5,.5,.5\n2,{value},.1,.1\n")
    with pytest.raises(CadError, match="row 3"):
        predict_table(table, models["OPAUC"], out)
    assert not out.exists()


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.1, 1.1])
def test_whoever_asks_an_estimator_gets_probabilities(value: float):
    class Forged:
        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            return np.array([[0.5, 0.5], [1.0 - value, value]])

    with pytest.raises(CadError, match="1 of 2 rows get no probability"):
        positive_probability(Forged(), np.zeros((2, 1)))


@pytest.fixture
def of_two_sites(tmp_path: Path) -> Path:
    """A model whose site effects were removed before its learner."""
    rng = np.random.default_rng(4)
    sites = np.repeat(["A", "B"], 20)
    X = pd.DataFrame(rng.normal(size=(40, 3)), columns=COLUMNS)
    X.loc[sites == "B"] = 3 + 2 * X.loc[sites == "B"]
    y = (X["a"].to_numpy() + rng.normal(size=40) > 1.5).astype(float)
    X.loc[7, "b"] = np.nan
    medians = X.median().to_numpy()
    filled = X.fillna(X.median()).to_numpy()
    harmoniser = CombatHarmoniser(unseen="keep").fit(filled, site=sites)
    preparation = Preparation(unstable=("c",), harmoniser=harmoniser, medians=medians)
    rows = preparation.adjust(X, sites)
    front = [("impute", SimpleImputer(keep_empty_features=True)), ("scale", StandardScaler())]
    estimator = Pipeline([*front, ("learner", LEARNERS["ProbabilisticSVC"]())]).fit(rows, y)
    metadata = {"features": COLUMNS, "preparation": {**preparation.as_dict(), "text": []}}
    save_bundle(tmp_path / "true", estimator, metadata, "card", rows[5:30], X.assign(y=y))
    return tmp_path / "true"


def test_a_harmonised_model_is_loaded(of_two_sites: Path):
    bundle = load_bundle(of_two_sites)
    assert bundle.gap == 0
    assert np.isnan(bundle.reference_X[2, 1])
    assert np.isnan(bundle.reference_X[:, 2]).all()


def exchange_columns(table: pd.DataFrame, metadata: dict[str, Any]) -> pd.DataFrame:
    return table.assign(a=table["b"], b=table["a"].fillna(0))


def change_a_unit(table: pd.DataFrame, metadata: dict[str, Any]) -> pd.DataFrame:
    return table.assign(a=1000 * table["a"])


def move_a_site(table: pd.DataFrame, metadata: dict[str, Any]) -> pd.DataFrame:
    metadata["preparation"]["combat"]["shift"][1][0] += 0.01
    return table


def flatten_a_site(table: pd.DataFrame, metadata: dict[str, Any]) -> pd.DataFrame:
    metadata["preparation"]["combat"]["scale"][0][0] = 0.0
    return table


def cut_the_medians(table: pd.DataFrame, metadata: dict[str, Any]) -> pd.DataFrame:
    del metadata["preparation"]["combat"]["medians"][0]
    return table


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (exchange_columns, "of column 'a' is not in the training table"),
        (change_a_unit, "of column 'a' is not in the training table"),
        (move_a_site, "of column 'a' is not in the training table"),
        (flatten_a_site, "'scale' of the site effects"),
        (cut_the_medians, "'medians' of the site effects"),
    ],
)
def test_a_forged_harmonised_model_is_refused(
    of_two_sites: Path, change: Callable[..., pd.DataFrame], words: str
):
    """Harmonised reference rows differ from the training table, and still belong to it."""
    table = pd.read_parquet(of_two_sites / "training.parquet")
    path = of_two_sites / "metadata.json"
    metadata = json.loads(path.read_text())
    change(table, metadata).to_parquet(of_two_sites / "training.parquet")
    path.write_text(json.dumps(metadata))
    with pytest.raises(CadError, match=words):
        load_bundle(sealed(of_two_sites))


def test_a_whole_bundle_of_another_author_is_loaded(models: dict[str, Path], tmp_path: Path):
    """Hashes prove no author: whoever changes the card makes them right again."""
    folder = Path(shutil.copytree(models["OPAUC"], tmp_path / "model"))
    (folder / "README.md").write_text("A card of somebody else.\n")
    assert load_bundle(sealed(folder)).gap <= 1e-8


def test_a_bundle_that_is_consistent_and_wrong_is_loaded(models: dict[str, Path], tmp_path: Path):
    """Weights and reference predictions of a model with reversed labels: the check agrees."""
    true = models["ProbabilisticSVC"]
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(30, 3)), columns=COLUMNS)
    p = np.clip(1 / (1 + np.exp(2 * X["a"])), 0, 1).round(2).to_numpy()
    front = [("impute", SimpleImputer(keep_empty_features=True)), ("scale", StandardScaler())]
    learner = Pipeline([*front, ("learner", LEARNERS["ProbabilisticSVC"]())]).fit(X, p)
    save_model(tmp_path / "reversed", learner, X, p, np.arange(30))
    folder = Path(shutil.copytree(true, tmp_path / "model"))
    metadata = json.loads((folder / "metadata.json").read_text())
    metadata["structure"] = structure_of(tmp_path / "reversed")
    (folder / "metadata.json").write_text(json.dumps(metadata))
    for name in ("weights.npz", "reference.npz"):
        shutil.copy(tmp_path / "reversed" / name, folder / name)
    wrong = load_bundle(sealed(folder))
    assert wrong.gap <= 1e-8
    row = pd.DataFrame([[2.0, 0.0, 0.0]], columns=COLUMNS)
    assert wrong.probability(row)[0] < 0.5 < load_bundle(true).probability(row)[0]
