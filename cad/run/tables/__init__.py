"""Learn from somebody's own table of features, readers' scores and histology; no image is read.

Wherever a path is asked for, it is a file with a row per region (or a row per reading), or a folder
of run folders (:func:`cad.folders.run_folder.partitions.read_partitions`), which bring their own
labels. The way through: bytes to texts (``dialects``), columns to roles (``roles``), texts to
values (``values``), what columns seem to be instead (``doubts``), all together (``regions``), and
then the stages that a cohort goes through.
"""

from cad.run.tables.dialects import Dialect
from cad.run.tables.predicting import predict_table
from cad.run.tables.regions import Regions, read_regions
from cad.run.tables.roles import Columns
from cad.run.tables.settings import DEFAULT_PIPELINE, table_settings
from cad.run.tables.training import train_table
from cad.run.tables.validating import validate_table

__all__ = [
    "DEFAULT_PIPELINE",
    "Columns",
    "Dialect",
    "Regions",
    "predict_table",
    "read_regions",
    "table_settings",
    "train_table",
    "validate_table",
]
