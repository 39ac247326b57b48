"""``validation.md``: what a run can answer of four checklists, and what only a person can.

Item numbers follow Tejani et al., Radiol. Artif. Intell. 2024 (CLAIM, 44 items) and Collins et
al., BMJ 2024 (TRIPOD+AI, 27 items); topics are named in our own words. METRICS and CLEAR, for
radiomics, are in :mod:`cad.evaluation.radiomics_lists`.
"""

from __future__ import annotations

from collections.abc import Mapping

from cad.evaluation.radiomics_lists import CLEAR_TOPICS, clear_answers, metrics_md
from cad.evaluation.run_facts import Json, RunFacts, section_text

CLAIM_TOPICS = {
    1: "AI study, category of technology",
    2: "structured summary",
    3: "background and intended role",
    4: "aims and hypotheses",
    5: "prospective or retrospective",
    6: "study goal",
    7: "data sources",
    8: "inclusion and exclusion criteria",
    9: "preprocessing",
    10: "selection of data subsets",
    11: "de-identification",
    12: "missing data",
    13: "image acquisition protocol",
    14: "reference standard, how obtained",
    15: "reference standard, why chosen",
    16: "annotators of the reference standard",
    17: "annotation of the test set",
    18: "variability between and within annotators",
    19: "assignment to partitions",
    20: "level at which partitions are disjoint",
    21: "intended sample size",
    22: "model in detail",
    23: "software and versions",
    24: "initialisation of parameters",
    25: "training",
    26: "choice of the final model",
    27: "ensembling",
    28: "measures of performance",
    29: "uncertainty and significance",
    30: "robustness and sensitivity analysis",
    31: "explanation of predictions",
    32: "testing on internal data",
    33: "testing on external data",
    34: "trial registration",
    35: "numbers included and excluded",
    36: "demographic and clinical characteristics",
    37: "performance with uncertainty",
    38: "diagnostic accuracy and its precision",
    39: "failure analysis",
    40: "limitations",
    41: "implications for practice",
    42: "study protocol",
    43: "availability of software, model, data",
    44: "funding",
}

TRIPOD_TOPICS = {
    "1": "title",
    "2": "abstract",
    "3": "background, intended use, inequalities",
    "4": "objectives",
    "5": "data sources and dates",
    "6": "setting, eligibility, treatments",
    "7": "data preparation",
    "8": "outcome, its assessment and blinding",
    "9": "predictors",
    "10": "sample size",
    "11": "missing data",
    "12a": "use of data, partition",
    "12b": "handling of predictors",
    "12c": "type of model, building, tuning, internal validation",
    "12d": "heterogeneity between clusters",
    "12e": "measures and plots",
    "12f": "model updating",
    "12g": "how predictions were made",
    "13": "class imbalance",
    "14": "fairness",
    "15": "output and thresholds",
    "16": "differences of training and evaluation",
    "17": "ethical approval",
    "18": "funding, conflicts, protocol, registration, data, code",
    "19": "patient and public involvement",
    "20": "flow and characteristics of participants",
    "21": "participants and events in each analysis",
    "22": "full model specification",
    "23a": "performance with intervals",
    "23b": "performance in clusters",
    "24": "results of updating",
    "25": "interpretation",
    "26": "limitations",
    "27": "usability: poor input, user, next steps",
}


def validation_md(run: Json, metrics: Json) -> str:
    """Return the text of ``validation.md``.

    Parameters
    ----------
    run : dict
        Content of ``run.json``.
    metrics : dict
        Content of ``metrics.json`` (:func:`cad.evaluation.summary.evaluate`).

    Returns
    -------
    str
        Markdown: results, the checklists answered from this run, the METRICS score, and the items
        that only a person can answer.
    """
    facts = RunFacts(run, metrics)
    claim, tripod, clear = _claim_answers(facts), _tripod_answers(facts), clear_answers(facts)
    open_claim = [f"{n} {t}" for n, t in CLAIM_TOPICS.items() if n not in claim]
    open_clear = [f"{n} {t}" for n, t in CLEAR_TOPICS.items() if n not in clear]
    open_tripod = [f"{n} {t}" for n, t in TRIPOD_TOPICS.items() if n not in tripod]
    parts = [
        f"# Validation of {run.get('name', 'this run')}",
        "Research use only." + (" **Simulated patients.**" if run.get("cohort_simulated") else ""),
        "## Results\n\n" + facts.performance(),
        *(["## Warnings\n\n" + facts.warnings()] if metrics.get("warnings") else []),
        "## CLAIM 2024\n\n" + _checklist({str(n): (CLAIM_TOPICS[n], a) for n, a in claim.items()}),
        "## TRIPOD+AI\n\n" + _checklist({n: (TRIPOD_TOPICS[n], a) for n, a in tripod.items()}),
        "## CLEAR\n\n" + _checklist({str(n): (CLEAR_TOPICS[n], a) for n, a in clear.items()}),
        metrics_md(facts),
        "## Only a person can answer\n\nCLAIM 2024: "
        + "; ".join(open_claim)
        + ".\n\nTRIPOD+AI: "
        + "; ".join(open_tripod)
        + ".\n\nCLEAR: "
        + "; ".join(open_clear)
        + ".",
    ]
    return "\n\n".join(parts) + "\n"


def _claim_answers(f: RunFacts) -> dict[int, str]:
    external = "This run is external testing." if f.external else "None in this run."
    where = "features.parquet, labels.parquet and settings in run.json"
    return {
        1: f"Learning from image features of ROIs by {f.learner.get('name', 'a trained model')}.",
        9: "Settings `images` and `features` in run.json: "
        f"{section_text(f.settings.get('images'))}.",
        10: f"{f.included()} All ROIs of readable studies are used.",
        12: f.missing(),
        14: f.reference(),
        16: f.annotators(),
        17: "All ROIs of this cohort are test data."
        if f.external
        else "As the rest: every ROI is tested once, by a model that did not see its patient.",
        18: f.variability(),
        19: f.partition(),
        20: f.disjoint(),
        22: f.model(),
        23: f.software(),
        24: "Kernel learners solve a convex problem: the start does not matter.",
        25: f"{f.model()} {f.partition()}",
        26: "Chosen by inner folds; see folds in metrics.json."
        if f.learner.get("grid")
        else "Parameters were fixed beforehand; nothing was chosen on test folds.",
        27: "None.",
        28: "AUC, accuracy, sensitivity, specificity, predictive values, two-sided KL, alignment "
        "error, cross-entropy, Brier, calibration, decision curve.",
        29: f.significance(),
        31: "Per ROI the features that moved the decision value most (explanations.csv).",
        32: "None in this run." if f.external else f.partition(),
        33: external,
        35: f.included(),
        37: f.auc_text(),
        38: "Sensitivity, specificity and predictive values with intervals at "
        f"{_operating(f.metrics)} in metrics.json.",
        39: f.failures(),
        43: f"Software: cad {f.run.get('cad_version', '?')}. Data of this run: {where}.",
    }


def _tripod_answers(f: RunFacts) -> dict[str, str]:
    return {
        "7": "Settings `images`, `features`, `labels` in run.json; the same for all patients.",
        "8": f"{f.reference()} {f.annotators()} Blinding: a person.",
        "9": "Image features of docs/features.md; the list is the columns of features.parquet.",
        "11": f.missing(),
        "12a": f.partition(),
        "12b": "Median imputation, constant columns dropped, z-scores; all inside the fold.",
        "12c": f"{f.model()} {f.partition()}",
        "12d": "Patients are the unit of every interval and permutation.",
        "12e": "Discrimination, calibration, decision curve; report/index.html has the figures.",
        "12g": "`cad predict` with the model bundle; probabilities.csv.",
        "13": f.prevalence(),
        "15": f.thresholds(),
        "20": f.included(),
        "21": f.prevalence(),
        "22": "The model bundle holds every number of the model; see its card.",
        "23a": f.auc_text(),
        "27": "A study that cannot be read or measured is refused by name (failures.csv); a ROI "
        "unlike the training cohort carries a warning.",
    }


def _checklist(items: Mapping[str, tuple[str, str]]) -> str:
    rows = [f"| {n} | {topic} | {answer} |" for n, (topic, answer) in items.items()]
    return "\n".join(["| item | topic | answer |", "| --- | --- | --- |", *rows])


def _operating(metrics: Json) -> str:
    block = metrics.get("histology") or metrics.get("consensus") or {}
    points = [f"{p['threshold']:.3g}" for p in block.get("operating_points") or []]
    return ", ".join(points) or "no threshold"
