"""The transmit field (B1+): the share of the stated flip angle that the tissue gets.

``fmap/<study>_TB1map.nii.gz`` (BIDS) holds the ratio of actual to nominal flip angle, as a fraction
or in percent. Its sidecar's unit and its values must agree on which; a map that leaves it open is
refused, because every T1 would be wrong by its square.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cad.errors import CadError
from cad.imaging.nifti import read_sidecar, read_volume, sidecar_path
from cad.imaging.volume import Volume

# Beyond these no body coil at 1.5 or 3 T goes; a voxel there holds no measurement.
LEAST, MOST = 0.3, 2.0
_FACTORS = {"percent": 0.01, "%": 0.01, "1": 1.0, "ratio": 1.0, "fraction": 1.0}
_UNSTATED = ("", "arbitrary", "a.u.", "au")  # BIDS says "arbitrary" of either


def b1_path(folder: Path, study_id: str) -> Path:
    """Return where a study's map of the transmit field lies."""
    return folder / "fmap" / f"{study_id}_TB1map.nii.gz"


def read_b1(path: Path) -> Volume | None:
    """Read a map of the transmit field as a fraction (1: as stated); None where there is no file.

    Voxels without a possible value are NaN.

    Raises
    ------
    CadError
        With the file: for a unit that is no ratio, values that fit neither fraction nor percent,
        or values that contradict the stated unit.
    """
    if not path.is_file():
        return None
    volume = read_volume(path)
    values = volume.array.astype(np.float32)
    positive = values[np.isfinite(values) & (values > 0)]
    level = float(np.median(positive)) if positive.size else 0.0
    # Scanners write the field as a fraction or in percent, often without saying which: the level
    # tells, for no field is a hundredth or a hundred times the stated one.
    factor = next((f for f in (1.0, 0.01) if LEAST <= level * f <= MOST), None)
    if factor is None:
        raise CadError(
            f"a map of the transmit field with a median of {level:.3g}: neither a fraction of the "
            f"stated flip angle ({LEAST:g} to {MOST:g}) nor percent of it "
            f"({100 * LEAST:g} to {100 * MOST:g})",
            file=path,
            hint="divide actual by stated flip angles, or remove the file",
        )
    stated = str(read_sidecar(path).get("Units", "") or "").strip().lower()
    if stated not in _UNSTATED and _FACTORS.get(stated) != factor:
        raise CadError(
            f"Units {stated!r} of a transmit-field map with a median of {level:.3g}; expected "
            f"{'percent' if factor < 1 else 'fraction'}",
            file=sidecar_path(path),
            hint="correct Units (fraction or percent) or the map",
        )
    ratio = values * np.float32(factor)
    possible = (ratio >= LEAST) & (ratio <= MOST)
    return replace(volume, array=np.where(possible, ratio, np.nan).astype(np.float32), unit="")
