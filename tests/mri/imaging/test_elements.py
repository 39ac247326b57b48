"""Reading some elements of a file says what pydicom says of the whole, or leaves it to pydicom."""

import io
import random
import struct
import warnings
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import pydicom
import pytest

from cad.mri.imaging import elements
from cad.mri.imaging.frame_headers import TAGS

FILES = sorted(
    path
    for path in (Path(pydicom.__file__).parent / "data" / "test_files").rglob("*")
    if path.is_file() and path.stat().st_size < 2**18
)


def excerpt(content: bytes, tags: Collection[int] = TAGS) -> bytes | None:
    part = elements.excerpt(content, tags)
    return part and b"".join([part.start, *part.elements.values()])


def said(content: bytes) -> dict[int, str]:
    """Return pydicom's values of the elements; the character set is needed to read the others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = pydicom.dcmread(io.BytesIO(content), specific_tags=list(TAGS))
        return {int(tag): repr(dataset.get_item(tag).value) for tag in dataset.keys() & TAGS}


def test_the_files_of_another_program_are_read_alike():
    every = {path.name: (path.read_bytes(), excerpt(path.read_bytes(), TAGS)) for path in FILES}
    cut = {name: both for name, both in every.items() if both[1] is not None}
    assert len(cut) > 80
    for name, (whole, part) in cut.items():
        assert said(part) == said(whole), name
        assert len(part) <= len(whole), name


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_read_alike_or_left_to_pydicom(seed):
    chance, cut = random.Random(seed), 0
    for path in chance.choices(FILES, k=150):
        content = bytearray(path.read_bytes())
        for _ in range(chance.choice((1, 1, 3))):
            at = chance.randrange(min(len(content), 4000))
            content[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        part = excerpt(bytes(content), TAGS)
        if part is not None:
            cut += 1
            with suppress(EOFError, OSError, NotImplementedError, struct.error, TypeError):
                # Damage in what is not asked for may keep pydicom from the whole.
                assert said(part) == said(bytes(content)), path.name
    assert cut > 10


def test_an_end_of_what_is_not_open_is_left_to_pydicom():
    stream = io.BytesIO()
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    dataset.Rows, dataset.PatientName = 7, "A"
    dataset.SOPClassUID, dataset.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.4", "1.2.3"
    pydicom.dcmwrite(stream, dataset, enforce_file_format=True)
    whole = stream.getvalue()
    assert said(excerpt(whole, {0x00280010})) == {0x00280010: repr(b"\7\0")}
    assert excerpt(whole + b"\xfe\xff\xdd\xe0\0\0\0\0", TAGS) is None
    assert excerpt(whole[:-1], TAGS) is None
    assert excerpt(whole + b"\0", TAGS) is None
    assert excerpt(whole, {0x00080060}) is None
