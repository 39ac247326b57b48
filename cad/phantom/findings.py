"""Regions of interest: how many, what they are, how malignant, where, and what they are made of.

Every region has a latent: the probit of its severity, the share of the way from its zone's tissue
to cancer. The latent drives T1, T2, ADC, Ktrans, ve and vp; nothing here knows of a feature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from cad.phantom.anatomy import Anatomy, vary
from cad.phantom.params import (
    BENIGN,
    CANCER,
    CANCER_IN_PZ,
    CANCER_SEVERITY,
    ISUP_SHARES,
    LATENT_SD,
    RADIUS_LIMITS_MM,
    RADIUS_MM,
    RADIUS_SD,
    TISSUES,
    UNEXPLAINED,
    Finding,
    Tissue,
)
from cad.phantom.shapes import Shape, ripples

# 49 patients hold 350 regions, 66 of them cancer, as in the clinical study [N14] V-B.
BLOCK = 49
REGIONS = (5, 9, 7, 8, 6, 10, 5) * 7
CANCERS = (0,) * 7 + (1,) * 23 + (2,) * 14 + (3,) * 5
GAP = 1.0
"""Smallest distance between two regions, mm."""
POINTS, CANDIDATES = 1500, 24
_DIRECTIONS = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], float)


@dataclass(frozen=True)
class TrueRegion:
    """Hold one region of interest as it is in the phantom.

    Parameters
    ----------
    number : int
        From 1, in the order drawn.
    kind : str
        ``cancer`` or a key of :data:`cad.phantom.params.BENIGN`.
    zone : str
        PZ, TZ or AFS.
    isup : int
        0 for benign tissue.
    latent : float
        Probit of severity.
    radius : float
        Equivalent radius, mm.
    shapes : list of Shape
        What is painted; the last is the region itself.
    tissue : Tissue
        What it is made of.
    """

    number: int
    kind: str
    zone: str
    isup: int
    latent: float
    radius: float
    shapes: list[Shape]
    tissue: Tissue

    @property
    def malignant(self) -> bool:
        """Return whether histology found cancer."""
        return self.isup > 0


def case_mix(seed: int, index: int) -> tuple[int, int]:
    """Return the numbers of regions and of cancers of patient ``index``.

    Whole blocks of 49 patients hold exactly 350 regions and 66 cancers; a patient's share depends
    on the seed and the index only, never on how many patients are made.
    """
    block, place = divmod(index, BLOCK)
    rng = np.random.default_rng([seed, 0x5EED, block])
    regions = rng.permutation(np.array(REGIONS))[place]
    cancers = rng.permutation(np.array(CANCERS))[place]
    return int(regions), int(cancers)


def draw_cloud(rng: np.random.Generator, anatomy: Anatomy) -> tuple[np.ndarray, np.ndarray]:
    """Return the points (x, y, z) in mm among which regions find their centres, and their zones."""
    points = rng.uniform(-1, 1, (POINTS, 3)) * np.array(anatomy.axes) * np.array([1, 1, 0.72])
    return points, zones_at(anatomy, points)


def draw_regions(
    rng: np.random.Generator,
    anatomy: Anatomy,
    cloud: tuple[np.ndarray, np.ndarray],
    count: int,
    cancers: int,
) -> list[TrueRegion]:
    """Draw the regions of one patient, apart from each other.

    Parameters
    ----------
    rng : Generator
        Drawn from the same number of times whatever is accepted.
    anatomy : Anatomy
        Where they must fit.
    cloud : (ndarray, ndarray)
        From :func:`draw_cloud`.
    count, cancers : int
        How many, and how many of them are malignant.
    """
    regions: list[TrueRegion] = []
    # In random order: who comes first has the choice of room, and is drawn larger for it.
    malignant = rng.permutation(np.arange(count) < cancers)
    for number in range(count):
        own = np.random.default_rng(rng.integers(2**63))
        for attempt in range(12):  # what finds no room is drawn smaller
            scale = 0.94**attempt
            region = _draw(own, anatomy, cloud, number + 1, bool(malignant[number]), scale, regions)
            if region is not None:
                regions.append(region)
                break
    return regions


def _draw(
    rng: np.random.Generator,
    anatomy: Anatomy,
    cloud: tuple[np.ndarray, np.ndarray],
    number: int,
    malignant: bool,
    scale: float,
    others: list[TrueRegion],
) -> TrueRegion | None:
    """Draw one region, or None where no free place was found for it."""
    if malignant:
        kind, finding = "cancer", CANCER
        isup = int(rng.choice(5, p=ISUP_SHARES)) + 1
        severity = CANCER_SEVERITY[isup]
        zone = "PZ" if rng.random() < CANCER_IN_PZ else "TZ"
    else:
        kinds = list(BENIGN)
        weights = np.array([BENIGN[name].weight for name in kinds])
        kind = kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))]
        finding, isup = BENIGN[kind], 0
        severity, zone = finding.severity, finding.zones[0]
    latent = float(norm.ppf(severity) + rng.normal(0, LATENT_SD))
    drawn = RADIUS_MM * np.exp(rng.normal(0, RADIUS_SD))
    radius = float(np.clip(drawn, *RADIUS_LIMITS_MM) * scale)
    axes = radius * np.exp(rng.normal(0, 0.10, 3)) * np.array([1.1, 0.95, 1.0])
    centre = _place(rng, anatomy, cloud, zone, float(axes.max()), others)
    if centre is None:
        return None
    tissue = _tissue(rng, anatomy.tissues[zone], finding, latent)
    shapes = _shapes(rng, number, zone, centre, axes, finding)
    return TrueRegion(number, kind, zone, isup, latent, radius, shapes, tissue)


def _tissue(rng: np.random.Generator, native: Tissue, finding: Finding, latent: float) -> Tissue:
    """Mix zone and cancer by severity (geometric mean), the finding's factors and noise."""
    severity = float(norm.cdf(latent))
    cancer = TISSUES["cancer"]
    shift = {}
    for name, sd in UNEXPLAINED.items():
        toward = severity * np.log(getattr(cancer, name) / getattr(native, name))
        own = np.log(getattr(finding, name, 1.0))
        shift[name] = float(toward + own + rng.normal(0, sd))
    mixed = vary(native, shift)
    texture = native.texture + severity * (cancer.texture - native.texture)
    return replace(mixed, texture=texture, septa=(1 - severity) * native.septa)


def _place(
    rng: np.random.Generator,
    anatomy: Anatomy,
    cloud: tuple[np.ndarray, np.ndarray],
    zone: str,
    radius: float,
    others: list[TrueRegion],
) -> tuple[float, float, float] | None:
    """Return a centre in the zone, most of the region inside it, clear of the others."""
    points, zones = cloud
    free = zones == zone
    for other in others:
        taken = other.shapes[-1]
        gap = np.linalg.norm(points - np.array(taken.centre), axis=1)
        free &= gap >= radius + max(taken.axes) + GAP
    candidates = rng.permutation(points[free])[:CANDIDATES]
    if not len(candidates):
        return None
    around = (candidates[:, None] + 0.75 * radius * _DIRECTIONS).reshape(-1, 3)
    same = (zones_at(anatomy, around) == zone).reshape(len(candidates), -1).sum(axis=1)
    fitting = np.flatnonzero(same >= 5 - (zone in ("PZ", "AFS")))
    if not len(fitting):
        return None
    x, y, z = candidates[fitting[0]]
    return float(x), float(y), float(z)


def zones_at(anatomy: Anatomy, points: np.ndarray) -> np.ndarray:
    """Return the zone names at points (x, y, z), shape (n, 3) in mm; empty outside the gland."""
    x, y, z = points.T
    found = np.full(len(points), "", dtype="U8")
    for shape in anatomy.shapes:
        if not shape.zone:  # what surrounds the gland is painted before it
            continue
        inside = shape.level(x, y, z) < 1.0
        if shape.within:
            inside &= np.isin(found, shape.within)
        found[inside] = shape.zone
    return found


def _shapes(
    rng: np.random.Generator,
    number: int,
    zone: str,
    centre: tuple[float, float, float],
    axes: np.ndarray,
    finding: Finding,
) -> list[Shape]:
    angle = float(rng.uniform(-0.6, 0.6))
    waves = ripples(rng, 0.10, 2.2 * float(axes.min()))
    size = (float(axes[0]), float(axes[1]), float(axes[2]))
    shapes = []
    if finding.capsule:
        shell = (size[0] + 0.8, size[1] + 0.8, size[2] + 0.8)
        shapes.append(Shape("capsule", centre, shell, zone, (zone,), angle, waves))
    shapes.append(Shape(f"roi {number}", centre, size, f"roi {number}", (zone,), angle, waves))
    return shapes
