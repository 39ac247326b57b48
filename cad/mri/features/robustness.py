"""Measure how much features change when a region is drawn slightly differently.

A region is redrawn by way of the signed distance of every voxel from its contour. To shift the
distances moves the region, to add a constant to them enlarges or shrinks it, and to add smooth
noise roughens its contour. Every copy is measured like the region itself. The intraclass
correlation ICC(1,1) over regions gives the share of a feature's variance that does not come from
redrawing. Outlines that several readers drew are measured in the same way; each image is prepared
once for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import ndimage
from scipy.stats import f as f_distribution

from cad.base.errors import CadError
from cad.base.settings import PipelineSettings
from cad.mri.features import images
from cad.mri.features.measure import measure_regions
from cad.mri.features.radiomics_classes import radiomics_features
from cad.mri.features.regions import RegionVoxels
from cad.mri.features.size import size_columns
from cad.mri.imaging.drawn import fill, shares_on
from cad.mri.imaging.geometry import bounding_box, limits, resample_mask
from cad.mri.imaging.interpolate import at_spacing
from cad.mri.imaging.standardise import NyulScale
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.volume import Volume

_COPY_KEYS = ["participant_id", "roi_id", "repeat"]
MIN_LOWER_BOUND = 0.75
"""Least lower bound of the ICC of a feature that counts as stable."""


@dataclass(frozen=True)
class Perturbation:
    """Say how a region is redrawn at random.

    Parameters
    ----------
    shift_mm : float
        Standard deviation of the shift along x and along y, within the slice.
    growth_mm : float
        Standard deviation of the distance by which the region grows (positive) or shrinks.
    noise_mm : float
        Standard deviation of the contour's roughness.
    noise_length_mm : float
        Length over which the roughness stays similar.
    repeats : int
        Number of redrawn copies of each region, beside the region itself.
    seed : int
        Seed of the random draws; the same seed redraws a region in the same way.
    """

    shift_mm: float = 0.75
    growth_mm: float = 0.5
    noise_mm: float = 0.5
    noise_length_mm: float = 3.0
    repeats: int = 9
    seed: int = 0


def redraw(mask: Volume, perturbation: Perturbation, rng: np.random.Generator) -> Volume:
    """Return one perturbed copy of a region.

    Parameters
    ----------
    mask : Volume
        Boolean mask of the region, not empty.
    perturbation : Perturbation
        Standard deviations of shift, growth and roughness.
    rng : Generator
        Source of the random draws.

    Returns
    -------
    Volume
        The copy: boolean, on a part of the same grid. It is empty if the region shrank to nothing.
    """
    # The box around the region is enlarged by three standard deviations of each change that can
    # move the region's border outwards.
    reach = 3 * (perturbation.shift_mm + perturbation.growth_mm + perturbation.noise_mm)
    padded = _padded(mask, reach)
    spacing = np.array(padded.spacing[::-1])
    inside = padded.array
    # Distances are measured between the centres of voxels. The border of the region lies half a
    # voxel before the nearest centre outside of the region.
    half_voxel = 0.5 * spacing.min()
    # The distance is negative inside the region and positive outside.
    outward = ndimage.distance_transform_edt(~inside, sampling=spacing)
    inward = ndimage.distance_transform_edt(inside, sampling=spacing)
    distance = np.where(inside, half_voxel - inward, outward - half_voxel)
    # The region is shifted within its slices only. A reader draws slice by slice, and the next
    # slice is millimetres away.
    shift = np.array([0.0, *rng.normal(0, perturbation.shift_mm, 2)]) / spacing
    # The map of distances is shifted and not the mask, because a mask can move only by whole
    # voxels.
    moved = ndimage.shift(distance, shift, order=1, mode="nearest")
    growth = rng.normal(0, perturbation.growth_mm)
    roughness = ndimage.gaussian_filter(
        # White noise that is smoothed by a Gaussian with a sigma of L/2 is similar over about the
        # length L, here ``noise_length_mm``.
        rng.normal(size=inside.shape),
        perturbation.noise_length_mm / spacing / 2,
        mode="wrap",
    )
    standard_deviation = roughness.std()
    # The noise is divided by its own standard deviation in this draw. The expected standard
    # deviation would not do: a small box holds few independent bumps, so that single draws differ
    # much.
    roughness *= perturbation.noise_mm / standard_deviation if standard_deviation > 0 else 0.0
    # A voxel belongs to the copy if it lies inside the contour that is moved outwards by ``growth``
    # and, from place to place, by ``roughness`` (mm).
    return padded.with_array(moved <= growth + roughness)


def perturbed_features(
    study: Study, settings: PipelineSettings, perturbation: Perturbation | None = None
) -> pd.DataFrame:
    """Measure every region of a study and its redrawn copies.

    Parameters
    ----------
    study : Study
        Study with images, label map and regions; its images are already prepared for measuring
        (:func:`cad.mri.imaging.prepare.prepare_study`).
    settings : PipelineSettings
        Settings of the pipeline; only ``images`` and ``features`` are read.
    perturbation : Perturbation, optional
        How far copies move, how many there are, and the seed; by default ``Perturbation()``.

    Returns
    -------
    DataFrame
        One row per copy: ``participant_id``, ``roi_id``, ``repeat`` (0 is the region as drawn), and
        the feature columns, NaN in a modality where the copy has too few voxels.

    Raises
    ------
    CadError
        For a study without regions, or without any image that the settings name.
    """
    perturbation_or_default = perturbation or Perturbation()
    names, _ = images.available(study, settings)
    study_at_spacing = images.compact(at_spacing(study, settings.images))
    copies: list[tuple[str, int, Volume]] = []
    for roi in study_at_spacing.rois:
        for repeat, mask in enumerate(copies_of(study_at_spacing, roi, perturbation_or_default)):
            copies.append((roi.roi_id, repeat, mask))
    if not copies or not names:
        raise CadError("no region or no image to perturb", patient=study.participant_id)
    columns: dict[str, np.ndarray] = {}
    for name in names:
        prepared_and_regions = prepared_copies(
            study_at_spacing, settings, name, [mask for _, _, mask in copies]
        )
        if prepared_and_regions is not None:
            columns |= measure_regions(*prepared_and_regions, settings.features)
    keys = {
        "participant_id": [study.participant_id] * len(copies),
        "roi_id": [roi_id for roi_id, _, _ in copies],
        "repeat": [repeat for _, repeat, _ in copies],
    }
    return pd.concat([pd.DataFrame(keys), pd.DataFrame(columns)], axis=1)


def copies_of(study: Study, roi: Roi, perturbation: Perturbation) -> list[Volume]:
    """Return the masks of a region: as drawn, then its redrawn copies.

    Parameters
    ----------
    study : Study
        Study with a label map.
    roi : Roi
        The region; its copies do not depend on which other regions are redrawn.
    perturbation : Perturbation
        How many copies, how far they move, and the seed.

    Returns
    -------
    list of Volume
        Boolean masks; the first is the region as drawn.

    Raises
    ------
    CadError
        Without a label map, or for an empty region.
    """
    mask = study.mask_of(roi)
    # Each region has its own stream of random numbers. The copies of a region therefore do not
    # depend on which other regions are redrawn.
    rng = np.random.default_rng([perturbation.seed, *f"{study.study_id}/{roi.roi_id}".encode()])
    return [mask, *(redraw(mask, perturbation, rng) for _ in range(perturbation.repeats))]


def prepared_copies(
    study: Study,
    settings: PipelineSettings,
    name: str,
    masks: Sequence[Volume],
    scale: NyulScale | None = None,
) -> tuple[images.Prepared, RegionVoxels] | None:
    """Prepare a modality once for many masks, for
    :func:`cad.mri.features.measure.measure_regions`.

    Parameters
    ----------
    study : Study
        Study with the modality; its image has the voxel size that the settings state.
    settings : PipelineSettings
        Settings of the pipeline; ``images`` and ``features`` are read.
    name : str
        Name of the modality, such as ``t2w`` or ``adc``.
    masks : sequence of Volume
        Boolean, one for each region; a mask with too few voxels of this modality gives an empty
        region.
    scale : NyulScale, optional
        Scale fitted on training patients; needed where T2 is standardised by ``nyul``.

    Returns
    -------
    tuple of Prepared and RegionVoxels, or None
        The modality, and one region for each mask, in order; None where no mask can be measured.
    """
    grid = images.grid_of(study, name)
    mask_boxes = [images.box_around(mask, grid, margin_mm=0.0) for mask in masks]
    boxes = [box for box in mask_boxes if box is not None]
    if not boxes:
        return None
    # All masks are measured in one box. The image is therefore prepared once, and not for each
    # mask.
    cropped = images.crop(grid, images.enclosing(boxes))
    shares = []
    for mask in masks:
        drawn = fill(mask, cropped, half=settings.features.partial_voxels == "half")
        shares.append(np.zeros_like(drawn.share) if drawn.too_little else drawn.share)
    needed = np.logical_or.reduce([share > 0 for share in shares])
    if not needed.any():
        return None
    prepared = images.prepare(study, settings, name, cropped.with_array(needed), scale)
    # The image may have been cut or enlarged while it was prepared; shares are moved to its grid.
    prepared_shares = [shares_on(share, cropped, prepared.grid) for share in shares]
    return prepared, RegionVoxels.from_shares(prepared_shares)


def masks_features(
    study: Study,
    settings: PipelineSettings,
    masks: Sequence[Volume],
    scale: NyulScale | None = None,
) -> pd.DataFrame:
    """Measure the features of masks, in place of the study's own regions.

    Parameters
    ----------
    study : Study
        Study with images, label map and regions. Without a gland mask, the arrival of the bolus is
        found in the regions.
    settings : PipelineSettings
        Settings of the pipeline; only ``images`` and ``features`` are read.
    masks : sequence of Volume
        Boolean masks on any grid; a mask may be empty.
    scale : NyulScale, optional
        Scale fitted on training patients; needed where T2 is standardised by ``nyul``.

    Returns
    -------
    DataFrame
        One row per mask, with the feature columns of the settings; NaN where a mask has too few
        voxels of an image. An image that cannot be prepared has no columns.
    """
    names, _ = images.available(study, settings)
    study_at_spacing = images.compact(at_spacing(study, settings.images))
    columns = _size(study, settings, masks)
    for name in names:
        try:
            prepared_and_regions = prepared_copies(study_at_spacing, settings, name, masks, scale)
        except CadError:  # this error was reported when the study's own regions were measured
            continue
        if prepared_and_regions is None:
            continue
        columns |= measure_regions(*prepared_and_regions, settings.features)
        if name != "dce":  # pyradiomics measures images, and no maps of a dynamic series
            columns |= radiomics_features(*prepared_and_regions, settings.features)
    return pd.DataFrame(columns, index=range(len(masks)))


def _size(
    study: Study, settings: PipelineSettings, masks: Sequence[Volume]
) -> dict[str, np.ndarray]:
    """Return the size and position columns of every mask, if the settings name these columns."""
    if study.roi_map is None:
        return {}
    columns: dict[str, np.ndarray] = {}
    for row, mask in enumerate(masks):
        label_mask = resample_mask(mask, study.roi_map) if mask.array.any() else mask
        # A mask that is empty, or lies outside of the label map, has no size. Its columns stay NaN.
        if not label_mask.array.any():
            continue
        # Size and position are measured on a label map. A label map is therefore made for each
        # mask, with the mask as label 1.
        study_of_mask = replace(
            study, roi_map=label_mask.with_array(label_mask.array.astype(np.uint8))
        )
        for name, values in size_columns(study_of_mask, [1], settings.features).items():
            columns.setdefault(name, np.full(len(masks), np.nan))[row] = values[0]
    return columns


def icc(values: np.ndarray, confidence: float = 0.95) -> tuple[float, float, float]:
    """Return the intraclass correlation ICC(1,1) of a feature, with its interval.

    It is the correlation of two measurements of one region: one-way random effects, single
    measurement.

    Parameters
    ----------
    values : ndarray, shape (n_regions, n_repeats)
        One feature's finite values: a row per region, a column per repeated measurement.
    confidence : float
        Confidence level of the two-sided interval.

    Returns
    -------
    icc, low, high : float
        The ICC and its interval. They are (0, 0, 0) for a feature that has one value everywhere,
        because it cannot tell regions apart, and (1, 1, 1) if regions differ and repeats do not.

    References
    ----------
    Shrout & Fleiss, Psychol Bull 86 (1979) 420, case 1.

    Examples
    --------
    >>> import numpy as np
    >>> value, low, high = icc(np.array([[1.0, 1.1], [2.0, 2.1], [3.0, 2.9], [4.0, 4.1]]))
    >>> bool(low < value < high), round(value, 2)
    (True, 1.0)
    """
    n, k = values.shape  # n regions, k repeats
    if n < 2 or k < 2:
        raise CadError(f"an ICC needs 2 regions and 2 repeats, found {n} and {k}")
    # The mean squares of a one-way analysis of variance.
    region_means = values.mean(axis=1)
    between = k * float(((region_means - region_means.mean()) ** 2).sum()) / (n - 1)
    within = float(((values - region_means[:, None]) ** 2).sum()) / (n * (k - 1))
    # If all values of a feature are equal, both mean squares are rounding errors, and their ratio
    # means nothing.
    rounding = (1e-12 * float(np.abs(values).max())) ** 2
    if between <= rounding and within <= rounding:
        return 0.0, 0.0, 0.0
    if within <= rounding:  # regions differ and repeats do not; F would be infinite
        return 1.0, 1.0, 1.0
    f_value = between / within
    # The ratio F of the mean squares between and within regions gives ICC = (F - 1) / (F + k - 1),
    # for k repeats. Quantiles of the F distribution give the interval of F, and from it the
    # interval of the ICC.
    upper_tail = 1 - (1 - confidence) / 2
    df_between = n - 1  # degrees of freedom
    df_within = n * (k - 1)
    low = f_value / f_distribution.ppf(upper_tail, df_between, df_within)
    high = f_value * f_distribution.ppf(upper_tail, df_within, df_between)

    def icc_of(f_ratio: float) -> float:
        """Return the ICC that belongs to a ratio of mean squares."""
        return float((f_ratio - 1) / (f_ratio + k - 1))

    return icc_of(f_value), icc_of(low), icc_of(high)


def stability(table: pd.DataFrame, confidence: float = 0.95) -> pd.DataFrame:
    """Return the intraclass correlation ICC(1,1) of every feature over all regions of a table.

    Parameters
    ----------
    table : DataFrame
        Rows of :func:`perturbed_features` of one or many studies.
    confidence : float
        Confidence level of the interval from ``low`` to ``high``.

    Returns
    -------
    DataFrame
        ``feature``, ``icc``, ``low``, ``high``, ``n_regions``. A region counts for a feature when
        all its copies have a value; with fewer than 2 such regions the three numbers are NaN.
    """
    repeats = table.groupby(["participant_id", "roi_id"], sort=False).size()
    if repeats.nunique() != 1:
        raise CadError(
            f"every region needs the same number of copies, found {sorted(set(repeats))}"
        )
    features = [column for column in table.columns if column not in _COPY_KEYS]
    # The copies of a region follow each other, so that the table can be read as an array of shape
    # (n_regions, n_repeats, n_features).
    ordered = table.sort_values(_COPY_KEYS, kind="stable")
    n_repeats = int(repeats.iloc[0])
    values_of_copies = ordered[features].to_numpy(float).reshape(-1, n_repeats, len(features))
    rows = []
    for number, name in enumerate(features):
        values = values_of_copies[:, :, number]
        # The mean squares need a value for each of a region's k copies. If a copy has no value, the
        # region is left out.
        values = values[np.isfinite(values).all(axis=1)]
        # The ICC compares regions with each other, which takes two at least.
        interval = icc(values, confidence) if len(values) >= 2 else (np.nan, np.nan, np.nan)
        rows.append((name, *interval, len(values)))
    return pd.DataFrame(rows, columns=["feature", "icc", "low", "high", "n_regions"])


def stable_features(
    table: pd.DataFrame, patients: list[str] | None = None, minimum: float = MIN_LOWER_BOUND
) -> list[str]:
    """Return the features whose ICC (intraclass correlation) is above ``minimum`` with confidence.

    The lower bound of the 95 % interval of the ICC must be at least ``minimum``.

    Parameters
    ----------
    table : DataFrame
        Rows of :func:`perturbed_features`.
    patients : list of str, optional
        Patients whose regions count; in a fold these are the training patients. By default all.
    minimum : float
        Least lower bound of the ICC that a stable feature has.

    Returns
    -------
    list of str
        Names of the stable features, in the order of the table's columns.

    Raises
    ------
    CadError
        When no feature is stable.
    """
    counted = table if patients is None else table[table["participant_id"].isin(set(patients))]
    if counted.empty:
        raise CadError("no perturbed region of these patients")
    reliability = stability(counted)
    stable: list[str] = reliability.loc[reliability["low"] >= minimum, "feature"].tolist()
    if not stable:
        raise CadError(
            f"no feature is stable: the highest lower bound is {reliability['low'].max():.3g}, "
            f"{minimum:g} is needed",
            hint="lower the minimum, or the sizes of the perturbation",
        )
    return stable


def _padded(mask: Volume, reach_mm: float) -> Volume:
    """Return the mask, cut to the box around the region with a border of ``reach_mm``.

    The border may extend beyond the image.
    """
    box = bounding_box(mask.array)
    if box is None:
        raise ValueError("the mask is empty")
    # The border is one voxel wider than ``reach_mm``, because distances are interpolated between
    # voxels when they are shifted.
    border = np.ceil(reach_mm / np.array(mask.spacing[::-1])).astype(int) + 1
    array = np.pad(mask.array[box], [(int(n_voxels), int(n_voxels)) for n_voxels in border])
    return mask.beginning_at(array, (limits(box)[0] - border)[::-1])
