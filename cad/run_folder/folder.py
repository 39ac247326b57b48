"""Name every file of a run folder once, and the one module that writes it."""

from __future__ import annotations

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


@dataclass(frozen=True)
class RunFolder:
    """Give the path of everything that a run writes.

    Parameters
    ----------
    root : Path
        The run folder.
    """

    root: Path

    @property
    def lock(self) -> Path:
        """Return the file that keeps other runs out."""
        return self.root / LOCK

    @property
    def memory(self) -> Path:
        """Return the JSON lines that say what became of every study, for the next run."""
        return self.root / "resume.jsonl"

    @property
    def log(self) -> Path:
        """Return the JSON lines that say what was done and how long it took."""
        return self.root / "log.jsonl"

    def study(self, study_id: str) -> Path:
        """Return one study's features, slices, curves and fits."""
        return self.root / "studies" / f"{study_id}.npz"

    @property
    def features(self) -> Path:
        """Return the feature table, one row a region."""
        return self.root / "features.parquet"

    def fold_features(self, key: str) -> Path:
        """Return T2 features measured on one fold's scale."""
        return self.root / "folds" / f"{key}.npy"

    @property
    def labels(self) -> Path:
        """Return the label table: what readers and histology say of every region."""
        return self.root / "labels.parquet"

    def map_image(self, study_id: str) -> Path:
        """Return the probability over the gland as an image on the T2 grid."""
        return self.root / "maps" / f"{study_id}_probability.nii.gz"

    def map_display(self, study_id: str) -> Path:
        """Return the same on the slices that the page shows, with the model's name."""
        return self.root / "maps" / f"{study_id}_display.npz"

    @property
    def probabilities(self) -> Path:
        """Return the result table, one row a region."""
        return self.root / "probabilities.csv"

    @property
    def patients(self) -> Path:
        """Return the result table, one row a man."""
        return self.root / "patients.csv"

    @property
    def explanations(self) -> Path:
        """Return which features moved each region's decision value."""
        return self.root / "explanations.csv"

    @property
    def metrics(self) -> Path:
        """Return the measures of the whole run."""
        return self.root / "metrics.json"

    @property
    def failures(self) -> Path:
        """Return the studies and regions that failed."""
        return self.root / "failures.csv"

    @property
    def record(self) -> Path:
        """Return settings, versions, inputs and timings."""
        return self.root / "run.json"

    @property
    def validation(self) -> Path:
        """Return the validation as text for a reviewer."""
        return self.root / "validation.md"

    @property
    def complete(self) -> Path:
        """Return the mark that everything above is whole and what it was made from."""
        return self.root / ".complete"

    @property
    def suggestions(self) -> Path:
        """Return the regions to have read next."""
        return self.root / "suggestions.csv"

    @property
    def comparison(self) -> Path:
        """Return the comparison of models or pipelines."""
        return self.root / "comparison.json"

    @property
    def report(self) -> Path:
        """Return the folder of the pages."""
        return self.root / "report"

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
        if module.startswith("cad.stages.") and isinstance(getattr(RunFolder, name), property)
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
