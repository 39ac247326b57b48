"""Two modalities read by twenty readers each: the reader studies of VIPER, beside their paper.

Gallas et al., J. Med. Imaging 6 (2019) 015501, Table 3. Readers are split-plot: each read one or
two of four groups of cases.
"""

import numpy as np
import pandas as pd

from cad.evaluation.readers.mrmc import obuchowski_rockette, u_statistic
from cad.experiments import Options
from cad.experiments.results import Result
from cad.reading import reading
from cad.terms.beside import table_beside

MODALITIES = ("SFM", "FFDM")
FILE = "viper_observations.csv.gz"
_TABLES = table_beside(__file__)


def ratings(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the truth of cases and the readers' scores of them.

    Parameters
    ----------
    rows : DataFrame
        VIPER's table of readings: a row a case, reader and modality.

    Returns
    -------
    truth : ndarray, shape (n,)
        1 or 0.
    scores : ndarray, shape (2, readers, n)
        By modality; NaN where a reader did not read.
    """
    truth = rows.groupby("caseID")["cancerStatus455"].first()
    wide = rows.pivot_table(index=["modalityID", "readerID"], columns="caseID", values="score")
    own = [wide.loc[modality].reindex(columns=truth.index) for modality in MODALITIES]
    return truth.to_numpy(float), np.stack([part.to_numpy(float) for part in own])


def in_blocks(rows: pd.DataFrame) -> str:
    """Return Obuchowski and Rockette's difference and its error as text, a mean over blocks.

    A block is the readers of the same groups of cases, on the cases that all of them read.

    Parameters
    ----------
    rows : DataFrame
        Of one sub-study.
    """
    block = rows.groupby("readerID")["caseGroup"].transform(
        lambda part: " ".join(sorted(set(part)))
    )
    made = [obuchowski_rockette(*ratings(part)) for _, part in rows.groupby(block)]
    differences = [part.difference for part in made]
    errors = [part.error for part in made]
    error = np.sqrt(np.sum(np.square(errors))) / len(made)
    return f"{np.mean(differences):+.3f} ({error:.3f})"


def readers(options: Options) -> Result:
    """Compare each sub-study's difference of AUC with the published one."""
    path = options.folder(FILE) / FILE
    with reading(path, "not VIPER's table of readings"):
        every = pd.read_csv(path)
    rows = []
    for name, (difference, error) in _TABLES["published"].items():
        part = every[every["subStudyLabel"] == name]
        aucs, gap, deviation = u_statistic(*ratings(part))
        ends = (gap + side * 1.96 * deviation for side in (-1, 1))
        holds = round(gap, 3) == difference and abs(deviation - error) <= 0.002
        rows.append(
            {
                "study": name,
                "readings": len(part),
                "AUC FFDM": f"{aucs[1]:.3f}",
                "AUC SFM": f"{aucs[0]:.3f}",
                "published": f"{difference:+.3f} ({error:.3f})",
                "difference (error)": f"{gap:+.3f} ({deviation:.3f})",
                "95 %": "{:+.3f} to {:+.3f}".format(*ends),
                "holds": "yes" if holds else "**no**",
                "Obuchowski and Rockette, blocks": in_blocks(part),
            }
        )
    tables = {"Differences beside the paper's Table 3": pd.DataFrame(rows)}
    return Result.of_words(_TABLES["page"], tables)
