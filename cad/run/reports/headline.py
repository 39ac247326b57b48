"""The head of a patient's page: the man in a line, and every lesion worth looking at in a row."""

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from cad.base.files import JsonObject
from cad.base.terms.text import interval_text, side_of_half
from cad.folders.run_folder.results import Man, RegionResult, Results
from cad.learning.evaluation.summary import Summary
from cad.run.reports.plots import measured, probability_text
from cad.run.reports.regions import RegionView
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
    said = [
        Said(
            view,
            where_words(view, views),
            tool_words(view),
            readers_words(view.region, patient.readers),
            action_words(view),
        )
        for view in views
    ]
    of = {id(one.view.region): one for one in said}
    man = results.men.get(patient.patient)
    note = metrics.patient_level.note if metrics.patient_level else ""
    reliable = _reliable(results, metrics, patient, models, man)
    return {
        "man": man_words(patient, man, note),
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
    """Say a region's probability, how far it moves with the outline, and its plausible range.

    The range is that of the calibration (Venn-Abers prediction).

    Parameters
    ----------
    view : RegionView
        The region.
    """
    region = view.region
    if region.probability is None:
        return f"no probability of {view.cancer}"
    text = f"{probability_text(region.probability)} probability of {view.cancer}"
    if region.outline is not None:
        text += f", {view.outline}"
    if region.among is None:
        return text
    low, high = region.among
    span = f"{100 * low:.0f} to {100 * high:.0f}%"
    if low <= region.probability <= high:
        return f"{text}, plausible range {span}"
    # Calibration looks at how regions of such a probability turned out, and may contradict it.
    side = "more" if region.probability < low else "less"
    return f"{text}, probably {side}: {span} by the training's histology"


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


def action_words(view: RegionView) -> str:
    """Say what to do with a region and why; for a region that is referred, also who reads it again.

    Parameters
    ----------
    view : RegionView
        The region.
    """
    region, limits = view.region, view.thresholds
    p = probability_text(region.probability)
    low, high = (probability_text(limit) for limit in limits) if limits else ("", "")
    decided = {
        "malignant": ("Consider as a biopsy target", f"above the site's limit of {high}"),
        "benign": ("Benign", f"below the site's limit of {low}"),
    }
    if region.decision in decided:
        action, side = decided[region.decision]
        why = f": {p} is {side} for a region{_crossed(region, limits)}" if limits else ""
        return f"{action}{why}"
    if region.decision != "refer":
        return "No decision: see what was missing or failed"
    why = "; ".join(region.decision_reason)
    if not why and limits:
        why = f"{p} lies between the site's limits for a region, {low} and {high}"
    return f"Refer to {_whom(region)}: {why}".rstrip(": ")


def _crossed(region: RegionResult, limits: tuple[float, float]) -> str:
    """Say that the plausible range reaches over the limit of a decision."""
    malignant = region.decision == "malignant"
    if region.among is None or not region.among[0] < limits[malignant] < region.among[1]:
        return ""
    return f", but its plausible range reaches {'below' if malignant else 'above'} it"


def _whom(region: RegionResult) -> str:
    return "a joint reading" if len(region.scores) > 1 else "a second radiologist"


def man_words(patient: PatientView, man: Man | None, none: str = "") -> str:
    """Say what follows from the decision on a man, and give his probability with the reasons.

    Parameters
    ----------
    patient : PatientView
        The man's regions and decisions.
    man : Man or None
        Result for the whole man; None where the run has none.
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
    malignant = [region for region in order if region.decision == "malignant"] or [top]
    again = [region for region in order if region.decision == "refer"]
    others = [region for region in again if region not in malignant]
    whom = {_whom(region) for region in again}
    to = whom.pop() if len(whom) == 1 else "another reading"
    follows = {
        "malignant": f": consider {_regions(malignant)} for biopsy"
        + (f"; {_regions(others)} for {to}." if others else "."),
        "refer": f" to {to}: {_regions(again)}." if again else ".",
        "benign": f", with {_regions(again)} to be read again." if again else ": every region is.",
        "": ".",
    }[man.decision if man is not None else patient.decision]
    if man is None or man.probability is None or man.limits is None:
        lacking = " Something is missing or failed, so that benign is not stated."
        text = lacking if patient.decision == "refer" and not again else ""
        return (
            f"{follows}{text}{_firsts(patient, top)} No probability of the whole man is calculated"
            f"{f': {none}' if none else ''}."
        )
    low, high = map(probability_text, man.limits)
    side = {
        "malignant": f"above the site's limit of {high} for a man",
        "benign": f"below the site's limit of {low} for a man",
    }.get(man.decision_model, f"between the site's limits for a man, {low} and {high}")
    but = f", but {'; '.join(man.decision_reason)}" if man.decision_reason else ""
    return (
        f"{follows}{_firsts(patient, top)} "
        "Probability of cancer of ISUP 2 or more anywhere in this man: "
        f"{probability_text(man.probability)}, {side}{but}."
    )


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
        lacks = (
            f" It would also count what is not known here: {man.unknown}." if man.unknown else ""
        )
        counts = "all his regions and how common cancer was in its training"
        text = f"The man's probability counts {counts}, so it may exceed each region's.{lacks}"
        said.append((text, False))
    if failures:
        said.append((f"{failures} result{'' if failures == 1 else 's'} failed, see below.", True))
    return said


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
        on = f", trained on {training['patients']} {kind}patients" if "patients" in training else ""
        parts.append(f"{model['name']}{on}")
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


def _rest(patient: PatientView) -> str:
    """Say in which order the rows stand, and count the regions that have none."""
    named = {"": "without a decision", "refer": "referred"}
    words = [named.get(r.decision, r.decision) for r in patient.ranked if r not in patient.head]
    counted = [f"{words.count(word)} {word}" for word in dict.fromkeys(words)]
    parts = [f"Not shown here and not on the map: {', '.join(counted)}."] if counted else []
    if len(patient.head) > 2:
        parts.append("Order: the tool's first, the readers' first, then by decision and suspicion.")
    return " ".join(parts)
