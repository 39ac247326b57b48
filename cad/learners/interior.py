"""One predictor-corrector step, and the verdict, of the pairwise interior point, in numba.

Everything that is as long as the rows is touched in a few passes here; what is as long as the
points goes through BLAS, and one Cholesky factor serves predictor and corrector.
"""

from __future__ import annotations

import numba
import numpy as np

# Share of the way to the nearest bound that a step goes.
_CLOSE = 0.999
_SHORTEST = 1e-10


# Rows come in three blocks (positive, negative), (unlabelled, negative), (positive, unlabelled);
# walking them block by block keeps every inner loop contiguous.


@numba.njit(cache=True, error_model="numpy")
def _onto(value, p, q, margin, n):  # type: ignore[no-untyped-def]
    """One number a row onto the points (n,) and onto d (n - p - q,): the transpose of the rows."""
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
    """Left side of every row at scores f (n,) and soft labels d (n - p - q,)."""
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


@numba.njit(cache=True, error_model="numpy", fastmath={"nnan", "nsz"})
def _worst(value, change, sign):  # type: ignore[no-untyped-def]
    """Largest of sign * change / value, at least 0: how soon a bound is met."""
    worst = 0.0
    for k in range(len(value)):
        ratio = sign * change[k] / value[k]
        worst = ratio if ratio > worst else worst
    return worst


@numba.njit(cache=True, error_model="numpy")
def _graph(weight, p, q, margin, theta):  # type: ignore[no-untyped-def]
    """Weighted graph of the rows over the points, their cross terms with d, and d's diagonal."""
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


@numba.njit(cache=True, error_model="numpy")
def _factorise(factor, stiffness, p, q, margin, theta):  # type: ignore[no-untyped-def]
    """Cholesky of I + L' S L, S the rows' weighted graph after eliminating d.

    Returns it with d's diagonal and the cross terms divided by that.
    """
    graph, cross, big = _graph(stiffness, p, q, margin, theta)
    lean = cross / big
    # An unlabelled point meets no d but its own: only labelled points need a matrix product.
    known = p + q
    if len(theta):
        graph[:known, :known] -= np.dot(lean[:known], cross[:known].T)
        for i in range(len(theta)):
            own = cross[known + i, i]
            for j in range(known):
                graph[known + i, j] -= own * lean[j, i]
                graph[j, known + i] = graph[known + i, j]
            graph[known + i, known + i] -= own * lean[known + i, i]
    system = np.dot(factor.T, np.dot(graph, factor))
    for i in range(len(system)):
        system[i, i] += 1.0
    return np.linalg.cholesky(system), lean, big


@numba.njit(cache=True, error_model="numpy")
def _solve(chol, x):  # type: ignore[no-untyped-def]
    """Solve chol chol' y = x in place, walking rows of chol."""
    n = len(x)
    for i in range(n):
        total = x[i]
        for k in range(i):
            total -= chol[i, k] * x[k]
        x[i] = total / chol[i, i]
    for i in range(n - 1, -1, -1):
        x[i] /= chol[i, i]
        value = x[i]
        for k in range(i):
            x[k] -= chol[i, k] * value


@numba.njit(cache=True, error_model="numpy")
def step(  # type: ignore[no-untyped-def]
    factor, p, q, margin, target, cost, hinge,
    w, d, s, xi, gamma, nu, lower, upper,
):  # fmt: skip
    """Move (w, d), slacks s and xi, multipliers gamma, nu, lower and upper by one step, in place.

    Parameters
    ----------
    factor : ndarray, shape (n, r)
        L with K = L L'.
    p, q : int
        Positives and negatives; the other points are unlabelled.
    margin : float
    target, cost : ndarray, shape (rows,)
    hinge : bool
        Otherwise squared hinge, where xi = gamma / (2 cost) and nu is not used.

    Returns
    -------
    length : float
        Of the step; 0 when no further progress is possible.

    Raises
    ------
    numpy.linalg.LinAlgError
        When rounding has made the equations indefinite.
    """
    rows, n, m = len(s), len(factor), len(d)
    asked = target - reach(np.dot(factor, w), d, p, q, margin)
    inverse_g, inverse_n = 1.0 / gamma, 1.0 / nu if hinge else nu
    count = float(rows + 2 * m)
    if hinge:
        give = xi * inverse_n
        count += rows
    else:
        give = 0.5 / cost
        xi[:] = give * gamma
        asked -= xi
    ease = s * inverse_g
    stiffness = 1.0 / (ease + give)
    mu = now = np.dot(s, gamma) + (np.dot(xi, nu) if hinge else 0.0)
    free = 1.0 - d
    for k in range(m):
        mu += lower[k] * d[k] + upper[k] * free[k]
    mu /= count
    chol, lean, big = _factorise(factor, stiffness, p, q, margin, lower / d + upper / free)
    points, onto_d = _onto(gamma, p, q, margin, n)
    left_w = np.dot(factor.T, points) - w
    left_d = onto_d - upper + lower

    # The predictor (centre 0, no second-order terms), then the corrector from what it found.
    right, ds, dx = asked, -s, -xi
    dd, dl, du = np.zeros(m), np.zeros(m), np.zeros(m)
    dw, dg = np.zeros(0), np.zeros(0)
    centre, length = 0.0, 1.0
    for corrector in range(2):
        if corrector == 1:
            back = (centre - ds * dg) * inverse_g
            right = asked + back
            ds = back - s
            if hinge:
                back = (centre + dx * dg) * inverse_n
                right -= back
                dx = back - xi
        points, onto_d = _onto(stiffness * right, p, q, margin, n)
        rest_l = centre - d * lower - dd * dl
        rest_u = centre - free * upper + dd * du
        rest_d = onto_d + left_d + rest_l / d - rest_u / free
        dw = left_w + np.dot(factor.T, points - np.dot(lean, rest_d))
        _solve(chol, dw)
        df = np.dot(factor, dw)
        dd = rest_d / big - np.dot(lean.T, df)
        dl = (rest_l - lower * dd) / d
        du = (rest_u + upper * dd) / free
        dg = stiffness * (right - reach(df, dd, p, q, margin))
        ds -= ease * dg
        worst = max(_worst(s, ds, -1.0), _worst(gamma, dg, -1.0))
        if hinge:
            dx += give * dg
            worst = max(worst, _worst(xi, dx, -1.0), _worst(nu, dg, 1.0))
        worst = max(worst, _worst(d, dd, -1.0), _worst(free, dd, 1.0))
        worst = max(worst, _worst(lower, dl, -1.0), _worst(upper, du, -1.0))
        length = 1.0 / worst if worst > 1.0 else 1.0
        if corrector == 0:
            # (s + length ds)'(gamma + length dg), and likewise of xi and nu.
            slope, bend = np.dot(s, dg) + np.dot(ds, gamma), np.dot(ds, dg)
            if hinge:
                slope += np.dot(dx, nu) - np.dot(xi, dg)
                bend -= np.dot(dx, dg)
            ahead = now + length * (slope + length * bend)
            for k in range(m):
                ahead += (d[k] + length * dd[k]) * (lower[k] + length * dl[k])
                ahead += (free[k] - length * dd[k]) * (upper[k] + length * du[k])
            centre = mu * min(1.0, max(ahead, 0.0) / (count * mu)) ** 3

    length *= _CLOSE
    if not length > _SHORTEST:
        return 0.0
    w += length * dw
    d += length * dd
    s += length * ds
    gamma += length * dg
    lower += length * dl
    upper += length * du
    if hinge:
        xi += length * dx
        nu -= length * dg
    return length


@numba.njit(cache=True, error_model="numpy")
def verdict(factor, p, q, margin, target, cost, hinge, gamma, d):  # type: ignore[no-untyped-def]
    """Objectives and KKT violation of (gamma, d), nothing taken from the iteration.

    Returns
    -------
    beta, f : ndarray, shape (n,)
    primal, dual, kkt : float
        The balance of each d counts relative to all that its rows could pull.
    """
    n, m = len(factor), len(d)
    beta, balance = _onto(gamma, p, q, margin, n)
    w = np.dot(factor.T, beta)
    f = np.dot(factor, w)
    norm2 = 0.5 * np.dot(w, w)
    primal, dual, kkt = norm2, -norm2, 0.0
    short = target - reach(f, d, p, q, margin)
    off = np.empty(len(gamma))
    for k in range(len(gamma)):
        missed = short[k] if short[k] > 0.0 else 0.0
        share = gamma[k] / cost[k]
        dual += target[k] * gamma[k]
        if hinge:
            primal += cost[k] * missed
            wish = share + short[k]
            wish = 0.0 if wish < 0.0 else (1.0 if wish > 1.0 else wish)
            off[k] = wish - share
        else:
            primal += cost[k] * missed * missed
            dual -= 0.25 * gamma[k] * share
            off[k] = missed - 0.5 * share
    for k in range(len(off)):
        kkt = max(kkt, abs(off[k]))
    # All that the rows of each d could pull: those of either block, whatever their sign.
    most = np.zeros(m)
    for i in range(m):
        for j in range(q):
            most[i] += margin * cost[p * q + i * q + j]
        for j in range(p):
            most[i] += margin * cost[p * q + m * q + j * m + i]
    for k in range(m):
        dual -= max(balance[k], 0.0)
        wish = min(max(d[k] + balance[k] / most[k], 0.0), 1.0)
        kkt = max(kkt, abs(wish - d[k]))
    return beta, f, primal, dual, kkt
