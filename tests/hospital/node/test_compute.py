"""A study of the node: one region's problem costs that region only."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.base.processes import landlock
from cad.base.settings import parse_settings
from cad.base.share import shared
from cad.dicom.out.sr_reader import read_report
from cad.hospital.node.compute import (
    RUN,
    compute,
    may_open,
    objects,
    ready,
    without_probability,
)
from cad.hospital.node.names import node_key, wording
from cad.hospital.node.settings import NodeSettings
from cad.mri.imaging.nifti import read_volume, write_volume
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import Caller


def node_settings(home: Path, **archive: object) -> NodeSettings:
    return parse_settings(
        NodeSettings,
        {
            "home": str(home),
            "rules": "sample",
            "models": ["phantom-psvm-biparametric"],
            "receiver": {"callers": ["ANY"]},
            "archive": {"address": "127.0.0.1:1", **archive},
        },
        "the test's node",
    )


@pytest.mark.skipif(
    not landlock.version(), reason="LANDLOCK ABSENT: this kernel confines no process"
)
def test_what_computes_a_study_opens_the_node_alone_and_makes_its_result(tmp_path: Path) -> None:
    settings = node_settings(tmp_path / "home")
    (source,) = (shared("sample_data") / "dicom").iterdir()
    (settings.home / "incoming").mkdir(parents=True)
    node_key(settings.home)  # a node that runs has made it
    incoming = shutil.copytree(source, settings.home / "incoming" / "one")
    work = settings.home / "studies" / "one"
    secret = tmp_path / "secret"
    secret.write_bytes(b"somebody else's")
    options = ExecutionOptions(1, time_limit=200.0, memory_limit=8.0)
    with Caller(options, confined=may_open(settings)) as call:
        call(ready, settings)
        made, _ = call(compute, settings, incoming, work)
        assert made == len(objects(work)) == 2
        assert not (work / ".scratch").exists()
        with pytest.raises(OSError, match="Permission denied"):
            call(Path.read_bytes, secret)
        for path in (secret, settings.home / "queue.sqlite", incoming / "new", tmp_path / "new"):
            with pytest.raises(OSError, match="Permission denied"):
                call(Path.write_bytes, path, b"new")


@pytest.mark.skipif(
    not landlock.version(), reason="LANDLOCK ABSENT: this kernel confines no process"
)
def test_a_confined_process_draws_the_sheet(tmp_path: Path) -> None:
    # Fonts, pictures and the PDF's library must all be reachable from inside.
    settings = node_settings(tmp_path / "home", pdf=True, capture=True, language="de")
    (source,) = (shared("sample_data") / "dicom").iterdir()
    (settings.home / "incoming").mkdir(parents=True)
    node_key(settings.home)
    incoming = shutil.copytree(source, settings.home / "incoming" / "one")
    work = settings.home / "studies" / "one"
    options = ExecutionOptions(1, time_limit=200.0, memory_limit=8.0)
    with Caller(options, confined=may_open(settings)) as call:
        call(ready, settings)
        call(compute, settings, incoming, work)
    names = sorted(path.name for path in objects(work))
    kinds = [name.split("_", 1)[1] for name in names]
    assert kinds == ["PDF.dcm", "SC_1.dcm", "SEG.dcm", "SR.dcm"], names


UNCONFINED = """
import sys
from pathlib import Path

from cad.base.processes import landlock
from cad.hospital.node import service

if sys.argv[2] == "absent":
    landlock.version = lambda: 0  # as a kernel without it answers
service.Node.run = lambda node, computers: 0  # the first moment is enough
sys.path.insert(0, "tests/hospital/node")
from test_compute import node_settings

service.serve(node_settings(Path(sys.argv[1])), retry_failed=False)
"""


@pytest.mark.skipif(
    not landlock.version(), reason="LANDLOCK ABSENT: this kernel confines no process"
)
@pytest.mark.parametrize("kernel", ["absent", "present"])
def test_a_node_says_where_the_kernel_confines_nothing(
    repository: Path, tmp_path: Path, kernel: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCONFINED, tmp_path / "home", kernel],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert ("not confined" in events) == (kernel == "absent"), done.stdout


def test_a_region_that_cannot_be_measured_leaves_the_others_their_results(tmp_path: Path) -> None:
    (source,) = (shared("sample_data") / "dicom").iterdir()
    incoming = shutil.copytree(source, tmp_path / "incoming")
    labels = read_volume(incoming / "rois.nii.gz")
    rois = np.unique(labels.array)[1:]
    place = np.argwhere(labels.array == rois[0])
    array = labels.array.copy()
    array[tuple(place[1:].T)] = 0  # one voxel is left
    write_volume(incoming / "rois.nii.gz", labels.with_array(array))
    settings = node_settings(tmp_path / "home")
    work = tmp_path / "work"
    made, _ = compute(settings, incoming, work)
    assert made == len(objects(work)) == 2
    report = next(path for path in objects(work) if path.name.endswith("_SR.dcm"))
    assert {roi.roi_id for roi in read_report(report).rois} == {str(n) for n in rois[1:]}
    said = without_probability(work)
    assert said is not None
    assert said.problem.startswith(f"a region has no probability: ROI {rois[0]}: ")
    assert "5 are needed" in said.problem
    assert wording(said)["reason"].startswith("a region has no probability")  # for log and page
    assert "5 are needed" not in wording(said)["reason"]
    (work / RUN / "failures.csv").unlink()
    assert without_probability(work) is None

    array[:] = 0
    array[tuple(place[0])] = rois[0]  # nothing else to score
    write_volume(incoming / "rois.nii.gz", labels.with_array(array))
    with pytest.raises(CadError):
        compute(settings, incoming, tmp_path / "other")
