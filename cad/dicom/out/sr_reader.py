"""Read a structured report and check it against its template.

The template is TID 1500 of the DICOM standard (PS3.16). Programs that validate DICOM files do not
check it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset

from cad.base.errors import CadError
from cad.base.reading import reading
from cad.dicom.out.supersede import evidence_uids
from cad.mri.imaging.frames import read_dataset

# SOP classes of a Comprehensive SR and of a Comprehensive 3D SR.
_SR_CLASSES = ("1.2.840.10008.5.1.4.1.1.88.33", "1.2.840.10008.5.1.4.1.1.88.34")
# Codes of concepts in the templates TID 1500, 1501, 1411, 1420 and 4019 of the standard (PS3.16).
REPORT, LANGUAGE, OBSERVER, PROCEDURE = "126000", "121049", "121005", "121058"
MEASUREMENTS, GROUP = "126010", "125007"
DERIVED, EVALUATIONS = "126011", "C0034375"
TRACKING_ID, TRACKING_UID, FINDING, SITE = "112039", "112040", "121071", "363698007"
SEGMENT, SOURCE_SERIES, SOURCE_IMAGE = "121191", "121232", "121233"
REGION, SOURCE = "111030", "260753009"
_DEVICE_NAME = "121013"
PROBABILITY, DECISION = "111047", "decision"
# The codes below are this program's own, not the DICOM standard's. A code has at most 16
# characters; a longer code would have to stand in another element (PS3.3 8.8).
BELIEF = "belief"
IMAGES = "p-images"
LOW = "p-low"
HIGH = "p-high"
SUSPICION = "on-suspicion"
EARLIER = (
    "written before belief and probability were two numbers: what it calls a probability of cancer "
    "is what readers would say"
)
MAN = "patient"
"""Tracking identifier of the measurement about the man."""
ALGORITHM, VERSION, PARAMETERS, DERIVATION = "111001", "111003", "111002", "121401"


@dataclass(frozen=True)
class DrawnOutline:
    """Hold a closed line that is drawn on an image.

    Parameters
    ----------
    image : str
        SOPInstanceUID of the image.
    frame : int
        Frame of the image, counted from 1.
    points : ndarray, shape (n, 2)
        Column and row of each point; (0, 0) is the upper left corner of the image. The last point
        repeats the first.
    """

    image: str
    frame: int
    points: np.ndarray


@dataclass
class RoiReport:
    """Hold a report's content on one region, in one measurement group or several.

    Parameters
    ----------
    roi_id, tracking_uid : str
        Tracking identifier and tracking unique identifier.
    segment : tuple of (str, int)
        SOPInstanceUID of the SEG and segment number.
    finding, site : str
        Code values of the finding and of the place in the body.
    values : dict of str to (float, str)
        Measurements: number and UCUM unit by code of the concept. The code of a median ends in
        ``:median``. A report of an earlier version of the program has one number for a region,
        which it calls a probability of cancer. This number is a belief. It stands here under
        ``belief``, and the text :data:`EARLIER` is among the statements.
    evaluations : dict of str to str
        Statements in codes, such as the decision: code value by code of the concept.
    algorithm, version : str
        Name and version of the model that made the measurements.
    statements : list of str
        Algorithm parameters: training population, decision thresholds.
    outlines : list of DrawnOutline
        Outlines of the region in the order of the report. A viewer that shows only one image of a
        region shows the image of the first outline.
    """

    roi_id: str
    tracking_uid: str
    segment: tuple[str, int]
    finding: str
    site: str
    values: dict[str, tuple[float, str]] = field(default_factory=dict)
    evaluations: dict[str, str] = field(default_factory=dict)
    algorithm: str = ""
    version: str = ""
    statements: list[str] = field(default_factory=list)
    outlines: list[DrawnOutline] = field(default_factory=list)


@dataclass
class Report:
    """Hold the content of a structured report.

    Parameters
    ----------
    patient_id, study_uid : str
        PatientID and StudyInstanceUID.
    device : str
        Name of the device that made the observations; empty where none is stated.
    rois : list of RoiReport
        One entry for each region.
    man : (float, str) or None
        The man's probability of cancer in per cent, and the code of the decision on him (empty
        where none is stated). None where the report has no statement on him.
    man_statements : list of str
        Algorithm parameters of the man's group, of the same kind as a region's ``statements``.
    """

    patient_id: str
    study_uid: str
    device: str
    rois: list[RoiReport]
    man: tuple[float, str] | None = None
    man_statements: list[str] = field(default_factory=list)


def read_report(path: Path) -> Report:
    """Read a structured report and check it against its template, TID 1500.

    Parameters
    ----------
    path : Path
        A Comprehensive SR or Comprehensive 3D SR.

    Returns
    -------
    Report
        The regions in the order of the report.

    Raises
    ------
    CadError
        For a file that is no such report; the error names the broken rule of the template.
    """
    dataset = read_dataset(path)
    with reading(path, "not a sound report"):
        return _report_of_dataset(dataset)


def _report_of_dataset(dataset: Dataset) -> Report:
    """Return the content of a report; refuse a report that breaks a rule of its template."""
    _require_that(
        dataset.SOPClassUID in _SR_CLASSES, f"is no Comprehensive SR: {dataset.SOPClassUID.name}"
    )
    template = dataset.ContentTemplateSequence[0]
    _require_that(
        template.TemplateIdentifier == "1500", f"template {template.TemplateIdentifier}, not 1500"
    )
    _require_that(
        dataset.ValueType == "CONTAINER" and _concept_code(dataset) == REPORT,
        "the root is no 126000",
    )
    for concept, name in ((LANGUAGE, "language"), (OBSERVER, "observer"), (PROCEDURE, "procedure")):
        _require_that(
            bool(list(_children(dataset, concept))), f"TID 1500 requires the {name} ({concept})"
        )
    device = next((item.TextValue for item in _children(dataset, _DEVICE_NAME)), "")
    (container,) = _children(dataset, MEASUREMENTS)  # the template allows one such container
    groups = list(_children(container, GROUP))
    _require_that(bool(groups), "TID 1500 without any measurement group")
    # Reports that a version before 1.0.0 wrote state the man's result in a measurement group of
    # another template, TID 1501, which needs no outline.
    of_man = []
    with_segment = []
    only_drawn = []
    for group in groups:
        if group.ContentTemplateSequence[0].TemplateIdentifier == "1501":
            of_man.append(group)
        elif _has_outlines_alone(group):
            only_drawn.append(group)
        else:
            with_segment.append(group)

    # A region has one group with its segment, and may have groups with outlines. They belong
    # together by their tracking UID.
    rois = [_report_of_roi(group) for group in with_segment]
    roi_by_uid = {roi.tracking_uid: roi for roi in rois}
    _require_that(len(roi_by_uid) == len(rois), "two groups with a segment have one tracking UID")
    for group in only_drawn:
        tracking_uid = str(_single_child(group, TRACKING_UID, "tracking UID").UID)
        roi = roi_by_uid.get(tracking_uid)
        if roi is None:
            raise CadError("an image region belongs to no ROI that has a segment")
        roi.outlines += [_drawn_outline(item) for item in _children(group, REGION)]
    _check_evidence(dataset, rois)
    report = Report(
        patient_id=str(dataset.PatientID),
        study_uid=str(dataset.StudyInstanceUID),
        device=device,
        rois=rois,
    )

    # In reports of this version the man's probability is a derived measurement, and the decision on
    # him is an evaluation. In a group of an earlier version, both are in the group.
    decisions = of_man
    for derived in _children(dataset, DERIVED):
        measurements = list(_children(derived, PROBABILITY))
        _check_inferred_from(measurements, rois)
        of_man = [*of_man, *measurements]
        decisions = list(_children(dataset, EVALUATIONS))
    _require_that(len(of_man) < 2, "two measurements are about the man")
    for measurement in of_man:
        report.man = _probability_of_man(measurement, decisions)
        report.man_statements = [item.TextValue for item in _children(measurement, PARAMETERS)]
    return report


def _probability_of_man(item: Dataset, decision_holders: list[Dataset]) -> tuple[float, str]:
    """Return the man's probability, which ``item`` holds, and the decision on him.

    The decision is in one of ``decision_holders``; it is empty where none is stated.
    """
    _require_that(
        _single_child(item, TRACKING_ID, "tracking identifier").TextValue == MAN,
        "a measurement that belongs to no region is not the man's",
    )
    measurement = item
    if item.ValueType == "CONTAINER":  # the measurement group of an earlier version
        measurement = _single_child(item, PROBABILITY, "probability")
    value, _ = _exact_number(measurement)
    decision = ""
    for holder in decision_holders:
        for child in _children(holder, DECISION):
            decision = _value_code(child)
    return value, decision


def _check_inferred_from(measurements: list[Dataset], rois: list[RoiReport]) -> None:
    """Refuse a derived measurement that does not name every region (TID 1420)."""
    tracking_uids = sorted(roi.tracking_uid for roi in rois)
    for measurement in measurements:
        named_uids = []
        for item in _children(measurement, TRACKING_UID):
            if item.RelationshipType == "INFERRED FROM":
                named_uids.append(str(item.UID))
        _require_that(
            sorted(named_uids) == tracking_uids,
            f"the man's probability is inferred from {len(named_uids)} regions, which are not the "
            f"{len(rois)} of the report",
        )


def _exact_number(item: Dataset) -> tuple[float, str]:
    """Return a measurement's exact number and its unit."""
    _require_that(
        item.RelationshipType == "CONTAINS", "a measurement is not contained in its group"
    )
    measured = item.MeasuredValueSequence[0]
    unit = measured.MeasurementUnitsCodeSequence[0]
    # The template allows only units of UCUM, a system of codes for units (PS3.16).
    _require_that(unit.CodingSchemeDesignator == "UCUM", "a unit is not UCUM")
    # NumericValue is a text of at most 16 characters (VR DS, PS3.5 6.2), so that its number may be
    # rounded. FloatingPointValue is exact, and is preferred where the report has it.
    return float(measured.get("FloatingPointValue", measured.NumericValue)), str(unit.CodeValue)


def _has_outlines_alone(group: Dataset) -> bool:
    """Tell whether a measurement group has outlines of a region, and no segment."""
    return any(_children(group, REGION)) and not any(_children(group, SEGMENT))


def _drawn_outline(item: Dataset) -> DrawnOutline:
    """Return the outline that an image region of the report holds; refuse an open line."""
    _require_that(
        item.ValueType == "SCOORD" and item.GraphicType == "POLYLINE",
        f"an image region is a {item.ValueType}, not a line of SCOORD",
    )
    points = np.asarray(item.GraphicData, float).reshape(-1, 2)
    # The smallest closed line is a triangle, whose first point is repeated at the end.
    _require_that(
        len(points) > 3 and bool((points[0] == points[-1]).all()),
        "the outline of an image region is not closed",
    )
    image = _single_child(item, SOURCE, "source image").ReferencedSOPSequence[0]
    # The frame number is absent if the image has only one frame (PS3.3 10.3).
    frame = int(image.get("ReferencedFrameNumber", 1))
    return DrawnOutline(str(image.ReferencedSOPInstanceUID), frame, points)


def _report_of_roi(group: Dataset) -> RoiReport:
    """Return what a report says of a region, from the measurement group with its segment."""
    _require_that(
        group.ContentTemplateSequence[0].TemplateIdentifier == "1411", "a group is no TID 1411"
    )
    reference = _single_child(group, SEGMENT, "referenced segment").ReferencedSOPSequence[0]
    _require_that(
        bool([*_children(group, SOURCE_SERIES), *_children(group, SOURCE_IMAGE)]),
        "TID 1411 requires source images or series for a segment",
    )
    roi = RoiReport(
        roi_id=_single_child(group, TRACKING_ID, "tracking identifier").TextValue,
        tracking_uid=str(_single_child(group, TRACKING_UID, "tracking UID").UID),
        segment=(str(reference.ReferencedSOPInstanceUID), int(reference.ReferencedSegmentNumber)),
        finding=_value_code(_single_child(group, FINDING, "finding")),
        site=_value_code(_single_child(group, SITE, "finding site")),
        algorithm=_single_child(group, ALGORITHM, "algorithm name").TextValue,
        version=_single_child(group, VERSION, "algorithm version").TextValue,
        statements=[item.TextValue for item in _children(group, PARAMETERS)],
    )
    # Codes that the template has in every group; all other codes are evaluations of the region.
    standard = {TRACKING_ID, TRACKING_UID, FINDING, SITE}
    for item in group.ContentSequence:
        if item.ValueType == "NUM":
            # A number may be derived, such as a median: then its name gets the derivation.
            name = _concept_code(item)
            derivation = next(_children(item, DERIVATION), None)
            if derivation is not None:
                meaning = str(derivation.ConceptCodeSequence[0].CodeMeaning)
                if meaning:
                    name += f":{meaning.lower()}"
            roi.values[name] = _exact_number(item)
        elif item.ValueType == "CODE" and _concept_code(item) not in standard:
            roi.evaluations[_concept_code(item)] = _value_code(item)
    # A report without a belief is of an earlier version, which called the belief a probability.
    if BELIEF not in roi.values and PROBABILITY in roi.values:
        roi.values[BELIEF] = roi.values.pop(PROBABILITY)
        roi.statements.append(EARLIER)
    return roi


def _check_evidence(dataset: Dataset, rois: list[RoiReport]) -> None:
    """Refuse a report that refers to an object which it does not list as its evidence."""
    listed = evidence_uids(dataset)
    for roi in rois:
        _require_that(
            roi.segment[0] in listed, f"the SEG of ROI {roi.roi_id} is not listed as evidence"
        )
        _require_that(
            {outline.image for outline in roi.outlines} <= listed,
            f"an image with the outline of ROI {roi.roi_id} is not listed as evidence",
        )


def _require_that(holds: bool, problem: str) -> None:
    """Raise an error with the problem if a rule of the template does not hold."""
    if not holds:
        raise CadError(problem)


def _children(item: Dataset, code: str) -> Iterator[Dataset]:
    """Yield the items directly below an item whose concept has this code value."""
    for child in item.get("ContentSequence", []):
        if child.get("ConceptNameCodeSequence") and _concept_code(child) == code:
            yield child


def _single_child(group: Dataset, code: str, what: str) -> Dataset:
    """Return the one item of a group whose concept has this code; ``what`` names it in errors."""
    items = list(_children(group, code))
    _require_that(len(items) == 1, f"a group has {len(items)} items of {what}, expected 1")
    return items[0]


def _concept_code(item: Dataset) -> str:
    return str(item.ConceptNameCodeSequence[0].CodeValue)


def _value_code(item: Dataset) -> str:
    return str(item.ConceptCodeSequence[0].CodeValue)
