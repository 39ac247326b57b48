"""Make one row of features for each region of a study."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.settings import FeatureSettings, PipelineSettings
from cad.base.terms.features import MAPS
from cad.base.terms.modality import modality
from cad.mri.features import images
from cad.mri.features.filters import check_filters, filter_words
from cad.mri.features.measure import measure_regions, resegmented, texture_of
from cad.mri.features.perfusion.maps import RegionCurve
from cad.mri.features.provenance import PREFIX
from cad.mri.features.radiomics_classes import check_radiomics, radiomics_features
from cad.mri.features.regions import RegionVoxels
from cad.mri.features.size import size_columns
from cad.mri.features.unscaled import UnscaledT2, unscaled_t2
from cad.mri.imaging.belonging import measurable
from cad.mri.imaging.drawn import Drawn, shares_on, why_unmeasured, without_void
from cad.mri.imaging.geometry import MIN_VOXELS
from cad.mri.imaging.interpolate import at_spacing
from cad.mri.imaging.standardise import NyulScale
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.volume import Volume

# Margin (mm) of the box around all regions in which a patient's page shows the enhancement.
_SHOWN_MM = 22.0
# Share of a region outside the image below which it counts as inside: rounding errors are smaller.
_ROUNDING = 1e-3
# Share of a region without a value from which the patient's page has a note. A smaller share is
# often only a voxel at the region's edge.
_SAID_WITHOUT_VALUE = 0.05


@dataclass
class StudyFeatures:
    """Hold the measurements of one study.

    Parameters
    ----------
    rows : DataFrame
        ``participant_id``, ``roi_id``, then the columns of :func:`cad.mri.columns.columns_of`; one
        row per region that could be measured. A modality that is absent has no columns.
    notes : list of str
        Images and values that were missing or assumed.
    failures : list of CadError
        One error for each region or modality that could not be measured.
    maps : dict of str to Volume
        ``adc`` and every perfusion map (:data:`cad.base.terms.features.MAPS`) by name, cut to the
        box that was measured.
    gaps : dict of str to dict
        Reasons why a region is not measured in a modality: by ``roi_id``, then by modality.
    curves : dict of str to RegionCurve
        Mean curves and fits of regions by ``roi_id``; empty without a dynamic series.
    unscaled : UnscaledT2 or None
        Part of the T2 image, if T2 is to be standardised by ``nyul`` and the scale is not fitted
        yet; else None. T2 features are measured from this part when the scale has been fitted.
        Until then the columns of T2 features are NaN.
    provenance : DataFrame
        How each value was measured, one row for each of ``rows``; every column begins with
        ``provenance_`` and is text or a number.
    """

    rows: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    failures: list[CadError] = field(default_factory=list)
    maps: dict[str, Volume] = field(default_factory=dict)
    gaps: dict[str, dict[str, str]] = field(default_factory=dict)
    curves: dict[str, RegionCurve] = field(default_factory=dict)
    unscaled: UnscaledT2 | None = None
    provenance: pd.DataFrame = field(default_factory=pd.DataFrame)


def extract(
    study: Study, settings: PipelineSettings, scale: NyulScale | None = None
) -> StudyFeatures:
    """Measure the features of every region of a study, on each modality's own grid.

    Parameters
    ----------
    study : Study
        Study with at least one wanted modality, a label map and regions; not changed.
    settings : PipelineSettings
        Settings of the pipeline; only ``images`` and ``features`` are read.
    scale : NyulScale, optional
        Scale fitted on the training patients, for the ``nyul`` standardisation of T2. Without a
        scale, this standardisation leaves T2 columns NaN and fills ``StudyFeatures.unscaled``.

    Returns
    -------
    StudyFeatures
        A region that is too small in one modality has NaN in its columns, and a note. A region that
        no modality can measure has no row and is in ``failures``. A modality that cannot be
        prepared has no columns and is in ``failures`` as well.

    Raises
    ------
    CadError
        When no region or modality can be measured, when a wanted feature needs a package that is
        not installed, or when a filter's settings are wrong.
    """
    # Packages and settings are checked before anything is measured. Otherwise a missing package or
    # a wrong setting could end a run after an hour.
    check_radiomics(settings.features.radiomics)
    check_filters(settings.features)
    names, absent = images.available(study, settings)
    if not names:
        raise CadError(
            f"the study has none of the images {', '.join(settings.features.modalities)}",
            patient=study.participant_id,
            hint="add images, or other modalities to the pipeline",
        )
    study_at_spacing = images.compact(at_spacing(study, settings.images))
    # Only an absent optional modality gets a note here. If a modality that is not optional is
    # absent, the patient's page says so without a note.
    absent_options = [name for name in absent if modality(name).optional]
    result = StudyFeatures(_key_columns(study, []), images.absence_notes(absent_options))
    half_counts_whole = settings.features.partial_voxels == "half"
    grids = {
        name: _grid_around_regions(study_at_spacing, name, settings.features) for name in names
    }
    drawn, problems = measurable(study_at_spacing, grids, half=half_counts_whole)
    result.failures += problems
    # The rows of the result are in the order of the regions in the cohort's table ``rois.tsv``.
    rois = [roi for roi in study.rois if roi.roi_id in drawn]
    result.rows = _key_columns(study, rois)
    result.provenance = pd.DataFrame(index=result.rows.index)
    # Size and position are measured on the study's whole label map. In ``study_at_spacing`` this
    # map is cut to the box around the regions, which may not hold the whole gland.
    columns = size_columns(study, [roi.label for roi in rois], settings.features)
    for name in names:
        drawn_regions = [drawn[roi.roi_id][name] for roi in rois]
        result.notes += _notes_on_left_out(study, name, drawn_regions, rois, result.gaps)
        if any(not region.too_little for region in drawn_regions):
            columns |= _columns_of_modality(
                study_at_spacing, settings, name, drawn_regions, rois, result, scale
            )
    if study.adc is not None:
        result.maps["adc"] = study.adc
    # The columns are put into one array first, because pandas takes long to build a table from
    # hundreds of single columns.
    values = np.array(list(columns.values()), float).reshape(len(columns), len(rois)).T
    result.rows = pd.concat([result.rows, pd.DataFrame(values, columns=list(columns))], axis=1)
    return result


def _grid_around_regions(study: Study, name: str, settings: FeatureSettings) -> Volume:
    """Return the part of a modality's grid around the regions.

    If the regions lie outside of the grid, the part is a single corner voxel. If the settings of
    texture state a range of values, ADC voxels below it count as not measured, and are NaN.
    """
    grid = images.grid_of(study, name)
    union = study.roi_union
    box = None
    if union is not None:
        box = images.box_around(union, grid, margin_mm=0.0)
    if box is None:
        # No region needs this grid, but the functions that measure regions need a grid with at
        # least one voxel.
        box = (slice(0, 1), slice(0, 1), slice(0, 1))
    cropped = images.crop(grid, box)
    value_range = texture_of(settings, name).range
    if modality(name).least is not None and value_range is not None:
        cropped = without_void(cropped, value_range[0])
    return cropped


def _notes_on_left_out(
    study: Study, name: str, drawn: list[Drawn], rois: list[Roi], gaps: dict[str, dict[str, str]]
) -> list[str]:
    """Return notes on regions that a modality cannot measure, with the reason, or measures only in
    part.
    """
    notes = []
    for roi, outline in zip(rois, drawn, strict=True):
        if outline.too_little:
            reason = why_unmeasured(study, name, outline)
            gaps.setdefault(roi.roi_id, {})[name] = reason
            notes.append(f"{name} not measured in ROI {roi.roi_id}: {reason}")
            continue
        if outline.valued <= 1 - _SAID_WITHOUT_VALUE:
            notes.append(
                f"{name}: {1 - outline.valued:.0%} of ROI {roi.roi_id} has no value and is left out"
            )
        if outline.inside < 1 - _ROUNDING:
            notes.append(
                f"{name}: {1 - outline.inside:.0%} of ROI {roi.roi_id} lie outside the image"
            )
    return notes


def _columns_of_modality(
    study: Study,
    settings: PipelineSettings,
    name: str,
    drawn: list[Drawn],
    rois: list[Roi],
    result: StudyFeatures,
    scale: NyulScale | None,
) -> dict[str, np.ndarray]:
    """Return the feature columns of one image, shape (n_regions,) each; none if it fails.

    Notes, failures and provenance are added to ``result``.
    """
    grid = _grid_around_regions(study, name, settings.features)
    # A region that cannot be measured is replaced by an empty one, so that its columns are NaN.
    shares = []
    for region in drawn:
        shares.append(np.zeros_like(region.share) if region.too_little else region.share)
    needed = grid.with_array(np.logical_or.reduce([share > 0 for share in shares]))
    is_nyul = settings.images.t2_standardisation == "nyul"
    # The scale of T2 by Nyul is fitted to all studies, after each of them was measured once.
    awaits_scale = name == "t2w" and is_nyul and scale is None
    try:
        if awaits_scale:
            unscaled = unscaled_t2(study, settings, needed, shares)
            prepared = unscaled.prepared(NyulScale.fit(unscaled.landmarks))
        else:
            # T2 may be scaled by the tissue around the regions. A region that cannot be measured
            # must not change this scale.
            prepared = images.prepare(replace(study, rois=rois), settings, name, needed, scale)
    except CadError as error:
        result.failures.append(error.naming(patient=study.participant_id))
        result.notes.append(f"{name} not measured: {error.problem}")
        return {}
    regions = RegionVoxels.from_shares([shares_on(share, grid, prepared.grid) for share in shares])
    result.notes += prepared.notes
    if awaits_scale:
        result.unscaled = unscaled
    columns = measure_regions(prepared, regions, settings.features)
    provenance_columns = _provenance_columns(prepared, drawn, regions, settings)
    provenance_columns |= _displaced(study, name, drawn)
    provenance = pd.DataFrame(provenance_columns).add_prefix(PREFIX)
    result.provenance = pd.concat([result.provenance, provenance], axis=1)
    if name != "dce":
        columns |= radiomics_features(prepared, regions, settings.features)
    else:
        _keep_perfusion(study, prepared, regions, rois, result)
    incomplete = []  # columns in which at least one region has no value
    for column, values in columns.items():
        if not np.isfinite(values).all():
            incomplete.append(column)
    if incomplete:
        result.notes.append(_missing_values_note(columns, incomplete, rois))
    if awaits_scale:
        # T2 features are measured later, when the scale of the cohort has been fitted. The values
        # here only give the names of the columns, and the notes.
        columns = {column: np.full(len(rois), np.nan) for column in columns}
    return columns


def _provenance_columns(
    prepared: images.Prepared, drawn: list[Drawn], regions: RegionVoxels, settings: PipelineSettings
) -> dict[str, list[str | float | None]]:
    """Return, by name of the column, how a modality's values of every region were made.

    An entry is None if the region was not measured.
    """
    name = prepared.name
    spacing = prepared.grid.spacing
    columns: dict[str, list[str | float | None]] = {}
    # Only T2 and ADC have a setting for the voxel size to which images are interpolated.
    stated_spacing = getattr(settings.images, f"spacing_{name}", None)
    interpolation = "none" if stated_spacing is None else settings.images.interpolation

    def add_column(key: str, values: Sequence[str | float]) -> None:
        """Add a column with one value per region, None where a region was not measured."""
        columns[key] = []
        for outline, value in zip(drawn, values, strict=True):
            columns[key].append(None if outline.too_little else value)

    for key, value in prepared.provenance.items():
        add_column(key, [value] * len(drawn))
    unit = "standardised" if name == "t2w" else modality(name).unit or "a.u."
    add_column(f"{name}_unit", [unit] * len(drawn))
    add_column(f"{name}_interpolation", [interpolation] * len(drawn))
    # Voxels may be longer along x than along y. Their size in the slice is told by one number, the
    # side of a square of the same area.
    add_column(f"{name}_spacing", [float(np.sqrt(spacing[0] * spacing[1]))] * len(drawn))
    add_column(f"{name}_thickness", [float(spacing[2])] * len(drawn))
    filters = images.filters_of(settings.features, name)
    if filters:
        add_column(f"{name}_filters", [", ".join(map(filter_words, filters))] * len(drawn))
    add_column(f"{name}_voxels", [region.voxels for region in drawn])
    add_column(f"{name}_purity", [region.purity for region in drawn])
    add_column(f"{name}_valid", _valid(prepared, regions, settings.features))
    return columns


def _displaced(study: Study, name: str, drawn: list[Drawn]) -> dict[str, list[str | float | None]]:
    """Return, by name of the column, how far (mm) the modality lay beside T2 and was moved back."""
    columns: dict[str, list[str | float | None]] = {}
    for displacement in study.displacements:
        if displacement.name == name:
            columns[f"{name}_displaced"] = [displacement.size_mm] * len(drawn)
            columns[f"{name}_displaced_most"] = [displacement.most_mm] * len(drawn)
            columns[f"{name}_mended"] = [study.mended_mm.get(name, 0.0)] * len(drawn)
    for unmeasured in study.unmeasured:
        if unmeasured.name == name:
            columns[f"{name}_unmeasured"] = [unmeasured.sentence] * len(drawn)
    return columns


def _valid(
    prepared: images.Prepared, regions: RegionVoxels, settings: FeatureSettings
) -> list[float]:
    """Return the share (0 to 1) of each region in which the image has a value.

    For a dynamic series, return the share of each region in which the first kinetic model fits.
    """
    # Each kinetic model has a map that is 1 where the model did not fit. Images have no such map.
    unfit_maps = [
        image for name, image in prepared.maps.items() if MAPS[name].role == "did_not_fit"
    ]
    if unfit_maps:
        return regions.share_of(regions.values(unfit_maps[0]) == 0)
    texture = texture_of(settings, prepared.name)
    values = resegmented(regions.values(prepared.grid.array), regions.start, texture)
    return regions.share_of(np.isfinite(values))


def _keep_perfusion(
    study: Study,
    prepared: images.Prepared,
    regions: RegionVoxels,
    rois: list[Roi],
    result: StudyFeatures,
) -> None:
    """Add the maps, notes and mean curves of a dynamic series to ``result``.

    ``regions`` are those of ``rois``, in the same order, on the grid of ``prepared``.
    """
    perfusion = prepared.perfusion
    if perfusion is None:  # only a dynamic series has it
        return
    for name, array in prepared.maps.items():
        result.maps[name] = prepared.grid.with_array(array)
    result.notes += _unfit_notes(prepared, regions, rois)
    enhancement = _enhancement(study, perfusion.arrival, perfusion.n_baseline)
    if enhancement is not None:
        # The patient's page shows more tissue than was measured. This larger map replaces the
        # measured one.
        result.maps["relative_enhancement"] = enhancement
    # The shares of one region after another, by flat voxel number of the grid.
    flat_shares = np.zeros(int(np.prod(regions.shape)))
    for row, roi in enumerate(rois):
        voxels = slice(regions.start[row], regions.start[row + 1])
        flat_shares[:] = 0.0
        flat_shares[regions.index[voxels]] = (
            1.0 if regions.weight is None else regions.weight[voxels]
        )
        try:
            result.curves[roi.roi_id] = perfusion.curve(flat_shares.reshape(regions.shape))
        except CadError as error:  # the maps were computed, and only the region's curve is lacking
            result.notes.append(f"ROI {roi.roi_id}: no mean curve: {error.problem}")


def _enhancement(study: Study, arrival: float, n_baseline: int) -> Volume | None:
    """Return the relative enhancement for display, in a box around all regions with a margin of 22
    mm.

    The map from which features are measured has the same values, but covers only the gland and the
    regions.
    """
    union = study.roi_union
    if study.dce is None or union is None:
        return None
    box = images.box_around(union, study.dce.grid, _SHOWN_MM)
    if box is None:
        return None
    dynamic = images.crop_dynamic(study.dce, box)
    frames_after = np.flatnonzero(np.asarray(dynamic.times) >= arrival)
    baseline = dynamic.frames[:n_baseline].mean(axis=0, dtype=np.float32)
    peak = dynamic.frames[frames_after[0] :].max(axis=0).astype(np.float32)
    # Where the baseline is 0, as in air, nothing can be divided by it, and the enhancement is 0.
    positive = baseline > 0
    enhancement = np.maximum(peak - baseline, 0) / np.where(positive, baseline, 1)
    return dynamic.grid.with_array(np.where(positive, enhancement, 0).astype(np.float32))


def _unfit_notes(prepared: images.Prepared, regions: RegionVoxels, rois: list[Roi]) -> list[str]:
    """Return a note for each kinetic model on the voxels that it did not fit, by region."""
    notes = []
    for name, image in prepared.maps.items():
        if MAPS[name].role != "did_not_fit":
            continue
        # The voxels of all regions follow each other in one array. The difference of the cumulative
        # sum at a region's end and at its start is the number of its failed voxels.
        failed_before = np.concatenate([[0], np.cumsum(regions.values(image) > 0)])
        failed = np.diff(failed_before[regions.start])
        counts = []
        for roi, n_failed, size in zip(rois, failed, regions.sizes, strict=True):
            if n_failed:
                counts.append(f"{roi.roi_id} ({n_failed} of {size})")
        if counts:
            notes.append(
                f"{MAPS[name].model}: voxels that did not fit are left out of the statistics of "
                f"ROI {', '.join(counts)}"
            )
    return notes


def _missing_values_note(
    columns: dict[str, np.ndarray], incomplete: list[str], rois: list[Roi]
) -> str:
    """Return a note that names the regions without a value in one of the ``incomplete`` columns.

    The note names the first three of these columns, and counts the others.
    """
    lacks_value = np.any([~np.isfinite(columns[name]) for name in incomplete], axis=0)
    roi_ids = sorted({rois[row].roi_id for row in np.flatnonzero(lacks_value)})
    further = f" and {len(incomplete) - 3} more" if len(incomplete) > 3 else ""
    return (
        f"fewer than {MIN_VOXELS} voxels with a value, or no pair of neighbours, in ROI "
        f"{', '.join(roi_ids)}: {', '.join(incomplete[:3])}{further} are missing there"
    )


def _key_columns(study: Study, rois: list[Roi]) -> pd.DataFrame:
    """Return a table with the patient and the id of each region; it may have no rows."""
    return pd.DataFrame(
        {
            "participant_id": pd.Series([study.participant_id] * len(rois), dtype="str"),
            "roi_id": pd.Series([roi.roi_id for roi in rois], dtype="str"),
        }
    )
