"""Pieces of a loop that other processes can import."""

from __future__ import annotations

import os
import time


def where(number: int, seconds: float) -> tuple[int, int]:
    """Return the number, and which process worked on it for so many seconds."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return number, os.getpid()


def kill_unless(driver: int, least: int) -> int:
    """Let the process be killed, where it is another than the driver; else work for a moment."""
    if least and os.getpid() != driver:
        os.kill(os.getpid(), 9)
    time.sleep(0.01)
    return driver
