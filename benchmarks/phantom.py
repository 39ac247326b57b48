"""Compare statistics of simulated prostates with statistics of real ones, for docs/phantom.md.

``python -m benchmarks.phantom [PATIENTS]`` imports the two ProstateX patients beside the project,
and simulates PATIENTS (6) of each site on clinical grids (about 2 s each). It prints the statistics
of both, how size and malignancy correlate, and how the readers' outlines agree. ProstateX-0000 has
zones, T2 and ADC; ProstateX-0218 has four regions and a dynamic series. The two zones are PZ and
the rest of the gland.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from cad.dicom.into.importer import import_source
from cad.evidence.phantom.protocols import FULL, LIGHT
from cad.evidence.phantom.simulator import make_patient
from cad.mri.imaging.geometry import resample_mask
from cad.mri.imaging.nifti import read_volume
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import read_study
from cad.mri.imaging.volume import Volume

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("CAD_REFERENCE_DATA", ROOT.parent / "shared" / "data"))
PZ, REST = 1, 2


def zone_rows(study: Study, zones: Volume) -> dict[str, float]:
    """Measure T2 and ADC in the peripheral zone and in the rest of the gland."""
    found: dict[str, float] = {}
    for name, image in (("T2", study.t2w), ("ADC", study.adc)):
        assert image is not None
        middle = {}
        for zone, label in (("PZ", PZ), ("TZ", REST)):
            inside = resample_mask(zones.with_array(zones.array == label), image).array
            found |= {f"{name} {zone} {k}": v for k, v in spread(image.array, inside).items()}
            middle[zone] = float(np.median(image.array[inside]))
        found[f"{name} PZ / TZ median"] = middle["PZ"] / middle["TZ"]
    return found


def spread(image: np.ndarray, inside: np.ndarray) -> dict[str, float]:
    """Return variation, skewness, and the correlation of neighbours in the slice."""
    array = image.astype(float)
    values = array[inside]
    middle, deviation = values.mean(), values.std()
    pairs = [
        np.corrcoef(
            array[:, a, b][inside[:, a, b] & inside[:, c, d]],
            array[:, c, d][inside[:, a, b] & inside[:, c, d]],
        )[0, 1]
        for a, b, c, d in (
            (slice(None, -1), slice(None), slice(1, None), slice(None)),
            (slice(None), slice(None, -1), slice(None), slice(1, None)),
        )
    ]
    return {
        "CoV": deviation / middle,
        "skewness": float((((values - middle) / deviation) ** 3).mean()),
        "neighbours": float(np.mean(pairs)),
    }


def region_rows(study: Study) -> dict[str, float]:
    """Measure variation in the drawn regions, and how much the dynamic signal fluctuates."""
    found: dict[str, list[float]] = {}
    for roi in study.rois:
        assert study.roi_map is not None
        own = study.roi_map.with_array(study.roi_map.array == roi.label)
        for name, image in (("T2", study.t2w), ("ADC", study.adc)):
            if image is None:
                continue
            values = image.array[resample_mask(own, image).array].astype(float)
            if len(values) >= 8:
                found.setdefault(f"{name} region CoV", []).append(values.std() / values.mean())
        if study.dce is None:
            continue
        inside = resample_mask(own, study.dce.grid).array
        if inside.sum() < 8:
            continue
        curves = study.dce.frames[:, inside].astype(float)
        late = curves[len(curves) // 2 :]
        # Second differences show noise and motion, but not the slow wash-out.
        waver = np.diff(late, 2, axis=0).std(axis=0) / np.sqrt(6) / late.mean(axis=0)
        found.setdefault("DCE frame to frame, voxel", []).append(float(np.median(waver)))
        mean = late.mean(axis=1)
        found.setdefault("DCE frame to frame, region", []).append(
            float(np.diff(mean, 2).std() / np.sqrt(6) / mean.mean())
        )
        rise = late.mean(axis=0) / np.maximum(curves[:3].mean(axis=0), 1) - 1
        found.setdefault("DCE enhancement CoV", []).append(float(rise.std() / rise.mean()))
    return {name: float(np.median(values)) for name, values in found.items()}


def real() -> dict[str, str]:
    """Return each statistic of the real patients as text, by name."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "cohort"
        import_source(SHARED / "prostatex", out, ROOT / "configs" / "import" / "prostatex.yaml")
        first, second = "sub-ProstateX0000", "sub-ProstateX0218"
        one = read_study(out / first, first, first, [Roi("1", 1)])
        two = read_study(out / second, second, second, [Roi(str(i), i) for i in (1, 2, 3, 4)])
    zones = read_volume(SHARED / "prostatex" / "ProstateX-0000" / "zones.nii.gz")
    found = {name: f"{value:.2f}" for name, value in zone_rows(one, zones).items()}
    lesion, regions = region_rows(one), region_rows(two)
    for name, value in regions.items():
        both = sorted(v for v in (value, lesion.get(name)) if v is not None)
        found[name] = " .. ".join(f"{v:.3g}" for v in both)
    return found


def simulated(count: int) -> tuple[dict[str, list[float]], float]:
    """Return each statistic of simulated patients, and the seconds per patient."""
    found: dict[str, list[float]] = {}
    start = time.perf_counter()
    spent = 0.0
    for protocol in FULL:
        for index in range(count):
            start = time.perf_counter()
            patient = make_patient(100, index, (protocol,))
            spent += time.perf_counter() - start
            rows = zone_rows(patient.study, patient.zones) | region_rows(patient.study)
            for name, value in rows.items():
                found.setdefault(name, []).append(value)
    return found, spent / (count * len(FULL))


def cohort_rows(patients: int) -> list[str]:
    """Return lines on how size and malignancy correlate, and how two readers' outlines agree."""
    sizes, truth, dice, slices = [], [], [], []
    for index in range(patients):
        patient = make_patient(200, index, LIGHT)
        maps = [v.array for v in patient.outlines.values()]
        for label, region in enumerate(patient.regions, start=1):
            drawn = [m == label for m in maps]
            sizes.append(drawn[0].sum() * np.prod(patient.study.roi_map.spacing))
            truth.append(region.malignant)
            slices.append(int(drawn[0].any(axis=(1, 2)).sum()))
            for a in range(len(drawn)):
                for b in range(a):
                    both = drawn[a].sum() + drawn[b].sum()
                    dice.append(2 * (drawn[a] & drawn[b]).sum() / both if both else np.nan)
    size, bad = np.array(sizes), np.array(truth)
    a, b = size[bad][:, None], size[~bad]
    auc = float((a > b).mean() + 0.5 * (a == b).mean())
    single = float((np.array(slices) == 1).mean())
    low, middle, high = np.percentile(size / 1000, (5, 50, 95))
    return [
        f"{len(size)} regions, {bad.sum()} malignant; AUC of the outlined volume {auc:.3f}",
        f"volume {middle:.2f} mL ({low:.2f} to {high:.2f}); in one slice {single:.0%}",
        f"Dice of two readers: median {np.nanmedian(dice):.2f}, mean {np.nanmean(dice):.2f}",
    ]


def main(count: int = 6) -> None:
    """Print the table."""
    theirs = real()
    ours, seconds = simulated(count)
    print("| statistic | real | simulated, median (5th to 95th percentile) |\n|---|---|---|")
    for name, values in ours.items():
        low, middle, high = np.percentile(values, (5, 50, 95))
        print(f"| {name} | {theirs.get(name, '')} | {middle:.3g} ({low:.3g} to {high:.3g}) |")
    print(f"\n{seconds:.2f} s a patient")
    print("\n".join(cohort_rows(98)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
