"""A table is read alike in every form that people have it in; what may mean two things is asked."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.run.tables import Columns, Dialect, Regions, read_regions
from tests.run.tables import odd_tables

FRAME = odd_tables.sound()
FRAME.loc[3, "adc"] = ""
WIDE = Columns("patient", ("r1", "r2"), histology="cancer")


def decimal_comma(frame: pd.DataFrame) -> pd.DataFrame:
    changed = {name: frame[name].str.replace(".", ",") for name in ("adc", "t2", "ktrans")}
    return frame.assign(**changed)


def parquet(frame: pd.DataFrame) -> bytes:
    stream = io.BytesIO()
    odd_tables.typed(frame).to_parquet(stream, index=False)
    return stream.getvalue()


def quoted(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False, quoting=1)


def long(frame: pd.DataFrame) -> pd.DataFrame:
    return odd_tables.readings(frame)


csv = odd_tables.csv
FORMS: dict[str, tuple[Callable[[pd.DataFrame], str | bytes], Columns, Dialect]] = {
    "commas": (csv, WIDE, Dialect()),
    "tabs": (lambda f: csv(f, "\t"), WIDE, Dialect()),
    "semicolons": (lambda f: csv(f, ";"), WIDE, Dialect()),
    "bars": (lambda f: csv(f, "|"), WIDE, Dialect()),
    "semicolons and decimal comma": (lambda f: csv(decimal_comma(f), ";"), WIDE, Dialect()),
    "quoted decimal comma": (lambda f: quoted(decimal_comma(f)), WIDE, Dialect()),
    "tabs and decimal comma": (lambda f: csv(decimal_comma(f), "\t"), WIDE, Dialect()),
    "a byte order mark": (lambda f: "\ufeff" + csv(f), WIDE, Dialect()),
    "UTF-16": (lambda f: csv(f, "\t").encode("utf-16"), WIDE, Dialect()),
    "UTF-16 without a mark": (lambda f: csv(f).encode("utf-16-le"), WIDE, Dialect()),
    "Excel's line sep=;": (lambda f: "sep=;\r\n" + csv(f, ";"), WIDE, Dialect()),
    "lines of Windows": (lambda f: csv(f).replace("\n", "\r\n"), WIDE, Dialect()),
    "blank lines and blanks": (
        lambda f: "\n" + csv(f).replace(",", " , ").replace("\n", "\n\n"),
        WIDE,
        Dialect(),
    ),
    "Windows letters": (
        lambda f: csv(f.assign(note="größer")).encode("cp1252"),
        Columns("patient", ("r1", "r2"), histology="cancer", ignored=("note",)),
        Dialect(encoding="cp1252"),
    ),
    "a workbook": (
        lambda f: odd_tables.workbook(("Sheet1", odd_tables.sheet_of(f)), ("Empty", [])),
        WIDE,
        Dialect(),
    ),
    "a sheet of two": (
        lambda f: odd_tables.workbook(("Notes", [["x"]]), ("R", odd_tables.sheet_of(f))),
        WIDE,
        Dialect(sheet="R"),
    ),
    "parquet": (parquet, WIDE, Dialect()),
    "scores with words": (
        lambda f: csv(f.assign(r1=f["r1"] + " (sure)", r2="PI-RADS " + f["r2"])),
        WIDE,
        Dialect(),
    ),
    "histology in words": (
        lambda f: csv(f.assign(cancer=f["cancer"].map({"1": "Malignant", "0": "benign"}))),
        WIDE,
        Dialect(),
    ),
    "missing by a code": (
        lambda f: csv(f.assign(adc=f["adc"].replace("", "-999"))),
        Columns("patient", ("r1", "r2"), histology="cancer", missing=("-999",)),
        Dialect(),
    ),
    "columns by wildcards": (
        lambda f: csv(f.assign(diagnostics_a="x", diagnostics_b="y")),
        Columns("patient", ("r?",), histology="cancer", ignored=("diagnostics_*",)),
        Dialect(),
    ),
    "a row a reading": (
        lambda f: csv(long(f)),
        Columns("patient", ("grade",), histology="cancer", reader="who", id="lesion"),
        Dialect(),
    ),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Regions:
    path = tmp_path_factory.mktemp("plain") / "table.csv"
    path.write_text(csv(FRAME))
    return read_regions(path, WIDE)


@pytest.mark.parametrize("form", FORMS)
def test_the_form_changes_nothing(form: str, plain: Regions, tmp_path: Path) -> None:
    made, columns, dialect = FORMS[form]
    content = made(FRAME)
    path = tmp_path / "table.dat"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    regions = read_regions(path, columns, dialect)
    # A row a reading is sorted by region; a region is known by its patient and its features.
    order, expected = (part.X["t2"].argsort().to_numpy() for part in (regions, plain))
    np.testing.assert_array_equal(regions.X.to_numpy()[order], plain.X.to_numpy()[expected])
    for name in ("participant_id", "histology", "isup"):
        got = regions.rois[name].to_numpy()[order].tolist()
        assert got == plain.rois[name].to_numpy()[expected].tolist()
    assert sorted(regions.scores["score"]) == sorted(plain.scores["score"])
    means = [
        part.scores.groupby(["participant_id"])["score"].mean().tolist()
        for part in (regions, plain)
    ]
    assert means[0] == means[1]
    assert regions.readers == ["r1", "r2"]


def test_how_it_was_read_is_stated(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(csv(decimal_comma(FRAME), ";").encode("utf-16"))
    notes = " ".join(read_regions(path, WIDE).notes)
    for words in ("UTF-16", "semicolon", "decimal comma", "1 cells of features are missing"):
        assert words in notes


def test_thousands_are_no_decimals_unless_the_user_says_so(tmp_path: Path) -> None:
    adc = [f"{k + 1},{500 + 7 * k}" for k in range(40)]
    path = tmp_path / "table.csv"
    whole = {"t2": [3 + 7 * k % 41 for k in range(40)], "ktrans": [k * k % 97 for k in range(40)]}
    path.write_text(csv(FRAME.assign(adc=adc, **whole), ";"))
    with pytest.raises(CadError, match=r"a thousand \(1500\) or a decimal number \(1.500\)"):
        read_regions(path, WIDE)
    regions = read_regions(path, WIDE, Dialect(decimal="comma"))
    assert regions.X["adc"].iloc[0] == 1.5


def test_grades_are_numbers_ranges_and_words(tmp_path: Path) -> None:
    cells = ["0", "1", "2", ">=2", "<=1", "ISUP 4", "GGG 3", "n/a", "5.0", "benign"] * 4
    path = tmp_path / "table.csv"
    path.write_text(csv(FRAME.assign(cancer=cells)))
    regions = read_regions(
        path, Columns("patient", ("r1",), histology="cancer", isup_min=2, ignored=("r2",))
    )
    expected = ["0", "1", "2", ">=2", "<=1", "4", "3", "", "5", "0"]
    assert regions.rois["isup"].tolist()[:10] == expected


def test_a_preset_takes_what_its_program_measures_and_nothing_else(tmp_path: Path) -> None:
    frame = FRAME.rename(columns={"adc": "original_glcm_Id", "t2": "wavelet-LLH_glrlm_RunEntropy"})
    frame["ADC_original_firstorder_Mean"] = FRAME["ktrans"]
    frame = frame.assign(**{"diagnostics_Versions_PyRadiomics": "v3.0.1", "Image": "a.nii.gz"})
    path = tmp_path / "table.csv"
    path.write_text(csv(frame))
    columns = Columns("patient", ("r*",), histology="cancer", preset="pyradiomics")
    regions = read_regions(path, columns)
    expected = ["original_glcm_Id", "wavelet-LLH_glrlm_RunEntropy", "ADC_original_firstorder_Mean"]
    assert list(regions.X) == expected
    note = "left out by --preset: ktrans, diagnostics_Versions_PyRadiomics, Image"
    assert note in regions.notes


@pytest.mark.parametrize("change", ["features", "ignored"])
def test_a_doubt_ends_with_either_word(change: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(csv(FRAME.assign(flag=FRAME["cancer"])))
    with pytest.raises(CadError, match=r"'flag', rows 2 to 41: .* almost equal histology"):
        read_regions(path, WIDE)
    words = {"features": ("flag",)} if change == "features" else {"ignored": ("flag",)}
    columns = Columns("patient", ("r1", "r2"), histology="cancer", **words)
    assert ("flag" in read_regions(path, columns).X) == (change == "features")


def test_noise_is_not_doubted(tmp_path: Path) -> None:
    """Nothing of 400 columns of noise, half of them of two values, is like the labels or a code."""
    rng = np.random.default_rng(3)
    for n in (16, 40):
        noise = {f"x{k}": rng.normal(size=n) for k in range(200)}
        flags = {f"b{k}": rng.integers(0, 2, n) for k in range(200)}
        frame = FRAME.head(n).reset_index(drop=True)[["patient", "r1", "r2", "cancer"]]
        path = tmp_path / "table.csv"
        path.write_text(csv(pd.concat([frame, pd.DataFrame(noise | flags)], axis=1)))
        assert read_regions(path, WIDE).X.shape == (n, 400)
