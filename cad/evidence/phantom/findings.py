"""Draw the regions of interest: their number, kind, malignancy, place and tissue.

Every region has a severity, a number from 0 (like the tissue of its zone) to 1 (like cancer). Its
probit (normal quantile) is the region's latent value. The latent value determines the T1, T2, ADC,
Ktrans, ve and vp of the region's tissue. The region is simulated from these properties, and not
from the features that learners later measure.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from cad.base.errors import CadError
from cad.evidence.phantom import params
from cad.evidence.phantom.anatomy import Anatomy, vary
from cad.evidence.phantom.shapes import Shape, ripples
from cad.mri.imaging.volume import triple

# As in the clinical study of [N14] (section V-B), 49 patients have 350 regions, and 66 of these
# regions are cancer. REGIONS and CANCERS have one number for each of the 49 patients.
BLOCK = 49
REGIONS = (5, 9, 7, 8, 6, 10, 5) * 7
CANCERS = (0,) * 7 + (1,) * 23 + (2,) * 14 + (3,) * 5
GAP = 1.0
"""Smallest distance between two regions in mm."""
POINTS = 1500
CANDIDATES = 24
CROSSED = ("PZ", "TZ", "rim TZ", "CZ", "AFS")
"""Zones whose borders a cancer may cross."""
_DIRECTIONS = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], float)


@dataclass(frozen=True)
class TrueRegion:
    """Hold one region of interest as it truly is in the simulated patient.

    Parameters
    ----------
    number : int
        Number from 1, in the order of drawing.
    kind : str
        ``cancer`` or a key of :data:`cad.evidence.phantom.params.BENIGN`.
    zone : str
        Zone of the gland in which the region arose: PZ, TZ or AFS.
    isup : int
        ISUP grade; 0 for benign tissue.
    latent : float
        Hidden malignancy, from which tissue and scores are made. It is the normal quantile (probit)
        of the severity. The severity goes from 0 (like the zone's own tissue) to 1 (like cancer).
    radius : float
        Radius of a ball of the same volume, mm.
    shapes : list of Shape
        Shapes to paint; the last shape is the region itself, and others are, for example, its
        capsule.
    tissue : Tissue
        Parameters of the region's tissue.
    """

    number: int
    kind: str
    zone: str
    isup: int
    latent: float
    radius: float
    shapes: list[Shape]
    tissue: params.Tissue

    @property
    def malignant(self) -> bool:
        """Return whether histology would find cancer in the region."""
        return self.isup > 0


def case_mix(seed: int, index: int, prevalence: float | None = None) -> tuple[int, int]:
    """Return a simulated patient's number of regions, and how many of them are cancers.

    Every 49 patients have exactly 350 regions and 66 cancers, unless a prevalence is stated. A
    patient's two numbers depend on the seed, the index and the prevalence, and never on how many
    patients are made.

    Parameters
    ----------
    seed, index : int
        Seed of the cohort, and number of the patient from 0.
    prevalence : float, optional
        Expected share of men with significant cancer (ISUP 2 or more). To lower the share, randomly
        drawn men lose all their cancers, so that all their regions are benign. Without a stated
        prevalence no man loses a cancer, and the expected share is :func:`usual_prevalence`.

    Raises
    ------
    CadError
        For a prevalence of 0 or less, or above :func:`usual_prevalence`.
    """
    # Patients come in blocks of 49. Each block has all numbers of REGIONS and CANCERS, in random
    # order. The second number of a seed only separates these draws from others of the same seed.
    block, index_in_block = divmod(index, BLOCK)
    rng = np.random.default_rng([seed, 0x5EED, block])
    regions = rng.permutation(np.array(REGIONS))[index_in_block]
    cancers = int(rng.permutation(np.array(CANCERS))[index_in_block])
    if prevalence is None:
        return int(regions), cancers
    usual = usual_prevalence()
    if not 0 < prevalence <= usual:
        raise CadError(
            f"a prevalence of {prevalence:g} cannot be simulated: it lies above 0 and up to "
            f"{usual:.2f}, the share without losing any cancer"
        )
    keeps_cancers = np.random.default_rng([seed, 0x9EA1, index]).random() < prevalence / usual
    return int(regions), cancers if keeps_cancers else 0


def usual_prevalence() -> float:
    """Return the expected share of men with significant cancer if no prevalence is stated.

    Examples
    --------
    >>> round(usual_prevalence(), 3)
    0.739
    """
    # A man has no significant cancer if each of his cancers has ISUP grade 1.
    share_of_grade_1 = params.ISUP_SHARES[0]
    shares = [1 - share_of_grade_1**count for count in CANCERS]
    return float(np.mean(shares))


def draw_cloud(rng: np.random.Generator, anatomy: Anatomy) -> tuple[np.ndarray, np.ndarray]:
    """Draw random points in a box about the gland; regions get their centres from these.

    Parameters
    ----------
    rng : Generator
        Source of the random draws.
    anatomy : Anatomy
        Anatomy of the patient.

    Returns
    -------
    points : ndarray, shape (n, 3)
        x (to the left), y (to the back) and z (to the head) from the gland's centre, mm.
    zones : ndarray of str, shape (n,)
        Zone of each point; empty outside the gland.
    """
    # Base and apex are left out along z.
    share_of_axes = np.array([1, 1, 0.72])
    points = rng.uniform(-1, 1, (POINTS, 3)) * np.array(anatomy.axes) * share_of_axes
    return points, zones_at(anatomy, points)


def draw_regions(
    rng: np.random.Generator,
    anatomy: Anatomy,
    cloud: tuple[np.ndarray, np.ndarray],
    count: int,
    cancers: int,
) -> list[TrueRegion]:
    """Draw the regions of one patient, at a distance from each other.

    Parameters
    ----------
    rng : Generator
        Source of the random draws. The number of draws does not depend on where the regions find
        room.
    anatomy : Anatomy
        Anatomy of the patient, in whose zones the regions must fit.
    cloud : (ndarray, ndarray)
        Points and zones from :func:`draw_cloud`.
    count, cancers : int
        Number of regions, and number of malignant regions among them.

    Returns
    -------
    list of TrueRegion
        Numbered from 1; fewer than ``count`` where there is no room.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.evidence.phantom.anatomy import build_anatomy
    >>> rng = np.random.default_rng(0)
    >>> anatomy = build_anatomy(rng)
    >>> regions = draw_regions(rng, anatomy, draw_cloud(rng, anatomy), count=3, cancers=1)
    >>> [region.number for region in regions], sum(region.malignant for region in regions)
    ([1, 2, 3], 1)
    """
    regions: list[TrueRegion] = []
    malignant = rng.permutation(np.arange(count) < cancers)
    # Each region has its own stream of random numbers, so that the attempts to place one region do
    # not change the others.
    streams = [np.random.default_rng(rng.integers(2**63)) for _ in range(count)]
    # Cancers are larger than benign regions and need more room, so that they are placed first. The
    # number of a region does not depend on the order of placing. So nobody can tell a cancer by its
    # number.
    cancers_first = sorted(range(count), key=lambda index: not malignant[index])
    for index in cancers_first:
        for attempt in range(12):  # a region that finds no place is drawn again, and smaller
            region = _draw_region(
                streams[index],
                anatomy,
                cloud,
                number=index + 1,
                malignant=bool(malignant[index]),
                scale=0.94**attempt,
                others=regions,
            )
            if region is not None:
                regions.append(region)
                break
    return sorted(regions, key=lambda region: region.number)


def _draw_region(
    rng: np.random.Generator,
    anatomy: Anatomy,
    cloud: tuple[np.ndarray, np.ndarray],
    number: int,
    malignant: bool,
    scale: float,
    others: list[TrueRegion],
) -> TrueRegion | None:
    """Draw one region of a man; None if there is no free place for it.

    ``number`` is the region's number, from 1. ``scale`` is a factor on the radius; it is below 1
    when an earlier draw of the region found no place. ``others`` are the man's regions so far.
    """
    # The kind of the region, and the zone in which it arises.
    if malignant:
        kind = "cancer"
        finding = params.CANCER
        isup = int(rng.choice(5, p=params.ISUP_SHARES)) + 1
        severity = params.CANCER_SEVERITY[isup]
        zone = "PZ" if rng.random() < params.CANCER_IN_PZ else "TZ"
    else:
        kinds = list(params.BENIGN)
        weights = np.array([params.BENIGN[name].weight for name in kinds])
        kind = kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))]
        finding = params.BENIGN[kind]
        isup = 0
        severity = finding.severity
        zone = finding.zones[0]
    latent = float(norm.ppf(severity) + rng.normal(0, params.LATENT_SD))

    # How large it is, and where it has room.
    group = "cancer" if malignant else "benign"
    median, spread = params.RADIUS_MM[group]
    drawn_radius = median * np.exp(rng.normal(0, spread))
    radius = float(np.clip(drawn_radius, *params.RADIUS_LIMITS_MM) * scale)
    axes = radius * np.exp(rng.normal(0, 0.10, 3)) * np.array(params.PROPORTIONS[group])
    centre = _centre_of_region(rng, anatomy, cloud, zone, axes, malignant, others)
    if centre is None:
        return None

    # Its tissue and shape. The region lies along the capsule of the gland.
    tissue = _tissue(rng, anatomy.tissues[zone], finding, latent)
    within: tuple[str, ...] = (zone,)
    if malignant:
        # A cancer grows across the borders of zones; a benign finding stays within its zone.
        within = (zone, *(other for other in CROSSED if other != zone))
    angle = float(_tangent_angle(anatomy, np.array(centre))) + float(rng.uniform(-0.3, 0.3))
    waves = ripples(rng, 0.10, 2.2 * float(axes.min()))
    name = f"roi {number}"
    shapes = [Shape(name, centre, triple(axes), name, within, angle, waves)]
    if finding.capsule:
        rim = Shape("capsule", centre, triple(axes + 0.8), within[0], within, angle, waves)
        shapes.insert(0, rim)
    return TrueRegion(
        number=number,
        kind=kind,
        zone=zone,
        isup=isup,
        latent=latent,
        radius=radius,
        shapes=shapes,
        tissue=tissue,
    )


def _tissue(
    rng: np.random.Generator, native: params.Tissue, finding: params.Finding, latent: float
) -> params.Tissue:
    """Return a region's tissue.

    The severity of the region says how far its parameters lie on the way from the zone's tissue to
    cancer. The parameters are then multiplied by the factors of the finding, and random noise is
    added.
    """
    severity = float(norm.cdf(latent))
    cancer = params.TISSUES["cancer"]
    shift = {}
    for name, sd in params.UNEXPLAINED.items():
        towards_cancer = severity * np.log(getattr(cancer, name) / getattr(native, name))
        factor = getattr(finding, name, 1.0)  # a finding has no factor for vp
        shift[name] = float(towards_cancer + np.log(factor) + rng.normal(0, sd))
    mixed = vary(native, shift)
    texture = native.texture + severity * (cancer.texture - native.texture)
    return replace(mixed, texture=texture, septa=(1 - severity) * native.septa)


def _tangent_angle(anatomy: Anatomy, points: np.ndarray) -> np.ndarray:
    """Return the angle (radians about z) of the capsule's tangent near each point.

    The points have the shape (..., 3) and are in mm.
    """
    a, b, _ = anatomy.axes
    return np.arctan2(points[..., 0] / a**2, -points[..., 1] / b**2)


def _centre_of_region(
    rng: np.random.Generator,
    anatomy: Anatomy,
    cloud: tuple[np.ndarray, np.ndarray],
    zone: str,
    axes: np.ndarray,
    crossing: bool,
    others: list[TrueRegion],
) -> tuple[float, float, float] | None:
    """Return a centre in the zone for a region; None if there is no room.

    A region at this centre keeps its distance from the regions ``others``. Most of the region lies
    inside the zone. With ``crossing`` the region may cross the borders of zones, and most of it
    lies inside the gland.
    """
    # Points of the zone that are far enough from all other regions.
    points, zones = cloud
    free = zones == zone
    for other in others:
        shape = other.shapes[-1]  # the region itself
        distance = np.linalg.norm(points - np.array(shape.centre), axis=1)
        free &= distance >= axes.max() + max(shape.axes) + GAP
    candidates = rng.permutation(points[free])[:CANDIDATES]
    if not len(candidates):
        return None

    # Around each candidate, six points of the region near its surface: one in each direction, with
    # the region turned along the capsule.
    angle = _tangent_angle(anatomy, candidates)[:, None]
    u, v, w = (0.75 * axes * _DIRECTIONS).T
    x = np.cos(angle) * u - np.sin(angle) * v
    y = np.sin(angle) * u + np.cos(angle) * v
    z = np.broadcast_to(w, x.shape)
    offsets = np.stack([x, y, z], axis=-1)
    zones_around = zones_at(anatomy, (candidates[:, None] + offsets).reshape(-1, 3))

    # Five of the six points must be inside; in the thin zones four are enough.
    inside = (zones_around != "") if crossing else (zones_around == zone)
    n_inside = inside.reshape(len(candidates), -1).sum(axis=1)
    least = 4 if zone in ("PZ", "AFS") else 5
    fitting = np.flatnonzero(n_inside >= least)
    if not len(fitting):
        return None
    return triple(candidates[fitting[0]])


def zones_at(anatomy: Anatomy, points: np.ndarray) -> np.ndarray:
    """Return the zone in which each point lies.

    Parameters
    ----------
    anatomy : Anatomy
        Anatomy of the patient.
    points : ndarray, shape (n, 3)
        x (to the left), y (to the back) and z (to the head) from the gland's centre, mm.

    Returns
    -------
    ndarray of str, shape (n,)
        Name of the zone, such as ``PZ``; empty outside the gland.

    Examples
    --------
    The middle of a gland is in the gland, and a point a metre away is not:

    >>> import numpy as np
    >>> from cad.evidence.phantom.anatomy import build_anatomy
    >>> anatomy = build_anatomy(np.random.default_rng(0))
    >>> inside, outside = zones_at(anatomy, np.array([[0.0, 0.0, 0.0], [1000.0, 0.0, 0.0]]))
    >>> bool(inside != ""), bool(outside == "")
    (True, True)
    """
    x, y, z = points.T
    zones = np.full(len(points), "", dtype="U8")
    for shape in anatomy.shapes:
        if not shape.zone:  # shapes outside the gland have no zone
            continue
        inside = shape.level(x, y, z) < 1.0
        if shape.within:
            inside &= np.isin(zones, shape.within)
        zones[inside] = shape.zone
    return zones
