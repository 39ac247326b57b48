"""Define readers' scales: their possible scores, and the probability of malignancy of each
score.
"""

import difflib
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from cad.base.errors import CadError

_FIVE = (1.0, 2.0, 3.0, 4.0, 5.0)
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
_LEVELS: dict[str, tuple[float, ...]] = {"likert5": _FIVE, "likert01": _QUARTERS, "pirads": _FIVE}
SCALES = (*_LEVELS, "percent")
# Least number of scores in percent for an error if they are all 0 or 1, or all 1 to 5: they are
# then probably not in percent. Fewer scores may be so small by chance.
_TOLD = 20


PIRADS_TABLES = {
    "pi-cai": (
        "1,324 biopsied lesions of the public marksheet of the PI-CAI challenge; lesions that "
        "nobody biopsied are rarer cancers",
        {1: (2, 96), 2: (11, 148), 3: (24, 240), 4: (159, 437), 5: (257, 403)},
    )
}
"""Tables of the PI-RADS categories, by their name in the settings.

Each entry has the source of the lesions and, for every category, two numbers: how many lesions have
ISUP grade 2 or above, and how many lesions there are.
"""


def pirads_note(name: str) -> str:
    """Return a sentence on a named table of :data:`PIRADS_TABLES`, for the notes of a run.

    For each category the sentence has the share of lesions with ISUP 2 or above, with exact 95 %
    intervals (Clopper and Pearson, Biometrika 26 (1934) 404).
    """
    from scipy.stats import binomtest  # slow to load; only reports need this import

    source, counts = PIRADS_TABLES[name]
    shares = []
    for category, (cancers, lesions) in counts.items():
        interval = binomtest(cancers, lesions).proportion_ci()
        share = cancers / lesions
        shares.append(f"{category}: {share:.3f} [{interval.low:.3f}, {interval.high:.3f}]")
    return f"PI-RADS scores mean the share with ISUP 2 or above in {source}: {', '.join(shares)}"


def pirads_table(choice: str | Mapping[int, float]) -> Mapping[int, float]:
    """Return the probability of malignancy by PI-RADS category.

    Parameters
    ----------
    choice : str or mapping of int to float
        Name of a table in :data:`PIRADS_TABLES`, or the probabilities themselves.

    Raises
    ------
    CadError
        For an unknown name, and for a mapping in which a higher category has a lower probability.
    """
    # A text is the name of a published table; a mapping has the probabilities themselves.
    if isinstance(choice, str):
        if choice not in PIRADS_TABLES:
            raise CadError(
                f"labels.pirads_probability names {choice!r}: known is {', '.join(PIRADS_TABLES)}"
            )
        _, counts = PIRADS_TABLES[choice]
        return {category: cancers / lesions for category, (cancers, lesions) in counts.items()}
    ascending = [choice[category] for category in sorted(choice)]
    if (np.diff(ascending) < 0).any():
        raise CadError(
            f"labels.pirads_probability {dict(choice)} falls from one category to the next",
            hint="a higher PI-RADS category is never less suspicious",
        )
    return choice


def check_score(scale: str, score: float) -> None:
    """Raise an error unless a score exists on its scale.

    Parameters
    ----------
    scale : str
        One of ``likert5``, ``likert01``, ``pirads``, ``percent``.
    score : float
        The score as the reader gave it.

    Raises
    ------
    CadError
        For an unknown scale, or a score that its scale does not have (NaN included).
    """
    if scale not in SCALES:
        closest = difflib.get_close_matches(str(scale), SCALES, n=1)
        raise CadError(
            f"unknown scale {scale!r}, must be one of {', '.join(SCALES)}",
            hint=f"did you mean {closest[0]!r}?" if closest else "",
        )
    if scale == "percent":
        if not 0 <= score <= 100:
            raise CadError(f"score {score:g} is outside its scale percent, 0 to 100")
    elif score not in _LEVELS[scale]:
        levels = " ".join(f"{level:g}" for level in _LEVELS[scale])
        raise CadError(f"score {score:g} is not on its scale {scale}: {levels}")


def check_percent(scores: ArrayLike, word: str = "scale") -> None:
    """Raise an error if scores in percent are probably not in percent.

    Parameters
    ----------
    scores : array_like
        All scores of one source that it states in percent.
    word : str
        Word for the scale in the message, such as ``--scale`` for a command.

    Raises
    ------
    CadError
        If all scores are at most 1 and one of them is a fraction: nobody says .9 %. If 20 scores or
        more are all 0 or 1, or all steps of a five-point scale.

    Examples
    --------
    >>> check_percent([0.9, 80])
    >>> check_percent([0, 1])
    """
    values = np.asarray(scores, float)
    # A score above 5 can only be in percent.
    if len(values) == 0 or values.max() > 5:
        return
    are_steps = bool(np.isin(values, _FIVE).all())
    are_shares = bool(values.max() <= 1)
    has_fraction = bool(((values > 0) & (values < 1)).any())
    if not are_steps and not are_shares:
        return
    # A few such scores prove nothing: a reader may well give a few regions 0, 1 or 5 per cent. But
    # nobody says .9 per cent.
    if len(values) < _TOLD and not (are_shares and has_fraction):
        return
    description = "1 to 5, as on the scale likert5" if are_steps else "at most 1, as a share is"
    way_out = f"{word} likert5"
    if not are_steps:
        way_out = f"write 80 for .8, or {word} likert01 for quarters"
    raise CadError(
        f"all {len(values)} scores are {description}, and {word} percent takes 0 to 100",
        hint=way_out,
    )


def score_probability(
    scale: str, score: float, pirads_probability: str | Mapping[int, float] = "pi-cai"
) -> float:
    """Return the probability of malignancy that a score states (docs/methods.md 1).

    Parameters
    ----------
    scale : str
        One of ``likert5``, ``likert01``, ``pirads``, ``percent``.
    score : float
        The score as the reader gave it.
    pirads_probability : str or mapping of int to float
        Name of a table in :data:`PIRADS_TABLES`, or the probability of each category. Only the
        scale ``pirads`` uses it, because equal steps of PI-RADS categories are not equal steps of
        probability.

    Returns
    -------
    float
        The probability, in [0, 1].

    Raises
    ------
    CadError
        For the errors of :func:`check_score`, and for a PI-RADS score without a usable table entry.
    """
    check_score(scale, score)
    if scale == "likert5":
        return (score - 1) / 4
    if scale == "percent":
        return score / 100
    if scale == "likert01":
        return float(score)
    table = pirads_table(pirads_probability)
    if int(score) not in table:
        raise CadError(
            f"PI-RADS {score:g} has no probability in labels.pirads_probability",
            hint="name one for every category, or 'pi-cai' for the published table",
        )
    value = float(table[int(score)])
    if not 0 <= value <= 1:
        raise CadError(f"labels.pirads_probability[{int(score)}] is {value:g}, must be in [0, 1]")
    return value
