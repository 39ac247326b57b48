"""Compare two models, or several pipelines on the same folds, region by region."""

from collections.abc import Mapping

import pandas as pd

from cad.base.errors import CadError
from cad.base.files import JsonObject, json_safe
from cad.base.terms.text import to_markdown
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.records import write_comparison
from cad.folders.run_folder.tables import KEYS
from cad.learning.evaluation.folds.paired import compare_probabilities
from cad.run.model.comparison import compare_runs
from cad.run.stages.judge import Judged


def compare(a: Judged, b: Judged, names: tuple[str, str], folder: RunFolder) -> JsonObject:
    """Compare the predictions of two models for one cohort, and write ``comparison.json``.

    Parameters
    ----------
    a, b : Judged
        Predictions of the two models for the same regions.
    names : (str, str)
        Names of the two models.
    folder : RunFolder
        Folder into which the file is written.

    Returns
    -------
    dict
        Content of the file: differences of the measures on the same regions, calibration of each
        model, and the regions whose decision differs
        (:func:`cad.run.model.comparison.compare_runs`).
    """
    result = compare_runs(a.results, b.results, names)
    write_comparison(folder, result)
    return result


def compare_validated(runs: Mapping[str, Judged], folder: RunFolder) -> JsonObject:
    """Compare the probabilities of several pipelines with those of the first, on the same regions.

    Parameters
    ----------
    runs : mapping of str to Judged
        Validation of each pipeline on the same cohort, by the pipeline's name.
    folder : RunFolder
        Folder into which ``comparison.json`` is written.

    Returns
    -------
    dict
        Content of the file:

        - ``reference``: name of the first pipeline.
        - ``sentence``: the result in words.
        - ``regions``: number of regions that all pipelines measured.
        - ``table``: one row for each truth (``against`` is ``readers`` or ``histology``), each
          ``measure`` and each pipeline (``learner``). A row has the ``value`` of the measure and
          its ``difference`` from the value of the first pipeline. ``lower`` and ``upper`` are the
          ends of the interval of this difference.

    Raises
    ------
    CadError
        When no region was measured by all pipelines, or when there are neither histology nor
        readers' scores.
    """
    tables = {name: run.results.set_index(KEYS) for name, run in runs.items()}
    reference = next(iter(tables))
    common = tables[reference].index
    for table in tables.values():
        # Pipelines are compared on the same regions. A region that one of the pipelines could not
        # measure is left out for all of them.
        common = common.intersection(table.index)
    if not len(common):
        raise CadError(f"no region was measured by all of {', '.join(tables)}")
    reference_regions = tables[reference].loc[common]
    probabilities = {}
    centred = {}
    for name, table in tables.items():
        probabilities[name] = table.loc[common, "probability"].to_numpy(float)
        if "centred" in table:  # a pipeline that was not validated has no such column
            centred[name] = table.loc[common, "centred"].to_numpy(float)
    compared = compare_probabilities(
        probabilities,
        common.get_level_values("participant_id").to_numpy(str),
        reference=reference,
        target=reference_regions["p"].to_numpy(float),
        truth=reference_regions["truth"].to_numpy(float),
        centred=centred,
        # Without folds nothing was validated.
        n_folds=len(runs[reference].summary.folds) or None,
    )
    result: JsonObject = json_safe(
        {
            "reference": reference,
            "sentence": compared.sentence,
            "regions": len(common),
            "table": compared.table.to_dict("records"),
        }
    )
    write_comparison(folder, result)
    return result


def comparison_table(result: JsonObject) -> str:
    """Return the comparison of pipelines as lines for a terminal.

    Parameters
    ----------
    result : dict
        Result of :func:`compare_validated`.
    """
    columns = ["against", "measure", "learner", "value", "difference", "lower", "upper"]
    table = pd.DataFrame(result["table"])[columns].rename(columns={"learner": "pipeline"})
    regions = f"{result['regions']} regions measured by all; differences to {result['reference']}"
    return "\n".join([regions, to_markdown(table), result["sentence"]])
