"""A region under several outlines: redrawn copies, or what several readers drew.

Every mask is measured as the region itself is (:func:`cad.features.table.extract`), with one
preparation of each image for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from cad.errors import CadError
from cad.features.images import available, compact
from cad.features.measure import measure, pick
from cad.features.radiomics_classes import radiomics_features
from cad.features.robustness import prepared_copies
from cad.features.size import size_and_position
from cad.imaging.geometry import resample_mask
from cad.imaging.interpolate import at_spacing
from cad.imaging.standardise import NyulScale
from cad.imaging.study import Study
from cad.imaging.volume import Volume
from cad.settings import PipelineSettings


def masks_features(
    study: Study,
    settings: PipelineSettings,
    masks: Sequence[Volume],
    scale: NyulScale | None = None,
) -> pd.DataFrame:
    """Measure any masks of a study.

    Parameters
    ----------
    study : Study
        As for :func:`cad.features.table.extract`, with its regions: where there is no gland mask
        they say where the bolus is found.
    settings : PipelineSettings
        ``images`` and ``features``.
    masks : sequence of Volume
        Boolean, on any grid; possibly empty.
    scale : NyulScale, optional
        For the ``nyul`` standardisation.

    Returns
    -------
    DataFrame
        A row a mask, the columns of ``extract``; NaN where a mask has too little of an image. An
        image that cannot be prepared has no columns.
    """
    names, _ = available(study, settings)
    work = compact(at_spacing(study, settings.images))
    columns = _size(study, settings, masks)
    for name in names:
        try:
            found = prepared_copies(work, settings, name, masks, scale)
        except CadError:  # said once, where the regions themselves were measured
            continue
        if found is None:
            continue
        columns |= measure(*found, settings.features)
        if name != "dce":
            columns |= radiomics_features(*found, settings.features)
    return pd.DataFrame(columns, index=range(len(masks)))


def _size(
    study: Study, settings: PipelineSettings, masks: Sequence[Volume]
) -> dict[str, np.ndarray]:
    """Measure size and position of every mask, where the settings name them."""
    if not {"size", "position"} & {*settings.features.families} or study.roi_map is None:
        return {}
    columns: dict[str, np.ndarray] = {}
    for number, mask in enumerate(masks):
        inside = resample_mask(mask, study.roi_map) if mask.array.any() else mask
        if not inside.array.any():
            continue
        alone = replace(study, roi_map=inside.with_array(inside.array.astype(np.uint8)))
        for name, values in pick(size_and_position(alone, [1]), "", settings.features).items():
            columns.setdefault(name, np.full(len(masks), np.nan))[number] = values[0]
    return columns
