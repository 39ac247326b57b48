"""A study that waits for its regions is told from one that failed."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from cad.base.errors import CadError
from cad.folders.cohort import read_cohort
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import read_failures, write_failures
from cad.run.stages.study import AwaitingRoi, failure_of, read_study_of


def test_awaiting_is_a_status_that_lasts(cohort: Path, tmp_path: Path) -> None:
    ref = read_cohort(cohort).studies()[0]
    with pytest.raises(AwaitingRoi) as caught:
        read_study_of(replace(ref, rows=ref.rows[:0]))
    waits = failure_of(copy.copy(caught.value), "sub-1", "sub-1", "read")  # as between processes
    failed = failure_of(CadError("awaiting ROI, says a sentence"), "sub-2", "sub-2", "read")
    assert (waits.status, failed.status) == ("awaiting ROI", "failed")
    write_failures(RunFolder(tmp_path), [waits, failed])
    assert read_failures(RunFolder(tmp_path)) == [waits, failed]
