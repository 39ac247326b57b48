"""Define solids with wavy surfaces, of which the simulated pelvis is made.

Coordinates are in mm in the gland's frame: x to the left, y to the back, z to the head.
"""

from dataclasses import dataclass, field

import numpy as np

# A ripple of a shape's surface: amplitude relative to the radius, wave vector (radians per mm along
# x, y and z), and phase (radians).
Wave = tuple[float, tuple[float, float, float], float]


@dataclass(frozen=True)
class Shape:
    """Describe a wavy super-ellipsoid.

    Parameters
    ----------
    tissue : str
        Name of the tissue that fills the shape.
    centre, axes : tuple of 3 floats
        Centre and semi-axes along x, y and z, mm.
    zone : str
        Part of the gland that the shape belongs to; empty outside the gland.
    within : tuple of str
        Zones that the shape may replace; it is not painted outside these zones. Empty for no limit.
    angle : float
        Rotation about z, radians.
    waves : tuple of (amplitude, wave vector, phase)
        Ripples of the surface: amplitude relative to the radius, wave vector in radians per mm,
        phase in radians.
    power : float
        Exponent of the surface: 2 is an ellipsoid, and larger values are closer to a box.
    back : float
        Factor on the y axis behind the centre (a flatter or fuller back).
    taper : float
        How much the shape is narrower at its lower end than in its middle, as a share of its width:
        the gland's apex.
    """

    tissue: str
    centre: tuple[float, float, float]
    axes: tuple[float, float, float]
    zone: str = ""
    within: tuple[str, ...] = ()
    angle: float = 0.0
    waves: tuple[Wave, ...] = field(default=())
    power: float = 2.0
    back: float = 1.0
    taper: float = 0.0

    def level(self, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        """Return a level at each point: below 1 inside the shape, 1 on its surface, above outside.

        Coordinates are in mm, in the gland's frame; the three arrays broadcast.
        """
        # Distances from the centre, along the shape's own axes, in units of its semi-axes.
        u = x - self.centre[0]
        v = y - self.centre[1]
        w = z - self.centre[2]
        if self.angle:
            cosine = np.cos(self.angle)
            sine = np.sin(self.angle)
            u, v = cosine * u + sine * v, cosine * v - sine * u
        w = w / self.axes[2]
        v = np.where(v > 0, v / (self.axes[1] * self.back), v / self.axes[1])
        u = u / self.axes[0]

        if self.power == 2.0:  # an ellipsoid; products are faster than powers
            in_plane = u * u + v * v
        else:
            in_plane = np.abs(u) ** self.power + np.abs(v) ** self.power
        if self.taper:
            # Above its middle the shape has its full width; below the middle it is narrower.
            in_plane = in_plane / (1.0 + self.taper * np.minimum(w, 0.0)) ** self.power
        level = in_plane + np.abs(w) ** self.power
        for amplitude, (kx, ky, kz), phase in self.waves:
            ripple = np.sin(kx * x + phase) * np.cos(ky * y - phase) * np.cos(kz * z + 2 * phase)
            level = level + amplitude * ripple
        return level

    def reach(self) -> tuple[float, float]:
        """Return two half-widths (mm) of a box about the shape: one for x and y, one for z."""
        amplitude = sum(abs(wave[0]) for wave in self.waves)
        # The ripples move the surface outwards by at most this factor. It is limited, because very
        # large ripples would have no bound.
        factor = 1.0 / np.sqrt(max(1.0 - amplitude, 0.25))
        along_y = self.axes[1] * max(1.0, self.back)
        return max(self.axes[0], along_y) * factor, self.axes[2] * factor


def ripples(
    rng: np.random.Generator, amplitude: float, size: float, count: int = 3
) -> tuple[Wave, ...]:
    """Draw random waves for the surface of a shape.

    Parameters
    ----------
    rng : Generator
        Source of the random draws.
    amplitude : float
        Largest amplitude, relative to the radius.
    size : float
        Shortest wavelengths are a little longer than this, mm.
    count : int
        Number of waves.

    Returns
    -------
    tuple of (amplitude, wave vector, phase)
        The amplitude is relative to the radius, the wave vector in radians per mm along x, y and z,
        and the phase in radians.
    """
    waves = []
    for _ in range(count):
        kx, ky, kz = 2 * np.pi / (size * rng.uniform(1.2, 2.6, 3))
        waves.append(
            (
                float(amplitude * rng.uniform(0.5, 1.0)),
                (float(kx), float(ky), float(kz)),
                float(rng.uniform(0, 2 * np.pi)),
            )
        )
    return tuple(waves)


def _slice_within(axis: np.ndarray, centre: float, half: float) -> slice:
    """Return which coordinates of an axis lie within a half-width of a centre."""
    first, stop = np.searchsorted(axis, (centre - half, centre + half))
    return slice(first, stop)


def paint(shapes: list[Shape], x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return the number of the shape at each point of a grid: the last shape that holds the point.

    Parameters
    ----------
    shapes : list of Shape
        The shapes in order; later shapes replace earlier shapes.
    x, y, z : ndarray, shape (n_x,), (n_y,), (n_z,)
        Increasing coordinates of the grid, mm.

    Returns
    -------
    ndarray of uint8, shape (n_z, n_y, n_x)
        1 + index into ``shapes``; 0 where there is no shape.

    Examples
    --------
    >>> import numpy as np
    >>> sphere = Shape("gland", (0.0, 0.0, 0.0), (1.5, 1.5, 1.5))
    >>> paint([sphere], np.arange(-2.0, 3), np.arange(-2.0, 3), np.zeros(1))[0].tolist()
    [[0, 0, 0, 0, 0], [0, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]]
    """
    numbers = np.zeros((len(z), len(y), len(x)), np.uint8)
    for number, shape in enumerate(shapes, start=1):
        # Only the points in a box about the shape are computed; most shapes are small.
        reach, reach_z = shape.reach()
        centre_x, centre_y, centre_z = shape.centre
        slice_z = _slice_within(z, centre_z, reach_z)
        slice_y = _slice_within(y, centre_y, reach)
        slice_x = _slice_within(x, centre_x, reach)
        # The box is a view: what is written into it is in ``numbers``.
        box = numbers[slice_z, slice_y, slice_x]
        if not box.size:  # the shape lies outside the grid
            continue
        inside = shape.level(x[slice_x], y[slice_y, None], z[slice_z, None, None]) < 1.0
        if shape.within:
            # The shape replaces only earlier shapes of these zones.
            replaceable = np.zeros(len(shapes) + 1, bool)
            for earlier_number, earlier in enumerate(shapes[: number - 1], start=1):
                replaceable[earlier_number] = earlier.zone in shape.within
            inside &= replaceable[box]
        box[inside] = number
    return numbers
