"""A finished run under a newer version: what it adds is made, what is current is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from cad.base.terms.features import MAPS
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.records import read_record
from cad.run.execution.options import HERE
from cad.run.pipeline import run_pipeline


def statuses(out: Path) -> set[str]:
    return {study["status"] for study in read_record(RunFolder(out))["studies"]}


def test_a_run_gets_a_new_output_and_a_new_feature(
    cohort: Path,
    quick_pipeline: Path,
    part_of: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = part_of(cohort, tmp_path / "cohort", ["sub-0001", "sub-0002"])
    out = tmp_path / "run"
    folder, new = RunFolder(out), "dce_semi_wash_out_median"
    maps = dict(MAPS)
    with monkeypatch.context() as before:
        before.delitem(MAPS, "wash_out")
        run_pipeline(str(quick_pipeline), root, out, HERE)
    MAPS.clear()
    MAPS.update(maps)  # what is put back stands last, and columns follow the order
    assert new not in pd.read_parquet(folder.features)
    run_pipeline(str(quick_pipeline), root, out, HERE)
    assert pd.read_parquet(folder.features)[new].notna().all()
    assert statuses(out) == {"computed"}
    content = folder.patients.read_bytes()
    folder.patients.unlink()  # as if the version before had not written it
    run_pipeline(str(quick_pipeline), root, out, HERE)
    assert folder.patients.read_bytes() == content
    assert statuses(out) == {"kept"}
