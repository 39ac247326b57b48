"""What type checkers see of names that are loaded when they are first asked for."""

from cad import evaluation as evaluation
from cad import learners as learners
from cad import plot as plot
from cad.api import Belief as Belief
from cad.api import Bundle as Bundle
from cad.api import CadError as CadError
from cad.api import Cohort as Cohort
from cad.api import Table as Table
from cad.api import Validation as Validation
from cad.api import consensus as consensus
from cad.api import load_model as load_model
from cad.api import measure as measure
from cad.api import predict as predict
from cad.api import read_cohort as read_cohort
from cad.api import save_model as save_model
from cad.api import validate as validate

__version__: str
