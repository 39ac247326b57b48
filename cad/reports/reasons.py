"""Put what moved a probability into words: families of features, each with the one that speaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cad.columns import Column
from cad.reports.plots import measured
from cad.run_folder.results import Reason
from cad.terms.features import LEVELS, SPREADS

MOST = 6
"""Families with a bar of their own; the others are summed."""
_LOW, _HIGH = 25, 75
_WORDS = {
    "T2 signal": ("dark", "bright"),
    "Size": ("small", "large"),
    "Enhancement": ("weak", "strong"),
    "Wash-in": ("slow", "fast"),
    "Wash-out": ("fast", "slow"),  # a slope: the more negative, the faster
    "Arrival": ("early", "late"),
    "Time to peak": ("early", "late"),
    "Ktrans": ("little", "much", "leak of contrast (Ktrans)"),
    "ve": ("little", "much", "extracellular space (ve)"),
    "vp": ("little", "much", "plasma volume (vp)"),
    "kep": ("slow", "fast", "return of contrast (kep)"),
    "Brix amplitude": ("weak", "strong", "enhancement in the end (Brix)"),
    "Brix kep": ("slow", "fast", "enhancement (Brix kep)"),
    "Brix kel": ("slow", "fast", "loss of contrast (Brix kel)"),
    "edges": ("soft", "sharp"),
}
"""What a family is called below and above the middle half of the training, else low and high; and
by itself, where its name says too little."""
_ALIKE = ("neighbours alike", "neighbours differ")
_REGULAR = ("regular", "irregular")
_FORMS = {
    "skewness": ("a few low values", "a few high values"),
    "kurtosis": ("no extreme values", "a few extreme values"),
    **dict.fromkeys(("joint_average", "sum_average", "autocorrelation", *LEVELS),
                    ("low values", "high values")),
    **dict.fromkeys(("contrast", "dissimilarity", "difference_average", "difference_variance",
                     "difference_entropy"), _ALIKE),
    **dict.fromkeys(("inverse_difference", "inverse_difference_normalised", "inverse_variance",
                     "inverse_difference_moment", "inverse_difference_moment_normalised"),
                    _ALIKE[::-1]),
    **dict.fromkeys(("joint_entropy", "sum_entropy", "information_correlation_1"), _REGULAR),
    **dict.fromkeys(("joint_maximum", "correlation", "information_correlation_2"), _REGULAR[::-1]),
    "joint_variance": ("even", "uneven"),
}  # fmt: skip
"""What a low and a high value of a number says of its family, where that is neither a level nor a
spread of the image itself."""
_DARK = ("ADC", "T2 signal")
"""Families whose low values are what radiologists expect of cancer."""


@dataclass(frozen=True)
class ReasonBar:
    """Hold what one family of features added to the log odds.

    Parameters
    ----------
    title, words : str
        ``low ADC``, and what ADC is.
    feature, definition : str
        The feature that speaks for it, short and in full.
    value : str
        Its value with the unit; empty where the unit means nothing beyond one scanner.
    percentile : float or None
        Its place among the training regions.
    contribution, share : float
        In log odds, and of the largest one, from -1 (towards benign) to 1 (towards malignant).
    """

    title: str
    words: str
    feature: str
    definition: str
    value: str
    percentile: float | None
    contribution: float
    share: float


@dataclass(frozen=True)
class ReasonSum:
    """Hold what moved a region's probability, from the training's average region on.

    Parameters
    ----------
    average : float
        Log odds of the average region.
    bars : list of ReasonBar
        The strongest first.
    others, rest : int, float
        The families without a bar, and what they add together.
    """

    average: float
    bars: list[ReasonBar]
    others: int
    rest: float

    @property
    def total(self) -> float:
        """Return the region's log odds."""
        return self.average + sum(bar.contribution for bar in self.bars) + self.rest

    @property
    def sentence(self) -> str:
        """Say in a line what raised and what lowered the probability."""
        strong = [bar for bar in self.bars if abs(bar.share) >= 0.2][:3]
        raised = [bar.title for bar in strong if bar.contribution > 0]
        lowered = [bar.title for bar in strong if bar.contribution < 0]
        parts = [f"raised by {', '.join(raised)}"] if raised else []
        parts += [f"lowered by {', '.join(lowered)}"] if lowered else []
        text = "; ".join(parts)
        return f"{text[:1].upper()}{text[1:]}." if text else ""


def reason_sum(reasons: Sequence[Reason], columns: Mapping[str, Column]) -> ReasonSum | None:
    """Return the families that moved a region most; None where the run explains nothing."""
    spoken = [reason for reason in reasons if reason.contribution is not None]
    spoken.sort(key=lambda reason: -abs(reason.contribution or 0.0))
    if not spoken:
        return None
    largest = abs(spoken[0].contribution or 0.0) or 1.0
    bars = [_bar(reason, columns.get(reason.feature), largest) for reason in spoken[:MOST]]
    rest = sum(reason.contribution or 0.0 for reason in spoken[MOST:])
    return ReasonSum(spoken[0].average or 0.0, bars, len(spoken[MOST:]), rest)


def _bar(reason: Reason, column: Column | None, largest: float) -> ReasonBar:
    last = reason.group.rpartition(" ")[2]
    low, high, *named = _WORDS.get(reason.group) or _WORDS.get(last, ("low", "high"))
    at, group = reason.percentile, reason.group
    name = group[:1].lower() + group[1:] if group[1:2].islower() else group
    against = ""
    if at is None:
        word = ""
    elif _LOW <= at <= _HIGH:
        word = "ordinary"
    # Only a level is low or high as its family is: a wide spread of ADC is no high ADC.
    elif column is None or (column.statistic in LEVELS and column.family != "histogram"):
        word = low if at < _LOW else high
        lowers = (reason.contribution or 0.0) < 0
        against = "(opposite to the usual sign)" if group in _DARK and (at < _LOW) == lowers else ""
    elif column.statistic in SPREADS:
        word = "even" if at < _LOW else "uneven"
    else:
        named_so = _FORMS.get(column.statistic, (f"low {column.label}", f"high {column.label}"))
        word, against = "", f"({named_so[at > _HIGH]})"
    return ReasonBar(
        title=" ".join(filter(None, [word, *(named or [name]), against])),
        words=column.words if column else "",
        feature=column.label if column else reason.feature,
        definition=f"{reason.feature}: {column.definition}" if column else reason.feature,
        value="" if "a.u." in reason.unit else measured(reason.value, reason.unit),
        percentile=at,
        contribution=reason.contribution or 0.0,
        share=(reason.contribution or 0.0) / largest,
    )
