"""Make DICOM objects of a man's sheet, the page of results for the tumour board.

The objects are an Encapsulated PDF, and Secondary Capture pictures. Most viewers show them even
where they show neither a segmentation nor a structured report.
"""

import datetime

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sr.codedict import codes
from pydicom.sr.coding import Code
from pydicom.uid import ExplicitVRLittleEndian

from cad.base.files import JsonObject
from cad.dicom.out.objects import CHARACTER_SET, algorithm, heading, long_string, say_who
from cad.dicom.out.source_images import SourceImages
from cad.dicom.own import MANUFACTURER, OWN_MODEL_NAME, SERIES

_FROM_SOURCE = (
    "PatientID",
    "PatientName",
    "PatientBirthDate",
    "PatientSex",
    "StudyInstanceUID",
    "StudyDate",
    "StudyTime",
    "StudyID",
    "AccessionNumber",
    "ReferringPhysicianName",
)


def pdf_object(
    source: SourceImages, participant_id: str, pdf: bytes, run: JsonObject, identity: str
) -> Dataset:
    """Make the Encapsulated PDF (PS3.3 A.45.1) of a study.

    Parameters
    ----------
    source : SourceImages
        The study's T2 images.
    participant_id : str
        ``sub-XXX``.
    pdf : bytes
        The document.
    run : dict
        Content of ``run.json``, with the model that scored this study.
    identity : str
        Hash of the document's content; the UIDs follow from the hash.

    Returns
    -------
    Dataset
        The DICOM object, not written yet.
    """
    made = _document("PDF", source, participant_id, run, identity, 1)
    made.AcquisitionDateTime = ""
    made.DocumentTitle = SERIES["PDF"].description
    made.ConceptNameCodeSequence = [_code(codes.DCM.ImagingMeasurementReport)]
    made.SourceInstanceSequence = []
    for header in source.headers:
        image = Dataset()
        image.ReferencedSOPClassUID = header.SOPClassUID
        image.ReferencedSOPInstanceUID = header.SOPInstanceUID
        made.SourceInstanceSequence.append(image)
    made.MIMETypeOfEncapsulatedDocument = "application/pdf"
    made.EncapsulatedDocumentLength = len(pdf)
    # A value has an even number of bytes; the length above says where the document ends.
    made.EncapsulatedDocument = pdf + b"\0" * (len(pdf) % 2)
    return made


def capture_object(
    source: SourceImages,
    participant_id: str,
    pixels: np.ndarray,
    run: JsonObject,
    identity: str,
    number: int,
) -> Dataset:
    """Make the Secondary Capture (PS3.3 A.8.1) of one sheet of a study.

    Parameters
    ----------
    source : SourceImages
        The study's T2 images.
    participant_id : str
        ``sub-XXX``.
    pixels : ndarray of uint8, shape (H, W, 3)
        Red, green and blue.
    run : dict
        Content of ``run.json``, with the model that scored this study.
    identity : str
        Hash of the content of all sheets of the study; the UIDs follow from the hash.
    number : int
        Number of the sheet, from 1.

    Returns
    -------
    Dataset
        The DICOM object, not written yet.

    Examples
    --------
    >>> source = SourceImages(None, [Dataset()], "P-1", (0,))
    >>> sheet = np.zeros((4, 3, 3), np.uint8)
    >>> made = capture_object(source, "sub-1", sheet, {"name": "demo"}, "hash", 2)
    >>> made.Rows, made.Columns
    (4, 3)
    """
    made = _document("SC", source, participant_id, run, identity, number)
    made.DateOfSecondaryCapture = made.ContentDate
    made.TimeOfSecondaryCapture = made.ContentTime
    made.ImageType = ["DERIVED", "SECONDARY"]
    made.BodyPartExamined = "PROSTATE"
    made.PatientOrientation = ""
    made.LossyImageCompression = "00"
    made.SamplesPerPixel = 3
    made.PhotometricInterpretation = "RGB"
    made.PlanarConfiguration = 0
    made.Rows, made.Columns = pixels.shape[:2]
    made.BitsAllocated = made.BitsStored = 8
    made.HighBit = 7
    made.PixelRepresentation = 0
    content = np.ascontiguousarray(pixels, np.uint8).tobytes()
    made.PixelData = content + b"\0" * (len(content) % 2)
    return made


def _document(
    kind: str,
    source: SourceImages,
    participant_id: str,
    run: JsonObject,
    identity: str,
    number: int,
) -> Dataset:
    """Return what both objects share: patient and study of the source, series, equipment."""
    made = Dataset()
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made.SpecificCharacterSet = CHARACTER_SET
    made.SOPClassUID = SERIES[kind].sop_class
    for keyword in _FROM_SOURCE:
        setattr(made, keyword, source.headers[0].get(keyword, ""))
    shared = heading(kind, identity, number)
    made.SOPInstanceUID = shared["sop_instance_uid"]
    made.SeriesInstanceUID = shared["series_instance_uid"]
    made.SeriesNumber = shared["series_number"]
    made.SeriesDescription = shared["series_description"]
    made.InstanceNumber = shared["instance_number"]
    made.Modality = SERIES[kind].modality
    made.ConversionType = "WSD"
    name, version, _ = algorithm(run)
    made.Manufacturer = MANUFACTURER
    made.ManufacturerModelName = OWN_MODEL_NAME
    made.SoftwareVersions = long_string(f"{name} {version}")
    made.DeviceSerialNumber = "0"
    now = datetime.datetime.now()
    made.ContentDate = now.strftime("%Y%m%d")
    made.ContentTime = now.strftime("%H%M%S")
    # The picture bears the man's label and the date of his study.
    made.BurnedInAnnotation = "YES"
    say_who(made, source, participant_id)
    return made


def _code(code: Code) -> Dataset:
    item = Dataset()
    item.CodeValue = code.value
    item.CodingSchemeDesignator = code.scheme_designator
    item.CodeMeaning = code.meaning
    return item
