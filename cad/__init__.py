"""Probability of malignancy for regions of interest in prostate multiparametric MRI.

A public name is loaded only when a program first uses it, so that a command starts at once. The
public names are:

- the functions ``read_cohort, measure, consensus, default_learner, validate, save_model,
  load_model, predict`` and their types,
- the exception ``CadError``,
- the modules ``plot, learners, evaluation``.
"""

import sys

from cad.base.renamed import RenamedModules, renamed_module
from cad.base.version import __version__

sys.meta_path.insert(0, RenamedModules())

_MODULES = ("plot", "learners", "evaluation")
_NAMES = (
    "Belief",
    "Bundle",
    "CadError",
    "Cohort",
    "Table",
    "Validation",
    "consensus",
    "default_learner",
    "load_model",
    "measure",
    "predict",
    "read_cohort",
    "save_model",
    "validate",
)
__all__ = [*_NAMES, *_MODULES, "__version__"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES or renamed_module(f"cad.{name}"):
        return import_module(f"cad.{name}")
    if name in _NAMES:
        return getattr(import_module("cad.run.api"), name)
    raise AttributeError(f"module 'cad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
