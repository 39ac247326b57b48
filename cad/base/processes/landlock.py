"""Restrict a process to files below some folders, permanently, by Landlock of the Linux kernel.

A crafted file may take over the parser that reads it, even one in C. The parser can then still
reach no file outside these folders. The four system calls are made through ctypes, because
existing Python packages for them support other Python versions. The restriction applies to the
calling thread and to processes that it starts. It cannot be undone, and is therefore meant for
child processes.
"""

from __future__ import annotations

import ctypes
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from cad.base.doors import door

# Numbers of the system calls, which are the same on all processors supported by Linux.
_CREATE = 444
_ADD = 445
_RESTRICT = 446
_ASK_VERSION = 1
_BELOW = 1
_NO_NEW_PRIVILEGES = 38
# Bits of the rights to files (linux/landlock.h). A later version of the interface has more rights;
# _ALL holds all rights of each version up to 3.
_EXECUTE = 1 << 0
_WRITE = 1 << 1
_READ = 1 << 2
_LIST = 1 << 3
_MOVE = 1 << 13
_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
# Right to make ioctl calls on devices, which exists from version 5 of the interface on.
_DEVICES = 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | 1 << 14 | _DEVICES
_SYSTEM = ("/usr", "/lib", "/lib64", "/proc", "/sys/devices/system", "/sys/fs/cgroup")
# /etc holds passwords and private keys, so only the files are named that libraries read: settings
# of the loader, of time zones, of fonts, of host names, of TLS (by Debian, Arch and Fedora) and of
# Debian's Python.
_OF_ETC = (
    "ld.so.cache",
    "localtime",
    "timezone",
    "mime.types",
    "fonts",
    "nsswitch.conf",
    "host.conf",
    "hosts",
    "gai.conf",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/cert.pem",
    "ssl/openssl.cnf",
    "ca-certificates/extracted",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "pki/tls/openssl.cnf",
    "crypto-policies",
    "python3",
    f"python{sys.version_info.major}.{sys.version_info.minor}",
)
# /proc holds the arguments and the environments of all processes. Libraries need only these facts
# about the machine and about the restricted process itself.
_OF_PROC = (
    "cpuinfo",
    "meminfo",
    "stat",
    "sys/vm/overcommit_memory",
    "self/maps",
    "self/stat",
    "self/statm",
    "self/status",
)
_DEVICE_FILES = ("/dev/null", "/dev/urandom", "/dev/random", "/dev/zero")

# Paths that stay open after hide_processes; empty in a process that confine has not restricted.
_OUTSIDE_PROC: list[Path] = []
# Handles of the files of _OF_PROC. A rule holds for a file as Linux knows it now. Linux forgets the
# files of /proc when memory is short, and then knows them as new files, which no rule allows. It
# does not forget a file to which a handle is open.
_HELD: list[int] = []


class _Ruleset(ctypes.Structure):
    _fields_ = [("handled", ctypes.c_uint64)]


class _Below(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def version() -> int:
    """Return the version of the kernel's Landlock; 0 where Landlock is missing or switched off."""
    if not sys.platform.startswith("linux"):
        return 0
    # The call that creates a ruleset returns the version instead, if this flag is set.
    with suppress(OSError):
        flags = ctypes.c_uint32(_ASK_VERSION)
        return max(_call(_CREATE, None, ctypes.c_size_t(0), flags), 0)
    return 0


def confine(
    read: Iterable[Path], write: Iterable[Path], share: Callable[[], object] | None = None
) -> bool:
    """Restrict this process for good: it reads and writes files below these paths only.

    The interpreter, its packages, the system's libraries and the settings of these libraries stay
    readable. Accounts and passwords, other processes and the kernel's symbols do not.

    Parameters
    ----------
    read : iterable of Path
        Folders or files that may be read.
    write : iterable of Path
        Folders in which files may be read, made, changed and removed.
    share : callable, optional
        Called when all but other processes is closed. It may start a fork server for the children
        of this process (:func:`cad.base.processes.share_loaded`). Each child then closes other
        processes itself, and so can read its own entry below /proc.

    Returns
    -------
    bool
        Whether the kernel restricts the process. False where the kernel has no Landlock; the caller
        then reports this in its log.

    Raises
    ------
    OSError
        When a kernel that has Landlock refuses the rules.
    """
    level = version()
    if level:
        # Libraries ask for the home folder. Without the variable HOME they would look into
        # /etc/passwd, which is closed to them.
        home = os.path.expanduser("~")
        if os.path.isabs(home):
            os.environ["HOME"] = home
        if not _OUTSIDE_PROC:  # a restricted process could not list these paths
            _OUTSIDE_PROC.extend(path for path in Path("/").iterdir() if path.name != "proc")
        _restrict(_everything(level), _rules(_everything(level), read, write))
    if share is not None:
        share()
    hide_processes()
    return level > 0


@door("own", "process")
def hide_processes() -> None:
    """Close other processes and the kernel's symbols to this process, if it is restricted.

    Nothing happens in a process that neither called :func:`confine` nor was forked from such a
    process.
    """
    if not _OUTSIDE_PROC:
        return
    # The right to move files (_MOVE) is among the handled rights, because Linux lets a process move
    # a file to another folder only if every restriction of the process allows it.
    handled = (_READ | _LIST | _MOVE) & _everything(version())
    rules = [(path, handled) for path in _OUTSIDE_PROC]
    for name in _OF_PROC:
        path = Path("/proc", name)
        with suppress(OSError):  # not every machine has all of these files
            _HELD.append(os.open(path, os.O_PATH | os.O_CLOEXEC))
        rules.append((path, _READ))
    _restrict(handled, rules)


def _everything(level: int) -> int:
    """Return all rights to files that a version of Landlock has."""
    rights_to_devices = _DEVICES if level >= 5 else 0
    return _ALL[min(level, 3)] | rights_to_devices


def _rules(
    everything: int, read: Iterable[Path], write: Iterable[Path]
) -> Iterator[tuple[Path, int]]:
    """Yield each path that stays open, with the rights below it."""
    read_rights = (_EXECUTE | _READ | _LIST) & everything
    for path in (*_program_paths(), *map(Path, read)):
        yield path, read_rights
    # A Python process that is started from here finds the package by listing the folder that
    # contains the package. Therefore it may list this folder.
    yield Path(__file__).resolve().parents[3], _LIST
    for device in map(Path, _DEVICE_FILES):
        yield device, (_READ | _WRITE) & everything
    for path in map(Path, write):
        yield path, everything


@door("own", "process")
def _restrict(handled: int, rules: Iterable[tuple[Path, int]]) -> None:
    """Take all of these rights from this process for good, except where a rule grants them."""
    attributes = _Ruleset(handled)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    ruleset = _call(_CREATE, ctypes.byref(attributes), size, ctypes.c_uint32(0))
    try:
        for path, rights in rules:
            _allow(ruleset, path, rights)
        libc = ctypes.CDLL(None, use_errno=True)
        # The kernel restricts a process without privileges only after this call. The process can
        # then no longer gain rights by starting a program that runs as its owner (setuid).
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        _call(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _program_paths() -> list[Path]:
    """Return the paths of the interpreter, its packages, this program and the system's libraries.

    ``sys.path`` is not used as a whole, because it may contain the folder in which a command was
    started.
    """
    folders = {Path(path) for path in sysconfig.get_paths().values()}
    folders |= {Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix)}
    folders |= {Path(path) for path in site.getsitepackages()}
    folders.add(Path(__file__).resolve().parents[2])  # the package cad
    of_etc = [Path("/etc", name) for name in _OF_ETC]
    return [*map(Path, _SYSTEM), *of_etc, *sorted(folders)]


@door("own", "process")
def _allow(ruleset: int, path: Path, rights: int) -> None:
    """Add to a Landlock ruleset that the kernel allows ``rights`` to a path and all below it.

    Nothing happens if the path does not exist.
    """
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        # The kernel refuses rights to a file that only folders can have, such as to list it.
        if not path.is_dir():
            rights &= _OF_FILES
        rule = _Below(rights, handle)
        _call(
            _ADD,
            ctypes.c_int(ruleset),
            ctypes.c_int(_BELOW),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(handle)


@door("own", "process")
def _call(number: int, *arguments: object) -> int:
    """Make a system call by its number; raise an OSError if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
