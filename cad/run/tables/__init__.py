"""Learn from a user's own table of features, readers' scores and histology, without images.

The table may be a file with a row for each region (or for each reading of a region). It may also be
a folder of run folders (:func:`cad.folders.run_folder.partitions.read_partitions`), which contain
labels already.

The modules work in this order. ``dialects`` turns bytes into texts. ``roles`` says of each column
what it is, such as a feature or a reader's scores. ``values`` turns texts into values, and
``doubts`` finds columns with a wrong role. ``regions`` calls these modules. Then the stages of a
run follow, as for a cohort.
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
