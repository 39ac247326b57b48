"""The table of modalities: what it promises about studies and files."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.base.terms.modality import MODALITIES, modality
from cad.mri.imaging.study import Study
from cad.mri.imaging.study_files import image_path
from cad.mri.imaging.volume import Dynamic, Volume


def test_every_modality_is_a_field_of_a_study_and_has_a_file_of_its_own():
    names = {field.name for field in fields(Study)}
    assert {m.name for m in MODALITIES} <= names
    paths = {image_path(Path("x"), "sub-01", m.name) for m in MODALITIES}
    assert len(paths) == len(MODALITIES)
    assert str(image_path(Path("x"), "sub-01", "t2w")) == "x/anat/sub-01_T2w.nii.gz"
    assert modality("adc").unit == "1e-6 mm2/s"


def test_an_unknown_name_lists_the_known():
    with pytest.raises(CadError, match="no modality is called 'pet'") as caught:
        modality("pet")
    assert "t2w" in caught.value.hint


def test_a_study_gives_images_and_grids_by_name():
    grid = Volume(np.zeros((2, 3, 4)), (1, 1, 3), (0, 0, 0), np.eye(3))
    study = Study("sub-01", "sub-01", adc=grid)
    study.dce = Dynamic(np.zeros((2, 2, 3, 4)), grid, np.array([0.0, 1.0]))
    assert study.present == ("adc", "dce")
    assert study.image("t2w") is None
    assert study.grid("t2w") is None
    assert study.image("dce") is study.dce
    assert study.grid("dce") is grid
    assert study.grid("adc") is grid
