"""Separate the causes of wrong kinetic parameters: ``python -m benchmarks.recovery``.

The phantom's dynamic series is made with one effect switched off at a time, and then with all
effects off. Regions are measured as they are, or only in voxels that hold nothing but the region.
Six patients on the sites' clinical grids have even tissue and the population input. The module
takes three minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np
import pandas as pd

from cad.base.settings import FeatureSettings, PerfusionSettings, PipelineSettings
from cad.evidence.phantom import acquisition, params
from cad.evidence.phantom.protocols import FULL, SiteProtocol
from cad.evidence.phantom.sample import SEED
from cad.evidence.phantom.simulator import Patient, make_patient
from cad.mri.features.table import extract

PATIENTS = 6
RANKS = (
    ("Ktrans, Tofts", "dce_tofts_ktrans_median", "ktrans"),
    ("Ktrans, extended", "dce_extended_tofts_ktrans_median", "ktrans"),
    ("ve, Tofts", "dce_tofts_ve_median", "ve"),
    ("ve, extended", "dce_extended_tofts_ve_median", "ve"),
    ("T1", "dce_t1_median", "t1"),
)


@dataclass(frozen=True)
class Acquisition:
    """Say which effects of a dynamic series are simulated, and how the series is measured."""

    noise: bool = True
    waver: bool = True
    motion: bool = True
    spread: bool = True
    dose: bool = True
    pure: bool = False
    t1: str = "auto"


IDEAL = Acquisition(False, False, False, False, False)
CASES = {
    "as simulated": Acquisition(),
    "without noise and waver": Acquisition(noise=False),
    "without waver from frame to frame": Acquisition(waver=False),
    "without motion between frames": Acquisition(motion=False),
    "without point spread": Acquisition(spread=False),
    "dose the population's in every man": Acquisition(dose=False),
    "T1 fixed": Acquisition(t1="fixed"),
    "the first five off": IDEAL,
    "pure voxels only": Acquisition(pure=True),
    "pure voxels, dose the population's": Acquisition(pure=True, dose=False),
    "pure voxels, the first five off": replace(IDEAL, pure=True),
}


def protocols(case: Acquisition) -> tuple[SiteProtocol, ...]:
    """Return the sites' protocols with the case's noise."""
    return tuple(p if case.noise else replace(p, noise=(*p.noise[:2], 0.0)) for p in FULL)


def patients(case: Acquisition, count: int = PATIENTS) -> Iterator[Patient]:
    """Yield patients of even tissue whose series lacks the effects that the case switches off."""
    with ExitStack() as off:
        if not case.waver:
            off.enter_context(patch.object(params, "FRAME_SD", 0.0))
        if not case.dose:
            off.enter_context(patch.object(params, "INPUT_SCALE_SD", 0.0))
        if not case.motion:
            off.enter_context(patch.object(acquisition, "DRIFT_MM_MIN", (0.0, 0.0)))
            off.enter_context(patch.object(acquisition, "JUMP_SHARE", 0.0))
        if not case.spread:
            off.enter_context(patch.object(acquisition, "_k_space_filter", _everything))
        for index in range(count):
            yield make_patient(SEED, index, protocols(case), even=True)


def _everything(shape: tuple[int, int]) -> np.ndarray:
    """Return a filter that passes all of k-space."""
    return np.ones(shape, np.float32)


def measured(case: Acquisition, count: int = PATIENTS) -> pd.DataFrame:
    """Return kinetic features of every region beside the truth, one row per region."""
    perfusion = PerfusionSettings.model_validate({"arterial_input": "parker", "t1": case.t1})
    features = FeatureSettings(modalities=("dce",), families=("kinetic",), perfusion=perfusion)
    settings = PipelineSettings(name="recovery", features=features)
    tables = []
    for patient in patients(case, count):
        drawn = patient.pure if case.pure else patient.truth
        rois = [roi for roi in patient.study.rois if (drawn.array == roi.label).sum() > 5]
        rows = extract(replace(patient.study, roi_map=drawn, rois=rois), settings).rows
        truth = pd.DataFrame(
            [
                {"roi_id": str(i), "ktrans": t.ktrans, "ve": t.ve, "t1": t.t1}
                for i, t in enumerate((r.tissue for r in patient.regions), start=1)
            ]
        )
        tables.append(rows.merge(truth, on="roi_id", validate="one_to_one"))
    return pd.concat(tables, ignore_index=True)


def rank(table: pd.DataFrame, feature: str, truth: str) -> str:
    """Return the rank correlation with the truth (all men, within men), and the median ratio."""
    ranks = table.groupby("participant_id")[[feature, truth]].rank()
    over, within = (
        t[feature].corr(t[truth], method=how)
        for t, how in ((table, "spearman"), (ranks, "pearson"))
    )
    return f"{over:.2f}, {within:.2f} ({(table[feature] / table[truth]).median():.2f})"


def main() -> None:
    """Print the table of docs/phantom.md: rank over all men, within men (median ratio)."""
    print("| dynamic series | regions | " + " | ".join(name for name, _, _ in RANKS) + " |")
    print("|" + "---|" * (2 + len(RANKS)))
    for name, case in CASES.items():
        table = measured(case)
        cells = [rank(table, f, truth) if f in table else "–" for _, f, truth in RANKS]
        print(f"| {name} | {len(table)} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
