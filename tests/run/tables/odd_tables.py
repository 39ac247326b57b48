"""Tables as people have them, each with one thing wrong: how it is made, and what is typed."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

BASE = ("--patient", "patient", "--scores", "r1,r2", "--histology", "cancer")
"""What is right for :func:`sound`."""


def sound() -> pd.DataFrame:
    """Return 40 regions of 20 patients, cells as texts: two readers, histology, three features."""
    rng = np.random.default_rng(7)
    latent = rng.normal(size=40)
    frame = pd.DataFrame({"patient": [f"p{k // 2:02d}" for k in range(40)]})
    for name in ("r1", "r2"):
        frame[name] = np.clip(np.round(3 + latent + rng.normal(0, 1, 40)), 1, 5).astype(int)
    frame["cancer"] = (latent + rng.normal(0, 1, 40) > 0.3).astype(int)
    for name in ("adc", "t2", "ktrans"):
        frame[name] = np.round(latent + rng.normal(0, 1, 40), 4)
    return frame.astype(str)


@dataclass(frozen=True)
class Odd:
    """Hold one odd table: what is wrong, how it is made, what is typed, and what is said of it."""

    name: str
    made: Callable[[pd.DataFrame], str | bytes]
    options: tuple[str, ...] = BASE
    suffix: str = ".csv"
    says: str = ""

    def write(self, folder: Path) -> Path:
        """Write the file and return its path."""
        content = self.made(sound())
        path = folder / f"table{self.suffix}"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


def csv(frame: pd.DataFrame, separator: str = ",") -> str:
    """Return a table as CSV."""
    return frame.to_csv(index=False, sep=separator)


def cell(column: str, value: str, row: int = 5) -> Callable[[pd.DataFrame], str]:
    """Put a value into the cell that a spreadsheet shows in this row."""

    def made(frame: pd.DataFrame) -> str:
        frame.loc[row - 2, column] = value
        return csv(frame)

    return made


def column(name: str, values: Callable[[pd.DataFrame], object]) -> Callable[[pd.DataFrame], str]:
    """Add a column."""
    return lambda frame: csv(frame.assign(**{name: values(frame)}))


def workbook(*sheets: tuple[str, list[list[object]]]) -> bytes:
    """Return the bytes of a workbook of these sheets."""
    from openpyxl import Workbook

    book = Workbook()
    book.remove(book.active)
    for title, rows in sheets:
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose columns of numbers are numbers, NaN where missing."""
    changed = {name: pd.to_numeric(frame[name]) for name in frame.columns if name != "patient"}
    return frame.assign(**changed)


def sheet_of(frame: pd.DataFrame) -> list[list[object]]:
    """Return the rows of a sheet, numbers as numbers."""
    cells = typed(frame).astype(object)
    rows = cells.where(cells.notna(), None).to_numpy().tolist()
    return [list(frame.columns), *rows]


def readings(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row a reading: region, reader, score."""
    frame = frame.assign(lesion=[str(k) for k in range(40)])
    long = frame.melt(
        id_vars=["patient", "lesion", "cancer", "adc", "t2", "ktrans"],
        value_vars=["r1", "r2"],
        var_name="who",
        value_name="grade",
    )
    return long.sort_values("lesion", kind="stable", ignore_index=True)


def _decimal(frame: pd.DataFrame) -> pd.DataFrame:
    changed = {name: frame[name].str.replace(".", ",") for name in ("adc", "t2", "ktrans")}
    return frame.assign(**changed)


def _formula(frame: pd.DataFrame) -> bytes:
    rows = sheet_of(frame)
    rows[4][4] = "=1+1"
    return workbook(("Sheet1", rows))


LONG = ("--patient", "patient", "--histology", "cancer")

ODD: list[Odd] = [
    # Values of features.
    Odd(
        "one word among numbers",
        cell("adc", "abc"),
        says="column 'adc', row 5: 'abc' is no number; 39 other cells are numbers (--missing=abc "
        "where it stands for a missing value; else correct the cell, or leave the column out "
        "with --ignore adc)",
    ),
    Odd(
        "an infinite number",
        cell("adc", "inf"),
        says="column 'adc', row 5: 'inf' is infinite, and a feature is a finite number; 39 other "
        "cells are numbers (--missing=inf where it stands for a missing value; else correct "
        "the cell, or leave the column out with --ignore adc)",
    ),
    Odd(
        "a number beyond all",
        cell("adc", "1e400"),
        says="column 'adc', row 5: '1e400' is larger than 1e+100 in size, which no feature is "
        "(--missing=1e400 where it stands for a missing value; else correct the cell, or "
        "leave the column out with --ignore adc)",
    ),
    Odd(
        "a number whose square overflows",
        cell("adc", "1e300"),
        says="column 'adc', row 5: '1e300' is larger than 1e+100 in size, which no feature is "
        "(--missing=1e300 where it stands for a missing value; else correct the cell, or "
        "leave the column out with --ignore adc)",
    ),
    Odd(
        "an integer of 400 digits",
        cell("adc", "9" * 400),
        says="column 'adc', row 5: '9999999999999999999999999999999999999999…' (400 characters) is"
        " larger than 1e+100 in size, which no feature is (correct the cell, or leave the "
        "column out with --ignore adc)",
    ),
    Odd(
        "a word of logic",
        cell("adc", "True"),
        says="column 'adc', row 5: 'True' is a word of logic, and a feature is a number: write 1 "
        "and 0; 39 other cells are numbers (--missing=True where it stands for a missing "
        "value; else correct the cell, or leave the column out with --ignore adc)",
    ),
    Odd(
        "a number to the base 16",
        cell("adc", "0x10"),
        says="column 'adc', row 5: '0x10' is a number to the base 16, and a feature is written to "
        "the base 10; 39 other cells are numbers (--missing=0x10 where it stands for a "
        "missing value; else correct the cell, or leave the column out with --ignore adc)",
    ),
    Odd(
        "an error of a spreadsheet",
        cell("adc", "#DIV/0!"),
        says="column 'adc', row 5: '#DIV/0!' is an error of a spreadsheet, and a feature is a "
        "number; 39 other cells are numbers (--missing='#DIV/0!' where it stands for a "
        "missing value; else correct the cell, or leave the column out with --ignore adc)",
    ),
    Odd(
        "a unit in the cell",
        cell("adc", "1.2 mm"),
        says="column 'adc', row 5: '1.2 mm' is no number; 39 other cells are numbers "
        "(--missing='1.2 mm' where it stands for a missing value; else correct the cell, or "
        "leave the column out with --ignore adc)",
    ),
    Odd(
        "an underscore in a number",
        cell("adc", "1_000"),
        says="column 'adc', row 5: '1_000' is no number; 39 other cells are numbers "
        "(--missing=1_000 where it stands for a missing value; else correct the cell, or "
        "leave the column out with --ignore adc)",
    ),
    Odd(
        "a number of other digits",
        cell("adc", "١٢"),
        says="column 'adc', row 5: '١٢' is no number; 39 other cells are numbers (--missing='١٢' "
        "where it stands for a missing value; else correct the cell, or leave the column out "
        "with --ignore adc)",
    ),
    Odd(
        "a decimal comma in one cell",
        cell("adc", "0,75"),
        says="numbers are written both ways: '0,75' in column 'adc', row 5, and '-1.0529' in "
        "column 'adc', row 2 (write all of them alike, or say what they mean: --decimal comma"
        " or --decimal point)",
    ),
    Odd(
        "a thousand or a decimal",
        cell("adc", "1,234", 2),
        BASE,
        says="numbers are written both ways: '1,234' in column 'adc', row 2, and '0.6361' in "
        "column 'adc', row 3 (write all of them alike, or say what they mean: --decimal comma"
        " or --decimal point)",
    ),
    Odd(
        "categories",
        column("sex", lambda f: ["F", "M"] * 20),
        says="column 'sex', row 2: 'F' is a category ('F', 'M' in 40 rows), and a feature is a "
        "number (leave it out with --ignore sex, or give every category a column of 0 and 1 "
        "in the table)",
    ),
    Odd(
        "texts",
        column("remark", lambda f: [f"note {k}" for k in range(40)]),
        says="column 'remark', row 2: 'note 0' is no number, nor is any other cell of the column "
        "(leave it out with --ignore remark, or name its role with --id, --patient, --site, "
        "--reader or --histology)",
    ),
    Odd(
        "a code for a missing value",
        column("psa", lambda f: [*["-999"] * 3, *np.round(np.linspace(1, 9, 37) ** 1.3, 2)]),
        says="column 'psa', row 2: '-999' (in 3 rows) lies far from all other values, 1 to 17.4, "
        "as a code for a missing value does (--missing=-999 where it is one; --features psa "
        "where it is a value)",
    ),
    Odd(
        "a large code for a missing value",
        column("psa", lambda f: [*np.round(np.linspace(1, 9, 37) ** 1.3, 2), *["9999"] * 3]),
        says="column 'psa', row 39: '9999' (in 3 rows) lies far from all other values, 1 to 17.4, "
        "as a code for a missing value does (--missing=9999 where it is one; --features psa "
        "where it is a value)",
    ),
    # Scores.
    Odd(
        "a score off the scale",
        cell("r1", "7"),
        says="column 'r1', row 5: score 7 is not on its scale likert5: 1 2 3 4 5 (correct the "
        "cell, --missing=7 where nobody scored, or --scale for another scale (likert5: 1 to "
        "5; likert01: 0 to 1; percent; pirads))",
    ),
    Odd(
        "a score between two steps",
        cell("r2", "3.5"),
        says="column 'r2', row 5: score 3.5 is not on its scale likert5: 1 2 3 4 5 (correct the "
        "cell, --missing=3.5 where nobody scored, or --scale for another scale (likert5: 1 to"
        " 5; likert01: 0 to 1; percent; pirads))",
    ),
    Odd(
        "a score in words alone",
        cell("r1", "sure"),
        says="column 'r1', row 5: 'sure' is no score: a score is a number, alone or with words "
        "after it, such as '5 (sure)' (write the number, or --missing=sure where nobody "
        "scored; a column that holds no scores is taken out of --scores)",
    ),
    Odd(
        "a score as a fraction",
        cell("r1", "4/5"),
        says="column 'r1', row 5: '4/5' is no score: a score is a number, alone or with words "
        "after it, such as '5 (sure)' (write the number, or --missing=4/5 where nobody "
        "scored; a column that holds no scores is taken out of --scores)",
    ),
    Odd(
        "a score that is true",
        cell("r1", "True"),
        says="column 'r1', row 5: 'True' is no score: a score is a number, alone or with words "
        "after it, such as '5 (sure)' (write the number, or --missing=True where nobody "
        "scored; a column that holds no scores is taken out of --scores)",
    ),
    Odd(
        "a score coded as missing",
        cell("r1", "-999"),
        says="column 'r1', row 5: score -999 is not on its scale likert5: 1 2 3 4 5 (correct the "
        "cell, --missing=-999 where nobody scored, or --scale for another scale (likert5: 1 "
        "to 5; likert01: 0 to 1; percent; pirads))",
    ),
    Odd(
        "an unknown scale",
        csv,
        (*BASE, "--scale", "likert7"),
        says="column 'r1', row 2: unknown scale 'likert7', must be one of likert5, likert01, "
        "pirads, percent (did you mean 'likert5'?)",
    ),
    Odd(
        "scores of another scale",
        csv,
        (*BASE, "--scale", "likert01"),
        says="column 'r1', row 2: score 3 is not on its scale likert01: 0 0.25 0.5 0.75 1 (correct"
        " the cell, --missing=3 where nobody scored, or --scale for another scale (likert5: 1"
        " to 5; likert01: 0 to 1; percent; pirads))",
    ),
    Odd(
        "no score at all",
        lambda f: csv(f.assign(r1="", r2="NA")),
        says="no row has a score in r1, r2 (name the columns of the scores with --scores, or leave"
        " it out where only --histology is learned from)",
    ),
    # Histology.
    Odd(
        "a grade where classes are",
        cell("cancer", "3"),
        says="column 'cancer', row 5: '3' looks like an ISUP grade, and without --isup-min "
        "histology is 1 or 0, malignant or benign (say from which grade on it counts as "
        "malignant: --isup-min 2 (clinically significant) or --isup-min 1 (any cancer))",
    ),
    Odd(
        "an unknown word of histology",
        cell("cancer", "suspicious"),
        says="column 'cancer', row 5: 'suspicious' is no histology: malignant or benign, 1 or 0, "
        "true or false, yes or no, positive or negative (write one of these words, or "
        "--missing=suspicious where it is not known)",
    ),
    Odd(
        "a grade beyond 5",
        cell("cancer", "7"),
        (*BASE, "--isup-min", "2"),
        says="column 'cancer', row 5: '7' is no ISUP grade: 0 (no cancer) to 5, or what is known "
        "of it, >=2 or <=1 (take --isup-min out where the column holds two classes; write the"
        " grade, or --missing=7 where it is not known)",
    ),
    Odd(
        "a Gleason sum for a grade",
        cell("cancer", "3+4"),
        (*BASE, "--isup-min", "2"),
        says="column 'cancer', row 5: '3+4' is no ISUP grade: 0 (no cancer) to 5, or what is known"
        " of it, >=2 or <=1 (take --isup-min out where the column holds two classes; write "
        "the grade, or --missing=3+4 where it is not known)",
    ),
    Odd(
        "histology nowhere",
        lambda f: csv(f.assign(cancer="")),
        says="column 'cancer' states no histology in any row (fill it in, or leave --histology "
        "out)",
    ),
    Odd(
        "one class, without readers",
        lambda f: csv(f.assign(cancer="1")),
        ("--patient", "patient", "--histology", "cancer", "--ignore", "r?"),
        says="cancer: all 40 rows with a label have the same, malignant: there is nothing to tell "
        "apart (add regions of another)",
    ),
    Odd(
        "no grade as high",
        csv,
        ("--patient", "patient", "--histology", "cancer", "--ignore", "r?", "--isup-min", "3"),
        says="cancer: all 40 rows with a label have the same, benign: there is nothing to tell "
        "apart (add regions of another, or set --isup-min to a grade that some rows reach and"
        " others do not)",
    ),
    Odd(
        "readers who say all the same",
        lambda f: csv(f.assign(r1="3", r2="3")),
        says="r1, r2: all 40 rows with a label have the same, a mean probability of 0.5 by the "
        "readers: there is nothing to tell apart (add regions of another, or leave --scores "
        "out to learn from 'cancer')",
    ),
    # Roles of columns.
    Odd(
        "histology that is not named",
        csv,
        ("--patient", "patient", "--scores", "r1,r2"),
        says="column 'cancer' is named like histology or an outcome, and would be learned from as "
        "a feature (say what it is: --histology cancer, --ignore cancer, or --features cancer"
        " where it is a feature after all)",
    ),
    Odd(
        "a reader who is not named",
        csv,
        ("--patient", "patient", "--scores", "r1", "--histology", "cancer"),
        says="column 'r2' is named like a reader's scores, and would be learned from as a feature "
        "(say what it is: --scores r2 (a column a reader), --reader r2 (a row a reading), "
        "--ignore r2, or --features r2 where it is a feature after all)",
    ),
    Odd(
        "a reader under another name",
        column("anna", lambda f: f["r1"]),
        says="column 'anna' holds nothing but 1, 2, 3, 4, 5, the scores of the scale likert5: it "
        "looks like a reader's (--scores …,anna --scale likert5 where it is one; --ignore "
        "anna leaves it out; --features anna where it is a feature after all)",
    ),
    Odd(
        "the truth under another name",
        column("flag", lambda f: f["cancer"]),
        says="column 'flag' almost equals histology (correlation 1.000 in 40 rows): learning from "
        "it would be learning the answer (--histology flag or --scores flag where it is the "
        "label; --ignore flag leaves it out; --features flag where it is a feature after all)",
    ),
    Odd(
        "nearly the truth",
        column("flag", lambda f: [*f["cancer"][:39], str(1 - int(f["cancer"][39]))]),
        says="column 'flag' almost equals histology (correlation 0.921 in 40 rows): learning from "
        "it would be learning the answer (--histology flag or --scores flag where it is the "
        "label; --ignore flag leaves it out; --features flag where it is a feature after all)",
    ),
    Odd(
        "a column made from the truth",
        column(
            "risk", lambda f: [str(int(c) + k / 1000 * (k % 7)) for k, c in enumerate(f["cancer"])]
        ),
        says="column 'risk' almost equals histology (correlation 0.990 in 40 rows): learning from "
        "it would be learning the answer (--histology risk or --scores risk where it is the "
        "label; --ignore risk leaves it out; --features risk where it is a feature after all)",
    ),
    Odd(
        "the readers' mean under another name",
        column("m", lambda f: (f["r1"].astype(int) + f["r2"].astype(int)) / 2),
        says="column 'm' almost equals the readers' mean (correlation 1.000 in 40 rows): learning "
        "from it would be learning the answer (--histology m or --scores m where it is the "
        "label; --ignore m leaves it out; --features m where it is a feature after all)",
    ),
    Odd(
        "one reader twice",
        csv,
        ("--patient", "patient", "--scores", "r1,r1", "--histology", "cancer"),
        says="column 'r1' is named twice by --scores (name every column once: a reader who counts "
        "twice outweighs the others)",
    ),
    Odd(
        "one column, two roles",
        csv,
        ("--patient", "patient", "--scores", "r1,cancer", "--histology", "cancer"),
        says="column 'cancer' is named by --histology and by --scores (a column has one role: take"
        " it out of one of the two)",
    ),
    Odd(
        "taken in and left out",
        csv,
        (*BASE, "--features", "adc", "--ignore", "a*"),
        says="column 'adc' is named by --features and by --ignore (take it out of one of the two)",
    ),
    Odd(
        "a number of the row",
        column("k", lambda f: range(100, 140)),
        says="column 'k' only numbers the rows: 100, 101, 102 and so on (--id k where it names the"
        " regions; --ignore k leaves it out; --features k where it is a feature after all)",
    ),
    Odd(
        "a pandas index",
        lambda f: f.to_csv(),
        says="column 'Unnamed: 0' is named like an id, and would be learned from as a feature (say"
        " what it is: --id 'Unnamed: 0', --ignore 'Unnamed: 0', or --features 'Unnamed: 0' "
        "where it is a feature after all)",
    ),
    Odd(
        "an id that is not named",
        column("lesion_id", lambda f: np.arange(40) * 3 % 41),
        says="column 'lesion_id' is named like an id, and would be learned from as a feature (say "
        "what it is: --id lesion_id, --ignore lesion_id, or --features lesion_id where it is "
        "a feature after all)",
    ),
    Odd(
        "a site that is not named",
        column("hospital", lambda f: np.arange(40) % 3),
        says="column 'hospital' is named like the site, and would be learned from as a feature "
        "(say what it is: --site hospital, --ignore hospital, or --features hospital where it"
        " is a feature after all)",
    ),
    Odd(
        "no column of that name",
        csv,
        ("--patient", "patients", "--scores", "r1,r2", "--histology", "cancer"),
        says="no column 'patients', which --patient names (did you mean --patient patient? the "
        "table has patient, r1, r2, cancer, adc, t2, ktrans)",
    ),
    Odd(
        "a wildcard for nothing",
        csv,
        (*BASE, "--ignore", "diagnostics_*"),
        says="no column fits 'diagnostics_*', which --ignore names (name the right one with "
        "--ignore: the table has patient, r1, r2, cancer, adc, t2, ktrans)",
    ),
    Odd(
        "no patient column by default",
        csv,
        ("--scores", "r1,r2", "--histology", "cancer"),
        says="no column 'participant_id', which --patient names (did you mean --patient patient? "
        "the table has patient, r1, r2, cancer, adc, t2, ktrans)",
    ),
    Odd(
        "nothing to learn",
        csv,
        ("--patient", "patient"),
        says="neither readers' scores nor histology is named, so that there is nothing to learn "
        "(name the columns of the scores with --scores r1,r2, that of an outcome with "
        "--histology, or both)",
    ),
    Odd(
        "no feature",
        csv,
        (*BASE, "--ignore", "adc,t2,ktrans"),
        says="no feature is left: each of the 7 columns has another role or is left out (name "
        "fewer columns by --ignore)",
    ),
    Odd(
        "an unknown preset",
        csv,
        (*BASE, "--preset", "mirp"),
        says="--preset 'mirp' is not known (known: pyradiomics)",
    ),
    Odd(
        "a preset without its columns",
        csv,
        (*BASE, "--preset", "pyradiomics"),
        says="no column is called as those of pyradiomics, which begin with original_*, wavelet*, "
        "log-sigma-*, square_*, squareroot_*, logarithm_*, exponential_*, gradient_*, lbp-* "
        "(take --preset out, or name the features with --features)",
    ),
    Odd(
        "a row without a patient",
        cell("patient", ""),
        says="column 'patient', row 5: '' names nobody, and --patient is needed in every row (fill"
        " in the cell, or take the row out of the table)",
    ),
    Odd(
        "one id twice",
        column("roi", lambda f: ["a"] * 40),
        (*BASE, "--id", "roi"),
        says="patient p00, column 'roi', row 3: 'a' is in an earlier row of the same patient "
        "(--reader COLUMN where a row is one reading; else give every region its own id)",
    ),
    Odd(
        "two sites of one patient",
        column("hospital", lambda f: [f"s{k % 2}" for k in range(40)]),
        (*BASE, "--site", "hospital"),
        says="patient p00, column 'hospital', rows 2 to 3: one patient is of 2 sites (a patient "
        "has one site: correct the cells, or leave --site out)",
    ),
    # Rows.
    Odd(
        "empty",
        lambda f: "",
        says="the file is empty: a table has a first row with the names of its columns (export the"
        " table again)",
    ),
    Odd(
        "blank lines only",
        lambda f: "\n\n\n",
        says="the file is empty: a table has a first row with the names of its columns (export the"
        " table again)",
    ),
    Odd(
        "a head only",
        lambda f: csv(f.head(0)),
        says="the table has a head of 7 columns and no row under it (export the table again, with "
        "a row for every region)",
    ),
    Odd(
        "no head",
        lambda f: f.to_csv(index=False, header=False),
        says="the first row holds numbers (3, 3, 0), where the names of the columns are expected "
        "(put a row of names above the first region)",
    ),
    Odd(
        "one patient",
        lambda f: csv(f.assign(patient="p1")),
        says="column 'patient', rows 2 to 41: 40 regions of 1 patient(s), 'p1' the first; learning"
        " and validating take 5 patients at the least (give more patients, or name the column"
        " of the patient with --patient)",
    ),
    Odd(
        "four rows",
        lambda f: csv(f.iloc[::2].head(4)),
        says="column 'patient', rows 2 to 5: 4 regions of 4 patient(s), 'p00' the first; learning "
        "and validating take 5 patients at the least (give more patients, or name the column "
        "of the patient with --patient)",
    ),
    Odd(
        "a row that was cut off",
        lambda f: csv(f)[:-12],
        says="row 41 has 6 cell(s) where the head has 7 (a cell that holds the separator, such as "
        "0,75 between commas, is put in quotes or written 0.75)",
    ),
    Odd(
        "an unquoted decimal comma",
        lambda f: csv(f).replace("-0.", "-0,", 1),
        says="row 2 has 8 cell(s) where the head has 7 (a cell that holds the separator, such as "
        "0,75 between commas, is put in quotes or written 0.75)",
    ),
    Odd(
        "a quote without an end",
        lambda f: csv(f).replace("p05", '"p05', 1),
        says="row 12: a quoted cell has no end, or text follows its closing quote (a quote within "
        'a quoted cell is written twice: "5"" long")',
    ),
    Odd(
        "a control character in a name",
        lambda f: csv(f).replace("t2,", "\x1b[31mred,", 1),
        says="column name '\\x1b[31mred' holds the control character '\\x1b' (rename the column)",
    ),
    Odd(
        "two columns of one name",
        lambda f: csv(f).replace("t2,", "adc,", 1),
        says="columns 5 and 6 are both called 'adc' (rename or remove one of them)",
    ),
    Odd(
        "one column only",
        lambda f: csv(f[["adc"]]),
        says="no column 'patient', which --patient names (name the right one with --patient: the "
        "table has adc)",
    ),
    # A row a reading.
    Odd(
        "readings under plain names",
        lambda f: csv(readings(f)),
        (*LONG, "--scores", "grade", "--ignore", "who,lesion"),
        says="patient p00, rows 2 and 3 have the same features, and so have 80 of 80 rows: a row "
        "seems to be one reading, not one region (--reader COLUMN --id COLUMN --scores COLUMN"
        " for one row a reading; --id COLUMN alone where the rows are regions after all)",
    ),
    Odd(
        "readers' names as a feature",
        lambda f: csv(readings(f).rename(columns={"who": "reader"})),
        (*LONG, "--scores", "grade", "--id", "lesion"),
        says="column 'reader' is named like a reader's scores, and would be learned from as a "
        "feature (say what it is: --scores reader (a column a reader), --reader reader (a row"
        " a reading), --ignore reader, or --features reader where it is a feature after all)",
    ),
    Odd(
        "readings without an id",
        lambda f: csv(readings(f).drop(columns="lesion")),
        (*LONG, "--scores", "grade", "--reader", "who"),
        says="--reader who says that a row is one reading, and no column says of which region "
        "(name the column that tells the regions of a patient apart with --id)",
    ),
    Odd(
        "a reading twice",
        lambda f: csv(pd.concat([readings(f), readings(f).tail(1)])),
        (*LONG, "--scores", "grade", "--reader", "who", "--id", "lesion"),
        says="patient p04, ROI 9, row 82: reader 'r2' scored this region in an earlier row, and a "
        "region has one score of a reader (take one of the two rows out, or name the column "
        "that tells the regions of a patient apart with --id)",
    ),
    Odd(
        "a region with two values",
        lambda f: csv(readings(f).assign(adc=lambda g: np.arange(80))),
        (*LONG, "--scores", "grade", "--reader", "who", "--id", "lesion"),
        says="patient p00, ROI 0, column 'adc', row 3: '1', and '0' in row 2 of the same region, "
        "which has one value (correct one of them, name the regions with --id, or --ignore "
        "adc)",
    ),
    Odd(
        "two columns of scores for readings",
        lambda f: csv(readings(f)),
        (*LONG, "--scores", "grade,adc", "--reader", "who", "--id", "lesion"),
        says="--reader who says that a row is one reading, and --scores names 2 columns (name the "
        "one column of scores, or leave --reader out)",
    ),
    # Forms of files.
    Odd(
        "both decimals",
        lambda f: csv(_decimal(f).assign(t2=f["t2"]), ";"),
        says="numbers are written both ways: '-1,0529' in column 'adc', row 2, and '-1.2454' in "
        "column 't2', row 2 (write all of them alike, or say what they mean: --decimal comma "
        "or --decimal point)",
    ),
    Odd(
        "thousands or decimals",
        lambda f: csv(
            f.assign(
                adc=[f"{k},{500 + k}" for k in range(1, 41)],
                t2=range(3, 163, 4),
                ktrans=range(7, 207, 5),
            ),
            ";",
        ),
        says="'1,501' in column 'adc', row 2, is a thousand or a decimal number (--decimal comma "
        "where it is a decimal number; else write thousands without comma)",
    ),
    Odd(
        "two ways to cut the rows",
        lambda f: csv(f).replace(",", ";x,"),
        says="the rows can be cut into cells in 2 ways (--separator comma (7 columns) or "
        "--separator semicolon (7 columns))",
    ),
    Odd(
        "an unknown separator",
        csv,
        (*BASE, "--separator", ";"),
        says="--separator ';' is none of comma, semicolon, tab, bar (write the word, not the "
        "character)",
    ),
    Odd(
        "Latin letters of Windows",
        lambda f: csv(f.assign(note="größer")).encode("cp1252"),
        (*BASE, "--ignore", "note"),
        says="row 2 holds bytes that are no UTF-8 text (b'\\xf6\\xdfer') (say how it is encoded: "
        "--encoding cp1252 (Windows) or --encoding latin-1)",
    ),
    Odd(
        "an unknown encoding",
        csv,
        (*BASE, "--encoding", "utf-9"),
        says="--encoding 'utf-9' is no text encoding (for example utf-8, utf-16, cp1252 or "
        "latin-1)",
    ),
    Odd(
        "a NUL character",
        lambda f: csv(f).replace("p07", "p\x00", 1),
        says="row 16 holds a NUL character, which no text has (export the table again as CSV in "
        "UTF-8)",
    ),
    Odd(
        "two sheets",
        lambda f: workbook(("Lesions", sheet_of(f)), ("Notes", [["a"]])),
        suffix=".xlsx",
        says="2 sheets hold cells: Lesions, Notes (choose one: --sheet 'Lesions')",
    ),
    Odd(
        "no such sheet",
        lambda f: workbook(("Lesions", sheet_of(f))),
        (*BASE, "--sheet", "Regions"),
        ".xlsx",
        says="no sheet 'Regions' (the workbook has Lesions)",
    ),
    Odd(
        "a formula without its value",
        _formula,
        suffix=".xlsx",
        says="cell E5 of sheet 'Sheet1' holds the formula '=1+1' and no value (open and save the "
        "workbook in a spreadsheet program, which computes it)",
    ),
    Odd(
        "an empty workbook",
        lambda f: workbook(("Sheet1", [])),
        suffix=".xlsx",
        says="the file is empty: a table has a first row with the names of its columns (export the"
        " table again)",
    ),
    Odd(
        "the old Excel format",
        lambda f: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
        suffix=".xls",
        says="a workbook of the old Excel format (.xls), which is not read (save it as .xlsx or as"
        " CSV)",
    ),
    Odd(
        "a packed table",
        lambda f: b"\x1f\x8b\x08\x00" + bytes(60),
        suffix=".csv.gz",
        says="a file packed by gzip (unpack it (gunzip), and give the table)",
    ),
    Odd(
        "a zip archive",
        lambda f: b"PK\x03\x04" + bytes(60),
        suffix=".xlsx",
        says="the file begins as an Excel workbook or a zip archive and is neither: it is damaged "
        "(save the workbook again, or export the table as CSV)",
    ),
    # Learners and their parameters.
    Odd(
        "an unknown learner",
        csv,
        (*BASE, "--learner", "oracle"),
        says="no learner 'oracle' (known: AveragedProbabilisticSVC, FuzzySVC, KernelLogistic, "
        "LogitSVR, OPAUC, PlattSVC, ProbabilisticEnsemble, ProbabilisticSVC, RankBoost, "
        "RejectSVC, SSLROC, SSRankBoost, SVMLin, SVMROC, SoftExtraTrees, SoftPlattSVC, "
        "logistic on soft labels, kernel ridge on p, Gaussian process on p, boosting on soft "
        "labels, extra trees on p, SVM, Platt on soft targets)",
    ),
    Odd(
        "an unknown parameter",
        csv,
        (*BASE, "--learner", "ProbabilisticSVC:gama=1"),
        says="ProbabilisticSVC has no parameter 'gama' (it has C, C_soft, boundary, cache_size, "
        "coef0, degree, eta, eta0, gamma, kappa, kernel, scale, solver, tol)",
    ),
    Odd(
        "no value of a parameter",
        csv,
        (*BASE, "--learner", "ProbabilisticSVC:C"),
        says="--learner ProbabilisticSVC:C: 'C' has no value (parameters look like "
        "kernel=linear,C=10)",
    ),
    Odd(
        "a negative cost",
        csv,
        (*BASE, "--learner", "ProbabilisticSVC:C=-1", "--folds", "2"),
        says="--learner: C = -1, must be a finite number > 0 (for example C=1.0) (give C another "
        "value)",
    ),
    Odd(
        "a word for a cost",
        csv,
        (*BASE, "--learner", "ProbabilisticSVC:C=large"),
        says="learner.params.C: expected a number, found 'large' (YAML reads 1e-3 as a word and "
        "1.0e-3 as a number)",
    ),
    Odd(
        "an unknown pipeline",
        csv,
        (*BASE, "--pipeline", "svm"),
        says="no such path or name in pipelines: svm (known: demo, ensemble, niaf2014, psvm, "
        "psvm-biparametric)",
    ),
    Odd(
        "more folds than patients",
        csv,
        (*BASE, "--learner", "ProbabilisticSVC", "--folds", "50"),
        says="50 folds of 20 patients: there must be 2 to 20 (leave folds out to leave out one "
        "patient at a time)",
    ),
]
