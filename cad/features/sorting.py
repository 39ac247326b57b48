"""The order of a region's values, compiled in a tenth of the time that numba's own sort takes."""

from __future__ import annotations

import numpy as np
from numba import njit

# Fewer values are inserted one by one.
_FEW = 15
# Parts that wait for their turn: the larger half waits, so that there are at most log2(n).
_MOST_PARTS = 64


@njit(cache=True)
def ascending(values: np.ndarray) -> np.ndarray:
    """Return the indices that sort finite values, shape (n,).

    Quicksort with the median of three. Equal values come in the order in which numba's own
    ``argsort`` leaves them: with weights a percentile depends on it in its last digits.
    """
    n = len(values)
    order = np.empty(n, np.int64)
    for k in range(n):
        order[k] = k
    first = np.empty(_MOST_PARTS, np.int64)
    last = np.empty(_MOST_PARTS, np.int64)
    first[0], last[0] = 0, n - 1
    parts = 1
    while parts > 0:
        parts -= 1
        low, high = first[parts], last[parts]
        while high - low >= _FEW:
            mid = (low + high) >> 1
            if values[order[mid]] < values[order[low]]:
                order[low], order[mid] = order[mid], order[low]
            if values[order[high]] < values[order[mid]]:
                order[high], order[mid] = order[mid], order[high]
            if values[order[mid]] < values[order[low]]:
                order[low], order[mid] = order[mid], order[low]
            pivot = values[order[mid]]
            order[high], order[mid] = order[mid], order[high]  # out of the way
            i, j = low, high - 1
            while True:
                while i < high and values[order[i]] < pivot:
                    i += 1
                while j >= low and pivot < values[order[j]]:
                    j -= 1
                if i >= j:
                    break
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
            order[i], order[high] = order[high], order[i]
            if high - i > i - low:
                if high > i:
                    first[parts], last[parts] = i + 1, high
                    parts += 1
                high = i - 1
            else:
                if i > low:
                    first[parts], last[parts] = low, i - 1
                    parts += 1
                low = i + 1
        for i in range(low + 1, high + 1):
            k = order[i]
            j = i
            while j > low and values[k] < values[order[j - 1]]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = k
    return order


@njit(cache=True)
def taken(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return values in an order, shape (n,)."""
    found = np.empty(len(order))
    for k in range(len(order)):
        found[k] = values[order[k]]
    return found
