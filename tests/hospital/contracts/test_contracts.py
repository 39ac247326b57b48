"""Containers' contracts: the entry point on a sample study, the card, the field's measures."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pydicom
import pytest
import SimpleITK as sitk
from scipy import ndimage

from cad.base.errors import CadError
from cad.base.share import shared
from cad.folders.cohort import read_cohort
from cad.hospital.contracts.grand_challenge import (
    DETECTION_MAP,
    IMAGES,
    LIKELIHOOD,
    READERS_MASK,
    run_grand_challenge,
)
from cad.hospital.contracts.mhub import MAP, model_card
from cad.hospital.contracts.scored import candidates, score, write_map
from cad.learning.evaluation.measures.metrics import auc, average_precision
from cad.mri.imaging.nifti import read_image, read_label_map

MODEL = ["phantom-psvm-biparametric"]
ROOT = Path(__file__).resolve().parents[3]
MAN = "sub-0001"


def put(source: Path, root: Path, slot: str, change=None) -> Path:
    """Write an image of the sample as a platform hands it over."""
    image = sitk.ReadImage(str(source))
    array = sitk.GetArrayFromImage(image)
    if change is not None:
        array = change(array)
    plain = sitk.GetImageFromArray(array)
    plain.CopyInformation(image)
    path = root / "images" / slot / "5c1f.mha"
    path.parent.mkdir(parents=True)
    sitk.WriteImage(plain, str(path))
    return path


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Lay out one man's T2, ADC and outlines as Grand Challenge does."""
    man = shared("sample_data", MAN)
    root = tmp_path / "input"
    put(next(man.glob("anat/*_T2w.nii.gz")), root, IMAGES["t2w"])
    put(next(man.glob("dwi/*_ADC.nii.gz")), root, IMAGES["adc"])
    put(man / "masks" / f"{MAN}_rois.nii.gz", root, READERS_MASK)
    return root


def test_grand_challenge_gives_a_number_and_a_map_on_the_grid_of_the_t2(
    job: Path, tmp_path: Path, main_here
):
    ended = main_here(
        "contract",
        "grand-challenge",
        "--input",
        job,
        "--output",
        tmp_path / "out",
        "--json",
    )
    assert ended.returncode == 0, ended.stderr
    likelihood = json.loads((tmp_path / "out" / LIKELIHOOD).read_text())
    assert 0 < likelihood < 1
    assert json.loads(ended.stdout) == {"likelihood": likelihood}
    made = sitk.ReadImage(str(tmp_path / "out" / "images" / DETECTION_MAP / "5c1f.mha"))
    t2 = sitk.ReadImage(str(job / "images" / IMAGES["t2w"] / "5c1f.mha"))
    assert made.GetSize() == t2.GetSize()
    assert made.GetSpacing() == pytest.approx(t2.GetSpacing())
    assert made.GetOrigin() == pytest.approx(t2.GetOrigin())
    values = sitk.GetArrayFromImage(made)
    drawn = sitk.GetArrayFromImage(sitk.ReadImage(str(job / "images" / READERS_MASK / "5c1f.mha")))
    # Every region has one probability, and nothing outside regions has any.
    assert not values[drawn == 0].any()
    for label in np.unique(drawn[drawn > 0]):
        assert len(np.unique(values[(drawn == label) & (values > 0)])) == 1
    # A man is never below his region.
    assert likelihood >= values.max() - 1e-6


def test_a_detectors_map_is_taken_in_place_of_outlines(job: Path, tmp_path: Path):
    mask = job / "images" / READERS_MASK / "5c1f.mha"
    image = sitk.ReadImage(str(mask))
    found = sitk.GetArrayFromImage(image) > 0
    soft = sitk.GetImageFromArray(np.where(found, np.float32(0.31), np.float32(0.0)))
    soft.CopyInformation(image)
    place = job / "images" / DETECTION_MAP
    place.mkdir()
    sitk.WriteImage(soft, str(place / "9.mha"))
    with pytest.raises(CadError, match="given twice"):
        run_grand_challenge(job, tmp_path / "out", MODEL)
    mask.unlink()
    scored = run_grand_challenge(job, tmp_path / "out", MODEL, highest=True)
    assert scored is not None
    made = sitk.GetArrayFromImage(
        sitk.ReadImage(str(tmp_path / "out" / "images" / DETECTION_MAP / "5c1f.mha"))
    )
    assert np.array_equal(made > 0, found)


def without(job: Path, slot: str) -> None:
    for path in (job / "images" / slot).glob("*.mha"):
        path.unlink()


def test_what_a_job_lacks_is_said_and_nothing_is_written(job: Path, tmp_path: Path):
    out = tmp_path / "out"
    without(job, READERS_MASK)
    with pytest.raises(CadError, match="this program finds none"):
        run_grand_challenge(job, out, MODEL)
    without(job, IMAGES["adc"])
    with pytest.raises(CadError, match=r"no \.mha image"):
        run_grand_challenge(job, out, MODEL)
    assert not out.exists()


def test_what_is_wrong_with_a_file_names_the_jobs_file(job: Path, tmp_path: Path):
    t2 = job / "images" / IMAGES["t2w"] / "5c1f.mha"
    whole = t2.read_bytes()
    t2.write_bytes(whole[:5000])
    with pytest.raises(CadError, match="cut off") as refused:
        run_grand_challenge(job, tmp_path / "out", MODEL)
    assert refused.value.file == str(t2)
    t2.write_bytes(whole)
    adc = job / "images" / IMAGES["adc"] / "5c1f.mha"
    other_unit = sitk.Cast(sitk.ReadImage(str(adc)), sitk.sitkFloat32) * 1e-6
    sitk.WriteImage(other_unit, str(adc))
    with pytest.raises(CadError, match="median ADC") as refused:
        run_grand_challenge(job, tmp_path / "out", MODEL)
    assert refused.value.file == str(job / "images")
    assert not (tmp_path / "out").exists()


def test_two_images_in_one_slot_are_refused(job: Path, tmp_path: Path):
    t2 = job / "images" / IMAGES["t2w"] / "5c1f.mha"
    (t2.parent / "other.mha").write_bytes(t2.read_bytes())
    with pytest.raises(CadError, match="2 images, one is expected"):
        run_grand_challenge(job, tmp_path / "out", MODEL)


def test_regions_that_would_merge_are_refused(tmp_path: Path):
    man = shared("sample_data", MAN)
    root = tmp_path / "input"
    put(next(man.glob("anat/*_T2w.nii.gz")), root, IMAGES["t2w"])
    put(next(man.glob("dwi/*_ADC.nii.gz")), root, IMAGES["adc"])

    def touching(labels: np.ndarray) -> np.ndarray:
        z, y, x = np.argwhere(labels == 1)[0]
        labels[z, y, x + 1 : x + 3] = 9
        return labels

    put(man / "masks" / f"{MAN}_rois.nii.gz", root, READERS_MASK, touching)
    with pytest.raises(CadError, match="regions 1 and 9 touch"):
        run_grand_challenge(root, tmp_path / "out", MODEL)


def test_a_study_with_nothing_marked_is_refused_unless_its_likelihood_is_stated(tmp_path: Path):
    man = shared("sample_data", MAN)
    root = tmp_path / "input"
    put(next(man.glob("anat/*_T2w.nii.gz")), root, IMAGES["t2w"])
    put(next(man.glob("dwi/*_ADC.nii.gz")), root, IMAGES["adc"])
    put(man / "masks" / f"{MAN}_rois.nii.gz", root, DETECTION_MAP, np.zeros_like)
    with pytest.raises(CadError, match="nothing is marked"):
        run_grand_challenge(root, tmp_path / "out", MODEL)
    assert run_grand_challenge(root, tmp_path / "out", MODEL, without_regions=0.07) is None
    assert json.loads((tmp_path / "out" / LIKELIHOOD).read_text()) == 0.07
    made = read_image(tmp_path / "out" / "images" / DETECTION_MAP / "5c1f.mha")
    assert not made.array.any()
    with pytest.raises(CadError, match="between 0 and 1"):
        run_grand_challenge(root, tmp_path / "other", MODEL, without_regions=1.5)
    with pytest.raises(CadError, match="not empty"):
        run_grand_challenge(root, tmp_path / "out", MODEL, without_regions=0.07)


def test_regions_that_touch_stay_apart_in_the_map():
    labels = np.zeros((1, 3, 9), int)
    labels[0, :, 0:3], labels[0, :, 3:6], labels[0, :, 6:9] = 1, 2, 3
    made = candidates(labels, {1: 0.2, 2: 0.9, 3: 0.2})
    assert made[0, 1].tolist() == pytest.approx([0.2, 0.2, 0, 0.9, 0.9, 0.9, 0, 0.2, 0.2])
    assert ndimage.label(made, structure=np.ones((3, 3, 3)))[1] == 3
    labels[0, :, 3:6] = 0
    labels[0, :, 3] = 2
    with pytest.raises(CadError, match="label 2 lies between"):
        candidates(labels, {1: 0.9, 2: 0.1})


def test_mhub_gives_a_folder_for_a_study_of_dicom(tmp_path: Path, main_here):
    source = shared("sample_data", "dicom")
    out = tmp_path / "output_data"
    ended = main_here("contract", "mhub", "--input", source, "--output", out, "--rules", "sample")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"1 study in {out}\n"
    folders = sorted(path.name for path in out.iterdir())
    assert len(folders) == 1
    names = sorted(path.name for path in (out / folders[0]).iterdir())
    assert names == ["SEG.dcm", "SR.dcm", LIKELIHOOD, MAP, "report.html"]
    likelihood = json.loads((out / folders[0] / LIKELIHOOD).read_text())
    values = read_image(out / folders[0] / MAP).array
    assert 0 < float(values.max()) <= likelihood + 1e-6


def test_mhub_names_what_has_no_result(tmp_path: Path, main_here):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "note.dcm").write_text("no image")
    ended = main_here("contract", "mhub", "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert ended.returncode in (1, 2)
    assert "note.dcm" in ended.stderr or "no " in ended.stderr
    assert not (tmp_path / "out").exists()


def test_a_study_without_regions_is_named_and_no_folder_that_is_deleted(tmp_path: Path, main_here):
    source = tmp_path / "in"
    shutil.copytree(shared("sample_data", "dicom"), source)
    for path in source.rglob("*"):
        if path.is_file() and pydicom.dcmread(path, force=True).get("Modality") != "MR":
            path.unlink()
    out = tmp_path / "out"
    ended = main_here("contract", "mhub", "--input", source, "--output", out, "--rules", "sample")
    assert ended.returncode != 0
    assert "sub-Sample0001: awaiting ROI: the study has no region" in ended.stderr
    assert "cad-contract-" not in ended.stderr
    assert not out.exists()


def test_the_card_satisfies_the_schema_of_mhub(repository: Path, shared_data: Path, counted):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((shared_data / "mhub" / "meta.schema.json").read_text())
    checker = jsonschema.Draft7Validator(
        schema, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER
    )
    card = json.loads((repository / "contracts" / "mhub" / "meta.json").read_text())
    assert [error.message for error in checker.iter_errors(card)] == []
    counted(1, "MHub's schema")
    # The schema tells a card that lacks something.
    for part in ("id", "summary", "details", "info"):
        lacking = {name: value for name, value in card.items() if name != part}
        assert list(checker.iter_errors(lacking))


def test_the_card_is_the_one_of_the_released_model(repository: Path):
    card = json.loads((repository / "contracts" / "mhub" / "meta.json").read_text())
    address = card["details"]["github"]
    made = model_card("phantom-psvm", address, card["details"]["date"]["code"])
    assert made == card
    assert "simulated" in card["summary"]["description"]


def test_the_fields_own_measures_are_the_programs(light_cohort: Path, tmp_path: Path, counted):
    picai_eval = pytest.importorskip("picai_eval")
    scored, problems = score(light_cohort, tmp_path / "run", MODEL, highest=True)
    # On images so coarse an ADC map that was moved back can miss the voxels of a region.
    assert all(problem.roi for problem in problems)
    assert len(scored) == 6
    rois = read_cohort(light_cohort).rois
    maps, truths, likelihoods, men = [], [], [], []
    target, confidence = [], []
    for each in scored:
        grid = next((light_cohort / each.study).glob("anat/*_T2w.nii.gz"))
        write_map(tmp_path / f"{each.study}.mha", each.map, grid)
        values = read_image(tmp_path / f"{each.study}.mha").array
        labels = read_label_map(next((light_cohort / each.study).glob("masks/*_rois.nii.gz"))).array
        truth = np.zeros(labels.shape, np.int32)
        own = rois[rois["participant_id"] == each.study]
        for roi in own.itertuples():
            # Grades from 3 on, so that some of these men have none.
            malignant = roi.histology == "malignant" and int(roi.isup) >= 3
            target.append(int(malignant))
            confidence.append(float(values[labels == roi.label].max()))
            if malignant:
                truth[labels == roi.label] = 1
        maps.append(values)
        truths.append(truth)
        likelihoods.append(each.likelihood)
        men.append(int(truth.any()))
    assert 0 < sum(men) < len(men)
    theirs = picai_eval.evaluate(y_det=maps, y_true=truths, num_parallel_calls=1)
    ours = average_precision(np.array(target), np.array(confidence))
    assert theirs.num_lesions == sum(target)
    assert float(theirs.AP) == pytest.approx(float(ours), abs=1e-12)
    # The man's number stands in a file of its own; the measure is told it by its case.
    theirs.case_pred = dict(enumerate(likelihoods))
    assert theirs.auroc == pytest.approx(
        float(auc(np.array(men), np.array(likelihoods))), abs=1e-12
    )
    counted(2, "picai_eval")


def entries(containerfile: str) -> dict[str, list[str]]:
    """Return the entry of every stage of a Containerfile."""
    found = {}
    stage = ""
    for line in containerfile.splitlines():
        if line.startswith("FROM "):
            words = line.split()
            stage = words[3] if len(words) > 3 else "last"
        if line.startswith("ENTRYPOINT "):
            found[stage] = json.loads(line.removeprefix("ENTRYPOINT "))
    return found


def test_the_containers_entries_are_commands(repository: Path, main_here):
    stages = entries((repository / "Containerfile").read_text())
    assert set(stages) == {"grand-challenge", "mhub", "last"}
    for words in stages.values():
        assert words[0] == "cad"
        assert main_here(*words[1:], "--help").returncode == 0


def container_engine() -> str | None:
    """Return an engine that answers: a client without its daemon builds nothing."""
    for name in ("podman", "docker"):
        engine = shutil.which(name)
        if engine and subprocess.run([engine, "info"], capture_output=True).returncode == 0:
            return engine
    return None


def test_a_client_without_its_daemon_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    client = tmp_path / "docker"
    client.write_text("#!/bin/sh\nexit 1\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert container_engine() is None
    client.write_text("#!/bin/sh\nexit 0\n")
    assert container_engine() == str(client)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_container_scores_a_job_where_there_is_an_engine(job: Path, tmp_path: Path):
    out = tmp_path / "output"
    scored_in_container("grand-challenge", job, "/input", out, "/output")
    assert 0 < json.loads((out / LIKELIHOOD).read_text()) < 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_container_scores_a_study_of_dicom_where_there_is_an_engine(tmp_path: Path):
    source = shared("sample_data", "dicom")
    out = tmp_path / "output"
    places = ("/app/data/input_data", "/app/data/output_data")
    scored_in_container("mhub", source, places[0], out, places[1], "--rules", "sample")
    assert 0 < json.loads((out / "sub-Sample0001" / LIKELIHOOD).read_text()) < 1


def scored_in_container(
    target: str, source: Path, source_there: str, out: Path, out_there: str, *words: str
) -> None:
    """Build the image of a contract and run it as docs/containers.md does."""
    engine = container_engine()
    if engine is None:
        pytest.skip("NO CONTAINER ENGINE ANSWERS: no container was built")
    image = f"cad-{target}"
    subprocess.run([engine, "build", "--target", target, "-t", image, ROOT], check=True)
    out.mkdir()
    out.chmod(0o777)
    mounts = ["-v", f"{source}:{source_there}:ro", "-v", f"{out}:{out_there}"]
    subprocess.run([engine, "run", "--rm", "--network", "none", *mounts, image, *words], check=True)
