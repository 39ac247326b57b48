"""Type on a sheet of paper: its words end where their widths say."""

from __future__ import annotations

import numpy as np
import pytest

from cad.run.reports.paper import CAPTURE_DPI, Paper, Run, text_width

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
