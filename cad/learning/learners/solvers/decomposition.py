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
# violation when the block was chosen, or below _INNER_LAST times the tolerance.
_INNER = 0.1
_INNER_LAST = 0.5
_INNER_MOVES = 100


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
    largest = int(np.clip(n_points // 5, min(n_points, _SMALLEST_BLOCK), _LARGEST_BLOCK))
    return int(np.clip(np.sqrt(cache_mb * 1e6 / 16), 2, largest))


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
    place = np.full(len(iterate.f), -1, dtype=np.int64)
    moves = 0
    while True:
        s = max(0.0, scale[0] + scale[1] * scale[2])
        v = rows.r + rows.q * s - iterate.f[point]
        positive = sign > 0
        up = np.where(np.where(positive, gamma < c, gamma > 0), v, -np.inf)
        down = np.where(np.where(positive, gamma > 0, gamma < c), v, np.inf)
        best = float(up.max())
        lowest = float(down.min())
        violation = best - lowest
        iterate.u[:] = between(best, lowest), s
        if not violation > eps or moves >= limit:
            return moves, violation
        block = _next_block(size, rows, gamma, up, down, block)
        place[:] = -1
        place[block] = np.arange(len(block))
        inside = np.flatnonzero(place[point] >= 0)
        points = gram.X[block]
        n = len(block)
        K = gram.kernel.between(points, points, out=memory[: n * n].reshape(n, n))
        kernel = KernelRows(K, np.arange(len(block)), np.diagonal(K).copy())
        inner = Iterate(gamma[inside], iterate.f[block], np.zeros(2))
        made, _, _ = smo(
            kernel,
            rows.subset(inside, place, rows.learned),
            inner,
            scale,
            max(_INNER_LAST * eps, _INNER * violation),
            _INNER_MOVES * len(inside),
        )
        moves += made
        step = np.zeros(len(block))
        np.add.at(step, place[point[inside]], sign[inside] * (inner.gamma - gamma[inside]))
        gamma[inside] = inner.gamma
        moved = np.flatnonzero(step)
        iterate.f[:] += decision_values(gram.kernel, gram.X, gram.X[block[moved]], step[moved])


def _next_block(
    size: int, rows: Rows, gamma: Array, up: Array, down: Array, last: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the points of the next block, in ascending order.

    The solver changes the duals of one block of points at a time. The next block has the points
    whose constraints are violated most, and some points of the last block.
    """
    point = rows.point
    half = max(1, int(_NEW * size) // 2) if len(last) else max(1, size // 2)
    raise_first = _smallest_indices(-up, half)
    raise_first = raise_first[up[raise_first] > down.min()]
    lower_first = _smallest_indices(down, half)
    lower_first = lower_first[down[lower_first] < up.max()]
    # The two rows that violate the optimality conditions most come first, so that every block
    # contains their points.
    worst = point[np.r_[raise_first[:1], lower_first[:1]]]
    new = np.setdiff1d(point[np.r_[raise_first, lower_first]], worst)
    earlier = np.setdiff1d(last, np.r_[worst, new])
    moving = np.isin(earlier, point[rows.free(gamma)])
    return np.sort(np.r_[np.unique(worst), new, earlier[moving], earlier[~moving]][:size])


def _smallest_indices(value: Array, count: int) -> NDArray[np.intp]:
    """Return the indices of the ``count`` smallest values, in ascending order."""
    count = min(count, len(value))
    chosen = np.argpartition(value, count - 1)[:count]
    return chosen[np.argsort(value[chosen], kind="stable")]
