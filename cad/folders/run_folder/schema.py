"""Define the columns of a run's tables: type, unit, meaning, and the function that makes each.

Tables, pages, reports for the archive, ``--json`` and the reference page are made from these
definitions. A column without a definition is not written.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "whole", "number", "share", "truth", "list", "pairs"]
"""Type of a column's cells.

- ``text``, ``whole`` (a whole number) and ``number``
- ``share``: a number from 0 to 1
- ``truth``: 1, 0 or empty
- ``list``: texts with ``;`` between them
- ``pairs``: readers, each with a value, such as ``r1=3; r2=4``
"""
HISTOLOGY = "histology"
READERS = "readers"
"""HISTOLOGY and READERS are the values of the column ``probability_of``.

HISTOLOGY means that the column ``probability`` holds the probability of cancer, learned from
histology. READERS means that the training had no histology: the column ``probability`` then holds
the belief, the chance that readers would call the region malignant.
"""


@dataclass(frozen=True)
class ResultColumn:
    """Describe one column of a run's table.

    Parameters
    ----------
    name : str
        The column's name.
    kind : str
        Type of its cells (:data:`Kind`).
    meaning : str
        Its meaning, a phrase for the reference page.
    maker : str
        The one function that computes the column, as ``file::function`` with the file's path below
        ``cad/``; empty for a column that is taken from the cohort's tables.
    unit : str
        Unit of a number; empty for a column without a unit.
    since : str
        Version in which the column got its present meaning.
    """

    name: str
    kind: Kind
    meaning: str
    maker: str = ""
    unit: str = ""
    since: str = "0.1"


_DECIDE = "run/stages/decide.py::decide_regions"
_RISK = "run/stages/risk.py"
_BEFORE = "0.1"
_TWO_NUMBERS = "1.0"

REGION_COLUMNS = (
    ResultColumn("participant_id", "text", "the patient, sub-XXX"),
    ResultColumn("study_id", "text", "the study, sub-XXX or sub-XXX_ses-YY"),
    ResultColumn("roi_id", "text", "the region (ROI)"),
    ResultColumn(
        "probability",
        "share",
        "probability that the region has cancer of ISUP grade labels.isup_min or more, from "
        "images, readers' scores, PSA and age; where the training had no histology it is the "
        "belief",
        f"{_RISK}::predicted_risk",
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "probability_of",
        "text",
        "what the column probability holds: histology (the probability of cancer) or readers (the "
        "belief)",
        f"{_RISK}::predicted_risk",
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "probability_low",
        "share",
        "lower end of the 95 % interval of the probability: of many regions judged like this one, "
        "the share with cancer lies within it; empty where probability_of is readers",
        f"{_RISK}::predicted_risk",
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "probability_high",
        "share",
        "upper end of the 95 % interval of the probability",
        f"{_RISK}::predicted_risk",
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "probability_images",
        "share",
        "the probability without the readers' scores of this region",
        f"{_RISK}::predicted_risk",
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "belief",
        "share",
        "what readers would say of the region: the number that the learner computes from features",
        "learning/evaluation/folds/ask.py::positive_probability",
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "decision",
        "text",
        "malignant, refer or benign; empty where no decision is made",
        _DECIDE,
    ),
    ResultColumn(
        "decision_reason",
        "list",
        "why the decision by the thresholds was changed to refer",
        _DECIDE,
    ),
    ResultColumn(
        "patient_probability",
        "share",
        "probability that the man has cancer of ISUP grade labels.isup_min or more; in a "
        "prediction empty in rows of an earlier study",
        f"{_RISK}::predicted_risk",
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "patient_decision",
        "text",
        "the decision on the man: malignant, refer or benign; empty where no decision is made",
        "run/stages/decide.py::decide_run",
    ),
    ResultColumn("histology", "text", "malignant or benign, as rois.tsv states it"),
    ResultColumn("isup", "text", "ISUP grade of the region; >=2 or <=1 where only this is known"),
    ResultColumn(
        "truth",
        "truth",
        "1 where histology found cancer of ISUP grade labels.isup_min or more, 0 where it found "
        "less",
        "learning/labels/consensus.py::malignant",
    ),
    ResultColumn(
        "label", "whole", "the value that the region's voxels have in the label map (the mask)"
    ),
    ResultColumn(
        "zone",
        "text",
        "zone of the prostate: PZ (peripheral), TZ (transition), CZ (central) or AFS (anterior "
        "fibromuscular stroma)",
    ),
    ResultColumn("sector", "text", "side, level and sector of the gland, as a person stated them"),
    ResultColumn(
        "scores",
        "pairs",
        "each reader's score, as given",
        "folders/run_folder/tables.py::by_region",
    ),
    ResultColumn(
        "scales", "pairs", "the scale of each score", "folders/run_folder/tables.py::by_region"
    ),
    ResultColumn(
        "reader_values",
        "pairs",
        "each reader's score as a probability of malignancy",
        "learning/labels/consensus.py::reader_probabilities",
    ),
    ResultColumn(
        "readers_mean",
        "share",
        "mean of reader_values",
        "learning/labels/consensus.py::readers_mean",
    ),
    ResultColumn(
        "readers_agree",
        "text",
        "how far the readers' scores are apart: agree (at most one step of the five-point scale), "
        "differ (at most two steps) or are split",
        _DECIDE,
    ),
    ResultColumn(
        "with_tool",
        "pairs",
        "for each reader, the probability of cancer from his score and the model's number from "
        "images together",
        "run/model/outcome.py::with_given",
    ),
    ResultColumn("gap", "share", "absolute difference of belief and readers_mean", _DECIDE),
    ResultColumn(
        "apart",
        "text",
        "the gap in words: agree (below 0.25), apart (below 0.5) or far apart",
        _DECIDE,
    ),
    ResultColumn(
        "suspicion",
        "share",
        "the larger of belief and readers_mean; if readers contradict the decision, the largest of "
        "reader_values instead. Pages sort regions by suspicion",
        _DECIDE,
    ),
    ResultColumn(
        "decision_model",
        "text",
        "the decision by the thresholds alone, without the checks that can change it to refer",
        _DECIDE,
    ),
    ResultColumn(
        "decision_before_histology",
        "text",
        "the decision after all checks except the one against histology",
        _DECIDE,
    ),
    ResultColumn(
        "p",
        "share",
        "the readers' consensus: the weighted mean of their scores as probabilities. A learner "
        "learns from it, unless labels.histology lets histology replace it",
        "learning/labels/consensus.py::reader_labels",
    ),
    ResultColumn(
        "eta",
        "share",
        "how much the readers disagree: the standard deviation of their scores as probabilities",
        "learning/labels/consensus.py::reader_labels",
    ),
    ResultColumn(
        "n_readers",
        "whole",
        "number of readers whose scores count",
        "learning/labels/consensus.py::reader_labels",
    ),
    ResultColumn(
        "label_kind",
        "text",
        "kind of the label: certain_positive, certain_negative, two_sided, one_sided, none or "
        "unlabelled (docs/methods.md 1)",
        "run/stages/aggregate.py::label_kinds",
    ),
    ResultColumn(
        "decision_value",
        "number",
        "the learner's decision value: the number from which it computes the belief",
        "learning/evaluation/folds/ask.py::decision_value",
    ),
    ResultColumn(
        "centred",
        "number",
        "in a validation the number by which regions of different men are ranked, for the AUC "
        "among others: the log-odds of the probability less the base log-odds of the model that "
        "leaves the man out, in units of this model's spread (docs/methods.md 6); in a prediction "
        "empty",
        f"{_RISK}::validated_risk",
        unit="log-odds",
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "p_benign",
        "share",
        "conformal p-value of the class benign: small where this class is implausible",
        "learning/evaluation/decisions/conformal.py::conformal_p_values",
    ),
    ResultColumn(
        "p_malignant",
        "share",
        "conformal p-value of the class malignant: small where this class is implausible",
        "learning/evaluation/decisions/conformal.py::conformal_p_values",
    ),
    ResultColumn(
        "plausible",
        "text",
        "the classes (benign, malignant) that conformal prediction does not rule out at 90 % "
        "confidence; neither, if it rules out both",
        _DECIDE,
    ),
    ResultColumn(
        "unlike",
        "text",
        "groups of features in which the region is unlike the training regions; the word like if "
        "there is no such group",
        "run/stages/predict.py::score_rows",
    ),
    ResultColumn(
        "model",
        "text",
        "the model that gave the region its numbers",
        "run/stages/predict.py::score_rows",
    ),
    ResultColumn(
        "warnings", "list", "further remarks of the run on the region", "run/stages/judge.py::judge"
    ),
    ResultColumn("psa", "number", "the patient's PSA", unit="ng/mL"),
    ResultColumn("age", "number", "the patient's age", unit="years"),
)
"""Columns of ``probabilities.csv``, in their order: the most important columns come first."""

DETECTOR_COLUMNS = (
    ResultColumn("confidence", "share", "confidence of the detector that outlined the region"),
)
"""Columns that ``probabilities.csv`` also has where software outlined regions."""

_OUTLINES = "run/workflows/outline_spread.py::spread_of"
OUTLINE_RESULT_COLUMNS = (
    ResultColumn("outline_low", "share", "lowest belief over several outlines", _OUTLINES),
    ResultColumn("outline_median", "share", "median belief over several outlines", _OUTLINES),
    ResultColumn("outline_high", "share", "highest belief over several outlines", _OUTLINES),
    ResultColumn(
        "outlines",
        "text",
        "which outlines were tried: how many redrawn ones, or the names of the readers who drew",
        _OUTLINES,
    ),
)
"""Columns that ``probabilities.csv`` also has where a prediction tried several outlines of each
region.
"""

_DECIDE_MEN = "run/stages/decide.py::decide_men"
_MEN = f"{_RISK}::predicted_risk"
MAN_COLUMNS = (
    ResultColumn("participant_id", "text", "the patient, sub-XXX"),
    ResultColumn(
        "probability",
        "share",
        "probability that the man has cancer of ISUP grade labels.isup_min or more; empty where "
        "the training had no histology",
        _MEN,
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "probability_of",
        "text",
        "what the model's numbers were learned from: histology, or readers",
        _MEN,
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "probability_low",
        "share",
        "lower end of the 95 % interval of the probability",
        _MEN,
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "probability_high",
        "share",
        "upper end of the 95 % interval of the probability",
        _MEN,
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "probability_images",
        "share",
        "the man's probability without the readers' scores of his regions",
        _MEN,
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "decision",
        "text",
        "malignant, refer or benign; empty where no decision is made",
        _DECIDE_MEN,
    ),
    ResultColumn(
        "decision_reason",
        "list",
        "why the decision by the thresholds was changed to refer, or why there is no decision",
        _DECIDE_MEN,
    ),
    ResultColumn("decision_model", "text", "the decision by the thresholds alone", _DECIDE_MEN),
    ResultColumn(
        "decision_before_histology",
        "text",
        "the decision after all checks except the one against histology",
        _DECIDE_MEN,
        since=_TWO_NUMBERS,
    ),
    ResultColumn(
        "basis",
        "text",
        "what the decision comes from: probability (the man's probability and the decisions on his "
        "regions), or regions (the decisions on his regions alone, where he has no probability)",
        _DECIDE_MEN,
    ),
    ResultColumn(
        "lower",
        "share",
        "threshold: a man whose probability is below it and whose regions are all benign is "
        "called benign",
        "base/settings.py::DecisionSettings",
    ),
    ResultColumn(
        "unknown",
        "text",
        "what the model uses and is not known of this man, such as his age",
        _MEN,
    ),
    ResultColumn(
        "regions",
        "whole",
        "number of his regions; in a prediction those of his latest study",
        _DECIDE_MEN,
    ),
    ResultColumn(
        "truth",
        "truth",
        "1 where histology found cancer of ISUP grade labels.isup_min or more in the man, 0 where "
        "it found less: by the grade that participants.tsv states for him, else by his regions, "
        "where 0 needs the histology of all of them",
        "learning/evaluation/decisions/patient_level.py::truth_of_men",
    ),
    ResultColumn("age", "number", "the man's age", unit="years"),
    ResultColumn("psa", "number", "the man's PSA", unit="ng/mL"),
    ResultColumn("psa_density", "number", "the man's PSA density", unit="ng/mL2"),
    ResultColumn("model", "text", "the model that gave his regions their numbers", _MEN),
    ResultColumn(
        "rank",
        "share",
        "in a validation the number by which men are ordered, for the AUC among others: the share "
        "of the other men to whom the model that leaves the man out gives a lower probability; in "
        "a prediction empty",
        f"{_RISK}::validated_risk",
        since=_TWO_NUMBERS,
    ),
)
"""Columns of ``patients.csv``, in their order."""

FAILURE_RESULT_COLUMNS = (
    ResultColumn("participant_id", "text", "the patient, sub-XXX"),
    ResultColumn("study_id", "text", "the study; empty where the patient as a whole failed"),
    ResultColumn("roi_id", "text", "the region; empty where the study as a whole failed"),
    ResultColumn("stage", "text", "the stage of the run that failed"),
    ResultColumn("reason", "text", "why there is no result"),
    ResultColumn("hint", "text", "what to do"),
    ResultColumn("status", "text", "failed, or awaiting ROI where no region is drawn yet"),
)
"""Columns of ``failures.csv``."""

_EXPLAINED = "run/model/explanation.py::explanation_rows"
EXPLANATION_RESULT_COLUMNS = (
    ResultColumn("participant_id", "text", "the patient, sub-XXX"),
    ResultColumn("study_id", "text", "the study"),
    ResultColumn("roi_id", "text", "the region"),
    ResultColumn("rank", "whole", "1 for the feature with the largest effect", _EXPLAINED),
    ResultColumn("feature", "text", "the feature", _EXPLAINED),
    ResultColumn("value", "number", "value of the feature in this region", _EXPLAINED),
    ResultColumn("unit", "text", "unit of the feature", _EXPLAINED),
    ResultColumn(
        "delta",
        "number",
        "change of the region's decision value if this feature alone goes from its median in the "
        "training regions to its value in this region",
        _EXPLAINED,
    ),
    ResultColumn(
        "percentile", "number", "percentile of the value among the training regions", _EXPLAINED
    ),
    ResultColumn("group", "text", "the family of the feature", _EXPLAINED),
    ResultColumn(
        "contribution",
        "number",
        "effect of the whole family on the log-odds of the belief in this region; stated in one "
        "row of each family",
        _EXPLAINED,
    ),
    ResultColumn(
        "average", "number", "log-odds of the belief of the average training region", _EXPLAINED
    ),
)
"""Columns of ``explanations.csv``."""

NEAR_MM = 10.0
"""Largest distance (mm) between the centres of two regions that count as near each other.

A lesion counts as significant by its size from 0.5 mL on, in PI-RADS and in histology. A ball of
this volume has a diameter of 10 mm. Two such balls do not touch if their centres are more than
10 mm apart.
"""

_EARLIER = "run/stages/earlier.py::compare_earlier"
EARLIER_COLUMNS = (
    ResultColumn("participant_id", "text", "the patient, sub-XXX"),
    ResultColumn("study_id", "text", "his latest study"),
    ResultColumn(
        "roi_id",
        "text",
        "a region of the latest study; empty in the row of an earlier region near which the latest "
        "study has no region",
    ),
    ResultColumn("earlier_study_id", "text", "the study before his latest one", _EARLIER),
    ResultColumn(
        "earlier_roi_id",
        "text",
        f"the region of the earlier study that is nearest, within {NEAR_MM:g} mm; empty without "
        "one. Nearness is a question to the reader, no finding",
        _EARLIER,
    ),
    ResultColumn(
        "distance_mm",
        "number",
        "distance of the centres of both regions after rigid alignment of the T2 images",
        _EARLIER,
        unit="mm",
    ),
    ResultColumn(
        "order",
        "text",
        "what says which study is the latest: date, or session where a date is missing",
        _EARLIER,
    ),
    ResultColumn(
        "alignment",
        "text",
        "aligned, or why no region is compared: no T2, no overlap, too far, not improved, no clear "
        "place, glands apart, failed",
        _EARLIER,
    ),
    ResultColumn(
        "moved_mm", "number", "how far the earlier image was moved, at the prostate", _EARLIER, "mm"
    ),
    ResultColumn(
        "turned_deg", "number", "by how much the earlier image was turned", _EARLIER, "degrees"
    ),
    ResultColumn("alignment_note", "text", "why the comparison of both studies failed", _EARLIER),
    ResultColumn(
        "earlier_psa", "number", "PSA at the earlier study, from sessions.tsv", unit="ng/mL"
    ),
    ResultColumn(
        "earlier_psa_density",
        "number",
        "PSA density at the earlier study: as stated, otherwise PSA divided by prostate_volume",
        "folders/cohort/men.py::men_stated",
        unit="ng/mL2",
    ),
)
"""Columns of ``earlier.csv``, which a run has where one of its men has several studies."""


def names_of(columns: tuple[ResultColumn, ...]) -> tuple[str, ...]:
    """Return the names of columns, in their order.

    Examples
    --------
    >>> names_of(DETECTOR_COLUMNS)
    ('confidence',)
    """
    return tuple(column.name for column in columns)
