"""Reproduce [A14] Figs 2 to 10: an SVM with a reject option on synthetic, ECG and forest data.

[A14] is Amirou et al., Informatica 38 (2014). Its SVM may reject (refer) a row instead of calling
it positive or negative. In the ECG data, each beat has seven features from one lead, and premature
beats are the positive class.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from matplotlib.figure import Figure
from scipy.stats import entropy
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.settings import DecisionSettings
from cad.base.terms.beside import table_beside
from cad.evidence.experiments import Options
from cad.evidence.experiments.gaussians import Gaussians
from cad.evidence.experiments.results import Result
from cad.learning.evaluation.decisions.reject import decide, reject_point
from cad.learning.learners import RejectSVC
from cad.learning.learners.reject import asymmetric_rule

_WORDS = table_beside(__file__)
FEATURES = tuple(_WORDS["features"])
RECORDS = ("106", "116", "119", "200")
_HALF_WINDOW_S = 0.12  # seconds of signal on either side of a beat
_DEFLECTION_S = 0.08  # seconds on either side in which the largest deflection is looked for
_HISTORY = 8  # number of earlier intervals between beats whose mean is a feature's reference


@door("own", "published data")
def read_beats(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read the ECG records and return the features and the class of their beats.

    Parameters
    ----------
    folder : Path
        Holds ``<record>.npz`` for each of :data:`RECORDS`, with ``signal``, ``adc_gain``, ``fs``,
        ``beat_sample`` and ``beat_is_pvc``.

    Returns
    -------
    features : ndarray, shape (n, 7)
        :data:`FEATURES` of the beats of all records.
    premature : ndarray of bool, shape (n,)
        Whether each beat is a premature ventricular contraction.

    Raises
    ------
    CadError
        When a record is missing.
    """
    features = []
    labels = []
    for record in RECORDS:
        path = folder / f"{record}.npz"
        if not path.is_file():
            raise CadError("no such ECG record", file=path, hint="give its folder with --data")
        with np.load(path, allow_pickle=False) as data:
            signal = data["signal"].astype(float) / float(data["adc_gain"])
            rows, complete = beat_features(signal, int(data["fs"]), data["beat_sample"])
            features.append(rows)
            labels.append(data["beat_is_pvc"][complete])
    return np.vstack(features), np.concatenate(labels)


def beat_features(signal: np.ndarray, fs: int, beats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of the beats of one record that have enough neighbours on both sides.

    Parameters
    ----------
    signal : ndarray, shape (n_samples,)
        Signal of one lead of the ECG, mV.
    fs : int
        Number of samples per second.
    beats : ndarray of int, shape (n_beats,)
        Index of the sample of every beat.

    Returns
    -------
    features : ndarray, shape (n, 7)
        :data:`FEATURES` of each beat that has nine beats before it, one after it, and 0.12 s of
        signal on both sides.
    kept : ndarray of int, shape (n,)
        Positions of these beats in ``beats``.

    Examples
    --------
    Thirty beats lie a second apart. Beats with nine beats before them and one after have features:

    >>> import numpy as np
    >>> beats = np.arange(100, 3100, 100)
    >>> signal = np.zeros(3100)
    >>> signal[beats] = 1.5
    >>> features, positions = beat_features(signal, 100, beats)
    >>> features.shape, int(positions[0]), int(positions[-1])
    ((20, 7), 9, 28)
    """
    # Beats with enough neighbours, and with a whole window of signal around them.
    half_window = round(_HALF_WINDOW_S * fs)
    complete = np.arange(_HISTORY + 1, len(beats) - 1)
    begins_inside = beats[complete] >= half_window
    ends_inside = beats[complete] + half_window < len(signal)
    complete = complete[begins_inside & ends_inside]

    # Times between beats (RR intervals), s: rr[k - 1] lies before beat k, and rr[k] after it.
    rr = np.diff(beats) / fs
    rr_before = rr[complete - 1]
    rr_after = rr[complete]
    # The mean of the eight intervals that precede the one before the beat.
    mean_of_eight = np.array([rr[k - 1 - _HISTORY : k - 1].mean() for k in complete])

    # The signal around each beat, less its median: a row for each beat.
    windows = signal[beats[complete, None] + np.arange(-half_window, half_window + 1)]
    windows = windows - np.median(windows, axis=1, keepdims=True)
    half_deflection = round(_DEFLECTION_S * fs)
    central = windows[:, half_window - half_deflection : half_window + half_deflection + 1]
    largest_deflection = central[np.arange(len(complete)), np.abs(central).argmax(axis=1)]

    # The width of a beat: from the first to the last sample at which the signal is steep.
    slope = np.abs(np.gradient(windows, axis=1))
    steep = slope >= 0.5 * slope.max(axis=1, keepdims=True)
    n_samples = steep.shape[1]
    first_steep = steep.argmax(axis=1)
    end_of_steep = n_samples - steep[:, ::-1].argmax(axis=1)
    rows = np.column_stack(
        [
            rr_before,
            rr_after,
            rr_before / mean_of_eight,
            largest_deflection,
            np.ptp(windows, axis=1),
            (end_of_steep - first_steep) / fs,
            _correlation(windows, np.median(windows, axis=0)),
        ]
    )
    return rows, complete


def _correlation(windows: np.ndarray, template: np.ndarray) -> np.ndarray:
    """Return the correlation of each window with a template; 0 for a window without any change."""
    centred = windows - windows.mean(axis=1, keepdims=True)
    centred_template = template - template.mean()
    norm = np.linalg.norm(centred, axis=1) * np.linalg.norm(centred_template)
    correlation = np.zeros(len(centred))
    return np.asarray(np.divide(centred @ centred_template, norm, out=correlation, where=norm > 0))


SEEDS = 20
# Costs r of rejecting a row for which the experiment is run; an error costs 1. At r = .5 nothing is
# rejected. The classifier's loss depends on two ratios. The first is the cost of rejecting a
# positive divided by the cost of missing it. The second is the cost of rejecting a negative divided
# by the cost of a false alarm. The loss exists only if the sum of both ratios is below 1. Here both
# ratios are r, so the values of r end below .5.
REJECT_COSTS = (0.12, 0.16, 0.20, 0.24, 0.28, 0.32, 0.36, 0.40, 0.44, 0.48, 0.499)
RATIO_ENDS = (0.40, 0.499)
THETA = 1.2
COSTS = (0.1, 1.0, 10.0, 100.0)
CHOICE_R = 0.24
FOLDS = 5
_RULES = ("cost-based", "symmetric")
_NO_CHANGE = 1e-3  # least change of the reject rate by which a change of the error rate is divided


class RejectProblem(NamedTuple):
    """Hold one data set of [A14], and how the experiment uses it.

    Parameters
    ----------
    name : str
        Name of the data set, for titles.
    X : ndarray, shape (n, d)
        Features as they are; the experiment standardises them with the training rows' mean and
        deviation.
    y : ndarray, shape (n,)
        1 for the positive class, else 0. A missed positive costs theta, a false alarm costs 1.
    n_train : int
        Number of random rows to train on; the rest is the test set.
    n_test : int
        Largest number of test rows.
    gamma : float
        Parameter of the RBF kernel.
    published : (float, float)
        The paper's error-reject ratio of the cost-based and of the symmetric rule: minus the share
        of the rejected rows that would have been errors.
    shown : (int, int)
        Columns of the two features in the figure of the reject region.
    axes : (str, str)
        Names of these two features.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    n_train: int
    n_test: int
    gamma: float
    published: tuple[float, float]
    shown: tuple[int, int]
    axes: tuple[str, str]


def synthetic(options: Options) -> Result:
    """Reproduce [A14] Figs 2, 3, 6, 8a: two Gaussian classes with many ambiguous points.

    Parameters
    ----------
    options : Options
        ``repeats`` is the number of seeds, ``jobs`` the number of processes.

    Returns
    -------
    Result
        Four tables and three figures of the synthetic data. The tables have: the error-reject
        ratio; the rates of rejected and of wrongly decided rows; the cost, sensitivity and
        predictive value where a missed positive costs θ = 1.2 and a false alarm 1; and these
        numbers without rejection and for the rejection of lowest cost.
    """
    rng = np.random.default_rng(options.first_seed)
    data = Gaussians((-1.0, 0.0), (1.0, 0.0), 1.0)
    n = 4000
    problem = RejectProblem(
        name="synthetic data",
        X=data.draw(n, rng),
        y=(np.arange(n) % 2).astype(float),  # the two classes take turns
        n_train=400,
        n_test=2000,
        gamma=0.5,
        published=(-0.58, -0.15),
        shown=(0, 1),
        axes=("x1", "x2"),
    )
    result = _measure_problem(
        problem, options, "There are two Gaussian classes, with means ∓1 and standard deviation 1"
    )
    result.figures["Losses for θ = 1 and θ = 1.2, r = .3 (Figs 2, 3)"] = _draw_losses()
    return result


def ecg(options: Options) -> Result:
    """Reproduce [A14] Figs 4, 5, 7, 8b, 9, 10: premature beats against all others in ECG records.

    Parameters
    ----------
    options : Options
        Its ``data`` is the folder of the ECG records.

    Returns
    -------
    Result
        Four tables and two figures of the beats. The tables have: the error-reject ratio; the rates
        of rejected and of wrongly decided rows; the cost, sensitivity and predictive value where a
        missed positive costs θ = 1.2 and a false alarm 1; and these numbers without rejection and
        for the rejection of lowest cost.
    """
    X, pvc = read_beats(options.folder("the ECG records"))
    problem = RejectProblem(
        name="ECG data",
        X=X,
        y=pvc.astype(float),
        n_train=2000,
        n_test=4000,
        gamma=1 / X.shape[1],
        published=(-0.84, -0.23),
        shown=(2, 6),
        axes=("RR before / mean of eight", "correlation with the median beat"),
    )
    return _measure_problem(
        problem,
        options,
        f"The ECG records {', '.join(RECORDS)} have {len(pvc)} beats. {int(pvc.sum())} premature "
        "ventricular contractions are the positive class, all other beats the negative class. "
        f"The features of a beat are: {'; '.join(FEATURES)}",
        "ecg",
    )


@door("own", "published data")
def covertype(options: Options) -> Result:
    """Reproduce [A14] Fig. 8c: cottonwood against Douglas fir, from the Covertype data of forests.

    Parameters
    ----------
    options : Options
        Its ``data`` is the folder with ``cottonwood_vs_douglas_fir.csv.gz``.

    Returns
    -------
    Result
        Four tables and two figures of the trees. The tables have: the error-reject ratio; the rates
        of rejected and of wrongly decided rows; the cost, sensitivity and predictive value where a
        missed positive costs θ = 1.2 and a false alarm 1; and these numbers without rejection and
        for the rejection of lowest cost.
    """
    path = options.folder("the cover types") / "cottonwood_vs_douglas_fir.csv.gz"
    if not path.is_file():
        raise CadError("no such table", file=path)
    table = pd.read_csv(path)
    X = table.drop(columns="class")
    y = (table["class"] == 4).to_numpy(float)  # 4 is the number of cottonwood in Covertype
    # A column for a soil type on which neither of the two kinds of trees grows is constant. Such
    # columns tell nothing about the class and are left out.
    X = X.loc[:, X.nunique() > 1]
    problem = RejectProblem(
        name="forest data",
        X=X.to_numpy(float),
        y=y,
        n_train=1000,
        n_test=4000,
        gamma=1 / X.shape[1],
        published=(-0.42, -0.22),
        shown=(0, 3),
        axes=(str(X.columns[0]), str(X.columns[3])),
    )
    return _measure_problem(
        problem,
        options,
        f"The data have {len(y)} rows. {int(y.sum())} of them are cottonwood, the positive class, "
        "the others Douglas fir. Constant columns are left out",
    )


def _measure_problem(
    problem: RejectProblem, options: Options, data: str, page: str = "page"
) -> Result:
    """Return the tables and figures of one data set.

    ``data`` describes it in a sentence, and ``page`` names the template of the text.
    """
    if options.shuffled:
        # Labels are shuffled before rows are drawn for training and testing. So the test rows, too,
        # get labels of other rows.
        rng = np.random.default_rng(options.first_seed)
        problem = problem._replace(y=rng.permutation(problem.y))
    seeds = options.seeds(SEEDS)
    C = choose_cost(problem, seeds[0])
    work = (delayed(_one_seed)(problem, C, seed) for seed in seeds)
    records = []
    for records_of_seed in Parallel(n_jobs=options.jobs)(work):
        records += records_of_seed
    rows = pd.DataFrame(records)

    # Medians over seeds, where both errors cost the same, and where a missed positive costs more.
    medians = {}
    for theta in (1.0, THETA):
        by_rule = rows[rows["theta"] == theta].groupby(["rule", "r"], sort=False)
        medians[theta] = by_rule.median(numeric_only=True).reset_index()
    equal_costs = medians[1.0]
    unequal_costs = medians[THETA]
    return Result.of_words(
        _WORDS[page],
        {
            "Error-reject ratio for r in [.4, .5]": _error_reject_ratios(rows, problem),
            "Reject and error rate against r, θ = 1": _printed_columns(equal_costs),
            f"θ = {THETA}: cost, sensitivity, positive predictivity": _printed_columns(
                unequal_costs
            ),
            "No rejection against the cost-optimal r": _optimum(rows),
        },
        {
            "Rates, trade-off, ratio and cost": _figure(equal_costs, unequal_costs),
            f"Reject regions for θ = 1 and θ = {THETA}, r = .3": _decision_regions(problem, C),
        },
        data=data,
        problem=problem,
        n_test=min(problem.n_test, len(problem.y)),
        C=C,
        r=CHOICE_R,
        folds=FOLDS,
        first=seeds[0],
        last=seeds[-1],
        n_records=len(RECORDS),
        records=", ".join(RECORDS),
    )


def choose_cost(problem: RejectProblem, seed: int) -> float:
    """Choose the parameter C of the SVM from :data:`COSTS` by the mean cost of its decisions.

    A decision costs 1 if wrong and 0.24 if rejected. The cost is measured by cross-validation in
    five folds of the training rows that one seed draws.

    Parameters
    ----------
    problem : RejectProblem
        The data set; its test rows of this seed are not used.
    seed : int
        Seed of the draw.

    Returns
    -------
    float
        The C of least cost.
    """
    train = np.random.default_rng(seed).permutation(len(problem.y))[: problem.n_train]
    X = problem.X[train]
    y = problem.y[train]
    costs = DecisionSettings(
        false_positive=1.0, false_negative=1.0, refer_negative=CHOICE_R, refer_positive=CHOICE_R
    )
    total = {}
    for C in COSTS:
        learner = RejectSVC(
            C=C, kernel="rbf", gamma=problem.gamma, costs=(1.0, 1.0, CHOICE_R, CHOICE_R)
        )
        # The scaling of the features is fitted inside each fold, to the training rows. So a
        # held-out row has no influence on its own scaled features.
        decision = cross_val_predict(
            make_pipeline(StandardScaler(), learner), X, y, cv=StratifiedKFold(FOLDS)
        )
        total[C] = reject_point(y, decision, costs).cost
    return min(total, key=lambda C: total[C])


def _one_seed(problem: RejectProblem, C: float, seed: int) -> list[dict[str, object]]:
    """Return a row of rates for each rule to reject and each pair of costs, on one draw of rows."""
    order = np.random.default_rng(seed).permutation(len(problem.y))
    train = order[: problem.n_train]
    test = order[problem.n_train : problem.n_train + problem.n_test]
    scaler = StandardScaler().fit(problem.X[train])
    X = scaler.transform(problem.X[train])
    X_test = scaler.transform(problem.X[test])
    y = problem.y[train]
    y_test = problem.y[test]
    rows: list[dict[str, object]] = []
    for theta in (1.0, THETA):
        # Without rejecting, Bayes' rule calls a row positive if its probability P of the positive
        # class is above 1 / (1 + theta). In log-odds this threshold is log(1 / theta).
        threshold = np.log(1.0 / theta)
        for r in REJECT_COSTS:
            costs = DecisionSettings(
                false_positive=1.0, false_negative=theta, refer_negative=r, refer_positive=r
            )
            model = RejectSVC(C=C, kernel="rbf", gamma=problem.gamma, costs=(1.0, theta, r, r)).fit(
                X, y
            )
            f = model.decision_function(X_test)
            without_rejection = (f > threshold).astype(int)
            rules = [("cost-based", r, model.predict(X_test))]
            # The rule without rejection does not depend on the cost r of rejecting. It is therefore
            # added only once for each theta. Its r is .5, at which nothing is rejected.
            if r == REJECT_COSTS[-1]:
                rules.append(("no rejection", 0.5, without_rejection))
            if theta == 1.0:  # the symmetric rule exists only where both errors cost the same
                half_width = symmetric_half_width(r)
                rules.append(("symmetric", r, decide(f, -half_width, half_width)))
            for rule, cost_of_rejecting, decision in rules:
                row = {"rule": rule, "theta": theta, "r": cost_of_rejecting, "seed": seed}
                rows.append(row | _rates(y_test, decision, without_rejection, costs))
    return rows


def symmetric_half_width(r: float) -> float:
    """Return the largest absolute decision value, of the cost-based SVM, that the symmetric rule
    rejects.

    [A14] has two rules to reject, a cost-based and a symmetric one, each with an SVM of its own.
    The losses of the two SVMs differ only in scale: ψ_r(y f) = W(y, H(r) f / r) / H(r). Here ψ_r is
    the loss of the symmetric rule's SVM, W that of the cost-based rule's SVM, y the class (1 or
    -1), f the symmetric SVM's decision value and H the binary entropy (docs/methods.md 3). So the
    cost-based SVM's decision value is H(r) / r times f.

    The symmetric rule rejects rows with f between -δ₀ and δ₀, where δ₀ = ½. This function returns
    H(r) / r times ½. At r = .2415 both rules reject the same rows.

    Parameters
    ----------
    r : float
        Cost of rejecting; an error costs 1.
    """
    return 0.5 * float(entropy([r, 1.0 - r])) / r


def _rates(
    truth: np.ndarray,
    decision: np.ndarray,
    without_rejection: np.ndarray,
    costs: DecisionSettings,
) -> dict[str, object]:
    """Return the rates, cost and accuracy of decisions: 1 positive, 0 negative, -1 rejected.

    ``without_rejection`` has the decisions that would have been made if nothing were rejected.
    """
    point = reject_point(truth, decision, costs)
    spared = (decision == -1) & (without_rejection != truth)
    return {
        "reject rate": point.reject_rate,
        "error rate": point.error_rate,
        "spared errors": float(spared.mean()),
        "cost": point.cost,
        "sensitivity": point.sensitivity,
        "positive predictivity": point.ppv,
    }


def _decision_regions(problem: RejectProblem, C: float) -> Figure:
    """Draw the decision for each pair of values of two features, by a model of these two features.

    The model is fitted to the training rows of seed 0.
    """
    n_train = min(problem.n_train, 400)  # enough for a figure of two features
    train = np.random.default_rng(0).permutation(len(problem.y))[:n_train]
    X = StandardScaler().fit_transform(problem.X[train][:, list(problem.shown)])
    # A few extreme rows lie outside the picture, which would else show little of the others.
    low = np.percentile(X, 1, axis=0) - 0.5
    high = np.percentile(X, 99, axis=0) + 0.5
    n_grid = 120  # points of the grid along each axis
    grid_x = np.linspace(low[0], high[0], n_grid)
    grid_y = np.linspace(low[1], high[1], n_grid)
    grid = np.stack(np.meshgrid(grid_x, grid_y), axis=-1).reshape(-1, 2)
    figure = Figure(figsize=(10, 4))
    for axes, theta in zip(figure.subplots(1, 2), (1.0, THETA), strict=True):
        model = RejectSVC(C=C, kernel="rbf", gamma=0.5, costs=(1.0, theta, 0.3, 0.3))
        model.fit(X, problem.y[train])
        f = model.decision_function(grid).reshape(n_grid, n_grid)
        lower, upper = model.thresholds_
        axes.contourf(grid_x, grid_y, f, [lower, upper], colors=["0.85"])
        levels = [lower, 0.0, upper]
        axes.contour(grid_x, grid_y, f, levels, colors="k", linestyles=["--", "-", "--"])
        axes.scatter(*X.T, c=np.where(problem.y[train] == 1, "#D55E00", "#0072B2"), s=8)
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        axes.set_title(f"θ = {theta:g}: rejects {lower:.2f} < f < {upper:.2f}")
        axes.set(xlabel=problem.axes[0], ylabel=problem.axes[1])
    figure.tight_layout()
    return figure


def _printed_columns(table: pd.DataFrame) -> pd.DataFrame:
    names = ["rule", "r", "reject rate", "error rate", "cost", "sensitivity"]
    return table[[*names, "positive predictivity"]]


def _error_reject_ratios(rows: pd.DataFrame, problem: RejectProblem) -> pd.DataFrame:
    """Return the error-reject ratio of each rule in two definitions: by counts, and from rates.

    By counts the ratio is minus the share of the rejected rows that would have been errors. From
    rates it is the change of the error rate divided by the change of the reject rate, between two
    values of the cost r of rejecting. Rates are averaged over seeds before dividing. With a single
    seed few rows are rejected, so that its ratio would be only noise.
    """
    ratios = []
    low_cost, high_cost = RATIO_ENDS
    for rule, published in zip(_RULES, problem.published, strict=True):
        of_rule = rows[(rows["rule"] == rule) & (rows["theta"] == 1.0)]

        # From rates: the change between the two costs of rejecting.
        mean = of_rule.groupby("r")[["reject rate", "error rate"]].mean()
        change = mean.loc[low_cost] - mean.loc[high_cost]
        slope = np.nan  # not defined if the reject rate does not change
        if abs(change["reject rate"]) > _NO_CHANGE:
            slope = change["error rate"] / change["reject rate"]

        # By counts: for each seed, and over all seeds.
        between = of_rule[of_rule["r"].between(low_cost, high_cost)]
        by_seed = between.groupby("seed").mean(numeric_only=True)
        share = -by_seed["spared errors"] / by_seed["reject rate"]
        share_over_seeds = -by_seed["spared errors"].sum() / by_seed["reject rate"].sum()
        ratios.append(
            {
                "rule": rule,
                "rejects that were errors": share_over_seeds,
                "quartiles over seeds": f"{share.quantile(0.25):.2f} to {share.quantile(0.75):.2f}",
                "ΔE/ΔR, r = .4 to .5": slope,
                "published": published,
            }
        )
    return pd.DataFrame(ratios)


def _optimum(rows: pd.DataFrame) -> pd.DataFrame:
    """Return two rows: without rejection, and with the cost r of rejecting of lowest mean cost."""
    compared = rows[(rows["theta"] == THETA) & rows["rule"].isin(["cost-based", "no rejection"])]
    table = compared.groupby(["rule", "r"], sort=False).median(numeric_only=True).reset_index()
    cost_based = table[table["rule"] == "cost-based"]
    # Mean costs at different r cannot be compared, because r is the price of rejecting a row. As in
    # the paper, the smallest cost of a rule over all r is shown all the same.
    best = cost_based.loc[[cost_based["cost"].idxmin()]]
    both = pd.concat([table[table["rule"] == "no rejection"], best], ignore_index=True)
    # If the cost is smallest at the least or the greatest tried r, it may be smaller still beyond
    # this r. The table's row then says "yes" under "edge of the grid".
    at_edge = both["r"].isin([min(REJECT_COSTS), max(REJECT_COSTS)])
    return _printed_columns(both).assign(**{"edge of the grid": np.where(at_edge, "yes", "")})


def double_hinge(f: np.ndarray, y: int, costs: tuple[float, float, float, float]) -> np.ndarray:
    """Return the loss of decision values in a classifier with a reject option ([A14] (7)).

    Parameters
    ----------
    f : ndarray, shape (n,)
        Decision values.
    y : int
        True class of all points: 1 positive, 0 negative.
    costs : tuple of 4 floats
        Costs of a false positive, a false negative, rejecting a negative, rejecting a positive.

    Returns
    -------
    ndarray, shape (n,)
        The loss of each decision value.

    Examples
    --------
    A false negative costs 2, a rejected positive 0.3. A positive costs nothing if its decision
    value lies far above 0. Below 0 the cost grows with the distance from 0:

    >>> import numpy as np
    >>> loss = double_hinge(np.array([5.0, 0.0, -1.0]), 1, (1.0, 2.0, 0.3, 0.3))
    >>> float(loss[0]), bool(loss[0] < loss[1] < loss[2])
    (0.0, True)
    """
    # The rule has two hinges for the positive class (0) and two for the negative class (1).
    rule = asymmetric_rule(costs)
    class_index, sign = (0, 1.0) if y else (1, -1.0)
    loss = np.zeros(len(f))
    for margin, cost in zip(rule.margins[class_index], rule.costs[class_index], strict=True):
        loss += cost * np.maximum(0.0, margin - sign * f)
    return loss


def _draw_losses() -> Figure:
    """Draw the losses that have two hinges, the log-loss to which they are tangent, and the range
    of decision values that is rejected.
    """
    f = np.linspace(-4, 4, 401)
    figure = Figure(figsize=(9, 3.5))
    for axes, theta in zip(figure.subplots(1, 2, sharey=True), (1.0, THETA), strict=True):
        costs = (1.0, theta, 0.3, 0.3)
        rule = asymmetric_rule(costs)
        axes.axvspan(rule.lower, rule.upper, color="0.9", label="reject")
        for y, colour in ((1, "#D55E00"), (0, "#0072B2")):
            axes.plot(f, double_hinge(f, y, costs), color=colour, label=f"y = {y}")
            axes.plot(f, np.logaddexp(0, -f if y else f), ":", color=colour)
        axes.set(title=f"θ = {theta:g}, r = .3", xlabel="f", ylim=(0, 4.5))
        axes.legend()
    return figure


def _figure(equal_costs: pd.DataFrame, unequal_costs: pd.DataFrame) -> Figure:
    """Draw rates and ratios of both rules (both errors cost the same), and cost and accuracy of the
    cost-based rule where a missed positive costs more than a false alarm.
    """
    figure = Figure(figsize=(11, 7))
    rate_axes, trade_axes, ratio_axes, cost_axes = figure.subplots(2, 2).ravel()
    for rule, colour in zip(_RULES, ("k", "#D55E00"), strict=True):
        line: dict[str, Any] = {"ms": 3, "color": colour}
        of_rule = equal_costs[equal_costs["rule"] == rule]
        rate_axes.plot(of_rule["r"], of_rule["reject rate"], "o-", label=rule, **line)
        trade_axes.plot(of_rule["reject rate"], of_rule["error rate"], "o-", **line)
        rejecting = of_rule[of_rule["reject rate"] > _NO_CHANGE]
        share = -rejecting["spared errors"] / rejecting["reject rate"]
        ratio_axes.plot(rejecting["r"], share, "o-", **line)
    rate_axes.set(xlabel="reject cost r", ylabel="reject rate")
    rate_axes.legend()
    trade_axes.set(xlabel="reject rate", ylabel="error rate")
    ratio_axes.set(xlabel="reject cost r", ylabel="- rejects that were errors")

    cost_based = unequal_costs[unequal_costs["rule"] == "cost-based"]
    reject_rate = cost_based["reject rate"]
    cost_axes.plot(reject_rate, cost_based["sensitivity"], "k", label="sensitivity")
    cost_axes.plot(reject_rate, cost_based["positive predictivity"], "r", label="predictivity")
    cost_axes.set(xlabel=f"reject rate, θ = {THETA}", ylabel="sensitivity, predictivity")
    cost_axes.legend(loc="center right")
    axes_at_right = cost_axes.twinx()
    axes_at_right.plot(reject_rate, cost_based["cost"], "b:")
    axes_at_right.set_ylabel("cost (dotted)")
    figure.tight_layout()
    return figure
