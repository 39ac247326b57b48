"""Compare statistics of simulated prostates with statistics of real ones, for docs/phantom.md.

``python -m benchmarks.phantom [PATIENTS]`` imports the two ProstateX patients beside the project,
and simulates PATIENTS (6) of each site on clinical grids (about 2 s each). It prints the statistics
of both, how size and malignancy correlate, and how the readers' outlines agree. ProstateX-0000 has
zones, T2 and ADC; ProstateX-0218 has four regions and a dynamic series. The two zones are PZ and
the rest of the gland.

``python -m benchmarks.phantom quality [PATIENTS]`` measures sharpness and noise of T2, ADC and the
first dynamic frame: in the six ProstateX patients beside the project, in PATIENTS (3) simulated
patients of each site, and in the same patients with the noise that real T2 has (``REAL_NOISE``).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter, map_coordinates, maximum_filter

from cad.dicom.into.importer import import_source
from cad.evidence.phantom.protocols import FULL, LIGHT
from cad.evidence.phantom.simulator import USUAL, Variation, make_patient
from cad.folders.cohort import read_cohort
from cad.mri.imaging.geometry import resample_mask
from cad.mri.imaging.nifti import read_volume
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import read_study
from cad.mri.imaging.volume import Volume

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("CAD_REFERENCE_DATA", ROOT.parent / "shared" / "data"))
PZ, REST = 1, 2
# The settings of the simulator with which T2 has the noise of the real men.
REAL_NOISE = Variation(noise=(0.06, 0.0, 0.0), interpolation=1.06)
# Half edge (mm) of the square around the middle of a slice in which sharpness and noise are
# measured. It holds the gland and what surrounds it.
AROUND_MM = 35.0
# Number of steepest edges of an image that are measured.
EDGES = 200


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


def middle(image: Volume) -> tuple[range, slice, slice]:
    """Return the middle half of an image's slices, and the square that is measured in a slice."""
    n_z, n_y, n_x = image.shape
    x_step, y_step, _ = image.spacing
    y_half = int(AROUND_MM / y_step)
    x_half = int(AROUND_MM / x_step)
    slices = range(n_z // 4, 3 * n_z // 4 + 1)
    rows = slice(max(n_y // 2 - y_half, 0), n_y // 2 + y_half)
    columns = slice(max(n_x // 2 - x_half, 0), n_x // 2 + x_half)
    return slices, rows, columns


def edge_width(image: Volume) -> float:
    """Return the median width of the steepest edges, as FWHM of the slope across them, in mm.

    The slope of an edge is averaged over 2 mm along the edge.
    """
    slices, rows, columns = middle(image)
    step = image.spacing[0]
    found = []
    for z in slices:
        plane = image.array[z].astype(float)
        slope_y, slope_x = np.gradient(gaussian_filter(plane, 1.0))
        slope = np.hypot(slope_y, slope_x)
        peaks = slope == maximum_filter(slope, 3)
        inside = np.zeros_like(peaks)
        inside[rows, columns] = True
        for y, x in np.argwhere(peaks & inside):
            steepness = slope[y, x] / np.median(plane[rows, columns])
            found.append((steepness, z, y, x, slope_y[y, x], slope_x[y, x]))
    found.sort(reverse=True)
    across = np.arange(-5.0, 5.01, 0.1) / step
    widths = []
    for _, z, y, x, slope_y, slope_x in found[:EDGES]:
        direction = np.array([slope_y, slope_x]) / np.hypot(slope_y, slope_x)
        along = np.array([-direction[1], direction[0]])
        lines = []
        for offset in np.array([-1.0, -0.5, 0.0, 0.5, 1.0]) / step:
            start = np.array([y, x]) + offset * along
            points = start[:, None] + direction[:, None] * across
            plane = image.array[z].astype(float)
            lines.append(map_coordinates(plane, points, order=3, mode="nearest"))
        spread = np.gradient(np.mean(lines, axis=0))
        # The steepest place is looked for within one and a half voxels and .5 mm.
        reach = int(15 * step) + 5
        centre = len(spread) // 2
        peak = centre - reach + int(spread[centre - reach : centre + reach + 1].argmax())
        low = peak
        while low > 0 and spread[low] > spread[peak] / 2:
            low -= 1
        high = peak
        while high < len(spread) - 1 and spread[high] > spread[peak] / 2:
            high += 1
        widths.append((high - low - 1) * 0.1)
    return float(np.median(widths))


def fine_detail(image: Volume) -> tuple[float, float]:
    """Return the strength of fine detail, and how much of it is left at the finest.

    Fine detail has spatial frequencies of .7 to .8 of the highest that the voxels hold; noise
    dominates there. Its strength is stated as the standard deviation of noise with this power in an
    elliptically sampled image, as a share of the signal around it. The second number is the power
    at .9 to 1 of the highest frequency, divided by the power of fine detail. It is small where an
    image was interpolated.
    """
    slices, rows, columns = middle(image)
    size = 32 if image.spacing[0] < 1.0 else 16
    window = np.hanning(size + 2)[1:-1]
    weights = window[:, None] * window
    powers = []
    for z in slices:
        for y in range(rows.start, min(rows.stop, image.shape[1]) - size + 1, size // 2):
            for x in range(columns.start, min(columns.stop, image.shape[2]) - size + 1, size // 2):
                part = image.array[z, y : y + size, x : x + size].astype(float)
                level = part.mean()
                if level > 0:
                    spectrum = np.fft.fft2((part - level) * weights)
                    powers.append(np.abs(spectrum) ** 2 / (weights**2).sum() / level**2)
    # The median over windows leaves out windows with a strong edge. The median of the power of
    # noise is ln 2 times its mean.
    power = np.median(powers, axis=0) / np.log(2.0)
    frequency = np.fft.fftfreq(size) * 2.0
    radius = np.hypot(frequency[:, None], frequency)
    fine = float(power[(radius >= 0.7) & (radius < 0.8)].mean())
    finest = float(power[(radius >= 0.9) & (radius < 1.0)].mean())
    return float(np.sqrt(fine * np.pi / 4.0)), finest / fine


def quality_rows(study: Study) -> dict[str, float]:
    """Measure sharpness and noise of a study's images."""
    images: dict[str, Volume] = {}
    if study.t2w is not None:
        images["T2"] = study.t2w
    if study.adc is not None:
        images["ADC"] = study.adc
    if study.dce is not None:
        images["DCE, first frame"] = study.dce.grid.with_array(study.dce.frames[0])
    rows = {}
    for name, image in images.items():
        # In an ADC map the steepest edges are those of noise in air.
        if name != "ADC":
            width = edge_width(image)
            rows[f"{name}: width of edges, mm"] = width
            rows[f"{name}: width of edges, voxels"] = width / image.spacing[0]
        fine, finest = fine_detail(image)
        rows[f"{name}: fine detail, SD / signal"] = fine
        rows[f"{name}: finest / fine, power"] = finest
    return rows


def real_studies() -> list[Study]:
    """Return the six ProstateX patients beside the project, without regions."""
    studies = {}
    rules = ROOT / "configs" / "import" / "prostatex.yaml"
    with tempfile.TemporaryDirectory() as folder:
        for source in ("prostatex", "prostatex-men"):
            out = Path(folder) / source
            import_source(SHARED / source, out, rules)
            for ref in read_cohort(out).studies():
                study = read_study(ref.folder, ref.study_id, ref.participant_id, [])
                # A patient who is in both folders has more images in the second.
                studies[ref.participant_id] = study
    return list(studies.values())


def quality(count: int = 3) -> None:
    """Print sharpness and noise of real and simulated images, each as median (least to largest)."""
    groups = {"real": [quality_rows(study) for study in real_studies()]}
    for name, variation in (("simulated", USUAL), ("with real noise", REAL_NOISE)):
        groups[name] = []
        for protocol in FULL:
            for index in range(count):
                patient = make_patient(100, index, (protocol,), variation=variation)
                groups[name].append(quality_rows(patient.study))
    print(f"| statistic | {' | '.join(groups)} |")
    print("|---" * (len(groups) + 1) + "|")
    for statistic in groups["simulated"][0]:
        cells = []
        for rows in groups.values():
            values = [row[statistic] for row in rows if statistic in row]
            if values:
                ends = f"{min(values):.2g} to {max(values):.2g}"
                cells.append(f"{np.median(values):.2g} ({ends}; {len(values)} men)")
            else:
                cells.append("")
        print(f"| {statistic} | {' | '.join(cells)} |")


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
    if sys.argv[1:2] == ["quality"]:
        quality(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
