"""Do the work of ``cad warm``: run every function that numba compiles, so that numba caches it."""

from pathlib import Path
from tempfile import TemporaryDirectory

from cad.base.settings import PipelineSettings
from cad.evidence.phantom import simulate
from cad.folders.cohort import read_cohort
from cad.learning.learners.warm import warm
from cad.run.execution.task import StudyTask
from cad.run.stages.study import process_study


def warm_up() -> None:
    """Fill numba's cache: run every compiled function once, so that no later command compiles."""
    warm()
    settings = PipelineSettings(name="warm")
    with TemporaryDirectory() as folder:
        root = Path(folder) / "cohort"
        simulate(root, patients=1, seed=0, light=True)
        for ref in read_cohort(root).studies():
            process_study(StudyTask(ref, settings, Path(folder)))
