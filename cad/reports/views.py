"""What the pages show of patients, studies and regions: a run folder's rows in display form."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cad.errors import CadError
from cad.files import JsonObject
from cad.imaging.modality import short_name
from cad.reports.alignment import AlignmentView, alignments
from cad.reports.images import (
    KeyImage,
    StudyImages,
    key_images,
    key_slice,
    read_images,
    viewer_data,
)
from cad.reports.plots import (
    CurvePlot,
    ReasonBar,
    curve_plot,
    measured,
    probability_text,
    reason_bars,
)
from cad.run_folder import RunFolder
from cad.run_folder.results import Reason, RegionResult, Results

KEY_LAYERS = ("t2w", "adc", "enhancement")
# Lossless slices up to here, then lossy ones: a page stays below 6 MB as text.
SLICES_BYTES = 4_500_000
LOSSY_QUALITIES = (92, 80, 60)
# What a page warns about; it changes no number.
POOR_FIT_R2 = 0.8
SMALL_MM3 = 65.0  # a ball of 5 mm diameter

ACTIONS = {
    "malignant": "above the site's upper threshold: treat as suspicious, consider as biopsy target",
    "refer": "between the site's thresholds: no decision, have it read again",
    "benign": "below the site's lower threshold: no suspicion at the site's costs",
    "": "no probability: see what was missing or failed",
}
NOT_BENIGN = (
    "below the site's lower threshold, but unlike the regions that the model learned from: benign "
    "is not stated, have it read again"
)


@dataclass(frozen=True)
class RegionView:
    """Hold a region as its card shows it."""

    region: RegionResult
    anchor: str
    action: str
    images: list[KeyImage]
    slice_number: int | None
    z_mm: float | None
    columns: dict[str, str]
    facts: list[tuple[str, str]]
    fit: str
    curve: CurvePlot | None
    no_curve: str
    reasons: list[ReasonBar]
    warnings: list[str]


@dataclass(frozen=True)
class StudyView:
    """Hold a study on its patient's page."""

    study: str
    regions: list[RegionView]
    viewer: JsonObject | None
    n_slices: int
    missing: list[str]
    notes: list[str]
    failures: list[dict[str, str]]
    alignments: list[AlignmentView] = field(default_factory=list)


@dataclass
class PatientView:
    """Hold what the index says of a patient, and what the patient's page is made from."""

    patient: str
    regions: list[RegionResult] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)

    @property
    def page(self) -> str:
        """Name the file of the patient's page."""
        return re.sub(r"[^A-Za-z0-9_-]", "_", self.patient) + ".html"

    @property
    def ranked(self) -> list[RegionResult]:
        """Sort the regions, most probable first; those without a probability last."""
        return sorted(self.regions, key=lambda r: -1.0 if r.probability is None else r.probability,
                      reverse=True)  # fmt: skip

    @property
    def probability(self) -> float | None:
        """Return the probability that any region of the patient is malignant."""
        known = (region.patient_probability for region in self.regions)
        return next((value for value in known if value is not None), None)

    @property
    def top(self) -> RegionResult | None:
        """Return the region of highest probability."""
        return self.ranked[0] if self.regions and self.ranked[0].probability is not None else None

    @property
    def status(self) -> str:
        """Say ``scored``, ``scored without DCE``, ``scored in part``, ``awaiting ROI``, ``failed``.

        Not the cohort's ``complete``, which says that every study has regions.
        """
        if self.top is None:
            awaiting = any(f.get("status") == "awaiting ROI" for f in self.failures)
            return "awaiting ROI" if awaiting else "failed"
        if self.failures or any(r.probability is None for r in self.regions):
            return "scored in part"
        lacking = " and ".join(sorted(self.missing))
        return f"scored without {lacking}" if lacking else "scored"

    def count(self, decision: str) -> int:
        """Count the regions with this decision."""
        return sum(r.decision == decision for r in self.regions)


def list_patients(results: Results) -> list[PatientView]:
    """List every patient that the run knows, by falling highest probability."""
    found: dict[str, PatientView] = {}
    for region in results.regions:
        found.setdefault(region.patient, PatientView(region.patient)).regions.append(region)
    for failure in results.failures:
        patient = failure.get("participant_id", "")
        if patient:
            found.setdefault(patient, PatientView(patient)).failures.append(failure)
    return sorted(
        found.values(),
        key=lambda p: (-(p.top.probability or 0.0) if p.top else 1.0, p.patient),
    )


def study_views(results: Results, patient: PatientView) -> list[StudyView]:
    names = {r.study for r in patient.regions} | {_study_of(f) for f in patient.failures}
    images = {name: _images(results.folder, name) for name in sorted(names)}
    viewers = _viewers([v for v in images.values() if isinstance(v, StudyImages)])
    views = []
    for name, shown in images.items():
        own = [r for r in patient.ranked if r.study == name]
        failures = [f for f in patient.failures if _study_of(f) == name]
        if isinstance(shown, str):
            views.append(StudyView(name, [_region_view(results, r, None) for r in own], None, 0,
                                   [], [shown] if own else [], failures))  # fmt: skip
            continue
        missing = [short_name(m) for m in shown.meta.get("missing", [])]
        patient.missing.update(missing)
        views.append(
            StudyView(
                study=name,
                regions=[_region_view(results, r, shown) for r in own],
                viewer=_with_regions(viewers.pop(0), own),
                n_slices=len(shown.z_mm),
                missing=missing,
                notes=list(map(str, shown.meta.get("notes", []))),
                failures=failures,
                alignments=alignments(shown),
            )
        )
    return views


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


def _viewers(studies: list[StudyImages]) -> list[JsonObject]:
    """Return the scroller data of a page's studies, as good as the page's weight allows."""
    made: list[JsonObject] = []
    for quality in (None, *LOSSY_QUALITIES):
        made = [viewer_data(images, quality) for images in studies]
        weight = sum(len(layer["source"]) for data in made for layer in data["layers"])
        if weight <= SLICES_BYTES:
            break
    for data in made:
        data["lossy"] = quality is not None
    return made


def _with_regions(viewer: JsonObject, regions: list[RegionResult]) -> JsonObject:
    listed = [
        {
            "id": r.roi,
            "label": min(r.label, 255),
            "decision": r.decision,
            "text": f"{r.roi}  P {probability_text(r.probability)}",
        }
        for r in regions
    ]
    return {**viewer, "regions": listed}


def _region_view(results: Results, region: RegionResult, images: StudyImages | None) -> RegionView:
    known = images.rois.get(region.roi, {}) if images else {}
    z = key_slice(images, region.label) if images else None
    reasons: list[Reason] = results.reasons.get((region.study, region.roi), [])
    return RegionView(
        region=region,
        anchor=re.sub(r"[^A-Za-z0-9_-]", "_", f"roi-{region.study}-{region.roi}"),
        action=_action(region, results.thresholds_of(region)),
        images=key_images(images, region.label, KEY_LAYERS) if images else [],
        slice_number=None if z is None or images is None else images.slice_numbers[z],
        z_mm=None if z is None or images is None else float(images.z_mm[z]),
        columns={key: _measured(known, key) for key in _COLUMNS},
        facts=[(t, _measured(known, k, unit)) for k, t, unit in _FACTS if known.get(k) is not None],
        fit=", ".join(
            f"{t} {_measured(known, k, unit)}" for k, t, unit in _FIT if known.get(k) is not None
        ),
        curve=curve_plot(images.curve(region.roi)) if images else None,
        no_curve=_no_curve(images),
        reasons=reason_bars(reasons[:5]),
        warnings=[*region.warnings, *_display_warnings(known, images)],
    )


def _no_curve(images: StudyImages | None) -> str:
    """Say why a region may have no enhancement curve."""
    absent = images is not None and "dce" in images.meta.get("missing", [])
    return "This study has no dynamic series." if absent else "No curve was measured here."


def _action(region: RegionResult, thresholds: tuple[float, float] | None) -> str:
    """Say what a decision means for the region; one may be referred although its P is low."""
    low = thresholds and region.probability is not None and region.probability < thresholds[0]
    return NOT_BENIGN if low and region.decision == "refer" else ACTIONS[region.decision]


_COLUMNS = ("volume_mm3", "adc_median", "ktrans_median")
_FACTS = (
    ("volume_mm3", "volume", "mm³"),
    ("adc_median", "median ADC", "×10⁻⁶ mm²/s"),
    ("ktrans_median", "median Ktrans", "1/min"),
)
_FIT = (
    ("ktrans_median", "Ktrans", "1/min"),
    ("ve_median", "ve", ""),
    ("fit_r2", "R²", ""),
)


def _measured(known: JsonObject, key: str, unit: str = "") -> str:
    value = known.get(key)
    return "–" if value is None else measured(float(value), unit)


def _display_warnings(known: JsonObject, images: StudyImages | None) -> list[str]:
    said = []
    for modality in images.meta.get("missing", []) if images else []:
        said.append(f"{short_name(modality)} missing: nothing was measured on it")
    fit = known.get("fit_r2")
    if fit is not None and fit < POOR_FIT_R2:
        said.append(f"poor Tofts fit: R² {fit:.2f}, below {POOR_FIT_R2:g}")
    volume = known.get("volume_mm3")
    if volume is not None and volume < SMALL_MM3:
        said.append(f"small region: {volume:.0f} mm³, less than a ball of 5 mm diameter")
    return said
