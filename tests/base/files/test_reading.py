"""One helper reads everything: every exception is the project's, every size is looked at first."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import socket
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydicom.errors import InvalidDicomError

from cad.base import reading as limits
from cad.base.errors import CadError
from cad.base.reading import (
    MAX_DEPTH,
    check_inflation,
    open_arrays,
    parse_json,
    read_bytes,
    read_frame,
    read_json,
    read_parquet,
    read_rows,
    reading,
)
from cad.base.regular import MIB, file_kind


@pytest.mark.parametrize(
    "error",
    [
        RecursionError("too deep"),
        OverflowError("too large"),
        InvalidDicomError("no"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        struct.error("unpack requires 4 bytes"),
        zlib.error("incorrect header"),
        zipfile.BadZipFile("not a zip"),
        KeyError("x"),
        AssertionError(),
        EOFError(),
        OSError("without a number"),
        OSError(errno.EINVAL, "Invalid argument"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_parser_raises_is_the_projects_error(error: Exception, tmp_path: Path):
    path = tmp_path / "x"
    with pytest.raises(CadError, match="not a table: ") as caught, reading(path, "not a table"):
        raise error
    assert caught.value.file == str(path)
    assert caught.value.__cause__ is error
    assert not caught.value.problem.endswith(": ")


def test_memory_is_said_with_the_way_out():
    with (
        pytest.raises(CadError, match=r"more memory than.*--memory-limit"),
        reading("", ""),
    ):
        raise MemoryError


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.ENOENT, errno.EIO])
def test_the_machines_own_troubles_stay_what_they_are(number: int):
    with pytest.raises(OSError, match=os.strerror(number)), reading("x", "not a table"):
        raise OSError(number, os.strerror(number))


def test_an_error_keeps_its_place_and_gets_what_it_lacks():
    with (
        pytest.raises(CadError, match="patient P, ROI 3, file inner: bad"),
        reading("outer", "", roi="3"),
    ):
        raise CadError("bad", file="inner", patient="P")


def test_a_message_is_one_printable_line():
    with pytest.raises(CadError) as caught, reading("x", "bad"):
        raise ValueError("a\n\x1b[31mred\x00" + "y" * 5000)
    assert caught.value.problem.startswith("bad: a ?[31mred?yyy")
    assert len(caught.value.problem) < 400


def test_what_is_no_file_is_never_opened(tmp_path: Path):
    fifo, sock, link = tmp_path / "fifo", tmp_path / "s", tmp_path / "link"
    os.mkfifo(fifo)
    here = os.getcwd()
    os.chdir(tmp_path)  # a socket's path is short
    try:
        server = socket.socket(socket.AF_UNIX)
        server.bind("s")
    finally:
        os.chdir(here)
    link.symlink_to("/dev/zero")
    kinds = {path.name: file_kind(path) for path in tmp_path.iterdir()}
    assert kinds == {"fifo": "a named pipe", "s": "a socket", "link": "a device"}
    for path in (fifo, sock, link):
        with pytest.raises(CadError, match="where a file was expected"):
            read_bytes(path, MIB)
    server.close()
    link.unlink()
    link.symlink_to("gone")
    assert file_kind(link) == "a link that leads nowhere"


def test_json(tmp_path: Path):
    path = tmp_path / "x.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(path) == {"a": 1}
    for text, says in (
        ("[1]", "expected a JSON object, found list"),
        ("{", "not valid JSON: Expecting"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON: Exceeds the limit"),
        ('{"a":' * 100_000, "not valid JSON: RecursionError"),
        ('{"a": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}", f"more than {MAX_DEPTH} deep"),
        (b"\xff", "not valid JSON: 'utf-8' codec"),
    ):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(CadError, match=says):
            read_json(path)
    nested = "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    assert parse_json(nested) == json.loads(nested)


def test_sizes_are_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    assert read_rows(path, ("a",)) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert read_frame(path)["b"].tolist() == [2, 4]
    for name, value, says in (
        ("MAX_TABLE", 11, "12 bytes, at most 11 bytes"),
        ("MAX_ROWS", 2, "3 lines of 2 columns, at most 2 of 2000"),
        ("MAX_COLUMNS", 1, "3 lines of 2 columns"),
        ("MAX_CELLS", 5, "and 5 cells"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(limits, name, value)
            for read in (read_rows, read_frame):
                with pytest.raises(CadError, match=says):
                    read(path)


def test_tables_that_would_be_read_wrongly(tmp_path: Path):
    """Two columns of one name; a cell too many, which pandas takes for the name of the row."""
    path = tmp_path / "x.tsv"
    path.write_text("a\tb\ta\n1\t2\t3\n")
    with pytest.raises(CadError, match="two columns are called 'a'"):
        read_frame(path, "\t")
    path.write_text("a\tb\n1\t2\t3\n4\t5\t6\n")
    assert pd.read_csv(path, sep="\t")["a"].tolist() == [2, 5]
    with pytest.raises(CadError, match=r"line 2 has 3 cell\(s\) where the first line has 2"):
        read_frame(path, "\t")
    path.write_text("a,b,\n1,2,3\n4,,\n")
    assert read_rows(path) == [{"a": "1", "b": "2"}, {"a": "4", "b": ""}]
    with pytest.raises(CadError, match=r"missing column\(s\) c; expected a,c"):
        read_rows(path, ("a", "c"))


@pytest.mark.parametrize("read", [read_rows, read_frame])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n\n1,2\n3,0,75\n", r"line 4 has 3 cell\(s\) where the first line has 2.*0.75"),
        ("a,b\n1,2\n3", r"line 3 has 1 cell\(s\) where the first line has 2"),
        ('a,b\n1,2\n"3,4\n', r"line 3 has 1 cell\(s\)"),
        ("a,b\n1,2\n,\n3,\0\n", "a cell holds a NUL character"),
    ],
)
def test_a_row_that_is_not_as_wide_as_the_first_line_is_refused(
    tmp_path: Path, read: Callable[[Path], object], text: str, says: str
):
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(CadError, match=says) as caught:
        read(path)
    assert caught.value.file == str(path)
    path.write_text("a,b\n1,2\n \n3,4\n")
    assert len(read(path)) == 2


@pytest.mark.parametrize("read", [read_rows, read_frame, read_json])
@pytest.mark.parametrize("kind", ["short rows", "names", "a long row"])
def test_a_small_file_takes_little_memory(
    tmp_path: Path, read: Callable[[Path], object], kind: str
):
    path = tmp_path / "x"
    head = b",".join(b"c%d" % k for k in range(1990))
    path.write_bytes(
        b'{"readings": [' + b"{}," * 2_000_000 + b"{}]}"
        if read is read_json
        else {
            "short rows": head + b"\na" * 999_990,
            "names": b"abc," * 2**21,
            "a long row": b"a,b\n" + b"abc," * 2**21,
        }[kind]
    )
    size = path.stat().st_size
    tracemalloc.start()
    try:
        with pytest.raises(CadError, match=r"line.* of .*c|has 1 cell\(s\)|lists and objects"):
            read(path)
        # The place for the largest file; its text, also as a stream of four bytes a character.
        assert tracemalloc.get_traced_memory()[1] < limits.MAX_TABLE + 6 * size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize("change", ["crlf", "blank lines at the end", "bom", "no last line end"])
def test_what_spreadsheets_do_to_a_table_changes_nothing(
    tmp_path: Path, separator: str, change: str
):
    plain = "patient,r1,note\na,4,x\nb,5,\n".replace(",", separator)
    changed = {
        "crlf": plain.replace("\n", "\r\n"),
        "blank lines at the end": plain + "\n\r\n\n",
        "bom": "\ufeff" + plain,
        "no last line end": plain.rstrip("\n"),
    }[change]
    path = tmp_path / "x.csv"
    path.write_bytes(plain.encode())
    wanted = read_frame(path, separator)
    assert len(wanted) == 2
    rows = read_rows(path) if separator == "," else []
    path.write_bytes(changed.encode())
    pd.testing.assert_frame_equal(read_frame(path, separator), wanted)
    if separator == ",":
        assert read_rows(path) == rows


def test_inflation():
    check_inflation(1, 256 * MIB, 512 * MIB)
    check_inflation(5 * MIB, 500 * MIB, 512 * MIB)
    for packed, unpacked in ((5 * MIB, 501 * MIB), (512 * MIB, 513 * MIB)):
        with pytest.raises(CadError, match=r"would become .* in memory"):
            check_inflation(packed, unpacked, 512 * MIB)


def test_arrays_that_swell_are_refused(tmp_path: Path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros(10))
    with reading(path, "damaged"), open_arrays(path) as arrays:
        assert arrays["a"].sum() == 0
    np.savez_compressed(path, a=np.zeros(2**25 + 2**20))  # 264 MiB in 257 KiB
    for source in (path, path.read_bytes()):
        with pytest.raises(CadError, match="of arrays in memory"), open_arrays(source):
            pass
    path.write_bytes(b"no zip")
    with pytest.raises(CadError, match="damaged: "), reading(path, "damaged"), open_arrays(path):
        pass


def test_a_parquet_table_that_swells_is_refused():
    stream = io.BytesIO()
    pd.DataFrame({"a": np.zeros(2**25 + 2**20, np.int8)}).to_parquet(stream, index=False)
    assert len(stream.getvalue()) < MIB
    with pytest.raises(CadError, match="of table in memory"):
        read_parquet(stream.getvalue())


def test_a_truncated_gzip_is_named(tmp_path: Path):
    from cad.mri.imaging.nifti import read_volume

    path = tmp_path / "x.nii.gz"
    path.write_bytes(gzip.compress(bytes(5000))[:-20])
    with pytest.raises(CadError, match="not a readable NIfTI file"):
        read_volume(path)


def test_half_a_character_is_no_text():
    """A lone surrogate, which JSON can say and no file can hold."""
    for text in (r'{"note": "\ud800"}', r'["\udc00\ud83d"]'):
        with pytest.raises(CadError, match="surrogates"), reading("x", "not JSON"):
            parse_json(text)
    assert parse_json(r'["\ud83d\ude00"]') == ["😀"]


@pytest.mark.parametrize("kind", ["words", "bytes", "columns"])
def test_a_table_of_one_long_word_is_refused_before_it_is_read(tmp_path: Path, kind: str):
    """Half a megabyte on the disk, gigabytes in memory: rows, or columns too, share a word."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    word = bytes(500_000) if kind == "bytes" else "x" * 500_000
    count, rows = (15, 400) if kind == "columns" else (1, 6000)
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([word]))
    table = pa.table({str(k): column for k in range(count)})
    pq.write_table(table, tmp_path / "bomb.parquet", store_schema=False, write_statistics=False)
    assert (tmp_path / "bomb.parquet").stat().st_size < MIB
    with pytest.raises(CadError), reading("x", "not a table"):
        read_parquet(tmp_path / "bomb.parquet")


@pytest.mark.parametrize("kind", ["pages", "prefixes"])
def test_a_table_whose_footer_lies_of_its_pages_fills_no_memory_here(kind: str):
    """A long word in one page, which the footer calls small; words that each repeat a long one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    words = ["x" * 2**29] if kind == "pages" else [f"{'x' * 1000}{k}" for k in range(1000)]
    pq.write_table(
        pa.table({"a": words}),
        stream,
        compression="zstd",
        use_dictionary=False,
        column_encoding="DELTA_BYTE_ARRAY" if kind == "prefixes" else "PLAIN",
        write_statistics=False,
    )
    content = stream.getvalue()
    if kind == "pages":
        size = pq.read_metadata(stream).row_group(0).total_byte_size
        coded = bytes(size * 2 >> shift & 127 | 128 for shift in range(0, 28, 7)) + b"\4"
        small = b"\xd0\x8f\x80\x80\0"  # 1,000
        assert content.count(coded) == 2
        content = content.replace(coded, small)
        assert pq.read_metadata(io.BytesIO(content)).row_group(0).total_byte_size == 1000
    problem = "more than 2 GB of memory" if kind == "pages" else "Not yet implemented"
    with pytest.raises(CadError, match=problem), reading("x", "not a table"):
        read_parquet(content)


def test_a_table_comes_back_as_it_was_written(tmp_path: Path):
    table = pd.DataFrame(
        {
            "n": [1, 2, 3],
            "x": [0.1, np.nan, -1.0],
            "b": [True, False, True],
            "t": ["a", None, "a"],
            "empty": [None, None, None],
        }
    )
    table.to_parquet(tmp_path / "t.parquet", index=False)
    pd.testing.assert_frame_equal(
        read_parquet(tmp_path / "t.parquet"), pd.read_parquet(tmp_path / "t.parquet")
    )


def test_nothing_else_reads_what_others_wrote(repository: Path):
    """Every parser is called in one module; published data sets of experiments are apart."""
    forbidden = re.compile(
        r"json\.loads?\(|\.read_(text|bytes)\(|pd\.read_(?!_)|pq\.(read|ParquetFile)|"
        # The process's mode of new files, which other threads make meanwhile.
        r"np\.(load|fromfile)\(|os\.umask\("
    )
    # A worker asks the system of itself; the tables beside modules are the package's own.
    allowed = {
        "base/reading.py",
        "base/processes/limited.py",
        "run/execution/worker.py",
        "base/terms/beside.py",
    }
    found = [
        f"{path.relative_to(repository)}:{number}"
        for path in sorted((repository / "cad").rglob("*.py"))
        if path.relative_to(repository / "cad").as_posix() not in allowed
        and "experiments" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if forbidden.search(line)
    ]
    assert found == []


def test_a_column_name_of_the_greatest_length_is_read():
    limits.check_names(["a" * limits.MAX_NAME])
    with pytest.raises(CadError, match=f"a column name of {limits.MAX_NAME + 1} characters"):
        limits.check_names(["a" * (limits.MAX_NAME + 1)])
