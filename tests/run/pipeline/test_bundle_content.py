"""Every rule of a bundle's content is broken once, on a model of four columns."""

from __future__ import annotations

import hashlib
import io
import json
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.errors import CadError
from cad.base.files import parquet_bytes
from cad.base.settings import PipelineSettings
from cad.learners import ProbabilisticSVC
from cad.learning.learners.base import RangeWarning
from cad.mri.columns import columns_of_table, columns_stated
from cad.run.model import bundle as module
from cad.run.model.bundle import (
    FILES,
    HASHES,
    Bundle,
    check_training,
    load_bundle,
    prove,
    save_bundle,
    verify_bundle,
)
from cad.run.model.table_model import save_table_model

FEATURES = ["adc_intensity_mean", "adc_intensity_median", "t2w_intensity_mean", "w"]


def taught(features: int = 4) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, features))
    y = (X[:, 0] + 0.3 * rng.standard_normal(60) > 0).astype(float)
    steps = [("scale", StandardScaler()), ("learner", ProbabilisticSVC())]
    return Pipeline(steps).fit(X, y), X


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    estimator, X = taught()
    training = pd.DataFrame(X, columns=FEATURES)
    metadata = {"features": FEATURES, "versions": "of today"}
    save_bundle(tmp_path / "m", estimator, metadata, "card", X[:5], training)
    return tmp_path / "m"


def contents_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def arrays(**content: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **content)  # type: ignore[arg-type]
    return stream.getvalue()


def sign(folder: Path) -> None:
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}
    (folder / HASHES).write_text(json.dumps(hashes))


def in_memory(**metadata: Any) -> Bundle:
    estimator, X = taught()
    training = pd.DataFrame(X, columns=FEATURES)
    content = {"features": FEATURES, **metadata}
    return Bundle("m", estimator, content, X[:5], np.zeros(5), training, "hash")


def test_files_are_plain_sorted_and_told_by_their_hashes(folder: Path) -> None:
    assert HASHES == "hashes.json"
    assert {path.name for path in folder.iterdir()} == {*FILES, "hashes.json"}
    text = (folder / "metadata.json").read_text()
    metadata = json.loads(text)
    assert metadata["schema_version"] == 1
    assert text == json.dumps(metadata, indent=1, sort_keys=True) + "\n"
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}
    assert (folder / HASHES).read_text() == json.dumps(hashes, indent=1) + "\n"
    loaded = load_bundle(folder)
    assert loaded.hash == hashlib.sha256((folder / HASHES).read_bytes()).hexdigest()
    estimator, X = taught()
    np.testing.assert_array_equal(loaded.reference_X, X[:5])
    np.testing.assert_array_equal(
        loaded.reference_probability, estimator.predict_proba(X[:5])[:, 1]
    )
    assert loaded.gap == verify_bundle(folder) == 0.0
    assert in_memory().gap == 0.0


def test_no_gap_at_all_is_within_no_tolerance(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPRODUCTION_TOLERANCE", 0.0)
    assert load_bundle(folder).gap == 0.0


def test_a_reference_that_is_off_by_a_millionth_is_refused(folder: Path) -> None:
    estimator, X = taught()
    q = estimator.predict_proba(X[:5])[:, 1]
    off = np.array([0, 1e-6, 0, 0, 0])
    (folder / "reference.npz").write_bytes(arrays(X=X[:5], probability=q + off))
    sign(folder)
    with pytest.raises(CadError, match="differ by 1e-06, allowed 1e-08") as refused:
        load_bundle(folder)
    assert refused.value.hint == "the bundle was written with of today"
    gap, training = prove(contents_of(folder))
    assert gap == pytest.approx(1e-6, rel=1e-6)
    assert training.columns.tolist() == FEATURES


def test_what_could_not_be_loaded_or_compared_is_not_written(tmp_path: Path) -> None:
    estimator, X = taught()
    training = pd.DataFrame(X, columns=FEATURES)
    with pytest.raises(CadError):
        save_bundle(tmp_path / "m", estimator, {"features": FEATURES[:3]}, "", X[:5], training)
    metadata = {"features": FEATURES, "auc": float("nan")}
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_bundle(tmp_path / "m", estimator, metadata, "", X[:5], training)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("present", [HASHES, "metadata.json", "thesis.txt"])
def test_a_folder_of_somebody_else_is_not_written_over(tmp_path: Path, present: str) -> None:
    estimator, X = taught()
    other = tmp_path / "other"
    other.mkdir()
    (other / present).write_text("mine")
    training = pd.DataFrame(X, columns=FEATURES)
    with pytest.raises(CadError):
        save_bundle(other, estimator, {"features": FEATURES}, "", X[:5], training)
    assert [path.name for path in other.iterdir()] == [present]


def test_settings_of_a_model_of_images_and_of_a_table() -> None:
    pipeline = PipelineSettings.model_validate({"name": "x"}).model_dump(mode="json")
    of_images = in_memory(pipeline=pipeline)
    assert of_images.pipeline == pipeline
    assert not of_images.of_table
    assert of_images.columns == columns_stated(pipeline)
    for of_table in (in_memory(), in_memory(pipeline=pipeline, table={"label": "y"})):
        assert of_table.of_table
        assert of_table.columns == columns_of_table(FEATURES)
    with pytest.raises(CadError, match="was trained on a table"):
        in_memory().pipeline  # noqa: B018


def test_rows_are_scored_by_name_and_refused_by_row_and_column() -> None:
    bundle = in_memory()
    rows = pd.DataFrame(bundle.training.iloc[:4])
    expected = bundle.estimator.predict_proba(rows.to_numpy())[:, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(bundle.probability(rows[FEATURES[::-1]]), expected)
    with pytest.raises(CadError, match=r"lacks columns of model m: adc_intensity_median, w$"):
        bundle.probability(rows.drop(columns=["adc_intensity_median", "w"]))
    for value in (np.inf, -2e100):
        wrong = rows.copy()
        wrong.iloc[[2, 3], 1] = value
        with pytest.raises(CadError, match=f"row 3 cannot be scored: {FEATURES[1]} = "):
            bundle.probability(wrong)
    largest = pd.concat([bundle.training] * 3, ignore_index=True)
    largest.iloc[0, 1] = 1e100
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RangeWarning)
        assert np.isfinite(bundle.probability(largest)).all()
    with pytest.warns(RangeWarning) as told:
        bundle.probability(bundle.training + 50.0)
    assert Path(told[0].filename) == Path(__file__)


def test_a_missing_value_is_refused_by_row_column_and_way_out() -> None:
    bundle = in_memory()
    rows = bundle.training.iloc[:6].copy()
    assert bundle.unfilled(rows) is None
    rows.iloc[2, 1] = np.nan
    rows.iloc[4, 3] = np.nan
    assert bundle.unfilled(rows) == (2, FEATURES[1])
    with pytest.raises(CadError) as refused:
        bundle.probability(rows)
    assert refused.value.problem == (
        f"row 3 cannot be scored: {FEATURES[1]} is missing, and m fills no missing values"
    )
    assert refused.value.hint.endswith("a pipeline that begins with scikit-learn's SimpleImputer")


def test_a_model_that_fills_missing_values_scores_a_row_that_lacks_one() -> None:
    _, X = taught()
    steps = [("fill", SimpleImputer()), ("learner", ProbabilisticSVC())]
    estimator = Pipeline(steps).fit(X, (X[:, 0] > 0).astype(float))
    bundle = replace(in_memory(), estimator=estimator)
    rows = bundle.training.copy()
    rows.iloc[2, 1] = np.nan
    assert bundle.unfilled(rows) is None
    np.testing.assert_array_equal(
        bundle.probability(rows), estimator.predict_proba(rows.to_numpy())[:, 1]
    )


def test_no_rows_and_a_column_that_was_never_measured_are_unlike_nothing() -> None:
    bundle = in_memory()
    far = bundle.training.assign(w=50.0)
    assert bundle.unlike(bundle.training.iloc[:0]) == []
    assert bundle.unlike(far)[0].startswith("w: ")
    without_one = replace(bundle, training=bundle.training.assign(w=np.nan))
    assert without_one.unlike(far) == []
    without_any = replace(bundle, training=bundle.training * np.nan)
    assert without_any.unlike(far) == []


Change = Callable[[dict[str, bytes]], None]


def reference(X: np.ndarray, probability: np.ndarray) -> Change:
    def change(contents: dict[str, bytes]) -> None:
        contents["reference.npz"] = arrays(X=X, probability=probability)

    return change


def entry(name: str, value: object) -> Change:
    def change(contents: dict[str, bytes]) -> None:
        metadata = json.loads(contents["metadata.json"])
        contents["metadata.json"] = json.dumps({**metadata, name: value}).encode()

    return change


def features(value: object) -> Change:
    return entry("features", value)


def training(change_table: Callable[[pd.DataFrame], pd.DataFrame]) -> Change:
    def change(contents: dict[str, bytes]) -> None:
        table = pd.DataFrame(taught()[1], columns=FEATURES)
        contents["training.parquet"] = parquet_bytes(change_table(table))

    return change


def weights(name: str, value: float) -> Change:
    def change(contents: dict[str, bytes]) -> None:
        with np.load(io.BytesIO(contents["weights.npz"])) as archive:
            stored = dict(archive)
        stored[name] = np.full_like(stored[name], value)
        contents["weights.npz"] = arrays(**stored)

    return change


HALF = np.full(5, 0.5)
ROWS = np.zeros((5, 4))
BROKEN: dict[str, tuple[Change, str]] = {
    "features no list": (features("abcd"), "`features` must be a list of names"),
    "features no names": (features([1, 2, 3, 4]), "`features` must be a list of names"),
    "one feature no name": (features(["a", "b", "c", 4]), "`features` must be a list of names"),
    "a feature twice": (features(["w", "w", "x", "y"]), "two columns are called 'w'"),
    "fewer features": (features(FEATURES[:3]), "takes 4 columns, and would be given 3"),
    "scores without a scale": (entry("table", {"scores": ["r1"]}), "scores and not their scale"),
    "one row": (reference(np.zeros(4), HALF), r"reference rows of shape \(4,\) for 4 features"),
    "three dimensions": (reference(np.zeros((5, 4, 1)), HALF), r"shape \(5, 4, 1\)"),
    "three columns": (reference(np.zeros((5, 3)), HALF), r"shape \(5, 3\) for 4"),
    "whole numbers": (reference(np.zeros((5, 4), int), HALF), "reference rows of shape"),
    "infinity": (reference(np.full((5, 4), np.inf), HALF), "reference rows of shape"),
    "no rows": (reference(np.zeros((0, 4)), HALF[:0]), "0 reference rows"),
    "four of five": (reference(ROWS, HALF[:4]), r"5 reference rows, probabilities of shape \(4,\)"),
    "a column of them": (reference(ROWS, HALF[:, None]), r"probabilities of shape \(5, 1\)"),
    "whole probabilities": (reference(ROWS, np.zeros(5, int)), "5 reference rows"),
    "above one": (reference(ROWS, np.r_[HALF[:4], 1.5]), "not within 0 to 1"),
    "below nought": (reference(ROWS, np.r_[HALF[:4], -0.5]), "not within 0 to 1"),
    "no number": (reference(ROWS, np.r_[HALF[:4], np.nan]), "not within 0 to 1"),
    "a column absent": (training(lambda t: t.drop(columns="w")), "no column 'w'"),
    "words": (training(lambda t: t.assign(w="high")), "column 'w' holds no numbers"),
    # No prediction asks for the variances: that they are none is seen by their declaration.
    "no variance": (weights("steps.0.1.var_", np.nan), "StandardScaler.var_ holds NaN"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_content_that_breaks_a_rule_is_refused(folder: Path, name: str) -> None:
    change, text = BROKEN[name]
    contents = contents_of(folder)
    change(contents)
    with pytest.raises(CadError, match=text):
        prove(contents)


@pytest.mark.parametrize(
    "change",
    [
        reference(ROWS, np.array([0.0, 1.0, 0.5, 0.5, 0.5])),
        reference(ROWS[:1], HALF[:1]),
        training(lambda t: t.assign(w=1)),
        training(lambda t: t.assign(w=True)),
        training(lambda t: t.assign(w=np.arange(60, dtype="uint8"))),
    ],
    ids=["nought and one", "one row", "whole", "yes", "unsigned"],
)
def test_content_at_the_edge_of_the_rules_is_taken(folder: Path, change: Change) -> None:
    contents = contents_of(folder)
    change(contents)
    trained = pd.read_parquet(io.BytesIO(contents["training.parquet"]))[FEATURES].to_numpy(float)
    with np.load(io.BytesIO(contents["reference.npz"])) as stored:
        probability = stored["probability"]
    contents["reference.npz"] = arrays(X=trained[: len(probability)], probability=probability)
    prove(contents)


@pytest.mark.parametrize(
    ("change", "column"),
    [
        (training(lambda t: t.assign(w=t["w"] * 1e6)), "w"),
        (training(lambda t: t.assign(w=t["w"] * (1 + 1e-6))), "w"),
        (features([FEATURES[1], FEATURES[0], *FEATURES[2:]]), FEATURES[1]),
        (reference(np.zeros((5, 4)), np.full(5, 0.5)), FEATURES[0]),
    ],
    ids=["another unit", "a millionth", "exchanged", "other rows"],
)
def test_reference_rows_that_are_not_of_the_training_are_refused(
    folder: Path, change: Change, column: str
) -> None:
    """With right hashes: every new row would be compared with numbers of another unit."""
    contents = contents_of(folder)
    change(contents)
    with pytest.raises(CadError, match=f"of column '{column}' is not in the training table"):
        prove(contents)


def test_missing_reference_values_and_shuffled_columns_are_taken(folder: Path) -> None:
    """A bundle that carries no training rows has the values of each column in another order."""
    contents = contents_of(folder)
    table = pd.read_parquet(io.BytesIO(contents["training.parquet"]))
    rng = np.random.default_rng(1)
    shuffled = table.assign(**{name: rng.permutation(table[name]) for name in FEATURES})
    contents["training.parquet"] = parquet_bytes(shuffled)
    gap, _ = prove(contents)
    assert gap == 0


def test_an_error_of_the_child_names_the_folder_and_the_way_out(folder: Path) -> None:
    contents = contents_of(folder)
    BROKEN["words"][0](contents)
    (folder / "training.parquet").write_bytes(contents["training.parquet"])
    sign(folder)
    with pytest.raises(CadError) as refused:
        load_bundle(folder)
    assert refused.value.problem.startswith("the bundle's content is not a model: the training")
    assert refused.value.hint == "fetch the bundle again from its source, or train again"
    assert refused.value.file == str(folder)


def test_members_are_plain_files_of_bounded_size(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CadError, match="no such model folder"):
        load_bundle(tmp_path / "absent")
    largest = max(path.stat().st_size for path in folder.iterdir())
    monkeypatch.setattr(module, "MAX_ARRAYS", largest)
    assert load_bundle(folder).gap == 0.0
    monkeypatch.setattr(module, "MAX_ARRAYS", largest - 1)
    with pytest.raises(CadError, match="plain file of at most 512 MiB"):
        load_bundle(folder)
    monkeypatch.undo()
    monkeypatch.setattr(module, "MAX_JSON", (folder / "metadata.json").stat().st_size - 1)
    with pytest.raises(CadError, match=r"metadata\.json"):
        load_bundle(folder)
    monkeypatch.undo()
    card = folder / "README.md"
    card.rename(tmp_path / "card")
    card.symlink_to(tmp_path / "card")
    with pytest.raises(CadError, match="a bundle's member is a plain file"):
        load_bundle(folder)
    card.unlink()
    card.mkdir()
    with pytest.raises(CadError, match="a bundle's member is a plain file"):
        load_bundle(folder)


def test_a_changed_member_another_schema_and_an_unfinished_exchange(folder: Path) -> None:
    content = (folder / "README.md").read_bytes()
    (folder / "README.md").write_bytes(content + b" ")
    with pytest.raises(CadError, match="SHA-256 differs"):
        load_bundle(folder)
    (folder / "README.md").write_bytes(content)
    (folder / ".abcd1234.part").write_bytes(b"half")  # of a killed process
    journal = {"new": [*FILES, HASHES], "gone": []}
    (folder / ".commit" / "new").mkdir(parents=True)
    for name in (*FILES, HASHES):
        (folder / name).rename(folder / ".commit" / "new" / name)
    (folder / ".commit" / "journal.json").write_text(json.dumps(journal))
    assert load_bundle(folder).gap == 0.0
    metadata = json.loads((folder / "metadata.json").read_text())
    (folder / "metadata.json").write_text(json.dumps({**metadata, "schema_version": 2}))
    sign(folder)
    with pytest.raises(CadError, match="schema version 2, this program reads 1"):
        load_bundle(folder)
    (folder / "extra.pkl").write_bytes(b"")
    with pytest.raises(CadError, match=r"missing or additional: extra\.pkl"):
        load_bundle(folder)


def test_a_second_model_replaces_the_first(folder: Path) -> None:
    estimator, X = taught()
    before = load_bundle(folder)
    table = pd.DataFrame(X, columns=FEATURES)
    save_bundle(folder, estimator, {"features": FEATURES}, "another", X[:3], table)
    after = load_bundle(folder)
    assert len(after.reference_X) == 3
    assert (folder / "README.md").read_text() == "another"
    assert after.hash != before.hash


def _trained(**columns: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda table: table.assign(**columns)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda table: table.iloc[:0], "has no row"),
        (_trained(w=np.inf), "'w' has inf in row 1"),
        (_trained(w=-2e100), r"'w' has -2e\+100 in row 1"),
        (_trained(w=np.nan), "'w' has no value in row 1, and the model fills no missing"),
        (_trained(y=7.0), "'y' has 7 in row 1: expected a number from 0 to 1"),
        (_trained(y=-1.0), "'y' has -1 in row 1"),
        (_trained(y=np.nan), "'y' has nan in row 1"),
        (_trained(y="malignant"), "'y' holds no numbers"),
        (_trained(truth=2.0), "'truth' has 2 in row 1"),
        (_trained(out_of_fold_probability=1.5), "'out_of_fold_probability' has 1.5 in row 1"),
    ],
)
def test_training_rows_that_no_training_writes_are_refused(
    folder: Path, change: Callable[[pd.DataFrame], pd.DataFrame], problem: str
) -> None:
    """With right hashes. A prediction compares new rows with these rows."""
    change(pd.read_parquet(folder / "training.parquet")).to_parquet(folder / "training.parquet")
    sign(folder)
    with pytest.raises(CadError, match=f"training table.*{problem}"):
        load_bundle(folder)


def five_rows(**columns: object) -> pd.DataFrame:
    """Return a training table of five rows, with some columns replaced or added."""
    return pd.DataFrame(taught()[1][:5], columns=FEATURES).assign(**columns)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"w": [0, 0, 2e100, 0, -np.inf]}, "'w' has 2e+100 in row 3: expected a number of at most"),
        ({"w": [0, 0, np.nan, 0, np.nan]}, "'w' has no value in row 3, and the model fills no"),
        ({"y": [0, 1, 1.5, 1, -2]}, "'y' has 1.5 in row 3: expected a number from 0 to 1"),
        ({"y": [0, 1, -0.5, 1, 2]}, "'y' has -0.5 in row 3: expected a number from 0 to 1"),
        ({"y": [0, 1, np.nan, 1, 0]}, "'y' has nan in row 3: expected a number from 0 to 1"),
        ({"p": [0, np.nan, 1.5, 1, 7]}, "'p' has 1.5 in row 3: expected a number from 0 to 1"),
        ({"y": 1.0, "readers_mean": [0, 1, 1, 1, 2]}, "'readers_mean' has 2 in row 5"),
        ({"truth": 1.0, "readers_mean": "high"}, "'readers_mean' holds no numbers"),
    ],
)
def test_a_wrong_training_value_is_named_by_column_and_row(
    columns: dict[str, object], problem: str
) -> None:
    """The first of several; good columns before the wrong one hide nothing."""
    with pytest.raises(CadError, match=re.escape(problem)):
        check_training(five_rows(**columns), {"features": FEATURES}, taught()[0])


@pytest.mark.parametrize(
    ("columns", "metadata"),
    [
        ({"w": [1e100, -1e100, 0, 0, 0]}, {}),
        ({"y": [0, 1, 0.5, 1, 0], "truth": [0, 1, np.nan, 1, 0]}, {}),
        ({"y": [False, True, True, True, False]}, {}),
        ({"truth": [7, -3, 0, 0, 0]}, {"features": [*FEATURES, "truth"]}),
        ({"w": [0, 0, np.nan, 0, np.nan]}, {"pipeline": {}}),
    ],
    ids=["largest", "ends of the scale", "yes and no", "a feature called truth", "of a pipeline"],
)
def test_training_rows_at_the_edge_of_the_rules_are_taken(
    columns: dict[str, object], metadata: dict[str, Any]
) -> None:
    check_training(five_rows(**columns), {"features": FEATURES, **metadata}, taught()[0])


def test_training_rows_may_lack_what_was_not_known(folder: Path) -> None:
    table = pd.read_parquet(folder / "training.parquet")
    table = table.assign(y=1.0, truth=np.nan, p=np.nan, out_of_fold=np.nan)
    table.to_parquet(folder / "training.parquet")
    sign(folder)
    assert len(load_bundle(folder).training) == 60


def test_a_label_outside_0_to_1_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    _, X = taught()
    frame = pd.DataFrame(X, columns=FEATURES)
    learner = ProbabilisticSVC().fit(X, (X[:, 0] > 0).astype(float))
    labels = np.where(X[:, 0] > 0, 5.0, 1.0)
    with pytest.raises(CadError, match=r"'y' has [15] in row"):
        save_table_model(tmp_path / "m", learner, frame, labels, np.arange(60))
    assert not (tmp_path / "m").exists()
