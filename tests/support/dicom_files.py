"""Small DICOM studies for tests: image series, RT structure sets and SEG objects."""

from __future__ import annotations

import io
import os
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

import highdicom
import numpy as np
import pydicom
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sr.codedict import codes
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    MRImageStorage,
    RTStructureSetStorage,
    generate_uid,
)

# De-identification leaves the source without some values, 99CAD is our scheme of codes, and
# dciodvfy is older than the term QUANTITY of Parametric Maps (PS3.3 C.8.32.2).
ALLOWED = re.compile(r"needed to build DICOMDIR|defined term = <(99CAD|QUANTITY)>")
# Values that must never be seen again once a study has been imported.
IDENTIFYING = {
    "PatientName": "Gravenstein^Waldemar",
    "PatientBirthDate": "19470503",
    "PatientAddress": "Lindenallee 99",
    "ReferringPhysicianName": "Quirin^Isolde",
    "InstitutionName": "Spital Obertal",
    "StudyDescription": "Dringend Herr Gravenstein",
    "AccessionNumber": "ACC7391",
    "OtherPatientIDs": "OLD-55121",
}


def needs(*tools: str) -> None:
    """Skip, loudly, where a DICOM tool is not installed."""
    absent = [tool for tool in tools if not shutil.which(tool)]
    if absent:
        import pytest  # here: scripts/node_demo.py runs where there is none

        pytest.skip(f"DICOM TOOLS ABSENT: {', '.join(absent)} ; run scripts/install_tools.sh")


def validate(path: Path) -> None:
    """Hold an object against the standard, by dciodvfy: no error, no warning but those allowed."""
    done = subprocess.run(["dciodvfy", "-new", path], capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).splitlines()
    assert not [line for line in said if line.startswith("Error")], said
    assert done.returncode == 0
    strange = [line for line in said if line.startswith("Warning") and not ALLOWED.search(line)]
    assert strange == []


def uid(*parts: object) -> str:
    """The same UID for the same parts."""
    return generate_uid(entropy_srcs=[str(part) for part in parts])


def write_series(
    folder: Path,
    array: np.ndarray,
    *,
    patient: str = "P-001",
    study: str = "study1",
    number: int = 1,
    description: str = "t2_tse_tra",
    spacing: tuple[float, float, float] = (1.0, 1.0, 3.0),
    origin: tuple[float, float, float] = (0.0, 0.0, 0.0),
    direction: np.ndarray | None = None,
    frame: str = "frame",
    prefix: str = "",
    **tags: Any,
) -> list[Path]:
    """Write one single-frame MR series, array (z, y, x); further header values by keyword."""
    axes = np.eye(3) if direction is None else direction
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for index, plane in enumerate(array):
        position = np.array(origin) + index * spacing[2] * axes[:, 2]
        dataset = _patient(patient, study)
        dataset.Modality = "MR"
        dataset.SOPClassUID = MRImageStorage
        dataset.SOPInstanceUID = uid(patient, study, number, prefix, index)
        dataset.SeriesInstanceUID = uid(patient, study, number)
        dataset.FrameOfReferenceUID = uid(patient, study, frame)
        dataset.SeriesNumber = number
        dataset.SeriesDescription = description
        dataset.InstanceNumber = index + 1
        dataset.ImageType = ["ORIGINAL", "PRIMARY", "M", "ND"]
        dataset.ImagePositionPatient = [f"{v:.8g}" for v in position]
        dataset.ImageOrientationPatient = [f"{v:.8g}" for v in axes[:, :2].T.ravel()]
        dataset.PixelSpacing = [f"{spacing[1]:.8g}", f"{spacing[0]:.8g}"]
        dataset.SliceThickness = f"{spacing[2]:.6g}"
        dataset.RepetitionTime = "4000"
        dataset.EchoTime = "101"
        dataset.FlipAngle = "150"
        dataset.AcquisitionTime = "101500.25"
        dataset.Rows, dataset.Columns = plane.shape
        dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
        dataset.BitsAllocated = dataset.BitsStored = 16
        dataset.HighBit = 15
        dataset.PixelRepresentation = int(plane.dtype == np.int16)
        dataset.PixelData = np.ascontiguousarray(plane).tobytes()
        for name, value in tags.items():
            setattr(dataset, name, value)
        path = folder / f"{prefix}{number}-{index + 1:03d}.dcm"
        save(dataset, path)
        paths.append(path)
    return paths


def save(dataset: Dataset, path: Path) -> None:
    """Write a dataset as a DICOM file."""
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    dataset.save_as(path, enforce_file_format=True)


def edit(path: Path, **tags: Any) -> None:
    """Change header values of a file; None deletes."""
    dataset = pydicom.dcmread(path)
    for name, value in tags.items():
        if value is None:
            delattr(dataset, name)
        else:
            setattr(dataset, name, value)
    dataset.save_as(path)


def write_structures(
    path: Path, image: Path, structures: dict[str, list[np.ndarray]], kind: str = "CLOSED_PLANAR"
) -> None:
    """Write an RTSTRUCT whose contours (LPS mm, shape (n, 3)) belong to an image's series."""
    source = pydicom.dcmread(image, stop_before_pixels=True)
    dataset = _patient(source.PatientID, "")
    dataset.StudyInstanceUID = source.StudyInstanceUID
    dataset.Modality = "RTSTRUCT"
    dataset.SOPClassUID, dataset.SOPInstanceUID = RTStructureSetStorage, generate_uid()
    dataset.SeriesInstanceUID = generate_uid()
    series = Dataset()
    series.SeriesInstanceUID = source.SeriesInstanceUID
    study = Dataset()
    study.RTReferencedSeriesSequence = [series]
    frame = Dataset()
    frame.FrameOfReferenceUID = source.FrameOfReferenceUID
    frame.RTReferencedStudySequence = [study]
    dataset.ReferencedFrameOfReferenceSequence = [frame]
    dataset.StructureSetROISequence, dataset.ROIContourSequence = [], []
    for number, (name, contours) in enumerate(structures.items(), start=1):
        roi = Dataset()
        roi.ROINumber, roi.ROIName = number, name
        roi.ReferencedFrameOfReferenceUID = source.FrameOfReferenceUID
        dataset.StructureSetROISequence.append(roi)
        item = Dataset()
        item.ReferencedROINumber = number
        item.ContourSequence = []
        for points in contours:
            contour = Dataset()
            contour.ContourGeometricType = kind
            contour.NumberOfContourPoints = len(points)
            contour.ContourData = [f"{v:.9g}" for v in np.ravel(points)]
            item.ContourSequence.append(contour)
        dataset.ROIContourSequence.append(item)
    save(dataset, path)


def write_seg(
    path: Path,
    images: list[Path],
    masks: dict[str, np.ndarray],
    kind: str = "BINARY",
    keep_empty: bool = False,
) -> None:
    """Write a SEG with one segment a mask, each (z, y, x) on the images' grid in their order."""
    sources = [pydicom.dcmread(image) for image in images]
    algorithm = highdicom.seg.SegmentAlgorithmTypeValues.MANUAL
    segments = [
        highdicom.seg.SegmentDescription(
            number, name, codes.SCT.Tissue, codes.SCT.Lesion, algorithm
        )
        for number, name in enumerate(masks, start=1)
    ]
    pixels = np.stack(list(masks.values()), axis=-1)
    pixels = pixels.astype(np.float32) if kind == "FRACTIONAL" else pixels.astype(np.uint8)
    dataset = highdicom.seg.Segmentation(
        sources,
        pixels,
        kind,
        segments,
        series_instance_uid=generate_uid(),
        series_number=300,
        sop_instance_uid=generate_uid(),
        instance_number=1,
        manufacturer="test",
        manufacturer_model_name="test",
        software_versions="1",
        device_serial_number="1",
        omit_empty_frames=not keep_empty,
    )
    dataset.save_as(path)


def _patient(patient: str, study: str) -> Dataset:
    dataset = Dataset()
    dataset.SpecificCharacterSet = "ISO_IR 192"
    dataset.PatientID = patient
    dataset.StudyInstanceUID = uid(patient, study)
    dataset.StudyDate, dataset.StudyTime, dataset.StudyID = "20240307", "101112", "1"
    dataset.PatientSex = "M"
    dataset.Manufacturer = "test"
    for name, value in IDENTIFYING.items():
        setattr(dataset, name, value)
    return dataset


def deflate(path: Path, zeros: int) -> None:
    """Write the file deflated, with that many zeros (of 16 MiB each) for pixels."""
    dataset = pydicom.dcmread(path)
    dataset.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    del dataset.PixelData
    stream = io.BytesIO()
    pydicom.dcmwrite(stream, dataset, enforce_file_format=False)
    raw = stream.getvalue()
    meta = pydicom.dcmread(io.BytesIO(raw)).file_meta
    start = 132 + 12 + int(meta.FileMetaInformationGroupLength)
    head = zlib.decompress(raw[start:], -15)
    head += struct.pack("<2H2sHI", 0x7FE0, 0x10, b"OW", 0, zeros << 24)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    content = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(raw[:start] + content + block * zeros + packer.flush())


def dcmtk(tool: str) -> str:
    """A program of dcmtk: pynetdicom puts scripts of the same names into each environment."""
    for folder in os.environ["PATH"].split(os.pathsep):
        found = shutil.which(tool, path=folder)
        if found is not None and Path(found).read_bytes()[:2] != b"#!":
            return found
    import pytest  # here: scripts/node_demo.py runs where there is none

    pytest.skip("DCMTK ABSENT: run scripts/install_tools.sh")
