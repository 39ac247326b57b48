"""Prepare a study before it is measured: fit the ADC map, align images, as the settings say."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cad.base.errors import CadError
from cad.base.settings import ImageSettings
from cad.base.terms.modality import HBV
from cad.mri.imaging.diffusion import fit_adc, high_b
from cad.mri.imaging.displacement import NOTED_FROM_MM, Unmeasured
from cad.mri.imaging.displacement_search import compare_images, map_on_series, mend
from cad.mri.imaging.frame_motion import still_frames
from cad.mri.imaging.registration import Registration, align_study
from cad.mri.imaging.study import Study


def prepare_study(
    study: Study, settings: ImageSettings, modalities: Sequence[str] = ()
) -> tuple[Study, list[Registration]]:
    """Return a study ready to be measured; the given study is left as it is.

    Parameters
    ----------
    study : Study
        Study with its images as they were read.
    settings : ImageSettings
        ``frame_motion``, ``registration``; the standardisation of T2 is a separate step.
    modalities : sequence of str
        Images that will be measured; the high-b image is made only when it is one of them.

    Returns
    -------
    prepared : Study
        A copy of the study. If the study has no ADC map, the map is fitted to its diffusion images.
        If the study has no high-b image and ``modalities`` names it, this image is taken or
        computed from the diffusion images, too. Images are aligned where the settings say so. The
        notes name the steps that were done, and those that were not possible.
    registrations : list of Registration
        Empty without registration or without a T2 image.
    """
    out = replace(study, notes=list(study.notes))

    # Images that are made from the diffusion images
    derived_images = (("adc", "ADC map", fit_adc), (HBV.name, HBV.title, high_b))
    for name, title, make in derived_images if out.diffusion else ():
        # The ADC map is always made, the high-b image only if it is measured.
        is_unwanted = name == HBV.name and name not in modalities
        if out.image(name) is not None or is_unwanted:
            continue
        try:
            image, notes = make(out.diffusion)
            setattr(out, name, image)
            out.notes += notes
        except CadError as error:
            out.notes.append(f"no {title}: {error.problem}")

    # The places of the frames, and then of the images
    if settings.frame_motion == "translation" and out.dce is not None:
        try:
            out.dce, shift_mm, note = still_frames(out)
            out.frames_moved_mm = float(np.linalg.norm(shift_mm, axis=1).max())
            out.notes.append(note)
        except CadError as error:
            out.notes.append(f"frames of the dynamic series not moved: {error.problem}")
    if settings.registration == "none":
        return _mended(study, out, settings, modalities), []
    if out.t2w is None:
        out.notes.append("not registered: the study has no T2 image")
        return out, []
    return align_study(out)


def _mended(read: Study, out: Study, settings: ImageSettings, modalities: Sequence[str]) -> Study:
    """Note how far each image is displaced from T2, and move back those that the settings name.

    Displacements are measured on ``read``, the study as it was read. ``out`` is the study as it was
    prepared so far; its notes are changed.
    """
    if settings.displacement == "none":
        return out
    displacements, unmeasured = compare_images(read)
    out.notes += [image.sentence for image in unmeasured]
    on_series = map_on_series(read)
    if isinstance(on_series, Unmeasured):
        out.notes.append(on_series.sentence)
    moved_back = []
    for displacement in displacements:
        note = displacement.sentence
        is_moved = (
            settings.displacement == "mended" and displacement.size_mm >= settings.mend_from_mm
        )
        if is_moved:
            moved_back.append(displacement)
            note += ": moved back"
        # A displaced image withdraws the decision on a region only if the image is measured. By
        # default all images are.
        is_measured = not modalities or displacement.name in modalities
        if is_measured and displacement.most_mm >= settings.withdraw_from_mm:
            note += "; no decision is stated (images.registration: rigid may align it)"
        # A displacement of NOTED_FROM_MM or more is noted. If the image is moved back, other tissue
        # is measured in its regions. Then a smaller displacement is noted, too, if it is larger
        # than its own uncertainty.
        if displacement.size_mm >= NOTED_FROM_MM or (is_moved and displacement.is_notable):
            out.notes.append(note)
    mended = mend(out, moved_back)
    mended.displacements = tuple(displacements)
    mended.unmeasured = tuple(unmeasured)
    mended.mended_mm = {displacement.name: displacement.size_mm for displacement in moved_back}
    return mended
