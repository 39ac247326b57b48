"""Every door of strangers' bytes, with damage of its form: the matrix of the table of doors.

In the suite 2,000 inputs; ``python -m benchmarks.doors --inputs 100000`` draws as many as asked. No
signal, no foreign traceback, no number that is no probability, no byte from outside the source.
"""

from __future__ import annotations

import inspect
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import door_cases
import pytest
from door_cases import CASES, function_of, in_this_process

from cad.mri.imaging.nifti import read_image
from cad.mri.imaging.volume import Volume

EACH = 2_000 // len(CASES) + 1


# Headers of which so many at least come back as an image, with its voxels and place compared.
IMAGES_BACK = 30


def called(read: Callable[[], object]) -> set[CodeType]:
    """Return the code of every function that is called while something is read."""
    codes = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        read()
    finally:
        sys.setprofile(None)
    return codes


@pytest.mark.parametrize("kind", CASES)
def test_sound_files_go_through_every_door_of_their_case(kind: str, tmp_path: Path):
    """A case that names a door and does not reach it would try nothing there."""
    boundary = CASES[kind].make(tmp_path)
    for name in CASES[kind].doors:
        # A door that remembers its results is not called again for what another test has read.
        forget = getattr(function_of(name), "cache_clear", None)
        if forget is not None:
            forget()
    with in_this_process():
        codes = called(boundary.read)
    missed = []
    for name in CASES[kind].doors:
        if inspect.unwrap(function_of(name)).__code__ not in codes:
            missed.append(name)
    assert missed == []


def test_headers_that_stay_right_come_back_as_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kind = "MetaImage and NRRD"
    boundary = CASES[kind].make(tmp_path)
    images = []

    def counted(path: Path) -> Volume:
        image = read_image(path)
        images.append(path)
        return image

    monkeypatch.setattr(door_cases, "read_image", counted)
    for number in range(EACH):
        boundary.case(random.Random(f"door {kind} {number}"))
    assert len(images) >= IMAGES_BACK
    assert len(set(images)) == len(boundary.files)


IN_BOUNDS = """
import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from door_cases import CASES, in_this_process
from numba import njit


@njit
def beyond(values):
    return values[len(values)]


def words_of(error):
    words = []
    while error is not None:
        words.append(str(error))
        error = error.__cause__ or error.__context__
    return words


try:
    beyond(np.zeros(2))
except IndexError as error:
    out_of_bounds = str(error)
else:
    sys.exit("numba checks no bounds here")
for kind in ("bundle", "study"):
    folder = Path(sys.argv[1], kind)
    folder.mkdir()
    boundary = CASES[kind].make(folder)

    def read(plain=boundary.read):
        # Errors of a parser are turned into refusals, and so would this one be.
        try:
            plain()
        except Exception as error:
            if out_of_bounds in words_of(error):
                raise AssertionError("compiled code left an array") from error
            raise

    with in_this_process():
        read()
        for number in range(int(sys.argv[2])):
            text = replace(boundary, read=read).case(random.Random(f"door {kind} {number}"))
            if text:
                sys.exit(f"{kind} {number}: {text}")
print("done")
"""


def test_compiled_code_stays_inside_the_arrays_of_forged_files(repository: Path, tmp_path: Path):
    """Without this switch a kernel reads beyond an array, and nobody sees it."""
    done = subprocess.run(
        [sys.executable, "-c", IN_BOUNDS, tmp_path, str(EACH)],
        env={
            **os.environ,
            "NUMBA_BOUNDSCHECK": "1",
            "NUMBA_CACHE_DIR": str(tmp_path / "kernels"),
            "PYTHONPATH": str(repository / "tests/support"),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


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
