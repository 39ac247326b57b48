"""What each measure is called and how it is read, in the order of tables.

:mod:`cad.evaluation.measures.table` has the function of each.
"""

from dataclasses import dataclass
from typing import Literal


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


MEASURES: dict[str, MeasureWords] = {
    words.name: words
    for words in (
        MeasureWords("auc", "AUC", "higher"),
        MeasureWords("accuracy", "Accuracy at .5", "higher", headline=True),
        MeasureWords("average_precision", "Average precision", "higher"),
        MeasureWords("patient_average_precision", "Average precision, patients", "higher"),
        MeasureWords("partial_auc", "Partial AUC", "higher"),
        MeasureWords("kl", "Two-sided KL, sum, nats", "lower", digits=1, headline=True),
        MeasureWords(
            "kl_one_sided",
            "One-sided KL, as printed in the paper; no criterion",
            "near 0",
            digits=1,
        ),
        MeasureWords("alignment_error", "Alignment error", "lower", headline=True),
        MeasureWords("cross_entropy", "Cross-entropy, nats", "lower"),
        MeasureWords("brier", "Brier score", "lower", headline=True),
        MeasureWords("calibration_intercept", "Calibration intercept", "near 0", digits=2),
        MeasureWords("calibration_slope", "Calibration slope", "near 1", digits=2),
    )
}
