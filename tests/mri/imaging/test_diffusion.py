"""The image at a high b-value: acquired where there is one, else computed from the decay."""

from __future__ import annotations

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.mri.imaging.diffusion import high_b
from cad.mri.imaging.volume import Volume


def diffusion(b: float, adc: float = 1000.0, s0: float = 800.0) -> tuple[float, Volume]:
    signal = np.full((2, 3, 4), s0 * np.exp(-b * adc * 1e-6))
    return b, Volume(signal, (1, 1, 3), (0, 0, 0), np.eye(3))


def test_an_acquired_image_is_taken_as_it_is() -> None:
    images = [diffusion(50.0), diffusion(1400.0), diffusion(2000.0)]
    found, notes = high_b(images)
    assert found is images[2][1]
    assert notes == ["high-b image acquired at b = 2000 s/mm2"]


def test_without_one_the_decay_is_carried_on() -> None:
    """S = 800 exp(-1400 x 1e-3) = 197.28, and b = 0 is left out where two others are there."""
    perfused = (0.0, diffusion(0.0, s0=1600.0)[1])
    found, notes = high_b([perfused, diffusion(50.0), diffusion(800.0)])
    np.testing.assert_allclose(found.array, 197.2776, rtol=1e-5)
    assert notes == ["high-b image computed at b = 1400 s/mm2 from b = 50, 800 s/mm2"]


def test_a_voxel_without_signal_is_zero_and_one_b_value_is_refused() -> None:
    b, image = diffusion(800.0)
    image.array[0, 0, 0] = 0.0
    found, _ = high_b([diffusion(50.0), (b, image)])
    assert found.array[0, 0, 0] == 0.0
    assert found.array[1, 1, 1] > 0
    with pytest.raises(CadError, match="two different b-values"):
        high_b([diffusion(800.0)])
