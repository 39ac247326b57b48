"""Prepare each modality's images for measuring, cut to the part of the grid that regions need.

Nothing is computed for a whole grid. The T2 image is standardised and cut, and perfusion maps are
made only inside the gland and the regions. A cut image keeps its place in the patient.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.ndimage import binary_dilation

from cad.base.errors import CadError
from cad.base.settings import FeatureSettings, FilterSettings, PipelineSettings
from cad.base.terms.features import MAPS
from cad.base.terms.modality import modality
from cad.mri.features.filters import filter_reach
from cad.mri.features.perfusion.maps import PerfusionMaps, perfusion_maps
from cad.mri.imaging.drawn import shares_on
from cad.mri.imaging.geometry import Box, bounding_box, box_between, limits, resample_mask
from cad.mri.imaging.standardise import NyulScale, standardise_t2
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import CORNERS, Dynamic, Volume

# Number of voxels of an image that are kept on each side of a region. A gradient needs one voxel on
# each side. A filter may need more than this margin; :func:`filter_reach` says how many.
_MARGIN = 2


@dataclass(frozen=True, eq=False)
class Prepared:
    """Hold the images of one modality, ready to be measured.

    Parameters
    ----------
    name : str
        ``t2w``, ``adc`` or ``dce``.
    grid : Volume
        The part of the modality's grid that is measured. For ``t2w`` and ``adc`` it has the values.
    maps : dict of str to ndarray
        For ``dce``: maps on ``grid``, by the names of :data:`cad.base.terms.features.MAPS`.
    images : dict of str to ndarray
        For ``dce``: the images on ``grid`` of which gradients and co-occurrence are measured, by
        the names of ``features.dce_images``. They are NaN where a map has no value.
    notes : list of str
        Assumptions that were made for the values, a sentence each.
    perfusion : PerfusionMaps or None
        For ``dce``: the object from which mean curves of regions are made; else None.
    provenance : dict of str to str or float
        How the values were made, by name. For ``t2w``: the tissue that the intensities are scaled
        by, and the median intensity before the scaling. For ``dce``: the source of T1, the arterial
        input and, where motion was corrected, how far frames were moved (mm). Empty for ``adc``.
    """

    name: str
    grid: Volume
    maps: dict[str, np.ndarray] = field(default_factory=dict)
    images: dict[str, np.ndarray] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    perfusion: PerfusionMaps | None = None
    provenance: dict[str, str | float] = field(default_factory=dict)


def available(study: Study, settings: PipelineSettings) -> tuple[list[str], list[str]]:
    """Return the modalities that settings name, in two lists: those that a study has, and those it
    lacks.

    Parameters
    ----------
    study : Study
        Study that may lack modalities.
    settings : PipelineSettings
        Settings; ``features.modalities`` names the wanted modalities.

    Returns
    -------
    present, absent : list of str
        Names of modalities.
    """
    modalities: list[str] = list(settings.features.modalities)
    present = [name for name in modalities if study.image(name) is not None]
    return present, [name for name in modalities if name not in present]


def absence_notes(names: list[str]) -> list[str]:
    """Return a note for the patient's page on each modality that is absent.

    Parameters
    ----------
    names : list of str
        Names of the absent modalities.
    """
    return [f"no {modality(name).title}: its features are missing" for name in names]


def grid_of(study: Study, name: str) -> Volume:
    """Return the image that carries a modality's grid; for a dynamic series its first frame.

    Parameters
    ----------
    study : Study
        Study with the modality.
    name : str
        Name of the modality.

    Raises
    ------
    CadError
        When the study lacks the modality.
    """
    image = study.grid(name)
    if image is None:
        raise CadError(f"the study has no {modality(name).title}", patient=study.participant_id)
    return image


def compact(study: Study) -> Study:
    """Return a study with its label map cut to the box around its regions, to keep masks small.

    Parameters
    ----------
    study : Study
        Not changed; the cut label map keeps its place in the patient.
    """
    if study.roi_map is None:
        return study
    box = bounding_box(study.roi_map.array != 0, margin=1)
    if box is None:  # no region is drawn
        return study
    return replace(study, roi_map=crop(study.roi_map, box))


def prepare(
    study: Study,
    settings: PipelineSettings,
    name: str,
    needed: Volume,
    scale: NyulScale | None = None,
) -> Prepared:
    """Prepare one modality's images where they are needed.

    Parameters
    ----------
    study : Study
        Study with the modality.
    settings : PipelineSettings
        Settings; standardisation, filters and perfusion are read.
    name : str
        ``t2w``, ``adc`` or ``dce``.
    needed : Volume
        The voxels that will be measured: boolean, on any part of the modality's grid.
    scale : NyulScale, optional
        Scale fitted on training patients; needed where T2 is standardised by ``nyul``.

    Returns
    -------
    Prepared
        For ``t2w`` and ``adc``, the smallest part of the image that measuring takes, with values:
        T2 in standardised units, ADC in 1e-6 mm2/s. For ``dce``, the maps of perfusion on the
        needed voxels.

    Raises
    ------
    CadError
        When the modality cannot be prepared, for example because a T2 image is constant or a
        dynamic series shows no bolus.
    """
    if name == "dce":
        return _prepare_dce(study, settings, needed)
    provenance: dict[str, str | float] = {}
    if name == "t2w":
        image, reference, level = standardise_t2(study, settings.images, scale)
        provenance = {"t2_reference": reference, "t2w_level": level}
    else:
        image = grid_of(study, name)
    filters = filters_of(settings.features, name)
    return Prepared(name, crop_to(image, needed, filters), provenance=provenance)


def filters_of(settings: FeatureSettings, name: str) -> tuple[FilterSettings, ...]:
    """Return the filters that are applied to a modality's image; none for a dynamic series.

    Parameters
    ----------
    settings : FeatureSettings
        Settings with ``filters``, by modality.
    name : str
        Name of the modality.
    """
    return next((chosen for image, chosen in settings.filters.items() if image == name), ())


def crop_to(whole: Volume, needed: Volume, filters: Sequence[FilterSettings] = ()) -> Volume:
    """Return the part of an image that is enough to measure a mask.

    Inside the mask, filters of the part give the same values as filters of the whole image.

    Parameters
    ----------
    whole : Volume
        The whole image.
    needed : Volume
        Boolean mask, on any grid, of the voxels that will be measured.
    filters : sequence of FilterSettings
        Filters that will be applied to the part; it gets a margin as wide as they reach.
    """
    margin = np.maximum(filter_reach(filters, whole.spacing), _MARGIN)
    return crop(whole, _box_in(needed, whole, margin))


def crop(volume: Volume, box: Box) -> Volume:
    """Return a part of a volume that keeps its place in the patient; the values are not copied.

    Parameters
    ----------
    volume : Volume
        Image or mask.
    box : tuple of 3 slices
        Ranges of voxels along z, y, x.
    """
    return volume.beginning_at(volume.array[box], limits(box[::-1])[0])


def box_around(mask: Volume, grid: Volume, margin_mm: float) -> Box | None:
    """Return the box of a grid that holds a mask and a margin around it.

    Parameters
    ----------
    mask : Volume
        Mask on any grid; voxels that are not zero are inside.
    grid : Volume
        The grid whose box is returned; its values are not read.
    margin_mm : float
        Width of the margin on each side of the mask; one voxel of ``grid`` is added to it.

    Returns
    -------
    tuple of 3 slices or None
        Along z, y, x; None for an empty mask, or where mask and grid do not meet.
    """
    mask_box = bounding_box(mask.array)
    if mask_box is None:
        return None
    # The corners of the box around the mask, as voxel indices x, y, z. Voxels reach half a voxel
    # beyond their centres.
    low, high = limits(mask_box[::-1])
    corners = low - 0.5 + CORNERS * (high - low)
    return box_of_points(mask.index_to_patient(corners), grid, margin_mm)


def box_of_points(points: np.ndarray, grid: Volume, margin_mm: float) -> Box | None:
    """Return the box of a grid that holds points and a margin around them.

    Parameters
    ----------
    points : ndarray, shape (n, 3)
        The points in patient coordinates (LPS), mm.
    grid : Volume
        The grid whose box is returned; its values are not read.
    margin_mm : float
        Width of the margin on each side; one voxel of ``grid`` is added to it.

    Returns
    -------
    tuple of 3 slices or None
        Along z, y, x; None where the points lie beside the grid.

    Examples
    --------
    The box goes 1 mm and one voxel beyond the voxel number 5 of each axis:

    >>> import numpy as np
    >>> grid = Volume(np.zeros((10, 10, 10)), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> z, y, x = box_of_points(np.array([[5.0, 5.0, 5.0]]), grid, 1.0)
    >>> z.start, z.stop, x == z
    (3, 8, True)
    >>> box_of_points(np.array([[50.0, 5.0, 5.0]]), grid, 1.0) is None
    True
    """
    index = grid.patient_to_index(points)[:, ::-1]  # z, y, x
    reach = margin_mm / np.array(grid.spacing[::-1]) + 1
    first = np.floor(index.min(axis=0) - reach).astype(int)
    end = np.ceil(index.max(axis=0) + reach).astype(int) + 1
    box = box_between(first, end, grid.shape)  # cut off at the border of the grid
    is_empty = any(side.stop <= side.start for side in box)
    return None if is_empty else box


def crop_dynamic(dynamic: Dynamic, box: Box) -> Dynamic:
    """Return a part of a dynamic series that keeps its place in the patient; frames are not copied.

    Parameters
    ----------
    dynamic : Dynamic
        The series.
    box : tuple of 3 slices
        Ranges of voxels along z, y, x.
    """
    return replace(dynamic, frames=dynamic.frames[:, *box], grid=crop(dynamic.grid, box))


def _prepare_dce(study: Study, settings: PipelineSettings, needed: Volume) -> Prepared:
    """Return the perfusion maps of the dynamic series, computed in a box around the regions.

    ``needed`` is True at the voxels of the regions; its grid is any part of the series' grid.
    """
    if study.dce is None:
        raise CadError("the study has no dynamic series", patient=study.participant_id)
    # The series is cut to a box around the regions, the gland and the vessel. The arterial input is
    # measured in the vessel, and the arrival of the bolus is found in the gland.
    boxes = [_box_in(needed, study.dce.grid, _MARGIN)]
    for mask in (study.gland, study.vessel):
        mask_box = None if mask is None else box_around(mask, study.dce.grid, margin_mm=0.0)
        if mask_box is not None:
            boxes.append(mask_box)
    box = enclosing(boxes)
    dynamic = crop_dynamic(study.dce, box)
    cut_study = replace(study, dce=dynamic, vfa=_cut_flips(study.vfa, study.dce.grid, box))
    # Maps are computed only in the regions, in the gland, and around regions where gradients need
    # it. To fit models in every voxel of the box would take long.
    computed = shares_on(needed.array, needed, dynamic.grid) > 0
    if study.gland is not None:
        cut_study.gland = resample_mask(study.gland, dynamic.grid)
        computed |= cut_study.gland.array
    image_names = settings.features.dce_images
    # The gradient of a map needs one voxel beyond a region.
    if any(name in MAPS for name in image_names):
        computed = binary_dilation(computed, np.ones((3, 3, 3), bool))
    perfusion = perfusion_maps(cut_study, settings.features.perfusion, computed)
    maps = {name: volume.array for name, volume in perfusion.maps.items()}
    # If T1 was not measured, the map of T1 holds the one value that is assumed, and is no feature.
    if settings.features.perfusion.t1 == "fixed" or not study.vfa:
        maps.pop("t1", None)
    provenance: dict[str, str | float] = {
        "t1_source": perfusion.t1_source,
        "input": perfusion.input_kind,
    }
    if study.frames_moved_mm is not None:
        provenance["dce_moved"] = study.frames_moved_mm
    images = {name: _series_image(perfusion, name) for name in image_names}
    return Prepared(
        name="dce",
        grid=dynamic.grid,
        maps=maps,
        images=images,
        notes=list(perfusion.notes),
        perfusion=perfusion,
        provenance=provenance,
    )


def _series_image(made: PerfusionMaps, name: str) -> np.ndarray:
    """Return an image of a dynamic series by its name; NaN where the model of a map did not fit."""
    if name not in MAPS:
        return made.early()
    # A map that was not computed for this study has no values anywhere.
    if name not in made.maps:
        return np.full(made.early().shape, np.nan)
    values = made.maps[name].array.astype(float)
    did_not_fit = made.maps.get(f"{MAPS[name].model}_did_not_fit")
    # Where a fit failed, the parameters are bounds or noise. The quality of the fit is a value
    # there, too.
    if did_not_fit is not None and MAPS[name].role == "parameter":
        values = np.where(did_not_fit.array > 0, np.nan, values)
    return values


def _cut_flips(
    vfa: list[tuple[float, Volume]], grid: Volume, box: Box
) -> list[tuple[float, Volume]]:
    """Return the flip-angle images, cut to the box where they lie on the dynamic grid.

    Images on another grid are returned whole; they are interpolated later.
    """
    images = []
    for angle, image in vfa:
        same_shape = image.shape == grid.shape
        # ``affine`` has the place of voxels in mm, so that 1e-6 allows for rounding errors only.
        if same_shape and np.allclose(image.affine, grid.affine, rtol=0, atol=1e-6):
            images.append((angle, crop(image, box)))
        else:
            images.append((angle, image))
    return images


def _box_in(mask: Volume, grid: Volume, margin: np.ndarray | int) -> Box:
    """Return the box of a mask as indices of ``grid``; the mask is given on a part of ``grid``.

    ``margin`` is a number of voxels, or one for each of z, y, x, that is added on each side.
    """
    # Where the mask's first voxel lies in ``grid``: z, y, x. It is a whole number but for rounding
    # errors.
    offset = np.round(grid.patient_to_index(np.array(mask.origin))).astype(int)[::-1]
    box = bounding_box(mask.array)
    if box is None:
        raise ValueError("the mask is empty")
    low, high = limits(box)
    return box_between(low + offset - margin, high + offset + margin, grid.shape)


def enclosing(boxes: Sequence[Box]) -> Box:
    """Return the smallest box that holds all of the boxes.

    Parameters
    ----------
    boxes : sequence of (slice, slice, slice)
        Boxes as ranges of voxels along z, y, x; at least one.
    """
    firsts, ends = np.array([limits(box) for box in boxes]).transpose(1, 0, 2)
    end = ends.max(axis=0)
    # No box has a negative index or lies beyond ``end``, so that nothing is cut off.
    return box_between(firsts.min(axis=0), end, shape=end)
