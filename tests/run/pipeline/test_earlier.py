"""A run with two studies of a man: compared once, stored, shown, and in nobody's way."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from earlier_study import displacement, imaged_again, study_in, write_two_studies

from cad.base.errors import CadError
from cad.folders.cohort import read_cohort
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.results import read_results
from cad.folders.run_folder.schema import EARLIER_COLUMNS, names_of
from cad.mri.imaging import earlier as images
from cad.mri.imaging.study_files import image_path
from cad.run.execution.options import HERE
from cad.run.pipeline import predict_cohort
from cad.run.reports import write_report
from cad.run.stages import earlier as stage_of
from cad.run.stages.earlier import in_order

MAN = "sub-0002"


@pytest.fixture(scope="module")
def two_studies(
    cohort: Path, part_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A cohort of two men; one was imaged again after 18 months, moved by 9 mm and 7 degrees."""
    root = part_of(cohort, tmp_path_factory.mktemp("earlier") / "cohort", ["sub-0001", MAN])
    study = study_in(root, MAN)
    gland = study.gland
    about = gland.index_to_patient(np.argwhere(gland.array).mean(axis=0)[::-1])
    matrix = displacement(about, (4.0, -3.0, 5.0), (6.0, -5.0, 4.0))
    removed = study.rois[0].roi_id
    later = imaged_again(study, matrix, removed={removed}, seed=3)
    write_two_studies(root, study, later, ("2024-03-01", "2025-09-12"))
    (root / "sessions.tsv").write_text(
        "participant_id\tsession_id\tpsa\tprostate_volume\n"
        f"{MAN}\tses-01\t4.5\t45\n{MAN}\tses-02\t6\t48\n"
    )
    return root


@pytest.fixture(scope="module")
def run(model: Path, two_studies: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prediction of that cohort; read only."""
    out = tmp_path_factory.mktemp("earlier-run") / "run"
    predict_cohort([str(model)], two_studies, out, HERE)
    return out


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "earlier.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def probability_of_man(folder: Path) -> float:
    with (folder / "patients.csv").open(encoding="utf-8", newline="") as stream:
        (row,) = [row for row in csv.DictReader(stream) if row["participant_id"] == MAN]
    return float(row["probability"])


def page_of(folder: Path) -> str:
    return (folder / "report" / f"{MAN}.html").read_text(encoding="utf-8")


def test_every_region_has_a_row_and_the_removed_one_too(run: Path, two_studies: Path) -> None:
    rows = rows_of(run)
    assert tuple(rows[0]) == names_of(EARLIER_COLUMNS)
    refs = {ref.study_id: ref for ref in read_cohort(two_studies).studies()}
    now = refs[f"{MAN}_ses-02"].rois["roi_id"].tolist()
    then = refs[f"{MAN}_ses-01"].rois["roi_id"].tolist()
    assert [row["roi_id"] for row in rows] == [*now, ""]
    assert [row["earlier_roi_id"] for row in rows[:-1]] == [roi.removeprefix("b") for roi in now]
    assert rows[-1]["earlier_roi_id"] == then[0]
    assert rows[-1]["distance_mm"] == ""
    for row in rows:
        assert row["participant_id"] == MAN
        assert row["alignment"] == "aligned"
        assert row["order"] == "date"
        assert float(row["moved_mm"]) == pytest.approx(np.sqrt(77), abs=1.0)
        assert float(row["earlier_psa"]) == 4.5
        assert float(row["earlier_psa_density"]) == pytest.approx(0.1)
    # Voxels of the light images are 4.2 mm high.
    assert max(float(row["distance_mm"]) for row in rows[:-1]) < 2.0


def test_the_page_shows_then_and_now_beside_each_other(run: Path) -> None:
    page = page_of(run)
    section = page.split('<section class="earlier"')[1].split("</section>")[0]
    for text in ("2024-03-01", "2025-09-12", "4.50 ng/mL", "0.10 ng/mL²", "Same region?"):
        assert text in section, text
    matched = [row for row in rows_of(run) if row["distance_mm"]]
    assert section.count("Same region?") == len(matched)
    assert section.count("none within 10 mm") == 1
    other = (run / "report" / "sub-0001.html").read_text(encoding="utf-8")
    assert 'class="earlier"' not in other
    assert ".earlier" not in other


def test_a_region_that_failed_is_shown_with_its_size_alone(run: Path) -> None:
    failed = [failure["roi_id"] for failure in read_results(run).failures]
    assert failed == ["b2"]
    section = page_of(run).split('<section class="earlier"')[1].split("</section>")[0]
    (row,) = [text for text in section.split("<tr>") if '<th scope="row">b2</th>' in text]
    cells = [cell.split("</td>")[0] for cell in row.split("<td>")[1:]]
    assert cells[0] == "2"
    assert re.fullmatch(r"[\d.]+ → [\d.]+ mm", cells[2])
    assert re.fullmatch(r"[\d.]+ → [\d.]+ mL", cells[3])
    assert re.fullmatch(r"[<>]?\d+% → –", cells[4])


def test_what_did_not_change_is_not_compared_again(
    run: Path,
    model: Path,
    two_studies: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again = tmp_path / "run"
    shutil.copytree(run, again)
    compared = []
    original = stage_of.compare_pair

    def counted(pair: stage_of.Pair) -> list[stage_of.EarlierRow]:
        compared.append(pair.latest.study_id)
        return original(pair)

    monkeypatch.setattr(stage_of, "compare_pair", counted)
    RunFolder(again).complete.unlink()
    predict_cohort([str(model)], two_studies, again, HERE)
    assert compared == []
    assert (again / "earlier.csv").read_bytes() == (run / "earlier.csv").read_bytes()
    # Without its table a finished run is not finished.
    (again / "earlier.csv").unlink()
    predict_cohort([str(model)], two_studies, again, HERE)
    assert compared == [f"{MAN}_ses-02"]
    assert (again / "earlier.csv").read_bytes() == (run / "earlier.csv").read_bytes()


def test_a_failure_costs_no_result_and_is_said(
    run: Path, model: Path, two_studies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CadError("registration failed: singular")

    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(images, "align_earlier", refuse)
        predict_cohort([str(model)], two_studies, out, HERE)
    # Nor does a decision rest on it.
    for name in ("probabilities.csv", "patients.csv", "failures.csv"):
        assert (out / name).read_bytes() == (run / name).read_bytes()
    assert {row["alignment"] for row in rows_of(out)} == {"failed"}
    section = page_of(out).split('<section class="earlier"')[1].split("</section>")[0]
    assert "No region is compared, it failed: registration failed: singular" in section
    assert "Same region?" not in section
    assert "4.50 ng/mL" in section
    assert "no decision of the tool rests on it" in section
    # A failure is tried again.
    RunFolder(out).complete.unlink()
    predict_cohort([str(model)], two_studies, out, HERE)
    assert rows_of(out) == rows_of(run)


def test_the_order_of_the_tables_changes_nothing(
    run: Path, model: Path, two_studies: Path, tmp_path: Path
) -> None:
    root = tmp_path / "cohort"
    shutil.copytree(two_studies, root)
    for name in ("rois.tsv", "participants.tsv", "sessions.tsv"):
        head, *lines = (root / name).read_text().splitlines()
        (root / name).write_text("\n".join([head, *reversed(lines)]) + "\n")
    out = tmp_path / "run"
    predict_cohort([str(model)], root, out, HERE)

    def sorted_rows(folder: Path) -> list[tuple[str, ...]]:
        return sorted(tuple(row.values()) for row in rows_of(folder))

    assert sorted_rows(out) == sorted_rows(run)


def test_one_study_left_leaves_no_table(
    run: Path, model: Path, two_studies: Path, tmp_path: Path
) -> None:
    root, out = tmp_path / "cohort", tmp_path / "run"
    shutil.copytree(two_studies, root)
    shutil.copytree(run, out)
    shutil.rmtree(root / MAN / "ses-02")
    predict_cohort([str(model)], root, out, HERE)
    assert not (out / "earlier.csv").exists()
    assert 'class="earlier"' not in page_of(out)
    # The page of two studies says which of them the man's number is of.
    assert "the decision on him rest on his latest study" in page_of(run)
    assert probability_of_man(run) != pytest.approx(probability_of_man(out), abs=0.01)


def test_the_man_is_judged_by_his_latest_study_and_each_study_by_itself(
    run: Path, two_studies: Path, model: Path, tmp_path: Path
) -> None:
    """Either study alone gives its regions the same numbers; the latest gives the man his."""
    together = pd.read_csv(run / "probabilities.csv", dtype={"roi_id": str})
    of_both = together[together["participant_id"] == MAN]
    men = pd.read_csv(run / "patients.csv").set_index("participant_id")
    columns = ["belief", "probability", "probability_low", "probability_high", "decision"]
    for kept, removed in (("ses-02", "ses-01"), ("ses-01", "ses-02")):
        root = tmp_path / kept / "cohort"
        shutil.copytree(two_studies, root)
        shutil.rmtree(root / MAN / removed)
        out = tmp_path / kept / "run"
        predict_cohort([str(model)], root, out, HERE)
        alone = pd.read_csv(out / "probabilities.csv", dtype={"roi_id": str})
        alone = alone[alone["participant_id"] == MAN].set_index("roi_id")
        same = of_both[of_both["study_id"] == f"{MAN}_{kept}"].set_index("roi_id")
        assert len(alone) == len(same) > 0
        pd.testing.assert_frame_equal(same[columns], alone[columns])
        man = pd.read_csv(out / "patients.csv").set_index("participant_id").loc[MAN]
        assert alone["patient_probability"].nunique() == 1
        if kept == "ses-02":
            pd.testing.assert_series_equal(men.loc[MAN], man, rtol=1e-9)
            numbers = same["patient_probability"].to_numpy()
            np.testing.assert_allclose(numbers, man["probability"], rtol=1e-12)
        else:
            # The numbers of the earlier study are not those of today.
            assert same["patient_probability"].isna().all()
            assert men.loc[MAN, "probability"] != man["probability"]


def test_an_earlier_study_never_stands_for_a_latest_one_that_failed(
    two_studies: Path, model: Path, run: Path, tmp_path: Path
) -> None:
    """Its regions keep their numbers; the man has neither number nor decision, and is told why."""
    root, out = tmp_path / "cohort", tmp_path / "run"
    shutil.copytree(two_studies, root)
    image_path(root / MAN / "ses-02", f"{MAN}_ses-02", "t2w").write_bytes(b"damaged")
    predict_cohort([str(model)], root, out, HERE)
    table = pd.read_csv(out / "probabilities.csv", dtype={"roi_id": str})
    of_him = table[table["participant_id"] == MAN].set_index("roi_id")
    assert (of_him["study_id"] == f"{MAN}_ses-01").all()
    before = pd.read_csv(run / "probabilities.csv", dtype={"roi_id": str})
    before = before[before["study_id"] == f"{MAN}_ses-01"].set_index("roi_id")
    assert of_him["probability"].notna().all()
    pd.testing.assert_series_equal(of_him["probability"], before["probability"])
    assert of_him["patient_probability"].isna().all()
    man = pd.read_csv(out / "patients.csv").set_index("participant_id").loc[MAN]
    assert np.isnan(man["probability"])
    assert man["regions"] == 0
    assert pd.isna(man["decision"])
    assert man["decision_reason"] == "his latest study gave no result"
    assert "is latest study gave no result" in page_of(out)


def test_a_site_that_blinds_shows_sizes_and_no_number(run: Path, tmp_path: Path) -> None:
    from tests.run.reports.made_run import blind

    out = tmp_path / "run"
    shutil.copytree(run, out)
    table = (out / "probabilities.csv").read_text(encoding="utf-8").splitlines()
    cells = list(csv.reader(table))
    place = cells[0].index("scores")
    for line in cells[1:]:
        line[place] = ""
    with (out / "probabilities.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(cells)
    blind(out, on=True)
    write_report(out)
    section = page_of(out).split('<section class="earlier"')[1].split("</section>")[0]
    assert "Same region?" in section
    assert "%" not in section
    assert "Probability" not in section
    assert "Readers would say" not in section


def test_order_is_by_date_else_by_label() -> None:
    studies = ["sub-1_ses-1", "sub-1_ses-2", "sub-1_ses-10"]
    dates = dict(zip(studies, ("2025-01-02", "20240630", "2024-07-01"), strict=True))
    by_date = ["sub-1_ses-2", "sub-1_ses-10", "sub-1_ses-1"]
    assert in_order(studies, dates) == (by_date, "date")
    assert in_order(studies[::-1], dates) == (by_date, "date")
    for missing in ("", "unknown", "2024-06-30"):
        # One not known, or two on one day: the label decides.
        doubtful = {**dates, "sub-1_ses-10": missing}
        assert in_order(studies[::-1], doubtful) == (studies, "session")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("sub-0001\tses-01\t90000", "psa 90000 is no man's"),
        ("sub-0001\t01\t4", "session_id '01' is not ses- and letters or digits"),
        ("sub-0777\tses-01\t4", "the patient is not in participants.tsv"),
        ("sub-0001\tses-01\t4\nsub-0001\tses-01\t5", "session ses-01 is listed twice"),
    ],
)
def test_a_wrong_row_of_sessions_is_a_problem_of_its_man(
    two_studies: Path, tmp_path: Path, row: str, reason: str
) -> None:
    root = tmp_path / "cohort"
    shutil.copytree(two_studies, root)
    (root / "sessions.tsv").write_text(f"participant_id\tsession_id\tpsa\n{row}\n")
    (problem,) = read_cohort(root).problems
    assert reason in problem.problem
