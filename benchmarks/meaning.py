"""Show that a feature means one thing only: ``python -m benchmarks.features meaning``.

The module measures simulated regions whose tissue does not depend on their size, the same regions
drawn in one slice, studies that lack images of other studies, images in other units, and real
regions. Cohorts are drawn with seeds on which no default was chosen.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.settings import PipelineSettings
from cad.base.terms.text import to_markdown
from cad.dicom.into.importer import import_source
from cad.evidence.phantom.protocols import SAMPLE, Grid
from cad.evidence.phantom.simulator import make_patient, write_cohort
from cad.folders.cohort import read_cohort
from cad.learners import ProbabilisticSVC
from cad.mri.columns import columns_of
from cad.mri.features.provenance import CohortFacts, differences, resolve_auto, summary
from cad.mri.features.robustness import MIN_LOWER_BOUND, perturbed_features, stability
from cad.mri.features.table import extract
from cad.mri.features.typicality import Judgement, Typicality
from cad.mri.imaging.study import Roi, Study
from cad.mri.imaging.study_files import read_study

Row = tuple[str, str, str, bool]
ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("CAD_REFERENCE_DATA", ROOT.parent / "shared" / "data"))
USUAL = PipelineSettings(name="benchmark")
COLUMNS = columns_of(USUAL.features)
SIZED = PipelineSettings.model_validate(
    {"name": "sized", "features": {"families": [*USUAL.features.families, "size"]}}
)


def rows(patients: int = 40) -> list[Row]:
    """Measure all properties that the page of features promises."""
    with tempfile.TemporaryDirectory() as folder:
        train, new = Path(folder) / "train", Path(folder) / "new"
        write_cohort(train, patients, 94, SAMPLE)
        write_cohort(new, patients // 2, 95, SAMPLE)
        studies = read_studies(train)
        settings = resolve_auto(facts(train), USUAL)
        table = measured(studies, resolve_auto(facts(train), SIZED))
        fitted = Typicality.fit(_features(table), table["participant_id"].to_numpy(), COLUMNS)
        found = size_rows(table, train)
        found += slice_rows(studies, train)
        found += mark_rows(studies[:6], settings, table, fitted)
        found += typical_rows(fitted, read_studies(new), settings)
    return found + spacing_rows()


def size_rows(table: pd.DataFrame, cohort: Path) -> list[Row]:
    """Correlate every feature with volume, and volume with malignancy."""
    volume = np.log(table["size_volume"])
    found = {
        name: abs(spearmanr(table[name], volume, nan_policy="omit").statistic)
        for name in table.columns
        if name in COLUMNS and table[name].nunique() > 1
    }
    worst = max(found, key=lambda name: found[name])
    truth = read_cohort(cohort).rois[["participant_id", "roi_id", "histology"]]
    joined = table.merge(truth, on=["participant_id", "roi_id"])
    bad = (joined["histology"] == "malignant").to_numpy()
    a, b = joined["size_volume"].to_numpy()[bad][:, None], joined["size_volume"].to_numpy()[~bad]
    auc = float((a > b).mean() + 0.5 * (a == b).mean())
    return [
        (
            f"features with |rho| > .5 to log volume, {len(table)} regions; largest {worst}"
            f" {found[worst]:.2f}",
            f"{sum(value > 0.5 for value in found.values())} of {len(found)}",
            "none",
            found[worst] <= 0.5,
        ),
        ("AUC of the outlined volume", f"{auc:.3f}", ".5 +- .05", abs(auc - 0.5) <= 0.05),
    ]


def slice_rows(studies: list[Study], cohort: Path) -> list[Row]:
    """Draw every region in its largest slice only, and measure the change of its probability."""
    drawn = measured(studies, USUAL)
    single = measured([in_one_slice(study) for study in studies], USUAL)
    both = drawn[["participant_id", "roi_id"]].merge(single, how="left")
    scores = read_cohort(cohort).scores.groupby(["participant_id", "roi_id"])["score"].mean()
    keys = pd.MultiIndex.from_frame(drawn[["participant_id", "roi_id"]])
    p = ((scores.reindex(keys) - 1) / 4).to_numpy()
    names = [name for name in drawn if name in COLUMNS]
    X, Z = drawn[names].to_numpy(float), both.reindex(columns=names).to_numpy(float)
    who, known = drawn["participant_id"].to_numpy(), np.isfinite(p)
    before, after = np.full(len(p), np.nan), np.full(len(p), np.nan)
    for patient in np.unique(who):
        own = who == patient
        model = make_pipeline(
            SimpleImputer(strategy="median", keep_empty_features=True),
            StandardScaler(),
            ProbabilisticSVC(C=1.0, gamma=3e-4, eta=0.125),
        ).fit(X[~own & known], p[~own & known])
        before[own] = model.predict_proba(X[own])[:, 1]
        after[own] = model.predict_proba(Z[own])[:, 1]
    change = float(np.median(np.abs(after - before)))
    count = len(single)
    return [
        (
            "regions scored when drawn in their largest slice only",
            f"{count} of {len(drawn)}",
            "all",
            count == len(drawn),
        ),
        ("  median change of P", f"{change:.3f}", "<= .10", change <= 0.10),
    ]


def mark_rows(
    studies: list[Study], settings: PipelineSettings, table: pd.DataFrame, fitted: Typicality
) -> list[Row]:
    """Remove images that other studies have, and count the studies that carry a mark."""
    trained = summary(table)

    def adc_in_mm(study: Study) -> Study:
        assert study.adc is not None
        return replace(study, adc=study.adc.with_array(study.adc.array / np.float32(1000)))

    def t2_of_another(study: Study) -> Study:
        assert study.t2w is not None
        return replace(study, t2w=study.t2w.with_array(study.t2w.array.astype(np.float32) * 7))

    cases: dict[str, Callable[[Study], Study]] = {
        "gland mask removed": lambda s: replace(s, gland=None),
        "flip angles removed": lambda s: replace(s, vfa=[]),
        "vessel removed": lambda s: replace(s, vessel=None),
        "ADC / 1000": adc_in_mm,
        "T2 times 7": t2_of_another,
    }
    found: list[Row] = []
    for name, change in cases.items():
        marked = same = 0
        for study in studies:
            made = extract(change(study), settings)
            said = bool(made.failures)
            for _, row in made.provenance.iterrows():
                said |= bool(differences(trained, row.to_dict()))
            said |= any(j.flagged for j in fitted.judge(made.rows, made.rows["participant_id"]))
            marked += said
            same += _same(made.rows, extract(study, settings).rows)
        found.append(
            (f"marked: {name}", f"{marked} of {len(studies)}", "all", marked == len(studies))
        )
        if change is t2_of_another:
            all_same = same == len(studies)
            found.append(("  studies without a changed feature", f"{same}", "all", all_same))
    return found


def typical_rows(fitted: Typicality, studies: list[Study], settings: PipelineSettings) -> list[Row]:
    """Judge simulated patients who were held out, and the real regions."""
    table = measured(studies, settings)
    judged = fitted.judge(table, table["participant_id"])
    flagged = float(np.mean([j.flagged for j in judged]))
    found: list[Row] = [
        (
            f"held-out simulated regions flagged, of {len(table)}",
            f"{flagged:.1%}",
            "<= 5%",
            flagged <= 0.05,
        )
    ]
    for study in real_studies():
        made = extract(study, USUAL)
        judged = fitted.judge(made.rows, made.rows["participant_id"])
        for key, judgement in zip(made.rows["roi_id"], judged, strict=True):
            found.append(
                (f"{study.participant_id} ROI {key}: {_said(judgement)}", "", "named", True)
            )
    return found


def _same(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    """Return whether two tables of features agree to rounding."""
    return list(a) == list(b) and np.allclose(
        a.iloc[:, 2:].to_numpy(float),
        b.iloc[:, 2:].to_numpy(float),
        rtol=1e-3,
        atol=1e-3,
        equal_nan=True,
    )


def _said(judgement: Judgement) -> str:
    return "; ".join(map(str, judgement.deviations[:3])) or "like the training"


def measured(studies: list[Study], settings: PipelineSettings) -> pd.DataFrame:
    """Return the features and the provenance of studies in one table."""
    parts = [extract(study, settings) for study in studies]
    return pd.concat([pd.concat([p.rows, p.provenance], axis=1) for p in parts], ignore_index=True)


def stability_table() -> str:
    """Return how many features another drawing keeps, by image and family, in both cohorts."""
    found = []
    for studies in (read_studies(ROOT / "sample_data"), real_studies()):
        copies = pd.concat([perturbed_features(study, USUAL) for study in studies])
        table = stability(copies).set_index("feature").reindex(COLUMNS)
        # A feature that is missing in all studies of a cohort, or is constant, does not count as
        # stable.
        found.append(table.assign(family=[column.title for column in COLUMNS.values()]))
    both = [table["low"] >= MIN_LOWER_BOUND for table in found]
    rows = []
    for title in dict.fromkeys(found[0]["family"]):
        row: dict[str, object] = {
            "family": title,
            "features": int((found[0]["family"] == title).sum()),
        }
        for name, table, kept in zip(("simulated", "real"), found, both, strict=True):
            own = table["family"] == title
            row[f"stable, {name}"] = int(kept[own].sum())
            row[f"median ICC, {name}"] = float(table.loc[own, "icc"].median())
            row[f"median lower bound, {name}"] = float(table.loc[own, "low"].median())
        rows.append(row)
    regions = [int(table["n_regions"].max()) for table in found]
    icc = found[0]["icc"].groupby([column.statistic for column in COLUMNS.values()]).median()
    return (
        f"{to_markdown(pd.DataFrame(rows))}\n{len(COLUMNS)} features; stable "
        f"{int(both[0].sum())} (simulated, {regions[0]} regions), {int(both[1].sum())} (real, "
        f"{regions[1]}), {int((both[0] & both[1]).sum())} in both\n{icc.round(2).to_dict()}"
    )


def in_one_slice(study: Study) -> Study:
    """Return the study with every region in its largest slice only."""
    assert study.roi_map is not None
    labels = np.zeros_like(study.roi_map.array)
    for roi in study.rois:
        inside = study.roi_map.array == roi.label
        z = int(inside.sum(axis=(1, 2)).argmax())
        labels[z][inside[z]] = roi.label
    return replace(study, roi_map=study.roi_map.with_array(labels))


def read_studies(cohort: Path) -> list[Study]:
    """Read every study of a cohort with its regions."""
    found = []
    for ref in read_cohort(cohort).studies():
        rois = [Roi(str(r.roi_id), int(r.label), str(r.zone)) for r in ref.rois.itertuples()]
        found.append(read_study(ref.folder, ref.study_id, ref.participant_id, rois))
    return found


def real_studies() -> list[Study]:
    """Import the two ProstateX patients."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "cohort"
        import_source(SHARED / "prostatex", out, ROOT / "configs" / "import" / "prostatex.yaml")
        return read_studies(out)


def facts(cohort: Path) -> CohortFacts:
    """Return which images and values the studies of a cohort have."""
    return CohortFacts.of((ref.folder, ref.study_id) for ref in read_cohort(cohort).studies())


def _features(table: pd.DataFrame) -> pd.DataFrame:
    return table[[c for c in table if c in COLUMNS]]


def spacing_rows(patients: int = 10) -> list[Row]:
    """Image the same men with T2 of 1.0 and 0.5 mm, and count the features that shift."""
    fine, coarse = (
        replace(SAMPLE[0], t2=Grid((13, n, n), (s, s, 4.4))) for n, s in ((224, 0.525), (112, 1.05))
    )
    found: list[Row] = []
    for name, spacing in (("own grids", None), ("interpolated to 1.05 mm", (1.05, 1.05, 0.0))):
        settings = PipelineSettings.model_validate(
            {"name": "spacing", "images": {"spacing_t2w": spacing}}
        )
        tables = [
            measured([make_patient(93, i, (protocol,)).study for i in range(patients)], settings)
            for protocol in (fine, coarse)
        ]
        both = tables[0].merge(tables[1], on=["participant_id", "roi_id"], suffixes=("", "_other"))
        names = [c for c in tables[0] if c in COLUMNS]
        shift = {
            c: abs((both[c] - both[f"{c}_other"]).mean()) / both[c].std()
            for c in names
            if both[c].std() > 0
        }
        moved = [c for c, value in shift.items() if value > 1]
        holds = len(moved) <= 3
        found.append(
            (
                f"same men at 1.05 and 0.525 mm, {name}: features that shift",
                f"{len(moved)} of {len(names)}",
                "<= 3",
                holds or spacing is None,
            )
        )
    return found
