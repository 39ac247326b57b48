"""Zip archives in: nothing leaves its folder, nothing swells beyond reason."""

from __future__ import annotations

import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

from cad.errors import CadError
from cad.reading import reading

MAX_BYTES = 32 * 2**30
MAX_MEMBERS = 200_000
# MR slices shrink two to ten times; a hundredfold archive is no image archive.
MAX_RATIO = 100
_SMALL = 2**20


def unpack(archive: Path, into: Path) -> None:
    """Unpack a zip archive into an empty folder.

    Parameters
    ----------
    archive : Path
        The archive.
    into : Path
        Folder to fill.

    Raises
    ------
    CadError
        When the archive is damaged or encrypted, a member would be written outside the folder or
        is a link, or the content is larger than 32 GiB, more than 200,000 files or a hundred
        times its packed size (a zip bomb). Nothing is written then.
    """
    try:
        with reading(archive, "not a readable zip archive"), zipfile.ZipFile(archive) as bundle:
            members = [m for m in bundle.infolist() if not m.is_dir()]
            _check(members, archive)
            for member in members:
                target = into.joinpath(*PurePosixPath(member.filename).parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                # The reader stops at the declared size, which _check has summed.
                with bundle.open(member) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy, 2**20)
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise


def _check(members: list[zipfile.ZipInfo], archive: Path) -> None:
    if len(members) > MAX_MEMBERS:
        raise CadError(f"{len(members)} files, more than {MAX_MEMBERS}", file=archive)
    size = sum(member.file_size for member in members)
    packed = sum(member.compress_size for member in members)
    if size > MAX_BYTES or size > max(MAX_RATIO * packed, _SMALL):
        raise CadError(
            f"a zip bomb? {packed} bytes would become {size} "
            f"(allowed: {MAX_RATIO} times as many, at most {MAX_BYTES})",
            file=archive,
            hint="unpack it yourself if you trust it, and import the folder",
        )
    for member in members:
        # Archives made on Windows may separate folders by backslashes, and C: names a drive.
        path = PurePosixPath(member.filename.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or ":" in member.filename:
            raise CadError(
                f"member {member.filename[:80]!r} would be written outside its folder",
                file=archive,
                hint="the archive is not to be trusted",
            )
        if stat.S_ISLNK(member.external_attr >> 16):
            raise CadError(f"member {member.filename[:80]!r} is a link", file=archive)
        if member.flag_bits & 1:
            raise CadError("the archive is encrypted", file=archive, hint="decrypt it first")
