"""Children are forked from one process that has loaded their libraries, and none is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from batch_tasks import act
from import_cases import RULES, write_patient
from loop_pieces import kill_unless, where

from cad.base import processes
from cad.base.errors import MachineError
from cad.learning.evaluation.folds import crossval
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import Caller, workplace
from cad.run.execution.worker import Worker

OPTIONS = ExecutionOptions(jobs=2, time_limit=30.0)


SHARED = """
import os, sys, threading, time
import cad.run.execution.worker, cad.run.stages.study
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import Caller
from cad.base.processes import share_loaded
"""


def told(code: str, **environment: str) -> list[str]:
    """Return the words that a fresh process prints after it loaded what studies need; no error."""
    command, given = [sys.executable, "-c", SHARED + code], {**os.environ, **environment}
    given.pop("PYTHONUNBUFFERED", None)
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=given)
    assert done.stderr == ""
    return done.stdout.split()


def test_children_share_what_is_loaded() -> None:
    """A child starts in no time, with the modules, and nothing is loaded for it."""
    seconds, same = told(
        "import colorsys\n"
        "share_loaded()\n"
        "start = time.perf_counter()\n"
        "with Caller(ExecutionOptions(jobs=1)) as call:\n"
        "    modules = call(eval, 'sorted(__import__(\"sys\").modules)')\n"
        "    needed = {'cad.run.stages.study', 'colorsys'}\n"
        "    print(time.perf_counter() - start, set(modules) >= needed)\n"
    )
    assert float(seconds) < 0.5
    assert same == "True"


def test_a_copy_holds_nothing_of_the_process_but_what_is_loaded(tmp_path: Path) -> None:
    """No file, lock or output: a command that is killed leaves its folder to the next one."""
    kept = tmp_path / "kept"
    held = told(
        f"stream = open({str(kept)!r}, 'w')\n"
        "share_loaded(loops=True)\n"
        "from cad.base import processes\n"
        "from multiprocessing import forkserver\n"
        "for pid in processes._servers[os.getpid()][0], forkserver._forkserver._forkserver_pid:\n"
        "    time.sleep(0.5)\n"
        "    print(*(os.readlink(f'/proc/{pid}/fd/{n}') for n in os.listdir(f'/proc/{pid}/fd')))\n"
    )
    assert kept.exists()
    assert not [name for name in held if name == str(kept)]
    assert "/dev/null" in held


def test_libraries_that_were_loaded_with_more_threads_have_one_in_children() -> None:
    """A script may have loaded numpy before it calls a command."""
    code = (
        "import multiprocessing as mp\n"
        "from threadpoolctl import threadpool_info\n"
        "share_loaded(loops=True)\n"
        "fork = mp.get_context('forkserver')\n"
        "with Caller(ExecutionOptions(jobs=1)) as call, fork.Pool(1) as p:\n"
        "    for made in threadpool_info(), call(threadpool_info), p.apply(threadpool_info):\n"
        "        print(max(pool['num_threads'] for pool in made))\n"
    )
    many = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2")
    assert told(code, **many) == ["2", "1", "1"]


def test_a_line_that_waits_for_its_end_is_printed_once() -> None:
    assert told(
        "import multiprocessing as mp\n"
        "print('once', end=' ')\n"
        "share_loaded(loops=True)\n"
        "with mp.get_context('forkserver').Pool(2) as pool: pool.map(abs, range(4))\n"
    ) == ["once"]


def test_a_process_that_leaves_its_children_to_the_system_is_served() -> None:
    """Some supervisors start others with this signal ignored."""
    assert told(
        "import signal\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "share_loaded()\n"
        "from cad.base.processes import _servers\n"
        "os.kill(_servers[os.getpid()][0], signal.SIGKILL)\n"
        "time.sleep(0.5)\n"
        "with Caller(ExecutionOptions(jobs=1)) as call: print(call(os.getpid) != os.getpid())\n"
    ) == ["True"]


def test_a_process_with_other_threads_is_not_copied() -> None:
    """They might hold a lock, which nobody would open again in the copy."""
    assert told(
        "other = threading.Thread(target=time.sleep, args=(20,), daemon=True)\n"
        "other.start()\n"
        "print(share_loaded(loops=True))\n"
        "from cad.base.processes import _servers\n"
        "print(len(_servers))\n"
        "with Caller(ExecutionOptions(jobs=1)) as call: print(call(os.getpid) != os.getpid())\n"
    ) == ["False", "0", "True"]


def test_a_program_that_calls_a_command_is_not_copied(tmp_path: Path) -> None:
    """Its gigabyte of data would count against each child's memory: no study could be read."""
    write_patient(tmp_path / "in", dce=False)
    (tmp_path / "rules.yaml").write_text(RULES)
    words = ["import", tmp_path / "in", tmp_path / "out", "--rules", tmp_path / "rules.yaml"]
    command = [*map(str, words), "--memory-limit", "1"]
    assert told(
        "data = bytearray(1_000_000_000)\n"
        "from typer.testing import CliRunner\n"
        "from cad.cli import app\n"
        f"print(CliRunner().invoke(app, {command}).exit_code)\n"
    ) == ["0"]


@pytest.mark.parametrize("how", ["script", "module", "other"])
def test_the_command_itself_is_copied_however_it_is_called(how: str, tmp_path: Path) -> None:
    (tmp_path / "notebook.py").write_text("from cad.cli import main\nmain()\n")
    run = {
        "script": f"run_path({os.fspath(Path(sys.executable).parent / 'cad')!r}, run_name=name)",
        "module": "run_module('cad', run_name=name, alter_sys=True)",
        "other": f"run_path({os.fspath(tmp_path / 'notebook.py')!r}, run_name=name)",
    }[how]
    # Instead of a demo the command says whether it would be copied.
    assert told(
        "from runpy import run_module, run_path\n"
        "from cad.cli import shared\n"
        "from cad.base.processes import _servers\n"
        "def asked(*_, **__): shared.share(); sys.exit(print(os.getpid() in _servers))\n"
        "shared.load_ahead = asked\n"
        f"sys.argv[1:], name = ['demo', '--out', {os.fspath(tmp_path / 'out')!r}], '__main__'\n"
        f"{run}\n"
    ) == [str(how != "other")]


def test_a_worker_that_is_lost_before_its_work_is_replaced() -> None:
    worker = Worker(act, OPTIONS)
    assert worker.do(("square", 2.0)).result == 4.0
    os.kill(worker.process.pid, 9)
    assert worker.process.wait() == -9
    assert worker.do(("square", 3.0)).result == 9.0
    worker.close()
    assert not Path(f"/proc/{worker.process.pid}").exists()


def test_a_child_whose_parent_is_gone_before_its_first_word_says_nothing() -> None:
    """A command that is killed in this moment ends without a traceback of its child."""
    script = """
import os
from cad.base.processes import _run_child
from multiprocessing import Pipe
ours, theirs = Pipe()
life, _ = os.pipe()
_, status = os.pipe()
ours.close()
_run_child("cad.base.processes", [os.dup(theirs.fileno()), life, status, 2])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (1, "")


def test_a_fork_server_that_is_lost_is_replaced_and_its_children_go_on() -> None:
    worker = Worker(act, OPTIONS)
    assert worker.do(("square", 2.0)).result == 4.0
    server, _ = processes._servers[os.getpid()]
    os.kill(server, signal.SIGKILL)
    assert worker.do(("square", 3.0)).result == 9.0
    other = Worker(act, OPTIONS)
    assert other.do(("square", 4.0)).result == 16.0
    assert processes._servers[os.getpid()][0] != server
    worker.close()  # what is left of it is the system's to take away
    other.close()
    assert not Path(f"/proc/{other.process.pid}").exists()


def test_nothing_is_left_of_a_process_that_is_killed() -> None:
    code = (
        "import os, time\n"
        "from cad.base.processes import Child, _servers\n"
        "child = Child('cad.run.execution.worker')\n"
        "print(child.pid, _servers[os.getpid()][0], flush=True)\n"
        "time.sleep(60)\n"
    )
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    pids = started.stdout.readline().split()
    assert len(pids) == 2
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    started.kill()
    started.wait()
    started.stdout.close()
    until = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


LOOP = """
import os, time
from loop_pieces import kill_unless, where
from cad.learning.evaluation.folds import crossval
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import workplace
from cad.base.processes import _servers, share_loaded
from multiprocessing import forkserver
crossval.START_SECONDS = 0.0  # as if each piece took long
forked = %s and share_loaded(loops=True)
with workplace(ExecutionOptions(jobs=2, forked=forked)):
    pieces = [(k, 0.1) for k in range(9)]
    pids = {pid for _, pid in crossval.each_piece(where, pieces, n_jobs=2)} - {os.getpid()}
servers = [forkserver._forkserver._forkserver_pid, *(pid for pid, _ in _servers.values())]
print(*pids, *filter(None, servers), flush=True)
"""


@pytest.mark.parametrize(("end", "forked"), [("itself", True), ("killed", True), ("killed", False)])
def test_processes_of_a_loop_end_with_the_process_that_asked(end: str, forked: bool) -> None:
    """Two processes, forked or not, the server that forks them, and that of studies."""
    code = LOOP % forked + ("time.sleep(60)" if end == "killed" else "")
    started = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(where.__code__.co_filename).parent)},
    )
    assert started.stdout is not None
    pids = started.stdout.readline().split()
    assert len(pids) == 2 + 2 * forked
    if end == "killed":
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        started.kill()
    started.wait()
    started.stdout.close()
    until = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_an_interrupt_leaves_no_number_of_another_child() -> None:
    """While the server loads what the first child needs; the next child is known by its own."""
    code = (
        "import os, signal\n"
        "from cad.run.execution.options import ExecutionOptions\n"
        "from cad.run.execution.pool import Caller\n"
        "from cad.base.processes import Child\n"
        "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.2)\n"
        "try: Child('cad.run.execution.worker', 'cad.run.stages.study')\n"
        "except KeyboardInterrupt: print('interrupted')\n"
        "with Caller(ExecutionOptions(jobs=1)) as call:\n"
        "    print(call(os.getpid) == call._worker.process.pid)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["interrupted", "True"]


def test_a_job_that_was_suspended_loses_no_task_to_its_limit() -> None:
    code = (
        "import time\n"
        "from cad.run.execution.options import ExecutionOptions\n"
        "from cad.run.execution.pool import Caller\n"
        "with Caller(ExecutionOptions(jobs=1, time_limit=1.0)) as call:\n"
        "    call(time.sleep, 0.0)\n"
        "    print('started', flush=True)\n"
        "    call(time.sleep, 0.8)\n"
        "    print('whole')\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "started\n"
    os.killpg(started.pid, signal.SIGSTOP)
    time.sleep(2.5)
    os.killpg(started.pid, signal.SIGCONT)
    assert started.communicate()[0] == "whole\n"


def test_a_fold_whose_process_is_killed_is_an_error_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crossval, "START_SECONDS", 0.0)
    pieces = [(os.getpid(), 0), *((os.getpid(), 9) for _ in range(4))]
    with (
        pytest.raises(MachineError, match="has ended") as raised,
        workplace(ExecutionOptions(jobs=2)),
    ):
        list(crossval.each_piece(kill_unless, pieces, n_jobs=2))
    assert "fewer jobs" in raised.value.hint


def test_a_long_name_of_the_temporary_folder_is_no_error(tmp_path: Path) -> None:
    """A socket of that name cannot be made: the folds start processes as ever."""
    long = tmp_path / ("a" * 90)
    long.mkdir()
    for folder, shared in ((tmp_path, "True"), (long, "False")):
        said = subprocess.run(
            [sys.executable, "-c", SHARED + "print(share_loaded(loops=True))"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        assert said.stdout.split() == [shared]


def test_a_command_that_ends_early_waits_for_no_library(tmp_path: Path) -> None:
    """Nothing that it started holds its standard output open, or is left, when it has ended."""
    command = [sys.executable, "-m", "cad", "run", "demo", "--cohort", str(tmp_path)]
    command += ["--jobs", "2", "-o", str(tmp_path / "out")]
    done = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert "not a cohort folder" in done.communicate()[1]
    assert done.returncode == 2
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            session = (folder / "stat").read_text().rpartition(")")[2].split()[3]
            assert int(session) != done.pid or b"cad" not in (folder / "cmdline").read_bytes()


def test_a_child_has_this_processs_place_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are now, not as they were when the server started; and one thread."""
    with Caller(OPTIONS) as call:
        call(os.getpid)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAD_TESTED", "yes")
    with Caller(OPTIONS) as call:
        assert call(os.getcwd) == str(tmp_path)
        assert call(os.getenv, "CAD_TESTED") == "yes"
        assert call(os.getenv, "OMP_NUM_THREADS") == "1"
        assert set(call(os.listdir, "/proc/self/fd")) >= {"0", "1", "2"}
        assert len(call(os.listdir, "/proc/self/fd")) == 5  # the pipe, and the list itself


@pytest.mark.filterwarnings("ignore")  # Dask's own, at its end
def test_a_long_loop_uses_the_cluster_whatever_jobs_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import LocalCluster

    monkeypatch.setattr(crossval, "START_SECONDS", 0.0)
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
            local_directory=str(tmp_path),
        ) as cluster,
        workplace(ExecutionOptions(scheduler=cluster.scheduler_address)),
    ):
        found = list(crossval.each_piece(where, [(k, 0.01) for k in range(6)], n_jobs=1))
    assert [k for k, _ in found] == list(range(6))
    assert [pid == os.getpid() for _, pid in found] == [True] * 2 + [False] * 4


def test_a_worker_imports_no_learner() -> None:
    """Its imports take a third of the time that scikit-learn's import alone takes."""
    code = (
        "import sys, cad.run.stages.study, cad.mri.features.table, cad.mri.features.snapshot, "
        "cad.mri.imaging.prepare, cad.mri.imaging.plausibility\n"
        "print(*(n for n in ('sklearn', 'scipy.stats', 'scipy.spatial', 'matplotlib', 'pydicom') "
        "if n in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def listening() -> set[str]:
    """The sockets of this machine at which somebody may call, by their inodes."""
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        if (table := Path("/proc/net") / name).exists()
        for line in table.read_text().splitlines()[1:]
    ]
    return {words[9] for words in lines if words[3] == "0A"}


def sockets_of(group: int) -> set[str]:
    """The inodes of the sockets that the processes of a group hold."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(process.name)) != group:
                continue
            for handle in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    target = os.readlink(handle)
                    if target.startswith("socket:"):
                        found.add(target[len("socket:[") : -1])
    return found


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="PROC ABSENT: no ports were listed")
def test_jobs_open_no_port(simulated: Path, quick: str, tmp_path: Path) -> None:
    words = ["run", quick, "--cohort", simulated, "-o", tmp_path / "out", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cad", "-q", *map(str, words)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    looks, most = 0, 0
    while process.poll() is None:
        sockets = sockets_of(process.pid)
        assert not sockets & listening()
        most = max(most, len(sockets))
        looks += 1
        time.sleep(0.05)
    assert process.returncode == 0
    assert looks > 10
    assert most  # of its children, so that these were looked at
