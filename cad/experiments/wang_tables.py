"""[W14]'s published numbers, and ours beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import wilcoxon

from cad.evaluation.folds.compare import hochberg
from cad.experiments.results import Result
from cad.experiments.wang_methods import C_SSL, M_SSL, METHODS

Found = dict[str, dict[str, dict[str, Any]]]

# [W14] Table 2, mean AUC per set, in the order of METHODS.
PUBLISHED: dict[str, tuple[float, ...]] = {
    "Abalone": (0.700, 0.699, 0.620, 0.701, 0.704, 0.654, 0.703, 0.702),
    "Arcene_train": (0.806, 0.806, 0.659, 0.701, 0.811, 0.707, 0.815, 0.818),
    "Blood": (0.735, 0.735, 0.689, 0.716, 0.725, 0.691, 0.737, 0.736),
    "Breast": (0.906, 0.927, 0.946, 0.877, 0.926, 0.915, 0.910, 0.930),
    "Bupaliver": (0.631, 0.627, 0.631, 0.641, 0.648, 0.652, 0.638, 0.632),
    "Cancer_wbc": (0.993, 0.993, 0.974, 0.993, 0.994, 0.984, 0.994, 0.993),
    "Cardio": (0.984, 0.979, 0.963, 0.984, 0.982, 0.978, 0.983, 0.979),
    "cmc": (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.999, 1.0),
    "cnae_9": (0.932, 0.938, 0.904, 0.958, 0.959, 0.927, 0.943, 0.943),
    "Credit_g": (0.734, 0.734, 0.700, 0.725, 0.719, 0.699, 0.733, 0.734),
    "Derm": (0.993, 0.994, 0.960, 0.994, 0.991, 0.981, 0.996, 0.996),
    "E.coli": (0.948, 0.952, 0.860, 0.931, 0.917, 0.922, 0.947, 0.951),
    "Glass": (0.963, 0.964, 0.905, 0.954, 0.964, 0.934, 0.970, 0.970),
    "Heart": (0.923, 0.925, 0.880, 0.928, 0.923, 0.892, 0.925, 0.925),
    "Hepatitis": (0.856, 0.853, 0.753, 0.842, 0.854, 0.803, 0.854, 0.851),
    "House": (0.988, 0.988, 0.983, 0.989, 0.989, 0.984, 0.991, 0.990),
    "Ionosphere": (0.951, 0.946, 0.914, 0.889, 0.933, 0.901, 0.964, 0.962),
    "Iris": (1.0, 1.0, 0.998, 1.0, 1.0, 0.999, 1.0, 1.0),
    "Kidney_inflam": (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    "Kr vs kp": (0.884, 0.884, 0.934, 0.873, 0.891, 0.934, 0.892, 0.888),
    "Mushroom": (0.954, 0.957, 0.955, 0.954, 0.949, 0.956, 0.961, 0.961),
    "Parkinsons": (0.878, 0.878, 0.885, 0.879, 0.877, 0.885, 0.878, 0.879),
    "pima": (0.766, 0.767, 0.729, 0.766, 0.778, 0.736, 0.784, 0.777),
    "Post_op": (0.604, 0.606, 0.593, 0.607, 0.595, 0.606, 0.607, 0.606),
    "sonar": (0.830, 0.850, 0.842, 0.839, 0.833, 0.837, 0.845, 0.849),
    "Spectf": (0.852, 0.852, 0.736, 0.852, 0.834, 0.783, 0.849, 0.852),
    "Statlog": (0.928, 0.925, 0.887, 0.924, 0.926, 0.885, 0.928, 0.927),
    "Survival": (0.646, 0.644, 0.616, 0.646, 0.642, 0.616, 0.647, 0.658),
    "Teach": (0.708, 0.710, 0.684, 0.670, 0.675, 0.700, 0.731, 0.726),
    "Tictactoe": (0.750, 0.744, 0.762, 0.679, 0.692, 0.765, 0.774, 0.782),
    "Vehicle": (0.949, 0.951, 0.859, 0.850, 0.937, 0.877, 0.956, 0.966),
    "Weight": (0.988, 0.989, 0.958, 0.974, 0.988, 0.913, 0.988, 0.988),
    "Wine": (1.0, 1.0, 0.976, 1.0, 1.0, 0.994, 1.0, 1.0),
    "Zoo": (0.989, 0.990, 0.992, 0.990, 0.991, 0.991, 0.991, 0.991),
}
PUBLISHED_MEAN = (0.875, 0.877, 0.845, 0.863, 0.872, 0.856, 0.880, 0.881)
NOTABLE = 0.02
_TIE = 0.0005  # the paper prints three digits


# What is known about sets whose numbers differ, each checked by hand.
REASONS = {
    "cmc": "no method comes near 1.0 from these attributes: the published label must be another "
    "one (the manifest doubts 'Long/use of contraceptives')",
    "Zoo": "not the one-hot animal name (without it the SVM has .885 as well): with .99 the "
    "published label is likely another one than 'aquatic'",
    "Bupaliver": "drinks > 5 as label is a reading of the text; another one is likely meant",
    "Mushroom": "one-hot columns; coded as integers the SVM has .965",
    "Arcene_train": "which half of the copy is the training half rests on row order (manifest)",
    "Tictactoe": "one-hot squares; coded as integers the linear methods fall to the published "
    "level (SVMlin .684, OPAUC .692)",
}


def assemble(found: Found, spread: dict[str, list[float]], repeats: int, seconds: float) -> Result:
    """Return tables and figures from the AUCs of every protocol, set and method.

    ``spread`` holds the SVM's mean AUC of every set for other draws of rows and folds.
    """
    names = list(spread)
    means = {
        mode: pd.DataFrame(
            {m: [float(np.mean(sets[n][m]["auc"])) for n in names] for m in METHODS}, index=names
        )
        for mode, sets in found.items()
    }
    published = pd.DataFrame([PUBLISHED[n] for n in names], index=names, columns=list(METHODS))
    tables = {"Mean AUC over the sets": _summary(means, published, len(names) == len(PUBLISHED))}
    for mode, table in means.items():
        tables[f"Table 2, {mode}"] = table.round(3).rename_axis("set").reset_index()
        tables[f"Table 3, {mode}: wins-ties-losses of the row"] = _wins(table)
        if len(names) >= 6:
            tables[f"Table 4, {mode}: Wilcoxon signed-rank p"] = _wilcoxon(table)
    tables[f"Sets where a method differs by more than {NOTABLE} with flaws"] = _differences(
        means["with flaws"], published, spread
    )
    return Result(
        "Eight rankers on UCI sets: [W14] Tables 2 to 4, Fig. 1",
        f"{len(names)} sets, at most 100 random rows each (seed 0), {repeats} x 2-fold, test rows "
        "unlabelled for the semi-supervised methods. 'With flaws': the grid's best value on the "
        "test folds, encoding and kernel width from all rows, folds below .5 flipped, leaking "
        "columns kept, as in the paper or its code. 'Honest': three inner folds choose, "
        "everything is fitted on training rows, nothing is flipped, leaking columns are dropped. "
        f"{seconds / 60:.0f} minutes of one processor.",
        tables,
        {"Mean AUC against C and M, with flaws (Fig. 1)": _maps(found["with flaws"], names)},
        [
            "Which rows were drawn, their encoding and the folds are not published; the last table "
            "shows what another draw alone does to the SVM.",
            *_findings(means),
            "The manifest's doubts apply: the labels of Bupaliver, Cardio and cmc are readings of "
            "the text. Cardio's published .98 needs its leaking columns: without "
            "them the same SVM, chosen inside, has .79.",
        ],
    )


def _findings(means: dict[str, pd.DataFrame]) -> list[str]:
    """Say what the protocol does to the paper's conclusion."""
    average = {mode: table.mean() for mode, table in means.items()}
    ahead = {m: max(a["SSLROC1"], a["SSLROC2"]) - a["SVM"] for m, a in average.items()}
    drop = average["with flaws"] - average["honest"]
    return [
        f"The better SSLROC is {ahead['with flaws']:+.3f} from the SVM with flaws and "
        f"{ahead['honest']:+.3f} when the choice is made inside the training rows.",
        f"Choosing inside costs {drop.min():.3f} ({drop.idxmin()}) to {drop.max():.3f} "
        f"({drop.idxmax()}): the larger the grid, the more the best value on the test folds "
        "flatters (OPAUC has 299 points, the SVM 7).",
        "SSRankBoost's neighbours see test rows but no test label: its scores do not change when "
        "test rows are permuted, and at discount 0 it is RankBoost.",
    ]


def _summary(
    means: dict[str, pd.DataFrame], published: pd.DataFrame, complete: bool
) -> pd.DataFrame:
    rows = [{"protocol": mode, **table.mean().round(3)} for mode, table in means.items()]
    paper = dict(zip(METHODS, PUBLISHED_MEAN, strict=True)) if complete else published.mean()
    return pd.DataFrame([*rows, {"protocol": "published", **paper}])


def _wins(table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for a in table:
        row: dict[str, object] = {"method": a}
        for b in table:
            gap = table[a] - table[b]
            won, lost = int((gap > _TIE).sum()), int((gap < -_TIE).sum())
            row[str(b)] = f"{won}-{len(gap) - won - lost}-{lost}"
        rows.append(row)
    return pd.DataFrame(rows)


def _wilcoxon(table: pd.DataFrame) -> pd.DataFrame:
    """Return p-values of all pairs; a star where Hochberg's procedure rejects at .05."""
    names = list(table)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    p = [_signed_rank(table[a] - table[b]) for a, b in pairs]
    adjusted = hochberg(p)
    cell = {
        pair: f"{value:.3f}{'*' if q < 0.05 else ''}"
        for pair, value, q in zip(pairs, p, adjusted, strict=True)
    }
    return pd.DataFrame(
        [{"method": a, **{b: cell.get((a, b), cell.get((b, a), "")) for b in names}} for a in names]
    )


def _signed_rank(gap: pd.Series) -> float:
    return 1.0 if (gap == 0).all() else float(wilcoxon(gap, zero_method="zsplit").pvalue)


def _differences(
    ours: pd.DataFrame, published: pd.DataFrame, spread: dict[str, list[float]]
) -> pd.DataFrame:
    """Return the largest difference set by set, and what the draw of rows does to the SVM."""
    rows = []
    for name, gap in (ours - published).iterrows():
        if gap.abs().max() <= NOTABLE:
            continue
        draws = np.array(spread[str(name)])
        own = published.loc[name, "SVM"]
        inside = draws.min() - _TIE <= own <= draws.max() + _TIE
        by_draw = f"the draw of rows and folds: {len(draws)} draws reach the published SVM"
        rows.append(
            {
                "set": name,
                "mean difference": float(gap.mean()),
                "largest": f"{gap[gap.abs().idxmax()]:+.3f} ({gap.abs().idxmax()})",
                f"SVM over {len(draws)} draws": f"{draws.min():.3f} to {draws.max():.3f}",
                "SVM published": float(own),
                "draws not above it": int((draws <= own + _TIE).sum()),
                "why": REASONS.get(str(name), by_draw if inside else "not explained"),
            }
        )
    table = pd.DataFrame(rows)
    return table.sort_values("mean difference", key=abs, ascending=False) if rows else table


def _maps(sets: dict[str, dict[str, Any]], names: list[str]) -> Figure:
    shown = names[:3]
    figure = Figure(figsize=(7, 2.6 * len(shown)))
    for row, name in zip(figure.subplots(len(shown), 2, squeeze=False), shown, strict=True):
        for axes, method in zip(row, ("SSLROC1", "SSLROC2"), strict=True):
            draw_map(axes, sets[name][method]["grid"], f"{name}, {method}")
    figure.tight_layout()
    return figure


def draw_map(axes: Any, values: list[float], title: str) -> None:
    """Draw the AUC of SSLROC's grid as a map over C and M."""
    image = axes.imshow(np.reshape(values, (len(C_SSL), len(M_SSL))), cmap="cividis")
    axes.set(title=title, xlabel="log10 M", ylabel="log10 C")
    axes.set_xticks(range(len(M_SSL)), [f"{np.log10(m):g}" for m in M_SSL])
    axes.set_yticks(range(len(C_SSL)), [f"{np.log10(c):g}" for c in C_SSL])
    axes.figure.colorbar(image, ax=axes)
