"""One predictor-corrector step, and the verdict, of the pairwise interior point.

Sums over the rows of a point are numba kernels, which never write down which rows those are;
everything else is numpy and LAPACK, and one Cholesky factor serves predictor and corrector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from cad.learners.problem import Array

# Share of the way to the nearest bound that a step goes.
_CLOSE = 0.999
_SHORTEST = 1e-10


class Rows(NamedTuple):
    """Hold what stays the same while a pairwise problem is solved.

    Parameters
    ----------
    factor : ndarray, shape (n, r)
        L with K = L L'.
    p, q : int
        Positives and negatives; the other points are unlabelled.
    margin : float
    target, cost : ndarray, shape (rows,)
    hinge : bool
        Otherwise squared hinge.
    """

    factor: Array
    p: int
    q: int
    margin: float
    target: Array
    cost: Array
    hinge: bool


@dataclass
class State:
    """Hold the interior point: weights w, soft labels d, slacks s and xi, and multipliers.

    gamma belongs to the rows, nu to xi >= 0, lower and upper to 0 <= d <= 1. For the squared hinge
    xi = gamma / (2 cost), and nu is not used.
    """

    w: Array
    d: Array
    s: Array
    xi: Array
    gamma: Array
    nu: Array
    lower: Array
    upper: Array


# Rows come in three blocks (positive, negative), (unlabelled, negative), (positive, unlabelled);
# walking them block by block keeps every inner loop contiguous.


@numba.njit(cache=True, error_model="numpy")
def _onto(value, p, q, margin, n):  # type: ignore[no-untyped-def]
    """Return A' value, shape (n,), and B' value, shape (n - p - q,).

    ``value`` holds one number for each row; A and B are the rows over the scores f and the soft
    labels d.
    """
    m = n - p - q
    points, onto_d = np.zeros(n), np.zeros(m)
    at = 0
    for i in range(p):
        total = 0.0
        for j in range(q):
            total += value[at + j]
            points[p + j] -= value[at + j]
        points[i] += total
        at += q
    for i in range(m):
        total = 0.0
        for j in range(q):
            total += value[at + j]
            points[p + j] -= value[at + j]
        points[p + q + i] += total
        onto_d[i] -= margin * total
        at += q
    for i in range(p):
        total = 0.0
        for j in range(m):
            total += value[at + j]
            points[p + q + j] -= value[at + j]
            onto_d[j] += margin * value[at + j]
        points[i] += total
        at += m
    return points, onto_d


@numba.njit(cache=True, error_model="numpy")
def reach(f, d, p, q, margin):  # type: ignore[no-untyped-def]
    """Return A f + B d, the left side of every row; f (n,) scores, d (n - p - q,) soft labels."""
    m = len(d)
    out = np.empty(p * q + m * q + p * m)
    moved = f[p + q :] - margin * d
    at = 0
    for i in range(p):
        for j in range(q):
            out[at + j] = f[i] - f[p + j]
        at += q
    for i in range(m):
        for j in range(q):
            out[at + j] = moved[i] - f[p + j]
        at += q
    for i in range(p):
        for j in range(m):
            out[at + j] = f[i] - moved[j]
        at += m
    return out


def _soonest(value: Array, change: Array) -> float:
    """Return 1 / t, t the least step along ``change`` that brings a value to zero; 0 if none."""
    return -float(np.min(change / value, initial=0.0))


@numba.njit(cache=True, error_model="numpy")
def _graph(weight, p, q, margin, theta):  # type: ignore[no-untyped-def]
    """Return A' W A, A' W B and the diagonal of B' W B + theta, W the rows' weights.

    A row joins two points, so A' W A is the Laplacian of a weighted graph over the points and is
    written down without a product of matrices.
    """
    m = len(theta)
    n = p + q + m
    graph, cross = np.zeros((n, n)), np.zeros((n, m))
    at = 0
    for i in range(p):
        for j in range(q):
            graph[i, p + j] = graph[p + j, i] = -weight[at + j]
        at += q
    for i in range(m):
        for j in range(q):
            graph[p + q + i, p + j] = graph[p + j, p + q + i] = -weight[at + j]
            cross[p + j, i] = margin * weight[at + j]
        at += q
    for i in range(p):
        for j in range(m):
            graph[i, p + q + j] = graph[p + q + j, i] = -weight[at + j]
            cross[i, j] = margin * weight[at + j]
        at += m
    for i in range(n):
        graph[i, i] = -graph[i].sum()
    big = theta.copy()
    for i in range(m):
        total = 0.0
        for j in range(p + q):
            total += cross[j, i]
        cross[p + q + i, i] = -total
        big[i] += margin * total
    return graph, cross, big


def _factorise(rows: Rows, stiffness: Array, theta: Array) -> tuple[Array, Array, Array]:
    """Return the Cholesky factor of I + L' S L, S the rows' graph after eliminating d.

    Beside it the cross terms divided by d's diagonal, and that diagonal.

    Raises
    ------
    numpy.linalg.LinAlgError
        When rounding has made the equations indefinite.
    """
    graph, cross, big = _graph(stiffness, rows.p, rows.q, rows.margin, theta)
    lean = cross / big
    # An unlabelled point meets no d but its own: only labelled points need a matrix product.
    known = rows.p + rows.q
    if len(theta):
        own = np.diagonal(cross[known:])
        graph[:known, :known] -= lean[:known] @ cross[:known].T
        graph[:known, known:] -= own * lean[:known]
        graph[known:, :known] = graph[:known, known:].T
        graph[np.arange(known, len(graph)), np.arange(known, len(graph))] -= own**2 / big
    system = rows.factor.T @ graph @ rows.factor
    system.flat[:: len(system) + 1] += 1.0
    chol, info = dpotrf(system, lower=1)
    if info != 0:
        raise np.linalg.LinAlgError("the normal equations are indefinite")
    return chol, lean, big


def step(rows: Rows, at: State) -> float:
    """Move the state by one step, in place.

    Returns
    -------
    length : float
        Of the step; 0 when no further progress is possible.

    Raises
    ------
    numpy.linalg.LinAlgError
        When rounding has made the equations indefinite.
    """
    p, q, margin, hinge = rows.p, rows.q, rows.margin, rows.hinge
    n, free = len(rows.factor), 1.0 - at.d
    give, asked, mu, count = _residual(rows, at)
    ease = at.s / at.gamma
    stiffness = 1.0 / (ease + give)
    chol, lean, big = _factorise(rows, stiffness, at.lower / at.d + at.upper / free)
    points, onto_d = _onto(at.gamma, p, q, margin, n)
    left_w = rows.factor.T @ points - at.w
    left_d = onto_d - at.upper + at.lower

    def solve(right: Array, rest_s: Array, rest_xi: Array, rest_l: Array, rest_u: Array) -> State:
        """Return the changes that leave the given complementarities of s, xi and d's bounds."""
        points, onto_d = _onto(stiffness * right, p, q, margin, n)
        rest_d = onto_d + left_d + rest_l / at.d - rest_u / free
        dw = dpotrs(chol, left_w + rows.factor.T @ (points - lean @ rest_d), lower=1)[0]
        df = rows.factor @ dw
        dd = rest_d / big - lean.T @ df
        dg = stiffness * (right - reach(df, dd, p, q, margin))
        ds, dx = rest_s - ease * dg, rest_xi + give * dg
        dl, du = (rest_l - at.lower * dd) / at.d, (rest_u + at.upper * dd) / free
        return State(dw, dd, ds, dx, dg, -dg, dl, du)

    # The predictor (centre 0, no second-order terms), then the corrector from what it found.
    ahead = solve(asked, -at.s, -at.xi, -at.d * at.lower, -free * at.upper)
    left = _complementarity(at, ahead, _reach_of(at, ahead, hinge), hinge)
    centre = mu * min(1.0, max(left, 0.0) / (count * mu)) ** 3
    to_s = (centre - ahead.s * ahead.gamma) / at.gamma
    to_xi = (centre + ahead.xi * ahead.gamma) / at.nu if hinge else 0.0 * asked
    change = solve(
        asked + to_s - to_xi,
        to_s - at.s,
        to_xi - at.xi,
        centre - at.d * at.lower - ahead.d * ahead.lower,
        centre - free * at.upper + ahead.d * ahead.upper,
    )
    length = _CLOSE * _reach_of(at, change, hinge)
    if not length > _SHORTEST:
        return 0.0
    for name, value in vars(at).items():
        value += length * getattr(change, name)
    return length


def _residual(rows: Rows, at: State) -> tuple[Array, Array, float, float]:
    """Return the rows' compliance and residual, and the mean complementarity and its count.

    Without its slacks each row is (s / gamma + give) dgamma = asked - reach(df, dd).
    """
    asked = rows.target - reach(rows.factor @ at.w, at.d, rows.p, rows.q, rows.margin)
    count = len(at.s) + 2 * len(at.d)
    total = float(at.s @ at.gamma + at.lower @ at.d + at.upper @ (1.0 - at.d))
    if rows.hinge:
        return (
            at.xi / at.nu,
            asked,
            (total + float(at.xi @ at.nu)) / (count + len(at.s)),
            (float(count + len(at.s))),
        )
    give = 0.5 / rows.cost
    at.xi[:] = give * at.gamma
    return give, asked - at.xi, total / count, float(count)


def _reach_of(at: State, change: State, hinge: bool) -> float:
    """Return how far the state may move along a change before a bound is met, at most 1."""
    worst = max(
        1.0, _soonest(at.s, change.s), _soonest(at.gamma, change.gamma),
        _soonest(at.d, change.d), _soonest(1.0 - at.d, -change.d),
        _soonest(at.lower, change.lower), _soonest(at.upper, change.upper),
    )  # fmt: skip
    if hinge:
        worst = max(worst, _soonest(at.xi, change.xi), _soonest(at.nu, change.nu))
    return 1.0 / worst


def _complementarity(at: State, change: State, length: float, hinge: bool) -> float:
    """Return the sum of the products that must vanish, after so long a step."""
    pairs = [("s", "gamma"), ("d", "lower"), *([("xi", "nu")] if hinge else [])]
    total = float((1.0 - at.d - length * change.d) @ (at.upper + length * change.upper))
    for first, second in pairs:
        x, y = getattr(at, first), getattr(at, second)
        dx, dy = getattr(change, first), getattr(change, second)
        total += float(x @ y + length * (x @ dy + dx @ y + length * (dx @ dy)))
    return total


def verdict(rows: Rows, gamma: Array, d: Array) -> tuple[Array, Array, float, float, float]:
    """Return objectives and KKT violation of (gamma, d), nothing taken from the iteration.

    Returns
    -------
    beta, f : ndarray, shape (n,)
    primal, dual, kkt : float
        The balance of each d counts relative to all that its rows could pull.
    """
    p, q, margin, cost = rows.p, rows.q, rows.margin, rows.cost
    n, m = len(rows.factor), len(d)
    beta, balance = _onto(gamma, p, q, margin, n)
    w = rows.factor.T @ beta
    f = rows.factor @ w
    norm2 = 0.5 * float(w @ w)
    short = rows.target - reach(f, d, p, q, margin)
    missed, share = np.maximum(short, 0.0), gamma / cost
    dual = float(rows.target @ gamma) - norm2 - float(np.maximum(balance, 0.0).sum())
    if rows.hinge:
        primal = norm2 + float(cost @ missed)
        off = np.clip(share + short, 0.0, 1.0) - share
    else:
        primal = norm2 + float(cost @ missed**2)
        dual -= 0.25 * float(gamma @ share)
        off = missed - 0.5 * share
    # All that the rows of each d could pull: those of either block, whatever their sign.
    blocks = np.split(cost, [p * q, p * q + m * q])
    most = margin * (blocks[1].reshape(m, q).sum(axis=1) + blocks[2].reshape(p, m).sum(axis=0))
    wish = np.clip(d + balance / most, 0.0, 1.0)
    kkt = max(float(np.abs(off).max()), float(np.abs(wish - d).max(initial=0.0)))
    return beta, f, primal, dual, kkt
