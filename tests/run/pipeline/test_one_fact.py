"""One fact, one owner: table, page, index, SR, FHIR, record, card and terminal state the same."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from dicom_files import needs

from cad.dicom.out.fhir import read_fhir, write_fhir
from cad.dicom.out.results import write_sr_and_seg
from cad.dicom.out.sr_reader import PROBABILITY, read_report
from cad.folders.cohort import read_cohort
from cad.folders.run_folder.results import read_results
from cad.learning.evaluation.summary import Summary
from cad.learning.labels.consensus import malignant
from cad.mri.imaging.nifti import read_volume, sidecar_path
from cad.mri.imaging.study_files import image_path
from cad.run.execution.options import HERE
from cad.run.model.bundle import load_bundle
from cad.run.pipeline import predict_cohort, run_pipeline, train_model
from cad.run.reports.plots import probability_text
from cad.run.reports.printed import regions_as_json
from cad.run.reports.sheet import draw_sheet
from cad.run.reports.views import list_patients
from cad.run.stages.emit import Emitted

CODES = {"21594007": "malignant", "30807003": "benign", "refer": "refer"}
WORDS = ("malignant", "refer", "benign")
MEN = int(os.environ.get("CAD_MEN", "200"))
CHOOSE = ("where", "select", "mask", "map", "cut", "choose", "searchsorted", "digitize")


def give_source(root: Path) -> None:
    """Say of simulated T2 series which DICOM objects they would be, as an import does."""
    for number, ref in enumerate(read_cohort(root).studies(), start=1):
        image = image_path(ref.folder, ref.study_id, "t2w")
        path, stem = sidecar_path(image), f"2.25.{number}"
        content = json.loads(path.read_text()) if path.is_file() else {}
        slices = read_volume(image).shape[0]
        content |= {
            "StudyInstanceUID": f"{stem}.1",
            "SeriesInstanceUID": f"{stem}.2",
            "FrameOfReferenceUID": f"{stem}.3",
            "SOPInstanceUIDs": [f"{stem}.4.{z}" for z in range(slices)],
        }
        path.write_text(json.dumps(content))


def disagreements(said: Emitted, root: Path, dicom: Path, isup_min: int = 2) -> list[str]:
    """Return where the artefacts of a run state different facts, read back from each of them."""
    run = said.out
    types = {"roi_id": str, "isup": float}
    table = pd.read_csv(run / "probabilities.csv", dtype=types)
    table = table.fillna({"decision": "", "patient_decision": ""})
    rois = table.assign(
        histology=table["histology"].astype(object).where(table["histology"].notna())
    )
    found = []

    def same(name: str, one: object, other: object) -> None:
        if one != other:
            found.append(f"{name}: {one} in the table, {other}")

    truth = malignant(rois, isup_min)
    same("truth", table["truth"].fillna(-1).tolist(), np.nan_to_num(truth, nan=-1).tolist())
    metrics = json.loads((run / "metrics.json").read_text())
    counted = metrics["decisions"]["stated"]["decisions"]
    counts = {word: int((table["decision"] == word).sum()) for word in WORDS}
    same("metrics.json", counts, {word: counted[word]["n"] for word in WORDS})
    line = ", ".join(f"{counts[word]} {word}" for word in WORDS)
    scored = table.dropna(subset=["probability"])
    if missing := len(table) - len(scored):
        line += f", {missing} without a probability"
    sure = (counts["malignant"] + counts["benign"]) / len(scored)
    same("terminal", True, f"{line}; {sure:.0%} of {len(scored)} decided" in said.as_text())
    for word in WORDS:
        shown = f"{word} {counts[word]} ({counted[word]['share']:.0%})"
        same("terminal", True, shown in said.as_text(verbose=True))
    index = (run / "report" / "index.html").read_text(encoding="utf-8")
    for word in WORDS:
        same("tile", True, f'<li><b>{counts[word]}</b> <span class="call {word}">' in index)
    for patient, rows in table.groupby("participant_id"):
        page = (run / "report" / f"{patient}.html").read_text(encoding="utf-8")
        row = index.split(f'href="{patient}.html">{patient}</a></th>')
        cells, head = row[1].split("</tr>")[0], row[0].rsplit("<tr", 1)[1]
        (whole,) = set(rows["patient_decision"])
        same(f"{patient}, index", whole, re.findall(r'data-decision="(\w*)"', head)[0])
        same(f"{patient}, index", {whole or "none"}, set(re.findall(r'class="call (\w+)"', cells)))
        own = " ".join(str((rows["decision"] == word).sum()) for word in WORDS)
        same(f"{patient}, index counts", own, re.findall(r'data-counts="([^"]*)"', head)[0])
        known = rows["truth"].dropna()
        every = len(known) == len(rows)
        same(f"{patient}, index: histology known", every, "histology known" in cells)
        same(f"{patient}, page: histology known", every, "Nothing is to be referred" in page)
        if len(known):
            text = f"malignant {int(known.sum())} of {len(known)}"
            same(f"{patient}, index histology", True, text in cells)
        viewers = json.loads(page.split('id="viewers">')[1].split("</script>")[0])
        shown = {r["id"]: r for viewer in viewers for r in viewer["regions"]}
        for region in rows.itertuples():
            name = f"{patient} {region.roi_id}"
            article = page.split(f'id="roi-{region.study_id}-{region.roi_id}"')[1]
            article = unescape(article.split("</article>")[0])
            calls = set(re.findall(r'"call (\w+)"', article))
            same(f"{name}, page", {region.decision or "none"}, calls)
            if np.isnan(region.probability):
                same(f"{name}, page", True, "No probability: see what was" in article)
            else:
                same(f"{name}, page", True, probability_text(region.probability) in article)
            same(f"{name}, viewer", region.decision, shown[region.roi_id]["decision"])
    reports = _reports(run, root, dicom)
    names = {path.name.removesuffix("_SR.dcm") for path in reports}
    # A study without any probability has no report: there is nothing to be reported of it.
    same("studies with SR", set(scored["study_id"]), names)
    for path, bundle in zip(reports, write_fhir(run, reports), strict=True):
        rows = scored[scored["study_id"] == path.name.removesuffix("_SR.dcm")].set_index("roi_id")
        entries = [one["resource"] for one in read_fhir(bundle)["entry"]]
        parts_of = [one for one in entries if one["resourceType"] == "Observation"]
        observed = {
            one["identifier"][1]["value"]: one["component"]
            for one in parts_of
            if "identifier" in one
        }
        report = read_report(path)
        rois = report.rois
        whole, word = rows.iloc[0]["patient_probability"], rows.iloc[0]["patient_decision"]
        wanted = None if np.isnan(whole) else (100 * whole, word)
        told = report.man and (report.man[0], CODES[report.man[1]])
        same(f"{path.name}, the man", wanted, told)
        men = [one for one in parts_of if "identifier" not in one]
        same(f"{path.name}, the man in FHIR", report.man is not None, len(men) == 1)
        for man in men:
            same("man, FHIR", 100 * whole, float(man["valueQuantity"]["value"]))
            same("man, FHIR", True, word in str(man["component"]).lower())
        same(f"{path.name}, regions", set(rows.index), {roi.roi_id for roi in rois})
        same(f"{path.name}, regions in FHIR", set(rows.index), set(observed))
        for roi in rois:
            row, parts = rows.loc[roi.roi_id], observed[roi.roi_id]
            same(f"{roi.roi_id}, SR", 100 * row["probability"], roi.values[PROBABILITY][0])
            same(f"{roi.roi_id}, SR", row["decision"], CODES[roi.evaluations["decision"]])
            coded = {part["code"]["coding"][0]["code"]: part for part in parts}
            value = coded[PROBABILITY]["valueQuantity"]["value"]
            same(f"{roi.roi_id}, FHIR", 100 * row["probability"], float(value))
            stated = str(coded["decision"]["valueCodeableConcept"]).lower()
            same(f"{roi.roi_id}, FHIR", True, row["decision"] in stated)
    return found


CALLS = {"malignant": "■ Malignant", "refer": "◇ Refer", "benign": "○ Benign", "": "No decision"}


def sheet_disagreements(run: Path, only: frozenset[str] | None = None) -> list[str]:
    """Return where the sheets on paper and ``--json`` state other facts than the table of a run.

    The text of a sheet is what another program finds in its PDF.
    """
    needs("pdftotext")
    table = pd.read_csv(run / "probabilities.csv", dtype={"roi_id": str})
    table = table.fillna({"decision": "", "patient_decision": ""})
    results = read_results(run)
    metrics = Summary.from_dict(results.metrics)
    printed = {(one["study_id"], one["roi_id"]): one for one in regions_as_json(results)}
    found = []
    for patient in list_patients(results):
        if only is not None and patient.patient not in only:
            continue
        document = draw_sheet(results, metrics, patient).pdf
        command = ["pdftotext", "-raw", "-", "-"]
        done = subprocess.run(command, input=document, check=True, capture_output=True)
        text = " ".join(done.stdout.decode().split())
        rows = table[table["participant_id"] == patient.patient]
        if rows.empty:
            continue
        # Every lesion of the sheet begins with its region's name and ends before the next one.
        titles = r"(?=Region \S+(?:, most suspicious to [a-z ]+)?; (?:decision|histology): )"
        lesions = re.split(titles, text)
        head = lesions[0]
        wanted = [patient.patient, CALLS[rows["patient_decision"].iloc[0]]]
        whole = rows["patient_probability"].iloc[0] if "patient_probability" in rows else np.nan
        if np.isfinite(whole):
            wanted.append(f": {probability_text(whole)}")
        found += [f"{patient.patient}, sheet: no {word!r}" for word in wanted if word not in head]
        known = bool(rows["truth"].notna().all())
        if known != ("Nothing is to be referred" in head):
            found.append(f"{patient.patient}, sheet: histology known {known}")
        shown = {}
        for lesion in lesions[1:]:
            shown[lesion.split(";")[0].split(",")[0].removeprefix("Region ")] = lesion
        named = {region.roi for region in patient.head}
        if set(shown) != named:
            found.append(f"{patient.patient}, sheet: lesions {sorted(shown)}, not {sorted(named)}")
        for row in rows.itertuples():
            name = f"{patient.patient} {row.roi_id}"
            one = printed[row.study_id, row.roi_id]
            same_json = (one["decision"], one["patient_decision"])
            if same_json != (row.decision, row.patient_decision):
                found.append(f"{name}, --json: {same_json}")
            for key in ("probability", "belief"):
                value = getattr(row, key)
                told = np.nan if one[key] is None else one[key]
                if not np.array_equal([value], [told], equal_nan=True):
                    found.append(f"{name}, --json: {key} {told}, {value} in the table")
            if one["patient_histology_known"] != known:
                found.append(f"{name}, --json: histology known {not known}")
            if row.roi_id not in shown:
                continue
            words = [f"; decision: {CALLS[row.decision]}"]
            if np.isfinite(row.truth):
                histology = "malignant" if row.truth else "(?:benign|.*not counted as malignant)"
                title = f"; histology: {histology}[^;]*; tool, for comparison: "
                if not re.search(title + re.escape(CALLS[row.decision]), shown[row.roi_id]):
                    found.append(f"{name}, sheet: no {title!r}")
                words = []
            if row.probability_of == "histology":
                words.append(f"{probability_text(row.probability)} probability of cancer")
            if np.isfinite(row.probability):
                belief = probability_text(row.belief)
                words.append(f"estimate of what readers would say: {belief} malignant")
            found += [
                f"{name}, sheet: no {word!r}" for word in words if word not in shown[row.roi_id]
            ]
    return found


def _reports(run: Path, root: Path, out: Path) -> list[Path]:
    give_source(root)
    files, failures = write_sr_and_seg(run, root, out)
    assert {failure.problem for failure in failures} <= {"no ROI of the study has a probability"}
    return [path for path in files if path.name.endswith("_SR.dcm")]


def card_disagreements(model: Path) -> list[str]:
    """Return where a bundle's card and its training table count differently."""
    bundle = load_bundle(model)
    table, said = bundle.training, bundle.metadata["training"]
    truth = table["truth"]
    people = table.drop_duplicates("participant_id")
    sites = people["site"].dropna() if "site" in people else pd.Series(dtype=str)
    wanted = {
        "patients": len(people),
        "regions": len(table),
        "malignant": int((truth == 1).sum()),
        "benign": int((truth == 0).sum()),
        "sites": sites[sites != ""].value_counts().to_dict(),
    }
    card = (model / "README.md").read_text(encoding="utf-8")
    line = f"- {wanted['patients']} SIMULATED patients, {wanted['regions']} regions: "
    found = [f"{k}: {v} in the table, {said[k]}" for k, v in wanted.items() if said[k] != v]
    return found + ([] if line in card else [f"the card lacks {line!r}"])


def without_histology(root: Path) -> None:
    rois = pd.read_csv(root / "rois.tsv", sep="\t", dtype=str, keep_default_na=False)
    rois.assign(histology="n/a", isup="n/a").to_csv(root / "rois.tsv", sep="\t", index=False)


def renamed(root: Path, letter: str) -> None:
    """Give a cohort's patients other ids."""
    for path in sorted(root.rglob("*sub-*"), key=lambda p: -len(p.parts)):
        path.rename(path.with_name(path.name.replace("sub-", f"sub-{letter}")))
    for path in root.glob("*.tsv"):
        path.write_text(path.read_text().replace("sub-", f"sub-{letter}"))


def test_a_validation_and_a_prediction_state_one_thing_each(
    cohort: Path,
    quick_pipeline: Path,
    model: Path,
    part_of: Callable[..., Path],
    tmp_path: Path,
) -> None:
    root = part_of(cohort, tmp_path / "cohort", [f"sub-000{k}" for k in range(1, 4)])
    validated = run_pipeline(str(quick_pipeline), root, tmp_path / "run", HERE)
    known = predict_cohort([str(model)], root, tmp_path / "known", HERE, probability_map=True)
    assert disagreements(validated, root, tmp_path / "a") == []
    assert disagreements(known, root, tmp_path / "b") == []
    assert card_disagreements(model) == []
    assert sheet_disagreements(known.out, frozenset({"sub-0001"})) == []
    # ... and the test sees a second statement.
    index = known.out / "report" / "index.html"
    index.write_text(re.sub(r'data-counts="\d+', 'data-counts="99', index.read_text()))
    assert any("index counts" in text for text in disagreements(known, root, tmp_path / "c"))


@pytest.mark.slow
def test_two_hundred_men_state_one_thing_each(tmp_path: Path) -> None:
    """Table, page, index, terminal, SR, FHIR, JSON and paper of 200 men: 0 contradictions."""
    from cad.evidence.phantom import simulate

    root = tmp_path / "cohort"
    simulate(root, patients=MEN, seed=65, light=True)
    predicted = predict_cohort(["phantom-psvm"], root, tmp_path / "run", HERE)
    assert disagreements(predicted, root, tmp_path / "dicom") == []
    assert sheet_disagreements(predicted.out) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:every certain label is")  # six men may have no sure cancer
@pytest.mark.parametrize("seed", range(10))
def test_ten_cohorts_state_one_thing_each(seed: int, quick_pipeline: Path, tmp_path: Path) -> None:
    """Train, extend, predict by two models with and without histology, map: 0 disagreements."""
    from cad.evidence.phantom import simulate

    old, root = tmp_path / "old", tmp_path / "new"
    simulate(old, patients=6, seed=100 + seed, light=True)
    simulate(root, patients=5, seed=200 + seed, light=True)
    renamed(root, "N")
    two = tmp_path / "two.yaml"
    text = quick_pipeline.read_text().replace("name: quick", "name: two")
    two.write_text(text.replace("features: {", "features: {modalities: [t2w, adc], "))
    train_model(str(quick_pipeline), old, tmp_path / "one", HERE)
    train_model(str(two), old, tmp_path / "two", HERE)
    extended = train_model(
        str(quick_pipeline), root, tmp_path / "more", HERE, extends=str(tmp_path / "one")
    )
    for name in ("one", "two", "more"):
        assert card_disagreements(tmp_path / name) == []
    models = [str(tmp_path / "one"), str(tmp_path / "two")]
    known = predict_cohort(models, root, tmp_path / "known", HERE, probability_map=True)
    without_histology(root)
    unknown = predict_cohort([models[1]], root, tmp_path / "unknown", HERE)
    for name, said in (("a", extended), ("b", known), ("c", unknown)):
        assert disagreements(said, root, tmp_path / name) == []


@pytest.mark.slow
def test_the_demo_states_one_thing(repository: Path, tmp_path: Path) -> None:
    """Every region of the sample cohort, by the pipeline of `cad demo`."""
    root = tmp_path / "cohort"
    shutil.copytree(repository / "sample_data", root)
    said = run_pipeline("demo", root, tmp_path / "run", HERE)
    assert said.regions >= 80
    assert disagreements(said, root, tmp_path / "dicom") == []


DECIDERS = {
    "run/stages/decide.py",  # the one that decides on regions and men
    "learning/evaluation/decisions/reject.py",  # the rule, and its curve
    "learning/evaluation/decisions/operating.py",  # what thresholds would do, to choose them
    "evidence/experiments/amirou2014.py",  # a paper's table
}
TRUTHS = {
    "learning/labels/consensus.py",  # the one rule
    "folders/cohort/rules.py",  # what a table may say
    "run/workflows/check.py",  # says which cells the rule cannot read without a grade
    "folders/run_folder/results.py",  # words beside the rule's answer
}
"""Modules that decide from thresholds, or read histology's word as a class."""


def weighs(node: ast.AST) -> bool:
    """Tell whether a decision's word follows from what is larger than what, without `decide`."""
    if isinstance(node, ast.IfExp):
        parts = [node.body, node.orelse]
    elif isinstance(node, ast.If):
        parts = [*node.body, *node.orelse]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in CHOOSE:
        parts = [*node.args, *(k.value for k in node.keywords)]
    elif isinstance(node, ast.Subscript):
        parts = [node.value]
    else:
        return False
    inside = ast.walk(node if isinstance(node, (ast.Call, ast.Subscript)) else node.test)
    return any(
        isinstance(part, ast.Compare)
        and any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in part.ops)
        for part in inside
    ) and any(
        (isinstance(part, ast.Constant) and part.value in WORDS)
        or getattr(part, "id", "") == "DECISIONS"
        for whole in parts
        for part in ast.walk(whole)
    )


def second_owners(source: str, path: str) -> list[str]:
    """Return the lines of a module that decide, or read histology's word, without being owners."""
    found = []
    for node in ast.walk(ast.parse(source)):
        text = ast.unparse(node) if isinstance(node, (ast.Call, ast.Assign, ast.Compare)) else ""
        decides = isinstance(node, ast.Call) and re.match(r"decide\(.+,", text)
        writes = isinstance(node, ast.Assign) and re.match(
            r"\w+(\.loc)?\[.*'(patient_)?decision(_\w+)?'.*\] =", text
        )
        assigns = (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", "") == "assign"
            and any(re.match(r"(patient_)?decision(?!_value)", k.arg or "") for k in node.keywords)
        )
        if (decides or writes or assigns or weighs(node)) and path not in DECIDERS:
            found.append(f"{path}:{node.lineno}: a second decider: {text}")
        reads = isinstance(node, ast.Compare) and re.search(
            r"histology.* == 'malignant'|'malignant' == .*histology", text
        )
        maps = isinstance(node, ast.Call) and re.search(r"histology.*\.map\(\{'malignant'", text)
        if (reads or maps) and path not in TRUTHS:
            found.append(f"{path}:{node.lineno}: a second rule of malignant: {text}")
    return found


def test_a_decision_and_malignant_have_one_owner_each(repository: Path) -> None:
    package = repository / "cad"
    found = [
        text
        for path in sorted(package.rglob("*.py"))
        for text in second_owners(path.read_text(), path.relative_to(package).as_posix())
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "codes = decide(q, low, high)",
        "table['decision'] = words",
        "table.loc[own, 'decision'] = 'refer'",
        "table = table.assign(decision=words)",
        "table['patient_decision'] = words",
        "word = 'benign' if p < low else 'refer'",
        "words = np.where(q > high, 'malignant', 'refer')",
        "words = np.select([q < low, q > high], ['benign', 'malignant'], 'refer')",
        "word = ['benign', 'refer', 'malignant'][(p >= low) + (p > high)]",
        "words = pd.cut(q, [0, low < high, 1], labels=['benign', 'malignant'])",
        "if p < low:\n    word = 'benign'",
        "bad = row.histology == 'malignant'",
        "truth = rois['histology'].map({'malignant': 1.0, 'benign': 0.0})",
    ],
)
def test_a_second_owner_is_seen(line: str) -> None:
    assert len(second_owners(line, "run/reports/pages.py")) == 1
    assert second_owners("q = table['decision'] == 'benign'", "run/reports/pages.py") == []
