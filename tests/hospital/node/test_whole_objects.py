"""Which objects a node takes for cut off: real ones of every kind that senders bring."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_files import save, write_seg, write_series, write_structures
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate, encapsulate_extended
from pydicom.uid import (
    Comprehensive3DSRStorage,
    GrayscaleSoftcopyPresentationStateStorage,
    KeyObjectSelectionDocumentStorage,
    RawDataStorage,
    RTDoseStorage,
    RTPlanStorage,
)

from cad.base.errors import CadError
from cad.hospital.node.instance import deflated_head, head_of, require_whole

SHAPE = (3, 16, 16)


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    return write_series(tmp_path / "t2", np.arange(768, dtype=np.uint16).reshape(SHAPE))


def written(path: Path, sop_class: str, **tags: object) -> Path:
    dataset = Dataset()
    dataset.SOPClassUID, dataset.SOPInstanceUID = sop_class, "1.2.3"
    dataset.PatientID, dataset.StudyInstanceUID = "P-001", "1.2"
    for name, value in tags.items():
        setattr(dataset, name, value)
    save(dataset, path)
    return path


def item(**tags: object) -> Dataset:
    dataset = Dataset()
    for name, value in tags.items():
        setattr(dataset, name, value)
    return dataset


def dose(path: Path, **tags: object) -> Path:
    grid = np.arange(512, dtype=np.uint16).reshape(2, 16, 16)
    return written(
        path,
        RTDoseStorage,
        Modality="RTDOSE",
        SamplesPerPixel=1,
        PhotometricInterpretation="MONOCHROME2",
        NumberOfFrames=2,
        Rows=16,
        Columns=16,
        BitsAllocated=16,
        BitsStored=16,
        HighBit=15,
        PixelRepresentation=0,
        DoseUnits="GY",
        DoseGridScaling="0.01",
        PixelData=grid.tobytes(),
        **tags,
    )


def histogram_dose(path: Path) -> Path:
    """A dose that is given by its histogram: no grid, so neither rows nor pixels (PS3.3 A.18)."""
    histogram = item(DVHType="CUMULATIVE", DoseUnits="GY", DVHData=[0.1, 12.0, 0.1, 9.0])
    return written(path, RTDoseStorage, Modality="RTDOSE", DVHSequence=[histogram])


def packed(path: Path, image: Path, extended: bool) -> Path:
    dataset = pydicom.dcmread(image)
    frame = b"\xff\x4f" + bytes(98)  # what it holds is not looked at
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.JPEG2000Lossless
    if extended:
        dataset.PixelData, table, lengths = encapsulate_extended([frame, frame])
        dataset.ExtendedOffsetTable, dataset.ExtendedOffsetTableLengths = table, lengths
    else:
        dataset.PixelData = encapsulate([frame, frame])
    dataset["PixelData"].VR = "OB"
    dataset["PixelData"].is_undefined_length = True
    dataset.save_as(path)
    return path


def of_kind(kind: str, folder: Path, images: list[Path]) -> Path:
    path = folder / "object.dcm"
    text = item(ValueType="TEXT", RelationshipType="CONTAINS", TextValue="x")
    square = np.array([[2.0, 2, 0], [8, 2, 0], [8, 8, 0], [2, 8, 0]])
    match kind:
        case "MR":
            return images[0]
        case "MR, encapsulated":
            return packed(path, images[0], extended=False)
        case "MR, extended offset table":
            return packed(path, images[0], extended=True)
        case "MR, pixels at a provider":
            dataset = pydicom.dcmread(images[0])
            del dataset.PixelData
            dataset.PixelDataProviderURL = "https://127.0.0.1/x"
            dataset.save_as(path)
        case "SEG":
            write_seg(path, images, {"gland": np.ones(SHAPE, bool)})
        case "RTDOSE":
            return dose(path)
        case "RTDOSE, histogram":
            return histogram_dose(path)
        case "RTSTRUCT":
            write_structures(path, images[0], {"ROI 1": [square]})
            dataset = pydicom.dcmread(path)
            dataset.RTROIObservationsSequence = [item(ObservationNumber=1)]
            dataset.save_as(path)
        case "RTPLAN":
            return written(path, RTPlanStorage, Modality="RTPLAN", RTPlanLabel="x")
        case "SR":
            return written(path, Comprehensive3DSRStorage, Modality="SR", ContentSequence=[text])
        case "SR, filed, without content":
            # An odd one, and no cut one: it has an element behind its content's place.
            return written(path, Comprehensive3DSRStorage, StorageMediaFileSetUID="1.2")
        case "KO":
            return written(
                path, KeyObjectSelectionDocumentStorage, Modality="KO", ContentSequence=[text]
            )
        case "PR":
            return written(path, GrayscaleSoftcopyPresentationStateStorage, Modality="PR")
        case "raw":
            return written(path, RawDataStorage, Modality="MR")
    return path


KINDS = (
    "MR",
    "MR, encapsulated",
    "MR, extended offset table",
    "MR, pixels at a provider",
    "SEG",
    "RTDOSE",
    "RTDOSE, histogram",
    "RTSTRUCT",
    "RTPLAN",
    "SR",
    "SR, filed, without content",
    "KO",
    "PR",
    "raw",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_object_is_taken(tmp_path: Path, images: list[Path], kind: str):
    path = of_kind(kind, tmp_path, images)
    require_whole(path, pydicom.dcmread(path, stop_before_pixels=True).SOPClassUID)


@pytest.mark.parametrize(
    "kind",
    [
        "MR",
        "MR, encapsulated",
        "MR, extended offset table",
        "SEG",
        "RTDOSE",
        "RTSTRUCT",
        "SR",
        "KO",
    ],
)
def test_an_object_that_was_cut_before_its_last_element_is_refused(
    tmp_path: Path, images: list[Path], kind: str
):
    path = of_kind(kind, tmp_path, images)
    dataset = pydicom.dcmread(path)
    last = max(element.tag for element in dataset)
    del dataset[last]
    dataset.save_as(path)
    with pytest.raises(CadError, match="the file ends"):
        require_whole(path, dataset.SOPClassUID)


def test_a_patient_id_of_several_values_is_refused(images):
    """As a list of texts it would find no man, neither to compute nor to remove."""
    path = images[0]
    dataset = pydicom.dcmread(path)
    dataset.PatientID = ["P-001", "P-002"]
    dataset.save_as(path)
    with pytest.raises(CadError, match=r"PatientID \(0010,0020\) has 2 values"):
        head_of(path)
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    dataset.save_as(path)
    assert head_of(path) is None
    with pytest.raises(CadError, match=r"PatientID \(0010,0020\) has 2 values"):
        deflated_head(path)


def test_a_patient_id_that_stands_twice_is_refused(images):
    path = images[0]
    content = path.read_bytes()
    element = b"\x10\0\x20\0LO\x06\0P-002 "
    start = content.index(b"\x10\0\x20\0LO")
    path.write_bytes(content[:start] + element + content[start:])
    with pytest.raises(CadError, match=r"PatientID \(0010,0020\) stands twice in one data set"):
        head_of(path)


@pytest.mark.parametrize("keyword", ["PatientID", "StudyInstanceUID", "SOPInstanceUID"])
def test_an_element_behind_others_of_a_higher_tag_is_found(images, keyword):
    path = images[0]
    dataset = pydicom.dcmread(path)
    tag = pydicom.datadict.tag_for_keyword(keyword)
    value = str(dataset[keyword].value).encode()
    value += (b"\0" if keyword.endswith("UID") else b" ") * (len(value) % 2)
    vr = dataset[keyword].VR.encode()
    element = struct.pack("<HH2sH", tag >> 16, tag & 0xFFFF, vr, len(value)) + value
    content = path.read_bytes()
    start = content.rindex(element)
    pixels = content.index(b"\xe0\x7f\x10\0OW")
    moved = content[:start] + content[start + len(element) : pixels] + element
    expected = head_of(path)
    path.write_bytes(moved + content[pixels:])
    assert head_of(path) == expected
    assert expected is not None
    assert expected.patient == "P-001"
