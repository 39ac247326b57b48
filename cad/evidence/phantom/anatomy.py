"""Draw a male pelvis with its prostate: zones, nodules, organs and vessels, different in each
man.
"""

from dataclasses import dataclass, replace

import numpy as np

from cad.evidence.phantom import params
from cad.evidence.phantom.shapes import Shape, Wave, ripples
from cad.mri.imaging.volume import triple

_MOST = {"adc": 3000.0, "ve": 0.9, "vp": 0.3}  # largest allowed value of ADC, ve and vp in a tissue


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
        fronts = [s.centre[1] - s.axes[1] for s in self.shapes if s.tissue == "gas"]
        return fronts[0] if fronts else None


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
    volume = float(
        np.clip(
            np.exp(rng.normal(np.log(params.GLAND_ML), params.GLAND_SD)), *params.GLAND_LIMITS_ML
        )
    )
    proportion = np.array([1.28, 0.86, 1.00]) * np.exp(rng.normal(0, 0.05, 3))
    radius = (volume * 1000 / (4 / 3 * np.pi * float(np.prod(proportion)) * 0.79)) ** (1 / 3)
    a, b, c = (float(v) for v in radius * proportion)
    tissues = dict(params.TISSUES)
    common = {name: float(rng.normal(0, sd)) for name, sd in params.PATIENT_SD.items()}
    for name in ("PZ", "TZ", "CZ", "AFS", "capsule", "urethra"):
        shift = {key: value + float(rng.normal(0, 0.04)) for key, value in common.items()}
        tissues[name] = vary(params.TISSUES[name], shift)
    gland = Shape(
        "capsule", (0, 0, 0), (a, b, c), "rim", waves=ripples(rng, 0.03, 20), back=0.86, taper=0.45
    )
    shapes = [*_surroundings(rng, a, b, c), gland, *_draw_zones(rng, a, b, c, volume, gland.waves)]
    shapes += _nodules(rng, tissues, shapes, volume)
    shapes += _haemorrhage(rng, tissues, (a, b, c))
    shapes.append(Shape("urethra", (0, -0.08 * b, -0.05 * c), (1.6, 2.6, 0.75 * c), "TZ"))
    return Anatomy(shapes, tissues, (a, b, c))


def _surroundings(rng: np.random.Generator, a: float, b: float, c: float) -> list[Shape]:
    """Draw muscles, bones, bladder, vesicles, rectum and vessels around a gland."""
    wide = max(a + 16.0, 40.0) + rng.uniform(-1, 2)
    back = b * 0.86
    shapes: list[Shape] = []
    for side in (-1, 1):
        shapes += [
            Shape("muscle", (side * (wide + 10), 2, 4), (13, 34, 60), power=2.6),
            Shape("cortex", (side * (wide + 31), -6, 16), (16, 30, 40), power=2.4),
            Shape("marrow", (side * (wide + 31), -6, 16), (14, 28, 38), power=2.4),
            Shape("cortex", (side * 17, -b - 23, -8), (15, 10, 20), angle=side * 0.5),
            Shape("marrow", (side * 17, -b - 23, -8), (13, 8, 18), angle=side * 0.5),
            # The limits of 48 and 59 mm keep the femoral vessels inside the coarsest grid's field
            # of view, also beside a large gland.
            Shape("vein", (side * min(wide + 4, 48), -b - 16, 0), (5.5, 5.0, 400)),
            Shape("artery", (side * min(wide + 15, 59), -b - 18, 0), (4.6, 4.6, 400)),
            # The next shape is the levator ani, a sling of muscle beside gland and rectum. It gets
            # thinner towards the head.
            Shape("muscle", (side * (a + 6.5), back * 0.6, -10), (3.2, b + 10, c + 14)),
        ]
    shapes += [
        Shape("muscle", (0, back + 40, 0), (40, 14, 80), power=2.4),
        Shape("venous plexus", (0, -b - 2.5, -2), (13, 4.0, c), waves=ripples(rng, 0.15, 10)),
        Shape("bowel wall", (0, back + 13, 0), (16, 12.5, 90), waves=ripples(rng, 0.06, 25)),
    ]
    filling = str(rng.choice(["gas", "stool", "muscle"], p=[0.45, 0.35, 0.2]))
    full = rng.uniform(0.55, 0.8)
    shapes.append(Shape(filling, (0, back + 13, 0), (16 * full, 12.5 * full, 88)))
    bladder = float(rng.uniform(0.8, 1.15))
    centre = (0.0, -0.35 * b, c + 19.0 * bladder)
    shapes += [
        Shape("vesicle wall", centre, (37 * bladder, 27 * bladder, 22 * bladder), power=2.2),
        Shape("urine", centre, (33.5 * bladder, 23.5 * bladder, 19 * bladder), power=2.2),
    ]
    for side in (-1, 1):
        place = (side * 14.0, back * 0.75, c + 2.0)
        shapes += [
            Shape("vesicle wall", place, (14, 5.2, 7.0), angle=side * 0.25),
            Shape(
                "seminal vesicle",
                place,
                (12.8, 4.2, 6.0),
                angle=side * 0.25,
                waves=ripples(rng, 0.2, 6),
            ),
        ]
    return shapes


def _draw_zones(
    rng: np.random.Generator, a: float, b: float, c: float, volume: float, waves: tuple[Wave, ...]
) -> list[Shape]:
    """Draw the peripheral zone with its capsule, the central and transition zones, and the
    stroma.
    """
    rim = 0.9
    grown = float(np.clip(1.0 - 20.0 / volume + rng.normal(0, 0.05), 0.18, 0.72)) ** (1 / 3)
    lean = 0.05 * b * (1 - grown)
    inner = (a - rim, b - rim, c - rim)
    zones = [
        Shape("PZ", (0, 0, 0), inner, "PZ", ("rim",), waves=waves, back=0.86, taper=0.45),
        Shape("CZ", (0, 0.34 * b, 0.62 * c), (0.52 * a, 0.36 * b, 0.42 * c), "CZ", within=("PZ",)),
    ]
    for side in (-1, 1):
        uneven = 1.0 + float(rng.normal(0, 0.06))
        centre = (side * 0.30 * a * grown, (-0.30 + 0.12 * grown) * b - lean, 0.10 * c)
        axes = (0.62 * a * grown * uneven, 0.92 * b * grown * uneven, 0.92 * c * grown)
        ripple = ripples(rng, 0.06, 16)
        within = ("PZ", "CZ", "rim TZ", "TZ")
        zones.append(Shape("capsule", centre, axes, "rim TZ", within=within[:2], waves=ripple))
        thin = (axes[0] - 0.8, axes[1] - 0.8, axes[2] - 0.8)
        zones.append(Shape("TZ", centre, thin, "TZ", within=within, waves=ripple))
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
        place = triple(np.array(lobe.centre) + offset)
        stretch = rng.uniform(0.8, 1.2, 3) * radius
        name = f"nodule {number}"
        stromal = rng.random() < 0.4
        shift = {
            "t2": float(rng.normal(-0.35 if stromal else 0.22, 0.12)),
            "adc": float(rng.normal(-0.20 if stromal else 0.07, 0.06)),
            "ktrans": float(rng.normal(0.35 if stromal else 0.0, 0.25)),
        }
        tissues[name] = vary(tissues["TZ"], shift)
        waves = ripples(rng, 0.06, 8)
        nodules += [
            Shape("capsule", place, triple(stretch), "TZ", ("TZ",), waves=waves),
            Shape(name, place, triple(stretch - 0.7), "TZ", ("TZ",), waves=waves),
        ]
    return nodules


def _haemorrhage(
    rng: np.random.Generator, tissues: dict[str, params.Tissue], axes: tuple[float, float, float]
) -> list[Shape]:
    """Draw patches of blood in the peripheral zone of men who had a biopsy before."""
    if rng.random() >= params.HAEMORRHAGE_SHARE:
        return []
    tissues["old blood"] = vary(
        tissues["PZ"], {k: np.log(v) for k, v in params.HAEMORRHAGE.items()}
    )
    a, b, c = axes
    patches = []
    for _ in range(int(rng.integers(*params.HAEMORRHAGE_PATCHES))):
        around = rng.uniform(-1.2, 1.2)
        place = (0.8 * a * np.sin(around), 0.7 * b * np.cos(around), rng.uniform(-0.6, 0.5) * c)
        size = rng.uniform(*params.HAEMORRHAGE_RADIUS_MM) * np.exp(rng.normal(0, 0.2, 3))
        waves = ripples(rng, 0.15, 6)
        patches.append(
            Shape("old blood", triple(np.array(place)), triple(size), "PZ", ("PZ",), waves=waves)
        )
    return patches
