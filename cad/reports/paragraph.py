"""Write the paragraph that a radiologist's report would hold, ready to be copied."""

from collections.abc import Sequence

from cad.reports.headline import Headline, action_words, readers_words, tool_words, where_words
from cad.reports.regions import RegionView


def paragraph(
    head: Headline, views: Sequence[RegionView], readers: Sequence[str]
) -> list[tuple[str, str]]:
    """Return pairs of what was drawn and measured, and what readers, tool and histology say.

    The second of each is hidden while the page is blinded, and is then not copied either.
    """
    lines = [
        (
            f"Prostate: {', '.join(head.about)}.",
            f"{(head.decision or 'no decision').capitalize()}{head.man}",
        )
    ]
    lines += [(_drawn(view, views), _said(view, readers)) for view in views]
    lines.append(("", "Probabilities are of a research tool, not of a medical device."))
    return lines


def _drawn(view: RegionView, views: Sequence[RegionView]) -> str:
    region, facts = view.region, view.facts
    parts = [
        where_words(view, views),
        region.zone if region.zone and region.zone not in view.where else "",
        f"ADC {view.archive_adc}" if view.archive_adc else "",
        f"median ADC {facts['median ADC']}" if "median ADC" in facts else "",
        f"median Ktrans {facts['median Ktrans']}" if "median Ktrans" in facts else "",
        f"enhancement type {facts['curve type']}" if "curve type" in facts else "",
    ]
    return f"Region {region.roi}: {'; '.join(part for part in parts if part)}."


def _said(view: RegionView, readers: Sequence[str]) -> str:
    histology = f" Histology {view.region.histology_words}." if view.region.histology else ""
    scores = f"readers {readers_words(view.region, readers)}"
    parts = (tool_words(view), scores, action_words(view))
    return f"{'; '.join(parts)}.{histology}"
