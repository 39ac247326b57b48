"""A run folder as a run leaves it: plausible images, curves, scores, measures and failures."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cad.base.files import json_safe
from cad.learning.evaluation.summary import Given, summarise
from cad.run.model.outcome import with_given
from cad.run.stages.decide import decide_men, decide_regions

THRESHOLDS = (0.1, 0.6)
SCRIPT = "<script>window.stolen=1</script>\"'&"
SHAPE, SPACING = (14, 168, 176), (0.5, 0.5, 3.0)
ZONES = ("PZ", "TZ", "AFS")


@dataclass(frozen=True)
class Patient:
    """One made-up patient."""

    name: str
    n_rois: int = 3
    sessions: tuple[str, ...] = ("",)
    missing: tuple[str, ...] = ()
    images: bool = True


PATIENTS = (
    Patient("sub-P001", 4),
    Patient("sub-P002", 3, missing=("dce",)),
    Patient("sub-P003", 2, sessions=("_ses-01", "_ses-02")),
    Patient("sub-P004", 7),
    Patient("sub-P005", 1, missing=("adc",)),
    *(Patient(f"sub-P{k:03d}", 5, images=False) for k in range(6, 19)),
)


def make_run(folder: Path, patients: tuple[Patient, ...] = PATIENTS, seed: int = 5) -> Path:
    """Write a run folder (without pages) and return it."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for patient in patients for row in _rows(patient, rng)]
    frame = pd.DataFrame(rows)
    hostile = frame.index[0]
    frame.loc[hostile, "warnings"] = f"outside the training distribution: 3.1, limit 2.2; {SCRIPT}"
    given, metrics = _metrics(frame.head(400), rng)
    frame = pd.concat([with_given(frame.head(400), given), frame.iloc[400:]], ignore_index=True)
    frame = decided(frame)
    frame.drop(columns="readers").to_csv(folder / "probabilities.csv", index=False)
    _failures(folder)
    _explanations(folder, frame, rng)
    _json(folder / "metrics.json", metrics)
    _json(folder / "run.json", _record(len(patients), len(frame)))
    (folder / "studies").mkdir(exist_ok=True)
    for patient in patients:
        if patient.images:
            for session in patient.sessions:
                own = frame[frame["study_id"] == patient.name + session]
                _study(folder, patient, patient.name + session, own, rng)
    return folder


def blind(run: Path, on: bool) -> None:
    """Set whether the site of a run holds back what nobody has scored."""
    record = json.loads((run / "run.json").read_text())
    settings = record.get("settings") or {}
    decision = {**(settings.get("decision") or {}), "blinded": on}
    _json(run / "run.json", {**record, "settings": {**settings, "decision": decision}})


def decided(frame: pd.DataFrame, failed: tuple[str, ...] = ()) -> pd.DataFrame:
    """Decide on every region, and on the men, none of whom has a probability of his own."""
    lower, upper = (np.full(len(frame), limit) for limit in THRESHOLDS)
    frame = decide_regions(frame, lower, upper)
    names = pd.Index(frame["participant_id"].unique(), name="participant_id")
    men = pd.DataFrame({"probability": np.nan, "lower": THRESHOLDS[0], "truth": np.nan}, names)
    men = decide_men(men, frame, failed)
    return frame.assign(patient_decision=frame["participant_id"].map(men["decision"]))


def _rows(patient: Patient, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    for session in patient.sessions:
        for k in range(1, patient.n_rois + 1):
            malignant = rng.random() < 0.25
            latent = rng.normal(1.4 if malignant else -1.4, 1.3)
            probability = float(1 / (1 + np.exp(-latent)))
            scores = np.clip(np.rint(3 + latent + rng.normal(0, 0.8, 4)), 1, 5)
            mean = float(((scores - 1) / 4).mean())
            yield {
                "participant_id": patient.name,
                "study_id": patient.name + session,
                "roi_id": f"{session[-1:] or ''}L{k}",
                "label": k,
                "zone": ZONES[k % 3],
                "probability": probability,
                "probability_of": "histology",
                "probability_low": probability / 2,
                "probability_high": (1 + probability) / 2,
                "probability_images": probability,
                "belief": probability,
                "readers_mean": mean,
                "decision_value": latent,
                "p": mean,
                "eta": max(float(((scores - 1) / 4).std(ddof=1)), 0.125),
                "n_readers": 4,
                "label_kind": "two_sided" if 0.125 < mean < 0.875 else "certain_negative",
                "histology": "malignant" if malignant else "benign",
                "isup": 2 if malignant else np.nan,
                "scores": "; ".join(f"r{i + 1}={s:g}" for i, s in enumerate(scores)),
                "reader_values": "; ".join(
                    f"r{i + 1}={(s - 1) / 4:g}" for i, s in enumerate(scores)
                ),
                "warnings": "",
                "truth": float(malignant),
                "readers": scores,
            }


def _metrics(frame: pd.DataFrame, rng: np.random.Generator) -> tuple[Given, dict[str, Any]]:
    readers = pd.DataFrame(
        [
            (r.participant_id, r.roi_id, f"r{i + 1}", (s - 1) / 4)
            for r in frame.itertuples()
            for i, s in enumerate(r.readers)
        ],
        columns=["participant_id", "roi_id", "reader_id", "probability"],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        summary = summarise(frame, reader_scores=readers, bootstraps=40)
    assert summary.rows is not None
    made = summary.as_dict()
    null = {
        "aucs": rng.normal(0.5, 0.07, 200).tolist(),
        "failed": 0,
        "p": 1 / 201,
        "lower": 0.37,
        "upper": 0.63,
        "mean": 0.5,
        "evidence": "evidence that images tell malignant from benign (p = 0.005)",
    }
    made["null"] = {
        "observed": 0.9,
        "n": 200,
        "against": "histology",
        "between": null,
        "within": null,
    }
    return summary.rows, json_safe(made)


def _record(patients: int, regions: int) -> dict[str, Any]:
    return {
        "name": "synthetic",
        "kind": "run",
        "created": "2026-01-05T03:00:00+00:00",
        "cad_version": "0.1.0",
        "settings": {
            "name": "synthetic",
            "decision": {
                "false_positive": 1.0,
                "false_negative": 4.0,
                "refer_negative": 0.4,
                "refer_positive": 0.4,
            },
        },
        "decision_thresholds": list(THRESHOLDS),
        "model": None,
        "versions": {"numpy": np.__version__},
        "timings": {"measure": 12.5},
        "inputs": {},
        "counts": {"studies": patients, "failed": 1, "regions": regions},
        "warnings": [],
        "simulated": True,
    }


def _failures(folder: Path) -> None:
    columns = ("participant_id", "study_id", "roi_id", "stage", "reason", "hint", "status")
    rows = (
        (
            "sub-P900",
            "sub-P900",
            "",
            "read or measure",
            "sub-P900_dce.nii.gz: times are not increasing at frame 7",
            "check the phase order",
            "failed",
        ),
        (
            "sub-P901",
            "sub-P901",
            "",
            "read or measure",
            "awaiting ROI: the study has no region to measure",
            "",
            "awaiting ROI",
        ),
        (
            "sub-P002",
            "sub-P002",
            "L9",
            "measure",
            f"4 voxels, at least 5 needed {SCRIPT}",
            "draw it larger",
            "failed",
        ),
    )
    with (folder / "failures.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([columns, *rows])


FEATURES = (
    ("adc_intensity_p10", 780.0, "1e-6 mm2/s"),
    ("dce_tofts_ktrans_median", 0.41, "1/min"),
    ("t2w_kirsch_mean", 2.31, ""),
    ("dce_semi_wash_in_median", 0.093, "1/s"),
    ("adc_haralick_joint_entropy", 6.02, "bit"),
)


def _explanations(folder: Path, frame: pd.DataFrame, rng: np.random.Generator) -> None:
    rows = [
        {
            "participant_id": r.participant_id,
            "study_id": r.study_id,
            "roi_id": r.roi_id,
            "rank": rank,
            "feature": name,
            "value": value * float(rng.uniform(0.7, 1.3)),
            "unit": unit,
            "delta": float(rng.normal(0.4 * np.sign(r.decision_value), 0.3)) / rank,
            "percentile": float(rng.uniform(1, 99)),
            "group": name.rpartition("_")[0],
            "contribution": float(rng.normal(0.4 * np.sign(r.decision_value), 0.3)) / rank,
            "average": -1.0,
        }
        for r in frame.itertuples()
        for rank, (name, value, unit) in enumerate(FEATURES, start=1)
    ]
    pd.DataFrame(rows).to_csv(folder / "explanations.csv", index=False)


def _study(
    folder: Path, patient: Patient, study: str, rows: pd.DataFrame, rng: np.random.Generator
) -> None:
    n, height, width = SHAPE
    z, y, x = np.mgrid[:n, :height, :width].astype(float)
    mm = (
        (z - n / 2) * SPACING[2],
        (y - height / 2) * SPACING[1],
        (x - width / 2) * SPACING[0],
    )
    gland = (mm[0] / 19) ** 2 + (mm[1] / 19) ** 2 + (mm[2] / 25) ** 2 < 1
    inner = (mm[0] / 17) ** 2 + ((mm[1] + 4) / 13) ** 2 + (mm[2] / 17) ** 2 < 1
    t2w = np.where(gland, np.where(inner, 330.0, 560.0), 210.0)
    adc = np.where(gland, np.where(inner, 1250.0, 1650.0), 1100.0)
    enhancement = np.where(gland, np.where(inner, 1.1, 0.7), 0.4)
    ktrans = np.where(gland, np.where(inner, 0.18, 0.1), 0.04)
    labels = np.zeros(SHAPE, np.uint8)
    rois = []
    for row in rows.itertuples():
        angle = rng.uniform(0, 2 * np.pi)
        centre = (rng.uniform(-10, 10), 10 * np.sin(angle), 14 * np.cos(angle))
        radius = rng.uniform(3, 6)
        inside = sum((mm[k] - centre[k]) ** 2 for k in range(3)) < radius**2
        inside &= labels == 0
        labels[inside] = row.label
        dark = row.probability
        t2w[inside] = 470 - 250 * dark
        adc[inside] = 1500 - 800 * dark
        enhancement[inside] = 0.8 + 1.2 * dark
        ktrans[inside] = 0.1 + 0.35 * dark
        rois.append(_measured(row, float(inside.sum()) * 0.75, dark, patient))
    noise = {"t2w": 25, "adc": 70, "enhancement": 0.12, "ktrans": 0.02}
    arrays = {"t2w": t2w, "adc": adc, "enhancement": enhancement, "ktrans": ktrans}
    for name, level in noise.items():
        arrays[name] = (arrays[name] + level * rng.standard_normal(SHAPE)).astype(np.float16)
    arrays["adc"][:, :8] = np.nan  # the diffusion field of view is smaller
    for modality, names in (("dce", ("enhancement", "ktrans")), ("adc", ("adc",))):
        if modality in patient.missing:
            for name in names:
                del arrays[name]
    if "dce" not in patient.missing:
        arrays.update(_curves(rows, rng))
    meta = {
        "study_id": study,
        "participant_id": patient.name,
        "rois": rois,
        "notes": ["arterial input from the population (no vessel mask)", f"series named {SCRIPT}"],
        "missing": list(patient.missing),
        "gland_ml": 43.2,
        "archive": {"t2w": {"series": 4, "images": list(range(20, 20 - n, -1))}},
        "window": {
            k: np.nanpercentile(v.astype(float), (1, 99.5)).tolist()
            for k, v in arrays.items()
            if v.shape == SHAPE
        },
    }
    np.savez_compressed(
        folder / "studies" / f"{study}.npz",
        roi_map=labels,
        frame=gland.astype(np.uint8),
        spacing=np.array(SPACING),
        z_mm=-20 + SPACING[2] * np.arange(n),
        direction=np.eye(3),
        meta=np.array(json.dumps(meta)),
        **arrays,
    )


def _measured(row: Any, volume: float, dark: float, patient: Patient) -> dict[str, Any]:
    dce = "dce" not in patient.missing
    return {
        "roi_id": row.roi_id,
        "label": row.label,
        "centre_index": [0, 0, 0],
        "volume_mm3": volume,
        "diameter_mm": 2 * (0.75 * volume / np.pi) ** (1 / 3),
        "place": {"side": "left", "level": "mid", "sector": "left mid PZpl", "u": 0.6, "v": 0.8},
        "curve_type": 3 if dce else None,
        "adc_median": None if "adc" in patient.missing else 1500 - 800 * dark,
        "ktrans_median": 0.1 + 0.35 * dark if dce else None,
        "ve_median": 0.3 if dce else None,
        "fit_r2": (0.62 if row.label == 3 else 0.97) if dce else None,
    }


def _curves(rows: pd.DataFrame, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Tofts curves under a bi-exponential plasma input: dC/dt = Ktrans Cp - kep C."""
    times = np.arange(0, 300, 7.5)
    plasma = np.where(
        times > 30,
        3.99 * np.exp(-0.144 / 60 * (times - 30)) + 4.78 * np.exp(-0.0111 / 60 * (times - 30)),
        0,
    )
    fits = []
    for row in rows.itertuples():
        transfer = (0.1 + 0.35 * row.probability) / 60
        impulse = transfer * np.exp(-transfer / 0.3 * times)
        fits.append(0.2 * np.convolve(plasma, impulse)[: len(times)] * 7.5)
    fit = np.array(fits)
    concentration = fit + 0.03 * rng.standard_normal(fit.shape)
    return {
        "curve_times": times,
        "curve_signal": 200 * (1 + concentration),
        "curve_concentration": concentration,
        "curve_fit": fit,
    }


def _json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
