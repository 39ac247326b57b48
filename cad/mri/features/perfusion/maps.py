"""Turn a study's dynamic series into parameter maps and curves of regions.

``perfusion_maps`` finds the bolus, makes the T1 map, converts signal to concentration, chooses the
arterial input and fits every model that the settings name. :data:`cad.base.terms.features.MAPS` has
the maps' names (``relative_enhancement``, ``tofts_ktrans``, ...), units and sources.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from cad.base.errors import CadError, located
from cad.base.settings import PerfusionSettings
from cad.base.terms.features import MAPS
from cad.mri.features.perfusion import concentration as spgr
from cad.mri.features.perfusion import models
from cad.mri.features.perfusion.aif import ArterialInput, InputFunction
from cad.mri.features.perfusion.kinetics import (
    Kinetics,
    b1_map,
    choose_input,
    find_reference,
    sequence_of,
    t1_map,
)
from cad.mri.features.perfusion.semiquantitative import initial_area, semiquantitative
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Dynamic, Volume

# Number of voxels that are fitted at once. Their concentrations and fits stay in the processor's
# cache.
_CHUNK = 2048
# An interval between two frames is a pause if it is this many times the median interval.
_PAUSE = 3.0
# Largest difference (s) of a voxel's delay of the arterial input from the study's delay. OSIPI's
# tests have the same bounds.
DELAY_RANGE_S = 10.0
# Interval (s) between frames from which a note warns. With such an interval or a longer one, the
# delay of the input and the plasma volume vp change a curve in much the same way, and cannot be
# told apart.
_SPARSE_S = 6.0
# Length (s) of the early time after the arrival of the bolus, in which the contrast agent has
# hardly left the tissue.
EARLY_S = 60.0


@dataclass(frozen=True, eq=False)
class RegionCurve:
    """Hold the mean curve of one region, its concentration and its fits.

    Parameters
    ----------
    time_s : ndarray, shape (n_times,)
        Times of the frames, seconds.
    signal : ndarray, shape (n_times,)
        Mean signal, arbitrary units.
    concentration_mM : ndarray, shape (n_times,)
        Concentration from the mean signal; NaN where none can be computed.
    fit_mM : ndarray, shape (n_times,)
        Fit of the extended Tofts model, or of the Tofts model where the settings name only that.
    params : dict of str to float
        Parameters of the fits of the mean curve, by name ``<model>_<parameter>``.
    """

    time_s: np.ndarray
    signal: np.ndarray
    concentration_mM: np.ndarray
    fit_mM: np.ndarray
    params: dict[str, float]


@dataclass(frozen=True, eq=False)
class PerfusionMaps:
    """Hold the parameter maps of one study.

    Parameters
    ----------
    maps : dict of str to Volume
        By name of the parameter: float32 on the grid of the dynamic series; NaN outside the mask
        and where the signal gives no concentration.
    times : ndarray, shape (n_times,)
        Times of the frames, seconds.
    arrival : float
        Bolus arrival, seconds.
    n_baseline : int
        Number of frames before the arrival.
    input_kind : str
        ``parker``, ``georgiou``, ``measured`` or ``none``.
    t1_source : str
        ``vfa`` or ``fixed``, and whether flip angles were corrected.
    notes : list of str
        Sentences on values that were assumed, replaced or left out.
    reference_baseline : float
        Mean signal before the bolus in the region that shows the bolus: the gland, else the regions
        (:func:`cad.mri.features.perfusion.kinetics.find_reference`).
    """

    maps: dict[str, Volume]
    times: np.ndarray
    arrival: float
    n_baseline: int
    input_kind: str
    t1_source: str
    notes: list[str]
    reference_baseline: float
    _kinetics: Kinetics = field(repr=False)
    _dynamic: Dynamic = field(repr=False)
    _t1: np.ndarray = field(repr=False)
    _b1: np.ndarray | None = field(default=None, repr=False)

    def early(self) -> np.ndarray:
        """Return the early enhanced image, shape (z, y, x), on the grid of the dynamic series.

        The image is the mean signal of the frames in the first minute after the bolus arrives,
        divided by ``reference_baseline``, the mean signal of the gland or the regions before the
        bolus. If no frame lies in this minute, the first later frame is taken.
        """
        frames_after = np.flatnonzero(self.times > self.arrival)
        early_frames = frames_after[self.times[frames_after] <= self.arrival + EARLY_S]
        frames = early_frames if len(early_frames) else frames_after[:1]
        # Receivers have different gains. Divided by the baseline, images can be compared.
        mean = self._dynamic.frames[frames].mean(axis=0, dtype=float)
        return np.asarray(mean / self.reference_baseline)

    def curve(self, mask: np.ndarray) -> RegionCurve:
        """Return the mean curve of a region, and the fits of this curve.

        Parameters
        ----------
        mask : ndarray of bool or float, shape (n_z, n_y, n_x)
            The region, or the share (0 to 1) of each voxel that it fills, on the grid of the
            dynamic series; not empty.
        """
        inside = mask > 0
        if not inside.any():
            raise CadError("the region has no voxel on the grid of the dynamic series")
        share = mask[inside].astype(float)
        # The mean over the voxels, weighted by shares: one curve, shape (1, n_times).
        signal = (self._dynamic.frames[:, inside] @ (share / share.sum()))[None]
        # T1 is NaN in a voxel where it could not be fitted.
        valid = np.isfinite(self._t1[inside])
        t1 = np.array([np.average(self._t1[inside][valid], weights=share[valid])])
        b1 = None if self._b1 is None else np.array([np.average(self._b1[inside], weights=share)])
        # The mean curve is fitted like a chunk of one voxel.
        values_without_model, fits, concentration = _fit_chunk(self._kinetics, signal, t1, b1)
        shown_fit = fits.get("extended_tofts") or fits.get("tofts")
        params = {}
        for model, fit in fits.items():
            for name, values in fit.parameters.items():
                params[f"{model}_{name}"] = float(values[0])
            params[f"{model}_r2"] = float(fit.r2[0])
        if "input_delay" in values_without_model:
            params["input_delay"] = float(values_without_model["input_delay"][0])
        all_missing = np.full(len(self.times), np.nan)
        return RegionCurve(
            time_s=self.times,
            signal=signal[0],
            concentration_mM=all_missing if concentration is None else concentration[0],
            fit_mM=all_missing if shown_fit is None else shown_fit.fitted[0],
            params=params,
        )


def perfusion_maps(
    study: Study, settings: PerfusionSettings, mask: np.ndarray | None = None
) -> PerfusionMaps:
    """Make the parameter maps of a study's dynamic series.

    Parameters
    ----------
    study : Study
        Study with a dynamic series. Flip-angle images, gland and vessel masks are used if it has
        them.
    settings : PerfusionSettings
        T1, relaxivity, haematocrit, input function, models, refinement.
    mask : ndarray of bool, shape of the DCE grid, optional
        Voxels in which the maps are computed; everywhere by default. If the study has a gland mask
        or regions, the bolus and the delay of the input do not depend on ``mask``.

    Returns
    -------
    PerfusionMaps
        Without repetition time or flip angle it has only the maps that need no concentration, and a
        note.

    Raises
    ------
    CadError
        For a study without a dynamic series, or whose series shows no bolus or has no frame before
        the bolus. For an empty mask. For flip-angle images that the settings demand and that are
        absent or unusable. For a measured input that cannot be an artery's. The error names the
        patient.

    Examples
    --------
    The signal of one voxel doubles, and its neighbour's signal does not change:

    >>> import numpy as np
    >>> times = np.arange(0.0, 100.0, 5.0)
    >>> frames = np.full((20, 1, 1, 2), 100.0, np.float32)
    >>> frames[5:, :, :, 0] = 200.0
    >>> grid = Volume(frames[0], (1.0, 1.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> study = Study("sub-1", "sub-1", dce=Dynamic(frames, grid, times))
    >>> result = perfusion_maps(study, PerfusionSettings())
    >>> result.maps["relative_enhancement"].array.tolist(), result.n_baseline
    ([[[1.0, 0.0]]], 4)
    >>> result.notes[1]
    'tissue T1 fixed at 1.6 s: no flip-angle images'
    """
    with located(patient=study.participant_id):
        if study.dce is None:
            raise CadError(
                "the study has no dynamic series",
                hint="leave 'dce' out of features.modalities for this study",
            )
        return _perfusion_maps(study, study.dce, settings, _checked_mask(study.dce, mask))


def _perfusion_maps(
    study: Study, dynamic: Dynamic, settings: PerfusionSettings, inside: np.ndarray
) -> PerfusionMaps:
    """Return the parameter maps of a study's dynamic series in the voxels ``inside``."""
    notes: list[str] = []
    times = np.asarray(dynamic.times, float)
    reference, mean_signal, bolus = find_reference(study, dynamic, inside, notes)
    needed = inside | reference
    b1 = b1_map(study, settings, dynamic, needed, notes)
    t1, t1_source = t1_map(study, settings, dynamic, needed, b1, notes)
    # The choice of the input needs this object without an input, which is then added to it.
    kinetics = Kinetics(times, bolus, settings, sequence_of(dynamic, notes), arterial=None)
    arterial, input_kind = choose_input(
        study, kinetics, dynamic, mean_signal, t1, b1, reference, notes
    )
    kinetics = replace(kinetics, arterial=arterial)
    maps = _all_maps(kinetics, dynamic, t1, b1, inside)
    maps["t1"] = dynamic.grid.with_array(np.where(inside, t1, np.nan).astype(np.float32))
    notes += [*_pauses(times), *_input_notes(kinetics), *_quality_notes(maps, inside)]
    return PerfusionMaps(
        maps={name: maps[name] for name in MAPS if name in maps},  # in the order of MAPS
        times=times,
        arrival=bolus.arrival,
        n_baseline=bolus.n_baseline,
        input_kind=input_kind,
        t1_source=t1_source if b1 is None else f"{t1_source}, flip angles by B1 map",
        notes=notes,
        reference_baseline=float(mean_signal[: bolus.n_baseline].mean()),
        _kinetics=kinetics,
        _dynamic=dynamic,
        _t1=t1,
        _b1=b1,
    )


def _pauses(times: np.ndarray) -> list[str]:
    """Return a note on the longest pause between frames, in which nothing was measured.

    Without a pause the result is empty.
    """
    steps = np.diff(times)
    longest = int(np.argmax(steps))
    if steps[longest] <= _PAUSE * np.median(steps):
        return []
    return [
        f"a pause of {steps[longest]:.0f} s in the dynamic series after {times[longest]:.0f} s; "
        f"frames are {np.median(steps):.1f} s apart elsewhere"
    ]


def _input_notes(kinetics: Kinetics) -> list[str]:
    """Return a note if each voxel has its own delay of the input. Return a note, too, if frames are
    so far apart that the delay and the plasma volume vp cannot be told apart.
    """
    if kinetics.arterial is None:  # without an input there is no delay
        return []
    if kinetics.settings.delay == "voxel":
        return [f"every voxel has its own delay of the input, within {DELAY_RANGE_S:g} s"]
    interval = float(np.median(np.diff(kinetics.times)))
    with_vp = {"extended_tofts", "patlak"} & set(kinetics.settings.models)
    if interval < _SPARSE_S or not with_vp:
        return []
    return [
        f"frames are {interval:.1f} s apart: the bolus passes between them, and vp may come out a "
        "fifth too large or more; features.perfusion.delay: voxel lessens that"
    ]


def _checked_mask(dynamic: Dynamic, mask: np.ndarray | None) -> np.ndarray:
    """Return a mask on the grid of the dynamic series; without a mask, every voxel counts."""
    if mask is None:
        return np.ones(dynamic.grid.shape, bool)
    if mask.shape != dynamic.grid.shape:
        raise CadError(f"mask of shape {mask.shape} on a dynamic grid of {dynamic.grid.shape}")
    if not mask.any():
        raise CadError("the mask has no voxel on the grid of the dynamic series")
    return mask.astype(bool)


def _all_maps(
    kinetics: Kinetics, dynamic: Dynamic, t1: np.ndarray, b1: np.ndarray | None, inside: np.ndarray
) -> dict[str, Volume]:
    """Return every map by name, computed in the voxels ``inside`` and NaN elsewhere.

    ``t1`` (s) and ``b1`` (ratio of actual to stated flip angle; None for 1) are on the grid of the
    dynamic series.
    """
    voxels = np.flatnonzero(inside)
    flat_frames = dynamic.frames.reshape(len(dynamic.frames), -1)
    flat_t1 = t1.reshape(-1)
    maps: dict[str, np.ndarray] = {}
    for start in range(0, len(voxels), _CHUNK):
        chunk = voxels[start : start + _CHUNK]
        signal = np.ascontiguousarray(flat_frames[:, chunk].T, dtype=float)
        chunk_b1 = None if b1 is None else b1.reshape(-1)[chunk]
        values, fits, _ = _fit_chunk(kinetics, signal, flat_t1[chunk], chunk_b1)
        for model, fit in fits.items():
            values |= {f"{model}_{name}": value for name, value in fit.parameters.items()}
            values |= {f"{model}_r2": fit.r2, f"{model}_residual": fit.residual}
            values[f"{model}_did_not_fit"] = fit.failed.astype(float)
        for name, value in values.items():
            if name not in maps:
                maps[name] = np.full(inside.size, np.nan, np.float32)
            maps[name][chunk] = value
    return {
        name: dynamic.grid.with_array(array.reshape(inside.shape)) for name, array in maps.items()
    }


def _fit_chunk(
    kinetics: Kinetics, signal: np.ndarray, t1: np.ndarray, b1: np.ndarray | None
) -> tuple[dict[str, np.ndarray], dict[str, models.KineticFit], np.ndarray | None]:
    """Measure and fit the curves of voxels, shape (n_voxels, n_times).

    Return the values that need no kinetic model (such as the relative enhancement), the fits of the
    models, and the concentrations. The concentrations are None if they cannot be computed.
    """
    times = kinetics.times
    bolus = kinetics.bolus
    settings = kinetics.settings
    baseline = spgr.baseline_signal(signal, bolus.n_baseline)
    values = semiquantitative(times, signal, baseline, bolus.arrival)
    fits: dict[str, models.KineticFit] = {}
    concentration = None
    if kinetics.sequence is not None:
        concentration = kinetics.concentration(signal, t1, b1)
        for seconds in (60.0, 90.0):
            # A series that ends before has no such area.
            if bolus.arrival + seconds <= times[-1]:
                values[f"iauc{seconds:.0f}"] = initial_area(
                    times, concentration, bolus.arrival, seconds
                )
    if concentration is not None and kinetics.arterial is not None:
        tissue_fits, delays = _tissue_fits(kinetics, kinetics.arterial, concentration)
        fits |= tissue_fits
        if delays is not None:
            # A curve without a concentration was not fitted, and has no delay.
            is_fitted = np.isfinite(concentration).all(axis=1)
            delays_from_study = delays - kinetics.arterial.delay
            values["input_delay"] = np.where(is_fitted, delays_from_study, np.nan)
    if "brix" in settings.models:
        # Where the baseline is not positive, the relative enhancement is unknown (NaN).
        positive_baseline = np.where(baseline > 0, baseline, np.nan)[:, None]
        enhancement = signal / positive_baseline - 1.0
        fits["brix"] = models.fit_brix(enhancement, times, bolus.arrival, refine=settings.refine)
    return values, fits, concentration


def _tissue_fits(
    kinetics: Kinetics, arterial: ArterialInput, concentration: np.ndarray
) -> tuple[dict[str, models.KineticFit], np.ndarray | None]:
    """Fit the models that need an arterial input, and return the fits and the delays of the curves.

    The delays (s) are None where all curves share the study's delay.
    """
    settings = kinetics.settings
    refine = settings.refine
    fitters: dict[str, Callable[[np.ndarray, InputFunction], models.KineticFit]] = {
        "tofts": partial(models.fit_tofts, refine=refine),
        "extended_tofts": partial(models.fit_extended_tofts, refine=refine),
        "patlak": models.fit_patlak,
    }
    wanted = {name: fit for name, fit in fitters.items() if name in settings.models}
    if settings.delay == "study":
        inlet = arterial.inlet(arterial.delay)
        return {name: fit(concentration, inlet) for name, fit in wanted.items()}, None
    bounds = (arterial.delay - DELAY_RANGE_S, arterial.delay + DELAY_RANGE_S)
    delays = models.curve_delays(concentration, arterial.inlet, bounds)
    # If a voxel's best delay lies on its bound, a delay beyond the bound might fit better still.
    # The fit then counts as failed.
    on_bound = (delays <= bounds[0]) | (delays >= bounds[1])
    fits: dict[str, models.KineticFit] = {}
    for name, fit in wanted.items():
        model_fit = models.fit_each_at(fit, concentration, arterial.inlet, delays)
        fits[name] = replace(model_fit, failed=model_fit.failed | on_bound)
    return fits, delays


def _quality_notes(maps: dict[str, Volume], inside: np.ndarray) -> list[str]:
    """Return notes on the voxels in which a model did not fit, or the concentration is unknown."""
    notes = []
    n_voxels = int(inside.sum())
    for model in ("tofts", "extended_tofts", "brix", "patlak"):
        did_not_fit = maps.get(f"{model}_did_not_fit")
        if did_not_fit is None:  # the settings do not name this model
            continue
        n_failed = int((did_not_fit.array[inside] > 0).sum())
        if n_failed:
            notes.append(f"{model}: did not fit in {n_failed} of {n_voxels} voxels")
    # The initial area is NaN wherever the concentration is unknown.
    if "iauc60" in maps:
        n_unknown = int((~np.isfinite(maps["iauc60"].array[inside])).sum())
        if n_unknown:
            notes.append(
                f"concentration unknown (saturated signal or no baseline signal) in {n_unknown} of "
                f"{n_voxels} voxels"
            )
    return notes
