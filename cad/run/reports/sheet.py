"""Draw sheets of A4 for the tumour board: the content of a man's page as PDF or pictures."""

import json
from collections.abc import Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from cad.base.files import JsonObject
from cad.base.reading import reading
from cad.folders.run_folder.results import RegionResult, Results
from cad.learning.evaluation.summary import Summary
from cad.run.reports.content import PatientContent, patient_content
from cad.run.reports.earlier import EarlierView
from cad.run.reports.headline import RegionSentences, unlike_images, upper_first
from cad.run.reports.images import SCALE_BAR_MM, KeyImage
from cad.run.reports.paper import (
    BOTTOM,
    CAUTION,
    COLOURS,
    DIM,
    INK,
    MARGIN,
    PAGE_WIDTH,
    TOP,
    Paper,
    Passage,
    Run,
    line_height,
    text_width,
    wrapped,
)
from cad.run.reports.plots import probability_text
from cad.run.reports.regions import RegionView, histology_in
from cad.run.reports.sectors import map_lines
from cad.run.reports.views import PatientView
from cad.run.reports.wording import Wording

FIRST_SHEET = 3
"""Number of lesions on the first sheet of a man whose lesions need a second sheet."""
_INNER = PAGE_WIDTH - 2 * MARGIN
_GAP = 1.0
_CAPTION = 2.9
_CURVE_WIDTH = 52.0
_CURVE_HEIGHT = 25.0
_MAP_WIDTH = 60.0
_MAP_UNITS = 264.0
"""Width of the sector map in mm, and width of its drawing in drawing units."""
_MAP_HEIGHT = 29.0
"""Height of the sector map with its legend, mm."""
_HEAD = 8.4
_TEXT = 7.0
_SMALL = 6.4
_MOST_PROBLEMS = 12
_LAYOUT = 3
"""Number of the sheet's layout; raise it with each change of what a sheet shows.

The UID of a sheet is made from this number, and an archive keeps the first object that it gets
under a UID.
"""


class Sheet(NamedTuple):
    """Hold the sheets of one man.

    Parameters
    ----------
    pdf : bytes
        One PDF document.
    pixels : list of ndarray of uint8, shape (H, W, 3)
        Each sheet as a picture; empty if pictures were not requested.
    identity : str
        A text that changes whenever the sheets show something else.
    """

    pdf: bytes
    pixels: list[np.ndarray]
    identity: str


def draw_sheet(
    results: Results,
    metrics: Summary,
    patient: PatientView,
    *,
    who: str = "",
    capture: bool = False,
    language: str = "en",
) -> Sheet:
    """Draw the sheets of one man.

    The content is collected by the same functions as that of his page. A man whose results are held
    back until a reader has scored him gets no sheet; the caller has to check this
    (:func:`cad.folders.run_folder.blinding.held_back`).

    Parameters
    ----------
    results : Results
        Content of the run folder, without results that are held back from a person.
    metrics : Summary
        Measures of the run.
    patient : PatientView
        The man.
    who : str
        Sentence of the catalogue of translations which says that the sheet bears a pseudonym in
        place of the man's name; else empty.
    capture : bool
        Whether pictures are returned, too.
    language : str
        ``en``, ``de`` or ``fr``.

    Returns
    -------
    Sheet
        The PDF and the pictures.

    Raises
    ------
    CadError
        When the content of the run folder cannot be shown.
    """
    with reading(results.folder.root, f"what the run says of {patient.patient} cannot be shown"):
        words = Wording(language)
        content = patient_content(results, metrics, patient, scroller=False, words=words)
        paper = Paper(patient.patient)
        _draw_banner(paper, results, words)
        _draw_title(paper, patient, content, who, words)
        _draw_man(paper, patient, content, words)
        _draw_lesions(paper, content, words)
        _draw_table(paper, content, words)
        _draw_earlier(paper, content.earlier)
        _draw_problems(paper, content, words)
        _draw_feet(paper, patient, results, content.models, words)
        return Sheet(
            pdf=paper.pdf(f"cad: {patient.patient}"),
            pixels=paper.pixels() if capture else [],
            identity=json.dumps([_LAYOUT, paper.identity]),
        )


def _draw_banner(paper: Paper, results: Results, words: Wording) -> None:
    """Write at the head of the sheet what it must not be used for."""
    limits = words.say("Not a medical device; not for diagnosis.")
    passage = [
        Run(words.say("Research use only."), bold=True),
        Run(f" {limits}", colour=DIM),
    ]
    if results.run.get("simulated"):
        simulated = words.say("Trained on simulated patients.")
        passage.append(Run(f" {simulated}", bold=True, colour=CAUTION))
    paper.block([passage], MARGIN, _INNER, _TEXT)
    paper.y += 1


def _draw_title(
    paper: Paper, patient: PatientView, content: PatientContent, who: str, words: Wording
) -> None:
    """Write the man's name, and facts on him and his studies.

    ``who`` is a sentence on his pseudonym, or empty.
    """
    paper.block([[Run(patient.patient, bold=True)]], MARGIN, _INNER, 12)
    status = words.say("tool: {status}", status=words.again(patient.status))
    about = " · ".join([*content.head["about"], status])
    passages = [[Run(about, colour=DIM)]]
    if who:
        passages.append([Run(words.say(who), colour=DIM)])
    paper.block(passages, MARGIN, _INNER, _TEXT)
    paper.y += 0.8


_CALLS = {
    "malignant": "■ Malignant",
    "refer": "◇ Refer",
    "benign": "○ Benign",
    "": "No decision",
}


def _decision_run(decision: str, words: Wording) -> Run:
    """Return the word of a decision with its symbol, in its colour."""
    return Run(words.say(_CALLS[decision]), bold=True, colour=COLOURS[decision])


def _colour(region: RegionResult) -> str:
    """Return the colour of a region's decision, or grey if histology is known.

    Histology counts more than the decision.
    """
    return COLOURS[region.decision] if region.truth is None else DIM


def _draw_man(paper: Paper, patient: PatientView, content: PatientContent, words: Wording) -> None:
    """Draw the decision on the man, how far this decision can be trusted, and the sector map."""
    # If the sector map has anything to show, the text leaves room for it at the right.
    views = [lesion.view for lesion, _ in content.head["lesions"]]
    marked = [view for view in views if view.sector is not None]
    width = _INNER - (_MAP_WIDTH + 3 if marked else 0)

    # The text: the decision in larger type, then in small type how far it can be trusted.
    decision = [_decision_run(patient.decision, words), Run(content.head["man"])]
    decided = [decision]
    if content.head["histology"]:
        decision[0] = decision[0]._replace(colour=DIM)
        # The result of histology is written first. The decision by the tool (the model) follows,
        # for comparison only.
        comparison = Run(f"{words.say('Tool, for comparison:')} ", colour=DIM)
        decided = [[Run(content.head["histology"], bold=True)], [comparison, *decision]]
    reliable: Passage = []
    for text, caution in content.head["reliable"]:
        shown = f"⚠ {text} " if caution else f"{text} "
        reliable.append(Run(shown, colour=CAUTION if caution else DIM))
    if not marked:
        absent = words.say("No sector map: neither gland mask nor sectors.")
        reliable.append(Run(absent, colour=DIM))
    lines_decided = wrapped(decided, width - 5, _HEAD)
    lines_reliable = wrapped([reliable], width - 5, _SMALL)

    # The box around the text. It is at least as high as the sector map beside it.
    height = len(lines_decided) * line_height(_HEAD) + len(lines_reliable) * line_height(_SMALL) + 3
    if marked:
        height = max(height, _MAP_HEIGHT)
    colour = DIM if content.head["histology"] else COLOURS[patient.decision]
    paper.box(MARGIN, paper.y, width, height, colour)
    y = paper.lines(lines_decided, MARGIN + 3, paper.y + 1, _HEAD)
    paper.lines(lines_reliable, MARGIN + 3, y + 0.6, _SMALL)
    if marked:
        marked_ids = [id(view) for view in marked]
        unmarked = [view for view in content.regions if id(view) not in marked_ids]
        unmarked.sort(key=lambda view: view.region.label)
        _draw_sector_map(paper, marked, unmarked, MARGIN + width + 3, paper.y, words)
    paper.y += height + 1.0


def _draw_sector_map(
    paper: Paper,
    views: Sequence[RegionView],
    absent: Sequence[RegionView],
    x: float,
    y: float,
    words: Wording,
) -> None:
    """Draw the sectors of lesions, then name the regions that the map does not show.

    ``views`` are the lesions to draw, ``absent`` the regions to name, and (``x``, ``y``) the left
    upper corner of the map, mm. Numbers below are mm, drawing units (before ``unit``) or sizes of
    type in points.
    """
    unit = _MAP_WIDTH / _MAP_UNITS  # mm for each drawing unit
    map_left = x + 2 * unit
    top = y + 4.5

    # Sectors are filled before borders and marks are drawn over them.
    places = []
    for view in views:
        if view.sector is not None:
            opacity = 0.5 if view.region.truth else 0.28  # proven cancer stands out
            paper.drawing(
                view.sector.path,
                map_left,
                top,
                (unit, unit),
                facecolor=_map_colour(view.region),
                alpha=opacity,
            )
            mark_x, mark_y = view.sector.point
            places.append((map_left + mark_x * unit, top + mark_y * unit))
    paper.drawing(map_lines(), map_left, top, (unit, unit), edgecolor=DIM, linewidth=0.4)

    # Each mark has a shape by its decision, or by histology where that is known.
    for view, (mark_x, mark_y) in zip(views, places, strict=True):
        shape = {"malignant": "s", "refer": "D"}.get(view.region.decision, "o")
        size = 4.0
        if view.region.truth is not None:
            shape = "*" if view.region.truth else "o"
            size = 7.0 if view.region.truth else 4.0
        colour = _map_colour(view.region)
        paper.line(
            [mark_x],
            [mark_y],
            colour,
            width=0,
            marker=shape,
            markersize=size,
            markeredgecolor="white",
        )

    # Names go where they cover neither a mark nor an earlier name. A mark is about 2 mm wide.
    taken = [(mark_x - 1.0, mark_y - 1.0, mark_x + 1.0, mark_y + 1.0) for mark_x, mark_y in places]
    for view, (mark_x, mark_y) in zip(views, places, strict=True):
        width = text_width(view.region.roi, 7, bold=True)
        box = free_box(mark_x, mark_y, width, taken)
        taken.append(box)
        left, _, _, lower = box
        paper.label(view.region.roi, left, lower, 7, colour=INK, bold=True, halo="white")

    # Names of the levels and of the patient's sides, then the legend.
    for number, level in enumerate(("base", "mid", "apex")):
        middle = map_left + (40 + 90 * number) * unit
        paper.label(words.say(level), middle, y + 3, 6.5, side="center")
    paper.label("R", map_left, top + 62 * unit, 6.5)
    paper.label("L", map_left + 260 * unit, top + 62 * unit, 6.5, side="right")
    legend = []
    if any(view.region.truth for view in views):
        legend.append(words.say("★ cancer by histology"))
    if any(view.region.truth is False for view in views):
        legend.append(words.say("● no such cancer by histology"))
    if absent:
        names = ", ".join(view.region.roi for view in absent)
        regions = words.count(len(absent), "region {names}", "regions {names}", names=names)
        legend.append(words.say("not on this map: {regions}", regions=regions))
    passages = [[Run(text, colour=DIM)] for text in legend]
    paper.lines(wrapped(passages, _MAP_WIDTH, 6.0), x, top + 66 * unit, 6.0)


def _map_colour(region: RegionResult) -> str:
    """Return a lesion's colour on the sector map; cancer by histology is dark and stands out."""
    return INK if region.truth else _colour(region)


def free_box(
    x: float, y: float, width: float, taken: Sequence[tuple[float, float, float, float]]
) -> tuple[float, float, float, float]:
    """Return the left, upper, right and lower edge (mm) of the label of a mark on the sector map.

    Of the places to the right, to the left, above and below the mark, the label takes the one where
    it covers least.

    Parameters
    ----------
    x, y : float
        Position of the mark, mm.
    width : float
        Width of the label, mm.
    taken : sequence of (float, float, float, float)
        Left, upper, right and lower edge (mm) of each mark and label that should not be covered.

    Examples
    --------
    A label is to the right of its mark, unless something is there:

    >>> free_box(10.0, 5.0, 2.0, [])[0]
    11.4
    >>> free_box(10.0, 5.0, 2.0, [(11.0, 4.0, 14.0, 6.0)])[0]
    6.6
    """
    height = 1.8
    distance = 1.4  # from the middle of the mark to the label
    to_the_right = (x + distance, y - height / 2)
    to_the_left = (x - distance - width, y - height / 2)
    above = (x - width / 2, y - distance - height)
    below = (x - width / 2, y + distance)
    boxes = []
    for left, upper in (to_the_right, to_the_left, above, below):
        boxes.append((left, upper, left + width, upper + height))

    def covered(box: tuple[float, float, float, float]) -> float:
        """Return the area of marks and labels that a label would cover, mm2."""
        left, upper, right, lower = box
        area = 0.0
        for taken_left, taken_upper, taken_right, taken_lower in taken:
            # Both are negative where the boxes do not overlap.
            common_width = min(right, taken_right) - max(left, taken_left)
            common_height = min(lower, taken_lower) - max(upper, taken_upper)
            area += max(common_width, 0.0) * max(common_height, 0.0)
        return area

    return min(boxes, key=covered)


class _Layout(NamedTuple):
    """Hold how the pictures and the curve of a lesion are arranged on a sheet.

    Parameters
    ----------
    side : float
        Width of a picture, mm.
    curve_below : bool
        Whether the enhancement curve is in the row of pictures, and not beside the text.
    """

    side: float
    curve_below: bool = False


LAYOUTS = (
    _Layout(91.0),
    _Layout(83.0),
    _Layout(75.0),
    _Layout(67.0),
    _Layout(60.3),
    _Layout(45.0),
    _Layout(40.0),
    _Layout(35.6, curve_below=True),
)
"""Layouts in the order of the size of their pictures, the largest first. With the last one, four
lesions fit on one sheet.
"""


class _Lesion(NamedTuple):
    """Hold a lesion for the sheet: ``view`` has its pictures and curve, ``passages`` its text."""

    view: RegionView
    passages: list[Passage]

    def lines(self, layout: _Layout) -> list[Passage]:
        """Return the text on the lesion broken into lines, which are shorter beside an enhancement
        curve.
        """
        curve_beside = self.view.curve is not None and not layout.curve_below
        width = _INNER - 5 - (_CURVE_WIDTH if curve_beside else 0)
        return wrapped(self.passages, width, _TEXT)

    def top(self, layout: _Layout) -> float:
        """Return the height (mm) of the lesion's text and of its enhancement curve, if that is
        beside.
        """
        text_height = len(self.lines(layout)) * line_height(_TEXT)
        curve_beside = self.view.curve is not None and not layout.curve_below
        return max(text_height, _CURVE_HEIGHT) if curve_beside else text_height

    def rows(self, layout: _Layout) -> list[list[KeyImage]]:
        """Divide the pictures into rows that have, as far as possible, equally many pictures."""
        images = self.view.images
        if not images:
            return []
        most_in_row = int((_INNER - 3 + _GAP) // (layout.side + _GAP))
        if layout.curve_below and self.view.curve is not None:
            most_in_row -= 1  # the curve takes the place of one picture
        n_rows = ceil(len(images) / most_in_row)
        in_row = ceil(len(images) / n_rows)
        return [list(images[start : start + in_row]) for start in range(0, len(images), in_row)]

    def height(self, layout: _Layout) -> float:
        """Return the height of the lesion's box and of the space below it, mm."""
        heights = [_row_height(row, layout.side) for row in self.rows(layout)]
        if not heights and layout.curve_below and self.view.curve is not None:
            heights = [_CURVE_HEIGHT]  # without pictures, the curve has a row of its own
        return self.top(layout) + sum(heights) + 2.6

    def fills_its_rows(self, layout: _Layout) -> bool:
        """Tell whether all rows have equally many pictures, so that nothing is left blank."""
        return len({len(row) for row in self.rows(layout)}) < 2


def _draw_lesions(paper: Paper, content: PatientContent, words: Wording) -> None:
    """Draw the lesions that are in the head of the man's page.

    If these lesions and everything below them fit on one sheet, they are drawn on one sheet. If
    not, the first sheet gets three lesions.
    """
    lesions = []
    for lesion, name in content.head["lesions"]:
        study = lesion.view.region.study if len(content.studies) > 1 else ""
        lesions.append(_Lesion(lesion.view, _lesion_words(lesion, name, study, words)))
    other_regions: list[Passage] = []
    if content.head["other_regions"]:
        other_regions = [[Run(content.head["other_regions"], colour=DIM)]]

    # The height of everything that is drawn below the lesions.
    height_below = len(wrapped(other_regions, _INNER, _SMALL)) * line_height(_SMALL)
    height_below += _table_height(content, words) + _problems_height(content, words) + 3
    if content.earlier is not None:
        height_below += _earlier_height(content.earlier) + 3

    room = BOTTOM - paper.y - 3
    layout_of_all = _fitting_layout(lesions, room - height_below)
    if layout_of_all is None:
        layout_first = _fitting_layout(lesions[:FIRST_SHEET], room) or LAYOUTS[-1]
        # The second sheet needs room for the other lesions and for everything that is drawn below
        # them. Its pictures are never the largest, although few lesions would leave room for that.
        room_later = BOTTOM - TOP - 10 - height_below
        layout_later = (
            _fitting_layout(lesions[FIRST_SHEET:], room_later, LAYOUTS[4:]) or LAYOUTS[-1]
        )
    else:
        layout_first = layout_of_all
        layout_later = layout_of_all

    for number, lesion in enumerate(lesions):
        layout = layout_first if number < FIRST_SHEET else layout_later
        paper.make_room(lesion.height(layout))
        _draw_lesion(paper, lesion, layout, words)
    paper.block(other_regions, MARGIN, _INNER, _SMALL)


def _fitting_layout(
    lesions: Sequence[_Lesion], room: float, layouts: Sequence[_Layout] = LAYOUTS
) -> _Layout | None:
    """Return the layout with the largest pictures in which lesions fit a height (mm), or None."""
    for layout in layouts:
        fits = sum(lesion.height(layout) for lesion in lesions) <= room
        if fits and all(lesion.fills_its_rows(layout) for lesion in lesions):
            return layout
    return None


def _lesion_words(lesion: RegionSentences, name: str, study: str, words: Wording) -> list[Passage]:
    """Return the text on a lesion.

    ``name`` says to whom it is the most suspicious region, or is empty. ``study`` names its study
    if the man has several.
    """
    # The title: name, histology and decision. The decision comes last where histology is known.
    view = lesion.view
    region = words.say("Region {region}", region=view.region.roi)
    title = [Run(region, bold=True)]
    if name:
        title.append(Run(f", {name}", colour=DIM))
    outcome = histology_in(view.region, words) or words.say("not known")
    decision = "decision:"
    if view.region.truth is not None:
        title.append(Run("; "))
        title.append(Run(words.say("histology: {histology}", histology=outcome), bold=True))
        decision = "tool, for comparison:"
    title.append(Run(f"; {words.say(decision)} ", colour=DIM))
    title.append(_decision_run(view.region.decision, words)._replace(colour=_colour(view.region)))
    where = f"{lesion.where}, {study}." if study else f"{lesion.where}."

    # The tool's results: probability, belief, reasons and measurements.
    tool = [Run(f"{upper_first(lesion.tool)}.", bold=True)]
    if lesion.belief:
        tool.append(Run(f" {upper_first(lesion.belief)}."))
    if view.reasons is not None:
        tool.append(Run(f" {view.reasons.sentence_in(words)}"))
    facts = []
    for fact, text in view.facts.items():
        if fact in _SHOWN_FACTS:
            facts.append(words.say(_SHOWN_FACTS[fact], value=text))
    if facts:
        tool.append(Run(f" {words.say('Measured: {facts}.', facts=', '.join(facts))}"))

    # The results of readers and histology.
    scores = [Run(words.say("Readers: {scores}.", scores=lesion.readers))]
    if view.region.truth is None:
        histology = words.say("Histology, apart from the tool: {histology}.", histology=outcome)
        scores.append(Run(f" {histology}", colour=DIM))
    passages = [
        title,
        [Run(upper_first(where))],
        tool,
        scores,
        [Run(f"{lesion.action}.")],
    ]
    if view.region.unlike:
        images = unlike_images([view.region], words)
        unlike = words.say("Unlike the training in {images}: less to be trusted.", images=images)
        passages.append([Run(f"⚠ {unlike}", colour=CAUTION)])
    return passages


_SHOWN_FACTS = {
    "median ADC": "median ADC {value}",
    "median Ktrans": "median Ktrans {value}",
    "curve type": "enhancement type {value}",
}
"""Measurements that the text on a lesion gives, each with the phrase for it."""


_TITLES = {"DCE relative enhancement": "Enhancement"}
"""Shorter titles of pictures on the sheet, by their titles on the page."""


def _row_height(row: Sequence[KeyImage], side: float) -> float:
    """Return the height (mm) of a row of pictures of width ``side`` with their captions."""
    captions = _CAPTION * (2 if _two_lines(row, side) else 1)
    return max(_picture_height(image, side) for image in row) + captions + 0.6


def _two_lines(row: Sequence[KeyImage], side: float) -> bool:
    """Tell whether a caption of a row is too long for one line in readable type."""
    room_for_title = side - 24  # the text on the window takes up to 24 mm
    return any(text_width(_title_of(image), 6.5, bold=True) > room_for_title for image in row)


def _picture_height(image: KeyImage, side: float) -> float:
    return side * image.height / image.width


def _draw_lesion(paper: Paper, lesion: _Lesion, layout: _Layout, words: Wording) -> None:
    """Draw the box of a lesion: its text, below it its pictures, and its curve where it fits."""
    view = lesion.view
    height = lesion.height(layout) - 1.0  # without the space below the box
    top = paper.y
    paper.box(MARGIN, top, _INNER, height, _colour(view.region))
    paper.lines(lesion.lines(layout), MARGIN + 3, top + 0.5, _TEXT)
    if view.curve is not None and not layout.curve_below:
        right = MARGIN + _INNER
        _draw_curve(
            paper, view, right - _CURVE_WIDTH, top + 0.5, _CURVE_WIDTH, _CURVE_HEIGHT, words
        )
    y = top + lesion.top(layout) + 1.0
    x = MARGIN + 2
    row_height = _CURVE_HEIGHT  # the height of the curve if there are no pictures
    for row in lesion.rows(layout):
        x = MARGIN + 2
        two_lines = _two_lines(row, layout.side)
        for image in row:
            _draw_picture(paper, image, x, y, layout.side, two_lines, words)
            x += layout.side + _GAP
        row_height = _row_height(row, layout.side)
        y += row_height
    if view.curve is not None and layout.curve_below:
        # The curve stands behind the last picture of the last row.
        _draw_curve(paper, view, x + 1, y - row_height, layout.side, row_height, words)
    paper.y = top + height + 1.0


def _draw_curve(
    paper: Paper,
    view: RegionView,
    x: float,
    y: float,
    width: float,
    height: float,
    words: Wording,
) -> None:
    """Draw a lesion's enhancement curve with the titles of its axes."""
    if view.curve is None:
        return
    legend = f"● {words.say('measured')}"
    if view.curve.fit:
        legend += f", ━ {words.say('Tofts fit')}"
    titles = (words.say(view.curve.quantity), words.say("time, min"), legend)
    paper.curve(view.curve, titles, x, y, width, height)


def _title_of(image: KeyImage) -> str:
    """Return the English title of a picture, with the b-value of a high-b image."""
    return f"{_TITLES.get(image.title, image.title)} {image.detail}".strip()


def _draw_picture(
    paper: Paper,
    image: KeyImage,
    x: float,
    y: float,
    side: float,
    two_lines: bool,
    words: Wording,
) -> None:
    """Draw a slice with its outlines, letters for the patient's sides and a scale bar.

    Below it are the title and the window, the values that are shown as black and as white.
    (``x``, ``y``) is the left upper corner of the picture and ``side`` its width, mm. Numbers below
    are mm, or sizes of type and of lines in points.
    """
    scale = side / image.width  # mm on paper for each mm in the patient
    height = image.height * scale
    voxel_x, voxel_y = image.scale
    voxel = (voxel_x * scale, voxel_y * scale)
    paper.picture(image.source, x, y, side, height)
    if image.outline_of_others:
        dashes = {"edgecolor": "white", "linewidth": 0.6, "linestyle": (0, (3, 3)), "alpha": 0.8}
        paper.drawing(image.outline_of_others, x, y, voxel, **dashes)
    # A dark rim keeps the white outline visible on bright tissue.
    paper.drawing(image.outline, x, y, voxel, edgecolor="black", linewidth=1.6, alpha=0.5)
    paper.drawing(image.outline, x, y, voxel, edgecolor="white", linewidth=0.8)
    for name, x_mm, y_mm in image.neighbours:
        paper.label(
            name, x + x_mm * scale, y + y_mm * scale, 6, side="center", colour="white", halo="black"
        )
    left_letter, right_letter, upper_letter, _ = image.sides
    if left_letter:  # the letters are empty where the patient's directions are not known
        middle = y + height / 2 + 1
        style: dict[str, Any] = {"bold": True, "colour": "white", "halo": "black"}
        paper.label(left_letter, x + 1, middle, 7, **style)
        paper.label(right_letter, x + side - 1, middle, 7, side="right", **style)
        paper.label(upper_letter, x + side / 2, y + 3, 7, side="center", **style)
    bar_y = y + height - 2
    bar = SCALE_BAR_MM * scale
    paper.line([x + 1.5, x + 1.5 + bar], [bar_y, bar_y], "white", 1.2)
    paper.label(f"{SCALE_BAR_MM} mm", x + 2.3 + bar, bar_y + 0.7, 6, colour="white", halo="black")

    # The caption: title and window in one line, or in two lines if it is long.
    title = words.say(_TITLES.get(image.title, image.title))
    low, high = (f"{value:.{image.digits}f}".replace("-", "−") for value in image.window)
    unit = f" {image.unit}" if image.unit else ""
    window = words.say("window {low} to {high}{unit}", low=low, high=high, unit=unit)
    if image.detail:
        title += f" {image.detail}"
    title_y = y + height + 2.4
    paper.label(title, x, title_y, 6.5, colour=INK, bold=True)
    if two_lines:
        title_width = 0.0
        window_y = title_y + (_CAPTION - 0.3)
    else:
        title_width = text_width(f"{title}  ", 6.5, bold=True)
        window_y = title_y
    # A long text gets smaller type. Otherwise it would run into the caption of the next picture.
    size = min(6.0, 6.0 * (side - title_width) / text_width(window, 6.0))
    paper.label(window, x + title_width, window_y, size)


def _has_table(content: PatientContent) -> bool:
    return len(content.regions) > len(content.head["lesions"])


def _table_height(content: PatientContent, words: Wording) -> float:
    """Return the height of the table of all regions, mm."""
    if not _has_table(content):
        return 0.0
    head, rows, places = _table_cells(content, words)
    height = 2.0
    for cells in (head, *rows):
        height += _cells_height(_in_columns(cells, places, INK)) + 0.4
    return height


def _draw_table(paper: Paper, content: PatientContent, words: Wording) -> None:
    """Draw the table of all regions, if the sheet does not show all of them with pictures."""
    if not _has_table(content):
        return
    head, rows, places = _table_cells(content, words)
    # The head of the table must be on the same sheet as the first row. So room for several lines is
    # made at once.
    paper.make_room(5 * line_height(_SMALL))
    paper.y += 1
    _draw_row(paper, head, places, DIM)
    for cells in rows:
        _draw_row(paper, cells, places, INK)
    paper.y += 1


def _table_cells(
    content: PatientContent, words: Wording
) -> tuple[list[str], list[list[str]], list[float]]:
    """Return head, rows and left edges (mm) of the columns of the table of all regions."""
    # A run without histology has no probabilities of cancer. Both columns then hold the belief.
    of_cancer = any(view.region.of_cancer for view in content.regions)
    belief = words.say("Readers, as estimated")
    head = [
        words.say("Region"),
        words.say("Where"),
        words.say("Diameter"),
        words.say("Probability") if of_cancer else belief,
        belief,
        words.say("Decision"),
        words.say("Readers"),
    ]
    places = [0.0, 12.0, 88.0, 105.0, 123.0, 142.0, 167.0]
    any_histology = any(view.region.histology_words for view in content.regions)
    if any_histology:
        head.append(words.say("Histology"))
        places = [0.0, 11.0, 67.0, 84.0, 100.0, 118.0, 136.0, 155.0]
    rows = []
    for view in content.regions:
        region = view.region
        cells = [
            region.roi,
            view.place or "–",
            view.diameter,
            probability_text(region.probability),
            probability_text(region.belief),
            _decision_run(region.decision, words).text,
            " ".join(score for _, score in region.scores) or "–",
        ]
        if any_histology:
            cells.append(histology_in(region, words) or "–")
        rows.append(cells)
    return head, rows, places


_FIRST_COLUMN = 33.0
"""Width of the first column of the table on the earlier study, mm."""


def _earlier_words(earlier: EarlierView) -> list[Passage]:
    """Return two paragraphs on the earlier study of a man.

    The first has facts, each with its value in the earlier and in the latest study. The second has
    sentences that compare the studies.
    """
    facts = []
    for name, earlier_value, latest_value in earlier.facts:
        facts.append(f"{name} {earlier_value} → {latest_value}")
    return [
        [Run(f"{earlier.title}. ", bold=True), Run(" · ".join(facts))],
        [Run(" ".join(earlier.sentences), colour=DIM)],
    ]


def _earlier_height(earlier: EarlierView) -> float:
    """Return the height of the text and table on the earlier study, mm."""
    lines = len(wrapped(_earlier_words(earlier), _INNER, _SMALL))
    rows = len(earlier.regions) + 1 if earlier.regions else 0
    return (lines + rows) * line_height(_SMALL) + 0.4 * rows + 2


def _draw_earlier(paper: Paper, earlier: EarlierView | None) -> None:
    """Draw the comparison with the man's earlier study: text, and a table of regions."""
    if earlier is None:
        return
    passages = _earlier_words(earlier)
    height = len(wrapped(passages, _INNER, _SMALL)) * line_height(_SMALL)
    # The head of the table must be on the same sheet as the first row. So room for the text and
    # several lines is made at once.
    paper.make_room(height + 3 * line_height(_SMALL) + 1)
    paper.y += 1
    paper.block(passages, MARGIN, _INNER, _SMALL)
    if not earlier.regions:
        return
    # The first column has the width of a name; the others share the remaining width equally.
    places = [0.0]
    n_others = len(earlier.regions_head) - 1
    width = (_INNER - _FIRST_COLUMN) / n_others
    for number in range(n_others):
        places.append(_FIRST_COLUMN + number * width)
    _draw_row(paper, earlier.regions_head, places, DIM)
    for cells in earlier.regions:
        _draw_row(paper, cells, places, INK)
    paper.y += 1


def _draw_row(paper: Paper, cells: Sequence[str], places: Sequence[float], colour: str) -> None:
    """Draw a row of a table; a cell is broken into lines within its column."""
    columns = _in_columns(cells, places, colour)
    height = _cells_height(columns)
    paper.make_room(height)
    for lines, start in zip(columns, places, strict=True):
        paper.lines(lines, MARGIN + start, paper.y, _SMALL)
    paper.y += height + 0.4


def _in_columns(cells: Sequence[str], places: Sequence[float], colour: str) -> list[list[Passage]]:
    """Return, for each cell of a row of a table, its text broken into lines that fit its column."""
    ends = [*places[1:], _INNER]
    columns = []
    for cell, start, end in zip(cells, places, ends, strict=True):
        columns.append(wrapped([[Run(cell, colour=colour)]], end - start - 2, _SMALL))
    return columns


def _cells_height(columns: Sequence[Sequence[Passage]]) -> float:
    return max(map(len, columns)) * line_height(_SMALL)


def _draw_problems(paper: Paper, content: PatientContent, words: Wording) -> None:
    """Write the list of missing images and failures."""
    passages = _problem_words(content, words)
    if passages:
        paper.y += 1
        paper.block(passages, MARGIN, _INNER, _SMALL)


def _problems_height(content: PatientContent, words: Wording) -> float:
    """Return the height of the list of missing images and failures, mm."""
    lines = wrapped(_problem_words(content, words), _INNER, _SMALL)
    return len(lines) * line_height(_SMALL) + (1 if lines else 0)


def _problem_words(content: PatientContent, words: Wording) -> list[Passage]:
    """Return the list of missing images and failures; messages of the program stay in English."""
    texts = []
    for study in content.studies:
        if study.lost:
            texts.append(words.say("No pictures: {reason}", reason=study.lost))
        for name in study.missing:
            sentence = "{name} is missing from this study: nothing was measured on it."
            texts.append(words.say(sentence, name=name))
        for failure in study.failures:
            # Of some failures the stage of the run is not recorded.
            where = failure.get("stage") or words.again("failed")
            if failure.get("roi_id"):
                where += f", {words.say('region {names}', names=failure['roi_id'])}"
            texts.append(f"{where}: {failure['reason']}")
    if not texts:
        return []
    n_left_out = len(texts) - _MOST_PROBLEMS
    if n_left_out > 0:
        left_out = words.say("and {number} more, which the page lists", number=str(n_left_out))
        texts = [*texts[:_MOST_PROBLEMS], left_out]
    passages: list[Passage] = [[Run(words.say("Missing or failed"), bold=True)]]
    for text in texts:
        passages.append([Run("⚠ ", colour=CAUTION), Run(text)])
    return passages


def _draw_feet(
    paper: Paper,
    patient: PatientView,
    results: Results,
    models: Sequence[JsonObject],
    words: Wording,
) -> None:
    """Write the number of the sheet, the model and the program's version below each sheet."""
    # A validation has no model with a name; the name of its run then takes this place.
    names = ", ".join(str(model["name"]) for model in models)
    if names:
        made_by = words.say("model {names}", names=names)
    else:
        made_by = words.say("run {name}", name=str(results.run.get("name")))
    version = str(results.run.get("cad_version", "–"))
    limits = words.say("research use only, not a medical device")
    texts = []
    for number in range(1, paper.n_sheets + 1):
        sheet = words.say("sheet {number} of {all}", number=str(number), all=str(paper.n_sheets))
        texts.append(f"{sheet} · {made_by} · cad {version} · {limits} · {patient.patient}")
    paper.feet(texts)
