"""Show a study with its regions and probabilities in 3D Slicer.

    Slicer --python-script scripts/in_slicer.py COHORT RUN STUDY

T2 and ADC are loaded as volumes, the regions as segments; a segment's name has the region's id and
probability, its colour goes from blue (0) to red (1). Slicer's Python has no `cad`: this file needs
none.
"""

import csv
import sys
from pathlib import Path

import slicer  # type: ignore[import-not-found]

IMAGES = ("anat/{study}_T2w.nii.gz", "dwi/{study}_ADC.nii.gz")
REGIONS = "masks/{study}_rois.nii.gz"


def colour(probability):
    """Return red, green and blue of a probability, each from 0 to 1."""
    return (probability, 0.25, 1.0 - probability)


def regions_of(run, study):
    """Return id, label and probability of a study's regions that have one."""
    found = []
    with open(Path(run) / "probabilities.csv", newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if row["study_id"] == study and row["probability"]:
                found.append((row["roi_id"], int(float(row["label"])), float(row["probability"])))
    return found


def show(cohort, run, study):
    """Load the study and return the node of its segments."""
    folder = Path(cohort).joinpath(*study.split("_"))
    volumes = []
    for pattern in IMAGES:
        path = folder / pattern.format(study=study)
        if path.is_file():
            volumes.append(slicer.util.loadVolume(str(path)))
    labels = slicer.util.loadLabelVolume(str(folder / REGIONS.format(study=study)))
    segments = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", f"{study} regions")
    segments.SetReferenceImageGeometryParameterFromVolumeNode(volumes[0])
    array = slicer.util.arrayFromVolume(labels)
    for roi, label, probability in regions_of(run, study):
        name = f"{roi}: {probability:.2f}"
        identifier = segments.GetSegmentation().AddEmptySegment(roi, name, colour(probability))
        mask = (array == label).astype("uint8")
        slicer.util.updateSegmentBinaryLabelmapFromArray(mask, segments, identifier, labels)
    slicer.mrmlScene.RemoveNode(labels)
    return segments


if __name__ == "__main__":
    show(*sys.argv[1:4])
