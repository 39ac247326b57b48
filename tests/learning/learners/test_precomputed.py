"""Given kernel matrices: proved where they are small, and on the solution's support where large."""

from __future__ import annotations

import numpy as np
import pytest

from cad.learners import PlattSVC
from cad.learning.learners.solvers.kernels import Kernel, check_precomputed


def hidden(n: int, at: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """A kernel matrix with one pair of points more alike than a kernel allows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = (X[:, 0] + rng.normal(size=n) > 0).astype(int)
    K = Kernel("rbf", 2.0).between(X, X)
    K[at] = K[at[::-1]] = 1.5
    return K, y


@pytest.mark.parametrize("at", [(0, 1), (17, 350), (398, 399)])
def test_a_small_matrix_is_proved_whole(at: tuple[int, int]) -> None:
    K, _ = hidden(400, at)
    before = K.copy()
    lowest = f"{np.linalg.eigvalsh(K)[0]:.3g}"
    with pytest.raises(ValueError, match=f"not positive semi-definite: eigenvalue {lowest};"):
        check_precomputed(K)
    assert np.array_equal(before, K)  # the proof works on a copy


def test_a_large_matrix_is_proved_on_the_support() -> None:
    K, y = hidden(900, (0, 0))
    K[0, 0] = 1.0
    clean = PlattSVC(C=1.0, kernel="precomputed").fit(K, y)
    # Two support vectors of one class that no look beforehand takes in.
    free = [int(i) for i in clean.support_ if i % 3 and y[i] == 1]
    i, j = free[0], free[1]
    K[i, j] = K[j, i] = -1.5
    check_precomputed(K)
    with pytest.raises(ValueError, match="not positive semi-definite"):
        PlattSVC(C=1.0, kernel="precomputed").fit(K, y)


def test_asymmetry_is_found_in_any_block() -> None:
    K, _ = hidden(303, (0, 0))
    K[0, 0] = 1.0
    # Rows are read by four: of the last four, one, two, three or all may be there.
    for n, i, j in ((300, 299, 0), (301, 300, 0), (302, 301, 300), (303, 150, 20), (303, 302, 301)):
        wrong = K[:n, :n].copy()
        check_precomputed(wrong)
        wrong[i, j] += 1e-6
        with pytest.raises(ValueError, match="not symmetric: entries differ by 1e-06"):
            check_precomputed(wrong)


def test_what_is_no_number_is_found_without_a_pass_of_its_own() -> None:
    K, y = hidden(500, (0, 0))
    K[0, 0] = 1.0
    for value, at in ((np.nan, (3, 3)), (np.inf, (7, 400)), (-np.inf, (499, 499))):
        wrong = K.copy()
        wrong[at] = wrong[at[::-1]] = value
        with pytest.raises(ValueError, match="holds NaN or infinity"):
            PlattSVC(kernel="precomputed").fit(wrong, y)
    # Rounding is no asymmetry, and what hides in a row of others is.
    rng = np.random.default_rng(1)
    check_precomputed(K + 1e-15 * rng.normal(size=K.shape))
    wrong = K.copy()
    wrong[20] += 1e-7 * rng.normal(size=500)
    with pytest.raises(ValueError, match="not symmetric"):
        check_precomputed(wrong)
