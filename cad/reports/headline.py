"""The first lines of a patient's page: ten questions, answered before anything is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cad.files import JsonObject
from cad.reports.plots import measured, probability_text
from cad.reports.regions import RegionView
from cad.run_folder.results import RegionResult, Results
from cad.run_folder.verdict import PatientVerdict

NEXT = {
    "malignant": "Treat as suspicious, consider as biopsy target.",
    "refer": "Have it read again.",
    "benign": "No suspicion at the site's costs.",
    "": "See what was missing or failed.",
}


@dataclass(frozen=True)
class Answer:
    """Hold one question of a radiologist with its answer.

    Parameters
    ----------
    key : str
        ``worst size where image sure disagree like missing next trained``, or ``readers``.
    title, text : str
        As shown.
    warn : bool
        Whether it asks for caution.
    """

    key: str
    title: str
    text: str
    warn: bool = False


@dataclass(frozen=True)
class Headline:
    """Hold what the page says first.

    Parameters
    ----------
    stated : str
        The patient's decision, as far as nothing contradicts it.
    lead : RegionView or None
        The region that it is about.
    first : list of Answer
        In words and in this order: the tool, the readers, how far they are apart, whether the
        patient is like the training cohort, what is missing, and only then what to do.
    facts : list of Answer
        Size, place, image number, how sure, who trained the model, and the patient's probability.
    gland : list of Answer
        Of the patient: gland volume, PSA and its density, where they are known.
    """

    stated: str
    lead: RegionView | None
    first: list[Answer]
    facts: list[Answer]
    gland: list[Answer]


def headline(
    results: Results,
    said: PatientVerdict,
    views: Sequence[RegionView],
    models: Sequence[JsonObject],
    missing: Iterable[str],
    failures: int,
    gland_ml: float | None,
) -> Headline:
    """Return the answers to the ten questions for one patient."""
    lead = next((view for view in views if view.region is said.lead), None)
    gland = gland_facts(gland_ml, said.lead)
    if lead is None or said.lead is None:
        nothing = Answer("worst", "Tool", "No region of this patient has a probability.", True)
        first = [nothing, _missing(missing, failures, gland_ml), Answer("next", "Next", NEXT[""])]
        return Headline(said.stated, None, first, [], gland)
    first = [
        _tool(lead, results.thresholds_of(lead.region), len(views)),
        _readers(lead.region, lead.verdict.readers),
        _apart(said),
        _like(results, [view.region for view in views], models),
        _missing(missing, failures, gland_ml),
        _next(said),
    ]
    facts = [
        Answer("size", "Size", _size(lead)),
        Answer("where", "Where", lead.where or "not known: no gland mask and no zone"),
        Answer("image", "Image", image_text(lead)),
        _sure(lead),
        Answer("trained", "Trained by", _trained(results, models)),
    ]
    if lead.region.histology:
        grade = f", ISUP {lead.region.isup}" if lead.region.isup else ""
        facts.append(Answer("histology", "Histology", lead.region.histology + grade))
    whole = lead.region.patient_probability
    if whole is not None:
        facts.append(Answer("patient", "Any malignant region", f"P {probability_text(whole)}"))
    return Headline(said.stated, lead, first, facts, gland)


def image_text(view: RegionView) -> str:
    """Say where a viewer finds a region: the archive's numbers, the slice, its place."""
    if view.slice_number is None or view.z_mm is None:
        return "not on the shown slices"
    z = f"z {view.z_mm:.1f} mm".replace("-", "−")
    place = f"slice {view.slice_number}, {z}"
    return f"T2 {view.archive} ({place})" if view.archive else f"T2 {place}"


def gland_facts(gland_ml: float | None, region: RegionResult | None) -> list[Answer]:
    """Return the gland's volume, PSA and its density, as far as they are known."""
    psa = None if region is None else region.psa
    found = []
    if gland_ml:
        found.append(Answer("gland", "Gland", f"{gland_ml:.0f} mL (mask)"))
    if psa is not None:
        found.append(Answer("psa", "PSA", f"{measured(psa)} ng/mL"))
    if psa is not None and gland_ml:
        found.append(Answer("psad", "PSA density", f"{psa / gland_ml:.2f} ng/mL²"))
    return found


def _tool(view: RegionView, limits: tuple[float, float] | None, count: int) -> Answer:
    region = view.region
    others = f", the first of {count} to look at" if count > 1 else ""
    text = f"region {region.roi} has P {probability_text(region.probability)}{others}"
    if limits is not None and region.decision:
        low, high = (probability_text(limit) for limit in limits)
        text += {
            "malignant": f"; above {high} it suspects cancer",
            "refer": f"; it decides below {low} and above {high}",
            "benign": f"; below {low} it suspects none",
        }[region.decision]
    return Answer("worst", "Tool", text + ".")


def _readers(region: RegionResult, mean: float | None) -> Answer:
    if not region.scores or mean is None:
        return Answer("readers", "Readers", "nobody has scored it yet.", True)
    given = ", ".join(f"{reader} {score}" for reader, score in region.scores[:8])
    given += " …" if len(region.scores) > 8 else ""
    scales = set(region.scales.values()) or {"likert5"}
    named = {"pirads": " (PI-RADS)", "likert5": " (of 5)", "percent": " %"}
    scale = named.get(scales.pop(), "") if len(scales) == 1 else ""
    return Answer("readers", "Readers", f"{given}{scale}, as probability {probability_text(mean)}.")


def _apart(said: PatientVerdict) -> Answer:
    """Say how far tool and readers are apart, on the first region and on any that is disputed."""
    disputed = [
        f"region {region.roi}: {'; '.join(found.against)}" for region, found in said.disputed
    ]
    first = said.regions[0][1]
    words = {"": "not known.", "agree": "they agree", "apart": "apart", "far apart": "far apart"}
    text = words[first.apart]
    if first.gap is not None:
        text += f", {first.gap:.2f} of 1."
    if disputed:
        more = f"; {len(disputed) - 3} more regions" if len(disputed) > 3 else ""
        text = f"{text} Against the tool: {'. '.join(disputed[:3])}{more}."
    return Answer("disagree", "How far apart", text, bool(disputed) or first.apart == "far apart")


def _like(
    results: Results, regions: Sequence[RegionResult], models: Sequence[JsonObject]
) -> Answer:
    title = "Like the training"
    if results.run.get("kind") != "predict":
        return Answer("like", title, "one of the training patients, left out in turn.")
    scored = [region for region in regions if region.probability is not None]
    unlike = [region for region in scored if region.unlike]
    simulated = any((model.get("training") or {}).get("simulated") for model in models)
    families = dict.fromkeys(
        part.split(":")[0].strip() for region in unlike for part in region.unlike.split(",")
    )
    if unlike:
        who = ", ".join(region.roi for region in unlike[:5])
        named = ", ".join(list(families)[:4])
        count = f"{len(unlike)} of {len(scored)}"
        text = f"no: region {who} ({count}) is unlike it in {named}."
    elif scored and all(region.compared for region in scored):
        text = "yes, in every family of features."
    else:
        text = "not compared: the model keeps no limits."
    if simulated:
        text += " Those were simulated patients."
    return Answer("like", title, text, bool(unlike) or simulated or text.startswith("not"))


def _missing(missing: Iterable[str], failures: int, gland_ml: float | None) -> Answer:
    parts = list(dict.fromkeys(missing))
    if failures:
        parts.append(f"{failures} result{'' if failures == 1 else 's'} that failed")
    warn = bool(parts)
    if gland_ml is None:
        parts.append("gland mask (so no sector and no density)")
    return Answer("missing", "Missing", (", ".join(parts) or "nothing") + ".", warn)


def _next(said: PatientVerdict) -> Answer:
    """Say what follows: of the first region, and of those of which no decision is stated."""
    lead = said.lead.roi if said.lead else ""
    text = NEXT[said.stated]
    rois = [region.roi for region, _ in said.disputed]
    first = "" if lead in rois else f"Region {lead}: {text[0].lower()}{text[1:]}"
    if not rois:
        return Answer("next", "Next", first or text)
    named = ", ".join(rois[:5]) + (" …" if len(rois) > 5 else "")
    again = f"No decision is stated of region {named}: read again, together."
    return Answer("next", "Next", f"{first} {again}".strip(), True)


def _size(view: RegionView) -> str:
    parts = [view.facts[key] for key in ("diameter", "volume") if key in view.facts]
    return ", ".join(parts) if parts else "not measured"


def _sure(view: RegionView) -> Answer:
    """Say what is left open at 90 % confidence, and what a reader with the tool comes to."""
    plausible = view.region.plausible
    if plausible is None:
        return Answer("sure", "How sure", "not known: the run made no conformal sets")
    text = {
        0: "no: at 90 % it fits neither class",
        1: f"at 90 % only {plausible[0] if plausible else ''} is left",
        2: "no: at 90 % neither benign nor malignant is ruled out",
    }[len(plausible)]
    if view.outline:
        text += f"; P {view.outline}"
    return Answer("sure", "How sure", text, len(plausible) != 1)


def _trained(results: Results, models: Sequence[JsonObject]) -> str:
    said = []
    for model in models:
        training = model.get("training") or {}
        kind = "simulated " if training.get("simulated") else ""
        counts = f", {training['patients']} {kind}patients" if "patients" in training else ""
        said.append(f"{model['name']}{counts}")
    if not said:
        return "this run, on the other patients of the cohort"
    return "; ".join(said)
