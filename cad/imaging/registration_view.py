"""What the page shows of a registration: the moved image before and after, with the edges of T2."""

from __future__ import annotations

import numpy as np
from skimage.feature import canny

from cad.files import JsonObject
from cad.imaging.geometry import resample_image
from cad.imaging.registration import Registration
from cad.imaging.volume import Volume

# Contrasts differ too much for a checkerboard: the eye compares outlines.
EDGE_SCALE_MM = 1.4
EDGE_SHARE = (0.80, 0.93)


def registration_view(
    registration: Registration, fixed: Volume, z: int
) -> tuple[JsonObject, np.ndarray]:
    """Return numbers and pictures of one alignment.

    Parameters
    ----------
    registration : Registration
        With the moved image.
    fixed : Volume
        The T2 image on the display grid.
    z : int
        Slice of ``fixed`` to draw.

    Returns
    -------
    numbers : dict
        ``moving, before, after, translation_mm, rotation_deg, accepted, note``.
    pictures : ndarray of uint8, shape (3, H, W)
        The moving image before and after, and the edges of T2 (255, else 0).
    """
    slab = fixed.beginning_at(fixed.array[z : z + 1], np.array([0.0, 0.0, float(z)]))
    places = (registration.moving, registration.apply(registration.moving))
    moved = [resample_image(image, slab).array[0] for image in places]
    low, high = _window(np.stack(moved))
    t2 = np.nan_to_num(slab.array[0].astype(float))
    edges = canny(
        t2,
        EDGE_SCALE_MM / min(fixed.spacing[:2]),
        low_threshold=EDGE_SHARE[0],
        high_threshold=EDGE_SHARE[1],
        use_quantiles=True,
    )
    pictures = [_grey(image, low, high) for image in moved]
    numbers = {
        "moving": registration.name,
        "before": round(registration.before, 4),
        "after": round(registration.after, 4),
        "translation_mm": round(registration.shift_mm, 2),
        "rotation_deg": round(registration.angle_deg, 2),
        "accepted": registration.accepted,
        "note": registration.note,
    }
    return numbers, np.stack([*pictures, np.where(edges, 255, 0).astype(np.uint8)])


def _window(array: np.ndarray) -> tuple[float, float]:
    finite = array[np.isfinite(array)].astype(float)
    if not finite.size:
        return 0.0, 1.0
    low, high = np.percentile(finite, (1, 99.5))
    return float(low), float(max(high, low + 1e-6))


def _grey(array: np.ndarray, low: float, high: float) -> np.ndarray:
    """Scale to 0..255; black where the image does not reach."""
    share = (np.clip(array.astype(float), low, high) - low) / (high - low)
    grey: np.ndarray = np.nan_to_num(np.rint(255 * share)).astype(np.uint8)
    return grey
