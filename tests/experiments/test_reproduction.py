"""The page that shows all of it is made of the results, not of hopes."""

from __future__ import annotations

import pandas as pd
import pytest

from cad.errors import CadError
from cad.experiments import EXPERIMENTS
from cad.experiments.reproduction import MOST_ROWS, claims, write_page


def test_a_claim_that_fails_says_so_in_both_readings(tmp_path) -> None:
    table = pd.DataFrame(
        {
            "rule": ["cost-based", "symmetric"],
            "rejects that were errors": [-0.2, -0.4],
            "ΔE/ΔR, r = .4 to .5": [-0.5, -0.3],
            "published": [-0.84, -0.23],
        }
    )
    for name in ("synthetic", "ecg", "covertype"):
        table.to_csv(tmp_path / f"amirou2014-{name}-1.csv", index=False)
        table.loc[1, "ΔE/ΔR, r = .4 to .5"] = float("nan")  # from the second on
    rows = [c for c in claims(tmp_path) if "error-reject" in c["claim"]]
    steeper = [c for c in rows if "magnitude" not in c["claim"]]
    assert [c["holds"] for c in steeper] == ["**no**", "yes", "**no**", "", "**no**", ""]
    assert steeper[0]["measured"] == "-0.20 / -0.40"
    assert steeper[3]["measured"] == "-0.50 / not defined"
    magnitudes = [c for c in rows if "magnitude" in c["claim"]]
    assert [c["holds"] for c in magnitudes] == ["**no**", "**no**", "**no**", "", "**no**", ""]
    assert magnitudes[0]["measured"] == "largest distance 0.64"


def test_rankers_get_a_verdict(tmp_path) -> None:
    names = ["SVM", "SVMROC", "SSLROC1", "SSLROC2"]
    means = pd.DataFrame(
        [[0.8, 0.81, 0.84, 0.83], [0.8, 0.81, 0.84, 0.83], [0.8, 0.8, 0.9, 0.9]], columns=names
    )
    means.insert(0, "protocol", ["with flaws", "honest", "published"])
    means.to_csv(tmp_path / "wang2014-uci-1.csv", index=False)
    p = pd.DataFrame({"method": names, **{n: ["0.001*"] * 4 for n in names}})
    p.to_csv(tmp_path / "wang2014-uci-4.csv", index=False)
    p.assign(SVM="0.300").to_csv(tmp_path / "wang2014-uci-7.csv", index=False)
    found = [c for c in claims(tmp_path) if "is better than" in c["claim"]]
    assert [c["holds"] for c in found] == ["yes", "**no**"]
    assert "SSLROC1 against 1 of 2 (SVMROC)" in found[1]["measured"]


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


def test_a_long_table_is_a_file_beside_the_figures(tmp_path) -> None:
    from cad.experiments.results import Result

    name, docs = next(iter(EXPERIMENTS)), tmp_path / "docs"
    table = pd.DataFrame({"x": range(MOST_ROWS)})
    longer = pd.DataFrame({"x": range(MOST_ROWS + 1)})
    Result("A title", "Text", {"Short": table, "Long": longer}).write(tmp_path / "results", name)
    text = write_page(tmp_path / "results", docs).read_text()
    assert f"**Long**: [{name}-2.csv](reproduction/{name}-2.csv)" in text
    assert text.count(f"| {MOST_ROWS - 1} |") == 1
    assert (docs / "reproduction" / f"{name}-2.csv").read_text().startswith("x\n0\n")


def test_empty_folder_is_refused(tmp_path) -> None:
    with pytest.raises(CadError, match="no result"):
        write_page(tmp_path, tmp_path)
