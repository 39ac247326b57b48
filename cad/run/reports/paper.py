"""Draw on sheets of A4 in millimetres: wrapped text, pictures, and the drawings of HTML pages."""

import base64
import hashlib
import io
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from cad.base.doors import door
from cad.run.reports.plots import HEIGHT, WIDTH, CurvePlot

PAGE_WIDTH = 210.0
PAGE_HEIGHT = 297.0
MARGIN = 12.0
"""White border at the left and at the right, mm."""
TOP = 6.0
BOTTOM = 290.0
"""Upper and lower end of the content of a sheet, mm from the sheet's upper edge."""
_MM_PER_INCH = 25.4
_MM_PER_POINT = _MM_PER_INCH / 72
_LINE = 1.25
"""Distance of two lines, as a multiple of the size of their type."""
_RISE = 0.93
"""Distance of the base line from the top of its line, as a multiple of the size of the type."""
CAPTURE_DPI = 150
_PEN = re.compile(r"([Mhvz])([^Mhvz]*)")

INK = "#15191c"
DIM = "#4a535b"
RULE = "#c4c9ce"
ACCENT = "#0b5a97"
CAUTION = "#6b5600"
COLOURS = {"malignant": "#a63c05", "refer": "#6b5600", "benign": "#0b5a97", "": DIM}
"""Colour of each decision, as in the style sheet of printed pages."""


class Run(NamedTuple):
    """Hold a piece of text in one style.

    Parameters
    ----------
    text : str
        The text. If it does not begin with a space, it continues the last word of the piece before.
    bold : bool
        Whether the type is bold.
    colour : str
        Colour of the text.
    """

    text: str
    bold: bool = False
    colour: str = INK


Passage = list[Run]
"""A paragraph: pieces of text, each in one style."""


def line_height(size: float) -> float:
    """Return the height of a line of type in mm.

    Parameters
    ----------
    size : float
        Size of the type in points.

    Examples
    --------
    >>> round(line_height(10.0), 2)
    4.41
    """
    return size * _LINE * _MM_PER_POINT


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Return the width of a text in mm.

    Parameters
    ----------
    text : str
        One line of text.
    size : float
        Size of the type in points.
    bold : bool
        Whether the type is bold.
    """
    return _width_in_points(text, bold) * size / 10 * _MM_PER_POINT


def wrapped(passages: Sequence[Passage], width: float, size: float) -> list[Passage]:
    """Break paragraphs into lines, between words; a word that is too long is cut.

    Parameters
    ----------
    passages : sequence of Passage
        The paragraphs.
    width : float
        Largest width that a line may have, mm.
    size : float
        Size of the type in points.

    Returns
    -------
    list of Passage
        One passage for each line.

    Examples
    --------
    >>> lines = wrapped([[Run("left mid"), Run(" peripheral zone", bold=True)]], 25.0, 10.0)
    >>> ["".join(run.text for run in line) for line in lines]
    ['left mid', 'peripheral', 'zone']
    """
    lines: list[Passage] = []
    for passage in passages:
        line: Passage = []
        line_width = 0.0
        for word in _words_of_passage(passage, width, size):
            word_width = sum(text_width(run.text, size, run.bold) for run in word)
            # The space before a word is in the style in which the word begins.
            space_width = text_width(" ", size, word[0].bold) if line else 0.0
            if line and line_width + space_width + word_width > width:
                # The word does not fit, and begins a new line.
                lines.append(line)
                line = []
                line_width = 0.0
                space_width = 0.0
            if line:
                line = [*line, Run(" ", word[0].bold, word[0].colour)]
            line = [*line, *word]
            line_width += space_width + word_width
        lines.append(line)
    return lines


def _words_of_passage(passage: Passage, width: float, size: float) -> list[Passage]:
    """Split a paragraph into words; a word may have several styles.

    A word that is wider than a line (``width``, mm) becomes several words.
    """
    words: list[Passage] = []
    continues_word = False
    for run in passage:
        # Pieces are words or the space between them. A no-break space belongs to its word.
        for piece in re.findall(r"[\S\u00a0]+|[^\S\u00a0]+", readable(run.text)):
            if piece.isspace():
                continues_word = False
                continue
            for cut in _cut_word(piece, width, size, run.bold):
                styled = Run(cut, run.bold, run.colour)
                if continues_word:
                    words[-1].append(styled)
                else:
                    words.append([styled])
                # If a word was cut into pieces, each further piece counts as a new word.
                continues_word = False
            # Text of another style continues this word, unless a space comes first.
            continues_word = True
    return words


def _cut_word(word: str, width: float, size: float, bold: bool) -> list[str]:
    """Cut a word into pieces that fit into a line."""
    pieces = [""]
    for sign in word:
        if pieces[-1] and text_width(pieces[-1] + sign, size, bold) > width:
            pieces.append("")
        pieces[-1] += sign
    return pieces


def readable(text: str) -> str:
    """Return a text in which a code such as ``⟨U+5F20⟩`` replaces each sign that the font lacks.

    Without this the sign would be printed as an empty box, and two names could look alike.

    Parameters
    ----------
    text : str
        Any text.

    Examples
    --------
    >>> readable("sub-张")
    'sub-⟨U+5F20⟩'
    """
    shown = []
    for sign in text:
        printable = sign.isspace() or _has_shape(sign)
        shown.append(sign if printable else f"⟨U+{ord(sign):04X}⟩")
    return "".join(shown)


class Paper:
    """Draw on one or several sheets, and return them as PDF or pictures.

    Parameters
    ----------
    name : str
        Text at the head of every sheet after the first.

    Attributes
    ----------
    y : float
        Upper end of the next block, mm from the upper edge of the last sheet.
    content : list of str
        All texts, pictures and paths that were drawn, without their positions.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.y = TOP
        self.content: list[str] = []
        self._figures: list[Any] = []
        self._axes: Any = None
        self.new_sheet()

    @property
    def n_sheets(self) -> int:
        """Return the number of sheets."""
        return len(self._figures)

    def new_sheet(self) -> None:
        """Begin a sheet; every sheet after the first gets the name at its head."""
        from matplotlib.figure import Figure  # imported here, because the import takes long

        size = (PAGE_WIDTH / _MM_PER_INCH, PAGE_HEIGHT / _MM_PER_INCH)
        figure = Figure(figsize=size, facecolor="white", dpi=CAPTURE_DPI)
        self._figures.append(figure)
        self._take(len(self._figures) - 1)
        self.y = TOP
        if self.n_sheets > 1:
            self.block([[Run(self.name, bold=True)]], MARGIN, PAGE_WIDTH - 2 * MARGIN, 9)
            self.y += 1

    def _take(self, number: int) -> None:
        """Let all further drawing be on the sheet with this number, counted from 0."""
        figure = self._figures[number]
        if figure.axes:
            self._axes = figure.axes[0]
            return
        # A new sheet gets axes that fill it, in mm from its left upper corner.
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, PAGE_WIDTH)
        axes.set_ylim(PAGE_HEIGHT, 0)
        axes.set_axis_off()
        self._axes = axes

    def make_room(self, height: float) -> None:
        """Begin another sheet if a block of this height (mm) does not fit on the present sheet."""
        if self.y + height > BOTTOM:
            self.new_sheet()

    def lines(self, lines: Sequence[Passage], x: float, y: float, size: float) -> float:
        """Write lines of text, and return their lower end (mm).

        Parameters
        ----------
        lines : sequence of Passage
            Lines from :func:`wrapped`.
        x, y : float
            Left upper corner, mm.
        size : float
            Size of the type in points.

        Returns
        -------
        float
            Lower end of the last line, in mm from the upper edge of the sheet; ``y`` without lines.
        """
        for line in lines:
            self.content.append("".join(run.text for run in line))
            run_x = x
            base_line = y + _RISE * size * _MM_PER_POINT
            for run in _joined_passages(line):
                self._write(run.text, run_x, base_line, size, run.bold, run.colour)
                run_x += text_width(run.text, size, run.bold)
            y += line_height(size)
        return y

    def block(self, passages: Sequence[Passage], x: float, width: float, size: float) -> None:
        """Write paragraphs below the present content; they may continue on another sheet.

        Parameters
        ----------
        passages : sequence of Passage
            The paragraphs.
        x, width : float
            Left edge, and width of the longest line, mm.
        size : float
            Size of the type in points.
        """
        for line in wrapped(passages, width, size):
            self.make_room(line_height(size))
            self.y = self.lines([line], x, self.y, size)

    def label(
        self,
        text: str,
        x: float,
        y: float,
        size: float,
        *,
        colour: str = DIM,
        bold: bool = False,
        side: str = "left",
        halo: str = "",
    ) -> None:
        """Write a word into a drawing, with its base line at ``y``.

        Parameters
        ----------
        text : str
            The word.
        x, y : float
            Place, mm.
        size : float
            Size of the type in points.
        colour : str
            Colour of the word.
        bold : bool
            Whether the type is bold.
        side : str
            ``left``, ``center`` or ``right``: the side of the word that is at ``x``.
        halo : str
            Colour of a rim that keeps the word readable on a picture; empty for none.
        """
        self.content.append(text)
        self._write(readable(text), x, y, size, bold, colour, side, halo)

    def _write(
        self,
        text: str,
        x: float,
        y: float,
        size: float,
        bold: bool,
        colour: str,
        side: str = "left",
        halo: str = "",
    ) -> None:
        """Write text with its base line at ``y``; see :meth:`label` for the arguments."""
        effects = []
        if halo:
            from matplotlib.patheffects import withStroke

            effects.append(withStroke(linewidth=1.6, foreground=halo))
        self._axes.text(
            x,
            y,
            text,
            fontproperties=_font(bold),
            fontsize=size,
            color=colour,
            horizontalalignment=side,
            verticalalignment="baseline",
            parse_math=False,  # a dollar sign is no formula
            path_effects=effects,
        )

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """Draw a frame with a thick, coloured left edge; all lengths are in mm."""
        from matplotlib.patches import Rectangle

        frame = Rectangle((x, y), width, height, facecolor="none", edgecolor=RULE, linewidth=0.6)
        self._axes.add_patch(frame)
        edge = Rectangle((x, y), 1.1, height, facecolor=colour, edgecolor="none")
        self._axes.add_patch(edge)

    def line(
        self,
        xs: Sequence[float],
        ys: Sequence[float],
        colour: str,
        width: float,
        **style: Any,
    ) -> None:
        """Draw a line through places in mm.

        Parameters
        ----------
        xs, ys : sequence of float
            Places, mm.
        colour : str
            Colour of the line.
        width : float
            Width of the line in points.
        **style
            Further properties of matplotlib's lines.
        """
        self._axes.plot(xs, ys, color=colour, linewidth=width, scalex=False, scaley=False, **style)

    def picture(self, source: str, x: float, y: float, width: float, height: float) -> None:
        """Draw a picture, given as a data URL, into a rectangle in mm."""
        self.content.append(source)  # for the property `identity`, a hash of all content
        pixels = _pixels(source)
        # With aspect="auto" the picture fills the rectangle. Voxels need not be square. Any other
        # aspect would change the axes of the sheet, whose units are mm.
        self._axes.imshow(
            pixels,
            cmap="gray",
            vmin=0,
            vmax=255,
            extent=(x, x + width, y + height, y),
            aspect="auto",
            interpolation="bilinear",
            interpolation_stage="data",
        )
        # imshow has set the limits of the axes to the picture. They are those of the sheet again.
        self._axes.set_xlim(0, PAGE_WIDTH)
        self._axes.set_ylim(PAGE_HEIGHT, 0)

    def drawing(
        self, path: str, x: float, y: float, scale: tuple[float, float], **style: Any
    ) -> None:
        """Draw an SVG path that is also drawn on a page.

        Parameters
        ----------
        path : str
            The attribute ``d``, with the commands M, h, v and z only.
        x, y : float
            Position of the path's origin on the sheet, mm.
        scale : (float, float)
            Size of the path's unit along x and y, mm.
        **style
            Properties of matplotlib's ``PathPatch``.
        """
        from matplotlib.patches import PathPatch

        self.content.append(path)  # for the property `identity`, a hash of all content
        patch_style = {"facecolor": "none", "edgecolor": "none", **style}
        self._axes.add_patch(PathPatch(_path(path, (x, y), scale), **patch_style))

    def curve(
        self,
        plot: CurvePlot,
        titles: tuple[str, str, str],
        x: float,
        y: float,
        width: float,
        height: float,
    ) -> None:
        """Draw an enhancement curve with its axes into a rectangle in mm.

        Parameters
        ----------
        plot : CurvePlot
            The curve in its drawing units.
        titles : (str, str, str)
            Title of the vertical axis, which is written above it; title of the horizontal axis;
            legend of points and line.
        x, y, width, height : float
            The rectangle, mm.
        """
        # Numbers below are mm, or sizes of type and of lines in points.
        self.content.append(repr(plot))  # for the property `identity`, a hash of all content
        # The plot leaves room for labels and titles. One drawing unit is unit_x by unit_y mm.
        left = x + 9.0
        top = y + 4.2
        unit_x = (width - 11.0) / WIDTH
        unit_y = (height - 11.0) / HEIGHT
        right = left + WIDTH * unit_x
        bottom = top + HEIGHT * unit_y

        for tick, text in plot.y_ticks:
            tick_y = top + tick * unit_y
            self.line([left, right], [tick_y, tick_y], RULE, 0.5)
            self.label(text, left - 1, tick_y + 0.8, 6, side="right")
        for tick, text in plot.x_ticks:
            tick_x = left + tick * unit_x
            self.line([tick_x, tick_x], [bottom, bottom + 0.8], DIM, 0.5)
            self.label(text, tick_x, bottom + 3.2, 6, side="center")

        # The fit is the text "x,y x,y ..." of an SVG polyline; empty without a fit.
        fit_xs = []
        fit_ys = []
        for pair in plot.fit.split():
            fit_x, fit_y = map(float, pair.split(","))
            fit_xs.append(left + fit_x * unit_x)
            fit_ys.append(top + fit_y * unit_y)
        if fit_xs:
            self.line(fit_xs, fit_ys, ACCENT, 1.2)
        xs = [left + point_x * unit_x for point_x, _ in plot.points]
        ys = [top + point_y * unit_y for _, point_y in plot.points]
        self.line(xs, ys, INK, 0, marker="o", markersize=1.6, markeredgewidth=0)

        vertical, horizontal, legend = titles
        self.label(vertical, x, y + 2.2, _fitting_size(vertical, 6.0, width))
        self.label(horizontal, right, bottom + 6, 6, side="right")
        room_for_legend = width - text_width(horizontal, 6.0) - 3
        self.label(legend, x, bottom + 6, _fitting_size(legend, 6.0, room_for_legend))

    def feet(self, texts: Sequence[str]) -> None:
        """Write one line at the foot of each sheet.

        Parameters
        ----------
        texts : sequence of str
            A text for each sheet, in order.
        """
        for number, text in enumerate(texts):
            self._take(number)
            self.line([MARGIN, PAGE_WIDTH - MARGIN], [BOTTOM + 1, BOTTOM + 1], RULE, 0.6)
            # A text that is too long for the line gets smaller type, so that no name is cut off.
            room = PAGE_WIDTH - 2 * MARGIN
            size = min(6.5, 6.5 * room / text_width(readable(text), 6.5))
            self.lines([[Run(readable(text), colour=DIM)]], MARGIN, BOTTOM + 1.6, size)

    @property
    def identity(self) -> str:
        """Return a hash of everything that was drawn."""
        return hashlib.sha256("\n".join(self.content).encode()).hexdigest()

    def pdf(self, title: str) -> bytes:
        """Return the sheets as one PDF. Equal content gives equal bytes.

        Parameters
        ----------
        title : str
            Title of the document.
        """
        from matplotlib import rc_context
        from matplotlib.backends.backend_pdf import PdfPages

        stream = io.BytesIO()
        # The PDF states no date, so that equal content gives equal bytes. Fonts of type 42 keep its
        # text searchable.
        stated = {"Title": title, "Creator": "cad", "Producer": None, "CreationDate": None}
        with rc_context({"pdf.fonttype": 42}), PdfPages(stream, metadata=stated) as pages:
            for figure in self._figures:
                pages.savefig(figure, dpi=2 * CAPTURE_DPI)
        return stream.getvalue()

    def pixels(self) -> list[np.ndarray]:
        """Return every sheet as a picture.

        Returns
        -------
        list of ndarray of uint8, shape (H, W, 3)
            Red, green and blue, at :data:`CAPTURE_DPI`.
        """
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        shown = []
        # Hinting fits letters to pixels and would make them up to 4 % wider than ``text_width``
        # computes. Words would then overlap.
        with rc_context({"text.hinting": "none"}):
            for figure in self._figures:
                canvas = FigureCanvasAgg(figure)
                canvas.draw()
                shown.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
        return shown


def _fitting_size(text: str, size: float, room: float) -> float:
    """Return the size of type in points, at most ``size``, at which a text fits a width (mm)."""
    return min(size, size * room / text_width(text, size))


def _joined_passages(line: Passage) -> Passage:
    """Join neighbouring pieces of text of one style, so that a line can be searched and copied."""
    joined: Passage = []
    for run in line:
        if joined and (joined[-1].bold, joined[-1].colour) == (run.bold, run.colour):
            joined[-1] = Run(joined[-1].text + run.text, run.bold, run.colour)
        else:
            joined.append(run)
    return joined


def _path(text: str, origin: tuple[float, float], scale: tuple[float, float]) -> Any:
    """Return SVG path data (commands M, h, v and z) as a path of matplotlib, in mm."""
    from matplotlib.path import Path as Outline

    origin_x, origin_y = origin
    scale_x, scale_y = scale
    places: list[tuple[float, float]] = []
    codes: list[int] = []
    x = y = 0.0  # place of the pen: M sets it, h and v move it along x and y, z closes the line
    for command, numbers in _PEN.findall(text):
        if command == "M":
            x, y = map(float, numbers.split())
        elif command == "h":
            x += float(numbers)
        elif command == "v":
            y += float(numbers)
        code = {"M": Outline.MOVETO, "z": Outline.CLOSEPOLY}.get(command, Outline.LINETO)
        places.append((origin_x + x * scale_x, origin_y + y * scale_y))
        codes.append(int(code))
    return Outline(places or np.empty((0, 2)), codes or None)


@door("own", "pictures of our pages")
def _pixels(source: str) -> np.ndarray:
    """Return the pixels of a picture that :func:`cad.run.reports.images.data_url` encoded."""
    _, _, encoded = source.partition(",")
    content = base64.b64decode(encoded)
    return np.asarray(Image.open(io.BytesIO(content)))


@cache
def _font(bold: bool) -> Any:
    from matplotlib.font_manager import FontProperties

    return FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")


@cache
def _face(bold: bool) -> Any:
    from matplotlib.font_manager import findfont, get_font

    return get_font(findfont(_font(bold)))


@cache
def _has_shape(sign: str) -> bool:
    """Tell whether the font has a shape for a sign, in normal and in bold type."""
    return bool(_face(False).get_char_index(ord(sign)) and _face(True).get_char_index(ord(sign)))


@cache
def _width_in_points(text: str, bold: bool) -> float:
    """Return the width in points of a text in type of ten points."""
    from matplotlib.textpath import TextToPath

    font = _font(bold).copy()  # the font is cached, and its size must not change for others
    font.set_size(10)
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width)
