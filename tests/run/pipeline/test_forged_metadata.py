"""Metadata of a bundle that somebody forged, with right hashes, are refused on load."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.run.model.bundle import load_bundle

Change = Callable[[dict[str, Any]], None]


def forged(repository: Path, into: Path, change: Change) -> Path:
    """Copy a released model and change its metadata; its hashes are made right again."""
    model = into / "model"
    shutil.copytree(repository / "models" / "phantom-psvm-biparametric", model)
    path = model / "metadata.json"
    metadata = json.loads(path.read_text(encoding="utf-8"))
    change(metadata)
    path.write_text(json.dumps(metadata), encoding="utf-8")
    hashes = json.loads((model / "hashes.json").read_text())
    assert "metadata.json" in hashes
    hashes["metadata.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (model / "hashes.json").write_text(json.dumps(hashes))
    return model


def set_threshold(side: str, value: Any) -> Change:
    def change(metadata: dict[str, Any]) -> None:
        metadata["operating_point"][side]["threshold"] = value

    return change


def set_estimate(value: float) -> Change:
    def change(metadata: dict[str, Any]) -> None:
        estimate = np.array(metadata["joint"]["estimate"])
        estimate[0, np.flatnonzero(metadata["joint"]["free"][0])[-1]] = value
        metadata["joint"]["estimate"] = estimate.tolist()

    return change


def set_inside(value: Any, *names: Any) -> Change:
    """Return a change that sets an entry within entries, such as an item of a list."""

    def change(metadata: dict[str, Any]) -> None:
        entry: Any = metadata
        for name in names[:-1]:
            entry = entry[name]
        entry[names[-1]] = value

    return change


def set_entry(name: str, value: Any) -> Change:
    def change(metadata: dict[str, Any]) -> None:
        metadata[name] = value

    return change


FORGERIES: list[tuple[str, Change]] = [
    ("a threshold that is no number", set_threshold("malignant", None)),
    ("a threshold above 1", set_threshold("malignant", 2.0)),
    ("a threshold below 0", set_threshold("benign", -0.1)),
    ("a threshold of text", set_threshold("malignant", "x")),
    ("a threshold of a list", set_threshold("malignant", [1])),
    ("thresholds in the wrong order", set_threshold("benign", 0.9)),
    ("a choice that is a number", set_entry("operating_point", 3)),
    ("a joint model that overflows", set_estimate(800.0)),
    ("a joint model that is a list", set_entry("joint", [])),
    ("weights that are a number", set_entry("combinations", 3)),
    ("an image that is nothing", set_entry("modalities", [None])),
    ("images that are a text", set_entry("modalities", "adc")),
    ("a table's roles that are a text", set_entry("table", "x")),
    ("scores of a table that are a text", set_entry("table", {"scores": "r1"})),
    ("scores of a table without a scale", set_entry("table", {"scores": ["r1"]})),
    ("a weight that is a text", set_inside("x", "combinations", "anyone", "intercept")),
    ("a weight that is true", set_inside(True, "combinations", "anyone", "tool")),
    ("a weight that overflows", set_inside(1e300, "combinations", "readers", "r1", "score")),
    ("a training that is a list", set_entry("training", [])),
    ("a training of nobody knows whom", set_entry("training", {})),
    ("simulated that is a text", set_inside("no", "training", "simulated")),
    ("training rows that are a number", set_entry("carries_training_rows", 1)),
    ("typicality that is a list", set_entry("typicality", [])),
    ("medians that are too few", set_inside([1.0], "typicality", "middle")),
    ("limits that are a number", set_inside(3, "typicality", "limits")),
    ("limits below 0", set_inside([-1.0] * 4, "typicality", "limits", "ADC")),
    ("landmarks that fall", set_inside([1.0] * 11, "preparation", "nyul_landmarks")),
    ("site effects of no site", set_inside({"sites": ["A"]}, "preparation", "combat")),
    ("a provenance of one number", set_entry("provenance", {"adc_spacing": [2.0]})),
    ("a provenance of nothing", set_entry("provenance", {"adc_unit": []})),
    ("a recalibration that is a text", set_entry("recalibration", "x")),
    ("participants that are a number", set_entry("recalibrated_on", 3)),
    ("settings that are a list", set_entry("pipeline", [])),
    ("men's choice that is a text", set_entry("man", {"operating_point": "x"})),
]


@pytest.mark.parametrize(("kind", "change"), FORGERIES)
def test_forged_metadata_with_right_hashes_are_refused(
    repository: Path, tmp_path: Path, kind: str, change: Change
) -> None:
    with pytest.raises(CadError, match="the bundle's content is not a model"):
        load_bundle(forged(repository, tmp_path, change))


def test_metadata_that_nobody_changed_are_read(repository: Path, tmp_path: Path) -> None:
    bundle = load_bundle(forged(repository, tmp_path, lambda metadata: None))
    assert bundle.metadata["operating_point"]["malignant"]["threshold"] == 0.6


def test_equal_thresholds_are_thresholds(repository: Path, tmp_path: Path) -> None:
    def change(metadata: dict[str, Any]) -> None:
        for side in ("benign", "malignant"):
            metadata["operating_point"][side]["threshold"] = 1.0

    assert load_bundle(forged(repository, tmp_path, change)).gap <= 1e-8
