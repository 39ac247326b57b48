"""Measure readers with the tool, patients, operating points: ``python -m benchmarks.outcomes
NAME``.

The results are numbers of docs/evidence.md. Cohorts are simulated at the level of scores: tissue
and readers (:mod:`benchmarks.readings`). The shipped learner learns the readers' mean from the
measured tissue, with each patient left out in turn. A cohort of 49 takes half a minute.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy import special

from benchmarks.readings import draw_arrays
from cad.base.settings import DecisionSettings
from cad.evidence.experiments.man_alone import (
    fit_men,
    out_of_fold_men,
    region_columns,
)
from cad.learning.evaluation.decisions.operating import (
    choose_thresholds,
    promised_cut,
)
from cad.learning.evaluation.decisions.patient_level import measure_men, truth_of_men
from cad.learning.evaluation.decisions.reject import decide
from cad.learning.evaluation.folds.crossval import out_of_fold
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.readers.assisted import Assisted, assist
from cad.learning.evaluation.readers.ceiling import readers_ceiling
from cad.learning.labels.pooled import mean_of_known
from cad.learning.learners.averaged import AveragedProbabilisticSVC

SURE = 0.03
"""Smallest distance of readers' scores from 0 and 1: the ends of a scale are not certainty."""


@dataclass(frozen=True)
class Scored:
    """Hold a cohort of regions with all inputs of outcomes.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1 for ISUP 2 and above.
    scores : ndarray, shape (readers, n)
        Scores as probabilities; NaN where missing.
    names : list of str
        Names of the readers.
    q : ndarray, shape (n,)
        The classifier's out-of-fold probability.
    ranking : ndarray, shape (n,)
        The same probability without each fold's base, by which regions of different folds are
        ranked.
    patients : ndarray of str, shape (n,)
        The patient of every region.
    """

    truth: np.ndarray
    scores: np.ndarray
    names: list[str]
    q: np.ndarray
    ranking: np.ndarray
    patients: np.ndarray

    @property
    def p(self) -> np.ndarray:
        """Return the mean of the readers' scores of each region."""
        return mean_of_known(self.scores.T)


def cohort(seed: int, patients: int = 49) -> Scored:
    """Draw a cohort and score it with the shipped learner, which never saw the scored patient."""
    drawn = draw_arrays(seed, patients)
    folds = out_of_fold(
        AveragedProbabilisticSVC(),
        drawn.features,
        drawn.p,
        groups=drawn.patients,
        eta=drawn.eta,
    )
    return Scored(
        drawn.truth,
        drawn.grades.T,
        drawn.readers,
        folds.probability,
        folds.on_common_base,
        drawn.patients,
    )


def uninformed(seed: int, patients: int) -> Scored:
    """Draw a cohort with a classifier that knows only the patients."""
    drawn = draw_arrays(1000 + seed, patients)
    rng = np.random.default_rng([23, seed])
    code = np.unique(drawn.patients, return_inverse=True)[1]
    z = rng.normal(size=len(code)) + 0.7 * rng.normal(size=code.max() + 1)[code]
    q = special.expit(z - 1.5)
    return Scored(drawn.truth, drawn.grades.T, drawn.readers, q, q, drawn.patients)


def help_of_the_tool(cohorts: int = 20, nulls: int = 100, patients: int = 49) -> dict[str, Any]:
    """Count cohorts in which every reader gains, and in which a useless tool is significant."""
    informed = _parallel(_with_tool, cohorts, patients)
    useless = _parallel(_with_useless_tool, nulls, patients)
    gains = np.array([_gains(a) for a in informed])
    p = np.array([a.test.p for a in useless if a.test is not None])
    difference = np.array([a.test.difference for a in useless if a.test is not None])
    return {
        "cohorts": cohorts,
        "every reader's AUC up": int((gains > 0).all(axis=1).sum()),
        "mean gain by reader": gains.mean(axis=0).round(4).tolist(),
        "p < .05": int(sum(a.test is not None and a.test.p < 0.05 for a in informed)),
        "null cohorts": len(p),
        "null p < .05": int((p < 0.05).sum()),
        "null mean difference": float(difference.mean()),
    }


def patients_calibrated(cohorts: int = 20, patients: int = 49) -> dict[str, Any]:
    """Calibrate men's probabilities, pooled over cohorts and cohort by cohort."""
    drawn = _parallel(cohort, cohorts, patients)
    truths = [truth_of_men(d.truth, d.patients) for d in drawn]
    made = [out_of_fold_men(known_men(d), y) for d, y in zip(drawn, truths, strict=True)]
    kept = [
        part
        for y, (p, rank) in zip(truths, made, strict=True)
        if (part := measure_men(y, p, rank, bootstraps=0)).n
    ]
    slopes = np.array([part.calibration_slope.value for part in kept])
    pooled = np.concatenate(truths), np.concatenate([p for p, _ in made])
    return {
        "cohorts": cohorts,
        "slope, pooled": metrics.calibration_slope(*pooled),
        "slope by cohort, quartiles": np.nanquantile(slopes, [0.25, 0.5, 0.75]).round(2).tolist(),
        "mean AUROC": float(np.mean([part.auc.value for part in kept])),
        "mean average precision": float(np.mean([part.average_precision.value for part in kept])),
        **men_decided(),
    }


def known_men(d: Scored) -> pd.DataFrame:
    """Return the known facts on a simulated cohort's men: regions and readers."""
    table = region_columns(d.ranking, d.patients)
    readers = pd.Series(d.p).groupby(d.patients).max().clip(SURE, 1 - SURE)
    return table.assign(category=special.logit(readers.reindex(table.index)))


def men_decided(cohorts: int = 20, patients: int = 49, aim: float = 0.95) -> dict[str, Any]:
    """Decide on the men of the next cohort by model and thresholds of the cohort before.

    Seeds begin at 9500. Thresholds come from the costs, and from the aim of a negative predictive
    value.
    """
    drawn = _parallel(cohort, cohorts + 1, patients, first=9500)
    settings = {"costs": DecisionSettings(), "aim": DecisionSettings(aim_npv=aim)}
    rows: dict[str, list[tuple[int, ...]]] = {name: [] for name in settings}
    for before, after in pairwise(drawn):
        y, known = truth_of_men(before.truth, before.patients), known_men(before)
        model, (p, _) = fit_men(known, y), out_of_fold_men(known, y)
        q, t = model.probability(known_men(after)), truth_of_men(after.truth, after.patients)
        for name, decision in settings.items():
            limits = choose_thresholds(y, p, np.arange(len(y)), decision)
            code = decide(q, *limits)
            rows[name].append(
                (
                    len(code),
                    *(
                        int(((code == word) & (t == right)).sum())
                        for word, right in ((0, 0), (0, 1), (1, 1), (1, 0))
                    ),
                )
            )
    out = {}
    for name, counts in rows.items():
        n, tn, fn, tp, fp = np.sum(counts, axis=0)
        share, benign = (tn + fn + tp + fp) / n, (tn + fn) / n
        text = f"{share:.0%} decided, benign {benign:.0%}, NPV {tn}/{tn + fn}, PPV {tp}/{tp + fp}"
        out[f"next cohort, thresholds by {name}"] = text
    return out


def aims(cohorts: int = 200) -> dict[str, Any]:
    """Count cohorts in which regions called benign truly meet the aim .95, and return the share.

    Cohorts have 49, 150 and 500 men, with the values of :func:`promise_cohort`. The truth comes
    from as many further men as 20,000 regions take. ``flat`` has a predictive value of .949 at
    every threshold, so that every promise is false there.
    """
    rows = {}
    for kind in PROMISE_KINDS:
        far = promise_cohort(kind, 7, 6000)
        order = np.argsort(far.q)
        value = np.cumsum(1 - far.truth[order]) / np.arange(1, len(order) + 1)
        for patients in (49, 150, 500):
            work = (delayed(_promised)(kind, 100 + k, patients) for k in range(cohorts))
            chosen: list[tuple[float, float]] = Parallel(n_jobs=2)(work)
            met = []
            for cut, _ in chosen:
                below = int(np.searchsorted(far.q[order], cut))
                reached = 1.0
                if below > 0:
                    reached = float(value[below - 1])
                if kind in FALSE_EVERYWHERE and cut > 0:
                    reached = 0.949
                met.append(reached >= 0.95)
            share = float(np.mean([share for _, share in chosen]))
            promised = float(np.mean([cut > 0 for cut, _ in chosen]))
            rows[f"{kind}, {patients} men"] = (
                f"met in {np.mean(met):.1%}, promised in {promised:.0%}, decided {share:.0%}"
            )
        rows[f"{kind}, all men"] = (
            f"AUC {metrics.auc(far.truth, far.q):.3f}, malignant {far.truth.mean():.2f}, "
            f"largest share with .95 {np.mean(value >= 0.95):.0%}"
        )
    return {"cohorts": cohorts, **rows}


PROMISE_KINDS = {
    # Factor of a region's latent risk, mean log-odds of cancer, and standard deviation of an effect
    # that the regions of a man share.
    "good": (2.6, -3.6, 0.8),
    "good, clustered": (2.9, -4.3, 1.6),
    "middling": (1.5, -2.2, 0.8),
    "weak": (0.7, -1.8, 0.8),
    "one huge patient": (2.6, -3.6, 0.8),
    "flat": (1.5, 0.0, 0.0),
    "flat, clustered": (1.5, 0.0, 0.2),
}
"""Cohorts on which a promise is tested; in flat cohorts the last number is the correlation."""
FALSE_EVERYWHERE = ("flat", "flat, clustered")


def promise_cohort(kind: str, seed: int, patients: int) -> Scored:
    """Draw regions, one to six per man, with a probability and a truth, by name of the kind."""
    spread, mean, effect = PROMISE_KINDS[kind]
    rng = np.random.default_rng([31, seed, patients])
    counts = rng.integers(1, 7, patients)
    if kind == "one huge patient" and patients <= 500:
        counts[0] = round(0.4 * counts.sum())
    man = np.repeat(np.arange(patients), counts)
    score = 0.85 * rng.normal(size=len(man)) + 0.53 * rng.normal(size=patients)[man]
    odds = mean + spread * score
    risk = special.expit(odds + effect * rng.normal(size=patients)[man])
    if kind in FALSE_EVERYWHERE:
        risk = np.full(len(man), 0.051)
        if effect > 0:
            size = (1 - effect) / effect
            risk = rng.beta(0.051 * size, 0.949 * size, patients)[man]
    truth = (rng.random(len(man)) < risk).astype(float)
    q = special.expit(odds)
    return Scored(truth, np.empty((0, len(man))), [], q, q, man.astype(str))


def _promised(kind: str, seed: int, patients: int) -> tuple[float, float]:
    data = promise_cohort(kind, seed, patients)
    choice = promised_cut(1 - data.truth, data.q, data.patients, 0.95)
    return choice.cut, float(np.mean(data.q < choice.cut))


def ceiling(cohorts: int = 20, patients: int = 49) -> dict[str, Any]:
    """Average the ceiling that the readers allow, and print the line of the first cohort."""
    drawn = _parallel(cohort, cohorts, patients)
    found = [
        readers_ceiling(
            d.truth, d.scores, d.q, d.patients, d.names, ranking=d.ranking, bootstraps=0
        )
        for d in drawn
    ]
    return {
        "cohorts": cohorts,
        "AUC of the readers' mean": float(np.mean([c.auc.value for c in found])),
        "AUC of the classifier": float(np.mean([c.classifier_auc.value for c in found])),
        "readers' share of the distance": float(np.mean([c.share.value for c in found])),
        "first": found[0].sentence(),
    }


def _gains(found: Assisted) -> list[float]:
    return [part["with_tool"].value - part["alone"].value for part in found.readers.values()]


def _with_tool(seed: int, patients: int) -> Assisted:
    d = cohort(seed, patients)
    return assist(d.truth, d.scores, d.ranking, d.patients, d.names)[0]


def _with_useless_tool(seed: int, patients: int) -> Assisted:
    d = uninformed(seed, patients)
    return assist(d.truth, d.scores, d.ranking, d.patients, d.names)[0]


def _parallel(
    function: Callable[[int, int], Any], cohorts: int, patients: int, first: int = 500
) -> list[Any]:
    work = (delayed(function)(first + k, patients) for k in range(cohorts))
    found: list[Any] = Parallel(n_jobs=2)(work)
    return found


def main() -> None:
    """Run one measurement and print it."""
    work: dict[str, Callable[..., dict[str, Any]]] = {
        "tool": help_of_the_tool,
        "patients": patients_calibrated,
        "aims": aims,
        "ceiling": ceiling,
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outcomes")
    parser.add_argument("name", choices=[*work])
    parser.add_argument("--cohorts", type=int, default=20)
    given = parser.parse_args()
    start = time.perf_counter()
    print(json.dumps(work[given.name](given.cohorts), indent=2))
    print(f"{given.name}: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
