"""A day at the archive with the DICOM sample study, one step after another.

    tests/support/with_orthanc.sh python tests/support/round_trip.py --model MODEL [OUT]

Pushes the study, imports it from the archive (it awaits its ROIs), pushes the ROIs as a SEG as a
radiologist's workstation would, imports again, predicts, sends SR and SEG back, and lists what the
archive then holds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from pathlib import Path

import numpy as np
import pydicom
from dicom_files import write_seg

from cad.base.share import shared
from cad.dicom.archive.client import connect
from cad.dicom.into.importer import import_patient
from cad.dicom.out.sr_reader import read_report
from cad.mri.imaging.nifti import read_volume

STUDY = Path("sample_data/dicom/Sample0001")


def main() -> None:
    """Run every step; any that fails ends the program with its reason."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="phantom-psvm")
    parser.add_argument("out", nargs="?", type=Path)
    arguments = parser.parse_args()
    out: Path = arguments.out or Path(tempfile.mkdtemp())
    address, aet = os.environ["CAD_ARCHIVE"], os.environ["CAD_ARCHIVE_AET"]
    archive = connect(address, aet)
    study = shared(*STUDY.parts)
    rules = shared("configs", "import", "sample.yaml")
    slices = sorted(study.rglob("*.dcm"))
    archive.store(slices)
    print(f"pushed {len(slices)} files", flush=True)
    patient = str(pydicom.dcmread(slices[0], stop_before_pixels=True).PatientID)
    summary = import_patient(address, aet, patient, out / "cohort", rules)
    print(summary.as_text(), flush=True)
    archive.store([_annotate(study, out)])
    summary = import_patient(address, aet, patient, out / "cohort", rules)
    print(summary.as_text(), flush=True)
    cohort = ["--cohort", out / "cohort"]
    _cad("predict", "--model", arguments.model, *cohort, "-o", out / "run")
    _cad("report", out / "run", "--dicom", *cohort, "--send", address, "--aet", aet)
    for roi in read_report(next((out / "run" / "dicom").glob("*_SR.dcm"))).rois:
        number, unit = roi.values["111047"]
        print(f"ROI {roi.roi_id}: {number:.1f} {unit}, {roi.evaluations['decision']}")
    held = _modalities()
    print("the archive lists " + ", ".join(f"{n} series {m}" for m, n in sorted(held.items())))
    if not held["SR"] or held["SEG"] < 2:
        raise SystemExit("SR and SEG did not arrive")


def _cad(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "cad.cli", *map(str, arguments)], check=True)


def _annotate(study: Path, out: Path) -> Path:
    """The label map as the SEG that a workstation would have drawn on T2."""
    images = sorted(
        (p for p in study.rglob("*.dcm") if "t2" in p.parent.name),
        key=lambda p: float(pydicom.dcmread(p, stop_before_pixels=True).ImagePositionPatient[2]),
    )
    labels = read_volume(study / "rois.nii.gz").array
    path = out / "radiologist.dcm"
    out.mkdir(parents=True, exist_ok=True)
    write_seg(path, images, {str(n): labels == n for n in np.unique(labels) if n})
    return path


def _modalities() -> Counter[str]:
    """Series in the archive by modality, from its own listing."""
    with urllib.request.urlopen(f"{os.environ['CAD_ORTHANC']}/series?expand") as answer:  # noqa: S310
        return Counter(series["MainDicomTags"]["Modality"] for series in json.loads(answer.read()))


if __name__ == "__main__":
    main()
