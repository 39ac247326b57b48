"""Answer the two lists of radiomics: CLEAR (58 items) and the METRICS score (30 items).

Kocak et al., Insights Imaging 14 (2023) 75 (CLEAR) and 15 (2024) 8 (METRICS, table 1: items and
weights, which sum to 1). Topics are named in our own words. An item is answered by the run, listed
as a person's duty, or does not apply; a person's duty is never counted as fulfilled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cad.evaluation.run_facts import RunFacts, section_text

CLEAR_TOPICS = dict(
    enumerate(
        (
            "title that names the method", "structured summary", "keywords",
            "background", "why radiomics", "objectives",
            "guidelines followed", "ethics", "sample size", "prospective or retrospective",
            "eligibility", "chart of the technical steps",
            "data source", "overlap with earlier studies", "data split", "imaging protocol",
            "predictors that are no image features", "reference standard",
            "segmentation strategy", "who segmented",
            "preprocessing", "resampling", "discretisation", "image types",
            "extraction method", "feature classes", "number of features", "remaining parameters",
            "missing data", "class imbalance", "reliability of segmentation", "feature scaling",
            "dimension reduction",
            "algorithm", "training and tuning", "confounders", "choice of the model",
            "testing, internal or external", "measures and why", "uncertainty",
            "statistical comparison of models", "comparison without radiomics, method",
            "interpretability",
            "baseline characteristics", "chart of eligibility", "feature statistics",
            "performance", "comparison without radiomics, result",
            "findings", "earlier work", "implications", "strengths and limitations",
            "sharing of images and segmentations", "sharing of features",
            "sharing of preprocessing", "sharing of modelling code", "sharing of the model",
            "a system ready to use",
        ),
        start=1,
    )
)  # fmt: skip

METRICS_ITEMS: dict[int, tuple[str, float]] = {
    1: ("a checklist was followed", 0.0368),
    2: ("eligibility gives a representative population", 0.0735),
    3: ("good and defined reference standard", 0.0919),
    4: ("more than one centre", 0.0438),
    5: ("imaging as in clinical routine", 0.0292),
    6: ("imaging protocol with parameters", 0.0438),
    7: ("time between imaging and reference standard", 0.0292),
    8: ("segmentation described", 0.0337),
    9: ("automated segmentation evaluated", 0.0225),
    10: ("test masks by one reader or a tool, as in use", 0.0112),
    11: ("preprocessing fit and described", 0.0622),
    12: ("standardised feature extraction", 0.0311),
    13: ("extraction parameters reported", 0.0415),
    14: ("features that are not robust removed", 0.0200),
    15: ("redundant features removed", 0.0200),
    16: ("number of features fits the number of patients", 0.0300),
    17: ("robustness of end-to-end deep learning", 0.0200),
    18: ("sound partition of the data", 0.0599),
    19: ("confounders handled", 0.0300),
    20: ("measures fit the task", 0.0352),
    21: ("uncertainty given", 0.0234),
    22: ("calibration assessed", 0.0176),
    23: ("one image kind, or proof that it is not enough", 0.0117),
    24: ("comparison without radiomics", 0.0293),
    25: ("comparison with a simple model", 0.0176),
    26: ("internal testing", 0.0375),
    27: ("external testing", 0.0749),
    28: ("data available", 0.0075),
    29: ("code available", 0.0075),
    30: ("model available", 0.0075),
}
"""Item to topic and weight."""

State = Literal["yes", "no", "person", "not applicable"]
SIMPLE = ("logistic", "linear", "mean")


@dataclass(frozen=True)
class Score:
    """Hold the METRICS score of a run.

    Parameters
    ----------
    least, most : float
        Share of the applicable weight that the run itself proves; and with every person's duty.
    """

    least: float
    most: float


def metrics_score(answers: dict[int, tuple[State, str]]) -> Score:
    """Return the score of answered items: weights of ``yes`` over those that apply."""
    total = dict.fromkeys(("yes", "no", "person"), 0.0)
    for item, (state, _) in answers.items():
        if state != "not applicable":
            total[state] += METRICS_ITEMS[item][1]
    whole = sum(total.values())
    return Score(total["yes"] / whole, (total["yes"] + total["person"]) / whole)


def metrics_md(f: RunFacts) -> str:
    """Return the section of ``validation.md`` with the METRICS items and score."""
    answers = metrics_answers(f)
    score = metrics_score(answers)
    rows = [
        f"| {n} | {METRICS_ITEMS[n][0]} | {METRICS_ITEMS[n][1]:.4f} | {state} | {text} |"
        for n, (state, text) in answers.items()
    ]
    return "\n".join(
        [
            "## METRICS\n",
            f"Score {100 * score.least:.1f} % by what this run proves, at most "
            f"{100 * score.most:.1f} % with every person's duty fulfilled.\n",
            "| item | topic | weight | answer | why |",
            "| --- | --- | --- | --- | --- |",
            *rows,
        ]
    )


def metrics_answers(f: RunFacts) -> dict[int, tuple[State, str]]:
    """Return every METRICS item's state and reason."""
    block = f.metrics.get("histology") or f.metrics.get("consensus") or {}
    auc = block.get("auc") or {}
    images = (f.settings.get("features") or {}).get("modalities") or []
    sites = (f.run.get("counts") or {}).get("sites")
    held_out = f.external or f.validate.get("scheme", "leave-one-patient-out") != "none"
    slope = (block.get("measures") or {}).get("calibration_slope") or {}

    def proven(is_so: bool, text: str) -> tuple[State, str]:
        return ("yes" if is_so else "no"), text

    def person(text: str) -> tuple[State, str]:
        return "person", text

    return {
        1: proven(True, "CLAIM 2024, TRIPOD+AI and CLEAR are answered in this file."),
        2: person("who was eligible, and whether that is the population of use"),
        3: proven(bool(f.metrics.get("histology")), f.reference()),
        4: person("sites are not in the tables")
        if sites is None
        else proven(sites > 1, f"{sites} site(s) in participants.tsv."),
        5: person("whether the protocol is the routine one (PI-RADS v2.1)"),
        6: person("the sidecars of the cohort hold TR, TE, flip angle and field strength"),
        7: person("days between MRI and histology"),
        8: person("how the regions were drawn, and by whom"),
        9: ("not applicable", "Regions are drawn by people."),
        10: person("whether test regions were drawn as they are in use"),
        11: proven(True, f"Settings `images`: {section_text(f.settings.get('images'))}."),
        12: proven(True, "IBSI definitions, tested against the IBSI reference values."),
        13: proven(bool(f.settings.get("features")), "Settings `features` in run.json."),
        14: _robust(f),
        15: proven(f.learner.get("selection", "none") != "none",
                   f"selection: {f.learner.get('selection', 'none')}."),
        16: _dimension(f),
        17: ("not applicable", "No end-to-end deep learning."),
        18: proven(held_out, f"{f.partition()} {f.disjoint()}"),
        19: person("which confounders there are (scanner, site, age, PSA) and what was done"),
        20: proven(bool(block), "AUC, calibration, predictive values, decision curve."),
        21: proven(auc.get("lower") is not None, "95 % intervals, patients as clusters."),
        22: proven(slope.get("value") is not None, f.calibration()),
        23: proven(len(images) == 1, f"Image kinds: {', '.join(images) or 'not recorded'}; "
                   "`cad compare` with a pipeline of one image kind would prove the others."),
        24: proven(bool((f.metrics.get("cad_vs_readers") or {}).get("difference") is not None),
                   "The readers' own scores on the same regions."),
        25: _simple(f),
        26: proven(held_out and not f.external, f.partition()),
        27: proven(f.external, "New studies." if f.external else "None in this run."),
        28: person("whether the images may be shared"),
        29: person(f"whether the code is public; this run used cad {f.run.get('cad_version')}"),
        30: person("whether the model bundle is public"),
    }  # fmt: skip


def _robust(f: RunFacts) -> tuple[State, str]:
    wanted = (f.settings.get("features") or {}).get("robustness") or {}
    if not wanted.get("stable_only"):
        return "no", "Every feature was kept (features.robustness.stable_only)."
    return "yes", f"By ICC over {wanted.get('repeats')} redrawn regions, in every fold."


def _dimension(f: RunFacts) -> tuple[State, str]:
    """Judge by ten regions of the rarer class a feature, the customary rule."""
    block = f.metrics.get("histology") or f.metrics.get("consensus") or {}
    n_features = f.features
    if not block or n_features is None:
        return "no", "The number of features is not recorded."
    rarer = min(block["positive"], block["negative"])
    state: State = "yes" if rarer >= 10 * n_features else "no"
    return state, f"{n_features} features, {rarer} regions of the rarer class."


def _simple(f: RunFacts) -> tuple[State, str]:
    rivals = [str(row["learner"]) for row in (f.metrics.get("rivals") or {}).get("table") or []]
    simple = sorted({name for name in rivals if any(word in name.lower() for word in SIMPLE)})
    if simple:
        return "yes", f"Rivals on the same folds: {', '.join(simple)}."
    return "no", "No simple rival in this run (validate.rivals)."


def clear_answers(f: RunFacts) -> dict[int, str]:
    """Return the CLEAR items that this run answers."""
    features = section_text(f.settings.get("features"))
    external = "External: all studies are new to the model." if f.external else f.partition()
    return {
        7: "CLAIM 2024, TRIPOD+AI, CLEAR and METRICS in this file.",
        12: "docs/architecture.md draws the steps; settings in run.json are those of this run.",
        15: f.partition(),
        17: "None: image features of regions only, unless `features.families` adds size or place.",
        18: f.reference(),
        21: f"Settings `images`: {section_text(f.settings.get('images'))}.",
        22: f"In every image's own grid, or at the spacing of the settings: {features}.",
        23: "Settings `features`: levels and widths by image (docs/features.md).",
        24: "T2, ADC, dynamic maps and their gradients; see docs/features.md.",
        25: f"cad {f.run.get('cad_version', '?')}: IBSI definitions, tested on IBSI's values.",
        26: f"Families of the settings: {features}.",
        27: f"{f.features or 'The columns of features.parquet:'} features.",
        28: "Every parameter with its default is in run.json (settings) and docs/settings.md.",
        29: f.missing(),
        30: f.prevalence(),
        31: _robust(f)[1],
        32: "z-scores fitted on the training patients of every fold.",
        33: f"selection: {f.learner.get('selection', 'none')}, inside every fold.",
        34: f.model(),
        35: f"{f.model()} {f.partition()}",
        37: "By inner folds." if f.learner.get("grid") else "Fixed beforehand.",
        38: external,
        39: "Ranking (AUC), probability (KL, Brier, calibration), decisions at the site's costs.",
        40: f.significance(),
        41: "Paired differences on the same folds where there are rivals; cad compare for more.",
        42: f.annotators(),
        43: "The features that moved each region's decision value (explanations.csv).",
        46: "features.parquet holds every value.",
        47: f.auc_text(),
        54: "features.parquet may be shared where the cohort's terms allow it.",
        55: "run.json.",
        57: "The model bundle, with its hash.",
        58: "`cad predict`.",
    }
