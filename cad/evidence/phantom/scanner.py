"""Make images from a simulated anatomy: every modality on its own grid, as by a scanner.

Each voxel is an average over a lattice of points (partial volume). The average is changed by the
tissue's texture, its septa and the sensitivity of the coil, and then sampled as by a scanner
(:mod:`cad.evidence.phantom.acquisition`).
"""

from typing import NamedTuple

import numpy as np

from cad.evidence.phantom import params, physics
from cad.evidence.phantom.acquisition import (
    UNCHANGED,
    Worsening,
    acquire,
    blur_filter,
    distort,
    draw_motion,
    interpolated_noise,
)
from cad.evidence.phantom.protocols import SiteProtocol
from cad.evidence.phantom.scene import BACKGROUND, View
from cad.mri.imaging.volume import Dynamic, Volume

_T2_LEVEL = 220.0
_DIFFUSION_LEVEL = 300.0
_DCE_LEVEL = 100.0
"""Stored signal of the normal peripheral zone (PZ) where the coil's sensitivity is 1.

The noise is then a few grey levels, as with real scanners.
"""
VENOUS_SPREAD = 6.0
"""Seconds by which the venous curve is later and smoother than the arterial curve."""


class Injection(NamedTuple):
    """Hold when the contrast agent arrives, and how strong its curve is.

    Parameters
    ----------
    arrival, delay : float
        Seconds from the first frame until the agent reaches the femoral artery, and seconds from
        then until it reaches the prostate.
    scale : float
        Factor by which the population's arterial curve is multiplied.
    """

    arrival: float
    delay: float
    scale: float


def draw_injection(rng: np.random.Generator) -> Injection:
    """Draw when the contrast agent arrives, and how strong its arterial curve is.

    The agent reaches the femoral artery 20 to 40 s after the first frame, and the prostate 1 to 5 s
    later.

    Parameters
    ----------
    rng : Generator
        Source of the random draws.

    Returns
    -------
    Injection
        Arrival in the femoral artery and further delay to the prostate (s), and the factor on the
        population's arterial curve.
    """
    return Injection(
        float(rng.uniform(20, 40)),
        float(rng.uniform(1, 5)),
        float(np.exp(rng.normal(0, params.INPUT_SCALE_SD))),
    )


def t2_image(
    view: View,
    protocol: SiteProtocol,
    gain: float,
    rng: np.random.Generator,
    worse: Worsening = UNCHANGED,
) -> Volume:
    """Return the T2-weighted image of a view, stored as unsigned 16-bit integers.

    Parameters
    ----------
    view : View
        Scene on the T2 grid.
    protocol : Protocol
        Protocol of the site; times and noise are read.
    gain : float
        Factor on all intensities, different from patient to patient: T2 has no absolute scale.
    rng : Generator
        Source of the random noise.
    worse : Worsening
        Blur and noise beyond those of the protocol.
    """
    table = view.scene.table()
    repetition, echo = protocol.t2_times
    t1, t2, density = _properties(table, "t1", "t2", "density")
    signal = physics.spin_echo(t1, t2, density, repetition, echo)
    # Texture changes T2 to T2 exp(a g), where g is a random field and a its amplitude in the
    # tissue. With the echo time TE, the signal is then multiplied by exp(-TE/T2 (exp(-a g) - 1)).
    # TE/T2 is limited, because tissue whose signal decays within a fraction of TE shows no texture.
    texture, septa = _properties(table, "texture", "septa")
    decay = view.average(np.minimum(echo / t2, 2.5))
    uneven = view.average(texture) * view.field(0)
    fibrous = view.average(septa * np.maximum(echo / params.SEPTUM_T2 - echo / t2, 0.0))
    usual = _properties([params.TISSUES["PZ"]], "t1", "t2", "density")
    level = _T2_LEVEL * gain / physics.spin_echo(usual[0], usual[1], usual[2], repetition, echo)[0]
    clean = level * view.average(signal) * view.sensitivity()
    clean *= np.exp(-decay * np.expm1(-uneven) - fibrous * view.septa())
    sd = protocol.noise[0] * _T2_LEVEL * gain
    return view.volume(
        _stored_integers(_worsened_image(view, clean, sd, rng, worse, _T2_LEVEL * gain))
    )


def diffusion_images(
    view: View, protocol: SiteProtocol, rng: np.random.Generator, worse: Worsening = UNCHANGED
) -> tuple[Volume, list[tuple[float, Volume]]]:
    """Return the ADC map (1e-6 mm2/s) of a view and the diffusion images that it is computed from.

    Parameters
    ----------
    view : View
        Scene on the diffusion grid.
    protocol : Protocol
        Protocol of the site; b-values and noise are read.
    rng : Generator
        Source of the random noise.
    worse : Worsening
        Blur and noise beyond those of the protocol.

    Returns
    -------
    adc : Volume
        Computed from the two noisy images, as a scanner does.
    images : list of (float, Volume)
        b-value (s/mm2) and image, by increasing b-value.
    """
    table = view.scene.table()
    t1, t2, proton_density, adc, texture, septa = _properties(
        table, "t1", "t2", "density", "adc", "texture", "septa"
    )
    beyond_septum = np.maximum(adc - params.SEPTUM_ADC, 0.0)
    adc = adc * 1e-6
    echo = 0.07
    density = proton_density * np.exp(-echo / t2)
    # The signal of fat is reduced, as by the fat suppression that is usual in echo-planar imaging.
    is_background = np.array([tissue is view.scene.tissues[BACKGROUND] for tissue in table])
    density[is_background | (t1 < 0.6)] *= 0.08
    mean_adc = view.average(adc * density) / np.maximum(view.average(density), 1e-6)
    uneven = params.TEXTURE_ADC * view.average(texture) * view.field(1)
    fibrous = view.average(septa * beyond_septum * 1e-6)
    change = mean_adc * np.clip(uneven, -0.6, 0.6) - fibrous * view.septa()
    shift = view.distortion()
    reference = params.TISSUES["PZ"]
    level = _DIFFUSION_LEVEL / (reference.density * np.exp(-echo / reference.t2))
    sd = protocol.noise[1] * _DIFFUSION_LEVEL
    images = []
    for b in protocol.b_values:
        clean = level * view.average(density * np.exp(-b * adc))
        clean = distort(clean * np.exp(-b * change), shift, view.grid.spacing[1])
        clean *= view.sensitivity()
        # Scanners average more repetitions at high b-values. The noise is therefore halved.
        share = 1.0 if b < 400 else 0.5
        images.append(
            _worsened_image(view, clean, share * sd, rng, worse, share * _DIFFUSION_LEVEL)
        )
    low, high = protocol.b_values
    value = 1e6 * np.log(np.maximum(images[0], 1.0) / np.maximum(images[1], 1.0)) / (high - low)
    # In voxels without signal the ADC is computed from noise. Scanners store it there, too.
    apparent = np.clip(value, 0, 4000)
    stored = []
    for b, image in zip(protocol.b_values, images, strict=True):
        stored.append((float(b), view.volume(_stored_integers(image))))
    return view.volume(_stored_integers(apparent)), stored


def dynamic_images(
    view: View,
    protocol: SiteProtocol,
    injection: Injection,
    rng: np.random.Generator,
    motion: float = 1.0,
    worse: Worsening = UNCHANGED,
) -> tuple[Dynamic, list[tuple[float, Volume]]]:
    """Return the dynamic series and flip-angle images on one grid.

    Every tissue of a voxel enhances by its own parameters, and the signals are averaged. Partial
    volume is therefore in the signal and not in the parameters. The patient moves between frames.

    Parameters
    ----------
    view : View
        Scene on the dynamic grid.
    protocol : Protocol
        Protocol of the site; times, flip angles and noise are read.
    injection : Injection
        Arrival and strength of the contrast agent.
    rng : Generator
        Source of the random noise and motion.
    motion : float
        Factor on how far the patient moves between frames.
    worse : Worsening
        Blur and noise beyond those of the protocol.

    Returns
    -------
    dynamic : Dynamic
        The dynamic contrast-enhanced series with its times.
    flips : list of (float, Volume)
        Flip angle (degrees) and image without contrast agent, in the protocol's order.
    """
    repetition, interval = protocol.dce_times
    times = np.arange(protocol.frames) * interval
    voxels, shares, t1, density, curves = _kinetics(view, times, injection)
    n = int(np.prod(view.grid.shape))
    sensitivity = view.sensitivity().ravel()
    reference = params.TISSUES["PZ"]
    level = _DCE_LEVEL / physics.spoiled_gradient_echo(
        np.array(reference.t1), np.array(reference.density), repetition, protocol.flip
    )
    sd = protocol.noise[2] * _DCE_LEVEL
    weight = shares * level * density
    moved = motion * draw_motion(rng, times) / np.array(view.grid.spacing[:2])
    gain = 1.0 + rng.normal(0, params.FRAME_SD, len(times)) * (protocol.noise[2] > 0)
    frames = np.empty((len(times), *view.grid.shape), np.uint16)
    for i in range(len(times)):
        now = 1.0 / (1.0 / t1 + params.RELAXIVITY * curves[:, i])
        signal = weight * physics.spoiled_gradient_echo(
            now, np.array(1.0), repetition, protocol.flip
        )
        clean = gain[i] * np.bincount(voxels, signal, n) * sensitivity
        offset = (float(moved[i, 1]), float(moved[i, 0]))
        clean = clean.reshape(view.grid.shape)
        frames[i] = _stored_integers(
            _worsened_image(view, clean, sd, rng, worse, _DCE_LEVEL, offset)
        )
    vfa = []
    for flip in protocol.flips:
        signal = weight * physics.spoiled_gradient_echo(t1, np.array(1.0), repetition, flip)
        clean = np.bincount(voxels, signal, n) * sensitivity
        clean = clean.reshape(view.grid.shape)
        image = _worsened_image(view, clean, sd / 2, rng, worse, _DCE_LEVEL / 2)
        vfa.append((flip, view.volume(_stored_integers(image))))
    return Dynamic(frames, view.volume(frames[0]), times, repetition, protocol.flip), vfa


def _worsened_image(
    view: View,
    clean: np.ndarray,
    sd: float,
    rng: np.random.Generator,
    worse: Worsening,
    level: float,
    moved: tuple[float, float] = (0.0, 0.0),
) -> np.ndarray:
    """Return the magnitude image of a noise-free signal, worse than the protocol makes it.

    ``level`` is the signal of which ``worse.noise`` is a share.
    """
    blur = None
    if worse.blur_mm > 0:
        x, y, _ = view.grid.spacing
        blur = blur_filter(view.grid.shape[1:], (y, x), worse.blur_mm)
    added = None
    if worse.noise > 0:
        # The added noise has a generator of its own, so that the protocol's noise stays as it is.
        (generator,) = rng.spawn(1)
        sd_added = worse.noise * level
        added = interpolated_noise(view.grid.shape, sd_added, worse.interpolation, generator)
    return acquire(clean, sd, rng, moved, blur, added)


def _kinetics(
    view: View, times: np.ndarray, injection: Injection
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return five arrays with one entry per part: voxel index, share, T1, density, concentration.

    A part is the part of a voxel that one tissue fills. Its share is the filled share of the voxel,
    a number from 0 to 1. T1 is in s. Concentrations of contrast agent are in mM, shape
    (n_parts, n_times). Outside the gland, all parts of a tissue have the same concentrations.
    """
    table = view.scene.table()
    fine = physics.fine_grid(times)
    blood = injection.scale * physics.parker(fine, injection.arrival)
    # The curve in the veins is the arterial curve, later and smoother.
    lag = np.arange(0, 6 * VENOUS_SPREAD, fine[1] - fine[0])
    kernel = lag * np.exp(-lag / VENOUS_SPREAD)
    venous = np.convolve(blood, kernel / kernel.sum())[: len(fine)]
    later = (
        injection.scale
        * physics.parker(fine, injection.arrival + injection.delay)
        / (1.0 - params.HAEMATOCRIT)
    )
    uneven = view.field(2).ravel()
    voxel, number, share = view.voxel_shares()
    parameters = ("t1", "density", "ktrans", "ve", "vp", "texture")
    column = {}
    for parameter, values in zip(parameters, _properties(table, *parameters), strict=True):
        column[parameter] = values[number]
    factor = np.exp(np.clip(params.TEXTURE_KTRANS * column["texture"] * uneven[voxel], -1.5, 1.5))
    curves = np.empty((len(voxel), len(times)), np.float32)
    names = np.array([BACKGROUND, *(shape.tissue for shape in view.scene.shapes)])[number]
    gland = np.array([False, *(bool(s.zone) for s in view.scene.shapes)])[number]
    curves[gland] = physics.extended_tofts(
        times,
        fine,
        later,
        (column["ktrans"] * factor)[gland],
        column["ve"][gland],
        column["vp"][gland],
    )
    # Outside the gland, Ktrans, ve and vp of a tissue are the same everywhere, so that one curve
    # for each tissue is enough.
    for name in np.unique(names[~gland]):
        of_tissue = (names == name) & ~gland
        tissue = view.scene.tissues[str(name)]
        if name in ("artery", "vein"):
            curves[of_tissue] = np.interp(times, fine, blood if name == "artery" else venous)
        else:
            ktrans, ve, vp = _properties([tissue], "ktrans", "ve", "vp")
            curves[of_tissue] = physics.extended_tofts(times, fine, later, ktrans, ve, vp)
    return voxel, share, column["t1"], column["density"], curves


def _properties(table: list[params.Tissue], *names: str) -> list[np.ndarray]:
    columns = []
    for name in names:
        columns.append(np.array([getattr(tissue, name) for tissue in table]))
    return columns


def _stored_integers(signal: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(np.rint(signal), 0, 32767).astype(np.uint16))
