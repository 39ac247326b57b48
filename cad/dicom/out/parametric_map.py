"""Write the map of probability over the gland as a DICOM Parametric Map on the planes of T2."""

import hashlib
import json
import warnings
from pathlib import Path

import highdicom
import numpy as np
import pandas as pd
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes

from cad.base.errors import CadError
from cad.base.files import JsonObject, write_atomic
from cad.base.reading import reading
from cad.dicom.out import objects
from cad.dicom.out.objects import algorithm
from cad.dicom.out.source_images import source_images
from cad.dicom.out.sr import BELIEF_CODE
from cad.dicom.own import OWN_MODEL_NAME
from cad.folders.cohort import StudyRef, read_cohort
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.blinding import held_back_of_table
from cad.folders.run_folder.records import read_record
from cad.folders.run_folder.schema import HISTOLOGY
from cad.folders.run_folder.tables import read_probabilities
from cad.mri.imaging.nifti import read_volume
from cad.mri.imaging.volume import Volume

OUTSIDE = -1.0
"""Number that is stored where the map has no value; no probability is negative."""
_LAYOUT = 3
"""Number that goes into the UID of a map's object.

The number is increased when a version of the program writes further elements into these objects. An
object of the same map then gets another UID. With the same UID an archive would keep its old
object.
"""


def write_maps(run_dir: Path, cohort_root: Path, out: Path) -> tuple[list[Path], list[CadError]]:
    """Write ``<study>_PM.dcm`` for every study of a run that has a probability map.

    Nothing is written about a man who is held back until a reader has scored him.

    Parameters
    ----------
    run_dir : Path
        Run folder; its maps come from ``cad predict --map``.
    cohort_root : Path
        The cohort the run was made on; its studies must have been imported from DICOM.
    out : Path
        Folder to write.

    Returns
    -------
    list of Path
        The files written, in the order of the studies; empty where the run has no maps.
    list of CadError
        One error for each map that could not be written; the other maps are written.

    Raises
    ------
    CadError
        When the run folder or the cohort cannot be read.
    """
    folder = RunFolder(run_dir)
    run = read_record(folder)
    table = read_probabilities(folder)
    men_held_back = held_back_of_table(run, table)
    files: list[Path] = []
    failures: list[CadError] = []
    for study in read_cohort(cohort_root).studies():
        rows = table[table["study_id"] == study.study_id]
        source = folder.map_image(study.study_id)
        # Nothing to write: the run has not scored the study, or made no map of it, or nobody may
        # see it yet.
        if rows.empty or not source.is_file() or study.participant_id in men_held_back:
            continue
        path = out / f"{study.study_id}_PM.dcm"
        try:
            # `reading` turns exceptions of the DICOM libraries, which check values, into CadError.
            with reading(path, "cannot be written as DICOM"):
                dataset = map_object(study, rows, read_volume(source), run)
                write_atomic(path, objects.content(dataset))
        except CadError as error:
            failures.append(error.naming(patient=study.participant_id))
            continue
        files.append(path)
    return files, failures


def map_object(
    study: StudyRef, rows: pd.DataFrame, probability: Volume, run: JsonObject
) -> Dataset:
    """Make the Parametric Map of one study.

    Parameters
    ----------
    study : StudyRef
        The study in its cohort.
    rows : DataFrame
        The study's rows of ``probabilities.csv``. If the run has several models, the rows name the
        model that scored the study.
    probability : Volume
        The map on the T2 grid: probabilities from 0 to 1, and NaN in voxels without one.
    run : dict
        Content of ``run.json``.

    Returns
    -------
    Dataset
        The DICOM object, not written yet.

    Raises
    ------
    CadError
        When the study has no DICOM source, or the map is not on its T2 grid.
    """
    source = source_images(study.folder, study.study_id, study.participant_id)
    # The map's NIfTI file may store its axes in another order than the T2 image.
    probability = probability.turned(source.grid.direction)
    if not probability.same_grid(source.grid):
        raise CadError(
            "the probability map is not on the grid of the T2 images",
            # A viewer would show a map on another grid at the wrong place, and nobody would notice.
            hint="predict again with --map: the T2 images have changed since",
        )
    name, version, statements = algorithm(objects.with_own_model(run, rows))
    of_cancer = (rows["probability_of"] == HISTOLOGY).any()
    quantity = codes.DCM.ProbabilityOfCancer if of_cancer else BELIEF_CODE
    meaning = "Probability of cancer" if of_cancer else "What readers would say"
    stored = np.nan_to_num(probability.array, nan=OUTSIDE).astype(np.float32)
    # The UIDs of the object are made from a hash of all that it says.
    header = json.dumps([_LAYOUT, study.study_id, name, version, statements, meaning]).encode()
    identity = hashlib.sha256(header + stored.tobytes()).hexdigest()
    # highdicom warns that the PatientID has an unusual form. The form is intended: the PatientID is
    # a pseudonym.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        dataset = highdicom.pm.ParametricMap(
            source.headers,
            stored[list(source.planes)],  # the slices in the order of the source's images
            manufacturer_model_name=OWN_MODEL_NAME,
            software_versions=objects.long_string(f"{name} {version}"),
            device_serial_number="0",
            contains_recognizable_visual_features=False,
            # A viewer multiplies the stored values (0 to 1) by 100 and shows them in per cent, the
            # unit of the structured report.
            real_world_value_mappings=[
                highdicom.pm.RealWorldValueMapping(
                    lut_label="PROBABILITY",
                    lut_explanation=f"{meaning}, by the model",
                    unit=codes.UCUM.Percent,
                    value_range=(0.0, 1.0),
                    slope=100.0,
                    intercept=0.0,
                    quantity_definition=quantity,
                )
            ],
            # Black stands for 0 and white for 1. Otherwise a viewer would spread the grey levels
            # over the values that occur, and show the smallest difference as black and white.
            voi_lut_transformations=[
                highdicom.VOILUTTransformation(window_center=0.5, window_width=1.0)
            ],
            content_label="PROBABILITY",
            content_description=f"{meaning}, research use only",
            **objects.heading("PM", identity),
        )
    _order_frames(dataset, probability.direction[:, 2])
    dataset.SharedFunctionalGroupsSequence[0].FrameAnatomySequence = [_prostate()]
    dataset.BodyPartExamined = "PROSTATE"
    dataset.ContentCreatorName = ""  # a program, and no person, made the map
    # Viewers leave out pixels with a value from padding value to range limit: here only OUTSIDE.
    dataset.FloatPixelPaddingValue = dataset.FloatPixelPaddingRangeLimit = OUTSIDE
    objects.say_who(dataset, source, study.participant_id)
    return dataset


def _order_frames(dataset: Dataset, normal: np.ndarray) -> None:
    """Put the frames in the order of their slices, and number them in this order.

    The library highdicom stores the frames (one for each slice) from the last slice to the first.
    The program ``paramap2itkimage`` of dcmqi takes frame k for slice k, and does not read where
    frame k lies in the patient. So without this change of order that program would turn the map
    upside down.
    """
    groups = list(dataset.PerFrameFunctionalGroupsSequence)
    positions = [group.PlanePositionSequence[0].ImagePositionPatient for group in groups]
    # The frames are sorted by their position along the normal of the slices. This order is right
    # however the patient lay in the scanner.
    order = np.argsort(np.array(positions, float) @ normal)
    frames = np.frombuffer(dataset.FloatPixelData, "<f4").reshape(len(groups), -1)
    dataset.FloatPixelData = frames[order].tobytes()
    dataset.PerFrameFunctionalGroupsSequence = [groups[index] for index in order]
    for number, group in enumerate(dataset.PerFrameFunctionalGroupsSequence, start=1):
        group.FrameContentSequence[0].DimensionIndexValues = [number]


def _prostate() -> Dataset:
    """Return the item of the Frame Anatomy Macro (PS3.3 C.7.6.16.2.8): the prostate.

    The item is optional in this object. It is written because ``paramap2itkimage`` of dcmqi reads
    it without a test whether it exists.
    """
    item = Dataset()
    item.AnatomicRegionSequence = [highdicom.sr.CodedConcept.from_code(codes.SCT.Prostate)]
    item.FrameLaterality = "U"  # the prostate is an unpaired organ
    return item
