"""The source images of a study as DICOM objects refer to them: headers without a patient's name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian

from cad.errors import CadError
from cad.imaging.nifti import read_sidecar, read_volume
from cad.imaging.study_files import image_path
from cad.imaging.volume import Volume

_NEEDED = ("StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID", "SOPInstanceUIDs")


@dataclass(frozen=True)
class SourceImages:
    """One T2 series: its grid, and one header a slice in the order of the z axis."""

    grid: Volume
    headers: list[Dataset]
    patient_id: str


def source_images(folder: Path, study_id: str, participant_id: str) -> SourceImages:
    """Rebuild the headers of a study's T2 series from its image and sidecar.

    Parameters
    ----------
    folder : Path
        The study's folder in the cohort.
    study_id, participant_id : str
        ``sub-XXX[_ses-YY]`` and ``sub-XXX``; the latter is the PatientID unless the import rules
        kept the source's own (``labels: id``).

    Raises
    ------
    CadError
        When the study was not imported from DICOM, or its sidecar does not fit its image.
    """
    path = image_path(folder, study_id, "t2w")
    volume = read_volume(path)
    sidecar = read_sidecar(path)
    absent = [key for key in _NEEDED if not sidecar.get(key)]
    if absent:
        raise CadError(
            f"no DICOM source: the T2 sidecar lacks {', '.join(absent)}",
            file=path,
            patient=participant_id,
            hint="only studies that `cad import` read from DICOM can be written back",
        )
    uids = sidecar["SOPInstanceUIDs"]
    if len(uids) != volume.shape[0]:
        raise CadError(
            f"the sidecar names {len(uids)} slices, the image has {volume.shape[0]}",
            file=path,
            patient=participant_id,
        )
    patient_id = str(sidecar.get("SourcePatientID", participant_id))
    headers = [_header(volume, z, uid, sidecar, patient_id) for z, uid in enumerate(uids)]
    return SourceImages(volume, headers, patient_id)


def _header(volume: Volume, z: int, uid: str, sidecar: dict[str, Any], patient_id: str) -> Dataset:
    header = Dataset()
    header.file_meta = FileMetaDataset()
    header.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    header.PatientID, header.PatientName = patient_id, f"{patient_id}^"
    header.PatientBirthDate = header.PatientSex = ""
    header.StudyInstanceUID = sidecar["StudyInstanceUID"]
    header.StudyDate = header.StudyTime = header.StudyID = ""
    header.AccessionNumber = header.ReferringPhysicianName = ""
    header.SeriesInstanceUID = sidecar["SeriesInstanceUID"]
    header.SeriesNumber = int(sidecar.get("SeriesNumber", 1))
    header.FrameOfReferenceUID = sidecar["FrameOfReferenceUID"]
    header.PositionReferenceIndicator = ""
    header.Modality = "MR"
    header.SOPClassUID = sidecar.get("SOPClassUID", "1.2.840.10008.5.1.4.1.1.4")
    header.SOPInstanceUID = uid
    header.InstanceNumber = z + 1
    header.Rows, header.Columns = volume.shape[1], volume.shape[2]
    x, y, thickness = volume.spacing
    header.PixelSpacing = [_decimal(y), _decimal(x)]
    header.SliceThickness = header.SpacingBetweenSlices = _decimal(thickness)
    place = volume.index_to_patient(np.array([0, 0, z]))
    header.ImagePositionPatient = [_decimal(v) for v in place]
    header.ImageOrientationPatient = [_decimal(v) for v in volume.direction[:, :2].T.ravel()]
    return header


def _decimal(value: float) -> str:
    """At most sixteen characters, as DICOM's decimal strings demand."""
    return f"{round(float(value), 9):.9g}"[:16]
