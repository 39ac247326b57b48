"""Compare the shipped learners with a simple one where labels are outcomes.

``python -m benchmarks.outcome_tables [--data FOLDER]`` reads public tables of measured attributes
with a known outcome (the UCI sets of [W14]). Of each table 200 rows are drawn and divided into five
folds. The shipped learners and L2-logistic regression on ranks, which is the rival that learns from
histology, predict the left-out rows. The last lines have the mean difference of the AUCs and of the
Brier scores over the tables, with Student's t. No setting of a learner was chosen on these tables.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.stats import ttest_1samp
from sklearn.base import BaseEstimator

from cad.base.files import write_csv
from cad.evidence.experiments.uci import DataSet, encode, read_sets
from cad.learning.evaluation.folds.crossval import deal_patients, out_of_fold
from cad.learning.evaluation.measures import metrics
from cad.learning.learners.averaged import AveragedProbabilisticSVC
from cad.learning.learners.ensemble import ProbabilisticEnsemble
from cad.learning.learners.rivals import histology_rivals

SHARED = Path(os.environ.get("CAD_REFERENCE_DATA", Path(__file__).parents[2] / "shared" / "data"))
TABLES = (
    "Blood",
    "Breast",
    "Bupaliver",
    "Cancer_wbc",
    "E.coli",
    "Heart",
    "Hepatitis",
    "Ionosphere",
    "Parkinsons",
    "pima",
    "sonar",
    "Spectf",
    "Survival",
)
"""The sets with at least 100 rows of measured attributes, most of them of medicine."""
ROWS = 200  # rows that are drawn of a table with more
FOLDS = 5
PSVM = "P-SVM (pipelines/psvm)"
ENSEMBLE = "ensemble (pipelines/ensemble)"
SIMPLE = "logistic on ranks, of histology"


def learners() -> dict[str, BaseEstimator]:
    """Return the shipped learners and the simple one, unfitted, by name."""
    return {
        PSVM: AveragedProbabilisticSVC(),
        ENSEMBLE: ProbabilisticEnsemble(),
        SIMPLE: histology_rivals()[SIMPLE],
    }


def one_table(data: DataSet, seed: int = 0) -> list[dict[str, str | float]]:
    """Return the AUC and the Brier score of every learner on the left-out rows of one table.

    Missing attributes are filled, and words become numbers, on all drawn rows, without the labels.
    """
    rng = np.random.default_rng([7, seed])
    drawn = np.sort(rng.permutation(len(data.y))[:ROWS])
    X = encode(data.X.iloc[drawn].reset_index(drop=True), np.arange(len(drawn)))
    y = data.y[drawn]
    row_numbers = np.arange(len(y))
    folds = deal_patients(row_numbers, FOLDS, seed)
    rows: list[dict[str, str | float]] = []
    for name, learner in learners().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            predicted = out_of_fold(learner, X, y, groups=folds, patients=row_numbers)
        rows.append(
            {
                "table": data.name,
                "learner": name,
                "AUC": metrics.auc(y, predicted.centred),
                "Brier": metrics.brier(y, predicted.probability),
            }
        )
    return rows


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """Return the mean difference of each shipped learner from the simple one, over all tables.

    Parameters
    ----------
    table : DataFrame
        Rows of :func:`one_table`.

    Returns
    -------
    DataFrame
        One row per shipped learner and measure: the mean difference (shipped less simple),
        Student's t, and the number of tables on which the shipped learner is better.
    """
    rows = []
    for measure, sign in (("AUC", 1), ("Brier", -1)):
        values = table.pivot(index="table", columns="learner", values=measure)
        for name in (PSVM, ENSEMBLE):
            difference = values[name] - values[SIMPLE]
            rows.append(
                {
                    "learner": name,
                    "measure": measure,
                    "difference": float(difference.mean()),
                    "t": float(ttest_1samp(difference, 0.0).statistic),
                    "better on": int((sign * difference > 0).sum()),
                    "tables": len(difference),
                }
            )
    return pd.DataFrame(rows)


def main() -> None:
    """Compare the learners on all tables, and print the differences."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outcome_tables")
    parser.add_argument("--data", type=Path, default=SHARED / "uci", help="folder with the tables")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--out", type=Path, help="folder for outcome_tables.csv")
    given = parser.parse_args()
    if not (given.data / "manifest.csv").is_file():
        parser.error(f"no manifest.csv in {given.data}: say where the tables are with --data")
    sets = read_sets(given.data, TABLES, leaking=False)
    rows_of_tables = Parallel(n_jobs=given.jobs)(delayed(one_table)(data) for data in sets)
    table = pd.DataFrame([row for rows in rows_of_tables for row in rows])
    print(table.round(4).to_string(index=False))
    print(differences(table).round(4).to_string(index=False))
    if given.out is not None:
        write_csv(given.out / "outcome_tables.csv", table.round(4), list(table.columns))


if __name__ == "__main__":
    main()
