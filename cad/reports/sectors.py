"""Draw the sector map of the prostate (PI-RADS v2.1: 38 sectors), a region's sector marked.

The drawing is made from :func:`cad.terms.sectors.sector_at`, so that what is drawn is what is
said. Nothing of an anatomical atlas is in it: an ellipse stands for the gland on each level.
"""

from functools import cache

import numpy as np

from cad.reports.images import outline
from cad.terms.sectors import SECTOR_NAMES, SECTORS, sector_at

WIDE, HIGH = 80, 62  # cells of a level; a cell is one drawing unit
GAP = 10


Mark = tuple[str, tuple[float, float]]
"""SVG path of a sector, and the region's centre (the sector's, without a gland mask)."""


@cache
def sector_cells(level: str) -> np.ndarray:
    """Return the name of the sector of every cell of a level, empty outside, shape (HIGH, WIDE).

    Rows run to the back, columns to the patient's left, as on an axial image.
    """
    cells = np.full((HIGH, WIDE), "", dtype="<U16")
    for y, v in enumerate((np.arange(HIGH) + 0.5) / HIGH):
        for x, u in enumerate(2 * (np.arange(WIDE) + 0.5) / WIDE - 1):
            if u**2 + (2 * v - 1) ** 2 < 1:
                side = "left" if u > 0 else "right"
                cells[y, x] = f"{side} {level} {sector_at(u, v, level)}"
    return cells


@cache
def map_lines() -> str:
    """Return the SVG path of all borders, base, mid and apex beside each other."""
    parts = []
    for k, level in enumerate(SECTORS):
        cells = sector_cells(level)
        for name in sorted(set(cells.ravel()) - {""}):
            parts.append(_moved(outline(cells == name), k))
    return "".join(parts)


def mark(sector: str, place: dict[str, float] | None) -> Mark | None:
    """Return what marks a sector such as ``left mid PZpl``; None without one."""
    if sector not in SECTOR_NAMES:
        return None
    level = sector.split(" ")[1]
    k = list(SECTORS).index(level)
    inside = sector_cells(level) == sector
    if place is not None:
        u, v = (min(max(float(place[key]), low), 1.0) for key, low in (("u", -1.0), ("v", 0.0)))
        x, y = (u + 1) / 2 * WIDE, v * HIGH
    else:
        y, x = np.argwhere(inside).mean(axis=0) + 0.5
    return _filled(inside, k), (k * (WIDE + GAP) + float(x), float(y))


def _filled(cells: np.ndarray, k: int) -> str:
    """Return an SVG path that fills cells on the place of the k-th level, a bar for every row."""
    bars = []
    for y, row in enumerate(np.diff(np.pad(cells.astype(np.int8), ((0, 0), (1, 1))), axis=1)):
        for x, end in zip(np.flatnonzero(row > 0), np.flatnonzero(row < 0), strict=True):
            n = end - x
            bars.append(f"M{x + k * (WIDE + GAP)} {y}h{n}v1h{-n}z")
    return "".join(bars)


def _moved(path: str, k: int) -> str:
    """Return an outline on the place of the k-th level."""
    if not path:
        return ""
    moved = []
    for piece in path.split("M")[1:]:
        x, _, rest = piece.partition(" ")
        moved.append(f"M{int(x) + k * (WIDE + GAP)} {rest}")
    return "".join(moved)
