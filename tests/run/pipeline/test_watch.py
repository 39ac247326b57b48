"""Models at work: contests and charts from what nights leave, by hand, on noise, and on a page."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from cad.base.errors import CadError
from cad.cli.watch import keep_night
from cad.run import pipeline
from cad.run.execution.options import HERE
from cad.run.reports.watch_page import watch_page
from cad.run.workflows.watch import (
    CHAMPION,
    SHADOW,
    Truth,
    Watched,
    contests,
    drift_charts,
    read_watched,
    truths_of,
    verdict,
    watch_summary,
    watch_text,
    write_rows,
)


def said(role: str, man: str, night: int, regions: dict[str, float], model: str = "") -> Watched:
    return Watched(
        role=role,
        model=model or role,
        man=man,
        night=night,
        maker="Siemens",
        inputs={"T2": 1.0, "ADC": 1.0},
        outside={"T2": 0.0, "ADC": 0.02},
        belief=0.0,
        decision=0.5,
        regions=regions,
    )


def test_a_contest_by_hand():
    rows = [
        said(CHAMPION, "sub-1", 1, {"1": 0.5, "2": 0.5}),
        said(SHADOW, "sub-1", 1, {"1": 0.7, "2": 0.5}, "next"),
        said(CHAMPION, "sub-2", 2, {"1": 0.2}),
        said(SHADOW, "sub-2", 2, {"1": 0.4}, "next"),
        said(CHAMPION, "sub-3", 2, {"1": 0.2}),
    ]
    truths = [
        Truth("sub-2", "1", False),
        Truth("sub-1", "1", True),
        Truth("sub-1", "2", False),
        Truth("sub-3", "1", True),
        Truth("sub-9", "1", True),
    ]
    (contest,) = contests(rows, truths)
    assert (contest.challenger, contest.champion) == ("next", CHAMPION)
    # sub-3 has no shadow, sub-9 nothing; the order is that of the truth.
    assert contest.men == ["sub-2", "sub-1"]
    assert contest.regions == 3
    np.testing.assert_allclose(contest.difference.mean, [0.12, (0.12 - 0.08) / 2])
    assert contests(rows, []) == []


def cohort_of(seed: int, men: int, better: float) -> tuple[list[Watched], list[Truth]]:
    """Return men of two regions; the shadow's log-odds have less noise by ``better``."""
    rng = np.random.default_rng(seed)
    rows = []
    truths = []
    for number in range(men):
        man = f"sub-{number:04d}"
        latent = rng.normal(-0.5, 1.5, 2)
        malignant = rng.random(2) < expit(latent)
        champion = expit(latent + rng.normal(0, 1.2, 2))
        shadow = expit(latent + rng.normal(0, 1.2 - better, 2))
        for role, values in ((CHAMPION, champion), (SHADOW, shadow)):
            regions = {"1": float(values[0]), "2": float(values[1])}
            rows.append(
                replace(said(role, man, number // 3, regions), belief=float(logit(values.max())))
            )
        truths += [Truth(man, "1", bool(malignant[0])), Truth(man, "2", bool(malignant[1]))]
    return rows, truths


def test_a_better_challenger_is_found_and_noise_is_not():
    rows, truths = cohort_of(0, 300, 1.1)
    (contest,) = contests(rows, truths)
    assert contest.difference.high[-1] < 0
    rng = np.random.default_rng(1)
    for seed in range(10):
        rows, truths = cohort_of(seed, 100, 0.0)
        coins = [replace(truth, malignant=bool(rng.random() < 0.4)) for truth in truths]
        (contest,) = contests(rows, coins)
        assert contest.difference.decided == 0


def test_later_truth_changes_no_earlier_interval():
    rows, truths = cohort_of(2, 60, 0.5)
    first = contests(rows, truths[:60])[0].difference
    longer = contests(rows, truths)[0].difference
    np.testing.assert_array_equal(first.low, longer.low[:30])
    np.testing.assert_array_equal(first.high, longer.high[:30])


def test_a_change_of_one_image_raises_its_chart_and_no_other():
    rows, truths = cohort_of(3, 240, 0.0)
    rng = np.random.default_rng(3)
    changed = []
    for row in rows:
        inputs = {"T2": float(rng.normal()), "ADC": float(rng.normal())}
        if row.night >= 50:
            inputs["ADC"] += 2.5
        changed.append(replace(row, inputs=inputs))
    charts = drift_charts(changed, truths, baseline=60)
    assert set(charts) == {"inputs T2", "inputs ADC", "belief", "decisions", "calibration"}
    assert 50 <= charts["inputs ADC"].alarm <= 58
    assert charts["inputs ADC"].direction == "rise"
    assert charts["inputs T2"].alarm == charts["calibration"].alarm == -1
    # All charts together have the run length: each has a higher limit than it would have alone.
    limits = {chart.limit for chart in charts.values()}
    assert len(limits) == 1


def test_probabilities_that_are_too_low_raise_the_chart_of_calibration():
    rows, truths = cohort_of(4, 400, 0.0)
    rng = np.random.default_rng(4)
    told = [
        replace(
            truth,
            malignant=truth.malignant or bool(int(truth.man[4:]) >= 200 and rng.random() < 0.7),
        )
        for truth in truths
    ]
    charts = drift_charts(rows, told, baseline=60)
    assert 200 <= charts["calibration"].alarm <= 240
    assert charts["calibration"].direction == "rise"


def test_truths_are_read_in_order_and_a_region_twice_is_refused():
    rois = pd.DataFrame(
        {
            "participant_id": ["sub-2", "sub-1", "sub-1"],
            "roi_id": ["1", "1", "2"],
            "histology": ["malignant", "benign", None],
            "isup": [3, np.nan, np.nan],
        }
    )
    assert truths_of(rois) == [Truth("sub-2", "1", True), Truth("sub-1", "1", False)]
    with pytest.raises(CadError, match="given twice"):
        truths_of(pd.concat([rois, rois.iloc[:1]]))


def test_the_page_and_the_lines_say_the_same(tmp_path: Path):
    rows, truths = cohort_of(5, 400, 1.1)
    write_rows(tmp_path / "a.json", rows)
    assert read_watched(tmp_path) == rows
    summary = watch_summary(rows, truths)
    json.dumps(summary)
    sentence = verdict(summary["contests"][0])
    assert sentence.startswith("shadow is better than the champion")
    assert sentence in watch_text(summary)
    page = watch_page(summary, [sentence])
    assert sentence in page
    assert "Research use only" in page
    assert page.count("<svg") == 1 + len([c for c in summary["charts"] if c["nights"]])
    assert "http" not in page.replace("http-equiv", "")
    quiet = watch_summary(rows[:20], [])
    assert "waits for 60 men" in watch_text(quiet)
    assert "No shadow model" in watch_page(quiet, [])


def test_the_page_replaces_itself_and_nothing_of_others(tmp_path: Path, main_here):
    nights = tmp_path / "nights"
    nights.mkdir()
    rows, _ = cohort_of(5, 20, 1.1)
    write_rows(nights / "700000-out.json", rows)
    own = nights / "page.html"  # the numbers and their page may share a folder
    for _ in range(2):
        done = main_here("watch", "show", nights, "--page", own)
        assert done.returncode == 0, done.stderr
    theirs = tmp_path / "theirs.html"
    theirs.write_text("<title>Models at work</title> of somebody else")
    link = tmp_path / "link.html"
    link.symlink_to(theirs)
    for page in (theirs, link, nights / "700000-out.json"):
        before = page.read_bytes()
        done = main_here("watch", "show", nights, "--page", page)
        assert done.returncode == 2, page
        assert page.read_bytes() == before
    done = main_here("watch", "show", nights, "--page", theirs, "--force")
    assert done.returncode == 0, done.stderr
    assert "somebody else" not in theirs.read_text()
    numbers = nights / "700000-out.json"
    assert main_here("watch", "show", nights, "--page", numbers, "--force").returncode == 2


def test_a_damaged_file_is_named(tmp_path: Path):
    (tmp_path / "a.json").write_text('[{"role": 1}]')
    with pytest.raises(CadError, match=r"a\.json"):
        read_watched(tmp_path)


def test_a_run_in_place_of_its_watch_folder_is_told_from_damage(tmp_path: Path):
    (tmp_path / "metrics.json").write_text('{"auc": {}}')
    with pytest.raises(CadError, match=r"metrics\.json.*RUN\.watch by default"):
        read_watched(tmp_path)


def everything(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of a run by its name, but for the log of its commands."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "log.jsonl"
    }


def add_man(cohort: Path, other: Path) -> str:
    """Add the first man of a second cohort, under a label of his own; return the label."""
    label = "sub-9001"
    first = sorted(other.glob("sub-*"))[0].name
    shutil.copytree(other / first, cohort / label)
    for path in sorted((cohort / label).rglob(f"{first}_*")):
        path.rename(path.with_name(path.name.replace(first, label)))
    for name in ("participants.tsv", "rois.tsv", "scores.tsv"):
        lines = (other / name).read_text().splitlines(keepends=True)
        with (cohort / name).open("a") as table:
            table.writelines(
                line.replace(first, label) for line in lines if line.split("\t")[0] == first
            )
    return label


def test_a_batch_has_a_shadow_that_shows_nothing_and_a_man_counts_once(
    light_cohort: Path, tmp_path: Path, main_here, part_of
):
    men = {path.name for path in sorted(light_cohort.glob("sub-*"))[:2]}
    cohort = part_of(light_cohort, tmp_path / "cohort", sorted(men))
    champion = ("--model", "phantom-psvm", "--cohort", cohort, "-o", tmp_path / "out")
    main_here("predict", *champion)
    # On the second night a failure of the first is known: run.json says so from then on.
    first = main_here("predict", *champion)
    before = everything(tmp_path / "out")
    shadows = ("--shadow", "phantom-psvm-biparametric", "--shadow", "phantom-psvm-absent")
    second = main_here("predict", *champion, *shadows)
    # Nothing of what people and the archive get has changed, and no folder is left beside it.
    assert everything(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cohort", "out", "out.watch"]
    assert second.returncode == first.returncode, second.stderr
    assert "phantom-psvm-biparametric" not in second.stdout
    assert "shadow failed: phantom-psvm-absent: " in second.stderr
    (kept,) = (tmp_path / "out.watch").glob("*.json")
    assert kept.stat().st_mode & 0o077 == 0
    by_role = {(row.role, row.man): row for row in read_watched(tmp_path / "out.watch")}
    assert set(by_role) == {(role, man) for role in (CHAMPION, SHADOW) for man in men}
    for man in men:
        shown = by_role[CHAMPION, man].regions
        on_trial = by_role[SHADOW, man].regions
        assert shown.keys() == on_trial.keys()
        assert shown != on_trial
    # The page of the comparison reads it.
    page = tmp_path / "watch.html"
    done = main_here("watch", "show", tmp_path / "out.watch", "--truth", cohort, "--page", page)
    assert done.returncode == 0, done.stderr
    assert "phantom-psvm-biparametric" in page.read_text()
    # On a later night the cohort has grown: the new man alone counts, also if it is done twice.
    old = kept.rename(kept.with_name("700000-out.json"))
    before_kept = old.read_bytes()
    new = add_man(cohort, light_cohort)
    for _ in range(2):
        main_here("predict", *champion, *shadows[:2])
        assert old.read_bytes() == before_kept
        (tonight,) = set((tmp_path / "out.watch").glob("*.json")) - {old}
        rows = json.loads(tonight.read_text())
        assert [(row["role"], row["man"]) for row in rows] == [(CHAMPION, new), (SHADOW, new)]


def test_a_model_is_either_shown_or_on_trial(light_cohort: Path, tmp_path: Path, main_here):
    words = ("--model", "phantom-psvm", "--shadow", "phantom-psvm")
    done = main_here("predict", *words, "--cohort", light_cohort, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "phantom-psvm is named as champion and as shadow" in done.stderr
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_kept_costs_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "out.watch").mkdir()
    (tmp_path / "out.watch" / "letter.txt").write_text("another's")
    keep_night(["a"], ["b"], tmp_path, tmp_path / "out", tmp_path / "out.watch", HERE)
    keep_night(["a"], ["b"], tmp_path, tmp_path / "out", tmp_path / "new", HERE)
    assert capsys.readouterr().err.count("nothing is kept of this night: ") == 2
    assert [path.name for path in (tmp_path / "out.watch").iterdir()] == ["letter.txt"]


def test_a_shadow_that_breaks_is_said_and_the_champion_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("nothing")

    monkeypatch.setattr(pipeline, "_scored_cohort", broken)
    monkeypatch.setattr(pipeline, "watched", lambda *_: [said(CHAMPION, "sub-1", 1, {"1": 0.5})])
    monkeypatch.setattr(pipeline, "borrow", lambda *_: None)
    rows, failed = pipeline.watch_cohort(["a"], ["b"], tmp_path, tmp_path / "run", tmp_path)
    assert [row.role for row in rows] == [CHAMPION]
    assert failed == ["b: unexpected ZeroDivisionError: nothing"]
