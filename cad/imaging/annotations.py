"""Regions drawn in DICOM: SEG objects and RT structure sets, brought onto an image's grid."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cad.errors import CadError
from cad.imaging.volume import Volume


@dataclass(frozen=True, eq=False)
class Region:
    """One segment or structure: its name in the object and its voxels on the grid.

    Parameters
    ----------
    name : str
        SegmentLabel or ROIName.
    mask : ndarray of bool, shape of the grid
        Its voxels.
    file : Path
        The object.
    """

    name: str
    mask: np.ndarray
    file: Path


def read_annotations(path: Path, grid: Volume, frame_uid: str) -> tuple[list[Region], list[str]]:
    raise CadError("not yet", file=path)
