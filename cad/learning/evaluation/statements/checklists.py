"""Write ``validation.md``, with four checklists for reports on AI in medical imaging.

Items are answered from a run, or left open for a person.

The items, their weights and the templates of the answers are in ``checklists.yaml``. The functions
of :mod:`cad.learning.evaluation.statements.sentences` make the sentences about the run. The
functions of :mod:`cad.learning.evaluation.statements.proofs` decide whether a run fulfils an item
of METRICS, a quality score of radiomics studies.
"""

import re
from functools import cache
from typing import Any, Literal

from cad.base.terms.beside import table_beside
from cad.base.terms.measures import MEASURES
from cad.base.terms.text import interval_text
from cad.learning.evaluation.measures.comparison import Comparison
from cad.learning.evaluation.statements.proofs import PROOFS
from cad.learning.evaluation.statements.run_facts import Json, RunFacts
from cad.learning.evaluation.statements.sentences import SENTENCES
from cad.learning.evaluation.summary import Summary

State = Literal["yes", "no", "person", "not applicable"]
OF_A_TABLE = "who made the table knows how its columns were measured"
TITLES = {"claim": "CLAIM 2024", "tripod": "TRIPOD+AI", "clear": "CLEAR"}


@cache
def items(name: str) -> dict[str, dict[str, Any]]:
    """Return the items of a checklist for reports on AI in medical imaging.

    Parameters
    ----------
    name : str
        ``claim``, ``tripod``, ``clear`` or ``metrics``.

    Returns
    -------
    dict of str to dict
        A dict for each item, by its number. It has ``topic``, and ``answer`` if a run can answer
        the item. ``answer`` is a text with names of
        :data:`~cad.learning.evaluation.statements.sentences.SENTENCES` in braces. Items of
        ``metrics`` also have ``weight``, and ``state`` if the item's state is the same for every
        run.
    """
    checklist: dict[str, dict[str, Any]] = table_beside(__file__)[name]
    return checklist


def answers(name: str, facts: RunFacts) -> dict[str, str]:
    """Return the answers to the items of a checklist for a run, a text for each item.

    Parameters
    ----------
    name : str
        ``claim``, ``tripod``, ``clear`` or ``metrics``.
    facts : RunFacts
        Facts of the run.

    Returns
    -------
    dict of str to str
        Answers by the item's number; items that only a person can answer are absent.
    """

    def sentence(match: re.Match[str]) -> str:
        """Return the sentence about this run for a name in braces."""
        return SENTENCES[match[1]](facts)

    answered = {}
    for number, item in items(name).items():
        if _of_nobody(name, number, facts):
            # The checklist METRICS needs a reason for each item, also where nothing was measured on
            # images.
            if name == "metrics":
                answered[number] = OF_A_TABLE
        elif "answer" in item:
            answered[number] = re.sub(r"\{(\w+)\}", sentence, item["answer"])
    return answered


def _of_nobody(name: str, number: str, facts: RunFacts) -> bool:
    """Return whether an item of a checklist asks how images were measured in a run without images.

    ``name`` is the checklist, and ``number`` the item.
    """
    return not facts.pictured and number in table_beside(__file__)["of_images"][name]


def metrics_states(facts: RunFacts) -> dict[str, State]:
    """Return whether a run fulfils each item of METRICS, a quality score of radiomics studies.

    Parameters
    ----------
    facts : RunFacts
        Facts of the run.

    Returns
    -------
    dict of str to str
        For each item's number ``yes``, ``no``, ``person`` or ``not applicable``. ``person`` means
        that only a person can judge the item.
    """
    states: dict[str, State] = {}
    for number, item in items("metrics").items():
        if _of_nobody("metrics", number, facts):
            states[number] = "person"
            continue
        # The state of some items is the same for every run.
        if "state" in item:
            states[number] = item["state"]
            continue
        # None: the run's record cannot show whether it fulfils the item.
        proven = PROOFS[number](facts)
        if proven is None:
            states[number] = "person"
        else:
            states[number] = "yes" if proven else "no"
    return states


def metrics_score(states: dict[str, State]) -> tuple[float, float]:
    """Return the lowest and the highest METRICS score that a run may have.

    The lowest score is the weight of the items that the run fulfils, as a share of the weight of
    all applicable items. For the highest score the items that only a person can judge are also
    counted as fulfilled.

    Parameters
    ----------
    states : dict of str to str
        State of every item, from :func:`metrics_states`.

    Returns
    -------
    least, most : float
        Scores from 0 to 1.
    """
    weight_by_state = dict.fromkeys(("yes", "no", "person"), 0.0)
    for number, state in states.items():
        if state != "not applicable":
            weight_by_state[state] += items("metrics")[number]["weight"]
    weight_of_all = sum(weight_by_state.values())
    return weight_by_state["yes"] / weight_of_all, (
        weight_by_state["yes"] + weight_by_state["person"]
    ) / weight_of_all


def validation_md(run: Json, metrics: Summary) -> str:
    """Return the text of ``validation.md``.

    Parameters
    ----------
    run : dict
        Content of ``run.json``.
    metrics : Summary
        Content of ``metrics.json``.

    Returns
    -------
    str
        Markdown text with results, the checklists as far as this run answers them, the METRICS
        score, and the items that only a person can answer.
    """
    facts = RunFacts(run, metrics)
    answered = {name: answers(name, facts) for name in TITLES}
    simulated = " **Simulated patients.**" if run.get("cohort_simulated") else ""
    lines = [
        f"# Validation of {run.get('name', 'this run')}",
        "",
        f"Research use only.{simulated}",
        "",
        *_results(metrics),
        *_warning_lines(metrics.warnings, run.get("warnings") or []),
    ]
    for name, title in TITLES.items():
        lines += [f"## {title}", "", "| item | topic | answer |", "| --- | --- | --- |"]
        for number, answer in answered[name].items():
            lines.append(f"| {number} | {items(name)[number]['topic']} | {answer} |")
        lines.append("")
    lines += _metrics_score_lines(facts)
    lines += ["## Only a person can answer", ""]
    for name, title in TITLES.items():
        open_items = []
        for number, item in items(name).items():
            if number not in answered[name]:
                open_items.append(f"{number} {item['topic']}")
        lines += [f"{title}: {'; '.join(open_items)}.", ""]
    return "\n".join(lines) + "\n"


def _results(metrics: Summary) -> list[str]:
    """Return the lines of the table of results: one column per truth, one row per measure."""
    lines = [
        "## Results",
        "",
        "| | histology | readers' consensus |",
        "| --- | --- | --- |",
    ]
    histology = _results_column(metrics.histology)
    consensus = _results_column(metrics.consensus)
    for title, text in histology.items():
        lines.append(f"| {title} | {text} | {consensus[title]} |")
    return [*lines, ""]


def _results_column(comparison: Comparison | None) -> dict[str, str]:
    """Return the texts of one column of the table of results, by title of the row.

    The column is for one truth. The texts are dashes if there is no comparison with this truth.
    """
    # The AUC has two rows of its own, with different intervals.
    measured = {name: measure for name, measure in MEASURES.items() if name != "auc"}
    titles = ["ROIs (patients)", "malignant", "ties at .5"]
    titles += ["AUC, patient-clustered", "AUC, ROI-level"]
    titles += [measure.title for measure in measured.values()]
    if comparison is None:
        return dict.fromkeys(titles, "–")
    texts = [f"{comparison.n} ({comparison.patients})"]
    texts += [str(comparison.positive), str(comparison.ties)]
    texts += [interval_text(comparison.auc), interval_text(comparison.auc_roi_level)]
    for name, measure in measured.items():
        texts.append(interval_text(comparison.measures.get(name), measure.digits))
    return dict(zip(titles, texts, strict=True))


def _warning_lines(of_measures: list[str], of_run: list[str]) -> list[str]:
    """Return lines with the warnings of the measures and of the run under a title, each warning
    once.
    """
    distinct = dict.fromkeys([*of_measures, *of_run])
    if not distinct:
        return []
    lines = ["## Warnings", ""]
    for sentence in distinct:
        lines.append(f"- {sentence}")
    lines.append("")
    return lines


def _metrics_score_lines(facts: RunFacts) -> list[str]:
    """Return the lines of the section on METRICS: the score, and a table with all items."""
    states = metrics_states(facts)
    reasons = answers("metrics", facts)
    low, high = metrics_score(states)
    lines = [
        "## METRICS",
        "",
        f"Score {100 * low:.1f} % by what this run proves, at most {100 * high:.1f} % with every "
        "person's duty fulfilled.",
        "",
        "| item | topic | weight | answer | why |",
        "| --- | --- | --- | --- | --- |",
    ]
    for number, item in items("metrics").items():
        lines.append(
            f"| {number} | {item['topic']} | {item['weight']:.4f} | {states[number]} | "
            f"{reasons[number]} |"
        )
    return [*lines, ""]
