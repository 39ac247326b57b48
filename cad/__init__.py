"""Probability of malignancy for regions of interest in prostate multiparametric MRI.

A public name is loaded only when a program first uses it, so that a command starts at once. The
public names are:

- the functions ``read_cohort, measure, consensus, default_learner, validate, save_model,
  load_model, predict`` and their types,
- the exception ``CadError``,
- the modules ``plot, learners, evaluation``.
"""

import sys

from cad.base.moved import MOVED, MovedModules, where_it_is
from cad.base.version import __version__

sys.meta_path.append(MovedModules)

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

    if name in _MODULES:
        return import_module(f"cad.{name}")
    if name in _NAMES:
        return getattr(import_module("cad.run.api"), name)
    if f"cad.{name}" in MOVED:
        raise AttributeError(where_it_is(f"cad.{name}"))
    raise AttributeError(f"module 'cad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
