"""Learned from seven readers, judged on histology: the lesions of Mesejo et al. 2016.

76 colonic lesions filmed in two lights; four experts and three beginners said of each whether they
would resect it, and histology says whether one should. Every lesion is left out once, with whatever
is fitted: the readers' weights, scaling, the learner's strength.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, clone
from sklearn.feature_selection import VarianceThreshold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from cad.errors import CadError
from cad.evaluation.crossval import fit_keywords
from cad.evaluation.rivals import compare_probabilities
from cad.experiments import Options
from cad.experiments.results import Result
from cad.labels.latent import dawid_skene, glad
from cad.labels.pooled import Belief, MeanReaders, PooledReaders
from cad.labels.skill import reader_skill
from cad.learners import AveragedProbabilisticSVC, FuzzySVC, PlattSVC, ProbabilisticSVC
from cad.learners.rivals import rival_learners

READERS = ("e1", "e2", "e3", "e4", "b1", "b2", "b3")
SHIPPED = "P-SVM (shipped)"
RULES = ("mean", "pooled", "Dawid-Skene", "GLAD")


def learners() -> dict[str, BaseEstimator]:
    """Return the learners, all with one set of parameters or choosing on inner folds."""
    # 1396 features: gamma d = .3, the middle of what the shipped learner averages over.
    fixed: dict[str, Any] = {"C": 3.0, "gamma": 0.3 / 1396}
    return {
        SHIPPED: AveragedProbabilisticSVC(eta0=(0.02, 0.05, 0.125), kappa=(0.0, 0.5)),
        "P-SVM, fixed scale": ProbabilisticSVC(scale="fixed", eta0=0.125, kappa=0.5, **fixed),
        "P-SVM, learned scale": ProbabilisticSVC(eta0=0.125, **fixed),
        "SVM": PlattSVC(**fixed),
        "F-SVM": FuzzySVC(**fixed),
        **rival_learners(),
    }


def read_lesions(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return features of both lights (n, 1396), votes (n, 7), histology (n,) and names (n,).

    Raises
    ------
    CadError
        When a file or a lesion is missing.
    """
    for name in ("readers.csv", "features.csv"):
        if not (folder / name).is_file():
            raise CadError("no such file", file=folder / name, hint="give the folder with --data")
    votes = pd.read_csv(folder / "readers.csv")
    table = pd.read_csv(folder / "features.csv", header=None)
    names = votes["lesion"].str.lower().to_numpy(str)
    lights = []
    for light in (1, 2):
        rows = table[table[2] == light]
        rows = rows.set_index(rows[0].str.lower()).iloc[:, 3:]
        missing = [name for name in names if name not in rows.index]
        if missing:
            raise CadError(f"lesion {missing[0]} has no row of light {light}", file=folder)
        lights.append(rows.loc[names].to_numpy(float))
    grades = votes[list(READERS)].to_numpy(float)
    return np.hstack(lights), grades, votes["truth"].to_numpy(float), names


def believe(rule: str, grades: np.ndarray, truth: np.ndarray) -> Belief:
    """Return what a consensus rule makes of some lesions' votes and their histology."""
    if rule == "mean":
        return MeanReaders().predict(grades)
    if rule == "pooled":
        return PooledReaders().fit(grades, truth).predict(grades)
    p = dawid_skene(grades) if rule == "Dawid-Skene" else glad(grades)
    # The posterior of a latent class states no spread of its own: a coin's.
    return Belief(p, np.sqrt(p * (1 - p)))


def readers(options: Options) -> Result:
    """Compare learners and consensus rules, leaving out one lesion at a time."""
    if options.data is None:
        raise CadError("mesejo2016-readers needs the lesions", hint="--data FOLDER")
    X, grades, truth, names = read_lesions(options.data)
    mean = MeanReaders().predict(grades).p
    found: dict[str, np.ndarray] = {}
    for rule in RULES:
        chosen = learners() if rule == "mean" else {SHIPPED: learners()[SHIPPED]}
        for name, learner in chosen.items():
            title = name if rule == "mean" else f"{name}, labels {rule}"
            found[title] = leave_one_out(learner, X, grades, truth, rule, options.jobs)
    found["readers' mean"] = mean
    by_readers = {rule: _consensus_left_out(rule, grades, truth) for rule in RULES}
    compared = compare_probabilities(found, names, reference=SHIPPED, target=mean, truth=truth)
    rules = compare_probabilities(by_readers, names, reference="mean", truth=truth)
    skill = reader_skill(grades, list(READERS), truth, names)
    return Result(
        "Seven readers, one histology: the lesions of Mesejo et al. 2016",
        f"{len(X)} lesions, {X.shape[1]} features (both lights), leave-one-lesion-out. Learned "
        "from the readers' labels only; histology enters where the pooled rule weighs readers, and "
        "never that of the left-out lesion. Differences are to the shipped learner (first table) "
        "and to the mean (second), with 95 % intervals over lesions.",
        {
            "Learners": compared.table.drop(columns=["note"]),
            "Consensus rules against histology": rules.table.drop(columns=["note"]),
            "Readers": skill.table,
        },
        remarks=[compared.sentence, rules.sentence, skill.sentence],
    )


def leave_one_out(
    learner: Any, X: np.ndarray, grades: np.ndarray, truth: np.ndarray, rule: str, jobs: int = 1
) -> np.ndarray:
    """Return every lesion's probability by the others' labels, shape (n,)."""
    work = (delayed(_left_out)(learner, X, grades, truth, rule, row) for row in range(len(X)))
    return np.array(Parallel(n_jobs=jobs)(work))


def _left_out(
    learner: Any, X: np.ndarray, grades: np.ndarray, truth: np.ndarray, rule: str, row: int
) -> float:
    train = np.delete(np.arange(len(X)), row)
    belief = believe(rule, grades[train], truth[train])
    model = Pipeline(
        [
            ("constant", VarianceThreshold()),
            ("scale", StandardScaler()),
            ("learner", clone(learner)),
        ]
    )
    with threadpool_limits(limits=1):
        model.fit(X[train], belief.p, **fit_keywords(model, belief.eta, train))
        return float(model.predict_proba(X[[row]])[0, 1])


def _consensus_left_out(rule: str, grades: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the rule's own probability of every lesion, its histology held back."""
    if rule != "pooled":
        return believe(rule, grades, truth).p
    p = np.zeros(len(grades))
    for row in range(len(grades)):
        train = np.delete(np.arange(len(grades)), row)
        p[row] = PooledReaders().fit(grades[train], truth[train]).predict(grades[[row]]).p[0]
    return p
