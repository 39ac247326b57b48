"""Define readers' scales: their possible scores, and the probability of malignancy of each
score.
"""

import difflib
from collections.abc import Mapping

import numpy as np

from cad.base.errors import CadError

_FIVE = (1.0, 2.0, 3.0, 4.0, 5.0)
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
_LEVELS: dict[str, tuple[float, ...]] = {"likert5": _FIVE, "likert01": _QUARTERS, "pirads": _FIVE}
SCALES = (*_LEVELS, "percent")


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
    if isinstance(choice, str):
        if choice not in PIRADS_TABLES:
            raise CadError(
                f"labels.pirads_probability names {choice!r}: known is {', '.join(PIRADS_TABLES)}"
            )
        counts = PIRADS_TABLES[choice][1]
        return {category: cancers / lesions for category, (cancers, lesions) in counts.items()}
    if (np.diff([choice[k] for k in sorted(choice)]) < 0).any():
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
