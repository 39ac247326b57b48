"""Define the command-line options that say how a job is run; no option changes a result."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ExecutionOptions:
    """Hold the command-line options that say how a job is run.

    Parameters
    ----------
    jobs : int
        Number of worker processes on this machine. With 0 the calling process does the work
        itself, and no limit stops it.
    scheduler : str or None
        Address of a Dask scheduler; its cluster is used instead of processes on this machine.
    resume : bool
        Whether to keep results of an earlier run whose input and settings are unchanged.
    retry_failed : bool
        Whether to measure studies again that failed before, although their input is unchanged.
    time_limit : float
        Seconds of processor time that one study may use. The study may also wait for as many
        seconds, for example for a disk.
    memory_limit : float
        Gigabytes of memory that one study may use.
    progress : bool
        Whether to show on standard error how far the job is.
    forked : bool
        Whether the processes of parallel loops are forked from a process that has loaded the
        learners, which saves time. Only the commands of this program do so. Each forked process
        imports the main module again; in a user's script this would run the script again.
    """

    jobs: int = 1
    scheduler: str | None = None
    resume: bool = True
    retry_failed: bool = False
    time_limit: float = 600.0
    memory_limit: float = 8.0
    progress: bool = False
    forked: bool = False

    @property
    def processes(self) -> int:
        """Return how many processes may share a loop that is not over studies.

        This is ``jobs``, but at least 1. Such loops, for example over folds, have no limit of time
        or memory.
        """
        return max(self.jobs, 1)


HERE = ExecutionOptions(jobs=0)
"""Options to do the work in the calling process, without limits, as in a notebook."""
