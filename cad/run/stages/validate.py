"""Compute out-of-fold probabilities and measure them: the stage ``validate``.

Every step of the model that gives a region's probability is fitted to other patients.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.pipeline import Pipeline

from cad.base.errors import CadError
from cad.folders.run_folder.study_file import study_gaps
from cad.folders.run_folder.tables import ExplanationRow, Failure
from cad.learning.evaluation.decisions import operating
from cad.learning.evaluation.decisions.patient_level import PatientLevel, measure_men
from cad.learning.evaluation.decisions.unverified import if_unverified_were_benign
from cad.learning.evaluation.decisions.venn_abers import check_venn_abers
from cad.learning.evaluation.folds.crossval import (
    Fold,
    OutOfFold,
    deal_patients,
    each_piece,
    out_of_fold,
)
from cad.learning.evaluation.folds.disagreement import Disagreement, measure_disagreement
from cad.learning.evaluation.folds.null import PermutationNull, permutation_null
from cad.learning.evaluation.folds.paired import RivalTable, compare_with_rivals
from cad.learning.evaluation.statements.promise import broken_promises
from cad.learning.evaluation.summary import MeasuredValidation
from cad.learning.joint_model import BLOCKS, WHOLE
from cad.learning.labels.consensus import grade_matrix
from cad.learning.labels.skill import SkillTable, reader_skill
from cad.learning.learners.averaged import drawn_notes
from cad.learning.learners.rivals import histology_rivals, rival_learners
from cad.mri.columns import columns_of
from cad.run.model.described import describe
from cad.run.model.estimator import front_steps, make_estimator
from cad.run.model.explanation import MOST_EXPLAINED, explanation_rows
from cad.run.model.fold_features import FoldFeatures
from cad.run.model.gaps import failures_of, lacking, reasons
from cad.run.stages.aggregate import Aggregated
from cad.run.stages.judge import Judged, judge
from cad.run.stages.load import Loaded
from cad.run.stages.risk import BELIEF_ONLY, Risk, on_common_base, validated_risk

_HINT_TO_DRAW = (
    "draw the region where all images show it, or take the image out of features.modalities; "
    "the model that is trained takes no such region either"
)


def validate(loaded: Loaded, aggregated: Aggregated, measuring: Sequence[Failure] = ()) -> Judged:
    """Give every region an out-of-fold probability, by a model that is fitted to other patients.

    A region in which an image was not measured gets no probability, because a trained model would
    give it none either. An image that no region of the cohort has is left out of account.

    Parameters
    ----------
    loaded, aggregated : Loaded, Aggregated
        Results of the stages ``load`` and ``aggregate``.
    measuring : sequence of Failure
        Failures of the measurement, which explain why a study lacks features of an image.

    Returns
    -------
    Judged
        Probabilities, thresholds and measures. All probabilities are NaN where the setting
        ``validate.scheme`` is ``none``.

    Raises
    ------
    CadError
        When no region has a label, or when sites are left out in turn and a patient has no site.
    """
    start = time.perf_counter()
    table = aggregated.table
    if not table.labelled.any():
        raise _nothing_to_learn_from(loaded, aggregated)
    if loaded.settings.validate_.scheme == "none":
        return _not_validated(loaded, aggregated)
    groups = left_out_together(loaded, aggregated)
    folds = out_of_fold(
        make_estimator(loaded.settings),
        aggregated.source,
        table.y,
        groups=groups,
        eta=table.spread,
        patients=table.groups,
        relabel=aggregated.relabel,
        n_jobs=loaded.options.processes,
        keep_estimators=True,
    )
    judged = judge_folds(loaded, aggregated, folds, measuring=measuring)
    return replace(judged, timings={"validate": time.perf_counter() - start})


def judge_folds(
    loaded: Loaded,
    aggregated: Aggregated,
    folds: OutOfFold,
    *,
    rivals: RivalTable | None = None,
    measuring: Sequence[Failure] = (),
) -> Judged:
    """Compute probabilities from the beliefs of folds that are fitted already, and measure them.

    Parameters
    ----------
    loaded, aggregated : Loaded, Aggregated
        Results of the stages ``load`` and ``aggregate``.
    folds : OutOfFold
        Out-of-fold predictions of every row of ``aggregated.table``. If they do not hold the fitted
        estimators, no region is explained.
    rivals : RivalTable, optional
        Comparison with other learners (rivals) on the same folds; by default it is made here.
    measuring : sequence of Failure
        Failures of the measurement, which explain why a study lacks features of an image.

    Returns
    -------
    Judged
        Probabilities, thresholds and measures.
    """
    table = aggregated.table
    source = aggregated.source
    # Some regions lack an image that other regions have. The learner gave them a belief from
    # medians that replace the features of this image. A prediction gives such regions no belief, so
    # the validation leaves them out, too.
    lacking_images = _rows_without_image(loaded, aggregated)
    lacks_image = np.isin(np.arange(len(table.y)), list(lacking_images))
    folds = replace(
        folds,
        probability=np.where(lacks_image, np.nan, folds.probability),
        decision=np.where(lacks_image, np.nan, folds.decision),
        centred=np.where(lacks_image, np.nan, folds.centred),
        shifted=np.where(lacks_image, np.nan, folds.shifted),
    )
    risk = validated_risk(
        table.labels.assign(belief=folds.probability),
        folds.on_common_base,
        loaded.settings.validate_.seed,
    )
    # The thresholds are for new patients. So they are chosen on probabilities that do not depend on
    # the share of malignant regions in the training of each fold.
    probability = on_common_base(risk, folds)
    operating_point, notes_on_thresholds = _chosen_thresholds(loaded, aggregated, probability)
    thresholds = (operating_point or loaded.settings.decision).thresholds
    scored = risk.regions.assign(
        belief=folds.probability,
        decision_value=folds.decision,
        centred_belief=folds.centred,
    )
    if risk.joint is None:
        # The probability of a region is then its belief, which is ranked by the folds' log-odds.
        scored = scored.assign(centred=folds.centred, centred_images=folds.centred)
    if rivals is None:
        rivals = _validated_rivals(loaded, aggregated, folds, left_out_together(loaded, aggregated))
    truth = table.labels["truth"].to_numpy(float)
    measures = MeasuredValidation(
        unlabelled_rows=max(fold.n_unlabelled for fold in folds.folds),
        rivals=rivals,
        reader_skill=_measured_skill(aggregated),
        disagreement=_disagreement(loaded, aggregated),
        unverified=if_unverified_were_benign(
            truth,
            scored["probability"].to_numpy(float),
            table.groups,
            thresholds[0],
            on_one_scale=expit(scored["centred"].to_numpy(float)),
        ),
        venn_abers=check_venn_abers(truth, probability, table.groups),
    )
    men, measures_of_men = _validated_men(loaded, aggregated, risk)
    results, summary = judge(
        loaded,
        aggregated,
        scored,
        patient_level=measures_of_men,
        operating_point=operating_point,
        folds=folds,
        null=_null_of_validation(loaded, aggregated, ~lacks_image),
        validation=measures,
    )
    n_cohort = aggregated.own_rows
    return Judged(
        results=results,
        summary=summary,
        explanations=_explanations_of_folds(loaded, aggregated, folds),
        failures=[
            *_failures_of_folds(aggregated, folds),
            *_failures_of_regions_without_image(loaded, aggregated, lacking_images, measuring),
        ],
        notes=[
            *risk.notes,
            *notes_on_thresholds,
            *source.notes,
            *aggregated.notes,
            *_cohort_warnings(aggregated, rivals),
            *_explanation_notes(loaded, len(table.y)),
            *drawn_notes(make_estimator(loaded.settings), int(table.labelled.sum())),
        ],
        timings={},  # the caller adds them
        thresholds=thresholds,
        lower=np.full(n_cohort, thresholds[0]),
        upper=np.full(n_cohort, thresholds[1]),
        folds=folds,
        joint=risk.joint,
        out_of_fold=pd.DataFrame({"belief": folds.on_common_base, "probability": probability}),
        estimator=describe([fold.estimator for fold in folds.folds if fold.estimator is not None]),
        simulated=aggregated.simulated,
        men=men,
    )


def _validated_men(
    loaded: Loaded, aggregated: Aggregated, risk: Risk
) -> tuple[pd.DataFrame, PatientLevel]:
    """Return a table of the cohort's men, and measures of the men's probabilities.

    The table has the added column ``lower``: the threshold below which a man may be called benign.
    """
    settings = loaded.settings.validate_
    decision = loaded.settings.decision
    patients = np.unique(aggregated.table.groups[: aggregated.own_rows])
    men = risk.men.loc[patients].assign(lower=decision.thresholds[0])
    truth = men["truth"].to_numpy(float)
    probability = men["probability"].to_numpy(float)
    if risk.joint is None:  # without histology, men have no probability that could be measured
        return men, PatientLevel(note=BELIEF_ONLY)
    centred = men["centred"].to_numpy(float)
    thresholds_of_men = None
    note = ""
    if decision.of_men is not None:  # the site aims at a predictive value for men
        try:
            thresholds_of_men = operating.choose_operating_point(
                truth, expit(centred), patients, decision.of_men
            )
            men = men.assign(lower=thresholds_of_men.thresholds[0])
        except CadError as error:
            note = error.problem
    measures = measure_men(
        truth,
        probability,
        men["rank"].to_numpy(float),
        on_one_scale=expit(centred),
        bootstraps=settings.bootstraps,
        seed=settings.seed,
        # The joint model leaves men out one by one, or, if they are many, in blocks.
        n_folds=len(men) if len(men) <= WHOLE else BLOCKS,
    )
    return men, replace(measures, note=note, operating_point=thresholds_of_men)


def left_out_together(loaded: Loaded, aggregated: Aggregated) -> np.ndarray:
    """Return the group of each row; the rows of one group are left out of training together.

    Parameters
    ----------
    loaded, aggregated : Loaded, Aggregated
        Results of the stages ``load`` and ``aggregate``. The setting ``validate.scheme`` says how
        rows are grouped.

    Returns
    -------
    ndarray of str or int, shape (n,)
        For each row the patient, the patient's site, or the number of the patient's fold.

    Raises
    ------
    CadError
        When sites are left out in turn and a patient has no site.
    """
    table = aggregated.table
    settings = loaded.settings.validate_
    if settings.scheme == "patient-folds":
        # All regions of a patient go to the same fold. Two regions of one man are alike. A model
        # that is trained on one of them would know something of the other.
        return deal_patients(table.groups, settings.folds, settings.seed)
    if settings.scheme != "leave-one-site-out":
        return table.groups
    if (table.sites == "").any():
        raise CadError(
            "leave-one-site-out needs a site for every patient",
            patient=str(table.groups[table.sites == ""][0]),
            file=loaded.cohort.root / "participants.tsv",
        )
    return table.sites


def _nothing_to_learn_from(loaded: Loaded, aggregated: Aggregated) -> CadError:
    """Return the error for a cohort without a label.

    Its message says whether the cohort's histology could be used as labels.
    """
    problem = "no region has a score or a histology to learn from"
    hint = "fill in scores.tsv, or use `cad predict` with a trained model"
    proven = int(aggregated.table.labels["truth"].notna().sum())
    if proven and loaded.settings.labels.histology == "ignore":
        problem = (
            f"no region has a score, and the histology of {proven} regions is left out "
            "(labels.histology: ignore)"
        )
        hint = f"set labels.histology: override to learn from histology; or {hint}"
    return CadError(problem, file=loaded.cohort.root, hint=hint)


def _not_validated(loaded: Loaded, aggregated: Aggregated) -> Judged:
    """Return the result for settings that ask for no validation: every probability is NaN."""
    unknown = np.full(len(aggregated.table.y), np.nan)
    labels = aggregated.table.labels.assign(belief=unknown)
    risk = validated_risk(labels, unknown, loaded.settings.validate_.seed)
    scored = risk.regions.assign(belief=unknown, decision_value=unknown)
    thresholds = loaded.settings.decision.thresholds
    note = "not validated: validate.scheme is 'none'"
    results, summary = judge(loaded, aggregated, scored, patient_level=PatientLevel(note=note))
    n_cohort = aggregated.own_rows
    patients = np.unique(aggregated.table.groups[:n_cohort])
    return Judged(
        results=results,
        summary=summary,
        explanations=[],
        failures=[],
        notes=[note],
        timings={},
        thresholds=thresholds,
        lower=np.full(n_cohort, thresholds[0]),
        upper=np.full(n_cohort, thresholds[1]),
        simulated=aggregated.simulated,
        men=risk.men.loc[patients].assign(lower=thresholds[0]),
    )


def _chosen_thresholds(
    loaded: Loaded, aggregated: Aggregated, probability: np.ndarray
) -> tuple[operating.OperatingChoice | None, list[str]]:
    """Choose the thresholds with which decisions reach the predictive values that a site aims at.

    Return the thresholds, and notes. The thresholds are None if the site aims at no predictive
    value. They are also None if the aim cannot be pursued; a note then says why. In either case the
    thresholds of the run follow from the costs of errors.
    """
    settings = loaded.settings.decision
    table = aggregated.table
    if settings.aim_npv is None and settings.aim_ppv is None:
        return None, []
    truth = table.labels["truth"].to_numpy(float)
    try:
        return operating.choose_operating_point(truth, probability, table.groups, settings), []
    except CadError as error:  # the cohort has no histology yet, but can still be scored
        return None, [f"{operating.COSTS_INSTEAD}: {error.problem}"]


def _validated_rivals(
    loaded: Loaded, aggregated: Aggregated, folds: OutOfFold, groups: np.ndarray
) -> RivalTable | None:
    """Return a comparison of the learner with other learners (rivals) on the learner's own folds.

    The result is None where the learner has no probabilities.
    """
    table = aggregated.table
    settings = loaded.settings
    if not np.isfinite(folds.probability).any():
        return None
    # The rivals get the steps before the learner that were fitted in each fold. A grid search may
    # have given these steps other parameters than the settings state.
    steps_before_learner = {}
    for fold in folds.folds:
        # A fold has no estimator if its fit failed, or if the estimators were not kept.
        if isinstance(fold.estimator, Pipeline):
            steps_before_learner[fold.name] = fold.estimator[:-1]
    compared = compare_with_rivals(
        settings.learner.name,
        folds.probability,
        rival_learners(len(table.keys)),
        aggregated.source,
        table.y,
        groups,
        eta=table.spread,
        front=front_steps(settings),
        fronts=steps_before_learner,
        target=table.labels["p"].to_numpy(float),
        truth=table.labels["truth"].to_numpy(float),
        patients=table.groups,
        relabel=aggregated.relabel,
        centred=folds.centred,
        of_histology=histology_rivals(len(table.keys)),
        n_jobs=loaded.options.processes,
    )
    return {
        "reference": compared.reference,
        "sentence": compared.sentence,
        "table": compared.table.to_dict("records"),
    }


def _rows_without_image(loaded: Loaded, aggregated: Aggregated) -> dict[int, list[str]]:
    """Return the rows that lack an image which other rows have, with the images that they lack."""
    X = aggregated.table.X
    features = loaded.settings.features
    rows = lacking(X, features.modalities, columns_of(features))
    # The learner uses no image that is missing in every region. So such an image does not count as
    # lacking.
    lacking_everywhere = set.intersection(*map(set, rows))
    lacking_images = {}
    for row, images_of_row in enumerate(rows):
        images = [image for image in images_of_row if image not in lacking_everywhere]
        if images:
            lacking_images[row] = images
    return lacking_images


def _failures_of_regions_without_image(
    loaded: Loaded,
    aggregated: Aggregated,
    lacking_images: Mapping[int, list[str]],
    measuring: Sequence[Failure],
) -> list[Failure]:
    """Return a failure for every region of the cohort that lacks an image.

    ``lacking_images`` has the images that a row lacks, by the row's number. ``measuring`` are the
    failures of the measurement, which explain why an image is lacking.
    """
    keys = aggregated.table.keys
    # Rows from ``own_rows`` on are not of this cohort, but of the training of an extended model.
    lacking_in_cohort = {
        row: images for row, images in lacking_images.items() if row < aggregated.own_rows
    }
    reasons_of_rows = {}
    gaps_of = partial(study_gaps, loaded.folder)
    for row, reason in reasons(gaps_of, keys, lacking_in_cohort, measuring).items():
        images = " and ".join(lacking_in_cohort[row])
        reasons_of_rows[row] = f"the learner needs {images} features and {reason}"
    return failures_of(keys, reasons_of_rows, "validate", _HINT_TO_DRAW)


def _failures_of_folds(aggregated: Aggregated, folds: OutOfFold) -> list[Failure]:
    """Return a failure for every region whose fold could not be fitted."""
    errors = {}
    for fold in folds.folds:
        if fold.error:
            errors.update(dict.fromkeys(fold.rows.tolist(), fold.error))
    return failures_of(aggregated.table.keys, errors, "validate", "")


def _explanations_of_folds(
    loaded: Loaded, aggregated: Aggregated, folds: OutOfFold
) -> list[ExplanationRow]:
    """Return the explanations of all regions that a fold predicted."""
    table = aggregated.table
    source = aggregated.source
    has_value = np.isfinite(folds.probability) | np.isfinite(folds.decision)
    is_explained = has_value.copy()
    is_explained[_unexplained_rows(loaded, len(has_value))] = False
    labelled_rows = np.flatnonzero(table.labelled)
    feature_names = list(table.X.columns)
    arguments_of_folds = (
        (fold, is_explained, labelled_rows, source, feature_names, table.keys)
        for fold in folds.folds
    )
    rows = []
    for rows_of_fold in each_piece(_explain_fold, arguments_of_folds, loaded.options.processes):
        rows += rows_of_fold
    return rows


def _unexplained_rows(loaded: Loaded, n: int) -> np.ndarray:
    """Return the numbers (from 0) of those of ``n`` rows for which no explanation is computed.

    In a cohort all regions are explained. In a user's own table with more than
    :data:`MOST_EXPLAINED` rows, only :data:`MOST_EXPLAINED` rows are explained.
    """
    if not loaded.table_columns or n <= MOST_EXPLAINED:
        return np.array([], dtype=int)
    # The explained rows are spread evenly over the table. So all sites and months of the table are
    # among them.
    explained = np.linspace(0, n - 1, MOST_EXPLAINED).round().astype(int)
    return np.setdiff1d(np.arange(n), explained)


def _explanation_notes(loaded: Loaded, n: int) -> list[str]:
    """Return a note where only some regions of a large table are explained."""
    if not len(_unexplained_rows(loaded, n)):
        return []
    return [f"{MOST_EXPLAINED:,} of {n:,} regions are explained, evenly over the table"]


def _explain_fold(
    fold: Fold,
    is_explained: np.ndarray,
    labelled: np.ndarray,
    source: FoldFeatures,
    names: list[str],
    keys: pd.DataFrame,
) -> list[ExplanationRow]:
    """Return the explanations of those regions of one fold that are to be explained.

    ``is_explained`` says so for each row of the table, and ``labelled`` has the numbers of the rows
    with a label. The list is empty where the fold's estimator was not fitted or not kept.
    """
    rows = fold.rows[is_explained[fold.rows]]
    if not len(rows) or fold.estimator is None:
        return []
    # The average region, with which the predicted regions are compared, is computed from the
    # training rows of the fold: all labelled rows that the fold does not predict.
    training = np.setdiff1d(labelled, fold.rows)
    X = source(training)
    columns = columns_of(source.settings.features)
    return explanation_rows(fold.estimator, X[training], X[rows], names, keys.iloc[rows], columns)


def _measured_skill(aggregated: Aggregated) -> SkillTable | None:
    """Measure how good each reader is, and find readers who add nothing to the others.

    The result is None without readers.
    """
    if aggregated.grades.empty:
        return None
    cohort_labels = aggregated.table.labels.iloc[: aggregated.own_rows]
    grades, readers = grade_matrix(aggregated.grades, cohort_labels)
    truth = cohort_labels["truth"].to_numpy(float)
    patients = cohort_labels["participant_id"].to_numpy(str)
    table, sentence, against = reader_skill(grades, readers, truth, patients)
    return {"against": against, "sentence": sentence, "table": table.to_dict("records")}


def _disagreement(loaded: Loaded, aggregated: Aggregated) -> Disagreement | None:
    """Measure whether it helps the learner to know how far readers disagree.

    The result is None in three cases: no region has several readers, the setting ``labels.eta`` is
    a constant, or the learner does not use the disagreement.
    """
    table = aggregated.table
    has_several_readers = (table.labels["n_readers"] > 1).to_numpy()
    if loaded.settings.labels.eta != "adaptive" or not has_several_readers.any():
        return None
    return measure_disagreement(
        make_estimator(loaded.settings),
        aggregated.source,
        table.labels["p"].to_numpy(float),
        table.spread,
        patients=table.groups,
        seed=loaded.settings.validate_.seed,
    )


def _cohort_warnings(aggregated: Aggregated, rivals: RivalTable | None) -> list[str]:
    """Return warnings where the cohort does not meet the assumptions of intervals and tests."""
    cohort_labels = aggregated.table.labels.iloc[: aggregated.own_rows]
    grades = aggregated.grades
    return broken_promises(
        cohort_labels["participant_id"],
        cohort_labels["p"],
        cohort_labels["truth"],
        None if grades.empty else grade_matrix(grades, cohort_labels)[0],
        None if rivals is None else pd.DataFrame(rivals["table"]),
    )


def _null_of_validation(
    loaded: Loaded, aggregated: Aggregated, has_all_images: np.ndarray
) -> PermutationNull | None:
    """Repeat the whole validation under permuted labels, if the settings ask for it.

    ``has_all_images`` says which rows get a probability. Only their histology is compared with
    probabilities.
    """
    settings = loaded.settings.validate_
    table = aggregated.table
    if settings.permutations == 0:
        return None
    # A permutation gives a region the whole label of another region, so that the agreement between
    # readers stays the same. A consensus rule that learns from histology would have to be fitted
    # again to each permutation.
    if aggregated.relabel is not None and loaded.settings.labels.consensus != "agreement":
        raise CadError(
            f"labels.consensus {loaded.settings.labels.consensus!r} learns labels in every fold, "
            "and the permutation null shuffles what they are learned from",
            hint="set validate.permutations: 0, or labels.consensus: agreement",
        )
    return permutation_null(
        make_estimator(loaded.settings),
        aggregated.source,
        table.y,
        np.where(has_all_images, table.labels["truth"].to_numpy(float), np.nan),
        groups=left_out_together(loaded, aggregated),
        n=settings.permutations,
        eta=table.spread,
        patients=table.groups,
        seed=settings.seed,
        n_jobs=loaded.options.processes,
    )
