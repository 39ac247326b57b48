"""Kernels, and the training kernel matrix whole or column by column within a memory budget.

The papers' Gaussian kernel is exp(-|u - v|^2 / (2 sigma^2)); here gamma = 1 / (2 sigma^2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
KernelFunction = Callable[[Array, Array], Array]

KERNELS = ("linear", "rbf", "poly", "precomputed")

# A precomputed matrix up to this size is proved positive semi-definite, a larger one sampled.
_PROOF_SIZE = 2000


@dataclass(frozen=True)
class Kernel:
    """One kernel with its numbers settled.

    Parameters
    ----------
    name : str
        "linear", "rbf" exp(-gamma |u-v|^2), "poly" (gamma u'v + coef0)^degree, "precomputed" or
        "callable".
    gamma, coef0 : float
    degree : int
    function : callable, optional
        For "callable": two arrays (n, d), (m, d) to (n, m).
    """

    name: str
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 1.0
    function: KernelFunction | None = None

    def between(self, X: Array, Y: Array) -> Array:
        """Kernel values, shape (n, m), of the rows of X (n, d) and Y (m, d).

        For a precomputed kernel X already holds them and is returned.
        """
        if self.name == "precomputed":
            return X
        if self.function is not None:
            return np.asarray(self.function(X, Y), dtype=float)
        if self.name == "linear":
            return X @ Y.T
        if self.name == "poly":
            return (self.gamma * (X @ Y.T) + self.coef0) ** self.degree
        # -gamma |u - v|^2 expanded; rounding may leave it a little above zero.
        product = X @ Y.T
        product *= 2.0 * self.gamma
        product -= self.gamma * np.einsum("ij,ij->i", X, X)[:, None]
        product -= self.gamma * np.einsum("ij,ij->i", Y, Y)[None, :]
        np.minimum(product, 0.0, out=product)
        return np.exp(product, out=product)


def settle_kernel(
    kernel: str | KernelFunction,
    gamma: str | float,
    degree: int,
    coef0: float,
    X: Array,
    weight: Array | None = None,
) -> Kernel:
    """Kernel with gamma as a number.

    ``gamma="scale"`` is 1 / (d Var X), the variance weighted as the samples are, so that a sample
    twice counts as one of twice the weight; "auto" is 1 / d.

    Raises
    ------
    ValueError
        For an unknown kernel, or a gamma that is neither "scale", "auto" nor > 0.
    """
    if callable(kernel):
        return Kernel("callable", function=kernel)
    if kernel not in KERNELS:
        raise ValueError(f"kernel {kernel!r} is unknown: {', '.join(KERNELS)} or a function")
    if kernel in ("linear", "precomputed"):
        return Kernel(kernel)
    return Kernel(kernel, _settle_gamma(gamma, X, weight), int(degree), float(coef0))


def _settle_gamma(gamma: str | float, X: Array, weight: Array | None) -> float:
    if gamma == "auto":
        return 1.0 / X.shape[1]
    if gamma == "scale":
        share = np.full(len(X), 1.0 / len(X)) if weight is None else weight / weight.sum()
        mean = share @ X.mean(axis=1)
        variance = float(share @ np.mean((X - mean) ** 2, axis=1))
        return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
    if isinstance(gamma, str) or not np.isfinite(gamma) or gamma <= 0:
        raise ValueError(f'gamma = {gamma!r}, must be "scale", "auto" or a number > 0')
    return float(gamma)


@dataclass(frozen=True)
class Gram:
    """The kernel matrix of the training points: held whole, or made on demand.

    Parameters
    ----------
    kernel : Kernel
    X : ndarray, shape (n, d)
        Training points.
    matrix : ndarray, shape (n, n), or None
        The whole matrix; None when it would not fit the memory budget.
    """

    kernel: Kernel
    X: Array
    matrix: Array | None

    @property
    def n_points(self) -> int:
        """Number of training points."""
        return len(self.X) if self.matrix is None else len(self.matrix)

    def diagonal(self) -> Array:
        """K(x, x) of every training point, shape (n,)."""
        if self.matrix is not None:
            return np.diagonal(self.matrix)
        kernel = self.kernel
        if kernel.name == "rbf":
            return np.ones(len(self.X))
        squares = np.einsum("ij,ij->i", self.X, self.X)
        if kernel.name == "linear":
            return squares
        return (kernel.gamma * squares + kernel.coef0) ** kernel.degree

    def times(self, beta: Array) -> Array:
        """K beta, shape (n,)."""
        support = np.flatnonzero(beta)
        if self.matrix is not None:
            if len(support) * 2 < len(beta):
                return self.matrix[:, support] @ beta[support]
            return self.matrix @ beta
        return decision_values(self.kernel, self.X, self.X[support], beta[support])


def decision_values(kernel: Kernel, X: Array, support: Array, beta: Array) -> Array:
    """K(X, support) beta, shape (n,), in blocks that stay in the processor's cache."""
    if kernel.name == "precomputed":
        return X @ beta
    rows = max(16, 100_000 // max(1, len(support)))
    out = np.empty(len(X))
    for start in range(0, len(X), rows):
        out[start : start + rows] = kernel.between(X[start : start + rows], support) @ beta
    return out


def make_gram(kernel: Kernel, X: Array, budget_mb: float) -> Gram:
    """Training kernel, whole when n^2 doubles fit the budget (MB).

    Raises
    ------
    ValueError
        For a precomputed (or callable) kernel that is not square, symmetric or positive
        semi-definite, or holds NaN.
    """
    if kernel.name == "precomputed":
        check_precomputed(X)
        return Gram(kernel, X, X)
    if 8e-6 * len(X) ** 2 > budget_mb and kernel.function is None:
        return Gram(kernel, X, None)
    matrix = kernel.between(X, X)
    if kernel.function is not None:
        check_precomputed(matrix)
    return Gram(kernel, X, matrix)


def check_precomputed(K: Array) -> None:
    """Refuse a matrix that is no kernel matrix.

    Raises
    ------
    ValueError
        With the value found: not square, not symmetric, not positive semi-definite, not finite.
    """
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(
            f"Precomputed matrix must be a square matrix, input is {' x '.join(map(str, K.shape))};"
            " give the kernel between the training points"
        )
    if not np.isfinite(K).all():
        raise ValueError("the kernel matrix holds NaN or infinity")
    size = float(np.max(np.abs(np.diagonal(K)))) if len(K) else 0.0
    asymmetry = float(np.max(np.abs(K - K.T))) if len(K) else 0.0
    if asymmetry > 1e-8 * max(size, 1e-300):
        raise ValueError(f"the kernel matrix is not symmetric: entries differ by {asymmetry:.3g}")
    part = K[:_PROOF_SIZE, :_PROOF_SIZE]
    shifted = part + 1e-8 * max(size, 1e-300) * np.eye(len(part))
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        lowest = float(np.linalg.eigvalsh(part)[0])
        raise ValueError(
            f"the kernel matrix is not positive semi-definite: eigenvalue {lowest:.3g}; "
            "use a positive semi-definite kernel, or clip its negative eigenvalues"
        ) from None
