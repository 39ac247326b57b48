"""Test whether noise is measured as noise: ``python -m benchmarks.noise [--whole] [--jobs N]``.

Cohorts whose labels have nothing to do with the features pass through the whole validation. The AUC
of every shipped learner and rival under every fold scheme must be one half. Two learners must
"differ beyond chance" no more often than chance allows. With an effect, intervals must cover the
AUC that the fitted learner has on fresh regions. The validated negative predictive value must not
be below the value that fresh patients get. The command ends with exit code 1 if any of this does
not hold. The reduced design takes about 35 minutes on two cores, and the whole grid a night.
tests/learning/evaluation/test_noise.py runs a small part.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy import special
from scipy.stats import t as t_distribution
from sklearn.base import clone

from cad.base.files import write_csv
from cad.learning.evaluation.folds.ask import positive_probability
from cad.learning.evaluation.folds.crossval import OutOfFold, deal_patients, out_of_fold
from cad.learning.evaluation.folds.nested import PatientGridSearch
from cad.learning.evaluation.folds.paired import compare_probabilities
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.intervals import Interval, clustered_auc
from cad.learning.learners.averaged import AveragedProbabilisticSVC
from cad.learning.learners.ensemble import ProbabilisticEnsemble
from cad.learning.learners.rivals import SoftLogistic, histology_rivals, rival_learners

SHIPPED = "P-SVM (pipelines/psvm)"
FEATURES, ROIS, SITES, FOLDS = 10, 4, 4, 5
SCHEMES = ("patients", "sites", "folds")
ALIKE = {"plain": 0.0, "clustered": 0.7}
"""Standard deviation of the part of features and labels that a patient's regions share.

The standard deviation of a region's own part is 1.
"""
FRESH = 25_000  # patients of the cohort on which a coverage or a predictive value is measured
CHANCE = 0.05  # largest share of differences beyond chance between learners from noise
SLACK = 0.03  # largest distance of a mean AUC from one half
COVERED = (0.93, 0.97)  # least and largest share of intervals that hold the fresh AUC
NPV_SLACK = 0.01  # by how much a validated predictive value may be below the true one


@dataclass(frozen=True)
class Regions:
    """Hold a simulated cohort: features (n, d); truth and patient of every region (n,)."""

    X: np.ndarray
    truth: np.ndarray
    patients: np.ndarray


def draw(seed: int, patients: int, kind: str = "plain", effect: float = 0.0) -> Regions:
    """Draw a cohort in which labels move three features by ``effect`` in total, or not at all."""
    rng = np.random.default_rng([31, seed])
    owner = np.arange(patients).repeat(ROIS)
    n = len(owner)
    alike = ALIKE[kind]
    latent = rng.normal(size=n) + alike * rng.normal(size=patients)[owner]
    truth = (latent > 0.7 * np.sqrt(1 + alike**2)).astype(float)
    X = rng.normal(size=(n, FEATURES)) + alike * rng.normal(size=(patients, FEATURES))[owner]
    X[:, :3] += effect * truth[:, None] / np.sqrt(3)
    return Regions(X, truth, owner)


def learners() -> dict[str, Any]:
    """Return the shipped learners and the learners they are compared with, unfitted, by name."""
    return {
        SHIPPED: AveragedProbabilisticSVC(),
        "ensemble (pipelines/ensemble)": ProbabilisticEnsemble(),
        **rival_learners(),
        **histology_rivals(),
        "nested, chosen by AUC": PatientGridSearch(
            SoftLogistic(Cs=(0.1,)), {"Cs": [(0.001,), (0.01,), (0.1,)]}, criterion="auc"
        ),
    }


def left_out(scheme: str, patients: np.ndarray, seed: int) -> np.ndarray:
    """Return groups that are left out together: each patient, each site, or each of five folds."""
    if scheme == "patients":
        return patients
    if scheme == "sites":
        return np.array([f"site {k}" for k in patients % SITES])
    return deal_patients(patients, FOLDS, seed)


def validated(learner: Any, regions: Regions, scheme: str, seed: int) -> OutOfFold:
    """Return a learner's out-of-fold predictions for one cohort."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return out_of_fold(
            learner,
            regions.X,
            regions.truth,
            groups=left_out(scheme, regions.patients, seed),
            patients=regions.patients,
        )


def one_cohort(seed: int, patients: int, kind: str, scheme: str, names: tuple[str, ...]) -> Any:
    """Return a cohort's rows: AUCs of each learner, and which learners "differ".

    An AUC is centred, less the base alone, or pooled over the folds as the probabilities are.
    """
    regions = draw(seed, patients, kind)
    cell = {"patients": patients, "kind": kind, "scheme": scheme, "seed": seed}
    made = {name: validated(learners()[name], regions, scheme, seed) for name in names}
    rows = []
    for name, folds in made.items():
        rows.append(
            {
                **cell,
                "learner": name,
                "auc": metrics.auc(regions.truth, folds.centred),
                "less the base": metrics.auc(regions.truth, folds.shifted),
                "pooled": metrics.auc(regions.truth, folds.probability),
                "beyond chance": np.nan,
            }
        )
    if len(made) > 1:
        table = compare_probabilities(
            {name: folds.probability for name, folds in made.items()},
            regions.patients,
            reference=names[0],
            truth=regions.truth,
            centred={name: folds.centred for name, folds in made.items()},
            n_folds=len(next(iter(made.values())).folds),
        ).table
        table = table[table["measure"] == "auc"].set_index("learner")
        for row in rows[1:]:
            row["beyond chance"] = float(table.at[row["learner"], "beyond_chance"])
    return rows


def noise(
    sizes: tuple[int, ...],
    schemes: tuple[str, ...] = SCHEMES,
    kinds: tuple[str, ...] = ("plain", "clustered"),
    names: tuple[str, ...] | None = None,
    cohorts: int = 100,
    jobs: int = 1,
) -> pd.DataFrame:
    """Return one row per cell: mean AUC on noise, its standard error, and whether it passes.

    A cell passes on two conditions. The 95 % interval of its mean AUC reaches into the range from
    .47 to .53. The mean lies at most three standard errors from one half.
    """
    chosen = names or tuple(learners())
    work = [
        (seed, patients, kind, scheme, chosen)
        for patients in sizes
        for kind in kinds
        for scheme in schemes
        for seed in range(cohorts)
    ]
    rows_of_cohorts = Parallel(n_jobs=jobs)(delayed(one_cohort)(*piece) for piece in work)
    table = pd.DataFrame([row for rows in rows_of_cohorts for row in rows])
    cells = []
    for cell, rows in table.groupby(["patients", "kind", "scheme", "learner"], sort=False):
        mean = float(rows["auc"].mean())
        error = float(rows["auc"].std(ddof=1) / np.sqrt(len(rows)))
        away = abs(mean - 0.5)
        cells.append(
            {
                **dict(zip(("patients", "kind", "scheme", "learner"), cell, strict=True)),
                "AUC": mean,
                "standard error": error,
                "less the base": float(rows["less the base"].mean()),
                "pooled": float(rows["pooled"].mean()),
                "beyond chance": float(rows["beyond chance"].mean()),
                "passes": bool(away - 1.96 * error <= SLACK and away <= 3 * error),
            }
        )
    return pd.DataFrame(cells)


def refused(cells: pd.DataFrame, cohorts: int) -> list[str]:
    """Return results that noise should not give: cells that do not pass, too many differences.

    Parameters
    ----------
    cells : DataFrame
        From :func:`noise`.
    cohorts : int
        Number of cohorts of a cell, on which all learners are compared.
    """
    problems = []
    for cell in cells[~cells["passes"]].to_dict("records"):
        problems.append(
            f"{cell['learner']}, {cell['patients']} patients, {cell['kind']}, by {cell['scheme']}: "
            f"AUC {cell['AUC']:.3f}"
        )
    compared = cells[cells["beyond chance"].notna()]  # none where one learner is measured
    for scheme, rows in compared.groupby("scheme"):
        share = float(rows["beyond chance"].mean())
        # All learners in a cohort have the same labels, so that cohorts are counted and not
        # comparisons.
        independent = cohorts * len(rows[["patients", "kind"]].drop_duplicates())
        error = np.sqrt(CHANCE * (1 - CHANCE) / independent)
        if share > CHANCE + 2 * error:
            problems.append(f"by {scheme}: {share:.3f} of the differences are beyond chance")
    return problems


def refused_effects(table: pd.DataFrame, cohorts: int) -> list[str]:
    """Return effects whose intervals cover too rarely or too often, or whose NPV is too low.

    Parameters
    ----------
    table : DataFrame
        From :func:`effects`.
    cohorts : int
        Number of cohorts of each effect. The share of covering intervals may lie outside its range
        by two standard errors of a share that is counted over so many cohorts.
    """
    problems = []
    for row in table.to_dict("records"):
        effect = f"effect {row['effect']:g}"
        for bound, beyond in zip(COVERED, (-1, 1), strict=True):
            error = np.sqrt(bound * (1 - bound) / cohorts)
            if beyond * (row["covered"] - bound) > 2 * error:
                problems.append(f"{effect}: {row['covered']:.3f} of the intervals cover")
        validated = row["NPV validated"]
        fresh = row["NPV fresh"]
        if validated < fresh - NPV_SLACK:
            problems.append(
                f"{effect}: the validated NPV is {validated:.3f}, of fresh patients {fresh:.3f}"
            )
    return problems


def npv(truth: np.ndarray, q: np.ndarray, threshold: float) -> float:
    """Return the share of regions below a threshold that are benign; NaN where none is below."""
    called = q < threshold
    return float(1 - truth[called].mean()) if called.any() else np.nan


def variance_of_logit(interval: Interval, patients: int) -> float:
    """Return the variance of the logit of an AUC from its 95 % interval by Student's t."""
    width = float(special.logit(interval.upper) - special.logit(interval.lower))
    quantile = float(t_distribution.ppf(0.975, patients - 1))
    return (width / (2 * quantile)) ** 2


def one_effect(
    seed: int, patients: int, kind: str, effect: float, name: str, scheme: str
) -> dict[str, float]:
    """Return whether a validation's interval covers the fresh AUC, and both predictive values."""
    regions = draw(seed, patients, kind, effect)
    learner = learners()[name]
    folds = validated(learner, regions, scheme, seed)
    interval = clustered_auc(regions.truth, folds.centred, regions.patients, len(folds.folds))
    of_tested = clustered_auc(regions.truth, folds.centred, regions.patients)
    fitted = clone(learner).fit(regions.X, regions.truth, groups=regions.patients)
    fresh = draw(10_000 + seed, FRESH, kind, effect)
    q = positive_probability(fitted, fresh.X)
    auc = metrics.auc(fresh.truth, q)
    # A threshold is meant for new patients. It is therefore chosen, and its predictive value
    # counted, on the scale of new patients.
    threshold = float(np.median(folds.on_common_base))
    return {
        "effect": effect,
        "covered": float(interval.lower <= auc <= interval.upper),
        "squared error": float((special.logit(interval.value) - special.logit(auc)) ** 2),
        "variance": variance_of_logit(of_tested, patients),
        "AUC validated": interval.value,
        "AUC pooled": metrics.auc(regions.truth, folds.probability),
        "AUC fresh": auc,
        "NPV validated": npv(regions.truth, folds.on_common_base, threshold),
        "NPV pooled": npv(regions.truth, folds.probability, threshold),
        "NPV fresh": npv(fresh.truth, q, threshold),
    }


def effects(
    patients: int = 40,
    kind: str = "clustered",
    sizes: tuple[float, ...] = (0.0, 0.5, 1.0),
    cohorts: int = 200,
    jobs: int = 1,
    name: str = SHIPPED,
    scheme: str = "folds",
) -> pd.DataFrame:
    """Return coverage of the AUC's interval and the predictive values, one row per effect.

    ``times the variance`` is the mean squared error of the logit of the validated AUC, divided by
    the mean of its variance over the tested patients alone.
    """
    work = [
        (seed, patients, kind, effect, name, scheme) for effect in sizes for seed in range(cohorts)
    ]
    rows = Parallel(n_jobs=jobs)(delayed(one_effect)(*piece) for piece in work)
    table = pd.DataFrame(rows).groupby("effect").mean().reset_index()
    table["times the variance"] = table.pop("squared error") / table.pop("variance")
    return table


def centroid_direction(X: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the difference of the classes' mean features: the weights of the simplest rule."""
    return np.asarray(X[truth == 1].mean(axis=0) - X[truth == 0].mean(axis=0))


def one_rule(
    seed: int, patients: int, effect: float, n_folds: int
) -> tuple[float, float, float, float]:
    """Return how far an out-of-fold AUC lies from the fresh AUC, and its variance over patients.

    The rule ranks regions by their place between the mean features of the two classes.

    Returns
    -------
    error : float
        Logit of the validated AUC less logit of the AUC on fresh patients.
    variance : float
        Jackknife variance over patients of the first logit, without the chance of training.
    covered, covered_narrow : float
        1 where the interval that allows for the chance of training holds the fresh AUC, else 0; the
        same for the interval that allows for the tested patients alone.
    """
    regions = draw(seed, patients, "clustered", effect)
    fold = regions.patients
    if n_folds < patients:
        fold = deal_patients(regions.patients, n_folds, seed)
    score = np.empty(len(fold))
    for left in np.unique(fold):
        X = regions.X[fold != left]
        direction = centroid_direction(X, regions.truth[fold != left])
        score[fold == left] = (regions.X[fold == left] - X.mean(axis=0)) @ direction
    fresh = draw(10_000 + seed % 50, 2_500, "clustered", effect)
    direction = centroid_direction(regions.X, regions.truth)
    auc = metrics.auc(fresh.truth, fresh.X @ direction)
    narrow = clustered_auc(regions.truth, score, regions.patients)
    wide = clustered_auc(regions.truth, score, regions.patients, n_folds)
    covered = float(wide.lower <= auc <= wide.upper)
    covered_narrow = float(narrow.lower <= auc <= narrow.upper)
    error = float(special.logit(narrow.value) - special.logit(auc))
    return error, variance_of_logit(narrow, patients), covered, covered_narrow


def inflation(
    patients: int = 40,
    sizes: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0),
    parts: tuple[int, ...] = (2, 5, 40),
    cohorts: int = 400,
    jobs: int = 1,
) -> pd.DataFrame:
    """Return by how much the chance of training widens the variance, one row per effect and K."""
    rows = []
    for effect in sizes:
        for n_folds in parts:
            outcomes = Parallel(n_jobs=jobs)(
                delayed(one_rule)(seed, patients, effect, n_folds) for seed in range(cohorts)
            )
            error, variance, covered, covered_narrow = np.array(outcomes).T
            rows.append(
                {
                    "effect": effect,
                    "folds": n_folds,
                    "times the variance": float(np.mean(error**2) / np.nanmean(variance)),
                    "covered": float(covered.mean()),
                    "covered, tested patients alone": float(covered_narrow.mean()),
                }
            )
    return pd.DataFrame(rows)


def main() -> None:
    """Run the reduced design, or the whole grid, and print the cells that pass."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.noise")
    parser.add_argument("--whole", action="store_true", help="20, 40 and 80 patients: a night")
    parser.add_argument("--part", choices=["noise", "effects", "inflation"], help="one part only")
    parser.add_argument("--learner", choices=[*learners()], help="noise, effects: one learner")
    parser.add_argument("--scheme", choices=SCHEMES, help="noise, effects: one scheme")
    parser.add_argument("--kind", choices=[*ALIKE], help="noise: one kind of cohort")
    parser.add_argument("--cohorts", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--out", type=Path, help="folder for the parts' tables")
    given = parser.parse_args()
    sizes = (20, 40, 80) if given.whole else (20,)
    parts: dict[str, Callable[[], pd.DataFrame]] = {
        "noise": lambda: noise(
            sizes,
            schemes=(given.scheme,) if given.scheme else SCHEMES,
            kinds=(given.kind,) if given.kind else tuple(ALIKE),
            names=(given.learner,) if given.learner else None,
            cohorts=given.cohorts,
            jobs=given.jobs,
        ),
        "effects": lambda: effects(
            cohorts=2 * given.cohorts,
            jobs=given.jobs,
            name=given.learner or SHIPPED,
            scheme=given.scheme or "folds",
        ),
        "inflation": lambda: inflation(cohorts=4 * given.cohorts, jobs=given.jobs),
    }
    problems: list[str] = []
    for name, part in parts.items():
        if given.part in (None, name):
            start = time.perf_counter()
            table = part()
            print(table.round(3).to_string(index=False), flush=True)
            if given.out is not None:
                write_csv(given.out / f"{name}.csv", table.round(4), list(table.columns))
            if name == "noise":
                print(f"{int(table['passes'].sum())} of {len(table)} cells pass")
                problems += refused(table, given.cohorts)
            if name == "effects":
                problems += refused_effects(table, 2 * given.cohorts)
            print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    for problem in problems:
        print(problem)
    if problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
