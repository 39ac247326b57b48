"""Hold back the results of men whom no reader has scored, if the site wants this.

A reader then cannot see the results of a man before he has scored the man. The site's setting is
``decision.blinded``. The tables of the run still contain all numbers, because other programs read
them. Pages, terminal, JSON and DICOM get their content through this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from cad.base.files import JsonObject
from cad.folders.run_folder.results import RegionResult, Results


def is_blinded(run: JsonObject) -> bool:
    """Tell whether the site holds back the results of men whom nobody has scored.

    Parameters
    ----------
    run : dict
        Content of ``run.json``.

    Returns
    -------
    bool
        The setting ``decision.blinded`` of the run; False where the run does not have this setting.
    """
    decision = (run.get("settings") or {}).get("decision") or {}
    return bool(decision.get("blinded"))


def unscored_men(rows: Iterable[tuple[str, bool]]) -> frozenset[str]:
    """Return the men of whom no region has a reader's score.

    Parameters
    ----------
    rows : iterable of (str, bool)
        One pair for each region: its man, and whether a reader has scored the region.
    """
    men: set[str] = set()
    scored: set[str] = set()
    for man, has_score in rows:
        men.add(man)
        if has_score:
            scored.add(man)
    return frozenset(men - scored)


def held_back_of_table(run: JsonObject, table: pd.DataFrame) -> frozenset[str]:
    """Return the men whose results are held back, from the table of a run.

    If the site blinds its readers, these are the men of whom no reader has scored a region. If not,
    the result is empty.

    Parameters
    ----------
    run : dict
        Content of ``run.json``.
    table : DataFrame
        Content of ``probabilities.csv``.
    """
    if not is_blinded(run):
        return frozenset()
    # Without a column of scores, no region counts as scored.
    is_scored = pd.Series(False, index=table.index)
    if "scores" in table:
        is_scored = table["scores"].fillna("").astype(str) != ""
    return unscored_men(zip(table["participant_id"].astype(str), is_scored, strict=True))


def held_back(results: Results) -> frozenset[str]:
    """Return the men whose results are held back, because no reader has scored them yet.

    A run of a table of features has no images that a reader could score. No result of such a run is
    held back.

    Parameters
    ----------
    results : Results
        Content of a run folder.
    """
    if not is_blinded(results.run) or not results.pictured:
        return frozenset()
    return unscored_men((region.patient, bool(region.scores)) for region in results.regions)


def open_results(results: Results) -> Results:
    """Return a run without the results that a person may not see yet.

    The regions of a man whose result is held back keep their place and outline. They lose every
    number, every decision and the histology. If a result is held back, the measures of the whole
    run are left out as well: measures over few men would reveal the result of one man.

    Parameters
    ----------
    results : Results
        Content of a run folder; not changed.
    """
    men = held_back(results)
    if not men:  # the measures of the whole run stay, too
        return results
    regions = []
    for region in results.regions:
        regions.append(_without_result(region) if region.patient in men else region)
    studies = {region.study for region in results.regions if region.patient in men}
    return replace(
        results,
        metrics={},
        regions=regions,
        reasons={key: value for key, value in results.reasons.items() if key[0] not in studies},
        men={name: man for name, man in results.men.items() if name not in men},
    )


def _without_result(region: RegionResult) -> RegionResult:
    """Return a region with its place, without any number, decision, score or histology."""
    return RegionResult(
        patient=region.patient,
        study=region.study,
        roi=region.roi,
        label=region.label,
        zone=region.zone,
        probability=None,
        probability_of="",
        probability_images=None,
        belief=None,
        decision="",
        decision_model="",
        decision_reason=[],
        decision_value=None,
        p=None,
        eta=None,
        label_kind="",
        histology="",
        isup="",
        truth=None,
        scores=[],
        with_tool=[],
        patient_probability=None,
        warnings=[],
        plausible=None,
        readers_mean=None,
        gap=None,
        apart="",
        suspicion=None,
        patient_decision="",
        model=region.model,
        sector=region.sector,
        psa=region.psa,
        age=region.age,
    )
