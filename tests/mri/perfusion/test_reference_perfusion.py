"""OSIPI's data, every row within its README's tolerance; the QIBA object within one percent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.io import loadmat

from cad.mri.features.perfusion.aif import ArterialInput, parker_blood, sampled_input
from cad.mri.features.perfusion.concentration import baseline_signal, concentration_from_signal
from cad.mri.features.perfusion.models import (
    KineticFit,
    best_delay,
    curve_delays,
    fit_each_at,
    fit_extended_tofts,
    fit_tofts,
)
from cad.mri.features.perfusion.t1 import fit_t1

pytestmark = pytest.mark.reference
Counted = Callable[[int, str], None]

MODELS = {
    "tofts": ("dce_DRO_data_tofts.csv", fit_tofts, 10),
    "extended_tofts": ("dce_DRO_data_extended_tofts.csv", fit_extended_tofts, 5),
}
# Parameter: (atol, rtol) of the README.
KINETIC_TOLERANCE = {"ktrans": (0.005, 0.1), "ve": (0.05, 0.0), "vp": (0.025, 0.0)}
REFERENCE_COLUMN = {"ktrans": "Ktrans", "ve": "ve", "vp": "vp"}


def numbers(field: str) -> np.ndarray:
    return np.array(field.split(), float)


def table(shared_data: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(shared_data / "osipi" / name, encoding="utf-8-sig")


def check(found: float, expected: float, atol: float, rtol: float, what: str) -> None:
    assert abs(found - expected) <= atol + rtol * abs(expected), (what, found, expected)


def check_kinetics(fit: KineticFit, row: pd.Series) -> int:
    names = [n for n in ("ktrans", "ve", "vp") if n in fit.parameters]
    for name in names:
        expected = float(row[REFERENCE_COLUMN[name]])
        atol, rtol = KINETIC_TOLERANCE[name]
        check(float(fit.parameters[name][0]), expected, atol, rtol, f"{row['label']} {name}")
    return len(names)


@pytest.mark.parametrize(
    ("name", "atol", "rtol"),
    [("ParkerAIF_ref.csv", 1e-4, 0.01), ("ParkerAIF_ref_with_delay.csv", 0.1, 0.1)],
)
def test_parker(shared_data: Path, counted: Counted, name: str, atol: float, rtol: float) -> None:
    rows = table(shared_data, name)
    for (label, delay), part in rows.groupby(["label", "delay"]):
        found = parker_blood(part["time"].to_numpy() * 60, float(delay))
        expected = part["Cb"].to_numpy()
        assert (np.abs(found - expected) <= atol + rtol * np.abs(expected)).all(), label
        # Far tighter than asked: the formula is the same.
        np.testing.assert_allclose(found, expected, atol=1e-12)
    counted(len(rows), f"OSIPI {name}")


def test_concentration(shared_data: Path, counted: Counted) -> None:
    n = 0
    for _, row in table(shared_data, "SI2Conc_data.csv").iterrows():
        signal, expected = numbers(row["s"])[None], numbers(row["conc"])
        found = concentration_from_signal(
            signal,
            baseline_signal(signal, int(row["numbaselinepts"]), skip=1),
            np.array([row["T1base"]]),
            row["TR"],
            row["FA"],
            row["r1"],
        )[0]
        assert (np.abs(found - expected) <= 1e-5 + 1e-5 * np.abs(expected)).all(), row["label"]
        n += len(expected)
    counted(n, "OSIPI SI2Conc_data.csv")


@pytest.mark.parametrize(("name", "to_per_s"), [("t1_brain_data", 1), ("t1_quiba_data", 1000)])
def test_t1(shared_data: Path, counted: Counted, name: str, to_per_s: float) -> None:
    rows = table(shared_data, f"{name}.csv")
    for _, row in rows.iterrows():
        tr = numbers(row["TR"])
        assert np.ptp(tr) == 0
        fit = fit_t1(numbers(row["s"])[:, None], numbers(row["FA"]), tr[0])
        check(1 / float(fit.t1[0]), row["R1"] * to_per_s, 0.05, 0.05, row["label"])
    counted(len(rows), f"OSIPI {name}.csv, linear")


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_kinetic_model(shared_data: Path, counted: Counted, model: str, refine: bool) -> None:
    name, fitter, _ = MODELS[model]
    n = 0
    for _, row in table(shared_data, name).iterrows():
        inlet = sampled_input(numbers(row["ta"]), numbers(row["ca"]))
        n += check_kinetics(fitter(numbers(row["C"])[None], inlet, refine), row)
    counted(n, f"OSIPI {name}, {'refined' if refine else 'linear'}")


@pytest.mark.parametrize("model", MODELS)
def test_kinetic_model_with_delay(shared_data: Path, counted: Counted, model: str) -> None:
    name, fitter, samples = MODELS[model]
    n = 0
    for _, row in table(shared_data, name).iterrows():
        curve = numbers(row["C"])
        late = np.concatenate([np.zeros(samples), curve[:-samples]])
        inputs = (numbers(row["t"]), numbers(row["ca"]))

        def at(
            delay: float, late: np.ndarray = late, inputs: tuple[np.ndarray, np.ndarray] = inputs
        ) -> KineticFit:
            return fitter(late[None], sampled_input(*inputs, delay), True)

        delay = best_delay(lambda d, at=at: float(at(d).residual[0]), (-10.0, 10.0))
        fit = at(delay)
        check(delay, float(row["arterialdelay"]) + 5.0, 1.0, 0.0, f"{row['label']} delay")
        n += 1 + check_kinetics(fit, row)
    counted(n, f"OSIPI {name}, delayed 5 s")


def test_delay_of_each_curve(shared_data: Path, counted: Counted) -> None:
    """OSIPI's tolerances, for the delay that is fitted voxel by voxel."""
    name, _, samples = MODELS["extended_tofts"]
    n = 0
    for _, row in table(shared_data, name).iterrows():
        curve = numbers(row["C"])
        late = np.concatenate([np.zeros(samples), curve[:-samples]])
        source = ArterialInput("measured", numbers(row["t"]), plasma=numbers(row["ca"]))
        # A curve without the delay beside it: each must get its own.
        delays = curve_delays(np.stack([late, curve]), source.inlet, (-10.0, 10.0))
        fit = fit_each_at(fit_extended_tofts, np.stack([late, curve]), source.inlet, delays)
        stated = float(row["arterialdelay"])
        check(delays[0], stated + 5.0, 1.0, 0.0, f"{row['label']} delay")
        check(delays[1], stated, 1.0, 0.0, f"{row['label']} without delay")
        n += 2 + check_kinetics(fit, row)
    counted(n, f"OSIPI {name}, each curve's delay")


@pytest.mark.parametrize("fitter", [fit_tofts, fit_extended_tofts])
def test_qiba_within_one_percent(
    shared_data: Path, counted: Counted, fitter: Callable[..., KineticFit]
) -> None:
    data = loadmat(shared_data / "qiba" / "qiba6.mat")
    signal = data["DCEdata"].reshape(1321, 30).T.astype(float)
    curves = concentration_from_signal(
        signal,
        baseline_signal(signal, 2),
        1 / data["R10"].ravel(),
        data["TR"].item(),
        data["DCEflip"].item(),
        data["relaxivity"].item(),
    )
    fit = fitter(curves, sampled_input(data["t"][0], data["Cp"][0]), refine=True)
    ktrans = np.repeat([0.01, 0.02, 0.05, 0.1, 0.2, 0.35], 5)
    ve = np.tile([0.01, 0.05, 0.1, 0.2, 0.5], 6)
    np.testing.assert_allclose(fit.parameters["ktrans"], ktrans, rtol=0.01)
    np.testing.assert_allclose(fit.parameters["ve"], ve, rtol=0.01)
    assert not fit.failed.any()
    assert fit.r2.min() > 0.999
    counted(60, f"QIBA v6, {fitter.__name__} refined, within 1 %")


def test_qiba_linear_estimate_is_close(shared_data: Path) -> None:
    """The linear Tofts estimate is within 5 % of the truth, 1 % in the median: no refinement."""
    data = loadmat(shared_data / "qiba" / "qiba6.mat")
    signal = data["DCEdata"].reshape(1321, 30).T.astype(float)
    curves = concentration_from_signal(
        signal, baseline_signal(signal, 2), np.ones(30), 0.005, 30.0, 4.5
    )
    fit = fit_tofts(curves, sampled_input(data["t"][0], data["Cp"][0]))
    error = np.abs(fit.parameters["ktrans"] / np.repeat([0.01, 0.02, 0.05, 0.1, 0.2, 0.35], 5) - 1)
    assert error.max() < 0.05
    assert np.median(error) < 0.01
