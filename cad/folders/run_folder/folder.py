"""Name every file of a run folder, and for each file the one module that writes it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cad.base.errors import CadError
from cad.base.reading import read_json
from cad.base.transactions import FolderKind
from cad.base.transactions.lock import LOCK


class _File:
    """Give the path of a file of which a run folder has at most one."""

    def __init__(self, name: str, writer: str, always: bool = True) -> None:
        """Keep the file's name, the module that writes it, and whether each such run has it."""
        self.name = name
        self.writer = writer
        self.always = always

    def __get__(self, folder: "RunFolder", owner: type | None = None) -> Path:
        return folder.root / self.name


@dataclass(frozen=True)
class RunFolder:
    """Give the path of everything that a run writes.

    Parameters
    ----------
    root : Path
        The run folder.
    """

    root: Path

    # Lock: while a process writes into the folder, this file keeps other processes from writing.
    lock = _File(LOCK, "cad.base.transactions.lock")
    # Outcome of every study, a JSON line each. A run that was stopped continues from these lines.
    memory = _File("resume.jsonl", "cad.run.execution.resume")
    # Each step of the run and the time that the step took, a JSON line each.
    log = _File("log.jsonl", "cad.run.execution.resume")
    # The features that were measured, one row per region.
    features = _File("features.parquet", "cad.run.stages.extract")
    # The label table: the labels of every region, from readers and histology.
    labels = _File("labels.parquet", "cad.run.stages.aggregate")
    # The results of the regions, one row per region.
    probabilities = _File("probabilities.csv", "cad.run.stages.emit")
    # The results of the men, one row per man.
    patients = _File("patients.csv", "cad.run.stages.emit")
    # For each region: the features with the largest effect on its decision value.
    explanations = _File("explanations.csv", "cad.run.stages.emit")
    # For men with several studies: each region of the latest study, with the nearest region of the
    # study before.
    earlier = _File("earlier.csv", "cad.run.stages.emit", always=False)
    # Measures of the whole run, such as the AUC of the learner.
    metrics = _File("metrics.json", "cad.run.stages.emit")
    # The studies and regions that failed.
    failures = _File("failures.csv", "cad.run.stages.emit")
    # Settings, versions and inputs of the run, and the time that its steps took.
    record = _File("run.json", "cad.run.stages.emit")
    # The result of the validation of the learner, as text for a reviewer.
    validation = _File("validation.md", "cad.run.stages.emit")
    # Mark of a finished run: it says that all results of the run are whole. It holds a hash of the
    # run's inputs.
    complete = _File(".complete", "cad.run.stages.emit")
    # The regions that readers should score next.
    suggestions = _File("suggestions.csv", "cad.run.workflows.suggest")
    # The failures that somebody has acknowledged, each with a reason.
    acknowledged = _File("acknowledged.csv", "cad.folders.run_folder.known_failures")
    # The failures that a command has reported, each with the time of the first report.
    told = _File("told.csv", "cad.folders.run_folder.known_failures")
    # The comparison of several models (`cad model compare`) or pipelines (`cad compare`).
    comparison = _File("comparison.json", "cad.run.workflows.compare")

    @property
    def report(self) -> Path:
        """Return the path of the folder with the HTML pages."""
        return self.root / "report"

    @property
    def objects(self) -> Path:
        """Return the path of the folder with the DICOM objects (``cad report --dicom``)."""
        return self.root / "dicom"

    @property
    def bundles(self) -> Path:
        """Return the path of the folder with the FHIR bundles (``cad report --fhir``)."""
        return self.root / "fhir"

    def study(self, study_id: str) -> Path:
        """Return the path of one study's npz file: features, slices, curves and fits."""
        return self.root / "studies" / f"{study_id}.npz"

    def fold_features(self, key: str) -> Path:
        """Return the path of the T2 features that were measured on one fold's intensity scale.

        ``key`` identifies that scale (:attr:`cad.mri.imaging.standardise.NyulScale.key`).
        """
        return self.root / "folds" / f"{key}.npy"

    def map_image(self, study_id: str) -> Path:
        """Return the path of a study's probability map, a NIfTI image on the T2 grid."""
        return self.root / "maps" / f"{study_id}_probability.nii.gz"

    def map_display(self, study_id: str) -> Path:
        """Return the path of the npz file with a study's probability map, as the study's page shows
        it.
        """
        return self.root / "maps" / f"{study_id}_display.npz"

    def page(self, name: str) -> Path:
        """Return the path of a page by its file name."""
        return self.report / name

    def figure(self, name: str) -> Path:
        """Return the path of a figure of the index page, by its name without ``.svg``."""
        return self.root / "figures" / f"{name}.svg"


WRITERS = {
    **{name: file.writer for name, file in vars(RunFolder).items() if isinstance(file, _File)},
    "study": "cad.run.stages.study",
    "fold_features": "cad.run.model.fold_features",
    "map_image": "cad.run.workflows.probability_map",
    "map_display": "cad.run.workflows.probability_map",
    "page": "cad.run.reports.pages",
    "figure": "cad.run.reports.pages",
}
"""Name of the module that writes each file, by the attribute of :class:`RunFolder`."""


def of_every_run(folder: RunFolder) -> list[Path]:
    """Return the paths of the files that every run has, whichever command made the run.

    Parameters
    ----------
    folder : RunFolder
        The run.
    """
    paths = []
    for name, file in vars(RunFolder).items():
        if not isinstance(file, _File) or not file.always:
            continue
        # Files of other writers belong to one command, or are made while the run is going on.
        if file.writer.startswith("cad.run.stages."):
            paths.append(getattr(folder, name))
    return paths


def _is_result(command: str) -> Callable[[Path], bool]:
    """Return a function that recognises the run of a command in a folder without a mark.

    Earlier versions of the program did not mark a folder with its kind. A finished run of such a
    version is recognised by the command that its ``run.json`` names. An unfinished run has no
    ``run.json`` yet, and is recognised by ``resume.jsonl``.
    """

    def holds(root: Path) -> bool:
        """Tell whether ``root`` is a run of the command."""
        folder = RunFolder(root)
        try:
            record = read_json(folder.record)
        except (OSError, CadError):  # the run is not finished, and its command is not known
            return folder.memory.is_file()
        return "cad_version" in record and record.get("kind") == command

    return holds


RUNS = {
    command: FolderKind(f"result of `cad {command}`", _is_result(command))
    for command in ("run", "train", "predict")
}
"""Kinds of run folder, by the command that writes them."""

COMPARISON = FolderKind("comparison", lambda root: RunFolder(root).comparison.is_file())
