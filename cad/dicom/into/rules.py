"""Describe a site's rules file: which DICOM series is which image, and which files count."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from cad.base.settings import Section
from cad.mri.imaging.frames import Frame
from cad.mri.imaging.plausibility import RANGES

FIRST_READER = "r1"
"""Reader of the scores in a table that names no reader, if the rules name none either."""
_SMALL_NUMBER = re.compile(r"[1-9][0-9]{0,2}")


def _valid_pattern(pattern: str) -> str:
    """Return a pattern as it is, and refuse it if it is no regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


_Pattern = Annotated[str, AfterValidator(_valid_pattern)]


class Match(Section):
    """State conditions on the header of a series; the series must meet all that are given.

    Parameters
    ----------
    description
        regular expression, found anywhere in SeriesDescription, in any case
    exclude
        regular expression that SeriesDescription must not match
    image_type
        values that ImageType must all hold
    sequence_name
        regular expression, found anywhere in SequenceName, in any case
    series_number
        the SeriesNumber itself
    b_value
        b-value in s/mm2; a difference of up to 1 does not count
    flip_angle
        flip angle in degrees; a difference of up to .01 does not count
    scale
        factor from the file's values to the modality's unit (ADC: 1e-6 mm2/s), where the site knows
        the unit better than the header states it; this is no condition
    """

    description: _Pattern | None = None
    exclude: _Pattern | None = None
    image_type: tuple[str, ...] = ()
    sequence_name: _Pattern | None = None
    series_number: int | None = None
    b_value: float | None = None
    flip_angle: float | None = None
    scale: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _not_empty(self) -> Match:
        # The key ``scale`` is a factor for the values of an image, and no condition that a series
        # must meet.
        if not self.model_fields_set - {"scale"}:
            raise ValueError("a match without any condition would accept every series")
        return self

    def accepts(self, header: Frame) -> bool:
        """Tell whether a frame meets every condition of this rule."""
        first_miss = next(self.misses(header), None)
        return first_miss is None

    def misses(self, header: Frame) -> Iterator[str]:
        """Yield a message for each condition of this rule that a frame does not meet."""
        if not _text_matches(self.description, header.description):
            yield f"description is not {self.description}"
        if self.exclude and _text_matches(self.exclude, header.description):
            yield f"description is excluded by {self.exclude}"
        lacking = set(self.image_type) - set(header.image_type)
        if lacking:
            yield f"ImageType lacks {', '.join(sorted(lacking))}"
        if not _text_matches(self.sequence_name, header.sequence_name):
            yield f"SequenceName {header.sequence_name!r} is not {self.sequence_name}"
        # A condition that is None accepts every series.
        if self.series_number not in (None, header.series_number):
            yield f"its number is not {self.series_number}"
        # Scanners state rounded b-values, or values that differ by a fraction.
        if not _near(self.b_value, header.b_value, 1.0):
            yield f"b is {_number_text(header.b_value)}, not {self.b_value:g}"
        if not _near(self.flip_angle, header.flip_angle, 0.01):
            yield f"the flip angle is {_number_text(header.flip_angle)}, not {self.flip_angle:g}"


def _text_matches(pattern: str | None, text: str) -> bool:
    return pattern is None or re.search(pattern, text, re.IGNORECASE) is not None


def _number_text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"


def _near(wanted: float | None, value: float | None, tolerance: float) -> bool:
    return wanted is None or (value is not None and abs(value - wanted) <= tolerance)


class DynamicRule(Section):
    """State which series are phases of the dynamic series, and which clock tells their times.

    Parameters
    ----------
    match
        a series is a phase when it meets any of these
    clock
        what gives the time of a phase: a time in the header, or the seconds in the series
        description. auto: the first of trigger, acquisition and content time that every phase has
        and no two phases share
    interval
        seconds from phase to phase, used instead of any clock
    time_pattern
        regular expression that finds the seconds in the series description, as its first group
    """

    match: tuple[Match, ...]
    clock: Literal["auto", "acquisition", "content", "trigger", "description"] = "auto"
    interval: float | None = Field(None, gt=0)
    time_pattern: _Pattern = r"TT=([0-9.]+)s"


class ZonesRule(Section):
    """Name a map of the prostate's zones that lies beside the series.

    Parameters
    ----------
    file
        file name
    values
        the zone that each number in the map stands for
    """

    file: str
    values: dict[int, Literal["PZ", "TZ", "CZ", "AFS"]]


class FindingsRule(Section):
    """Name a table of lesions that are given as points, as PROSTATEx has them.

    Parameters
    ----------
    file
        name of a CSV at the top of the source or below, with columns ProxID, fid, pos, zone and
        ClinSig
    radius
        mm; a ball around the point stands for the lesion
    """

    file: str = "ProstateX-Findings-Train.csv"
    radius: float = Field(5.0, gt=0)


class OutlinesRule(Section):
    """Name mask files of lesions, and tables with scores and histology of these lesions.

    Paths are below the top of the source; ``{patient}``, ``{roi}`` and ``{reader}`` stand for ids,
    ``*`` for the rest of a name.

    Parameters
    ----------
    file
        paths of the masks; a lesion is taken from the first path at which it has a file. A lesion
        that several readers drew consists of the voxels that at least half of them drew. A path
        without {roi} names a label map
    gland
        path of the prostate mask, if none lies beside the series
    images
        CSV with columns T2 and ADC. They name the series on which a patient's masks were drawn, in
        the form PATIENT_NAME_NUMBER with the SeriesNumber at the end; these series are taken even
        if the rules prefer others
    table
        CSV with one row per lesion, or one row per lesion and reader
    key
        columns of the table, and the values by which they mark a lesion's row (leading zeros do not
        count). If no value contains {roi}, a man's n-th row with a score is lesion n
    truth_column
        column of histology: True, 1 or yes; False, 0 or no; any other cell counts as unknown
    truth_means
        meaning of True in that column. significant: clinically significant cancer (ISUP 2 or more);
        False then means ISUP 1 or no cancer. cancer: any cancer; False then means benign
    grade_column
        column of the ISUP grade; other cells count as unknown
    score_column
        column of the score, on the scale of the rules
    reader_column
        column of the reader's name; without it all scores are the first reader's
    template
        CSV of a man's template biopsies, one row per zone: zone_id, samtaken, zprescancer,
        zprimgleason, zsecondgleason
    template_zones
        image whose values are the zone_id of these zones
    """

    file: tuple[str, ...]
    gland: str | None = None
    images: str | None = None
    table: str | None = None
    key: dict[str, str] = Field({"ID": "{patient}_{roi}"})
    truth_column: str | None = None
    truth_means: Literal["significant", "cancer"] = "significant"
    grade_column: str | None = None
    score_column: str | None = None
    reader_column: str | None = None
    template: str | None = None
    template_zones: str | None = None

    @model_validator(mode="after")
    def _whole(self) -> OutlinesRule:
        """Refuse rules of which a part is missing that another part needs."""
        key_lacks_roi = not any("{roi}" in text for text in self.key.values())
        if self.table and key_lacks_roi and not self.score_column:
            raise ValueError("a key without {roi} counts rows with a score: give score_column")
        if (self.template is None) != (self.template_zones is None):
            raise ValueError("template and template_zones belong together")
        return self


class DetectorRule(Section):
    """Name a detector's map of a study: labels, or a value from 0 to 1 in every voxel.

    Parameters
    ----------
    file
        name of a file beside the series, such as nnU-Net's CASE.nii.gz, MONAI's NAME_seg.nii.gz or
        PI-CAI's cspca_detection_map.mha; in a cohort of image files (``files``) the end of a path,
        with {patient} and {study}
    threshold
        least value of a candidate's voxels; in a map of labels all labels from 1 on are candidates
    least
        volume in mm3; smaller candidates are left out
    """

    file: str
    threshold: float = Field(0.5, gt=0, lt=1)
    least: float = Field(50.0, ge=0)


class FilesRule(Section):
    """Name the files of a cohort that comes as image files instead of DICOM.

    Paths are the ends of paths below the source; ``{patient}`` and ``{study}`` stand for the ids,
    ``*`` for the rest of a name. In a list the first file that exists is taken.

    Parameters
    ----------
    study
        one file that every study has; it gives {patient} and {study}
    t2w
        T2-weighted image
    adc
        ADC map
    hbv
        diffusion image at b of 1400 s/mm2 or more
    ktrans
        Ktrans map made elsewhere
    adc_scale
        factor from the file to 1e-6 mm2/s
    ktrans_scale
        factor from the file to 1/min
    gland
        prostate mask
    lesion
        lesion mask
    lesion_values
        meaning of a voxel's value in the lesion mask. isup: the ISUP grade of the lesion; picai:
        the same, except that 1 means grade 2 or more, without saying which; mask: any value but 0
        marks a malignant lesion
    zones
        zone map; its values are under zones.values
    table
        CSV with a row for each study
    patient_column
        column of the patient's id
    study_column
        column of the study's id
    grade_column
        column with a study's grades, separated by commas: for each lesion its ISUP grade, or its
        Gleason score such as 3+4
    category_column
        column of the PI-RADS categories of the same lesions, in the same order
    """

    study: str
    t2w: tuple[str, ...] = ()
    adc: tuple[str, ...] = ()
    hbv: tuple[str, ...] = ()
    ktrans: tuple[str, ...] = ()
    adc_scale: float | None = Field(None, gt=0)
    ktrans_scale: float | None = Field(None, gt=0)
    gland: tuple[str, ...] = ()
    lesion: tuple[str, ...] = ()
    lesion_values: Literal["isup", "picai", "mask"] = "isup"
    zones: tuple[str, ...] = ()
    table: str | None = None
    patient_column: str = "patient_id"
    study_column: str = "study_id"
    grade_column: str = "lesion_ISUP"
    category_column: str | None = None


class ImportRules(Section):
    """State one site's facts: which of its series and files is which image.

    An image may have a list of matches. The first match in the list that any series meets is used.

    Parameters
    ----------
    name
        name of the cohort, shown in its description
    site
        text for the column site of participants.tsv
    labels
        the patients' labels. pseudonym: made from the source's id with a secret key; id: the
        source's id itself, where the source is already de-identified
    t2w
        T2-weighted image
    adc
        ADC map, 1e-6 mm2/s
    dce
        dynamic contrast-enhanced series
    hbv
        diffusion image at b of 1400 s/mm2 or more
    ktrans
        Ktrans map made elsewhere, 1/min
    ktrans_file
        the Ktrans map as an image file, used where no series meets the rule ``ktrans``: paths below
        the source, or below the folder in which its zip archives lie; {patient} stands for the id,
        * for any text without /
    ktrans_scale
        factor from such a file to 1/min
    vfa
        flip-angle series; every match is one angle
    diffusion
        every match is one b-value
    prefer
        which of several images that meet one rule is taken: the first or last by acquisition time,
        or the largest, which has most voxels; without an entry the study is refused
    ranges
        the site's own plausible ranges of statistics, by name (docs/import.md)
    rois
        label map beside the series
    lesion
        mask beside the series whose value is the ISUP grade of each lesion
    gland
        prostate mask beside the series; without any the zone map's zones together are the gland
    gland_file
        the prostate mask anywhere in the source, used where none lies beside the series: paths
        below the source; {patient} stands for the id, * for any text without /
    gland_values
        the numbers that are the prostate in a map of several organs or zones; without them every
        number but 0
    vessel
        artery mask beside the series
    detector
        regions that a program outlined, where nobody drew one
    outlines
        masks with one lesion each, where nothing is drawn beside the series
    findings
        lesions given as points
    undecided
        images that two kinds of series could be, each with a line on every candidate; an import
        refuses the rules file until a person has kept one candidate and removed this entry
    files
        files of a cohort that comes as image files instead of DICOM
    zones
        zone map; a ROI gets the zone that holds most of its voxels
    scores
        CSV beside the series with columns patient_id, roi_id, reader_id, scale and score
    roi_name
        regular expression: SEG segments or RTSTRUCT ROIs whose names it matches are regions; the
        text of its group ``id`` is the roi_id
    roi_ids
        where the labels are pseudonyms, the ROI ids that may be kept as drawn; every other id
        becomes a number, because names are free text
    readers
        readers who get rows with empty scores in scores.tsv, to be filled in
    experts
        readers who are marked as experts in readers.tsv
    scale
        scale of the scores in these rows, and of the scores in the table of ``outlines``
    """

    name: str
    site: str = "n/a"
    labels: Literal["pseudonym", "id"] = "pseudonym"
    t2w: tuple[Match, ...] = ()
    adc: tuple[Match, ...] = ()
    dce: DynamicRule | None = None
    hbv: tuple[Match, ...] = ()
    ktrans: tuple[Match, ...] = ()
    ktrans_file: tuple[str, ...] = ()
    ktrans_scale: float | None = Field(None, gt=0)
    vfa: tuple[Match, ...] = ()
    diffusion: tuple[Match, ...] = ()
    prefer: Literal["last", "first", "largest"] | None = None
    ranges: dict[str, tuple[float, float]] = Field(default_factory=dict)
    rois: str = "rois.nii.gz"
    lesion: str | None = None
    gland: str = "gland.nii.gz"
    gland_file: tuple[str, ...] = ()
    gland_values: tuple[int, ...] = ()
    vessel: str = "vessel.nii.gz"
    detector: DetectorRule | None = None
    outlines: OutlinesRule | None = None
    findings: FindingsRule | None = None
    undecided: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    files: FilesRule | None = None
    zones: ZonesRule | None = None
    scores: str = "scores.csv"
    roi_name: _Pattern = r"(?P<id>.+)"
    roi_ids: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    experts: tuple[str, ...] = ()
    scale: str = "likert5"

    def keeps(self, roi_id: str) -> bool:
        """Tell whether a ROI id stays as the source has it and may stand in messages.

        Under pseudonyms only small numbers and the ids of ``roi_ids`` stay. Other text may name the
        patient, and a longer number may be a date of birth or the patient's own number.

        Parameters
        ----------
        roi_id : str
            The id.

        Returns
        -------
        bool
            True if the id stays; False if a number takes its place.
        """
        if self.labels != "pseudonym" or roi_id in self.roi_ids:
            return True
        return _SMALL_NUMBER.fullmatch(roi_id) is not None

    def matches(self, name: str) -> tuple[Match, ...]:
        """Return the conditions for one image or series of images.

        Parameters
        ----------
        name : str
            ``t2w``, ``adc``, ``dce``, ``hbv``, ``ktrans``, ``vfa`` or ``diffusion``.
        """
        rule: tuple[Match, ...] | DynamicRule | None = getattr(self, name)
        if isinstance(rule, DynamicRule):
            return rule.match
        return rule or ()  # None, where the rules name no such image

    @field_validator("ranges")
    @classmethod
    def _known_ranges(cls, value: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        """Refuse a range of an unknown statistic, and one whose ends are in the wrong order."""
        for name, (low, high) in value.items():
            if name not in RANGES:
                raise ValueError(f"no statistic {name!r}; known are {', '.join(RANGES)}")
            if not low < high:
                raise ValueError(f"{name}: the lower end {low:g} is not below {high:g}")
        return value

    @field_validator("rois", "lesion", "gland", "vessel", "scores")
    @classmethod
    def _plain_name(cls, value: str | None) -> str | None:
        """Refuse a path: these files lie beside the series, and .. would lead out of the source."""
        if value is not None and ("/" in value or "\\" in value or value.startswith(".")):
            raise ValueError("a file name without folders is expected")
        return value
