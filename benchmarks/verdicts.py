"""Test whether noise gets the same verdict: ``python -m benchmarks.verdicts -o OUT --data FOLDER``.

Every simulated experiment of docs/reproduction.md is run again, with other draws and with labels
that were dealt to other rows. ``--only NAME …`` selects experiments. ``OUT/rates.csv`` counts how
often each claim of the page comes out. ``FOLDER`` holds the folders ``ecg``, ``covertype`` and
``uci`` of public data. Finished runs are kept, and a later call continues from there. Quick
experiments take some 35 minutes of one processor, ``niaf2014-clinical`` an hour, and
``wang2014-uci`` two hours.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from cad.base.files import write_csv
from cad.evidence.experiments import CONTROLLED, Options, run_experiment
from cad.evidence.experiments.claims import count_fulfilled

RUNS = 20
DATA = {"amirou2014-ecg": "ecg", "amirou2014-covertype": "covertype", "wang2014-uci": "uci"}
"""Folders of the public data that experiments need."""
REPEATS = {
    "niaf2014-table1": 10,
    "niaf2014-table2": 20,
    "niaf2014-noise": 10,
    "niaf2014-proportion": 10,
    "niaf2014-discrete": 10,
    "niaf2013-toy": 20,
    "niaf2014-clinical": 5,
    "wang2014-uci": 1,
    "amirou2014-synthetic": 5,
    "amirou2014-ecg": 5,
    "amirou2014-covertype": 5,
}
"""Number of repetitions inside a run, fewer than in the published run: there are forty runs."""
COHORT_OF = {"wang2014-roi": "niaf2014-clinical"}
"""Experiments on a cohort, and the experiment that simulates it."""


def run(name: str, shuffled: bool, number: int, out: Path, data: Path) -> None:
    """Run one experiment once, in the folder of its kind and number, unless it is finished."""
    folder = _folder(out, shuffled, number)
    if (folder / f"{name}.md").is_file():
        return
    source = None
    if name in DATA:
        source = data / DATA[name]
    if name in COHORT_OF or (shuffled and name == "niaf2014-clinical"):
        # This is the cohort with the same number, which was simulated for the other draw.
        source = _folder(out, False, number) / "cohort"
    options = Options(
        out=folder,
        data=source,
        repeats=REPEATS.get(name),
        first_seed=1000 * (number + 1),
        shuffled=shuffled,
    )
    # The problems are small, so that waiting threads cost more than they save.
    with threadpool_limits(1):
        run_experiment(name, options)
    print(f"{folder.name}: {name}", flush=True)


def _folder(out: Path, shuffled: bool, number: int) -> Path:
    kind = "shuffled" if shuffled else "draw"
    return out / f"{kind}-{number:02d}"


def _finished(out: Path, kind: str) -> list[Path]:
    return sorted(folder for folder in out.glob(f"{kind}-*") if folder.is_dir())


def main() -> None:
    """Run the wanted experiments and write the rates of all runs in the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(CONTROLLED), choices=CONTROLLED)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    # Other draws come first, because runs with shuffled labels use their cohorts.
    for shuffled in (False, True):
        work = [
            delayed(run)(name, shuffled, number, arguments.out, arguments.data)
            for number in range(arguments.runs)
            for name in arguments.only
        ]
        Parallel(n_jobs=arguments.jobs)(work)
    rates = count_fulfilled(_finished(arguments.out, "draw"), _finished(arguments.out, "shuffled"))
    write_csv(arguments.out / "rates.csv", rates, list(rates.columns))
    print(rates.to_string(index=False))


if __name__ == "__main__":
    main()
