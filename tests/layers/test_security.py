"""SECURITY.md is true sentence by sentence: every promise names a test, and the test is there."""

from __future__ import annotations

import ast
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
import tomllib
from pathlib import Path

import pytest

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
TABLES = (
    "What is protected",
    "Who is trusted",
    "Threats and what stands against them",
    "What is not protected against",
    "How it is checked",
)
LONGEST_CELL = 40  # words; a longer cell is read by nobody, and is several rows
# Of two sections, all that stands in no row of a table: sentences about DICOM, and advice to a
# site. They say nothing of the program that a test could show.
ADVICE = {
    "Who is trusted": {
        "An AE title is no proof of who calls a node: use certificates, or keep the port behind a "
        "firewall.",
        "Read a node's settings and the rules of an import before you use those of somebody else.",
    },
    "What is not protected against": {
        "What a site does about it:",
        "Fetch bundles over a channel that you trust, and published data from the publisher's own "
        "address.",
        "Keep a Dask cluster in a private network and use TLS (`tls://`, see `docs/cluster.md`); "
        "never bind it to a public address.",
        "Use TLS for DICOM, or send it through an encrypted tunnel.",
        "Encrypt the disk.",
    },
}


def sections(page: str) -> dict[str, list[str]]:
    """The table rows under every heading, without the head."""
    found = {}
    for part in page.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        found[title] = [line for line in body.splitlines() if line.startswith("| ")][1:]
    return found


def outside_of_tables(page: str, title: str) -> set[str]:
    """Return the sentences of a section that stand in no table."""
    (body,) = (part for part in page.split("\n## ") if part.startswith(f"{title}\n"))
    lines = []
    for line in body.splitlines()[1:]:
        if line.startswith("|"):
            continue
        # An item of a list, and a blank line, begin a new sentence.
        lines.append(f"\n{line[2:]}" if line.startswith("- ") else line or "\n")
    text = " ".join(lines)
    return {" ".join(part.split()) for part in re.split(r"\n|(?<=\.) ", text) if part.strip()}


def names_of(path: Path) -> set[str]:
    """The names of a file's test functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_a_test_that_exists(repository: Path):
    found = sections((repository / "SECURITY.md").read_text(encoding="utf-8"))
    assert set(found) == set(TABLES)
    for title in TABLES:
        assert found[title], f"{title} promises nothing"
        for row in found[title]:
            named = NAMED.findall(row.rpartition(" | ")[2])
            assert named, f"no test proves: {row}"
            for file, name in named:
                assert (repository / file).is_file(), file
                assert name.startswith("test_"), name
                assert name in names_of(repository / file), f"{file} has no {name}"


@pytest.mark.parametrize("title", ADVICE)
def test_what_no_test_shows_is_advice(repository: Path, title: str):
    """A new sentence is a row with its test, or is declared here to say nothing of the program."""
    page = (repository / "SECURITY.md").read_text(encoding="utf-8")
    assert outside_of_tables(page, title) == ADVICE[title]


def test_no_cell_is_long(repository: Path):
    found = sections((repository / "SECURITY.md").read_text(encoding="utf-8"))
    for row in (row for rows in found.values() for row in rows):
        for cell in row.strip("| ").split(" | "):
            words = [word for word in cell.split() if not word.startswith("`tests/")]
            assert len(words) <= LONGEST_CELL, cell


def test_every_test_that_the_page_names_exists(repository: Path):
    """Also those that stand in a sentence and in no table."""
    named = set(NAMED.findall((repository / "SECURITY.md").read_text(encoding="utf-8")))
    assert len(named) > 80
    missing = [f"{file}::{name}" for file, name in named if name not in names_of(repository / file)]
    assert not missing


def test_the_gate_looks_for_insecure_calls(repository: Path):
    """ruff's S are bandit's rules; one is left out a line at a time, never all of them."""
    assert "run ruff check ." in (repository / ".ci/run").read_text(encoding="utf-8")
    lint = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    assert not any("cad" in files for files in lint["per-file-ignores"])
    for path in (repository / "cad").rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not re.search(r"#\s*noqa(?!: [A-Z]+\d{3})", line), f"{path}: {line}"


def uv(repository: Path) -> str:
    """Return the place of uv: the scripts need it, and the lock file that it made."""
    found = shutil.which("uv")
    if found is None or not (repository / "uv.lock").is_file():
        pytest.skip("UV ABSENT: the bill of materials was not written")
    return found


def test_the_bill_of_materials_lists_what_is_pinned(repository: Path, tmp_path: Path):
    uv(repository)
    out = tmp_path / "sbom.json"
    done = subprocess.run(
        ["bash", repository / "scripts/sbom.sh", out],
        env={**os.environ, "UV_OFFLINE": "1", "UV_FROZEN": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(out.read_text(encoding="utf-8"))
    assert (content["bomFormat"], content["specVersion"]) == ("CycloneDX", "1.5")
    listed = {part["name"]: part["version"] for part in content["components"]}
    settings = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    pins = dict(pin.split("==") for pin in settings["tool"]["uv"]["constraint-dependencies"])
    direct = {
        re.match(r"[\w-]+", text)[0].lower().replace("_", "-")
        for text in settings["project"]["dependencies"]
    }
    assert direct <= set(listed)
    assert {name: listed[name] for name in direct} == {name: pins[name] for name in direct}


@pytest.mark.parametrize(
    ("said", "code", "expected"),
    [
        ("No known vulnerabilities found", 0, 0),
        ("Found 1 known vulnerability in 1 package\nName Version ID\nx 1 CVE-1", 1, 1),
        ("Name Skip Reason\nx Dependency not found on PyPI and could not be audited", 0, 2),
        ("requests.exceptions.ConnectionError: no network", 1, 2),
    ],
)
def test_the_advisory_check_tells_clean_from_unchecked(
    repository: Path, tmp_path: Path, said: str, code: int, expected: int
):
    """The tool's own exit code is 0 where it could check nothing: never taken for all clear."""
    uv(repository)
    tool = tmp_path / "uvx"
    tool.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) exit 0;; esac\n'
        f"printf '%s\\n' '{said}'\nexit {code}\n"
    )
    tool.chmod(0o755)
    done = subprocess.run(
        ["bash", repository / "scripts/advisories.sh"],
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "UV_OFFLINE": "1",
            "UV_FROZEN": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == expected, done.stdout + done.stderr


def test_the_bill_of_materials_has_the_hash_of_every_file(repository: Path, tmp_path: Path):
    from sbom_hashes import with_hashes

    lock = (
        tomllib.loads((repository / "uv.lock").read_text(encoding="utf-8"))
        if (repository / "uv.lock").is_file()
        else pytest.skip("LOCK FILE ABSENT")
    )
    components = [
        {"name": package["name"], "version": package["version"]}
        for package in lock["package"]
        if package["name"] in ("numpy", "pydicom", "prostate-cad")
    ]
    bom = {"components": components}
    assert with_hashes(bom, lock) == 1  # this project itself has no file there
    for component in components:
        hashes = [file["hashes"][0]["content"] for file in component["externalReferences"]]
        assert all(re.fullmatch(r"[0-9a-f]{64}", text) for text in hashes)
        assert len(hashes) == len(set(hashes)) > (-1 if component["name"] == "prostate-cad" else 1)


class _Registry(http.server.BaseHTTPRequestHandler):
    """A registry that wants a token from whoever asks, as the public ones do."""

    def do_GET(self) -> None:
        body = b'{"token": "anybody"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        port = self.server.server_address[1]
        allowed = self.headers.get("Authorization") == "Bearer anybody"
        self.send_response(200 if allowed else 401)
        if allowed and "without" not in self.path:
            self.send_header("Docker-Content-Digest", f"sha256:{'ab' * 32}")
        if not allowed:
            realm = f"http://127.0.0.1:{port}/token"
            asked = f'Bearer realm="{realm}",service="x",scope="repository:x:pull"'
            self.send_header("WWW-Authenticate", asked)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_base_images_are_pinned_where_a_registry_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from pin_images import main

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = f"127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("PIN_IMAGES_PLAIN", host)
    path = tmp_path / "Containerfile"
    sound = f"FROM {host}/library/python:3.13-slim AS build\nRUN x\nFROM build\n"
    path.write_text(sound)
    assert main([str(path), "--check"]) == 1
    assert main([str(path)]) == 0
    assert f"python:3.13-slim@sha256:{'ab' * 32} AS build" in path.read_text()
    assert path.read_text().endswith("\nFROM build\n")
    assert main([str(path), "--check"]) == 0
    for unknown in (sound.replace("python", "without"), sound.replace(host, "127.0.0.1:9")):
        path.write_text(unknown)
        assert main([str(path)]) == 2
        assert path.read_text() == unknown
    assert "nothing is known" in capsys.readouterr().out
    options = f"FROM --platform=x {host}/a/b:1"
    for unclear in (
        "FROM python:3.13-slim",
        "FROM mhubai/base:latest",
        options,
        f"from {host}/a/b:1",
    ):
        path.write_text(f"{sound}{unclear}\n")
        assert main([str(path), "--check"]) == 2
        assert repr(unclear) in capsys.readouterr().out
    server.shutdown()
    server.server_close()


def test_an_image_is_built_of_the_source_alone(repository: Path):
    # podman would take this file before the other, which docker takes alone.
    assert not (repository / ".containerignore").exists()
    ignored = (repository / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[1] == "*"  # all but what is named
    named = {line[1:] for line in ignored if line.startswith("!")}
    built = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert named >= {name.strip("/") for name in built["targets"]["sdist"]["include"]}
    # With the lock file, an image is built of the very files that the tests ran with.
    assert "uv.lock" in named
    assert not named & {".git", ".venv", "tests", "benchmarks"}
    assert {"**/__pycache__", "**/*.nbi", "**/.stage-*"} <= set(ignored)
    script = (repository / "scripts/check_container.sh").read_text(encoding="utf-8")
    assert "ignorefile" not in script


def test_one_version_of_uv_makes_every_environment(repository: Path):
    versions = set()
    for file in ("Containerfile", "contracts/mhub/dockerfiles/Dockerfile", ".ci/run"):
        text = (repository / file).read_text(encoding="utf-8")
        (version,) = re.findall(r'"uv==(\d+\.\d+\.\d+)"', text)
        versions.add(version)
    (pinned,) = versions
    # An older uv is refused with a message; README's `pip install uv` brings no older one.
    settings = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["uv"]["required-version"] == f">={pinned}"


def test_the_image_without_a_digest_is_named_on_the_page(repository: Path):
    """MHub builds its own base image and asks for its newest; nothing here can fix it."""
    page = (repository / "docs/containers.md").read_text(encoding="utf-8")
    for path in (repository / "Containerfile", *repository.glob("contracts/**/Dockerfile")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.match(r"FROM \S+:latest", line):
                assert f"`{line}`" in page, path
