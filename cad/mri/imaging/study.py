"""Hold a study in memory: the volumes, masks and regions of one patient's examination."""

from dataclasses import dataclass, field

import numpy as np

from cad.base.errors import CadError
from cad.base.terms.modality import MODALITIES
from cad.mri.imaging.displacement import Displacement, Unmeasured
from cad.mri.imaging.volume import Dynamic, Volume


@dataclass(frozen=True)
class Roi:
    """Describe a region of interest of a study: a row of ``rois.tsv``, without voxels.

    Parameters
    ----------
    roi_id : str
        Identifier of the region.
    label : int
        Value of the region's voxels in the label map.
    zone : str
        Zone of the prostate; ``n/a`` where unknown.
    histology : str
        ``malignant`` or ``benign``; ``n/a`` where unknown.
    isup : str
        ISUP grade group, ``>=2`` or ``<=1``; ``n/a`` where the grade is unknown.
    confidence : float or None
        Confidence of the detector that outlined the region; None where a reader outlined it.
    """

    roi_id: str
    label: int
    zone: str = "n/a"
    histology: str = "n/a"
    isup: str = "n/a"
    confidence: float | None = None


@dataclass(frozen=True)
class Protocol:
    """Hold how one image was acquired, from its sidecar (the JSON file beside it).

    A field is None or empty if the sidecar has no entry for it.

    Parameters
    ----------
    repetition_time, echo_time : float or None
        Seconds.
    flip_angle : float or None
        Degrees.
    field_strength : float or None
        Tesla.
    study_uid : str or None
        StudyInstanceUID of the DICOM files that the image was made from.
    series_number : int or None
        SeriesNumber of these files.
    instance_numbers : tuple of int
        InstanceNumber of these files, one for each slice, in the order of the slices.
    scanner : str
        Maker, as listed in :mod:`cad.mri.imaging.makers`.
    date : str
        Date of the study, as the sidecar states it.
    phase_encoding : tuple of 3 floats or None
        Unit vector (LPS) of the phase-encoding direction, along which echo-planar images are
        displaced. If the sidecar states only the axis of this direction, the vector may point to
        either end of the axis.
    b_value : float or None
        Diffusion weighting, s/mm2.
    """

    repetition_time: float | None = None
    echo_time: float | None = None
    flip_angle: float | None = None
    field_strength: float | None = None
    study_uid: str | None = None
    series_number: int | None = None
    instance_numbers: tuple[int, ...] = ()
    scanner: str = ""
    date: str = ""
    phase_encoding: tuple[float, float, float] | None = None
    b_value: float | None = None


@dataclass
class Study:
    """Hold the images, masks and regions of one study; a modality that is absent is None.

    Parameters
    ----------
    study_id : str
        ``sub-XXX``, or ``sub-XXX_ses-YY`` where a patient has several studies.
    participant_id : str
        ``sub-XXX``.
    t2w, adc : Volume or None
        T2-weighted image (arbitrary units) and ADC map (1e-6 mm2/s).
    dce : Dynamic or None
        Dynamic contrast-enhanced series.
    hbv : Volume or None
        Diffusion-weighted image at b of 1400 s/mm2 or more, acquired or computed.
    ktrans : Volume or None
        Map of Ktrans (1/min) that was made elsewhere, on a grid of its own.
    vfa : list of (float, Volume)
        Variable-flip-angle images with their flip angle in degrees.
    vfa_repetition_time : float or None
        Seconds.
    b1 : Volume or None
        Actual over stated flip angle (transmit field); NaN where it is not known.
    diffusion : list of (float, Volume)
        Diffusion-weighted images with their b-value in s/mm2.
    roi_map : Volume or None
        Label map: a region's voxels hold its label.
    rois : list of Roi
        The regions: identifier, label, zone and histology.
    gland, vessel : Volume or None
        Masks of the prostate and of an artery (for the arterial input function).
    frames_moved_mm : float or None
        Largest distance by which motion correction shifted a dynamic frame; None where the frames
        were not aligned.
    displacements : tuple of Displacement
        How far images of this study lie beside T2, once it was measured.
    unmeasured : tuple of Unmeasured
        Images whose displacement could not be measured, with the reason.
    map_on_series : Displacement or Unmeasured or None
        How far a Ktrans map on the grid of the dynamic series lies beside T2, once it was measured.
    mended_mm : dict of str to float
        How far images were moved back to T2, in mm, by name of the image.
    protocols : dict of str to Protocol
        How each image was acquired, by the modality's name (``t2w``, ``adc``, ...).
    notes : list of str
        Sentences on values that were replaced or assumed; shown on the patient's page.
    """

    study_id: str
    participant_id: str
    t2w: Volume | None = None
    adc: Volume | None = None
    dce: Dynamic | None = None
    hbv: Volume | None = None
    ktrans: Volume | None = None
    vfa: list[tuple[float, Volume]] = field(default_factory=list)
    vfa_repetition_time: float | None = None
    b1: Volume | None = None
    diffusion: list[tuple[float, Volume]] = field(default_factory=list)
    roi_map: Volume | None = None
    rois: list[Roi] = field(default_factory=list)
    gland: Volume | None = None
    vessel: Volume | None = None
    frames_moved_mm: float | None = None
    displacements: tuple[Displacement, ...] = ()
    unmeasured: tuple[Unmeasured, ...] = ()
    map_on_series: Displacement | Unmeasured | None = None
    mended_mm: dict[str, float] = field(default_factory=dict)
    protocols: dict[str, Protocol] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def image(self, name: str) -> Volume | Dynamic | None:
        """Return the image of a modality, by its name in ``MODALITIES``; None if absent."""
        image: Volume | Dynamic | None = getattr(self, name)
        return image

    def grid(self, name: str) -> Volume | None:
        """Return a 3-D image on a modality's grid; None where the modality is absent.

        It is the modality's image, or the first frame of the dynamic series. ``name`` is the name
        of a row of ``MODALITIES``.
        """
        image = self.image(name)
        return image.grid if isinstance(image, Dynamic) else image

    def mask_of(self, roi: Roi) -> Volume:
        """Return the mask of a region: boolean, on the grid of the label map.

        Raises
        ------
        CadError
            Without a label map, or when no voxel has the region's label.
        """
        if self.roi_map is None:
            problem = "the study has no label map"
            raise CadError(problem, patient=self.participant_id, hint="add masks/*_rois.nii.gz")
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
        """Return a boolean mask of all regions together; None where the study has no label map."""
        if self.roi_map is None:
            return None
        labels = [roi.label for roi in self.rois]
        return self.roi_map.with_array(np.isin(self.roi_map.array, labels))

    @property
    def anatomical(self) -> Volume:
        """Return the first image that is present, of T2, ADC, a dynamic frame, high b and Ktrans.

        Raises
        ------
        CadError
            When the study has no image.
        """
        for name in self.present:
            grid = self.grid(name)
            if grid is not None:
                return grid
        raise CadError("the study has no image", patient=self.participant_id)

    @property
    def present(self) -> tuple[str, ...]:
        """Return the names of the modalities that the study has, in the order of ``MODALITIES``."""
        names = [modality.name for modality in MODALITIES]
        return tuple(name for name in names if self.image(name) is not None)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return which of the modalities ``t2w``, ``adc`` and ``dce`` the study lacks.

        The ADC map does not count as missing where there are diffusion images from which it can be
        fitted.
        """
        can_be_made = {"adc"} if self.diffusion else set()
        missing = []
        for modality in MODALITIES:
            is_required = not modality.optional and modality.name not in can_be_made
            if is_required and modality.name not in self.present:
                missing.append(modality.name)
        return tuple(missing)

    @property
    def missing_notes(self) -> list[str]:
        """Return a sentence on each modality of :attr:`missing`, to show on the patient's page."""
        notes = []
        for modality in MODALITIES:
            if modality.name in self.missing:
                notes.append(f"missing modality: {modality.short}")
        return notes
