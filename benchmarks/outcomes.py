"""Readers with the tool, patients, operating points: ``python -m benchmarks.outcomes NAME``.

The numbers of docs/evidence.md. Cohorts are made at the level of scores: simulated tissue and
readers (:mod:`cad.phantom.readings`), and a classifier that learns the readers' mean from the
measured tissue, leave-one-patient-out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy import special

from cad.evaluation import metrics
from cad.evaluation.assisted import Assisted, assist
from cad.evaluation.ceiling import readers_ceiling
from cad.evaluation.logistic import fit_logistic
from cad.evaluation.operating import choose_operating_point
from cad.evaluation.patient_level import patient_level, patient_table
from cad.evaluation.reader_results import mean_of_known
from cad.evaluation.reject import decide
from cad.phantom.readings import draw_readings
from cad.settings import DecisionSettings

FEATURES = ("t2", "adc", "ktrans", "ve", "t1", "pz", "afs")
SIGNIFICANT_ISUP = 2


@dataclass(frozen=True)
class Scored:
    """A cohort of regions with everything that outcomes are made of.

    Parameters
    ----------
    truth : ndarray, shape (n,)
        1 for ISUP 2 and above.
    scores : ndarray, shape (readers, n)
        As probabilities; NaN where missing.
    names : list of str
        Readers.
    q : ndarray, shape (n,)
        The classifier's out-of-fold probability.
    patients : ndarray of str, shape (n,)
        The patient of every region.
    """

    truth: np.ndarray
    scores: np.ndarray
    names: list[str]
    q: np.ndarray
    patients: np.ndarray

    @property
    def p(self) -> np.ndarray:
        """Return the mean of the readers."""
        return mean_of_known(self.scores.T)


def cohort(seed: int, patients: int = 49) -> Scored:
    """Draw a cohort and score it with a classifier that never saw the scored patient."""
    return scored(*draw_readings(seed, patients))


def scored(regions: pd.DataFrame, scores: pd.DataFrame) -> Scored:
    """Return a drawn cohort as arrays, with the classifier's out-of-fold probability."""
    key = ["participant_id", "roi_id"]
    wide = scores.pivot(index=key, columns="reader_id", values="score")
    wide = (wide.reindex(pd.MultiIndex.from_frame(regions[key])) - 1) / 4
    table = wide.to_numpy(float).T
    X = regions[list(FEATURES)].to_numpy(float)
    patients = regions["participant_id"].to_numpy(str)
    truth = (regions["isup"].to_numpy(float) >= SIGNIFICANT_ISUP).astype(float)
    p = mean_of_known(table.T)
    q = np.full(len(p), np.nan)
    for patient in np.unique(patients):
        own = patients == patient
        train = ~own & np.isfinite(p)
        centre, spread = X[train].mean(axis=0), X[train].std(axis=0) + 1e-9
        design = np.column_stack([np.ones(len(X)), (X - centre) / spread])
        prior = np.r_[0.0, np.ones(X.shape[1])]
        beta = fit_logistic(design[train], p[train], precision=prior)
        q[own] = special.expit(design[own] @ beta)
    return Scored(truth, table, [str(c) for c in wide.columns], q, patients)


def uninformed(data: Scored, seed: int) -> Scored:
    """Return the same cohort with a classifier that knows nothing but patients."""
    rng = np.random.default_rng([23, seed])
    code = np.unique(data.patients, return_inverse=True)[1]
    z = rng.normal(size=len(code)) + 0.7 * rng.normal(size=code.max() + 1)[code]
    return replace(data, q=special.expit(z - 1.5))


def help_of_the_tool(cohorts: int = 20, nulls: int = 100, patients: int = 49) -> dict[str, Any]:
    """Count cohorts in which every reader gains, and in which a useless tool is significant."""
    informed = _parallel(_with_tool, cohorts, patients)
    useless = _parallel(_with_useless_tool, nulls, patients)
    gains = np.array([_gains(a) for a in informed])
    p = np.array([a.test.p for a in useless if a.test is not None])
    difference = np.array([a.test.difference for a in useless if a.test is not None])
    return {
        "cohorts": cohorts,
        "every reader's AUC up (asked: 16 of 20)": int((gains > 0).all(axis=1).sum()),
        "mean gain by reader": gains.mean(axis=0).round(4).tolist(),
        "p < .05": int(sum(a.test is not None and a.test.p < 0.05 for a in informed)),
        "null cohorts": len(p),
        "null p < .05 (asked: at most 10 of 100)": int((p < 0.05).sum()),
        "null mean difference": float(difference.mean()),
    }


def patients_calibrated(cohorts: int = 20, patients: int = 49) -> dict[str, Any]:
    """Calibrate patients' probabilities, pooled over cohorts and cohort by cohort."""
    drawn = _parallel(cohort, cohorts, patients)
    found = [patient_level(d.truth, d.q, d.patients, bootstraps=0) for d in drawn]
    tables = [patient_table(d.truth, d.q, d.patients) for d in drawn]
    y = np.concatenate([table.truth for table in tables])
    product = [
        [1 - np.prod(1 - d.q[d.patients == name]) for name in table.patients]
        for d, table in zip(drawn, tables, strict=True)
    ]
    kept = [part for part in found if part is not None]
    slopes = np.array([part.calibration_slope.value for part in kept])
    return {
        "cohorts": cohorts,
        "slope, pooled (asked: .8 to 1.25)": metrics.calibration_slope(
            y, np.concatenate([part.probability for part in kept])
        ),
        "slope of 1 - prod(1 - q), pooled": metrics.calibration_slope(y, np.concatenate(product)),
        "slope by cohort, quartiles": np.nanquantile(slopes, [0.25, 0.5, 0.75]).round(2).tolist(),
        "mean AUROC": float(np.mean([part.auc.value for part in kept])),
        "mean average precision": float(np.mean([part.average_precision.value for part in kept])),
        "share of patients with cancer": float(y.mean()),
    }


def aims(cohorts: int = 20, patients: int = 49) -> dict[str, Any]:
    """Choose thresholds for an aim on one cohort and keep the promise in the next."""
    drawn = _parallel(cohort, cohorts, patients)
    settings = DecisionSettings(aim_npv=0.95, aim_ppv=0.7)
    rows = []
    for own, new in zip(drawn, [*drawn[1:], drawn[0]], strict=True):
        choice = choose_operating_point(own.truth, own.q, own.patients, settings)
        decided = decide(new.q, *choice.thresholds)
        benign, malignant = new.truth[decided == 0], new.truth[decided == 1]
        rows.append(
            {
                "decided": 1 - choice.refer,
                "npv": choice.benign.observed.value,
                "npv validated": choice.benign.validated.value,
                "npv new": float(np.mean(benign == 0)) if len(benign) else np.nan,
                "npv kept": bool(np.mean(benign == 0) >= choice.benign.promise)
                if len(benign)
                else True,
                "ppv": choice.malignant.observed.value,
                "ppv validated": choice.malignant.validated.value,
                "ppv new": float(np.mean(malignant == 1)) if len(malignant) else np.nan,
            }
        )
    means: dict[str, float] = pd.DataFrame(rows).astype(float).mean().round(3).to_dict()
    return {"cohorts": cohorts, "aims": "NPV .95, PPV .7", **means}


def ceiling(cohorts: int = 20, patients: int = 49) -> dict[str, Any]:
    """Average what the readers allow, and print the line of the first cohort."""
    drawn = _parallel(cohort, cohorts, patients)
    found = [
        readers_ceiling(d.truth, d.scores, d.q, d.patients, d.names, bootstraps=0) for d in drawn
    ]
    return {
        "cohorts": cohorts,
        "AUC of the readers' mean": float(np.mean([c.auc.value for c in found])),
        "AUC of the classifier": float(np.mean([c.classifier_auc.value for c in found])),
        "readers' share of the distance": float(np.mean([c.share.value for c in found])),
        "first": found[0].sentence(),
    }


def _gains(found: Assisted) -> list[float]:
    return [part.with_tool.value - part.alone.value for part in found.readers.values()]


def _with_tool(seed: int, patients: int) -> Assisted:
    d = cohort(seed, patients)
    return assist(d.truth, d.scores, d.q, d.patients, d.names)


def _with_useless_tool(seed: int, patients: int) -> Assisted:
    d = uninformed(cohort(1000 + seed, patients), seed)
    return assist(d.truth, d.scores, d.q, d.patients, d.names)


def _parallel(function: Callable[[int, int], Any], cohorts: int, patients: int) -> list[Any]:
    work = (delayed(function)(500 + k, patients) for k in range(cohorts))
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
