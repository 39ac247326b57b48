"""Define the scene that scanners image (shapes, texture, coil), and how a voxel grid samples it.

The gland's frame of coordinates (x to the left, y to the back, z to the head, mm) is also the frame
of the images. ``Placement`` says where this frame lies in the patient. Arrays are in the order
(z, y, x).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.fft import fftfreq, irfftn, next_fast_len, rfftfreq, rfftn

from cad.evidence.phantom import params
from cad.evidence.phantom.protocols import Grid
from cad.evidence.phantom.shapes import Shape, paint
from cad.mri.imaging.volume import Volume, triple

TEXTURE_STEP = 2.0
"""Spacing (mm) of the lattice on which the random fields of texture are drawn."""
BACKGROUND = "fat"


class Placement(NamedTuple):
    """Hold where the gland's coordinate system lies in the patient, and how it is turned.

    Its axes are those of a tilted axial stack of slices.

    Parameters
    ----------
    centre : ndarray, shape (3,)
        The gland's centre in patient coordinates (LPS), mm.
    direction : ndarray, shape (3, 3)
        Columns are the x, y, z axes of the gland's frame in LPS.
    """

    centre: np.ndarray
    direction: np.ndarray


@dataclass(frozen=True)
class Scene:
    """Hold the simulated patient that images are made of: shapes, tissues, texture and coil.

    Parameters
    ----------
    shapes : list of Shape
        Organs, zones and regions, painted in this order over fat: later shapes replace earlier
        shapes.
    tissues : dict of str to Tissue
        Parameters of the tissues, by tissue name.
    placement : Placement
        Frame of the gland in the patient.
    fields : ndarray, shape (4, n_z, n_y, n_x)
        Standard normal random fields for T2, ADC, Ktrans and septa, on a lattice with a step of
        ``TEXTURE_STEP`` mm.
    field_origin : ndarray, shape (3,)
        x, y, z (mm) of the lattice's first point.
    bias : ndarray, shape (5,)
        Coefficients of the log of the coil's sensitivity, for x, y, z, x squared and y squared,
        with coordinates in units of 100 mm.
    gas : (float, float) or None
        Where (y, mm) gas in the rectum begins, and how far (mm) it shifts diffusion images there.
    """

    shapes: list[Shape]
    tissues: dict[str, params.Tissue]
    placement: Placement
    fields: np.ndarray
    field_origin: np.ndarray
    bias: np.ndarray
    gas: tuple[float, float] | None = None

    def table(self) -> list[params.Tissue]:
        """Return a list of tissues: fat first, then the tissue of each of ``shapes`` in order.

        Its indices are the numbers that :func:`paint` gives to the points of a grid.
        """
        return [self.tissues[BACKGROUND], *(self.tissues[shape.tissue] for shape in self.shapes)]


def draw_placement(rng: np.random.Generator) -> Placement:
    """Draw how the stack of slices lies in the patient: tilted back, and slightly rolled.

    Parameters
    ----------
    rng : Generator
        Source of the random draws.

    Returns
    -------
    Placement
        The gland's centre in the patient (mm, LPS), shape (3,), and a rotation matrix of shape (3,
        3), whose columns are the axes of the gland's frame.
    """
    tilt = np.radians(rng.normal(-14, 5))
    roll = np.radians(rng.normal(0, 1.5))
    about_x = np.array(
        [[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]]
    )
    about_z = np.array(
        [[np.cos(roll), -np.sin(roll), 0], [np.sin(roll), np.cos(roll), 0], [0, 0, 1]]
    )
    centre = np.round(np.array([0.0, 20.0, -40.0]) + rng.normal(0, [4, 8, 12]), 2)
    return Placement(centre, about_x @ about_z)


def draw_fields(rng: np.random.Generator, half: tuple[float, float, float]) -> np.ndarray:
    """Draw smooth random fields of unit variance, which make tissue uneven.

    The fields of T2, ADC and Ktrans vary on a short and a long scale and are correlated: Ktrans is
    high where T2 and ADC are low, because dense tissue enhances more. The field of the septa is
    independent. Beyond the box, the fields repeat.

    Parameters
    ----------
    rng : Generator
        Source of the random draws.
    half : tuple of 3 floats
        Half edges along x, y and z of the box that the lattice covers, mm.

    Returns
    -------
    ndarray, shape (4, n_z, n_y, n_x)
        Fields of T2, ADC, Ktrans and septa on a lattice with a step of ``TEXTURE_STEP`` mm.
    """
    # Number of lattice points along z, y and x, rounded up to a number with a fast transform.
    size = []
    for half_edge in half[::-1]:
        points = int(np.ceil(2 * half_edge / TEXTURE_STEP))
        size.append(next_fast_len(points, real=True))

    # The square of the wave number at each frequency. Along x only half of the frequencies are
    # needed, because the fields are real.
    squares = [(2 * np.pi * fftfreq(n, TEXTURE_STEP)) ** 2 for n in size]
    squares[2] = (2 * np.pi * rfftfreq(size[2], TEXTURE_STEP)) ** 2
    k2 = squares[0][:, None, None] + squares[1][:, None] + squares[2]

    def kernel(length: float) -> np.ndarray:
        """Return a filter, in the frequency domain, that smooths white noise over ``length`` mm.

        The filtered noise has the variance of the white noise.
        """
        gaussian = np.exp(-0.5 * k2 * length**2)
        # The sum of squares is over the whole spectrum, of which rfftn computes only one half.
        sum_of_squares = 2 * (gaussian**2).sum() - (gaussian[..., 0] ** 2).sum()
        scale = np.sqrt(np.prod(size) / sum_of_squares)
        return np.asarray((gaussian * scale).astype(np.float32))

    short_length, long_length = params.TEXTURE_MM
    short = kernel(short_length)
    long = kernel(long_length)
    uneven = np.sqrt(1 - params.TEXTURE_LONG) * short + np.sqrt(params.TEXTURE_LONG) * long
    # The fields of the short and of the long length are filtered from the same white noise, so that
    # they are correlated. The variance of their sum is therefore above 1. The sum is divided by the
    # square root of this variance.
    correlation = float((short * long).sum() / np.sqrt((short**2).sum() * (long**2).sum()))
    uneven /= np.sqrt(
        1 + 2 * np.sqrt(params.TEXTURE_LONG * (1 - params.TEXTURE_LONG)) * correlation
    )
    filters = [uneven, uneven, uneven, uneven, kernel(params.SEPTA_MM)]
    noise = rng.standard_normal((5, *size), dtype=np.float32)
    filtered = []
    for white, spectrum in zip(noise, filters, strict=True):
        filtered.append(irfftn(rfftn(white) * spectrum, size))

    # T2, ADC and Ktrans have a field in common, and each has a field of its own. The factors keep
    # the variance at 1.
    t2, adc, ktrans, common, septa = filtered
    common_factor = np.sqrt(params.TEXTURE_COMMON)
    own_factor = np.sqrt(1 - params.TEXTURE_COMMON)
    return np.stack(
        [
            common_factor * common + own_factor * t2,
            common_factor * common + own_factor * adc,
            -common_factor * common + own_factor * ktrans,
            septa,
        ]
    )


def draw_gas(rng: np.random.Generator, front: float | None) -> tuple[float, float] | None:
    """Draw how far gas in the rectum displaces diffusion images; None without gas.

    Parameters
    ----------
    rng : Generator
        Source of the random draws.
    front : float or None
        y in mm at which the gas begins; None where there is no gas.

    Returns
    -------
    (float, float) or None
        ``front``, and the displacement along y (mm) at this place. The direction of the phase
        encoding, which is drawn, decides the sign of the displacement.
    """
    # The shift at the wall follows from the drawn shift averaged over the gland.
    shift = float(rng.normal(*params.DISTORTION_MM)) / params.DISTORTION_MEAN
    if front is None:
        return None
    direction = float(rng.choice([-1, 1]))
    return front, max(shift, 0.0) * direction


class View:
    """Sample a scene on one grid: where the grid's voxels are, and which tissues they hold.

    Parameters
    ----------
    scene : Scene
        The simulated patient that the grid samples.
    grid : Grid
        Number and size of the voxels.
    shift : ndarray, shape (3,)
        Centre of the grid in the gland's frame, mm: x, y, z.
    moved : ndarray, shape (3,)
        How far the patient moved before this acquisition, mm: x, y, z.
    supersample : (z, y, x)
        Number of sampling points in a voxel along each axis; values are averaged over them.
    """

    def __init__(
        self,
        scene: Scene,
        grid: Grid,
        shift: np.ndarray,
        moved: np.ndarray,
        supersample: tuple[int, int, int],
    ) -> None:
        self.scene = scene
        self.grid = grid
        self.supersample = supersample
        # Coordinates of the voxels along x, y and z, mm: where they are in the frame of the images
        # (``axes``), and which places of the patient are there after he has moved (``seen``).
        counts = grid.shape[::-1]
        self.axes = []
        self.seen = []
        for count, step, offset, move in zip(counts, grid.spacing, shift, moved, strict=True):
            axis = (np.arange(count) - (count - 1) / 2) * step + offset
            self.axes.append(axis)
            self.seen.append(axis - move)

    @cached_property
    def points(self) -> np.ndarray:
        """Return the number of the shape at every sampling point: 0 is fat, i + 1 is ``shapes[i]``.

        The result is uint8 with shape (points per voxel, n_voxels); voxels are in the C order of
        the grid.
        """
        counts = self.supersample[::-1]
        lattice = []
        for axis, step, count in zip(self.seen, self.grid.spacing, counts, strict=True):
            # Places of the sampling points in a voxel, relative to its centre, as shares of its
            # width.
            places = (np.arange(count) + 0.5) / count - 0.5
            lattice.append((axis[:, None] + places * step).ravel())
        numbers = paint(self.scene.shapes, *lattice)
        # Each axis of the fine grid is divided into voxels and points within a voxel. The points of
        # a voxel then come first, and the voxels last.
        z, y, x = self.supersample
        n_z, n_y, n_x = self.grid.shape
        divided = numbers.reshape(n_z, z, n_y, y, n_x, x)
        points_first = divided.transpose(1, 3, 5, 0, 2, 4)
        return points_first.reshape(z * y * x, n_z * n_y * n_x)

    def voxel_shares(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the tissues of each voxel as three arrays with one entry per voxel and tissue.

        The arrays hold the flat voxel index, the shape number, and the share (0 to 1) of the voxel
        that the shape fills.
        """
        # Most voxels lie wholly in one shape, and have one entry with a share of 1.
        in_one_shape = (self.points == self.points[0]).all(axis=0)
        whole = np.flatnonzero(in_one_shape)
        mixed = np.flatnonzero(~in_one_shape)

        # The points of the other voxels are counted by pairs of voxel and shape. A pair has the
        # number: index of the mixed voxel times the number of shapes, plus the shape.
        n_shapes = len(self.scene.shapes) + 1
        pairs = np.arange(len(mixed)) * n_shapes + self.points[:, mixed]
        counts = np.bincount(pairs.ravel(), minlength=len(mixed) * n_shapes)
        shares = counts / len(self.points)
        filled_pairs = np.flatnonzero(shares)

        voxel = np.concatenate([whole, mixed[filled_pairs // n_shapes]])
        number_in_whole = self.points[0, whole].astype(np.int64)
        number = np.concatenate([number_in_whole, filled_pairs % n_shapes])
        share = np.concatenate([np.ones(len(whole)), shares[filled_pairs]])
        return voxel, number, share

    def volume(self, array: np.ndarray) -> Volume:
        """Return an array of the grid's shape as a volume with its place in the patient (LPS)."""
        corner = np.array([axis[0] for axis in self.axes])
        placement = self.scene.placement
        origin = placement.centre + placement.direction @ corner
        return Volume(array, self.grid.spacing, triple(origin), placement.direction)

    def average(self, values: np.ndarray) -> np.ndarray:
        """Return the mean of a property over each voxel's sampling points: float32, (z, y, x).

        ``values`` holds the property of each shape, indexed by shape number (0 is fat).
        """
        mean: np.ndarray = values.astype(np.float32)[self.points].mean(axis=0)
        return mean.reshape(self.grid.shape)

    def share(self, numbers: list[int]) -> np.ndarray:
        """Return the share (0 to 1) of each voxel that some of the shapes fill together: (z, y, x).

        ``numbers`` are shape numbers: 0 is fat, i + 1 is ``shapes[i]`` of the scene.
        """
        is_counted = np.zeros(len(self.scene.shapes) + 1, np.float32)
        is_counted[numbers] = 1.0
        return self.average(is_counted)

    def field(self, which: int) -> np.ndarray:
        """Return one of the scene's random fields, interpolated at the voxels: (z, y, x).

        ``which`` is 0 for T2, 1 for ADC, 2 for Ktrans and 3 for septa.
        """
        lattice = self.scene.fields[which]
        x_origin, y_origin, z_origin = self.scene.field_origin
        n_z, n_y, n_x = lattice.shape
        x_weights = _linear_weights(self.seen[0], x_origin, n_x)
        y_weights = _linear_weights(self.seen[1], y_origin, n_y)
        z_weights = _linear_weights(self.seen[2], z_origin, n_z)
        # One axis after the other; tensordot puts the new axis first or last.
        along_z = np.tensordot(z_weights, lattice, axes=(1, 0))
        along_y = np.moveaxis(np.tensordot(y_weights, along_z, axes=(1, 1)), 0, 1)
        return np.tensordot(along_y, x_weights, axes=(2, 1))

    def septa(self) -> np.ndarray:
        """Return which share of each voxel is septa (thin fibrous walls), less the mean share.

        The result has shape (z, y, x). The share is about 0 to 1. Its mean is subtracted, because a
        tissue's parameters are means over gland and septa. The result is therefore negative between
        septa.

        A septum lies where a random field is near 0. If the field is smooth over a length s, its
        slope along an axis is 1 / (s sqrt 2). By this slope, the thickness of the septum (mm) is
        turned into a range of field values. In a large voxel this range is wider, and the septum is
        fainter by the same factor.
        """
        # Ranges of field values: of the septum itself, and of the septum within a voxel.
        slope = 1.0 / (params.SEPTA_MM * np.sqrt(2.0))
        septum_range = slope * np.sqrt(3.0) * params.SEPTUM_HALF_MM
        # Within a voxel, places have a variance of a twelfth of its squared size along each axis.
        squared_size = sum(step**2 for step in self.grid.spacing)
        voxel_range = np.sqrt(septum_range**2 + slope**2 * squared_size / 12.0)
        # The mean of the Gaussian below over all values of a standard normal field.
        mean = voxel_range / np.sqrt(1.0 + voxel_range**2)
        nearness = np.exp(-0.5 * (self.field(3) / voxel_range) ** 2)
        return np.asarray(septum_range / voxel_range * (nearness - mean))

    def distortion(self) -> np.ndarray | None:
        """Return how far gas shifts each voxel in diffusion images, mm along y, shape (z, y, x).

        The result is None for a scene without gas.
        """
        if self.scene.gas is None:
            return None
        front, shift = self.scene.gas
        y = self.seen[1]
        x = self.seen[0]
        # The shift fades with the distance from the gas, along y and to both sides along x.
        along_y = np.exp(-np.abs(y - front) / params.DISTORTION_DEPTH_MM)
        along_x = np.exp(-0.5 * (x / params.DISTORTION_DEPTH_MM) ** 2)
        in_slice = shift * along_y[:, None] * along_x
        return np.broadcast_to(in_slice, self.grid.shape)

    def sensitivity(self) -> np.ndarray:
        """Return the coil's sensitivity at each voxel, (z, y, x): about 1 at the gland."""
        x, y, z = (axis / 100.0 for axis in self.axes)
        by_x, by_y, by_z, by_x_squared, by_y_squared = self.scene.bias
        log_sensitivity = (
            (by_x * x + by_x_squared * x**2)[None, None, :]
            + (by_y * y + by_y_squared * y**2)[None, :, None]
            + (by_z * z)[:, None, None]
        )
        return np.asarray(np.exp(log_sensitivity).astype(np.float32))


def _linear_weights(axis: np.ndarray, origin: float, size: int) -> np.ndarray:
    """Return weights, shape (n_axis, size), for linear interpolation on a lattice that repeats."""
    position = (axis - origin) / TEXTURE_STEP  # in steps of the lattice
    lower = np.floor(position).astype(int)
    fraction = (position - lower).astype(np.float32)
    weights = np.zeros((len(axis), size), np.float32)
    rows = np.arange(len(axis))
    # The remainder (%) lets the lattice begin again beyond its end.
    weights[rows, lower % size] += 1.0 - fraction
    weights[rows, (lower + 1) % size] += fraction
    return weights
