"""The words of the features: what each statistic, texture, map and filter is, as plain tables.

Keys are the parts that columns' names are put together from (:mod:`cad.columns`), in the order in
which columns are stored. Nothing here computes; the kernels' own modules do.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Statistic:
    """Describe one number of a region's values, grey levels or pairs of levels.

    Parameters
    ----------
    definition : str
        What it is.
    ibsi : str
        Four-character tag of the IBSI reference manual, or empty.
    power : int
        Power of the image's unit that it is measured in.
    label : str
        What a page calls it; empty where its name says it.
    """

    definition: str
    ibsi: str = ""
    power: int = 0
    label: str = ""


@dataclass(frozen=True)
class Part:
    """Describe an image, a map or a response of which statistics are taken.

    Parameters
    ----------
    definition : str
        What its values are.
    unit : str
        "1" for a pure number. Of a gradient or a filter: what follows the image's unit.
    source : str
        Where the definition comes from.
    title, words : str
        What a page calls it, and what that is in words.
    group : str
        What the limits of training regions call its family.
    """

    definition: str
    unit: str
    source: str
    title: str
    words: str
    group: str


@dataclass(frozen=True)
class PerfusionMap(Part):
    """Describe a map of the dynamic series.

    Parameters
    ----------
    model : str
        The kinetic model that it is a result of; empty without one.
    role : str
        ``parameter``; of a fit's quality ``r2``, ``residual`` or ``did_not_fit``.
    """

    model: str = ""
    role: str = "parameter"


STATISTICS: dict[str, Statistic] = {
    "mean": Statistic("mean", "Q4LE", 1),
    "variance": Statistic("population variance", "ECT3", 2),
    "skewness": Statistic("skewness", "KE2A", 0, "asymmetry"),
    "kurtosis": Statistic("excess kurtosis", "IPH6", 0, "heaviness of the tails"),
    "median": Statistic("median", "Y12H", 1),
    "minimum": Statistic("minimum", "1GSF", 1),
    "p10": Statistic("10th percentile", "QG58", 1, "10th percentile"),
    "p25": Statistic("25th percentile", "", 1, "25th percentile"),
    "p75": Statistic("75th percentile", "", 1, "75th percentile"),
    "p90": Statistic("90th percentile", "8DWT", 1, "90th percentile"),
    "maximum": Statistic("maximum", "84IY", 1),
    "iqr": Statistic("interquartile range", "SALO", 1, "interquartile range"),
    "range": Statistic("maximum minus minimum", "2OJQ", 1),
    "mad": Statistic("mean absolute deviation from the mean", "4FUA", 1, "mean deviation"),
    "rmad": Statistic(
        "mean absolute deviation of the values between 10th and 90th percentile",
        "1128",
        1,
        "robust mean deviation",
    ),
    "medad": Statistic(
        "mean absolute deviation from the median", "N72L", 1, "deviation from the median"
    ),
    "cov": Statistic("standard deviation / mean", "7TET", 0, "relative spread"),
    "qcod": Statistic("(p75 - p25) / (p75 + p25)", "9S40", 0, "relative quartile spread"),
    "energy": Statistic("sum of squares over the voxels", "N8CA", 2),
    "rms": Statistic("root mean square", "5ZWQ", 1, "root mean square"),
}
LEVELS = ("mean", "median", "minimum", "p10", "p25", "p75", "p90", "maximum", "rms")
"""Statistics that move with an image's scale and offset as a whole."""
SPREADS = ("variance", "iqr", "range", "mad", "rmad", "medad", "cov", "qcod")
"""Statistics of how far the voxels of a region differ."""
RATIOS = ("cov", "qcod")
"""Ratios to the mean say nothing where 0 is no natural zero: z-scores, slopes, time differences."""

HISTOGRAM: dict[str, Statistic] = {
    "mean": Statistic("mean level", "X6K6"),
    "variance": Statistic("population variance of the levels", "CH89"),
    "skewness": Statistic("skewness of the levels", "88K1"),
    "kurtosis": Statistic("excess kurtosis of the levels", "C3I7"),
    "median": Statistic("median level", "WIFQ"),
    "minimum": Statistic("lowest level", "1PR8"),
    "p10": Statistic("10th percentile of the levels", "GPMT"),
    "p90": Statistic("90th percentile of the levels", "OZ0C"),
    "maximum": Statistic("highest level", "3NCY"),
    "mode": Statistic("most frequent level; of several the nearest to the mean", "AMMC"),
    "iqr": Statistic("interquartile range of the levels", "WR0O"),
    "range": Statistic("highest minus lowest level", "5Z3W"),
    "mad": Statistic("mean absolute deviation from the mean level", "D2ZX"),
    "rmad": Statistic("the same between 10th and 90th percentile", "WRZB"),
    "medad": Statistic("mean absolute deviation from the median level", "4RNL"),
    "cov": Statistic("standard deviation / mean of the levels", "CWYJ"),
    "qcod": Statistic("quartile coefficient of dispersion of the levels", "SLWD"),
    "entropy": Statistic("entropy of the levels, bits", "TLU2"),
    "uniformity": Statistic("sum of squared level probabilities", "BJ5W"),
    "maximum_gradient": Statistic("largest slope of the level counts", "12CE"),
    "maximum_gradient_level": Statistic("level of that slope", "8E6O"),
    "minimum_gradient": Statistic("smallest slope of the level counts", "VQB3"),
    "minimum_gradient_level": Statistic("level of that slope", "RHQZ"),
}

HARALICK: dict[str, Statistic] = {
    "joint_maximum": Statistic("largest cell", "GYBY"),
    "joint_average": Statistic("mean of i", "60VM"),
    "joint_variance": Statistic("variance of i", "UR99"),
    "joint_entropy": Statistic("entropy of the cells, bits", "TU9B"),
    "difference_average": Statistic("mean of |i - j|", "TF7R"),
    "difference_variance": Statistic("variance of |i - j|", "D3YU"),
    "difference_entropy": Statistic("entropy of |i - j|, bits", "NTRS"),
    "sum_average": Statistic("mean of i + j", "ZGXS"),
    "sum_variance": Statistic("variance of i + j", "OEEB"),
    "sum_entropy": Statistic("entropy of i + j, bits", "P6QZ"),
    "energy": Statistic("angular second moment: sum of squared cells", "8ZQL"),
    "contrast": Statistic("mean of (i - j)^2", "ACUI"),
    "dissimilarity": Statistic("mean of |i - j|", "8S9J"),
    "inverse_difference": Statistic("mean of 1 / (1 + |i - j|)", "IB1Z"),
    "inverse_difference_normalised": Statistic("mean of 1 / (1 + |i - j| / N)", "NDRX"),
    "inverse_difference_moment": Statistic("mean of 1 / (1 + (i - j)^2)", "WF0Z"),
    "inverse_difference_moment_normalised": Statistic("mean of 1 / (1 + (i - j)^2 / N^2)", "1QCO"),
    "inverse_variance": Statistic("mean of 1 / (i - j)^2 off the diagonal", "E8JP"),
    "correlation": Statistic("correlation of i and j", "NI2N"),
    "autocorrelation": Statistic("mean of i j", "QWB0"),
    "cluster_tendency": Statistic("mean of (i + j - 2 mu)^2", "DG8W"),
    "cluster_shade": Statistic("mean of (i + j - 2 mu)^3", "7NFM"),
    "cluster_prominence": Statistic("mean of (i + j - 2 mu)^4", "AE86"),
    "information_correlation_1": Statistic("(HXY - HXY1) / HX", "R8DG"),
    "information_correlation_2": Statistic("sqrt(1 - exp(-2 (HXY2 - HXY)))", "JN9H"),
}

# What grows or shrinks with the number of voxels, whatever the tissue: sums over voxels, slopes of
# counts, extremes of many draws, entropies and correlation of few pairs. On some image each had a
# rank correlation beyond .5 with volume over 284 simulated regions, whose tissue does not depend on
# their size; uniformity, energy of co-occurrence, sum variance and the two cluster features in a
# second cohort of 284 only (python -m benchmarks.features meaning draws a third).
COUNTING: dict[str, tuple[str, ...]] = {
    "every": ("energy", "range"),
    "gradient": ("minimum",),
    "histogram": (
        "maximum_gradient",
        "maximum_gradient_level",
        "minimum_gradient",
        "minimum_gradient_level",
        "entropy",
        "variance",
        "uniformity",
    ),
    "haralick": (
        "cluster_prominence",
        "cluster_tendency",
        "sum_variance",
        "joint_entropy",
        "sum_entropy",
        "correlation",
    ),
}
"""By family: statistics that tell a region's size under another name."""

IMAGES: dict[str, Part] = {
    "t2w": Part(
        "T2-weighted intensity after standardisation",
        "standardised",
        "IBSI",
        "T2 signal",
        "brightness on T2 against the gland; cancer is often dark",
        "intensity",
    ),
    "adc": Part(
        "apparent diffusion coefficient",
        "1e-6 mm2/s",
        "IBSI",
        "ADC",
        "how freely water moves; low where cells are dense",
        "intensity",
    ),
    "hbv": Part(
        "signal at high b, acquired or carried on from the decay",
        "a.u.",
        "IBSI",
        "High-b signal",
        "what stays bright at high b: water that cannot move",
        "intensity",
    ),
}

# Titles follow the image's short name: "T2 texture".
GRADIENTS: dict[str, Part] = {
    "sobel": Part(
        "Sobel gradient magnitude (3-D)",
        "/mm",
        "Sobel 1968; spacing-aware",
        "edges",
        "how sharply values change from voxel to voxel, in 3-D",
        "gradient",
    ),
    "kirsch": Part(
        "largest of 8 Kirsch responses in the slice",
        "",
        "Kirsch 1971",
        "edges",
        "how sharply values change from voxel to voxel, in the slice",
        "gradient",
    ),
}
FILTERS: dict[str, Part] = {
    "mean": Part(
        "mean filter",
        "",
        "IBSI 2, S60F",
        "smoothed",
        "its values averaged over the neighbourhood",
        "smoothed",
    ),
    "log": Part(
        "Laplacian of Gaussian",
        "/mm2",
        "IBSI 2, L6PA",
        "blobs",
        "bright or dark spots of the filter's size",
        "blobs",
    ),
    "wavelet": Part(
        "separable stationary wavelet",
        "",
        "IBSI 2, 25BO",
        "wavelet",
        "detail of one scale and direction",
        "wavelet",
    ),
}
LEVEL_COUNTS = Part(
    "levels", "1", "IBSI", "distribution", "how its values spread within the region", "histogram"
)
PAIRS = Part(
    "co-occurrence",
    "1",
    "IBSI",
    "texture",
    "how values of neighbouring voxels go together",
    "texture",
)

SIZE: dict[str, tuple[str, str, str]] = {
    "volume": ("voxels of the label map times their volume", "mL", "YEKZ"),
    "mesh_volume": ("volume inside the mesh around the region", "mL", "RNU0"),
    "surface": ("area of that mesh", "mm2", "C0JK"),
    "diameter": ("largest distance of two points of that mesh", "mm", "L0JK"),
    "slices": ("slices in which the region was drawn", "1", ""),
}
POSITION: dict[str, tuple[str, str, str]] = {
    "capsule_distance": ("distance of the centre from the gland's outline", "mm", ""),
    "side": ("distance of the centre from the gland's middle, 1 at its side", "1", ""),
    "back": ("place of the centre between front (0) and back (1) of the gland", "1", ""),
    "head": ("place of the centre between feet (0) and head (1) of the gland", "1", ""),
}
"""Both: name -> (definition, unit, IBSI tag)."""

SHAPE_UNITS = {
    "Elongation": "1",
    "Flatness": "1",
    "Sphericity": "1",
    "MeshVolume": "mm3",
    "VoxelVolume": "mm3",
    "SurfaceArea": "mm2",
    "SurfaceVolumeRatio": "1/mm",
}
"""Of pyradiomics' features of a shape; the others are lengths in mm."""

# pyradiomics' names of the features of a class (version 3.1), with what a page calls the class and
# what its numbers are. Those of a shape have units of their own.
RADIOMICS: dict[str, tuple[Part, tuple[str, ...]]] = {
    "shape": (
        Part("shape", "mm", "pyradiomics", "Shape", "the form of the region as drawn", "shape"),
        (
            "Elongation",
            "Flatness",
            "LeastAxisLength",
            "MajorAxisLength",
            "Maximum2DDiameterColumn",
            "Maximum2DDiameterRow",
            "Maximum2DDiameterSlice",
            "Maximum3DDiameter",
            "MeshVolume",
            "MinorAxisLength",
            "Sphericity",
            "SurfaceArea",
            "SurfaceVolumeRatio",
            "VoxelVolume",
        ),
    ),
    "glrlm": (
        Part("runs of equal levels", "1", "pyradiomics", "runs",
             "how far equal values run on in a line", "runs"),
        (
            "GrayLevelNonUniformity",
            "GrayLevelNonUniformityNormalized",
            "GrayLevelVariance",
            "HighGrayLevelRunEmphasis",
            "LongRunEmphasis",
            "LongRunHighGrayLevelEmphasis",
            "LongRunLowGrayLevelEmphasis",
            "LowGrayLevelRunEmphasis",
            "RunEntropy",
            "RunLengthNonUniformity",
            "RunLengthNonUniformityNormalized",
            "RunPercentage",
            "RunVariance",
            "ShortRunEmphasis",
            "ShortRunHighGrayLevelEmphasis",
            "ShortRunLowGrayLevelEmphasis",
        ),
    ),
    "glszm": (
        Part("zones of equal levels", "1", "pyradiomics", "zones",
             "how large patches of equal values are", "zones"),
        (
            "GrayLevelNonUniformity",
            "GrayLevelNonUniformityNormalized",
            "GrayLevelVariance",
            "HighGrayLevelZoneEmphasis",
            "LargeAreaEmphasis",
            "LargeAreaHighGrayLevelEmphasis",
            "LargeAreaLowGrayLevelEmphasis",
            "LowGrayLevelZoneEmphasis",
            "SizeZoneNonUniformity",
            "SizeZoneNonUniformityNormalized",
            "SmallAreaEmphasis",
            "SmallAreaHighGrayLevelEmphasis",
            "SmallAreaLowGrayLevelEmphasis",
            "ZoneEntropy",
            "ZonePercentage",
            "ZoneVariance",
        ),
    ),
    "gldm": (
        Part("neighbours of equal level", "1", "pyradiomics", "dependence",
             "how many neighbours of a voxel have its value", "dependence"),
        (
            "DependenceEntropy",
            "DependenceNonUniformity",
            "DependenceNonUniformityNormalized",
            "DependenceVariance",
            "GrayLevelNonUniformity",
            "GrayLevelVariance",
            "HighGrayLevelEmphasis",
            "LargeDependenceEmphasis",
            "LargeDependenceHighGrayLevelEmphasis",
            "LargeDependenceLowGrayLevelEmphasis",
            "LowGrayLevelEmphasis",
            "SmallDependenceEmphasis",
            "SmallDependenceHighGrayLevelEmphasis",
            "SmallDependenceLowGrayLevelEmphasis",
        ),
    ),
    "ngtdm": (
        Part("tone against the neighbours", "1", "pyradiomics", "tone",
             "how a voxel's value differs from its neighbours' mean", "tone"),
        ("Busyness", "Coarseness", "Complexity", "Contrast", "Strength"),
    ),
    "total_energy": (
        Part("energy times the voxel's volume", "", "pyradiomics", "energy",
             "the sum of squared values over the region's volume", "intensity"),
        ("TotalEnergy",),
    ),
    "mcc": (
        Part("co-occurrence", "1", "pyradiomics", "texture", PAIRS.words, PAIRS.group),
        ("MCC",),
    ),
}  # fmt: skip

_KTRANS = ("Ktrans", "leak of contrast into tissue, per minute")
_VE = ("ve", "share of the tissue outside cells that contrast can fill")
_KEP = ("kep", "return of contrast into blood, per minute")
_VP = ("vp", "share of the tissue that is blood plasma")
_PARAMETERS: dict[str, tuple[str, str, tuple[str, str]]] = {
    "ktrans": ("volume transfer constant", "1/min", _KTRANS),
    "ve": ("extravascular extracellular volume fraction", "1", _VE),
    "vp": ("plasma volume fraction", "1", _VP),
    "kep": ("exchange rate constant", "1/min", _KEP),
    "amplitude": (
        "amplitude A, relative to the baseline signal",
        "1",
        ("Brix amplitude", "how strongly the tissue enhances in the end"),
    ),
    "kel": (
        "elimination rate constant",
        "1/min",
        ("Brix kel", "how fast contrast leaves the blood, per minute"),
    ),
}
_BRIX_KEP = ("Brix kep", "how fast it gets there, per minute")
_FIT = "Fit of the curve"
# role -> (definition, unit or that of the curve, words)
_QUALITY = {
    "r2": (
        "coefficient of determination of the fit",
        "1",
        "how much of the measured curve the fit explains",
    ),
    "residual": (
        "root mean square of curve minus model",
        "",
        "how far the measured curve is from the fitted one",
    ),
    "did_not_fit": (
        "1 where a parameter is on its bound, singular or not converged",
        "1",
        "share of voxels whose curve no fit explains",
    ),
}
_OSIPI = "OSIPI lexicon"


def _model(
    model: str, title: str, parameters: tuple[str, ...], unit: str, source: str
) -> dict[str, PerfusionMap]:
    """Describe the maps of a kinetic model: its parameters, then how well it fits."""
    maps = {}
    for name in parameters:
        text, own_unit, words = _PARAMETERS[name]
        if (model, name) == ("brix", "kep"):
            words = _BRIX_KEP
        maps[f"{model}_{name}"] = PerfusionMap(
            f"{title}: {text}", own_unit, source, *words, title, model
        )
    for role, (text, own_unit, explained) in _QUALITY.items():
        maps[f"{model}_{role}"] = PerfusionMap(
            f"{title}: {text}", own_unit or unit, source, _FIT, explained, title, model, role
        )
    return maps


def _curve(
    definition: str, unit: str, title: str, words: str, source: str = _OSIPI
) -> PerfusionMap:
    return PerfusionMap(definition, unit, source, title, words, "enhancement")


MAPS: dict[str, PerfusionMap] = {
    "t1": PerfusionMap(
        "longitudinal relaxation time before contrast",
        "s",
        _OSIPI,
        "T1",
        "relaxation time before contrast",
        "T1",
    ),
    "baseline_signal": _curve(
        "mean signal before the bolus", "a.u.", "Baseline", "signal before contrast"
    ),
    "bolus_arrival": _curve(
        "bolus arrival after the study's, linear-linear corner",
        "s",
        "Arrival",
        "seconds by which it brightens after the first tissue",
        "Cheong 2003",
    ),
    "maximum_enhancement": _curve(
        "largest signal minus baseline",
        "a.u.",
        "Enhancement, absolute",
        "peak brightness less that before contrast",
    ),
    "relative_enhancement": _curve(
        "maximum enhancement / baseline",
        "1",
        "Enhancement",
        "peak brightness against that before contrast",
    ),
    "time_to_peak": _curve(
        "largest signal after the study's arrival",
        "s",
        "Time to peak",
        "seconds from the bolus to the brightest frame",
    ),
    "wash_in": _curve(
        "relative enhancement / time to peak",
        "1/min",
        "Wash-in",
        "how fast the tissue brightens, per minute",
    ),
    "wash_out": _curve(
        "slope of the relative enhancement from the peak on",
        "1/min",
        "Wash-out",
        "how fast it darkens after its peak, per minute",
    ),
    "iauc60": _curve(
        "area under the concentration, first 60 s",
        "mM s",
        "Initial area",
        "contrast that arrives in the first 60 s",
    ),
    "iauc90": _curve(
        "area under the concentration, first 90 s",
        "mM s",
        "Initial area",
        "contrast that arrives in the first 90 s",
    ),
    **_model("tofts", "Tofts", ("ktrans", "ve", "kep"), "mM", "Tofts 1999"),
    **_model("extended_tofts", "extended Tofts", ("ktrans", "ve", "vp", "kep"), "mM", "Tofts 1999"),
    **_model("brix", "Brix", ("amplitude", "kep", "kel"), "1", "Brix 1991"),
    **_model("patlak", "Patlak", ("ktrans", "vp"), "mM", "Patlak 1983"),
}
"""Every map of a dynamic series, in the order of storage; names follow OSIPI's lexicon."""
