"""Compare two models on the same regions: by measures, and by the decisions that differ."""

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.files import JsonObject, json_safe
from cad.base.terms.measures import MEASURES
from cad.base.terms.text import interval_text
from cad.folders.run_folder.tables import KEYS
from cad.learning.evaluation.folds.compare import compare_learners
from cad.learning.evaluation.measures.metrics import calibration_intercept, calibration_slope

COMPARED = ("auc", "cross_entropy", "brier", "kl")


def compare_runs(a: pd.DataFrame, b: pd.DataFrame, names: tuple[str, str]) -> JsonObject:
    """Compare the results of two models on one cohort.

    Parameters
    ----------
    a, b : DataFrame
        Rows of ``probabilities.csv`` with ``truth``, in any order.
    names : tuple of str
        The models' names.

    Returns
    -------
    dict
        A dictionary with these keys:

        - ``models``: the two names, with " (a)" and " (b)".
        - ``regions``: number of regions that both models scored.
        - ``with_histology``: how many of these regions have histology.
        - ``differences``: one row for each measure, with the difference of the two models on the
          same regions. Its interval keeps the regions of a patient together.
        - ``calibration``: ``intercept`` and ``slope`` of each model.
        - ``changed``: one row for each region whose decision differs.

        ``differences`` and ``calibration`` are None unless there are malignant and benign regions.

    Raises
    ------
    CadError
        When no region was scored by both models.
    """
    both = a.merge(b, on=KEYS, suffixes=("_a", "_b"))
    both = both.dropna(subset=["probability_a", "probability_b"])
    if both.empty:
        raise CadError(f"no region was scored by both {names[0]} and {names[1]}")
    labels = (f"{names[0]} (a)", f"{names[1]} (b)")
    truth = both["truth_a"].to_numpy(float)
    probability = dict(zip(labels, (both["probability_a"], both["probability_b"]), strict=True))
    has_truth = np.isfinite(truth)
    result: JsonObject = {
        "models": list(labels),
        "regions": len(both),
        "with_histology": int(has_truth.sum()),
        "differences": None,
        "calibration": None,
    }
    # Without malignant and benign regions no measure is defined.
    if len(np.unique(truth[has_truth])) == 2:
        table = compare_learners(probability, truth, both["participant_id"], measures=COMPARED)
        result["differences"] = table.to_dict("records")
        result["calibration"] = {}
        for name, q in probability.items():
            result["calibration"][name] = {
                "intercept": calibration_intercept(truth[has_truth], q[has_truth]),
                "slope": calibration_slope(truth[has_truth], q[has_truth]),
            }
    decided_otherwise = both[both["decision_a"] != both["decision_b"]]
    columns = [*KEYS, "probability_a", "decision_a", "probability_b", "decision_b"]
    result["changed"] = decided_otherwise[columns].to_dict("records")
    return dict(json_safe(result))


def comparison_text(result: JsonObject) -> str:
    """Return the comparison of two models as text for a terminal.

    Parameters
    ----------
    result : dict
        Result of :func:`compare_runs`.
    """
    lines = [
        *result["models"],
        f"{result['regions']} regions scored by both, {result['with_histology']} with histology",
    ]
    if result["differences"] is None:
        lines.append("not measured: that needs malignant and benign regions by histology")
    else:
        lines += [
            _comparison_line("", "a", "b", "a - b [95 %, patients resampled]"),
            *map(_difference_line, result["differences"]),
        ]
        a, b = result["calibration"].values()
        for name, right_value in (("intercept", 0), ("slope", 1)):
            explanation = f"({right_value} is right)"
            lines.append(_comparison_line(f"calibration {name}", a[name], b[name], explanation))
    lines.append(f"{len(result['changed'])} decisions differ")
    for row in result["changed"]:
        lines.append(
            f"  {row['study_id']} ROI {row['roi_id']}: {row['decision_a']} "
            f"({row['probability_a']:.2f}) -> {row['decision_b']} ({row['probability_b']:.2f})"
        )
    return "\n".join(lines)


def _difference_line(row: JsonObject) -> str:
    measure = MEASURES[row["measure"]]
    text = interval_text({**row, "value": row["difference"]}, measure.digits)
    return _comparison_line(measure.title, row["value_a"], row["value_b"], text)


def _comparison_line(name: str, a: float | str | None, b: float | str | None, text: str) -> str:
    return f"{name:<26}{_measure_text(a):>12}{_measure_text(b):>12}  {text}"


def _measure_text(value: float | str | None) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "not defined" if value is None else value
