"""What `cad check` says of a cohort whose tables are sound and whose images are not all there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from typer.testing import CliRunner

from cad.cli import app
from cad.imaging.study_files import image_path
from cad.pipeline import check


def test_a_lost_image_is_a_problem_and_what_stands_in_for_it_a_note(
    cohort: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(cohort, tmp_path / "cohort"))
    first, second = sorted(p.name for p in root.glob("sub-*"))[:2]
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
    assert json.loads(as_json.output) == [str(lost)]

    Path(lost.file).unlink()
    shown = CliRunner().invoke(app, ["check", str(root)])
    assert shown.exit_code == 0
    assert shown.output.startswith(f"{root}: no problem found\nnote: ")
