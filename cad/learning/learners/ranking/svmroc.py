"""Provide SVMROC, a kernel machine on pairs of a positive and a negative row ([W14] (2)).

SSLROC is its semi-supervised version, which also ranks unlabelled rows and learns soft labels for
them ([W14] (3), (5)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cad.learning.learners.base import check_cost
from cad.learning.learners.ranking import base
from cad.learning.learners.solvers import kernels
from cad.learning.learners.solvers.cvxopt_solver import solve_cvxopt
from cad.learning.learners.solvers.pairwise import PairwiseProblem, kernel_factor, solve_pairwise
from cad.learning.stored import Declared, floats, whole

# The interior-point method never reaches 0, so coefficients below this share of the largest
# coefficient count as 0.
_ZERO = 1e-8


@dataclass(eq=False, repr=False)
class SVMROC(base.Ranker):
    """Rank by the support vector machine for the area under the ROC curve ([W14] (2)).

    The learner minimises 1/2 |w|^2 + C sum over pairs max(0, 1 - (f_p - f_q))^norm. Here w are the
    weights in the space of the kernel, and f the scores. A pair has a positive p and a negative q.
    In the attributes, support vectors are training rows whose coefficient is not 0.

    Parameters
    ----------
    C : float
        Cost of a unit of violation of a pair's margin (squared for ``norm=2``).
    norm : 1 or 2
        Hinge or squared hinge.
    kernel : "rbf", "linear", "poly", "precomputed" or function
        A function gets rows of the shapes (n, d) and (m, d) and returns their kernel values, of
        shape (n, m).
    gamma : "scale", "auto" or float
        gamma of the kernel exp(-gamma |u - v|^2) of rows u and v; "scale" is 1 / (d Var X) and
        "auto" is 1 / d, with d features.
    degree, coef0 : int, float
        Degree and constant of the polynomial kernel (gamma u'v + coef0)^degree.
    solver : {"auto", "interior-point", "cvxopt"}
        The pairwise interior-point method ("auto" and "interior-point"), or the slow reference
        ("cvxopt", for small problems).
    tol : float
        Relative duality gap at which the solver stops; the violation of the optimality conditions
        (KKT) must be below ten times ``tol``.
    max_iter : int
        Most iterations of the solver.
    platt_folds : int
        Number of folds for the out-of-fold scores that Platt's sigmoid is fitted to; with 0 it is
        fitted to the scores of the training rows.

    Attributes
    ----------
    support_ : ndarray of int
        Rows whose coefficient is not 0.
    support_vectors_ : ndarray, shape (n_support, d)
        Features of these rows.
    dual_coef_ : ndarray, shape (1, n_support)
        Their coefficients in the kernel expansion.
    intercept_ : ndarray, shape (1,)
        The intercept, which is added to the kernel expansion.
    solution_ : Solution
        Solution of the optimisation problem, and how exact it is.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import SVMROC
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0]])
    >>> model = SVMROC(kernel="linear", platt_folds=0).fit(X, [0, 0, 0, 1, 1, 1])
    >>> model.predict([[-1.2], [1.2]]).tolist()
    [0, 1]
    """

    stored: ClassVar[Declared] = {
        "support_": whole("n"),
        "support_vectors_": floats("n", "d"),
        "dual_coef_": floats(1, "n"),
        "gamma_": floats(low=0.0),
        "n_iter_": whole(),
    }

    C: float = 1.0
    norm: int = 1
    kernel: str | kernels.KernelFunction = "rbf"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 1.0
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 100
    platt_folds: int = 5

    def _check_parameters(self) -> None:
        check_cost("C", self.C)
        check_cost("tol", self.tol)
        base.require_choice("norm", self.norm, (1, 2))
        base.require_choice("solver", self.solver, ("auto", "interior-point", "cvxopt"))
        base.require_count("max_iter", self.max_iter)

    def _fit_scores(self, X: base.Floats, sign: base.Floats, weight: base.Floats) -> None:
        # All rows are labelled, so the margin of pairs with an unlabelled row has no effect.
        self._solve(X, sign, weight, costs=(self.C, self.C), margin=1.0)

    def _solve(
        self,
        X: base.Floats,
        sign: base.Floats,
        weight: base.Floats,
        costs: tuple[float, float],
        margin: float,
    ) -> None:
        """Solve the problem and set the fitted attributes.

        ``costs`` are the cost of a pair of labelled points, and the cost of a pair with an
        unlabelled point; ``margin`` is M of :class:`SSLROC`.
        """
        kernel = kernels.settle_kernel(self.kernel, self.gamma, self.degree, self.coef0, X, weight)
        self.gamma_ = kernel.gamma
        # The solver expects the points in the order positives, negatives, unlabelled.
        positives = np.flatnonzero(sign == 1.0)
        negatives = np.flatnonzero(sign == -1.0)
        unlabelled = np.flatnonzero(sign == 0.0)
        order = np.concatenate([positives, negatives, unlabelled])
        matrix = kernel.between(X, X)
        if kernel.name in ("precomputed", "callable"):
            kernels.check_precomputed(matrix)
        matrix = matrix[np.ix_(order, order)]
        base.require(bool(np.isfinite(matrix).all()), "the kernel matrix holds NaN or infinity")
        # The pivoted Cholesky factorisation needs an exactly symmetric matrix.
        factor = kernel_factor(0.5 * (matrix + matrix.T))
        labelled_cost, unlabelled_cost = costs
        problem = PairwiseProblem(
            factor=factor,
            n_positive=len(positives),
            n_negative=len(negatives),
            weight=weight[order],
            labelled_cost=labelled_cost,
            unlabelled_cost=unlabelled_cost,
            margin=float(margin),
            norm=self.norm,
        )
        if self.solver == "cvxopt":
            # The reference solver cvxopt gets the product of the factors and not the kernel matrix,
            # so that it solves exactly the same problem as the interior-point method.
            solution = solve_cvxopt(factor @ factor.T, problem.general())
        else:
            solution = solve_pairwise(problem, self.tol, self.max_iter)
        self.solution_ = solution
        if not solution.converged:
            base.warn_not_converged(
                type(self).__name__,
                f"relative gap {solution.gap:.1e}, KKT violation {solution.kkt:.1e} after "
                f"{solution.iterations} iterations",
                "scale the features, lower C or raise max_iter",
            )
        # The coefficients, back in the order of the rows of X.
        beta = np.empty(len(order))
        beta[order] = solution.beta
        # The interior-point method leaves no coefficient at exactly 0; without this cut all rows
        # would be support vectors.
        magnitude = np.abs(beta)
        self.support_ = np.flatnonzero(magnitude > _ZERO * magnitude.max(initial=0.0))
        self.dual_coef_ = beta[self.support_][None, :]
        precomputed = kernel.name == "precomputed"
        self.support_vectors_ = np.empty((0, 0)) if precomputed else X[self.support_]
        self.n_iter_ = max(1, solution.iterations)

    @property
    def intercept_(self) -> base.Floats:
        """Return the intercept of ``decision_function``, shape (1,).

        The intercept is minus the score whose probability is one half. The scores themselves have
        no intercept.
        """
        return np.array([-self.threshold_])

    def _widen(self, used: NDArray[np.intp], n: int) -> None:
        """Number the support rows among all rows and not among the used ones."""
        self.support_ = used[self.support_]

    def _scores(self, X: base.Floats) -> base.Floats:
        # A precomputed X has the kernel values with all n training rows. Only the columns of the
        # support rows are used.
        if self.kernel == "precomputed":
            return np.asarray(X[:, self.support_] @ self.dual_coef_[0])
        kernel = kernels.settle_kernel(self.kernel, self.gamma_, self.degree, self.coef0, X)
        return kernels.decision_values(kernel, X, self.support_vectors_, self.dual_coef_[0])


class SSLROC(SVMROC):
    """Learn to rank from labelled and unlabelled rows ([W14] (3), (5)), with C1 = C2 = C.

    The learner minimises the expression below over the scores f and over soft labels d of the
    unlabelled rows, in [0, 1]. w are the weights in the space of the kernel. The indices p, q and m
    stand for a positive, a negative and an unlabelled row, and each sum is over all pairs:

        1/2 |w|^2 + C/2 sum max(0, 1 - (f_p - f_q))^norm
                  + C/2 sum max(0, 1 - M - (f_m - f_q - M d_m))^norm
                  + C/2 sum max(0, 1 - (f_p - f_m + M d_m))^norm.

    In ``y``, -1 stands for unlabelled. Without unlabelled rows the learner is :class:`SVMROC` with
    the cost C/2.

    Parameters
    ----------
    C : float
        Costs C1 = C2 of [W14]; a pair costs C/2.
    M : float
        The number by which the margin of a pair with an unlabelled row changes, when the row's soft
        label d goes from 0 to 1. At large M the unlabelled rows have no effect.
    norm : 1 or 2
        Hinge or squared hinge.
    kernel : "rbf", "linear", "poly", "precomputed" or function
        A function gets rows of the shapes (n, d) and (m, d) and returns their kernel values, of
        shape (n, m).
    gamma : "scale", "auto" or float
        gamma of the kernel exp(-gamma |u - v|^2) of rows u and v; "scale" is 1 / (d Var X) and
        "auto" is 1 / d, with d features.
    degree, coef0 : int, float
        Degree and constant of the polynomial kernel (gamma u'v + coef0)^degree.
    solver : {"auto", "interior-point", "cvxopt"}
        The pairwise interior-point method ("auto" and "interior-point"), or the slow reference
        ("cvxopt", for small problems).
    tol : float
        Relative duality gap at which the solver stops; the violation of the optimality conditions
        (KKT) must be below ten times ``tol``.
    max_iter : int
        Most iterations of the solver.
    platt_folds : int
        Number of folds for the out-of-fold scores that Platt's sigmoid is fitted to; with 0 it is
        fitted to the scores of the training rows.

    Attributes
    ----------
    soft_labels_ : ndarray, shape (n_unlabelled,)
        Soft labels d of the unlabelled rows of positive weight, in their order. The minimum
        may not be unique in d.
    support_ : ndarray of int
        Rows whose coefficient is not 0.
    support_vectors_ : ndarray, shape (n_support, d)
        Features of these rows.
    dual_coef_ : ndarray, shape (1, n_support)
        Their coefficients in the kernel expansion.
    intercept_ : ndarray, shape (1,)
        The intercept, which is added to the kernel expansion.
    solution_ : Solution
        Solution of the optimisation problem, and how exact it is.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learners import SSLROC
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0], [-1.4], [1.4]])
    >>> y = [0, 0, 0, 1, 1, 1, -1, -1]
    >>> model = SSLROC(kernel="linear", platt_folds=0).fit(X, y)
    >>> bool(model.soft_labels_[0] < 0.5 < model.soft_labels_[1])
    True
    """

    stored: ClassVar[Declared] = {
        "soft_labels_": floats("unlabelled"),
    }

    semi_supervised = True

    def __init__(
        self,
        C: float = 1.0,
        M: float = 1.0,
        norm: int = 1,
        kernel: str | kernels.KernelFunction = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 100,
        platt_folds: int = 5,
    ) -> None:
        super().__init__(C, norm, kernel, gamma, degree, coef0, solver, tol, max_iter, platt_folds)
        self.M = M

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_cost("M", self.M)

    def _fit_scores(self, X: base.Floats, sign: base.Floats, weight: base.Floats) -> None:
        cost = 0.5 * self.C
        self._solve(X, sign, weight, costs=(cost, cost), margin=self.M)
        self.soft_labels_ = self.solution_.u
