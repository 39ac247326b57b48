"""No function reads strangers' bytes or puts a file into place that is not a declared door."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import cad
from cad.base.doors import DOORS, door
from cad.base.errors import CadError
from cad.base.processes.limited import door_in_child

# Functions that open, parse or put into place, however they are spelled.
NAMES = {"open", "ZipFile", "load_workbook", "dcmread", "ImageFileReader", "read_schema"}
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
}
# Of a path with its one argument: other `replace` and `rename` take two, or keywords.
OF_A_PATH = {"rename", "replace"}
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
    ],
)
def test_a_new_door_that_is_not_declared_does_not_build(line: str):
    inside = f"def read(path):\n    {line}\n"
    assert len(list(undeclared(inside, "new.py"))) == 1
    assert len(list(undeclared(line, "new.py"))) == 1
    declared = f"@door('in', 'any', bound='MAX')\n{inside}"
    assert list(undeclared(declared, "new.py")) == []


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


def function_of(name: str) -> Callable[..., object]:
    """Return the function of a door, by the full name of a function or method."""
    module = name
    while module not in sys.modules:
        module = module.rpartition(".")[0]
    function: Any = sys.modules[module]
    for word in name.removeprefix(f"{module}.").split("."):
        function = getattr(function, word)
    return cast("Callable[..., object]", function)


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
        assert function_of(declared.name).__code__.co_name == "in_child"


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
