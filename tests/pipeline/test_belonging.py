"""What `check` says of a man whose images, regions or numbers do not belong together.

`run` and `predict` ask the same gates. Which faults are seen is the table of docs/import.md; those
that no gate sees are listed there as such.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cad.cohort import read_cohort
from cad.dicom.into.importer import import_source
from cad.errors import CadError
from cad.imaging.plausibility import implausible
from cad.imaging.study import Roi, Study
from cad.imaging.study_files import check_study, read_study
from cad.imaging.volume import Volume

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
    """Put another man's voxels in the place of this one's."""
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
    return replace(study, roi_map=study.gland.with_array(study.gland.array.astype(np.uint8)),
                   rois=[Roi("1", 1)])  # fmt: skip


def in_air(study: Study, other: Study) -> Study:
    assert study.roi_map is not None
    labels = np.zeros_like(study.roi_map.array)
    labels[2:5, 2:8, 2:8] = 1
    return replace(study, roi_map=study.roi_map.with_array(labels), rois=[Roi("1", 1)])


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
    "a region in air, no gland": lambda s, o: replace(in_air(s, o), gland=None),
    "all spacings x 10": of(ALL, partial(spaced, 10.0)),
    "all spacings / 10": of(ALL, partial(spaced, 0.1)),
    "gland / 10": of("gland", partial(spaced, 0.1)),
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
    "regions upside down": of("roi_map", partial(flipped, 1)),
    "regions mirrored": of("roi_map", partial(flipped, 2)),
    "regions head for feet": of("roi_map", partial(flipped, 0)),
    "regions and gland mirrored": of("roi_map gland", partial(flipped, 2)),
    "regions and gland head for feet": of("roi_map gland", partial(flipped, 0)),
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
}


def problems_of(study: Study) -> list[CadError]:
    return [*implausible(study), *check_study(study)]


@pytest.fixture(scope="module")
def men(cohort: Path) -> list[Study]:
    return [read(ref) for ref in read_cohort(cohort).studies()[:3]]


def read(ref) -> Study:  # type: ignore[no-untyped-def]
    rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]
    return read_study(ref.folder, ref.study_id, ref.participant_id, rois)


def test_a_clean_man_is_not_questioned(men: list[Study]) -> None:
    for man in men:
        assert problems_of(man) == []
        assert problems_of(replace(man, gland=None)) == []


@pytest.mark.parametrize("fault", SEEN)
def test_a_fault_that_is_seen(men: list[Study], fault: str) -> None:
    assert problems_of(SEEN[fault](men[0], men[1]))


@pytest.mark.slow
def test_table_of_faults(men: list[Study], capsys: pytest.CaptureFixture[str]) -> None:
    """Two men and every fault; what is seen of one kind on both stays seen."""
    table = {
        name: sum(bool(problems_of(fault(men[i], men[i + 1]))) for i in (0, 1))
        for name, fault in (SEEN | SOMETIMES).items()
    }
    with capsys.disabled():
        print("\n" + "\n".join(f"| {name} | {seen} of 2 |" for name, seen in table.items()))
    assert all(table[name] == 2 for name in SEEN)


@pytest.mark.slow
def test_faults_of_a_real_man(
    shared_data: Path, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PROSTATEx: no false alarm; what turns an image is seen, with a mirror among it."""
    rules = repository / "configs" / "import" / "prostatex.yaml"
    import_source(shared_data / "prostatex", tmp_path / "cohort", rules)
    first, second = (read(ref) for ref in read_cohort(tmp_path / "cohort").studies())
    assert problems_of(first) == problems_of(second) == []
    table = {}
    for name, fault in (SEEN | SOMETIMES).items():
        try:
            table[name] = bool(problems_of(fault(second, first)))
        except (AttributeError, AssertionError):  # no gland mask, no dynamic series
            continue
    with capsys.disabled():
        print("\n" + "\n".join(f"| {name} | {seen} |" for name, seen in table.items()))
    for name in ("ADC mirrored", "ADC upside down", "DCE mirrored", "DCE head for feet"):
        assert table[name]
