"""Write results as FHIR: for each study a bundle with a report, observations and the model.

The bundle states the content of the DICOM report (SR), which is read from its file: nothing is
computed here. The bundle is a ``collection`` of preliminary resources for a system that does not
read DICOM. It is checked by the classes of FHIR R4B (4.3.0), which the package ``fhir.resources``
has in place of R4. Only elements that R4 (4.0.1) has, too, are used.
"""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from cad.base.doors import door
from cad.base.errors import CadError, install
from cad.base.files import JsonObject, write_atomic
from cad.base.reading import MAX_JSON, read_bytes, reading
from cad.base.terms.beside import table_beside
from cad.dicom.out.sr_reader import (
    BELIEF,
    DECISION,
    PROBABILITY,
    Report,
    RoiReport,
    read_report,
)
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.records import read_record
from cad.folders.run_folder.tables import read_probabilities
from cad.mri.imaging.frames import read_dataset

SCT, UCUM = "http://snomed.info/sct", "http://unitsofmeasure.org"
_CODES = table_beside(__file__)
# Namespace of this program's ids in FHIR: a name in it always gives the same id.
_NAMESPACE = uuid.UUID("0a6dd0cf-3a5c-5c0b-8d1a-5b8f3c0f9d21")


def write_fhir(run: Path, reports: Sequence[Path]) -> list[Path]:
    """Write ``fhir/<study>.json`` into a run folder for each of the given reports.

    Each file is read back and compared with what was to be written.

    Parameters
    ----------
    run : Path
        Run folder.
    reports : sequence of Path
        Structured reports of the run, ``<study>_SR.dcm``.

    Returns
    -------
    list of Path
        Paths of the written files, in the order of the reports.

    Raises
    ------
    CadError
        When the package ``fhir.resources`` is not installed, when a file is no report, or when a
        bundle is not valid FHIR or does not read back as it was written.
    """
    folder = RunFolder(run)
    record = read_record(folder)
    table = read_probabilities(folder)
    written = []
    for path in reports:
        study = path.name.removesuffix("_SR.dcm")
        rows = table[table["study_id"] == study]
        rows = rows.set_axis(rows["roi_id"].astype(str), axis="index")
        sr_uid = str(read_dataset(path).SOPInstanceUID)
        content = fhir_bundle(read_report(path), sr_uid, rows, record)
        target = folder.bundles / f"{study}.json"
        write_atomic(target, checked(content, target))
        if checked(read_fhir(target), target) != read_bytes(target, MAX_JSON):
            raise CadError("the bundle does not read back as it was written", file=target)
        written.append(target)
    return written


@door("own", "our own FHIR bundles")
def read_fhir(path: Path) -> JsonObject:
    """Read a FHIR bundle from a JSON file and validate it.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    dict
        The bundle's content.

    Raises
    ------
    CadError
        For a file that is no FHIR bundle, or when the package ``fhir.resources`` is not installed.
    """
    with reading(path, "no FHIR bundle"):
        content: JsonObject = (
            _fhir_classes().model_validate_json(read_bytes(path, MAX_JSON)).model_dump()
        )
        return content


def checked(content: JsonObject, path: Path) -> bytes:
    """Validate a FHIR bundle and return it as the bytes of a JSON file.

    Parameters
    ----------
    content : dict
        The bundle.
    path : Path
        File that errors name; it is neither read nor written.

    Returns
    -------
    bytes
        The bundle as JSON in UTF-8, with a line break at the end.

    Raises
    ------
    CadError
        For a bundle that is not valid; the error lists the reasons.
    """
    with reading(path, "FHIR's models refuse the bundle"):
        text: str = _fhir_classes().model_validate(content).model_dump_json(indent=1)
    return text.encode() + b"\n"


def fhir_bundle(report: Report, sr_uid: str, rows: pd.DataFrame, record: JsonObject) -> JsonObject:
    """Return the FHIR bundle of one study's report.

    Parameters
    ----------
    report : Report
        The statements of the structured report.
    sr_uid : str
        SOPInstanceUID of the structured report.
    rows : DataFrame
        The study's rows of ``probabilities.csv``, indexed by ROI id. The columns ``p`` and ``eta``,
        where they exist, give the interval of the readers' probability.
    record : dict
        Content of ``run.json``.

    Returns
    -------
    dict
        A Bundle that is not validated yet. It has a DiagnosticReport, an Observation for each
        region, an Observation for the man where the report states his probability, and the model as
        a Device.
    """
    # All regions of a report are of one model; the first stands for all.
    device = _device(report.rois[0], record)
    results = [_region_observation(roi, rows, report, record, device["id"]) for roi in report.rois]
    if report.man:
        results.append(_man_observation(report, sr_uid, record, device["id"]))
    summary = {
        **_result("DiagnosticReport", "radiology", report, record),
        "id": _id("report", sr_uid),
        "identifier": [_uid_identifier(sr_uid)],
        "code": _concept("report"),
        "imagingStudy": [{"type": "ImagingStudy", "identifier": _uid_identifier(report.study_uid)}],
        "result": [{"reference": _url(resource)} for resource in results],
        # The first two statements: research use only, and the population of the training.
        "conclusion": "; ".join(report.rois[0].statements[:2]),
    }
    entries = []
    for resource in (summary, *results, device):
        entries.append({"fullUrl": _url(resource), "resource": resource})
    return {
        "resourceType": "Bundle",
        "type": "collection",
        "timestamp": record["created"],
        "entry": entries,
    }


def _url(resource: JsonObject) -> str:
    return f"urn:uuid:{resource['id']}"


def _observation(report: Report, record: JsonObject, device: str, **content: Any) -> JsonObject:
    """Return the observation of a region or of the man, as a FHIR resource."""
    observer = {"reference": f"urn:uuid:{device}"}
    return {**_result("Observation", "imaging", report, record), "device": observer, **content}


def _result(kind: str, category: str, report: Report, record: JsonObject) -> JsonObject:
    """Return the entries that the DiagnosticReport and every Observation share."""
    return {
        "resourceType": kind,
        "status": "preliminary",
        "category": [_concept(category)],
        "subject": {"identifier": {"value": report.patient_id}},
        "issued": record["created"],
    }


def _region_observation(
    roi: RoiReport, rows: pd.DataFrame, report: Report, record: JsonObject, device: str
) -> JsonObject:
    """Return one region as an observation; its components are the region's values in the report."""
    components: list[JsonObject] = []
    # The thresholds apply to the probability of cancer. If the model learned from no histology,
    # they apply to the belief.
    thresholded = PROBABILITY if PROBABILITY in roi.values else BELIEF
    thresholds = record.get("decision_thresholds")
    for concept, (value, unit) in roi.values.items():
        if concept not in _CODES:  # the bundle states only values for which it has a code
            continue
        component: JsonObject = {
            "code": _concept(concept),
            "valueQuantity": _quantity(value, unit),
        }
        if concept == thresholded and thresholds:
            # The thresholds are shares from 0 to 1, the report's values are in per cent.
            low, high = (_quantity(100 * float(threshold), "%") for threshold in thresholds)
            component["referenceRange"] = [
                {"high": low, "text": "benign below"},
                {"low": high, "text": "malignant above"},
            ]
        components.append(component)
    for concept, decision in roi.evaluations.items():
        components.append(_decision_component(decision, concept))
    return _observation(
        report,
        record,
        device,
        id=_id("region", roi.tracking_uid, roi.algorithm, str(roi.values)),
        identifier=[_uid_identifier(roi.tracking_uid), {"value": roi.roi_id}],
        code=_concept("finding"),
        valueCodeableConcept=_concept("lesion"),
        bodySite={"coding": [{"system": SCT, "code": roi.site}]},
        note=[{"text": text} for text in roi.statements],
        component=[*components, *_readers_component(rows, roi.roi_id)],
    )


def _man_observation(report: Report, sr_uid: str, record: JsonObject, device: str) -> JsonObject:
    """Return the observation of the man: his probability of cancer, and the decision on him."""
    value, decision = report.man or (0.0, "")  # the caller has seen to it that there is a man
    coded = {"code": _concept("man"), "valueQuantity": _quantity(value, "%")}
    attributes: JsonObject = {"note": [{"text": text} for text in report.man_statements]}
    if decision:
        attributes["component"] = [_decision_component(decision, DECISION)]
    return _observation(report, record, device, id=_id("man", sr_uid), **coded, **attributes)


def _readers_component(rows: pd.DataFrame, roi_id: str) -> list[JsonObject]:
    """Return a component with the interval of the readers' own probability, if they gave one.

    The interval is the mean of their scores as probabilities (``p``), plus or minus ``eta``, and
    lies within 0 and 1.
    """
    if roi_id not in rows.index or not {"p", "eta"} <= set(rows.columns):
        return []
    p, eta = (float(rows.at[roi_id, name]) for name in ("p", "eta"))
    if not (p >= 0 and eta >= 0):  # NaN: nobody read the region
        return []
    low = max(0.0, p - eta)
    high = min(1.0, p + eta)
    between = {"low": _quantity(100 * low, "%"), "high": _quantity(100 * high, "%")}
    return [{"code": _concept("readers"), "valueRange": between}]


def _device(roi: RoiReport, record: JsonObject) -> JsonObject:
    """Return the model as the device that made the observations."""
    # A validation has no stored model, and so no hash of one.
    models = (record.get("model") or {}).get("models") or {}
    digest = (models.get(roi.algorithm) or {}).get("sha256")
    device: JsonObject = {
        "resourceType": "Device",
        "id": _id("device", roi.algorithm, roi.version, str(digest)),
    }
    if digest:
        device["identifier"] = [{"system": "urn:x-cad:sha256", "value": digest}]
    return device | {
        "status": "active",
        "manufacturer": "cad",
        "deviceName": [{"name": roi.algorithm, "type": "model-name"}],
        "version": [{"value": roi.version}],
    }


def _decision_component(decision: str, concept: str) -> JsonObject:
    return {"code": _concept(concept), "valueCodeableConcept": _concept(decision)}


def _concept(name: str) -> JsonObject:
    return {"coding": _CODES[name]}


def _quantity(value: float, unit: str) -> JsonObject:
    return {"value": float(value), "unit": unit, "system": UCUM, "code": unit}


def _uid_identifier(uid: str) -> JsonObject:
    return {"system": "urn:dicom:uid", "value": f"urn:oid:{uid}"}


def _id(*pieces: str) -> str:
    """Return an id that is always the same for the same content."""
    return str(uuid.uuid5(_NAMESPACE, "\n".join(pieces)))


def _fhir_classes() -> Any:
    """Return the class of a FHIR bundle, which validates its content; the package is optional."""
    try:
        from fhir.resources.R4B.bundle import Bundle
    except ImportError as error:
        raise CadError(
            f"FHIR needs a package that is not installed: {error.name}", hint=install("fhir")
        ) from error
    return Bundle
