"""Write the pages and figures of a run from the tables of its run folder.

No result is computed here.
"""

from cad.run.reports.pages import write_report

__all__ = ["write_report"]
