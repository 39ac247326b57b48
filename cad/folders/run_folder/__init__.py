"""The one door to a run on disk: every artefact's path, and its typed writing and reading."""

from cad.folders.run_folder.folder import COMPARISON, RUNS, RunFolder

__all__ = ["COMPARISON", "RUNS", "RunFolder"]
