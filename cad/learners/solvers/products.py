"""Products with a whole matrix, in numba: apart, so that kernels load it only when they need it."""

from __future__ import annotations

import numba


@numba.njit(cache=True, fastmath={"reassoc", "contract"})
def add_both_products(K, v, product, mirrored):  # type: ignore[no-untyped-def]
    """Add K v and K' v, each entry of K read from memory once: two products read it twice."""
    for i in range(len(v)):
        row, weight, total = K[i], v[i], 0.0
        for j in range(len(v)):
            total += row[j] * v[j]
            mirrored[j] += row[j] * weight
        product[i] += total
