"""Experiments on real people: their published values, and made tables in the same form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cad.base.errors import CadError
from cad.evidence.experiments import Options, fae, picai, viper
from cad.learners import ProbabilisticSVC

HEAD = ",".join(picai.COLUMNS)


def marksheet(folder: Path, men: int = 300) -> Path:
    """Write a marksheet in PI-CAI's form: three centres, one lesion or two a man."""
    rng, rows = np.random.default_rng(2), []
    for man in range(men):
        categories = sorted(rng.integers(1, 6, rng.integers(1, 3)), reverse=True)
        tissue = rng.random() < 0.8
        grades = [3 if rng.random() < (c - 1) / 5 else 0 for c in categories]
        cancer = tissue and 3 in grades
        gs = ",".join("4+3" if grade else "0+0" for grade in grades) if tissue else ""
        psa = 8.0 + 4 * cancer + rng.random()
        rows.append(
            f"{man},{man}0,{60 + man % 20},{psa:.1f},,{40 + man % 30},{'MRBx' if tissue else ''},"
            f'"{",".join(map(str, categories))}","{gs}",{"YES" if cancer else "NO"},'
            f"{('A', 'B', 'C')[man % 3]}"
        )
    (folder / "made_marksheet.csv").write_text("\n".join([HEAD, *rows]) + "\n")
    return folder


@pytest.mark.filterwarnings("ignore::cad.learning.learners.base.LearnerWarning")
def test_picai_readers_has_every_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picai, "SITE_DRAWS", 2)
    few_settings = picai.lesion_learners()
    for name in ("P-SVM (shipped)", "ensemble (shipped)"):
        few_settings[name].set_params(C=1.0, gamma=0.3, eta0=0.05, kappa=1.0, folds=2)
    monkeypatch.setattr(picai, "lesion_learners", lambda: few_settings)
    result = picai.compare_belief_and_histology(
        Options(tmp_path, data=marksheet(tmp_path, 120), repeats=1)
    )
    lesions, left, men, tenths, sites = result.tables.values()
    assert len(lesions) == len(picai.lesion_learners()) * 4 == len(left)
    assert men["men"].tolist() == ["all", "with tissue"] * 3
    assert tenths["n"].sum() == 120
    assert sites["centre left out"].tolist() == ["A", "B", "C"]
    assert "ask not to benchmark" in result.setup


def test_who_is_worst_is_counted_by_hand() -> None:
    rows = [("a", "x", ".2"), ("b", "x", ".3"), ("a", "y", ".4"), ("b", "y", ".1")]
    table = pd.DataFrame(rows, columns=["learner", "told", "Brier"])
    assert [picai.worst_brier(table, name) for name in "ab"] == [1, 1]


def test_a_centre_of_one_class_is_named() -> None:
    men = pd.DataFrame({"man": [str(i) for i in range(60)], "centre": ["A", "B"] * 30})
    men["truth"] = np.where((men["centre"] == "A") & (men.index < 30), 1.0, 0.0)
    with pytest.raises(CadError, match="centre B: all 30 men are benign by lesion_GS"):
        picai.measure_sites(men, least=10, draws=1)


def test_what_is_told_comes_from_training_men_alone(tmp_path: Path) -> None:
    _, lesions = picai.read_marksheet(marksheet(tmp_path))
    train = lesions.iloc[:80]
    first = picai.training_labels(train, 0)
    share = picai.shares(train["category"], train["truth"])
    assert (first["belief"][0] == train["category"].map(share)).all()
    truth = first["one in ten"][0]
    men = train.loc[np.isfinite(truth), "man"].nunique()
    assert 0 < men <= round(0.1 * train["man"].nunique())
    mixed = first["belief and one in ten"][0]
    assert (mixed[np.isfinite(truth)] == truth[np.isfinite(truth)]).all()
    # The other men's tissue is not known: it may not say what their categories are worth.
    hidden = train.assign(truth=truth)
    again = picai.training_labels(hidden, 0)["belief and one in ten"][0]
    assert (mixed == again).all()
    assert not (mixed == first["belief"][0]).all()


@pytest.mark.parametrize("category", ["0", "6"])
def test_a_category_off_the_scale_names_the_man(tmp_path: Path, category: str) -> None:
    row = f"17,170,60,8,,40,MRBx,{category},0+0,NO,A"
    (tmp_path / "x_marksheet.csv").write_text(f"{HEAD}\n{row}\n")
    with pytest.raises(CadError, match=rf"17.*PI-RADS '{category}' is none of 1 to 5"):
        picai.read_marksheet(tmp_path)


def test_the_public_marksheet(shared_data: Path) -> None:
    men, lesions = picai.read_marksheet(shared_data / "picai")
    assert (len(men), men["man"].nunique(), int(men["truth"].sum())) == (1500, 1476, 425)
    assert (len(lesions), int(lesions["truth"].notna().sum())) == (1988, 1324)
    known = lesions.dropna(subset="truth").groupby("category")["truth"]
    assert known.sum().tolist() == [2, 11, 24, 159, 257]
    assert known.count().tolist() == [96, 148, 240, 437, 403]
    # The man: .88 and .79, whatever the deal of the folds.
    y, tissue = men["truth"].to_numpy(float), men["tissue"].to_numpy(bool)
    parts = picai.deal(men["man"], 0)
    _, rank, _ = picai.score_men(men, parts, picai.MEN)
    assert picai.metrics.auc(y, rank) == pytest.approx(0.881, abs=0.002)
    assert picai.metrics.auc(y[tissue], rank[tissue]) == pytest.approx(0.795, abs=0.003)
    # The category alone needs no model: ranks keep its order, pooled probabilities do not.
    q, rank, centred = picai.score_men(men, parts, ("category",))
    for use in (y >= 0, tissue):
        bare = picai.metrics.auc(y[use], men["top"].to_numpy(float)[use])
        assert picai.metrics.auc(y[use], rank[use]) == pytest.approx(bare, abs=0.004)
        # Each category's share remembers its own men, which no base takes away.
        assert picai.metrics.auc(y[use], q[use]) < bare - 0.008
        assert picai.metrics.auc(y[use], centred[use]) < bare - 0.008


def test_viper_is_the_published_table(shared_data: Path, tmp_path: Path) -> None:
    (table,) = viper.compare_modalities(
        Options(tmp_path, data=shared_data / "viper")
    ).tables.values()
    assert table["holds"].tolist() == ["yes"] * 5


def test_fae_without_size_sees_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    names = ("ADC_original_shape_Volume", "ADC_general_info_VoxelNum", "T2_original_glcm_Contrast")
    table = pd.DataFrame({name: y + rng.normal(size=40) for name in names})
    table.insert(0, "label", y)
    table.to_csv(tmp_path / fae.FILE)
    monkeypatch.setattr(fae, "rivals", lambda: {})
    monkeypatch.setattr(fae, "AveragedProbabilisticSVC", ProbabilisticSVC)
    (found,) = fae.men(Options(tmp_path, data=tmp_path)).tables.values()
    assert found["features"].unique().tolist() == [
        "all (3)",
        "without size and shape (1)",
        "size and shape alone (2)",
    ]
    assert found["learner"].tolist()[:2] == [
        fae.SHIPPED,
        f"{fae.SHIPPED}, each man left out",
    ]


@pytest.mark.parametrize(
    "run", [picai.compare_belief_and_histology, fae.men, viper.compare_modalities]
)
def test_real_data_are_asked_for(run: object, tmp_path: Path) -> None:
    with pytest.raises(CadError, match="needs --data"):
        run(Options(tmp_path))  # type: ignore[operator]
