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
    roles = assign_roles([str(name) for name in cells.table.columns], columns)
    if not roles.scores and roles.histology is None:
        raise CadError(
            "neither readers' scores nor histology is named, so that there is nothing to learn",
            hint="name the columns of the scores with --scores r1,r2, that of an outcome with "
            "--histology, or both",
        )
    check_columns(roles.features)
    meaning = values.Meaning(cells.decimal_comma, columns.missing)
    doubted = [name for name in roles.features if name not in roles.trusted]
    doubt_names(doubted, cells, roles)
    notes = [*cells.notes, *_ignored_columns(roles)]
    readings = _rows_of_scores(cells, roles, columns, meaning)
    if roles.reader is not None:
        cells = _first_rows(cells, roles, meaning)
        notes.append(
            f"a row is one reading: {len(readings)} readings by "
            f"{readings['reader_id'].nunique()} readers of {len(cells.table)} regions"
        )
    rois = _rois(cells, roles, columns, meaning)
    X = pd.DataFrame({name: values.numbers(cells, name, meaning) for name in roles.features})
    if note := values.described(cells, roles.features, meaning):
        notes.append(note)
    if any(values.worded(cells, name, meaning) for name in roles.scores):
        notes.append("scores with words, such as '5 (sure)', are read by their number")
    regions = Regions(
        cells.file,
        X,
        rois,
        readings,
        columns.isup_min is not None,
        cells=cells,
        notes=notes,
        roles={
            "patient": roles.patient,
            "id": roles.id,
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
    """Raise an error if all labels are of one class."""
    classes = np.unique(truth[np.isfinite(truth)])
    # If readers' scores serve as labels, the histology may state only one of its two classes.
    # Grades that all give the same class are always an error. The usual cause is that no grade
    # reaches the lowest malignant grade.
    if roles.histology is not None and len(classes) == 1 and (not roles.scores or regions.graded):
        raise _one_class(regions, roles.histology, truth, columns.isup_min)
    if not roles.scores:
        _check_two_patients(regions, str(roles.histology), truth)
        return
    known_beliefs = belief[np.isfinite(belief)]
    if len(np.unique(known_beliefs)) > 1:
        return
    grades = ""
    if roles.histology is not None:
        grades = f", or leave --scores out to learn from {roles.histology!r}"
    cells = regions.cells
    assert cells is not None  # noqa: S101 - of a table
    raise CadError(
        f"columns {', '.join(map(repr, roles.scores))}, rows {cells.rows[0]} to {cells.rows[-1]}: "
        f"the readers' mean is a probability of {known_beliefs[0]:g} in all {len(known_beliefs)} "
        "rows with a score, and there is nothing to tell apart",
        hint=f"add regions that were scored higher or lower{grades}",
    )


def _one_class(regions: Regions, name: str, truth: np.ndarray, isup_min: int | None) -> CadError:
    """Return the error for histology that makes all regions malignant, or all benign."""
    cells = regions.cells
    assert cells is not None  # noqa: S101 - of a table
    stated = np.flatnonzero(np.isfinite(truth))
    rows = cells.rows[stated]
    texts = cells.table[name].to_numpy(dtype=object)[stated]
    where = f"column {name!r}, rows {rows[0]} to {rows[-1]}"
    counts = pd.Series(texts).value_counts().sort_index()
    counts_text = ", ".join(
        f"{text!r} in {count} rows" for text, count in counts.head(_NAMED).items()
    )
    malignant_ones = bool(truth[stated[0]] == 1)
    word = "malignant" if malignant_ones else "benign"
    other_class = "benign" if malignant_ones else "malignant"
    limit = f" with --isup-min {isup_min}" if isup_min is not None else ""
    problem = (
        f"{where}: {counts_text}, which makes all {len(stated)} rows {word}{limit}, and there is "
        f"nothing to tell apart without {other_class} ones"
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
        places = np.flatnonzero(truth == value)
        if len(set(patients[places].tolist())) == 1:
            cell = str(cells.table[name].iloc[places[0]])
            raise CadError(
                f"column {name!r}, row {cells.rows[places[0]]}: {cell!r} makes one patient alone "
                f"{word}: with that patient left out there is no {word} region to learn from",
                patient=patients[places[0]],
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
    counts = regions.X.nunique()
    for count, description in ((0, "without a value"), (1, "with one value")):
        names = [str(name) for name in counts.index[counts == count]]
        if names:
            notes.append(f"columns {description}, from which nothing is learned: {_some(names)}")
    absent = regions.patients[regions.patients.isin(values.MISSING)]
    if len(absent):
        notes.append(
            f"{absent.iloc[0]!r} is taken for a patient's name in {len(absent)} rows; "
            f"--missing={absent.iloc[0]} says that it is none"
        )
    unused = [code for code in columns.missing if not (cells.table == code).any(axis=None)]
    if unused:
        notes.append(f"--missing names what no cell holds: {_some(unused)}")
    both = regions.X.assign(patient=regions.patients.to_numpy())
    copied = int(both.duplicated().sum())
    if copied:
        notes.append(
            f"{copied} regions have all the features of another region of their patient: a row "
            "that was copied counts twice"
        )
    if columns.scale != "pirads" and any("pirads" in name.lower() for name in roles.scores):
        notes.append(
            f"scores of {_some(roles.scores)} are read on the scale {columns.scale}; PI-RADS "
            "categories take --scale pirads"
        )
    has_both = np.isfinite(belief) & np.isfinite(truth)
    if has_both.sum() >= _TOLD and len(np.unique(truth[has_both])) > 1:
        r = _rank_correlation(belief[has_both], truth[has_both])
        if r < -_AGAINST:
            notes.append(
                f"readers score malignant regions lower (rank correlation {r:.2f} in "
                f"{int(has_both.sum())} regions): is 1 malignant, and the highest score the most "
                "suspicious?"
            )
    return [*notes, *_reversed_readers(regions)]


def _reversed_readers(regions: Regions) -> list[str]:
    """Name readers who score low where the others score high, as on a reversed scale."""
    scores = regions.scores.pivot_table(index=_KEY, columns="reader_id", values="score")
    notes = []
    for name in scores:
        mean_of_others = scores.drop(columns=name).mean(axis=1)
        both = scores[name].notna() & mean_of_others.notna()
        if (
            both.sum() < _TOLD
            or scores[name][both].nunique() < 2
            or mean_of_others[both].nunique() < 2
        ):
            continue
        r = _rank_correlation(scores[name][both], mean_of_others[both])
        if r < -_AGAINST:
            notes.append(
                f"reader {name} scores against the others (rank correlation {r:.2f} in "
                f"{int(both.sum())} regions): does this scale run the other way?"
            )
    return notes


def _rank_correlation(first: ArrayLike, second: ArrayLike) -> float:
    ranks = [pd.Series(np.asarray(values, float)).rank() for values in (first, second)]
    return float(ranks[0].corr(ranks[1]))


def _some(names: Sequence[str]) -> str:
    further = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + further


def _ignored_columns(roles: Roles) -> list[str]:
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
    repeated = readings.duplicated([*_KEY, "reader_id"]).to_numpy()
    if roles.reader is not None and repeated.any():
        second = int(repeated.argmax())
        key = readings[[*_KEY, "reader_id"]]
        first = int((key == key.iloc[second]).all(axis=1).to_numpy().argmax())
        score = cells.table[roles.scores[0]]
        raise CadError(
            f"column {roles.scores[0]!r}, row {cells.rows[first]}: {score.iloc[first]!r}, and row "
            f"{cells.rows[second]}: {score.iloc[second]!r} are scores of one region by one reader, "
            f"{key['reader_id'].iloc[second]!r} of column {roles.reader!r}, who has one",
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
    if readings["scale"].iloc[0] != "percent":
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
        several = pd.Series(patients).duplicated(keep=False).to_numpy()
        shown = ""
        if several.any():
            patient = patients[int(several.argmax())]
            rows = cells.rows[np.array([patient_of_row == patient for patient_of_row in patients])]
            shown = f": patient {patient!r} of column {roles.patient!r} has {len(rows)} readings, "
            shown += f"rows {', '.join(map(str, rows[:_NAMED]))}, of one region or of several"
        raise CadError(
            f"--reader {quote(roles.reader)} says that a row is one reading, and no --id says of "
            f"which region{shown}",
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
    key = pd.MultiIndex.from_arrays([patients, regions])
    first = ~key.duplicated()
    first_of = {pair: place for place, pair in reversed(list(enumerate(key)))}
    of_region = np.array([first_of[pair] for pair in key])
    shared = [*roles.features, *(n for n in (roles.histology, roles.site) if n is not None)]
    for name in shared:
        column = cells.table[name].to_numpy(dtype=object)
        differs = column != column[of_region]
        if differs.any():
            place = int(differs.argmax())
            raise CadError(
                f"column {name!r}, row {cells.rows[place]}: {column[place]!r}, and "
                f"{column[of_region[place]]!r} in row {cells.rows[of_region[place]]} of the same "
                "region, which has one value",
                patient=patients[place],
                roi=regions[place],
                hint="correct one of them, name the regions with --id, or --ignore "
                f"{as_typed(name)}",
            )
    table = cells.table[first].reset_index(drop=True)
    return Cells(cells.file, table, cells.rows[first], cells.decimal_comma, cells.notes)


def _rois(cells: Cells, roles: Roles, columns: Columns, meaning: values.Meaning) -> pd.DataFrame:
    patients = values.ids(cells, roles.patient, "--patient", meaning)
    regions = _region_ids(cells, roles, patients, meaning)
    stated = [""] * len(patients)
    if roles.histology is not None:
        stated = values.histology(cells, roles.histology, columns.isup_min, meaning)
    if roles.histology is not None and not any(stated):
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
    nothing = [""] * len(patients)
    graded = columns.isup_min is not None
    return rois.assign(histology=nothing if graded else stated, isup=stated if graded else nothing)


def _check_rows(regions: Regions, roles: Roles) -> None:
    cells = regions.cells
    rois = regions.rois
    assert cells is not None  # noqa: S101 - of a table
    twice = rois.duplicated(_KEY).to_numpy()
    if twice.any():
        place = int(twice.argmax())
        first = int((rois[_KEY] == rois[_KEY].iloc[place]).all(axis=1).to_numpy().argmax())
        raise CadError(
            f"column {roles.id!r}, rows {cells.rows[first]} and {cells.rows[place]}: both are "
            f"{rois['roi_id'].iloc[place]!r}, and an id names one region of a patient",
            patient=rois["participant_id"].iloc[place],
            hint="--reader COLUMN where a row is one reading; else give every region its own id, "
            "or leave --id out to have the rows of a patient numbered",
        )
    count = regions.patients.nunique()
    if count < LEAST_PATIENTS:
        raise CadError(
            f"column {roles.patient!r}, rows {cells.rows[0]} to {cells.rows[-1]}: {len(rois)} "
            f"regions of {count} patient(s), {rois['participant_id'].iloc[0]!r} the first; "
            f"learning and validating take {LEAST_PATIENTS} patients at the least",
            hint="give more patients, or name the column of the patient with --patient",
        )
    names = rois["participant_id"].tolist()
    for place, name in enumerate(names):
        if name.lower() in _SUMMARIES:
            raise CadError(
                f"column {roles.patient!r}, row {cells.rows[place]}: {name!r} sums other rows up, "
                "and a row is a region of a patient",
                hint="take the row out of the table",
            )
    doubt_alike(names, roles.patient, cells)
    if roles.site is not None:
        doubt_alike(rois["site"].tolist(), roles.site, cells)
    _check_sites(regions, roles)
    if roles.id is None and roles.reader is None:
        _doubt_readings(regions, roles, cells)


def _check_sites(regions: Regions, roles: Roles) -> None:
    if roles.site is None or regions.cells is None:
        return
    of_patient = regions.rois.groupby("participant_id")["site"].nunique()
    several = of_patient[of_patient > 1]
    if len(several):
        patient = str(several.index[0])
        places = np.flatnonzero(regions.patients.to_numpy() == patient)
        sites = regions.rois["site"].to_numpy()
        first = int(places[0])
        second = int(next(place for place in places if sites[place] != sites[first]))
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
    rows = pd.util.hash_pandas_object(regions.X, index=False).to_numpy()
    frame = pd.DataFrame({"patient": regions.patients.to_numpy(), "row": rows})
    repeats = frame.duplicated(keep=False).to_numpy()
    if roles.scores and repeats.mean() > 0.5:
        first = int(repeats.argmax())
        same = (frame == frame.iloc[first]).all(axis=1).to_numpy()
        second = int(np.flatnonzero(same)[1])
        raise CadError(
            f"rows {cells.rows[first]} and {cells.rows[second]} have the same features "
            f"({_features_of(regions, first)}), and so have {int(repeats.sum())} of {len(frame)} "
            "rows with another of their patient: a row seems to be one reading, not one region",
            patient=regions.patients.iloc[first],
            hint="--reader COLUMN --id COLUMN --scores COLUMN for one row a reading; --id COLUMN "
            "alone where the rows are regions after all",
        )
