"""Mutated files: read, or refused with a CadError, never anything else (marker ``fuzz``)."""

from __future__ import annotations

import contextlib
import gzip
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
from dicom_files import write_seg, write_series, write_structures

from cad.base.errors import CadError
from cad.mri.imaging.annotations import read_drawn_regions
from cad.mri.imaging.frames import read_dataset
from cad.mri.imaging.listing import list_files
from cad.mri.imaging.nifti import read_dynamic, read_volume, write_dynamic, write_volume
from cad.mri.imaging.pixels import read_stack
from cad.mri.imaging.stacks import stacks_of
from cad.mri.imaging.volume import Dynamic, Volume

ROUNDS = 400
SHAPE = (3, 8, 8)


def volume() -> Volume:
    array = np.random.default_rng(0).integers(1, 900, SHAPE).astype(np.uint16)
    return Volume(array, (1.0, 1.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))


def mutate(content: bytes, rng: random.Random, first: int, last: int) -> bytes:
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(first, min(last, len(data)))] = rng.choice(
            (0, 1, 127, 128, 255, rng.randrange(256))
        )
    return bytes(data[: rng.randrange(first, len(data))] if rng.random() < 0.2 else data)


def survive(read) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # damaged files make libraries talk
        with contextlib.suppress(CadError):
            read()


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["volume", "dynamic"])
def test_nifti_headers(tmp_path: Path, kind: str):
    path = tmp_path / "x.nii.gz"
    if kind == "volume":
        write_volume(path, volume())
    else:
        frames = np.stack([volume().array] * 3)
        write_dynamic(path, Dynamic(frames, volume(), np.arange(3.0)))
    content = gzip.decompress(path.read_bytes())
    rng = random.Random(1)
    for _ in range(ROUNDS):
        path.write_bytes(gzip.compress(mutate(content, rng, 0, 352), 1))
        survive(lambda: read_volume(path) if kind == "volume" else read_dynamic(path))


@pytest.mark.fuzz
def test_sidecars(tmp_path: Path):
    path = tmp_path / "x.nii.gz"
    write_dynamic(
        path, Dynamic(np.stack([volume().array] * 3), volume(), np.arange(3.0), 0.004, 12.0)
    )
    side = tmp_path / "x.json"
    content = side.read_bytes()
    rng = random.Random(2)
    for _ in range(ROUNDS):
        side.write_bytes(mutate(content, rng, 0, len(content)))
        survive(lambda: read_dynamic(path))


@pytest.mark.fuzz
def test_dicom_series(tmp_path: Path):
    paths = write_series(tmp_path, volume().array)
    content = paths[1].read_bytes()
    rng = random.Random(3)

    def read() -> None:
        for slices in list_files(paths).studies.values():
            for uid in {s.series_uid for s in slices}:
                for stack in stacks_of([s for s in slices if s.series_uid == uid]):
                    read_stack(stack)

    for _ in range(ROUNDS):
        paths[1].write_bytes(mutate(content, rng, 132, len(content)))
        survive(read)


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["seg", "rtstruct"])
def test_annotations(tmp_path: Path, kind: str):
    images = write_series(tmp_path / "t2", volume().array)
    path = tmp_path / "a.dcm"
    if kind == "seg":
        mask = np.zeros(SHAPE, bool)
        mask[1, 2:5, 2:5] = True
        write_seg(path, images, {"a": mask})
    else:
        square = np.array([[2, 2, 3], [6, 2, 3], [6, 6, 3.0]])
        write_structures(path, images[0], {"a": [square]})
    content = path.read_bytes()
    rng = random.Random(4)
    for _ in range(ROUNDS):
        path.write_bytes(mutate(content, rng, 132, len(content)))
        survive(lambda: read_drawn_regions(read_dataset(path), path, volume(), "", volume()))
