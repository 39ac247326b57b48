"""Say in words which families of features raised and lowered a region's belief.

A family is named with the level (low, high) of one of its features, its main feature.
"""

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
"""Largest number of phrases in the sentence beside a region's number."""
_WORTH_SAYING = 0.2
"""Share of the largest contribution below which the sentence leaves a family out."""
MOST = 6
"""Largest number of families with a bar of their own. The effects of the others are summed."""
_LOW = 25
_HIGH = 75
_TABLES = table_beside(__file__)
_WORDS: dict[str, list[str]] = _TABLES["families"]
_DICTATED: dict[str, dict[str, str]] = _TABLES["dictated"]
_FORMS: dict[str, list[str]] = {**dict.fromkeys(LEVELS, _TABLES["levels"]), **_TABLES["numbers"]}
_DARK = ("ADC", "T2 signal")
"""Families whose values radiologists expect to be low in cancer."""


class ReasonBar(NamedTuple):
    """Hold the contribution of one family of features to the log-odds of a region's belief.

    Parameters
    ----------
    title, words : str
        Name of the family with the level of its main feature, such as ``low ADC``, and an
        explanation of that feature.
    feature, definition : str
        Short name and definition of the family's main feature.
    value : str
        The region's value of this feature with its unit; empty for arbitrary units, in which values
        of different scanners cannot be compared.
    percentile : float or None
        Percentile of the value among the training regions.
    contribution : float
        What the family adds to the log-odds.
    share : float
        ``contribution`` relative to the region's largest contribution, from -1 (towards benign) to
        1 (towards malignant).
    dictated : str
        A radiologist's words for the family and its level, such as ``low ADC``. Empty if there are
        no such words for the family, or if the effect on the belief is the opposite of what a
        radiologist would expect.
    family : str
        Name of the family, such as ``ADC texture`` or ``plasma volume (vp)``.
    level : str
        Level of the family's main feature among the training regions, such as ``low values``; empty
        if no word describes this level.
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
    """Hold the reasons why a region's belief differs from that of the average training region.

    Parameters
    ----------
    average : float
        Log-odds of the belief of the average training region.
    bars : list of ReasonBar
        The families of features with the largest contributions, the largest first.
    n_without_bar : int
        Number of families without a bar.
    sum_without_bar : float
        Sum of the contributions of the families without a bar to the log-odds.
    """

    average: float
    bars: list[ReasonBar]
    n_without_bar: int
    sum_without_bar: float

    @property
    def total(self) -> float:
        """Return the log-odds of the region's belief."""
        return self.average + sum(bar.contribution for bar in self.bars) + self.sum_without_bar

    @property
    def sentence(self) -> str:
        """Say in English which families of features raised and lowered the region's belief."""
        return self.sentence_in(ENGLISH)

    def sentence_in(self, words: Wording) -> str:
        """Say in one line, in a radiologist's words, which families of features raised or lowered
        the belief.

        There are at most three phrases. A family with little effect is left out. Of the families
        that are not left out, two are always named: the one that raised the belief most, and the
        one that lowered it most. They are named even if a radiologist has no word for them, because
        a sheet of paper has no table of all families.

        Parameters
        ----------
        words : Wording
            Language of the text.

        Returns
        -------
        str
            One sentence, such as ``Raised by A; lowered by B.``, in the language of ``words``.
        """
        raised: list[str] = []
        lowered: list[str] = []
        for bar in self.bars:
            phrases = raised if bar.contribution > 0 else lowered
            if abs(bar.share) < _WORTH_SAYING or len(raised) + len(lowered) == MOST_PHRASES:
                continue
            phrase = words.say(bar.dictated) if bar.dictated else _with_level(bar, words)
            # The first family on either side is always named. A further one is named if a
            # radiologist has words for it that the sentence does not have already.
            if phrase not in phrases and (bar.dictated or not phrases):
                phrases.append(phrase)
        up = ", ".join(raised)
        down = ", ".join(lowered)
        if raised and lowered:
            return words.say("Raised by {raised}; lowered by {lowered}.", raised=up, lowered=down)
        if raised:
            return words.say("Raised by {raised}.", raised=up)
        return words.say("Lowered by {lowered}.", lowered=down)


def reason_sum(reasons: Sequence[Reason], columns: Mapping[str, Column]) -> ReasonSum | None:
    """Sum up which families of features raised and lowered a region's belief.

    Parameters
    ----------
    reasons : sequence of Reason
        The region's rows of ``explanations.csv``.
    columns : mapping of str to Column
        Description of each feature by name.

    Returns
    -------
    ReasonSum or None
        The largest contributions, and the sum of the other contributions; None if the region has no
        contributions.
    """
    # Each row is about one feature. The contribution of a whole family stands in one row only, that
    # of its main feature. So these rows stand for the families.
    ranked = [reason for reason in reasons if reason.contribution is not None]
    ranked.sort(key=lambda reason: -abs(reason.contribution or 0.0))
    if not ranked:
        return None
    # The bars are drawn relative to the largest contribution. If all are 0, 1 takes its place, so
    # that nothing is divided by zero.
    largest = abs(ranked[0].contribution or 0.0) or 1.0
    with_bar = ranked[:MOST]
    without_bar = ranked[MOST:]
    return ReasonSum(
        # The log-odds of the average training region are the same in every row.
        average=ranked[0].average or 0.0,
        bars=[_bar(reason, columns.get(reason.feature), largest) for reason in with_bar],
        n_without_bar=len(without_bar),
        sum_without_bar=sum(reason.contribution or 0.0 for reason in without_bar),
    )


def _bar(reason: Reason, column: Column | None, largest: float) -> ReasonBar:
    """Describe one family of features and its contribution to a region's belief.

    ``column`` describes the family's main feature; None if the feature is not known. ``largest``
    is the region's largest contribution, without its sign.
    """
    # The words for a low and a high value, and for some families a name that says more.
    group = reason.group
    last_word = group.rpartition(" ")[2]
    low, high, *stated_name = _WORDS.get(group) or _WORDS.get(last_word, ["low", "high"])
    if stated_name:
        name = stated_name[0]
    elif group[1:2].islower():
        # An ordinary word, such as "Size", begins with a small letter within a sentence; an
        # abbreviation, such as "ADC", stays.
        name = group[:1].lower() + group[1:]
    else:
        name = group

    # The word before the name, such as "low", and the remark behind it.
    percentile = reason.percentile
    remark = ""
    if percentile is None:
        word = ""
    elif _LOW <= percentile <= _HIGH:
        word = "ordinary"
    # A family is called low or high only if its main feature is a level, such as a mean or a
    # percentile. A wide spread of ADC, for example, is no high ADC.
    elif column is None or (column.statistic in LEVELS and column.family != "histogram"):
        word = low if percentile < _LOW else high
        lowers_belief = (reason.contribution or 0.0) < 0
        # A low ADC or T2 signal is expected to raise the belief, and a high one to lower it.
        if group in _DARK and (percentile < _LOW) == lowers_belief:
            remark = "(opposite to the usual sign)"
    elif column.statistic in SPREADS:
        word = "even" if percentile < _LOW else "uneven"
    else:
        fallback = [f"low {column.label}", f"high {column.label}"]
        low_values, high_values = _FORMS.get(column.statistic, fallback)
        word = ""
        remark = f"({high_values if percentile > _HIGH else low_values})"
    return ReasonBar(
        title=" ".join(filter(None, [word, name, remark])),
        words=column.words if column else "",
        feature=column.label if column else reason.feature,
        definition=f"{reason.feature}: {column.definition}" if column else reason.feature,
        # Values in arbitrary units cannot be compared between scanners, so they are not shown.
        value="" if "a.u." in reason.unit else measured(reason.value, reason.unit),
        percentile=percentile,
        contribution=reason.contribution or 0.0,
        share=(reason.contribution or 0.0) / largest,
        dictated=_dictated(reason, column),
        family=name,
        level=_level(percentile, column),
    )


def _level(percentile: float | None, column: Column | None) -> str:
    """Say whether a feature's value is usual, low or high among the training regions.

    The text is empty where no word describes the value of such a feature.
    """
    if percentile is None or column is None:
        return ""
    if _LOW <= percentile <= _HIGH:
        return "usual values"
    if column.statistic in SPREADS:
        return "uneven" if percentile > _HIGH else "even"
    forms = _FORMS.get(column.statistic)
    if not forms:
        return ""
    low_values, high_values = forms
    return high_values if percentile > _HIGH else low_values


def _with_level(bar: ReasonBar, words: Wording) -> str:
    """Return the name of a family of features, with the level of its main feature in brackets.

    The level says whether the feature's value is usual, low or high among the training regions.
    """
    family = words.again(bar.family)
    if not bar.level:
        return family
    level = words.say(bar.level)
    if family.endswith(")"):  # the level joins what is in the family's brackets already
        return f"{family[:-1]}, {level})"
    return f"{family} ({level})"


def _dictated(reason: Reason, column: Column | None) -> str:
    """Return a radiologist's words for a family of features and its level, such as ``low ADC``.

    The text is empty if there are no such words, or if the value is neither low nor high. It is
    also empty if the effect on the belief is the opposite of what a radiologist expects.
    """
    words = _DICTATED.get(reason.group)
    percentile = reason.percentile
    if words is None or percentile is None or _LOW <= percentile <= _HIGH:
        return ""
    # Only a level, such as a mean, is low or high. A wide spread of ADC, for example, is no high
    # ADC.
    if column is not None and (column.statistic not in LEVELS or column.family == "histogram"):
        return ""
    side = "low" if percentile < _LOW else "high"
    towards_cancer = (reason.contribution or 0.0) > 0
    if (side == words["of_cancer"]) != towards_cancer:
        return ""
    return words[side]
