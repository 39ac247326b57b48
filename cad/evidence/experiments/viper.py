"""Compare results for VIPER, public reader studies of mammography, with those of VIPER's paper.

In each study twenty readers read cases in two modalities. The paper is Gallas et al., J. Med.
Imaging 6 (2019) 015501, Table 3. The design is split-plot: each reader read one or two of four
groups of cases.
"""

import numpy as np
import pandas as pd

from cad.base.doors import door
from cad.base.reading import reading
from cad.base.terms.beside import table_beside
from cad.evidence.experiments import Options
from cad.evidence.experiments.results import Result
from cad.learning.evaluation.readers.mrmc import obuchowski_rockette, u_statistic

MODALITIES = ("SFM", "FFDM")
FILE = "viper_observations.csv.gz"
_TABLES = table_beside(__file__)


def ratings(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the truth of cases and the readers' scores of them.

    Parameters
    ----------
    rows : DataFrame
        VIPER's table of readings: a row for each case, reader and modality.

    Returns
    -------
    truth : ndarray, shape (n,)
        1 for cancer, else 0, for each case.
    scores : ndarray, shape (2, readers, n)
        First screen-film (SFM), then digital mammography (FFDM); NaN where a reader did not read a
        case.
    """
    truth = rows.groupby("caseID")["cancerStatus455"].first()
    wide = rows.pivot_table(index=["modalityID", "readerID"], columns="caseID", values="score")
    scores = []
    for modality in MODALITIES:
        of_modality = wide.loc[modality].reindex(columns=truth.index)
        scores.append(of_modality.to_numpy(float))
    return truth.to_numpy(float), np.stack(scores)


def in_blocks(rows: pd.DataFrame) -> str:
    """Return the difference of AUC between the modalities by Obuchowski and Rockette's method.

    This method needs readers who read the same cases. Readers of the same groups of cases
    therefore form a block, and the result is the mean over blocks.

    Parameters
    ----------
    rows : DataFrame
        Readings of one sub-study, as for :func:`ratings`.

    Returns
    -------
    str
        Digital minus screen-film, and the standard error in brackets: ``+0.012 (0.015)``.
    """
    # For each reading, the groups of cases that its reader read: the name of the reader's block.
    block = rows.groupby("readerID")["caseGroup"].transform(
        lambda names: " ".join(sorted(set(names)))
    )
    differences = []
    variances = []
    for _, block_rows in rows.groupby(block):
        comparison = obuchowski_rockette(*ratings(block_rows))
        differences.append(comparison.difference)
        variances.append(np.square(comparison.error))
    # The differences of AUC in different blocks count as independent, so that variances are added.
    error = np.sqrt(np.sum(variances)) / len(variances)
    return f"{np.mean(differences):+.3f} ({error:.3f})"


@door("own", "published data")
def compare_modalities(options: Options) -> Result:
    """Compare each sub-study's difference of AUC between the modalities with the published one.

    Parameters
    ----------
    options : Options
        Its ``data`` is the folder of VIPER's table of readings.

    Returns
    -------
    Result
        One table with a row for each sub-study: the number of readings, the AUC of both modalities,
        and the published and the computed difference of AUC with its standard error and 95 %
        interval.
    """
    path = options.folder(FILE) / FILE
    with reading(path, "not VIPER's table of readings"):
        all_readings = pd.read_csv(path)
    rows = []
    for name, (published, published_error) in _TABLES["published"].items():
        study_rows = all_readings[all_readings["subStudyLabel"] == name]
        (auc_film, auc_digital), difference, error = u_statistic(*ratings(study_rows))
        lower = difference - 1.96 * error
        upper = difference + 1.96 * error
        # The difference must agree in all digits that the paper prints; the standard error may
        # differ by a unit or two in the last digit.
        holds = round(difference, 3) == published and abs(error - published_error) <= 0.002
        rows.append(
            {
                "study": name,
                "readings": len(study_rows),
                "AUC FFDM": f"{auc_digital:.3f}",
                "AUC SFM": f"{auc_film:.3f}",
                "published": f"{published:+.3f} ({published_error:.3f})",
                "difference (error)": f"{difference:+.3f} ({error:.3f})",
                "95 %": f"{lower:+.3f} to {upper:+.3f}",
                "holds": "yes" if holds else "**no**",
                "Obuchowski and Rockette, blocks": in_blocks(study_rows),
            }
        )
    tables = {"Differences beside the paper's Table 3": pd.DataFrame(rows)}
    return Result.of_words(_TABLES["page"], tables)
