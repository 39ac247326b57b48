"""The rule of what may be stated, over every case there is, and what the pages make of it."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.results import Man, Results, read_results
from cad.folders.run_folder.tables import LIKE, read_probabilities
from cad.run.reports import write_report
from cad.run.reports.headline import action_words, known_words, man_words, readers_words
from cad.run.reports.images import read_images
from cad.run.reports.pages import asset
from cad.run.reports.plots import benign_limit, malignant_limit
from cad.run.reports.regions import region_view
from cad.run.reports.views import PatientView, list_patients
from cad.run.stages.decide import decide_regions
from tests.run.reports.made_run import decided

TOOL = {"malignant": (0.65, 0.93), "refer": (0.3, 0.5), "benign": (0.02, 0.08), "": (None,)}
READERS = ((), (1, 1, 1, 1), (1, 1, 1, 4), (2, 3), (3, 3, 3), (3, 4), (4, 5, 4, 3), (5, 5), (1,))
SETS = {
    "": (np.nan, np.nan),
    "neither": (0.1, 0.02),
    "benign": (0.5, 0.1),
    "malignant": (0.05, 0.5),
    "benign or malignant": (0.11, 0.5),
}
UNLIKE = (LIKE, "ADC level: 8.0 SD below the training regions")
TRUTH = (np.nan, 0.0, 1.0)
LOWER, UPPER = 0.1, 0.6


def row(
    probability: float | None = 0.3,
    scores: tuple[int, ...] = (),
    plausible: str = "",
    unlike: str = LIKE,
    truth: float = np.nan,
    roi: str = "1",
) -> dict[str, Any]:
    benign, malignant = SETS[plausible]
    return {
        "participant_id": "sub-1",
        "study_id": "sub-1",
        "roi_id": roi,
        "label": 1,
        "probability": np.nan if probability is None else probability,
        "probability_of": "" if probability is None else "histology",
        "belief": np.nan if probability is None else probability,
        "readers_mean": (np.mean(scores) - 1) / 4 if scores else np.nan,
        "reader_values": "; ".join(f"r{k}={(s - 1) / 4:g}" for k, s in enumerate(scores, 1)),
        "scores": "; ".join(f"r{k}={s}" for k, s in enumerate(scores, 1)),
        "p_benign": benign,
        "p_malignant": malignant,
        "unlike": unlike,
        "truth": truth,
    }


def decide_all(rows: list[dict[str, Any]]) -> pd.DataFrame:
    lower, upper = np.full(len(rows), LOWER), np.full(len(rows), UPPER)
    return decide_regions(pd.DataFrame(rows), lower, upper)


def decide_one(one: dict[str, Any]) -> Any:
    return decide_all([one]).iloc[0]


def speaks_against(word: str, case: Any) -> bool:
    """Return a radiologist's objections to a decision, written down apart from the rule."""
    scores = [int(part[-1]) for part in case.scores.split("; ") if part]
    mean = (sum(scores) / len(scores) - 1) / 4 if scores else None
    left = {"benign": case.p_benign > 0.1, "malignant": case.p_malignant > 0.1}
    return any(
        [
            case.unlike != LIKE,
            not np.isnan(case.p_benign) and not left[word],
            mean is not None and word == "benign" and (mean > 0.5 or max(scores) >= 4),
            mean is not None and word == "malignant" and mean < 0.5,
            mean is not None and abs(mean - case.probability) >= 0.5,
        ]
    )


def test_no_decision_is_stated_that_something_contradicts() -> None:
    cases = [
        row(probability, *rest)
        for probabilities in TOOL.values()
        for probability, *rest in itertools.product(probabilities, READERS, SETS, UNLIKE, TRUTH)
    ]
    table = decide_all(cases)
    assert len(table) == 7 * 9 * 5 * 2 * 3
    assert table["truth"].value_counts(dropna=False).to_dict()[0.0] == 630
    stated = 0
    for case in table.itertuples():
        expected = next(k for k, ps in TOOL.items() if case.probability in ps or k == "")
        assert case.decision_model == expected, case
        if expected in ("malignant", "benign"):
            against = speaks_against(expected, case)
            wrong = case.truth == (0.0 if expected == "malignant" else 1.0)
            assert case.decision_before_histology == ("refer" if against else expected), case
            assert case.decision == ("refer" if against or wrong else expected), case
            assert bool(case.decision_reason) == (against or wrong), case
            stated += case.decision == expected
        else:
            assert case.decision == case.decision_before_histology == expected
            assert case.decision_reason == ""
    assert stated > 20  # a rule that never states anything would pass the rest


@pytest.mark.parametrize(
    ("case", "words", "apart"),
    [
        # Readers 4 5 4 3 and P .03, on a real patient of PROSTATEx.
        (
            row(0.03, (4, 5, 4, 3)),
            "the tool does not suspect cancer, the readers on average do",
            "far apart",
        ),
        (
            row(0.93, (1, 1, 1, 1)),
            "the tool suspects cancer, the readers on average do not",
            "far apart",
        ),
        (row(0.05, (1, 1, 1, 4)), "one reader does", "agree"),
        (row(0.9, (4, 4), unlike="ADC"), "unlike the training cohort", "agree"),
        (
            row(0.9, (4, 4), "benign"),
            "1 in 10 malignant regions of the training",
            "agree",
        ),
        (row(0.9, (4, 4), "neither"), "benign or malignant, got such a number", "agree"),
        (row(0.05, (1, 1), truth=1.0), "histology found it malignant", "agree"),
        (row(0.9, (4, 4)), "", "agree"),
        (row(0.3), "", ""),
    ],
)
def test_what_contradicts_is_said_in_words(case: dict[str, Any], words: str, apart: str) -> None:
    found = decide_one(case)
    assert words in found["decision_reason"]
    assert bool(words) == bool(found["decision_reason"])
    assert found["apart"] == apart


def test_a_far_displacement_withdraws_a_decision_and_only_that() -> None:
    why = "ADC may lie 12.0 mm beside T2"
    for probability, word in ((0.9, "malignant"), (0.05, "benign")):
        far = decide_one({**row(probability), "displaced": why})
        near = decide_one({**row(probability), "displaced": ""})
        assert (far["decision"], far["decision_model"]) == ("refer", word)
        assert far["decision_reason"] == why
        assert (near["decision"], near["decision_reason"]) == (word, "")
    undecided = decide_one({**row(0.3), "displaced": why})
    assert (undecided["decision"], undecided["decision_reason"]) == ("refer", "")


def test_a_patient_is_benign_only_when_everything_is() -> None:
    benign, sure = row(0.05), row(0.9, (4, 5), roi="2")
    disputed, nothing = row(0.03, (4, 5, 4, 3), roi="3"), row(None)

    def patient(rows: list[dict[str, Any]], failed: bool = False) -> str:
        words = decided(pd.DataFrame(rows), ("sub-1",) if failed else ())["patient_decision"]
        assert words.nunique() == 1
        return str(words.iloc[0])

    assert patient([benign]) == "benign"
    assert patient([benign], failed=True) == "refer"
    assert patient([benign, disputed]) == "refer"
    assert patient([benign, nothing]) == "refer"
    assert patient([nothing]) == ""
    assert patient([benign, disputed, sure]) == "malignant"


def test_the_head_has_the_first_regions_of_tool_and_readers_and_all_that_is_not_benign(
    finished_run: Path, tmp_path: Path
) -> None:
    benign, sure = row(0.05), row(0.9, (4, 5), roi="2")
    disputed = row(0.03, (4, 5, 4, 3), roi="3")
    view = view_of([benign, disputed, sure], finished_run, tmp_path)
    assert [region.roi for region in view.head] == ["2", "3"]
    assert [region.roi for region in view.disputed] == ["3"]
    assert view.readers_first is view.top
    # The tool's most suspicious region comes first, that of the readers is there too.
    others = [row(0.3 + k / 100, (2, 2), roi=str(k)) for k in range(4, 9)]
    view = view_of([row(0.05, (3, 4)), *others], finished_run, tmp_path)
    assert [region.roi for region in view.head] == ["8", "1", "7", "6"]
    assert view.readers_first is not None
    assert view.readers_first.roi == "1"
    view = view_of([row(0.02), row(0.04, roi="2")], finished_run, tmp_path)
    assert [region.roi for region in view.head] == ["2"]


@pytest.mark.parametrize(
    ("scores", "word"),
    [
        ((), ""),
        ((4,), ""),
        ((1, 2), "agree"),
        ((3, 3, 3), "agree"),
        ((1, 2, 3), "differ"),
        ((2, 1, 1, 4), "are split"),
        ((1, 5), "are split"),
    ],
)
def test_readers_agree_differ_or_are_split(scores: tuple[int, ...], word: str) -> None:
    """Scores 2 1 1 4 are no agreement, however near their mean is to the tool."""
    assert decide_one(row(0.3, scores))["readers_agree"] == word


def read_back(rows: list[dict[str, Any]], run: Path, folder: Path) -> Results:
    table = decided(pd.DataFrame(rows))
    table.to_csv(folder / "probabilities.csv", index=False)
    shutil.copy(run / "run.json", folder / "run.json")
    return read_results(folder)


def view_of(rows: list[dict[str, Any]], run: Path, folder: Path) -> PatientView:
    (view,) = list_patients(read_back(rows, run, folder))
    return view


def test_headline_and_index_state_what_the_rule_states(finished_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run, ignore=shutil.ignore_patterns("studies", "report"))
    table = pd.read_csv(run / "probabilities.csv")
    own = table["participant_id"] == "sub-P005"  # one region
    words = {"malignant": "Malignant", "benign": "Benign"}
    for decision, probability, scores in (
        ("malignant", 0.93, "r1=1; r2=1; r3=1; r4=1"),
        ("benign", 0.03, "r1=4; r2=5; r3=4; r4=3"),
        ("malignant", 0.93, "r1=4; r2=5; r3=4; r4=4"),
    ):
        mean = np.mean([(int(score) - 1) / 4 for score in re.findall(r"=(\d)", scores)])
        table.loc[own, ["probability", "belief", "readers_mean"]] = [probability, probability, mean]
        table.loc[own, ["scores", "histology"]] = [scores, ""]
        table.loc[own, "reader_values"] = re.sub(
            r"=(\d)", lambda m: f"={(int(m[1]) - 1) / 4:g}", scores
        )
        table.loc[own, ["p_benign", "p_malignant", "truth"]] = [0.5, 0.5, np.nan]
        table = decided(table)
        assert (table.loc[own, "decision_model"] == decision).all()
        table.to_csv(run / "probabilities.csv", index=False)
        write_report(run)
        page = (run / "report" / "sub-P005.html").read_text(encoding="utf-8")
        index = (run / "report" / "index.html").read_text(encoding="utf-8")
        glance = page.split('id="glance-title"')[1].split("</section>")[0]
        row = index.split('href="sub-P005.html">sub-P005</a></th>')[1].split("</tr>")[0]
        agreed = probability == 0.93 and "r1=4" in scores
        for text in (glance, row):
            # The word itself, not "malignant above" of the scale or the index's counts.
            assert (f"</i> {words[decision]}" in text) == agreed, text
            assert ("</i> Refer" in text) != agreed
        assert ("the tool suspects cancer, the readers on average do not" in glance) == (
            "r1=1" in scores
        )


MAN = Man(
    "sub-1",
    0.3,
    0.3,
    "refer",
    "refer",
    [],
    "probability",
    0.1,
    "",
    None,
    None,
    None,
    None,
    (0.2, 0.5),
)


@pytest.mark.parametrize(
    ("rows", "man", "words", "never"),
    [
        (
            [row(0.05)],
            {"probability": 0.04, "decision": "benign"},
            ": every region is. Probability of cancer of ISUP 2 or more in this man: 4% (20 to 50% "
            "of many men so judged), below the site's limit of 10% for a man whose regions all are "
            "benign.",
            "again",
        ),
        (
            [row(0.9), row(0.3, roi="2")],
            {"probability": 0.92, "decision": "malignant"},
            ": consider region 1 for biopsy; region 2 for a second radiologist.",
            "limit of 10%",
        ),
        # Every region is benign and he is not: all of them are read again.
        (
            [row(0.05), row(0.08, roi="2")],
            {"probability": 0.12},
            "12% (20 to 50% of many men so judged), not below the site's limit of 10%",
            "biopsy",
        ),
        ([row(0.05)], {"decision_reason": ["a study failed"]}, "A study failed.", "biopsy"),
        (
            [row(0.5, (4, 4)), row(0.4, (2, 3), roi="2")],
            {},
            " to a joint reading: regions 1, 2.",
            "another",
        ),
        (
            [row(0.5, (4, 4)), row(0.4, (2,), roi="2")],
            {},
            " to another reading: regions 1, 2.",
            "joint",
        ),
        (
            [row(0.5)],
            {"probability": None},
            "region 1. No probability of the whole man is calculated: too few men.",
            "ISUP",
        ),
    ],
)
def test_the_mans_sentence_says_of_his_regions_what_is_so(
    rows: list[dict[str, Any]],
    man: dict[str, Any],
    words: str,
    never: str,
    finished_run: Path,
    tmp_path: Path,
) -> None:
    view = view_of(rows, finished_run, tmp_path)
    cancer, place = "cancer of ISUP 2 or more", "in this man"
    text = man_words(view, replace(MAN, **man), cancer, place, "too few men")
    assert words in text
    assert never not in text


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [row(0.3, truth=1.0), row(0.05, truth=0.0, roi="2")],
            "Proven by histology, known of every region: cancer of ISUP 2 or more in region 1 "
            "(malignant), in no other. This is what the board discusses. Nothing is to be "
            "referred.",
        ),
        (
            [row(0.3, truth=1.0), row(0.7, truth=1.0, roi="2")],
            "Proven by histology, known of every region: cancer of ISUP 2 or more in regions 2 "
            "(malignant), 1 (malignant). This is what the board discusses. Nothing is to be "
            "referred.",
        ),
        (
            [row(0.3, truth=0.0)],
            "Histology is known of every region: no cancer of ISUP 2 or more. Nothing is to be "
            "referred.",
        ),
        (
            [row(0.9, truth=0.0), row(0.3, truth=0.0, roi="2")],
            "Histology is known of every region: no cancer of ISUP 2 or more. Nothing is to be "
            "referred; discuss whether the needle met region 1.",
        ),
    ],
)
def test_where_histology_is_known_the_advice_follows_it(
    rows: list[dict[str, Any]], words: str, finished_run: Path, tmp_path: Path
) -> None:
    for one in rows:
        one["histology"] = "malignant" if one["truth"] else "benign"
    view = view_of(rows, finished_run, tmp_path)
    cancer, place = "cancer of ISUP 2 or more", "in this man"
    assert known_words(view, cancer) == words
    text = man_words(view, MAN, cancer, place)
    assert text.startswith(". ")
    for advice in ("biopsy", "reading", "radiologist", "limit"):
        assert advice not in text
    # One region without histology, and there is something left to do.
    rows[0]["truth"] = np.nan
    view = view_of(rows, finished_run, tmp_path)
    assert known_words(view, cancer) == ""
    assert man_words(view, MAN, cancer, place).startswith((" to a second", " to another"))


def test_proven_cancer_has_a_card_and_is_no_target(finished_run: Path, tmp_path: Path) -> None:
    rows = [row(0.5, roi=str(number)) for number in range(1, 6)]
    rows.append({**row(0.03, truth=1.0, roi="6"), "histology": "malignant"})
    rows.append({**row(0.9, truth=0.0, roi="7"), "histology": "benign"})
    view = view_of(rows, finished_run, tmp_path)
    assert [region.roi for region in view.head][:2] == ["7", "6"]
    results = read_back(rows, finished_run, tmp_path)
    actions = {}
    for region in results.regions:
        actions[region.roi] = action_words(region_view(results, region, None))
    assert actions["6"] == (
        "Proven by histology (malignant): no target of another biopsy; the tool alone, without "
        "histology: benign"
    )
    assert actions["7"] == (
        "No such cancer by histology (benign): discuss whether the needle met it; the tool alone, "
        "without histology: malignant"
    )


def test_a_region_referred_for_a_reason_tells_what_its_number_alone_says(
    finished_run: Path, tmp_path: Path
) -> None:
    results = read_back([row(0.03, (4, 5, 4, 3))], finished_run, tmp_path)
    region = results.regions[0]
    view = replace(region_view(results, region, None), thresholds=(0.25, 0.6))
    assert action_words(view).startswith(
        "Refer to a joint reading: 3% is below the site's limit of 25% for benign, but: the tool"
    )
    assert "of the readers (3%) disagrees with them" in readers_words(region, [])
    agreeing = replace(region, belief=0.8, apart="agree")
    assert "disagrees" not in readers_words(agreeing, [])


def test_a_region_that_an_image_does_not_measure_says_so(
    finished_run: Path, tmp_path: Path
) -> None:
    """The study's file describes a region without a result, and no other."""
    name = next((finished_run / "studies").glob("*.npz")).stem
    images = read_images(RunFolder(finished_run), name)
    roi = next(iter(images.rois))
    without = read_back([row(None)], finished_run, tmp_path).regions[0]
    scored = read_back([row(0.05)], finished_run, tmp_path)
    for unmeasured, words in (
        (["adc"], "No decision: nothing measured in ADC here, see below"),
        (["adc", "dce"], "No decision: nothing measured in ADC and DCE here, see below"),
        ([], "No decision: see what was missing or failed"),
    ):
        images.rois[roi]["unmeasured"] = unmeasured
        region = replace(without, roi=roi, label=images.rois[roi]["label"])
        assert action_words(region_view(scored, region, images)) == words
    images.rois[roi]["unmeasured"] = ["dce"]
    region = replace(scored.regions[0], roi=roi, label=images.rois[roi]["label"])
    assert "nothing measured" not in action_words(region_view(scored, region, images))


def test_a_man_whose_histology_is_known_is_not_read_again_first(
    finished_run: Path, tmp_path: Path
) -> None:
    cases = {"a": row(0.3, truth=1.0), "b": row(0.7)}
    rows = [case | {"participant_id": name, "study_id": name} for name, case in cases.items()]
    results = read_back(rows, finished_run, tmp_path)
    words = {"a": "refer", "b": "malignant"}
    regions = [replace(one, patient_decision=words[one.patient]) for one in results.regions]
    listed = list_patients(replace(results, regions=regions, failures=[]))
    assert [view.patient for view in listed] == ["b", "a"]


@pytest.mark.parametrize(
    ("case", "suspicion"),
    [
        (row(0.03, (4, 5, 4, 3)), 1.0),  # the readers contradict: the most suspicious
        (row(0.05, (1, 1, 1, 4)), 0.75),  # one of them does
        (row(0.05, (2, 1)), 0.125),  # nobody does: their mean
        (row(0.9, (1, 1)), 0.9),
        (row(0.7, (4, 5)), 0.875),
        (row(0.3, (3, 5)), 0.75),
        (row(0.3), 0.3),
    ],
)
def test_suspicion_is_the_tools_or_the_readers(case: dict[str, Any], suspicion: float) -> None:
    assert decide_one(case)["suspicion"] == suspicion


def test_patients_are_listed_by_what_has_to_be_done_then_by_the_mans_probability(
    finished_run: Path, tmp_path: Path
) -> None:
    cases = {"a": row(0.61, (4, 3)), "b": row(0.03, (4, 5, 4, 3)), "c": row(0.04, (1, 1))}
    rows = [case | {"participant_id": name, "study_id": name} for name, case in cases.items()]
    # Without a probability of the man: by his first region.
    for men, expected in (((None,) * 3, ["a", "c", "b"]), ((0.1, 0.3, 0.2), ["b", "c", "a"])):
        read = read_back(rows, finished_run, tmp_path)
        regions = []
        for one, man in zip(read.regions, men, strict=True):
            regions.append(replace(one, patient_probability=man, patient_decision="refer"))
        listed = list_patients(replace(read, regions=regions, failures=[]))
        assert [view.patient for view in listed] == expected
    results = read_back(rows, finished_run, tmp_path)
    words = {"a": "benign", "b": "malignant", "c": "refer"}
    regions = [replace(one, patient_decision=words[one.patient]) for one in results.regions]
    results = replace(results, regions=regions, failures=[])
    listed = list_patients(results)
    assert [view.patient for view in listed] == ["c", "b", "a"]
    torn = {"participant_id": "a", "study_id": "a", "stage": "read", "reason": "torn"}
    listed = list_patients(replace(results, failures=[torn]))
    assert [view.patient for view in listed] == ["a", "c", "b"]


def test_a_run_of_an_earlier_version_is_refused(finished_run: Path, tmp_path: Path) -> None:
    """Its table and its pages stated different decisions: nobody can tell which is meant."""
    shutil.copy(finished_run / "run.json", tmp_path / "run.json")
    table = pd.read_csv(finished_run / "probabilities.csv").drop(columns="decision_model")
    table.to_csv(tmp_path / "probabilities.csv", index=False)
    for read in (read_results, lambda root: read_probabilities(RunFolder(root))):
        with pytest.raises(CadError, match="earlier version") as caught:
            read(tmp_path)
        assert caught.value.hint == "make the run anew"


def test_pages_hold_no_inline_style_or_handler(finished_run: Path) -> None:
    for path in (finished_run / "report").glob("sub-*.html"):
        text = path.read_text(encoding="utf-8")
        for name in ("viewer.js", "patient.js", "report.css"):
            text = text.replace(str(asset(name)), "")
        assert not re.search(r"<[^>]+\s(style|on\w+)=", text), path.name


@pytest.mark.parametrize(
    ("limit", "words"),
    [(0.0, "none called benign"), (0.002, "benign below <1%"), (0.25, "benign below 25%")],
)
def test_a_limit_of_nothing_is_said(limit: float, words: str) -> None:
    assert benign_limit(limit) == words


@pytest.mark.parametrize(
    ("limit", "words"),
    [(1.0, "none called malignant"), (0.999, "malignant above >99%"), (0.6, "malignant above 60%")],
)
def test_the_other_limit_of_nothing_is_said(limit: float, words: str) -> None:
    assert malignant_limit(limit) == words
