"""Typed settings: everything that changes a result, and nothing about how a job is run.

A pipeline file (``pipelines/*.yaml``) is one :class:`PipelineSettings`; a site's costs
(``configs/decision/*.yaml``) are one :class:`DecisionSettings`.
"""

import difflib
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cad.errors import CadError
from cad.reading import MAX_YAML, check_depth, read_bytes, reading


class Section(BaseModel):
    """Share what all settings do: unknown keys are refused, values do not change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


T = TypeVar("T", bound=Section)


class ImageSettings(Section):
    """Say how images are prepared before anything is measured on them."""

    t2_standardisation: Literal["none", "zscore", "reference", "nyul"] = Field(
        "zscore", description="T2 intensity scale: per-patient z-score, reference tissue, or Nyul"
    )
    t2_reference: Literal["gland", "regions", "image", "auto"] = Field(
        "auto",
        description="where the z-score is taken: the gland mask, a box of 60 x 60 x 30 mm about "
        "the regions, or the whole image (which depends on the field of view); auto: the mask when "
        "every study of the cohort has one, else the box",
    )
    bias_correction: bool = Field(False, description="N4 bias-field correction of T2")
    spacing_t2w: tuple[float, float, float] | None = Field(
        None, description="T2 is interpolated to this spacing, mm along x, y, z (0 keeps the axis)"
    )
    spacing_adc: tuple[float, float, float] | None = Field(None, description="the same for ADC")
    interpolation: Literal["linear", "cubic"] = Field(
        "linear", description="between voxel centres, or by cubic splines"
    )
    whole_numbers: bool = Field(False, description="round what is interpolated (IBSI, for CT)")
    frame_motion: Literal["none", "translation"] = Field(
        "none", description="bring the frames of the dynamic series in line with each other"
    )
    registration: Literal["none", "rigid"] = Field(
        "none", description="align ADC and DCE to T2 by rigid mutual information"
    )


class PerfusionSettings(Section):
    """Set the way from dynamic signal to kinetic parameters."""

    t1: Literal["vfa", "fixed", "auto"] = Field(
        "auto", description="tissue T1 from flip angles, fixed, or flip angles where there are any"
    )
    b1: Literal["map", "none", "auto"] = Field(
        "auto",
        description="flip angles as the map of the transmit field (B1) says, as stated, or the map "
        "when every dynamic study of the cohort has one",
    )
    t1_tissue: float | None = Field(
        None, gt=0, description="fixed tissue T1, seconds; null: prostate, 3 T 1.6, 1.5 T 1.317"
    )
    t1_blood: float | None = Field(
        None, gt=0, description="blood T1, seconds; null: 3 T 1.664, 1.5 T 1.441"
    )
    relaxivity: float = Field(4.5, gt=0, description="contrast agent r1, 1/(s mM)")
    haematocrit: float = Field(0.42, ge=0, lt=1, description="haematocrit, 0 to 1")
    arterial_input: Literal["parker", "georgiou", "measured", "auto"] = Field(
        "auto",
        description="population (Parker, Georgiou), vessel mask, or the mask where there is one",
    )
    models: tuple[Literal["tofts", "extended_tofts", "brix", "patlak"], ...] = Field(
        ("tofts", "extended_tofts", "brix"), description="kinetic models to fit"
    )
    refine: bool = Field(False, description="non-linear refinement after the linear estimate")


class TextureSettings(Section):
    """Set grey levels and co-occurrence of T2 (``texture``) and ADC (``texture_adc``)."""

    bins: int | None = Field(16, ge=2, description="fixed bin number; null to use bin_width")
    bin_width: float | None = Field(None, gt=0, description="fixed bin width, image units")
    range: tuple[float, float] | None = Field(
        None,
        description="re-segmentation: values outside do not count, and bins of fixed width begin "
        "at its lower bound (IBSI)",
    )
    outliers: float | None = Field(
        None, gt=0, description="nor do values beyond so many standard deviations of the region"
    )
    distance: int = Field(1, ge=1, description="co-occurrence distance, voxels (Chebyshev)")
    dimension: Literal["slice", "2D", "3D"] = Field(
        "3D", description="4 directions, averaged over slices or with slices merged, or 13"
    )
    aggregation: Literal["merged", "averaged"] = Field(
        "merged", description="one merged matrix, or features averaged over directions"
    )


class RobustnessSettings(Section):
    """Select features that survive a slightly different drawing of the region."""

    stable_only: bool = Field(
        False,
        description="learn from features whose ICC over redrawn regions has a lower 95 % bound of "
        "at least .75, judged on the training patients",
    )
    repeats: int = Field(9, ge=1, description="redrawn copies of each region")


class FilterSettings(Section):
    """Set one filter of IBSI 2 (docs/filters.md); ``cad.features.filters`` checks what fits."""

    kind: Literal["mean", "log", "wavelet"] = Field(
        description="mean, Laplacian of Gaussian, or separable stationary wavelet"
    )
    support_mm: float | None = Field(
        None, gt=0, description="mean: side, mm; the nearest odd number of voxels is taken"
    )
    sigma_mm: float | None = Field(None, gt=0, description="log: standard deviation, mm")
    truncate: float = Field(
        4.0, ge=2, le=10, description="log: where it is cut, in standard deviations"
    )
    wavelet: str | None = Field(None, description="wavelet: PyWavelets' name, such as db3")
    bands: str | None = Field(
        None, description="wavelet: low (L) or high (H) pass along x, y and in 3D z, such as LLH"
    )
    level: int = Field(1, ge=1, le=4, description="wavelet: level of the decomposition")
    rotations: bool = Field(
        False, description="wavelet: the mean response over rotations by right angles"
    )
    dimension: Literal["slice", "3D"] = Field(
        "slice", description="in the slice, or in space; voxels must have equal sides there"
    )
    boundary: Literal["mirror", "nearest", "zero", "periodic"] = Field(
        "mirror", description="how the image goes on beyond its border"
    )


class FeatureSettings(Section):
    """Say which features are measured."""

    modalities: tuple[Literal["t2w", "adc", "dce", "hbv"], ...] = Field(
        ("t2w", "adc", "dce"), description="images that features are taken from"
    )
    families: tuple[
        Literal[
            "intensity",
            "histogram",
            "gradient",
            "haralick",
            "semiquantitative",
            "kinetic",
            "size",
            "position",
        ],
        ...,
    ] = Field(
        ("intensity", "histogram", "gradient", "haralick", "semiquantitative", "kinetic"),
        description="feature families; size and position of the region are left out unless named",
    )
    counting: bool = Field(
        False,
        description="also measure what grows with the number of voxels, and so tells size",
    )
    radiomics: tuple[
        Literal["shape", "glrlm", "glszm", "gldm", "ngtdm", "total_energy", "mcc"], ...
    ] = Field((), description="further classes through pyradiomics (extra 'radiomics')")
    partial_voxels: Literal["share", "half"] = Field(
        "share", description="they count by their share, or whole from one half on (IBSI)"
    )
    exclude: tuple[str, ...] = Field(
        ("dce_semi_baseline_signal_*", "dce_semi_maximum_enhancement_*"),
        description="glob patterns of feature names to leave out; by default what is in units of "
        "the scanner's gain",
    )
    texture: TextureSettings = TextureSettings()
    texture_adc: TextureSettings = TextureSettings(bins=None, bin_width=120.0, range=(1.0, 4000.0))
    filters: dict[Literal["t2w", "adc", "hbv"], tuple[FilterSettings, ...]] = Field(
        default_factory=dict, description="by image: filters whose response is measured too"
    )
    perfusion: PerfusionSettings = PerfusionSettings()
    robustness: RobustnessSettings = RobustnessSettings()


class LabelSettings(Section):
    """Set how readers' scores and histology become labels (docs/methods.md 1)."""

    readers: Literal["all", "expert"] | tuple[str, ...] = Field(
        "all", description="whose scores count: all, the declared expert, or named readers"
    )
    consensus: Literal["mean", "pooled", "graded"] = Field(
        "mean",
        description="p of several readers: their mean; pooled by skill on training histology; or "
        "the expected grade of a graded latent model, which needs no histology",
    )
    eta: Literal["adaptive"] | float = Field(
        "adaptive", description="disagreement: standard deviation over readers, or one constant"
    )
    eta0: Annotated[float, Field(ge=0, lt=0.5)] | tuple[float, ...] = Field(
        0.125,
        description="reading precision: narrowest half-width and edge of certainty; a list is "
        "weighed on inner folds",
    )
    kappa: Annotated[float, Field(ge=0)] | tuple[float, ...] = Field(
        1.0,
        description="share of the disagreement that becomes half-width; a list is weighed on "
        "inner folds",
    )
    boundary: Literal["drop", "paper"] = Field("drop", description="rule at the ends of (0, 1)")
    histology: Literal["ignore", "override"] = Field(
        "ignore", description="whether known histology replaces the readers as a certain label"
    )
    isup_min: int = Field(
        2, ge=1, le=5, description="lowest ISUP grade that counts as malignant; 1 is any cancer"
    )
    pirads_probability: Literal["pi-cai"] | dict[int, float] = Field(
        "pi-cai",
        description="probability of each PI-RADS category: a published table, or one's own",
    )

    @property
    def precision(self) -> tuple[float | tuple[float, ...], float | tuple[float, ...]]:
        """Return eta_0 and kappa as the learner is told them; a constant eta is its own eta_0."""
        return (self.eta0, self.kappa) if self.eta == "adaptive" else (float(self.eta), 1.0)


class LearnerSettings(Section):
    """Choose the learner and everything fitted in front of it."""

    name: str = Field("ProbabilisticSVC", description="class in cad.learners")
    params: dict[str, Any] = Field(default_factory=dict, description="its parameters")
    scaling: Literal["standard", "rank", "clipped"] = Field(
        "standard",
        description="before the learner, inside every fold: mean 0 and variance 1 of each feature "
        "as measured, of its rank among the training regions, or of what is clipped at ±3. "
        "AveragedProbabilisticSVC and ProbabilisticEnsemble weigh the last two themselves",
    )
    selection: Literal["none", "t-test", "mutual-information", "mrmr", "stability"] = Field(
        "none", description="feature selection inside every fold"
    )
    n_features: int = Field(20, ge=1, description="features kept by selection")
    grid: dict[str, list[Any]] = Field(
        default_factory=dict, description="learner parameters to choose by nested validation"
    )
    criterion: Literal["cross-entropy", "auc", "kl", "brier"] = Field(
        "cross-entropy", description="inner criterion for the grid"
    )
    inner_folds: int = Field(5, ge=2, description="inner folds, grouped by patient")
    training_rows: Literal["carry", "drop"] = Field(
        "carry", description="whether a bundle may hold training regions' feature rows"
    )
    harmonisation: Literal["none", "combat"] = Field(
        "none", description="site harmonisation inside every fold (extra 'harmonisation')"
    )


class ValidationSettings(Section):
    """Say how the numbers are made."""

    scheme: Literal["leave-one-patient-out", "leave-one-site-out", "patient-folds", "none"] = Field(
        "leave-one-patient-out", description="outer folds"
    )
    folds: int = Field(
        5, ge=2, description="number of folds that 'patient-folds' deals whole patients to"
    )
    bootstraps: int = Field(1000, ge=0, description="patient bootstrap resamples for intervals")
    permutations: int = Field(0, ge=0, description="permutations for the null of the whole loop")
    seed: int = Field(0, ge=0, description="seed of every random draw in the validation")


class DecisionSettings(Section):
    """Set a site's costs of errors and of referring ([A14]: rejecting; docs/methods.md 3)."""

    false_positive: float = Field(1.0, gt=0, description="C_n: a benign region called malignant")
    false_negative: float = Field(4.0, gt=0, description="C_p: a malignant region called benign")
    refer_negative: float = Field(0.4, gt=0, description="R_n: a benign region referred")
    refer_positive: float = Field(0.4, gt=0, description="R_p: a malignant region referred")
    aim_npv: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="negative predictive value wanted of benign, at the largest share decided; "
        "its threshold then comes from the validation and not from the costs",
    )
    aim_ppv: float | None = Field(
        None, gt=0, lt=1, description="positive predictive value wanted of malignant, likewise"
    )
    man_npv: float | None = Field(
        None, gt=0, lt=1, description="negative predictive value wanted of a man called benign"
    )
    man_ppv: float | None = Field(
        None, gt=0, lt=1, description="positive predictive value wanted of a man called malignant"
    )

    @property
    def thresholds(self) -> tuple[float, float]:
        """Return P- and P+: below the first benign, above the second malignant, between refer.

        Raises
        ------
        CadError
            When the costs make referring useless (docs/methods.md 3).
        """
        use = self.refer_positive / self.false_negative + self.refer_negative / self.false_positive
        if use >= 1:
            raise CadError(
                f"these costs make referring useless: R_p/C_p + R_n/C_n = {use:.3g}, must be < 1",
                hint="lower refer_positive or refer_negative, or raise the costs of errors",
            )
        lower = self.refer_negative / (
            self.false_negative - self.refer_positive + self.refer_negative
        )
        gain = self.false_positive - self.refer_negative
        return lower, gain / (gain + self.refer_positive)


class PipelineSettings(Section):
    """Hold one pipeline: images, features, labels, learner, validation, decision."""

    name: str = Field(description="short name, shown on every page")
    description: str = Field("", description="one sentence for the reader of a report")
    images: ImageSettings = ImageSettings()
    features: FeatureSettings = FeatureSettings()
    labels: LabelSettings = LabelSettings()
    learner: LearnerSettings = LearnerSettings()
    validate_: ValidationSettings = Field(ValidationSettings(), alias="validate")
    decision: DecisionSettings = DecisionSettings()

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class _Plain(yaml.SafeLoader):
    """Read safe YAML without aliases: a few nested ones would unfold to a billion values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not allowed", problem_mark=mark)
        return super().compose_node(parent, index)


def read_settings(kind: type[T], path: Path) -> T:
    """Read one YAML file into typed settings.

    Raises
    ------
    CadError
        For a missing file, invalid YAML, an unknown key (with the nearest known one) or a
        value outside its range; always with the key's full path.
    """
    if not path.is_file():
        raise CadError("no such settings file", file=path)
    with reading(path, "not valid YAML"):
        text = read_bytes(path, MAX_YAML).decode("utf-8-sig")
        # _Plain is a SafeLoader, which the linters cannot see.
        content = yaml.load(text, _Plain)  # nosec B506  # noqa: S506
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
            raise CadError("; ".join(_explain(kind, e) for e in error.errors())) from error


def _explain(kind: type[Section], error: Any) -> str:
    path = [str(part) for part in error["loc"]]
    where = ".".join(path)
    if error["type"] != "extra_forbidden":
        return f"{where}: {error['msg']}, found {reprlib.repr(error['input'])}"
    near = difflib.get_close_matches(path[-1], _keys(kind, path[:-1]), n=1, cutoff=0.4)
    return f"unknown key {where}" + (f"; did you mean {near[0]!r}?" if near else "")


def _keys(kind: type[BaseModel], path: list[str]) -> list[str]:
    """Return the keys that may stand at a path; list indices and choices of types are passed."""
    for part in path:
        if part.isdigit():
            continue
        field = next((f for n, f in kind.model_fields.items() if part in (n, f.alias)), None)
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
