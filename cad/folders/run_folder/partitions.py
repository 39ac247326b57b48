"""Join the tables of several run folders, such as a hospital's runs of each month."""

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from cad.base.errors import CadError
from cad.base.reading import parquet_columns, read_parquet, reading
from cad.folders.run_folder.folder import RunFolder
from cad.folders.run_folder.records import read_record
from cad.folders.run_folder.tables import KEYS
from cad.mri.columns import columns_stated

LABELS = ["y", "eta", "p", "truth", "label_kind"]
"""Columns of the joined table that are not features.

The columns of :data:`cad.folders.run_folder.tables.KEYS` are not features either.
"""
# Sections of the settings that must be equal in all runs that are joined. Otherwise a column would
# mean something else in each run.
_SHARED = ("images", "features", "labels")
# Settings by which a region's features or label may depend on the run's other patients. For each
# setting the entry lists the values with which runs may be joined.
_OF_ALL = {
    ("images", "t2_standardisation"): ("none", "zscore", "reference"),
    # With `mean` no label depends on other patients. With `agreement` the weights of the readers
    # depend on the run's patients. But a weight says how far a reader agrees with the other
    # readers. Every run estimates this property of the reader, so that its labels may be joined.
    ("labels", "consensus"): ("mean", "agreement"),
}


def read_partitions(root: Path) -> pd.DataFrame:
    """Join the regions' features and labels of all run folders in a folder.

    The runs are read one after the other, to save memory. Columns that say how a region was
    measured are not read.

    Parameters
    ----------
    root : Path
        Folder that holds finished runs of `cad run` or `cad train`, or the folder of one such run.

    Returns
    -------
    DataFrame
        One row per measured region: ``participant_id``, ``study_id``, ``roi_id``, the features,
        then ``y``, ``eta``, ``p``, ``truth`` and ``label_kind`` as in ``labels.parquet``. A feature
        that a run lacks is NaN in the rows of this run.

    Raises
    ------
    CadError
        For a folder without a run, a run that is not finished, and a patient in two runs. Also for
        runs whose settings differ, and for settings by which features or labels depend on the run's
        other patients.
    """
    folders = _finished_runs(root)
    columns = [*KEYS, *columns_stated(_same_settings(folders))]
    tables: list[pd.DataFrame] = []
    run_of: dict[str, RunFolder] = {}
    for folder in folders:
        features = _read_columns(folder.features, columns)
        for patient in features["participant_id"].unique():
            if patient in run_of:
                raise CadError(
                    f"also in {run_of[patient].root}: a patient may be in one run only, else folds "
                    "would train on the patients that they test",
                    file=folder.features,
                    patient=patient,
                    hint="run all studies of a patient together, or move one of the runs away",
                )
            run_of[patient] = folder
        region_keys = ["participant_id", "roi_id"]
        labels = _read_columns(folder.labels, [*region_keys, *LABELS])
        tables.append(features.merge(labels, on=region_keys, how="left"))
    joined = pd.concat(tables, ignore_index=True)
    # The joined tables have the columns in the order in which runs brought them. They are put into
    # the order of the settings.
    measured_columns = [name for name in columns if name in joined]
    joined = joined[[*measured_columns, *LABELS]]
    # The package pyarrow keeps memory that it no longer uses, as much as the joined table takes.
    # This call frees that memory.
    pa.default_memory_pool().release_unused()
    return joined


def _finished_runs(root: Path) -> list[RunFolder]:
    """Return the finished runs in a folder, or the folder itself if it is a run.

    An unfinished run raises an error.
    """
    folders = [RunFolder(path) for path in (root, *sorted(root.iterdir()))]
    runs = [folder for folder in folders if folder.features.is_file()]
    if not runs:
        raise CadError(
            "no run of `cad run` or `cad train` in this folder, which has features.parquet",
            file=root,
        )
    for folder in runs:
        if not (folder.complete.is_file() and folder.labels.is_file()):
            raise CadError(
                "not a finished run with labels",
                file=folder.root,
                hint="finish it with the command that began it, or move it away",
            )
    return runs


def _same_settings(folders: list[RunFolder]) -> dict[str, Any]:
    """Return the settings of the first run.

    An error is raised if another run has settings with which a column would have another meaning.
    """
    first, *other_folders = folders
    settings: dict[str, Any] = read_record(first)["settings"]
    # The values of a single run may depend on all of its patients, as no other run is joined.
    if other_folders:
        for (section, key), accepted_values in _OF_ALL.items():
            value = settings[section][key]
            if value not in accepted_values:
                raise CadError(
                    f"{section}.{key} = {value}: its values depend on all patients of the run, so "
                    "that those of two runs cannot be joined",
                    file=first.record,
                    hint=f"run again with {section}.{key} one of {', '.join(accepted_values)}",
                )
    for folder in other_folders:
        other_settings = read_record(folder)["settings"]
        for section in _SHARED:
            for key, value in other_settings[section].items():
                if settings[section].get(key) != value:
                    raise CadError(
                        f"{section}.{key} is {value}, and {settings[section].get(key)} in "
                        f"{first.root}: the tables do not mean the same",
                        file=folder.record,
                        hint="run one of them again with the other's settings",
                    )
    return settings


def _read_columns(path: Path, wanted: list[str]) -> pd.DataFrame:
    """Read those of the wanted columns that a table has, in the order of ``wanted``."""
    with reading(path, "not a readable table"):
        present = set(parquet_columns(path))
        return read_parquet(path, [name for name in wanted if name in present])
