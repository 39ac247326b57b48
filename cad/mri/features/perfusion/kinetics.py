"""Prepare the fit of a dynamic series: bolus, T1 map, sequence and arterial input.

Each function appends to ``notes`` a sentence on each value that it assumed, replaced or left out.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cad.base.errors import CadError
from cad.base.settings import PerfusionSettings
from cad.mri.features.perfusion import aif
from cad.mri.features.perfusion import concentration as spgr
from cad.mri.features.perfusion.models import best_delay, fit_extended_tofts
from cad.mri.features.perfusion.semiquantitative import Bolus, find_bolus
from cad.mri.features.perfusion.t1 import T1_BLOOD_S, T1_TISSUE_S, assumed_t1, fit_t1
from cad.mri.imaging.geometry import on_grid, resample_image, resample_mask
from cad.mri.imaging.study import Protocol, Study
from cad.mri.imaging.volume import Dynamic

# Least and largest delay (s) of the arterial input that is tried in the search. The first pair
# holds for a population's input, and is counted from the arrival of the bolus in the tissue. The
# second pair holds for an input that is measured in a vessel.
_ARRIVAL_SEARCH_S = (-12.0, 6.0)
_VESSEL_DELAY_S = (-2.0, 8.0)
# Share of the voxels that is left out at the low end, and at the high end, of a robust mean.
_TRIM = 0.05
# Lowest peak (mM in plasma) of an input that is measured in a vessel. An input with a lower peak is
# refused: inflow of blood, or voxels that only partly lie in the vessel, must have lowered it.
_MIN_INPUT_PEAK = 0.5


@dataclass(frozen=True, eq=False)
class Kinetics:
    """Hold the inputs that turn one study's dynamic signal into concentrations and parameters.

    Parameters
    ----------
    times : ndarray, shape (n_times,)
        Times of the frames, seconds.
    bolus : Bolus
        Arrival of the contrast agent.
    settings : PerfusionSettings
        Models, relaxivity, input function.
    sequence : (float, float) or None
        Repetition time (s) and flip angle (degrees); None without usable values.
    arterial : ArterialInput or None
        Arterial input of the tissue models; None where no concentration can be computed.
    """

    times: np.ndarray
    bolus: Bolus
    settings: PerfusionSettings
    sequence: tuple[float, float] | None
    arterial: aif.ArterialInput | None

    @cached_property
    def inlet(self) -> aif.InputFunction | None:
        """Return the arterial input, moved by the study's delay; None if the study has no input."""
        return None if self.arterial is None else self.arterial.inlet(self.arterial.delay)

    def concentration(
        self, signal: np.ndarray, t1: np.ndarray, b1: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the concentration (mM) of dynamic signals, shape (..., n_times).

        Parameters
        ----------
        signal : ndarray, shape (..., n_times)
            Signal of each curve over time, arbitrary units.
        t1 : ndarray, shape (...)
            T1 before contrast, seconds.
        b1 : ndarray, shape (...), optional
            Ratio of the actual to the stated flip angle; 1 by default.

        Raises
        ------
        CadError
            Without repetition time and flip angle.
        """
        if self.sequence is None:
            raise CadError("no concentration without repetition time and flip angle")
        repetition_time, angle = self.sequence
        baseline = spgr.baseline_signal(signal, self.bolus.n_baseline)
        actual_angle = angle if b1 is None else angle * b1
        return spgr.concentration_from_signal(
            signal, baseline, t1, repetition_time, actual_angle, self.settings.relaxivity
        )


def find_reference(
    study: Study, dynamic: Dynamic, inside: np.ndarray, notes: list[str]
) -> tuple[np.ndarray, np.ndarray, Bolus]:
    """Find the region that shows the contrast bolus, its mean signal and when the bolus arrives.

    The gland, the regions, ``inside`` and the whole image are tried in turn, and the first that
    shows a bolus is taken. There may be none in the regions, for example if they are cysts.

    Parameters
    ----------
    study : Study
        Study with or without gland mask and regions.
    dynamic : Dynamic
        The dynamic series.
    inside : ndarray of bool, shape (z, y, x)
        Voxels that will be measured.
    notes : list of str
        List to which a sentence is appended if the first choice shows no bolus.

    Returns
    -------
    reference : ndarray of bool, shape (z, y, x)
        The region that was taken.
    mean : ndarray, shape (n_times,)
        Mean signal of this region, without the lowest and highest twentieth of its voxels in each
        frame.
    bolus : Bolus
        Arrival of the bolus in this mean signal.

    Raises
    ------
    CadError
        Where the gland, the regions, ``inside`` and the whole image show no bolus.

    Examples
    --------
    The study has neither gland nor regions. Two of four voxels are measured, and they show the
    bolus:

    >>> import numpy as np
    >>> from cad.mri.imaging.volume import Volume
    >>> times = np.arange(0.0, 50.0, 5.0)
    >>> frames = np.full((10, 1, 2, 2), 100.0, np.float32)
    >>> frames[4:, 0, 0] = 250.0
    >>> grid = Volume(frames[0], (1.0, 1.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> dynamic = Dynamic(frames, grid, times)
    >>> inside = np.array([[[True, True], [False, False]]])
    >>> study = Study("sub-1", "sub-1", dce=dynamic)
    >>> reference, mean, bolus = find_reference(study, dynamic, inside, [])
    >>> int(reference.sum()), mean[[0, -1]].tolist(), bolus.n_baseline
    (2, [100.0, 250.0], 3)
    """
    regions = {"gland": study.gland, "regions": study.roi_map}
    candidates = {}
    for name, mask in regions.items():
        if mask is not None:
            candidates[name] = np.asarray(resample_mask(mask, dynamic.grid).array, bool)
    # The candidates are tried in this order, the smallest region first. The larger a region is, the
    # more do fat and muscle in it hide the bolus.
    candidates |= {"mask": inside, "whole image": np.ones(dynamic.grid.shape, bool)}
    first_error: CadError | None = None
    for name, region in candidates.items():
        if not region.any():  # the mask lies outside of the dynamic series
            continue
        mean_signal = _robust_mean(dynamic.frames[:, region])
        try:
            bolus = find_bolus(np.asarray(dynamic.times, float), mean_signal)
        except CadError as error:
            # If no candidate shows a bolus, the error of the first candidate is raised, because the
            # bolus was most to be expected there.
            if first_error is None:
                first_error = error
            continue
        if first_error is not None:
            notes.append(f"bolus found in the {name}: {first_error.problem}")
        return region, mean_signal, bolus
    if first_error is not None:
        raise first_error
    raise CadError("the dynamic series has no voxel")


def _robust_mean(signals: np.ndarray) -> np.ndarray:
    """Return the mean over voxels in each frame, without the frame's lowest and highest twentieth.

    ``signals`` has shape (n_times, n_voxels). Without the extremes, no saturated vessel and no
    voxel of air decides when the bolus arrives.
    """
    n_voxels = signals.shape[1]
    n_cut = int(_TRIM * n_voxels)
    middle = slice(n_cut, n_voxels - n_cut)
    # The extremes are found in each frame anew, because a vessel is extreme only in early frames.
    middle_signals = (
        np.partition(frame, [n_cut, n_voxels - n_cut - 1])[middle] for frame in signals
    )
    # The mean is computed in float64. In float32, the sum of 10^5 signals would lose digits that
    # the baseline needs.
    return np.array([curve.mean(dtype=float) for curve in middle_signals])


def b1_map(
    study: Study,
    settings: PerfusionSettings,
    dynamic: Dynamic,
    needed: np.ndarray,
    notes: list[str],
) -> np.ndarray | None:
    """Return the ratio of actual to stated flip angle on the grid of the dynamic series.

    Parameters
    ----------
    study : Study
        Study with or without a map of the transmit field.
    settings : PerfusionSettings
        Settings, of which ``b1`` says whether the map of the transmit field is used.
    dynamic : Dynamic
        The dynamic series, whose grid is used.
    needed : ndarray of bool, shape (z, y, x)
        Voxels in which the map is needed.
    notes : list of str
        Gets sentences on assumed or missing values, in place.

    Returns
    -------
    ndarray, shape (z, y, x), or None
        The ratio; None if flip angles are taken as stated.

    Raises
    ------
    CadError
        If the settings demand a map that the study lacks.

    Examples
    --------
    In a field of 0.9 every flip angle is nine tenths of the stated angle:

    >>> import numpy as np
    >>> from cad.mri.imaging.volume import Volume
    >>> grid = Volume(np.ones((1, 2, 2)), (1.0, 1.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> dynamic = Dynamic(np.ones((2, 1, 2, 2)), grid, np.array([0.0, 5.0]))
    >>> study = Study("sub-1", "sub-1", dce=dynamic, b1=grid.with_array(np.full((1, 2, 2), 0.9)))
    >>> notes = []
    >>> needed = np.ones((1, 2, 2), bool)
    >>> b1_map(study, PerfusionSettings(), dynamic, needed, notes).round(2).tolist()
    [[[0.9, 0.9], [0.9, 0.9]]]
    >>> notes
    ['flip angles corrected by the transmit field, median 0.90']
    """
    if settings.b1 == "none" or (settings.b1 == "auto" and study.b1 is None):
        notes.append(
            "flip angles as stated, without a map of the transmit field: where the field is .85 of "
            "the stated one, Ktrans comes out 1.4 times too large"
        )
        return None
    if study.b1 is None:
        raise CadError(
            "no map of the transmit field",
            hint="add fmap/*_TB1map.nii.gz, or set features.perfusion.b1: none for all studies",
        )
    ratio = resample_image(study.b1, dynamic.grid).array.astype(float)
    valid = np.isfinite(ratio)
    if not valid[needed].any():
        raise CadError("the map of the transmit field has no value where it is needed")
    n_without_value = int((needed & ~valid).sum())
    median = np.median(ratio[needed & valid])
    note = f"flip angles corrected by the transmit field, median {median:.2f}"
    if n_without_value:
        note += f"; as stated in {n_without_value} of {int(needed.sum())} voxels without a value"
    notes.append(note)
    # A voxel for which the map has no value keeps the stated flip angle.
    return np.where(valid, ratio, 1.0)


def t1_map(
    study: Study,
    settings: PerfusionSettings,
    dynamic: Dynamic,
    needed: np.ndarray,
    b1: np.ndarray | None,
    notes: list[str],
) -> tuple[np.ndarray, str]:
    """Return T1 in seconds on the grid of the dynamic series, and where it comes from.

    Parameters
    ----------
    study : Study
        Study with or without flip-angle images.
    settings : PerfusionSettings
        Settings: whether T1 is measured (``t1``), and which T1 is assumed.
    dynamic : Dynamic
        The dynamic series, whose grid is used.
    needed : ndarray of bool, shape (z, y, x)
        Voxels in which T1 is needed.
    b1 : ndarray, shape (z, y, x), or None
        Ratio of actual to stated flip angle; None for a ratio of 1.
    notes : list of str
        Gets sentences on assumed or missing values, in place.

    Returns
    -------
    t1 : ndarray, shape (z, y, x)
        Seconds; the assumed T1 in voxels where flip-angle images give none.
    source : str
        ``fixed`` for an assumed T1, else how T1 was measured.

    Examples
    --------
    Without flip-angle images T1 is assumed, and a note says so:

    >>> import numpy as np
    >>> from cad.mri.imaging.volume import Volume
    >>> grid = Volume(np.ones((1, 1, 2)), (1.0, 1.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> dynamic = Dynamic(np.ones((2, 1, 1, 2)), grid, np.array([0.0, 5.0]))
    >>> study = Study("sub-1", "sub-1", dce=dynamic)
    >>> notes = []
    >>> settings = PerfusionSettings(t1="fixed", t1_tissue=1.5)
    >>> t1_map(study, settings, dynamic, np.ones((1, 1, 2), bool), None, notes)
    (array([[[1.5, 1.5]]]), 'fixed')
    >>> notes
    ['tissue T1 fixed at 1.5 s']
    """
    assumed = settings.t1_tissue or assumed_t1(T1_TISSUE_S, _field_strength(study))
    fixed = np.full(dynamic.grid.shape, assumed)
    if settings.t1 == "fixed":
        notes.append(f"tissue T1 fixed at {assumed:g} s")
        return fixed, "fixed"
    try:
        fit_notes, t1 = _t1_from_flip_angles(study, dynamic, needed, b1)
    except CadError as error:
        # The setting ``t1: vfa`` demands that T1 is measured by flip angles. An assumed T1 must not
        # replace it then, because every concentration depends on T1.
        if settings.t1 == "vfa":
            raise
        notes.append(f"tissue T1 fixed at {assumed:g} s: {error.problem}")
        return fixed, "fixed"
    notes += fit_notes
    lacks_t1 = needed & ~np.isfinite(t1)
    if lacks_t1.any():
        notes.append(
            f"T1 fixed at {assumed:g} s in {int(lacks_t1.sum())} of {int(needed.sum())} "
            "voxels, where the flip angles give none"
        )
    return np.where(np.isfinite(t1), t1, assumed), "vfa"


def _field_strength(study: Study) -> float | None:
    """Return the field strength (T) of the dynamic series; None where it is unknown."""
    return study.protocols.get("dce", Protocol()).field_strength


def _t1_from_flip_angles(
    study: Study, dynamic: Dynamic, needed: np.ndarray, b1: np.ndarray | None
) -> tuple[list[str], np.ndarray]:
    """Return notes on the fit of T1 to the flip-angle images, and T1 (s) on the dynamic grid.

    T1 is NaN in voxels that are not ``needed``, and where the fit failed.
    """
    if not study.vfa:
        raise CadError(
            "no flip-angle images", hint="set t1: fixed, or import the flip-angle series"
        )
    if study.vfa_repetition_time is None:
        raise CadError(
            "the repetition time of the flip-angle images is missing",
            hint="add RepetitionTime (seconds) to their JSON sidecars",
        )
    # The signals are resampled to the dynamic grid before T1 is fitted, because a voxel of the
    # dynamic series may be larger than theirs. A larger voxel shows the mean of the signals in it,
    # and not the mean of T1.
    signals = np.stack([on_grid(image, dynamic.grid).array[needed] for _, image in study.vfa])
    angles = np.array([angle for angle, _ in study.vfa])
    b1_ratio = None if b1 is None else b1[needed]
    fit = fit_t1(signals, angles, study.vfa_repetition_time, b1=b1_ratio)
    t1 = np.full(dynamic.grid.shape, np.nan)
    t1[needed] = fit.t1
    return list(fit.notes), t1


def sequence_of(dynamic: Dynamic, notes: list[str]) -> tuple[float, float] | None:
    """Return repetition time (s) and flip angle (degrees); None where either cannot be used.

    Without both values, the signal cannot be converted to concentration.

    Parameters
    ----------
    dynamic : Dynamic
        The dynamic series.
    notes : list of str
        List to which the reason is appended where the result is None.
    """
    try:
        return spgr.check_sequence(dynamic.repetition_time, dynamic.flip_angle)
    except CadError as error:
        notes.append(f"no concentration, so no Tofts models and no initial areas: {error}")
        return None


def choose_input(
    study: Study,
    kinetics: Kinetics,
    dynamic: Dynamic,
    mean_signal: np.ndarray,
    t1: np.ndarray,
    b1: np.ndarray | None,
    reference: np.ndarray,
    notes: list[str],
) -> tuple[aif.ArterialInput | None, str]:
    """Choose the input function of the tissue models: measured in an artery, or of a population.

    Parameters
    ----------
    study : Study
        Study with or without a mask of an artery.
    kinetics : Kinetics
        Which input is wanted; when the bolus arrives; repetition time and flip angle.
    dynamic : Dynamic
        The dynamic series.
    mean_signal : ndarray, shape (n_times,)
        Mean signal of the reference region, in which the delay of the input is fitted.
    t1 : ndarray, shape (z, y, x)
        T1 of each voxel, seconds.
    b1 : ndarray, shape (z, y, x), or None
        Ratio of actual to stated flip angle; None for 1.
    reference : ndarray of bool, shape (z, y, x)
        Voxels of the reference region.
    notes : list of str
        Gets sentences on assumed or replaced values, in place.

    Returns
    -------
    arterial : ArterialInput or None
        At the delay that fits the reference region best. None where the signal gives no
        concentration.
    source : str
        ``measured``, ``parker`` or ``georgiou``; ``none`` without an input.

    Examples
    --------
    Where nobody drew an artery, Parker's population input is moved to where the tissue begins to
    enhance:

    >>> import numpy as np
    >>> from cad.mri.imaging.volume import Volume
    >>> times = np.arange(0.0, 120.0, 4.0)
    >>> mean = np.interp(times, [20.0, 50.0, 120.0], [100.0, 180.0, 200.0])
    >>> frames = np.tile(mean[:, None, None, None], (1, 1, 1, 2))
    >>> grid = Volume(frames[0], (1.0, 1.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> dynamic = Dynamic(frames, grid, times, repetition_time=0.005, flip_angle=12.0)
    >>> kinetics = Kinetics(
    ...     times, find_bolus(times, mean), PerfusionSettings(), (0.005, 12.0), None
    ... )
    >>> t1 = np.full((1, 1, 2), 1.6)
    >>> where = np.ones((1, 1, 2), bool)
    >>> study = Study("sub-1", "sub-1", dce=dynamic)
    >>> arterial, source = choose_input(study, kinetics, dynamic, mean, t1, None, where, [])
    >>> source, bool(10.0 < arterial.delay < 26.0)
    ('parker', True)
    """
    if kinetics.sequence is None:
        return None, "none"
    settings = kinetics.settings
    bolus = kinetics.bolus
    # The arterial input is delayed by the time with which a model fits the mean curve of the
    # reference region best. The reference region is the region in which the bolus is seen.
    mean_t1 = np.array([np.nanmean(t1[reference])])
    mean_concentration = kinetics.concentration(
        mean_signal[None], mean_t1, _mean_over_mask(b1, reference)
    )
    if not np.isfinite(mean_concentration).all():
        notes.append("no kinetic models: the mean dynamic signal is saturated")
        return None, "none"
    if settings.arterial_input == "measured" or (
        settings.arterial_input == "auto" and study.vessel is not None
    ):
        try:
            plasma = _artery_concentration(study, kinetics, dynamic, b1)
        except CadError as error:
            # A demanded input is not replaced by another one; with ``auto``, a population's is
            # used.
            if settings.arterial_input == "measured":
                raise
            notes.append(f"population input function: {error.problem}")
        else:
            measured_input = aif.ArterialInput("measured", kinetics.times, plasma=plasma)
            arterial = _delayed(measured_input, _VESSEL_DELAY_S, mean_concentration)
            notes.append(
                f"input measured in the vessel mask, {arterial.delay:.1f} s before the tissue"
            )
            return arterial, "measured"
    population = "georgiou" if settings.arterial_input == "georgiou" else "parker"
    arterial = _delayed(
        aif.ArterialInput(population, kinetics.times, haematocrit=settings.haematocrit),
        (bolus.arrival + _ARRIVAL_SEARCH_S[0], bolus.arrival + _ARRIVAL_SEARCH_S[1]),
        mean_concentration,
    )
    notes.append(
        f"population input ({population.capitalize()}), arriving at {arterial.delay:.1f} s"
    )
    return arterial, population


def _mean_over_mask(b1: np.ndarray | None, where: np.ndarray) -> np.ndarray | None:
    """Return the mean of a map over a mask, as an array of shape (1,); None without a map."""
    return None if b1 is None else np.array([b1[where].mean()])


def _artery_concentration(
    study: Study, kinetics: Kinetics, dynamic: Dynamic, b1: np.ndarray | None
) -> np.ndarray:
    """Return the concentration (mM) in an artery's plasma, from the vessel mask's mean signal."""
    if study.vessel is None:
        raise CadError(
            "no vessel mask for a measured input function",
            hint="add masks/*_vessel.nii.gz or set arterial_input: auto",
        )
    vessel = np.asarray(resample_mask(study.vessel, dynamic.grid).array, bool)
    if not vessel.any():
        raise CadError("the vessel mask has no voxel on the grid of the dynamic series")
    settings = kinetics.settings
    # The signals of the vessel are averaged first, and then converted to a concentration. A single
    # voxel near saturation would have no concentration.
    signal = dynamic.frames[:, vessel].mean(axis=1, dtype=float)
    # The bolus is searched again in the artery, because it reaches the artery seconds before the
    # tissue. The baseline of the artery's signal ends earlier.
    in_artery = replace(kinetics, bolus=find_bolus(kinetics.times, signal))
    t1_blood = settings.t1_blood or assumed_t1(T1_BLOOD_S, _field_strength(study))
    blood = in_artery.concentration(
        signal[None], np.array([t1_blood]), _mean_over_mask(b1, vessel)
    )[0]
    if not np.isfinite(blood).all():
        raise CadError(
            f"the signal in the vessel mask is saturated in {int((~np.isfinite(blood)).sum())} "
            "frames",
            hint="set arterial_input: parker",
        )
    # Contrast agent does not enter red cells. Its concentration in plasma is therefore its
    # concentration in blood divided by 1 - haematocrit.
    plasma: np.ndarray = blood / (1.0 - settings.haematocrit)
    if plasma.max() < _MIN_INPUT_PEAK:
        raise CadError(
            f"the vessel mask peaks at {plasma.max():.2g} mM in plasma; an artery reaches at "
            f"least {_MIN_INPUT_PEAK:g} mM",
            hint="redraw the vessel mask or set arterial_input: parker",
        )
    return plasma


def _delayed(
    arterial: aif.ArterialInput, bounds: tuple[float, float], tissue: np.ndarray
) -> aif.ArterialInput:
    """Return the arterial input at the delay with which a model fits the mean tissue curve best.

    The model is the extended Tofts model. ``bounds`` are the least and largest delay (s), and
    ``tissue`` is the mean curve (mM), shape (1, n_times).
    """

    def misfit(delay: float) -> float:
        return float(fit_extended_tofts(tissue, arterial.inlet(delay), refine=True).residual[0])

    return replace(arterial, delay=best_delay(misfit, bounds))
