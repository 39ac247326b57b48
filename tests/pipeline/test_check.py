"""What `cad check` says of a cohort whose tables are sound and whose images are not all there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from cad.cli import app
from cad.imaging.study_files import image_path
from cad.pipeline import check


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
