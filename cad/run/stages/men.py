"""Men: one row of ``patients.csv`` for each, with his probability and the one decision on him.

This is the one place where a decision on a man is made and where it is withdrawn.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from cad.base.errors import CadError
from cad.base.files import JsonObject, json_safe, typed
from cad.base.settings import DecisionSettings
from cad.learning.evaluation.decisions import patient_level
from cad.learning.evaluation.decisions.costs import DECISIONS
from cad.learning.evaluation.decisions.operating import OperatingChoice, choose_operating_point
from cad.learning.evaluation.decisions.reject import decide
from cad.learning.evaluation.measures.metrics import calibration_intercept
from cad.learning.labels.consensus import malignant
from cad.run.model.bundle import Bundle, using
from cad.run.stages.judge import SUSPICIOUS, patient_decisions, withdrawn
from cad.run.stages.load import Loaded

SIGNIFICANT = 2
"""ISUP grade from which a man has what the probability is of."""
LATELY = 100
"""Men, the last of the cohort, over whom drift is told."""
SURE = 0.03
"""Closest to 0 and 1 that readers' scores are taken: the ends of a scale are not certainty."""


def known_of_men(loaded: Loaded, results: pd.DataFrame) -> pd.DataFrame:
    """Collect what is known of every man with a region: the input of the model of men.

    Parameters
    ----------
    loaded : Loaded
        The cohort; ``age``, ``psa``, ``psa_density`` and ``prostate_volume`` of its
        ``participants.tsv`` are optional.
    results : DataFrame
        Regions with their decisions.

    Returns
    -------
    DataFrame
        One row per man, indexed by ``participant_id``: predictors of the model, ``truth``, and the
        thresholds ``lower`` and ``upper`` by costs. ``probability``, ``unknown`` and ``model`` are
        still empty.
    """
    patients = results["participant_id"].to_numpy(str)
    probability = results["probability"].to_numpy(float)
    if "centred" in results:
        # Regions of a validation: the model of men is for new men, whom no fold has left out.
        probability = expit(results["centred"].to_numpy(float))
    table = patient_level.region_columns(probability, patients)
    table["truth"] = patient_level.truth_of_men(malignant(results, SIGNIFICANT), patients)
    # A man is as suspicious as his most suspicious region.
    readers = results.groupby("participant_id")["readers_mean"].max().clip(SURE, 1 - SURE)
    table["category"] = logit(readers.reindex(table.index))
    people = loaded.cohort.participants.drop_duplicates("participant_id")
    people = people.set_index("participant_id").reindex(table.index)
    given = {
        name: pd.to_numeric(people[name], errors="coerce") if name in people else np.nan
        for name in ("age", "psa", "psa_density", "prostate_volume")
    }
    raw = pd.DataFrame(given, index=table.index).astype(float)
    # ng/mL over mL; a density that the table states goes first.
    raw["psa_density"] = raw["psa_density"].fillna(raw["psa"] / raw["prostate_volume"])
    # PSA and density are skewed: risk grows with their logarithm. Age in decades keeps the weights
    # of one size.
    with np.errstate(divide="ignore"):
        columns = {
            "age": raw["age"] / 10,
            "psa": np.log(raw["psa"]),
            "density": np.log(raw["psa_density"]),
        }
    said = raw.rename(columns=lambda name: f"given_{name}")
    lower, upper = loaded.settings.decision.thresholds
    nothing = {"probability": np.nan, "unknown": "", "lower": lower, "upper": upper, "model": ""}
    return pd.concat([table.assign(**columns), said], axis=1).assign(**nothing)


def validated_men(
    loaded: Loaded, results: pd.DataFrame
) -> tuple[pd.DataFrame, patient_level.PatientLevel]:
    """Give every man the probability of a model fitted on the other men.

    Parameters
    ----------
    loaded : Loaded
        The run.
    results : DataFrame
        Regions with out-of-fold probabilities and decisions.

    Returns
    -------
    men : DataFrame
        The table of :func:`known_of_men` with ``probability``, ``unknown`` (predictors of the
        model that are missing for this man) and ``lower, upper`` (the thresholds for men). Without
        ``probability`` where too little is known to fit the model.
    measured : PatientLevel
        The part ``patient_level`` of ``metrics.json``.
    """
    settings, decision = loaded.settings.validate_, loaded.settings.decision
    men = known_of_men(loaded, results)
    truth = men["truth"].to_numpy(float)
    try:
        model = patient_level.fit_men(men, truth)
        probability, rank = patient_level.out_of_fold_men(men, truth, settings.seed)
    except CadError as error:
        return men, patient_level.PatientLevel(note=str(error))
    men = men.assign(probability=probability, unknown=model.unknown(men))
    point, note = None, ""
    if (aim := man_settings(decision)) is not None:
        try:
            point = choose_operating_point(truth, probability, men.index.to_numpy(str), aim)
            men = men.assign(lower=point.thresholds[0], upper=point.thresholds[1])
        except CadError as error:
            note = str(error)
    measured = patient_level.measure_men(
        truth, probability, rank, bootstraps=settings.bootstraps, seed=settings.seed
    )
    return men, replace(measured, note=note, model=model, operating_point=point)


def predicted_men(
    loaded: Loaded, results: pd.DataFrame, bundles: Sequence[Bundle]
) -> tuple[pd.DataFrame, patient_level.PatientLevel]:
    """Give every man the probability and thresholds of the bundle that scored his regions.

    Nothing is fitted.

    Parameters
    ----------
    loaded : Loaded
        The run.
    results : DataFrame
        Regions with probabilities and decisions; ``model`` names the bundle that scored each.
    bundles : sequence of Bundle
        The trained models of the prediction.

    Returns
    -------
    men : DataFrame
        The table of :func:`known_of_men` with ``probability``, ``unknown`` (predictors of the model
        that are missing for this man), ``lower, upper`` (the thresholds for men) and ``model``.
    measured : PatientLevel
        The part ``patient_level`` of ``metrics.json``.
    """
    settings, decision = loaded.settings.validate_, loaded.settings.decision
    men, promised = known_of_men(loaded, results), None
    scored = results.dropna(subset=["probability"]).groupby("participant_id")["model"].first()
    men["model"] = scored.reindex(men.index).fillna("")
    for bundle in bundles:
        rows = (men["model"] == bundle.name).to_numpy()
        with using(bundle):
            content = bundle.metadata.get("man")
            if content is None or not rows.any():
                continue
            model = typed(patient_level.ManModel, content["model"])
            men.loc[rows, "probability"] = model.probability(men.loc[rows])
            men.loc[rows, "unknown"] = model.unknown(men.loc[rows])
            if content["operating_point"] is not None and man_settings(decision) is not None:
                point = typed(OperatingChoice, content["operating_point"])
                men.loc[rows, ["lower", "upper"]] = point.thresholds
                promised = 1 - point.refer if promised is None else promised
    measured = patient_level.measure_men(
        men["truth"].to_numpy(float), men["probability"].to_numpy(float),
        bootstraps=settings.bootstraps, seed=settings.seed,
    )  # fmt: skip
    return men, replace(measured, promised_share=promised)


def man_settings(decision: DecisionSettings) -> DecisionSettings | None:
    """Return the decision settings for men: their aims take the place of the aims for regions.

    Parameters
    ----------
    decision : DecisionSettings
        ``man_npv`` and ``man_ppv`` are the aims for men.

    Returns
    -------
    DecisionSettings or None
        A copy with ``aim_npv`` and ``aim_ppv`` replaced. None where no aim for men is set: costs
        decide on men then.
    """
    if decision.man_npv is None and decision.man_ppv is None:
        return None
    return decision.model_copy(update={"aim_npv": decision.man_npv, "aim_ppv": decision.man_ppv})


def decided_men(
    table: pd.DataFrame, results: pd.DataFrame, failed: Collection[str]
) -> pd.DataFrame:
    """Decide on every man by his own probability, and change a doubtful decision to ``refer``.

    ``benign`` becomes ``refer`` where a study or region of the man gave no result, one of his
    regions is decided malignant, the decision on a region was changed to ``refer``, or the readers'
    mean suspects a region. ``malignant`` becomes ``refer`` where all his regions are decided
    benign. Either becomes ``refer`` where histology says otherwise. A region between its two
    thresholds does not refer the man. A man without a probability is decided by
    :func:`cad.run.stages.judge.patient_decisions`.

    Parameters
    ----------
    table : DataFrame
        From :func:`validated_men` or :func:`predicted_men`.
    results : DataFrame
        Regions with their decisions.
    failed : collection of str
        Men of whom a study or a region gave no result.

    Returns
    -------
    DataFrame
        A copy of ``table`` with ``regions`` (their number), ``decision_model`` (before any change
        to ``refer``), ``decision_before_histology``, ``decision``, ``decision_reason`` and
        ``basis``: ``probability``, or ``regions`` where the man has none.
    """
    rows = []
    groups = dict(tuple(results.groupby("participant_id")))
    by_regions = patient_decisions(results, failed).groupby(results["participant_id"]).first()
    for man, row in zip(table.index, table.to_dict("records"), strict=True):
        regions = groups[man]
        alone = np.isnan(row["probability"])
        code = decide(row["probability"], row["lower"], row["upper"])
        model = by_regions[man] if alone else DECISIONS[int(code)]
        against, histology = _against(model, regions, man in failed), []
        if (model, row["truth"]) in (("malignant", 0.0), ("benign", 1.0)):
            histology = [f"histology found {'' if row['truth'] else 'no '}significant cancer"]
        rows.append(
            {
                "regions": len(regions),
                "decision_model": model,
                **withdrawn(model, against, histology),
                "basis": "" if not model else "regions" if alone else "probability",
            }
        )
    return table.assign(**pd.DataFrame(rows, index=table.index))


def _against(model: str, regions: pd.DataFrame, failed: bool) -> list[str]:
    """Return what speaks against a man's decision, histology apart."""
    said = []
    if model == "benign":
        if failed or regions["probability"].isna().any():
            said.append("a study or region gave no result")
        if (regions["decision"] == "malignant").any():
            said.append("a region is called malignant")
        if (regions["decision_reason"] != "").any():
            said.append("a region's decision was withdrawn")
        if (regions["readers_mean"] >= SUSPICIOUS).any():
            said.append("the readers suspect a region")
    if model == "malignant" and (regions["decision"] == "benign").all():
        said.append("every region is called benign")
    return said


def measure_decisions_on_men(men: pd.DataFrame) -> JsonObject:
    """Count the decisions on men before histology is looked at, and how many of them are right.

    Parameters
    ----------
    men : DataFrame
        From :func:`decided_men`.

    Returns
    -------
    dict
        ``n``, men with a decision. For ``benign`` and ``malignant``: how many men were so decided
        (``n``), how many of them have histology (``known``) and how many it confirms (``right``).
        ``lately``: share decided and calibration of the last 100 men, where drift shows first.
    """
    word, known = men["decision_before_histology"], men["truth"].notna()
    content: JsonObject = {"n": int((word != "").sum()), "lately": _lately(men, word)}
    for name, right in (("benign", 0.0), ("malignant", 1.0)):
        of = known & (word == name)
        hits = int((men.loc[of, "truth"] == right).sum())
        content[name] = {"n": int((word == name).sum()), "known": int(of.sum()), "right": hits}
    return content


def _lately(men: pd.DataFrame, word: pd.Series) -> JsonObject:
    """Return what drift would show first, of the last men: share decided, calibration at large."""
    last = men[word != ""].tail(LATELY)
    decided = word.reindex(last.index).isin(["benign", "malignant"])
    known = last.dropna(subset=["truth", "probability"])
    y, p = known["truth"].to_numpy(float), known["probability"].to_numpy(float)
    # Standard error of the intercept: the inverse root of the information p (1 - p).
    error = 1 / np.sqrt(np.sum(p * (1 - p))) if len(p) else np.nan
    at_large = calibration_intercept(y, p) if len(p) else np.nan
    content: JsonObject = json_safe(
        {"n": len(last), "decided": float(decided.mean()) if len(last) else np.nan,
         "known": len(known), "intercept": at_large, "error": error}
    )  # fmt: skip
    return content


def with_men(results: pd.DataFrame, men: pd.DataFrame) -> pd.DataFrame:
    """Return the regions with their man's ``patient_probability`` and ``patient_decision`` added.

    Parameters
    ----------
    results : DataFrame
        One row per region.
    men : DataFrame
        From :func:`decided_men`, indexed by ``participant_id``.
    """
    man = results["participant_id"]
    return results.assign(
        patient_probability=man.map(men["probability"]), patient_decision=man.map(men["decision"])
    )
