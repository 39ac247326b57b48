"""Define the names and properties of the measures of predictions, such as the AUC.

Names and properties are read from ``measures.yaml`` beside this file, in the order in which tables
show measures. The function that computes a measure has the measure's name in
``cad/learning/evaluation/measures/metrics.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cad.base.terms.beside import table_beside


@dataclass(frozen=True)
class MeasureWords:
    """Describe how a measure of predictions, such as the AUC, is shown.

    Parameters
    ----------
    name : str
        Key in ``metrics.json`` and in settings.
    title : str
        Name in a table.
    better : {"higher", "lower", "near 0", "near 1"}
        Which values are better.
    digits : int
        Decimals in a table.
    headline : bool
        Whether the measure is one of the few that the terminal and the model card show.
    compares : sequence of str
        The values of the regions that the measure compares, by their names in
        ``cad.learning.evaluation.measures.table.Cases``.
    """

    name: str
    title: str
    better: Literal["higher", "lower", "near 0", "near 1"]
    digits: int = 3
    headline: bool = False
    compares: Sequence[str] = ()


MEASURES = {name: MeasureWords(name, **words) for name, words in table_beside(__file__).items()}
