"""Write a simulated study as DICOM: one series per image, phase and flip angle.

The objects are of the class MR Image Storage. UIDs are derived from the patient and the image's
place in the study, so that the same study always gives the same bytes.
"""

import hashlib
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import UID, ExplicitVRLittleEndian, MRImageStorage

from cad.base.doors import door
from cad.base.files import write_atomic
from cad.evidence.phantom.protocols import SiteProtocol
from cad.evidence.phantom.simulator import Patient, present
from cad.mri.imaging.makers import SIMULATOR
from cad.mri.imaging.volume import Volume

_START = 10 * 3600
"""Time of day (s) at which every simulated examination begins."""
_DATE = "20200101"


class Series(NamedTuple):
    """Hold one series: a volume, and the parameters that it was made with.

    Parameters
    ----------
    number : int
        Series number.
    description : str
        Series description, by which the rules of an import find the series.
    volume : Volume
        The image, with unsigned 16-bit voxels.
    start : float
        Seconds after the examination began.
    image_type : tuple of str
        DICOM image type.
    sequence : (str, str)
        Scanning sequence and sequence name.
    repetition, echo, flip : float
        Repetition time (ms), echo time (ms) and flip angle (degrees).
    b_value : float or None
        b-value of a diffusion image, s/mm2; None for other images.
    """

    number: int
    description: str
    volume: Volume
    start: float
    image_type: tuple[str, ...]
    sequence: tuple[str, str]
    repetition: float
    echo: float
    flip: float
    b_value: float | None = None


def write_dicom(folder: Path, patient: Patient, protocol: SiteProtocol, patient_id: str) -> None:
    """Write the images of a patient as DICOM, one folder per series.

    Parameters
    ----------
    folder : Path
        Study folder; made when absent.
    patient : Patient
        Patient whose images are written.
    protocol : Protocol
        Protocol of the patient's site.
    patient_id : str
        DICOM patient id (at most 64 characters).
    """
    for series in _list_series(patient, protocol):
        name = f"{series.number:02d}-{series.description.replace(' ', '_')}"
        uid = _simulated_uid(patient_id, series.number)
        for index in range(series.volume.shape[0]):
            dataset = _slice_dataset(series, index, patient_id, uid, protocol)
            write_atomic(folder / name / f"{index + 1:03d}.dcm", _encoded(dataset))


def _list_series(patient: Patient, protocol: SiteProtocol) -> list[Series]:
    study = patient.study
    t2w = present(study.t2w)
    adc = present(study.adc)
    dce = present(study.dce)
    repetition, echo = (1000 * v for v in protocol.t2_times)
    original = ("ORIGINAL", "PRIMARY", "OTHER")
    out = [Series(2, "t2_tse_tra", t2w, 60, original, ("SE", "tse2d1"), repetition, echo, 90)]
    for number, (b, volume) in enumerate(study.diffusion, start=3):
        out.append(
            Series(
                number,
                "ep2d_diff_tra",
                volume,
                300,
                original,
                ("EP", f"ep_b{b:g}t"),
                3400,
                70,
                90,
                b,
            )
        )
    low, high = protocol.b_values
    out.append(
        Series(
            5,
            "ep2d_diff_tra_ADC",
            adc,
            300,
            ("DERIVED", "PRIMARY", "OTHER", "ADC"),
            ("EP", f"ep_b{low:g}_{high:g}"),
            3400,
            70,
            90,
        )
    )
    gradient = ("GR", "fl3d1")
    tr = 1000 * protocol.dce_times[0]
    for number, (flip, volume) in enumerate(study.vfa, start=6):
        out.append(
            Series(
                number,
                f"vibe_flip_{flip:g}deg",
                volume,
                500 + 40 * number,
                original,
                gradient,
                tr,
                1.4,
                flip,
            )
        )
    first = 6 + len(study.vfa)
    for phase, (time, frame) in enumerate(zip(dce.times, dce.frames, strict=True)):
        volume = dce.grid.with_array(frame)
        out.append(
            Series(
                first + phase,
                "vibe_dynamic",
                volume,
                1000 + float(time),
                original,
                gradient,
                tr,
                1.4,
                protocol.flip,
            )
        )
    return out


def _slice_dataset(
    series: Series, index: int, patient_id: str, series_uid: str, protocol: SiteProtocol
) -> Dataset:
    volume = series.volume
    rows, columns = volume.shape[1:]
    direction = np.asarray(volume.direction)
    position = volume.index_to_patient(np.array([0, 0, index]))
    data = Dataset()
    data.SOPClassUID = MRImageStorage
    data.SOPInstanceUID = _simulated_uid(patient_id, series.number, index)
    data.StudyInstanceUID = _simulated_uid(patient_id)
    data.SeriesInstanceUID = series_uid
    data.FrameOfReferenceUID = _simulated_uid(patient_id, "frame")
    data.PatientName = f"{patient_id}^Simulated"
    data.PatientID = patient_id
    data.PatientBirthDate = ""
    data.PatientSex = "M"
    data.PositionReferenceIndicator = ""
    data.StudyID = "1"
    data.AccessionNumber = ""
    data.ReferringPhysicianName = ""
    data.StudyDate = data.SeriesDate = data.AcquisitionDate = data.ContentDate = _DATE
    data.StudyTime = _clock(0)
    data.SeriesTime = data.AcquisitionTime = data.ContentTime = _clock(series.start)
    data.Modality = "MR"
    data.BodyPartExamined = "PROSTATE"
    data.PatientPosition = "HFS"
    data.Manufacturer = SIMULATOR
    data.ManufacturerModelName = f"phantom site {protocol.site}"
    data.InstitutionName = f"Simulated site {protocol.site}"
    data.SoftwareVersions = "1"
    data.DeviceSerialNumber = "1"
    data.StudyDescription = "Simulated prostate MRI"
    data.SeriesDescription = series.description
    data.SeriesNumber = series.number
    data.AcquisitionNumber = 1
    data.InstanceNumber = index + 1
    data.ImageType = list(series.image_type)
    data.ImageComments = "Simulated image: no patient"
    data.ScanningSequence, data.SequenceName = series.sequence
    data.SequenceVariant = "SK" if series.sequence[0] != "GR" else "SP"
    data.ScanOptions = ""
    data.MRAcquisitionType = "3D" if series.sequence[0] == "GR" else "2D"
    data.MagneticFieldStrength = 3
    data.RepetitionTime = _decimal_string(series.repetition)
    data.EchoTime = _decimal_string(series.echo)
    data.FlipAngle = _decimal_string(series.flip)
    data.EchoTrainLength = 1
    if series.b_value is not None:
        data.DiffusionBValue = float(series.b_value)
    data.ImagePositionPatient = [_decimal_string(v) for v in position]
    data.ImageOrientationPatient = [_decimal_string(v) for v in direction[:, :2].T.ravel()]
    data.PixelSpacing = [_decimal_string(volume.spacing[1]), _decimal_string(volume.spacing[0])]
    data.SliceThickness = data.SpacingBetweenSlices = _decimal_string(volume.spacing[2])
    data.SamplesPerPixel = 1
    data.PhotometricInterpretation = "MONOCHROME2"
    data.Rows = rows
    data.Columns = columns
    data.PixelRepresentation = 0
    data.BitsAllocated = 16
    data.BitsStored = 12
    data.HighBit = 11
    pixels = np.minimum(volume.array[index], 4095).astype("<u2")
    data.SmallestImagePixelValue = int(pixels.min())
    data.LargestImagePixelValue = int(pixels.max())
    top = int(np.percentile(pixels, 99)) + 1
    data.WindowCenter = top // 2
    data.WindowWidth = max(top, 2)
    data.PixelData = pixels.tobytes()
    return data


@door("own", "our own DICOM objects")
def _encoded(data: Dataset) -> bytes:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = data.SOPClassUID
    meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    # Without the next two lines pydicom would write its own version into the files, which would
    # then change with each release of pydicom.
    meta.ImplementationClassUID = UID(_simulated_uid("cad simulate"))
    meta.ImplementationVersionName = "CAD_SIMULATE"
    stream = BytesIO()
    file = FileDataset(stream, data, file_meta=meta, preamble=b"\0" * 128)
    file.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


def _simulated_uid(*words: object) -> str:
    digest = hashlib.sha256("/".join(map(str, ("cad simulate", *words))).encode()).digest()
    return f"2.25.{int.from_bytes(digest[:15], 'big')}"


def _clock(seconds: float) -> str:
    whole, micro = divmod(round((_START + seconds) * 1_000_000), 1_000_000)
    return f"{whole // 3600:02d}{whole // 60 % 60:02d}{whole % 60:02d}.{micro:06d}"


def _decimal_string(value: float) -> str:
    """Return a number as a DICOM decimal string, which has at most 16 characters."""
    return f"{float(value) + 0.0:.9g}"
