"""Loops over folds: here while that is quicker, in processes then; the same results either way."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from loop_pieces import where

from cad.learning.evaluation.folds import crossval
from cad.learning.evaluation.folds.crossval import each_piece


def test_a_short_loop_stays_in_this_process() -> None:
    """No process is started for less work than its start: the numbers come in order, from here."""
    found = list(each_piece(where, [(k, 0.0) for k in range(20)], n_jobs=2))
    assert [k for k, _ in found] == list(range(20))
    assert {pid for _, pid in found} == {os.getpid()}


def test_a_long_loop_goes_to_processes_and_keeps_its_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crossval, "START_SECONDS", 0.0)
    found = list(each_piece(where, [(k, 0.01) for k in range(8)], n_jobs=2))
    assert [k for k, _ in found] == list(range(8))
    # The first may be slow because it loads what all need: it decides nothing.
    assert [pid == os.getpid() for _, pid in found] == [True] * 2 + [False] * 6


def test_one_process_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossval, "START_SECONDS", 0.0)
    found = list(each_piece(where, [(k, 0.01) for k in range(4)], n_jobs=1))
    assert {pid for _, pid in found} == {os.getpid()}


def test_what_is_done_with_a_result_is_no_time_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crossval, "START_SECONDS", 0.1)
    pids = set()
    for _, pid in each_piece(where, [(k, 0.0) for k in range(6)], n_jobs=2):
        time.sleep(0.1)  # whoever asks is slow; the pieces are not
        pids.add(pid)
    assert pids == {os.getpid()}


def test_nothing_to_do_gives_nothing() -> None:
    assert list(each_piece(np.square, [], n_jobs=2)) == []
