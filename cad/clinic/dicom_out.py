"""Results for the archive: a structured report (TID 1500) and a SEG of the ROIs for each study.

The SEG lies in the T2 series' frame of reference and refers to its images; the report has one
measurement group for each ROI: tracking identifier, the segment, probability of cancer in per cent,
the decision, medians of ADC (um2/s) and Ktrans (/min) where they were measured, and which algorithm
said so, with the population that it was trained on. UIDs follow from the content: writing the same
run again gives objects with the same identity, so that an archive stores them once.
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
import warnings
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import highdicom
import numpy as np
import pandas as pd
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes
from pydicom.sr.coding import Code
from pydicom.uid import generate_uid

from cad.clinic.regions import OWN_MODEL_NAME
from cad.clinic.source import SourceImages, source_images
from cad.clinic.sr_reader import PROBABILITY, read_report
from cad.clinic.supersede import SERIES
from cad.cohort import StudyRef, read_cohort
from cad.errors import CadError
from cad.files import JsonObject, plain, write_atomic
from cad.imaging.geometry import roi_in_grid
from cad.imaging.nifti import read_volume
from cad.imaging.study import Roi, Study
from cad.imaging.study_files import image_path
from cad.reading import reading
from cad.run_folder import RunFolder
from cad.run_folder.records import read_record
from cad.run_folder.results import read_results
from cad.run_folder.study_file import page_measurements
from cad.run_folder.tables import read_probabilities
from cad.run_folder.verdict import stated_decisions

SCHEME = "99CAD"
DECISION = Code("decision", SCHEME, "Decision by the site's costs of errors")
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
MANUFACTURER = "cad"
_SEG_NUMBER, _SEG_DESCRIPTION, _ = SERIES["SEG"]
_SR_NUMBER, _SR_DESCRIPTION, _ = SERIES["SR"]
_DIGITS = 6
_LONG = 64
# UTF-8: ids may be in any script, and the archive's own names are taken over on sending.
CHARACTER_SET = "ISO_IR 192"


@dataclass
class DicomOutput:
    """Hold the files written, by study, and what could not be written."""

    files: list[Path] = field(default_factory=list)
    failures: list[CadError] = field(default_factory=list)


def write_sr_and_seg(run_dir: Path, cohort_root: Path, out: Path) -> DicomOutput:
    """Write ``<study>_SEG.dcm`` and ``<study>_SR.dcm`` for every study of a run.

    Parameters
    ----------
    run_dir : Path
        Run folder with ``run.json`` and ``probabilities.csv``.
    cohort_root : Path
        The cohort the run was made on; its studies must have been imported from DICOM.
    out : Path
        Folder to write.

    Returns
    -------
    DicomOutput
        A study that cannot be written costs no other.

    Raises
    ------
    CadError
        When the run folder or the cohort cannot be read.
    """
    folder = RunFolder(run_dir)
    run = read_record(folder)
    table = read_probabilities(folder)
    stated = stated_decisions(read_results(run_dir))  # as on the pages
    regions = zip(table["study_id"], table["roi_id"], strict=True)
    table["decision"] = [stated[str(study), str(roi)] for study, roi in regions]
    studies = {study.study_id: study for study in read_cohort(cohort_root).studies()}
    result = DicomOutput()
    for study_id, rows in table.groupby("study_id", sort=True):
        participant = str(rows["participant_id"].iloc[0])
        paths = [out / f"{study_id}_{name}.dcm" for name in ("SEG", "SR")]
        try:
            if study_id not in studies:
                raise CadError("the study is not in the cohort", file=cohort_root)
            with reading(paths[1], "cannot be written as DICOM"):  # its libraries check values
                medians = page_measurements(folder, str(study_id))
                pair = study_objects(studies[str(study_id)], rows, medians, run)
                for path, dataset in zip(paths, pair, strict=True):
                    write_atomic(path, _bytes(dataset))
                _prove(paths[1], rows)
        except CadError as error:
            result.failures.append(error.at(patient=participant))
            continue
        result.files += paths
    return result


def study_objects(
    study: StudyRef, rows: pd.DataFrame, medians: dict[str, JsonObject], run: JsonObject
) -> tuple[Dataset, Dataset]:
    """Make the SEG and the SR of one study.

    Parameters
    ----------
    study : StudyRef
        The study in its cohort.
    rows : DataFrame
        Its rows of ``probabilities.csv``.
    medians : dict
        By ROI id: ``adc_median`` (um2/s, that is 1e-6 mm2/s), ``ktrans_median`` (1/min),
        ``volume_mm3``; None or absent where not measured.
    run : dict
        Content of ``run.json``.

    Raises
    ------
    CadError
        When the study has no DICOM source, no ROI with a probability, or a ROI that is not on the
        T2 images.
    """
    source = source_images(study.folder, study.study_id, study.participant_id)
    scored = rows[rows["probability"].notna()]
    if scored.empty:
        raise CadError("no ROI of the study has a probability")
    run = _with_own_model(run, scored)
    identity = _identity(study, scored, run)
    masks = _masks(study, scored, source)
    with warnings.catch_warnings():
        # highdicom remarks on the pseudonym's form, which is as intended.
        warnings.simplefilter("ignore", UserWarning)
        seg = _segmentation(study, scored, masks, source, identity)
        report = _report(study, scored, medians, run, source, seg, identity)
    if source.patient_id == study.participant_id:
        for dataset in (seg, report):
            dataset.PatientIdentityRemoved = "YES"
            dataset.DeidentificationMethod = "pseudonym by cad import; UIDs kept"
    return seg, report


def _prove(path: Path, rows: pd.DataFrame) -> None:
    """Read a report back, hold it against its template and its numbers against the run's."""
    said = {roi.roi_id: roi.values[PROBABILITY][0] for roi in read_report(path).rois}
    scored = rows[rows["probability"].notna()]
    wanted = {str(r.roi_id): 100 * float(r.probability) for r in scored.itertuples()}
    if said != wanted:
        raise CadError(
            "the report does not say what the run says", file=path, hint="do not send it"
        )


def _masks(study: StudyRef, scored: pd.DataFrame, source: SourceImages) -> list[np.ndarray]:
    labels = read_volume(image_path(study.folder, study.study_id, "rois"))
    holder = Study(study.study_id, study.participant_id, roi_map=labels)
    rois = [Roi(str(row.roi_id), int(row.label)) for row in scored.itertuples()]
    return [roi_in_grid(holder, roi, source.grid).array for roi in rois]


def _identity(study: StudyRef, scored: pd.DataFrame, run: JsonObject) -> str:
    """Return what the objects say, as a hash that their UIDs are made from."""
    said = scored[["roi_id", "probability", "decision"]].to_csv(index=False)
    who = json.dumps([study.study_id, _algorithm(run)], sort_keys=True)
    return hashlib.sha256((said + who).encode()).hexdigest()


def _uid(identity: str, *parts: object) -> str:
    return generate_uid(entropy_srcs=[identity, *(str(part) for part in parts)])


def _with_own_model(run: JsonObject, scored: pd.DataFrame) -> JsonObject:
    """Return the run's record with the one of its models that scored this study."""
    models = (run.get("model") or {}).get("models") or {}
    own = models.get(scored["model"].iloc[0]) if "model" in scored else None
    return {**run, "model": own} if own else run


def _algorithm(run: JsonObject) -> tuple[str, str, list[str]]:
    """Return name, version and the statements that qualify its numbers."""
    model = run.get("model") or {}
    training = model.get("training") or {}
    simulated = bool(training.get("simulated", run.get("simulated")))
    kind = "SIMULATED patients" if simulated else "patients"
    if training:
        population = (
            f"training population: {training.get('patients')} {kind}, {training.get('regions')} "
            f"regions, {training.get('malignant')} malignant"
        )
    else:
        population = f"training population: the other {kind} of this cohort, one left out at a time"
    statements = ["research use only", population]
    thresholds = run.get("decision_thresholds")
    if thresholds:
        low, high = (100 * float(t) for t in thresholds)
        statements.append(f"decision: benign below {low:.3g} %, malignant above {high:.3g} %")
    return str(model.get("name") or run.get("name")), str(run.get("cad_version")), statements


def _segmentation(
    study: StudyRef,
    scored: pd.DataFrame,
    masks: list[np.ndarray],
    source: SourceImages,
    identity: str,
) -> highdicom.seg.Segmentation:
    segments = [
        highdicom.seg.SegmentDescription(
            number,
            long_string(str(row.roi_id)),
            codes.SCT.MorphologicallyAbnormalStructure,
            codes.SCT.Lesion,
            highdicom.seg.SegmentAlgorithmTypeValues.MANUAL,
            tracking_uid=_uid(study.study_id, row.roi_id),
            tracking_id=str(row.roi_id),
            anatomic_regions=[codes.SCT.Prostate],
        )
        for number, row in enumerate(scored.itertuples(), start=1)
    ]
    return highdicom.seg.Segmentation(
        source.headers,
        np.stack(masks, axis=-1).astype(np.uint8)[list(source.planes)],
        highdicom.seg.SegmentationTypeValues.BINARY,
        segments,
        series_instance_uid=_uid(identity, "SEG series"),
        series_number=_SEG_NUMBER,
        sop_instance_uid=_uid(identity, "SEG"),
        instance_number=1,
        manufacturer=MANUFACTURER,
        manufacturer_model_name=OWN_MODEL_NAME,
        software_versions=identity[:16],
        device_serial_number="0",
        content_label="ROI",
        content_description="Regions of interest",
        series_description=_SEG_DESCRIPTION,
        specific_character_set=CHARACTER_SET,
    )


def _report(
    study: StudyRef,
    scored: pd.DataFrame,
    medians: dict[str, JsonObject],
    run: JsonObject,
    source: SourceImages,
    seg: highdicom.seg.Segmentation,
    identity: str,
) -> Dataset:
    name, version, _ = _algorithm(run)
    device = highdicom.sr.ObserverContext(
        codes.DCM.Device,
        highdicom.sr.DeviceObserverIdentifyingAttributes(
            uid=_uid("device", name, version), name=name, manufacturer_name=MANUFACTURER
        ),
    )
    series = str(source.headers[0].SeriesInstanceUID)
    groups = [
        _group(study, row, medians.get(str(row.roi_id), {}), run, seg, series, number)
        for number, row in enumerate(scored.itertuples(), start=1)
    ]
    content = highdicom.sr.MeasurementReport(
        highdicom.sr.ObservationContext(observer_device_context=device),
        codes.SCT.MultiparametricMRIOfProstate,
        imaging_measurements=groups,
        title=codes.DCM.ImagingMeasurementReport,
    )
    report = highdicom.sr.Comprehensive3DSR(
        [*source.headers, seg],
        content,
        series_instance_uid=_uid(identity, "SR series"),
        series_number=_SR_NUMBER,
        sop_instance_uid=_uid(identity, "SR"),
        instance_number=1,
        manufacturer=MANUFACTURER,
        is_complete=True,
        series_description=_SR_DESCRIPTION,
        specific_character_set=CHARACTER_SET,
    )
    _separate(report)
    scheme = Dataset()
    scheme.CodingSchemeDesignator = SCHEME
    scheme.CodingSchemeName = "Codes of the cad project"
    report.CodingSchemeIdentificationSequence = [scheme]
    return report


def _group(
    study: StudyRef,
    row: Any,
    measured: JsonObject,
    run: JsonObject,
    seg: highdicom.seg.Segmentation,
    source_series: str,
    number: int,
) -> highdicom.sr.VolumetricROIMeasurementsAndQualitativeEvaluations:
    """Make the measurement group of one ROI (TID 1411)."""
    name, version, statements = _algorithm(run)
    warned = getattr(row, "warnings", None)
    if isinstance(warned, str) and warned:
        statements = [*statements, f"warning: {warned}"]
    measurements = [
        _number(codes.DCM.ProbabilityOfCancer, 100 * row.probability, codes.UCUM.Percent),
        *_median(codes.DCM.ApparentDiffusionCoefficient, measured.get("adc_median"),
                 codes.UCUM.SquareMicrometerPerSecond),
        *_median(codes.DCM.Ktrans, measured.get("ktrans_median"), codes.UCUM.PerMinute),
    ]  # fmt: skip
    volume = measured.get("volume_mm3")
    if volume:
        measurements.append(_number(codes.SCT.Volume, volume, codes.UCUM.CubicMillimeter))
    return highdicom.sr.VolumetricROIMeasurementsAndQualitativeEvaluations(
        highdicom.sr.TrackingIdentifier(
            uid=_uid(study.study_id, row.roi_id), identifier=str(row.roi_id)
        ),
        referenced_segment=highdicom.sr.ReferencedSegment(
            seg.SOPClassUID,
            seg.SOPInstanceUID,
            number,
            source_series=highdicom.sr.SourceSeriesForSegmentation(source_series),
        ),
        finding_type=codes.SCT.Lesion,
        finding_sites=[highdicom.sr.FindingSite(ZONES.get(row.zone, codes.SCT.Prostate))],
        algorithm_id=highdicom.sr.AlgorithmIdentification(name, version, statements),
        measurements=measurements,
        qualitative_evaluations=_decision(row.decision),
    )


def _decision(decision: object) -> list[highdicom.sr.QualitativeEvaluation]:
    if decision not in DECISIONS:
        return []
    return [highdicom.sr.QualitativeEvaluation(DECISION, DECISIONS[str(decision)])]


def _number(name: Code, value: float, unit: Code, **more: Any) -> highdicom.sr.Measurement:
    """Return a measurement that shows six digits and carries the exact number beside them."""
    digits = _DIGITS - 1 - math.floor(math.log10(abs(value))) if value else _DIGITS
    item = highdicom.sr.Measurement(name, round(float(value), max(digits, 0)), unit, **more)
    item[0].MeasuredValueSequence[0].FloatingPointValue = float(value)
    return item


def _median(name: Code, value: float | None, unit: Code) -> list[highdicom.sr.Measurement]:
    if value is None or not math.isfinite(value):
        return []
    return [_number(name, value, unit, derivation=codes.SCT.Median)]


def long_string(text: str) -> str:
    """Return text as DICOM's LO holds it: at most 64 bytes, no backslash or control character.

    The standard counts characters, some readers bytes. Text that is too long is cut between two
    whole signs and keeps six digits of its hash, so that two that begin alike stay apart.
    """
    clean = plain(text).replace("\\", "/").replace("\n", " ").replace("\t", " ")
    if len(clean.encode()) <= _LONG:
        return clean
    end = next(n for n in range(len(clean), -1, -1) if len(clean[:n].encode()) <= _LONG - 7)
    while end and unicodedata.combining(clean[end]):  # an accent stays with its letter
        end -= 1
    return f"{clean[:end]}~{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _separate(item: Dataset) -> None:
    """Let every container's items stand alone; readers show measurement names only then."""
    if item.get("ValueType") == "CONTAINER":
        item.ContinuityOfContent = "SEPARATE"
    for child in item.get("ContentSequence", []):
        _separate(child)


def _bytes(dataset: Dataset) -> bytes:
    stream = BytesIO()
    dataset.save_as(stream, enforce_file_format=True)
    return stream.getvalue()
