"""A name is found however it is spelled, or its file is named as not looked into: never free."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from dicom_files import deflate, write_series

from cad.folders.cohort.traces import Names, traces

NAMES = Names("sub-0002", frozenset({"MRN7001"}), frozenset({"1.2.3.4.77"}))
ENCODINGS = (
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "utf-32-le",
    "utf-32-be",
)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", ["sub-0002", "MRN7001", "1.2.3.4.77"])
def test_a_name_in_text_of_any_width_is_found(tmp_path: Path, encoding: str, name: str):
    other = name.replace("2", "9").replace("7", "8")
    for file, text in (("holds.txt", name), ("free.txt", other)):
        (tmp_path / file).write_bytes(f"of the patient {text}, seen\n".encode(encoding))
    assert traces(tmp_path, NAMES) == ["holds.txt"]


@pytest.mark.parametrize("name", ["sub-0002", "MRN7001", "1.2.3.4.77"])
def test_a_name_that_json_spells_by_numbers_is_found(tmp_path: Path, name: str):
    escaped = "".join(f"\\u{ord(letter):04X}" for letter in name)
    half = f"{name[:3]}\\u{ord(name[3]):04x}{name[4:]}"
    for file, text in (("all.json", escaped), ("half.json", half), ("free.json", "\\u00e4 x")):
        (tmp_path / file).write_text(f'{{"of": ["{text}"]}}')
        json.loads((tmp_path / file).read_text())
    assert traces(tmp_path, NAMES) == ["all.json", "half.json"]


def test_a_dicom_file_that_is_deflated_or_cut_is_not_called_free(tmp_path: Path):
    write_series(tmp_path, np.zeros((3, 4, 4), np.int16), patient="SOMEBODY")
    whole, cut, deflated = sorted(tmp_path.glob("*.dcm"))
    content = cut.read_bytes()
    cut.write_bytes(content[: len(content) - 20])
    deflate(deflated, 0)
    told = traces(tmp_path, NAMES)
    assert [text.partition(" (")[0] for text in told] == [cut.name, deflated.name]
    assert "deflated" in told[1]
    assert all("cannot be looked into" in text for text in told)
    assert whole.name not in str(told)
