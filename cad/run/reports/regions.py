"""Collect what a page shows of one region: place, size, measurements, pictures and warnings."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cad.base.files import JsonObject
from cad.base.terms.modality import short_name
from cad.base.terms.sectors import WORDS
from cad.folders.run_folder.results import RegionResult, Results
from cad.run.reports.images import KeyImage, StudyImages, key_images, key_slice
from cad.run.reports.plots import CurvePlot, curve_plot, measured, probability_text
from cad.run.reports.reasons import ReasonSum, reason_sum
from cad.run.reports.sectors import Mark, mark
from cad.run.reports.wording import ENGLISH, Wording

KEY_LAYERS = ("t2w", "adc", "hbv", "enhancement")
# Least R² at which the fit of the perfusion model counts as good. Below it a page gives a warning;
# no result changes.
POOR_FIT_R2 = 0.8
REDRAWN = " redrawn"
SMALL_MM3 = 65.0  # volume of a ball of 5 mm diameter

CURVE_TYPES = {1: "1, still rising", 2: "2, plateau", 3: "3, wash-out"}


@dataclass(frozen=True)
class RegionView:
    """Hold the content of one region for its card, the table and the paragraph of the page.

    Parameters
    ----------
    region : RegionResult
        The run's result for the region.
    anchor : str
        HTML id of the region's card.
    thresholds : (float, float) or None
        Thresholds of the model that scored the region: it is called benign below the first and
        malignant above the second.
    where : str
        Place in the gland, such as ``left mid PZpl (estimated)``. Without a gland mask the text is
        such as ``PZ left, middle third (by the image)``. It is the side or the zone alone if
        nothing else is known, and empty if nothing is known.
    place : str
        The place in words: ``left mid posterolateral peripheral zone (estimated)``.
    sector : Mark or None
        The region's sector and its point on the sector map.
    images : list of KeyImage
        A picture for each modality, on the slice where the region is largest.
    slice_number, z_mm : int, float, or None
        Number in the series of the slice that ``images`` shows, and its position along the slice
        normal.
    archive, archive_adc : str
        The same slice of T2 and of ADC by the archive's numbers, such as ``series 4 image 9``;
        empty if the import kept no numbers.
    facts : dict of str to str
        The measurements that were made, by name, as text with unit.
    fit : str
        Numbers of the perfusion model's fit; empty without a fit.
    curve : CurvePlot or None
        The enhancement curve.
    no_curve : str
        Sentence that the page shows where there is no curve.
    reasons : ReasonSum or None
        Families of features that raised or lowered the belief.
    warnings : list of str
        Sentences that ask the reader for caution.
    cancer : str
        What the run counts as malignant, in words: ``cancer of ISUP 2 or more``.
    mark : bool
        Whether the region is a ball or a box, whose size is not the size of a lesion.
    outline : str
        Range of the belief over several outlines of the region, in words; empty if other outlines
        were not tried.
    unmeasured : str
        Names, in a sentence, of the images in which nothing was measured, for a region that
        therefore has no result; else empty.
    """

    region: RegionResult
    anchor: str
    thresholds: tuple[float, float] | None
    where: str
    place: str
    sector: Mark | None
    images: list[KeyImage]
    slice_number: int | None
    z_mm: float | None
    archive: str
    archive_adc: str
    facts: dict[str, str]
    fit: str
    curve: CurvePlot | None
    no_curve: str
    reasons: ReasonSum | None
    warnings: list[str]
    cancer: str = "malignancy"
    outline: str = ""
    mark: bool = False
    unmeasured: str = ""

    @property
    def diameter(self) -> str:
        """Return the region's diameter for a table.

        The word ``(mark)`` follows if the region is a mark: a ball or box that was set at a lesion
        and does not have its size.
        """
        text = self.facts.get("diameter", "–")
        return f"{text} (mark)" if self.mark and "diameter" in self.facts else text

    @property
    def pirads(self) -> str:
        """Return the readers' PI-RADS categories, such as ``3 4``; empty where nobody gave one."""
        scales = self.region.scales
        categories = []
        for reader, score in self.region.scores:
            if scales.get(reader) == "pirads":
                categories.append(score)
        return " ".join(categories)


def region_view(
    results: Results, region: RegionResult, images: StudyImages | None, words: Wording = ENGLISH
) -> RegionView:
    """Collect the content of one region for its page.

    Parameters
    ----------
    results : Results
        Content of the run folder.
    region : RegionResult
        One of its regions.
    images : StudyImages or None
        The region's study; None where its images cannot be shown.
    words : Wording
        The language of place, outline and curve type.

    Returns
    -------
    RegionView
        Texts, pictures and numbers for the region's card. Without images, the measurements on
        images are empty or None.
    """
    measurements: JsonObject = {}
    pictures = []
    curve = None
    slice_number = None
    z_mm = None
    slice_index = None
    if images is not None:
        measurements = images.rois.get(region.roi, {})
        pictures = key_images(images, region.label, _key_layers(images))
        curve = curve_plot(images.curve(region.roi))
        # The index of the slice on which the region is largest; None if no stored slice shows it.
        slice_index = key_slice(images, region.label)
    if images is not None and slice_index is not None:
        slice_number = images.slice_numbers[slice_index]
        z_mm = float(images.z_mm[slice_index])

    place = measurements.get("place")
    in_image = measurements.get("image_place")
    # If a person named the sector in ``rois.tsv``, the measured position is not used. A dot outside
    # the named sector would contradict this person.
    sector_map = None
    if region.sector:
        sector_map = mark(region.sector, None)
    elif place and place.get("sector"):
        sector_map = mark(place["sector"], place)
    numbers_of_fit = []
    for key, title, unit in _FIT:
        if measurements.get(key) is not None:
            numbers_of_fit.append(f"{title} {measured(float(measurements[key]), unit)}")
    return RegionView(
        region=region,
        anchor=re.sub(r"[^A-Za-z0-9_-]", "_", f"roi-{region.study}-{region.roi}"),
        thresholds=results.thresholds_of(region),
        where=_place_of_region(region, place, in_image),
        place=_place_words(region, place, in_image, words),
        sector=sector_map,
        images=pictures,
        slice_number=slice_number,
        z_mm=z_mm,
        archive=_archive_place(images, "t2w", slice_index),
        archive_adc=_archive_place(images, "adc", slice_index),
        facts=_measured_texts(measurements, words),
        fit=", ".join(numbers_of_fit),
        curve=curve,
        no_curve=_no_curve(images),
        reasons=reason_sum(results.reasons.get((region.study, region.roi), []), results.columns),
        warnings=[*region.warnings, *_display_warnings(measurements, images)],
        cancer=cancer_words(results, words),
        outline=outline_words(region, words),
        mark=bool(measurements.get("mark")),
        unmeasured=_unmeasured(measurements.get("unmeasured", []), region, words),
    )


def _unmeasured(images: Sequence[str], region: RegionResult, words: Wording) -> str:
    """Name the images in which nothing was measured in a region without a result.

    The text is empty for a region with a result.
    """
    if region.probability is not None or not images:
        return ""
    named = words.say(" and ").join(short_name(image) for image in images)
    return words.say("nothing measured in {images} here, see below", images=named)


def cancer_words(results: Results, words: Wording = ENGLISH) -> str:
    """Say what a run counts as malignant: ``cancer of ISUP 2 or more``, or ``cancer``.

    Parameters
    ----------
    results : Results
        Content of the run folder.
    words : Wording
        Language of the text.

    Returns
    -------
    str
        The kind of cancer in words, by the setting ``labels.isup_min`` of the run (2 if the run
        does not state it).
    """
    labels = (results.run.get("settings") or {}).get("labels") or {}
    grade = labels.get("isup_min", 2)
    if grade > 1:  # from grade 1 on, every cancer counts
        return words.say("cancer of ISUP {grade} or more", grade=str(grade))
    return words.say("cancer")


def histology_in(region: RegionResult, words: Wording) -> str:
    """Return the result of histology on a region in a language; empty if there is none.

    Parameters
    ----------
    region : RegionResult
        The region.
    words : Wording
        Language of the text.
    """
    phrases = []
    for phrase in region.histology_words.split(", "):
        if phrase == "cancer":
            # ``again`` does not translate this word: the catalogue has it among the sentences of
            # the pages, not among those of the tables.
            phrases.append(words.say("cancer"))
        elif phrase:  # a region without histology gives one empty phrase
            phrases.append(words.again(phrase))
    return ", ".join(phrases)


def outline_words(region: RegionResult, words: Wording = ENGLISH) -> str:
    """Say how far a region's belief changes with its outline.

    Parameters
    ----------
    region : RegionResult
        The region, which holds the lowest and highest belief over several outlines.
    words : Wording
        Language of the text.

    Returns
    -------
    str
        The end of a sentence on the belief, such as ``between 20% and 40% when the outline
        moves by about a millimetre``; empty if the run did not redraw outlines.
    """
    if region.outline is None:
        return ""
    low, high = (probability_text(value) for value in region.outline)
    if region.outlines.endswith(REDRAWN):
        if low == high:
            return words.say("stays at {low} when the outline moves by about a millimetre", low=low)
        return words.say(
            "between {low} and {high} when the outline moves by about a millimetre",
            low=low,
            high=high,
        )
    if low == high:
        return words.say("stays at {low} over the outlines of {who}", low=low, who=region.outlines)
    return words.say(
        "between {low} and {high} over the outlines of {who}",
        low=low,
        high=high,
        who=region.outlines,
    )


def _key_layers(images: StudyImages) -> tuple[str, ...]:
    """Return the names of the images (layers) of which a region's pictures are shown.

    Without a dynamic series there is no layer of enhancement. The map of Ktrans is then shown.
    """
    if "enhancement" in images.layers:
        return KEY_LAYERS
    return (*KEY_LAYERS, "ktrans")


def _place_words(
    region: RegionResult,
    place: JsonObject | None,
    in_image: JsonObject | None,
    words: Wording,
) -> str:
    """Say in words without abbreviations where a region lies.

    The words also say whether the place was estimated from the gland mask or from the image alone.
    """
    if region.sector or place is not None or in_image is None:
        abbreviated = _place_of_region(region, place, in_image)
        written_out = re.sub(r"\w+", lambda match: WORDS.get(match[0], match[0]), abbreviated)
        return words.again(written_out)

    # There is no gland mask, and nobody named the sector: the place in the image is described.
    zone = words.again(WORDS.get(region.zone, region.zone))
    phrases = [zone or words.say("zone not known")]
    # The distance is negative to the right of the midline; the words below name the side.
    distance = f"{abs(float(in_image['left_mm'])):.0f}"
    if in_image["side"] == "midline":
        phrases.append(words.say("at the image's midline"))
    elif in_image["side"] == "left":
        phrases.append(words.say("{distance} mm left of the image's midline", distance=distance))
    else:
        phrases.append(words.say("{distance} mm right of the image's midline", distance=distance))
    phrases.append(words.say(_THIRDS[in_image["third"]]))
    if in_image["depth"]:
        phrases.append(words.say(_DEPTHS[in_image["depth"]]))
    where = ", ".join(phrases)
    return words.say("{where} (by the image: no gland mask)", where=where)


_THIRDS = {
    "upper": "upper third of the stack",
    "middle": "middle third of the stack",
    "lower": "lower third of the stack",
}
_DEPTHS = {"anterior": "anterior among the regions", "posterior": "posterior among the regions"}


def _place_of_region(
    region: RegionResult, place: JsonObject | None, in_image: JsonObject | None
) -> str:
    """Return the sector that a person named, else an estimate of side and sector, else the zone."""
    if region.sector:
        return region.sector
    if place is None and in_image is not None:
        where = f"{in_image['side']}, {in_image['third']} third (by the image)"
        return f"{region.zone} {where}" if region.zone else where
    if place is None:
        return region.zone
    text = str(place["sector"])
    if place["side"] == "midline":
        text = f"{text}, crosses the midline"
    return f"{text} (estimated)"


def _archive_place(images: StudyImages | None, modality: str, slice_index: int | None) -> str:
    """Name a slice by the archive's numbers of series and image; empty without such numbers."""
    numbers = None
    if images is not None:
        numbers = (images.meta.get("archive") or {}).get(modality)
    if numbers is None or slice_index is None:
        return ""
    series = f"series {numbers['series']}"
    image_number = numbers["images"][slice_index]
    if image_number is None:  # the series has no slice at this place, or its slices no numbers
        return series
    return f"{series} image {image_number}"


def _measured_texts(values: JsonObject, words: Wording) -> dict[str, str]:
    """Return the measurements of a region as text with units, by name."""
    facts = {}
    for key, name, unit in _MEASURED:
        if values.get(key) is not None:
            facts[name] = measured(float(values[key]), unit)
    volume = values.get("volume_mm3")
    if volume is not None:
        facts["volume"] = f"{volume / 1000:.2f} mL"
    if values.get("diameter_mm") is not None:
        facts["diameter"] = f"{values['diameter_mm']:.1f} mm"
    curve_type = values.get("curve_type")
    if curve_type is not None:
        facts["curve type"] = words.say(CURVE_TYPES[int(curve_type)])
    return facts


_MEASURED = (
    ("adc_median", "median ADC", "×10⁻⁶ mm²/s"),
    ("ktrans_median", "median Ktrans", "1/min"),
)
_FIT = (("ktrans_median", "Ktrans", "1/min"), ("ve_median", "ve", ""), ("fit_r2", "R²", ""))


def _no_curve(images: StudyImages | None) -> str:
    """Return the sentence for a region without an enhancement curve."""
    series_missing = images is not None and "dce" in images.meta.get("missing", [])
    return "This study has no dynamic series." if series_missing else "No curve was measured here."


def _display_warnings(values: JsonObject, images: StudyImages | None) -> list[str]:
    """Return reasons to doubt a region's measurements, one sentence for each."""
    warnings = []
    missing_images = images.meta.get("missing", []) if images else []
    for modality in missing_images:
        warnings.append(f"{short_name(modality)} missing: nothing was measured on it")
    fit_r2 = values.get("fit_r2")
    if fit_r2 is not None and fit_r2 < POOR_FIT_R2:
        warnings.append(f"poor Tofts fit: R² {fit_r2:.2f}, below {POOR_FIT_R2:g}")
    volume = values.get("volume_mm3")
    if volume is not None and volume < SMALL_MM3:
        warnings.append(f"small region: {volume:.0f} mm³, less than a ball of 5 mm diameter")
    return warnings
