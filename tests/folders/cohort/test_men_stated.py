"""A cohort's statements on its men agree with counts by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cad.folders.cohort.men import STATED, men_stated


def test_age_psa_and_density_by_hand() -> None:
    people = pd.DataFrame(
        {
            "participant_id": ["sub-1", "sub-2", "sub-3", "sub-4", "sub-1"],
            "age": ["66", "n/a", "0", "-2", "70"],
            "psa": ["0.8", "6", "6", "", "9"],
            "prostate_volume": ["0.5", "40", "", "40", "40"],
            "psa_density": ["", "0.3", "", "0.2", ""],
        }
    )
    stated = men_stated(people, 2)
    assert tuple(stated.columns) == STATED
    assert stated.index.tolist() == ["sub-1", "sub-2", "sub-3", "sub-4"]
    # A number that no man can have is unknown; a man named twice counts as first named.
    np.testing.assert_array_equal(stated["age"], [66, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(stated["psa"], [0.8, 6, 6, np.nan])
    # Stated, else PSA over volume.
    np.testing.assert_array_equal(stated["psa_density"], [1.6, 0.3, np.nan, 0.2])
    assert stated["man_truth"].isna().all()


def test_a_mans_truth_is_his_grade_beside_the_lowest_that_counts() -> None:
    grades = ["0", "1", "2", "3", ">=2", "<=1", ">=1", "<=2", "", "n/a"]
    people = pd.DataFrame({"participant_id": [f"sub-{i}" for i in range(10)], "isup": grades})
    truth = men_stated(people, 2)["man_truth"]
    unknown = np.nan
    expected = [0, 0, 1, 1, 1, 0, unknown, unknown, unknown, unknown]
    np.testing.assert_array_equal(truth, expected)
    assert men_stated(people, 3)["man_truth"].tolist()[2:4] == [0.0, 1.0]
