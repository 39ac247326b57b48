"""Learn from seven readers and test on histology: the colonic lesions of Mesejo et al. 2016.

76 lesions were filmed in two kinds of light. Four experts and three beginners said of each lesion
whether they would resect it, and histology says whether it should be resected. Every lesion is left
out once. Three things are then fitted without this lesion: the weights of the readers in the
consensus, the scaling of the features, and the learner with its hyper-parameters.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.settings import PipelineSettings, read_settings
from cad.base.share import find
from cad.base.terms.beside import table_beside
from cad.evidence.experiments import Options
from cad.evidence.experiments.results import Result
from cad.learning.evaluation.folds.crossval import out_of_fold
from cad.learning.evaluation.folds.paired import Rivals, compare_probabilities, compare_with_rivals
from cad.learning.labels.pooled import Belief, MeanReaders, PooledReaders
from cad.learning.labels.rules import consensus_rule
from cad.learning.labels.skill import reader_skill
from cad.learning.learners import AveragedProbabilisticSVC, FuzzySVC, PlattSVC, ProbabilisticSVC
from cad.learning.learners.rivals import rival_learners
from cad.run.model.estimator import front_steps

READERS = ("e1", "e2", "e3", "e4", "b1", "b2", "b3")
SHIPPED = "P-SVM (shipped)"
RULES = ("mean", "agreement", "pooled")


def learners() -> dict[str, BaseEstimator]:
    """Return unfitted learners by name.

    The parameters of a learner are fixed, or the learner chooses them in inner folds.
    """
    # gamma is the parameter of the RBF kernel. The default learner averages over several values of
    # the product of gamma and the number of features. The middle one of these values, .3, is taken
    # here; the number of features is 1396.
    fixed: dict[str, Any] = {"C": 3.0, "gamma": 0.3 / 1396}
    return {
        SHIPPED: AveragedProbabilisticSVC(),
        "P-SVM, fixed scale": ProbabilisticSVC(scale="fixed", eta0=0.125, kappa=0.5, **fixed),
        "P-SVM, learned scale": ProbabilisticSVC(eta0=0.125, **fixed),
        "SVM": PlattSVC(**fixed),
        "F-SVM": FuzzySVC(**fixed),
        **rival_learners(),
    }


@door("own", "published data")
def read_lesions(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read the colonoscopy lesions of Mesejo et al. 2016.

    Parameters
    ----------
    folder : Path
        Folder of the downloaded tables.

    Returns
    -------
    features : ndarray, shape (n, 1396)
        Features of each lesion: first of its video in white light, then of its video in narrow-band
        light.
    votes : ndarray, shape (n, 7)
        One column per reader: 1 if the reader would resect the lesion, else 0.
    histology : ndarray, shape (n,)
        1 if the lesion should be resected, else 0.
    names : ndarray of str, shape (n,)
        Names of the lesions.

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
    # The table has no head. Column 0 is the lesion and column 2 the light; features begin at 3.
    features = []
    for light in (1, 2):  # white, narrow-band
        rows = table[table[2] == light]
        rows = rows.set_index(rows[0].str.lower()).iloc[:, 3:]
        missing = [name for name in names if name not in rows.index]
        if missing:
            raise CadError(f"lesion {missing[0]} has no row of light {light}", file=folder)
        features.append(rows.loc[names].to_numpy(float))
    grades = votes[list(READERS)].to_numpy(float)
    return np.hstack(features), grades, votes["truth"].to_numpy(float), names


def believe(rule: str, grades: np.ndarray, truth: np.ndarray) -> Belief:
    """Return the probability, with its uncertainty, that each lesion needs resection.

    Parameters
    ----------
    rule : str
        Consensus rule: one of :data:`cad.learning.labels.rules.RULES`.
    grades : ndarray, shape (n, readers)
        Votes as probabilities.
    truth : ndarray, shape (n,)
        Histology; NaN for a lesion that the rule must not learn from.

    Returns
    -------
    Belief
        ``p`` is the probability, ``eta`` its standard deviation.

    Examples
    --------
    The plain mean of two readers, and the standard deviation of their votes:

    >>> import numpy as np
    >>> belief = believe("mean", np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([np.nan, np.nan]))
    >>> belief.p.tolist(), belief.eta.round(3).tolist()
    ([0.5, 1.0], [0.707, 0.0])
    """
    return consensus_rule(rule).fit(grades, truth).predict(grades)


def compare_consensus_rules(options: Options) -> Result:
    """Compare learners and consensus rules on colonoscopy lesions, each lesion left out in turn.

    Parameters
    ----------
    options : Options
        Its ``data`` is the folder of the lesions.

    Returns
    -------
    Result
        Five tables and remarks on them in words. The tables compare: learners for each choice of
        labels that they learn from; each other learner with the shipped one, on the readers' mean
        as labels; the shipped learner for each choice of labels; consensus rules by histology; and
        the readers.
    """
    X, grades, truth, names = read_lesions(options.folder("the lesions"))
    scaled = _scaled_in_folds(X)

    # For each rule: all learners, the shipped learner and the consensus itself.
    compared = {}
    shipped = {}
    shipped_centred = {}
    consensus = {}
    sentences = []
    for rule in RULES:
        rivals = _compared_learners(rule, scaled, grades, truth, names)
        compared[rule] = rivals
        shipped[f"labels {rule}"] = rivals.probabilities[SHIPPED]
        shipped_centred[f"labels {rule}"] = rivals.centred[SHIPPED]
        # The consensus is judged by histology, so it must not have learned a lesion's own.
        consensus[rule] = _consensus_left_out(rule, grades, truth)
        sentences.append(f"Labels {rule}: {rivals.sentence}")

    # The rules beside each other: by what the shipped learner learns from them, and by themselves.
    of_shipped = compare_probabilities(
        shipped,
        names,
        reference="labels mean",
        target=MeanReaders().predict(grades).p,
        truth=truth,
        centred=shipped_centred,
        n_folds=len(np.unique(names)),
    )
    # ``n_folds`` is not given: it would widen all intervals for the chance of training, and two of
    # the three rules learn nothing from histology. The rule "pooled" does, and its interval leaves
    # this chance out.
    of_rules = compare_probabilities(
        consensus,
        names,
        reference="mean",
        truth=truth,
    )
    skill, skill_sentence, _ = reader_skill(grades, list(READERS), truth, names)
    sentences += [
        f"The shipped learner by its labels: {of_shipped.sentence}",
        f"Consensus rules: {of_rules.sentence}",
        skill_sentence,
    ]
    differences = compared["mean"].table.drop(columns="note")
    tables = {
        "Learners by the labels they learned from": _wide_table(compared),
        "Learners from the readers' mean, differences to the shipped one": differences,
        "The shipped learner by its labels": of_shipped.table.drop(columns="note"),
        "Consensus rules against histology": of_rules.table.drop(columns="note"),
        "Readers": skill,
    }
    templates = table_beside(__file__)  # of the page's title and setup, in mesejo2016.yaml
    page = Result.of_words(templates, tables, lesions=len(X), features=X.shape[1])
    return replace(page, remarks=sentences)


def _scaled_in_folds(X: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that gives all lesions' features, scaled by the training lesions of a fold.

    The scaling does not depend on consensus rule or learner. Each fold is therefore scaled only
    once for all of them: with 1396 features, scaling takes longer than fitting most learners.
    """
    scaling = front_steps(read_settings(PipelineSettings, find("pipelines", "psvm", ".yaml")))
    row_numbers = np.arange(len(X))
    # By the number of the row that is left out: all rows, scaled.
    scaled_without: list[np.ndarray] = []
    for row in row_numbers:
        fitted = clone(scaling).fit(np.delete(X, row, axis=0))
        scaled_without.append(fitted.transform(X))

    def scaled(train: np.ndarray) -> np.ndarray:
        # A fold leaves one row out. The number of this row is the sum of all row numbers minus the
        # sum of the training rows' numbers.
        left_out = int(row_numbers.sum() - np.sum(train))
        return scaled_without[left_out]

    return scaled


def _compared_learners(
    rule: str,
    scaled: Callable[[np.ndarray], np.ndarray],
    grades: np.ndarray,
    truth: np.ndarray,
    names: np.ndarray,
) -> Rivals:
    """Return the comparison of all learners on the labels of one consensus rule.

    Each lesion in turn is left out.
    """
    mean = MeanReaders().predict(grades).p
    rivals = learners()
    relabel = partial(_labels_of_training, rule, grades, truth)
    folds = out_of_fold(rivals.pop(SHIPPED), scaled, mean, groups=names, relabel=relabel)
    return compare_with_rivals(
        SHIPPED,
        folds.probability,
        rivals,
        scaled,
        mean,
        names,
        truth=truth,
        relabel=relabel,
        centred=folds.centred,
    )


def _labels_of_training(
    rule: str, grades: np.ndarray, truth: np.ndarray, train: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return p and eta of the training lesions, by a consensus rule that sees no other lesion.

    Both arrays have shape (n,), with NaN for the lesions that are left out.
    """
    belief = believe(rule, grades[train], truth[train])
    p = np.full(len(grades), np.nan)
    eta = np.full(len(grades), np.nan)
    p[train] = belief.p
    eta[train] = belief.eta
    return p, eta


def _wide_table(compared: dict[str, Rivals]) -> pd.DataFrame:
    """Return a table with a row for each consensus rule and learner.

    It has a column for each measure against the readers, and for each measure against histology.
    """
    tables = []
    for rule, rivals in compared.items():
        named = rivals.table.assign(
            labels=rule, column=rivals.table["measure"] + " to " + rivals.table["against"]
        )
        wide = named.pivot(index=["labels", "learner"], columns="column", values="value")
        # ``pivot`` sorts by name. Rows and columns get the order of the comparison again.
        columns_in_order = list(dict.fromkeys(named["column"]))
        learners_in_order = list(dict.fromkeys(named["learner"]))
        wide = wide[columns_in_order].loc[[(rule, name) for name in learners_in_order]]
        learner_rows = named.drop_duplicates("learner").set_index("learner").loc[learners_in_order]
        wide.insert(0, "n", learner_rows["n"].to_numpy())
        tables.append(wide.reset_index().assign(note=learner_rows["note"].to_numpy()))
    return pd.concat(tables, ignore_index=True)


def _consensus_left_out(rule: str, grades: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return each lesion's probability by a consensus rule that did not see its histology."""
    # Only the rule "pooled" learns from histology. With the other rules no histology needs to be
    # left out.
    if rule != "pooled":
        return believe(rule, grades, truth).p
    p = np.zeros(len(grades))
    for row in range(len(grades)):
        train = np.delete(np.arange(len(grades)), row)
        pooled = PooledReaders().fit(grades[train], truth[train])
        p[row] = pooled.predict(grades[[row]]).p[0]
    return p
