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
        arrival=float(rng.uniform(20, 40)),
        delay=float(rng.uniform(1, 5)),
        scale=float(np.exp(rng.normal(0, params.INPUT_SCALE_SD))),
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

    # The image is scaled so that the normal peripheral zone has the usual level.
    t1_pz, t2_pz, density_pz = _properties([params.TISSUES["PZ"]], "t1", "t2", "density")
    (reference,) = physics.spin_echo(t1_pz, t2_pz, density_pz, repetition, echo)
    level = _T2_LEVEL * gain / reference
    clean = level * view.average(signal) * view.sensitivity()
    clean *= np.exp(-decay * np.expm1(-uneven) - fibrous * view.septa())
    sd = protocol.noise[0] * _T2_LEVEL * gain
    image = _worsened_image(view, clean, sd, rng, worse, level=_T2_LEVEL * gain)
    return view.volume(_stored_integers(image))


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
    adc = adc * 1e-6  # mm2/s

    # The signal of each tissue at b = 0.
    echo = 0.07  # s
    density = proton_density * np.exp(-echo / t2)
    # The signal of fat is reduced, as by the fat suppression that is usual in echo-planar imaging.
    # Tissue with a short T1, such as marrow, is mostly fat.
    is_background = np.array([tissue is view.scene.tissues[BACKGROUND] for tissue in table])
    density[is_background | (t1 < 0.6)] *= 0.08

    # How texture and septa change the ADC of each voxel, whose ADC is weighted by signal. Where
    # there is no signal, nothing is divided by zero.
    mean_adc = view.average(adc * density) / np.maximum(view.average(density), 1e-6)
    uneven = params.TEXTURE_ADC * view.average(texture) * view.field(1)
    fibrous = view.average(septa * beyond_septum * 1e-6)
    change = mean_adc * np.clip(uneven, -0.6, 0.6) - fibrous * view.septa()

    # The image of each b-value, scaled so that the normal peripheral zone has the usual level.
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

    # The ADC map follows from the two images. A signal below one grey level counts as one.
    low_b, high_b = protocol.b_values
    low_image, high_image = images
    ratio = np.maximum(low_image, 1.0) / np.maximum(high_image, 1.0)
    computed_adc = 1e6 * np.log(ratio) / (high_b - low_b)
    # In voxels without signal the ADC is computed from noise. Scanners store it there, too.
    apparent = np.clip(computed_adc, 0, 4000)
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
    n_voxels = int(np.prod(view.grid.shape))
    sensitivity = view.sensitivity().ravel()

    # The images are scaled so that the normal peripheral zone has the usual level before the agent.
    reference = params.TISSUES["PZ"]
    level = _DCE_LEVEL / physics.spoiled_gradient_echo(
        np.array(reference.t1), np.array(reference.density), repetition, protocol.flip
    )
    sd = protocol.noise[2] * _DCE_LEVEL
    weight = shares * level * density

    # Frames: the agent shortens T1, the man moves, and the signal of a whole frame varies a little.
    # A protocol without noise has no such variation.
    moved = motion * draw_motion(rng, times) / np.array(view.grid.spacing[:2])  # voxels
    gain = 1.0 + rng.normal(0, params.FRAME_SD, len(times)) * (protocol.noise[2] > 0)
    frames = np.empty((len(times), *view.grid.shape), np.uint16)
    for i in range(len(times)):
        t1_with_agent = 1.0 / (1.0 / t1 + params.RELAXIVITY * curves[:, i])
        signal = weight * physics.spoiled_gradient_echo(
            t1_with_agent, np.array(1.0), repetition, protocol.flip
        )
        clean = gain[i] * np.bincount(voxels, signal, n_voxels) * sensitivity
        clean = clean.reshape(view.grid.shape)
        moved_x, moved_y = moved[i]
        image = _worsened_image(
            view, clean, sd, rng, worse, _DCE_LEVEL, moved=(float(moved_y), float(moved_x))
        )
        frames[i] = _stored_integers(image)

    # Flip-angle images have half of the noise of a frame.
    vfa = []
    for flip in protocol.flips:
        signal = weight * physics.spoiled_gradient_echo(t1, np.array(1.0), repetition, flip)
        clean = np.bincount(voxels, signal, n_voxels) * sensitivity
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
    # The curves in the femoral artery, in the veins, and in the plasma that reaches the prostate.
    table = view.scene.table()
    fine_times = physics.fine_grid(times)
    arterial = injection.scale * physics.parker(fine_times, injection.arrival)
    # The curve in the veins is the arterial curve, later and smoother.
    lag = np.arange(0, 6 * VENOUS_SPREAD, fine_times[1] - fine_times[0])
    kernel = lag * np.exp(-lag / VENOUS_SPREAD)
    venous = np.convolve(arterial, kernel / kernel.sum())[: len(fine_times)]
    # The agent stays out of the red cells, so its concentration in plasma is higher than in blood.
    plasma = (
        injection.scale
        * physics.parker(fine_times, injection.arrival + injection.delay)
        / (1.0 - params.HAEMATOCRIT)
    )

    # The parts, and the parameters of their tissues.
    uneven = view.field(2).ravel()
    voxel, number, share = view.voxel_shares()
    parameters = ("t1", "density", "ktrans", "ve", "vp", "texture")
    column = {}
    for parameter, values in zip(parameters, _properties(table, *parameters), strict=True):
        column[parameter] = values[number]
    shapes = view.scene.shapes
    tissue_of_part = np.array([BACKGROUND, *(shape.tissue for shape in shapes)])[number]
    in_gland = np.array([False, *(bool(shape.zone) for shape in shapes)])[number]

    # In the gland, texture changes Ktrans from voxel to voxel. The factor is limited, because a
    # normal random number has no bound.
    log_factor = params.TEXTURE_KTRANS * column["texture"] * uneven[voxel]
    ktrans_of_part = column["ktrans"] * np.exp(np.clip(log_factor, -1.5, 1.5))
    curves = np.empty((len(voxel), len(times)), np.float32)
    curves[in_gland] = physics.extended_tofts(
        times,
        fine_times,
        plasma,
        ktrans_of_part[in_gland],
        column["ve"][in_gland],
        column["vp"][in_gland],
    )
    # Outside the gland, Ktrans, ve and vp of a tissue are the same everywhere, so that one curve
    # for each tissue is enough.
    for name in np.unique(tissue_of_part[~in_gland]):
        of_tissue = (tissue_of_part == name) & ~in_gland
        tissue = view.scene.tissues[str(name)]
        if name in ("artery", "vein"):
            blood = arterial if name == "artery" else venous
            curves[of_tissue] = np.interp(times, fine_times, blood)
        else:
            ktrans, ve, vp = _properties([tissue], "ktrans", "ve", "vp")
            curves[of_tissue] = physics.extended_tofts(times, fine_times, plasma, ktrans, ve, vp)
    return voxel, share, column["t1"], column["density"], curves


def _properties(table: list[params.Tissue], *names: str) -> list[np.ndarray]:
    """Return for each named parameter an array with its value in every tissue of a table."""
    columns = []
    for name in names:
        columns.append(np.array([getattr(tissue, name) for tissue in table]))
    return columns


def _stored_integers(signal: np.ndarray) -> np.ndarray:
    """Return an image as unsigned 16-bit integers, cut at 0 and 32767."""
    return np.asarray(np.clip(np.rint(signal), 0, 32767).astype(np.uint16))
