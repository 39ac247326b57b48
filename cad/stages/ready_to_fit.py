"""Load what a first fold loads, when this module is imported: a fork server can do no more."""

# ruff: noqa: E402
from cad.processes import collect_rarely

collect_rarely()

import numpy as np

import cad.stages.validate  # noqa: F401
from cad.learners import AveragedProbabilisticSVC

_p, _row = np.tile([0.1, 0.1, 0.9, 0.9], 5), np.arange(20)
AveragedProbabilisticSVC(C=1.0, gamma=1.0, eta0=0.1, kappa=0.0, folds=2).fit(
    np.column_stack([_p, _row]), _p, groups=_row
)
