"""Recognise objects that this program wrote: by maker, model and series."""

from typing import NamedTuple

from pydicom.dataset import Dataset
from pydicom.uid import (
    UID,
    Comprehensive3DSRStorage,
    EncapsulatedPDFStorage,
    ParametricMapStorage,
    SecondaryCaptureImageStorage,
    SegmentationStorage,
)

MANUFACTURER = "cad"
OWN_MODEL_NAME = "cad"


class OwnSeries(NamedTuple):
    """Hold the attributes by which a series of one kind of result is recognised.

    Parameters
    ----------
    modality : str
        DICOM modality; two kinds of result may have the same.
    number : int
        Series number; no two kinds have the same.
    description : str
        Series description.
    sop_class : UID
        Class of its objects.
    """

    modality: str
    number: int
    description: str
    sop_class: UID


SERIES = {
    "SR": OwnSeries("SR", 9102, "cad: probability of malignancy", Comprehensive3DSRStorage),
    "SEG": OwnSeries("SEG", 9101, "cad: regions of interest", SegmentationStorage),
    "PM": OwnSeries("OT", 9103, "cad: map of probability", ParametricMapStorage),
    "PDF": OwnSeries("DOC", 9104, "cad: sheet for the tumour board", EncapsulatedPDFStorage),
    "SC": OwnSeries("OT", 9105, "cad: picture of the sheet", SecondaryCaptureImageStorage),
}
"""The series that hold results, by kind; the kind ends the names of their files."""


def own_kind(series: Dataset) -> str:
    """Return the kind of our result that a series holds (key of :data:`SERIES`), empty for others.

    Parameters
    ----------
    series : Dataset
        An object, or an archive's answer on a series: modality, number and description.
    """
    for kind, expected in SERIES.items():
        if str(series.get("Modality", "")) != expected.modality:
            continue
        # The numbers are compared as text: an archive may answer with a number, a decimal string or
        # nothing.
        if str(series.get("SeriesNumber", "")) != str(expected.number):
            continue
        # An archive may leave out the description, because it is an optional key of a query.
        if str(series.get("SeriesDescription") or expected.description) == expected.description:
            return kind
    return ""
