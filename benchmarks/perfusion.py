"""Compare kinetic fits with ``scipy.optimize.curve_fit``, on the QIBA object at 70 phases.

``python -m benchmarks.perfusion`` prints the table; ``rows()`` gives the table to
``benchmarks.features``. ``python -m benchmarks.perfusion --limits`` prints the effect of step,
delay and transmit field on the parameters (docs/maps.md). Times are processor times of a single
thread (others may share the cores). Both sides fit the same noisy curves with the same model,
bounds and start. The reference's forward model is exact as well (one recursive filter per curve),
and not a slow loop.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.io import loadmat
from scipy.optimize import curve_fit
from scipy.signal import lfilter
from scipy.stats import spearmanr

from cad.mri.features.perfusion.aif import ArterialInput, InputFunction, parker_blood
from cad.mri.features.perfusion.concentration import baseline_signal, concentration_from_signal
from cad.mri.features.perfusion.maps import DELAY_RANGE_S
from cad.mri.features.perfusion.models import (
    KineticFit,
    best_delay,
    curve_delays,
    extended_tofts,
    fit_each_at,
    fit_extended_tofts,
    fit_tofts,
)
from cad.mri.features.perfusion.t1 import fit_t1

SHARED = Path(os.environ.get("CAD_REFERENCE_DATA", Path(__file__).parents[2] / "shared" / "data"))
N_PHASES, FIRST_S, STEP = 70, 55.0, 9  # every ninth sample of the object, that is every 4.5 s
NOISE_MM = 0.005
COPIES = 2000  # copies of the object's 30 voxels, each with different noise
REFERENCE_COPIES = 6  # copies that curve_fit gets: it needs milliseconds for each curve
LOWER, UPPER, START = (0.0, 1e-3, 0.0), (5.0, 1.0, 1.0), (0.6, 0.2, 0.01)

# Simulation for the table of limits: number of tissues, step and arrival of the contrast agent (s),
# duration (s), haematocrit.
TISSUES, FINE_S, ARRIVAL_S, LENGTH_S, HAEMATOCRIT = 300, 0.1, 30.0, 300.0, 0.42
TISSUE_RANGES = {"ktrans": (0.03, 0.40), "ve": (0.15, 0.50), "vp": (0.005, 0.06)}
LIMIT_NOISE_MM = 0.02
TR_S, ANGLE, ANGLES, T1_S, RELAXIVITY = 0.00385, 12.0, (2.0, 5.0, 10.0, 20.0), 1.6, 4.5

Row = tuple[str, str, str, bool]


def qiba_at_70_phases(fine: bool) -> tuple[np.ndarray, InputFunction, np.ndarray, np.ndarray]:
    """Return curves (30, 70), input, true Ktrans and ve; ``fine`` keeps 0.5 s input samples."""
    data = loadmat(SHARED / "qiba" / "qiba6.mat")
    times, plasma = data["t"][0], data["Cp"][0]
    signal = data["DCEdata"].reshape(len(times), 30).T.astype(float)
    curves = concentration_from_signal(
        signal, baseline_signal(signal, 2), np.ones(30), 0.005, 30.0, 4.5
    )
    first = int(np.searchsorted(times, FIRST_S))
    frames = first + STEP * np.arange(N_PHASES)
    if fine:
        inside = np.arange(first, frames[-1] + 1)
        inlet = InputFunction(times[inside], plasma[inside], frames - first)
    else:
        inlet = InputFunction(times[frames], plasma[frames], np.arange(N_PHASES))
    ktrans = np.repeat([0.01, 0.02, 0.05, 0.1, 0.2, 0.35], 5)
    return curves[:, frames], inlet, ktrans, np.tile([0.01, 0.05, 0.1, 0.2, 0.5], 6)


def rows() -> list[Row]:
    """Return the name of each measurement, its value, its bound, and whether it holds."""
    found: list[Row] = []
    rng = np.random.default_rng(0)
    for fine in (False, True):
        curves, inlet, ktrans, _ = qiba_at_70_phases(fine)
        many = np.tile(curves, (COPIES, 1))
        many = many + rng.normal(scale=NOISE_MM, size=many.shape)
        truth = np.tile(ktrans, COPIES)
        where = "input at 0.5 s" if fine else "input at the frames"
        found += _compare(many, inlet, truth, where)
    return found


def _compare(curves: np.ndarray, inlet: InputFunction, truth: np.ndarray, where: str) -> list[Row]:
    few = 30 * REFERENCE_COPIES
    for fitter in (fit_tofts, fit_extended_tofts):
        # This call compiles the fit, or loads compiled code, before the fit is timed.
        fitter(curves[:10], inlet, True)
    ours, our_error = _time_ours(curves, inlet, truth, refine=True)
    linear, linear_error = _time_ours(curves, inlet, truth, refine=False)
    theirs, their_error = _time_scipy(curves[:few], inlet, truth[:few])
    ratio = theirs / ours
    _, same_error = _time_ours(curves[:few], inlet, truth[:few], refine=True)
    return [
        (
            f"Tofts + extended Tofts, refined, {where}: speed over curve_fit",
            f"{ratio:.0f} x ({ours * 1e6:.1f} against {theirs * 1e6:.0f} us a voxel)",
            ">= 100 x",
            ratio >= 100,
        ),
        (
            f"median Ktrans error on the same {few} curves, {where}",
            f"{same_error:.4f} against {their_error:.4f}",
            "no larger (1 %)",
            same_error <= their_error * 1.01,
        ),
        (
            f"linear estimate, both models, {where}",
            f"{1 / linear:.0f} voxels/s, median error {linear_error:.4f} (refined {our_error:.4f})",
            ">= 50,000 voxels/s",
            1 / linear >= 50_000,
        ),
    ]


def _time_ours(
    curves: np.ndarray, inlet: InputFunction, truth: np.ndarray, refine: bool
) -> tuple[float, float]:
    """Return seconds per voxel for both models, and the median relative error of their Ktrans."""
    best = np.inf
    fits: list[KineticFit] = []
    for _ in range(3):
        start = time.process_time()
        fits = [fit_tofts(curves, inlet, refine), fit_extended_tofts(curves, inlet, refine)]
        best = min(best, time.process_time() - start)
    errors = [np.abs(fit.parameters["ktrans"] / truth - 1) for fit in fits]
    return best / len(curves), float(np.median(np.concatenate(errors)))


def _time_scipy(curves: np.ndarray, inlet: InputFunction, truth: np.ndarray) -> tuple[float, float]:
    errors = []
    start = time.process_time()
    for n in (2, 3):
        model = _reference_model(inlet)
        for curve, ktrans in zip(curves, truth, strict=True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found, _ = curve_fit(
                    model, inlet.times, curve, p0=START[:n], bounds=(LOWER[:n], UPPER[:n])
                )
            errors.append(abs(found[0] / ktrans - 1))
    return (time.process_time() - start) / len(curves), float(np.median(errors))


def _reference_model(inlet: InputFunction) -> Callable[..., np.ndarray]:
    """Return (extended) Tofts on an even grid by one recursive filter: exact for a linear input."""
    step = (inlet.times[1] - inlet.times[0]) / 60

    def model(_: np.ndarray, ktrans: float, ve: float, vp: float = 0.0) -> np.ndarray:
        x = ktrans / ve * step
        decay = np.exp(-x)
        one = (1 - decay) / x if x > 1e-6 else 1 - x / 2
        two = (1 - one) / x if x > 1e-6 else 0.5 - x / 6
        filtered = lfilter([step * two, step * (one - two)], [1.0, -decay], inlet.plasma)
        at = inlet.at_frames
        return ktrans * (filtered - filtered[0])[at] + vp * inlet.plasma[at]

    return model


def limits() -> Iterator[tuple[str, str, dict[str, tuple[float, float]]]]:
    """Yield the case, the source of the delay, and by parameter the median ratio and the rank.

    Ratio and rank compare with the truth; the rank is Spearman's correlation over the tissues.
    """
    for step in (2.0, 4.0, 8.0):
        for most in (0.0, 10.0):
            times = np.arange(0.0, LENGTH_S, step)
            curves, truth = tissue_curves(times, most)
            for source in ("parker", "measured"):
                case = f"{step:g} s, delays 0 to {most:g} s, input {source}"
                for how, fit in _by_delay(times, curves, source):
                    yield case, how, _against(fit, truth)
    for ratio in (0.85, 1.0, 1.15):
        times = np.arange(0.0, LENGTH_S, 4.0)
        curves, truth = tissue_curves(times, 0.0)
        arterial = ArterialInput("parker", times, ARRIVAL_S, HAEMATOCRIT)
        for mapped in (False, True):
            seen = concentrations_at_field(curves, ratio, mapped)
            fit = fit_extended_tofts(seen, arterial.inlet(ARRIVAL_S))
            how = "mapped" if mapped else "not mapped"
            yield f"transmit field {ratio:g}", how, _against(fit, truth)


def tissue_curves(times: np.ndarray, most: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return noisy curves (mM) of tissues whose input is up to ``most`` s late, and the truth."""
    rng = np.random.default_rng(0)
    truth = {name: rng.uniform(*ends, TISSUES) for name, ends in TISSUE_RANGES.items()}
    late = rng.uniform(0.0, 1.0, TISSUES) * most
    fine = np.arange(0.0, LENGTH_S + FINE_S / 2, FINE_S)
    curves = np.zeros((TISSUES, len(times)))
    for row in range(TISSUES):
        plasma = parker_blood(fine, ARRIVAL_S + late[row]) / (1 - HAEMATOCRIT)
        inlet = InputFunction(fine, plasma, np.arange(len(fine)))
        ktrans, ve, vp = (truth[name][row] for name in ("ktrans", "ve", "vp"))
        curves[row] = np.interp(times, fine, extended_tofts(ktrans, ve, vp, inlet))
    return curves + rng.normal(scale=LIMIT_NOISE_MM, size=curves.shape), truth


def _by_delay(
    times: np.ndarray, curves: np.ndarray, source: str
) -> Iterator[tuple[str, KineticFit]]:
    """Fit extended Tofts with one delay for all curves, and with each curve's own delay."""
    if source == "measured":
        plasma = parker_blood(times, ARRIVAL_S) / (1 - HAEMATOCRIT)
        arterial = ArterialInput(source, times, plasma=plasma)
        bounds = (-2.0, 12.0)
    else:
        arterial = ArterialInput(source, times, haematocrit=HAEMATOCRIT)
        bounds = (ARRIVAL_S - 12.0, ARRIVAL_S + 12.0)
    mean = curves.mean(axis=0)[None]

    def misfit(delay: float) -> float:
        return float(fit_extended_tofts(mean, arterial.inlet(delay), refine=True).residual[0])

    delay = best_delay(misfit, bounds)
    yield "study", fit_extended_tofts(curves, arterial.inlet(delay))
    around = (delay - DELAY_RANGE_S, delay + DELAY_RANGE_S)
    delays = curve_delays(curves, arterial.inlet, around)
    yield "voxel", fit_each_at(fit_extended_tofts, curves, arterial.inlet, delays)


def concentrations_at_field(curves: np.ndarray, ratio: float, mapped: bool) -> np.ndarray:
    """Return measured mM where actual flip angles are ``ratio`` times the stated angles."""
    angles = np.array(ANGLES)
    shown = np.stack([_spoiled(np.array([1 / T1_S]), angle * ratio) for angle in angles])
    known = np.array([ratio]) if mapped else None
    t1 = fit_t1(shown, angles, TR_S, b1=known).t1
    signal = _spoiled(1 / T1_S + RELAXIVITY * curves, ANGLE * ratio)
    before = np.full(len(curves), _spoiled(np.array([1 / T1_S]), ANGLE * ratio)[0])
    stated = np.full(len(curves), ANGLE * (ratio if mapped else 1.0))
    return concentration_from_signal(
        signal, before, np.full(len(curves), t1[0]), TR_S, stated, RELAXIVITY
    )


def _spoiled(rate: np.ndarray, angle: float) -> np.ndarray:
    """Return the signal of a spoiled gradient echo at R1 (1/s) and flip angle (degrees)."""
    decay = np.exp(-TR_S * rate)
    turned = np.deg2rad(angle)
    return np.asarray(np.sin(turned) * (1 - decay) / (1 - decay * np.cos(turned)))


def _against(fit: KineticFit, truth: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Return by parameter the median ratio to the truth, and the rank correlation with it."""
    compared = {}
    for name, true in truth.items():
        usable = np.isfinite(fit.parameters[name])
        values = fit.parameters[name][usable]
        rank = spearmanr(values, true[usable])[0]
        compared[name] = (float(np.median(values / true[usable])), float(rank))
    return compared


def print_limits() -> None:
    """Print the table of the limits in docs/maps.md."""
    print("| case | delay or map | Ktrans | ve | vp |\n|---|---|---|---|---|")
    for case, how, compared in limits():
        cells = " | ".join(f"{ratio:.2f}, {rank:.2f}" for ratio, rank in compared.values())
        print(f"| {case} | {how} | {cells} |")


def main() -> None:
    """Print the table; exit with 1 when a row does not hold."""
    if "--limits" in sys.argv[1:]:
        print_limits()
        return
    table = rows()
    for name, value, bound, holds in table:
        print(f"{'ok  ' if holds else 'MISS'} {name}: {value}; bound {bound}")
    raise SystemExit(0 if all(row[3] for row in table) else 1)


if __name__ == "__main__":
    main()
