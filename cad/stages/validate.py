"""Validate: out-of-fold probabilities, whatever is fitted being fitted on the other patients."""

from __future__ import annotations

import time

import numpy as np
from sklearn.pipeline import Pipeline

from cad.errors import CadError
from cad.evaluation.crossval import OutOfFold, out_of_fold
from cad.evaluation.null import PermutationNull, permutation_null
from cad.evaluation.operating import COSTS_INSTEAD, OperatingChoice, choose_operating_point
from cad.evaluation.rivals import compare_with_rivals
from cad.files import JsonObject, json_safe
from cad.labels.consensus import grade_matrix, reader_probabilities
from cad.labels.skill import reader_skill
from cad.learners.rivals import rival_learners
from cad.model.estimator import front_steps, make_estimator
from cad.model.explanation import explanation_rows
from cad.run_folder.tables import ExplanationRow, Failure
from cad.stages.aggregate import Aggregated
from cad.stages.judge import Judged, judge
from cad.stages.load import Loaded


def validate(loaded: Loaded, aggregated: Aggregated) -> Judged:
    """Give every region the probability that the other patients' model gives it.

    Raises
    ------
    CadError
        When no region can be learned from, or a site is needed and unknown.
    """
    start = time.perf_counter()
    table, source = aggregated.table, aggregated.source
    if not table.labelled.any():
        raise CadError(
            "no region has a score or a histology to learn from",
            file=loaded.cohort.root,
            hint="fill in scores.tsv, or use `cad predict` with a trained model",
        )
    if loaded.settings.validate_.scheme == "none":
        return _not_validated(loaded, aggregated)
    groups = left_out_together(loaded, aggregated)
    folds = out_of_fold(
        make_estimator(loaded.settings),
        source,
        table.y,
        groups=groups,
        eta=table.eta,
        patients=table.groups,
        relabel=aggregated.relabel,
        n_jobs=loaded.options.processes,
        keep_estimators=True,
    )
    explanations, failures = _explain(aggregated, folds)
    operating_point, substitute = _operating_point(loaded, aggregated, folds.probability)
    thresholds = (operating_point or loaded.settings.decision).thresholds
    results, metrics = judge(
        loaded,
        aggregated,
        folds.probability,
        folds.decision,
        thresholds=thresholds,
        operating_point=operating_point,
        folds=folds,
        null=_null(loaded, aggregated),
    )
    metrics["rivals"] = _rivals(loaded, aggregated, folds, groups)
    metrics["reader_skill"] = _reader_skill(loaded, aggregated)
    return Judged(
        results,
        metrics,
        explanations,
        failures,
        notes=[*substitute, *source.notes, *aggregated.notes],
        timings={"validate": time.perf_counter() - start},
        thresholds=thresholds,
        folds=folds,
        simulated=aggregated.simulated,
    )


def left_out_together(loaded: Loaded, aggregated: Aggregated) -> np.ndarray:
    """Return what is left out together: every row's patient, or site.

    Raises
    ------
    CadError
        When sites are left out and a patient has none.
    """
    table = aggregated.table
    if loaded.settings.validate_.scheme != "leave-one-site-out":
        return table.groups
    if (table.sites == "").any():
        raise CadError(
            "leave-one-site-out needs a site for every patient",
            patient=str(table.groups[table.sites == ""][0]),
            file=loaded.cohort.root / "participants.tsv",
        )
    return table.sites


def _not_validated(loaded: Loaded, aggregated: Aggregated) -> Judged:
    nothing = np.full(len(aggregated.table.y), np.nan)
    thresholds = loaded.settings.decision.thresholds
    results, metrics = judge(loaded, aggregated, nothing, nothing, thresholds=thresholds)
    notes = ["not validated: validate.scheme is 'none'"]
    return Judged(results, metrics, [], [], notes, {}, thresholds, simulated=aggregated.simulated)


def _operating_point(
    loaded: Loaded, aggregated: Aggregated, probability: np.ndarray
) -> tuple[OperatingChoice | None, list[str]]:
    """Choose the thresholds that the site's aim asks for; None, and why, where costs decide."""
    settings, table = loaded.settings.decision, aggregated.table
    if settings.aim_npv is None and settings.aim_ppv is None:
        return None, []
    truth = table.labels["truth"].to_numpy(float)
    try:
        return choose_operating_point(truth, probability, table.groups, settings), []
    except CadError as error:  # a cohort that nobody has histology of yet can still be scored
        return None, [f"{COSTS_INSTEAD}: {error.problem}"]


def _rivals(
    loaded: Loaded, aggregated: Aggregated, folds: OutOfFold, groups: np.ndarray
) -> JsonObject | None:
    """Validate what else learns from soft labels on the same folds; None without probabilities."""
    table, settings = aggregated.table, loaded.settings
    if not np.isfinite(folds.probability).any():
        return None
    found = compare_with_rivals(
        settings.learner.name,
        folds.probability,
        rival_learners(),
        aggregated.source,
        table.y,
        groups,
        eta=table.eta,
        front=front_steps(settings),
        # A search may have set the steps before the learner otherwise than the settings do.
        fronts={
            fold.name: fold.estimator[:-1]
            for fold in folds.folds
            if isinstance(fold.estimator, Pipeline)
        },
        target=table.labels["p"].to_numpy(float),
        truth=table.labels["truth"].to_numpy(float),
        patients=table.groups,
        relabel=aggregated.relabel,
        n_jobs=loaded.options.processes,
    )
    content: JsonObject = json_safe(
        {
            "reference": found.reference,
            "sentence": found.sentence,
            "table": found.table.to_dict("records"),
        }
    )
    return content


def _explain(
    aggregated: Aggregated, folds: OutOfFold
) -> tuple[list[ExplanationRow], list[Failure]]:
    """Return the explanations of every fold's regions, and the folds that could not be fitted."""
    table, source = aggregated.table, aggregated.source
    explanations: list[ExplanationRow] = []
    failures = []
    for fold in folds.folds:
        if fold.error:
            patient = str(table.groups[fold.rows[0]])
            failures.append(Failure(patient, patient, "", "validate", fold.error))
            continue
        training = np.setdiff1d(np.flatnonzero(table.labelled), fold.rows)
        X = source(training)
        names, keys = list(table.X.columns), table.keys.iloc[fold.rows]
        explanations += explanation_rows(fold.estimator, X[training], X[fold.rows], names, keys)
    return explanations, failures


def _reader_skill(loaded: Loaded, aggregated: Aggregated) -> JsonObject | None:
    """Say how good each reader is, and who adds nothing; None without readers."""
    known = reader_probabilities(aggregated.scores, aggregated.rois, loaded.settings.labels)
    if known.empty:
        return None
    keys = aggregated.table.keys.iloc[: aggregated.own_rows]
    grades, readers = grade_matrix(known, keys)
    truth = aggregated.table.labels["truth"].to_numpy(float)[: aggregated.own_rows]
    found = reader_skill(grades, readers, truth, keys["participant_id"].to_numpy(str))
    content: JsonObject = json_safe(
        {
            "against": found.against,
            "sentence": found.sentence,
            "table": found.table.to_dict("records"),
        }
    )
    return content


def _null(loaded: Loaded, aggregated: Aggregated) -> PermutationNull | None:
    """Measure the whole loop under permuted labels, when the settings ask for it."""
    settings, table = loaded.settings.validate_, aggregated.table
    if settings.permutations == 0:
        return None
    if aggregated.relabel is not None:
        raise CadError(
            f"labels.consensus {loaded.settings.labels.consensus!r} learns labels in every fold, "
            "and the permutation null shuffles what they are learned from",
            hint="set validate.permutations: 0, or labels.consensus: mean",
        )
    return permutation_null(
        make_estimator(loaded.settings),
        aggregated.source,
        table.y,
        table.labels["truth"].to_numpy(float),
        groups=left_out_together(loaded, aggregated),
        n=settings.permutations,
        eta=table.eta,
        patients=table.groups,
        seed=settings.seed,
        n_jobs=loaded.options.processes,
    )
