"""Write the folder ``sample_data`` again: ``python -m cad.evidence.phantom.sample [FOLDER]``.

On machines with the same version of zlib and the same instruction set of the processor, the files
are the same to the byte. On other machines one voxel in a million may differ by a grey level, and
files may be compressed differently.
"""

import sys
from pathlib import Path

from cad.base.files import write_atomic
from cad.base.transactions import claimed, commit, is_ours, stage
from cad.evidence.phantom.dicom import write_dicom
from cad.evidence.phantom.protocols import SAMPLE
from cad.evidence.phantom.readers import SCALE
from cad.evidence.phantom.simulator import latent_auc, make_patient, present, write_cohort
from cad.folders.cohort import COHORT
from cad.mri.imaging.nifti import write_volume

# The seed is the first two-digit number, so that nobody has selected it by the results.
PATIENTS = 12
SEED = 10
DICOM_INDEX = 0
"""Number (from 0) of the patient who is also written as DICOM."""
DICOM_ID = "Sample0001"


def write_sample(out: Path) -> None:
    """Replace the content of a folder by the sample cohort; write one of its studies as DICOM, too.

    Parameters
    ----------
    out : Path
        The cohort folder; the DICOM study goes to ``dicom/`` in it.
    """
    with claimed(out, COHORT), stage(out) as scratch:
        build = scratch / "sample"
        write_cohort(build, PATIENTS, SEED, SAMPLE)
        _write_dicom_study(build / "dicom" / DICOM_ID)
        new = {path.name: path for path in build.iterdir()}
        old = set()
        for path in out.iterdir():
            if not is_ours(path.name):
                old.add(path.name)
        commit(out, new, removed=old - set(new))


def _write_dicom_study(folder: Path) -> None:
    """Write the DICOM series, and the masks and scores that import rules find beside them."""
    patient = make_patient(SEED, DICOM_INDEX, SAMPLE)
    study = patient.study
    (protocol,) = (protocol for protocol in SAMPLE if protocol.site == patient.site)
    write_dicom(folder, patient, protocol, DICOM_ID)
    write_volume(folder / "rois.nii.gz", present(study.roi_map))
    write_volume(folder / "gland.nii.gz", present(study.gland))
    write_volume(folder / "vessel.nii.gz", present(study.vessel))
    scored = patient.scores.dropna(subset=["score"])
    lines = ["patient_id,roi_id,reader_id,scale,score"]
    lines += [
        f"{DICOM_ID},{row.roi_id},{row.reader_id},{SCALE},{row.score:g}"
        for row in scored.itertuples()
    ]
    write_atomic(folder / "scores.csv", ("\n".join(lines) + "\n").encode())


def main(folder: str = "sample_data") -> None:
    """Write the sample cohort into a folder, and print the AUC of its latent malignancy.

    The latent malignancy is the number from which a region is simulated. Simulated readers perceive
    it with errors. A reader without errors would have the printed AUC.
    """
    write_sample(Path(folder))
    print(f"wrote {folder}; AUC of the latent malignancy {latent_auc(Path(folder)):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
