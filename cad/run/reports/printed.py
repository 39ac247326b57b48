"""Write the measures of a run as the lines of text, or the JSON content, that a command prints."""

from cad.base.files import JsonObject, json_safe
from cad.base.terms.measures import MEASURES
from cad.base.terms.text import interval_text
from cad.folders.run_folder.blinding import held_back, open_results
from cad.folders.run_folder.results import Results
from cad.learning.evaluation.summary import MeasuredDecisions, Summary
from cad.run.reports.plots import probability_text
from cad.run.reports.views import PatientView, list_patients

UNKNOWN = interval_text(None)
MOST_PATIENTS = 3
"""Largest number of patients that a command names at its end; the index page names all."""


def main_measures(metrics: Summary) -> JsonObject:
    """Return a run's main measures as JSON content for ``--json``, without curves and regions."""
    content: JsonObject = {
        "n": metrics.n,
        "label_kinds": metrics.label_kinds,
        "warnings": metrics.warnings,
    }
    for title, comparison in (("histology", metrics.histology), ("consensus", metrics.consensus)):
        content[title] = None
        if comparison is not None:
            content[title] = {
                "n": comparison.n,
                "positive": comparison.positive,
                "negative": comparison.negative,
                "auc": comparison.auc,
                "auc_roi_level": comparison.auc_roi_level,
                "measures": comparison.measures,
                "warnings": comparison.warnings,
            }
    content["readers"] = {reader: result.auc for reader, result in metrics.readers.items()}
    return dict(json_safe(content))


def regions_as_json(results: Results) -> list[JsonObject]:
    """Return every region of a run with its probability and its belief, a range and the decision.

    Parameters
    ----------
    results : Results
        Content of the run folder.

    Returns
    -------
    list of dict
        A dictionary per region, in the order of ``probabilities.csv``, with the keys
        ``participant_id, study_id, roi_id, probability, probability_of, probability_low,
        probability_high, probability_images, belief, decision, decision_reason`` (a list),
        ``histology`` (in words), ``patient_probability``, ``patient_decision``,
        ``patient_histology_known`` (whether histology is known of every region of the man) and
        ``held_back``. If a man's results are held back until a reader has scored him, ``held_back``
        is true and his regions have no numbers.
    """
    regions: list[JsonObject] = []
    men_held_back = held_back(results)
    men = list_patients(results)
    men_with_histology = {view.patient for view in men if view.histology_known}
    for region in open_results(results).regions:
        low = high = None
        if region.probability_range is not None:
            low, high = region.probability_range
        regions.append(
            {
                "participant_id": region.patient,
                "study_id": region.study,
                "roi_id": region.roi,
                "probability": region.probability,
                "probability_of": region.probability_of,
                "probability_low": low,
                "probability_high": high,
                "probability_images": region.probability_images,
                "belief": region.belief,
                "decision": region.decision,
                "decision_reason": region.decision_reason,
                "histology": region.histology_words,
                "patient_probability": region.patient_probability,
                "patient_decision": region.patient_decision,
                "patient_histology_known": region.patient in men_with_histology,
                "held_back": region.patient in men_held_back,
            }
        )
    return regions


def printed_table(metrics: Summary, decisions: MeasuredDecisions) -> list[tuple[str, str]]:
    """Return the measures of a run as rows (name, value) of text, for a terminal."""
    lines = []
    for kind, n in metrics.label_kinds.items():
        lines.append((f"labels: {kind}", str(n)))
    for comparison, title in (
        (metrics.histology, "against histology"),
        (metrics.consensus, "against readers"),
    ):
        if comparison is None:
            continue
        positive = f"{comparison.positive} of {comparison.n} regions positive"
        lines.append((title, f"{positive}, {comparison.patients} patients"))
        if comparison.patients < 2:  # the regions of one patient tell nothing about others
            continue
        lines.append(("  AUC (patients as clusters)", interval_text(comparison.auc)))
        for name, measure in MEASURES.items():
            if measure.headline:
                text = interval_text(comparison.measures[name], measure.digits)
                lines.append((f"  {measure.title}", text))
    for reader, result in metrics.readers.items():
        lines.append((f"reader {reader}: AUC", interval_text(result.auc)))
    for title, sentence in findings(metrics, decisions):
        lines.append((title[0].lower() + title[1:], sentence))  # a table's rows begin in lower case
    for model, sentence in promises(metrics):
        lines.append((f"{model} at its training", sentence))
    men = metrics.patient_level
    if men is not None and men.n >= 2:  # one man has no order, so no AUC
        lines += [
            ("patients", f"{men.positive} of {men.n} with cancer"),
            ("  AUC", interval_text(men.auc)),
            ("  Average precision", interval_text(men.average_precision)),
        ]
    stated = [(name, text) for name, text in lines if text != UNKNOWN]
    warnings = [("warning", text) for text in metrics.warnings]
    return stated + warnings


def findings(metrics: Summary, decisions: MeasuredDecisions) -> list[tuple[str, str]]:
    """Return the main results of a run as pairs of a title and one sentence.

    Parameters
    ----------
    metrics : Summary
        Measures of the run; results that the run does not have are left out.
    decisions : MeasuredDecisions
        Measures of the run's decisions.
    """
    sentences = {name: measured.sentence for name, measured in decisions.regions.items()}
    stated = sentences.get("stated", "")
    before = sentences.get("before_histology", "")
    results = [("Decisions", stated)]
    if before != stated:  # histology has changed some decision
        results.append(("Before histology was looked at", before))
    results.append(("By the thresholds alone", sentences.get("thresholds", "")))
    if metrics.operating_point is not None:
        results.append(("Thresholds for the aim", metrics.operating_point.sentence()))
    if metrics.rivals:
        results.append(("Rivals", metrics.rivals["sentence"]))
    if metrics.disagreement is not None:
        results.append(("The readers' disagreement", metrics.disagreement.sentence()))
    if metrics.assisted is not None:
        results.append(("Readers with the tool", metrics.assisted.sentence()))
    if metrics.ceiling is not None:
        results.append(("What the readers allow", metrics.ceiling.sentence()))
    if metrics.reader_skill:
        results.append(("Readers", metrics.reader_skill["sentence"]))
    if metrics.unverified is not None:
        results.append(("Regions without histology", metrics.unverified.sentence))
    if metrics.venn_abers is not None:
        results.append(("Calibration without a model", metrics.venn_abers.sentence))
    return [(title, sentence) for title, sentence in results if sentence]


def learned(run: JsonObject) -> list[tuple[str, str]]:
    """Return what each model of a run has learned, as pairs (model, sentence).

    The sentence says how much weight a learner that averages over settings gives to each value
    (:func:`cad.run.model.described.describe`). Models of other learners have no pair.

    Parameters
    ----------
    run : dict
        Content of ``run.json``.
    """
    # A prediction lists its models by name. A run that made a model describes it in itself.
    models = (run.get("model") or {}).get("models") or {run.get("name", ""): run}
    sentences = []
    for name, model in models.items():
        sentence = (model.get("estimator") or {}).get("sentence")
        if sentence:
            sentences.append((name, sentence))
    return sentences


def promises(metrics: Summary) -> list[tuple[str, str]]:
    """Return how often decisions by each model's thresholds were right, as pairs (model, sentence).

    The sentence comes from the validation at the model's training.

    Parameters
    ----------
    metrics : Summary
        Measures of a prediction.
    """
    return [(name, point.sentence()) for name, point in metrics.at_training.items()]


def closing_lines(results: Results, metrics: Summary, decisions: MeasuredDecisions) -> list[str]:
    """Return the last lines that a run prints.

    The first line counts men, regions and decisions. If the model states which share of men it
    decided at its training, the line also has the share of decided men among the last men by id.
    The second line names the first three men in the order of the index, and is left out where no
    man has a result. Men whose results are held back are counted and not named.

    Parameters
    ----------
    results : Results
        Content of the run folder.
    metrics, decisions : Summary, MeasuredDecisions
        Measures of the run and of its decisions.

    Returns
    -------
    list of str
        One or two lines, such as ``5 men, 5 regions: 1 malignant, 3 refer, 1 benign; 40% of 5
        decided`` and ``first: sub-2 malignant, region a 91%; ...``.
    """
    n_held_back = len(held_back(results))
    visible = open_results(results)
    men = list_patients(visible)
    men_and_regions = (
        f"{_many(len(men), 'man', 'men')}, {_many(len(visible.regions), 'region', 'regions')}"
    )
    # A man's results may be held back until a reader has scored him. Until then, measures of the
    # whole run would reveal his result.
    if n_held_back:
        counts = _counts_of_visible_men(men, n_held_back)
    else:
        counts = _counts_of_run(visible, metrics, decisions)
    lines = [f"{men_and_regions}: {counts}"]
    first_men = _first_men(men)
    if first_men:
        lines.append(f"first: {'; '.join(first_men)}")
    return lines


def _counts_of_run(results: Results, metrics: Summary, decisions: MeasuredDecisions) -> str:
    """Return in words how many regions of a run got each decision, and how many were decided.

    If the last men by id were compared with the training of the model, the share of decided men
    among them is given beside that share in the training.
    """
    stated = decisions.regions["stated"]
    counts = []
    for decision in ("malignant", "refer", "benign"):
        counts.append(f"{stated.decisions[decision].n} {decision}")
    n_without = sum(region.probability is None for region in results.regions)
    if n_without:
        counts.append(f"{n_without} without a probability")
    # A model may state a probability and decide nothing.
    n_undecided = len(results.regions) - stated.scored - n_without
    if n_undecided:
        counts.append(f"{n_undecided} without a decision{_common_reason(results)}")
    clauses = [", ".join(counts)]
    if stated.scored:  # there is no share of no regions
        clauses.append(f"{stated.decided:.0%} of {stated.scored} decided")
    clauses += _drift(metrics, decisions)
    return "; ".join(clauses)


def _counts_of_visible_men(men: list[PatientView], n_held_back: int) -> str:
    """Return text with the number of regions of each decision, and the number of men held back.

    Only regions of men whose results are not held back are counted.
    """
    counts = []
    for decision in ("malignant", "refer", "benign"):
        n_regions = sum(man.count(decision) for man in men)
        counts.append(f"{n_regions} {decision}")
    counts.append(f"{_many(n_held_back, 'man', 'men')} held back, not scored by a reader")
    return ", ".join(counts)


def _first_men(men: list[PatientView]) -> list[str]:
    """Name the first men of the index who have a result, each with his most suspicious region."""
    names: list[str] = []
    for man in men:
        if man.top is None:  # no region of this man has a probability
            continue
        if len(names) == MOST_PATIENTS:
            break
        decision = man.decision or "no decision"
        if man.histology_known:
            decision += " (histology known)"
        number = probability_text(man.top.probability)
        if man.top.of_cancer:
            region = f"region {man.top.roi} {number}"
        else:
            region = (
                f"region {man.top.roi}, the tool's estimate of what readers would say: {number} "
                "malignant"
            )
        names.append(f"{man.patient} {decision}, {region}")
    return names


def _common_reason(results: Results) -> str:
    """Return the reason, in brackets, why regions with a probability have no decision.

    The text is empty if the reasons of the regions differ.
    """
    reasons = set()
    for region in results.regions:
        if region.probability is not None and not region.decision:
            reasons.update(region.decision_reason or [""])  # a region without a reason counts, too
    if len(reasons) != 1:
        return ""
    reason = reasons.pop()
    return f" ({reason})" if reason else ""


def _drift(metrics: Summary, decisions: MeasuredDecisions) -> list[str]:
    """Return a line that compares two shares of decided men: the last men, and at the training.

    The last men are those with the last ids. A man is decided if he is called benign or malignant.
    The list is empty if the run has no last men, or if the model does not state the share at its
    training.
    """
    men = metrics.patient_level
    latest = decisions.men.get("lately")
    if men is None or not latest or not latest["n"] or men.promised_share is None:
        return []
    line = f"last {_many(latest['n'], 'man', 'men')} by id: {latest['decided']:.0%} decided"
    line += f" ({men.promised_share:.0%} at the training)"
    if latest["intercept"] is not None:  # it is None without enough men with histology
        half_width = 1.96 * latest["error"]  # of the 95 % interval
        line += f"; calibration in the large {latest['intercept']:+.2f} ± {half_width:.2f}"
        line += f" over {latest['known']} with histology"
    return [line]


def _many(n: int, singular: str, plural: str) -> str:
    return f"{n} {singular if n == 1 else plural}"
