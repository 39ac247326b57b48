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

# Elements of the sheet that are copied from the study's T2 images.
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
    dataset = _object_of_study("PDF", source, participant_id, run, identity, number=1)
    dataset.AcquisitionDateTime = ""  # must be there and may be empty: a sheet is not acquired
    dataset.DocumentTitle = SERIES["PDF"].description
    dataset.ConceptNameCodeSequence = [_code_item(codes.DCM.ImagingMeasurementReport)]
    dataset.SourceInstanceSequence = []
    for header in source.headers:
        image = Dataset()
        image.ReferencedSOPClassUID = header.SOPClassUID
        image.ReferencedSOPInstanceUID = header.SOPInstanceUID
        dataset.SourceInstanceSequence.append(image)
    dataset.MIMETypeOfEncapsulatedDocument = "application/pdf"
    dataset.EncapsulatedDocumentLength = len(pdf)
    dataset.EncapsulatedDocument = _of_even_length(pdf)
    return dataset


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
    dataset = _object_of_study("SC", source, participant_id, run, identity, number)
    dataset.DateOfSecondaryCapture = dataset.ContentDate
    dataset.TimeOfSecondaryCapture = dataset.ContentTime
    dataset.ImageType = ["DERIVED", "SECONDARY"]
    dataset.BodyPartExamined = "PROSTATE"
    dataset.PatientOrientation = ""  # must be there and may be empty: a page shows no one direction
    dataset.LossyImageCompression = "00"  # not compressed with losses
    dataset.SamplesPerPixel = 3
    dataset.PhotometricInterpretation = "RGB"
    dataset.PlanarConfiguration = 0  # red, green and blue of a pixel follow each other
    dataset.Rows, dataset.Columns = pixels.shape[:2]
    dataset.BitsAllocated = 8
    dataset.BitsStored = 8
    dataset.HighBit = 7
    dataset.PixelRepresentation = 0
    content = np.ascontiguousarray(pixels, np.uint8).tobytes()
    dataset.PixelData = _of_even_length(content)
    return dataset


def _object_of_study(
    kind: str,
    source: SourceImages,
    participant_id: str,
    run: JsonObject,
    identity: str,
    number: int,
) -> Dataset:
    """Return an object with the elements that PDF and Secondary Capture share, without content.

    In the code a comment above each group of elements names the DICOM module to which the elements
    belong (PS3.3 A.8.1, A.45.1).

    Parameters
    ----------
    kind : {"PDF", "SC"}
        Key of :data:`cad.dicom.own.SERIES`.
    source, participant_id, run, identity
        The study's T2 images, its patient ``sub-XXX``, the content of ``run.json``, and the hash of
        the object's content, as for :func:`pdf_object`.
    number : int
        Place of the object in its series, from 1.
    """
    series = SERIES[kind]
    identifiers = heading(kind, identity, number)
    name, version, _ = algorithm(run)
    now = datetime.datetime.now()

    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian

    # Elements of the module SOP Common
    dataset.SpecificCharacterSet = CHARACTER_SET
    dataset.SOPClassUID = series.sop_class
    dataset.SOPInstanceUID = identifiers["sop_instance_uid"]
    dataset.InstanceNumber = identifiers["instance_number"]
    dataset.ContentDate = now.strftime("%Y%m%d")
    dataset.ContentTime = now.strftime("%H%M%S")

    # The elements about patient and study get the values of the source images, so that archives
    # file the sheet beside these images.
    for keyword in _FROM_SOURCE:
        setattr(dataset, keyword, source.headers[0].get(keyword, ""))
    say_who(dataset, source, participant_id)

    # Modules of the series
    dataset.Modality = series.modality
    dataset.SeriesInstanceUID = identifiers["series_instance_uid"]
    dataset.SeriesNumber = identifiers["series_number"]
    dataset.SeriesDescription = identifiers["series_description"]

    # Modules of equipment. WSD means "workstation": the sheet is made by a program, not scanned.
    dataset.Manufacturer = MANUFACTURER
    dataset.ManufacturerModelName = OWN_MODEL_NAME
    dataset.SoftwareVersions = long_string(f"{name} {version}")
    dataset.DeviceSerialNumber = "0"
    dataset.ConversionType = "WSD"

    # "YES", because the picture shows the man's label and the date of his study.
    dataset.BurnedInAnnotation = "YES"
    return dataset


def _code_item(code: Code) -> Dataset:
    """Return a code as an item of a DICOM sequence."""
    item = Dataset()
    item.CodeValue = code.value
    item.CodingSchemeDesignator = code.scheme_designator
    item.CodeMeaning = code.meaning
    return item


def _of_even_length(content: bytes) -> bytes:
    """Return content with a zero byte at its end if its length is odd, which DICOM does not allow.

    Other elements of the object tell where the content ends: the length of the document, or the
    size of the picture.
    """
    return content + b"\0" * (len(content) % 2)
