"""The head of a patient's page: the man in a line, and every lesion worth looking at in a row."""

from collections.abc import Sequence
from math import ceil, floor, isfinite
from typing import NamedTuple

from cad.base.files import JsonObject
from cad.base.terms.text import interval_text, side_of_half
from cad.folders.run_folder.results import Man, RegionResult, Results
from cad.learning.evaluation.summary import Summary
from cad.run.reports.plots import benign_limit, malignant_limit, measured, probability_text
from cad.run.reports.regions import RegionView, cancer_words, histology_in
from cad.run.reports.views import PatientView, StudyView
from cad.run.reports.wording import ENGLISH, Wording

_SCALES = {"pirads": "PI-RADS", "likert5": "Likert, 1 to 5", "percent": "%"}
_AGREE = {
    "agree": "the readers agree, on average {side}",
    "differ": "the readers differ, on average {side}",
    "are split": "the readers are split, on average {side}",
}


class Said(NamedTuple):
    """Hold a region with its sentences, which read right when copied or spoken.

    Parameters
    ----------
    view : RegionView
        The region.
    where : str
        Place, size and image number.
    tool : str
        The probability of cancer.
    belief : str
        What readers would say, by the tool; empty without a result.
    readers : str
        The readers' scores.
    action : str
        The decision with its reason.
    """

    view: RegionView
    where: str
    tool: str
    belief: str
    readers: str
    action: str


def headline(
    results: Results,
    metrics: Summary,
    patient: PatientView,
    views: Sequence[RegionView],
    studies: Sequence[StudyView],
    models: Sequence[JsonObject],
    words: Wording = ENGLISH,
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
    words : Wording
        The language; the views are in the same.

    Returns
    -------
    dict
        ``known`` (str): what histology says where it is known of every region, before the word of
        the decision; else empty. ``man`` (str): text after that word: what to do, the probability
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
            where_words(view, views, words),
            tool_words(view, words),
            belief_words(view, words),
            readers_words(view.region, patient.readers, words),
            action_words(view, man_reason, words),
        )
        for view in views
    ]
    of = {id(one.view.region): one for one in said}
    note = metrics.patient_level.note if metrics.patient_level else ""
    reliable = _reliable(results, metrics, patient, models, man, words)
    limits = {view.thresholds for view in views if view.region.decision and view.thresholds}
    for low, high in sorted(limits):
        text = words.say(
            "The site's limits for a region: {benign}, {malignant}.",
            benign=_benign_limit(low, words),
            malignant=_malignant_limit(high, words),
        )
        reliable.append((text, False))
    marks = [view.region for view in views if view.mark]
    if marks:
        text = words.count(
            len(marks),
            "{regions} is a mark, not a drawn lesion: what was measured is of the mark.",
            "{regions} are marks, not drawn lesions: what was measured is of the marks.",
            regions=upper_first(_regions(marks, words)),
        )
        reliable.append((text, True))
    elif _one_size(views):
        reliable.append((words.say(_ONE_SIZE), True))
    compared = results.earlier.get(patient.patient, [])
    latest = compared[0].study_id if compared else ""
    cancer = cancer_words(results, words)
    place = _place(results, models, words)
    return {
        "known": known_words(patient, cancer, words),
        "man": man_words(patient, man, cancer, place, note, words),
        "about": _about(patient, studies, man, latest, words),
        "reliable": reliable,
        "said": said,
        "lesions": [(of[id(region)], _first_to(patient, region, words)) for region in patient.head],
        "rest": _rest(patient, words),
    }


def _first_to(patient: PatientView, region: RegionResult, words: Wording) -> str:
    of_tool = patient.top is region
    of_readers = patient.readers_first is region
    if of_tool and of_readers:
        return words.say("most suspicious to the tool and the readers")
    if of_tool:
        return words.say("most suspicious to the tool")
    if of_readers:
        return words.say("most suspicious to the readers")
    return ""


def where_words(view: RegionView, views: Sequence[RegionView], words: Wording = ENGLISH) -> str:
    """Say where a region lies, how large it is and on which image.

    Parameters
    ----------
    view : RegionView
        The region.
    views : sequence of RegionView
        All regions of the same man; if they have one size, it is called that of a mark.
    words : Wording
        The language.
    """
    size = []
    if "diameter" in view.facts:
        size.append(words.say("axial diameter {diameter}", diameter=view.facts["diameter"]))
    if "volume" in view.facts:
        size.append(view.facts["volume"])
    if size and (view.mark or _one_size(views)):
        of_mark = "size of the mark: {size} (the lesion's size is not known)"
        size = [words.say(of_mark, size=", ".join(size))]
    unknown = words.say("place not known (no gland mask, no zone)")
    return ", ".join([view.place or unknown, *size, image_text(view, words)])


def image_text(view: RegionView, words: Wording = ENGLISH) -> str:
    """Say on which T2 image a region is largest: by the archive's numbers, else by slice.

    Parameters
    ----------
    view : RegionView
        The region.
    words : Wording
        The language.
    """
    if view.slice_number is None or view.z_mm is None:
        return words.say("not on the shown slices")
    if view.archive:
        return f"T2 {view.archive}"
    height = f"{view.z_mm:.1f}".replace("-", "−")
    number = str(view.slice_number)
    text = words.say("T2 slice {number} (z {height} mm)", number=number, height=height)
    # A minus alone at the begin of a line would be read as a dash.
    return text.replace(f"z {height} mm", f"z\u00a0{height}\u00a0mm")


def tool_words(view: RegionView, words: Wording = ENGLISH) -> str:
    """Say the probability of cancer in a region with its range, or that there is none.

    Parameters
    ----------
    view : RegionView
        The region.
    words : Wording
        The language.
    """
    region = view.region
    if region.probability is None:
        return words.say("not scored by the tool")
    if not region.of_cancer:
        return words.say("no probability of {cancer}", cancer=view.cancer)
    number = probability_text(region.probability)
    if region.probability_range is None:
        return words.say(
            "{probability} probability of {cancer}", probability=number, cancer=view.cancer
        )
    return words.say(
        "{probability} probability of {cancer} ({range} of many regions so judged)",
        probability=number,
        cancer=view.cancer,
        range=range_text(region.probability_range, words),
    )


def belief_words(view: RegionView, words: Wording = ENGLISH) -> str:
    """Say what readers would say of a region by the tool's estimate; empty without a result.

    Parameters
    ----------
    view : RegionView
        The region.
    words : Wording
        The language.
    """
    if view.region.probability is None:
        return ""
    belief = words.say(
        "the tool's estimate of what readers would say: {belief} malignant",
        belief=probability_text(view.region.belief),
    )
    return f"{belief}, {view.outline}" if view.region.outline is not None else belief


def range_text(ends: tuple[float, float], words: Wording = ENGLISH) -> str:
    """Say a range of probabilities in whole per cent.

    Parameters
    ----------
    ends : (float, float)
        Lower and upper end.
    words : Wording
        The language.
    """
    low, high = ends
    # Outwards, so that the range holds its number as it is printed.
    return words.say("{low} to {high}%", low=f"{floor(100 * low):d}", high=f"{ceil(100 * high):d}")


def readers_words(region: RegionResult, readers: Sequence[str], words: Wording = ENGLISH) -> str:
    """Say which score each reader gave a region, who gave none, and whether the readers agree.

    Parameters
    ----------
    region : RegionResult
        The region.
    readers : sequence of str
        All readers who scored any region of this man.
    words : Wording
        The language.
    """
    if not region.scores:
        return words.say("not scored by a reader")
    silent = [reader for reader in readers if reader not in dict(region.scores)]
    disagrees = ""
    if _estimate_disagrees(region):
        estimate = words.say(
            "the tool's estimate of the readers ({belief}) disagrees with them",
            belief=probability_text(region.belief),
        )
        disagrees = f"; {estimate}"
    text = ", ".join(f"{reader} {score}" for reader, score in region.scores)
    scales = set(region.scales.values())
    if len(scales) == 1:
        name = _SCALES.get(scales.pop(), "")
        text += f" ({words.say(name) if name == _SCALES['likert5'] else name})"
    if silent:
        text += f", {words.say('none by {readers}', readers=', '.join(silent))}"
    if not region.readers_agree or region.readers_mean is None:
        return f"{text}{disagrees}"
    side = words.say(side_of_half(region.readers_mean))
    return f"{text}; {words.say(_AGREE[region.readers_agree], side=side)}{disagrees}"


def _estimate_disagrees(region: RegionResult) -> bool:
    """Tell whether the tool's estimate of what readers say lies on the other side of their mean."""
    if region.belief is None or region.readers_mean is None:
        return False
    sides = {side_of_half(region.belief), side_of_half(region.readers_mean)}
    return region.apart == "far apart" or sides == {"suspicious", "not suspicious"}


def action_words(view: RegionView, man_reason: Sequence[str] = (), words: Wording = ENGLISH) -> str:
    """Say what to do with a region and why; for a region that is referred, also who reads it again.

    Parameters
    ----------
    view : RegionView
        The region.
    man_reason : sequence of str
        Reasons that are already given for the man, and are not repeated.
    words : Wording
        The language.
    """
    region, limits = view.region, view.thresholds
    histology = _known_words(region, words)
    if region.decision == "":
        why = _reasons(region.decision_reason, words)
        if not why:
            why = view.unmeasured or words.say("see what was missing or failed")
        if region.decision_reason and region.decision_reason == list(man_reason):
            why = ""
        if histology and not why:
            alone = words.say("no decision of the tool, for the reason given above")
            return f"{histology}; {alone}"
        if not why:
            return words.say("No decision, for the reason given above")
        if histology:
            return f"{histology}; {words.say('no decision of the tool: {reason}', reason=why)}"
        return words.say("No decision: {reason}", reason=why)
    why = _why(region, limits, words)
    if histology:
        by_tool = region.decision_before_histology
        if by_tool == region.decision_model != region.decision:
            # "Refer, histology found it benign" would repeat histology as if it were the tool's.
            decision = words.say(region.decision_model)
            alone = words.say("the tool alone, without histology: {decision}", decision=decision)
            return f"{histology}; {alone}"
        decision = words.say(region.decision)
        decided = words.say("the tool's decision: {decision}", decision=decision)
        return f"{histology}; {decided}, {why}" if why else f"{histology}; {decided}"
    if region.decision == "refer":
        several = len(region.scores) > 1
        sentence = "Refer to a joint reading" if several else "Refer to a second radiologist"
    elif region.decision == "malignant":
        sentence = "Consider as a biopsy target"
        if not region.of_cancer:
            sentence = "On readers' suspicion, not on histology: consider as a biopsy target"
    else:
        sentence = "Benign"
        if not region.of_cancer:
            sentence = "On readers' suspicion, not on histology: benign"
    return f"{words.say(sentence)}: {why}" if why else words.say(sentence)


def _reasons(reasons: Sequence[str], words: Wording) -> str:
    """Return the reasons that the run's tables hold, in the language of the page."""
    return "; ".join(words.again(reason) for reason in reasons)


def _known_words(region: RegionResult, words: Wording) -> str:
    """Say what histology leaves to be done with a region; empty where it does not tell."""
    if region.truth is None:
        return ""
    histology = histology_in(region, words)
    if region.truth:
        return words.say(
            "Proven by histology ({histology}): no target of another biopsy", histology=histology
        )
    if _perhaps_missed(region):
        return words.say(
            "No such cancer by histology ({histology}): discuss whether the needle met it",
            histology=histology,
        )
    return words.say(
        "No such cancer by histology ({histology}): no target of a biopsy", histology=histology
    )


def _perhaps_missed(region: RegionResult) -> bool:
    """Tell whether the tool suspects cancer where the needle met none."""
    return region.truth is False and region.decision_model == "malignant"


def known_words(patient: PatientView, cancer: str, words: Wording = ENGLISH) -> str:
    """Say what histology found where it is known of all a man's regions; else return an empty text.

    Parameters
    ----------
    patient : PatientView
        The man.
    cancer : str
        What histology looked for, ``cancer of ISUP 2 or more``.
    words : Wording
        The language.
    """
    if not patient.histology_known:
        return ""
    proven = []
    for region in patient.ranked:
        if region.truth:
            proven.append(f"{region.roi} ({histology_in(region, words)})")
    names = ", ".join(proven)
    regions = words.count(len(proven), "region {names}", "regions {names}", names=names)
    if not proven:
        sentence = "Histology is known of every region: no {cancer}."
        text = words.say(sentence, cancer=cancer)
    elif len(proven) == len(patient.regions):
        sentence = "Proven by histology, known of every region: {cancer} in {regions}."
        text = words.say(sentence, cancer=cancer, regions=regions)
    else:
        sentence = "Proven by histology, known of every region: {cancer} in {regions}, in no other."
        text = words.say(sentence, cancer=cancer, regions=regions)
    if proven:
        text += f" {words.say('This is what the board discusses.')}"
    missed = [region for region in patient.ranked if _perhaps_missed(region)]
    if not missed:
        return f"{text} {words.say('Nothing is to be referred.')}"
    sentence = "Nothing is to be referred; discuss whether the needle met {regions}."
    return f"{text} {words.say(sentence, regions=_regions(missed, words))}"


_WOULD = {
    "benign": "{number} is below the site's limit of {limit} for benign, but: {reasons}",
    "malignant": "{number} is above the site's limit of {limit} for malignant, but: {reasons}",
}
"""What the number alone would decide, before the reasons against it."""


def _why(region: RegionResult, limits: tuple[float, float] | None, words: Wording) -> str:
    """Say why a region's decision was made: the reasons against it, else where its number lies."""
    against = region.decision == "refer" and bool(region.decision_reason)
    if against and (not limits or region.decision_model not in _WOULD):
        return _reasons(region.decision_reason, words)
    if not limits:
        return ""
    low, high = (probability_text(limit) for limit in limits)
    number = probability_text(region.probability)
    if not region.of_cancer:
        number = words.say("the readers' suspicion of {number}", number=number)
    if against:
        return words.say(
            _WOULD[region.decision_model],
            number=number,
            limit=low if region.decision_model == "benign" else high,
            reasons=_reasons(region.decision_reason, words),
        )
    if region.decision == "refer":
        return words.say(
            "{number} lies between the site's limits for a region ({benign}, {malignant})",
            number=number,
            benign=_benign_limit(limits[0], words),
            malignant=_malignant_limit(limits[1], words),
        )
    crossed = _crosses(region, limits)
    if region.decision == "benign":
        sentence = "{number} is below the site's limit of {limit} for a region"
        if crossed:
            sentence += ", but its range reaches above it"
        return words.say(sentence, number=number, limit=low)
    sentence = "{number} is above the site's limit of {limit} for a region"
    if crossed:
        sentence += ", but its range reaches below it"
    return words.say(sentence, number=number, limit=high)


def _benign_limit(threshold: float, words: Wording) -> str:
    """Say the lower limit as :func:`cad.run.reports.plots.benign_limit` does."""
    if threshold <= 0:
        return words.say(benign_limit(threshold))
    return words.say("benign below {limit}", limit=probability_text(threshold))


def _malignant_limit(threshold: float, words: Wording) -> str:
    """Say the upper limit as :func:`cad.run.reports.plots.malignant_limit` does."""
    if threshold >= 1:
        return words.say(malignant_limit(threshold))
    return words.say("malignant above {limit}", limit=probability_text(threshold))


def _crosses(region: RegionResult, limits: tuple[float, float]) -> bool:
    """Tell whether the range reaches over the limit of a decision."""
    if region.probability_range is None:
        return False
    limit = limits[1] if region.decision == "malignant" else limits[0]
    low, high = region.probability_range
    return low < limit < high


def man_words(
    patient: PatientView,
    man: Man | None,
    cancer: str,
    place: str,
    none: str = "",
    words: Wording = ENGLISH,
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
    words : Wording
        The language.

    Returns
    -------
    str
        Text that continues the word of the decision, so it begins with a colon, comma, space or
        full stop.
    """
    top, head = patient.top, patient.head
    if top is None:
        why = words.say("no region of this man has a probability, see what was missing or failed.")
        return f": {why}"
    order = [*head, *(region for region in patient.ranked if region not in head)]
    decision = man.decision if man is not None else patient.decision
    reasons = man.decision_reason if man is not None else []
    histology_known = patient.histology_known
    if histology_known:
        # What follows is said by histology, before the word of the decision.
        sentences = [f": {_reasons(reasons, words)}." if reasons else "."]
    else:
        sentences = [_follows(decision, order, words)]
    if reasons and not histology_known:
        sentences.append(_sentence(_reasons(reasons, words)))
    elif decision == "refer" and not any(region.decision == "refer" for region in order):
        sentences.append(words.say("Something is missing or failed, so that benign is not stated."))
    if len(patient.regions) > 1:
        sentences.append(_firsts(patient, top, words))
    if not decision:
        sentences += _disagreements(patient, words)
    sentences += _unscored(patient, words)
    if man is None or man.probability is None:
        if none:
            sentences.append(
                words.say(
                    "No probability of the whole man is calculated: {reason}.",
                    reason=words.again(none),
                )
            )
        else:
            sentences.append(words.say("No probability of the whole man is calculated."))
        return " ".join(sentences)
    text = words.say(
        "Probability of {cancer} {place}: {probability}",
        cancer=cancer,
        place=place,
        probability=probability_text(man.probability),
    )
    if man.probability_range is not None:
        ends = range_text(man.probability_range, words)
        text += f" ({words.say('{range} of many men so judged', range=ends)})"
    if man.lower is not None and decision not in ("", "malignant") and not histology_known:
        sentence = (
            "below the site's limit of {limit} for a man whose regions all are benign"
            if man.probability < man.lower
            else "not below the site's limit of {limit} for a man whose regions all are benign"
        )
        text += f", {words.say(sentence, limit=probability_text(man.lower))}"
    return " ".join([*sentences, f"{text}."])


def upper_first(text: str) -> str:
    """Return a text with a large first letter.

    Parameters
    ----------
    text : str
        At least one letter.
    """
    return text[0].upper() + text[1:]


def _sentence(text: str) -> str:
    return f"{upper_first(text)}."


def _follows(decision: str, order: Sequence[RegionResult], words: Wording) -> str:
    """Say what to do with a man's regions, which stand in the order in which to look at them."""
    unproven = [region for region in order if region.truth is None]
    proven = [region for region in order if region.truth]
    targets = [region for region in unproven if region.decision == "malignant"]
    again = [region for region in unproven if region.decision == "refer"]
    proof = ""
    if proven:
        proof = words.count(
            len(proven),
            "{regions} has cancer by histology",
            "{regions} have cancer by histology",
            regions=_regions(proven, words),
        )
    if decision == "malignant":
        clauses = []
        if targets:
            named = _regions(targets, words)
            clauses.append(words.say("consider {regions} for biopsy", regions=named))
        if again:
            named = _regions(again, words)
            clauses.append(words.say(_READ_AGAIN[_whom(again)], regions=named))
        if proof:
            clauses.append(proof)
        return f": {'; '.join(clauses)}."
    if decision == "refer":
        # Where only his own probability keeps him from benign, every region is read again.
        read = again or targets or unproven
        after = f"; {proof}" if proof else ""
        to = words.say(_WHOM[_whom(again)])
        return f" {to}: {_regions(read, words)}{after}."
    if decision == "benign":
        return f": {words.say('every region is.')}"
    # The sheet answers what to do also where the tool decides nothing.
    alone = words.say("proceed as without the tool")
    return f": {proof}; {alone}." if proof else f": {alone}."


_WHOM = {
    "joint": "to a joint reading",
    "second": "to a second radiologist",
    "other": "to another reading",
}
_READ_AGAIN = {
    "joint": "{regions} for a joint reading",
    "second": "{regions} for a second radiologist",
    "other": "{regions} for another reading",
}


def _whom(regions: Sequence[RegionResult]) -> str:
    """Return who reads regions again: those who read them, jointly, or somebody for the first."""
    whom = {"joint" if len(region.scores) > 1 else "second" for region in regions}
    return whom.pop() if len(whom) == 1 else "other"


def _firsts(patient: PatientView, top: RegionResult, words: Wording) -> str:
    """Name the tool's first region and the readers'."""
    number = probability_text(top.probability)
    first = f"{_regions([top], words)} ({number})"
    theirs = patient.readers_first
    if theirs is None:
        return words.say("Most suspicious to the tool: {first}.", first=first)
    if theirs is top:
        return words.say("Most suspicious to the tool and the readers: {first}.", first=first)
    return words.say(
        "Most suspicious: {first} to the tool, {second} to the readers.",
        first=first,
        second=_regions([theirs], words),
    )


def _disagreements(patient: PatientView, words: Wording) -> list[str]:
    """Name the regions on which tool and readers disagree, where no decision says so."""
    against = [region for region in patient.ranked if _estimate_disagrees(region)]
    if not against:
        return []
    named = _regions(against, words)
    return [words.say("Tool and readers disagree on {regions}.", regions=named)]


def _unscored(patient: PatientView, words: Wording) -> list[str]:
    """Name the regions that the man's number leaves out, because the tool gave them none."""
    without = [region for region in patient.current if region.probability is None]
    if not without:
        return []
    named = _regions(without, words)
    return [words.say("Not scored, and not in the man's number: {regions}.", regions=named)]


def _regions(regions: Sequence[RegionResult], words: Wording) -> str:
    names = ", ".join(region.roi for region in regions)
    return words.count(len(regions), "region {names}", "regions {names}", names=names)


def _about(
    patient: PatientView,
    studies: Sequence[StudyView],
    man: Man | None,
    latest: str,
    words: Wording,
) -> list[str]:
    """Return study date, scanner, field, age, PSA, its density, gland volume, what is missing."""
    stated, unknown = [], []
    for study in studies:
        stated += [words.again(text) for text in study.acquired]
    region = patient.regions[0] if patient.regions else None
    age, psa = (region.age, region.psa) if region else (None, None)
    density = man.psa_density if man else None
    # Of several studies the latest counts, where the run says which it is.
    stated_glands = [study for study in studies if study.gland_ml]
    stated_glands.sort(key=lambda study: study.study != latest)
    gland = stated_glands[0].gland_ml if stated_glands else None
    if age is None:
        unknown.append(words.say("age"))
    else:
        stated.append(words.say("{age} years", age=f"{age:g}"))
    if psa is None:
        unknown.append("PSA")
    else:
        stated.append(f"PSA {measured(psa)} ng/mL")
    if density is None:
        unknown.append(words.say("PSA density"))
    else:
        stated.append(words.say("PSA density {density} ng/mL²", density=f"{density:.2f}"))
    if gland:
        stated.append(words.say("gland {volume} mL", volume=f"{gland:.0f}"))
    else:
        unknown.append(words.say("gland volume"))
    if not any(study.acquired for study in studies):
        unknown.insert(0, words.say("study date and scanner"))
    missing = dict.fromkeys(name for study in studies for name in study.missing)
    if missing:
        stated.append(words.say("missing: {names}", names=", ".join(missing)))
    else:
        stated.append(words.say("no sequence missing"))
    if unknown:
        stated.append(words.say("not known: {names}", names=", ".join(unknown)))
    return stated


def _reliable(
    results: Results,
    metrics: Summary,
    patient: PatientView,
    models: Sequence[JsonObject],
    man: Man | None,
    words: Wording,
) -> list[tuple[str, bool]]:
    """Say on whom the model was trained, whether these regions are like them, and what failed."""
    simulated = bool(results.run.get("cohort_simulated"))
    sentences = [_trained(metrics, models, simulated, words)]
    if simulated:
        sentences.insert(0, (words.say("This patient is simulated."), True))
    unlike = [region for region in patient.ranked if region.unlike]
    compared = [region for region in patient.regions if region.compared]
    failures = len(patient.failures)
    if results.run.get("kind") == "predict":
        if unlike:
            sentence = "Unlike the training in {images}: {regions}, less to be trusted."
            if man and man.probability is not None:
                sentence = (
                    "Unlike the training in {images}: {regions}, less to be trusted, and so is the "
                    "man's probability."
                )
            named = unlike_images(unlike, words)
            regions = _regions(unlike, words)
            sentences.append((words.say(sentence, images=named, regions=regions), True))
        elif compared:
            sentences.append((words.say("No region is unlike those of the training."), False))
        else:
            sentences.append(
                (words.say("Not compared with the training: the model keeps no limits."), True)
            )
    if man is not None and man.probability is not None:
        text = words.say(
            "The man's number is of cancer in any of his outlined regions, so it is never below "
            "that of one region."
        )
        if man.unknown:
            unknown = ", ".join(words.again(part) for part in man.unknown.split(", "))
            text += f" {words.say('Not known of him: {unknown}.', unknown=unknown)}"
        sentences.append((text, False))
    if not any(region.of_cancer for region in patient.regions):
        sentences.append((words.say(_OF_READERS), True))
    if failures:
        text = words.count(
            failures,
            "{number} result failed, see below.",
            "{number} results failed, see below.",
            number=str(failures),
        )
        sentences.append((text, True))
    return sentences


def unlike_images(regions: Sequence[RegionResult], words: Wording) -> str:
    """Name the images in which regions are unlike those of the training.

    Parameters
    ----------
    regions : sequence of RegionResult
        Regions that are unlike them.
    words : Wording
        The language.
    """
    images = {}
    for region in regions:
        for group in region.unlike.split(","):
            images[group.split()[0].rstrip(":")] = True
    return words.say(" and ").join(images)


_OF_READERS = (
    "No histology taught these numbers: they are what readers would say, not a probability of "
    "cancer."
)
_ONE_SIZE = "All outlines have one size, as marks do: how large the lesions are is not known."


def _one_size(views: Sequence[RegionView]) -> bool:
    """Tell whether three outlines or more have one size: lesions differ, marks do not."""
    sizes = {(view.facts.get("diameter"), view.facts.get("volume")) for view in views}
    return len(views) >= 3 and len(sizes) == 1 and None not in sizes.pop()


def _trained(
    metrics: Summary, models: Sequence[JsonObject], simulated: bool, words: Wording
) -> tuple[str, bool]:
    """Say who trained the models and how well the run does; true where either asks for caution."""
    parts = []
    for model in models:
        training = model.get("training") or {}
        described = str(model["name"])
        if "patients" in training:
            sentence = "{name}, trained on {patients} patients"
            if training.get("simulated"):
                sentence = "{name}, trained on {patients} simulated patients"
            described = words.say(sentence, name=described, patients=str(training["patients"]))
        stated = (model.get("prevalence") or {}).get("stated")
        if stated is not None:
            moved = words.say(
                "moved to a place where {share} of men have cancer", share=f"{stated:.3g}"
            )
            described += f", {moved}"
        parts.append(described)
    if parts:
        text = words.say("Model {models}.", models="; ".join(parts))
    else:
        text = words.say("Trained on the other patients of this run, this one left out.")
    caution = any((model.get("training") or {}).get("simulated") for model in models)
    if caution and not simulated:
        text += f" {words.say('Its accuracy and its ranges in real patients are not known.')}"
    histology = metrics.histology
    measured_here = histology is not None and isfinite(histology.auc.lower)
    if not measured_here and (simulated or not caution):
        # What held at the training says something of men like those of the training only.
        text += f" {_at_training(metrics, models, words)}"
    if histology is not None and measured_here:
        chance = histology.auc.lower <= 0.5
        sentence = (
            "Against histology AUC {auc} (95% interval, {regions} regions of {patients} patients)."
        )
        if chance:
            sentence = (
                "Against histology AUC {auc} (95% interval, {regions} regions of {patients} "
                "patients): it may be no better than guessing."
            )
        counted = words.say(
            sentence,
            auc=interval_text(histology.auc, 2),
            regions=str(histology.n),
            patients=str(histology.patients),
        )
        text += f" {counted}"
        caution = caution or chance
    return text, caution


def _at_training(metrics: Summary, models: Sequence[JsonObject], words: Wording) -> str:
    """Say how right the decisions were at the training, where no histology of this run tells."""
    sentences = []
    for model in models:
        point = metrics.at_training.get(str(model["name"]))
        # A site that sets its own limits has other shares.
        if point is None or list(point.thresholds) != model.get("thresholds"):
            continue
        benign = point.benign.observed.value
        malignant = point.malignant.observed.value
        if isfinite(benign) and isfinite(malignant):
            sentences.append(
                words.say(
                    "At its training {benign} of regions below the limit for benign had no such "
                    "cancer, {malignant} of those above the limit for malignant had it.",
                    benign=probability_text(benign),
                    malignant=probability_text(malignant),
                )
            )
    sentences.append(words.say("How accurate it is in the patients of this run is not known."))
    return " ".join(sentences)


def _place(results: Results, models: Sequence[JsonObject], words: Wording) -> str:
    """Say where in the man his probability looks for cancer."""
    described = [*models, results.run]
    for model in described:
        joint = model.get("joint")
        if joint and not joint.get("leak"):
            return words.say("in the outlined regions of this man")
        if joint:
            break
    return words.say("in this man")


def _rest(patient: PatientView, words: Wording) -> str:
    """Say in which order the rows stand, and name the regions that have none."""
    named = {
        "": "{regions} without a decision",
        "refer": "{regions} referred",
        "malignant": "{regions} malignant",
        "benign": "{regions} benign",
    }
    by_decision: dict[str, list[str]] = {}
    for region in patient.ranked:
        if region not in patient.head:
            by_decision.setdefault(region.decision, []).append(region.roi)
    groups = []
    for decision, rois in by_decision.items():
        groups.append(words.say(named[decision], regions=", ".join(rois)))
    parts = []
    if groups:
        listed = "; ".join(groups)
        parts.append(words.say("Regions without a card of their own: {regions}.", regions=listed))
    if len(patient.head) > 2:
        parts.append(
            words.say(
                "Order: the tool's first, the readers' first, proven cancer, then by decision and "
                "suspicion."
            )
        )
    return " ".join(parts)
