"""Name every file of a run folder once, and the one module that writes it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cad.errors import CadError
from cad.folders import Kind
from cad.folders.lock import LOCK
from cad.reading import read_json

WRITERS = {
    "lock": "cad.folders.lock",
    "memory": "cad.execution.resume",
    "log": "cad.execution.resume",
    "study": "cad.stages.study",
    "features": "cad.stages.extract",
    "fold_features": "cad.model.fold_features",
    "labels": "cad.stages.aggregate",
    "map_image": "cad.recipes.probability_map",
    "map_display": "cad.recipes.probability_map",
    "probabilities": "cad.stages.emit",
    "patients": "cad.stages.emit",
    "explanations": "cad.stages.emit",
    "metrics": "cad.stages.emit",
    "failures": "cad.stages.emit",
    "record": "cad.stages.emit",
    "validation": "cad.stages.emit",
    "complete": "cad.stages.emit",
    "suggestions": "cad.recipes.suggest",
    "comparison": "cad.recipes.compare",
    "page": "cad.reports.pages",
    "figure": "cad.reports.pages",
}
"""Attribute of :class:`RunFolder` to the module that alone writes such a file."""


class _File:
    """Give the path of a file that every run folder has at most one of."""

    def __init__(self, name: str) -> None:
        self.name = name

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

    # The file that keeps other runs out.
    lock = _File(LOCK)
    # The JSON lines that say what became of every study, for the next run.
    memory = _File("resume.jsonl")
    # The JSON lines that say what was done and how long it took.
    log = _File("log.jsonl")
    # The feature table, one row a region.
    features = _File("features.parquet")
    # The label table: what readers and histology say of every region.
    labels = _File("labels.parquet")
    # The result table, one row a region.
    probabilities = _File("probabilities.csv")
    # The result table, one row a man.
    patients = _File("patients.csv")
    # Which features moved each region's decision value.
    explanations = _File("explanations.csv")
    # The measures of the whole run.
    metrics = _File("metrics.json")
    # The studies and regions that failed.
    failures = _File("failures.csv")
    # Settings, versions, inputs and timings.
    record = _File("run.json")
    # The validation as text for a reviewer.
    validation = _File("validation.md")
    # The mark that everything above is whole and what it was made from.
    complete = _File(".complete")
    # The regions to have read next.
    suggestions = _File("suggestions.csv")
    # The comparison of models or pipelines.
    comparison = _File("comparison.json")
    # The folder of the pages.
    report = _File("report")

    def study(self, study_id: str) -> Path:
        """Return one study's features, slices, curves and fits."""
        return self.root / "studies" / f"{study_id}.npz"

    def fold_features(self, key: str) -> Path:
        """Return T2 features measured on one fold's scale."""
        return self.root / "folds" / f"{key}.npy"

    def map_image(self, study_id: str) -> Path:
        """Return the probability over the gland as an image on the T2 grid."""
        return self.root / "maps" / f"{study_id}_probability.nii.gz"

    def map_display(self, study_id: str) -> Path:
        """Return the same on the slices that the page shows, with the model's name."""
        return self.root / "maps" / f"{study_id}_display.npz"

    def page(self, name: str) -> Path:
        """Return one page."""
        return self.report / name

    def figure(self, name: str) -> Path:
        """Return one figure of the index page."""
        return self.root / "figures" / f"{name}.svg"


def of_every_run(folder: RunFolder) -> list[Path]:
    """Return the files that every run has, whatever command made it.

    Parameters
    ----------
    folder : RunFolder
        The run.
    """
    return [
        getattr(folder, name)
        for name, module in WRITERS.items()
        if module.startswith("cad.stages.") and isinstance(vars(RunFolder)[name], _File)
    ]


def _is_result(command: str) -> Callable[[Path], bool]:
    """Recognise a run that an earlier version wrote; before its end it does not say of what."""

    def holds(root: Path) -> bool:
        folder = RunFolder(root)
        try:
            record = read_json(folder.record)
        except (OSError, CadError):
            return folder.memory.is_file()
        return "cad_version" in record and record.get("kind") == command

    return holds


RUNS = {
    command: Kind(f"result of `cad {command}`", _is_result(command))
    for command in ("run", "train", "predict")
}
"""What a run folder may be of, by the command."""

COMPARISON = Kind("comparison", lambda root: RunFolder(root).comparison.is_file())
