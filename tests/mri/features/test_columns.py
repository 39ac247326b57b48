"""One object a column: what is said of it, that nothing takes its name apart, and its page."""

from __future__ import annotations

import ast
import hashlib
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from cad.base.settings import FeatureSettings, PipelineSettings
from cad.base.terms import features as words
from cad.folders.run_folder.results import Reason
from cad.learners import ProbabilisticSVC
from cad.mri.columns import Column, column_name, columns_digest, columns_of, units_of
from cad.mri.features.haralick import haralick_features
from cad.mri.features.histogram import discretise, histogram_features
from cad.mri.features.intensity import statistics
from cad.mri.features.regions import RegionVoxels
from cad.mri.features.robustness import masks_features
from cad.mri.features.table import extract
from cad.mri.features.typicality import Typicality
from cad.mri.imaging.study import Study
from cad.run.execution.task import settings_key
from cad.run.model.card import metadata
from cad.run.model.gaps import lacking
from cad.run.reports.reasons import reason_sum
from cad.run.workflows.check import _lacks

WIDE = FeatureSettings.model_validate(
    {
        "modalities": ["t2w", "adc", "dce"],
        "families": ["intensity", "gradient", "kinetic", "semiquantitative", "size", "position"],
        "radiomics": ["glrlm", "total_energy", "mcc"],
        "exclude": [],  # the default names columns
        "filters": {
            "t2w": [
                {"kind": "mean", "support_mm": 5},
                {"kind": "log", "sigma_mm": 3},
                {"kind": "wavelet", "wavelet": "db3", "bands": "LH", "rotations": True},
            ]
        },
        "perfusion": {"models": ["tofts", "patlak"], "arterial_input": "parker", "t1": "fixed"},
    }
)


@pytest.mark.parametrize(
    ("name", "family", "unit", "title", "word", "group"),
    [
        ("dce_patlak_ktrans_median", "kinetic", "1/min", "Ktrans", "leak", "DCE Patlak"),
        ("dce_patlak_did_not_fit_mean", "kinetic", "1", "Fit of the curve", "no fit", "DCE Patlak"),
        (
            "dce_semi_iauc60_p90",
            "semiquantitative",
            "mM s",
            "Initial area",
            "60 s",
            "DCE enhancement",
        ),
        ("t2w_mean5mm_p10", "filters", "standardised", "T2 smoothed", "averaged", "T2 smoothed"),
        ("t2w_log3mm_variance", "filters", "(standardised/mm2)^2", "T2 blobs", "spots", "T2 blobs"),
        (
            "t2w_wavelet_db3_lh_1_turned_mean",
            "filters",
            "standardised",
            "T2 wavelet",
            "detail",
            "T2 wavelet",
        ),
        ("adc_glrlm_run_entropy", "radiomics", "1", "ADC runs", "run on", "ADC runs"),
        (
            "adc_firstorder_total_energy",
            "radiomics",
            "(1e-6 mm2/s)^2 mm3",
            "ADC energy",
            "squared",
            "ADC intensity",
        ),
        ("t2w_glcm_mcc", "radiomics", "1", "T2 texture", "neighbouring", "T2 texture"),
        (
            "t2w_kirsch_median",
            "gradient",
            "standardised",
            "T2 edges",
            "in the slice",
            "T2 gradient",
        ),
        ("position_side", "position", "1", "Position", "where in the gland", "Position"),
    ],
)
def test_family_unit_and_words(
    name: str, family: str, unit: str, title: str, word: str, group: str
) -> None:
    column = columns_of(WIDE)[name]
    assert (column.family, column.unit, column.title) == (family, unit, title)
    assert word in column.words
    assert group in column.groups
    shown = reason_sum([Reason(name, 1.0, unit, 0.5, None, title, 0.3, -1.0)], columns_of(WIDE))
    assert shown is not None
    assert title.lower() in shown.bars[0].title.lower()
    assert shown.bars[0].words == column.words
    assert shown.bars[0].definition == f"{name}: {column.definition}"


def everything_said(study: Study, settings: PipelineSettings) -> list[object]:
    """Return all that the program makes of columns, without their names."""
    columns = columns_of(settings.features)
    found = extract(study, settings)
    names = list(found.rows.columns[2:])
    X = pd.concat([found.rows[names]] * 4, ignore_index=True).to_numpy(float)
    X = pd.DataFrame(X * np.random.default_rng(5).normal(1, 0.1, X.shape), columns=names)
    typical = Typicality.fit(X, np.repeat(list("abcd"), 2), columns)
    lost = X.assign(**{n: np.nan for n in names if columns[n].image == "adc"})
    reasons = [
        Reason(n, 1.0, columns[n].unit, 1.0 / i, 50.0, columns[n].title, 1.0 / i, 0.0)
        for i, n in enumerate(names, 1)
    ]
    moved = reason_sum(reasons, columns)
    assert moved is not None
    labels = pd.DataFrame({"participant_id": np.repeat(list("abcd"), 2), "truth": 0.0})
    meta = metadata(
        settings=settings,
        features=X,
        columns=columns,
        labels=labels,
        label_counts=None,
        estimator=ProbabilisticSVC(),
        simulated=False,
        metrics={},
        typicality=None,
        provenance={},
        parents=[],
    )
    none = lost.columns[lost.isna().all()]
    masks = [study.roi_map.with_array(study.roi_map.array == 1)] if study.roi_map else []
    return [
        found.rows[names].to_numpy().tobytes(),
        found.provenance.to_json(),
        [str(failure) for failure in found.failures],
        {group: at.tolist() for group, at in typical.groups().items()},
        [(bar.title, bar.words, bar.feature) for bar in moved.bars],
        list(units_of(names, columns).values()),
        meta["modalities"],
        list(meta["units"].values()),
        lacking(lost, meta["modalities"], columns),
        [
            str(error)
            for error in _lacks(
                SimpleNamespace(participant_id="sub-1", study_id="sub-1"),
                replace(
                    found,
                    rows=found.rows.assign(**dict.fromkeys(none, np.nan)),
                ),
                settings,
            )
        ],
        masks_features(study, settings, masks).to_numpy().tobytes(),
    ]


def test_nothing_takes_a_name_apart(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """With names that say nothing, everything is as before."""
    settings = PipelineSettings(name="wide", features=WIDE)
    expected = everything_said(study, settings)
    assert expected[6] == ["adc", "dce", "t2w"]
    assert expected[8] == [["adc"]] * 8
    said = "patient sub-1: the model needs adc features and this study has none"
    assert expected[9] == [said]

    def opaque(column: Column) -> str:
        plain = column_name(column.image, column.channel, column.statistic)
        return "x" + hashlib.sha256(plain.encode()).hexdigest()[:12]

    monkeypatch.setattr(Column, "name", property(opaque))
    found = everything_said(study, settings)
    for at, (new, old) in enumerate(zip(found, expected, strict=True)):
        assert new == old, at


def parsers(source: str, pieces: str) -> list[str]:
    """Return the expressions that look for a piece of a column's name in a text."""
    cut = {"split", "rsplit", "partition", "rpartition"}
    look = {
        *("startswith", "endswith", "removeprefix", "removesuffix", "find", "rfind", "contains"),
        *("match", "fullmatch", "search", "extract", "filter", "fnmatch", "fnmatchcase"),
    }
    found = []
    for node in ast.walk(ast.parse(source)):
        called = ""
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given = [*node.args, *(word.value for word in node.keywords)]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            asked = ast.unparse(node.comparators[0]).rpartition(".")[2]
            given = [node.left] if asked in ("name", "feature", "column") else []
        else:
            continue
        texts = [
            part.value
            for one in given
            for part in ast.walk(one)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        ]
        wanted = called in look or isinstance(node, ast.Compare)
        piece = wanted and any(len(text) > 2 and text.strip("^$.*") in pieces for text in texts)
        if piece or (called in cut and "_" in texts):
            found.append(ast.unparse(node))
    return found


def test_no_module_looks_into_a_name(repository: Path) -> None:
    pieces = " ".join(columns_of(WIDE))
    found = {
        path: parsers(path.read_text(encoding="utf-8"), pieces)
        for path in sorted((repository / "cad").rglob("*.py"))
    }
    assert {path.name: lines for path, lines in found.items() if lines} == {}
    for line in (
        "image = name.split('_')[0]",
        "image, _, rest = feature.partition('_')",
        "own = [n for n in names if n.startswith('dce_')]",
        "part = name.removesuffix('_median')",
        "X.filter(regex='^t2w_')",
        "names.str.contains('tofts')",
        "kinetic = 'ktrans' in name",
    ):
        assert len(parsers(line, pieces)) == 1, line


def test_a_parsed_name_would_be_seen(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    import cad.run.model.card as card

    settings = PipelineSettings(name="wide", features=WIDE)
    monkeypatch.setattr(
        card,
        "_words_on_features",
        lambda names, columns: {
            "features": names,
            "units": units_of(names, columns),
            "modalities": sorted({name.split("_")[0] for name in names}),
        },
    )
    expected = everything_said(study, settings)[6]
    monkeypatch.setattr(
        Column, "name", property(lambda c: f"x{hash((c.channel, c.statistic, c.image))}")
    )
    assert everything_said(study, settings)[6] != expected


def test_left_out_by_pattern_are_all_kinds_of_columns(study: Study) -> None:
    patterns = ("size_*", "*_glrlm_*", "*_log3mm_*")
    left = WIDE.model_copy(update={"exclude": patterns})
    rows = extract(study, PipelineSettings(name="left", features=left)).rows
    gone = set(columns_of(WIDE)) - set(columns_of(left))
    assert {columns_of(WIDE)[name].channel for name in gone} == {"size", "glrlm", "log3mm"}
    assert gone.isdisjoint(rows.columns)


def test_a_column_more_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = settings_key(PipelineSettings(name="t"))
    assert columns_digest(FeatureSettings()) in before
    monkeypatch.setitem(words.MAPS, "wash_more", words.MAPS["wash_in"])
    assert settings_key(PipelineSettings(name="t")) != before


def test_every_field_of_a_kernel_is_computed() -> None:
    """A name without its kernel stays missing; it does not shift the others."""
    image = np.random.default_rng(2).normal(100, 20, (5, 9, 9))
    region = RegionVoxels.from_masks([np.ones(image.shape, bool)])
    values = region.values(image)
    levels, n_levels = discretise(values, region.start, 8, None)
    for made, table in (
        (statistics(values, region.start), words.STATISTICS),
        (
            statistics(values, region.start, np.full(len(values), 0.5), values > 80),
            words.STATISTICS,
        ),
        (histogram_features(levels, region.start, n_levels), words.HISTOGRAM),
        (haralick_features(levels, n_levels, region), words.HARALICK),
    ):
        assert made.dtype.names == tuple(table)
        assert all(np.isfinite(made[name][0]) and made[name][0] != 0 for name in table)


def test_the_page_is_current_and_has_every_column(repository: Path) -> None:
    made = runpy.run_path(str(repository / "scripts" / "features_page.py"))
    page = (repository / "docs" / "features.md").read_text(encoding="utf-8")
    assert page == made["features_page"]()
    for column in columns_of(made["EVERYTHING"]).values():
        if column.image:
            assert f"`{column.image}`" in page
            assert f"`{column.channel}`" in page
            assert f"`{column.statistic}`" in page
        else:
            assert f"`{column.name}`" in page
    assert len(page.split()) < 3_200
