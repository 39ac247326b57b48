"""What names a patient, and which files of a folder bear one of these names."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from cad.errors import CadError
from cad.reading import (
    MAX_ARRAYS,
    check_inflation,
    read_array,
    read_bytes,
    read_json,
    read_parquet,
    reading,
)
from cad.transactions import is_ours

_PIXELS = (".nii.gz", ".png")  # judged by name: what a picture shows is no text
_NO_IDENTITY = "SOPClassUID"
_SHORTEST = 5  # a shorter PatientID would be found in any number
_UID = re.compile(rb"[0-9]+(?:\.[0-9]+){3,}")


@dataclass(frozen=True)
class Names:
    """Hold what names one patient: the BIDS label, the source's PatientID and the UIDs.

    Parameters
    ----------
    participant : str
        ``sub-XXX``.
    source_ids : frozenset of str
        PatientIDs of the source, where the import kept them.
    uids : frozenset of str
        UIDs of the patient's studies, series, frames of reference and instances.
    """

    participant: str
    source_ids: frozenset[str] = frozenset()
    uids: frozenset[str] = frozenset()

    @classmethod
    def of(cls, root: Path, participant: str) -> Names:
        """Collect the names of a patient from the sidecars (JSON files beside the images).

        Parameters
        ----------
        root : Path
            The cohort folder.
        participant : str
            ``sub-XXX``.
        """
        ids, uids = set[str](), set[str]()
        for path in sorted((root / participant).rglob("*.json")):
            try:
                entries = read_json(path)
            except CadError:  # it goes with the patient, whatever it says
                continue
            for key, value in entries.items():
                texts = {str(one) for one in (value if isinstance(value, list) else [value])}
                if key.endswith("PatientID"):
                    ids |= {text.strip() for text in texts} - {"", "None"}
                # The class of an object is the same for everybody's images.
                elif key.rstrip("s").endswith("UID") and key != _NO_IDENTITY:
                    uids |= texts
        return cls(participant, frozenset(ids), frozenset(uids))

    def bears(self, name: str) -> bool:
        """Tell whether the name of a file or folder begins with the patient's label."""
        label = self.participant
        return name == label or name.startswith((f"{label}_", f"{label}."))

    def within(self, content: bytes) -> bool:
        """Tell whether a file's bytes contain the patient's label, a PatientID or a UID.

        Each must stand alone, not inside a longer word.
        """
        ids = {word for word in self.source_ids if len(word) >= _SHORTEST}
        words = "|".join(re.escape(word) for word in sorted({self.participant, *ids}))
        if re.search(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])".encode(), content):
            return True
        return any(found.decode() in self.uids for found in _UID.findall(content))


def named_places(folder: Path, names: Names) -> list[str]:
    """Return the files and folders whose name says that they are the patient's.

    Parameters
    ----------
    folder : Path
        Looked through with everything below it; links are not followed.
    names : Names
        What the patient is called.

    Returns
    -------
    list of str
        Paths relative to the folder, sorted; what lies within one of them is not listed.
    """
    found: list[str] = []
    open_ends = [folder]
    while open_ends:
        for path in sorted(open_ends.pop().iterdir()):
            if names.bears(path.name):
                found.append(path.relative_to(folder).as_posix())
            elif path.is_dir() and not path.is_symlink() and not is_ours(path.name):
                open_ends.append(path)
    return sorted(found)


def traces(folder: Path, names: Names, *, below: bool = True) -> list[str]:
    """Return the files of a folder that name the patient, in their names or in their bytes.

    Parameters
    ----------
    folder : Path
        The folder to search, with everything below it.
    names : Names
        The patient's names.
    below : bool
        Whether to look into other patients' folders (``sub-*``), too.

    Returns
    -------
    list of str
        Paths relative to the folder, sorted.
    """
    found = []
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        others = place.parts[0].startswith("sub-") and not names.bears(place.parts[0])
        if not path.is_file() or is_ours(place.parts[0]) or (others and not below):
            continue
        if any(names.bears(part) for part in place.parts) or names.within(_content(path)):
            found.append(place.as_posix())
    return found


def _unpacked(content: bytes) -> bytes:
    """Return the bytes within a zip or gzip file, words of arrays as text; anything else as it is.

    Raises
    ------
    CadError
        When it would fill the memory.
    """
    # By the first bytes, not by the name: a nested archive is looked into as well.
    if content[:2] == b"\x1f\x8b":
        inner = zlib.decompressobj(wbits=31).decompress(content, MAX_ARRAYS + 1)
        check_inflation(len(content), len(inner), MAX_ARRAYS)
        return _unpacked(inner)
    if content[:4] == b"PK\3\4":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_inflation(len(content), sum(m.file_size for m in archive.infolist()), MAX_ARRAYS)
            within = [(m.filename.encode(), archive.read(m)) for m in archive.infolist()]
        return b"\n".join(name + b"\n" + _unpacked(inner) for name, inner in within)
    if content[:6] == b"\x93NUMPY" and b"'<U" in content[:200]:  # four bytes a letter
        words = read_array(content).ravel()
        return "\n".join(map(str, words)).encode(errors="replace")
    return content


def _content(path: Path) -> bytes:
    """Return what can be looked through of a file, unpacked as far as it may name somebody."""
    if path.name.endswith(_PIXELS):
        return b""
    content = read_bytes(path, MAX_ARRAYS)
    if path.suffix in (".npz", ".zip", ".gz", ".npy"):
        with reading(path, "not readable"):
            return _unpacked(content)
    if path.suffix != ".parquet":
        return content
    with reading(path, "not a readable table"):
        table = read_parquet(path)
        stream = io.StringIO()
        table.select_dtypes(exclude="number").to_csv(stream, index=False)
        return stream.getvalue().encode()
