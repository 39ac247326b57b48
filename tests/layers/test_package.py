"""The distribution states its name, licence, version and packages alike everywhere."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml
from tag_text import tag_text

import cad
from cad.base.errors import CadError, install
from cad.base.share import shared
from cad.learners import SVMROC, ProbabilisticSVC

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINE = 140
"""Longest line of the changelog under "Unreleased"."""
# On the package index `cad` is another project: an extra of it, or a wheel of that name.
OLD_NAME = re.compile(
    r"(?<![\w.-])cad\[[a-z]|pip install [^\n`)]*(?<![\w./-])cad(?![\w./-])|/cad-\*"
)


def texts() -> list[Path]:
    """Return every text of the checkout that a user or a contributor reads."""
    folders = ("cad", "tests", "benchmarks", "scripts", "docs", "pipelines", "configs", ".ci")
    inner = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    kinds = {".py", ".md", ".yaml", ".toml", ".sh", ".html", ".cff", ""}
    return [
        path
        for path in [*ROOT.glob("*"), *inner]
        if path.is_file() and path.suffix in kinds and path != Path(__file__)
    ]


def test_nothing_tells_a_user_to_install_another_project() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in texts()
        for found in OLD_NAME.findall(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("pip install 'cad[cluster]'", True),
        ("an image that has `cad[cluster]`", True),
        ("pip install --no-index --find-links wheels cad\n", True),
        ("pip install 'prostate-cad[cluster]'", False),
        ("pip install prostate-cad", False),
        ("env/bin/cad demo", False),
    ],
)
def test_the_old_name_is_seen(text: str, old: bool) -> None:
    assert bool(OLD_NAME.search(text)) == old


def test_every_extra_that_a_hint_names_exists() -> None:
    named = {
        name
        for path in (ROOT / "cad").rglob("*.py")
        for name in re.findall(
            r"""(?:\binstall\(["']|prostate-cad\[)([a-z]+)""", path.read_text(encoding="utf-8")
        )
    }
    assert {"cluster", "reference", "codecs", "dicomweb"} <= named
    assert named <= set(PROJECT["optional-dependencies"])
    assert "prostate-cad[cluster]" in install("cluster")


def test_name_version_and_licence_agree_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert PROJECT["name"] == "prostate-cad"
    assert PROJECT["version"] == cad.__version__ == citation["version"]
    assert PROJECT["license"] == citation["license"] == "BSD-3-Clause"
    assert "BSD 3-Clause" in (ROOT / "LICENSE").read_text()
    assert [a["name"] for a in PROJECT["authors"]] == ["The prostate-cad developers"]
    assert len(citation["references"]) == 3


def test_a_tag_has_the_lines_of_its_release_as_plain_text() -> None:
    changelog = """# Changelog

## Unreleased

- Not yet.

## 1.1.0 (2027-01-02)

- **Two numbers.** `belief` and
  `probability`, see [the page](docs/probability.md).
- Another line.

## 1.0.0

- The first.
"""
    expected = (
        "prostate-cad 1.1.0, 2027-01-02\n\n"
        "- Two numbers. belief and probability, see the page.\n\n"
        "- Another line.\n"
    )
    assert tag_text(changelog, "1.1.0") == expected
    assert tag_text(changelog, "1.0.0") == "prostate-cad 1.0.0\n\n- The first.\n"
    with pytest.raises(ValueError, match=r"no heading '## 1\.1'"):
        tag_text(changelog, "1.1")
    # The release that the package states has a text.
    shipped = tag_text((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), cad.__version__)
    assert shipped.count("\n- ") >= 5


def newest_release(changelog: str) -> tuple[str, str]:
    """Return version and day of the newest release of a changelog."""
    heading = re.search(r"^## (\d+\.\d+\.\d+) \(([\d-]+)\)$", changelog, re.MULTILINE)
    assert heading is not None
    return heading[1], heading[2]


def other_wheels(version: str, pages: dict[str, str]) -> list[str]:
    """Return the wheels that pages name with another version than this one, after the page."""
    wrong = []
    for name, text in pages.items():
        for named in re.findall(r"prostate_cad-(\d[\w.]*)-py3", text):
            if named != version:
                wrong.append(f"{name}: {named}")
    return wrong


def test_the_newest_release_is_the_version_that_the_package_states() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    version, day = newest_release(changelog)
    assert version == cad.__version__
    assert day == str(citation["date-released"])
    assert tag_text(changelog, version).startswith(f"prostate-cad {version}, {day}\n\n- ")
    security = [item for item in sections(changelog)[f"{version} ({day})"] if "Security" in item]
    assert len(security) == 1
    assert "](SECURITY.md)" in security[0]


def test_pages_name_the_wheel_of_this_version() -> None:
    pages = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    }
    assert any(f"prostate_cad-{cad.__version__}-py3" in text for text in pages.values())
    assert other_wheels(cad.__version__, pages) == []
    old = {"docs/node.md": "pip install ./prostate_cad-0.1.0-py3-none-any.whl"}
    assert other_wheels("1.0.0", old) == ["docs/node.md: 0.1.0"]


def sections(changelog: str) -> dict[str, list[str]]:
    """Return the items of a changelog by the heading of their release."""
    items = {}
    for section in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        items[heading] = [item.strip() for item in re.split(r"^- ", body, flags=re.MULTILINE)[1:]]
    return items


def too_long(changelog: str) -> list[str]:
    """Return what makes a changelog too long to be read before an update."""
    wrong = []
    for heading, items in sections(changelog).items():
        if len(items) > 12:
            wrong.append(f"{heading}: {len(items)} items, join those of one subject")
        for item in items:
            if heading == "Unreleased" and ("\n" in item or len(item) > LINE):
                wrong.append(f"{heading}: more than one line of {LINE} characters: {item[:60]}")
            elif item.count("\n") >= 3:
                wrong.append(f"{heading}: more than three lines: {item[:60]}")
    return wrong


def test_the_changelog_is_short() -> None:
    """A user reads a release in a minute: twelve items at most, each of three lines."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert too_long(changelog) == []
    assert too_long("## Unreleased\n\n- One\n  and more.\n") == [
        "Unreleased: more than one line of 140 characters: One\n  and more."
    ]
    assert len(too_long("## Unreleased\n\n- " + "o" * 141)) == 1
    assert len(too_long("## 2.0.0\n\n- One\n  and\n  more\n  lines.\n")) == 1
    assert too_long("## 2.0.0\n\n" + "- One.\n" * 13) == [
        "2.0.0: 13 items, join those of one subject"
    ]


def test_a_plain_installation_brings_no_strong_copyleft(capsys: pytest.CaptureFixture[str]) -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from licences import is_strong_copyleft, main
    finally:
        sys.path.pop(0)
    assert main([]) == 0
    plain = capsys.readouterr().out
    assert "| numpy |" in plain
    assert "cvxopt" not in plain
    assert main(["reference"]) == 1
    assert "cvxopt" in capsys.readouterr().err
    assert is_strong_copyleft("GPL-3.0-or-later")
    assert not is_strong_copyleft("LGPL-3.0-only")
    assert not is_strong_copyleft("MIT OR GPL-3.0-or-later")


def test_without_the_reference_extra_only_the_reference_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cvxopt", None)
    X = np.random.default_rng(0).normal(size=(12, 2))
    y = np.arange(12) % 2
    for learner in (ProbabilisticSVC, SVMROC):
        learner().fit(X, y)
        with pytest.raises(CadError, match=r"prostate-cad\[reference\]"):
            learner(solver="cvxopt").fit(X, y)


def test_no_shipped_pipeline_names_the_reference_solver() -> None:
    assert not [p for p in shared("pipelines").glob("*.yaml") if "cvxopt" in p.read_text()]
