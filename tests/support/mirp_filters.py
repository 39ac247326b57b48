"""Print what MIRP 2.7.0 measures of filters, for tests/mri/features/test_filters.py.

``uv run --all-extras --group ibsi python tests/support/mirp_filters.py
> tests/mri/features/mirp_filters.csv``

Cases are those of IBSI 2: phase 1 on made phantoms (half the published ones' size, 2 mm voxels),
phase 2 on a made CT of a tumour in lung, because the published CT is not here.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from scipy.ndimage import gaussian_filter

from cad.base.settings import FilterSettings

MODES = {"mirror": "reflect", "nearest": "nearest", "zero": "constant", "periodic": "wrap"}
STATISTICS = {
    "mean": "mean",
    "var": "variance",
    "skew": "skewness",
    "kurt": "kurtosis",
    "median": "median",
    "min": "minimum",
    "p10": "p10",
    "p90": "p90",
    "max": "maximum",
    "iqr": "iqr",
    "range": "range",
    "mad": "mad",
    "rmad": "rmad",
    "medad": "medad",
    "cov": "cov",
    "qcod": "qcod",
    "energy": "energy",
    "rms": "rms",
}


def _mean(support: float, dimension: str, boundary: str = "mirror") -> dict[str, Any]:
    return {"kind": "mean", "support_mm": support, "dimension": dimension, "boundary": boundary}


def _log(sigma: float, dimension: str, boundary: str = "mirror") -> dict[str, Any]:
    return {"kind": "log", "sigma_mm": sigma, "dimension": dimension, "boundary": boundary}


def _wavelet(name: str, bands: str, level: int, turned: bool, boundary: str) -> dict[str, Any]:
    return {
        "kind": "wavelet",
        "wavelet": name,
        "bands": bands,
        "level": level,
        "rotations": turned,
        "dimension": "3D" if len(bands) == 3 else "slice",
        "boundary": boundary,
    }


# IBSI's number of the test -> phantom, filter
PHANTOM_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "1.a.1": ("checkerboard", _mean(30, "3D", "zero")),
    "1.a.2": ("checkerboard", _mean(30, "3D", "nearest")),
    "1.a.3": ("checkerboard", _mean(30, "3D", "periodic")),
    "1.a.4": ("checkerboard", _mean(30, "3D")),
    "1.b.1": ("impulse", _mean(30, "slice", "zero")),
    "2.a": ("impulse", _log(3, "3D", "zero")),
    "2.b": ("checkerboard", _log(5, "3D")),
    "2.c": ("checkerboard", _log(5, "slice")),
    "5.a.1": ("impulse", _wavelet("db2", "LHL", 1, False, "zero")),
    "5.a.2": ("impulse", _wavelet("db2", "LHL", 1, True, "zero")),
    "6.a.1": ("sphere", _wavelet("coif1", "HHL", 1, False, "periodic")),
    "6.a.2": ("sphere", _wavelet("coif1", "HHL", 1, True, "periodic")),
    "7.a.1": ("checkerboard", _wavelet("haar", "LLL", 2, True, "mirror")),
    "7.a.2": ("checkerboard", _wavelet("haar", "HHH", 2, True, "mirror")),
    "noise": ("noise", _wavelet("db3", "LH", 2, True, "mirror")),
}
CT_CASES: dict[str, dict[str, Any]] = {
    "2.A": _mean(5, "slice"),
    "2.B": _mean(5, "3D"),
    "3.A": _log(1.5, "slice"),
    "3.B": _log(1.5, "3D"),
    "6.A": _wavelet("db3", "LH", 1, True, "mirror"),
    "6.B": _wavelet("db3", "LLH", 1, True, "mirror"),
    "7.A": _wavelet("db3", "HH", 2, True, "mirror"),
    "7.B": _wavelet("db3", "HHH", 2, True, "mirror"),
}
SIDE = 2.0


def phantom(name: str) -> np.ndarray:
    """Return an image of 32 voxels a side, values 0 to 255."""
    at = np.indices((32, 32, 32))
    if name == "impulse":
        return np.where((at == 16).all(axis=0), 255.0, 0.0)
    if name == "checkerboard":
        return np.where((at // 8).sum(axis=0) % 2, 255.0, 0.0)
    if name == "sphere":
        return np.where(((at - 15.5) ** 2).sum(axis=0) < 11**2, 255.0, 0.0)
    return np.random.default_rng(5).integers(0, 256, (32, 32, 32)).astype(float)


def tumour_in_lung() -> tuple[np.ndarray, tuple[float, float, float], np.ndarray]:
    """Return a made CT in whole Hounsfield units, its spacing (x, y, z) and the outlined mass."""
    rng = np.random.default_rng(3)
    shape, spacing = (24, 70, 66), (0.977, 0.977, 3.0)
    z, y, x = np.meshgrid(*[np.arange(n) - (n - 1) / 2 for n in shape], indexing="ij")
    radius = np.sqrt((x * 0.98 / 17) ** 2 + (y * 0.98 / 15) ** 2 + (z * 3 / 18) ** 2)
    radius += 2.4 * gaussian_filter(rng.standard_normal(shape), (1, 4, 4))
    uneven = gaussian_filter(rng.standard_normal(shape), (0.5, 1.2, 1.2))
    mass, lung = 40 + 60 * uneven / uneven.std(), -780 + 90 * uneven / uneven.std()
    density = gaussian_filter(np.where(radius < 1.05, mass, lung), (0.3, 0.8, 0.8))
    density += 15 * rng.standard_normal(shape)
    return np.rint(density).astype(np.int16), spacing, radius < 1.08


def mirp_words(chosen: FilterSettings, side: float) -> dict[str, Any]:
    """Return MIRP's words for a filter on voxels of this side."""
    words = {"by_slice": chosen.dimension == "slice", "boundary_condition": MODES[chosen.boundary]}
    if chosen.kind == "mean":
        size = round((chosen.support_mm or 0) / side)
        return words | {"filter_kernels": "mean", "mean_filter_kernel_size": size}
    if chosen.kind == "log":
        return words | {
            "filter_kernels": "laplacian_of_gaussian",
            "laplacian_of_gaussian_sigma": chosen.sigma_mm,
            "laplacian_of_gaussian_kernel_truncate": chosen.truncate,
        }
    return words | {
        "filter_kernels": "separable_wavelet",
        "separable_wavelet_families": chosen.wavelet,
        "separable_wavelet_set": (chosen.bands or "").lower(),
        "separable_wavelet_decomposition_level": chosen.level,
        "separable_wavelet_rotation_invariance": chosen.rotations,
        "separable_wavelet_pooling_method": "mean",
    }


def ask_mirp(
    image: np.ndarray, mask: np.ndarray, spacing: tuple[float, float, float], **words: Any
) -> tuple[dict[str, float], np.ndarray]:
    """Return MIRP's 18 statistics of a region's response, by our names, and the response map."""
    import mirp

    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for file, array in (("image", image.astype(float)), ("mask", mask.astype(np.uint8))):
            made = sitk.GetImageFromArray(array)
            made.SetSpacing(spacing)
            sitk.WriteImage(made, str(Path(name) / f"{file}.nii.gz"))
        features, images, _ = mirp.extract_features_and_images(
            image=str(Path(name) / "image.nii.gz"),
            mask=str(Path(name) / "mask.nii.gz"),
            write_features=False,
            export_features=True,
            write_images=False,
            export_images=True,
            image_export_format="numpy",
            anti_aliasing=False,
            base_feature_families="none",
            response_map_feature_families="statistics",
            **words,
        )[0]
    row = features.iloc[0]
    found = {
        ours: float(row[column])
        for theirs, ours in STATISTICS.items()
        for column in row.index
        if str(column).endswith(f"stat_{theirs}")
    }
    return found, np.asarray(images[-1])


def phantom_of_mirp(case: str) -> tuple[dict[str, float], np.ndarray]:
    """Return MIRP's statistics and response of a case of phase 1; the region is the whole image."""
    name, chosen = PHANTOM_CASES[case]
    image = phantom(name)
    words = mirp_words(FilterSettings(**chosen), SIDE)
    return ask_mirp(image, np.ones(image.shape), (SIDE, SIDE, SIDE), **words)


def ct_of_mirp(case: str) -> dict[str, float]:
    """Return MIRP's statistics of a case of phase 2: interpolated to 1 mm, re-segmented."""
    image, spacing, mask = tumour_in_lung()
    words = mirp_words(FilterSettings(**CT_CASES[case]), 1.0)
    return ask_mirp(
        image,
        mask,
        spacing,
        image_modality="ct",
        new_spacing=1.0,
        spline_order=3,
        resegmentation_intensity_range=[-1000.0, 400.0],
        **words,
    )[0]


if __name__ == "__main__":
    logging.disable(logging.INFO)  # MIRP reports its progress on standard output
    print("case,statistic,value")
    for case in PHANTOM_CASES:
        for key, value in phantom_of_mirp(case)[0].items():
            print(f"{case},{key},{value:.9g}")
    for case in CT_CASES:
        for key, value in ct_of_mirp(case).items():
            print(f"{case},{key},{value:.9g}")
