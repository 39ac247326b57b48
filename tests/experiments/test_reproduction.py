"""The page that shows all of it is made of the results, not of hopes."""

from __future__ import annotations

import pandas as pd
import pytest

from cad.errors import CadError
from cad.experiments import EXPERIMENTS
from cad.experiments.reproduction import claims, write_page


def test_a_claim_that_fails_says_so(tmp_path) -> None:
    table = pd.DataFrame(
        {
            "rule": ["cost-based", "symmetric"],
            "rejects that were errors": [-0.2, -0.4],
            "published": [-0.84, -0.23],
        }
    )
    for name in ("synthetic", "ecg", "covertype"):
        table.to_csv(tmp_path / f"amirou2014-{name}-1.csv", index=False)
    found = [c for c in claims(tmp_path) if "error-reject" in c["claim"]]
    assert [c["holds"] for c in found] == ["**no**"] * 3
    assert found[0]["measured"] == "-0.20 / -0.40"


def test_page_copies_figures_and_names_what_was_not_run(tmp_path) -> None:
    results, docs = tmp_path / "results", tmp_path / "docs"
    results.mkdir()
    name = next(iter(EXPERIMENTS))
    (results / f"{name}.md").write_text(f"# A title\n\nText\n\n![Fig]({name}-1.png)\n")
    (results / f"{name}-1.png").write_bytes(b"png")
    text = write_page(results, docs).read_text()
    assert "## A title" in text
    assert f"](reproduction/{name}-1.png)" in text
    assert (docs / "reproduction" / f"{name}-1.png").read_bytes() == b"png"
    assert text.count("Not run.") == len(EXPERIMENTS) - 1


def test_empty_folder_is_refused(tmp_path) -> None:
    with pytest.raises(CadError, match="no result"):
        write_page(tmp_path, tmp_path)
