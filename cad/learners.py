"""Learners as scikit-learn estimators, by the public names of :mod:`cad.learning.learners`.

A learner's module is imported when its name is first asked for; type checkers read the stub.
"""

from cad.learning import learners as _learners
from cad.learning.learners import __all__ as __all__


def __getattr__(name: str) -> object:
    return getattr(_learners, name)


def __dir__() -> list[str]:
    return dir(_learners)
