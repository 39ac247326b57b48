"""`cad check` of a cohort whose tables are sound and whose images are not all there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.base.settings import PipelineSettings
from cad.cli import app
from cad.folders.cohort import read_cohort
from cad.mri.features.place import place_of
from cad.mri.imaging.drawn import fill, gland_on
from cad.mri.imaging.nifti import write_volume
from cad.mri.imaging.study import Roi
from cad.mri.imaging.study_files import image_path, read_study
from cad.run.execution.options import HERE
from cad.run.pipeline import check
from cad.run.stages.load import load
from cad.run.workflows.check import wrong_sides


def test_a_lost_image_is_a_problem_and_what_stands_in_for_it_a_note(
    cohort: Path, part_of: Callable[..., Path], tmp_path: Path
) -> None:
    first, second = "sub-0001", "sub-0002"
    root = part_of(cohort, tmp_path / "cohort", [first, second])
    image_path(root / first, first, "adc").unlink()
    shutil.rmtree(root / second / "perf")
    problems, notes = check(root)
    (lost,) = problems
    assert (lost.patient, Path(lost.file).name) == (first, f"{first}_ADC.json")
    assert f"without its image {first}_ADC.nii.gz" in lost.problem
    assert notes["missing modality: DCE"] == [second]
    fitted = next(note for note in notes if note.startswith("ADC fitted from b = "))
    assert notes[fitted] == [first]

    shown = CliRunner().invoke(app, ["check", str(root)])
    assert shown.exit_code == 1
    assert shown.output.splitlines()[0] == str(lost)
    assert f"note: {fitted}: {first}" in shown.output.splitlines()
    as_json = CliRunner().invoke(app, ["check", str(root), "--json"])
    assert json.loads(as_json.stdout) == [str(lost)]

    Path(lost.file).unlink()
    shown = CliRunner().invoke(app, ["check", str(root)])
    assert shown.exit_code == 0
    assert shown.output.startswith(f"{root}: no problem found\nnote: ")


def test_a_region_that_the_adc_map_does_not_reach_is_noted(
    cohort: Path, part_of: Callable[..., Path], tmp_path: Path
) -> None:
    """The map has no value (0) in one of the regions, as where its field ends."""
    name = "sub-0001"
    root = part_of(cohort, tmp_path / "cohort", [name])
    (ref,) = read_cohort(root).studies()
    rois = [Roi(str(row.roi_id), int(row.label)) for row in ref.rois.itertuples()]
    man = read_study(ref.folder, ref.study_id, ref.participant_id, rois)
    assert man.adc is not None
    reached = fill(man.mask_of(rois[0]), man.adc).share > 0
    without = man.adc.with_array(np.where(reached, np.float32(0), man.adc.array))
    write_volume(image_path(root / name, name, "adc"), without)
    _, notes = check(root)
    (note,) = [text for text in notes if "cannot be measured in ADC" in text]
    assert note.startswith(
        f"region {rois[0].roi_id} cannot be measured in ADC: the image has a value (0 is none) in "
    )
    assert note.endswith("a model that needs ADC leaves it out")
    assert notes[note] == [name]


def test_what_a_run_would_stumble_over(cohort: Path, tmp_path: Path) -> None:
    """A misnamed T2, an implausible repetition time, and nothing to learn from."""
    root = Path(shutil.copytree(cohort, tmp_path / "cohort"))
    first = sorted(p.name for p in root.glob("sub-*"))[0]
    t2w = image_path(root / first, first, "t2w")
    t2w.rename(t2w.with_name(f"{first}_t2w.nii.gz"))
    side = root / first / "perf" / f"{first}_dce.json"
    side.write_text(json.dumps({**json.loads(side.read_text()), "RepetitionTime": 4.5}))
    for name in ("scores.tsv", "rois.tsv"):
        lines = (root / name).read_text().splitlines()
        keep = lines[:1] if name == "scores.tsv" else [lines[0], *map(_unproven, lines[1:])]
        (root / name).write_text("\n".join(keep) + "\n")
    problems, notes = check(root)
    said = [problem.problem for problem in problems]
    assert "an image that nothing reads" in said
    assert f"is it anat/{t2w.name}?" in [problem.hint for problem in problems]
    assert any(text.startswith("repetition time of DCE is 4.5 s") for text in said)
    assert any("nothing to learn from" in note for note in notes)
    (root / "plausible.json").write_text('{"dce_repetition_time": [0.001, 10]}')
    assert not any("repetition time of DCE" in p.problem for p in check(root)[0])


def _unproven(line: str) -> str:
    cells = line.split("\t")
    return "\t".join([*cells[:4], "n/a", "n/a", *cells[6:]])


def test_one_man_under_two_ids(cohort: Path, part_of: Callable[..., Path], tmp_path: Path) -> None:
    """`check` names him, and nothing is learned from him, however he is stored."""
    first, second = "sub-0001", "sub-0002"
    root = part_of(cohort, tmp_path / "cohort", [first, second])
    shutil.rmtree(root / second)
    for path in (p for p in (root / first).rglob("*") if p.is_file()):
        target = root / second / str(path.relative_to(root / first)).replace(first, second)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    t2w = image_path(root / second, second, "t2w")
    image = nibabel.load(t2w)
    nibabel.save(image.as_reoriented([[0, -1], [1, 1], [2, 1]]), t2w)
    same = [problem for problem in check(root)[0] if "one man under two ids" in problem.problem]
    assert [problem.patient for problem in same] == [second]
    with pytest.raises(CadError, match="one man under two ids"):
        load(PipelineSettings(name="test"), root, tmp_path / "run", HERE, "run")


def test_a_sector_on_the_other_side_and_what_a_model_needs(
    cohort: Path, part_of: Callable[..., Path], tmp_path: Path
) -> None:
    first = "sub-0001"
    root = part_of(cohort, tmp_path / "cohort", [first])
    (ref,) = read_cohort(root).studies()
    regions = ref.rois.assign(sector=None)
    study = read_study(ref.folder, ref.study_id, first, [])
    gland = gland_on(study)
    assert gland is not None
    assert study.roi_map is not None
    places = {
        row.roi_id: place_of(gland, study.roi_map.array == int(row.label))
        for row in regions.itertuples()
    }
    sides = {roi: place.side for roi, place in places.items() if place and place.side != "midline"}
    (roi, side), *_ = sides.items()
    other = {"left": "right", "right": "left"}[side]
    for said, wrong in ((side, 0), (other, 1)):
        regions.loc[regions["roi_id"] == roi, "sector"] = f"{said} mid PZpl"
        assert len(wrong_sides(study, regions)) == wrong

    shutil.rmtree(root / first / "perf")
    assert check(root)[0] == []
    missing = [p.problem for p in check(root, settings=PipelineSettings(name="test"))[0]]
    assert missing == ["the model needs dce features and this study has none"]
