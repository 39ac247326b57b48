"""Measure the gain of semi-supervised rankers from unread regions, on simulated cohorts.

``python -m benchmarks.unread --cohorts 20 --patients 20`` simulates cohorts and keeps the scores of
a share of the regions. It leaves one patient out at a time, and fits each learner with and without
the unread regions of the other patients. It prints the mean difference of the AUC against
histology, with Student's interval.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t as student
from sklearn.pipeline import Pipeline

from cad.base.settings import PipelineSettings
from cad.evidence.phantom import simulate
from cad.learners import SSLROC, SSRankBoost, SVMLin
from cad.learning.evaluation.folds.crossval import out_of_fold
from cad.learning.evaluation.folds.unlabelled import SemiSupervisedPipeline
from cad.learning.evaluation.measures.metrics import auc
from cad.run.execution.options import HERE
from cad.run.model.estimator import front_steps
from cad.run.pipeline import aggregate_cohort

LEARNERS = {
    "SSLROC": SSLROC(platt_folds=0),
    "SVMlin": SVMLin(lambda_=0.1, platt_folds=0),
    "SSRankBoost": SSRankBoost(platt_folds=0),
}
SHARES = (1 / 3, 1 / 10)
FIRST_SEED = 9200
SETTINGS = PipelineSettings.model_validate(
    {"name": "unread", "features": {"families": ["intensity", "semiquantitative"]}}
)


def gains(cohort: Path, out: Path, seed: int) -> list[dict[str, object]]:
    """Return a row for each learner and share: AUC without and with the unread regions."""
    table = aggregate_cohort(SETTINGS, cohort, out, HERE).table
    truth = table.labels["truth"].to_numpy(float)
    X, patients = table.X.to_numpy(float), table.groups
    rng = np.random.default_rng(seed)
    rows: list[dict[str, object]] = []
    for share in SHARES:
        y = _read(table.y, share, rng)
        for name, learner in LEARNERS.items():
            steps = [*front_steps(SETTINGS).steps, ("learner", learner)]
            value = {}
            for kind in (Pipeline, SemiSupervisedPipeline):
                folds = out_of_fold(kind(steps), X, y, groups=patients)
                scored = np.isfinite(folds.centred) & np.isfinite(truth)
                value[kind] = auc(truth[scored], folds.centred[scored])
            rows.append(
                {
                    "seed": seed,
                    "read": share,
                    "learner": name,
                    "labelled": int(share * len(y)),
                    "without": value[Pipeline],
                    "with": value[SemiSupervisedPipeline],
                }
            )
    return rows


def _read(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return labels of a random share of the regions, NaN elsewhere; redrawn below 3 of a class."""
    while True:
        kept = np.where(rng.permutation(len(y)) < round(share * len(y)), y, np.nan)
        if min((kept > 0.5).sum(), (kept <= 0.5).sum()) >= 3:
            return kept


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean difference for each learner and share, with its 95 % interval."""
    made = []
    for (read, learner), part in rows.groupby(["read", "learner"]):
        gap = (part["with"] - part["without"]).to_numpy()
        half = student.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / np.sqrt(len(gap))
        made.append(
            {
                "read": f"{read:.0%}",
                "learner": learner,
                "without": part["without"].mean(),
                "with": part["with"].mean(),
                "difference": gap.mean(),
                "lower": gap.mean() - half,
                "upper": gap.mean() + half,
                "better in": f"{(gap > 0).sum()} of {len(gap)}",
            }
        )
    return pd.DataFrame(made)


def main() -> None:
    """Simulate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohorts", type=int, default=20)
    parser.add_argument("--patients", type=int, default=20)
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    for seed in range(FIRST_SEED, FIRST_SEED + arguments.cohorts):
        with tempfile.TemporaryDirectory() as name:
            cohort = Path(name) / "cohort"
            simulate(cohort, patients=arguments.patients, seed=seed, light=True)
            rows += gains(cohort, Path(name) / "run", seed)
    print(summary(pd.DataFrame(rows)).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
