"""Compute one study: import, predict, and the objects for the archive.

:func:`compute` runs in a supervised process (:class:`cad.run.execution.pool.Caller`), whose limits
hold for the study as a whole; everything in it is done there and then. Heavy modules are
imported late, because the process that receives has no use for them.
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

RULES, COHORT, RUN = "configs/import", "cohort", "run"
DECISIONS, MODELS = "configs/decision", "models"
WATCH = "watch"
_SCRATCH = ".scratch"
# Loaded before a process can write nowhere else: what is compiled is noted beside its module.
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
    """Return what a process that computes studies may open, where the kernel has Landlock.

    It reads the node's folder, the rules, the costs and the models; it writes results and what is
    kept for comparisons, and neither the queue nor the received images. The folders are made.

    Parameters
    ----------
    settings : NodeSettings
        All settings of the node.
    """
    names = [(RULES, settings.rules, ".yaml")]
    if settings.decision is not None:
        names.append((DECISIONS, settings.decision, ".yaml"))
    models = (*settings.models.champion, *settings.models.shadow)
    names += [(MODELS, model, "") for model in models]
    read = [settings.home]
    for folder, name, suffix in names:
        with suppress(CadError, OSError):  # `ready` says what is not there
            read.append(find(folder, name, suffix))
    write = (settings.home / STUDIES, settings.home / WATCH)
    for folder_of_results in write:
        make_folder(folder_of_results, mode=0o700)
    return Confined(tuple(read), write, _LOADED)


def ready(settings: NodeSettings) -> None:
    """Read the import rules, the costs and the models of a node, to check that they can be used.

    Parameters
    ----------
    settings : NodeSettings
        All settings of the node.

    Raises
    ------
    CadError
        Naming what cannot be used.
    """
    from cad.dicom.into.rules import ImportRules
    from cad.run.model.bundle import load_bundle

    read_settings(ImportRules, find(RULES, settings.rules, ".yaml"))
    if settings.decision is not None:
        read_settings(DecisionSettings, find(DECISIONS, settings.decision, ".yaml"))
    for model in (*settings.models.champion, *settings.models.shadow):
        load_bundle(find(MODELS, model))


def compute(settings: NodeSettings, incoming: Path, work: Path) -> tuple[int, float]:
    """Import a study that has arrived, predict its regions and write the results for the archive.

    Parameters
    ----------
    settings : NodeSettings
        Rules, models and costs.
    incoming : Path
        The study's folder of received files.
    work : Path
        The study's folder; ``cohort``, ``run`` and ``run/dicom`` are written below it.

    Returns
    -------
    int
        Number of DICOM objects made; 0 where the study awaits its regions.
    float
        Seconds that it took.

    Raises
    ------
    CadError
        For the first problem that prevents a result. A region without a probability is no such
        problem while another region has one.
    """
    from cad.run.pipeline import predict_cohort
    from cad.run.workflows.delivery import deliver
    from cad.run.workflows.imports import import_cohort

    logging.disable()  # what libraries say quotes headers
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    if work.exists() and not work.is_dir():  # would be waited out as the machine's trouble
        raise CadError("no folder, where the study's results belong", file=work, hint="delete it")
    with _scratch(work):
        cohort, run = work / COHORT, work / RUN
        # Made anew: of an image that was imported before all of it had come, the rest would be
        # missing.
        if cohort.is_dir():
            with owned(cohort):  # refused where a worker of a killed node is still at it
                pass
            shutil.rmtree(cohort)
        # One pseudonym in all studies of the node.
        write_atomic(cohort / patients.KEY_FILE, node_key(settings.home), mode=0o600)
        imported = import_cohort(str(incoming), cohort, find(RULES, settings.rules, ".yaml"), HERE)
        _first(imported.failures)
        if imported.awaiting:
            return 0, time.perf_counter() - start
        _first(
            read_cohort(cohort).problems
        )  # of the images import and prediction say what is wrong
        models = list(settings.models.champion)
        prediction = predict_cohort(models, cohort, run, HERE, decision=settings.decision)
        _first([CadError(f.reason, hint=f.hint) for f in prediction.failures if not f.roi_id])
        with owned(run):
            archive = settings.archive
            _, failures = deliver(
                run,
                cohort,
                None,
                "",
                pdf=archive.pdf,
                capture=archive.capture,
                language=archive.language,
            )
        _first(failures)
        return len(objects(work)), time.perf_counter() - start


@contextmanager
def _scratch(work: Path) -> Iterator[None]:
    """Let temporary files lie in the study's folder, where what a kill leaves is swept with it."""
    usual = tempfile.tempdir
    folder = work / _SCRATCH
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder, mode=0o700)
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = usual
        shutil.rmtree(folder, ignore_errors=True)


def keep_watch(settings: NodeSettings, work: Path) -> list[str]:
    """Have the shadow models score a computed study, and keep what every model said of it.

    Only numbers are kept, in ``watch/KEY.json`` of the node, under keys: no page, no object.

    Parameters
    ----------
    settings : NodeSettings
        Champion and shadow models.
    work : Path
        The study's folder of cohort and run, named by its key.

    Returns
    -------
    list of str
        Shadow models that could not score the study.
    """
    from cad.hospital.node.kept import hidden_rows
    from cad.run.pipeline import watch_cohort
    from cad.run.workflows.watch import write_rows

    logging.disable()
    warnings.simplefilter("ignore")
    models = settings.models
    # Within the study's folder: what a kill leaves is swept with it.
    with tempfile.TemporaryDirectory(prefix="shadow-", dir=work) as scratch:
        rows, failed = watch_cohort(
            models.champion, models.shadow, work / COHORT, work / RUN, Path(scratch)
        )
    place = settings.home / WATCH
    make_folder(place, mode=0o700)
    write_rows(place / f"{work.name}.json", hidden_rows(settings.home, rows))
    return failed


def without_probability(work: Path) -> CadError | None:
    """Return an error that names a study's regions without a probability; None where all have one.

    Parameters
    ----------
    work : Path
        The study's folder of cohort and run.
    """
    try:
        failures = read_failures(RunFolder(work / RUN))
    except (CadError, OSError):  # it came back from a backup in part
        return None
    named = "; ".join(f"ROI {f.roi_id}: {f.reason}" for f in failures)
    return CadError(f"a region has no probability: {named}") if failures else None


def objects(work: Path) -> list[Path]:
    """Return the files of the DICOM objects that a study's result consists of.

    Parameters
    ----------
    work : Path
        The study's folder of cohort and run.
    """
    return sorted(RunFolder(work / RUN).objects.glob("*.dcm"))


def _first(problems: list[CadError]) -> None:
    if problems:
        raise problems[0]
