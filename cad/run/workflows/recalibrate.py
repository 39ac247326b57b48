"""Fit the probabilities of regions and men to a site, by the site's own histology.

The learner and its beliefs (what readers would say of a region) stay the same, because readers'
scores do not depend on how common cancer is. Only the few parameters of the joint model change,
which leads from beliefs to the probabilities of regions and men.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.files import JsonObject, json_safe, typed
from cad.learning.evaluation.decisions.operating import OperatingChoice, choose_operating_point
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.readers.assisted import Combinations
from cad.learning.joint_model import (
    BELIEF,
    INTERCEPT,
    LEAST_SITE_MEN,
    JointModel,
    MenAndRegions,
    fit_joint,
)
from cad.run.model.bundle import Bundle
from cad.run.model.recalibrated import moved_combinations, save_recalibrated
from cad.run.stages.judge import Judged
from cad.run.stages.load import Loaded
from cad.run.stages.risk import EVIDENCE, evidence, joint_of

BLOCKS = 20
"""Number of groups of the site's men that are left out in turn to measure the recalibration."""


def recalibrate(bundle: Bundle, loaded: Loaded, judged: Judged, out: Path) -> JsonObject:
    """Fit a model's joint model to a site, and write a new bundle.

    A model that was trained without histology has no joint model. It gets one that is fitted to the
    site's histology.

    Parameters
    ----------
    bundle : Bundle
        The model, which is not changed.
    loaded : Loaded
        The site's cohort with settings and histology.
    judged : Judged
        The model's beliefs of the cohort's regions.
    out : Path
        Folder of the new bundle.

    Returns
    -------
    dict
        ``regions`` and ``men`` have measures before and after recalibration. The measures after it
        come from models fitted without the man who is measured. ``text`` has the same measures,
        and the chosen thresholds, as lines for people. ``sites`` names the sites of the cohort's
        men. ``simulated`` says whether the men are simulated, and ``of_training`` how many of them
        are among the model's training patients.

    Raises
    ------
    CadError
        For a model that is recalibrated already, for fewer than 30 men with histology, and for
        histology of one class only. Also for a model that gives the site's men with cancer lower
        numbers than the men without cancer. Nothing is written then.
    """
    if bundle.metadata.get("recalibration"):
        raise CadError(
            f"model {bundle.name} is recalibrated already",
            hint="recalibrate the model that it was made of, with all the men there are now",
        )
    rows = judged.results
    data, names = evidence(rows, rows["belief"].to_numpy(float))
    before = joint_of(bundle, prevalence=None)
    joint = _site_model(before, data)

    # The measures before and after. A model without a joint model gave regions their beliefs, and
    # men nothing.
    after_regions, after_men = _probabilities_left_out(before, data)
    truth = data.truth
    truth_of_men = data.histology_of_men()
    before_regions = data.belief
    before_men = np.full(data.men, np.nan)
    if before is not None:
        predicted = before.predict(data)
        before_regions = predicted.probability
        before_men = predicted.man
    patients = rows["participant_id"].to_numpy(str)
    report: JsonObject = {
        "simulated": loaded.cohort.simulated,
        "of_training": (judged.model or {})["models"][bundle.name]["patients_of_training"],
        "sites": _named_sites(loaded),
        "regions": _calibration_before_after(truth, before_regions, after_regions, patients),
        "men": _calibration_before_after(truth_of_men, before_men, after_men, names.to_numpy(str)),
    }

    # The model's own thresholds belong to its old probabilities. New thresholds are chosen on the
    # recalibrated probabilities.
    outcome: JsonObject = {"joint": joint.as_dict(), "operating_point": None, "man": None}
    thresholds = {}
    decision = loaded.settings.decision
    if decision.aim_npv is not None or decision.aim_ppv is not None:
        thresholds["regions"] = choose_operating_point(truth, after_regions, patients, decision)
        outcome["operating_point"] = thresholds["regions"].as_dict()
    if decision.of_men is not None:
        thresholds["men"] = choose_operating_point(
            truth_of_men, after_men, names.to_numpy(str), decision.of_men
        )
        outcome["man"] = {"operating_point": thresholds["men"].as_dict()}

    # The men whose histology taught the new joint model: that of the man, or of one of his regions.
    men_of_regions_with_truth = patients[np.isfinite(truth)]
    has_taught = np.isfinite(truth_of_men) | np.isin(names, men_of_regions_with_truth)
    outcome["recalibrated_on"] = sorted(names[has_taught].tolist())
    report["text"] = _lines_of_report(report, thresholds)
    outcome["combinations"] = _combinations(bundle, before, joint)
    save_recalibrated(out, bundle, _moved_training(bundle, joint), outcome, report)
    return dict(json_safe(report))


def _moved_training(bundle: Bundle, joint: JointModel) -> pd.DataFrame:
    """Return the training regions with probabilities by the site's joint model.

    If somebody aims at other predictive values later, thresholds are chosen on these probabilities.
    """
    training = bundle.training
    # The training table of a model of an earlier version may lack columns that the joint model
    # needs. It then stays as it is.
    if not set(EVIDENCE) <= set(training.columns):
        return training
    data, _ = evidence(training, training["out_of_fold"].to_numpy(float))
    return training.assign(out_of_fold_probability=joint.predict(data).probability)


def _combinations(
    bundle: Bundle, before: JointModel | None, joint: JointModel
) -> JsonObject | None:
    """Return the weights by which a reader's score and the tool (the model) are combined.

    The weights are converted to the new probabilities. The result is None where the model has no
    such weights.
    """
    content = bundle.metadata.get("combinations")
    if content is None or before is None:
        return None
    # For a region that is judged from images alone, the new log-odds are intercept + slope times
    # the old log-odds.
    slope = float(joint.estimate[0, BELIEF] / before.estimate[0, BELIEF])
    intercept = float(joint.estimate[0, INTERCEPT] - slope * before.estimate[0, INTERCEPT])
    moved = moved_combinations(typed(Combinations, content), intercept, slope)
    return dict(json_safe(moved))


def _site_model(
    before: JointModel | None, data: MenAndRegions, least: int = LEAST_SITE_MEN
) -> JointModel:
    """Return a site's joint model: that of the bundle, fitted to the site.

    If the bundle has no joint model, a new one is fitted.
    """
    if before is not None:
        return before.recalibrated(data, least)
    n_men = int(np.isfinite(data.histology_of_men()).sum())
    if n_men < least:
        raise CadError(
            f"{n_men} men with histology, {least} are needed to give a model without histology its "
            "probabilities",
            hint="wait for more histology; the model stays as it is",
        )
    return fit_joint(data)


def _probabilities_left_out(
    before: JointModel | None, data: MenAndRegions
) -> tuple[np.ndarray, np.ndarray]:
    """Return the new probabilities of the site's regions and men.

    The probabilities of each man come from a joint model that is fitted without him.
    """
    regions = np.full(len(data.belief), np.nan)
    men = np.full(data.men, np.nan)
    order = np.random.default_rng(0).permutation(data.men)
    for block in np.array_split(order, min(BLOCKS, data.men)):
        is_out = np.zeros(data.men, dtype=bool)
        is_out[block] = True
        # One block of men is left out, so the fit gets fewer men than the site has. Half of the
        # least number of men that a recalibration needs is enough here.
        model = _site_model(before, data.of_men(~is_out), least=LEAST_SITE_MEN // 2)
        predicted = model.predict(data.of_men(is_out))
        regions[is_out[data.man]] = predicted.probability
        men[is_out] = predicted.man
    return regions, men


def _calibration_before_after(
    truth: np.ndarray, before: np.ndarray, after: np.ndarray, patients: np.ndarray
) -> JsonObject:
    """Return calibration and Brier score of the probabilities before and after recalibration."""
    has_both = np.isfinite(truth) & np.isfinite(after)
    compared: JsonObject = {
        "men": len(np.unique(patients[has_both])),
        "n": int(has_both.sum()),
        "positive": int(truth[has_both].sum()),
    }
    for name, values in (("before", before), ("after", after)):
        # None where a man or region had no probability before, so that the two cannot be compared.
        compared[name] = None
        if np.isfinite(values[has_both]).all() and has_both.any():
            compared[name] = {
                "intercept": metrics.calibration_intercept(truth[has_both], values[has_both]),
                "slope": metrics.calibration_slope(truth[has_both], values[has_both]),
                "brier": metrics.brier(truth[has_both], values[has_both]),
            }
    return compared


def _named_sites(loaded: Loaded) -> str:
    people = loaded.cohort.participants
    sites = people["site"].dropna().unique() if "site" in people else []
    return ", ".join(sorted(map(str, sites))) or "not stated"


def _lines_of_report(report: JsonObject, chosen: dict[str, OperatingChoice]) -> list[str]:
    """Return the report of a recalibration as a list of Markdown.

    A line for the regions and one for the men give their numbers, and their calibration before and
    after the recalibration (:func:`_calibration_before_after`). Further lines give the thresholds
    in ``chosen``, which were chosen on the recalibrated probabilities.
    """
    lines = []
    for name in ("regions", "men"):
        measured = report[name]
        line = (
            f"- {name}: {measured['n']} of {measured['men']} men, {measured['positive']} malignant"
        )
        for moment, title in (("before", "before"), ("after", "after, men left out")):
            values = measured[moment]
            if values is None:  # there was nothing to measure
                continue
            line += (
                f"; {title}: intercept {values['intercept']:.2f}, slope {values['slope']:.2f}, "
                f"Brier score {values['brier']:.3f}"
            )
        lines.append(line)
    for name, point in chosen.items():
        lines.append(f"- thresholds of {name}, chosen anew: {point.sentence()}")
    return lines
