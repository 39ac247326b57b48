"""Measure how well a displacement of the ADC map against T2 is measured and mended.

``python -m benchmarks.displacement [--cohort FOLDER ...] [--men 3] [--seed 6600]`` shifts the ADC
map of each man by 5 mm in eight directions. The men are those of the given cohorts, and simulated
men. For each shift it prints the error of the measured shift, whether the physical gate refuses the
man, and how far the probability of his largest region moves after mending and without it.

``python -m benchmarks.displacement withdrawn [--men 20] [--seed 6700]`` prints how many simulated
men without an added displacement reach ``images.withdraw_from_mm``, so that they get no decision.
The tables are in docs/displacement.md.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.faults import PREVALENCE, ROOT, Judge, left_ranges
from cad.base.processes import use_one_thread
from cad.evidence.phantom.protocols import FULL
from cad.evidence.phantom.simulator import make_patient
from cad.folders.cohort import read_cohort
from cad.mri.imaging.displacement import Displacement
from cad.mri.imaging.displacement_search import displacements
from cad.mri.imaging.geometry import resample_image
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import read_study
from cad.mri.imaging.volume import Volume, triple

SHIFT_MM = 5.0
DIRECTIONS = 8
# The bounds that the page states.
ERROR_MM = 1.0
CHANGE = 0.05


@dataclass(frozen=True)
class Shifted:
    """Hold what became of a man whose ADC map was shifted.

    Parameters
    ----------
    error_mm : float
        Distance of the measured shift from the added one, mm; NaN where none was measured.
    gates : tuple of str
        Names of the ranges that the study leaves; empty where it is not refused.
    mended, unmended : float
        Change of the probability of the largest region; NaN where the model scores none.
    """

    error_mm: float
    gates: tuple[str, ...]
    mended: float
    unmended: float


def content_moved(image: Volume, x: float, y: float) -> Volume:
    """Return an image as if the scanner had taken its content x and y mm farther along its axes.

    The values are interpolated; at the edge, where nothing is known, they stay.
    """
    step = np.asarray(image.direction) @ np.array([x, y, 0.0])
    moved = replace(image, origin=triple(np.array(image.origin) + step))
    seen = resample_image(moved, image).array
    return image.with_array(np.where(np.isnan(seen), image.array, seen))


def adc_displacement(study: Study) -> Displacement | None:
    """Return the measured displacement of a study's ADC map, or None if it is not measured."""
    for displacement in displacements(study):
        if displacement.name == "adc":
            return displacement
    return None


def without_memory(study: Study, adc: Volume) -> Study:
    """Return a study with another ADC map, of which no displacement is known yet."""
    return replace(study, adc=adc, displacements=(), unmeasured=())


class Experiment:
    """Shift ADC maps, and judge the men as the released model does, with and without mending."""

    def __init__(self, repository: Path) -> None:
        self.mending = Judge(repository)
        self.leaving = Judge(repository)
        images = self.leaving.settings.images.model_copy(update={"displacement": "said"})
        self.leaving.settings = self.leaving.settings.model_copy(update={"images": images})

    def of_man(self, study: Study) -> list[Shifted]:
        """Return what became of a man in each direction; empty if his ADC map is not measured."""
        start = adc_displacement(study)
        if start is None or study.adc is None or study.roi_map is None:
            return []
        sizes = {roi.roi_id: int((study.roi_map.array == roi.label).sum()) for roi in study.rois}
        largest = max(sizes, key=sizes.__getitem__)
        # An interpolated image is smoother. Both sides of a comparison are interpolated.
        smooth = content_moved(content_moved(study.adc, 0.5, 0.5), -0.5, -0.5)
        sound = without_memory(study, smooth)
        mended = self.mending.regions(sound)
        unmended = self.leaving.regions(sound)
        outcomes = []
        for angle in np.arange(DIRECTIONS) * 2 * np.pi / DIRECTIONS:
            x = SHIFT_MM * float(np.cos(angle))
            y = SHIFT_MM * float(np.sin(angle))
            shifted = without_memory(study, content_moved(study.adc, x, y))
            now = adc_displacement(shifted)
            error = np.nan
            if now is not None:
                added = np.array(now.shift_mm) - np.array(start.shift_mm)
                error = float(np.hypot(added[0] - x, added[1] - y))
            after_mending = change(mended, self.mending.regions(shifted), largest)
            without = change(unmended, self.leaving.regions(shifted), largest)
            outcomes.append(Shifted(error, left_ranges(shifted), after_mending, without))
        return outcomes


def change(
    before: dict[str, tuple[float, bool]], after: dict[str, tuple[float, bool]], region: str
) -> float:
    """Return how far the probability of a region moves; NaN if either study does not score it."""
    if region not in before or region not in after:
        return float("nan")
    return after[region][0] - before[region][0]


def real_men(cohorts: list[Path]) -> list[tuple[str, Study]]:
    """Return the men of cohort folders, with their names."""
    men = []
    for cohort in cohorts:
        for ref in read_cohort(cohort).studies():
            rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]
            study = read_study(ref.folder, ref.study_id, ref.participant_id, rois)
            men.append((ref.study_id, study))
    return men


def shifts(cohorts: list[Path], n_simulated: int, seed: int) -> None:
    """Print a row for each man, and how often each bound is met."""
    men = real_men(cohorts)
    for index in range(n_simulated):
        study = make_patient(seed, index, FULL, prevalence=PREVALENCE).study
        men.append((f"simulated, seed {seed}, man {index + 1}", study))
    experiment = Experiment(ROOT)
    print("| man | largest error, mm | refused | largest change, mended | unmended |")
    print("|---|---:|---:|---:|---:|", flush=True)
    outcomes: list[Shifted] = []
    for name, study in men:
        of_man = experiment.of_man(study)
        if not of_man:
            print(f"| {name} | not measured | | | |", flush=True)
            continue
        error = largest([outcome.error_mm for outcome in of_man])
        mended = largest([outcome.mended for outcome in of_man])
        unmended = largest([outcome.unmended for outcome in of_man])
        refused = sum(bool(outcome.gates) for outcome in of_man)
        print(f"| {name} | {error} | {refused} of {len(of_man)} | {mended} | {unmended} |")
        for gate in sorted({gate for outcome in of_man for gate in outcome.gates}):
            print(f"refused by {gate}")
        outcomes += of_man
        print(end="", flush=True)
    print(f"measured to {ERROR_MM:g} mm: {met([o.error_mm for o in outcomes], ERROR_MM)}")
    print(f"P moves by at most {CHANGE:g}, mended: {met([o.mended for o in outcomes], CHANGE)}")
    print(f"P moves by at most {CHANGE:g}, unmended: {met([o.unmended for o in outcomes], CHANGE)}")


def largest(values: list[float]) -> str:
    """Return the largest size of some values as text; a dash if none of them is known."""
    known = [abs(value) for value in values if not np.isnan(value)]
    return f"{max(known):.2f}" if known else "–"


def met(values: list[float], bound: float) -> str:
    """Return in how many of the known values a bound is met."""
    known = [abs(value) for value in values if not np.isnan(value)]
    return f"{sum(value <= bound for value in known)} of {len(known)}"


def withdrawn(n_men: int, seed: int) -> None:
    """Print how many simulated men without an added displacement would get no decision."""
    limit = Judge(ROOT).settings.images.withdraw_from_mm
    reached = 0
    farthest = 0.0
    for index in range(n_men):
        study = make_patient(seed, index, FULL, prevalence=PREVALENCE).study
        most = max((d.most_mm for d in displacements(study)), default=0.0)
        reached += most >= limit
        farthest = max(farthest, most)
    print(f"{reached} of {n_men} men at {limit:g} mm or more; the farthest at {farthest:.1f} mm")


def main() -> None:
    """Print the table that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", choices=("shifts", "withdrawn"), default="shifts")
    parser.add_argument("--cohort", type=Path, nargs="+", default=[], help="folders of real men")
    parser.add_argument("--men", type=int, help="number of simulated men")
    parser.add_argument("--seed", type=int, help="seed of the simulated men")
    given = parser.parse_args()
    use_one_thread()
    if given.name == "shifts":
        n_men = 3 if given.men is None else given.men
        shifts(given.cohort, n_men, given.seed or 6600)
    else:
        withdrawn(given.men or 20, given.seed or 6700)


if __name__ == "__main__":
    main()
