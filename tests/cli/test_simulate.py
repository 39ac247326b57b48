"""The options of `cad simulate` reach the men who are simulated."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.cli import app, simulate
from cad.evidence.phantom import simulator
from cad.evidence.phantom.protocols import LIGHT
from cad.folders.cohort import read_cohort
from cad.mri.imaging.displacement_search import measure_displacement
from cad.mri.imaging.study import Study
from cad.mri.imaging.study_files import read_study

SEED = "8"  # of a man with gas in the rectum
NO_BLUR = ("--blur", "0", "0", "0")
NO_NOISE = ("--noise", "0", "0", "0")
STILL = ("--no-gas", "--motion", "0")


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command simulate on coarse grids, which takes a tenth of the time."""
    monkeypatch.setattr(simulator, "FULL", LIGHT)


def made(out: Path, *options: str) -> Study:
    """Return the man of a cohort of one that the command wrote."""
    arguments = ["simulate", str(out), "--patients", "1", "--seed", SEED, *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    (ref,) = read_cohort(out).studies()
    return read_study(ref.folder, ref.study_id, ref.participant_id, [])


def displaced(man: Study) -> np.ndarray:
    """Return how far ADC lies beside T2, mm."""
    t2w = simulator.present(man.t2w)
    return np.array(
        measure_displacement(
            t2w, simulator.present(man.adc), simulator.present(man.gland), gland=True
        ).shift_mm
    )


@pytest.mark.usefixtures("light")
def test_as_many_readers_as_asked_score_every_region(tmp_path: Path) -> None:
    made(tmp_path / "cohort", "--readers", "6")
    readers = pd.read_csv(tmp_path / "cohort" / "readers.tsv", sep="\t")
    scores = pd.read_csv(tmp_path / "cohort" / "scores.tsv", sep="\t")
    rois = pd.read_csv(tmp_path / "cohort" / "rois.tsv", sep="\t")
    assert readers["reader_id"].tolist() == ["r1", "r2", "r3", "r4", "r5", "r6"]
    assert scores.groupby("reader_id").size().to_dict() == dict.fromkeys(
        readers["reader_id"], len(rois)
    )


@pytest.mark.usefixtures("light")
def test_displacement_moves_what_else_lies_still(tmp_path: Path) -> None:
    still = displaced(made(tmp_path / "still", *STILL))
    moved = displaced(made(tmp_path / "moved", *STILL, "--displacement", "12"))
    assert np.linalg.norm(still) < 1.0
    assert 2.0 < np.linalg.norm(moved - still) < 12.5


@pytest.mark.usefixtures("light")
def test_gas_and_motion_are_left_out_one_by_one(tmp_path: Path) -> None:
    usual = made(tmp_path / "usual")
    without_gas = made(tmp_path / "gas", "--no-gas")
    lying_still = made(tmp_path / "motion", "--motion", "0")
    assert usual.dce is not None
    assert without_gas.dce is not None
    assert lying_still.dce is not None
    # Gas changes diffusion images only.
    usual_adc = simulator.present(usual.adc).array
    assert not np.array_equal(usual_adc, simulator.present(without_gas.adc).array)
    np.testing.assert_array_equal(usual.dce.frames, without_gas.dce.frames)
    # Motion changes the series; T2 comes first and is as it was.
    assert not np.array_equal(usual.dce.frames, lying_still.dce.frames)
    np.testing.assert_array_equal(
        simulator.present(usual.t2w).array, simulator.present(lying_still.t2w).array
    )


@pytest.mark.usefixtures("light")
def test_blur_and_noise_reach_the_images(tmp_path: Path) -> None:
    usual = made(tmp_path / "usual")
    same = made(tmp_path / "same", *NO_BLUR, *NO_NOISE, "--interpolation", "1")
    blurred = made(tmp_path / "blurred", "--blur", "4", "0", "0")
    noisy = made(tmp_path / "noisy", "--noise", "0.2", "0", "0", "--interpolation", "1.5")
    for path in sorted((tmp_path / "usual").rglob("*")):
        if path.is_file():
            twin = tmp_path / "same" / path.relative_to(tmp_path / "usual")
            assert twin.read_bytes() == path.read_bytes(), path
    plain = simulator.present(usual.t2w).array.astype(float)
    np.testing.assert_array_equal(plain, simulator.present(same.t2w).array)
    slopes = []
    for study in (usual, blurred, noisy):
        array = simulator.present(study.t2w).array.astype(float)
        slopes.append(np.diff(array, axis=2).std())
    assert slopes[1] < 0.8 * slopes[0]
    assert slopes[2] > 1.2 * slopes[0]
    for study in (blurred, noisy):
        np.testing.assert_array_equal(
            simulator.present(usual.adc).array, simulator.present(study.adc).array
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--blur", "-1", "0", "0"), "blur_mm of T2 is -1, and must be from 0 to 10"),
        (("--blur", "0", "nan", "0"), "blur_mm of diffusion is nan, and must be from 0 to 10"),
        (("--blur", "2"), "requires 3 arguments"),
        (("--noise", "0", "0", "1.2"), "noise of dynamic series is 1.2, and must be from 0 to 1"),
        (("--noise", "0.1", "0", "0", "--interpolation", "9"), "'--interpolation'"),
        (("--interpolation", "2"), "noise is 0"),
        (("--displacement", "nan"), "'--displacement'"),
    ],
)
def test_bad_numbers_are_refused_before_anything_is_written(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    out = tmp_path / "cohort"
    result = CliRunner().invoke(app, ["simulate", str(out), "--patients", "1", *options])
    # `cad` turns a CadError into a message and the exit code 2, as typer does with bad options.
    assert result.exit_code == 2 or isinstance(result.exception, CadError)
    assert message in result.output + str(result.exception)
    assert not out.exists()


def test_the_command_has_the_limits_of_the_simulator() -> None:
    ranges = {}
    for name, annotated in get_type_hints(simulate, include_extras=True).items():
        if name in ("displacement", "motion", "interpolation"):
            (option,) = annotated.__metadata__
            ranges[name] = (option.min, option.max)
    assert ranges == {
        "displacement": simulator.LIMITS["displacement_mm"],
        "motion": simulator.LIMITS["motion"],
        "interpolation": simulator.LIMITS["interpolation"],
    }
