"""``validation.md``: what a run can answer of four checklists, and what only a person can.

Items and the sentences that answer them are data (``checklists.yaml``), the page is a template
(``checklists.md.j2``); every sentence about the run is made by
:class:`~cad.learning.evaluation.statements.run_facts.RunFacts`.
"""

from functools import cache
from typing import Any, Literal

from cad.base.terms.beside import page_beside, table_beside
from cad.learning.evaluation.statements.run_facts import Json, RunFacts
from cad.learning.evaluation.summary import Summary

State = Literal["yes", "no", "person", "not applicable"]
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
        By the item's number: ``topic``, and ``answer`` where a run can answer: a template with
        names of :class:`RunFacts` in braces. Items of ``metrics`` also have ``weight``, and either
        ``state``, which holds for every run (see :func:`metrics_states`), or ``proof``: an
        expression for :meth:`RunFacts.proves`.
    """
    found: dict[str, dict[str, Any]] = table_beside(__file__)[name]
    return found


def answers(name: str, facts: RunFacts) -> dict[str, str]:
    """Return the answers of a run to the items of a checklist, one sentence each.

    Parameters
    ----------
    name : str
        ``claim``, ``tripod``, ``clear`` or ``metrics``.
    facts : RunFacts
        Facts of the run.

    Returns
    -------
    dict of str to str
        By the item's number; items that only a person can answer are absent.
    """
    return {
        number: item["answer"].format_map(facts)
        for number, item in items(name).items()
        if "answer" in item
    }


def metrics_states(facts: RunFacts) -> dict[str, State]:
    """Return whether a run fulfils each item of METRICS, a quality score of radiomics studies.

    Parameters
    ----------
    facts : RunFacts
        Facts of the run.

    Returns
    -------
    dict of str to str
        ``yes``, ``no``, ``person`` (only a person can tell: never counted as fulfilled) or
        ``not applicable``, by the item's number.
    """
    words: dict[bool | None, State] = {True: "yes", False: "no", None: "person"}
    return {
        number: item["state"] if "state" in item else words[facts.proves(item["proof"])]
        for number, item in items("metrics").items()
    }


def metrics_score(states: dict[str, State]) -> tuple[float, float]:
    """Return the lowest and the highest METRICS score that a run may have.

    The lowest is the share of the applicable weight that the run itself proves. The highest also
    counts every item that only a person can judge.

    Parameters
    ----------
    states : dict of str to str
        From :func:`metrics_states`.

    Returns
    -------
    least, most : float
        0 to 1.
    """
    total = dict.fromkeys(("yes", "no", "person"), 0.0)
    for number, state in states.items():
        if state != "not applicable":
            total[state] += items("metrics")[number]["weight"]
    whole = sum(total.values())
    return total["yes"] / whole, (total["yes"] + total["person"]) / whole


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
        Markdown: results, the checklists answered from this run, the METRICS score, and the items
        that only a person can answer.
    """
    facts = RunFacts(run, metrics)
    states = metrics_states(facts)
    return page_beside(__file__).render(
        facts.known,
        lists=[(title, items(name), answers(name, facts)) for name, title in TITLES.items()],
        weighed=items("metrics"),
        states=states,
        why=answers("metrics", facts),
        score=metrics_score(states),
    )
