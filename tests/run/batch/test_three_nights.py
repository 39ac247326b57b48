"""Three nights into one folder: what is new, what is known, and what is acknowledged."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.cli import app
from cad.folders.run_folder.folder import RunFolder
from cad.folders.run_folder.known_failures import (
    acknowledge,
    remember,
    sort_failures,
)
from cad.folders.run_folder.records import read_metrics, read_record
from cad.folders.run_folder.tables import (
    Failure,
    read_failures,
    read_probabilities,
    write_failures,
)
from cad.mri.imaging.study_files import image_path
from cad.run.model.released import released_models


def failure(study: str, reason: str = "no T2", roi: str = "") -> Failure:
    return Failure(study, study, roi, "read", reason)


def test_failures_are_new_known_or_acknowledged(tmp_path: Path) -> None:
    tonight = [failure("sub-1"), failure("sub-2"), failure("sub-3")]
    write_failures(RunFolder(tmp_path), tonight[:2])
    # A command that was killed before it told of them leaves them new.
    assert sort_failures(tmp_path, tonight[:2]).new == tonight[:2]
    remember(tmp_path, tonight[:2])
    assert acknowledge(tmp_path, "sub-2", "will not be repeated") == tonight[1:2]
    kinds = sort_failures(tmp_path, tonight)
    assert (kinds.repeated, kinds.acknowledged, kinds.new) == (
        tonight[:1],
        tonight[1:2],
        tonight[2:],
    )
    assert kinds.words == "1 new, 1 known, 1 acknowledged"
    assert kinds.counts == {"new": 1, "known": 1, "acknowledged": 1}
    # The same man for another reason, or in another region, is new.
    other = [failure("sub-2", "no ADC"), failure("sub-2", roi="1")]
    assert sort_failures(tmp_path, other).new == other
    assert acknowledge(tmp_path, "sub-2", "again") == tonight[1:2]
    assert RunFolder(tmp_path).acknowledged.read_text().count("sub-2") == 2  # one row, two ids


def test_a_failure_that_was_mended_and_comes_back_is_new_and_others_keep_their_date(
    tmp_path: Path,
) -> None:
    remember(tmp_path, [])
    assert not RunFolder(tmp_path).told.exists()
    remember(tmp_path, [failure("sub-1"), failure("sub-2")])
    first = RunFolder(tmp_path).told.read_text()
    remember(tmp_path, [failure("sub-1"), failure("sub-2")])
    assert RunFolder(tmp_path).told.read_text() == first
    remember(tmp_path, [failure("sub-2")])
    assert sort_failures(tmp_path, [failure("sub-1")]).new == [failure("sub-1")]
    assert sort_failures(tmp_path, [failure("sub-2")]).repeated == [failure("sub-2")]


def test_an_acknowledged_failure_that_was_mended_and_comes_back_is_new(tmp_path: Path) -> None:
    """A man who was scored since must not lose his result on a green night."""
    study, region, other = failure("sub-1"), failure("sub-2", roi="1"), failure("sub-3")
    every = [study, region, other]
    write_failures(RunFolder(tmp_path), every)
    for name in ("sub-1", "sub-2", "sub-3"):
        acknowledge(tmp_path, name, "known")
    remember(tmp_path, every)
    assert sort_failures(tmp_path, every).acknowledged == every
    # Another failure of the study, or a failure that could not be reported, is no repair.
    whole = failure("sub-2", "no ADC")
    changed = failure("sub-1", "no T2; no ADC")
    remember(tmp_path, [changed, whole, other], [changed])
    assert sort_failures(tmp_path, [changed]).new == [changed]
    assert sort_failures(tmp_path, every).acknowledged == every
    remember(tmp_path, [other, failure("sub-2", roi="2")])
    kinds = sort_failures(tmp_path, every)
    assert (kinds.new, kinds.acknowledged) == ([study, region], [other])
    remember(tmp_path, [])
    assert sort_failures(tmp_path, every).new == every


def test_only_what_failed_can_be_acknowledged_and_with_a_reason(tmp_path: Path) -> None:
    write_failures(RunFolder(tmp_path), [failure("sub-1")])
    with pytest.raises(CadError, match="no failure of sub-9") as caught:
        acknowledge(tmp_path, "sub-9", "why")
    assert "sub-1" in caught.value.hint
    for empty in ("", "  ", "two\nlines"):
        with pytest.raises(CadError, match="with a reason of one line"):
            acknowledge(tmp_path, "sub-1", empty)
    assert not RunFolder(tmp_path).acknowledged.exists()


def test_released_models_are_offered_those_of_more_images_first() -> None:
    assert released_models() == ["phantom-psvm", "phantom-psvm-biparametric"]


def test_three_nights(light_cohort: Path, tmp_path: Path) -> None:
    """A man without a dynamic series is scored; one without T2 is red until acknowledged."""
    cohort, out, mail = tmp_path / "cohort", tmp_path / "out", tmp_path / "mail.json"
    shutil.copytree(light_cohort, cohort)
    names = sorted(path.name for path in cohort.glob("sub-*"))
    image_path(cohort / names[0], names[0], "dce").unlink()
    image_path(cohort / names[0], names[0], "dce").with_name(f"{names[0]}_dce.json").unlink()
    image_path(cohort / names[1], names[1], "t2w").write_bytes(b"damaged")
    script = f"import sys, pathlib; pathlib.Path({str(mail)!r}).write_text(sys.stdin.read())"
    tell = f"{sys.executable} -c {script!r}"
    words = ["predict", "--cohort", str(cohort), "-o", str(out)]

    nobody = CliRunner().invoke(app, [*words, "--tell", "false"])
    assert nobody.exit_code == 1
    assert "will be tried again" in nobody.output

    first = CliRunner().invoke(app, [*words, "--tell", tell])
    assert first.exit_code == 1, first.output
    assert "failures: 1 new\n" in first.output
    assert f"failed: {names[1]} (read)" in first.output
    table = (out / "probabilities.csv").read_text()
    assert "phantom-psvm-biparametric" in next(x for x in table.splitlines() if names[0] in x)
    told = json.loads(mail.read_text())
    assert [new["study_id"] for new in told["new"]] == [names[1]]
    assert read_record(RunFolder(out))["failures"] == {"new": 1, "known": 0, "acknowledged": 0}

    mail.unlink()
    second = CliRunner().invoke(app, [*words, "--tell", tell])
    assert second.exit_code == 1
    assert "failures: 1 known" in second.output
    assert not mail.exists()  # nobody is told twice
    assert read_record(RunFolder(out))["failures"] == {"new": 0, "known": 1, "acknowledged": 0}

    settled = CliRunner().invoke(app, ["acknowledge", str(out), names[1], "--reason", "no T2"])
    assert settled.exit_code == 0, settled.output
    quiet = CliRunner().invoke(app, words)
    assert quiet.exit_code == 0, quiet.output
    assert "failures: 1 acknowledged\n" in quiet.output
    assert "failed" not in quiet.output.replace("failures", "")
    third = CliRunner().invoke(app, [*words, "--json"])
    assert third.exit_code == 0, third.output
    kinds = json.loads(third.stdout)["failures_by_kind"]
    assert kinds == {"new": [], "known": 0, "acknowledged": 1}
    assert read_record(RunFolder(out))["failures"] == {"new": 0, "known": 0, "acknowledged": 1}


def night(words: list[str], mail: Path) -> tuple[int, str, list[str] | None]:
    """Run a night; return its exit code, its output, and the studies that --tell was told of.

    The program ends with 2 where the command raises a CadError (``cad.cli.main``).
    """
    mail.unlink(missing_ok=True)
    script = f"import sys, pathlib; pathlib.Path({str(mail)!r}).write_text(sys.stdin.read())"
    done = CliRunner().invoke(app, [*words, "--tell", f"{sys.executable} -c {script!r}"])
    code = 2 if isinstance(done.exception, CadError) else done.exit_code
    if not mail.exists():
        return code, done.output, None
    told = json.loads(mail.read_text())["new"]
    return code, done.output, [failure["study_id"] for failure in told]


def of_today(out: Path, before: str) -> dict[str, object]:
    """Return the counts of a run's record, once the record is younger than an earlier one."""
    record = read_record(RunFolder(out))
    assert record["created"] > before
    return dict(record["counts"])


def test_three_nights_on_which_nothing_can_be_measured(
    light_cohort: Path, part_of: Callable[..., Path], tmp_path: Path
) -> None:
    """Each such night is told once, ends with an error and leaves nothing of the night before."""
    root = part_of(light_cohort, tmp_path / "cohort", ["sub-0001", "sub-0003"])
    out = tmp_path / "out"
    mail = tmp_path / "mail.json"
    words = ["predict", "--cohort", str(root), "-o", str(out)]
    code, output, _ = night(words, mail)
    assert "2 men" in output, output
    folder = RunFolder(out)
    assert len(read_probabilities(folder))
    before = str(read_record(folder)["created"])
    for name in ("sub-0001", "sub-0003"):
        image_path(root / name, name, "t2w").write_bytes(b"damaged")
    time.sleep(1.1)  # the record states whole seconds
    code, output, told = night(words, mail)
    assert (code, told) == (2, ["sub-0001", "sub-0003"])
    assert "failures: 2 new" in output
    counts = of_today(out, before)
    assert (counts["failed"], counts["regions"], counts["regions_failed"]) == (2, 0, 0)
    assert read_record(folder)["failures"] == {"new": 2, "known": 0, "acknowledged": 0}
    assert read_metrics(folder)["n"]["rois"] == 0
    assert read_probabilities(folder).empty
    assert "sub-0001" in folder.page("index.html").read_text()
    code, output, told = night(words, mail)
    assert (code, told) == (2, None)
    assert "failures: 2 known" in output
    for name in ("sub-0001", "sub-0003"):
        acknowledge(out, name, "the disk was lost")
    code, output, told = night(words, mail)
    assert (code, told) == (0, None)
    assert "failures: 2 acknowledged" in output


def test_a_night_on_which_no_model_can_score_a_region_is_told(
    light_cohort: Path, part_of: Callable[..., Path], tmp_path: Path
) -> None:
    root = part_of(light_cohort, tmp_path / "cohort", ["sub-0001"])
    shutil.rmtree(root / "sub-0001" / "dwi")
    words = ["predict", "--cohort", str(root), "-o", str(tmp_path / "out")]
    code, _, told = night(words, tmp_path / "mail.json")
    assert code == 2
    assert set(told or []) == {"sub-0001"}
    folder = RunFolder(tmp_path / "out")
    failures = read_failures(folder)
    assert {failure.stage for failure in failures} == {"score"}
    record = read_record(folder)
    assert record["counts"]["regions"] == 0
    # The study was measured; its regions failed, each with a row of its own.
    assert record["counts"]["failed"] == 0
    regions = [failure.roi_id for failure in failures]
    assert all(regions)
    assert record["counts"]["regions_failed"] == len(set(regions))
    assert record["failures"]["new"] == len(failures)
    code, _, told = night(words, tmp_path / "mail.json")
    assert (code, told) == (2, None)


def without_regions(root: Path, names: Collection[str]) -> None:
    for table in ("rois.tsv", "scores.tsv"):
        lines = (root / table).read_text().splitlines(keepends=True)
        kept = [line for line in lines if line.split("\t")[0] not in names]
        (root / table).write_text("".join(kept))


def test_a_man_without_regions_waits_and_turns_no_night_red(
    light_cohort: Path, part_of: Callable[..., Path], tmp_path: Path
) -> None:
    names = ["sub-0001", "sub-0003"]
    root = part_of(light_cohort, tmp_path / "cohort", names)
    out = tmp_path / "out"
    folder = RunFolder(out)
    words = ["predict", "--cohort", str(root), "-o", str(out)]
    without_regions(root, ["sub-0003"])
    for _ in range(2):
        code, output, told = night(words, tmp_path / "mail.json")
        assert (code, told) == (0, None), output
        assert "waiting for regions: sub-0003\n" in output
        assert "nothing failed" in output
        assert "failed: sub-0003" not in output
    counts = read_record(folder)["counts"]
    assert (counts["failed"], counts["waiting"]) == (0, 1)
    assert read_record(folder)["failures"] == {"new": 0, "known": 0, "acknowledged": 0}
    assert read_metrics(folder)["n"]["waiting"] == 1
    assert [row.status for row in read_failures(folder)] == ["awaiting ROI"]
    assert "Waiting for regions" in folder.page("index.html").read_text()
    with pytest.raises(CadError, match="sub-0003 waits for a region, which is no failure"):
        acknowledge(out, "sub-0003", "nobody draws it")
    # The first man waits, too: nothing is measured, and still nothing failed.
    without_regions(root, names)
    done = CliRunner().invoke(app, [*words, "--tell", "false", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["waiting"] == names
    assert read_probabilities(folder).empty
    # A fault of the same man is a failure.
    other = part_of(light_cohort, tmp_path / "other", names)
    image_path(other / "sub-0003", "sub-0003", "t2w").write_bytes(b"damaged")
    for table in ("rois.tsv", "scores.tsv"):
        shutil.copy(other / table, root / table)
    shutil.copytree(other, root, dirs_exist_ok=True)
    code, output, told = night(words, tmp_path / "mail.json")
    assert (code, told) == (1, ["sub-0003"]), output


def test_a_second_damaged_file_of_an_acknowledged_study_is_a_new_failure(
    light_cohort: Path, part_of: Callable[..., Path], tmp_path: Path
) -> None:
    root = part_of(light_cohort, tmp_path / "cohort", ["sub-0001", "sub-0003"])
    words = ["predict", "--cohort", str(root), "-o", str(tmp_path / "out")]
    mail = tmp_path / "mail.json"
    image_path(root / "sub-0003", "sub-0003", "t2w").write_bytes(b"damaged")
    assert night(words, mail)[0] == 1
    acknowledge(tmp_path / "out", "sub-0003", "no T2, will not be repeated")
    assert night(words, mail)[0] == 0
    image_path(root / "sub-0003", "sub-0003", "adc").write_bytes(b"damaged")
    code, output, told = night(words, mail)
    assert (code, told) == (1, ["sub-0003"])
    assert "sub-0003_T2w.nii.gz: not a readable NIfTI file" in output
    assert "; sub-0003_ADC.nii.gz: not a readable NIfTI file" in output


def test_a_second_reason_to_acknowledge_is_kept_beside_the_first(tmp_path: Path) -> None:
    write_failures(RunFolder(tmp_path), [failure("sub-1")])
    for reason in ("no T2", "he moved away; see letter", "no T2", "he moved away; see letter"):
        acknowledge(tmp_path, "sub-1", reason)
    table = pd.read_csv(RunFolder(tmp_path).acknowledged)
    assert table["because"].tolist() == ["no T2; he moved away; see letter"]
