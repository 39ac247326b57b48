"""Measure further classes of features with pyradiomics (the extra ``radiomics``).

Settings name the wanted classes. Grey levels are made as for the texture features of this package:
with the same number of bins or the same bin width. pyradiomics measures each region on the image
cut around it. All other settings are the defaults of pyradiomics.
"""

import importlib.util
import logging

import numpy as np

from cad.base.errors import CadError, install
from cad.base.settings import FeatureSettings
from cad.base.terms.features import RADIOMICS
from cad.mri.columns import radiomics_channel, snake
from cad.mri.features.images import Prepared
from cad.mri.features.measure import pick, texture_of
from cad.mri.features.regions import RegionVoxels
from cad.mri.imaging.volume import Volume


def check_radiomics(classes: tuple[str, ...]) -> None:
    """Raise an error if feature classes of pyradiomics are wanted and it is not installed.

    ``classes`` are the wanted classes; an empty tuple is accepted.

    Raises
    ------
    CadError
        Without pyradiomics; the error names the command that installs it.
    """
    if classes and importlib.util.find_spec("radiomics") is None:
        raise CadError(
            f"features.radiomics asks for {', '.join(classes)}, and pyradiomics is not installed",
            hint=f"{install('radiomics')}; or leave features.radiomics empty",
        )


def radiomics_features(
    prepared: Prepared, regions: RegionVoxels, settings: FeatureSettings
) -> dict[str, np.ndarray]:
    """Return the pyradiomics features of the classes that the settings name.

    Parameters
    ----------
    prepared : Prepared
        The modality, T2 or ADC.
    regions : RegionVoxels
        Regions on ``prepared.grid``.
    settings : FeatureSettings
        Settings, of which ``radiomics`` and ``texture`` are read.

    Returns
    -------
    dict of str to ndarray, shape (n_regions,)
        ``<image>_<class>_<name_in_snake_case>``; NaN where pyradiomics gives none.

    Raises
    ------
    CadError
        When pyradiomics is not installed.
    """
    check_radiomics(settings.radiomics)
    channels: dict[str, dict[str, np.ndarray]] = {}
    if not settings.radiomics:
        return {}
    # pyradiomics computes sums in the number type of the image. In float32 these sums would lose
    # digits.
    image = prepared.grid.with_array(prepared.grid.array.astype(np.float64))
    regions = regions.core()
    for row in range(regions.count):
        if regions.sizes[row] == 0:  # pyradiomics refuses an empty region; its columns stay NaN
            continue
        flat_mask = np.zeros(int(np.prod(regions.shape)), np.uint8)
        flat_mask[regions.index[regions.start[row] : regions.start[row + 1]]] = 1
        mask = image.with_array(flat_mask.reshape(regions.shape))
        for name in settings.radiomics:
            statistics = channels.setdefault(radiomics_channel(name), {})
            features = _class_features(name, image, mask, settings, prepared.name)
            for feature, value in features.items():
                values = statistics.setdefault(snake(feature), np.full(regions.count, np.nan))
                values[row] = value
    return pick(channels, prepared.name, settings)


def _class_features(
    name: str, image: Volume, mask: Volume, settings: FeatureSettings, modality: str
) -> dict[str, float]:
    """Return one region's features of the pyradiomics class ``name``, by pyradiomics' names."""
    import radiomics

    radiomics.setVerbosity(logging.CRITICAL)  # it would log a warning for each region
    texture = texture_of(settings, modality)
    bins = {"binCount": texture.bins} if texture.bins else {"binWidth": texture.bin_width}
    feature_class = radiomics.getFeatureClasses()[radiomics_channel(name)]
    measurement = feature_class(image.to_sitk(), mask.to_sitk(), label=1, **bins)
    for feature in RADIOMICS[name][1]:
        measurement.enableFeatureByName(feature)
    return {feature: float(value) for feature, value in measurement.execute().items()}
