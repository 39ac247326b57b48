"""Accept names of earlier versions for a time, and tell the user which name to use instead."""

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Literal


@dataclass(frozen=True)
class Renamed:
    """Hold a name that changed.

    Parameters
    ----------
    kind : {"module", "setting"}
        A module or package, or a key of a pipeline file.
    old, new : str
        The earlier name and the present one. A key of a pipeline file stands after its section,
        with a point between them.
    since : str
        Version in which the present name came.
    until : str
        First version that no longer accepts the old name.
    """

    kind: Literal["module", "setting"]
    old: str
    new: str
    since: str = "1.0"
    until: str = "2.0"

    def __str__(self) -> str:
        return (
            f"{self.old} is {self.new} since version {self.since}: use the new name, because the "
            f"old one is accepted only before version {self.until}"
        )


RENAMED = (
    Renamed("setting", "labels.eta_min", "labels.eta0"),
    Renamed("module", "cad.api", "cad.run.api"),
    Renamed("module", "cad.audit", "cad.run.audit"),
    Renamed("module", "cad.cohort", "cad.folders.cohort"),
    Renamed("module", "cad.columns", "cad.mri.columns"),
    Renamed("module", "cad.errors", "cad.base.errors"),
    Renamed("module", "cad.evaluation.decisions", "cad.learning.evaluation.decisions"),
    Renamed("module", "cad.evaluation.folds", "cad.learning.evaluation.folds"),
    Renamed("module", "cad.evaluation.measures", "cad.learning.evaluation.measures"),
    Renamed("module", "cad.evaluation.readers", "cad.learning.evaluation.readers"),
    Renamed("module", "cad.evaluation.statements", "cad.learning.evaluation.statements"),
    Renamed("module", "cad.evaluation.summary", "cad.learning.evaluation.summary"),
    Renamed("module", "cad.execution", "cad.run.execution"),
    Renamed("module", "cad.experiments", "cad.evidence.experiments"),
    Renamed("module", "cad.features", "cad.mri.features"),
    Renamed("module", "cad.files", "cad.base.files"),
    Renamed("module", "cad.imaging", "cad.mri.imaging"),
    Renamed("module", "cad.labels", "cad.learning.labels"),
    Renamed("module", "cad.learners.averaged", "cad.learning.learners.averaged"),
    Renamed("module", "cad.learners.base", "cad.learning.learners.base"),
    Renamed("module", "cad.learners.baselines", "cad.learning.learners.baselines"),
    Renamed("module", "cad.learners.probabilistic", "cad.learning.learners.probabilistic"),
    Renamed("module", "cad.learners.ranking", "cad.learning.learners.ranking"),
    Renamed("module", "cad.learners.regressor", "cad.learning.learners.regressor"),
    Renamed("module", "cad.learners.reject", "cad.learning.learners.reject"),
    Renamed("module", "cad.learners.rivals", "cad.learning.learners.rivals"),
    Renamed("module", "cad.learners.scaling", "cad.learning.learners.scaling"),
    Renamed("module", "cad.learners.soft_labels", "cad.learning.learners.soft_labels"),
    Renamed("module", "cad.learners.solvers", "cad.learning.learners.solvers"),
    Renamed("module", "cad.learners.svm", "cad.learning.learners.svm"),
    Renamed("module", "cad.learners.trees", "cad.learning.learners.trees"),
    Renamed("module", "cad.learners.warm", "cad.learning.learners.warm"),
    Renamed("module", "cad.logistic", "cad.learning.logistic"),
    Renamed("module", "cad.model", "cad.run.model"),
    Renamed("module", "cad.node", "cad.hospital.node"),
    Renamed("module", "cad.phantom", "cad.evidence.phantom"),
    Renamed("module", "cad.pipeline", "cad.run.pipeline"),
    Renamed("module", "cad.processes", "cad.base.processes"),
    Renamed("module", "cad.reader_study", "cad.hospital.reader_study"),
    Renamed("module", "cad.reading", "cad.base.reading"),
    Renamed("module", "cad.reports", "cad.run.reports"),
    Renamed("module", "cad.run_folder", "cad.folders.run_folder"),
    Renamed("module", "cad.settings", "cad.base.settings"),
    Renamed("module", "cad.share", "cad.base.share"),
    Renamed("module", "cad.stages", "cad.run.stages"),
    Renamed("module", "cad.tables", "cad.run.tables"),
    Renamed("module", "cad.terms", "cad.base.terms"),
    Renamed("module", "cad.transactions", "cad.base.transactions"),
    Renamed("module", "cad.workflows", "cad.run.workflows"),
)
"""Every old name that is accepted; docs/migration.md shows this table to users.

Modules of version 0.1 are private and may move again. Then ``new`` names the later place.
"""


class RenamedWarning(FutureWarning):
    """Tell the user that a script or a pipeline file has a name of an earlier version."""


def with_new_keys(content: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Give the keys of a pipeline file their new names, and warn of each old one.

    Parameters
    ----------
    content : mapping
        Content of a pipeline file: sections, each a mapping of keys to values.

    Returns
    -------
    content : dict
        The content with the new names.
    notes : tuple of str
        The text of each warning.

    Raises
    ------
    ValueError
        When the file has a key under both names.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     content, notes = with_new_keys({"name": "x", "labels": {"eta_min": 0.1}})
    >>> content
    {'name': 'x', 'labels': {'eta0': 0.1}}
    >>> len(notes)
    1
    """
    renamed = dict(content)
    notes = []
    for entry in RENAMED:
        if entry.kind != "setting":
            continue
        section, old_key = entry.old.split(".")
        new_key = entry.new.removeprefix(f"{section}.")
        keys = renamed.get(section)
        # A section that is no mapping is reported later, when the settings are checked.
        if not isinstance(keys, Mapping) or old_key not in keys:
            continue
        if new_key in keys:
            raise ValueError(
                f"{entry.old} is the old name of {entry.new}, and both are given: "
                f"take {old_key} out"
            )
        # The keys keep their order.
        renamed[section] = {
            new_key if key == old_key else key: value for key, value in keys.items()
        }
        warnings.warn(str(entry), RenamedWarning, stacklevel=2)
        notes.append(str(entry))
    return renamed, tuple(notes)


def renamed_module(name: str) -> Renamed | None:
    """Return the entry of a module, or of the package that the module is in, by its old name.

    Parameters
    ----------
    name : str
        Full name of a module.

    Returns
    -------
    Renamed or None
        The entry; None for a module whose name did not change.

    Examples
    --------
    >>> renamed_module("cad.labels.pooled").new
    'cad.learning.labels'
    >>> renamed_module("cad.learners") is None
    True
    """
    if not name.startswith("cad."):
        # Python asks for every module that is imported, and most are of other packages.
        return None
    for entry in RENAMED:
        if entry.kind == "module" and f"{name}.".startswith(f"{entry.old}."):
            return entry
    return None


class RenamedModules:
    """Find modules by their old names.

    The finder is the first entry of ``sys.meta_path``. If it came later, Python would load the file
    of such a module a second time, and a class of the second module would be another class.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how an old name is imported, or None for every other name.

        Parameters
        ----------
        name : str
            Full name of the module that is imported.
        path : sequence of str, optional
            Where the parent package looks for modules; not used.
        target : module, optional
            Module that is reloaded; not used.
        """
        entry = renamed_module(name)
        if entry is None:
            return None
        present_name = entry.new + name.removeprefix(entry.old)
        if find_spec(present_name) is None:
            return None  # Python then reports that the old name does not exist
        # Python asks for the two methods of a loader; the base class would load many modules.
        return ModuleSpec(name, _PresentModule(entry, present_name))  # type: ignore[arg-type]


class _PresentModule:
    """Import a module by its present name, warn, and put it under its old name, too."""

    def __init__(self, entry: Renamed, present_name: str) -> None:
        self.entry = entry
        self.present_name = present_name

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python to make the empty module that ``exec_module`` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(self.present_name)
        # A module in a renamed package needs no warning: Python imports the package before it.
        if module.__name__ == self.entry.old:
            # Python does not count its own frames of the import, so this is the user's line.
            warnings.warn(str(self.entry), RenamedWarning, stacklevel=2)
