"""Three nights into one folder: what is new, what is known, and what is acknowledged."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

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
from cad.folders.run_folder.records import read_record
from cad.folders.run_folder.tables import Failure, write_failures
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
