"""The columns of the feature table: one object a column, from which everything about it is read.

:func:`columns_of` says which columns the code makes under given settings, in the order in which
they are stored. Look a column's name up there; no code splits a name to learn what the column is.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import Any

from pydantic import ValidationError

from cad.base.settings import FeatureSettings, FilterSettings
from cad.base.terms import features as terms
from cad.base.terms.modality import short_name

# Of a fit's quality one statistic says all that twenty would.
_OF_FIT = {"did_not_fit": ("mean",), "r2": ("median",), "residual": ("median",)}
_SIGNED_MAPS = ("wash_out", "bolus_arrival")


@dataclass(frozen=True)
class Column:
    """Describe a column of the feature table.

    Parameters
    ----------
    image : str
        Name of the modality; empty for size and position of the region as drawn.
    family : str
        One of ``features.families`` in the settings, or ``filters`` or ``radiomics``.
    part : str
        The map or response that is measured: ``intensity``, ``sobel``, ``tofts_ktrans``,
        ``log3mm``.
    statistic : str
        The number taken of that part: ``median``, ``contrast``.
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
        Groups of features that :mod:`cad.mri.features.typicality` tests together and that this
        feature is in: one for its image, one for its kind of feature in that image and, for means
        and percentiles of intensity, one for the image's level.
    counts_voxels : bool
        Whether the feature mainly measures the size of the region, even if its name says otherwise.
    """

    image: str
    family: str
    part: str
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
        return column_name(self.image, self.part, self.statistic)


def column_name(image: str, part: str, statistic: str) -> str:
    """Join the arguments that are not empty with underscores: ``t2w_intensity_median``.

    Parameters
    ----------
    image, part, statistic : str
        Modality, map or filter response, and statistic, such as ``t2w``, ``intensity``, ``median``.
    """
    return "_".join(word for word in (image, part, statistic) if word)


def columns_of(features: FeatureSettings) -> dict[str, Column]:
    """Return every column that the code can make under these settings, by name.

    Parameters
    ----------
    features : FeatureSettings
        Images, families, kinetic models, filters, classes of pyradiomics, names to leave out.

    Returns
    -------
    dict of str to Column
        In the order in which the table stores them. A study without an image has none of the
        image's columns.
    """
    columns = [*_REGION]
    for image in features.modalities:
        columns += _of_series(features) if image == "dce" else _of_image(image, features)
    return {
        column.name: column
        for column in columns
        if column.family in (*features.families, "filters", "radiomics")
        and (features.counting or not column.counts_voxels)
        and not any(fnmatchcase(column.name, pattern) for pattern in features.exclude)
    }


def columns_stated(settings: Mapping[str, Any]) -> dict[str, Column]:
    """Return the feature columns that a run or a model of these settings has.

    Parameters
    ----------
    settings : mapping
        The content of a pipeline file; only its section ``features`` is read.

    Returns
    -------
    dict of str to Column
        By name; empty when ``features`` is not valid, as settings of an earlier version may be.
    """
    with suppress(ValidationError):
        return columns_of(FeatureSettings.model_validate(settings.get("features") or {}))
    return {}


def columns_digest(features: FeatureSettings) -> str:
    """Return a hash of all columns' names and units under these settings.

    Features that were stored under another hash have to be measured again.
    """
    made = [(column.name, column.unit) for column in columns_of(features).values()]
    return hashlib.sha256(json.dumps(made).encode()).hexdigest()


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
    """Return the text that names a filter in its columns: ``log3mm``, ``wavelet_db3_llh_1``."""
    if chosen.kind == "wavelet":
        turned = "_turned" if chosen.rotations else ""
        return f"wavelet_{chosen.wavelet}_{(chosen.bands or '').lower()}_{chosen.level}{turned}"
    width = chosen.support_mm if chosen.kind == "mean" else chosen.sigma_mm
    return f"{chosen.kind}{width:g}mm" + ("_3d" if chosen.dimension == "3D" else "")


def snake(name: str) -> str:
    """Return a CamelCase name of pyradiomics in snake_case.

    ``GrayLevelNonUniformity`` becomes ``gray_level_non_uniformity``.
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def radiomics_part(name: str) -> str:
    """Return the text that names a feature class of pyradiomics in its columns.

    Parameters
    ----------
    name : str
        Class as the setting ``features.radiomics`` names it.
    """
    return {"total_energy": "firstorder", "mcc": "glcm"}.get(name, name)


@cache
def _image_columns(image: str, family: str) -> tuple[Column, ...]:
    """Return the columns of an image's family."""
    whole = terms.IMAGES[image]
    short = short_name(image)
    if family == "intensity":
        return _statistics(image, family, family, whole, signed=image == "t2w")
    if family == "gradient":
        parts = {name: _of(whole, part, short) for name, part in terms.GRADIENTS.items()}
        return tuple(
            c for name, part in parts.items() for c in _statistics(image, family, name, part)
        )
    part, table = {
        "histogram": (terms.LEVEL_COUNTS, terms.HISTOGRAM),
        "haralick": (terms.PAIRS, terms.HARALICK),
    }[family]
    made = _of(whole, part, short)
    return tuple(
        _column(image, family, family, name, statistic, made) for name, statistic in table.items()
    )


def _of_image(image: str, features: FeatureSettings) -> list[Column]:
    whole = terms.IMAGES[image]
    short = short_name(image)
    columns: list[Column] = []
    for family in ("intensity", "histogram", "gradient"):
        columns += _image_columns(image, family)
    for chosen in next((value for key, value in features.filters.items() if key == image), ()):
        part = _of(whole, terms.FILTERS[chosen.kind], short)
        columns += _statistics(image, "filters", filter_name(chosen), part)
    columns += _image_columns(image, "haralick")
    for name in features.radiomics:
        columns += _radiomics_columns(image, name)
    return columns


@cache
def _radiomics_columns(image: str, name: str) -> tuple[Column, ...]:
    whole = terms.IMAGES[image]
    short = short_name(image)
    part, names = terms.RADIOMICS[name]
    units = {"shape": terms.SHAPE_UNITS, "total_energy": {"TotalEnergy": f"({whole.unit})^2 mm3"}}
    made = _of(whole, part, short) if name != "shape" else part
    return tuple(
        _column(
            image,
            "radiomics",
            radiomics_part(name),
            snake(theirs),
            terms.Statistic(f"pyradiomics' {theirs}"),
            made,
            units.get(name, {}).get(theirs, part.unit),
        )
        for theirs in names
    )


def _of_series(features: FeatureSettings) -> list[Column]:
    # Maps without a model, those of enhancement, are always made.
    models = ("", *features.perfusion.models)
    return [
        c for name, made in terms.MAPS.items() if made.model in models for c in _map_columns(name)
    ]


@cache
def _map_columns(name: str) -> tuple[Column, ...]:
    """Return the columns of a perfusion map."""
    made = terms.MAPS[name]
    part = map_part(name)
    wanted = _OF_FIT.get(made.role, tuple(terms.STATISTICS))
    columns = _statistics("dce", map_family(made), part, made, signed=name in _SIGNED_MAPS)
    return tuple(column for column in columns if column.statistic in wanted)


def map_family(made: terms.PerfusionMap) -> str:
    """Return the family of a perfusion map's columns: ``semiquantitative`` or ``kinetic``."""
    return "semiquantitative" if made.group == "enhancement" else "kinetic"


def map_part(name: str) -> str:
    """Return the text that names a perfusion map in its columns.

    It is the map's name; ``semi_`` comes before it for a map of the signal's enhancement, for
    which no concentration of contrast agent is computed.

    Parameters
    ----------
    name : str
        Name of the map, as in :data:`cad.base.terms.features.MAPS`.
    """
    return name if map_family(terms.MAPS[name]) == "kinetic" else f"semi_{name}"


def _of(whole: terms.Part, part: terms.Part, short: str) -> terms.Part:
    """Return a part of an image: its words and unit follow the image's."""
    # Counts of grey levels have no unit, whatever the image's is.
    unit = part.unit if part.unit == "1" else whole.unit + part.unit
    definition = f"{whole.definition}, {part.definition}"
    title = f"{short} {part.title}"
    return terms.Part(definition, unit, part.source, title, part.words, part.group)


def _statistics(
    image: str, family: str, name: str, part: terms.Part, *, signed: bool = False
) -> tuple[Column, ...]:
    columns = []
    for key, statistic in terms.STATISTICS.items():
        # A ratio to the mean says nothing where values lie on both sides of zero.
        if signed and key in terms.RATIOS:
            continue
        unit = part.unit if statistic.power else "1"
        if statistic.power > 1 and unit != "1":
            unit = f"({unit})^{statistic.power}"
        columns.append(_column(image, family, name, key, statistic, part, unit))
    return tuple(columns)


def _column(
    image: str,
    family: str,
    part: str,
    name: str,
    statistic: terms.Statistic,
    words: terms.Part,
    unit: str = "1",
) -> Column:
    short = short_name(image)
    level = (f"{short} level",) if family == "intensity" and name in terms.LEVELS else ()
    group = words.group if words.group == short else f"{short} {words.group}"
    return Column(
        image,
        family,
        part,
        name,
        f"{words.definition}: {statistic.definition}",
        unit,
        words.source,
        statistic.ibsi,
        words.title,
        words.words,
        terms.STATISTICS.get(name, statistic).label or name.replace("_", " "),
        (short, *level, group),
        family != "radiomics"
        and name in (*terms.COUNTING["every"], *terms.COUNTING.get(family, ())),
    )


def _region(part: str, title: str, words: str, table: dict[str, list[str]]) -> list[Column]:
    return [
        Column(
            "",
            part,
            part,
            name,
            definition,
            unit,
            "IBSI" if tag else "",
            tag,
            title,
            words,
            name.replace("_", " "),
            (title,),
        )
        for name, (definition, unit, tag) in table.items()
    ]


_REGION = (
    *_region("size", "Size", "how large the region was drawn", terms.SIZE),
    *_region("position", "Position", "where in the gland the region lies", terms.POSITION),
)
