"""The gland as any segmentation program writes it: by name, by number, or as zones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from import_cases import RULES, SHAPE, regions, write_patient

from cad.dicom.into.importer import ImportSummary, import_source
from cad.mri.imaging.nifti import read_volume, write_volume

ORGANS = "gland_file: ['{patient}/organs.nii.gz']\ngland_values: [17]\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """One man with two lesions."""
    folder = write_patient(tmp_path / "in")
    write_volume(folder / "lesion.nii.gz", regions(3, 5))
    return folder


def imported(source: Path, more: str = "") -> tuple[ImportSummary, Path]:
    rules = source.parent / "rules.yaml"
    rules.write_text(RULES + more)
    out = source.parent / "out"
    return import_source(source, out, rules), out


def gland_in(out: Path) -> np.ndarray | None:
    path = out / "sub-P001/masks/sub-P001_gland.nii.gz"
    return read_volume(path).array if path.is_file() else None


def numbers(*values_of_slices: int) -> np.ndarray:
    """A map whose slices hold one number each; those not given hold the last."""
    array = np.zeros(SHAPE, np.uint8)
    for z in range(len(array)):
        array[z] = values_of_slices[min(z, len(values_of_slices) - 1)]
    return array


def write(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_volume(path, regions().with_array(array))


def test_a_zone_map_alone_makes_the_gland(source: Path) -> None:
    # 1 and 2 are zones by the rules, 3 is none: a bladder.
    zones = numbers(3, 1, 1, 2)
    write(source / "zones.nii.gz", zones)
    summary, out = imported(source)
    assert summary.failures == []
    assert np.array_equal(gland_in(out), (zones == 1) | (zones == 2))
    assert any("gland mask made of the zones in zones.nii.gz" in note for note in summary.notes)


def test_a_mask_goes_before_the_zones(source: Path) -> None:
    write(source / "zones.nii.gz", numbers(1, 2))
    gland = numbers(0, 1)
    write(source / "gland.nii.gz", gland)
    _, out = imported(source)
    assert np.array_equal(gland_in(out), gland)


def test_one_number_of_many_is_the_prostate(source: Path) -> None:
    organs = numbers(16, 17)
    write(source / "P-001" / "organs.nii.gz", organs)
    summary, out = imported(source, ORGANS)
    assert summary.failures == []
    assert np.array_equal(gland_in(out), organs == 17)


def test_another_mans_map_is_not_his(source: Path) -> None:
    write(source / "P-002" / "organs.nii.gz", numbers(17))
    _, out = imported(source, ORGANS)
    assert gland_in(out) is None


@pytest.mark.parametrize(
    ("array", "note"),
    [
        (numbers(16, 3), "no gland mask: none of 17; organs.nii.gz holds 3, 16"),
        (numbers(0), "no gland mask: none of 17; organs.nii.gz is empty"),
    ],
)
def test_a_map_without_the_number_gives_no_mask_and_says_so(
    source: Path, array: np.ndarray, note: str
) -> None:
    write(source / "P-001" / "organs.nii.gz", array)
    summary, out = imported(source, ORGANS)
    assert summary.failures == []
    assert gland_in(out) is None
    assert any(note in text for text in summary.notes)


def test_fractions_are_no_mask(source: Path) -> None:
    write(source / "gland.nii.gz", np.full(SHAPE, 0.3, np.float32))
    summary, _ = imported(source)
    (failure,) = summary.failures
    assert "gland.nii.gz" in str(failure.file)
