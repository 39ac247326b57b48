"""Standardise T2, which has no absolute scale, so that intensities of patients can be compared.

Three methods work on each patient alone: none, z-score, and reference tissue. Nyul's
piecewise-linear histogram mapping works across patients, and is fitted to training patients only.
It needs only the percentiles of each patient (:func:`landmarks`). The fit for a fold of a
validation is therefore a mean over the rows of its training patients. The ``key`` of the fit is the
key under which the features of this fold are cached (docs/methods.md 7). Before standardisation,
the method N4 removes the bias field, which is the smooth intensity field of the coil.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import SimpleITK as sitk

from cad.base.errors import CadError, located
from cad.base.settings import ImageSettings
from cad.mri.imaging.geometry import bounding_box, resample_mask
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Volume

# Percentiles of an image that Nyul's method maps to a standard scale (Nyul et al., IEEE Trans Med
# Imaging 19 (2000) 143): the nine deciles, and the percentiles 1 and 99 at both ends.
PERCENTILES = (1.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 99.0)
# Share of the image's 99th percentile above which a voxel belongs to the foreground, that is the
# body. Air lies below it. Muscle on T2 lies above it, at about a twentieth of the 99th percentile.
_FOREGROUND = 0.03
# Edges of a box around the regions (mm along the image's axes). If there is no gland mask, T2 is
# scaled by the tissue in this box. The gland with its rim fits into the box, and the box fits into
# any useful field of view.
BOX_MM = (60.0, 60.0, 30.0)
# Interquartile range of a normal distribution divided by its standard deviation.
_IQR_OF_NORMAL = 1.349
_N4_SHRINK_MM = 4.0  # size of the voxels on which the bias field is fitted
_N4_ITERATIONS = (30, 30, 20)  # at each scale of the fit
# The histogram in which muscle is looked for: number of bins, percentile of the foreground at which
# it ends, and standard deviation (bins) of the smoothing.
_HISTOGRAM_BINS = 256
_HISTOGRAM_TOP = 90.0
_HISTOGRAM_SMOOTHING = 5.0
# A maximum counts if it has at least this share of the foreground's highest count.
_CLEAR_MAXIMUM = 0.25
# A place this little outside of a box (mm) counts as inside, so that the last digit of a position
# in a header does not decide.
_BOX_ROUNDING_MM = 1e-3


@dataclass(frozen=True, eq=False)
class NyulScale:
    """Hold the standard T2 histogram of a set of training patients (Nyul's method).

    Parameters
    ----------
    landmarks : ndarray, shape (11,)
        Standard intensities of the percentiles 1, 10, 20, ..., 90, 99; the first is 0, the last 1.
    """

    landmarks: np.ndarray

    @classmethod
    def fit(cls, patients: np.ndarray) -> NyulScale:
        """Fit the standard scale to the training patients' landmarks.

        Parameters
        ----------
        patients : ndarray, shape (n_patients, 11)
            One row per training patient: the T2 image's intensities at the percentiles, from
            :func:`landmarks`.

        Returns
        -------
        NyulScale
            The scale: 11 intensities without unit, from 0 at percentile 1 to 1 at percentile 99.
            They are means over patients.

        Raises
        ------
        CadError
            Without patients, or for a patient whose landmarks do not increase.
        """
        rows = np.atleast_2d(np.asarray(patients, float))
        if not rows.size or rows.shape[1] != len(PERCENTILES):
            raise CadError(
                f"Nyul landmarks have shape (n_patients, {len(PERCENTILES)}), found {rows.shape}"
            )
        for row in rows:
            _check_landmarks(row)
        # The landmarks are intensities at 11 percentiles. Those of each patient are first scaled to
        # the range 0 to 1, so that the gain of the scanner has no effect on the mean.
        first = rows[:, :1]
        last = rows[:, -1:]
        scaled = (rows - first) / (last - first)
        return cls(scaled.mean(axis=0))

    @property
    def key(self) -> str:
        """Return the SHA-256 of the landmarks, which is the cache key of features on this scale."""
        return hashlib.sha256(np.ascontiguousarray(self.landmarks, "<f8").tobytes()).hexdigest()

    def transform(self, image: Volume, of_image: np.ndarray | None = None) -> Volume:
        """Map an image's intensities to the standard scale by the image's percentiles; float32.

        The image's 11 landmarks go to the 11 intensities of the training patients' standard
        histogram. The map is linear between two landmarks; below the first and above the last, the
        nearest segment is continued.

        Parameters
        ----------
        image : Volume
            T2-weighted image.
        of_image : ndarray, shape (11,), optional
            The image's :func:`landmarks`; by default they are computed from ``image``. When
            ``image`` is only a part of an image, give the landmarks of the whole image.

        Returns
        -------
        Volume of float32
            The image on the same grid, in units of the standard scale: mostly 0 to 1, and beyond
            for voxels outside the percentiles 1 to 99. NaN stays NaN.
        """
        of_image = landmarks(image) if of_image is None else of_image
        values = image.array.astype(float)
        # interp() gives all values beyond an end the value of the end. There the nearest segment,
        # between the landmarks ``end`` and ``inner``, is continued instead.
        out = np.interp(values, of_image, self.landmarks)
        for end, inner in ((0, 1), (-1, -2)):
            rise = self.landmarks[end] - self.landmarks[inner]
            slope = rise / (of_image[end] - of_image[inner])
            beyond = values < of_image[0] if end == 0 else values > of_image[-1]
            out[beyond] = self.landmarks[end] + slope * (values[beyond] - of_image[end])
        return image.with_array(out.astype(np.float32))


def landmarks(image: Volume, mask: np.ndarray | None = None) -> np.ndarray:
    """Return the 11 intensity percentiles of an image that Nyul's histogram mapping uses.

    Parameters
    ----------
    image : Volume
        T2-weighted image.
    mask : ndarray of bool, optional
        Voxels whose intensities count; by default the image's foreground.

    Returns
    -------
    ndarray, shape (11,)
        Intensities at the percentiles 1, 10, 20, ..., 90 and 99 (``PERCENTILES``).

    Raises
    ------
    CadError
        When the percentiles do not increase.

    Examples
    --------
    >>> import numpy as np
    >>> array = np.arange(1000.0).reshape(10, 10, 10)
    >>> image = Volume(array, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> landmarks(image).shape
    (11,)
    """
    inside = foreground(image) if mask is None else mask
    levels: np.ndarray = np.percentile(image.array[inside], PERCENTILES)
    _check_landmarks(levels)
    return levels


def standardise_t2(
    study: Study, settings: ImageSettings, scale: NyulScale | None = None
) -> tuple[Volume, str, float]:
    """Return the study's T2 image, bias-corrected and standardised as the settings say.

    Parameters
    ----------
    study : Study
        Study with ``t2w``, and with the gland mask or regions where the settings scale T2 by them.
    settings : ImageSettings
        ``t2_standardisation``, ``t2_reference`` and ``bias_correction``.
    scale : NyulScale, optional
        Needed for ``nyul``: fitted on the training patients.

    Returns
    -------
    image : Volume
        float32, on the grid of the study's ``t2w``.
    reference : str
        Voxels or tissue that the scale comes from: ``gland``, ``regions``, ``image``, ``muscle``,
        ``cohort`` or ``none``.
    level : float
        Median of the stored T2 values. It is taken in the gland, or in the box about the regions
        (:func:`around_regions`), where one of these is the reference; else in the foreground.

    Raises
    ------
    CadError
        Naming the patient: no T2 image, a constant image, no Nyul scale, or no gland mask where the
        settings need one.
    """
    with located(patient=study.participant_id):
        image = prepared_t2(study, settings)
        reference, mask = _tissue_of_reference(study, image, settings)
        # ``level`` is the median of the values in the file, before standardisation, so that it
        # shows the gain of the scanner.
        stored = study.t2w or image
        inside = foreground(stored) if mask is None else mask
        level = float(np.median(stored.array[inside]))
        if settings.t2_standardisation == "zscore":
            # A box about the regions has more than the gland in it, such as the bladder.
            image = zscore(image, mask, robust=reference == "regions")
        elif settings.t2_standardisation == "reference":
            image = reference_tissue(image)
        elif settings.t2_standardisation == "nyul":
            if scale is None:
                raise CadError(
                    "Nyul standardisation needs a scale fitted on training patients",
                    hint="fit NyulScale on their landmarks, or choose zscore",
                )
            image = scale.transform(image)
    return image, reference, level


def prepared_t2(study: Study, settings: ImageSettings) -> Volume:
    """Return a study's T2 image in float32, before standardisation.

    The bias field is removed where ``settings.bias_correction`` is set. :func:`landmarks` are
    computed from this image.
    """
    if study.t2w is None:
        raise CadError("the study has no T2 image", patient=study.participant_id)
    image = study.t2w.with_array(study.t2w.array.astype(np.float32))
    if not settings.bias_correction:
        return image
    # An interpolated image is NaN outside its field of view. The bias correction N4 needs numbers,
    # so that these voxels become 0, like air.
    return correct_bias(image.with_array(np.nan_to_num(image.array)))


def _tissue_of_reference(
    study: Study, image: Volume, settings: ImageSettings
) -> tuple[str, np.ndarray | None]:
    """Return the name of the tissue that sets the T2 scale, and its mask.

    The mask is None if the whole foreground (the body) sets the scale.
    """
    # These standardisations look for their reference themselves; only the z-score needs a mask.
    reference_of_method = {"none": "none", "reference": "muscle", "nyul": "cohort"}
    if settings.t2_standardisation in reference_of_method:
        return reference_of_method[settings.t2_standardisation], None
    # "auto" takes the gland, without one the regions, and without these the whole image.
    if settings.t2_reference in ("gland", "auto"):
        gland = None if study.gland is None else resample_mask(study.gland, image).array
        if gland is not None and gland.any():
            return "gland", gland
        if settings.t2_reference == "gland":
            raise CadError(
                "T2 is to be scaled over the gland, and the study has no usable gland mask",
                hint="add masks/*_gland.nii.gz, or set images.t2_reference: regions for all",
            )
    regions = study.roi_union
    if settings.t2_reference == "image" or regions is None:
        return "image", None
    return "regions", around_regions(regions, image)


def around_regions(regions: Volume, image: Volume) -> np.ndarray:
    """Return where an image shows tissue in a box about the centre of mass of a mask.

    Voxels outside of the box are not read, so that the size of the field of view has no effect.

    Parameters
    ----------
    regions : Volume
        The mask.
    image : Volume
        Image whose grid is used. The box measures 60 x 60 x 30 mm (:data:`BOX_MM`) along its axes.

    Returns
    -------
    ndarray of bool, shape of the image
        True for the voxels in the box that are not air.

    Raises
    ------
    CadError
        For an empty mask, or a box without tissue.
    """
    voxels = np.argwhere(regions.array)
    if not len(voxels):
        raise CadError("T2 is to be scaled about the regions, and there are none")
    centre = image.patient_to_index(regions.index_to_patient(voxels.mean(axis=0)[::-1]))
    inside = np.ones(image.shape, bool)
    for axis, (edge, step, middle) in enumerate(zip(BOX_MM, image.spacing, centre, strict=True)):
        array_axis = 2 - axis  # the axes of an array are z, y, x
        index = np.arange(image.shape[array_axis])
        is_near = np.abs(index - middle) * step <= edge / 2 + _BOX_ROUNDING_MM
        shape_along_axis = [1, 1, 1]
        shape_along_axis[array_axis] = -1
        inside &= is_near.reshape(shape_along_axis)  # holds for all voxels of the other axes
    box = bounding_box(inside)
    if box is None:
        raise CadError("the regions lie outside the T2 image: no scale can be taken around them")
    # The foreground (the body without air) is found from the values in the box alone. The 99th
    # percentile of the whole image would depend on the field of view.
    inside[box] = foreground(image.with_array(image.array[box]))
    return inside


def zscore(image: Volume, mask: np.ndarray | None = None, *, robust: bool = False) -> Volume:
    """Return the z-score of an image: (value - mean) / standard deviation; float32.

    Parameters
    ----------
    image : Volume
        T2-weighted image.
    mask : ndarray of bool, optional
        Voxels of which mean and standard deviation are taken; by default the foreground.
    robust : bool
        Use the median and the interquartile range (scaled to a standard deviation) instead of mean
        and standard deviation. Bright bladder or fat in the mask changes median and interquartile
        range less than mean and standard deviation.

    Raises
    ------
    CadError
        For an image that is constant in the mask.

    Examples
    --------
    >>> import numpy as np
    >>> image = Volume(np.arange(8.0).reshape(2, 2, 2), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> standard = zscore(image, np.ones((2, 2, 2), bool)).array
    >>> bool(abs(standard.mean()) < 1e-6), bool(abs(standard.std() - 1) < 1e-6)
    (True, True)
    """
    inside = foreground(image) if mask is None else mask
    values = image.array[inside].astype(float)
    if robust:
        low, middle, high = np.percentile(values, (25, 50, 75))
        spread = (high - low) / _IQR_OF_NORMAL
    else:
        middle = values.mean()
        spread = values.std()
    # The condition is written with "not", so that a spread of NaN is refused as well.
    if not spread > 0:
        raise CadError(
            f"the image is constant ({middle:g}) where its scale is taken",
            hint="check the series; a constant image has no z-score",
        )
    return image.with_array(((image.array - middle) / spread).astype(np.float32))


def reference_tissue(image: Volume) -> Volume:
    """Divide a T2-weighted image by the intensity of muscle; return it as float32.

    Muscle is the darkest large tissue on T2; :func:`muscle_level` finds its intensity.
    """
    level = muscle_level(image)
    if not level > 0:
        raise CadError(f"the reference tissue has intensity {level:g}; it must be positive")
    return image.with_array((image.array / level).astype(np.float32))


def muscle_level(image: Volume) -> float:
    """Return the intensity of muscle: the lowest clear maximum of the histogram above air.

    Without such a maximum, the median of the foreground is returned.
    """
    inside = foreground(image)
    top = float(np.percentile(image.array[inside], _HISTOGRAM_TOP))
    finite = image.array[np.isfinite(image.array)]
    counts, edges = np.histogram(finite, bins=_HISTOGRAM_BINS, range=(0.0, top))
    # Scanners round values to integers, which leaves empty bins in the histogram. Smoothing over
    # some bins fills them, by a normal distribution that is cut off at three standard deviations.
    kernel = np.exp(-0.5 * (np.arange(-15, 16) / _HISTOGRAM_SMOOTHING) ** 2)
    smooth = np.convolve(counts, kernel / kernel.sum(), mode="same")
    centres = (edges[:-1] + edges[1:]) / 2
    # A maximum of the histogram below the foreground is that of air and its noise.
    in_body = centres > image.array[inside].min()
    is_maximum = np.zeros(len(centres), bool)
    is_maximum[1:-1] = (smooth[1:-1] > smooth[:-2]) & (smooth[1:-1] >= smooth[2:])
    is_clear = smooth >= _CLEAR_MAXIMUM * smooth[in_body].max()
    maxima = centres[is_maximum & in_body & is_clear]
    if not len(maxima):
        return float(np.median(image.array[inside]))
    return float(maxima[0])


def foreground(image: Volume) -> np.ndarray:
    """Return a mask of the body: voxels above 3 % of the image's 99th percentile."""
    finite = np.isfinite(image.array)
    if not finite.any():
        raise CadError("the image holds no number")
    top = float(np.percentile(image.array[finite], 99))
    inside: np.ndarray = finite & (image.array > _FOREGROUND * top)
    if not inside.any():
        raise CadError(f"the image has no foreground (99th percentile {top:g})")
    return inside


def correct_bias(image: Volume) -> Volume:
    """Return an image without the smooth intensity field of the coil, which the method N4 finds.

    Parameters
    ----------
    image : Volume
        Positive intensities; the field is fitted to the foreground.

    Returns
    -------
    Volume
        float32: the image divided by the field. The geometric mean of the field over the foreground
        is 1.

    References
    ----------
    Tustison et al., IEEE Trans Med Imaging 29 (2010) 1310.
    """
    inside = foreground(image)
    full = image.with_array(image.array.astype(np.float32)).to_sitk()
    mask = image.with_array(inside).to_sitk()
    # The bias field is smooth. It is therefore fitted on voxels of about 4 mm, and then evaluated
    # on all voxels. At least four voxels are left along each axis.
    factors = []
    for spacing, n_voxels in zip(image.spacing, image.shape[::-1], strict=True):
        factor = min(round(_N4_SHRINK_MM / spacing), n_voxels // 4)
        factors.append(int(max(1, factor)))
    n4 = sitk.N4BiasFieldCorrectionImageFilter()
    n4.SetMaximumNumberOfIterations(list(_N4_ITERATIONS))
    n4.SetNumberOfThreads(1)  # sums over several threads differ from run to run
    n4.Execute(sitk.Shrink(full, factors), sitk.Shrink(mask, factors))
    log_field = sitk.GetArrayFromImage(n4.GetLogBiasFieldAsImage(full)).astype(float)
    log_field -= log_field[inside].mean()
    return image.with_array((image.array / np.exp(log_field)).astype(np.float32))


def _check_landmarks(row: np.ndarray) -> None:
    """Refuse the landmarks of an image, shape (11,), unless each is larger than the one before."""
    if not (np.isfinite(row).all() and (np.diff(row) > 0).all()):
        listed = ", ".join(f"{intensity:g}" for intensity in row)
        raise CadError(
            f"the image's percentiles do not increase: {listed}; Nyul's mapping needs 11 different "
            "intensities",
            hint="check for a constant or clipped image",
        )
