"""Measure speed and memory of the features, as ratios measured in one run on the same data.

``python -m benchmarks.features`` prints the table and exits with 1 when a row does not hold.
``python -m benchmarks.features meaning`` prints the meaning of features instead (six minutes), and
``stability`` prints which features stay the same in another drawing (docs/robustness.md). Times are
those of a single thread: wall time, the best of several runs (others may share the cores). A study
is timed by its processor time, in turns with the reading of its files. ``PROFILE=1`` adds where the
time goes.
"""

from __future__ import annotations

import cProfile
import ctypes
import gc
import logging
import os
import pstats
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
from scipy.ndimage import gaussian_filter

from benchmarks.meaning import rows as meaning_rows
from benchmarks.meaning import stability_table
from cad.base.settings import FeatureSettings, ImageSettings, PerfusionSettings, PipelineSettings
from cad.evidence.phantom import simulate
from cad.folders.cohort import read_cohort
from cad.mri.features.haralick import haralick_features
from cad.mri.features.histogram import discretise
from cad.mri.features.intensity import statistics
from cad.mri.features.regions import RegionVoxels
from cad.mri.features.table import extract
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import read_study
from cad.mri.imaging.volume import Volume

# Name of the measurement, its value, its bound, and whether it holds.
Row = tuple[str, str, str, bool]
SETTINGS = PipelineSettings(name="benchmark")
# All families of features, with T2 and ADC interpolated to other grids.
EVERYTHING = PipelineSettings(
    name="everything",
    images=ImageSettings(spacing_t2w=(1.05, 1.05, 0.0), spacing_adc=(2.0, 2.0, 0.0)),
    features=FeatureSettings(
        families=(*SETTINGS.features.families, "size", "position"),
        perfusion=PerfusionSettings(models=("tofts", "extended_tofts", "brix", "patlak")),
    ),
)


def best(work: Callable[[], object], repeats: int) -> float:
    """Return the least wall time of several runs, seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def in_turns(*works: Callable[[], object], repeats: int = 9) -> list[list[float]]:
    """Return the processor time of each work in every round, seconds; the first round is void."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats + 1):
        for own, work in zip(times, works, strict=True):
            start = time.process_time()
            work()
            own.append(time.process_time() - start)
    return [own[1:] for own in times]


def windows(mask: np.ndarray, size: tuple[int, int, int]) -> RegionVoxels:
    """Return the box of voxels around each voxel of a mask as a region, cut at the mask's border.

    ``size`` is the number of voxels from the centre to the border along z, y, x.
    """
    reach = np.stack(np.meshgrid(*(np.arange(-n, n + 1) for n in size), indexing="ij"), axis=-1)
    padded = np.pad(mask, [(n, n) for n in size])
    around = np.argwhere(mask)[:, None] + reach.reshape(-1, 3)
    inside = padded[tuple(np.moveaxis(around + np.array(size), -1, 0))]
    index = np.ravel_multi_index(tuple(around[inside].T), mask.shape)
    return RegionVoxels(index, np.append(0, np.cumsum(inside.sum(axis=1))), mask.shape)


def scene() -> Volume:
    """Return a smooth random image of prostate-like intensities: about 20 bins of width 25."""
    noise = np.random.default_rng(0).normal(size=(24, 48, 48))
    array = gaussian_filter(noise, 1.0) * 600 + 600
    return Volume(array, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), np.eye(3))


def region_rows() -> list[Row]:
    """Measure one region of 275 voxels, 32 levels, 13 directions averaged as pyradiomics does."""
    from radiomics import firstorder, glcm

    image = scene()
    mask = np.zeros(image.shape, bool)
    mask[8:13, 15:26, 15:20] = True
    array, own, theirs = image.array, image.to_sitk(), image.with_array(mask).to_sitk()

    def reference() -> None:
        for kind in (firstorder.RadiomicsFirstOrder, glcm.RadiomicsGLCM):
            measured = kind(own, theirs, binCount=32)
            measured.enableAllFeatures()
            measured.execute()

    def ours() -> None:
        region = RegionVoxels.from_masks([mask])
        values = region.values(array)
        statistics(values, region.start)
        levels, n_levels = discretise(values, region.start, 32, None)
        haralick_features(levels, n_levels, region, 1, "3D_avg")

    reference()
    ours()
    slow, fast = best(reference, 15), best(ours, 300)
    return [
        _ratio("first-order + 25 GLCM of one region, against pyradiomics", slow / fast, 20),
        ("  the same, time", f"{fast * 1e3:.3f} ms", "<= 1 ms", fast <= 1e-3),
    ]


def window_rows() -> list[Row]:
    """Measure a sliding window of radius 2 over 2,700 voxels, averaged over 13 directions."""
    from radiomics import glcm

    image = scene()
    mask = np.zeros(image.shape, bool)
    mask[5:15, 10:25, 10:28] = True
    found: list[Row] = []
    for what, how, least in (("width 25", {}, 100), ("16 bins", {"binCount": 16}, 40)):
        measured = glcm.RadiomicsGLCM(
            image.to_sitk(),
            image.with_array(mask).to_sitk(),
            voxelBased=True,
            kernelRadius=2,
            voxelBatch=100,
            **how,
        )
        measured.enableAllFeatures()
        slow = best(measured.execute, 1) / mask.sum()
        region = RegionVoxels.from_masks([mask])
        levels, n_levels = discretise(
            region.values(image.array), region.start, 16 if how else None, 25.0
        )

        whole = np.zeros(image.shape, np.int64)
        whole[mask] = levels

        def ours(whole: np.ndarray = whole, n: int = int(n_levels[0])) -> None:
            around = windows(mask, (2, 2, 2))
            inside = around.values(whole).astype(np.int64)
            haralick_features(inside, np.full(around.count, n), around, 1, "3D_avg")

        ours()
        fast = best(ours, 7) / mask.sum()
        found.append(
            _ratio(
                f"sliding GLCM, {what} ({n_levels[0]} levels): {slow * 1e3:.2f} ms a voxel "
                f"against {fast * 1e6:.0f} us",
                slow / fast,
                least,
            )
        )
    return found


def study_rows() -> list[Row]:
    """Measure a simulated study against reading its files (``read_study``: NIfTI, checks)."""
    with tempfile.TemporaryDirectory() as folder:
        simulate(Path(folder) / "cohort", 1, 0)
        ref = read_cohort(Path(folder) / "cohort").studies()[0]
        rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]

        def read() -> Study:
            return read_study(ref.folder, ref.study_id, ref.participant_id, rois)

        times = _study_times(read)
        stored = _stored_bytes(ref.folder)
        grown, traced = _memory(lambda: extract(read(), SETTINGS))
    memory = max(grown, traced) / stored
    reading, usual, everything = (float(np.median(own)) for own in times)
    return [
        (
            f"study of {len(rois)} regions, {what}: {measuring:.2f} s, reading {reading:.2f} s",
            f"{measuring / reading:.2f}x",
            "<= 1.5x",
            measuring / reading <= 1.5,
        )
        for what, measuring in (
            ("default features", usual),
            ("every family, interpolated", everything),
        )
    ] + [
        (
            f"memory: arrays {stored / 2**20:.0f} MiB as stored, process grew by "
            f"{grown / 2**20:.0f}, arrays alive at most {traced / 2**20:.0f}",
            f"{memory:.2f}x",
            "<= 3x",
            memory <= 3,
        ),
    ]


def _study_times(read: Callable[[], Study]) -> list[list[float]]:
    """Return times of reading, default features and every family; then forget the study."""
    study = read()
    if os.environ.get("PROFILE"):
        _profile(study)
    return in_turns(read, lambda: extract(study, SETTINGS), lambda: extract(study, EVERYTHING))


def rows() -> list[Row]:
    """Return all rows of the table."""
    from benchmarks.perfusion import rows as perfusion_rows

    # This comes first, because its memory must be measured before other works use any.
    found = study_rows()
    for part in (region_rows, window_rows, perfusion_rows):
        found += part()
    return found


def _ratio(what: str, value: float, least: float) -> Row:
    return what, f"{value:.0f}x", f">= {least:g}x", value >= least


def _stored_bytes(folder: Path) -> int:
    """Return the bytes of all images of a study, decoded, in the type that their files store."""
    total = 0
    for path in sorted(folder.rglob("*.nii.gz")):
        header = nibabel.load(path).header
        total += int(np.prod(header.get_data_shape())) * header.get_data_dtype().itemsize
    return total


def _memory(work: Callable[[], object]) -> tuple[int, int]:
    """Return the growth of the process to its highest, and the most that arrays held, in bytes."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the largest size recorded so far
    before = _status("VmRSS")
    work()
    grown = _status("VmHWM") - before
    tracemalloc.start()
    work()
    traced = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return grown, traced


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key + ":")).split()[1]) * 1024


def _profile(study: Study) -> None:
    profile = cProfile.Profile()
    profile.enable()
    extract(study, SETTINGS)
    profile.disable()
    pstats.Stats(profile).sort_stats("cumulative").print_stats(25)


def main() -> None:
    """Print the table; exit with 1 when a row does not hold."""
    import radiomics

    radiomics.setVerbosity(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if sys.argv[1:] == ["stability"]:
        print(stability_table())
        return
    table = meaning_rows() if sys.argv[1:] == ["meaning"] else rows()
    width = max(len(what) for what, *_ in table)
    for what, value, bound, holds in table:
        print(f"{what:<{width}}  {value:>12}  {bound:<14}  {'holds' if holds else 'MISSED'}")
    if not all(holds for *_, holds in table):
        sys.exit(1)


if __name__ == "__main__":
    main()
