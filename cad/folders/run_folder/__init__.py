"""Read and write a run folder: the path of every file, and typed reading and writing."""

from cad.folders.run_folder.folder import COMPARISON, RUNS, RunFolder

__all__ = ["COMPARISON", "RUNS", "RunFolder"]
