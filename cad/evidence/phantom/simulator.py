"""Simulate cohorts. A patient depends on seed, number and options, and on no other patient."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from cad.base.errors import CadError
from cad.base.files import write_atomic
from cad.base.reading import read_frame
from cad.base.transactions import claimed, commit, is_ours, stage
from cad.evidence.phantom.acquisition import Worsening
from cad.evidence.phantom.anatomy import Anatomy, build_anatomy
from cad.evidence.phantom.findings import TrueRegion, case_mix, draw_cloud, draw_regions
from cad.evidence.phantom.outlines import draw_outlines, true_labels
from cad.evidence.phantom.params import UNEXPLAINED
from cad.evidence.phantom.protocols import FULL, LIGHT, SiteProtocol
from cad.evidence.phantom.readers import READERS, conspicuity, draw_scores, panel
from cad.evidence.phantom.scanner import diffusion_images, draw_injection, dynamic_images, t2_image
from cad.evidence.phantom.scene import Scene, View, draw_fields, draw_gas, draw_placement
from cad.folders.cohort import COHORT, write_tables
from cad.mri.imaging.nifti import write_volume
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import reader_outline_path, write_study
from cad.mri.imaging.volume import Volume

# If at least this share of a voxel lies in one region, the voxel counts as lying wholly in it.
PURE = 0.95
LATENT_FILE = Path("derivatives") / "phantom" / "latent.tsv"

LIMITS = {
    "displacement_mm": (0.0, 15.0),
    "motion": (0.0, 20.0),
    "blur_mm": (0.0, 10.0),
    "noise": (0.0, 1.0),
    "interpolation": (1.0, 4.0),
}
"""Least and largest value of the numbers of a :class:`Variation`, by name."""
KINDS = ("T2", "diffusion", "dynamic series")
"""Kinds of images, in the order of blur and noise."""


@dataclass(frozen=True)
class Variation:
    """Say how simulated men differ, beyond the protocols of their sites.

    Parameters
    ----------
    readers : int
        Number of readers who score every region; the first four also outline it.
    displacement_mm : float
        Diffusion images and dynamic series are each displaced in the slice by a random shift of up
        to this length, as echo-planar distortion and patients' motion do.
    gas : bool
        Whether gas in the rectum distorts diffusion images of some men.
    motion : float
        Factor on how far men move between and during series.
    blur_mm : (float, float, float)
        Full width at half maximum (FWHM) of a Gaussian with which T2, diffusion images and dynamic
        series (with flip-angle images) are blurred in the slice, beyond the blur of their grids,
        mm.
    noise : (float, float, float)
        Standard deviation of the noise that is added to T2, diffusion images and dynamic series, as
        a share of the signal of the normal peripheral zone.
    interpolation : float
        How many times as many voxels are stored as were sampled, along each axis of a slice. It
        correlates the added noise of neighbouring voxels.

    Raises
    ------
    CadError
        For a number outside of its limits, and for an interpolation without noise.
    """

    readers: int = 4
    displacement_mm: float = 0.0
    gas: bool = True
    motion: float = 1.0
    blur_mm: tuple[float, float, float] = (0.0, 0.0, 0.0)
    noise: tuple[float, float, float] = (0.0, 0.0, 0.0)
    interpolation: float = 1.0

    def __post_init__(self) -> None:
        self._check("displacement_mm", self.displacement_mm)
        self._check("motion", self.motion)
        self._check("interpolation", self.interpolation)
        for kind, blur_mm, noise in zip(KINDS, self.blur_mm, self.noise, strict=True):
            self._check("blur_mm", blur_mm, f" of {kind}")
            self._check("noise", noise, f" of {kind}")
        if self.interpolation > 1.0 and not any(self.noise):
            raise CadError(
                f"interpolation is {self.interpolation:g}, but noise is 0: interpolation "
                "correlates the noise that is added, and changes nothing else",
                hint="state noise, too, or leave interpolation out",
            )

    def _check(self, name: str, value: float, of: str = "") -> None:
        """Raise an error where a number lies outside of its limits."""
        low, high = LIMITS[name]
        # The comparison is also false for NaN.
        if not low <= value <= high:
            raise CadError(
                f"{name}{of} is {value:g}, and must be from {low:g} to {high:g}",
                hint=f"simulate with a number from {low:g} to {high:g}",
            )

    def worsening(self, kind: str) -> Worsening:
        """Return blur and noise of one kind of image.

        Parameters
        ----------
        kind : str
            One of ``KINDS``.

        Returns
        -------
        Worsening
            The kind's blur and noise, and the interpolation, which all kinds share.
        """
        number = KINDS.index(kind)
        return Worsening(self.blur_mm[number], self.noise[number], self.interpolation)


USUAL = Variation()


@dataclass(frozen=True)
class Patient:
    """Hold one simulated patient.

    Parameters
    ----------
    study : Study
        The images and masks.
    site : str
        Name of the site whose protocol was used.
    regions : list of TrueRegion
        The true regions; entry i has the label and the roi_id i + 1.
    scores : DataFrame
        ``roi_id``, ``reader_id``, ``scale``, ``score``; one row per region and reader.
    outlines : dict of str to Volume
        Each reader's label map on the T2 grid; the study's ``roi_map`` is the first reader's map.
    zones : Volume
        1 in the peripheral zone, 2 in the rest of the gland; on the T2 grid.
    truth : Volume
        Label map of the true regions on the T2 grid, with the labels of the outlines.
    pure : Volume
        Label map of the true regions on the dynamic grid. Only voxels that a region fills (by the
        share ``PURE`` or more) have its label.
    """

    study: Study
    site: str
    regions: list[TrueRegion]
    scores: pd.DataFrame
    outlines: dict[str, Volume]
    zones: Volume
    truth: Volume
    pure: Volume


T = TypeVar("T")


def present(image: T | None) -> T:
    """Return an image that every simulated study has; raise an error where it is None.

    Parameters
    ----------
    image : Volume or None
        An image of the study.

    Raises
    ------
    CadError
        When ``image`` is None.
    """
    if image is None:
        raise CadError("a simulated study has every image; this one was taken apart")
    return image


def simulate(
    out: Path,
    patients: int,
    seed: int,
    *,
    light: bool = False,
    jobs: int = 1,
    prevalence: float | None = None,
    variation: Variation = USUAL,
) -> None:
    """Write a simulated cohort.

    Parameters
    ----------
    out : Path
        Cohort folder; must be absent or empty.
    patients : int
        Number of patients, at least 1. 49 patients have 350 regions, 66 of them malignant (a few
        less where regions find no room).
    seed : int
        Random seed. Patient ``i`` depends only on the seed and ``i``.
    light : bool
        Whether grids are coarse and frames few, for benchmarks of scale.
    jobs : int
        Number of processes.
    prevalence : float, optional
        Expected share of men with significant cancer; without it the share is 36 of 49, as in a
        clinical study.
    variation : Variation
        Readers, displacement, gas, motion, blur and noise. Changing one of these leaves everything
        else of a man as it is.

    Raises
    ------
    CadError
        For a folder that is not empty, fewer than one patient, fewer than one reader, or a
        prevalence that cannot be simulated.
    """
    write_cohort(out, patients, seed, LIGHT if light else FULL, jobs, prevalence, variation)


def write_cohort(
    out: Path,
    patients: int,
    seed: int,
    protocols: tuple[SiteProtocol, ...],
    jobs: int = 1,
    prevalence: float | None = None,
    variation: Variation = USUAL,
) -> None:
    """Write a simulated cohort for given protocols; on an error no folder is left.

    Parameters
    ----------
    out : Path
        Cohort folder; must be absent or empty.
    patients, seed : int
        Number of patients, at least 1, and random seed.
    protocols : tuple of Protocol
        One examination protocol per site; each patient belongs to one of the sites.
    jobs : int
        Number of processes.
    prevalence : float, optional
        Expected share of men with significant cancer.
    variation : Variation
        How men differ beyond the protocols of their sites.

    Raises
    ------
    CadError
        For a folder that is not empty, fewer than one patient, or a prevalence that cannot be
        simulated.
    """
    if patients < 1:
        raise CadError(f"a cohort has at least one patient, asked for {patients}")
    readers_of_panel = panel(variation.readers)
    # The cohort is built in a folder of its own and moved at the end, so that an error leaves none.
    with claimed(out, COHORT), stage(out) as scratch:
        foreign = [path for path in out.iterdir() if not is_ours(path.name)]
        if foreign:
            raise CadError(
                "the folder to simulate into is not empty", file=out, hint="name a new one"
            )
        build = scratch / "cohort"
        work = []
        for index in range(patients):
            task = delayed(_write_patient)(build, seed, index, protocols, prevalence, variation)
            work.append(task)
        tables_of_patients = Parallel(n_jobs=jobs)(work)
        # Each patient has given his rows of four tables; the rows of all patients are joined.
        tables = []
        for rows_of_patients in zip(*tables_of_patients, strict=True):
            tables.append(pd.concat(rows_of_patients, ignore_index=True))
        people, rois, scores, latent = tables
        readers = pd.DataFrame(
            {
                "reader_id": [reader.reader_id for reader in readers_of_panel],
                "expert": [int(reader.expert) for reader in readers_of_panel],
            }
        )
        write_tables(
            build,
            participants=people,
            readers=readers,
            rois=rois,
            scores=scores,
            name=f"simulated prostate MRI, seed {seed}",
            simulated=True,
        )
        text = latent.to_csv(sep="\t", index=False, float_format="%.6g", lineterminator="\n")
        write_atomic(build / LATENT_FILE, text.encode())
        commit(out, {path.name: path for path in sorted(build.iterdir())})


def latent_auc(cohort: Path) -> float:
    """Return the AUC with which a cohort's latent separates cancers from benign regions.

    Cancers are those of ISUP 1 or more. The latent is the hidden malignancy from which a region's
    tissue and scores were simulated. A reader who saw it without error would reach this AUC.

    Parameters
    ----------
    cohort : Path
        A simulated cohort.

    Raises
    ------
    CadError
        When the cohort has no latent (because it is not simulated) or only one class.
    """
    path = cohort / LATENT_FILE
    if not path.is_file():
        raise CadError("no latent malignancy: not a simulated cohort", file=path)
    table = read_frame(path, "\t")
    positive = table.loc[table["isup"] > 0, "latent"].to_numpy()
    negative = table.loc[table["isup"] == 0, "latent"].to_numpy()
    if not len(positive) or not len(negative):
        raise CadError("one class only: no area under a curve", file=path)
    # Over all pairs of a cancer and a benign region: the share in the right order; ties count half.
    above = positive[:, None] > negative
    ties = positive[:, None] == negative
    return float(above.mean() + 0.5 * ties.mean())


def make_patient(
    seed: int,
    index: int,
    protocols: tuple[SiteProtocol, ...],
    *,
    even: bool = False,
    prevalence: float | None = None,
    variation: Variation = USUAL,
) -> Patient:
    """Make one simulated patient in memory.

    Parameters
    ----------
    seed, index : int
        Seed of the cohort, and number of the patient in it, from 0.
    protocols : tuple of Protocol
        One protocol per site; the patient belongs to one of the sites.
    even : bool
        Whether to leave out texture, so that a measurement can be checked against the tissue's
        parameter.
    prevalence : float, optional
        Expected share of men with significant cancer in the patient's cohort.
    variation : Variation
        How men differ beyond the protocols of their sites.

    Returns
    -------
    Patient
        Images and masks, the true regions, the readers' scores and outlines, and maps of the truth.
        The same ``seed``, ``index`` and options always give the same patient.
    """
    # Each part of the simulation has its own stream of random numbers. The streams for the options
    # in `variation` come last, so that these options do not change the other streams.
    streams = np.random.SeedSequence(seed, spawn_key=(index,)).spawn(9)
    (
        body_rng,
        region_rng,
        score_rng,
        scene_rng,
        noise_rng,
        grid_rng,
        outline_rng,
        extra_score_rng,
        displacement_rng,
    ) = map(np.random.default_rng, streams)

    # The man: site, anatomy and regions.
    protocol = protocols[int(body_rng.integers(len(protocols)))]
    anatomy = build_anatomy(body_rng)
    count, cancers = case_mix(seed, index, prevalence)
    cloud = draw_cloud(region_rng, anatomy)
    regions = draw_regions(region_rng, anatomy, cloud, count, cancers)

    # The scene that the scanners image, and how each of the three grids lies in it.
    scene = _scene(scene_rng, anatomy, regions, protocol)
    if even:
        scene = replace(scene, fields=np.zeros_like(scene.fields))
    if not variation.gas:
        scene = replace(scene, gas=None)
    views = _views(grid_rng, scene, protocol, variation, displacement_rng)
    t2_view, diffusion_view, dynamic_view = views

    # All fixed readers outline the regions, whatever the panel. So a man's regions, which are those
    # that all of them outlined, are the same for every panel.
    zones = _zone_numbers(t2_view)
    gland = zones.with_array(zones.array > 0)
    drawn = draw_outlines(outline_rng, views, regions, gland.array)
    outlines = {name: t2_view.volume(labels) for name, labels in drawn.items()}
    regions, outlines = _outlined_by_all(regions, outlines)

    # The images. The noise of T2 is drawn last.
    injection = draw_injection(scene_rng)
    gain = float(np.exp(scene_rng.normal(0, 0.35)))
    adc, diffusion = diffusion_images(
        diffusion_view, protocol, noise_rng, variation.worsening("diffusion")
    )
    dce, vfa = dynamic_images(
        dynamic_view,
        protocol,
        injection,
        noise_rng,
        variation.motion,
        variation.worsening("dynamic series"),
    )
    study_id = f"sub-{index + 1:04d}"
    rois = []
    for label, region in enumerate(regions, start=1):
        rois.append(Roi(str(label), label, region.zone))
    study = Study(
        study_id,
        study_id,
        t2w=t2_image(t2_view, protocol, gain, noise_rng, variation.worsening("T2")),
        adc=adc,
        dce=dce,
        vfa=vfa,
        vfa_repetition_time=protocol.dce_times[0],  # that of the dynamic series
        diffusion=diffusion,
        roi_map=outlines[READERS[0].reader_id],
        rois=rois,
        gland=gland,
        vessel=_vessel(dynamic_view),
    )
    readers = panel(variation.readers)
    scores = draw_scores(score_rng, regions, readers, extra_score_rng)
    in_panel = {reader.reader_id for reader in readers}
    outlines = {name: labels for name, labels in outlines.items() if name in in_panel}
    return Patient(
        study=study,
        site=protocol.site,
        regions=regions,
        scores=scores,
        outlines=outlines,
        zones=zones,
        truth=t2_view.volume(true_labels(t2_view, regions)),
        pure=dynamic_view.volume(true_labels(dynamic_view, regions, PURE)),
    )


def _scene(
    rng: np.random.Generator, anatomy: Anatomy, regions: list[TrueRegion], protocol: SiteProtocol
) -> Scene:
    """Draw the scene that the scanners image: anatomy with regions, texture, coil and gas."""
    placement = draw_placement(rng)
    fields = draw_fields(rng, protocol.texture_half)
    bias = rng.normal(0, [0.12, 0.25, 0.12, 0.15, 0.25])
    bias[3:] = np.abs(bias[3:])  # positive, because images are brighter near the surface coils
    shapes = list(anatomy.shapes)
    tissues = dict(anatomy.tissues)
    for region in regions:
        shapes += region.shapes
        tissues[region.shapes[-1].tissue] = region.tissue  # the last shape is the region itself
    return Scene(
        shapes=shapes,
        tissues=tissues,
        placement=placement,
        fields=fields,
        field_origin=-np.array(protocol.texture_half),
        bias=bias,
        gas=draw_gas(rng, anatomy.gas_front),
    )


def _views(
    rng: np.random.Generator,
    scene: Scene,
    protocol: SiteProtocol,
    variation: Variation,
    displacement_rng: np.random.Generator,
) -> list[View]:
    """Return what the T2, diffusion and dynamic grids sample of the scene, in this order.

    Before the diffusion images and before the dynamic series the patient moves a little, so the
    three views differ. ``displacement_rng`` draws a further shift, of ``variation.displacement_mm``
    at most.
    """
    # A row for each grid, with x, y and z in mm. T2 comes first, so the man has not moved yet.
    shifts = rng.uniform(-2, 2, (3, 3))
    has_moved = np.array([[0], [1], [1]])
    moved = rng.normal(0, 0.4, (3, 3)) * has_moved * variation.motion
    for series in (1, 2):  # diffusion and dynamic series
        angle = displacement_rng.uniform(0, 2 * np.pi)
        length = displacement_rng.uniform(0, variation.displacement_mm)
        moved[series, :2] += length * np.array([np.cos(angle), np.sin(angle)])
    views = []
    grids = (protocol.t2, protocol.adc, protocol.dce)
    for grid, shift, displacement in zip(grids, shifts, moved, strict=True):
        views.append(View(scene, grid, shift, displacement, protocol.supersample))
    return views


def _outlined_by_all(
    regions: list[TrueRegion], maps: dict[str, Volume]
) -> tuple[list[TrueRegion], dict[str, Volume]]:
    """Return the regions that every reader outlined, and the readers' label maps of these regions.

    The labels are numbered again from 1 without gaps.
    """
    outlined = set(range(1, len(regions) + 1))
    for labels in maps.values():
        outlined &= set(np.unique(labels.array).tolist())
    old_labels = sorted(outlined)
    # By old label the new one; 0, no region, for regions that some reader did not outline.
    new_label = np.zeros(len(regions) + 1, np.uint8)
    new_label[old_labels] = np.arange(1, len(old_labels) + 1)
    renumbered = {}
    for name, labels in maps.items():
        renumbered[name] = labels.with_array(new_label[labels.array])
    return [regions[label - 1] for label in old_labels], renumbered


def _zone_numbers(view: View) -> Volume:
    """Return a volume with 1 in the peripheral zone, 2 in the rest of the gland, 0 outside.

    Voxels in a region have the number of the zone in which the region lies.
    """
    in_gland = []
    in_peripheral_zone = []
    for number, shape in enumerate(view.scene.shapes, start=1):
        # The shape of a region has its own name as zone; it lies in the first of ``within``.
        zone = shape.within[0] if shape.zone.startswith("roi") else shape.zone
        if zone:  # shapes outside the gland have no zone
            in_gland.append(number)
        if zone in ("PZ", "rim"):  # the rim is the capsule around the peripheral zone
            in_peripheral_zone.append(number)
    gland = view.share(in_gland)
    peripheral = view.share(in_peripheral_zone)
    zones = np.where(peripheral >= gland / 2, 1, 2)
    return view.volume(np.where(gland >= 0.5, zones, 0).astype(np.uint8))


def _vessel(view: View) -> Volume:
    """Return the middle of one femoral artery: a mask of voxels that no other shape shares.

    If there are none, the voxels are taken of which the artery fills the largest share.
    """
    arteries = []
    for number, shape in enumerate(view.scene.shapes, start=1):
        if shape.tissue == "artery":
            arteries.append(number)
    # Either artery would do; the second is taken. The two lowest and the two highest slices are
    # left out, because in real images they are unreliable. Fresh blood flows into these slices, and
    # tissue from outside the image appears in them.
    share = view.share(arteries[1:])
    inside = share > 0.99
    inside[:2] = False
    inside[-2:] = False
    if not inside.any():
        inside = share >= share.max() - 1e-6
    return view.volume(inside)


def _write_patient(
    out: Path,
    seed: int,
    index: int,
    protocols: tuple[SiteProtocol, ...],
    prevalence: float | None,
    variation: Variation,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Write one patient's study; return his rows of four tables of the cohort.

    The tables are those of participants, regions (``rois``), scores and latent malignancy.
    """
    patient = make_patient(seed, index, protocols, prevalence=prevalence, variation=variation)
    name = patient.study.participant_id
    write_study(out / name, patient.study)
    for reader, labels in patient.outlines.items():
        write_volume(reader_outline_path(out / name, name, reader), labels)
    regions = patient.regions
    labels_of_regions = range(1, len(regions) + 1)
    ids = [str(label) for label in labels_of_regions]
    rois = pd.DataFrame(
        {
            "participant_id": name,
            "roi_id": ids,
            "label": labels_of_regions,
            "zone": [region.zone for region in regions],
            "histology": ["malignant" if region.malignant else "benign" for region in regions],
            "isup": [region.isup for region in regions],
        }
    )
    latent = pd.DataFrame(
        {
            "participant_id": name,
            "roi_id": ids,
            "kind": [region.kind for region in regions],
            "latent": [region.latent for region in regions],
            "conspicuity": [conspicuity(region) for region in regions],
            "radius": [region.radius for region in regions],
            "isup": [region.isup for region in regions],
        }
    )
    for parameter in UNEXPLAINED:
        latent[parameter] = [getattr(region.tissue, parameter) for region in regions]
    people = pd.DataFrame({"participant_id": [name], "site": [patient.site], "sex": ["M"]})
    scores = patient.scores.assign(participant_id=name)[
        ["participant_id", "roi_id", "reader_id", "scale", "score"]
    ]
    return people, rois, scores, latent
