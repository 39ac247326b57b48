"""Compare: two models, or several pipelines on the same folds, region by region."""

from collections.abc import Mapping

import pandas as pd

from cad.errors import CadError
from cad.evaluation.folds.paired import compare_probabilities
from cad.files import JsonObject, json_safe
from cad.model.comparison import compare_runs
from cad.run_folder import RunFolder
from cad.run_folder.records import write_comparison
from cad.run_folder.tables import KEYS
from cad.stages.judge import Judged
from cad.terms.text import to_markdown


def compare(a: Judged, b: Judged, names: tuple[str, str], folder: RunFolder) -> JsonObject:
    """Compare what two models say of one cohort, and write it as ``comparison.json``.

    Parameters
    ----------
    a, b : Judged
        Predictions of the same regions.
    names : (str, str)
        Of the models.
    folder : RunFolder
        Takes the file.

    Returns
    -------
    dict
        Paired differences, calibration and changed decisions.
    """
    result = compare_runs(a.results, b.results, names)
    write_comparison(folder, result)
    return result


def compare_validated(runs: Mapping[str, Judged], folder: RunFolder) -> JsonObject:
    """Compare the probabilities of several pipelines with those of the first, region by region.

    Parameters
    ----------
    runs : mapping of str to Judged
        Validated on one cohort, by the pipeline's name.
    folder : RunFolder
        Takes ``comparison.json``.

    Returns
    -------
    dict
        ``reference``; ``sentence``; ``regions`` that all have measured; ``table``: value and
        paired difference with its patient-clustered interval by truth, measure and pipeline.

    Raises
    ------
    CadError
        When no region was measured by all, or nothing is known to compare with.
    """
    known = ["truth", "p"]
    tables = {name: run.results.set_index(KEYS) for name, run in runs.items()}
    reference = next(iter(tables))
    common = tables[reference].index
    for table in tables.values():
        # A difference is paired: a region that one pipeline could not measure says nothing of it.
        common = common.intersection(table.index)
    if not len(common):
        raise CadError(f"no region was measured by all of {', '.join(tables)}")
    base = tables[reference].loc[common, known]
    found = compare_probabilities(
        {name: table.loc[common, "probability"].to_numpy(float) for name, table in tables.items()},
        common.get_level_values("participant_id").to_numpy(str),
        reference=reference,
        target=base["p"].to_numpy(float),
        truth=base["truth"].to_numpy(float),
    )
    result: JsonObject = json_safe(
        {
            "reference": reference,
            "sentence": found.sentence,
            "regions": len(common),
            "table": found.table.to_dict("records"),
        }
    )
    write_comparison(folder, result)
    return result


def comparison_table(result: JsonObject) -> str:
    """Return the comparison of pipelines as lines for a terminal.

    Parameters
    ----------
    result : dict
        From :func:`compare_validated`.
    """
    columns = ["against", "measure", "learner", "value", "difference", "lower", "upper"]
    table = pd.DataFrame(result["table"])[columns].rename(columns={"learner": "pipeline"})
    regions = f"{result['regions']} regions measured by all; differences to {result['reference']}"
    return "\n".join([regions, to_markdown(table), result["sentence"]])
