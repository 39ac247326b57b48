"""Rebuild the headers of a study's T2 images, which DICOM objects refer to.

These headers do not have the patient's name: the PatientID stands in its place.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian

from cad.base.errors import CadError
from cad.base.files import JsonObject
from cad.mri.imaging.nifti import read_sidecar, read_stored
from cad.mri.imaging.study_files import image_path
from cad.mri.imaging.volume import Volume

_CLASSIC = "1.2.840.10008.5.1.4.1.1.4"  # SOP class of MR images with one slice each
# Entries of the sidecar without which no object can refer to the images.
_NEEDED = ("StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID", "SOPInstanceUIDs")


@dataclass(frozen=True)
class SourceImages:
    """Hold the T2 series of a study in the form that DICOM objects refer to.

    Parameters
    ----------
    grid : Volume
        The T2 image.
    headers : list of Dataset
        In a classic series one header per slice, in the order of the z axis; for an enhanced object
        its one header.
    patient_id : str
        PatientID that the headers bear.
    planes : tuple of int
        In a classic series the z index of each header's slice; for an enhanced object the z index
        of each frame, in the order of the object.
    """

    grid: Volume
    headers: list[Dataset]
    patient_id: str
    planes: tuple[int, ...]


def source_images(folder: Path, study_id: str, participant_id: str) -> SourceImages:
    """Rebuild the headers of a study's T2 series from its image and sidecar.

    Parameters
    ----------
    folder : Path
        The study's folder in the cohort.
    study_id, participant_id : str
        ``sub-XXX[_ses-YY]`` and ``sub-XXX``. The latter is the PatientID unless the import rules
        kept the source's own id (``labels: id``).

    Returns
    -------
    SourceImages
        The T2 image, the headers of its DICOM objects, the PatientID in these headers, and the
        slice of the image that each header or frame shows.

    Raises
    ------
    CadError
        When the study was not imported from DICOM, or its sidecar does not fit its image.
    """
    path = image_path(folder, study_id, "t2w")
    volume = read_stored(path)
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
        problem = f"the sidecar names {len(uids)} slices, the image has {volume.shape[0]}"
        raise CadError(problem, file=path, patient=participant_id)
    patient_id = str(sidecar.get("SourcePatientID", participant_id))
    # For an enhanced object: the number of the frame that each slice of the image came from.
    frames = sidecar.get("SourceFrames")
    if frames is None:
        headers = [_header(volume, z, uid, sidecar, patient_id) for z, uid in enumerate(uids)]
        return SourceImages(volume, headers, patient_id, tuple(range(len(uids))))
    planes = tuple(int(z) for z in np.argsort(frames))  # the slice of frame 1 comes first
    is_mosaic = sidecar.get("SOPClassUID") == _CLASSIC
    if is_mosaic or sorted(frames) != list(range(1, len(uids) + 1)):
        raise CadError(
            "the T2 image is a mosaic or part of a multi-frame object: DICOM results cannot refer "
            "to its slices",
            file=path,
            patient=participant_id,
            hint="import the T2 series as single images, or as an enhanced object of its own",
        )
    # All slices are frames of one object, and have its UID.
    header = _enhanced(volume, planes, uids[0], sidecar, patient_id)
    return SourceImages(volume, [header], patient_id, planes)


def _enhanced(
    volume: Volume, planes: tuple[int, ...], uid: str, sidecar: JsonObject, patient_id: str
) -> Dataset:
    """Return the header of a multi-frame object whose frame k lies at z index ``planes[k]``."""
    header = _header(volume, 0, uid, sidecar, patient_id)
    header.NumberOfFrames = len(planes)
    # In a multi-frame object the voxel size and the orientation stand in the functional groups that
    # all frames share, and the place of each frame in its own group. They are moved there.
    shared_group = Dataset()
    orientation = Dataset()
    measures = Dataset()
    orientation.ImageOrientationPatient = header.ImageOrientationPatient
    for keyword in ("PixelSpacing", "SliceThickness", "SpacingBetweenSlices"):
        setattr(measures, keyword, getattr(header, keyword))
        delattr(header, keyword)
    shared_group.PlaneOrientationSequence = [orientation]
    shared_group.PixelMeasuresSequence = [measures]
    header.SharedFunctionalGroupsSequence = [shared_group]
    header.PerFrameFunctionalGroupsSequence = []
    for z in planes:
        frame_group = Dataset()
        position = Dataset()
        corner = volume.index_to_patient(np.array([0, 0, z]))
        position.ImagePositionPatient = [_decimal(coordinate) for coordinate in corner]
        frame_group.PlanePositionSequence = [position]
        header.PerFrameFunctionalGroupsSequence.append(frame_group)
    del header.ImagePositionPatient, header.ImageOrientationPatient
    return header


def _header(volume: Volume, z: int, uid: str, sidecar: JsonObject, patient_id: str) -> Dataset:
    """Return the header of a classic image of one slice, which lies at index ``z`` of the volume.

    Elements that a header must have, and that nothing is known of, are empty.
    """
    header = Dataset()
    header.file_meta = FileMetaDataset()
    header.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    header.PatientID = patient_id
    header.PatientName = f"{patient_id}^"
    header.PatientBirthDate = header.PatientSex = ""
    header.StudyInstanceUID = sidecar["StudyInstanceUID"]
    header.StudyDate = header.StudyTime = header.StudyID = ""
    header.AccessionNumber = header.ReferringPhysicianName = ""
    header.SeriesInstanceUID = sidecar["SeriesInstanceUID"]
    header.SeriesNumber = int(sidecar.get("SeriesNumber", 1))
    header.FrameOfReferenceUID = sidecar["FrameOfReferenceUID"]
    header.PositionReferenceIndicator = ""
    header.Modality = "MR"
    header.SOPClassUID = sidecar.get("SOPClassUID", _CLASSIC)
    header.SOPInstanceUID = uid
    header.InstanceNumber = z + 1
    header.Rows = volume.shape[1]
    header.Columns = volume.shape[2]
    x, y, thickness = volume.spacing
    header.PixelSpacing = [_decimal(y), _decimal(x)]  # the distance of rows comes first
    header.SliceThickness = header.SpacingBetweenSlices = _decimal(thickness)
    corner = volume.index_to_patient(np.array([0, 0, z]))
    header.ImagePositionPatient = [_decimal(coordinate) for coordinate in corner]
    # The direction of a row, then that of a column: the x axis and the y axis of the volume.
    row_and_column = volume.direction[:, :2].T.ravel()
    header.ImageOrientationPatient = [_decimal(cosine) for cosine in row_and_column]
    return header


def _decimal(value: float) -> str:
    """Return a number as text of at most 16 characters, the limit of DICOM's decimal strings."""
    return f"{round(float(value), 9):.9g}"[:16]
