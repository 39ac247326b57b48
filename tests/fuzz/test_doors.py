"""Every door of strangers' bytes, with damage of its form: the matrix of the table of doors.

In the suite 2,000 inputs; ``python -m benchmarks.doors --inputs 100000`` draws as many as asked. No
signal, no foreign traceback, no number that is no probability, no byte from outside the source.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from door_cases import CASES, in_this_process

EACH = 2_000 // len(CASES) + 1


@pytest.mark.parametrize("kind", CASES)
def test_two_thousand_inputs_through_every_door(kind: str, tmp_path: Path):
    boundary = CASES[kind].make(tmp_path)
    with in_this_process():
        boundary.read()  # undamaged it is taken
        faults: dict[str, str] = {}
        for number in range(EACH):
            text = boundary.case(random.Random(f"door {kind} {number}"))
            if text:
                faults.setdefault(text.splitlines()[0], f"input {number}: {text}")
    assert not faults, "\n\n".join(faults.values())
