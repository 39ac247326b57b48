"""Make the sentences about a run, under the names that ``checklists.yaml`` uses for them."""

from collections.abc import Callable
from math import isnan

from cad.base.terms.measures import MEASURES
from cad.base.terms.text import interval_text
from cad.learning.evaluation.statements.run_facts import UNKNOWN, Json, RunFacts, digits3

_SCALERS = {
    "RankScaler": "ranks among the training regions",
    "QuantileTransformer": "ranks among the training regions",
    "ClippedScaler": "mean 0, variance 1, clipped at ±3",
    "StandardScaler": "mean 0, variance 1",
}
_NO_FEATURES = "The number of features is not recorded."


def listed(section: Json) -> str:
    """Return a section of settings as a text of one line, such as ``bins 32, distance 1``.

    Parameters
    ----------
    section : mapping
        Values of settings, by name.

    Returns
    -------
    str
        The text; "not recorded" for an empty section.

    Examples
    --------
    >>> listed({"bins": 32, "distance": 1})
    'bins 32, distance 1'
    """
    texts = [f"{name} {value}" for name, value in section.items()]
    return ", ".join(texts) or "not recorded"


def _learner_name(facts: RunFacts) -> str:
    """Return the name of the fitted learner."""
    return facts.fitted.get("learner") or f"a learner {UNKNOWN}"


def _model(facts: RunFacts) -> str:
    """Return the sentence on the learner, its parameters and the features that it gets."""
    parameters = listed(facts.parameters) if facts.fitted else f"parameters: {UNKNOWN}"
    # The features of a run without images are the columns of a user's table.
    if not facts.pictured:
        columns = facts.counts["features"]
        return f"{_learner_name(facts)} ({parameters}) on {columns} columns of a table."
    modalities = ", ".join(facts.settings("features").get("modalities", []))
    return f"{_learner_name(facts)} ({parameters}) on ROI features ({modalities})."


def _included(facts: RunFacts) -> str:
    """Return the sentence on how many patients, regions and studies the run used."""
    sentence = f"{facts.metrics.n.patients} patients, {facts.metrics.n.rois} ROIs."
    if not facts.pictured:
        return f"{sentence} All rows of the table."
    # A file of an earlier version does not count the studies.
    studies = facts.counts.get("studies")
    if studies is None:
        return sentence
    failed = facts.counts.get("failed", 0)
    return f"{sentence} {studies} studies read, {failed} failed (failures.csv)."


def _missing(facts: RunFacts) -> str:
    """Return the sentences on missing predictions, truths and features."""
    n = facts.metrics.n
    return (
        f"{n.not_predicted} of {n.rois} ROIs have no prediction; histology is known for "
        f"{n.with_histology}, a reader's score for {n.with_consensus}. {_imputation(facts)} "
        "Comparisons use the ROIs where the truth is known."
    )


def _prevalence(facts: RunFacts) -> str:
    """Return the sentences on the share of malignant regions."""
    comparison = facts.comparison
    if comparison is None:
        return "No ROI with a known truth."
    judge = "histology" if facts.metrics.histology else "the readers' consensus"
    # Without any region the share is 0, and not 0 / 0.
    share = comparison.positive / max(comparison.n, 1)
    return (
        f"{comparison.positive} of {comparison.n} ROIs malignant by {judge} ({share:.0%}). "
        "Predictive values hold at this prevalence."
    )


def _partition(facts: RunFacts) -> str:
    """Return the sentence on how the patients were divided for training and testing."""
    if facts.predicted:
        return _external_testing(facts)
    scheme = str(facts.settings("validate").get("scheme", UNKNOWN))
    if scheme == "none":
        return "No partition: nothing was validated."
    if scheme == "patient-folds":
        scheme = f"{facts.settings('validate')['folds']} folds of patients"
    return f"{scheme.capitalize()}: every ROI is predicted by a fit without it."


def _tested(facts: RunFacts) -> str:
    """Return the sentence on the data on which the model was tested."""
    if facts.predicted or not facts.held_out:
        return _partition(facts)
    return "As the rest: every ROI is tested once, by a model that did not see its patient."


def _internal(facts: RunFacts) -> str:
    return "None in this run." if facts.predicted else _partition(facts)


def _external_testing(facts: RunFacts) -> str:
    """Return the sentence on whether a prediction is an external test of its model.

    It is one if no patient was in the model's training.
    """
    # A validation tests on patients of the data from which its models learn. This is no external
    # test.
    if not facts.predicted:
        return "None in this run."
    shared = facts.patients_shared_with_training
    if shared:
        at_least = "at least " if len(facts.models) > 1 else ""
        return (
            f"Not external: {at_least}{shared} of {facts.metrics.n.patients} patients carry ids of "
            "the model's training."
        )
    return "External: no patient carries an id of the model's training; nothing was fitted."


def _disjoint(facts: RunFacts) -> str:
    """Return what the parts of the data do not share: patients or sites."""
    if not facts.held_out:
        return "Nothing: the parts are not disjoint."
    if facts.predicted:
        return "Patient."
    if facts.settings("validate").get("scheme") == "leave-one-site-out":
        return "Site (and so patient)."
    return "Patient. Whatever is fitted is fitted on other patients."


def _reference(facts: RunFacts) -> str:
    """Return the sentence on the truth that predictions are compared with."""
    isup_min = facts.settings("labels").get("isup_min", 1)
    return (
        f"Histology, malignant from ISUP {isup_min}; beside it the mean of the readers' "
        "probabilities, above .5 malignant, ties benign."
    )


def _annotators(facts: RunFacts) -> str:
    """Return the sentences on the readers, and on the labels made of their scores."""
    readers = facts.metrics.readers
    if not readers:
        return "No readers' scores in this run."
    labels = facts.settings("labels")
    counts = []
    for kind, count in facts.metrics.label_kinds.items():
        counts.append(f"{kind.replace('_', ' ')} {count}")
    return (
        f"{len(readers)} readers ({', '.join(readers)}); scores used: "
        f"{labels.get('readers', 'all')}; histology: {labels.get('histology', 'ignore')}. "
        f"Labels: {'; '.join(counts) or 'not counted'}. Their training and experience: a person."
    )


def _variability(facts: RunFacts) -> str:
    """Return the sentences on how well the readers agree."""
    agreement = facts.metrics.agreement
    if agreement is None:
        return "Fewer than two readers: not measured."
    kappas = facts.kappas
    between = f"{min(kappas):.2f} to {max(kappas):.2f}" if kappas else "–"
    icc = agreement["icc"]
    alpha = agreement["krippendorff_alpha"]["interval"]
    return (
        f"Between readers: quadratic weighted kappa {between}, ICC(2,1) {digits3(icc['single'])} "
        f"on {icc['n']} ROIs, Krippendorff's alpha (interval) {digits3(alpha)}. "
        "Within readers: not known."
    )


def _imputation(facts: RunFacts) -> str:
    """Return the sentence on what is put in for missing features."""
    if not facts.fitted:
        return f"Imputation: {UNKNOWN}."
    step = facts.steps.get("SimpleImputer")
    if step is None:
        return "Missing features are not imputed."
    return (
        f"Missing features are imputed by the {step['strategy']} of the patients that the model "
        "was fitted on."
    )


def _scaling(facts: RunFacts) -> str:
    """Return the sentence on how features are scaled."""
    if not facts.fitted:
        return f"Scaling: {UNKNOWN}."
    scalings = [description for name, description in _SCALERS.items() if name in facts.steps]
    # A learner may also scale inside, and weigh several ways of it. "given" stands for a way that
    # was set beforehand.
    weighed = facts.weights.get("scaling", {})
    if any(name != "given" for name in weighed):
        shares = ", ".join(f"{name} {share:.0%}" for name, share in weighed.items())
        scalings.append(f"inside the learner by weight: {shares}")
    return f"{'; '.join(scalings) or 'none'}: fitted with the learner."


def _selection(facts: RunFacts) -> str:
    """Return the sentence on which features are selected."""
    if not facts.fitted:
        return f"Selection: {UNKNOWN}."
    selector = facts.selector
    if selector is None:
        return "No selection."
    return f"{selector['name']} keeps {selector['n_features']} features, fitted with the learner."


def _preprocessing(facts: RunFacts) -> str:
    """Return the sentences on the steps before the learner."""
    sentences = [_imputation(facts)]
    if "VarianceThreshold" in facts.steps:
        sentences.append("Constant columns are dropped.")
    sentences.append(f"Scaling: {_scaling(facts)}")
    sentences.append(_selection(facts))
    return " ".join(sentences)


def _tuning(facts: RunFacts) -> str:
    """Return the sentences on how the learner's parameters were chosen."""
    fitted = facts.fitted
    if not fitted:
        return f"Tuning: {UNKNOWN}."
    learner = facts.settings("learner")
    grid = fitted.get("grid")
    if not grid and facts.predicted:
        # A bundle (a stored model) has only the best parameters that a search found. The grid of
        # the search is in the settings of the bundle.
        grid = learner.get("grid")
    if not grid and not facts.weights:
        if fitted.get("members"):
            return "Parameters were fixed beforehand."
        return f"No search; whether the learner chooses inside: {UNKNOWN}."
    sentences = []
    if grid:
        folds = fitted.get("inner_folds") or learner.get("inner_folds")
        criterion = fitted.get("criterion") or learner.get("criterion")
        sentences.append(
            f"Chosen by {folds} inner folds of patients ({criterion}): {listed(grid)}."
        )
    if facts.weights:
        weighed = []
        # A parameter with one value only was not weighed.
        for name, values in facts.weights.items():
            if len(values) > 1:
                weighed.append(name)
        sentences.append(
            f"Weighed by {facts.parameters.get('folds')} inner folds of patients "
            f"(cross-entropy): {', '.join(weighed) or 'one setting'}."
        )
    return " ".join(sentences)


def _ensembling(facts: RunFacts) -> str:
    """Return the sentence on the machines and trees whose predictions are averaged."""
    members = facts.fitted.get("members")
    n_trees = facts.fitted.get("trees")
    trees = f"{n_trees} randomised trees" if n_trees else ""
    if not members:
        return f"{trees}, averaged." if trees else f"Ensembling: {UNKNOWN}."
    # Only a learner that averages machines of different settings has weights.
    if not facts.weights:
        return "None: one machine."
    # The smallest and the largest number of machines in a fit; if they are equal, it is told once.
    numbers = " to ".join(str(number) for number in dict.fromkeys(members))
    and_trees = f", and {trees} beside them" if trees else ""
    return (
        f"{numbers} machines of different settings a fit, averaged by what each predicts on inner "
        f"folds{and_trees}."
    )


def _start(facts: RunFacts) -> str:
    """Return the sentence on how the learner's computation starts."""
    start = facts.fitted.get("start") or ""
    if not start:
        return f"Initialisation: {UNKNOWN}."
    sentence = "Convex problems: the start does not matter" if "convex" in start else "Drawn"
    # The text is "convex", a seed, or both with a semicolon between them.
    seed = start.removeprefix("convex").removeprefix("; ")
    if seed:
        sentence = f"{sentence}; {seed}"
    return f"{sentence}."


def _bundle_of_model(facts: RunFacts) -> str:
    """Return the sentence on the stored models that the run used."""
    if not facts.models:
        return "A bundle where `cad train` was asked for one."
    models = []
    for name, model in facts.models.items():
        models.append(f"{name} (sha256 {str(model.get('sha256'))[:16]})")
    return f"Model bundle {', '.join(models)}."


def _explained(facts: RunFacts) -> str:
    """Return the sentence on how many regions are explained."""
    count = facts.counts.get("explained")
    if count is None:
        return f"Explanations: {UNKNOWN}."
    if count == 0:
        return "No ROI is explained."
    return f"{count} ROIs have the features that moved the decision value most (explanations.csv)."


def _cad_version(facts: RunFacts) -> str:
    return str(facts.run.get("cad_version", "?"))


def _software(facts: RunFacts) -> str:
    """Return the releases of the program and of the libraries."""
    releases = [f"cad {_cad_version(facts)}"]
    for name, release in (facts.run.get("versions") or {}).items():
        releases.append(f"{name} {release}")
    return ", ".join(releases)


def _significance(facts: RunFacts) -> str:
    """Return the sentences on the intervals, and on the test with permuted labels."""
    resamples = facts.settings("validate").get("bootstraps", 0)
    intervals = (
        "AUC: 95 % interval of jackknifed patients (logit scale, t); rates at a threshold: exact "
        "at the effective number of regions (Korn and Graubard); others: patient bootstrap "
        f"({resamples} resamples); DeLong is given as ROI-level."
    )
    null = facts.metrics.null
    if null is None:
        return f"{intervals} No permutation null was run (validate.permutations)."
    schemes = "; ".join(f"{name}: {scheme.evidence}" for name, scheme in null.schemes.items())
    return f"{intervals} Permutation null of the whole loop, {null.n} each: {schemes}."


def _failures(facts: RunFacts) -> str:
    """Return the sentences on failed studies and folds, and on wrong predictions."""
    failed = []
    for fold in facts.metrics.folds:
        if fold.error:
            failed.append(f"{fold.name} ({fold.error})")
    sentences = [
        "Studies and ROIs that failed: failures.csv.",
        f"Folds that failed: {'; '.join(failed) or 'none'}.",
    ]
    histology = facts.metrics.histology
    if histology is not None and histology.operating_points:
        # The three operating points have these thresholds, in this order: the lower threshold of
        # the decision, .5, and the upper threshold.
        at_one_half = histology.operating_points[1]
        sentences.append(
            f"At .5: {at_one_half['fp']} false positives, {at_one_half['fn']} false negatives."
        )
    if facts.pictured:
        sentences.append("Each patient's page shows its ROIs.")
    return " ".join(sentences)


def _measured_values(facts: RunFacts) -> str:
    """Return the titles of the measures that could be computed."""
    if facts.comparison is None:
        return "Nothing could be measured."
    titles = ["AUC"]
    for name, measure in MEASURES.items():
        interval = facts.comparison.measures.get(name)
        if interval is not None and not isnan(interval.value):
            titles.append(measure.title)
    return f"{', '.join(titles)}."


def _operating(facts: RunFacts) -> str:
    """Return the thresholds at which rates are measured."""
    points = facts.comparison.operating_points if facts.comparison else []
    return ", ".join(f"{point['threshold']:.3g}" for point in points) or "no threshold"


def _calibration(facts: RunFacts) -> str:
    """Return the sentence on intercept, slope and Brier score."""
    if facts.comparison is None:
        return "Not measured."
    measures = facts.comparison.measures
    return (
        f"Calibration intercept {interval_text(measures.get('calibration_intercept'))}, "
        f"slope {interval_text(measures.get('calibration_slope'))}, "
        f"Brier {interval_text(measures.get('brier'))}."
    )


def _auc_text(facts: RunFacts) -> str:
    """Return the sentences on the AUC, the calibration and the scale of ranks."""
    if facts.comparison is None:
        return "None."
    measured = f"AUC {interval_text(facts.comparison.auc)}. {_calibration(facts)}"
    # The note is empty for a prediction, whose ranks need no other scale.
    return " ".join(filter(None, [measured, facts.metrics.scale_note()]))


def _image_settings(facts: RunFacts) -> str:
    return listed(facts.settings("images"))


def _image_kinds(facts: RunFacts) -> str:
    """Return the kinds of images and the filters from which features come."""
    features = facts.settings("features")
    kinds = list(features.get("modalities") or [UNKNOWN])
    for image, filters in (features.get("filters") or {}).items():
        if filters:
            kinds.append(f"{len(filters)} filters of {image}")
    return f"{', '.join(kinds)}."


def _families(facts: RunFacts) -> str:
    """Return the families of features."""
    features = facts.settings("features")
    families = list(features.get("families") or [UNKNOWN])
    families += features.get("radiomics") or []
    return f"{', '.join(families)}."


def _other_predictors(facts: RunFacts) -> str:
    """Return the sentence on features that are no image values."""
    if not facts.pictured:
        return "All columns of features.parquet; what they measure says who made the table."
    families = facts.settings("features").get("families") or []
    of_outline = [family for family in families if family in ("size", "position")]
    return f"Beside image values: {', '.join(of_outline) or 'none'}."


def _predictor(facts: RunFacts) -> str:
    return "`cad predict`" if facts.pictured else "`cad table predict`"


def _resampling(facts: RunFacts) -> str:
    """Return the sentence on the grid to which images are resampled."""
    spacings = {}
    for name, spacing in facts.settings("images").items():
        if name.startswith("spacing") and spacing:
            spacings[name] = spacing
    if not spacings:
        return "None: every image's grid."
    return f"{listed(spacings)} (0: as acquired)."


def _discretisation(facts: RunFacts) -> str:
    """Return the settings by which grey levels are made discrete for textures."""
    features = facts.settings("features")
    textures = []
    for name in ("texture", "texture_adc"):
        if features.get(name):
            textures.append(f"{name}: {listed(features[name])}")
    return f"{'; '.join(textures) or UNKNOWN}."


def _n_features(facts: RunFacts) -> str:
    """Return the number of features."""
    count = facts.counts["features"]
    if count is None:
        return "The columns of features.parquet:"
    return str(count)


def _robustness(facts: RunFacts) -> str:
    """Return the sentence on whether unstable features are left out."""
    robustness = facts.settings("features", "robustness")
    if robustness.get("stable_only"):
        return f"By ICC over {robustness.get('repeats')} redrawn regions, in every fold."
    return "Every feature was kept (features.robustness.stable_only)."


def _sites(facts: RunFacts) -> str:
    """Return the number of sites."""
    count = facts.counts["sites"]
    if count is None:
        return "sites are not in the tables"
    return f"{count} site(s)."


def _dimension(facts: RunFacts) -> str:
    """Return the sentence on the numbers of features and of regions of the rarer class."""
    count = facts.counts["features"]
    if facts.comparison is None or count is None:
        return _NO_FEATURES
    return f"{count} features, {facts.rarer} regions of the rarer class."


def _readers_beside(facts: RunFacts) -> str:
    """Return the sentence on the readers who are measured beside the model."""
    if not facts.metrics.readers:
        return "No reader's score was measured beside the model."
    return f"The readers' own scores on the same regions: {', '.join(facts.metrics.readers)}."


def _compared(facts: RunFacts) -> str:
    """Return the sentence on the other learners on the same folds."""
    if not facts.rivals:
        return "None in this run."
    return f"Paired differences on the same folds: {', '.join(facts.rivals)}."


def _simple_rival(facts: RunFacts) -> str:
    """Return the sentence on the simple learners on the same folds."""
    if not facts.simple_rivals:
        return "No simple rival in this run."
    return f"On the same folds: {', '.join(facts.simple_rivals)}."


def _thresholds(facts: RunFacts) -> str:
    """Return the sentence on the thresholds of a decision, and from what they follow."""
    thresholds = facts.metrics.thresholds
    lower = digits3(thresholds.lower) if thresholds else "–"
    upper = digits3(thresholds.upper) if thresholds else "–"
    choice = facts.operating_choice
    if choice is not None:
        origin = f"an aim: {choice.sentence()}"
    else:
        costs = [f"{name.replace('_', ' ')} {cost:g}" for name, cost in facts.costs.items()]
        origin = f"costs set by the site ({', '.join(costs)})."
    return (
        "Probability per ROI: of cancer where histology taught the model, else that readers would "
        f"call it malignant; benign below {lower}, malignant above {upper}, referred between; "
        f"from {origin}"
    )


SENTENCES: dict[str, Callable[[RunFacts], str]] = {
    "annotators": _annotators,
    "auc_text": _auc_text,
    "bundle": _bundle_of_model,
    "calibration": _calibration,
    "compared": _compared,
    "dimension": _dimension,
    "discretisation": _discretisation,
    "disjoint": _disjoint,
    "ensembling": _ensembling,
    "explained": _explained,
    "external_testing": _external_testing,
    "failures": _failures,
    "families": _families,
    "image_kinds": _image_kinds,
    "image_settings": _image_settings,
    "included": _included,
    "internal": _internal,
    "learner_name": _learner_name,
    "measured": _measured_values,
    "missing": _missing,
    "model": _model,
    "n_features": _n_features,
    "operating": _operating,
    "other_predictors": _other_predictors,
    "partition": _partition,
    "preprocessing": _preprocessing,
    "prevalence": _prevalence,
    "readers_beside": _readers_beside,
    "reference": _reference,
    "predictor": _predictor,
    "resampling": _resampling,
    "robustness": _robustness,
    "scaling": _scaling,
    "selection": _selection,
    "significance": _significance,
    "simple_rival": _simple_rival,
    "sites": _sites,
    "software": _software,
    "start": _start,
    "tested": _tested,
    "thresholds": _thresholds,
    "tuning": _tuning,
    "variability": _variability,
    "version": _cad_version,
}
"""Functions that make the sentence for each name in braces, such as ``{missing}``."""
