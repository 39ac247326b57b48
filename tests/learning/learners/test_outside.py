"""A warning where rows are unlike the training: in another unit always, by chance hardly ever."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cad.base.share import shared
from cad.learning.learners.base import outside, training_range

ADC = np.linspace(600.0, 1900.0, 40)
VOLUME = np.linspace(0.3, 4.0, 40)
SKEWNESS = np.linspace(-1.0, 1.0, 40)
NAMES = ["adc", "volume", "skewness"]
TRAINING = np.column_stack([ADC, VOLUME, SKEWNESS])
ORDINARY = TRAINING[[20, 5, 33, 12, 7, 28, 15, 3, 36, 22]]


def notes(rows: np.ndarray) -> list[str]:
    return outside(rows, training_range(TRAINING), len(TRAINING), NAMES)


@pytest.mark.parametrize("count", [1, 2, 3, 10])
@pytest.mark.parametrize(
    ("column", "factor"),
    [(0, 1e-6), (0, 1e-3), (0, 1e-2), (0, 100.0), (1, 1000.0), (1, 1e-3), (2, 1e5)],
)
def test_a_column_in_another_unit_is_named_in_a_small_table(column, factor, count):
    rows = ORDINARY[:count].copy()
    rows[:, column] *= factor
    (first, *_) = notes(rows)
    assert first.startswith(f"{NAMES[column]}: {count} of {count} rows lie far from")


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_ordinary_rows_and_missing_values_give_no_warning(count):
    rows = ORDINARY[:count].copy()
    assert notes(rows) == []
    rows[:, 1] = np.nan
    rows[0, 0] = np.nan
    assert notes(rows) == []


def test_the_limits_of_a_far_column_by_hand():
    """Ends 600 and 1900: a ratio of 5 counts, as sqrt(1900 / 600) is smaller."""
    for adc, is_far in ((1900 * 4.9, False), (1900 * 5.1, True), (600 / 4.9, False), (118, True)):
        rows = np.tile(ORDINARY[:1], (3, 1))
        rows[:, 0] = adc
        assert bool([note for note in notes(rows) if "lie far from" in note]) is is_far, adc
    # ends 1 and 400: sqrt(400) = 20 is larger than 5
    trained = training_range(np.array([[1.0], [400.0]]))
    for value, is_far in ((400 * 19.0, False), (400 * 21.0, True), (1 / 19, False), (1 / 21, True)):
        told = outside(np.array([[value], [value]]), trained, 40, ["x"])
        assert bool([note for note in told if "lie far from" in note]) is is_far, value
    # values of both signs: ten widths of 2
    for value, is_far in ((20.9, False), (21.1, True), (-20.9, False), (-21.1, True)):
        rows = np.tile(ORDINARY[:1], (3, 1))
        rows[:, 2] = value
        assert bool([note for note in notes(rows) if "lie far from" in note]) is is_far, value


def test_one_value_in_the_training_unit_makes_a_column_no_far_one():
    rows = ORDINARY.copy()
    rows[1:, 0] *= 1e-3
    assert [note for note in notes(rows) if "lie far from" in note] == []


def test_negative_values_and_a_constant_column():
    trained = training_range(-TRAINING[:, :1])
    assert outside(-ORDINARY[:, :1] * 1e-3, trained, 40, ["x"])[0].startswith("x: 10 of 10")
    assert outside(ORDINARY[:, :1] * 100, trained, 40, ["x"])[0].startswith("x: 10 of 10")
    constant = training_range(np.ones((40, 1)))
    told = outside(np.full((3, 1), 1 + 1e-12), constant, 40, ["x"])
    assert [note for note in told if "lie far from" in note] == []


@pytest.mark.parametrize("columns", [3, 10, 30])
@pytest.mark.parametrize("trained", [20, 40, 100])
def test_at_most_one_in_a_hundred_small_tables_of_ordinary_rows_is_warned_of(trained, columns):
    """Regions of the simulated men, each table against men who are not in it."""
    table = pd.read_parquet(shared("models", "phantom-psvm") / "training.parquet")
    first = list(table.columns).index("t2w_intensity_mean")
    values = table.iloc[:, first:].to_numpy(float)
    men = table["participant_id"].to_numpy()
    rng = np.random.default_rng(0)
    tables = 500
    warned = 0
    for number in range(tables):
        chosen = rng.choice(values.shape[1], columns, replace=False)
        order = rng.permutation(len(values))
        learned = order[:trained]
        others = order[trained:][~np.isin(men[order[trained:]], men[learned])]
        new = others[: 1 + number % 10]
        limits = training_range(values[learned][:, chosen])
        names = [str(name) for name in chosen]
        warned += bool(outside(values[new][:, chosen], limits, trained, names))
    assert warned <= tables // 100
