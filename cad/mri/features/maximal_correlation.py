"""Compute Haralick's fourteenth feature: the maximal correlation of neighbouring grey levels.

The coefficient is the largest correlation that the two levels of a pair of neighbours can get by
any renaming of the grey levels. It is the square root of the second largest eigenvalue of the
matrix Q(i, j) = sum_k p(i, k) p(j, k) / (p(i) p(k)). Here p(i, k) is the share of pairs with the
levels i and k, and p(i) the share of voxels of pairs with the level i (Haralick et al., IEEE Trans
Syst Man Cybern 3 (1973) 610). IBSI leaves this feature out; pyradiomics calls it MCC.
"""

import numpy as np

from cad.base.terms.features import FAMILIES
from cad.mri.features.haralick import AGGREGATIONS, aggregation_of, directions
from cad.mri.features.regions import Sample

RECORD = np.dtype([(name, float) for name in FAMILIES["maximal_correlation"].statistics])


def maximal_correlation_of(sample: Sample) -> np.ndarray:
    """Return the maximal correlation coefficient of each region of a sample.

    Pairs are counted as :func:`cad.mri.features.haralick.haralick_features` counts them: by the
    texture's distance, dimension and aggregation.

    Parameters
    ----------
    sample : Sample
        Grey levels in the core of each region: the voxels that the region fills most.

    Returns
    -------
    ndarray of ``RECORD``, shape (n_regions,)
        0 to 1; 1 for a region of one level, and NaN for a region without a pair of neighbours.
    """
    three_d, per_slice, per_direction = AGGREGATIONS[aggregation_of(sample.texture)]
    steps = directions(three_d, sample.texture.distance)
    levels = np.zeros(len(sample.is_finite), np.int64)
    levels[sample.is_finite] = sample.levels
    out = np.full(sample.core.count, np.nan, RECORD)
    for region in range(sample.core.count):
        of_region = slice(sample.core.start[region], sample.core.start[region + 1])
        box = _box(sample.core.index[of_region], levels[of_region], sample.core.shape)
        # A matrix is counted in each slice, or in the whole region at once.
        boxes = [box] if not per_slice else [box[z : z + 1] for z in range(len(box))]
        correlations = []
        for slice_or_box in boxes:
            matrices = [_counts(slice_or_box, step) for step in steps]
            if not per_direction:
                matrices = [np.sum(matrices, axis=0)]
            # A matrix of zeros has no pair of neighbours, and so no correlation.
            correlations += [maximal_correlation(matrix) for matrix in matrices if matrix.any()]
        if correlations:
            out["coefficient"][region] = np.mean(correlations)
    return out


def maximal_correlation(counts: np.ndarray) -> float:
    """Return the maximal correlation coefficient of one co-occurrence matrix.

    Parameters
    ----------
    counts : ndarray, shape (n, n)
        How often level i and level j are neighbours; symmetric, not all zero.

    Returns
    -------
    float
        0 to 1; 1 where there is one level only.

    Examples
    --------
    >>> import numpy as np
    >>> maximal_correlation(np.array([[1.0, 1.0], [1.0, 1.0]])) < 1e-9
    True
    >>> round(maximal_correlation(np.array([[3.0, 1.0], [1.0, 3.0]])), 6)
    0.5
    """
    # A level that does not occur would give a division by zero below.
    occurs = counts.any(axis=1)
    share = counts[np.ix_(occurs, occurs)] / counts.sum()
    if len(share) < 2:  # one level has no second singular value; the coefficient is 1 by definition
        return 1.0
    # The coefficient is the square root of the second largest eigenvalue of Haralick's matrix Q.
    # This root equals the second largest singular value of the symmetric matrix below, whose
    # largest singular value is 1.
    root_of_level_share = np.sqrt(share.sum(axis=1))
    scaled = share / np.outer(root_of_level_share, root_of_level_share)
    singular_values = np.linalg.svd(scaled, compute_uv=False)  # the largest comes first
    return float(min(singular_values[1], 1.0))


def _box(index: np.ndarray, levels: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """Return the levels of a region in the smallest box that holds it, 0 elsewhere."""
    places = np.array(np.unravel_index(index, shape))
    if not places.size:  # an empty region has no box around it; one voxel outside stands for it
        return np.zeros((1, 1, 1), np.int64)
    low = places.min(axis=1)
    box = np.zeros(places.max(axis=1) - low + 1, np.int64)
    box[tuple(places - low[:, None])] = levels
    return box


def _counts(box: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return a square table: how often each pair of levels occurs in two voxels a ``step`` apart.

    The step is taken in both directions, so the table is symmetric. Row and column 0 are 0, because
    level 0 stands for voxels outside the region.
    """
    # Along an axis of n voxels, a step of k > 0 leads from the voxels 0 to n - k - 1 to the voxels
    # k to n - 1. A negative step leads the other way.
    first_voxels = []
    second_voxels = []
    for size, move in zip(box.shape, step, strict=True):
        first_voxels.append(slice(max(-move, 0), max(size - max(move, 0), 0)))
        second_voxels.append(slice(max(move, 0), max(size + min(move, 0), 0)))
    first = box[tuple(first_voxels)]
    second = box[tuple(second_voxels)]
    n_levels = int(box.max()) + 1  # level 0 included
    # The step is longer than the box, so that no voxel has a neighbour.
    if first.shape != second.shape or not first.size:
        return np.zeros((n_levels, n_levels))
    # Each pair of levels has a number of its own: that of its cell in the flattened table.
    pair_numbers = (first * n_levels + second).ravel()
    pairs = np.bincount(pair_numbers, minlength=n_levels * n_levels)
    counts = pairs.reshape(n_levels, n_levels).astype(float)
    counts[0] = 0.0
    counts[:, 0] = 0.0
    return np.asarray(counts + counts.T)
