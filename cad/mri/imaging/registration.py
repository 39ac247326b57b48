"""Align a study's images to T2 rigidly, by mutual information.

The image that is aligned is called the moving image, and T2 the fixed image. The moving image is
not resampled. Only its origin and direction change, so that every voxel keeps its measured value.
Regions are then resampled from the grid of T2 to the moving image in its new place.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import SimpleITK as sitk
from skimage.feature import canny

from cad.base.errors import CadError, located
from cad.base.files import JsonObject
from cad.mri.imaging import geometry
from cad.mri.imaging.belonging import information
from cad.mri.imaging.geometry import resample_image
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Dynamic, Volume, triple

# Largest shift and rotation of a patient between two series. If the search finds a larger one, it
# has failed.
MAX_SHIFT_MM = 20.0
MAX_ANGLE_DEG = 15.0
# Two images are compared in the prostate and in this margin (mm) around it. Most of bladder, bowel
# and coil lies farther away.
MARGIN_MM = 20.0
_BINS = 32
# Least number of voxels that are compared. With fewer, a histogram of 32 x 32 bins says nothing of
# the mutual information.
_LEAST_COMPARED = 1000
_WORKING_MM = 1.5
_DIGITS = 7


@dataclass(frozen=True, eq=False)
class Registration:
    """Hold the result of one alignment.

    Parameters
    ----------
    name : str
        Image that was moved: ``adc`` or ``dce``.
    matrix : ndarray, shape (4, 4)
        Rigid transform that moves the image: old coordinates in the patient (LPS: left, back, head;
        mm) to new coordinates.
    before, after : float
        Mutual information (nats) of the two images in the compared region, in old and new place.
    accepted : bool
        False when the search found no better place, or moved the image farther than a patient
        moves. Then ``matrix`` is the identity matrix and ``after`` equals ``before``.
    note : str
        One sentence for the patient's page.
    moving : Volume
        The moving image, in its old place.
    shift_mm, angle_deg : float
        Displacement of the centre of the compared region (mm), and angle of the rotation (degrees);
        both 0 when the result is not accepted.
    """

    name: str
    matrix: np.ndarray
    before: float
    after: float
    accepted: bool
    note: str
    moving: Volume
    shift_mm: float = 0.0
    angle_deg: float = 0.0

    def apply(self, image: Volume) -> Volume:
        """Return a copy of an image in its new place: same voxels, other origin and direction."""
        return moved(image, self.matrix)


@dataclass(frozen=True, eq=False)
class RigidSearch:
    """Hold the result of a search for the best rigid transform, which may not be trustworthy.

    Parameters
    ----------
    matrix : ndarray, shape (4, 4)
        Rigid transform that moves the image: old coordinates in the patient (LPS: left, back, head;
        mm) to new coordinates.
    before, after : float
        Mutual information (nats) of the two images in the compared region, in old and new place.
    shift_mm, angle_deg : float
        Displacement of the centre of the compared region (mm), and angle of the rotation (degrees).
    """

    matrix: np.ndarray
    before: float
    after: float
    shift_mm: float
    angle_deg: float

    @property
    def plausible(self) -> bool:
        """Return whether the found shift and rotation are no larger than a patient moves between
        series.
        """
        return self.shift_mm <= MAX_SHIFT_MM and self.angle_deg <= MAX_ANGLE_DEG


def align_study(study: Study) -> tuple[Study, list[Registration]]:
    """Align a study's ADC and dynamic series (with its flip-angle images) to its T2 image.

    Parameters
    ----------
    study : Study
        Study with a T2 image; not changed. Images are compared around the gland mask or the
        regions, and without both in the middle of the T2 image.

    Returns
    -------
    aligned : Study
        Copy of the study with new origin and direction of ``adc``, ``dce`` and the images that move
        with them (:func:`moved_together`). Its notes say by how much each image was moved.
    registrations : list of Registration
        One for the ADC map and one for the dynamic series, as far as the study has them.

    Raises
    ------
    CadError
        Naming the patient, without a T2 image or where images do not overlap.
    """
    if study.t2w is None:
        raise CadError("registration needs a T2 image", patient=study.participant_id)
    region = neighbourhood(study, study.t2w)
    registrations: list[Registration] = []
    out = replace(study, notes=list(study.notes))
    with located(patient=study.participant_id):
        if study.adc is not None:
            aligned = register_rigid(study.adc, study.t2w, region, "adc")
            registrations.append(aligned)
            moved_together(out, "adc", aligned.apply)
        if study.dce is not None:
            aligned = register_rigid(dce_reference(study.dce), study.t2w, region, "dce")
            registrations.append(aligned)
            moved_together(out, "dce", aligned.apply)
    out.notes += [registration.note for registration in registrations]
    return out, registrations


def moved_together(study: Study, name: str, move: Callable[[Volume], Volume]) -> None:
    """Move an image of a study, in place, with all images and masks that belong to its series.

    Parameters
    ----------
    study : Study
        Changed. With ``adc`` its diffusion images move, and a high-b image on its grid. With
        ``dce`` the flip-angle images and the transmit field move, and a vessel mask or Ktrans map
        on its grid.
    name : str
        ``adc``, ``hbv``, ``dce`` or ``ktrans``.
    move : callable
        Takes an image and returns it in its new place.
    """
    if name == "adc" and study.adc is not None:
        # The diffusion images move with the ADC map, because they were acquired in the same minutes
        # as the images from which the map was made.
        study.diffusion = [(b_value, move(volume)) for b_value, volume in study.diffusion]
        if study.hbv is not None and study.hbv.same_grid(study.adc):
            study.hbv = move(study.hbv)
        study.adc = move(study.adc)
    if name == "hbv" and study.hbv is not None:
        study.hbv = move(study.hbv)
    if name == "ktrans" and study.ktrans is not None:
        study.ktrans = move(study.ktrans)
    if name == "dce" and study.dce is not None:
        # Grids are compared before the series itself is moved.
        if study.vessel is not None and study.vessel.same_grid(study.dce.grid):
            study.vessel = move(study.vessel)
        if study.ktrans is not None and study.ktrans.same_grid(study.dce.grid):
            study.ktrans = move(study.ktrans)
        study.vfa = [(angle, move(volume)) for angle, volume in study.vfa]
        study.b1 = None if study.b1 is None else move(study.b1)
        study.dce = replace(study.dce, grid=move(study.dce.grid))


def dce_reference(dynamic: Dynamic) -> Volume:
    """Return the image of a dynamic series that registration uses: the mean of its last third.

    In these frames the contrast agent has passed through the vessels for the first time, and the
    tissue holds contrast agent. The mean of many frames has little noise.

    Parameters
    ----------
    dynamic : Dynamic
        The series.
    """
    n_late = max(len(dynamic.frames) // 3, 1)
    late = dynamic.frames[-n_late:]
    return dynamic.grid.with_array(late.mean(axis=0, dtype=np.float32))


def register_rigid(
    moving: Volume, fixed: Volume, region: np.ndarray | None = None, name: str = "moving"
) -> Registration:
    """Find the rigid transform that brings ``moving`` in line with ``fixed``; neither is changed.

    The search maximises Mattes' estimate of mutual information by regular-step gradient descent, on
    two scales. All voxels of the region are used and none is drawn at random, so that the same
    images always give the same result.

    Parameters
    ----------
    moving, fixed : Volume
        Any grids; they may be tilted against each other.
    region : ndarray of bool, shape of ``fixed``, optional
        Where the images are compared; everywhere by default.
    name : str
        Name of the moving image in the result.

    Returns
    -------
    Registration
        The rigid transform of shape (4, 4) in patient coordinates (LPS, mm), mutual information
        before and after (nats), shift (mm), angle (degrees), and a note. If the transform is not
        accepted, the matrix is the identity.

    Raises
    ------
    CadError
        When the images do not overlap or one is constant.

    Examples
    --------
    The moving image holds the same blob 3 mm further to the left:

    >>> import numpy as np
    >>> z, y, x = np.indices((12, 24, 24))
    >>> blob = np.exp(-((z - 6) ** 2 + (y - 12) ** 2 + (x - 10) ** 2) / 30.0)
    >>> fixed = Volume(blob, (2.0, 2.0, 2.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> moving = Volume(blob, (2.0, 2.0, 2.0), (3.0, 0.0, 0.0), np.eye(3))
    >>> result = register_rigid(moving, fixed)
    >>> result.accepted, round(result.shift_mm), round(result.angle_deg)
    (True, 3, 0)
    >>> np.allclose(result.apply(moving).origin, 0.0, atol=0.5)
    True
    """
    search = search_rigid(moving, fixed, region, name)
    result = (
        f"{search.shift_mm:.1f} mm and {search.angle_deg:.1f} degrees, "
        f"mutual information {search.before:.3f} to {search.after:.3f}"
    )
    before = search.before
    if not search.plausible:
        note = f"{name} not moved: the search went {result}, beyond what is plausible"
    elif not search.after > before:
        note = f"{name} not moved: no better alignment found (mutual information {before:.3f})"
    else:
        note = f"{name} aligned to T2 by {result}"
        return Registration(
            name=name,
            matrix=search.matrix,
            before=before,
            after=search.after,
            accepted=True,
            note=note,
            moving=moving,
            shift_mm=search.shift_mm,
            angle_deg=search.angle_deg,
        )
    return Registration(
        name=name,
        matrix=np.eye(4),
        before=before,
        after=before,
        accepted=False,
        note=note,
        moving=moving,
    )


def search_rigid(
    moving: Volume, fixed: Volume, region: np.ndarray | None = None, name: str = "moving"
) -> RigidSearch:
    """Search for an alignment as :func:`register_rigid` does, and return the result without judging
    it.

    Parameters
    ----------
    moving, fixed : Volume
        Any grids; they may be tilted against each other.
    region : ndarray of bool, shape of ``fixed``, optional
        Where the images are compared; everywhere by default.
    name : str
        Name of the moving image in an error.

    Returns
    -------
    RigidSearch
        The rigid transform of shape (4, 4) in patient coordinates (LPS, mm), mutual information
        before and after (nats), shift of the compared region's centre (mm), and angle (degrees).

    Raises
    ------
    CadError
        When the images do not overlap or one is constant.

    Examples
    --------
    The moving image holds the same blob 3 mm further to the left:

    >>> import numpy as np
    >>> z, y, x = np.indices((12, 24, 24))
    >>> blob = np.exp(-((z - 6) ** 2 + (y - 12) ** 2 + (x - 10) ** 2) / 30.0)
    >>> fixed = Volume(blob, (2.0, 2.0, 2.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> moving = Volume(blob, (2.0, 2.0, 2.0), (3.0, 0.0, 0.0), np.eye(3))
    >>> search = search_rigid(moving, fixed)
    >>> search.matrix[:3, 3].round().tolist()[0], search.before < search.after
    (-3.0, True)
    """
    if not geometry.overlaps(moving, fixed):
        raise CadError(
            f"the {name} image and the T2 image do not overlap",
            hint="check that both belong to one study and one frame of reference",
        )
    target = _working_grid(fixed, region)
    # Mutual information depends on the compared voxels. It is therefore computed on the same voxels
    # before and after the alignment.
    where = _covered_voxels(target, fixed, region, moving)
    fixed_image = geometry.resample_image(fixed, target)
    before = image_information(fixed_image, geometry.resample_image(moving, target), where)
    transform = _search_transform(fixed_image, moving, where)
    # ITK's transform maps points of the fixed image (T2) to points of the moving image. The moving
    # image itself moves the opposite way.
    matrix = np.linalg.inv(_matrix(transform))
    in_new_place = geometry.resample_image(moved(moving, matrix), target)
    after = image_information(fixed_image, in_new_place, where)
    # The shift is that of the middle of the compared region. The translation in the matrix would
    # not do: for a rotation about a distant origin it is large.
    centre = target.centre
    moved_centre = (matrix @ np.append(centre, 1.0))[:3]
    shift_mm = float(np.linalg.norm(moved_centre - centre))
    # The angle of a rotation follows from the trace of its matrix R: trace R = 1 + 2 cos(angle).
    # By rounding, the cosine may lie a little beyond 1.
    cosine = np.clip((np.trace(matrix[:3, :3]) - 1) / 2, -1.0, 1.0)
    angle_deg = float(np.degrees(np.arccos(cosine)))
    return RigidSearch(matrix, before, after, shift_mm, angle_deg)


def covered_share(moving: Volume, fixed: Volume, region: np.ndarray | None = None) -> float:
    """Return the share (0 to 1) of the compared region that the moving image covers as it lies.

    Parameters
    ----------
    moving, fixed : Volume
        Any grids.
    region : ndarray of bool, shape of ``fixed``, optional
        Where the images are compared; everywhere by default.

    Examples
    --------
    The moving image begins in the middle of the fixed one:

    >>> import numpy as np
    >>> fixed = Volume(np.ones((8, 64, 64)), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> moving = Volume(np.ones((8, 64, 64)), (1.0, 1.0, 1.0), (32.0, 0.0, 0.0), np.eye(3))
    >>> covered_share(fixed, fixed), round(covered_share(moving, fixed), 1)
    (1.0, 0.5)
    """
    target = _working_grid(fixed, region)
    return float(np.isfinite(geometry.resample_image(moving, target).array).mean())


def shared_information(moving: Volume, fixed: Volume, region: np.ndarray | None = None) -> float:
    """Return the mutual information (nats) of two images, neither of which is moved.

    Parameters
    ----------
    moving, fixed : Volume
        Any grids.
    region : ndarray of bool, shape of ``fixed``, optional
        Where the images are compared; everywhere by default.

    Raises
    ------
    CadError
        When the images do not overlap or one is constant.

    Examples
    --------
    An image tells less about its copy once the copy lies 4 mm aside:

    >>> import numpy as np
    >>> z, y, x = np.indices((12, 24, 24))
    >>> blob = np.exp(-((z - 6) ** 2 + (y - 12) ** 2 + (x - 10) ** 2) / 30.0)
    >>> fixed = Volume(blob, (2.0, 2.0, 2.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> aside = Volume(blob, (2.0, 2.0, 2.0), (4.0, 0.0, 0.0), np.eye(3))
    >>> shared_information(aside, fixed) < shared_information(fixed, fixed)
    True
    """
    target = _working_grid(fixed, region)
    where = _covered_voxels(target, fixed, region, moving)
    fixed_image = geometry.resample_image(fixed, target)
    return image_information(fixed_image, geometry.resample_image(moving, target), where)


def image_information(a: Volume, b: Volume, where: np.ndarray) -> float:
    """Return the mutual information (nats) of two images, from 32 x 32 bins.

    The bins of an image lie between its 1st and 99th percentile in the compared voxels.

    Parameters
    ----------
    a, b : Volume
        Images on the same grid; voxels where either is NaN are left out.
    where : ndarray of bool
        True in the voxels to compare.

    Raises
    ------
    CadError
        When no voxel is left, or one image is constant there.

    Examples
    --------
    An image tells everything about itself: log 2 for one of two equally frequent values. It tells
    nothing about an image whose values are spread evenly over its own values.

    >>> import numpy as np
    >>> rows = np.array([[[0.0, 0.0], [1.0, 1.0]]])
    >>> a = Volume(rows, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> b = a.with_array(rows.transpose(0, 2, 1))
    >>> where = np.ones((1, 2, 2), bool)
    >>> round(image_information(a, a, where), 3), round(image_information(a, b, where), 3)
    (0.693, 0.0)
    """
    both = where & np.isfinite(a.array) & np.isfinite(b.array)
    if not both.any():
        raise CadError("the images share no voxel in the region that is compared")
    clipped = []
    for image in (a, b):
        values = image.array[both].astype(float)
        # The lowest and highest percent of the values are cut off. Otherwise, with one bright
        # vessel, nearly all other values would fall into two of the 32 bins.
        low, high = np.percentile(values, (1, 99))
        if not high > low:
            raise CadError(f"an image is constant ({low:g}) in the region that is compared")
        clipped.append(np.clip((values - low) / (high - low), 0.0, 1.0))
    joint, _, _ = np.histogram2d(clipped[0], clipped[1], bins=_BINS, range=[[0.0, 1.0], [0.0, 1.0]])
    return information(joint)


def neighbourhood(study: Study, fixed: Volume) -> np.ndarray:
    """Return the voxels that registration compares: a box with a margin around the gland.

    Parameters
    ----------
    study : Study
        Study with a gland mask; without one the box is around its regions.
    fixed : Volume
        The image that stays in place. The result has its grid; its values are not read.

    Returns
    -------
    ndarray of bool, shape of ``fixed``
        True in the box; without gland and regions, in the middle of the grid.
    """
    for mask in (study.gland, study.roi_map):
        if mask is None:
            continue
        margin_voxels = np.ceil(MARGIN_MM / np.array(fixed.spacing[::-1])).astype(int)
        mask_on_grid = geometry.resample_mask(mask, fixed).array
        box = geometry.bounding_box(mask_on_grid, margin_voxels)
        if box is not None:  # None: the mask is empty, or lies outside of the image
            break
    else:
        # Without gland and regions, the middle half of the rows and columns is compared, on all
        # slices. An image of the prostate has few slices, but a wide field of view.
        middle = np.array([0, fixed.shape[1] // 4, fixed.shape[2] // 4])
        box = geometry.box_between(middle, fixed.shape - middle, fixed.shape)
    region = np.zeros(fixed.shape, bool)
    region[box] = True
    return region


def _working_grid(fixed: Volume, region: np.ndarray | None) -> Volume:
    """Return the part of the fixed grid around the region, with voxels of at least 1.5 mm."""
    box = geometry.bounding_box(np.ones(fixed.shape, bool) if region is None else region)
    if box is None:
        raise ValueError("the region is empty")
    low, high = geometry.limits(box[::-1])  # in voxels along x, y, z; the box has z first
    # Finer voxels than _WORKING_MM would tell no more about motion, and would take more time at
    # each step of the search.
    spacing = np.maximum(fixed.spacing, _WORKING_MM)
    count = np.maximum(np.floor((high - low) * fixed.spacing / spacing).astype(int), 1)
    grid = fixed.beginning_at(np.zeros(count[::-1], np.float32), low)
    return replace(grid, spacing=triple(spacing))


def _covered_voxels(
    target: Volume, fixed: Volume, region: np.ndarray | None, moving: Volume
) -> np.ndarray:
    """Return which voxels of ``target`` lie in the region and in both images, boolean.

    Neither image is moved. If too few voxels are left, an error is raised.
    """
    covered: np.ndarray = np.isfinite(geometry.resample_image(moving, target).array)
    covered &= np.isfinite(geometry.resample_image(fixed, target).array)
    if region is not None:
        covered &= np.asarray(geometry.resample_mask(fixed.with_array(region), target).array, bool)
    if covered.sum() < _LEAST_COMPARED:
        raise CadError(
            f"only {int(covered.sum())} voxels of the region are covered by both images",
            hint="check the field of view of the series",
        )
    return covered


def _search_transform(fixed: Volume, moving: Volume, where: np.ndarray) -> sitk.Euler3DTransform:
    """Return the rigid transform of points of ``fixed`` to points of ``moving`` that fits best.

    ``where`` is a mask of the voxels of ``fixed`` that are compared.
    """
    # ITK cannot compute with NaN, which stands where an image has no value.
    fixed_image = sitk.Cast(
        fixed.with_array(np.nan_to_num(fixed.array)).to_sitk(), sitk.sitkFloat32
    )
    moving_image = moving.with_array(np.nan_to_num(moving.array.astype(np.float32))).to_sitk()
    transform = sitk.Euler3DTransform()
    # The rotation is about the middle of the fixed image. Rotation and translation are then
    # independent in the search.
    transform.SetCenter(triple(fixed.centre))
    method = descent(fixed.with_array(where), transform, step_mm=2.0, iterations=100, fine_mm=1.0)
    try:
        method.Execute(fixed_image, moving_image)  # changes the transform in place
    except RuntimeError as error:
        raise CadError(f"registration failed: {str(error).splitlines()[-1]}") from error
    # The parameters are rounded to _DIGITS decimals, so that differences in their last bits do not
    # change the result.
    transform.SetParameters([round(value, _DIGITS) for value in transform.GetParameters()])
    return transform


def descent(
    where: Volume, start: sitk.Transform, *, step_mm: float, iterations: int, fine_mm: float
) -> sitk.ImageRegistrationMethod:
    """Return an object that searches for the largest mutual information of two images.

    The search uses Mattes' estimate on one thread without random sampling, so that the same images
    always give the same result. The first scale takes every second voxel along each axis, smoothed
    by 2 mm; the second takes all voxels.

    Parameters
    ----------
    where : Volume
        Boolean, on the fixed image's grid: voxels that are compared.
    start : Transform
        Maps points of the fixed image to points of the moving image; the search changes it in
        place.
    step_mm : float
        First step of the descent.
    iterations : int
        Largest number of steps at each scale.
    fine_mm : float
        Smoothing (mm) at the second scale.
    """
    method = sitk.ImageRegistrationMethod()
    method.SetNumberOfThreads(1)
    method.SetMetricAsMattesMutualInformation(_BINS)
    method.SetMetricSamplingStrategy(method.NONE)
    method.SetMetricFixedMask(where.to_sitk())
    method.SetInterpolator(sitk.sitkLinear)
    # Each time the descent turns back, its step becomes .6 of what it was. It ends once the step
    # is shorter than ``minStep``.
    method.SetOptimizerAsRegularStepGradientDescent(
        learningRate=step_mm, minStep=0.01, numberOfIterations=iterations, relaxationFactor=0.6
    )
    # A rotation by one radian moves the edge of an image much farther than a translation by one
    # millimetre does. Steps of rotation and translation are therefore scaled by how far they move
    # voxels.
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetShrinkFactorsPerLevel([2, 1])
    method.SetSmoothingSigmasPerLevel([2.0, fine_mm])
    method.SmoothingSigmasAreSpecifiedInPhysicalUnitsOn()
    method.SetInitialTransform(start, inPlace=True)
    return method


def _matrix(transform: sitk.Euler3DTransform) -> np.ndarray:
    """Return the 4 x 4 matrix of a rigid transform that rotates about its own centre."""
    rotation = np.array(transform.GetMatrix()).reshape(3, 3)
    centre = np.array(transform.GetCenter())
    matrix = np.eye(4)
    # A point p goes to R (p - centre) + centre + translation.
    matrix[:3, :3] = rotation
    matrix[:3, 3] = np.array(transform.GetTranslation()) + centre - rotation @ centre
    return matrix


def moved(image: Volume, matrix: np.ndarray) -> Volume:
    """Return an image in another place: same voxels, other origin and direction.

    Parameters
    ----------
    image : Volume
        Not changed.
    matrix : ndarray, shape (4, 4)
        Rigid transform of old coordinates in the patient (LPS: left, back, head; mm) to new
        coordinates.

    Examples
    --------
    The image is moved ten millimetres to the patient's left:

    >>> import numpy as np
    >>> image = Volume(np.zeros((1, 2, 2)), (1.0, 1.0, 1.0), (5.0, 0.0, 0.0), np.eye(3))
    >>> matrix = np.eye(4)
    >>> matrix[0, 3] = 10.0
    >>> moved(image, matrix).origin
    (15.0, 0.0, 0.0)
    """
    new_origin = (matrix @ np.append(image.origin, 1.0))[:3]
    rotation = matrix[:3, :3]
    return replace(
        image, origin=triple(new_origin), direction=rotation @ np.asarray(image.direction)
    )


# The patient's page shows an alignment by the edges of T2, drawn over the image that was moved. A
# checkerboard of both images would show little, because their contrasts differ too much.
EDGE_SCALE_MM = 1.4
# Shares of the voxels whose gradient is too weak: for a voxel beside an edge, and for a voxel with
# which an edge begins.
EDGE_SHARE = (0.80, 0.93)


def registration_view(
    registration: Registration, fixed: Volume, z: int
) -> tuple[JsonObject, np.ndarray]:
    """Return numbers and pictures of one alignment, for the patient's page.

    Parameters
    ----------
    registration : Registration
        The alignment.
    fixed : Volume
        The T2 image on the display grid.
    z : int
        Slice of ``fixed`` to draw.

    Returns
    -------
    numbers : dict
        Fields of the registration, under these keys: ``moving, before, after, translation_mm,
        rotation_deg, accepted, note``.
    pictures : ndarray of uint8, shape (3, H, W)
        The moving image in its old place, in its new place, and the edges of T2 (255, else 0).
    """
    # The drawn slice as an image of its own, to which both places of the moving image are
    # interpolated.
    slab = fixed.beginning_at(fixed.array[z : z + 1], np.array([0.0, 0.0, float(z)]))
    old_and_new = (registration.moving, registration.apply(registration.moving))
    slices = [resample_image(image, slab).array[0] for image in old_and_new]
    low, high = _grey_range(np.stack(slices))  # one range, so that both pictures compare
    pictures = [_scaled_grey(image, low, high) for image in slices]
    edges = canny(
        np.nan_to_num(slab.array[0].astype(float)),
        sigma=EDGE_SCALE_MM / min(fixed.spacing[:2]),
        low_threshold=EDGE_SHARE[0],
        high_threshold=EDGE_SHARE[1],
        use_quantiles=True,
    )
    edge_picture = np.where(edges, 255, 0).astype(np.uint8)
    numbers = {
        "moving": registration.name,
        "before": round(registration.before, 4),
        "after": round(registration.after, 4),
        "translation_mm": round(registration.shift_mm, 2),
        "rotation_deg": round(registration.angle_deg, 2),
        "accepted": registration.accepted,
        "note": registration.note,
    }
    return numbers, np.stack([*pictures, edge_picture])


def _grey_range(array: np.ndarray) -> tuple[float, float]:
    """Return the values that a picture shows as black and as white.

    A few very bright or dark voxels do not set them.
    """
    finite = array[np.isfinite(array)].astype(float)
    if not finite.size:
        return 0.0, 1.0
    low, high = np.percentile(finite, (1, 99.5))
    # In a constant image both are one value, and grey levels are divided by their difference.
    return float(low), float(max(high, low + 1e-6))


def _scaled_grey(array: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return grey levels from 0 (values up to ``low``) to 255 (values from ``high`` on).

    The level is 0 where the image has no value.
    """
    share = (np.clip(array.astype(float), low, high) - low) / (high - low)
    return np.asarray(np.nan_to_num(np.rint(255 * share)), np.uint8)
