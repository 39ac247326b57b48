"""Real series of several makers against dcm2niix: same voxels, same place, same times and b-values.

The series are the published test data of that converter; it is the field's reference.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
import pydicom
import pytest

from cad.mri.imaging.listing import list_files
from cad.mri.imaging.phases import order_phases
from cad.mri.imaging.pixels import PixelReader, read_stack
from cad.mri.imaging.stacks import BY_ORDER, Stack, stacks_of
from cad.mri.imaging.volume import Volume

pytestmark = pytest.mark.reference
_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])


@dataclass
class Theirs:
    """Return the reference converter's voxels (x, y, z, t), affine (RAS) and sidecar."""

    array: np.ndarray
    affine: np.ndarray
    said: dict[str, object]
    step: float


@pytest.fixture
def convert(tmp_path: Path) -> Callable[..., list[Theirs]]:
    if shutil.which("dcm2niix") is None:
        pytest.skip("DCM2NIIX ABSENT: nothing was compared with it (it is in the extra dev)")

    def run(folder: Path, philips: str = "n") -> list[Theirs]:
        out = tmp_path / f"out-{philips}"
        out.mkdir()
        command = ["dcm2niix", "-b", "y", "-z", "n", "-p", philips, "-o", str(out), "-f", "%s_%e"]
        subprocess.run([*command, str(folder)], check=True, capture_output=True)
        found = []
        for path in sorted(out.glob("*.nii")):
            image = nibabel.as_closest_canonical(nibabel.load(path))
            array = image.get_fdata()
            said = json.loads(path.with_suffix(".json").read_text())
            steps = image.header.get_zooms()
            found.append(
                Theirs(
                    array if array.ndim == 4 else array[..., None],
                    image.affine,
                    said,
                    float(steps[3]) if len(steps) > 3 else 0.0,
                )
            )
        return found

    return run


def read(folder: Path) -> list[Stack]:
    listing = list_files(sorted(p for p in folder.rglob("*") if p.is_file()))
    assert [str(error) for error in listing.unreadable] == []
    series = defaultdict(list)
    for frames in listing.studies.values():
        for frame in frames:
            series[frame.series_uid].append(frame)
    return [stack for part in series.values() for stack in stacks_of(part)]


def same(volume: Volume, theirs: Theirs, phase: int = 0, rtol: float = 0.0) -> None:
    image = nibabel.Nifti1Image(volume.array.T.astype(np.float64), _LPS @ volume.affine)
    ours = nibabel.as_closest_canonical(image)
    assert ours.shape == theirs.array.shape[:3]
    corners = np.array([[x, y, z, 1] for x in (0, 1) for y in (0, 1) for z in (0, 1)])
    ends = corners * np.array([*(n - 1 for n in ours.shape), 1])
    assert np.abs((ours.affine - theirs.affine) @ ends.T).max() < 5e-3  # it has float32
    assert np.abs(ours.affine - theirs.affine).max() < 1e-3
    wanted = theirs.array[..., phase]
    # The converter of the reference files stores its scale in single precision, so the tolerance
    # is relative to the largest value.
    np.testing.assert_allclose(ours.get_fdata(), wanted, rtol=0, atol=rtol * np.abs(wanted).max())


SERIES = [
    ("siemens-mosaic/ep2d_Asc_2", "acquisition", 3.2),
    ("siemens-mosaic/ep2d_Int_4", "acquisition", 3.2),
    ("siemens-enhanced/6_rest", "acquisition", 0.5),
    ("ge-dynamic/2_fMRI_Multiphase_Des", "trigger", 1.0),
    ("ge-dynamic/2_epiRT_IntAsc_GD0", "repetition time", 2.0),
    ("philips-classic/fmri", "trigger", 2.0),
]


@pytest.mark.parametrize(("name", "clock", "step"), SERIES)
def test_dynamic_series(shared_data, counted, convert, tmp_path, name, clock, step):
    folder = shared_data / "zoo" / name
    if name.endswith("6_rest"):  # four objects without a folder of their own
        folder = tmp_path / "rest"
        folder.mkdir()
        for path in (shared_data / "zoo/siemens-enhanced").glob("6_*.dcm"):
            shutil.copy(path, folder)
    (theirs,) = convert(folder)
    phases = order_phases(read(folder))
    assert len(phases.timed) == theirs.array.shape[3]
    assert phases.clock == clock
    steps = np.diff(phases.times)
    assert steps == pytest.approx(theirs.step, abs=0.02)
    assert steps.mean() == pytest.approx(step, abs=0.02)
    rtol = 1e-6 if "philips" in name else 0.0
    for number, (_, stack) in enumerate(phases.timed):
        same(read_stack(stack), theirs, number, rtol)
    if clock == "repetition time":
        assert {stack.told_apart_by for _, stack in phases.timed} == {BY_ORDER}
        assert "the repetition time" in phases.notes[-1]
    counted(theirs.array.size, "dcm2niix, voxels of real series")


def test_united_imaging_grid(shared_data, counted, convert):
    """Twenty slices as a grid of four by five in one image, 17 of them."""
    folder = shared_data / "zoo-more/uih-grid"
    (theirs,) = convert(folder)
    found = read(folder)
    assert len(found) == theirs.array.shape[3] == 17
    for number, stack in enumerate(found):
        same(read_stack(stack), theirs, number)
    assert [round(stack.first.b_value, 2) for stack in found] == [1.25, *[929.75] * 16]
    counted(theirs.array.size, "dcm2niix, voxels of real series")


def test_group_delay(shared_data, counted, convert):
    """GE waits 3 s after each volume, which the repetition time of 2 s does not hold."""
    folder = shared_data / "zoo-more/ge-group-delay"
    (theirs,) = convert(folder)
    phases = order_phases(read(folder))
    assert phases.times.tolist() == [0.0, 5.0, 10.0]
    assert theirs.said["RepetitionTime"] == 5
    assert "a group delay of 3 s" in phases.notes[-1]
    for number, (_, stack) in enumerate(phases.timed):
        same(read_stack(stack), theirs, number)
    counted(theirs.array.size, "dcm2niix, voxels of real series")


@pytest.mark.parametrize("counted_by", ["(0019,100A)", "the CSA header"])
def test_a_mosaic_that_begins_with_another_slice(
    shared_data, counted, convert, tmp_path, counted_by
):
    """ProtocolSliceNumber 36 (the scanner numbers backwards): every slice lies where it lay."""
    folder = tmp_path / "reversed"
    folder.mkdir()
    for path in (shared_data / "zoo/siemens-mosaic/ep2d_Int_4").iterdir():
        content = path.read_bytes()
        at = content.index(b"ProtocolSliceNumber")
        at = content.index(b"0       ", at)
        (folder / path.name).write_bytes(content[:at] + b"36      " + content[at + 8 :])
        if counted_by == "the CSA header":
            dataset = pydicom.dcmread(folder / path.name)
            del dataset[0x0019, 0x100A]
            dataset.save_as(folder / path.name)
    (theirs,) = convert(folder)
    found = order_phases(read(folder)).timed
    for number, (_, stack) in enumerate(found):
        same(read_stack(stack), theirs, number)
    counted(theirs.array.size, "dcm2niix, voxels of real series")


@pytest.mark.parametrize(
    ("name", "b_value", "echo"),
    [
        ("siemens-enhanced/11_DWI_dir80_PA", None, 68.0),
        ("siemens-enhanced/12_DWI_dir80_PA", 2500.0, 68.0),
        ("siemens-enhanced/5_anat-T1w_acq-tfl", None, None),
    ],
)
def test_enhanced_images(shared_data, counted, convert, name, b_value, echo):
    folder = shared_data / "zoo" / name
    (theirs,) = convert(folder)
    (stack,) = read(folder)
    same(read_stack(stack), theirs)
    assert stack.first.b_value == b_value
    assert stack.first.echo_time == pytest.approx(1000 * float(theirs.said["EchoTime"]))
    assert stack.first.repetition_time == pytest.approx(theirs.said["RepetitionTime"])
    assert stack.first.flip_angle == pytest.approx(theirs.said["FlipAngle"])
    if echo:
        assert stack.first.echo_time == echo
    counted(theirs.array.size, "dcm2niix, voxels of real series")


@pytest.mark.parametrize("philips", ["n", "y"])
def test_philips_scales(shared_data, counted, convert, philips):
    """Displayed and precise values, and an object with two scales in it."""
    precise = philips == "y"
    folder = shared_data / "zoo/philips-enhanced"
    magnitude, field = convert(folder, philips)
    found = read(folder)
    assert [stack.first.image_type[-1] for stack in found] == ["M", "FIELD_MAP"]
    same(read_stack(found[0], precise=precise), magnitude, rtol=1e-6)
    same(read_stack(found[1], precise=precise), field, rtol=2e-5)  # their slope has 6 digits
    counted(magnitude.array.size + field.array.size, "dcm2niix, voxels of real series")


def test_philips_slopes_that_differ_by_slice(shared_data, counted, convert, tmp_path):
    """Displayed values are the converter's; precise ones stored / scale slope, slice by slice.

    With ``-p y`` the converter then multiplies all displayed values by one slice's factor.
    """
    folder = tmp_path / "slopes"
    folder.mkdir()
    for path in (shared_data / "zoo/philips-classic/fmri").iterdir():
        dataset = pydicom.dcmread(path)
        slope = float(dataset.RescaleSlope) * (1 + dataset.InstanceNumber / 50)
        dataset.RescaleSlope = f"{slope:.12g}"
        dataset.save_as(folder / path.name)
    (displayed,), (precise,) = convert(folder), convert(folder, "y")
    reader = PixelReader()
    for number, (_, stack) in enumerate(order_phases(read(folder)).timed):
        same(read_stack(stack), displayed, number, rtol=1e-6)
        for plane, item in zip(read_stack(stack, precise=True).array, stack.slices, strict=True):
            np.testing.assert_allclose(plane, reader.plane(item) / 0.004284040071070194, rtol=1e-6)
    seen = displayed.array > 0
    factor = precise.array[seen] / displayed.array[seen]
    np.testing.assert_allclose(factor, factor[0], rtol=1e-6)
    counted(displayed.array.size, "dcm2niix, voxels of real series")


def test_philips_classic_precise_values(shared_data, counted, convert):
    folder = shared_data / "zoo/philips-classic/fmri"
    (theirs,) = convert(folder, "y")
    for number, (_, stack) in enumerate(order_phases(read(folder)).timed):
        same(read_stack(stack, precise=True), theirs, number, rtol=1e-6)
    counted(theirs.array.size, "dcm2niix, voxels of real series")


@pytest.mark.parametrize(
    "name",
    [
        "ProstateX-0218/5.000000-t2tsetra320p2-09906",
        "ProstateX-0218/12.000000-ep2dadvdiffMDDW12dirspair511bADC-75591",
        "ProstateX-0000/4.000000-t2tsetra-00702",
        "ProstateX-0000/7.000000-ep2ddifftraDYNDISTADC-48780",
    ],
)
def test_prostatex(shared_data, counted, convert, name):
    folder = shared_data / "prostatex" / name
    (theirs,) = convert(folder)
    (stack,) = read(folder)
    same(read_stack(stack), theirs)
    counted(theirs.array.size, "dcm2niix, voxels of real series")
