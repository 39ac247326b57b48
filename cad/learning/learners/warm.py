"""Compile all numba functions of the learners, once for a machine or a container image."""

import numpy as np

from cad.learning.learners.ranking.opauc import OPAUC
from cad.learning.learners.ranking.rankboost import RankBoost
from cad.learning.learners.ranking.svmlin import SVMLin
from cad.learning.learners.ranking.svmroc import SSLROC
from cad.learning.learners.solvers.kernels import Gram, Kernel, make_gram
from cad.learning.learners.solvers.pointwise import solve_hybrid
from cad.learning.learners.svm import svm_problem
from cad.learning.learners.trees import SoftExtraTrees


def warm() -> None:
    """Compile the learners' numba functions, or load them from numba's cache.

    numba compiles a function when it is first called and keeps it in the cache folder
    (``NUMBA_CACHE_DIR``, else beside the package). Later fits need not compile.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = np.arange(40) % 2
    X += 0.5 * y[:, None]
    # This fit uses kernel rows on demand, as for many points, and an active set that grows and
    # shrinks.
    gram = Gram(Kernel("rbf", 1.0), X, matrix=None)
    solve_hybrid(gram, svm_problem(y.astype(float), np.ones(40)))
    # This call compiles the check of a kernel matrix from the caller.
    make_gram(Kernel("precomputed"), X @ X.T, budget_mb=1.0)
    for learner in (OPAUC(platt_folds=0), RankBoost(3, platt_folds=0), SoftExtraTrees(trees=1)):
        learner.fit(X, y).predict(X)
    OPAUC(platt_folds=0).fit(rng.normal(size=(6, 9)), y[:6])  # more features than rows
    unlabelled = np.where(np.arange(40) < 30, y, -1)
    for semi_supervised in (SVMLin(platt_folds=0), SSLROC(platt_folds=0)):
        semi_supervised.fit(X, unlabelled)
