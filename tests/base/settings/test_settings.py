"""Settings: typed, documented, refused with the nearest known key."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from cad.base.errors import CadError
from cad.base.settings import (
    DecisionSettings,
    PipelineSettings,
    parse_settings,
    read_settings,
)


def test_every_key_is_documented(repository: Path) -> None:
    page = runpy.run_path(str(repository / "scripts" / "settings_page.py"))["settings_page"]()
    assert (repository / "docs" / "settings.md").read_text() == page
    assert "): None" not in page  # a key without a description


def test_every_column_of_the_results_is_documented(repository: Path) -> None:
    page = runpy.run_path(str(repository / "scripts" / "results_page.py"))["results_page"]()
    assert (repository / "docs" / "results.md").read_text() == page


@pytest.mark.parametrize("folder", ["pipelines"])
def test_every_pipeline_file_is_valid(repository: Path, folder: str) -> None:
    files = sorted((repository / folder).glob("*.yaml"))
    assert files
    for path in files:
        assert read_settings(PipelineSettings, path).name == path.stem


def test_every_decision_file_is_valid(repository: Path) -> None:
    for path in sorted((repository / "configs" / "decision").glob("*.yaml")):
        lower, upper = read_settings(DecisionSettings, path).thresholds
        assert 0 < lower < upper < 1


def test_default_costs_give_the_published_thresholds() -> None:
    # docs/methods.md 3: C_n = 1, C_p = 4, R_n = R_p = .4 give P- = .1 and P+ = .6.
    assert DecisionSettings().thresholds == pytest.approx((0.1, 0.6), abs=1e-12)


def test_thresholds_minimise_the_expected_cost() -> None:
    costs = DecisionSettings(
        false_positive=2, false_negative=5, refer_negative=0.5, refer_positive=0.7
    )
    lower, upper = costs.thresholds
    for p in (0.01, lower - 1e-6, lower + 1e-6, 0.3, upper - 1e-6, upper + 1e-6, 0.99):
        benign = p * costs.false_negative
        malignant = (1 - p) * costs.false_positive
        refer = p * costs.refer_positive + (1 - p) * costs.refer_negative
        best = min((benign, "benign"), (malignant, "malignant"), (refer, "refer"))[1]
        said = "benign" if p < lower else "malignant" if p > upper else "refer"
        assert said == best


def test_costs_that_make_referring_useless_are_refused() -> None:
    with pytest.raises(CadError, match="useless"):
        DecisionSettings(refer_negative=0.9, refer_positive=0.8).thresholds  # noqa: B018


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("name: x\nlabels: {kapa: 0.1}", "labels.kapa; did you mean 'kappa'"),
        ("name: x\nlernaer: {}", "lernaer; did you mean 'learner'"),
        ("name: x\nlabels: {eta0: 0.9}", "labels.eta0.*0.9"),
        ("name: x\nvalidate: {scheme: loocv}", "validate.scheme"),
        ("labels: {}", "name"),
        ("- a\n- b", "mapping"),
        ("name: [", "YAML"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(content)
    with pytest.raises(CadError, match=words) as caught:
        read_settings(PipelineSettings, path)
    assert "p.yaml" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CadError, match="no such settings file"):
        read_settings(PipelineSettings, tmp_path / "absent.yaml")


def test_settings_do_not_change_after_reading() -> None:
    settings = parse_settings(PipelineSettings, {"name": "x"})
    with pytest.raises(ValueError, match="frozen"):
        settings.name = "y"


@pytest.mark.parametrize("value", ["28", "0", "1", "-0.1", ".nan", "true", '"0.28"', "[0.2]"])
def test_a_prevalence_that_is_no_share_is_refused_with_an_example(
    value: str, tmp_path: Path
) -> None:
    path = tmp_path / "place.yaml"
    path.write_text(f"prevalence: {value}\n")
    with pytest.raises(CadError, match=r"prevalence: must be a share .* 0\.28 for 28 %.*found"):
        read_settings(DecisionSettings, path)


def test_a_share_of_men_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "place.yaml"
    path.write_text("prevalence: 0.28\n")
    assert read_settings(DecisionSettings, path).prevalence == 0.28


def test_a_rule_about_several_keys_is_said_without_an_empty_path(tmp_path: Path) -> None:
    path = tmp_path / "place.yaml"
    path.write_text("man_ppv: 0.5\n")
    with pytest.raises(CadError) as caught:
        read_settings(DecisionSettings, path)
    assert str(caught.value.problem).startswith("man_ppv is no setting any more")
