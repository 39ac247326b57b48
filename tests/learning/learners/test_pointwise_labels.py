"""Boundary rules and reject rules against the counts and identities of docs/methods.md."""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from cad.learning.learners.reject import asymmetric_rule, symmetric_rule
from cad.learning.learners.soft_labels import CERTAIN_NEGATIVE, KIND_NAMES, NONE, soft_labels

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)


def test_drop_rule_on_all_patterns_of_four_readers() -> None:
    """docs/methods.md 1: 30 certain, 232 one-sided, 357 two-sided, 6 none of 625."""
    scores = np.array(list(product(LEVELS, repeat=4)))
    eta = np.maximum(scores.std(axis=1, ddof=1), 0.0)
    kinds = soft_labels(scores.mean(axis=1), eta, "drop", 0.125).kinds
    counts = Counter(KIND_NAMES[kind] for kind in kinds)
    assert counts["certain_negative"] + counts["certain_positive"] == 30
    assert (counts["one_sided"], counts["two_sided"], counts["none"]) == (232, 357, 6)


def test_paper_rule_makes_disagreement_certain() -> None:
    """docs/methods.md 1: 14 of the 46 patterns, mean in (.25, .75); (0, 0, .75, 1) is benign."""
    scores = np.array(list(combinations_with_replacement(LEVELS, 4)))
    p, eta = scores.mean(axis=1), scores.std(axis=1, ddof=1)
    middle = (p > 0.25) & (p < 0.75)
    kinds = soft_labels(p[middle], eta[middle], "paper").kinds
    assert (middle.sum(), (kinds <= 1).sum()) == (46, 14)
    odd = np.array([0, 0, 0.75, 1])
    (kind,) = soft_labels([odd.mean()], [odd.std(ddof=1)], "paper").kinds
    assert kind == CERTAIN_NEGATIVE


def test_a_pattern_that_leaves_both_ends_says_nothing() -> None:
    split = np.array([0, 0, 1, 1])
    (kind,) = soft_labels([split.mean()], [split.std(ddof=1)], "drop").kinds
    assert kind == NONE


@pytest.mark.parametrize("costs", [(1, 4, 0.4, 0.4), (1, 1, 0.2, 0.3), (3, 10, 1, 0.5)])
def test_double_hinge_is_tangent_to_the_log_loss(costs: tuple[float, ...]) -> None:
    """docs/methods.md 3: at both thresholds, the log-loss's value and slope up to the constant."""
    rule = asymmetric_rule(costs)  # type: ignore[arg-type]
    for sign, margins, shares in zip((1, -1), rule.margins, rule.costs, strict=True):

        def hinge(f: float, s: int = sign, m: tuple = margins, c: tuple = shares) -> float:
            return sum(ck * max(0.0, mk - s * f) for mk, ck in zip(m, c, strict=True))

        for at in (rule.lower, rule.upper):
            assert hinge(at) == pytest.approx(np.log1p(np.exp(-sign * at)), rel=1e-12)
            slope = (hinge(at + 1e-6) - hinge(at - 1e-6)) / 2e-6
            assert slope == pytest.approx(-sign / (1 + np.exp(sign * at)), rel=1e-6)


def test_reject_rules_coincide_at_the_stated_r() -> None:
    r = 0.24149
    symmetric, asymmetric = symmetric_rule(r), asymmetric_rule((1, 1, r, r))
    assert symmetric.upper * symmetric.slope == pytest.approx(asymmetric.upper, abs=2e-4)
