"""Solve pointwise problems, in which each row (constraint) is about one training point.

A fast approximate method comes first, then an exact one.

First, sequential minimal optimisation (SMO, :mod:`.smo`) moves pairs of rows: it changes the duals
of two rows at a time. It finds in little time which rows lie on their margin. Then the active-set
method (:mod:`.active_set`) makes the rough solution exact. If it fails, SMO continues to a tenth of
the tolerance. Kernel rows are computed when they are first needed. If they do not fit the memory,
pairs are moved by blocks (:mod:`.decomposition`), and the active-set method is used on the points
that may still change.

If the feature space of the kernel has few dimensions, the problem is solved in this space
(:mod:`.lowrank`). For a linear or polynomial kernel this is tried first. For other kernels whose
whole matrix is in memory it is tried if SMO is slow and the active-set method fails.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cad.learning.learners.solvers.active_set import active_set
from cad.learning.learners.solvers.decomposition import block_size, smo_by_blocks
from cad.learning.learners.solvers.kernels import Gram, Kernel
from cad.learning.learners.solvers.lowrank import solve_low_rank
from cad.learning.learners.solvers.problem import Array, Problem, Solution, certify
from cad.learning.learners.solvers.rows import Iterate, Rows, RowStore, as_rows
from cad.learning.learners.solvers.smo import smo

# Violation of the optimality conditions at which the first moves of pairs stop. A smaller violation
# would take more time in passes over all rows than it would save in steps of the active-set method.
_FIRST_EPS = 0.4
# Smallest violation that moves of pairs are to reach.
_LAST_EPS = 1e-12
# Largest number of moves before the first try of the active-set method, per row.
_FIRST_MOVES = 1
# If the active-set method still fails after this number of rounds, the method in feature space is
# tried.
_CRAWLING = 8
# Largest number of dimensions for the method in feature space.
_MOST_DIMENSIONS = 500
# Largest number of rounds of moves and exact methods.
_ROUNDS = 40
# Largest number of free rows of the active-set method, which is the size of its Cholesky factor.
_MAX_FREE = 3000
# If pairs are moved by blocks, the active-set method is tried when the violation is below
# _PART_EPS. It then works on those points alone that may still change, if there are at most
# _MAX_PART of them. Other points that violate their constraints afterwards are added. Then the
# method runs again, at most _PART_ROUNDS times in all.
_PART_EPS = 0.05
_PART_ROUNDS = 8
_MAX_PART = 8500
# Weight rho of the proximal term of the scale (:mod:`.smo`), in units of the kernel per squared
# logit. With this weight the term's curvature is about that of a pair of rows, so moves of pairs
# stay well conditioned.
_RHO = 0.3
# The weight rises at most by this factor (more if costs are small).
_LARGEST_RHO = 1e3
# Number of rows of a large kernel matrix that are computed together.
_ROWS_AT_ONCE = 31
# Scale s at the start.
_FIRST_SCALE = 0.5
# If the imbalance of the scale falls by less than to this share in a round, rho is raised.
_SLOW_FALL = 0.3
# From this violation on, the iterate of the moves of pairs is compared with the wanted tolerance.
_MAY_BE_DONE = 2e-4
# Violation at which the active-set method stops, in units of the margin.
_EXACT = 1e-10


def solve_hybrid(
    gram: Gram,
    problem: Problem,
    *,
    tol: float = 1e-6,
    cache_mb: float = 500.0,
    start: Array | None = None,
    polish: bool = True,
) -> Solution:
    """Solve a pointwise problem by moves of pairs of rows, then by an exact method.

    A move of a pair changes the duals of two rows (sequential minimal optimisation).

    Parameters
    ----------
    gram : Gram
        Kernel of the training points.
    problem : Problem
        Problem of :func:`cad.learning.learners.solvers.problem.pointwise_problem`, in which each
        row is about one point.
    tol : float
        Relative duality gap at which to stop. The violation of the optimality (KKT) conditions must
        be below ten times ``tol``.
    cache_mb : float
        Memory for kernel values when ``gram`` does not hold the whole matrix, MB.
    start : ndarray, shape (n,), optional
        Coefficients beta of a similar problem to start from.
    polish : bool
        Whether exact methods (the active-set method, an interior-point method) may follow the moves
        of pairs.

    Returns
    -------
    Solution
        The solution, which is the same to the last bit in every run. ``converged`` says whether
        ``tol`` was reached.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.learning.learners.solvers.kernels import make_gram, settle_kernel
    >>> from cad.learning.learners.solvers.problem import pointwise_problem
    >>> X = np.array([[1.0], [-1.0]])
    >>> gram = make_gram(settle_kernel("linear", "scale", 3, 0.0, X), X, budget_mb=1.0)
    >>> problem = pointwise_problem(
    ...     2, np.array([0, 1]), np.array([1.0, -1.0]), np.ones(2), np.ones(2)
    ... )
    >>> solution = solve_hybrid(gram, problem)
    >>> solution.converged, solution.gamma.round(3).tolist()
    (True, [0.5, 0.5])
    """
    work = _Work(gram, problem, tol, cache_mb, start)
    solution = None
    if polish and gram.is_low_rank():
        solution = work.in_feature_space(gram.n_points // 2)
    # Near the solution of a similar problem the exact method may succeed at once.
    if solution is None and start is not None and polish and work.store is not None:
        solution = work.finish(work.iterate)
    return _alternate(work, polish) if solution is None else solution


@dataclass
class _Work:
    """Hold the inputs and the current state while one problem is solved."""

    gram: Gram
    problem: Problem
    tol: float
    cache_mb: float
    start: Array | None
    rows: Rows = field(init=False)
    iterate: Iterate = field(init=False)
    # None if the needed kernel rows do not fit the memory
    store: RowStore | None = field(init=False)
    # Three numbers of the scale s: the anchor of its proximal term, the weight rho of this term,
    # and the sum of w_j gamma_j over the rows (see :func:`.smo.smo`).
    scale: Array = field(init=False)
    iterations: int = 0
    best: Solution | None = None

    def __post_init__(self) -> None:
        problem = self.problem
        self.rows = as_rows(problem)
        self.store = RowStore(self.gram, self.cache_mb)
        # Without a start all duals and decision values are 0.
        gamma = np.zeros(problem.n_rows)
        if self.start is not None:
            gamma = spread_coefficients(problem, self.start)
        self.iterate = Iterate(gamma=gamma, f=np.zeros(problem.n_points), u=np.zeros(2))
        if self.start is not None:
            self.iterate.f[:] = self.gram.times(problem.coefficients(gamma))
        rho = _RHO * float(self.store.kernel.diagonal.mean())
        self.scale = np.array([_FIRST_SCALE, rho, 0.0])

    def pairs(self, eps: float, limit: int) -> float:
        """Solve by sequential minimal optimisation, which changes the duals of two rows at a time.

        It stops when no constraint is violated by more than ``eps``, or after ``limit`` changes.
        The result is the largest violation that remains.
        """
        moves = 0
        while self.store is not None:
            new_moves, violation, unfetched = smo(
                self.store.kernel, self.rows, self.iterate, self.scale, eps, limit - moves
            )
            moves += int(new_moves)
            if unfetched < 0:  # no kernel row was missing
                self.iterations += moves
                return float(violation)
            # If all likely rows together do not fit the memory, the missing one alone may fit.
            fits = self.store.fetch(self._with_next(unfetched)) or self.store.fetch([unfetched])
            if not fits:
                self.store = None
        # The kernel rows do not fit the memory, so pairs are moved by blocks.
        points_of_block = block_size(self.cache_mb, self.gram.n_points)
        new_moves, violation = smo_by_blocks(
            self.gram, points_of_block, self.rows, self.iterate, self.scale, eps, limit - moves
        )
        self.iterations += moves + new_moves
        return violation

    def _with_next(self, unfetched: int) -> NDArray[np.intp]:
        """Return point ``unfetched``, whose kernel row is missing, and points likely to be needed
        next.

        Points without a kernel row are likely to be needed next if their rows (constraints) are
        violated most.
        """
        assert self.store is not None  # noqa: S101 (the caller's)
        point = self.rows.point
        slack = self.rows.slack(self.iterate)
        gamma = self.iterate.gamma
        # A row short of its margin is violated if its dual can rise, another row if it can fall.
        is_violated = np.where(slack > 0, gamma < self.rows.c, gamma > 0)
        is_missing = self.store.kernel.slot[point] < 0
        violation = np.abs(slack) * (is_violated & is_missing)
        n_candidates = min(_ROWS_AT_ONCE, len(violation))
        worst = np.argpartition(violation, -n_candidates)[-n_candidates:]
        worst = worst[violation[worst] > 0]
        return np.append(point[worst], unfetched)

    def finish(self, start: Iterate) -> Solution | None:
        """Return the exact solution by the active-set method, or None if it fails.

        ``start`` is not changed.
        """
        assert self.store is not None  # noqa: S101 (the caller's)
        rows = self.rows
        trial = start.copy()
        n_free = len(rows.free(trial.gamma))
        # Without a free row no equation determines the intercept, and too many make the factor
        # too large.
        if not 0 < n_free <= _MAX_FREE:
            return None
        steps, violation = active_set(
            self.store,
            rows,
            trial,
            np.zeros(2),
            tol=_EXACT,
            max_free=min(_MAX_FREE, len(trial.f), 2 * n_free + 200),
            add_most=max(20, n_free // 10),
        )
        self.iterations += steps
        if not np.isfinite(violation):  # the method gave up
            return None
        solution = self.judged(trial, "hybrid")
        return solution if solution.converged else None

    def in_feature_space(self, limit: int) -> Solution | None:
        """Return the solution by the interior-point method in feature space.

        The result is None if the space has more than ``limit`` or more than 500 dimensions, or if
        the method fails.
        """
        factor = self.gram.factor(min(_MOST_DIMENSIONS, limit))
        if factor is None:  # the space has too many dimensions
            return None
        solution = solve_low_rank(
            factor, self.gram.times, self.problem, gap_tol=self.tol, kkt_tol=10 * self.tol
        )
        return solution if solution.converged else None

    def finish_part(self, eps: float) -> Solution | None:
        """Return the exact solution by the active-set method on the points that may still change.

        There are so few of these points that their kernel matrix fits the memory. The duals of all
        other points stay the same. If one of the other points then violates its constraint, it is
        added to the points that may change, and the problem is solved again. The result is None if
        there are too many points that may change, or if the active-set method fails.
        """
        points = np.zeros(0, dtype=np.int64)
        trial = self.iterate.copy()
        # Rows within this reach of their margin may still change (:func:`_unsettled`).
        reach = 10 * eps
        for _ in range(_PART_ROUNDS):
            points, reach = _unsettled(self.rows, trial, points, reach, eps)
            if not 0 < len(points) <= _MAX_PART:
                return None
            steps, violation = _solve_part(self.gram, self.rows, trial, points)
            self.iterations += steps
            if not np.isfinite(violation):  # the method gave up
                return None
            solution = self.judged(trial, "hybrid")
            if solution.converged:
                return solution
            # The chosen points are exact now. So only rows that violate their constraints are
            # added.
            reach = eps = 0.1 * self.tol
        return None

    def judged(self, iterate: Iterate, solver: str) -> Solution:
        """Return an iterate as a solution.

        The decision values f are computed again from the duals, because rounding errors have
        accumulated in them. ``iterate`` gets these f, too.
        """
        problem = self.problem
        # The store keeps rows of the kernel matrix in memory; it is None where it was too small.
        kernel = self.store or self.gram
        iterate.f[:] = kernel.times(problem.coefficients(iterate.gamma))
        return certify(
            problem,
            iterate.f.copy(),
            iterate.gamma.copy(),
            # The intercept; then the scale, if the problem learns one.
            iterate.u[: len(problem.lower)].copy(),
            iterations=self.iterations,
            solver=solver,
            gap_tol=self.tol,
            kkt_tol=10 * self.tol,
        )

    def keep_best(self) -> Solution:
        """Return the better of two solutions: the current state and the best solution so far.

        The current state is better if it has converged, or if its duality gap is not larger.
        """
        solution = self.judged(self.iterate, "smo")
        # ``not <`` also replaces a best solution whose gap is NaN.
        if self.best is None or solution.converged or not self.best.gap < solution.gap:
            self.best = solution
        return self.best


def _alternate(work: _Work, polish: bool) -> Solution:
    """Alternate between moves of pairs and exact methods until one finds a solution; return it.

    A move changes the duals of a pair of rows (constraints).

    Each round moves pairs until the violation is below a limit, and then tries the active-set
    method. The limit of the next round is a tenth of this limit, or a third if pairs are moved by
    blocks.
    """
    # Moves of pairs keep the sum of sign * gamma, so it must be 0 at the start.
    _balance(work.rows, work.iterate.gamma)
    if work.iterate.gamma.any():
        work.iterate.f[:] = work.gram.times(work.problem.coefficients(work.iterate.gamma))
    n_rows = len(work.rows.point)
    scale = work.scale
    first_rho = scale[1]
    most_moves = 1000 * (n_rows + 1000)
    # Before the first try of the active-set method only a few pairs are moved, because moves are
    # slow if rows have high costs.
    limit = _FIRST_MOVES * n_rows if polish else most_moves
    eps = _FIRST_EPS
    imbalance = np.inf
    tried_feature_space = False
    for round_number in range(_ROUNDS):
        tries_active_set = polish and work.store is not None
        # ``scale`` has the anchor of the proximal term, its weight rho, and the sum of w * gamma.
        # This sum is computed again, because rounding errors accumulate in it.
        scale[2] = float(-(work.rows.q * work.rows.sign) @ work.iterate.gamma)
        moves_before = work.iterations
        violation = work.pairs(eps, limit if tries_active_set else most_moves)
        moved = work.iterations > moves_before
        scale[0] = work.iterate.u[1]
        solution = None
        # The store is None from the round on in which the kernel rows do not fit the memory.
        if polish and work.store is not None:
            solution = work.finish(work.iterate)
            # Moves of pairs converge slowly if a precomputed matrix has low rank, for example the
            # matrix of a linear kernel. They also converge slowly if soft labels cost 10^4 times as
            # much as certain labels.
            is_slow = violation > eps or round_number >= _CRAWLING
            may_try = not tried_feature_space and work.gram.matrix is not None
            if solution is None and is_slow and may_try:
                tried_feature_space = True
                solution = work.in_feature_space(_MOST_DIMENSIONS)
        elif polish and eps <= _PART_EPS and violation <= eps:
            # Near the solution few points may still change, so their kernel matrix fits the memory.
            solution = work.finish_part(eps)
        if solution is not None:
            return solution
        if violation > eps:
            # The limit of moves ended this round early. The next one has the same eps and more
            # moves.
            limit = min(4 * limit, 300 * (n_rows + 300))
            continue
        if work.rows.learned:
            # The anchor of the proximal term is now the last s. So the next round has the same eps,
            # until the condition of the scale holds about as well as the other conditions. The
            # weight of the proximal term is raised only if the new anchor is not enough.
            last_imbalance = imbalance
            imbalance = _scale_imbalance(work.rows, work.iterate)
            if imbalance > max(work.tol, eps):
                # With small costs the duals are small, so the proximal term needs a larger weight
                # for the duals to change the scale.
                factor_of_costs = max(1.0, 1.0 / float(np.median(work.rows.c)))
                largest_rho = _LARGEST_RHO * first_rho * factor_of_costs
                if imbalance > _SLOW_FALL * last_imbalance and scale[1] < largest_rho:
                    scale[1] *= 10
                    continue
                if moved:
                    # Another round with this eps helps only if pairs were moved.
                    continue
        if eps <= _MAY_BE_DONE or not polish:
            best = work.keep_best()
            if best.converged:
                return best
        if eps <= _LAST_EPS:
            break  # rounding errors prevent a smaller violation
        eps /= 10 if work.store is not None else 3
    return work.keep_best()


def spread_coefficients(problem: Problem, beta: Array) -> Array:
    """Return dual variables, shape (m,), for which the points' coefficients are close to ``beta``.

    Duals lie between 0 and their costs. A point may have several rows of one sign. The row with the
    largest margin then gets as much of the point's coefficient as its cost allows. The row with the
    next largest margin gets as much of the rest as its cost allows, and so on. If the costs of all
    rows are used up, the rest of the coefficient is lost.

    Parameters
    ----------
    problem : Problem
        The pointwise problem of m rows.
    beta : ndarray, shape (n,)
        Coefficient that every point should have.

    Examples
    --------
    With costs of 1 a coefficient of -3 is not possible, and becomes -1:

    >>> import numpy as np
    >>> from cad.learning.learners.solvers.problem import pointwise_problem
    >>> problem = pointwise_problem(
    ...     2, np.array([0, 1]), np.array([1.0, -1.0]), np.ones(2), np.ones(2)
    ... )
    >>> spread_coefficients(problem, np.array([0.5, -3.0])).tolist()
    [0.5, 1.0]
    """
    gamma = np.zeros(problem.n_rows)
    undistributed = np.array(beta, dtype=float)
    if undistributed.shape != (problem.n_points,):
        raise ValueError(f"start has shape {undistributed.shape}, must be ({problem.n_points},)")
    point = problem.A.indices
    sign = problem.A.data
    order = np.lexsort((-problem.t, point))
    # ``turn`` is the position of a row among the rows of its point, by falling margin. Rows of
    # equal position belong to different points, so they are handled together.
    first_of_point = np.searchsorted(point[order], point[order])
    turn = np.arange(len(order)) - first_of_point
    for k in range(int(turn.max(initial=-1)) + 1):
        rows = order[turn == k]
        signs = sign[rows]
        points = point[rows]
        # Each of these rows takes as much of its point's coefficient as its sign and cost allow.
        gamma[rows] = np.clip(undistributed[points] * signs, 0.0, problem.c[rows])
        undistributed[points] -= signs * gamma[rows]
    return gamma


def _balance(rows: Rows, gamma: Array) -> None:
    """Change the duals ``gamma`` in place so that sum_j sign_j gamma_j = 0.

    The duals of one sign have a larger sum than those of the other. Duals of that sign are lowered
    until the sums are equal, first those below their upper bound.
    """
    excess = float(rows.sign @ gamma)
    if excess == 0.0:
        return
    has_larger_sign = rows.sign * excess > 0
    larger_side = np.flatnonzero(has_larger_sign & (gamma > 0))
    at_cost = gamma[larger_side] >= rows.c[larger_side]
    lowering_order = larger_side[np.argsort(at_cost, kind="stable")]
    remaining = abs(excess)
    for j in lowering_order:
        amount = min(gamma[j], remaining)
        gamma[j] -= amount
        remaining -= amount
        if remaining <= 0:
            break


def _scale_imbalance(rows: Rows, iterate: Iterate) -> float:
    """Return the violation of the optimality condition of the scale.

    The condition is that sum_j w_j gamma_j is 0, or at most 0 if s = 0, with w_j the coefficient of
    the scale in row j. The violation is relative to the sum of the terms' absolute values.
    """
    terms = -rows.q * rows.sign * iterate.gamma
    total = float(terms.sum())
    if iterate.u[1] <= 0:  # at s = 0 only a positive sum is a violation
        total = max(total, 0.0)
    sum_of_sizes = float(np.abs(terms).sum())
    return abs(total) / sum_of_sizes if sum_of_sizes > 0 else 0.0


def _unsettled(
    rows: Rows, iterate: Iterate, points: NDArray[np.int64], reach: float, eps: float
) -> tuple[NDArray[np.int64], float]:
    """Return ``points`` together with the points whose rows may still change, and the reach that
    was used.

    A row may still change if it violates its constraint, or would at a change of its decision value
    by ``reach``. The reach is lowered, down to ``eps``, until the points are few enough.
    """
    slack = rows.slack(iterate)  # how far each row falls short of its margin
    while True:
        # In the optimum a row with a positive slack (a violated constraint) has its largest dual,
        # and a row with a negative slack has a dual of 0.
        may_rise = (iterate.gamma < rows.c) & (slack > -reach)
        may_fall = (iterate.gamma > 0) & (slack < reach)
        chosen = np.union1d(points, rows.point[may_rise | may_fall])
        if len(chosen) <= _MAX_PART or reach <= eps:
            return chosen, reach
        reach /= 3


def _solve_part(
    gram: Gram, rows: Rows, trial: Iterate, chosen: NDArray[np.int64]
) -> tuple[int, float]:
    """Run the active-set method on the chosen points; return its number of steps and the violation.

    ``trial`` gets the new duals of the chosen points' rows. The violation is how far these rows are
    from their optimality conditions. The caller computes the decision values of the points that
    were not chosen.
    """
    place_in_chosen = np.full(len(trial.f), -1, dtype=np.int64)
    place_in_chosen[chosen] = np.arange(len(chosen))
    is_chosen = place_in_chosen[rows.point] >= 0
    rows_of_chosen = np.flatnonzero(is_chosen)
    K = gram.kernel.between(gram.X[chosen], gram.X[chosen])
    # A scale at its bound 0 is no variable of this smaller problem.
    learned = rows.learned and bool(trial.u[1] > 0)
    chosen_rows = rows.subset(rows_of_chosen, place_in_chosen, learned)
    iterate = Iterate(gamma=trial.gamma[rows_of_chosen], f=trial.f[chosen], u=trial.u)
    n_free = len(chosen_rows.free(iterate.gamma))
    # Terms of the other rows, whose duals stay, in the balances of the intercept and the scale.
    fixed_terms = (rows.sign * trial.gamma)[~is_chosen]
    unmet = np.array([fixed_terms.sum(), rows.q[~is_chosen] @ fixed_terms])
    # The whole matrix of the chosen points is given, so the store needs no memory for rows.
    steps, violation = active_set(
        RowStore(Gram(Kernel("precomputed"), X=K, matrix=K), budget_mb=0.0),
        chosen_rows,
        iterate,
        unmet,
        tol=_EXACT,
        max_free=min(len(chosen), 2 * n_free + 200),
        add_most=max(1, n_free // 10),
    )
    trial.gamma[rows_of_chosen] = iterate.gamma
    return steps, violation
