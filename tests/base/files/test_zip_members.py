"""Members of a zip archive share no bytes: through every door that unpacks one."""

from __future__ import annotations

import copy
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.base.reading import check_members, open_arrays, reading
from cad.dicom.into.sources import unpack
from cad.folders.cohort.traces import members
from cad.run.tables.dialects import read_cells


def archive(names: tuple[str, ...] = ("a.dcm", "b.dcm", "sub/", "sub/c.dcm")) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in names:
            packed.writestr(name, name.encode() * 40)
    return stream.getvalue()


def listed_again(content: bytes) -> bytes:
    """Return an archive whose first member is listed twice in the directory."""
    stream = io.BytesIO(content)
    with zipfile.ZipFile(stream, "a") as packed:
        packed.filelist.append(copy.copy(packed.filelist[0]))
        packed._didModify = True
    return stream.getvalue()


def nested(content: bytes) -> bytes:
    """Return an archive with a stored member that holds another member with its header."""
    stream = io.BytesIO(content)
    inner = archive(("inner.dcm",))
    with zipfile.ZipFile(io.BytesIO(inner)) as packed:
        inner_member = packed.filelist[0]
        inner_content = inner[: packed.start_dir]
    with zipfile.ZipFile(stream, "a") as packed:
        packed.writestr("outer.dcm", inner_content)
        outer = packed.filelist[-1]
        inner_member.header_offset = outer.header_offset + 30 + len("outer.dcm")
        packed.filelist.append(inner_member)
    return stream.getvalue()


def too_long(content: bytes) -> bytes:
    """Return an archive whose last member reaches into the directory."""
    stream = io.BytesIO(content)
    with zipfile.ZipFile(stream, "a") as packed:
        packed.filelist[-1].compress_size += 1
        packed._didModify = True
    return stream.getvalue()


def elsewhere(content: bytes) -> bytes:
    """Return an archive whose first member does not begin where the directory says."""
    stream = io.BytesIO(content)
    with zipfile.ZipFile(stream, "a") as packed:
        packed.filelist[0].header_offset += 1
        packed._didModify = True
    return stream.getvalue()


OVERLAPS = [
    (listed_again, "member 'a.dcm' begins at byte 0: members may not overlap"),
    (nested, "member 'inner.dcm' begins at byte"),
    (too_long, "the archive's directory begins at byte"),
    (elsewhere, "member 'a.dcm' does not begin at byte 1"),
]


@pytest.mark.parametrize(("damage", "words"), OVERLAPS)
def test_members_that_share_bytes_are_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], words: str
):
    path = tmp_path / "x.zip"
    path.write_bytes(damage(archive()))
    with pytest.raises(CadError) as caught:
        unpack(path, tmp_path / "into")
    assert words in str(caught.value)
    assert not (tmp_path / "into").exists()
    with pytest.raises(CadError) as caught:
        list(members("x.zip", path.read_bytes()))
    assert words in str(caught.value)


def test_an_archive_of_20_kb_does_not_become_a_gigabyte(tmp_path: Path):
    """A thousand members of one name share their bytes; each alone is no bomb."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.dcm", np.random.default_rng(0).bytes(20_000) + bytes(1_000_000))
        packed.filelist.extend(copy.copy(packed.filelist[0]) for _ in range(999))
    path = tmp_path / "x.zip"
    path.write_bytes(stream.getvalue())
    with pytest.raises(CadError, match="members may not overlap"):
        unpack(path, tmp_path / "into")


def test_arrays_and_workbooks_whose_members_share_bytes_are_refused(tmp_path: Path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(6.0))
    path.write_bytes(listed_again(path.read_bytes()))
    with (
        pytest.raises(CadError, match=r"member 'a\.npy'.*may not overlap"),
        reading(path, "not readable"),
        open_arrays(path),
    ):
        pass
    path = tmp_path / "x.xlsx"
    pd.DataFrame({"a": [1]}).to_excel(path, index=False)
    path.write_bytes(listed_again(path.read_bytes()))
    with pytest.raises(CadError, match=r"members may not overlap"):
        read_cells(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_files_of_one_name_are_refused(tmp_path: Path):
    path = tmp_path / "twice.zip"
    path.write_bytes(archive(("a.dcm", "sub/", "sub/", "b.dcm", "a.dcm")))
    with pytest.raises(CadError, match=r"two members are named 'a\.dcm'"):
        unpack(path, tmp_path / "out")
    path.write_bytes(archive(("a.dcm", "sub/", "sub/", "sub/a.dcm")))
    with zipfile.ZipFile(path) as packed:
        check_members(packed)


@pytest.mark.parametrize(
    "names", [("P/a.dcm", "P//a.dcm"), ("./P/a.dcm", "P/./a.dcm"), ("P/a.dcm", "P\\a.dcm")]
)
def test_two_spellings_of_one_place_are_refused(tmp_path: Path, names: tuple[str, str]):
    path = tmp_path / "twice.zip"
    path.write_bytes(archive(names))
    with pytest.raises(CadError, match=r"two members would be unpacked as 'P/a\.dcm'"):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_backslashes_part_folders(tmp_path: Path):
    """Some programs of Windows write them; the files must lie in their folders here, too."""
    path = tmp_path / "windows.zip"
    path.write_bytes(archive(("P\\", "P\\01\\a.dcm", "P\\rois.nii.gz")))
    unpack(path, tmp_path / "out")
    files = [f.relative_to(tmp_path / "out") for f in (tmp_path / "out").rglob("*") if f.is_file()]
    assert sorted(map(str, files)) == ["P/01/a.dcm", "P/rois.nii.gz"]


def test_sound_archives_are_taken(tmp_path: Path):
    """Also behind other bytes, with a comment, from a stream and with members out of order."""
    (tmp_path / "plain.zip").write_bytes(archive())
    (tmp_path / "behind.zip").write_bytes(b"#!/bin/sh\n" * 9 + archive())
    with zipfile.ZipFile(tmp_path / "comment.zip", "w") as packed:
        packed.comment = b"a comment"
        packed.writestr("a.dcm", b"a" * 40)
        packed.writestr("empty.dcm", b"")

    class Pipe(io.RawIOBase):
        """Bytes that can only be written one after another."""

        def __init__(self) -> None:
            self.content = b""

        def writable(self) -> bool:
            return True

        def write(self, block: bytes) -> int:  # type: ignore[override]
            self.content += bytes(block)
            return len(block)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.dcm", b"a" * 40)
        packed.writestr("b.dcm", b"b" * 40)
    (tmp_path / "stream.zip").write_bytes(pipe.content)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        packed.writestr("a.dcm", b"a" * 40)
        packed.writestr("b.dcm", b"b" * 40)
        packed.filelist.reverse()
    (tmp_path / "reversed.zip").write_bytes(stream.getvalue())
    with zipfile.ZipFile(tmp_path / "none.zip", "w"):
        pass
    for path in sorted(tmp_path.glob("*.zip")):
        with zipfile.ZipFile(path) as packed:
            check_members(packed)
            files = [name for name in packed.namelist() if not name.endswith("/")]
        unpack(path, tmp_path / path.stem)
        assert len(list((tmp_path / path.stem).rglob("*.dcm"))) == len(files)
