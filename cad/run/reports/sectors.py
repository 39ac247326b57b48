"""Draw the sector map of the prostate (PI-RADS v2.1: 38 sectors), a region's sector marked.

The drawing is made from :func:`cad.base.terms.sectors.sector_at`, so that what is drawn is what is
said. Nothing of an anatomical atlas is in it: an ellipse stands for the gland on each level.
"""

from functools import cache

import numpy as np

from cad.base.terms.sectors import SECTOR_NAMES, SECTORS, sector_at
from cad.run.reports.images import outline, runs

# cells of a level; a cell is one drawing unit
WIDE = 80
HIGH = 62
GAP = 10


Mark = tuple[str, tuple[float, float]]
"""SVG path of a sector, and the region's centre (the sector's, without a gland mask)."""


@cache
def sector_cells(level: str) -> np.ndarray:
    """Return the sector of each cell of a raster, such as ``left mid PZpl``; empty outside.

    Rows run to the back, columns to the patient's left, as on an axial image. The shape is (HIGH,
    WIDE).

    Parameters
    ----------
    level : str
        ``base``, ``mid`` or ``apex``.
    """
    cells = np.full((HIGH, WIDE), "", dtype="<U16")
    for y, v in enumerate((np.arange(HIGH) + 0.5) / HIGH):
        for x, u in enumerate(2 * (np.arange(WIDE) + 0.5) / WIDE - 1):
            if u**2 + (2 * v - 1) ** 2 < 1:
                cells[y, x] = f"{'left' if u > 0 else 'right'} {level} {sector_at(u, v, level)}"
    return cells


@cache
def map_lines() -> str:
    """Return the data (``d``) of one SVG path along all borders of sectors.

    Base, mid and apex lie beside each other; a cell of :func:`sector_cells` is one drawing unit.
    """
    lines = []
    for level in SECTORS:
        cells = sector_cells(level)
        for name in sorted(set(cells.ravel()) - {""}):
            lines.append(outline(_placed(cells == name, level)))
    return "".join(lines)


def mark(sector: str, place: dict[str, float] | None) -> Mark | None:
    """Return the mark of a sector: SVG path data (``d``) of its area, and a point (x, y) in it.

    Both are in the drawing units of :func:`map_lines`.

    Parameters
    ----------
    sector : str
        Such as ``left mid PZpl``; for any other text None is returned.
    place : dict, optional
        ``u`` and ``v`` of the region in the gland, for the point; else it is the sector's middle.
    """
    if sector not in SECTOR_NAMES:
        return None
    level = sector.split(" ")[1]
    inside = sector_cells(level) == sector
    if place is not None:
        u, v = (min(max(float(place[key]), low), 1.0) for key, low in (("u", -1.0), ("v", 0.0)))
        x = (u + 1) / 2 * WIDE
        y = v * HIGH
    else:
        y, x = np.argwhere(inside).mean(axis=0) + 0.5
    bars = [f"M{start} {row}h{n}v1h{-n}z" for row, start, n in runs(_placed(inside, level))]
    return "".join(bars), (_left(level) + float(x), float(y))


def _left(level: str) -> int:
    """Return where a level's drawing begins."""
    return list(SECTORS).index(level) * (WIDE + GAP)


def _placed(cells: np.ndarray, level: str) -> np.ndarray:
    """Return a level's cells on its place in the whole drawing."""
    return np.pad(cells, ((0, 0), (_left(level), 0)))
