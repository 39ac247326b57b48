"""Pages and figures of a run: reads the run folder, computes nothing."""

from cad.run.reports.pages import write_report

__all__ = ["write_report"]
