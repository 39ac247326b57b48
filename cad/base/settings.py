"""Hold typed settings: everything that changes a result, and nothing about how a job is run.

A pipeline file (``pipelines/*.yaml``) is read as one :class:`PipelineSettings`. A file with a
site's costs of errors (``configs/decision/*.yaml``) is read as one :class:`DecisionSettings`. The
page ``docs/settings.md`` is made from the docstrings of the classes.
"""

import difflib
import inspect
import re
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.reading import MAX_YAML, check_depth, read_bytes, reading
from cad.base.renamed import with_new_keys
from cad.base.terms.features import FAMILY_NAMES, MAPS, SERIES_IMAGES
from cad.base.terms.modality import LEAST_ADC

# Matches, in the docstring of a section, a key on its own line and the indented lines below it.
_KEY = re.compile(r"^(\w+)\n((?:    .+\n?)+)", re.MULTILINE)


class Section(BaseModel):
    """Share two rules among all sections of settings.

    A key that the section does not know is an error, and values cannot be changed after reading.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Copy the docstring's words on each key into the description of this key's field."""
        words = dict(_KEY.findall(inspect.cleandoc(cls.__doc__ or "")))
        for name in cls.model_fields.keys() & words.keys():
            cls.model_fields[name].description = " ".join(words[name].split())


T = TypeVar("T", bound=Section)


class ImageSettings(Section):
    """Say how images are prepared before anything is measured on them.

    Parameters
    ----------
    t2_standardisation
        how T2 intensities of different patients are brought to one scale. zscore: by each patient's
        own mean and standard deviation; reference: by each patient's muscle; nyul: by the
        histograms of the training patients; none: they stay as they are
    t2_reference
        where mean and standard deviation of the z-score are taken: in the gland mask, in a box of
        60 x 60 x 30 mm about the regions, or in the whole image (the result then depends on the
        field of view). auto takes the mask when every study of the cohort has one, else the box
    bias_correction
        whether the bias field of the coil is removed from T2 by the method N4
    spacing_t2w
        distances between voxels to which T2 is interpolated, in mm along x, y and z; 0 leaves an
        axis as it is, and null all three
    spacing_adc
        distances between voxels to which the ADC map is interpolated, in mm along x, y and z; 0
        leaves an axis as it is, and null all three
    interpolation
        whether interpolation is linear between voxel centres, or by cubic splines
    whole_numbers
        whether interpolated values are rounded to whole numbers, as IBSI does for CT
    frame_motion
        whether the frames (time points) of the dynamic series are shifted in line with each other
    registration
        whether ADC and DCE are aligned to T2, by the rigid motion of largest mutual information
    displacement
        what is done about the displacement (shift against T2 in the slice) of ADC, high b and DCE.
        none: it is not measured; said: it is measured and reported; mended: the image is also moved
        back. With registration it is not measured
    mend_from_mm
        smallest displacement, in mm, with which an image is moved back. With 0 every displaced
        image is moved back, so that no result depends on whether a displacement is just above or
        below a limit
    withdraw_from_mm
        if the 95 % range of a displacement reaches this many mm, no decision is stated, whether the
        image was moved back or not
    """

    t2_standardisation: Literal["none", "zscore", "reference", "nyul"] = "zscore"
    t2_reference: Literal["gland", "regions", "image", "auto"] = "auto"
    bias_correction: bool = False
    spacing_t2w: tuple[float, float, float] | None = None
    spacing_adc: tuple[float, float, float] | None = None
    interpolation: Literal["linear", "cubic"] = "linear"
    whole_numbers: bool = False
    frame_motion: Literal["none", "translation"] = "none"
    registration: Literal["none", "rigid"] = "none"
    displacement: Literal["none", "said", "mended"] = "mended"
    mend_from_mm: float = Field(0.0, ge=0)
    withdraw_from_mm: float = Field(10.0, ge=0)


class PerfusionSettings(Section):
    """Set how kinetic parameters are computed from the signal of the dynamic series.

    Parameters
    ----------
    t1
        where the T1 of the tissue comes from. vfa: it is measured from images of several flip
        angles; fixed: t1_tissue; auto: it is measured where a study has such images, else t1_tissue
    b1
        which flip angles are taken. map: those that the map of the transmit field (B1) corrects;
        none: those of the header; auto: map when every dynamic study of the cohort has such a map,
        else none
    t1_tissue
        fixed T1 of the tissue, seconds; null is that of the prostate, 1.6 at 3 T and 1.317 at 1.5 T
    t1_blood
        T1 of blood, seconds; null is 1.664 at 3 T and 1.441 at 1.5 T
    relaxivity
        relaxivity r1 of the contrast agent, 1/(s mM)
    haematocrit
        share of the blood that is red cells, 0 to 1
    arterial_input
        arterial input function (concentration in the artery over time). parker, georgiou: published
        means of a population; measured: the function in the study's vessel mask; auto: measured
        where a study has the mask, else parker
    delay
        time at which the input reaches the tissue. study: one time for each study, from its mean
        curve; voxel: a time for each voxel, fitted within 10 s of the study's time, which makes the
        computation twenty times as long
    models
        kinetic models to fit
    refine
        whether a non-linear fit refines the linear estimate of the parameters
    """

    t1: Literal["vfa", "fixed", "auto"] = "auto"
    b1: Literal["map", "none", "auto"] = "auto"
    t1_tissue: float | None = Field(None, gt=0)
    t1_blood: float | None = Field(None, gt=0)
    relaxivity: float = Field(4.5, gt=0)
    haematocrit: float = Field(0.42, ge=0, lt=1)
    arterial_input: Literal["parker", "georgiou", "measured", "auto"] = "auto"
    delay: Literal["study", "voxel"] = "study"
    models: tuple[Literal["tofts", "extended_tofts", "brix", "patlak"], ...] = (
        "tofts",
        "extended_tofts",
        "brix",
    )
    refine: bool = False


class TextureSettings(Section):
    """Set how grey levels are binned, and how their co-occurrence is counted, in one kind of image.

    Parameters
    ----------
    bins
        number of bins of grey levels; null to use bin_width
    bin_width
        width of a bin, in units of the image
    range
        re-segmentation: values outside this range do not count, and bins of fixed width begin at
        its lower bound (IBSI)
    outliers
        values that differ from the region's mean by more than this many standard deviations of the
        region do not count
    distance
        distance of two voxels whose co-occurrence is counted, in voxels (Chebyshev)
    dimension
        directions in which co-occurrence is counted. slice: 4 directions in the slice, and features
        are averaged over slices; 2D: 4 directions in the slice, and counts of all slices are added;
        3D: 13 directions in space
    aggregation
        merged: one co-occurrence matrix for all directions; averaged: one for each direction, and
        features are averaged over the directions
    """

    bins: int | None = Field(16, ge=2)
    bin_width: float | None = Field(None, gt=0)
    range: tuple[float, float] | None = None
    outliers: float | None = Field(None, gt=0)
    distance: int = Field(1, ge=1)
    dimension: Literal["slice", "2D", "3D"] = "3D"
    aggregation: Literal["merged", "averaged"] = "merged"


class RobustnessSettings(Section):
    """Select features that change little when the region is outlined slightly differently.

    Parameters
    ----------
    stable_only
        learn only from features whose intraclass correlation (ICC) between differently outlined
        copies of the regions has a lower 95 % bound of at least .75 in the training patients
    repeats
        number of differently outlined copies of each region
    """

    stable_only: bool = False
    repeats: int = Field(9, ge=1)


class FilterSettings(Section):
    """Set one filter of IBSI 2 (docs/filters.md).

    Some keys belong to one kind of filter; ``cad.mri.features.filters`` checks this.

    Parameters
    ----------
    kind
        kind of filter: mean, Laplacian of Gaussian (log), or separable stationary wavelet
    support_mm
        for kind mean: side of the filter, in mm; the nearest odd number of voxels is taken
    sigma_mm
        for kind log: standard deviation of the Gaussian, in mm
    truncate
        for kind log: distance from the centre at which the filter is cut, in standard deviations
    wavelet
        for kind wavelet: name of the wavelet in PyWavelets, such as db3
    bands
        for kind wavelet: low (L) or high (H) pass along x, y and in 3D z, such as LLH
    level
        for kind wavelet: level of the decomposition
    rotations
        for kind wavelet: whether the filtered image is the mean over rotations by right angles
    dimension
        whether the filter works in the slice or in space (3D); along its axes voxels must have
        equal sides
    boundary
        which values are assumed beyond the border of the image
    """

    kind: Literal["mean", "log", "wavelet"]
    support_mm: float | None = Field(None, gt=0)
    sigma_mm: float | None = Field(None, gt=0)
    truncate: float = Field(4.0, ge=2, le=10)
    wavelet: str | None = None
    bands: str | None = None
    level: int = Field(1, ge=1, le=4)
    rotations: bool = False
    dimension: Literal["slice", "3D"] = "slice"
    boundary: Literal["mirror", "nearest", "zero", "periodic"] = "mirror"


if TYPE_CHECKING:
    Family = str
    SeriesImage = str
else:
    Family = Literal[FAMILY_NAMES]
    SeriesImage = Literal[SERIES_IMAGES]


class FeatureSettings(Section):
    """Say which features are measured.

    Parameters
    ----------
    modalities
        images in which features are measured
    families
        families of features; the families size and position are measured only if named here
    counting
        whether features that grow with the number of voxels, and so with the region's size, are
        measured too
    radiomics
        further classes of features, measured by pyradiomics (extra 'radiomics')
    partial_voxels
        share: a voxel at the outline counts by the share of it that lies inside; half: it counts as
        whole if at least one half lies inside (IBSI)
    exclude
        names of features that are left out, with wildcards as for file names (*); by default these
        are features whose values depend on the scanner's gain
    dce_images
        images of the dynamic series, and maps computed from it, in which features are measured as
        in T2: those families, such as gradients and co-occurrence, that features.families names
    filters
        filters for each image; features are measured in the filtered images, too
    """

    modalities: tuple[Literal["t2w", "adc", "dce", "hbv", "ktrans"], ...] = ("t2w", "adc", "dce")
    families: tuple[Family, ...] = (
        "intensity",
        "histogram",
        "gradient",
        "haralick",
        "semiquantitative",
        "kinetic",
    )
    counting: bool = False
    radiomics: tuple[
        Literal["shape", "glrlm", "glszm", "gldm", "ngtdm", "total_energy", "mcc"], ...
    ] = ()
    partial_voxels: Literal["share", "half"] = "share"
    exclude: tuple[str, ...] = ("dce_semi_baseline_signal_*", "dce_semi_maximum_enhancement_*")
    texture: TextureSettings = TextureSettings()
    texture_adc: TextureSettings = TextureSettings(
        bins=None, bin_width=120.0, range=(LEAST_ADC, 4000.0)
    )
    texture_dce: TextureSettings = TextureSettings()
    dce_images: tuple[SeriesImage, ...] = ()
    filters: dict[Literal["t2w", "adc", "hbv", "ktrans"], tuple[FilterSettings, ...]] = Field(
        default_factory=dict
    )
    perfusion: PerfusionSettings = PerfusionSettings()
    robustness: RobustnessSettings = RobustnessSettings()

    @model_validator(mode="after")
    def _maps_are_made(self) -> Self:
        """Raise an error for a map of ``dce_images`` that the perfusion settings do not make."""
        for name in self.dce_images:
            # Images of the series itself are no maps, and some maps need no model.
            model = MAPS[name].model if name in MAPS else ""
            if model and model not in self.perfusion.models:
                raise ValueError(f"dce_images names {name}: perfusion.models lacks {model}")
            if name == "input_delay" and self.perfusion.delay != "voxel":
                raise ValueError("dce_images names input_delay: perfusion.delay is not voxel")
        return self


class LabelSettings(Section):
    """Set how readers' scores and histology become labels (docs/methods.md 1).

    Parameters
    ----------
    readers
        readers whose scores count: all, the declared expert, or named readers
    consensus
        how readers are weighted in the label p of a region, the mean of its readers' probabilities.
        agreement: each reader by his agreement with the others; mean: all readers the same; pooled:
        each reader by how well his scores tell the histology of the training regions
    eta
        disagreement of the readers of a region. adaptive: the standard deviation of their
        probabilities; a number: this number for all regions
    eta0
        reading precision: least half-width of a label's interval, and distance from 0 or 1 within
        which a label counts as certain. If it is a list, the learner averages P-SVMs with each of
        the values, and inner folds find their weights
    kappa
        share of the readers' disagreement that becomes half-width. If it is a list, the learner
        averages P-SVMs with each of the values, and inner folds find their weights
    boundary
        rule for a label whose interval leaves (0, 1). drop: the bound outside is ignored; paper:
        the label becomes certain
    histology
        ignore: labels come from the readers; override: where histology is known, it replaces the
        readers and makes the label certain
    isup_min
        lowest ISUP grade that counts as malignant; 1 is any cancer
    pirads_probability
        probability of malignancy that each PI-RADS category stands for. pi-cai: by a published
        table; a mapping: by a table of one's own
    """

    readers: Literal["all", "expert"] | tuple[str, ...] = "all"
    consensus: Literal["agreement", "mean", "pooled"] = "agreement"
    eta: Literal["adaptive"] | float = "adaptive"
    eta0: Annotated[float, Field(ge=0, lt=0.5)] | tuple[float, ...] = 0.125
    kappa: Annotated[float, Field(ge=0)] | tuple[float, ...] = 1.0
    boundary: Literal["drop", "paper"] = "drop"
    histology: Literal["ignore", "override"] = "ignore"
    isup_min: int = Field(2, ge=1, le=5)
    pirads_probability: Literal["pi-cai"] | dict[int, float] = "pi-cai"

    @property
    def precision(self) -> tuple[float | tuple[float, ...], float | tuple[float, ...]]:
        """Return the learner's parameters eta_0 and kappa.

        If the setting ``eta`` is a number, it takes the place of eta_0, and kappa is 1.
        """
        if self.eta == "adaptive":
            return self.eta0, self.kappa
        return float(self.eta), 1.0


class LearnerSettings(Section):
    """Choose the learner and all steps before it that are fitted to training data.

    Parameters
    ----------
    name
        class of the learner in cad.learners
    params
        parameters of the learner
    scaling
        how features are scaled before the learner, inside every fold, to mean 0 and variance 1.
        standard: the feature as measured; rank: its rank among the training regions; clipped: the
        standardised feature, cut at ±3. AveragedProbabilisticSVC and ProbabilisticEnsemble try rank
        and clipped by themselves, and weigh them
    selection
        method that selects features, inside every fold
    n_features
        number of features that the selection keeps
    grid
        values of learner parameters; inner folds of the training patients choose among them
    criterion
        measure by which the inner folds choose from the grid
    inner_folds
        number of inner folds; all regions of a patient are in one fold
    training_rows
        whether a bundle (a stored model) may hold the training regions' rows of features
    harmonisation
        method that removes differences between sites from the features, inside every fold (extra
        'harmonisation')
    """

    name: str = "ProbabilisticSVC"
    params: dict[str, Any] = Field(default_factory=dict)
    scaling: Literal["standard", "rank", "clipped"] = "standard"
    selection: Literal["none", "t-test", "mutual-information", "mrmr", "stability"] = "none"
    n_features: int = Field(20, ge=1)
    grid: dict[str, list[Any]] = Field(default_factory=dict)
    criterion: Literal["cross-entropy", "auc", "kl", "brier"] = "cross-entropy"
    inner_folds: int = Field(5, ge=2)
    training_rows: Literal["carry", "drop"] = "carry"
    harmonisation: Literal["none", "combat"] = "none"


class ValidationSettings(Section):
    """Say how a pipeline is validated.

    Parameters
    ----------
    scheme
        how patients are divided into outer folds, which are left out of training in turn
    folds
        number of outer folds of the scheme 'patient-folds'; all regions of a patient are in one
        fold
    bootstraps
        number of resamples of whole patients for bootstrap intervals
    permutations
        how many times the whole validation is repeated with permuted labels, to show the results
        of chance
    seed
        seed of every random draw in the validation
    """

    scheme: Literal["leave-one-patient-out", "leave-one-site-out", "patient-folds", "none"] = (
        "leave-one-patient-out"
    )
    folds: int = Field(5, ge=2)
    bootstraps: int = Field(1000, ge=0)
    permutations: int = Field(0, ge=0)
    seed: int = Field(0, ge=0)


class DecisionSettings(Section):
    """Set what errors and referrals cost at a site (docs/methods.md 3; [A14] says rejecting).

    To refer a region is to call it neither benign nor malignant and have it read again.

    Parameters
    ----------
    false_positive
        C_n: cost of calling a benign region malignant
    false_negative
        C_p: cost of calling a malignant region benign
    refer_negative
        R_n: cost of referring a benign region
    refer_positive
        R_p: cost of referring a malignant region
    aim_npv
        negative predictive value that regions called benign shall have. The threshold is then
        chosen on the validation and not from the costs: it is the highest one tested for which the
        lower 95 % bound still reaches this value. If there is none, no region is called benign
    aim_ppv
        positive predictive value that regions called malignant shall have. The threshold is chosen
        as for aim_npv
    man_npv
        negative predictive value that men below the lower threshold for men shall have. The
        threshold is chosen as for aim_npv. Without this key it comes from the costs
    prevalence
        share of men with cancer of grade labels.isup_min or more where the model is used. The
        probabilities of a prediction are moved until their mean over the training's men, weighted
        to this share, equals the share. Without this key the probabilities stay as the model gives
        them
    blinded
        whether a man's result is held back until a reader has scored one of his regions: on pages,
        in the terminal, in JSON and in DICOM. Tables show it all the same
    """

    false_positive: float = Field(1.0, gt=0)
    false_negative: float = Field(4.0, gt=0)
    refer_negative: float = Field(0.4, gt=0)
    refer_positive: float = Field(0.4, gt=0)
    aim_npv: float | None = Field(None, gt=0, lt=1)
    aim_ppv: float | None = Field(None, gt=0, lt=1)
    man_npv: float | None = Field(None, gt=0, lt=1)
    prevalence: float | None = None
    blinded: bool = False

    @field_validator("prevalence", mode="before")
    @classmethod
    def _a_share_of_men(cls, value: Any) -> Any:
        """Raise an error for a value that is no number between 0 and 1.

        For example, 28 could mean per cent, and ``true`` would count as 1.
        """
        if value is None:
            return None
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 < value < 1:
            raise ValueError(
                "must be a share of men between 0 and 1, such as 0.28 for 28 %; leave it out where "
                "it is not known"
            )
        return float(value)

    @model_validator(mode="before")
    @classmethod
    def _without_retired(cls, content: Any) -> Any:
        """Remove the former key ``man_ppv``, which pipelines of older models hold with no value."""
        if isinstance(content, dict) and "man_ppv" in content:
            if content["man_ppv"] is not None:
                raise ValueError(
                    "man_ppv is no setting any more: a man is called malignant where one of his "
                    "regions is; aim_ppv promises that of regions"
                )
            return {key: value for key, value in content.items() if key != "man_ppv"}
        return content

    @property
    def of_men(self) -> Self | None:
        """Return these settings with the aim for men in place of the aims for regions.

        The result is None where there is no aim for men. The threshold for men then comes from the
        costs.
        """
        if self.man_npv is None:
            return None
        return self.model_copy(update={"aim_npv": self.man_npv, "aim_ppv": None})

    @property
    def thresholds(self) -> tuple[float, float]:
        """Return the thresholds P- and P+ that follow from the costs.

        A region with a probability below P- is called benign and one above P+ malignant. A region
        between them is referred.

        Raises
        ------
        CadError
            When referring costs so much that it would never be chosen (docs/methods.md 3).
        """
        relative_cost = (
            self.refer_positive / self.false_negative + self.refer_negative / self.false_positive
        )
        if relative_cost >= 1:
            raise CadError(
                f"these costs make referring useless: R_p/C_p + R_n/C_n = {relative_cost:.3g}, "
                "must be < 1",
                hint="lower refer_positive or refer_negative, or raise the costs of errors",
            )
        # P- = R_n / (C_p - R_p + R_n) and P+ = (C_n - R_n) / (C_n - R_n + R_p).
        saved_on_positive = self.false_negative - self.refer_positive
        saved_on_negative = self.false_positive - self.refer_negative
        lower = self.refer_negative / (saved_on_positive + self.refer_negative)
        upper = saved_on_negative / (saved_on_negative + self.refer_positive)
        return lower, upper


class PipelineSettings(Section):
    """Hold the settings of one pipeline, in sections: images, features, labels, and so on.

    Parameters
    ----------
    name
        short name, shown on every page
    description
        one sentence for the reader of a report
    """

    name: str
    description: str = ""
    images: ImageSettings = ImageSettings()
    features: FeatureSettings = FeatureSettings()
    labels: LabelSettings = LabelSettings()
    learner: LearnerSettings = LearnerSettings()
    validate_: ValidationSettings = Field(ValidationSettings(), alias="validate")
    decision: DecisionSettings = DecisionSettings()

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    _notes_on_old_keys: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _accept_old_keys(cls, content: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Read keys under their old names, too, and keep a note on each old name."""
        notes: tuple[str, ...] = ()
        if isinstance(content, dict):
            content, notes = with_new_keys(content)
        settings = handler(content)
        if notes:
            settings._notes_on_old_keys = notes
        return settings

    @property
    def notes_on_old_keys(self) -> tuple[str, ...]:
        """Return a sentence for each key that the pipeline file has under its old name."""
        return self._notes_on_old_keys


class _SafeYaml(yaml.SafeLoader):
    """Read safe YAML without aliases: a few nested aliases could expand to a billion values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not allowed", problem_mark=mark)
        return super().compose_node(parent, index)


@door("in", "YAML", limit=MAX_YAML)
def read_settings(kind: type[T], path: Path) -> T:
    """Read one YAML file into typed settings.

    Raises
    ------
    CadError
        For a missing file, invalid YAML, an unknown key (the message suggests the nearest allowed
        one) or a value outside its range. The message names the key with its full path.
    """
    if not path.is_file():
        raise CadError("no such settings file", file=path)
    with reading(path, "not valid YAML"):
        text = read_bytes(path, MAX_YAML).decode("utf-8-sig")
        # _SafeYaml is a SafeLoader, but linters cannot see this.
        content = yaml.load(text, _SafeYaml)  # noqa: S506
        check_depth(content)
    if not isinstance(content, dict):
        raise CadError("settings are a mapping of keys to values", file=path)
    return parse_settings(kind, content, path)


def parse_settings(kind: type[T], content: dict[str, Any], file: object = "") -> T:
    """Make typed settings from a mapping.

    Raises
    ------
    CadError
        For an unknown key or a value outside its range.
    """
    with reading(file, "not valid settings"):
        try:
            return kind.model_validate(content)
        except ValidationError as error:
            problems = [_settings_error(kind, problem) for problem in error.errors()]
            raise CadError("; ".join(problems)) from error


def _settings_error(kind: type[Section], error: Any) -> str:
    """Return one of pydantic's errors in words, with the full path of its key."""
    path = [str(key) for key in error["loc"]]
    full_key = ".".join(path)
    if error["type"] != "extra_forbidden":
        rule = str(error["msg"]).removeprefix("Value error, ")
        if not full_key:  # a rule about several keys names these keys itself
            return rule
        return f"{full_key}: {rule}, found {reprlib.repr(error['input'])}"
    message = f"unknown key {full_key}"
    allowed = _allowed_keys(kind, path[:-1])
    closest = difflib.get_close_matches(path[-1], allowed, n=1, cutoff=0.4)
    if closest:
        message += f"; did you mean {closest[0]!r}?"
    return message


def _allowed_keys(kind: type[BaseModel], path: list[str]) -> list[str]:
    """Return the keys that are allowed at a path of keys; an index of a list is skipped."""
    for key in path:
        if key.isdigit():
            continue
        section = None
        for name, field in kind.model_fields.items():
            if key in (name, field.alias):
                section = next(_sections(field.annotation), None)
                break
        if section is None:
            return []  # the path leads to no section, so no key can be suggested
        kind = section
    return [field.alias or name for name, field in kind.model_fields.items()]


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the settings sections in an annotation such as ``tuple[Match, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections(inner)
