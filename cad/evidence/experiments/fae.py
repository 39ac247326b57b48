"""Compare learners on the FAE table of 260 real men, with and without features of size and shape.

FAE is a program for radiomics models; the table was published with its paper (Song et al., PLoS ONE
15 (2020) e0237587). The labels are certain (clinically significant cancer or not), so that nothing
is learned from readers here.
"""

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.model_selection import StratifiedKFold

from cad.base.doors import door
from cad.base.reading import reading
from cad.base.terms.text import interval_text
from cad.evidence.experiments import Options
from cad.evidence.experiments.results import Result
from cad.learning.evaluation.folds import paired
from cad.learning.evaluation.folds.crossval import out_of_fold
from cad.learning.learners import AveragedProbabilisticSVC, ProbabilisticEnsemble
from cad.learning.learners.rivals import rival_learners

FILE = "fae_prostate_260.csv.gz"
FOLDS = 10
SHIPPED = "P-SVM (shipped)"
ALONE = f"{SHIPPED}, each man left out"


def rivals() -> dict[str, BaseEstimator]:
    """Return the learners that are compared with the P-SVM: unfitted estimators by name.

    The first is the shipped ensemble, which is the default learner.
    """
    return {"ensemble (shipped)": ProbabilisticEnsemble(), **rival_learners()}


def feature_sets(columns: list[str]) -> dict[str, list[str]]:
    """Return the columns by set: ``all``, ``without size and shape``, ``size and shape alone``.

    Parameters
    ----------
    columns : list of str
        Names as pyradiomics gives them.
    """
    size_and_shape = []
    for name in columns:
        # "general_info" has the number of voxels, which is a size.
        if "_shape_" in name or "_general_info_" in name:
            size_and_shape.append(name)
    others = [name for name in columns if name not in size_and_shape]
    return {
        "all": columns,
        "without size and shape": others,
        "size and shape alone": size_and_shape,
    }


@door("own", "published data")
def men(options: Options) -> Result:
    """Compare the P-SVM with other learners on FAE's table of features of real men.

    Each learner is tested in ten folds, and the P-SVM also leaving out one man at a time.

    Parameters
    ----------
    options : Options
        Its ``data`` is the folder with ``fae_prostate_260.csv.gz``.

    Returns
    -------
    Result
        One table. It has a row for each learner and each set of features, with the learner's AUC,
        Brier score, calibration slope, and difference of its Brier score from that of the P-SVM
        with its 95 % interval.
    """
    path = options.folder(FILE) / FILE
    with reading(path, "not FAE's table of features"):
        table = pd.read_csv(path, index_col=0)
        y = table["label"].to_numpy(float)
        all_features = list(table.columns.drop("label"))
    man = np.arange(len(y))  # every row is one man
    fold = np.empty(len(y), dtype=int)
    splits = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(table, y)
    for number, (_, test) in enumerate(splits):
        fold[test] = number

    rows = []
    for title, names in feature_sets(all_features).items():
        X = table[names].to_numpy(float)
        psvm = AveragedProbabilisticSVC()
        in_folds = out_of_fold(psvm, X, y, groups=fold, patients=man, n_jobs=options.jobs)
        alone = out_of_fold(psvm, X, y, groups=man, patients=man, n_jobs=options.jobs)
        with_rivals = paired.compare_with_rivals(
            SHIPPED,
            in_folds.probability,
            rivals(),
            X,
            y,
            fold,
            truth=y,
            patients=man,
            centred=in_folds.centred,
            n_jobs=options.jobs,
        )
        # Constant predictions and readers are no learners, and do not belong in this table.
        probabilities = dict(with_rivals.probabilities)
        for name in (paired.CONSTANT, paired.READERS):
            probabilities.pop(name, None)
        comparison = paired.compare_probabilities(
            {**probabilities, ALONE: alone.probability},
            man,
            reference=SHIPPED,
            truth=y,
            centred={**with_rivals.centred, ALONE: alone.centred},
            n_folds=FOLDS,
        ).table
        for learner in comparison["learner"].unique():
            of_learner = comparison["learner"] == learner
            measures_of_learner = comparison[of_learner].set_index("measure")
            brier = measures_of_learner.loc["brier"]
            rows.append(
                {
                    "features": f"{title} ({len(names)})",
                    "learner": learner,
                    "AUC": f"{measures_of_learner.at['auc', 'value']:.3f}",
                    "Brier": f"{brier['value']:.4f}",
                    "slope": f"{measures_of_learner.at['calibration_slope', 'value']:.2f}",
                    "Brier less the P-SVM's": interval_text(
                        {**brier, "value": brier["difference"]}, 4
                    ),
                }
            )
    brier_scores = []
    for row in rows:
        if row["learner"] == SHIPPED:
            brier_scores.append(f"{row['features']} {row['Brier']}")
    return Result(
        "FAE: 260 real men, measured features",
        f"The FAE table has {len(y)} men with one region each, {int(y.sum())} of them with "
        f"significant cancer, and {len(all_features)} image features of T2, ADC and diffusion "
        "(DWI). "
        f"The men are divided once into {FOLDS} stratified folds (the protocol of radMLBench, "
        "seed 0), and everything is fitted inside the folds. The intervals allow for the choice of "
        "men. What this table tells of cancer comes mostly from size. So each result is given with "
        "all features, without the features of size and shape, and with the features of size and "
        "shape alone. After the name of each of these three sets the number of its features stands "
        "in brackets.",
        {"Learners by the features that they see": pd.DataFrame(rows)},
        remarks=[
            "The P-SVM's Brier scores (lower is better; the number of features in brackets) are: "
            f"{', '.join(brier_scores)}."
        ],
    )
