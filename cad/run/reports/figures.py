"""Draw the figures of a run from the arrays of ``metrics.json``.

Equal arrays give equal SVG files.
"""

import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from cad.base.terms.beside import table_beside
from cad.base.terms.text import interval_text
from cad.learning.evaluation.summary import Summary

_TABLES = table_beside(__file__)
INK, DIM, LINE, PAPER, MAIN, SECOND, THIRD = _TABLES["colours"].values()
SIZE = (4.2, 3.5)  # width and height in inches
# Largest number of points of a curve. Points of a longer curve are left out, which changes the
# picture by less than a pixel.
MOST_POINTS = 400
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1.5)))
_DASHED, _DOTTED = _DASHES[1:3]
_MARKERS = "osD^vPX<>*"
# Figures with names of readers at the left, which need additional room. The layout engine of
# matplotlib makes this room, but takes a third longer, so the other figures are drawn without it.
_NAMED = ("readers", "ceiling")


def draw_figures(
    metrics: Summary, thresholds: tuple[float, float] | None
) -> dict[str, tuple[str, str, str]]:
    """Draw every figure for which the metrics hold data.

    Parameters
    ----------
    metrics : Summary
        Measures of the run; any part may be absent.
    thresholds : (float, float), optional
        The thresholds below which a region is called benign and above which it is called malignant.
        Figures of probabilities have lines there.

    Returns
    -------
    dict of str to (str, str, str)
        Title, caption and SVG text, by file name without its ending.
    """
    measured = (metrics.histology, metrics.consensus, metrics.null, metrics.ceiling, metrics.reject)
    if not any(measured):
        return {}
    # matplotlib is imported here, because the import takes a quarter of a second, and a report
    # without figures does not need it.
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    drawn = {}
    axes = None
    with rc_context(_TABLES["style"]):
        for name, (title, caption) in _TABLES["figures"].items():
            if axes is None:
                canvas = FigureCanvasSVG(Figure(SIZE, facecolor=PAPER))
                axes = canvas.figure.add_subplot(facecolor=PAPER)
            if draw(name, axes, metrics, thresholds):
                if name in _NAMED:
                    canvas.figure.set_layout_engine("constrained")
                drawn[name] = (title, f"{caption}{_against(metrics, name)}", _svg(canvas))
                axes = None  # if nothing was drawn, the empty axes are used for the next figure
    return drawn


def draw(
    name: str, axes: Any, metrics: Summary, thresholds: tuple[float, float] | None = None
) -> bool:
    """Draw one figure on matplotlib axes.

    Parameters
    ----------
    name : str
        Name of the figure, as :func:`draw_figures` returns it.
    axes : Axes
        The axes to draw on.
    metrics : Summary
        Measures of the run.
    thresholds : tuple of float or None
        The thresholds below which a region is called benign and above which it is called malignant;
        None if no lines are to be drawn there.

    Returns
    -------
    bool
        False if the metrics lack the figure's data.
    """
    drawn = _DRAW[name](axes, metrics, thresholds)
    if drawn:
        axes.legend(**_TABLES["legends"][name])
    return drawn


# By figure, the name of the array of a comparison from which the figure is drawn.
_ARRAYS = {
    "roc": "roc",
    "precision_recall": "precision_recall",
    "reliability": "calibration_curve",
    "decision_curve": "decision_curve",
}


def _comparison(metrics: Summary, figure: str) -> Any:
    """Return the measures that a figure is drawn from: predictions against histology or readers.

    The result is the comparison with histology if it has the array that the figure needs, else the
    comparison with the readers. It is None if neither has this array.
    """
    for comparison in (metrics.histology, metrics.consensus):
        if comparison and getattr(comparison, _ARRAYS[figure]):
            return comparison
    return None


def _against(metrics: Summary, figure: str) -> str:
    """Say, as the end of a figure's caption, what predictions are compared with in the figure."""
    if figure == "reject":
        against_readers = metrics.reject is not None and metrics.reject.against == "readers"
    elif figure in _ARRAYS:
        against_readers = _comparison(metrics, figure) is not metrics.histology
    else:  # the caption of any other figure says it already
        return ""
    return " Truth: the readers' mean above .5." if against_readers else " Truth: histology."


def inline(name: str, svg: str) -> str:
    """Return the SVG text of a figure file, changed so that it can be part of an HTML page.

    Colours become the colours of the page's style sheet, and ids get the figure's name in front.
    Each declaration of a ``style`` attribute becomes an attribute of its own, such as ``fill``,
    because the page's content security policy forbids ``style`` attributes.

    Parameters
    ----------
    name : str
        Name of the figure.
    svg : str
        Content of its file.
    """
    body = svg[svg.index("<svg") :]  # without the XML head of a file
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    # Several figures of a page may have equal ids, so the name makes them and their uses different.
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", body)
    for role, colour in _TABLES["colours"].items():
        body = body.replace(colour, f"var(--{role})")
    body = re.sub(r'\bstyle="([^"]*)"', _attributes, body)
    # Without width and height the figure takes the width of its place on the page. Its title and
    # caption are on the page, so a screen reader need not read the letters of the figure.
    body = re.sub(r'^(<svg[^>]*?) height="[^"]*"', r"\1", body)
    return re.sub(
        r'^<svg([^>]*?) width="[^"]*"',
        r'<svg\1 aria-hidden="true" stroke-linejoin="round" stroke-linecap="butt"',
        body,
    )


def _attributes(style: re.Match[str]) -> str:
    """Return the attributes of SVG that say the same as a ``style`` attribute.

    ``style="fill: red; stroke: none"`` becomes ``fill="red" stroke="none"``. The policy of a page
    allows no ``style`` attributes.
    """
    attributes = []
    for declaration in style[1].split(";"):
        if declaration.strip():
            name, _, value = declaration.partition(":")
            attributes.append(f'{name.strip()}="{value.strip()}"')
    return " ".join(attributes)


Draw = Callable[[Any, Summary, "tuple[float, float] | None"], bool]


def _svg(canvas: Any) -> str:
    """Return a drawn figure as SVG text without a date, so that equal figures are equal texts."""
    stream = io.StringIO()
    canvas.print_svg(stream, metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def _curve_arrays(curve: Any, *names: str) -> list[np.ndarray] | None:
    """Return a curve's arrays without points that lack a value, thinned to :data:`MOST_POINTS`.

    The result is None if no point has all values.
    """
    if curve is None:
        return None
    arrays = curve if isinstance(curve, dict) else vars(curve)
    points = np.array([arrays[name] for name in names], dtype=float)  # a column for each point
    complete = np.isfinite(points).all(axis=0)
    points = points[:, complete]
    n_points = points.shape[1]
    if n_points < 1:
        return None
    if n_points > MOST_POINTS:
        drawn = np.unique(np.linspace(0, n_points - 1, MOST_POINTS).astype(int))
        points = points[:, drawn]
    return list(points)


def _unit_square(axes: Any, x: str, y: str) -> None:
    """Let both axes run from 0 to 1, with the titles ``x`` and ``y`` and a grid."""
    # The margins keep lines at 0 and 1 from being cut in half.
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02), xlabel=x, ylabel=y)
    axes.grid(color=LINE, linewidth=0.5)
    axes.set_axisbelow(True)


def _draw_roc(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    """Draw ROC curves of the classifier and, against histology, of the readers; False if none."""
    measured = _comparison(metrics, "roc")
    if measured is None:
        return False
    curve = _curve_arrays(measured.roc, "fpr", "tpr")
    if curve is None:
        return False
    axes.plot([0, 1], [0, 1], color=LINE, linewidth=1)  # guessing
    if measured is metrics.histology:
        # Readers are measured against histology only: their mean is no truth for themselves.
        for i, (name, reader) in enumerate(metrics.readers.items()):
            reader_curve = _curve_arrays(reader.roc, "fpr", "tpr")
            if reader_curve is not None:
                axes.plot(
                    *reader_curve,
                    color=DIM,
                    linewidth=1,
                    marker=_MARKERS[i % len(_MARKERS)],
                    markersize=4,
                    markerfacecolor=PAPER,
                    linestyle=_DASHES[(i + 1) % len(_DASHES)],
                    label=f"reader {name}",
                    clip_on=False,
                )
    axes.plot(
        *curve, color=MAIN, label=f"classifier, AUC {interval_text(measured.auc)}", linewidth=2
    )
    for point in measured.operating_points:
        false_alarms = 1 - point["specificity"].value
        sensitivity = point["sensitivity"].value
        if np.isfinite((false_alarms, sensitivity)).all():
            axes.plot(false_alarms, sensitivity, "o", color=MAIN, markersize=5, clip_on=False)
            # Near the right edge the text would be cut off. There it is written left of its point.
            near_right_edge = false_alarms > 0.85
            axes.annotate(
                f"P > {point['threshold']:.2g}",
                (false_alarms, sensitivity),
                xytext=(-7 if near_right_edge else 7, -12),
                textcoords="offset points",
                horizontalalignment="right" if near_right_edge else "left",
                fontsize=7.5,
            )
    _unit_square(axes, "1 − specificity", "sensitivity")
    return True


def _draw_precision_recall(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    """Draw the curve of precision over recall; False if there is none."""
    measured = _comparison(metrics, "precision_recall")
    if measured is None:
        return False
    curve = _curve_arrays(measured.precision_recall, "recall", "precision")
    if curve is None:
        return False
    prevalence = measured.positive / measured.n  # the precision of guessing
    axes.axhline(
        prevalence,
        color=DIM,
        linewidth=1,
        linestyle=_DASHED,
        label=f"prevalence {prevalence:.2f}",
    )
    average = interval_text(measured.measures["average_precision"])
    axes.plot(*curve, color=MAIN, label=f"average precision {average}")
    _unit_square(axes, "recall (sensitivity)", "precision (PPV)")
    return True


def _draw_reliability(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    """Draw the observed share of malignant regions over the predicted; False without groups."""
    measured = _comparison(metrics, "reliability")
    if measured is None:
        return False
    curve = _curve_arrays(
        measured.calibration_curve, "predicted", "observed", "lower", "upper", "n"
    )
    if curve is None:
        return False
    predicted, observed, lower, upper, n_in_group = curve
    size = f"{n_in_group.min():.0f}"
    if n_in_group.max() > n_in_group.min():
        size += f" to {n_in_group.max():.0f}"
    axes.plot([0, 1], [0, 1], color=DIM, linewidth=1, linestyle=_DASHED, label="calibrated")
    axes.errorbar(
        predicted,
        observed,
        # Rounding can put an end of the interval on the wrong side by a hair; a length of a bar
        # must not be negative.
        yerr=np.clip([observed - lower, upper - observed], 0, None),
        color=MAIN,
        marker="o",
        markersize=4,
        capsize=2,
        elinewidth=1,
        label=f"groups of {size} regions",
    )
    for value in thresholds or ():
        axes.axvline(value, color=THIRD, linewidth=0.8, linestyle=_DOTTED)
    _unit_square(axes, "predicted probability", "observed share malignant")
    return True


def _draw_decision_curve(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    """Draw net benefit over the threshold probability; False if it was not computed."""
    measured = _comparison(metrics, "decision_curve")
    if measured is None:
        return False
    curve = _curve_arrays(measured.decision_curve, "threshold", "model", "all", "none")
    if curve is None:
        return False
    threshold, model, everyone, none = curve
    axes.plot(threshold, everyone, color=SECOND, linestyle=_DASHED, label="treat every region")
    axes.plot(threshold, none, color=DIM, linestyle=_DOTTED, label="treat none")
    axes.plot(threshold, model, color=MAIN, label="treat by classifier")
    # Treating every region does great harm at high thresholds. The picture leaves this out, so that
    # the benefits, which are small, can be told apart.
    top = max(float(model.max()), float(everyone[0]), 0.02)
    axes.set(
        xlim=(0, 1),
        ylim=(-0.35 * top, 1.1 * top),
        xlabel="threshold probability",
        ylabel="net benefit per region",
    )
    for value in thresholds or ():
        axes.axvline(value, color=THIRD, linewidth=0.8, linestyle=_DOTTED)
    axes.grid(color=LINE, linewidth=0.5)
    return True


def _draw_null(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    """Draw histograms of the AUCs with shuffled labels; False if labels were not shuffled."""
    null = metrics.null
    if null is None:
        return False
    edges = np.linspace(0, 1, 41)
    # Labels are shuffled in one or two schemes. The second histogram is hatched, so that the first
    # is visible behind it.
    for (name, scheme), colour, hatch in zip(
        null.schemes.items(), (MAIN, SECOND), ("", "////"), strict=False
    ):
        values = scheme.aucs[np.isfinite(scheme.aucs)]
        axes.hist(
            values,
            edges,
            histtype="stepfilled",
            facecolor=colour if not hatch else "none",
            alpha=0.55 if not hatch else 1,
            edgecolor=colour,
            hatch=hatch,
            label=f"permuted {name} patients, p = {scheme.p:.3g}",
        )
    if np.isfinite(null.observed):
        axes.axvline(null.observed, color=INK, label=f"observed AUC {null.observed:.3f}")
    axes.set(xlabel="AUC of the whole loop", ylabel="permutations", xlim=(0, 1))
    return True


def _draw_reader_comparison(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    """Draw the AUC of each reader above that of the classifier in the same regions.

    The result is False if no reader has an AUC, or if there is no histology.
    """
    readers = {}
    for reader, result in metrics.readers.items():
        if np.isfinite(result.auc.value):
            readers[reader] = result
    if not readers or metrics.histology is None or metrics.histology.roc is None:
        return False
    styles = (("auc", INK, "s", "reader", 0.14), ("cad_auc", MAIN, "o", "classifier", -0.14))
    for attribute, colour, marker, label, shift in styles:
        for row, result in enumerate(readers.values()):
            interval = getattr(result, attribute)
            if np.isnan(interval.value):
                continue
            # An interval without ends, as of very few regions, becomes its point alone.
            ends = []
            for end in (interval.lower, interval.upper):
                ends.append(interval.value if np.isnan(end) else end)
            axes.plot(ends, [row + shift] * 2, color=colour, linewidth=1.2)
            axes.plot(
                interval.value,
                row + shift,
                marker,
                color=colour,
                markersize=5,
                label=f"{label}, same regions" if row == 0 else None,  # once in the legend
            )
    axes.set_yticks(range(len(readers)), list(readers))
    # The first reader is on top, and above him is room for the legend.
    axes.set(xlabel="AUC against histology, 95 % interval", ylim=(len(readers) - 0.4, -0.9))
    axes.axvline(0.5, color=LINE)
    axes.grid(axis="x", color=LINE, linewidth=0.5)
    return True


def _draw_ceiling(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    """Draw how far each reader and the classifier are from the mean of the other readers.

    The last row has the classifier's distance to the mean of all readers, and the part of it that
    the readers' own scatter explains. The result is False if this was not measured.
    """
    ceiling = metrics.ceiling
    if ceiling is None or not ceiling.against_others or np.isnan(ceiling.share.value):
        return False
    readers = ceiling.against_others
    styles = (("brier", INK, "s", "reader"), ("classifier_brier", MAIN, "o", "classifier"))
    for measure, colour, marker, label in styles:
        axes.plot(
            [distances[measure] for distances in readers.values()],
            range(len(readers)),
            marker,
            color=colour,
            markersize=5,
            label=f"{label} to the others' mean",
        )
    last_row = len(readers)
    axes.barh(
        last_row,
        ceiling.distance,
        height=0.35,
        color=PAPER,
        edgecolor=MAIN,
        label="classifier to the mean of all",
    )
    axes.barh(last_row, ceiling.scatter, height=0.35, color=DIM, label="of it the readers' scatter")
    axes.set_yticks(range(last_row + 1), [*readers, "all"])
    # The first reader is on top, and above him is room for the legend.
    axes.set(xlabel="mean squared distance", xlim=(0, None), ylim=(last_row + 0.5, -2.1))
    axes.grid(axis="x", color=LINE, linewidth=0.5)
    axes.set_axisbelow(True)
    return True


def _draw_reject(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    """Draw errors and costs over the share of regions referred; False if not computed."""
    if metrics.reject is None:
        return False
    curve = _curve_arrays(metrics.reject.curve, "reject_rate", "error_rate", "cost")
    if curve is None:
        return False
    by_share_referred = np.argsort(curve[0], kind="stable")
    share_referred, errors, costs = (values[by_share_referred] for values in curve)
    axes.plot(
        share_referred, errors, color=MAIN, marker="o", markersize=3, label="errors per region"
    )
    axes.plot(
        share_referred,
        costs,
        color=SECOND,
        marker="s",
        markersize=3,
        linestyle=_DASHED,
        label="cost per region",
    )
    axes.set(
        xlabel="share of regions referred", ylabel="per region", ylim=(0, None), xlim=(-0.01, 1.01)
    )
    axes.grid(color=LINE, linewidth=0.5)
    return True


_DRAW: dict[str, Draw] = {
    "roc": _draw_roc,
    "precision_recall": _draw_precision_recall,
    "reliability": _draw_reliability,
    "decision_curve": _draw_decision_curve,
    "null": _draw_null,
    "readers": _draw_reader_comparison,
    "ceiling": _draw_ceiling,
    "reject": _draw_reject,
}
