"""Collect what a patient's page shows of a study: slices on one grid, curves with fits, notes."""

import json
from collections.abc import Sequence

import numpy as np

from cad.base.files import JsonObject
from cad.base.terms.modality import MODALITIES
from cad.mri.columns import column_name
from cad.mri.features.images import crop
from cad.mri.features.place import axial_diameter, curve_type, drawn_as, place_in_image, place_of
from cad.mri.features.table import StudyFeatures
from cad.mri.imaging import diffusion
from cad.mri.imaging.drawn import gland_on
from cad.mri.imaging.geometry import bounding_box, resample_image, resample_mask
from cad.mri.imaging.registration import Registration, registration_view
from cad.mri.imaging.study import Protocol, Roi, Study
from cad.mri.imaging.volume import Volume

# The page shows this margin around gland and regions: mm within a slice, and slices on either side.
MARGIN_MM = 20.0
MARGIN_SLICES = 2
# Names, in StudyFeatures.maps, of the two perfusion maps that a patient's page shows.
ENHANCEMENT = "relative_enhancement"
KTRANS = "tofts_ktrans"
# Fewest voxels in the gland from whose values the ends of the grey scale are computed.
MIN_WINDOW_VOXELS = 50
# Lower and upper end of the grey scale of ADC maps, 1e-6 mm2/s. Tumours, in which diffusion is
# restricted, lie near the lower end, and the peripheral zone near the upper end.
ADC_WINDOW = [400.0, 2000.0]
MIDDLE_MM = 30.0
"""Half the side (mm) of a square in the middle of an image, where the gland is assumed to lie if
there is no mask of it.
"""
HIGH_B = 800.0
"""Lowest b-value (s/mm2) of a diffusion image that is shown where there is no high-b image."""


def snapshot(
    study: Study, features: StudyFeatures, registrations: Sequence[Registration] = ()
) -> dict[str, np.ndarray]:
    """Return the arrays for the patient's page, ready for ``numpy.savez``.

    Parameters
    ----------
    study : Study
        The images, prepared as they were measured.
    features : StudyFeatures
        Maps, curves, notes and failures of the same study.
    registrations : sequence of Registration
        Results of aligning images with T2.

    Returns
    -------
    dict of str to ndarray
        Arrays by name:

        - ``t2w``, ``adc``, ``hbv``, ``enhancement``, ``ktrans``: images on the display grid, shape
          (n_slices, H, W), as far as they exist; NaN outside their field of view
        - ``roi_map``: label map on the same grid
        - ``frame``: the gland on this grid; without a gland mask, the middle of the image
        - ``spacing`` (x, y, z, mm), ``direction`` and ``z_mm`` (place of each slice): the grid
        - ``curve_times``; ``curve_signal``, ``curve_concentration``, ``curve_fit``: (n_regions,
          n_times), of a study with a dynamic series
        - ``registration``, uint8 (n, 3, H, W), where images were aligned: each image in its old
          and new place and the edges of T2, on the slice with most region voxels
        - ``meta``: everything else, as a JSON text
    """
    grid = display_grid(study)
    shown = _images_on_grid(study, features, grid)
    labels = _labels_on_grid(study, grid)
    # The ends of the grey scale follow the values in the gland. Without a gland mask they follow
    # the values in the middle of the image, where the gland lies.
    gland_or_middle = _middle_mask(study.anatomical) if study.gland is None else study.gland
    inside = resample_mask(gland_or_middle, grid).array
    # Percentile of the values at the lower end of the grey scale. In the middle of an image it is
    # higher than in a gland mask, because the middle may hold air in the rectum.
    dark_percentile = 5.0 if study.gland is None else 1.0
    fullest_slice = int((labels > 0).sum(axis=(1, 2)).argmax())
    views = [registration_view(moved, grid, fullest_slice) for moved in registrations]
    # Place of the lowest shown slice along the direction across the slices.
    lowest_z_mm = float(np.dot(grid.origin, np.asarray(grid.direction)[:, 2]))
    gland = gland_on(study)
    # Number, from 1, of the lowest shown slice among all slices of the image.
    lowest_shown = 1 + round(float(study.anatomical.patient_to_index(np.array(grid.origin))[2]))
    # Date, scanner and field strength are those of the study's first image that has a sidecar file.
    protocol = next(iter(study.protocols.values()), Protocol())
    windows = {}
    for name, array in shown.items():
        windows[name] = (
            ADC_WINDOW if name == "adc" else _grey_limits(array, inside, dark_percentile)
        )
    meta = {
        "study_id": study.study_id,
        "participant_id": study.participant_id,
        "rois": [_describe_region(study, features, roi, labels, gland) for roi in study.rois],
        "gland_ml": None if study.gland is None else study.gland.millilitres,
        "archive": _archive_numbers(study, grid),
        "acquired": {
            "date": protocol.date,
            "scanner": protocol.scanner,
            "field_strength": protocol.field_strength,
        },
        "notes": [*study.notes, *features.notes],
        "slice_numbers": [
            *range(lowest_shown, lowest_shown + grid.shape[0]),
            study.anatomical.shape[0],
        ],
        "missing": [m.name for m in MODALITIES if not m.optional and study.grid(m.name) is None],
        "registration": [numbers for numbers, _ in views],
        "window": windows,
        "b_value": _b_value_of_high_b(study),
    }
    arrays = {**shown, "roi_map": labels, "frame": inside.astype(np.uint8)}
    if views:
        arrays["registration"] = np.stack([pictures for _, pictures in views])
    arrays["spacing"] = np.array(grid.spacing)
    arrays["direction"] = np.asarray(grid.direction, float)
    arrays["z_mm"] = lowest_z_mm + grid.spacing[2] * np.arange(grid.shape[0])
    arrays |= _curves_of_regions(study, features)
    arrays["meta"] = np.array(json.dumps(meta, sort_keys=True))
    return arrays


def display_grid(study: Study) -> Volume:
    """Return the image on whose grid the patient's page shows its slices.

    The grid is that of the T2 image, cropped around gland and regions; without T2, that of another
    modality's image. Without a gland mask the grid also holds the middle of the image on the
    regions' slices.
    """
    image = study.anatomical
    inside = np.zeros(image.shape, bool)
    for mask in (study.roi_map, study.gland):
        if mask is not None:
            inside |= resample_mask(mask, image).array
    if study.gland is None:
        # The box below gets a margin of MARGIN_MM, so that the middle is smaller by this margin.
        slices_of_region = np.asarray(inside.any(axis=(1, 2)))
        middle = _middle_mask(image, MIDDLE_MM - MARGIN_MM).array
        inside |= middle & slices_of_region[:, np.newaxis, np.newaxis]
    margin_voxels = MARGIN_MM / np.array(image.spacing[1::-1])  # y, x
    display_box = bounding_box(inside, np.array([MARGIN_SLICES, *margin_voxels]).astype(int))
    # Without gland and regions on this image, all of it is shown.
    return image if display_box is None else crop(image, display_box)


def _middle_mask(image: Volume, half_mm: float = MIDDLE_MM) -> Volume:
    """Return a mask of the middle of an image: a square of twice ``half_mm`` on every slice."""
    inside = np.zeros(image.shape, bool)
    ranges = []  # along y and x
    for length, voxel_size in zip(image.shape[1:], image.spacing[1::-1], strict=True):
        reach = max(round(half_mm / voxel_size), 1)
        ranges.append(slice(max(length // 2 - reach, 0), length // 2 + reach))
    inside[:, ranges[0], ranges[1]] = True
    return image.with_array(inside)


def _high_b_image(study: Study) -> Volume | None:
    """Return the study's high-b image, else its diffusion image of the highest b-value.

    The result is None if this b-value is below ``HIGH_B``.
    """
    if study.hbv is not None:
        return study.hbv
    if not study.diffusion:
        return None
    b_value, image = max(study.diffusion, key=lambda pair: pair[0])
    return image if b_value >= HIGH_B else None


def _b_value_of_high_b(study: Study) -> float | None:
    """Return the b-value (s/mm2) of the study's high-b image (:func:`_high_b_image`).

    The result is None where nothing states the b-value.
    """
    if study.hbv is None:
        return max((b_value for b_value, _ in study.diffusion), default=None)
    protocol = study.protocols.get("hbv")
    if protocol is not None:
        return protocol.b_value
    # The high-b image was made from the diffusion images. If the highest b-value is at least
    # ``diffusion.HIGH_B``, it is the image of this b-value. Otherwise it was extrapolated to
    # ``diffusion.HIGH_B``.
    highest = max((b_value for b_value, _ in study.diffusion), default=None)
    return None if highest is None else max(highest, diffusion.HIGH_B)


def _images_on_grid(study: Study, features: StudyFeatures, grid: Volume) -> dict[str, np.ndarray]:
    """Return the images and maps of a study on a grid, by the names of :func:`snapshot`."""
    images = {
        "t2w": study.t2w,
        "adc": study.adc,
        "hbv": _high_b_image(study),
        "enhancement": features.maps.get(ENHANCEMENT),
        "ktrans": features.maps.get(KTRANS, study.ktrans),
    }
    shown = {}
    for name, volume in images.items():
        if volume is not None:
            # Half precision (11 bits) is finer than the grey scale of a screen, and halves the size
            # of the file.
            shown[name] = resample_image(volume, grid).array.astype(np.float16)
    return shown


def _labels_on_grid(study: Study, grid: Volume) -> np.ndarray:
    """Return the regions' labels on a grid, 0 elsewhere; every label above 255 becomes 255."""
    labels = np.zeros(grid.shape, np.uint8)
    for roi in study.rois:
        if study.roi_map is not None:
            # Each label is interpolated as a mask of its own: numbers between two labels mean
            # nothing.
            label_mask = study.roi_map.with_array(study.roi_map.array == roi.label)
            labels[resample_mask(label_mask, grid).array] = min(roi.label, 255)
    return labels


def _describe_region(
    study: Study, features: StudyFeatures, roi: Roi, labels: np.ndarray, gland: Volume | None
) -> JsonObject:
    """Return what the patient's page says of a region, by name.

    ``labels`` is the label map on the display grid, where labels above 255 are 255. ``gland`` is
    the gland mask on the grid of the study's own label map.
    """
    voxels = np.argwhere(labels == min(roi.label, 255))
    centre = None  # a small region may have no voxel on the display grid
    if len(voxels):
        centre = [int(place) for place in np.median(voxels, axis=0)]
    rows = features.rows
    row = rows[rows["roi_id"] == roi.roi_id]
    shown_columns = {
        "adc_median": column_name("adc", "intensity", "median"),
        "ktrans_median": column_name("dce", "tofts_ktrans", "median"),
        "ve_median": column_name("dce", "tofts_ve", "median"),
        "fit_r2": column_name("dce", "tofts_r2", "median"),
    }
    # A value is None if the region was not measured, or if the settings leave the column out.
    values: dict[str, float | None] = dict.fromkeys(shown_columns)
    for name, column in shown_columns.items():
        if column in row and len(row) and np.isfinite(row[column].iloc[0]):
            values[name] = float(row[column].iloc[0])
    curve = features.curves.get(roi.roi_id)
    return {
        "roi_id": roi.roi_id,
        "label": roi.label,
        "centre_index": centre,
        **_region_facts(study, roi, gland),
        "unmeasured": list(features.gaps.get(roi.roi_id, {})),
        "curve_type": None if curve is None else curve_type(curve.time_s, curve.signal),
        **values,
    }


def _region_facts(study: Study, roi: Roi, gland: Volume | None) -> JsonObject:
    """Return volume, diameter and estimated place of a region, and whether it is a mark of fixed
    shape.
    """
    unmeasured = {"diameter_mm": None, "mark": "", "place": None, "image_place": None}
    if study.roi_map is None:
        return {"volume_mm3": None, **unmeasured}
    inside = study.roi_map.array == roi.label
    box = bounding_box(inside)
    if box is None:
        return {"volume_mm3": 0.0, **unmeasured}
    # Diameter and shape are measured in the box around the region, because the whole label map is
    # much larger.
    outline = inside[box]
    place = None
    in_image = None
    if gland is None:
        in_image = place_in_image(study.roi_map, roi.label)
    else:
        place = place_of(gland, inside, roi.zone)
    return {
        "volume_mm3": round(1000.0 * study.roi_map.with_array(inside).millilitres, 1),
        "diameter_mm": round(axial_diameter(outline, study.roi_map.spacing[:2]), 1),
        "mark": drawn_as(outline, study.roi_map.spacing),
        "place": None if place is None else place._asdict(),
        "image_place": None if in_image is None else in_image._asdict(),
    }


def _archive_numbers(study: Study, grid: Volume) -> JsonObject:
    """Return where the archive has the slices that a page shows, by modality.

    For each modality there is the number of its series, and an image number for each slice. A
    reader finds a shown slice in the archive by its image number. The number is None if the
    modality has no slice at this place (within half a slice), or if the import kept no numbers.
    """
    # The middle (x, y) of each shown slice, in patient coordinates.
    middle = (np.array(grid.shape[:0:-1]) - 1) / 2
    places = [grid.index_to_patient(np.array([*middle, z])) for z in range(grid.shape[0])]
    numbered = {}
    for name in ("t2w", "adc"):
        protocol = study.protocols.get(name)
        image = study.grid(name)
        if protocol is None or image is None or protocol.series_number is None:
            continue
        numbers = protocol.instance_numbers
        # An instance number names a slice only if each slice has its own. An enhanced DICOM object
        # is one instance with all slices.
        numbers_name_slices = len(numbers) == image.shape[0]
        image_numbers: list[int | None] = []
        for place in places:
            # The first slice has the index 0, and reaches half a slice to each side of it.
            slice_index = float(image.patient_to_index(place)[2])
            if numbers_name_slices and -0.5 <= slice_index <= len(numbers) - 0.5:
                image_numbers.append(numbers[round(slice_index)])
            else:
                image_numbers.append(None)
        numbered[name] = {"series": protocol.series_number, "images": image_numbers}
    return numbered


def _grey_limits(array: np.ndarray, inside: np.ndarray, dark_percentile: float) -> list[float]:
    """Return the limits of the grey scale, from the values inside a mask of the gland.

    The lower limit lies a little below the percentile ``dark_percentile`` of these values, and the
    upper limit a little above the 99th. Limits from the whole image, with bladder and vessels,
    would leave the gland little contrast.
    """
    values = array[inside & np.isfinite(array)]
    # Percentiles of a few voxels are unstable. If the image covers too little of the gland, as a
    # short series may, the values of the whole image are used.
    if values.size < MIN_WINDOW_VOXELS:
        values = array[np.isfinite(array)]
    if not values.size:  # the image has no values at all; the page needs some scale
        return [0.0, 1.0]
    low, high = np.percentile(values.astype(float), (dark_percentile, 99))
    margin = 0.1 * (high - low)
    # The grey scale of an image without negative values begins at 0 or above.
    lowest = 0.0 if values.min() >= 0 else -np.inf
    # The term 1e-6 keeps the limits of a constant image apart.
    return [float(max(low - margin, lowest)), float(max(high + margin, low + 1e-6))]


def _curves_of_regions(study: Study, features: StudyFeatures) -> dict[str, np.ndarray]:
    """Return the mean curves of all regions as arrays by name; empty without a dynamic series."""
    if study.dce is None:
        return {}
    # A region without a curve gets a row of NaN, so that every region has its row.
    empty = np.full(len(study.dce.times), np.nan)
    signals = []
    concentrations = []
    fits = []
    for roi in study.rois:
        curve = features.curves.get(roi.roi_id)
        signals.append(curve.signal if curve else empty)
        concentrations.append(curve.concentration_mM if curve else empty)
        fits.append(curve.fit_mM if curve else empty)
    return {
        "curve_times": study.dce.times,
        "curve_signal": np.array(signals),
        "curve_concentration": np.array(concentrations),
        "curve_fit": np.array(fits),
    }
