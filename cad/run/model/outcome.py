"""Add to a prediction conformal p-values, and each reader's probability combined with the tool's.

A conformal p-value says how well a region fits the benign, or the malignant, training regions. The
tool is the model.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from cad.base.files import typed
from cad.learning.evaluation.readers.assisted import Combinations
from cad.learning.evaluation.summary import Given
from cad.run.model.bundle import Bundle, using


def of_bundles(
    table: pd.DataFrame, grades: pd.DataFrame | None, bundles: Sequence[Bundle]
) -> Given:
    """Return each region's conformal p-values, and its probability by each reader with the tool.

    A reader's score and the model's probability from images are combined with weights that were
    fitted when the model was trained. A region gets the weights of the model that scored it.

    Parameters
    ----------
    table : DataFrame, shape (n, ...)
        Columns ``probability_images``; ``model``, the name of the model that scored the region;
        ``p_benign`` and ``p_malignant``, conformal p-values.
    grades : DataFrame, shape (n, readers), or None
        Every reader's score as probability; NaN where a reader gave none. With None the result has
        no reader.
    bundles : sequence of Bundle
        The models.

    Returns
    -------
    Given
        Conformal p-values, and a probability with the tool for each reader; NaN where the reader
        gave no score, or the model that scored the region has no such weights.
    """
    with_tool = pd.DataFrame(
        np.nan, index=table.index, columns=[] if grades is None else list(grades)
    )
    for bundle in bundles:
        with using(bundle):
            combinations = bundle.metadata.get("combinations")
        of_model = (table["model"] == bundle.name).to_numpy()
        probability_of_tool = table["probability_images"].where(of_model).to_numpy(float)
        if combinations is not None and grades is not None:
            weights = typed(Combinations, combinations)
            for reader in with_tool:
                probability_of_reader = grades[reader].to_numpy(float)
                combined, _ = weights.probability(
                    str(reader), probability_of_reader, probability_of_tool
                )
                with_tool.loc[of_model, reader] = combined[of_model]
    return Given(
        p_benign=table["p_benign"].to_numpy(float),
        p_malignant=table["p_malignant"].to_numpy(float),
        with_tool=with_tool,
    )


def with_given(results: pd.DataFrame, given: Given) -> pd.DataFrame:
    """Return a table of results with conformal p-values and readers' probabilities with the tool.

    Parameters
    ----------
    results : DataFrame, shape (n, ...)
        Regions of the cohort.
    given : Given
        Values to add, with one row per region. Rows after the first ``n`` belong to the training
        table of an earlier model and are left out.

    Returns
    -------
    DataFrame
        Copy of ``results`` with ``p_benign, p_malignant`` and ``with_tool``, a text such as
        ``r1=0.53; r2=0.61``.
    """
    n = len(results)
    return results.assign(
        p_benign=given.p_benign[:n],
        p_malignant=given.p_malignant[:n],
        with_tool=_text_of_values(given.with_tool.iloc[:n].set_axis(results.index)),
    )


def _text_of_values(columns: pd.DataFrame) -> pd.Series:
    """Return the known values of each row as text, such as ``r1=0.53; r2=0.61``."""
    texts = []
    for row in columns.to_dict("records"):
        known_values = []
        for name, value in row.items():
            if np.isfinite(value):
                known_values.append(f"{name}={value:.4g}")
        texts.append("; ".join(known_values))
    return pd.Series(texts, index=columns.index)
