"""Start, limit and end child processes; a child never outlives the process that started it.

A fork server starts them: a process that has loaded their libraries and runs nothing, so that a
child costs milliseconds and not a second. It loads them itself, or it is a copy of a command that
has. One function also changes how this process collects garbage, because loaded modules are a
million objects that stay.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from multiprocessing import Pipe, forkserver, resource_tracker, util
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from cad.base.doors import door
from cad.base.errors import MachineError

# Python's own 700 make it look through all modules again and again while they are loaded, a fifth
# of that time. Cycles hold a few megabytes until then.
_THRESHOLDS = (50_000, 20, 100)
_silent = threading.Event()
_ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS",
    ),
    "1",
)
_SERVE = f"import sys; from {__name__} import serve; serve(int(sys.argv[1]))"
_lock = threading.Lock()
# The fork server of this process; of another process, which this one was forked from, it is not.
_servers: dict[int, tuple[int, socket.socket]] = {}


class Child:
    """Start a child process that runs ``serve(connection)`` of a module; :meth:`end` ends it.

    Parameters
    ----------
    module : str
        Full name of a module of this project.
    needs : str, optional
        Modules that children like this one will use, loaded once for all of them.
    quiet : bool
        Whether nothing that the child prints on standard error is seen; so it is for every child
        after :func:`silence_children`.

    Attributes
    ----------
    pid : int
        Number of the process.
    connection : Connection
        This process's end of a pipe to it.

    Raises
    ------
    MachineError
        When the machine starts no process.
    """

    def __init__(self, module: str, needs: str = "", *, quiet: bool = False) -> None:
        self.connection, theirs = Pipe()
        life, self._life = os.pipe()  # never written: the child ends itself when it closes
        self._status, status = os.pipe()
        try:
            errors = [] if quiet or _silent.is_set() or sys.stderr is None else [2]
            self.pid = _fork(f"{module} {needs}", [theirs.fileno(), life, status, *errors])
        except BaseException:
            for handle in (self._life, self._status):
                os.close(handle)
            self.connection.close()
            raise
        finally:
            os.close(life)
            os.close(status)
            theirs.close()
        self._code: int | None = None
        self._line = _command_line(self.pid)
        with suppress(BrokenPipeError):  # it has died since; wait() will say so
            self.connection.send((sys.path, os.getcwd(), {**os.environ, **_ONE_THREAD}))

    def wait(self) -> int:
        """Wait until the process has ended, and return its exit code; minus the signal's number."""
        if self._code is None:
            # Its fork server tells; where that has been killed, too, nobody knows better.
            self._code = int(os.read(self._status, 8) or -signal.SIGKILL)
        return self._code

    def end(self) -> None:
        """Kill the process, wait for its end, and close the pipes that lead to it."""
        if self._life < 0:
            return
        # The number of one that has ended may be another program's by now.
        if self._line and _command_line(self.pid) == self._line:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self._life)
        self.wait()
        os.close(self._status)
        self.connection.close()
        self._life = -1


@door("own", "process")
def _command_line(pid: int) -> bytes:
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as line:
        return line.read()
    return b""


def _server() -> socket.socket:
    if os.getpid() not in _servers:
        ours, theirs = _pair()
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with theirs:
            # Fixed arguments, and no user's string among them.
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-c", _SERVE, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **_ONE_THREAD, "PYTHONPATH": path},
            )
        # It is ended by its process number: with a code set, Popen neither waits nor warns.
        process.returncode = 0
        _servers[os.getpid()] = process.pid, ours
    return _servers[os.getpid()][1]


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(300.0)  # for loading libraries, too
    return ours, theirs


@atexit.register
def _end_server() -> None:
    pid, server = _servers.pop(os.getpid(), (0, None))
    if server:
        server.close()
        with suppress(ProcessLookupError, ChildProcessError):  # where SIGCHLD is ignored
            os.kill(pid, signal.SIGKILL)  # it may still be loading libraries, which takes a second
            os.waitpid(pid, 0)


def share_loaded(*, loops: bool = False, threads: int = 1) -> bool:
    """Make a copy of this process, with what it has loaded, the fork server of its children.

    A command calls it before it opens a file. Where there are other threads, which a copy lacks, or
    on Windows, nothing is done: then a fork server loads what children use.

    Parameters
    ----------
    loops : bool
        Whether another copy becomes Python's own fork server, from which joblib can fork.
    threads : int
        How many threads this process may have. A child has two: one waits for its parent's end, and
        holds nothing that a copy would miss.

    Returns
    -------
    bool
        Whether joblib can: not where TMPDIR is full or its name long.
    """
    if not hasattr(os, "fork") or threading.active_count() > threads or os.getpid() in _servers:
        return False
    ours, theirs = _pair()
    with suppress(OSError), theirs:  # without memory or processes it is tried again when needed
        _servers[os.getpid()] = _copy([theirs.fileno()], serve, theirs.fileno()), ours
        return loops and _share_with_loops()
    return False


def _share_with_loops() -> bool:
    resource_tracker.ensure_running()  # which is started in the same way, and is no copy

    def start(path: Any, args: Any, passfds: Sequence[int]) -> int:
        if len(passfds) != 2:  # a Python whose fork server takes other arguments
            return usual(path, args, passfds)
        return _copy(passfds, forkserver.main, *passfds, [])

    usual, util.spawnv_passfds = util.spawnv_passfds, start
    try:
        forkserver.ensure_running()
    finally:
        util.spawnv_passfds = usual
    return True


def _copy(handles: Sequence[int], run: Callable[..., object], *arguments: object) -> int:
    """Fork this process; the copy keeps these handles alone and runs a function to its end."""
    gc.freeze()  # the collector leaves alone, and so shares, what is here
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):
            stream.flush()  # else a copy would print it again
    # In the copy for good: an interrupt is for the parent, which ends the copy.
    pid, heard = -1, signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        # Python warns of threads: those of libraries, which know how to be forked, are left.
        with warnings.catch_warnings(action="ignore"):
            pid = os.fork()
    finally:
        if pid:
            signal.signal(signal.SIGINT, heard)
    if pid:
        return pid
    try:
        from threadpoolctl import threadpool_limits

        threadpool_limits(1)  # libraries that were loaded before they were told
        for low, high in pairwise(sorted([2, *handles, os.sysconf("SC_OPEN_MAX")])):
            os.closerange(low + 1, high)
        run(*arguments)
    finally:
        os._exit(0)


def _fork(order: str, handles: list[int]) -> int:
    """Let this process's fork server start a child; return its number."""
    with _lock:
        for _ in range(2):  # a server that has been killed is replaced once
            server = _server()
            try:
                socket.send_fds(server, [order.encode()], handles)
                if number := server.recv(16):
                    return int(number)
            except OSError:
                pass
            except BaseException:  # an interrupt: the number that still comes is no other child's
                _end_server()
                raise
            _end_server()
    hint = "the machine is short of memory or of processes: try again, with fewer jobs"
    raise MachineError("no process could be started", hint=hint)


@door("own", "process")
def serve(number: int) -> None:
    """Fork a child at each order of the parent process, until that ends: the fork server.

    Parameters
    ----------
    number : int
        Handle of the socket to the parent process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    nothing = os.open(os.devnull, os.O_RDWR)
    for handle in range(3):  # what libraries print must not mix with our results
        os.dup2(nothing, handle)
    collect_rarely()
    orders, statuses = socket.socket(fileno=number), dict[int, int]()

    def tell(*_: object) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with suppress(BrokenPipeError), open(statuses.pop(ended[0]), "w") as status:
                    status.write(str(os.waitstatus_to_exitcode(ended[1])))

    signal.signal(signal.SIGCHLD, tell)
    while True:
        order, handles, *_ = socket.recv_fds(orders, 1024, 4)
        if not order:
            return
        module, _, needs = order.decode().partition(" ")
        for name in (module, *needs.split()):
            with suppress(Exception):  # the child will say why
                import_module(name)
        gc.freeze()  # a child's collector leaves alone, and so shares, what is here
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        try:
            pid = os.fork()
        except OSError:
            return
        if not pid:
            _run(module, handles)
        statuses[pid] = handles[2]
        orders.send(str(pid).encode())
        for number in (*handles[:2], *handles[3:]):
            os.close(number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _run(module: str, handles: list[int]) -> NoReturn:
    """Be a child: call the module's ``serve`` with the pipe to the parent process."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        theirs, life, _, *errors = handles
        os.dup2(life, 0)
        os.dup2(errors[0] if errors else 1, 2)
        os.closerange(3, theirs)  # other children's pipes are among them
        os.closerange(theirs + 1, os.sysconf("SC_OPEN_MAX"))
        connection: Connection[Any, Any] = Connection(theirs)
        sys.path[:], folder, environment = connection.recv()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        import_module(module).serve(connection)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # nothing of the server's is done at the end


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the pipe closes; nobody writes
    os._exit(1)  # the parent is gone, even by kill -9: write nothing more


def silence_children() -> None:
    """Let nothing come out that children print, started by whom they may be, from now on.

    Libraries in any language quote what they read: a header, a name.
    """
    _silent.set()


def use_one_thread() -> None:
    """Let numerical libraries that are loaded later, and children, use one thread each.

    Numbers of threads that the user has set in the environment stay.
    """
    os.environ.update(_ONE_THREAD | os.environ)


def limit_memory(gigabytes: float) -> None:
    """Limit the memory that this process may ask for.

    Parameters
    ----------
    gigabytes : float
        Limit of data memory (RLIMIT_DATA) in units of 1e9 bytes; a lower limit of the system
        stays in force.
    """
    import resource  # absent on Windows, where no study is measured

    ceiling, hard = int(gigabytes * 1e9), resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard != resource.RLIM_INFINITY:
        ceiling = min(ceiling, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling, hard))


def collect_rarely() -> None:
    """Let Python's garbage collector run less often: call it when a process starts.

    With Python's default thresholds the collector would search all objects many times while the
    libraries are loaded.
    """
    gc.set_threshold(*_THRESHOLDS)
