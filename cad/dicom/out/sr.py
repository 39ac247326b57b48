"""Make the structured report of one study (DICOM template TID 1500): results and outlines.

Every region has two measurement groups (TID 1411) with one tracking UID. The first group refers to
the region's segment in the SEG object. It holds the belief (under a private code), measurements and
the decision, and the probability of cancer if the model learned from histology. The second group
has the region's outline on every image (SCOORD), because most viewers draw a report's regions only
from coordinates.

The man's probability, if a model gave him one, is a derived measurement (TID 1420). It names the
tracking UIDs of the regions from which it was computed. The decision on the man is a qualitative
evaluation of the report. The man has no measurement group: if a group has no outline, the viewer
OHIF shows nothing of the report. The regions are named by UID and not by a reference to another
item of the report, because highdicom cannot read a report with such a reference.
"""

import math
from dataclasses import dataclass
from typing import Any

import highdicom
import numpy as np
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes
from pydicom.sr.coding import Code
from scipy.ndimage import binary_fill_holes
from skimage.measure import find_contours

from cad.base.files import JsonObject
from cad.dicom.out.objects import (
    SIGNIFICANT_GRADE,
    StudyResults,
    algorithm,
    heading,
    isup_min_of,
    uid,
)
from cad.dicom.out.source_images import SourceImages
from cad.dicom.out.sr_reader import BELIEF, DECISION, EVALUATIONS, HIGH, IMAGES, LOW, MAN, SUSPICION
from cad.dicom.own import MANUFACTURER
from cad.folders.run_folder.schema import HISTOLOGY

_EIGHT_NEIGHBOURS = np.ones((3, 3), bool)  # a pixel is connected to those at its corners, too


@dataclass(frozen=True)
class Outline:
    """Hold one closed line around a part of a region.

    Parameters
    ----------
    z : int
        Slice of the mask.
    points : ndarray, shape (n, 2)
        Column and row; (0, 0) is the upper left corner of the image, (.5, .5) the centre of its
        first pixel (PS3.3 C.18.6). The last point equals the first.
    """

    z: int
    points: np.ndarray

    @property
    def area(self) -> float:
        """Return the area inside the line, in square pixels."""
        # The area of a polygon from its corners (shoelace formula).
        column, row = self.points.T
        return float(abs(column[:-1] @ row[1:] - column[1:] @ row[:-1]) / 2)


def outlines(mask: np.ndarray) -> list[Outline]:
    """Return closed lines around every part of a mask, the line of the largest area first.

    The lines run half-way between the centres of pixels inside the mask and outside, so that a line
    encloses the centres of exactly the mask's pixels. Holes have no line, because a list of closed
    lines cannot say that one area is cut out of another.

    Parameters
    ----------
    mask : ndarray of bool, shape (n_z, n_y, n_x)
        The region.

    Examples
    --------
    The line around 2 x 3 pixels cuts off the corners of their rectangle:

    >>> mask = np.zeros((1, 4, 5), bool)
    >>> mask[0, 1:3, 1:4] = True
    >>> (line,) = outlines(mask)
    >>> line.z, line.area, line.points[0].tolist()
    (0, 5.5, [3.5, 3.0])
    """
    lines = []
    for z in np.flatnonzero(mask.any(axis=(1, 2))):
        # A gap in the region that meets the outside at a corner of a pixel is no hole, because the
        # line of find_contours() runs around it.
        filled = binary_fill_holes(mask[z], _EIGHT_NEIGHBOURS)
        # The mask is 1 inside and 0 outside, so that the level 0.5 is its border. A margin of one
        # pixel around the image closes the lines of regions at the image's edge.
        for line in find_contours(np.pad(filled, 1), 0.5):
            # find_contours() gives row and column, with 0 at the centre of the first pixel of the
            # margin. DICOM has column and row, with 0.5 at the centre of the image's first pixel.
            points = line[:, ::-1] - 0.5
            lines.append(Outline(int(z), points))
    return sorted(lines, key=lambda outline: -outline.area)


SCHEME = "99CAD"
DECISION_CODE = Code(DECISION, SCHEME, "Decision by the site's thresholds")
ON_SUSPICION = Code(SUSPICION, SCHEME, "Decision on readers' suspicion by the site's thresholds")
"""Code for the decision of a model that learned from no histology: no decision on cancer."""
BELIEF_CODE = Code(BELIEF, SCHEME, "Readers would call it malignant")
IMAGES_CODE = Code(IMAGES, SCHEME, "Probability of cancer, no scores")
LOW_CODE = Code(LOW, SCHEME, "Probability of cancer, lower end")
HIGH_CODE = Code(HIGH, SCHEME, "Probability of cancer, upper end")
EVALUATIONS_CODE = Code(EVALUATIONS, "UMLS", "Qualitative Evaluations")
DECISIONS = {
    "benign": codes.SCT.Benign,
    "malignant": codes.SCT.Malignant,
    "refer": Code("refer", SCHEME, "Refer to a radiologist"),
}
ZONES = {
    "PZ": codes.SCT.PeripheralZoneOfTheProstate,
    "TZ": codes.SCT.TransitionZoneOfTheProstate,
    "AFS": codes.SCT.AnteriorFibromuscularStromaOfProstate,
}
_DIGITS = 6  # significant digits of a number as text
_CONTAINS = highdicom.sr.RelationshipTypeValues.CONTAINS
_INFERRED_FROM = highdicom.sr.RelationshipTypeValues.INFERRED_FROM
_MODIFIER = highdicom.sr.RelationshipTypeValues.HAS_CONCEPT_MOD


def cancer_code(isup_min: int) -> Code:
    """Return the code of cancer of a grade or more: the cancer that the probabilities are about.

    Parameters
    ----------
    isup_min : int
        Lowest ISUP grade that counts as malignant.

    Examples
    --------
    >>> cancer_code(1).meaning, cancer_code(3).value
    ('Any prostate cancer', 'isup-3')
    """
    if isup_min <= 1:
        return Code("cancer", SCHEME, "Any prostate cancer")
    if isup_min == SIGNIFICANT_GRADE:
        return Code("significant", SCHEME, "Any prostate cancer of ISUP grade 2 or more")
    meaning = f"Any prostate cancer of ISUP grade {isup_min} or more"
    return Code(f"isup-{isup_min}", SCHEME, meaning)


Group = highdicom.sr.VolumetricROIMeasurementsAndQualitativeEvaluations


def structured_report(results: StudyResults, seg: highdicom.seg.Segmentation) -> Dataset:
    """Return the structured report (TID 1500) of one study.

    Parameters
    ----------
    results : StudyResults
        The study's regions with their scores.
    seg : Segmentation
        The SEG object of the study: one segment for each region of ``results``, in the same order.
    """
    name, version, statements = algorithm(results.run)
    device = highdicom.sr.ObserverContext(
        codes.DCM.Device,
        highdicom.sr.DeviceObserverIdentifyingAttributes(
            uid=uid("device", name, version), name=name, manufacturer_name=MANUFACTURER
        ),
    )
    rows = list(results.scored.itertuples())
    measurement_groups = []
    for number, row in enumerate(rows, start=1):  # segments are numbered from 1
        measurement_groups.append(_measurement_group(results, row, seg, number))
    identification = highdicom.sr.AlgorithmIdentification(name, version, statements)
    outline_groups = []
    for row, mask in zip(rows, results.masks, strict=True):
        outline_groups.append(_outline_group(results, row, mask, identification))
    content = highdicom.sr.MeasurementReport(
        highdicom.sr.ObservationContext(observer_device_context=device),
        codes.SCT.MultiparametricMRIOfProstate,
        imaging_measurements=[*measurement_groups, *outline_groups],
        title=codes.DCM.ImagingMeasurementReport,
    )
    # highdicom's class has no argument for statements on the man; they are added to its content.
    content[0].ContentSequence.extend(_man_containers(results, rows, identification))
    report = highdicom.sr.Comprehensive3DSR(
        # All objects to which the report's content refers are listed as evidence. highdicom refuses
        # a reference to any other object.
        [*results.source.headers, seg],
        content,
        is_complete=True,
        **heading("SR", results.identity),
    )
    _separate(report)
    # This item tells who has defined the private codes in the report (PS3.3 C.12.1).
    scheme = Dataset()
    scheme.CodingSchemeDesignator = SCHEME
    scheme.CodingSchemeName = "Codes of the cad project"
    report.CodingSchemeIdentificationSequence = [scheme]
    return report


def _measurement_group(
    results: StudyResults, row: Any, seg: highdicom.seg.Segmentation, number: int
) -> Group:
    """Make the group that refers to a region's segment: its measurements and the decision on it."""
    name, version, statements = algorithm(results.run)
    # An empty cell of the table is read as NaN, which is no text.
    warnings = getattr(row, "warnings", None)
    if isinstance(warnings, str) and warnings:
        statements = [*statements, f"warning: {warnings}"]
    return Group(
        referenced_segment=highdicom.sr.ReferencedSegment(
            seg.SOPClassUID,
            seg.SOPInstanceUID,
            number,
            source_series=highdicom.sr.SourceSeriesForSegmentation(
                str(results.source.headers[0].SeriesInstanceUID)
            ),
        ),
        algorithm_id=highdicom.sr.AlgorithmIdentification(name, version, statements),
        measurements=_measurements(row, results.medians.get(str(row.roi_id), {})),
        qualitative_evaluations=_decision_evaluation(row.decision, row.probability_of),
        **_shared_items(results, row),
    )


def _man_containers(
    results: StudyResults, rows: list[Any], identification: highdicom.sr.AlgorithmIdentification
) -> list[highdicom.sr.ContainerContentItem]:
    """Make the containers on the man: his probability of cancer and, if made, the decision on him.

    If the model gave him no probability, there are no containers.
    """
    # The table repeats the man's numbers on each of his regions.
    row = rows[0]
    probability = getattr(row, "patient_probability", math.nan)
    if not math.isfinite(probability):
        return []
    measurement = _measurement(
        codes.DCM.ProbabilityOfCancer,
        100 * probability,
        codes.UCUM.Percent,
        tracking_identifier=highdicom.sr.TrackingIdentifier(
            uid=uid(results.study.study_id, MAN), identifier=MAN
        ),
        algorithm_id=identification,
        finding_sites=[highdicom.sr.FindingSite(codes.SCT.Prostate)],
    )
    # The code says from which grade on the probability counts a cancer.
    cancer = highdicom.sr.CodeContentItem(
        codes.DCM.Finding, cancer_code(isup_min_of(results.run)), _MODIFIER
    )
    measurement[0].ContentSequence.append(cancer)
    for region in rows:
        region_uid = uid(results.study.study_id, region.roi_id)
        measurement[0].ContentSequence.append(
            highdicom.sr.UIDRefContentItem(
                codes.DCM.TrackingUniqueIdentifier, region_uid, _INFERRED_FROM
            )
        )
    containers = [_container(codes.DCM.DerivedImagingMeasurements, measurement)]
    # A decision on a man is always one on cancer: without histology he has no probability.
    for evaluation in _decision_evaluation(row.patient_decision, HISTOLOGY):
        containers.append(_container(EVALUATIONS_CODE, evaluation))
    return containers


def _container(
    name: Code, items: highdicom.sr.ContentSequence
) -> highdicom.sr.ContainerContentItem:
    """Return a container (a section with a heading) for the first level of the report."""
    container = highdicom.sr.ContainerContentItem(name, relationship_type=_CONTAINS)
    container.ContentSequence = items
    return container


def _outline_group(
    results: StudyResults,
    row: Any,
    mask: np.ndarray,
    identification: highdicom.sr.AlgorithmIdentification,
) -> Group:
    """Make the group with the region's outlines, the largest first.

    A viewer that shows one image of a finding, such as OHIF, takes the image of the first outline.
    """
    regions = [_image_region(results.source, outline) for outline in outlines(mask)]
    return Group(
        referenced_regions=regions, algorithm_id=identification, **_shared_items(results, row)
    )


def _shared_items(results: StudyResults, row: Any) -> dict[str, Any]:
    """Return the items that stand in both groups of measurements of a region.

    They are the tracking identifier, the type of finding, and the zone as its site.
    """
    # The tracking UID is made from the ids of study and region alone. So a region has the same
    # tracking UID in every later report.
    tracking_uid = uid(results.study.study_id, row.roi_id)
    zone = ZONES.get(row.zone, codes.SCT.Prostate)
    return {
        "tracking_identifier": highdicom.sr.TrackingIdentifier(
            uid=tracking_uid, identifier=str(row.roi_id)
        ),
        "finding_type": codes.SCT.Lesion,
        "finding_sites": [highdicom.sr.FindingSite(zone)],
    }


def _image_region(source: SourceImages, outline: Outline) -> highdicom.sr.ImageRegion:
    """Return an outline as an item of the report, with the image (or frame) that it is drawn on."""
    place = source.planes.index(outline.z)  # of the slice among the source's images or frames
    # DICOM counts the frames of an image from 1. A classic image, which is one slice, has none.
    frames = [place + 1] if "NumberOfFrames" in source.headers[0] else None
    header = source.headers[0 if frames else place]
    image = highdicom.sr.SourceImageForRegion(header.SOPClassUID, header.SOPInstanceUID, frames)
    return highdicom.sr.ImageRegion(highdicom.sr.GraphicTypeValues.POLYLINE, outline.points, image)


def _measurements(row: Any, medians: JsonObject) -> list[highdicom.sr.Measurement]:
    """Return the measurements of a region: probabilities, medians of ADC and Ktrans, volume."""
    measurements = [
        *_probabilities(row),
        *_median(
            codes.DCM.ApparentDiffusionCoefficient,
            medians.get("adc_median"),
            codes.UCUM.SquareMicrometerPerSecond,
        ),
        *_median(codes.DCM.Ktrans, medians.get("ktrans_median"), codes.UCUM.PerMinute),
    ]
    volume = medians.get("volume_mm3")
    # The volume is left out if nothing was measured: a volume of 0 would look like a measurement.
    if volume:
        measurements.append(_measurement(codes.SCT.Volume, volume, codes.UCUM.CubicMillimeter))
    return measurements


def _probabilities(row: Any) -> list[highdicom.sr.Measurement]:
    """Return the belief and, if the model learned from histology, the probability of cancer.

    The probability comes first, because viewers list measurements in the order of the report.
    """
    numbers = []
    if row.probability_of == HISTOLOGY:
        numbers.append((codes.DCM.ProbabilityOfCancer, row.probability))
        numbers.append((LOW_CODE, row.probability_low))
        numbers.append((HIGH_CODE, row.probability_high))
    numbers.append((BELIEF_CODE, row.belief))
    if row.probability_of == HISTOLOGY:
        numbers.append((IMAGES_CODE, row.probability_images))
    items = []
    for code, value in numbers:
        if math.isfinite(value):  # an end of the range may be missing
            items.append(_measurement(code, 100 * value, codes.UCUM.Percent))
    return items


def _decision_evaluation(decision: object, of: str) -> list[highdicom.sr.QualitativeEvaluation]:
    """Return a decision: on cancer, or on suspicion if the model learned from no histology.

    ``of`` is the value of ``probability_of``.
    """
    if decision not in DECISIONS:  # no decision was made
        return []
    concept = DECISION_CODE if of == HISTOLOGY else ON_SUSPICION
    return [highdicom.sr.QualitativeEvaluation(concept, DECISIONS[str(decision)])]


def _measurement(name: Code, value: float, unit: Code, **more: Any) -> highdicom.sr.Measurement:
    """Return a measurement: its number rounded to six digits as text, and exactly as a float."""
    # The text is a DICOM decimal string, which has at most 16 bytes. The number in the text is
    # therefore rounded to six significant digits.
    # A number of n digits before the point keeps _DIGITS - n digits behind it. The logarithm of 0
    # does not exist.
    decimals = _DIGITS
    if value:
        decimals = _DIGITS - 1 - math.floor(math.log10(abs(value)))
    rounded = round(float(value), max(decimals, 0))
    item = highdicom.sr.Measurement(name, rounded, unit, **more)
    item[0].MeasuredValueSequence[0].FloatingPointValue = float(value)
    return item


def _median(name: Code, value: float | None, unit: Code) -> list[highdicom.sr.Measurement]:
    """Return a median as a measurement, in a list that is empty if nothing was measured."""
    if value is None or not math.isfinite(value):
        return []
    return [_measurement(name, value, unit, derivation=codes.SCT.Median)]


def _separate(item: Dataset) -> None:
    """Mark the items of every container as separate.

    Otherwise programs that show reports leave out the names of the measurements.
    """
    if item.get("ValueType") == "CONTAINER":
        item.ContinuityOfContent = "SEPARATE"
    for child in item.get("ContentSequence", []):
        _separate(child)
