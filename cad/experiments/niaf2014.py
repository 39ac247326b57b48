"""[N14] Figs 1, 3 and Tables I, II with Figs 4, 5; [N13]'s toy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cad.evaluation.folds.compare import paper_sign_test
from cad.evaluation.folds.crossval import positive_probability
from cad.evaluation.measures import metrics
from cad.experiments import Options
from cad.experiments.gaussians import Gaussians, noisy
from cad.experiments.methods import BASELINES, METHODS, SCALES, fit, medians, paired_p, try_method
from cad.experiments.results import COLOURS, Result

N_TRAIN, N_TEST = 100, 1000
SEEDS = 100  # the repetitions of [N14] Fig. 6
# The paper's text says variance, its figures fit a standard deviation.
TABLE1_READINGS = {"standard deviation .3": 0.3, "variance .3": float(np.sqrt(0.3))}
TABLE1_ETA = 0.01
TABLE2_MEANS = {
    "diagonal": ((-0.3, -0.5), (0.3, 0.5)),
    "as printed": ((-0.3, 0.5), (0.3, 0.5)),
}
TABLE2_ETAS = (0.01, 0.10, 0.15)
TABLE2_NOISE = 0.15
TOY_NOISE = 0.1
OUTLIER_ETA = 0.1
_PUBLISHED_1 = pd.DataFrame(
    {
        "reading": "published",
        "method": ("P-SVM", "SVM", "F-SVM"),
        "AUC": [1.0, 1.0, 1.0],
        "Acc": [1.0, 0.99, 0.99],
        "KL one-sided": [0.4, 11.0, 11.0],
        "Err": [1e-5, 6e-4, 6e-4],
    }
)
_PUBLISHED_2 = pd.DataFrame(
    {
        "means": "published",
        "eta": 0.01,
        "method": ("P-SVM", "SVM", "F-SVM"),
        "AUC": [1.0, 0.97, 0.99],
        "Acc": [0.98, 0.93, 0.96],
        "KL one-sided": [23.0, 255.0, 166.0],
        "Err": [0.015, 0.061, 0.043],
    }
)


def compare_methods(
    data: Gaussians, amplitude: float, eta: float, seeds: int, n: int = N_TRAIN
) -> pd.DataFrame:
    """Measure the methods and the baselines, a row per method and seed.

    A refusal gives NaN.

    Parameters
    ----------
    data : Gaussians
        Classes.
    amplitude : float
        Uniform noise on the training probabilities.
    eta : float
        Half-width of the P-SVM's tubes.
    seeds : int
        Seeds 0 .. seeds - 1.
    n : int
        Training points.
    """
    rows = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        X, X_test = data.draw(n, rng), data.draw(N_TEST, rng)
        p = noisy(data.posterior(X), amplitude, rng)
        # Without noise: a method is to find the true probabilities, not those that it was told.
        test = X_test, data.posterior(X_test)
        rows += [
            {"method": method, "seed": seed, **try_method(method, X, p, eta, test)}
            for method in (*METHODS, *BASELINES)
        ]
    return pd.DataFrame(rows)


def outlier(options: Options) -> Result:
    """Reproduce Figs 1 and 3: one uncertain point, labelled +1 or p = .51."""
    rng = np.random.default_rng(0)
    data = Gaussians((-1.0, 0.0), (1.0, 0.0), 0.35)
    X = data.draw(N_TRAIN, rng)
    y = (np.arange(N_TRAIN) % 2).astype(float)
    # On the line where P = .51, far enough from both classes to matter.
    point = np.array([[np.log(0.51 / 0.49) * data.sigma**2 / 2.0, -1.5]])
    points = np.vstack([X, point])
    models = {
        "label +1": fit("P-SVM, fixed scale", points, np.append(y, 1.0), OUTLIER_ETA),
        "label p = .51": fit("P-SVM, fixed scale", points, np.append(y, 0.51), OUTLIER_ETA),
    }
    figure = Figure(figsize=(9, 4))
    rows = []
    for axes, (name, model) in zip(figure.subplots(1, 2), models.items(), strict=True):
        _field(axes, model, points, lines=(-1, 0, 1))
        axes.scatter(*X.T, c=np.where(y == 1, "#D55E00", "#0072B2"), s=12)
        axes.scatter(*point.T, c="#CC79A7", s=60, marker="*")
        axes.set_title(name)
        probability = positive_probability(model, points)
        rows.append(
            {
                "outlier's label": name,
                "P of the outlier": float(probability[-1]),
                "frontier at y = 0": _crossing(model, 0.0),
                "frontier at the point's y": _crossing(model, float(point[0, 1])),
                "errors on the 100 points": int(((probability[:-1] > 0.5) != (y == 1)).sum()),
            }
        )
    return Result(
        "One uncertain sample: [N14] Figs 1 and 3",
        f"Two Gaussian classes (standard deviation .35, means ∓1), n = {N_TRAIN}, one added point "
        "with P(Y = 1 | x) = .51; C = C̃ = 100, σ = 1, η = .1, fixed scale (a learned scale is "
        "unbounded here: the only soft interval contains ½). Seed 0.",
        {"The added point and the frontier": pd.DataFrame(rows)},
        {"Frontier (solid) and margins (dashed) for both labels of the star": figure},
        [
            "Frontiers are x coordinates; Bayes is at x = 0. Labelled +1 the point pushes the "
            "frontier towards the negative class beside it; labelled .51 it lies close to the "
            "frontier, as in the paper."
        ],
    )


def table1(options: Options) -> Result:
    """Reproduce Table I and Fig. 4: no noise, one dimension, both readings of sigma."""
    seeds = options.repeats or SEEDS
    parts = []
    for reading, sigma in TABLE1_READINGS.items():
        rows = compare_methods(Gaussians((-0.5,), (0.5,), sigma), 0.0, TABLE1_ETA, seeds)
        parts.append(medians(rows, ["method"]).assign(reading=reading))
    table = pd.concat([*parts, _PUBLISHED_1], ignore_index=True)
    order = ["reading", "method", "AUC", "Acc", "KL", "KL one-sided", "Err", "refused"]
    return Result(
        "Probabilities without noise: [N14] Table I and Fig. 4",
        f"1-D classes with means ∓.5, n = {N_TRAIN} training and {N_TEST} test points, η = .01, "
        f"C = C̃ = 100, σ = 1; medians over seeds 0 to {seeds - 1}. The text says variance .3, the "
        "figures fit a standard deviation of .3: both. Truth is [P > .5]. Ratios of Err and KL "
        "follow.",
        {"Measures": table[order], "Other methods relative to the P-SVM": _ratios(parts)},
        {"Estimated probabilities, seed 0, standard deviation .3": _figure4()},
        [
            "KL is the two-sided binary divergence, a sum over the test points; the one-sided sum "
            "is the paper's and can be negative."
        ],
    )


def table2(options: Options) -> Result:
    """Reproduce Table II and Fig. 5: probabilities with noise in two dimensions."""
    seeds = options.repeats or SEEDS
    parts, tests = [], []
    for name, (negative, positive) in TABLE2_MEANS.items():
        data = Gaussians(negative, positive, float(np.sqrt(0.7)))
        for eta in TABLE2_ETAS:
            rows = compare_methods(data, TABLE2_NOISE, eta, seeds)
            parts.append(medians(rows, ["method"]).assign(means=name, eta=eta))
            tests += _tests(rows, name, eta)
    table = pd.concat([*parts, _PUBLISHED_2], ignore_index=True)
    order = ["means", "eta", "method", "AUC", "Acc", "KL", "KL one-sided", "Err", "refused"]
    return Result(
        "Probabilities with noise: [N14] Table II and Fig. 5",
        f"2-D classes, variance .7, n = {N_TRAIN} and {N_TEST} test points, uniform noise ±.15 "
        f"clipped to [0, 1], C = C̃ = 100, σ = 1; medians over seeds 0 to {seeds - 1}. The printed "
        "means (−.3, .5) and (.3, .5) are a slip (docs/methods.md 5); both are run. The stated η "
        "= .01 is narrower than the noise.",
        {
            "Measures": table[order],
            "P-SVM better, paired over seeds: signed-rank p, one-sided": pd.DataFrame(tests),
            "The paper's own test on seed 0, diagonal means": _papers_test(),
        },
        {"True and estimated probabilities, diagonal means, η = .15, seed 0": _figure5()},
        [
            "With η = .01 the tubes are narrower than the noise. The fixed scale of [N14] (14) "
            "then gives the published KL; the learned scale shrinks or collapses ('refused' is "
            "the share of refused fits). [N13] learns no scale.",
            "The first run had 20 seeds and the sign test, and missed p < .001 in accuracy at "
            "η = .10 (p = .021). Then seeds were raised to the paper's 100 repetitions and the "
            "signed-rank test put first; the sign test still misses.",
            "The paper's test resamples the test points of one draw 100 times and counts wins: it "
            "measures the resampling (cad.evaluation.folds.compare.paper_sign_test), and is here "
            "because the paper prints it.",
            "Logistic regression and kernel ridge learn the same probabilities without tubes, at "
            "the same kernel and C, not tuned either.",
        ],
    )


def toy(options: Options) -> Result:
    """Reproduce [N13] V: the same comparison with noise of amplitude .1."""
    seeds = options.repeats or SEEDS
    data = Gaussians(*TABLE2_MEANS["diagonal"], float(np.sqrt(0.7)))
    rows = compare_methods(data, TOY_NOISE, TOY_NOISE, seeds)
    table = medians(rows, ["method"])
    published = pd.DataFrame({"method": ["P-SVM published", "SVM published"], "Acc": [0.99, 0.95]})
    published["KL one-sided"] = [3.6, 95.0]
    return Result(
        "Noise robustness: [N13] toy example",
        "2-D classes as in [N14] Table II (the abstract does not state its own), noise ±.1, "
        f"η = .1; medians over seeds 0 to {seeds - 1}.",
        {"Measures": pd.concat([table, published], ignore_index=True)},
        remarks=["The published KL is one-sided; compare it with that column."],
    )


def _tests(rows: pd.DataFrame, means: str, eta: float) -> list[dict[str, object]]:
    directions = {"Acc": "higher", "KL": "lower", "KL one-sided": "lower", "Err": "lower"}
    table: list[dict[str, object]] = []
    for method in SCALES:
        for other in ("SVM", "F-SVM", *BASELINES):
            p = {m: paired_p(rows, m, method, other, way) for m, way in directions.items()}
            ranks = {f"p ({measure})": both[0] for measure, both in p.items()}
            signs = {f"sign test ({measure})": both[1] for measure, both in p.items()}
            compared = {"means": means, "eta": eta, "method": method, "against": other}
            table.append({**compared, **ranks, **signs})
    return table


def _papers_test() -> pd.DataFrame:
    """Return [N14] IV's sign test of the P-SVM over 100 resamples of seed 0's test points."""
    data = Gaussians(*TABLE2_MEANS["diagonal"], float(np.sqrt(0.7)))
    rng = np.random.default_rng(0)
    X, X_test = data.draw(N_TRAIN, rng), data.draw(N_TEST, rng)
    p, target = noisy(data.posterior(X), TABLE2_NOISE, rng), data.posterior(X_test)
    truth = (target > 0.5).astype(float)

    def values(q: np.ndarray, r: np.ndarray) -> dict[str, float]:
        """Return each measure on the points ``r``, larger being better."""
        return {
            "Acc": metrics.accuracy(truth[r], q[r]),
            "KL": -metrics.kl(target[r], q[r]),
            "Err": -metrics.alignment_error(target[r], q[r]),
        }

    rows = []
    for eta in TABLE2_ETAS:
        q = {m: positive_probability(fit(m, X, p, eta), X_test) for m in (*METHODS, *BASELINES)}
        for method in SCALES:
            for other in ("SVM", "F-SVM", *BASELINES):
                row: dict[str, object] = {"eta": eta, "method": method, "against": other}
                for name in ("Acc", "KL", "Err"):

                    def pair(
                        r: np.ndarray,
                        n: str = name,
                        a: np.ndarray = q[method],
                        b: np.ndarray = q[other],
                    ) -> tuple[float, float]:
                        return values(a, r)[n], values(b, r)[n]

                    row[f"p ({name})"] = paper_sign_test(pair, N_TEST)
                rows.append(row)
    return pd.DataFrame(rows)


def _ratios(parts: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "reading": part["reading"].iloc[0],
            "method": other,
            "against": method,
            **{
                f"{name} / {name} of the P-SVM": values.at[other, name] / values.at[method, name]
                for name in ("Err", "KL", "KL one-sided")
            },
        }
        for part in parts
        for values in (part.set_index("method"),)
        for method in SCALES
        for other in ("SVM", "F-SVM")
    )


def _figure4() -> Figure:
    data = Gaussians((-0.5,), (0.5,), TABLE1_READINGS["standard deviation .3"])
    X = data.draw(N_TRAIN, np.random.default_rng(0))
    p = data.posterior(X)
    grid = np.linspace(-1.5, 1.5, 301)[:, None]
    truth = data.posterior(grid)
    figure = Figure(figsize=(7, 6))
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.plot(grid[:, 0], truth, "k", lw=3, alpha=0.4, label="truth")
    for method in METHODS:
        q = positive_probability(fit(method, X, p, TABLE1_ETA), grid)
        upper.plot(grid[:, 0], q, color=COLOURS[method], label=method)
        lower.plot(grid[:, 0], np.abs(q - truth), color=COLOURS[method])
    upper.plot(X[:, 0], p, "k.", ms=4)
    upper.set_ylabel("P(Y = 1 | x)")
    lower.set_ylabel("absolute error")
    lower.set_xlabel("x")
    upper.legend()
    return figure


def _figure5() -> Figure:
    data = Gaussians(*TABLE2_MEANS["diagonal"], float(np.sqrt(0.7)))
    rng = np.random.default_rng(0)
    X = data.draw(N_TRAIN, rng)
    # Drawn and left, so that the noise below is that of seed 0 in Table II.
    data.draw(N_TEST, rng)
    p = noisy(data.posterior(X), TABLE2_NOISE, rng)
    side = np.linspace(-3, 3, 81)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    fields = {"truth": data.posterior(grid)}
    fields |= {m: positive_probability(fit(m, X, p, 0.15), grid) for m in METHODS}
    figure = Figure(figsize=(15, 3.2))
    levels = np.linspace(0, 1, 11)
    for axes, (name, values) in zip(figure.subplots(1, 5), fields.items(), strict=True):
        axes.contourf(side, side, values.reshape(81, 81), levels=levels, cmap="cividis")
        axes.contour(side, side, values.reshape(81, 81), levels=[0.5], colors="w")
        axes.scatter(*X.T, c=np.where(p > 0.5, "#D55E00", "#0072B2"), s=6)
        axes.set_title(name)
    return figure


def _crossing(model: Any, y: float) -> float:
    """Return where the frontier crosses a horizontal line, nearest to x = 0; NaN if nowhere."""
    x = np.linspace(-2, 2, 2001)
    f = model.decision_function(np.column_stack([x, np.full(len(x), y)]))
    at = x[:-1][np.diff(np.sign(f)) != 0]
    return float(at[np.abs(at).argmin()]) if len(at) else float("nan")


def _field(axes: Axes, model: Any, points: np.ndarray, lines: tuple[float, ...]) -> None:
    low, high = points.min(axis=0) - 0.3, points.max(axis=0) + 0.3
    x, y = np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 120)
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    f = model.decision_function(grid).reshape(120, 120)
    styles = ["dashed" if line else "solid" for line in lines]
    axes.contour(x, y, f, levels=lines, colors="k", linestyles=styles)
