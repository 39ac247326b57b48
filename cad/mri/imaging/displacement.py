"""Describe an image's displacement against T2 in the slice, and move the image back.

Echo-planar images (ADC, high b) are displaced along their phase-encoding direction, and patients
move between series. An image that "lies beside T2" shows the same tissue in another place than T2.
Only the origin of an image changes when it is moved back. The image is not resampled, and every
voxel keeps its value.
"""

from dataclasses import dataclass, replace

import numpy as np

from cad.base.terms.modality import short_name
from cad.mri.imaging.volume import Volume, triple

NOTED_FROM_MM = 2.0
"""Least displacement that an import reports; it is about the size of a voxel."""
_RANGE_95 = 1.96  # standard errors from the middle to an end of the 95 % range
_SECOND_SHARE = 0.35  # least share of the largest component that names a second direction
ENOUGH_VOXELS = 5000
"""Least number of compared voxels with which an image may be refused because it is displaced, or
because it shares too little information with T2.
"""


@dataclass(frozen=True, eq=False)
class Displacement:
    """Hold the displacement of one image against T2.

    Parameters
    ----------
    name : str
        The image: ``adc``, ``hbv``, ``dce`` or ``ktrans``.
    shift_mm : tuple of 2 floats
        Vector from where T2 shows the content to where the image has it, mm along the x and y axes
        of its grid.
    error_mm : tuple of 2 floats
        Standard errors of both components, mm.
    slices_mm : tuple of float
        Shift of each compared slice along the axis of the displacement, mm.
    axis : int
        Axis of the displacement: 0 for x, 1 for y. It is the phase-encoding axis where that is
        known, else the axis along which the image lies farther away.
    phase_known : bool
        Whether the phase-encoding axis is known.
    before, after : float
        Information (nats) shared with T2, as the image lies and in its best place.
    mirrored, turned : float
        ln(a / b): a is the information that the image shares in its best place. b is the
        information that the mirrored or turned image shares in its own best place. An image is
        mirrored in the middle plane of its field. It is turned upside down, head for feet, or by a
        quarter. Below 0 the image fits T2 better when it is mirrored or turned.
    fixed, moving : Volume
        The images that were compared.
    drawn : bool
        False where the images were compared in the middle of T2, because no gland or region is
        drawn.
    voxels : float
        Number of voxels of the image that were compared.
    """

    name: str
    shift_mm: tuple[float, float]
    error_mm: tuple[float, float]
    slices_mm: tuple[float, ...]
    axis: int
    phase_known: bool
    before: float
    after: float
    mirrored: float
    turned: float
    fixed: Volume
    moving: Volume
    drawn: bool = True
    voxels: float = np.inf

    @property
    def is_evidence(self) -> bool:
        """Tell whether the comparison may be a reason to refuse the image.

        This is so if it was made around a drawn gland or region, on enough voxels.
        """
        return self.drawn and self.voxels >= ENOUGH_VOXELS

    @property
    def size_mm(self) -> float:
        """Return how far the image is shifted against T2 within the slice, mm."""
        return float(np.hypot(self.shift_mm[0], self.shift_mm[1]))

    @property
    def uncertainty_mm(self) -> float:
        """Return the larger standard error of the two axes, mm."""
        return max(self.error_mm)

    @property
    def most_mm(self) -> float:
        """Return how far the image may lie beside T2, mm: the upper end of the 95 % range."""
        return self.size_mm + _RANGE_95 * self.uncertainty_mm

    @property
    def is_notable(self) -> bool:
        """Tell whether an image measures other tissue once it is moved back by this displacement.

        This is so if the displacement is as large as a voxel (2 mm), or larger than its own
        uncertainty.
        """
        return self.size_mm >= NOTED_FROM_MM or self.size_mm > _RANGE_95 * self.uncertainty_mm

    @property
    def sentence(self) -> str:
        """Return a sentence for the patient's page: how far the image lies beside T2, and in which
        direction, with the uncertainty of the distance.
        """
        image_title = short_name(self.name)
        # The shift as a vector in the patient; it has no part across the slices.
        shift_in_patient = np.asarray(self.moving.direction) @ np.array([*self.shift_mm, 0.0])
        towards = _towards(shift_in_patient)
        axis_name = "x" if self.axis == 0 else "y"
        if not self.phase_known:
            encoding = "phase-encoding direction not known"
        elif abs(self.shift_mm[self.axis]) >= abs(self.shift_mm[1 - self.axis]):
            encoding = "along its phase-encoding direction"
        else:
            encoding = "across its phase-encoding direction"
        low = min(self.slices_mm)
        high = max(self.slices_mm)
        where = ""
        if not self.drawn:
            where = "; measured in the middle of T2, as no gland or region is drawn yet"
        elif not self.is_evidence:
            where = (
                f"; measured on {self.voxels:.0f} voxels, with which no turned or foreign image is "
                f"recognised ({ENOUGH_VOXELS:,} are needed)"
            )
        return (
            f"{image_title} lies {self.size_mm:.1f} mm (± {self.most_mm - self.size_mm:.1f}) "
            f"beside T2, {towards}, {encoding}; {low:.1f} to {high:.1f} mm along {axis_name} from "
            f"slice to slice{where}"
        )

    def mend(self, image: Volume) -> Volume:
        """Return an image of the same series, moved to where T2 shows its content.

        The voxels are the same; the origin is another.
        """
        x, y = self.shift_mm
        shift_in_patient = np.asarray(self.moving.direction) @ np.array([x, y, 0.0])
        return replace(image, origin=triple(np.array(image.origin) - shift_in_patient))


@dataclass(frozen=True, eq=False)
class Unmeasured:
    """Hold why the displacement of an image beside T2 could not be measured.

    Parameters
    ----------
    name : str
        The image: ``adc``, ``hbv``, ``dce`` or ``ktrans``.
    reason : str
        The reason, with the number and its limit.
    fixed, moving : Volume
        The images that were to be compared.
    """

    name: str
    reason: str
    fixed: Volume
    moving: Volume

    @property
    def sentence(self) -> str:
        """Return a sentence for the patient's page that says why nothing was measured."""
        return f"how far {short_name(self.name)} lies beside T2 was not measured: {self.reason}"


def _towards(vector: np.ndarray) -> str:
    """Return the direction of a shift in the patient (LPS, mm) in words.

    The larger component comes first. A second one is named if it is at least .35 of the first.
    """
    # For each axis of the patient, the words for a component below and above 0
    words = (("right", "left"), ("front", "back"), ("feet", "head"))
    axes_by_size = np.argsort(-np.abs(vector))
    largest = abs(float(vector[axes_by_size[0]]))
    directions = []
    for axis in axes_by_size[:2]:
        component = float(vector[axis])
        if abs(component) >= _SECOND_SHARE * largest:
            below, above = words[axis]
            directions.append(above if component > 0 else below)
    return f"towards {' and '.join(directions)}"
