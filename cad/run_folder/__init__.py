"""The one door to a run on disk: every artefact's path, and its typed writing and reading."""

from cad.run_folder.folder import RunFolder

__all__ = ["RunFolder"]
