"""Replace the names of men and regions by keys in the numbers that a node keeps.

The node keeps these numbers of each man to compare models and to notice drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cad.hospital.node.names import key_of, node_key
from cad.run.workflows.watch import Truth, Watched


def hidden_rows(home: Path, rows: Sequence[Watched]) -> list[Watched]:
    """Return rows in which keys replace the man's label and the ids of his regions.

    Parameters
    ----------
    home : Path
        The node's folder, whose secret makes the keys.
    rows : sequence of Watched
        The numbers that models gave to the regions of men.
    """
    secret = node_key(home)
    hidden = []
    for row in rows:
        probability_by_key = {}
        for roi, probability in row.regions.items():
            probability_by_key[_region_key(secret, row.man, roi)] = probability
        key_of_man = key_of(secret, row.man)
        hidden.append(replace(row, man=key_of_man, regions=probability_by_key))
    return hidden


def hidden_truths(home: Path, truths: Sequence[Truth]) -> list[Truth]:
    """Return histology in which the keys of :func:`hidden_rows` replace men and regions.

    The order stays the same.
    """
    secret = node_key(home)
    hidden = []
    for truth in truths:
        key_of_man = key_of(secret, truth.man)
        key_of_region = _region_key(secret, truth.man, truth.roi)
        hidden.append(Truth(man=key_of_man, roi=key_of_region, malignant=truth.malignant))
    return hidden


def _region_key(secret: bytes, man: str, roi: str) -> str:
    """Return the key of a region; men may have regions of the same id."""
    return key_of(secret, f"{man} {roi}")
