"""Hold typed settings: everything that changes a result, and nothing about how a job is run.

A pipeline file (``pipelines/*.yaml``) is one :class:`PipelineSettings`; a site's costs
(``configs/decision/*.yaml``) are one :class:`DecisionSettings`.
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
    ValidationError,
    field_validator,
    model_validator,
)

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.reading import MAX_YAML, check_depth, read_bytes, reading
from cad.base.terms.features import FAMILY_NAMES, MAPS, SERIES_IMAGES
from cad.base.terms.modality import LEAST_ADC

# A key on its own line, and the indented lines below it.
_KEY = re.compile(r"^(\w+)\n((?:    .+\n?)+)", re.MULTILINE)


class Section(BaseModel):
    """Share the rules of all settings: unknown keys are refused, and values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Copy the words on each key from the section's docstring into the key's description."""
        words = dict(_KEY.findall(inspect.cleandoc(cls.__doc__ or "")))
        for name in cls.model_fields.keys() & words.keys():
            cls.model_fields[name].description = " ".join(words[name].split())


T = TypeVar("T", bound=Section)


class ImageSettings(Section):
    """Say how images are prepared before anything is measured on them.

    Parameters
    ----------
    t2_standardisation
        T2 intensity scale: per-patient z-score, reference tissue, or Nyul
    t2_reference
        where mean and deviation of the z-score are taken: in the gland mask, in a box of
        60 x 60 x 30 mm about the regions, or in the whole image (which depends on the field of
        view). auto takes the mask when every study of the cohort has one, else the box
    bias_correction
        N4 bias-field correction of T2
    spacing_t2w
        T2 is interpolated to this spacing, mm along x, y, z (0 keeps the axis)
    spacing_adc
        the same for ADC
    interpolation
        linear between voxel centres, or by cubic splines
    whole_numbers
        round interpolated values to whole numbers (IBSI, for CT)
    frame_motion
        bring the frames of the dynamic series in line with each other
    registration
        align ADC and DCE to T2 by rigid mutual information
    displacement
        shift of ADC, high b and DCE against T2 in the slice. none: not measured; said: measured and
        reported; mended: also moved back. With registration it is not measured
    mend_from_mm
        smallest displacement that is mended, mm; 0 mends all, so that no result hangs on a limit
    withdraw_from_mm
        if the 95 % range of a displacement reaches this, no decision is stated, mended or not, mm
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
    """Set the way from dynamic signal to kinetic parameters.

    Parameters
    ----------
    t1
        tissue T1: vfa from images of several flip angles, fixed from t1_tissue, auto from flip
        angles where a study has them
    b1
        flip angles: map corrects them by the map of the transmit field (B1), none takes them as
        stated, auto takes the map when every dynamic study of the cohort has one
    t1_tissue
        fixed tissue T1, seconds; null: prostate, 3 T 1.6, 1.5 T 1.317
    t1_blood
        blood T1, seconds; null: 3 T 1.664, 1.5 T 1.441
    relaxivity
        contrast agent r1, 1/(s mM)
    haematocrit
        haematocrit, 0 to 1
    arterial_input
        arterial input function: of a population (parker, georgiou), measured in a vessel mask, or
        auto: measured where a study has the mask
    delay
        time at which the input reaches the tissue. study: one for each study, from its mean curve;
        voxel: fitted in each voxel, within 10 s of the study's (twenty times the work)
    models
        kinetic models to fit
    refine
        non-linear refinement after the linear estimate
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
    """Set grey levels and co-occurrence of T2, ADC and images of the dynamic series.

    Parameters
    ----------
    bins
        fixed bin number; null to use bin_width
    bin_width
        fixed bin width, image units
    range
        re-segmentation: values outside this range do not count, and bins of fixed width begin at
        its lower bound (IBSI)
    outliers
        values more than this many standard deviations of the region from its mean do not count
    distance
        co-occurrence distance, voxels (Chebyshev)
    dimension
        slice: 4 directions, averaged over slices; 2D: 4 directions, slices merged; 3D: 13
        directions
    aggregation
        one merged matrix, or features averaged over directions
    """

    bins: int | None = Field(16, ge=2)
    bin_width: float | None = Field(None, gt=0)
    range: tuple[float, float] | None = None
    outliers: float | None = Field(None, gt=0)
    distance: int = Field(1, ge=1)
    dimension: Literal["slice", "2D", "3D"] = "3D"
    aggregation: Literal["merged", "averaged"] = "merged"


class RobustnessSettings(Section):
    """Select features that survive a slightly different drawing of the region.

    Parameters
    ----------
    stable_only
        learn from features whose ICC over redrawn regions has a lower 95 % bound of at least .75,
        judged on the training patients
    repeats
        redrawn copies of each region
    """

    stable_only: bool = False
    repeats: int = Field(9, ge=1)


class FilterSettings(Section):
    """Set one filter of IBSI 2 (docs/filters.md).

    ``cad.mri.features.filters`` checks which keys go together.

    Parameters
    ----------
    kind
        mean, Laplacian of Gaussian, or separable stationary wavelet
    support_mm
        mean: side, mm; the nearest odd number of voxels is taken
    sigma_mm
        log: standard deviation, mm
    truncate
        log: distance from the centre at which the filter is cut, in standard deviations
    wavelet
        wavelet: PyWavelets' name, such as db3
    bands
        wavelet: low (L) or high (H) pass along x, y and in 3D z, such as LLH
    level
        wavelet: level of the decomposition
    rotations
        wavelet: the mean response over rotations by right angles
    dimension
        in the slice, or in space (3D); along the axes of the filter voxels must have equal sides
    boundary
        values that are taken beyond the border of the image
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
        feature families; size and position of the region are left out unless named
    counting
        also measure features that grow with the number of voxels, and so tell size
    radiomics
        further classes of features, measured by pyradiomics (extra 'radiomics')
    partial_voxels
        voxels at the outline count by the share inside it, or whole if one half is inside (IBSI)
    exclude
        glob patterns of feature names to leave out; by default features in units of the scanner's
        gain
    dce_images
        images of the dynamic series, or maps by name, in which gradients and co-occurrence (and the
        other families of the key families) are measured as in T2
    filters
        filters by image; their responses are measured too
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
        for name in self.dce_images:
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
        p of several readers is their mean. agreement weighs each by his agreement with the others,
        mean weighs all the same, pooled weighs each by his skill on training histology
    eta
        disagreement: standard deviation over readers, or one constant
    eta0
        reading precision: least half-width of a label, and distance from 0 or 1 within which a
        label counts as certain; of a list each value is weighed on inner folds
    kappa
        share of the disagreement that becomes half-width; of a list each value is weighed on inner
        folds
    boundary
        rule for labels at the ends of (0, 1)
    histology
        whether known histology replaces the readers as a certain label
    isup_min
        lowest ISUP grade that counts as malignant; 1 is any cancer
    pirads_probability
        probability of each PI-RADS category: a published table, or one's own
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
        """Return eta_0 and kappa for the learner; a constant eta takes the place of eta_0."""
        return (self.eta0, self.kappa) if self.eta == "adaptive" else (float(self.eta), 1.0)


class LearnerSettings(Section):
    """Choose the learner and everything fitted in front of it.

    Parameters
    ----------
    name
        class of the learner in cad.learners
    params
        parameters of the learner
    scaling
        before the learner, inside every fold, each feature gets mean 0 and variance 1. standard
        takes it as measured, rank its rank among the training regions, clipped cuts it at ±3.
        AveragedProbabilisticSVC and ProbabilisticEnsemble weigh rank and clipped by themselves
    selection
        feature selection inside every fold
    n_features
        features kept by selection
    grid
        values of learner parameters; nested validation chooses among them
    criterion
        measure by which the inner folds choose from the grid
    inner_folds
        number of inner folds, which keep each patient together
    training_rows
        whether a bundle may hold training regions' feature rows
    harmonisation
        site harmonisation inside every fold (extra 'harmonisation')
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
        how patients are dealt to outer folds
    folds
        number of folds that 'patient-folds' deals whole patients to
    bootstraps
        resamples of whole patients for bootstrap intervals
    permutations
        permutations of the labels, each with the whole validation, that show results of chance
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
    """Set a site's costs of errors and of referring ([A14]: rejecting; docs/methods.md 3).

    Parameters
    ----------
    false_positive
        C_n: a benign region called malignant
    false_negative
        C_p: a malignant region called benign
    refer_negative
        R_n: a benign region referred
    refer_positive
        R_p: a malignant region referred
    aim_npv
        negative predictive value to be promised of regions called benign. As many regions are
        called benign as the promise holds for, or none. The threshold then comes from the
        validation and not from the costs
    aim_ppv
        positive predictive value to be promised of regions called malignant, likewise
    man_npv
        negative predictive value to be promised of men below their own limit
    prevalence
        share of men with cancer of labels.isup_min or more where the model is used. A prediction's
        probabilities are moved so that the training's men, weighed to this share, have it as their
        mean. Without this key the probabilities stay as the model gives them
    blinded
        hold back a man's result until a reader has scored one of his regions: on pages, in the
        terminal, in JSON and in DICOM. Tables show it all the same
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
        """Raise an error for a value that is no share: 28 could mean per cent, and true would count
        as 1.
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
        """Remove ``man_ppv``, an empty setting in the pipelines of older models."""
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

        The result is None where there is no aim for men; a man's limit then comes from the costs.
        """
        if self.man_npv is None:
            return None
        return self.model_copy(update={"aim_npv": self.man_npv, "aim_ppv": None})

    @property
    def thresholds(self) -> tuple[float, float]:
        """Return P- and P+: below P- a region is benign, above P+ malignant, and in between refer.

        Raises
        ------
        CadError
            When the costs make referring useless (docs/methods.md 3).
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
        lower = self.refer_negative / (
            self.false_negative - self.refer_positive + self.refer_negative
        )
        gain = self.false_positive - self.refer_negative
        return lower, gain / (gain + self.refer_positive)


class PipelineSettings(Section):
    """Hold one pipeline: images, features, labels, learner, validation, decision.

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
    """Make typed settings from a mapping; errors as in :func:`read_settings`."""
    with reading(file, "not valid settings"):
        try:
            return kind.model_validate(content)
        except ValidationError as error:
            raise CadError("; ".join(_settings_error(kind, e) for e in error.errors())) from error


def _settings_error(kind: type[Section], error: Any) -> str:
    path = [str(key) for key in error["loc"]]
    where = ".".join(path)
    if error["type"] != "extra_forbidden":
        rule = str(error["msg"]).removeprefix("Value error, ")
        if not where:  # a rule about several keys names these keys itself
            return rule
        return f"{where}: {rule}, found {reprlib.repr(error['input'])}"
    closest = difflib.get_close_matches(path[-1], _allowed_keys(kind, path[:-1]), n=1, cutoff=0.4)
    return f"unknown key {where}" + (f"; did you mean {closest[0]!r}?" if closest else "")


def _allowed_keys(kind: type[BaseModel], path: list[str]) -> list[str]:
    """Return the keys that are allowed at a path of keys; an index of a list is skipped."""
    for key in path:
        if key.isdigit():
            continue
        field = next((f for n, f in kind.model_fields.items() if key in (n, f.alias)), None)
        inner = next(_sections(field.annotation), None) if field else None
        if inner is None:
            return []
        kind = inner
    return [field.alias or name for name, field in kind.model_fields.items()]


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the settings sections in an annotation such as ``tuple[Match, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections(inner)
