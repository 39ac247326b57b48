"""The head of a patient's page: the man in a line, and every lesion worth looking at in a row."""

from collections.abc import Sequence
from math import ceil, floor, isfinite
from typing import NamedTuple

from cad.base.files import JsonObject
from cad.base.terms.text import interval_text, side_of_half
from cad.folders.run_folder.results import Man, RegionResult, Results
from cad.learning.evaluation.summary import Summary
from cad.run.reports.plots import benign_limit, malignant_limit, measured, probability_text
from cad.run.reports.regions import RegionView, cancer_words
from cad.run.reports.views import PatientView, StudyView

_SCALES = {"pirads": "PI-RADS", "likert5": "Likert, 1 to 5", "percent": "%"}


class Said(NamedTuple):
    """Hold a region with its sentences, which read right when copied or spoken.

    Parameters
    ----------
    view : RegionView
        The region.
    where : str
        Place, size and image number.
    tool : str
        The probability.
    readers : str
        The readers' scores.
    action : str
        The decision with its reason.
    """

    view: RegionView
    where: str
    tool: str
    readers: str
    action: str


def headline(
    results: Results,
    metrics: Summary,
    patient: PatientView,
    views: Sequence[RegionView],
    studies: Sequence[StudyView],
    models: Sequence[JsonObject],
) -> JsonObject:
    """Return the content of the head of one patient's page.

    Parameters
    ----------
    results : Results
        Content of the run folder.
    metrics : Summary
        Measures of the run.
    patient : PatientView
        The patient.
    views : sequence of RegionView
        All regions of the patient.
    studies : sequence of StudyView
        All studies of the patient.
    models : sequence of dict
        Name and training of each model that scored these regions.

    Returns
    -------
    dict
        ``man`` (str): text after the word of the decision on the man: what to do, the probability
        and why. ``about`` (list of str): facts on study and patient, then what is missing or
        unknown. ``reliable`` (list of (str, bool)): sentences on how far the probabilities can be
        trusted, true where a sentence asks for caution. ``said`` (list of Said): every region.
        ``lesions`` (list of (Said, str)): the regions for the head of the page, each with the text
        ``most suspicious to the tool``, ``to the readers``, to both, or an empty text. ``rest``
        (str): how many other regions there are, and the order of those shown.
    """
    man = results.men.get(patient.patient)
    man_reason = man.decision_reason if man is not None else []
    said = [
        Said(
            view,
            where_words(view, views),
            tool_words(view),
            readers_words(view.region, patient.readers),
            action_words(view, man_reason),
        )
        for view in views
    ]
    of = {id(one.view.region): one for one in said}
    note = metrics.patient_level.note if metrics.patient_level else ""
    reliable = _reliable(results, metrics, patient, models, man)
    return {
        "man": man_words(patient, man, cancer_words(results), _place(results, models), note),
        "about": _about(patient, studies, man),
        "reliable": [*reliable, (_ONE_SIZE, True)] if _one_size(views) else reliable,
        "said": said,
        "lesions": [(of[id(region)], _first_to(patient, region)) for region in patient.head],
        "rest": _rest(patient),
    }


def _first_to(patient: PatientView, region: RegionResult) -> str:
    firsts = {"the tool": patient.top, "the readers": patient.readers_first}
    who = [name for name, first in firsts.items() if first is region]
    return f"most suspicious to {' and '.join(who)}" if who else ""


def where_words(view: RegionView, views: Sequence[RegionView]) -> str:
    """Say where a region lies, how large it is and on which image.

    Parameters
    ----------
    view : RegionView
        The region.
    views : sequence of RegionView
        All regions of the same man; if they have one size, the size is called unknown.
    """
    words = {"diameter": "axial diameter ", "volume": ""}
    size = [word + view.facts[key] for key, word in words.items() if key in view.facts]
    if _one_size(views):
        size[-1] += " as drawn (true size unknown)"
    parts = [view.place or "place not known (no gland mask, no zone)", *size, image_text(view)]
    return ", ".join(parts)


def image_text(view: RegionView) -> str:
    """Say on which T2 image a region is largest: by the archive's numbers, else by slice.

    Parameters
    ----------
    view : RegionView
        The region.
    """
    if view.slice_number is None or view.z_mm is None:
        return "not on the shown slices"
    if view.archive:
        return f"T2 {view.archive}"
    return f"T2 slice {view.slice_number} (z {view.z_mm:.1f} mm)".replace("z -", "z −")


def tool_words(view: RegionView) -> str:
    """Say the probability of cancer in a region with its range, and what readers would say.

    Where no histology taught the model there is no probability of cancer, and the sentence names
    none.

    Parameters
    ----------
    view : RegionView
        The region.
    """
    region = view.region
    if region.probability is None:
        return f"no probability of {view.cancer}"
    belief = f"readers would call it malignant: {probability_text(region.belief)}"
    if region.outline is not None:
        belief += f", {view.outline}"
    if not region.of_cancer:
        return belief
    text = f"{probability_text(region.probability)} probability of {view.cancer}"
    if region.probability_range is not None:
        text += f" ({range_text(region.probability_range)} of many regions so judged)"
    return f"{text}; {belief}"


def range_text(ends: tuple[float, float]) -> str:
    """Say a range of probabilities in whole per cent.

    Parameters
    ----------
    ends : (float, float)
        Lower and upper end.
    """
    low, high = ends
    # Outwards, so that the range holds its number as it is printed.
    return f"{floor(100 * low):d} to {ceil(100 * high):d}%"


def readers_words(region: RegionResult, readers: Sequence[str]) -> str:
    """Say which score each reader gave a region, who gave none, and whether the readers agree.

    Parameters
    ----------
    region : RegionResult
        The region.
    readers : sequence of str
        All readers who scored any region of this man.
    """
    if not region.scores:
        return "not scored by a reader"
    silent = [reader for reader in readers if reader not in dict(region.scores)]
    given = ", ".join(f"{reader} {score}" for reader, score in region.scores)
    scales = set(region.scales.values())
    scale = f" ({_SCALES.get(scales.pop(), '')})" if len(scales) == 1 else ""
    none = f", none by {', '.join(silent)}" if silent else ""
    if not region.readers_agree or region.readers_mean is None:
        return f"{given}{scale}{none}"
    side = side_of_half(region.readers_mean)
    return f"{given}{scale}{none}; the readers {region.readers_agree}, on average {side}"


def action_words(view: RegionView, man_reason: Sequence[str] = ()) -> str:
    """Say what to do with a region and why; for a region that is referred, also who reads it again.

    Parameters
    ----------
    view : RegionView
        The region.
    man_reason : sequence of str
        Reasons that are already given for the man, and are not repeated.
    """
    region, limits = view.region, view.thresholds
    known = _known_words(region)
    if region.decision == "":
        why = "; ".join(region.decision_reason) or "see what was missing or failed"
        if region.decision_reason and region.decision_reason == list(man_reason):
            why = "as for the man"
        return f"{known}; no decision of the tool: {why}" if known else f"No decision: {why}"
    why = _why(region, limits)
    if known:
        return f"{known}; the tool's decision: {region.decision}{f', {why}' if why else ''}"
    if region.decision == "refer":
        return f"Refer to {_whom(region)}: {why}".rstrip(": ")
    action = "Consider as a biopsy target" if region.decision == "malignant" else "Benign"
    if not region.of_cancer:
        action = f"On readers' suspicion, not on histology: {action[0].lower()}{action[1:]}"
    return f"{action}: {why}" if why else action


def _known_words(region: RegionResult) -> str:
    """Say what histology leaves to be done with a region; empty where it does not tell."""
    if region.truth is None:
        return ""
    if region.truth:
        return f"Proven by histology ({region.histology_words}): no target of another biopsy"
    text = f"No such cancer by histology ({region.histology_words})"
    if region.decision_model == "malignant":
        return f"{text}: discuss whether the needle met it"
    return f"{text}: nothing to be done"


def _why(region: RegionResult, limits: tuple[float, float] | None) -> str:
    """Say why a region's decision was made: the reasons against it, else where its number lies."""
    if region.decision == "refer" and region.decision_reason:
        return "; ".join(region.decision_reason)
    if not limits:
        return ""
    low, high = (probability_text(limit) for limit in limits)
    p = probability_text(region.probability)
    number = p if region.of_cancer else f"the readers' suspicion of {p}"
    if region.decision == "refer":
        sides = f"{benign_limit(limits[0])}, {malignant_limit(limits[1])}"
        return f"{number} lies between the site's limits for a region ({sides})"
    side = f"above the site's limit of {high}"
    if region.decision == "benign":
        side = f"below the site's limit of {low}"
    return f"{number} is {side} for a region{_crossed(region, limits)}"


def _crossed(region: RegionResult, limits: tuple[float, float]) -> str:
    """Say that the range reaches over the limit of a decision."""
    if region.probability_range is None:
        return ""
    malignant = region.decision == "malignant"
    limit = limits[1] if malignant else limits[0]
    low, high = region.probability_range
    if not low < limit < high:
        return ""
    side = "below" if malignant else "above"
    return f", but its range reaches {side} it"


def _whom(region: RegionResult) -> str:
    return "a joint reading" if len(region.scores) > 1 else "a second radiologist"


def man_words(
    patient: PatientView, man: Man | None, cancer: str, place: str, none: str = ""
) -> str:
    """Say what follows from the decision on a man, and give his probability with the reasons.

    Parameters
    ----------
    patient : PatientView
        The man's regions and decisions.
    man : Man or None
        Result for the whole man; None where the run has none.
    cancer : str
        What the probability is of, ``cancer of ISUP 2 or more``.
    place : str
        Where in the man: ``in this man``, or ``in the outlined regions of this man``.
    none : str
        Why no man of the run has a probability; said where this man has none.

    Returns
    -------
    str
        Text that continues the word of the decision, so it begins with a colon, comma, space or
        full stop.
    """
    top, head = patient.top, patient.head
    if top is None:
        return ": no region of this man has a probability, see what was missing or failed."
    order = [*head, *(region for region in patient.ranked if region not in head)]
    decision = man.decision if man is not None else patient.decision
    follows = _follows(decision, order)
    reasons = man.decision_reason if man is not None else []
    if reasons:
        follows += f" {_sentence('; '.join(reasons))}"
    elif decision == "refer" and not any(region.decision == "refer" for region in order):
        follows += " Something is missing or failed, so that benign is not stated."
    follows += _firsts(patient, top)
    if man is None or man.probability is None:
        why = f": {none}" if none else ""
        return f"{follows} No probability of the whole man is calculated{why}."
    text = f"{follows} Probability of {cancer} {place}: {probability_text(man.probability)}"
    if man.probability_range is not None:
        text += f" ({range_text(man.probability_range)} of many men so judged)"
    if man.lower is None or decision in ("", "malignant"):
        return f"{text}."
    side = "below" if man.probability < man.lower else "not below"
    limit = probability_text(man.lower)
    return f"{text}, {side} the site's limit of {limit} for a man whose regions all are benign."


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _follows(decision: str, order: Sequence[RegionResult]) -> str:
    """Say what to do with a man's regions, which stand in the order in which to look at them."""
    unproven = [region for region in order if region.truth is None]
    proven = [region for region in order if region.truth]
    targets = [region for region in unproven if region.decision == "malignant"]
    again = [region for region in unproven if region.decision == "refer"]
    whom = {_whom(region) for region in again}
    to = whom.pop() if len(whom) == 1 else "another reading"
    has = "have" if len(proven) > 1 else "has"
    proof = f"{_regions(proven)} {has} cancer by histology" if proven else ""
    if decision == "malignant":
        clauses = []
        if targets:
            clauses.append(f"consider {_regions(targets)} for biopsy")
        if again:
            clauses.append(f"{_regions(again)} for {to}")
        if proof:
            clauses.append(proof)
        if not clauses:
            clauses.append("histology is known of every region and found no such cancer")
        return f": {'; '.join(clauses)}."
    if decision == "refer":
        # His own probability may be what keeps him from benign: then every region is read again.
        read = again or targets or unproven
        after = f"; {proof}" if proof else ""
        if not read:
            return f": histology is known of every region{after}."
        return f" to {to}: {_regions(read)}{after}."
    if decision == "benign":
        return ": every region is."
    return f": {proof}." if proof else "."


def _firsts(patient: PatientView, top: RegionResult) -> str:
    """Name the tool's first region and the readers', where there is more than one region."""
    if len(patient.regions) < 2:
        return ""
    first = f"{_regions([top])} ({probability_text(top.probability)})"
    theirs = patient.readers_first
    if theirs is None or theirs is top:
        return (
            f" Most suspicious to the tool{'' if theirs is None else ' and the readers'}: {first}."
        )
    return f" Most suspicious: {first} to the tool, {_regions([theirs])} to the readers."


def _regions(regions: Sequence[RegionResult]) -> str:
    return f"region{'s' if len(regions) > 1 else ''} {', '.join(r.roi for r in regions)}"


def _about(patient: PatientView, studies: Sequence[StudyView], man: Man | None) -> list[str]:
    """Return study date, scanner, field, age, PSA, its density, gland volume, what is missing."""
    known, unknown = [], []
    for study in studies:
        known += study.acquired
    region = patient.regions[0] if patient.regions else None
    age, psa = (region.age, region.psa) if region else (None, None)
    density = man.psa_density if man else None
    gland = next((study.gland_ml for study in studies if study.gland_ml), None)
    for name, text in (
        ("age", f"{age:g} years" if age is not None else ""),
        ("PSA", f"PSA {measured(psa)} ng/mL" if psa is not None else ""),
        ("PSA density", f"PSA density {density:.2f} ng/mL²" if density is not None else ""),
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
    patient: PatientView,
    models: Sequence[JsonObject],
    man: Man | None,
) -> list[tuple[str, bool]]:
    """Say on whom the model was trained, whether these regions are like them, and what failed."""
    simulated = bool(results.run.get("cohort_simulated"))
    said = [_trained(metrics, models, simulated)]
    if simulated:
        said.insert(0, ("This patient is simulated.", True))
    unlike = [region for region in patient.ranked if region.unlike]
    compared = [region for region in patient.regions if region.compared]
    failures = len(patient.failures)
    if results.run.get("kind") == "predict":
        images = dict.fromkeys(
            part.split()[0].rstrip(":") for region in unlike for part in region.unlike.split(",")
        )
        if unlike:
            text = f"Unlike the training in {' and '.join(images)}: {_regions(unlike)}"
            too = ", and so is the man's probability" if man and man.probability is not None else ""
            said.append((f"{text}, less to be trusted{too}.", True))
        elif compared:
            said.append(("No region is unlike those of the training.", False))
        else:
            said.append(("Not compared with the training: the model keeps no limits.", True))
    if man is not None and man.probability is not None:
        text = "The man's probability counts all his regions: it lies below none of them."
        if man.unknown:
            text += f" Not known of him: {man.unknown}."
        said.append((text, False))
    if not any(region.of_cancer for region in patient.regions):
        said.append((_OF_READERS, True))
    if failures:
        said.append((f"{failures} result{'' if failures == 1 else 's'} failed, see below.", True))
    return said


_OF_READERS = (
    "No histology taught these numbers: they are what readers would say, not a probability of "
    "cancer."
)
_ONE_SIZE = "All outlines have one size, as marks do: how large the lesions are is not known."


def _one_size(views: Sequence[RegionView]) -> bool:
    """Tell whether three outlines or more have one size: lesions differ, marks do not."""
    sizes = {(view.facts.get("diameter"), view.facts.get("volume")) for view in views}
    return len(views) >= 3 and len(sizes) == 1 and None not in sizes.pop()


def _trained(metrics: Summary, models: Sequence[JsonObject], simulated: bool) -> tuple[str, bool]:
    """Say who trained the models and how well the run does; true where either asks for caution."""
    parts = []
    for model in models:
        training = model.get("training") or {}
        kind = "simulated " if training.get("simulated") else ""
        described = str(model["name"])
        if "patients" in training:
            described += f", trained on {training['patients']} {kind}patients"
        stated = (model.get("prevalence") or {}).get("stated")
        if stated is not None:
            described += f", moved to a place where {stated:.3g} of men have cancer"
        parts.append(described)
    text = (
        f"Model {'; '.join(parts)}."
        if parts
        else ("Trained on the other patients of this run, this one left out.")
    )
    caution = any((model.get("training") or {}).get("simulated") for model in models)
    if caution and not simulated:
        text += " Its accuracy in real patients is not known."
    measured = metrics.histology
    if measured is not None and isfinite(measured.auc.lower):
        chance = measured.auc.lower <= 0.5
        text += (
            f" Against histology AUC {interval_text(measured.auc, 2)} (95% interval, "
            f"{measured.n} regions of {measured.patients} patients)"
            f"{': it may be no better than guessing' if chance else ''}."
        )
        caution = caution or chance
    return text, caution


def _place(results: Results, models: Sequence[JsonObject]) -> str:
    """Say where in the man his probability looks for cancer."""
    described = [*models, results.run]
    for model in described:
        joint = model.get("joint")
        if joint:
            return "in this man" if joint.get("leak") else "in the outlined regions of this man"
    return "in this man"


def _rest(patient: PatientView) -> str:
    """Say in which order the rows stand, and count the regions that have none."""
    named = {"": "without a decision", "refer": "referred"}
    words = [named.get(r.decision, r.decision) for r in patient.ranked if r not in patient.head]
    counted = [f"{words.count(word)} {word}" for word in dict.fromkeys(words)]
    parts = [f"Not shown here and not on the map: {', '.join(counted)}."] if counted else []
    if len(patient.head) > 2:
        parts.append("Order: the tool's first, the readers' first, then by decision and suspicion.")
    return " ".join(parts)
