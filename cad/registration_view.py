"""What the page shows of a registration: T2 and the moved image side by side in one picture."""

from __future__ import annotations

from typing import Any

import numpy as np

from cad.imaging.geometry import resample_image
from cad.imaging.registration import Registration
from cad.imaging.volume import Volume

# Squares of the checkerboard: small enough for the gland's edge to cross many of them.
SQUARE_MM = 8.0


def registration_view(
    found: Registration, fixed: Volume, z: int
) -> tuple[dict[str, Any], np.ndarray]:
    """Numbers and pictures of one alignment.

    Parameters
    ----------
    found : Registration
        With the moved image.
    fixed : Volume
        The T2 image on the display grid.
    z : int
        Slice of ``fixed`` to draw.

    Returns
    -------
    numbers : dict
        ``moving, before, after, translation_mm, rotation_deg, accepted, note``.
    pictures : ndarray of uint8, shape (2, H, W)
        Checkerboards of T2 and the moving image, before and after.
    """
    one = fixed.index_to_patient(np.array([0.0, 0.0, float(z)]))
    slab = Volume(
        fixed.array[z : z + 1],
        fixed.spacing,
        (float(one[0]), float(one[1]), float(one[2])),
        fixed.direction,
    )
    places = (found.moving, found.apply(found.moving))
    moved = [resample_image(image, slab).array[0] for image in places]
    low, high = _window(np.stack(moved))
    t2 = _grey(slab.array[0], *_window(slab.array[0]))
    rows = (np.arange(t2.shape[0]) * fixed.spacing[1] // SQUARE_MM).astype(int)
    columns = (np.arange(t2.shape[1]) * fixed.spacing[0] // SQUARE_MM).astype(int)
    square = (rows[:, None] + columns[None, :]) % 2 == 0
    pictures = np.stack([np.where(square, t2, _grey(image, low, high)) for image in moved])
    numbers = {
        "moving": found.name,
        "before": round(found.before, 4),
        "after": round(found.after, 4),
        "translation_mm": round(found.shift_mm, 2),
        "rotation_deg": round(found.angle_deg, 2),
        "accepted": found.accepted,
        "note": found.note,
    }
    return numbers, pictures


def _window(array: np.ndarray) -> tuple[float, float]:
    finite = array[np.isfinite(array)].astype(float)
    if not finite.size:
        return 0.0, 1.0
    low, high = np.percentile(finite, (1, 99.5))
    return float(low), float(max(high, low + 1e-6))


def _grey(array: np.ndarray, low: float, high: float) -> np.ndarray:
    """0 to 255; black where the image does not reach."""
    share = (np.clip(array.astype(float), low, high) - low) / (high - low)
    return np.nan_to_num(np.rint(255 * share)).astype(np.uint8)
