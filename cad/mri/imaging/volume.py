"""Define the one type of volume: voxels with their place in the patient."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import SimpleITK as sitk

from cad.base.errors import CadError

GEOMETRY_TOLERANCE_MM = 0.1
ORTHONORMAL_TOLERANCE = 1e-4
LARGEST_MM = 1e6
"""Largest number, in mm, that is taken for a place or a step; a patient is a few metres long."""
CORNERS = np.array(list(itertools.product((0, 1), repeat=3)), float)
"""The corners (x, y, z) of a unit cube, shape (8, 3)."""
# An axis can be the one across the slices only if its voxel size is at least this share of the
# largest voxel size.
_THICK = 0.8


def triple(values: np.ndarray) -> tuple[float, float, float]:
    """Return an array of three numbers, shape (3,), as a tuple of Python floats.

    Examples
    --------
    >>> import numpy as np
    >>> triple(np.array([1, 2, 3]))
    (1.0, 2.0, 3.0)
    """
    x, y, z = map(float, values)
    return x, y, z


@dataclass(frozen=True, eq=False)
class Volume:
    """Hold a 3-D image with the place of its voxels in the patient; its axes may be tilted.

    Parameters
    ----------
    array : ndarray, shape (n_z, n_y, n_x)
        Voxel values. Array axes run z, y, x as in SimpleITK and in a stack of DICOM slices.
    spacing : tuple of 3 floats
        Voxel size in mm along x, y, z.
    origin : tuple of 3 floats
        Centre of voxel (0, 0, 0) in the patient, mm to his left, back and head (LPS).
    direction : ndarray, shape (3, 3)
        Columns are the unit vectors of the x, y and z voxel axes in LPS: left, back, head.
    unit : str
        Unit of the values as their source states it; empty where the source states none.
    """

    array: np.ndarray
    spacing: tuple[float, float, float]
    origin: tuple[float, float, float]
    direction: np.ndarray
    unit: str = ""

    def __post_init__(self) -> None:
        """Refuse an array without three axes, and a place that no image can have."""
        if self.array.ndim != 3:
            raise CadError(f"a volume has 3 axes (z, y, x), found shape {self.array.shape}")
        # The conditions are written with "not", so that a number that is NaN is refused as well.
        if not all(0 < step <= LARGEST_MM for step in self.spacing):
            raise CadError(
                f"voxel spacing must be positive and at most {LARGEST_MM:g}, found {self.spacing} "
                "mm"
            )
        if not all(abs(place) <= LARGEST_MM for place in self.origin):
            raise CadError(
                f"the first voxel must lie within {LARGEST_MM:g} mm, found {self.origin} mm"
            )
        direction = np.asarray(self.direction, float)
        error = float(np.abs(direction.T @ direction - np.eye(3)).max())
        if not error <= ORTHONORMAL_TOLERANCE:
            raise CadError(
                f"direction cosines are not orthonormal (largest error {error:.2g}, "
                f"allowed {ORTHONORMAL_TOLERANCE:g})",
                hint="re-export the series; sheared or gantry-tilted grids are not supported",
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the number of voxels along z, y, x."""
        return self.array.shape

    @property
    def affine(self) -> np.ndarray:
        """Return the 4 x 4 matrix from a voxel index (x, y, z, 1) to a place in the patient (LPS,
        mm).
        """
        matrix = np.eye(4)
        matrix[:3, :3] = np.asarray(self.direction) * np.asarray(self.spacing)
        matrix[:3, 3] = self.origin
        return matrix

    @property
    def centre(self) -> np.ndarray:
        """Return the place of the middle of the grid in the patient (LPS, mm), shape (3,)."""
        return self.index_to_patient((np.array(self.shape[::-1]) - 1) / 2)

    @property
    def millilitres(self) -> float:
        """Return the volume (mL) of the voxels that are not zero."""
        return float(np.count_nonzero(self.array)) * float(np.prod(self.spacing)) / 1000.0

    def with_array(self, array: np.ndarray) -> Volume:
        """Return a volume with other values on this grid; boolean values lose the unit."""
        return replace(self, array=array, unit="" if array.dtype == bool else self.unit)

    def beginning_at(self, array: np.ndarray, first: np.ndarray) -> Volume:
        """Return an array as a volume whose voxels have this volume's size and directions.

        Parameters
        ----------
        array : ndarray, shape (n_z, n_y, n_x)
            Values of the new volume; the shape may differ from that of this volume.
        first : ndarray, shape (3,)
            Place of the array's first voxel, as an index (x, y, z) in this grid; the place may lie
            outside the grid.
        """
        return replace(
            self, array=array, origin=triple(self.index_to_patient(np.asarray(first, float)))
        )

    def outer_corners(self) -> np.ndarray:
        """Return the places of the grid's eight outer corners in the patient (LPS, mm), shape (8,
        3).
        """
        return self.index_to_patient(CORNERS * np.array(self.shape[::-1]) - 0.5)

    def same_grid(self, other: Volume) -> bool:
        """Tell whether the eight corners of both grids coincide within a tenth of a mm."""
        if self.shape != other.shape:
            return False
        corners = np.ones((8, 4))
        corners[:, :3] = CORNERS * (np.array(self.shape[::-1]) - 1)
        gaps_mm = (self.affine - other.affine) @ corners.T
        return bool(np.abs(gaps_mm).max() <= GEOMETRY_TOLERANCE_MM)

    def upright(self) -> Volume:
        """Return the same voxels with their axes in the order in which a radiologist reads slices.

        Voxels are reordered, never interpolated. The axis z crosses the slices: of the axes whose
        voxel size is at least 0.8 of the largest, it is the one nearest to the line from head to
        feet. The axis x runs to the patient's left, in sagittal slices to his back. The axis y runs
        to his back in axial slices, in other slices to his feet. The sense of z makes the axes
        right-handed.
        """
        step = np.array(self.spacing)
        axes = np.asarray(self.direction, float)
        # For each axis of the grid, how far it runs along the patient's three axes, in either sense
        leftwards, _, headwards = np.abs(axes)

        # Which axis becomes z, and which of the other two x and y. Of these two, x is rather the
        # one from side to side, and y rather the one from head to feet.
        is_thick = step >= _THICK * step.max()
        z = int(np.argmax(np.where(is_thick, headwards, -1.0)))
        first, second = (axis for axis in range(3) if axis != z)
        if leftwards[first] + headwards[second] >= leftwards[second] + headwards[first]:
            x, y = first, second
        else:
            x, y = second, first

        # In which sense they run: to the left, the back or the feet, by the patient's axis that is
        # nearest to each. Axis 2 of the patient runs to the head.
        nearest_to_x = int(np.argmax(np.abs(axes[:, x])))
        nearest_to_y = int(np.argmax(np.abs(axes[:, y])))
        sense_of_x = np.sign(axes[nearest_to_x, x])
        sense_of_y = np.sign(axes[nearest_to_y, y]) * (-1.0 if nearest_to_y == 2 else 1.0)
        turned = axes[:, [x, y, z]] * np.array([sense_of_x, sense_of_y, 1.0])
        turned[:, 2] *= np.sign(np.linalg.det(turned))
        return self.turned(turned)

    def turned(self, direction: np.ndarray) -> Volume:
        """Return the same voxels, with axes reordered and flipped so that they lie nearest to
        wanted axes.

        Parameters
        ----------
        direction : ndarray, shape (3, 3)
            Columns are the wanted x, y and z axes in LPS. No two of them may be nearest to the same
            axis of this volume.
        """
        # Rows are the wanted axes, columns the axes of this volume.
        cosine = np.asarray(direction, float).T @ np.asarray(self.direction, float)
        # ``order`` has, for each wanted axis, the number of the nearest axis of this volume.
        order = [int(old) for old in np.abs(cosine).argmax(axis=1)]
        flipped = [cosine[new, old] < 0 for new, old in enumerate(order)]
        if order == [0, 1, 2] and not any(flipped):
            return self
        # The new volume begins at that corner of this volume where its axes begin: x, y, z index.
        # ``steps`` has one number for each new axis. The axes of the array are z, y, x, so axis k
        # of x, y, z is axis 2 - k of the array.
        corner = np.zeros(3)
        steps = []
        for old, is_flipped in zip(order, flipped, strict=True):
            if is_flipped:
                corner[old] = self.shape[2 - old] - 1.0
            steps.append(-1 if is_flipped else 1)
        x, y, z = order
        array = self.array.transpose([2 - z, 2 - y, 2 - x])
        array = array[:: steps[2], :: steps[1], :: steps[0]]
        return replace(
            self,
            array=np.ascontiguousarray(array),
            spacing=triple(np.array(self.spacing)[order]),
            origin=triple(self.index_to_patient(corner)),
            direction=np.asarray(self.direction)[:, order] * np.where(flipped, -1.0, 1.0),
        )

    def index_to_patient(self, index_xyz: np.ndarray) -> np.ndarray:
        """Return the places of voxel indices in the patient: mm to his left, back and head (LPS).

        ``index_xyz`` and the result have shape (..., 3); an index may be a fraction.
        """
        points: np.ndarray = np.asarray(index_xyz) @ self.affine[:3, :3].T + self.affine[:3, 3]
        return points

    def patient_to_index(self, point_lps: np.ndarray) -> np.ndarray:
        """Return voxel indices (x, y, z; not rounded) of places in the patient (LPS, mm), shape
        (..., 3).
        """
        inverse = np.linalg.inv(self.affine)
        return np.asarray(point_lps) @ inverse[:3, :3].T + inverse[:3, 3]

    def to_sitk(self) -> sitk.Image:
        """Return the same volume as a SimpleITK image (boolean masks become uint8)."""
        array = self.array.astype(np.uint8) if self.array.dtype == bool else self.array
        image = sitk.GetImageFromArray(np.ascontiguousarray(array))
        image.SetSpacing([float(step) for step in self.spacing])
        image.SetOrigin([float(coordinate) for coordinate in self.origin])
        image.SetDirection([float(cosine) for cosine in np.asarray(self.direction).ravel()])
        return image

    @classmethod
    def from_sitk(cls, image: sitk.Image) -> Volume:
        """Return the volume of a 3-D SimpleITK image."""
        return cls(
            array=sitk.GetArrayFromImage(image),
            spacing=tuple(image.GetSpacing()),
            origin=tuple(image.GetOrigin()),
            direction=np.array(image.GetDirection()).reshape(3, 3),
        )


@dataclass(frozen=True, eq=False)
class Dynamic:
    """Hold a dynamic contrast-enhanced series: one grid, many times.

    Parameters
    ----------
    frames : ndarray, shape (n_times, n_z, n_y, n_x)
        Signal, arbitrary units.
    grid : Volume
        The first frame; it carries the geometry.
    times : ndarray, shape (n_times,)
        Seconds from the first frame, strictly increasing.
    repetition_time : float or None
        Seconds.
    flip_angle : float or None
        Degrees.
    """

    frames: np.ndarray
    grid: Volume
    times: np.ndarray
    repetition_time: float | None = None
    flip_angle: float | None = None

    def __post_init__(self) -> None:
        """Refuse frames and times that do not fit each other, or times that do not increase."""
        if self.frames.ndim != 4 or self.frames.shape[1:] != self.grid.shape:
            raise CadError(
                f"dynamic frames have shape {self.frames.shape}, the grid {self.grid.shape}"
            )
        if len(self.times) != len(self.frames):
            raise CadError(f"{len(self.frames)} dynamic frames but {len(self.times)} times")
        steps = np.diff(self.times)
        if steps.size and not (steps > 0).all():
            frame = int(np.argmin(steps > 0))  # the first whose next frame is not later
            raise CadError(
                f"dynamic times must increase; frame {frame} is at {self.times[frame]:g} s and "
                f"frame {frame + 1} at {self.times[frame + 1]:g} s",
                hint="check VolumeTiming in the JSON sidecar or the import rule's clock",
            )
