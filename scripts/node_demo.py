"""Start Orthanc and a node, and show two studies come back: ``python scripts/node_demo.py``.

With ``--tls`` all connections between the two are DICOM over TLS, with certificates that openssl
makes for this purpose. A result is done when Orthanc has promised to keep it (storage commitment).

Each study is put into Orthanc, which sends it to the node as a router would. The node computes
nothing at first, because the study has no regions. A radiologist's SEG follows, and SR and SEG
appear in Orthanc. The first study is the simulated study of the project. The second study is one of
PROSTATEx, where the reference data lie beside the checkout or where CAD_REFERENCE_DATA points to
them.
"""

from __future__ import annotations

import contextlib
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

from certificates import papers, shown  # noqa: E402
from dicom_files import write_seg  # noqa: E402
from live_node import Node, introduce, push, rest, results  # noqa: E402

from cad.base.share import shared  # noqa: E402
from cad.mri.imaging.nifti import read_volume  # noqa: E402

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
    folder_of_papers = os.environ.get("CAD_ORTHANC_TLS")
    ours = {"tls": shown(Path(folder_of_papers), "node")} if folder_of_papers else {}
    node = Node(
        folder,
        archive,
        aet,
        rules=rules,
        models=MODELS,
        receiver={"callers": [aet], **ours},
        studies={"quiet_seconds": 2, "count": True},
        archive={"commitment": True, "limits": ours},
    )
    node.start()
    try:
        introduce(node, UseDicomTls=bool(folder_of_papers))
        files = sorted(study.rglob("*.dcm"))
        start = time.monotonic()
        uid = str(pydicom.dcmread(files[0], stop_before_pixels=True).StudyInstanceUID)
        rest("/modalities/NODE/store", "POST", push(files))
        print(f"{study.name}: {len(files)} images are with the node: {since(start)}", flush=True)
        node.wait(lambda: arrived_in(node, "awaiting ROI"), 900)
        print(f"  it awaits its regions: {since(start)}", flush=True)
        start, busy = time.monotonic(), processor_seconds(node.process.pid)
        seg = annotated(study, t2, study / mask, folder / "radiologist.dcm")
        rest("/modalities/NODE/store", "POST", push([seg]))
        node.wait(lambda: arrived_in(node, "done"), 900)
        (line,) = node.lines("done")
        computed = " + ".join(str(line["seconds"]) for line in node.lines("computed"))
        busy = processor_seconds(node.process.pid) - busy
        print(f"  done, {line['sent']} objects: {since(start)}, computing {computed} s of it")
        print(f"  the node's processor time meanwhile: {busy:.1f} s")
        found = results(uid)
        print(f"  the archive has of ours: {', '.join(found)}", flush=True)
        clock, busy = alone(node)
        print(f"  `cad predict` alone: {clock:.1f} s, {busy:.1f} s of processor time", flush=True)
        if found != ["SEG", "SR"]:
            raise SystemExit("SR and SEG did not arrive")
    finally:
        node.stop()


def arrived_in(node: Node, state: str) -> bool:
    """Tell whether the study is in a state; a failed study will never be in it."""
    counts = node.counts()
    if counts["failed"]:
        raise SystemExit(f"failed: {node.lines('failed')[-1]['reason']}")
    return counts[state] == 1


def alone(node: Node) -> tuple[float, float]:
    """Return clock seconds and processor seconds of `cad predict` on the same cohort."""
    (cohort,) = node.home.glob("studies/*/cohort")
    out = node.folder / "predicted"
    command = [sys.executable, "-m", "cad.cli", "-q", "predict", "--cohort", cohort, "-o", out]
    command += [word for model in MODELS for word in ("--model", model)]
    start, before = time.monotonic(), sum(os.times()[2:4])
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start, sum(os.times()[2:4]) - before


def processor_seconds(root: int) -> float:
    """Return the processor time of a process, of its children, and of their ended children."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended in the meantime
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))

    def within(pid: int) -> bool:
        return pid == root or (pid in parents and within(parents[pid]))

    return sum(ticks[pid] for pid in ticks if within(pid)) / os.sysconf("SC_CLK_TCK")


def since(start: float) -> str:
    """Return the seconds since a moment as text."""
    return f"{time.monotonic() - start:.1f} s"


def main() -> None:
    """Follow both studies beside a separate Orthanc."""
    if "CAD_ARCHIVE" not in os.environ:
        beside = ROOT / "tests" / "support" / "with_orthanc.sh"
        with tempfile.TemporaryDirectory() as name:
            own = {"CAD_ORTHANC_TLS": name} if "--tls" in sys.argv[1:] else {}
            if own:
                papers(Path(name))
            command = [beside, sys.executable, __file__, *sys.argv[1:]]
            done = subprocess.run(command, check=False, env={**os.environ, **own})
        raise SystemExit(done.returncode)
    data = Path(os.environ.get("CAD_REFERENCE_DATA", ROOT.parent / "shared" / "data"))
    real = data / "prostatex" / "ProstateX-0218"
    with tempfile.TemporaryDirectory() as name:
        sample = shared("sample_data", "dicom", "Sample0001")
        follow(Path(name) / "sample", sample, "sample", "t2_tse", "rois.nii.gz")
        if real.is_dir():
            follow(Path(name) / "real", real, "prostatex", "t2tse", "rois.nii.gz")
        else:
            print(f"no reference data at {data}: the study of PROSTATEx is left out")


if __name__ == "__main__":
    main()
