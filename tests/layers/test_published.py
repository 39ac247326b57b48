"""Texts for indexes, archives and visitors come from one source, and their links lead somewhere."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import conda_recipe
import published
import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_what_is_made_is_what_the_sources_say():
    for name, content in published.files().items():
        assert json.loads((ROOT / name).read_text()) == content, "python scripts/published.py"


def test_the_address_is_one():
    address = PROJECT["urls"]["Repository"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["repository-code"] == address
    assert citation["version"] == PROJECT["version"]
    for url in PROJECT["urls"].values():
        assert url.startswith(address)
    text = (ROOT / "pyproject.toml").read_text()
    assert f"]({address}/blob/main/" in text


def test_another_address_reaches_both_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("pyproject.toml", "CITATION.cff"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    monkeypatch.setattr(published, "ROOT", tmp_path)
    published.set_address("https://forge.example/cad")
    for name in ("pyproject.toml", "CITATION.cff"):
        text = (tmp_path / name).read_text()
        assert "https://forge.example/cad" in text
        assert "prostate-cad.invalid" not in text


def test_an_index_shows_no_link_that_needs_the_other_pages():
    of_package = metadata("prostate-cad")
    # The README is the body of the metadata. Some libraries replace the reader of metadata by one
    # that gives the README as the header Description.
    shown = of_package.get_payload() or of_package["Description"]
    links = re.findall(r"\]\(([^)]+)\)", str(shown))
    assert len(links) > 20
    for link in links:
        assert link.startswith(("https://", "#"))


def test_an_index_shows_pictures_and_not_pages_about_them():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    hook = tool["hatch"]["metadata"]["hooks"]
    shown = (ROOT / "README.md").read_text()
    for rule in hook["fancy-pypi-readme"]["substitutions"]:
        shown = re.sub(rule["pattern"], rule["replacement"], shown)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", shown)
    address = PROJECT["urls"]["Repository"]
    assert pictures
    for link in pictures:
        assert link.startswith(f"{address}/raw/main/")


@pytest.mark.parametrize("address", ["forge.example/cad", "https://forge.example/cad/", "https://"])
def test_an_address_that_would_lead_nowhere_is_refused(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("pyproject.toml", "CITATION.cff"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    monkeypatch.setattr(published, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="https://HOST/PATH"):
        published.set_address(address)
    for name in ("pyproject.toml", "CITATION.cff"):
        assert (tmp_path / name).read_text() == (ROOT / name).read_text()


def test_no_command_has_a_placeholder_that_its_page_does_not_explain():
    for page in PAGES:
        text = page.read_text()
        assert "REPOSITORY" not in text, page
        if "git clone ADDRESS" in text:
            assert "ADDRESS: where you found this page" in text, page


def test_issue_forms_ask_for_what_they_require():
    for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        form = yaml.safe_load(path.read_text())
        if path.stem == "config":
            continue
        assert form["name"]
        assert form["description"]
        ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
        assert len(ids) == len(set(ids))
    fault = (ROOT / ".github" / "ISSUE_TEMPLATE" / "fault.yml").read_text()
    assert "No data of patients" in fault


def test_the_paper_cites_what_its_list_has():
    text = (ROOT / "paper" / "paper.md").read_text()
    listed = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text(), re.M))
    cited = set(re.findall(r"@(\w+)", text.split("---", 2)[2]))
    assert cited == listed


def test_the_conda_recipe_names_a_source_that_is_there(tmp_path: Path):
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    backend = content["build-system"]["requires"]
    here = conda_recipe.recipe(PROJECT, backend, conda_recipe.source("", None))
    assert here["source"] == {"path": str(ROOT)}
    archive = tmp_path / "prostate_cad.tar.gz"
    archive.write_bytes(b"released")
    url = "https://index.test/prostate_cad.tar.gz"
    released = conda_recipe.recipe(PROJECT, backend, conda_recipe.source(url, archive))
    digest = hashlib.sha256(b"released").hexdigest()
    assert released["source"] == {"url": url, "sha256": digest}
    # Every direct dependency is asked for when it runs.
    asked = {line.split()[0] for line in released["requirements"]["run"]}
    for text in PROJECT["dependencies"]:
        name = Requirement(text).name
        assert conda_recipe.NAMES.get(name, name.lower()) in asked
    assert "example.org" not in (ROOT / "scripts" / "conda_recipe.py").read_text()
