"""A power cut drops what was not flushed and costs nothing that was reported.

``tests/support/power_loss.py``: here every k-th point; with ``pytest -m faults`` every sixth one of
the longest commands and all of the others, with ``pytest -m slow`` all.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import power_loss
import pytest
from crash_points import Case
from dicom_files import write_series
from live_node import make_settings

from cad.hospital.node.inbox import Inbox
from cad.hospital.node.queue import Queue
from cad.hospital.node.service import _sound_queue

pytestmark = pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs tmpfs")  # noqa: S108

LONGEST = ("predict", "cohort remove", "train")


def lost(*arguments: str) -> dict[str, list[str]]:
    """Run the program; what was lost, by case."""
    program = [sys.executable, "-W", "ignore", power_loss.__file__, *arguments]
    said = subprocess.run(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    found = [json.loads(line) for line in said.stdout.splitlines()]
    for line in found:
        print(f"{line['case']}: {line['tried']} of {line['points']} in {line['seconds']} s")
        assert line["tried"] > 1
    return {line["case"]: line["lost"] for line in found}


def test_every_so_often_a_power_cut_costs_nothing():
    names = ("import, new patients", "cohort remove")
    assert lost(*names, "--every", "71", "--offset", "5") == {name: [] for name in names}


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", power_loss.CASES)
def test_a_power_cut_at_any_call_costs_nothing(name):
    every = 6 if name in LONGEST else 1
    assert lost(name, "--every", str(every)) == {name: []}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LONGEST)
def test_a_power_cut_at_every_call_of_the_longest_costs_nothing(name):
    assert lost(name) == {name: []}


def _unflushed() -> None:
    Path("folder").mkdir()
    Path("folder/result").write_text("r" * 99)


def test_what_is_reported_and_not_flushed_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking where threads may be
        found = power_loss.tried(Case("broken", _unflushed, lambda: None), tmp_path / "work", 1, 0)
    assert any(one.startswith(power_loss.END) for one in found.lost)


def test_what_the_node_has_acknowledged_outlasts_a_power_cut(tmp_path, monkeypatch):
    """After each acknowledgement the flushed names and contents alone give the instance back."""
    home = Path("/dev/shm") / f"power-{os.getpid()}"  # noqa: S108 - inodes are not used twice there
    home.mkdir()
    try:
        disk = power_loss.Disk(home)
        monkeypatch.setattr(os, "fsync", disk.fsync)
        settings = make_settings(home / "node")
        queue = Queue(settings.home / "queue.sqlite")
        inbox = Inbox(settings, queue)
        images = write_series(tmp_path / "in", np.ones((3, 16, 16), np.uint16))
        for number, path in enumerate(images, start=1):
            with inbox.copied(path) as copy:
                inbox.keep(copy, "SCANNER")
            left = tmp_path / f"left{number}"
            disk._flush_names(str(home))  # the test made the node's folder
            disk.leave(left, names=False)
            again = make_settings(left / "node")
            (left / "node" / "queue.sqlite").unlink(missing_ok=True)  # worst: nothing of it
            other = _sound_queue(left / "node" / "queue.sqlite")
            kept = Inbox(again, other)
            assert kept.take_stock() == (number, 0)
            with inbox.copied(path) as copy:
                assert kept.keep(copy, "SCANNER") == 0
            kept.close()
            other.close()
        inbox.close()
        queue.close()
    finally:
        shutil.rmtree(home)
