"""Fill polygons on a grid of pixels, and find polygons that cover each other or themselves.

All functions look at sixteen lines in each row of pixels. On each line the result is exact.
"""

from collections.abc import Iterator

import numpy as np

_LINES_PER_ROW = 16  # evenly spaced in a row of pixels


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
    n_rows, n_columns = shape
    start, end = _edges(polygons)
    filled = np.zeros(shape)
    first, last = _rows_of(polygons)
    pixel_edges = np.arange(n_columns + 1) - 0.5
    for row in range(max(first, 0), min(last, n_rows - 1) + 1):
        for y in _lines_of(row):
            x, _ = _crossings(start, end, y)
            # The inside lies between the first crossing and the second, the third and the fourth …
            for left, right in zip(x[::2], x[1::2], strict=True):
                # The length of this stretch within each pixel
                filled[row] += np.diff(np.clip(pixel_edges, left, right))
    return (filled / _LINES_PER_ROW).astype(np.float32)


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
        crossings = []  # for each line, where chords begin and end in turn
        for row in range(first, last + 1):
            for y in _lines_of(row):
                x, _ = _crossings(start, end, y)
                crossings.append(x)
        most_chords = max(len(x) for x in crossings) // 2
        # A line with fewer chords than another one gets chords that end before they begin.
        self._left = np.full((len(crossings), most_chords), np.inf)
        self._right = np.full((len(crossings), most_chords), -np.inf)
        for line, x in enumerate(crossings):
            n_chords = len(x) // 2
            self._left[line, :n_chords] = x[::2]
            self._right[line, :n_chords] = x[1::2]
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
    # Polygons whose boxes lie apart have no lines or no stretches in common.
    low = np.maximum(border.polygon.min(axis=0), other.polygon.min(axis=0))
    high = np.minimum(border.polygon.max(axis=0), other.polygon.max(axis=0))
    if (low >= high).any():
        return 0.0
    first = max(border.ends[0], other.ends[0])
    last = min(border.ends[1], other.ends[1])
    left, right = border.lines(first, last)
    other_left, other_right = other.lines(first, last)
    # The stretch that each chord shares with each chord of the other polygon on the same line
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
    # A border runs around its inside once, either way. What it runs around the other way, or more
    # often, is folded.
    covered = 0.0
    covered_once = {1: 0.0, -1: 0.0}  # by the sense in which the border runs around it
    for row in range(first, last + 1):
        for y in _lines_of(row):
            x, winding_numbers = _crossings(start, end, y)
            widths = np.diff(x)
            winding = winding_numbers[:-1]  # of each stretch between two crossings
            covered += float(widths[winding != 0].sum())
            for sense in covered_once:
                covered_once[sense] += float(widths[winding == sense].sum())
    return (covered - max(covered_once.values())) / _LINES_PER_ROW


def _edges(polygons: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the start and the end of every edge, each of shape (n, 2)."""
    start = np.concatenate(polygons)
    end = np.concatenate([np.roll(polygon, -1, axis=0) for polygon in polygons])
    return start, end


def _rows_of(polygons: list[np.ndarray]) -> tuple[int, int]:
    """Return the first and the last row that polygons touch."""
    y = np.concatenate(polygons)[:, 1]
    # Row k reaches from k - .5 to k + .5.
    return int(np.floor(y.min() + 0.5)), int(np.floor(y.max() + 0.5))


def _lines_of(row: int) -> Iterator[float]:
    """Yield the y of each line in a row of pixels."""
    for line in range(_LINES_PER_ROW):
        yield row - 0.5 + (line + 0.5) / _LINES_PER_ROW


def _crossings(start: np.ndarray, end: np.ndarray, y: float) -> tuple[np.ndarray, np.ndarray]:
    """Return where edges cross a line, from left to right, and the winding number behind each."""
    # A corner on the line belongs to one side, so that two edges that meet there count once.
    crosses = (start[:, 1] <= y) != (end[:, 1] <= y)
    x_start, y_start = start[crosses].T
    x_end, y_end = end[crosses].T
    x = x_start + (y - y_start) * (x_end - x_start) / (y_end - y_start)
    order = np.argsort(x, kind="stable")
    # Each edge that runs to larger y adds a turn, each other edge takes one away.
    turns = np.where(y_end > y_start, 1, -1)
    return x[order], np.cumsum(turns[order])
