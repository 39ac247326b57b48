"""Write the tables, records and pages of a run, and the text that a command prints: the stage
``emit``.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.files import JsonObject
from cad.base.reading import read_text, reading
from cad.base.transactions import commit, stage
from cad.base.version import __version__
from cad.folders.run_folder import RunFolder, records, tables
from cad.folders.run_folder.blinding import held_back
from cad.folders.run_folder.folder import of_every_run
from cad.folders.run_folder.known_failures import SortedFailures, sort_failures
from cad.folders.run_folder.results import read_results
from cad.learning.evaluation.statements.checklists import validation_md
from cad.learning.evaluation.summary import MeasuredDecisions, Summary, metrics_content
from cad.run.model.versions import library_versions
from cad.run.reports import write_report
from cad.run.reports.printed import closing_lines, main_measures, printed_table, regions_as_json
from cad.run.stages.aggregate import aggregate_nothing
from cad.run.stages.decide import measures_of_decisions
from cad.run.stages.earlier import compare_earlier, has_pairs
from cad.run.stages.extract import Measured, extract_nothing
from cad.run.stages.judge import Judged
from cad.run.stages.load import Loaded

MOST_FAILURES = 2
"""Most failures that a command prints at its end; ``failures.csv`` has all failures."""
MOST_WAITING = 10
"""Most studies without a region that a command names at its end; ``failures.csv`` has all."""
# The error for a run without any measured study names no more than this number of causes.
_MOST_CAUSES = 3


@dataclass(frozen=True)
class Emitted:
    """Hold the content that a command prints at its end.

    Parameters
    ----------
    out : Path
        Run folder.
    studies, regions : int
        Numbers of studies and regions with a probability.
    failures : list of Failure
        Rows of ``failures.csv`` on studies and regions that failed.
    kinds : SortedFailures
        The same failures in three groups: new, known and acknowledged; and the rows of studies that
        wait for a region.
    metrics : Summary
        Measures of the probabilities.
    decisions : MeasuredDecisions
        Measures of the decisions.
    model : Path or None
        Folder of the trained model; None where the command trains none.
    patients : list of str
        Lines to print: how many patients and regions, and the patients with the highest
        probability.
    """

    out: Path
    studies: int
    regions: int
    failures: list[tables.Failure]
    kinds: SortedFailures
    metrics: Summary
    decisions: MeasuredDecisions
    model: Path | None = None
    patients: list[str] = field(default_factory=list)

    def as_dict(self) -> JsonObject:
        """Return what the command prints as values that JSON can hold, for ``--json``."""
        results = read_results(self.out)
        hidden = held_back(results)
        return {
            "out": str(self.out),
            "studies": self.studies,
            "regions": self.regions,
            "failures": [asdict(failure) for failure in self.failures],
            "failures_by_kind": self.kinds.as_dict(),
            "waiting": [failure.study_id for failure in self.kinds.waiting],
            # While results of a man are held back, measures are hidden as well, because with few
            # other men they would reveal his results.
            "metrics": None if hidden else main_measures(self.metrics),
            "results": regions_as_json(results),
        }

    def as_text(self, verbose: bool = False) -> str:
        """Return the closing lines for a terminal; ``verbose`` adds measures and all failures."""
        folder = RunFolder(self.out)
        unacknowledged = self._unacknowledged_failures()
        lines = []
        if self.failures:
            lines.append(f"failures: {self.kinds.words}")
        if self.kinds.waiting:
            lines.append(_waiting_line(self.kinds.waiting, folder.failures))
        if verbose:
            table = printed_table(self.metrics, self.decisions)
            # With few other men, measures would reveal the results of a man who is held back.
            if held_back(read_results(self.out)):
                table = [("measures", "held back with the men whom nobody has scored")]
            width = max((len(name) for name, _ in table), default=0)
            lines += [f"{name:<{width}}  {value}" for name, value in table]
            lines += [f"failed: {text}" for text in unacknowledged]
        lines += self.patients
        if unacknowledged:
            further = ""
            if len(unacknowledged) > MOST_FAILURES:
                further = f"; and more, see {folder.failures}"
            lines.append(f"failed: {'; '.join(unacknowledged[:MOST_FAILURES])}{further}")
        elif not self.failures:  # acknowledged failures are failures, but are not named again
            lines.append("nothing failed")
        model = "" if self.model is None else f"model: {self.model}; "
        lines.append(f"{model}measures: {folder.validation}, or --verbose")
        lines.append(f"open {folder.page('index.html')}")
        return "\n".join(lines)

    def _unacknowledged_failures(self) -> list[str]:
        """Return lines of text on the failures that nobody has acknowledged.

        Regions of one study that failed for the same reason share a line.
        """
        roi_ids_by_reason: dict[tuple[str, str, str], list[str]] = {}
        for failure in [*self.kinds.new, *self.kinds.repeated]:
            study_and_reason = (failure.study_id, failure.stage, failure.reason)
            roi_ids_by_reason.setdefault(study_and_reason, []).append(failure.roi_id)
        lines = []
        for (study, step, reason), roi_ids in roi_ids_by_reason.items():
            # The id of a region is empty where the whole study failed.
            regions = f" ROI {', '.join(roi_ids)}" if roi_ids[0] else ""
            lines.append(f"{study}{regions} ({step}): {reason}")
        return lines


class NothingScored(CadError):
    """Report that no region got a probability; the run folder was written and says why.

    Attributes
    ----------
    emitted : Emitted or None
        The summary of the run, which the command prints and passes to the command of ``--tell``.
    """

    emitted: Emitted | None = None


def _waiting_line(waiting: list[tables.Failure], path: Path) -> str:
    """Return the line that names the studies which wait for a region."""
    studies = list(dict.fromkeys(failure.study_id for failure in waiting))  # each of them once
    further = ""
    if len(studies) > MOST_WAITING:
        further = f" and {len(studies) - MOST_WAITING} more, see {path}"
    return f"waiting for regions: {', '.join(studies[:MOST_WAITING])}{further}"


def unchanged(loaded: Loaded, measured: Measured) -> Emitted | None:
    """Return the result that the run folder already holds, if it is finished and still current.

    Parameters
    ----------
    loaded, measured : Loaded, Measured
        Results of the stages load and measure. Their settings, input and models are compared with
        those of the finished run.

    Returns
    -------
    Emitted or None
        None where the run must be computed, because its input changed, one of its files is missing
        or damaged, or the user gave ``--no-resume``.
    """
    folder = loaded.folder
    # All files are needed. A run by a version that did not write one of them is incomplete.
    needed_files = [*of_every_run(folder), folder.page("index.html")]
    if has_pairs(measured):
        needed_files.append(folder.earlier)
    try:
        with reading(folder.root, "not a finished run"):
            has_same_input = read_text(folder.complete) == _hash_of_inputs(loaded, measured)
            is_complete = all(path.exists() for path in needed_files)
            if loaded.options.resume and has_same_input and is_complete:
                metrics = records.read_metrics(folder)
                emitted = _emitted(
                    loaded,
                    results=tables.read_probabilities(folder),
                    metrics=Summary.from_dict(metrics),
                    decisions=MeasuredDecisions.from_dict(metrics),
                    failures=tables.read_failures(folder),
                )
                # Damaged results, which cannot be printed, raise an error here.
                _ = emitted.as_text(), emitted.as_dict()
                record = records.read_record(folder)
                if record["failures"] != emitted.kinds.counts:
                    # A failure that was new in the last run is known now, or somebody has
                    # acknowledged it.
                    records.write_record(folder, {**record, "failures": emitted.kinds.counts})
                return emitted
    except (OSError, CadError):  # the run is damaged, so it is computed again
        return None
    return None


def begin(loaded: Loaded, measured: Measured) -> None:
    """Mark the run folder as unfinished, before a table or page in it changes.

    Parameters
    ----------
    loaded, measured : Loaded, Measured
        Results of the stages load and measure.

    Raises
    ------
    NothingScored
        When no study could be measured. The run folder then has no results of an earlier run, and
        ``failures.csv`` says why.
    """
    # The mark of a finished run is removed first. So a run that is killed from here on does not
    # count as finished.
    loaded.folder.complete.unlink(missing_ok=True)
    # Reports of the earlier results must not stand beside the new results.
    for folder_of_reports in (loaded.folder.objects, loaded.folder.bundles):
        for path in sorted(folder_of_reports.glob("sub-*")):
            path.unlink()
    if not measured.results:
        failures = [*loaded.failures, *measured.failures]
        error = NothingScored(
            "no study could be measured",
            file=loaded.cohort.root,
            hint="; ".join(
                f"{failure.study_id}: {failure.reason}" for failure in failures[:_MOST_CAUSES]
            ),
        )
        # The files of an earlier run are overwritten, so that nobody takes them for those of today.
        extract_nothing(loaded)
        aggregate_nothing(loaded)
        error.emitted = emit_nothing(loaded, measured)
        raise error


def emit_nothing(
    loaded: Loaded, measured: Measured, unscored: Sequence[tables.Failure] = ()
) -> Emitted:
    """Write the run folder of a run in which no region got a probability.

    Record, measures, tables and pages are of this run, so that nothing of an earlier run is taken
    for today's. The mark of a finished run is not written: the next run computes again.

    Parameters
    ----------
    loaded, measured : Loaded, Measured
        Results of the stages load and measure.
    unscored : sequence of Failure
        The regions that were measured and that no model could score.

    Returns
    -------
    Emitted
        The summary that a command prints.
    """
    decision = loaded.settings.decision
    results = pd.DataFrame(columns=tables.PROBABILITY_COLUMNS)
    failures = [*loaded.failures, *measured.failures, *unscored]
    judged = Judged(
        results=results,
        summary=Summary(),
        explanations=[],
        failures=list(unscored),
        notes=[],
        timings={},
        thresholds=decision.thresholds,
        lower=np.empty(0),
        upper=np.empty(0),
        simulated=loaded.cohort.simulated,
        men=pd.DataFrame(columns=tables.PATIENT_COLUMNS[1:]).rename_axis(index="participant_id"),
        decisions=MeasuredDecisions(
            regions=measures_of_decisions(results, decision),
            waiting=sum(failure.waiting for failure in failures),
        ),
    )
    return _write_results(loaded, measured, judged, earlier=[])


def emit(loaded: Loaded, measured: Measured, judged: Judged) -> Emitted:
    """Write the run folder.

    Tables and records are replaced together in one step. Then the pages are written, and last the
    file that marks the run as finished.

    Parameters
    ----------
    loaded, measured : Loaded, Measured
        Results of the stages load and measure.
    judged : Judged
        Probabilities, decisions (:func:`cad.run.stages.decide.decide_run`) and measures.

    Returns
    -------
    Emitted
        The summary that a command prints.
    """
    begun = time.perf_counter()
    earlier = compare_earlier(loaded, measured)
    if earlier:  # else no man has several studies, and the stage has nothing to do
        seconds = time.perf_counter() - begun
        judged = replace(judged, timings={**judged.timings, "earlier": seconds})
    emitted = _write_results(loaded, measured, judged, earlier)
    # The mark of a finished run is written last. So wherever it exists, all other files are
    # complete.
    records.write_complete(loaded.folder, _hash_of_inputs(loaded, measured))
    return emitted


def _write_results(
    loaded: Loaded, measured: Measured, judged: Judged, earlier: Sequence[tables.EarlierRow]
) -> Emitted:
    """Replace all tables and records of the run folder in one step, then write the pages."""
    folder = loaded.folder
    failures = [*loaded.failures, *measured.failures, *judged.failures]
    summary = judged.summary
    record = _run_record(loaded, measured, judged)
    record["counts"]["regions_failed"] = _count_failed_regions(failures)
    record["failures"] = sort_failures(folder.root, failures).counts
    with stage(folder.root) as scratch:
        new_files = RunFolder(scratch)
        tables.write_probabilities(new_files, judged.results)
        tables.write_patients(new_files, judged.men)
        tables.write_explanations(new_files, judged.explanations)
        records.write_metrics(new_files, metrics_content(summary, judged.decisions))
        tables.write_failures(new_files, failures)
        records.write_record(new_files, record)
        records.write_validation(new_files, validation_md(record, summary))
        outdated_files = []
        if earlier:
            tables.write_earlier(new_files, earlier)
        elif folder.earlier.exists():  # no man has several studies any more
            outdated_files.append(folder.earlier.name)
        # Table, measures and record are replaced in one step, because a page must never show the
        # probability of one run beside the threshold of another.
        paths_by_name = {path.name: path for path in sorted(scratch.iterdir())}
        commit(folder.root, paths_by_name, outdated_files)
    write_report(folder.root)
    return _emitted(loaded, judged.results, summary, judged.decisions, failures)


def _emitted(
    loaded: Loaded,
    results: pd.DataFrame,
    metrics: Summary,
    decisions: MeasuredDecisions,
    failures: list[tables.Failure],
) -> Emitted:
    """Return what a command prints of a run whose tables and records are written.

    ``results`` are the regions with their probabilities, and ``failures`` all rows of
    ``failures.csv``.
    """
    scored = results.dropna(subset=["probability"])
    patients = closing_lines(read_results(loaded.folder.root), metrics, decisions)
    return Emitted(
        out=loaded.folder.root,
        studies=scored["study_id"].nunique(),
        regions=len(scored),
        # A study that only waits for a region has not failed.
        failures=[failure for failure in failures if not failure.waiting],
        kinds=sort_failures(loaded.folder.root, failures),
        metrics=metrics,
        decisions=decisions,
        patients=patients,
    )


def _hash_of_inputs(loaded: Loaded, measured: Measured) -> str:
    """Return a hash of everything that determines the files of this run, except for times."""
    studies = []
    for outcome in measured.outcomes:
        failures = [asdict(failure) for failure in outcome.failures]
        studies.append([outcome.study_id, outcome.key, *failures])
    identifiers = [
        json.dumps(loaded.settings.model_dump(mode="json"), sort_keys=True),
        # Another version of the program or of a library may give other results.
        json.dumps([__version__, loaded.kind, loaded.basis, *library_versions().values()]),
        loaded.cohort.digest,
        json.dumps(studies),
    ]
    return hashlib.sha256("\n".join(identifiers).encode()).hexdigest()


def _count_failed_regions(failures: Sequence[tables.Failure]) -> int:
    """Return how many regions have a failure of their own; their study may have other results."""
    regions = set()
    for failure in failures:
        if failure.roi_id and not failure.waiting:
            regions.add((failure.study_id, failure.roi_id))
    return len(regions)


def _run_record(loaded: Loaded, measured: Measured, judged: Judged) -> JsonObject:
    """Return the content of ``run.json``; two entries on failures are added by the caller."""
    outcomes = measured.outcomes
    studies = []
    for outcome in outcomes:
        study = asdict(outcome)
        # Failures are in ``failures.csv``, and the hashes of inputs under ``inputs``.
        del study["failures"], study["key"]
        studies.append(study)
    explained_regions = {(row["study_id"], row["roi_id"]) for row in judged.explanations}
    people = loaded.cohort.participants
    n_sites = int(people["site"].nunique()) if "site" in people else 0
    return {
        "name": loaded.settings.name,
        "kind": loaded.kind,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "cad_version": __version__,
        "settings": loaded.settings.model_dump(mode="json", by_alias=True),
        "decision_thresholds": judged.thresholds,
        "model": judged.model,
        "joint": None if judged.joint is None else {"leak": judged.joint.has_leak},
        "estimator": judged.estimator,
        "versions": library_versions(),
        "timings": {"measure": measured.seconds, **judged.timings},
        "inputs": {outcome.study_id: outcome.key for outcome in outcomes},
        "studies": studies,
        "counts": {
            "studies": len(outcomes),
            "failed": sum(outcome.state == "failed" for outcome in outcomes),
            "waiting": sum(outcome.waiting for outcome in outcomes),
            "regions": len(judged.results),
            "explained": len(explained_regions),
            # The entry is None where the tables have no sites.
            "sites": n_sites or None,
            "features": tables.count_features(loaded.folder, loaded.columns),
        },
        "warnings": [
            *judged.summary.warnings,
            *judged.notes,
            *loaded.settings.notes_on_old_keys,
        ],
        "simulated": judged.simulated,
        "cohort_simulated": loaded.cohort.simulated,
    }
