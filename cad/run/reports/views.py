"""What the pages show of patients, studies and regions: a run folder's rows in display form."""

import re
from dataclasses import dataclass, field, replace

from cad.base.errors import CadError
from cad.base.files import JsonObject
from cad.base.reading import reading
from cad.base.terms.modality import short_name
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.blinding import held_back, open_results
from cad.folders.run_folder.results import RegionResult, Results
from cad.run.reports.alignment import AlignmentView, alignments
from cad.run.reports.images import StudyImages, read_images, viewers_of
from cad.run.reports.plots import probability_text
from cad.run.reports.regions import RegionView, region_view
from cad.run.reports.wording import ENGLISH, Wording


@dataclass(frozen=True)
class StudyView:
    """Hold a study as its patient's page shows it.

    Parameters
    ----------
    study : str
        Id of the study.
    regions : list of RegionView
        Its regions.
    viewer : dict or None
        Data of the slice viewer; None where no slices can be shown.
    n_slices : int
        Number of slices in the viewer; 0 where no images can be shown.
    missing, notes : list of str
        Missing modalities, and remarks of the run on the study.
    failures : list of dict
        Rows of ``failures.csv``.
    alignments : list of AlignmentView
        Images that were aligned to T2.
    gland_ml : float or None
        Volume of the gland.
    lost : str
        Why the images cannot be shown; empty where they can.
    acquired : list of str
        Date, scanner and field strength, as far as known.
    date : str
        The date alone; empty where it is not known.
    sizes : dict of str to dict
        What was measured of every region as drawn, also of one without a result, by ROI id.
    """

    study: str
    regions: list[RegionView]
    viewer: JsonObject | None
    n_slices: int
    missing: list[str]
    notes: list[str]
    failures: list[dict[str, str]]
    alignments: list[AlignmentView] = field(default_factory=list)
    gland_ml: float | None = None
    lost: str = ""
    acquired: list[str] = field(default_factory=list)
    date: str = ""
    sizes: dict[str, JsonObject] = field(default_factory=dict)


MOST = 4
"""Regions in the head of a page."""


@dataclass
class PatientView:
    """Hold what the index of a report shows of a patient, and what the patient's page is made from.

    Parameters
    ----------
    patient : str
        Id of the patient.
    regions : list of RegionResult
        The run's results for all regions of the patient.
    failures : list of dict
        Rows of ``failures.csv`` on the patient.
    missing : set of str
        Names of the modalities that a study lacks; :func:`study_views` fills it.
    pictured : bool
        Whether the run measured images, so that the patient has a page and may be read.
    blinded : bool
        Whether the patient's results are held back until a reader has scored a region.
    """

    patient: str
    regions: list[RegionResult] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    pictured: bool = True
    blinded: bool = False

    @property
    def page(self) -> str:
        """Return the file name of the patient's page."""
        return re.sub(r"[^A-Za-z0-9_-]", "_", self.patient) + ".html"

    @property
    def decision(self) -> str:
        """Return ``benign``, ``refer`` or ``malignant`` for the patient; empty without a region."""
        return self.regions[0].patient_decision if self.regions else ""

    @property
    def ranked(self) -> list[RegionResult]:
        """Return the regions in the order in which to look at them.

        The region most suspicious to the tool comes first, then the one most suspicious to the
        readers, then cancer that histology proved, then the others by decision (malignant first,
        benign last) and by suspicion.
        """
        rank = {"malignant": 0, "refer": 1, "": 2, "benign": 3}
        return sorted(
            self.regions,
            key=lambda r: (
                r is not self.top,
                r is not self.readers_first,
                not r.truth,
                rank[r.decision],
                -(r.suspicion or 0.0),
            ),
        )

    @property
    def head(self) -> list[RegionResult]:
        """Return the regions for the head of the page.

        These are the one most suspicious to the tool, the one most suspicious to the readers,
        proven cancers and those that are not decided benign, four in all at most.
        """
        firsts = [self.top, self.readers_first]
        worth = [r for r in self.ranked if r in firsts or r.truth or r.decision != "benign"]
        return worth[:MOST]

    @property
    def disputed(self) -> list[RegionResult]:
        """Return the regions whose decision was changed to ``refer`` for a stated reason."""
        return [region for region in self.ranked if region.decision_reason]

    @property
    def readers(self) -> list[str]:
        """Return the ids of all readers who scored a region of this patient, sorted."""
        return sorted({reader for region in self.regions for reader, _ in region.scores})

    @property
    def probability(self) -> float | None:
        """Return the man's probability of any cancer; None without one."""
        known = (region.patient_probability for region in self.regions)
        return next((value for value in known if value is not None), None)

    @property
    def current(self) -> list[RegionResult]:
        """Return the regions of the study that the man's probability is of; all where he has none.

        Of several studies this is the latest: what an earlier one showed is not where to look.
        """
        studies = {r.study for r in self.regions if r.patient_probability is not None}
        if not studies:
            return self.regions
        return [region for region in self.regions if region.study in studies]

    @property
    def top(self) -> RegionResult | None:
        """Return the region of highest probability; None where no region has one."""
        scored = [region for region in self.current if region.probability is not None]
        return max(scored, key=lambda r: r.probability or 0.0, default=None)

    @property
    def readers_first(self) -> RegionResult | None:
        """Return the region that the readers suspect most; None where nobody scored one."""
        scored = [region for region in self.current if region.readers_mean is not None]
        return max(scored, key=lambda r: (r.readers_mean or 0.0, r is self.top), default=None)

    @property
    def order(self) -> float:
        """Return the number by which patients of one urgency are sorted: the man's probability.

        Without it, the highest probability of his regions, or -1.
        """
        highest = self.top.probability if self.top else None
        return next((p for p in (self.probability, highest) if p is not None), -1.0)

    @property
    def status(self) -> str:
        """Return the state of the patient's results as words.

        It is ``scored``, ``scored without`` and the missing modalities, ``scored in part`` (some
        region has no probability, or something failed), ``awaiting ROI`` (no region is drawn yet),
        ``awaiting a reader`` (held back until one has scored) or ``failed``.
        """
        if self.blinded:
            return "awaiting a reader"
        if self.top is None:
            awaiting = any(f.get("status") == "awaiting ROI" for f in self.failures)
            return "awaiting ROI" if awaiting else "failed"
        if self.failures or any(r.probability is None for r in self.regions):
            return "scored in part"
        lacking = " and ".join(sorted(self.missing))
        return f"scored without {lacking}" if lacking else "scored"

    def count(self, decision: str) -> int:
        """Return the number of the patient's regions with this decision.

        Parameters
        ----------
        decision : str
            ``malignant``, ``refer`` or ``benign``; empty for regions without a decision.
        """
        return sum(region.decision == decision for region in self.regions)

    @property
    def histology_known(self) -> bool:
        """Tell whether histology says of every region whether it is malignant."""
        return bool(self.regions) and all(region.truth is not None for region in self.regions)

    @property
    def histology(self) -> str:
        """Say how many regions with histology are malignant: ``malignant 1 of 3``, or ``–``."""
        truths = [region.truth for region in self.regions if region.truth is not None]
        return f"malignant {sum(truths)} of {len(truths)}" if truths else "–"


def list_patients(results: Results) -> list[PatientView]:
    """Return every patient of a run, in the order of what has to be done today.

    First come patients with a failure, then those to be read again, then the malignant, then those
    without a decision, last the benign; within each, by falling probability of the man. Who is
    referred and whose histology is known of every region stands with those without a decision.
    Index and terminal both use this order. Patients who are held back come after them, sorted by
    name, as a place by probability would tell the result before the reading.

    Parameters
    ----------
    results : Results
        Content of the run folder; of patients who are held back nothing is shown.
    """
    hidden = held_back(results)
    results = open_results(results)
    found: dict[str, PatientView] = {}
    pictured = results.pictured
    for region in results.regions:
        blinded = region.patient in hidden
        view = PatientView(region.patient, pictured=pictured, blinded=blinded)
        found.setdefault(region.patient, view).regions.append(region)
    for failure in results.failures:
        patient = failure.get("participant_id", "")
        if patient:
            view = PatientView(patient, pictured=pictured)
            found.setdefault(patient, view).failures.append(failure)
    return sorted(found.values(), key=_today)


_URGENCY = {"refer": 1, "malignant": 2, "": 3, "benign": 4}


def _today(patient: PatientView) -> tuple[bool, int, float, str]:
    """Return the key by which patients are sorted: what has to be done, then how probable."""
    if patient.blinded:
        return True, 0, 0.0, patient.patient
    urgency = 0 if patient.failures else _URGENCY[patient.decision]
    if urgency == _URGENCY["refer"] and patient.histology_known:
        urgency = _URGENCY[""]  # nothing is left to be read again
    return False, urgency, -patient.order, patient.patient


def study_views(
    results: Results, patient: PatientView, *, scroller: bool = True, words: Wording = ENGLISH
) -> list[StudyView]:
    """Return a view of each study of a patient, sorted by study id.

    Modalities that a study lacks are also added to ``patient.missing``.

    Parameters
    ----------
    results : Results
        Content of the run folder.
    patient : PatientView
        The patient.
    scroller : bool
        Whether slices are compressed for the slice viewer; paper has none.
    words : Wording
        The language in which regions are described.

    Returns
    -------
    list of StudyView
        A study whose images are absent or damaged says so in ``lost``; slices of all studies that
        cannot be shown are named in ``notes``.
    """
    names = {r.study for r in patient.regions} | {_study_of(f) for f in patient.failures}
    views: list[StudyView] = []
    shown = []
    for name in sorted(names):
        own = [r for r in patient.regions if r.study == name]
        failures = [f for f in patient.failures if _study_of(f) == name]
        images = _images(results.folder, name)
        if patient.blinded and not isinstance(images, str):
            layers = {key: image for key, image in images.layers.items() if key != "probability"}
            images = replace(images, layers=layers)
        try:
            if isinstance(images, str):
                raise CadError(images)
            with reading(name, "the study's images cannot be shown"):
                views.append(_study_view(results, name, own, failures, images, words))
                patient.missing.update(views[-1].missing)
                shown.append((len(views) - 1, own, images))
        except CadError as error:
            regions = [region_view(results, r, None, words) for r in own]
            lost = error.problem if own else ""
            views.append(StudyView(name, regions, None, 0, [], [], failures, lost=lost))
    if not scroller:
        return views
    try:
        with reading(patient.patient, "the slices cannot be shown"):
            viewers = viewers_of([images for _, _, images in shown])
    except CadError as error:
        return [replace(v, notes=[*v.notes, error.problem]) if v.n_slices else v for v in views]
    for (place, own, _), viewer in zip(shown, viewers, strict=True):
        views[place] = replace(views[place], viewer=_with_regions(viewer, own))
    return views


def _study_view(
    results: Results,
    name: str,
    own: list[RegionResult],
    failures: list[dict[str, str]],
    images: StudyImages,
    words: Wording,
) -> StudyView:
    """Return the views of a study whose images can be read, its scroller apart."""
    acquired = images.meta.get("acquired") or {}
    return StudyView(
        study=name,
        regions=[region_view(results, r, images, words) for r in own],
        viewer=None,
        n_slices=len(images.z_mm),
        missing=[short_name(m) for m in images.meta.get("missing", [])],
        notes=list(map(str, images.meta.get("notes", []))),
        failures=failures,
        alignments=alignments(images),
        gland_ml=images.meta.get("gland_ml"),
        acquired=_acquired(acquired),
        date=str(acquired.get("date") or ""),
        sizes=dict(images.rois),
    )


def _acquired(stated: JsonObject) -> list[str]:
    """Return when and on which scanner a study was made, as far as its files say."""
    field_strength = stated.get("field_strength")
    return [
        *([f"study of {stated['date']}"] if stated.get("date") else []),
        *([str(stated["scanner"])] if stated.get("scanner") else []),
        *([f"{field_strength:g} T"] if field_strength else []),
    ]


def _study_of(failure: dict[str, str]) -> str:
    return failure.get("study_id") or failure["participant_id"]


def _images(folder: RunFolder, study: str) -> StudyImages | str:
    """Return the study's images, or the sentence that says why there are none."""
    path = folder.study(study)
    if path.parent.resolve() != path.resolve().parent or not path.is_file():
        return "the run folder holds no images of this study"
    try:
        return read_images(folder, study)
    except CadError as error:
        return f"{path.name}: {error.problem}"
    except OSError as error:
        return f"{path.name}: {error.strerror}"


def _with_regions(viewer: JsonObject, regions: list[RegionResult]) -> JsonObject:
    listed = [
        {
            "id": r.roi,
            "label": min(r.label, 255),
            "decision": r.decision,
            "text": f"P {probability_text(r.probability)}",
        }
        for r in regions
    ]
    layers = viewer["layers"]
    if not any(region.of_cancer for region in regions):
        layers = []
        for layer in viewer["layers"]:
            if layer["key"] == "probability":
                layer = {**layer, "title": "What readers would say"}
            layers.append(layer)
    return {**viewer, "layers": layers, "regions": listed}
