"""Draw the pictures of docs/evidence.md from the tables beside them.

``python scripts/evidence_pictures.py docs/evidence`` reads the tables that the commands on the page
write with ``-o``, and draws pictures of each table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import binomtest

from cad.base.errors import CadError
from cad.base.files import write_atomic
from cad.base.reading import read_frame
from cad.evidence.experiments.calibration import calibration_figure
from cad.evidence.experiments.results import png

BLUE, RED, GREY = "#0072B2", "#D55E00", "#777777"
COHORTS = 400
"""Number of cohorts behind a row of coverage.csv."""


def calibration(table: pd.DataFrame) -> Figure:
    """Draw belief and probability of regions against their histology."""
    curves = {}
    for number, groups in table.groupby("number", sort=False):
        curves[str(number)] = groups
    return calibration_figure(curves, "regions with cancer")


def roc(table: pd.DataFrame) -> Figure:
    """Draw the ROC curves of belief and probability, at the borders of the ten groups."""
    figure = Figure(figsize=(4.2, 4.0))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    for number, groups in table.groupby("number", sort=False):
        # The regions above a border are called malignant; the border moves down.
        from_top = groups.sort_values("predicted", ascending=False)
        malignant = from_top["observed"] * from_top["n"]
        benign = from_top["n"] - malignant
        found = [0.0, *(malignant.cumsum() / malignant.sum())]
        false_alarms = [0.0, *(benign.cumsum() / benign.sum())]
        axes.plot(false_alarms, found, "o-", markersize=4, label=str(number))
    axes.set(
        xlabel="share of the benign regions above the border",
        ylabel="share of the regions with cancer above it",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


def decision_curve(table: pd.DataFrame) -> Figure:
    """Draw the net benefit of each number, of treating all regions and of treating none."""
    figure = Figure(figsize=(6.4, 4.0))
    axes = figure.subplots()
    styles = {
        "probability with readers' scores": {"color": BLUE, "linewidth": 2.2},
        "probability from images": {"color": BLUE, "linestyle": "--"},
        "readers' mean": {"color": RED},
        "treat all": {"color": GREY},
        "treat none": {"color": GREY, "linestyle": ":"},
    }
    for name, style in styles.items():
        axes.plot(table["threshold"], table[name], label=name, **style)
    highest = table[list(styles)].to_numpy().max()
    axes.set(
        xlabel="threshold: regions with at least this probability are treated",
        ylabel="net benefit per region",
        xlim=(0, table["threshold"].max()),
        ylim=(-0.25 * highest, 1.05 * highest),
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right", fontsize=9)
    return figure


def coverage(table: pd.DataFrame) -> Figure:
    """Draw how often each interval holds the true AUC, with the chance of that share."""
    figure = Figure(figsize=(7, 3.6))
    axes = figure.subplots()
    axes.axvline(0.95, color=GREY, linewidth=1, linestyle="--")
    labels = []
    for place, (_, row) in enumerate(table.iterrows()):
        held = round(row["coverage"] * COHORTS)
        chance = binomtest(held, COHORTS).proportion_ci(method="wilson")
        colour = BLUE if "used here" in row["interval"] else RED
        axes.plot([chance.low, chance.high], [place, place], color=colour)
        axes.plot(row["coverage"], place, color=colour, marker="o", markersize=5)
        labels.append(f"{row['interval']}: {row['patients']} patients, AUC {row['AUC']:.2f}")
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlim=(0.7, 1.0), xlabel="share of cohorts whose 95 % interval holds the true AUC")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def effects(table: pd.DataFrame) -> Figure:
    """Draw the validated AUC, the AUC of fresh patients, and how often the interval holds it."""
    figure = Figure(figsize=(4.5, 3.2))
    axes = figure.subplots()
    axes.plot(table["effect"], table["AUC fresh"], "s-", color=GREY, label="fresh patients")
    axes.plot(table["effect"], table["AUC validated"], "o-", color=BLUE, label="validated")
    for _, row in table.iterrows():
        axes.annotate(
            f"interval covers {row['covered']:.2f}",
            (row["effect"], min(row["AUC fresh"], row["AUC validated"])),
            xytext=(0, -18),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.set(xlabel="effect on three of ten features", ylabel="mean AUC", ylim=(0.4, 0.8))
    axes.set_xlim(-0.35, 1.35)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    return figure


PICTURES: dict[str, tuple[str, Callable[[pd.DataFrame], Figure]]] = {
    "calibration": ("calibration", calibration),
    "roc": ("calibration", roc),
    "decision_curve": ("decision_curve", decision_curve),
    "coverage": ("coverage", coverage),
    "effects": ("effects", effects),
}
"""Name of the table and the function that draws it, by the name of the picture."""


def draw(folder: Path) -> list[Path]:
    """Draw the pictures of every table in a folder.

    Parameters
    ----------
    folder : Path
        Folder with the tables; gets the PNG files beside the tables.

    Returns
    -------
    list of Path
        The pictures.

    Raises
    ------
    CadError
        When a table is missing.
    """
    pictures = []
    for name, (table_name, figure) in PICTURES.items():
        table = folder / f"{table_name}.csv"
        if not table.is_file():
            raise CadError(
                "no table to draw",
                file=table,
                hint="docs/evidence.md has the command that writes it",
            )
        picture = folder / f"{name}.png"
        write_atomic(picture, png(figure(read_frame(table))))
        pictures.append(picture)
    return pictures


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/evidence_pictures.py FOLDER")
    try:
        for path in draw(Path(sys.argv[1])):
            print(path)
    except CadError as error:
        sys.exit(f"cad: {error}")
