"""Read a table of regions into features, scores, histology and patients."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cad.base.errors import CadError, located
from cad.base.files import JsonObject
from cad.base.settings import LabelSettings
from cad.folders.run_folder.partitions import LABELS, read_partitions
from cad.folders.run_folder.tables import KEYS
from cad.learning.labels.consensus import malignant, reader_labels
from cad.learning.labels.scales import check_percent
from cad.mri.features.provenance import check_columns
from cad.run.tables import values
from cad.run.tables.dialects import UNSTATED, Cells, Dialect, read_cells
from cad.run.tables.doubts import doubt_alike, doubt_names, doubt_values
from cad.run.tables.names import as_typed
from cad.run.tables.roles import Columns, Roles, assign_roles

_KEY = ["participant_id", "roi_id"]
_NAMED = 6
_TOLD = 20
_AGAINST = 0.5
"""A reader is reported if his rank correlation with the other readers is below minus this number.
The check needs ``_TOLD`` regions, in which noise has correlations up to ±.45.
"""
_SUMMARIES = ("mean", "average", "median", "total", "sum", "sd", "std", "min", "max", "count")
LEAST_PATIENTS = 5
"""Least number of patients of a table. A validation leaves one patient out and divides the others
into inner folds.
"""


@dataclass(frozen=True)
class Regions:
    """Hold the regions of a table: n rows, one for each region.

    Parameters
    ----------
    file : Path
        The table, or the folder of runs.
    X : DataFrame, shape (n, n_features)
        Features as numbers, NaN where missing.
    rois : DataFrame, shape (n, ...)
        Columns ``participant_id, roi_id, histology, isup, site`` as texts, empty where unknown. A
        cohort has such columns in ``rois.tsv`` and ``participants.tsv``.
    scores : DataFrame
        Columns ``participant_id, roi_id, reader_id, scale, score``, with one row per reading, as in
        ``scores.tsv``.
    graded : bool
        Whether histology is stated as a grade, and not as one of two classes.
    stated : DataFrame or None
        For a folder of runs: the labels that the runs computed, with the columns
        :data:`cad.folders.run_folder.partitions.LABELS`. None for a file, whose labels are computed
        later.
    cells : Cells or None
        The table as it was read; None for a folder of runs.
    notes : list of str
        Sentences on how the table was read, and on what was left out.
    roles : dict
        What each column is. A model that is trained on the table stores this, and finds the columns
        of another table by it.
    """

    file: Path
    X: pd.DataFrame
    rois: pd.DataFrame
    scores: pd.DataFrame
    graded: bool = False
    stated: pd.DataFrame | None = None
    cells: Cells | None = None
    notes: list[str] = field(default_factory=list)
    roles: JsonObject = field(default_factory=dict)

    @property
    def patients(self) -> pd.Series:
        """Return the patient of every row, as text."""
        return self.rois["participant_id"]

    @property
    def sited(self) -> bool:
        """Tell whether the table names the patients' sites."""
        return bool((self.rois["site"] != "").any())

    @property
    def readers(self) -> list[str]:
        """Return the readers' names, in the order of their columns."""
        return [str(name) for name in self.scores["reader_id"].drop_duplicates()]

    def label_settings(self, settings: LabelSettings, isup_min: int | None) -> LabelSettings:
        """Return the settings of labels that hold for this table.

        Parameters
        ----------
        settings : LabelSettings
            The pipeline's settings of labels.
        isup_min : int or None
            Lowest malignant grade, where the user names one.

        Returns
        -------
        LabelSettings
            The settings. Without readers, learners learn from histology. Where histology is stated
            as one of two classes, these count, whatever lowest malignant grade the pipeline states.
        """
        changed: dict[str, object] = {}
        if self.stated is None and self.scores.empty:
            changed["histology"] = "override"
        if isup_min is not None:
            changed["isup_min"] = isup_min
        elif not self.graded:
            # The word "malignant" states no grade. With the lowest grade, it always counts.
            changed["isup_min"] = 1
        return settings.model_copy(update=changed)


def read_regions(
    path: Path,
    columns: Columns | None,
    dialect: Dialect = UNSTATED,
) -> Regions:
    """Read a table of regions, and check whether its columns have the right roles.

    Parameters
    ----------
    path : Path
        A file (:func:`cad.run.tables.dialects.read_cells`), or a folder of run folders, which hold
        labels already.
    columns : Columns or None
        What every column is that is no feature; None for a folder of runs.
    dialect : Dialect
        How the file is to be read, where its bytes leave a choice.

    Returns
    -------
    Regions
        The regions of the table.

    Raises
    ------
    CadError
        For a file that is no table; for a column that is missing; for a feature that seems to be
        something else; for a cell with a value that its column does not allow. The message has
        column, row, value and advice.
    """
    if path.is_dir():
        return _regions_of_runs(path)
    if columns is None:
        columns = Columns()
    cells = read_cells(path, dialect)
    with located(file=path):
        return _of_table(cells, columns)


def _regions_of_runs(path: Path) -> Regions:
    """Return the regions of a folder of runs, which have labels but no readers' scores."""
    table = read_partitions(path)
    stated = table[LABELS]
    rois = table[_KEY].astype(str).assign(histology="", isup="", site="")
    X = table.drop(columns=[*KEYS, *LABELS])
    return Regions(path, X, rois, no_scores(), stated=stated, roles={"patient": KEYS[0]})


def no_scores() -> pd.DataFrame:
    """Return a table of scores without a row."""
    empty = pd.DataFrame(columns=[*_KEY, "reader_id", "scale", "score"], dtype=object)
    return empty.astype({"score": float})


def _of_table(cells: Cells, columns: Columns) -> Regions:
    """Return the regions of a table, after checks of its columns, rows and labels.

    ``cells`` is the table as texts, and ``columns`` says which columns are no features.
    """
    roles = assign_roles([str(name) for name in cells.table.columns], columns)
    if not roles.scores and roles.histology is None:
        raise CadError(
            "neither readers' scores nor histology is named, so that there is nothing to learn",
            hint="name the columns of the scores with --scores r1,r2, that of an outcome with "
            "--histology, or both",
        )
    check_columns(roles.features)
    meaning = values.Meaning(cells.decimal_comma, columns.missing)
    # A column that the user calls a feature is not doubted.
    doubted = [name for name in roles.features if name not in roles.trusted]
    doubt_names(doubted, cells, roles)
    notes = [*cells.notes, *_ignored_columns(roles)]

    # The scores are taken from all rows. Then one row for each region is left.
    readings = _rows_of_scores(cells, roles, columns, meaning)
    if roles.reader is not None:
        cells = _first_rows(cells, roles, meaning)
        notes.append(
            f"a row is one reading: {len(readings)} readings by "
            f"{readings['reader_id'].nunique()} readers of {len(cells.table)} regions"
        )
    rois = _rois(cells, roles, columns, meaning)
    X = pd.DataFrame({name: values.numbers(cells, name, meaning) for name in roles.features})
    missing_values = values.described(cells, roles.features, meaning)
    if missing_values:
        notes.append(missing_values)
    if any(values.worded(cells, name, meaning) for name in roles.scores):
        notes.append("scores with words, such as '5 (sure)', are read by their number")

    regions = Regions(
        cells.file,
        X,
        rois,
        readings,
        graded=columns.isup_min is not None,
        cells=cells,
        notes=notes,
        roles={
            "patient": roles.patient,
            "id": roles.id,
            # In a table of readings one column has the scores of all readers. A model cannot find
            # a reader's scores by its name.
            "scores": list(roles.scores) if roles.reader is None else [],
            "scale": columns.scale,
            "missing": list(columns.missing),
        },
    )
    _check_varying(regions)
    _check_rows(regions, roles)
    belief, truth = _belief_and_truth(regions, columns)
    _check_classes(regions, roles, columns, belief, truth)
    doubt_values(X, doubted, cells, roles, belief, truth)
    notes += _remarks(regions, roles, columns, belief, truth)
    return regions


def _check_classes(
    regions: Regions, roles: Roles, columns: Columns, belief: np.ndarray, truth: np.ndarray
) -> None:
    """Raise an error if all labels are of one class.

    ``belief`` and ``truth`` are the readers' mean and histology of each region, NaN where unknown.
    """
    classes = np.unique(truth[np.isfinite(truth)])
    # If readers' scores serve as labels, the histology may state only one of its two classes.
    # Grades that all give the same class are always an error. The usual cause is that no grade
    # reaches the lowest malignant grade.
    if roles.histology is not None and len(classes) == 1 and (not roles.scores or regions.graded):
        raise _one_class(regions, roles.histology, truth, columns.isup_min)
    if not roles.scores:
        _check_two_patients(regions, str(roles.histology), truth)
        return

    # The readers' scores are the labels.
    known_beliefs = belief[np.isfinite(belief)]
    if len(np.unique(known_beliefs)) > 1:
        return
    alternative = ""
    if roles.histology is not None:
        alternative = f", or leave --scores out to learn from {roles.histology!r}"
    cells = regions.cells
    assert cells is not None  # noqa: S101 - of a table
    raise CadError(
        f"columns {', '.join(map(repr, roles.scores))}, rows {cells.rows[0]} to {cells.rows[-1]}: "
        f"the readers' mean is a probability of {known_beliefs[0]:g} in all {len(known_beliefs)} "
        "rows with a score, and there is nothing to tell apart",
        hint=f"add regions that were scored higher or lower{alternative}",
    )


def _one_class(regions: Regions, name: str, truth: np.ndarray, isup_min: int | None) -> CadError:
    """Return the error for histology that makes all regions malignant, or all benign."""
    cells = regions.cells
    assert cells is not None  # noqa: S101 - of a table
    with_truth = np.flatnonzero(np.isfinite(truth))  # indices of rows
    rows = cells.rows[with_truth]
    texts = cells.table[name].to_numpy(dtype=object)[with_truth]
    where = f"column {name!r}, rows {rows[0]} to {rows[-1]}"
    counts = pd.Series(texts).value_counts().sort_index()
    counts_text = ", ".join(
        f"{text!r} in {count} rows" for text, count in counts.head(_NAMED).items()
    )
    all_malignant = bool(truth[with_truth[0]] == 1)
    word = "malignant" if all_malignant else "benign"
    other_class = "benign" if all_malignant else "malignant"
    limit = f" with --isup-min {isup_min}" if isup_min is not None else ""
    problem = (
        f"{where}: {counts_text}, which makes all {len(with_truth)} rows {word}{limit}, and there "
        f"is nothing to tell apart without {other_class} ones"
    )
    hint = f"add {other_class} regions, or name another outcome with --histology"
    if regions.graded:
        hint = "set --isup-min to a grade that some rows reach and others do not; take it out "
        hint += f"where the column holds two classes; or add {other_class} regions"
    return CadError(problem, hint=hint)


def _check_two_patients(regions: Regions, name: str, truth: np.ndarray) -> None:
    """Raise an error if one patient has all regions of a class.

    A model that is trained without this patient would know only the other class.
    """
    cells = regions.cells
    assert cells is not None  # noqa: S101 - of a table
    patients = regions.patients.to_numpy()
    for value, word in ((1.0, "malignant"), (0.0, "benign")):
        of_class = np.flatnonzero(truth == value)  # indices of rows
        if len(set(patients[of_class].tolist())) == 1:
            first = of_class[0]
            cell = str(cells.table[name].iloc[first])
            raise CadError(
                f"column {name!r}, row {cells.rows[first]}: {cell!r} makes one patient alone "
                f"{word}: with that patient left out there is no {word} region to learn from",
                patient=patients[first],
                hint=f"add {word} regions of another patient at least; two patients of each class "
                "are the least, and say little",
            )


def _check_varying(regions: Regions) -> None:
    """Raise an error if every feature is constant."""
    if regions.X.nunique().max() > 1 or regions.cells is None:
        return
    name = str(regions.X.columns[0])
    cells = regions.cells
    texts = cells.table[name].to_numpy(dtype=object)
    raise CadError(
        f"column {name!r}, rows {cells.rows[0]} to {cells.rows[-1]}: {texts[0]!r} in every row, "
        f"and none of the {regions.X.shape[1]} columns of features has two values: there is "
        "nothing to learn from",
        hint="give a table with columns that differ between regions; what --ignore and --preset "
        "leave out is no feature",
    )


def _remarks(
    regions: Regions, roles: Roles, columns: Columns, belief: np.ndarray, truth: np.ndarray
) -> list[str]:
    """Return remarks on a table that do not stop the command."""
    cells = regions.cells
    assert cells is not None  # noqa: S101 - of a table
    notes = []
    n_values = regions.X.nunique()  # for each feature
    for count, description in ((0, "without a value"), (1, "with one value")):
        names = [str(name) for name in n_values.index[n_values == count]]
        if names:
            notes.append(f"columns {description}, from which nothing is learned: {_some(names)}")
    # A name such as NA may be that of a person, or say that there is none.
    named_like_missing = regions.patients[regions.patients.isin(values.MISSING)]
    if len(named_like_missing):
        first = named_like_missing.iloc[0]
        notes.append(
            f"{first!r} is taken for a patient's name in {len(named_like_missing)} rows; "
            f"--missing={first} says that it is none"
        )
    unused = [code for code in columns.missing if not (cells.table == code).any(axis=None)]
    if unused:
        notes.append(f"--missing names what no cell holds: {_some(unused)}")
    with_patient = regions.X.assign(patient=regions.patients.to_numpy())
    n_copies = int(with_patient.duplicated().sum())
    if n_copies:
        notes.append(
            f"{n_copies} regions have all the features of another region of their patient: a row "
            "that was copied counts twice"
        )
    if columns.scale != "pirads" and any("pirads" in name.lower() for name in roles.scores):
        notes.append(
            f"scores of {_some(roles.scores)} are read on the scale {columns.scale}; PI-RADS "
            "categories take --scale pirads"
        )
    has_both = np.isfinite(belief) & np.isfinite(truth)
    if has_both.sum() >= _TOLD and len(np.unique(truth[has_both])) > 1:
        correlation = _rank_correlation(belief[has_both], truth[has_both])
        if correlation < -_AGAINST:
            notes.append(
                f"readers score malignant regions lower (rank correlation {correlation:.2f} in "
                f"{int(has_both.sum())} regions): is 1 malignant, and the highest score the most "
                "suspicious?"
            )
    return [*notes, *_reversed_readers(regions)]


def _reversed_readers(regions: Regions) -> list[str]:
    """Name readers who score low where the others score high, as on a reversed scale."""
    # A row for each region, and a column for each reader.
    scores = regions.scores.pivot_table(index=_KEY, columns="reader_id", values="score")
    notes = []
    for name in scores:
        mean_of_others = scores.drop(columns=name).mean(axis=1)
        has_both = scores[name].notna() & mean_of_others.notna()
        scores_of_reader = scores[name][has_both]
        scores_of_others = mean_of_others[has_both]
        # Of few regions, or if all scores are equal, no correlation tells anything.
        if (
            has_both.sum() < _TOLD
            or scores_of_reader.nunique() < 2
            or scores_of_others.nunique() < 2
        ):
            continue
        correlation = _rank_correlation(scores_of_reader, scores_of_others)
        if correlation < -_AGAINST:
            notes.append(
                f"reader {name} scores against the others (rank correlation {correlation:.2f} in "
                f"{int(has_both.sum())} regions): does this scale run the other way?"
            )
    return notes


def _rank_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Return Spearman's correlation: that of the ranks of two arrays."""
    ranks_of_first = pd.Series(np.asarray(first, float)).rank()
    ranks_of_second = pd.Series(np.asarray(second, float)).rank()
    return float(ranks_of_first.corr(ranks_of_second))


def _some(names: Sequence[str]) -> str:
    """Return the first names for a message, and how many more there are."""
    further = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + further


def _ignored_columns(roles: Roles) -> list[str]:
    """Say which columns are left out, and by which option."""
    sentences = []
    for names, why in ((roles.ignored, "by --ignore"), (roles.beyond, "by --preset")):
        if names:
            sentences.append(f"left out {why}: {_some(names)}")
    return sentences


def _belief_and_truth(regions: Regions, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Return the readers' mean and the histology of every region, two arrays of shape (n,).

    The features are compared with these arrays to find features that reveal the label
    (:mod:`cad.run.tables.doubts`).
    """
    settings = regions.label_settings(LabelSettings(), columns.isup_min)
    rois = regions.rois.replace({"histology": {"": None}, "isup": {"": None}})
    readers = pd.DataFrame({"reader_id": regions.readers, "expert": False})
    belief = reader_labels(regions.scores, rois, readers, settings)["p"].to_numpy(float)
    return belief, malignant(rois, settings.isup_min)


def _rows_of_scores(
    cells: Cells, roles: Roles, columns: Columns, meaning: values.Meaning
) -> pd.DataFrame:
    """Return a table of scores with one row for each reading, a reader's score of a region."""
    if not roles.scores:
        return no_scores()
    patients = values.ids(cells, roles.patient, "--patient", meaning)
    regions = _region_ids(cells, roles, patients, meaning)

    # Either each column of scores is one reader, called by its name, or one column has the scores
    # of all readers, and another column names the reader.
    tables = []
    for name in roles.scores:
        readers = [name] * len(patients)
        if roles.reader is not None:
            readers = values.ids(cells, roles.reader, "--reader", meaning)
            doubt_alike(readers, roles.reader, cells)
        table = pd.DataFrame(
            {
                "participant_id": patients,
                "roi_id": regions,
                "reader_id": readers,
                "scale": columns.scale,
                "score": values.scores(cells, name, columns.scale, meaning),
            }
        )
        tables.append(table)
    readings = pd.concat(tables, ignore_index=True)

    # A reader scores a region once. Without a column of readers this is not checked here: each
    # column is another reader, and repeated ids of regions are refused later.
    repeated = readings.duplicated([*_KEY, "reader_id"]).to_numpy()
    if roles.reader is not None and repeated.any():
        second = int(repeated.argmax())
        keys = readings[[*_KEY, "reader_id"]]
        has_key_of_second = (keys == keys.iloc[second]).all(axis=1).to_numpy()
        first = int(has_key_of_second.argmax())
        score = cells.table[roles.scores[0]]
        raise CadError(
            f"column {roles.scores[0]!r}, row {cells.rows[first]}: {score.iloc[first]!r}, and row "
            f"{cells.rows[second]}: {score.iloc[second]!r} are scores of one region by one reader, "
            f"{keys['reader_id'].iloc[second]!r} of column {roles.reader!r}, who has one",
            patient=patients[second],
            roi=regions[second],
            hint="take one of the two rows out; or, where they are of two regions, name a column "
            "that tells them apart with --id",
        )
    readings = readings[readings["score"].notna()].reset_index(drop=True)
    if readings.empty:
        cell = str(cells.table[roles.scores[0]].iloc[0])
        raise CadError(
            f"columns {', '.join(map(repr, roles.scores))}, rows {cells.rows[0]} to "
            f"{cells.rows[-1]}: no cell holds a score, {cell!r} in row {cells.rows[0]} among them",
            hint="name the columns of the scores with --scores, or leave it out where only "
            "--histology is learned from",
        )
    _doubt_percent(readings, cells, roles)
    return readings


def _doubt_percent(readings: pd.DataFrame, cells: Cells, roles: Roles) -> None:
    """Raise an error if scores in percent are probably shares, or on a five-point scale."""
    if readings["scale"].iloc[0] != "percent":  # all scores of a table are on one scale
        return
    try:
        check_percent(readings["score"].to_numpy(float), "--scale")
    except CadError as error:
        name = roles.scores[0]
        texts = cells.table[name].to_numpy(dtype=object)
        raise CadError(
            f"column {name!r}, row {cells.rows[0]}: {texts[0]!r}: {error.problem}", hint=error.hint
        ) from None


def _region_ids(
    cells: Cells, roles: Roles, patients: list[str], meaning: values.Meaning
) -> list[str]:
    """Return the region's id of every row.

    The id is taken from the column of ids. Without such a column, the rows of a patient are
    numbered.
    """
    if roles.id is not None:
        return values.ids(cells, roles.id, "--id", meaning)
    if roles.reader is not None:
        # Without ids, several readings of a patient may be of one region or of several. The message
        # shows the first patient who has several.
        shares_patient = pd.Series(patients).duplicated(keep=False).to_numpy()
        example = ""
        if shares_patient.any():
            patient = patients[int(shares_patient.argmax())]
            of_patient = np.array([patient_of_row == patient for patient_of_row in patients])
            rows = cells.rows[of_patient]
            example = f": patient {patient!r} of column {roles.patient!r} has {len(rows)} "
            example += f"readings, rows {', '.join(map(str, rows[:_NAMED]))}, of one region or of "
            example += "several"
        raise CadError(
            f"--reader {quote(roles.reader)} says that a row is one reading, and no --id says of "
            f"which region{example}",
            hint="--id COLUMN names the column that tells the regions of a patient apart; where "
            "every patient has one region, add such a column, with 1 in every row",
        )
    return numbered_within(patients)


def numbered_within(patients: Sequence[str]) -> list[str]:
    """Number the rows of each patient from 1, and return the number of every row as text."""
    counts: dict[str, int] = {}
    numbered = []
    for patient in patients:
        counts[patient] = counts.get(patient, 0) + 1
        numbered.append(str(counts[patient]))
    return numbered


def _first_rows(cells: Cells, roles: Roles, meaning: values.Meaning) -> Cells:
    """Return one row for each region of a table of readings.

    An error is raised if the readings of a region differ in a feature, in histology or in the site.
    """
    patients = values.ids(cells, roles.patient, "--patient", meaning)
    regions = _region_ids(cells, roles, patients, meaning)

    # For each row, the index of the first row of the same region.
    keys = list(zip(patients, regions, strict=True))
    index_of_region: dict[tuple[str, str], int] = {}
    for index, key in enumerate(keys):
        index_of_region.setdefault(key, index)
    first_row = np.array([index_of_region[key] for key in keys])

    # These columns describe the region, so all its readings must agree with the first.
    describing = [name for name in (roles.histology, roles.site) if name is not None]
    for name in (*roles.features, *describing):
        column = cells.table[name].to_numpy(dtype=object)
        differs = column != column[first_row]
        if differs.any():
            index = int(differs.argmax())
            first = first_row[index]
            raise CadError(
                f"column {name!r}, row {cells.rows[index]}: {column[index]!r}, and "
                f"{column[first]!r} in row {cells.rows[first]} of the same "
                "region, which has one value",
                patient=patients[index],
                roi=regions[index],
                hint="correct one of them, name the regions with --id, or --ignore "
                f"{as_typed(name)}",
            )

    is_first = first_row == np.arange(len(keys))
    table = cells.table[is_first].reset_index(drop=True)
    return Cells(cells.file, table, cells.rows[is_first], cells.decimal_comma, cells.notes)


def _rois(cells: Cells, roles: Roles, columns: Columns, meaning: values.Meaning) -> pd.DataFrame:
    """Return patient, id, site and histology of each region, as :class:`Regions` describes."""
    patients = values.ids(cells, roles.patient, "--patient", meaning)
    regions = _region_ids(cells, roles, patients, meaning)
    stated = [""] * len(patients)
    if roles.histology is not None:
        stated = values.histology(cells, roles.histology, columns.isup_min, meaning)
    if roles.histology is not None and not any(stated):  # every cell stands for a missing value
        cell = str(cells.table[roles.histology].iloc[0])
        raise CadError(
            f"column {roles.histology!r}, rows {cells.rows[0]} to {cells.rows[-1]}: no cell states "
            f"histology, {cell!r} in row {cells.rows[0]} among them",
            hint="fill it in, name another column with --histology, or leave --histology out to "
            "learn from --scores",
        )
    sites = [""] * len(patients)
    if roles.site is not None:
        sites = [str(cell) for cell in cells.table[roles.site]]
    rois = pd.DataFrame({"participant_id": patients, "roi_id": regions, "site": sites})
    unknown = [""] * len(patients)
    if columns.isup_min is not None:  # the column of histology holds grades
        return rois.assign(histology=unknown, isup=stated)
    return rois.assign(histology=stated, isup=unknown)


def _check_rows(regions: Regions, roles: Roles) -> None:
    """Raise an error if rows are no regions, if there are few patients, or names look alike."""
    cells = regions.cells
    rois = regions.rois
    assert cells is not None  # noqa: S101 - of a table
    repeated = rois.duplicated(_KEY).to_numpy()
    if repeated.any():
        second = int(repeated.argmax())
        has_key_of_second = (rois[_KEY] == rois[_KEY].iloc[second]).all(axis=1).to_numpy()
        first = int(has_key_of_second.argmax())
        raise CadError(
            f"column {roles.id!r}, rows {cells.rows[first]} and {cells.rows[second]}: both are "
            f"{rois['roi_id'].iloc[second]!r}, and an id names one region of a patient",
            patient=rois["participant_id"].iloc[second],
            hint="--reader COLUMN where a row is one reading; else give every region its own id, "
            "or leave --id out to have the rows of a patient numbered",
        )
    n_patients = regions.patients.nunique()
    if n_patients < LEAST_PATIENTS:
        raise CadError(
            f"column {roles.patient!r}, rows {cells.rows[0]} to {cells.rows[-1]}: {len(rois)} "
            f"regions of {n_patients} patient(s), {rois['participant_id'].iloc[0]!r} the first; "
            f"learning and validating take {LEAST_PATIENTS} patients at the least",
            hint="give more patients, or name the column of the patient with --patient",
        )
    names = rois["participant_id"].tolist()
    for index, name in enumerate(names):
        if name.lower() in _SUMMARIES:
            raise CadError(
                f"column {roles.patient!r}, row {cells.rows[index]}: {name!r} sums other rows up, "
                "and a row is a region of a patient",
                hint="take the row out of the table",
            )
    doubt_alike(names, roles.patient, cells)
    if roles.site is not None:
        doubt_alike(rois["site"].tolist(), roles.site, cells)
    _check_sites(regions, roles)
    if roles.id is None and roles.reader is None:  # else the user says which rows are one region
        _doubt_readings(regions, roles, cells)


def _check_sites(regions: Regions, roles: Roles) -> None:
    """Raise an error for a patient of two sites: a fold that leaves out a site needs him in one."""
    if roles.site is None or regions.cells is None:
        return
    n_sites = regions.rois.groupby("participant_id")["site"].nunique()
    of_several_sites = n_sites[n_sites > 1]
    if len(of_several_sites):
        patient = str(of_several_sites.index[0])
        rows_of_patient = np.flatnonzero(regions.patients.to_numpy() == patient)
        sites = regions.rois["site"].to_numpy()
        first = int(rows_of_patient[0])
        second = int(next(row for row in rows_of_patient if sites[row] != sites[first]))
        rows = regions.cells.rows
        raise CadError(
            f"column {roles.site!r}, row {rows[first]}: {sites[first]!r}, and row {rows[second]}: "
            f"{sites[second]!r} of the same patient, who has one site",
            patient=patient,
            hint="correct one of the cells; give a patient of two sites a name at each; or leave "
            f"the site out: --ignore {as_typed(roles.site)} in place of --site",
        )


def _features_of(regions: Regions, place: int) -> str:
    """Return the first features of a row with their values, as text for a message."""
    row = regions.X.iloc[place]
    return ", ".join(f"{name} {value:g}" for name, value in row.head(3).items())


def _doubt_readings(regions: Regions, roles: Roles, cells: Cells) -> None:
    """Raise an error if most rows have the same features as another row of the same patient.

    A row of such a table seems to be one reading of a region, and not one region. Only tables with
    scores are checked.
    """
    # Rows of equal features have equal hashes.
    hashes = pd.util.hash_pandas_object(regions.X, index=False).to_numpy()
    frame = pd.DataFrame({"patient": regions.patients.to_numpy(), "row": hashes})
    repeated = frame.duplicated(keep=False).to_numpy()
    if roles.scores and repeated.mean() > 0.5:
        first = int(repeated.argmax())
        like_first = (frame == frame.iloc[first]).all(axis=1).to_numpy()
        second = int(np.flatnonzero(like_first)[1])
        raise CadError(
            f"rows {cells.rows[first]} and {cells.rows[second]} have the same features "
            f"({_features_of(regions, first)}), and so have {int(repeated.sum())} of {len(frame)} "
            "rows with another of their patient: a row seems to be one reading, not one region",
            patient=regions.patients.iloc[first],
            hint="--reader COLUMN --id COLUMN --scores COLUMN for one row a reading; --id COLUMN "
            "alone where the rows are regions after all",
        )
