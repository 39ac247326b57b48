"""Write each study's results for the archive: a structured report (TID 1500) and a segmentation.

The SEG lies in the T2 series' frame of reference and refers to the T2 images. The report
(:mod:`cad.dicom.out.sr`) states for each ROI the belief and the probability of cancer in per cent,
and the decision. Medians of ADC (um2/s) and Ktrans (/min) are stated where they were measured. The
report names the algorithm and the population that it was trained on. UIDs are derived from the
content. If the same run is written again, the objects have the same UIDs, so that an archive stores
them once.
"""

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
from cad.dicom.out.objects import StudyResults, algorithm, uid
from cad.dicom.out.source_images import SourceImages, source_images
from cad.dicom.out.sr import structured_report
from cad.dicom.out.sr_reader import BELIEF, PROBABILITY, read_report
from cad.dicom.own import OWN_MODEL_NAME
from cad.folders.cohort import StudyRef, read_cohort
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.blinding import held_back_of_table
from cad.folders.run_folder.records import read_record
from cad.folders.run_folder.schema import HISTOLOGY
from cad.folders.run_folder.study_file import page_measurements
from cad.folders.run_folder.tables import RANGE, read_probabilities
from cad.mri.imaging.geometry import roi_in_grid
from cad.mri.imaging.nifti import read_volume
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import image_path


def write_sr_and_seg(
    run_dir: Path, cohort_root: Path, out: Path
) -> tuple[list[Path], list[CadError]]:
    """Write ``<study>_SEG.dcm`` and ``<study>_SR.dcm`` for every study of a run.

    Nothing is written about a man who is held back until a reader has scored him.

    Parameters
    ----------
    run_dir : Path
        Run folder with ``run.json`` and ``probabilities.csv``.
    cohort_root : Path
        The cohort the run was made on; its studies must have been imported from DICOM.
    out : Path
        Folder to write.

    Returns
    -------
    list of Path
        Paths of the written files, in the order of the studies.
    list of CadError
        One error for each study that could not be written; the other studies are written.

    Raises
    ------
    CadError
        When the run folder or the cohort cannot be read.
    """
    folder = RunFolder(run_dir)
    run = read_record(folder)
    table = read_probabilities(folder)
    studies = {study.study_id: study for study in read_cohort(cohort_root).studies()}
    files: list[Path] = []
    failures: list[CadError] = []
    men_held_back = held_back_of_table(run, table)
    for study_id, rows in table.groupby("study_id", sort=True):
        participant = str(rows["participant_id"].iloc[0])
        if participant in men_held_back:
            continue
        seg_and_sr_paths = [out / f"{study_id}_{name}.dcm" for name in ("SEG", "SR")]
        try:
            if study_id not in studies:
                raise CadError("the study is not in the cohort", file=cohort_root)
            # `reading` turns exceptions of the DICOM libraries, which check values, into CadError.
            with reading(seg_and_sr_paths[1], "cannot be written as DICOM"):
                medians = page_measurements(folder, str(study_id))
                seg_and_report = study_objects(studies[str(study_id)], rows, medians, run)
                for path, dataset in zip(seg_and_sr_paths, seg_and_report, strict=True):
                    write_atomic(path, objects.content(dataset))
                # The report is read back from its file, because this file is what will be sent.
                _compare_with_run(seg_and_sr_paths[1], rows)
        except CadError as error:
            failures.append(error.naming(patient=participant))
            continue
        files += seg_and_sr_paths
    return files, failures


def study_objects(
    study: StudyRef, rows: pd.DataFrame, medians: dict[str, JsonObject], run: JsonObject
) -> tuple[Dataset, Dataset]:
    """Make the segmentation (SEG) and the structured report (SR) of one study.

    Parameters
    ----------
    study : StudyRef
        The study in its cohort.
    rows : DataFrame
        The study's rows of ``probabilities.csv``.
    medians : dict
        By ROI id: ``adc_median`` (um2/s, that is 1e-6 mm2/s), ``ktrans_median`` (1/min),
        ``volume_mm3``; None or absent where a value was not measured.
    run : dict
        Content of ``run.json``.

    Returns
    -------
    seg, sr : Dataset
        The two DICOM objects, not written yet.

    Raises
    ------
    CadError
        When the study has no DICOM source, no ROI with a probability, or a ROI that is not on the
        T2 images.
    """
    source = source_images(study.folder, study.study_id, study.participant_id)
    scored = rows[rows["probability"].notna()]
    if scored.empty:
        raise CadError("no ROI of the study has a probability")
    run = objects.with_own_model(run, scored)
    masks = _masks(study, scored, source)
    identity = _identity(study, scored, masks, run)
    results = StudyResults(
        study=study,
        source=source,
        scored=scored,
        masks=masks,
        medians=medians,
        run=run,
        identity=identity,
    )
    # highdicom warns that the PatientID has an unusual form. The form is intended: the PatientID is
    # a pseudonym.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        seg = _segmentation(results)
        report = structured_report(results, seg)
    for dataset in (seg, report):
        objects.say_who(dataset, source, study.participant_id)
    return seg, report


def _compare_with_run(path: Path, rows: pd.DataFrame) -> None:
    """Read a report back; check it against its template, and its numbers against the run's."""
    report = read_report(path)
    scored = rows[rows["probability"].notna()]  # other regions are not in the report

    # Belief and probability of cancer (in per cent) of each region: in the report, and in the run.
    # A number that is learned from readers is a belief, and the report states no probability.
    stated = {}
    for roi in report.rois:
        probability = roi.values[PROBABILITY][0] if PROBABILITY in roi.values else None
        stated[roi.roi_id] = (roi.values[BELIEF][0], probability)
    expected = {}
    for row in scored.itertuples():
        probability = 100 * float(row.probability) if row.probability_of == HISTOLOGY else None
        expected[str(row.roi_id)] = (100 * float(row.belief), probability)

    # The man's probability of cancer, in per cent; None where no model gives one.
    stated_man = None
    if report.man is not None:
        stated_man = report.man[0]
    expected_man = None
    if "patient_probability" in scored:
        probability_of_man = float(scored["patient_probability"].iloc[0])
        if np.isfinite(probability_of_man):
            expected_man = 100 * probability_of_man
    if stated != expected or stated_man != expected_man:
        raise CadError(
            "the report does not say what the run says", file=path, hint="do not send it"
        )


def _masks(study: StudyRef, scored: pd.DataFrame, source: SourceImages) -> list[np.ndarray]:
    """Return the mask of each scored region on the T2 grid, in the order of the rows."""
    label_map = read_volume(image_path(study.folder, study.study_id, "rois"))
    study_with_labels = Study(study.study_id, study.participant_id, roi_map=label_map)
    rois = [Roi(str(row.roi_id), int(row.label)) for row in scored.itertuples()]
    return [roi_in_grid(study_with_labels, roi, source.grid).array for roi in rois]


def _identity(
    study: StudyRef, scored: pd.DataFrame, masks: list[np.ndarray], run: JsonObject
) -> str:
    """Return a hash of the objects' content, from which their UIDs are made."""
    # Times, paths and settings are not part of the hash: a later run with the same result must give
    # the same UIDs.
    column_names = [
        "roi_id",
        "belief",
        "probability",
        "probability_of",
        *RANGE,
        "decision",
        "patient_probability",
        "patient_decision",
    ]
    csv_text = scored[[name for name in column_names if name in scored]].to_csv(index=False)
    origin = json.dumps([study.study_id, algorithm(run)], sort_keys=True)
    # The masks are part of the hash, because a region that is drawn anew may have exactly the same
    # probability.
    packed_masks = np.packbits(np.stack(masks)).tobytes()
    return hashlib.sha256((csv_text + origin).encode() + packed_masks).hexdigest()


def _segmentation(results: StudyResults) -> highdicom.seg.Segmentation:
    """Return the SEG object of a study: one segment for each region, as a person drew it."""
    source = results.source
    segments = []
    for number, row in enumerate(results.scored.itertuples(), start=1):
        segments.append(
            highdicom.seg.SegmentDescription(
                segment_number=number,
                segment_label=objects.long_string(str(row.roi_id)),
                segmented_property_category=codes.SCT.MorphologicallyAbnormalStructure,
                segmented_property_type=codes.SCT.Lesion,
                algorithm_type=highdicom.seg.SegmentAlgorithmTypeValues.MANUAL,
                tracking_uid=uid(results.study.study_id, row.roi_id),
                tracking_id=str(row.roi_id),
                anatomic_regions=[codes.SCT.Prostate],
            )
        )
    masks = np.stack(results.masks, axis=-1).astype(np.uint8)  # the last axis is the segment
    return highdicom.seg.Segmentation(
        source.headers,
        # The slices of the masks get the order of the source's images, which need not be the order
        # along z.
        masks[list(source.planes)],
        highdicom.seg.SegmentationTypeValues.BINARY,
        segments,
        manufacturer_model_name=OWN_MODEL_NAME,
        software_versions=results.identity[:16],
        device_serial_number="0",
        content_label="ROI",
        content_description="Regions of interest",
        **objects.heading("SEG", results.identity),
    )
