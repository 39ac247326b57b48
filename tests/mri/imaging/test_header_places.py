"""A MetaImage or NRRD file lies where its header means it, or is refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from image_headers import meta, nrrd

from cad.base.errors import CadError
from cad.mri.imaging.nifti import read_grid, read_image

VOXELS = bytes(range(120))
ORIGIN = "space origin"
DIRECTIONS = "space directions"


def refusal(path: Path, content: bytes) -> str:
    """Return the message with which a file is refused."""
    path.write_bytes(content)
    with pytest.raises(CadError) as caught:
        read_image(path)
    return str(caught.value)


def origin_of(path: Path, content: bytes) -> tuple[float, ...]:
    path.write_bytes(content)
    return read_grid(path).GetOrigin()


META_REFUSED: list[tuple[dict[str, object], str]] = [
    ({"Offset": "nan 0 0"}, "Offset = 'nan 0 0'"),
    ({"Offset": "inf 0 0"}, "Offset = 'inf 0 0'"),
    ({"Offset": "a b c"}, "Offset = 'a b c'"),
    ({"Offset": "1 2"}, "Offset = '1 2'"),
    ({"Offset": "1 2 3 4"}, "Offset = '1 2 3 4'"),
    ({"Offset": "1,2,3"}, "Offset = '1,2,3'"),
    ({"Offset": "1d2 2 3"}, "Offset = '1d2 2 3'"),
    ({"Offset": "0x10 2 3"}, "Offset = '0x10 2 3'"),
    ({"Offset": "1e300 2 3"}, "Offset = '1e300 2 3'"),
    ({"Offset": "1e999 2 3"}, "Offset = '1e999 2 3'"),
    ({"Offset": ""}, "Offset = ''"),
    ({"Position": "7 7 7"}, "Position = 7 7 7"),
    ({"ImagePosition": "7 7 7"}, "ImagePosition = 7 7 7"),
    ({"CenterOfRotation": "7 7 7"}, "CenterOfRotation = '7 7 7'"),
    ({"ElementSpacing": "1 1 0"}, "ElementSpacing = '1 1 0'"),
    ({"ElementSpacing": "1 1 -1"}, "ElementSpacing = '1 1 -1'"),
    ({"ElementSpacing": "1 1 1e300"}, "ElementSpacing = '1 1 1e300'"),
    ({"ElementSpacing": "1 1 nan"}, "ElementSpacing = '1 1 nan'"),
    ({"ElementSpacing": "1 1"}, "ElementSpacing = '1 1'"),
    ({"ElementSpacing": None, "ElementSize": "1 1 1"}, "no ElementSpacing"),
    ({"TransformMatrix": "1 0 0 0 1 0 0 0"}, "TransformMatrix = '1 0 0 0 1 0 0 0'"),
    ({"TransformMatrix": "2 0 0 0 1 0 0 0 1"}, "not orthonormal"),
    ({"DistanceUnits": "cm"}, "DistanceUnits = 'cm'"),
    ({"DistanceUnits": "um"}, "DistanceUnits = 'um'"),
    ({"DistanceUnits": "?"}, "DistanceUnits = '?'"),
    ({"ElementToIntensityFunctionSlope": "2"}, "ElementToIntensityFunctionSlope = '2'"),
    ({"ElementToIntensityFunctionSlope": "nan"}, "ElementToIntensityFunctionSlope = 'nan'"),
    ({"ElementToIntensityFunctionOffset": "7"}, "ElementToIntensityFunctionOffset = '7'"),
    ({"ElementToIntensityFunctionOffset": "x"}, "ElementToIntensityFunctionOffset = 'x'"),
    ({"HeaderSizePerSlice": "4"}, "HeaderSizePerSlice = '4'"),
    ({"AnatomicalOrientation": "LPI"}, "AnatomicalOrientation = 'LPI'"),
    ({"AnatomicalOrientation": "ARI"}, "AnatomicalOrientation = 'ARI'"),
    ({"AnatomicalOrientation": "axial"}, "AnatomicalOrientation = 'axial'"),
    ({"offset": "7 7 7"}, "'offset' must be spelled Offset"),
    ({"ELEMENTSPACING": "7 7 7"}, "'ELEMENTSPACING' must be spelled ElementSpacing"),
    ({"Offset": None, "offset": "7 7 7"}, "'offset' must be spelled Offset"),
    ({"Element Spacing": "7 7 7"}, "'Element Spacing'"),
    ({"Comment\nOffset": "7 7 7"}, "'Comment'"),
]


@pytest.mark.parametrize(("entries", "words"), META_REFUSED)
def test_a_meta_image_without_one_certain_place_is_refused(
    tmp_path: Path, entries: dict[str, object], words: str
):
    assert words in refusal(tmp_path / "x.mha", meta(**entries) + VOXELS)


@pytest.mark.parametrize("key", ["Offset", "TransformMatrix", "ElementSpacing", "DistanceUnits"])
def test_an_entry_of_the_place_that_stands_twice_is_refused(tmp_path: Path, key: str):
    line = f"{key} = 7 7 7\n{key} = 7 7 7\n".encode()
    assert f"'{key}'" in refusal(tmp_path / "x.mha", line + meta() + VOXELS)


def test_a_place_behind_the_last_entry_counts_for_nothing(tmp_path: Path):
    """MetaIO ends its reading at ElementDataFile."""
    path = tmp_path / "x.mhd"
    (tmp_path / "x.raw").write_bytes(VOXELS)
    header = meta(ElementDataFile="x.raw")
    assert "15 bytes follow a header" in refusal(path, header + b"Offset = 7 7 7\n")
    assert origin_of(path, header + b"\n") == (0.0, 0.0, 0.0)
    assert origin_of(path, header.rstrip()) == (0.0, 0.0, 0.0)


def test_a_detached_header_of_more_than_64_kib_is_refused(tmp_path: Path):
    """Its entries behind the first 64 KiB would not be read."""
    (tmp_path / "x.raw").write_bytes(VOXELS)
    notes = "".join(f"k{number}:={'v' * 3000}\n" for number in range(30))
    late = nrrd(**{"data file": "x.raw"}).rstrip() + b"\n" + notes.encode()
    late += b"space origin: (7,7,7)\n"
    assert "at most 65,536" in refusal(tmp_path / "x.nhdr", late)
    late = meta(ElementDataFile="x.raw") + b"\n" * 70_000
    assert "at most 65,536" in refusal(tmp_path / "x.mhd", late)
    many = b"".join(b"Name%d = %s\n" % (number, b"v" * 200) for number in range(400))
    message = refusal(tmp_path / "x.mhd", many + meta(ElementDataFile="x.raw"))
    assert "without ElementDataFile in its first 65,536 bytes" in message


NRRD_REFUSED: list[tuple[dict[str, object], str]] = [
    ({"space": None}, "no space"),
    ({"space": None, "space dimension": 3}, "no space"),
    ({"space dimension": 3}, "space dimension = '3'"),
    ({"space": "scanner-xyz"}, "space = 'scanner-xyz'"),
    ({"space": "3D-right-handed"}, "space = '3D-right-handed'"),
    ({"space": "3D-left-handed"}, "space = '3D-left-handed'"),
    ({"space": "left-posterior-superior-time"}, "space = 'left-posterior-superior-time'"),
    ({"space": "LPST"}, "space = 'LPST'"),
    ({"space": "RPS"}, "space = 'RPS'"),
    ({"space units": '"cm" "cm" "cm"'}, 'space units = \'"cm"'),
    ({"spaceunits": '"m" "m" "m"'}, 'space units = \'"m"'),
    ({"SPACE UNITS": '"um" "mm" "mm"'}, 'space units = \'"um"'),
    ({"space units": "mm mm mm"}, "space units = 'mm mm mm'"),
    ({"spacings": "2 2 2"}, "spacings = '2 2 2'"),
    ({"axismins": "5 5 5"}, "axis mins = '5 5 5'"),
    ({"units": '"m" "m" "m"'}, 'units = \'"m"'),
    ({"kinds": "domain domain time"}, "kinds = 'domain domain time'"),
    ({ORIGIN: "none"}, "space origin = 'none'"),
    ({ORIGIN: "(none,1,1)"}, "space origin = '(none,1,1)'"),
    ({ORIGIN: "(nan,nan,nan)"}, "space origin = '(nan,nan,nan)'"),
    ({ORIGIN: "(inf,0,0)"}, "space origin = '(inf,0,0)'"),
    ({ORIGIN: "(1,2)"}, "space origin = '(1,2)'"),
    ({ORIGIN: "(1,2,3) 4"}, "space origin = '(1,2,3) 4'"),
    ({ORIGIN: "(0x10,1,1)"}, "space origin = '(0x10,1,1)'"),
    ({ORIGIN: "(1e300,0,0)"}, "space origin = '(1e300,0,0)'"),
    ({DIRECTIONS: "(1,0,0) (0,1,0) none"}, "space directions = '(1,0,0) (0,1,0) none'"),
    ({DIRECTIONS: "(1e300,0,0) (0,1,0) (0,0,1)"}, "space directions = '(1e300,0,0)"),
    ({DIRECTIONS: "(nan,0,0) (0,1,0) (0,0,1)"}, "space directions = '(nan,0,0)"),
    ({DIRECTIONS: "(0,0,0) (0,1,0) (0,0,1)"}, "found (0.0, 1.0, 1.0) mm"),
    ({DIRECTIONS: "(1,0,0) (1,1,0) (0,0,1)"}, "not orthonormal"),
    ({"spaceorigin": "(7,7,7)"}, "'spaceorigin'"),
    ({"space  origin": "(7,7,7)"}, "'space  origin'"),
    ({"s p a c e": "scanner-xyz"}, "'s p a c e'"),
    ({ORIGIN: "(7,7,7):=x"}, "'space origin'"),
]


@pytest.mark.parametrize(("entries", "words"), NRRD_REFUSED)
def test_an_nrrd_image_without_one_certain_place_is_refused(
    tmp_path: Path, entries: dict[str, object], words: str
):
    assert words in refusal(tmp_path / "x.nrrd", nrrd(**entries) + VOXELS)


def test_a_note_with_the_name_of_a_field_counts_for_nothing(tmp_path: Path):
    path = tmp_path / "x.nrrd"
    note = "space origin:=(7,7,7)\nspace:=scanner-xyz\nspace units:=m: x\nSegment0_Name:=Drüse Ä"
    content = nrrd(**{ORIGIN: f"(1,2,3)\n{note}"}) + VOXELS
    assert origin_of(path, content) == (1.0, 2.0, 3.0)
    content = nrrd(**{ORIGIN: None, "type": f"uchar\n{note}"}) + VOXELS
    assert "no space origin" in refusal(path, content)


HIDDEN = ["\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\u2028", "\u2029", "\r"]


@pytest.mark.parametrize("coding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("mark", HIDDEN)
def test_a_line_break_that_only_some_readers_see_is_refused(tmp_path: Path, mark: str, coding: str):
    """Else a comment or value could state the place that the header lacks."""
    entry = f"{mark}space origin: (7,7,7)"
    if coding == "latin-1" and mark > "\xff":
        return
    hidden = entry.encode(coding)
    for line in (b"# x", b"content: x", b"key:=x"):
        content = nrrd(**{ORIGIN: None})[:-1] + line + hidden + b"\n\n" + VOXELS
        message = refusal(tmp_path / "x.nrrd", content)
        assert "holds others than text" in message
        assert "space origin" in message or "content" in message
    hidden = f"Comment = x{mark}Offset = 7 7 7\n".encode(coding)
    message = refusal(tmp_path / "x.mha", hidden + meta(Offset=None) + VOXELS)
    assert "'Comment'" in message


SPACES = {
    "left-posterior-superior": (1, 2, 3),
    "right-anterior-superior": (-1, -2, 3),
    "left-anterior-superior": (1, -2, 3),
}


@pytest.mark.parametrize("space", SPACES)
def test_a_space_of_the_patient_is_read_in_each_spelling(tmp_path: Path, space: str):
    letters = "".join(word[0] for word in space.split("-"))
    x, y, z = SPACES[space]
    for spelling in (space, space.replace("-", " "), space.replace("-", ""), letters):
        for spelt in (spelling, spelling.upper()):
            path = tmp_path / "x.nrrd"
            path.write_bytes(nrrd(space=spelt, **{ORIGIN: "(1,2,3)"}) + VOXELS)
            image = read_grid(path)
            assert image.GetOrigin() == (x, y, z)
            axes = np.array(image.GetDirection()).reshape(3, 3)
            np.testing.assert_array_equal(axes, np.diag([x, y / 2, z / 3]))


SOUND_NRRD: list[dict[str, object]] = [
    {"space units": '"mm" "mm" "mm"'},
    {"spacings": "nan nan NaN"},
    {"kinds": "domain domain domain", "thicknesses": "nan nan 3", "centerings": "cell cell cell"},
    {"kinds": "space space space", "measurement frame": "(1,0,0) (0,1,0) (0,0,1)"},
    {"ORIGINAL NOTE:=x\nlabels": '"x" "y" "z"', "units": '"" "" ""'},
    {ORIGIN: None, "spaceorigin": "( 1 , 2.0, +3e0)"},
    {DIRECTIONS: None, "spacedirections": "(1,0,0)(0,1,0)  (0,0,1)"},
    {"encoding": "RAW"},
]


@pytest.mark.parametrize("entries", SOUND_NRRD)
def test_a_sound_nrrd_header_is_read(tmp_path: Path, entries: dict[str, object]):
    content = nrrd(**{ORIGIN: "(1,2,3)", **entries}) + VOXELS
    assert origin_of(tmp_path / "x.nrrd", content) == (1.0, 2.0, 3.0)
    crlf = nrrd(**{ORIGIN: "(1,2,3)", **entries}).replace(b"\n", b"\r\n") + VOXELS
    assert origin_of(tmp_path / "x.nrrd", crlf) == (1.0, 2.0, 3.0)


SOUND_META: list[dict[str, object]] = [
    {"DistanceUnits": "mm"},
    {"ElementToIntensityFunctionSlope": "1.0", "ElementToIntensityFunctionOffset": "0.0"},
    {"CenterOfRotation": "0 0 0", "AnatomicalOrientation": "???"},
    {"AnatomicalOrientation": "RAI"},
    {"AnatomicalOrientation": "LPS"},
    {"TransformMatrix": None, "Rotation": "1 0 0 0 1 0 0 0 1.0", "HeaderSizePerSlice": "0"},
    {"Comment": "Größe: Offset = 7 7 7", "ElementSize": "1 1 3", "Modality": "MET_MOD_MR"},
    {"Offset": None, "Position": "+1 2.0 3e0"},
]


@pytest.mark.parametrize("entries", SOUND_META)
def test_a_sound_meta_header_is_read(tmp_path: Path, entries: dict[str, object]):
    content = meta(**{"Offset": "1 2 3", **entries}) + VOXELS
    assert origin_of(tmp_path / "x.mha", content) == (1.0, 2.0, 3.0)


def test_every_orientation_that_the_library_writes_is_read(tmp_path: Path):
    """With its own letters of the axes, straight and oblique."""
    rng = np.random.default_rng(0)
    directions = []
    for order in itertools.permutations(range(3)):
        for signs in itertools.product((1.0, -1.0), repeat=3):
            directions.append(np.eye(3)[list(order)] * signs)
    for _ in range(60):
        directions.append(np.linalg.qr(rng.normal(size=(3, 3)))[0])
    for direction in directions:
        image = sitk.GetImageFromArray(np.arange(120, dtype="u1").reshape(4, 5, 6))
        image.SetSpacing((0.7, 0.9, 3.3))
        image.SetOrigin((-10.25, 20.5, 31.125))
        image.SetDirection(direction.ravel())
        for suffix in (".mha", ".nrrd", ".mhd", ".nhdr"):
            path = tmp_path / f"x{suffix}"
            sitk.WriteImage(image, str(path))
            grid = read_grid(path)
            np.testing.assert_allclose(grid.GetOrigin(), image.GetOrigin())
            np.testing.assert_allclose(grid.GetSpacing(), image.GetSpacing())
            np.testing.assert_allclose(grid.GetDirection(), direction.ravel(), atol=1e-9)


@pytest.mark.parametrize("name", ["GetOrigin", "GetSpacing"])
def test_a_header_that_two_readers_read_differently_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setattr(sitk.ImageFileReader, name, lambda reader: (1.0, 1.0, 1.5))
    for path, content in ((tmp_path / "x.mha", meta()), (tmp_path / "x.nrrd", nrrd())):
        message = refusal(path, content + VOXELS)
        assert "two readers put the image in two places" in message
        assert "middle at (2.50, 2.00, 1.50) mm with steps of 1 x 1 x 1 mm" in message


def test_a_header_of_another_kind_than_its_name_is_refused(tmp_path: Path):
    assert "its name ends in .mha" in refusal(tmp_path / "x.mha", nrrd() + VOXELS)
    assert "its name ends in .nrrd" in refusal(tmp_path / "x.nrrd", meta() + VOXELS)
