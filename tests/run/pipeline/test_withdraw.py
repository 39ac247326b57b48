"""Without a patient: a model equals one that never saw them, and a run forgets them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.base.transactions import owned
from cad.base.transactions.lock import locked
from cad.evidence.phantom import simulate
from cad.folders.cohort import read_cohort
from cad.folders.cohort.traces import Names, traces
from cad.folders.cohort.without import strangers
from cad.run.audit.withdrawal import sweep_run, withdraw
from cad.run.execution.options import HERE
from cad.run.model.bundle import load_bundle, verify_bundle
from cad.run.pipeline import run_pipeline, train_model

GONE, OPTIONS = "sub-0003", HERE


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def trained(
    cohort: Path, model: Path, pipeline: Path, out: Path, *without: str
) -> dict[str, bytes]:
    """Train where an earlier model and its validation lie already."""
    shutil.copytree(model, out)
    shutil.copytree(f"{model}.validation", f"{out}.validation")
    train_model(str(pipeline), cohort, out, OPTIONS, without=without)
    assert verify_bundle(out) == 0
    return content(out)


@pytest.fixture(scope="module")
def reduced(cohort: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cohort that never had the patient, as far as its files tell."""
    root = tmp_path_factory.mktemp("reduced") / "cohort"
    shutil.copytree(cohort, root)
    assert withdraw(root, GONE).done
    return root


def test_a_refitted_model_equals_one_that_never_had_them(
    cohort: Path, reduced: Path, model: Path, quick_pipeline: Path, tmp_path: Path
) -> None:
    from secret_scan import hits

    without = trained(cohort, model, quick_pipeline, tmp_path / "a" / model.name, GONE)
    fresh = trained(reduced, model, quick_pipeline, tmp_path / "b" / model.name)
    differ = {name for name in fresh if fresh[name] != without[name]}
    assert differ == {"metadata.json", "README.md", "hashes.json"}
    said, plain = (json.loads(files["metadata.json"]) for files in (without, fresh))
    assert said["training"].pop("withdrawn") == 1
    assert said == plain
    line = b"- 1 patient has withdrawn: nothing here was learned from them\n"
    assert line in without["README.md"]
    assert without["README.md"].replace(line, b"") == fresh["README.md"]
    assert without["weights.npz"] != content(model)["weights.npz"]
    assert hits([tmp_path / "a"], [GONE]) == []  # in the validation run beside it neither


@pytest.mark.slow
def test_the_same_command_on_a_cohort_that_never_had_them_writes_the_same_bytes(
    cohort: Path, reduced: Path, model: Path, quick_pipeline: Path, tmp_path: Path
) -> None:
    one = trained(cohort, model, quick_pipeline, tmp_path / "a" / model.name, GONE)
    other = trained(reduced, model, quick_pipeline, tmp_path / "b" / model.name, GONE[4:])
    assert one == other


@pytest.mark.slow
def test_a_model_that_is_extended_loses_the_patient(
    model: Path, quick_pipeline: Path, tmp_path: Path
) -> None:
    new, out = tmp_path / "new", tmp_path / "extended"
    simulate(new, patients=2, seed=9, light=True)
    for path in new.glob("*.tsv"):
        path.write_text(path.read_text().replace("sub-000", "sub-900"))
    for path in sorted(new.rglob("*sub-000*"), reverse=True):
        path.rename(path.with_name(path.name.replace("sub-000", "sub-900")))
    train_model(str(quick_pipeline), new, out, OPTIONS, extends=str(model), without=[GONE])
    patients = set(load_bundle(out).training["participant_id"])
    assert patients >= {"sub-9001", "sub-0001"}
    assert GONE not in patients


def test_a_run_and_a_model_are_swept_and_named(
    cohort: Path, run_folder: Path, model: Path, quick_pipeline: Path, tmp_path: Path
) -> None:
    from secret_scan import hits

    root, run = tmp_path / "cohort", tmp_path / "run"
    shutil.copytree(cohort, root)
    shutil.copytree(run_folder, run)
    other = tmp_path / "other"
    other.mkdir()
    found = withdraw(root, GONE, [run, other], [str(model), "phantom-psvm"])
    assert not found.done
    (swept,) = found.swept.values()
    assert {f"studies/{GONE}.npz", f"report/{GONE}.html", ".complete"} < set(swept)
    assert {"lines of resume.jsonl", "lines of log.jsonl"} < set(swept)
    tables = {"features.parquet", "labels.parquet", "probabilities.csv", "patients.csv"}
    assert {f"lines of {name}" for name in tables} < set(swept)
    # Counts of all patients, and the pages that lead to his, are made anew by the run.
    holders = set(found.holders[str(run)])
    assert {"run.json", "metrics.json", "report/index.html"} <= holders
    assert all(name.startswith("report/") for name in holders - {"run.json", "metrics.json"})
    assert "regions" in found.holders[str(model)][0]
    assert found.clean[0] == str(other)
    assert f"still holds {GONE}: {run}" in found.as_text()

    run_pipeline(str(quick_pipeline), root, run, OPTIONS)  # as the text advises
    assert traces(run, Names(GONE)) == []
    assert hits([run, root], [GONE]) == []
    assert withdraw(root, GONE, [run]).holders == {}


def test_rows_go_from_every_table_and_the_others_keep_their_bytes(tmp_path: Path) -> None:
    """Cells with commas, quotes and line breaks, a longer id beside, a table of nobody."""
    lines = ['sub-0001,"a, ""b""\nc"\r\n', f'{GONE},"x\n{GONE}"\n', f"{GONE}1,\n", f'"{GONE}",y']
    (tmp_path / "cells.csv").write_bytes("".join(["participant_id,note\n", *lines]).encode())
    (tmp_path / "nobody.csv").write_text(f"measure,value\nmen,{GONE}\n")
    rows = pd.DataFrame({"participant_id": ["sub-0001", GONE, f"{GONE}1"], "x": [0.1, 2, np.nan]})
    rows.to_parquet(tmp_path / "rows.parquet")
    rows[["x"]].to_parquet(tmp_path / "plain.parquet")
    (tmp_path / "resume.jsonl").write_text(f'{{"study": "sub-0001"}}\n{{"study": "{GONE}"}}\n')
    (tmp_path / "run.json").write_text(json.dumps({"studies": [GONE]}))
    names = Names(GONE)
    kept = ("cells.csv", "resume.jsonl", "rows.parquet")
    assert sweep_run(tmp_path, names) == [f"lines of {name}" for name in kept]
    assert traces(tmp_path, names) == ["nobody.csv", "run.json"]
    text = "".join(["participant_id,note\n", lines[0], lines[2]])
    assert (tmp_path / "cells.csv").read_bytes() == text.encode()
    left = pd.read_parquet(tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(left, rows.iloc[[0, 2]].reset_index(drop=True))
    assert sweep_run(tmp_path, names) == []


def test_nothing_is_removed_where_an_argument_is_wrong(cohort: Path, tmp_path: Path) -> None:
    root = tmp_path / "cohort"
    shutil.copytree(cohort, root)
    for runs, models in (([tmp_path / "none"], []), ([], [str(tmp_path / "none")])):
        with pytest.raises(CadError, match="no such"):
            withdraw(root, GONE, runs, models)
    assert (root / GONE).is_dir()


def test_nothing_is_removed_while_a_named_run_is_under_way(
    cohort: Path, run_folder: Path, tmp_path: Path
) -> None:
    """It would write the patient's results anew; the cohort must not be half of the way."""
    root, run = tmp_path / "cohort", tmp_path / "run"
    shutil.copytree(cohort, root)
    shutil.copytree(run_folder, run)
    with owned(run), pytest.raises(CadError, match="writes into this folder"):
        withdraw(root, GONE, [run])
    assert (root / GONE).is_dir()
    assert GONE in (root / "participants.tsv").read_text()


def test_what_killed_commands_left_is_swept_or_named(
    cohort: Path, model: Path, tmp_path: Path
) -> None:
    """In a model's folder, a comparison's own and a foreign one, which is left alone."""
    names = ("cohort", "other", "kept", "first", "compared")
    root, other, kept, first, compared = (tmp_path / name for name in names)
    shutil.copytree(cohort, root)
    train = load_bundle(model).training
    shutil.copytree(model, kept)
    for folder in (kept, first, compared, compared / "a", other):
        (folder / ".stage-abcd1234").mkdir(parents=True)
        train.to_parquet(folder / ".stage-abcd1234" / "training.parquet")
        train.to_parquet(folder / ".abcd1234.part")
    for folder, kind in ((compared, "comparison"), (compared / "a", "result of `cad predict`")):
        (folder / ".cad-kind").write_text(kind)
    (other / "thesis.tex").touch()
    with locked(compared), pytest.raises(CadError, match="writes into this folder"):
        withdraw(root, GONE, [compared])
    assert (root / GONE).is_dir()
    done = withdraw(root, GONE, [first, compared, other], [str(kept)])
    assert done.holders.pop(str(kept)) == ["trained with 9 of the patient's regions"]
    assert done.holders == {str(other): [".abcd1234.part", ".stage-abcd1234/training.parquet"]}
    left = [path for path in tmp_path.rglob(".*") if path.name not in (".cad-kind", ".bidsignore")]
    assert {path.parent for path in left} == {other}


def test_a_mistyped_patient_is_known_as_a_stranger(cohort: Path) -> None:
    assert strangers(read_cohort(cohort), [GONE, "0003", "sub-0O03"]) == ["sub-0O03"]
