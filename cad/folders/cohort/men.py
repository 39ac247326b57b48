"""Derive age, PSA, PSA density and truth (histology) of men from the tables of a cohort."""

import numpy as np
import pandas as pd

from cad.base.terms.grades import grade_range, grade_text

STATED = ("age", "psa", "psa_density", "man_truth")
"""Columns of :func:`men_stated`."""


def men_stated(participants: pd.DataFrame, isup_min: int) -> pd.DataFrame:
    """Return age, PSA, PSA density and truth of every man, NaN where unknown.

    Parameters
    ----------
    participants : DataFrame
        ``participant_id``. Optional columns: ``age`` in years, ``psa`` in ng/mL, ``psa_density`` in
        ng/mL2, ``prostate_volume`` in mL, and ``isup``. ``isup`` is the highest grade anywhere in
        the man's prostate. It is stated where the whole prostate was examined and not only his
        outlined regions (systematic biopsy, prostatectomy).
    isup_min : int
        Lowest ISUP grade that counts as malignant.

    Returns
    -------
    DataFrame
        One row per man, indexed by ``participant_id``. ``psa_density`` is the stated density; if
        none is stated, it is PSA divided by prostate volume. ``man_truth`` is 1 where ``isup`` is
        ``isup_min`` or more, 0 where it is less, and NaN where the grade is unknown or does not
        tell which.

    Examples
    --------
    >>> stated = {"participant_id": ["sub-1"], "psa": [6.0], "prostate_volume": [40.0]}
    >>> people = pd.DataFrame(stated)
    >>> men_stated(people, 2)["psa_density"].tolist()
    [0.15]
    """
    people = participants.drop_duplicates("participant_id").set_index("participant_id")
    stated = pd.DataFrame(index=people.index)
    for name in ("age", "psa", "psa_density", "prostate_volume"):
        stated[name] = np.nan
        if name in people:
            # A text that is no number becomes NaN. So does 0, which no age, PSA or volume can be.
            values = pd.to_numeric(people[name], errors="coerce").astype(float)
            stated[name] = values.where(values > 0)
    # PSA in ng/mL divided by the volume in mL gives a density in ng/mL2. It is used only for men
    # for whom the table states no density.
    derived_density = stated["psa"] / stated["prostate_volume"]
    stated["psa_density"] = stated["psa_density"].fillna(derived_density)
    stated["man_truth"] = np.nan
    if "isup" in people:
        truths = []
        for cell in people["isup"]:
            # A grade may be a range, such as ">=2". It tells the truth only if all of the range
            # lies on one side of ``isup_min``.
            low, high = grade_range(grade_text(cell))
            truth = np.nan
            if low >= isup_min:
                truth = 1.0
            elif high < isup_min:
                truth = 0.0
            truths.append(truth)
        stated["man_truth"] = truths
    return stated[list(STATED)]
