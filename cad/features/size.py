"""How large a region is and where it lies: features that are named as what they are.

Everything is measured on the label map as drawn, in millimetres, and belongs to no image. Texture
must not say it in disguise, see :data:`cad.features.registry.COUNTING`.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage
from scipy.spatial.distance import pdist
from skimage.measure import marching_cubes, mesh_surface_area

from cad.imaging.drawn import fill
from cad.imaging.study import Study
from cad.imaging.volume import Volume

SIZE = ("volume", "mesh_volume", "surface", "diameter", "slices")
POSITION = ("capsule_distance", "side", "back", "head")


def size_columns(study: Study, labels: list[int]) -> dict[str, np.ndarray]:
    """Measure regions of the label map.

    Parameters
    ----------
    study : Study
        With a label map.
    labels : list of int
        One per region; every region has voxels.

    Returns
    -------
    dict of str to ndarray, shape (n_regions,)
        ``size_<name>``: volume (mL, by voxels), volume, surface (mm2) and largest diameter (mm) of
        the mesh around the voxels' centres (IBSI), number of slices. ``position_<name>``: distance
        (mm) of the centre from the capsule, and how far it lies to the side, to the back and to
        the head of the gland's box (0 to 1, side 0 in the middle); NaN without a gland mask.
    """
    if study.roi_map is None:
        return {}
    array, spacing = study.roi_map.array, np.array(study.roi_map.spacing[::-1])
    rows = []
    for label in labels:
        inside = array == label
        volume, surface, diameter = _mesh(inside, spacing)
        count = int(inside.sum())
        slices = int(inside.any(axis=(1, 2)).sum())
        milli = count * float(np.prod(spacing)) / 1000.0
        rows.append((milli, volume / 1000.0, surface, diameter, slices, *_position(study, inside)))
    names = [*(f"size_{n}" for n in SIZE), *(f"position_{n}" for n in POSITION)]
    return dict(zip(names, np.array(rows, float).reshape(-1, len(names)).T, strict=True))


def _mesh(inside: np.ndarray, spacing: np.ndarray) -> tuple[float, float, float]:
    """Return volume (mm3), surface (mm2) and largest diameter (mm) of the mesh at one half."""
    found = np.argwhere(inside)
    low, high = found.min(axis=0), found.max(axis=0) + 1
    box = inside[low[0] : high[0], low[1] : high[1], low[2] : high[2]]
    points, faces, _, _ = marching_cubes(
        np.pad(box, 1).astype(np.float32), 0.5, spacing=tuple(spacing)
    )
    a, b, c = (points[faces[:, i]].astype(float) for i in range(3))
    # Signed tetrahedra between the origin and every triangle.
    volume = abs(float(np.einsum("ij,ij->i", a, np.cross(b, c)).sum()) / 6.0)
    # Only points that are extreme along a row of their slice can be the ends of a diameter.
    thinned = np.unique(np.round(points, 6), axis=0)
    return volume, float(mesh_surface_area(points, faces)), float(pdist(thinned).max())


def _position(study: Study, inside: np.ndarray) -> tuple[float, float, float, float]:
    if study.roi_map is None or study.gland is None:
        return (np.nan,) * 4
    gland = fill(study.gland, study.roi_map).share >= 0.5
    if not gland.any():
        return (np.nan,) * 4
    centre = np.argwhere(inside).mean(axis=0)
    spacing = np.array(study.roi_map.spacing[::-1])
    found = np.argwhere(gland)
    low, high = found.min(axis=0) - 0.5, found.max(axis=0) + 0.5
    z, y, x = (centre - low) / (high - low)
    return _to_capsule(study.roi_map.with_array(gland), centre, spacing), abs(2 * x - 1), y, z


def _to_capsule(gland: Volume, centre: np.ndarray, spacing: np.ndarray) -> float:
    """Return the distance (mm) of a point in the gland from its outline; 0 outside."""
    inward = ndimage.distance_transform_edt(np.pad(gland.array, 1), sampling=spacing)
    return float(ndimage.map_coordinates(inward, (centre + 1)[:, None], order=1)[0])
