"""Draw a male pelvis with its prostate: zones, nodules, organs and vessels, different in each
man.
"""

from dataclasses import dataclass, replace

import numpy as np

from cad.evidence.phantom import params
from cad.evidence.phantom.shapes import Shape, Wave, ripples
from cad.mri.imaging.volume import triple

_MOST = {"adc": 3000.0, "ve": 0.9, "vp": 0.3}  # largest allowed value of ADC, ve and vp in a tissue
_BACK = 0.86
_TAPER = 0.45
"""How much flatter the gland is behind than in front, and how much narrower its apex is."""
_SHARE_OF_ELLIPSOID = 0.79
"""Volume of such a gland, as a share of the volume of the ellipsoid with its semi-axes."""


@dataclass(frozen=True)
class Anatomy:
    """Hold the anatomy of one simulated pelvis, without regions of interest.

    Parameters
    ----------
    shapes : list of Shape
        Organs and zones. They are painted in this order over fat, and later shapes replace earlier
        ones.
    tissues : dict of str to Tissue
        Parameters of this patient's tissues, by tissue name.
    axes : tuple of 3 floats
        Semi-axes of the gland along x, y and z, mm.
    """

    shapes: list[Shape]
    tissues: dict[str, params.Tissue]
    axes: tuple[float, float, float]

    @property
    def gas_front(self) -> float | None:
        """Return where the rectum's gas begins (mm behind the gland's centre); None without gas."""
        for shape in self.shapes:
            if shape.tissue == "gas":
                return shape.centre[1] - shape.axes[1]
        return None


def vary(tissue: params.Tissue, shift: dict[str, float]) -> params.Tissue:
    """Return a copy of a tissue in which some parameters are multiplied by a factor.

    Parameters
    ----------
    tissue : Tissue
        The tissue; not changed.
    shift : dict of str to float
        Natural logarithm of the factor, by name of the parameter. ADC, ve and vp are limited to a
        largest value.
    """
    varied = {}
    for name, logarithm in shift.items():
        value = getattr(tissue, name) * float(np.exp(logarithm))
        varied[name] = min(value, _MOST.get(name, np.inf))
    return replace(tissue, **varied)


def build_anatomy(rng: np.random.Generator) -> Anatomy:
    """Draw one man's pelvis: gland, zones, and the organs around the gland.

    Glands differ in volume. The volume that a gland has beyond about 20 mL is transition zone
    (hyperplasia).

    Parameters
    ----------
    rng : Generator
        Source of the random draws.

    Returns
    -------
    Anatomy
        Shapes of organs and zones in the gland's frame (mm), the parameters of the man's tissues,
        and the semi-axes of the gland (mm).
    """
    # The gland's volume (mL), its proportions, and from both its semi-axes (mm).
    drawn_volume = np.exp(rng.normal(np.log(params.GLAND_ML), params.GLAND_SD))
    volume = float(np.clip(drawn_volume, *params.GLAND_LIMITS_ML))
    proportion = np.array([1.28, 0.86, 1.00]) * np.exp(rng.normal(0, 0.05, 3))
    volume_of_unit = 4 / 3 * np.pi * float(np.prod(proportion)) * _SHARE_OF_ELLIPSOID
    radius = (volume * 1000 / volume_of_unit) ** (1 / 3)
    a, b, c = (float(axis) for axis in radius * proportion)

    # The man's tissues: what is common to his whole gland, and a little more for each tissue.
    tissues = dict(params.TISSUES)
    common = {name: float(rng.normal(0, sd)) for name, sd in params.PATIENT_SD.items()}
    for name in ("PZ", "TZ", "CZ", "AFS", "capsule", "urethra"):
        shift = {key: value + float(rng.normal(0, 0.04)) for key, value in common.items()}
        tissues[name] = vary(params.TISSUES[name], shift)

    # The shapes, from the outside to the inside: a later shape replaces an earlier one.
    gland = Shape(
        "capsule",
        (0, 0, 0),
        (a, b, c),
        "rim",
        waves=ripples(rng, 0.03, 20),
        back=_BACK,
        taper=_TAPER,
    )
    shapes = [*_surroundings(rng, a, b, c), gland, *_draw_zones(rng, a, b, c, volume, gland.waves)]
    shapes += _nodules(rng, tissues, shapes, volume)
    shapes += _haemorrhage(rng, tissues, (a, b, c))
    shapes.append(Shape("urethra", (0, -0.08 * b, -0.05 * c), (1.6, 2.6, 0.75 * c), "TZ"))
    return Anatomy(shapes, tissues, (a, b, c))


def _surroundings(rng: np.random.Generator, a: float, b: float, c: float) -> list[Shape]:
    """Draw muscles, bones, bladder, vesicles, rectum and vessels around a gland.

    Each shape has a tissue, a centre and semi-axes, the last two along x, y and z in mm from the
    centre of the gland. A later shape replaces an earlier one where they overlap.

    Parameters
    ----------
    rng : Generator
        Source of the random draws.
    a, b, c : float
        Semi-axes of the gland along x, y and z, mm.
    """
    shapes: list[Shape] = []
    back_of_gland = b * _BACK
    pelvic_wall = max(a + 16.0, 40.0) + rng.uniform(-1, 2)  # distance from the middle, mm
    vein_x = min(pelvic_wall + 4, 48)
    artery_x = min(pelvic_wall + 15, 59)
    for side in (-1, 1):
        # Muscle and bone of the pelvic wall
        hip = (side * (pelvic_wall + 31), -6, 16)
        shapes.append(Shape("muscle", (side * (pelvic_wall + 10), 2, 4), (13, 34, 60), power=2.6))
        shapes.append(Shape("cortex", hip, (16, 30, 40), power=2.4))
        shapes.append(Shape("marrow", hip, (14, 28, 38), power=2.4))
        # Pubic bone in front of the gland
        pubis = (side * 17, -b - 23, -8)
        shapes.append(Shape("cortex", pubis, (15, 10, 20), angle=side * 0.5))
        shapes.append(Shape("marrow", pubis, (13, 8, 18), angle=side * 0.5))
        # Femoral vessels. The limits of 48 and 59 mm keep them inside the coarsest grid's field of
        # view, also beside a large gland.
        shapes.append(Shape("vein", (side * vein_x, -b - 16, 0), (5.5, 5.0, 400)))
        shapes.append(Shape("artery", (side * artery_x, -b - 18, 0), (4.6, 4.6, 400)))
        # The levator ani, a sling of muscle beside gland and rectum. It gets thinner towards the
        # head.
        levator = (side * (a + 6.5), back_of_gland * 0.6, -10)
        shapes.append(Shape("muscle", levator, (3.2, b + 10, c + 14)))

    # Muscle behind the rectum, and veins in front of the gland
    shapes.append(Shape("muscle", (0, back_of_gland + 40, 0), (40, 14, 80), power=2.4))
    waves = ripples(rng, 0.15, 10)
    shapes.append(Shape("venous plexus", (0, -b - 2.5, -2), (13, 4.0, c), waves=waves))

    # Rectum: the wall of the bowel, and what fills it
    rectum = (0, back_of_gland + 13, 0)
    waves = ripples(rng, 0.06, 25)
    shapes.append(Shape("bowel wall", rectum, (16, 12.5, 90), waves=waves))
    filling = str(rng.choice(["gas", "stool", "muscle"], p=[0.45, 0.35, 0.2]))
    lumen = rng.uniform(0.55, 0.8)  # width of the filling as a share of the bowel's
    shapes.append(Shape(filling, rectum, (16 * lumen, 12.5 * lumen, 88)))

    # Bladder: its wall, and the urine in it
    size = float(rng.uniform(0.8, 1.15))
    bladder = (0.0, -0.35 * b, c + 19.0 * size)
    shapes.append(Shape("vesicle wall", bladder, (37 * size, 27 * size, 22 * size), power=2.2))
    shapes.append(Shape("urine", bladder, (33.5 * size, 23.5 * size, 19 * size), power=2.2))

    # Seminal vesicles
    for side in (-1, 1):
        vesicle = (side * 14.0, back_of_gland * 0.75, c + 2.0)
        angle = side * 0.25
        shapes.append(Shape("vesicle wall", vesicle, (14, 5.2, 7.0), angle=angle))
        waves = ripples(rng, 0.2, 6)
        shapes.append(Shape("seminal vesicle", vesicle, (12.8, 4.2, 6.0), angle=angle, waves=waves))
    return shapes


def _draw_zones(
    rng: np.random.Generator, a: float, b: float, c: float, volume: float, waves: tuple[Wave, ...]
) -> list[Shape]:
    """Draw the peripheral zone with its capsule, the central and transition zones, and the
    stroma.
    """
    # Peripheral and central zone. What the peripheral zone leaves of the gland is its capsule.
    capsule = 0.9  # mm
    inner = (a - capsule, b - capsule, c - capsule)
    # The transition zone has the share of the gland's volume that lies beyond 20 mL; the cube root
    # of this share is a factor on lengths. In small glands the zone lies farther to the front.
    share_of_tz = float(np.clip(1.0 - 20.0 / volume + rng.normal(0, 0.05), 0.18, 0.72))
    grown = share_of_tz ** (1 / 3)
    forwards = 0.05 * b * (1 - grown)
    zones = [
        Shape("PZ", (0, 0, 0), inner, "PZ", ("rim",), waves=waves, back=_BACK, taper=_TAPER),
        Shape("CZ", (0, 0.34 * b, 0.62 * c), (0.52 * a, 0.36 * b, 0.42 * c), "CZ", within=("PZ",)),
    ]

    # The two lobes of the transition zone, each with a thin capsule of its own.
    for side in (-1, 1):
        uneven = 1.0 + float(rng.normal(0, 0.06))
        centre = (side * 0.30 * a * grown, (-0.30 + 0.12 * grown) * b - forwards, 0.10 * c)
        axes = (0.62 * a * grown * uneven, 0.92 * b * grown * uneven, 0.92 * c * grown)
        lobe_waves = ripples(rng, 0.06, 16)
        zones.append(
            Shape("capsule", centre, axes, "rim TZ", within=("PZ", "CZ"), waves=lobe_waves)
        )
        inner_axes = (axes[0] - 0.8, axes[1] - 0.8, axes[2] - 0.8)
        within = ("PZ", "CZ", "rim TZ", "TZ")
        zones.append(Shape("TZ", centre, inner_axes, "TZ", within=within, waves=lobe_waves))

    # The anterior fibromuscular stroma, in front
    zones.append(
        Shape(
            "AFS",
            (0, -0.92 * b, 0.02 * c),
            (0.50 * a, 0.34 * b, 0.85 * c),
            "AFS",
            within=("PZ", "TZ", "rim TZ"),
            waves=ripples(rng, 0.1, 14),
        )
    )
    return zones


def _nodules(
    rng: np.random.Generator, tissues: dict[str, params.Tissue], shapes: list[Shape], volume: float
) -> list[Shape]:
    """Draw hyperplastic nodules of the transition zone; larger glands have more nodules."""
    count = int(rng.poisson(np.clip((volume - 18.0) / 4.0, 1.0, 14.0)))
    lobes = [shape for shape in shapes if shape.tissue == "TZ"]
    nodules = []
    for number in range(count):
        lobe = lobes[int(rng.integers(len(lobes)))]
        offset = rng.normal(0, 0.45, 3) * np.array(lobe.axes)
        radius = float(rng.uniform(2.5, 6.5))
        centre = triple(np.array(lobe.centre) + offset)
        axes = rng.uniform(0.8, 1.2, 3) * radius
        name = f"nodule {number}"
        # Stromal nodules are darker in T2 and ADC than the zone, and enhance more; glandular
        # nodules are brighter.
        stromal = rng.random() < 0.4
        shift = {
            "t2": float(rng.normal(-0.35 if stromal else 0.22, 0.12)),
            "adc": float(rng.normal(-0.20 if stromal else 0.07, 0.06)),
            "ktrans": float(rng.normal(0.35 if stromal else 0.0, 0.25)),
        }
        tissues[name] = vary(tissues["TZ"], shift)
        waves = ripples(rng, 0.06, 8)
        nodules += [
            Shape("capsule", centre, triple(axes), "TZ", ("TZ",), waves=waves),
            Shape(name, centre, triple(axes - 0.7), "TZ", ("TZ",), waves=waves),
        ]
    return nodules


def _haemorrhage(
    rng: np.random.Generator, tissues: dict[str, params.Tissue], axes: tuple[float, float, float]
) -> list[Shape]:
    """Draw patches of blood in the peripheral zone of men who had a biopsy before."""
    if rng.random() >= params.HAEMORRHAGE_SHARE:
        return []
    shift = {name: np.log(factor) for name, factor in params.HAEMORRHAGE.items()}
    tissues["old blood"] = vary(tissues["PZ"], shift)
    a, b, c = axes
    patches = []
    for _ in range(int(rng.integers(*params.HAEMORRHAGE_PATCHES))):
        # The angle goes along the peripheral zone, from one side over the back (0) to the other.
        angle = rng.uniform(-1.2, 1.2)
        centre = (0.8 * a * np.sin(angle), 0.7 * b * np.cos(angle), rng.uniform(-0.6, 0.5) * c)
        size = rng.uniform(*params.HAEMORRHAGE_RADIUS_MM) * np.exp(rng.normal(0, 0.2, 3))
        waves = ripples(rng, 0.15, 6)
        patches.append(
            Shape("old blood", triple(np.array(centre)), triple(size), "PZ", ("PZ",), waves=waves)
        )
    return patches
