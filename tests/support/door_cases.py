"""Files for every door of strangers' bytes: sound files, their damage, who reads them.

The fuzz matrix (``tests/fuzz/test_doors.py``, ``benchmarks/doors.py``) is made of the table of
doors (:data:`cad.base.doors.DOORS`) and these cases; a door without a case fails the build.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import shutil
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import pandas as pd
import SimpleITK as sitk
from damage import BYTES, CSV, JSON, NIFTI, NPZ, PARQUET, YAML, ZIP, Boundary, Damage
from dicom_files import write_series
from forged import forged_bundle, made_bundle
from fuzzing import odd_array
from fuzzing_images import odd_dicom
from nibabel.nifti1 import Nifti1Header
from odd_headers import meant_place, odd_place, sound_change

from cad.base.errors import CadError
from cad.base.processes import limited
from cad.base.reading import (
    open_arrays,
    parquet_names,
    parquet_notes,
    parse_parquet,
    read_array,
    read_frame,
    read_json,
    read_rows,
    reading,
)
from cad.base.settings import PipelineSettings, read_settings
from cad.base.share import shared
from cad.dicom.archive.interface import understood
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.archive.web import WebArchive
from cad.dicom.into.sources import unpack
from cad.folders.cohort.traces import members
from cad.hospital.node import instance
from cad.hospital.node.inbox import Inbox
from cad.mri.imaging.frames import dataset_of, read_dataset, read_excerpt, read_header
from cad.mri.imaging.listing import list_files
from cad.mri.imaging.nifti import (
    read_grid,
    read_image,
    read_label_map,
    read_stored,
    stored_axes,
    write_volume,
)
from cad.mri.imaging.pixels import PixelReader
from cad.mri.imaging.vendor import csa_header
from cad.mri.imaging.volume import Volume
from cad.run.execution.task import input_key
from cad.run.model.bundle import load_bundle
from cad.run.tables.dialects import read_cells

OUTSIDE = b"OUTSIDE-THE-SOURCE" * 40
"""A secret beside a source, which must come out of nothing that reads the source."""
POINTERS = (
    "{top}/outside",
    "../outside",
    "/etc/passwd",
    "/proc/self/environ",
    "LIST",
    "link.raw",
    "pipe.raw",
    "x%d.raw 1 3 1",
    "nothing.raw",
    "/dev/zero",
    ".",
    "other.raw",
    "other.raw 1 2",
)


@dataclass(frozen=True)
class Case:
    """Hold the doors that a case goes through, and what makes its files and reads them."""

    doors: tuple[str, ...]
    make: Callable[[Path], Boundary]


def _inside(read: Callable[[], object], name: str = "x") -> Callable[[], None]:
    """Call a reader as its callers do: with a parser's errors turned into the project's own."""

    def called() -> None:
        with reading(name, "not readable"):
            read()

    return called


def _json(root: Path) -> Boundary:
    path = root / "x.json"
    path.write_text('{"a": [1, 2.5, {"b": "text", "c": null}], "d": true, "e": {"f": [[]]}}')
    return Boundary([(path, JSON)], lambda: read_json(path))


def _archive(root: Path) -> Boundary:
    """An archive's answer to a query, as the client hands it on."""
    path = root / "answers.json"
    answer = {
        "00100020": {"vr": "LO", "Value": ["P-001"]},
        "00100010": {"vr": "PN", "Value": [{"Alphabetic": "A^B"}]},
        "00200011": {"vr": "IS", "Value": [3]},
        "00081140": {"vr": "SQ", "Value": [{"00081155": {"vr": "UI", "Value": ["1.2.3"]}}]},
        "00420011": {"vr": "OB", "InlineBinary": "AAEC"},
    }
    path.write_text(json.dumps([answer, answer]))
    archive: Any = SimpleNamespace(name="archive", _not_too_many=lambda answers: None)

    def read() -> None:
        with understood("archive"):
            for dataset in WebArchive._datasets(archive, json.loads(path.read_bytes())):
                str(dataset)

    return Boundary([(path, JSON)], read)


class _Answering(BaseHTTPRequestHandler):
    """Answer every request with the bytes that the server holds, as parts of DICOM."""

    def do_GET(self) -> None:
        body = self.server.body  # type: ignore[attr-defined]
        self.send_response(200)
        form = 'multipart/related; type="application/dicom"; boundary=here'
        self.send_header("Content-Type", form)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing to the terminal."""


def _sent(root: Path) -> Boundary:
    """An archive's answer to WADO-RS, which its own client takes apart."""
    path = root / "answer"
    part = b"\r\n--here\r\nContent-Type: application/dicom\r\n\r\n"
    body = b""
    for image in write_series(root / "t2", np.zeros((2, 8, 8), np.uint16)):
        body += part + image.read_bytes()
    path.write_bytes(body + b"\r\n--here--")
    series: Any = SimpleNamespace(study_uid="1.2.3", series_uid="1.2.3.4")

    def read() -> None:
        with HTTPServer(("127.0.0.1", 0), _Answering) as server:
            server.timeout = 10  # seconds; a client that never asks must not block the test
            server.body = path.read_bytes()  # type: ignore[attr-defined]
            # The server answers one request, and its port is closed when the answer is read.
            answering = Thread(target=server.handle_request)
            answering.start()
            archive = WebArchive(f"http://127.0.0.1:{server.server_port}", ArchiveLimits())
            try:
                with archive._speaking():
                    for dataset in archive._arriving(series):
                        str(dataset.get("SOPInstanceUID"))
            finally:
                answering.join()

    return Boundary([(path, BYTES)], read)


def _settings(root: Path) -> Boundary:
    path = Path(shutil.copy(shared("pipelines", "psvm.yaml"), root / "psvm.yaml"))
    return Boundary([(path, YAML)], lambda: read_settings(PipelineSettings, path))


def _table(root: Path) -> Boundary:
    path = root / "x.csv"
    path.write_text("participant_id,r1,'=x\n1,2,a\n2,3.5,\"b,c\"\n3,,'=1+1\n")

    def read() -> None:
        for reader in (read_frame, read_rows, read_cells):
            try:
                reader(path)
            except CadError as error:
                str(error).encode()

    return Boundary([(path, CSV)], read)


def _arrays(root: Path) -> Boundary:
    path = root / "x.npz"
    np.savez(path, a=np.arange(6.0), b=np.arange(4), c=np.array("text"), d=np.eye(3, dtype="f4"))

    def read() -> None:
        with open_arrays(path) as arrays:
            dict(arrays)

    return Boundary([(path, NPZ)], _inside(read))


def _odd_npy(path: Path, rng: random.Random) -> None:
    if rng.random() < 0.5:
        BYTES(path, rng)
        return
    np.save(path, odd_array(np.arange(12.0).reshape(3, 4), rng))


def _array(root: Path) -> Boundary:
    path = root / "x.npy"
    np.save(path, np.arange(12.0).reshape(3, 4))
    return Boundary([(path, _odd_npy)], _inside(lambda: read_array(path)))


def _parquet(root: Path) -> Boundary:
    path = root / "x.parquet"
    table = pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": [0.5, np.nan], "d": [True, False]})
    table.to_parquet(path, index=False)

    def read() -> None:
        content = path.read_bytes()
        parquet_names(content)
        parquet_notes(content)
        parse_parquet(content)

    return Boundary([(path, PARQUET)], _inside(read))


def _workbook(root: Path) -> Boundary:
    path = root / "x.xlsx"
    table = pd.DataFrame({"participant_id": ["a", "b"], "r1": [1, 2], "x": [0.5, 0.25]})
    table.to_excel(path, index=False)
    return Boundary([(path, ZIP)], lambda: read_cells(path))


def _image() -> sitk.Image:
    made = sitk.GetImageFromArray(np.random.default_rng(0).integers(0, 4, (3, 4, 5)).astype("u1"))
    made.SetSpacing((0.5, 0.5, 3.0))
    made.SetOrigin((-10.5, 20.25, 31.0))
    made.SetDirection((1.0, 0.0, 0.0, 0.0, 0.8, -0.6, 0.0, 0.6, 0.8))
    return made


def _nifti(root: Path) -> Boundary:
    path = root / "x.nii.gz"
    write_volume(path, Volume.from_sitk(_image()))

    def read() -> None:
        stored_axes(path)
        read_label_map(path)
        stored = read_stored(path)
        last = np.array(stored.shape[::-1]) - 1
        for form in _forms(path):
            gap = (stored.affine - form) @ np.array([[0, 0, 0, 1], [*last, 1]]).T
            if not np.abs(gap).max() <= 1.001:
                raise AssertionError(f"another place than a form states: {path.name}")

    return Boundary([(path, NIFTI)], read)


def _forms(path: Path) -> list[np.ndarray]:
    """Return the matrices to LPS mm by the forms of a NIfTI file whose codes are not 0."""
    header = Nifti1Header(gzip.decompress(path.read_bytes())[:348])
    unit = {"meter": 1000.0, "micron": 0.001}.get(header.get_xyzt_units()[0], 1.0)
    to_lps = np.diag([-unit, -unit, unit, 1.0])
    forms = []
    if header["sform_code"]:
        forms.append(to_lps @ header.get_sform())
    if header["qform_code"]:
        forms.append(to_lps @ header.get_qform())
    return forms


def _odd_header(path: Path, rng: random.Random) -> None:
    """Another place, value of an entry or file of voxels, an entry twice or gone; or bytes.

    Half of the headers stay right, so that their voxels and their place are compared.
    """
    content = path.read_bytes()
    if rng.random() < 0.5:
        path.write_bytes(sound_change(content, rng))
        return
    if rng.random() < 0.2:
        BYTES(path, rng)
        return
    if rng.random() < 0.5:
        path.write_bytes(odd_place(content, rng))
        return
    nrrd = content.startswith(b"NRRD")
    # A library may take either sign between key and value.
    other_sign = rng.random() < 0.3
    end = content.find(b"\n\n") if nrrd else content.find(b"ElementDataFile")
    lines = content[: max(end, 0)].decode("latin-1").splitlines()
    sign = ":" if nrrd != other_sign else "="
    at = rng.randrange(len(lines) or 1)
    kind = rng.randrange(6)
    pointer = rng.choice(POINTERS).format(top=path.parent.parent)
    value = rng.choice(
        (
            "0",
            "-1",
            str(2**62),
            "",
            "3 3 3",
            "5 4 9999999",
            "MET_STRING",
            "nan",
            "True",
            "gzip",
            "\x00",
            "1" * 5000,
        )
    )
    if lines and kind in (0, 1):
        lines[at] = f"{lines[at].partition(sign)[0]}{sign} {value}"
    elif lines and kind == 2:
        lines.insert(at, lines[rng.randrange(len(lines))])
    elif lines and kind == 3:
        del lines[at]
    elif kind == 4:
        extra = ("HeaderSize", "line skip", "byte skip", "encoding", "CompressedData", "type")
        lines.append(f"{rng.choice(extra)}{sign} {value}")
    head = "\n".join(lines).encode("latin-1", "replace")
    tail = content[max(end, 0) :]
    if kind == 5:
        head = re.sub(rb"(?m)^data file:.*\n?", b"", head)
        tail = (
            f"\ndata file: {pointer}\n\n".encode()
            if nrrd
            else (f"ElementDataFile = {pointer}\n".encode())
        )
        if other_sign and not nrrd:
            tail = f"ElementDataFile: {pointer} = x\n".encode() + content[max(end, 0) :]
    elif not nrrd:
        head += b"\n"
    path.write_bytes(head + tail)


def _stored(path: Path, count: int) -> list[list[int]]:
    """Return the voxels that an image of bytes may have, in the order of their values."""
    content = path.read_bytes()
    voxels = [content[-count:], *(raw.read_bytes() for raw in path.parent.glob("*raw*"))]
    for start in range(len(content)):
        for bits in (zlib.MAX_WBITS, 16 + zlib.MAX_WBITS):
            with suppress(zlib.error):
                voxels.append(zlib.decompress(content[start:], bits))
    for packed in list(voxels):
        for bits in (zlib.MAX_WBITS, 16 + zlib.MAX_WBITS):
            with suppress(zlib.error):
                voxels.append(zlib.decompress(packed, bits))
    return [sorted(block) for block in voxels if len(block) == count]


def _headers(root: Path) -> Boundary:
    source = root / "source"
    source.mkdir()
    (root / "outside").write_bytes(OUTSIDE)
    (source / "link.raw").symlink_to(root / "outside")
    (source / "other.raw").write_bytes(bytes(60))
    files: list[tuple[Path, Damage]] = []
    for suffix in (".mha", ".mhd", ".nrrd", ".nhdr"):
        for packed in (False, True):
            path = source / f"x{int(packed)}{suffix}"
            sitk.WriteImage(_image(), str(path), useCompression=packed)
            files.append((path, _odd_header))
    paths = [path for path, _ in files]
    sound = {path: path.read_bytes() for path in paths}

    def read() -> None:
        changed = [path for path in paths if path.read_bytes() != sound[path]]
        for path in changed or paths:  # without damage, all are read
            array = read_image(path).array
            bytes_read = array.astype("u1").tobytes()
            if OUTSIDE[:18] in bytes_read or b"root:" in bytes_read:
                raise AssertionError(f"bytes from outside the source: {path.name}")
            if sorted(bytes_read) not in _stored(path, len(bytes_read)):
                raise AssertionError(f"voxels that no file of the source holds: {path.name}")
            place = Volume.from_sitk(read_grid(path)).affine
            if not np.allclose(place, meant_place(path.read_bytes()), rtol=1e-6, atol=1e-6):
                raise AssertionError(f"another place than the header means: {path.name}")

    return Boundary(files, read)


def _dicom(root: Path) -> Boundary:
    series = root / "series"
    write_series(series, np.arange(2 * 8 * 8, dtype=np.int16).reshape(2, 8, 8))
    path, whole = sorted(series.glob("*.dcm"))

    def read() -> None:
        list_files([whole, path])  # the second header is read by what differs from the first
        read_header(path)
        dataset = read_dataset(path)
        part = read_excerpt(path, [0x00100020, 0x0020000D])
        if part is not None:
            dataset_of(part)
        rows, columns = (int(dataset.get(name) or 0) for name in ("Rows", "Columns"))
        frame: Any = SimpleNamespace(
            path=path, lying=None, tiles=0, index=0, rows=rows, columns=columns
        )
        PixelReader().plane(frame)

    return Boundary([(path, odd_dicom)], _inside(read))


def _node(root: Path) -> Boundary:
    series = root / "series"
    write_series(series, np.arange(2 * 8 * 8, dtype=np.int16).reshape(2, 8, 8))
    path, other = sorted(series.glob("*.dcm"))[:2]
    folder = root / "spool"
    spool = SimpleNamespace(
        spool=folder,
        check_room=lambda: None,
        _make_spool=lambda: folder.mkdir(exist_ok=True),
    )

    def read() -> None:
        with Inbox.copied(spool, path) as copy:
            instance.digest_of(copy)
            instance.head_of(copy)
            instance.deflated_head(copy)
            instance.same_content(copy, other)

    return Boundary([(path, odd_dicom)], _inside(read))


def _zip(root: Path) -> Boundary:
    path, into = root / "studies.zip", root / "into"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            archive.writestr(f"study/{number}.dcm", bytes(range(256)) * 4)
    known = {entry.name for entry in root.iterdir()} | {"into"}

    def read() -> None:
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir()
        try:
            unpack(path, into)
        finally:
            if strange := {entry.name for entry in root.iterdir()} - known:
                raise AssertionError(f"written outside: {strange}")

    return Boundary([(path, ZIP)], read)


def _packed(root: Path) -> Boundary:
    names = {"x.zip": b"", "x.tar": b"", "x.gz": gzip.compress(b"text " * 50)}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        info = tarfile.TarInfo("a/b.txt")
        info.size = 10
        tar.addfile(info, io.BytesIO(b"0123456789"))
    names["x.tar"] = stream.getvalue()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a.gz", names["x.gz"])
        archive.writestr("b.tar", names["x.tar"])
    names["x.zip"] = stream.getvalue()
    for name, content in names.items():
        (root / name).write_bytes(content)

    def read() -> None:
        for name in names:
            with reading(name, "not readable"):
                list(members(name, (root / name).read_bytes()))

    return Boundary([(root / name, ZIP) for name in names], read)


def _study(root: Path) -> Boundary:
    folder = root / "sub-1" / "anat"
    folder.mkdir(parents=True)
    path = folder / "sub-1_T2w.nii.gz"
    write_volume(path, Volume.from_sitk(_image()))
    rois = pd.DataFrame({"roi_id": ["1"], "label": [1], "zone": ["PZ"]})
    ref: Any = SimpleNamespace(folder=root / "sub-1", rois=rois, study_id="sub-1")
    task: Any = SimpleNamespace(ref=ref, settings=PipelineSettings(name="x"))
    return Boundary([(path, BYTES)], _inside(lambda: input_key(task)))


def _bundle(root: Path) -> Boundary:
    """Forged arrays and structures with right hashes."""
    models = [made_bundle(root / name, name) for name in ("SoftExtraTrees", "OPAUC")]
    files: list[tuple[Path, Damage]] = []
    for model in models:
        files += [(model / "weights.npz", forged_bundle), (model / "metadata.json", forged_bundle)]
    hashes = {model: (model / "hashes.json").read_bytes() for model in models}

    def read() -> None:
        changed = [m for m in models if (m / "hashes.json").read_bytes() != hashes[m]]
        for model in changed or models:  # without damage, all are read
            q = load_bundle(model).probability(pd.DataFrame(np.eye(3) * 0.3, columns=list("abc")))
            if not ((q >= 0) & (q <= 1)).all():
                raise AssertionError(f"no probability: {q}")

    def settle() -> None:
        for model, content in hashes.items():
            (model / "hashes.json").write_bytes(content)

    return Boundary(files, read, settle=settle)


def _csa(root: Path) -> Boundary:
    """Siemens' private header, in both versions, as nibabel documents it."""
    elements = (("PhaseEncodingDirectionPositive", "1"), ("NumberOfImagesInMosaic", "20"))
    paths = []
    for start in (b"SV10\4\3\2\1", b""):
        content = start + struct.pack("<2i", len(elements), 77)
        for name, text in elements:
            item = text.encode().ljust(4, b"\0")
            sizes = (0, len(item), 77, len(item)) if start else (len(item), 0, 77, 0)
            content += struct.pack("<64s i 4s 3i", name.encode(), 1, b"IS", 6, 1, 77)
            content += struct.pack("<4i", *sizes) + item
        path = root / f"csa{len(paths)}"
        path.write_bytes(content)
        paths.append(path)

    def read() -> None:
        for path in paths:
            for name, texts in csa_header(path.read_bytes()).items():
                (name + "".join(texts)).encode()

    assert all(csa_header(path.read_bytes())["NumberOfImagesInMosaic"] == ["20"] for path in paths)
    return Boundary([(path, BYTES) for path in paths], _inside(read))


READING, IMAGES = "cad.base.reading", "cad.mri.imaging"
CASES: dict[str, Case] = {
    "JSON": Case((f"{READING}.parse_json", f"{READING}.read_bytes"), _json),
    "archive": Case(("cad.dicom.archive.web.WebArchive._datasets",), _archive),
    "sent": Case(("cad.dicom.archive.web.WebArchive._arriving",), _sent),
    "settings": Case(("cad.base.settings.read_settings",), _settings),
    "table": Case((f"{READING}.read_frame",), _table),
    "npz": Case((f"{READING}.open_arrays",), _arrays),
    "npy": Case((f"{READING}.read_array",), _array),
    "parquet": Case(
        (f"{READING}.parse_parquet", f"{READING}.parquet_names", f"{READING}.parquet_notes"),
        _parquet,
    ),
    "workbook": Case(
        (
            "cad.run.tables.dialects.sheet_records",
            "cad.run.tables.dialects._check_formulas",
        ),
        _workbook,
    ),
    "NIfTI": Case(
        (
            f"{IMAGES}.nifti._load_voxels",
            f"{IMAGES}.nifti._open_unpacked",
            f"{IMAGES}.nifti.stored_axes",
        ),
        _nifti,
    ),
    "MetaImage and NRRD": Case(
        (
            f"{IMAGES}.nifti._stored_image",
            f"{IMAGES}.headers.check_header",
            f"{IMAGES}.headers._unpacked_voxels",
            f"{IMAGES}.headers.read_own_voxels",
        ),
        _headers,
    ),
    "DICOM": Case(
        (
            f"{IMAGES}.frames.read_header",
            f"{IMAGES}.frames.read_dataset",
            f"{IMAGES}.frames.dataset_of",
            f"{IMAGES}.frames._check_deflated",
            f"{IMAGES}.frames._check_places_in_file",
            f"{IMAGES}.frame_headers._value",
            f"{IMAGES}.pixels.PixelReader._stored",
        ),
        _dicom,
    ),
    "node": Case(
        (
            "cad.hospital.node.inbox.Inbox.copied",
            "cad.hospital.node.instance._opened",
            "cad.hospital.node.instance._wanted_elements",
            "cad.hospital.node.instance.deflated_head",
            "cad.hospital.node.instance.digest_of",
            "cad.hospital.node.instance._plain_dataset",
        ),
        _node,
    ),
    "CSA": Case((), _csa),
    "zip": Case(("cad.dicom.into.sources.unpack",), _zip),
    "packed": Case(("cad.folders.cohort.traces.members",), _packed),
    "study": Case(("cad.run.execution.task.input_key",), _study),
    "bundle": Case((), _bundle),
}


def function_of(name: str) -> Callable[..., object]:
    """Return the function of a door, by the full name of a function or method."""
    module = name
    while module not in sys.modules:
        module = module.rpartition(".")[0]
    function: Any = sys.modules[module]
    for word in name.removeprefix(f"{module}.").split("."):
        function = getattr(function, word)
    return cast("Callable[..., object]", function)


@contextmanager
def in_this_process() -> Any:
    """Let what is read in a child be read here, so that a fault is this process's."""
    with mock.patch.dict(limited._state, limited=True):
        yield
