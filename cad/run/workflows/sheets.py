"""Write the A4 sheet of every man of a run as DICOM objects of each of his studies."""

import hashlib
from pathlib import Path

import pandas as pd

from cad.base.errors import CadError
from cad.base.files import write_atomic
from cad.base.reading import reading
from cad.dicom.out import objects
from cad.dicom.out.documents import capture_object, pdf_object
from cad.dicom.out.source_images import SourceImages, source_images
from cad.folders.cohort import StudyRef, read_cohort
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.blinding import held_back, open_results
from cad.folders.run_folder.results import Results, read_results
from cad.folders.run_folder.tables import read_probabilities
from cad.learning.evaluation.summary import Summary
from cad.run.reports.sheet import Sheet, draw_sheet
from cad.run.reports.views import list_patients
from cad.run.reports.wording import Wording

PSEUDONYM = (
    "The name above is this tool's pseudonym: name and date of birth stand in the record under "
    "which the archive files this sheet."
)


def write_sheets(
    run_dir: Path,
    cohort_root: Path,
    out: Path,
    *,
    pdf: bool = False,
    capture: bool = False,
    language: str = "en",
) -> tuple[list[Path], list[CadError]]:
    """Write ``<study>_PDF.dcm`` and ``<study>_SC_1.dcm``, … for every study of a run.

    A sheet is about the man. It is written for each of his studies that has a region in the run. A
    man whose results are held back until a reader has scored him gets no sheet.

    Parameters
    ----------
    run_dir : Path
        Run folder, with its images.
    cohort_root : Path
        The cohort that the run was made on. Its studies must have been imported from DICOM.
    out : Path
        Folder to write.
    pdf, capture : bool
        Whether to write the sheet as Encapsulated PDF, and whether as Secondary Capture.
    language : str
        Language of the sheet: ``en``, ``de`` or ``fr``.

    Returns
    -------
    list of Path
        The written files.
    list of CadError
        One error for each study whose sheet could not be written; the other sheets are written.

    Raises
    ------
    CadError
        When the run folder or the cohort cannot be read, or the run has no images.
    """
    Wording(language)  # an unknown language raises an error before anything is drawn
    results = read_results(run_dir)
    if not results.pictured:
        raise CadError("the run is of a table: without images there is no sheet", file=run_dir)
    table = read_probabilities(RunFolder(run_dir))
    patients_held_back = held_back(results)
    shown_results = open_results(results)
    with reading(shown_results.folder.metrics, "measures of another version"):
        metrics = Summary.from_dict(shown_results.metrics)
    studies = {study.study_id: study for study in read_cohort(cohort_root).studies()}
    files: list[Path] = []
    failures: list[CadError] = []
    for patient in list_patients(results):
        if patient.patient in patients_held_back:
            continue
        # All studies of a man have the same sheet, but for the line that explains his name. So a
        # sheet is drawn once for each such line.
        sheets: dict[str, Sheet] = {}
        for study_id in sorted({region.study for region in patient.regions}):
            try:
                if study_id not in studies:
                    raise CadError("the study is not in the cohort", file=cohort_root)
                study = studies[study_id]
                source = source_images(study.folder, study_id, study.participant_id)
                # Images that have the man's label as PatientID were given a pseudonym.
                line_on_name = PSEUDONYM if source.patient_id == study.participant_id else ""
                if line_on_name not in sheets:
                    sheets[line_on_name] = draw_sheet(
                        shown_results,
                        metrics,
                        patient,
                        who=line_on_name,
                        capture=capture,
                        language=language,
                    )
                rows = table[table["study_id"] == study_id]
                files += _write_objects(
                    source, study, rows, shown_results, sheets[line_on_name], out, pdf=pdf
                )
            except CadError as error:
                failures.append(error.naming(patient=patient.patient))
    return files, failures


def _write_objects(
    source: SourceImages,
    study: StudyRef,
    rows: pd.DataFrame,
    results: Results,
    sheet: Sheet,
    out: Path,
    *,
    pdf: bool,
) -> list[Path]:
    """Write the DICOM objects of one study's sheet, and return their files."""
    scored = rows[rows["probability"].notna()]
    # Where no model scored the study, the objects name all models of the run.
    run = results.run if scored.empty else objects.with_own_model(results.run, scored)
    # Equal sheets of a study get equal UIDs, so that an archive stores them once.
    identity = hashlib.sha256(f"{study.study_id}\n{sheet.identity}".encode()).hexdigest()
    datasets = {}
    # The library that writes DICOM checks values and raises errors of its own. They become a
    # CadError here.
    with reading(out, "the sheet cannot be written as DICOM"):
        if pdf:
            document = pdf_object(source, study.participant_id, sheet.pdf, run, identity)
            datasets[out / f"{study.study_id}_PDF.dcm"] = document
        for number, pixels in enumerate(sheet.pixels, start=1):
            picture = capture_object(source, study.participant_id, pixels, run, identity, number)
            datasets[out / f"{study.study_id}_SC_{number}.dcm"] = picture
    for path, dataset in datasets.items():
        write_atomic(path, objects.content(dataset))
    for path in out.glob(f"{study.study_id}_SC_*.dcm"):
        if path not in datasets:  # a sheet of an earlier result, which had more pages
            path.unlink()
    return list(datasets)
