"""Load libraries before the work begins, so that processes forked later share them in memory."""

from contextlib import suppress

import numpy as np


def ready_to_measure() -> None:
    """Load the libraries that measuring a study needs, and the compiled code for features."""
    import nibabel  # noqa: F401
    import scipy.ndimage  # noqa: F401

    import cad.mri.features.snapshot
    import cad.mri.imaging.prepare
    import cad.mri.imaging.study_files  # noqa: F401
    from cad.mri.features.intensity import statistics

    # Any first call loads the compiled code; its result is not needed.
    statistics(np.zeros(1), np.array([0, 1]))


def ready_to_fit() -> None:
    """Load the libraries that fitting a fold needs, by a small fit.

    Errors are ignored, because the command itself will meet and report the same error.
    """
    with suppress(Exception):
        from joblib.externals.loky import process_executor  # noqa: F401

        import cad.run.stages.validate  # noqa: F401
        from cad.learning.learners import AveragedProbabilisticSVC

        # The numbers only have to make a fit that takes little time.
        p = np.tile([0.1, 0.1, 0.9, 0.9], 5)
        patients = np.arange(20)
        learner = AveragedProbabilisticSVC(C=1.0, gamma=1.0, eta0=0.1, kappa=0.0, folds=2)
        learner.fit(np.column_stack([p, patients]), p, groups=patients)
