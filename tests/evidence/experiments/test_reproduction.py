"""The page that shows all of it is made of the results, not of hopes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from reproduction_page import _VERDICTS, MOST_ROWS, _abstract, as_good, claims, write_page

from cad.base.errors import CadError
from cad.evidence.experiments import EXPERIMENTS, REAL
from cad.learning.evaluation.folds.compare import compare_learners


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
    assert [c["holds"] for c in steeper] == [
        "no",
        "yes",
        "no",
        "not defined",
        "no",
        "not defined",
    ]
    assert steeper[0]["measured"] == "-0.20 / -0.40"
    assert steeper[3]["measured"] == "-0.50 / not defined"
    magnitudes = [c for c in rows if "magnitude" in c["claim"]]
    undefined = ["no", "not defined"]
    assert [c["holds"] for c in magnitudes] == ["no", "no", *undefined, *undefined]
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
    wins = pd.DataFrame({"method": names, **{n: ["20-4-10", "0-34-0"] * 2 for n in names}})
    for table in (3, 6):
        wins.to_csv(tmp_path / f"wang2014-uci-{table}.csv", index=False)
    rows = claims(tmp_path)
    won = next(c for c in rows if "Table 3" in c["claim"])
    assert (won["holds"], won["measured"].count(" of 2")) == ("no", 2)
    assert "SSLROC1 against 2 of 2, narrowest 20-4-10 (SVM); SSLROC2 against 0" in won["measured"]
    found = [c for c in rows if "is better than" in c["claim"]]
    assert [c["holds"] for c in found] == ["yes", "no"]
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
    assert text.count("Not run.") == len(EXPERIMENTS) - len(REAL) - 1
    assert not (docs / "real-data.md").exists()


def test_a_long_table_is_a_file_beside_the_figures(tmp_path) -> None:
    from cad.evidence.experiments.results import Result

    name, docs = "mesejo2016-readers", tmp_path / "docs"
    table = pd.DataFrame({"x": range(MOST_ROWS[False])})
    longer = pd.DataFrame({"x": range(MOST_ROWS[False] + 1)})
    Result("A title", "Text", {"Short": table, "Long": longer}).write(tmp_path / "results", name)
    text = write_page(tmp_path / "results", docs).read_text()
    assert f"**Long**: [{name}-2.csv](reproduction/{name}-2.csv)" in text
    assert text.count(f"| {MOST_ROWS[False] - 1} |") == 1
    assert (docs / "reproduction" / f"{name}-2.csv").read_text().startswith("x\n0\n")


def test_empty_folder_is_refused(tmp_path) -> None:
    with pytest.raises(CadError, match="no result"):
        write_page(tmp_path, tmp_path)


def test_reject_rates_that_cross_get_a_verdict(tmp_path) -> None:
    rates = {"cost-based": (0.9, 0.3, 0.1), "symmetric": (0.5, 0.3, 0.2)}
    table = pd.DataFrame({"r": [0.12, 0.24, 0.4], **rates}).melt(
        "r", var_name="rule", value_name="reject rate"
    )
    for name, other in (("synthetic", table), ("ecg", table.replace(0.9, 0.4))):
        other.to_csv(tmp_path / f"amirou2014-{name}-2.csv", index=False)
    rows = [c for c in claims(tmp_path) if "reject rates" in c["claim"]]
    assert [c["holds"] for c in rows] == ["by construction", "no"]
    assert rows[1]["measured"] == "more at 0 of 1 r below, +0 there, less at 1 of 1 above"


def test_the_abstracts_table_gets_verdicts_in_both_blocks(repository) -> None:
    measured, published = (
        pd.read_csv(repository / "docs" / "reproduction" / f"niaf2014-clinical-{i}.csv")
        for i in (1, 4)
    )
    rows = _abstract(measured, published.set_index(["table", "method"]))
    assert len(rows) == 2 * (2 * 4 + 1) + 4
    cross_entropy = [row for row in rows if "MCE" in row["claim"]]
    assert ["not tested" in row["measured"] for row in cross_entropy] == [True] * 4 + [False]
    # Worse than the SVM by any test is no; better with nothing tested is an order.
    worse = measured.assign(MCE=measured["MCE"].where(measured["method"] != "P-SVM", "9 [8, 10]"))
    rows = _abstract(worse, published.set_index(["table", "method"]))
    worse = [row["holds"] for row in rows if "MCE" in row["claim"]]
    assert worse == ["no"] * 4 + ["another cohort"]


def test_every_claim_has_what_was_asked_what_was_seen_and_a_verdict(repository) -> None:
    rows = pd.read_csv(repository / "docs" / "reproduction" / "claims.csv", dtype=str)
    assert len(rows) > 100
    assert rows[["claim", "asked", "measured"]].notna().all(axis=None)
    assert set(rows["holds"]) <= set(_VERDICTS)
    assert rows["claim"].is_unique


def test_the_page_counts_every_claim_and_names_every_missed_one(repository) -> None:
    rows = pd.read_csv(repository / "docs" / "reproduction" / "claims.csv", dtype=str)
    page = (repository / "docs" / "reproduction.md").read_text(encoding="utf-8")
    table = page.split("## What was claimed and what came out\n")[1].split("\n## ")[0]
    head, _, *lines = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("|")
    )
    for column, verdict in enumerate(head[1:-1], start=1):
        assert sum(int(line[column]) for line in lines) == (rows["holds"] == verdict).sum()
    named = {line[0]: line[-1] for line in lines}
    for claim in rows.loc[rows["holds"] == "no", "claim"]:
        source = next(source for source in named if claim.startswith((f"{source},", f"{source}:")))
        case, _, measure = claim[len(source) + 2 :].rpartition(": ")
        assert case in named[source]
        assert measure in named[source]
    assert "Not run." not in page


def test_a_lowest_cost_at_the_edge_of_the_grid_is_no_optimum(tmp_path) -> None:
    """Coin flips cost least where most are rejected: at the grid's edge, which is a "no"."""
    grid = pd.DataFrame({"r": [0.12, 0.24, 0.4], "rule": "cost-based", "reject rate": 0.1})
    grid.to_csv(tmp_path / "amirou2014-ecg-2.csv", index=False)
    verdicts = []
    for r in (0.12, 0.24):
        rows = pd.DataFrame({"rule": ["no rejection", "cost-based"], "r": [np.nan, r]})
        rows["cost"] = [0.5, 0.4]
        rows["reject rate"] = [0.0, 0.9]
        rows["sensitivity"] = rows["positive predictivity"] = 0.5
        rows.to_csv(tmp_path / "amirou2014-ecg-4.csv", index=False)
        verdicts += [c["holds"] for c in claims(tmp_path) if "lowest cost" in c["claim"]]
    assert verdicts == ["no", "yes"]


def test_as_good_needs_a_margin_that_coin_flips_miss() -> None:
    """A wide interval is no proof: the lower end decides, and 20 learners of noise miss it."""
    assert as_good("0.001 [-0.031, 0.033]")
    assert not as_good("0.001 [-0.061, 0.063]")
    passed = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        owner = np.arange(49).repeat(7)
        truth = (rng.random(343) < 0.2).astype(float)
        learned = truth + rng.normal(size=343)
        both = {"scores": rng.uniform(size=343), "histology": learned}
        pair = compare_learners(both, truth, owner, measures=("auc",), resamples=100).iloc[0]
        passed += as_good(f"{pair['difference']:.3f} [{pair['lower']:.3f}, {pair['upper']:.3f}]")
    assert passed <= 1
