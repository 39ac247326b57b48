"""The head of a patient's page: the man in a line, and every lesion worth looking at in a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

from cad.evaluation.summary import Summary
from cad.files import JsonObject
from cad.reports.plots import measured, probability_text
from cad.reports.regions import RegionView
from cad.reports.views import PatientView, StudyView
from cad.run_folder.results import RegionResult, Results
from cad.terms.text import interval_text

_SCALES = {"pirads": "PI-RADS", "likert5": "of 5", "percent": "%"}


@dataclass(frozen=True)
class Lesion:
    """Hold a row of the head, in sentences that read right when copied or spoken.

    Parameters
    ----------
    view : RegionView
        The region.
    first : str
        Whose most suspicious region it is: ``the tool's first``, ``the readers' first``, both, or
        empty.
    where, tool, readers, action, drivers : str
        Place, size and image; the probability; the scores; the decision with its reason; what
        raised and what lowered the probability.
    """

    view: RegionView
    first: str
    where: str
    tool: str
    readers: str
    action: str
    drivers: str = ""


@dataclass(frozen=True)
class Headline:
    """Hold what the page says first.

    Parameters
    ----------
    decision : str
        The man's.
    man : str
        His probability, and what to do.
    about : list of str
        Of the study and the patient, each as far as it is known; what is missing last.
    reliable : list of (str, bool)
        What the probabilities rest on; true where that asks for caution.
    lesions : list of Lesion
        Those of :attr:`cad.reports.views.PatientView.head`.
    rest : str
        What is not among them, counted.
    """

    decision: str
    man: str
    about: list[str]
    reliable: list[tuple[str, bool]]
    lesions: list[Lesion]
    rest: str


def headline(
    results: Results,
    metrics: Summary,
    patient: PatientView,
    views: Sequence[RegionView],
    studies: Sequence[StudyView],
    models: Sequence[JsonObject],
) -> Headline:
    """Return the head of one patient's page."""
    of = {id(view.region): view for view in views}
    shown = [of[id(region)] for region in patient.head]
    firsts = {"the tool's first": patient.top, "the readers' first": patient.readers_first}
    lesions = [
        Lesion(
            view,
            ", ".join(words for words, first in firsts.items() if first is view.region),
            where_words(view),
            tool_words(view),
            readers_words(view.region),
            action_words(view),
            view.reasons.sentence if view.reasons else "",
        )
        for view in shown
    ]
    return Headline(
        patient.decision,
        _man(patient),
        _about(patient, studies),
        _reliable(results, metrics, [view.region for view in views], models, len(patient.failures)),
        lesions,
        _rest([r for r in patient.ranked if r not in patient.head]),
    )


def where_words(view: RegionView) -> str:
    """Say where a region lies, how large it is and on which image."""
    size = [view.facts[key] for key in ("diameter", "volume") if key in view.facts]
    parts = [view.place or "place not known (no gland mask, no zone)", *size, image_text(view)]
    return ", ".join(parts)


def image_text(view: RegionView) -> str:
    """Say where a viewer finds a region: the archive's numbers, else the slice and its place."""
    if view.slice_number is None or view.z_mm is None:
        return "not on the shown slices"
    if view.archive:
        return f"T2 {view.archive}"
    return f"T2 slice {view.slice_number} (z {view.z_mm:.1f} mm)".replace("z -", "z −")


def tool_words(view: RegionView) -> str:
    """Say the probability, how often such regions were malignant, and what the outline does."""
    region = view.region
    if region.probability is None:
        return "no probability of malignancy"
    text = f"{probability_text(region.probability)} probability of malignancy"
    if region.outline is not None:
        text += f", {view.outline}"
    if region.among is None:
        return text
    low, high = (f"{100 * share:.0f}" for share in region.among)
    share = low if low == high else f"{low} to {high}"
    return f"{text}; of 100 regions so judged, {share} were malignant"


def readers_words(region: RegionResult) -> str:
    """Say the readers' scores as given, and whether they agree with each other."""
    if not region.scores:
        return "not scored by a reader"
    given = ", ".join(f"{reader} {score}" for reader, score in region.scores)
    scales = set(region.scales.values())
    scale = f" ({_SCALES.get(scales.pop(), '')})" if len(scales) == 1 else ""
    word = f", the readers {region.readers_agree}" if region.readers_agree else ""
    return f"{given}{scale}{word}"


def action_words(view: RegionView) -> str:
    """Say what follows and why; of a referral also to whom."""
    region, limits = view.region, view.thresholds
    p = probability_text(region.probability)
    low, high = (probability_text(limit) for limit in limits) if limits else ("", "")
    if region.decision == "malignant":
        why = f"{p} is above the site's limit of {high}" if limits else ""
        return f"Suspicious, consider as a biopsy target: {why}".rstrip(": ")
    if region.decision == "benign":
        return f"Benign: {p} is below the site's limit of {low}" if limits else "Benign"
    if region.decision != "refer":
        return "No decision: see what was missing or failed"
    to = "a joint reading" if len(region.scores) > 1 else "a second radiologist"
    why = "; ".join(region.decision_reason)
    if not why and limits:
        why = f"{p} lies between the site's limits, {low} and {high}"
    return f"Refer to {to}: {why}".rstrip(": ")


def _man(patient: PatientView) -> str:
    """Say the man's probability and decision."""
    if patient.top is None:
        return "No region of this man has a probability: see what was missing or failed."
    if patient.probability is not None:
        whole = probability_text(patient.probability)
        text = f"Probability that any region of this man is malignant: {whole}."
    else:
        text = (
            "This run gives no probability of the whole man; his most suspicious region has "
            f"{probability_text(patient.top.probability)}."
        )
    of = {
        word: [region.roi for region in patient.ranked if region.decision == word]
        for word in ("malignant", "refer")
    }
    follows = {
        "malignant": f"Suspicious: consider {_regions(of['malignant'])} for biopsy.",
        "refer": f"Refer: {_regions(of['refer'])} to be read again."
        if of["refer"]
        else "Refer: something is missing or failed, so benign is not stated.",
        "benign": "Benign: every region is below the site's limit.",
        "": "",
    }[patient.decision]
    return f"{text} {follows}".strip()


def _regions(rois: Sequence[str]) -> str:
    return f"region{'s' if len(rois) > 1 else ''} {', '.join(rois)}"


def _about(patient: PatientView, studies: Sequence[StudyView]) -> list[str]:
    """Return study date, scanner, field, age, PSA, its density, gland volume, what is missing."""
    known, unknown = [], []
    for study in studies:
        known += study.acquired
    region = patient.regions[0] if patient.regions else None
    age, psa = (region.age, region.psa) if region else (None, None)
    gland = next((study.gland_ml for study in studies if study.gland_ml), None)
    for name, text in (
        ("age", f"{age:g} years" if age is not None else ""),
        ("PSA", f"PSA {measured(psa)} ng/mL" if psa is not None else ""),
        ("PSA density", f"PSA density {psa / gland:.2f} ng/mL²" if psa and gland else ""),
        ("gland volume", f"gland {gland:.0f} mL" if gland else ""),
    ):
        known += [text] if text else []
        unknown += [] if text else [name]
    if not any(study.acquired for study in studies):
        unknown.insert(0, "study date and scanner")
    missing = dict.fromkeys(name for study in studies for name in study.missing)
    known.append(f"missing: {', '.join(missing)}" if missing else "no sequence missing")
    return [*known, *([f"not known: {', '.join(unknown)}"] if unknown else [])]


def _reliable(
    results: Results,
    metrics: Summary,
    regions: Sequence[RegionResult],
    models: Sequence[JsonObject],
    failures: int,
) -> list[tuple[str, bool]]:
    """Say on whom the model was trained, whether these regions are like them, and what failed."""
    said = [(_trained(metrics, models), _simulated(models))]
    unlike = [region for region in regions if region.unlike]
    compared = [region for region in regions if region.compared]
    if results.run.get("kind") == "predict":
        families = dict.fromkeys(
            part.split(":")[0].strip() for region in unlike for part in region.unlike.split(",")
        )
        if unlike:
            text = f"Unlike the training in {', '.join(list(families)[:4])}: "
            said.append((text + _regions([region.roi for region in unlike]) + ".", True))
        elif compared:
            said.append(("These regions are like those of the training.", False))
        else:
            said.append(("Not compared with the training: the model keeps no limits.", True))
    if failures:
        said.append((f"{failures} result{'' if failures == 1 else 's'} failed, see below.", True))
    return said


def _simulated(models: Sequence[JsonObject]) -> bool:
    return any((model.get("training") or {}).get("simulated") for model in models)


def _trained(metrics: Summary, models: Sequence[JsonObject]) -> str:
    """Say who trained the models, and how well the run does where histology is known."""
    parts = []
    for model in models:
        training = model.get("training") or {}
        kind = "simulated " if training.get("simulated") else ""
        on = f", trained on {training['patients']} {kind}patients" if "patients" in training else ""
        parts.append(f"{model['name']}{on}")
    text = (
        f"Model {'; '.join(parts)}."
        if parts
        else ("Trained on the other patients of this run, this one left out.")
    )
    if metrics.histology is not None and isfinite(metrics.histology.auc.lower):
        auc = interval_text(metrics.histology.auc, 2)
        text += f" In this run AUC {auc} against histology."
    return text


def _rest(regions: Iterable[RegionResult]) -> str:
    """Count the regions that have no row."""
    words = [region.decision or "without a decision" for region in regions]
    counted = [f"{words.count(word)} more {word}" for word in dict.fromkeys(words)]
    return f"And {', '.join(counted)}." if counted else ""
