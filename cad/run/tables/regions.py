"""A table of regions as everything behind it needs it: features, scores, histology, who is who."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

import numpy as np
import pandas as pd

from cad.base.errors import CadError, located
from cad.base.files import JsonObject
from cad.base.settings import LabelSettings
from cad.folders.run_folder.partitions import LABELS, read_partitions
from cad.folders.run_folder.tables import KEYS
from cad.learning.labels.consensus import malignant, reader_labels
from cad.mri.features.provenance import check_columns
from cad.run.tables import values
from cad.run.tables.dialects import UNSTATED, Cells, Dialect, read_cells
from cad.run.tables.doubts import doubt_names, doubt_values
from cad.run.tables.roles import Columns, Roles, assign_roles

_KEY = ["participant_id", "roi_id"]
_NAMED = 6
LEAST_PATIENTS = 5
"""One is left out, and the others are dealt to inner folds of whole patients."""


@dataclass(frozen=True)
class Regions:
    """Hold the regions of a table: n rows, one a region.

    Parameters
    ----------
    file : Path
        The table, or the folder of runs.
    X : DataFrame, shape (n, n_features)
        Features as numbers, NaN where missing.
    rois : DataFrame, shape (n, ...)
        ``participant_id, roi_id, histology, isup, site`` as texts, empty where unknown: what
        ``rois.tsv`` and ``participants.tsv`` of a cohort say.
    scores : DataFrame
        ``participant_id, roi_id, reader_id, scale, score``: one row a reading, as ``scores.tsv``.
    graded : bool
        Whether histology is stated as a grade, and not in two classes.
    stated : DataFrame or None
        Labels that runs made already, with the columns :data:`LABELS` of partitions; None for a
        table, of which :mod:`cad.run.stages.aggregate` makes them.
    cells : Cells or None
        The table as it was read; None for a folder of runs.
    notes : list of str
        How the table was read, and what was left out.
    roles : dict
        Which column is what, for a model of the table to find them in another.
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
            Those of the pipeline.
        isup_min : int or None
            Lowest malignant grade, where the user names one.

        Returns
        -------
        LabelSettings
            Without readers, histology is what is learned from. Where histology has two classes,
            they are the classes, whatever grade the pipeline begins at.
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
    """Read a table of regions, and doubt what its columns are taken for.

    Parameters
    ----------
    path : Path
        A file (:func:`cad.run.tables.dialects.read_cells`), or a folder of run folders, which
        bring their own labels.
    columns : Columns or None
        The role of every column that is no feature; None for a folder of runs.
    dialect : Dialect
        How the file is to be read, where its bytes leave a choice.

    Returns
    -------
    Regions

    Raises
    ------
    CadError
        For a file that is no table, a column that is missing or doubtful, and a cell that is no
        value of its column; with column, row, value and the way out.
    """
    if path.is_dir():
        return _of_runs(path)
    if columns is None:
        columns = Columns()
    cells = read_cells(path, dialect)
    with located(file=path):
        return _of_table(cells, columns)


def _of_runs(path: Path) -> Regions:
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
    doubt_names(doubted, long_possible=roles.reader is None)
    notes = [*cells.notes, *_left_out(roles)]
    readings = _readings(cells, roles, columns, meaning)
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
    _check_rows(regions, roles)
    belief, truth = _known(regions, columns)
    _check_classes(regions, roles, belief, truth)
    doubt_values(X, doubted, cells, belief, truth)
    return regions


def _check_classes(regions: Regions, roles: Roles, belief: np.ndarray, truth: np.ndarray) -> None:
    """Refuse labels that are all alike: there is nothing to tell apart."""
    learned = belief
    name = ", ".join(roles.scores)
    if not roles.scores:
        learned = truth
        name = str(roles.histology)
    told = learned[np.isfinite(learned)]
    if len(np.unique(told)) > 1:
        return
    grades = ""
    if roles.histology is not None and regions.graded:
        grades = ", or set --isup-min to a grade that some rows reach and others do not"
    if roles.scores and roles.histology is not None:
        grades = f", or leave --scores out to learn from {roles.histology!r}"
    word = f"a mean probability of {told[0]:g} by the readers"
    if not roles.scores:
        word = "malignant" if told[0] == 1 else "benign"
    raise CadError(
        f"{name}: all {len(told)} rows with a label have the same, {word}: there is nothing to "
        "tell apart",
        hint=f"add regions of another{grades}",
    )


def _left_out(roles: Roles) -> list[str]:
    sentences = []
    for names, why in ((roles.ignored, "by --ignore"), (roles.beyond, "by --preset")):
        if names:
            shown = ", ".join(names[:_NAMED])
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            sentences.append(f"left out {why}: {shown}{more}")
    return sentences


def _known(regions: Regions, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Return the readers' mean and histology of every region, for the doubts."""
    settings = regions.label_settings(LabelSettings(), columns.isup_min)
    rois = regions.rois.replace({"histology": {"": None}, "isup": {"": None}})
    readers = pd.DataFrame({"reader_id": regions.readers, "expert": False})
    belief = reader_labels(regions.scores, rois, readers, settings)["p"].to_numpy(float)
    return belief, malignant(rois, settings.isup_min)


def _readings(
    cells: Cells, roles: Roles, columns: Columns, meaning: values.Meaning
) -> pd.DataFrame:
    """Return one row per score."""
    if not roles.scores:
        return no_scores()
    patients = values.ids(cells, roles.patient, "--patient", meaning)
    regions = _region_ids(cells, roles, patients, meaning)
    parts = []
    for name in roles.scores:
        readers = [name] * len(patients)
        if roles.reader is not None:
            readers = values.ids(cells, roles.reader, "--reader", meaning)
        part = pd.DataFrame(
            {
                "participant_id": patients,
                "roi_id": regions,
                "reader_id": readers,
                "scale": columns.scale,
                "score": values.scores(cells, name, columns.scale, meaning),
            }
        )
        parts.append(part)
    readings = pd.concat(parts, ignore_index=True)
    repeated = readings.duplicated([*_KEY, "reader_id"]).to_numpy()
    if roles.reader is not None and repeated.any():
        place = int(repeated.argmax())
        raise CadError(
            f"row {cells.rows[place]}: reader {readings['reader_id'].iloc[place]!r} scored this "
            "region in an earlier row, and a region has one score of a reader",
            patient=patients[place],
            roi=regions[place],
            hint="take one of the two rows out, or name the column that tells the regions of a "
            "patient apart with --id",
        )
    readings = readings[readings["score"].notna()].reset_index(drop=True)
    if readings.empty:
        raise CadError(
            f"no row has a score in {', '.join(roles.scores)}",
            hint="name the columns of the scores with --scores, or leave it out where only "
            "--histology is learned from",
        )
    return readings


def _region_ids(
    cells: Cells, roles: Roles, patients: list[str], meaning: values.Meaning
) -> list[str]:
    """Return the region of every row: by its column, or numbered within the patient."""
    if roles.id is not None:
        return values.ids(cells, roles.id, "--id", meaning)
    if roles.reader is not None:
        raise CadError(
            f"--reader {roles.reader} says that a row is one reading, and no column says of which "
            "region",
            hint="name the column that tells the regions of a patient apart with --id",
        )
    return numbered_within(patients)


def numbered_within(patients: Sequence[str]) -> list[str]:
    """Return the number of every row within its patient, from 1, as text."""
    seen: dict[str, int] = {}
    numbered = []
    for patient in patients:
        seen[patient] = seen.get(patient, 0) + 1
        numbered.append(str(seen[patient]))
    return numbered


def _first_rows(cells: Cells, roles: Roles, meaning: values.Meaning) -> Cells:
    """Return one row a region of a table with a row a reading; refuse a region with two values."""
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
                hint=f"correct one of them, name the regions with --id, or --ignore {quote(name)}",
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
        raise CadError(
            f"column {roles.histology!r} states no histology in any row",
            hint="fill it in, or leave --histology out",
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
        raise CadError(
            f"column {roles.id!r}, row {cells.rows[place]}: {rois['roi_id'].iloc[place]!r} is in "
            "an earlier row of the same patient",
            patient=rois["participant_id"].iloc[place],
            hint="--reader COLUMN where a row is one reading; else give every region its own id",
        )
    count = regions.patients.nunique()
    if count < LEAST_PATIENTS:
        raise CadError(
            f"column {roles.patient!r}, rows {cells.rows[0]} to {cells.rows[-1]}: {len(rois)} "
            f"regions of {count} patient(s), {rois['participant_id'].iloc[0]!r} the first; "
            f"learning and validating take {LEAST_PATIENTS} patients at the least",
            hint="give more patients, or name the column of the patient with --patient",
        )
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
        rows = regions.cells.rows[regions.patients.to_numpy() == patient]
        raise CadError(
            f"column {roles.site!r}, rows {rows[0]} to {rows[-1]}: one patient is of "
            f"{several.iloc[0]} sites",
            patient=patient,
            hint="a patient has one site: correct the cells, or leave --site out",
        )


def _doubt_readings(regions: Regions, roles: Roles, cells: Cells) -> None:
    """Refuse a table in which most rows repeat another region of the patient: one row a reading."""
    rows = pd.util.hash_pandas_object(regions.X, index=False).to_numpy()
    frame = pd.DataFrame({"patient": regions.patients.to_numpy(), "row": rows})
    repeats = frame.duplicated(keep=False).to_numpy()
    if roles.scores and repeats.mean() > 0.5:
        first = int(repeats.argmax())
        same = (frame == frame.iloc[first]).all(axis=1).to_numpy()
        second = int(np.flatnonzero(same)[1])
        raise CadError(
            f"rows {cells.rows[first]} and {cells.rows[second]} have the same features, and so "
            f"have {int(repeats.sum())} of {len(frame)} rows: a row seems to be one reading, not "
            "one region",
            patient=regions.patients.iloc[first],
            hint="--reader COLUMN --id COLUMN --scores COLUMN for one row a reading; --id COLUMN "
            "alone where the rows are regions after all",
        )
