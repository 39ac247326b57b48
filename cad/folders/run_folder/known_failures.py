"""Sort the failures of a run into new, known and acknowledged ones.

A study without a region waits for somebody to draw one. This is a state and no failure: nobody is
told of it, and nobody needs to acknowledge it.

If a run into the same folder is repeated every night, a study that cannot be read fails each time.

- A known failure is in ``told.csv``: an earlier command has printed it at its end. (A run that is
  killed before its end has printed nothing.)
- An acknowledged failure is in ``acknowledged.csv``: somebody has accepted it.
- If the same study fails for another reason, this is another failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from cad.base.errors import CadError
from cad.base.files import CONTROL, write_csv
from cad.base.reading import read_rows
from cad.base.transactions import owned
from cad.folders.run_folder.folder import RunFolder
from cad.folders.run_folder.tables import Failure, read_failures

# Columns that together name a failure, and the columns of acknowledged.csv and of told.csv.
_KEY = ("participant_id", "study_id", "roi_id", "reason")
_COLUMNS = [*_KEY, "because", "when"]
_TOLD = [*_KEY, "since"]


@dataclass(frozen=True)
class SortedFailures:
    """Hold the failures of a run, each in one of three lists, and the studies that wait.

    Parameters
    ----------
    new : list of Failure
        Failures that no command has reported yet.
    repeated : list of Failure
        Failures that a command has reported, and that nobody has acknowledged.
    acknowledged : list of Failure
        Failures that somebody has acknowledged with a reason.
    waiting : list of Failure
        Rows of studies that wait for a region; they are no failures.
    """

    new: list[Failure]
    repeated: list[Failure]
    acknowledged: list[Failure]
    waiting: list[Failure] = field(default_factory=list)

    @property
    def unsettled(self) -> bool:
        """Tell whether a failure is left that nobody has acknowledged."""
        return bool(self.new or self.repeated)

    @property
    def words(self) -> str:
        """Return in words how many failures are new, known and acknowledged; empty if there are
        none.
        """
        kinds = (("new", self.new), ("known", self.repeated), ("acknowledged", self.acknowledged))
        return ", ".join(f"{len(failures)} {kind}" for kind, failures in kinds if failures)

    @property
    def counts(self) -> dict[str, int]:
        """Return how many failures are of each kind, for ``run.json``."""
        return {
            "new": len(self.new),
            "known": len(self.repeated),
            "acknowledged": len(self.acknowledged),
        }

    def as_dict(self) -> dict[str, object]:
        """Return for JSON the new failures in full, and the numbers of the others.

        The others are the failures that were known before, and those that somebody acknowledged.
        """
        return {
            "new": [asdict(failure) for failure in self.new],
            "known": len(self.repeated),
            "acknowledged": len(self.acknowledged),
        }


def sort_failures(root: Path, failures: Sequence[Failure]) -> SortedFailures:
    """Tell new failures from known and acknowledged ones.

    Parameters
    ----------
    root : Path
        The run folder.
    failures : sequence of Failure
        The rows of ``failures.csv`` of this run.

    Returns
    -------
    SortedFailures
        Each failure in one of the lists ``new``, ``repeated``, ``acknowledged`` and ``waiting``, in
        the given order. A failure of a study that waits for a region is always in ``waiting``.
    """
    acknowledged_keys = {_key_of_row(row) for row in _acknowledged(root)}
    told_keys = {_key_of_row(row) for row in _read_told(root)}
    sorted_failures = SortedFailures(new=[], repeated=[], acknowledged=[])
    for failure in failures:
        if failure.waiting:
            sorted_failures.waiting.append(failure)
        elif _key_of_failure(failure) in acknowledged_keys:
            sorted_failures.acknowledged.append(failure)
        elif _key_of_failure(failure) in told_keys:
            sorted_failures.repeated.append(failure)
        else:
            sorted_failures.new.append(failure)
    return sorted_failures


def remember(root: Path, failures: Sequence[Failure], unreported: Sequence[Failure] = ()) -> None:
    """Record which failures a command has reported, so that the next command calls them known.

    Parameters
    ----------
    root : Path
        The run folder. Afterwards its ``told.csv`` has the failures of this run alone, and
        ``acknowledged.csv`` has no rows of studies and regions that did not fail in this run. So a
        failure of a study that had a result in between counts as new, even if it was acknowledged.
    failures : sequence of Failure
        The failures of this run; rows of studies that wait for a region are left out.
    unreported : sequence of Failure
        Those of ``failures`` that could not be reported. They stay new.

    Raises
    ------
    CadError
        When another command writes into the folder.
    """
    folder = RunFolder(root)
    failures = [failure for failure in failures if not failure.waiting]
    # Where nothing failed, now or before, there is nothing to record or to forget.
    if not failures and not folder.told.is_file() and not folder.acknowledged.is_file():
        return
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with owned(root):
        # Repaired failures are forgotten first, and told.csv is written after that. If the process
        # is killed in between and a repaired failure comes back, it counts as known, and the run
        # ends with exit code 1. In the reverse order it would still count as acknowledged.
        _forget_repaired(folder, failures)
        first_told = {_key_of_row(row): row["since"] for row in _read_told(root)}
        rows = []
        for failure in failures:
            if failure in unreported:  # nobody was told of it, so that it stays new
                continue
            key = _key_of_failure(failure)
            entry = dict(zip(_KEY, key, strict=True))
            rows.append({**entry, "since": first_told.get(key, now)})
        write_csv(folder.told, pd.DataFrame(rows, columns=_TOLD), _TOLD)


def _forget_repaired(folder: RunFolder, failures: Sequence[Failure]) -> None:
    """Drop the acknowledged failures of studies and regions that have a result now.

    If such a study fails again, an existing result is lost, and somebody must be told. A study that
    now fails for another reason was not repaired, and its acknowledged failure is kept.
    """
    acknowledged_rows = _acknowledged(folder.root)
    failing = {(failure.study_id, failure.roi_id) for failure in failures}
    still_failing = []
    for row in acknowledged_rows:
        of_study = (row["study_id"], "")  # a failure of the whole study names no region
        of_region = (row["study_id"], row["roi_id"])
        if of_study in failing or of_region in failing:
            still_failing.append(row)
    # A file that would not change is not written anew.
    if len(still_failing) < len(acknowledged_rows):
        write_csv(folder.acknowledged, pd.DataFrame(still_failing, columns=_COLUMNS), _COLUMNS)


def acknowledge(root: Path, name: str, because: str) -> list[Failure]:
    """Acknowledge the failures of a patient or study: they no longer make a run end with code 1.

    Parameters
    ----------
    root : Path
        The run folder.
    name : str
        ``sub-XXX`` or the study's id. All its present failures are acknowledged, with their
        reasons; a failure with a new reason is a new failure.
    because : str
        Why nothing is to be done about the failures, in words for ``acknowledged.csv``. If a
        failure is acknowledged already, new words are added to the earlier ones.

    Returns
    -------
    list of Failure
        The failures that were acknowledged.

    Raises
    ------
    CadError
        When no failure has that name, when no reason is given, or when another command writes into
        the folder.
    """
    folder = RunFolder(root)
    if not because.strip() or CONTROL.search(because):
        raise CadError("a failure is acknowledged with a reason of one line", hint="--reason TEXT")
    rows_of_run = read_failures(folder) if folder.failures.is_file() else []
    failures = [failure for failure in rows_of_run if not failure.waiting]
    named_failures = [
        failure for failure in failures if name in (failure.participant_id, failure.study_id)
    ]
    if not named_failures:
        # A study of this name may wait for a region, which needs another message.
        if any(name in (row.participant_id, row.study_id) for row in rows_of_run):
            raise CadError(
                f"{name} waits for a region, which is no failure",
                file=folder.failures,
                hint="outline a region; until then the run counts the study as waiting",
            )
        failed_studies = sorted({failure.study_id for failure in failures})
        hint = "nothing failed"
        if failed_studies:
            hint = f"failed have {', '.join(failed_studies[:10])}"
        raise CadError(
            f"no failure of {name}",
            file=folder.failures,
            hint=hint,
        )
    now = datetime.now(UTC).isoformat(timespec="seconds")
    # The folder is locked: if two commands wrote `acknowledged.csv` at the same time, the second
    # would overwrite the rows of the first.
    with owned(root):
        rows = _acknowledged(root)
        row_by_key = {_key_of_row(row): row for row in rows}
        for failure in named_failures:
            acknowledged_row = row_by_key.get(_key_of_failure(failure))
            if acknowledged_row is None:
                entry = dict(zip(_KEY, _key_of_failure(failure), strict=True))
                rows.append({**entry, "because": because.strip(), "when": now})
            # The same words are not added twice. Reasons are separated by semicolons.
            elif f"; {because.strip()}; " not in f"; {acknowledged_row['because']}; ":
                acknowledged_row["because"] += f"; {because.strip()}"
        write_csv(folder.acknowledged, pd.DataFrame(rows), _COLUMNS)
    return named_failures


def _key_of_failure(failure: Failure) -> tuple[str, ...]:
    """Return what names a failure, in the order of ``_KEY``."""
    return (failure.participant_id, failure.study_id, failure.roi_id, failure.reason)


def _key_of_row(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in _KEY)


def _acknowledged(root: Path) -> list[dict[str, str]]:
    path = RunFolder(root).acknowledged
    return list(read_rows(path, _COLUMNS)) if path.is_file() else []


def _read_told(root: Path) -> list[dict[str, str]]:
    path = RunFolder(root).told
    return list(read_rows(path, _TOLD)) if path.is_file() else []
