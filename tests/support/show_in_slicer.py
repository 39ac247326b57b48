"""Show a study in 3D Slicer: ``python show_in_slicer.py COHORT RUN STUDY`` in its Python.

Printed as JSON: the volumes' names, and of every segment its name, colour, and number of voxels.
"""

import json
import sys
from pathlib import Path

import slicer
from vtk.util.numpy_support import vtk_to_numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import in_slicer

scene = slicer.vtkMRMLScene()
node = in_slicer.show(*sys.argv[1:4], scene)
segments = []
for number in range(node.GetSegmentation().GetNumberOfSegments()):
    made = node.GetSegmentation().GetNthSegment(number)
    values = vtk_to_numpy(made.GetRepresentation("Binary labelmap").GetPointData().GetScalars())
    segments.append(
        {"name": made.GetName(), "colour": list(made.GetColor()), "voxels": int(values.sum())}
    )
volumes = []
for number in range(scene.GetNumberOfNodesByClass("vtkMRMLScalarVolumeNode")):
    volumes.append(scene.GetNthNodeByClass(number, "vtkMRMLScalarVolumeNode").GetName())
print(json.dumps({"volumes": volumes, "segments": segments}))
