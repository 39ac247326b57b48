"""One predictor-corrector step, and the verdict, of the pairwise interior point.

Sums over the rows of a point are numba kernels, which never write down which rows those are;
everything else is numpy and LAPACK, and one Cholesky factor serves predictor and corrector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from cad.learners.solvers.problem import Array

# Share of the way to the nearest bound that a step goes.
_CLOSE = 0.999
_SHORTEST = 1e-10
# Least product of a pair, relative to the mean.
_LEAST = 0.1


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
    xi = gamma / (2 cost), and nu is not used. ``room`` is 1 - d, which near 1 d itself cannot tell.
    """

    w: Array
    d: Array
    room: Array
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


def _factorise(rows: Rows, stiffness: Array, theta: Array) -> tuple[Array, Array, Array]:
    """Return the Cholesky factor of I + L' S L, S the rows' graph after eliminating d.

    A row joins two points by a spring, so without d the rows are the Laplacian of a weighted graph.
    An unlabelled point's rows do not join it but a node at f_i - M d_i, which a spring of theta /
    M^2 joins to the point. Eliminating that node leaves a graph again (the star-mesh transform),
    whose weights are sums and products of positive numbers: nothing cancels.

    Beside it the cross terms A' W B divided by d's diagonal, and that diagonal.

    Raises
    ------
    numpy.linalg.LinAlgError
        When rounding has made the equations indefinite.
    """
    n, known, margin = len(rows.factor), rows.p + rows.q, rows.margin
    of_labelled, of_negative, of_positive = _blocks(rows, stiffness)
    weight = np.zeros((n, n))
    weight[: rows.p, rows.p : known] = of_labelled
    weight[rows.p : known, : rows.p] = of_labelled.T
    star = np.hstack([of_positive.T, of_negative])
    total = star.sum(axis=1)
    big = margin**2 * total + theta
    lean = np.zeros((n, len(theta)))
    if len(theta):
        share = star / (total + theta / margin**2)[:, None]
        weight[:known, :known] += share.T @ star
        weight[known:, :known] = share * (theta / margin**2)[:, None]
        weight[:known, known:] = weight[known:, :known].T
        np.fill_diagonal(weight, 0.0)
        lean[:known] = margin * star.T / big
        np.fill_diagonal(lean[known:], -margin * total / big)
    graph = -weight
    np.fill_diagonal(graph, weight.sum(axis=1))
    system = rows.factor.T @ graph @ rows.factor
    system.flat[:: len(system) + 1] += 1.0
    chol, info = dpotrf(system, lower=1)
    if info != 0:
        raise np.linalg.LinAlgError("the normal equations are indefinite")
    return chol, lean, big


def _blocks(rows: Rows, value: Array) -> tuple[Array, Array, Array]:
    """Return numbers of rows as (positive, negative), (unlabelled, negative), (positive, unl.)."""
    p, q = rows.p, rows.q
    m = len(rows.factor) - p - q
    first, second, third = np.split(value, [p * q, p * q + m * q])
    return first.reshape(p, q), second.reshape(m, q), third.reshape(p, m)


def step(rows: Rows, at: State, least: float, careful: bool) -> float:
    """Move the state by one step, in place.

    Parameters
    ----------
    least : float
        Sum of the products that must vanish (:func:`_pairs`) below which the step does not aim.
    careful : bool
        Whether the corrector trusts what the predictor saw only as far as that got. In full it
        takes fewer steps, but goes round in circles in one problem of a thousand.

    Returns
    -------
    length : float
        Of the step; 0 when no further progress is possible.

    Raises
    ------
    numpy.linalg.LinAlgError
        When rounding has made the equations indefinite.
    """
    count = sum(len(x) for x, _ in _pairs(at, rows.hinge))
    _lift(at, rows.hinge, least / count)
    towards = _equations(rows, at)
    mean = _complementarity(at, at, 0.0, rows.hinge) / count
    # The predictor, then the corrector (Mehrotra).
    ahead = towards(0.0, [np.zeros(1)] * 4)
    seen = _reach_of(at, ahead, rows.hinge)
    left = max(_complementarity(at, ahead, seen, rows.hinge), 0.0) / count
    aim = max(mean * min(1.0, left / mean) ** 3, least / count)
    trust = seen**2 if careful else 1.0
    change = towards(aim, [trust * dx * dy for dx, dy in _pairs(ahead, rows.hinge)])
    length = _CLOSE * _reach_of(at, change, rows.hinge)
    if not length > _SHORTEST:
        return 0.0
    for name, value in vars(at).items():
        value += length * getattr(change, name)
    return length


def _equations(rows: Rows, at: State) -> Callable[[float, list[Array]], State]:
    """Return a function from an aim of the products, and second-order terms, to the change."""
    p, q, margin, hinge = rows.p, rows.q, rows.margin, rows.hinge
    n = len(rows.factor)
    asked = rows.target - reach(rows.factor @ at.w, at.d, p, q, margin)
    # Without its slacks each row is (ease + give) dgamma = asked - reach(df, dd).
    ease, give = at.s / at.gamma, at.xi / at.nu if hinge else 0.5 / rows.cost
    if not hinge:
        at.xi[:] = give * at.gamma
        asked -= at.xi
    stiffness = 1.0 / (ease + give)
    chol, lean, big = _factorise(rows, stiffness, at.lower / at.d + at.upper / at.room)
    points, onto_d = _onto(at.gamma, p, q, margin, n)
    left_w = rows.factor.T @ points - at.w
    left_d = onto_d - at.upper + at.lower

    def towards(aim: float, second: list[Array]) -> State:
        to_s, to_l = (aim - second[0]) / at.gamma, (aim - second[1]) / at.d - at.lower
        to_u = (aim - second[2]) / at.room - at.upper
        to_xi = (aim - second[3]) / at.nu if hinge else np.zeros_like(asked)
        right = asked + to_s - to_xi
        points, onto_d = _onto(stiffness * right, p, q, margin, n)
        rest_d = onto_d + left_d + to_l - to_u
        dw = dpotrs(chol, left_w + rows.factor.T @ (points - lean @ rest_d), lower=1)[0]
        df = rows.factor @ dw
        dd = rest_d / big - lean.T @ df
        dg = stiffness * (right - reach(df, dd, p, q, margin))
        ds, dx = to_s - at.s - ease * dg, to_xi - at.xi + give * dg
        dl, du = to_l - at.lower * dd / at.d, to_u + at.upper * dd / at.room
        return State(dw, dd, -dd, ds, dx, dg, -dg, dl, du)

    return towards


def _pairs(at: State, hinge: bool) -> list[tuple[Array, Array]]:
    """Return the pairs whose products must vanish; the first of each may be lifted freely."""
    pairs = [(at.s, at.gamma), (at.lower, at.d), (at.upper, at.room)]
    return [*pairs, (at.xi, at.nu)] if hinge else pairs


def _lift(at: State, hinge: bool, least: float) -> None:
    """Raise slacks, and multipliers of d's box, whose products lie below ``least`` or the average.

    Left so near zero they make equations that rounding spoils; the next step closes what this
    opens.
    """
    pairs = _pairs(at, hinge)
    mean = sum(float(x @ y) for x, y in pairs) / sum(len(x) for x, _ in pairs)
    for x, y in pairs:
        np.maximum(x, max(least, _LEAST * mean) / y, out=x)


def _reach_of(at: State, change: State, hinge: bool) -> float:
    """Return how far the state may move along a change before a bound is met, at most 1."""
    worst = 1.0
    for pair, moves in zip(_pairs(at, hinge), _pairs(change, hinge), strict=True):
        worst = max(worst, *map(_soonest, pair, moves))
    return 1.0 / worst


def _complementarity(at: State, change: State, length: float, hinge: bool) -> float:
    """Return the sum of the products that must vanish, after so long a step."""
    total = 0.0
    for (x, y), (dx, dy) in zip(_pairs(at, hinge), _pairs(change, hinge), strict=True):
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
