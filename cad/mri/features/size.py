"""Measure how large a region is and where it lies, as features of their own.

Everything is measured in millimetres on the label map as drawn, and uses the values of no image.
Features of texture that also depend on size are listed in
:data:`cad.base.terms.features.COUNTING`.
"""

import math

import numpy as np
from scipy import ndimage
from skimage.measure import marching_cubes, mesh_surface_area

from cad.base.settings import FeatureSettings
from cad.base.terms.features import POSITION
from cad.mri.features.measure import pick
from cad.mri.imaging.drawn import gland_on
from cad.mri.imaging.geometry import Box, bounding_box, limits
from cad.mri.imaging.study import Study

# Number of points of a mesh whose distances to all other points are in memory at once.
_POINTS = 200


def size_and_position(study: Study, labels: list[int]) -> dict[str, dict[str, np.ndarray]]:
    """Measure regions of the label map.

    Parameters
    ----------
    study : Study
        Study with a label map; without one the result is empty.
    labels : list of int
        Labels of the regions to measure; each has voxels in the label map.

    Returns
    -------
    dict of str to dict of str to ndarray, shape (n_regions,)
        Two groups of values by name, one value per label.

        Group ``size``: ``volume`` in mL is the volume of the voxels. ``mesh_volume`` (mL),
        ``surface`` (mm2) and ``diameter`` (the largest, mm) are measured on the mesh around the
        voxels' centres (IBSI). ``slices`` is the number of slices.

        Group ``position``, NaN without a gland mask: ``capsule_distance`` is the distance (mm) of
        the region's centre from the gland's surface. The others are places of the centre in the box
        around the gland, from 0 to 1: ``side`` from the middle to the left or right edge, ``back``
        from front to back, ``head`` from feet to head.
    """
    if study.roi_map is None:
        return {}
    label_map = study.roi_map.array
    spacing = np.array(study.roi_map.spacing[::-1])  # z, y, x, as the axes of the label map
    gland = _gland_depths(study)
    region_boxes = ndimage.find_objects(label_map)  # the box of label 1 comes first
    sizes = []
    positions = []
    for label in labels:
        region_box = region_boxes[label - 1]
        inside = label_map[region_box] == label
        mesh_volume, surface, diameter = _mesh(inside, spacing)
        n_voxels = int(inside.sum())
        slices = int(inside.any(axis=(1, 2)).sum())
        volume_ml = n_voxels * float(np.prod(spacing)) / 1000.0
        # ``inside`` begins at the corner of the box; the centre is an index of the whole label map.
        corner = [extent.start for extent in region_box]
        centre = np.argwhere(inside).mean(axis=0) + corner
        position = dict.fromkeys(POSITION, math.nan) if gland is None else _position(*gland, centre)
        sizes.append(
            {
                "volume": volume_ml,
                "mesh_volume": mesh_volume / 1000.0,
                "surface": surface,
                "diameter": diameter,
                "slices": slices,
            }
        )
        positions.append(position)
    return {"size": _by_name(sizes), "position": _by_name(positions)}


def size_columns(
    study: Study, labels: list[int], settings: FeatureSettings
) -> dict[str, np.ndarray]:
    """Return the size and position columns that settings name.

    Parameters
    ----------
    study : Study
        Study with or without a label map.
    labels : list of int
        Labels of the regions to measure; each has voxels in the label map.
    settings : FeatureSettings
        Settings that name the wanted columns.

    Returns
    -------
    dict of str to ndarray, shape (n_regions,)
        Values by name of the column, one per label; empty without a label map, without labels, or
        where settings name neither size nor position.
    """
    wanted = {"size", "position"} & {*settings.families}
    # Without this check, meshes would be made of every region although no column takes them.
    if not wanted or not labels or study.roi_map is None:
        return {}
    return pick(size_and_position(study, labels), "", settings)


def _by_name(rows: list[dict[str, float]]) -> dict[str, np.ndarray]:
    """Return the values of all rows by name: an array for each name, with an entry per row."""
    if not rows:
        return {}
    columns = {}
    for name in rows[0]:
        columns[name] = np.array([row[name] for row in rows], float)
    return columns


def _gland_depths(study: Study) -> tuple[Box, np.ndarray] | None:
    """Return the box around the gland on the label map's grid, and depths in the gland (mm).

    The depth of a voxel is its distance from the gland's outline, and 0 outside the gland. The
    array of depths is one voxel larger than the box on each side.
    """
    gland = gland_on(study)
    if gland is None:
        return None
    box = bounding_box(gland.array)
    if box is None:  # the mask has no voxel on this grid
        return None
    # Depths are distances to the nearest voxel outside the gland. Without the padding, a gland that
    # fills its box would have no such voxel.
    padded = np.pad(gland.array[box], 1)
    return box, ndimage.distance_transform_edt(padded, sampling=gland.spacing[::-1])


def _position(box: Box, inward: np.ndarray, centre: np.ndarray) -> dict[str, float]:
    """Return the features that say where in the gland a point lies, by name.

    ``centre`` is the point in voxel indices, and ``box`` the box around the gland. ``inward`` has
    the depth of each voxel in the gland (mm), in a box that is one voxel larger on each side.
    """
    first, last = limits(box)
    # The box goes from the outer edge of its first voxel to the outer edge of its last. The centre
    # of the first voxel is therefore half a voxel inside it.
    z, y, x = (centre - first + 0.5) / (last - first)
    # The array of depths begins one voxel before the box.
    place_in_depths = (centre - first + 1)[:, None]
    # A point outside of the box lies outside of the gland, where the depth is 0.
    depth = float(ndimage.map_coordinates(inward, place_in_depths, order=1)[0])
    # ``x`` goes from 0 at one edge to 1 at the other; ``side`` is 0 in the middle, 1 at both edges.
    return {"capsule_distance": depth, "side": abs(2 * x - 1), "back": y, "head": z}


def _mesh(inside: np.ndarray, spacing: np.ndarray) -> tuple[float, float, float]:
    """Return volume (mm3), surface (mm2) and largest diameter (mm) of the mesh around a region.

    ``inside`` is the region's mask (z, y, x), and ``spacing`` the voxel size along these axes (mm).
    """
    # The mask is 1 inside and 0 outside, so that the level 0.5 is its border. The padding closes
    # the mesh where the region touches the edge of its array.
    points, faces, _, _ = marching_cubes(
        np.pad(inside, 1).astype(np.float32), 0.5, spacing=tuple(spacing)
    )
    corners = points.astype(float)
    # ``a``, ``b`` and ``c`` are the three corners of each triangle.
    a = corners[faces[:, 0]]
    b = corners[faces[:, 1]]
    c = corners[faces[:, 2]]
    # The volume of the mesh is the sum of the signed volumes of tetrahedra. Each has a triangle of
    # the mesh as its base, and the origin as its tip.
    volume = abs(float(np.einsum("ij,ij->i", a, np.cross(b, c)).sum()) / 6.0)
    # The diameter is searched among the corners of the mesh, each taken once. Copies of a corner
    # may differ in their last digits, so that coordinates are rounded (to 1e-6 mm).
    different_corners = np.unique(np.round(points, 6), axis=0)
    return volume, float(mesh_surface_area(points, faces)), largest_distance(different_corners)


def largest_distance(points: np.ndarray) -> float:
    """Return the largest distance between any two of the points.

    Parameters
    ----------
    points : ndarray, shape (n, k)
        At least two points of k coordinates each; any unit.

    Examples
    --------
    >>> import numpy as np
    >>> largest_distance(np.array([[0.0, 0.0, 0.0], [3.0, 4.0, 0.0], [1.0, 1.0, 0.0]]))
    5.0
    """
    largest_square = 0.0
    for first in range(0, len(points), _POINTS):
        block = points[first : first + _POINTS]
        # Distances to earlier points were computed with the earlier blocks.
        block_and_later = points[first:]
        squares = np.zeros((len(block), len(block_and_later)))
        for axis in range(points.shape[1]):
            squares += np.subtract.outer(block[:, axis], block_and_later[:, axis]) ** 2
        largest_square = max(largest_square, float(np.max(squares)))
    return math.sqrt(largest_square)
