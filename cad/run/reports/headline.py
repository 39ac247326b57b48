"""Make the head of a patient's page: a line on the man, and a row for each lesion to look at."""

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


class RegionSentences(NamedTuple):
    """Hold a region and the sentences about it, which can be copied or read aloud as they are.

    Parameters
    ----------
    view : RegionView
        The region.
    where : str
        Where the region lies, its size, and the number of an image that shows it.
    tool : str
        The probability of cancer.
    belief : str
        The tool's (the model's) estimate of what readers would say; empty without a result.
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
        Name of each model that scored these regions, and the patients that it was trained on.
    words : Wording
        The language, in which the texts of ``views`` and ``studies`` are written, too.

    Returns
    -------
    dict
        A dictionary with these keys:

        - ``histology`` (str): text before the word of the decision, such as "malignant". It is the
          result of histology if histology is known of every region, else empty.
        - ``man`` (str): text after the word of the decision. It says what to do, the probability
          and the reasons.
        - ``about`` (list of str): facts on study and patient, then missing images and unknown
          facts.
        - ``reliable`` (list of (str, bool)): sentences on how far the probabilities can be trusted;
          the bool is True if the sentence asks for caution.
        - ``sentences`` (list of RegionSentences): the sentences about every region.
        - ``lesions`` (list of (RegionSentences, str)): the regions for the head of the page. The
          text is ``most suspicious to the tool``, ``most suspicious to the readers``, names both,
          or is empty.
        - ``other_regions`` (str): names of the regions that are not in the head, and the order of
          the regions in the head.
    """
    man = results.men.get(patient.patient)
    man_reason = man.decision_reason if man is not None else []
    sentences = []
    sentences_of: dict[int, RegionSentences] = {}
    for view in views:
        of_region = RegionSentences(
            view=view,
            where=where_words(view, views, words),
            tool=tool_words(view, words),
            belief=belief_words(view, words),
            readers=readers_words(view.region, patient.readers, words),
            action=action_words(view, man_reason, words),
        )
        sentences.append(of_region)
        sentences_of[id(view.region)] = of_region
    lesions = []
    for region in patient.head:
        lesions.append((sentences_of[id(region)], _first_to(patient, region, words)))

    # How far the probabilities can be trusted, the limits of the decisions, and whether regions are
    # marks. Models may have different limits: each pair of limits is stated once.
    reliable = _reliable(results, metrics, patient, models, man, words)
    limits = set()
    for view in views:
        if view.region.decision and view.thresholds:
            limits.add(view.thresholds)
    for low, high in sorted(limits):
        text = words.say(
            "The site's limits for a region: {benign}, {malignant}.",
            benign=_benign_sentence(low, words),
            malignant=_malignant_sentence(high, words),
        )
        reliable.append((text, False))
    marks = [view.region for view in views if view.mark]
    if marks:
        text = words.count(
            len(marks),
            "{regions} is a mark, not a drawn lesion: the measurements are of the mark.",
            "{regions} are marks, not drawn lesions: the measurements are of the marks.",
            regions=upper_first(_names_of_regions(marks, words)),
        )
        reliable.append((text, True))
    elif _one_size(views):
        # Nothing calls these regions marks, but their equal size suggests it.
        reliable.append((words.say(_ONE_SIZE), True))

    # A run that compared two studies of the man knows which is the latest.
    compared = results.earlier.get(patient.patient, [])
    latest = compared[0].study_id if compared else ""
    cancer = cancer_words(results, words)
    place = _where_cancer_is(results, models, words)
    note = metrics.patient_level.note if metrics.patient_level else ""
    return {
        "histology": known_words(patient, cancer, words),
        "man": man_words(patient, man, cancer, place, note, words),
        "about": _about(patient, studies, man, latest, words),
        "reliable": reliable,
        "sentences": sentences,
        "lesions": lesions,
        "other_regions": _other_regions(patient, words),
    }


def _first_to(patient: PatientView, region: RegionResult, words: Wording) -> str:
    """Say whether a region is the most suspicious one to the tool, to the readers or to both.

    The text is empty for any other region.
    """
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
        All regions of the same man. If they are three or more and all have the same size, they are
        taken for marks that somebody set, and not for drawn lesions. The text then calls the size
        of a region the size of the mark. It also does so if ``view`` itself is known to be a mark.
    words : Wording
        Language of the text.

    Returns
    -------
    str
        Place, size and image of the region, separated by commas. A text says so where the place is
        not known; the size is left out where it was not measured.
    """
    sizes = []
    if "diameter" in view.facts:
        sizes.append(words.say("axial diameter {diameter}", diameter=view.facts["diameter"]))
    if "volume" in view.facts:
        sizes.append(view.facts["volume"])
    if sizes and (view.mark or _one_size(views)):
        of_mark = "size of the mark: {size} (the lesion's size is not known)"
        sizes = [words.say(of_mark, size=", ".join(sizes))]
    unknown = words.say("place not known (no gland mask, no zone)")
    return ", ".join([view.place or unknown, *sizes, image_text(view, words)])


def image_text(view: RegionView, words: Wording = ENGLISH) -> str:
    """Say on which T2 image a region is largest: by the archive's number, or else by slice number.

    Parameters
    ----------
    view : RegionView
        The region.
    words : Wording
        Language of the text.

    Returns
    -------
    str
        The series and image number of the archive, such as ``T2 series 4 image 9``. Without these
        numbers it is the number of the slice and its position (mm). A text says so if the region
        lies on no shown slice.
    """
    if view.slice_number is None or view.z_mm is None:
        return words.say("not on the shown slices")
    if view.archive:
        return f"T2 {view.archive}"
    height = f"{view.z_mm:.1f}".replace("-", "−")
    number = str(view.slice_number)
    text = words.say("T2 slice {number} (z {height} mm)", number=number, height=height)
    # No-break spaces keep "z", the height and "mm" on one line. At the beginning of a line, the
    # minus of a negative height would look like a dash.
    return text.replace(f"z {height} mm", f"z\u00a0{height}\u00a0mm")


def tool_words(view: RegionView, words: Wording = ENGLISH) -> str:
    """Say the probability of cancer in a region with its range, or that it has no probability.

    Parameters
    ----------
    view : RegionView
        The region.
    words : Wording
        Language of the text.

    Returns
    -------
    str
        The probability and its range in per cent with the kind of cancer, or a text that says that
        there is no probability.
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
    """Say the tool's estimate of what readers would say of a region; empty without a result.

    Parameters
    ----------
    view : RegionView
        The region.
    words : Wording
        Language of the text.

    Returns
    -------
    str
        The belief in per cent; then, if the run redrew outlines, how far the belief changes with
        the outline. Empty if the tool did not score the region.
    """
    if view.region.probability is None:
        return ""
    belief = words.say(
        "the tool's estimate of what readers would say: {belief} malignant",
        belief=probability_text(view.region.belief),
    )
    return f"{belief}, {view.outline}" if view.region.outline is not None else belief


def range_text(ends: tuple[float, float], words: Wording = ENGLISH) -> str:
    """Say a range of probabilities in whole per cent, the lower end rounded down, the upper up.

    Parameters
    ----------
    ends : (float, float)
        Lower and upper end.
    words : Wording
        Language of the text.

    Returns
    -------
    str
        The range in per cent, such as ``12 to 41%``.

    Examples
    --------
    >>> range_text((0.128, 0.402))
    '12 to 41%'
    """
    low, high = ends
    # The ends of the range are rounded outwards. So the rounded probability always lies between
    # the rounded ends.
    return words.say("{low} to {high}%", low=f"{floor(100 * low):d}", high=f"{ceil(100 * high):d}")


def readers_words(region: RegionResult, readers: Sequence[str], words: Wording = ENGLISH) -> str:
    """Say the readers' scores of a region, which readers did not score it, and whether they agree.

    Parameters
    ----------
    region : RegionResult
        The region.
    readers : sequence of str
        All readers who scored any region of this man.
    words : Wording
        Language of the text.

    Returns
    -------
    str
        The score of each reader with its scale, the readers without a score, and the side on which
        the readers agree. A text says so if no reader scored the region.
    """
    if not region.scores:
        return words.say("not scored by a reader")
    text = ", ".join(f"{reader} {score}" for reader, score in region.scores)
    scales = set(region.scales.values())
    if len(scales) == 1:  # scores on several scales have no common name
        name = _SCALES.get(scales.pop(), "")
        # Of the names only this one needs a translation.
        scale = words.say(name) if name == _SCALES["likert5"] else name
        if scale:  # the scale from 0 to 1 has no name
            text += f" ({scale})"
    without_score = [reader for reader in readers if reader not in dict(region.scores)]
    if without_score:
        text += f", {words.say('none by {readers}', readers=', '.join(without_score))}"

    # The last phrases: whether the readers agree with each other, and the tool with them.
    disagreement = ""
    if _estimate_disagrees(region):
        estimate = words.say(
            "the tool's estimate of the readers ({belief}) disagrees with them",
            belief=probability_text(region.belief),
        )
        disagreement = f"; {estimate}"
    if not region.readers_agree or region.readers_mean is None:
        return f"{text}{disagreement}"
    side = words.say(side_of_half(region.readers_mean))
    agreement = words.say(_AGREE[region.readers_agree], side=side)
    return f"{text}; {agreement}{disagreement}"


def _estimate_disagrees(region: RegionResult) -> bool:
    """Tell whether the tool's estimate of the readers' mean contradicts their actual mean.

    They contradict each other if they are far apart, or if one of them is above one half
    (suspicious) and the other below (not suspicious).
    """
    if region.belief is None or region.readers_mean is None:
        return False
    sides = {side_of_half(region.belief), side_of_half(region.readers_mean)}
    return region.apart == "far apart" or sides == {"suspicious", "not suspicious"}


def action_words(view: RegionView, man_reason: Sequence[str] = (), words: Wording = ENGLISH) -> str:
    """Say what to do with a region and why; for a referred region also who is to read it again.

    Parameters
    ----------
    view : RegionView
        The region.
    man_reason : sequence of str
        Reasons that the page states for the man. If the region has the same reasons, the text does
        not repeat them.
    words : Wording
        Language of the text.

    Returns
    -------
    str
        One sentence with the decision and its reasons. With histology, the sentence begins with the
        result of histology.
    """
    region = view.region
    histology = _known_words(region, words)

    # A region without a decision: the text says why, unless the page has said it of the man.
    if region.decision == "":
        why = _reasons_text(region.decision_reason, words)
        if not why:
            why = view.unmeasured or words.say("see what was missing or failed")
        if region.decision_reason and region.decision_reason == list(man_reason):
            why = ""
        if histology and not why:
            no_decision = words.say("no decision of the tool, for the reason given above")
            return f"{histology}; {no_decision}"
        if not why:
            return words.say("No decision, for the reason given above")
        if histology:
            no_decision = words.say("no decision of the tool: {reason}", reason=why)
            return f"{histology}; {no_decision}"
        return words.say("No decision: {reason}", reason=why)

    # A region with histology: histology says what to do, and the decision is given beside it.
    why = _why(region, view.thresholds, words)
    if histology:
        by_tool = region.decision_before_histology
        if by_tool == region.decision_model != region.decision:
            # The decision in the text comes from histology. So the text adds the decision by the
            # tool (the model) alone.
            decision = words.say(region.decision_model)
            alone = words.say("the tool alone, without histology: {decision}", decision=decision)
            return f"{histology}; {alone}"
        decision = words.say(region.decision)
        decided = words.say("the tool's decision: {decision}", decision=decision)
        return f"{histology}; {decided}, {why}" if why else f"{histology}; {decided}"

    # A region without histology: the decision says what to do.
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


def _reasons_text(reasons: Sequence[str], words: Wording) -> str:
    """Translate reasons from the run's tables into the language of the page, and join them."""
    return "; ".join(words.again(reason) for reason in reasons)


def _known_words(region: RegionResult, words: Wording) -> str:
    """Say what to do with a region of known histology; empty if its histology is not known."""
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
    """Tell whether the tool calls a region malignant that is not malignant by histology.

    The needle of the biopsy may have missed the lesion.
    """
    return region.truth is False and region.decision_model == "malignant"


def known_words(patient: PatientView, cancer: str, words: Wording = ENGLISH) -> str:
    """Say the result of histology if it is known of all regions of a man; else an empty text.

    Parameters
    ----------
    patient : PatientView
        The man.
    cancer : str
        What counts as malignant, in words: ``cancer of ISUP 2 or more``.
    words : Wording
        Language of the text.

    Returns
    -------
    str
        Sentences on the regions with proven cancer and on regions that the needle may have missed;
        empty unless histology is known of all regions.
    """
    if not patient.histology_known:
        return ""
    proven = []
    for region in patient.ranked:
        if region.truth:
            proven.append(f"{region.roi} ({histology_in(region, words)})")
    names = ", ".join(proven)
    regions = words.count(len(proven), "region {names}", "regions {names}", names=names)

    # First which regions have cancer, then what is left to do.
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
    return f"{text} {words.say(sentence, regions=_names_of_regions(missed, words))}"


_WOULD = {
    "benign": "{number} is below the site's limit of {limit} for benign, but: {reasons}",
    "malignant": "{number} is above the site's limit of {limit} for malignant, but: {reasons}",
}
"""Sentences for a region that is referred although its number alone would give another decision; by
this other decision. The reasons for referring follow in the sentence.
"""


def _why(region: RegionResult, limits: tuple[float, float] | None, words: Wording) -> str:
    """Say why a region has its decision.

    A region may be referred although the thresholds alone would decide it; the text then gives the
    reasons. For any other region it says whether the region's number lies below, between or above
    the site's two limits.
    """
    # Stated reasons can refer a region that the thresholds alone would call benign or malignant
    # (``decision_model``). A region that is referred only because its number lies between the
    # thresholds has no stated reasons.
    referred_for_reasons = region.decision == "refer" and bool(region.decision_reason)
    if referred_for_reasons and (not limits or region.decision_model not in _WOULD):
        # There is no decision of the thresholds that could be named beside the reasons.
        return _reasons_text(region.decision_reason, words)
    if not limits:
        return ""

    lower_limit, upper_limit = limits
    number = probability_text(region.probability)
    if not region.of_cancer:
        number = words.say("the readers' suspicion of {number}", number=number)
    if referred_for_reasons:
        return words.say(
            _WOULD[region.decision_model],
            number=number,
            limit=probability_text(
                lower_limit if region.decision_model == "benign" else upper_limit
            ),
            reasons=_reasons_text(region.decision_reason, words),
        )
    if region.decision == "refer":
        return words.say(
            "{number} lies between the site's limits for a region ({benign}, {malignant})",
            number=number,
            benign=_benign_sentence(lower_limit, words),
            malignant=_malignant_sentence(upper_limit, words),
        )
    range_crosses_limit = _crosses(region, limits)
    if region.decision == "benign":
        sentence = "{number} is below the site's limit of {limit} for a region"
        if range_crosses_limit:
            sentence += ", but its range reaches above it"
        return words.say(sentence, number=number, limit=probability_text(lower_limit))
    sentence = "{number} is above the site's limit of {limit} for a region"
    if range_crosses_limit:
        sentence += ", but its range reaches below it"
    return words.say(sentence, number=number, limit=probability_text(upper_limit))


def _benign_sentence(threshold: float, words: Wording) -> str:
    """Say below which probability a region is called benign, or that no region is."""
    if threshold <= 0:
        return words.say(benign_limit(threshold))
    return words.say("benign below {limit}", limit=probability_text(threshold))


def _malignant_sentence(threshold: float, words: Wording) -> str:
    """Say above which limit a region is called malignant, or that no region is called malignant."""
    if threshold >= 1:
        return words.say(malignant_limit(threshold))
    return words.say("malignant above {limit}", limit=probability_text(threshold))


def _crosses(region: RegionResult, limits: tuple[float, float]) -> bool:
    """Tell whether the limit that led to the region's decision lies within the region's range."""
    if region.probability_range is None:
        return False
    lower_limit, upper_limit = limits
    limit = upper_limit if region.decision == "malignant" else lower_limit
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
    """Return the sentences on a man that follow the word of his decision.

    They say what to do next, the reasons of the decision, and the probability of the whole man.

    Parameters
    ----------
    patient : PatientView
        The man's regions and decisions.
    man : Man or None
        Result for the whole man; None where the run has none.
    cancer : str
        What the probability is of, in words: ``cancer of ISUP 2 or more``.
    place : str
        Where such cancer is looked for: ``in this man``, or ``in the outlined regions of this
        man``.
    none : str
        Reason why no man of the run has a probability; stated if this man has none.
    words : Wording
        Language of the text.

    Returns
    -------
    str
        Text that follows the word of the decision directly. Therefore it begins with a colon,
        comma, space or full stop.
    """
    top = patient.top
    if top is None:
        why = words.say("no region of this man has a probability, see what was missing or failed.")
        return f": {why}"
    head = patient.head
    in_order = [*head, *(region for region in patient.ranked if region not in head)]
    decision = man.decision if man is not None else patient.decision
    reasons = man.decision_reason if man is not None else []
    histology_known = patient.histology_known
    if histology_known:
        # Before the word of the decision the page states the result of histology. That text already
        # says what to do.
        sentences = [f": {_reasons_text(reasons, words)}." if reasons else "."]
    else:
        sentences = [_follows(decision, in_order, words)]
    if reasons and not histology_known:
        sentences.append(_sentence(_reasons_text(reasons, words)))
    elif decision == "refer" and not any(region.decision == "refer" for region in in_order):
        # No region explains why the man is referred, and neither does a stated reason.
        sentences.append(words.say("Something is missing or failed, so that benign is not stated."))

    if len(patient.regions) > 1:  # of a single region, it is clear which is most suspicious
        sentences.append(_firsts(patient, top, words))
    if not decision:
        sentences += _disagreements(patient, words)
    sentences += _unscored(patient, words)

    # The last sentence: the probability of the whole man, or why there is none.
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
    # The limit for a man decides between benign and refer. It plays no part in another decision,
    # nor where histology is known.
    if man.lower is not None and decision not in ("", "malignant") and not histology_known:
        sentence = (
            "below the site's limit of {limit} for a man whose regions all are benign"
            if man.probability < man.lower
            else "not below the site's limit of {limit} for a man whose regions all are benign"
        )
        text += f", {words.say(sentence, limit=probability_text(man.lower))}"
    return " ".join([*sentences, f"{text}."])


def upper_first(text: str) -> str:
    """Return a text with its first letter in upper case.

    Parameters
    ----------
    text : str
        The text, with at least one letter.

    Examples
    --------
    >>> upper_first("left mid PZpl")
    'Left mid PZpl'
    """
    return text[0].upper() + text[1:]


def _sentence(text: str) -> str:
    return f"{upper_first(text)}."


def _follows(decision: str, regions: Sequence[RegionResult], words: Wording) -> str:
    """Say what to do with a man's regions, in the order in which they are given.

    The text follows the word of the man's decision directly, so it begins with a colon or a space.
    """
    without_histology = [region for region in regions if region.truth is None]
    proven = [region for region in regions if region.truth]
    targets = [region for region in without_histology if region.decision == "malignant"]
    referred = [region for region in without_histology if region.decision == "refer"]
    proof = ""
    if proven:
        proof = words.count(
            len(proven),
            "{regions} has cancer by histology",
            "{regions} have cancer by histology",
            regions=_names_of_regions(proven, words),
        )
    if decision == "malignant":
        clauses = []
        if targets:
            named = _names_of_regions(targets, words)
            clauses.append(words.say("consider {regions} for biopsy", regions=named))
        if referred:
            named = _names_of_regions(referred, words)
            clauses.append(words.say(_READ_AGAIN[_whom(referred)], regions=named))
        if proof:
            clauses.append(proof)
        return f": {'; '.join(clauses)}."
    if decision == "refer":
        # If no region is referred, the reason for "refer" lies with the man as a whole. Then the
        # regions called malignant are read again, or else all regions without histology.
        regions_to_read = referred or targets or without_histology
        last_clause = f"; {proof}" if proof else ""
        reading = words.say(_WHOM[_whom(referred)])
        return f" {reading}: {_names_of_regions(regions_to_read, words)}{last_clause}."
    if decision == "benign":
        return f": {words.say('every region is.')}"
    # A page or sheet without a decision also says what to do.
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
    """Return who reads regions again: ``joint``, ``second``, or ``other`` if they differ.

    If several readers scored a region, they read the region again together. If one reader or none
    did, a second radiologist reads it. Without regions the result is ``other``.
    """
    whom = set()
    for region in regions:
        whom.add("joint" if len(region.scores) > 1 else "second")
    return whom.pop() if len(whom) == 1 else "other"


def _firsts(patient: PatientView, top: RegionResult, words: Wording) -> str:
    """Name the region most suspicious to the tool and the one most suspicious to the readers."""
    number = probability_text(top.probability)
    first = f"{_names_of_regions([top], words)} ({number})"
    of_readers = patient.readers_first  # None if nobody has scored a region
    if of_readers is None:
        return words.say("Most suspicious to the tool: {first}.", first=first)
    if of_readers is top:
        return words.say("Most suspicious to the tool and the readers: {first}.", first=first)
    return words.say(
        "Most suspicious: {first} to the tool, {second} to the readers.",
        first=first,
        second=_names_of_regions([of_readers], words),
    )


def _disagreements(patient: PatientView, words: Wording) -> list[str]:
    """Name the regions where the tool's estimate of the readers' mean contradicts this mean."""
    disputed = [region for region in patient.ranked if _estimate_disagrees(region)]
    if not disputed:
        return []
    named = _names_of_regions(disputed, words)
    return [words.say("Tool and readers disagree on {regions}.", regions=named)]


def _unscored(patient: PatientView, words: Wording) -> list[str]:
    """Name the regions without a probability; the man's probability does not count them."""
    without = [region for region in patient.current if region.probability is None]
    if not without:
        return []
    named = _names_of_regions(without, words)
    return [words.say("Not scored, and not in the man's number: {regions}.", regions=named)]


def _names_of_regions(regions: Sequence[RegionResult], words: Wording) -> str:
    names = ", ".join(region.roi for region in regions)
    return words.count(len(regions), "region {names}", "regions {names}", names=names)


def _about(
    patient: PatientView,
    studies: Sequence[StudyView],
    man: Man | None,
    latest: str,
    words: Wording,
) -> list[str]:
    """Return facts on study and patient in words, then the names of unknown facts.

    The facts are date, scanner, field strength, age, PSA, PSA density and gland volume.
    """
    stated = []
    unknown = []
    for study in studies:
        stated += [words.again(text) for text in study.acquired]
    # Each region of a man states his age and PSA, so the first tells.
    region = patient.regions[0] if patient.regions else None
    age = region.age if region else None
    psa = region.psa if region else None
    density = man.psa_density if man else None
    # If the run knows which study is the latest, the gland volume of this study is shown.
    # Otherwise, or if it has no volume, the volume of the first study that has one is shown.
    studies_with_gland = [study for study in studies if study.gland_ml]
    studies_with_gland.sort(key=lambda study: study.study != latest)  # the latest comes first
    gland_ml = studies_with_gland[0].gland_ml if studies_with_gland else None

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
    if gland_ml:
        stated.append(words.say("gland {volume} mL", volume=f"{gland_ml:.0f}"))
    else:
        unknown.append(words.say("gland volume"))
    if not any(study.acquired for study in studies):
        # Date and scanner come first here, as they do among the stated facts.
        unknown.insert(0, words.say("study date and scanner"))

    # A dictionary keeps the order of the names, and each name once.
    missing: dict[str, None] = {}
    for study in studies:
        missing.update(dict.fromkeys(study.missing))
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
    """Return sentences on how far the man's probabilities can be trusted.

    The sentences name the patients that the model was trained on, the regions that are unlike the
    training regions, and the number of failures. Each sentence is paired with a bool, which is
    True if the sentence asks for caution.
    """
    simulated = bool(results.run.get("cohort_simulated"))
    sentences = [_trained(metrics, models, simulated, words)]
    if simulated:
        sentences.insert(0, (words.say("This patient is simulated."), True))

    # Only in a prediction there is a model whose training regions are others than these.
    unlike = [region for region in patient.ranked if region.unlike]
    compared = [region for region in patient.regions if region.compared]
    if results.run.get("kind") == "predict":
        if unlike:
            sentence = "Unlike the training in {images}: {regions}, less to be trusted."
            if man and man.probability is not None:
                sentence = (
                    "Unlike the training in {images}: {regions}, less to be trusted, and so is the "
                    "man's probability."
                )
            named = unlike_images(unlike, words)
            regions = _names_of_regions(unlike, words)
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
            unknown = ", ".join(words.again(fact) for fact in man.unknown.split(", "))
            text += f" {words.say('Not known of him: {unknown}.', unknown=unknown)}"
        sentences.append((text, False))
    if not any(region.of_cancer for region in patient.regions):
        sentences.append((words.say(_OF_READERS), True))
    n_failures = len(patient.faults)
    if n_failures:
        text = words.count(
            n_failures,
            "{number} result failed, see below.",
            "{number} results failed, see below.",
            number=str(n_failures),
        )
        sentences.append((text, True))
    return sentences


def unlike_images(regions: Sequence[RegionResult], words: Wording) -> str:
    """Name the images in which regions are unlike the training regions.

    Parameters
    ----------
    regions : sequence of RegionResult
        Regions that are unlike the training regions.
    words : Wording
        Language of the text.

    Returns
    -------
    str
        Names of the images in the order in which they first occur, joined by the word for "and";
        empty without regions.
    """
    images: dict[str, None] = {}  # a dictionary keeps the order, and each image once
    for region in regions:
        for group in region.unlike.split(","):
            # A group of features begins with the name of its image.
            first_word = group.split()[0]
            images[first_word.rstrip(":")] = None
    return words.say(" and ").join(images)


_OF_READERS = (
    "No histology taught these numbers: they are what readers would say, not a probability of "
    "cancer."
)
_ONE_SIZE = "All outlines have one size, as marks do: how large the lesions are is not known."


def _one_size(views: Sequence[RegionView]) -> bool:
    """Tell whether a man has three or more outlines that all have one size.

    Such outlines are marks that were set at lesions. Outlines of lesions differ in size.
    """
    sizes = {(view.facts.get("diameter"), view.facts.get("volume")) for view in views}
    all_equal = len(sizes) == 1
    # Two lesions may have one size by chance. A size that was not measured says nothing.
    return len(views) >= 3 and all_equal and None not in sizes.pop()


def _trained(
    metrics: Summary, models: Sequence[JsonObject], simulated: bool, words: Wording
) -> tuple[str, bool]:
    """Name the models and the patients they were trained on, and say how accurate they are.

    ``simulated`` says whether the patients of this run are simulated. The second value is True if
    the text asks for caution.
    """
    # Which models, and what they were trained on.
    descriptions = []
    for model in models:
        training = model.get("training") or {}
        described = str(model["name"])
        if "patients" in training:
            sentence = "{name}, trained on {patients} patients"
            if training.get("simulated"):
                sentence = "{name}, trained on {patients} simulated patients"
            described = words.say(sentence, name=described, patients=str(training["patients"]))
        prevalence = (model.get("prevalence") or {}).get("stated")
        if prevalence is not None:
            moved = words.say(
                "moved to a place where {share} of men have cancer", share=f"{prevalence:.3g}"
            )
            described += f", {moved}"
        descriptions.append(described)
    if descriptions:
        text = words.say("Model {models}.", models="; ".join(descriptions))
    else:
        text = words.say("Trained on the other patients of this run, this one left out.")
    trained_on_simulated = any((model.get("training") or {}).get("simulated") for model in models)
    if trained_on_simulated and not simulated:
        text += f" {words.say('Its accuracy and its ranges in real patients are not known.')}"

    # How accurate they are: measured in this run if its histology allows it, else in the training.
    histology = metrics.histology
    measured_in_this_run = histology is not None and isfinite(histology.auc.lower)
    if not measured_in_this_run and (simulated or not trained_on_simulated):
        # The text added here says how accurate the model was in its training. It is left out for
        # real patients if the training patients were simulated, because it would tell nothing
        # about real patients.
        text += f" {_at_training(metrics, models, words)}"
    caution = trained_on_simulated
    if histology is not None and measured_in_this_run:
        perhaps_guessing = histology.auc.lower <= 0.5  # a guess has an AUC of one half
        sentence = (
            "Against histology AUC {auc} (95% interval, {regions} regions of {patients} patients)."
        )
        if perhaps_guessing:
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
        caution = caution or perhaps_guessing
    return text, caution


def _at_training(metrics: Summary, models: Sequence[JsonObject], words: Wording) -> str:
    """Say how often each model's decisions were right in the validation of its training.

    The sentence is for a run that has no histology, or too little of it to measure its own
    decisions.
    """
    sentences = []
    for model in models:
        point = metrics.at_training.get(str(model["name"]))
        # The shares of right decisions were measured with the thresholds of the training. They do
        # not hold for other thresholds.
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


def _where_cancer_is(results: Results, models: Sequence[JsonObject], words: Wording) -> str:
    """Say whether a man's probability is of cancer in his outlined regions or anywhere in him."""
    # A validation has no model; its joint model is described in the run itself.
    for described in [*models, results.run]:
        joint = described.get("joint")
        if joint and not joint.get("leak"):
            return words.say("in the outlined regions of this man")
        if joint:
            # This joint model counts cancer outside the outlined regions, too: the leak.
            break
    return words.say("in this man")


def _other_regions(patient: PatientView, words: Wording) -> str:
    """Name the regions that are not in the head of the page, and say how the head is ordered.

    The head has a card for each of the most important regions.
    """
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
    sentences = []
    if groups:
        listed = "; ".join(groups)
        text = words.say("Regions without a card of their own: {regions}.", regions=listed)
        sentences.append(text)
    # The regions most suspicious to the tool and to the readers come first, and the page says so
    # beside them. The order is therefore stated only if the head has more than these two.
    if len(patient.head) > 2:
        sentences.append(
            words.say(
                "Order: the tool's first, the readers' first, proven cancer, then by decision and "
                "suspicion."
            )
        )
    return " ".join(sentences)
