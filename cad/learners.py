"""Learners as scikit-learn estimators, by the public names of :mod:`cad.learning.learners`.

A learner's module is imported when its name is first asked for; type checkers read the stub.
"""

from cad.learning import learners as _learners
from cad.learning.learners import __all__ as __all__

# In version 0.1 this was a package. Python looks for modules in it, such as cad.learners.svm, only
# if it has a path; cad.base.renamed finds them.
__path__: list[str] = []


def __getattr__(name: str) -> object:
    return getattr(_learners, name)


def __dir__() -> list[str]:
    return dir(_learners)
