"""Figures, outlines, slices and curves as the pages draw them."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from PIL import Image

from cad.folders.run_folder import RunFolder
from cad.learning.evaluation.summary import Summary
from cad.run.reports.figures import draw_figures
from cad.run.reports.images import (
    LEAST_SIDE_MM,
    StudyImages,
    key_images,
    outline,
    read_images,
    viewer_data,
)
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


def framed(
    gland: tuple[int, int, int, int] | None, region: tuple[int, int], b_value: float | None = None
) -> StudyImages:
    """A study of two slices with a gland (rows, columns) and a region of 6 x 6 voxels."""
    shape = (2, 160, 200)
    spacing = (0.5, 0.6)
    labels = np.zeros(shape, np.uint8)
    labels[0, region[0] : region[0] + 6, region[1] : region[1] + 6] = 1
    frame = None
    image = np.zeros(shape, np.float32)
    if gland is not None:
        frame = np.zeros(shape, bool)
        frame[:, gland[0] : gland[1], gland[2] : gland[3]] = True
        image[frame] = 1.0
    image[labels > 0] = 1.0
    meta = {"window": {"t2w": [0, 1], "hbv": [0, 1]}, "b_value": b_value}
    sides = ("R", "L", "A", "P")
    layers = {"t2w": image, "hbv": image}
    z_mm = np.arange(2.0)
    return StudyImages(layers, labels, spacing, z_mm, sides, {}, meta, frame=frame)


@pytest.mark.parametrize(
    ("gland", "region"),
    [
        ((40, 110, 50, 150), (60, 55)),  # a region on the right, whose middle is 22 mm from that
        ((40, 110, 50, 150), (104, 142)),
        ((40, 110, 50, 150), (112, 160)),  # outside the gland
        ((70, 90, 90, 110), (80, 100)),  # a small gland: the window is no smaller than 45 mm
        ((0, 160, 0, 200), (0, 0)),
    ],
)
def test_a_picture_shows_the_region_and_both_sides_of_the_gland(
    gland: tuple[int, int, int, int], region: tuple[int, int]
) -> None:
    images = framed(gland, region)
    shown = key_images(images, 1, ("t2w",))[0]
    assert shown.width >= LEAST_SIDE_MM
    assert shown.height >= LEAST_SIDE_MM
    raw = base64.b64decode(shown.source.partition(",")[2])
    pixels = np.asarray(Image.open(io.BytesIO(raw)).convert("L")) > 127
    assert images.frame is not None
    wanted = (images.frame[0] | (images.roi_map[0] > 0)).sum()
    # Lossy compression moves an edge by a pixel here and there.
    assert pixels.sum() == pytest.approx(wanted, rel=0.02)


def test_a_picture_without_a_frame_is_one_around_the_region() -> None:
    shown = key_images(framed(None, (60, 80)), 1, ("t2w",))[0]
    assert (round(shown.width), round(shown.height)) == (64, 64)


def test_a_high_b_picture_says_its_b_value() -> None:
    t2w, hbv = key_images(framed(None, (60, 80), 1400.0), 1, ("t2w", "hbv"))
    assert (t2w.detail, hbv.title, hbv.detail) == ("", "High b", "= 1400")
    assert key_images(framed(None, (60, 80)), 1, ("hbv",))[0].detail == ""


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
