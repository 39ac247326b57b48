"""Recalibrate: a model's probabilities of regions and of men, fitted to a site's own histology."""

from pathlib import Path

import numpy as np

from cad.base.files import JsonObject, json_safe, typed
from cad.learning.evaluation.decisions.operating import choose_operating_point
from cad.learning.evaluation.decisions.patient_level import ManModel
from cad.learning.evaluation.decisions.recalibrate import before_and_after, recalibration
from cad.run.model.bundle import Bundle
from cad.run.model.recalibrated import save_recalibrated
from cad.run.stages.judge import Judged
from cad.run.stages.load import Loaded
from cad.run.stages.men import known_of_men, man_settings


def recalibrate(bundle: Bundle, loaded: Loaded, judged: Judged, out: Path) -> JsonObject:
    """Fit a model's probabilities of regions, then of men, to a site; write a new bundle.

    Where the settings state an aim for the predictive values, thresholds are chosen anew.

    Parameters
    ----------
    bundle : Bundle
        The model; not changed.
    loaded : Loaded
        The site's cohort with settings and histology.
    judged : Judged
        The model's probabilities of the cohort's regions.
    out : Path
        Folder of the new bundle.

    Returns
    -------
    dict
        ``regions`` and ``men`` (None for a model without probabilities of men): intercept and slope
        of the fitted recalibration, and measures before and after it. ``text``: the same as lines
        for people. ``sites``, ``simulated`` and ``of_training``: on whom it was fitted.

    Raises
    ------
    CadError
        As :func:`cad.learning.evaluation.decisions.recalibrate.recalibration`; nothing is then
        written.
    """
    results = judged.results
    decision = loaded.settings.decision
    truth = results["truth"].to_numpy(float)
    q = results["probability"].to_numpy(float)
    patients = results["participant_id"].to_numpy(str)
    regions = recalibration(truth, q, patients)
    moved = regions.probability(q)
    report: JsonObject = {
        "simulated": loaded.cohort.simulated,
        "of_training": (judged.model or {})["models"][bundle.name]["patients_of_training"],
        "sites": _sites(loaded),
        "regions": {**vars(regions), **before_and_after(truth, q, patients)},
        "men": None,
    }
    point = None
    if decision.aim_npv is not None or decision.aim_ppv is not None:
        # Thresholds of the training are probabilities before the map: these lie behind it.
        point = choose_operating_point(truth, moved, patients, decision)
    fitted_on = set(patients[np.isfinite(truth)].tolist())
    outcome: JsonObject = {"operating_point": point and point.as_dict(), "man": None}
    if content := bundle.metadata.get("man"):
        # A man's probability rests on his regions': his map is fitted once theirs is applied.
        men = known_of_men(loaded, results.assign(probability=moved))
        names = men.index.to_numpy(str)
        known = men["truth"].to_numpy(float)
        model = typed(ManModel, content["model"])
        fitted_on |= set(names[np.isfinite(known)].tolist())
        of_men = model.probability(men)
        whole = recalibration(known, of_men, names)
        model = model.recalibrated(whole.intercept, whole.slope)
        aim = man_settings(decision)
        chosen = None
        if aim is not None:
            chosen = choose_operating_point(known, model.probability(men), names, aim)
        outcome["man"] = {"model": json_safe(model), "operating_point": chosen and chosen.as_dict()}
        report["men"] = {**vars(whole), **before_and_after(known, of_men, names)}
    outcome["recalibrated_on"] = sorted(fitted_on)
    report["text"] = _text(report, outcome)
    save_recalibrated(out, bundle, regions, outcome, report)
    return dict(json_safe(report))


def _sites(loaded: Loaded) -> str:
    people = loaded.cohort.participants
    named = people["site"].dropna().unique() if "site" in people else []
    return ", ".join(sorted(map(str, named))) or "not stated"


def _text(report: JsonObject, outcome: JsonObject) -> list[str]:
    lines = []
    for name in ("regions", "men"):
        if (part := report[name]) is None:
            continue
        first = part["before"]
        second = part["after"]
        lines.append(
            f"- {name}: {part['n']} of {part['men']} men, {part['positive']} malignant; log-odds "
            f"become {part['intercept']:+.2f} {part['slope']:+.2f} × theirs. Men left out, before "
            f"and after: intercept {first['intercept']:.2f}, {second['intercept']:.2f}; slope "
            f"{first['slope']:.2f}, {second['slope']:.2f}; Brier score {first['brier']:.3f}, "
            f"{second['brier']:.3f}"
        )
    for name, point in (
        ("regions", outcome["operating_point"]),
        ("men", (outcome["man"] or {}).get("operating_point")),
    ):
        if point:
            lines.append(f"- thresholds of {name}, chosen anew: {point['sentence']}")
    return lines
