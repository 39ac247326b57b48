"""The commands whose crash points are enumerated, each on the smallest input that does the work."""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from crash_points import Case
from import_cases import RULES, write_patient, write_rois
from reading_cases import export, make_cohort, outline, square

QUICK = """
name: quick
features:
  modalities: [t2w]
  families: [intensity]
  perfusion: {t1: fixed, b1: none, arterial_input: parker}
learner: {name: ProbabilisticSVC}
validate: {bootstraps: 0}
"""
SCORES = "P-001,1,r1,likert5,4\nP-001,1,r2,likert5,2\n"
READING = ("reading", "cohort", "-o", "study", "--readers", "r1,r2", "--outlines")
COLLECT = ("reading", "cohort", "-o", "study", "--collect", "study/r1-session-1.jsonl")
IMPORT = ("import", "source", "cohort", "--rules", "rules.yaml")


def flush() -> Callable[[int], None]:
    """Return what flushes: nothing, for a kill loses nothing that was written."""
    return lambda handle: None


def cad(*words: str) -> int:
    """Run a command line in this process; return its exit code."""
    import typer.main

    from cad.cli import main, shared
    from cad.run.execution import pool, resume
    from cad.run.reports import pages

    os.fsync = flush()
    _compute_once()
    typer.main.get_command = _parser
    pages._THREADS = 1  # a copy of the folder is of one moment
    shared.load_ahead = lambda out, options, **_: options  # for workers, of which there are none
    resume.each = _here
    pool.Caller.__call__ = lambda self, function, *arguments: function(*arguments)
    sys.argv = ["cad", *words]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    except typer.Exit as end:
        return int(end.exit_code)
    return 0


@cache
def _compute_once() -> None:
    """Let what reads and writes no file be computed in the first run alone."""
    from figures_once import once

    from cad.dicom.out import results
    from cad.mri.imaging import plausibility
    from cad.run.reports import pages
    from cad.run.stages import aggregate, emit, predict, study, train, validate

    for module, names in (
        (pages, ("draw_figures",)),
        (plausibility, ("implausible",)),
        (results, ("_segmentation", "structured_report")),
        (study, ("_measured_study",)),
        (aggregate, ("reader_labels",)),
        (
            validate,
            (
                "_validated_rivals",
                "out_of_fold",
                "judge",
                "_explanations_of_folds",
                "_cohort_warnings",
                "_measured_skill",
                "validated_risk",
            ),
        ),
        (predict, ("judge",)),
        (emit, ("library_versions",)),
        (train, ("_typicality", "metadata", "card")),
    ):
        for name in names:
            setattr(module, name, once(getattr(module, name)))


@cache
def _parser(app: Any) -> Any:
    """Return the parser of the command line, made once for all runs."""
    import typer.main

    return typer.main.get_group(app)


def _here(function: Callable[[Any], Any], tasks: Any, options: object) -> Iterator[Any]:
    from cad.run.execution.worker import Done

    return (Done(task, function(task), None, 0.1) for task in tasks)


def rules(labels: str = "id") -> None:
    """Write the import's rules, with ranges and a readers' template."""
    text = RULES.replace("labels: id", f"labels: {labels}")
    Path("rules.yaml").write_text(text + "readers: [r1, r2]\n")


def source(folder: str = "source", study: str = "study1", *labels: int, **more: Any) -> None:
    """Write a DICOM study of two images, with regions where labels are given."""
    _patient(Path(folder), "P-001", study)
    if labels:
        write_rois(Path(folder), *labels, **more)


def _patient(folder: Path, patient: str, study: str) -> None:
    write_patient(folder, patient, study, dce=False)
    for series in ("loc", "v3", "v4"):
        shutil.rmtree(folder / series)


def new_patient() -> None:
    rules()
    source("source/a", "study1", 1, 2, scores=SCORES)
    _patient(Path("source/b"), "P-002", "other")


def with_pseudonym() -> None:
    rules("pseudonym")
    source("source", "study1", 1, scores=SCORES)


def second_study() -> None:
    rules()
    source("source", "study1", 1, scores=SCORES)
    if cad(*IMPORT):
        raise RuntimeError("the first study was not imported")
    shutil.rmtree("source")
    source("source", "study2", 1)


def regions_later() -> None:
    rules()
    source("source")
    if cad(*IMPORT):
        raise RuntimeError("the study was not imported")
    write_rois(Path("source"), 1, 2, scores=SCORES)


def zipped() -> None:
    rules()
    source("plain", "study1", 1, scores=SCORES)
    Path("source").mkdir()
    with zipfile.ZipFile("source/study.zip", "w") as archive:
        for path in sorted(p for p in Path("plain").rglob("*") if p.is_file()):
            archive.write(path, path.relative_to("plain"))


class FolderArchive:
    """An archive whose patients lie in a folder; instances are written as a network door does."""

    def find(self, patient_id: str) -> list[Any]:
        from cad.dicom.archive.interface import FoundSeries

        return [
            FoundSeries(patient_id, "1.2.3", f"1.2.3.{i}", "MR", len(list(folder.iterdir())))
            for i, folder in enumerate(sorted(Path("source").iterdir()))
        ]

    def fetch(self, series: list[Any], into: Path) -> None:
        for one in series:
            number = one.series_uid.rsplit(".", 1)[1]
            for path in sorted(sorted(Path("source").iterdir())[int(number)].iterdir()):
                (into / f"{number}-{path.name}").write_bytes(path.read_bytes())


def from_archive() -> int:
    from cad.dicom.into import importer as pacs_import

    pacs_import.connect = lambda *_: FolderArchive()
    return cad(*IMPORT[:1], "host:104", "cohort", "--patient", "P-001", *IMPORT[3:])


def pseudonymous() -> int:
    """The key is drawn at random; here it is one that two runs share."""
    import secrets

    secrets.token_hex = lambda n: "ab" * n
    return cad(*IMPORT)


def exported() -> None:
    """A reader scored two patients and corrected an outline."""
    here = Path()
    make_cohort(here / "cohort", 2)
    if cad(*READING):
        raise RuntimeError("the reader study was not written")
    drawn = outline(here / "cohort", here / "study", square())
    export(here / "study", "r1", outlines=[drawn])


def simulated() -> int:
    """A cohort that was finished before the kill is refused as any cohort is, and left as it is."""
    from cad.base.errors import CadError
    from cad.evidence.phantom import simulate

    try:
        simulate(Path("cohort"), 1, 5, light=True)
    except CadError as error:
        return 0 if "not empty" in error.problem else 2
    return 0


def withdrawn() -> int:
    """A patient leaves a cohort, a run and a reader study.

    Exit code 1 says that the run's pages still name the patient, or, after a late kill, that the
    patient is not there.
    """
    words = ("--cohort", "cohort", "--runs", "model.validation", "--runs", "study")
    return 0 if cad("cohort", "remove", "sub-0002", *words) == 1 else 2


def in_run_and_study() -> None:
    """Name the one who leaves in a run by a UID that the cohort alone knows for theirs."""
    sidecar = {"StudyInstanceUID": "1.2.826.0.1.7001", "PatientID": "MRN-7001"}
    Path("cohort/sub-0002/anat/sub-0002_T2w.json").write_text(json.dumps(sidecar))
    with Path("model.validation/earlier-log.jsonl").open("a") as log:
        log.write(json.dumps({"study": sidecar["StudyInstanceUID"]}) + "\n")
    if cad("reading", "cohort", "-o", "study", "--readers", "r1"):
        raise RuntimeError("the reader study was not written")
    (Path("study") / "kept").mkdir()
    export(Path("study"), "r1").rename("study/kept/r1.jsonl")


def node(*folders: str) -> int:
    """Take what lies in some folders as a node does: started, received, and ended in order."""
    from live_node import make_settings

    from cad.base.errors import CadError
    from cad.base.transactions.lock import locked
    from cad.hospital.node.inbox import Inbox
    from cad.hospital.node.service import _sound_queue

    os.fsync = flush()
    settings = make_settings(Path("home"))
    try:
        with locked(settings.home):  # as the service: one node a folder
            queue = _sound_queue(settings.home / "queue.sqlite")
            inbox = Inbox(settings, queue)
            inbox.take_stock()
            for folder in folders:
                for path in sorted(Path(folder).rglob("*.dcm")):
                    with inbox.copied(path) as copied:
                        inbox.keep(copied, "SCANNER")
            inbox.close()
            queue.close()
    except CadError as error:
        print(error)
        return 2
    return 0


def to_be_sent() -> None:
    Path("home").mkdir()
    Path("home/node.key").write_text("ab" * 16)
    source("source/a", "study1")
    _patient(Path("source/b"), "P-002", "other")


def computed_there() -> None:
    """A cohort and a node that has studies of the one who leaves and of another."""
    to_be_sent()
    rules()
    if cad(*IMPORT) or node("source"):
        raise RuntimeError("nothing was imported, or nothing came")
    Path("home/audit.jsonl").touch()


def two_failures() -> None:
    """Let two studies of a run have failed, one of which is acknowledged already."""
    from cad.folders.run_folder import RunFolder
    from cad.folders.run_folder.known_failures import acknowledge
    from cad.folders.run_folder.tables import Failure, write_failures

    failures = [Failure(man, man, "", "read", "no T2") for man in ("sub-0001", "sub-0002")]
    write_failures(RunFolder(Path("run")), failures)
    acknowledge(Path("run"), "sub-0002", "will not be repeated")


def left_the_node() -> int:
    """The patient may have left before the kill; then nothing is there to find (exit code 1)."""
    words = ("P-001", "--cohort", "cohort", "--node", "home")
    return 0 if cad("cohort", "remove", *words) in (0, 1) else 2


def cases(shared: Path) -> dict[str, Case]:
    """Return every case by its name; ``shared`` is a folder for what several start from."""
    ready = shared / "ready"

    def prepared() -> Path:
        """A cohort of two, a pipeline, a model, and a DICOM study with its run; made once."""
        if not ready.exists():
            from cad.base.share import shared as share
            from cad.evidence.phantom import simulate

            here = os.getcwd()
            ready.mkdir()
            os.chdir(ready)
            simulate(Path("cohort"), 2, 1, light=True)
            for unread in sorted(Path("cohort").glob("sub-*/[dp]*")):  # T2 is measured alone
                shutil.rmtree(unread)
            Path("quick.yaml").write_text(QUICK)
            codes = [cad("train", "quick.yaml", "--cohort", "cohort", "-o", "model")]
            dicom = str(share("sample_data") / "dicom")
            codes += [cad("import", dicom, "imported", "--rules", "sample")]
            codes += [cad("predict", "--model", "model", "--cohort", "imported", "-o", "run")]
            codes += [cad("report", "run", "--dicom", "--cohort", "imported")]
            shutil.rmtree("run/dicom")
            os.chdir(here)
            if any(codes):
                raise RuntimeError(f"the cases could not be prepared: {codes}")
        return ready

    def take(*names: str | tuple[str, str]) -> None:
        for name in names:
            old, new = name if isinstance(name, tuple) else (name, name)
            path = prepared() / old
            if path.is_dir():
                shutil.copytree(path, new)
            else:
                shutil.copy2(path, new)

    learn = ("train", "quick.yaml", "--cohort", "cohort", "-o", "new")
    on = ("--model", "model", "--cohort", "cohort", "-o")
    found = [
        Case("import, new patients", lambda: cad(*IMPORT), new_patient),
        Case("import, pseudonyms", pseudonymous, with_pseudonym),
        Case("import, second study", lambda: cad(*IMPORT), second_study),
        Case("import, regions later", lambda: cad(*IMPORT), regions_later),
        Case("import, zip", lambda: cad(*IMPORT), zipped),
        Case("import, archive", from_archive, lambda: (rules(), source())),
        Case(
            "import, two sources at once",
            lambda: cad("import", "source/a", *IMPORT[2:]),
            new_patient,
            other=lambda: cad("import", "source/b", *IMPORT[2:]),
        ),
        Case("simulate", simulated, lambda: None),
        Case("train", lambda: cad(*learn), partial(take, "cohort", "quick.yaml")),
        Case(
            "train --extend, over a model",
            lambda: cad(*learn[:3], "imported", *learn[4:], "--extend", "model"),
            partial(take, "imported", "quick.yaml", "model", ("model", "new")),
        ),
        Case(
            "run",
            lambda: cad("run", "quick.yaml", "--cohort", "cohort", "-o", "out"),
            partial(take, "cohort", "quick.yaml"),
        ),
        Case("predict", lambda: cad("predict", *on, "out"), partial(take, "cohort", "model")),
        Case("suggest", lambda: cad("suggest", *on, "out"), partial(take, "cohort", "model")),
        Case(
            "watch night",
            lambda: cad(
                "watch",
                "night",
                "run",
                "--cohort",
                "imported",
                "--model",
                "model",
                "--shadow",
                "next",
                "-o",
                "out",
            ),
            partial(take, "run", "imported", "model", ("model", "next")),
        ),
        Case(
            "predict --shadow",
            lambda: cad("predict", *on, "out", "--shadow", "next"),
            partial(take, "cohort", "model", ("model", "next")),
        ),
        Case(
            "acknowledge",
            lambda: cad("acknowledge", "run", "sub-0001", "--reason", "no T2"),
            lambda: (take("run"), two_failures()),
        ),
        Case("reading", lambda: cad(*READING), lambda: make_cohort(Path("cohort"), 2)),
        Case("reading --collect", lambda: cad(*COLLECT), exported),
        Case(
            "cohort remove",
            withdrawn,
            lambda: (take("cohort", "model.validation"), in_run_and_study()),
        ),
        Case("serve", partial(node, "source"), to_be_sent),
        Case("cohort remove --node", left_the_node, computed_there),
        Case(
            "report --fhir",
            lambda: cad("report", "run", "--fhir", "--cohort", "imported"),
            partial(take, "run", "imported"),
        ),
        Case(
            "report --dicom",
            lambda: cad("report", "run", "--dicom", "--cohort", "imported"),
            partial(take, "run", "imported"),
        ),
        Case(
            "experiment",
            lambda: cad("experiment", "niaf2014-outlier", "-o", "out", "--repeats", "1"),
            lambda: None,
        ),
    ]
    return {case.name: case for case in found}
