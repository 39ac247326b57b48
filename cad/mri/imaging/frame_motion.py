"""Find the patient's motion between the frames of a dynamic series, and shift the frames back.

Every frame is compared with the mean of late frames, in which tissue holds contrast agent. They are
compared by their mutual information, which tolerates that contrast agent changes the signal. The
frame is then shifted within its slices to the place of the first frames, just before which the
flip-angle images were taken. No motion across slices is searched for, because slices are thicker
than this motion. A search across slices found motion of up to 3 mm where there was none.

The alignment to T2 (:mod:`cad.mri.imaging.registration`) changes only the geometry of a whole
series. Here all frames must stay on one grid. Shifted frames are therefore interpolated, by cubic
splines, which keep details.
"""

from dataclasses import replace

import numpy as np
import SimpleITK as sitk

from cad.base.errors import CadError, located
from cad.mri.imaging import registration
from cad.mri.imaging.geometry import resample_image
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Dynamic, Volume, triple

# A frame that moved by less than this (mm) is left in its place, because the search is hardly more
# accurate than this.
_LEAST_MM = 0.5
# Number of first frames, which have no contrast agent yet. The other frames are shifted to the
# place of these frames.
_N_FIRST = 3
# Number of searches. Each frame is compared with the mean of late frames. In the first search this
# mean is blurred by motion; in the second it is the mean of frames that the first search has
# aligned.
_PASSES = 2
_DIGITS = 4  # decimals of a shift (mm), so that differences in its last bits have no effect


def still_frames(study: Study) -> tuple[Dynamic, np.ndarray, str]:
    """Return a study's dynamic series with its frames shifted so that the patient lies still.

    Parameters
    ----------
    study : Study
        Study with a dynamic series. Frames are compared around its gland mask or its regions.

    Returns
    -------
    dynamic : Dynamic
        float32. A frame that is not shifted keeps its values. In a shifted frame, voxels for which
        the shift takes no value from inside the image keep their old values.
    shift_mm : ndarray, shape (n_times, 3)
        Shift of each frame (mm) along the axes x, y, z of the grid. The shift along z is always 0,
        and a frame that was left in place has 0.
    note : str
        One sentence for the patient's page.

    Raises
    ------
    CadError
        Naming the patient, without a dynamic series or where frames cannot be compared.
    """
    if study.dce is None:
        raise CadError("the study has no dynamic series", patient=study.participant_id)
    with located(patient=study.participant_id):
        return _still(study.dce, registration.neighbourhood(study, study.dce.grid))


def _still(dynamic: Dynamic, region: np.ndarray) -> tuple[Dynamic, np.ndarray, str]:
    """Return the series, the shifts and the note that :func:`still_frames` returns.

    ``region`` is a mask of the voxels in which frames are compared.
    """
    # The search uses the coordinates of the grid (mm) and not those of the patient. The first two
    # axes then lie in the slice, even if the slice is tilted in the patient.
    flat = replace(dynamic.grid, origin=(0.0, 0.0, 0.0), direction=np.eye(3))
    frames = [flat.with_array(frame.astype(np.float32)) for frame in dynamic.frames]
    shifts = np.zeros((len(frames), 3))
    shifted_frames = frames
    for _ in range(_PASSES):
        arrays = np.stack([frame.array for frame in shifted_frames])
        late = registration.dce_reference(replace(dynamic, frames=arrays, grid=flat))
        shifts_to_late = []
        for frame, start in zip(frames, shifts, strict=True):
            shifts_to_late.append(_shift(late, frame, region, start))
        # Shifts towards the late frames become shifts towards the first frames.
        measured = np.stack(shifts_to_late)
        measured -= np.median(measured[:_N_FIRST], axis=0)
        # A short shift may be an error of the search, and a very long one is no patient's motion.
        length = np.linalg.norm(measured, axis=1, keepdims=True)
        is_plausible = (length >= _LEAST_MM) & (length <= registration.MAX_SHIFT_MM)
        shifts = np.where(is_plausible, measured, 0.0)
        shifted_frames = []
        for frame, shift in zip(frames, shifts, strict=True):
            shifted_frames.append(_shifted(frame, shift))

    # The frames are shifted only if they then fit the late frames better.
    before = _mean_information(late, frames, region)
    after = _mean_information(late, shifted_frames, region)
    if not after > before:
        note = "no motion found between the frames of the dynamic series"
        return dynamic, np.zeros_like(shifts), note
    array = np.stack([frame.array for frame in shifted_frames])
    still = replace(dynamic, frames=array, grid=dynamic.grid.with_array(array[0]))
    n_shifted = int(shifts.any(axis=1).sum())
    largest_mm = np.linalg.norm(shifts, axis=1).max()
    note = (
        f"{n_shifted} of {len(frames)} frames of the dynamic series shifted by up to "
        f"{largest_mm:.1f} mm, mutual information with the late frames {before:.3f} to {after:.3f}"
    )
    return still, shifts, note


def _mean_information(late: Volume, frames: list[Volume], region: np.ndarray) -> float:
    """Return the mutual information (nats) of the late frames and a frame, as mean over frames."""
    return float(np.mean([registration.image_information(late, frame, region) for frame in frames]))


def _shift(fixed: Volume, moving: Volume, region: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return the shift (mm) along x, y, z that brings a frame in line with ``fixed``; z is 0.

    The search begins with the shift ``start``.
    """
    transform = sitk.TranslationTransform(3, [float(component) for component in -start])
    where = fixed.with_array(region)
    method = registration.descent(where, transform, step_mm=1.0, iterations=60, fine_mm=0.0)
    method.SetOptimizerWeights([1.0, 1.0, 0.0])  # weight 0: no motion across slices is searched for
    try:
        method.Execute(fixed.to_sitk(), moving.to_sitk())
    except RuntimeError as error:
        raise CadError(f"frames cannot be compared: {str(error).splitlines()[-1]}") from error
    # The transform, which the search has changed in place, maps points of ``fixed`` to points of
    # ``moving``. The frame has to be shifted the opposite way.
    return np.asarray(-np.round(np.array(transform.GetOffset()), _DIGITS))


def _shifted(frame: Volume, shift_mm: np.ndarray) -> Volume:
    """Return a frame on its old grid, with its content shifted along x, y, z."""
    if not shift_mm.any():  # interpolation would change even a frame that stays in its place
        return frame
    in_new_place = replace(frame, origin=triple(np.array(frame.origin) + shift_mm))
    values = resample_image(in_new_place, frame, "cubic").array
    # Cubic splines may swing below 0 beside an edge, and a signal is never negative.
    values = np.where(np.isfinite(values), np.maximum(values, 0.0), frame.array)
    return frame.with_array(values)
