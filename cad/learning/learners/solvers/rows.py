"""Define the arrays of pointwise problems that functions compiled by numba use, and their notation.

Row j is about one point i = point_j: sign_j (f_i + b) + w_j s >= t_j, at cost c_j. Here f_i is the
decision value, b the intercept, s the scale and t_j the margin. Divided by its sign, the row
compares b with the value

    v_j = r_j + q_j s - f_i,    r_j = sign_j t_j,    q_j = -sign_j w_j,

so v_j = b on the margin of the row. The classes are named tuples, because numba can read their
fields by name.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from cad.learning.learners.solvers.kernels import Gram
from cad.learning.learners.solvers.problem import Array, Problem

Ints = NDArray[np.int64]
# Decorator for functions that only compiled functions call. They need no interface to Python, which
# saves a third of the compile time.
inner = partial(numba.njit, cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


class Rows(NamedTuple):
    """Hold the rows (constraints) of a pointwise problem.

    A row is about the decision value f + b of one point: sign (f + b) must reach a margin. On the
    margin, f + b = r + q s. The scale s divides decision values before they become probabilities.

    Parameters
    ----------
    point : ndarray of int64, shape (m,)
        Number of the point of every row.
    sign : ndarray, shape (m,)
        Sign of every row, +1 or -1.
    r, q : ndarray, shape (m,)
        The two parts of the decision value on the row's margin: the constant, and the coefficient
        of s.
    c : ndarray, shape (m,)
        Cost of every row.
    learned : bool
        Whether the scale s is a variable; q is zero otherwise.
    """

    point: Ints
    sign: Array
    r: Array
    q: Array
    c: Array
    learned: bool

    def slack(self, iterate: Iterate) -> Array:
        """Return how far every row falls short of its margin, shape (m,).

        The value is negative for a row beyond its margin. ``iterate`` has the decision values (one
        per point), the intercept and the scale.
        """
        b, s = iterate.u
        missed: Array = self.sign * (self.r + self.q * s - iterate.f[self.point] - b)
        return missed

    def free(self, gamma: Array) -> NDArray[np.intp]:
        """Return the numbers of the rows whose dual lies strictly between 0 and the row's cost.

        ``gamma``, shape (m,), has the dual variable of every row.
        """
        return ((gamma > 0) & (gamma < self.c)).nonzero()[0]

    def subset(self, rows: NDArray[np.intp], place: Ints, learned: bool) -> Rows:
        """Return some rows as new arrays, with their points renumbered.

        Parameters
        ----------
        rows : ndarray of int
            Numbers of the rows to keep.
        place : ndarray of int64, shape (n,)
            New number of every point. It is not read for a point without a kept row.
        learned : bool
            Whether the problem of the kept rows has the scale s as a variable (``learned`` of the
            result).
        """
        return Rows(
            point=place[self.point[rows]],
            sign=self.sign[rows],
            r=self.r[rows],
            q=self.q[rows],
            c=self.c[rows],
            learned=learned,
        )


class Iterate(NamedTuple):
    """Hold the variables of a solver between two steps. The solvers change the arrays in place.

    Parameters
    ----------
    gamma : ndarray, shape (m,)
        Dual variable of every row, between 0 and the row's cost.
    f : ndarray, shape (n,)
        Decision values of the points, without intercept, that belong to ``gamma``.
    u : ndarray, shape (2,)
        Intercept b and scale s.
    """

    gamma: Array
    f: Array
    u: Array

    def copy(self) -> Iterate:
        """Return an iterate with copies of the three arrays ``gamma``, ``f`` and ``u``."""
        return Iterate(self.gamma.copy(), self.f.copy(), self.u.copy())


class KernelRows(NamedTuple):
    """Hold the rows of the kernel matrix that are in memory.

    Parameters
    ----------
    values : ndarray, shape (k, n)
        Room for k rows of the kernel matrix.
    slot : ndarray of int64, shape (n,)
        Position of each point's row in ``values``; -1 for a point whose row is not there.
    diagonal : ndarray, shape (n,)
        Diagonal of the whole kernel matrix.
    """

    values: Array
    slot: Ints
    diagonal: Array


def as_rows(problem: Problem) -> Rows:
    """Return a pointwise problem as the arrays that the compiled functions use.

    Parameters
    ----------
    problem : Problem
        A pointwise problem: each row (constraint) is about one training point.
    """
    sign = np.ascontiguousarray(problem.A.data, dtype=float)
    learned = problem.B.shape[1] == 2  # the scalars are the intercept and the scale
    # A row is divided by its sign: it then compares the intercept with r + q s - f.
    q = -sign * problem.B[:, 1] if learned else np.zeros(len(sign))
    return Rows(
        point=problem.A.indices.astype(np.int64),
        sign=sign,
        r=sign * problem.t,
        q=q,
        c=problem.c.astype(float),
        learned=learned,
    )


class RowStore:
    """Compute rows of the training points' kernel matrix when they are needed, and keep them.

    Few rows of a large kernel matrix are needed, mainly the rows of the support vectors. A row that
    was computed stays in memory. If ``gram`` holds the whole matrix, all rows are there at once.

    Parameters
    ----------
    gram : Gram
        Kernel of the training points.
    budget_mb : float
        Memory for rows when ``gram`` does not hold the whole matrix, MB.

    Attributes
    ----------
    kernel : KernelRows
        The rows in memory.
    """

    def __init__(self, gram: Gram, budget_mb: float) -> None:
        n = gram.n_points
        self._gram = gram
        if gram.matrix is not None:
            values = gram.matrix
            slot = np.arange(n)
            self._used = n
        else:
            # A part of an empty array takes no memory until something is written to it, so the
            # array may be large.
            fitting_rows = int(1e6 * budget_mb / (8 * n))  # 8 bytes for a number
            values = np.empty((min(n, fitting_rows), n))
            slot = np.full(n, -1)
            self._used = 0
        diagonal = np.ascontiguousarray(gram.diagonal())
        self.kernel = KernelRows(np.ascontiguousarray(values), slot, diagonal)

    def fetch(self, points: NDArray[np.int64] | list[int]) -> bool:
        """Compute the kernel rows of some points that are not in memory yet, and keep them.

        Returns
        -------
        bool
            Whether the rows of all these points are now in memory. If they do not all fit, no row
            is computed.
        """
        values, slot, _ = self.kernel
        points = np.asarray(points)
        missing = points[slot[points] < 0]
        if not len(missing):
            return True
        # For a single row np.unique is skipped, because a move of a pair needs only one row and
        # there are thousands of moves.
        if len(missing) > 1:
            missing = np.unique(missing)
        used_after = self._used + len(missing)
        # No stored row of the kernel matrix is ever dropped, because the row of a support vector is
        # needed until the end.
        if used_after > len(values):
            return False
        self._gram.rows(missing, out=values[self._used : used_after])
        slot[missing] = np.arange(self._used, used_after)
        self._used = used_after
        return True

    def block(self, points: NDArray[np.int64], columns: NDArray[np.int64]) -> Array:
        """Return kernel values, shape (points, columns), of points whose rows are in memory."""
        block: Array = self.kernel.values[self.kernel.slot[points][:, None], columns]
        return block

    def times(self, beta: Array) -> Array:
        """Return the kernel matrix times ``beta``, shape (n,).

        The rows that this needs do not have to be in memory.
        """
        values, slot, _ = self.kernel
        # K is symmetric, so K beta is a weighted sum of the kernel rows of the points whose beta is
        # not 0. If one of them is not in memory, ``gram`` computes the product.
        if (slot[beta != 0] < 0).any():
            return self._gram.times(beta)
        product = np.zeros(values.shape[1])
        add_rows(self.kernel, beta, product)
        return product


@numba.njit(cache=True, fastmath={"contract"})
def add_rows(kernel, weight, out):  # type: ignore[no-untyped-def]
    """Add kernel rows to ``out``, each times its weight, without the copy of the rows that numpy
    makes.

    Parameters
    ----------
    kernel : KernelRows
        Kernel rows in memory; all rows whose weight is not 0 must be there.
    weight, out : ndarray, shape (n,)
        Weight of every point's row, and the array that the rows are added to, in place.
    """
    for i in range(len(weight)):
        if weight[i] != 0.0:
            row = kernel.values[kernel.slot[i]]
            for k in range(len(out)):
                out[k] += weight[i] * row[k]
