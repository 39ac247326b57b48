"""[W14]'s sets from OpenML: the real library on its own cache, its refusal, and the counts."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import time
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.evidence.experiments import Options, run_experiment
from cad.evidence.experiments.uci import NOT_THERE, SOURCES, fetch_sets, provenance, read_sets
from cad.evidence.experiments.wang2014 import PUBLISHED


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """scikit-learn's data folder, empty, and no way out to the network."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("urllib.request._opener", None)  # it remembers the proxies it first saw
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


def keep(home: Path, data_id: int, description: dict, features: bytes, arff: bytes) -> None:
    """Put OpenML's answers where ``fetch_openml`` keeps them."""
    base = home / "openml" / "openml.org"
    contents = {
        f"api/v1/json/data/{data_id}": json.dumps({"data_set_description": description}).encode(),
        f"api/v1/json/data/features/{data_id}": features,
        f"api/v1/json/data/qualities/{data_id}": b"{}",
        urlparse(description["url"]).path.lstrip("/"): arff,
    }
    for name, content in contents.items():
        path = base / f"{name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content))


def generate(
    home: Path, data_id: int, label: list[str], kind: str = "nominal", target: str = "drinks"
) -> None:
    """A table with one attribute and a class of the given values, in OpenML's formats."""
    x = np.random.default_rng(0).normal(size=len(label)) + (np.array(label) == label[0])
    x = [f"{value:.3f}" for value in x]
    x[-1] = "?"
    types = [("size", "numeric"), ("drinks", kind)]
    feature = [
        {
            "index": str(index),
            "name": name,
            "data_type": data_type,
            "is_target": str(name == target).lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": str(int(name == "size")),
        }
        for index, (name, data_type) in enumerate(types)
    ]
    values = "numeric" if kind == "numeric" else "{" + ",".join(sorted(set(label))) + "}"
    lines = ["@relation t", "@attribute size numeric", f"@attribute drinks {values}", "@data"]
    lines += [f"{number},{value}" for number, value in zip(x, label, strict=True)]
    arff = ("\n".join(lines) + "\n").encode()
    description = {
        "name": "t",
        "version": "1",
        "description": "generated",
        "format": "ARFF",
        "status": "active",
        "url": f"https://www.openml.org/data/v1/download/{data_id}/t.arff",
        "md5_checksum": hashlib.md5(arff, usedforsecurity=False).hexdigest(),
    }
    features = json.dumps({"data_features": {"feature": feature}}).encode()
    keep(home, data_id, description, features, arff)


def from_scikit_learn(home: Path, data_id: int) -> None:
    """OpenML's real answers for iris (61) and zoo (62), which scikit-learn's own tests carry."""
    folder = files("sklearn.datasets.tests.data.openml") / f"id_{data_id}"
    answers = {
        entry.name: gzip.decompress(entry.read_bytes())
        for entry in folder.iterdir()
        if entry.name.endswith(".gz")
    }
    description = json.loads(answers[f"api-v1-jd-{data_id}.json.gz"])["data_set_description"]
    (arff,) = (content for name, content in answers.items() if name.endswith(".arff.gz"))
    keep(home, data_id, description, answers[f"api-v1-jdf-{data_id}.json.gz"], arff)


def test_openmls_own_iris_and_zoo_become_a_folder_of_tables(home, tmp_path) -> None:
    from_scikit_learn(home, 61)
    from_scikit_learn(home, 62)
    arrived, left_out = fetch_sets(tmp_path / "uci", ("iris", "Zoo", "CARDIO"))
    assert arrived == ("Iris", "Zoo")
    assert list(left_out) == ["Cardio"]
    iris, zoo = read_sets(tmp_path / "uci", (), leaking=True)
    assert list(iris.X) == ["sepallength", "sepalwidth", "petallength", "petalwidth"]
    assert (len(iris.y), iris.y.sum()) == (150, 50)
    assert iris.X["petallength"][iris.y == 1].max() < 2.0 < 2.9 < iris.X["petallength"][50:].min()
    assert (len(zoo.y), zoo.y.sum()) == (101, 36)
    assert {"legs", "type", "fins"} < set(zoo.X)
    assert not {"aquatic", "animal", "class"} & set(zoo.X)
    text = provenance(arrived, left_out)
    assert text.startswith("2 of the paper's 34 sets, from OpenML through scikit-learn's fetch_op")
    assert NOT_THERE["Cardio"] in text


def test_counts_decide_what_is_used(home, tmp_path) -> None:
    # Two uploads: the first has another disease as class. Values padded as in OpenML's Post_op.
    generate(home, 1455, ["2"] * 50 + ["1"] * 70)
    generate(home, 1556, ["2"] * 59 + ["1"] * 61)
    generate(home, 34, ["S"] * 24 + ["'A '"] * 1 + ["A"] * 63 + ["I"] * 2)
    generate(home, 8, ["6"] * 88 + ["0.5"] * 100 + ["5"] * 157, kind="numeric")
    generate(home, 55, ["DIE"] * 33 + ["LIVE"] * 122)  # one too many
    generate(home, 183, ["F"] * 1307 + ["M"] * 2870)  # no column Sex
    generate(home, 59, ["b"] * 126 + ["g"] * 225, target="")
    asked = ("Kidney_inflam", "Post_op", "Bupaliver", "Hepatitis", "Abalone", "Ionosphere")
    arrived, left_out = fetch_sets(tmp_path / "uci", asked)
    assert arrived == ("Bupaliver", "Kidney_inflam", "Post_op")
    assert sorted(left_out) == ["Abalone", "Hepatitis", "Ionosphere"]
    assert "no class column" in left_out["Ionosphere"]
    assert "155 rows with 33 positive (DIE) are not the 155 with 32" in left_out["Hepatitis"]
    assert "Sex" in left_out["Abalone"]
    sets = {data.name: data for data in read_sets(tmp_path / "uci", (), leaking=True)}
    assert {n: (len(d.y), int(d.y.sum())) for n, d in sets.items()} == {
        "Kidney_inflam": (120, 59),
        "Post_op": (90, 24),
        "Bupaliver": (345, 88),
    }
    assert sets["Kidney_inflam"].X["size"].isna().tolist() == [False] * 119 + [True]
    manifest = pd.read_csv(tmp_path / "uci" / "manifest.csv", dtype=str).set_index("name")
    assert manifest.loc["Post_op", "negative"] == "A|I"
    assert manifest.loc["Kidney_inflam", "notes"].startswith("OpenML 1556")
    assert not (tmp_path / "uci" / "hepatitis.csv").exists()
    with pytest.raises(CadError, match=r"no set arrived .*DIE.*--data"):
        fetch_sets(tmp_path / "uci", ("Hepatitis",))


def test_the_first_rows_must_be_the_right_ones(home, tmp_path) -> None:
    generate(home, 1458, (["2"] * 44 + ["1"] * 56) * 2)
    with pytest.raises(CadError, match="first 100 rows are not those"):
        fetch_sets(tmp_path / "uci", ("Arcene_train",))


def test_the_experiment_runs_on_what_arrived(home, tmp_path) -> None:
    from_scikit_learn(home, 61)
    out = tmp_path / "out"  # the data folder lies beside
    options = Options(out, repeats=1, datasets=("Iris", "Cardio"))
    page = run_experiment("wang2014-uci", options).read_text()
    assert "There are 1 sets" in page
    assert "- 1 of the paper's 34 sets, from OpenML" in page
    assert f"Left out: Cardio ({NOT_THERE['Cardio']})." in page
    assert run_experiment("wang2014-uci", options).read_text() == page
    kept = sorted(path.name for path in (out / "wang2014-uci-openml").iterdir())
    assert kept == ["Iris-draws-50-1.json", "Iris-honest-1.json", "Iris-with_flaws-1.json"]


def test_without_a_network_the_way_out_is_named_soon(home, tmp_path) -> None:
    start = time.monotonic()
    with pytest.raises(CadError, match=r"OpenML 183 was not reached: .*--data"):
        run_experiment("wang2014-uci", Options(tmp_path))
    assert time.monotonic() - start < 30.0
    assert socket.getdefaulttimeout() is None
    assert not (tmp_path / "uci" / "manifest.csv").exists()


def test_an_unknown_set_is_named_before_anything_is_fetched(home, tmp_path) -> None:
    with pytest.raises(CadError, match=r"unknown data set irish .*Cancer_wbc"):
        fetch_sets(tmp_path, ("Irish",))


def test_every_published_set_is_in_the_table_or_named_as_missing() -> None:
    here = {source.name for source in SOURCES}
    assert here | set(NOT_THERE) == set(PUBLISHED)
    assert not here & set(NOT_THERE)


@pytest.mark.reference
def test_expected_counts_are_those_of_the_uci_files(shared_data, counted) -> None:
    sets = {data.name: data for data in read_sets(shared_data / "uci", (), leaking=True)}
    for source in SOURCES:
        data = sets[source.name]
        assert (source.rows, source.positives) == (len(data.y), data.y.sum()), source.name
        if source.total is not None:
            assert data.X.to_numpy().sum() == source.total
    counted(2 * len(SOURCES), "rows and positive rows of UCI sets")
