"""Compute one study: import, predict, and make the objects for the archive.

:func:`compute` runs in a supervised process (:class:`cad.run.execution.pool.Caller`), whose limits
apply to the study as a whole. The process therefore starts no further processes. Large modules are
imported late, because the receiving process does not need them.
"""

import logging
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cad.base.errors import CadError
from cad.base.files import make_folder, write_atomic
from cad.base.settings import DecisionSettings, read_settings
from cad.base.share import find
from cad.base.transactions import owned
from cad.folders.cohort import patients, read_cohort
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import read_failures
from cad.hospital.node.inbox import STUDIES
from cad.hospital.node.names import node_key
from cad.hospital.node.settings import NodeSettings
from cad.run.execution.options import HERE
from cad.run.execution.worker import Confined

RULES = "configs/import"
COHORT = "cohort"
RUN = "run"
DECISIONS = "configs/decision"
MODELS = "models"
WATCH = "watch"
_SCRATCH = ".scratch"
# Modules that a computing process imports before it loses the right to write outside the node's
# folder. Importing them makes numba store compiled code beside the module's file, which is outside.
_LOADED = (
    "cad.run.pipeline",
    "cad.run.workflows.delivery",
    "cad.run.workflows.imports",
    "cad.run.workflows.watch",
    "cad.dicom.into.conversion",
    "cad.dicom.into.file_cohort",
    "cad.mri.imaging.pixels",
    "scipy.ndimage",
    "pydicom.pixels",
    "nibabel",
    "matplotlib.pyplot",
)


def may_open(settings: NodeSettings) -> Confined:
    """Return which files a process that computes studies may open.

    The process may read the node's folder, the import rules, the file with the costs of decisions
    and the models. It may write to two folders of the node: the folder of the studies' results, and
    the folder of the numbers by which models are compared. These two folders are made if they are
    missing. The process may not change the queue or the received images. All other files are denied
    if the kernel has Landlock, by which Linux can deny a process access to files.

    Parameters
    ----------
    settings : NodeSettings
        All settings of the node.
    """
    wanted = [(RULES, settings.rules, ".yaml")]  # folder, name and suffix of each file
    if settings.decision is not None:
        wanted.append((DECISIONS, settings.decision, ".yaml"))
    models = (*settings.models.champion, *settings.models.shadow)
    wanted += [(MODELS, model, "") for model in models]
    readable = [settings.home]
    for folder, name, suffix in wanted:
        with suppress(CadError, OSError):  # the function `ready` reports missing files
            readable.append(find(folder, name, suffix))
    writable = (settings.home / STUDIES, settings.home / WATCH)
    for folder_of_results in writable:
        make_folder(folder_of_results, mode=0o700)
    return Confined(read=tuple(readable), write=writable, modules=_LOADED)


def ready(settings: NodeSettings) -> None:
    """Read the import rules, the costs and the models of a node, to check that they can be used.

    Parameters
    ----------
    settings : NodeSettings
        All settings of the node.

    Raises
    ------
    CadError
        The message names the file that cannot be used.
    """
    from cad.dicom.into.rules import ImportRules
    from cad.run.model.bundle import load_bundle

    read_settings(ImportRules, find(RULES, settings.rules, ".yaml"))
    if settings.decision is not None:
        read_settings(DecisionSettings, find(DECISIONS, settings.decision, ".yaml"))
    for model in (*settings.models.champion, *settings.models.shadow):
        load_bundle(find(MODELS, model))


def compute(settings: NodeSettings, incoming: Path, work: Path) -> tuple[int, float]:
    """Import a study that has arrived, score its regions and write the results for the archive.

    Parameters
    ----------
    settings : NodeSettings
        All settings of the node; import rules, models and costs are read.
    incoming : Path
        The study's folder of received files.
    work : Path
        The study's folder; ``cohort``, ``run`` and ``run/dicom`` are written below it.

    Returns
    -------
    int
        Number of DICOM objects made; 0 if the study awaits its regions.
    float
        Duration in seconds.

    Raises
    ------
    CadError
        For the first problem that prevents a result. A region without a probability is such a
        problem only if no other region has one.
    """
    from cad.run.pipeline import predict_cohort
    from cad.run.workflows.delivery import deliver
    from cad.run.workflows.imports import import_cohort

    logging.disable()  # messages of libraries may quote DICOM headers, which name patients
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    # Without this check the system would raise an OSError later. The node would take that error for
    # a fault of the machine, such as a full disk, and would wait until the machine works again.
    if work.exists() and not work.is_dir():
        raise CadError("no folder, where the study's results belong", file=work, hint="delete it")
    with _scratch(work):
        cohort = work / COHORT
        run = work / RUN
        # The import never changes an image that the cohort already has. An image that was imported
        # before all its slices had come would stay incomplete. The cohort is therefore deleted and
        # imported again.
        if cohort.is_dir():
            with owned(cohort):  # an error if a process of a killed node still uses the cohort
                pass
            shutil.rmtree(cohort)
        # The cohort of every study of the node gets the same secret key. So a man has the same
        # pseudonym in all of them.
        write_atomic(cohort / patients.KEY_FILE, node_key(settings.home), mode=0o600)
        imported = import_cohort(str(incoming), cohort, find(RULES, settings.rules, ".yaml"), HERE)
        _raise_first(imported.failures)
        if imported.awaiting:
            return 0, time.perf_counter() - start
        # `problems` has only the problems of the cohort's tables. Problems of its images are
        # reported by the import and by the prediction.
        _raise_first(read_cohort(cohort).problems)
        models = list(settings.models.champion)
        prediction = predict_cohort(models, cohort, run, HERE, decision=settings.decision)
        failures_of_study = []
        for failure in [*prediction.failures, *prediction.kinds.waiting]:
            if not failure.roi_id:  # the failure of one region does not stop the others
                failures_of_study.append(CadError(failure.reason, hint=failure.hint))
        _raise_first(failures_of_study)
        with owned(run):
            archive = settings.archive
            # The objects are only written here. The node's service sends them.
            _, failures = deliver(
                run,
                cohort,
                send=None,
                aet="",
                pdf=archive.pdf,
                capture=archive.capture,
                language=archive.language,
            )
        _raise_first(failures)
        return len(objects(work)), time.perf_counter() - start


@contextmanager
def _scratch(work: Path) -> Iterator[None]:
    """Put temporary files into the study's folder while the block runs.

    If the process is killed, the files that it leaves are removed with the study.
    """
    usual_folder = tempfile.tempdir
    folder = work / _SCRATCH
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder, mode=0o700)
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = usual_folder
        shutil.rmtree(folder, ignore_errors=True)


def keep_watch(settings: NodeSettings, work: Path) -> list[str]:
    """Score a computed study with the shadow models, and keep the numbers of all models.

    Shadow models are on trial beside the champion, the model whose results people see. Only their
    numbers are kept, in ``watch/KEY.json`` of the node, and no page or DICOM object is made. In
    place of the man's label and the ids of his regions the file has keys. Nobody can tell from a
    key whose it is without the node's secret.

    Parameters
    ----------
    settings : NodeSettings
        All settings of the node; champion and shadow models are read.
    work : Path
        The study's folder of cohort and run, named by its key.

    Returns
    -------
    list of str
        Shadow models that could not score the study.
    """
    from cad.hospital.node.pseudonyms import hidden_rows
    from cad.run.pipeline import watch_cohort
    from cad.run.workflows.watch import write_rows

    logging.disable()  # messages of libraries may quote DICOM headers, which name patients
    warnings.simplefilter("ignore")
    models = settings.models
    # The temporary files are in the study's folder, so that files which a killed process leaves
    # are removed together with the study.
    with tempfile.TemporaryDirectory(prefix="shadow-", dir=work) as scratch:
        rows, failed_models = watch_cohort(
            models.champion, models.shadow, work / COHORT, work / RUN, Path(scratch)
        )
    watch_folder = settings.home / WATCH
    make_folder(watch_folder, mode=0o700)
    write_rows(watch_folder / f"{work.name}.json", hidden_rows(settings.home, rows))
    return failed_models


def without_probability(work: Path) -> CadError | None:
    """Return an error that names a study's regions without a probability; None if all have one.

    Parameters
    ----------
    work : Path
        Folder of the study, with its cohort folder and its run folder.
    """
    try:
        failures = read_failures(RunFolder(work / RUN))
    except (CadError, OSError):  # a run folder from an incomplete backup may lack files
        return None
    if not failures:
        return None
    listed = "; ".join(f"ROI {failure.roi_id}: {failure.reason}" for failure in failures)
    return CadError(f"a region has no probability: {listed}")


def objects(work: Path) -> list[Path]:
    """Return the files of the DICOM objects that a study's result consists of.

    Parameters
    ----------
    work : Path
        Folder of the study, with its cohort folder and its run folder.
    """
    return sorted(RunFolder(work / RUN).objects.glob("*.dcm"))


def _raise_first(problems: list[CadError]) -> None:
    if problems:
        raise problems[0]
