"""Measure the features of a sphere around every voxel, from which a probability map is predicted.

The sphere stands in for a region and is measured by the same functions, on the grid of every
modality. A voxel belongs to the sphere if its centre lies within the radius. In a drawn region,
each voxel counts by the share of it that the region fills. The two rules differ in the outermost
voxels. Spheres are cut off at the border of the image, and not at the border of the mask.

Everything that overlapping spheres share (maps, gradients, standardised intensities) is computed
once. A sphere around every voxel of a gland therefore takes seconds to a few minutes, and no voxels
have to be skipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.settings import PipelineSettings
from cad.mri.features import images
from cad.mri.features.measure import measure_regions
from cad.mri.features.regions import RegionVoxels
from cad.mri.imaging.geometry import MIN_VOXELS, resample_mask
from cad.mri.imaging.interpolate import at_spacing
from cad.mri.imaging.standardise import NyulScale
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Volume

RADIUS_MM = 4.0  # radius of the sphere around each voxel
MARGIN_MM = 5.0  # margin around each region that a map covers where there is no gland mask
# Number of spheres that are measured at once. Each sphere has some hundred voxels, so that these
# spheres take a few hundred MB at most.
_CHUNK = 4096


@dataclass
class SlidingFeatures:
    """Hold the features of spheres around voxels.

    Parameters
    ----------
    index : ndarray of int64, shape (n, 3)
        Indices z, y, x of the voxels in ``grid``.
    rows : DataFrame, n rows
        Feature columns of the sphere around each voxel; NaN where a sphere has fewer than 5 voxels
        with a value.
    grid : Volume
        The whole T2 image; without T2, the first modality that the study has.
    notes : list of str
        Images and values that were missing or assumed.
    """

    index: np.ndarray
    rows: pd.DataFrame
    grid: Volume
    notes: list[str] = field(default_factory=list)

    def to_volume(self, values: np.ndarray) -> Volume:
        """Return a map of ``values``, one per row: float32 on ``grid``, NaN in all other voxels."""
        out = np.full(self.grid.shape, np.nan, np.float32)
        out[tuple(self.index.T)] = values
        return self.grid.with_array(out)


def where_to_slide(study: Study, margin_mm: float = MARGIN_MM) -> Volume:
    """Return the mask of the voxels that a probability map covers: the gland, on the T2 grid.

    Without a gland mask, these are the voxels of the regions and of a margin around each.

    Parameters
    ----------
    study : Study
        Study with a gland mask or regions.
    margin_mm : float
        Width of the margin around each region when there is no gland mask.

    Returns
    -------
    Volume
        Boolean, on the T2 grid; without T2, on the first modality's grid.

    Raises
    ------
    CadError
        When there is neither gland nor region on the grid.
    """
    grid = study.anatomical
    if study.gland is not None:
        gland = resample_mask(study.gland, grid)
        # A gland mask that lies outside of the grid counts as missing. The probability map then
        # covers the regions.
        if gland.array.any():
            return gland
    union = study.roi_union
    inside = resample_mask(union, grid) if union is not None else None
    if inside is None or not inside.array.any():
        problem = "a probability map needs a gland mask or regions"
        raise CadError(problem, patient=study.participant_id, hint="add masks/*_gland.nii.gz")
    # The indices from argwhere are turned from the order z, y, x to the order x, y, z.
    centres = np.argwhere(inside.array)[:, ::-1].astype(float)
    neighbourhood = RegionVoxels.spheres(centres, grid.shape, grid.spacing, margin_mm)
    return grid.with_array(neighbourhood.voxels())


def sliding_rows(
    study: Study,
    settings: PipelineSettings,
    mask: Volume | None = None,
    scale: NyulScale | None = None,
) -> SlidingFeatures:
    """Measure a sphere around every voxel of a mask.

    Parameters
    ----------
    study : Study
        Study with at least one wanted modality.
    settings : PipelineSettings
        Settings of the model's pipeline; only ``images`` and ``features`` are read.
    mask : Volume, optional
        Boolean, on the T2 grid; by default the gland, or the regions with a margin
        (:func:`where_to_slide`).
    scale : NyulScale, optional
        Scale fitted on training patients; needed where T2 is standardised by ``nyul``.

    Returns
    -------
    SlidingFeatures
        Features of one sphere per voxel of the mask.

    Raises
    ------
    CadError
        For an empty mask, for settings with pyradiomics classes, which are too slow here, and for a
        study without a usable modality.
    """
    if settings.features.radiomics:
        raise CadError(
            f"a map cannot be made with pyradiomics classes "
            f"({', '.join(settings.features.radiomics)}): they are measured region by region",
            hint="train a model without features.radiomics for maps",
        )
    grid = study.anatomical
    inside = where_to_slide(study) if mask is None else mask
    voxels = np.argwhere(inside.array)
    if not len(voxels):
        raise CadError("the mask of the map is empty", patient=study.participant_id)
    # The centres of the spheres are in patient coordinates, so that a sphere has the same centre in
    # every modality.
    points = inside.index_to_patient(voxels[:, ::-1])
    names, absent = images.available(study, settings)
    notes = images.absence_notes(absent)
    # The probability map keeps the voxels of the T2 image. The images are resampled from here on,
    # to the voxel size at which the features of the model were measured.
    study = at_spacing(study, settings.images)
    study_at_spacing = images.compact(study)
    columns: dict[str, np.ndarray] = {}
    for name in names:
        try:
            modality_grid = images.grid_of(study_at_spacing, name)
            box = images.box_of_points(points, modality_grid, RADIUS_MM)
            if box is None:
                raise CadError("the mask lies outside the image")
            cropped = images.crop(modality_grid, box)
            # Images are prepared only in voxels that lie in a sphere. To prepare a voxel takes
            # long, above all for fits of perfusion models.
            needed = np.zeros(cropped.shape, bool)
            for chunk in _chunks(cropped, points):
                needed |= chunk.voxels()
            if not needed.any():
                raise CadError("the mask lies outside the image")
            prepared = images.prepare(
                study_at_spacing, settings, name, cropped.with_array(needed), scale
            )
        except CadError as error:
            # If an image cannot be prepared, its columns are missing, as in a table of regions. The
            # prediction decides whether the model can do without these columns.
            notes.append(f"{name} not measured: {error.problem}")
            continue
        notes += prepared.notes
        columns |= _slide(prepared, settings, points)
    if not columns:
        raise CadError(
            "no modality can be measured: " + "; ".join(notes), patient=study.participant_id
        )
    rows = pd.DataFrame(columns, copy=False)
    return SlidingFeatures(index=voxels, rows=rows, grid=grid, notes=notes)


def _slide(
    prepared: images.Prepared, settings: PipelineSettings, points: np.ndarray
) -> dict[str, np.ndarray]:
    """Return a modality's feature columns for a sphere around each point, shape (n_points,) each.

    ``points`` are in patient coordinates, mm.
    """
    columns: dict[str, np.ndarray] = {}
    first_row = 0
    for chunk in _chunks(prepared.grid, points):
        measured = measure_regions(prepared, chunk, settings.features)
        # All columns are rows of one array that is filled in place. The columns of a whole gland
        # take hundreds of MB, so they must not be copied.
        if not columns:
            columns = dict(zip(measured, np.empty((len(measured), len(points))), strict=True))
        for name, values in measured.items():
            # A sphere needs at least MIN_VOXELS voxels, as a drawn region does: a percentile of
            # fewer voxels means nothing.
            values[chunk.sizes < MIN_VOXELS] = np.nan
            columns[name][first_row : first_row + chunk.count] = values
        first_row += chunk.count
    return columns


def _chunks(grid: Volume, points: np.ndarray) -> Iterator[RegionVoxels]:
    """Yield the spheres around points, in patient coordinates (mm), some thousand at a time."""
    for first in range(0, len(points), _CHUNK):
        centres = grid.patient_to_index(points[first : first + _CHUNK])
        yield RegionVoxels.spheres(centres, grid.shape, grid.spacing, RADIUS_MM)
