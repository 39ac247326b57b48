"""[W14] Figs 3 and 4 on a cohort's regions: eight rankers, transductive per batch of patients."""

import warnings

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from matplotlib.figure import Figure
from scipy.spatial.distance import pdist
from sklearn import config_context

from cad.execution.options import ExecutionOptions
from cad.experiments import Options
from cad.experiments.results import Result
from cad.experiments.uci import encode
from cad.experiments.wang2014 import METHODS, WIDTH_PERCENTILE, Split, aucs, draw_map
from cad.pipeline import aggregate_cohort
from cad.settings import PipelineSettings, read_settings
from cad.share import find

BATCHES = 5
# [W14] Fig. 3 gives these two in the text, on another organ: CT colonography.
PUBLISHED = {"RankBoost": 0.914, "SSLROC2": 0.909}


def roi(options: Options) -> Result:
    """Reproduce Figs 3 and 4 on regions: the AUC of eight rankers, and maps over C and M.

    ``options.repeats`` is the number of batches of patients.
    """
    settings = read_settings(PipelineSettings, find("pipelines", "psvm", ".yaml"))
    found = aggregate_cohort(
        settings,
        options.folder("a cohort"),
        options.out / "features",
        ExecutionOptions(options.jobs),
    )
    table, cohort = found.table, "Simulated cohort" if found.simulated else "Cohort"
    truth = table.labels["truth"].to_numpy(float)
    histology = bool(np.isfinite(truth).any())
    y = truth if histology else np.where(np.isfinite(table.y), table.y > 0.5, np.nan)
    return compare_losses(table.X, y, table.groups, options, cohort, histology)


def compare_losses(
    X: pd.DataFrame,
    y: np.ndarray,
    patients: np.ndarray,
    options: Options,
    cohort: str = "Cohort",
    histology: bool = True,
) -> Result:
    """Take every batch of patients in turn as new, its regions joining without a label.

    Parameters
    ----------
    X : DataFrame, shape (n, d)
        Features.
    y : ndarray, shape (n,)
        1, 0 or NaN for unknown; unknown regions are left out.
    patients : ndarray of str, shape (n,)
    options : Options
        ``repeats`` batches, ``jobs`` processes.
    cohort : str
        First word of the description.
    histology : bool
        What y is.
    """
    known = np.isfinite(y)
    X, y, patients = X[known].reset_index(drop=True), y[known], patients[known]
    batches = options.repeats or BATCHES
    batch = np.unique(patients, return_inverse=True)[1] % batches
    # A batch of one class has no AUC.
    usable = [b for b in range(batches) if len(np.unique(y[batch == b])) == 2]
    # Tested on the first of a pair, learned without either: (b, b) is batch b itself, the others
    # choose its grid point by models that saw no label of b.
    pairs = [(a, b) for b in usable for a in usable]
    work = (delayed(_one_batch)(X, y, batch == a, (batch == a) | (batch == b)) for a, b in pairs)
    tested = dict(zip(pairs, Parallel(n_jobs=options.jobs)(work), strict=True))
    found = [tested[b, b] for b in usable]
    summary = pd.DataFrame([_row(method, tested, usable) for method in METHODS])
    maps = {
        m: np.mean([part[m] for part in found], axis=0).tolist() for m in ("SSLROC1", "SSLROC2")
    }
    best = str(summary.loc[summary["AUC"].idxmax(), "method"])
    return Result(
        "Eight rankers on regions: [W14] Figs 3 and 4",
        f"{cohort}: {len(np.unique(patients))} patients, {len(y)} regions, {int(y.sum())} positive "
        f"({'histology' if histology else 'thresholded consensus, ties negative'}), {X.shape[1]} "
        f"features; {len(usable)} batches of patients, each in turn new: its regions are the "
        "unlabelled rows of the semi-supervised methods. Imputation, z-scores and kernel width "
        "come from labelled patients. AUC: the grid point that is best on the other batches, by "
        "models without a label of the tested one; beside it the best on the tested batches, as in "
        "the paper. Means over batches.",
        {"AUC of the eight methods": summary},
        {"AUC (Fig. 3), bars are standard errors": _bars(summary), "C and M (Fig. 4)": _maps(maps)},
        [
            f"Highest here: {best}. The paper's data are CT colonography (RankBoost .914, SSLROC2 "
            ".909): the order of methods is a question to the data, not a property of the methods."
        ],
    )


def _row(
    method: str, tested: dict[tuple[int, int], dict[str, np.ndarray]], batches: list[int]
) -> dict[str, object]:
    grid = np.array([tested[b, b][method] for b in batches])
    chosen = [
        int(np.mean([tested[a, b][method] for a in batches if a != b], axis=0).argmax())
        for b in batches
    ]
    values = grid[np.arange(len(grid)), chosen]
    return {
        "method": method,
        "AUC": float(values.mean()),
        "standard error": float(values.std(ddof=1) / np.sqrt(len(values))),
        "best of the grid on the tested batches": float(grid.mean(axis=0).max()),
        "published, CT colonography": PUBLISHED.get(method, np.nan),
    }


def _one_batch(
    X: pd.DataFrame, y: np.ndarray, new: np.ndarray, left_out: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the AUC of every method and grid point on new rows, learned without ``left_out``."""
    train, test = np.flatnonzero(~left_out), np.flatnonzero(new)
    rows = encode(X, train)
    width = np.percentile(pdist(rows[train]), WIDTH_PERCENTILE)
    split = Split(rows[train], y[train], rows[test], float(1.0 / (2.0 * width**2)))
    with warnings.catch_warnings(), config_context(assume_finite=True):
        warnings.simplefilter("ignore")  # grids reach where solvers complain
        return {
            name: aucs(y[test], scores(split, grid)) for name, (grid, scores) in METHODS.items()
        }


def _bars(summary: pd.DataFrame) -> Figure:
    figure = Figure(figsize=(9.5, 3.5))
    axes = figure.subplots()
    axes.bar(summary["method"], summary["AUC"], yerr=summary["standard error"], color="#0072B2")
    axes.set(ylabel="AUC", ylim=(0.5, 1.0))
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _maps(maps: dict[str, list[float]]) -> Figure:
    figure = Figure(figsize=(7, 3))
    for axes, (method, values) in zip(figure.subplots(1, 2), maps.items(), strict=True):
        draw_map(axes, values, method)
    figure.tight_layout()
    return figure
