"""Compare the papers' claims with the results: published value, measured value, and a verdict.

A claim is a sentence of a paper, such as "the P-SVM has the highest AUC". The verdict says whether
the claim holds in this program's results. A verdict in favour of a claim is taken back if it may be
chance (:func:`weigh`). It may be chance if few runs with other random draws fulfil the claim, or if
too many runs with shuffled labels do. ``benchmarks.verdicts`` counts such runs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from cad.base.reading import read_frame
from cad.evidence.experiments.niaf2014 import BASELINES, METHODS, SCALES
from cad.evidence.experiments.niaf2014_clinical import ON_TRUTH, SOFT
from cad.evidence.experiments.wang2014 import NOTABLE

Claim = dict[str, str]
BY_CONSTRUCTION = "by construction"
ELSEWHERE = "another cohort"
BY_NOISE = "shuffled labels too"
BY_LUCK = "not in most other draws"
UNCONTROLLED = "no control"
HOLDS = ("yes", "order only")
"""Verdicts in favour of a method; other draws and shuffled labels can take them back."""
VERDICTS = (
    *HOLDS,
    "no",
    "not defined",
    BY_NOISE,
    BY_LUCK,
    UNCONTROLLED,
    BY_CONSTRUCTION,
    ELSEWHERE,
)
"""All verdicts.

BY_NOISE means that too many runs with shuffled labels fulfil the claim. BY_LUCK means that too few
runs with other random draws fulfil it. UNCONTROLLED means that such runs are missing.
BY_CONSTRUCTION means that coin flips would fulfil the claim, and ELSEWHERE that the claim needs a
cohort which is not public.
"""
MOST_NOISE = 0.05
"""Largest share of runs with shuffled labels that may fulfil a claim."""
LEAST_DRAWS = 0.5
"""Least share of runs with other random draws that must fulfil a claim."""
MARGIN = 0.05
"""Largest loss of AUC with which "as good as" still holds.

The lower end of the interval of the AUC difference must be at least minus this number.
"""
EQUAL_AT = 0.24
"""Cost of rejection at which the two rules of [A14], cost-based and symmetric, reject alike."""
_ORDER = "P-SVM > F-SVM > SVM"
# Measures in the tables of [N14] on patients: 1 if larger values are better, -1 if smaller values
# are.
_CLINICAL = {"AUC": 1, "Acc": 1, "KL": -1, "KL one-sided": -1, "Err": -1}
_N13 = {"AUC": 1, "KL one-sided": -1, "Err": -1, "MCE": -1}
_MEASURED = {"AUC": 1, "Acc": 1, "KL": -1, "Err": -1}
_COUNTED = ("draws", "draws yes", "draws first", "shuffled", "shuffled yes", "shuffled first")
BEYOND_CHANCE = 0.001
"""Largest p-value of a signed-rank test over seeds with which one method counts as better."""


def claims(results: Path) -> list[Claim]:
    """Return each claim's published and measured value, and its verdict.

    All values are read from the tables that the experiments wrote.

    Parameters
    ----------
    results : Path
        Folder that the experiments wrote to.

    Returns
    -------
    list of dict
        ``claim``, ``published``, ``measured`` and ``holds``, one of :data:`VERDICTS`, or "" where
        the experiment was not run.
    """
    rows: list[Claim] = []
    for check in _CHECKS:
        try:
            rows += check(results)
        except FileNotFoundError as error:
            missing = Path(str(error.filename)).stem
            rows.append(_claim(missing, "", "not run", None))
    return rows


def weigh(verdicts: list[Claim], rates: pd.DataFrame) -> list[Claim]:
    """Return the claims, with verdicts taken back if the controls speak against them.

    Controls are runs with other random draws and runs with shuffled labels.

    Parameters
    ----------
    verdicts : list of dict
        The claims with their verdicts, from :func:`claims`.
    rates : DataFrame
        How often other draws and shuffled labels fulfil each claim, from :func:`count_fulfilled`.

    Returns
    -------
    list of dict
        The claims with two more entries, ``other draws`` and ``shuffled``: how many of these runs
        fulfil the claim, such as "19 of 20". They are "" where there was no such run, and where the
        verdict is :data:`BY_CONSTRUCTION` or :data:`ELSEWHERE`. ``holds`` has the final verdict.
    """
    by_claim = rates.set_index("claim")
    weighed = []
    for claim in verdicts:
        row = claim | {"other draws": "", "shuffled": ""}
        if claim["holds"] in (BY_CONSTRUCTION, ELSEWHERE):
            # No run can speak for or against a claim that holds for any scores, or a claim on
            # patients whose data nobody else has.
            weighed.append(row)
            continue
        n_draws = 0
        n_shuffled = 0
        n_draws_fulfilling = 0
        n_shuffled_fulfilling = 0
        if claim["claim"] in by_claim.index:
            rate = by_claim.loc[claim["claim"]]
            # Runs with other draws or shuffled labels are counted if they reach this level. For the
            # verdict "order only" it is enough that the method comes first, even if its lead may be
            # chance.
            level = "first" if claim["holds"] == "order only" else "yes"
            n_draws = int(rate["draws"])
            n_draws_fulfilling = int(rate[f"draws {level}"])
            n_shuffled = int(rate["shuffled"])
            n_shuffled_fulfilling = int(rate[f"shuffled {level}"])
        if n_draws:
            row["other draws"] = f"{n_draws_fulfilling} of {n_draws}"
        if n_shuffled:
            row["shuffled"] = f"{n_shuffled_fulfilling} of {n_shuffled}"
        if claim["holds"] in HOLDS:
            if not n_draws or not n_shuffled:
                row["holds"] = UNCONTROLLED
            elif n_shuffled_fulfilling > MOST_NOISE * n_shuffled:
                row["holds"] = BY_NOISE
            elif n_draws_fulfilling < LEAST_DRAWS * n_draws:
                row["holds"] = BY_LUCK
        weighed.append(row)
    return weighed


def count_fulfilled(draws: list[Path], shuffled: list[Path]) -> pd.DataFrame:
    """Count how many runs with other random draws, and with shuffled labels, fulfil each claim.

    Parameters
    ----------
    draws : list of Path
        Folders of results of other draws, each of one or several experiments.
    shuffled : list of Path
        The same kind of folders, with results of shuffled labels.

    Returns
    -------
    DataFrame
        A row for each claim that was run: ``claim``; ``draws``, the number of runs; ``draws yes``,
        the number of runs with the verdict "yes"; ``draws first``, the number with "yes" or "order
        only" (the method comes first, but its lead may be chance). The columns ``shuffled``,
        ``shuffled yes`` and ``shuffled first`` have the same numbers for shuffled labels.
    """
    counts: dict[str, dict[str, int]] = {}
    for kind, folders in (("draws", draws), ("shuffled", shuffled)):
        for folder in folders:
            for row in claims(folder):
                if not row["holds"]:  # the folder has no results of this experiment
                    continue
                count = counts.setdefault(row["claim"], dict.fromkeys(_COUNTED, 0))
                count[kind] += 1
                count[f"{kind} yes"] += row["holds"] == "yes"
                count[f"{kind} first"] += row["holds"] in HOLDS
    rows = [{"claim": claim, **count} for claim, count in counts.items()]
    return pd.DataFrame(rows, columns=["claim", *_COUNTED])


def _claim(what: str, published: str, measured: str, holds: bool | str | None) -> Claim:
    """Return one row of the comparison.

    ``holds`` is the verdict in words, or whether the claim holds, or None if it was not run.
    """
    if holds is None:
        verdict = ""
    elif isinstance(holds, str):
        verdict = holds
    else:
        verdict = "yes" if holds else "no"
    return {"claim": what, "published": published, "measured": measured, "holds": verdict}


def as_good(difference: str) -> bool:
    """Return whether a method is as good as another, by their AUC difference "d [lower, upper]".

    It is as good if the lower end of the interval is at least minus :data:`MARGIN`.
    """
    interval = difference.split("[")[1]
    lower = float(interval.split(",")[0])
    return lower >= -MARGIN


def _nested(holds: object, follows: str) -> bool | str:
    """Return the verdict on a claim that may follow from how the compared rules are built.

    If ``follows`` is not empty, the claim follows. Then it is no merit of a method that the claim
    ``holds``, and the verdict is :data:`BY_CONSTRUCTION`. Otherwise the verdict is whether it
    holds.
    """
    return BY_CONSTRUCTION if holds and follows else bool(holds)


def _read_result(results: Path, name: str) -> pd.DataFrame:
    return read_frame(results / f"{name}.csv")


def _table1_verdicts(results: Path) -> list[Claim]:
    """Return a verdict for each measure of [N14] Table I.

    For the measure KL, the ratio between methods is compared with the published ratio.
    """
    rows = _read_result(results, "niaf2014-table1-1")
    ratios = _read_result(results, "niaf2014-table1-2")
    verdicts = []
    for reading in ("standard deviation .3", "variance .3"):
        for method, scale in SCALES.items():
            by_method = rows[rows["reading"] == reading].set_index("method")
            # A ratio says how many times larger another method's error is. The claim must hold
            # against all other methods, so the smallest ratio counts.
            of_method = (ratios["reading"] == reading) & (ratios["against"] == method)
            least_ratios = ratios[of_method].min(numeric_only=True)
            err_ratio = least_ratios["Err / Err of the P-SVM"]
            kl_ratio = least_ratios["KL / KL of the P-SVM"]
            one_sided_ratio = least_ratios["KL one-sided / KL one-sided of the P-SVM"]
            psvm = by_method.loc[method]
            svm = by_method.loc["SVM"]
            one_sided = by_method["KL one-sided"]
            claim_name = f"[N14] Table I, {reading}, {scale} scale"
            verdicts += [
                _claim(
                    f"{claim_name}: AUC and Acc",
                    "1, 1 (SVM and F-SVM 1, .99)",
                    f"{psvm['AUC']:.4f}, {psvm['Acc']:.3f} ({svm['AUC']:.4f}, {svm['Acc']:.3f})",
                    bool(psvm["AUC"] >= 0.999 and psvm["Acc"] >= 0.99),
                ),
                _claim(
                    f"{claim_name}: Err",
                    "1e-5 against 6e-4, 60 × below",
                    f"{psvm['Err']:.1e}, {err_ratio:.0f} × below",
                    bool(err_ratio >= 60),
                ),
                _claim(
                    f"{claim_name}: KL one-sided",
                    "0.4 against 11, 27 × below",
                    f"{one_sided[method]:.3g} against {one_sided['SVM']:.3g} and "
                    f"{one_sided['F-SVM']:.3g}",
                    bool(one_sided_ratio >= 27),
                ),
                _claim(
                    f"{claim_name}: KL two-sided",
                    "27 × below, as the one-sided",
                    f"{kl_ratio:.3g} × below",
                    bool(kl_ratio >= 27),
                ),
            ]
    return verdicts


_PUBLISHED_2 = {
    "AUC": (1.0, 0.97, 0.99),
    "Acc": (0.98, 0.93, 0.96),
    "KL one-sided": (23.0, 255.0, 166.0),
    "Err": (0.015, 0.061, 0.043),
}
"""Published values of [N14] Table II, for the P-SVM, the SVM and the F-SVM."""


def _table2_verdicts(results: Path) -> list[Claim]:
    """Return the verdicts on [N14] Table II.

    They say for each measure whether the P-SVM comes first, as published, and whether it reaches
    its published value.
    """
    rows = _read_result(results, "niaf2014-table2-1")
    tests = _read_result(results, "niaf2014-table2-2")
    verdicts = []
    for eta in (0.01, 0.1, 0.15):
        by_method = rows[(rows["means"] == "diagonal") & (rows["eta"] == eta)].set_index("method")
        for method, scale in SCALES.items():
            compared = (tests["means"] == "diagonal") & (tests["eta"] == eta)
            compared &= (tests["method"] == method) & tests["against"].isin(METHODS)
            claim_name = f"[N14] Table II, η = {eta:.2f}, {scale} scale"
            for measure, published in _PUBLISHED_2.items():
                psvm = float(by_method.at[method, measure])
                svm = float(by_method.at["SVM", measure])
                fuzzy = float(by_method.at["F-SVM", measure])
                # With this sign the better method has the larger value, for every measure.
                sign = -1 if measure in ("KL one-sided", "Err") else 1
                is_first = sign * psvm >= max(sign * svm, sign * fuzzy)
                # The P-SVM must lead both other methods, so the larger p-value counts.
                p = tests.loc[compared, f"p ({measure})"].max()
                measured = f"{psvm:.3g} / {svm:.3g} / {fuzzy:.3g}; p {p:.1e}"
                verdicts.append(
                    _claim(
                        f"{claim_name}: {measure}",
                        "{:g} / {:g} / {:g}".format(*published),
                        measured + _reached(psvm, published[0], sign),
                        bool(is_first and p < BEYOND_CHANCE),
                    )
                )
            verdicts.append(
                _baselines(by_method, method, f"{claim_name}: KL beside soft-label baselines")
            )
    return verdicts


def _baselines(by_method: pd.DataFrame, method: str, what: str) -> Claim:
    """Return whether a P-SVM has a lower KL than the learners that learn from the same labels."""
    kl = by_method.loc[[method, *BASELINES], "KL"].astype(float)
    return _claim(
        what,
        "not in the paper: P-SVM below them in two-sided KL",
        _named_values(kl, ".3g"),
        bool(kl[method] <= kl.min()),
    )


def _named_values(values: pd.Series, digits: str) -> str:
    """Return names and values in a line: ``SVM 0.81, F-SVM 0.82``."""
    texts = []
    for name, value in values.items():
        texts.append(f"{name} {value:{digits}}")
    return ", ".join(texts)


def _level_text(level: object) -> str:
    """Return a level, such as an amplitude of noise, as text without a needless ``.0``."""
    return str(level).removesuffix(".0")


def _reached(value: float, published: float, sign: int) -> str:
    """Return a note where the P-SVM is worse than its own published value by more than 1 %; else
    "".
    """
    reaches_published = sign * value >= sign * published - 0.01 * abs(published)
    return "" if reaches_published else "; P-SVM short of published"


def _outlier_verdicts(results: Path) -> list[Claim]:
    """Return the verdict on [N14] Fig. 3: does one uncertain point pull the frontier to itself?

    With the label p = .51 the frontier must lie less than half as far from 0 as with the label +1,
    and the point must have about this probability.
    """
    rows = _read_result(results, "niaf2014-outlier-1").set_index("outlier's label")
    frontier = rows["frontier at the point's y"]
    p = rows["P of the outlier"]
    hard = "label +1"
    soft = "label p = .51"
    frontier_is_nearer = abs(frontier[soft]) < abs(frontier[hard]) / 2
    return [
        _claim(
            "[N14] Fig. 3 (and 1): one uncertain point, Bayes' frontier at 0",
            "labelled +1 it deviates the frontier largely; labelled .51 it lies on it",
            f"frontier beside the point at {frontier[hard]:.3g} and {frontier[soft]:.3g}; its "
            f"probability {p[hard]:.2f} and {p[soft]:.2f}, η = .1",
            bool(frontier_is_nearer and abs(p[soft] - 0.51) <= 0.1),
        )
    ]


def _order_verdicts(results: Path) -> list[Claim]:
    return _orders(results) + _effects_of_share(results)


def _orders(results: Path) -> list[Claim]:
    """Return the verdicts on the order of the three methods, by figure and scale."""
    verdicts = []
    for figure, name in (
        ("Fig. 6", "niaf2014-noise"),
        ("Fig. 7", "niaf2014-proportion"),
        ("VI, five-level labels (no number printed)", "niaf2014-discrete"),
    ):
        table = _read_result(results, f"{name}-2")
        for scale, of_scale in table.groupby("scale", sort=False):
            # A row for each level, such as an amplitude of noise; a column for each measure; in the
            # cells an order such as "P-SVM > SVM > F-SVM".
            order = of_scale.drop(columns="scale").set_index(of_scale.columns[0])
            if name == "niaf2014-proportion":
                # Here the level is the share of labels that are probabilities. At level 0 all
                # labels are certain. The three methods are then the same SVM and have no order.
                order = order[order.index.map(_level_text) != "0"]
            as_published = order.eq(_ORDER)
            psvm_first = order.apply(lambda cells: cells.astype(str).str.startswith("P-SVM"))
            other_orders = []
            psvm_behind = []
            for measure in order:
                for level in order.index:
                    cell = f"{measure} at {_level_text(level)}"
                    if not as_published.at[level, measure]:
                        other_orders.append(cell)
                    if not psvm_first.at[level, measure]:
                        psvm_behind.append(cell)
            verdicts.append(
                _claim(
                    f"[N14] {figure}, {scale} scale",
                    f"{_ORDER} at each level",
                    f"{int(as_published.sum().sum())} of {as_published.size}; another order: "
                    f"{', '.join(other_orders) or 'none'}; P-SVM not first: "
                    f"{', '.join(psvm_behind) or 'none'}",
                    bool(as_published.all().all()),
                )
            )
    return verdicts


def _effects_of_share(results: Path) -> list[Claim]:
    """Return the verdicts on what more labels that are probabilities change in the P-SVM."""
    verdicts = []
    rows = _read_result(results, "niaf2014-proportion-1").set_index(["method", "share"])
    for method, scale in SCALES.items():
        by_share = rows.loc[method].sort_index()
        at_none = by_share.iloc[0]
        at_all = by_share.iloc[-1]
        changes = []
        all_better = True
        for measure, sign in _MEASURED.items():
            changes.append(f"{measure} {at_none[measure]:.3g} to {at_all[measure]:.3g}")
            all_better = all_better and sign * at_all[measure] > sign * at_none[measure]
        verdicts.append(
            _claim(
                f"[N14] Fig. 7, {scale} scale: more probabilistic labels",
                "classification and probabilities get better (no number printed)",
                f"from none to all: {', '.join(changes)}",
                bool(all_better),
            )
        )
    return verdicts


def _toy_verdicts(results: Path) -> list[Claim]:
    """Return the verdicts on the example of [N13]: is the P-SVM better than the SVM?"""
    medians = _read_result(results, "niaf2013-toy-1").set_index("method")
    tests = _read_result(results, "niaf2013-toy-2")
    tests = tests[tests["against"] == "SVM"].set_index("method")
    rows = []
    for method, scale in SCALES.items():
        for measure, sign in (("Acc", 1), ("KL one-sided", -1)):
            value = medians.at[method, measure]
            paper = medians.at["P-SVM published", measure]
            p = tests.at[method, f"p ({measure})"]
            rows.append(
                _claim(
                    f"[N13] toy, {scale} scale: {measure}",
                    f"P-SVM {paper:g}, SVM {medians.at['SVM published', measure]:g}",
                    f"{value:.3g}, {medians.at['SVM', measure]:.3g}; p {p:.1e}"
                    + _reached(value, paper, sign),
                    bool(p < BEYOND_CHANCE),
                )
            )
    return rows


def _clinical_verdicts(results: Path) -> list[Claim]:
    """Return a verdict on each claim of [N13] and [N14] about patients.

    There is a verdict for each combination of a table of [N14] (III to VI), a block of settings and
    a measure. The other verdicts are those of :func:`_abstract`, and verdicts on learning from
    readers' scores.
    """
    rows = _read_result(results, "niaf2014-clinical-1")
    published = _read_result(results, "niaf2014-clinical-4").set_index(["table", "method"])
    verdicts = []
    for block in rows["settings"].dropna().unique():
        for table in ("III", "IV", "V", "VI"):
            by_method = rows[(rows["table"] == table) & (rows["settings"] == block)]
            by_method = by_method.set_index("method")
            for measure, sign in _CLINICAL.items():
                # A cell has the value and its interval, such as "0.86 [0.80, 0.91]".
                value = by_method[measure].str.split(" ").str[0].astype(float)
                printed = "not printed"
                if measure != "KL" and np.isfinite(published.at[(table, "P-SVM"), measure]):
                    printed = _of_three_methods(published.loc[table, measure], "g")
                p = by_method.loc[["SVM", "F-SVM"], f"p ({measure})"]
                # With this sign the better method has the larger value, for every measure.
                signed = sign * value
                psvm = signed["P-SVM"]
                rivals = signed[["SVM", "F-SVM"]]
                soft_label_learners = signed[signed.index.isin(SOFT)]
                better = soft_label_learners.index[soft_label_learners > psvm]
                measured = _of_three_methods(value, ".3g")
                measured += f"; p {p['SVM']:.3f}, {p['F-SVM']:.3f}"
                if (psvm <= rivals).all():
                    measured += "; P-SVM worst"
                if len(better):
                    measured += f"; better: {_named_values(value[better], '.3g')}"
                verdicts.append(
                    _claim(
                        f"[N14] Table {table}, {block}: {measure}",
                        printed,
                        measured,
                        _first_beyond_chance(bool((psvm >= rivals).all()), float(p.max())),
                    )
                )
    verdicts += _abstract(rows, published)
    learned = _read_result(results, "niaf2014-clinical-2").set_index("learned from")
    for name in ("the expert's scores", "all readers' scores"):
        row = learned.loc[name]
        verdicts.append(
            _claim(
                f"[N14] VI: learning from {name} is as good as from histology",
                f"AUC .857 and .862 against .86; not worse by more than {MARGIN:g}",
                f"{row['AUC']} against {learned.at['histology', 'AUC']}; difference "
                f"{row['difference from histology']}",
                as_good(str(row["difference from histology"])),
            )
        )
    return verdicts


def _of_three_methods(values: pd.Series, digits: str) -> str:
    """Return the values of the P-SVM, the SVM and the F-SVM as the papers print them."""
    return " / ".join(f"{values[method]:{digits}}" for method in ("P-SVM", "SVM", "F-SVM"))


def _first_beyond_chance(first: bool, p: float) -> bool | str:
    """Return the verdict on whether a method comes first, from the p-value ``p`` of its lead."""
    if not first:
        return False
    return True if p < 0.05 else "order only"


def _abstract(rows: pd.DataFrame, published: pd.DataFrame) -> list[Claim]:
    """Return the verdicts on the table of [N13], and on the KL of [N14] with one and many
    readers.
    """
    rows = rows.set_index(["table", "settings", "method"])
    # A cell has the value and its interval, such as "0.86 [0.80, 0.91]".
    values = rows[list(_N13)].apply(lambda cells: cells.str.split(" ").str[0].astype(float))
    verdicts = []
    for block in rows.index.unique("settings").dropna():
        for name, table in (("expert", "III"), ("histology", "IV")):
            for measure, sign in _N13.items():
                value = values.at[(table, block, "P-SVM"), measure]
                rival = values.at[(table, block, "SVM"), measure]
                paper = published[measure].loc[f"N13, {name}"]
                p = rows.loc[(table, block, "SVM")].get(f"p ({measure})", np.nan)
                tested = f"p {p:.3f}" if np.isfinite(p) else "not tested"
                is_first = bool(sign * value > sign * rival)
                verdicts.append(
                    _claim(
                        f"[N13] learned from the expert, tested on {name}, {block}: {measure}",
                        f"{paper['P-SVM']:g} / {paper['SVM']:g}",
                        f"{value:.3g} / {rival:.3g} ({tested})",
                        _first_beyond_chance(is_first, float(p)),
                    )
                )
        many_readers = values.at[("V", block, "P-SVM"), "KL one-sided"]
        one_reader = values.at[("III", block, "P-SVM"), "KL one-sided"]
        verdicts.append(
            _claim(
                f"[N14] VI: many readers and their spread instead of one η, {block}: KL one-sided",
                "30.8 instead of 43",
                f"{many_readers:.3g} instead of {one_reader:.3g}, each against the scores that it "
                "learned",
                # The two are measured against different scores, so no test compares them.
                "order only" if many_readers < one_reader else False,
            )
        )
    value = values.loc[ON_TRUTH].iloc[0]
    paper = published.loc[(ON_TRUTH, "P-SVM")]
    for measure in _N13:
        verdicts.append(
            _claim(
                f"[N13] learned from and tested on histology: {measure}",
                f"{paper[measure]:g}",
                f"{value[measure]:.3g}",
                ELSEWHERE,
            )
        )
    return verdicts


def _wang(results: Path) -> list[Claim]:
    """Return the verdicts on [W14] Tables 2 to 4, with and without the flaws of the paper."""
    aucs = _read_result(results, "wang2014-uci-1").set_index("protocol")
    verdicts = []
    # Numbers of the experiment's tables with the sets won, and with the p-values.
    for mode, number_of_won, number_of_p in (("with flaws", 3, 4), ("honest", 6, 7)):
        won = _read_result(results, f"wang2014-uci-{number_of_won}").set_index("method")
        p = _read_result(results, f"wang2014-uci-{number_of_p}").set_index("method").astype(str)
        verdicts += [
            _mean_aucs_verdict(mode, aucs.loc[mode], aucs.loc["published"]),
            _won_sets_verdict(mode, won),
            _better_rankers_verdict(mode, aucs.loc[mode], p),
        ]
    return verdicts


def _mean_aucs_verdict(mode: str, aucs: pd.Series, published: pd.Series) -> Claim:
    """Return whether the mean AUC of each ranker is within ``NOTABLE`` of the published one."""
    gap = (aucs - published).abs()
    published_text = " ".join(f"{auc:.3f}" for auc in published)
    measured = " ".join(f"{auc:.3f}" for auc in aucs)
    return _claim(
        f"[W14] Table 2, mean AUC over the sets, {mode}",
        f"{published_text}, each within {NOTABLE:g}",
        f"{measured}; largest difference {gap.max():.3f} ({gap.idxmax()})",
        bool(gap.max() <= NOTABLE),
    )


def _won_sets_verdict(mode: str, cells: pd.DataFrame) -> Claim:
    """Return whether SSLROC, a ranker of [W14], wins on more data sets than it loses on.

    A cell of ``cells`` has the numbers of sets on which the row's method wins, ties and loses
    against the column's method, such as "25-2-7".
    """
    measured = []
    holds = True
    for ranker in ("SSLROC1", "SSLROC2"):
        against_others = cells.loc[ranker].drop(["SSLROC1", "SSLROC2"])
        counts = against_others.str.split("-", expand=True).astype(int)  # won, tied, lost
        lead = counts[0] - counts[2]
        narrowest = lead.idxmin()
        measured.append(
            f"{ranker} against {(lead > 0).sum()} of {len(lead)}, narrowest "
            f"{against_others[narrowest]} ({narrowest})"
        )
        holds = holds and bool((lead > 0).all())
    return _claim(
        f"[W14] Table 3, {mode}: SSLROC wins on more sets than it loses",
        "against each of six; narrowest SSLROC1 25-2-7, SSLROC2 23-2-9",
        "; ".join(measured),
        holds,
    )


def _better_rankers_verdict(mode: str, aucs: pd.Series, p: pd.DataFrame) -> Claim:
    """Return whether SSLROC, a ranker of [W14], has a higher mean AUC than the other rankers.

    In the p-values ``p`` a star marks significance.
    """
    rivals = [name for name in p.index if not name.startswith("SSLROC")]
    measured = []
    holds = True
    for ranker in ("SSLROC1", "SSLROC2"):
        beaten = []
        for rival in rivals:
            if p.at[ranker, rival].endswith("*") and aucs[ranker] > aucs[rival]:
                beaten.append(rival)
        names = ", ".join(beaten) or "none"
        measured.append(f"{ranker} against {len(beaten)} of {len(rivals)} ({names})")
        holds = holds and len(beaten) == len(rivals)
    return _claim(
        f"[W14] Table 4, {mode}: SSLROC is better than the six others",
        "higher mean AUC, Wilcoxon over sets significant after Hochberg (*)",
        "; ".join(measured),
        holds,
    )


def _wang_roi(results: Path) -> list[Claim]:
    """Return the verdict on [W14] Fig. 3: the order of the rankers on regions."""
    rows = _read_result(results, "wang2014-roi-1").set_index("method")
    best = str(rows["AUC"].idxmax())
    lowest_of_sslroc = rows.loc[["SSLROC1", "SSLROC2"], "AUC"].min()
    best_of_others = rows.loc[["SVMlin", "SSRankBoost"], "AUC"].max()
    errors = rows["standard error"]
    return [
        _claim(
            "[W14] Fig. 3, regions: RankBoost first, both SSLROC before SVMlin and SSRankBoost",
            "RankBoost .914, SSLROC2 .909 (CT colonography)",
            f"{_named_values(rows['AUC'], '.3f')}; standard errors {errors.min():.3f} to "
            f"{errors.max():.3f}; highest: {best}",
            bool(best == "RankBoost" and lowest_of_sslroc > best_of_others),
        )
    ]


def _reject_verdicts(results: Path) -> list[Claim]:
    """Return the verdicts on the error-reject ratios of [A14], in two definitions.

    For each data set and definition there are two claims: that the ratio of the cost-based rule is
    the steeper one, and that both ratios are about the published ones.
    """
    verdicts = []
    definitions = {
        "share of the rejected that were errors": "rejects that were errors",
        "slope from r = .4 to .5": "ΔE/ΔR, r = .4 to .5",
    }
    for name in ("synthetic", "ecg", "covertype"):
        rows = _read_result(results, f"amirou2014-{name}-1").set_index("rule")
        published = rows["published"]
        for definition, column in definitions.items():
            ratio = pd.to_numeric(rows[column], errors="coerce")
            cost_based = ratio["cost-based"]
            symmetric = ratio["symmetric"]
            # Each rule rejects a band of probabilities around 1/2. Of two nested bands, the inner
            # band always has the larger share of errors.
            follows = (
                " (above r = .2415 the cost-based band lies inside the symmetric one: it must be)"
                if column == "rejects that were errors"
                else ""
            )
            # A rule that rejects no row has no ratio.
            defined = bool(np.isfinite(cost_based) and np.isfinite(symmetric))
            verdicts.append(
                _claim(
                    f"[A14] error-reject ratio, {name}: {definition}{follows}",
                    f"cost-based steeper than symmetric ({published.iloc[0]:g} / "
                    f"{published.iloc[1]:g})",
                    f"{cost_based:.2f} / " + (f"{symmetric:.2f}" if defined else "not defined"),
                    _nested(cost_based < symmetric, follows) if defined else "not defined",
                )
            )
            gap = max(abs(cost_based - published.iloc[0]), abs(symmetric - published.iloc[1]))
            verdicts.append(
                _claim(
                    f"[A14] error-reject ratio, {name}: {definition} (magnitude)",
                    f"{published.iloc[0]:g} / {published.iloc[1]:g}",
                    f"largest distance {gap:.2f}" if defined else "not defined",
                    bool(gap <= 0.05) if defined else "not defined",
                )
            )
    return verdicts


def _reject_rates(results: Path) -> list[Claim]:
    """Return the verdicts on [A14] Figs 6 and 7: at which costs does which rule reject more?"""
    verdicts = []
    for figure, name in (("6", "synthetic"), ("7", "ecg")):
        rows = _read_result(results, f"amirou2014-{name}-2").pivot(
            index="r", columns="rule", values="reject rate"
        )
        difference = (rows["cost-based"] - rows["symmetric"]).dropna()
        below = difference[difference.index < EQUAL_AT]
        above = difference[difference.index > EQUAL_AT]
        at_equal = difference[EQUAL_AT]
        as_published = (below > 0).all() and abs(at_equal) <= 0.01 and (above < 0).all()
        verdicts.append(
            _claim(
                f"[A14] Fig. {figure}: reject rates, {name}",
                f"cost-based more below r = {EQUAL_AT:g}, equal there, less above",
                f"more at {int((below > 0).sum())} of {len(below)} r below, {at_equal:+.3g} "
                f"there, less at {int((above < 0).sum())} of {len(above)} above",
                # For any scores, the values that one rule rejects lie within the band of values
                # that the other rule rejects. Random scores therefore fulfil this claim, too, and
                # it is no merit of the rule.
                _nested(as_published, follows="yes"),
            )
        )
    return verdicts


def _ecg_verdicts(results: Path) -> list[Claim]:
    """Return the verdicts on the ECG data, at the cost r of rejection with the lowest mean cost."""
    rows = _read_result(results, "amirou2014-ecg-4").set_index("rule")
    without_rejection = rows.loc["no rejection"]
    best = rows.loc["cost-based"]
    smallest_cost_of_rejection = _read_result(results, "amirou2014-ecg-2")["r"].min()
    at_edge = best["r"] <= smallest_cost_of_rejection
    edge = " (the edge of the grid: not an optimum)" if at_edge else ""
    return [
        _claim(
            "[A14] ECG: sensitivity",
            "≥ .98 without rejection, higher at the cost-optimal rejection (.982, > .99 at 1.8 %)",
            f"{without_rejection['sensitivity']:.3f}, then {best['sensitivity']:.3f} at "
            f"{100 * best['reject rate']:.1f} % rejected, r = {best['r']:g}{edge}",
            bool(
                without_rejection["sensitivity"] >= 0.98
                and best["sensitivity"] > without_rejection["sensitivity"]
            ),
        ),
        _claim(
            "[A14] ECG: positive predictivity at the cost-optimal rejection",
            "about .998",
            f"{best['positive predictivity']:.3f}",
            bool(best["positive predictivity"] >= 0.9975),
        ),
        _claim(
            "[A14] ECG: the lowest cost lies inside the grid of rejection costs",
            "at 1.8 % rejected",
            f"cost {best['cost']:.3g} at {100 * best['reject rate']:.1f} % rejected, "
            f"{without_rejection['cost']:.3g} without; r = {best['r']:g}{edge}",
            # A lowest cost below the cost without rejection proves little. Random scores have it,
            # too, because rejecting is cheaper than guessing. So the lowest cost must also lie
            # inside the grid of rejection costs, and not at its lower end.
            bool(best["cost"] < without_rejection["cost"] and not at_edge),
        ),
    ]


_CHECKS = (
    _outlier_verdicts,
    _table1_verdicts,
    _table2_verdicts,
    _toy_verdicts,
    _order_verdicts,
    _clinical_verdicts,
    _wang,
    _wang_roi,
    _reject_verdicts,
    _reject_rates,
    _ecg_verdicts,
)
