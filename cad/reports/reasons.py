"""Put what moved a probability into words: features by family, with units a reader knows."""

from __future__ import annotations

from dataclasses import dataclass

from cad.features.registry import define
from cad.imaging.modality import short_name
from cad.reports.plots import measured
from cad.run_folder.results import Reason

# Stem of a feature's name to the family it is shown under, and what that is in words.
_FAMILIES = {
    "t2w_intensity": ("T2 signal", "brightness on T2 against the gland; cancer is often dark"),
    "adc_intensity": ("ADC", "how freely water moves; low where cells are dense"),
    "hbv_intensity": ("High-b signal", "what stays bright at high b: water that cannot move"),
    "size": ("Size", "how large the region was drawn"),
    "position": ("Position", "where in the gland the region lies"),
    "dce_tofts_ktrans": ("Ktrans", "leak of contrast into tissue, per minute"),
    "dce_tofts_ve": ("ve", "share of the tissue outside cells that contrast can fill"),
    "dce_tofts_kep": ("kep", "return of contrast into blood, per minute"),
    "dce_extended_tofts_ktrans": ("Ktrans", "leak of contrast into tissue, per minute"),
    "dce_extended_tofts_ve": ("ve", "share of the tissue outside cells that contrast can fill"),
    "dce_extended_tofts_kep": ("kep", "return of contrast into blood, per minute"),
    "dce_extended_tofts_vp": ("vp", "share of the tissue that is blood plasma"),
    "dce_brix_amplitude": ("Brix amplitude", "how strongly the tissue enhances in the end"),
    "dce_brix_kep": ("Brix kep", "how fast it gets there, per minute"),
    "dce_brix_kel": ("Brix kel", "how fast contrast leaves the blood, per minute"),
    "dce_t1": ("T1", "relaxation time before contrast"),
    "dce_semi_wash_in": ("Wash-in", "how fast the tissue brightens, per minute"),
    "dce_semi_wash_out": ("Wash-out", "how fast it darkens after its peak, per minute"),
    "dce_semi_time_to_peak": ("Time to peak", "seconds from the bolus to the brightest frame"),
    "dce_semi_bolus_arrival": ("Arrival", "seconds by which it brightens after the first tissue"),
    "dce_semi_relative_enhancement": (
        "Enhancement",
        "peak brightness against that before contrast",
    ),
}
_ENDINGS = {
    "_residual": ("Fit of the curve", "how far the measured curve is from the fitted one"),
    "_r2": ("Fit of the curve", "how much of the measured curve the fit explains"),
    "_did_not_fit": ("Fit of the curve", "share of voxels whose curve no fit explains"),
}
_TEXTURES = {
    "histogram": ("distribution", "how its values spread within the region"),
    "sobel": ("edges", "how sharply values change from voxel to voxel, in 3-D"),
    "kirsch": ("edges", "how sharply values change from voxel to voxel, in the slice"),
    "haralick": ("texture", "how values of neighbouring voxels go together"),
}


@dataclass(frozen=True)
class ReasonBar:
    """Hold a feature that moved the decision, with its bar as a share of the largest one.

    Parameters
    ----------
    reason : Reason
        As the run wrote it.
    share : float
        From -1 (towards benign) to 1 (towards malignant).
    value : str
        With its unit; a place among the training regions where the unit is arbitrary.
    title, definition : str
        The feature in words: short, and as its registry defines it.
    """

    reason: Reason
    share: float
    value: str
    title: str
    definition: str


@dataclass(frozen=True)
class ReasonGroup:
    """Hold the features of one family, in words."""

    family: str
    words: str
    bars: list[ReasonBar]


def arbitrary(unit: str) -> bool:
    """Return whether a unit means nothing beyond one scanner."""
    return "a.u." in unit


def family_of(feature: str) -> tuple[str, str, str]:
    """Return the family of a feature, what it is in words, and what is left of the name."""
    stem = max((s for s in _FAMILIES if feature.startswith(s + "_")), key=len, default="")
    for ending, said in _ENDINGS.items():
        if ending + "_" in feature:
            return *said, feature.split(ending + "_")[1]
    if stem:
        return *_FAMILIES[stem], feature.removeprefix(stem + "_")
    modality, _, rest = feature.partition("_")
    kind, _, rest = rest.partition("_")
    word, words = _TEXTURES.get(kind, (kind or feature, "see docs/features.md"))
    return f"{short_name(modality)} {word}", words, rest


def reason_groups(reasons: list[Reason], most: int = 6) -> list[ReasonGroup]:
    """Sort the strongest reasons into families, the strongest family first.

    Features in arbitrary scanner units are no reasons a reader can use: they are left out here,
    and stay in ``explanations.csv``.
    """
    known = [reason for reason in reasons if not arbitrary(reason.unit)][:most]
    largest = max((abs(reason.delta) for reason in known), default=0.0) or 1.0
    groups: dict[str, ReasonGroup] = {}
    for reason in known:
        family, words, rest = family_of(reason.feature)
        group = groups.setdefault(family, ReasonGroup(family, words, []))
        group.bars.append(_bar(reason, rest, largest))
    return sorted(groups.values(), key=lambda g: -sum(abs(b.reason.delta) for b in g.bars))


def _bar(reason: Reason, rest: str, largest: float) -> ReasonBar:
    definition = define(reason.feature)
    return ReasonBar(
        reason=reason,
        share=reason.delta / largest,
        value=measured(reason.value, reason.unit),
        title=_WORDS.get(rest, rest.replace("_", " ")) or reason.feature,
        definition=f"{reason.feature}: {definition.definition}" if definition else reason.feature,
    )


_WORDS = {
    "p10": "10th percentile",
    "p25": "25th percentile",
    "p75": "75th percentile",
    "p90": "90th percentile",
    "iqr": "interquartile range",
    "mad": "mean deviation",
    "rmad": "robust mean deviation",
    "medad": "deviation from the median",
    "cov": "relative spread",
    "qcod": "relative quartile spread",
    "rms": "root mean square",
    "kurtosis": "heaviness of the tails",
    "skewness": "asymmetry",
}
