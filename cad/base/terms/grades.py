"""Read ISUP grade groups from tables: a single grade, or a range that contains it.

A biopsy gives a grade. A public challenge often tells less: "clinically significant" is grade 2 or
more, and "not significant" is grade 1 or no cancer. Each of the two is a range of grades. Where
malignant means grade 2 or more, such a range is enough to tell malignant from benign.
"""

import re

from cad.base.errors import CadError

LOWEST = 0
HIGHEST = 5
"""Highest grade group. Grade 0 is tissue without cancer; 1 to 5 are the ISUP grade groups."""
SIGNIFICANT = ">=2"
NOT_SIGNIFICANT = "<=1"
"""Ranges of grades for "clinically significant" and "not significant"."""
_GRADE = re.compile(r"(>=|<=|)\s*([0-5])(?:\.0+)?")


def grade_range(text: str) -> tuple[int, int]:
    """Return the lowest and the highest ISUP grade that a cell allows.

    Parameters
    ----------
    text : str
        A grade 0 to 5, ``>=2`` or ``<=1`` (any grade may stand in the place of 2 and 1). Empty or
        ``n/a`` where the grade is unknown.

    Returns
    -------
    low, high : int

    Raises
    ------
    CadError
        For any other text.

    Examples
    --------
    >>> grade_range("3"), grade_range(">=2"), grade_range("<=1"), grade_range("n/a")
    ((3, 3), (2, 5), (0, 1), (0, 5))
    """
    cell = text.strip()
    if cell in ("", "n/a"):
        return LOWEST, HIGHEST
    match = _GRADE.fullmatch(cell)
    if match is None:
        raise CadError(
            f"isup is a grade {LOWEST} to {HIGHEST}, or what is known of it (>=2, <=1); "
            f"found {text!r}",
            hint="write n/a where nothing is known",
        )
    grade = int(match[2])
    if match[1] == ">=":
        return grade, HIGHEST
    if match[1] == "<=":
        return LOWEST, grade
    return grade, grade


def grade_text(cell: object) -> str:
    """Return a table's cell as the text of a grade: ``3`` for 3.0, empty for a missing value.

    Parameters
    ----------
    cell : object
        A number, a text, None or NaN.

    Examples
    --------
    >>> grade_text(3.0), grade_text(" >= 2"), grade_text(float("nan"))
    ('3', '>=2', '')
    """
    if cell is None:
        return ""
    text = "".join(str(cell).split())
    if text in ("n/a", "nan"):
        return ""
    match = _GRADE.fullmatch(text)
    # Text that is no grade stays as it is; :func:`grade_range` refuses it.
    return text if match is None else f"{match[1]}{match[2]}"


def grade_words(text: str) -> str:
    """Say a grade in words; empty where the grade is unknown.

    Parameters
    ----------
    text : str
        A grade, or a range of grades: ``3``, ``>=2``, ``<=1``; empty where the grade is unknown.

    Returns
    -------
    str
        The grade in words, such as ``ISUP 3`` or ``ISUP 2 or more``; empty where the grade is
        unknown.

    Examples
    --------
    >>> grade_words("3"), grade_words(">=2"), grade_words("<=1"), grade_words("")
    ('ISUP 3', 'ISUP 2 or more', 'ISUP 1 or no cancer', '')
    """
    low, high = grade_range(text)
    if (low, high) == (LOWEST, HIGHEST):
        return ""
    if low == high:
        return f"ISUP {low}"
    if high == HIGHEST:
        return f"ISUP {low} or more"
    return f"ISUP {high} or no cancer"
