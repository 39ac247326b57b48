"""Draw plots for papers and notebooks, each on matplotlib axes that it returns.

The plots show the same curves as the pages: arrays of ``metrics.json``, drawn by the same code.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from cad.base.errors import CadError
from cad.base.reading import read_json
from cad.folders.run_folder import RunFolder
from cad.learning.evaluation.summary import Summary
from cad.run.reports import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cad.run.api import Validation

__all__ = ["readers", "reliability", "roc", "tube"]

_ROUNDING = 1e-12


def roc(result: Validation | str | Path, ax: Axes | None = None) -> Axes:
    """Plot a classifier's ROC curve against histology, with the readers' curves.

    If too few regions have histology, the readers' consensus takes its place as the truth, and the
    readers have no curves.

    Parameters
    ----------
    result : Validation, str or Path
        Result of :func:`cad.validate`, or a run folder.
    ax : Axes, optional
        Axes to draw on; the current axes when not given.

    Returns
    -------
    Axes
        The axes with the plot: ``ax``, or the current axes when ``ax`` was not given.

    Raises
    ------
    CadError
        When the result has too few regions of each class for a curve.

    Examples
    --------
    >>> import cad, numpy as np
    >>> from matplotlib.figure import Figure
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> truth = np.tile([0.0, 0.0, 1.0], 20)
    >>> X = truth[:, None] + rng.normal(0, 0.5, (60, 2))
    >>> patients = np.arange(60) // 2
    >>> validation = cad.validate(
    ...     LogisticRegression(), X, truth, patients, truth=truth, folds=5
    ... )
    >>> ax = cad.plot.roc(validation, Figure().gca())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('1 − specificity', 'sensitivity')
    """
    return _draw_figure("roc", result, ax)


def reliability(result: Validation | str | Path, ax: Axes | None = None) -> Axes:
    """Plot the observed share of malignant regions over the predicted probability.

    Regions are divided by their probability into groups of equal size. Bars are Wilson's 95 %
    intervals. Malignant means malignant by histology or, if too few regions have histology, by the
    readers' consensus.

    Parameters
    ----------
    result : Validation, str or Path
        Result of :func:`cad.validate`, or a run folder.
    ax : Axes, optional
        Axes to draw on; the current axes when not given.

    Returns
    -------
    Axes
        The axes with the plot: ``ax``, or the current axes when ``ax`` was not given.

    Raises
    ------
    CadError
        When there is nothing to plot: too few regions, or a run folder without measures.

    Examples
    --------
    >>> import cad, numpy as np
    >>> from matplotlib.figure import Figure
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> truth = np.tile([0.0, 0.0, 1.0], 20)
    >>> X = truth[:, None] + rng.normal(0, 0.5, (60, 2))
    >>> patients = np.arange(60) // 2
    >>> validation = cad.validate(
    ...     LogisticRegression(), X, truth, patients, truth=truth, folds=5
    ... )
    >>> ax = cad.plot.reliability(validation, Figure().gca())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('predicted probability', 'observed share malignant')
    """
    return _draw_figure("reliability", result, ax)


def readers(result: Validation | str | Path, ax: Axes | None = None) -> Axes:
    """Plot every reader's AUC beside the classifier's on the regions that this reader scored.

    Parameters
    ----------
    result : Validation, str or Path
        Result of :func:`cad.validate`, or a run folder.
    ax : Axes, optional
        Axes to draw on; the current axes when not given.

    Returns
    -------
    Axes
        The axes with the plot: ``ax``, or the current axes when ``ax`` was not given.

    Raises
    ------
    CadError
        When the result has no readers, no histology, or too few regions of each class.

    Examples
    --------
    >>> import cad, numpy as np, pandas as pd
    >>> from matplotlib.figure import Figure
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> truth = np.tile([0.0, 0.0, 1.0], 20)
    >>> X = truth[:, None] + rng.normal(0, 0.5, (60, 2))
    >>> patients = np.arange(60) // 2
    >>> scores = np.clip(np.round(4 * truth[:, None] + rng.normal(0, 2, (60, 2))), 0, 4)
    >>> readers = pd.DataFrame(scores / 4, columns=["A", "B"])
    >>> validation = cad.validate(
    ...     LogisticRegression(), X, truth, patients, truth=truth, readers=readers, folds=5
    ... )
    >>> ax = cad.plot.readers(validation, Figure().gca())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['A', 'B']
    """
    return _draw_figure("readers", result, ax)


def tube(p: ArrayLike, eta: ArrayLike, q: ArrayLike, ax: Axes | None = None) -> Axes:
    """Plot the readers' interval p +- eta of every region, with a learner's probability q.

    The interval is as wide as ``eta`` says, on the scale of probability. With the readers' spread
    as ``eta`` it can be wider than the tube of a learner, for which the spread is multiplied by a
    share kappa.

    Parameters
    ----------
    p, eta, q : array, shape (n,)
        Readers' probability, its spread (``eta`` of :func:`cad.consensus`), and a learner's
        (out-of-fold) probability. Regions are ordered by p. Regions where one of the three values
        is NaN are left out.
    ax : Axes, optional
        Axes to draw on; the current axes when not given.

    Returns
    -------
    Axes
        The axes with the plot: ``ax``, or the current axes when ``ax`` was not given.

    Raises
    ------
    CadError
        When the lengths differ or no region is left.

    Examples
    --------
    >>> import cad, matplotlib
    >>> matplotlib.use("agg")
    >>> ax = cad.plot.tube([0.25, 1.0, 0.5], [0.1, 0.125, 0.3], [0.3, 0.9, 0.9])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['readers, p ± η', '2 inside, |q − p| ≤ η', '1 outside']
    """
    columns = [np.asarray(values, dtype=float) for values in (p, eta, q)]
    shapes = [column.shape for column in columns]
    # numpy would repeat an array of length 1 for every region.
    if len(set(shapes)) > 1:
        listed = ", ".join(str(shape) for shape in shapes)
        raise CadError(f"p, eta and q must have one length; their shapes are {listed}")
    has_all = np.isfinite(columns).all(axis=0)
    table = np.array(columns)[:, has_all]
    if table.shape[-1] == 0:
        raise CadError("no region has p, eta and q")
    # Regions of equal p are ordered by q.
    order = np.lexsort((table[2], table[0]))
    mean, width, predicted = table[:, order]
    # A probability exactly at the end of the interval counts as inside, in spite of rounding.
    inside = np.abs(predicted - mean) <= width + _ROUNDING
    rank = np.arange(len(mean))
    low = np.clip(mean - width, 0, 1)
    high = np.clip(mean + width, 0, 1)
    ax = _given_axes(ax)
    ax.vlines(rank, low, high, color=figures.LINE, linewidth=3, label="readers, p ± η")
    ax.plot(rank, mean, "_", color=figures.DIM, markersize=5)
    for selected, colour, marker, description in (
        (inside, figures.MAIN, "o", "inside, |q − p| ≤ η"),
        (~inside, figures.SECOND, "x", "outside"),
    ):
        ax.plot(
            rank[selected],
            predicted[selected],
            marker,
            color=colour,
            markersize=4,
            linestyle="none",
            label=f"{selected.sum()} {description}",
        )
    ax.set(ylim=(-0.02, 1.02), xlabel="regions, ordered by the readers' mean", ylabel="probability")
    ax.legend(loc="upper left")
    return ax


def _draw_figure(name: str, result: Any, ax: Axes | None) -> Axes:
    """Draw one of the figures of the pages on axes, and return the axes."""
    ax = _given_axes(ax)
    if not figures.draw(name, ax, _metrics(result)):
        raise CadError(
            f"there is nothing to draw {name!r} from: too few regions, no readers or no histology"
        )
    return ax


def _metrics(result: Any) -> Summary:
    """Return the measures of a validation or a run folder."""
    if not isinstance(result, str | Path):  # a Validation
        return Summary.from_dict(result.metrics)
    path = RunFolder(Path(result)).metrics
    if not path.is_file():
        raise CadError("no run folder with measures", file=path, hint="give what `cad run` wrote")
    return Summary.from_dict(read_json(path))


def _given_axes(ax: Axes | None) -> Axes:
    """Return the axes, or the current axes where none are given."""
    # matplotlib takes long to load, and is needed for plots alone.
    from matplotlib import pyplot as plt

    return plt.gca() if ax is None else ax
