"""Decide whether a run fulfils items of METRICS, a quality score of radiomics studies.

The functions return True, False, or None if the run's record cannot show it.
"""

from collections.abc import Callable
from math import isnan

from cad.learning.evaluation.statements.run_facts import RunFacts


def _known_histology(facts: RunFacts) -> bool:
    return facts.metrics.histology is not None


def _several_sites(facts: RunFacts) -> bool | None:
    sites = facts.counts["sites"]
    if sites is None:
        return None
    return bool(sites > 1)


def _settings_recorded(facts: RunFacts) -> bool:
    return bool(facts.settings("images")) and bool(facts.settings("features"))


def _stable_features_only(facts: RunFacts) -> bool:
    return bool(facts.settings("features", "robustness").get("stable_only", False))


def _features_selected(facts: RunFacts) -> bool | None:
    if not facts.fitted:
        return None
    return facts.selector is not None


def _enough_regions(facts: RunFacts) -> bool:
    features = facts.counts["features"]
    if facts.comparison is None or features is None:
        return False
    # Ten regions of the rarer class for each feature count as enough.
    return bool(facts.rarer >= 10 * features)


def _patients_held_out(facts: RunFacts) -> bool:
    return facts.held_out


def _truth_known(facts: RunFacts) -> bool:
    return facts.comparison is not None


def _interval_of_auc(facts: RunFacts) -> bool:
    return facts.comparison is not None and not isnan(facts.comparison.auc.lower)


def _slope_measured(facts: RunFacts) -> bool:
    if facts.comparison is None:
        return False
    slope = facts.comparison.measures.get("calibration_slope")
    return slope is not None and not isnan(slope.value)


def _one_image_kind(facts: RunFacts) -> bool:
    return len(facts.settings("features").get("modalities", [])) == 1


def _compared_with_readers(facts: RunFacts) -> bool:
    return facts.metrics.cad_vs_readers is not None


def _compared_with_simple_model(facts: RunFacts) -> bool:
    return bool(facts.simple_rivals)


def _is_validated(facts: RunFacts) -> bool:
    return facts.validated


def _external(facts: RunFacts) -> bool:
    return facts.external


PROOFS: dict[str, Callable[[RunFacts], bool | None]] = {
    "3": _known_histology,
    "4": _several_sites,
    "11": _settings_recorded,
    "13": _settings_recorded,
    "14": _stable_features_only,
    "15": _features_selected,
    "16": _enough_regions,
    "18": _patients_held_out,
    "20": _truth_known,
    "21": _interval_of_auc,
    "22": _slope_measured,
    "23": _one_image_kind,
    "24": _compared_with_readers,
    "25": _compared_with_simple_model,
    "26": _is_validated,
    "27": _external,
}
"""Functions that decide an item, by its number. All other items have the same state for every
run.
"""
