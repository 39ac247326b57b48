"""Patlak's model: contrast agent that enters the tissue and does not come back in the time seen.

C(t) = vp cp(t) + Ktrans int cp(u) du is linear in both parameters: one least-squares fit. Where
contrast agent does come back, as in most of the prostate after a minute, Ktrans comes out low.
"""

from __future__ import annotations

import numpy as np

from cad.errors import CadError
from cad.features.perfusion.aif import SECONDS_PER_MINUTE, InputFunction
from cad.features.perfusion.models import KTRANS_MAX, KineticFit

_EDGE = 1e-9


def fit_patlak(curves: np.ndarray, inlet: InputFunction) -> KineticFit:
    """Fit Patlak's model to concentrations.

    Parameters
    ----------
    curves : ndarray, shape (n_curves, n_times)
        mM; a curve with any NaN is not fitted.
    inlet : InputFunction
        Plasma input whose frames are the curves' times.

    Raises
    ------
    CadError
        When curves and input have different frames.

    References
    ----------
    Patlak et al., J Cereb Blood Flow Metab 3 (1983) 1.
    """
    curves = np.asarray(curves, float)
    if curves.ndim != 2 or curves.shape[1] != len(inlet.at_frames):
        raise CadError(
            f"curves of shape {curves.shape} do not match {len(inlet.at_frames)} frames of the "
            "input"
        )
    steps = np.diff(inlet.times) / SECONDS_PER_MINUTE
    area = np.concatenate([[0.0], np.cumsum(steps * (inlet.plasma[1:] + inlet.plasma[:-1]) / 2)])
    design = np.stack([area, inlet.plasma], axis=1)[inlet.at_frames]
    usable = np.isfinite(curves).all(axis=1)
    data = np.where(usable[:, None], curves, 0.0)
    ktrans, vp = np.linalg.pinv(design) @ data.T  # one design for all curves
    fitted = np.stack([ktrans, vp], axis=1) @ design.T
    misfit = ((data - fitted) ** 2).sum(axis=1)
    spread = ((data - data.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    r2 = np.where(spread > 0, 1 - misfit / np.where(spread > 0, spread, 1.0), 0.0)
    outside = (ktrans <= _EDGE) | (ktrans >= KTRANS_MAX) | (vp < -_EDGE) | (vp >= 1)
    known = np.where(usable, 1.0, np.nan)
    return KineticFit(
        "patlak",
        {"ktrans": ktrans * known, "vp": vp * known},
        r2 * known,
        np.sqrt(misfit / data.shape[1]) * known,
        outside | ~usable,
        fitted * known[:, None],
    )
