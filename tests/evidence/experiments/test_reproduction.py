"""The page that shows all of it is made of the results, not of hopes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from reproduction_page import MOST_ROWS, write_page

from cad.base.errors import CadError
from cad.evidence.experiments import CONTROLLED, EXPERIMENTS, REAL, Options, run_experiment
from cad.evidence.experiments.claims import (
    BY_CONSTRUCTION,
    BY_LUCK,
    BY_NOISE,
    ELSEWHERE,
    HOLDS,
    MOST_NOISE,
    UNCONTROLLED,
    VERDICTS,
    _abstract,
    as_good,
    claims,
    count_fulfilled,
    weigh,
)
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
    count_fulfilled([], []).to_csv(results / "rates.csv", index=False)
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
    count_fulfilled([], []).to_csv(tmp_path / "results" / "rates.csv", index=False)
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


def test_a_page_without_controls_is_refused(tmp_path) -> None:
    name = next(iter(EXPERIMENTS))
    (tmp_path / f"{name}.md").write_text("# A title\n\nText\n")
    with pytest.raises(CadError, match="no rates of the claims"):
        write_page(tmp_path, tmp_path / "docs")


@pytest.fixture(scope="module")
def printed(repository) -> pd.DataFrame:
    """Return the claims that the page prints, as text."""
    path = repository / "docs" / "reproduction" / "claims.csv"
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def test_every_claim_has_what_was_published_what_was_seen_and_a_verdict(printed) -> None:
    assert len(printed) > 100
    assert (printed[["claim", "published", "measured"]] != "").all(axis=None)
    assert set(printed["holds"]) <= set(VERDICTS)
    assert printed["claim"].is_unique


def _rate(text: str) -> tuple[int, int]:
    holding, runs = text.split(" of ")
    return int(holding), int(runs)


def test_no_verdict_of_the_page_is_passed_by_shuffled_labels(printed) -> None:
    standing = printed[printed["holds"].isin(HOLDS)]
    assert len(standing) >= 20
    for _, claim in standing.iterrows():
        holding, runs = _rate(claim["shuffled"])
        assert holding <= MOST_NOISE * runs, claim["claim"]
        holding, runs = _rate(claim["other draws"])
        assert holding >= runs / 2, claim["claim"]


def _rates(claim: str, **counts: int) -> pd.DataFrame:
    row = dict.fromkeys(count_fulfilled([], []).columns, 0) | {"claim": claim} | counts
    return pd.DataFrame([row])


@pytest.mark.parametrize(
    ("holds", "counts", "verdict"),
    [
        ("yes", {"draws": 20, "draws yes": 20, "shuffled": 20, "shuffled yes": 1}, "yes"),
        ("yes", {"draws": 20, "draws yes": 20, "shuffled": 20, "shuffled yes": 2}, BY_NOISE),
        ("yes", {"draws": 20, "draws yes": 10, "shuffled": 20}, "yes"),
        ("yes", {"draws": 20, "draws yes": 9, "shuffled": 20}, BY_LUCK),
        # A learner that is first beyond chance is first, too; the other way round it is not.
        ("order only", {"draws": 20, "draws first": 10, "shuffled": 20}, "order only"),
        (
            "order only",
            {"draws": 20, "draws first": 20, "shuffled": 9, "shuffled first": 1},
            BY_NOISE,
        ),
        ("no", {"draws": 20, "draws yes": 20, "shuffled": 20, "shuffled yes": 20}, "no"),
    ],
)
def test_controls_take_back_what_noise_or_luck_gave(holds, counts, verdict) -> None:
    claim = {"claim": "a claim", "published": "", "measured": "", "holds": holds}
    (row,) = weigh([claim], _rates("a claim", **counts))
    assert row["holds"] == verdict
    (row,) = weigh([claim], _rates("another claim"))
    assert (row["holds"], row["shuffled"]) == (UNCONTROLLED if holds in HOLDS else holds, "")


@pytest.mark.parametrize("holds", [BY_CONSTRUCTION, ELSEWHERE])
def test_runs_are_not_counted_for_a_claim_that_no_run_can_decide(holds) -> None:
    claim = {"claim": "a claim", "published": "1", "measured": "1", "holds": holds}
    (row,) = weigh([claim], _rates("a claim", draws=20, shuffled=20))
    assert (row["holds"], row["other draws"], row["shuffled"]) == (holds, "", "")


def _toy(folder, p: float) -> None:
    """Write the tables of [N13]'s toy in which the P-SVM beats the SVM with a p."""
    folder.mkdir()
    names = ["P-SVM, learned scale", "P-SVM, fixed scale", "SVM"]
    published = ["P-SVM published", "SVM published"]
    medians = pd.DataFrame({"method": [*names, *published], "Acc": 0.9, "KL one-sided": 5.0})
    medians.to_csv(folder / "niaf2013-toy-1.csv", index=False)
    tests = pd.DataFrame({"method": names[:2], "against": "SVM"})
    tests["p (Acc)"] = [p, 0.5]
    tests["p (KL one-sided)"] = 0.5
    tests.to_csv(folder / "niaf2013-toy-2.csv", index=False)


def test_runs_are_counted_by_claim_and_kind(tmp_path) -> None:
    for number, p in enumerate((1e-4, 0.0011, 1e-5)):
        _toy(tmp_path / f"draw-{number}", p)
    _toy(tmp_path / "shuffled-0", 0.2)
    rates = count_fulfilled(sorted(tmp_path.glob("draw-*")), sorted(tmp_path.glob("shuffled-*")))
    rates = rates.set_index("claim")
    assert len(rates) == 4
    learned = rates.loc["[N13] toy, learned scale: Acc"]
    assert learned.to_dict() == {
        "draws": 3,
        "draws yes": 2,
        "draws first": 2,
        "shuffled": 1,
        "shuffled yes": 0,
        "shuffled first": 0,
    }
    assert rates.drop(index=learned.name)["draws yes"].sum() == 0


def test_shuffled_labels_teach_nothing_and_say_so(tmp_path) -> None:
    """The toy's P-SVM finds nearly all classes; with shuffled labels about half of them."""
    accuracy = {}
    for shuffled in (False, True):
        out = tmp_path / str(shuffled)
        page = run_experiment("niaf2013-toy", Options(out, repeats=3, shuffled=shuffled))
        assert page.read_text().startswith("# Control with shuffled labels.") == shuffled
        medians = pd.read_csv(out / "niaf2013-toy-1.csv").set_index("method")
        accuracy[shuffled] = medians.at["P-SVM, fixed scale", "Acc"]
    assert accuracy[False] > 0.9
    assert abs(accuracy[True] - 0.5) < 0.2


def test_another_draw_is_another_draw_and_the_same_one_the_same(tmp_path) -> None:
    frontiers = []
    for number, seed in enumerate((0, 7, 7)):
        out = tmp_path / str(number)
        run_experiment("niaf2014-outlier", Options(out, first_seed=seed))
        frontiers.append((out / "niaf2014-outlier-1.csv").read_bytes())
    assert frontiers[0] != frontiers[1] == frontiers[2]


@pytest.mark.parametrize("control", [{"shuffled": True}, {"first_seed": 7}])
def test_a_control_replaces_no_published_result_and_makes_no_page(tmp_path, control) -> None:
    published = tmp_path / "published"
    page = run_experiment("niaf2014-outlier", Options(published))
    before = page.read_bytes()
    with pytest.raises(CadError, match="results of another draw: first seed 0"):
        run_experiment("niaf2014-outlier", Options(published, **control))
    assert page.read_bytes() == before
    run_experiment("niaf2014-outlier", Options(published))  # the same draw again is allowed

    apart = tmp_path / "control"
    run_experiment("niaf2014-outlier", Options(apart, **control))
    with pytest.raises(CadError, match="not first seed 0, labels as they are"):
        run_experiment("niaf2014-outlier", Options(apart))
    with pytest.raises(CadError, match="make no page"):
        write_page(apart, tmp_path / "docs")

    # Results of earlier versions have no note: they are of the published draw.
    (published / "draw.json").unlink()
    with pytest.raises(CadError, match="another draw"):
        run_experiment("niaf2014-outlier", Options(published, **control))
    run_experiment("niaf2014-outlier", Options(published))


@pytest.mark.parametrize("option", [{"first_seed": 1}, {"shuffled": True}])
def test_real_people_are_not_drawn_anew(tmp_path, option) -> None:
    assert set(CONTROLLED) < set(EXPERIMENTS)
    for name in REAL:
        with pytest.raises(CadError, match="real people"):
            run_experiment(name, Options(tmp_path, **option))


def test_the_page_counts_every_claim_and_names_every_missed_one(repository, printed) -> None:
    rows = printed
    page = (repository / "docs" / "reproduction.md").read_text(encoding="utf-8")
    table = page.split("(reproduction/claims.csv)")[1].split("\n## ")[0]
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
