"""Count nights until drift is detected, and nights without a change until a false alarm.

``python -m benchmarks.drift --work FOLDER`` simulates men (LIGHT grids; 80 men of each kind by
default) and has the released model score them. It keeps for each man the numbers that a node would
keep (in FOLDER, so that a second call is quick). Then it draws years of nights from these men:

- without a change, it draws ``--years`` times 365 nights after a baseline, from men in random
  order. The number of watched nights over the number of alarms is the average run length, whose
  bound is 365;
- with a change after the baseline, it counts the days until the first chart raises an alarm, and
  names that chart.

The number of men in a night is a Poisson number with mean ``--men``. The chart of calibration
learns the truth of a third of the men.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd

from cad.evidence.phantom.protocols import LIGHT
from cad.evidence.phantom.simulator import write_cohort
from cad.folders.cohort import read_cohort
from cad.learning.evaluation.measures.drift import NIGHTS, first_alarm
from cad.run.execution.options import ExecutionOptions
from cad.run.pipeline import predict_cohort
from cad.run.workflows.watch import (
    BASELINE,
    CHAMPION,
    Truth,
    Watched,
    drift_charts,
    truths_of,
    watched,
)

MODELS = ["phantom-psvm", "phantom-psvm-biparametric"]
SEED = 4100
# Number of nights before the change, after the nights of the baseline.
QUIET = 30
LONGEST = 200
TOLD = 1 / 3

Pool = tuple[list[Watched], dict[str, list[Truth]]]


def noisier() -> tuple[object, ...]:
    """Return protocols after a change of scanner at both sites: another echo time, more noise."""
    changed = []
    for protocol in LIGHT:
        repetition, echo = protocol.t2_times
        noise = tuple(1.4 * value for value in protocol.noise)
        changed.append(replace(protocol, t2_times=(repetition, 0.8 * echo), noise=noise))
    return tuple(changed)


def broken(cohort: Path) -> None:
    """Scale every ADC map by .75, as a wrongly read b-value does."""
    for path in cohort.glob("sub-*/dwi/*_ADC.nii.gz"):
        image = nib.load(path)
        values = np.asarray(image.dataobj) * 0.75
        nib.save(nib.Nifti1Image(values.astype(np.float32), image.affine, image.header), path)


def pool(work: Path, name: str, men: int) -> Pool:
    """Return the numbers that a node keeps of one kind of men, and their regions' truth by man."""
    kept = work / f"{name}.json"
    cohort = work / name / "cohort"
    if not kept.exists():
        shutil.rmtree(work / name, ignore_errors=True)
        protocols = LIGHT
        if name == "scanner":
            protocols = noisier()
        write_cohort(cohort, men, SEED, protocols)
        if name == "broken":
            broken(cohort)
        run = work / name / "run"
        predict_cohort(MODELS, cohort, run, ExecutionOptions(jobs=1))
        rows = [row.as_dict() for row in watched(run, cohort, MODELS, CHAMPION, 0)]
        rois = read_cohort(cohort).rois
        rois.to_csv(work / f"{name}.tsv", sep="\t", index=False)
        kept.write_text(json.dumps(rows))
    rows = [Watched.from_dict(row) for row in json.loads(kept.read_text())]
    table = pd.read_csv(work / f"{name}.tsv", sep="\t", dtype={"roi_id": str})
    truths: dict[str, list[Truth]] = {}
    for truth in truths_of(table):
        truths.setdefault(truth.man, []).append(truth)
    return rows, truths


def nights_of(
    rng: np.random.Generator, parts: list[tuple[Pool, int]], men_a_night: float
) -> tuple[list[Watched], list[Truth]]:
    """Return the men of each pool for a number of nights, one after another, and known truths."""
    said = []
    told = []
    night = 0
    number = 0
    for (rows, truths), length in parts:
        for _ in range(length):
            for _ in range(rng.poisson(men_a_night)):
                row = rows[int(rng.integers(len(rows)))]
                name = f"sub-{number:06d}"
                said.append(replace(row, man=name, night=night))
                if rng.random() < TOLD:
                    told += [replace(truth, man=name) for truth in truths.get(row.man, [])]
                number += 1
            night += 1
    return said, told


def alarm(said: list[Watched], told: list[Truth]) -> tuple[int, list[str]]:
    """Return the night of the first alarm and the charts that raise it.

    A man with known truth is a step of the chart of calibration. An alarm of this chart is put on
    the night by which the chart had learned that many truths.
    """
    charts = drift_charts(said, told, run_length=NIGHTS)
    calibration = charts.pop("calibration")
    night, names = first_alarm(charts)
    if calibration.alarm >= 0:
        of_man = {row.man: row.night for row in said}
        order = list(dict.fromkeys(truth.man for truth in told))
        when = of_man[order[calibration.alarm]]
        if night < 0 or when < night:
            return when, ["calibration"]
    return night, list(names)


def without_change(rng: np.random.Generator, at: Pool, years: int, men: float) -> None:
    """Print how rare false alarms are."""
    before = int(np.ceil(2.5 * BASELINE / men))
    watched_nights = 0
    alarms: Counter[str] = Counter()
    for _ in range(years):
        said, told = nights_of(rng, [(at, before + 365)], men)
        night, names = alarm(said, told)
        if night < 0:
            watched_nights += before + 365
        else:
            watched_nights += night + 1
            alarms.update(names[:1])
    total = sum(alarms.values())
    length = watched_nights / max(total, 1)
    verdict = "met"
    if length < NIGHTS:
        verdict = "MISSED"
    print(
        f"{years} years, {men:g} men a night: {total} alarms in {watched_nights} nights, "
        f"average run length {length:.0f} (bound: {NIGHTS:.0f}, {verdict})"
    )
    print("by chart:", dict(alarms.most_common()))


def with_change(
    rng: np.random.Generator, name: str, before: Pool, after: Pool, men: float, trials: int
) -> None:
    """Print a row of the table of days to detection."""
    quiet = int(np.ceil(2.5 * BASELINE / men)) + QUIET
    days = []
    early = 0
    charts: Counter[str] = Counter()
    for _ in range(trials):
        said, told = nights_of(rng, [(before, quiet), (after, LONGEST)], men)
        night, names = alarm(said, told)
        if 0 <= night < quiet:
            early += 1
            continue
        days.append(night - quiet + 1 if night >= 0 else LONGEST + 1)
        charts.update(names[:1])
    if not days:
        print(f"| {name} | {men:g} | no trial without an earlier alarm |")
        return
    low, middle, high = np.percentile(days, [10, 50, 90])
    seen = np.mean(np.array(days) <= LONGEST)
    first = ", ".join(f"{chart} {count / len(days):.0%}" for chart, count in charts.most_common(3))
    print(f"| {name} | {men:g} | {middle:.0f} ({low:.0f} to {high:.0f}) | {seen:.0%} | {first} |")


def main() -> None:
    """Print run length and days to detection."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--pool", type=int, default=80)
    parser.add_argument("--years", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--men", type=float, nargs="+", default=[3.0])
    words = parser.parse_args()
    words.work.mkdir(parents=True, exist_ok=True)
    usual = pool(words.work, "usual", words.pool)
    scanner = pool(words.work, "scanner", words.pool)
    sequence = pool(words.work, "broken", words.pool)
    rows, truths = usual
    ill = [row for row in rows if any(truth.malignant for truth in truths.get(row.man, []))]
    print(f"{len(rows)} men, {len(ill)} with cancer")
    rng = np.random.default_rng(0)
    for men in words.men:
        without_change(rng, usual, words.years, men)
        print("| change | men a night | days to the first alarm (10 to 90 %) | seen in 200 | by |")
        print("|---|---|---|---|---|")
        with_change(rng, "scanner", usual, scanner, men, words.trials)
        with_change(rng, "population: cancer in every man", usual, (ill, truths), men, words.trials)
        with_change(rng, "broken ADC (x .75)", usual, sequence, men, words.trials)


if __name__ == "__main__":
    main()
