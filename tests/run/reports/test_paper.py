"""Type on a sheet of paper: its words end where their widths say."""

from __future__ import annotations

import numpy as np
import pytest

from cad.run.reports.paper import CAPTURE_DPI, Paper, Run, text_width, wrapped
from cad.run.reports.sheet import free_box

LINE = "26% probability of cancer of ISUP 2 or more; readers would call it malignant: 54%."


@pytest.mark.parametrize("bold", [False, True])
@pytest.mark.parametrize("size", [6.5, 7.5, 9.0])
def test_a_line_of_a_capture_ends_where_its_width_says(size: float, bold: bool) -> None:
    paper = Paper("a man")
    paper.lines([[Run(LINE, bold=bold)]], x=20, y=50, size=size)
    (sheet,) = paper.pixels()
    ink = np.flatnonzero((sheet < 128).any(axis=(0, 2)))
    end = (ink.max() + 1) / CAPTURE_DPI * 25.4
    assert end == pytest.approx(
        20 + text_width(LINE, size, bold), abs=0.6
    )  # of the last sign some is white


def test_a_no_break_space_keeps_number_and_unit_on_a_line() -> None:
    text = "T2 slice 6 (z\u00a0−71.8\u00a0mm)"
    lines = []
    for line in wrapped([[Run(text)]], text_width("T2 slice 6 (z −71", 7, False), 7):
        lines.append("".join(run.text for run in line))
    assert lines == ["T2 slice 6", "(z\u00a0−71.8\u00a0mm)"]


def test_a_label_of_the_sector_map_covers_no_marker() -> None:
    right = (1.5, -1.0, 3.5, 1.0)
    left = (-3.5, -1.0, -1.5, 1.0)
    assert free_box(0, 0, 1.5, [])[0] > 0
    assert free_box(0, 0, 1.5, [right])[2] < 0
    above = free_box(0, 0, 1.5, [right, left])
    assert above[3] < 0
