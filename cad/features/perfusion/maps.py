"""From a study's dynamic series to parameter maps and region curves.

``perfusion_maps`` finds the bolus, makes the T1 map, converts signal to concentration, chooses the
arterial input and fits every model that the settings name. Map names: ``relative_enhancement``,
``tofts_ktrans``, ... (``definitions.MAPS`` has units and sources); features put ``dce_`` in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from cad.errors import CadError
from cad.features.perfusion import concentration as spgr
from cad.features.perfusion.aif import (
    InputFunction,
    parker_input,
    plasma_from_blood,
    sampled_input,
)
from cad.features.perfusion.definitions import MAPS
from cad.features.perfusion.models import (
    KineticFit,
    best_delay,
    fit_brix,
    fit_extended_tofts,
    fit_tofts,
)
from cad.features.perfusion.semiquantitative import (
    Bolus,
    find_bolus,
    initial_area,
    semiquantitative,
)
from cad.features.perfusion.t1 import fit_t1
from cad.imaging.geometry import resample_image, resample_mask
from cad.imaging.study import Study
from cad.imaging.volume import Dynamic, Volume
from cad.settings import PerfusionSettings

# Voxels worked on at once: concentrations and fits of a chunk stay in the processor's cache.
_CHUNK = 2048
# Delay between population input and tissue is looked for around the arrival seen in the tissue.
_ARRIVAL_SEARCH_S = (-12.0, 6.0)
_VESSEL_DELAY_S = (-2.0, 8.0)
_TRIM = 0.05
_REFERENCE_VOXELS = 20_000
# A measured input below this peak (mM in plasma) is inflow or partial volume, not an artery.
_MIN_INPUT_PEAK = 0.5


@dataclass(frozen=True, eq=False)
class RegionCurve:
    """Mean curve of one region, its concentration and its fits.

    Parameters
    ----------
    time_s : ndarray, shape (n_times,)
        Seconds.
    signal : ndarray, shape (n_times,)
        Mean signal, arbitrary units.
    concentration_mM : ndarray, shape (n_times,)
        NaN when it cannot be known.
    fit_mM : ndarray, shape (n_times,)
        Fit of the extended Tofts model, or of Tofts where that alone is asked for.
    params : dict of str to float
        ``<model>_<parameter>`` of the mean curve.
    """

    time_s: np.ndarray
    signal: np.ndarray
    concentration_mM: np.ndarray
    fit_mM: np.ndarray
    params: dict[str, float]


@dataclass(frozen=True, eq=False)
class _Kinetics:
    """What turns signals of this study into parameters."""

    times: np.ndarray
    bolus: Bolus
    settings: PerfusionSettings
    sequence: tuple[float, float] | None
    inlet: InputFunction | None

    def concentration(self, signal: np.ndarray, t1: np.ndarray) -> np.ndarray:
        if self.sequence is None:
            raise CadError("no concentration without repetition time and flip angle")
        baseline = spgr.baseline_signal(signal, self.bolus.n_baseline)
        return spgr.concentration_from_signal(
            signal, baseline, t1, *self.sequence, self.settings.relaxivity
        )


@dataclass(frozen=True, eq=False)
class PerfusionMaps:
    """Parameter maps of one study.

    Parameters
    ----------
    maps : dict of str to Volume
        float32 on the DCE grid, NaN outside the mask and where the signal gives no concentration.
    times : ndarray, shape (n_times,)
        Seconds.
    arrival : float
        Bolus arrival, seconds.
    n_baseline : int
        Frames before it.
    input_mM : ndarray, shape (n_times,)
        Plasma input at the frames; NaN where kinetic models were not possible.
    input_kind : str
        ``parker``, ``measured`` or ``none``.
    notes : list of str
        What was assumed, replaced or left out.
    """

    maps: dict[str, Volume]
    times: np.ndarray
    arrival: float
    n_baseline: int
    input_mM: np.ndarray
    input_kind: str
    notes: list[str]
    _kinetics: _Kinetics = field(repr=False)
    _dynamic: Dynamic = field(repr=False)
    _t1: np.ndarray = field(repr=False)

    def curve(self, mask: np.ndarray) -> RegionCurve:
        """Mean curve of a region and the fits of that mean.

        Parameters
        ----------
        mask : ndarray of bool, shape (n_z, n_y, n_x)
            On the DCE grid, not empty.
        """
        if not mask.any():
            raise CadError("the region has no voxel on the grid of the dynamic series")
        signal = self._dynamic.frames[:, mask].mean(axis=1, dtype=float)[None]
        t1 = np.array([np.nanmean(self._t1[mask])])
        _, fits, concentration = _fit_chunk(self._kinetics, signal, t1)
        shown = fits.get("extended_tofts") or fits.get("tofts")
        params = {
            f"{model}_{name}": float(values[0])
            for model, fit in fits.items()
            for name, values in (*fit.parameters.items(), ("r2", fit.r2))
        }
        nothing = np.full(len(self.times), np.nan)
        return RegionCurve(
            self.times,
            signal[0],
            nothing if concentration is None else concentration[0],
            nothing if shown is None else shown.fitted[0],
            params,
        )


def perfusion_maps(
    study: Study, settings: PerfusionSettings, mask: np.ndarray | None = None
) -> PerfusionMaps:
    """Parameter maps of a study's dynamic series.

    Parameters
    ----------
    study : Study
        With a dynamic series; flip-angle images, gland and vessel masks are used where present.
    settings : PerfusionSettings
        T1, relaxivity, haematocrit, input function, models, refinement.
    mask : ndarray of bool, shape of the DCE grid, optional
        Where to compute; everywhere by default. Bolus and delay do not depend on it when the study
        has a gland mask or regions.

    Returns
    -------
    PerfusionMaps
        Without TR or flip angle only what needs no concentration, with a note.

    Raises
    ------
    CadError
        Naming the patient: no dynamic series, no bolus, no baseline frame, empty mask, flip-angle
        images that were asked for and are absent or unusable, a measured input that is none.
    """
    try:
        return _perfusion_maps(study, settings, mask)
    except CadError as error:
        raise error.at(patient=study.participant_id) from None


def _perfusion_maps(
    study: Study, settings: PerfusionSettings, mask: np.ndarray | None
) -> PerfusionMaps:
    dynamic = _dynamic_of(study)
    inside = _inside(dynamic, mask)
    notes: list[str] = []
    times = np.asarray(dynamic.times, float)
    reference, mean_signal, bolus = _find_reference(study, dynamic, inside, notes)
    t1 = _t1_map(study, settings, dynamic, inside | reference, notes)
    sequence = _sequence(dynamic, notes)
    inlet, kind = _choose_input(
        study, settings, dynamic, bolus, sequence, mean_signal, np.nanmean(t1[reference]), notes
    )
    kinetics = _Kinetics(times, bolus, settings, sequence, inlet)
    maps = _all_maps(kinetics, dynamic, t1, inside)
    maps["t1"] = dynamic.grid.with_array(np.where(inside, t1, np.nan).astype(np.float32))
    notes += _quality_notes(maps, inside)
    return PerfusionMaps(
        {name: maps[name] for name in MAPS if name in maps},
        times,
        bolus.arrival,
        bolus.n_baseline,
        np.full(len(times), np.nan) if inlet is None else inlet.plasma[inlet.at_frames],
        kind,
        notes,
        kinetics,
        dynamic,
        t1,
    )


def _dynamic_of(study: Study) -> Dynamic:
    if study.dce is None:
        raise CadError(
            "the study has no dynamic series",
            hint="leave 'dce' out of features.modalities for this study",
        )
    return study.dce


def _inside(dynamic: Dynamic, mask: np.ndarray | None) -> np.ndarray:
    if mask is None:
        return np.ones(dynamic.grid.shape, bool)
    if mask.shape != dynamic.grid.shape:
        raise CadError(f"mask of shape {mask.shape} on a dynamic grid of {dynamic.grid.shape}")
    if not mask.any():
        raise CadError("the mask has no voxel on the grid of the dynamic series")
    return mask.astype(bool)


def _find_reference(
    study: Study, dynamic: Dynamic, inside: np.ndarray, notes: list[str]
) -> tuple[np.ndarray, np.ndarray, Bolus]:
    """Region that shows the bolus, its mean signal, and the bolus.

    The gland, else the regions, else the mask, else the whole image: a study whose regions are
    cysts has a bolus all the same.
    """
    regions = {"gland": study.gland, "regions": study.roi_map}
    candidates = {
        name: np.asarray(resample_mask(mask, dynamic.grid).array, bool)
        for name, mask in regions.items()
        if mask is not None
    }
    candidates |= {"mask": inside, "whole image": np.ones(dynamic.grid.shape, bool)}
    first: CadError | None = None
    for name, region in candidates.items():
        if not region.any():
            continue
        mean_signal = _robust_mean(dynamic.frames[:, region])
        try:
            bolus = find_bolus(np.asarray(dynamic.times, float), mean_signal)
        except CadError as error:
            first = first or error
            continue
        if first is not None:
            notes.append(f"bolus found in the {name}: {first.problem}")
        return region, mean_signal, bolus
    raise first or CadError("the dynamic series has no voxel")


def _robust_mean(signals: np.ndarray) -> np.ndarray:
    """Mean over voxels (n_times, n_voxels) without a twentieth at both ends of every frame.

    A saturated vessel or a voxel of air must not decide where the bolus is.
    """
    thinned = signals[:, :: max(signals.shape[1] // _REFERENCE_VOXELS, 1)].astype(float)
    cut = int(_TRIM * thinned.shape[1])
    return np.sort(thinned, axis=1)[:, cut : thinned.shape[1] - cut].mean(axis=1)


def _t1_map(
    study: Study,
    settings: PerfusionSettings,
    dynamic: Dynamic,
    needed: np.ndarray,
    notes: list[str],
) -> np.ndarray:
    """T1 (s) on the DCE grid; the fixed value where flip angles give none."""
    fixed = np.full(dynamic.grid.shape, settings.t1_tissue)
    if settings.t1 == "fixed":
        notes.append(f"tissue T1 fixed at {settings.t1_tissue:g} s")
        return fixed
    try:
        fit_notes, t1 = _t1_from_flip_angles(study, dynamic, needed)
    except CadError as error:
        if settings.t1 == "vfa":
            raise
        notes.append(f"tissue T1 fixed at {settings.t1_tissue:g} s: {error.problem}")
        return fixed
    notes += fit_notes
    lost = needed & ~np.isfinite(t1)
    if lost.any():
        notes.append(
            f"T1 fixed at {settings.t1_tissue:g} s in {int(lost.sum())} of {int(needed.sum())} "
            "voxels, where the flip angles give none"
        )
    return np.where(np.isfinite(t1), t1, settings.t1_tissue)


def _t1_from_flip_angles(
    study: Study, dynamic: Dynamic, needed: np.ndarray
) -> tuple[list[str], np.ndarray]:
    if not study.vfa:
        raise CadError(
            "no flip-angle images", hint="set t1: fixed, or import the flip-angle series"
        )
    if study.vfa_repetition_time is None:
        raise CadError(
            "the repetition time of the flip-angle images is missing",
            hint="add RepetitionTime (seconds) to their JSON sidecars",
        )
    signals = np.stack(
        [
            (v if v.same_grid(dynamic.grid) else resample_image(v, dynamic.grid)).array[needed]
            for _, v in study.vfa
        ]
    )
    fit = fit_t1(signals, np.array([a for a, _ in study.vfa]), study.vfa_repetition_time)
    t1 = np.full(dynamic.grid.shape, np.nan)
    t1[needed] = fit.t1
    return list(fit.notes), t1


def _sequence(dynamic: Dynamic, notes: list[str]) -> tuple[float, float] | None:
    try:
        return spgr.check_sequence(dynamic.repetition_time, dynamic.flip_angle)
    except CadError as error:
        notes.append(f"no concentration, so no Tofts models and no initial areas: {error}")
        return None


def _choose_input(
    study: Study,
    settings: PerfusionSettings,
    dynamic: Dynamic,
    bolus: Bolus,
    sequence: tuple[float, float] | None,
    mean_signal: np.ndarray,
    mean_t1: float,
    notes: list[str],
) -> tuple[InputFunction | None, str]:
    if sequence is None:
        return None, "none"
    kinetics = _Kinetics(np.asarray(dynamic.times, float), bolus, settings, sequence, None)
    tissue = kinetics.concentration(mean_signal[None], np.array([mean_t1]))
    if not np.isfinite(tissue).all():
        notes.append("no kinetic models: the mean dynamic signal is saturated")
        return None, "none"
    if settings.arterial_input != "parker" and (
        study.vessel is not None or settings.arterial_input == "measured"
    ):
        try:
            plasma = _measured(study, kinetics, dynamic)
        except CadError as error:
            if settings.arterial_input == "measured":
                raise
            notes.append(f"population input function: {error.problem}")
        else:
            inlet, delay = _delayed(
                lambda d: sampled_input(kinetics.times, plasma, d), _VESSEL_DELAY_S, tissue
            )
            notes.append(f"input measured in the vessel mask, {delay:.1f} s before the tissue")
            return inlet, "measured"
    inlet, delay = _delayed(
        lambda d: parker_input(kinetics.times, d, settings.haematocrit),
        (bolus.arrival + _ARRIVAL_SEARCH_S[0], bolus.arrival + _ARRIVAL_SEARCH_S[1]),
        tissue,
    )
    notes.append(f"population input (Parker), arriving at {delay:.1f} s")
    return inlet, "parker"


def _measured(study: Study, kinetics: _Kinetics, dynamic: Dynamic) -> np.ndarray:
    """Plasma concentration (mM) at the frames from the vessel mask's mean signal."""
    if study.vessel is None:
        raise CadError(
            "no vessel mask for a measured input function",
            hint="add masks/*_vessel.nii.gz or set arterial_input: auto",
        )
    vessel = np.asarray(resample_mask(study.vessel, dynamic.grid).array, bool)
    if not vessel.any():
        raise CadError("the vessel mask has no voxel on the grid of the dynamic series")
    settings = kinetics.settings
    signal = dynamic.frames[:, vessel].mean(axis=1, dtype=float)
    own = find_bolus(kinetics.times, signal)
    blood = _Kinetics(kinetics.times, own, settings, kinetics.sequence, None).concentration(
        signal[None], np.array([settings.t1_blood])
    )[0]
    if not np.isfinite(blood).all():
        raise CadError(
            f"the signal in the vessel mask is saturated in {int((~np.isfinite(blood)).sum())} "
            "frames",
            hint="set arterial_input: parker",
        )
    plasma = plasma_from_blood(blood, settings.haematocrit)
    if plasma.max() < _MIN_INPUT_PEAK:
        raise CadError(
            f"the vessel mask peaks at {plasma.max():.2g} mM in plasma; an artery reaches at "
            f"least {_MIN_INPUT_PEAK:g} mM",
            hint="redraw the vessel mask or set arterial_input: parker",
        )
    return plasma


def _delayed(
    make: Callable[[float], InputFunction], bounds: tuple[float, float], tissue: np.ndarray
) -> tuple[InputFunction, float]:
    """The input at the delay whose refined fit of the mean tissue curve is best."""
    delay = best_delay(
        lambda d: float(fit_extended_tofts(tissue, make(d), refine=True).residual[0]), bounds
    )
    return make(delay), delay


def _all_maps(
    kinetics: _Kinetics, dynamic: Dynamic, t1: np.ndarray, inside: np.ndarray
) -> dict[str, Volume]:
    index = np.flatnonzero(inside)
    flat = dynamic.frames.reshape(len(dynamic.frames), -1)
    t1_flat = t1.reshape(-1)
    found: dict[str, np.ndarray] = {}
    for start in range(0, len(index), _CHUNK):
        part = index[start : start + _CHUNK]
        signal = np.ascontiguousarray(flat[:, part].T, dtype=float)
        values, fits, _ = _fit_chunk(kinetics, signal, t1_flat[part])
        for name, value in (*values.items(), *_fit_values(fits)):
            if name not in found:
                found[name] = np.full(inside.size, np.nan, np.float32)
            found[name][part] = value
    return {name: dynamic.grid.with_array(a.reshape(inside.shape)) for name, a in found.items()}


def _fit_chunk(
    kinetics: _Kinetics, signal: np.ndarray, t1: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, KineticFit], np.ndarray | None]:
    """Semi-quantitative values, model fits and concentrations of curves (n_voxels, n_times)."""
    times, bolus, settings = kinetics.times, kinetics.bolus, kinetics.settings
    baseline = spgr.baseline_signal(signal, bolus.n_baseline)
    values = semiquantitative(times, signal, baseline, bolus.arrival)
    fits: dict[str, KineticFit] = {}
    concentration = None
    if kinetics.sequence is not None:
        concentration = kinetics.concentration(signal, t1)
        for seconds in (60.0, 90.0):
            if bolus.arrival + seconds <= times[-1]:
                values[f"iauc{seconds:.0f}"] = initial_area(
                    times, concentration, bolus.arrival, seconds
                )
    if concentration is not None and kinetics.inlet is not None:
        if "tofts" in settings.models:
            fits["tofts"] = fit_tofts(concentration, kinetics.inlet, settings.refine)
        if "extended_tofts" in settings.models:
            fits["extended_tofts"] = fit_extended_tofts(
                concentration, kinetics.inlet, settings.refine
            )
    if "brix" in settings.models:
        positive = np.where(baseline > 0, baseline, np.nan)[:, None]
        fits["brix"] = fit_brix(signal / positive - 1.0, times, bolus.arrival, settings.refine)
    return values, fits, concentration


def _fit_values(fits: dict[str, KineticFit]) -> Iterator[tuple[str, np.ndarray]]:
    for model, fit in fits.items():
        for name, value in fit.parameters.items():
            yield f"{model}_{name}", value
        yield f"{model}_r2", fit.r2
        yield f"{model}_residual", fit.residual
        yield f"{model}_did_not_fit", fit.failed.astype(float)


def _quality_notes(maps: dict[str, Volume], inside: np.ndarray) -> list[str]:
    notes = []
    count = int(inside.sum())
    for model in ("tofts", "extended_tofts", "brix"):
        failed = maps.get(f"{model}_did_not_fit")
        if failed is None:
            continue
        lost = int((failed.array[inside] > 0).sum())
        if lost:
            notes.append(f"{model}: did not fit in {lost} of {count} voxels")
    if "iauc60" in maps:
        unknown = int((~np.isfinite(maps["iauc60"].array[inside])).sum())
        if unknown:
            notes.append(
                f"concentration unknown (saturated signal or no baseline signal) in {unknown} of "
                f"{count} voxels"
            )
    return notes
