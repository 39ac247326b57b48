"""Draw the sector map of the prostate (PI-RADS v2.1: 38 sectors) and mark regions' sectors on it.

Borders between sectors are computed by the same function that names the sector of a region in a
text (:func:`cad.base.terms.sectors.sector_at`), so that map and text agree. The map is no
anatomical atlas: on each level an ellipse stands for the gland.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.ndimage import distance_transform_edt

from cad.base.terms.sectors import SECTOR_NAMES, SECTORS, sector_at
from cad.run.reports.images import outline, runs

# Size of the drawing of one level (base, mid or apex) in cells of a raster: columns, rows, and
# empty columns between two levels. One cell is one drawing unit.
WIDE = 80
HIGH = 62
GAP = 10


class Mark(NamedTuple):
    """Hold the mark of a region on the sector map, in the drawing units of :func:`map_lines`.

    Parameters
    ----------
    path : str
        Attribute ``d`` of an SVG path that fills the sector.
    point : (float, float)
        x and y of the mark: of the points at which a mark has room in the sector, the one nearest
        to the region's centre.
    sector : str
        Name of the sector.
    """

    path: str
    point: tuple[float, float]
    sector: str


_MARK_RADIUS = 4.0
"""Distance from the sector's border, in cells, at which a mark no longer crosses the border."""


@cache
def sector_cells(level: str) -> np.ndarray:
    """Return the sector of each cell of a level, such as ``left mid PZpl``; empty outside of it.

    Rows run to the back, columns to the patient's left, as on an axial image. The shape is (HIGH,
    WIDE).

    Parameters
    ----------
    level : str
        ``base``, ``mid`` or ``apex``.

    Examples
    --------
    >>> cells = sector_cells("mid")
    >>> cells.shape, str(cells[50, 70])
    ((62, 80), 'left mid PZpl')
    """
    cells = np.full((HIGH, WIDE), "", dtype="<U16")
    # The middle of each cell in the gland: u runs from -1 (right) to 1 (left), v from 0 (front) to
    # 1 (back).
    us = 2 * (np.arange(WIDE) + 0.5) / WIDE - 1
    vs = (np.arange(HIGH) + 0.5) / HIGH
    for y, v in enumerate(vs):
        for x, u in enumerate(us):
            in_ellipse = u**2 + (2 * v - 1) ** 2 < 1
            if in_ellipse:
                side = "left" if u > 0 else "right"
                cells[y, x] = f"{side} {level} {sector_at(u, v, level)}"
    return cells


@cache
def map_lines() -> str:
    """Return the attribute ``d`` of one SVG path along all borders of sectors.

    Base, mid and apex are drawn beside each other. A cell of :func:`sector_cells` is one drawing
    unit.
    """
    lines = []
    for level in SECTORS:
        cells = sector_cells(level)
        for name in sorted(set(cells.ravel()) - {""}):
            lines.append(outline(_shifted_cells(cells == name, level)))
    return "".join(lines)


def mark(sector: str, place: dict[str, float] | None) -> Mark | None:
    """Return the mark of a region's sector; None for a text that names no sector.

    Parameters
    ----------
    sector : str
        Name of the sector, such as ``left mid PZpl``.
    place : dict, optional
        Coordinates ``u`` and ``v`` of the region in the gland
        (:func:`cad.base.terms.sectors.sector_at`). Without them the mark goes to the middle of the
        sector.

    Examples
    --------
    >>> mark("left mid PZpl", None).sector, mark("left", None)
    ('left mid PZpl', None)
    """
    if sector not in SECTOR_NAMES:
        return None
    level = sector.split(" ")[1]  # the sectors are called such as "left mid PZpl"
    inside = sector_cells(level) == sector
    if place is not None:
        x = (float(place["u"]) + 1) / 2 * WIDE
        y = float(place["v"]) * HIGH
    else:
        y, x = np.argwhere(inside).mean(axis=0) + 0.5
    # The sector is filled by bars of one cell's height.
    bars = []
    for row, start, length in runs(_shifted_cells(inside, level)):
        bars.append(f"M{start} {row}h{length}v1h{-length}z")
    point = _within(sector, (_left(level) + float(x), float(y)), taken=[])
    return Mark(path="".join(bars), point=point, sector=sector)


def apart(marks: Sequence[Mark]) -> list[Mark]:
    """Return marks of one map, moved within their sectors so that none hides another.

    Parameters
    ----------
    marks : sequence of Mark
        Marks. Each is moved only where it would hide an earlier one.

    Examples
    --------
    Two regions lie in the middle of one sector:

    >>> region = mark("left mid PZpl", None)
    >>> first, second = apart([region, region])
    >>> first.point == region.point, second.point == region.point
    (True, False)
    """
    moved: list[Mark] = []
    taken: list[tuple[float, float]] = []
    for mark_of_region in marks:
        point = _within(mark_of_region.sector, mark_of_region.point, taken)
        moved.append(mark_of_region._replace(point=point))
        taken.append(point)
    return moved


def _within(
    sector: str, wanted: tuple[float, float], taken: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Return the point nearest to a wanted point at which a mark has room in a sector.

    The wanted point may lie outside the sector for two reasons. The ellipse that stands for the
    gland is smaller than the gland's box, and a table may name another sector than the one at the
    region's position.
    """
    # Distance of each cell of the sector from the sector's border, in cells. The rim of empty cells
    # lets the edge of the map count as border, too.
    level = sector.split(" ")[1]
    inside = sector_cells(level) == sector
    distance_from_border = distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1][inside]
    # x and y of the middle of each cell of the sector, on the map of all levels.
    rows_and_columns = np.argwhere(inside)
    places = rows_and_columns[:, ::-1] + (_left(level) + 0.5, 0.5)
    # A sector that is too narrow for a mark gets it where it is widest.
    needed = min(_MARK_RADIUS, distance_from_border.max())
    roomy = places[distance_from_border >= needed]
    cost = np.linalg.norm(roomy - wanted, axis=1)
    for point in taken:
        distance = np.linalg.norm(roomy - point, axis=1)
        # A place where the mark would overlap an earlier mark gets a penalty. The penalty is so
        # high that marks overlap only if the sector has no other room.
        cost = cost + 100.0 * np.clip(2 * _MARK_RADIUS + 1 - distance, 0.0, None)
    x, y = roomy[cost.argmin()]
    return float(x), float(y)


def _left(level: str) -> int:
    """Return the column of the sector map at which a level (base, mid or apex) begins."""
    return list(SECTORS).index(level) * (WIDE + GAP)


def _shifted_cells(cells: np.ndarray, level: str) -> np.ndarray:
    """Return the cells of a level with empty columns before them.

    In the drawing of all levels, as many columns stand before this level (:func:`_left`).
    """
    return np.pad(cells, ((0, 0), (_left(level), 0)))
