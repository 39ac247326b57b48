"""Load what a first study loads, when this module is imported: processes then share it."""

import nibabel  # noqa: F401
import numpy as np
import scipy.ndimage  # noqa: F401

import cad.features.snapshot
import cad.imaging.prepare
import cad.imaging.study_files  # noqa: F401
from cad.features.intensity import statistics

statistics(np.zeros(1), np.array([0, 1]))
