"""A displaced series is put back by a run, and its page shows before and after."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cad.base.settings import PipelineSettings
from cad.folders.run_folder import RunFolder
from cad.mri.imaging.nifti import read_volume, write_volume
from cad.mri.imaging.registration import Registration, registration_view
from cad.mri.imaging.volume import Volume
from cad.run.reports.alignment import alignments
from cad.run.reports.images import read_images

SHIFT = np.array([5.0, 0.0, 0.0])


def test_the_whole_way_to_the_page(
    own_cohort: Path,
    pipeline: Callable[..., PipelineSettings],
    measured: Callable[..., Any],
    part_of: Callable[..., Path],
    tmp_path: Path,
) -> None:
    for folder in own_cohort.glob("sub-*/perf"):
        shutil.rmtree(folder)  # one image to align is enough
    settings = pipeline(images={"registration": "rigid"})
    undisplaced = part_of(own_cohort, tmp_path / "undisplaced", ["sub-0001"])
    still = measured(settings, undisplaced, tmp_path / "still")
    path = own_cohort / "sub-0001" / "dwi" / "sub-0001_ADC.nii.gz"
    image = read_volume(path)
    moved = tuple((np.array(image.origin) + SHIFT).tolist())
    write_volume(path, replace(image, origin=moved))
    run = measured(settings, own_cohort, tmp_path / "run")
    displaced = part_of(own_cohort, tmp_path / "displaced", ["sub-0001"])
    # Without registration such an ADC map is refused: this site says that it may lie beside T2.
    (displaced / "plausible.json").write_text('{"adc_placed": [-9, 9]}')
    plain = measured(pipeline(), displaced, tmp_path / "plain")

    def adc(a_run: Any) -> np.ndarray:
        rows = a_run.features[a_run.features["participant_id"] == "sub-0001"]
        return rows["adc_intensity_median"].to_numpy()

    truth = adc(still)
    assert np.abs(adc(run) - truth).mean() < 0.5 * np.abs(adc(plain) - truth).mean()

    images = read_images(run.loaded.folder, "sub-0001")
    (numbers,) = [n for n in images.meta["registration"] if n["moving"] == "adc"]
    before = next(
        n
        for n in json.loads(str(np.load(still.measured.results[0])["meta"]))["registration"]
        if n["moving"] == "adc"
    )
    assert numbers["accepted"]
    assert numbers["after"] > numbers["before"]
    # The displacement is its movement beyond that of the undisplaced image.
    assert abs(numbers["translation_mm"] - 5.0) < 1.0 + before["translation_mm"]
    assert "registration" not in np.load(plain.measured.results[0])

    run.validate()
    run.write()
    page = (tmp_path / "run" / "report" / "sub-0001.html").read_text()
    section = re.search(r'<section class="alignment".*?</section>', page, re.S)
    assert section is not None
    text = f"moved {numbers['translation_mm']:.1f} mm, turned {numbers['rotation_deg']:.1f}°"
    assert text in section.group()
    assert section.group().count("data:image/webp") == 2 * len(images.meta["registration"])


@pytest.fixture
def block() -> Volume:
    array = np.full((3, 60, 60), 20.0, np.float32)
    array[:, 20:40, 15:45] = 200.0
    return Volume(array, (0.7, 0.7, 3.0), (0.0, 0.0, 0.0), np.eye(3))


def test_edges_and_pictures_lie_where_the_tissue_is(block: Volume) -> None:
    matrix = np.eye(4)
    matrix[0, 3] = -7.0
    displaced = replace(block, origin=(7.0, 0.0, 0.0))
    found = Registration("adc", matrix, 0.1, 0.9, True, "", displaced, 7.0, 0.0)
    numbers, (before, after, edges) = registration_view(found, block, 1)
    assert numbers["translation_mm"] == 7.0
    inside = block.array[1] > 100
    assert ((after > 128) == inside).all()
    np.testing.assert_array_equal(before[:, 10:] > 128, inside[:, :-10])
    rows, columns = np.nonzero(edges)
    assert set(rows) <= {*range(18, 23), *range(37, 43), *range(13, 47)}
    assert 70 < len(rows) < 140  # about the rectangle's border of 100 voxels
    near = np.abs(rows - 20) <= 1
    near |= np.abs(rows - 39.5) <= 1.5
    near |= np.abs(columns - 15) <= 1
    near |= np.abs(columns - 44.5) <= 1.5
    assert near.all()


def test_an_image_that_was_not_moved_says_why(block: Volume, tmp_path: Path) -> None:
    found = Registration("dce", np.eye(4), 0.4, 0.4, False, "dce not moved: beyond", block)
    numbers, pictures = registration_view(found, block, 0)
    folder = RunFolder(tmp_path)
    folder.study("s").parent.mkdir()
    np.savez(
        folder.study("s"),
        roi_map=np.zeros((3, 60, 60), np.uint8),
        spacing=np.array(block.spacing),
        direction=np.diag([-1.0, 1.0, 1.0]),
        z_mm=np.arange(3.0),
        registration=pictures[None],
        meta=np.array(json.dumps({"registration": [numbers]})),
    )
    images = read_images(folder, "s")
    assert images.registration is not None
    # The page shows the patient's right on the left: columns are turned with the slices.
    np.testing.assert_array_equal(images.registration[0], pictures[:, :, ::-1])
    (view,) = alignments(images)
    assert view.text == "dce not moved: beyond"
    assert [name for name, _ in view.pictures] == ["not moved"]
