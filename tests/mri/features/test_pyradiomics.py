"""The same numbers as pyradiomics where both mean the same, within 1e-6 relative.

Definitions that differ, and are not compared: pyradiomics gives kurtosis without the 3 subtracted
(compared after adding it), has no sum variance (it equals cluster tendency), no dissimilarity (it
equals difference average), no quartile measures, and a maximal correlation coefficient that IBSI
does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.features import windows
from cad.base.settings import FeatureSettings, PipelineSettings
from cad.folders.cohort import read_cohort
from cad.mri.features.haralick import haralick_features
from cad.mri.features.histogram import discretise, histogram_features
from cad.mri.features.intensity import statistics
from cad.mri.features.regions import RegionVoxels
from cad.mri.features.table import extract
from cad.mri.imaging.geometry import roi_in_grid
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import read_study
from cad.mri.imaging.volume import Volume

radiomics = pytest.importorskip("radiomics", reason="PYRADIOMICS ABSENT: prostate-cad[radiomics]")
pytestmark = pytest.mark.filterwarnings("ignore")

FIRST_ORDER = {
    "Mean": "mean",
    "Variance": "variance",
    "Skewness": "skewness",
    "Median": "median",
    "Minimum": "minimum",
    "10Percentile": "p10",
    "90Percentile": "p90",
    "Maximum": "maximum",
    "InterquartileRange": "iqr",
    "Range": "range",
    "MeanAbsoluteDeviation": "mad",
    "RobustMeanAbsoluteDeviation": "rmad",
    "Energy": "energy",
    "RootMeanSquared": "rms",
}
GLCM = {
    "Autocorrelation": "autocorrelation",
    "JointAverage": "joint_average",
    "ClusterProminence": "cluster_prominence",
    "ClusterShade": "cluster_shade",
    "ClusterTendency": "cluster_tendency",
    "Contrast": "contrast",
    "Correlation": "correlation",
    "DifferenceAverage": "difference_average",
    "DifferenceEntropy": "difference_entropy",
    "DifferenceVariance": "difference_variance",
    "Id": "inverse_difference",
    "Idm": "inverse_difference_moment",
    "Idmn": "inverse_difference_moment_normalised",
    "Idn": "inverse_difference_normalised",
    "Imc1": "information_correlation_1",
    "Imc2": "information_correlation_2",
    "InverseVariance": "inverse_variance",
    "JointEnergy": "energy",
    "JointEntropy": "joint_entropy",
    "MaximumProbability": "joint_maximum",
    "SumAverage": "sum_average",
    "SumEntropy": "sum_entropy",
    "SumSquares": "joint_variance",
}


def compare(image: Volume, mask: np.ndarray, bins: int | None, width: float | None) -> int:
    """Compare one region; returns the number of values compared."""
    from radiomics import firstorder, glcm

    image = image.with_array(image.array.astype(np.float64))
    how = {"binCount": bins} if bins else {"binWidth": width}
    region = RegionVoxels.from_masks([mask])
    values = region.values(image.array)
    levels, n_levels = discretise(values, region.start, bins, width)
    first = statistics(values, region.start)[0]
    histogram = histogram_features(levels, region.start, n_levels)[0]
    texture = haralick_features(levels, n_levels, region, 1, "3D_avg")[0]
    theirs = {}
    for kind in (firstorder.RadiomicsFirstOrder, glcm.RadiomicsGLCM):
        measured = kind(image.to_sitk(), image.with_array(mask).to_sitk(), **how)
        measured.enableAllFeatures()
        theirs[kind] = {k: float(v) for k, v in measured.execute().items()}
    f, g = theirs[firstorder.RadiomicsFirstOrder], theirs[glcm.RadiomicsGLCM]
    pairs = [(name, f[name], first[own]) for name, own in FIRST_ORDER.items()]
    pairs.append(("Kurtosis", f["Kurtosis"], first["kurtosis"] + 3))
    pairs += [(n, f[n], histogram[n.lower()]) for n in ("Entropy", "Uniformity")]
    pairs += [(name, g[name], texture[own]) for name, own in GLCM.items()]
    wrong = [(n, a, b) for n, a, b in pairs if not np.isclose(a, b, rtol=1e-6, atol=1e-9)]
    assert not wrong
    return len(pairs)


@pytest.mark.reference
@pytest.mark.parametrize(("bins", "width"), [(32, None), (16, None), (None, 25.0)])
def test_simulated_regions(
    bins: int | None, width: float | None, study: Study, counted: Callable[[int, str], None]
) -> None:
    for image in (study.t2w, study.adc):
        assert image is not None
        for roi in study.rois:
            mask = roi_in_grid(study, roi, image).array
            counted(compare(image, mask, bins, width), "pyradiomics, simulated regions")


@pytest.fixture(scope="module")
def real_study(real_import: tuple[Path, dict[str, list[str]]]) -> Study:
    ref = next(
        r for r in read_cohort(real_import[0]).studies() if r.participant_id.endswith("0218")
    )
    rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]
    return read_study(ref.folder, ref.study_id, ref.participant_id, rois)


@pytest.mark.reference
def test_real_regions(real_study: Study, counted: Callable[[int, str], None]) -> None:
    assert len(real_study.rois) == 4
    for image in (real_study.t2w, real_study.adc):
        assert image is not None
        for roi in real_study.rois:
            mask = roi_in_grid(real_study, roi, image).array
            for bins, width in ((32, None), (None, 25.0)):
                counted(compare(image, mask, bins, width), "pyradiomics, ProstateX-0218")


@pytest.mark.reference
def test_real_regions_are_plausible(real_study: Study, settings: PipelineSettings) -> None:
    found = extract(real_study, settings)
    assert not found.failures
    values = found.rows.iloc[:, 2:]
    missing = set(values.columns[~np.isfinite(values.to_numpy(float)).all(axis=0)])
    # Kinetics say nothing of a region where less than half of the voxels fit.
    assert all(name.startswith(("dce_tofts_", "dce_extended_", "dce_brix_")) for name in missing)
    assert found.rows["adc_intensity_median"].between(600, 1800).all()
    assert found.rows["dce_tofts_ktrans_median"].dropna().between(0.005, 1.0).all()
    for curve in found.curves.values():
        assert curve.signal[-5:].mean() > 1.1 * curve.signal[:3].mean()


@pytest.mark.reference
def test_windows_are_those_of_voxel_mode(counted: Callable[[int, str], None]) -> None:
    from radiomics import glcm

    rng = np.random.default_rng(1)
    array = rng.normal(500, 90, (6, 10, 10))
    mask = np.zeros(array.shape, bool)
    mask[1:5, 2:8, 3:9] = True
    image = Volume(array, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), np.eye(3))
    measured = glcm.RadiomicsGLCM(
        image.to_sitk(),
        image.with_array(mask).to_sitk(),
        voxelBased=True,
        kernelRadius=2,
        maskedKernel=True,
        voxelBatch=200,
        binCount=12,
    )
    for name in ("Contrast", "JointEntropy", "Imc1", "Correlation"):
        measured.enableFeatureByName(name)
    theirs = measured.execute()
    region = RegionVoxels.from_masks([mask])
    levels, n_levels = discretise(region.values(array), region.start, 12, None)
    whole = np.zeros(array.shape, np.int64)
    whole[mask] = levels
    around = windows(mask, (2, 2, 2))
    inside = around.values(whole).astype(np.int64)
    ours = haralick_features(inside, np.full(around.count, n_levels[0]), around, 1, "3D_avg")
    for name, map_image in theirs.items():
        expected = Volume.from_sitk(map_image).array[mask]
        found = ours[GLCM[name]]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
        counted(len(found), "pyradiomics, voxel mode")


@pytest.mark.reference
def test_further_classes_come_by_name(study: Study) -> None:
    features = FeatureSettings(radiomics=("shape", "glrlm", "glszm", "gldm", "ngtdm"))
    found = extract(study, PipelineSettings(name="test", features=features))
    assert not found.failures
    for stem in ("shape", "glrlm", "glszm", "gldm", "ngtdm"):
        columns = [c for c in found.rows if c.startswith(f"t2w_{stem}_")]
        assert columns
        assert np.isfinite(found.rows[columns].to_numpy(float)).all()
    assert found.rows["t2w_shape_voxel_volume"].tolist() == pytest.approx(
        [675 * 0.6 * 0.6 * 3, 585 * 0.6 * 0.6 * 3]
    )


def test_total_energy_and_maximal_correlation_come_by_name(study: Study) -> None:
    """Energy times the voxel's volume; and the second eigenvalue, of a plain matrix by numpy."""
    features = {
        "modalities": ("adc",),
        "families": ("intensity",),
        "counting": True,
        "partial_voxels": "half",
        "texture_adc": {"bins": 8},
        "radiomics": ("total_energy", "mcc"),
    }
    assert study.adc is not None
    assert study.roi_map is not None
    grid = study.adc
    labels = np.zeros(grid.shape, np.uint8)
    labels[2:6, 4:12, 5:13] = 1
    drawn = Study("sub-A", "sub-A", adc=grid, roi_map=grid.with_array(labels), rois=[Roi("1", 1)])
    settings = PipelineSettings.model_validate({"name": "more", "features": features})
    row = extract(drawn, settings).rows.iloc[0]
    total = row["adc_intensity_energy"] * np.prod(grid.spacing)
    assert row["adc_firstorder_total_energy"] == pytest.approx(total, rel=1e-6)
    values = grid.array[labels > 0].astype(float)
    edges = np.histogram_bin_edges(values, 8)
    level = np.clip(np.digitize(grid.array, edges), 1, 8) - 1
    found = []
    for dz, dy, dx in np.ndindex(3, 3, 3):
        step = (dz - 1, dy - 1, dx - 1)
        if step <= (0, 0, 0):
            continue
        matrix = np.zeros((8, 8))
        for at in np.argwhere(labels > 0):
            to = tuple(at + np.array(step))
            if labels[to]:
                matrix[level[tuple(at)], level[to]] += 1
                matrix[level[to], level[tuple(at)]] += 1
        p = matrix[matrix.any(axis=1)][:, matrix.any(axis=0)] / matrix.sum()
        side = np.sqrt(p.sum(axis=1))
        found.append(np.sort(np.abs(np.linalg.eigvalsh(p / np.outer(side, side))))[-2])
    assert row["adc_glcm_mcc"] == pytest.approx(np.mean(found), rel=1e-3)
