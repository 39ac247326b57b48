"""No function reads strangers' bytes or puts a file into place that is not a declared door."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from door_cases import function_of

import cad
from cad.base.doors import DOORS, FORMS, door
from cad.base.errors import CadError
from cad.base.processes.limited import door_in_child

# Functions that open, parse or put into place, however they are spelled.
NAMES = {
    "open",
    "ZipFile",
    "load_workbook",
    "dcmread",
    "ImageFileReader",
    "read_schema",
    "dcmwrite",
    "mkstemp",
}
METHODS = {
    "read_dataset",
    "from_json",
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "from_filename",
    "GzipFile",
    "dcmread",
    "fromfile",
    "memmap",
    "ReadImage",
    "WriteImage",
    "ImageFileReader",
    "ImageSeriesReader",
    "ZipFile",
    "ParquetFile",
    "read_schema",
    "read_table",
    "input_stream",
    "safe_load",
    "load_workbook",
    "fdopen",
    "read_csv",
    "read_excel",
    "read_feather",
    "read_pickle",
    "imread",
    "save_as",
    "to_csv_file",
    "unpack_archive",
    "file_digest",
    "to_parquet",
    "savefig",
    "read_fwf",
    "read_xml",
    "read_html",
    "read_hdf",
    "read_orc",
    "read_stata",
    "ExcelFile",
    "HDFStore",
    "to_excel",
    "to_pickle",
    "to_hdf",
    "to_feather",
    "to_orc",
    "read_partial",
    "read_file",
    "from_bytes_mime",
    "to_filename",
    "open_memmap",
    "savez_compressed",
    "tofile",
    "symlink_to",
    "hardlink_to",
    "fromstring",
    "load_all",
    "safe_load_all",
    "full_load",
    "unsafe_load",
    "raw_decode",
    "FileIO",
    "TarFile",
    "LZMAFile",
    "BZ2File",
    "ExcelWriter",
    "write_table",
    "write_to_dataset",
    "write_feather",
    "read_metadata",
    "read_sas",
    "read_spss",
    "read_sql",
    "memory_map",
    "fromregex",
    "DataSource",
    "from_stream",
    "to_stream",
    "from_fileobj",
    "from_file_map",
    "to_file_map",
    "ReadTransform",
    "WriteTransform",
    "ImageFileWriter",
    "ImageSeriesWriter",
    "dcmwrite",
    "data_element_generator",
    "FileSet",
    "pixel_array",
    "iter_pixels",
    "Unpickler",
    "mkstemp",
    "NamedTemporaryFile",
    "open_code",
    "renames",
    "imsave",
    "loadmat",
    "savemat",
    "InferenceSession",
    # Unpackers of a stream, piece by piece.
    "decompressobj",
    "BZ2Decompressor",
    "LZMADecompressor",
    "IGzipFile",
    "CompressedInputStream",
    # Makers of objects from a text or a folder of files.
    "model_validate_json",
    "model_validate_strings",
    "validate_json",
    "parse_raw",
    "parse_file",
    "from_pretrained",
    "from_url",
    # Readers and writers below pandas.
    "open_csv",
    "read_json",
    "read_message",
    "read_pandas",
    "read_buffer",
    "BufferReader",
    "OSFile",
    "ParquetDataset",
    "ParquetWriter",
    "read_sql_table",
    "read_sql_query",
    "read_clipboard",
    "to_sql",
    "to_stata",
    # Readers of images and their headers.
    "segread",
    "srread",
    "read_file_meta_info",
    "_read_file_meta_info",
    "read_preamble",
    "imread_collection",
    "mmread",
    "ImageOpener",
    "Opener",
    "load_svmlight_file",
    "fetch_openml",
    # Calls that make, move or copy files.
    "copy_into",
    "move_into",
    "sendfile",
    "copy_file_range",
    "mkfifo",
    "mknod",
    "copystat",
    "copymode",
    "PyZipFile",
    "TemporaryFile",
    "SpooledTemporaryFile",
    "FileHandler",
    "RotatingFileHandler",
    "SafeLoader",
    # Calls that run the code of a file.
    "run_path",
    "CDLL",
    # Calls that listen for connections, or fetch what another computer sends.
    "HTTPServer",
    "ThreadingHTTPServer",
    "TCPServer",
    "urlretrieve",
    "make_server",
    "start_server",
    "create_server",
    "serve_forever",
    "iter_series",
    "retrieve_series",
    "retrieve_study",
    "retrieve_instance",
}
CALLS = {
    ("json", "loads"),
    ("json", "load"),
    ("numpy", "load"),
    ("numpy", "save"),
    ("numpy", "savez"),
    ("numpy", "loadtxt"),
    ("numpy", "genfromtxt"),
    ("os", "replace"),
    ("os", "rename"),
    ("os", "link"),
    ("os", "symlink"),
    ("os", "open"),
    ("shutil", "copy"),
    ("shutil", "copy2"),
    ("shutil", "copyfile"),
    ("shutil", "copytree"),
    ("shutil", "move"),
    ("yaml", "load"),
    ("nibabel", "load"),
    ("nibabel", "save"),
    ("nifti1", "load"),
    ("nifti2", "load"),
    ("loadsave", "load"),
    ("loadsave", "save"),
    ("Nifti1Image", "load"),
    ("Nifti2Image", "load"),
    ("Nifti1Image", "from_bytes"),
    ("Nifti2Image", "from_bytes"),
    ("numpy", "savetxt"),
    ("format", "read_array"),
    ("tomllib", "load"),
    ("tomllib", "loads"),
    ("marshal", "load"),
    ("marshal", "loads"),
    ("shelve", "open"),
    ("dbm", "open"),
    ("shutil", "copyfileobj"),
    ("minidom", "parse"),
    ("minidom", "parseString"),
    ("sqlite3", "connect"),
    ("tarfile", "open"),
    ("gzip", "open"),
    ("pickle", "load"),
    ("pickle", "loads"),
    ("joblib", "load"),
    ("ElementTree", "parse"),
    ("pandas", "read_parquet"),
    ("pandas", "read_json"),
    ("os", "umask"),
    ("igzip", "open"),
    ("cloudpickle", "load"),
    ("cloudpickle", "loads"),
    ("joblib", "dump"),
    ("torch", "load"),
    ("torch", "save"),
    ("mmap", "mmap"),
    ("zipfile", "Path"),
    ("os", "truncate"),
    ("lzma", "decompress"),
    ("bz2", "decompress"),
    ("gzip", "decompress"),
    ("zlib", "decompress"),
    ("plistlib", "load"),
    ("plistlib", "loads"),
    ("sax", "parse"),
    ("sax", "parseString"),
    ("yaml", "compose"),
    ("yaml", "parse"),
    ("json", "JSONDecoder"),
    ("h5py", "File"),
    ("shutil", "make_archive"),
    ("request", "urlopen"),
    ("ipc", "open_file"),
    ("ipc", "open_stream"),
    ("isal_zlib", "decompress"),
    ("igzip", "decompress"),
    ("streamlines", "load"),
    ("dataset", "dataset"),
    ("wavfile", "read"),
    ("yaml", "scan"),
    ("configparser", "ConfigParser"),
    ("fileinput", "input"),
    ("linecache", "getlines"),
    ("os", "write"),
    ("os", "pwrite"),
    ("os", "ftruncate"),
    ("requests", "get"),
    ("email", "message_from_bytes"),
}
# Methods of tables: with a path they write a file, and without one they return a text.
OF_A_TABLE = {"to_csv", "to_json", "to_html", "to_string", "to_markdown", "to_latex", "to_xml"}
PATHS = {"path", "path_or_buf", "buf", "path_or_buffer"}
# Of a path with its one argument: other `replace` and `rename` take two, or keywords.
OF_A_PATH = {"rename", "replace", "move"}
# A method that is called `open` and opens no file: an association with an archive.
ASSOCIATIONS = {"cad/dicom/archive/dimse.py"}


def imported(tree: ast.AST) -> dict[str, tuple[str, str]]:
    """Return what each name of a module stands for: a module, or a function of a module."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name] = (alias.name.split(".")[-1], "")
        ours = isinstance(node, ast.ImportFrom) and str(node.module).startswith("cad")
        if isinstance(node, ast.ImportFrom) and not ours:
            for alias in node.names:
                module = (node.module or "").split(".")[-1]
                names[alias.asname or alias.name] = (module, alias.name)
    return names


def primitive(call: ast.Call, file: str, names: dict[str, tuple[str, str]]) -> str:
    """Return what a call opens or parses with; empty where it does neither."""
    function = call.func
    if isinstance(function, ast.Name):
        module, original = names.get(function.id, ("", function.id))
        foreign = function.id in names and original in METHODS
        return function.id if (module, original) in CALLS or foreign or original in NAMES else ""
    if not isinstance(function, ast.Attribute):
        return ""
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    if isinstance(function.value, ast.Attribute):  # a class or module in a module
        owner = function.value.attr
    module, of_module = names.get(owner, (owner, ""))
    if (of_module or module, function.attr) in CALLS or function.attr in METHODS:
        return f"{owner}.{function.attr}"
    if function.attr == "open" and file not in ASSOCIATIONS:
        return f"{owner}.open"
    keywords = {keyword.arg for keyword in call.keywords}
    if function.attr in OF_A_TABLE and (call.args or keywords & PATHS):
        return f"{owner}.{function.attr}"
    of_a_path = len(call.args) == 1 and not call.keywords
    if [keyword.arg for keyword in call.keywords] == ["target"] and not call.args:
        return f"{owner}.{function.attr}"
    if function.attr in OF_A_PATH and of_a_path:
        if isinstance(call.args[0], ast.Dict):  # values of a table, by their old ones
            return ""
        return f"{owner}.{function.attr}"
    return ""


def handed_on(node: ast.AST, names: dict[str, tuple[str, str]]) -> str:
    """Return what opens or parses and is used as a value: given to another name or function."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        module, original = names.get(node.id, ("", node.id))
        return node.id if (module, original) in CALLS or original == "open" else ""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        module, of_module = names.get(node.value.id, (node.value.id, ""))
        if (of_module or module, node.attr) in CALLS:
            return f"{node.value.id}.{node.attr}"
    # A thread gets it as its work.
    if isinstance(node, ast.Attribute) and node.attr == "serve_forever":
        return node.attr
    return ""


def is_door(function: ast.FunctionDef) -> bool:
    calls = [item for item in function.decorator_list if isinstance(item, ast.Call)]
    names = {"door", "door_in_child"}
    return any(isinstance(call.func, ast.Name) and call.func.id in names for call in calls)


def undeclared(source: str, file: str) -> Iterator[str]:
    """Yield every call that opens or parses outside of a declared function."""
    tree = ast.parse(source)
    names = imported(tree)

    def walk(node: ast.AST, declared: bool) -> Iterator[str]:
        if isinstance(node, ast.FunctionDef):
            declared = declared or is_door(node)
        if isinstance(node, ast.Call) and not declared and (name := primitive(node, file, names)):
            yield f"{file}:{node.lineno} {name}"
        for child in ast.iter_child_nodes(node):
            called = isinstance(node, ast.Call) and child is node.func
            if not declared and not called and (name := handed_on(child, names)):
                yield f"{file}:{child.lineno} {name}"  # type: ignore[attr-defined]
            yield from walk(child, declared)

    yield from walk(tree, False)


OF_THE_PACKAGE = (
    # A module's own database in memory, from its own schema.
    ("cad/hospital/node/queue.py", "sqlite3.connect"),
    # Pictures that are drawn into memory.
    ("cad/evidence/experiments/results.py", "figure.savefig"),
    ("cad/run/reports/paper.py", "pages.savefig"),
    # A table's bytes that are made in memory.
    ("cad/base/files.py", "pq.write_table"),
)


def test_every_call_that_opens_or_parses_is_behind_a_declared_door(repository: Path):
    found = []
    for path in sorted((repository / "cad").rglob("*.py")):
        file = path.relative_to(repository).as_posix()
        found += list(undeclared(path.read_text(encoding="utf-8"), file))
    beyond = []
    for text in found:
        if not any(file in text and call in text for file, call in OF_THE_PACKAGE):
            beyond.append(text)
    assert beyond == []


@pytest.mark.parametrize(
    "line",
    [
        "import json; json.loads(text)",
        "import numpy as np; np.load(path)",
        "import numpy; numpy.load(path)",
        "from json import loads; loads(text)",
        "from os import replace as put; put(a, b)",
        "import os; os.rename(a, b)",
        "path.rename(target)",
        "path.replace(target)",
        "import shutil; shutil.copyfile(a, b)",
        "import shutil; shutil.move(a, b)",
        "import nibabel; nibabel.save(image, path)",
        "table.to_parquet(path)",
        "figure.savefig(path)",
        "pd.read_csv(path)",
        "sitk.ReadImage(name)",
        "reader = sitk.ImageFileReader()",
        "pydicom.dcmread(path)",
        "from pydicom.filereader import read_dataset; read_dataset(stream, True, True)",
        "Dataset.from_json(answer)",
        "import nibabel; nibabel.load(path)",
        "open(path, 'w')",
        "path.open('wb')",
        "path.read_text()",
        "path.write_bytes(b'')",
        "import os; os.replace(a, b)",
        "import pickle; pickle.loads(data)",
        "import sqlite3; sqlite3.connect(path)",
        "zipfile.ZipFile(path)",
        "kind.from_filename(path)",
        "import yaml; yaml.load(text, Loader)",
        "load_workbook(stream)",
        "from SimpleITK import ReadImage; ReadImage(str(path))",
        "from pandas import read_csv; read_csv(path)",
        "import pandas as pd; pd.ExcelFile(path)",
        "table.to_excel(path)",
        "from pydicom import dcmread as d; d(path)",
        "from numpy import fromfile; fromfile(path)",
        "import numpy as np; np.savetxt(path, array)",
        "array.tofile(path)",
        "image.to_filename(path)",
        "import nibabel as nib; nib.Nifti1Image.from_bytes(content)",
        "from zipfile import ZipFile as Z; Z(path)",
        "from yaml import safe_load; safe_load(text)",
        "import tomllib; tomllib.load(stream)",
        "import io; io.FileIO(path)",
        "path.rename(target=other)",
        "path.symlink_to(target)",
        "f = open",
        "list(map(open, paths))",
        "import os; r = os.replace",
        "table.to_csv(path)",
        "table.to_csv(path_or_buf=path)",
        "table.to_json(path)",
        "table.to_html(path)",
        "writer = pd.ExcelWriter(path)",
        "import pyarrow.parquet as pq; pq.write_table(table, path)",
        "import pyarrow as pa; pa.memory_map(path)",
        "import numpy as np; np.fromregex(path, pattern, kind)",
        "import nibabel as nib; nib.Nifti1Image.from_stream(stream)",
        "import nibabel as nib; nib.Nifti1Image.from_file_map(files)",
        "import nibabel as nib; nib.Nifti1Header.from_fileobj(stream)",
        "import SimpleITK as sitk; sitk.ReadTransform(path)",
        "import SimpleITK as sitk; sitk.WriteTransform(transform, path)",
        "import SimpleITK as sitk; writer = sitk.ImageFileWriter()",
        "import SimpleITK as sitk; writer = sitk.ImageSeriesWriter()",
        "import pydicom; pydicom.dcmwrite(path, dataset)",
        "from pydicom import dcmwrite; dcmwrite(path, dataset)",
        "from pydicom.fileset import FileSet; FileSet(path)",
        "import pydicom; pydicom.pixels.pixel_array(path)",
        "from pydicom.pixels import pixel_array; pixel_array(path)",
        "import pickle; pickle.Unpickler(stream)",
        "import cloudpickle; cloudpickle.loads(content)",
        "import tempfile; tempfile.mkstemp()",
        "import mmap; mmap.mmap(number, 0)",
        "import os; os.renames(path, other)",
        "import io; io.open_code(path)",
        "import zipfile; zipfile.Path(path)",
        "from zipfile import Path as Member; Member(path)",
        "import zlib; zlib.decompress(content)",
        "import joblib; joblib.dump(thing, path)",
        "entity.make_server(address)",
        "server.serve_forever()",
        "Thread(target=self.server.serve_forever).start()",
        "client.iter_series(study, series)",
        "import zlib; zlib.decompressobj()",
        "from zlib import decompressobj; decompressobj()",
        "import bz2; bz2.BZ2Decompressor()",
        "from lzma import LZMADecompressor; LZMADecompressor()",
        "from isal import igzip; igzip.decompress(content)",
        "from isal import isal_zlib; isal_zlib.decompress(content)",
        "from isal import igzip; igzip.IGzipFile(path)",
        "import pyarrow as pa; pa.CompressedInputStream(stream, 'gzip')",
        "Kind.model_validate_json(content)",
        "Kind.model_validate_strings(content)",
        "TypeAdapter(Kind).validate_json(content)",
        "Kind.parse_raw(content)",
        "Kind.parse_file(path)",
        "from pydantic_core import from_json; from_json(content)",
        "Model.from_pretrained(path)",
        "stream.read_buffer()",
        "import pyarrow as pa; pa.BufferReader(content)",
        "import pyarrow as pa; pa.OSFile(path)",
        "import pyarrow as pa; pa.ipc.read_message(content)",
        "from pyarrow import csv; csv.open_csv(path)",
        "from pyarrow import json; json.read_json(path)",
        "from pyarrow import dataset; dataset.dataset(path)",
        "import pyarrow.parquet as pq; pq.ParquetDataset(path)",
        "import pyarrow.parquet as pq; pq.ParquetWriter(path, schema)",
        "import pyarrow.parquet as pq; pq.read_pandas(path)",
        "from mmap import mmap; mmap(number, 0)",
        "from io import open_code; open_code(path)",
        "import os; os.open(path, os.O_WRONLY | os.O_CREAT)",
        "from os import open as opened; opened(path, 1)",
        "import os; os.write(handle, content)",
        "import os; os.ftruncate(handle, 0)",
        "import os; os.mkfifo(path)",
        "import os; os.link(path, other)",
        "path.hardlink_to(other)",
        "path.move(target)",
        "path.move_into(folder)",
        "path.copy_into(folder)",
        "import shutil; shutil.copy(path, other)",
        "import shutil; shutil.copytree(path, other)",
        "import shutil; shutil.copystat(path, other)",
        "from shutil import move; move(path, other)",
        "import tempfile; tempfile.TemporaryFile()",
        "import tempfile; tempfile.SpooledTemporaryFile()",
        "import logging; logging.FileHandler(path)",
        "from pydicom.filereader import read_file_meta_info; read_file_meta_info(path)",
        "from pydicom.filereader import read_preamble; read_preamble(stream, True)",
        "import highdicom as hd; hd.seg.segread(path)",
        "import highdicom as hd; hd.sr.srread(path)",
        "import nibabel as nib; nib.streamlines.load(path)",
        "import nibabel as nib; nib.Nifti1Image.from_url(path)",
        "from nibabel.openers import ImageOpener; ImageOpener(path)",
        "from skimage.io import imread_collection; imread_collection(path)",
        "from scipy.io import mmread; mmread(path)",
        "from scipy.io import wavfile; wavfile.read(path)",
        "from sklearn.datasets import load_svmlight_file; load_svmlight_file(path)",
        "from sklearn.datasets import fetch_openml; fetch_openml(name)",
        "import pandas as pd; pd.read_sql_query(text, base)",
        "table.to_stata(path)",
        "table.to_sql(name, base)",
        "import yaml; yaml.SafeLoader(text)",
        "import yaml; yaml.scan(text)",
        "import configparser; configparser.ConfigParser()",
        "import linecache; linecache.getlines(path)",
        "import runpy; runpy.run_path(path)",
        "import ctypes; ctypes.CDLL(path)",
        "import email; email.message_from_bytes(content)",
        "import requests; requests.get(address)",
        "import urllib.request; urllib.request.urlretrieve(address)",
        "from http.server import HTTPServer; HTTPServer(address, Handler)",
        "import socketserver; socketserver.TCPServer(address, Handler)",
    ],
)
def test_a_new_door_that_is_not_declared_does_not_build(line: str):
    inside = f"def read(path):\n    {line}\n"
    assert len(list(undeclared(inside, "new.py"))) == 1
    assert len(list(undeclared(line, "new.py"))) == 1
    declared = f"@door('in', 'any', bound='MAX')\n{inside}"
    assert list(undeclared(declared, "new.py")) == []


# Whose files the callers of `write_atomic`, `write_json` and `write_csv` replace. These three
# replace any file. A function that writes to a path which a user names calls `write_own`
# instead, or checks the path as the functions of the first entry do.
WRITERS = {
    "a path of their caller, or one that they have checked to be this program's own": (
        "cad.base.files.write_csv",
        "cad.base.files.write_json",
        "cad.base.files.write_own",
        "cad.base.transactions.claimed",
        "cad.base.transactions.commit",
        "cad.dicom.into.explain.write_rules",
        "cad.mri.imaging.nifti._save",
        "cad.mri.imaging.nifti.write_gradients",
        "cad.mri.imaging.nifti.write_sidecar",
        "cad.run.workflows.imports.write_rules_confined",
        "cad.run.workflows.watch.write_rows",
    ),
    "a cohort, model or folder of readings that is claimed, or a stage of it": (
        "cad.dicom.into.importer._Import.run",
        "cad.folders.cohort.patients.Patients.key",
        "cad.folders.cohort.write_tables",
        "cad.hospital.reader_study.exports._commit_readings",
        "cad.hospital.reader_study.exports.collect_reading",
        "cad.hospital.reader_study.study.write_case",
        "cad.hospital.reader_study.study.write_reader_page",
        "cad.hospital.reader_study.study.write_reading",
        "cad.hospital.reader_study.withdrawal.ReadingFolder.sweep",
        "cad.run.audit.trail.pseudonym",
        "cad.run.audit.withdrawal._removed",
        "cad.run.audit.withdrawal._swept",
        "cad.run.model.bundle.save_bundle",
    ),
    "a run folder that is claimed, or a stage of it": (
        "cad.dicom.out.fhir.write_fhir",
        "cad.dicom.out.parametric_map.write_maps",
        "cad.dicom.out.results.write_sr_and_seg",
        "cad.folders.run_folder.known_failures._forget_repaired",
        "cad.folders.run_folder.known_failures.acknowledge",
        "cad.folders.run_folder.known_failures.remember",
        "cad.folders.run_folder.records.write_comparison",
        "cad.folders.run_folder.records.write_complete",
        "cad.folders.run_folder.records.write_metrics",
        "cad.folders.run_folder.records.write_record",
        "cad.folders.run_folder.records.write_validation",
        "cad.folders.run_folder.study_file.write_map_display",
        "cad.folders.run_folder.study_file.write_measured",
        "cad.folders.run_folder.tables.write_earlier",
        "cad.folders.run_folder.tables.write_explanations",
        "cad.folders.run_folder.tables.write_failures",
        "cad.folders.run_folder.tables.write_features",
        "cad.folders.run_folder.tables.write_labels",
        "cad.folders.run_folder.tables.write_patients",
        "cad.folders.run_folder.tables.write_probabilities",
        "cad.folders.run_folder.tables.write_suggestions",
        "cad.run.execution.resume._compact_lines",
        "cad.run.execution.resume.borrow",
        "cad.run.model.fold_features.FoldFeatures._t2",
        "cad.run.reports.pages.write_report",
        "cad.run.reports.pages.write_report.write_page",
        "cad.run.workflows.sheets._write_objects",
    ),
    "the node's own folder": (
        "cad.hospital.node.champion.promote",
        "cad.hospital.node.compute.compute",
        "cad.hospital.node.names.node_key",
        "cad.hospital.node.service.Node._problem_of",
    ),
    "the folder that an experiment, a simulation or a contract of containers writes": (
        "cad.evidence.experiments._require_draw",
        "cad.evidence.experiments.results.Result.write",
        "cad.evidence.experiments.uci._write_set",
        "cad.evidence.experiments.uci.fetch_sets",
        "cad.evidence.experiments.wang2014._draws",
        "cad.evidence.experiments.wang2014._one_set",
        "cad.evidence.phantom.dicom.write_dicom",
        "cad.evidence.phantom.sample._write_dicom_study",
        "cad.evidence.phantom.simulator.write_cohort",
        "cad.hospital.contracts.grand_challenge.run_grand_challenge",
        "cad.hospital.contracts.mhub.run_mhub",
        "cad.hospital.contracts.scored.write_map",
    ),
}
REPLACING = {"write_atomic", "write_json", "write_csv"}


def writers(source: str, module: str) -> Iterator[str]:
    """Yield the full name of every function that calls a writer which replaces any file."""

    def walk(node: ast.AST, name: str) -> Iterator[str]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{name}.{node.name}"
        if isinstance(node, ast.Name | ast.Attribute):
            word = node.id if isinstance(node, ast.Name) else node.attr
            if word in REPLACING and isinstance(node.ctx, ast.Load):
                yield name
        for child in ast.iter_child_nodes(node):
            yield from walk(child, name)

    yield from walk(ast.parse(source), module)


def test_every_function_that_replaces_any_file_says_whose(repository: Path):
    calling = set()
    for path in sorted((repository / "cad").rglob("*.py")):
        module = ".".join(path.relative_to(repository).with_suffix("").parts)
        calling.update(writers(path.read_text(encoding="utf-8"), module.removesuffix(".__init__")))
    declared = [name for names in WRITERS.values() for name in names]
    assert calling - set(declared) == set(), "whose file is replaced? see WRITERS"
    assert sorted(declared) == sorted(calling)


@pytest.mark.parametrize(
    "line", ["write_atomic(path, b'')", "files.write_csv(path, table, [])", "later = write_json"]
)
def test_a_new_writer_of_any_file_is_found(line: str):
    assert list(writers(f"class A:\n    def save(path):\n        {line}\n", "cad.new")) == [
        "cad.new.A.save"
    ]


def load_all() -> None:
    """Import every module of the package, so that its doors are declared."""
    for module in pkgutil.walk_packages(cad.__path__, "cad."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def test_a_door_says_what_bounds_it_or_whose_file_it_replaces():
    for wrong in (
        {"way": "in", "form": "JSON"},
        {"way": "in", "form": "music", "bound": "MAX"},
        {"way": "in", "form": "music", "limit": 1},
        {"way": "out", "form": "table"},
    ):
        with pytest.raises(ValueError, match="door"):
            door(**wrong)


def test_every_door_of_strangers_bytes_is_in_the_fuzz_matrix():
    from door_cases import CASES

    load_all()
    through = {name for case in CASES.values() for name in case.doors}
    strangers = {name for name, declared in DOORS.items() if declared.way == "in"}
    assert strangers - through == set(), "declare a case in tests/support/door_cases.py"
    assert through - set(DOORS) == set()


def test_every_stated_limit_is_held_before_a_byte_is_read(tmp_path: Path):
    """A file with a hole takes no room on the disk, so that gigabytes are tried."""
    load_all()
    limited = [declared for declared in DOORS.values() if declared.limit]
    assert len(limited) >= 15
    for declared in limited:
        path = tmp_path / "x"
        with path.open("wb") as stream:
            stream.truncate(declared.limit + 1)
        with pytest.raises(CadError, match="at most"):
            # A function's other arguments (an object, a class, a separator) stand behind None.
            function_of(declared.name)(None, path)
        path.unlink()
        path.mkdir()
        with pytest.raises(CadError, match="a folder"):
            function_of(declared.name)(None, path)
        path.rmdir()


# Functions that get an open file, an answer or what another door has read within its limit.
WITHOUT_A_NUMBER = {
    "cad.dicom.archive.web.WebArchive._arriving",
    "cad.dicom.archive.web.WebArchive._datasets",
    "cad.hospital.node.instance._wanted_elements",
    "cad.mri.imaging.frames.dataset_of",
    "cad.mri.imaging.headers._unpacked_voxels",
    "cad.mri.imaging.pixels.PixelReader._stored",
    # It parses nothing: the files of a study are hashed a block at a time.
    "cad.run.execution.task.input_key",
}


def test_every_form_of_strangers_bytes_has_a_door():
    load_all()
    assert {declared.form for declared in DOORS.values() if declared.way == "in"} == set(FORMS)


def test_every_listening_port_is_a_door():
    load_all()
    ports = {declared.name for declared in DOORS.values() if declared.way == "port"}
    assert ports == {
        "cad.dicom.archive.listener.listen",
        "cad.hospital.node.status.StatusPage.__init__",
    }
    for name in ports:
        assert DOORS[name].bound
    with pytest.raises(ValueError, match="port"):
        door("port", "HTTP")


def test_only_experiments_read_published_data_without_limits():
    load_all()
    readers = [declared.name for declared in DOORS.values() if declared.form == "published data"]
    assert readers
    assert all(name.startswith("cad.evidence.experiments.") for name in readers)


def test_seven_doors_keep_their_limit_themselves():
    load_all()
    words_alone = set()
    for declared in DOORS.values():
        enforced = declared.limit or declared.bound.startswith("child: ")
        if declared.way == "in" and not enforced:
            words_alone.add(declared.name)
    assert words_alone == WITHOUT_A_NUMBER
    for name in words_alone:
        kinds = set(inspect.signature(function_of(name)).parameters.values())
        assert not [kind for kind in kinds if kind.annotation in ("Path", "bytes", "str")], name


@door_in_child("any", seconds=10.0, gigabytes=1.0)
def number_of_this_process(_: bytes) -> int:
    return os.getpid()


DOORS.pop(f"{__name__}.number_of_this_process")


def test_a_door_in_a_child_runs_in_a_child_whoever_calls_it():
    assert number_of_this_process(b"") != os.getpid()
    load_all()
    children = [declared for declared in DOORS.values() if declared.bound.startswith("child: ")]
    assert len(children) == 5
    for declared in children:
        assert function_of(declared.name).__code__.co_name == "limited"


def test_a_door_without_a_limit_of_its_own_takes_no_pipe(tmp_path: Path):
    @door("in", "any", bound="the caller's limit")
    def name_of(path: Path) -> str:
        return path.name  # nothing is opened: without the check the test would wait for a writer

    DOORS.pop(f"{__name__}.{name_of.__qualname__}")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CadError, match="a named pipe"):
        name_of(tmp_path / "pipe")


def test_bytes_are_limited_to_the_byte():
    @door("in", "any", limit=4)
    def length_of(content: bytes) -> int:
        return len(content)

    DOORS.pop(f"{__name__}.{length_of.__qualname__}")
    assert length_of(b"1234") == 4
    with pytest.raises(CadError, match="5 bytes, at most 4"):
        length_of(b"12345")


def test_bytes_behind_a_name_are_limited():
    @door("in", "any", limit=4)
    def length_of(name: str, content: bytes) -> int:
        return len(content)

    DOORS.pop(f"{__name__}.{length_of.__qualname__}")
    assert length_of("a", b"1234") == 4
    with pytest.raises(CadError, match="5 bytes, at most 4"):
        length_of("a", b"12345")
