"""Define the terms of the features: each statistic, texture, map and filter.

The tables are in ``features.yaml`` beside this file. Their keys are the parts of column names
(:mod:`cad.mri.columns`), in the order in which columns are stored. The values of features are
computed elsewhere.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from cad.base.terms.beside import table_beside


class Statistic(NamedTuple):
    """Describe a statistic of a region's values, of its grey levels or of pairs of levels.

    Parameters
    ----------
    definition : str
        The statistic's definition in words.
    ibsi : str
        Four-character tag of the IBSI reference manual, or empty.
    power : int
        Power of the image's unit in which the statistic is measured: 2 for a variance.
    label : str
        Name on a page; if empty, the statistic's key in its table is shown.
    """

    definition: str
    ibsi: str = ""
    power: int = 0
    label: str = ""


@dataclass(frozen=True)
class Channel:
    """Describe a channel: an image, a map or the response of a filter.

    Features are statistics of a channel's values within a region.

    Parameters
    ----------
    definition : str
        Meaning of the values.
    unit : str
        Unit of the values; "1" for a pure number. For a gradient or a filter: the text that follows
        the image's unit.
    source : str
        Publication or standard that the definition comes from.
    title, words : str
        Heading of the channel on a page, and an explanation of that heading.
    group : str
        Group of features in which :mod:`cad.mri.features.typicality` judges the channel's columns.
    """

    definition: str
    unit: str
    source: str
    title: str
    words: str
    group: str


@dataclass(frozen=True)
class PerfusionMap(Channel):
    """Describe a map that is computed from the dynamic series, with one value at each voxel.

    Parameters
    ----------
    model : str
        The kinetic model that gives the map; empty for a map that needs no model.
    role : str
        ``parameter`` for a map of a parameter; ``r2``, ``residual`` or ``did_not_fit`` for a map of
        how well the model fits the curve of each voxel.
    """

    model: str = ""
    role: str = "parameter"


@dataclass(frozen=True)
class Family:
    """Describe a family of statistics of whole regions, such as co-occurrence.

    Parameters
    ----------
    channel : Channel
        What the statistics are taken of; its title and words are those of the family.
    measured_by : str
        ``module:function`` of the function that measures the family.
    statistics : dict of str to Statistic
        Statistics by name, in the order in which they are stored.
    """

    channel: Channel
    measured_by: str
    statistics: dict[str, Statistic]


_TABLES = table_beside(__file__)


def _read_statistics(name: str) -> dict[str, Statistic]:
    """Return a table of ``features.yaml`` as statistics by their keys."""
    return {key: Statistic(**row) for key, row in _TABLES[name].items()}


def _channels(name: str) -> dict[str, Channel]:
    """Return a table of ``features.yaml`` as channels by their keys."""
    return {key: Channel(**row) for key, row in _TABLES[name].items()}


def _read_families() -> dict[str, Family]:
    """Return the families of statistics of ``features.yaml`` by their names."""
    families = {}
    for name, row in _TABLES["families"].items():
        # The row of a family has the fields of its channel, and two more.
        channel = Channel(**{key: row[key] for key in Channel.__dataclass_fields__})
        statistics = {key: Statistic(**words) for key, words in row["statistics"].items()}
        families[name] = Family(
            channel=channel, measured_by=row["measured_by"], statistics=statistics
        )
    return families


STATISTICS = _read_statistics("statistics")
FAMILIES = _read_families()
"""Families of statistics of whole regions, by name."""
HISTOGRAM = FAMILIES["histogram"].statistics
HARALICK = FAMILIES["haralick"].statistics
_FIRST_FAMILIES = ("intensity", "histogram", "gradient", "haralick", "semiquantitative", "kinetic")
FAMILY_NAMES = tuple(dict.fromkeys((*_FIRST_FAMILIES, "size", "position", *FAMILIES)))
"""All families that the settings may name."""
LEVELS: tuple[str, ...] = tuple(_TABLES["levels"])
SPREADS: tuple[str, ...] = tuple(_TABLES["spreads"])
RATIOS: tuple[str, ...] = tuple(_TABLES["ratios"])
"""Names of statistics in three groups. LEVELS follow the scale and offset of the image's values.
SPREADS measure how far the voxels of a region differ. RATIOS are relative to the region's mean.
"""
COUNTING: dict[str, list[str]] = _TABLES["counting"]
"""For each family, the statistics that depend on the region's size although their names do not show
it.
"""
IMAGES = _channels("images")
GRADIENTS = _channels("gradients")
FILTERS = _channels("filters")
DCE_IMAGES = _channels("dce_images")
"""Images of the dynamic series that are not maps."""
SIZE: dict[str, list[str]] = _TABLES["size"]
POSITION: dict[str, list[str]] = _TABLES["position"]
"""Definition, unit and IBSI tag of each feature of SIZE and of POSITION, by its name."""
SHAPE_UNITS: dict[str, str] = _TABLES["shape_units"]
"""Units of pyradiomics' shape features that are not lengths in mm."""
RADIOMICS: dict[str, tuple[Channel, tuple[str, ...]]] = {
    name: (Channel(**made["part"]), tuple(made["names"]))
    for name, made in _TABLES["radiomics"].items()
}
"""For each class of features of pyradiomics: its description on a page, and the names of its
features in pyradiomics.
"""


def _described_model(
    model: str, title: str, unit: str, source: str, parameters: list[str]
) -> dict[str, Any]:
    """Return descriptions of the maps of a kinetic model, by the name of the map.

    The maps of the model's parameters come first, then those of the quality of its fit.
    """
    maps = {}
    for name in parameters:
        # The rate constant of the model of Brix has the same name as that of another model. So a
        # description for this one model is preferred to the description for all models.
        words = _TABLES["parameters"].get(f"{model}_{name}") or _TABLES["parameters"][name]
        maps[name] = {**words, "role": "parameter"}
    for role, words in _TABLES["quality"].items():
        maps[role] = {
            **words,
            "unit": words["unit"] or unit,
            "title": "Fit of the curve",
            "role": role,
        }
    model_words = {"source": source, "group": title, "model": model}
    maps_by_column = {}
    for name, words in maps.items():
        definition = f"{title}: {words['definition']}"
        maps_by_column[f"{model}_{name}"] = {**words, **model_words, "definition": definition}
    return maps_by_column


_MADE = [_described_model(name, **words) for name, words in _TABLES["models"].items()]
MAPS: dict[str, PerfusionMap] = {}
"""All maps of a dynamic series, in the order of storage; names follow OSIPI's lexicon."""
for _table in (_TABLES["maps"], *_MADE):
    MAPS.update({name: PerfusionMap(**words) for name, words in _table.items()})
SERIES_IMAGES: tuple[str, ...] = (*DCE_IMAGES, *MAPS)
"""Images of a dynamic series on which gradients and co-occurrence can be measured."""
