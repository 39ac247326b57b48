"""A study in memory: the volumes, masks and regions of one patient's examination."""

from dataclasses import dataclass, field

import numpy as np

from cad.errors import CadError
from cad.imaging.volume import Dynamic, Volume
from cad.terms.modality import MODALITIES


@dataclass(frozen=True)
class Roi:
    """Name a region of interest: its identifier, its integer in the label map, what is known of it.

    ``zone`` and ``histology`` are ``n/a`` and ``isup`` is None where they are not known;
    ``confidence`` is the detector's where one outlined the region, else None.
    """

    roi_id: str
    label: int
    zone: str = "n/a"
    histology: str = "n/a"
    isup: int | None = None
    confidence: float | None = None


@dataclass(frozen=True)
class Protocol:
    """Hold how an image was acquired, as its sidecar says; None where it does not.

    Times in seconds, the angle in degrees, the field in tesla; the UIDs are the DICOM source's, and
    so are the number of the series and of every slice's image in it, in the order of the slices.
    The scanner's maker (one of the known ones) and the study's date are empty where not stated.
    """

    repetition_time: float | None = None
    echo_time: float | None = None
    flip_angle: float | None = None
    field_strength: float | None = None
    study_uid: str | None = None
    frame_uid: str | None = None
    series_number: int | None = None
    instance_numbers: tuple[int, ...] = ()
    scanner: str = ""
    date: str = ""


@dataclass
class Study:
    """Hold everything that is measured of one study; a modality that is absent is None.

    Parameters
    ----------
    study_id : str
        ``sub-XXX``, or ``sub-XXX_ses-YY`` where a patient has several studies.
    participant_id : str
        ``sub-XXX``.
    t2w, adc : Volume or None
        T2-weighted image (arbitrary units) and ADC map (1e-6 mm2/s).
    dce : Dynamic or None
        Dynamic series.
    hbv : Volume or None
        Diffusion-weighted image at b of 1400 s/mm2 or more, acquired or computed.
    vfa : list of (float, Volume)
        Variable-flip-angle images with their flip angle in degrees.
    vfa_repetition_time : float or None
        Seconds.
    b1 : Volume or None
        Actual over stated flip angle (transmit field); NaN where it is not known.
    diffusion : list of (float, Volume)
        Diffusion-weighted images with their b-value in s/mm2.
    roi_map : Volume or None
        Label map; integers are those of ``rois``.
    gland, vessel : Volume or None
        Masks of the prostate and of an artery (for the arterial input function).
    frames_moved_mm : float or None
        Largest shift of a dynamic frame that was taken back; None where none was looked for.
    protocols : dict of str to Protocol
        How each modality was acquired, by its name.
    notes : list of str
        What was replaced or assumed; shown on the patient's page.
    """

    study_id: str
    participant_id: str
    t2w: Volume | None = None
    adc: Volume | None = None
    dce: Dynamic | None = None
    hbv: Volume | None = None
    vfa: list[tuple[float, Volume]] = field(default_factory=list)
    vfa_repetition_time: float | None = None
    b1: Volume | None = None
    diffusion: list[tuple[float, Volume]] = field(default_factory=list)
    roi_map: Volume | None = None
    rois: list[Roi] = field(default_factory=list)
    gland: Volume | None = None
    vessel: Volume | None = None
    frames_moved_mm: float | None = None
    protocols: dict[str, Protocol] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def image(self, name: str) -> Volume | Dynamic | None:
        """Return the image of a modality (``t2w``, ``adc``, ...); None where it is absent."""
        image: Volume | Dynamic | None = getattr(self, name)
        return image

    def grid(self, name: str) -> Volume | None:
        """Return the grid of a modality's image: the image itself, or a dynamic's first frame."""
        image = self.image(name)
        return image.grid if isinstance(image, Dynamic) else image

    def mask_of(self, roi: Roi) -> Volume:
        """Return the region's voxels of the label map; there are some."""
        if self.roi_map is None:
            raise CadError(
                "the study has no label map",
                patient=self.participant_id,
                hint="add masks/*_rois.nii.gz",
            )
        inside = self.roi_map.array == roi.label
        if not inside.any():
            raise CadError(
                f"the ROI is empty: no voxel of the label map has the value {roi.label}",
                patient=self.participant_id,
                roi=roi.roi_id,
                hint="correct the label in rois.tsv or the mask",
            )
        return self.roi_map.with_array(inside)

    @property
    def roi_union(self) -> Volume | None:
        """Return the voxels of the label map that belong to any region of the study."""
        if self.roi_map is None:
            return None
        labels = [roi.label for roi in self.rois]
        return self.roi_map.with_array(np.isin(self.roi_map.array, labels))

    @property
    def anatomical(self) -> Volume:
        """Return the grid of T2, or of the first modality there is."""
        for name in self.present:
            if (grid := self.grid(name)) is not None:
                return grid
        raise CadError("the study has no image", patient=self.participant_id)

    @property
    def present(self) -> tuple[str, ...]:
        """Return the names of the modalities that the study has, in the order of the table."""
        return tuple(m.name for m in MODALITIES if self.image(m.name) is not None)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the names of the modalities that a study should have and this one has not.

        An ADC map can be fitted from diffusion images: with those it is not missing.
        """
        made = {"adc"} if self.diffusion else set()
        wanted = {m.name for m in MODALITIES if not m.optional} - made
        return tuple(m.name for m in MODALITIES if m.name in wanted - set(self.present))

    @property
    def missing_notes(self) -> list[str]:
        """Return a line for every modality that is missing."""
        return [f"missing modality: {m.short}" for m in MODALITIES if m.name in self.missing]
