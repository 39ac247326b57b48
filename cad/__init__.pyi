"""What type checkers see of names that are loaded when they are first asked for."""

from cad import evaluation as evaluation
from cad import learners as learners
from cad import plot as plot
from cad.run.api import Belief as Belief
from cad.run.api import Bundle as Bundle
from cad.run.api import CadError as CadError
from cad.run.api import Cohort as Cohort
from cad.run.api import Table as Table
from cad.run.api import Validation as Validation
from cad.run.api import consensus as consensus
from cad.run.api import default_learner as default_learner
from cad.run.api import load_model as load_model
from cad.run.api import measure as measure
from cad.run.api import predict as predict
from cad.run.api import read_cohort as read_cohort
from cad.run.api import save_model as save_model
from cad.run.api import validate as validate

__version__: str
