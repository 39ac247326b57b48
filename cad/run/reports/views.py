"""Collect what pages show of patients and studies from the rows of a run folder."""

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
    """Hold the content of one study for its patient's page.

    Parameters
    ----------
    study : str
        Id of the study.
    regions : list of RegionView
        Regions of the study.
    viewer : dict or None
        Data of the slice viewer; None if no slices can be shown.
    n_slices : int
        Number of slices in the viewer; 0 if no images can be shown.
    missing, notes : list of str
        Images that the study lacks, and remarks of the run on the study.
    failures : list of dict
        Rows of ``failures.csv`` on the study.
    alignments : list of AlignmentView
        Images whose alignment to T2 was tried.
    gland_ml : float or None
        Volume of the gland, mL; None where it is not known.
    lost : str
        Why the images cannot be shown; empty if they can be shown.
    acquired : list of str
        Date, scanner and field strength, as far as they are known.
    date : str
        The date alone; empty if it is not known.
    sizes : dict of str to dict
        Measurements of every region as drawn, by ROI id, including regions without a result.
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
"""Largest number of regions in the head of a page."""


@dataclass
class PatientView:
    """Hold the results of one patient, for the index of a report and for the patient's page.

    Parameters
    ----------
    patient : str
        Id of the patient.
    regions : list of RegionResult
        The run's results for all regions of the patient.
    failures : list of dict
        Rows of ``failures.csv`` on the patient.
    missing : set of str
        Names of the images that a study of the patient lacks; :func:`study_views` adds them.
    pictured : bool
        Whether the run measured images. Only then the patient has a page.
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

        The region most suspicious to the tool (the model) comes first, then the region most
        suspicious to the readers, then cancer that histology proved. All other regions follow,
        ordered by decision (malignant, refer, no decision, benign) and within it by suspicion.
        """
        rank = {"malignant": 0, "refer": 1, "": 2, "benign": 3}
        # False sorts before True, so each ``not`` puts the named regions first.
        return sorted(
            self.regions,
            key=lambda region: (
                region is not self.top,
                region is not self.readers_first,
                not region.truth,
                rank[region.decision],
                -(region.suspicion or 0.0),
            ),
        )

    @property
    def head(self) -> list[RegionResult]:
        """Return the regions for the head of the page.

        These are at most four regions: the region most suspicious to the tool, the region most
        suspicious to the readers, proven cancers, and regions that are not called benign.
        """
        firsts = [self.top, self.readers_first]
        important = []
        for region in self.ranked:
            if region in firsts or region.truth or region.decision != "benign":
                important.append(region)
        return important[:MOST]

    @property
    def disputed(self) -> list[RegionResult]:
        """Return the regions whose decision was changed to ``refer`` for a stated reason."""
        return [region for region in self.ranked if region.decision_reason]

    @property
    def readers(self) -> list[str]:
        """Return the ids of all readers who scored a region of this patient, sorted."""
        readers: set[str] = set()
        for region in self.regions:
            readers.update(reader for reader, _ in region.scores)
        return sorted(readers)

    @property
    def probability(self) -> float | None:
        """Return the probability that the man has cancer of the run's grade; None without one."""
        for region in self.regions:
            if region.patient_probability is not None:
                return region.patient_probability
        return None

    @property
    def current(self) -> list[RegionResult]:
        """Return the regions from which the man's probability was computed.

        In a prediction of several studies these are the regions of the latest study. If the man has
        no probability, all his regions are returned.
        """
        studies = {
            region.study for region in self.regions if region.patient_probability is not None
        }
        if not studies:
            return self.regions
        return [region for region in self.regions if region.study in studies]

    @property
    def top(self) -> RegionResult | None:
        """Return the region of highest probability; None if no region has a probability."""
        scored = [region for region in self.current if region.probability is not None]
        return max(scored, key=lambda region: region.probability or 0.0, default=None)

    @property
    def readers_first(self) -> RegionResult | None:
        """Return the region that the readers suspect most; None if nobody has scored a region."""
        scored = [region for region in self.current if region.readers_mean is not None]
        # Of regions that the readers suspect equally, the tool's first is taken, so that the page
        # does not show a disagreement where there is none.
        return max(
            scored,
            key=lambda region: (region.readers_mean or 0.0, region is self.top),
            default=None,
        )

    @property
    def order(self) -> float:
        """Return the number by which patients of equal urgency are sorted.

        The number is the man's probability. Without one it is the highest probability of his
        regions. If his regions have no probability either, it is -1.
        """
        highest = self.top.probability if self.top else None
        for probability in (self.probability, highest):
            if probability is not None:
                return probability
        return -1.0

    @property
    def waiting(self) -> list[dict[str, str]]:
        """Return the rows of ``failures.csv`` of studies that wait for a region."""
        return [row for row in self.failures if row.get("status") == "awaiting ROI"]

    @property
    def faults(self) -> list[dict[str, str]]:
        """Return the rows of ``failures.csv`` of studies and regions that failed."""
        return [row for row in self.failures if row.get("status") != "awaiting ROI"]

    @property
    def status(self) -> str:
        """Return the state of the patient's results as words.

        The state is ``scored``, ``failed``, or ``scored without`` and the names of missing images.
        It is ``scored in part`` if some region has no probability, or something failed. It is
        ``awaiting ROI`` if no region is drawn yet, and ``awaiting a reader`` if results are held
        back until a reader has scored a region.
        """
        if self.blinded:
            return "awaiting a reader"
        if self.top is None:
            return "awaiting ROI" if self.waiting and not self.faults else "failed"
        if self.failures or any(region.probability is None for region in self.regions):
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
        """Tell whether histology says of every region whether it is malignant or not."""
        return bool(self.regions) and all(region.truth is not None for region in self.regions)

    @property
    def histology(self) -> str:
        """Say how many regions with histology are malignant: ``malignant 1 of 3``, or ``–``."""
        truths = [region.truth for region in self.regions if region.truth is not None]
        return f"malignant {sum(truths)} of {len(truths)}" if truths else "–"


def list_patients(results: Results) -> list[PatientView]:
    """Return every patient of a run, the most urgent one first, for index page and terminal.

    First come patients with a failure, then patients to be read again, then malignant patients,
    then patients without a decision, and last benign patients. Within each group the patient with
    the highest probability comes first. A referred patient whose histology is known of every region
    is in the group without a decision, because nothing is left to be read. Patients whose results
    are held back come last, sorted by name: an order by probability would reveal their results.

    Parameters
    ----------
    results : Results
        Content of the run folder. Results that are held back are left out.
    """
    men_held_back = held_back(results)
    results = open_results(results)
    views: dict[str, PatientView] = {}
    pictured = results.pictured
    for region in results.regions:
        blinded = region.patient in men_held_back
        new_view = PatientView(region.patient, pictured=pictured, blinded=blinded)
        views.setdefault(region.patient, new_view).regions.append(region)
    for failure in results.failures:
        patient = failure.get("participant_id", "")
        if patient:  # a failure of the run as a whole belongs to no patient
            new_view = PatientView(patient, pictured=pictured)
            views.setdefault(patient, new_view).failures.append(failure)
    return sorted(views.values(), key=_urgency_key)


_URGENCY = {"refer": 1, "malignant": 2, "": 3, "benign": 4}


def _urgency_key(patient: PatientView) -> tuple[bool, int, float, str]:
    """Return the key by which patients are sorted: urgency, then the highest probability first."""
    if patient.blinded:
        return True, 0, 0.0, patient.patient
    urgency = 0 if patient.failures else _URGENCY[patient.decision]
    if urgency == _URGENCY["refer"] and patient.histology_known:
        urgency = _URGENCY[""]  # nobody reads him again: histology is known of all his regions
    return False, urgency, -patient.order, patient.patient


def study_views(
    results: Results, patient: PatientView, *, scroller: bool = True, words: Wording = ENGLISH
) -> list[StudyView]:
    """Return a view of each study of a patient, sorted by study id.

    Names of images that a study lacks are also added to ``patient.missing``.

    Parameters
    ----------
    results : Results
        Content of the run folder.
    patient : PatientView
        The patient.
    scroller : bool
        Whether slices are compressed for the viewer that scrolls through them; a sheet of paper has
        no viewer.
    words : Wording
        The language in which regions are described.

    Returns
    -------
    list of StudyView
        ``lost`` of a view says why the study's images cannot be shown. If the slice viewers of the
        page cannot be made, ``notes`` says why.
    """
    names = {region.study for region in patient.regions}
    names |= {_study_of(failure) for failure in patient.failures}
    views: list[StudyView] = []
    # For each study with images: its index in ``views``, its regions and its images.
    with_images = []
    for name in sorted(names):
        regions_of_study = [region for region in patient.regions if region.study == name]
        failures = [failure for failure in patient.failures if _study_of(failure) == name]
        images = _images_of_study(results.folder, name)
        if patient.blinded and not isinstance(images, str):
            # The probability map would reveal the result that is held back.
            layers = {key: image for key, image in images.layers.items() if key != "probability"}
            images = replace(images, layers=layers)
        try:
            if isinstance(images, str):
                raise CadError(images)
            with reading(name, "the study's images cannot be shown"):
                view = _study_view(results, name, regions_of_study, failures, images, words)
                views.append(view)
                patient.missing.update(view.missing)
                with_images.append((len(views) - 1, regions_of_study, images))
        except CadError as error:
            # The study is shown without images. A study without regions failed before it had any
            # images, and its failure says so.
            views.append(
                StudyView(
                    study=name,
                    regions=[
                        region_view(results, region, None, words) for region in regions_of_study
                    ],
                    viewer=None,
                    n_slices=0,
                    missing=[],
                    notes=[],
                    failures=failures,
                    lost=error.problem if regions_of_study else "",
                )
            )
    if not scroller:
        return views

    # The viewers of all studies are made together, because they share the size of the page.
    try:
        with reading(patient.patient, "the slices cannot be shown"):
            viewers = viewers_of([images for _, _, images in with_images])
    except CadError as error:
        return [_without_slices(view, error.problem) for view in views]
    for (index, regions_of_study, _), viewer in zip(with_images, viewers, strict=True):
        views[index] = replace(views[index], viewer=_with_regions(viewer, regions_of_study))
    return views


def _without_slices(view: StudyView, problem: str) -> StudyView:
    """Return a view with a note on why its slices are not shown, if it has slices."""
    if not view.n_slices:
        return view
    return replace(view, notes=[*view.notes, problem])


def _study_view(
    results: Results,
    name: str,
    regions: list[RegionResult],
    failures: list[dict[str, str]],
    images: StudyImages,
    words: Wording,
) -> StudyView:
    """Return the view of a study whose images can be read, still without its slice viewer."""
    acquired = images.meta.get("acquired") or {}
    return StudyView(
        study=name,
        regions=[region_view(results, region, images, words) for region in regions],
        viewer=None,
        n_slices=len(images.z_mm),
        missing=[short_name(modality) for modality in images.meta.get("missing", [])],
        notes=list(map(str, images.meta.get("notes", []))),
        failures=failures,
        alignments=alignments(images),
        gland_ml=images.meta.get("gland_ml"),
        acquired=_acquired(acquired),
        date=str(acquired.get("date") or ""),
        sizes=dict(images.rois),
    )


def _acquired(stated: JsonObject) -> list[str]:
    """Return date, scanner and field strength of a study, as far as its files state them."""
    texts = []
    if stated.get("date"):
        texts.append(f"study of {stated['date']}")
    if stated.get("scanner"):
        texts.append(str(stated["scanner"]))
    if stated.get("field_strength"):
        texts.append(f"{stated['field_strength']:g} T")
    return texts


def _study_of(failure: dict[str, str]) -> str:
    """Return the study of a failure; a failure without a study counts as a study of the man."""
    return failure.get("study_id") or failure["participant_id"]


def _images_of_study(folder: RunFolder, study: str) -> StudyImages | str:
    """Return the study's images, or a sentence on why they cannot be read."""
    path = folder.study(study)
    # A link could lead out of the run folder, whose files alone may be read.
    if path.parent.resolve() != path.resolve().parent or not path.is_file():
        return "the run folder holds no images of this study"
    try:
        return read_images(folder, study)
    except CadError as error:
        return f"{path.name}: {error.problem}"
    except OSError as error:
        return f"{path.name}: {error.strerror}"


def _with_regions(viewer: JsonObject, regions: list[RegionResult]) -> JsonObject:
    """Return the data of a slice viewer with the regions of its study."""
    listed = []
    for region in regions:
        listed.append(
            {
                "id": region.roi,
                "label": min(region.label, 255),  # the map of labels stores greater ones as 255
                "decision": region.decision,
                "text": f"P {probability_text(region.probability)}",
            }
        )
    layers = viewer["layers"]
    if not any(region.of_cancer for region in regions):
        # Without a probability of cancer, the map shows the belief and is called so.
        layers = []
        for layer in viewer["layers"]:
            if layer["key"] == "probability":
                layer = {**layer, "title": "What readers would say"}
            layers.append(layer)
    return {**viewer, "layers": layers, "regions": listed}
