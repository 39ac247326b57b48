"""The order of values: sorted, and among equal ones as numba's own quicksort leaves them."""

from __future__ import annotations

import numpy as np
import pytest
from numba.misc.quicksort import make_py_quicksort
from scipy.spatial.distance import pdist

from cad.features.size import largest_distance
from cad.features.sorting import ascending, taken

REFERENCE = make_py_quicksort(is_argsort=True).run_quicksort


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 100, 333, 2000])
@pytest.mark.parametrize("kind", ["real", "few values", "sorted", "reversed", "equal"])
def test_the_order_is_that_of_numba(n: int, kind: str) -> None:
    rng = np.random.default_rng(n)
    values = {
        "real": rng.normal(size=n),
        "few values": rng.integers(0, 5, n).astype(float),
        "sorted": np.sort(rng.normal(size=n)),
        "reversed": -np.sort(rng.normal(size=n)),
        "equal": np.full(n, 3.0),
    }[kind]
    order = ascending(values)
    np.testing.assert_array_equal(taken(values, order), np.sort(values))
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    np.testing.assert_array_equal(order, REFERENCE(values))


@pytest.mark.parametrize("n", [2, 3, 199, 200, 201, 650])
@pytest.mark.parametrize("k", [2, 3])
def test_the_largest_distance_is_that_of_scipy(n: int, k: int) -> None:
    points = np.random.default_rng(n).normal(size=(n, k)) * 30
    assert largest_distance(points) == pytest.approx(pdist(points).max(), rel=1e-14)


def test_the_largest_distance_of_a_box() -> None:
    corners = np.array([[0, 0, 0], [3, 0, 0], [0, 4, 0], [3, 4, 12.0]])
    assert largest_distance(corners) == 13.0  # 3, 4, 12: counted by hand
