"""Draw the picture of docs/phantom.md: ``python -m benchmarks.phantom_figure [docs]``."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from cad.evidence.phantom.protocols import FULL
from cad.evidence.phantom.simulator import Patient, make_patient, present
from cad.mri.imaging.geometry import resample_image, resample_mask

PATIENTS, SEED = 3, 0


def draw(axes: np.ndarray, patient: Patient) -> None:
    """Draw T2 with outlines, ADC, late enhancement and the regions' curves of one patient."""
    study = patient.study
    t2, labels, dce = present(study.t2w), present(study.roi_map), present(study.dce)
    z = int((labels.array > 0).sum(axis=(1, 2)).argmax())
    late = dce.grid.with_array(dce.frames[-1] / np.maximum(dce.frames[0], 1.0) - 1.0)
    images = (
        ("T2", t2.array, None),
        ("ADC (10⁻⁶ mm²/s)", resample_image(present(study.adc), t2).array, (0, 2500)),
        ("late enhancement", resample_image(late, t2).array, (0, 3)),
    )
    for ax, (title, array, window) in zip(axes, images, strict=False):
        low, high = window or np.nanpercentile(array[z], (1, 99))
        ax.imshow(array[z], cmap="gray", vmin=low, vmax=high)
        ax.contour(labels.array[z] > 0, levels=[0.5], colors="red", linewidths=0.7)
        ax.set_title(f"{study.study_id}, {title}", fontsize=9)
        ax.axis("off")
    for label in np.unique(labels.array[z])[1:]:
        inside = resample_mask(labels.with_array(labels.array == label), dce.grid).array
        if inside.any():
            axes[-1].plot(dce.times, dce.frames[:, inside].mean(axis=1), linewidth=1)
    axes[-1].set_title("mean signal of the slice's regions", fontsize=9)
    axes[-1].set_xlabel("s", fontsize=8)


def main(out: str = "docs") -> None:
    """Write ``phantom.png``."""
    figure, axes = plt.subplots(PATIENTS, 4, figsize=(13, 9.5), layout="constrained")
    for row, index in zip(axes, range(PATIENTS), strict=True):
        draw(row, make_patient(SEED, index, FULL))
    figure.savefig(Path(out) / "phantom.png", dpi=72)


if __name__ == "__main__":
    main(*sys.argv[1:2])
