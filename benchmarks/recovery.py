"""Take apart what keeps kinetic parameters from being found: ``python -m benchmarks.recovery``.

The phantom's dynamic series is made with one thing switched off at a time, then with all off, and
regions are measured as they are, or only in voxels that hold nothing but the region. Six patients
of the sample's protocols, even tissue, population input; three minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np
import pandas as pd

from cad.features.table import extract
from cad.phantom import acquisition, scanner
from cad.phantom.protocols import SAMPLE, Grid, Protocol
from cad.phantom.sample import SEED
from cad.phantom.simulator import Patient, make_patient
from cad.settings import FeatureSettings, PerfusionSettings, PipelineSettings

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
    """Say what of a dynamic series is as simulated, and how it is measured."""

    noise: bool = True
    waver: bool = True
    motion: bool = True
    spread: bool = True
    dose: bool = True
    fast: bool = False
    fine: bool = False
    pure: bool = False
    refine: bool = False
    t1: str = "auto"


IDEAL = Acquisition(False, False, False, False, False)
CASES = {
    "as simulated": Acquisition(),
    "without noise and waver": Acquisition(noise=False),
    "without waver from frame to frame": Acquisition(waver=False),
    "without motion between frames": Acquisition(motion=False),
    "without point spread": Acquisition(spread=False),
    "dose the population's in every man": Acquisition(dose=False),
    "frames 2 s apart": Acquisition(fast=True),
    "voxels of half the size": Acquisition(fine=True),
    "T1 fixed": Acquisition(t1="fixed"),
    "refined fits": Acquisition(refine=True),
    "the first five off": IDEAL,
    "pure voxels only": Acquisition(pure=True),
    "pure voxels of half the size": Acquisition(pure=True, fine=True),
    "pure voxels of half the size, dose the population's": Acquisition(
        pure=True, fine=True, dose=False
    ),
    "pure voxels of half the size, the first five off": replace(IDEAL, pure=True, fine=True),
    "the same, frames 2 s apart, refined": replace(
        IDEAL, pure=True, fine=True, fast=True, refine=True
    ),
}


def protocols(case: Acquisition) -> tuple[Protocol, ...]:
    """Return the sample's protocols with the case's grid, timing and noise."""
    made = []
    for protocol in SAMPLE:
        dce, (repetition, interval) = protocol.dce, protocol.dce_times
        if case.fine:
            (nz, ny, nx), (x, y, z) = dce.shape, dce.spacing
            dce = Grid((2 * nz, 2 * ny, 2 * nx), (x / 2, y / 2, z / 2))
        frames = protocol.frames
        if case.fast:
            frames, interval = int(frames * interval / 2.0), 2.0
        noise = (*protocol.noise[:2], protocol.noise[2] if case.noise else 0.0)
        made.append(
            replace(protocol, dce=dce, dce_times=(repetition, interval), frames=frames, noise=noise)
        )
    return tuple(made)


def patients(case: Acquisition, count: int = PATIENTS) -> Iterator[Patient]:
    """Yield patients of even tissue whose series lacks what the case switches off."""
    with ExitStack() as off:
        if not case.waver:
            off.enter_context(patch.object(scanner, "FRAME_SD", 0.0))
        if not case.dose:
            off.enter_context(patch.object(scanner, "INPUT_SCALE_SD", 0.0))
        if not case.motion:
            off.enter_context(patch.object(acquisition, "DRIFT_MM_MIN", (0.0, 0.0)))
            off.enter_context(patch.object(acquisition, "JUMP_SHARE", 0.0))
        if not case.spread:
            off.enter_context(patch.object(acquisition, "_window", _everything))
        for index in range(count):
            yield make_patient(SEED, index, protocols(case), even=True)


def _everything(shape: tuple[int, int]) -> np.ndarray:
    """Return a filter that lets all of k-space through."""
    return np.ones(shape, np.float32)


def measured(case: Acquisition, count: int = PATIENTS) -> pd.DataFrame:
    """Return kinetic features of every region beside the truth, one row per region."""
    perfusion = PerfusionSettings.model_validate(
        {"arterial_input": "parker", "refine": case.refine, "t1": case.t1}
    )
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


def main() -> None:
    """Print the table of docs/phantom.md: rank correlation with the truth (median ratio)."""
    print("| dynamic series | regions | " + " | ".join(name for name, _, _ in RANKS) + " |")
    print("|" + "---|" * (2 + len(RANKS)))
    for name, case in CASES.items():
        table = measured(case)
        cells = [
            f"{table[feature].corr(table[truth], method='spearman'):.2f}"
            f" ({(table[feature] / table[truth]).median():.2f})"
            if feature in table
            else "–"
            for _, feature, truth in RANKS
        ]
        print(f"| {name} | {len(table)} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
