"""Draw the three figures of docs/maps.md from the real study ProstateX-0218.

``python -m benchmarks.maps_figure [docs]`` imports the DICOM series beside the project by the
shipped rules and computes the maps. It writes ``maps.png``, ``texture.png`` and
``registration.png``, and prints the numbers that the page quotes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from benchmarks.features import windows
from cad.base.settings import PerfusionSettings
from cad.dicom.into.importer import import_source
from cad.mri.features.haralick import haralick_features
from cad.mri.features.histogram import discretise
from cad.mri.features.images import crop
from cad.mri.features.perfusion.maps import PerfusionMaps, perfusion_maps
from cad.mri.features.perfusion.t1 import fit_t1
from cad.mri.imaging.geometry import resample_image, resample_mask
from cad.mri.imaging.registration import Registration, align_study, dce_reference
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import read_study
from cad.mri.imaging.volume import Volume

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("CAD_REFERENCE_DATA", ROOT.parent / "shared" / "data"))
PATIENT = "sub-ProstateX0218"
# Part of the dynamic grid that is shown, and boxes (z, y, x) placed by hand in tissues.
WINDOW = (slice(40, 130), slice(35, 125))
SETTINGS = PerfusionSettings(models=("tofts",))
COLOURS = 256
SLICES = (6, 9, 11)
TISSUES = {
    "gland (mid)": (slice(8, 12), slice(80, 96), slice(72, 90)),
    "bladder": (slice(11, 14), slice(60, 72), slice(70, 88)),
    "gluteal muscle": (slice(4, 9), slice(130, 145), slice(105, 125)),
    "obturator muscle": (slice(7, 10), slice(70, 85), slice(48, 53)),
}
TEXTURES = ("contrast", "correlation", "joint_entropy")
PANELS = (
    ("t1", "T1 (s)", 0.0, 3.0),
    ("tofts_ktrans", "Ktrans (1/min)", 0.0, 0.3),
    ("tofts_ve", "ve", 0.0, 0.6),
    ("tofts_r2", "R² (Tofts)", 0.0, 1.0),
    ("relative_enhancement", "relative enhancement", 0.0, 3.0),
)


def real_study(folder: Path) -> Study:
    """Return ProstateX-0218, imported into ``folder`` and read back."""
    import_source(SHARED / "prostatex", folder, ROOT / "configs" / "import" / "prostatex.yaml")
    rois = [Roi(str(i), i) for i in (1, 2, 3, 4)]
    return read_study(folder / PATIENT, PATIENT, PATIENT, rois)


def draw_maps(study: Study, maps: PerfusionMaps, path: Path) -> None:
    """Draw the baseline image and five maps in three slices, with ROI outlines."""
    assert study.dce is not None
    assert study.roi_map is not None
    outlines = resample_mask(study.roi_map, study.dce.grid).array
    base = study.dce.frames[: maps.n_baseline].mean(axis=0)
    fig, axes = plt.subplots(len(SLICES), 1 + len(PANELS), figsize=(15, 7.6), layout="constrained")
    for row, z in zip(axes, SLICES, strict=True):
        row[0].imshow(base[z][WINDOW], cmap="gray", vmin=0, vmax=220)
        row[0].set_title(f"signal before contrast, slice {z}", fontsize=9)
        for ax, (name, title, low, high) in zip(row[1:], PANELS, strict=True):
            shown = ax.imshow(maps.maps[name].array[z][WINDOW], cmap="viridis", vmin=low, vmax=high)
            ax.set_title(title, fontsize=9)
            if z == SLICES[-1]:
                fig.colorbar(shown, ax=ax, location="bottom", shrink=0.8)
        for ax in row:
            ax.axis("off")
            if outlines[z].any():
                ax.contour(outlines[z][WINDOW], levels=[0.5], colors="red", linewidths=0.7)
    _save(fig, path)


def draw_texture(study: Study, path: Path) -> None:
    """Draw T2 and three co-occurrence features of a sliding window over it."""
    assert study.t2w is not None
    part = (slice(9, 12), slice(110, 220), slice(110, 240))
    image = crop(study.t2w, part)
    levels, n_levels = discretise(image.array.ravel(), np.array([0, image.array.size]), 16, None)
    around = windows(np.ones(image.shape, bool), (0, 3, 3))
    made = haralick_features(
        levels[around.index], np.full(around.count, n_levels[0]), around, 1, "2_5D_comb"
    )
    shown = [("T2", image.array)]
    shown += [(name.replace("_", " "), made[name].reshape(image.shape)) for name in TEXTURES]
    fig, axes = plt.subplots(1, len(shown), figsize=(13, 3.6), layout="constrained")
    for ax, (title, array) in zip(axes, shown, strict=True):
        low, high = np.nanpercentile(array[1], (2, 98))
        ax.imshow(array[1], cmap="gray" if title == "T2" else "viridis", vmin=low, vmax=high)
        ax.set_title(title, fontsize=9)
        ax.axis("off")
    _save(fig, path)


def draw_registration(study: Study, aligned: Study, done: list[Registration], path: Path) -> None:
    """Draw T2; draw ADC and late dynamic signal on its grid, before and after, with T2's edges."""
    assert study.t2w is not None
    columns: list[tuple[str, Volume, float]] = [("T2", study.t2w, 700.0)]
    for found in done:
        pair = [_moving(s, found.name) for s in (study, aligned)]
        top = 250.0 if found.name == "dce" else 2200.0
        for when, image, mi in zip(
            ("as acquired", "aligned"), pair, (found.before, found.after), strict=True
        ):
            title = f"{found.name.upper()} {when}\nmutual information {mi:.2f}"
            columns.append((title, resample_image(image, study.t2w), top))
    rows = (6, 9, 12)
    fig, axes = plt.subplots(len(rows) + 1, len(columns), figsize=(13, 11.5), layout="constrained")
    part = (slice(50, 260), slice(60, 260))
    for row, z in zip(axes, rows, strict=False):
        for ax, (title, image, top) in zip(row, columns, strict=True):
            ax.imshow(image.array[z][part], cmap="gray", vmin=0, vmax=top)
            _edges(ax, study.t2w.array[z][part])
            ax.set_title(f"{title}\nslice {z}", fontsize=8)
    for ax, (_, image, top) in zip(axes[-1], columns, strict=True):
        cut = image.array[:, 50:260, 155]
        ratio = study.t2w.spacing[2] / study.t2w.spacing[1]
        ax.imshow(cut, cmap="gray", vmin=0, vmax=top, aspect=ratio, origin="lower")
        ax.set_title("sagittal, front left", fontsize=8)
    for ax in axes.ravel():
        ax.axis("off")
    _save(fig, path)


def _save(fig: plt.Figure, path: Path) -> None:
    """Save as PNG with a palette: a third of the size, without a visible difference."""
    fig.savefig(path, dpi=72)
    plt.close(fig)
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(COLOURS)
    small.save(path, optimize=True)


def _moving(study: Study, name: str) -> Volume:
    if name == "adc":
        assert study.adc is not None
        return study.adc
    assert study.dce is not None
    return dce_reference(study.dce)


def _edges(ax: plt.Axes, image: np.ndarray) -> None:
    from scipy.ndimage import gaussian_filter

    steep = np.hypot(*np.gradient(gaussian_filter(image.astype(float), 2)))
    ax.contour(steep, levels=[25], colors="yellow", linewidths=0.5)


def print_numbers(study: Study, aligned: Study, maps: PerfusionMaps) -> None:
    """Print medians of tissues and regions, and the effect of a missing flip angle on T1."""
    for note in maps.notes:
        print("note:", note)
    print(f"bolus at {maps.arrival:.1f} s, {maps.n_baseline} baseline frames")
    names = ("t1", "tofts_ktrans", "tofts_ve", "tofts_r2", "relative_enhancement")
    for tissue, box in TISSUES.items():
        values = {n: np.nanpercentile(maps.maps[n].array[box], (25, 50, 75)) for n in names}
        print(tissue, {n: np.round(v, 3).tolist() for n, v in values.items()})
    for title, one in (("as acquired", study), ("aligned", aligned)):
        made = maps if one is study else perfusion_maps(one, SETTINGS, _regions(one))
        for roi in study.rois:
            _print_region(title, one, made, roi)
    angles = np.array([a for a, _ in study.vfa])
    for tissue, box in TISSUES.items():
        mean = np.array([v.array[box].mean() for _, v in study.vfa])[:, None]
        for left_out in (None, *range(len(angles))):
            keep = [i for i in range(len(angles)) if i != left_out]
            fit = fit_t1(mean[keep], angles[keep], study.vfa_repetition_time or 0.0)
            print(f"{tissue}: flip angles {angles[keep].tolist()}: T1 {float(fit.t1[0]):.2f} s")


def _regions(study: Study) -> np.ndarray:
    assert study.dce is not None
    assert study.roi_map is not None
    return np.asarray(resample_mask(study.roi_map, study.dce.grid).array, bool)


def _print_region(title: str, study: Study, made: PerfusionMaps, roi: Roi) -> None:
    assert study.dce is not None
    assert study.roi_map is not None
    label = study.roi_map.with_array(np.equal(study.roi_map.array, roi.label))
    mask = np.asarray(resample_mask(label, study.dce.grid).array, bool)
    params = made.curve(mask).params
    t1 = float(np.nanmedian(made.maps["t1"].array[mask]))
    print(
        f"{title}, ROI {roi.roi_id} ({int(mask.sum())} voxels): T1 {t1:.2f} s, "
        f"Ktrans {params['tofts_ktrans']:.3f} 1/min, ve {params['tofts_ve']:.2f}, "
        f"R2 {params['tofts_r2']:.3f}"
    )


def main() -> None:
    """Write both figures and print the page's numbers."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    with tempfile.TemporaryDirectory() as folder:
        study = real_study(Path(folder))
        maps = perfusion_maps(study, SETTINGS)
        aligned, done = align_study(replace(study))
        for found in done:
            print(found.note)
        print_numbers(study, aligned, maps)
        draw_maps(study, maps, out / "maps.png")
        draw_texture(study, out / "texture.png")
        draw_registration(study, aligned, done, out / "registration.png")


if __name__ == "__main__":
    main()
