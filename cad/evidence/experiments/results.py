"""Hold the output of an experiment: tables beside published numbers, figures and remarks."""

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pandas as pd
from matplotlib.figure import Figure

from cad.base.files import write_atomic, write_csv
from cad.base.terms.text import to_markdown


@dataclass(frozen=True)
class Result:
    """Hold the tables, figures and remarks of one experiment.

    Parameters
    ----------
    title : str
        The table, figure or sentence that is reproduced.
    setup : str
        Paragraphs on the data, on how unclear places of the paper were understood, and on seeds.
    tables : dict of str to DataFrame
        The tables by caption.
    figures : dict of str to Figure
        The figures by caption.
    remarks : list of str
        Differences from the publication with their reasons: one paragraph each.
    """

    title: str
    setup: str
    tables: dict[str, pd.DataFrame]
    figures: dict[str, Figure] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @classmethod
    def of_words(
        cls,
        words: dict[str, Any],
        tables: dict[str, pd.DataFrame],
        figures: dict[str, Figure] | None = None,
        **values: object,
    ) -> Self:
        """Return a result whose text comes from a template.

        Parameters
        ----------
        words : dict
            Templates ``title``, ``setup`` and perhaps ``remarks``, with the names of values in
            braces.
        tables, figures : dict
            The tables and figures by caption.
        **values : object
            Values to fill in, by name.
        """
        remarks = [remark.format(**values) for remark in words.get("remarks", [])]
        title = words["title"].format(**values)
        setup = words["setup"].format(**values)
        return cls(title, setup, tables, figures or {}, remarks)

    def write(self, out: Path, name: str) -> Path:
        """Write ``<name>.md``, one CSV per table, one PNG per figure; return the path of the page.

        Parameters
        ----------
        out : Path
            Folder to write into.
        name : str
            Stem of every file name; tables and figures also get a number.

        Returns
        -------
        Path
            The path of the page, ``<name>.md`` in ``out``.
        """
        lines = [f"# {self.title}", "", self.setup, ""]
        for number, (caption, table) in enumerate(self.tables.items(), start=1):
            file = f"{name}-{number}.csv"
            write_csv(out / file, table, list(table.columns))
            lines += [f"**{caption}** ([{file}]({file}))", "", to_markdown(table)]
        for number, (caption, figure) in enumerate(self.figures.items(), start=1):
            file = f"{name}-{number}.png"
            write_atomic(out / file, png(figure))
            lines += [f"![{caption}]({file})", "", f"*{caption}*", ""]
        lines += [f"- {remark}" for remark in self.remarks]
        page = out / f"{name}.md"
        write_atomic(page, ("\n".join(lines).rstrip() + "\n").encode())
        return page


def png(figure: Figure) -> bytes:
    """Return a figure as PNG without the software's name and version, so that equal figures are
    equal files.

    Parameters
    ----------
    figure : Figure
        A figure of matplotlib.
    """
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=80, bbox_inches="tight", metadata={"Software": None})
    return stream.getvalue()
