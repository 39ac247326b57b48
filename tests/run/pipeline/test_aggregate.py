"""The stage aggregate: labels, rows of an earlier model, and labels of each fold, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.base.settings import LabelSettings, PipelineSettings
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import KEYS
from cad.learning.labels.rules import fold_labels
from cad.run.stages.aggregate import (
    FoldLabels,
    Table,
    aggregate,
    aggregate_nothing,
    check_extension,
    extend,
    fold_labels_of,
    join,
    label_kinds,
)

UNKNOWN = np.nan
READERS = ("r1", "r2", "r3")


def settings_of(**sections: Any) -> PipelineSettings:
    return PipelineSettings.model_validate({"name": "t", **sections})


def keys_of(*regions: tuple[str, str]) -> pd.DataFrame:
    """Return the keys of regions, given as patient and region."""
    rows = [(patient, patient, roi) for patient, roi in regions]
    return pd.DataFrame(rows, columns=KEYS)


def run_of(folder: Path, **sections: Any) -> tuple[Any, Any]:
    """Return a run of two patients with a measured region each, and of one without.

    Region 1 of sub-1 is scored 1, 1 and 3 (0, 0 and .5), that of sub-2 is scored 5 by all (1).
    """
    rois = pd.DataFrame(
        {
            "participant_id": ["sub-1", "sub-2", "sub-3"],
            "roi_id": ["1", "1", "1"],
            "histology": ["benign", "malignant", "malignant"],
            "isup": ["", "3", "4"],
        }
    )
    scores = []
    for patient, given in (("sub-1", (1, 1, 3)), ("sub-2", (5, 5, 5)), ("sub-3", (2, 2, 2))):
        for reader, score in zip(READERS, given, strict=True):
            scores.append((patient, "1", reader, "likert5", float(score)))
    columns = ["participant_id", "roi_id", "reader_id", "scale", "score"]
    cohort = SimpleNamespace(
        rois=rois,
        scores=pd.DataFrame(scores, columns=columns),
        readers=pd.DataFrame({"reader_id": READERS, "expert": [True] * 3}),
        participants=pd.DataFrame(
            {"participant_id": ["sub-1", "sub-2", "sub-3"], "age": [60, 70, 80]}
        ),
        simulated=False,
    )
    loaded = SimpleNamespace(
        settings=settings_of(**sections),
        cohort=cohort,
        folder=RunFolder(folder),
        withdrawn=(),
        sites=lambda patients: patients.map({"sub-1": "A", "sub-2": ""}).to_numpy(str),
    )
    features = keys_of(("sub-2", "1"), ("sub-1", "1")).assign(adc_mean=[700.0, 1400.0])
    extracted = SimpleNamespace(
        features=features, provenance=features[KEYS], source=SimpleNamespace(with_rows=tuple_of)
    )
    return loaded, extracted


def tuple_of(*parts: Any) -> tuple[Any, ...]:
    return parts


def test_a_label_of_each_measured_region(tmp_path: Path) -> None:
    loaded, extracted = run_of(tmp_path, labels={"consensus": "mean"})
    made = aggregate(loaded, extracted)
    # In the order of the features; the third patient has no measured region.
    assert made.table.keys["participant_id"].tolist() == ["sub-2", "sub-1"]
    assert made.table.y.tolist() == pytest.approx([1.0, 1 / 6])
    assert made.table.spread.tolist() == pytest.approx([0.0, np.std([0, 0, 0.5], ddof=1)])
    assert made.table.X["adc_mean"].tolist() == [700.0, 1400.0]
    assert made.table.groups.tolist() == ["sub-2", "sub-1"]
    assert made.table.sites.tolist() == ["", "A"]
    assert made.table.labelled.all()
    assert made.rois["participant_id"].tolist() == ["sub-1", "sub-2"]
    assert made.rois.index.tolist() == [0, 1]
    assert made.scores.index.tolist() == [0, 1, 2, 3, 4, 5]
    assert made.own_rows == 2
    assert not made.simulated
    assert made.relabel is None
    assert made.notes == ()
    written = pd.read_parquet(loaded.folder.labels).set_index("participant_id")
    assert written["truth"].to_dict() == {"sub-1": 0.0, "sub-2": 1.0}
    assert written["age"].to_dict() == {"sub-1": 60.0, "sub-2": 70.0}
    assert written["site"].to_dict() == {"sub-1": "A", "sub-2": ""}
    assert written["readers_mean"].to_dict() == pytest.approx({"sub-1": 1 / 6, "sub-2": 1.0})


def test_rows_of_tables_of_another_order_are_counted_anew(tmp_path: Path) -> None:
    loaded, extracted = run_of(tmp_path, labels={"consensus": "mean"})
    loaded.cohort.rois = loaded.cohort.rois.iloc[::-1]
    loaded.cohort.scores = loaded.cohort.scores.iloc[::-1]
    made = aggregate(loaded, extracted)
    assert made.rois["participant_id"].tolist() == ["sub-2", "sub-1"]
    assert list(made.rois.columns) == list(loaded.cohort.rois.columns)
    assert list(made.scores.columns) == list(loaded.cohort.scores.columns)
    assert made.rois.index.tolist() == [0, 1]
    assert made.scores.index.tolist() == [0, 1, 2, 3, 4, 5]
    assert made.table.y.tolist() == pytest.approx([1.0, 1 / 6])


def test_a_rule_that_learns_is_noted_where_it_cannot(tmp_path: Path) -> None:
    loaded, extracted = run_of(tmp_path, labels={"consensus": "pooled"})
    made = aggregate(loaded, extracted)
    assert made.relabel is not None
    assert made.notes == ()
    loaded.cohort.rois["histology"] = "benign"
    loaded.cohort.rois["isup"] = ""
    alike = aggregate(loaded, extracted)
    assert len(alike.notes) == 1
    assert "only one class has histology" in alike.notes[0]


def test_nothing_measured_leaves_a_table_without_rows(tmp_path: Path) -> None:
    loaded, _ = run_of(tmp_path)
    aggregate_nothing(loaded)
    assert list(pd.read_parquet(loaded.folder.labels).columns) == KEYS
    assert len(pd.read_parquet(loaded.folder.labels)) == 0


def test_a_region_without_a_label_keeps_its_row() -> None:
    features = keys_of(("a", "1"), ("b", "1")).set_index(pd.Index([4, 7])).assign(x=[1.0, 2.0])
    labels = pd.DataFrame({"participant_id": ["b"], "roi_id": ["1"], "y": [0.5], "eta": [UNKNOWN]})
    table = join(features, labels)
    np.testing.assert_array_equal(table.y, [UNKNOWN, 0.5])
    assert table.spread.tolist() == [0.0, 0.0]
    assert table.labelled.tolist() == [False, True]
    assert table.keys.index.tolist() == [0, 1]
    assert list(table.keys.columns) == KEYS
    assert table.sites.tolist() == ["", ""]


def grades_of_three() -> np.ndarray:
    """Two readers alike, and a third who says something else."""
    first = np.tile([0.1, 0.9], 4)
    third = np.tile([0.1, 0.1, 0.9, 0.9], 2)
    return np.column_stack([first, first, third])


@pytest.mark.parametrize(
    ("consensus", "readers", "learns"),
    [
        ("mean", 3, False),
        ("agreement", 3, True),
        ("agreement", 2, False),
        ("agreement", 0, False),
        ("pooled", 0, False),
        ("pooled", 1, True),
        ("pooled", 2, True),
    ],
)
def test_which_rules_give_other_labels_in_each_fold(
    consensus: str, readers: int, learns: bool
) -> None:
    labels = pd.DataFrame({"truth": [UNKNOWN] * 8, "certain": [UNKNOWN] * 8})
    made = fold_labels_of(
        LabelSettings.model_validate({"consensus": consensus}),
        grades_of_three()[:, :readers],
        labels,
        np.full(8, 0.5),
        np.zeros(8),
    )
    assert (made is not None) == learns
    if made is not None:
        assert made.rule == consensus
        assert made.eta is None


def test_a_fold_learns_from_its_training_rows_alone() -> None:
    grades = grades_of_three()
    grades[7] = UNKNOWN
    unknown = np.full(8, UNKNOWN)
    certain = unknown.copy()
    certain[0] = 1.0
    labels = pd.DataFrame({"truth": unknown, "certain": certain})
    rule = LabelSettings.model_validate({"consensus": "agreement", "eta": 0.25})
    stored = np.full(8, 0.875)
    made = fold_labels_of(rule, grades, labels, stored, np.full(8, 0.3))
    assert made is not None
    rows = np.array([0, 1, 2, 3, 4])
    y, spread = made(rows)
    expected, _, _ = fold_labels("agreement", grades, unknown, certain, rows)
    np.testing.assert_array_equal(y[:7], expected[:7])
    assert y[0] == 1.0
    # The row without a score keeps its stored label and spread; the others have the constant.
    assert y[7] == 0.875
    assert spread.tolist() == [0.25] * 7 + [0.3]
    adaptive, spreads = FoldLabels("agreement", grades, unknown, certain, stored, stored)(rows)
    np.testing.assert_array_equal(adaptive, y)
    np.testing.assert_array_equal(
        spreads[:7], fold_labels("agreement", grades, unknown, certain, rows)[1][:7]
    )


def test_the_note_is_on_all_rows() -> None:
    """Histology of both classes is known only with the last row."""
    grades = np.array([[0.1], [0.2], [0.9]])
    truth = np.array([0.0, 0.0, 1.0])
    made = FoldLabels("pooled", grades, truth, np.full(3, UNKNOWN), truth, truth)
    assert made.note() == ""
    alike = FoldLabels("pooled", grades, np.zeros(3), np.full(3, UNKNOWN), truth, truth)
    assert "only one class has histology" in alike.note()


def table_of_two() -> Table:
    keys = keys_of(("sub-1", "1"), ("sub-2", "1"))
    labels = keys.assign(y=[0.0, 1.0], eta=[0.1, 0.2], site=["A", None])
    return Table(
        keys=keys,
        X=pd.DataFrame({"b": [1.0, 2.0], "a": [3.0, 4.0]}),
        y=np.array([0.0, 1.0]),
        spread=np.array([0.1, 0.2]),
        labels=labels,
    )


def test_rows_of_an_earlier_model_follow_those_of_the_cohort() -> None:
    rows = keys_of(("old-1", "1")).assign(y=0.5, eta=UNKNOWN, site="B", a=5.0, c=6.0)
    longer = table_of_two().with_rows(rows.set_index(pd.Index([9])), ["a", "c"])
    # The cohort's columns come first, in their order.
    assert list(longer.X.columns) == ["b", "a", "c"]
    np.testing.assert_array_equal(
        longer.X.to_numpy(), [[1, 3, UNKNOWN], [2, 4, UNKNOWN], [UNKNOWN, 5, 6]]
    )
    assert longer.groups.tolist() == ["sub-1", "sub-2", "old-1"]
    assert longer.y.tolist() == [0.0, 1.0, 0.5]
    assert longer.spread.tolist() == [0.1, 0.2, 0.0]
    assert longer.sites.tolist() == ["A", "", "B"]
    assert longer.X.index.tolist() == longer.labels.index.tolist() == [0, 1, 2]


def earlier_model(loaded: Any, **metadata: Any) -> Any:
    """Return a model of three regions of three men, measured as the run is."""
    rows = keys_of(("old-1", "1"), ("old-2", "1"), ("old-3", "1"))
    return SimpleNamespace(
        name="before",
        features=["adc_mean"],
        training=rows.assign(
            y=[0.0, 1.0, 1.0],
            eta=0.1,
            site="C",
            truth=[0.0, 1.0, UNKNOWN],
            certain=UNKNOWN,
            adc_mean=[1.0, 2.0, 3.0],
        ),
        metadata={"carries_training_rows": True, "training": {"simulated": True}, **metadata},
        pipeline=loaded.settings.model_dump(mode="json", by_alias=True),
    )


@pytest.mark.parametrize("simulated", [False, True])
def test_a_run_extends_a_model_without_those_who_withdrew(tmp_path: Path, simulated: bool) -> None:
    loaded, extracted = run_of(tmp_path, labels={"consensus": "pooled"})
    loaded.withdrawn = ("old-2",)
    own = aggregate(loaded, extracted)
    model = earlier_model(loaded, training={"simulated": simulated})
    more = extend(loaded, own, model)
    assert more.table.groups.tolist() == ["sub-2", "sub-1", "old-1", "old-3"]
    assert list(more.table.labels.columns) == list(own.table.labels.columns)
    assert more.own_rows == 2
    assert more.parents == ("before",)
    assert more.simulated is simulated
    assert extend(loaded, replace(own, simulated=True), model).simulated
    keys, X, sites = more.source
    assert keys["participant_id"].tolist() == ["sub-2", "sub-1", "old-1", "old-3"]
    assert X["adc_mean"].tolist() == [700.0, 1400.0, 1.0, 3.0]
    assert sites.tolist() == ["", "A", "C", "C"]
    # In a fold, the rows of the model keep their labels: nobody's scores of them are here.
    assert more.relabel is not None
    assert np.isnan(more.relabel.grades[2:]).all()
    assert np.isfinite(more.relabel.grades[:2]).all()
    assert more.relabel(np.arange(4))[0][2:].tolist() == [0.0, 1.0]
    loaded, extracted = run_of(tmp_path, labels={"consensus": "mean"})
    assert extend(loaded, aggregate(loaded, extracted), earlier_model(loaded)).relabel is None


def test_what_cannot_be_added_to_a_cohort_is_refused(tmp_path: Path) -> None:
    loaded, _ = run_of(tmp_path)
    model = earlier_model(loaded)
    region = ["participant_id", "roi_id"]
    check_extension(loaded, model, loaded.cohort.rois[region])
    both = model.training[region].iloc[1:]
    with pytest.raises(CadError, match="of before already, as are 1 others") as refused:
        check_extension(loaded, model, both)
    assert (refused.value.patient, refused.value.roi) == ("old-2", "1")
    loaded.withdrawn = ("old-2", "old-3")
    check_extension(loaded, model, both)
    without = earlier_model(loaded, carries_training_rows=False)
    with pytest.raises(CadError, match="before was written without its training rows"):
        check_extension(loaded, without, loaded.cohort.rois[region])
    loaded.settings = settings_of(features={"modalities": ["t2w"]})
    with pytest.raises(CadError, match="features settings differ from those of before: modalit"):
        check_extension(loaded, model, loaded.cohort.rois[region])
    loaded.settings = settings_of(images={"t2_reference": "regions"})
    with pytest.raises(CadError, match="images settings differ from those of before: t2_refer"):
        check_extension(loaded, model, loaded.cohort.rois[region])


def test_kinds_of_labels_by_hand() -> None:
    labels = pd.DataFrame(
        {
            "p": [0.5, 0.15, 0.5, 0.02, 0.99, UNKNOWN, 0.5, 0.5],
            "eta": [0.1, 0.2, 0.6, 0.0, 0.0, UNKNOWN, 0.1, 0.1],
            "certain": [UNKNOWN] * 6 + [1.0, 0.0],
        }
    )
    chosen = settings_of(labels={"eta0": 0.05, "kappa": 1.0, "boundary": "drop"})
    kinds = [
        "two_sided",
        "one_sided",
        # A half-width stays below one half, so an interval around one half has both bounds.
        "two_sided",
        "certain_negative",
        "certain_positive",
        "unlabelled",
        "certain_positive",
        "certain_negative",
    ]
    assert label_kinds(labels, chosen).tolist() == kinds
    # The largest of several precisions counts, and the learner's own come before those of labels.
    wide = settings_of(labels={"eta0": [0.01, 0.2], "kappa": 1.0})
    assert label_kinds(labels, wide)[1] == "certain_negative"
    of_learner = settings_of(
        labels={"eta0": 0.05, "kappa": 1.0},
        learner={"name": "ProbabilisticEnsemble", "params": {"kappa": 0.0, "C": 3.0}},
    )
    assert label_kinds(labels, of_learner)[:3].tolist() == ["two_sided"] * 3
    paper = settings_of(labels={"eta0": 0.05, "kappa": 1.0, "boundary": "paper"})
    assert label_kinds(labels, paper).tolist() == ["two_sided", "certain_negative", *kinds[2:]]
