"""Draw the sector map of the prostate (PI-RADS v2.1: 38 sectors), a region's sector marked.

The drawing is made from :func:`cad.base.terms.sectors.sector_at`, so that what is drawn is what is
said. Nothing of an anatomical atlas is in it: an ellipse stands for the gland on each level.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.ndimage import distance_transform_edt

from cad.base.terms.sectors import SECTOR_NAMES, SECTORS, sector_at
from cad.run.reports.images import outline, runs

# cells of a level; a cell is one drawing unit
WIDE = 80
HIGH = 62
GAP = 10


class Mark(NamedTuple):
    """Hold the mark of a region on the sector map, in the drawing units of :func:`map_lines`.

    Parameters
    ----------
    path : str
        SVG path data (``d``) of the sector's area.
    point : (float, float)
        x and y of a point in the sector, as near to the region's centre as a mark has room.
    sector : str
        Name of the sector.
    """

    path: str
    point: tuple[float, float]
    sector: str


_MARK_RADIUS = 4.0
"""A mark whose middle lies so far within its sector, in cells, does not cross its border."""


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
    """Return the mark of a sector.

    Parameters
    ----------
    sector : str
        Such as ``left mid PZpl``; for any other text None is returned.
    place : dict, optional
        ``u`` and ``v`` of the region in the gland; else the mark goes to the sector's middle.
    """
    if sector not in SECTOR_NAMES:
        return None
    level = sector.split(" ")[1]
    inside = sector_cells(level) == sector
    y, x = np.argwhere(inside).mean(axis=0) + 0.5
    if place is not None:
        x = (float(place["u"]) + 1) / 2 * WIDE
        y = float(place["v"]) * HIGH
    bars = [f"M{start} {row}h{n}v1h{-n}z" for row, start, n in runs(_placed(inside, level))]
    point = _within(sector, (_left(level) + float(x), float(y)), [])
    return Mark("".join(bars), point, sector)


def apart(marks: Sequence[Mark]) -> list[Mark]:
    """Return marks of one map, moved within their sectors so that none hides another.

    Parameters
    ----------
    marks : sequence of Mark
        The first keep their places.
    """
    moved: list[Mark] = []
    for one in marks:
        point = _within(one.sector, one.point, [other.point for other in moved])
        moved.append(one._replace(point=point))
    return moved


def _within(
    sector: str, wanted: tuple[float, float], taken: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Return the point of a sector nearest to a wanted one where a mark has room.

    The gland's box reaches beyond its ellipse, and a zone from a table may name a sector beside the
    region's place: the mark stands in the sector that the text names.
    """
    level = sector.split(" ")[1]
    inside = sector_cells(level) == sector
    depth = distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1][inside]
    places = np.argwhere(inside)[:, ::-1] + (_left(level) + 0.5, 0.5)
    roomy = places[depth >= min(_MARK_RADIUS, depth.max())]
    cost = np.linalg.norm(roomy - wanted, axis=1)
    for other in taken:
        distance = np.linalg.norm(roomy - other, axis=1)
        # Nearer than a mark is wide only where the sector has no other place.
        cost = cost + 100.0 * np.clip(2 * _MARK_RADIUS + 1 - distance, 0.0, None)
    x, y = roomy[cost.argmin()]
    return float(x), float(y)


def _left(level: str) -> int:
    """Return where a level's drawing begins."""
    return list(SECTORS).index(level) * (WIDE + GAP)


def _placed(cells: np.ndarray, level: str) -> np.ndarray:
    """Return a level's cells on its place in the whole drawing."""
    return np.pad(cells, ((0, 0), (_left(level), 0)))
