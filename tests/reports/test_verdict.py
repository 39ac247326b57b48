"""The rule of what may be stated, over every case there is, and what the pages make of it."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from cad.reports import write_report
from cad.reports.pages import asset
from cad.reports.views import list_patients
from cad.run_folder import RunFolder
from cad.run_folder.results import RegionResult, Results, read_results
from cad.run_folder.verdict import patient_verdict, verdict

TOOL = {"malignant": (0.65, 0.93), "refer": (0.3, 0.5), "benign": (0.02, 0.08), "": (None,)}
READERS = ((), (1, 1, 1, 1), (1, 1, 1, 4), (2, 3), (3, 3, 3), (3, 4), (4, 5, 4, 3), (5, 5), (1,))
PLAUSIBLE = (None, [], ["benign"], ["malignant"], ["benign", "malignant"])
UNLIKE = ("", "ADC level: 8.0 SD below the training regions")
HISTOLOGY = ("", "benign", "malignant")


def region(
    decision: str = "refer",
    probability: float | None = 0.3,
    scores: tuple[int, ...] = (),
    plausible: list[str] | None = None,
    unlike: str = "",
    histology: str = "",
    roi: str = "1",
) -> RegionResult:
    given = [(f"r{k}", score) for k, score in enumerate(scores, start=1)]
    return RegionResult(
        patient="sub-1", study="sub-1", roi=roi, label=1, zone="", probability=probability,
        decision=decision, decision_value=None, p=None, eta=None, label_kind="",
        histology=histology, isup="", scores=[(r, str(s)) for r, s in given], with_tool=[],
        patient_probability=None, warnings=[], plausible=plausible, model="m",
        reader_values=[(r, (s - 1) / 4) for r, s in given], unlike=unlike, compared=True,
    )  # fmt: skip


CASES = [
    region(decision, probability, scores, plausible, unlike, histology)
    for decision, probabilities in TOOL.items()
    for probability, scores, plausible, unlike, histology in itertools.product(
        probabilities, READERS, PLAUSIBLE, UNLIKE, HISTOLOGY
    )
]


def speaks_against(case: RegionResult) -> bool:
    """What a radiologist would hold against a stated decision, written down apart from the rule."""
    values = [value for _, value in case.reader_values]
    mean = sum(values) / len(values) if values else None
    wanted_benign = case.decision == "benign"
    return any(
        [
            case.unlike != "",
            case.histology not in ("", case.decision),
            case.plausible is not None and case.decision not in case.plausible,
            mean is not None and wanted_benign and (mean > 0.5 or max(values) >= 0.75),
            mean is not None and not wanted_benign and mean < 0.5,
            mean is not None and abs(mean - (case.probability or 0.0)) >= 0.5,
        ]
    )


def test_no_decision_is_stated_that_something_contradicts() -> None:
    assert len(CASES) == 7 * 9 * 5 * 2 * 3
    stated = 0
    for case in CASES:
        found = verdict(case)
        if case.decision in ("malignant", "benign"):
            assert (found.stated == "refer") == speaks_against(case), case
            assert bool(found.against) == speaks_against(case), case
            stated += found.stated == case.decision
        else:
            assert found.stated == case.decision
            assert found.against == ()
    assert stated > 20  # a rule that never states anything would pass the rest


@pytest.mark.parametrize(
    ("case", "words", "apart"),
    [
        # Readers 4 5 4 3 and P .03, on a real patient of PROSTATEx.
        (region("benign", 0.03, (4, 5, 4, 3)), "the tool does not suspect cancer, the readers do",
         "far apart"),
        (region("malignant", 0.93, (1, 1, 1, 1)), "the tool suspects cancer, the readers do not",
         "far apart"),
        (region("benign", 0.05, (1, 1, 1, 4)), "one reader does", "agree"),
        (region("malignant", 0.9, (4, 4), unlike="ADC"), "unlike the training cohort", "agree"),
        (region("malignant", 0.9, (4, 4), ["benign"]), "fits the other class only", "agree"),
        (region("benign", 0.05, (1, 1), histology="malignant"), "histology found it malignant",
         "agree"),
        (region("malignant", 0.9, (4, 4)), "", "agree"),
        (region("refer", 0.3), "", ""),
    ],
)  # fmt: skip
def test_what_contradicts_is_said_in_words(case: RegionResult, words: str, apart: str) -> None:
    found = verdict(case)
    assert words in "; ".join(found.against)
    assert bool(words) == bool(found.against)
    assert found.apart == apart


def test_a_patient_is_benign_only_when_everything_is() -> None:
    benign, sure = region("benign", 0.05), region("malignant", 0.9, (4, 5), roi="2")
    disputed = region("benign", 0.03, (4, 5, 4, 3), roi="3")
    assert patient_verdict([benign]).stated == "benign"
    assert patient_verdict([benign], failed=True).stated == "refer"
    assert patient_verdict([benign, disputed]).stated == "refer"
    assert patient_verdict([benign, region("", None)]).stated == "refer"
    assert patient_verdict([region("", None)]).stated == ""
    both = patient_verdict([benign, disputed, sure])
    assert both.stated == "malignant"
    assert [r.roi for r, _ in both.regions] == ["2", "3", "1"]
    assert [r.roi for r, _ in both.disputed] == ["3"]
    # What the readers suspect goes before what the tool finds a little more probable.
    assert patient_verdict([region("refer", 0.4), disputed]).lead is disputed


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
        table.loc[own, "decision"] = decision
        table.loc[own, "probability"] = probability
        table.loc[own, ["scores", "histology"]] = [scores, ""]
        table.loc[own, ["p_benign", "p_malignant"]] = 0.5
        table.to_csv(run / "probabilities.csv", index=False)
        write_report(run)
        page = (run / "report" / "sub-P005.html").read_text(encoding="utf-8")
        index = (run / "report" / "index.html").read_text(encoding="utf-8")
        glance = page.split('id="glance-title"')[1].split("</section>")[0]
        row = index.split('href="sub-P005.html">sub-P005</a></th>')[1].split("</tr>")[0]
        agreed = probability == 0.93 and "r1=4" in scores
        for text in (glance, row):
            # The word itself, not "malignant above" of the scale or the index's counts.
            assert (f"</i>{words[decision]}" in text) == agreed, text
            assert ("</i>Refer" in text) != agreed
        assert ("disputed" in row) != agreed
        assert ("the tool suspects cancer, the readers do not" in glance) == ("r1=1" in scores)


@pytest.mark.parametrize(
    ("case", "suspicion"),
    [
        (region("benign", 0.03, (4, 5, 4, 3)), 1.0),  # the readers contradict: the most suspicious
        (region("benign", 0.05, (1, 1, 1, 4)), 0.75),  # one of them does
        (region("benign", 0.05, (2, 1)), 0.125),  # nobody does: their mean
        (region("malignant", 0.9, (1, 1)), 0.9),
        (region("malignant", 0.7, (4, 5)), 0.875),
        (region("refer", 0.3, (3, 5)), 0.75),
        (region("refer", 0.3), 0.3),
    ],
)
def test_suspicion_is_the_tools_or_the_readers(case: RegionResult, suspicion: float) -> None:
    assert verdict(case).suspicion == suspicion


def test_a_disputed_patient_of_low_probability_is_listed_high() -> None:
    """Readers 4 5 4 3 against P .03 stand before P .6 on which everyone agrees."""
    patients = {
        "agreed": region("malignant", 0.6, (4, 3)),
        "disputed": region("benign", 0.03, (4, 5, 4, 3)),
        "benign": region("benign", 0.04, (1, 1)),
    }
    regions = [replace(case, patient=name, study=name) for name, case in patients.items()]
    listed = list_patients(Results(RunFolder(Path()), {}, {}, regions, []))
    assert [view.patient for view in listed] == ["disputed", "agreed", "benign"]


def test_the_first_line_keeps_its_order(finished_run: Path) -> None:
    page = (finished_run / "report" / "sub-P002.html").read_text(encoding="utf-8")
    first = page.split('<dl class="first">')[1].split("</dl>")[0]
    keys = re.findall(r'data-answer="(\w+)"', first)
    assert keys == ["worst", "readers", "disagree", "like", "missing", "next", "own"]


def test_a_run_of_before_is_judged_by_its_warnings_and_five_point_scores(
    finished_run: Path, tmp_path: Path
) -> None:
    shutil.copy(finished_run / "run.json", tmp_path / "run.json")
    table = pd.read_csv(finished_run / "probabilities.csv").head(1)
    table["warnings"] = "unlike the training cohort (ADC level: 8.0 SD below), so that"
    table.drop(columns=["unlike", "reader_values", "scales"], errors="ignore").to_csv(
        tmp_path / "probabilities.csv", index=False
    )
    (old,) = read_results(tmp_path).regions
    assert old.unlike == "ADC level: 8.0 SD below"
    assert [value for _, value in old.reader_values] == [
        (float(score) - 1) / 4 for _, score in old.scores
    ]


def test_pages_hold_no_inline_style_or_handler(finished_run: Path) -> None:
    for path in (finished_run / "report").glob("sub-*.html"):
        text = path.read_text(encoding="utf-8")
        for name in ("viewer.js", "patient.js", "report.css"):
            text = text.replace(str(asset(name)), "")
        assert not re.search(r"<[^>]+\s(style|on\w+)=", text), path.name
