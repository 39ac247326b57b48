"""Further feature classes through pyradiomics (extra ``radiomics``), switched on by name.

Levels are made as for our own texture: the same bin number or width. pyradiomics measures each
region on its cut image; its version and settings are its own otherwise.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from typing import Any

import numpy as np

from cad.errors import CadError, install
from cad.features.images import Prepared
from cad.features.measure import texture_of
from cad.features.regions import RegionVoxels
from cad.imaging.volume import Volume
from cad.settings import FeatureSettings

# Of these classes all but one feature is measured by the project itself.
_SINGLE = {"total_energy": "TotalEnergy", "mcc": "MCC"}
_COLUMN = {"total_energy": "firstorder_total_energy", "mcc": "glcm_mcc"}


def check_radiomics(classes: tuple[str, ...]) -> None:
    """Refuse classes that need an extra which is not installed.

    Raises
    ------
    CadError
        Naming the command that installs it.
    """
    if classes and importlib.util.find_spec("radiomics") is None:
        raise CadError(
            f"features.radiomics asks for {', '.join(classes)}, and pyradiomics is not installed",
            hint=f"{install('radiomics')}; or leave features.radiomics empty",
        )


def radiomics_features(
    prepared: Prepared, regions: RegionVoxels, settings: FeatureSettings
) -> dict[str, np.ndarray]:
    """Return the features of the classes that the settings name.

    Parameters
    ----------
    prepared : Prepared
        T2 or ADC.
    regions : RegionVoxels
        On its grid.
    settings : FeatureSettings
        ``radiomics`` and ``texture``.

    Returns
    -------
    dict of str to ndarray, shape (n_regions,)
        ``<image>_<class>_<name_in_snake_case>``; NaN where pyradiomics gives none.

    Raises
    ------
    CadError
        When the extra is absent.
    """
    check_radiomics(settings.radiomics)
    columns: dict[str, np.ndarray] = {}
    if not settings.radiomics:
        return columns
    # pyradiomics sums in the image's own type; float32 would lose digits.
    image = prepared.grid.with_array(prepared.grid.array.astype(np.float64))
    regions = regions.core()
    for r in range(regions.count):
        if regions.sizes[r] == 0:
            continue
        mask = np.zeros(int(np.prod(regions.shape)), np.uint8)
        mask[regions.index[regions.start[r] : regions.start[r + 1]]] = 1
        found = _one(image, image.with_array(mask.reshape(regions.shape)), settings, prepared.name)
        for name, value in found.items():
            columns.setdefault(f"{prepared.name}_{name}", np.full(regions.count, np.nan))[r] = value
    return columns


def _one(image: Volume, mask: Volume, settings: FeatureSettings, modality: str) -> dict[str, float]:
    import radiomics
    from radiomics import firstorder, glcm, gldm, glrlm, glszm, ngtdm, shape

    radiomics.setVerbosity(logging.CRITICAL)
    classes: dict[str, Any] = {
        "shape": shape.RadiomicsShape,
        "glrlm": glrlm.RadiomicsGLRLM,
        "glszm": glszm.RadiomicsGLSZM,
        "gldm": gldm.RadiomicsGLDM,
        "ngtdm": ngtdm.RadiomicsNGTDM,
        "total_energy": firstorder.RadiomicsFirstOrder,
        "mcc": glcm.RadiomicsGLCM,
    }
    texture = texture_of(settings, modality)
    bins = {"binCount": texture.bins} if texture.bins else {"binWidth": texture.bin_width}
    found: dict[str, float] = {}
    for name in settings.radiomics:
        measured = classes[name](image.to_sitk(), mask.to_sitk(), label=1, **bins)
        if name in _SINGLE:
            measured.enableFeatureByName(_SINGLE[name])
            found[_COLUMN[name]] = float(measured.execute()[_SINGLE[name]])
            continue
        measured.enableAllFeatures()
        for feature, value in measured.execute().items():
            found[f"{name}_{_snake(feature)}"] = float(value)
    return found


def _snake(name: str) -> str:
    """Write ``GrayLevelNonUniformity`` as ``gray_level_non_uniformity``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
