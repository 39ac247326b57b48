"""Load what a first fold loads, when this module is imported: processes then share it."""

from contextlib import suppress

with suppress(Exception):  # the command will say why
    import numpy as np
    from joblib.externals.loky import process_executor  # noqa: F401

    import cad.run.stages.validate  # noqa: F401
    from cad.learning.learners import AveragedProbabilisticSVC

    _p, _row = np.tile([0.1, 0.1, 0.9, 0.9], 5), np.arange(20)
    AveragedProbabilisticSVC(C=1.0, gamma=1.0, eta0=0.1, kappa=0.0, folds=2).fit(
        np.column_stack([_p, _row]), _p, groups=_row
    )
