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
    """Return all series of a patient in the order of a real examination.

    The order is T2, diffusion images and their ADC map, flip-angle images, and the frames of the
    dynamic series, each a series of its own.
    """
    study = patient.study
    t2w = present(study.t2w)
    adc = present(study.adc)
    dce = present(study.dce)
    original = ("ORIGINAL", "PRIMARY", "OTHER")
    t2_repetition, t2_echo = (1000 * seconds for seconds in protocol.t2_times)  # ms
    series = [
        Series(
            number=2,
            description="t2_tse_tra",
            volume=t2w,
            start=60,
            image_type=original,
            sequence=("SE", "tse2d1"),
            repetition=t2_repetition,
            echo=t2_echo,
            flip=90,
        )
    ]
    for number, (b_value, volume) in enumerate(study.diffusion, start=3):
        series.append(
            Series(
                number=number,
                description="ep2d_diff_tra",
                volume=volume,
                start=300,
                image_type=original,
                sequence=("EP", f"ep_b{b_value:g}t"),
                repetition=3400,
                echo=70,
                flip=90,
                b_value=b_value,
            )
        )
    low_b, high_b = protocol.b_values
    series.append(
        Series(
            number=5,
            description="ep2d_diff_tra_ADC",
            volume=adc,
            start=300,
            image_type=("DERIVED", "PRIMARY", "OTHER", "ADC"),
            sequence=("EP", f"ep_b{low_b:g}_{high_b:g}"),
            repetition=3400,
            echo=70,
            flip=90,
        )
    )

    # Flip-angle images and dynamic series are of one kind, a spoiled gradient echo.
    gradient_echo = ("GR", "fl3d1")
    repetition = 1000 * protocol.dce_times[0]  # ms
    for number, (flip, volume) in enumerate(study.vfa, start=6):
        series.append(
            Series(
                number=number,
                description=f"vibe_flip_{flip:g}deg",
                volume=volume,
                start=500 + 40 * number,
                image_type=original,
                sequence=gradient_echo,
                repetition=repetition,
                echo=1.4,
                flip=flip,
            )
        )
    first_dynamic = 6 + len(study.vfa)
    for phase, (time, frame) in enumerate(zip(dce.times, dce.frames, strict=True)):
        series.append(
            Series(
                number=first_dynamic + phase,
                description="vibe_dynamic",
                volume=dce.grid.with_array(frame),
                start=1000 + float(time),
                image_type=original,
                sequence=gradient_echo,
                repetition=repetition,
                echo=1.4,
                flip=protocol.flip,
            )
        )
    return series


def _slice_dataset(
    series: Series, index: int, patient_id: str, series_uid: str, protocol: SiteProtocol
) -> Dataset:
    """Return one slice of a series as a DICOM object; ``index`` counts the slices from 0."""
    volume = series.volume
    rows, columns = volume.shape[1:]
    direction = np.asarray(volume.direction)
    position = volume.index_to_patient(np.array([0, 0, index]))
    is_gradient_echo = series.sequence[0] == "GR"

    # Class and identity
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

    # Time, scanner and series
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

    # How the image was measured
    data.ScanningSequence, data.SequenceName = series.sequence
    data.SequenceVariant = "SP" if is_gradient_echo else "SK"  # spoiled, or segmented k-space
    data.ScanOptions = ""
    data.MRAcquisitionType = "3D" if is_gradient_echo else "2D"
    data.MagneticFieldStrength = 3
    data.RepetitionTime = _decimal_string(series.repetition)
    data.EchoTime = _decimal_string(series.echo)
    data.FlipAngle = _decimal_string(series.flip)
    data.EchoTrainLength = 1
    if series.b_value is not None:
        data.DiffusionBValue = float(series.b_value)

    # Where the slice lies: its first voxel, and the directions of its rows and columns
    data.ImagePositionPatient = [_decimal_string(coordinate) for coordinate in position]
    along_rows_and_columns = direction[:, :2].T.ravel()
    data.ImageOrientationPatient = [_decimal_string(cosine) for cosine in along_rows_and_columns]
    data.PixelSpacing = [_decimal_string(volume.spacing[1]), _decimal_string(volume.spacing[0])]
    data.SliceThickness = data.SpacingBetweenSlices = _decimal_string(volume.spacing[2])

    # The voxels: unsigned, 12 of 16 bits used
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
    # The window for display goes from 0 to the 99th percentile. Its width must not be below 2.
    window_top = int(np.percentile(pixels, 99)) + 1
    data.WindowCenter = window_top // 2
    data.WindowWidth = max(window_top, 2)
    data.PixelData = pixels.tobytes()
    return data


@door("own", "our own DICOM objects")
def _encoded(data: Dataset) -> bytes:
    """Return a DICOM object as the bytes of a file."""
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
    """Return a UID that is derived from words, such as patient and series: equal words, equal UID.

    The form ``2.25.`` and a number is free for anybody. The number may have 128 bits at most.
    """
    text = "/".join(map(str, ("cad simulate", *words)))
    digest = hashlib.sha256(text.encode()).digest()
    return f"2.25.{int.from_bytes(digest[:15], 'big')}"


def _clock(seconds: float) -> str:
    """Return a time after the start of the examination as DICOM writes it, ``HHMMSS.ffffff``."""
    whole, micro = divmod(round((_START + seconds) * 1_000_000), 1_000_000)
    hours = whole // 3600
    minutes = whole // 60 % 60
    return f"{hours:02d}{minutes:02d}{whole % 60:02d}.{micro:06d}"


def _decimal_string(value: float) -> str:
    """Return a number as a DICOM decimal string, which has at most 16 characters."""
    without_sign_of_zero = float(value) + 0.0  # -0.0 becomes 0.0
    return f"{without_sign_of_zero:.9g}"
