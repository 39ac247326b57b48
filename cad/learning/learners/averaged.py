"""Average probabilistic SVMs over all their settings, instead of choosing one setting.

A setting of the probabilistic SVM (P-SVM, docs/methods.md 2) is a combination of values of scaling,
C, gamma, eta_0 and kappa. With a few hundred regions, the choice of one setting by inner folds
depends on chance. The losses of settings that are neighbours in the grid differ by less than their
random error, but the neighbours predict differently.

Here every setting predicts the inner folds, and the log-odds of all settings are averaged. The
weights are pseudo-BMA+ weights (Yao, Vehtari, Simpson and Gelman 2018, section 3.4). In each
Bayesian-bootstrap resample of the patients, a weight is proportional to exp(-L), with L the
setting's summed cross-entropy. The weights are then averaged over the resamples. The average of
kernel machines is again a kernel machine. Finally its log-odds are shifted and multiplied by a
slope, which a logistic regression on the predictions of the inner folds gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from sklearn.model_selection import GroupKFold
from sklearn.utils.validation import check_is_fitted, validate_data

from cad.learning.learners import soft_labels
from cad.learning.learners.base import KernelMachine, check_cost, cross_entropies
from cad.learning.learners.probabilistic import margin_scale
from cad.learning.learners.scaling import SCALERS
from cad.learning.learners.solvers.choice import solve_pointwise
from cad.learning.learners.solvers.kernels import Gram, Kernel
from cad.learning.learners.solvers.problem import Array, LearnerError, Problem, Solution
from cad.learning.logistic import fit_logistic
from cad.learning.stored import Declared, Inside, Plain, floats, whole, words

_RESAMPLES = 200
# From the inner fold number `_TRIAL_FOLDS` on, bad settings (combinations of parameters) are
# dropped. The summed loss of a dropped setting is more than `_HOPELESS` nats above that of the best
# setting. This difference is computed without the patient who contributes most to it, since a
# bootstrap resample may lack that patient. In 36 fits to 12 tables of real readers' scores, no
# setting that had weight in the end was more than 4.6 nats behind the best one.
_TRIAL_FOLDS = 2
_HOPELESS = 6.0
MOST_ROWS = 3000
"""Largest number of rows that kernels are fitted to. If there are more, this number is drawn at
random, because a kernel matrix of 30,000 rows would need 7 GB.
"""
# Loss, in nats per region, that stands for the infinite loss of a setting that cannot be fitted. It
# is finite, because differences of infinite losses are not defined.
_LOST = 1e6
GIVEN = "given"
# Probabilities are clipped to this distance from 0 and 1. Without it, a few regions whose labels
# are all 0 could give a probability of 0, and its loss for a label of 1 is infinite.
CLIP = 0.01
# Precision (1 / variance) of two normal priors: of the slope, by which log-odds are multiplied, and
# of the weight of a member of :class:`cad.learning.learners.ProbabilisticEnsemble`. A few dozen
# regions outweigh either prior.
_PRECISION = 6.0
# Precision of the normal prior on the shift, which is added to log-odds. The standard deviation of
# the prior is one unit of log-odds.
_SHIFT_PRECISION = 1.0
# Least slope by which log-odds are multiplied. If the features tell nothing about the labels, the
# predictions of inner folds correlate negatively with the labels. The fitted slope is then
# negative, and would reverse the order of the regions.
_LEAST_SLOPE = 0.1


@dataclass(frozen=True)
class Point:
    """Hold one setting of the P-SVM.

    Parameters
    ----------
    scaling : "rank", "clipped" or "given"
        How features are scaled before the Gaussian kernel; "given" leaves them as they are.
    gamma : float
        gamma of the kernel exp(-gamma |u - v|^2 / d) of two rows u and v with d features.
    eta0, kappa : float
        A soft label's interval has half-width clip(max(eta0, kappa eta), 0, 1/2), with eta the
        readers' spread (docs/methods.md 8).
    C : float
        Cost of a unit of violation: of the margin of a certain label, or of the interval of a soft
        label.
    """

    scaling: str
    gamma: float
    eta0: float
    kappa: float
    C: float


@dataclass(eq=False, repr=False, kw_only=True)
class AveragedProbabilisticSVC(KernelMachine):
    """Average probabilistic SVMs over settings, weighted by how well each predicts inner folds.

    The log-odds are z_0 + c + a (sum_k w_k (f_k(x) + b_k) / s_k - z_0). Setting k has weight w_k,
    decision value f_k + b_k and scale s_k = 1 / ln(1/eta0_k - 1). z_0 are the log-odds of the mean
    label. Slope a and shift c are fitted by logistic regression, with priors around 1 and 0, to the
    predictions of inner folds. In these predictions each fold's base log-odds (the log-odds of the
    mean label of its training rows) are first replaced by z_0.

    Parameters
    ----------
    C : float or sequence of float
        Costs to try. Every combination of the values of C, gamma, eta0, kappa and scaling is a
        setting.
    gamma : float or sequence of float
        gamma of the kernel exp(-gamma |u - v|^2 / d) of two rows u and v with d features.
    eta0 : float or sequence of float
        Reading precisions to try: the least half-width of a soft label's interval.
    kappa : float or sequence of float
        Shares of the readers' spread to try as half-width of a soft label's interval; 1 is the
        adaptive eta of [N14].
    scaling : str or sequence of str
        "rank": ranks among the training rows; "clipped": standardised values within three standard
        deviations (:mod:`cad.learning.learners.scaling`); "given": the features as they are.
    boundary : "drop" or "paper"
        How an interval that reaches 0 or 1 is treated: "drop" ignores the bound that lies
        outside (0, 1), "paper" makes the label certain (docs/methods.md 1).
    folds : int
        Number of inner folds. All rows of a patient are in one fold, if ``fit`` is given
        ``groups``.
    drop : float
        Settings with a weight below this value are left out of the average.
    solver : str
        "auto", or one of :data:`cad.learning.learners.solvers.choice.SOLVERS`.
    tol : float
        Largest relative duality gap of each SVM's solution.

    Attributes
    ----------
    points_ : list of dict
        Settings that have weight, the one with the largest weight first. Each has its ``weight``
        and its mean ``cross_entropy`` on inner folds, before slope and shift are applied.
    best_params_ : dict
        The setting with the largest weight.
    label_kinds_, label_counts_
        Kind of every label (certain, two-sided, one-sided, ...) at the setting with the largest
        weight, and number of labels of each kind.
    scalers_ : dict of str to transformer
        For each name of a scaling, the fitted transformer.
    scalings_, gammas_ : list of str and ndarray, shape (k,)
        Scaling and gamma of each of the k kernels of the average. A kernel is exp(-gamma |u - v|^2)
        here, without division by d.
    base_, slope_ : float
        z_0, the log-odds of the mean label, and the slope a of the formula above. ``dual_coef_``
        and ``intercept_`` already include both.
    support_, support_vectors_, classes_
        Numbers of the training rows that have a coefficient in any kernel, their features, and the
        two classes.
    dual_coef_ : ndarray, shape (k, n_support)
        Coefficients of the log-odds, one row per kernel.
    intercept_ : ndarray, shape (1,)
        Intercept of the log-odds.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import AveragedProbabilisticSVC
    >>> X = np.linspace(-2, 2, 24)[:, None]
    >>> p = np.round(4 / (1 + np.exp(-3 * X[:, 0]))) / 4
    >>> model = AveragedProbabilisticSVC(C=1.0, gamma=0.3, folds=2).fit(X, p)
    >>> q = model.predict_proba([[-1.5], [0.0], [1.5]])[:, 1]
    >>> bool(q[0] < 0.3 < 0.4 < q[1] < 0.6 < 0.7 < q[2])
    True
    >>> sum(point["weight"] for point in model.points_) > 0.99
    True
    """

    stored: ClassVar[Declared] = {
        "base_": floats(),
        "slope_": floats(),
        "support_": whole("n"),
        "support_vectors_": floats("n", "d"),
        "dual_coef_": floats("kernels", "n"),
        "gammas_": floats("kernels", low=0.0),
        "intercept_": floats(1),
        "scalers_": Inside(),
        "scalings_": Plain(),
        "points_": Plain(),
        "best_params_": Plain(),
        "label_kinds_": words("rows"),
        "label_counts_": Plain(),
    }

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}

    kernel = "rbf"
    _supports = cached_property(lambda self: self._views(self.support_vectors_, self.scalings_))

    C: float | Sequence[float] = (0.3, 3.0)
    gamma: float | Sequence[float] = (0.1, 0.3, 1.0)
    eta0: float | Sequence[float] = (0.02, 0.05, 0.125)
    kappa: float | Sequence[float] = (0.0, 0.5, 1.0)
    scaling: str | Sequence[str] = ("rank", "clipped")
    boundary: Any = "drop"
    folds: int = 5
    drop: float = 0.01
    solver: str = "auto"
    tol: float = 1e-5

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Weigh the settings on inner folds, then fit the settings with enough weight to all rows.

        Parameters
        ----------
        X : array, shape (n, d)
            Features, not scaled: this learner scales them.
        y : array, shape (n,)
            Two classes, or probabilities in [0, 1] (0 and 1 are certain).
        eta : float or array, shape (n,), optional
            Uncertainty of the labels (the readers' spread); 0 when not given.
        sample_weight : array, shape (n,), optional
            Weight of every row: its cost and its loss on inner folds are multiplied by it.
        groups : array, shape (n,), optional
            Patient of every row; when not given, every row counts as another patient.

        Raises
        ------
        LearnerError
            For labels outside [0, 1] or all equal, for fewer than two patients, and if no setting
            can be fitted.
        """
        self._fit_inside(X, y, eta, sample_weight, groups)
        return self

    def predict_spreads(
        self,
        X: ArrayLike,
        y: ArrayLike,
        spreads: ArrayLike,
        X_new: ArrayLike,
        groups: ArrayLike | None = None,
    ) -> Array:
        """Fit to the same rows once for each of several spreads of the readers; return the
        predictions.

        The weights of the settings and the slope of the log-odds are found without any spread, so
        that no spread is favoured. With each spread the settings are then fitted at the largest
        value of ``kappa`` and averaged. The shift, which :meth:`fit` adds to the log-odds, is left
        out here.

        Parameters
        ----------
        X : array, shape (n, d)
            Features.
        y : array, shape (n,)
            Labels: the mean of the readers' probabilities, or the classes 0 and 1.
        spreads : array, shape (k, n)
            For each of the k fits, the readers' standard deviation in every row.
        X_new : array, shape (m, d)
            Rows to predict.
        groups : array, shape (n,), optional
            Patient of every row.

        Returns
        -------
        ndarray, shape (k, m)
            P(y = 1 | x) of the new rows under each spread.
        """
        largest_kappa = float(np.max(np.atleast_1d(np.asarray(self.kappa, dtype=float))))
        without_spread = AveragedProbabilisticSVC(
            C=self.C,
            gamma=self.gamma,
            eta0=self.eta0,
            kappa=0.0,
            scaling=self.scaling,
            boundary=self.boundary,
            folds=self.folds,
            drop=self.drop,
            solver=self.solver,
            tol=self.tol,
        )
        without_spread.fit(X, y, groups=groups)
        rows, _, p, weight = self._read_inputs(X, y, None)
        new: Array = validate_data(self, X_new, dtype=np.float64, reset=False, order="C")
        # Squared distances among the training rows and the new rows together.
        all_rows = np.vstack([rows, new])
        distances = {}
        for name, view in without_spread._views(all_rows, without_spread.scalings_).items():
            distances[name] = squared_distances(view, view) / rows.shape[1]
        # The settings that have weight, at the largest kappa.
        points = []
        weight_of_point = []
        for setting in without_spread.points_:
            points.append(
                Point(
                    scaling=setting["scaling"],
                    gamma=setting["gamma"],
                    eta0=setting["eta0"],
                    kappa=largest_kappa,
                    C=setting["C"],
                )
            )
            weight_of_point.append(setting["weight"])
        training = np.arange(len(rows))
        new_rows = np.arange(len(rows), len(all_rows))
        log_odds = []
        for spread in np.asarray(spreads, dtype=float):
            task = _Task(
                distances=distances,
                p=p,
                spread=spread,
                weight=weight,
                boundary=self.boundary,
                solver=self.solver,
                tol=self.tol,
            )
            log_odds_sum = np.zeros(len(new))
            weight_sum = 0.0
            for k, _, scale, values in task.solutions(points, training, new_rows):
                log_odds_sum += weight_of_point[k] * values / scale
                weight_sum += weight_of_point[k]
            if weight_sum == 0:
                raise LearnerError("none of the settings could be fitted to these spreads")
            # Settings that cannot be fitted to these spreads are left out of the mean.
            mean_log_odds = log_odds_sum / weight_sum
            base = without_spread.base_
            log_odds.append(base + without_spread.slope_ * (mean_log_odds - base))
        return np.asarray(expit(np.array(log_odds)))

    def _fit_inside(
        self,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike | None,
        sample_weight: ArrayLike | None,
        groups: ArrayLike | None,
    ) -> Array:
        """Fit the average, and return its log-odds for every row, shape (n,).

        The log-odds of a row come from fits to the inner folds that do not have the row. They are
        NaN if the row is not in the sample to which the kernels are fitted, or if a fit failed.
        """
        rows, classes, p, weight = self._read_inputs(X, y, sample_weight)
        try:
            p, spread = soft_labels.check_soft(p, 0.0 if eta is None else eta)
        except ValueError as error:
            raise LearnerError(str(error)) from error
        # Without groups every row counts as another patient.
        owner = np.arange(len(p)) if groups is None else np.asarray(groups)
        if np.ptp(p[weight > 0]) == 0:
            raise LearnerError(
                f"every label is {p[weight > 0][0]:g}, one class: there is nothing to tell apart",
                hint="regions that the readers judge differently, or histology, are needed",
            )
        points = self._points()
        n_rows = len(p)
        # Of very many rows only a sample is used.
        drawn = drawn_rows(weight, MOST_ROWS)
        if len(drawn) < n_rows:
            rows = rows[drawn]
            p = p[drawn]
            spread = spread[drawn]
            weight = weight[drawn]
            owner = owner[drawn]

        # The scaled features, and the data that the fits of all settings share.
        self.scalings_ = list(dict.fromkeys(point.scaling for point in points))
        self.scalers_ = {
            name: SCALERS[name]().fit(rows) for name in self.scalings_ if name != GIVEN
        }
        views = self._views(rows, self.scalings_)
        distances = {}
        for scaling, view in views.items():
            distances[scaling] = squared_distances(view, view) / rows.shape[1]
        task = _Task(
            distances=distances,
            p=p,
            spread=spread,
            weight=weight,
            boundary=self.boundary,
            solver=self.solver,
            tol=self.tol,
        )

        # The weights of the settings, and what is reported of those with a weight.
        weight_of_point, loss, left_out_log_odds = self._weigh(task, points, owner)
        by_weight = np.argsort(-weight_of_point, kind="stable")
        weighted_points = by_weight[weight_of_point[by_weight] > 0].tolist()
        self.points_ = []
        for k in weighted_points:
            quality = {"weight": float(weight_of_point[k]), "cross_entropy": float(loss[k])}
            self.points_.append(asdict(points[k]) | quality)
        self.best_params_ = asdict(points[weighted_points[0]])
        self.classes_ = classes
        labels = task.labels(points[weighted_points[0]], np.arange(len(p)))
        self.label_kinds_ = np.array(soft_labels.KIND_NAMES)[labels.kinds]
        self.label_counts_ = labels.counts()

        # The slope multiplies the difference from the log-odds of the mean label. So a slope below
        # 1 draws probabilities towards the mean label and not towards 1/2.
        self.base_ = _log_odds_of_mean(p, weight)
        # Rows of a fold in which no setting could be fitted have no log-odds.
        has_log_odds = np.isfinite(left_out_log_odds)
        centred = left_out_log_odds[has_log_odds] - self.base_
        # A shift is needed because the mean prediction of an SVM differs from the mean label.
        shift, slope = fit_logistic(
            np.column_stack([np.ones(len(centred)), centred]),
            p[has_log_odds],
            weight=weight[None, has_log_odds],
            offset=self.base_,
            mean=np.array([0.0, 1.0]),
            precision=np.array([_SHIFT_PRECISION, _PRECISION]),
        )[0]
        # The slope is fitted to predictions of a few inner folds, and may be negative by chance. A
        # negative slope would reverse the order of the regions.
        self.slope_ = max(float(slope), _LEAST_SLOPE)
        self._average(
            task,
            [points[k] for k in weighted_points],
            share=weight_of_point[weighted_points],
            shift=float(shift),
            rows=rows,
            used=drawn,
        )
        # The same shift and slope are applied to the log-odds of the inner folds.
        calibrated = np.full(n_rows, np.nan)
        calibrated[drawn] = (
            self.base_ + float(shift) + self.slope_ * (left_out_log_odds - self.base_)
        )
        return calibrated

    @property
    def n_fitted_(self) -> int:
        """Return how many rows the kernels were fitted to: all rows, or :data:`MOST_ROWS` if there
        are more.
        """
        return len(self.label_kinds_)

    def _stacked(self, log_odds: Array, p: Array, weight: Array, towards: float | Array) -> Array:
        """Return weights, shape (k,), with which a sum of k members' log-odds predicts p.

        ``log_odds`` has shape (n, k), a column per member. The log-odds of the mean label are
        subtracted first. The weights have a normal prior with the mean ``towards``.
        """
        # A row without log-odds is left out. It may be in a fold in which no setting could be
        # fitted.
        predicted = np.isfinite(log_odds).all(axis=1)
        member_weights: Array = fit_logistic(
            log_odds[predicted] - self.base_,
            p[predicted],
            weight=weight[None, predicted],
            offset=self.base_,
            mean=towards,
            precision=_PRECISION,
        )[0]
        return member_weights

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the averaged log-odds of the positive class, shape (n,)."""
        check_is_fitted(self)
        rows: Array = validate_data(self, X, dtype=np.float64, reset=False, order="C")
        distances = {}
        for scaling, view in self._views(rows, self.scalings_).items():
            distances[scaling] = squared_distances(view, self._supports[scaling])
        return self._decided(distances)

    def decide_mixed(self, rows: Array, other: Array, mixed: NDArray[np.bool_]) -> Array:
        """Return the decision values of rows that take some of their features from another row.

        The result is the same as :meth:`decision_function` of the mixed rows, but takes less time.
        Scaling works feature by feature, and a squared distance is a sum over features. So the
        squared distance of a mixed row is a sum of two parts, and no mixed row has to be made and
        scaled.

        Parameters
        ----------
        rows, other : ndarray, shape (n, d) and (d,)
            The rows, and the one other row from which they take features.
        mixed : ndarray of bool, shape (m, d)
            Which features of each mixed row come from ``other``.

        Returns
        -------
        ndarray, shape (n, m)
        """
        check_is_fitted(self)
        all_rows = validate_data(self, np.vstack([rows, other]), dtype=np.float64, reset=False)
        views = self._views(all_rows, self.scalings_)
        unmixed = np.asarray(~mixed, dtype=float)
        # Squared distances are sums of two parts: over the features taken from ``other`` (mixed),
        # and over the row's own features (unmixed). To compute the distance of the unmixed row, and
        # then correct it by differences, would lose precision where a feature is huge.
        mixed_squares = {}
        for scaling, view in views.items():
            other_view = view[-1]  # ``other`` is the last of the scaled rows
            mixed_squares[scaling] = mixed @ ((other_view - self._supports[scaling]) ** 2).T
        decided = []
        for number in range(len(rows)):
            distances = {}
            for scaling, view in views.items():
                row_squares = unmixed @ ((view[number] - self._supports[scaling]) ** 2).T
                distances[scaling] = mixed_squares[scaling] + row_squares
            decided.append(self._decided(distances))
        return np.array(decided)

    def _decided(self, distances: dict[str, Array]) -> Array:
        """Return the decision values of rows, shape (n,).

        ``distances`` has, for each scaling, the rows' squared distances to the support vectors.
        """
        values = self.intercept_[0]
        for scaling, gamma, coefficients in zip(
            self.scalings_, self.gammas_, self.dual_coef_, strict=True
        ):
            values = values + np.exp(-gamma * distances[scaling]) @ coefficients
        return np.asarray(values)

    def _views(self, rows: Array, scalings: list[str]) -> dict[str, Array]:
        """Return the rows after each of the named scalings, by the name of the scaling."""
        views = {}
        for name in dict.fromkeys(scalings):
            # If a constant prediction satisfies all labels, there are no support vectors, so there
            # may be no rows to scale.
            as_given = name == GIVEN or len(rows) == 0
            views[name] = rows if as_given else self.scalers_[name].transform(rows)
        return views

    def _points(self) -> list[Point]:
        """Return all settings: every combination of the values of the parameters.

        An error is raised for a parameter out of its range.
        """
        scalings = [self.scaling] if isinstance(self.scaling, str) else list(self.scaling)
        if not scalings or any(name not in (*SCALERS, GIVEN) for name in scalings):
            raise LearnerError(
                f"scaling = {self.scaling!r}: known are {', '.join((*SCALERS, GIVEN))}"
            )
        values_to_try: list[list[Any]] = [scalings]
        for name, end in (("gamma", np.inf), ("eta0", 0.5), ("kappa", np.inf), ("C", np.inf)):
            values = np.atleast_1d(np.asarray(getattr(self, name), dtype=float))
            # Of these parameters only kappa may be 0.
            zero_allowed = name == "kappa"
            above_start = values >= 0.0 if zero_allowed else values > 0.0
            in_range = above_start & (values < end)
            if values.ndim != 1 or not len(values) or not in_range.all():
                bracket = "[" if zero_allowed else "("
                raise LearnerError(
                    f"{name} = {getattr(self, name)!r}, must lie in {bracket}0, {end:g})"
                )
            values_to_try.append([float(value) for value in values])
        # The lists are in the order of the fields of :class:`Point`.
        return [Point(*values) for values in product(*values_to_try)]

    def _weigh(
        self, task: _Task, points: list[Point], owner: NDArray[Any]
    ) -> tuple[Array, Array, Array]:
        """Return three results of the inner folds.

        The first is the weight of every setting, the second every setting's mean cross-entropy. The
        third is the log-odds of the weighted average for every row, by settings that were fitted
        without the row. ``owner`` has the patient of every row.
        """
        patient = np.unique(owner, return_inverse=True)[1]
        n_patients = int(patient.max()) + 1
        if n_patients < 2:
            raise LearnerError("inner folds need two patients or more to weigh settings")

        # A setting that cannot be fitted in a fold, in which others can, has an infinite loss
        # there, and hence weight 0.
        losses = np.full((len(points), len(patient)), np.inf)
        log_odds = np.full_like(losses, np.nan)
        # Folds are made without shuffling or a seed, so they depend on the patients alone.
        folds = min(self.folds, n_patients)
        splits = list(GroupKFold(folds).split(task.p, groups=owner))
        common_base = _log_odds_of_mean(task.p, task.weight)
        fold_base = np.full(len(patient), common_base)
        for train, test in splits:
            fold_base[test] = _log_odds_of_mean(task.p[train], task.weight[train])

        # All remaining settings are fitted without each fold in turn, and predict the fold.
        remaining = list(range(len(points)))
        for number, (train, test) in enumerate(splits, start=1):
            target = task.p[test]
            remaining_points = [points[k] for k in remaining]
            for k, _, scale, decisions in task.solutions(remaining_points, train, test):
                log_odds[remaining[k], test] = decisions / scale
            tested = np.ix_(remaining, test)
            # A setting that could not be fitted in this fold has NaN here.
            loss = cross_entropies(target, expit(log_odds[tested]))
            losses[tested] = np.where(np.isnan(loss), np.inf, loss)
            # From the second fold on, settings that can no longer get a weight are dropped.
            if _TRIAL_FOLDS <= number < folds:
                has_loss = np.isfinite(losses).any(axis=0) & (task.weight > 0)
                loss_so_far = np.minimum(losses[:, has_loss], _LOST) * task.weight[has_loss]
                patient_losses = _by_patient(loss_so_far, patient[has_loss], n_patients)
                # Differences from the best setting; the patient who contributes most is left out.
                best_setting = patient_losses.sum(axis=1).argmin()
                patient_losses -= patient_losses[best_setting]
                without_worst = patient_losses.sum(axis=1) - patient_losses.max(axis=1)
                hopeless = without_worst > _HOPELESS
                losses[hopeless] = np.inf
                remaining = [k for k in remaining if not hopeless[k]]

        # A fold in which no setting could be fitted is ignored.
        counts = np.isfinite(losses).any(axis=0) & (task.weight > 0)
        weighted_losses = losses[:, counts] * task.weight[counts]
        if weighted_losses.size == 0 or not np.isfinite(weighted_losses.sum(axis=1)).any():
            # If the labels alone are the reason, this check raises a more exact error.
            labels = task.labels(points[0], np.arange(len(task.p)))
            soft_labels.check_labels(labels, task.weight > 0)
            raise LearnerError(
                f"none of {len(points)} settings could be fitted in the inner folds: their labels "
                "say nothing, or are of one class",
                hint="more patients, or smaller eta0 and kappa",
            )
        # Losses are summed by patient, because errors in the regions of one patient depend on each
        # other. So the Bayesian bootstrap resamples patients.
        losses_by_patient = _by_patient(weighted_losses, patient[counts], n_patients)
        weight_of_point = _pseudo_bma(losses_by_patient, self.drop)
        # A dropped setting has weight 0 and no log-odds (NaN) in later folds.
        has_weight = weight_of_point > 0
        left_out_log_odds = weight_of_point[has_weight] @ log_odds[has_weight]
        # The base log-odds (of the mean label in the training) of each inner fold are replaced by
        # those of all rows. A fold that leaves out many malignant rows has a low base rate in its
        # training, so base rates and left-out labels correlate negatively. A slope that is fitted
        # to predictions with different base rates would be too small.
        left_out_log_odds += common_base - fold_base
        mean_loss = weighted_losses.sum(axis=1) / task.weight[counts].sum()
        return weight_of_point, mean_loss, left_out_log_odds

    def _average(
        self,
        task: _Task,
        points: list[Point],
        share: Array,
        shift: float,
        rows: Array,
        used: NDArray[np.intp],
    ) -> None:
        """Fit the settings to all rows, and set the attributes of their weighted average.

        ``share`` has the weight of each setting in ``points``, ``shift`` the number that is added
        to log-odds, and ``used`` the numbers of the training rows that ``rows`` are.
        """
        all_numbers = np.arange(len(rows))
        kernels = sorted({(point.scaling, point.gamma) for point in points})
        beta = np.zeros((len(kernels), len(rows)))
        # z are log-odds, a is a slope, and z_0 are the log-odds of the mean label. Then z_0 + a (z
        # - z_0) = (1 - a) z_0 + a z. So log-odds multiplied by a slope are again a sum of kernels
        # and a constant.
        intercept = (1 - self.slope_) * self.base_ + shift
        # The weights are divided by their sum and multiplied by the slope.
        divisor = float(share.sum()) / self.slope_
        # Decision values of other rows are not needed.
        no_rows = all_numbers[:0]
        for k, solution, scale, _ in task.solutions(points, all_numbers, no_rows):
            # The log-odds of a setting are (f + b) / s, with f + b its decision value and s its
            # scale. So the coefficients of a setting are multiplied by its weight and divided by
            # its scale.
            factor = share[k] / divisor / scale
            kernel_number = kernels.index((points[k].scaling, points[k].gamma))
            beta[kernel_number] += factor * solution.beta
            intercept += factor * solution.u[0]
        # Rows that have a coefficient in any kernel.
        support = np.flatnonzero(np.any(beta != 0, axis=0))
        self.support_ = used[support]
        self.support_vectors_ = rows[support]
        self.dual_coef_ = beta[:, support]
        self.scalings_ = [scaling for scaling, _ in kernels]
        scalers = self.scalers_.items()
        self.scalers_ = {name: scaler for name, scaler in scalers if name in self.scalings_}
        self.gammas_ = np.array([gamma for _, gamma in kernels]) / rows.shape[1]
        self.intercept_ = np.array([intercept])
        self._supports = self._views(self.support_vectors_, self.scalings_)

    def check_stored(self) -> None:
        """Check, on loading, that the scaling of every kernel is stored.

        Raises
        ------
        LearnerError
            If a scaling is not stored; the message names the scalings.
        """
        fitted = {GIVEN, *self.scalers_}
        named = isinstance(self.scalings_, list) and fitted.issuperset(self.scalings_)
        if not named or len(self.scalings_) != len(self.gammas_):
            raise LearnerError(f"kernels of the scalings {self.scalings_!r}, stored are {fitted}")


@dataclass(frozen=True)
class _Task:
    """Hold the data that the P-SVMs of all settings share.

    ``distances`` maps the name of each scaling to the squared distances between the regions whose
    features were scaled in this way. ``p``, ``spread`` and ``weight`` have the readers' mean, the
    readers' spread and the sample weight of each region. ``boundary``, ``solver`` and ``tol`` are
    the parameters of the learner.
    """

    distances: dict[str, Array]
    p: Array
    spread: Array
    weight: Array
    boundary: Any
    solver: str
    tol: float

    def labels(self, point: Point, rows: NDArray[np.intp]) -> soft_labels.SoftLabels:
        """Return the constraints on the given rows that follow from their labels and from the
        ``eta0`` and ``kappa`` of the setting ``point``.
        """
        half_width = soft_labels.half_widths(self.spread[rows], point.eta0, point.kappa)
        try:
            return soft_labels.soft_labels(self.p[rows], half_width, self.boundary, point.eta0)
        except ValueError as error:
            raise LearnerError(str(error)) from error

    def solutions(
        self, points: list[Point], rows: NDArray[np.intp], new: NDArray[np.intp]
    ) -> Iterator[tuple[int, Solution, float, Array]]:
        """Fit each setting in ``points`` to ``rows``, and yield the results of one setting after
        another.

        They are the index of the setting, the solution, the scale s, and the decision values f + b
        of the rows ``new``. Settings that cannot be fitted to the labels are left out.
        """
        # The optimisation problem without its kernel depends on eta0, kappa and C only. So settings
        # that differ only in scaling or gamma share one problem.
        point_by_problem = {(point.eta0, point.kappa, point.C): point for point in points}
        problems = {key: self._problem(point, rows) for key, point in point_by_problem.items()}
        # dict.fromkeys keeps each kernel once, in the order of the settings.
        for kernel in dict.fromkeys((point.scaling, point.gamma) for point in points):
            scaling, gamma = kernel
            distances = self.distances[scaling]
            K = np.exp(-gamma * distances[np.ix_(rows, rows)])
            K_new = np.exp(-gamma * distances[np.ix_(new, rows)])
            # All settings with this scaling and gamma share one kernel matrix.
            gram = Gram(Kernel("precomputed"), X=K, matrix=K)
            for k, point in enumerate(points):
                problem = problems[point.eta0, point.kappa, point.C]
                # The problem is None if the setting cannot be fitted to these labels.
                if (point.scaling, point.gamma) != kernel or problem is None:
                    continue
                solution = solve_pointwise(gram, problem, solver=self.solver, tol=self.tol)
                values = K_new @ solution.beta + solution.u[0]
                yield k, solution, margin_scale(point.eta0), values

    def _problem(self, point: Point, rows: NDArray[np.intp]) -> Problem | None:
        """Return the optimisation problem of the rows at a setting; None if no P-SVM can be fitted
        to their labels, for example because they constrain nothing.
        """
        labels = self.labels(point, rows)
        try:
            soft_labels.check_labels(labels, self.weight[rows] > 0)
        except LearnerError:
            return None
        cost = check_cost("C", point.C) * self.weight[rows]
        # Certain and soft labels have the same cost.
        return soft_labels.probabilistic_problem(labels, cost, cost, margin_scale(point.eta0))


def drawn_notes(learner: object, n_rows: int) -> list[str]:
    """Return a sentence if the kernels of a learner are fitted to only a sample of the rows, else
    an empty list.

    Parameters
    ----------
    learner : object
        Estimator or pipeline; only averaged P-SVMs, alone or in the ensemble, draw rows.
    n_rows : int
        Number of labelled rows.

    Returns
    -------
    list of str
    """
    # A pipeline's learner is its last step.
    steps = getattr(learner, "steps", None)
    estimator = learner if steps is None else steps[-1][1]
    if n_rows <= MOST_ROWS or not isinstance(estimator, AveragedProbabilisticSVC):
        return []
    return [
        f"kernels of the P-SVMs are fitted to {MOST_ROWS:,} of up to {n_rows:,} rows, drawn at "
        "random"
    ]


def drawn_rows(weight: Array, most: int) -> NDArray[np.intp]:
    """Return the numbers of the rows, at most ``most``, that a learner is fitted to, in ascending
    order.

    Parameters
    ----------
    weight : ndarray, shape (n,)
        Weights of the rows. If there are more than ``most`` rows, rows of weight zero are not
        drawn.
    most : int
        Largest number of rows. If there are more, this number is drawn at random.

    Returns
    -------
    ndarray of int, shape (k,)
        Numbers of the k rows, from 0. Where there are more than ``most`` rows, k is ``most`` or the
        number of rows of weight above 0, whichever is less. Equal arguments always give equal rows.

    Examples
    --------
    >>> import numpy as np
    >>> drawn_rows(np.ones(4), most=10).tolist()
    [0, 1, 2, 3]
    >>> len(drawn_rows(np.ones(100), most=10))
    10
    """
    if len(weight) <= most:
        return np.arange(len(weight))
    # Rows are drawn and not patients, so that rows of as many patients as possible are used.
    order = np.random.default_rng(0).permutation(np.flatnonzero(weight > 0))
    return np.sort(order[:most])


def _log_odds_of_mean(p: Array, weight: Array) -> float:
    """Return the log-odds of the weighted mean label."""
    mean = np.average(p, weights=weight)
    return float(logit(np.clip(mean, CLIP, 1 - CLIP)))


def _by_patient(losses: Array, patient: NDArray[np.intp], n_patients: int) -> Array:
    """Return the sums of losses over the rows of each patient, shape (k, n_patients).

    ``losses`` has shape (k, n), a row for each of k settings; ``patient`` has the number of the
    patient of each of the n regions.
    """
    return np.array([np.bincount(patient, row, n_patients) for row in losses])


def _pseudo_bma(sums: Array, drop: float) -> Array:
    """Return the weights of k settings, shape (k,), from their losses.

    ``sums``, shape (k, n_patients), has the loss of each setting on the rows of each patient. For
    each Bayesian-bootstrap resample of the patients, exp(-loss) of the settings is normalised to
    sum 1. The mean over resamples is the weight. A setting whose weight is below ``drop`` gets
    weight 0, and the weights that are left are divided by their sum.
    """
    possible = np.isfinite(sums).all(axis=1)  # settings that could be fitted in every fold
    n_patients = sums.shape[1]
    # In the Bayesian bootstrap (Rubin 1981) the weights of n patients are n times a sample of the
    # distribution Dirichlet(1, .., 1).
    dirichlet = np.random.default_rng(0).dirichlet(np.ones(n_patients), _RESAMPLES)
    patient_weights = dirichlet * n_patients
    score = -(patient_weights @ sums[possible].T)
    # The largest score is subtracted, because exp of minus a sum over hundreds of regions
    # underflows.
    score = np.exp(score - score.max(axis=1, keepdims=True))
    weight_of_setting = np.zeros(len(sums))
    weight_of_setting[possible] = (score / score.sum(axis=1, keepdims=True)).mean(axis=0)
    # The setting with the largest weight is never dropped.
    least_weight = min(drop, weight_of_setting.max())
    weight_of_setting[weight_of_setting < least_weight] = 0.0
    return np.asarray(weight_of_setting / weight_of_setting.sum())


def squared_distances(X: Array, Y: Array) -> Array:
    """Return squared Euclidean distances between the rows of two tables.

    Parameters
    ----------
    X, Y : ndarray, shape (n, d) and (m, d)
        The two tables.

    Returns
    -------
    ndarray, shape (n, m)
        Squared distances, never negative.

    Examples
    --------
    >>> import numpy as np
    >>> squared_distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]])).tolist()
    [[25.0]]
    """
    squares = np.sum(X**2, axis=1)[:, None] + np.sum(Y**2, axis=1) - 2 * (X @ Y.T)
    # Rounding can make the squared distance of a point to itself slightly negative.
    return np.asarray(np.maximum(squares, 0.0))
