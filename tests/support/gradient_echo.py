"""The signal of a spoiled gradient echo, by the phantom's own forward model."""

from __future__ import annotations

import numpy as np

from cad.evidence.phantom.physics import spoiled_gradient_echo


def gradient_echo(
    r1: np.ndarray, s0: np.ndarray, repetition_time: float, flip_angle: float
) -> np.ndarray:
    """Return the signal at relaxation rates (1/s); TR in s, flip angle in degrees."""
    return spoiled_gradient_echo(1 / np.asarray(r1, float), s0, repetition_time, flip_angle)
