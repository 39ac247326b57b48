"""Measure the feature columns of any set of regions on one prepared modality.

:func:`measure_regions` measures three kinds of regions: regions of interest, perturbed copies of
them, and spheres around voxels for a probability map. So a probability map and a table of features
cannot disagree.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from pkgutil import resolve_name

import numpy as np

from cad.base.settings import FeatureSettings, TextureSettings
from cad.base.terms.features import FAMILIES, MAPS
from cad.mri.columns import columns_of, filter_name, map_channel, map_family
from cad.mri.features.filters import response_map
from cad.mri.features.gradient import kirsch_map, sobel_map
from cad.mri.features.histogram import discretise
from cad.mri.features.images import Prepared, filters_of
from cad.mri.features.intensity import statistics
from cad.mri.features.regions import RegionVoxels, Sample, keep_finite
from cad.mri.imaging.geometry import MIN_VOXELS

# Least share of a region's voxels in which a kinetic model must fit. With a smaller share, the
# region has no statistics of the model's parameters. In a voxel where the fit fails, the parameters
# are bounds or noise, and no statistic uses them. Statistics of how well the model fits use all
# voxels.
MIN_FITTED = 0.5

_MEASURED_BY: dict[str, Callable[[Sample], np.ndarray]] = {
    name: resolve_name(family.measured_by) for name, family in FAMILIES.items()
}


def texture_of(settings: FeatureSettings, modality: str) -> TextureSettings:
    """Return a modality's texture settings: ``texture_adc`` or ``texture_dce``, else ``texture``.

    Parameters
    ----------
    settings : FeatureSettings
        ``texture``, ``texture_adc`` and ``texture_dce``.
    modality : str
        Name of the modality.
    """
    return {"adc": settings.texture_adc, "dce": settings.texture_dce}.get(
        modality, settings.texture
    )


def resegmented(values: np.ndarray, start: np.ndarray, texture: TextureSettings) -> np.ndarray:
    """Return values, with NaN for values that re-segmentation (IBSI 2.5) leaves out.

    Re-segmentation leaves out values outside ``range``, and outliers of the region's own values. A
    setting that is None leaves no value out. NaN and infinite values count as left out already.

    Parameters
    ----------
    values : ndarray, shape (n,)
        Values of all regions, one region after the other; not changed.
    start : ndarray of int, shape (n_regions + 1,)
        Where each region begins in ``values``.
    texture : TextureSettings
        ``range``: the least and largest value; ``outliers``: the number of standard
        deviations from the region's mean beyond which a value is left out.

    Returns
    -------
    ndarray, shape (n,)
        The values, NaN where left out; ``values`` itself if none is left out.

    Examples
    --------
    >>> import numpy as np
    >>> texture = TextureSettings(range=(0.0, 10.0))
    >>> resegmented(np.array([-1.0, 5.0, 11.0]), np.array([0, 3]), texture).tolist()
    [nan, 5.0, nan]
    """
    is_used = np.isfinite(values)
    if texture.range is not None:
        is_used &= (values >= texture.range[0]) & (values <= texture.range[1])
    regions = pairwise(start) if texture.outliers else ()
    for first, last in regions:
        # Mean and standard deviation, which decide what an outlier is, are those of the region as
        # drawn. Values outside the range count in them, so that it does not matter which of the two
        # rules comes first (IBSI 2.5).
        region = values[first:last]
        finite = region[np.isfinite(region)].astype(float)
        if len(finite):  # a region without a value has neither mean nor outliers
            largest_distance = texture.outliers * finite.std()
            is_used[first:last] &= np.abs(region - finite.mean()) <= largest_distance
    return values if is_used.all() else np.where(is_used, values, np.nan)


def measure_regions(
    prepared: Prepared, regions: RegionVoxels, settings: FeatureSettings
) -> dict[str, np.ndarray]:
    """Measure regions on a modality.

    Parameters
    ----------
    prepared : Prepared
        The modality.
    regions : RegionVoxels
        The regions, on ``prepared.grid``.
    settings : FeatureSettings
        Settings: the families that are measured, the texture, and names of features to leave out.

    Returns
    -------
    dict of str to ndarray, shape (n_regions,)
        Values by name of the column, in the order of the feature table. NaN where fewer than 5
        voxels of a map have a value, or a region has no pair of neighbours for co-occurrence.
        Statistics weigh each voxel by the share that the region fills. Histogram and co-occurrence
        use the region's core (:meth:`RegionVoxels.is_core`) as whole voxels. Statistics of kinetic
        parameters leave out voxels whose fit failed, and are NaN for a region where the model fits
        less than half of the voxels. Statistics of the fit's quality (R2, residual, share of failed
        fits) use all voxels.
    """
    if prepared.name == "dce":
        channels = _of_series(prepared, regions, settings)
    else:
        channels = _of_image(prepared, regions, settings)
    return pick(channels, prepared.name, settings)


def pick(
    channels: Mapping[str, Mapping[str, np.ndarray] | np.ndarray],
    image: str,
    settings: FeatureSettings,
) -> dict[str, np.ndarray]:
    """Choose, from all statistics of an image, the columns that the settings name, in their order.

    Parameters
    ----------
    channels : mapping
        For each channel of the image, such as ``intensity`` or ``sobel``: values of shape
        (n_regions,) by name of the statistic.
    image : str
        Name of the modality.
    settings : FeatureSettings
        Names the features to measure.

    Returns
    -------
    dict of str to ndarray, shape (n_regions,)
        The values, by name of the column.

    Examples
    --------
    One region of five voxels, measured in one channel of the ADC map:

    >>> import numpy as np
    >>> values = np.array([1.0, 2.0, 3.0, 4.0, 10.0])
    >>> whole = np.ones(5)
    >>> measured = statistics(values, np.array([0, 5]), whole, whole > 0)
    >>> settings = FeatureSettings(families=("intensity",))
    >>> columns = pick({"intensity": measured}, "adc", settings)
    >>> columns["adc_intensity_median"].tolist(), columns["adc_intensity_mean"].tolist()
    ([3.0], [4.0])
    """
    chosen = {}
    for name, column in columns_of(settings).items():
        if column.image == image and column.channel in channels:
            chosen[name] = channels[column.channel][column.statistic]
    return chosen


def _of_image(
    prepared: Prepared, regions: RegionVoxels, settings: FeatureSettings
) -> dict[str, np.ndarray]:
    """Return the statistics of each channel of an image: an array with a record per region."""
    name = prepared.name
    image = prepared.grid.array
    texture = texture_of(settings, name)
    channels = _of_array(image, prepared.grid.spacing, regions, settings, texture)
    values_in_regions = resegmented(regions.values(image), regions.start, texture)
    for chosen in filters_of(settings, name):
        response = regions.values(response_map(image, prepared.grid.spacing, chosen))
        # Re-segmentation removes voxels with unusual values from a region. The response to a filter
        # is left out at these voxels, too (IBSI).
        response[~np.isfinite(values_in_regions)] = np.nan
        channels[filter_name(chosen)] = _statistics_of_regions(response, regions)
    return channels


def _of_array(
    image: np.ndarray,
    spacing: tuple[float, float, float],
    regions: RegionVoxels,
    settings: FeatureSettings,
    texture: TextureSettings,
) -> dict[str, np.ndarray]:
    """Return the statistics of an image, by channel: its values, gradients and texture."""
    families = settings.families
    channels: dict[str, np.ndarray] = {}
    # Histogram and co-occurrence get the grey levels of the core, the other families the values of
    # all voxels.
    sample = _sample(image, regions, texture)
    values_in_regions = resegmented(regions.values(image), regions.start, texture)
    if "intensity" in families:
        channels["intensity"] = _statistics_of_regions(values_in_regions, regions)
    if "gradient" in families:
        voxels = regions.voxels()
        sobel = sobel_map(image, spacing, voxels)
        channels["sobel"] = _statistics_of_regions(regions.values(sobel), regions)
        channels["kirsch"] = _statistics_of_regions(
            regions.values(kirsch_map(image, voxels)), regions
        )
    for family, measure_family in _MEASURED_BY.items():
        if family in families:
            channels[family] = measure_family(sample)
    return channels


def _sample(image: np.ndarray, regions: RegionVoxels, texture: TextureSettings) -> Sample:
    """Return the values of the regions' voxels and the grey levels into which they are binned.

    The texture settings say how values are binned. Only the core of each region counts: the voxels
    of which the region fills the largest shares.
    """
    core = regions.core()
    values = resegmented(core.values(image), core.start, texture)
    finite, start, is_finite = keep_finite(values, core.start)
    # Bins of a fixed width are counted from the least value that the settings let count.
    anchor = texture.range[0] if texture.range else None
    levels, n_levels = discretise(finite, start, texture.bins, texture.bin_width, anchor)
    return Sample(
        values=finite,
        start=start,
        is_finite=is_finite,
        core=core,
        levels=levels,
        n_levels=n_levels,
        texture=texture,
    )


def _of_series(
    prepared: Prepared, regions: RegionVoxels, settings: FeatureSettings
) -> dict[str, np.ndarray]:
    """Return the statistics of each map of a dynamic series: an array with a record per region."""
    channels: dict[str, np.ndarray] = {}
    # For each model, the voxels whose parameters do not count: those that the model does not fit,
    # and all voxels of a region in which it fits too few.
    unusable = {}
    for name, image in prepared.maps.items():
        if MAPS[name].role == "did_not_fit":  # the map is 1 where the model does not fit
            unfit = regions.values(image) > 0
            enough_fitted = np.array(regions.share_of(~unfit)) >= MIN_FITTED
            unusable[MAPS[name].model] = unfit | ~np.repeat(enough_fitted, regions.sizes)
    for name, image in prepared.maps.items():
        measured_map = MAPS[name]
        if map_family(measured_map) not in settings.families:  # no column takes its statistics
            continue
        values = regions.values(image)
        if measured_map.role == "parameter" and measured_map.model in unusable:
            values[unusable[measured_map.model]] = np.nan
        channels[map_channel(name)] = _statistics_of_regions(values, regions)

    # Gradients and texture are measured of the images that the setting ``dce_images`` names.
    texture = texture_of(settings, prepared.name)
    for name, image in prepared.images.items():
        records = _of_array(image, prepared.grid.spacing, regions, settings, texture)
        for channel, channel_record in records.items():
            if channel != "intensity":
                channels[f"{name}_{channel}"] = channel_record
            elif name not in MAPS:  # the values of a map were measured above, in its own channel
                channels[name] = channel_record
    return channels


def _statistics_of_regions(values: np.ndarray, regions: RegionVoxels) -> np.ndarray:
    """Return the statistics of each region; NaN for fewer than ``MIN_VOXELS`` finite values.

    ``values`` has a value for each voxel of the regions.
    """
    record = statistics(values, regions.start, regions.weight, regions.is_core)
    _, start_of_finite, _ = keep_finite(values, regions.start)
    n_finite = np.diff(start_of_finite)
    record[n_finite < MIN_VOXELS] = np.nan
    return record
