"""Record how each value was measured: sources, references, units and voxels (provenance).

A feature column has one meaning only if all its rows were measured in the same way. Three steps
make sure of this. First, :func:`resolve_auto` looks at which images the studies of the whole cohort
have, and makes one choice for all. Second, every row says how it was measured, in columns that
begin with ``PREFIX`` and that no learner gets. Third, :func:`differences` compares new rows with
the training rows of a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.files import JsonObject
from cad.base.settings import PipelineSettings
from cad.base.terms.beside import table_beside
from cad.base.terms.modality import MODALITIES
from cad.mri.imaging.study_files import b1_path, image_path

PREFIX = "provenance_"
# Factor by which a number, such as a voxel size, may lie beyond the range of the training regions
# before it is reported as different.
_TOLERANCE = 1.25
# Columns that end in one of these words are not compared with the training, because they depend on
# the region or on the patient. The first three say how many voxels a region has, how much of its
# signal is its own, and which share of it has a value. The others say how far images or frames lay
# beside T2 or were moved back, and why this distance was not measured.
_OF_REGION = (
    "voxels",
    "purity",
    "valid",
    "moved",
    "displaced",
    "displaced_most",
    "mended",
    "unmeasured",
)
_TABLES = table_beside(__file__)
_COMPARED: dict[str, str] = dict(_TABLES["study"])
PROVENANCE: set[str] = set()
"""Names of all columns that say how a value was measured."""
for _image in MODALITIES:
    for _key, _title in _TABLES["image"].items():
        _COMPARED[f"{_image.name}_{_key}"] = f"{_image.name}: {_title}"
    PROVENANCE.update(f"{PREFIX}{_image.name}_{_key}" for _key in _OF_REGION)
PROVENANCE.update(PREFIX + _name for _name in _COMPARED)


@dataclass(frozen=True)
class CohortFacts:
    """Hold the images and values that the studies of a cohort have.

    Parameters
    ----------
    t2w, gland : int
        Number of studies with a T2 image, and how many of these have a gland mask.
    dce, flip_angles, vessel, b1 : int
        Number of studies with a dynamic series, and how many of these have flip-angle images, a
        vessel mask, a map of the transmit field.
    """

    t2w: int
    gland: int
    dce: int
    flip_angles: int
    vessel: int
    b1: int = 0

    @classmethod
    def of(cls, studies: Iterable[tuple[Path, str]]) -> CohortFacts:
        """Count the files of studies, given as pairs of folder and study id; no image is read."""
        counts = np.zeros(6, int)
        for folder, name in studies:
            t2w = image_path(folder, name, "t2w").is_file()
            gland = image_path(folder, name, "gland").is_file()
            dce = image_path(folder, name, "dce").is_file()
            vessel = image_path(folder, name, "vessel").is_file()
            flip_angles = any((folder / "perf").glob(f"{name}_flip-*_VFA.nii.gz"))
            b1 = b1_path(folder, name).is_file()
            # A gland mask counts only beside a T2 image, and what the fit of a dynamic series needs
            # only beside such a series. The order is that of the fields.
            counts += (t2w, t2w & gland, dce, dce & flip_angles, dce & vessel, dce & b1)
        return cls(*counts.tolist())


def resolve_auto(facts: CohortFacts, settings: PipelineSettings) -> PipelineSettings:
    """Replace every ``auto`` in settings by a choice that all studies of the cohort allow.

    Four choices are made. T1 is measured by flip angles, flip angles are corrected by the transmit
    field, the arterial input is measured in a vessel, and T2 is scaled by the gland. Each of the
    first three is chosen only if all studies with a dynamic series have the images or mask that it
    needs; the fourth, only if all studies with a T2 image have a gland mask. Otherwise all studies
    get the constant T1, the stated angles, a population's input, or T2 scaled by a box around the
    regions. If a later study lacks an image that was chosen here, the modality that needs it fails
    with a message.

    Parameters
    ----------
    facts : CohortFacts
        How many studies have which images.
    settings : PipelineSettings
        The pipeline's settings; not changed.

    Returns
    -------
    PipelineSettings
        A copy without ``auto`` in these settings.
    """
    images = settings.images
    perfusion = settings.features.perfusion

    def choice(n_with: int, n_studies: int, key: str, choices: tuple[str, str]) -> dict[str, str]:
        """Return the first choice for a setting if every study allows it, else the second.

        ``n_with`` of ``n_studies`` studies have what the first choice needs. The result is empty if
        the setting ``key`` is not ``auto``.
        """
        group = images if key == "t2_reference" else perfusion
        if getattr(group, key) != "auto":
            return {}
        # In a cohort without such studies, nothing supports the first choice.
        all_have_it = n_studies > 0 and n_with == n_studies
        return {key: choices[0] if all_have_it else choices[1]}

    perfusion_choices = {
        **choice(facts.flip_angles, facts.dce, "t1", ("vfa", "fixed")),
        **choice(facts.vessel, facts.dce, "arterial_input", ("measured", "parker")),
        **choice(facts.b1, facts.dce, "b1", ("map", "none")),
    }
    t2_choice = choice(facts.gland, facts.t2w, "t2_reference", ("gland", "regions"))
    features = settings.features.model_copy(
        update={"perfusion": perfusion.model_copy(update=perfusion_choices)}
    )
    return settings.model_copy(
        update={"images": images.model_copy(update=t2_choice), "features": features}
    )


def summary(table: pd.DataFrame) -> JsonObject:
    """Return how the training rows were measured, for a model's metadata.

    Parameters
    ----------
    table : DataFrame
        Provenance columns, one row per region.

    Returns
    -------
    dict
        By name of the column without its prefix ``provenance_``. A column of text has the sorted
        list of all its values, and a column of numbers has [least, largest].
    """
    summary_by_name: JsonObject = {}
    for name in _COMPARED:
        column = PREFIX + name
        # A modality that no row was measured in says nothing of the training.
        if column not in table or table[column].isna().all():
            continue
        values = table[column].dropna()
        if pd.api.types.is_numeric_dtype(values):
            summary_by_name[name] = [float(values.min()), float(values.max())]
        else:
            summary_by_name[name] = sorted(set(map(str, values)))
    return summary_by_name


def differences(trained: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """Name the differences in how a region and the training regions were measured.

    Parameters
    ----------
    trained : mapping
        How the training regions were measured, from :func:`summary`.
    row : mapping
        The region's provenance columns; others are not read.

    Returns
    -------
    list of str
        One sentence for each difference, empty where there is none.
    """
    notes = []
    for name, trained_values in trained.items():
        value = row.get(PREFIX + name)
        # The region was not measured in this modality.
        if value is None or (isinstance(value, float) and np.isnan(value)):
            continue
        title = _COMPARED.get(name, name)
        # A text must be one of the list of training values. A number must lie near their range.
        if isinstance(trained_values[0], str):
            if str(value) not in trained_values:
                notes.append(f"{title}: {value}, trained on {' and '.join(trained_values)}")
        elif not trained_values[0] / _TOLERANCE <= float(value) <= trained_values[1] * _TOLERANCE:
            notes.append(
                f"{title}: {float(value):.3g}, trained on {trained_values[0]:.3g} "
                f"to {trained_values[1]:.3g}"
            )
    return notes


def displaced_from(row: Mapping[str, Any], limit_mm: float) -> str:
    """Name the images of a region's study that lie too far from T2; empty where none does.

    Parameters
    ----------
    row : mapping
        The region's provenance columns; others are not read.
    limit_mm : float
        Displacement (mm) from which an image lies too far. It is compared with the upper end of the
        95 % range of the measured displacement.

    Returns
    -------
    str
        For each such image its name and how far it may lie beside T2 (mm), separated by semicolons;
        empty where no image lies too far or nothing was measured.
    """
    distances = []
    for image in MODALITIES:
        distance = row.get(f"{PREFIX}{image.name}_displaced_most")
        # A distance of NaN is not above the limit.
        if distance is not None and distance >= limit_mm:
            distances.append(f"{image.short} may lie {distance:.1f} mm beside T2")
    return "; ".join(distances)


def check_columns(names: Iterable[str]) -> None:
    """Refuse to let a learner use provenance columns, which say how features were measured.

    Parameters
    ----------
    names : iterable of str
        Names of the columns that the learner would get.

    Raises
    ------
    CadError
        For columns of provenance; the error names the first.
    """
    provenance_columns = [name for name in names if str(name).startswith(PREFIX)]
    if provenance_columns:
        raise CadError(
            f"{provenance_columns[0]} says how a region was measured and is no feature",
            hint=f"leave out the columns that begin with {PREFIX}",
        )
