"""Show the outcome of a study's faults: which check refuses them, or how far probabilities move.

``python -m benchmarks.faults alarms [--men 200] [--seed 700]`` prints how many sound simulated men
the checks refuse, check by check, and the tightest values. With ``--displacement MM`` images lie up
to so far beside T2, and with ``--motion FACTOR`` men move more, as in ``cad simulate``.

``python -m benchmarks.faults table [--men 5] [--seed 900 ...] [--summary FILE]`` prints every fault
of simulated men. A fault is shown with the check that finds it, or with how far the probability of
the largest region moves. The summary has a row for each fault, over all men. Men are on the grids
that the released models were trained on, and a bit more than a quarter of them have significant
cancer. The tables are in docs/import.md.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.ndimage import grey_dilation

from cad.base.files import write_csv
from cad.base.processes import use_one_thread
from cad.evidence.phantom.protocols import FULL
from cad.evidence.phantom.simulator import USUAL, Variation, make_patient
from cad.learning.evaluation.folds.ask import positive_probability
from cad.mri.features.table import extract
from cad.mri.features.typicality import Typicality
from cad.mri.imaging.geometry import resample_image
from cad.mri.imaging.plausibility import RANGES, study_statistics
from cad.mri.imaging.prepare import prepare_study
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import check_study
from cad.mri.imaging.volume import Dynamic, Volume
from cad.run.model.bundle import load_bundle
from cad.run.stages.predict import operating_point, shared_settings

ROOT = Path(__file__).parents[1]
PREVALENCE = 0.28
# A change of the probability by more than this counts as harm.
HARM = 0.1

Change = Callable[[Volume], Volume]


def flipped(axis: int, image: Volume) -> Volume:
    return image.with_array(np.flip(image.array, axis))


def shifted(mm: tuple[float, float, float], image: Volume) -> Volume:
    x, y, z = np.array(image.origin) + np.asarray(image.direction) @ np.array(mm)
    return replace(image, origin=(float(x), float(y), float(z)))


def rolled(axis: int, voxels: int, image: Volume) -> Volume:
    return image.with_array(np.roll(image.array, voxels, axis))


def one_slice(image: Volume) -> Volume:
    return shifted((0, 0, image.spacing[2]), image)


def times(factor: float, image: Volume) -> Volume:
    return image.with_array(image.array * factor)


def inverted(image: Volume) -> Volume:
    return image.with_array(image.array.max() - image.array)


def spaced(factor: float, image: Volume) -> Volume:
    x, y, z = (factor * v for v in image.spacing)
    a, b, c = (factor * v for v in image.origin)
    return replace(image, spacing=(x, y, z), origin=(a, b, c))


def of(kinds: str, change: Change) -> Callable[[Study, Study], Study]:
    """Apply a change to some of a study's images."""

    def apply(study: Study, other: Study) -> Study:
        out = replace(study)
        for kind in kinds.split():
            image = getattr(study, kind)
            if kind == "dce":
                frames = [change(image.grid.with_array(frame)) for frame in image.frames]
                image = replace(image, frames=np.stack([f.array for f in frames]), grid=frames[0])
            else:
                image = change(image)
            setattr(out, kind, image)
        return out

    return apply


def frames(order: Callable[[np.ndarray], np.ndarray]) -> Callable[[Study, Study], Study]:
    def apply(study: Study, other: Study) -> Study:
        assert study.dce is not None
        return replace(study, dce=replace(study.dce, frames=order(study.dce.frames)))

    return apply


def of_another(kind: str, study: Study, other: Study) -> Study:
    """Put another man's voxels in the place of this man's voxels."""
    here, there = getattr(study, kind), getattr(other, kind)
    if kind != "dce":
        return replace(study, **{kind: _as(here, there.array)})
    many = np.stack([_as(here.grid, frame).array for frame in there.frames[: len(here.times)]])
    return replace(study, dce=replace(here, frames=many, times=here.times[: len(many)]))


def _as(here: Volume, array: np.ndarray) -> Volume:
    fitted = np.zeros(here.shape, array.dtype)
    part = tuple(slice(0, min(a, b)) for a, b in zip(here.shape, array.shape, strict=True))
    fitted[part] = array[part]
    return here.with_array(fitted)


def gland_as_region(study: Study, other: Study) -> Study:
    assert study.gland is not None
    return replace(
        study,
        roi_map=study.gland.with_array(study.gland.array.astype(np.uint8)),
        rois=[Roi("1", 1)],
    )


def in_air(study: Study, other: Study) -> Study:
    assert study.roi_map is not None
    labels = np.zeros_like(study.roi_map.array)
    labels[2:5, 2:8, 2:8] = 1
    return replace(study, roi_map=study.roi_map.with_array(labels), rois=[Roi("1", 1)])


def largest_slices(image: Volume) -> Volume:
    """Keep of every region only the slice with most of its voxels."""
    kept = np.zeros_like(image.array)
    for label in np.unique(image.array[image.array > 0]):
        region = image.array == label
        largest = int(region.sum(axis=(1, 2)).argmax())
        kept[largest][region[largest]] = label
    return image.with_array(kept)


def angles_times(factor: float, study: Study, other: Study) -> Study:
    """Multiply every stated flip angle of flip-angle images and dynamic series by a factor."""
    vfa = [(factor * angle, image) for angle, image in study.vfa]
    dce = study.dce
    if dce is not None and dce.flip_angle is not None:
        dce = replace(dce, flip_angle=factor * dce.flip_angle)
    return replace(study, vfa=vfa, dce=dce)


def quarter(image: Volume) -> Volume:
    return _as(image, np.rot90(image.array, axes=(1, 2)))


def noise(image: Volume) -> Volume:
    values = np.random.default_rng(2).permutation(image.array.ravel())
    return image.with_array(values.reshape(image.shape))


def series(change: Callable[[Dynamic], Dynamic]) -> Callable[[Study, Study], Study]:
    return lambda study, other: replace(study, dce=change(study.dce))


def late(dce: Dynamic) -> Dynamic:
    first = int(np.searchsorted(dce.times, dce.times[-1] / 4))
    return replace(dce, frames=dce.frames[first:], times=dce.times[first:] - dce.times[first])


def half_way(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Study, Study], Study]:
    def apply(dce: Dynamic) -> Dynamic:
        half = len(dce.frames) // 2
        return replace(dce, frames=np.concatenate([dce.frames[:half], change(dce.frames[half:])]))

    return series(apply)


def exchanged(frames: np.ndarray) -> np.ndarray:
    order = np.arange(len(frames))
    order[[2, len(frames) // 2]] = order[[len(frames) // 2, 2]]
    return frames[order]


def angles_exchanged(study: Study, other: Study) -> Study:
    (a, first), *between, (b, last) = study.vfa
    return replace(study, vfa=[(a, last), *between, (b, first)])


def swapped(study: Study, other: Study) -> Study:
    return replace(study, t2w=study.adc, adc=study.t2w)


def t2_for_adc(study: Study, other: Study) -> Study:
    assert study.t2w is not None
    assert study.adc is not None
    return replace(study, adc=resample_image(study.t2w, study.adc))


def grown(image: Volume) -> Volume:
    return image.with_array(grey_dilation(image.array, (1, 7, 7)))


def thicker(image: Volume) -> Volume:
    x, y, z = image.spacing
    return replace(image, spacing=(x, y, 2 * z))


def repeated(study: Study, other: Study) -> Study:
    assert study.vfa_repetition_time is not None
    return replace(study, vfa_repetition_time=1000 * study.vfa_repetition_time)


ALL = "t2w adc dce roi_map gland vessel"
SEEN = {
    "ADC upside down": of("adc", partial(flipped, 1)),
    "ADC head for feet": of("adc", partial(flipped, 0)),
    "ADC x 1e-3": of("adc", partial(times, 1e-3)),
    "ADC x 1e3": of("adc", partial(times, 1e3)),
    "ADC all zero but one voxel": of("adc", partial(times, 0.0)),
    "DCE upside down": of("dce", partial(flipped, 1)),
    "DCE head for feet": of("dce", partial(flipped, 0)),
    "DCE frames reversed": frames(lambda f: f[::-1]),
    "DCE without contrast agent": frames(lambda f: np.repeat(f[:1], len(f), axis=0)),
    "T2 upside down": of("t2w", partial(flipped, 1)),
    "T2 head for feet": of("t2w", partial(flipped, 0)),
    "regions 60 mm off": of("roi_map", partial(shifted, (60.0, 0, 0))),
    "the gland as one region": gland_as_region,
    "a region in air": in_air,
    "regions and gland head for feet": of("roi_map gland", partial(flipped, 0)),
    "a region in air, no gland": lambda s, o: replace(in_air(s, o), gland=None),
    "all spacings x 10": of(ALL, partial(spaced, 10.0)),
    "all spacings / 10": of(ALL, partial(spaced, 0.1)),
    "gland / 10": of("gland", partial(spaced, 0.1)),
    "ADC and T2 exchanged": swapped,
    "T2 in ADC's place": t2_for_adc,
    "DCE times in minutes": series(lambda d: replace(d, times=d.times / 60)),
    "DCE times in ms": series(lambda d: replace(d, times=d.times * 1000)),
    "flip angles' TR in ms": repeated,
}
SOMETIMES = {
    "ADC mirrored": of("adc", partial(flipped, 2)),
    "DCE mirrored": of("dce", partial(flipped, 2)),
    "T2 mirrored": of("t2w", partial(flipped, 2)),
    "ADC of another man": partial(of_another, "adc"),
    "DCE of another man": partial(of_another, "dce"),
    "T2 of another man": partial(of_another, "t2w"),
    "regions one slice off": of("roi_map", one_slice),
    "regions 5 mm off": of("roi_map", partial(shifted, (5.0, 0, 0))),
    "regions one slice off, same grid": of("roi_map", partial(rolled, 0, 1)),
    "regions 5 voxels off, same grid": of("roi_map", partial(rolled, 2, 5)),
    "regions 15 voxels off, same grid": of("roi_map", partial(rolled, 2, 15)),
    "one slice of each region kept": of("roi_map", largest_slices),
    "regions upside down": of("roi_map", partial(flipped, 1)),
    "regions mirrored": of("roi_map", partial(flipped, 2)),
    "regions head for feet": of("roi_map", partial(flipped, 0)),
    "regions and gland mirrored": of("roi_map gland", partial(flipped, 2)),
    "gland of another man": partial(of_another, "gland"),
    "ADC one slice off": of("adc", one_slice),
    "ADC 5 mm off": of("adc", partial(shifted, (5.0, 0, 0))),
    "ADC x .7": of("adc", partial(times, 0.7)),
    "ADC inverted": of("adc", inverted),
    "DCE one slice off": of("dce", one_slice),
    "DCE 5 mm off": of("dce", partial(shifted, (5.0, 0, 0))),
    "DCE frames shuffled": frames(lambda f: f[np.random.default_rng(1).permutation(len(f))]),
    "T2 one slice off": of("t2w", one_slice),
    "T2 inverted": of("t2w", inverted),
    "T2 x 7": of("t2w", partial(times, 7.0)),
    "ADC a quarter turn": of("adc", quarter),
    "DCE a quarter turn": of("dce", quarter),
    "T2 a quarter turn": of("t2w", quarter),
    "ADC is noise": of("adc", noise),
    "T2 is noise": of("t2w", noise),
    "DCE without baseline": series(late),
    "DCE two frames exchanged": frames(exchanged),
    "DCE moved half way": half_way(lambda f: np.roll(f, 3, axis=3)),
    "DCE gain x 1.3 half way": half_way(lambda f: f * 1.3),
    "DCE clock halved": series(lambda d: replace(d, times=d.times / 2)),
    "DCE clock doubled": series(lambda d: replace(d, times=d.times * 2)),
    "flip angles x 1.3": partial(angles_times, 1.3),
    "flip angles exchanged": angles_exchanged,
    "one flip angle": lambda s, o: replace(s, vfa=s.vfa[:1]),
    "regions grown by 3 voxels": of("roi_map", grown),
    "slices of ADC twice as thick": of("adc", thicker),
}


WORDS = {
    "refused": "study refused",
    "region": "region refused",
    "named": "named",
    "flagged": "unlike the training",
    "silent": "silent",
}
"""Outcome of a study with a fault, in one word for the summary."""


@dataclass(frozen=True)
class Outcome:
    """Hold the outcome of a study with a fault.

    Parameters
    ----------
    how : str
        ``refused`` (the study, by gates), ``region`` (the largest region is refused), ``named``
        (another region is refused), ``flagged`` (unlike the training: no decision), or ``silent``.
    change : float
        Change of the probability of the largest region; 0 where the region is refused.
    decision_changed : bool
        Whether the decision of a region that is not flagged changes.
    gates : tuple of str
        Names of the ranges that the study leaves.
    """

    how: str
    change: float = 0.0
    decision_changed: bool = False
    gates: tuple[str, ...] = ()

    @property
    def harmful(self) -> bool:
        """Return whether the fault moves the largest region by more than .1 without any report."""
        return self.how == "silent" and abs(self.change) > HARM

    @property
    def cell(self) -> str:
        """Return the outcome as a cell of the table."""
        if self.how == "refused":
            return f"refused: {', '.join(self.gates)}"
        if self.how == "region":
            return "region refused"
        mark = "" if self.how == "silent" else f"{self.how} "
        star = "*" if self.decision_changed else ""
        return f"{mark}{self.change:+.2f}{star}"


class Judge:
    """Judge a study as `check` does, and then as `predict` with the released model does."""

    def __init__(self, repository: Path) -> None:
        self.bundle = load_bundle(repository / "models" / "phantom-psvm")
        self.settings = shared_settings([self.bundle])
        point = operating_point(self.bundle, self.settings.decision)
        if point is None:
            raise SystemExit("the released model states no decision")
        self.limits = point.thresholds

    def regions(self, study: Study) -> dict[str, tuple[float, bool]]:
        """Return the probability of every scored region, and whether the region is flagged."""
        study, _ = prepare_study(study, self.settings.images, self.settings.features.modalities)
        rows = extract(study, self.settings).rows
        X = rows.reindex(columns=self.bundle.features)
        kept = X.notna().all(axis=1).to_numpy()
        if not kept.any():
            return {}
        p = positive_probability(self.bundle.estimator, X[kept].to_numpy(float))
        typical = Typicality.from_dict(self.bundle.metadata["typicality"], self.bundle.columns)
        unlike = typical.judge(X[kept], ["man"] * int(kept.sum()))
        flags = [judged.flagged for judged in unlike]
        return dict(zip(rows["roi_id"][kept], zip(p.tolist(), flags, strict=True), strict=True))

    def decision(self, probability: float) -> int:
        """Return on which side of the model's thresholds a probability lies."""
        return int(np.searchsorted(self.limits, probability))

    def table(self, man: Study, other: Study) -> dict[str, Outcome]:
        """Return the outcome of each fault of a man; faults that he cannot have are left out."""
        if man.roi_map is None:
            raise SystemExit("a man without regions has no probability that a fault could move")
        sizes = {r.roi_id: int((man.roi_map.array == r.label).sum()) for r in man.rois}
        largest = max(sizes, key=sizes.__getitem__)
        clean = self.regions(man)
        outcomes = {}
        for name, fault in (SEEN | SOMETIMES).items():
            try:
                study = fault(man, other)
            # The image that this fault changes is not in the study.
            except (AttributeError, AssertionError, ValueError):
                continue
            outcomes[name] = self.outcome(study, clean, largest)
        return outcomes

    def outcome(self, study: Study, clean: dict[str, tuple[float, bool]], largest: str) -> Outcome:
        """Return the outcome of a study whose regions had other probabilities when it was sound.

        Parameters
        ----------
        study : Study
            The study with a fault.
        clean : dict of str to (float, bool)
            Probability and flag of each region of the sound study.
        largest : str
            The region whose change is reported.
        """
        gates = left_ranges(study)
        if gates:
            return Outcome("refused", gates=gates)
        judged = self.regions(study)
        if largest not in judged:
            return Outcome("region")
        probability, flagged = judged[largest]
        before, was_flagged = clean[largest]
        changed = any(
            not flag and self.decision(value) != self.decision(clean[roi][0])
            for roi, (value, flag) in judged.items()
            if roi in clean
        )
        how = "silent"
        if flagged and not was_flagged:
            how = "flagged"
        elif check_study(study):
            how = "named"
        return Outcome(how, probability - before, changed)


def left_ranges(study: Study) -> tuple[str, ...]:
    """Return the names of the plausible ranges that a study leaves."""
    return tuple(
        name
        for name, value, _ in study_statistics(study)
        if not RANGES[name][0] <= value <= RANGES[name][1]
    )


def statistics_of(seed: int, index: int, variation: Variation) -> dict[str, float]:
    """Return the statistics of one sound simulated man; a repeated name keeps its worst value."""
    use_one_thread()
    study = make_patient(seed, index, FULL, prevalence=PREVALENCE, variation=variation).study
    values: dict[str, float] = {}
    for name, value, _ in study_statistics(study):
        low, high = RANGES[name]
        room = min(value - low, high - value)
        if name not in values or room < min(values[name] - low, high - values[name]):
            values[name] = value
    return values


def alarms(men: int, seed: int, jobs: int, variation: Variation) -> None:
    """Print how many sound men are refused, by which gates, and the farthest values."""
    work = [delayed(statistics_of)(seed, index, variation) for index in range(men)]
    measured = Parallel(n_jobs=jobs)(work)
    refused = []
    by_gate: Counter[str] = Counter()
    extremes: dict[str, list[float]] = defaultdict(list)
    for index, values in enumerate(measured):
        left = [n for n, v in values.items() if not RANGES[n][0] <= v <= RANGES[n][1]]
        by_gate.update(left)
        if left:
            refused.append(f"sub-{index + 1:04d} ({', '.join(left)})")
        for name, value in values.items():
            extremes[name].append(value)
    print(f"{len(refused)} of {men} sound men refused: {'; '.join(refused) or 'nobody'}")
    print(
        "| range | low | high | lowest | highest | men | refused |\n|---|---|---|---|---|---|---|"
    )
    for name, found in extremes.items():
        low, high = RANGES[name]
        numbers = f"{low:g} | {high:g} | {min(found):.3g} | {max(found):.3g}"
        print(f"| {name} | {numbers} | {len(found)} | {by_gate[name]} |")


def fault_table(seed: int, index: int) -> dict[str, Outcome]:
    """Return the outcomes of one simulated man's faults; the next man lends his images."""
    use_one_thread()
    man, other = (make_patient(seed, index + k, FULL, prevalence=PREVALENCE).study for k in (0, 1))
    if left_ranges(man):
        raise SystemExit(f"man {index} of seed {seed} is refused without a fault")
    return Judge(ROOT).table(man, other)


def faults(men: int, seeds: list[int], jobs: int, out: Path | None) -> None:
    """Print every fault by man, or summarise the faults in a file; list each man's silent harm."""
    use_one_thread()
    pairs = [(seed, index) for seed in seeds for index in range(men)]
    tables = Parallel(n_jobs=jobs)(delayed(fault_table)(seed, index) for seed, index in pairs)
    names = list(dict.fromkeys(name for table in tables for name in table))
    if out is None:
        print(shown(tables, names))
    else:
        of_all = summary(tables, names)
        write_csv(out, of_all.round(2), list(of_all.columns))
    for (seed, index), table in zip(pairs, tables, strict=True):
        harmful = [name for name, outcome in table.items() if outcome.harmful]
        listed = ", ".join(harmful) or "-"
        print(f"seed {seed}, man {index + 1}: {len(harmful)} silent and harmful: {listed}")


def shown(tables: list[dict[str, Outcome]], names: list[str]) -> str:
    """Return the faults of some men as a table, a column for each man."""
    numbers = " | ".join(f"man {index + 1}" for index in range(len(tables)))
    lines = [f"| fault | {numbers} |", "|---" * (len(tables) + 1) + "|"]
    for name in names:
        cells = [table[name].cell if name in table else "–" for table in tables]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(tables: list[dict[str, Outcome]], names: list[str]) -> pd.DataFrame:
    """Return a row for each fault: in how many men it has each outcome, and its silent changes."""
    rows = []
    for name in names:
        outcomes = [table[name] for table in tables if name in table]
        changes = [outcome.change for outcome in outcomes if outcome.how == "silent"]
        row: dict[str, object] = {"fault": name}
        for how, word in WORDS.items():
            row[word] = sum(outcome.how == how for outcome in outcomes)
        row[f"changes above {HARM:g}"] = sum(outcome.harmful for outcome in outcomes)
        row["lowest change"] = min(changes, default=np.nan)
        row["highest change"] = max(changes, default=np.nan)
        rows.append(row)
    return pd.DataFrame(rows)


def main() -> None:
    """Print the table that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=("alarms", "table"))
    parser.add_argument("--men", type=int)
    parser.add_argument("--seed", type=int, nargs="+")
    parser.add_argument("--summary", type=Path, help="file for the table with a row for each fault")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--displacement",
        type=float,
        default=USUAL.displacement_mm,
        help="alarms: up to how many mm",
    )
    parser.add_argument(
        "--motion", type=float, default=USUAL.motion, help="alarms: factor on how far men move"
    )
    given = parser.parse_args()
    use_one_thread()
    if given.name == "alarms":
        variation = Variation(displacement_mm=given.displacement, motion=given.motion)
        alarms(given.men or 200, given.seed[0] if given.seed else 700, given.jobs, variation)
    else:
        faults(given.men or 5, given.seed or [900], given.jobs, given.summary)


if __name__ == "__main__":
    main()
