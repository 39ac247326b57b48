"""Provide kernels, and the kernel matrix of the training points: whole, or its values on demand.

The papers' Gaussian kernel is exp(-|u - v|^2 / (2 sigma^2)); here gamma = 1 / (2 sigma^2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement
from math import comb, factorial, prod

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf

Array = NDArray[np.float64]
KernelFunction = Callable[[Array, Array], Array]

KERNELS = ("linear", "rbf", "poly", "precomputed")

# A kernel matrix from the caller is checked for negative eigenvalues. Up to this number of points
# the whole matrix is checked. For more points, this number of evenly spread points is checked at
# first, and the support vectors after the solution.
_PROOF_SIZE = 400
# Up to this number of points, computing the whole kernel matrix is faster than computing its rows
# on demand.
_WHOLE_SIZE = 1500
# With at least this many points per dimension of the feature space, a solution in the feature space
# is faster than any method that uses kernel values.
_POINTS_PER_DIMENSION = 3
# Number of kernel values (rows x columns) that are computed together, so that they stay in the
# processor's cache.
_CACHED_VALUES = 100_000
_BLOCK = 128


@dataclass(frozen=True)
class Kernel:
    """Hold one kernel and its parameters as numbers.

    Parameters
    ----------
    name : str
        Name of the kernel of two rows u and v: "linear" u'v, "rbf" exp(-gamma |u - v|^2), "poly"
        (gamma u'v + coef0)^degree; or "precomputed" or "callable".
    gamma, coef0 : float
        gamma and coef0 in these formulas.
    degree : int
        Degree of "poly".
    function : callable, optional
        For "callable", a function of two arrays of the shapes (n, d) and (m, d) that returns kernel
        values of shape (n, m).
    """

    name: str
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 1.0
    function: KernelFunction | None = None

    def between(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        """Return kernel values, shape (n, m), of the rows of X (n, d) and Y (m, d).

        For a precomputed kernel X already holds the kernel values, and X itself is returned.
        ``out`` may be an array in which the result is computed.
        """
        if self.name == "precomputed":
            return X
        if self.function is not None:
            return np.asarray(self.function(X, Y), dtype=float)
        return self.finish(np.matmul(self.left(X), self.right(Y).T, out=out))

    def left(self, X: Array) -> Array:
        """Return the left factor of the rows of X.

        The kernel values of X and Y are ``finish(left(X) @ right(Y).T)``.

        For "linear" and "poly" the factor is X itself, shape (n, d). For "rbf" the factor has shape
        (n, d + 2), and the exponent is one inner product: -gamma |u - v|^2 = (2 gamma u, -gamma
        |u|^2, 1)'(v, 1, -gamma |v|^2).
        """
        if self.name != "rbf":
            return X
        squared_norms = np.einsum("ij,ij->i", X, X)
        return np.column_stack([2.0 * self.gamma * X, -self.gamma * squared_norms, np.ones(len(X))])

    def right(self, Y: Array) -> Array:
        """Return the right factor of the rows of Y.

        The kernel values of X and Y are ``finish(left(X) @ right(Y).T)``. The factor is Y itself,
        shape (m, d), except for "rbf": there its shape is (m, d + 2).
        """
        if self.name != "rbf":
            return Y
        squared_norms = np.einsum("ij,ij->i", Y, Y)
        return np.column_stack([Y, np.ones(len(Y)), -self.gamma * squared_norms])

    def finish(self, product: Array) -> Array:
        """Return the kernel values, shape (n, m), for a product ``left(X) @ right(Y).T``.

        For "rbf" ``product`` is changed in place. For "linear" ``product`` itself is returned.
        """
        if self.name == "linear":
            return product
        if self.name == "poly":
            return (self.gamma * product + self.coef0) ** self.degree
        # Rounding may make the exponent of a Gaussian kernel slightly positive.
        np.minimum(product, 0.0, out=product)
        return np.exp(product, out=product)

    def dimensions(self, X: Array) -> float:
        """Return the number of dimensions of the kernel's feature space for rows X.

        The number is infinite for all kernels but "linear" and "poly".
        """
        d = X.shape[1]
        finite_dimensions: dict[str, float] = {"linear": d, "poly": comb(d + self.degree, d)}
        return finite_dimensions.get(self.name, np.inf)

    def monomials(self, X: Array) -> Array:
        """Return features, shape (n, dimensions), whose inner products are the polynomial kernel.

        The features are the monomials of (sqrt coef0, sqrt gamma x), weighted by the multinomial
        theorem; coef0 must be >= 0.
        """
        variables, weight = _multinomial(X.shape[1] + 1, self.degree)
        scaled = np.column_stack([np.full(len(X), np.sqrt(self.coef0)), np.sqrt(self.gamma) * X])
        # The power ``degree`` of an inner product is a sum over monomials. A term has as many
        # copies as there are orders of its variables. So each of the two factors of a term is
        # multiplied by the square root of this number. Row k of ``variables`` has the k-th variable
        # of every monomial.
        monomials = scaled[:, variables[0]] * weight
        for next_variable in variables[1:]:
            monomials *= scaled[:, next_variable]
        return monomials


@lru_cache(maxsize=8)
def _multinomial(d: int, degree: int) -> tuple[NDArray[np.intp], Array]:
    """Return the variables of every monomial, shape (degree, monomials), and its weight.

    The weight is the square root of the number of orders in which the variables can be multiplied.
    """
    monomials = list(combinations_with_replacement(range(d), degree))
    orders = []
    for monomial in monomials:
        # Orders that differ only in the places of equal variables count once.
        times_of_variable = Counter(monomial).values()
        orders.append(factorial(degree) // prod(map(factorial, times_of_variable)))
    return np.array(monomials).T, np.sqrt(orders)


def settle_kernel(
    kernel: str | KernelFunction,
    gamma: str | float,
    degree: int,
    coef0: float,
    X: Array,
    weight: Array | None = None,
) -> Kernel:
    """Return a kernel in which gamma is a number.

    For ``gamma="scale"`` the number is 1 / (d Var X), with d features and the variance weighted by
    the samples' weights. For ``gamma="auto"`` it is 1 / d.

    Parameters
    ----------
    kernel : str or callable
        One of :data:`KERNELS`, or a function of two arrays (n, d) and (m, d) that returns (n, m).
    gamma : "scale", "auto" or float
        gamma of "rbf", exp(-gamma |u - v|^2) of two rows u and v, and of "poly".
    degree, coef0
        Numbers of "poly", (gamma u'v + coef0)^degree.
    X : ndarray, shape (n, d)
        Training points; only gamma depends on them.
    weight : ndarray, shape (n,), optional
        Weights of the samples; equal when not given.

    Raises
    ------
    ValueError
        For an unknown kernel, or a gamma that is neither "scale", "auto" nor > 0.

    Examples
    --------
    gamma is 1 / (2 features times the variance of 1.25):

    >>> import numpy as np
    >>> X = np.array([[0.0, 1.0], [2.0, 3.0]])
    >>> settle_kernel("rbf", "scale", 3, 0.0, X).gamma
    0.4
    """
    if callable(kernel):
        return Kernel("callable", function=kernel)
    if kernel not in KERNELS:
        raise ValueError(f"kernel {kernel!r} is unknown: {', '.join(KERNELS)} or a function")
    if kernel in ("linear", "precomputed"):
        return Kernel(kernel)
    return Kernel(kernel, _settle_gamma(gamma, X, weight), int(degree), float(coef0))


def _settle_gamma(gamma: str | float, X: Array, weight: Array | None) -> float:
    """Return gamma as a number, as :func:`settle_kernel` describes it."""
    if gamma == "auto":
        return float(1.0 / X.shape[1])
    if gamma == "scale":
        share = np.full(len(X), 1.0 / len(X)) if weight is None else weight / weight.sum()
        # One mean and one variance of all entries of X together, as in scikit-learn.
        mean = share @ X.mean(axis=1)
        variance = float(share @ np.mean((X - mean) ** 2, axis=1))
        # Even constant features may have a tiny variance from rounding errors, which counts as 0
        # here. gamma is then 1, as in scikit-learn.
        rounding_error = 1e-12 * np.abs(X).max()
        return 1.0 / (X.shape[1] * variance) if variance > rounding_error**2 else 1.0
    if isinstance(gamma, str) or not np.isfinite(gamma) or gamma <= 0:
        raise ValueError(f'gamma = {gamma!r}, must be "scale", "auto" or a number > 0')
    return float(gamma)


@dataclass(frozen=True)
class Gram:
    """Hold the kernel of the training points, with the whole matrix or with values on demand.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    X : ndarray, shape (n, d)
        Training points.
    matrix : ndarray, shape (n, n), or None
        The whole kernel matrix; None when its values are computed on demand.
    """

    kernel: Kernel
    X: Array
    matrix: Array | None

    @property
    def n_points(self) -> int:
        """Return the number of training points."""
        return len(self.X) if self.matrix is None else len(self.matrix)

    def diagonal(self) -> Array:
        """Return K(x, x) of every training point, shape (n,)."""
        if self.matrix is not None:
            return self.matrix.diagonal()
        if self.kernel.name == "rbf":
            return np.ones(len(self.X))
        # A linear or polynomial kernel needs the inner product of each point with itself.
        return self.kernel.finish(np.einsum("ij,ij->i", self.X, self.X))

    def held(self, budget_mb: float) -> Gram:
        """Return a copy that holds the whole matrix, if the matrix fits the budget (MB).

        If it does not fit, or is held already, the object itself is returned.
        """
        needed_mb = 8e-6 * self.n_points**2  # 8 bytes for a number
        if self.matrix is not None or needed_mb > budget_mb:
            return self
        return Gram(self.kernel, self.X, self.kernel.between(self.X, self.X))

    def is_low_rank(self) -> bool:
        """Return whether the feature space has at most a third as many dimensions as points."""
        return _POINTS_PER_DIMENSION * self.kernel.dimensions(self.X) <= self.n_points

    def factor(self, limit: int) -> Array | None:
        """Return L, shape (n, r), with L L' the kernel matrix; None if r would exceed ``limit``.

        For a linear kernel L holds the features, for a polynomial kernel the monomials. For other
        kernels L is a pivoted Cholesky factor, which needs only r rows of the kernel matrix.
        """
        n = self.n_points
        kernel = self.kernel
        if kernel.name == "linear" and self.X.shape[1] <= limit:
            return self.X
        # Monomials have the square root of coef0 as a variable.
        has_monomials = kernel.name == "poly" and kernel.coef0 >= 0 and kernel.degree >= 1
        if has_monomials and kernel.dimensions(self.X) <= limit:
            return kernel.monomials(self.X)
        remainder = np.array(self.diagonal(), dtype=float)
        # Pivoted Cholesky: each step adds the column of the point that is described worst so far.
        negligible = n * np.finfo(float).eps * float(remainder.max())
        L = np.zeros((n, limit), order="F")
        pivot_row = np.empty((1, n))
        for k in range(limit + 1):
            # ``remainder`` is the diagonal of K - L L'. If its largest entry is negligible, so are
            # all entries of K - L L', because none is larger.
            pivot = int(np.argmax(remainder))
            if remainder[pivot] <= negligible or k == n:
                return L[:, :k]
            if k == limit:  # another column would exceed the limit
                break
            self.rows(np.array([pivot]), out=pivot_row)
            unexplained = pivot_row[0] - L[:, :k] @ L[pivot, :k]
            L[:, k] = unexplained / np.sqrt(remainder[pivot])
            remainder -= L[:, k] ** 2
        return None

    def rows(self, points: NDArray[np.intp], out: Array) -> None:
        """Write the rows of the kernel matrix of some points into ``out``, shape (points, n)."""
        if self.matrix is not None:
            out[:] = self.matrix[points]
            return
        left_side, right_side = self._sides
        np.matmul(left_side[points], right_side.T, out=out)
        values = self.kernel.finish(out)
        # Only the polynomial kernel returns a new array.
        if values is not out:
            out[:] = values

    @cached_property
    def _sides(self) -> tuple[Array, Array]:
        """Return the left and the right factor of the training points (:meth:`Kernel.left`)."""
        return self.kernel.left(self.X), self.kernel.right(self.X)

    def prove(self, support: NDArray[np.intp]) -> None:
        """Raise an error if the caller's kernel matrix is not positive semi-definite on some
        points.

        :func:`make_gram` checks only a part of a large matrix from the caller. For such a matrix
        this method checks the part that belongs to the support vectors. For any other matrix it
        does nothing.

        Parameters
        ----------
        support : ndarray of int
            Points whose coefficient in the solution is not 0.

        Raises
        ------
        ValueError
            If this part has a negative eigenvalue; the message has the lowest one.
        """
        by_caller = self.kernel.name in ("precomputed", "callable")
        if by_caller and self.matrix is not None and len(self.matrix) > _PROOF_SIZE:
            block = self.matrix[np.ix_(support, support)]
            largest_diagonal = float(np.abs(self.matrix.diagonal()).max())
            _prove_semi_definite(block, largest_diagonal)

    def times(self, beta: Array) -> Array:
        """Return the kernel matrix times coefficients ``beta`` of the points, shape (n,)."""
        if self.kernel.name == "linear":
            return self.X @ (self.X.T @ beta)
        support = np.flatnonzero(beta)
        if self.matrix is not None:
            # To copy the columns of few support vectors takes less time than the whole product.
            if len(support) * 2 < len(beta):
                return self.matrix[:, support] @ beta[support]
            return self.matrix @ beta
        return decision_values(self.kernel, self.X, self.X[support], beta[support])


def decision_values(kernel: Kernel, X: Array, support: Array, beta: Array) -> Array:
    """Return the decision values K(X, support) beta, without intercept, shape (n,).

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    X : ndarray, shape (n, d)
        Rows to predict; for a precomputed kernel their kernel values, shape (n, n_support).
    support, beta : ndarray, shapes (n_support, d) and (n_support,)
        Support vectors and their coefficients.

    Examples
    --------
    >>> import numpy as np
    >>> support = np.array([[1.0], [3.0]])
    >>> beta = np.array([1.0, -1.0])
    >>> decision_values(Kernel("linear"), np.array([[2.0]]), support, beta).tolist()
    [-4.0]
    """
    if kernel.name == "precomputed":
        return X @ beta
    if kernel.name == "linear":  # one product with the weights of the features is enough
        return X @ (support.T @ beta)
    rows_at_once = max(16, _CACHED_VALUES // max(1, len(support)))
    decisions = np.empty(len(X))
    by_caller = kernel.function is not None
    right_side = support if by_caller else kernel.right(support).T
    # Kernel values are computed for some rows at a time, so that they stay in the cache.
    for start in range(0, len(X), rows_at_once):
        block = X[start : start + rows_at_once]
        if by_caller:
            values = kernel.between(block, right_side)
        else:
            values = kernel.finish(kernel.left(block) @ right_side)
        decisions[start : start + rows_at_once] = values @ beta
    return decisions


def make_gram(kernel: Kernel, X: Array, budget_mb: float) -> Gram:
    """Return the kernel of the training points.

    It holds the whole matrix if the caller gave it or if it is small, else values are computed on
    demand.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    X : ndarray, shape (n, d)
        Training points; for a precomputed kernel the kernel matrix, shape (n, n).
    budget_mb : float
        Memory that the whole matrix may take, MB.

    Raises
    ------
    ValueError
        For a matrix of a precomputed or callable kernel that is not square, not symmetric or not
        positive semi-definite, or that holds NaN.

    Examples
    --------
    >>> import numpy as np
    >>> gram = make_gram(Kernel("rbf", 1.0), np.array([[0.0], [1.0]]), 1.0)
    >>> gram.matrix.round(3).tolist()
    [[1.0, 0.368], [0.368, 1.0]]
    """
    if kernel.name == "precomputed":
        check_precomputed(X)
        return Gram(kernel, X, matrix=X)
    if kernel.function is None:
        gram = Gram(kernel, X, matrix=None)
        # A problem of low rank is solved in the feature space, without the matrix.
        needs_matrix = len(X) <= _WHOLE_SIZE and not gram.is_low_rank()
        return gram.held(budget_mb) if needs_matrix else gram
    matrix = kernel.between(X, X)
    check_precomputed(matrix)
    return Gram(kernel, X, matrix)


def check_precomputed(K: Array) -> None:
    """Raise an error for a matrix that cannot be a kernel matrix.

    Parameters
    ----------
    K : ndarray, shape (n, n)
        Matrix to check. If it has more than 400 points, only at most 400 evenly spread points are
        checked for negative eigenvalues.

    Raises
    ------
    ValueError
        For a matrix that is not square, symmetric, finite and positive semi-definite.

    Examples
    --------
    >>> import numpy as np
    >>> check_precomputed(np.eye(3))
    """
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(
            f"Precomputed matrix must be a square matrix, input is {' x '.join(map(str, K.shape))};"
            " give the kernel between the training points"
        )
    largest_diagonal = float(np.abs(K.diagonal()).max(initial=0.0))
    # A fast check comes first. Only if it fails are all pairs of entries compared.
    if _probed_symmetric(K, 1e-9 * largest_diagonal):
        asymmetry = 0.0
    elif not np.isfinite(K).all():
        raise ValueError("the kernel matrix holds NaN or infinity")
    else:
        asymmetry = _asymmetry(K)
    if asymmetry > 1e-8 * max(largest_diagonal, 1e-300):
        raise ValueError(f"the kernel matrix is not symmetric: entries differ by {asymmetry:.3g}")
    # The regions of a patient are neighbouring rows, so every k-th row is a sample of many
    # patients.
    stride = -(-len(K) // _PROOF_SIZE)  # rounded up
    _prove_semi_definite(K[::stride, ::stride].copy(), largest_diagonal)


def _prove_semi_definite(block: Array, largest_diagonal: float) -> None:
    """Raise an error if a block of a kernel matrix has a clearly negative eigenvalue.

    That is an eigenvalue below -1e-8 times ``largest_diagonal``, the largest absolute value on the
    diagonal of the matrix.

    The upper triangle of ``block`` is overwritten by a Cholesky factor: that of the block with
    1e-8 times ``largest_diagonal`` added to its diagonal.
    """
    ridge = 1e-8 * max(largest_diagonal, 1e-300)  # above 0 even if the diagonal is 0
    diagonal = block.diagonal().copy()
    block.flat[:: len(block) + 1] += ridge
    # LAPACK sees the transpose, whose lower triangle is the upper triangle here.
    _, failed_at = dpotrf(block.T, lower=1, clean=0, overwrite_a=1)
    # The block with the ridge on its diagonal has a Cholesky factor if none of its eigenvalues is
    # negative.
    if failed_at == 0:
        return
    # Only the upper triangle was overwritten, so the lower one with the old diagonal is the block.
    block.flat[:: len(block) + 1] = diagonal
    lowest = float(np.linalg.eigvalsh(block, UPLO="L")[0])
    raise ValueError(
        f"the kernel matrix is not positive semi-definite: eigenvalue {lowest:.3g}; "
        "use a positive semi-definite kernel, or clip its negative eigenvalues"
    )


def _probed_symmetric(K: Array, tolerance: float) -> bool:
    """Return whether K v and K' v agree to ``tolerance``, for a random vector v.

    If they agree, K is symmetric, except by an unlikely accident. The entries of v have absolute
    values from 1 to 2 and random signs, so a pair of mirrored entries that differ by x changes the
    difference of K v and K' v by at least x. If K holds NaN or infinity, so do the products, and
    the result is False.
    """
    v = _random_probe(len(K))
    product = np.zeros(len(K))
    mirrored = np.zeros(len(K))
    # K is symmetric exactly if its transpose is. The one of the two whose rows are contiguous in
    # memory is checked.
    rows = np.ascontiguousarray(K.T if K.flags.f_contiguous else K)
    _add_both_products(rows, v, product, mirrored)
    with np.errstate(invalid="ignore", over="ignore"):
        agree: bool = bool((np.abs(product - mirrored) <= tolerance).all())
    return agree


@numba.njit(cache=True, fastmath={"reassoc", "contract"})
def _add_both_products(K, v, product, mirrored):  # type: ignore[no-untyped-def]
    """Add K v to ``product`` and K' v to ``mirrored``; each entry of K is read once.

    Four rows are handled at once, because v and K' v do not fit the processor's first cache. If
    fewer than four rows are left at the end, the last row is used for the missing ones, with weight
    0.
    """
    n = len(v)
    for i in range(0, n, 4):
        i1 = min(i + 1, n - 1)
        i2 = min(i + 2, n - 1)
        i3 = min(i + 3, n - 1)
        row0 = K[i]
        row1 = K[i1]
        row2 = K[i2]
        row3 = K[i3]
        v0 = v[i]
        v1 = v[i1] * (i1 > i)
        v2 = v[i2] * (i2 > i1)
        v3 = v[i3] * (i3 > i2)
        product0 = 0.0
        product1 = 0.0
        product2 = 0.0
        product3 = 0.0
        for column in range(n):
            product0 = product0 + row0[column] * v[column]
            product1 = product1 + row1[column] * v[column]
            product2 = product2 + row2[column] * v[column]
            product3 = product3 + row3[column] * v[column]
            mirrored[column] += (
                row0[column] * v0 + row1[column] * v1 + row2[column] * v2 + row3[column] * v3
            )
        product[i] = product0
        product[i1] = product1
        product[i2] = product2
        product[i3] = product3


@lru_cache(maxsize=1)
def _random_probe(n: int) -> Array:
    """Return a random vector of n entries with absolute values from 1 to 2 and random signs."""
    rng = np.random.default_rng(0)
    probe: Array = rng.uniform(1.0, 2.0, n) * rng.choice([-1.0, 1.0], n)
    return probe


def _asymmetry(K: Array) -> float:
    """Return the largest difference between an entry of K and its mirror image.

    It is computed by blocks that fit the processor's cache.
    """
    largest = 0.0
    for i in range(0, len(K), _BLOCK):
        for j in range(i, len(K), _BLOCK):
            difference = K[i : i + _BLOCK, j : j + _BLOCK] - K[j : j + _BLOCK, i : i + _BLOCK].T
            largest = max(largest, float(difference.max()), -float(difference.min()))
    return largest
