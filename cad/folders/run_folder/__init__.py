"""Read and write a run folder, the folder that a run writes: the path and content of each file."""

from cad.folders.run_folder.folder import COMPARISON, RUNS, RunFolder

__all__ = ["COMPARISON", "RUNS", "RunFolder"]
