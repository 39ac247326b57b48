"""DICOM headers: what every file says of itself, read once, names and dates of people left out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
from pydicom.errors import InvalidDicomError
from pydicom.multival import MultiValue

from cad.errors import CadError

_IMAGE_KEYWORDS = (
    "PatientID",
    "StudyInstanceUID",
    "StudyDate",
    "StudyTime",
    "SeriesInstanceUID",
    "SOPInstanceUID",
    "SOPClassUID",
    "Modality",
    "Manufacturer",
    "SeriesNumber",
    "SeriesDescription",
    "ImageType",
    "SequenceName",
    "InstanceNumber",
    "AcquisitionNumber",
    "AcquisitionDate",
    "AcquisitionTime",
    "ContentTime",
    "TriggerTime",
    "TemporalPositionIdentifier",
    "FlipAngle",
    "RepetitionTime",
    "EchoTime",
    "DiffusionBValue",
    "FrameOfReferenceUID",
    "ImagePositionPatient",
    "ImageOrientationPatient",
    "PixelSpacing",
    "SliceThickness",
    "Rows",
    "Columns",
    "NumberOfFrames",
)
_SIEMENS_B, _GE_B, _PHILIPS_B = 0x0019100C, 0x00431039, 0x20011003
_TAGS: list[int] = [
    *(pydicom.datadict.tag_for_keyword(word) or 0 for word in _IMAGE_KEYWORDS),
    *(_SIEMENS_B, _GE_B, _PHILIPS_B),
]
_B_IN_SEQUENCE = re.compile(r"ep_b(\d+)(?:t|#\d+)?$")
_GE_B_OFFSET = 1_000_000_000
_NOT_DICOM = re.compile(r"\.(nii|gz|csv|tsv|json|md|txt|ya?ml|png|jpe?g|pdf|xml|html?|zip|nrrd)$")


@dataclass(frozen=True, slots=True)
class Slice:
    """What one file says; times in seconds of the day, TR in s, TE in ms, angles in degrees."""

    path: Path
    patient_id: str
    study_uid: str
    study_date: str
    series_uid: str
    sop_uid: str
    sop_class: str
    modality: str
    manufacturer: str
    series_number: int
    description: str
    image_type: tuple[str, ...]
    sequence_name: str
    instance_number: int
    acquisition_number: int | None
    acquisition_time: float | None
    content_time: float | None
    trigger_time: float | None
    temporal_position: int | None
    flip_angle: float | None
    repetition_time: float | None
    echo_time: float | None
    b_value: float | None
    frame_uid: str
    position: tuple[float, ...] | None
    orientation: tuple[float, ...] | None
    pixel_spacing: tuple[float, ...] | None
    thickness: float | None
    rows: int
    columns: int
    frames: int


@dataclass
class Listing:
    """Everything found under a folder, headers only.

    Parameters
    ----------
    studies : dict of str to list of Slice
        Image headers by StudyInstanceUID.
    objects : dict of str to list of Path
        SEG and RTSTRUCT files by StudyInstanceUID.
    unreadable : list of CadError
        DICOM files that could not be used.
    """

    studies: dict[str, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    objects: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))
    unreadable: list[CadError] = field(default_factory=list)


def printable(text: str, limit: int = 64) -> str:
    """Header text without control characters, cut to a length fit for a message."""
    return "".join(c if c.isprintable() else "?" for c in text)[:limit]


def list_files(paths: Iterable[Path]) -> Listing:
    """Read every header once; files that are not DICOM are passed over.

    Parameters
    ----------
    paths : iterable of Path
        Files.

    Returns
    -------
    Listing
        Image slices, annotation objects, and what could not be read.
    """
    listing = Listing()
    for path in paths:
        if _NOT_DICOM.search(path.name.lower()) or path.name == "DICOMDIR":
            continue
        try:
            dataset = pydicom.dcmread(
                path,
                stop_before_pixels=True,
                specific_tags=_TAGS,
            )
            _place(listing, dataset, path)
        except InvalidDicomError:
            continue
        except Exception as error:  # a damaged file may break the reader anywhere
            listing.unreadable.append(CadError(f"damaged DICOM header: {error}", file=path))
    return listing


def _place(listing: Listing, dataset: pydicom.Dataset, path: Path) -> None:
    study = str(dataset.get("StudyInstanceUID", ""))
    image = "Image Storage" in getattr(dataset.get("SOPClassUID"), "name", "Image Storage")
    if str(dataset.get("Modality", "")) in ("SEG", "RTSTRUCT") and study:
        listing.objects[study].append(path)
    elif "Rows" in dataset and "Columns" in dataset and study:
        listing.studies[study].append(_slice(dataset, path))
    elif image:
        listing.unreadable.append(
            CadError(
                "damaged DICOM header: an image without StudyInstanceUID, Rows or Columns",
                file=path,
                hint="the file may be cut off; export it again",
            )
        )


def _slice(dataset: pydicom.Dataset, path: Path) -> Slice:
    repetition = _float(dataset.get("RepetitionTime"))
    trigger = _float(dataset.get("TriggerTime"))
    return Slice(
        path=path,
        patient_id=str(dataset.get("PatientID", "") or ""),
        study_uid=str(dataset.StudyInstanceUID),
        study_date=f"{dataset.get('StudyDate', '')}{dataset.get('StudyTime', '')}",
        series_uid=str(dataset.get("SeriesInstanceUID", "")),
        sop_uid=str(dataset.get("SOPInstanceUID", "")),
        sop_class=str(dataset.get("SOPClassUID", "")),
        modality=str(dataset.get("Modality", "")),
        manufacturer=str(dataset.get("Manufacturer", "") or ""),
        series_number=_int(dataset.get("SeriesNumber")) or 0,
        description=str(dataset.get("SeriesDescription", "") or ""),
        image_type=_texts(dataset.get("ImageType")),
        sequence_name=str(dataset.get("SequenceName", "") or ""),
        instance_number=_int(dataset.get("InstanceNumber")) or 0,
        acquisition_number=_int(dataset.get("AcquisitionNumber")),
        acquisition_time=_clock(dataset.get("AcquisitionTime")),
        content_time=_clock(dataset.get("ContentTime")),
        trigger_time=None if trigger is None else trigger / 1000,
        temporal_position=_int(dataset.get("TemporalPositionIdentifier")),
        flip_angle=_float(dataset.get("FlipAngle")),
        repetition_time=None if repetition is None else repetition / 1000,
        echo_time=_float(dataset.get("EchoTime")),
        b_value=_b_value(dataset),
        frame_uid=str(dataset.get("FrameOfReferenceUID", "") or ""),
        position=_floats(dataset.get("ImagePositionPatient"), 3),
        orientation=_floats(dataset.get("ImageOrientationPatient"), 6),
        pixel_spacing=_floats(dataset.get("PixelSpacing"), 2),
        thickness=_float(dataset.get("SliceThickness")),
        rows=int(dataset.Rows),
        columns=int(dataset.Columns),
        frames=_int(dataset.get("NumberOfFrames")) or 1,
    )


def _float(value: Any) -> float | None:
    if value is None or value == "" or isinstance(value, MultiValue):
        return None
    return float(value)


def _int(value: Any) -> int | None:
    number = _float(value)
    return None if number is None else int(number)


def _floats(value: Any, count: int) -> tuple[float, ...] | None:
    if value is None or not isinstance(value, MultiValue) or len(value) != count:
        return None
    numbers = tuple(float(v) for v in value)
    return numbers if np.isfinite(numbers).all() else None


def _texts(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    return tuple(str(v) for v in value) if isinstance(value, MultiValue) else (str(value),)


def _clock(value: Any) -> float | None:
    """Seconds of the day of a DICOM time ``hhmmss.ffffff``; None where there is none."""
    text = str(value or "").replace(":", "").strip()
    match = re.fullmatch(r"(\d\d)(\d\d)?(\d\d(?:\.\d*)?)?", text)
    if not match:
        return None
    hours, minutes, seconds = match.groups()
    return int(hours) * 3600 + int(minutes or 0) * 60 + float(seconds or 0)


def _b_value(dataset: pydicom.Dataset) -> float | None:
    """b in s/mm2 from the standard tag, the makers' private tags, or Siemens' sequence name."""
    standard = _float(dataset.get("DiffusionBValue"))
    if standard is not None:
        return standard
    for tag in (_SIEMENS_B, _GE_B, _PHILIPS_B):
        if tag in dataset:
            value = _private_number(dataset[tag].value)
            if value is not None:
                return value % _GE_B_OFFSET if tag == _GE_B else value
    match = _B_IN_SEQUENCE.search(str(dataset.get("SequenceName", "") or ""))
    return float(match.group(1)) if match else None


def _private_number(value: Any) -> float | None:
    if isinstance(value, bytes):
        text = value.decode("ascii", "ignore").strip("\0 ").split("\\")[0]
        if not re.fullmatch(r"[\d.]+", text):
            return float(np.frombuffer(value, "<f4")[0]) if len(value) == 4 else None
        return float(text)
    if isinstance(value, MultiValue):
        value = value[0] if len(value) else None
    try:
        return None if value in (None, "") else float(value)
    except (TypeError, ValueError):
        return None
