"""Fit one probabilistic SVM to the rows of several sites, which send sums and never a row.

The kernel is linear, or a Gaussian kernel by random Fourier features of an agreed seed (Rahimi and
Recht 2007). With both kernels the decision function has a fixed number of weights w, however many
rows there are. The problem of the probabilistic SVM (P-SVM, docs/methods.md 2) is then the one
below. Z is the matrix of the constraints, t has their margins and c their costs, b is the
intercept, s the scale, and ' stands for transposition::

    min over w, b, s, xi >= 0    1/2 |w|^2 + c' xi ,    Z x - t + xi = v >= 0 ,    x = (w, b, s)

An interior-point method for this problem needs only sums over the rows of Z: Z' diag(give) Z and Z'
h, where ``give`` and h have a number for each row. Each row also has variables of its own: the dual
variables gamma and c - gamma, the surplus v and the shortfall xi. These variables stay at the site
of the row. So each step equals the step of a fit to all rows together; the result is no average of
the sites' fits.

A coordinator asks the sites questions. Questions and answers are JSON objects of numbers.
docs/federated.md lists them, and says what an answer can reveal. No support vectors and no
landmarks of a kernel approximation are sent, because each of them would be a patient's row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from cad.learning.learners.base import check_cost
from cad.learning.learners.probabilistic import margin_scale
from cad.learning.learners.soft_labels import (
    KIND_NAMES,
    Rule,
    check_soft,
    half_widths,
    probabilistic_problem,
    read_labels,
)
from cad.learning.learners.solvers.problem import Array, LearnerError

Message = dict[str, Any]
Send = Callable[[Message], Message]

# A step covers at most this share of the way to the point where a variable reaches its bound.
_CLOSE = 0.999
# Step lengths to choose from. A site answers how many of its rows forbid each length, which is a
# sum over rows. If it answered with the largest length that it allows, this would be a number from
# a single row.
LENGTHS = np.concatenate([[1.0, 0.995], 0.99 * 0.93 ** np.arange(60)])
_STEPS = 80
# A learned scale s that is below this share of the size of the decision values has collapsed to 0
# (docs/methods.md 2).
_COLLAPSED = 1e-6
# An objective below this share of the sum of costs may be only a rounding error.
_FLOOR = 1e-9
# First value of a learned scale. It is small, because fewer steps are needed when the scale grows
# during the fit.
_FIRST_SCALE = 0.05


class Refused(LearnerError):
    """Report that a site sends no further answers, because too few patients would contribute to its
    sums.
    """


@dataclass(frozen=True, kw_only=True)
class FederatedPlan:
    """Hold the settings that all sites agree on before the first message.

    Parameters
    ----------
    features : int
        Number of features of a row, in the order that the sites agree on.
    C : float
        Cost of a unit of violation: of the margin of a certain label, or of the interval of a soft
        label.
    eta0, kappa : float
        A soft label's interval has the half-width clip(max(eta0, kappa eta), 0, 1/2), with eta the
        uncertainty of the label.
    boundary : "drop" or "paper"
        How an interval that reaches 0 or 1 is treated: "drop" ignores the bound that lies
        outside (0, 1), "paper" makes the label certain (docs/methods.md 1).
    scale : "fixed", "learned" or float
        The scale s that divides decision values. With "learned", s >= 0 is a variable of the
        problem. With "fixed", s is 1 / ln(1/eta0 - 1), so that the probability at the margin of a
        malignant label is 1 - eta0. With a number, s is this number.
    clip : float
        Standardised features are clipped at this number of standard deviations.
    components : int
        Number of random Fourier features of the Gaussian kernel exp(-gamma |u - v|^2), an even
        number. With 0 the kernel is linear.
    gamma : float
        gamma of the Gaussian kernel, for standardised features.
    seed : int
        Seed of the random Fourier features.

    Raises
    ------
    LearnerError
        For a number out of range.

    Examples
    --------
    >>> FederatedPlan(features=12).size
    12
    >>> FederatedPlan(features=12, components=100, gamma=0.05).size
    100
    """

    features: int
    C: float = 1.0
    eta0: float = 0.125
    kappa: float = 0.0
    boundary: Rule = "drop"
    scale: Any = "fixed"
    clip: float = 3.0
    components: int = 0
    gamma: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        check_cost("C", self.C)
        check_cost("clip", self.clip)
        check_cost("gamma", self.gamma)
        if self.features < 1:
            raise LearnerError(f"features = {self.features}, must be 1 or more")
        if self.components < 0 or self.components % 2:
            raise LearnerError(
                f"components = {self.components}, must be even (a cosine and a sine each) or 0"
            )
        if self.scale != "learned":
            self.fixed_scale()  # raises an error for a scale or an eta0 out of range

    @property
    def size(self) -> int:
        """Return the number of weights."""
        if self.components:
            return self.components
        return self.features

    def unknowns(self) -> int:
        """Return the number of unknowns: the weights, the intercept and, if it is learned, the
        scale.
        """
        if self.scale == "learned":
            return self.size + 2
        return self.size + 1

    def fixed_scale(self) -> float:
        """Return the scale s of a plan in which it is not learned."""
        if self.scale == "fixed":
            return margin_scale(self.eta0)
        return check_cost("scale", self.scale)

    def expand(self, rows: Array) -> Array:
        """Return the values that the weights multiply, shape (n, size), for rows of shape (n,
        features).

        Random Fourier features are the cosines and the sines along the same random directions. So
        the kernel of a row with itself is 1, as for the Gaussian kernel.
        """
        clipped = np.clip(rows, -self.clip, self.clip)
        if not self.components:
            return np.asarray(clipped)
        half = self.components // 2
        # The random generator is named explicitly. If a site's version of numpy had another default
        # generator, the site would have another kernel.
        generator = np.random.Generator(np.random.PCG64(self.seed))
        directions = generator.standard_normal((self.features, half)) * np.sqrt(2 * self.gamma)
        angles = clipped @ directions
        waves = np.hstack([np.cos(angles), np.sin(angles)])
        return np.asarray(waves / np.sqrt(half))


class FederatedSite:
    """Hold one site's rows and answer questions about them by sums.

    Parameters
    ----------
    plan : FederatedPlan
        The settings that all sites agree on.
    X : array, shape (n, features)
        The site's features; every number finite.
    y : array, shape (n,)
        Probabilities in [0, 1]; 0 and 1 are certain.
    eta : float or array, shape (n,)
        Uncertainty of every label.
    groups : array, shape (n,), optional
        Patient of every row; by default each row counts as a patient of its own.
    least_patients : float
        A weighted sum to which fewer patients contribute is not sent (:attr:`patients_in_sums`).
        With 0 all sums are sent.

    Attributes
    ----------
    patients_in_sums : list of float
        For each step of the fit, how many patients contribute to the weighted sums. It is the
        squared sum of the patients' weights, divided by the sum of their squared weights. It falls
        towards the end of a fit, when only rows on the margin have weight.

    Raises
    ------
    LearnerError
        For rows with another number of features than in the plan, for labels or groups of another
        length, and for a number that is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> plan = FederatedPlan(features=2)
    >>> site = FederatedSite(plan, np.eye(2), [0.0, 1.0])
    >>> site.answer({"ask": "sums"})
    {'rows': 2, 'sums': [1.0, 1.0]}
    """

    def __init__(
        self,
        plan: FederatedPlan,
        X: ArrayLike,
        y: ArrayLike,
        eta: ArrayLike = 0.0,
        groups: ArrayLike | None = None,
        least_patients: float = 0.0,
    ) -> None:
        rows = np.asarray(X, dtype=float)
        if rows.ndim != 2 or rows.shape[1] != plan.features:
            raise LearnerError(
                f"features of shape {rows.shape}; the plan has {plan.features} columns"
            )
        if not np.isfinite(rows).all():
            row, column = np.argwhere(~np.isfinite(rows))[0].tolist()
            raise LearnerError(
                f"X[{row}, {column}] = {rows[row, column]}, must be finite",
                hint="fill in what is missing by a rule that all sites share",
            )
        p, spread = check_soft(np.asarray(y, dtype=float), eta)
        if len(p) != len(rows):
            raise LearnerError(f"{len(p)} labels for {len(rows)} rows: they must agree")
        if groups is None:
            groups = np.arange(len(rows))
        self._patient = np.unique(np.asarray(groups), return_inverse=True)[1]
        if len(self._patient) != len(rows):
            raise LearnerError(f"{len(self._patient)} groups for {len(rows)} rows: they must agree")
        self.plan = plan
        self.least_patients = least_patients
        self.patients_in_sums: list[float] = []
        self._asked: Counter[str] = Counter()  # how often each question came
        self._rows = rows
        half_width = half_widths(spread, plan.eta0, plan.kappa)
        self._labels = read_labels(p, half_width, plan.boundary, plan.eta0)
        # The question "start" sets the values that the weights multiply, and the constraints.
        self._features = rows
        self._Z = np.zeros((0, plan.size))

    def answer(self, question: Message) -> Message:
        """Answer one question by sums over the site's rows.

        Parameters
        ----------
        question : dict
            The entry ``ask`` names the question; the other entries are its numbers.

        Returns
        -------
        dict
            Sums, as numbers and lists of numbers. If the site refuses, the only entry is
            ``refused``, the reason in words.

        Raises
        ------
        LearnerError
            For a question that is unknown, comes out of turn, or is asked more often than a fit
            needs. Also for a question whose numbers have another shape than in a fit.
        """
        answers: dict[str, Callable[[Message], Message]] = {
            "sums": self._sums,
            "squares": self._squares,
            "labels": self._kinds,
            "start": self._start,
            "system": self._system,
            "predictor": self._predictor,
            "corrector": self._corrector,
        }
        if not isinstance(question, dict):
            raise LearnerError(f"a question is an object, found {type(question).__name__}")
        name = question.get("ask")
        if not isinstance(name, str) or name not in answers:
            raise LearnerError(f"the question {name!r} is unknown: {', '.join(answers)}")
        # The other questions may come at any time.
        earlier_question = {"system": "start", "predictor": "system", "corrector": "predictor"}.get(
            name
        )
        if earlier_question is not None and not self._asked[earlier_question]:
            raise LearnerError(f'the question "{name}" came before "{earlier_question}"')
        # Each question may be asked only so often, because many sums over the same rows, each with
        # other weights, would reveal the rows.
        self._asked[name] += 1
        most_times = 1
        if name in ("system", "predictor", "corrector"):
            most_times = _STEPS
        if self._asked[name] > most_times:
            raise LearnerError(
                f'the question "{name}" came {self._asked[name]} times, '
                f"a fit asks it {most_times} times",
                hint="make another FederatedSite for another fit",
            )
        try:
            return answers[name](question)
        except Refused as error:
            return {"refused": str(error)}

    def _numbers(self, question: Message, name: str, length: int) -> Array:
        """Return a list of numbers from a question; raise an error for another length.

        An array of more dimensions is refused, because a sum weighted by it could reveal single
        rows.
        """
        return _finite(question, name, (length,), f'the question "{question["ask"]}"')

    def _number(self, question: Message, name: str) -> float:
        """Return a number from a question; raise an error if it is a list."""
        return float(_finite(question, name, (), f'the question "{question["ask"]}"'))

    def _sums(self, _: Message) -> Message:
        """Return the number of rows and the sum of every feature."""
        return {"rows": len(self._rows), "sums": self._rows.sum(axis=0).tolist()}

    def _squares(self, question: Message) -> Message:
        """Return, for every feature, the sum of squared distances from the mean of all sites."""
        distance = self._rows - self._numbers(question, "mean", self.plan.features)
        return {"squares": (distance**2).sum(axis=0).tolist()}

    def _kinds(self, _: Message) -> Message:
        """Return how many labels are of each kind, and how many soft ones exclude 1/2."""
        labels = self._labels
        # The bounds are log-odds, so 1/2 is 0.
        beyond_half = labels.bounded & ((labels.lower > 0) | (labels.upper < 0))
        return {"kinds": list(labels.counts().values()), "beyond_half": int(beyond_half.sum())}

    def _start(self, question: Message) -> Message:
        """Prepare the fit at this site; return the number of its constraints and their total cost.

        The site's rows are standardised, its optimisation problem is set up, and all variables get
        values between their bounds.
        """
        mean = self._numbers(question, "mean", self.plan.features)
        deviation = self._numbers(question, "deviation", self.plan.features)
        if not (deviation > 0).all():
            raise LearnerError('the question "start": a deviation must be above 0')
        x = self._numbers(question, "x", self.plan.unknowns())
        scale = None
        if self.plan.scale != "learned":
            scale = self.plan.fixed_scale()
        if question.get("scale") != scale:
            raise LearnerError('the question "start": the scale is not the plan\'s')
        self._features = self.plan.expand((self._rows - mean) / deviation)
        cost = np.full(len(self._rows), self.plan.C)
        problem = probabilistic_problem(self._labels, cost, cost, scale)
        self._margins = problem.t
        self._costs = problem.c
        point = problem.A.indices
        self._owner = self._patient[point]  # patient of every constraint
        # Each constraint is about one point, with a sign that A holds.
        signed_features = problem.A.data[:, None] * self._features[point]
        self._Z = np.hstack([signed_features, np.asarray(problem.B)])
        shortfall = problem.t - self._Z @ x
        # The duals gamma and c - gamma, the surplus v and the shortfall xi start above 0.
        self._gamma = 0.5 * problem.c
        self._back = 0.5 * problem.c
        self._v = np.maximum(-shortfall, 0.0) + 1.0
        self._xi = np.maximum(shortfall, 0.0) + 1.0
        self._moves: tuple[Array, Array, Array] | None = None
        return {"constraints": len(problem.c), "cost": float(problem.c.sum())}

    def _system(self, question: Message) -> Message:
        """Carry out the previous step, and return the sums for the equations of the next step.

        The question has the length of the previous step, which the coordinator chose.
        """
        x = self._numbers(question, "x", self.plan.unknowns())
        # Before the first step there are no changes yet.
        if self._moves is not None:
            length = self._number(question, "length")
            d_gamma, d_v, d_xi = self._moves
            self._gamma = self._gamma + length * d_gamma
            self._back = self._back - length * d_gamma  # c - gamma
            self._v = self._v + length * d_v
            self._xi = self._xi + length * d_xi
        gamma = self._gamma
        back = self._back
        v = self._v
        xi = self._xi
        self._give = 1.0 / (xi / back + v / gamma)
        self._off = self._margins - self._Z @ x - xi + v
        self._count_patients()
        weighted = self._Z * self._give[:, None]
        # The matrix is symmetric, so its upper triangle is enough.
        upper = np.triu_indices(self._Z.shape[1])
        values = self._features @ x[: self.plan.size]  # decision values without intercept
        right = self._off + xi - v
        return {
            "matrix": (weighted.T @ self._Z)[upper].tolist(),
            "pull": (self._Z.T @ gamma).tolist(),
            "right": (weighted.T @ right).tolist(),
            "products": float(gamma @ v + back @ xi),
            "missed": float(self._costs @ xi),
            "squared_values": float((values**2).sum()),
        }

    def _count_patients(self) -> None:
        """Raise Refused if too few patients contribute to the weighted sums of a step.

        The number of patients is that of equal weights: the squared sum of the patients' weights,
        divided by the sum of their squared weights.
        """
        weight = self._give * (self._Z**2).sum(axis=1)
        patient_weight = np.bincount(self._owner, weight)
        total = float(patient_weight.sum())
        n_patients = 0.0
        if total > 0:
            shares = patient_weight / total
            n_patients = float(1.0 / (shares @ shares))
        if n_patients < self.least_patients:
            raise Refused(
                f"{n_patients:.1f} patients would make up the sums, "
                f"{self.least_patients:g} are the least",
                hint="end here: the fit so far is kept, with its gap",
            )
        self.patients_in_sums.append(n_patients)

    def _change(self, dx: Array, to_v: Array, to_xi: Array) -> tuple[Array, Array, Array]:
        """Return the changes of gamma, v and xi that belong to a change ``dx`` of the unknowns x.

        gamma are the dual variables. v is how far each row lies above its margin, and xi how far it
        falls short of it. ``to_v`` is the change that the product gamma v shall have, and ``to_xi``
        the change that the product (c - gamma) xi shall have, with c the costs.
        """
        right_of_rows = self._off - to_xi / self._back + to_v / self._gamma
        d_gamma = self._give * (right_of_rows - self._Z @ dx)
        d_v = (to_v - self._v * d_gamma) / self._gamma
        d_xi = (to_xi + self._xi * d_gamma) / self._back
        return d_gamma, d_v, d_xi

    def _blocked(self, d_gamma: Array, d_v: Array, d_xi: Array) -> list[int]:
        """Return for each step length in :data:`LENGTHS` how many constraints forbid it.

        A constraint forbids a step that brings one of its variables too close to a bound.
        """
        # For each row and each of its bounds: the share of the way to the bound that a step of
        # length 1 would go.
        to_bounds = [-d_gamma / self._gamma, d_gamma / self._back, -d_v / self._v, -d_xi / self._xi]
        nearest = np.maximum.reduce(to_bounds)
        is_forbidden = nearest[:, None] * LENGTHS[None, :] > _CLOSE
        return [int(count) for count in is_forbidden.sum(axis=0)]

    def _predictor(self, question: Message) -> Message:
        """Return how far the predictor step may go, and the sums for the corrector.

        The predictor is the step at whose end all products of a variable and its dual variable
        would be 0, if second-order terms were 0.
        """
        dx = self._numbers(question, "dx", self.plan.unknowns())
        to_v = -self._gamma * self._v
        to_xi = -self._back * self._xi
        d_gamma, d_v, d_xi = self._change(dx, to_v, to_xi)
        # After a step of some length the sum of the products has changed by length * linear +
        # length^2 * quadratic.
        linear = d_gamma @ self._v + self._gamma @ d_v - d_gamma @ self._xi + self._back @ d_xi
        quadratic = d_gamma @ d_v - d_gamma @ d_xi
        # After a full predictor step, each product of a variable and its dual variable would still
        # be the product of their two changes. The corrector subtracts it.
        self._to_v = to_v - d_gamma * d_v
        self._to_xi = to_xi + d_gamma * d_xi
        right_of_rows = self._off - self._to_xi / self._back + self._to_v / self._gamma
        # The coordinator chooses ``centre``, the value of all products at which the corrector aims.
        per_centre = 1.0 / self._gamma - 1.0 / self._back
        return {
            "blocked": self._blocked(d_gamma, d_v, d_xi),
            "linear": float(linear),
            "quadratic": float(quadratic),
            "right": (self._Z.T @ (self._give * right_of_rows)).tolist(),
            "right_per_centre": (self._Z.T @ (self._give * per_centre)).tolist(),
        }

    def _corrector(self, question: Message) -> Message:
        """Compute and keep the changes of the corrector step, and return which lengths it may have.

        The answer has, for each step length, the number of this site's constraints that forbid it.
        """
        dx = self._numbers(question, "dx", self.plan.unknowns())
        centre = self._number(question, "centre")
        self._moves = self._change(dx, centre + self._to_v, centre + self._to_xi)
        return {"blocked": self._blocked(*self._moves)}


@dataclass(frozen=True)
class FederatedRound:
    """Hold the state of a federated fit before one step, and the number of bytes sent until then.

    Parameters
    ----------
    step : int
        Number of the step, from 1.
    gap : float
        Upper bound of the objective's relative distance from its optimum, before the step.
    sent : int
        Number of bytes of all sites' answers so far, as JSON.
    x : ndarray
        The unknowns before the step: weights, intercept, and the scale if it is learned.
    """

    step: int
    gap: float
    sent: int
    x: Array


@dataclass(frozen=True)
class FederatedFit:
    """Hold the P-SVM that sites have fitted together.

    Parameters
    ----------
    plan : FederatedPlan
        The settings that all sites agreed on.
    mean, deviation : ndarray, shape (features,)
        Mean and standard deviation of the features over all sites.
    weights : ndarray, shape (plan.size,)
        The weights w of the decision function w'z + b, with z the values of a row from
        :meth:`FederatedPlan.expand`.
    intercept, scale : float
        Intercept b and scale s: P = 1 / (1 + exp(-(w'z + b) / s)).
    gap : float
        Upper bound of the relative distance of the objective from the optimum.
    converged : bool
        Whether the gap is at most the wanted gap ``tol``.
    refused : str
        The reason why a site refused to answer; empty if no site refused.
    rounds : list of FederatedRound
        Every step of the fit.
    rows : int
        Number of rows of all sites.
    """

    plan: FederatedPlan
    mean: Array
    deviation: Array
    weights: Array
    intercept: float
    scale: float
    gap: float
    converged: bool
    refused: str
    rows: int
    rounds: list[FederatedRound] = field(repr=False)

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the decision values w'z + b, shape (n,), of features of shape (n, features)."""
        rows = np.asarray(X, dtype=float)
        if rows.ndim != 2 or rows.shape[1] != self.plan.features:
            raise LearnerError(
                f"features of shape {rows.shape}; the plan has {self.plan.features} columns"
            )
        expanded = self.plan.expand((rows - self.mean) / self.deviation)
        return np.asarray(expanded @ self.weights + self.intercept)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probabilities of the negative and the positive class, shape (n, 2)."""
        positive = np.asarray(expit(self.decision_function(X) / self.scale))
        return np.column_stack([1.0 - positive, positive])


def fit_federated(plan: FederatedPlan, sites: Sequence[Send], tol: float = 1e-12) -> FederatedFit:
    """Fit one P-SVM to the rows of all sites by exchanging sums.

    Parameters
    ----------
    plan : FederatedPlan
        The settings that all sites agree on.
    sites : sequence of callable
        One callable per site. It takes a question and returns the site's answer
        (:meth:`FederatedSite.answer`, called directly or over a network).
    tol : float
        Relative gap at which to stop.

    Returns
    -------
    FederatedFit
        The fit with the smallest gap. ``converged`` is False if the gap stayed above ``tol``,
        because a site refused, steps became too short or too many steps were made.

    Raises
    ------
    LearnerError
        For labels that no P-SVM can be fitted to, and for a scale that collapses.

    Examples
    --------
    >>> import numpy as np
    >>> plan = FederatedPlan(features=1)
    >>> sites = [
    ...     FederatedSite(plan, [[-1.0], [1.0]], [0.0, 1.0]),
    ...     FederatedSite(plan, [[-2.0], [2.0]], [0.0, 1.0]),
    ... ]
    >>> fit = fit_federated(plan, [site.answer for site in sites])
    >>> fit.predict_proba([[3.0]])[0, 1] > 0.9
    np.True_
    """
    wire = _Wire(plan, sites)
    mean, deviation, rows = _moments(wire)
    scale = _checked_scale(plan, wire)
    solver = _Coordinator(plan, wire, mean, deviation, scale)
    refused = solver.run(tol)
    learned = scale is None
    x = solver.x
    s = float(x[-1]) if learned else float(plan.fixed_scale())
    # Decision values below a thousandth count as a thousandth (docs/methods.md 2).
    size_of_values = max(solver.typical_value / np.sqrt(rows), 1e-3)
    if learned and s <= _COLLAPSED * size_of_values:
        raise LearnerError(
            f"the learned scale collapsed to {s:.3g}",
            hint="use a wider eta0, a smaller C, or scale='fixed'",
        )
    return FederatedFit(
        plan=plan,
        mean=mean,
        deviation=deviation,
        weights=x[: plan.size],
        intercept=float(x[plan.size]),
        scale=s,
        gap=solver.gap,
        converged=solver.gap <= tol,
        refused=refused,
        rows=rows,
        rounds=solver.rounds,
    )


def _finite(message: Message, name: str, shape: tuple[int, ...], subject: str) -> Array:
    """Return an entry of a message as an array of finite numbers with the given shape."""
    if name not in message:
        raise LearnerError(f"{subject} lacks {name}")
    try:
        numbers = np.asarray(message[name], dtype=float)
    except (TypeError, ValueError):
        raise LearnerError(f"{subject}: {name} holds what is no number") from None
    if numbers.shape != shape:
        raise LearnerError(f"{subject}: {name} of shape {numbers.shape}, must be {shape}")
    if not np.isfinite(numbers).all():
        raise LearnerError(f"{subject}: {name} holds a number that is not finite")
    return numbers


def _answer_shapes(plan: FederatedPlan) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return, by question to a site, the names of the entries of the answer and their shapes."""
    features = (plan.features,)
    unknowns = (plan.unknowns(),)
    triangle = (plan.unknowns() * (plan.unknowns() + 1) // 2,)
    lengths = (len(LENGTHS),)
    return {
        "sums": {"rows": (), "sums": features},
        "squares": {"squares": features},
        "labels": {"kinds": (len(KIND_NAMES),), "beyond_half": ()},
        "start": {"constraints": (), "cost": ()},
        "system": {
            "matrix": triangle,
            "pull": unknowns,
            "right": unknowns,
            "products": (),
            "missed": (),
            "squared_values": (),
        },
        "predictor": {
            "blocked": lengths,
            "linear": (),
            "quadratic": (),
            "right": unknowns,
            "right_per_centre": unknowns,
        },
        "corrector": {"blocked": lengths},
    }


class _Wire:
    """Send a question to every site, add up the answers and count their bytes."""

    def __init__(self, plan: FederatedPlan, sites: Sequence[Send]) -> None:
        if not sites:
            raise LearnerError("no site: there is nothing to fit")
        self._shapes = _answer_shapes(plan)
        self._sites = sites
        self.sent = 0

    def ask(self, question: Message) -> dict[str, Array]:
        """Send a question to all sites; return, for each entry of the answers, its sum over sites.

        An error is raised if a site refuses to answer, or if an entry has a wrong shape.
        """
        total: dict[str, Array] = {}
        for site in self._sites:
            answer = site(question)
            subject = f'a site\'s answer to "{question["ask"]}"'
            if not isinstance(answer, dict):
                raise LearnerError(f"{subject} is an object, found {type(answer).__name__}")
            self.sent += len(json.dumps(answer))
            if "refused" in answer:
                raise Refused(str(answer["refused"]))
            for name, shape in self._shapes[question["ask"]].items():
                numbers = _finite(answer, name, shape, subject)
                if name in total:
                    total[name] = total[name] + numbers
                else:
                    total[name] = numbers
        return total


def _moments(wire: _Wire) -> tuple[Array, Array, int]:
    """Return mean, standard deviation and number of the rows of all sites."""
    first = wire.ask({"ask": "sums"})
    rows = int(first["rows"])
    mean = first["sums"] / rows
    second = wire.ask({"ask": "squares", "mean": mean.tolist()})
    deviation = np.sqrt(second["squares"] / rows)
    # A constant feature is divided by 1.
    deviation = np.where(deviation > 0, deviation, 1.0)
    return mean, deviation, rows


def _checked_scale(plan: FederatedPlan, wire: _Wire) -> float | None:
    """Return the scale s if it is fixed, None if it is learned.

    An error is raised if no P-SVM can be fitted to the labels of all sites.
    """
    counts = wire.ask({"ask": "labels"})
    kinds = dict(zip(KIND_NAMES, counts["kinds"], strict=True))
    n_certain = kinds["certain_negative"] + kinds["certain_positive"]
    n_soft = kinds["two_sided"] + kinds["one_sided"]
    if n_soft == 0 and min(kinds["certain_negative"], kinds["certain_positive"]) == 0:
        raise LearnerError("one class only among the labels of all sites: two are needed")
    if plan.scale != "learned":
        return plan.fixed_scale()
    if n_certain == 0 or counts["beyond_half"] == 0:
        raise LearnerError(
            "the scale cannot be learned: that takes a certain label, and a soft one that excludes "
            "1/2",
            hint='use scale="fixed"',
        )
    return None


class _Coordinator:
    """Run the interior-point method (Mehrotra's predictor and corrector) on the sites' sums.

    Every bounded variable has a multiplier (a dual variable). Their products are gamma v and
    (c - gamma) xi of every constraint, and s times its multiplier if the scale is learned. All
    products are 0 at the optimum. The method keeps the variables and multipliers above 0, and
    shrinks the products step by step.

    Attributes
    ----------
    x : ndarray, shape (unknowns,)
        Weights, intercept, and the scale s if it is learned.
    price : float
        Multiplier of the bound s >= 0; without effect for a fixed s.
    quadratic : ndarray, shape (unknowns,)
        Diagonal of the matrix Q of the objective 1/2 x'Qx: 1 for a weight, else 0.
    constraints, cost : float
        Number of constraints of all sites, and sum of their costs.
    gap : float
        Upper bound of the relative distance of the objective from the optimum.
    typical_value : float
        Root of the sum of squared decision values without intercept, at the smallest gap.
    """

    def __init__(
        self, plan: FederatedPlan, wire: _Wire, mean: Array, deviation: Array, scale: float | None
    ) -> None:
        self.wire = wire
        self.learned = scale is None
        n_unknowns = plan.unknowns()
        self.quadratic = np.zeros(n_unknowns)
        self.quadratic[: plan.size] = 1.0
        self.x = np.zeros(n_unknowns)
        if self.learned:
            self.x[-1] = _FIRST_SCALE
        start = {
            "ask": "start",
            "mean": mean.tolist(),
            "deviation": deviation.tolist(),
            "scale": scale,
            "x": self.x.tolist(),
        }
        counts = wire.ask(start)
        self.constraints = float(counts["constraints"])
        self.cost = float(counts["cost"])
        # The multiplier of the bound s >= 0 of the scale s starts at the mean cost of a constraint.
        self.price = self.cost / self.constraints
        self.gap = np.inf
        self.typical_value = 0.0
        self.rounds: list[FederatedRound] = []

    def run(self, tol: float) -> str:
        """Make steps until the relative duality gap is at most ``tol``.

        End earlier if a site refuses to answer, if no step is possible or after the largest number
        of steps. The point with the smallest gap is kept. Return the reason of the site that
        refused, else "".
        """
        best_gap = np.inf
        best_x = self.x
        length = 0.0
        refused = ""
        for step in range(1, _STEPS + 1):
            try:
                sums = self.wire.ask({"ask": "system", "x": self.x.tolist(), "length": length})
            except Refused as error:
                refused = str(error)
                break
            gap = self._relative_gap(sums)
            self.rounds.append(
                FederatedRound(step=step, gap=gap, sent=self.wire.sent, x=self.x.copy())
            )
            if gap < best_gap:
                best_gap = gap
                best_x = self.x.copy()
                self.typical_value = float(np.sqrt(sums["squared_values"]))
            if gap <= tol:
                break
            length = self._step(sums)
            if length == 0.0:  # no further step is possible
                break
        self.gap = best_gap
        self.x = best_x
        return refused

    def _relative_gap(self, sums: dict[str, Array]) -> float:
        """Return the sum of all products of variables and multipliers, relative to the objective.

        This sum bounds the distance of the objective from its optimum.
        """
        products = float(sums["products"]) + self._product_of_scale()
        objective = 0.5 * float(self.quadratic @ self.x**2) + float(sums["missed"])
        return products / max(objective, _FLOOR * self.cost)

    def _product_of_scale(self) -> float:
        """Return s times the multiplier of the bound s >= 0; 0 if the scale s is fixed.

        This product is not in the sums that the sites send.
        """
        if not self.learned:
            return 0.0
        return float(self.x[-1]) * self.price

    def _step(self, sums: dict[str, Array]) -> float:
        """Change x and the multiplier of s >= 0 by one step of Mehrotra's method (1992).

        Each variable with a bound has a multiplier. The product of the two is 0 at the optimum. The
        predictor is the change that aims at products of 0. How far the bounds let the predictor go
        shows how small the products can become in this step. The corrector is the change that aims
        at products of about this size, the same for all. The step is the corrector, as far as the
        bounds let it go.

        Parameters
        ----------
        sums : dict of ndarray
            Sums over all sites at the current x: the answer to the question "system", with
            ``matrix``, ``pull``, ``right`` and ``products`` (docs/federated.md, "The messages").

        Returns
        -------
        float
            Length of the step, one of :data:`LENGTHS`; 0 where the equations have no solution or
            every length is forbidden. Nothing has then changed, and the fit ends.
        """
        n_products = 2 * self.constraints + self.learned
        product_of_scale = self._product_of_scale()
        products = float(sums["products"]) + product_of_scale
        mean_product = products / n_products
        try:
            factor = cho_factor(self._newton_matrix(sums["matrix"]))
        except np.linalg.LinAlgError:
            return 0.0  # rounding errors made the matrix indefinite

        # The predictor
        dx, d_price = self._direction(factor, sums["pull"], sums["right"], -product_of_scale)
        predicted = self.wire.ask({"ask": "predictor", "dx": dx.tolist()})
        length = self._longest(predicted["blocked"], dx, d_price)

        # The sum of the products at the end of the predictor step. A product is (a + length da) (b
        # + length db), with a variable a and its dual variable b.
        products_ahead = products + length * float(predicted["linear"])
        products_ahead += length**2 * float(predicted["quadratic"])
        if self.learned:
            products_ahead += length * (dx[-1] * self.price + self.x[-1] * d_price)
            products_ahead += length**2 * dx[-1] * d_price
        # The more the predictor shrinks the products of variables and their dual variables, the
        # smaller is ``centre``, the value that the corrector gives to all these products.
        remaining = max(products_ahead / n_products, 0.0) / mean_product
        centre = mean_product * remaining**3

        # The corrector. The linear equations leave out the product of a variable's change and its
        # dual variable's change. The corrector subtracts this product, computed from the
        # predictor's changes.
        right = predicted["right"] + centre * predicted["right_per_centre"]
        change_of_product = centre - product_of_scale - dx[-1] * d_price
        dx, d_price = self._direction(factor, sums["pull"], right, change_of_product)
        corrected = self.wire.ask({"ask": "corrector", "dx": dx.tolist(), "centre": centre})
        length = self._longest(corrected["blocked"], dx, d_price)
        self.x = self.x + length * dx
        self.price = self.price + length * d_price
        return length

    def _newton_matrix(self, triangle: Array) -> Array:
        """Return the matrix Z'DZ + Q of the Newton equations, shape (unknowns, unknowns).

        Z is the matrix of the constraints, D the diagonal matrix of the weights ``give`` of the
        constraints, and Q the matrix of the objective. ``triangle`` is the upper triangle of Z'DZ,
        row by row. If the scale s is learned, its diagonal element also has the multiplier of s
        divided by s.
        """
        n_unknowns = len(self.x)
        upper = np.zeros((n_unknowns, n_unknowns))
        upper[np.triu_indices(n_unknowns)] = triangle
        matrix = upper + np.triu(upper, 1).T
        matrix[np.diag_indices(n_unknowns)] += self.quadratic
        if self.learned:
            matrix[-1, -1] += self.price / self.x[-1]
        return matrix

    def _direction(
        self, factor: tuple[Array, bool], pull: Array, right: Array, change_of_product: float
    ) -> tuple[Array, float]:
        """Solve the Newton equations for the changes of x and of the multiplier of s >= 0.

        Parameters
        ----------
        factor : tuple
            Cholesky factor of the matrix of :meth:`_newton_matrix`.
        pull, right : ndarray, shape (unknowns,)
            The sums Z' gamma and Z'Dh over all sites. Z is the matrix of the constraints, gamma
            their dual variables and D the diagonal matrix of their weights. h has a number for each
            constraint. It follows from the value at which the step aims for each product of a
            variable and its multiplier.
        change_of_product : float
            Change that the product of s and its multiplier shall have; not used for a fixed s.

        Returns
        -------
        dx : ndarray, shape (unknowns,)
            Change of x.
        d_price : float
            Change of the multiplier; 0 for a fixed s.
        """
        # The gradient of the Lagrangian by x must be 0; ``missing`` is minus this gradient.
        missing = pull - self.quadratic * self.x
        if self.learned:
            missing[-1] += self.price
        target = missing + right
        if not self.learned:
            return np.asarray(cho_solve(factor, target)), 0.0
        s = float(self.x[-1])
        target[-1] += change_of_product / s
        dx = np.asarray(cho_solve(factor, target))
        # The product of s and its multiplier changes by s * d_price + price * dx[-1], if the
        # product of the two changes is left out. This must be the wanted change, which gives
        # d_price.
        d_price = (change_of_product - self.price * dx[-1]) / s
        return dx, float(d_price)

    def _longest(self, blocked: NDArray[np.float64], dx: Array, d_price: float) -> float:
        """Return the longest step of :data:`LENGTHS` with which all variables stay within their
        bounds.

        ``blocked`` says how many rows of all sites forbid each length. The scale s and its
        multiplier may forbid a length, too. The result is 0 if all lengths are forbidden.
        """
        is_allowed = blocked == 0
        if self.learned:
            # The larger share of the way to a bound that a step of length 1 would go.
            nearest_bound = max(-dx[-1] / self.x[-1], -d_price / self.price)
            is_allowed &= nearest_bound * LENGTHS <= _CLOSE
        if not is_allowed.any():
            return 0.0  # the fit ends
        return float(LENGTHS[is_allowed].max())
