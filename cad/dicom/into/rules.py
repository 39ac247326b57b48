"""A site's rules file: which DICOM series is what, and which files beside the series count."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, field_validator, model_validator

from cad.imaging.frames import Frame
from cad.imaging.plausibility import RANGES
from cad.settings import Section

FIRST_READER = "r1"
"""Whose scores a table holds that names no reader, where the rules name none either."""


def _valid_pattern(pattern: str | None) -> str | None:
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
    return pattern


class Match(Section):
    """State conditions on a header; a series must meet all that are given."""

    description: str | None = Field(None, description="regular expression, anywhere, any case")
    exclude: str | None = Field(None, description="descriptions that must not match")
    image_type: tuple[str, ...] = Field((), description="values that ImageType must all hold")
    sequence_name: str | None = Field(None, description="regular expression, anywhere, any case")
    series_number: int | None = Field(None, description="exact")
    b_value: float | None = Field(None, description="s/mm2, within 1")
    flip_angle: float | None = Field(None, description="degrees, within .01")
    scale: float | None = Field(
        None,
        gt=0,
        description="factor from the header's values to the modality's unit (ADC: 1e-6 mm2/s), "
        "where the site knows better than the header; no condition",
    )

    _patterns = field_validator("description", "exclude", "sequence_name")(_valid_pattern)

    @model_validator(mode="after")
    def _not_empty(self) -> Match:
        # scale is a factor, no condition.
        if not self.model_fields_set - {"scale"}:
            raise ValueError("a match without any condition would accept every series")
        return self

    def accepts(self, header: Frame) -> bool:
        """Tell whether a frame meets every condition."""
        return next(self.misses(header), None) is None

    def misses(self, header: Frame) -> Iterator[str]:
        """Yield what a frame has instead of what each condition that it does not meet asks for."""
        if not _found(self.description, header.description):
            yield f"description is not {self.description}"
        if self.exclude and _found(self.exclude, header.description):
            yield f"description is excluded by {self.exclude}"
        lacking = set(self.image_type) - set(header.image_type)
        if lacking:
            yield f"ImageType lacks {', '.join(sorted(lacking))}"
        if not _found(self.sequence_name, header.sequence_name):
            yield f"SequenceName {header.sequence_name!r} is not {self.sequence_name}"
        if self.series_number not in (None, header.series_number):
            yield f"its number is not {self.series_number}"
        # Scanners state b-values that are rounded or off by a fraction.
        if not _near(self.b_value, header.b_value, 1.0):
            yield f"b is {_shown(header.b_value)}, not {self.b_value:g}"
        if not _near(self.flip_angle, header.flip_angle, 0.01):
            yield f"the flip angle is {_shown(header.flip_angle)}, not {self.flip_angle:g}"


def _found(pattern: str | None, text: str) -> bool:
    return pattern is None or re.search(pattern, text, re.IGNORECASE) is not None


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"


def _near(wanted: float | None, value: float | None, tolerance: float) -> bool:
    return wanted is None or (value is not None and abs(value - wanted) <= tolerance)


class DynamicRule(Section):
    """State which series are phases of the dynamic series, and which clock dates them."""

    match: tuple[Match, ...] = Field(description="a phase meets any of these")
    clock: Literal["auto", "acquisition", "content", "trigger", "description"] = Field(
        "auto",
        description="header time, or seconds in the series description; auto: the first of "
        "trigger, acquisition and content time by which every phase has its own",
    )
    interval: float | None = Field(
        None, gt=0, description="seconds from phase to phase, instead of any clock"
    )
    time_pattern: str = Field(
        r"TT=([0-9.]+)s", description="regular expression whose group is the seconds"
    )

    _patterns = field_validator("time_pattern")(_valid_pattern)


class ZonesRule(Section):
    """Name a zone map beside the series."""

    file: str = Field(description="file name")
    values: dict[int, Literal["PZ", "TZ", "CZ", "AFS"]] = Field(description="what each value is")


class FindingsRule(Section):
    """Name a table of lesions that are given as points, as PROSTATEx has them."""

    file: str = Field(
        "ProstateX-Findings-Train.csv",
        description="at the top of the source or below; ProxID, fid, pos, zone, ClinSig",
    )
    radius: float = Field(
        5.0, gt=0, description="mm; a ball around the point stands for the lesion"
    )


class OutlinesRule(Section):
    """Name masks of lesions, and tables with the readers' scores and the histology of them.

    Paths are below the top of the source; ``{patient}``, ``{roi}`` and ``{reader}`` stand for ids,
    ``*`` for the rest of a name.
    """

    file: tuple[str, ...] = Field(
        description="a lesion is taken from the first entry that has it; of several readers, the "
        "voxels that half of them drew; without {roi} a label map"
    )
    gland: str | None = Field(None, description="prostate mask, where none lies beside the series")
    images: str | None = Field(
        None,
        description="CSV with columns T2 and ADC: the series that a patient's masks were drawn on, "
        "as PATIENT_NAME_NUMBER; it goes before prefer",
    )
    table: str | None = Field(None, description="CSV with a row a lesion, or a lesion and reader")
    key: dict[str, str] = Field(
        {"ID": "{patient}_{roi}"},
        description="columns of the table and what they hold for a lesion, zeros in front apart; "
        "where {roi} is in none, a man's n-th row with a score is lesion n",
    )
    truth_column: str | None = Field(
        None, description="clinically significant: True or 1, False or 0; anything else is unknown"
    )
    grade_column: str | None = Field(None, description="ISUP grade; anything else is none")
    score_column: str | None = Field(None, description="score, on the scale of the rules")
    reader_column: str | None = Field(None, description="whose score it is; else the first reader")
    template: str | None = Field(
        None,
        description="CSV of a man's template biopsies, a row a zone: zone_id, samtaken, "
        "zprescancer, zprimgleason, zsecondgleason",
    )
    template_zones: str | None = Field(None, description="map of these zones, by zone_id")

    @model_validator(mode="after")
    def _whole(self) -> OutlinesRule:
        counted = not any("{roi}" in text for text in self.key.values())
        if self.table and counted and not self.score_column:
            raise ValueError("a key without {roi} counts rows with a score: give score_column")
        if (self.template is None) != (self.template_zones is None):
            raise ValueError("template and template_zones belong together")
        return self


class DetectorRule(Section):
    """Name a detector's map of a study: labels, or a value from 0 to 1 in every voxel."""

    file: str = Field(
        description="beside the series, as nnU-Net's CASE.nii.gz, MONAI's NAME_seg.nii.gz or "
        "PI-CAI's cspca_detection_map.mha; with files: the end of a path, {patient} and {study}"
    )
    threshold: float = Field(
        0.5, gt=0, lt=1, description="a candidate's voxels have at least this; of labels, 1 or more"
    )
    least: float = Field(50.0, ge=0, description="mm3; smaller candidates are left out")


class FilesRule(Section):
    """Name the files of a cohort that comes as image files instead of DICOM.

    Paths are the ends of paths below the source; ``{patient}`` and ``{study}`` stand for the ids,
    ``*`` for the rest of a name. In a list the first file that exists is taken.
    """

    study: str = Field(description="one file that every study has; it gives {patient} and {study}")
    t2w: tuple[str, ...] = Field((), description="T2-weighted image")
    adc: tuple[str, ...] = Field((), description="ADC map")
    hbv: tuple[str, ...] = Field((), description="diffusion image at b of 1400 s/mm2 or more")
    adc_scale: float | None = Field(None, gt=0, description="factor from the file to 1e-6 mm2/s")
    gland: tuple[str, ...] = Field((), description="prostate mask")
    lesion: tuple[str, ...] = Field((), description="lesion mask")
    lesion_values: Literal["isup", "picai", "mask"] = Field(
        "isup",
        description="isup: a voxel's value is its lesion's grade; picai: likewise, but 1 says at "
        "least grade 2 without saying which; mask: any value is a malignant lesion",
    )
    zones: tuple[str, ...] = Field((), description="zone map; its values are under zones.values")
    table: str | None = Field(None, description="table of the studies (CSV)")
    patient_column: str = Field("patient_id", description="column of the table")
    study_column: str = Field("study_id", description="column of the table")
    grade_column: str = Field(
        "lesion_ISUP", description="ISUP grades or Gleason sums of a study's lesions, by commas"
    )
    category_column: str | None = Field(
        None, description="PI-RADS categories of the same lesions, in the same order"
    )


class ImportRules(Section):
    """State one site's facts: what its series and files are.

    Of a list of matches the first that any series meets decides.
    """

    name: str = Field(description="name of the cohort, shown in its description")
    site: str = Field("n/a", description="site column of participants.tsv")
    labels: Literal["pseudonym", "id"] = Field(
        "pseudonym",
        description="patient labels: a keyed pseudonym, or the source id itself (id) where the "
        "source is already de-identified",
    )
    t2w: tuple[Match, ...] = Field((), description="T2-weighted image")
    adc: tuple[Match, ...] = Field((), description="ADC map, 1e-6 mm2/s")
    dce: DynamicRule | None = Field(None, description="dynamic contrast-enhanced series")
    hbv: tuple[Match, ...] = Field((), description="diffusion image at b of 1400 s/mm2 or more")
    vfa: tuple[Match, ...] = Field((), description="flip-angle series; every match is one angle")
    diffusion: tuple[Match, ...] = Field((), description="every match is one b-value")
    prefer: Literal["last", "first", "largest"] | None = Field(
        None,
        description="which of several images that meet one rule is taken: by acquisition time, or "
        "the one with most voxels; without it the study is refused",
    )
    ranges: dict[str, tuple[float, float]] = Field(
        default_factory=dict, description="wider ranges of plausible statistics (docs/import.md)"
    )
    rois: str = Field("rois.nii.gz", description="label map beside the series")
    lesion: str | None = Field(
        None, description="mask beside the series whose value is the ISUP grade of each lesion"
    )
    gland: str = Field("gland.nii.gz", description="prostate mask beside the series")
    vessel: str = Field("vessel.nii.gz", description="artery mask beside the series")
    detector: DetectorRule | None = Field(
        None, description="regions that a program outlined, where nobody drew one"
    )
    outlines: OutlinesRule | None = Field(
        None, description="masks with one lesion each, where nothing is drawn beside the series"
    )
    findings: FindingsRule | None = Field(None, description="lesions given as points")
    files: FilesRule | None = Field(None, description="image files instead of DICOM")
    zones: ZonesRule | None = Field(None, description="zone map; a ROI gets its majority")
    scores: str = Field(
        "scores.csv", description="patient_id,roi_id,reader_id,scale,score beside the series"
    )
    roi_name: str = Field(
        r"(?P<id>.+)",
        description="SEG segment or RTSTRUCT ROI names that are regions; group id is the roi_id",
    )
    roi_ids: tuple[str, ...] = Field(
        (),
        description="with labels: pseudonym, the ROI ids that may be kept as drawn; every other "
        "becomes a number, because names are free text",
    )
    readers: tuple[str, ...] = Field((), description="readers named in the score template")
    experts: tuple[str, ...] = Field((), description="readers declared expert")
    scale: str = Field("likert5", description="scale named in the score template")

    _patterns = field_validator("roi_name")(_valid_pattern)

    def matches(self, name: str) -> tuple[Match, ...]:
        """Return the matches of a modality, or of ``vfa`` or ``diffusion``."""
        rule: tuple[Match, ...] | DynamicRule | None = getattr(self, name)
        return rule.match if isinstance(rule, DynamicRule) else rule or ()

    @field_validator("ranges")
    @classmethod
    def _known_ranges(cls, value: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        for name, (low, high) in value.items():
            if name not in RANGES:
                raise ValueError(f"no statistic {name!r}; known are {', '.join(RANGES)}")
            if not low < high:
                raise ValueError(f"{name}: the lower end {low:g} is not below {high:g}")
        return value

    @field_validator("rois", "lesion", "gland", "vessel", "scores")
    @classmethod
    def _plain_name(cls, value: str | None) -> str | None:
        if value is not None and ("/" in value or "\\" in value or value.startswith(".")):
            raise ValueError("a file name without folders is expected")
        return value
