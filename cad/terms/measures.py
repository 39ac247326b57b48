"""What each measure is called and how it is read: ``measures.yaml``, in the order of tables.

:mod:`cad.evaluation.measures.table` has the function of each.
"""

from dataclasses import dataclass
from typing import Literal

from cad.terms.beside import table_beside


@dataclass(frozen=True)
class MeasureWords:
    """Say how a measure of predictions is shown.

    Parameters
    ----------
    name : str
        Key in ``metrics.json`` and in settings.
    title : str
        What a reader of a table sees.
    better : {"higher", "lower", "near 0", "near 1"}
        Which way is better.
    digits : int
        Decimals in a table.
    headline : bool
        Whether it stands where there is room for few: on the terminal and the model card.
    """

    name: str
    title: str
    better: Literal["higher", "lower", "near 0", "near 1"]
    digits: int = 3
    headline: bool = False


MEASURES = {name: MeasureWords(name, **words) for name, words in table_beside(__file__).items()}
