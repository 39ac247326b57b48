"""Compare readers' belief with histology on real men, by ``cad experiment picai-readers``.

PI-CAI is a public challenge on prostate MRI. Its marksheet (a table) has the PI-RADS category of
each lesion and, for most lesions, the histology. Belief stands for what readers think of a lesion.
Its label is the share of significant cancer among the training lesions of the same category. A
learner from belief is then tested on histology. The package contains nothing of the marksheet,
whose licence is CC BY-NC 4.0.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.special import expit, logit
from sklearn.base import BaseEstimator
from sklearn.impute import SimpleImputer

from cad.base.errors import CadError
from cad.base.reading import read_rows
from cad.base.terms.beside import table_beside
from cad.base.terms.text import interval_text
from cad.dicom.into.file_cohort import listed_lesions
from cad.evidence.experiments import Options
from cad.evidence.experiments.calibration import calibration_figure
from cad.evidence.experiments.man_alone import fit_men
from cad.evidence.experiments.results import Result
from cad.learning.evaluation.decisions.recalibrate import recalibration
from cad.learning.evaluation.folds.ask import positive_probability
from cad.learning.evaluation.folds.crossval import Fold, put_together, spread_in_training
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.centring import base_log_odds, ranked
from cad.learning.evaluation.measures.intervals import auc_covariance, clustered_auc
from cad.learning.learners import AveragedProbabilisticSVC, ProbabilisticEnsemble
from cad.learning.learners.rivals import RidgeProbability, SoftLogistic

SIGNIFICANT = 2  # lowest ISUP grade that counts as cancer in this experiment
TISSUE_SHARE = 0.1
FOLDS = 5
REPEATS = 5
SITE_MEN = 50
SITE_DRAWS = 30
SLOPES = (0.8, 1.25)  # calibration slopes between these two count as near to 1
MEN = ("category", "age", "psa", "density")
FEATURES = ("age", "psa", "volume", "density", "lesions", "rank")
COLUMNS = (
    "patient_id",
    "study_id",
    "patient_age",
    "psa",
    "psad",
    "prostate_volume",
    "histopath_type",
    "lesion_PIRADS",
    "lesion_GS",
    "case_csPCa",
    "center",
)


def lesion_learners() -> dict[str, BaseEstimator]:
    """Return unfitted learners by name: two shipped ones, and two learners without tubes.

    The shipped P-SVM is the average of P-SVMs that comes with the program. A tube is the interval
    p ± eta, inside which a prediction of a P-SVM costs nothing. The shipped ensemble is the default
    learner: an average of the P-SVM and of other learners. All learners get the same labels. Each
    scales the features and chooses its own settings on inner folds of men.
    """
    return {
        "P-SVM (shipped)": AveragedProbabilisticSVC(),
        "ensemble (shipped)": ProbabilisticEnsemble(),
        "logistic on soft labels": SoftLogistic(),
        "kernel ridge on p": RidgeProbability(),
    }


def read_marksheet(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read PI-CAI's marksheet: one table of studies and one of their lesions.

    Parameters
    ----------
    folder : Path
        Holds one ``*marksheet*.csv``.

    Returns
    -------
    men : DataFrame
        A row for each study: ``man``, ``study``, ``centre``, ``tissue`` (whether histology exists),
        ``truth`` (1 for ISUP grade 2 or more), ``top`` (highest PI-RADS category), ``age`` in
        decades, and the logarithms ``psa``, ``volume`` and ``density``.
    lesions : DataFrame
        A row for each lesion with a PI-RADS category. It has the columns of its study; only
        ``truth`` is the lesion's own (NaN without tissue). It also has ``category``; ``lesions``,
        the number of the study's lesions with a category; and ``rank``, the lesion's place among
        them, from 0.

    Raises
    ------
    CadError
        For a folder with no or several marksheets, and for a study that lists its lesions wrongly.
    """
    paths = sorted(folder.glob("*marksheet*.csv"))
    if len(paths) != 1:
        raise CadError(f"{len(paths)} marksheets (*marksheet*.csv), one is wanted", file=folder)
    rows = read_rows(paths[0], COLUMNS)
    text = pd.DataFrame(rows)
    numbers = {}
    for name in ("patient_age", "psa", "psad", "prostate_volume"):
        numbers[name] = pd.to_numeric(text[name], errors="coerce")  # NaN where it is empty
    # Where the marksheet has no PSA density, the density is PSA (ng/mL) divided by the volume of
    # the gland (mL).
    density = numbers["psad"].fillna(numbers["psa"] / numbers["prostate_volume"])
    logs = {"psa": numbers["psa"], "volume": numbers["prostate_volume"], "density": density}
    men = pd.DataFrame(
        {
            "man": text["patient_id"],
            "study": text["study_id"],
            "centre": text["center"],
            "tissue": text["histopath_type"] != "",
            "truth": (text["case_csPCa"] == "YES") * 1.0,
            "age": numbers["patient_age"] / 10,
            # A value of 0 has no logarithm, and counts as unknown.
            **{name: np.log(values.where(values > 0)) for name, values in logs.items()},
        }
    )

    # A cell of the marksheet lists all lesions of a study. Those without a category are left out.
    lesion_rows = []
    for row in rows:
        try:
            lesions_of_study = listed_lesions(row["lesion_GS"], row["lesion_PIRADS"])
        except CadError as error:
            raise error.naming(file=paths[0], patient=row["patient_id"]) from None
        with_category = []
        for grade, category in lesions_of_study:
            if category:
                with_category.append((grade, category))
        for rank, (grade, category) in enumerate(with_category):
            truth = np.nan if grade is None else float(grade >= SIGNIFICANT)
            lesion_rows.append((row["study_id"], category, truth, len(with_category), rank))
    lesions = pd.DataFrame(lesion_rows, columns=["study", "category", "truth", "lesions", "rank"])

    men["top"] = men["study"].map(lesions.groupby("study")["category"].max())
    # The lesions keep their own truth; that of the man is dropped before.
    return men, lesions.merge(men.drop(columns="truth"), on="study", validate="many_to_one")


def shares(category: pd.Series, truth: pd.Series) -> pd.Series:
    """Return the share of cancer in each category: (cancers + 0.5) / (cases + 1).

    Parameters
    ----------
    category : Series
        PI-RADS category of every lesion or man.
    truth : Series
        1 or 0 for each lesion or man, by histology; NaN is left out.

    Returns
    -------
    Series
        The share, indexed by category.
    """
    has_truth = truth.notna()
    by_category = truth[has_truth].groupby(category[has_truth])
    # With the added half, no share is 0 or 1, whose log-odds would be infinite.
    return (by_category.sum() + 0.5) / (by_category.count() + 1)


def training_labels(train: pd.DataFrame, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the labels of training lesions, for each kind of knowledge that a learner may have.

    Parameters
    ----------
    train : DataFrame
        Lesions, with the columns ``category, truth, centre, man``.
    seed : int
        Seed of the random draw of a tenth of the men. With some kinds of knowledge a learner gets
        the histology of these men alone.

    Returns
    -------
    dict of str to (p, eta)
        ndarrays, shape (n,): probability and half-width of the interval p ± eta; a lesion with NaN
        p is left out. The kinds of knowledge are:

        - ``belief``: p is the share of cancer among the training lesions of the lesion's category.
          eta is the standard deviation of this share between centres, limited to the range from
          .02 to .2.
        - ``histology``: p is 1 or 0 by histology, and eta is 0.
        - ``one in ten``: the lesions of the drawn tenth of the men have a p by histology, with eta
          0. All other lesions have none.
        - ``belief and one in ten``: as ``one in ten``, but all other lesions have a belief, which
          is computed from the histology of the drawn men.
    """
    p, eta = _belief(train, train)
    men = train["man"].unique()
    rng = np.random.default_rng(seed)
    # Whole men are drawn, because the histology of one lesion informs about the other lesions of a
    # man.
    n_biopsied = max(2, round(TISSUE_SHARE * len(men)))  # of a very small table, two men at least
    biopsied_men = rng.choice(men, n_biopsied, replace=False)
    truth = train["truth"].to_numpy(float)
    certain = np.zeros(len(train))  # eta of labels by histology
    biopsied = train["man"].isin(biopsied_men).to_numpy() & np.isfinite(truth)
    # For a learner that knows the histology of a tenth of the men, the beliefs about all other
    # lesions are computed from this tenth alone.
    p_by_tenth, eta_by_tenth = _belief(train, train[biopsied])
    return {
        "belief": (p, eta),
        "histology": (truth, certain),
        "belief and one in ten": (
            np.where(biopsied, truth, p_by_tenth),
            np.where(biopsied, 0.0, eta_by_tenth),
        ),
        "one in ten": (np.where(biopsied, truth, np.nan), certain),
    }


def _belief(train: pd.DataFrame, biopsied: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return p and eta of training lesions: two arrays with one value per lesion.

    p is the share of cancer among the lesions of the same PI-RADS category that have histology. eta
    is the standard deviation of this share over centres, clipped to [.02, .2].
    """
    share = shares(biopsied["category"], biopsied["truth"])
    by_centre = []
    for _, of_centre in biopsied.groupby("centre"):
        by_centre.append(shares(of_centre["category"], of_centre["truth"]))
    spread = pd.concat(by_centre, axis=1).std(axis=1, ddof=0).clip(0.02, 0.2)
    # If no lesion of a category has histology, the category gets the share of cancer among all
    # lesions with histology.
    p = train["category"].map(share).fillna(biopsied["truth"].mean())
    eta = train["category"].map(spread).fillna(spread.max())
    return p.to_numpy(float), eta.to_numpy(float)


def score_lesions(
    lesions: pd.DataFrame, folds: np.ndarray, seed: int
) -> dict[tuple[str, str], np.ndarray]:
    """Return out-of-fold probabilities of lesions, by learner and by kind of training labels.

    Parameters
    ----------
    lesions : DataFrame
        The table of lesions, from :func:`read_marksheet`.
    folds : ndarray, shape (n,)
        Fold of every lesion: each fold is scored by models of all other folds.
    seed : int
        Seed of the random draws.

    Returns
    -------
    dict of (str, str) to ndarray, shape (2, n)
        Keys are the learner's name and the kind of labels, a key of the result of
        :func:`training_labels`. First row: probability. Second row: log-odds by which lesions of
        different folds can be compared
        (:class:`~cad.learning.evaluation.folds.crossval.OutOfFold`, ``centred``).

    Examples
    --------
    Twelve men have a benign and a malignant lesion each, and are dealt into two folds:

    >>> malignant = np.tile([0.0, 1.0], 12)
    >>> lesions = pd.DataFrame({name: malignant for name in FEATURES})
    >>> lesions["man"] = np.arange(24) // 2
    >>> lesions["centre"] = lesions["man"] % 2
    >>> lesions["category"] = 3 + malignant
    >>> lesions["truth"] = malignant
    >>> scores = score_lesions(lesions, lesions["man"].to_numpy() % 2, seed=0)
    >>> probability, centred = scores["P-SVM (shipped)", "histology"]
    >>> bool(probability[malignant == 1].min() > 0.9), bool(centred[0] < 0)
    (True, True)
    """
    models: dict[tuple[str, str], list[Fold]] = {}
    for fold in np.unique(folds):
        left_out = folds == fold
        rows = np.flatnonzero(left_out)
        # A missing value is replaced by the mean of the training lesions.
        imputer = SimpleImputer()
        X_train = imputer.fit_transform(lesions.loc[~left_out, list(FEATURES)])
        X_left_out = imputer.transform(lesions.loc[left_out, list(FEATURES)])
        men = lesions.loc[~left_out, "man"].to_numpy()
        for labels_name, (p, eta) in training_labels(lesions[~left_out], seed).items():
            labelled = np.isfinite(p)
            for name, learner in lesion_learners().items():
                learner.fit(X_train[labelled], p[labelled], eta=eta[labelled], groups=men[labelled])
                model = Fold(
                    str(fold),
                    rows,
                    int(labelled.sum()),
                    probability=positive_probability(learner, X_left_out),
                    # Decision values are not used here.
                    decision=np.full(len(rows), np.nan),
                    base=base_log_odds(p[labelled]),
                    spread=spread_in_training(learner, X_train[labelled]),
                )
                models.setdefault((name, labels_name), []).append(model)

    scores = {}
    for learner_and_labels, folds_of_learner in models.items():
        predictions = put_together(folds_of_learner, len(lesions))
        scores[learner_and_labels] = np.stack([predictions.probability, predictions.centred])
    return scores


def score_men(men: pd.DataFrame, folds: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return every man's probability of cancer by a model that did not learn from him, and its rank
    among the probabilities that this model gives to the men it learned from.

    Parameters
    ----------
    men : DataFrame
        The table of studies, a row for each man, from :func:`read_marksheet`.
    folds : ndarray, shape (n,)
        Fold of every man: the men of each fold are scored by a model of the men of all other folds.
    names : tuple of str
        Columns that the model uses; ``category`` is the log-odds of cancer in the man's PI-RADS
        category, column ``top``.

    Returns
    -------
    ndarray, shape (3, n)
        First row: probability. Second row: the rank of this probability, that is the share (0 to 1)
        of the men of the other folds to whom the same model gives a lower probability
        (:func:`~cad.learning.evaluation.measures.centring.ranked`). Third row: the man's log-odds
        less the log-odds of the share of cancers among the men of the other folds.

    Examples
    --------
    >>> men = pd.DataFrame({"top": np.tile([2, 5], 20), "truth": np.tile([0.0, 1.0], 20)})
    >>> men["age"] = np.linspace(50, 80, 40)
    >>> probability, rank, centred = score_men(men, np.arange(40) // 20, ("category", "age"))
    >>> bool(probability[men["top"] == 5].min() > probability[men["top"] == 2].max())
    True
    """
    scores = np.empty((3, len(men)))
    truth = men["truth"].to_numpy(float)
    for fold in np.unique(folds):
        left_out = folds == fold
        training = ~left_out
        # A man's own histology must not enter the log-odds of his PI-RADS category. These log-odds
        # therefore come from the men of the other folds.
        share_of_category = shares(men.loc[training, "top"], men.loc[training, "truth"])
        # A category that no man of the other folds has gets the mean of the other categories.
        share = men["top"].map(share_of_category).fillna(share_of_category.mean())
        table = men.assign(category=logit(share))
        features = table[list(names)]
        # The model does not learn from men whose truth is NaN.
        model = fit_men(features, np.where(left_out, np.nan, truth))
        log_odds = model.log_odds(features)
        scores[0, left_out] = expit(log_odds[left_out])
        scores[1, left_out] = ranked(log_odds[left_out], log_odds[training])
        scores[2, left_out] = log_odds[left_out] - base_log_odds(truth[training])
    return scores


def deal(men: pd.Series, seed: int) -> np.ndarray:
    """Assign men at random to :data:`FOLDS` folds of about equal size.

    Parameters
    ----------
    men : Series
        Id of the man of every row; all rows of a man get the same fold.
    seed : int
        Random seed.

    Returns
    -------
    ndarray of int, shape (n,)
        The fold of every row, from 0.
    """
    names = men.unique()
    # Numbers in random order, taken modulo the number of folds, give folds of about equal size.
    folds = np.random.default_rng(seed).permutation(len(names)) % FOLDS
    fold_of_man = dict(zip(names, folds, strict=True))
    return np.asarray(men.map(fold_of_man))


def row_of(
    truth: np.ndarray, q: np.ndarray, men: np.ndarray, centred: np.ndarray | None = None
) -> dict[str, str]:
    """Return AUC, Brier score and calibration slope of one learner as text.

    Parameters
    ----------
    truth, q : ndarray, shape (n,)
        Histology, 1 or 0, and the learner's probabilities.
    men : ndarray, shape (n,)
        Id of the man of every row.
    centred : ndarray, shape (n,), optional
        Log-odds that can be compared between models, where several models gave the probabilities.
        The slope is fitted to these log-odds.

    Returns
    -------
    dict of str to str
        ``AUC`` of the probabilities with its interval (men are clusters), ``Brier``, and ``slope``
        of the calibration.

    Examples
    --------
    >>> truth = np.tile([0.0, 1.0], 10)
    >>> q = np.where(truth == 1, 0.8, 0.2)
    >>> q[:4] = 0.6, 0.4, 0.3, 0.7
    >>> row_of(truth, q, men=np.arange(20))
    {'AUC': '0.990 [0.936, 0.999]', 'Brier': '0.0770', 'slope': '2.77'}
    """
    auc = interval_text(clustered_auc(truth, q, men))
    slope = metrics.calibration_slope(truth, q if centred is None else expit(centred))
    return {"AUC": auc, "Brier": f"{metrics.brier(truth, q):.4f}", "slope": f"{slope:.2f}"}


def measure_sites(
    men: pd.DataFrame, least: int = SITE_MEN, draws: int = SITE_DRAWS
) -> pd.DataFrame:
    """Measure a model of men at each centre that it never saw, before and after recalibration.

    Parameters
    ----------
    men : DataFrame
        The table of studies, from :func:`read_marksheet`.
    least : int
        Number of the centre's men to whom the recalibration is fitted; the other men of the centre
        are the test.
    draws : int
        Number of random draws of the men to whom the recalibration is fitted.

    Returns
    -------
    DataFrame
        A row for each centre, with measures as text. They are the measures of :func:`row_of` before
        recalibration, and the median slope after recalibration, with its 10 and 90 % quantiles over
        the draws. The last measure is the share of draws whose slope lies from .8 to 1.25.

    Raises
    ------
    CadError
        For a centre whose men are all malignant or all benign.
    """
    for centre, truth in men.groupby("centre")["truth"]:
        if truth.nunique() == 1:
            word = "malignant" if truth.iloc[0] else "benign"
            raise CadError(
                f"centre {centre}: all {len(truth)} men are {word} by lesion_GS, so that nothing "
                "can be judged there",
                hint="take the centre out of the marksheet",
            )
    q = score_men(men, men["centre"].to_numpy(), MEN)[0]
    y = men["truth"].to_numpy(float)
    names = men["man"].to_numpy()
    rows = []
    lowest_slope, highest_slope = SLOPES
    for centre in sorted(men["centre"].unique()):
        in_centre = (men["centre"] == centre).to_numpy()
        slopes = []  # after recalibration, one for each draw
        for draw in range(draws):
            rng = np.random.default_rng([7, draw])
            shuffled_men = rng.permutation(np.unique(names[in_centre]))
            fitted_to = np.isin(names, shuffled_men[:least]) & in_centre
            tested = in_centre & ~fitted_to
            mapping = recalibration(y[fitted_to], q[fitted_to], names[fitted_to])
            slopes.append(metrics.calibration_slope(y[tested], mapping.probability(q[tested])))
        low, middle, high = (f"{value:.2f}" for value in np.quantile(slopes, [0.1, 0.5, 0.9]))
        share_near_1 = np.mean([lowest_slope <= slope <= highest_slope for slope in slopes])
        rows.append(
            {
                "centre left out": centre,
                "n": int(in_centre.sum()),
                **row_of(y[in_centre], q[in_centre], names[in_centre]),
                f"slope after {least} men": f"{middle} ({low} to {high})",
                "draws from .8 to 1.25": f"{share_near_1:.0%}",
            }
        )
    return pd.DataFrame(rows)


def by_lesion(lesions: pd.DataFrame, runs: list[dict[tuple[str, str], np.ndarray]]) -> pd.DataFrame:
    """Test every learner, for every kind of training labels, on the histology of lesions.

    Measures are means over repeats (random divisions into folds). Probabilities are not averaged
    over repeats before measuring, because of the labels ``one in ten``. For these labels each
    repeat draws another tenth of the men, whose histology is learned. An average over twenty
    repeats would have learned from the histology of nearly all men.

    Parameters
    ----------
    lesions : DataFrame
        The table of lesions, from :func:`read_marksheet`.
    runs : list of dict
        One result of :func:`score_lesions` for each repeat.

    Returns
    -------
    DataFrame
        A row for each learner and kind of labels, with measures as text: AUC, Brier score, slope of
        the calibration, AUC minus the AUC that the learner gets from ``histology``, and the number
        of repeats in which the AUC is above that from ``one in ten``.

    Examples
    --------
    >>> lesions = pd.DataFrame({"truth": np.tile([0.0, 1.0], 10), "man": np.arange(20)})
    >>> q = np.linspace(0.1, 0.9, 20)
    >>> scores = np.stack([q, np.log(q / (1 - q))])
    >>> run = {("psvm", "histology"): scores, ("psvm", "one in ten"): scores}
    >>> by_lesion(lesions, [run])["told"].tolist()
    ['histology', 'one in ten']
    """
    with_truth = lesions["truth"].notna().to_numpy()
    y = lesions["truth"].to_numpy(float)[with_truth]
    men = lesions["man"].to_numpy()[with_truth]
    rows = []
    for name, labels_name in runs[0]:
        measures = []
        for run in runs:
            # Lesions of different folds are compared by their centred log-odds, the second row.
            q, log_odds = run[name, labels_name][:, with_truth]
            by_histology = run[name, "histology"][1, with_truth]
            by_one_in_ten = run[name, "one in ten"][1, with_truth]
            (auc, histology_auc), covariance = auc_covariance(
                y, np.stack([log_odds, by_histology]), men
            )
            variance = covariance[0, 0]
            variance_of_difference = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
            brier = metrics.brier(y, q)
            slope = metrics.calibration_slope(y, expit(log_odds))
            is_above_one_in_ten = auc > metrics.auc(y, by_one_in_ten)
            measures.append(
                (
                    auc,
                    variance,
                    auc - histology_auc,
                    variance_of_difference,
                    brier,
                    slope,
                    is_above_one_in_ten,
                )
            )
        means = np.mean(measures, axis=0)
        auc, variance, difference, variance_of_difference, brier, slope, _ = means
        n_above = sum(row[-1] for row in measures)
        less_histology = _interval(difference, variance_of_difference, "+")
        above_one_in_ten = f"{n_above} of {len(runs)}"
        # The comparisons with the labels "histology" and "one in ten" are left empty in the rows of
        # these labels themselves.
        if labels_name == "histology":
            less_histology = ""
        if labels_name == "one in ten":
            above_one_in_ten = ""
        rows.append(
            {
                "learner": name,
                "told": labels_name,
                "AUC": _interval(auc, variance, ""),
                "Brier": f"{brier:.4f}",
                "slope": f"{slope:.2f}",
                "AUC less histology's": less_histology,
                "repeats above one in ten": above_one_in_ten,
            }
        )
    return pd.DataFrame(rows)


def worst_brier(table: pd.DataFrame, learner: str) -> int:
    """Return the number of kinds of labels in which a learner has the highest Brier score.

    Parameters
    ----------
    table : DataFrame
        From :func:`by_lesion`.
    learner : str
        Name in its column ``learner``.
    """
    count = 0
    for _, of_labels in table.groupby("told"):
        brier = of_labels.set_index("learner")["Brier"].astype(float)
        count += int(brier[learner] == brier.max())
    return count


def _interval(value: float, variance: float, sign: str) -> str:
    """Return a value with its 95 % interval; with ``sign`` "+" positive numbers get a sign, too."""
    half_width = 1.96 * np.sqrt(max(variance, 0.0))  # rounding can make a variance negative
    lower = value - half_width
    upper = value + half_width
    return f"{value:{sign}.3f} [{lower:{sign}.3f}, {upper:{sign}.3f}]"


def compare_belief_and_histology(options: Options) -> Result:
    """Compare learners trained on readers' belief with learners trained on histology, on real men.

    The page has tables by lesion, by man and by centre left out.

    Parameters
    ----------
    options : Options
        ``data`` is the folder of the PI-CAI marksheet, ``repeats`` the number of random divisions
        into folds.

    Returns
    -------
    Result
        Five tables and one figure. Two tables compare learners by lesion: with random folds, and
        with one centre left out at a time. Three tables are by man: the measures for each choice of
        predictors, the calibration in tenths, and the measures with one centre left out, before and
        after recalibration. The figure shows the calibration.
    """
    men, lesions = read_marksheet(options.folder("the PI-CAI marksheet"))
    repeats = options.repeats or REPEATS

    # By lesion: random folds of men, and centres left out.
    runs = Parallel(n_jobs=options.jobs)(
        delayed(score_lesions)(lesions, deal(lesions["man"], seed), seed) for seed in range(repeats)
    )
    scores_without_centre = score_lesions(lesions, lesions["centre"].to_numpy(), 0)
    by_random_folds = by_lesion(lesions, runs)
    # Centres are left out once, so that the last column, a number of repeats, says nothing.
    by_centre = by_lesion(lesions, [scores_without_centre]).iloc[:, :-1]

    # By man: the PI-RADS category itself, as a comparison without any model.
    y = men["truth"].to_numpy(float)
    names = men["man"].to_numpy()
    tissue = men["tissue"].to_numpy(bool)
    category = men["top"].to_numpy(float)
    has_truth = y >= 0  # False for NaN
    auc_of_category = [
        metrics.auc(y[has_truth], category[has_truth]),
        metrics.auc(y[tissue], category[tissue]),
    ]

    # By man: models from the category alone, from age and PSA alone, and from both.
    rows = []
    for predictors in (("category",), ("age", "psa", "density"), MEN):
        scores_of_repeats = [
            score_men(men, deal(men["man"], seed), predictors) for seed in range(repeats)
        ]
        q, _, centred = np.mean(scores_of_repeats, axis=0)
        for men_name, chosen in (("all", has_truth), ("with tissue", tissue)):
            aucs = []
            variances = []
            for _, rank, _ in scores_of_repeats:
                auc, variance = auc_covariance(y[chosen], rank[chosen], names[chosen])
                aucs.append(auc)
                variances.append(variance)
            measured = row_of(y[chosen], q[chosen], names[chosen], centred[chosen])
            interval = _interval(float(np.mean(aucs)), float(np.mean(variances)), "")
            measured |= {"AUC": interval, "AUC, pooled": measured["AUC"]}
            rows.append(
                {
                    "known": ", ".join(predictors),
                    "men": men_name,
                    "n": int(chosen.sum()),
                    **measured,
                }
            )

    # Calibration of the last model, which has all predictors.
    tenths = pd.DataFrame(metrics.calibration_curve(y, q))
    within = (tenths["lower"] <= tenths["predicted"]) & (tenths["predicted"] <= tenths["upper"])
    shipped = "P-SVM (shipped)"
    return Result.of_words(
        table_beside(__file__),
        {
            "By lesion, judged on tissue": by_random_folds,
            "By lesion, one centre left out": by_centre,
            "By man: any cancer of ISUP 2 or more": pd.DataFrame(rows),
            "By man, in tenths by the probability from all predictors": tenths.round(3),
            "By man, one centre left out, before and after recalibration": measure_sites(men),
        },
        {
            "Share of men with cancer, in tenths by the predicted probability": calibration_figure(
                {"men of PI-CAI, tenths": tenths}, "men with cancer"
            )
        },
        studies=len(men),
        men=men["man"].nunique(),
        centres=men["centre"].nunique(),
        lesions=len(lesions),
        tissue=int(lesions["truth"].notna().sum()),
        repeats=repeats,
        folds=FOLDS,
        bare=auc_of_category,
        within=int(within.sum()),
        worst=worst_brier(by_random_folds, shipped) + worst_brier(by_centre, shipped),
        blocks=2 * by_random_folds["told"].nunique(),
        tenths=len(tenths),
    )
