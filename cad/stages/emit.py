"""Emit: the tables, records and pages of a run, and what a command prints at its end."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from cad import __version__
from cad.errors import CadError
from cad.evaluation.claim import validation_md
from cad.files import JsonObject
from cad.model.versions import library_versions
from cad.reports import write_report
from cad.run_folder.records import (
    read_metrics,
    write_complete,
    write_metrics,
    write_record,
    write_validation,
)
from cad.run_folder.tables import (
    Failure,
    read_failures,
    write_explanations,
    write_failures,
    write_probabilities,
)
from cad.stages.extract import Measured
from cad.stages.judge import Judged
from cad.stages.load import Loaded
from cad.stages.printed import numbers, printed_table


@dataclass(frozen=True)
class Emitted:
    """Hold what a command prints at its end.

    Parameters
    ----------
    out : Path
        Run folder.
    studies, regions : int
        Studies and regions with a probability.
    failures : list of Failure
        Rows of ``failures.csv``.
    metrics : dict
        Content of ``metrics.json``.
    model : Path or None
        The bundle that was written.
    """

    out: Path
    studies: int
    regions: int
    failures: list[Failure]
    metrics: JsonObject
    model: Path | None = None

    def as_dict(self) -> JsonObject:
        """Return JSON-serialisable content."""
        return {
            "out": str(self.out),
            "studies": self.studies,
            "regions": self.regions,
            "failures": [asdict(f) for f in self.failures],
            "metrics": numbers(self.metrics),
        }

    def as_text(self) -> str:
        """Return lines for a terminal."""
        table = printed_table(self.metrics)
        width = max((len(name) for name, _ in table), default=0)
        lines = [f"{name:<{width}}  {value}" for name, value in table]
        lines.append(f"{self.regions} regions of {self.studies} studies scored; wrote {self.out}")
        if self.model is not None:
            lines.append(f"model: {self.model}")
        for f in self.failures:
            roi = f" ROI {f.roi_id}" if f.roi_id else ""
            lines.append(f"failed: {f.study_id}{roi} ({f.stage}): {f.reason}")
        return "\n".join(lines)


def unchanged(loaded: Loaded, measured: Measured) -> Emitted | None:
    """Return the finished result when nothing that decides it has changed."""
    folder = loaded.folder
    needed = (folder.features, folder.labels, folder.explanations, folder.page("index.html"))
    try:
        same = folder.complete.read_text(encoding="utf-8") == _identity(loaded, measured)
        if loaded.options.resume and same and all(path.exists() for path in needed):
            results = pd.read_csv(folder.probabilities)
            return _emitted(loaded, results, read_metrics(folder), read_failures(folder))
    except (OSError, ValueError, CadError):  # damaged: it is made anew
        return None
    return None


def begin(loaded: Loaded, measured: Measured) -> None:
    """Take the mark of a finished run away: what follows changes the folder.

    Raises
    ------
    CadError
        When no study could be measured; ``failures.csv`` says why.
    """
    loaded.folder.complete.unlink(missing_ok=True)
    if not measured.results:
        failures = [*loaded.failures, *measured.failures]
        write_failures(loaded.folder, failures)
        raise CadError(
            "no study could be measured",
            file=loaded.cohort.root,
            hint="; ".join(f"{f.study_id}: {f.reason}" for f in failures[:3]),
        )


def emit(loaded: Loaded, measured: Measured, judged: Judged) -> Emitted:
    """Write the run's tables and records, its pages last, and mark the folder as whole."""
    folder = loaded.folder
    failures = [*loaded.failures, *measured.failures, *judged.failures]
    write_probabilities(folder, judged.results)
    write_explanations(folder, judged.explanations)
    write_metrics(folder, judged.metrics)
    write_failures(folder, failures)
    record = _record(loaded, measured, judged)
    write_record(folder, record)
    write_validation(folder, validation_md(record, judged.metrics))
    write_report(folder.root)
    write_complete(folder, _identity(loaded, measured))
    return _emitted(loaded, judged.results, judged.metrics, failures)


def _emitted(
    loaded: Loaded, results: pd.DataFrame, metrics: JsonObject, failures: list[Failure]
) -> Emitted:
    scored = results.dropna(subset=["probability"])
    studies = scored["study_id"].nunique()
    return Emitted(loaded.folder.root, studies, len(scored), failures, metrics)


def _identity(loaded: Loaded, measured: Measured) -> str:
    """Return a hash of everything that decides what this run writes, times apart."""
    settings = loaded.settings.model_dump(mode="json")
    parts = [
        json.dumps(settings, sort_keys=True),
        json.dumps([__version__, loaded.kind, loaded.basis, *library_versions().values()]),
        json.dumps([[o.study_id, o.key, *map(asdict, o.failures)] for o in measured.outcomes]),
    ]
    root = loaded.cohort.root
    tables = sorted([*root.glob("*.tsv"), *root.glob("*.json")])
    parts += [hashlib.sha256(path.read_bytes()).hexdigest() for path in tables]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _record(loaded: Loaded, measured: Measured, judged: Judged) -> JsonObject:
    outcomes = measured.outcomes
    return {
        "name": loaded.settings.name,
        "kind": loaded.kind,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "cad_version": __version__,
        "settings": loaded.settings.model_dump(mode="json", by_alias=True),
        "decision_thresholds": judged.thresholds,
        "model": judged.model,
        "versions": library_versions(),
        "timings": {"measure": measured.seconds, **judged.timings},
        "inputs": {o.study_id: o.key for o in outcomes},
        "studies": [
            {k: v for k, v in asdict(o).items() if k not in ("failures", "key")} for o in outcomes
        ],
        "counts": {
            "studies": len(outcomes),
            "failed": sum(o.status == "failed" for o in outcomes),
            "regions": len(judged.results),
        },
        "warnings": [*judged.metrics.get("warnings", []), *judged.notes],
        "simulated": judged.simulated,
        "cohort_simulated": loaded.cohort.simulated,
    }
