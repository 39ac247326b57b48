"""Outlines of a mask's slices in the pixel coordinates of their images (DICOM SCOORD)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import binary_fill_holes
from skimage.measure import find_contours

_EIGHT_NEIGHBOURS = np.ones((3, 3), bool)


@dataclass(frozen=True)
class Outline:
    """Hold one closed line around a part of a region.

    Parameters
    ----------
    z : int
        Slice of the mask.
    points : ndarray, shape (n, 2)
        Column and row; (0, 0) is the upper left corner of the image, (.5, .5) the centre of its
        first pixel (PS3.3 C.18.6). The last point is the first.
    """

    z: int
    points: np.ndarray

    @property
    def area(self) -> float:
        """Return what it encloses, in pixels."""
        x, y = self.points.T
        return float(abs(x[:-1] @ y[1:] - x[1:] @ y[:-1]) / 2)


def outlines(mask: np.ndarray) -> list[Outline]:
    """Return the lines around every part of a mask, the largest first.

    They run half-way between the centres of pixels inside and outside, so that the pixels whose
    centres a line encloses are those of the mask. Holes have no line: a list of closed lines cannot
    say that one is cut out of another.

    Parameters
    ----------
    mask : ndarray of bool, shape (n_z, n_y, n_x)
        The region.
    """
    found = [
        # The margin of one pixel closes lines at the image's edge.
        Outline(int(z), line[:, ::-1] - 0.5)
        for z in np.flatnonzero(mask.any(axis=(1, 2)))
        for line in find_contours(np.pad(binary_fill_holes(mask[z], _EIGHT_NEIGHBOURS), 1), 0.5)
    ]
    return sorted(found, key=lambda outline: -outline.area)
