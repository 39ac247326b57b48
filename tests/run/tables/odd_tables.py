"""Tables as people have them, each with one thing wrong: how it is made, and what is typed."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

BASE = ("--patient", "patient", "--scores", "r1,r2", "--histology", "cancer")
"""The right answer for :func:`sound`."""


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


def merged(frame: pd.DataFrame) -> bytes:
    """Return a workbook in which three cells of a column are merged."""
    from openpyxl import load_workbook

    book = load_workbook(io.BytesIO(workbook(("Lesions", sheet_of(frame)))))
    book["Lesions"].merge_cells("D3:D5")
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


def parquet(frame: pd.DataFrame) -> bytes:
    """Return the bytes of a parquet file."""
    stream = io.BytesIO()
    frame.to_parquet(stream)
    return stream.getvalue()


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
        says="column 'adc', row 5: 'abc' is no number; 39 other cells are numbers (--missing=abc"
        " where it stands for a missing value; else correct the cell, or leave the column "
        "out with --ignore adc)",
    ),
    Odd(
        "an infinite number",
        cell("adc", "inf"),
        says="column 'adc', row 5: 'inf' is infinite, and a feature is a finite number; 39 other"
        " cells are numbers (--missing=inf where it stands for a missing value; else "
        "correct the cell, or leave the column out with --ignore adc)",
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
        says="column 'adc', row 5: '9999999999999999999999999999999999999999…' (400 characters) "
        "is larger than 1e+100 in size, which no feature is (correct the cell, or leave the"
        " column out with --ignore adc)",
    ),
    Odd(
        "a word of logic",
        cell("adc", "True"),
        says="column 'adc', row 5: 'True' is a word of logic, and a feature is a number: write 1"
        " and 0; 39 other cells are numbers (--missing=True where it stands for a missing "
        "value; else correct the cell, or leave the column out with --ignore adc)",
    ),
    Odd(
        "a number to the base 16",
        cell("adc", "0x10"),
        says="column 'adc', row 5: '0x10' is a number to the base 16, and a feature is written "
        "to the base 10; 39 other cells are numbers (--missing=0x10 where it stands for a "
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
        "(--missing='1.2 mm' where it stands for a missing value; else correct the cell, or"
        " leave the column out with --ignore adc)",
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
        says="column 'adc', row 5: '١٢' is written with other signs than 0 to 9, + and -, which "
        "alone are read as a number; 39 other cells are numbers (write 12, or leave the "
        "column out with --ignore adc)",
    ),
    Odd(
        "a decimal comma in one cell",
        cell("adc", "0,75"),
        says="column 'adc', row 5: '0,75' has a decimal comma, and column 'adc', row 2: "
        "'-1.0529' has a decimal point, where a table writes all numbers alike (write 0.75 "
        "in row 5)",
    ),
    Odd(
        "a thousand or a decimal",
        cell("adc", "1,234", 2),
        BASE,
        says="column 'adc', row 2: '1,234' is a thousand (1234) or a decimal number (1.234), and"
        " column 'adc', row 3: '0.6361' has a decimal point, where a table writes all "
        "numbers alike (write 1.234 or 1234 in row 2)",
    ),
    Odd(
        "categories",
        column("sex", lambda f: ["F", "M"] * 20),
        says="column 'sex', row 2: 'F' is a category ('F', 'M' in 40 rows), and a feature is a "
        "number (leave it out with --ignore sex, or give every category a column of 0 and 1"
        " in the table)",
    ),
    Odd(
        "texts",
        column("remark", lambda f: [f"note {k}" for k in range(40)]),
        says="column 'remark', row 2: 'note 0' is no number; no cell of the column is a number "
        "(leave it out with --ignore remark, or name its role with --id, --patient, --site,"
        " --reader or --histology)",
    ),
    Odd(
        "a code for a missing value",
        column("psa", lambda f: [*["-999"] * 3, *np.round(np.linspace(1, 9, 37) ** 1.3, 2)]),
        says="column 'psa', row 2: '-999' (in 3 rows) lies far from all other values, 1 to 17.4,"
        " as a code for a missing value does (--missing=-999 where it is one; --features "
        "psa to take the column as it is, with this value)",
    ),
    Odd(
        "a large code for a missing value",
        column("psa", lambda f: [*np.round(np.linspace(1, 9, 37) ** 1.3, 2), *["9999"] * 3]),
        says="column 'psa', row 39: '9999' (in 3 rows) lies far from all other values, 1 to "
        "17.4, as a code for a missing value does (--missing=9999 where it is one; "
        "--features psa to take the column as it is, with this value)",
    ),
    # Scores.
    Odd(
        "a score off the scale",
        cell("r1", "7"),
        says="column 'r1', row 5: score 7 is not on its scale likert5: 1 2 3 4 5 (correct the "
        "cell, or --missing=7 where nobody scored; --scale for another scale than likert5 "
        "(likert5: 1 to 5; likert01: 0 to 1; percent: 0 to 100; pirads: 1 to 5))",
    ),
    Odd(
        "a score between two steps",
        cell("r2", "3.5"),
        says="column 'r2', row 5: score 3.5 is not on its scale likert5: 1 2 3 4 5 (correct the "
        "cell, or --missing=3.5 where nobody scored; --scale for another scale than likert5"
        " (likert5: 1 to 5; likert01: 0 to 1; percent: 0 to 100; pirads: 1 to 5))",
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
        says="column 'r1', row 5: score -999 is not on its scale likert5: 1 2 3 4 5 (correct the"
        " cell, or --missing=-999 where nobody scored; --scale for another scale than "
        "likert5 (likert5: 1 to 5; likert01: 0 to 1; percent: 0 to 100; pirads: 1 to 5))",
    ),
    Odd(
        "an unknown scale",
        csv,
        (*BASE, "--scale", "likert7"),
        says="--scale 'likert7' is not known (did you mean --scale likert5? known: likert5, "
        "likert01, pirads, percent)",
    ),
    Odd(
        "scores of another scale",
        csv,
        (*BASE, "--scale", "likert01"),
        says="column 'r1', row 2: score 3 is not on its scale likert01: 0 0.25 0.5 0.75 1 "
        "(correct the cell, or --missing=3 where nobody scored; --scale for another scale "
        "than likert01 (likert5: 1 to 5; likert01: 0 to 1; percent: 0 to 100; pirads: 1 to "
        "5))",
    ),
    Odd(
        "no score at all",
        lambda f: csv(f.assign(r1="", r2="NA")),
        says="columns 'r1', 'r2', rows 2 to 41: no cell holds a score, '' in row 2 among them "
        "(name the columns of the scores with --scores, or leave it out where only "
        "--histology is learned from)",
    ),
    # Histology.
    Odd(
        "a grade where classes are",
        cell("cancer", "3"),
        says="column 'cancer', row 5: '3' looks like an ISUP grade, and without --isup-min "
        "histology is 1 or 0, malignant or benign (say from which grade on it counts as "
        "malignant: --isup-min 2 (clinically significant) or --isup-min 1 (any cancer); "
        "where it is one of two classes, write 1 or 0)",
    ),
    Odd(
        "an unknown word of histology",
        cell("cancer", "suspicious"),
        says="column 'cancer', row 5: 'suspicious' is no histology: malignant or benign, 1 or 0,"
        " true or false, yes or no, positive or negative (write one of these words, or "
        "--missing=suspicious where it is not known)",
    ),
    Odd(
        "a grade beyond 5",
        cell("cancer", "7"),
        (*BASE, "--isup-min", "2"),
        says="column 'cancer', row 5: '7' is no ISUP grade: 0 (no cancer) to 5, or what is known"
        " of it, >=2 or <=1 (take --isup-min out where the column holds two classes; write "
        "the grade, or --missing=7 where it is not known)",
    ),
    Odd(
        "a Gleason sum for a grade",
        cell("cancer", "3+4"),
        (*BASE, "--isup-min", "2"),
        says="column 'cancer', row 5: '3+4' is a Gleason score, and --isup-min 2 needs an ISUP "
        "grade, 0 to 5 (write the grade of the score: 3+3 is 1, 3+4 is 2, 4+3 is 3, 4+4, "
        "3+5 and 5+3 are 4, 9 and 10 are 5; 0 is no cancer)",
    ),
    Odd(
        "histology nowhere",
        lambda f: csv(f.assign(cancer="")),
        says="column 'cancer', rows 2 to 41: no cell states histology, '' in row 2 among them "
        "(fill it in, name another column with --histology, or leave --histology out to "
        "learn from --scores)",
    ),
    Odd(
        "one class, without readers",
        lambda f: csv(f.assign(cancer="1")),
        ("--patient", "patient", "--histology", "cancer", "--ignore", "r?"),
        says="column 'cancer', rows 2 to 41: '1' in 40 rows, which makes all 40 rows malignant, "
        "and there is nothing to tell apart without benign ones (add benign regions, or "
        "name another outcome with --histology)",
    ),
    Odd(
        "no grade as high",
        csv,
        ("--patient", "patient", "--histology", "cancer", "--ignore", "r?", "--isup-min", "3"),
        says="column 'cancer', rows 2 to 41: '0' in 33 rows, '1' in 7 rows, which makes all 40 "
        "rows benign with --isup-min 3, and there is nothing to tell apart without "
        "malignant ones (set --isup-min to a grade that some rows reach and others do not; "
        "take it out where the column holds two classes; or add malignant regions)",
    ),
    Odd(
        "readers who say all the same",
        lambda f: csv(f.assign(r1="3", r2="3")),
        says="columns 'r1', 'r2', rows 2 to 41: the readers' mean is a probability of 0.5 in all"
        " 40 rows with a score, and there is nothing to tell apart (add regions that were "
        "scored higher or lower, or leave --scores out to learn from 'cancer')",
    ),
    # Roles of columns.
    Odd(
        "histology that is not named",
        csv,
        ("--patient", "patient", "--scores", "r1,r2"),
        says="column 'cancer', row 2: '0': the column is named like histology or an outcome, and"
        " would be learned from as a feature (say what it is: --histology cancer, --ignore "
        "cancer to leave it out, or --features cancer to take it as a feature after all)",
    ),
    Odd(
        "a reader who is not named",
        csv,
        ("--patient", "patient", "--scores", "r1", "--histology", "cancer"),
        says="column 'r2', row 2: '3': the column is named like a reader's scores, and would be "
        "learned from as a feature (say what it is: --scores r1,r2 (a column a reader), "
        "--reader r2 (a row a reading), --ignore r2 to leave it out, or --features r2 to "
        "take it as a feature after all)",
    ),
    Odd(
        "a reader under another name",
        column("anna", lambda f: f["r1"]),
        says="column 'anna', rows 2 to 41: nothing but 1, 2, 3, 4, 5, the scores of the scale "
        "likert5: the column looks like a reader's scores, which are no feature (--scores "
        "r1,r2,anna --scale likert5 where it is one; --ignore anna leaves it out; "
        "--features anna takes it as a feature after all)",
    ),
    Odd(
        "the truth under another name",
        column("flag", lambda f: f["cancer"]),
        says="column 'flag', rows 2 to 41: '0', '0', '0' and so on almost equal histology: the "
        "correlation is 1.000 in 40 rows, and from 0.9 on a column of two values says the "
        "answer, which would be learned instead of anything measured (--histology flag or "
        "--scores flag where it is the label; --ignore flag leaves it out; --features flag "
        "takes it as a feature after all)",
    ),
    Odd(
        "nearly the truth",
        column("flag", lambda f: [*f["cancer"][:39], str(1 - int(f["cancer"][39]))]),
        says="column 'flag', rows 2 to 41: '0', '0', '0' and so on almost equal histology: the "
        "correlation is 0.921 in 40 rows, and from 0.9 on a column of two values says the "
        "answer, which would be learned instead of anything measured (--histology flag or "
        "--scores flag where it is the label; --ignore flag leaves it out; --features flag "
        "takes it as a feature after all)",
    ),
    Odd(
        "a column made from the truth",
        column(
            "risk", lambda f: [str(int(c) + k / 1000 * (k % 7)) for k, c in enumerate(f["cancer"])]
        ),
        says="column 'risk', rows 2 to 41: '0.0', '0.001', '0.004' and so on almost equal "
        "histology: the correlation is 0.990 in 40 rows, and from 0.98 on a column says the"
        " answer, which would be learned instead of anything measured (--histology risk or "
        "--scores risk where it is the label; --ignore risk leaves it out; --features risk "
        "takes it as a feature after all)",
    ),
    Odd(
        "the readers' mean under another name",
        column("m", lambda f: (f["r1"].astype(int) + f["r2"].astype(int)) / 2),
        says="column 'm', rows 2 to 41: '3.0', '3.0', '2.5' and so on almost equal the readers' "
        "mean: the correlation is 1.000 in 40 rows, and from 0.98 on a column says the "
        "answer, which would be learned instead of anything measured (--histology m or "
        "--scores m where it is the label; --ignore m leaves it out; --features m takes it "
        "as a feature after all)",
    ),
    Odd(
        "one reader twice",
        csv,
        ("--patient", "patient", "--scores", "r1,r1", "--histology", "cancer"),
        says="--scores r1,r1 names the column 'r1' twice, and a reader who counts twice "
        "outweighs the others (--scores r1)",
    ),
    Odd(
        "one column, two roles",
        csv,
        ("--patient", "patient", "--scores", "r1,cancer", "--histology", "cancer"),
        says="--histology cancer and --scores r1,cancer both name the column 'cancer', and a "
        "column has one role (take cancer out of --histology or out of --scores)",
    ),
    Odd(
        "taken in and left out",
        csv,
        (*BASE, "--features", "adc", "--ignore", "a*"),
        says="column 'adc' is taken in by --features adc and left out by --ignore 'a*', and a "
        "column is either a feature or none (take 'adc' out of one of the two; a wildcard "
        "that takes too much is written as a list of columns)",
    ),
    Odd(
        "a number of the row",
        column("k", lambda f: range(100, 140)),
        says="column 'k', rows 2 to 41: 100, 101, 102 and so on only number the rows, and a "
        "feature measures something (--id k where it names the regions; --ignore k leaves "
        "it out; --features k takes it as a feature after all)",
    ),
    Odd(
        "a pandas index",
        lambda f: f.to_csv(),
        says="column 'Unnamed: 0', row 2: '0': the column is named like an id, and would be "
        "learned from as a feature (say what it is: --id 'Unnamed: 0', --ignore 'Unnamed: "
        "0' to leave it out, or --features 'Unnamed: 0' to take it as a feature after all)",
    ),
    Odd(
        "an id that is not named",
        column("lesion_id", lambda f: np.arange(40) * 3 % 41),
        says="column 'lesion_id', row 2: '0': the column is named like an id, and would be "
        "learned from as a feature (say what it is: --id lesion_id, --ignore lesion_id to "
        "leave it out, or --features lesion_id to take it as a feature after all)",
    ),
    Odd(
        "a site that is not named",
        column("hospital", lambda f: np.arange(40) % 3),
        says="column 'hospital', row 2: '0': the column is named like the site, and would be "
        "learned from as a feature (say what it is: --site hospital, --ignore hospital to "
        "leave it out, or --features hospital to take it as a feature after all)",
    ),
    Odd(
        "no column of that name",
        csv,
        ("--patient", "patients", "--scores", "r1,r2", "--histology", "cancer"),
        says="--patient 'patients': the table has no column of that name (did you mean --patient"
        " patient? the table has the columns patient, r1, r2, cancer, adc, t2, ktrans)",
    ),
    Odd(
        "a wildcard for nothing",
        csv,
        (*BASE, "--ignore", "diagnostics_*"),
        says="--ignore 'diagnostics_*': the wildcard fits no column, and a word that names "
        "nothing is taken for a mistake (take it out, or correct it: the table has the "
        "columns patient, r1, r2, cancer, adc, t2, ktrans)",
    ),
    Odd(
        "no patient column by default",
        csv,
        ("--scores", "r1,r2", "--histology", "cancer"),
        says="--patient 'participant_id': the table has no column of that name (did you mean "
        "--patient patient? the table has the columns patient, r1, r2, cancer, adc, t2, "
        "ktrans)",
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
        says="none of the 7 columns is left as a feature, and learning takes one at least: "
        "--patient patient; --histology cancer; --scores r1, r2; --ignore adc, t2, ktrans "
        "(name fewer columns by --ignore, or give a table with columns of features)",
    ),
    Odd(
        "an unknown preset",
        csv,
        (*BASE, "--preset", "mirp"),
        says="--preset 'mirp' is not known (known: pyradiomics; without --preset, every column "
        "that no option names is a feature)",
    ),
    Odd(
        "a preset without its columns",
        csv,
        (*BASE, "--preset", "pyradiomics"),
        says="--preset pyradiomics: no column is called as those of pyradiomics (left are adc, "
        "t2, ktrans), which begin with original_*, wavelet*, log-sigma-*, square_*, "
        "squareroot_*, logarithm_*, exponential_*, gradient_*, lbp-* (take --preset out, or"
        " name the features with --features)",
    ),
    Odd(
        "a row without a patient",
        cell("patient", ""),
        says="column 'patient', row 5: '' names nobody, and --patient is needed in every row "
        "(fill in the cell, or take the row out of the table)",
    ),
    Odd(
        "one id twice",
        column("roi", lambda f: ["a"] * 40),
        (*BASE, "--id", "roi"),
        says="patient p00, column 'roi', rows 2 and 3: both are 'a', and an id names one region "
        "of a patient (--reader COLUMN where a row is one reading; else give every region "
        "its own id, or leave --id out to have the rows of a patient numbered)",
    ),
    Odd(
        "two sites of one patient",
        column("hospital", lambda f: [f"s{k % 2}" for k in range(40)]),
        (*BASE, "--site", "hospital"),
        says="patient p00, column 'hospital', row 2: 's0', and row 3: 's1' of the same patient, "
        "who has one site (correct one of the cells; give a patient of two sites a name at "
        "each; or leave the site out: --ignore hospital in place of --site)",
    ),
    # Rows.
    Odd(
        "empty",
        lambda f: "",
        says="the file is empty: a table has a first row with the names of its columns (export "
        "the table again)",
    ),
    Odd(
        "blank lines only",
        lambda f: "\n\n\n",
        says="the file is empty: a table has a first row with the names of its columns (export "
        "the table again)",
    ),
    Odd(
        "a head only",
        lambda f: csv(f.head(0)),
        says="the table has a head of 7 columns and no row under it (export the table again, "
        "with a row for every region)",
    ),
    Odd(
        "no head",
        lambda f: f.to_csv(index=False, header=False),
        says="row 1 holds numbers (3, 3, 0), where the names of the columns are expected (put a "
        "row of names above the first region)",
    ),
    Odd(
        "one patient",
        lambda f: csv(f.assign(patient="p1")),
        says="column 'patient', rows 2 to 41: 40 regions of 1 patient(s), 'p1' the first; "
        "learning and validating take 5 patients at the least (give more patients, or name "
        "the column of the patient with --patient)",
    ),
    Odd(
        "four rows",
        lambda f: csv(f.iloc[::2].head(4)),
        says="column 'patient', rows 2 to 5: 4 regions of 4 patient(s), 'p00' the first; "
        "learning and validating take 5 patients at the least (give more patients, or name "
        "the column of the patient with --patient)",
    ),
    Odd(
        "a row that was cut off",
        lambda f: csv(f)[:-12],
        says="row 41 has 6 cell(s) where row 1, the head, has 7: it ends with '-1.' in column "
        "'t2', and nothing is in column 'ktrans' (the last row: where the file was cut off,"
        " export it again; else fill in the row)",
    ),
    Odd(
        "an unquoted decimal comma",
        lambda f: csv(f).replace("-0.", "-0,", 1),
        says="row 2 has 8 cell(s) where row 1, the head, has 7; cells 7 and 8, '-0' and '459' "
        "from column 'ktrans' on, look like one number with a decimal comma (write -0.459, "
        "or put quotes about the cell)",
    ),
    Odd(
        "a quote without an end",
        lambda f: csv(f).replace("p05", '"p05', 1),
        says="row 12: a quoted cell has no end, or text follows its closing quote, in "
        "'\"p05,4,3,0,-0.2625,0.4774,-2.7616' (close the quote, or write a quote within a "
        'quoted cell twice: "5"" long")',
    ),
    Odd(
        "a control character in a name",
        lambda f: csv(f).replace("t2,", "\x1b[31mred,", 1),
        says="column 6: the column name '\\x1b[31mred' holds the control character '\\x1b', which "
        "a name has not (rename the column)",
    ),
    Odd(
        "two columns of one name",
        lambda f: csv(f).replace("t2,", "adc,", 1),
        says="columns 5 and 6 are both called 'adc' (rename or remove one of them; a table on "
        "its side is turned, so that a row is a region)",
    ),
    Odd(
        "a column that is called as a nameless one is",
        lambda f: csv(f).replace("adc,t2,", "Unnamed: 5,,", 1),
        says="columns 5 and 6 are both called 'Unnamed: 5' (rename or remove one of them; a table "
        "on its side is turned, so that a row is a region)",
    ),
    Odd(
        "one column only",
        lambda f: csv(f[["adc"]]),
        says="--patient 'patient': the table has no column of that name (write --patient with "
        "the name of a column: the table has one column, adc: where it has more, say what "
        "separates them, for example --separator semicolon; blanks alone separate nothing)",
    ),
    # A row a reading.
    Odd(
        "readings under plain names",
        lambda f: csv(readings(f)),
        (*LONG, "--scores", "grade", "--ignore", "who,lesion"),
        says="patient p00, rows 2 and 3 have the same features (adc -1.0529, t2 -1.2454, ktrans "
        "-0.459), and so have 80 of 80 rows with another of their patient: a row seems to "
        "be one reading, not one region (--reader COLUMN --id COLUMN --scores COLUMN for "
        "one row a reading; --id COLUMN alone where the rows are regions after all)",
    ),
    Odd(
        "readers' names as a feature",
        lambda f: csv(readings(f).rename(columns={"who": "reader"})),
        (*LONG, "--scores", "grade", "--id", "lesion"),
        says="column 'reader', row 2: 'r1': the column is named like a reader's scores, and "
        "would be learned from as a feature (say what it is: --reader reader (a row a "
        "reading), --ignore reader to leave it out, or --features reader to take it as a "
        "feature after all)",
    ),
    Odd(
        "readings without an id",
        lambda f: csv(readings(f).drop(columns="lesion")),
        (*LONG, "--scores", "grade", "--reader", "who"),
        says="--reader who says that a row is one reading, and no --id says of which region: "
        "patient 'p00' of column 'patient' has 4 readings, rows 2, 3, 4, 5, of one region "
        "or of several (--id COLUMN names the column that tells the regions of a patient "
        "apart; where every patient has one region, add such a column, with 1 in every row)",
    ),
    Odd(
        "a reading twice",
        lambda f: csv(pd.concat([readings(f), readings(f).tail(1)])),
        (*LONG, "--scores", "grade", "--reader", "who", "--id", "lesion"),
        says="patient p04, ROI 9, column 'grade', row 81: '3', and row 82: '3' are scores of one"
        " region by one reader, 'r2' of column 'who', who has one (take one of the two rows"
        " out; or, where they are of two regions, name a column that tells them apart with "
        "--id)",
    ),
    Odd(
        "a region with two values",
        lambda f: csv(readings(f).assign(adc=lambda g: np.arange(80))),
        (*LONG, "--scores", "grade", "--reader", "who", "--id", "lesion"),
        says="patient p00, ROI 0, column 'adc', row 3: '1', and '0' in row 2 of the same region,"
        " which has one value (correct one of them, name the regions with --id, or --ignore"
        " adc)",
    ),
    Odd(
        "two columns of scores for readings",
        lambda f: csv(readings(f)),
        (*LONG, "--scores", "grade,adc", "--reader", "who", "--id", "lesion"),
        says="--reader who says that a row is one reading, with one score, and --scores names 2 "
        "columns: grade, adc (name the one column of scores, --scores COLUMN; or leave "
        "--reader out where every reader has a column)",
    ),
    # Forms of files.
    Odd(
        "both decimals",
        lambda f: csv(_decimal(f).assign(t2=f["t2"]), ";"),
        says="column 'adc', row 2: '-1,0529' has a decimal comma, and column 't2', row 2: "
        "'-1.2454' has a decimal point, where a table writes all numbers alike (write "
        "-1.0529 in row 2; --decimal point where 'adc' is no feature, --decimal comma where"
        " 't2' is none)",
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
        says="column 'adc', row 2: '1,501' is a thousand (1501) or a decimal number (1.501), and"
        " no other cell tells which (--decimal comma where it is a decimal number; else "
        "write thousands without comma)",
    ),
    Odd(
        "two ways to cut the rows",
        lambda f: csv(f).replace(",", ";x,"),
        says="row 1, 'patient;x,r1;x,r2;x,cancer;x,adc;x,t2;x,', can be cut into cells in 2 "
        "ways, and so can every row, which has to mean one thing (--separator comma gives 7"
        " columns: patient;x, r1;x, r2;x …; --separator semicolon gives 7 columns: patient,"
        " x,r1, x,r2 …)",
    ),
    Odd(
        "an unknown separator",
        csv,
        (*BASE, "--separator", ";"),
        says="--separator ';' is not known (did you mean --separator semicolon? known, in words:"
        " comma, semicolon, tab, bar)",
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
        says="--encoding 'utf-9' is not known (known are for example utf-8, utf-16, cp1252 "
        "(Windows) and latin-1)",
    ),
    Odd(
        "a NUL character",
        lambda f: csv(f).replace("p07", "p\x00", 1),
        says="column 'patient', row 16: 'p\\x00' holds a NUL character, which no text has "
        "(correct the cell, or export the table again as CSV in UTF-8)",
    ),
    Odd(
        "two sheets",
        lambda f: workbook(("Lesions", sheet_of(f)), ("Notes", [["a"]])),
        suffix=".xlsx",
        says="2 sheets hold cells: Lesions, Notes; a table is one of them (choose one, for "
        "example --sheet Lesions)",
    ),
    Odd(
        "no such sheet",
        lambda f: workbook(("Lesions", sheet_of(f))),
        (*BASE, "--sheet", "Regions"),
        ".xlsx",
        says="--sheet 'Regions' is not known: the workbook has no sheet of that name (known: "
        "Lesions)",
    ),
    Odd(
        "a formula without its value",
        _formula,
        suffix=".xlsx",
        says="cell E5 of sheet 'Sheet1' holds the formula '=1+1' and no value (open and save the"
        " workbook in a spreadsheet program, which computes it)",
    ),
    Odd(
        "merged cells",
        merged,
        suffix=".xlsx",
        says="cells D3:D5 of sheet 'Lesions' are merged: only the first of them holds '0', and the "
        "others would be read as empty (unmerge the cells, and write the value into each of them)",
    ),
    Odd(
        "an empty workbook",
        lambda f: workbook(("Sheet1", [])),
        suffix=".xlsx",
        says="the file is empty: a table has a first row with the names of its columns (export "
        "the table again)",
    ),
    Odd(
        "the old Excel format",
        lambda f: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
        suffix=".xls",
        says="a workbook of the old Excel format (.xls), which is not read (save it as .xlsx or "
        "as CSV)",
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
        says="the file begins as an Excel workbook or a zip archive and is neither: it is "
        "damaged (save the workbook again, or export the table as CSV)",
    ),
    # Columns and rows that say something else than they seem to.
    Odd(
        "a date as a number",
        column("visited", lambda f: [20230101 + k * 37 % 28 for k in range(40)]),
        says="column 'visited', rows 2 to 41: 20230101, 20230110 and so on are all days of the "
        "calendar, which say when, and a feature is measured in an image (--ignore visited "
        "leaves it out; --features visited takes it as a feature after all)",
    ),
    Odd(
        "a number of the patient",
        column("casus", lambda f: [100 + k // 2 for k in range(40)]),
        says="column 'casus', rows 2 to 41: 100, 101, 102 and so on only number the patients of "
        "column 'patient', and a feature measures something (--patient casus where it names"
        " the patients; --ignore casus leaves it out; --features casus takes it as a "
        "feature after all)",
    ),
    Odd(
        "a number of the row with gaps",
        column("k", lambda f: [3 * k + k % 3 for k in range(40)]),
        says="column 'k', rows 2 to 41: 0, 4, 8 and so on: the column rises with every row, as "
        "the number of a row does (--id k where it names the regions; --ignore k leaves it "
        "out; --features k takes it as a feature after all)",
    ),
    Odd(
        "a number of the row from below",
        column("k", lambda f: range(140, 100, -1)),
        says="column 'k', rows 2 to 41: 140, 139, 138 and so on: the column falls with every "
        "row, as the number of a row does (--id k where it names the regions; --ignore k "
        "leaves it out; --features k takes it as a feature after all)",
    ),
    Odd(
        "a time to an event",
        column("time_to_event", lambda f: np.arange(40)[::-1] * 1.5),
        says="column 'time_to_event', row 2: '58.5': the column is named like histology or an "
        "outcome, and would be learned from as a feature (say what it is: --histology "
        "time_to_event, --ignore time_to_event to leave it out, or --features time_to_event"
        " to take it as a feature after all)",
    ),
    Odd(
        "one patient in two ways",
        lambda f: csv(
            f.assign(patient=[(p.upper(), p)[k % 2] for k, p in enumerate(f["patient"])])
        ),
        says="column 'patient', row 2: 'P00', and row 3: 'p00' differ by capitals, blanks, "
        "dashes or .0 alone: one name in two ways would count as two (write both alike, or,"
        " where they are two, make them differ by a letter or a digit)",
    ),
    Odd(
        "a patient as a whole and as a decimal number",
        lambda f: csv(f.assign(patient=[f"{100 + k // 2}{('', '.0')[k % 2]}" for k in range(40)])),
        says="column 'patient', row 2: '100', and row 3: '100.0' differ by capitals, blanks, "
        "dashes or .0 alone: one name in two ways would count as two (write both alike, or,"
        " where they are two, make them differ by a letter or a digit)",
    ),
    Odd(
        "one reader in two ways",
        lambda f: csv(
            readings(f).assign(
                who=lambda g: [(w.upper(), w)[k % 3 > 0] for k, w in enumerate(g["who"])]
            )
        ),
        (*LONG, "--scores", "grade", "--reader", "who", "--id", "lesion"),
        says="column 'who', row 2: 'R1', and row 4: 'r1' differ by capitals, blanks, dashes or "
        ".0 alone: one name in two ways would count as two (write both alike, or, where "
        "they are two, make them differ by a letter or a digit)",
    ),
    Odd(
        "a reading without a reader",
        lambda f: csv(
            readings(f).assign(who=lambda g: ["" if k == 7 else w for k, w in enumerate(g["who"])])
        ),
        (*LONG, "--scores", "grade", "--reader", "who", "--id", "lesion"),
        says="column 'who', row 9: '' names nobody, and --reader is needed in every row (fill in"
        " the cell, or take the row out of the table)",
    ),
    Odd(
        "a row that sums up",
        lambda f: csv(f) + "Mean,,,,0.1,0.2,0.3\n",
        says="column 'patient', row 42: 'Mean' sums other rows up, and a row is a region of a "
        "patient (take the row out of the table)",
    ),
    Odd(
        "the head twice",
        lambda f: csv(f.head(20)) + csv(f.tail(20)),
        says="row 22 repeats row 1, the head: 'patient' is the name of column 1, and no cell of "
        "it (take the row out; two tables below each other are made one)",
    ),
    Odd(
        "a title above the head",
        lambda f: "Table 1. Radiomics,,,,,,\n" + csv(f),
        says="row 1 holds 'Table 1. Radiomics' alone, and row 2 has 7 cells: the first row is a "
        "title or a remark, where the names of the columns are expected (take out what is "
        "above row 2, if that has the names of the columns)",
    ),
    Odd(
        "a remark above the head",
        lambda f: "# exported on Monday\n" + csv(f),
        says="row 1 holds '# exported on Monday' alone, and row 2 has 7 cells: the first row is "
        "a title or a remark, where the names of the columns are expected (take out what is"
        " above row 2, if that has the names of the columns)",
    ),
    Odd(
        "units below the head",
        lambda f: csv(f).replace("\n", "\n,,,,mm2/s,ms,1/min\n", 1),
        says="column 'patient', row 2: '' names nobody, and --patient is needed in every row "
        "(fill in the cell, or take the row out of the table)",
    ),
    Odd(
        "a table on its side",
        lambda f: f.T.to_csv(header=False),
        says="columns 2 and 3 are both called 'p00' (rename or remove one of them; a table on "
        "its side is turned, so that a row is a region)",
    ),
    Odd(
        "no feature with two values",
        lambda f: csv(f.assign(adc="1", t2="2", ktrans="3")),
        says="column 'adc', rows 2 to 41: '1' in every row, and none of the 3 columns of "
        "features has two values: there is nothing to learn from (give a table with columns"
        " that differ between regions; what --ignore and --preset leave out is no feature)",
    ),
    Odd(
        "a comma in a name",
        column("sex, coded", lambda f: ["F", "M"] * 20),
        says="column 'sex, coded', row 2: 'F' is a category ('F', 'M' in 40 rows), and a feature"
        " is a number (leave it out with --ignore '\"sex, coded\"', or give every category a "
        "column of 0 and 1 in the table)",
    ),
    Odd(
        "a name of 5000 letters",
        lambda f: csv(f.rename(columns={"adc": "a" * 5000})),
        says="column 5: a column name of 5000 characters, "
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'; at most 500 are read (rename the "
        "column)",
    ),
    # Numbers as people and spreadsheets write them.
    Odd(
        "a minus of typography",
        cell("adc", "\u22121.2"),
        says="column 'adc', row 5: '−1.2' is written with other signs than 0 to 9, + and -, "
        "which alone are read as a number; 39 other cells are numbers (write -1.2, or leave"
        " the column out with --ignore adc)",
    ),
    Odd(
        "a limit",
        cell("adc", "<0.5"),
        says="column 'adc', row 5: '<0.5' is a limit, and a feature is a number; 39 other cells "
        "are numbers (--missing='<0.5' where it stands for a missing value; else correct "
        "the cell, or leave the column out with --ignore adc)",
    ),
    Odd(
        "a date made of a number",
        cell("adc", "01.Feb"),
        says="column 'adc', row 5: '01.Feb' is a date, which a spreadsheet also makes of a "
        "number such as 1.2; 39 other cells are numbers (--missing=01.Feb where it stands "
        "for a missing value; else correct the cell, or leave the column out with --ignore "
        "adc)",
    ),
    Odd(
        "a number as a formula of text",
        lambda f: csv(f.assign(adc='="' + f["adc"] + '"')),
        says="column 'adc', row 2: '=\"-1.0529\"' is the number -1.0529 among signs that make it a"
        " text, as are all 40 cells of the column (write -1.0529: export the column as "
        "numbers, or leave the column out with --ignore adc)",
    ),
    Odd(
        "numbers with an apostrophe",
        lambda f: csv(f.assign(adc="'" + f["adc"].str.lstrip("-"))),
        says="column 'adc', row 2: ''1.0529' is the number 1.0529 among signs that make it a "
        "text, as are all 40 cells of the column (write 1.0529: export the column as "
        "numbers, or leave the column out with --ignore adc)",
    ),
    # Options that miss or contradict each other.
    Odd(
        "a lowest grade without histology",
        lambda f: csv(f.drop(columns="cancer")),
        ("--patient", "patient", "--scores", "r1,r2", "--isup-min", "2"),
        says="--isup-min 2 says from which grade on histology is malignant, and no --histology "
        "names the column of the grade (add --histology COLUMN, or leave --isup-min out)",
    ),
    Odd(
        "a scale without scores",
        lambda f: csv(f.drop(columns=["r1", "r2"])),
        ("--patient", "patient", "--histology", "cancer", "--scale", "percent"),
        says="--scale percent is the scale of the readers' scores, and no --scores names a "
        "column of scores (add --scores r1,r2, or leave --scale out)",
    ),
    Odd(
        "percent as shares",
        lambda f: csv(f.assign(r1=(f["r1"].astype(int) - 1) / 4, r2=(f["r2"].astype(int) - 1) / 4)),
        (*BASE, "--scale", "percent"),
        says="column 'r1', row 2: '0.5': all 80 scores are at most 1, as a share is, and --scale"
        " percent takes 0 to 100 (write 80 for .8, or --scale likert01 for quarters)",
    ),
    Odd(
        "few shares as percent",
        lambda f: csv(f.assign(r1=["0.9", "0.1"] + [""] * 38, r2="")),
        (*BASE, "--scale", "percent"),
        says="column 'r1', row 2: '0.9': all 2 scores are at most 1, as a share is, and --scale"
        " percent takes 0 to 100 (write 80 for .8, or --scale likert01 for quarters)",
    ),
    Odd(
        "percent as five steps",
        csv,
        (*BASE, "--scale", "percent"),
        says="column 'r1', row 2: '3': all 80 scores are 1 to 5, as on the scale likert5, and "
        "--scale percent takes 0 to 100 (--scale likert5)",
    ),
    Odd(
        "a grade of two classes",
        csv,
        (*BASE, "--isup-min", "2"),
        says="column 'cancer', rows 2 to 41: '0' in 33 rows, '1' in 7 rows, which makes all 40 "
        "rows benign with --isup-min 2, and there is nothing to tell apart without "
        "malignant ones (set --isup-min to a grade that some rows reach and others do not; "
        "take it out where the column holds two classes; or add malignant regions)",
    ),
    Odd(
        "a reader by half the name",
        lambda f: csv(f.rename(columns={"r1": "r1 score"})),
        says="--scores 'r1': the table has no column of that name (did you mean --scores 'r1 "
        "score'? the table has the columns patient, r1 score, r2, cancer, adc, t2, ktrans)",
    ),
    Odd(
        "an unknown decimal sign",
        csv,
        (*BASE, "--decimal", ","),
        says="--decimal ',' is not known (did you mean --decimal comma? known, in words: point, "
        "comma)",
    ),
    # Truth.
    Odd(
        "Gleason scores in words",
        lambda f: csv(f.assign(cancer=f["cancer"].map({"1": "Gleason 3+4=7", "0": "benign"}))),
        says="column 'cancer', row 9: 'Gleason 3+4=7' is a Gleason score, and histology is "
        "stated in two classes, or with --isup-min as a grade (write the grade of the "
        "score: 3+3 is 1, 3+4 is 2, 4+3 is 3, 4+4, 3+5 and 5+3 are 4, 9 and 10 are 5; 0 is "
        "no cancer)",
    ),
    Odd(
        "one malignant patient",
        lambda f: csv(f.assign(cancer=["1", "1", *["0"] * 38])),
        ("--patient", "patient", "--histology", "cancer", "--ignore", "r?"),
        says="patient p00, column 'cancer', row 2: '1' makes one patient alone malignant: with "
        "that patient left out there is no malignant region to learn from (add malignant "
        "regions of another patient at least; two patients of each class are the least, and"
        " say little)",
    ),
    Odd(
        "two truths of one region",
        lambda f: csv(
            readings(f).assign(cancer=lambda g: [str(1 - int(g["cancer"][0])), *g["cancer"][1:]])
        ),
        (*LONG, "--scores", "grade", "--reader", "who", "--id", "lesion"),
        says="patient p00, ROI 0, column 'cancer', row 3: '0', and '1' in row 2 of the same "
        "region, which has one value (correct one of them, name the regions with --id, or "
        "--ignore cancer)",
    ),
    # Files of something else.
    Odd(
        "JSON",
        lambda f: f.to_json(orient="records"),
        suffix=".json",
        says='the file begins with \'[{"patient":"p00","r\': it is a JSON file, and a table is '
        "CSV, .xlsx or parquet (export the table as CSV)",
    ),
    Odd(
        "a page of the web",
        lambda f: f.to_html(),
        suffix=".html",
        says="the file begins with '<table border=\"1\" cl': it is an HTML page, and a table is "
        "CSV, .xlsx or parquet (export the table as CSV)",
    ),
    Odd(
        "a database",
        lambda f: b"SQLite format 3\0" + bytes(100),
        suffix=".db",
        says="the file begins with 'SQLite format 3': it is an SQLite database, and a table is "
        "CSV, .xlsx or parquet (export the table as CSV)",
    ),
    Odd(
        "a picture",
        lambda f: b"\x89PNG\r\n\x1a\n" + bytes(100),
        suffix=".png",
        says="the file begins with 'PNG': it is a picture, and a table is CSV, .xlsx or parquet "
        "(export the table as CSV)",
    ),
    Odd(
        "zeros",
        lambda f: bytes(200),
        says="row 1, character 1: '\\x00' holds a NUL character, which no text has: the file is "
        "of another program, or damaged (export the table as CSV in UTF-8)",
    ),
    Odd(
        "columns parted by blanks",
        lambda f: f.to_string(index=False),
        suffix=".txt",
        says="--patient 'patient': the table has no column of that name (write --patient with "
        "the name of a column: the table has one column, patient r1 r2 cancer     adc      "
        "t2  ktrans: where it has more, say what separates them, for example --separator "
        "semicolon; blanks alone separate nothing)",
    ),
    Odd(
        "lists in cells of parquet",
        lambda f: parquet(f.assign(u=[[1, 2]] * 40)),
        suffix=".parquet",
        says="column 'u' holds list<element: int64>, no plain values (give every value a column "
        "of its own, or leave the column out of the file)",
    ),
    # Learners and their parameters.
    Odd(
        "an unknown learner",
        csv,
        (*BASE, "--learner", "oracle"),
        says="--learner 'oracle' is not known (known: AveragedProbabilisticSVC, FuzzySVC, "
        "KernelLogistic, LogitSVR, OPAUC, PlattSVC, ProbabilisticEnsemble, "
        "ProbabilisticSVC, RankBoost, RejectSVC, SSLROC, SSRankBoost, SVMLin, SVMROC, "
        "SoftExtraTrees, SoftPlattSVC, logistic on soft labels, kernel ridge on p, Gaussian"
        " process on p, boosting on soft labels, extra trees on p, SVM, Platt on soft "
        "targets)",
    ),
    Odd(
        "an unknown parameter",
        csv,
        (*BASE, "--learner", "ProbabilisticSVC:gama=1"),
        says="--learner 'ProbabilisticSVC:gama=1': ProbabilisticSVC has no parameter 'gama' (did"
        " you mean gamma? it has C, C_soft, boundary, cache_size, coef0, degree, eta, eta0,"
        " gamma, kappa, kernel, scale, solver, tol)",
    ),
    Odd(
        "no value of a parameter",
        csv,
        (*BASE, "--learner", "ProbabilisticSVC:C"),
        says="--learner 'ProbabilisticSVC:C': the parameter 'C' has no value (write C=VALUE, as "
        "in kernel=linear,C=10)",
    ),
    Odd(
        "a negative cost",
        csv,
        (*BASE, "--learner", "ProbabilisticSVC:C=-1", "--folds", "2"),
        says="--learner 'ProbabilisticSVC:C=-1': C = -1, must be a finite number > 0 (for "
        "example C=1.0)",
    ),
    Odd(
        "a word for a cost",
        csv,
        (*BASE, "--learner", "ProbabilisticSVC:C=large"),
        says="--learner 'ProbabilisticSVC:C=large': C: expected a number, found 'large' (for "
        "example C=1.0)",
    ),
    Odd(
        "an unknown pipeline",
        csv,
        (*BASE, "--pipeline", "svm"),
        says="--pipeline 'svm' is not known: neither a file nor a name (known: demo, ensemble, "
        "niaf2014, psvm, psvm-biparametric; or give the path of a .yaml file)",
    ),
    Odd(
        "more folds than patients",
        csv,
        (*BASE, "--learner", "ProbabilisticSVC", "--folds", "50"),
        says="--folds 50: the table has 20 patients in column 'patient', and a fold leaves out "
        "one at least (--folds 2 to --folds 20, or leave --folds out to leave out one "
        "patient at a time)",
    ),
]

OF_MODEL: list[Odd] = [
    # `cad table predict` refuses these, with a model that learned from :func:`sound`.
    Odd(
        "a word among numbers",
        cell("adc", "abc"),
        (),
        says="column 'adc', row 5: 'abc' is no number; the model learned from numbers in this "
        "column, and 39 other cells are numbers (--missing=abc where it stands for a "
        "missing value; else correct the cells)",
    ),
    Odd(
        "an infinite number",
        cell("adc", "inf"),
        (),
        says="column 'adc', row 5: 'inf' is infinite, and a feature is a finite number; the "
        "model learned from numbers in this column, and 39 other cells are numbers "
        "(--missing=inf where it stands for a missing value; else correct the cells)",
    ),
    Odd(
        "a number beyond all",
        cell("adc", "1e300"),
        (),
        says="column 'adc', row 5: '1e300' is larger than 1e+100 in size, which no feature is "
        "(--missing=1e300 where it stands for a missing value; else correct the cell)",
    ),
    Odd(
        "categories",
        lambda f: csv(f.assign(adc=["low", "high"] * 20)),
        (),
        says="column 'adc', row 2: 'low' is no number; the model learned from numbers in this "
        "column, and 0 other cells are numbers (correct the cells)",
    ),
    Odd(
        "a score off the scale",
        cell("r1", "7"),
        (),
        says="column 'r1', row 5: score 7 is not on its scale likert5: 1 2 3 4 5 (correct the "
        "cell, or --missing=7 where nobody scored)",
    ),
    Odd(
        "a score in words",
        cell("r1", "sure"),
        (),
        says="column 'r1', row 5: 'sure' is no score: a score is a number, alone or with words "
        "after it, such as '5 (sure)' (write the number, or --missing=sure where nobody "
        "scored)",
    ),
    Odd(
        "a row without a patient",
        cell("patient", ""),
        (),
        says="column 'patient', row 5: '' names nobody, and the patient is needed in every row "
        "(fill in the cell, or take the row out of the table)",
    ),
    Odd(
        "a column of the model under another name",
        lambda f: csv(f.rename(columns={"adc": "ADC"})),
        (),
        says="no column 'adc', which model was trained on (is it the table's 'ADC'? the model "
        "needs its 3 columns under the names of its card, and the table has patient, r1, "
        "r2, cancer, ADC, t2, ktrans)",
    ),
    Odd(
        "no column of the model",
        lambda f: csv(f[["patient", "r1"]]),
        (),
        says="no column 'adc', 't2', 'ktrans', which model was trained on (the model needs its 3"
        " columns under the names of its card, and the table has patient, r1)",
    ),
    Odd(
        "a column of the results",
        column("belief", lambda f: ["x"] * 40),
        (),
        says="the table has a column 'belief' already, and a prediction adds one of that name "
        "(rename the table's column: nothing of it is overwritten)",
    ),
]

NOTED: list[tuple[Odd, str]] = [
    # Tables that are read, and what the run says of them.
    (
        Odd(
            "PI-RADS on another scale",
            lambda f: csv(f.rename(columns={"r1": "pirads_a", "r2": "pirads_b"})),
            ("--patient", "patient", "--histology", "cancer", "--scores", "pirads_*"),
        ),
        "scores of pirads_a, pirads_b are read on the scale likert5; PI-RADS categories take "
        "--scale pirads",
    ),
    (
        Odd(
            "histology turned about",
            lambda f: csv(
                f.assign(cancer=1 - (f["r1"].astype(int) + f["r2"].astype(int) > 6).astype(int))
            ),
        ),
        "readers score malignant regions lower (rank correlation",
    ),
    (
        Odd(
            "a reader turned about",
            lambda f: csv(
                f.assign(r3=[min(5, 6 - int(r) + (k % 9 == 0)) for k, r in enumerate(f["r1"])])
            ),
            ("--patient", "patient", "--histology", "cancer", "--scores", "r?"),
        ),
        "reader r3 scores against the others (rank correlation",
    ),
    (
        Odd("separators at the ends", lambda f: csv(f).replace("\n", ",\n")),
        "1 column(s) without a name and a cell are left out",
    ),
    (
        Odd("an empty column", lambda f: csv(f.assign(adc=""))),
        "columns without a value, from which nothing is learned: adc",
    ),
    (
        Odd("a constant column", lambda f: csv(f.assign(adc="1.5"))),
        "columns with one value, from which nothing is learned: adc",
    ),
    (
        Odd("a row that was copied", lambda f: csv(pd.concat([f, f.tail(1)]))),
        "1 regions have all the features of another region of their patient: a row that was "
        "copied counts twice",
    ),
    (
        Odd("a code that is nowhere", csv, (*BASE, "--missing=-98")),
        "--missing names what no cell holds: -98",
    ),
    (
        Odd(
            "patients called NA",
            lambda f: csv(
                f.assign(patient=["NA" if k < 4 else p for k, p in enumerate(f["patient"])])
            ),
        ),
        "'NA' is taken for a patient's name in 4 rows; --missing=NA says that it is none",
    ),
    (Odd("UTF-32", lambda f: csv(f).encode("utf-32")), "read as UTF-32"),
    (
        Odd(
            "patients in the index of parquet",
            lambda f: parquet(typed(f).set_index("patient")),
            suffix=".parquet",
        ),
        "read as parquet",
    ),
]
