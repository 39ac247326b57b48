"""Measure cost and accuracy of a federated fit, step by step: ``python -m benchmarks.federated``.

Three simulated sites of 60, 90 and 140 regions, two per man, fit one P-SVM. Their men, scanners and
readers differ. The kernel is linear, or has 100, 200 and 400 random Fourier features. A row is a
step. It has the bound of the relative gap, the largest difference of a probability from the pooled
fit, the bytes that all sites have sent so far (as JSON), and the number of men in each site's sums.

``--sites N`` splits the same regions among N sites; ``--features D`` is the number of features.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.special import expit

from cad.learners import ProbabilisticSVC
from cad.learning.learners.federated import FederatedPlan, FederatedSite, fit_federated

Array = np.ndarray
SIZES = (60, 90, 140)
# Largest allowed difference from the pooled fit.
BOUND = 1e-6


def simulated(features: int) -> tuple[Array, Array, Array, Array]:
    """Return features, mean scores, spread and patient of the regions of three sites."""
    rng = np.random.default_rng(0)
    direction = rng.normal(size=features) / np.sqrt(features / 4)
    rows = []
    scores = []
    for number, size in enumerate(SIZES):
        X = rng.normal(0.3 * number, 1 + 0.2 * number, (size, features))
        truth = expit(X @ direction - 0.5 * number)
        given = truth[:, None] + rng.normal(0, 0.2, (size, 4))
        rows.append(X)
        scores.append(np.clip(np.round(4 * given) / 4, 0, 1))
    grades = np.vstack(scores)
    patient = np.arange(len(grades)) // 2
    return np.vstack(rows), grades.mean(axis=1), grades.std(axis=1, ddof=1), patient


def show(plan: FederatedPlan, n_sites: int) -> None:
    """Fit with all sites, and print the curve beside the pooled fit."""
    X, y, eta, patient = simulated(plan.features)
    sites = []
    for of_site in np.array_split(np.arange(patient.max() + 1), n_sites):
        rows = np.isin(patient, of_site)
        sites.append(FederatedSite(plan, X[rows], y[rows], eta[rows], patient[rows]))
    fit = fit_federated(plan, [site.answer for site in sites])
    Z = plan.expand((X - X.mean(axis=0)) / X.std(axis=0))
    pooled = ProbabilisticSVC(
        C=plan.C, eta0=plan.eta0, kappa=plan.kappa, scale=plan.scale, kernel="linear", tol=1e-10
    )
    reference = pooled.fit(Z, y, eta).predict_proba(Z)[:, 1]
    kernel = "linear"
    if plan.components:
        kernel = f"{plan.components} random Fourier features"
    print(f"\n{kernel}, {plan.features} features, {n_sites} sites, {len(X)} regions")
    print("| step | gap | difference | sent, MB | men in the sums |")
    print("|---|---|---|---|---|")
    for number, step in enumerate(fit.rounds):
        scale = fit.scale
        if plan.scale == "learned":
            scale = step.x[-1]
        probability = expit((Z @ step.x[: plan.size] + step.x[plan.size]) / scale)
        away = np.abs(probability - reference).max()
        men = ", ".join(f"{site.patients_in_sums[number]:.1f}" for site in sites)
        print(f"| {step.step} | {step.gap:.1e} | {away:.1e} | {step.sent / 1e6:.2f} | {men} |")
    final = np.abs(fit.predict_proba(X)[:, 1] - reference).max()
    verdict = "met"
    if final > BOUND:
        verdict = "MISSED"
    print(f"equal within {final:.1e} (bound: {BOUND:g}, {verdict})")


def main() -> None:
    """Print a curve for the linear kernel and for random Fourier features."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--features", type=int, default=30)
    words = parser.parse_args()
    for components in (0, 100, 200, 400):
        plan = FederatedPlan(
            features=words.features, eta0=0.05, kappa=0.5, components=components, gamma=0.02
        )
        show(plan, words.sites)


if __name__ == "__main__":
    main()
