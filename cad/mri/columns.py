"""The columns of the feature table: each is an object with definition, unit and words for a page.

:func:`columns_of` returns the columns that the code makes under given settings, in the order in
which they are stored. To learn about a column, look it up there by its whole name. Names are never
split into their parts.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import Any

from pydantic import ValidationError

from cad.base.settings import FeatureSettings, FilterSettings
from cad.base.terms import features as terms
from cad.base.terms.modality import short_name

# Some perfusion maps say how well a model fits the curve of each voxel. Of such a map one statistic
# becomes a feature, by the role of the map; further statistics would tell no more.
_STATISTICS_OF_FIT = {"did_not_fit": ("mean",), "r2": ("median",), "residual": ("median",)}
_SIGNED_MAPS = ("wash_out", "bolus_arrival", "input_delay")


@dataclass(frozen=True)
class Column:
    """Describe a column of the feature table.

    Parameters
    ----------
    image : str
        Name of the modality; empty for size and position of the region as drawn.
    family : str
        One of ``features.families`` in the settings, or ``filters`` or ``radiomics``.
    channel : str
        The map or response that is measured: ``intensity``, ``sobel``, ``tofts_ktrans``,
        ``log3mm``.
    statistic : str
        The statistic that is taken of the channel's values: ``median``, ``contrast``.
    definition : str
        The feature's definition in one sentence.
    unit : str
        "1" for a pure number.
    source : str
        Where the definition comes from.
    ibsi : str
        Four-character tag of the IBSI reference manual, or empty.
    title, words : str
        Heading under which a page shows the feature, and an explanation of that heading.
    label : str
        The feature's name under that heading.
    groups : tuple of str
        Names of the groups of features to which this feature belongs. A group is tested as a whole
        for whether a region is unlike others (:mod:`cad.mri.features.typicality`). A feature
        belongs to the group of its image, and to the group of its kind of feature in this image.
        Means and percentiles of intensity also belong to the group of the image's level.
    counts_voxels : bool
        Whether the feature mainly measures the size of the region, even if its name says otherwise.
    """

    image: str
    family: str
    channel: str
    statistic: str
    definition: str
    unit: str
    source: str
    ibsi: str
    title: str
    words: str
    label: str
    groups: tuple[str, ...]
    counts_voxels: bool = False

    @cached_property
    def name(self) -> str:
        """Return the name of the column in the feature table, such as ``t2w_intensity_median``."""
        return column_name(self.image, self.channel, self.statistic)


def column_name(image: str, channel: str, statistic: str) -> str:
    """Return the name of a column: its parts that are not empty, joined by underscores.

    Parameters
    ----------
    image, channel, statistic : str
        Modality, map or filter response, and statistic, such as ``t2w``, ``intensity``, ``median``.

    Examples
    --------
    >>> column_name("t2w", "intensity", "median"), column_name("", "size", "volume")
    ('t2w_intensity_median', 'size_volume')
    """
    return "_".join(word for word in (image, channel, statistic) if word)


def columns_of(features: FeatureSettings) -> dict[str, Column]:
    """Return every column that the code can make under these settings, by name.

    Parameters
    ----------
    features : FeatureSettings
        Images, families, kinetic models, filters, classes of pyradiomics, names to leave out.

    Returns
    -------
    dict of str to Column
        The columns in the order in which the table stores them. A study that lacks an image has no
        values in the columns of this image.

    Examples
    --------
    >>> columns = columns_of(FeatureSettings(modalities=("adc",), families=("intensity",)))
    >>> columns["adc_intensity_median"].unit
    '1e-6 mm2/s'
    """
    columns = [*_REGION_COLUMNS]
    for image in features.modalities:
        if image == "dce":
            columns += _columns_of_series(features)
        else:
            columns += _columns_of_image(image, features)

    # The families of filters and of pyradiomics are not switched on by name: columns are made only
    # for the filters and classes that the settings list.
    measured_families = (*features.families, "filters", "radiomics")
    chosen = {}
    for column in columns:
        is_measured = column.family in measured_families
        is_unwanted_size = column.counts_voxels and not features.counting
        is_excluded = any(fnmatchcase(column.name, pattern) for pattern in features.exclude)
        if is_measured and not is_unwanted_size and not is_excluded:
            chosen[column.name] = column
    return chosen


def columns_stated(settings: Mapping[str, Any]) -> dict[str, Column]:
    """Return the feature columns that a run or a model with these settings has.

    Parameters
    ----------
    settings : mapping
        The content of a pipeline file; only its section ``features`` is read.

    Returns
    -------
    dict of str to Column
        By name; empty when ``features`` is not valid, as settings of an earlier version may be.
    """
    # Without the section, every setting of the features has its default value.
    section = settings.get("features") or {}
    with suppress(ValidationError):
        return columns_of(FeatureSettings.model_validate(section))
    return {}


def columns_of_table(names: Sequence[str]) -> dict[str, Column]:
    """Return the columns of a user's own table, of which only the names are known.

    Parameters
    ----------
    names : sequence of str
        The feature columns.

    Returns
    -------
    dict of str to Column
        The columns by name. Each column is a group of its own, so that a page can name the column
        in which a region is unlike the training regions.
    """
    columns = {}
    for name in names:
        columns[name] = Column(
            image="",
            family="table",
            channel=name,
            statistic="",
            definition="A column of the table.",
            unit="",
            source="the table",
            ibsi="",
            title=name,
            words="",
            label=name,
            groups=(name,),
        )
    return columns


def columns_digest(features: FeatureSettings) -> str:
    """Return a hash of all columns' names and units under these settings.

    Features that were stored under another hash have to be measured again.
    """
    names_and_units = [(column.name, column.unit) for column in columns_of(features).values()]
    return hashlib.sha256(json.dumps(names_and_units).encode()).hexdigest()


def units_of(names: Iterable[str], columns: Mapping[str, Column]) -> dict[str, str]:
    """Return the unit of each feature.

    Parameters
    ----------
    names : iterable of str
        Names of features.
    columns : mapping of str to Column
        The columns by name, as from :func:`columns_of`.

    Returns
    -------
    dict of str to str
        Unit by name: "1" for a pure number, empty for a name that is not in ``columns``.
    """
    return {name: columns[name].unit if name in columns else "" for name in names}


def filter_name(chosen: FilterSettings) -> str:
    """Return the text that names a filter in its columns: ``log3mm``, ``wavelet_db3_llh_1``.

    Examples
    --------
    >>> filter_name(FilterSettings(kind="log", sigma_mm=3.0))
    'log3mm'
    """
    if chosen.kind == "wavelet":
        bands = (chosen.bands or "").lower()
        turned = "_turned" if chosen.rotations else ""
        return f"wavelet_{chosen.wavelet}_{bands}_{chosen.level}{turned}"
    # Only the mean filter has a support. Every other filter is as wide as its sigma.
    width_mm = chosen.support_mm if chosen.kind == "mean" else chosen.sigma_mm
    dimension = "_3d" if chosen.dimension == "3D" else ""
    return f"{chosen.kind}{width_mm:g}mm{dimension}"


def snake(name: str) -> str:
    """Return a CamelCase name of pyradiomics in snake_case.

    ``GrayLevelNonUniformity`` becomes ``gray_level_non_uniformity``.

    Examples
    --------
    >>> snake("GrayLevelNonUniformity")
    'gray_level_non_uniformity'
    """
    # A word begins at a capital after a small letter or a digit. It also begins at the last of
    # several capitals, if a small letter follows it.
    word_begins = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    return re.sub(word_begins, "_", name).lower()


def radiomics_channel(name: str) -> str:
    """Return the text that names a feature class of pyradiomics in its columns.

    Parameters
    ----------
    name : str
        Class as the setting ``features.radiomics`` names it.
    """
    # The settings have these two single features as classes. In pyradiomics they belong to a class
    # of another name, which stands in the column.
    class_of_feature = {"total_energy": "firstorder", "mcc": "glcm"}
    return class_of_feature.get(name, name)


@cache
def _image_columns(image: str, family: str) -> tuple[Column, ...]:
    """Return the columns of one family of features of one image."""
    whole = terms.IMAGES[image]
    image_title = short_name(image)
    if family == "intensity":
        # By default T2 values are z-scores, which lie on both sides of zero.
        return _statistic_columns(image, family, family, whole, signed=image == "t2w")
    if family == "gradient":
        columns: list[Column] = []
        for name, operator in terms.GRADIENTS.items():
            gradient = _of(whole, operator, image_title)
            columns += _statistic_columns(image, family, name, gradient)
        return tuple(columns)
    family_terms = terms.FAMILIES[family]
    channel = _of(whole, family_terms.channel, image_title)
    columns = []
    for name, statistic in family_terms.statistics.items():
        columns.append(_feature_column(image, family, family, name, statistic, channel))
    return tuple(columns)


def _columns_of_image(image: str, features: FeatureSettings) -> list[Column]:
    """Return all columns of one image that is not a series, in the order of the table."""
    whole = terms.IMAGES[image]
    columns: list[Column] = []
    for family in ("intensity", "histogram", "gradient"):
        columns += _image_columns(image, family)
    for filtered_image, filters in features.filters.items():
        if filtered_image == image:
            for chosen in filters:
                response = _of(whole, terms.FILTERS[chosen.kind], short_name(image))
                columns += _statistic_columns(image, "filters", filter_name(chosen), response)
    for family in terms.FAMILIES:
        if family != "histogram":  # its columns stand further to the front
            columns += _image_columns(image, family)
    for class_name in features.radiomics:
        columns += _radiomics_columns(image, class_name)
    return columns


@cache
def _radiomics_columns(image: str, class_name: str) -> tuple[Column, ...]:
    """Return the columns of one image for a class of pyradiomics, as the settings name it."""
    whole = terms.IMAGES[image]
    channel, feature_names = terms.RADIOMICS[class_name]
    # Units of the features whose unit is not that of their class.
    units_by_class = {
        "shape": terms.SHAPE_UNITS,
        "total_energy": {"TotalEnergy": f"({whole.unit})^2 mm3"},
    }
    units = units_by_class.get(class_name, {})
    # A region's shape does not depend on the image's values, so neither do the words for it.
    described = channel if class_name == "shape" else _of(whole, channel, short_name(image))
    columns = []
    for feature_name in feature_names:
        column = _feature_column(
            image,
            family="radiomics",
            channel=radiomics_channel(class_name),
            name=snake(feature_name),
            statistic=terms.Statistic(f"pyradiomics' {feature_name}"),
            words=described,
            unit=units.get(feature_name, channel.unit),
        )
        columns.append(column)
    return tuple(columns)


def _columns_of_series(features: FeatureSettings) -> list[Column]:
    """Return all columns of the dynamic series: those of its perfusion maps, then of its images."""
    # The empty name stands for maps of the signal's enhancement. They need no perfusion model and
    # are always made.
    models = ("", *features.perfusion.models)
    columns: list[Column] = []
    for name, perfusion_map in terms.MAPS.items():
        # The delay of the arterial input is a map only if it is fitted in every voxel.
        is_fitted = name != "input_delay" or features.perfusion.delay == "voxel"
        if perfusion_map.model in models and is_fitted:
            columns += _map_columns(name)
    for name in features.dce_images:
        columns += _series_image_columns(name)
    return columns


@cache
def _series_image_columns(name: str) -> tuple[Column, ...]:
    """Return the columns of an image of the dynamic series, or of a perfusion map taken as an
    image.
    """
    columns: list[Column] = []
    if name in terms.DCE_IMAGES:
        whole = terms.DCE_IMAGES[name]
        columns += _statistic_columns("dce", "intensity", name, whole)
    else:
        whole = terms.MAPS[name]  # _map_columns() makes the columns of the map's values
    for operator, gradient in terms.GRADIENTS.items():
        channel = _of(whole, gradient, whole.title)
        columns += _statistic_columns("dce", "gradient", f"{name}_{operator}", channel)
    for family, family_terms in terms.FAMILIES.items():
        channel = _of(whole, family_terms.channel, whole.title)
        channel_name = f"{name}_{family}"
        for statistic_name, statistic in family_terms.statistics.items():
            column = _feature_column(
                "dce", family, channel_name, statistic_name, statistic, channel
            )
            columns.append(column)
    return tuple(columns)


@cache
def _map_columns(name: str) -> tuple[Column, ...]:
    """Return the columns of the feature table that are measured on the perfusion map ``name``."""
    perfusion_map = terms.MAPS[name]
    channel = map_channel(name)
    # A map that does not describe the fit is a map of a parameter, and has all statistics.
    statistics = _STATISTICS_OF_FIT.get(perfusion_map.role, tuple(terms.STATISTICS))
    signed = name in _SIGNED_MAPS
    columns = _statistic_columns(
        "dce", map_family(perfusion_map), channel, perfusion_map, signed=signed
    )
    return tuple(column for column in columns if column.statistic in statistics)


def map_family(perfusion_map: terms.PerfusionMap) -> str:
    """Return the family of a perfusion map's columns: ``semiquantitative`` or ``kinetic``."""
    return "semiquantitative" if perfusion_map.group == "enhancement" else "kinetic"


def map_channel(name: str) -> str:
    """Return the text that names a perfusion map in its columns.

    The text is the map's name. For a map of the signal's enhancement, which needs no concentration
    of contrast agent, ``semi_`` comes before the name.

    Parameters
    ----------
    name : str
        Name of the map, a key of :data:`cad.base.terms.features.MAPS`.
    """
    return name if map_family(terms.MAPS[name]) == "kinetic" else f"semi_{name}"


def _of(whole: terms.Channel, channel: terms.Channel, image_title: str) -> terms.Channel:
    """Return ``channel``, a way to measure any image, as a channel of the image ``whole``.

    The definition and the unit of ``whole`` stand before those of ``channel``. The title begins
    with ``image_title``, a short name of the image.
    """
    # A channel with the unit "1", such as a histogram of grey levels, has no unit in any image. Any
    # other channel's unit is added to the unit of the image.
    unit = channel.unit if channel.unit == "1" else whole.unit + channel.unit
    definition = f"{whole.definition}, {channel.definition}"
    return terms.Channel(
        definition=definition,
        unit=unit,
        source=channel.source,
        title=f"{image_title} {channel.title}",
        words=channel.words,
        group=channel.group,
    )


def _statistic_columns(
    image: str, family: str, name: str, channel: terms.Channel, *, signed: bool = False
) -> tuple[Column, ...]:
    """Return a column for each statistic of single values, taken of one channel of an image.

    ``name`` names the channel in the columns. ``signed`` tells whether the channel has values on
    both sides of zero.
    """
    columns = []
    for statistic_name, statistic in terms.STATISTICS.items():
        # The mean of a signed channel may be 0. A statistic that is divided by the mean is
        # therefore not a feature of such a channel.
        if signed and statistic_name in terms.RATIOS:
            continue
        # A statistic of power 0, such as a skewness, is a pure number in every image.
        unit = channel.unit if statistic.power else "1"
        if statistic.power > 1 and unit != "1":
            unit = f"({unit})^{statistic.power}"
        column = _feature_column(image, family, name, statistic_name, statistic, channel, unit)
        columns.append(column)
    return tuple(columns)


def _feature_column(
    image: str,
    family: str,
    channel: str,
    name: str,
    statistic: terms.Statistic,
    words: terms.Channel,
    unit: str = "1",
) -> Column:
    """Return the column of one statistic of one channel of an image.

    ``channel`` and ``name`` name the channel and the statistic in the column. ``words`` describes
    the channel.
    """
    image_title = short_name(image)
    level_groups: tuple[str, ...] = ()
    if family == "intensity" and name in terms.LEVELS:
        level_groups = (f"{image_title} level",)
    # Statistics that depend on the region's size: some in every family, others in this one.
    counting_names = (*terms.COUNTING["every"], *terms.COUNTING.get(family, ()))
    return Column(
        image=image,
        family=family,
        channel=channel,
        statistic=name,
        definition=f"{words.definition}: {statistic.definition}",
        unit=unit,
        source=words.source,
        ibsi=statistic.ibsi,
        title=words.title,
        words=words.words,
        label=terms.STATISTICS.get(name, statistic).label or name.replace("_", " "),
        groups=(image_title, *level_groups, f"{image_title} {words.group}"),
        counts_voxels=name in counting_names,
    )


def _columns_of_region(
    channel: str, title: str, words: str, table: dict[str, list[str]]
) -> list[Column]:
    """Return the columns of a region as drawn, which belong to no image.

    ``table`` has definition, unit and IBSI tag of each feature by its name.
    """
    columns = []
    for name, (definition, unit, ibsi_tag) in table.items():
        column = Column(
            image="",
            family=channel,
            channel=channel,
            statistic=name,
            definition=definition,
            unit=unit,
            source="IBSI" if ibsi_tag else "",
            ibsi=ibsi_tag,
            title=title,
            words=words,
            label=name.replace("_", " "),
            groups=(title,),
        )
        columns.append(column)
    return columns


_REGION_COLUMNS = (
    *_columns_of_region("size", "Size", "how large the region was drawn", terms.SIZE),
    *_columns_of_region(
        "position", "Position", "where in the gland the region lies", terms.POSITION
    ),
)
