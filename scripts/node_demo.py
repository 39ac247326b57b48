"""Bring up Orthanc and a node, and watch two studies come back: ``python scripts/node_demo.py``.

Each study is put into Orthanc, which sends it to the node as a router would; the node computes
nothing yet, for it has no regions. A radiologist's SEG follows, and SR and SEG appear in Orthanc.
The first study is the simulated one of the project; the second one of PROSTATEx, where the
reference data lie beside the checkout or where CAD_REFERENCE_DATA points.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pydicom

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from dicom_files import write_seg  # noqa: E402
from live_node import Node, push, rest, results  # noqa: E402

from cad.imaging.nifti import read_volume  # noqa: E402
from cad.share import shared  # noqa: E402

MODELS = ["phantom-psvm", "phantom-psvm-biparametric"]


def annotated(study: Path, t2: str, mask: Path, out: Path) -> Path:
    """Write the label map as the SEG that a workstation would have drawn on T2."""
    images = sorted(
        (p for p in study.rglob("*.dcm") if t2 in p.parent.name),
        key=lambda p: float(pydicom.dcmread(p, stop_before_pixels=True).ImagePositionPatient[2]),
    )
    labels = read_volume(mask).array
    write_seg(out, images, {str(n): labels == n for n in np.unique(labels) if n})
    return out


def follow(folder: Path, study: Path, rules: str, t2: str, mask: str) -> None:
    """Send a study, then its regions, and wait for the result."""
    archive, aet = os.environ["CAD_ARCHIVE"], os.environ["CAD_ARCHIVE_AET"]
    node = Node(
        folder, archive, aet, rules=rules, models=MODELS,
        receiver={"callers": [aet]}, studies={"quiet_seconds": 2, "count": True},
    )  # fmt: skip
    node.start()
    try:
        rest("/modalities/NODE", "PUT", {"AET": "CAD", "Host": "127.0.0.1", "Port": node.port})
        files = sorted(study.rglob("*.dcm"))
        start = time.monotonic()
        uid = str(pydicom.dcmread(files[0], stop_before_pixels=True).StudyInstanceUID)
        rest("/modalities/NODE/store", "POST", push(files))
        print(f"{study.name}: {len(files)} images are with the node: {since(start)}", flush=True)
        node.wait(lambda: node.counts()["awaiting ROI"] == 1, 900)
        print(f"  it awaits its regions: {since(start)}", flush=True)
        start = time.monotonic()
        seg = annotated(study, t2, study / mask, folder / "radiologist.dcm")
        rest("/modalities/NODE/store", "POST", push([seg]))
        node.wait(lambda: node.counts()["done"] == 1, 900)
        (line,) = node.lines("done")
        computed = node.lines("computed")[-1]["seconds"]
        print(f"  done, {line['sent']} objects: {since(start)}, computing {computed} s of it")
        found = results(uid)
        print(f"  the archive has of ours: {', '.join(found)}", flush=True)
        if found != ["SEG", "SR"]:
            raise SystemExit("SR and SEG did not arrive")
    finally:
        node.stop()


def since(start: float) -> str:
    """Return the seconds since a moment."""
    return f"{time.monotonic() - start:.1f} s"


def main() -> None:
    """Follow both studies beside an Orthanc of their own."""
    if "CAD_ARCHIVE" not in os.environ:
        beside = ROOT / "tests" / "support" / "with_orthanc.sh"
        done = subprocess.run([beside, sys.executable, __file__, *sys.argv[1:]], check=False)
        raise SystemExit(done.returncode)
    data = Path(os.environ.get("CAD_REFERENCE_DATA", ROOT.parent / "shared" / "data"))
    real = data / "prostatex" / "ProstateX-0000"
    with tempfile.TemporaryDirectory() as name:
        sample = shared("sample_data", "dicom", "Sample0001")
        follow(Path(name) / "sample", sample, "sample", "t2_tse", "rois.nii.gz")
        if real.is_dir():
            follow(Path(name) / "real", real, "prostatex", "t2tse", "lesion.nii.gz")
        else:
            print(f"no reference data at {data}: the study of PROSTATEx is left out")


if __name__ == "__main__":
    main()
