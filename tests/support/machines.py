"""Machines of a small hospital: network namespaces with a cable between two of them.

Only root of a namespace may make them, as tests/support/with_orthanc.sh is.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def ip(*words: object, on: list[str] | None = None) -> None:
    subprocess.run([*(on or []), "ip", *map(str, words)], check=True, timeout=20)


@contextmanager
def machine() -> Iterator[int]:
    """Start a machine without any cable; the number of the process that is it."""
    before = Path("/proc/self/ns/net").readlink()
    process = subprocess.Popen(["unshare", "--net", "sleep", "3600"])
    try:
        while Path(f"/proc/{process.pid}/ns/net").readlink() == before:
            time.sleep(0.01)
        ip("link", "set", "lo", "up", on=on(process.pid))
        yield process.pid
    finally:
        process.kill()
        process.wait()


def on(number: int) -> list[str]:
    """A program that runs a command on a machine."""
    return ["nsenter", "-t", str(number), "-n"]


def connect(name: str, one: tuple[list[str], str], number: int, address: str) -> None:
    """Lay a cable from where ``one`` runs commands to a machine, each end with its address."""
    ip(
        "link",
        "add",
        "name",
        f"{name}0",
        "type",
        "veth",
        "peer",
        "name",
        f"{name}1",
        "netns",
        number,
        on=one[0],
    )
    for end, who, place in ((f"{name}0", one[0], one[1]), (f"{name}1", on(number), address)):
        ip("addr", "add", f"{place}/24", "dev", end, on=who)
        ip("link", "set", end, "up", on=who)
