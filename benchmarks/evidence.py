"""Test whether the validation tells the truth: ``python -m benchmarks.evidence NAME [options]``.

Every number of docs/evidence.md comes from one of these functions. tests/learning/evaluation also
calls each function with smaller arguments.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import os
import pstats
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.learning.evaluation.folds.crossval import deal_patients, out_of_fold
from cad.learning.evaluation.folds.nested import PatientGridSearch
from cad.learning.evaluation.folds.null import SCHEMES, permutation_null
from cad.learning.evaluation.folds.selection import TTestSelector
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.intervals import bootstrap
from cad.learning.evaluation.readers.mrmc import against_readers, obuchowski_rockette
from cad.learning.learners.averaged import AveragedProbabilisticSVC

SHARED = Path(os.environ.get("CAD_REFERENCE_DATA", Path(__file__).parents[2] / "shared" / "data"))
READERS = SHARED / "readers"
SIGMA = 2.0**5  # kernel width and cost of the clinical study in [N14] V
GAMMA, C_PAPER = 1 / (2 * SIGMA**2), 2.0**13


@dataclass(frozen=True)
class Rois:
    """Hold a simulated table of ROIs; shapes (n, d) and (n,)."""

    X: np.ndarray
    truth: np.ndarray
    p: np.ndarray
    eta: np.ndarray
    patients: np.ndarray
    scores: pd.DataFrame


def simulated(seed: int, patients: int = 49, rois: int = 350, d: int = 60) -> Rois:
    """Draw ROIs of the clinical study's size: a latent malignancy, four readers, features.

    The latent shifts a third of the features; a patient's ROIs share an offset in all features.
    """
    rng = np.random.default_rng(seed)
    owner = np.sort(
        np.concatenate([np.arange(patients), rng.integers(0, patients, rois - patients)])
    )
    truth = (rng.random(rois) < 66 / 350).astype(float)
    latent = 1.8 * truth + rng.normal(size=rois)
    loading = np.where(np.arange(d) < d // 3, rng.normal(0, 0.7, d), 0.0)
    X = np.outer(latent, loading) + rng.normal(size=(rois, d))
    X += 0.7 * rng.normal(size=(patients, d))[owner]
    believed = 0.8 * latent + 0.6 * rng.normal(size=rois)
    views = believed[:, None] + rng.normal(0, (0.5, 0.7, 0.9, 1.1), (rois, 4)) - 0.4
    likert = 1 + np.digitize(views, [-0.6, 0.1, 0.8, 1.5])
    probability = (likert - 1) / 4
    scores = pd.DataFrame(
        {
            "participant_id": np.repeat([f"sub-{i:02d}" for i in owner], 4),
            "roi_id": np.repeat(np.arange(rois).astype(str), 4),
            "reader_id": np.tile(["r1", "r2", "r3", "r4"], rois),
            "scale": "likert5",
            "score": likert.ravel().astype(float),
        }
    )
    eta = np.maximum(probability.std(axis=1, ddof=1), 0.125)
    return Rois(X, truth, probability.mean(axis=1), eta, owner, scores)


def noise_cohort(
    seed: int, patients: int = 20, rois: int = 5, d: int = 10
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw features and labels that have nothing to do with each other."""
    rng = np.random.default_rng([11, seed])
    n = patients * rois
    X = rng.normal(size=(n, d)) + rng.normal(size=(patients, d)).repeat(rois, axis=0)
    y = rng.integers(0, 5, n) / 4
    return X, y, np.arange(patients).repeat(rois)


def noise_row(
    seed: int,
    estimator: Any,
    permutations: int,
    patients: int,
    schemes: tuple[str, ...],
    n_folds: int | None = None,
) -> dict[str, float]:
    """Run one cohort of pure noise through the whole loop.

    Each patient is left out in turn, or each of ``n_folds`` folds of patients.
    """
    X, y, owner = noise_cohort(seed, patients)
    truth, _ = metrics.consensus_truth(y)
    left_out = owner if n_folds is None else deal_patients(owner, n_folds, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        null = permutation_null(
            estimator,
            X,
            y,
            truth,
            groups=left_out,
            patients=owner,
            eta=np.full(len(y), 0.125),
            n=permutations,
            schemes=schemes,
            seed=seed,
        )
    row = {"observed": null.observed}
    for scheme in schemes:
        block = null.schemes[scheme]
        row[f"p {scheme}"] = block.p
        row[f"covered {scheme}"] = block.lower <= null.observed <= block.upper
        row[f"null mean {scheme}"] = block.mean
    return row


def noise(
    cohorts: int = 100,
    permutations: int = 99,
    patients: int = 20,
    schemes: tuple[str, ...] = SCHEMES,
    n_jobs: int = 2,
    estimator: Any = None,
    n_folds: int | None = None,
) -> dict[str, float]:
    """Count how often pure noise counts as evidence, and how often the null covers the AUC."""
    learner = psvm(C=1.0, gamma=0.05) if estimator is None else estimator
    rows: list[dict[str, float]] = []
    jobs = (
        delayed(noise_row)(seed, learner, permutations, patients, schemes, n_folds)
        for seed in range(cohorts)
    )
    for row in Parallel(n_jobs=n_jobs, return_as="generator")(jobs):
        rows.append(row)
        if len(rows) % 10 == 0:  # shows progress, since all cohorts together take 20 CPU minutes
            counts = [f"{s} {sum(r[f'p {s}'] < 0.05 for r in rows)}" for s in schemes]
            print(f"{len(rows)} of {cohorts} cohorts, p < .05: {', '.join(counts)}", flush=True)
    table = pd.DataFrame(rows)
    measured: dict[str, float] = {"cohorts": float(cohorts), "permutations": float(permutations)}
    for scheme in schemes:
        measured[f"p < .05 {scheme}"] = float((table[f"p {scheme}"] < 0.05).sum())
        measured[f"covered {scheme}"] = float(table[f"covered {scheme}"].sum())
        measured[f"mean null AUC {scheme}"] = float(table[f"null mean {scheme}"].mean())
    measured["mean AUC"] = float(table["observed"].mean())
    return measured


def shipped_noise(cohorts: int = 100, n_jobs: int = 2) -> dict[str, float]:
    """Count as :func:`noise` does, with the released P-SVM.

    The released P-SVM averages many settings, each of which is fitted on inner folds. So it takes
    longer than a P-SVM with fixed settings. To make up for this, five folds of patients are left
    out instead of single patients, labels are exchanged between patients only, and there are 39
    permutations. The least p-value is therefore .025.
    """
    return noise(
        cohorts,
        permutations=39,
        schemes=("between",),
        n_jobs=n_jobs,
        estimator=AveragedProbabilisticSVC(),
        n_folds=5,
    )


def leak(
    seed: int = 0, d: int = 500, permutations: int = 99, n_jobs: int = 2, estimator: Any = None
) -> dict[str, float]:
    """Compare feature selection on noise outside the fold (wrong) and inside it (right)."""
    rng = np.random.default_rng([13, seed])
    groups = np.arange(20).repeat(5)
    X = rng.normal(size=(100, d))
    y = rng.integers(0, 2, 100).astype(float)
    learner = psvm(C=1.0, gamma=0.1) if estimator is None else estimator
    outside = TTestSelector(5).fit_transform(X, y)
    steps = [("select", TTestSelector(5)), *clone(learner).steps]
    options: dict[str, Any] = {
        "groups": groups,
        "n": permutations,
        "schemes": ("between",),
        "seed": seed,
        "n_jobs": n_jobs,
    }
    eta = np.full(100, 0.125)
    wrong = permutation_null(learner, outside, y, y, eta=eta, **options)
    right = permutation_null(Pipeline(steps), X, y, y, eta=eta, **options)
    return {
        "AUC selected outside": wrong.observed,
        "p outside (between)": wrong.schemes["between"].p,
        "null upper end outside": wrong.schemes["between"].upper,
        "AUC selected inside": right.observed,
        "p inside (between)": right.schemes["between"].p,
    }


def readers(data: Path) -> dict[str, float]:
    """Reproduce published multi-reader results: Van Dyke, and CAD against nine radiologists."""
    table = pd.read_csv(data / "van_dyke.csv")
    wide = table.pivot(index="case", columns=["treatment", "reader"], values="rating")
    truth = table.drop_duplicates("case").set_index("case")["truth"].loc[wide.index]
    both = obuchowski_rockette(truth, wide.to_numpy().T.reshape(2, 5, -1))
    table = pd.read_csv(data / "cad_vs_radiologists.csv")
    found = {
        "Van Dyke AUC 1": float(both.treatment_aucs[0]),
        "Van Dyke AUC 2": float(both.treatment_aucs[1]),
        "Van Dyke F": both.f,
        "Van Dyke p": both.p,
    }
    # Location counts in this reading (LROC): a diseased case with a mark elsewhere ranks below all
    # normal cases.
    located = table["rating"].where(
        table["truth"] == 0, table["rating_correct_location"].replace(0, -1)
    )
    for name, rating in (("ROC", table["rating"]), ("LROC", located)):
        wide = table.assign(rating=rating).pivot(index="case", columns="reader", values="rating")
        truth = table.drop_duplicates("case").set_index("case")["truth"].loc[wide.index]
        beside = against_readers(truth, wide[1], wide.drop(columns=1).to_numpy().T)
        found[f"CAD {name} AUC"] = beside.cad_auc
        found[f"radiologists {name} mean AUC"] = float(beside.reader_aucs.mean())
        found[f"CAD against radiologists {name} p"] = beside.p
    return found


def cpu_seconds() -> float:
    """Return CPU time of this process and its workers; wall time means little on a busy machine."""
    # Only workers that have ended are counted in the usage of children.
    get_reusable_executor().shutdown(wait=True)
    own, workers = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + workers.ru_utime + workers.ru_stime


def psvm(**params: Any) -> Pipeline:
    """Return a pipeline of scaling and a P-SVM."""
    from cad.learners import LEARNERS

    return Pipeline(
        [("scale", StandardScaler()), ("learner", LEARNERS["ProbabilisticSVC"](**params))]
    )


def imputed_psvm(**params: Any) -> Pipeline:
    """Return a pipeline of median imputation, scaling and a P-SVM, for measured features."""
    return Pipeline([("impute", SimpleImputer(strategy="median")), *psvm(**params).steps])


def speed_lopo(bootstraps: int = 100) -> dict[str, float]:
    """Run P-SVM, F-SVM and SVM, leave-one-patient-out, 49 patients, 350 ROIs, one process."""
    from cad.learners import LEARNERS

    data = simulated(0)
    found: dict[str, float] = {}
    start, cpu = time.perf_counter(), cpu_seconds()
    for name in ("ProbabilisticSVC", "FuzzySVC", "PlattSVC"):
        begin = time.perf_counter()
        learner = LEARNERS[name](C=C_PAPER, gamma=GAMMA)
        estimator = Pipeline([("scale", StandardScaler()), ("learner", learner)])
        result = out_of_fold(estimator, data.X, data.p, groups=data.patients, eta=data.eta)
        known = np.isfinite(result.centred)
        score = result.centred[known]
        bootstrap(
            lambda r, y=data.truth[known], s=score: np.array([metrics.auc(y[r], s[r])]),
            data.patients[known],
            bootstraps,
            seed=0,
        )
        found[f"{name} s"] = time.perf_counter() - begin
        found[f"{name} AUC"] = metrics.auc(data.truth[known], score)
        found[f"{name} failed folds"] = float(sum(bool(f.error) for f in result.folds))
    found["all s"] = time.perf_counter() - start
    found["CPU s"] = cpu_seconds() - cpu
    return found


def speed_nested(size: int = 10, n_jobs: int = 2) -> dict[str, float]:
    """Run a nested P-SVM: size x size grid, 5 inner folds, 49 outer folds."""
    data = simulated(0)
    grid = {
        "gamma": [float(v) for v in 2.0 ** np.linspace(-13, -4, size)],
        "C": [float(v) for v in 2.0 ** np.linspace(-4, 14, size)],
    }
    search = PatientGridSearch(psvm(), grid)
    start, cpu = time.perf_counter(), cpu_seconds()
    result = out_of_fold(search, data.X, data.p, groups=data.patients, eta=data.eta, n_jobs=n_jobs)
    seconds = time.perf_counter() - start
    known = np.isfinite(result.probability)
    return {
        "nested s (bound: 180)": seconds,
        "CPU s": cpu_seconds() - cpu,
        "fits": float(len(result.folds) * 5 * size * size),
        "failed folds": float(sum(bool(f.error) for f in result.folds)),
        "AUC": metrics.auc(data.truth[known], result.centred[known]),
        "cross-entropy against readers": metrics.cross_entropy(
            data.p[known], result.probability[known]
        ),
    }


def speed_null(permutations: int = 200, n_jobs: int = 2) -> dict[str, float]:
    """Run permutations of the whole leave-one-patient-out loop at C = 100."""
    data = simulated(0)
    start, cpu = time.perf_counter(), cpu_seconds()
    found = permutation_null(
        psvm(C=100.0, gamma=GAMMA),
        data.X,
        data.p,
        data.truth,
        groups=data.patients,
        eta=data.eta,
        n=permutations,
        schemes=("between",),
        n_jobs=n_jobs,
    )
    block = found.schemes["between"]
    seconds = time.perf_counter() - start
    return {
        "null s (bound: 120)": seconds,
        "CPU s": cpu_seconds() - cpu,
        "permutations": float(permutations),
        "failed": float(block.failed),
        "observed": found.observed,
        "null mean": block.mean,
        "p": block.p,
    }


def profile(folds: int = 2) -> str:
    """Show where the time of the nested search goes: a few outer folds in one process."""
    data = simulated(0)
    grid = {
        "gamma": [float(v) for v in 2.0 ** np.linspace(-13, -4, 10)],
        "C": [float(v) for v in 2.0 ** np.linspace(-4, 14, 10)],
    }
    search = PatientGridSearch(psvm(), grid)
    group = np.where(data.patients < folds, data.patients, folds)
    watch = cProfile.Profile()
    watch.enable()
    out_of_fold(
        search,
        data.X,
        data.p,
        groups=group,
        patients=data.patients,
        eta=data.eta,
    )
    watch.disable()
    text = io.StringIO()
    pstats.Stats(watch, stream=text).sort_stats("tottime").print_stats(18)
    return text.getvalue()


def main() -> None:
    """Run one measurement and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence")
    choices = "noise shipped-noise leak readers speed-lopo speed-nested speed-null profile"
    parser.add_argument("name", choices=choices.split())
    parser.add_argument("--cohorts", type=int, help="simulated cohorts")
    parser.add_argument("--scheme", choices=SCHEMES, help="noise: one permutation scheme only")
    parser.add_argument("--data", type=Path, default=READERS, help="readers: folder of the tables")
    parser.add_argument(
        "--jobs", type=int, default=2, help="shipped-noise, speed-nested, speed-null: processes"
    )
    given = parser.parse_args()
    if given.name == "readers" and not (given.data / "van_dyke.csv").is_file():
        parser.error(f"no van_dyke.csv in {given.data}: say where it is with --data FOLDER")
    some = {} if given.cohorts is None else {"cohorts": given.cohorts}
    work: dict[str, Callable[[], Any]] = {
        "noise": lambda: noise(**some, schemes=(given.scheme,) if given.scheme else SCHEMES),
        "shipped-noise": lambda: shipped_noise(**some, n_jobs=given.jobs),
        "leak": leak,
        "readers": lambda: readers(given.data),
        "speed-lopo": speed_lopo,
        "speed-nested": lambda: speed_nested(n_jobs=given.jobs),
        "speed-null": lambda: speed_null(n_jobs=given.jobs),
        "profile": profile,
    }
    start = time.perf_counter()
    found = work[given.name]()
    print(found if isinstance(found, str) else json.dumps(found, indent=2))
    busy = os.getloadavg()[0]
    print(f"{given.name}: {time.perf_counter() - start:.1f} s (load average {busy:.1f})")


if __name__ == "__main__":
    main()
