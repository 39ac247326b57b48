"""Provenance of values is in every row, the same for a cohort, and compared with a model's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.base.settings import FeatureSettings, PipelineSettings
from cad.evidence.phantom.protocols import SAMPLE
from cad.evidence.phantom.simulator import make_patient
from cad.mri.features.provenance import (
    PREFIX,
    PROVENANCE,
    CohortFacts,
    check_columns,
    differences,
    resolve_auto,
    summary,
)
from cad.mri.features.table import extract
from cad.mri.imaging.study import Study


def said(study: Study, settings: PipelineSettings) -> pd.Series:
    return extract(study, settings).provenance.iloc[0]


def with_gland(study: Study) -> Study:
    assert study.t2w is not None
    inside = np.zeros(study.t2w.shape, bool)
    inside[1:7, 8:52, 8:52] = True
    return replace(study, gland=study.t2w.with_array(inside))


def test_every_row_says_how_it_was_measured(study: Study, settings: PipelineSettings) -> None:
    found = extract(with_gland(study), settings)
    assert len(found.provenance) == len(found.rows)
    assert all(column.startswith(PREFIX) for column in found.provenance)
    row = found.provenance.iloc[0]
    assert row["provenance_t2_reference"] == "gland"
    assert row["provenance_t1_source"] == "fixed"
    assert row["provenance_input"] == "parker"
    assert row["provenance_adc_unit"] == "1e-6 mm2/s"
    assert row["provenance_adc_spacing"] == pytest.approx(1.8)
    assert row["provenance_dce_thickness"] == 3.0
    assert row["provenance_t2w_purity"] == 1.0
    assert row["provenance_t2w_valid"] == row["provenance_adc_valid"] == 1.0
    assert 0.8 < row["provenance_dce_valid"] <= 1.0
    table = pd.concat([found.rows, found.provenance], axis=1)
    assert [c for c in table if c not in PROVENANCE] == list(found.rows.columns)
    with pytest.raises(CadError, match="no feature"):
        check_columns(table.columns)


def test_what_is_missing_is_seen_in_the_row(study: Study, settings: PipelineSettings) -> None:
    """The same study without its gland mask: every value of T2 changes, and so does the mark."""
    whole = extract(with_gland(study), settings)
    trained = summary(pd.concat([whole.rows, whole.provenance], axis=1))
    assert trained["t2_reference"] == ["gland"]
    assert "t2w_voxels" not in trained
    assert differences(trained, whole.provenance.iloc[0].to_dict()) == []
    bare = said(study, settings)
    assert differences(trained, bare.to_dict()) == ["T2 scaled over: regions, trained on gland"]
    assert study.adc is not None
    x, y, z = study.adc.spacing
    coarse = replace(study.adc, spacing=(x * 1.5, y * 1.5, z))
    told = differences(trained, said(replace(with_gland(study), adc=coarse), settings).to_dict())
    assert told == ["adc: voxel size in the slice, mm: 2.7, trained on 1.8 to 1.8"]


def test_auto_is_one_choice_for_a_cohort(settings: PipelineSettings) -> None:
    full = resolve_auto(CohortFacts(4, 4, 4, 4, 4), settings)
    assert full.images.t2_reference == "gland"
    assert full.features.perfusion.t1 == "vfa"
    assert full.features.perfusion.arterial_input == "measured"
    short = resolve_auto(CohortFacts(4, 3, 4, 3, 3), settings)
    assert short.images.t2_reference == "regions"
    assert short.features.perfusion.t1 == "fixed"
    assert short.features.perfusion.arterial_input == "parker"
    assert resolve_auto(CohortFacts(1, 1, 0, 0, 0), short) == short  # what was chosen stays


def test_facts_come_from_files(repository: Path) -> None:
    root = repository / "sample_data"
    facts = CohortFacts.of((root / f"sub-{i:04d}", f"sub-{i:04d}") for i in (1, 2))
    assert facts == CohortFacts(2, 2, 2, 2, 2)


def test_a_study_without_the_chosen_reference_is_not_measured_in_silence(
    study: Study, settings: PipelineSettings
) -> None:
    chosen = resolve_auto(CohortFacts(2, 2, 2, 2, 2), settings)
    found = extract(study, chosen)
    assert not [c for c in found.rows if c.startswith(("t2w_", "dce_"))]
    assert {"gland mask", "flip-angle"} <= {
        word for f in found.failures for word in ("gland mask", "flip-angle") if word in f.problem
    }


@pytest.mark.parametrize("gain", [7, 0.3])
def test_another_scanners_gain_changes_no_feature_and_is_said(gain: float) -> None:
    """Stored integers, which often meet the edge of a grey level exactly."""
    found = make_patient(5, 0, SAMPLE).study
    assert found.t2w is not None
    t2 = found.t2w.array.astype(np.float32)
    other = replace(found, t2w=found.t2w.with_array(t2 * np.float32(gain)))
    settings = PipelineSettings(name="gain", features=FeatureSettings(modalities=("t2w",)))
    own, changed = extract(found, settings), extract(other, settings)
    assert len(own.rows) > 3
    np.testing.assert_allclose(
        own.rows.iloc[:, 2:].to_numpy(float),
        changed.rows.iloc[:, 2:].to_numpy(float),
        rtol=1e-4,
        atol=1e-4,
    )
    trained = summary(own.provenance)
    assert differences(trained, own.provenance.iloc[0].to_dict()) == []
    told = differences(trained, changed.provenance.iloc[0].to_dict())
    assert len(told) == 1
    assert told[0].startswith("t2w: level as stored: ")
