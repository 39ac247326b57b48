"""Tell whether voxels of an image in the cohort are still those of its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from cad.base.errors import CadError
from cad.mri.imaging.nifti import read_volume
from cad.mri.imaging.volume import Volume

# Only changes of a file after the image was made from it matter: the image contains earlier
# changes. Changes up to an hour earlier also count, because the clocks of two machines may differ,
# and because an import of many studies takes its time.
_CLOCKS_APART_S = 3600.0
_SAME_MM = 1e-3
HINT = (
    "the source was corrected, or is another's: remove the patient by cad cohort remove and import "
    "again, or bring the source back"
)


def changed_since(image: Path, sources: Iterable[Path]) -> bool:
    """Tell whether a source may have changed since an image was made from it.

    The files' ctime (time of the last change of a file or its status) is compared, because no user
    can set it. The mtime can be set: a copied file may have the mtime of its original.

    Parameters
    ----------
    image : Path
        The image in the cohort.
    sources : iterable of Path
        The files in the source from which the image was made.

    Returns
    -------
    bool
        True if any source was changed after the image was written, or less than an hour before: two
        clocks may differ by that much.
    """
    # Even a change shortly before the image counts: the clocks of two machines may differ.
    made = image.stat().st_mtime - _CLOCKS_APART_S
    return any(path.stat().st_ctime > made for path in sources)


def require_same(image: Path, made: Callable[[], Volume]) -> None:
    """Refuse an image of the cohort whose voxels or place differ from what its source gives now.

    Parameters
    ----------
    image : Path
        The image in the cohort.
    made : callable
        Returns the volume that an import would make from the source now.

    Raises
    ------
    CadError
        When the two volumes differ.
    """
    image_before = read_volume(image)
    image_now = made().upright()
    require_equal(image, image_before.array, image_now.array)
    for quantity in ("spacing", "origin", "direction"):
        before = np.ravel(getattr(image_before, quantity))
        now = np.ravel(getattr(image_now, quantity))
        # A NIfTI file holds places as rounded numbers.
        if not np.allclose(before, now, atol=_SAME_MM):
            text = "the source's image lies elsewhere in space than this one, made of it before"
            raise CadError(text, file=image, hint=HINT)


def require_equal(image: Path, had: np.ndarray, now: np.ndarray) -> None:
    """Refuse an image of the cohort whose voxels differ from those that its source gives now.

    Parameters
    ----------
    image : Path
        The image in the cohort, for the message.
    had, now : ndarray
        Voxels in the cohort, and voxels that the source gives now.

    Raises
    ------
    CadError
        When the voxels differ.

    Examples
    --------
    >>> require_equal(Path("t2w.nii.gz"), np.zeros((2, 2, 2)), np.zeros((2, 2, 2)))
    """
    if had.shape != now.shape:
        text = f"{had.shape} voxels, and {now.shape} in its source now, under the same instances"
        raise CadError(text, file=image, hint=HINT)
    # A voxel that was NaN and still is has not changed. Only floats (kind "f") can be NaN.
    if not np.array_equal(had, now, equal_nan=had.dtype.kind == "f"):
        # NaN != NaN is true, so that voxels that stay NaN are left out of the count.
        stays_nan = np.isnan(had) & np.isnan(now)
        differing = int(np.sum((had != now) & ~stays_nan))
        text = (
            f"{differing} of its {had.size} voxels are other in the source now, under the same "
            "instances"
        )
        raise CadError(text, file=image, hint=HINT)
