"""Show a study with its regions and probabilities in 3D Slicer.

    Slicer --python-script scripts/in_slicer.py COHORT RUN STUDY

T2 and ADC are loaded as volumes, and the regions as segments. A segment's name has the region's id
and probability; its colour goes from blue (0) to red (1). Slicer's Python has no `cad`, and this
file needs none.
"""

import csv
import sys
from pathlib import Path

USAGE = "Slicer --python-script scripts/in_slicer.py COHORT RUN STUDY"

try:
    import slicer  # type: ignore[import-not-found]
    import vtk  # type: ignore[import-not-found]
    from vtk.util.numpy_support import vtk_to_numpy  # type: ignore[import-not-found]
except ImportError as error:
    sys.exit(f"{error}: this file is for Slicer's Python. {USAGE}")

IMAGES = ("anat/{study}_T2w.nii.gz", "dwi/{study}_ADC.nii.gz")
REGIONS = "masks/{study}_rois.nii.gz"


def colour(probability):
    """Return red, green and blue of a probability, each from 0 to 1."""
    return (probability, 0.25, 1.0 - probability)


def regions_of(run, study):
    """Return id, label and probability of those regions of a study that have a probability."""
    found = []
    with open(Path(run) / "probabilities.csv", newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if row["study_id"] == study and row["probability"]:
                found.append((row["roi_id"], int(float(row["label"])), float(row["probability"])))
    return found


def load(scene, kind, path, name):
    """Return a volume of the scene, read from a file; None where there is none."""
    if not path.is_file():
        return None
    volume = scene.AddNewNodeByClass(kind, name)
    storage = scene.AddNewNodeByClass("vtkMRMLVolumeArchetypeStorageNode")
    storage.SetFileName(str(path))
    if not storage.ReadData(volume):
        raise OSError(f"{path}: Slicer cannot read it")
    return volume


def segment(labels, label, name, probability):
    """Return a segment of the voxels with a given label."""
    image = slicer.vtkOrientedImageData()
    image.DeepCopy(labels.GetImageData())
    values = vtk_to_numpy(image.GetPointData().GetScalars())
    values[:] = values == label
    place = vtk.vtkMatrix4x4()
    labels.GetIJKToRASMatrix(place)
    image.SetGeometryFromImageToWorldMatrix(place)
    made = slicer.vtkSegment()
    made.SetName(name)
    made.SetColor(*colour(probability))
    made.AddRepresentation("Binary labelmap", image)
    return made


def show(cohort, run, study, scene):
    """Load the study into a scene, and return the node of its segments."""
    folder = Path(cohort).joinpath(*study.split("_"))
    if not folder.is_dir():
        raise OSError(f"{folder}: the cohort has no such study")
    scored = regions_of(run, study)
    if not scored:
        raise OSError(f"{run}: no region of {study} has a probability")
    for pattern in IMAGES:
        path = folder / pattern.format(study=study)
        load(scene, "vtkMRMLScalarVolumeNode", path, path.name)
    path = folder / REGIONS.format(study=study)
    labels = load(scene, "vtkMRMLLabelMapVolumeNode", path, path.name)
    if labels is None:
        raise OSError(f"{path}: the study's outlines are not there")
    regions = scene.AddNewNodeByClass("vtkMRMLSegmentationNode", f"{study} regions")
    for roi, label, probability in scored:
        name = f"{roi}: {probability:.2f}"
        regions.GetSegmentation().AddSegment(segment(labels, label, name, probability), roi)
    scene.RemoveNode(labels)
    return regions


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise ValueError(USAGE)
    show(*sys.argv[1:4], slicer.mrmlScene)
