"""Label maps of single readers: ``masks/<study>_desc-<reader>_rois.nii.gz``.

Their labels are those of ``rois.tsv``; a reader's map holds the regions that this reader outlined.
"""

from pathlib import Path

import numpy as np

from cad.errors import CadError
from cad.imaging.nifti import read_volume
from cad.imaging.volume import Volume


def reader_outline_path(folder: Path, study_id: str, reader: str) -> Path:
    """Return where the label map of one reader lies."""
    return folder / "masks" / f"{study_id}_desc-{reader}_rois.nii.gz"


def read_reader_outlines(folder: Path, study_id: str) -> dict[str, Volume]:
    """Read the label map of every reader who has one.

    Parameters
    ----------
    folder : Path
        Holds ``masks``.
    study_id : str
        ``sub-XXX[_ses-YY]``.

    Returns
    -------
    dict of str to Volume
        By reader, sorted; whole numbers.

    Raises
    ------
    CadError
        For a damaged file, or one that holds fractions or negative numbers.
    """
    first, last = f"{study_id}_desc-", "_rois.nii.gz"
    outlines = {}
    for path in sorted((folder / "masks").glob(f"{first}*{last}")):
        outlines[path.name.removeprefix(first).removesuffix(last)] = read_outline(path)
    return outlines


def read_outline(path: Path) -> Volume:
    """Read one label map.

    Raises
    ------
    CadError
        As :func:`read_reader_outlines`.
    """
    volume = read_volume(path)
    whole = np.rint(volume.array)
    if not (whole == volume.array).all() or whole.min() < 0:
        raise CadError("a label map holds whole numbers from 0", file=path)
    return volume.with_array(whole.astype(np.int32))
