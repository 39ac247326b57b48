"""Start, limit and end child processes; a child never outlives the process that started it.

A fork server starts the child processes. The fork server is a process that has loaded the libraries
of the children and does nothing but fork. So a child starts in milliseconds instead of a second.
The fork server loads the libraries itself, or it is a copy of a process that has loaded them.

The loaded modules are a million objects that never become garbage, and each garbage collection
would search them. Therefore :func:`collect_rarely` makes garbage collection less frequent.
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
from cad.base.processes.landlock import hide_processes

# Thresholds of the garbage collector. With Python's default of 700 the collector would search all
# modules again and again while they are loaded, which takes a fifth of the loading time. With these
# thresholds cyclic garbage takes a few megabytes until it is collected.
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
_SERVE = f"import sys; from {__name__} import serve_forks; serve_forks(int(sys.argv[1]))"
_lock = threading.Lock()
# Process number and socket of the fork server, by the number of the process that uses it. A process
# that was forked from the user of a fork server must not use this server.
_servers: dict[int, tuple[int, socket.socket]] = {}


class Child:
    """Start a child process that runs ``serve(connection)`` of a module; :meth:`end` ends it.

    Parameters
    ----------
    module : str
        Full name of a module of this project.
    needs : str, optional
        Names of modules that this child uses, separated by spaces. The fork server loads them once
        for all children.
    quiet : bool
        Whether the child's output on standard error is hidden. After :func:`silence_children` it is
        hidden for every child.

    Attributes
    ----------
    pid : int
        Number of the process.
    connection : Connection
        This process's end of a pipe to the child.

    Raises
    ------
    MachineError
        When the machine cannot start a process.
    """

    def __init__(self, module: str, needs: str = "", *, quiet: bool = False) -> None:
        self.connection, childs_end = Pipe()
        # Nothing is ever written to this pipe: the child ends itself when the pipe closes, and it
        # closes when this process ends.
        life_end, self._life = os.pipe()
        # The fork server writes the child's exit code to this pipe.
        self._status, status_end = os.pipe()
        try:
            # The child gets a handle of this process's standard error (2), if its errors are shown.
            is_silent = quiet or _silent.is_set() or sys.stderr is None
            error_handle = [] if is_silent else [2]
            handles = [childs_end.fileno(), life_end, status_end, *error_handle]
            self.pid = _fork(f"{module} {needs}", handles)
        except BaseException:
            for handle in (self._life, self._status):
                os.close(handle)
            self.connection.close()
            raise
        finally:
            # The child has copies of these ends; here they are no longer needed.
            os.close(life_end)
            os.close(status_end)
            childs_end.close()
        self._code: int | None = None  # exit code, once it is known
        # By the handle or, without one, by the command line :meth:`end` recognises the child.
        self._handle = _handle_of(self.pid)
        self._line = _command_line(self.pid)
        # The child works in the same folder, with the same paths of modules and environment.
        with suppress(BrokenPipeError):  # the child has died already; wait() will report it
            self.connection.send((sys.path, os.getcwd(), {**os.environ, **_ONE_THREAD}))

    def wait(self) -> int:
        """Wait until the process has ended, and return its exit code.

        For a process that a signal ended, the result is minus the signal's number.
        """
        if self._code is None:
            # The fork server sends the exit code of the child. If the server was killed, too, the
            # code is unknown, and SIGKILL is assumed.
            self._code = int(os.read(self._status, 8) or -signal.SIGKILL)
        return self._code

    def end(self) -> None:
        """Kill the process, wait for its end, and close the pipes that lead to it."""
        if self._life < 0:  # ended before
            return
        # The child may have ended, and its process number may now belong to another program, which
        # must not be killed. A handle of the child never means another process. Without a handle,
        # the command line of the process is compared with the one that was noted at the child's
        # start.
        if self._handle >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            os.close(self._handle)
        elif self._line and _command_line(self.pid) == self._line:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self._life)
        self.wait()
        os.close(self._status)
        self.connection.close()
        self._life = -1


def _handle_of(pid: int) -> int:
    """Return a handle of a process; -1 where the system has none (macOS, Linux before 5.3).

    A restricted process (:mod:`cad.base.processes.landlock`) cannot read the command lines of its
    children, and ends them by their handles.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


@door("own", "process")
def _command_line(pid: int) -> bytes:
    """Return the command line of a process; empty where the system does not tell it."""
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as line:
        return line.read()
    return b""


def _server() -> socket.socket:
    """Return the socket to this process's fork server, which is started when needed."""
    if os.getpid() not in _servers:
        ours, theirs = _pair()
        # The server loads modules from where this process does. An empty entry is the present
        # folder, which may hold files of anybody.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with theirs:
            # The arguments are fixed and contain no text from a user.
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-c", _SERVE, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **_ONE_THREAD, "PYTHONPATH": path},
            )
        # _end_server ends the process by its number. With a return code set here, Popen neither
        # waits for the process nor warns that it still runs.
        process.returncode = 0
        _servers[os.getpid()] = process.pid, ours
    return _servers[os.getpid()][1]


def _pair() -> tuple[socket.socket, socket.socket]:
    """Return this process's end and the fork server's end of a new connection."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(300.0)  # a generous limit, because the server may be loading libraries
    return ours, theirs


@atexit.register
def _end_server() -> None:
    """End the fork server that this process has started, if there is one."""
    pid, server = _servers.pop(os.getpid(), (0, None))
    if server:
        server.close()
        # If this process ignores the signal SIGCHLD, the system has already removed the ended
        # server, and the two calls below find no such process.
        with suppress(ProcessLookupError, ChildProcessError):
            # The server may be loading libraries, which takes a second, so it is killed.
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def share_loaded(*, loops: bool = False, threads: int = 1) -> bool:
    """Make a copy of this process serve as the fork server, from which its children are forked.

    The children then have the libraries that this process has loaded. A command calls this function
    before it opens a file. Nothing is copied on Windows, or where this process has more than
    ``threads`` threads, because a copy of a process lacks its other threads. In these cases the
    fork server is a new process, which loads the libraries that children use.

    Parameters
    ----------
    loops : bool
        Whether another copy becomes the fork server of Python's own ``multiprocessing``, from which
        joblib can fork.
    threads : int
        Number of threads that this process may have. A process that :class:`Child` started has two:
        one of them only waits for the end of the parent, so a copy does not need it.

    Returns
    -------
    bool
        Whether joblib can fork from the copy. It cannot where ``loops`` is False, where TMPDIR is
        full, or where the name of TMPDIR is too long for a socket.
    """
    # A process that has a fork server already keeps it.
    if not hasattr(os, "fork") or threading.active_count() > threads or os.getpid() in _servers:
        return False
    ours, theirs = _pair()
    # If memory or processes run out, nothing is raised: a later call tries again.
    with suppress(OSError), theirs:
        pid = _copy([theirs.fileno()], serve_forks, theirs.fileno())
        _servers[os.getpid()] = pid, ours
        return loops and _share_with_loops()
    return False


def _share_with_loops() -> bool:
    """Make a copy of this process the fork server of ``multiprocessing``; return True."""
    # multiprocessing starts its resource tracker by spawnv_passfds, too. The tracker is started
    # here, before that function is replaced below, so that it does not become a copy of this
    # process.
    resource_tracker.ensure_running()

    def start(path: Any, args: Any, passfds: Sequence[int]) -> int:
        """Start the fork server as a copy of this process; return its process number."""
        if len(passfds) != 2:  # another version of Python whose fork server takes other arguments
            return original_start(path, args, passfds)
        # The empty list says that no module is loaded in advance: the copy has them already.
        return _copy(passfds, forkserver.main, *passfds, [])

    original_start = util.spawnv_passfds
    util.spawnv_passfds = start
    try:
        forkserver.ensure_running()
    finally:
        util.spawnv_passfds = original_start
    return True


def _copy(handles: Sequence[int], run: Callable[..., object], *arguments: object) -> int:
    """Fork this process; the copy keeps only the given handles, runs a function and ends."""
    # After this call the garbage collector ignores all present objects. A collection would write to
    # them, and the copy would then need memory of its own for them.
    gc.freeze()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):
            stream.flush()  # otherwise the copy would print the same text again
    # The copy ignores interrupts (Ctrl-C) for good; the parent gets them and ends the copy.
    pid = -1
    previous_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        # Python warns about a fork of a process with several threads. The other threads here belong
        # to libraries that can be forked.
        with warnings.catch_warnings(action="ignore"):
            pid = os.fork()
    finally:
        if pid:  # in the parent, also if the fork failed
            signal.signal(signal.SIGINT, previous_handler)
    if pid:
        return pid
    try:
        from threadpoolctl import threadpool_limits

        # Libraries that were loaded before the environment variables of _ONE_THREAD were set do not
        # heed the variables.
        threadpool_limits(1)
        # All handles are closed but the three standard ones and the given ones.
        for below, above in pairwise(sorted([2, *handles, os.sysconf("SC_OPEN_MAX")])):
            os.closerange(below + 1, above)
        run(*arguments)
    finally:
        os._exit(0)


def _fork(order: str, handles: list[int]) -> int:
    """Ask the fork server to start a child; return the child's process number."""
    with _lock:
        for _ in range(2):  # a server that was killed is started again, once
            server = _server()
            try:
                socket.send_fds(server, [order.encode()], handles)
                number = server.recv(16)
                if number:  # an ended server sends nothing
                    return int(number)
            except OSError:
                pass  # the server is ended below, and another one is tried
            # This is an interrupt, such as Ctrl-C, before the child's number was received. The
            # server is ended, so that this number is not received later as that of another child.
            except BaseException:
                _end_server()
                raise
            _end_server()
    hint = "the machine is short of memory or of processes: try again, with fewer jobs"
    raise MachineError("no process could be started", hint=hint)


@door("own", "process")
def serve_forks(number: int) -> None:
    """Run as the fork server: fork a child at each order of the parent, until the parent ends.

    Parameters
    ----------
    number : int
        Handle of the socket to the parent process.
    """
    # Ctrl-C is for the parent, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    null_device = os.open(os.devnull, os.O_RDWR)
    for handle in range(3):  # output of libraries must not mix with the results
        os.dup2(null_device, handle)
    collect_rarely()
    order_socket = socket.socket(fileno=number)
    status_handles = dict[int, int]()

    def tell(*_: object) -> None:
        """Send the exit code of each child that has ended to the parent process."""
        # One signal may stand for several children; an error says that there are no children left.
        with suppress(ChildProcessError):
            while True:
                ended_pid, wait_status = os.waitpid(-1, os.WNOHANG)
                if not ended_pid:  # the other children still run
                    return
                with suppress(BrokenPipeError), open(status_handles.pop(ended_pid), "w") as status:
                    status.write(str(os.waitstatus_to_exitcode(wait_status)))

    signal.signal(signal.SIGCHLD, tell)
    while True:
        # An order is at most 1024 bytes long, and comes with three or four handles.
        order, handles, *_ = socket.recv_fds(order_socket, 1024, 4)
        if not order:  # the parent has ended
            return
        module, _, needs = order.decode().partition(" ")
        for name in (module, *needs.split()):
            with suppress(Exception):  # if a module cannot be loaded, the child will report it
                import_module(name)
        # After this call the garbage collector of the child ignores all present objects, so that
        # their memory stays shared between server and child.
        gc.freeze()
        # The child may end at once. ``tell`` must not run before the child's handle is stored.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        try:
            pid = os.fork()
        except OSError:
            return  # without memory for a process the server ends; the parent may start another
        if not pid:
            _run_child(module, handles)
        # The handles are the connection, the pipe ``life``, the status and perhaps standard error.
        status_handles[pid] = handles[2]
        order_socket.send(str(pid).encode())
        for childs_handle in (*handles[:2], *handles[3:]):
            os.close(childs_handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _run_child(module: str, handles: list[int]) -> NoReturn:
    """Run as a child process: call the module's ``serve`` with the pipe to the parent process."""
    exit_code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        connection_handle, life_handle, _, *error_handle = handles
        # ``life`` becomes standard input. Errors go to the parent's standard error, or else, like
        # all output, nowhere.
        os.dup2(life_handle, 0)
        os.dup2(error_handle[0] if error_handle else 1, 2)
        # All other handles are closed: they are pipes of other children, which were inherited.
        os.closerange(3, connection_handle)
        os.closerange(connection_handle + 1, os.sysconf("SC_OPEN_MAX"))
        # The fork server of a restricted process can read other processes; its children cannot.
        hide_processes()
        connection: Connection[Any, Any] = Connection(connection_handle)
        try:
            sys.path[:], folder, environment = connection.recv()
        except EOFError:  # the parent was killed before it could say anything
            os._exit(1)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        import_module(module).serve(connection)
        exit_code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(exit_code)  # skips the exit functions of the server


def _end_with_parent() -> None:
    """Wait for the end of the parent process, and end this process then."""
    os.read(0, 1)  # nobody writes to this pipe, so the call returns when the parent ends
    os._exit(1)  # the process ends at once, so that nothing is written after the parent's end


def silence_children() -> None:
    """Discard what children print on standard error, for every child that starts from now on.

    Libraries quote their input in messages, such as the name of a patient in a header, and such a
    message must not be shown.
    """
    _silent.set()


def use_one_thread() -> None:
    """Let numerical libraries that are loaded later use one thread each.

    This also holds in child processes. A number of threads that the user has set in the environment
    is kept in this process.
    """
    # Of two values for a variable that of ``os.environ`` comes last, and wins.
    os.environ.update(_ONE_THREAD | os.environ)


def limit_memory(gigabytes: float) -> None:
    """Limit the memory that this process may ask for.

    Parameters
    ----------
    gigabytes : float
        Limit of data memory (RLIMIT_DATA) in units of 1e9 bytes; a lower limit of the system
        stays in force.
    """
    import resource  # does not exist on Windows, where no study is measured

    ceiling = int(gigabytes * 1e9)
    hard_limit = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard_limit != resource.RLIM_INFINITY:
        ceiling = min(ceiling, hard_limit)
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling, hard_limit))


def collect_rarely() -> None:
    """Let Python's garbage collector run less often; to be called when a process starts.

    With Python's default thresholds the collector would search all objects many times while the
    libraries are loaded.
    """
    gc.set_threshold(*_THRESHOLDS)
