"""The consensus rules by their names, and what one tells the learner of a fold."""

from __future__ import annotations

import numpy as np
import pytest

from cad.base.errors import CadError
from cad.learning.labels.pooled import MeanReaders
from cad.learning.labels.rules import RULES, consensus_rule, fold_labels


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rule_by_its_name_is_new_and_unfitted(name: str) -> None:
    rule = consensus_rule(name)
    assert type(rule) is RULES[name]
    assert rule is not consensus_rule(name)


def test_an_unknown_rule_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CadError, match="'vote', must be one of agreement, mean, pooled"):
        consensus_rule("vote")


def test_histology_overrides_the_readers_and_the_others_truths_are_not_looked_at() -> None:
    rng = np.random.default_rng(0)
    grades = rng.choice([0.1, 0.3, 0.5, 0.7, 0.9], size=(12, 3))
    truth = (grades.mean(axis=1) > 0.5).astype(float)
    certain = np.full(12, np.nan)
    certain[[0, 1]] = [1.0, 0.0]
    train = np.arange(8)
    y, eta, _ = fold_labels("mean", grades, truth, certain, train)
    belief = MeanReaders().fit(grades[train], truth[train]).predict(grades)
    np.testing.assert_array_equal(y[:2], [1.0, 0.0])
    np.testing.assert_array_equal(y[2:], belief.p[2:])
    np.testing.assert_array_equal(eta, belief.eta)
    turned = truth.copy()
    turned[8:] = 1 - turned[8:]
    again = fold_labels("mean", grades, turned, certain, train)
    np.testing.assert_array_equal(again[0], y)
