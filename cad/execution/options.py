"""The command-line options that say how a job is run; none of them changes a result."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ExecutionOptions:
    """Hold the command-line options that say how a job is run.

    Parameters
    ----------
    jobs : int
        Processes on this machine; 0 does the work in this one, where nothing limits it.
    scheduler : str or None
        Address of a Dask scheduler, used instead of processes here.
    resume : bool
        Keep what is whole and current.
    retry_failed : bool
        Try studies again that failed with unchanged input.
    time_limit : float
        Seconds of processor time that one study may use, and seconds that it may wait.
    memory_limit : float
        Gigabytes that one study may ask for.
    progress : bool
        Say on standard error how far the job is.
    """

    jobs: int = 1
    scheduler: str | None = None
    resume: bool = True
    retry_failed: bool = False
    time_limit: float = 600.0
    memory_limit: float = 8.0
    progress: bool = False

    @property
    def processes(self) -> int:
        """Return how many processes share work that is not supervised; this one counts."""
        return max(self.jobs, 1)


HERE = ExecutionOptions(jobs=0)
"""In this process, unsupervised: for a notebook."""
