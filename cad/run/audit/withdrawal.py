"""Withdraw a patient: remove his data from a cohort and its runs, and name places that still hold
them.

All changes of the cohort happen in one step (a commit). The patient's rows are removed from every
table with a column ``participant_id``; the other rows stay the same to the byte. Every file and
folder whose name is the patient's is removed, too. When the last patient is removed, the secret key
of the cohort's pseudonyms is also removed: it could still prove to whom a pseudonym belonged.
"""

import csv
import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cad.base.errors import CadError
from cad.base.files import JsonObject, parquet_bytes, write_atomic
from cad.base.reading import MAX_ARRAYS, read_bytes, read_parquet, read_text, reading, table_text
from cad.base.share import find
from cad.base.transactions import MARK, commit, is_ours, owned, stage
from cad.dicom.archive.interface import SamePatient
from cad.folders.cohort import COHORT
from cad.folders.cohort.patients import CHECK_FILE, KEY_FILE, PSEUDONYM, Patients, patient_proof
from cad.folders.cohort.traces import Names, named_places, traces
from cad.folders.run_folder import COMPARISON, RUNS, RunFolder
from cad.run.model.bundle import MODEL, Bundle, load_bundle

_PATIENTS = "participants.tsv"
_BY_CONTENT = (MODEL, COMPARISON, COHORT, *RUNS.values())
"""Kinds of folders that are recognised by their files where the folder holds no file that marks its
kind. Some kinds need no such mark, and earlier versions wrote none.
"""


def _removed(root: Path, names: Names) -> tuple[dict[str, int], list[str]]:
    """Remove a patient from a cohort that this process has locked, in one step.

    Return the number of rows removed from each table, and the removed files and folders.
    """
    places = named_places(root, names)
    rows = {}
    remaining = {}
    for name in _tables(root):
        text, count = rows_without(root / name, names.participant)
        if count:
            rows[name] = count
            remaining[name] = text
    # If no patient is left, the secret key of the pseudonyms would only serve to prove who once was
    # in the cohort. So it is removed.
    if _PATIENTS in rows and len(remaining[_PATIENTS].splitlines()) <= 1:
        places += [name for name in (KEY_FILE, CHECK_FILE) if (root / name).is_file()]
    if rows or places:
        with stage(root) as scratch:
            # The new tables are called by numbers, because the name of a table may hold a folder.
            new_tables = {}
            for number, (name, text) in enumerate(remaining.items()):
                new_tables[name] = scratch / str(number)
                write_atomic(new_tables[name], text.encode())
            commit(root, new_tables, places)
    return rows, places


def _participant(root: Path, patient: str) -> str:
    """Return the BIDS label of a patient; ``patient`` is the label, or the source's PatientID."""
    label = "sub-" + re.sub("[^A-Za-z0-9]", "", patient.removeprefix("sub-"))
    if label == "sub-":
        raise CadError(f"{patient!r} names no patient", hint="give sub-XXX, or the source's id")
    pseudonyms = set(PSEUDONYM.findall(read_text(root / _PATIENTS)))
    is_label = patient == label or (root / label).is_dir()
    has_pseudonyms = pseudonyms or (root / KEY_FILE).is_file()
    if is_label or not has_pseudonyms:
        return label
    # The secret key of the cohort turns a PatientID into the pseudonym.
    pseudonym = Patients(root, "pseudonym", pseudonyms).participant(patient)
    if (root / pseudonym).is_dir() or pseudonym in pseudonyms:
        return pseudonym
    return label


def _names(root: Path, patient: str) -> Names:
    """Return the label, PatientIDs and UIDs of a patient.

    A PatientID whose label belongs to another patient raises an error.
    """
    names = Names.of(root, _participant(root, patient), patient)
    if names.source_ids and patient not in {names.participant, *names.source_ids}:
        source_ids = " and ".join(map(repr, sorted(names.source_ids)))
        problem = f"the cohort's {names.participant} is not {patient!r}, but PatientID {source_ids}"
        hint = f"give {names.participant} if that patient is to leave"
        raise CadError(problem, file=root / names.participant, hint=hint)
    return names


def _tables(root: Path) -> list[str]:
    """Return the tables of the cohort, including the tables in ``derivatives``.

    Tables in a patient's own folder are left out, because they are removed with the folder.
    """
    places = [path.relative_to(root) for path in sorted(root.rglob("*.tsv"))]
    return [place.as_posix() for place in places if not place.parts[0].startswith("sub-")]


def rows_without(path: Path, participant: str) -> tuple[str, int]:
    """Return a table's text without the rows of a patient; the file is not changed.

    Parameters
    ----------
    path : Path
        A CSV or TSV file; without a column ``participant_id`` nothing is removed.
    participant : str
        ``sub-XXX``.

    Returns
    -------
    text : str
        The table without the patient's rows; all other rows are unchanged, to the byte.
    count : int
        Number of removed rows.
    """
    comma = path.suffix == ".csv"
    separator = "," if comma else "\t"
    with reading(path, f"not a {'comma' if comma else 'tab'}-separated table"):
        # The lines of the file are kept as they are, and no row is written again from its cells. So
        # the rows of other patients stay the same to the byte, even where a quoted cell holds a
        # line break.
        lines = list(io.StringIO(table_text(path, separator), newline="\n"))
        if comma:
            rows = csv.reader(lines)
        else:
            rows = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE)
        columns = next(rows, [])
        if "participant_id" not in columns:
            return "".join(lines), 0
        column = columns.index("participant_id")
        # ``line_num`` counts the lines that the reader has read. A row may have several lines.
        end = rows.line_num
        remaining_lines = lines[:end]
        removed = 0
        for row in rows:
            begin = end
            end = rows.line_num
            # A slice, because a row may be too short to have this cell.
            if row[column : column + 1] == [participant]:
                removed += 1
            else:
                remaining_lines += lines[begin:end]
    return "".join(remaining_lines), removed


@dataclass(frozen=True)
class Withdrawn:
    """Hold the result of a withdrawal: what was removed, and what still holds the patient's data.

    Parameters
    ----------
    names : Names
        The patient's ids and UIDs.
    rows : dict of str to int
        Number of rows removed from each table of the cohort.
    places : list of str
        Files and folders removed from the cohort, relative to it.
    swept : dict of str to list of str
        By run, the removed files and lines: those of the patient, and cached files that were
        computed with them.
    holders : dict of str to list of str
        Where data of the patient still are, with the traces found there: other files of the cohort,
        runs, models, nodes.
    clean : list of str
        Runs, models and nodes that hold no data of the patient, or no longer do.
    studies : dict of str to int
        Number of the patient's studies removed from each node and reader study.
    whole : bool
        Whether everything that identifies the patient could be searched for. It is False in two
        cases: the cohort had no images of the patient, whose sidecar files tell UIDs and PatientID;
        or the patient has a pseudonym and its secret key is missing. ``clean`` is then empty.
    """

    names: Names
    rows: dict[str, int]
    places: list[str]
    swept: dict[str, list[str]] = field(default_factory=dict)
    holders: dict[str, list[str]] = field(default_factory=dict)
    clean: list[str] = field(default_factory=list)
    studies: dict[str, int] = field(default_factory=dict)
    whole: bool = False

    @property
    def done(self) -> bool:
        """Tell whether the patient was removed and nothing that was searched holds his data."""
        return self.whole and not self.holders

    def as_dict(self) -> JsonObject:
        """Return the result of the withdrawal as a dictionary that JSON can hold."""
        return {
            "participant_id": self.names.participant,
            "rows": self.rows,
            "places": self.places,
            "swept": self.swept,
            "studies": self.studies,
            "still_held": self.holders,
            "free": self.clean,
        }

    def as_text(self) -> str:
        """Return the result of the withdrawal as text for a terminal."""
        patient = self.names.participant
        lines = [f"removed {n} rows of {name}" for name, n in self.rows.items()]
        lines += [f"removed {place}" for place in self.places]
        if not lines:
            lines = [f"{patient} is not in the cohort: nothing was removed from it"]
        if not self.whole:
            lines.append(
                "no place is called free: the cohort has no images of the patient (any more), so "
                "only label and id as given were looked for, not the images' UIDs and PatientID"
            )
        lines += [f"swept {run}: {', '.join(names)}" for run, names in self.swept.items()]
        lines += [f"swept {n} studies from {home}" for home, n in self.studies.items()]
        lines += [f"free of {patient}: {name}" for name in self.clean]
        for name, places in self.holders.items():
            lines.append(f"still holds {patient}: {name} ({', '.join(places)})")
        if self.holders:
            lines.append(
                "run a run's command again on the cohort, train a model again (or with --without "
                f"{patient}), or delete what is named"
            )
        return "\n".join(lines)


class Elsewhere(Protocol):
    """Describe something outside the cohort that stores studies, such as a hospital's node.

    A class for such a place has the three methods of this class, and a ``name`` by which messages
    mention the place.
    """

    name: str

    def held(self) -> AbstractContextManager[None]:
        """Return a context manager in which no other process can write to the stored studies."""

    def sweep(self, names: Names, same: SamePatient | None) -> int:
        """Remove a patient's studies from the place; return how many were removed.

        A study is the patient's if its label, PatientID or UID is in ``names``, or if ``same``
        returns True for its PatientID. A place that stores only some of these ids compares those.

        Parameters
        ----------
        names : Names
            Label, PatientIDs and UIDs of the patient.
        same : callable or None
            Takes the label ``sub-XXX`` and a PatientID; returns whether both are the same patient.
            None where the cohort has no secret key, which ``same`` needs.

        Returns
        -------
        int
            Number of studies (in a reader study: of cases) that were removed; 0 if the place had
            none of the patient's.
        """

    def studies(self, names: Names, same: SamePatient | None) -> list[str]:
        """Return the names of studies in this place that are, or may be, the patient's.

        The place, such as a hospital's node, stores studies outside the cohort. Nothing in it is
        changed.

        Parameters
        ----------
        names : Names
            Label, PatientIDs and UIDs of the patient.
        same : callable or None
            Takes the label ``sub-XXX`` and a PatientID; returns whether both are the same patient.
            None where the cohort has no secret key; ids are then only compared with ``names``.
        """


def withdraw(
    root: Path,
    patient: str,
    runs: Sequence[Path] = (),
    models: Sequence[str] = (),
    nodes: Sequence[Elsewhere] = (),
) -> Withdrawn:
    """Remove a patient from a cohort and its runs, and name what still holds the patient's data.

    The cohort is changed last, because it tells who the patient is. So a withdrawal that was
    interrupted can be repeated.

    Parameters
    ----------
    root : Path
        Cohort folder.
    patient : str
        ``sub-XXX``, ``XXX``, or the patient's original PatientID.
    runs : sequence of Path
        Folders that are runs or hold runs. The patient is removed from the runs. Other files in the
        folders are only searched for the patient.
    models : sequence of str
        Model folders, or names of released models; they are searched and not changed.
    nodes : sequence of Elsewhere
        Nodes that do not run, and reader studies; the patient's studies are removed from them.

    Returns
    -------
    Withdrawn
        Files removed from cohort, runs and nodes; files that still hold data of the patient; and
        folders that hold none. ``whole`` says whether everything that identifies the
        patient could be searched for.

    Raises
    ------
    CadError
        When ``root`` is no cohort; when a folder of ``runs`` or ``models`` does not exist, or one
        of ``models`` is no model; when a run is under way; when the images of the given label have
        another PatientID; when a PatientID is given and the key of the cohort's pseudonyms is
        missing. Nothing is removed in these cases.
    """
    patient = patient.strip()
    # Every named folder and model is opened before anything is removed. So a misspelt name stops
    # the withdrawal before its first change.
    model_folders = {name: find("models", name) for name in models}
    bundles = {name: load_bundle(folder) for name, folder in model_folders.items()}
    for run in runs:
        if not run.is_dir():
            raise CadError("no such run folder", file=run)
    if not (root / _PATIENTS).is_file():
        raise CadError(f"no such cohort: it has no {_PATIENTS}", file=root)
    for folder in [*runs, *model_folders.values()]:
        _sweep_leftovers(folder)
    # All run folders are locked first. Otherwise a run that is under way could write the patient's
    # data again.
    with ExitStack() as locks:
        run_folders: list[Path] = []
        for run in runs:
            run_folders += [folder for folder in _inner_folders(run) if _is_run(folder)]
        run_folders = list(dict.fromkeys(run_folders))  # a folder that is named twice counts once
        for run_folder in run_folders:
            locks.enter_context(owned(run_folder))
        for node in nodes:
            locks.enter_context(node.held())
        locks.enter_context(owned(root))

        names = _names(root, patient)
        proof = patient_proof(root)
        studies = {node.name: node.sweep(names, proof) for node in nodes}
        studies_left_at_nodes = {}
        for node in nodes:
            studies_left = node.studies(names, proof)
            if studies_left:
                studies_left_at_nodes[node.name] = studies_left
        swept = {}
        for run_folder in run_folders:
            texts = _swept(run_folder, names)
            if texts:
                swept[str(run_folder)] = texts
        rows, places = _removed(root, names)
        traces_in_runs = {str(run): traces(run, names) for run in runs}
        traces_in_cohort = traces(root, names, below=False)

    # Places that still hold data of the patient, and places that do not.
    holders = {}
    clean = []
    if traces_in_cohort:
        holders[str(root)] = traces_in_cohort
    for name, files in traces_in_runs.items():
        if files:
            holders[name] = files
        else:
            clean.append(name)
    for name, bundle in bundles.items():
        traces_in_model = _traces_in_model(bundle, names.participant)
        if traces_in_model:
            holders[name] = traces_in_model
        else:
            clean.append(name)
    clean += [node.name for node in nodes if node.name not in studies_left_at_nodes]
    # Only the sidecar files of the patient's images tell UIDs and PatientID, and only the cohort's
    # secret key tells to whom a pseudonym belongs. Without sidecars or key, other places may hold
    # the patient and not be recognised.
    had_images = names.participant in places
    needs_no_key = not PSEUDONYM.fullmatch(names.participant)
    could_search_for_all = had_images and (proof is not None or needs_no_key)
    if not could_search_for_all:
        clean = []
    return Withdrawn(
        names=names,
        rows=rows,
        places=places,
        swept=swept,
        holders={**holders, **studies_left_at_nodes},
        clean=clean,
        studies=studies,
        whole=could_search_for_all,
    )


def _traces_in_model(bundle: Bundle, participant: str) -> list[str]:
    """Return sentences on what a model has learned from a patient, or may have learned.

    A model that was trained on a table does not store which patients were in it.
    """
    sentences = []
    if "participant_id" not in bundle.training:
        sentences.append("trained on a table; the model does not say whose rows it held")
    else:
        rows = int((bundle.training["participant_id"] == participant).sum())
        if rows:
            sentences.append(f"trained with {rows} of the patient's regions")
    if "recalibrated_on" in bundle.metadata:
        if participant in bundle.metadata["recalibrated_on"]:
            sentences.append("recalibrated with the patient")
    elif bundle.metadata.get("recalibration"):
        sentences.append("recalibrated by an earlier version, which did not note with whom")
    return sentences


def sweep_run(run: Path, names: Names) -> list[str]:
    """Remove a patient from a run: files named after the patient, rows of tables, and caches.

    Rows of other patients stay as they are. Results of the whole cohort stay, too, until the run's
    command computes them again. The command does so at its next call, because the file
    ``.complete``, which says that the results are current, is removed.

    Parameters
    ----------
    run : Path
        A run folder; any other folder is left as it is.
    names : Names
        Label, PatientIDs and UIDs of the patient.

    Returns
    -------
    list of str
        Removed files and folders, relative to the run, and a text for each table that lost rows.
    """
    if not _is_run(run):
        return []
    with owned(run):
        return _swept(run, names)


def _inner_folders(folder: Path) -> list[Path]:
    """Return a folder and the folders directly in it, for example the runs of a comparison."""
    folders = [folder]
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not is_ours(path.name):
            folders.append(path)
    return folders


def _sweep_leftovers(folder: Path) -> None:
    """Remove files that killed processes of this program left in a folder.

    Nothing is removed from a folder that another program made. Such a folder is only searched for
    the patient later.
    """
    for inner_folder in _inner_folders(folder):
        names = [path.name for path in inner_folder.iterdir()]
        leftovers = [name for name in names if is_ours(name)]
        is_of_this_program = MARK in names or any(kind.holds(inner_folder) for kind in _BY_CONTENT)
        # A folder with nothing else was made by a process that was killed before it wrote a file.
        holds_nothing_else = leftovers == names
        if leftovers and (is_of_this_program or holds_nothing_else):
            # ``owned`` removes the files that killed processes left. It raises an error if another
            # process is writing there.
            with owned(inner_folder):
                pass


def _is_run(run: Path) -> bool:
    folder = RunFolder(run)
    return folder.memory.is_file() or folder.record.is_file()


def _swept(run: Path, names: Names) -> list[str]:
    """Remove a patient from a run folder that this process has locked (:func:`sweep_run`).

    Return the removed files and folders, and a text for each table that lost rows.
    """
    folder = RunFolder(run)
    with stage(run) as scratch:
        removed = named_places(run, names)
        changed_files = _remaining_lines(run, names)
        if removed or changed_files or traces(run, names):
            # The cached features of the folds were measured on intensity scales that the patient's
            # images helped to fit. So they are removed, and the file ``.complete``, too. Without
            # this file the next command computes the run again.
            caches = (folder.fold_features("any").parent, folder.complete)
            removed += [path.relative_to(run).as_posix() for path in caches if path.exists()]
            for name, content in changed_files.items():
                write_atomic(scratch / name, content)
            commit(run, {name: scratch / name for name in changed_files}, removed)
        return sorted(removed + [f"lines of {name}" for name in changed_files])


def _remaining_lines(run: Path, names: Names) -> dict[str, bytes]:
    """Return each file of a run that names the patient, without the patient's lines and rows."""
    contents = {}
    for path in sorted(run.iterdir()):
        if path.suffix == ".jsonl":
            lines = read_bytes(path, MAX_ARRAYS).splitlines(keepends=True)
            lines_of_others = [line for line in lines if not names.within(line)]
            if len(lines_of_others) < len(lines):
                contents[path.name] = b"".join(lines_of_others)
        elif path.suffix == ".csv":
            text, count = rows_without(path, names.participant)
            if count:
                contents[path.name] = text.encode()
        elif path.suffix == ".parquet":
            table = read_parquet(path)
            # Without this column, ``get`` returns None, and the comparison is False and no column.
            is_of_patient = table.get("participant_id") == names.participant
            if is_of_patient is not False and is_of_patient.any():
                contents[path.name] = parquet_bytes(table[~is_of_patient])
    return contents
