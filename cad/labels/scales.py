"""Readers' scales: which scores exist, and which probability of malignancy each one states."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from cad.errors import CadError

_FIVE = (1.0, 2.0, 3.0, 4.0, 5.0)
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
_LEVELS: dict[str, tuple[float, ...]] = {"likert5": _FIVE, "likert01": _QUARTERS, "pirads": _FIVE}
SCALES = (*_LEVELS, "percent")


def check_score(scale: str, score: float) -> None:
    """Check that a score exists on its scale.

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
        near = difflib.get_close_matches(str(scale), SCALES, n=1)
        raise CadError(
            f"unknown scale {scale!r}, must be one of {', '.join(SCALES)}",
            hint=f"did you mean {near[0]!r}?" if near else "",
        )
    if scale == "percent":
        if not 0 <= score <= 100:
            raise CadError(f"score {score:g} is outside its scale percent, 0 to 100")
    elif score not in _LEVELS[scale]:
        levels = " ".join(f"{level:g}" for level in _LEVELS[scale])
        raise CadError(f"score {score:g} is not on its scale {scale}: {levels}")


def score_probability(
    scale: str, score: float, pirads_probability: Mapping[int, float] | None = None
) -> float:
    """Probability of malignancy that a score states (docs/methods.md 1).

    Parameters
    ----------
    scale : str
        As in :func:`check_score`.
    score : float
        The score as the reader gave it.
    pirads_probability : mapping of int to float, optional
        Probability of each PI-RADS category. PI-RADS is an ordinal category and not an
        equidistant scale, so there is no default.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    CadError
        As :func:`check_score`; and for a PI-RADS score without a usable table entry.
    """
    check_score(scale, score)
    if scale == "likert5":
        return (score - 1) / 4
    if scale == "percent":
        return score / 100
    if scale == "likert01":
        return float(score)
    if pirads_probability is None or int(score) not in pirads_probability:
        raise CadError(
            f"PI-RADS {score:g} has no probability: PI-RADS is not a Likert scale",
            hint="name one for every category in labels.pirads_probability",
        )
    value = float(pirads_probability[int(score)])
    if not 0 <= value <= 1:
        raise CadError(f"labels.pirads_probability[{int(score)}] is {value:g}, must be in [0, 1]")
    return value
