"""A site's rules file: which DICOM series is what, and which files beside the series count."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from cad.imaging.dicom_headers import Slice
from cad.settings import Section


def _valid_pattern(pattern: str | None) -> str | None:
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
    return pattern


class Match(Section):
    """Conditions on a header; a series must meet all that are given."""

    description: str | None = Field(None, description="regular expression, anywhere, any case")
    exclude: str | None = Field(None, description="descriptions that must not match")
    image_type: tuple[str, ...] = Field((), description="values that ImageType must all hold")
    sequence_name: str | None = Field(None, description="regular expression, anywhere, any case")
    series_number: int | None = Field(None, description="exact")
    b_value: float | None = Field(None, description="s/mm2, within 1")
    flip_angle: float | None = Field(None, description="degrees, within .01")

    _patterns = field_validator("description", "exclude", "sequence_name")(_valid_pattern)

    @model_validator(mode="after")
    def _not_empty(self) -> Match:
        if not self.model_fields_set:
            raise ValueError("a match without any condition would accept every series")
        return self

    def accepts(self, header: Slice) -> bool:
        """Whether a slice meets every condition."""
        return (
            _found(self.description, header.description)
            and not (self.exclude and _found(self.exclude, header.description))
            and set(self.image_type) <= set(header.image_type)
            and _found(self.sequence_name, header.sequence_name)
            and self.series_number in (None, header.series_number)
            and _near(self.b_value, header.b_value, 1.0)
            and _near(self.flip_angle, header.flip_angle, 0.01)
        )


def _found(pattern: str | None, text: str) -> bool:
    return pattern is None or re.search(pattern, text, re.IGNORECASE) is not None


def _near(wanted: float | None, value: float | None, tolerance: float) -> bool:
    return wanted is None or (value is not None and abs(value - wanted) <= tolerance)


class DynamicRule(Section):
    """Which series are phases of the dynamic series, and which clock dates them."""

    match: tuple[Match, ...] = Field(description="a phase meets any of these")
    clock: Literal["acquisition", "content", "trigger", "description"] = Field(
        "acquisition", description="header time, or seconds in the series description"
    )
    time_pattern: str = Field(
        r"TT=([0-9.]+)s", description="regular expression whose group is the seconds"
    )

    _patterns = field_validator("time_pattern")(_valid_pattern)


class ZonesRule(Section):
    """A zone map beside the series."""

    file: str = Field(description="file name")
    values: dict[int, Literal["PZ", "TZ", "CZ", "AFS"]] = Field(description="what each value is")


class ImportRules(Section):
    """One site's facts. Lists are tried in order: the first entry that any series meets decides."""

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
    vfa: tuple[Match, ...] = Field((), description="flip-angle series; every match is one angle")
    diffusion: tuple[Match, ...] = Field((), description="every match is one b-value")
    rois: str = Field("rois.nii.gz", description="label map beside the series")
    lesion: str | None = Field(
        None, description="mask beside the series whose value is the ISUP grade of each lesion"
    )
    gland: str = Field("gland.nii.gz", description="prostate mask beside the series")
    vessel: str = Field("vessel.nii.gz", description="artery mask beside the series")
    zones: ZonesRule | None = Field(None, description="zone map; a ROI gets its majority")
    scores: str = Field(
        "scores.csv", description="patient_id,roi_id,reader_id,scale,score beside the series"
    )
    roi_name: str = Field(
        r"(?P<id>.+)",
        description="SEG segment or RTSTRUCT ROI names that are regions; group id is the roi_id",
    )
    readers: tuple[str, ...] = Field((), description="readers named in the score template")
    experts: tuple[str, ...] = Field((), description="readers declared expert")
    scale: str = Field("likert5", description="scale named in the score template")

    _patterns = field_validator("roi_name")(_valid_pattern)

    @field_validator("rois", "lesion", "gland", "vessel", "scores")
    @classmethod
    def _plain_name(cls, value: str | None) -> str | None:
        if value is not None and ("/" in value or "\\" in value or value.startswith(".")):
            raise ValueError("a file name without folders is expected")
        return value
