"""Consensus labels against values counted by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.base.settings import LabelSettings
from cad.learning.labels.agreement import AgreementReaders
from cad.learning.labels.consensus import ETA0, malignant, notes, reader_labels
from cad.learning.labels.scales import pirads_note

READERS = pd.DataFrame(
    {"reader_id": ["r1", "r2", "r3", "r4"], "expert": [False, True, False, False]}
)


def cohort(rows: list[tuple[float | None, ...]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Likert scores of up to four readers per ROI, one ROI per row."""
    rois = pd.DataFrame(
        {
            "participant_id": [f"sub-{i}" for i in range(len(rows))],
            "roi_id": "1",
            "histology": np.nan,
            "isup": np.nan,
        }
    ).astype({"histology": object})
    scores = [
        (f"sub-{i}", "1", f"r{j + 1}", "likert5", np.nan if score is None else score)
        for i, row in enumerate(rows)
        for j, score in enumerate(row)
    ]
    columns = ["participant_id", "roi_id", "reader_id", "scale", "score"]
    return pd.DataFrame(scores, columns=columns), rois


def test_mean_and_spread_by_hand() -> None:
    scores, rois = cohort([(1, 1, 4, 5), (3, 3, 3, 3), (2, None, None, None), (None,) * 4])
    labels = reader_labels(scores, rois, READERS, LabelSettings())
    assert labels["p"].tolist()[:3] == pytest.approx([0.4375, 0.5, 0.25])
    # (0, 0, .75, 1): squared deviations sum to .796875, over 3.
    assert labels["eta"].tolist()[:3] == pytest.approx([np.sqrt(0.796875 / 3), 0, 0.125])
    assert labels["n_readers"].tolist() == [4, 4, 1, 0]
    assert labels.loc[3, ["p", "eta", "y", "certain"]].isna().all()


def test_all_625_patterns_agree_with_numpy() -> None:
    patterns = list(product(range(1, 6), repeat=4))
    scores, rois = cohort(patterns)
    labels = reader_labels(scores, rois, READERS, LabelSettings())
    p = (np.array(patterns) - 1) / 4
    np.testing.assert_allclose(labels["p"], p.mean(axis=1), atol=1e-15)
    np.testing.assert_allclose(labels["eta"], p.std(axis=1, ddof=1), atol=1e-12)


def test_agreement_weighs_three_readers_and_no_fewer() -> None:
    """Two agree with each other, the third with neither; two readers alone have equal weights."""
    rows = [(1, 1, 5), (2, 2, 1), (3, 3, 4), (4, 4, 2), (5, 5, 3), (5, 4, 1), (1, 2, 5)]
    scores, rois = cohort(rows)
    mean = reader_labels(scores, rois, READERS, LabelSettings(consensus="mean"))
    weighed = reader_labels(scores, rois, READERS, LabelSettings(consensus="agreement"))
    grades = (np.array(rows) - 1) / 4
    belief = AgreementReaders(ETA0).fit(grades, np.full(len(rows), np.nan)).predict(grades)
    assert weighed["p"].tolist() == belief.p.tolist()
    assert weighed["eta"].tolist() == belief.eta.tolist()
    of_two = grades[:, :2].mean(axis=1)
    assert (abs(weighed["p"] - of_two) < abs(mean["p"] - of_two) + 1e-12).all()
    assert weighed.loc[0, "p"] < mean.loc[0, "p"] - 0.05
    pairs, rois = cohort([row[:2] for row in rows])
    equal = reader_labels(pairs, rois, READERS, LabelSettings(consensus="agreement"))
    assert equal["p"].tolist() == of_two.tolist()


def test_a_permutation_of_readers_changes_nothing() -> None:
    scores, rois = cohort([(1, 2, 4, 5), (5, 5, 4, 1)])
    shuffled = scores.sample(frac=1, random_state=3)
    settings = LabelSettings()
    pd.testing.assert_frame_equal(
        reader_labels(scores, rois, READERS, settings),
        reader_labels(shuffled, rois, READERS, settings),
    )


def test_the_declared_expert_and_named_readers() -> None:
    scores, rois = cohort([(1, 4, 2, 5)])
    expert = reader_labels(scores, rois, READERS, LabelSettings(readers="expert"))
    assert expert["p"].item() == 0.75
    assert expert["eta"].item() == 0.125
    two = reader_labels(scores, rois, READERS, LabelSettings(readers=("r1", "r3")))
    assert two["p"].item() == 0.125
    with pytest.raises(CadError, match="names 'r9'"):
        reader_labels(scores, rois, READERS, LabelSettings(readers=("r9",)))
    nobody = READERS.assign(expert=False)
    with pytest.raises(CadError, match="declares none"):
        reader_labels(scores, rois, nobody, LabelSettings(readers="expert"))


def test_a_constant_eta_is_taken_as_stated() -> None:
    scores, rois = cohort([(1, 4, 2, 5), (3, None, None, None)])
    labels = reader_labels(scores, rois, READERS, LabelSettings(eta=0.05))
    assert labels["eta"].tolist() == [0.05, 0.05]


def test_a_region_that_nobody_scored_has_no_constant_eta() -> None:
    scores, rois = cohort([(1, 4, 2, 5), (None, None, None, None)])
    labels = reader_labels(scores, rois, READERS, LabelSettings(eta=0.05))
    np.testing.assert_array_equal(labels["eta"], [0.05, np.nan])


def test_significant_cancer_is_what_counts_unless_stated() -> None:
    rois = pd.DataFrame(
        {"participant_id": ["s"] * 2, "roi_id": ["1", "2"], "histology": [None] * 2, "isup": [2, 1]}
    )
    assert malignant(rois).tolist() == [1.0, 0.0]


def test_a_run_is_told_of_a_named_table_and_of_several_scales() -> None:
    likert = pd.DataFrame({"scale": ["likert5", "likert5"], "score": [1.0, 2.0]})
    pirads = pd.DataFrame({"scale": ["pirads", "pirads"], "score": [3.0, 4.0]})
    table = LabelSettings(pirads_probability={1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4, 5: 0.5})
    assert notes(likert, LabelSettings()) == []
    assert notes(pirads, LabelSettings()) == [pirads_note("pi-cai")]
    assert notes(pirads, table) == []
    different = (
        "scores on different scales (likert5, pirads) were turned into probabilities before they "
        "were put together"
    )
    both = pd.concat([likert, pirads])
    assert notes(both, table) == [different]
    # A scale on which nobody scored is not in use.
    assert notes(pd.concat([likert, pirads.assign(score=np.nan)]), LabelSettings()) == []


def test_histology_overrides_where_it_is_known() -> None:
    scores, rois = cohort([(1, 1, 2, 1), (5, 5, 5, 5), (3, 3, 4, 4), (2, 2, 2, 2)])
    rois["histology"] = ["malignant", "benign", None, "malignant"]
    rois["isup"] = [3, np.nan, np.nan, 1]
    overriding = LabelSettings(histology="override", isup_min=1)
    labels = reader_labels(scores, rois, READERS, overriding)
    np.testing.assert_array_equal(labels["certain"], [1, 0, np.nan, 1])
    np.testing.assert_array_equal(labels["y"], [1, 0, 0.625, 1])
    assert labels["p"].tolist() == pytest.approx([0.0625, 1, 0.625, 0.25])  # readers are kept
    significant = reader_labels(scores, rois, READERS, LabelSettings(histology="override"))
    np.testing.assert_array_equal(significant["certain"], [1, 0, np.nan, 0])
    ignored = reader_labels(scores, rois, READERS, LabelSettings())
    assert ignored["certain"].isna().all()


def test_histology_that_does_not_tell_or_contradicts() -> None:
    rois = pd.DataFrame(
        {
            "participant_id": ["sub-1"] * 3,
            "roi_id": ["1", "2", "3"],
            "histology": ["malignant", None, None],
            "isup": [np.nan, 4, 0],
        }
    )
    np.testing.assert_array_equal(malignant(rois, 1), [1, 1, 0])
    np.testing.assert_array_equal(malignant(rois, 2), [np.nan, 1, 0])
    with pytest.raises(CadError, match="ROI 1: histology malignant contradicts isup 0"):
        malignant(rois.assign(isup=[0, 4, 0]))
    with pytest.raises(CadError, match="histology benign contradicts isup 4"):
        malignant(rois.assign(histology=["malignant", "benign", None]))


@pytest.mark.parametrize(
    ("histology", "isup", "any_cancer", "significant", "high_grade"),
    [
        # Counted by hand: the lowest grade of the range counts, or the highest does not.
        ("malignant", ">=2", 1, 1, np.nan),
        (None, ">=2", 1, 1, np.nan),
        (None, "<=1", np.nan, 0, 0),
        ("malignant", "<=1", 1, 0, 0),
        ("benign", "<=1", 0, 0, 0),
        ("malignant", None, 1, np.nan, np.nan),
        ("malignant", "3.0", 1, 1, 1),
        (None, "n/a", np.nan, np.nan, np.nan),
    ],
)
def test_a_range_of_grades_is_a_truth_where_all_of_it_agrees(
    histology: str | None,
    isup: str | None,
    any_cancer: float,
    significant: float,
    high_grade: float,
) -> None:
    rois = pd.DataFrame(
        {"participant_id": ["sub-1"], "roi_id": ["1"], "histology": [histology], "isup": [isup]}
    )
    truths = [malignant(rois, isup_min)[0] for isup_min in (1, 2, 3)]
    np.testing.assert_array_equal(truths, [any_cancer, significant, high_grade])


def test_what_is_wrong_with_a_score_names_patient_roi_and_reader() -> None:
    scores, rois = cohort([(1, 2, 3, 4), (1, 2, 3, 7)])
    with pytest.raises(CadError, match=r"patient sub-1, ROI 1: reader r4: score 7.*likert5"):
        reader_labels(scores, rois, READERS, LabelSettings())
    twice = pd.concat([scores.iloc[:4], scores.iloc[:1]])
    with pytest.raises(CadError, match=r"same reader scored this ROI twice \(reader r1\)"):
        reader_labels(twice, rois, READERS, LabelSettings())
    stray = scores.iloc[:4].assign(roi_id="9")
    with pytest.raises(CadError, match="ROI 9: reader r1 scored a ROI that does not exist"):
        reader_labels(stray, rois, READERS, LabelSettings())


def test_scales_may_mix() -> None:
    scores, rois = cohort([(1, 2, 3, 4)])
    scores.loc[1, ["scale", "score"]] = ["percent", 30.0]
    scores.loc[2, ["scale", "score"]] = ["pirads", 4.0]
    settings = LabelSettings(pirads_probability={4: 0.5})
    labels = reader_labels(scores, rois, READERS, settings)
    assert labels["p"].item() == pytest.approx((0 + 0.3 + 0.5 + 0.75) / 4)
