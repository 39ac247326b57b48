"""The pages on which readers score a cohort: static files that work from a disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import jinja2

from cad.files import JsonObject, write_atomic
from cad.reports.images import LOSSY_QUALITIES, SLICES_BYTES, StudyImages, viewer_data
from cad.reports.pages import asset, template

TEMPLATES = Path(__file__).parent / "templates"


def write_case(
    path: Path,
    code: str,
    images: StudyImages,
    regions: Sequence[JsonObject],
    drawn_on: JsonObject | None = None,
) -> None:
    """Write a case's slices and outlines as a script: a page on a disk may load nothing else.

    Parameters
    ----------
    path : Path
        ``cases/<code>.js``.
    code : str
        Name of the case for readers; it says nothing of the patient.
    regions : sequence of dict
        ``id`` and ``label`` of every region, and nothing that anybody found.
    drawn_on : dict, optional
        What a corrected outline says of the image below it; without it none is corrected.
    """
    for quality in (None, *LOSSY_QUALITIES):
        data = viewer_data(images, quality)
        if sum(len(layer["source"]) for layer in data["layers"]) <= SLICES_BYTES:
            break
    data |= {"lossy": quality is not None, "regions": list(regions)}
    if drawn_on is not None:
        data["drawn_on"] = drawn_on
    write_atomic(path, f"cadCase({json.dumps(code)}, {json.dumps(data)});\n".encode())


def write_reader_page(path: Path, plan: JsonObject) -> None:
    """Write the page of one reader's session: its plan, the viewer and the scoring script.

    Where the plan has ``outlines``, also what corrects them.
    """
    pen = asset("outline.js", TEMPLATES) if plan.get("outlines") else ""
    page: jinja2.Template = template("reading.html.j2", TEMPLATES)
    text = page.render(
        plan=plan,
        style=asset("report.css") + asset("reading.css", TEMPLATES),
        script=asset("viewer.js") + pen + asset("reading.js", TEMPLATES),
    )
    write_atomic(path, text.encode())
