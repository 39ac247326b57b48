"""The content of a page, without a browser."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cad.base.errors import CadError
from cad.base.settings import FeatureSettings
from cad.base.terms.text import interval_text
from cad.folders.run_folder.results import Reason, read_results
from cad.learning.evaluation.summary import summarise
from cad.mri.columns import columns_of
from cad.run.reports import write_report
from cad.run.reports.headline import belief_words, readers_words, tool_words, where_words
from cad.run.reports.plots import measured, probability_text
from cad.run.reports.reasons import reason_sum
from cad.run.reports.regions import histology_in, region_view
from cad.run.reports.wording import Wording


class References(HTMLParser):
    """Everything in a page that points somewhere, and its words outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.points: list[str] = []
        self.words: list[str] = []
        self.scripts = 0
        self._hidden = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self._hidden = tag if tag in ("script", "style") else ""
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "srcset", "poster") and value:
                self.points.append(value)

    def handle_endtag(self, tag: str) -> None:
        self._hidden = ""

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def _page(run: Path, name: str) -> str:
    return (run / "report" / f"{name}.html").read_text(encoding="utf-8")


def _rows(run: Path) -> list[dict[str, str]]:
    with (run / "probabilities.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_every_region_is_on_its_patients_page_with_its_decision(finished_run: Path) -> None:
    regions = read_results(finished_run).regions
    stated = {(region.study, region.roi): region.decision for region in regions}
    assert {"malignant", "refer", "benign"} <= set(stated.values())
    shown = {n: References(_page(finished_run, n)).text for n in ("sub-P001", "sub-P004")}
    for row in _rows(finished_run):
        if row["participant_id"] in shown:
            probability = probability_text(float(row["probability"]))
            text = shown[row["participant_id"]].split(f"Region {row['roi_id']} ")[-1][:600]
            assert probability in text
            assert stated[row["study_id"], row["roi_id"]].capitalize() in text


def test_pages_point_nowhere_outside(finished_run: Path) -> None:
    pages = list((finished_run / "report").glob("*.html"))
    assert len(pages) == 1 + 18 + 2
    names = {p.name for p in pages}
    for page in pages:
        for target in References(page.read_text(encoding="utf-8")).points:
            assert target.startswith(("data:", "#")) or target in names


def test_foreign_text_is_escaped(finished_run: Path) -> None:
    for name in ("index", "sub-P001", "sub-P002"):
        text = _page(finished_run, name)
        assert "<script>window.stolen" not in text
        assert "&lt;script&gt;window.stolen" in text
        # Ours: the page's script and, on a patient's page, the data of the viewers.
        assert References(text).scripts == (1 if name == "index" else 2)


@pytest.mark.parametrize("name", ["index", "sub-P001", "sub-P900"])
def test_every_page_states_its_limits(finished_run: Path, name: str) -> None:
    text = References(_page(finished_run, name)).text
    assert "Research use only" in text
    assert "Trained on simulated patients" in text


def test_a_real_cohort_is_not_called_simulated(finished_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run, ignore=shutil.ignore_patterns("studies", "report"))
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"simulated": False}))
    write_report(run)
    for page in (run / "report").glob("*.html"):
        assert "imulated patients" not in References(page.read_text(encoding="utf-8")).text


def test_a_page_names_the_model_that_scored_this_patient(
    finished_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run, ignore=shutil.ignore_patterns("studies", "report"))
    training = {"patients": 49, "regions": 350, "simulated": False}
    models = {
        "three": {"name": "three", "training": training},
        "two": {"name": "two", "training": training | {"patients": 31}},
    }
    record = json.loads((run / "run.json").read_text())
    record["model"] = {**models["three"], "name": "three, two", "models": models}
    (run / "run.json").write_text(json.dumps(record))
    table = pd.read_csv(run / "probabilities.csv")
    second = (table["participant_id"] == "sub-P002") | (table["study_id"] == "sub-P003_ses-02")
    table.assign(model=np.where(second, "two", "three")).to_csv(
        run / "probabilities.csv", index=False
    )
    write_report(run)
    said = {n: References(_page(run, f"sub-P00{n}")).text.split("Slices")[0] for n in (1, 2)}
    assert "Model three, trained on 49 patients." in said[1]
    assert "Model two, trained on 31 patients." in said[2]
    both = References(_page(run, "sub-P003")).text
    assert "Model three, trained on 49 patients; two, trained on 31 patients." in both
    assert References(_page(run, "index")).text.count("models three, two") == 2
    # A run of before, whose record has the first model's training only.
    del record["model"]["models"]
    (run / "run.json").write_text(json.dumps(record))
    write_report(run)
    assert "Model two." in References(_page(run, "sub-P002")).text


def test_pages_use_words_that_need_no_glossary(finished_run: Path) -> None:
    without = References(_page(finished_run, "sub-P002")).text
    assert "This study has no dynamic series." in without
    text = References(_page(finished_run, "sub-P001")).text
    assert "benign below 10% malignant above 60%" in text
    assert "Not ruled out (90%)" in text
    assert "2026-01-05 03:00:00 UTC" in text
    index = References(_page(finished_run, "index")).text
    assert "referring a malignant region 0.4, a benign one 0.4" in index


@pytest.mark.parametrize("thresholds", [(0.001, 0.01), (0.1, 0.6), (0.45, 0.55), (0.95, 0.99)])
def test_the_scales_words_stay_apart_and_inside(
    finished_run: Path, tmp_path: Path, thresholds: tuple[float, float]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run, ignore=shutil.ignore_patterns("studies", "report"))
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"decision_thresholds": thresholds}))
    write_report(run)
    page = _page(run, "sub-P005")
    found = re.findall(r'class="threshold" x="([\d.]+)" y="65"( text-anchor="end")?', page)[:2]
    (benign, end), (malignant, start) = found
    assert (bool(end), bool(start)) == (True, False)
    assert 104 <= float(benign) < float(malignant) <= 290  # of 420; a word takes up to 130


def test_a_low_probability_that_is_referred_says_why(finished_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run, ignore=shutil.ignore_patterns("studies", "report"))
    table = pd.read_csv(run / "probabilities.csv")
    own = table["participant_id"] == "sub-P005"
    why = "the region is unlike the training cohort"
    columns = ["probability", "decision", "decision_model", "decision_reason"]
    table.loc[own, columns] = [0.05, "refer", "benign", why]
    table.loc[own, ["histology", "isup", "truth"]] = np.nan
    table.to_csv(run / "probabilities.csv", index=False)
    write_report(run)
    text = References(_page(run, "sub-P005")).text
    assert f"for benign, but: {why}" in text
    assert "lies between the site's limits" not in text


def test_the_head_names_what_was_not_scored_and_disagreements_without_a_decision(
    finished_run: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(finished_run, tmp_path / "run")
    table = pd.read_csv(run / "probabilities.csv", dtype={"roi_id": str})
    patient = table["participant_id"].iloc[0]
    of_him = table.index[table["participant_id"] == patient]
    assert len(of_him) > 2
    unscored, against = of_him[0], of_him[1]
    numbers = ["belief", "probability", "probability_low", "probability_high"]
    table.loc[unscored, numbers] = np.nan
    table.loc[of_him, ["decision", "patient_decision"]] = ""
    table.loc[of_him[1:], "readers_mean"] = table.loc[of_him[1:], "belief"]
    table.loc[against, ["belief", "readers_mean"]] = [0.05, 0.95]
    table.loc[against, "apart"] = "far apart"
    table.to_csv(run / "probabilities.csv", index=False)
    write_report(run)
    text = References((run / "report" / f"{patient}.html").read_text(encoding="utf-8")).text
    names = table["roi_id"]
    assert f"Not scored, and not in the man's number: region {names[unscored]}." in text
    assert f"Tool and readers disagree on region {names[against]}." in text


def test_warnings_and_missing_parts_are_said(finished_run: Path) -> None:
    missing = References(_page(finished_run, "sub-P002")).text
    assert "DCE missing: nothing was measured on it" in missing
    assert "4 voxels, at least 5 needed" in missing
    first = References(_page(finished_run, "sub-P001")).text
    assert "poor Tofts fit: R² 0.62, below 0.8" in first
    assert "outside the training distribution" in first
    assert "awaiting ROI" in References(_page(finished_run, "sub-P901")).text
    assert "times are not increasing" in References(_page(finished_run, "sub-P900")).text


def test_status_says_what_is_lacking_on_index_and_page_alike(finished_run: Path) -> None:
    index = _page(finished_run, "index")
    for name, status in (
        ("sub-P001", "scored"),
        ("sub-P002", "scored in part"),  # a region failed
        ("sub-P005", "scored without ADC"),
        ("sub-P900", "failed"),
        ("sub-P901", "awaiting ROI"),
    ):
        row = index.split(f'href="{name}.html">{name}</a></th>')[1].split("</tr>")[0]
        assert f'<td class="status">{status}</td>' in row
        header = References(_page(finished_run, name).split("</header>")[0]).text
        assert header.endswith(f" · tool: {status}")


def test_a_missing_modality_is_said_once_in_the_list(finished_run: Path) -> None:
    page = _page(finished_run, "sub-P002")
    assert page.count("DCE is missing from this study: nothing was measured on it.") == 1
    assert "arterial input from the population" in page


def test_two_sessions_share_one_page(finished_run: Path) -> None:
    page = _page(finished_run, "sub-P003")
    assert page.count('class="viewer"') == 2
    assert not (finished_run / "report" / "sub-P003_ses-01.html").exists()


def test_a_report_is_the_same_twice_and_removes_pages_of_before(
    finished_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    (run / "report" / "sub-gone.html").write_text("old")
    write_report(run)
    assert not (run / "report" / "sub-gone.html").exists()
    for folder in ("report", "figures"):
        for path in (finished_run / folder).iterdir():
            assert path.read_bytes() == (run / folder / path.name).read_bytes(), path.name


def test_a_damaged_study_costs_only_its_pictures(finished_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    (run / "studies" / "sub-P001.npz").write_bytes(b"PK\x03\x04 half a file")
    write_report(run)
    text = References(_page(run, "sub-P001")).text
    assert "No pictures: sub-P001.npz: the study's images cannot be shown: File is" in text
    assert "Region L3" in text


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CadError, match=r"no run\.json: this is not a finished run"):
        write_report(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(CadError, match=r"no probabilities\.csv"):
        write_report(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(CadError, match="not valid JSON"):
        write_report(tmp_path)
    assert not (tmp_path / "report").exists()


def test_a_run_without_measures_has_pages_too(finished_run: Path, tmp_path: Path) -> None:
    for name in ("run.json", "probabilities.csv"):
        shutil.copy(finished_run / name, tmp_path / name)
    text = References(write_report(tmp_path).read_text(encoding="utf-8")).text
    assert "sub-P001" in text
    assert list((tmp_path / "figures").glob("*")) == []


def _table(page: str, caption: str) -> list[list[str]]:
    """The head and the rows of one table of the index, as text."""
    text = page.split(f"<caption>{caption}</caption>")[1].split("</table>")[0]
    rows = [re.findall(r"<t[hd](?: [^>]*)?>(.*?)</t[hd]>", row) for row in text.split("</tr>")]
    return [row for row in rows if row]


def test_the_tables_hold_what_the_measures_say(finished_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run, ignore=shutil.ignore_patterns("studies", "report"))
    metrics = json.loads((run / "metrics.json").read_text())
    loss = {"n": 9, "difference": 0.0, "lower": None, "upper": None, "note": ""}
    metrics["rivals"] = {
        "reference": "a",
        "sentence": "a is best.",
        "table": [
            {
                **loss,
                "against": "readers",
                "measure": "kl",
                "learner": "a",
                "value": 0.25,
                "beyond_chance": False,
            },
            {
                **loss,
                "against": "histology",
                "measure": "auc",
                "learner": "b",
                "value": 0.5,
                "beyond_chance": True,
            },
        ],
    }
    share = {
        f"{name}{end}": 0.5
        for name in ("sensitivity", "specificity", "weight", "correlation")
        for end in ("", "_lower", "_upper")
    }
    row = {"reader": "r1", "n": 7, "adds": None, "share": 0.5, **share, "weight_lower": -1.25}
    metrics["reader_skill"] = {"against": "histology", "sentence": "So.", "table": [row]}
    fold = {"n_train": 1, "n_unlabelled": 0, "n_test": 1, "selected": {}, "features": None}
    metrics["folds"] = [
        {**fold, "name": "x", "warnings": ["<w>"] * 30, "error": ""},
        {**fold, "name": "y", "warnings": ["v"] * 30, "error": "broke"},
    ]
    (run / "metrics.json").write_text(json.dumps(metrics))
    page = write_report(run).read_text(encoding="utf-8")
    assert _table(page, "Rivals") == [
        ["Learner", "Two-sided KL, sum, nats to readers", "AUC to histology"],
        ["a", "0.2", "–"],
        ["b", "–", "0.500 *"],
    ]
    assert _table(page, "Readers, pooled")[1] == [
        "r1",
        "7",
        "0.50 [0.50, 0.50]",
        "0.50 [0.50, 0.50]",
        "0.50 [-1.25, 0.50]",
        "0.50 [0.50, 0.50]",
        "50 %",
    ]
    # Fifty lines at most.
    assert _table(page, "Folds") == [
        ["Left out", "Said"],
        *[["x", "&lt;w&gt;"]] * 30,
        *[["y", "v"]] * 20,
    ]
    whole, kinds = metrics["histology"], metrics["label_kinds"]
    assert _table(page, "Validation")[1][1] == f"{whole['n']} ({whole['patients']})"
    assert _table(page, "Validation")[3][1] == interval_text(whole["auc"])
    assert [row[0] for row in _table(page, "Readers")[1:]] == list(metrics["readers"])
    assert _table(page, "Labels")[1:] == [[k.replace("_", " "), str(n)] for k, n in kinds.items()]
    assert _table(page, "Permutation null")[1][1:3] == ["0.500 [0.370, 0.630]", "0.005"]
    at = whole["operating_points"][0]
    counts = [str(at[name]) for name in ("tp", "fp", "tn", "fn")]
    assert _table(page, "Operating points")[1][1:5] == counts
    level = metrics["conformal"]["levels"][0]
    assert _table(page, "Conformal sets")[1][1] == f"{level['coverage_malignant']:.2f}"
    versus = metrics["cad_vs_readers"]
    assert _table(page, "Classifier and the population of readers")[1][2] == f"{versus['p']:.3g}"
    for title in ("Agreement of readers", "Readers with the tool"):
        assert all(len(row) > 1 for row in _table(page, title))
    # Without a row there is no table.
    assert "<caption>Operating point</caption>" not in page


def test_too_few_regions_are_said_and_not_drawn(finished_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run, ignore=shutil.ignore_patterns("studies", "report"))
    shutil.rmtree(run / "figures")
    row = pd.read_csv(run / "probabilities.csv").head(1)
    made = summarise(row.assign(truth=1.0), bootstraps=20).as_dict()
    (run / "metrics.json").write_text(json.dumps(made))
    text = References(write_report(run).read_text(encoding="utf-8")).text
    assert "against histology: not enough regions: 1 malignant (patients: 1) and 0 benign" in text
    assert not (run / "figures").exists()
    assert "[" not in text.split("Numbers")[1].split("Record of this run")[0]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.41234, "1/min", "0.412 1/min"),
        (1234.5, "1e-6 mm2/s", "1 234 ×10⁻⁶ mm²/s"),
        (-2.5, "", "−2.50"),
        (81.2, "(s)^2", "81.2 s²"),
        (None, "mM", "not measured"),
        (0.0, "", "0"),
    ],
)
def test_measurements_carry_three_digits_and_their_unit(
    value: float | None, unit: str, text: str
) -> None:
    assert measured(value, unit) == text


def test_numbers_are_never_more_certain_than_they_are() -> None:
    assert probability_text(0.999) == ">99%"
    assert probability_text(0.0001) == "<1%"
    assert probability_text(0.5) == "50%"
    assert probability_text(None) == "–"
    assert interval_text({"value": 0.9, "lower": 0.8, "upper": 1.0}) == "0.900 [0.800, 1.000]"
    assert interval_text({"value": -0.5, "lower": None, "upper": None}, 2) == "-0.50"
    assert interval_text(None) == "–"


@given(st.floats(0, 1))
def test_probability_text_keeps_the_thresholds_side(value: float) -> None:
    text = probability_text(value)
    assert text in ("<1%", ">99%") or abs(float(text[:-1]) - 100 * value) <= 0.5


def test_a_hostile_patient_name_stays_in_the_report_folder(
    tmp_path: Path, run_maker: Callable[..., Path], patient_kind: type
) -> None:
    run = run_maker(tmp_path / "run", (patient_kind("sub-../../x", 8, images=False),))
    write_report(run)
    written = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.html")}
    assert "run/report/sub-______x.html" in written
    assert all(name.startswith("run/report/") for name in written)


def test_a_page_that_cannot_be_written_ends_the_others(
    run_maker: Callable[..., Path],
    patient_kind: Callable[..., object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a full disk nobody waits for ten thousand pages that will not be written either."""
    run = run_maker(tmp_path / "run", tuple(patient_kind(f"sub-{k:04d}") for k in range(12)))
    tried: list[Path] = []

    def full(path: Path, _: bytes) -> None:
        tried.append(path)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cad.run.reports.pages.write_atomic", full)
    with pytest.raises(OSError, match="No space left"):
        write_report(run)
    assert 1 <= len(tried) < 10


@pytest.mark.parametrize(
    ("feature", "group", "percentile", "title"),
    [
        ("adc_intensity_median", "ADC", 5.0, "low ADC"),
        ("adc_intensity_iqr", "ADC", 95.0, "uneven ADC"),
        ("adc_intensity_iqr", "ADC", 5.0, "even ADC"),
        ("adc_intensity_skewness", "ADC", 95.0, "ADC (a few high values)"),
        ("adc_intensity_median", "ADC", 50.0, "ordinary ADC"),
        ("t2w_intensity_p10", "T2 signal", 5.0, "dark T2 signal"),
        # A slope: -0.3 a minute is a fast wash-out, and lower than most.
        ("dce_semi_wash_out_median", "Wash-out", 5.0, "fast wash-out"),
        ("dce_semi_wash_out_median", "Wash-out", 95.0, "slow wash-out"),
        ("dce_semi_wash_in_median", "Wash-in", 95.0, "fast wash-in"),
        ("dce_tofts_ve_median", "ve", 95.0, "much extracellular space (ve)"),
        ("dce_tofts_ve_iqr", "ve", 95.0, "uneven extracellular space (ve)"),
        ("adc_haralick_contrast", "ADC texture", 95.0, "ADC texture (neighbours differ)"),
        ("adc_haralick_inverse_difference", "ADC texture", 95.0, "ADC texture (neighbours alike)"),
        ("adc_histogram_median", "ADC distribution", 5.0, "ADC distribution (low values)"),
        ("dce_brix_kel_median", "Brix kel", 50.0, "ordinary loss of contrast (Brix kel)"),
    ],
)
def test_only_a_level_is_low_or_high(
    feature: str, group: str, percentile: float, title: str
) -> None:
    reason = Reason(feature, 1.0, "1e-6 mm2/s", 0.1, percentile, group, 0.3, -1.0)
    shown = reason_sum([reason], columns_of(FeatureSettings()))
    assert shown is not None
    assert shown.bars[0].title == title
    assert shown.total == pytest.approx(-0.7)


@pytest.mark.parametrize(
    ("percentile", "contribution", "title"),
    [
        (5.0, 0.3, "low ADC"),
        (5.0, -0.3, "low ADC (opposite to the usual sign)"),
        (95.0, -0.3, "high ADC"),
        (95.0, 0.3, "high ADC (opposite to the usual sign)"),
    ],
)
def test_low_adc_that_lowers_is_said_to_be_unexpected(
    percentile: float, contribution: float, title: str
) -> None:
    reason = Reason(
        "adc_intensity_median", 1.0, "1e-6 mm2/s", 0.1, percentile, "ADC", contribution, -1.0
    )
    shown = reason_sum([reason], columns_of(FeatureSettings()))
    assert shown is not None
    assert shown.bars[0].title == title


def test_histology_of_a_grade_that_does_not_count_is_said_in_the_language(
    finished_run: Path,
) -> None:
    region = replace(
        read_results(finished_run).regions[0], histology="malignant", isup="1", truth=False
    )
    assert histology_in(region, Wording()) == "cancer, ISUP 1 (not counted as malignant)"
    german = "ein Karzinom, ISUP 1 (nicht als maligne gezählt)"
    assert histology_in(region, Wording("de")) == german


def test_the_strongest_families_are_named_where_paper_has_no_table() -> None:
    columns = columns_of(FeatureSettings())
    reasons = [
        Reason("t2w_haralick_contrast", 1.0, "1", 0.1, 50.0, "T2 texture", 0.3, -1.0),
        Reason("adc_intensity_median", 1.0, "1e-6 mm2/s", 0.1, 5.0, "ADC", -0.2, -1.0),
    ]
    shown = reason_sum(reasons, columns)
    assert shown is not None
    assert shown.sentence == "Raised by T2 texture (usual values); lowered by ADC (low values)."
    german = "Erhöht durch: Textur von T2 (übliche Werte); gesenkt durch: ADC (niedrige Werte)."
    assert shown.sentence_in(Wording("de")) == german
    texts = ("Raised by T2 texture (usual values).", "Lowered by ADC (low values).")
    for reason, text in zip(reasons, texts, strict=True):
        alone = reason_sum([reason], columns)
        assert alone is not None
        assert alone.sentence == text
    # A low ADC raises as expected and has a word; a stronger family without one is not left out.
    expected = Reason("adc_intensity_median", 1.0, "1e-6 mm2/s", 0.1, 5.0, "ADC", 0.2, -1.0)
    texture = Reason("adc_haralick_contrast", 1.0, "1", 0.1, 50.0, "ADC texture", -0.1, -1.0)
    edges = Reason("t2w_kirsch_mean", 1.0, "1", 0.1, 50.0, "T2 edges", 0.15, -1.0)
    shown = reason_sum([reasons[0], expected, texture, edges], columns)
    assert shown is not None
    assert shown.sentence == (
        "Raised by T2 texture (usual values), low ADC; lowered by ADC texture (usual values)."
    )


def test_words_of_a_row_say_what_contradicts_them(finished_run: Path) -> None:
    results = read_results(finished_run)
    region = replace(results.regions[0], outline=None, scores=[("r1", "4"), ("r2", "3")])
    view = region_view(results, region, None)
    region = replace(region, probability=0.16, belief=0.22)
    of_cancer = replace(view, region=replace(region, probability_range=(0.104, 0.301)))
    assert tool_words(of_cancer) == (
        f"16% probability of {view.cancer} (10 to 31% of many regions so judged)"
    )
    estimate = "the tool's estimate of what readers would say: 22% malignant"
    assert belief_words(of_cancer) == estimate
    of_readers = replace(region, probability_of="readers", probability=0.22, probability_range=None)
    assert tool_words(replace(view, region=of_readers)) == f"no probability of {view.cancer}"
    assert belief_words(replace(view, region=of_readers)) == estimate
    failed = replace(region, probability=None)
    assert belief_words(replace(view, region=failed)) == ""
    drawn = [replace(view, facts={"diameter": "8.5 mm", "volume": "0.32 mL"}) for _ in range(3)]
    other = replace(view, facts={"diameter": "8.6 mm", "volume": "0.32 mL"})
    mark = "size of the mark: axial diameter 8.5 mm, 0.32 mL (the lesion's size is not known)"
    assert mark in where_words(drawn[0], drawn)
    for some in (drawn[:2], [*drawn[:2], other], [replace(view, facts={})] * 3):
        assert "mark" not in where_words(some[0], some)
    assert mark in where_words(replace(drawn[0], mark=True), drawn[:1])
    assert replace(drawn[0], mark=True).diameter == "8.5 mm (mark)"
    assert drawn[0].diameter == "8.5 mm"
    assert ", none by r3" in readers_words(region, ["r1", "r2", "r3"])
    assert "none by" not in readers_words(region, ["r1", "r2"])
    from_0_to_1 = replace(region, scales={"r1": "likert01", "r2": "likert01"})
    assert "()" not in readers_words(from_0_to_1, []), "a scale without a name leaves no brackets"
    for mean, word in ((0.75, "suspicious"), (0.5, "equivocal"), (0.25, "not suspicious")):
        spoken = replace(region, readers_mean=mean, belief=mean, readers_agree="differ")
        assert readers_words(spoken, []).endswith(f"; the readers differ, on average {word}")
