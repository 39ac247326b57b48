"""A small DICOM patient to import, its rules, and what an import left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from dicom_files import write_series

from cad.base.errors import CadError
from cad.dicom.into.importer import ImportSummary
from cad.mri.imaging.nifti import write_volume
from cad.mri.imaging.volume import Volume

RULES = """
name: test
site: A
labels: id
t2w: [{description: ^t2}]
adc: [{image_type: [ADC]}]
dce: {match: [{description: ^dyn}], clock: description}
vfa: [{description: ^vibe}]
roi_name: "ROI[ _](?P<id>.+)"
lesion: lesion.nii.gz
zones: {file: zones.nii.gz, values: {1: PZ, 2: TZ}}
experts: [r2]
"""
SHAPE = (6, 20, 20)


def voxels(seed=0, shape=SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 900, shape).astype(np.uint16)


def adc_values(seed=2) -> np.ndarray:
    """Tissue: 700 to 2100 x 1e-6 mm2/s."""
    return np.random.default_rng(seed).integers(700, 2100, SHAPE).astype(np.uint16)


def flip_angle_values(degrees: float, t1=1.5, tr=0.00385, seed=0) -> np.ndarray:
    """Spoiled steady state of one T1, with a little noise."""
    angle, e1 = np.radians(degrees), np.exp(-tr / t1)
    signal = 40000 * np.sin(angle) * (1 - e1) / (1 - e1 * np.cos(angle))
    noise = np.random.default_rng(seed).integers(-2, 3, SHAPE)
    return (signal + noise).astype(np.uint16)


def phase_values(index: int) -> np.ndarray:
    """A baseline, then enhancement: 100, 200, 300, ..., with noise of one or two."""
    noise = np.random.default_rng(100 + index).integers(-2, 3, SHAPE)
    return (100 * (1 + index) + noise).astype(np.uint16)


def write_patient(folder: Path, patient="P-001", study="study1", *, dce=True, seed=0) -> Path:
    """T2, ADC, two flip angles, three phases, and a localiser that no rule names.

    Patients of one cohort need seeds of their own: equal voxels are one man under two ids.
    """
    ids = {"patient": patient, "study": study}
    write_series(folder / "t2", voxels(1 + 100 * seed), number=1, **ids)
    write_series(
        folder / "adc",
        adc_values(2 + 100 * seed),
        number=2,
        description="adc",
        ImageType=["DERIVED", "PRIMARY", "ADC"],
        **ids,
    )
    write_series(folder / "loc", voxels(9, (1, 9, 9)), number=9, description="localizer", **ids)
    for number, flip in ((3, "15"), (4, "2")):
        write_series(
            folder / f"v{number}",
            flip_angle_values(float(flip), seed=number),
            number=number,
            description="vibe",
            FlipAngle=flip,
            RepetitionTime="3.85",
            **ids,
        )
    for index, time in enumerate((8.0, 12.2, 16.4) if dce else ()):
        write_series(
            folder / f"d{index}",
            phase_values(index),
            number=20 + index,
            description=f"dyn TT={time}s",
            FlipAngle="12",
            RepetitionTime="3.85",
            **ids,
        )
    return folder


def regions(*labels: int) -> Volume:
    array = np.zeros(SHAPE, np.uint8)
    for index, label in enumerate(labels):
        array[2:4, 2:6, 2 + 5 * index : 6 + 5 * index] = label
    return Volume(array, (1.0, 1.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))


def write_rois(folder: Path, *labels: int, scores: str = "") -> None:
    write_volume(folder / "rois.nii.gz", regions(*labels))
    if scores:
        (folder / "scores.csv").write_text("patient_id,roi_id,reader_id,scale,score\n" + scores)


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(p.relative_to(root)): (p.stat().st_mtime_ns, p.read_bytes())
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


def table(root: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(root / f"{name}.tsv", sep="\t", dtype=str, keep_default_na=False)


def only_failure(summary: ImportSummary) -> CadError:
    assert len(summary.failures) == 1, [str(f) for f in summary.failures]
    return summary.failures[0]


def write_mha(path: Path, volume: Volume) -> None:
    import SimpleITK as sitk

    path.parent.mkdir(parents=True, exist_ok=True)
    sitk.WriteImage(volume.to_sitk(), path)


def write_nifti(path: Path, volume: Volume) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_volume(path, volume)
