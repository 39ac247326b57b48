"""From the folders of a public cohort to a model whose card says that its men are real.

The images are the simulator's, without its mark; folders, names and tables are the archives'.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from dicom_files import write_series
from import_cases import table, write_mha, write_nifti
from scipy.ndimage import distance_transform_edt
from typer.testing import CliRunner

from cad.cli import app
from cad.mri.imaging.nifti import read_volume
from cad.mri.imaging.volume import Volume

PIPELINE = """
name: quick
images: {t2_reference: regions, displacement: said}
features: {modalities: [t2w, adc], families: [intensity]}
labels: {histology: HISTOLOGY}
learner: {name: ProbabilisticSVC, params: {C: 1.0, scale: fixed}}
validate: {bootstraps: 50}
"""
SUMS = {0: (0, 0), 1: (3, 3), 2: (3, 4), 3: (4, 3), 4: (4, 4), 5: (4, 5)}
READERS = {"r1": "8ZmM76", "r2": "OjmNZ8", "r3": "OrjnrO", "r4": "8ekGLQ"}


def parts(cohort: Path, man: str) -> dict[str, Volume]:
    """The images and masks of a man by name."""
    names = ("anat/{}_T2w", "dwi/{}_ADC", "masks/{}_gland", "masks/{}_rois")
    found = {
        n.rsplit("_", 1)[1]: read_volume(cohort / man / f"{n.format(man)}.nii.gz") for n in names
    }
    for reader in READERS:
        path = cohort / man / f"masks/{man}_desc-{reader}_rois.nii.gz"
        found[reader] = read_volume(path)
    return found


def only(labels: Volume, label: int) -> Volume:
    return labels.with_array((labels.array == label).astype(np.uint8))


def men_of(cohort: Path) -> list[tuple[str, pd.DataFrame]]:
    rois = table(cohort, "rois").astype({"label": int, "isup": int})
    scores = table(cohort, "scores")
    scores = scores[scores["score"] != "n/a"].astype({"score": float})
    wide = scores.pivot(index=["participant_id", "roi_id"], columns="reader_id", values="score")
    return list(rois.join(wide, on=["participant_id", "roi_id"]).groupby("participant_id"))


def prostatex(cohort: Path, source: Path) -> str:
    """DICOM, a mask a finding, its class; the second man has two T2 series, the first drawn on."""
    home, classes, images = source / "PROSTATEx_masks/Files", [], []
    for number, (man, rows) in enumerate(men_of(cohort)):
        given, patient = parts(cohort, man), f"ProstateX-{number:04d}"
        top = source / "PROSTATEx" / patient / "07-07-2011-NA-MR prostaat"
        tags = {"ImageType": ["DERIVED", "PRIMARY", "ADC"], "SequenceName": "*ep_b50_800"}
        series = [(4, "T2w", "t2_tse_tra", {}), (7, "ADC", "ep2d_diff_tra_DYNDIST_ADC", tags)]
        series += [(9, "T2w", "t2_tse_tra", {})] if number == 1 else []
        for place, name, description, more in series:
            image = given[name]
            write_series(
                top / f"{place}.000000-{description.replace('_', '')}-{number:05d}",
                np.round(image.array).astype(np.uint16),
                patient=patient,
                study=man,
                number=place,
                description=description,
                spacing=image.spacing,
                origin=image.origin,
                direction=image.direction,
                **more,
            )
        for row in rows.itertuples():
            name = f"{patient}-Finding{row.label}-t2_tse_tra_ROI.nii.gz"
            write_nifti(home / "lesions/Masks/T2" / name, only(given["rois"], row.label))
            grade = row.isup or '"No biopsy information"'
            classes.append(f'"{patient}_Finding{row.label}","{row.isup >= 2}",{grade}')
        write_nifti(home / f"prostate/mask_prostate/{patient}.nii.gz", given["gland"])
        images.append(f"{patient}_ep2d_diff_tra_7,{patient}_t2_tse_tra_4")
    head = '"ID","Clinically Significant","Gleason Grade Group"'
    (home / "lesions/PROSTATEx_Classes.csv").write_text("\n".join([head, *classes]) + "\n")
    (home / "lesions/Image_list.csv").write_text("\n".join(["ADC,T2", *images]) + "\n")
    return "override"


def ai4ar(cohort: Path, source: Path) -> str:
    """Four radiologists' masks and categories of every lesion, and its biopsy."""
    top, lines = source / "AI4AR_cont", ["patient_id,radiologist_id,lesion_id,TBx,lesion_pirads"]
    for number, (man, rows) in enumerate(men_of(cohort), start=1):
        given, folder = parts(cohort, man), f"{number:03d}"
        for name in ("T2w", "ADC"):
            write_mha(top / f"Data/{folder}/{number}_{name.lower()}.mha", given[name])
        write_nifti(top / f"Anatomical_Labels/{folder}/{number}_pg_t2w.nii.gz", given["gland"])
        for row in rows.itertuples():
            for reader, public in READERS.items():
                name = f"lesion{row.label}/t2w/{number}_lesion{row.label}_t2w_{public}.nii.gz"
                if not (mask := only(given[reader], row.label)).array.any():
                    continue
                write_nifti(top / f"Lesion_Labels/{folder}/{name}", mask)
                score, found = getattr(row, reader), int(row.isup >= 2)
                said = "" if np.isnan(score) else f"{score}"
                lines.append(f"{number},U_{public},{row.label},{found},{said}")
    (source / "AI4AR_PCa_radiological.csv").write_text("\n".join(lines) + "\n")
    return "ignore"


def promis(cohort: Path, source: Path) -> str:
    """Numbered lesions, a Likert score of each, and biopsies of the zone that each lies in."""
    lines = ["patientID,les_all"]
    for number, (man, rows) in enumerate(men_of(cohort), start=1):
        given, patient = parts(cohort, man), f"P-{number:08d}"
        drawn = {"t2": "T2w", "adc": "ADC", "gland": "gland", "l_a1": "rois"}
        for name, ours in drawn.items():
            write_nifti(source / f"MRI/{patient}/{name}.nii.gz", given[ours])
        labels = given["rois"]
        nearest = distance_transform_edt(
            labels.array == 0, return_distances=False, return_indices=True
        )
        zones = labels.with_array(labels.array[tuple(nearest)])
        write_nifti(source / f"MRI/{patient}/gland_zone_set1.nii.gz", zones)
        biopsies = ["zone_id,samtaken,zprescancer,zprimgleason,zsecondgleason,maxccuk"]
        for row in rows.sort_values("label").itertuples():
            score = np.nanmax([getattr(row, reader) for reader in READERS])
            lines.append(f"{patient},{score}")
            first, second = SUMS[row.isup] if row.isup else ("", "")
            biopsies.append(f"{row.label},1,{int(row.isup > 0)},{first},{second},3")
        report = source / f"Template_biopsy/{patient}.csv"
        report.parent.mkdir(exist_ok=True)
        report.write_text("\n".join(biopsies) + "\n")
    (source / "PROMIS_OA_MRI_cleaned.csv").write_text("\n".join(lines) + "\n")
    return "ignore"


@pytest.mark.filterwarnings("ignore::cad.learning.learners.base.LearnerWarning")
@pytest.mark.parametrize(
    "mirror",
    [prostatex, *(pytest.param(f, marks=pytest.mark.slow) for f in (ai4ar, promis))],
    ids=["prostatex", "ai4ar", "promis"],
)
def test_from_download_to_a_card(
    mirror: Callable[[Path, Path], str], light_cohort: Path, tmp_path: Path
) -> None:
    source, out = tmp_path / "in", tmp_path / "cohort"
    source.mkdir()
    histology = mirror(light_cohort, source)
    run = CliRunner().invoke
    made = run(app, ["import", str(source), str(out), "--rules", mirror.__name__, "--json"])
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    assert len(told["added"]) == 6
    assert told["awaiting"] == []
    # Whose tissue is what comes back as it was given, lesion by lesion.
    ours, given = table(out, "rois"), table(light_cohort, "rois")
    number = ours["roi_id"].str.extract(r"(\d+)", expand=False).astype(int)
    ours = ours.assign(number=number).sort_values(["participant_id", "number"])
    assert len(ours) == len(given)
    grades = given["isup"].astype(int)
    if mirror is ai4ar:  # its table knows significant or not
        expected = np.where(grades >= 2, ">=2", "<=1").tolist()
        assert ours["isup"].tolist() == expected
    if mirror is prostatex:  # what is not significant has no grade there
        stated = np.where(grades >= 1, given["isup"], "<=1").tolist()
        assert ours["isup"].tolist() == stated
    if mirror is promis:
        assert ours["isup"].replace("n/a", "0").tolist() == given["isup"].tolist()
        assert (ours["histology"] == "malignant").tolist() == (grades >= 1).tolist()
    if mirror is prostatex:
        (note,) = [note for note in told["notes"] if "drawn on it" in note]
        assert "2 images, series 4 is taken" in note
        sidecar = out / "sub-ProstateX0001/anat/sub-ProstateX0001_T2w.json"
        assert json.loads(sidecar.read_text())["SeriesNumber"] == 4
    scores = table(out, "scores")
    if mirror is ai4ar:
        assert sorted(scores["reader_id"].unique()) == sorted(f"U_{r}" for r in READERS.values())
    if mirror is not prostatex:
        assert set(scores["scale"]) == {"pirads" if mirror is ai4ar else "likert5"}
    pipeline = tmp_path / "quick.yaml"
    pipeline.write_text(PIPELINE.replace("HISTOLOGY", histology))
    done = run(app, ["train", str(pipeline), "--cohort", str(out), "-o", str(tmp_path / "model")])
    assert done.exit_code == 0, done.output
    card = (tmp_path / "model/README.md").read_text()
    assert f"6 real patients, {len(given)} regions" in card
    assert "imulated" not in card.split("## Training")[0]
