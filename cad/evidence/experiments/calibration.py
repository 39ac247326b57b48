"""Draw how predicted probabilities compare with observed shares."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73")
MARKERS = ("o", "s", "^")


def calibration_figure(curves: Mapping[str, pd.DataFrame], of: str) -> Figure:
    """Draw the observed share of an event, such as cancer, over its predicted probability.

    There is one curve for each of the numbers that predict the event.

    Parameters
    ----------
    curves : mapping of str to DataFrame
        By name of the number, such as a probability or a belief: a table with a row for each group
        of regions or men. Its columns are ``predicted``, ``observed``, ``lower`` and ``upper``
        (:func:`cad.learning.evaluation.measures.metrics.calibration_curve` returns it).
    of : str
        The observed event, such as ``regions with cancer``.

    Returns
    -------
    Figure
        One panel; the dashed diagonal is perfect calibration, bars are 95 % intervals.

    Examples
    --------
    >>> groups = pd.DataFrame({"predicted": [0.1, 0.6], "observed": [0.2, 0.5],
    ...                        "lower": [0.1, 0.4], "upper": [0.3, 0.6]})
    >>> figure = calibration_figure({"probability": groups}, "regions with cancer")
    >>> figure.axes[0].get_ylabel()
    'observed share of regions with cancer'
    """
    figure = Figure(figsize=(4.5, 4.5))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#777777", linewidth=1, linestyle="--", label="calibrated")
    for number, (name, groups) in enumerate(curves.items()):
        # Lengths of the bars. Rounding could make one negative, which matplotlib refuses.
        below = (groups["observed"] - groups["lower"]).clip(lower=0)
        above = (groups["upper"] - groups["observed"]).clip(lower=0)
        axes.errorbar(
            groups["predicted"],
            groups["observed"],
            yerr=[below, above],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            capsize=2,
            elinewidth=1,
            label=name,
        )
    axes.set(
        xlim=(0, 1), ylim=(0, 1), xlabel="predicted probability", ylabel=f"observed share of {of}"
    )
    axes.set_aspect("equal")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure
