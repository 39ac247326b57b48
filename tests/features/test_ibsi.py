"""Every value of the IBSI digital phantom, rounded to three significant digits."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from cad.features.haralick import AGGREGATIONS, HARALICK, haralick_features
from cad.features.histogram import HISTOGRAM, histogram_features
from cad.features.intensity import STATISTICS, statistics
from cad.features.regions import RegionVoxels

STATISTIC_NAMES = {
    "var": "variance",
    "skew": "skewness",
    "kurt": "kurtosis",
    "min": "minimum",
    "max": "maximum",
}
HISTOGRAM_NAMES = STATISTIC_NAMES | {
    "max_grad": "maximum_gradient",
    "max_grad_g": "maximum_gradient_level",
    "min_grad": "minimum_gradient",
    "min_grad_g": "minimum_gradient_level",
}
COOCCURRENCE_NAMES = {
    "joint_max": "joint_maximum",
    "joint_avg": "joint_average",
    "joint_var": "joint_variance",
    "joint_entr": "joint_entropy",
    "diff_avg": "difference_average",
    "diff_var": "difference_variance",
    "diff_entr": "difference_entropy",
    "sum_avg": "sum_average",
    "sum_var": "sum_variance",
    "sum_entr": "sum_entropy",
    "energy": "energy",
    "contrast": "contrast",
    "dissimilarity": "dissimilarity",
    "inv_diff": "inverse_difference",
    "inv_diff_norm": "inverse_difference_normalised",
    "inv_diff_mom": "inverse_difference_moment",
    "inv_diff_mom_norm": "inverse_difference_moment_normalised",
    "inv_var": "inverse_variance",
    "corr": "correlation",
    "auto_corr": "autocorrelation",
    "clust_tend": "cluster_tendency",
    "clust_shade": "cluster_shade",
    "clust_prom": "cluster_prominence",
    "info_corr1": "information_correlation_1",
    "info_corr2": "information_correlation_2",
}


@pytest.mark.reference
def test_every_value_of_the_digital_phantom(
    shared_data: Path, counted: Callable[[int, str], None]
) -> None:
    folder = shared_data / "ibsi"
    image = sitk.GetArrayFromImage(sitk.ReadImage(str(folder / "phantom_image.nii.gz")))
    mask = sitk.GetArrayFromImage(sitk.ReadImage(str(folder / "phantom_mask.nii.gz"))) > 0
    region = RegionVoxels.from_masks([mask])
    levels = region.values(image).astype(np.int64)
    n_levels = np.array([levels.max()])
    roi = dict(zip(STATISTICS, statistics(levels.astype(float), region.start)[0], strict=True))
    histogram = dict(
        zip(HISTOGRAM, histogram_features(levels, region.start, n_levels)[0], strict=True)
    )
    texture = {
        a: dict(zip(HARALICK, haralick_features(levels, n_levels, region, 1, a)[0], strict=True))
        for a in AGGREGATIONS
    }
    with (folder / "digital_phantom_reference.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    wrong = []
    for row in rows:
        name = row["feature"]
        if row["family"] == "statistics":
            found = roi[STATISTIC_NAMES.get(name, name)]
        elif row["family"] == "intensity_histogram":
            found = histogram[HISTOGRAM_NAMES.get(name, name)]
        else:
            found = texture[row["aggregation"]][COOCCURRENCE_NAMES[name]]
        if float(f"{found:.3g}") != float(row["value"]):
            wrong.append((row, found))
    counted(len(rows), "IBSI digital phantom")
    assert len(rows) == 191
    assert not wrong
