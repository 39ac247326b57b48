"""Compare a man's latest study with the study before it, for his page and sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cad.base.files import JsonObject
from cad.folders.run_folder.results import RegionResult, Results
from cad.folders.run_folder.schema import NEAR_MM
from cad.folders.run_folder.tables import EarlierRow
from cad.run.reports.plots import measured, probability_text
from cad.run.reports.views import StudyView
from cad.run.reports.wording import ENGLISH, Wording

_UNKNOWN = "–"
_ORDERS = {
    "date": "{study} is the latest by the dates of the studies.",
    "session": "{study} is the latest by the labels of the sessions: a date is not known.",
}
_ALIGNMENTS = {
    "aligned": (
        "The T2 image of {earlier} was moved by {moved} mm and turned by {turned}° onto that of "
        "{study}. Distances are between the regions' centres; sizes and numbers are then → now."
    ),
    "no T2": "No region is compared: a study has no T2 image.",
    "no overlap": "No region is compared: the T2 images do not show the same part of the body.",
    "too far": (
        "No region is compared: the alignment of the T2 images went {moved} mm and {turned}°, "
        "farther than can be trusted."
    ),
    "not improved": (
        "No region is compared: no place was found where the T2 images fit better than unmoved."
    ),
    "no clear place": (
        "No region is compared: the T2 images fit no place clearly better than the places beside."
    ),
    "glands apart": (
        "No region is compared: with the T2 images aligned, the outlines of the gland lie apart."
    ),
    "failed": "No region is compared, it failed: {reason}",
}


@dataclass(frozen=True)
class EarlierView:
    """Hold the text and tables on a man's earlier study.

    Parameters
    ----------
    title : str
        Heading.
    sentences : list of str
        Sentences that say which studies are compared, how they are compared, and that no decision
        rests on the comparison.
    facts_head : list of str
        Heads of the columns of ``facts``.
    facts : list of list of str
        One row for each fact, such as PSA: its name, its value at the earlier study and its value
        at the latest. A fact that is known of neither study is left out.
    regions_head : list of str
        Heads of the columns of ``regions``; empty if no region is compared.
    regions : list of list of str
        One row for each region of the latest study: its name, the nearest region of the earlier
        study, distance, sizes, probabilities if there are any, and ``Same region?``. The last rows
        are earlier regions that have no region of the latest study near them.
    """

    title: str
    sentences: list[str]
    facts_head: list[str]
    facts: list[list[str]]
    regions_head: list[str]
    regions: list[list[str]]


def earlier_view(
    results: Results,
    patient: str,
    studies: Sequence[StudyView],
    regions: Sequence[RegionResult],
    words: Wording = ENGLISH,
) -> EarlierView | None:
    """Collect the text and tables on a man's earlier study.

    Parameters
    ----------
    results : Results
        Content of the run folder, without results that are held back from a person.
    patient : str
        The man.
    studies : sequence of StudyView
        The man's studies.
    regions : sequence of RegionResult
        His regions, with those probabilities that are not held back.
    words : Wording
        Language of the text.

    Returns
    -------
    EarlierView or None
        None if the run has not compared two studies of the man.
    """
    rows = results.earlier.get(patient, [])
    if not rows:
        return None
    views = {study.study: study for study in studies}
    # All rows of a man name the same two studies and the same alignment, so the first row tells.
    first = rows[0]
    latest = views.get(first.study_id)
    earlier = views.get(first.earlier_study_id)
    aligned = first.alignment == "aligned"
    shown = _Shown(
        sizes_now=latest.sizes if latest is not None else {},
        sizes_then=earlier.sizes if earlier is not None else {},
        scored={(region.study, region.roi): region for region in regions},
        of_latest=results.run.get("kind") == "predict",
    )
    # Places in two studies can be compared only if their T2 images are aligned.
    table = []
    if aligned:
        table = [_region_row(row, shown, words) for row in rows]
    return EarlierView(
        title=words.say("Earlier study: {earlier}", earlier=first.earlier_study_id),
        sentences=_sentences(rows, shown, words),
        facts_head=["", words.say("Then"), words.say("Now")],
        facts=_fact_rows(results, first, latest, earlier, words),
        regions_head=_regions_head(shown, words) if aligned else [],
        regions=table,
    )


@dataclass(frozen=True)
class _Shown:
    """Hold sizes and results of the regions of the two studies of a man that are compared.

    Parameters
    ----------
    sizes_now, sizes_then : mapping of str to dict
        Diameter and volume of each region as drawn, by ROI id.
    scored : mapping of (str, str) to RegionResult
        Regions with a row of results, by study and ROI id.
    of_latest : bool
        Whether the man's probability comes from his latest study alone, as in a prediction.
    """

    sizes_now: Mapping[str, JsonObject]
    sizes_then: Mapping[str, JsonObject]
    scored: Mapping[tuple[str, str], RegionResult]
    of_latest: bool

    @property
    def with_numbers(self) -> bool:
        """Tell whether any region of the two studies has a belief that is not held back."""
        return any(region.belief is not None for region in self.scored.values())

    @property
    def of_cancer(self) -> bool:
        """Tell whether all regions have probabilities of cancer; if not, beliefs are shown."""
        numbered = [region for region in self.scored.values() if region.belief is not None]
        return bool(numbered) and all(region.of_cancer for region in numbered)

    def number(self, study: str, roi: str) -> float | None:
        """Return the probability of a region, if all regions have one, else the region's belief.

        The result is None for a region without a row of results.
        """
        region = self.scored.get((study, roi))
        if region is None:
            return None
        return region.probability if self.of_cancer else region.belief


def _sentences(rows: Sequence[EarlierRow], shown: _Shown, words: Wording) -> list[str]:
    """Say which studies are compared, how they are aligned, and what does not rest on this."""
    # All rows of a man name the same two studies and the same alignment.
    first = rows[0]
    sentences = [words.say(_ORDERS[first.order], study=first.study_id)]
    alignment = _ALIGNMENTS[first.alignment]
    sentences.append(
        words.say(
            alignment,
            earlier=first.earlier_study_id,
            study=first.study_id,
            moved=_text_of_number(first.moved_mm),
            turned=_text_of_number(first.turned_deg),
            reason=first.alignment_note,
        )
    )
    models = set()
    for row in rows:
        region_now = (row.study_id, row.roi_id)
        region_then = (row.earlier_study_id, row.earlier_roi_id)
        for study_and_roi in (region_now, region_then):
            region = shown.scored.get(study_and_roi)
            if region is not None and region.model:
                models.add(region.model)
    if len(models) > 1 and shown.with_numbers:
        sentences.append(
            words.say(
                "Different models scored the two studies: their numbers may differ for that alone."
            )
        )
    sentences.append(
        words.say("The comparison is for the reader: no decision of the tool rests on it.")
    )
    if shown.of_latest:
        sentences.append(
            words.say("The man's probability and the decision on him rest on his latest study.")
        )
    else:
        sentences.append(
            words.say(
                "The man's probability counts the regions of all his studies in this run: a lesion "
                "that two of them show counts twice."
            )
        )
    return sentences


def _fact_rows(
    results: Results,
    row: EarlierRow,
    latest: StudyView | None,
    earlier: StudyView | None,
    words: Wording,
) -> list[list[str]]:
    """Return a row each for date, gland volume, PSA and PSA density, at earlier and latest study.

    A fact that is known of neither study is left out.
    """
    man = results.men.get(row.participant_id)
    regions_of_man = [region for region in results.regions if region.patient == row.participant_id]
    # Every region of a man states his PSA, so the first tells.
    psa = regions_of_man[0].psa if regions_of_man else None
    density = man.psa_density if man is not None else None
    facts = [
        [words.say("Date"), _date(earlier), _date(latest)],
        [words.say("Gland volume"), _text_of_gland(earlier), _text_of_gland(latest)],
        ["PSA", _psa(row.earlier_psa), _psa(psa)],
        [words.say("PSA density"), _density(row.earlier_psa_density), _density(density)],
    ]
    return [fact for fact in facts if fact[1:] != [_UNKNOWN, _UNKNOWN]]


def _date(study: StudyView | None) -> str:
    return study.date if study is not None and study.date else _UNKNOWN


def _text_of_gland(study: StudyView | None) -> str:
    if study is None or not study.gland_ml:
        return _UNKNOWN
    return f"{study.gland_ml:.0f} mL"


def _psa(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{measured(value)} ng/mL"


def _density(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.2f} ng/mL²"


def _regions_head(shown: _Shown, words: Wording) -> list[str]:
    """Return the heads of the columns that :func:`_region_row` fills."""
    heads = [
        words.say("Region now"),
        words.say("Nearest then"),
        words.say("Distance"),
        words.say("Diameter"),
        words.say("Volume"),
    ]
    if shown.with_numbers:
        heads.append(words.say("Probability" if shown.of_cancer else "Readers would say"))
    return [*heads, ""]  # the last column asks "Same region?" and needs no head


def _region_row(row: EarlierRow, shown: _Shown, words: Wording) -> list[str]:
    """Return the cells of a row: a region of the latest study, and the earlier region near it, if
    any.

    An earlier region that is far from all regions of the latest study has a row of its own.
    """
    none_near = words.say("none within {limit} mm", limit=f"{NEAR_MM:g}")
    size_now = shown.sizes_now.get(row.roi_id, {})
    size_then = shown.sizes_then.get(row.earlier_roi_id, {})
    distance = f"{row.distance_mm:.1f} mm" if row.distance_mm is not None else _UNKNOWN
    cells = [
        row.roi_id or none_near,
        row.earlier_roi_id or none_near,
        distance,
        _change(_diameter(size_then), _diameter(size_now), "mm"),
        _change(_text_of_volume(size_then), _text_of_volume(size_now), "mL"),
    ]
    if shown.with_numbers:
        before = shown.number(row.earlier_study_id, row.earlier_roi_id)
        after = shown.number(row.study_id, row.roi_id)
        cells.append(_change(probability_text(before), probability_text(after), ""))
    has_both_regions = bool(row.roi_id and row.earlier_roi_id)
    return [*cells, words.say("Same region?") if has_both_regions else ""]


def _change(before: str, after: str, unit: str) -> str:
    """Write a value at the earlier and at the latest study, with a unit if there is one."""
    text = f"{before} → {after}"
    return f"{text} {unit}" if unit else text


def _diameter(values: JsonObject) -> str:
    value = values.get("diameter_mm")
    return _UNKNOWN if value is None else f"{value:.1f}"


def _text_of_volume(values: JsonObject) -> str:
    value = values.get("volume_mm3")
    return _UNKNOWN if value is None else f"{value / 1000:.2f}"


def _text_of_number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.1f}"
