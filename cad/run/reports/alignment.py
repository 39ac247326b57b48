"""Draw, for a page, images before and after their alignment to T2, with the edges of T2."""

from typing import NamedTuple

import numpy as np

from cad.base.terms.modality import short_name
from cad.run.reports.images import StudyImages, data_url


class AlignmentView(NamedTuple):
    """Hold the text and pictures on the alignment of one image to T2.

    Parameters
    ----------
    title : str
        Name of the image that was aligned.
    text : str
        How far the image was moved and turned, or why it was not moved.
    pictures : list of (str, str)
        Caption and data URL of each picture: before and after, or one picture of an image that was
        not moved.
    width, height : float
        Extent of each picture, mm.
    """

    title: str
    text: str
    pictures: list[tuple[str, str]]
    width: float
    height: float


_EDGE_COLOUR = (255, 214, 0)


def alignments(images: StudyImages) -> list[AlignmentView]:
    """Return a view of each image of a study whose alignment to T2 was tried.

    Parameters
    ----------
    images : StudyImages
        The study.
    """
    if images.registration is None:
        return []
    drawn = []
    stated = images.meta.get("registration", [])
    for numbers, (*images_before_and_after, edges) in zip(
        stated, images.registration, strict=False
    ):
        before = float(numbers["before"])
        after = float(numbers["after"])
        if numbers["accepted"]:
            captions = ["before", "after"]
            text = (
                f"moved {numbers['translation_mm']:.1f} mm, turned {numbers['rotation_deg']:.1f}°; "
                f"mutual information with T2 {before:.3f} before, {after:.3f} after"
            )
        else:
            captions = ["not moved"]
            text = str(numbers["note"])
        # Of an image that was not moved there is one caption, and so one picture.
        pictures = []
        for caption, grey in zip(captions, images_before_and_after, strict=False):
            pictures.append((caption, data_url(_with_edges(grey, edges), quality=85)))
        drawn.append(
            AlignmentView(
                title=short_name(str(numbers["moving"])),
                text=text,
                pictures=pictures,
                width=edges.shape[1] * images.spacing[0],
                height=edges.shape[0] * images.spacing[1],
            )
        )
    return drawn


def _with_edges(grey: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return an RGB image at three times the size, with edges drawn in.

    At this size the line of an edge is one third of a voxel wide and hides little of the image.
    """
    rgb = np.stack([grey] * 3, axis=-1)
    large = np.repeat(np.repeat(rgb, 3, axis=0), 3, axis=1)

    # Each voxel has become 3 by 3 pixels. Of an edge voxel, the pixel in the middle is coloured.
    is_edge = edges > 0
    coloured = np.zeros(large.shape[:2], bool)
    coloured[1::3, 1::3] = is_edge

    # Between two neighbouring edge voxels, the two pixels between their middles are coloured, too.
    for axis in (0, 1):
        next_is_edge = np.roll(is_edge, -1, axis)
        middles = np.argwhere(next_is_edge & is_edge) * 3 + 1
        for step in (1, 2):
            pixels = middles.copy()
            # np.roll takes the first row for the neighbour of the last. No pixel lies beyond it.
            pixels[:, axis] = np.minimum(pixels[:, axis] + step, coloured.shape[axis] - 1)
            coloured[tuple(pixels.T)] = True
    large[coloured] = _EDGE_COLOUR
    return large
