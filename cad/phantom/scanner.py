"""From anatomy to images: every modality on its own grid, as its scanner would have made it.

Each voxel is averaged over a lattice of points (partial volume), modulated by the tissue's texture
and the coil's sensitivity, and gets Rician noise. Arrays are (z, y, x); the gland's frame (x left,
y back, z head, mm) is the image's own; ``Placement`` carries it into the patient.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.ndimage import gaussian_filter

from cad.imaging.volume import Dynamic, Volume
from cad.phantom.params import HAEMATOCRIT, INPUT_SCALE_SD, RELAXIVITY, TISSUES, Tissue
from cad.phantom.physics import (
    extended_tofts,
    fine_grid,
    parker,
    rician,
    spin_echo,
    spoiled_gradient_echo,
)
from cad.phantom.protocols import Grid, Protocol
from cad.phantom.shapes import Shape, paint

TEXTURE_STEP = 2.0
"""Spacing (mm) of the random fields that make tissue uneven."""
_T2_LEVEL, _DIFFUSION_LEVEL, _DCE_LEVEL = 220.0, 300.0, 100.0
"""Stored signal of normal PZ without bias: noise is a few grey levels, as scanners store it."""
BACKGROUND = "fat"
VENOUS_SPREAD = 6.0
"""Seconds by which the venous curve lags and is smoothed."""


@dataclass(frozen=True)
class Placement:
    """How the gland's frame lies in the patient: a tilted axial stack.

    Parameters
    ----------
    centre : ndarray, shape (3,)
        LPS mm of the gland's centre.
    direction : ndarray, shape (3, 3)
        Columns are the x, y, z axes of the gland's frame in LPS.
    """

    centre: np.ndarray
    direction: np.ndarray


@dataclass(frozen=True)
class Scene:
    """All that the scanners look at.

    Parameters
    ----------
    shapes : list of Shape
        Painted in order over fat.
    tissues : dict of str to Tissue
        By tissue name.
    placement : Placement
        Frame of the gland in the patient.
    fields : ndarray, shape (3, n_z, n_y, n_x)
        Standard normal random fields for T2, ADC and Ktrans on a ``TEXTURE_STEP`` lattice.
    field_origin : ndarray, shape (3,)
        x, y, z (mm) of the lattice's first point.
    bias : ndarray, shape (5,)
        Coefficients of the coil's log sensitivity: x, y, z, x2, y2 over 100 mm.
    """

    shapes: list[Shape]
    tissues: dict[str, Tissue]
    placement: Placement
    fields: np.ndarray
    field_origin: np.ndarray
    bias: np.ndarray

    def table(self) -> list[Tissue]:
        """Return the tissue of every number that :func:`paint` gives."""
        return [self.tissues[BACKGROUND], *(self.tissues[shape.tissue] for shape in self.shapes)]


@dataclass(frozen=True)
class Injection:
    """Contrast agent as it passes.

    Parameters
    ----------
    arrival, delay : float
        Seconds at which it reaches the femoral artery, and how much later the prostate.
    scale : float
        Factor on the population curve.
    """

    arrival: float
    delay: float
    scale: float


def draw_placement(rng: np.random.Generator) -> Placement:
    """Draw a stack tilted about the left-right axis, with a little roll."""
    tilt, roll = np.radians(rng.normal(-14, 5)), np.radians(rng.normal(0, 1.5))
    about_x = np.array(
        [[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]]
    )
    about_z = np.array(
        [[np.cos(roll), -np.sin(roll), 0], [np.sin(roll), np.cos(roll), 0], [0, 0, 1]]
    )
    centre = np.round(np.array([0.0, 20.0, -40.0]) + rng.normal(0, [4, 8, 12]), 2)
    return Placement(centre, about_x @ about_z)


def draw_fields(rng: np.random.Generator, half: tuple[float, float, float]) -> np.ndarray:
    """Draw three smooth random fields of unit variance, partly common; ``half`` in mm."""
    size = [int(np.ceil(2 * h / TEXTURE_STEP)) + 1 for h in half][::-1]
    raw = rng.standard_normal((4, *size), dtype=np.float32)
    smooth = np.stack([gaussian_filter(field, 0.9, mode="wrap") for field in raw])
    smooth /= smooth.std(axis=(1, 2, 3), keepdims=True)
    common, own = np.sqrt(0.35), np.sqrt(0.65)
    signs = np.array([1, 1, -1], np.float32)[:, None, None, None]
    return common * signs * smooth[3] + own * smooth[:3]


def draw_injection(rng: np.random.Generator) -> Injection:
    """Draw the arrival, 20 to 40 s after the first frame, the prostate 1 to 5 s later."""
    return Injection(
        float(rng.uniform(20, 40)),
        float(rng.uniform(1, 5)),
        float(np.exp(rng.normal(0, INPUT_SCALE_SD))),
    )


class View:
    """One grid looking at a scene: where its voxels are and which tissues they hold.

    Parameters
    ----------
    scene : Scene
        What is there.
    grid : Grid
        Voxels.
    shift : ndarray, shape (3,)
        Centre of the grid in the gland's frame, mm (no two acquisitions are planned alike).
    moved : ndarray, shape (3,)
        How far the patient moved before this acquisition, mm.
    supersample : (z, y, x)
        Points per voxel.
    """

    def __init__(
        self,
        scene: Scene,
        grid: Grid,
        shift: np.ndarray,
        moved: np.ndarray,
        supersample: tuple[int, int, int],
    ) -> None:
        self.scene, self.grid, self.supersample = scene, grid, supersample
        counts = grid.shape[::-1]
        self.axes = [
            (np.arange(n) - (n - 1) / 2) * step + offset
            for n, step, offset in zip(counts, grid.spacing, shift, strict=True)
        ]
        self.seen = [axis - move for axis, move in zip(self.axes, moved, strict=True)]

    @cached_property
    def points(self) -> np.ndarray:
        """Return the shape number at every point, uint8, shape (points per voxel, n_voxels)."""
        lattice = [
            (axis[:, None] + ((np.arange(k) + 0.5) / k - 0.5) * step).ravel()
            for axis, step, k in zip(
                self.seen, self.grid.spacing, self.supersample[::-1], strict=True
            )
        ]
        numbers = paint(self.scene.shapes, *lattice)
        z, y, x = self.supersample
        n_z, n_y, n_x = self.grid.shape
        parted = numbers.reshape(n_z, z, n_y, y, n_x, x).transpose(1, 3, 5, 0, 2, 4)
        return parted.reshape(z * y * x, n_z * n_y * n_x)

    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return every tissue of every voxel: flat voxel index, shape number, share (0 to 1)."""
        even = (self.points == self.points[0]).all(axis=0)
        whole = np.flatnonzero(even)
        mixed = np.flatnonzero(~even)
        count = len(self.scene.shapes) + 1
        keys = np.arange(len(mixed)) * count + self.points[:, mixed]
        shares = np.bincount(keys.ravel(), minlength=len(mixed) * count) / len(self.points)
        found = np.flatnonzero(shares)
        voxel = np.concatenate([whole, mixed[found // count]])
        number = np.concatenate([self.points[0, whole].astype(np.int64), found % count])
        return voxel, number, np.concatenate([np.ones(len(whole)), shares[found]])

    def volume(self, array: np.ndarray) -> Volume:
        """Return an array of this grid in the patient."""
        corner = np.array([axis[0] for axis in self.axes])
        placement = self.scene.placement
        origin = placement.centre + placement.direction @ corner
        return Volume(
            array,
            self.grid.spacing,
            (float(origin[0]), float(origin[1]), float(origin[2])),
            placement.direction,
        )

    def average(self, values: np.ndarray) -> np.ndarray:
        """Return the mean over each voxel's points of a value per shape number; float32."""
        mean = values.astype(np.float32)[self.points].mean(axis=0)
        return mean.reshape(self.grid.shape)

    def share(self, numbers: list[int]) -> np.ndarray:
        """Return the share (0 to 1) of each voxel that the shapes with these numbers fill."""
        wanted = np.zeros(len(self.scene.shapes) + 1, np.float32)
        wanted[numbers] = 1.0
        return self.average(wanted)

    def field(self, which: int) -> np.ndarray:
        """Return the random field at the voxels, by linear interpolation; 0 T2, 1 ADC, 2 Ktrans."""
        lattice = self.scene.fields[which]
        weights = [
            _linear_weights(axis, origin, size)
            for axis, origin, size in zip(
                self.seen, self.scene.field_origin, lattice.shape[::-1], strict=True
            )
        ]
        out = np.tensordot(weights[2], lattice, axes=(1, 0))
        out = np.moveaxis(np.tensordot(weights[1], out, axes=(1, 1)), 0, 1)
        return np.tensordot(out, weights[0], axes=(2, 1))

    def sensitivity(self) -> np.ndarray:
        """Return the coil's sensitivity at the voxels, about 1 at the gland."""
        x, y, z = (axis / 100.0 for axis in self.axes)
        c = self.scene.bias
        log = (
            (c[0] * x + c[3] * x**2)[None, None, :]
            + (c[1] * y + c[4] * y**2)[None, :, None]
            + (c[2] * z)[:, None, None]
        )
        return np.exp(log).astype(np.float32)


def t2_image(view: View, protocol: Protocol, gain: float, rng: np.random.Generator) -> Volume:
    """Return the T2-weighted spin echo, integers; ``gain`` is the patient's arbitrary scale."""
    table = view.scene.table()
    repetition, echo = protocol.t2_times
    t1, t2, density = _columns(table, "t1", "t2", "density")
    signal = spin_echo(t1, t2, density, repetition, echo)
    # T2 exp(a g) changes the signal by exp(TE/T2 a g) to first order.
    slope = np.array([t.texture * min(echo / t.t2, 2.5) for t in table])
    usual = _columns([TISSUES["PZ"]], "t1", "t2", "density")
    level = _T2_LEVEL * gain / spin_echo(usual[0], usual[1], usual[2], repetition, echo)[0]
    clean = level * view.average(signal) * np.exp(view.average(slope) * view.field(0))
    clean *= view.sensitivity()
    return view.volume(_stored(rician(clean, protocol.noise[0] * _T2_LEVEL * gain, rng)))


def diffusion_images(
    view: View, protocol: Protocol, rng: np.random.Generator
) -> tuple[Volume, list[tuple[float, Volume]]]:
    """Return the ADC map (1e-6 mm2/s) as the scanner computes it, and both b-values' images."""
    table = view.scene.table()
    adc = np.array([t.adc for t in table]) * 1e-6
    echo = 0.07
    density = np.array([t.density * np.exp(-echo / t.t2) for t in table])
    # Fat is suppressed in echo-planar imaging.
    density[[t is view.scene.tissues[BACKGROUND] or t.t1 < 0.6 for t in table]] *= 0.08
    texture = view.average(np.array([t.texture for t in table])) * view.field(1)
    mean_adc = view.average(adc * density) / np.maximum(view.average(density), 1e-6)
    reference = TISSUES["PZ"]
    level = _DIFFUSION_LEVEL / (reference.density * np.exp(-echo / reference.t2))
    sd = protocol.noise[1] * _DIFFUSION_LEVEL
    images = []
    for b in protocol.b_values:
        clean = level * view.average(density * np.exp(-b * adc))
        clean *= np.exp(-b * mean_adc * np.expm1(texture)) * view.sensitivity()
        # High b-values are averaged more often.
        images.append(rician(clean, sd / (1.0 if b < 400 else 2.0), rng))
    low, high = protocol.b_values
    ratio = np.maximum(images[0], 1.0) / np.maximum(images[1], 1.0)
    value = 1e6 * np.log(ratio) / (high - low)
    weak = images[0] < 4 * sd
    apparent = np.clip(np.where(weak, 0, value), 0, 4000)
    stored = [
        (float(b), view.volume(_stored(image)))
        for b, image in zip(protocol.b_values, images, strict=True)
    ]
    return view.volume(_stored(apparent)), stored


def dynamic_images(
    view: View, protocol: Protocol, injection: Injection, rng: np.random.Generator
) -> tuple[Dynamic, list[tuple[float, Volume]]]:
    """Return the dynamic series and flip-angle images on one grid.

    Every tissue of a voxel enhances by its own parameters and the signals are averaged, so that
    partial volume is in the signal and not in the parameters.
    """
    repetition, interval = protocol.dce_times
    times = np.arange(protocol.frames) * interval
    voxels, shares, t1, density, curves = _kinetics(view, times, injection)
    n = int(np.prod(view.grid.shape))
    sensitivity = view.sensitivity().ravel()
    reference = TISSUES["PZ"]
    level = _DCE_LEVEL / spoiled_gradient_echo(
        np.array(reference.t1), np.array(reference.density), repetition, protocol.flip
    )
    sd = protocol.noise[2] * _DCE_LEVEL
    weight = shares * level * density
    frames = np.empty((len(times), *view.grid.shape), np.uint16)
    for i in range(len(times)):
        now = 1.0 / (1.0 / t1 + RELAXIVITY * curves[:, i])
        signal = weight * spoiled_gradient_echo(now, np.array(1.0), repetition, protocol.flip)
        clean = np.bincount(voxels, signal, n) * sensitivity
        frames[i] = _stored(rician(clean.reshape(view.grid.shape), sd, rng))
    vfa = []
    for flip in protocol.flips:
        signal = weight * spoiled_gradient_echo(t1, np.array(1.0), repetition, flip)
        clean = np.bincount(voxels, signal, n) * sensitivity
        image = rician(clean.reshape(view.grid.shape), sd / 2, rng)
        vfa.append((flip, view.volume(_stored(image))))
    grid = view.volume(frames[0])
    return Dynamic(frames, grid, times, repetition, protocol.flip), vfa


def _kinetics(
    view: View, times: np.ndarray, injection: Injection
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """List parts of voxels: flat voxel index, share, T1 (s), density, concentration (mM).

    Concentration has shape (n_parts, n_times). Even tissues (without texture) share one curve.
    """
    table = view.scene.table()
    fine = fine_grid(times)
    blood = injection.scale * parker(fine, injection.arrival)
    later = (
        injection.scale * parker(fine, injection.arrival + injection.delay) / (1.0 - HAEMATOCRIT)
    )
    uneven = view.field(2).ravel()
    voxel, number, share = view.parts()
    column = {
        name: np.array([getattr(t, name) for t in table])[number]
        for name in ("t1", "density", "ktrans", "ve", "vp", "texture")
    }
    factor = np.exp(np.clip(2.0 * column["texture"] * uneven[voxel], -1.5, 1.5))
    curves = np.empty((len(voxel), len(times)), np.float32)
    names = np.array([BACKGROUND, *(shape.tissue for shape in view.scene.shapes)])[number]
    gland = np.array([False, *(bool(s.zone) for s in view.scene.shapes)])[number]
    curves[gland] = extended_tofts(
        times, fine, later, (column["ktrans"] * factor)[gland], column["ve"][gland],
        column["vp"][gland],
    )  # fmt: skip
    # Around the gland one curve a tissue is enough.
    for other in np.unique(names[~gland]):
        here = (names == other) & ~gland
        tissue = view.scene.tissues[str(other)]
        if other in ("artery", "vein"):
            curve = blood if other == "artery" else _venous(fine, blood)
            curves[here] = np.interp(times, fine, curve)
        else:
            curves[here] = extended_tofts(
                times, fine, later, *(np.array([v]) for v in (tissue.ktrans, tissue.ve, tissue.vp))
            )
    return voxel, share, column["t1"], column["density"], curves


def _venous(fine: np.ndarray, blood: np.ndarray) -> np.ndarray:
    """Return the arterial curve, later and smoothed."""
    step = fine[1] - fine[0]
    lag = np.arange(0, 6 * VENOUS_SPREAD, step)
    kernel = lag * np.exp(-lag / VENOUS_SPREAD)
    return np.convolve(blood, kernel / kernel.sum())[: len(fine)]


def _linear_weights(axis: np.ndarray, origin: float, size: int) -> np.ndarray:
    """Return weights (n_axis, size) of linear interpolation on a lattice that repeats."""
    position = (axis - origin) / TEXTURE_STEP
    lower = np.floor(position).astype(int)
    part = (position - lower).astype(np.float32)
    out = np.zeros((len(axis), size), np.float32)
    rows = np.arange(len(axis))
    out[rows, lower % size] += 1.0 - part
    out[rows, (lower + 1) % size] += part
    return out


def _columns(table: list[Tissue], *names: str) -> list[np.ndarray]:
    return [np.array([getattr(tissue, name) for tissue in table]) for name in names]


def _stored(signal: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(signal), 0, 32767).astype(np.uint16)
