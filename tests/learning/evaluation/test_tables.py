"""Tables and intervals as text."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cad.base.terms.text import interval_text, to_markdown
from cad.learning.evaluation.measures.intervals import Interval

TABLE = pd.DataFrame(
    {
        "learner": ["P-SVM_a", "F|SVM 5%"],
        "auc": [0.86234, np.nan],
        "n": [350, 349],
        "x": [1e-5, 2e4],
    }
)


def test_markdown() -> None:
    lines = to_markdown(TABLE).splitlines()
    assert lines[0] == "| learner | auc | n | x |"
    assert lines[1] == "| --- | ---: | ---: | ---: |"
    assert lines[2] == "| P-SVM_a | 0.862 | 350 | 1e-05 |"
    assert lines[3] == r"| F\|SVM 5% | – | 349 | 20000 |"


def test_interval_text() -> None:
    assert interval_text(Interval(0.8434, 0.7912, 0.8847, "m")) == "0.843 [0.791, 0.885]"
    assert interval_text({"value": 1.0, "lower": None, "upper": None}) == "1.000"
    assert interval_text({"value": None, "lower": None, "upper": None}) == "–"
    assert interval_text(None) == "–"
    assert interval_text(Interval(41.917, 30.06, 55.04, "m"), 1) == "41.9 [30.1, 55.0]"
