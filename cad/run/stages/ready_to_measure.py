"""Load what a first study loads, when this module is imported: processes then share it."""

import nibabel  # noqa: F401
import numpy as np
import scipy.ndimage  # noqa: F401

import cad.mri.features.snapshot
import cad.mri.imaging.prepare
import cad.mri.imaging.study_files  # noqa: F401
from cad.mri.features.intensity import statistics

statistics(np.zeros(1), np.array([0, 1]))
