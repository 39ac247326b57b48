"""Collect the content that a man's page and his paper sheet both show."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from cad.base.files import JsonObject
from cad.folders.run_folder.results import RegionResult, Results
from cad.learning.evaluation.summary import Summary
from cad.run.reports.earlier import EarlierView, earlier_view
from cad.run.reports.headline import headline
from cad.run.reports.regions import RegionView
from cad.run.reports.sectors import apart
from cad.run.reports.views import PatientView, StudyView, study_views
from cad.run.reports.wording import ENGLISH, Wording


class PatientContent(NamedTuple):
    """Hold the content of one man's page and sheet.

    Parameters
    ----------
    studies : list of StudyView
        The man's studies.
    regions : list of RegionView
        All regions of the man, with the first to look at on top. If his results are held back until
        a reader has scored one of his regions, the regions stay in the order of his studies.
    models : list of dict
        Name of each model that scored his regions, and a description of the patients that it was
        trained on.
    head : dict
        Content of the head of the page (:func:`cad.run.reports.headline.headline`).
    earlier : EarlierView or None
        His latest study compared with the study before it; None for a man with one study.
    """

    studies: list[StudyView]
    regions: list[RegionView]
    models: list[JsonObject]
    head: JsonObject
    earlier: EarlierView | None = None


def patient_content(
    results: Results,
    metrics: Summary,
    patient: PatientView,
    *,
    scroller: bool = True,
    words: Wording = ENGLISH,
) -> PatientContent:
    """Collect the content of one man's page and sheet.

    Parameters
    ----------
    results : Results
        Content of the run folder.
    metrics : Summary
        Measures of the run.
    patient : PatientView
        The man.
    scroller : bool
        Whether the slices of each study are prepared for the viewer that scrolls through them.
    words : Wording
        Language of the text.

    Returns
    -------
    PatientContent
        The content of the page and of the sheet.
    """
    studies = study_views(results, patient, scroller=scroller, words=words)
    regions = []
    for study in studies:
        regions += study.regions
    # If a man's results are held back from a reader, his regions stay in the order of his studies.
    # An order by suspicion would reveal his results.
    if not patient.blinded:
        # The regions of the page's head come first. A region in both lists goes by its first place.
        ranked = [id(region) for region in (*patient.head, *patient.ranked)]
        regions.sort(key=lambda view: ranked.index(id(view.region)))
    regions = _with_marks_apart(regions)
    models = _models_that_scored(results, patient.regions)
    head = headline(results, metrics, patient, regions, studies, models, words)
    earlier = earlier_view(results, patient.patient, studies, patient.regions, words)
    return PatientContent(studies, regions, models, head, earlier)


def _with_marks_apart(regions: list[RegionView]) -> list[RegionView]:
    """Return the regions with their marks on the sector map moved so that none hides another."""
    marks = [view.sector for view in regions if view.sector is not None]
    moved_marks = iter(apart(marks))
    moved = []
    for view in regions:
        if view.sector is None:
            moved.append(view)
        else:
            # The moved marks come in the order of the regions that have one.
            moved.append(replace(view, sector=next(moved_marks)))
    return moved


def _models_that_scored(results: Results, regions: Iterable[RegionResult]) -> list[JsonObject]:
    """Return for each model that scored the given regions its name and its entry in ``run.json``.

    The key ``training`` describes the patients that the model was trained on; None where unknown.
    """
    model = results.run.get("model") or {}
    # A run with several models lists them by name; a run with one model describes it directly.
    by_name = model.get("models") or {model.get("name"): model}
    names = dict.fromkeys(region.model for region in regions if region.model)  # each name once
    return [{"name": name, "training": None, **by_name.get(name, {})} for name in names]
