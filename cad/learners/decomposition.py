"""Pairs of rows without the whole kernel matrix: a block of points at a time.

The block holds the points whose rows violate most and those of the last block that still move. Its
own kernel matrix is small, so pairs within it cost no more than its size; what they changed goes
into all decision values by one matrix product. Points that are settled at a bound are left alone,
as shrinking does, and no kernel column is kept that would have to be found again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cad.learners.kernels import Gram, decision_values
from cad.learners.problem import Array
from cad.learners.smo import smo

# A tenth of the points, within these: larger blocks need fewer passes over all points, smaller ones
# fewer kernel values of their own.
_SMALLEST_BLOCK, _LARGEST_BLOCK = 512, 2048
# Share of the block that new violators may take.
_NEW = 0.5
# A block is solved to this share of the violation it was chosen at, or of the tolerance.
_INNER, _INNER_LAST = 0.1, 0.5
_INNER_MOVES = 100


def block_size(cache_mb: float, n_points: int) -> int:
    """Points whose kernel matrix takes at most half of the budget (MB); at least two."""
    most = int(np.clip(n_points // 10, min(n_points, _SMALLEST_BLOCK), _LARGEST_BLOCK))
    return int(np.clip(np.sqrt(cache_mb * 1e6 / 16), 2, most))


def smo_by_blocks(
    gram: Gram,
    size: int,
    point: NDArray[np.int64],
    sign: Array,
    r: Array,
    q: Array,
    c: Array,
    learned: bool,
    state: Array,
    gamma: Array,
    f: Array,
    eps: float,
    max_iter: int,
) -> tuple[int, float, float]:
    """What :func:`cad.learners.smo.smo` does, with kernel values made on demand.

    Parameters
    ----------
    size : int
        Points of a block, at least two.

    Returns
    -------
    iterations : int
    violation : float
    b : float
    """
    block = np.zeros(0, dtype=np.int64)
    place = np.full(len(f), -1, dtype=np.int64)
    iterations = 0
    while True:
        v = r + q * state[2] - f[point]
        positive = sign > 0
        up = np.where(np.where(positive, gamma < c, gamma > 0), v, -np.inf)
        down = np.where(np.where(positive, gamma > 0, gamma < c), v, np.inf)
        best, lowest = float(up.max()), float(down.min())
        violation = best - lowest
        b = 0.5 * (best + lowest) if np.isfinite(violation) else max(best, -lowest)
        if not violation > eps or iterations >= max_iter:
            return iterations, violation, b
        block = _choose(size, point, up, down, block, gamma, c)
        place[:] = -1
        place[block] = np.arange(len(block))
        rows = np.flatnonzero(place[point] >= 0)
        K = gram.kernel.between(gram.X[block], gram.X[block])
        inner_gamma, inner_f = gamma[rows], f[block]
        done, _, _ = smo(
            K, place[point[rows]], sign[rows], r[rows], q[rows], c[rows], learned, state,
            inner_gamma, inner_f, max(_INNER_LAST * eps, _INNER * violation),
            _INNER_MOVES * len(rows),
        )  # fmt: skip
        iterations += done
        step = np.zeros(len(block))
        np.add.at(step, place[point[rows]], sign[rows] * (inner_gamma - gamma[rows]))
        gamma[rows] = inner_gamma
        moved = np.flatnonzero(step)
        f += decision_values(gram.kernel, gram.X, gram.X[block[moved]], step[moved])


def _choose(
    size: int,
    point: NDArray[np.int64],
    up: Array,
    down: Array,
    last: NDArray[np.int64],
    gamma: Array,
    c: Array,
) -> NDArray[np.int64]:
    """Points of the next block, sorted: worst violators of either side, then the last block's."""
    half = max(1, int(_NEW * size) // 2) if len(last) else max(1, size // 2)
    raise_first = _first(-up, half)
    raise_first = raise_first[up[raise_first] > down.min()]
    lower_first = _first(down, half)
    lower_first = lower_first[down[lower_first] < up.max()]
    # The two worst come first: whatever the size, they are in.
    worst = point[np.r_[raise_first[:1], lower_first[:1]]]
    new = np.setdiff1d(point[np.r_[raise_first, lower_first]], worst)
    free = np.unique(point[(gamma > 0) & (gamma < c)])
    kept = np.setdiff1d(last, np.r_[worst, new])
    moving = np.isin(kept, free)
    wanted = np.r_[np.unique(worst), new, kept[moving], kept[~moving]]
    return np.sort(wanted[:size])


def _first(value: Array, count: int) -> NDArray[np.intp]:
    """Indices of the smallest ``count`` values, ascending."""
    count = min(count, len(value))
    part = np.argpartition(value, count - 1)[:count]
    return part[np.argsort(value[part], kind="stable")]
