"""Reproduce [N14] Tables III to VI and the table of [N13] on a cohort of patients.

Learners that are not in the papers are measured as well. As in the papers, cancer of any grade
counts as malignant. The papers pool the probabilities of all folds for the AUC. Here the base
log-odds of each fold are subtracted before (``OutOfFold.shifted``), because on noise the papers'
AUC lies below one half. The spread of a fold's model, by which ``OutOfFold.centred`` divides, is
left as it is, so that the tables stay as near to the papers' as a sound AUC allows.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from cad.base.settings import PipelineSettings, read_settings
from cad.base.share import find
from cad.base.terms.beside import table_beside
from cad.base.terms.text import interval_text
from cad.base.transactions import claimed
from cad.evidence.experiments import Options
from cad.evidence.experiments.results import Result
from cad.evidence.phantom import simulate
from cad.folders.cohort import COHORT, read_cohort
from cad.learning.evaluation.folds.compare import compare_learners, paper_sign_test
from cad.learning.evaluation.folds.crossval import OutOfFold, out_of_fold
from cad.learning.evaluation.measures import metrics
from cad.learning.evaluation.measures.intervals import bootstrap, clustered_auc
from cad.learning.evaluation.measures.table import MEASURES, Cases
from cad.run.execution.options import ExecutionOptions
from cad.run.model.estimator import make_estimator
from cad.run.pipeline import aggregate_cohort
from cad.run.stages.aggregate import Table

PATIENTS = 49
GRID = {"C": [1.0, 3.0, 10.0, 30.0], "gamma": [0.00003, 0.0001, 0.0003, 0.001]}
# Values of the hyper-parameters that are tried if groups of patients are left out, and not single
# patients: fewer values than in GRID, to save time.
SHORT_GRID = {"C": [1.0, 10.0], "gamma": [0.00003, 0.0003]}
SHORT_FOLDS = 3
SWAPS = 1000
_TABLES = table_beside(__file__)
SOFT: dict[str, str] = _TABLES["soft"]
"""Learners that learn from the same soft labels (probabilities) as the P-SVM, but without tubes.

A tube is the interval p ± eta, inside which a prediction of the P-SVM costs nothing.
"""
METHODS = {"P-SVM": "ProbabilisticSVC", "SVM": "PlattSVC", "F-SVM": "FuzzySVC", **SOFT}
SHIPPED = "P-SVM as shipped (pipelines/psvm.yaml)"
TUNED = "everybody tuned"
PAPER = "everybody at σ = 2⁵, C = 2¹³"
# Tables III and IV of [N14] use the scores of one reader, the declared expert. Tables V and VI use
# the scores of all readers.
READINGS = {"expert": ("III", "IV"), "all": ("V", "VI")}
ETA: dict[str, float | str] = {"expert": 0.125, "all": "adaptive"}
WIDTHS: tuple[float | str, ...] = ("adaptive", 0.125, 0.05, 0.02)
# [N13] trains and tests on histology. All labels are then certain, so that the P-SVM is an ordinary
# SVM.
ON_TRUTH = "N13, learned from histology"
_NAMES: dict[str, str] = _TABLES["measures"]
# Measures by which the paper tests whether the P-SVM is better than another method: 1 if larger
# values are better, -1 if smaller ones.
_TESTED = {"AUC": 1, "Acc": 1, "KL": -1, "KL one-sided": -1, "Err": -1}
_PUBLISHED = pd.DataFrame(_TABLES["rows"], columns=_TABLES["columns"])
_WORDS = _TABLES["words"]


def clinical(options: Options) -> Result:
    """Train each method on one or all readers' scores; test it on scores and on histology.

    Parameters
    ----------
    options : Options
        ``data`` is the folder of a cohort; without it a cohort is simulated in ``out``. With
        ``repeats`` the patients are dealt into that many groups. Each group is then left out in
        turn, and fewer parameters are tried. Without ``repeats`` every patient is left out in turn.

    Returns
    -------
    Result
        Four tables: the measures of each method, learners that learned from scores beside learners
        that learned from histology, the width of the P-SVM's tubes, and the numbers that the paper
        published for another cohort.
    """
    cohort = options.data
    if cohort is None:
        # A cohort that an earlier call has simulated here is used again.
        cohort = options.out / "cohort"
        with claimed(cohort, COHORT):
            cohort_exists = (cohort / "dataset_description.json").is_file()
        if not cohort_exists:
            simulate(cohort, patients=PATIENTS, seed=options.first_seed)
    rows: list[dict[str, object]] = []
    tuned: dict[str, OutOfFold] = {}
    for readers in READINGS:
        settings, regions = _labelled(cohort, readers, ETA[readers], options)
        for block in (TUNED, PAPER):
            predictions = _block(settings, regions, block, options)
            rows += _rows_of_methods(regions, readers, block, predictions)
            if block == TUNED:
                tuned[readers] = predictions["P-SVM"]
    on_truth, learned = _on_truth(cohort, tuned, options)
    table = pd.DataFrame([*rows, on_truth])
    widths = _widths_of_tubes(cohort, options)
    simulated = read_cohort(cohort).simulated
    groups = f"{options.repeats} groups of patients (grid {SHORT_GRID})"
    return Result.of_words(
        _WORDS["page"],
        {
            "Measured": table.drop(columns=["patients", "regions"]),
            "Learned from scores or from histology, tested on histology": learned,
            "Width of the P-SVM's tubes, Table V": widths,
            "Published, another cohort": _PUBLISHED,
        },
        cohort="Simulated cohort" if simulated else "Cohort",
        patients=rows[0]["patients"],
        regions=len(regions.y),
        scored=rows[0]["regions"],
        left_out=groups if options.repeats else "patients",
        finding=_finding_on_kl(table),
        widths=_widths_said(widths),
    )


def _block(
    settings: PipelineSettings, regions: Table, block: str, options: Options
) -> dict[str, OutOfFold]:
    """Return the out-of-fold predictions of every method, by its name.

    ``block`` says where the methods' parameters come from: each method is tuned on inner folds, or
    each gets the parameters of the paper.
    """
    if block == TUNED:
        chosen = {}
        for method, learner in METHODS.items():
            chosen[method] = _tuned(settings, learner, options)
        chosen[SHIPPED] = _of_pipeline(settings, "psvm")
    else:
        paper = _of_pipeline(settings, "niaf2014")
        chosen = {"P-SVM": paper}
        for method in ("SVM", "F-SVM", "Platt on soft targets", "logistic on soft labels"):
            # These methods get only C and gamma of the paper's P-SVM. Other parameters of the P-SVM
            # (the tubes and the rule for labels at 0 and 1) do not exist in them.
            params = {name: paper.learner.params[name] for name in ("C", "gamma")}
            update = {"name": METHODS[method], "params": params}
            with_params = paper.learner.model_copy(update=update)
            chosen[method] = paper.model_copy(update={"learner": with_params})
    predictions = {}
    for method, candidate in chosen.items():
        predictions[method] = _left_out_predictions(candidate, regions, options)
    return predictions


def _rows_of_methods(
    regions: Table, readers: str, block: str, q: dict[str, OutOfFold]
) -> list[dict[str, object]]:
    """Return two rows for each method: its measures against readers' scores, and against histology.

    ``q`` has the out-of-fold predictions by method. ``readers`` and ``block`` say from whose scores
    the methods learned, and where their parameters come from.
    """
    against_scores, against_histology = READINGS[readers]
    rows = []
    for method, predictions in q.items():
        for table, target in ((against_scores, "p"), (against_histology, "truth")):
            row: dict[str, object] = {"table": table, "settings": block, "method": method}
            row |= _measures_against(regions, target, predictions)
            row |= _papers_p(regions, target, q["P-SVM"], predictions)
            row |= _swapped_p(regions, target, q["P-SVM"], predictions)
            rows.append(row)
    return rows


def _on_truth(
    cohort: Path, from_scores: dict[str, OutOfFold], options: Options
) -> tuple[dict[str, object], pd.DataFrame]:
    """Return the measures of a P-SVM that was trained on histology, and a table of comparisons.

    The table compares its AUC on histology with that of the P-SVMs that were trained on readers'
    scores.
    """
    settings, regions = _labelled(cohort, "all", "adaptive", options, histology="override")
    tuned = _tuned(settings, METHODS["P-SVM"], options)
    by_histology = _left_out_predictions(tuned, regions, options)
    truth = regions.labels["truth"].to_numpy(float)
    rows: list[dict[str, object]] = []
    for readers, name in (("expert", "the expert's scores"), ("all", "all readers' scores")):
        by_scores = from_scores[readers]
        comparison = compare_learners(
            {"scores": by_scores.probability, "histology": by_histology.probability},
            truth,
            regions.groups,
            centred={"scores": by_scores.shifted, "histology": by_histology.shifted},
            measures=("auc",),
        ).iloc[0]
        interval = f"[{comparison['lower']:.3f}, {comparison['upper']:.3f}]"
        rows.append(
            {
                "learned from": name,
                "AUC": _measures_against(regions, "truth", by_scores)["AUC"],
                "difference from histology": f"{comparison['difference']:.3f} {interval}",
                "p (patients swapped)": comparison["p_permutation"],
            }
        )
    measures = _measures_against(regions, "truth", by_histology)
    rows.append({"learned from": "histology", "AUC": measures["AUC"]})
    return {"table": ON_TRUTH, "method": "P-SVM", **measures}, pd.DataFrame(rows)


def _swapped_p(table: Table, target: str, ours: OutOfFold, other: OutOfFold) -> dict[str, float]:
    """Return, by measure, the p-value of a permutation test of two learners.

    In each permutation the predictions of the two learners are swapped in random patients.
    """
    target_values = table.labels[target].to_numpy(float)
    truth = np.where(np.isfinite(target_values), target_values > 0.5, np.nan)
    if ours is other:  # a learner does not differ from itself, and swapping changes nothing
        return {f"p ({name})": 1.0 for name in _TESTED}
    comparison = compare_learners(
        {"own": ours.probability, "other": other.probability},
        truth,
        table.groups,
        target=target_values,
        centred={"own": ours.shifted, "other": other.shifted},
        measures=tuple(_NAMES[name] for name in _TESTED),
        resamples=SWAPS,
    ).set_index("measure")
    p = {}
    for name in _TESTED:
        p[f"p ({name})"] = float(comparison.at[_NAMES[name], "p_permutation"])
    return p


def _papers_p(table: Table, target: str, ours: OutOfFold, other: OutOfFold) -> dict[str, float]:
    """Return p-values, by measure, of the sign test of [N14] IV that the P-SVM is better.

    ``ours`` has the predictions of the P-SVM, and ``other`` those of the learner with which it is
    compared.
    """
    all_targets = table.labels[target].to_numpy(float)
    judged = np.isfinite(all_targets)
    judged &= np.isfinite(ours.probability) & np.isfinite(other.probability)
    targets = all_targets[judged]

    def test(name: str) -> float:
        """Return the p-value of one measure."""
        measure = MEASURES[_NAMES[name]]
        sign = _TESTED[name]

        def value(learner: OutOfFold, rows: np.ndarray) -> float:
            """Return the measure of a learner on resampled rows; a larger value is better."""
            q = learner.probability[judged]
            centred = learner.shifted[judged]
            return sign * measure(_cases_against(targets[rows], q[rows], centred[rows]))

        return paper_sign_test(lambda rows: (value(ours, rows), value(other, rows)), len(targets))

    return {f"paper's p ({name})": test(name) for name in _TESTED}


def _widths_of_tubes(cohort: Path, options: Options) -> pd.DataFrame:
    """Measure how the width of the P-SVM's tubes changes the results of Table V of [N14].

    A tube is the interval p ± eta, inside which a prediction costs nothing. The result has a row
    for each width eta.
    """
    rows = []
    for eta in WIDTHS:
        settings, regions = _labelled(cohort, "all", eta, options)
        tuned = _tuned(settings, METHODS["P-SVM"], options)
        predictions = _left_out_predictions(tuned, regions, options)
        measured = _measures_against(regions, "p", predictions)
        readers_mean = regions.labels["p"].to_numpy(float)
        distance = float(np.nanmean(np.abs(predictions.probability - 0.5)))
        readers_distance = float(np.nanmean(np.abs(readers_mean - 0.5)))
        rows.append(
            {
                "η": str(eta),
                "AUC": measured["AUC"],
                "KL": measured["KL"],
                "mean distance of the probability from ½": distance,
                "of the readers' mean": readers_distance,
            }
        )
    return pd.DataFrame(rows)


def _widths_said(widths: pd.DataFrame) -> str:
    """Return sentences on what the width of the P-SVM's tubes costs.

    They also say why a learner without tubes may be closer to the labels.
    """
    distance = widths["mean distance of the probability from ½"]
    # A cell of the column KL has the value and its interval, such as "52.1 [40.2, 66.3]".
    kl = widths["KL"].astype(str).str.split(" ").str[0].astype(float)
    return str(_WORDS["widths"]).format(
        reach=distance.iloc[[0, -1]].to_list(),
        readers=widths["of the readers' mean"].iloc[0],
        kl=(kl.iloc[0], kl.iloc[-1]),
        lowest=kl.min(),
        eta=widths.at[kl.idxmin(), "η"],
    )


def _labelled(
    cohort: Path, readers: str, eta: float | str, options: Options, histology: str = "ignore"
) -> tuple[PipelineSettings, Table]:
    """Return settings with the given rule for labels, and the cohort's regions with these labels.

    ``readers`` says whose scores make the labels, ``eta`` how wide the tubes are, and ``histology``
    whether histology takes the place of scores.
    """
    base = read_settings(PipelineSettings, find("pipelines", "psvm", ".yaml"))
    chosen = {"readers": readers, "eta": eta, "histology": histology, "isup_min": 1}
    labels = base.labels.model_copy(update={**chosen, "eta0": 0.125, "kappa": 1.0})
    settings = base.model_copy(update={"labels": labels})
    out = options.out / "features"
    table = aggregate_cohort(settings, cohort, out, ExecutionOptions(options.jobs)).table
    if options.shuffled:
        table = _shuffled(table, options.first_seed)
    return settings, table


def _shuffled(table: Table, seed: int) -> Table:
    """Return a table in which each region has the scores and histology of another region."""
    order = np.random.default_rng(seed).permutation(len(table.y))
    labels = table.labels.iloc[order].reset_index(drop=True)
    return replace(table, y=table.y[order], spread=table.spread[order], labels=labels)


def _left_out_predictions(settings: PipelineSettings, table: Table, options: Options) -> OutOfFold:
    """Return predictions for all regions, each by a model that did not see its patient."""
    return out_of_fold(
        make_estimator(settings),
        table.X.to_numpy(float),
        table.y,
        groups=_groups_left_out(table.groups, options.repeats),
        patients=table.groups,
        eta=table.spread,
        n_jobs=options.jobs,
    )


def _groups_left_out(patients: np.ndarray, folds: int | None) -> np.ndarray:
    """Return for each row the name of the group with which it is left out.

    Without ``folds`` each patient is a group of his own. With ``folds`` the patients are dealt into
    that many groups, which saves time.
    """
    if folds is None:
        return patients
    _, patient_numbers = np.unique(patients, return_inverse=True)
    return np.array([f"group {number:02d}" for number in patient_numbers % folds])


def _of_pipeline(base: PipelineSettings, name: str) -> PipelineSettings:
    """Return the settings with the learner of a released pipeline and its rule for labels."""
    shipped = read_settings(PipelineSettings, find("pipelines", name, ".yaml"))
    # The paper's table says whose scores are used. The released pipeline says by which rule labels
    # are made of the scores.
    labels = shipped.labels.model_copy(update={"readers": base.labels.readers, "isup_min": 1})
    return base.model_copy(update={"learner": shipped.learner, "labels": labels})


def _tuned(base: PipelineSettings, learner: str, options: Options) -> PipelineSettings:
    """Return the settings with a learner whose C and gamma are chosen on inner folds."""
    from cad.learning.learners import LEARNERS

    params = LEARNERS[learner]().get_params()
    saves_time = options.repeats is not None
    grid = SHORT_GRID if saves_time else GRID
    update: dict[str, object] = {
        "name": learner,
        "params": {},
        # A learner without a kernel, for example, has no gamma.
        "grid": {name: values for name, values in grid.items() if name in params},
    }
    if saves_time:
        update["inner_folds"] = SHORT_FOLDS
    tuned = base.learner.model_copy(update=update)
    return base.model_copy(update={"learner": tuned})


def _measures_against(table: Table, target: str, predictions: OutOfFold) -> dict[str, object]:
    """Return the measures of predictions against a column of labels, as text with 95 % intervals.

    ``target`` is ``p``, the readers' scores, or ``truth``, histology.
    """
    judged = table.labels[target].notna().to_numpy() & np.isfinite(predictions.probability)
    targets = table.labels[target].to_numpy(float)[judged]
    cases = _cases_against(targets, predictions.probability[judged], predictions.shifted[judged])
    patients = table.groups[judged]
    # Whole patients are drawn again and again. With all weights 1, the measures are those of the
    # regions themselves.
    ends = bootstrap(lambda weight: _measures_of_draws(cases, weight), patients, 1000, 0)
    values = _measures_of_draws(cases, np.ones((1, len(targets))))[0]
    measures: dict[str, object] = {
        "patients": len(np.unique(patients)),
        "regions": len(targets),
        "AUC": interval_text(clustered_auc(cases.truth, cases.ranking, patients)),
    }
    for name, value, (low, high) in zip(_NAMES, values, ends, strict=True):
        if name != "AUC":  # the AUC has an interval already, by the jackknife
            measures[name] = f"{value:.3g} [{low:.3g}, {high:.3g}]"
    return measures


def _measures_of_draws(cases: Cases, weight: np.ndarray) -> np.ndarray:
    """Return the measures of ``_NAMES``, shape (draws, measures), for each draw of weights."""
    return np.stack([MEASURES[key].draws(cases, weight) for key in _NAMES.values()], axis=1)


def _cases_against(t: np.ndarray, q: np.ndarray, centred: np.ndarray) -> Cases:
    """Return regions with their target ``t`` and their prediction ``q``, for the measures."""
    return Cases(metrics.consensus_truth(t)[0], t, q, np.arange(len(t)), True, centred)


def _finding_on_kl(table: pd.DataFrame) -> str:
    """Return a sentence for each table against readers' scores: the KL of the three methods."""
    sentences = []
    # The row of ON_TRUTH belongs to no block of settings.
    for (name, block), rows in table.dropna(subset="settings").groupby(["table", "settings"]):
        if name in ("III", "V"):
            # A cell has the value and its interval, such as "52.1 [40.2, 66.3]".
            kl = rows.set_index("method")["KL"].str.split(" ").str[0].astype(float)
            sentences.append(
                f"Table {name}, {block}: two-sided KL {kl['P-SVM']:.3g} of the P-SVM against "
                f"{kl['SVM']:.3g} of the SVM and {kl['F-SVM']:.3g} of the F-SVM; lowest: "
                f"{kl.idxmin()}."
            )
    return " ".join(sentences)
