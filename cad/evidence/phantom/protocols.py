"""Define how the scanners of the two simulated sites image: grids, timing, angles and noise."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from cad.base.terms.beside import table_beside


class Grid(NamedTuple):
    """Hold the voxels of one acquisition.

    Parameters
    ----------
    shape : (n_z, n_y, n_x)
        Number of voxels along z, y and x.
    spacing : (x, y, z)
        Voxel size along x, y and z, mm.
    """

    shape: tuple[int, int, int]
    spacing: tuple[float, float, float]


@dataclass(frozen=True)
class SiteProtocol:
    """Hold one site's examination.

    Parameters
    ----------
    site : str
        Name of the site, as in ``participants.tsv``.
    t2, adc, dce : Grid
        Grids of the three modalities; flip-angle images lie on the dynamic grid.
    t2_times : (float, float)
        Repetition time TR and echo time TE of the T2 image, s.
    b_values : (float, float)
        The two b-values of the diffusion images, s/mm2.
    dce_times : (float, float)
        Repetition time TR and interval between frames of the dynamic series, s.
    frames : int
        Number of dynamic frames.
    flip : float
        Flip angle of the dynamic series, degrees.
    flips : tuple of float
        Flip angles of the images from which T1 is measured, degrees.
    noise : (float, float, float)
        Standard deviation of the noise in T2, in diffusion (b = 0) and in dynamic frames, each
        relative to the signal of the normal peripheral zone (PZ). Flip-angle images have half of
        the noise of dynamic frames.
    supersample : (z, y, x)
        Points per voxel over which the tissues are averaged.
    texture_half : (x, y, z)
        Half edges (mm) of the box beyond which the tissues' texture repeats.
    """

    site: str
    t2: Grid
    adc: Grid
    dce: Grid
    t2_times: tuple[float, float]
    b_values: tuple[float, float]
    dce_times: tuple[float, float]
    frames: int
    flip: float
    flips: tuple[float, ...]
    noise: tuple[float, float, float]
    supersample: tuple[int, int, int] = (2, 2, 2)
    texture_half: tuple[float, float, float] = (100.0, 90.0, 50.0)


def _protocol_of(row: dict[str, Any]) -> SiteProtocol:
    """Return the protocol of a row of the table, whose lists become tuples and grids."""
    fields: dict[str, Any] = {}
    for name, value in row.items():
        fields[name] = tuple(value) if isinstance(value, list) else value
    for name in ("t2", "adc", "dce"):
        shape, spacing = fields[name]
        fields[name] = Grid(tuple(shape), tuple(spacing))
    return SiteProtocol(**fields)


_TABLES = table_beside(__file__)
FULL, SAMPLE, LIGHT = (
    tuple(map(_protocol_of, _TABLES[name])) for name in ("full", "sample", "light")
)
"""Protocols of both sites, in three sets: as in clinics; with few voxels, for the sample data; and
very coarse, for benchmarks.
"""
