"""A federated fit is the pooled fit, its messages are sums, and what they reveal is as said."""

import json

import numpy as np
import pytest

from cad.learning.learners import ProbabilisticSVC
from cad.learning.learners.federated import (
    LENGTHS,
    FederatedPlan,
    FederatedSite,
    _Coordinator,
    _Wire,
    fit_federated,
)
from cad.learning.learners.soft_labels import half_widths, probabilistic_problem, read_labels
from cad.learning.learners.solvers.problem import LearnerError

SIZES = (60, 90, 140)
FEATURES = 8


def simulated_sites(seed, plan, least_patients=0.0):
    """Return three sites whose men, scanners and readers differ, and their rows pooled."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=plan.features)
    sites, rows, labels, spreads = [], [], [], []
    for number, size in enumerate(SIZES):
        X = rng.normal(0.4 * number, 1 + 0.3 * number, (size, plan.features))
        truth = 1 / (1 + np.exp(-(X @ direction) + 0.5 * number))
        scores = truth[:, None] + rng.normal(0, 0.2, (size, 4))
        scores = np.clip(np.round(4 * scores) / 4, 0, 1)
        p = scores.mean(axis=1)
        spread = scores.std(axis=1, ddof=1)
        patient = np.arange(size) // 2
        sites.append(FederatedSite(plan, X, p, spread, patient, least_patients))
        rows.append(X)
        labels.append(p)
        spreads.append(spread)
    return sites, np.vstack(rows), np.concatenate(labels), np.concatenate(spreads)


def pooled(plan, X, y, eta):
    """Return the program's own fit to the pooled rows, and what it multiplies the weights by."""
    Z = plan.expand((X - X.mean(axis=0)) / X.std(axis=0))
    learner = ProbabilisticSVC(
        C=plan.C, eta0=plan.eta0, kappa=plan.kappa, scale=plan.scale, kernel="linear", tol=1e-10
    )
    return learner.fit(Z, y, eta), Z


@pytest.mark.parametrize("scale", ["fixed", "learned"])
@pytest.mark.parametrize("components", [0, 40])
@pytest.mark.parametrize("seed", [0, 1])
def test_equals_the_pooled_fit(scale, components, seed):
    plan = FederatedPlan(
        features=FEATURES, eta0=0.05, kappa=0.5, scale=scale, components=components, gamma=0.05
    )
    sites, X, y, eta = simulated_sites(seed, plan)
    fit = fit_federated(plan, [site.answer for site in sites])
    reference, Z = pooled(plan, X, y, eta)
    assert fit.converged
    assert fit.rows == len(X)
    np.testing.assert_allclose(
        fit.predict_proba(X)[:, 1], reference.predict_proba(Z)[:, 1], rtol=0, atol=1e-6
    )
    np.testing.assert_allclose(fit.weights, reference.coef_[0], rtol=0, atol=1e-6)
    assert fit.intercept == pytest.approx(reference.intercept_[0], abs=1e-6)
    assert fit.scale == pytest.approx(reference.scale_, abs=1e-6)


def newton_changes(site, x, price, products):
    """Solve the linear equations of all variables at once: x, gamma, v, xi, and the multiplier.

    ``products`` holds the change of gamma v, of (c - gamma) xi, and of s times its multiplier.
    """
    Z = site._Z
    m, u = Z.shape
    learned = site.plan.scale == "learned"
    quadratic = np.zeros(u)
    quadratic[: site.plan.size] = 1.0
    system = np.zeros((u + 3 * m + learned, u + 3 * m + learned))
    right = np.zeros(len(system))
    gamma = slice(u, u + m)
    v = slice(u + m, u + 2 * m)
    xi = slice(u + 2 * m, u + 3 * m)
    # The gradient by x is 0: Q x - Z' gamma - price e = 0.
    system[:u, :u] = np.diag(quadratic)
    system[:u, gamma] = -Z.T
    right[:u] = Z.T @ site._gamma - quadratic * x
    # Z x - t + xi - v = 0.
    system[gamma, :u] = Z
    system[gamma, xi] = np.eye(m)
    system[gamma, v] = -np.eye(m)
    right[gamma] = site._margins - Z @ x - site._xi + site._v
    system[v, gamma] = np.diag(site._v)
    system[v, v] = np.diag(site._gamma)
    system[xi, gamma] = -np.diag(site._xi)
    system[xi, xi] = np.diag(site._costs - site._gamma)
    right[u + m : u + 3 * m] = np.concatenate(products[:2])
    if learned:
        system[u - 1, -1] = -1.0
        right[u - 1] += price
        system[-1, u - 1] = price
        system[-1, -1] = x[-1]
        right[-1] = products[2]
    changes = np.linalg.solve(system, right)
    d_price = 0.0
    if learned:
        d_price = changes[-1]
    return changes[:u], changes[gamma], changes[v], changes[xi], d_price


@pytest.mark.parametrize("scale", ["fixed", "learned"])
def test_a_step_is_mehrotras_in_all_variables_at_once(scale):
    plan = FederatedPlan(features=FEATURES, eta0=0.05, kappa=0.5, scale=scale)
    _, X, y, eta = simulated_sites(0, plan)
    site = FederatedSite(plan, X, y, eta)
    asked = []

    def answer(question):
        asked.append(question)
        return site.answer(question)

    fixed = None
    if scale == "fixed":
        fixed = plan.fixed_scale()
    coordinator = _Coordinator(plan, _Wire(plan, [answer]), X.mean(axis=0), X.std(axis=0), fixed)
    step = 0.0
    for _ in range(2):
        x = coordinator.x.copy()
        price = coordinator.price
        sums = coordinator.wire.ask({"ask": "system", "x": x.tolist(), "length": step})
        back = site._costs - site._gamma
        of_rows = [site._gamma * site._v, back * site._xi]
        of_scale = x[-1] * price
        towards_0 = [-of_rows[0], -of_rows[1], -of_scale]
        dx, d_gamma, d_v, d_xi, d_price = newton_changes(site, x, price, towards_0)
        step = coordinator._step(sums)
        predictor, corrector = asked[-2:]
        np.testing.assert_allclose(predictor["dx"], dx, rtol=1e-7, atol=1e-9)
        # The longest of the lengths that leave all variables above 0.
        pairs = [(site._gamma, d_gamma), (back, -d_gamma), (site._v, d_v), (site._xi, d_xi)]
        if scale == "learned":
            pairs += [(x[-1:], dx[-1:]), (np.array([price]), np.array([d_price]))]
        steepest = max((-change / variable).max() for variable, change in pairs)
        ahead = LENGTHS[LENGTHS * steepest <= 0.999].max()
        products = np.concatenate(of_rows)
        left = np.concatenate(
            [
                (site._gamma + ahead * d_gamma) * (site._v + ahead * d_v),
                (back - ahead * d_gamma) * (site._xi + ahead * d_xi),
            ]
        )
        if scale == "learned":
            products = np.append(products, of_scale)
            left = np.append(left, (x[-1] + ahead * dx[-1]) * (price + ahead * d_price))
        centre = products.mean() * (left.mean() / products.mean()) ** 3
        assert corrector["centre"] == pytest.approx(centre, rel=1e-6)
        corrected = [
            centre - of_rows[0] - d_gamma * d_v,
            centre - of_rows[1] + d_gamma * d_xi,
            centre - of_scale - dx[-1] * d_price,
        ]
        dx, _, _, _, d_price = newton_changes(site, x, price, corrected)
        assert step in LENGTHS
        np.testing.assert_allclose(coordinator.x, x + step * dx, rtol=1e-7, atol=1e-9)
        assert coordinator.price == pytest.approx(price + step * d_price, rel=1e-7)


def test_one_site_of_all_rows_is_the_same_fit():
    plan = FederatedPlan(features=FEATURES, eta0=0.05, kappa=0.5)
    sites, X, y, eta = simulated_sites(2, plan)
    apart = fit_federated(plan, [site.answer for site in sites])
    together = fit_federated(plan, [FederatedSite(plan, X, y, eta).answer])
    np.testing.assert_allclose(apart.weights, together.weights, rtol=0, atol=1e-9)


def test_rows_twice_are_costs_doubled():
    plan = FederatedPlan(features=FEATURES, C=1.0)
    dearer = FederatedPlan(features=FEATURES, C=2.0)
    twice = simulated_sites(3, plan)[0]
    again = simulated_sites(3, plan)[0]
    once = simulated_sites(3, dearer)[0]
    doubled = fit_federated(plan, [site.answer for site in twice + again])
    costly = fit_federated(dearer, [site.answer for site in once])
    np.testing.assert_allclose(doubled.weights, costly.weights, rtol=0, atol=1e-8)


def test_two_certain_points_by_hand():
    # Standardised they lie at -1 and 1: the margins 1 ask for w = 1 and b = 0.
    plan = FederatedPlan(features=1, C=10.0)
    left = FederatedSite(plan, [[3.0]], [0.0])
    right = FederatedSite(plan, [[7.0]], [1.0])
    fit = fit_federated(plan, [left.answer, right.answer])
    assert fit.mean.tolist() == [5.0]
    assert fit.deviation.tolist() == [2.0]
    np.testing.assert_allclose(fit.weights, [1.0], atol=1e-9)
    assert fit.intercept == pytest.approx(0.0, abs=1e-9)
    # The margin of a certain label has the probability 1 - eta0.
    assert fit.predict_proba([[7.0]])[0, 1] == pytest.approx(1 - plan.eta0, abs=1e-9)


def test_random_features_come_near_the_gaussian_kernel():
    rng = np.random.default_rng(4)
    X = np.clip(rng.normal(size=(30, 5)), -3, 3)
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    kernel = np.exp(-0.1 * squared)
    errors = []
    for components in (100, 1600):
        squares = []
        for seed in range(20):
            plan = FederatedPlan(features=5, components=components, gamma=0.1, seed=seed)
            Z = plan.expand(X)
            np.testing.assert_allclose((Z**2).sum(axis=1), 1.0, atol=1e-12)
            squares.append(np.mean((Z @ Z.T - kernel) ** 2))
        errors.append(float(np.sqrt(np.mean(squares))))
    # Sixteen times as many features, a quarter of the error.
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)
    assert errors[1] < 0.02


def test_labels_that_ask_for_nothing_give_no_weights():
    plan = FederatedPlan(features=1, eta0=0.05, kappa=1.0)
    site = FederatedSite(plan, [[0.0], [1.0], [2.0]], [0.5, 0.5, 0.5], 0.5)
    fit = fit_federated(plan, [site.answer])
    assert fit.converged
    np.testing.assert_allclose(fit.predict_proba([[0.0], [2.0]])[:, 1], 0.5, atol=1e-6)


def test_the_seed_is_part_of_the_plan():
    rows = np.linspace(-1, 1, 6).reshape(2, 3)
    alike = FederatedPlan(features=3, components=10, seed=5)
    assert np.array_equal(alike.expand(rows), alike.expand(rows))
    other = FederatedPlan(features=3, components=10, seed=6)
    assert not np.allclose(alike.expand(rows), other.expand(rows))


class _Recorder:
    """Pass questions on as JSON text, and keep the answers."""

    def __init__(self, site):
        self.site = site
        self.answers = []

    def __call__(self, question):
        answer = json.loads(json.dumps(self.site.answer(json.loads(json.dumps(question)))))
        self.answers.append((question["ask"], answer))
        return answer


def test_messages_are_json_and_as_long_for_many_rows_as_for_few():
    plan = FederatedPlan(features=FEATURES, eta0=0.05)
    sites = simulated_sites(0, plan)[0]
    wires = [_Recorder(site) for site in sites]
    over_text = fit_federated(plan, wires)
    fresh = simulated_sites(0, plan)[0]
    direct = fit_federated(plan, [site.answer for site in fresh])
    # Text keeps every digit of a double.
    assert np.array_equal(over_text.weights, direct.weights)
    shapes = []
    for wire in wires:
        lengths = set()
        for name, answer in wire.answers:
            for key, value in answer.items():
                lengths.add((name, key, len(value) if isinstance(value, list) else 1))
        shapes.append(lengths)
    assert shapes[0] == shapes[1] == shapes[2]
    matrix = [length for name, key, length in shapes[0] if key == "matrix"]
    assert matrix == [(FEATURES + 1) * (FEATURES + 2) // 2]
    assert max(length for _, _, length in shapes[0]) <= max(matrix[0], len(LENGTHS))


def test_late_sums_of_one_patient_reveal_his_row_as_the_page_says():
    # One site holds one row on the margin: its last matrix is that row times itself.
    rng = np.random.default_rng(6)
    plan = FederatedPlan(features=4, C=10.0)
    far = np.array([[4.0, 0, 0, 0], [-4.0, 0, 0, 0]]) + rng.normal(0, 0.3, (2, 4))
    near = np.array([[0.5, 1.2, -0.7, 0.9]])
    small = FederatedSite(plan, np.vstack([far, near]), [1.0, 0.0, 1.0])
    many = rng.normal(size=(80, 4)) + np.repeat([[1.5, 0, 0, 0], [-1.5, 0, 0, 0]], 40, axis=0)
    large = FederatedSite(plan, many, np.repeat([1.0, 0.0], 40))
    wire = _Recorder(small)
    fit = fit_federated(plan, [wire, large.answer])
    assert fit.converged
    last = [answer for name, answer in wire.answers if name == "system"][-1]
    matrix = np.zeros((5, 5))
    matrix[np.triu_indices(5)] = last["matrix"]
    matrix = matrix + np.triu(matrix, 1).T
    direction = np.linalg.eigh(matrix)[1][:, -1]
    row = np.append((near[0] - fit.mean) / fit.deviation, 1.0)
    likeness = abs(direction @ row) / np.linalg.norm(row)
    assert small.patients_in_sums[-1] == pytest.approx(1.0, abs=0.05)
    assert likeness > 0.999


def test_a_site_that_refuses_ends_the_fit_with_its_gap():
    plan = FederatedPlan(features=FEATURES, eta0=0.05, kappa=0.5)
    sites, X, y, eta = simulated_sites(0, plan, least_patients=8.0)
    fit = fit_federated(plan, [site.answer for site in sites])
    assert not fit.converged
    assert "8 are the least" in fit.refused
    for site in sites:
        assert min(site.patients_in_sums) >= 8.0
    reference, Z = pooled(plan, X, y, eta)
    away = np.abs(fit.predict_proba(X)[:, 1] - reference.predict_proba(Z)[:, 1]).max()
    assert 1e-3 < away < 0.2
    assert fit.gap > 1e-3


def test_the_gap_is_a_bound_at_every_step():
    plan = FederatedPlan(features=FEATURES, eta0=0.05, kappa=0.5)
    sites, X, y, eta = simulated_sites(1, plan)
    fit = fit_federated(plan, [site.answer for site in sites])
    gaps = [step.gap for step in fit.rounds]
    assert gaps[-1] <= 1e-12
    sent = [step.sent for step in fit.rounds]
    assert sent == sorted(sent)
    reference, Z = pooled(plan, X, y, eta)
    best = reference.solution_.primal
    labels = read_labels(y, half_widths(eta, plan.eta0, plan.kappa), "drop", plan.eta0)
    cost = np.full(len(y), plan.C)
    problem = probabilistic_problem(labels, cost, cost, plan.fixed_scale())
    for late in fit.rounds[-6:]:
        weights = late.x[:FEATURES]
        missed = np.maximum(problem.slack(Z @ weights, late.x[FEATURES:]), 0)
        value = 0.5 * weights @ weights + problem.c @ missed
        assert best * (1 - 1e-9) <= value <= best * (1 + 2 * late.gap + 1e-9)


@pytest.mark.parametrize(
    ("labels", "eta", "scale", "words"),
    [
        ([1.0, 1.0, 1.0], 0.0, "fixed", "one class only"),
        ([0.3, 0.4, 0.7], 0.05, "learned", "cannot be learned"),
    ],
)
def test_labels_without_an_answer_are_refused(labels, eta, scale, words):
    plan = FederatedPlan(features=1, eta0=0.05, kappa=1.0, scale=scale)
    site = FederatedSite(plan, [[0.0], [1.0], [2.0]], labels, eta)
    with pytest.raises(LearnerError, match=words):
        fit_federated(plan, [site.answer])


def test_a_site_answers_one_fit_only():
    plan = FederatedPlan(features=1)
    site = FederatedSite(plan, [[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(LearnerError, match='came before "start"'):
        site.answer({"ask": "system", "x": [0.0, 0.0], "length": 0.0})
    with pytest.raises(LearnerError, match="'rows' is unknown"):
        site.answer({"ask": "rows"})
    fit_federated(plan, [site.answer])
    with pytest.raises(LearnerError, match='"sums" came 2 times'):
        fit_federated(plan, [site.answer])


@pytest.mark.parametrize(
    ("question", "words"),
    [
        # The sum over the first axis of a third dimension would be every row.
        ({"ask": "squares", "mean": [[[0.0, 0.0]]]}, "mean of shape"),
        ({"ask": "squares", "mean": [0.0]}, "mean of shape"),
        ({"ask": "squares", "mean": ["a", "b"]}, "mean holds what is no number"),
        ({"ask": "squares", "mean": [0.0, float("nan")]}, "mean holds a number that is not finite"),
        ({"ask": "squares"}, "lacks mean"),
        ({"ask": ["squares"]}, "unknown"),
        ([], "an object"),
        ({"ask": "predictor", "dx": [0.0] * 3}, 'came before "system"'),
        ({"ask": "start", "mean": [0, 0], "deviation": [0, 1], "x": [0] * 3}, "above 0"),
        ({"ask": "start", "mean": [0, 0], "deviation": [1, 1], "x": [[0] * 3] * 8}, "x of shape"),
        ({"ask": "start", "mean": [0, 0], "deviation": [1, 1], "x": [0] * 3, "scale": 9}, "plan"),
    ],
)
def test_a_question_of_another_form_than_a_fits_gets_no_sum(question, words):
    rows = np.random.default_rng(0).normal(size=(8, 2))
    site = FederatedSite(FederatedPlan(features=2), rows, [0.0, 1.0] * 4)
    with pytest.raises(LearnerError, match=words):
        site.answer(question)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([], "an object"),
        ({"rows": 4}, "lacks sums"),
        ({"rows": "four", "sums": [0.0, 0.0]}, "no number"),
        ({"rows": 4, "sums": [0.0]}, "sums of shape"),
    ],
)
def test_an_answer_of_another_form_is_named(answer, words):
    with pytest.raises(LearnerError, match=f'answer to "sums".*{words}'):
        fit_federated(FederatedPlan(features=2), [lambda question: answer])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": 0}, "features = 0"),
        ({"C": 0.0}, "C = 0"),
        ({"components": 3}, "components = 3"),
        ({"eta0": 0.5}, "eta0 = 0.5"),
        ({"scale": "free"}, "scale"),
    ],
)
def test_a_plan_out_of_range_is_refused(change, words):
    with pytest.raises(LearnerError, match=words):
        FederatedPlan(**{"features": 2, **change})


def test_rows_that_do_not_fit_are_refused():
    plan = FederatedPlan(features=2)
    with pytest.raises(LearnerError, match="plan has 2 columns"):
        FederatedSite(plan, [[1.0]], [1.0])
    with pytest.raises(LearnerError, match=r"X\[0, 1\] = nan"):
        FederatedSite(plan, [[1.0, np.nan]], [1.0])
    with pytest.raises(LearnerError, match="2 labels for 1 rows"):
        FederatedSite(plan, [[1.0, 2.0]], [1.0, 0.0])
    with pytest.raises(LearnerError, match="no site"):
        fit_federated(plan, [])
