"""Solve pointwise problems by blocks of points, without the whole kernel matrix.

This method is for problems whose kernel rows do not fit the memory (:mod:`.rows`). A block holds
the points whose rows violate their constraints most, and points of the last block whose duals still
change. Within a block the duals of two rows are changed at a time (:mod:`.smo`). The kernel matrix
of the block is small, so such a move costs little. One matrix product then updates the decision
values of all points. Points whose duals stay at a bound are in no block.
"""

import numpy as np
from numpy.typing import NDArray

from cad.learning.learners.solvers.kernels import Gram, decision_values
from cad.learning.learners.solvers.problem import Array
from cad.learning.learners.solvers.rows import Iterate, KernelRows, Rows
from cad.learning.learners.solvers.smo import between, smo

# A block has a fifth of the points, but its number of points lies within these limits. Larger
# blocks need fewer passes over all points, smaller blocks need fewer kernel values.
_SMALLEST_BLOCK = 512
_LARGEST_BLOCK = 4096
# Largest share of a block for points that were not in the last block.
_NEW = 0.5
# A block is solved until the violation of the optimality conditions is below _INNER times the
# violation when the block was chosen, or below _INNER_LAST times the tolerance. At most
# _INNER_MOVES pairs per row of the block are changed.
_INNER = 0.1
_INNER_LAST = 0.5
_INNER_MOVES = 100
# A kernel value takes 8 bytes, and a block gets half of the memory.
_BYTES_PER_VALUE = 16


def block_size(cache_mb: float, n_points: int) -> int:
    """Return the number of points of a block, whose kernel matrix fits half of the memory.

    Parameters
    ----------
    cache_mb : float
        Memory for kernel values, megabytes.
    n_points : int
        Number of training points.

    Returns
    -------
    int
        The number of points, at least two.
    """
    most_points = int(np.clip(n_points // 5, min(n_points, _SMALLEST_BLOCK), _LARGEST_BLOCK))
    fitting = np.sqrt(cache_mb * 1e6 / _BYTES_PER_VALUE)
    # A move changes the duals of a pair, so a block needs two points.
    return int(np.clip(fitting, 2, most_points))


def smo_by_blocks(
    gram: Gram, size: int, rows: Rows, iterate: Iterate, scale: Array, eps: float, limit: int
) -> tuple[int, float]:
    """Change the duals of two rows at a time, in one block of points after another.

    This is sequential minimal optimisation. The kernel values of each block are computed when it is
    chosen.

    Parameters
    ----------
    gram : Gram
        Kernel of the training points.
    size : int
        Number of points of a block, at least two.
    rows : Rows
        Rows of the problem.
    iterate : Iterate
        Start that fulfils the constraints of the dual problem, changed in place.
    scale : ndarray, shape (3,)
        The numbers anchor, rho and total, which give the scale s = max(0, anchor + rho * total), as
        in :func:`~cad.learning.learners.solvers.smo.smo`. anchor and rho belong to the term
        (s - anchor)^2 / (2 rho) of the objective. total is a sum over the rows: each row's
        coefficient of s times its dual variable. It is updated in place.
    eps : float
        Violation at which to stop.
    limit : int
        Largest number of changed pairs.

    Returns
    -------
    moves : int
        Number of changed pairs.
    violation : float
        Largest remaining violation of a constraint.

    Examples
    --------
    Two points, at -1 and 1 on a line, are of different classes. A third point, at 3, is beyond its
    margin. With the decision value f(x) = x the first two points lie on their margins:

    >>> from cad.learning.learners.solvers.kernels import Kernel
    >>> gram = Gram(Kernel("linear"), np.array([[-1.0], [1.0], [3.0]]), None)
    >>> sign = np.array([-1.0, 1.0, 1.0])
    >>> rows = Rows(np.arange(3), sign, sign, np.zeros(3), np.full(3, 10.0), False)
    >>> iterate = Iterate(np.zeros(3), np.zeros(3), np.zeros(2))
    >>> moves, violation = smo_by_blocks(gram, 2, rows, iterate, np.zeros(3), 1e-6, 100)
    >>> iterate.gamma.round(6).tolist(), iterate.f.round(6).tolist(), violation < 1e-6
    ([0.5, 0.5, 0.0], [-1.0, 1.0, 3.0], True)
    """
    point = rows.point
    sign = rows.sign
    gamma = iterate.gamma
    c = rows.c
    block = np.zeros(0, dtype=np.int64)
    # All blocks use the same array, because to allocate memory for each matrix took as long as to
    # compute the matrix.
    memory = np.empty(size * size)
    place_in_block = np.full(len(iterate.f), -1, dtype=np.int64)
    moves = 0
    while True:
        s = max(0.0, scale[0] + scale[1] * scale[2])  # anchor + rho * total
        # v_j is the intercept at which row j lies on its margin. The coefficient of a point is the
        # sum of sign * gamma over its rows. ``rising`` has v_j of the rows whose dual may change so
        # that this coefficient grows, ``falling`` of those by which it may fall. The infinite
        # values exclude the other rows.
        v = rows.r + rows.q * s - iterate.f[point]
        positive = sign > 0
        may_grow = np.where(positive, gamma < c, gamma > 0)
        may_fall = np.where(positive, gamma > 0, gamma < c)
        rising = np.where(may_grow, v, -np.inf)
        falling = np.where(may_fall, v, np.inf)
        # At the optimum there is an intercept b with largest_v <= b <= least_v.
        largest_v = float(rising.max())
        least_v = float(falling.min())
        violation = largest_v - least_v
        iterate.u[:] = between(largest_v, least_v), s
        # ``not >`` also ends the loop if the violation is NaN.
        if not violation > eps or moves >= limit:
            return moves, violation
        block = _next_block(size, rows, gamma, rising, falling, block)
        place_in_block[:] = -1
        place_in_block[block] = np.arange(len(block))
        block_rows = np.flatnonzero(place_in_block[point] >= 0)
        block_points = gram.X[block]
        n_block = len(block)
        block_memory = memory[: n_block * n_block].reshape(n_block, n_block)
        K = gram.kernel.between(block_points, block_points, out=block_memory)
        kernel = KernelRows(values=K, slot=np.arange(len(block)), diagonal=np.diagonal(K).copy())
        block_iterate = Iterate(gamma=gamma[block_rows], f=iterate.f[block], u=np.zeros(2))
        block_eps = max(_INNER_LAST * eps, _INNER * violation)
        most_moves = _INNER_MOVES * len(block_rows)
        block_moves, _, _ = smo(
            kernel,
            rows.subset(block_rows, place_in_block, rows.learned),
            block_iterate,
            scale,
            block_eps,
            most_moves,
        )
        moves += block_moves
        # The coefficients of the block's points change by sign * (change of gamma), summed over the
        # rows of each point. (np.add.at also adds where a point has several rows.)
        beta_change = np.zeros(len(block))
        coefficient_changes = sign[block_rows] * (block_iterate.gamma - gamma[block_rows])
        np.add.at(beta_change, place_in_block[point[block_rows]], coefficient_changes)
        gamma[block_rows] = block_iterate.gamma
        moved = np.flatnonzero(beta_change)
        iterate.f[:] += decision_values(
            gram.kernel, gram.X, gram.X[block[moved]], beta_change[moved]
        )


def _next_block(
    size: int,
    rows: Rows,
    gamma: Array,
    rising: Array,
    falling: Array,
    last_block: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the points of the next block, in ascending order.

    The solver changes the duals of one block of points at a time. The next block has the points
    whose constraints are violated most, and some points of the last block. ``rising`` has the
    intercept at which a row lies on its margin, for each row by which the coefficient of its point
    can grow, and -inf for other rows. ``falling`` has it for each row by which it can fall, else
    inf.
    """
    point = rows.point
    # The first block has no earlier points, so all its points are new.
    n_new = int(_NEW * size) if len(last_block) else size
    rows_per_side = max(1, n_new // 2)
    # Rows contradict each other if the largest of ``rising`` is above the least of ``falling``.
    to_raise = _smallest_indices(-rising, rows_per_side)
    to_raise = to_raise[rising[to_raise] > falling.min()]
    to_lower = _smallest_indices(falling, rows_per_side)
    to_lower = to_lower[falling[to_lower] < rising.max()]
    # The two rows that violate the optimality conditions most come first, so that every block
    # contains their points.
    worst = point[np.r_[to_raise[:1], to_lower[:1]]]
    new_points = np.setdiff1d(point[np.r_[to_raise, to_lower]], worst)
    earlier = np.setdiff1d(last_block, np.r_[worst, new_points])
    still_changes = np.isin(earlier, point[rows.free(gamma)])
    # If there are too many points, the last of this order are left out.
    by_urgency = np.r_[
        np.unique(worst), new_points, earlier[still_changes], earlier[~still_changes]
    ]
    return np.sort(by_urgency[:size])


def _smallest_indices(value: Array, count: int) -> NDArray[np.intp]:
    """Return the indices of the ``count`` smallest values, in ascending order."""
    count = min(count, len(value))
    chosen = np.argpartition(value, count - 1)[:count]
    return chosen[np.argsort(value[chosen], kind="stable")]
