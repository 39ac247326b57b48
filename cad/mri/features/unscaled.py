"""Keep T2 regions before standardisation, to measure them again with the scale of every fold.

Nyul's method standardises intensities by a scale that is fitted to training patients. A study's T2
features therefore differ from fold to fold. To measure them again, no file is read a second time:
the part of the image around the regions, the landmarks of the whole image and the regions' voxels
are enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cad.base.settings import FeatureSettings, PipelineSettings
from cad.mri.features.images import Prepared, crop_to, filters_of
from cad.mri.features.measure import measure_regions
from cad.mri.features.radiomics_classes import radiomics_features
from cad.mri.features.regions import RegionVoxels
from cad.mri.imaging.drawn import shares_on
from cad.mri.imaging.standardise import NyulScale, landmarks, prepared_t2
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Volume

# Names of the arrays in a file of :meth:`UnscaledT2.to_arrays`, in their order; _PREFIX precedes
# them.
_ARRAYS = ("image", "spacing", "origin", "direction", "landmarks", "index", "start", "weight")
_PREFIX = "unscaled_"


@dataclass(frozen=True, eq=False)
class UnscaledT2:
    """Hold a study's T2 image around its regions, before standardisation.

    Parameters
    ----------
    image : Volume
        The part of the image that the regions need: float32, bias-corrected if the settings say so.
    landmarks : ndarray, shape (11,)
        Landmarks of the whole image for Nyul's method: intensities at 11 percentiles.
    regions : RegionVoxels
        The regions, on the grid of ``image``, in the order of the feature rows.
    """

    image: Volume
    landmarks: np.ndarray
    regions: RegionVoxels

    def prepared(self, scale: NyulScale) -> Prepared:
        """Return the image standardised by a fitted scale, ready to be measured."""
        return Prepared(
            "t2w",
            scale.transform(self.image, of_image=self.landmarks),
            provenance={"t2_reference": "cohort", "t2w_level": float(np.median(self.landmarks))},
        )

    def columns(self, scale: NyulScale, settings: FeatureSettings) -> dict[str, np.ndarray]:
        """Return the T2 features, measured after the image was standardised by a scale.

        Parameters
        ----------
        scale : NyulScale
            Maps T2 intensities to standard ones; fitted on training patients.
        settings : FeatureSettings
            Names the features to measure.

        Returns
        -------
        dict of str to ndarray, shape (n_regions,)
            Values by column name, in the order of the study's regions.
        """
        prepared = self.prepared(scale)
        return measure_regions(prepared, self.regions, settings) | radiomics_features(
            prepared, self.regions, settings
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the image, its place, landmarks and regions as arrays by name, for
        ``numpy.savez``.
        """
        values = (
            self.image.array,
            np.array(self.image.spacing),
            np.array(self.image.origin),
            np.asarray(self.image.direction, float),
            self.landmarks,
            self.regions.index,
            self.regions.start,
            # An empty array stands for regions of whole voxels, which have no weights.
            np.zeros(0) if self.regions.weight is None else self.regions.weight,
        )
        return {_PREFIX + name: value for name, value in zip(_ARRAYS, values, strict=True)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> UnscaledT2 | None:
        """Make the object again from the arrays that :meth:`to_arrays` returned.

        The result is None if ``arrays`` has none of these arrays.
        """
        if _PREFIX + "image" not in arrays:
            return None
        image, spacing, origin, direction, image_landmarks, index, start, weight = (
            np.asarray(arrays[_PREFIX + name]) for name in _ARRAYS
        )
        volume = Volume(image, tuple(spacing.tolist()), tuple(origin.tolist()), direction)
        weights_or_none = weight if len(weight) else None
        return cls(
            volume, image_landmarks, RegionVoxels(index, start, image.shape, weights_or_none)
        )


def unscaled_t2(
    study: Study, settings: PipelineSettings, needed: Volume, shares: Sequence[np.ndarray]
) -> UnscaledT2:
    """Return the part of a study's T2 image that regions need, with the whole image's landmarks.

    Parameters
    ----------
    study : Study
        Study with a T2 image.
    settings : PipelineSettings
        ``images.bias_correction`` and the filters of T2; the part has a margin as wide as the
        filters reach.
    needed : Volume
        Boolean, on any part of the T2 grid.
    shares : sequence of ndarray, shape of ``needed``
        One array per region: the share (0 to 1) of each voxel that the region fills.

    Raises
    ------
    CadError
        For an image whose 11 landmarks are not all different.

    Examples
    --------
    A region of 8 voxels in an image whose values rise from slice to slice:

    >>> import numpy as np
    >>> values = np.arange(4000, dtype=np.float32).reshape(10, 20, 20)
    >>> t2w = Volume(values, (1.0, 1.0, 3.0), (0.0, 0.0, 0.0), np.eye(3))
    >>> study = Study("sub-1", "sub-1", t2w=t2w)
    >>> share = np.zeros((10, 20, 20))
    >>> share[4:6, 8:10, 8:10] = 1.0
    >>> needed = t2w.with_array(share > 0)
    >>> part = unscaled_t2(study, PipelineSettings(name="example"), needed, [share])
    >>> part.regions.sizes.tolist(), len(part.landmarks), part.image.array.size < values.size
    ([8], 11, True)
    """
    prepared = prepared_t2(study, settings.images)
    around_regions = crop_to(prepared, needed, filters_of(settings.features, "t2w"))
    regions = RegionVoxels.from_shares(
        [shares_on(share, needed, around_regions) for share in shares]
    )
    return UnscaledT2(around_regions, landmarks(prepared), regions)
