"""A single file that a user asks for replaces nothing of anybody else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.base.files import csv_bytes, write_csv, write_own
from cad.base.reading import read_frame, read_rows
from cad.base.terms.markdown import in_markdown


def link_to_nothing(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


def link_to_a_file(path: Path) -> None:
    (path.parent / "target").write_text("somebody's")
    path.symlink_to(path.parent / "target")


def own_and_changed(path: Path) -> None:
    write_own(path, b"ours\n", [])
    path.write_text("ours, corrected by hand\n")


def own_and_copied(path: Path) -> None:
    write_own(path.with_name("other"), b"ours\n", [])
    path.write_bytes(b"ours\n")


STRANGERS: dict[str, Callable[[Path], object]] = {
    "a file": lambda path: path.write_text("somebody's"),
    "an empty file": lambda path: path.touch(),
    "a link": link_to_a_file,
    "a link to nothing": link_to_nothing,
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "ours, changed": own_and_changed,
    "a copy of ours": own_and_copied,
}
NEVER = ("a link", "a link to nothing", "a folder", "a pipe")


@pytest.mark.parametrize("kind", STRANGERS)
def test_what_is_not_ours_stays(tmp_path: Path, kind: str):
    path = tmp_path / "out.csv"
    STRANGERS[kind](path)
    before = sorted((p.name, p.lstat().st_ino, p.lstat().st_mtime_ns) for p in tmp_path.iterdir())
    with pytest.raises(CadError):
        write_own(path, b"new\n", [])
    if kind in NEVER:
        with pytest.raises(CadError):
            write_own(path, b"new\n", [], force=True)
    after = sorted((p.name, p.lstat().st_ino, p.lstat().st_mtime_ns) for p in tmp_path.iterdir())
    assert after == before
    if kind not in NEVER:
        write_own(path, b"new\n", [], force=True)
        assert path.read_bytes() == b"new\n"


def test_a_device_stays_a_device():
    for force in (False, True):
        with pytest.raises(CadError, match="no regular file"):
            write_own(Path("/dev/null"), b"new\n", [], force=force)
    assert Path("/dev/null").is_char_device()


def test_what_we_wrote_is_replaced(tmp_path: Path):
    path = tmp_path / "deep" / "out.csv"
    for text in (b"one\n", b"two\n"):
        write_own(path, text, [])
        assert path.read_bytes() == text


@pytest.mark.parametrize("way", ["itself", "a hard link", "through a folder"])
def test_an_input_is_never_replaced(tmp_path: Path, way: str):
    source = tmp_path / "in.csv"
    write_own(source, b"a\n1\n", [])
    out = source
    if way == "a hard link":
        out = tmp_path / "out.csv"
        os.link(source, out)
    if way == "through a folder":
        (tmp_path / "same").symlink_to(tmp_path)
        out = tmp_path / "same" / "in.csv"
    for force in (False, True):
        with pytest.raises(CadError, match="the input itself"):
            write_own(out, b"new\n", [source], force=force)
    assert source.read_bytes() == b"a\n1\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of a table with two columns."""
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    from cad.learners import SoftExtraTrees
    from cad.run.api import save_model

    X = pd.DataFrame(np.arange(40.0).reshape(20, 2), columns=["a", "b"])
    steps = [("scale", StandardScaler()), ("learner", SoftExtraTrees(trees=3))]
    fitted = Pipeline(steps).fit(X, np.linspace(0, 1, 20))
    save_model(tmp_path / "model", fitted, X, np.linspace(0, 1, 20), np.arange(20))
    return tmp_path / "model"


def test_the_command_replaces_its_own_table_only(
    tmp_path: Path, model: Path, main_here: Callable[..., Any]
):
    table, out = tmp_path / "in.csv", tmp_path / "out.csv"
    table.write_text("participant_id,a,b\n1,2,3\n")
    line = ["table", "predict", table, "--model", model, "-o"]
    assert main_here(*line, out).returncode == 0
    assert main_here(*line, out).returncode == 0  # ours
    out.write_text("mine now\n")
    refused = main_here(*line, out)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert out.read_text() == "mine now\n"
    assert main_here(*line, out, "--force").returncode == 0
    for forced in ([], ["--force"]):
        assert main_here(*line, table, *forced).returncode == 2
        assert main_here(*line, "/dev/null", *forced).returncode == 2
    assert table.read_text() == "participant_id,a,b\n1,2,3\n"
    assert Path("/dev/null").is_char_device()


NAMES = [
    "=1+1",
    "@SUM(A1)",
    "-x",
    "+a",
    "'=1",
    "<script>",
    "a|b",
    "# a",
    "**b**",
    "é",
    " =1",
    "\u200b=1",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_column_name_is_harmless_and_comes_back(tmp_path: Path, name: str):
    path = tmp_path / "x.csv"
    write_csv(path, pd.DataFrame({name: [1.5], "b": ["x"]}), [name, "b"])
    head = path.read_text().split(",")[0]
    assert head[:1] not in "=+-@" or head[:1] == "'"
    assert list(read_frame(path).columns) == [name, "b"]
    assert list(read_rows(path)[0]) == [name, "b"]


@pytest.mark.parametrize(
    "sign", ["\x1b[31m", "\x00", "\u202e", "\x7f", "\u2028", "\t", "\x9b", "\ufeff"]
)
def test_a_column_name_with_a_control_character_is_no_table(tmp_path: Path, sign: str):
    written = csv_bytes(pd.DataFrame({f"a{sign}": [1]}), [f"a{sign}"]).decode()
    assert sign not in written.replace("\t", "")
    path = tmp_path / "x.csv"
    path.write_text(f'"a{sign}",b\n1,2\n')
    for read in (read_frame, read_rows):
        with pytest.raises(CadError):
            read(path)


@pytest.mark.parametrize(
    "text", ["<img src=x onerror=alert(1)>", "[x](javascript:alert(1))", "a|b", "`x`", "a\n# b"]
)
def test_a_name_in_markdown_is_text(text: str):
    markdown = in_markdown(text)
    assert "<" not in markdown
    assert "\n" not in markdown
    assert "](" not in markdown.replace("\\](", "")
    assert markdown.count("|") == markdown.count("\\|")


def test_a_card_shows_names_as_text(tmp_path: Path):
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    from cad.learners import SoftExtraTrees
    from cad.run.api import save_model

    names = ["<script>alert(1)</script>", "[a](javascript:1)"]
    X = pd.DataFrame(np.arange(40.0).reshape(20, 2), columns=names)
    y = np.linspace(0, 1, 20)
    steps = [("scale", StandardScaler()), ("learner", SoftExtraTrees(trees=3))]
    save_model(
        tmp_path / "model",
        Pipeline(steps).fit(X, y),
        X,
        y,
        np.arange(20),
        description="<b>bold</b>",
    )
    card = (tmp_path / "model" / "README.md").read_text()
    assert "<script>" not in card
    assert "<b>" not in card
    assert "\\[a\\](javascript:1)" in card


def test_a_file_of_an_input_folder_is_never_replaced(tmp_path: Path):
    model = tmp_path / "model"
    (model / "deep").mkdir(parents=True)
    for path in (model / "README.md", model / "deep" / "weights.npz"):
        path.write_bytes(b"of the model")
        for force in (False, True):
            with pytest.raises(CadError, match="the input itself, or lies in it"):
                write_own(path, b"new\n", [tmp_path / "table.csv", model], force=force)
        assert path.read_bytes() == b"of the model"


def test_no_file_is_added_to_an_input_folder(tmp_path: Path):
    """A model to which a file was added is refused as changed."""
    model = tmp_path / "model"
    model.mkdir()
    for force in (False, True):
        with pytest.raises(CadError, match="the input itself, or lies in it"):
            write_own(model / "new.csv", b"new\n", [model], force=force)
    assert not list(model.iterdir())
    write_own(tmp_path / "beside.csv", b"new\n", [model])
