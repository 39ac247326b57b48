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
        readers = metrics.reject is not None and metrics.reject.against == "readers"
    elif figure in _ARRAYS:
        readers = _comparison(metrics, figure) is not metrics.histology
    else:
        return ""
    return " Truth: the readers' mean above .5." if readers else " Truth: histology."


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
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", body)
    for role, colour in _TABLES["colours"].items():
        body = body.replace(colour, f"var(--{role})")
    body = re.sub(r'\bstyle="([^"]*)"', _attributes, body)
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
    rows = np.array([arrays[name] for name in names], dtype=float)
    rows = rows[:, np.isfinite(rows).all(axis=0)]
    if rows.shape[1] < 1:
        return None
    if rows.shape[1] > MOST_POINTS:
        rows = rows[:, np.unique(np.linspace(0, rows.shape[1] - 1, MOST_POINTS).astype(int))]
    return list(rows)


def _unit_square(axes: Any, x: str, y: str) -> None:
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02), xlabel=x, ylabel=y)
    axes.grid(color=LINE, linewidth=0.5)
    axes.set_axisbelow(True)


def _draw_roc(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    measured = _comparison(metrics, "roc")
    if measured is None:
        return False
    curve = _curve_arrays(measured.roc, "fpr", "tpr")
    if curve is None:
        return False
    axes.plot([0, 1], [0, 1], color=LINE, linewidth=1)
    if measured is metrics.histology:
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
                    linestyle=_DASHES[(i + 1) % 5],
                    label=f"reader {name}",
                    clip_on=False,
                )
    axes.plot(
        *curve, color=MAIN, label=f"classifier, AUC {interval_text(measured.auc)}", linewidth=2
    )
    for point in measured.operating_points:
        place = 1 - point["specificity"].value, point["sensitivity"].value
        if np.isfinite(place).all():
            axes.plot(*place, "o", color=MAIN, markersize=5, clip_on=False)
            # Near the right edge the text would be cut off. There it is written left of its point.
            right = place[0] > 0.85
            axes.annotate(
                f"P > {point['threshold']:.2g}",
                place,
                xytext=(-7 if right else 7, -12),
                textcoords="offset points",
                horizontalalignment="right" if right else "left",
                fontsize=7.5,
            )
    _unit_square(axes, "1 − specificity", "sensitivity")
    return True


def _draw_precision_recall(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    measured = _comparison(metrics, "precision_recall")
    if measured is None:
        return False
    curve = _curve_arrays(measured.precision_recall, "recall", "precision")
    if curve is None:
        return False
    share = measured.positive / measured.n
    axes.axhline(
        share, color=DIM, linewidth=1, linestyle=_DASHES[1], label=f"prevalence {share:.2f}"
    )
    average = interval_text(measured.measures["average_precision"])
    axes.plot(*curve, color=MAIN, label=f"average precision {average}")
    _unit_square(axes, "recall (sensitivity)", "precision (PPV)")
    return True


def _draw_reliability(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    measured = _comparison(metrics, "reliability")
    if measured is None:
        return False
    curve = _curve_arrays(
        measured.calibration_curve, "predicted", "observed", "lower", "upper", "n"
    )
    if curve is None:
        return False
    predicted, observed, lower, upper, n = curve
    size = f"{n.min():.0f}"
    if n.max() > n.min():
        size += f" to {n.max():.0f}"
    axes.plot([0, 1], [0, 1], color=DIM, linewidth=1, linestyle=_DASHES[1], label="calibrated")
    axes.errorbar(
        predicted,
        observed,
        yerr=np.clip([observed - lower, upper - observed], 0, None),
        color=MAIN,
        marker="o",
        markersize=4,
        capsize=2,
        elinewidth=1,
        label=f"groups of {size} regions",
    )
    for value in thresholds or ():
        axes.axvline(value, color=THIRD, linewidth=0.8, linestyle=_DASHES[2])
    _unit_square(axes, "predicted probability", "observed share malignant")
    return True


def _draw_decision_curve(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    measured = _comparison(metrics, "decision_curve")
    if measured is None:
        return False
    curve = _curve_arrays(measured.decision_curve, "threshold", "model", "all", "none")
    if curve is None:
        return False
    t, model, everyone, none = curve
    axes.plot(t, everyone, color=SECOND, linestyle=_DASHES[1], label="treat every region")
    axes.plot(t, none, color=DIM, linestyle=_DASHES[2], label="treat none")
    axes.plot(t, model, color=MAIN, label="treat by classifier")
    top = max(float(model.max()), float(everyone[0]), 0.02)
    axes.set(
        xlim=(0, 1),
        ylim=(-0.35 * top, 1.1 * top),
        xlabel="threshold probability",
        ylabel="net benefit per region",
    )
    for value in thresholds or ():
        axes.axvline(value, color=THIRD, linewidth=0.8, linestyle=_DASHES[2])
    axes.grid(color=LINE, linewidth=0.5)
    return True


def _draw_null(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    null = metrics.null
    if null is None:
        return False
    edges = np.linspace(0, 1, 41)
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
    readers = {}
    for reader, result in metrics.readers.items():
        if np.isfinite(result.auc.value):
            readers[reader] = result
    if not readers or metrics.histology is None or metrics.histology.roc is None:
        return False
    styles = (("auc", INK, "s", "reader", 0.14), ("cad_auc", MAIN, "o", "classifier", -0.14))
    for key, colour, marker, label, shift in styles:
        for row, result in enumerate(readers.values()):
            interval = getattr(result, key)
            if np.isnan(interval.value):
                continue
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
                label=f"{label}, same regions" if row == 0 else None,
            )
    axes.set_yticks(range(len(readers)), list(readers))
    axes.set(xlabel="AUC against histology, 95 % interval", ylim=(len(readers) - 0.4, -0.9))
    axes.axvline(0.5, color=LINE)
    axes.grid(axis="x", color=LINE, linewidth=0.5)
    return True


def _draw_ceiling(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    ceiling = metrics.ceiling
    if ceiling is None or not ceiling.against_others or np.isnan(ceiling.share.value):
        return False
    readers = ceiling.against_others
    styles = (("brier", INK, "s", "reader"), ("classifier_brier", MAIN, "o", "classifier"))
    for key, colour, marker, label in styles:
        axes.plot(
            [row[key] for row in readers.values()],
            range(len(readers)),
            marker,
            color=colour,
            markersize=5,
            label=f"{label} to the others' mean",
        )
    last = len(readers)
    axes.barh(
        last,
        ceiling.distance,
        height=0.35,
        color=PAPER,
        edgecolor=MAIN,
        label="classifier to the mean of all",
    )
    axes.barh(last, ceiling.scatter, height=0.35, color=DIM, label="of it the readers' scatter")
    axes.set_yticks(range(last + 1), [*readers, "all"])
    axes.set(xlabel="mean squared distance", xlim=(0, None), ylim=(last + 0.5, -2.1))
    axes.grid(axis="x", color=LINE, linewidth=0.5)
    axes.set_axisbelow(True)
    return True


def _draw_reject(axes: Any, metrics: Summary, thresholds: Any) -> bool:
    if metrics.reject is None:
        return False
    curve = _curve_arrays(metrics.reject.curve, "reject_rate", "error_rate", "cost")
    if curve is None:
        return False
    order = np.argsort(curve[0], kind="stable")
    rate, error, cost = (v[order] for v in curve)
    axes.plot(rate, error, color=MAIN, marker="o", markersize=3, label="errors per region")
    axes.plot(
        rate,
        cost,
        color=SECOND,
        marker="s",
        markersize=3,
        linestyle=_DASHES[1],
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
