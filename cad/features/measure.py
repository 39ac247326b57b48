"""Feature columns of any set of regions on one prepared modality.

Regions of interest, perturbed copies of them and spheres around voxels all pass through
:func:`measure`: a probability map and a table of features cannot disagree.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import pairwise

import numpy as np

from cad.features.filters import filter_name, response_map
from cad.features.gradient import kirsch_map, sobel_map
from cad.features.haralick import HARALICK, haralick_features
from cad.features.histogram import HISTOGRAM, discretise, histogram_features
from cad.features.images import Prepared, filters_of
from cad.features.intensity import STATISTICS, statistics
from cad.features.regions import RegionVoxels, keep_finite
from cad.features.registry import counts_voxels, statistics_of
from cad.imaging.geometry import MIN_VOXELS
from cad.settings import FeatureSettings, TextureSettings

# settings.texture (dimension, aggregation) -> IBSI's name
_AGGREGATION = {
    ("slice", "merged"): "2D_comb",
    ("slice", "averaged"): "2D_avg",
    ("2D", "merged"): "2_5D_comb",
    ("2D", "averaged"): "2_5D_avg",
    ("3D", "merged"): "3D_comb",
    ("3D", "averaged"): "3D_avg",
}

# A parameter of a voxel whose fit failed is a bound or noise: no statistic is made of it, and none
# of a region where the model fits less than this share. How good fits are is said of all voxels.
MIN_FITTED = 0.5
UNFIT = "_did_not_fit"
FIT_QUALITY = (UNFIT, "_r2", "_residual")


def aggregation_of(texture: TextureSettings) -> str:
    """Return IBSI's name of the settings' aggregation."""
    return _AGGREGATION[texture.dimension, texture.aggregation]


def texture_of(settings: FeatureSettings, modality: str) -> TextureSettings:
    """Return the texture settings of a modality."""
    return settings.texture_adc if modality == "adc" else settings.texture


def resegmented(values: np.ndarray, start: np.ndarray, texture: TextureSettings) -> np.ndarray:
    """Replace values outside the re-segmentation range, and a region's outliers, by NaN."""
    kept = np.isfinite(values)
    if texture.range is not None:
        kept &= (values >= texture.range[0]) & (values <= texture.range[1])
    for first, last in pairwise(start) if texture.outliers else ():
        # Of the region as drawn: range and outliers do not wait for each other (IBSI 2.5).
        own = values[first:last]
        known = own[np.isfinite(own)].astype(float)
        if len(known):
            reach = texture.outliers * known.std()
            kept[first:last] &= np.abs(own - known.mean()) <= reach
    return values if kept.all() else np.where(kept, values, np.nan)


def measure(
    prepared: Prepared, regions: RegionVoxels, settings: FeatureSettings
) -> dict[str, np.ndarray]:
    """Measure regions on a modality.

    Parameters
    ----------
    prepared : Prepared
        The modality.
    regions : RegionVoxels
        On ``prepared.grid``.
    settings : FeatureSettings
        Families, texture, names to leave out.

    Returns
    -------
    dict of str to ndarray, shape (n_regions,)
        In the registry's order. NaN where fewer than 5 voxels of a map have a value, or a region
        has no pair of neighbours for co-occurrence. Statistics weigh voxels by the region's share
        of them, histogram and co-occurrence take its core. Kinetic parameters of voxels that did
        not fit are left out, and are NaN for a region where less than half fits; fit quality (R2,
        residual, share that did not fit) is of all voxels.
    """
    columns = (
        _measure_maps(prepared, regions, settings)
        if prepared.name == "dce"
        else _measure_image(prepared, regions, settings)
    )
    return {
        name: values
        for name, values in columns.items()
        if not any(fnmatchcase(name, pattern) for pattern in settings.exclude)
        and (settings.counting or not counts_voxels(name))
    }


def _measure_image(
    prepared: Prepared, regions: RegionVoxels, settings: FeatureSettings
) -> dict[str, np.ndarray]:
    name, image, families = prepared.name, prepared.grid.array, settings.families
    columns: dict[str, np.ndarray] = {}
    texture = texture_of(settings, name)
    core = regions.core()
    values = resegmented(core.values(image), core.start, texture)
    finite, start, kept = keep_finite(values, core.start)
    anchor = texture.range[0] if texture.range else None
    levels, n_levels = discretise(finite, start, texture.bins, texture.bin_width, anchor)
    inside = resegmented(regions.values(image), regions.start, texture)
    if "intensity" in families:
        columns |= _statistics(f"{name}_intensity", inside, regions)
    if "histogram" in families:
        found = histogram_features(levels, start, n_levels)
        found[np.diff(start) < MIN_VOXELS] = np.nan
        columns |= {f"{name}_histogram_{f}": found[:, i] for i, f in enumerate(HISTOGRAM)}
    if "gradient" in families:
        voxels = regions.voxels()
        for family, gradient in (
            ("sobel", sobel_map(image, prepared.grid.spacing, voxels)),
            ("kirsch", kirsch_map(image, voxels)),
        ):
            columns |= _statistics(f"{name}_{family}", regions.values(gradient), regions)
    for chosen in filters_of(settings, name):
        found = regions.values(response_map(image, prepared.grid.spacing, chosen))
        # Re-segmentation is the region's: what does not count there does not count here (IBSI).
        found[~np.isfinite(inside)] = np.nan
        columns |= _statistics(f"{name}_{filter_name(chosen)}", found, regions)
    if "haralick" in families:
        everywhere = np.zeros(len(values), np.int64)
        everywhere[kept] = levels
        texture_values = haralick_features(
            everywhere, n_levels, core, texture.distance, aggregation_of(texture)
        )
        columns |= {f"{name}_haralick_{f}": texture_values[:, i] for i, f in enumerate(HARALICK)}
    return columns


def _measure_maps(
    prepared: Prepared, regions: RegionVoxels, settings: FeatureSettings
) -> dict[str, np.ndarray]:
    columns: dict[str, np.ndarray] = {}
    unfit = {
        stem.removesuffix(UNFIT): regions.values(image) > 0
        for stem, image in prepared.maps.items()
        if stem.endswith(UNFIT)
    }
    fits = {model: _fits(lost, regions) for model, lost in unfit.items()}
    for stem, image in prepared.maps.items():
        family = "semiquantitative" if stem.startswith("dce_semi_") else "kinetic"
        if family not in settings.families:
            continue
        values = regions.values(image)
        if not stem.endswith(FIT_QUALITY):
            model = next((m for m in unfit if stem.startswith(f"{m}_")), None)
            if model is not None:
                values[unfit[model] | ~fits[model]] = np.nan
        columns |= _statistics(stem, values, regions)
    return columns


def _fits(unfit: np.ndarray, regions: RegionVoxels) -> np.ndarray:
    """Return, for every voxel, whether the model fits enough of its region."""
    weight = np.ones(len(unfit)) if regions.weight is None else regions.weight
    limits = list(zip(regions.start[:-1], regions.start[1:], strict=True))
    good = [
        float((weight[a:b] * ~unfit[a:b]).sum()) >= MIN_FITTED * float(weight[a:b].sum())
        for a, b in limits
    ]
    return np.repeat(np.array(good, bool), np.diff(regions.start))


def _statistics(stem: str, values: np.ndarray, regions: RegionVoxels) -> dict[str, np.ndarray]:
    finite, limits, kept = keep_finite(values, regions.start)
    if regions.weight is None:
        found = statistics(finite, limits)
    else:
        found = statistics(finite, limits, regions.weight[kept], regions.is_core[kept])
    found[np.diff(limits) < MIN_VOXELS] = np.nan
    wanted = statistics_of(stem)
    return {f"{stem}_{s}": found[:, i] for i, s in enumerate(STATISTICS) if s in wanted}
