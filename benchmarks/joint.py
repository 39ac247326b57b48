"""Measure the joint model of regions and men: ``python -m benchmarks.joint NAME``.

``cohorts`` calibrates simulated cohorts to histology, beside two controls: histology shuffled among
the regions, and the training's share of cancer for everybody. ``ranges`` tests whether ranges hold
the share of malignant regions. ``picai`` compares with the model of men on real studies (``--data``
is the folder of the PI-CAI marksheet). ``prevalence`` uses a model where cancer is rarer than in
its training. ``noise`` validates the joint model where nothing tells who has cancer. The results
are numbers of docs/evidence.md, docs/probability.md and docs/methods.md.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy import special

from benchmarks.readings import draw_arrays
from cad.base.files import write_csv
from cad.evidence.experiments.picai import MEN, deal, read_marksheet, score_men, shares
from cad.learning.evaluation.decisions.recalibrate import recalibration
from cad.learning.evaluation.folds.ask import positive_probability
from cad.learning.evaluation.folds.crossval import out_of_fold
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.centring import (
    base_log_odds,
    centred_log_odds,
    ranked,
    spread_of_log_odds,
    stretches,
)
from cad.learning.joint_model import (
    MenAndRegions,
    fit_joint,
    of_arrays,
    predict_left_out,
    readers_logit,
    weight_of_men,
)
from cad.learning.learners.averaged import AveragedProbabilisticSVC
from cad.run.stages.risk import validated_risk

FOLDS = 8
SITE_MEN, SITE_DRAWS = 50, 30
SLOPES = (0.8, 1.25)
THRESHOLDS = np.arange(1, 61) / 100
"""Thresholds of the decision curve. Few would biopsy a region only above a probability of .6."""


@dataclass(frozen=True)
class Cohort:
    """Hold a simulated cohort without images.

    Parameters
    ----------
    features : ndarray, shape (n, k)
        Measured tissue.
    readers : ndarray, shape (n,)
        Mean of the readers as a probability; NaN where nobody scored.
    eta : ndarray, shape (n,)
        How much the readers disagree.
    truth : ndarray, shape (n,)
        1 for ISUP 2 and above.
    man : ndarray of int, shape (n,)
        Index of each region's man.
    """

    features: np.ndarray
    readers: np.ndarray
    eta: np.ndarray
    truth: np.ndarray
    man: np.ndarray

    def joined(self, belief: np.ndarray) -> MenAndRegions:
        """Return the cohort with beliefs, in the form that the joint model takes."""
        men = int(self.man.max()) + 1
        scores = readers_logit(self.readers)
        return of_arrays(belief, self.man, men, readers=scores, truth=self.truth)


def simulated(seed: int, men: int) -> Cohort:
    """Draw a cohort: measured tissue, four readers, histology of every region."""
    drawn = draw_arrays(seed, men)
    man = np.unique(drawn.patients, return_inverse=True)[1]
    return Cohort(drawn.features, drawn.p, drawn.eta, drawn.truth, man)


def believe(cohort: Cohort, features: np.ndarray) -> np.ndarray:
    """Return the beliefs of the shipped learner, trained on the cohort's readers."""
    use = np.isfinite(cohort.readers)
    learner = AveragedProbabilisticSVC()
    learner.fit(
        cohort.features[use], cohort.readers[use], eta=cohort.eta[use], groups=cohort.man[use]
    )
    return positive_probability(learner, features)


def left_out_beliefs(cohort: Cohort) -> np.ndarray:
    """Return the shipped learner's beliefs of left-out men, as if all folds had the same base."""
    order = np.random.default_rng(0).permutation(int(cohort.man.max()) + 1)
    fold = (order % FOLDS)[cohort.man]
    # With zeros in front, names have the order of the numbers, here and in ``believe``. The learner
    # deals patients to its inner folds in this order.
    names = np.array([f"{man:04d}" for man in cohort.man])
    folds = out_of_fold(
        AveragedProbabilisticSVC(),
        cohort.features,
        cohort.readers,
        groups=fold,
        eta=cohort.eta,
        patients=names,
    )
    return folds.on_common_base


def nested(cohort: Cohort) -> np.ndarray:
    """Return each man's probabilities; neither model nor others' beliefs have seen him."""
    probability = np.empty(len(cohort.man))
    for man in range(int(cohort.man.max()) + 1):
        of_one = cohort.man == man
        others = Cohort(
            cohort.features[~of_one],
            cohort.readers[~of_one],
            cohort.eta[~of_one],
            cohort.truth[~of_one],
            np.unique(cohort.man[~of_one], return_inverse=True)[1],
        )
        model = fit_joint(others.joined(left_out_beliefs(others)))
        belief = believe(others, cohort.features[of_one])
        men = of_arrays(
            belief,
            np.zeros(of_one.sum(), dtype=int),
            1,
            readers=readers_logit(cohort.readers[of_one]),
        )
        probability[of_one] = model.predict(men).probability
    return probability


def cohorts(count: int = 20, men: int = 49, folder: Path | None = None) -> dict[str, Any]:
    """Fit on a cohort; judge the probabilities of the next cohort and of left-out men.

    Parameters
    ----------
    count, men : int
        Number of cohorts, and of men in each.
    folder : Path, optional
        Folder that gets two tables of the new men's regions: ``calibration.csv``, ten groups by
        each number, and ``decision_curve.csv``, the net benefit of each number at each threshold.
    """
    work = (delayed(_one_cohort)(700 + seed, men) for seed in range(count))
    rows: list[dict[str, Any]] = Parallel(n_jobs=2)(work)
    out: dict[str, Any] = {"cohorts": count, "men": men}
    for where in ("new men", "men left out"):
        truth = _pooled(rows, where, "truth")
        for name in ("belief", "images", "probability"):
            out[f"{where}, {name}"] = _beside_others(rows, where, name)
        man_truth = _pooled(rows, where, "truth of man")
        man = _pooled(rows, where, "man")
        certain = np.isfinite(man_truth)
        out[f"{where}, the man"] = _calibration(man_truth[certain], man[certain])
    out["new men, histology shuffled"] = _beside_others(rows, "histology shuffled", "probability")
    share = _pooled(rows, "new men", "share")
    truth = _pooled(rows, "new men", "truth")
    out["new men, the training's share for everybody"] = f"Brier {metrics.brier(truth, share):.4f}"
    out["malignant"] = float(np.mean(truth))
    out["mean of the readers' scores"] = float(np.nanmean(_pooled(rows, "new men", "readers")))
    out["mean belief"] = float(np.mean(_pooled(rows, "new men", "belief")))
    if folder is not None:
        groups = _groups(rows)
        write_csv(folder / "calibration.csv", groups, list(groups.columns))
        benefit = _net_benefit(rows)
        write_csv(folder / "decision_curve.csv", benefit, list(benefit.columns))
    out["nested minus left out, mean absolute"] = _nested_difference(rows)
    return out


def _groups(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return ten groups of the new men's regions by each number, with the observed shares."""
    truth = _pooled(rows, "new men", "truth")
    tables = []
    names = {"belief": "belief", "images": "from images", "probability": "with readers' scores"}
    for key, name in names.items():
        curve = metrics.calibration_curve(truth, _pooled(rows, "new men", key))
        tables.append(pd.DataFrame(curve).round(4).assign(number=name))
    return pd.concat(tables, ignore_index=True)


def _net_benefit(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the net benefit of the new men's regions at each threshold, a column per number."""
    truth = _pooled(rows, "new men", "truth")
    names = {
        "probability": "probability with readers' scores",
        "images": "probability from images",
        "readers": "readers' mean",
    }
    table = pd.DataFrame({"threshold": THRESHOLDS})
    for key, name in names.items():
        curve = metrics.decision_curve(truth, _pooled(rows, "new men", key), THRESHOLDS)
        table[name] = curve["model"]
    table["treat all"] = curve["all"]
    table["treat none"] = curve["none"]
    return table.round(5)


def _one_cohort(seed: int, men: int) -> dict[str, Any]:
    cohort = simulated(seed, men)
    new = simulated(seed + 5000, men)
    data = cohort.joined(left_out_beliefs(cohort))
    model = fit_joint(data)
    belief = believe(cohort, new.features)
    ahead = model.predict(new.joined(belief))
    behind = predict_left_out(data)
    rng = np.random.default_rng([seed, 1])
    unrelated = replace(data, truth=rng.permutation(data.truth))
    unrelated_new = replace(new.joined(belief), truth=rng.permutation(new.truth))
    shuffled = fit_joint(unrelated).predict(unrelated_new)
    share = data.truth.mean()
    row: dict[str, Any] = {
        "new men": {
            **_columns(belief, ahead, new.joined(belief)),
            "share": np.full(len(belief), share),
            "readers": new.readers,
        },
        "men left out": {
            **_columns(data.belief, behind, data),
            "share": np.full(len(data.belief), share),
        },
        "histology shuffled": {
            **_columns(belief, shuffled, unrelated_new),
            "share": np.full(len(belief), share),
        },
    }
    if seed < 702:
        row["nested"] = nested(cohort)
    return row


def _columns(belief: np.ndarray, predicted: Any, data: MenAndRegions) -> dict[str, np.ndarray]:
    return {
        "belief": belief,
        "images": predicted.probability_images,
        "probability": predicted.probability,
        "truth": data.truth,
        "man": predicted.man,
        "truth of man": data.histology_of_men(),
    }


def _pooled(rows: list[dict[str, Any]], where: str, name: str) -> np.ndarray:
    return np.concatenate([row[where][name] for row in rows])


def _beside_others(rows: list[dict[str, Any]], where: str, name: str) -> str:
    """Describe numbers, and count the cohorts where they beat belief and the share alone.

    Shuffled labels beat belief as well, because belief is about readers and histology is rarer.
    They do not beat the training's share of cancer, given to everybody.
    """
    counts = {}
    for other in ("belief", "share"):
        better = 0
        for row in rows:
            columns = row[where]
            mine = metrics.brier(columns["truth"], columns[name])
            better += mine < metrics.brier(columns["truth"], columns[other])
        counts[other] = int(better)
    text = _calibration(_pooled(rows, where, "truth"), _pooled(rows, where, name))
    of = len(rows)
    return (
        f"{text}, better than belief in {counts['belief']} of {of}, than the training's share "
        f"alone in {counts['share']} of {of}"
    )


def _nested_difference(rows: list[dict[str, Any]]) -> str:
    differences = []
    for row in rows:
        if "nested" in row:
            probability = row["men left out"]["probability"]
            truth = row["men left out"]["truth"]
            apart = float(np.mean(np.abs(row["nested"] - probability)))
            brier = metrics.brier(truth, row["nested"]) - metrics.brier(truth, probability)
            differences.append(f"{apart:.3f} (Brier {brier:+.4f})")
    return ", ".join(differences)


def _calibration(truth: np.ndarray, q: np.ndarray) -> str:
    return (
        f"Brier {metrics.brier(truth, q):.4f}, AUC {metrics.auc(truth, q):.3f}, "
        f"intercept {metrics.calibration_intercept(truth, q):+.2f}, "
        f"slope {metrics.calibration_slope(truth, q):.2f}"
    )


GENERATORS = {
    # Intercept, slope, effect of the man, share of all regions that one man holds, and drift of
    # belief in half of the men.
    "plain": (-0.7, 1.3, 0.8, 0.0, 0.0),
    "clustered": (-0.7, 1.3, 2.0, 0.0, 0.0),
    "rare": (-2.6, 1.3, 0.8, 0.0, 0.0),
    "one huge patient": (-0.7, 1.3, 1.2, 0.4, 0.0),
    "drifted": (-0.7, 1.3, 0.8, 0.0, 1.0),
}
"""Settings in which the range of a region is tested.

In ``drifted`` half of the men have beliefs a log-odds unit higher, in training as in use. The model
sees only the raised beliefs.
"""


def range_data(kind: str, seed: int, men: int, *, fresh: bool) -> tuple[MenAndRegions, np.ndarray]:
    """Draw a cohort, and the true share of malignant regions among those like each region."""
    intercept, slope, effect, huge, drift = GENERATORS[kind]
    rng = np.random.default_rng([41, seed, men])
    counts = rng.integers(1, 6, men)
    if huge > 0 and not fresh:
        counts[0] = round(huge / (1 - huge) * counts[1:].sum())
    man = np.repeat(np.arange(men), counts)
    density = rng.normal(-2.0, 0.6, men)
    age = rng.normal(6.5, 0.7, men)
    moved = drift * (rng.random(men) < 0.5)
    clean = 0.8 * rng.normal(-1.5, 1.5, len(man)) + 0.2 * rng.normal(0, 1.5, men)[man] - 0.3
    odds = clean + moved[man]
    base = intercept + (0.7 * (density + 2.0) + 0.2 * (age - 6.5))[man]
    nodes, weight = np.polynomial.hermite_e.hermegauss(41)
    weight = weight / weight.sum()
    whole = special.expit((base + slope * clean)[:, None] + effect * nodes) @ weight
    if drift > 0:
        # Some regions with this belief belong to drifted men, and the belief does not show which
        # ones.
        other = odds - np.array([0.0, drift])[:, None]
        mean, spread = -1.5, np.sqrt((0.8 * 1.5) ** 2 + (0.2 * 1.5) ** 2)
        likely = np.exp(-((other - mean) ** 2) / (2 * spread**2))
        likely /= likely.sum(axis=0)
        each = []
        for believed in other:
            each.append(special.expit((base + slope * believed)[:, None] + effect * nodes) @ weight)
        share = likely[0] * each[0] + likely[1] * each[1]
    else:
        share = whole
    of_man = effect * rng.normal(size=men)
    truth = (rng.random(len(man)) < special.expit(base + slope * clean + of_man[man])).astype(float)
    data = of_arrays(special.expit(odds), man, men, truth=truth, density=density, age=age)
    return data, share


def ranges(count: int = 200) -> dict[str, Any]:
    """Count how often the range holds the share of malignant regions among regions judged alike."""
    out = {}
    for kind in GENERATORS:
        fresh, share = range_data(kind, 10**6, 500, fresh=True)
        for men in (49, 150):
            work = (delayed(_covered)(kind, seed, men, fresh, share) for seed in range(count))
            rows = np.array(Parallel(n_jobs=2)(work))
            out[f"{kind}, {men} men"] = (
                f"holds {rows[:, 0].mean():.3f} (spread over cohorts {rows[:, 0].std():.2f}), "
                f"mean width {rows[:, 1].mean():.3f}"
            )
        out[f"{kind}, malignant"] = f"{share.mean():.3f}"
    return out


def _covered(
    kind: str, seed: int, men: int, fresh: MenAndRegions, share: np.ndarray
) -> tuple[float, float]:
    model = fit_joint(range_data(kind, seed, men, fresh=False)[0])
    predicted = model.predict(fresh)
    inside = (predicted.low <= share) & (share <= predicted.high)
    return float(inside.mean()), float((predicted.high - predicted.low).mean())


def of_prevalence(seed: int, share: float, men: int) -> MenAndRegions:
    """Draw men with and men without cancer apart, so that a share of all men has cancer."""
    pool = range_data("plain", seed, 20 * men, fresh=True)[0]
    cancer = pool.histology_of_men() == 1
    wanted = round(share * men)
    with_cancer = cancer & (np.cumsum(cancer) <= wanted)
    without = ~cancer & (np.cumsum(~cancer) <= men - wanted)
    return pool.of_men(with_cancer | without)


def rarer_cancer(
    count: int = 20, men: int = 200, taught: float = 0.75, place: float = 0.28
) -> dict[str, Any]:
    """Average the probability of men where cancer is rarer than in the training.

    The shift to the place's prevalence is found from the weighted men of the training. Beside it is
    the textbook shift of every man by himself, by the difference of the log-odds of both shares.
    """
    rows = []
    for seed in range(count):
        training = of_prevalence(seed, taught, men)
        new = of_prevalence(10_000 + seed, place, men)
        model = fit_joint(training)
        moved = model.shifted(place, training, weight_of_men(training, place))
        before = model.predict(new).man
        difference = special.logit(taught) - special.logit(place)
        rows.append(
            {
                "without a shift": before.mean(),
                "shifted": moved.predict(new).man.mean(),
                "every man by himself": special.expit(special.logit(before) - difference).mean(),
            }
        )
    table = pd.DataFrame(rows)
    return {
        "cohorts": count,
        "men with cancer in the training": taught,
        "men with cancer at the place": place,
        "mean probability of men": table.mean().round(3).to_dict(),
        "its standard deviation over cohorts": table.std(ddof=1).round(3).to_dict(),
    }


def picai(folder: Path, repeats: int = 5) -> dict[str, Any]:
    """Compare the joint model with the model of men, on real studies."""
    men, lesions = read_marksheet(folder)
    place = pd.Series(np.arange(len(men)), index=men["study"])
    of_man = place[lesions["study"]].to_numpy()
    truth = men["truth"].to_numpy(float)
    tissue = men["tissue"].to_numpy(bool)
    of_lesion = lesions["truth"].to_numpy(float)
    graded = np.isfinite(of_lesion)
    rows = []
    for seed in range(repeats):
        folds = deal(men["man"], seed)
        alone, rank_alone, centred_alone = score_men(men, folds, MEN)
        men_alone = pd.DataFrame(
            {"probability": alone, "ranking": rank_alone, "log_odds": centred_alone}
        )
        for counted in (True, False):
            # In the sheet, men without tissue are negative. They count once as negative here, and
            # once as unknown.
            told = men if counted else men.assign(truth=men["truth"].where(men["tissue"]))
            end = "" if counted else ", men without tissue unknown"
            of_men, of_lesions, of_category = _by_folds(told, lesions, of_man, folds)
            for name, use in (("all men", truth >= 0), ("men with tissue", tissue)):
                measures = _beside(truth[use], of_men[use], men_alone[use])
                rows.append({"what": f"{name}{end}", **measures})
            measures = _beside(of_lesion[graded], of_lesions[graded], of_category[graded])
            rows.append({"what": f"lesions with tissue{end}", **measures})
    table = pd.DataFrame(rows).groupby("what").mean().round(4)
    return {"by man": table.T.to_dict(), "one centre left out": _centres(men, lesions, of_man)}


def _beside(y: np.ndarray, joint: pd.DataFrame, alone: pd.DataFrame) -> dict[str, float]:
    """Return measures of the joint model, and of men or of the category alone.

    Both tables have the columns ``probability``, ``ranking`` and ``log_odds`` of :func:`_by_folds`.
    """
    measures = {}
    for end, table in (("", joint), (", men or category alone", alone)):
        measures[f"AUC{end}"] = metrics.auc(y, table["ranking"].to_numpy())
        measures[f"Brier{end}"] = metrics.brier(y, table["probability"].to_numpy())
        on_common_base = special.expit(table["log_odds"].to_numpy())
        measures[f"slope{end}"] = metrics.calibration_slope(y, on_common_base)
    return measures


def _by_folds(
    men: pd.DataFrame, lesions: pd.DataFrame, of_man: np.ndarray, folds: np.ndarray
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return out-of-fold predictions: of men, of lesions, and of lesions by the category alone.

    Each table has three columns: ``probability``, ``ranking``, by which rows of different folds are
    ordered, and ``log_odds`` less the base of the fold, to which a calibration slope is fitted. As
    in a validation (:func:`cad.run.stages.risk.validated_risk`), the log-odds of lesions are in
    units of the fold's spread, and those of men are not. Men and lesions are ordered by their ranks
    among the men and lesions of the fit. Lesions of one category have equal probabilities in a
    fold, and neither the base nor the spread puts the folds in the right order then.
    """
    columns = ["probability", "ranking", "log_odds"]
    of_men = pd.DataFrame(np.nan, index=men.index, columns=columns)
    of_lesions = pd.DataFrame(np.nan, index=lesions.index, columns=columns)
    of_category = pd.DataFrame(np.nan, index=lesions.index, columns=columns)
    truth = lesions["truth"].to_numpy(float)
    names = np.unique(folds)
    bases = np.empty(len(names))
    spreads = np.empty((2, len(names)))
    for number, fold in enumerate(names):
        test = folds == fold
        rows = test[of_man]
        data = _real(men, lesions, of_man, ~test)
        predicted = fit_joint(data.of_men(~test)).predict(data)
        of_lesions.loc[rows, "probability"] = predicted.probability[rows]
        of_category.loc[rows, "probability"] = data.belief[rows]
        taught = ~rows & np.isfinite(truth)
        of_lesions.loc[rows, "ranking"] = ranked(
            predicted.probability[rows], predicted.probability[taught]
        )
        of_category.loc[rows, "ranking"] = ranked(data.belief[rows], data.belief[taught])
        bases[number] = base_log_odds(truth[taught])
        spreads[0, number] = spread_of_log_odds(predicted.probability[taught])
        spreads[1, number] = spread_of_log_odds(data.belief[taught])
        truth_of_men = data.histology_of_men()
        men_taught = ~test & np.isfinite(truth_of_men)
        of_men.loc[test, "probability"] = predicted.man[test]
        of_men.loc[test, "ranking"] = ranked(predicted.man[test], predicted.man[men_taught])
        of_men.loc[test, "log_odds"] = centred_log_odds(
            predicted.man[test], base_log_odds(truth_of_men[men_taught])
        )
    fold_of_lesion = np.searchsorted(names, folds)[of_man]
    for table, spread in zip((of_lesions, of_category), spreads, strict=True):
        table["log_odds"] = centred_log_odds(
            table["probability"].to_numpy(),
            bases[fold_of_lesion],
            stretch=stretches(spread)[fold_of_lesion],
        )
    return of_men, of_lesions, of_category


def _real(
    men: pd.DataFrame, lesions: pd.DataFrame, of_man: np.ndarray, train: np.ndarray
) -> MenAndRegions:
    """Return real men with beliefs by the PI-RADS category's share among the training men."""
    rows = train[of_man]
    share = shares(lesions["category"][rows], lesions["truth"][rows])
    return of_arrays(
        lesions["category"].map(share).to_numpy(float),
        of_man,
        len(men),
        truth=lesions["truth"],
        density=men["density"],
        age=men["age"],
        truth_of_man=men["truth"],
    )


def _centres(men: pd.DataFrame, lesions: pd.DataFrame, of_man: np.ndarray) -> dict[str, Any]:
    """Leave each centre out, recalibrate both models on 50 of its men, judge the others."""
    truth = men["truth"].to_numpy(float)
    centres = men["centre"].to_numpy(str)
    names = men["man"].to_numpy()
    alone = score_men(men, centres, MEN)[0]
    out = {}
    for centre in np.unique(centres):
        at_centre = centres == centre
        data = _real(men, lesions, of_man, ~at_centre)
        model = fit_joint(data.of_men(~at_centre))
        before = model.predict(data).man
        rows = []
        for draw in range(SITE_DRAWS):
            order = np.random.default_rng([7, draw]).permutation(np.unique(names[at_centre]))
            fitted = np.isin(names, order[:SITE_MEN]) & at_centre
            judged = at_centre & ~fitted
            moved = model.recalibrated(data.of_men(fitted)).predict(data.of_men(judged)).man
            old = recalibration(truth[fitted], alone[fitted], names[fitted]).probability(
                alone[judged]
            )
            for name, q in (("joint", moved), ("men alone", old)):
                rows.append(
                    {
                        "model": name,
                        "slope": metrics.calibration_slope(truth[judged], q),
                        "intercept": metrics.calibration_intercept(truth[judged], q),
                        "Brier": metrics.brier(truth[judged], q),
                        "AUC": metrics.auc(truth[judged], q),
                    }
                )
        table = pd.DataFrame(rows)
        table["slope in .8 to 1.25"] = table["slope"].between(*SLOPES).astype(float)
        out[str(centre)] = {
            "before, joint": _calibration(truth[at_centre], before[at_centre]),
            "before, men alone": _calibration(truth[at_centre], alone[at_centre]),
            f"after {SITE_MEN} men, medians": table.groupby("model").median().round(3).T.to_dict(),
            "draws with slope in .8 to 1.25": table.groupby("model")["slope in .8 to 1.25"]
            .mean()
            .round(2)
            .to_dict(),
        }
    return out


def noise(count: int = 100, first: int = 0, men: int = 24) -> dict[str, Any]:
    """Validate the joint model where beliefs, readers, age and PSA tell nothing of histology.

    Every AUC must be one half. Each entry has the mean AUC over cohorts, first of the probabilities
    as they are, then less the base of the model that leaves the man out. The third mean is the
    program's own: of regions in units of this model's spread, too, and of men by their ranks among
    the men of the fit. The standard error of the last mean is in brackets. ``first`` is the seed of
    the first cohort.
    """
    result: dict[str, Any] = {"cohorts": count, "men": men}
    for kind, alike in (("independent", 0.0), ("alike", 0.7)):
        for evidence, with_readers in (("images alone", False), ("with readers' scores", True)):
            aucs = np.array(
                Parallel(n_jobs=2)(
                    delayed(_noise_cohort)(first + number, men, alike, with_readers)
                    for number in range(count)
                )
            )
            error = aucs.std(axis=0, ddof=1) / np.sqrt(count)
            means = [f"{mean:.3f}" for mean in aucs.mean(axis=0)]
            name = f"{kind}, {evidence}"
            result[f"AUC of regions, {name}"] = f"{', '.join(means[:3])} ({error[2]:.3f})"
            result[f"AUC of men, {name}"] = f"{', '.join(means[3:])} ({error[5]:.3f})"
    return result


def _noise_cohort(seed: int, men: int, alike: float, with_readers: bool) -> np.ndarray:
    """Return AUCs of one cohort: of regions and of men, each by three kinds of numbers.

    ``alike`` is the standard deviation of the part of belief, and of the part of histology, that
    the regions of a man share. The two parts are independent.
    """
    rng = np.random.default_rng([47, seed])
    # Each man has as many regions. More regions would make a cancer in one of them more likely, and
    # their number would then tell who has cancer.
    man = np.repeat(np.arange(men), 4)
    n = len(man)
    of_man = rng.normal(size=(4, men))
    of_region = np.sqrt(1 - alike**2) * rng.normal(size=(3, n))
    belief = special.expit(-1 + alike * of_man[0, man] + of_region[0])
    readers = special.expit(-1 + alike * of_man[0, man] + of_region[1])
    malignant = alike * of_man[1, man] + of_region[2] > 0.67
    rows = pd.DataFrame(
        {
            "participant_id": [f"sub-{number:03d}" for number in man],
            "belief": belief,
            "readers_mean": readers if with_readers else np.nan,
            "truth": malignant.astype(float),
            "age": 66 + 6 * of_man[2, man],
            "psa_density": np.exp(0.5 * of_man[3, man] - 2),
            "man_truth": np.nan,
        }
    )
    risk = validated_risk(rows, belief, seed=0)
    truth = rows["truth"].to_numpy(float)
    truth_of_man = risk.men["truth"].to_numpy(float)
    aucs = []
    for kind in ("probability", "shifted", "centred"):
        aucs.append(metrics.auc(truth, risk.regions[kind]))
    for kind in ("probability", "centred", "rank"):
        aucs.append(metrics.auc(truth_of_man, risk.men[kind]))
    return np.array(aucs)


def main() -> None:
    """Run one measurement and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joint")
    parser.add_argument("name", choices=["cohorts", "ranges", "prevalence", "picai", "noise"])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="noise: seed of the first cohort")
    parser.add_argument("--data", type=Path)
    parser.add_argument("-o", "--out", type=Path, help="folder for calibration.csv of cohorts")
    given = parser.parse_args()
    start = time.perf_counter()
    if given.name == "picai":
        result = picai(given.data)
    elif given.name == "cohorts":
        result = cohorts(given.count, folder=given.out)
    elif given.name == "prevalence":
        result = rarer_cancer(given.count)
    elif given.name == "noise":
        result = noise(given.count, given.seed)
    else:
        result = ranges(given.count)
    print(json.dumps(result, indent=2))
    print(f"{given.name}: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
