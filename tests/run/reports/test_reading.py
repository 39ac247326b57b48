"""A reader study from export to ``scores.tsv``, in a real browser and with exports gone wrong."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import COLUMNS, READERS, export, make_cohort

from cad.base.errors import CadError
from cad.base.files import CONTROL
from cad.folders.cohort import read_cohort
from cad.hospital.reader_study.exports import collect_reading, merged
from cad.hospital.reader_study.study import ReadingSettings, write_reading
from cad.learning.evaluation.readers.mrmc import obuchowski_rockette


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cohort(tmp_path_factory.mktemp("cohort") / "c", 4)


def run_of(cohort: Path, folder: Path) -> Path:
    """A run folder that holds a probability of every region."""
    rois = pd.read_csv(cohort / "rois.tsv", sep="\t", dtype=str)
    table = rois[["participant_id", "roi_id", "label"]].assign(
        study_id=rois["participant_id"],
        probability=np.linspace(0.05, 0.95, len(rois)),
        decision_model="refer",
    )
    folder.mkdir()
    table.to_csv(folder / "probabilities.csv", index=False)
    (folder / "run.json").write_text("{}")
    return folder


def test_orders_differ_by_reader_and_repeat_by_seed(cohort: Path, tmp_path: Path) -> None:
    keys = []
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        write_reading(cohort, tmp_path / name, ReadingSettings(seed=seed))
        keys.append(json.loads((tmp_path / name / "reading.json").read_text()))
    assert keys[0] == keys[1]
    assert keys[0]["study"] != keys[2]["study"]
    orders = [[code for code, _ in s["cases"]] for s in keys[0]["sessions"]]
    assert len({tuple(order) for order in orders}) > 1
    assert all(sorted(order) == sorted(keys[0]["cases"]) for order in orders)


def test_pages_know_nothing_of_patients_histology_readers_or_the_tool(
    cohort: Path, tmp_path: Path
) -> None:
    run = run_of(cohort, tmp_path / "run")
    write_reading(cohort, tmp_path / "study", ReadingSettings(("r1", "r2")), run)
    folder = tmp_path / "study"
    for path in [*folder.glob("*.html"), *folder.glob("cases/*.js")]:
        text = path.read_text()
        for word in ("sub-0", 'malignant"', "histology", "0.05"):
            if word == "0.05" and path.suffix == ".html":
                continue  # the tool's, where the plan shows it
            assert word not in text, (path.name, word)
    for path in folder.glob("*.html"):
        plan = json.loads(re.search(r'id="plan">(.*?)</script>', path.read_text())[1])
        for case in plan["cases"]:
            assert (case["tool"] is None) == (case["condition"] == "alone")
        other = {"r1": "r2", "r2": "r1"}[plan["reader"]]
        assert f'"{other}"' not in json.dumps(plan)


def test_tool_sessions_and_cases_are_crossed(cohort: Path, tmp_path: Path) -> None:
    run = run_of(cohort, tmp_path / "run")
    write_reading(cohort, tmp_path / "study", ReadingSettings(), run)
    sessions = json.loads((tmp_path / "study" / "reading.json").read_text())["sessions"]
    for reader in READERS:
        one, two = (dict(s["cases"]) for s in sessions if s["reader"] == reader)
        assert {code: {c, two[code]} for code, c in one.items()} == {
            code: {"alone", "with_tool"} for code in one
        }
        assert sum(c == "with_tool" for c in one.values()) == len(one) // 2


def test_suggestions_give_the_cases_and_their_order(cohort: Path, tmp_path: Path) -> None:
    order = tmp_path / "suggestions.csv"
    order.write_text("rank,participant_id,roi_id\n1,sub-0003,b\n2,sub-0001,a\n3,sub-0003,a\n")
    write_reading(cohort, tmp_path / "study", ReadingSettings(("r1",)), order=order)
    key = json.loads((tmp_path / "study" / "reading.json").read_text())
    (session,) = key["sessions"]
    assert [key["cases"][code]["participant_id"] for code, _ in session["cases"]] == [
        "sub-0003",
        "sub-0001",
    ]


def test_collecting_fills_scores_and_keeps_every_byte_that_was_there(
    cohort: Path, tmp_path: Path
) -> None:
    root = tmp_path / "c"
    shutil.copytree(cohort, root)
    head = "participant_id\troi_id\treader_id\tscale\tscore\n"
    before = head + "sub-0002\ta\tr9\tpercent\t37.50\nsub-0001\ta\tr1\tlikert5\tn/a\n"
    (root / "scores.tsv").write_text(before)
    (root / "readers.tsv").write_text("reader_id\texpert\nr1\t0\nr2\t0\nr3\t0\nr9\t1\n")
    folder = tmp_path / "study"
    write_reading(root, folder, ReadingSettings(("r1", "r2")))
    paths = [export(folder, reader) for reader in ("r2", "r1")]
    said = collect_reading(root, folder, [*paths, paths[0]])  # the same file twice counts once
    assert said[0] == "reader r1, session 1: 8 of 8 regions, complete"
    key = json.loads((folder / "reading.json").read_text())
    code_of = {case["participant_id"]: code for code, case in key["cases"].items()}

    def line(patient: str, roi: str, reader: str) -> str:
        score = 1 + zlib.crc32(f"{code_of[patient]}{roi}{reader}".encode()) % 5
        return f"{patient}\t{roi}\t{reader}\tlikert5\t{score}\n"

    every = [(p, r) for p in sorted(code_of) for r in "ab"]
    wanted = head + "sub-0002\ta\tr9\tpercent\t37.50\n" + line("sub-0001", "a", "r1")
    wanted += "".join(line(p, r, "r1") for p, r in every if (p, r) != ("sub-0001", "a"))
    wanted += "".join(line(p, r, "r2") for p, r in every)
    assert (root / "scores.tsv").read_text() == wanted
    assert read_cohort(root).problems == []
    collect_reading(root, folder, paths)
    assert (root / "scores.tsv").read_text() == wanted  # collecting again changes nothing


def test_readings_with_the_tool_are_compared_and_are_no_scores(
    cohort: Path, tmp_path: Path
) -> None:
    root, folder = tmp_path / "c", tmp_path / "study"
    shutil.copytree(cohort, root)
    write_reading(root, folder, ReadingSettings(), run_of(root, tmp_path / "run"))
    paths = [export(folder, reader, session) for reader in READERS for session in (1, 2)]
    said = collect_reading(root, folder, paths)[-1]
    readings = pd.read_csv(folder / "readings.tsv", sep="\t")
    assert len(readings) == 3 * 2 * 8
    assert len(read_cohort(root).scores) == 3 * 8
    rois = pd.read_csv(root / "rois.tsv", sep="\t")
    given = {tuple(row[:5]): row[6] for row in readings.itertuples(index=False, name=None)}
    found_scores = {(p, i, r, c): (v - 1) / 4 for (p, i, r, _, c), v in given.items()}
    ratings = np.array(
        [
            [
                [found_scores[p, i, r, c] for p, i in rois[["participant_id", "roi_id"]].to_numpy()]
                for r in READERS
            ]
            for c in ("alone", "with_tool")
        ]
    )
    found = obuchowski_rockette(
        (rois["isup"] >= 2).to_numpy(float), ratings, rois["participant_id"]
    )
    assert f"difference {found.difference:.3f} [{found.lower:.3f}, {found.upper:.3f}]" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p.write_bytes(p.read_bytes().replace(b'"score":1', b'"score":5')), "changed"),
        (lambda p: p.write_bytes(p.read_bytes() + b"sub-0001\ta\tr1\t5\n"), "changed"),
        (lambda p: p.write_bytes(p.read_bytes()[:-30]), "no whole export|changed"),
        (lambda p: p.write_bytes(b""), "no whole export"),
        (lambda p: p.write_bytes(b"[" * 100_000), "no whole export"),
        (lambda p: export(p.parent, "r1", readings=[{"case": "case-001"}]), "a reading has case"),
        (lambda p: export(p.parent, "r1", study="0" * 16), "is of reader study"),
        (lambda p: export(p.parent, "r1", format="other"), "not an export"),
        (
            lambda p: export(
                p.parent,
                "r1",
                readings=[
                    {
                        "case": "case-999",
                        "roi": "a",
                        "score": 3,
                        "condition": "alone",
                        "milliseconds": 1,
                    }
                ],
            ),
            "not in this session",
        ),
        (
            lambda p: export(
                p.parent,
                "r1",
                readings=2
                * [
                    {
                        "case": "case-001",
                        "roi": "a",
                        "score": 3,
                        "condition": "alone",
                        "milliseconds": 1,
                    }
                ],
            ),
            "stands twice",
        ),
        (
            lambda p: export(
                p.parent,
                "r1",
                readings=[
                    {
                        "case": "case-001",
                        "roi": "a",
                        "score": 6,
                        "condition": "alone",
                        "milliseconds": 1,
                    }
                ],
            ),
            "not on its scale",
        ),
        (
            lambda p: export(
                p.parent,
                "r1",
                readings=[
                    {
                        "case": "case-001",
                        "roi": "a",
                        "score": 3,
                        "condition": "with_tool",
                        "milliseconds": 1,
                    }
                ],
            ),
            "was planned alone",
        ),
        (
            lambda p: export(
                p.parent,
                "r1",
                readings=[
                    {
                        "case": "case-001",
                        "roi": "a",
                        "score": 3,
                        "condition": "alone",
                        "milliseconds": 1,
                        "note": "x" * 501,
                    }
                ],
            ),
            "500 characters",
        ),
        (lambda p: export(p.parent, "r1", scale="pirads"), "another scale than likert5"),
    ],
)
def test_an_export_gone_wrong_is_refused_and_changes_nothing(
    cohort: Path, tmp_path: Path, change: Callable[[Path], Any], words: str
) -> None:
    root, folder = tmp_path / "c", tmp_path / "study"
    shutil.copytree(cohort, root)
    write_reading(root, folder, ReadingSettings(("r1", "r2")))
    good, bad = export(folder, "r2"), export(folder, "r1")
    change(bad)
    before = (root / "scores.tsv").read_bytes()
    with pytest.raises(CadError, match=words) as error:
        collect_reading(root, folder, [good, bad])
    assert error.value.file == str(bad)
    assert (root / "scores.tsv").read_bytes() == before
    assert not (folder / "readings.tsv").exists()


def test_collecting_one_reader_after_another_keeps_both(cohort: Path, tmp_path: Path) -> None:
    root, folder = tmp_path / "c", tmp_path / "study"
    shutil.copytree(cohort, root)
    write_reading(root, folder, ReadingSettings(("r1", "r2")))
    one, two = export(folder, "r1"), export(folder, "r2")
    together = collect_reading(root, folder, [one, two])
    tables = [root / "scores.tsv", folder / "readings.tsv"]
    wanted = [path.read_bytes() for path in tables]
    assert together[:2] == [
        f"reader {r}, session 1: 8 of 8 regions, complete" for r in ("r1", "r2")
    ]
    for path in (one, two, one):  # again, alone
        assert collect_reading(root, folder, [path]) == together
        assert [path.read_bytes() for path in tables] == wanted
    # A reader who exports in the middle, and again at the end, gives eight readings.
    (folder / "readings.tsv").unlink()
    (root / "scores.tsv").write_bytes((cohort / "scores.tsv").read_bytes())
    content = json.loads(one.read_bytes().split(b"\n")[0])["readings"]
    middle = [{**r, "milliseconds": 400, "note": ""} for r in content[:3]]
    said = collect_reading(root, folder, [export(folder, "r1", readings=middle)])
    assert said[0] == "reader r1, session 1: 3 of 8 regions, 5 missing"
    collect_reading(root, folder, [export(folder, "r1"), two])
    assert tables[1].read_bytes() == wanted[1]
    lines = tables[0].read_bytes().splitlines()  # those of the middle stay on top
    assert sorted(lines) == sorted(wanted[0].splitlines())


def test_control_characters_of_a_note_stay_out_of_the_table(cohort: Path, tmp_path: Path) -> None:
    root, folder = tmp_path / "c", tmp_path / "study"
    shutil.copytree(cohort, root)
    write_reading(root, folder, ReadingSettings(("r1",)))
    content = json.loads(export(folder, "r1").read_bytes().split(b"\n")[0])["readings"]
    note = "a\x00b\x07c\td\ne\u2028f\u202eg\x85h"
    first = {**content[0], "note": note}
    collect_reading(root, folder, [export(folder, "r1", readings=[first, *content[1:]])])
    text = (folder / "readings.tsv").read_text(encoding="utf-8")
    assert "a b c d e f g h" in text
    assert not [c for c in text if CONTROL.match(c) and c not in "\t\n"]
    assert len(pd.read_csv(folder / "readings.tsv", sep="\t")) == 8


def test_what_contradicts_is_named_and_both_are_kept(cohort: Path, tmp_path: Path) -> None:
    root, folder = tmp_path / "c", tmp_path / "study"
    shutil.copytree(cohort, root)
    write_reading(root, folder, ReadingSettings(("r1",)))
    one = export(folder, "r1").rename(folder / "anna.jsonl")
    content = json.loads(one.read_bytes().split(b"\n")[0])["readings"]
    first = {**content[0], "score": 1 + content[0]["score"] % 5}
    other = export(folder, "r1", readings=[first, *content[1:]])
    said = collect_reading(root, folder, [one, other])
    (named,) = [line for line in said if line.startswith("contradictory")]
    assert f"scores {content[0]['score']} and {first['score']}" in named
    assert len(pd.read_csv(folder / "readings.tsv", sep="\t")) == 9
    assert len(read_cohort(root).scores) == 7  # nobody knows which of both it is
    assert said[0] == "reader r1, session 1: 8 of 8 regions, complete"


def test_another_score_in_the_table_is_not_overwritten() -> None:
    text = "participant_id\troi_id\treader_id\tscale\tscore\nsub-1\ta\tr1\tlikert5\t2.0\n"
    new = pd.DataFrame([("sub-1", "a", "r1", "likert5", 2.0)], columns=COLUMNS)
    assert merged(text, new, Path("scores.tsv")) == (text, [])
    same, (kept,) = merged(text, new.assign(score=4.0), Path("scores.tsv"))
    assert same == text
    assert "has likert5 2.0 by reader r1 of sub-1 region a and keeps it" in kept


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(1, 5)),
        unique_by=lambda t: t[:2],
    )
)
def test_merging_loses_no_line_and_is_the_same_twice(rows: list[tuple[str, str, int]]) -> None:
    head = "participant_id\troi_id\treader_id\tscale\tscore\tremark\n"
    text = head + "sub-0\tq\tr1\tlikert5\t3.0\tkept\n"
    new = pd.DataFrame([(p, r, "r1", "likert5", float(s)) for p, r, s in rows], columns=COLUMNS)
    once, _ = merged(text, new, Path("s"))
    assert once.startswith(text)
    assert len(once.splitlines()) == 2 + len(rows)
    assert merged(once, new, Path("s")) == (once, [])


def test_a_reader_who_is_not_listed_and_another_study_are_refused(
    cohort: Path, tmp_path: Path
) -> None:
    with pytest.raises(CadError, match=r"r7 is not in readers\.tsv"):
        write_reading(cohort, tmp_path / "s", ReadingSettings(("r7",)))
    with pytest.raises(CadError, match="scale 'percent' is none of likert5 pirads"):
        write_reading(cohort, tmp_path / "s", ReadingSettings(scale="percent"))
    write_reading(cohort, tmp_path / "s", ReadingSettings())
    with pytest.raises(CadError, match="another reader study"):
        write_reading(cohort, tmp_path / "s", ReadingSettings(seed=5))
