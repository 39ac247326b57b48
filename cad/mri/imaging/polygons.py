"""Fill polygons on a grid of pixels, and find polygons that cover each other or themselves.

All functions look at sixteen lines in each row of pixels. On each line the result is exact.
"""

from collections.abc import Iterator

import numpy as np

_LINES_PER_ROW = 16


def fill_polygons(polygons: list[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """Return the share of every pixel inside polygons, combined by the even-odd rule.

    Parameters
    ----------
    polygons : list of ndarray, shape (n, 2)
        Corners in pixel indices (x, y); pixel (i, j) covers i - .5 to i + .5.
    shape : tuple of 2 ints
        Rows and columns.

    Returns
    -------
    ndarray of float32, shape (rows, columns)

    Examples
    --------
    >>> import numpy as np
    >>> square = np.array([[0.5, 0.5], [2.5, 0.5], [2.5, 2.5], [0.5, 2.5]])
    >>> float(fill_polygons([square], (4, 4)).sum())
    4.0
    """
    rows, columns = shape
    start, end = _edges(polygons)
    share = np.zeros(shape)
    first, last = _rows_of(polygons)
    left_edges = np.arange(columns + 1) - 0.5
    for row in range(max(first, 0), min(last, rows - 1) + 1):
        for y in _lines_of(row):
            x, _ = _crossings(start, end, y)
            for left, right in zip(x[::2], x[1::2], strict=True):
                share[row] += np.diff(np.clip(left_edges, left, right))
    return (share / _LINES_PER_ROW).astype(np.float32)


class Border:
    """Hold a polygon and its chords: on each line that it crosses, the stretches inside it.

    Parameters
    ----------
    polygon : ndarray, shape (n, 2)
        Corners in pixel indices (x, y); pixel (i, j) covers i - .5 to i + .5.

    Examples
    --------
    >>> import numpy as np
    >>> square = np.array([[0.5, 0.5], [2.5, 0.5], [2.5, 2.5], [0.5, 2.5]])
    >>> border = Border(square)
    >>> border.area, border.length
    (4.0, 8.0)
    """

    def __init__(self, polygon: np.ndarray) -> None:
        self.polygon = polygon
        start, end = _edges([polygon])
        self.length = float(np.linalg.norm(end - start, axis=1).sum())
        first, last = _rows_of([polygon])
        self._first = first * _LINES_PER_ROW  # number of the first line
        chords = []
        for row in range(first, last + 1):
            for y in _lines_of(row):
                x, _ = _crossings(start, end, y)
                chords.append(x)
        most = max(len(x) for x in chords) // 2
        # A line with fewer chords than another one gets chords that end before they begin.
        self._left = np.full((len(chords), most), np.inf)
        self._right = np.full((len(chords), most), -np.inf)
        for line, x in enumerate(chords):
            self._left[line, : len(x) // 2] = x[::2]
            self._right[line, : len(x) // 2] = x[1::2]
        self.area = common_area(self, self)

    def lines(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where the chords of some lines begin and end, each of shape (lines, chords)."""
        chosen = slice(first - self._first, last - self._first)
        return self._left[chosen], self._right[chosen]

    @property
    def ends(self) -> tuple[int, int]:
        """Return the number of the first line, and that behind the last line."""
        return self._first, self._first + len(self._left)


def common_area(border: Border, other: Border) -> float:
    """Return the area, in pixels, that lies inside both of two polygons.

    Parameters
    ----------
    border, other : Border
        The polygons. The same polygon twice gives its own area.

    Examples
    --------
    >>> import numpy as np
    >>> square = np.array([[0.5, 0.5], [2.5, 0.5], [2.5, 2.5], [0.5, 2.5]])
    >>> common_area(Border(square), Border(square + 1))
    1.0
    """
    low = np.maximum(border.polygon.min(axis=0), other.polygon.min(axis=0))
    high = np.minimum(border.polygon.max(axis=0), other.polygon.max(axis=0))
    if (low >= high).any():
        return 0.0
    first = max(border.ends[0], other.ends[0])
    last = min(border.ends[1], other.ends[1])
    left, right = border.lines(first, last)
    other_left, other_right = other.lines(first, last)
    begin = np.maximum(left[:, :, None], other_left[:, None, :])
    end = np.minimum(right[:, :, None], other_right[:, None, :])
    return float(np.maximum(end - begin, 0).sum()) / _LINES_PER_ROW


def folded_area(polygon: np.ndarray) -> float:
    """Return the area, in pixels, that a polygon covers twice, or runs around the other way.

    It is 0 for a border that does not cross itself, also where a narrow channel leads to a hole
    (keyhole). It is the smaller loop of a figure of eight, and the whole area of a border that runs
    twice around it.

    Parameters
    ----------
    polygon : ndarray, shape (n, 2)
        Corners in pixel indices (x, y); pixel (i, j) covers i - .5 to i + .5.

    Examples
    --------
    >>> import numpy as np
    >>> square = np.array([[0.5, 0.5], [2.5, 0.5], [2.5, 2.5], [0.5, 2.5]])
    >>> folded_area(square), folded_area(np.concatenate([square, square]))
    (0.0, 4.0)
    """
    start, end = _edges([polygon])
    first, last = _rows_of([polygon])
    once = {1: 0.0, -1: 0.0}
    total = 0.0
    for row in range(first, last + 1):
        for y in _lines_of(row):
            x, turns = _crossings(start, end, y)
            widths = np.diff(x)
            total += float(widths[turns[:-1] != 0].sum())
            for turn in once:
                once[turn] += float(widths[turns[:-1] == turn].sum())
    return (total - max(once.values())) / _LINES_PER_ROW


def _edges(polygons: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the start and the end of every edge, each of shape (n, 2)."""
    start = np.concatenate(polygons)
    end = np.concatenate([np.roll(polygon, -1, axis=0) for polygon in polygons])
    return start, end


def _rows_of(polygons: list[np.ndarray]) -> tuple[int, int]:
    """Return the first and the last row that polygons touch."""
    y = np.concatenate(polygons)[:, 1]
    return int(np.floor(y.min() + 0.5)), int(np.floor(y.max() + 0.5))


def _lines_of(row: int) -> Iterator[float]:
    """Yield the y of each line in a row of pixels."""
    for line in range(_LINES_PER_ROW):
        yield row - 0.5 + (line + 0.5) / _LINES_PER_ROW


def _crossings(start: np.ndarray, end: np.ndarray, y: float) -> tuple[np.ndarray, np.ndarray]:
    """Return where edges cross a line, from left to right, and the winding number behind each."""
    crossed = (start[:, 1] <= y) != (end[:, 1] <= y)
    a = start[crossed]
    b = end[crossed]
    x = a[:, 0] + (y - a[:, 1]) * (b[:, 0] - a[:, 0]) / (b[:, 1] - a[:, 1])
    order = np.argsort(x, kind="stable")
    turns = np.cumsum(np.where(b[:, 1] > a[:, 1], 1, -1)[order])
    return x[order], turns
