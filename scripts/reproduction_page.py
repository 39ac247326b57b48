"""Write the pages ``reproduction.md`` and ``real-data.md`` from folders of results.

``python scripts/reproduction_page.py RESULTS_DIR docs`` writes the pages with figures, from the
output of ``cad experiment NAME -o RESULTS_DIR``. An experiment without results is named as such.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from cad.base.errors import CadError
from cad.base.files import write_atomic
from cad.base.reading import read_frame
from cad.base.terms.text import to_markdown
from cad.evidence.experiments import EXPERIMENTS, PUBLISHED_DRAW, REAL, draw_of
from cad.evidence.experiments.claims import VERDICTS, Claim, claims, weigh

_HEAD = """# Do the papers' results come out?

*For a researcher: which results of the papers does this program reach?*

Each section below comes from one command, `cad experiment NAME -o OUT`, which stands under its
heading. The option `--data` names the folder of data that are not simulated. Without this option
the experiment `wang2014-uci` fetches its sets from OpenML. The experiment `wang2014-roi` takes the
cohort that `niaf2014-clinical` simulates (`--data OUT/cohort`). All cohorts of patients are
simulated. The lesions of Mesejo et al. 2016, which none of the four papers below had, are real. No
constant was tuned to a published figure. Changes of seeds and tests are in
[history.md](history.md).

The papers are [N14] Niaf et al. 2014, [N13] its abstract of 2013, [W14] Wang et al. 2014 and [A14]
Amirou et al. 2014. [N14] Figs 4 and 5 are the pictures of Tables I and II. Maps over a grid of
settings ([W14] Figs 1 and 4) are shown without a verdict. A table of more than five rows is not
printed on this page but linked as a CSV file. [Methods](methods.md#6-measures-and-validation)
defines two of the measures: KL (the divergence of two probabilities) and Err (the alignment error).
Acc is the accuracy if rows with a probability above .5 are called positive, and MCE is the mean
cross-entropy.

Three learners stand in most sections. The P-SVM (probabilistic SVM) learns from probabilities. The
SVM learns from the two classes. The F-SVM (fuzzy SVM) is an SVM in which a label counts less the
nearer its probability is to ½. P is a probability, true or estimated, and p the probability that is
the label of a point. The P-SVM pays no cost for a point if its probability lies within p ± η; this
interval is called the tube. C is the cost of an error at a certain label (0 or 1), C̃ at an
uncertain label. σ is the width of the Gaussian kernel. The scale, fixed or learned, divides a
decision value before it becomes a probability. A draw is the data that one seed makes or chooses.

## What was claimed and what came out

A claim is a number or an order of methods that a paper prints. Where a figure has no printed
number, the paper's sentence about it is the claim. The verdicts are:

- **yes**: the claim comes out. A claim on several methods comes out if their order is the published
  one. If in [N14] Table II or in the toy of [N13] the P-SVM's own number is worse than the
  published number by more than 1 %, the claim's row of `claims.csv` says so.
- **order only** (for claims on patients): the P-SVM is the best of the methods, as published. But
  it is not better beyond chance, or chance was not tested.
- **no**: the claim does not come out.
- **not defined**: the claim is a quotient whose denominator is 0.
- **shuffled labels too**: the claim comes out, but with labels in random order it also comes out in
  more than one of twenty runs. Such a result is no evidence for a method.
- **not in most other draws**: the claim comes out on the seeds of this page, but in less than half
  of other draws of the data. The other draws have only a tenth to a quarter of the seeds of this
  page. So a small effect may not show in them.
- **no control**: the claim comes out, but was not run with other draws and with shuffled labels.
- **by construction**: the claim follows from the formulas, whatever the decision values are.
- **another cohort**: the numbers are of the paper's own patients, whose data nobody else has.

Most claims that the P-SVM is better than other methods are tested. For claims on patients, the
p-value comes from swapping two methods in random patients, and must be below .05. For claims on
simulated points, the p-value is that of a one-sided signed-rank test over the seeds, and must be
below .001. The P-SVM is compared with each of the other methods, and the largest p-value counts.

`python -m benchmarks.verdicts -o OUT/verdicts --data FOLDER` repeats the experiments with other
draws and with shuffled labels, and counts how often each claim comes out. Copy the file `rates.csv`
that it writes to `OUT`. Then `python scripts/reproduction_page.py OUT docs` makes this page.

All claims but those with the last two verdicts were run with twenty other draws of the data, and
twenty times with shuffled labels ([W14] Fig. 3 with eight and six). Most of the claims on simulated
patients come out with shuffled labels, too. With shuffled labels a learner of probabilities
predicts close to the mean label, and a classifier does not. So the classifier has a larger KL and a
larger error of the probability than the learner of probabilities, although neither has learned
anything.

[claims.csv](reproduction/claims.csv) has the published and the measured value of each claim, and
how often it came out in other draws and with shuffled labels. The next table counts the claims of
each part of a paper by their verdict; its last column names the claims that do not come out. The
claims "KL beside soft-label baselines" are not in the paper. They compare the P-SVM with logistic
regression and kernel ridge, which learn from the same probabilities. "Everybody tuned" means that
the settings of every method are chosen on inner folds, "everybody at σ = 2⁵, C = 2¹³" that every
method has these settings of the paper. "With flaws" means that, as in the paper [W14], settings are
chosen on the test folds (the section on UCI sets names further flaws). "Honest" means that settings
are chosen on training rows alone.
"""
_REAL = """# Real data

*For a researcher: what comes out on real men and real readers?*

The simulated patients of other pages show that the program works. This page has results on real men
and real readers. Each section comes from one command, `cad experiment NAME --data FOLDER -o OUT`,
which stands under its heading. The data are public and not in the package:
[public-data.md](public-data.md) says where they come from and what their licences allow.
"""
MOST_ROWS = {False: 5, True: 16}
"""Most rows of a table on the pages of papers and of real data; a longer table is a file."""
_TABLE = re.compile(r"\*\*(.+?)\*\* \(\[[^\]]+\.csv\]\(([^)]+\.csv)\)\)\n\n((?:\|.*\n)+)")


def write_page(results: Path, docs: Path) -> Path:
    """Write ``reproduction.md`` or ``real-data.md`` with figures, depending on the results.

    Parameters
    ----------
    results : Path
        Folder that the experiments wrote to.
    docs : Path
        Folder to write to.

    Raises
    ------
    CadError
        When the folder holds no result, or results of another draw than the published draw.
    """
    if not any((results / f"{name}.md").is_file() for name in EXPERIMENTS):
        raise CadError(
            "no results here", file=results, hint="run `cad experiment NAME -o FOLDER` first"
        )
    if draw_of(results) != PUBLISHED_DRAW:
        raise CadError(
            "these are results of another draw or of shuffled labels: they make no page",
            file=results,
            hint="run `cad experiment NAME -o FOLDER` without --first-seed and --shuffled",
        )
    papers = [name for name in EXPERIMENTS if name not in REAL]
    written = []
    for page, names in (("reproduction.md", papers), ("real-data.md", REAL)):
        if any((results / f"{name}.md").is_file() for name in names):
            head = [_REAL] if names is REAL else [_HEAD, _verdicts(_weighed(results), docs)]
            written.append(docs / page)
            write_atomic(written[-1], _text(head, names, results, docs))
    return written[0]


def _text(parts: list[str], names: Sequence[str], results: Path, docs: Path) -> bytes:
    for name in names:
        page = results / f"{name}.md"
        parts += [_section(name, page, docs)] if page.is_file() else [f"## `{name}`\n\nNot run.\n"]
    return ("\n".join(parts).rstrip() + "\n").encode()


def _section(name: str, page: Path, docs: Path) -> str:
    """Return one experiment's page under a second-level heading, figures copied."""
    text = page.read_text(encoding="utf-8")
    for figure in re.findall(r"\]\(([^)]+\.png)\)", text):
        write_atomic(docs / "reproduction" / figure, (page.parent / figure).read_bytes())
    text = re.sub(r"\]\(([^)]+\.png)\)", r"](reproduction/\1)", text)
    text = _TABLE.sub(lambda table: _shown(table, page.parent, docs, name in REAL), text)
    title, body = text.split("\n", 1)
    return f"## {title.removeprefix('# ')}\n\n`cad experiment {name}`\n{body}"


def _shown(table: re.Match[str], results: Path, docs: Path, real: bool) -> str:
    """Return a table with its caption, or a long one's caption with a link to its file."""
    caption, file, rows = table.group(1), table.group(2), table.group(3)
    if rows.count("\n") <= MOST_ROWS[real] + 2:
        return f"**{caption}**\n\n{rows}"
    write_atomic(docs / "reproduction" / file, (results / file).read_bytes())
    return f"**{caption}**: [{file}](reproduction/{file})\n"


def _weighed(results: Path) -> list[Claim]:
    """Return the claims with their controls, where ``rates.csv`` stands beside the results."""
    rates = results / "rates.csv"
    if not rates.is_file():
        raise CadError(
            "no rates of the claims in other draws and with shuffled labels",
            file=rates,
            hint="python -m benchmarks.verdicts writes this file",
        )
    return weigh(claims(results), read_frame(rates))


def _verdicts(rows: list[Claim], docs: Path) -> str:
    """Write every claim to a file; return how many hold by table or figure, and name the others.

    A claim is ``source, case: measure``; measures of one case that do not hold stand together.
    """
    table = pd.DataFrame(rows)
    write_atomic(docs / "reproduction" / "claims.csv", table.to_csv(index=False).encode())
    sources = table["claim"].str.split("[,:] ").str[0]
    summary = []
    for source, of_source in table.groupby(sources, sort=False):
        cases: dict[str, list[str]] = {}
        for claim in of_source.loc[of_source["holds"] == "no", "claim"]:
            case, _, measure = claim[len(str(source)) + 2 :].rpartition(": ")
            cases.setdefault(case, []).append(measure)
        missed = []
        for case, measures in cases.items():
            if case:
                missed.append(f"{case}: {', '.join(measures)}")
            else:
                missed.append("; ".join(measures))
        count = of_source["holds"].value_counts()
        row: dict[str, object] = {"claims": source}
        for verdict in VERDICTS:
            row[verdict] = int(count.get(verdict, 0))
        row["what does not come out"] = "; ".join(missed)
        summary.append(row)
    return to_markdown(pd.DataFrame(summary))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python scripts/reproduction_page.py RESULTS_DIR OUT")
    try:
        print(write_page(Path(sys.argv[1]), Path(sys.argv[2])))
    except CadError as error:
        sys.exit(f"cad: {error}")
