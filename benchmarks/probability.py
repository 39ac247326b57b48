"""Is the probability worth having? ``python -m benchmarks.probability NAME [options]``.

``cohorts`` simulates cohorts of 49 patients and measures them with the project's own features
(cached under ``--work``); ``learners`` compares the shipped learner with its rivals on the same
leave-one-patient-out folds, on them and on the endoscopists' lesions; ``readers`` compares the
consensus rules on readings without images. Every table of docs/probability.md is one of these.
"""

# ruff: noqa: E402  (threads are limited before numpy starts)
from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.evaluation import metrics
from cad.evaluation.crossval import out_of_fold
from cad.evaluation.rivals import compare_with_rivals
from cad.evaluation.tables import to_markdown
from cad.labels.consensus import malignant, reader_labels
from cad.labels.latent import dawid_skene, glad
from cad.labels.pooled import MeanReaders, PooledReaders
from cad.learners import LEARNERS, AveragedProbabilisticSVC, ProbabilisticSVC
from cad.learners.rivals import rival_learners
from cad.phantom import simulate
from cad.phantom.readings import draw_readings
from cad.settings import LabelSettings

PATIENTS, SEED = 49, 5000
KEYS = ["participant_id", "roi_id"]
SHIPPED = "P-SVM (shipped)"
MEASURE_ONLY = """name: measure
learner: {name: SoftPlattSVC}
validate: {scheme: none, bootstraps: 0}
"""


@dataclass(frozen=True)
class Regions:
    """One cohort as learners see it; shapes (n, d) and (n,)."""

    X: np.ndarray
    p: np.ndarray
    eta: np.ndarray
    truth: np.ndarray
    patients: np.ndarray


def main() -> None:
    """Run the named benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=("cohorts", "learners", "readers"))
    parser.add_argument("--work", type=Path, default=Path("probability-cohorts"))
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--full", action="store_true", help="fine grids and every frame")
    parser.add_argument("--gastro", type=Path, help="folder of the endoscopists' lesions")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    {"cohorts": cohorts, "learners": learners, "readers": readers}[options.name](options)


def cohorts(options: argparse.Namespace) -> None:
    """Simulate and measure; keep tables and features, not images."""
    options.work.mkdir(parents=True, exist_ok=True)
    for index in range(1, options.count + 1):
        out = options.work / f"{'full' if options.full else 'light'}-{index:02d}"
        if (out / "features.parquet").exists():
            continue
        images, run = options.work / "images", options.work / "run"
        for folder in (images, run):
            shutil.rmtree(folder, ignore_errors=True)
        simulate(images, PATIENTS, SEED + index, light=not options.full, jobs=options.jobs)
        pipeline = options.work / "measure.yaml"
        pipeline.write_text(MEASURE_ONLY)
        command = [sys.executable, "-m", "cad.cli", "run", str(pipeline)]
        subprocess.run([*command, "--cohort", str(images), "-o", str(run)], check=True)
        out.mkdir(exist_ok=True)
        for name in ("rois.tsv", "scores.tsv", "readers.tsv"):
            shutil.copy(images / name, out / name)
        shutil.copy(run / "features.parquet", out / "features.parquet")
        for folder in (images, run):
            shutil.rmtree(folder)


def read_regions(folder: Path, isup_min: int = 2) -> Regions:
    """Return a measured cohort's regions that somebody scored."""
    text = {"roi_id": str}
    features = pd.read_parquet(folder / "features.parquet").astype(text)
    rois, scores = (
        pd.read_csv(folder / f"{name}.tsv", sep="\t", dtype=text) for name in ("rois", "scores")
    )
    known = pd.read_csv(folder / "readers.tsv", sep="\t")
    settings = LabelSettings(isup_min=isup_min)
    labels = reader_labels(scores, rois, known, settings)
    labels = labels.assign(truth=malignant(rois, isup_min))
    rows = features[KEYS].merge(labels, on=KEYS, how="left")
    use = rows["p"].notna().to_numpy()
    X = features.drop(columns=[*KEYS, "study_id"]).to_numpy(float)[use]
    rows = rows[use]
    columns = (rows[name].to_numpy(float) for name in ("p", "eta", "truth"))
    return Regions(X, *columns, rows["participant_id"].to_numpy(str))


def read_gastro(folder: Path) -> tuple[Regions, np.ndarray]:
    """Return the lesions (both lights side by side) and the seven readers' votes."""
    votes = pd.read_csv(folder / "readers.csv")
    table = pd.read_csv(folder / "features.csv", header=None)
    table[0] = table[0].str.lower()
    light = [table[table[2] == k].set_index(0).iloc[:, 2:] for k in (1, 2)]
    wide = np.hstack([part.loc[votes["lesion"].str.lower()].to_numpy(float) for part in light])
    grades = votes[["e1", "e2", "e3", "e4", "b1", "b2", "b3"]].to_numpy(float)
    belief = MeanReaders().predict(grades)
    truth = votes["truth"].to_numpy(float)
    return Regions(wide, belief.p, belief.eta, truth, votes["lesion"].to_numpy(str)), grades


def front() -> Pipeline:
    """Return what stands before every learner in a shipped pipeline."""
    return Pipeline(
        [
            ("impute", SimpleImputer(strategy="median", keep_empty_features=True)),
            ("constant", VarianceThreshold()),
            ("scale", StandardScaler()),
        ]
    )


def learners(options: argparse.Namespace) -> None:
    """Print every cohort's table, then how often the shipped learner is within chance."""
    data = {
        folder.parent.name: read_regions(folder.parent)
        for folder in sorted(options.work.glob("*/features.parquet"))[: options.count]
    }
    if options.gastro is not None:
        data["gastro"] = read_gastro(options.gastro)[0]
    tables = []
    for name, regions in data.items():
        cached = options.work / f"{name}.rivals.csv"
        if not cached.exists():
            start = time.process_time()
            table = _compared(regions, options.jobs)
            table.assign(cohort=name, seconds=time.process_time() - start).to_csv(
                cached, index=False
            )
        tables.append(pd.read_csv(cached))
        print(f"{name}: {tables[-1]['seconds'].iloc[0]:.0f} CPU s", flush=True)
    everything = pd.concat(tables, ignore_index=True)
    print(to_markdown(summary(everything)))


def _compared(regions: Regions, jobs: int) -> pd.DataFrame:
    shipped = Pipeline([*front().steps, ("learner", AveragedProbabilisticSVC())])
    folds = out_of_fold(
        shipped, regions.X, regions.p, groups=regions.patients, eta=regions.eta, n_jobs=jobs
    )
    others = {
        "P-SVM, fixed scale": ProbabilisticSVC(
            C=3.0, gamma=3e-4, scale="fixed", kappa=0.0, eta0=0.125
        ),
        "P-SVM, learned scale": ProbabilisticSVC(C=3.0, gamma=3e-4, eta0=0.125),
        **rival_learners(),
    }
    return compare_with_rivals(
        SHIPPED,
        folds.probability,
        others,
        regions.X,
        regions.p,
        regions.patients,
        eta=regions.eta,
        front=front(),
        truth=regions.truth,
        n_jobs=jobs,
    ).table


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per truth, measure and learner over cohorts (gastro beside them)."""
    rows = []
    for (against, measure, learner), part in table.groupby(
        ["against", "measure", "learner"], sort=False
    ):
        simulated = part[part["cohort"] != "gastro"]
        own = table[
            (table["against"] == against)
            & (table["measure"] == measure)
            & (table["learner"] == SHIPPED)
        ]
        mean_own = own[own["cohort"] != "gastro"]["value"].mean()
        lost = simulated["upper"] < 0 if measure != "auc" else simulated["lower"] > 0
        gastro = part[part["cohort"] == "gastro"]
        rows.append(
            {
                "against": against,
                "measure": measure,
                "learner": learner,
                "cohorts": len(simulated),
                "mean": simulated["value"].mean(),
                "lowest": simulated["value"].min(),
                "highest": simulated["value"].max(),
                "shipped worse beyond chance": int(lost.sum()),
                "shipped/learner - 1, %": 100 * (mean_own / simulated["value"].mean() - 1),
                "gastro": float(gastro["value"].iloc[0]) if len(gastro) else np.nan,
                "gastro difference": _interval(gastro),
            }
        )
    return pd.DataFrame(rows)


def _interval(part: pd.DataFrame) -> str:
    if part.empty or part["difference"].isna().all():
        return ""
    row = part.iloc[0]
    return f"{row['difference']:.3g} [{row['lower']:.3g}, {row['upper']:.3g}]"


if __name__ == "__main__":
    main()
