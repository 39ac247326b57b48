"""Simulate readers: how they perceive a region's hidden malignancy, and which score they give.

A region is simulated from its hidden malignancy, the latent (:mod:`cad.evidence.phantom.findings`).
A reader perceives the latent with two errors. One error is common to all readers, because the image
shows all of them the same misleading detail. The second error is the reader's own. A reader may
also tend to call more or fewer regions malignant. From the perceived latent follows the score on
the five-point Likert scale. Features of images are not used.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.terms.beside import table_beside
from cad.evidence.phantom.findings import TrueRegion

SCALE = "likert5"
NORMAL_LATENT = -1.65
"""Latent (hidden malignancy) of normal tissue.

The less visible a region is, the nearer to this number is the latent that readers perceive.
"""


class Reader(NamedTuple):
    """Hold how one simulated reader scores.

    A reader perceives a region's latent (its hidden malignancy, a probit) with errors, and scores
    the result.

    Parameters
    ----------
    reader_id : str
        The reader's id, as in ``readers.tsv``.
    expert : bool
        Whether the reader is declared an expert.
    error : float
        Standard deviation of the error that only this reader makes, in units of the latent.
    shared : float
        Factor on the error that all readers of a region have in common.
    bias : float
        Shift of the perceived latent: above 0 the reader calls more regions malignant.
    spread : float
        Factor on the distance of the perceived latent from the limit between scores 2 and 3. With a
        factor above 1 the reader gives the scores 1 and 5 more often.
    missing : float
        Share of regions that the reader did not score.
    """

    reader_id: str
    expert: bool
    error: float
    shared: float
    bias: float
    spread: float
    missing: float


READERS = tuple(Reader(**row) for row in table_beside(__file__))
COMMON_ERROR = 0.30
"""Standard deviation of the error that all readers have in common, for the most visible regions.

The less visible a region is, the larger is this error, up to 1.45 times as large
(:func:`conspicuity`).
"""
CUTS = (-1.10, -0.45, 0.05, 0.55)
"""Limits between the scores 1 to 5 on the scale of the perceived latent."""


def conspicuity(region: TrueRegion) -> float:
    """Return how well a region can be seen, from .55 (small) to 1 (large).

    Parameters
    ----------
    region : TrueRegion
        The region; only its radius is used.
    """
    return float(np.clip(0.4 + region.radius / 12.0, 0.55, 1.0))


def panel(count: int) -> tuple[Reader, ...]:
    """Return a panel of ``count`` readers.

    The first four readers are fixed. The skill of further readers is drawn at random.

    Parameters
    ----------
    count : int
        Number of readers, at least 1. Reader 5 has the same skill in every panel, and so has each
        reader after him.

    Raises
    ------
    CadError
        For fewer than one reader.
    """
    if count < 1:
        raise CadError(f"a panel has at least one reader, asked for {count}")
    readers = list(READERS[:count])
    for number in range(len(READERS) + 1, count + 1):
        rng = np.random.default_rng(number)  # so a reader has the same skill in every panel
        readers.append(
            Reader(
                reader_id=f"r{number}",
                expert=False,
                error=float(rng.uniform(0.26, 0.60)),
                shared=float(rng.uniform(0.8, 1.0)),
                bias=float(rng.normal(0, 0.2)),
                spread=float(rng.uniform(0.9, 1.15)),
                missing=float(rng.uniform(0.01, 0.08)),
            )
        )
    return tuple(readers)


def draw_scores(
    rng: np.random.Generator,
    regions: list[TrueRegion],
    readers: tuple[Reader, ...] = READERS,
    more: np.random.Generator | None = None,
) -> pd.DataFrame:
    """Draw the scores that every reader gives to one patient's regions.

    Parameters
    ----------
    rng : Generator
        Source of the random draws.
    regions : list of TrueRegion
        The regions, numbered from 1.
    readers : tuple of Reader
        The panel, from :func:`panel`. The four fixed readers draw the same scores in every panel.
    more : Generator, optional
        Source of the draws of readers beyond the four fixed readers.

    Returns
    -------
    DataFrame
        One row per region and reader: ``roi_id`` (str), ``reader_id``, ``scale``, ``score`` (1 to
        5, or NaN where it is missing).
    """
    rows = []
    for number, region in enumerate(regions, start=1):
        # The latent as the image shows it, and the error that the image leads all readers into.
        visibility = conspicuity(region)
        visible = NORMAL_LATENT + visibility * (region.latent - NORMAL_LATENT)
        common_error = rng.normal(0, COMMON_ERROR) * (2.0 - visibility)
        # All fixed readers draw, also those who are not in a small panel. So the others draw the
        # same numbers in every panel.
        for reader in (*READERS, *readers[len(READERS) :]):
            draws = rng if reader in READERS or more is None else more
            perceived = visible + reader.bias + reader.shared * common_error
            perceived += draws.normal(0, reader.error)
            # Distances from the limit between scores 2 and 3 are stretched by the reader's spread.
            limit_2_3 = CUTS[1]
            stretched = limit_2_3 + reader.spread * (perceived - limit_2_3)
            score = np.searchsorted(CUTS, stretched) + 1
            skipped = draws.random() < reader.missing
            if reader in readers:
                score_given = np.nan if skipped else float(score)
                rows.append((str(number), reader.reader_id, SCALE, score_given))
    return pd.DataFrame(rows, columns=["roi_id", "reader_id", "scale", "score"])
