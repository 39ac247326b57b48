"""Figures, outlines, slices and curves as the pages draw them."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis.extra import numpy as hnp
from PIL import Image

from cad.folders.run_folder import RunFolder
from cad.learning.evaluation.summary import Summary
from cad.run.reports.figures import draw_figures
from cad.run.reports.images import outline, read_images, viewer_data
from cad.run.reports.plots import curve_plot


def drawn(metrics: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return draw_figures(Summary.from_dict(metrics), None)


def test_figures_are_drawn_where_their_arrays_are(finished_run: Path) -> None:
    names = {p.stem for p in (finished_run / "figures").iterdir()}
    assert names == {
        "roc",
        "precision_recall",
        "reliability",
        "decision_curve",
        "null",
        "readers",
        "ceiling",
        "reject",
    }
    metrics = json.loads((finished_run / "metrics.json").read_text())
    assert set(drawn({"histology": metrics["histology"]})) == {
        "roc",
        "precision_recall",
        "reliability",
        "decision_curve",
    }
    assert drawn({}) == {}
    assert f"{metrics['histology']['auc']['value']:.3f}" in drawn(metrics)["roc"][2]


def test_the_readers_ceiling_is_drawn_and_one_reader_has_none(finished_run: Path) -> None:
    metrics = json.loads((finished_run / "metrics.json").read_text())
    part = metrics["ceiling"]
    svg = drawn(metrics)["ceiling"][2]
    for name in (*part["against_others"], "all", "classifier to the mean of all"):
        assert f">{name}<" in svg
    alone = part | {"against_others": {}, "share": part["share"] | {"value": None}}
    assert "ceiling" not in drawn({"ceiling": alone})
    assert "ceiling" not in drawn({"ceiling": None})


def test_figures_fall_back_on_the_readers_and_say_so(finished_run: Path) -> None:
    metrics = json.loads((finished_run / "metrics.json").read_text())
    full = drawn(metrics)
    thin = metrics["histology"] | {"roc": None, "decision_curve": None}
    found = drawn(metrics | {"histology": thin})
    assert full["roc"][1].endswith("Truth: histology.")
    assert found["roc"][1].endswith("Truth: the readers' mean above .5.")
    assert "reader r1" not in found["roc"][2]
    assert found["reliability"][1].endswith("Truth: histology.")
    assert "readers" in full
    assert "readers" not in found


@given(hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)))
def test_an_outline_is_every_edge_between_inside_and_outside(mask: np.ndarray) -> None:
    path = outline(mask)
    pieces = re.findall(r"M(\d+) (\d+)([hv])(\d+)", path)
    padded = np.pad(mask, 1).astype(int)
    edges = sum(int(np.abs(np.diff(padded, axis=a)).sum()) for a in (0, 1))
    assert sum(int(n) for *_, n in pieces) == edges
    # Filled by crossing its vertical pieces from the left, it is the mask again.
    crossed = np.zeros((mask.shape[0], mask.shape[1] + 1), int)
    for x, y, way, n in pieces:
        if way == "v":
            crossed[int(y) : int(y) + int(n), int(x)] += 1
    assert np.array_equal(np.cumsum(crossed, axis=1)[:, :-1] % 2 == 1, mask)


def test_sprites_give_the_values_back(finished_run: Path) -> None:
    images = read_images(RunFolder(finished_run), "sub-P001")
    data = viewer_data(images)
    n, height, width = images.roi_map.shape

    def cells(source: str) -> np.ndarray:
        raw = base64.b64decode(source.removeprefix("data:image/webp;base64,"))
        sheet = np.asarray(Image.open(io.BytesIO(raw)).convert("L"))
        columns = data["columns"]
        return np.array(
            [
                sheet[(z // columns) * height :, (z % columns) * width :][:height, :width]
                for z in range(n)
            ]
        )

    assert np.array_equal(cells(data["labels"]), images.roi_map)
    adc = next(layer for layer in data["layers"] if layer["key"] == "adc")
    grey = cells(adc["source"]).astype(float)
    value = np.where(grey == 0, np.nan, adc["low"] + (grey - 1) / 254 * (adc["high"] - adc["low"]))
    truth = images.layers["adc"]
    assert np.array_equal(np.isnan(value), np.isnan(truth))
    inside = np.nan_to_num((truth >= adc["low"]) & (truth <= adc["high"])).astype(bool)
    step = (adc["high"] - adc["low"]) / 254
    assert np.abs(value - truth)[inside].max() <= step / 2 + 1e-3


def test_a_turned_grid_is_shown_with_right_on_the_left(finished_run: Path, tmp_path: Path) -> None:
    source = finished_run / "studies" / "sub-P001.npz"
    with np.load(source) as archive:
        arrays = dict(archive)
    turned = {
        k: v[:, ::-1, ::-1] if v.ndim == 3 else v for k, v in arrays.items() if k != "direction"
    }
    folder = RunFolder(tmp_path)
    path = folder.study("turned")
    path.parent.mkdir()
    np.savez(path, direction=np.diag([-1.0, -1.0, 1.0]), **turned)
    straight, back = read_images(RunFolder(finished_run), "sub-P001"), read_images(folder, "turned")
    assert np.array_equal(straight.roi_map, back.roi_map)
    assert back.sides == ("R", "L", "A", "P")
    np.savez(path, **turned)
    assert read_images(folder, "turned").sides == (
        "",
        "",
        "",
        "",
    )  # nobody said which side is which


def test_curves_stay_in_their_box_and_fall_back_to_the_signal() -> None:
    times = np.arange(0, 300, 10.0)
    signal = 100 + times
    plot = curve_plot({"times": times, "signal": signal, "concentration": signal * np.nan})
    assert plot is not None
    assert plot.quantity == "signal, a.u."
    assert plot.fit == ""
    places = np.array(plot.points)
    assert (places >= 0).all()
    assert (places <= [300, 130]).all()
    assert np.all(np.diff(places[:, 1]) < 0)  # rising values go up the page
    assert curve_plot({}) is None
    assert curve_plot({"times": times}) is None
