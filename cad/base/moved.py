"""Say where the modules of version 0.1 are, for scripts that were written for that version."""

from collections.abc import Sequence
from types import ModuleType

MOVED = {
    "cad.api": "cad.run.api",
    "cad.audit": "cad.run.audit",
    "cad.cohort": "cad.folders.cohort",
    "cad.columns": "cad.mri.columns",
    "cad.errors": "cad.base.errors",
    "cad.execution": "cad.run.execution",
    "cad.experiments": "cad.evidence.experiments",
    "cad.features": "cad.mri.features",
    "cad.files": "cad.base.files",
    "cad.imaging": "cad.mri.imaging",
    "cad.labels": "cad.learning.labels",
    "cad.logistic": "cad.learning.logistic",
    "cad.model": "cad.run.model",
    "cad.node": "cad.hospital.node",
    "cad.phantom": "cad.evidence.phantom",
    "cad.pipeline": "cad.run.pipeline",
    "cad.processes": "cad.base.processes",
    "cad.reader_study": "cad.hospital.reader_study",
    "cad.reading": "cad.base.reading",
    "cad.reports": "cad.run.reports",
    "cad.run_folder": "cad.folders.run_folder",
    "cad.settings": "cad.base.settings",
    "cad.share": "cad.base.share",
    "cad.stages": "cad.run.stages",
    "cad.tables": "cad.run.tables",
    "cad.terms": "cad.base.terms",
    "cad.transactions": "cad.base.transactions",
    "cad.workflows": "cad.run.workflows",
}
"""Modules of version 0.1, and the module or package that has their code now."""


def where_it_is(name: str) -> str:
    """Return the sentence on a module of version 0.1.

    Parameters
    ----------
    name : str
        A key of ``MOVED``.
    """
    return (
        f"{name} of version 0.1 is {MOVED[name]} since version 1.0 and may move again; "
        f"dir(cad) lists the names that stay, such as cad.CadError"
    )


class MovedModules:
    """Refuse the import of a module of version 0.1 with its new name.

    The class is the last entry of ``sys.meta_path``, so Python asks it only for modules that do not
    exist.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        """Raise the error for a moved module, and leave every other name to Python.

        Parameters
        ----------
        name : str
            Full name of the module that is imported.
        path : sequence of str, optional
            Where the parent package looks for modules; not used.
        target : module, optional
            Module that is reloaded; not used.

        Raises
        ------
        ModuleNotFoundError
            When version 0.1 had the module under this name.
        """
        if name in MOVED:
            # The error is raised without its attribute `name`. With it, `from cad import errors`
            # would drop this error and raise one that does not say where the module is now.
            raise ModuleNotFoundError(where_it_is(name))
