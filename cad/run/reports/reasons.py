"""Put the reasons of a probability into words: families of features, each by its main feature."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cad.base.terms.beside import table_beside
from cad.base.terms.features import LEVELS, SPREADS
from cad.folders.run_folder.results import Reason
from cad.mri.columns import Column
from cad.run.reports.plots import measured
from cad.run.reports.wording import ENGLISH, Wording

MOST_PHRASES = 3
"""Phrases of the sentence that stands beside a region's number."""
_WORTH_SAYING = 0.2
"""Share of the largest contribution below which a family is not put into words."""
MOST = 6
"""Families with a bar of their own; the others are summed."""
_LOW = 25
_HIGH = 75
_TABLES = table_beside(__file__)
_WORDS: dict[str, list[str]] = _TABLES["families"]
_DICTATED: dict[str, dict[str, str]] = _TABLES["dictated"]
_FORMS: dict[str, list[str]] = {**dict.fromkeys(LEVELS, _TABLES["levels"]), **_TABLES["numbers"]}
_DARK = ("ADC", "T2 signal")
"""Families whose low values are what radiologists expect of cancer."""


class ReasonBar(NamedTuple):
    """Hold the addition of one family of features to a region's log odds.

    Parameters
    ----------
    title, words : str
        ``low ADC``, and what ADC is.
    feature, definition : str
        The feature that stands for the family: its short name and its definition.
    value : str
        The region's value of this feature with the unit; empty where the unit means nothing beyond
        one scanner.
    percentile : float or None
        Percentile of the value among the training regions.
    contribution : float
        What the family adds to the log odds.
    share : float
        ``contribution`` relative to the largest one of the region, from -1 (towards benign) to 1
        (towards malignant).
    dictated : str
        ``low ADC``: what a radiologist would dictate; empty where the family has no such word or
        the number moved the belief against what is expected of cancer.
    family : str
        Name of the family, ``ADC texture`` or ``plasma volume (vp)``.
    level : str
        ``low values``: how its main feature is against the training; empty where no word tells.
    """

    title: str
    words: str
    feature: str
    definition: str
    value: str
    percentile: float | None
    contribution: float
    share: float
    dictated: str = ""
    family: str = ""
    level: str = ""


@dataclass(frozen=True)
class ReasonSum:
    """Hold the reasons why a region's probability differs from the average training region's.

    Parameters
    ----------
    average : float
        Log odds of the average training region.
    bars : list of ReasonBar
        The families of features with the largest contributions, the largest first.
    others : int
        Number of the other families.
    rest : float
        Sum of their contributions to the log odds.
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
        """Return :meth:`sentence_in` English."""
        return self.sentence_in(ENGLISH)

    def sentence_in(self, words: Wording) -> str:
        """Say in a line what raised and what lowered the belief, in a radiologist's words.

        There are at most three phrases. The family that raised it most and the one that lowered it
        most are named also where they have no such word: a sheet of paper has no table of them.

        Parameters
        ----------
        words : Wording
            The language.
        """
        raised: list[str] = []
        lowered: list[str] = []
        for bar in self.bars:
            side = raised if bar.contribution > 0 else lowered
            if abs(bar.share) < _WORTH_SAYING or len(raised) + len(lowered) == MOST_PHRASES:
                continue
            phrase = words.say(bar.dictated) if bar.dictated else _with_level(bar, words)
            if phrase not in side and (bar.dictated or not side):
                side.append(phrase)
        up = ", ".join(raised)
        down = ", ".join(lowered)
        if raised and lowered:
            return words.say("Raised by {raised}; lowered by {lowered}.", raised=up, lowered=down)
        if raised:
            return words.say("Raised by {raised}.", raised=up)
        return words.say("Lowered by {lowered}.", lowered=down)


def reason_sum(reasons: Sequence[Reason], columns: Mapping[str, Column]) -> ReasonSum | None:
    """Sum up which families of features moved a region's probability.

    Parameters
    ----------
    reasons : sequence of Reason
        The region's rows of ``explanations.csv``.
    columns : mapping of str to Column
        Description of each feature by name.

    Returns
    -------
    ReasonSum or None
        The largest contributions, and the sum of the others; None where nothing was explained.
    """
    spoken = [reason for reason in reasons if reason.contribution is not None]
    spoken.sort(key=lambda reason: -abs(reason.contribution or 0.0))
    if not spoken:
        return None
    largest = abs(spoken[0].contribution or 0.0) or 1.0
    bars = [_bar(reason, columns.get(reason.feature), largest) for reason in spoken[:MOST]]
    others = sum(reason.contribution or 0.0 for reason in spoken[MOST:])
    return ReasonSum(spoken[0].average or 0.0, bars, len(spoken[MOST:]), others)


def _bar(reason: Reason, column: Column | None, largest: float) -> ReasonBar:
    last = reason.group.rpartition(" ")[2]
    low, high, *named = _WORDS.get(reason.group) or _WORDS.get(last, ["low", "high"])
    percentile = reason.percentile
    group = reason.group
    name = group[:1].lower() + group[1:] if group[1:2].islower() else group
    against = ""
    if percentile is None:
        word = ""
    elif _LOW <= percentile <= _HIGH:
        word = "ordinary"
    # Only a level is low or high as its family is: a wide spread of ADC is no high ADC.
    elif column is None or (column.statistic in LEVELS and column.family != "histogram"):
        word = low if percentile < _LOW else high
        lowers = (reason.contribution or 0.0) < 0
        against = (
            "(opposite to the usual sign)"
            if group in _DARK and (percentile < _LOW) == lowers
            else ""
        )
    elif column.statistic in SPREADS:
        word = "even" if percentile < _LOW else "uneven"
    else:
        named_so = _FORMS.get(column.statistic, [f"low {column.label}", f"high {column.label}"])
        word = ""
        against = f"({named_so[percentile > _HIGH]})"
    return ReasonBar(
        title=" ".join(filter(None, [word, *(named or [name]), against])),
        words=column.words if column else "",
        feature=column.label if column else reason.feature,
        definition=f"{reason.feature}: {column.definition}" if column else reason.feature,
        value="" if "a.u." in reason.unit else measured(reason.value, reason.unit),
        percentile=percentile,
        contribution=reason.contribution or 0.0,
        share=(reason.contribution or 0.0) / largest,
        dictated=_dictated(reason, column),
        family=(named or [name])[0],
        level=_level(percentile, column),
    )


def _level(percentile: float | None, column: Column | None) -> str:
    """Say how a feature is against those of the training."""
    if percentile is None or column is None:
        return ""
    if _LOW <= percentile <= _HIGH:
        return "usual values"
    if column.statistic in SPREADS:
        return "uneven" if percentile > _HIGH else "even"
    forms = _FORMS.get(column.statistic)
    return forms[percentile > _HIGH] if forms else ""


def _with_level(bar: ReasonBar, words: Wording) -> str:
    """Name a family, and how its main feature is against the training."""
    family = words.again(bar.family)
    if not bar.level:
        return family
    level = words.say(bar.level)
    if family.endswith(")"):
        return f"{family[:-1]}, {level})"
    return f"{family} ({level})"


def _dictated(reason: Reason, column: Column | None) -> str:
    """Return a radiologist's words for a family, where its level speaks as expected."""
    words = _DICTATED.get(reason.group)
    percentile = reason.percentile
    if words is None or percentile is None or _LOW <= percentile <= _HIGH:
        return ""
    if column is not None and (column.statistic not in LEVELS or column.family == "histogram"):
        return ""
    side = "low" if percentile < _LOW else "high"
    towards_cancer = (reason.contribution or 0.0) > 0
    if (side == words["of_cancer"]) != towards_cancer:
        return ""
    return words[side]
