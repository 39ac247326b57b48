"""SSLROC: SVMROC that also ranks unlabelled points, with soft labels of its own [W14 (3), (5)]."""

from __future__ import annotations

from cad.learners.base import check_cost
from cad.learners.ranking.base import Floats
from cad.learners.ranking.svmroc import SVMROC
from cad.learners.solvers.kernels import KernelFunction


class SSLROC(SVMROC):
    """Learn to rank from labelled and unlabelled points [W14 (3), (5)], C1 = C2 = C.

    Minimises over f and soft labels d in [0, 1]

        1/2 |w|^2 + C/2 sum max(0, 1 - (f_p - f_q))^norm
                  + C/2 sum max(0, 1 - M - (f_m - f_q - M d_m))^norm
                  + C/2 sum max(0, 1 - (f_p - f_m + M d_m))^norm.

    Fit takes y in {0, 1} and -1 for unlabelled; without unlabelled rows it is SVMROC at C/2.

    Parameters
    ----------
    C : float
        C1 = C2 of the paper: half of it is the cost of a pair.
    M : float
        How far the margins move between d = 0 and d = 1. At large M the unlabelled points drop
        out.
    norm, kernel, gamma, degree, coef0, solver, tol, max_iter, platt_folds
        As for :class:`SVMROC`.

    Attributes
    ----------
    soft_labels_ : ndarray, shape (n_unlabelled,)
        Soft labels of the unlabelled rows of positive weight, in their order. Not unique.
    support_, dual_coef_, support_vectors_, intercept_, solution_
    """

    semi_supervised = True

    def __init__(
        self,
        C: float = 1.0,
        M: float = 1.0,
        norm: int = 1,
        kernel: str | KernelFunction = "rbf",
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

    def _fit_scores(self, X: Floats, sign: Floats, weight: Floats) -> None:
        self._solve(X, sign, weight, (0.5 * self.C, 0.5 * self.C), self.M)
        self.soft_labels_ = self.solution_.u
