"""A study of the node: one region's problem costs that region only."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.base.settings import parse_settings
from cad.base.share import shared
from cad.dicom.out.sr_reader import read_report
from cad.hospital.node.compute import RUN, compute, objects, without_probability
from cad.hospital.node.names import wording
from cad.hospital.node.settings import NodeSettings
from cad.mri.imaging.nifti import read_volume, write_volume


def test_a_region_that_cannot_be_measured_leaves_the_others_their_results(tmp_path: Path) -> None:
    (source,) = (shared("sample_data") / "dicom").iterdir()
    incoming = shutil.copytree(source, tmp_path / "incoming")
    labels = read_volume(incoming / "rois.nii.gz")
    rois = np.unique(labels.array)[1:]
    place = np.argwhere(labels.array == rois[0])
    array = labels.array.copy()
    array[tuple(place[1:].T)] = 0  # one voxel is left
    write_volume(incoming / "rois.nii.gz", labels.with_array(array))
    settings = parse_settings(
        NodeSettings,
        {
            "home": str(tmp_path / "home"),
            "rules": "sample",
            "models": ["phantom-psvm-biparametric"],
            "receiver": {"callers": ["ANY"]},
            "archive": {"address": "127.0.0.1:1"},
        },
        "the test's node",
    )
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
