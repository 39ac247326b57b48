"""Every feature by name: what it is, its unit, its source, its IBSI tag. A plain dict."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from cad.features.gradient import GRADIENTS
from cad.features.haralick import HARALICK
from cad.features.histogram import HISTOGRAM
from cad.features.intensity import STATISTICS
from cad.features.perfusion.definitions import MAPS


@dataclass(frozen=True)
class FeatureDefinition:
    """Define what a column of the feature table holds.

    Parameters
    ----------
    name : str
        Column name: image, family, feature.
    definition : str
        One sentence.
    unit : str
        "1" for a pure number.
    source : str
        Where the definition comes from.
    ibsi : str
        Four-character tag of the IBSI reference manual, or empty.
    """

    name: str
    definition: str
    unit: str
    source: str
    ibsi: str = ""


# name -> (definition, IBSI tag, power of the image's unit)
_STATISTICS: dict[str, tuple[str, str, int]] = {
    "mean": ("mean", "Q4LE", 1),
    "variance": ("population variance", "ECT3", 2),
    "skewness": ("skewness", "KE2A", 0),
    "kurtosis": ("excess kurtosis", "IPH6", 0),
    "median": ("median", "Y12H", 1),
    "minimum": ("minimum", "1GSF", 1),
    "p10": ("10th percentile", "QG58", 1),
    "p25": ("25th percentile", "", 1),
    "p75": ("75th percentile", "", 1),
    "p90": ("90th percentile", "8DWT", 1),
    "maximum": ("maximum", "84IY", 1),
    "iqr": ("interquartile range", "SALO", 1),
    "range": ("maximum minus minimum", "2OJQ", 1),
    "mad": ("mean absolute deviation from the mean", "4FUA", 1),
    "rmad": ("mean absolute deviation of the values between 10th and 90th percentile", "1128", 1),
    "medad": ("mean absolute deviation from the median", "N72L", 1),
    "cov": ("standard deviation / mean", "7TET", 0),
    "qcod": ("(p75 - p25) / (p75 + p25)", "9S40", 0),
    "energy": ("sum of squares over the voxels", "N8CA", 2),
    "rms": ("root mean square", "5ZWQ", 1),
}

_HISTOGRAM: dict[str, tuple[str, str]] = {
    "mean": ("mean level", "X6K6"),
    "variance": ("population variance of the levels", "CH89"),
    "skewness": ("skewness of the levels", "88K1"),
    "kurtosis": ("excess kurtosis of the levels", "C3I7"),
    "median": ("median level", "WIFQ"),
    "minimum": ("lowest level", "1PR8"),
    "p10": ("10th percentile of the levels", "GPMT"),
    "p90": ("90th percentile of the levels", "OZ0C"),
    "maximum": ("highest level", "3NCY"),
    "mode": ("most frequent level; of several the nearest to the mean", "AMMC"),
    "iqr": ("interquartile range of the levels", "WR0O"),
    "range": ("highest minus lowest level", "5Z3W"),
    "mad": ("mean absolute deviation from the mean level", "D2ZX"),
    "rmad": ("the same between 10th and 90th percentile", "WRZB"),
    "medad": ("mean absolute deviation from the median level", "4RNL"),
    "cov": ("standard deviation / mean of the levels", "CWYJ"),
    "qcod": ("quartile coefficient of dispersion of the levels", "SLWD"),
    "entropy": ("entropy of the levels, bits", "TLU2"),
    "uniformity": ("sum of squared level probabilities", "BJ5W"),
    "maximum_gradient": ("largest slope of the level counts", "12CE"),
    "maximum_gradient_level": ("level of that slope", "8E6O"),
    "minimum_gradient": ("smallest slope of the level counts", "VQB3"),
    "minimum_gradient_level": ("level of that slope", "RHQZ"),
}

_HARALICK: dict[str, tuple[str, str]] = {
    "joint_maximum": ("largest cell", "GYBY"),
    "joint_average": ("mean of i", "60VM"),
    "joint_variance": ("variance of i", "UR99"),
    "joint_entropy": ("entropy of the cells, bits", "TU9B"),
    "difference_average": ("mean of |i - j|", "TF7R"),
    "difference_variance": ("variance of |i - j|", "D3YU"),
    "difference_entropy": ("entropy of |i - j|, bits", "NTRS"),
    "sum_average": ("mean of i + j", "ZGXS"),
    "sum_variance": ("variance of i + j", "OEEB"),
    "sum_entropy": ("entropy of i + j, bits", "P6QZ"),
    "energy": ("angular second moment: sum of squared cells", "8ZQL"),
    "contrast": ("mean of (i - j)^2", "ACUI"),
    "dissimilarity": ("mean of |i - j|", "8S9J"),
    "inverse_difference": ("mean of 1 / (1 + |i - j|)", "IB1Z"),
    "inverse_difference_normalised": ("mean of 1 / (1 + |i - j| / N)", "NDRX"),
    "inverse_difference_moment": ("mean of 1 / (1 + (i - j)^2)", "WF0Z"),
    "inverse_difference_moment_normalised": ("mean of 1 / (1 + (i - j)^2 / N^2)", "1QCO"),
    "inverse_variance": ("mean of 1 / (i - j)^2 off the diagonal", "E8JP"),
    "correlation": ("correlation of i and j", "NI2N"),
    "autocorrelation": ("mean of i j", "QWB0"),
    "cluster_tendency": ("mean of (i + j - 2 mu)^2", "DG8W"),
    "cluster_shade": ("mean of (i + j - 2 mu)^3", "7NFM"),
    "cluster_prominence": ("mean of (i + j - 2 mu)^4", "AE86"),
    "information_correlation_1": ("(HXY - HXY1) / HX", "R8DG"),
    "information_correlation_2": ("sqrt(1 - exp(-2 (HXY2 - HXY)))", "JN9H"),
}

_IMAGES = {
    "t2w": ("T2-weighted intensity after standardisation", "standardised"),
    "adc": ("apparent diffusion coefficient", "1e-6 mm2/s"),
    "hbv": ("signal at high b, acquired or carried on from the decay", "a.u."),
}
_GRADIENTS = {
    "sobel": ("Sobel gradient magnitude (3-D)", "/mm", "Sobel 1968; spacing-aware"),
    "kirsch": ("largest of 8 Kirsch responses in the slice", "", "Kirsch 1971"),
}

_REGION: dict[str, tuple[str, str, str, str]] = {
    "size_volume": ("voxels of the label map times their volume", "mL", "IBSI", "YEKZ"),
    "size_mesh_volume": ("volume inside the mesh around the region", "mL", "IBSI", "RNU0"),
    "size_surface": ("area of that mesh", "mm2", "IBSI", "C0JK"),
    "size_diameter": ("largest distance of two points of that mesh", "mm", "IBSI", "L0JK"),
    "size_slices": ("slices in which the region was drawn", "1", "", ""),
    "position_capsule_distance": ("distance of the centre from the gland's outline", "mm", "", ""),
    "position_side": ("distance of the centre from the gland's middle, 1 at its side", "1", "", ""),
    "position_back": ("place of the centre between front (0) and back (1) of the gland", "1", "",
                      ""),
    "position_head": ("place of the centre between feet (0) and head (1) of the gland", "1", "",
                      ""),
}  # fmt: skip

# Ratios to the mean say nothing where 0 is no natural zero: z-scores, slopes, time differences.
RATIOS = ("cov", "qcod")
SIGNED = ("t2w_intensity", "dce_semi_wash_out", "dce_semi_bolus_arrival")


# What grows or shrinks with the number of voxels, whatever the tissue: sums over voxels, slopes of
# counts, extremes of many draws, entropies and correlation of few pairs. On some image each had a
# rank correlation beyond .5 with volume over 284 simulated regions, whose tissue does not depend on
# their size; uniformity, energy of co-occurrence, sum variance and the two cluster features in a
# second cohort of 284 only (python -m benchmarks.features meaning draws a third).
COUNTING = (
    "*_energy",
    "*_range",
    "*_sobel_minimum",
    "*_kirsch_minimum",
    "*_histogram_m??imum_gradient*",
    "*_histogram_entropy",
    "*_histogram_variance",
    "*_histogram_uniformity",
    "*_haralick_cluster_prominence",
    "*_haralick_cluster_tendency",
    "*_haralick_sum_variance",
    "*_haralick_joint_entropy",
    "*_haralick_sum_entropy",
    "*_haralick_correlation",
)
"""Patterns of features that tell a region's size under another name."""


@cache  # patterns over hundreds of names, the same in every study
def counts_voxels(name: str) -> bool:
    """Return whether a feature tells size under another name, see ``COUNTING``.

    They are measured only where ``features.counting`` asks for them.
    """
    return any(fnmatchcase(name, pattern) for pattern in COUNTING)


def map_feature_stem(map_name: str) -> str:
    """Return the first part of the column names of a perfusion map."""
    kinetic = (
        map_name.startswith(("tofts_", "extended_tofts_", "brix_", "patlak_")) or map_name == "t1"
    )
    return f"dce_{map_name}" if kinetic else f"dce_semi_{map_name}"


def statistics_of(stem: str) -> tuple[str, ...]:
    """Return which statistics make sense on an image or map; fit quality needs one, not twenty."""
    if stem.endswith("_did_not_fit"):
        return ("mean",)
    if stem.endswith(("_r2", "_residual")):
        return ("median",)
    if stem in SIGNED:
        return tuple(s for s in STATISTICS if s not in RATIOS)
    return STATISTICS


def _power(unit: str, power: int) -> str:
    if power == 0 or unit == "1":
        return "1"
    return unit if power == 1 else f"({unit})^{power}"


def _statistic(stem: str, name: str, what: str, unit: str, source: str) -> FeatureDefinition:
    text, tag, power = _STATISTICS[name]
    return FeatureDefinition(
        f"{stem}_{name}", f"{what}: {text}", _power(unit, power), source or "IBSI", tag
    )


def _build() -> dict[str, FeatureDefinition]:
    found = [FeatureDefinition(n, *what) for n, what in _REGION.items()]
    for image, (what, unit) in _IMAGES.items():
        stem = f"{image}_intensity"
        found += [_statistic(stem, n, what, unit, "IBSI") for n in statistics_of(stem)]
        found += [
            FeatureDefinition(f"{image}_histogram_{n}", f"{what}, levels: {text}", "1", "IBSI", tag)
            for n, (text, tag) in ((n, _HISTOGRAM[n]) for n in HISTOGRAM)
        ]
        for gradient in GRADIENTS:
            text, per, source = _GRADIENTS[gradient]
            found += [
                _statistic(f"{image}_{gradient}", n, f"{what}, {text}", unit + per, source)
                for n in STATISTICS
            ]
        found += [
            FeatureDefinition(
                f"{image}_haralick_{n}", f"{what}, co-occurrence: {text}", "1", "IBSI", tag
            )
            for n, (text, tag) in ((n, _HARALICK[n]) for n in HARALICK)
        ]
    for name, made in MAPS.items():
        stem = map_feature_stem(name)
        found += [
            _statistic(stem, n, made.definition, made.unit, made.source)
            for n in statistics_of(stem)
        ]
    return {f.name: f for f in found}


FEATURES: dict[str, FeatureDefinition] = _build()
"""Every feature that :func:`cad.features.table.extract` can measure without extras."""


# Columns of response maps, as cad.features.filters names them; how many there are, settings say.
_FILTERED = re.compile(
    r"(?P<image>t2w|adc|hbv)_(?P<filter>(?P<kind>mean|log)[0-9.e+-]+mm(_3d)?"
    r"|(?P<wavelet>wavelet)_[^_]+_[lh]+_[0-9](_turned)?)_(?P<statistic>[a-z0-9]+)"
)
_FILTERS = {
    "mean": ("mean filter", "", "S60F"),
    "log": ("Laplacian of Gaussian", "/mm2", "L6PA"),
    "wavelet": ("separable stationary wavelet", "", "25BO"),
}


def define(name: str) -> FeatureDefinition | None:
    """Return what a column holds, response maps included; None for pyradiomics' classes."""
    made = _FILTERED.fullmatch(name)
    if made is None or made["statistic"] not in STATISTICS:
        return FEATURES.get(name)
    what, unit = _IMAGES[made["image"]]
    title, per, tag = _FILTERS[made["kind"] or made["wavelet"]]
    stem = f"{made['image']}_{made['filter']}"
    return _statistic(stem, made["statistic"], f"{what}, {title}", unit + per, f"IBSI 2, {tag}")


def feature_units(names: list[str]) -> dict[str, str]:
    """Return the unit of each feature; pyradiomics' further classes are given as its own."""
    return {n: known.unit if (known := define(n)) else "pyradiomics" for n in names}


def features_page() -> str:
    """Return ``docs/features.md``: every feature with definition, unit and source."""
    lines = [
        "# Features",
        "",
        "Generated from `cad/features/registry.py`: "
        "`uv run python -m cad.features.registry > docs/features.md`.",
        "",
        "A region is measured in the own grid of every image. Names read image, family, feature.",
        "Co-occurrence: symmetric matrices, i and j are levels, N is the number of levels, mu the",
        "mean level. `IBSI` tags are those of the Image Biomarker Standardisation Initiative's",
        "manual. The unit `standardised` is the standard deviation of the gland (z-score), the",
        "intensity of a reference tissue, or Nyul's scale, as the pipeline says.",
        "",
        "Statistics of kinetic parameters leave out voxels that did not fit, and are missing where",
        "less than half of a region fits; R2, residual and the share that did not fit are of all",
        "voxels.",
        "",
        "Features that grow or shrink with the number of voxels tell size under another name and",
        "are measured only with `features.counting`: "
        + ", ".join(f"`{p}`" for p in COUNTING)
        + ".",
        "Size and position have features of their own (families `size` and `position`, off unless",
        "named).",
        "",
        "A constant region has a defined value for every feature: see `cad/features/intensity.py`,",
        "`histogram.py` and `haralick.py`. Further classes (shape, GLRLM, GLSZM, GLDM, NGTDM) come",
        "from pyradiomics when `features.radiomics` names them; their columns read",
        "`t2w_glrlm_<name>`, and its documentation defines them.",
        "",
        "Response maps of filters (`features.filters`, docs/filters.md; off unless named) have the",
        "20 statistics of an intensity: `t2w_log3mm_mean`, `adc_mean5mm_3d_p90`,",
        "`t2w_wavelet_db3_lh_1_turned_variance`.",
        "",
        "| feature | definition | unit | source | IBSI |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{f.name}` | {f.definition.replace('|', '&#124;')} | {f.unit} | {f.source} | {f.ibsi} |"
        for f in FEATURES.values()
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print(features_page(), end="")
