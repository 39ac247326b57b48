"""Outlines that readers correct: drawn in Chromium, collected into label maps, or refused."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading_cases import code_of, export, make_cohort, outline, square

from cad.base.errors import CadError
from cad.folders.cohort import read_cohort
from cad.hospital.reader_study.exports import collect_reading
from cad.hospital.reader_study.study import ReadingSettings, write_reading
from cad.mri.imaging.geometry import MIN_VOXELS
from cad.mri.imaging.nifti import read_stored, read_volume, write_volume
from cad.mri.imaging.study_files import image_path, read_reader_outlines
from cad.mri.imaging.volume import Volume
from tests.run.reports.test_reading import run_of

MASK = "sub-0001/masks/sub-0001_desc-r1_rois.nii.gz"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cohort(tmp_path_factory.mktemp("outlines") / "c", 2)


@pytest.fixture
def cohort(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "c")
    return tmp_path / "c"


@pytest.fixture
def study(cohort: Path, tmp_path: Path) -> Path:
    write_reading(cohort, tmp_path / "study", ReadingSettings(("r1", "r2"), outlines=True))
    return tmp_path / "study"


def test_outlines_become_the_readers_label_map(cohort: Path, study: Path) -> None:
    before = image_path(cohort / "sub-0001", "sub-0001", "rois").read_bytes()
    drawn = square() | square(10, 12, z=3)
    said = collect_reading(
        cohort, study, [export(study, "r1", outlines=[outline(cohort, study, drawn)])]
    )
    assert f"corrected outlines: {MASK}" in said
    labels = read_volume(cohort / MASK)
    assert np.array_equal(labels.array, drawn.astype(int))  # the label of region a is 1
    assert labels.same_grid(read_volume(image_path(cohort / "sub-0001", "sub-0001", "t2w")))
    assert image_path(cohort / "sub-0001", "sub-0001", "rois").read_bytes() == before
    other = outline(cohort, study, square(21, 26, z=5), "b")
    again = export(study, "r1", outlines=[outline(cohort, study, drawn), other])
    collect_reading(cohort, study, [again])  # what is there is kept, what is new is added
    found = read_reader_outlines(cohort / "sub-0001", "sub-0001")
    assert list(found) == ["r1"]
    assert np.array_equal(found["r1"].array, drawn + 2 * square(21, 26, z=5).astype(int))
    written = (cohort / MASK).read_bytes()
    collect_reading(cohort, study, [again])
    assert (cohort / MASK).read_bytes() == written  # collecting again changes nothing
    assert read_cohort(cohort).problems == []


def test_an_outline_of_a_turned_image_lies_where_it_was_drawn(cohort: Path, study: Path) -> None:
    """A file may store its voxels in another order: it is shown, and read back, upright."""
    folder, flip = cohort / "sub-0001", (slice(None, None, -1),) * 3
    before = image_path(folder, "sub-0001", "t2w").read_bytes()
    for kind in ("t2w", "rois"):
        path = image_path(folder, "sub-0001", kind)
        volume = read_volume(path)
        corner = volume.index_to_patient(np.array([39.0, 39.0, 5.0]))
        write_volume(
            path,
            Volume(volume.array[flip].copy(), volume.spacing, tuple(corner), -volume.direction),
        )
    assert image_path(folder, "sub-0001", "t2w").read_bytes() != before
    told = outline(cohort, study, square())
    collect_reading(cohort, study, [export(study, "r1", outlines=[told])])
    assert np.array_equal(read_volume(cohort / MASK).array, square().astype(int))
    # By what the two files themselves say of places, whatever their orders: the corrected outline
    # reaches from 9 to 15, the given one from 8 to 13, in voxels of 0.5 mm, both on slice 2.
    assert _places(cohort / MASK) == ([4.5, 4.5, 6.0], [7.5, 7.5, 6.0])
    given = _places(image_path(folder, "sub-0001", "rois"))
    assert given == ([4.0, 4.0, 6.0], [6.5, 6.5, 6.0])


def _places(path: Path) -> tuple[list[float], list[float]]:
    """Lowest and highest x, y and z (LPS, mm) of label 1, as a file stores it."""
    stored = read_stored(path)
    found = [
        stored.index_to_patient(at[::-1].astype(float)) for at in np.argwhere(stored.array == 1)
    ]
    low, high = np.min(found, axis=0), np.max(found, axis=0)
    return np.round(low, 3).tolist(), np.round(high, 3).tolist()


def _other_label(cohort: Path) -> None:
    image = read_volume(image_path(cohort / "sub-0001", "sub-0001", "rois"))
    write_volume(cohort / MASK, image.with_array(image.array * (image.array == 1)))


def _other_grid(cohort: Path) -> None:
    image = read_volume(image_path(cohort / "sub-0001", "sub-0001", "rois"))
    write_volume(
        cohort / MASK, type(image)(image.array[:, :, :20], image.spacing, image.origin, np.eye(3))
    )


def _other_image(cohort: Path) -> None:
    path = image_path(cohort / "sub-0001", "sub-0001", "t2w")
    image = read_volume(path)
    array = image.array.copy()
    array[0, 0, 0] += 1
    write_volume(path, image.with_array(array))


@pytest.mark.parametrize(
    ("spoil", "change", "words"),
    [
        (None, {"image": "0" * 16}, "drawn on another image"),
        (_other_image, {}, "drawn on another image"),
        (None, {"first": [5, 0, 0]}, r"ends at voxel \[1\d, "),
        (None, {"shape": [1, 1, 1]}, "outside of what the page showed"),
        (None, {"runs": []}, "outside of what the page showed"),
        (None, {"runs": [5]}, "outside of what the page showed"),
        (None, {"runs": [5, 0]}, "outside of what the page showed"),
        (None, {"runs": [9, 3, 2, 3]}, "outside of what the page showed"),
        (None, {"runs": [-1, 3]}, "outside of what the page showed"),
        (None, {"runs": [1.5, 3]}, "outside of what the page showed"),
        (None, {"runs": [True, 3]}, "outside of what the page showed"),
        (None, {"runs": "5,3"}, "outside of what the page showed"),
        (None, {"runs": [0, 2**40]}, "outside of what the page showed"),
        (None, {"shape": [2**30] * 3, "runs": [0, 9]}, "the image at"),
        (None, {"roi": "c"}, "region c is not in this session"),
        (None, {"case": "case-009"}, "is not in this session"),
        (None, {"roi": "b"}, "lies beside the region"),
        (None, {"more": 1}, "an outline has case, first"),
        (_other_label, {}, "has another outline of the region by this reader"),
        (_other_grid, {}, "lie on a grid of"),
    ],
)
def test_an_outline_that_breaks_a_rule_is_refused_and_changes_nothing(
    cohort: Path, study: Path, spoil: Any, change: dict[str, Any], words: str
) -> None:
    told = outline(cohort, study, square()) | change
    if spoil is not None:
        spoil(cohort)
    before = {p: p.read_bytes() for p in cohort.rglob("*.*") if p.is_file()}
    with pytest.raises(CadError, match=words) as error:
        collect_reading(cohort, study, [export(study, "r1", outlines=[told])])
    assert error.value.file.endswith(("r1-session-1.jsonl", MASK))
    after = {p: p.read_bytes() for p in cohort.rglob("*.*") if p.is_file()}
    assert after == before
    assert not (study / "readings.tsv").exists()


def test_too_few_voxels_shared_voxels_and_two_of_one_region_are_refused(
    cohort: Path, study: Path
) -> None:
    small = outline(cohort, study, square(8, 10))
    a = outline(cohort, study, square() | square(20, 24, z=5))
    b = outline(cohort, study, square(21, 26, z=5), "b")
    for given, words in (
        ([small], rf"cannot be measured: it fills 4\.0 voxels, {MIN_VOXELS} are needed"),
        ([a, b], "shares voxels with the reader's outline of label 1"),
        ([b, b], "stands twice"),
        (3, "asks for no outlines"),
        ([3], "an outline has"),
    ):
        with pytest.raises(CadError, match=words):
            collect_reading(cohort, study, [export(study, "r1", outlines=given)])


def test_an_export_edited_by_hand_is_refused(cohort: Path, study: Path) -> None:
    path = export(study, "r1", outlines=[outline(cohort, study, square())])
    path.write_bytes(path.read_bytes().replace(b'"runs":[', b'"runs":[1,2,'))
    with pytest.raises(CadError, match="changed after the page wrote it"):
        collect_reading(cohort, study, [path])


def test_outlines_are_off_unless_asked_and_never_of_a_case_that_showed_the_tool(
    cohort: Path, study: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    write_reading(cohort, plain, ReadingSettings(("r1",)))
    assert "outlines" not in json.loads((plain / "reading.json").read_text())
    page = (plain / "r1-session-1.html").read_text()
    assert 'class="pen"' not in page
    assert "class Pen" not in page
    assert not any("drawn_on" in path.read_text() for path in plain.glob("cases/*.js"))
    told = {**outline(cohort, study, square()), "case": code_of(plain, "sub-0001")}
    with pytest.raises(CadError, match="asks for no outlines"):
        collect_reading(cohort, plain, [export(plain, "r1", outlines=[told])])
    tool = tmp_path / "tool"
    run = run_of(cohort, tmp_path / "run")
    write_reading(cohort, tool, ReadingSettings(("r1",), outlines=True), run)
    sessions = json.loads((tool / "reading.json").read_text())["sessions"]
    code = code_of(tool, "sub-0001")
    shown = next(s["session"] for s in sessions if dict(s["cases"])[code] == "with_tool")
    told = {**outline(cohort, tool, square()), "case": code}
    with pytest.raises(CadError, match="showed the tool"):
        collect_reading(cohort, tool, [export(tool, "r1", shown, outlines=[told])])
    collect_reading(cohort, tool, [export(tool, "r1", 3 - shown, outlines=[told])])
    assert (cohort / MASK).exists()


def test_labels_that_a_page_cannot_tell_apart_cost_the_case(cohort: Path, tmp_path: Path) -> None:
    rois = (cohort / "rois.tsv").read_text().replace("sub-0001\tb\t2", "sub-0001\tb\t300")
    (cohort / "rois.tsv").write_text(rois)
    path = image_path(cohort / "sub-0001", "sub-0001", "rois")
    image = read_volume(path)
    labels = image.array.astype(np.int16)
    labels[labels == 2] = 300
    write_volume(path, image.with_array(labels))
    said = write_reading(cohort, tmp_path / "s", ReadingSettings(("r1",), outlines=True))
    assert said[1:] == ["left out: sub-0001: a label above 254 cannot be drawn"]


def _crc(path: Path) -> bool:
    line, proof = path.read_bytes().split(b"\n")[:2]
    return json.loads(proof)["crc32"] == f"{zlib.crc32(line):08x}"


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_reader_corrects_outlines_by_pointer_and_by_keys(
    cohort: Path,
    study: Path,
    opened: Callable[[Path], Any],
    axe: Callable[[Any], Any],
    tmp_path: Path,
) -> None:
    seen = opened(study / "r1-session-1.html")
    page = seen.page
    code = _go_to(page, code_of(study, "sub-0001"))
    assert page.inner_text(".pen-said").startswith("Region a: 36 voxels on this slice (given: 36)")
    assert axe(page) == []
    # By keys: one voxel, from the middle of the region (11, 11) four to the right of it.
    for key in ("d", "[", "[", *["ArrowRight"] * 4, " ", "ArrowRight", " "):
        page.keyboard.press(key)
    assert "38 voxels on this slice (given: 36)" in page.inner_text(".pen-said")
    page.keyboard.press("u")
    assert "37 voxels on this slice" in page.inner_text(".pen-said")
    # By pointer: erase the left column of the region from above to below.
    page.keyboard.press("e")
    _drag(page, (8.5, 7.5), (8.5, 14.5))
    assert "31 voxels on this slice" in page.inner_text(".pen-said")
    # The neighbouring slice, and the other region, erased to nothing: that is not kept.
    page.keyboard.press("PageUp")
    page.keyboard.press("d")
    _drag(page, (10.5, 10.5), (11.5, 10.5))
    page.keyboard.press("Escape")
    page.click(".name:text-is('b')")
    page.click("[data-tool=erase]")
    for _ in range(5):
        page.keyboard.press("]")
    _drag(page, (20, 22), (20, 28), (25, 28), (25, 22), (23, 22), (23, 28))
    assert "not kept: fewer than 5 voxels" in page.inner_text(".pen-said")
    page.screenshot(path=tmp_path / "outlines.png")
    page.click(".pen-given")
    assert "36 voxels on this slice (given: 36), 36 in all (36)" in page.inner_text(".pen-said")
    page.reload()  # what was drawn is on the disk
    _go_to(page, code)
    assert "31 voxels on this slice (given: 36), 33 in all" in page.inner_text(".pen-said")
    for key in "45":
        page.keyboard.press(key)
    with page.expect_download() as download:
        page.click("#export")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert seen.said == []
    assert _crc(path)
    collect_reading(cohort, study, [path])
    wanted = np.zeros((6, 40, 40), int)
    wanted[2, 8:14, 9:14] = 1
    wanted[2, 11, 15] = 1
    wanted[3, 10, 10:12] = 1
    assert np.array_equal(read_volume(cohort / MASK).array, wanted)


@pytest.mark.browser
def test_a_case_that_shows_the_tool_has_no_pen(
    cohort: Path, tmp_path: Path, opened: Callable[[Path], Any]
) -> None:
    run = run_of(cohort, tmp_path / "run")
    write_reading(cohort, tmp_path / "tool", ReadingSettings(("r1",), outlines=True), run)
    seen = opened(tmp_path / "tool" / "r1-session-1.html")
    plan = json.loads(seen.page.text_content("#plan"))
    for case in plan["cases"]:
        _go_to(seen.page, case["code"])
        assert seen.page.is_visible(".pen") == (case["condition"] == "alone")
        seen.page.keyboard.press("d")
        drawing = seen.page.get_attribute("[data-tool=draw]", "aria-pressed") == "true"
        assert drawing == (case["condition"] == "alone")
    assert seen.said == []


def _go_to(page: Any, code: str) -> str:
    """Bring a case onto the screen, its pen ready."""
    ready = "c => document.querySelector('.viewer')?.dataset.case === c"
    page.wait_for_function("() => document.querySelector('.viewer')?.dataset.case")
    if not page.evaluate(ready, code):
        page.click("#next")
    page.wait_for_function(ready, arg=code)
    return code


def _drag(page: Any, *voxels: tuple[float, float]) -> None:
    """Drag over places of the image (x, y in voxels) on the T2 panel."""
    box = page.locator(".panels canvas").first.bounding_box()
    data = page.evaluate(
        "() => new Promise(done => { const b = window.cadCase;"
        " window.cadCase = (c, d) => { window.cadCase = b; done(d.drawn_on); };"
        " const s = document.createElement('script');"
        " s.src = `cases/${document.querySelector('.viewer').dataset.case}.js`;"
        " document.head.append(s); })"
    )
    (_, y0, x0), (_, height, width) = data["first"], data["shape"]
    points = [
        (box["x"] + (x - x0) / width * box["width"], box["y"] + (y - y0) / height * box["height"])
        for x, y in voxels
    ]
    page.mouse.move(*points[0])
    page.mouse.down()
    for point in points[1:]:
        page.mouse.move(*point, steps=4)
    page.mouse.up()
