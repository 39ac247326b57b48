"""No name leaves a study's folder, whatever header it stands in and whatever goes wrong."""

from __future__ import annotations

import ast
import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_files import deflate, edit, write_series
from live_node import Node as Live
from live_node import make_settings, send
from pydicom.datadict import DicomDictionary, dictionary_VR
from pydicom.dataset import Dataset

from cad.base.errors import CadError
from cad.hospital.node import queue as states
from cad.hospital.node.names import wording
from cad.hospital.node.service import Node
from cad.hospital.node.settings import WatchSettings
from cad.hospital.node.watch import Watcher

NAMES = ("Yamada_1951", "Zw", "山田", "Quirin^Isolde", "O'Nyx", "19470503")
TEXTS = ("PN", "LO", "SH", "LT", "ST", "UT", "UC", "AE", "CS", "DA")
ALONE = (
    "Modality",
    "Manufacturer",
    "ManufacturerModelName",
    "SeriesDescription",
    "PatientID",
    "ImageType",
    "PatientPosition",
    "ScanningSequence",
    "FrameOfReferenceUID",
    "SeriesNumber",
    "ImageOrientationPatient",
    "StudyDate",
    "SOPClassUID",
    "SpecificCharacterSet",
    "PhotometricInterpretation",
)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(logging, "disable", lambda *_: None)
    made = Node(
        make_settings(tmp_path / "home", studies={"quiet_seconds": 0.01}), retry_failed=False
    )
    yield made
    made.receiver.stop()
    made.page.stop()
    made.inbox.close()
    made.queue.close()


def everywhere(dataset: Dataset, name: str) -> None:
    """Put a name into every text attribute that the dictionary knows, but those of the pixels."""
    kept = {"SOPClassUID", "SpecificCharacterSet", *ALONE[:1]}
    for tag, (vr, multiple, _, retired, keyword) in DicomDictionary.items():
        fit = (
            vr in TEXTS
            and (name.isascii() or vr not in ("AE", "CS", "DA"))
            and not retired
            and multiple[0] == "1"
            and 8 <= tag >> 16 < 0x5000
        )
        if fit and keyword and keyword not in kept and tag >> 16 not in (0x0028, 0x0020):
            short = {"CS": 16, "SH": 16, "AE": 16}.get(vr, 64)
            dataset.add_new(tag, vr, name[:short])


def outside(node: Node) -> tuple[str, str]:
    """Everything that leaves the folders of studies, but what was printed; the queue's pages apart.

    Times and hashes there are bytes, in which two letters meet by chance: those are looked for in
    what its rows say.
    """
    home = node.settings.home
    inside = {home / "incoming", home / "studies"}
    files = [p for p in home.rglob("*") if p.is_file() and not inside & set(p.parents)]
    bytes_of = {p: p.read_bytes().decode("utf-8", "replace") for p in files}
    pages_of_the_queue = [text for p, text in bytes_of.items() if ".sqlite" in p.name]
    kept = [text for p, text in bytes_of.items() if ".sqlite" not in p.name]
    with closing(sqlite3.connect(f"file:{home / 'queue.sqlite'}?mode=ro", uri=True)) as queue:
        kept += queue.iterdump()
    pages = [answer()[1] for answer in (node.page._page, node.page._metrics, node.page._health)]
    names = [str(p.relative_to(home)) for p in home.rglob("*")]
    return "\n".join([*kept, *pages, *names]), "\n".join(pages_of_the_queue)


@pytest.mark.filterwarnings("ignore")
def test_no_name_leaves_the_studys_folder(node, tmp_path, capsys):
    """Sent and exported, refused, failed and awaiting; said on page, in log, queue and trail."""
    made = []
    with pydicom.config.disable_value_validation():
        for number, name in enumerate(NAMES):
            for path in write_series(
                tmp_path / f"all{number}", np.ones((2, 16, 16), np.uint16), study=f"all {number}"
            ):
                dataset = pydicom.dcmread(path)
                dataset.SpecificCharacterSet = "ISO_IR 192"
                everywhere(dataset, name)
                dataset.save_as(path)
                made.append(path)
        for number, keyword in enumerate(ALONE):
            (path,) = write_series(
                tmp_path / f"one{number}", np.ones((1, 16, 16), np.uint16), study=f"one {number}"
            )
            value = NAMES[number % len(NAMES)]
            if dictionary_VR(keyword) not in TEXTS:
                value = "1.2." + NAMES[0] if dictionary_VR(keyword) == "UI" else NAMES[5]
            try:
                edit(path, **{keyword: value})
            except (ValueError, TypeError):
                continue
            made.append(path)
        plain = [pydicom.dcmread(path) for path in made[::2]]
        send(node.receiver.address[1], [one for one in plain if one.SOPClassUID.endswith(".4")])
    watcher = Watcher(WatchSettings(folder=tmp_path, quiet_seconds=0.01), node.inbox)
    for _ in range(2):
        watcher.look()
        time.sleep(0.05)
    assert node.queue.totals(0)["instances"] >= 20

    def here(function, *given):  # type: ignore[no-untyped-def]
        return function(*given)

    node._swept = 1.0
    for _ in range(60):
        moved = node.complete_one()
        if not node._computing(here)() and not moved:
            break
    counts = node.queue.counts()
    assert counts[states.FAILED] + counts[states.AWAITING] >= 15
    left, raw = outside(node)
    said = "".join(capsys.readouterr()) + left
    assert "failed" in said
    assert len(said) > 20_000
    for name in NAMES:
        for word in {name, *name.split("^")}:
            assert word not in said, said[max(said.index(word) - 300, 0) :][:600]
            assert len(word.encode()) < 4 or word not in raw
    assert any(NAMES[0] in p.read_text() for p in node.settings.home.glob("studies/*/reason.txt"))


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore")
def test_no_name_comes_out_of_a_process_of_the_node(tmp_path):
    """Deflated, so that a child reads them: whatever is printed there stays there."""
    node = Live(tmp_path, "127.0.0.1:1", "PACS", watch={"folder": str(tmp_path / "in")})
    for keyword in ("StudyInstanceUID", "SOPInstanceUID", "SOPClassUID", "SpecificCharacterSet"):
        (path,) = write_series(tmp_path / "in" / keyword, np.ones((1, 16, 16), np.uint16))
        with pydicom.config.disable_value_validation():
            edit(path, **{keyword: f"1.2.{NAMES[0]}"})
            deflate(path, 1)
    node.start()
    try:
        left_out = ("file left out", "file waits")
        node.wait(lambda: sum(len(node.lines(event)) for event in left_out) >= 2, 60)
        node.wait(lambda: node.counts()["receiving"] or node.counts()["failed"], 60)
    finally:
        node.stop()
    assert NAMES[0] not in node.log.read_text()  # standard output and standard error


def test_an_error_is_said_in_the_programs_own_words():
    who, code = "Yamada_1951", 0xA700
    error = CadError(f"patient {who} has {len(who)} images, status {code:#06x}", hint=f"ask {who}")
    said = wording(error)
    assert said["reason"] == "patient … has … images, status 0xa700"
    assert said["hint"] == "ask …"
    assert wording(error.naming(file="x")) == said
    assert wording(KeyError(who))["reason"] == "a fault of the program"
    assert "Yamada" not in str(wording(OSError(28, who, who)))
    assert wording(CadError(who))["reason"] == "…"


def test_every_error_of_the_program_is_found_by_its_place(repository):
    """Each call that makes an error with words of its own is found again by module and line."""
    lost, count = [], 0
    for path in sorted((repository / "cad").rglob("*.py")):
        module = ".".join(path.relative_to(repository).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                not isinstance(node, ast.Call)
                or ast.unparse(node.func) != "CadError"
                or not node.args
            ):
                continue
            error = CadError("")
            error.place = f"{module.removesuffix('.__init__')}:{node.lineno}"
            words = isinstance(node.args[0], ast.Constant | ast.JoinedStr)
            count += words
            if words and wording(error)["reason"] in ("…", ""):
                lost.append(error.place)
    assert count > 400
    assert lost == []


def test_every_event_of_the_log_is_on_the_page(repository: Path):
    page = (repository / "docs" / "node.md").read_text(encoding="utf-8")
    events = set()
    for path in (repository / "cad" / "hospital" / "node").glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            if call.func.id in ("tell", "_tell_once"):
                events |= {
                    argument.value
                    for argument in call.args
                    if isinstance(argument, ast.Constant) and argument.value
                }
    assert len(events) >= 30
    assert [event for event in sorted(events) if f"`{event}" not in page] == []
