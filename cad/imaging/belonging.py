"""Belonging: do a study's images, regions and gland show one man, the right way up?

Only the images themselves can say it where no header does. Two images of one man share more
information as they lie than turned; a region lies in the gland it was drawn in; a gland and a field
of view have the size of a man's. Limits and false-alarm rates: docs/import.md.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from cad.errors import CadError
from cad.imaging.drawn import fill
from cad.imaging.geometry import resample_image
from cad.imaging.standardise import foreground
from cad.imaging.study import Study
from cad.imaging.volume import Volume

# Least share of a region inside the gland, or in the body where there is no gland mask.
IN_GLAND = 0.7
IN_BODY = 0.5
# No lesion fills more of its gland: whoever did drew the gland itself.
OF_GLAND = 0.6
TURNS = {"left for right": 2, "front for back": 1, "head for feet": 0}
_BINS = 24
# Independent images share (24 - 1)^2 / 2n nats by chance: .05 at this size, as much as some tissue.
_LEAST_VOXELS = 5000


def strays(study: Study) -> dict[str, CadError]:
    """Return the regions that cannot be this gland's, or this body's, with the reason, by id.

    Parameters
    ----------
    study : Study
        Without a gland mask T2 says where the body is; without both nothing is asked.
    """
    labels = study.roi_map
    if labels is None or (study.gland is None and study.t2w is None):
        return {}
    if study.gland is not None:
        inside, least, where = fill(study.gland, labels).share, IN_GLAND, "the gland"
    else:
        image = study.t2w if study.t2w is not None else labels
        body = image.with_array(foreground(image))
        inside, least, where = fill(body, labels).share, IN_BODY, "tissue (T2)"
    gland = None if study.gland is None else _millilitres(study.gland)
    problems = {}
    for roi in study.rois:
        region = labels.array == roi.label
        if not region.any():
            continue
        share = float(inside[region].mean())
        part = 0.0 if gland is None else _millilitres(labels.with_array(region)) / gland
        if share < least:
            problem = f"{share:.0%} of the ROI lie in {where}, at least {least:.0%} are needed"
            hint = "mask and image are of another man, moved or turned; draw the ROI again"
        elif part > OF_GLAND:
            problem = f"the ROI is {part:.0%} of the gland, at most {OF_GLAND:.0%} is a lesion"
            hint = "it is the gland's own outline; draw the lesion"
        else:
            continue
        problems[roi.roi_id] = CadError(
            problem, hint=hint, patient=study.participant_id, roi=roi.roi_id
        )
    return problems


def turned(t2w: Volume, image: Volume) -> tuple[float, str]:
    """Return how much more T2 shares with an image as it lies than turned the likeliest other way.

    Parameters
    ----------
    t2w, image : Volume
        Of one man, in one frame of reference. Zeros and what lies beyond T2 are left out.

    Returns
    -------
    gain : float
        Logarithm of the ratio of mutual informations, as it lies over turned; below 0 the image
        fits better when it is turned. Infinite where fewer than 5,000 voxels can be compared.
    way : str
        The turn that fits best, one of ``TURNS``.
    """
    reference = resample_image(t2w, image).array
    values = image.array.astype(float)
    given = _shared(reference, values)
    other = {way: _shared(reference, np.flip(values, axis)) for way, axis in TURNS.items()}
    way = max(other, key=other.__getitem__)
    gain = math.log(given / other[way]) if given > 0 and other[way] > 0 else math.inf
    return gain, way


def _shared(a: np.ndarray, b: np.ndarray) -> float:
    """Return the mutual information (nats) of two images over ranks in 24 bins; 0 for too few."""
    both = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
    if both.sum() < _LEAST_VOXELS:
        return 0.0
    steps = np.linspace(0, 1, _BINS + 1)[1:-1]
    levels = [np.searchsorted(np.quantile(v[both], steps), v[both]) for v in (a, b)]
    joint = np.bincount(levels[0] * _BINS + levels[1], minlength=_BINS**2) / both.sum()
    joint = joint.reshape(_BINS, _BINS)
    alone = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    filled = joint > 0
    return float((joint[filled] * np.log(joint[filled] / alone[filled])).sum())


def gland_volume(study: Study) -> float | None:
    """Return the volume of the gland mask, mL; None without one."""
    return None if study.gland is None else _millilitres(study.gland)


def width(image: Volume) -> float:
    """Return the longest edge of an image's field of view, mm."""
    return max(n * s for n, s in zip(image.shape[::-1], image.spacing, strict=True))


def voxel_hash(image: Volume) -> str:
    """Return a hash of an image's voxels, however they are stored."""
    values = np.ascontiguousarray(image.array, np.float32)
    return hashlib.sha256(str(values.shape).encode() + values.tobytes()).hexdigest()


def _millilitres(mask: Volume) -> float:
    return float(np.count_nonzero(mask.array)) * float(np.prod(mask.spacing)) / 1000.0
