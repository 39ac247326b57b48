"""Import and check in processes of their own: what one study does costs no other."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest
from import_cases import regions, write_patient
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.cli import app
from cad.dicom.into.conversion import convert
from cad.dicom.into.importer import import_source
from cad.mri.imaging.listing import list_files
from cad.mri.imaging.nifti import write_volume
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import Caller
from cad.run.workflows.check import check
from cad.run.workflows.imports import import_cohort

SHORT = ExecutionOptions(time_limit=5.0, memory_limit=4.0)


def die(*_: object) -> None:
    """End the process without a word."""
    os._exit(7)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two patients with regions."""
    for seed, (name, patient) in enumerate((("a", "P-001"), ("b", "P-002"))):
        write_patient(tmp_path / "source" / name, patient, name, dce=False, seed=seed)
        write_volume(tmp_path / "source" / name / "rois.nii.gz", regions(1))
    return tmp_path / "source"


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_supervised_or_not_the_cohort_is_the_same(source: Path, rules: Path, tmp_path: Path):
    import_source(source, tmp_path / "here", rules)
    summary = import_cohort(str(source), tmp_path / "there", rules, SHORT)
    assert summary.added == ["sub-P001", "sub-P002"]
    assert tree(tmp_path / "here") == tree(tmp_path / "there")
    assert check(tmp_path / "there") == check(tmp_path / "there", SHORT)


def test_a_study_that_kills_its_process_costs_no_other(source: Path, rules: Path, tmp_path: Path):
    out = tmp_path / "out"
    with Caller(SHORT) as worker:

        def call(function, *arguments):
            """Die at the first patient's conversion, in the worker."""
            fatal = function is convert and arguments[0].patient_id == "P-001"
            return worker(die if fatal else function, *arguments)

        summary = import_source(source, out, rules, call)
    assert summary.added == ["sub-P002"]
    (failure,) = summary.failures
    assert (failure.patient, failure.problem) == ("sub-P001", "its process ended by exit code 7")
    assert not list(out.glob(".import-*"))
    assert import_source(source, out, rules).added == ["sub-P001"]


@pytest.mark.faults
def test_a_file_that_kills_its_process_costs_no_other(source: Path, rules: Path, tmp_path: Path):
    bad = source / "a" / "t2" / "1-003.dcm"
    with Caller(SHORT) as worker:

        def call(function, *arguments):
            fatal = function is list_files and bad in arguments[0]
            return worker(die if fatal else function, *arguments)

        summary = import_source(source, tmp_path / "out", rules, call)
    assert summary.added == ["sub-P002"]
    assert [f.file for f in summary.failures if "exit code 7" in f.problem] == [str(bad)]


def test_what_is_no_file_is_named_and_left_alone(source: Path, rules: Path, tmp_path: Path):
    folder = source / "a" / "t2"
    os.mkfifo(folder / "pipe.dcm")
    (folder / "endless.dcm").symlink_to("/dev/zero")
    server = socket.socket(socket.AF_UNIX)
    before = os.getcwd()
    os.chdir(folder)
    try:
        server.bind("socket")
    finally:
        os.chdir(before)
    summary = import_source(source, tmp_path / "out", rules)
    server.close()
    assert summary.failures == []
    assert sorted(n for n in summary.notes if n.startswith("left out")) == [
        "left out: a/t2/endless.dcm is a device",
        "left out: a/t2/pipe.dcm is a named pipe",
        "left out: a/t2/socket is a socket",
    ]
    place = tmp_path / "out" / "sub-P001" / "anat"
    os.mkfifo(place / "sub-P001_PDw.json")
    os.mkfifo(place / "sub-P001_PDw.nii.gz")
    problems, _ = check(tmp_path / "out")
    assert [p.problem for p in problems] == [
        "a sidecar without its image sub-P001_PDw.nii.gz",
        "a named pipe where files are expected: nothing reads it",
        "a named pipe where files are expected: nothing reads it",
    ]


def test_one_instance_in_two_calls_is_taken_once(
    source: Path, rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Headers are read so many files at a time; what lies in another part is known."""
    from cad.dicom.into import sources

    monkeypatch.setattr(sources, "_FILES_A_CALL", 4)
    shutil.copy(source / "a" / "t2" / "1-002.dcm", source / "a" / "again.dcm")
    assert import_source(source, tmp_path / "one", rules).failures == []
    other = bytearray((source / "a" / "t2" / "1-002.dcm").read_bytes())
    other[-1] ^= 1
    (source / "a" / "zother.dcm").write_bytes(other)
    summary = import_source(source, tmp_path / "two", rules)
    assert any("two different files claim to be" in f.problem for f in summary.failures)


def test_the_commands_take_limits_and_say_how_far_they_are(
    source: Path, rules: Path, tmp_path: Path
):
    out = str(tmp_path / "out")
    done = CliRunner().invoke(
        app, ["import", str(source), out, "--rules", str(rules), "--memory-limit", "0.5"]
    )
    assert done.exit_code == 0, done.output
    assert "2 of 2 studies, 0 failed" in done.stderr
    done = CliRunner().invoke(app, ["check", out, "--time-limit", "60", "--jobs", "2"])
    assert "2 of 2 studies" in done.stderr
    assert done.exit_code == 0, done.output


@pytest.mark.faults
def test_a_study_beyond_its_memory_is_a_problem_of_its_own(
    source: Path, rules: Path, tmp_path: Path
):
    """Voxels that compress to nothing: refused before they fill anything, or at the limit."""
    import gzip

    import nibabel
    import numpy as np

    import_source(source, tmp_path / "out", rules)
    path = next((tmp_path / "out" / "sub-P001").rglob("*T2w.nii.gz"))
    header = nibabel.Nifti1Image(np.zeros((1, 1, 1), np.int16), np.eye(4)).header
    header.set_sform(np.eye(4), 1)
    header["vox_offset"] = 352
    block = gzip.compress(bytes(2**26))
    for slices, says in ((6144, "would become 3,072 MiB"), (512, "more memory than")):
        header.set_data_shape((512, 512, slices))
        content = gzip.compress(header.binaryblock + bytes(4)) + block * (slices // 128)
        path.write_bytes(content)
        problems, _ = check(tmp_path / "out", ExecutionOptions(memory_limit=0.6))
        assert [p.patient for p in problems] == ["sub-P001"]
        assert says in str(problems[0]), problems[0]


def test_a_study_that_cannot_be_looked_at_is_a_problem(source: Path, rules: Path, tmp_path: Path):
    """A cohort whose second study no process survives (here: one that may ask for no memory)."""
    import_source(source, tmp_path / "out", rules)
    problems, _ = check(tmp_path / "out", ExecutionOptions(memory_limit=0.01))
    assert {p.patient for p in problems} == {"sub-P001", "sub-P002"}
    assert all(isinstance(p, CadError) for p in problems)
