"""Write the paragraph that a radiologist's report would hold, ready to be copied."""

from __future__ import annotations

from collections.abc import Sequence

from cad.reports.headline import Headline, image_text
from cad.reports.plots import probability_text
from cad.reports.regions import RegionView


def paragraph(head: Headline, views: Sequence[RegionView]) -> list[tuple[str, str]]:
    """Return pairs of what was drawn and measured, and what readers, tool and histology say.

    The second of each is hidden while the page is blinded, and is then not copied either.
    """
    gland = ", ".join(f"{answer.title} {answer.text}" for answer in head.gland)
    lines = [(f"Prostate: {gland}.", "")] if gland else []
    for view in views:
        lines.append((_drawn(view), _said(view)))
    lines.append(("", "Probabilities are of a research tool, not of a medical device."))
    return lines


def _drawn(view: RegionView) -> str:
    region, facts = view.region, view.facts
    size = ", ".join(facts[key] for key in ("diameter", "volume") if key in facts)
    parts = [
        view.where,
        # A sector names its zone.
        region.zone if view.where != region.zone else "",
        size,
        image_text(view),
        f"ADC {view.archive_adc}" if view.archive_adc else "",
        f"median ADC {facts['median ADC']}" if "median ADC" in facts else "",
        f"median Ktrans {facts['median Ktrans']}" if "median Ktrans" in facts else "",
        f"enhancement type {facts['curve type']}" if "curve type" in facts else "",
    ]
    return f"Region {region.roi}: {'; '.join(part for part in parts if part)}."


def _said(view: RegionView) -> str:
    region = view.region
    scores = ", ".join(f"{reader} {score}" for reader, score in region.scores)
    parts = [
        f"{'PI-RADS' if view.pirads else 'Scores'} {scores}" if scores else "",
        f"tool P {probability_text(region.probability)}"
        + (f" ({view.outline})" if view.outline else ""),
        f"no decision is stated ({'; '.join(view.verdict.against)})"
        if view.verdict.against
        else view.verdict.stated,
        f"histology {region.histology}" + (f" ISUP {region.isup}" if region.isup else "")
        if region.histology
        else "",
    ]
    return f"{'; '.join(part for part in parts if part)}."
