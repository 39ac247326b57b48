"""Put what a run recorded of itself into sentences, for the checklists of reviewers.

The sentences are macros of ``run_facts.md.j2``; here is what they look up.
"""

from collections.abc import Mapping
from math import isnan
from typing import Any

from cad.base.terms.beside import page_beside
from cad.base.terms.measures import MEASURES
from cad.base.terms.text import interval_text
from cad.learning.evaluation.summary import Summary

Json = Mapping[str, Any]
UNKNOWN = "not known to the program"
SIMPLE = ("logistic", "linear", "mean")


class RunFacts:
    """Make sentences about one run from its ``run.json`` and ``metrics.json`` only.

    Look sentences up by name: ``facts["missing"]`` is the sentence on missing data. The names are
    those of the macros in ``run_facts.md.j2``.

    Parameters
    ----------
    run : dict
        Content of ``run.json``.
    metrics : Summary
        Content of ``metrics.json``.

    Attributes
    ----------
    known : dict of str to object
        Facts by name, as raw values: the variables of the sentences and of :meth:`proves`.
    """

    def __init__(self, run: Json, metrics: Summary) -> None:
        settings = run.get("settings") or {}
        fitted = run.get("estimator") or {}
        validate = settings.get("validate") or {}
        features = settings.get("features") or {}
        images = settings.get("images") or {}
        # Tissue wherever it is known; the readers' consensus is what the model learned from.
        block = metrics.histology or metrics.consensus
        models = (run.get("model") or {}).get("models") or {}
        predicted = run.get("kind") == "predict"
        # A man of the training makes a prediction no external test.
        shared = sum(model.get("patients_of_training", 0) for model in models.values())
        external = predicted and not shared
        validated = not predicted and validate.get("scheme", "none") != "none"
        steps = fitted.get("steps") or []
        kappas = metrics.agreement["kappa"] if metrics.agreement else []
        table = metrics.rivals["table"] if metrics.rivals else []
        rivals = sorted({row["learner"] for row in table})
        costs = {k: v for k, v in (settings.get("decision") or {}).items() if v is not None}
        self.known: dict[str, Any] = {
            "run": run,
            "metrics": metrics,
            "n": metrics.n,
            "counts": {"features": None, "sites": None, **(run.get("counts") or {})},
            "labels": settings.get("labels") or {},
            "learner": settings.get("learner") or {},
            "validate": validate,
            "features": features,
            "images": images,
            "spacings": {k: v for k, v in images.items() if k.startswith("spacing") and v},
            "robust": features.get("robustness") or {},
            "fitted": fitted,
            "parameters": {
                k: v for k, v in (fitted.get("parameters") or {}).items() if v is not None
            },
            "steps": {step["name"]: step for step in reversed(steps)},
            "selector": next((step for step in steps if "n_features" in step), None),
            "weights": fitted.get("weights") or {},
            "members": fitted.get("members"),
            "models": models,
            "block": block,
            "rarer": min(block.positive, block.negative) if block else 0,
            "predicted": predicted,
            "shared": shared,
            "external": external,
            "validated": validated,
            "held_out": external or validated,
            "kappas": [k["value"] for k in kappas if digits3(k["value"]) != "–"],
            "rivals": rivals,
            "simple": [name for name in rivals if any(word in name.lower() for word in SIMPLE)],
            # Aims are no costs: the sentence of the chosen thresholds says what came of them.
            "costs": {k: v for k, v in costs.items() if not k.startswith("aim")},
            "chosen": metrics.operating_point or next(iter(metrics.at_training.values()), None),
            "measures": MEASURES,
            "unknown": UNKNOWN,
            "listed": _listed,
            "digits3": digits3,
            "interval_text": interval_text,
            "isnan": isnan,
        }
        page = page_beside(__file__)
        self._environment, self._sentences = page.environment, page.make_module(self.known)

    def __getitem__(self, name: str) -> str:
        return " ".join(str(getattr(self._sentences, name)()).split())

    def proves(self, expression: str) -> bool | None:
        """Return whether a Jinja expression is true for the run; None where the run does not tell.

        Parameters
        ----------
        expression : str
            Uses the names of :attr:`known`.
        """
        holds = self._environment.compile_expression(expression)(**self.known)
        return None if holds is None else bool(holds)


def _listed(section: Json) -> str:
    """Return a section of settings in one line, such as ``bins 32, distance 1``."""
    return ", ".join(f"{k} {v}" for k, v in section.items()) or "not recorded"


def digits3(value: float | None) -> str:
    """Return a number with three significant digits, or a dash where it is unknown."""
    return "–" if value is None or isnan(value) else f"{value:.3g}"
