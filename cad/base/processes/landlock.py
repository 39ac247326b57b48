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
from collections.abc import Iterable
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
_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
# Right to make ioctl calls on devices, which exists from version 5 of the interface on.
_DEVICES = 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | 1 << 14 | _DEVICES
_SYSTEM = ("/usr", "/lib", "/lib64", "/etc", "/proc", "/sys/devices/system", "/sys/fs/cgroup")
_DEVICE_FILES = ("/dev/null", "/dev/urandom", "/dev/random", "/dev/zero")


class _Ruleset(ctypes.Structure):
    _fields_ = [("handled", ctypes.c_uint64)]


class _Below(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def version() -> int:
    """Return the version of the kernel's Landlock; 0 where Landlock is missing or switched off."""
    if not sys.platform.startswith("linux"):
        return 0
    with suppress(OSError):
        return max(_call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION)), 0)
    return 0


def confine(read: Iterable[Path], write: Iterable[Path]) -> bool:
    """Restrict this process for good: it reads and writes files below these paths only.

    The interpreter, its packages and the system's libraries stay readable.

    Parameters
    ----------
    read : iterable of Path
        Folders or files that may be read.
    write : iterable of Path
        Folders in which files may be read, made, changed and removed.

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
    if not level:
        return False
    everything = _ALL[min(level, 3)] | (_DEVICES if level >= 5 else 0)
    look = _EXECUTE | _READ | _LIST
    rules = _Ruleset(everything)
    ruleset = _call(
        _CREATE, ctypes.byref(rules), ctypes.c_size_t(ctypes.sizeof(rules)), ctypes.c_uint32(0)
    )
    try:
        for path in (*_program_folders(), *map(Path, read)):
            _allow(ruleset, path, look & everything)
        # A Python process that is started from here finds the package by listing the folder that
        # contains the package. Therefore it may list this folder.
        _allow(ruleset, Path(__file__).resolve().parents[3], _LIST)
        for device in map(Path, _DEVICE_FILES):
            _allow(ruleset, device, (_READ | _WRITE) & everything)
        for path in map(Path, write):
            _allow(ruleset, path, everything)
        libc = ctypes.CDLL(None, use_errno=True)
        # The kernel restricts a process without privileges only after this call. The process can
        # then no longer gain rights by starting a program that runs as its owner (setuid).
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        _call(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
    return True


def _program_folders() -> list[Path]:
    """Return the folders of the interpreter, its packages, this program and the system's libraries.

    ``sys.path`` is not used as a whole, because it may contain the folder in which a command was
    started.
    """
    folders = {Path(path) for path in sysconfig.get_paths().values()}
    folders |= {Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix)}
    folders |= {Path(path) for path in site.getsitepackages()}
    folders.add(Path(__file__).resolve().parents[2])
    return [*map(Path, _SYSTEM), *sorted(folders)]


@door("own", "process")
def _allow(ruleset: int, path: Path, rights: int) -> None:
    """Allow rights below a path; nothing happens if the path does not exist."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
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


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
