"""Limits that flag few regions of new patients, and name the family that is wrong."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.base.settings import FeatureSettings
from cad.base.terms.features import STATISTICS
from cad.mri.columns import columns_of
from cad.mri.features.typicality import Typicality

COLUMNS = columns_of(FeatureSettings(counting=True))
NAMES = [f"{m}_intensity_{s}" for m in ("t2w", "adc") for s in STATISTICS] + [
    f"dce_tofts_ktrans_{s}" for s in STATISTICS
]


def cohort(patients: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Regions whose features depend on a patient, on a region and on noise; some are skewed."""
    rng = np.random.default_rng(seed)
    rows, who = [], []
    for patient in range(patients):
        shift = rng.normal(0, 0.5, 3)
        for _ in range(int(rng.integers(3, 9))):
            level = np.repeat(shift + rng.normal(0, 1, 3), len(STATISTICS))
            z = 0.8 * level + 0.6 * rng.standard_normal(len(NAMES))
            rows.append(np.where(np.arange(len(NAMES)) % 3 == 0, np.exp(z), 1000 + 200 * z))
            who.append(f"p{patient}")
    return pd.DataFrame(rows, columns=NAMES), np.array(who)


@pytest.fixture(scope="module")
def fitted() -> Typicality:
    return Typicality.fit(*cohort(40, 1), COLUMNS)


def test_at_most_one_in_twenty_regions_of_new_patients_is_flagged() -> None:
    """The promise holds over trainings; one training of 40 patients may flag one study more."""
    alone, together = [], []
    for seed in range(5):
        fitted = Typicality.fit(*cohort(40, 100 + seed), COLUMNS)
        new, who = cohort(60, 200 + seed)
        alone.append(np.mean([j.flagged for j in fitted.judge(new)]))
        together.append(np.mean([j.flagged for j in fitted.judge(new, who)]))
    assert 0 < np.mean(alone) <= 0.05
    assert np.mean(alone) < np.mean(together) <= 0.05


@pytest.mark.parametrize(
    ("change", "named", "direction"),
    [
        (lambda X: X.filter(like="adc_").div(1000), "ADC", "below"),
        (lambda X: X.filter(like="t2w_") - 5 * X.filter(like="t2w_").std(), "T2", "below"),
        (lambda X: X.filter(like="dce_") * 6, "DCE", "above"),
    ],
    ids=["ADC in another unit", "T2 five standard deviations down", "Ktrans six times"],
)
def test_a_wrong_image_is_flagged_and_named(fitted, change, named, direction) -> None:
    new, _ = cohort(20, 3)
    wrong = change(new)
    for judgement in fitted.judge(new.assign(**{c: wrong[c] for c in wrong})):
        assert judgement.flagged
        assert judgement.deviations[0].group.split()[0] in (named, "Tofts")
        assert judgement.deviations[0].direction == direction
        assert str(judgement.deviations[0]).endswith(f"SD {direction} the training regions")


def test_one_feature_far_out_is_named(fitted: Typicality) -> None:
    new, _ = cohort(3, 4)
    new.loc[0, "adc_intensity_mean"] = 1e6
    name, size = fitted.judge(new)[0].features[0]
    assert (name, size) == ("adc_intensity_mean", 12.0)


def test_what_is_missing_or_constant_judges_nobody(fitted: Typicality) -> None:
    new, _ = cohort(3, 5)
    told = fitted.judge(new.drop(columns=[c for c in NAMES if c.startswith("dce_")]))
    assert len(told) == len(new)
    nothing = pd.DataFrame(np.nan, index=[0], columns=NAMES)
    assert not fitted.judge(nothing)[0].flagged
    X, who = cohort(10, 6)
    constant = Typicality.fit(X.assign(adc_histogram_minimum=1.0), who, COLUMNS)
    assert "adc_histogram_minimum" not in constant.features


def test_shares_far_out_by_hand(fitted: Typicality) -> None:
    new, _ = cohort(1, 3)
    row = new.iloc[[0]].copy()
    for name, middle in zip(fitted.features, fitted.middle, strict=True):
        row[name] = middle
    assert set(fitted.outside(row)["ADC"]) == {0.0}
    assert fitted.unusual(row)["ADC"].tolist() == [0.0]
    of_adc = [name for name in fitted.features if name.startswith("adc_")]
    at = fitted.features.index(of_adc[0])
    row[of_adc[0]] = fitted.middle[at] + 3.5 * fitted.high[at]
    assert fitted.outside(row)["ADC"].tolist() == pytest.approx([1 / len(of_adc)])
    assert fitted.outside(row, far=4.0)["ADC"].tolist() == [0.0]
    # The root mean square of log(1 + 3.5) and zeros.
    assert fitted.unusual(row)["ADC"][0] == pytest.approx(np.log1p(3.5) / np.sqrt(len(of_adc)))
    row[of_adc[1]] = np.nan
    assert fitted.outside(row)["ADC"].tolist() == pytest.approx([1 / (len(of_adc) - 1)])
    row[of_adc] = np.nan
    assert np.isnan(fitted.outside(row)["ADC"]).all()


def test_it_is_the_same_after_json(fitted: Typicality) -> None:
    back = Typicality.from_dict(json.loads(json.dumps(fitted.as_dict())), COLUMNS)
    new, _ = cohort(5, 7)
    assert [j.score for j in back.judge(new)] == [j.score for j in fitted.judge(new)]
    with pytest.raises(CadError, match="at least 3 patients"):
        Typicality.fit(*cohort(2, 1), COLUMNS)


def test_what_all_regions_of_a_study_share_is_found_where_no_region_shows_it(
    fitted: Typicality,
) -> None:
    """ADC somewhat low everywhere: usual for a region, not for every region."""
    new, who = cohort(12, 8)
    adc = new.filter(like="adc_")
    low = new.assign(**{c: adc[c] - (adc[c].quantile(0.8) - adc[c].median()) for c in adc})
    alone = np.array([j.flagged for j in fitted.judge(low)])
    together = fitted.judge(low, who)
    assert alone.mean() < 0.2
    assert np.mean([j.flagged for j in together]) > alone.mean() + 0.3
    said = next(j for j, own in zip(together, alone, strict=True) if j.flagged and not own)
    assert {d.group.split()[0] for d in said.deviations} == {"ADC"}
    assert {d.direction for d in said.deviations} == {"below"}
    assert "(mean of " in str(said.deviations[0])


def test_a_study_of_one_region_is_judged_as_that_region(fitted: Typicality) -> None:
    new, _ = cohort(4, 9)
    names = np.arange(len(new)).astype(str)
    assert fitted.judge(new, names) == fitted.judge(new)


def test_limits_of_an_earlier_version_are_refused(fitted: Typicality) -> None:
    content = fitted.as_dict()
    content["limits"] = {group: values[0] for group, values in content["limits"].items()}
    with pytest.raises(CadError, match="earlier version"):
        Typicality.from_dict(content, COLUMNS)
