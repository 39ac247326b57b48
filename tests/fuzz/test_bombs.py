"""Three megabytes that would become three gigabytes, given to whole commands."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dicom_files import deflate
from import_cases import RULES, regions, write_patient

from cad.dicom.into.importer import import_source
from cad.mri.imaging.nifti import write_volume

pytestmark = pytest.mark.fuzz
MEGABYTES = 1000
GIGABYTES = 3

# The peak of a command and of the processes that it starts, in megabytes.
_MEASURED = """
import json, resource, subprocess, sys
command = [sys.executable, "-m", "cad.cli", *sys.argv[1:]]
done = subprocess.run(command, capture_output=True, text=True)
used, said = resource.getrusage(resource.RUSAGE_CHILDREN), done.stdout + done.stderr
print(json.dumps([done.returncode, used.ru_maxrss / 1024, used.ru_utime, said]))
"""


def measured(*arguments: object) -> tuple[int, float, str]:
    command = [sys.executable, "-c", _MEASURED, *map(str, arguments)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    code, peak, seconds, said = json.loads(text)
    print(f"{arguments[0]}: {peak:.0f} MB, {seconds:.1f} s")
    return code, peak, said


def nifti_bomb(path: Path) -> None:
    """Zeros of a header that says so: members of one gzip file, each 64 MiB."""
    import nibabel

    header = nibabel.Nifti1Image(np.zeros((1, 1, 1), np.int16), np.eye(4)).header
    header.set_sform(np.eye(4), 1)
    header["vox_offset"] = 352
    header.set_data_shape((512, 512, 2048 * GIGABYTES))
    block = gzip.compress(bytes(2**26))
    content = gzip.compress(header.binaryblock + bytes(4)) + block * (16 * GIGABYTES)
    assert len(content) < 4e6
    path.write_bytes(content)


@pytest.fixture
def clean(tmp_path: Path) -> tuple[Path, Path]:
    """A patient that can be imported, and the rules."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    for seed, (name, patient) in enumerate((("a", "P-001"), ("b", "P-002"))):
        write_patient(tmp_path / "source" / name, patient, name, dce=False, seed=seed)
        write_volume(tmp_path / "source" / name / "rois.nii.gz", regions(1))
    return tmp_path / "source", rules


def test_check(clean: tuple[Path, Path], tmp_path: Path):
    source, rules = clean
    import_source(source, tmp_path / "cohort", rules)
    nifti_bomb(next((tmp_path / "cohort" / "sub-P001").rglob("*T2w.nii.gz")))
    code, peak, said = measured("check", tmp_path / "cohort")
    assert code == 1
    assert "sub-P001" in said
    assert "would become 3,072 MiB" in said
    assert "patient sub-P002" not in said
    assert peak < MEGABYTES


def test_import_of_regions(clean: tuple[Path, Path], tmp_path: Path):
    source, rules = clean
    nifti_bomb(source / "a" / "rois.nii.gz")
    code, peak, said = measured("import", source, tmp_path / "out", "--rules", rules)
    assert code == 1
    assert "would become 3,072 MiB" in said
    assert "added: sub-P002" in said
    assert peak < MEGABYTES


def test_import_of_deflated_dicom(clean: tuple[Path, Path], tmp_path: Path):
    source, rules = clean
    path = source / "a" / "t2" / "1-003.dcm"
    shutil.copy(source / "a" / "t2" / "1-002.dcm", path)
    deflate(path, 64 * GIGABYTES)
    code, peak, said = measured("import", source, tmp_path / "out", "--rules", rules)
    assert code == 1
    assert "of DICOM in memory" in said
    assert "added: sub-P002" in said
    assert peak < MEGABYTES
