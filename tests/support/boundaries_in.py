"""Boundaries at which files of others come in: cohorts, DICOM, settings, archives, reports."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import shutil
import zipfile
from pathlib import Path

import numpy as np
from damage import CSV, JSON, NIFTI, TSV, YAML, ZIP, Boundary, Damage, thin
from dicom_files import write_seg, write_structures
from fuzzing_images import odd_dicom
from import_cases import RULES, regions, write_patient

from cad.base.errors import CadError
from cad.base.settings import DecisionSettings, PipelineSettings, read_settings
from cad.base.share import shared
from cad.dicom.into.explain import explain_source
from cad.dicom.into.importer import import_source
from cad.dicom.into.rules import ImportRules
from cad.dicom.out.sr_reader import read_report
from cad.folders.cohort import read_cohort, with_readings
from cad.learning.labels.consensus import reader_labels
from cad.mri.features.provenance import CohortFacts, resolve_auto
from cad.mri.imaging.nifti import write_volume
from cad.run.workflows.check import check


def dicom_source(root: Path, *, dce: bool = True) -> tuple[Path, Path]:
    """Two studies with regions drawn in a SEG and an RTSTRUCT, and a rules file."""
    source, rules = root / "source", root / "rules.yaml"
    rules.write_text(RULES)
    thin(write_patient(source / "a", dce=dce))
    images = sorted((source / "a" / "t2").glob("*.dcm"))
    mask = np.zeros((4, 20, 20), bool)
    mask[1:3, 4:9, 4:9] = True
    write_seg(source / "a" / "seg.dcm", images, {"ROI 1": mask})
    thin(write_patient(source / "b", "P-002", "study2", dce=False))
    square = np.array([[4, 4, 6], [9, 4, 6], [9, 9, 6], [4, 9, 6.0]])
    t2 = sorted((source / "b" / "t2").glob("*.dcm"))
    write_structures(source / "b" / "rt.dcm", t2[0], {"ROI 1": [square]})
    scores = "patient_id,roi_id,reader_id,scale,score\nP-001,1,r1,likert5,4\nP-001,1,r2,likert5,2\n"
    (source / "a" / "scores.csv").write_text(scores)
    return source, rules


def tiny_cohort(root: Path) -> Path:
    """A cohort of two patients that was imported, with every kind of image."""
    source, rules = root / "source", root / "rules.yaml"
    rules.write_text(RULES + "ranges: {adc_median: [1, 5000]}\n")
    for seed, (name, patient) in enumerate((("a", "P-001"), ("b", "P-002"))):
        write_patient(source / name, patient, name, dce=name == "a", seed=seed)
        write_volume(source / name / "rois.nii.gz", regions(1, 2))
    rows = [
        f"{p},{roi},{reader},likert5,{score}"
        for p in ("P-001", "P-002")
        for roi, reader, score in ((1, "r1", 4), (1, "r2", 2), (2, "r1", 1))
    ]
    for name in ("a", "b"):
        text = "\n".join(["patient_id,roi_id,reader_id,scale,score", *rows])
        (source / name / "scores.csv").write_text(text)
    summary = import_source(source, root / "cohort", rules)
    assert len(summary.added) == 2, summary.failures
    return root / "cohort"


def _load(cohort: Path, settings: PipelineSettings) -> None:
    """The steps of ``run`` and ``predict`` with a cohort's tables before they measure."""
    found = read_cohort(cohort)
    refs = found.studies()
    settings = resolve_auto(CohortFacts.of((r.folder, r.study_id) for r in refs), settings)
    with_readings(found, ["sub-P001/1/r9=4"])
    good = {ref.participant_id for ref in refs}
    scores, rois = (t[t["participant_id"].isin(good)] for t in (found.scores, found.rois))
    for ref in refs:
        ref.rois.to_dict()
    reader_labels(scores, rois, found.readers, settings.labels)


def tables(root: Path) -> Boundary:
    cohort = tiny_cohort(root)
    settings = PipelineSettings(name="fuzz")
    names = ("participants.tsv", "readers.tsv", "rois.tsv", "scores.tsv")
    source, rules, again = root / "source", root / "rules.yaml", root / "again"
    for path in sorted(source.rglob("*.dcm")):  # one study of one image
        if path.parent.name != "t2" or path.parent.parent.name != "a":
            path.unlink()

    def read() -> None:
        with contextlib.suppress(CadError):
            _load(cohort, settings)
        for name in (*names, "dataset_description.json"):
            again.mkdir(exist_ok=True)
            shutil.copy(cohort / name, again / name)
        import_source(source, again, rules)

    return Boundary(
        [(cohort / name, TSV) for name in names] + [(cohort / "dataset_description.json", JSON)],
        read,
        after=lambda: shutil.rmtree(again, ignore_errors=True),
    )


def sidecars(root: Path) -> Boundary:
    cohort = tiny_cohort(root)
    files = [(path, JSON) for path in sorted(cohort.rglob("*.json"))]
    source, rules = root / "source", root / "rules.yaml"
    for path in sorted(source.rglob("*.dcm")):  # one study of one image
        if path.parent.name != "t2" or path.parent.parent.name != "a":
            path.unlink()
    keep = root / "kept"
    shutil.copytree(cohort, keep)

    def read() -> None:
        check(cohort)
        import_source(source, cohort, rules).as_text()

    def back() -> None:
        shutil.rmtree(cohort)
        shutil.copytree(keep, cohort)

    return Boundary(files, read, after=back)


def images(root: Path) -> Boundary:
    cohort = tiny_cohort(root)
    return Boundary([(p, NIFTI) for p in sorted(cohort.rglob("*.nii.gz"))], lambda: check(cohort))


def _imported(root: Path, files: list[tuple[Path, Damage]], source: Path, rules: Path) -> Boundary:
    out = root / "out"

    turn = itertools.count()

    def read() -> None:
        if next(turn) % 3 == 0:
            explain_source(source, rules).as_text()
        else:
            import_source(source, out, rules).as_text()
            check(out)

    return Boundary(files, read, after=lambda: shutil.rmtree(out, ignore_errors=True))


def dicom(root: Path) -> Boundary:
    source, rules = dicom_source(root)
    shutil.rmtree(source / "b")
    paths = sorted(p for p in (source / "a").rglob("*.dcm") if p.name != "seg.dcm")
    return _imported(root, [(p, odd_dicom) for p in paths], source, rules)


def drawn(root: Path) -> Boundary:
    source, rules = dicom_source(root, dce=False)
    files: list[tuple[Path, Damage]] = [
        (source / "a" / "seg.dcm", odd_dicom),
        (source / "b" / "rt.dcm", odd_dicom),
        (source / "a" / "scores.csv", CSV),
    ]
    return _imported(root, files, source, rules)


def rules_file(root: Path) -> Boundary:
    source, rules = dicom_source(root, dce=False)
    shutil.rmtree(source / "b")
    files: list[tuple[Path, Damage]] = [(rules, YAML)]
    boundary = _imported(root, files, source, rules)

    def read() -> None:
        read_settings(ImportRules, rules)
        import_source(source, root / "out", rules).as_text()

    boundary.read = read
    return boundary


def settings_files(root: Path) -> Boundary:
    files: list[tuple[Path, Damage]] = []
    for path in sorted(shared("pipelines").glob("*.yaml")):
        files.append((Path(shutil.copy(path, root / path.name)), YAML))
    costs = root / "costs.yml"
    costs.write_text("false_positive: 1\nfalse_negative: 4\nrefer_negative: 0.4\n")

    def read() -> None:
        from cad.run.model.estimator import make_estimator

        for path in sorted(root.glob("*.yaml")):
            if hashes[path] != hashlib.sha256(path.read_bytes()).hexdigest():
                settings = read_settings(PipelineSettings, path)
                _ = settings.decision.thresholds
                make_estimator(settings)
        _ = read_settings(DecisionSettings, costs).thresholds

    hashes = {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in root.glob("*.yaml")}
    return Boundary([*files, (costs, YAML)], read)


def archives(root: Path) -> Boundary:
    source, rules = dicom_source(root, dce=False)
    shutil.rmtree(source / "b")
    path = root / "zipped" / "study.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for part in sorted((source / "a").rglob("*.*")):
            if part.parent.name in ("t2", "a"):
                out.write(part, part.relative_to(source))
    return _imported(root, [(path, ZIP)], path.parent, rules)


def reports_back(root: Path) -> Boundary:
    """A structured report that is read back."""
    from pydicom.data import get_testdata_file

    path = Path(shutil.copy(str(get_testdata_file("reportsi.dcm")), root / "sr.dcm"))
    return Boundary([(path, odd_dicom)], lambda: read_report(path))
