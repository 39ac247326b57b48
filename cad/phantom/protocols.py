"""What the two sites' scanners do: grids, timing, angles and noise."""

from dataclasses import dataclass, replace
from typing import NamedTuple


class Grid(NamedTuple):
    """Hold the voxels of one acquisition.

    Parameters
    ----------
    shape : (n_z, n_y, n_x)
        Number of voxels.
    spacing : (x, y, z)
        mm.
    """

    shape: tuple[int, int, int]
    spacing: tuple[float, float, float]


@dataclass(frozen=True)
class Protocol:
    """Hold one site's examination.

    Parameters
    ----------
    site : str
        Name in ``participants.tsv``.
    t2, adc, dce : Grid
        Grids of the three modalities; flip-angle images lie on the dynamic grid.
    t2_times : (float, float)
        TR and TE, s.
    b_values : (float, float)
        s/mm2.
    dce_times : (float, float)
        TR and interval between frames, s.
    frames : int
        Number of dynamic frames.
    flip : float
        Degrees, dynamic series.
    flips : tuple of float
        Degrees, flip-angle images.
    noise : (float, float, float)
        Standard deviation of the noise relative to the signal of normal PZ: T2, diffusion (b = 0),
        dynamic frames; flip-angle images have half of the last.
    supersample : (z, y, x)
        Points per voxel over which the tissues are averaged.
    texture_half : (x, y, z)
        Half of the extent (mm) after which the tissues' texture repeats.
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


FULL = (
    Protocol(
        "A",
        Grid((20, 208, 208), (0.625, 0.625, 3.6)),
        Grid((20, 72, 80), (2.0, 2.0, 3.6)),
        Grid((20, 96, 104), (1.625, 1.625, 3.6)),
        (4.0, 0.101),
        (50, 800),
        (0.00385, 4.2),
        60,
        12.0,
        (2.0, 5.0, 10.0, 20.0),
        (0.035, 0.028, 0.060),
    ),
    Protocol(
        "B",
        Grid((22, 256, 256), (0.52, 0.52, 3.0)),
        Grid((22, 84, 96), (1.65, 1.65, 3.0)),
        Grid((20, 84, 96), (1.8, 1.8, 3.5)),
        (5.6, 0.090),
        (100, 1000),
        (0.0050, 7.5),
        34,
        15.0,
        (3.0, 8.0, 15.0),
        (0.045, 0.034, 0.055),
    ),
)
"""As clinics have them, with the field of view cut around the prostate."""

SAMPLE = (
    replace(
        FULL[0],
        t2=Grid((13, 112, 112), (1.05, 1.05, 4.4)),
        adc=Grid((13, 40, 44), (2.6, 2.6, 4.4)),
        dce=Grid((13, 40, 56), (2.5, 2.5, 4.4)),
        dce_times=(0.00385, 8.5),
        frames=17,
        noise=(0.030, 0.020, 0.030),
    ),
    replace(
        FULL[1],
        t2=Grid((14, 116, 116), (1.0, 1.0, 4.1)),
        adc=Grid((14, 42, 46), (2.5, 2.5, 4.1)),
        dce=Grid((13, 40, 54), (2.6, 2.6, 4.3)),
        dce_times=(0.0050, 10.0),
        frames=15,
        noise=(0.035, 0.024, 0.028),
    ),
)
"""The same examinations on coarser grids: small enough to travel with the project."""

_LIGHT = replace(
    SAMPLE[0],
    t2=Grid((12, 72, 72), (1.3, 1.3, 4.2)),
    adc=Grid((12, 36, 36), (2.5, 2.5, 4.2)),
    dce=Grid((12, 36, 52), (2.5, 2.5, 4.2)),
    supersample=(1, 2, 2),
    texture_half=(32.0, 32.0, 24.0),
)
LIGHT = (
    replace(_LIGHT, dce_times=(0.00385, 15.0), frames=10, flips=(2.0, 10.0, 20.0)),
    replace(
        SAMPLE[1],
        t2=Grid((12, 72, 72), (1.25, 1.25, 4.2)),
        adc=Grid((12, 36, 36), (2.4, 2.4, 4.2)),
        dce=_LIGHT.dce,
        dce_times=(0.0050, 18.0),
        frames=8,
        supersample=_LIGHT.supersample,
        texture_half=_LIGHT.texture_half,
    ),
)
"""For measuring how a cluster copes with 10,000 studies; too coarse to be looked at."""
