"""Import's processes open their source and their cohort, and nothing else."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
from import_cases import RULES, regions, write_patient

from cad.base.errors import CadError
from cad.base.processes import Child, landlock
from cad.base.processes.limited import _used_gigabytes, call_limited
from cad.dicom.archive.conversation import _confine_to_request
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.into.importer import ImportSummary
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import Caller
from cad.run.execution.worker import Confined
from cad.run.workflows import imports

SECRET = b"somebody else's"
needs_landlock = pytest.mark.skipif(
    not landlock.version(), reason="LANDLOCK ABSENT: this kernel confines no process"
)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A source, a folder to write into, and a file of somebody else."""
    for name in ("source", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "source" / "own").write_bytes(b"own")
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "source" / "link").symlink_to(tmp_path / "secret")
    return tmp_path / "source", tmp_path / "out", tmp_path / "secret"


@needs_landlock
def test_a_confined_process_opens_its_folders_alone(places: tuple[Path, Path, Path]):
    source, out, secret = places
    options = ExecutionOptions(1, time_limit=60.0, memory_limit=4.0)
    with Caller(options, confined=Confined((source,), (out,))) as call:
        assert call(Path.read_bytes, source / "own") == b"own"
        call(Path.write_bytes, out / "new", b"new")
        of_the_system = (
            "/root/.profile",
            "/dev/mem",
            "/etc/passwd",
            "/etc/shadow",
            "/etc/ssl/private",
            "/proc/kallsyms",
            "/proc/self/environ",
            f"/proc/{os.getpid()}/environ",
            f"/proc/{os.getpid()}/cmdline",
            "/proc/1/cmdline",
        )
        for path in (secret, source / "link", *map(Path, of_the_system)):
            with pytest.raises(OSError, match=r"Permission|No such"):
                call(Path.read_bytes, path)
        with pytest.raises(OSError, match=r"Permission|No such"):
            call(os.listdir, "/etc/ssl/private")
        assert "VmHWM" in call(Path.read_text, Path("/proc/self/status"))
        assert call(Path.read_text, Path("/proc/cpuinfo"))
        for path in (secret, source / "own", source / "new", source.parent / "new"):
            with pytest.raises(OSError, match="Permission denied"):
                call(Path.write_bytes, path, b"new")
    assert secret.read_bytes() == SECRET
    with Caller(options) as free:
        assert free(Path.read_bytes, secret) == SECRET


def serve(connection: Connection) -> None:
    """Run as a child that cannot notice the end of its parent, because no other thread runs."""
    connection.send("stuck")
    ctypes.PyDLL(None).pause()


def exit_code_of_a_stuck_child() -> int:
    child = Child(__name__)
    assert child.connection.recv() == "stuck"
    time.sleep(0.5)  # the child is now inside `pause`
    child.end()
    return child.wait()


@needs_landlock
def test_a_confined_process_ends_a_child_that_is_stuck():
    """It cannot read the command line by which other processes know their children."""
    options = ExecutionOptions(1, time_limit=20.0, memory_limit=4.0)
    with Caller(options, confined=Confined((), (), (__name__,))) as call:
        assert call(exit_code_of_a_stuck_child) == -signal.SIGKILL


def gigabytes_in_a_child() -> tuple[float, float]:
    return call_limited(_used_gigabytes, seconds=9.0, gigabytes=1.0), _used_gigabytes()


@needs_landlock
def test_a_child_of_a_confined_process_knows_the_memory_of_its_libraries():
    """Otherwise the libraries would count towards its limit."""
    options = ExecutionOptions(1, time_limit=60.0, memory_limit=4.0)
    with Caller(options, confined=Confined((), (), (__name__,))) as call:
        of_child, of_parent = call(gigabytes_in_a_child)
    assert 0.9 * of_parent < of_child < 1.1 * of_parent


def read_in_a_child(path: Path) -> bytes:
    return call_limited(Path.read_bytes, path, seconds=9.0, gigabytes=1.0)


@needs_landlock
def test_a_child_of_a_confined_process_knows_no_other_process():
    options = ExecutionOptions(1, time_limit=60.0, memory_limit=4.0)
    with Caller(options, confined=Confined((), (), (__name__,))) as call:
        assert call(read_in_a_child, Path("/proc/self/maps"))
        for path in (f"/proc/{os.getpid()}/environ", "/proc/1/cmdline", "/etc/shadow"):
            with pytest.raises(OSError, match="Permission denied"):
                call(read_in_a_child, Path(path))


@needs_landlock
def test_a_limited_call_reads_the_folders_it_is_given(places: tuple[Path, Path, Path]):
    source, _, secret = places
    limits: dict[str, Any] = {"seconds": 9.0, "gigabytes": 2.0, "folders": [source]}
    assert call_limited(Path.read_bytes, source / "own", **limits) == b"own"
    with pytest.raises(OSError, match="Permission denied"):
        call_limited(Path.read_bytes, secret, **limits)


@needs_landlock
def test_an_explanation_opens_its_source_alone(
    places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
):
    """An explanation runs in a process that opens the source and a folder of its own."""
    source, out, secret = places
    answers = {}

    def explain(source: Path, rules: Path | None, call: Caller, unpacked: Path) -> None:
        answers["own"] = call(Path.read_bytes, source / "own")
        call(Path.write_bytes, unpacked / "new", b"new")
        for path in (secret, source / "link"):
            with pytest.raises(OSError, match="Permission denied"):
                call(Path.read_bytes, path)
        for path in (out / "new", source / "new"):
            with pytest.raises(OSError, match="Permission denied"):
                call(Path.write_bytes, path, b"new")

    monkeypatch.setattr(imports, "explain_source", explain)
    imports.explain_confined(source, None, ExecutionOptions(1, time_limit=60.0, memory_limit=4.0))
    assert answers == {"own": b"own"}


@needs_landlock
def test_an_import_opens_its_source_and_its_cohort_alone(
    places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
):
    """The child of an import reads the source, writes the cohort, and opens nothing else."""
    source, out, secret = places
    answers = {}

    def import_it(source: Path, out: Path, rules: Path, call: Caller, watch: Any) -> ImportSummary:
        answers["own"] = call(Path.read_bytes, source / "own")
        call(Path.write_bytes, out / "new", b"new")
        for path in (secret, source / "link"):
            with pytest.raises(OSError, match="Permission denied"):
                call(Path.read_bytes, path)
        with pytest.raises(OSError, match="Permission denied"):
            call(Path.write_bytes, source / "new", b"new")
        return ImportSummary()

    monkeypatch.setattr(imports, "import_source", import_it)
    options = ExecutionOptions(1, time_limit=60.0, memory_limit=4.0)
    imports.import_cohort(str(source), out, secret, options)
    assert answers == {"own": b"own"}
    assert (out / "new").read_bytes() == b"new"


def test_where_the_kernel_confines_nothing_an_explanation_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = write_patient(tmp_path / "source", dce=False)
    options = ExecutionOptions(1, time_limit=60.0, memory_limit=4.0)
    monkeypatch.setattr(landlock, "version", lambda: 0)
    (note,) = imports.explain_confined(source, None, options).problems
    assert "the kernel has no Landlock" in note


def confined_read(operation: str, arguments: tuple[Any, ...], path: Path) -> bytes:
    _confine_to_request(ArchiveLimits(), operation, arguments)
    return path.read_bytes()


def confined_write(operation: str, arguments: tuple[Any, ...], path: Path) -> int:
    _confine_to_request(ArchiveLimits(), operation, arguments)
    return path.write_bytes(b"new")


@needs_landlock
def test_a_conversation_with_an_archive_opens_what_its_request_names(
    places: tuple[Path, Path, Path],
):
    source, out, secret = places

    def call(*request: Any) -> Any:
        with Caller(ExecutionOptions(1, time_limit=60.0, memory_limit=4.0)) as free:
            return free(*request)

    own = source / "own"
    assert call(confined_write, "fetch", ([], out), out / "new") == 3
    assert call(confined_read, "store", ([own],), own) == b"own"
    for operation, arguments in (("fetch", ([], out)), ("store", ([own],)), ("find", ("P",))):
        with pytest.raises(OSError, match="Permission denied"):
            call(confined_read, operation, arguments, secret)
        with pytest.raises(OSError, match="Permission denied"):
            call(confined_write, operation, arguments, source / "new")


def forever() -> None:
    while True:
        pass


def filled() -> int:
    return len(np.ones(10**9)) + len(bytearray(8 * 10**9))


@pytest.mark.parametrize(
    ("function", "problem"), [(forever, "processor time"), (filled, "more than 1 GB of memory")]
)
def test_a_limited_call_ends_at_its_limits(function: Callable[[], Any], problem: str):
    with pytest.raises(CadError, match=problem):
        call_limited(function, seconds=1.0, gigabytes=1.0)


@pytest.mark.parametrize("pointer", ["{top}/secret.raw", "link.raw", "/etc/passwd", "/dev/zero"])
def test_an_import_takes_no_byte_from_outside_its_source(
    tmp_path: Path, main_here: Callable[..., Any], pointer: str
):
    """A mask whose header names another file: its study fails, the other is imported."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES + "rois: rois.mha\n")
    source = tmp_path / "source"
    for seed, (name, patient) in enumerate((("a", "P-001"), ("b", "P-002"))):
        write_patient(source / name, patient, name, dce=False, seed=seed)
        mask = regions(1).with_array(regions(1).array.astype(np.uint8))
        sitk.WriteImage(mask.to_sitk(), str(source / name / "rois.mha"))
    (tmp_path / "secret.raw").write_bytes(b"\x01" * mask.array.size)
    (source / "a" / "link.raw").symlink_to(tmp_path / "secret.raw")
    path = source / "a" / "rois.mha"
    head = path.read_bytes().partition(b"ElementDataFile")[0]
    head = head.replace(b"CompressedData = True", b"CompressedData = False")
    path.write_bytes(head + f"ElementDataFile = {pointer.format(top=tmp_path)}\n".encode())
    ended = main_here("import", source, tmp_path / "out", "--rules", rules, "--json")
    assert ended.returncode == 1, ended.stderr
    told = json.loads(ended.stdout)
    assert told["added"] == ["sub-P002"]
    assert any("rois.mha" in failure for failure in told["failures"])
    assert not list((tmp_path / "out").rglob("sub-P001*rois*"))
    assert ("Landlock" in str(told["notes"])) == (not landlock.version())
