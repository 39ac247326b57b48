"""Collect the names of a patient, and find the files of a folder that contain one of them."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pydicom.uid import DeflatedExplicitVRLittleEndian

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.reading import (
    MAX_ARRAYS,
    check_inflation,
    check_members,
    parquet_notes,
    read_array,
    read_bytes,
    read_json,
    read_parquet,
    reading,
)
from cad.base.transactions import is_ours
from cad.base.transactions.lock import LOCK
from cad.mri.imaging.elements import TooManyElements, data_set, elements

# Endings of files of which only the name is searched, because text in a picture cannot be found.
_PIXELS = (".nii.gz", ".png")
_LABEL = re.compile("sub-[A-Za-z0-9]+")
_TAR = 257  # position of the word "ustar" in a tar file, in bytes
# First bytes of packed files that this module cannot unpack: bzip2, xz, 7z and zstd.
_UNKNOWN = b"BZh", b"\xfd7zXZ\0", b"7z\xbc\xaf", b"\x28\xb5\x2f\xfd"
_NO_IDENTITY = "SOPClassUID"  # names the kind of a DICOM object, and no patient
# Each file in a packed file counts for at least this many bytes of the limit on unpacked bytes.
# Otherwise the limit would allow millions of empty files, and searching them would take minutes.
_LEAST = 512
# Least length of a PatientID that is searched for in files. A shorter PatientID would be found by
# chance inside many numbers.
_SHORTEST = 5
_DICOM = 128  # position of the letters "DICM" in a DICOM file, in bytes
# Byte order marks at the start of a text, each with its encoding. The mark of UTF-32 begins like
# that of UTF-16, and is therefore tried first.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Bytes at the start of a file whose encoding is guessed, and the share of zeros among every fourth
# byte that counts as mostly zero.
_LOOKED_AT = 4096
_MOSTLY = 0.7
# How to tell the encoding of a text without a byte order mark: which of four successive bytes are
# mostly zero, and the encoding that has this pattern.
_BY_ZEROS: dict[tuple[bool, ...], str] = {
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
    (False, True, True, True): "utf-32-le",
    (True, True, True, False): "utf-32-be",
}
_ESCAPED = re.compile(rb"\\u([0-9a-fA-F]{4})")
_UID = re.compile(rb"[0-9]+(?:\.[0-9]+){3,}")


@dataclass(frozen=True)
class Names:
    """Hold all texts that identify one patient: the label ``sub-XXX``, PatientIDs and DICOM UIDs.

    Parameters
    ----------
    participant : str
        ``sub-XXX``.
    source_ids : frozenset of str
        PatientIDs of the source, where the import kept them.
    uids : frozenset of str
        UIDs of the patient's studies, series, frames of reference and instances.
    given : str
        The patient's id as the user gave it.
    """

    participant: str
    source_ids: frozenset[str] = frozenset()
    uids: frozenset[str] = frozenset()
    given: str = ""

    @classmethod
    def of(cls, root: Path, participant: str, given: str = "") -> Names:
        """Collect the names of a patient from the sidecars (JSON files beside the images).

        Parameters
        ----------
        root : Path
            The cohort folder.
        participant : str
            ``sub-XXX``.
        given : str
            The patient's id as the user gave it; it is searched for, too.

        Returns
        -------
        Names
            The label, the id as given, and all PatientIDs and UIDs in the sidecars. A sidecar that
            cannot be read is skipped. The UID of the kind of object (SOP class) is left out,
            because it identifies nobody.
        """
        patient_ids = set[str]()
        uids = set[str]()
        for path in sorted((root / participant).rglob("*.json")):
            try:
                entries = read_json(path)
            except CadError:  # a damaged file is also deleted with the patient, whatever it holds
                continue
            for key, value in entries.items():
                values = value if isinstance(value, list) else [value]
                texts = {str(item) for item in values}
                if key.endswith("PatientID"):
                    patient_ids |= {text.strip() for text in texts} - {"", "None"}
                # The SOP class UID (the kind of DICOM object) identifies no patient, because all
                # images of one kind share it.
                elif key.rstrip("s").endswith("UID") and key != _NO_IDENTITY:
                    uids |= texts
        return cls(
            participant=participant,
            source_ids=frozenset(patient_ids),
            uids=frozenset(uids),
            given=given,
        )

    def bears(self, name: str) -> bool:
        """Tell whether the name of a file or folder is surely the patient's.

        A file or folder of this name may be deleted when the patient is removed.
        """
        label = self.participant
        return name == label or name.startswith((f"{label}_", f"{label}."))

    def hints(self, name: str) -> bool:
        """Tell whether the name of a file may mean the patient: ``sub-01seg`` may mean ``sub-01``.

        By :meth:`bears`, which tells whether a name is surely the patient's, ``sub-01seg`` is not.
        """
        label = rf"(?<![A-Za-z0-9]){re.escape(self.participant)}(?![0-9])"
        return bool(re.search(label, name)) or self.within(name.encode(errors="replace"))

    def within(self, content: bytes) -> bool:
        """Tell whether a file's bytes contain the patient's label, a PatientID or a UID.

        A label or PatientID must stand alone, and not inside a longer word.
        """
        long_ids = {word for word in (*self.source_ids, self.given) if len(word) >= _SHORTEST}
        alternatives = "|".join(re.escape(word) for word in sorted({self.participant, *long_ids}))
        named_alone = re.search(
            rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])".encode(), content
        )
        if named_alone:
            return True
        uids_in_content = map(bytes.decode, _UID.findall(content))
        return not self.uids.isdisjoint(uids_in_content)


def named_places(folder: Path, names: Names) -> list[str]:
    """Return the files and folders whose name is surely the patient's.

    Parameters
    ----------
    folder : Path
        The folder to search, with everything below it; links are not followed.
    names : Names
        The patient's names.

    Returns
    -------
    list of str
        Paths relative to the folder, sorted. The content of a folder that is listed is not listed
        itself.
    """
    places: list[str] = []
    unsearched = [folder]
    while unsearched:
        for path in sorted(unsearched.pop().iterdir()):
            if names.bears(path.name):
                places.append(path.relative_to(folder).as_posix())
            # Temporary folders of this program do not belong to the cohort's content.
            elif path.is_dir() and not path.is_symlink() and not is_ours(path.name):
                unsearched.append(path)
    return sorted(places)


def traces(folder: Path, names: Names, *, below: bool = True) -> list[str]:
    """Return the files of a folder that name the patient, in their names or in their bytes.

    Files that a killed process left are searched, too. A file that cannot be read is returned with
    the reason, because it may name the patient. Links to folders are not followed.

    Parameters
    ----------
    folder : Path
        The folder to search, with everything below it.
    names : Names
        The patient's names.
    below : bool
        Whether to search patients' folders (``sub-*``), too.

    Returns
    -------
    list of str
        Paths relative to the folder, sorted. The content of a folder whose name may mean the
        patient is not listed.
    """
    places = list[str]()

    def add_unreadable(path: Path, why: str | None) -> None:
        """Add a file or folder that may name the patient, with the reason why nobody can tell."""
        places.append(f"{path.relative_to(folder).as_posix()} (cannot be looked into: {why})")

    walk = os.walk(
        folder, onerror=lambda error: add_unreadable(Path(error.filename), error.strerror)
    )
    for parent, folders, files in walk:
        # os.walk() goes only into folders that stay in the list ``folders``.
        if not below and Path(parent) == folder:
            folders[:] = [name for name in folders if not _LABEL.fullmatch(name)]
        for name in (*folders, *files):
            path = Path(parent, name)
            try:
                if names.hints(name) or _holds(path, names):
                    places.append(path.relative_to(folder).as_posix())
            except CadError as error:
                add_unreadable(path, error.problem)
            except OSError as error:
                add_unreadable(path, error.strerror)
        # A folder that is listed stands for all of its content.
        folders[:] = [name for name in folders if not names.hints(name)]
    return sorted(places)


def _holds(path: Path, names: Names) -> bool:
    """Tell whether a file, or a file that is packed in it, hints at the patient or names him."""
    contents = _contents(path)
    return any(names.hints(name) or names.within(content) for name, content in contents)


Spend = Callable[..., None]
"""Function that takes the packed size of a file and the sizes of its unpacked contents, in bytes.

It adds the unpacked sizes to a total and raises an error when the total passes a limit.
"""


def _budget(whole: int) -> Spend:
    """Return a function that limits how many bytes may be unpacked from one file.

    The limit holds for all contents together, also for packed files inside packed files. ``whole``
    is the size of the file in bytes.
    """
    unpacked = 0

    def spend(packed: int, *sizes: int) -> None:
        """Count the sizes of contents that were unpacked from ``packed`` bytes."""
        nonlocal unpacked
        check_inflation(packed, sum(sizes), MAX_ARRAYS)
        unpacked += sum(max(size, _LEAST) for size in sizes)
        # If a gzip file holds a tar file, its content is counted twice: as the tar file, and as the
        # files in the tar file. So only half of the total is compared with the limit.
        check_inflation(whole, unpacked // 2, MAX_ARRAYS)

    return spend


@door("in", "tar", bound="MAX_ARRAYS unpacked", limit=MAX_ARRAYS)
def members(name: str, content: bytes, spend: Spend | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield the files in a packed file, each with its name and bytes; yield any other file itself.

    The first bytes, and not the name, tell whether a file is packed. A packed file inside a packed
    file is unpacked, too. Pictures (``.nii.gz``, ``.png``) are yielded without bytes. Call this
    function inside the ``with`` block :func:`cad.base.reading.reading`.

    Parameters
    ----------
    name : str
        Name of the file.
    content : bytes
        Bytes of the file.
    spend : callable, optional
        The limit on unpacked bytes that the outermost packed file has; by default a new limit.

    Yields
    ------
    str
        Name of a file inside the packed file, or ``name`` without ``.gz``.
    bytes
        Content of this file; empty for a picture.

    Raises
    ------
    CadError
        When the content would fill the memory, or when the packed contents are too large in total.
    """
    spend = spend or _budget(len(content))
    if name.endswith(_PIXELS):
        yield name, b""
    elif content[:2] == b"\x1f\x8b":  # gzip
        # A gzip file may consist of several parts, each compressed on its own. GzipFile reads all.
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            # One byte more than is allowed tells that there is more.
            inner = stream.read(MAX_ARRAYS + 1)
        spend(len(content), len(inner))
        yield from members(name.removesuffix(".gz"), inner, spend)
    elif content[:4] == b"PK\3\4":  # zip
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_members(archive)
            spend(len(content), *(member.file_size for member in archive.infolist()))
            for entry in archive.infolist():
                yield from members(entry.filename, archive.read(entry), spend)
    elif content[_TAR : _TAR + 5] == b"ustar":  # tar
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            spend(len(content), *(member.size for member in tar.getmembers()))
            for member in tar.getmembers():
                # Folders and links have a name and no content.
                packed = tar.extractfile(member) if member.isfile() else None
                yield from members(member.name, packed.read() if packed else b"", spend)
    elif content.startswith(_UNKNOWN):
        raise CadError("packed as bzip2, xz, 7z or zstd, which are not unpacked")
    else:
        yield name, content


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each file that is packed in a file, or of the file itself.

    Tables and arrays are yielded as text, so that their words can be searched.
    """
    if path.name.endswith(_PIXELS) or path.name == LOCK or not path.is_file():
        return
    content = read_bytes(path, MAX_ARRAYS)
    spend = _budget(len(content))
    with reading(path, "not readable"):
        for name, inner in members(path.name, content, spend):
            yield name, _searchable_text(inner, spend)


def _searchable_text(content: bytes, spend: Spend) -> bytes:
    """Return the content of a file in a form in which words stand as plain text.

    ``spend`` limits the size of this text. Content of another kind is returned as it is.
    """
    if content[:4] == b"PAR1":
        table = read_parquet(content)
        numbers = table.select_dtypes("floating")
        # Columns with fractions (not whole numbers) contain no ids of patients. They are left out,
        # because their text would fill the memory.
        without_numbers = table.drop(columns=numbers.columns[(numbers % 1 > 0).any()])
        text: str = without_numbers.to_csv(index=not isinstance(table.index, pd.RangeIndex))
        # The size of the table was checked when it was read. The size of its text is checked now.
        spend(MAX_ARRAYS, table.size * 8, len(text))
        # A parquet file ends with its footer, the length of the footer in 4 bytes, and "PAR1". The
        # footer contains notes on the columns in an encoded form. The function `parquet_notes`
        # returns the notes decoded, so that they can be searched.
        footer_length = int.from_bytes(content[-8:-4], "little")
        footer = content[-8 - footer_length :]
        return text.encode() + footer + parquet_notes(content)
    if content[_DICOM : _DICOM + 4] == b"DICM":
        _check_whole(content)
        return content
    encoding = _wide_encoding(content)
    if encoding:
        # A name would be found only in the text with one byte for each usual letter. The bytes as
        # they are stay, because the encoding is a guess.
        return content + content.decode(encoding, errors="replace").encode()
    # A NumPy array of texts has four bytes per letter. Its texts are joined with one byte for each
    # usual letter, so that they can be searched.
    if content[:6] == b"\x93NUMPY" and re.search(rb"'[<>]U", content[:2000]):
        return "\n".join(map(str, read_array(content).ravel())).encode(errors="replace")
    if b"\\u" in content:  # JSON may spell letters as escapes
        return content + _ESCAPED.sub(_spelled, content)
    return content


def _check_whole(content: bytes) -> None:
    """Raise an error for a DICOM file that cannot be searched.

    A deflated (compressed) file hides its words, and a file that is cut off is incomplete.
    """

    def read(offset: int, count: int) -> bytes:
        """Return bytes of the content, as if they were read from a file."""
        return content[offset : offset + count]

    offset, syntax = data_set(read, len(content))
    if syntax == DeflatedExplicitVRLittleEndian:
        raise CadError("a deflated DICOM file, which is not unpacked")
    # Reading all elements raises an error where the file is cut off. A file with too many elements
    # to read can be searched all the same.
    with suppress(TooManyElements):
        for _ in elements(read, len(content), offset, syntax):
            pass


def _wide_encoding(content: bytes) -> str:
    """Return the encoding of text with two or four bytes per letter.

    The result is empty for any other content.
    """
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return encoding
    start = content[:_LOOKED_AT]
    start = start[: len(start) // 4 * 4]  # groups of four bytes only
    if not start:
        return ""
    # In the encodings of `_BY_ZEROS`, each Latin letter has one byte that is not zero, always in
    # the same place of the letter's two or four bytes.
    is_mostly_zero = []
    for place in range(4):
        every_fourth_byte = start[place::4]
        is_mostly_zero.append(every_fourth_byte.count(0) * 4 / len(start) > _MOSTLY)
    return _BY_ZEROS.get(tuple(is_mostly_zero), "")


def _spelled(match: re.Match[bytes]) -> bytes:
    """Return the letter that an escape such as ``\\u00e4`` in JSON stands for."""
    return chr(int(match[1], 16)).encode("utf-8", errors="replace")
