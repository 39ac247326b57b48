"""Measure whether intervals and conformal sets cover as promised: ``python -m
benchmarks.coverage``.

The module makes tables of docs/evidence.md. The tests in tests/learning/evaluation call the same
functions with fewer cohorts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit, logit
from scipy.stats import norm

from benchmarks.readings import draw_arrays
from cad.base.files import write_csv
from cad.base.terms.text import to_markdown
from cad.learners import AveragedProbabilisticSVC
from cad.learning.evaluation.decisions.conformal import leave_patient_out_p_values
from cad.learning.evaluation.decisions.venn_abers import leave_patient_out_venn_abers, venn_abers
from cad.learning.evaluation.folds.paired import compare_probabilities
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.intervals import (
    auc_covariance,
    clustered_auc,
    delong_auc,
    patient_resamples,
)


def correlated_scores(
    rng: np.random.Generator,
    patients: int = 49,
    auc: float = 0.85,
    shared: float = 0.6,
    largest: float = 0.0,
    prevalence: float = 0.25,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw truth, score and patient of ROIs that depend on their patient.

    ``shared`` is the correlation of two scores of one patient. The AUC between patients is exactly
    ``auc``. The first patient holds the share ``largest`` of all regions.
    """
    size = rng.integers(3, 12, patients)
    if largest:
        size[0] = round(largest / (1 - largest) * size[1:].sum())
    owner = np.repeat(np.arange(patients), size)
    share = rng.beta(2 * prevalence, 2 * (1 - prevalence), patients)
    y = (rng.random(len(owner)) < share[owner]).astype(float)
    noise = np.sqrt(1 - shared) * rng.normal(size=len(owner))
    score = np.sqrt(2) * norm.ppf(auc) * y + noise
    return y, score + np.sqrt(shared) * rng.normal(size=patients)[owner], owner


def coverage(
    cohorts: int = 400, patients: int = 20, auc: float = 0.85, resamples: int = 400
) -> pd.DataFrame:
    """Measure how often each 95 % interval holds the true AUC, and how wide it is."""
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(cohorts):
        rng = np.random.default_rng([7, seed])
        y, s, g = correlated_scores(rng, patients=patients, auc=auc)
        for name, ends in _intervals(y, s, g, resamples, seed).items():
            found.setdefault(name, []).append(ends)
    rows = []
    for name, pairs in found.items():
        lower, upper = np.array(pairs).T
        rows.append(
            {
                "interval": name,
                "patients": patients,
                "AUC": auc,
                "cohorts": cohorts,
                "coverage": float(np.mean((lower <= auc) & (auc <= upper))),
                "AUC above": float(np.mean(auc > upper)),
                "AUC below": float(np.mean(auc < lower)),
                "mean width": float(np.nanmean(upper - lower)),
            }
        )
    return pd.DataFrame(rows)


def _intervals(
    y: np.ndarray, s: np.ndarray, g: np.ndarray, resamples: int, seed: int
) -> dict[str, tuple[float, float]]:
    clustered, roi_level = clustered_auc(y, s, g), delong_auc(y, s)
    theta, covariance = (part.item() for part in auc_covariance(y, s, g))
    with np.errstate(divide="ignore", invalid="ignore"):
        half = norm.ppf(0.975) * np.sqrt(covariance) / (theta * (1 - theta))
        obuchowski = expit(logit(theta) - half), expit(logit(theta) + half)
    draws = np.concatenate(
        [metrics.auc(y == 1, s, weight=weight) for weight in patient_resamples(g, resamples, seed)]
    )
    draws = draws[np.isfinite(draws)]
    return {
        "patients jackknifed, logit, t (ours)": (clustered.lower, clustered.upper),
        "Obuchowski 1997, logit, normal": obuchowski,
        "patient bootstrap, percentile": tuple(np.quantile(draws, [0.025, 0.975])),
        "patient bootstrap, BCa": _bca(draws, theta, y, s, g),
        "DeLong, regions independent": (roi_level.lower, roi_level.upper),
    }


def _bca(
    draws: np.ndarray, value: float, y: np.ndarray, s: np.ndarray, g: np.ndarray
) -> tuple[float, float]:
    """Return bias-corrected and accelerated ends (Efron 1987), with the jackknife over patients."""
    without = np.array([metrics.auc(y[g != k], s[g != k]) for k in np.unique(g)])
    skew = np.nanmean(without) - without[np.isfinite(without)]
    acceleration = np.sum(skew**3) / (6 * max(np.sum(skew**2), 1e-12) ** 1.5)
    share = np.mean(draws < value) + np.mean(draws == value) / 2
    bias = norm.ppf(np.clip(share, 1e-3, 1 - 1e-3))
    z = bias + norm.ppf([0.025, 0.975])
    lower, upper = np.quantile(draws, norm.cdf(bias + z / (1 - acceleration * z)))
    return float(lower), float(upper)


def conformal(cohorts: int = 200, error: float = 0.1) -> dict[str, float]:
    """Measure the coverage of class-conditional conformal sets for new patients."""
    hits: dict[str, list[float]] = {"malignant": [], "benign": [], "pooled malignant": []}
    for seed in range(cohorts):
        y, s, g = correlated_scores(np.random.default_rng([17, seed]), patients=30)
        p_benign, p_malignant = leave_patient_out_p_values(y, s, g)
        new = g == 0
        for name, label, p in (("benign", 0, p_benign), ("malignant", 1, p_malignant)):
            if (y[new] == label).any():
                hits[name].append(float(np.mean(p[new & (y == label)] > error)))
        if (y[new] == 1).any():
            # Each ROI counts as exchangeable with the new ROI, as in common libraries.
            pool = s[~new & (y == 1)]
            p_pool = [(1 + np.sum(pool <= v)) / (1 + len(pool)) for v in s[new & (y == 1)]]
            hits["pooled malignant"].append(float(np.mean(np.array(p_pool) > error)))
    return {
        "wanted": 1 - error,
        **{f"coverage {name}": float(np.mean(values)) for name, values in hits.items()},
        "cohorts": float(cohorts),
    }


def frequency(cohorts: int = 200, patients: int = 49) -> dict[str, float]:
    """Measure how often Venn-Abers intervals, averaged, hold the share of malignant regions.

    Three shares are tested. The first is the share in the cohort itself, where each patient is
    calibrated on the others. The second is the share in ten times as many new patients. The third
    is the share in as many new patients as the cohort has. The function also measures how often the
    intervals of a new region hold the true frequency at its score.
    """
    hits, widths, single = [], [], []
    apart = np.sqrt(2) * norm.ppf(0.85)
    for seed in range(cohorts):
        rng = np.random.default_rng([23, seed])
        y, s, g = correlated_scores(rng, patients=patients)
        low, high = leave_patient_out_venn_abers(y, s, g)
        held = [_holds(low, high, y)]
        widths.append(float(np.mean(high - low)))
        for more in (10, 1):
            new, scores, _ = correlated_scores(rng, patients=more * patients)
            low, high = venn_abers(y, s, g, scores)
            held.append(_holds(low, high, new))
        # Scores of both classes are normal, and a quarter of the regions is malignant.
        true = expit(logit(0.25) + apart * (scores - apart / 2))
        single.append(np.mean((low <= true) & (true <= high)))
        hits.append(held)
    own, many, few = np.mean(hits, axis=0)
    return {
        "own patients": float(own),
        "ten times as many new ones": float(many),
        "as many new ones": float(few),
        "a single score": float(np.mean(single)),
        "mean width": float(np.mean(widths)),
        "cohorts": float(cohorts),
    }


def _holds(low: np.ndarray, high: np.ndarray, y: np.ndarray) -> bool:
    return bool(low.mean() <= y.mean() <= high.mean())


def broken(cohorts: int = 400) -> pd.DataFrame:
    """Measure the worth of intervals, tests and slopes on the data that notes warn of."""
    rows = []
    for largest in (0.0, 0.3, 0.5):
        held: dict[str, list[bool]] = {}
        for seed in range(cohorts):
            y, s, g = correlated_scores(np.random.default_rng([29, seed]), largest=largest)
            for name, (lower, upper) in _intervals(y, s, g, 200, seed).items():
                held.setdefault(name, []).append(lower <= 0.85 <= upper)
        rows += [
            {
                "data": f"one of 49 patients holds {largest:.0%} of the regions",
                "measured": f"coverage of the 95 % interval of the AUC: {name}",
                "value": float(np.mean(inside)),
            }
            for name, inside in held.items()
        ]
    for prevalence in (0.25, 0.05, 0.03):
        beyond = {"brier": [], "auc": []}
        for seed in range(cohorts):
            rng = np.random.default_rng([31, seed])
            y, s, g = correlated_scores(rng, prevalence=prevalence)
            if y.sum() < 2:
                continue
            pair = [expit(s + rng.normal(0, 0.5, len(s)) + logit(prevalence)) for _ in range(2)]
            table = compare_probabilities(
                {"a": pair[0], "b": pair[1]}, g, truth=y, reference="a"
            ).table.query("learner == 'b'")
            for measure, errs in beyond.items():
                errs.extend(table.loc[table["measure"] == measure, "beyond_chance"])
        rows += [
            {
                "data": f"{prevalence:.0%} of the regions malignant",
                "measured": f"two learners alike, {measure}: said to differ beyond chance",
                "value": float(np.mean(errs)),
            }
            for measure, errs in beyond.items()
        ]
    slopes: dict[tuple[str, str], list[float]] = {}
    for seed in range(max(1, cohorts // 20)):
        for key, slope in _slopes(seed).items():
            slopes.setdefault(key, []).append(slope)
    for (who, against), values in slopes.items():
        rows.append(
            {
                "data": f"labels of {who}",
                "measured": f"slope against {against}, mean",
                "value": float(np.nanmean(values)),
            }
        )
    return pd.DataFrame(rows)


def _slopes(seed: int) -> dict[tuple[str, str], float]:
    """Learn from all readers, one, and one who says yes or no; judge on other patients."""
    drawn = draw_arrays(9100 + seed, 98)
    one = drawn.grades[:, 1]
    train = np.isin(drawn.patients, np.unique(drawn.patients)[::2])
    labels = {
        "four readers": drawn.p,
        "one reader": one,
        "one reader who says yes or no": np.where(one == one, one > 0.5, np.nan),
    }
    made = {}
    for who, p in labels.items():
        use = train & np.isfinite(p)
        learner = AveragedProbabilisticSVC()
        learner.fit(drawn.features[use], p[use], groups=drawn.patients[use])
        probability = learner.predict_proba(drawn.features[~train])[:, 1]
        every = np.ones((1, len(probability)))
        for against, aim in {
            "histology (ISUP 2)": drawn.truth,
            "all readers' mean": drawn.p,
        }.items():
            slope = metrics.calibration_slope(aim[~train], probability, weight=every)
            made[who, against] = slope.item()
    return made


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage")
    parser.add_argument("--cohorts", type=int, default=400)
    parser.add_argument("-o", "--out", type=Path, help="folder for coverage.csv")
    given = parser.parse_args()
    designs = [(20, 0.85), (20, 0.75), (20, 0.93), (10, 0.85), (49, 0.85)]
    parts = [coverage(given.cohorts, patients, auc) for patients, auc in designs]
    table = pd.concat(parts)
    print(to_markdown(table))
    if given.out is not None:
        write_csv(given.out / "coverage.csv", table, list(table.columns))
    print(to_markdown(broken(given.cohorts)))
    print(json.dumps(conformal(), indent=2))
    for patients in (20, 49):
        print(patients, json.dumps(frequency(patients=patients), indent=2))


if __name__ == "__main__":
    main()
